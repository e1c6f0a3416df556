//! The same file system on disks: nothing is changed by looking, and what happens to files is found.

use crate::world::{FILE, World, fid, lines, options, uuid};
use base::{ObjectId, TargetId, Transno};
use fsck::{Kind, Target};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Batch, MemoryMeta, MetaStore, ObjectStore};
use store_disk::{MetaDisk, MetaReader, ObjectDisk, ObjectOptions, Options};

fn meta_options() -> Options {
    Options { segment_bytes: Some(2 << 20), cache_bytes: 1 << 20, no_sync: true, ..Options::default() }
}

/// Half of the rows in the base, the others in the log.
fn write_meta(path: &Path, rows: &MemoryMeta) {
    MetaDisk::create(path, &meta_options()).unwrap();
    let disk = MetaDisk::open(path, &meta_options(), Arc::new(|| ())).unwrap();
    let rows = rows.rows();
    let applied = rows.len() as u64;
    for (number, ((table, key), value)) in (1..).zip(&rows) {
        let mut batch = Batch::new();
        batch.put(*table, key, value);
        // In the first incarnation, as the rows say.
        disk.apply(Transno(Transno::first_of(base::Epoch(1)).0 + number), &batch).unwrap();
        if number == applied / 2 {
            disk.checkpoint().unwrap();
        }
    }
    // As if it were killed: nothing puts it in order.
    drop(disk);
}

struct Disks {
    dir: tempfile::TempDir,
    world: World,
}

impl Disks {
    fn new() -> Disks {
        let (dir, world) = (tempfile::tempdir().unwrap(), World::new());
        for target in world.targets() {
            let meta = match target.id.kind {
                base::TargetKind::Mgt => &world.mgt,
                base::TargetKind::Mdt => &world.mdts[usize::from(target.id.index)],
                base::TargetKind::Ost => &world.osts[usize::from(target.id.index)].0,
            };
            write_meta(&dir.path().join(target.id.to_string()).join("meta"), meta);
        }
        for (at, (_, objects)) in (0..).zip(&world.osts) {
            let path = dir.path().join(TargetId::ost(at).to_string()).join("objects");
            let options = ObjectOptions { no_sync: true, ..ObjectOptions::default() };
            let disk = ObjectDisk::open(&path, &options, Arc::new(|| ())).unwrap();
            for object in objects.list(None, 100).unwrap() {
                let bytes = objects.read(&object, 0, 1 << 20).unwrap();
                disk.write(&object, 0, &bytes).unwrap();
            }
            disk.close();
        }
        Disks { dir, world }
    }

    fn path(&self, id: TargetId) -> PathBuf {
        self.dir.path().join(id.to_string())
    }

    fn check(&self) -> fsck::Report {
        let ids: Vec<TargetId> = self.world.targets().iter().map(|target| target.id).collect();
        let open = |id: &TargetId| MetaReader::open(&self.path(*id).join("meta"), 1 << 20).unwrap();
        let metas: Vec<MetaReader> = ids.iter().map(open).collect();
        let objects: Vec<Option<ObjectDisk>> =
            ids.iter().map(|id| ObjectDisk::open_to_read(&self.path(*id).join("objects")).ok()).collect();
        let mut targets = Vec::new();
        for ((id, meta), objects) in ids.iter().zip(&metas).zip(&objects) {
            let objects = objects.as_ref().map(|objects| objects as &dyn ObjectStore);
            targets.push(Target { id: *id, uuid: Some(uuid(*id)), meta: Some(meta), objects });
        }
        fsck::check(&targets, &options(), &mut |_| {})
    }

    /// The file of an object.
    fn file_of(&self, ost: u16, object: &ObjectId) -> PathBuf {
        let name: String = object.key().iter().map(|byte| format!("{byte:02x}")).collect();
        let directories = std::fs::read_dir(self.path(TargetId::ost(ost)).join("objects")).unwrap();
        let mut paths = directories.map(|entry| entry.unwrap().path().join(&name));
        paths.find(|path| path.exists()).unwrap()
    }

    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let (mut waiting, mut found) = (vec![self.dir.path().to_path_buf()], BTreeMap::new());
        while let Some(directory) = waiting.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                // Not through links.
                match path.symlink_metadata().unwrap().is_dir() {
                    true => waiting.push(path),
                    false => drop(found.insert(path.clone(), std::fs::read(&path).unwrap())),
                }
            }
        }
        found
    }
}

#[test]
fn a_file_system_on_disks_is_clean_and_looking_changes_nothing() {
    let disks = Disks::new();
    let before = disks.contents();
    for _ in 0..2 {
        let report = disks.check();
        assert!(report.is_clean(), "{}", lines(&report));
        assert_eq!(report.inode_count, 18);
    }
    assert!(disks.contents() == before, "a check has changed something");
}

#[test]
fn files_of_objects_that_were_cut_flipped_or_moved_are_found() {
    let object = ObjectId { fid: fid(0, FILE), component: 1, stripe: 0 };
    type Damage = fn(&Path);
    let damages: [(Kind, Damage, &str); 5] = [
        (Kind::ObjectUnreadable, replace_by_link, "failed to open an object"),
        (Kind::ObjectCut, |path| cut(path, 4096 + 1000), "from byte 1000 of the object"),
        (Kind::DataDamaged, |path| flip(path, 4096 + 4096 + 10), "bytes [4096, 5000) of the file"),
        (Kind::DataDamaged, |path| flip(path, 32), "bytes [0, 4096) of the file"),
        (Kind::ObjectMissing, |path| std::fs::remove_file(path).unwrap(), "was durable, and is not there"),
    ];
    for (kind, damage, words) in damages {
        let disks = Disks::new();
        damage(&disks.file_of(0, &object));
        let before = disks.contents();
        let report = disks.check();
        assert!(disks.contents() == before, "{kind}: a check has changed something");
        let found: Vec<Kind> = report.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(found, [kind], "{}", lines(&report));
        let line = report.findings[0].to_string();
        let is_called = line.contains("/hard") || kind == Kind::ObjectUnreadable;
        assert!(line.contains(words) && is_called, "{line}");
    }
    let disks = Disks::new();
    let path = disks.file_of(0, &object);
    // In a directory where nobody looks for it, also the last of all.
    let elsewhere = path.parent().unwrap().with_file_name("ff").join(path.file_name().unwrap());
    std::fs::rename(&path, &elsewhere).unwrap();
    let report = disks.check();
    let found: Vec<Kind> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(found, [Kind::ObjectMissing], "{}", lines(&report));
}

/// A repair checks again and again with stores that it may change. Opened so, a file without a header got one, and checksums of whatever was there.
#[test]
fn an_object_that_has_lost_its_header_stays_lost_in_a_repair() {
    let disks = Disks::new();
    let object = ObjectId { fid: fid(0, FILE), component: 1, stripe: 0 };
    let path = disks.file_of(0, &object);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[..4096 + 100].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    let ids: Vec<TargetId> = disks.world.targets().iter().map(|target| target.id).collect();
    let metas: Vec<MetaReader> =
        ids.iter().map(|id| MetaReader::open(&disks.path(*id).join("meta"), 1 << 20).unwrap()).collect();
    let open = |id: &TargetId| {
        let options = ObjectOptions { no_sync: true, ..ObjectOptions::default() };
        let is_ost = id.kind == base::TargetKind::Ost;
        is_ost.then(|| ObjectDisk::open(&disks.path(*id).join("objects"), &options, Arc::new(|| ())).unwrap())
    };
    let objects: Vec<Option<ObjectDisk>> = ids.iter().map(open).collect();
    let mut targets = Vec::new();
    for ((id, meta), objects) in ids.iter().zip(&metas).zip(&objects) {
        let objects = objects.as_ref().map(|objects| objects as &dyn ObjectStore);
        targets.push(Target { id: *id, uuid: Some(uuid(*id)), meta: Some(meta), objects });
    }
    for _ in 0..2 {
        let report = fsck::check(&targets, &options(), &mut |_| {});
        let found: Vec<Kind> = report.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(found, [Kind::ObjectMissing], "{}", lines(&report));
    }
    objects.iter().flatten().for_each(ObjectDisk::close);
    assert!(std::fs::read(&path).unwrap() == bytes, "the file was changed");
}

fn cut(path: &Path, byte_count: u64) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(byte_count).unwrap();
}

fn replace_by_link(path: &Path) {
    std::fs::remove_file(path).unwrap();
    std::os::unix::fs::symlink("/dev/null", path).unwrap();
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

/// Whoever has opened a target for reading cannot change it.
#[test]
fn stores_that_are_open_for_reading_refuse_changes() {
    let disks = Disks::new();
    let before = disks.contents();
    let meta = MetaReader::open(&disks.path(TargetId::mdt(0)).join("meta"), 1 << 20).unwrap();
    assert_eq!(meta.apply(meta.applied().next(), &Batch::new()), Err(store::StoreError::ReadOnly));
    let objects = ObjectDisk::open_to_read(&disks.path(TargetId::ost(0)).join("objects")).unwrap();
    let object = ObjectId { fid: fid(0, FILE), component: 1, stripe: 0 };
    assert_eq!(objects.write(&object, 0, b"x"), Err(store::StoreError::ReadOnly));
    assert_eq!(objects.truncate(&object, 0), Err(store::StoreError::ReadOnly));
    assert_eq!(objects.destroy(&object), Err(store::StoreError::ReadOnly));
    assert_eq!(objects.read(&object, 0, 10).unwrap().len(), 10);
    objects.close();
    meta.close();
    assert!(disks.contents() == before);
}
