//! A file system that runs gets more targets, and loses one again: who has it mounted sees what joins, and uses it.

mod copies;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::case::{
    Bed, Case, Context, Suite, expect, expect_bytes, expect_eq, expect_errno, note, read, wait_until, write,
};
use crate::cluster::{Cluster, Shape};
use crate::sys;

/// The suite.
pub static SUITE: Suite = Suite { name: "grow", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "an_ost_joins_and_is_drained", seconds: 180, run: ost },
    Case { name: "an_mdt_joins_and_is_drained", seconds: 180, run: mdt },
    Case { name: "a_copy_beside_the_original_is_refused", seconds: 180, run: copies::refused },
    Case {
        name: "an_older_copy_is_served_only_when_it_is_said_to_be_the_newest",
        seconds: 240,
        run: copies::older,
    },
];

/// Bounds a hang only.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
const FILE_COUNT: u32 = 24;

/// A target beside those of `sheen up`, with its server.
pub(super) struct Joined {
    dir: PathBuf,
    log: PathBuf,
    server: Child,
}

impl Joined {
    /// `sheen mkfs`, then `sheen serve`, as an operator adds a target.
    pub fn add(cluster: &Cluster, work: &Path, kind: &str, index: u16) -> Result<Joined> {
        let source = cluster.source()?;
        let (nid, fsname) = source.split_once(":/").context("NID:/FSNAME")?;
        let dir = work.join(format!("{}{index}", kind.trim_start_matches('-')));
        let (index, path) = (index.to_string(), dir.to_string_lossy());
        cluster.sheen(&["mkfs", kind, "--index", &index, "--fsname", fsname, "--mgsnode", nid, &path])?;
        let log = dir.with_extension("log");
        let server = serve(cluster, &dir, &log)?;
        Ok(Joined { dir, log, server })
    }

    pub fn signal(&mut self, signal: i32) -> Result<()> {
        sys::kill(self.server.id() as i32, signal).context("signal to a server")?;
        self.server.wait().map(drop).context("its end")
    }

    pub fn serve_again(&mut self, cluster: &Cluster) -> Result<()> {
        self.server = serve(cluster, &self.dir, &self.log)?;
        Ok(())
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        // Gone already is as well.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn serve(cluster: &Cluster, dir: &Path, log: &Path) -> Result<Child> {
    let mut command = cluster.command();
    command.arg("serve").arg("--log").arg(log).arg(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().context("a server")
}

pub(super) fn running(context: &Context) -> Result<(Cluster, [PathBuf; 2])> {
    context.skip_if_local()?;
    let shape = Shape { mdt_count: 1, ost_count: 2, is_split: true };
    let cluster = Cluster::new(&context.options, &context.work, shape)?;
    cluster.up()?;
    let mounts = [cluster.mount.clone(), cluster.mount_again("other")?];
    Ok((cluster, mounts))
}

/// Until each mount shows the target.
pub(super) fn wait_seen(cluster: &Cluster, mounts: &[PathBuf], target: &str, since: Instant) -> Result<()> {
    for mount in mounts {
        wait_until(PATIENCE, &format!("{} shows {target}", mount.display()), || {
            let df = cluster.sheen(&["lfs", "df", &mount.to_string_lossy()])?;
            Ok(df.lines().any(|line| line.contains(target) && !line.contains("inactive")))
        })?;
    }
    note(&format!("{target} is seen by all mounts {} ms after its mkfs began", since.elapsed().as_millis()));
    Ok(())
}

pub(super) fn osts_of(cluster: &Cluster, path: &Path) -> Result<BTreeSet<u16>> {
    let text = cluster.sheen(&["lfs", "getstripe", &path.to_string_lossy()])?;
    let rows = text.lines().skip_while(|line| !line.contains("obdidx")).skip(1);
    Ok(rows.filter_map(|row| row.split_whitespace().next()?.parse().ok()).collect())
}

fn bytes_of(name: &str) -> Vec<u8> {
    name.bytes().cycle().take(10_000).collect()
}

/// Makes files through one mount, then through the other, and says on which OSTs they are.
pub(super) fn make_files(
    cluster: &Cluster,
    [here, there]: &[PathBuf; 2],
    name: &str,
) -> Result<BTreeSet<u16>> {
    let mut osts = BTreeSet::new();
    for index in 0..FILE_COUNT {
        let mount = if index < FILE_COUNT / 2 { here } else { there };
        let file = mount.join(format!("{name}{index}"));
        write(&file, &bytes_of(&format!("{name}{index}")))?;
        osts.extend(osts_of(cluster, &file)?);
    }
    Ok(osts)
}

pub(super) fn check_files(mount: &Path, name: &str) -> Result<()> {
    for index in 0..FILE_COUNT {
        let name = format!("{name}{index}");
        expect_bytes(&read(&mount.join(&name))?, &bytes_of(&name), &name)?;
    }
    Ok(())
}

fn kill_management_and_mdts(cluster: &Cluster) -> Result<()> {
    for (name, pid) in cluster.targets()? {
        if name == "MGS" || name.starts_with("MDT") {
            sys::kill(pid, libc::SIGKILL).with_context(|| format!("kill {name}"))?;
        }
    }
    Ok(())
}

/// Everything ends in order, and nothing is wrong with what is on the disks.
pub(super) fn end(cluster: &Cluster, mounts: &[PathBuf], mut joined: Joined) -> Result<()> {
    for mount in mounts.iter().skip(1) {
        cluster.unmount(mount)?;
    }
    let dir = joined.dir.to_string_lossy().into_owned();
    cluster.unmount(&cluster.mount)?;
    joined.signal(libc::SIGTERM)?;
    cluster.down()?;
    cluster.sheen(&["fsck", &cluster.data.to_string_lossy(), &dir, "--data"]).map(drop)
}

fn ost(context: &Context) -> Result<()> {
    let (mut cluster, mounts) = running(context)?;
    let [here, there] = &mounts;
    expect_eq(make_files(&cluster, &mounts, "before")?, BTreeSet::from([0, 1]), "two OSTs are used")?;

    let begun = Instant::now();
    let mut joined = Joined::add(&cluster, &context.work, "--ost", 2)?;
    wait_seen(&cluster, &mounts, "OST0002", begun)?;
    expect_eq(make_files(&cluster, &mounts, "grown")?, BTreeSet::from([0, 1, 2]), "the new OST is used")?;
    for name in ["before", "grown"] {
        check_files(here, name)?;
        check_files(there, name)?;
    }

    // Drained: it gets no new files, what it has stays in use.
    let set = |setting: &str| cluster.sheen(&["lctl", "set_param", setting]);
    let old = here.join("on-it");
    cluster.sheen(&["lfs", "setstripe", "-o", "2", &old.to_string_lossy()])?;
    write(&old, b"old")?;
    set("obdfilter.*OST0002.no_create=1")?;
    let open_count = || cluster.sheen(&["lctl", "get_param", "-n", "lod.*.numobd"]);
    wait_until(PATIENCE, "the MDT places on two OSTs", || Ok(open_count()?.trim() == "2"))?;
    expect_eq(make_files(&cluster, &mounts, "drained")?, BTreeSet::from([0, 1]), "the OST is drained")?;
    check_files(there, "grown")?;
    write(&there.join("on-it"), b"newer")?;
    expect_eq(read(&old)?, b"newer".to_vec(), "a file of the OST")?;
    empty(&cluster, here, &old)?;
    check_files(there, "grown")?;
    let new = here.join("refused").to_string_lossy().into_owned();
    for words in [["-o", "2"], ["-i", "2"]] {
        let said = cluster.sheen(&["lfs", "setstripe", words[0], words[1], &new]);
        let is_told =
            said.as_ref().is_err_and(|error| error.to_string().contains("OST0002 takes no new files"));
        expect(is_told && !Path::new(&new).exists(), &format!("{words:?} is refused: {said:?}"))?;
    }
    let refused = cluster.sheen(&["lctl", "set_param", "obdfilter.*OST0002.no_create=2"]);
    expect(refused.is_err_and(|error| error.to_string().contains("it takes 0 or 1")), "2 is refused")?;

    // Drained all: who makes a file is told at once, and an operator sees why.
    let df = || cluster.sheen(&["lfs", "df", &here.to_string_lossy()]);
    expect(df()?.contains("[OST:2] N\n") && !df()?.contains("[OST:0] N"), &df()?)?;
    for ost in ["OST0000", "OST0001"] {
        set(&format!("obdfilter.*{ost}.no_create=1"))?;
    }
    wait_until(PATIENCE, "the MDT places on no OST", || Ok(open_count()?.trim() == "0"))?;
    expect_errno(fs::File::create(here.join("full")), libc::ENOSPC, "a new file without an OST")?;
    sys::mknod(&there.join("only-a-name"), libc::S_IFREG | 0o600, 0)?;
    expect_errno(fs::write(here.join("only-a-name"), b"x"), libc::ENOSPC, "a write without an OST")?;
    write(&there.join("on-it"), b"newer")?;
    expect(cluster.sheen(&["status"])?.contains("alert: all OSTs of suite are drained"), "an alert")?;
    for ost in ["OST0000", "OST0001"] {
        set(&format!("obdfilter.*{ost}.no_create=0"))?;
    }
    wait_until(PATIENCE, "the MDT places on two OSTs again", || Ok(open_count()?.trim() == "2"))?;
    write(&here.join("only-a-name"), b"x")?;
    fs::remove_file(there.join("only-a-name"))?;

    // That outlives all servers.
    kill_management_and_mdts(&cluster)?;
    // Its server comes back last: it takes the first free port, which must not be that of the management server.
    joined.signal(libc::SIGKILL)?;
    cluster.up()?;
    joined.serve_again(&cluster)?;
    expect_eq(make_files(&cluster, &mounts, "again")?, BTreeSet::from([0, 1]), "still drained")?;
    let value = || cluster.sheen(&["lctl", "get_param", "-n", "obdfilter.*OST0002.no_create"]);
    wait_until(PATIENCE, "the OST knows that it is drained", || Ok(value()?.trim() == "1"))?;

    // Switched off: whatever is there is EIO, everything else works.
    let seen = fs::metadata(here)?.nlink();
    set("osc.*OST0002*.active=0")?;
    set("ldlm.namespaces.*.lru_size=clear")?;
    let error = fs::read(&old).map_err(|error| error.raw_os_error());
    expect_eq(error.err(), Some(Some(libc::EIO)), "a file of the OST that is off")?;
    check_files(here, "before")?;
    expect_eq(fs::metadata(here)?.nlink(), seen, "the root is as it was")?;
    expect(df()?.contains("OST0002_UUID: inactive device"), &df()?)?;
    set("osc.*OST0002*.active=1")?;
    expect_eq(read(&old)?, b"newer".to_vec(), "the file when the OST is on again")?;

    set("obdfilter.*OST0002.no_create=0")?;
    wait_until(PATIENCE, "the MDT places on three OSTs", || Ok(open_count()?.trim() == "3"))?;
    expect_eq(make_files(&cluster, &mounts, "open")?, BTreeSet::from([0, 1, 2]), "the OST is used again")?;
    drop(cluster.new_complaints());
    end(&cluster, &mounts, joined)
}

/// The files of the third OST are found in the tree, and their copies are elsewhere, but for one that stays.
fn empty(cluster: &Cluster, mount: &Path, stays: &Path) -> Result<()> {
    let below = mount.join("d/e");
    fs::create_dir_all(&below)?;
    let found = |ost: &str| -> Result<BTreeSet<PathBuf>> {
        let said = cluster.sheen(&["lfs", "getstripe", "-r", "-O", ost, &mount.to_string_lossy()])?;
        Ok(said.lines().filter(|line| line.starts_with('/')).map(PathBuf::from).collect())
    };
    let on_it = found("OST0002")?;
    expect(on_it.len() > 1 && on_it.contains(stays), &format!("files with objects there: {on_it:?}"))?;
    for name in ["2", "suite-OST0002", "suite-OST0002_UUID"] {
        expect_eq(found(name)?, on_it.clone(), name)?;
    }
    for file in &on_it {
        expect(osts_of(cluster, file)?.contains(&2), &format!("{} is there", file.display()))?;
    }
    let deep = below.join("deep");
    fs::rename(on_it.iter().find(|file| *file != stays).context("another file")?, &deep)?;
    expect(found("OST0002")?.contains(&deep), "a file below")?;
    fs::rename(&deep, on_it.iter().find(|file| *file != stays).context("another file")?)?;
    for file in on_it.iter().filter(|file| *file != stays) {
        let moving = file.with_extension("moving");
        fs::copy(file, &moving)?;
        fs::rename(&moving, file)?;
    }
    expect_eq(found("OST0002")?, BTreeSet::from([stays.to_owned()]), "what is left there")?;
    let unknown = found("OST0009").err().map(|error| error.to_string()).unwrap_or_default();
    expect(unknown.contains("there is no OST 'OST0009'"), &unknown)?;
    fs::remove_dir_all(mount.join("d")).map_err(Into::into)
}

fn mdt(context: &Context) -> Result<()> {
    let (mut cluster, mounts) = running(context)?;
    let [here, there] = &mounts;
    make_files(&cluster, &mounts, "before")?;
    let begun = Instant::now();
    let mut joined = Joined::add(&cluster, &context.work, "--mdt", 1)?;
    wait_seen(&cluster, &mounts, "MDT0001", begun)?;

    for (index, mount) in mounts.iter().enumerate() {
        let directory = mount.join(format!("d{index}"));
        context.mkdir_on(1, &directory)?;
        let at = context.lfs(&["getdirstripe", "-i", &directory.to_string_lossy()])?;
        expect_eq(at.trim(), "1", "the MDT of a new directory")?;
        write(&directory.join("file"), b"on the new MDT")?;
        fs::rename(mount.join(format!("before{index}")), directory.join("moved"))?;
    }
    let striped = here.join("striped");
    context.lfs(&["mkdir", "-c", "2", &striped.to_string_lossy()])?;
    for index in 0..FILE_COUNT {
        write(&striped.join(format!("f{index}")), b"x")?;
    }
    let found = |mount: &Path| -> Result<()> {
        for index in 0..2 {
            let directory = mount.join(format!("d{index}"));
            expect_eq(read(&directory.join("file"))?, b"on the new MDT".to_vec(), "a file of the new MDT")?;
            let moved = read(&directory.join("moved"))?;
            expect_bytes(&moved, &bytes_of(&format!("before{index}")), "a file that has moved there")?;
            expect(!mount.join(format!("before{index}")).exists(), "its old name is gone")?;
        }
        expect_eq(fs::read_dir(mount.join("striped"))?.count(), FILE_COUNT as usize, "names in both stripes")
    };
    found(there)?;
    joined.signal(libc::SIGKILL)?;
    joined.serve_again(&cluster)?;
    found(there)?;
    found(here)?;
    drain_mdt(&cluster, &mounts)?;
    found(here)?;
    // That outlives all servers.
    kill_management_and_mdts(&cluster)?;
    joined.signal(libc::SIGKILL)?;
    // The first MDT waits for the other one, which comes after this command: it does not wait for that, and says so.
    cluster.up()?;
    joined.serve_again(&cluster)?;
    found(there)?;
    all_are_back(&cluster)?;
    gets_nothing_new(&cluster, &mounts, "again")?;
    opened_mdt(&cluster, here)?;
    found(here)?;
    switch_off_mdt(&cluster, here)?;
    found(here)?;
    drop(cluster.new_complaints());
    end(&cluster, &mounts, joined)
}

/// Both MDTs have recovered with all whom they knew, each other too, and have waited for nobody in vain.
fn all_are_back(cluster: &Cluster) -> Result<()> {
    wait_until(PATIENCE, "both MDTs have recovered", || {
        let text = cluster.sheen(&["lctl", "get_param", "mdt.*.recovery_status"])?;
        Ok(text.matches("status: COMPLETE").count() == 2)
    })?;
    let text = cluster.sheen(&["lctl", "get_param", "mdt.*.recovery_status"])?;
    // Two mounts, and the other MDT.
    expect_eq(text.matches("completed_clients: 3/3").count(), 2, &text)?;
    expect_eq(text.matches("evicted_clients: 0").count(), 2, &text)
}

/// What it has stays in use, and moves away.
fn drain_mdt(cluster: &Cluster, mounts: &[PathBuf; 2]) -> Result<()> {
    let here = &mounts[0];
    let mover = here.join("mover");
    cluster.sheen(&["lfs", "mkdir", "-i", "1", &mover.to_string_lossy()])?;
    write(&mover.join("file"), b"moves")?;
    for (name, mdt) in [("by-turns", "-1"), ("named", "1")] {
        let directory = here.join(name);
        fs::create_dir(&directory)?;
        cluster.sheen(&["lfs", "setdirstripe", "-D", "-i", mdt, &directory.to_string_lossy()])?;
    }
    // Before: it gets its share.
    let used = mdts_of_new(cluster, &here.join("by-turns"), "before")?;
    expect_eq(used, BTreeSet::from([0, 1]), "the MDTs of directories that are placed by turns")?;
    cluster.sheen(&["lctl", "set_param", "mdt.*MDT0001.no_create=1"])?;
    gets_nothing_new(cluster, mounts, "drained")?;
    let refused = cluster.sheen(&["lctl", "set_param", "mdt.*MDT0001.no_create=2"]);
    expect(refused.is_err_and(|error| error.to_string().contains("it takes 0 or 1")), "2 is refused")?;
    let migrate = |mdt: &str| cluster.sheen(&["lfs", "migrate", "-m", mdt, &mover.to_string_lossy()]);
    migrate("0")?;
    expect_eq(mdt_of(cluster, &mover)?, 0, "the MDT of a directory that has moved away")?;
    expect_eq(read(&mounts[1].join("mover/file"))?, b"moves".to_vec(), "its file")?;
    let back = migrate("1").err().context("it does not move back")?.to_string();
    expect(back.contains("MDT0001 takes nothing new"), &back)
}

fn mdt_of(cluster: &Cluster, directory: &Path) -> Result<u16> {
    let at = cluster.sheen(&["lfs", "getdirstripe", "-i", &directory.to_string_lossy()])?;
    at.trim().parse().with_context(|| format!("the index of an MDT: {at}"))
}

/// Makes directories, says on which MDTs they were, and removes them.
fn mdts_of_new(cluster: &Cluster, parent: &Path, name: &str) -> Result<BTreeSet<u16>> {
    let mut mdts = BTreeSet::new();
    let made = (0..4).map(|index| parent.join(format!("{name}{index}"))).collect::<Vec<_>>();
    for directory in &made {
        fs::create_dir(directory)?;
        mdts.insert(mdt_of(cluster, directory)?);
    }
    made.iter().try_for_each(fs::remove_dir)?;
    Ok(mdts)
}

/// Who names the drained MDT is refused, and what is placed goes to the other one: beside its parent, by turns, by a default that names it,
/// and over all.
fn gets_nothing_new(cluster: &Cluster, mounts: &[PathBuf; 2], name: &str) -> Result<()> {
    let value = || cluster.sheen(&["lctl", "get_param", "-n", "mdt.*MDT0001.no_create"]);
    wait_until(PATIENCE, "the MDT knows that it is drained", || Ok(value()?.trim() == "1"))?;
    let here = &mounts[0];
    let is_refused = |words: &[&str]| -> Result<()> {
        let new = here.join("refused").to_string_lossy().into_owned();
        let said = cluster.sheen(&[&["lfs", "mkdir"], words, &[&new]].concat());
        if said.is_ok() {
            fs::remove_dir(&new)?;
        }
        let error = said.err().context("it is refused")?.to_string();
        expect(error.contains("takes nothing new: it is drained"), &format!("{words:?}: {error}"))
    };
    // Each MDT is told by itself: the first one, which has the parent, last.
    wait_until(PATIENCE, "the other MDT knows it too", || Ok(is_refused(&["-i", "1"]).is_ok()))?;
    is_refused(&["-i", "0,1"])?;
    for mount in mounts {
        for parent in ["d0", "", "by-turns", "named"] {
            let used = mdts_of_new(cluster, &mount.join(parent), name)?;
            expect_eq(used, BTreeSet::from([0]), &format!("the MDTs of new directories in '{parent}'"))?;
        }
    }
    let over_all = here.join("over-all");
    cluster.sheen(&["lfs", "mkdir", "-c", "-1", &over_all.to_string_lossy()])?;
    expect_eq(mdt_of(cluster, &over_all)?, 0, "the MDT of what was to be over all")?;
    fs::remove_dir(&over_all).map_err(Into::into)
}

fn opened_mdt(cluster: &Cluster, here: &Path) -> Result<()> {
    cluster.sheen(&["lctl", "set_param", "mdt.*MDT0001.no_create=0"])?;
    wait_until(PATIENCE, "it takes directories again", || {
        Ok(mdts_of_new(cluster, &here.join("by-turns"), "open")? == BTreeSet::from([0, 1]))
    })?;
    let again = here.join("again");
    cluster.sheen(&["lfs", "mkdir", "-i", "1", &again.to_string_lossy()])?;
    expect_eq(mdt_of(cluster, &again)?, 1, "the MDT of a directory that names it")?;
    fs::remove_dir(&again).map_err(Into::into)
}

/// What is on it is EIO at once, and everything else works.
fn switch_off_mdt(cluster: &Cluster, here: &Path) -> Result<()> {
    let set = |setting: &str| cluster.sheen(&["lctl", "set_param", setting]);
    set("mdc.*MDT0001*.active=0")?;
    set("ldlm.namespaces.*.lru_size=clear")?;
    let error = fs::read(here.join("d0/file")).map_err(|error| error.raw_os_error());
    expect_eq(error.err(), Some(Some(libc::EIO)), "a file of the MDT that is off")?;
    expect_bytes(&read(&here.join("before2"))?, &bytes_of("before2"), "a file of the other one")?;
    set("mdc.*MDT0001*.active=1").map(drop)
}
