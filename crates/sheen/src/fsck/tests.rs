#![allow(clippy::unwrap_used)]

use super::*;
use crate::sys;
use base::limits::RECOVERY_WINDOW;
use base::{Attr, Fid, FileType, ObjectId, Version};
use mds::rows::{self, Dentry, Inode};
use mds::{Mds, MdsOptions};
use oss::{Oss, OssOptions};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use store::{Batch, MetaStore, ObjectStore};
use store_disk::{MetaDisk, ObjectDisk, ObjectOptions, Options};

const FSNAME: &str = "little";
/// So many rows that their pages have branches.
const NAME_COUNT: u32 = 400;

/// The directories of an MDT and an OST that were served, and ended in order.
struct Little {
    dir: tempfile::TempDir,
}

impl Little {
    fn new() -> Little {
        let dir = tempfile::tempdir().unwrap();
        let little = Little { dir };
        for id in [TargetId::mdt(0), TargetId::ost(0)] {
            target_dir::make(&little.path(id), id, FSNAME, &["127.0.0.1:7988".to_owned()]).unwrap();
        }
        little.serve();
        little
    }

    fn path(&self, id: TargetId) -> PathBuf {
        self.dir.path().join(id.to_string())
    }

    fn index(&self) -> PathBuf {
        self.path(TargetId::mdt(0)).join("meta/index")
    }

    fn serve(&self) {
        let options = Options { no_sync: true, ..Options::default() };
        let now = net::clock::now();
        let meta_of = |id| {
            let path = self.path(id).join("meta");
            fs::create_dir_all(&path).unwrap();
            Arc::new(MetaDisk::open_or_create(&path, &options, Arc::new(|| ())).unwrap())
        };
        let mdt = meta_of(TargetId::mdt(0));
        let mds_options = MdsOptions {
            index: 0,
            uuid: 1,
            fsname: FSNAME.into(),
            nid: "here".into(),
            now,
            device: 1,
            recovery_window: RECOVERY_WINDOW,
            root_owner: (0, 0),
        };
        drop(Mds::open(Arc::clone(&mdt), mds_options).unwrap());
        add_names(&mdt);
        mdt.checkpoint().unwrap();
        // Something for the log alone.
        add_name(&*mdt, NAME_COUNT);
        mdt.close();
        let ost = meta_of(TargetId::ost(0));
        let object_options = ObjectOptions { no_sync: true, ..ObjectOptions::default() };
        let objects =
            ObjectDisk::open(&self.path(TargetId::ost(0)).join("objects"), &object_options, Arc::new(|| ()));
        let objects = Arc::new(objects.unwrap());
        drop(
            Oss::open(Arc::clone(&ost), Arc::clone(&objects), OssOptions::new(0, 2, FSNAME, 1, now)).unwrap(),
        );
        objects.close();
        ost.close();
        for (id, disk) in [(TargetId::mdt(0), &mdt), (TargetId::ost(0), &ost)] {
            target_dir::open(&self.path(id)).unwrap().set_served(disk).unwrap();
        }
    }

    fn run_with(&self, change: impl FnOnce(&mut cli::Fsck)) -> Result<Outcome> {
        let dirs = [TargetId::mdt(0), TargetId::ost(0)].map(|id| self.path(id)).to_vec();
        let mut arguments = cli::Fsck {
            dirs,
            repair: false,
            remove_remains: false,
            data: true,
            without: Vec::new(),
            fenced: false,
            json: true,
        };
        change(&mut arguments);
        super::run(&arguments, &|_| Ok(()))
    }

    fn run(&self) -> Result<Outcome> {
        self.run_with(|_| ())
    }

    fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> =
            self.run().unwrap().found.findings.iter().map(|finding| finding.kind).collect();
        kinds.dedup();
        kinds
    }

    /// Every file but `lock`, which names the process that has the target.
    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let (mut waiting, mut found) = (vec![self.dir.path().to_path_buf()], BTreeMap::new());
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    waiting.push(path);
                } else if !path.ends_with("lock") {
                    found.insert(path.clone(), fs::read(&path).unwrap());
                }
            }
        }
        found
    }
}

fn number_fid(number: u32) -> Fid {
    Fid { seq: Fid::sequence(0, 1 << 14), oid: number + 1, ver: 0 }
}

fn put_name(batch: &mut Batch, root: &Attr, number: u32) {
    let (fid, name) = (number_fid(number), format!("name {number}"));
    let (file_type, version) = (FileType::Fifo, Version(1));
    let inode = Inode::new(Attr { fid, file_type, link_count: 1, version, ..root.clone() });
    batch.put(rows::INODES, &fid.key(), &rows::encode(&inode));
    let dentry = rows::encode(&Dentry { fid, file_type });
    batch.put(rows::DENTRIES, &rows::dentry_key(Fid::ROOT, name.as_bytes()), &dentry);
    batch.put(rows::LINKS, &rows::link_key(fid, Fid::ROOT, name.as_bytes()), b"");
}

fn root_of(store: &dyn MetaStore) -> Attr {
    let row = store.get(rows::INODES, &Fid::ROOT.key()).unwrap().unwrap();
    rows::decode::<Inode>(&row).unwrap().attr
}

fn add_name(store: &dyn MetaStore, number: u32) {
    let mut batch = Batch::new();
    put_name(&mut batch, &root_of(store), number);
    store.apply(store.applied().next(), &batch).unwrap();
}

fn add_names(store: &MetaDisk) {
    let (mut batch, root) = (Batch::new(), root_of(store));
    (0..NAME_COUNT).for_each(|number| put_name(&mut batch, &root, number));
    store.apply(store.applied().next(), &batch).unwrap();
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_clean_file_system_is_clean_and_nothing_is_changed() {
    let little = Little::new();
    let before = little.contents();
    let outcome = little.run().unwrap();
    assert!(outcome.found.is_clean(), "{:?}", outcome.found.findings);
    assert_eq!(outcome.found.inode_count, u64::from(NAME_COUNT) + 2);
    assert_eq!(status(&outcome), 0);
    // With nothing to repair nothing is opened for it.
    assert_eq!(status(&little.run_with(|arguments| arguments.repair = true).unwrap()), 0);
    assert!(little.contents() == before, "a check has changed something");
}

/// A single bit in every block of the base: it is found, and neither a panic nor a row that nobody wrote.
#[test]
fn a_flipped_bit_in_any_block_of_the_base_is_found() {
    const BLOCK: usize = 4096;
    let little = Little::new();
    let index = little.index();
    let sound = fs::read(&index).unwrap();
    let block_count = sound.len() / BLOCK;
    assert!(block_count > 100, "{block_count} blocks");
    // Block 0 has the checksums of those behind it, block 1 is redb's own header.
    for block in (0..block_count).filter(|block| *block != 1) {
        // Of the checksums those that are of a block: the first is of redb's header, and is not looked at.
        let within = if block == 0 { 4 + 9 } else { block * 37 % BLOCK };
        let mut bytes = sound.clone();
        bytes[block * BLOCK + within] ^= 1 << (block % 8);
        fs::write(&index, &bytes).unwrap();
        assert_eq!(little.kinds(), [Kind::IndexDamaged], "block {block}");
    }
    // redb's header, of which parts mean nothing: whatever it says, no other rows are shown.
    for at in BLOCK..BLOCK + 320 {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&index, &bytes).unwrap();
        let found = little.run().unwrap().found;
        let kinds: BTreeSet<Kind> = found.findings.iter().map(|finding| finding.kind).collect();
        let is_damage = |kind: &Kind| matches!(kind, Kind::IndexDamaged | Kind::LogDamaged);
        assert!(kinds.iter().all(is_damage), "byte {at}: {:?}", found.findings);
        assert!(!kinds.is_empty() || found.inode_count == u64::from(NAME_COUNT) + 2, "byte {at}");
    }
    fs::write(&index, &sound).unwrap();
    assert_eq!(status(&little.run().unwrap()), 0);
}

#[test]
fn a_base_that_was_cut_is_found_and_nothing_is_repaired() {
    let little = Little::new();
    let index = little.index();
    let sound = fs::read(&index).unwrap();
    for length in [0, 1, 4096, 8192, sound.len() / 2, sound.len() - 4096, sound.len() - 1] {
        fs::write(&index, &sound[..length]).unwrap();
        let before = little.contents();
        let outcome = little.run().unwrap();
        assert_eq!(status(&outcome), UNCORRECTED, "{length} bytes");
        assert!(
            outcome.found.findings.iter().all(|finding| finding.kind == Kind::IndexDamaged),
            "{length} bytes"
        );
        assert_eq!(status(&little.run_with(|arguments| arguments.repair = true).unwrap()), UNCORRECTED);
        assert!(little.contents() == before, "{length} bytes");
    }
    fs::remove_file(&index).unwrap();
    assert_eq!(little.kinds(), [Kind::IndexDamaged]);
}

/// With nothing in its place a target would be taken for a new one, and all that leads to it, or that only it knows of, for damage.
#[test]
fn a_target_that_has_lost_its_stores_is_no_new_one() {
    for (id, lost, kind) in [
        (TargetId::mdt(0), "meta", Kind::IndexDamaged),
        (TargetId::ost(0), "meta", Kind::IndexDamaged),
        (TargetId::ost(0), "objects", Kind::ObjectsLost),
    ] {
        let little = Little::new();
        fs::remove_dir_all(little.path(id).join(lost)).unwrap();
        assert_eq!(little.kinds(), [kind], "{id} {lost}");
        let before = little.contents();
        assert_eq!(status(&little.run_with(|arguments| arguments.repair = true).unwrap()), UNCORRECTED);
        assert!(little.contents() == before, "{id} {lost}");
    }
}

/// The only log segment of the MDT that has anything behind what the base has, with its bytes.
fn last_segment(little: &Little) -> (PathBuf, Vec<u8>) {
    let log = little.path(TargetId::mdt(0)).join("meta/log");
    let paths = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path());
    let used = paths.map(|path| (path.clone(), fs::read(&path).unwrap()));
    let last_name = format!("name {}", NAME_COUNT + 1);
    used.filter(|(_, bytes)| contains(bytes, last_name.as_bytes()))
        .max_by_key(|(path, _)| path.clone())
        .unwrap()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_log_that_was_durable_is_missed() {
    let little = Little::new();
    let meta = little.path(TargetId::mdt(0)).join("meta");
    let options = Options { no_sync: false, ..Options::default() };
    let disk = MetaDisk::open(&meta, &options, Arc::new(|| ())).unwrap();
    add_name(&disk, NAME_COUNT + 1);
    disk.close();
    drop(disk);
    let (path, sound) = last_segment(&little);
    for byte_count in [0, 100] {
        edit(&path, |bytes| bytes[byte_count..].fill(0));
        let before = little.contents();
        let found = little.run().unwrap().found;
        assert!(
            matches!(found.findings[..], [ref only] if only.kind == Kind::LogDamaged),
            "{:?}",
            found.findings
        );
        let what = &found.findings[0].what;
        assert!(what.contains("breaks off at byte") && what.contains("had been durable up to"), "{what}");
        assert!(little.contents() == before, "a check has changed something");
        fs::write(&path, &sound).unwrap();
    }
    assert_eq!(status(&little.run().unwrap()), 0);
}

/// A file system whose last change is torn. `None`: a mark of the committer had come behind it, and that is torn instead.
fn with_torn_change() -> Option<Little> {
    let little = Little::new();
    let meta = little.path(TargetId::mdt(0)).join("meta");
    let sync_interval = std::time::Duration::from_secs(3600);
    let options = Options { no_sync: true, sync_interval, ..Options::default() };
    let disk = MetaDisk::open(&meta, &options, Arc::new(|| ())).unwrap();
    add_name(&disk, NAME_COUNT + 1);
    drop(disk);
    let inode_count = || little.run().unwrap().found.inode_count;
    assert_eq!(inode_count(), u64::from(NAME_COUNT) + 3);
    let (path, _) = last_segment(&little);
    edit(&path, |bytes| {
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        bytes[end - 20..].fill(0);
    });
    (inode_count() == u64::from(NAME_COUNT) + 2).then_some(little)
}

/// What a crash has left half-written was promised to nobody; it stays where it is until a server cuts it off.
#[test]
fn a_torn_tail_is_no_damage_and_stays() {
    let little = (0..20).find_map(|_| with_torn_change()).expect("one in twenty ends with the change");
    let before = little.contents();
    assert_eq!(status(&little.run().unwrap()), 0);
    assert!(little.contents() == before, "a check has cut the log");
}

#[test]
fn a_damaged_superblock_is_found_and_its_target_is_not_missed() {
    let little = Little::new();
    for id in [TargetId::mdt(0), TargetId::ost(0)] {
        let path = little.path(id).join("target.json");
        let sound = fs::read(&path).unwrap();
        edit(&path, |bytes| bytes[30] ^= 1);
        assert_eq!(little.kinds(), [Kind::SuperblockDamaged]);
        fs::write(&path, sound).unwrap();
    }
}

#[test]
fn damage_is_repaired_and_the_status_says_so() {
    let little = Little::new();
    let meta = little.path(TargetId::mdt(0)).join("meta");
    let options = Options { no_sync: true, ..Options::default() };
    let disk = MetaDisk::open(&meta, &options, Arc::new(|| ())).unwrap();
    let mut batch = Batch::new();
    batch.delete(rows::INODES, &number_fid(3).key());
    disk.apply(disk.applied().next(), &batch).unwrap();
    disk.close();
    drop(disk);
    let before = little.contents();
    assert_eq!(little.kinds(), [Kind::DentryWithoutInode, Kind::LinkWithoutInode]);
    assert_eq!(status(&little.run().unwrap()), UNCORRECTED);
    assert!(little.contents() == before, "a dry run has changed something");
    let outcome = little.run_with(|arguments| arguments.repair = true).unwrap();
    assert_eq!((status(&outcome), outcome.repaired_count), (REPAIRED, 2), "{:?}", outcome.left().findings);
    assert_eq!(status(&little.run().unwrap()), 0);
    // The server that comes next takes it as it is.
    little.serve();
    assert_eq!(status(&little.run().unwrap()), 0);
}

#[test]
fn what_is_not_one_whole_file_system_is_refused_in_one_line() {
    let little = Little::new();
    let held = target_dir::open(&little.path(TargetId::ost(0))).unwrap();
    let refused = |change: &dyn Fn(&mut cli::Fsck)| {
        let error = little.run_with(change).err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    let error = refused(&|_| ());
    assert!(error.contains("end the process that serves it"), "{error}");
    assert!(!error.contains("sheen down") && error.contains("already running as pid"), "{error}");
    // Without its directory the command would stop the cluster that is this user's by default.
    let spaced = little.dir.path().join("a b");
    std::os::unix::fs::symlink(little.dir.path(), &spaced).unwrap();
    fs::write(spaced.join(cluster::FILE), "").unwrap();
    let error = refused(&|arguments| arguments.dirs = vec![spaced.join(TargetId::ost(0).to_string())]);
    assert!(error.contains(&format!("`sheen down --dir '{}'` first", spaced.display())), "{error}");
    fs::remove_file(spaced.join(cluster::FILE)).unwrap();
    drop(held);
    let (mdt, ost) = (little.path(TargetId::mdt(0)), little.path(TargetId::ost(0)));
    let error = refused(&|arguments| arguments.dirs.push(ost.clone()));
    assert!(error.contains("is given twice"), "{error}");
    let error = refused(&|arguments| arguments.dirs = vec![ost.clone()]);
    assert!(error.contains("MDT0000 belongs to 'little' and is not given"), "{error}");
    let error = refused(&|arguments| arguments.dirs.push(little.dir.path().join("nowhere")));
    assert!(error.contains("nowhere"), "{error}");
    let error = refused(&|arguments| arguments.dirs.push(little.dir.path().to_path_buf()));
    assert!(error.contains("is not a target"), "{error}");
    let other = little.dir.path().join("other");
    target_dir::make(&other, TargetId::ost(1), "another", &["127.0.0.1:7988".to_owned()]).unwrap();
    let error = refused(&|arguments| arguments.dirs.push(other.clone()));
    assert!(error.contains("'little' and of 'another'"), "{error}");
    let copy = little.dir.path().join("copy");
    target_dir::make(&copy, TargetId::ost(0), FSNAME, &["127.0.0.1:7988".to_owned()]).unwrap();
    let error = refused(&|arguments| arguments.dirs.push(copy.clone()));
    assert!(error.contains("are both OST0000"), "{error}");
    let known = rows::KnownTargets { osts: vec![0], mdt_count: 2 };
    let options = Options { no_sync: true, ..Options::default() };
    let disk = MetaDisk::open(&mdt.join("meta"), &options, Arc::new(|| ())).unwrap();
    let mut batch = Batch::new();
    batch.put(rows::STATE, rows::KNOWN_TARGETS_KEY, &rows::encode(&known));
    disk.apply(disk.applied().next(), &batch).unwrap();
    disk.close();
    drop(disk);
    let error = refused(&|_| ());
    assert!(error.contains("MDT0001 belongs to 'little' and is not given"), "{error}");
}

/// The FID of a file that an incarnation of an MDT has made.
fn fid_of(mdt: u16, epoch: u64) -> Fid {
    Fid { seq: Fid::sequence(mdt, epoch << 14), oid: 1, ver: 0 }
}

impl Little {
    /// An object on the OST, as it is after it was durable.
    fn add_object(&self, fid: Fid) -> ObjectId {
        let object = ObjectId { fid, component: 1, stripe: 0 };
        let path = self.path(TargetId::ost(0));
        let options = ObjectOptions { no_sync: true, ..ObjectOptions::default() };
        let objects = ObjectDisk::open(&path.join("objects"), &options, Arc::new(|| ())).unwrap();
        objects.write(&object, 0, b"good data").unwrap();
        objects.close();
        let options = Options { no_sync: true, ..Options::default() };
        let disk = MetaDisk::open(&path.join("meta"), &options, Arc::new(|| ())).unwrap();
        let mut batch = Batch::new();
        oss::rows::put_born(&mut batch, &object, base::Transno(1));
        disk.apply(disk.applied().next(), &batch).unwrap();
        disk.close();
        object
    }

    fn has_object(&self, object: &ObjectId) -> bool {
        let objects = ObjectDisk::open_to_read(&self.path(TargetId::ost(0)).join("objects")).unwrap();
        objects.stat(object).unwrap().is_some()
    }

    /// A name in the root of MDT0000 that leads to nothing.
    fn lose_an_inode(&self) {
        let options = Options { no_sync: true, ..Options::default() };
        let disk =
            MetaDisk::open(&self.path(TargetId::mdt(0)).join("meta"), &options, Arc::new(|| ())).unwrap();
        let mut batch = Batch::new();
        batch.delete(rows::INODES, &number_fid(3).key());
        disk.apply(disk.applied().next(), &batch).unwrap();
        disk.close();
    }

    fn repair_with(&self, without: &[&str]) -> Result<Outcome> {
        self.run_with(|arguments| {
            arguments.repair = true;
            arguments.without = without.iter().map(|name| (*name).to_owned()).collect();
        })
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// What an older copy of the MDT does not know would be removed as nobody's.
#[test]
fn nothing_is_repaired_with_an_older_copy_of_a_target() {
    let little = Little::new();
    let (mdt, kept) = (little.path(TargetId::mdt(0)), little.dir.path().join("backup"));
    copy(&mdt, &kept);
    // Another incarnation, in which a file is made.
    little.serve();
    let object = little.add_object(fid_of(0, 2));
    fs::remove_dir_all(&mdt).unwrap();
    copy(&kept, &mdt);
    fs::remove_dir_all(&kept).unwrap();
    assert_eq!(little.kinds(), [Kind::TargetOutdated, Kind::ObjectWithoutInode]);
    assert_eq!(status(&little.run().unwrap()), UNCORRECTED);
    let before = little.contents();
    let error = format!("{:#}", little.repair_with(&[]).err().expect("it is refused"));
    assert!(error.contains("MDT0000 is older than what other targets know of it"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(little.has_object(&object) && little.contents() == before);
}

/// Who reads only the object has everything there: what was found, and why nothing was done about it.
#[test]
fn a_repair_that_is_refused_tells_programs_what_was_found() {
    let little = Little::new();
    little.lose_an_inode();
    // Nothing is repaired beside a base that cannot be read.
    edit(&little.path(TargetId::ost(0)).join("meta/index"), |bytes| bytes[3 * 4096 + 5] ^= 1);
    let dirs = [TargetId::mdt(0), TargetId::ost(0)].map(|id| little.path(id)).to_vec();
    let arguments = cli::Fsck {
        dirs,
        repair: true,
        remove_remains: false,
        data: false,
        without: Vec::new(),
        fenced: false,
        json: true,
    };
    let told = std::cell::RefCell::new(String::new());
    let tell = |text: &str| {
        told.borrow_mut().push_str(text);
        Ok(())
    };
    let error = format!("{:#}", super::run(&arguments, &tell).err().expect("it is refused"));
    let json: serde_json::Value = serde_json::from_str(&told.into_inner()).unwrap();
    assert_eq!(json["error"].as_str(), Some(&error[..]));
    assert!(error.contains("is not readable"), "{error}");
    let kinds: Vec<_> = json["findings"].as_array().unwrap().iter().map(|found| &found["kind"]).collect();
    assert!(kinds.contains(&&"dentry-without-inode".into()), "{kinds:?}");
    assert_eq!(json["repaired_count"], 0);
}

/// What root makes or replaces, the server of another user could not open.
#[test]
fn root_does_not_repair_what_belongs_to_another_user() {
    let little = Little::new();
    little.lose_an_inode();
    let path = little.path(TargetId::ost(0)).join("target.json");
    if sys::uid() != 0 {
        return;
    }
    // A number that no user of a machine has.
    std::os::unix::fs::chown(&path, Some(3_999_999_998), Some(3_999_999_997)).unwrap();
    let before = little.contents();
    let error = format!("{:#}", little.repair_with(&[]).err().expect("it is refused"));
    assert!(error.contains("setpriv --reuid 3999999998 --regid 3999999997 --clear-groups sheen"), "{error}");
    assert!(little.contents() == before, "something was changed");
    assert_eq!(status(&little.run().unwrap()), UNCORRECTED, "it is looked at");
    std::os::unix::fs::chown(&path, Some(0), Some(0)).unwrap();
    assert_eq!(status(&little.repair_with(&[]).unwrap()), REPAIRED);
}

/// Its owner may be on another machine, where it sees no lock of this one.
#[test]
fn what_another_server_may_own_is_repaired_when_that_is_said_to_be_fenced() {
    let little = Little::new();
    little.lose_an_inode();
    let coordinator = little.path(TargetId::ost(0)).join("coordinator");
    fs::write(coordinator, "management server\n").unwrap();
    let before = little.contents();
    assert_eq!(status(&little.run().unwrap()), UNCORRECTED, "it is looked at");
    let error = format!("{:#}", little.repair_with(&[]).err().expect("it is refused"));
    assert!(error.contains("OST0000 is served with --failover") && error.contains("--fenced"), "{error}");
    assert!(little.contents() == before, "something was changed");
    let outcome = little.run_with(|arguments| (arguments.repair, arguments.fenced) = (true, true)).unwrap();
    assert_eq!(status(&outcome), REPAIRED);
}

/// Names and objects of a target that was left out look like nobody's.
#[test]
fn what_may_belong_to_a_target_that_is_not_there_is_not_removed() {
    let little = Little::new();
    let object = little.add_object(fid_of(1, 1));
    little.lose_an_inode();
    let error = format!("{:#}", little.repair_with(&[]).err().expect("it is refused"));
    assert!(error.contains("MDT0001 belongs to 'little' and is not given"), "{error}");
    assert!(error.contains("--without MDT0001"), "{error}");
    assert!(little.has_object(&object));
    for wrong in ["MDT0000", "OST", "MGS", "little-OST0000"] {
        assert!(little.repair_with(&["MDT0001", wrong]).is_err(), "{wrong}");
    }
    for name in ["MDT0001", "little-MDT0001"] {
        let outcome = little.repair_with(&[name]).unwrap();
        assert!(outcome.left().is_clean() && little.has_object(&object), "{:?}", outcome.left().findings);
        assert_eq!(outcome.repaired_count, if name == "MDT0001" { 2 } else { 0 });
    }
    assert!(little.run().is_err(), "it is still missed");
}

/// Of a format that this program does not know nothing is looked at.
#[test]
fn another_format_is_refused() {
    let little = Little::new();
    let path = little.path(TargetId::ost(0)).join("target.json");
    edit(&path, |bytes| {
        let text = String::from_utf8(bytes.clone())
            .unwrap()
            .replace("\"format_version\": 1", "\"format_version\": 0");
        *bytes = text.into_bytes();
    });
    let error = format!("{:#}", little.run().err().unwrap());
    assert!(error.contains("has format 0, this program reads 1"), "{error}");
}

#[test]
fn targets_that_were_never_served_are_clean() {
    let dir = tempfile::tempdir().unwrap();
    let ids = [TargetId::mdt(0), TargetId::ost(0)];
    let dirs: Vec<PathBuf> = ids.iter().map(|id| dir.path().join(id.to_string())).collect();
    for (id, path) in ids.iter().zip(&dirs) {
        target_dir::make(path, *id, FSNAME, &["127.0.0.1:7988".to_owned()]).unwrap();
    }
    let arguments = cli::Fsck {
        dirs,
        repair: true,
        remove_remains: false,
        data: true,
        without: Vec::new(),
        fenced: false,
        json: true,
    };
    let outcome = run(&arguments, &|_| Ok(())).unwrap();
    assert!(outcome.found.is_clean(), "{:?}", outcome.found.findings);
}

/// Its lock is ours then, and nobody serves it.
#[test]
fn a_directory_that_is_given_twice_is_said_to_be_so() {
    let little = Little::new();
    let [mdt, ost] = [TargetId::mdt(0), TargetId::ost(0)].map(|id| little.path(id));
    let error = lock(&[mdt.clone(), mdt.join("."), ost]).err().map(|error| format!("{error:#}"));
    assert!(error.as_ref().is_some_and(|line| line.contains("is given twice")), "{error:?}");
}

/// The disk of a target of a cluster that is lost, or not mounted.
#[test]
fn a_target_of_a_cluster_that_is_not_there_can_be_left_out() {
    let little = Little::new();
    let dir = little.dir.path().to_path_buf();
    let shape = cluster::Shape {
        fsname: FSNAME.to_owned(),
        mount: dir.join("mount"),
        is_split: false,
        transport: String::new(),
        mdt_count: 1,
        ost_count: 2,
    };
    let mut of = cluster::Cluster::new(shape);
    of.servers[0].targets = ["MDT0000", "OST0000", "ost0001"].map(str::to_owned).to_vec();
    of.save(&dir).unwrap();
    let run = |without: &[&str]| {
        little.run_with(|arguments| {
            arguments.dirs = vec![dir.clone()];
            arguments.without = without.iter().map(|name| (*name).to_owned()).collect();
        })
    };
    for name in ["OST0001", "little-OST0001"] {
        let found = run(&[name]).unwrap().found;
        assert!(found.is_clean(), "{:?}", found.findings);
    }
    let error = format!("{:#}", run(&[]).err().expect("it is missed"));
    assert!(error.contains("ost0001, where one was: mount its disk") && !error.contains("mkfs"), "{error}");
    assert!(run(&["OST0002"]).is_err(), "it is still missed");
    // Its disk is mounted, and does not answer.
    fs::create_dir_all(dir.join("ost0001/target.json")).unwrap();
    let found = run(&["OST0001"]).unwrap().found;
    assert!(found.is_clean(), "{:?}", found.findings);
    let error = format!("{:#}", run(&[]).err().expect("it is missed"));
    assert!(error.contains("or check without it (--without OST0001)"), "{error}");
}
