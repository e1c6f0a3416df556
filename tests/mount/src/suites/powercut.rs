//! The power goes at random moments under load: what was synced is there, and every MDT holds a prefix of its operations.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::case::{Bed, Case, Context, Suite, expect, expect_eq, names, wait_until};
use crate::cluster::{Cluster, Shape};
use crate::disk::LoopDisk;
use crate::load::{Lost, Sequence, Stop, SyncedFiles};
use crate::random::Random;
use crate::sweep;

/// The suite.
pub static SUITE: Suite = Suite { name: "powercut", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "plain_ext4", seconds: 300, run: plain_ext4 },
    Case { name: "one_process", seconds: 400, run: one_process },
    Case { name: "split", seconds: 400, run: split },
    Case { name: "canary_without_sync", seconds: 200, run: canary },
    Case { name: "disk_error_one_process", seconds: 300, run: disk_error_one_process },
    Case { name: "disk_error_split", seconds: 300, run: disk_error_split },
];

const ONE: Shape = Shape { mdt_count: 2, ost_count: 2, is_split: false };
const MANY: Shape = Shape { mdt_count: 2, ost_count: 2, is_split: true };
const DISK_MIB: u64 = 1024;
const WORKER_COUNT: usize = 2;
/// How many acknowledged syncs a cut waits for, and how long at most.
const SYNCS_BEFORE_CUT: u64 = 10;
const SYNCS_LIMIT: Duration = Duration::from_secs(100);
/// For a call that must be answered.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A cluster on a disk that loses its power, and what its workers know.
struct Bench {
    disk: LoopDisk,
    cluster: Cluster,
    shape: Shape,
    synced: Vec<SyncedFiles>,
    /// Where the last round made its sequences, and how many directories each had after the cut.
    settled: Vec<(PathBuf, u64)>,
    round_count: u64,
    /// The servers skip their syncs: what a round begins with is made durable behind their back.
    is_unsynced: bool,
    random: Random,
}

impl Bench {
    fn new(context: &Context, directory: &Path, mib: u64, shape: Shape, is_unsynced: bool) -> Result<Bench> {
        context.skip_if_local()?;
        let disk = LoopDisk::new(directory, mib)?;
        let home = disk.path("home");
        fs::create_dir_all(&home)?;
        let mut cluster = Cluster::new(&context.options, &home, shape)?;
        if is_unsynced {
            cluster.set_environment("SHEEN_TEST_NO_SYNC", "1");
        }
        cluster.up()?;
        for index in 0..WORKER_COUNT {
            fs::create_dir(cluster.mount.join(format!("synced{index}")))?;
        }
        Ok(Bench {
            disk,
            cluster,
            shape,
            synced: (0..WORKER_COUNT).map(|_| SyncedFiles::default()).collect(),
            settled: Vec::new(),
            round_count: 0,
            is_unsynced,
            random: context.random(),
        })
    }

    /// The directory of one worker with synced files.
    fn directory(&self, index: usize) -> PathBuf {
        self.cluster.mount.join(format!("synced{index}"))
    }

    /// New directories for this round's sequences, one on each MDT; everything so far is durable when they are there.
    fn prepare(&self) -> Result<Vec<PathBuf>> {
        let mut directories = Vec::new();
        for index in 0..self.shape.mdt_count {
            let directory = self.cluster.mount.join(format!("sequence{index}-{}", self.round_count));
            self.cluster.sheen(&["lfs", "mkdir", "-i", &index.to_string(), &directory.to_string_lossy()])?;
            directories.push(directory);
        }
        self.cluster.sheen(&["sync", &self.cluster.mount.to_string_lossy()])?;
        if self.is_unsynced {
            self.disk.sync()?;
        }
        Ok(directories)
    }

    /// Works, loses power, comes back; fails if something synced is lost. Returns how many synced states were looked at.
    fn round(&mut self) -> Result<u64> {
        let stop = Stop::default();
        let work_time = Duration::from_millis(200 + self.random.below(1800));
        let sequence_directories = self.prepare()?;
        let mut sequences: Vec<Sequence> = sequence_directories.iter().map(|_| Sequence::default()).collect();
        let directories: Vec<PathBuf> = (0..WORKER_COUNT).map(|index| self.directory(index)).collect();
        std::thread::scope(|scope| -> Result<()> {
            for (synced, directory) in self.synced.iter_mut().zip(&directories) {
                let mut random = Random::new(self.random.number());
                let stop = &stop;
                scope.spawn(move || report(synced.work(directory, stop, &mut random), stop));
            }
            for (sequence, directory) in sequences.iter_mut().zip(&sequence_directories) {
                let stop = &stop;
                scope.spawn(move || report(sequence.work(directory, stop, u64::MAX), stop));
            }
            std::thread::sleep(work_time);
            let ready =
                wait_until(SYNCS_LIMIT, "a sync is acknowledged", || Ok(stop.acknowledged_count() > 0));
            stop.now();
            let cut = self.disk.cut_power();
            // Aborts the mount, so that the workers end whatever state the servers are in.
            self.cluster.release();
            ready.and(cut)
        })?;
        self.disk.unmount()?;
        self.disk.mount()?;
        self.cluster.up().context("up after the power cut")?;
        self.check_no_lossless_ost()?;
        let mut checked = 0;
        for (synced, directory) in self.synced.iter_mut().zip(&directories) {
            checked += synced.check(directory)?;
            synced.settle(directory)?;
        }
        let prefixes = self.check_sequences(&mut sequences, sequence_directories)?;
        println!("after {work_time:?}: {checked} synced states there, prefixes {prefixes:?}");
        self.round_count += 1;
        Ok(checked)
    }

    /// The machine runs on here, and what it notes of clients is still there: it must not be believed, since the data are gone. (Of an
    /// MDT it may be, where the log has everything.)
    fn check_no_lossless_ost(&self) -> Result<()> {
        let status = self.cluster.sheen(&["lctl", "get_param", "-n", "obdfilter.*.recovery_status"])?;
        expect(
            !status.contains("lossless: 1"),
            &format!("an OST takes it for a death of its process: {status}"),
        )
    }

    /// Every MDT has a prefix of this round's directories, and all that it had after the round before.
    fn check_sequences(&mut self, sequences: &mut [Sequence], directories: Vec<PathBuf>) -> Result<Vec<u64>> {
        for (directory, count) in self.settled.drain(..) {
            let found = names(&directory)?.len() as u64;
            expect_eq(found, count, "directories that a crash has spared and a sync has followed")?;
        }
        let mut prefixes = Vec::new();
        for (index, (sequence, directory)) in sequences.iter_mut().zip(directories).enumerate() {
            let prefix = sequence.check_prefix(&directory).with_context(|| format!("MDT {index}"))?;
            prefixes.push(prefix);
            self.settled.push((directory, prefix));
        }
        Ok(prefixes)
    }
}

fn report(refused: Option<anyhow::Error>, stop: &Stop) {
    if let Some(error) = refused
        && !stop.is_over()
    {
        println!("refused before the power went: {error:#}");
    }
}

fn cut_often(context: &Context, shape: Shape) -> Result<()> {
    let rounds = context.rounds(if context.options.thorough { 100 } else { 8 });
    let mib = if rounds > 20 { 4 * DISK_MIB } else { DISK_MIB };
    let mut bench = Bench::new(context, &context.work, mib, shape, false)?;
    let mut checked = 0;
    for number in 0..rounds {
        if number >= 2 && context.is_enough(number, "rounds") {
            break;
        }
        checked += bench.round().with_context(|| format!("cut {number}"))?;
    }
    println!("{} cuts, {checked} synced states looked at", bench.round_count);
    expect(checked > 0, "nothing synced was looked at")
}

fn one_process(context: &Context) -> Result<()> {
    cut_often(context, ONE)
}

fn split(context: &Context) -> Result<()> {
    cut_often(context, MANY)
}

/// Blocks that are overwritten right before a cut and never synced.
const UNSYNCED_BYTES: usize = 64 * 4096;

/// The load on the disk itself, without SheenFS: ext4 keeps what was synced and loses what was not, so the cut is real and the
/// journal of the load is right.
///
/// What is not synced is an overwrite of old blocks. A new or truncated file would prove nothing: ext4 writes it out when it is
/// closed (`auto_da_alloc`) or with the transaction that allocates its blocks, and a neighbour's sync commits that. An overwrite
/// waits for the kernel's flusher, whose time may come at any moment: one cut in several must be earlier.
fn plain_ext4(context: &Context) -> Result<()> {
    let disk = LoopDisk::new(&context.work, 256)?;
    let (mut synced, mut sequence) = (SyncedFiles::default(), Sequence::default());
    let (files, directories) = (disk.path("files"), disk.path("directories"));
    fs::create_dir(&files)?;
    fs::create_dir(&directories)?;
    fs::File::open(&disk.point)?.sync_all()?;
    let mut random = context.random();
    let (mut checked, mut lost_bytes) = (0, 0);
    for number in 0..12 {
        if number >= 3 && lost_bytes > 0 {
            break;
        }
        let overwritten = fs::File::create(disk.path("overwritten"))?;
        overwritten.write_all_at(&[b'o'; UNSYNCED_BYTES], 0)?;
        overwritten.sync_all()?;
        let stop = Stop::default();
        std::thread::scope(|scope| -> Result<()> {
            let (stop, files, directories) = (&stop, &files, &directories);
            let mut own = Random::new(random.number());
            let (synced, sequence) = (&mut synced, &mut sequence);
            let worker = scope.spawn(move || report(synced.work(files, stop, &mut own), stop));
            // Few enough for the small disk, however long the syncs take.
            scope.spawn(move || report(sequence.work(directories, stop, 2000), stop));
            let ready = wait_until(SYNCS_LIMIT, "syncs are acknowledged", || {
                expect(!worker.is_finished(), "the worker was refused")?;
                Ok(stop.acknowledged_count() >= SYNCS_BEFORE_CUT)
            });
            std::thread::sleep(Duration::from_millis(random.below(500)));
            let wrote = overwritten.write_all_at(&[b'n'; UNSYNCED_BYTES], 0);
            // Before anything that may fail: the workers end only by this.
            stop.now();
            let cut = disk.cut_power();
            ready.and(wrote.map_err(Into::into)).and(cut)
        })?;
        drop(overwritten);
        disk.unmount()?;
        disk.mount()?;
        let bytes = fs::read(disk.path("overwritten"))?;
        expect(bytes.len() == UNSYNCED_BYTES, "the size of a synced file")?;
        lost_bytes += bytes.iter().filter(|byte| **byte == b'o').count();
        let found = synced.check(&files).with_context(|| format!("cut {number}"))?;
        println!("{found} synced states there, {} directories", sequence.check_prefix(&directories)?);
        checked += found;
        synced.settle(&files)?;
    }
    expect(checked > 0, "nothing synced was looked at")?;
    println!("{lost_bytes} bytes that were never synced are lost");
    expect(lost_bytes > 0, "nothing was lost that was never synced: the power was not cut")?;
    disk.unmount()
}

/// With syncs switched off in the servers something synced must be missing soon, or the suite cuts no power. Servers that do not
/// even start again prove nothing; the next try has a new disk.
fn canary(context: &Context) -> Result<()> {
    for number in 0..12 {
        let directory = context.work.join(format!("try{number}"));
        let mut bench = Bench::new(context, &directory, DISK_MIB, ONE, true)?;
        match bench.round() {
            Ok(_) => println!("cut {number}, without syncs: nothing is missing"),
            Err(error) if error.downcast_ref::<Lost>().is_some() => {
                println!("cut {number}, without syncs: {error:#}");
                return Ok(());
            }
            Err(error) => println!("cut {number}, without syncs, another failure: {error:#}"),
        }
    }
    expect(false, "twelve power cuts without any sync, and nothing that was synced is missing")
}

/// The disk fails while the servers go on: nothing is acknowledged, the targets are fenced and say what to do, and doing it brings
/// all back.
fn disk_error(context: &Context, shape: Shape) -> Result<()> {
    let mut bench = Bench::new(context, &context.work, DISK_MIB, shape, false)?;
    let log = move_log_away(&bench.cluster, context)?;
    let (directory, stop) = (bench.directory(0), Stop::default());
    bench.synced[0].steps(&directory, &stop, &mut bench.random, 20)?;
    let (old, new) = (directory.join("old"), directory.join("new"));
    write_and_sync(&old)?;
    bench.disk.cut_power()?;
    // The first needs only an OST, the others an MDT.
    for (what, refused) in [
        ("an old file", answered(move || overwrite_and_sync(&old))?),
        ("a new file", answered(move || write_and_sync(&new))?),
        ("a directory", answered(move || make_and_sync(&directory.join("refused")))?),
    ] {
        let error = refused.err().with_context(|| format!("{what} was synced to a disk that fails"))?;
        println!("{what}: {error}");
    }
    let directory = bench.directory(0);
    let data = bench.cluster.data.to_string_lossy().into_owned();
    let mut said = String::new();
    wait_until(ANSWER_LIMIT, "the status shows a failed MDT and a failed OST", || {
        said = bench.cluster.sheen(&["status", "--dir", &data])?;
        let failed = |kind: &str| said.lines().any(|line| line.contains(kind) && line.contains(" failed "));
        Ok(failed("-MDT") && failed("-OST"))
    })?;
    println!("{said}");
    for words in [
        "is fenced: the device under",
        &format!("sheen down --force --dir {data}"),
        &format!("sheen up --dir {data}"),
    ] {
        expect(said.contains(words), &format!("the status says '{words}':\n{said}"))?;
    }
    let logged = logged(&log)?;
    expect(
        logged.contains("this target is fenced; end its process, bring the storage back"),
        &format!("the log says so:\n{logged}"),
    )?;
    bench.cluster.sheen(&["down", "--force", "--dir", &data])?;
    expect(sweep::mounts_under(&bench.cluster.mount).is_empty(), "down has unmounted")?;
    bench.disk.unmount()?;
    bench.disk.mount()?;
    bench.cluster.up()?;
    let checked = bench.synced[0].check(&directory)?;
    expect(checked > 0, "nothing synced was looked at")?;
    bench.synced[0].settle(&directory)?;
    bench.synced[0].steps(&directory, &stop, &mut bench.random, 20)?;
    let said = bench.cluster.sheen(&["status", "--dir", &data])?;
    expect(!said.contains("failed "), &format!("all is well again:\n{said}"))?;
    bench.cluster.down().map(drop)
}

/// Lets the servers write their log to a disk that does not fail.
fn move_log_away(cluster: &Cluster, context: &Context) -> Result<PathBuf> {
    let (log, sound) = (cluster.data.join("log"), context.work.join("sound-log"));
    cluster.down()?;
    fs::remove_dir_all(&log)?;
    fs::create_dir(&sound)?;
    std::os::unix::fs::symlink(&sound, &log)?;
    cluster.up()?;
    Ok(sound)
}

fn logged(directory: &Path) -> Result<String> {
    let mut all = String::new();
    for name in names(directory)? {
        all.push_str(&String::from_utf8_lossy(&crate::case::read(&directory.join(name))?));
    }
    Ok(all)
}

fn disk_error_one_process(context: &Context) -> Result<()> {
    disk_error(context, ONE)
}

fn disk_error_split(context: &Context) -> Result<()> {
    disk_error(context, MANY)
}

/// What a call says that may hang.
fn answered(call: impl FnOnce() -> std::io::Result<()> + Send + 'static) -> Result<std::io::Result<()>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Nobody may be waiting any more.
        let _ = sender.send(call());
    });
    receiver.recv_timeout(ANSWER_LIMIT).context("a call on a dead disk gets no answer")
}

fn write_and_sync(path: &Path) -> std::io::Result<()> {
    fs::write(path, b"some bytes")?;
    fs::File::open(path)?.sync_all()
}

fn overwrite_and_sync(path: &Path) -> std::io::Result<()> {
    let file = fs::OpenOptions::new().write(true).open(path)?;
    file.write_all_at(b"never kept", 0)?;
    file.sync_all()
}

fn make_and_sync(path: &Path) -> std::io::Result<()> {
    fs::create_dir(path)?;
    fs::File::open(path)?.sync_all()
}
