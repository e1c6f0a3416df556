//! The power goes at random moments under load: what was synced is there, and every MDT holds a prefix of its operations.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::case::{Bed, Case, Context, Suite, expect, wait_until};
use crate::cluster::{Cluster, Shape};
use crate::disk::LoopDisk;
use crate::load::{Sequence, Stop, SyncedFiles};
use crate::random::Random;

/// The suite.
pub static SUITE: Suite = Suite { name: "powercut", bed: Bed::Own, cases: CASES, canary: None };

static CASES: &[Case] = &[
    Case { name: "plain_ext4", seconds: 300, run: plain_ext4 },
    Case { name: "one_process", seconds: 400, run: one_process },
    Case { name: "split", seconds: 400, run: split },
    Case { name: "canary_without_sync", seconds: 200, run: canary },
    Case { name: "disk_error_is_no_success", seconds: 120, run: disk_error },
];

const ONE: Shape = Shape { mdt_count: 2, ost_count: 2, is_split: false };
const MANY: Shape = Shape { mdt_count: 2, ost_count: 2, is_split: true };
const DISK_MIB: u64 = 1024;
const WORKER_COUNT: usize = 2;

/// A cluster on a disk that loses its power, and what its workers know.
struct Bench {
    disk: LoopDisk,
    cluster: Cluster,
    synced: Vec<SyncedFiles>,
    sequences: Vec<Sequence>,
    random: Random,
}

impl Bench {
    fn new(context: &Context, shape: Shape, without_sync: bool) -> Result<Bench> {
        context.skip_if_local()?;
        let disk = LoopDisk::new(&context.work, DISK_MIB)?;
        let home = disk.path("home");
        fs::create_dir_all(&home)?;
        let mut cluster = Cluster::new(&context.options, &home, shape)?;
        if without_sync {
            cluster.set_environment("SHEEN_TEST_NO_SYNC", "1");
        }
        cluster.up()?;
        let bench = Bench {
            disk,
            cluster,
            synced: (0..WORKER_COUNT).map(|_| SyncedFiles::default()).collect(),
            sequences: (0..shape.mdt_count).map(|_| Sequence::default()).collect(),
            random: context.random(),
        };
        for index in 0..WORKER_COUNT {
            fs::create_dir(bench.cluster.mount.join(format!("synced{index}")))?;
        }
        for index in 0..shape.mdt_count {
            let directory = bench.cluster.mount.join(format!("sequence{index}"));
            bench.cluster.sheen(&["lfs", "mkdir", "-i", &index.to_string(), &directory.to_string_lossy()])?;
        }
        bench.cluster.sheen(&["sync", &bench.cluster.mount.to_string_lossy()])?;
        Ok(bench)
    }

    /// Works, loses power, comes back; fails if something synced is lost.
    fn round(&mut self) -> Result<()> {
        let stop = Stop::default();
        let work_time = Duration::from_millis(200 + self.random.below(1800));
        let mount = self.cluster.mount.clone();
        let directory = |kind: &str, index: usize| mount.join(format!("{kind}{index}"));
        std::thread::scope(|scope| -> Result<()> {
            for (index, synced) in self.synced.iter_mut().enumerate() {
                let mut random = Random::new(self.random.number());
                let (directory, stop) = (directory("synced", index), &stop);
                scope.spawn(move || report(synced.work(&directory, stop, &mut random), stop));
            }
            for (index, sequence) in self.sequences.iter_mut().enumerate() {
                let (directory, stop) = (directory("sequence", index), &stop);
                scope.spawn(move || report(sequence.work(&directory, stop, u64::MAX), stop));
            }
            std::thread::sleep(work_time);
            stop.now();
            let cut = self.disk.cut_power();
            // Aborts the mount, so that the workers end whatever state the servers are in.
            self.cluster.release();
            cut
        })?;
        self.disk.unmount()?;
        self.disk.mount()?;
        self.cluster.up().context("up after the power cut")?;
        let mut checked = 0;
        for (index, synced) in self.synced.iter_mut().enumerate() {
            checked += synced.check(&directory("synced", index))?;
            synced.settle(&directory("synced", index))?;
        }
        let mut prefixes = Vec::new();
        for (index, sequence) in self.sequences.iter_mut().enumerate() {
            prefixes.push(
                sequence
                    .check_prefix(&directory("sequence", index))
                    .with_context(|| format!("MDT {index}"))?,
            );
        }
        println!("after {work_time:?}: {checked} synced states there, prefixes {prefixes:?}");
        // What is there now was there after the crash: the next round builds on it.
        self.cluster.sheen(&["sync", &mount.to_string_lossy()]).map(drop)
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
    let mut bench = Bench::new(context, shape, false)?;
    let usual = if context.options.thorough { 100 } else { 8 };
    for number in 0..context.rounds(usual) {
        if number >= 2 && context.is_enough(number, "rounds") {
            break;
        }
        bench.round().with_context(|| format!("cut {number}"))?;
    }
    Ok(())
}

fn one_process(context: &Context) -> Result<()> {
    cut_often(context, ONE)
}

fn split(context: &Context) -> Result<()> {
    cut_often(context, MANY)
}

/// How many acknowledged syncs a cut waits for, and how long at most.
const SYNCS_BEFORE_CUT: u64 = 10;
const SYNCS_LIMIT: Duration = Duration::from_secs(100);

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

/// With syncs switched off in the servers something synced must be missing soon, or the suite cuts no power.
fn canary(context: &Context) -> Result<()> {
    let mut bench = Bench::new(context, ONE, true)?;
    for number in 0..6 {
        if let Err(error) = bench.round() {
            println!("cut {number}, without syncs: {error:#}");
            return Ok(());
        }
    }
    expect(false, "six power cuts without any sync, and nothing was lost")
}

/// The disk fails while the servers go on: a sync must not succeed.
fn disk_error(context: &Context) -> Result<()> {
    let bench = Bench::new(context, ONE, false)?;
    bench.disk.cut_power()?;
    let path = bench.cluster.mount.join("synced0/after");
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Nobody may be waiting any more.
        let _ = sender.send(write_and_sync(&path));
    });
    match receiver.recv_timeout(Duration::from_secs(20)) {
        Ok(Ok(())) => expect(false, "fsync succeeded on a disk that fails"),
        Ok(Err(error)) => {
            println!("refused: {error}");
            Ok(())
        }
        // Waiting for the target to come back is right too: nothing was acknowledged.
        Err(_) => Ok(()),
    }
}

fn write_and_sync(path: &Path) -> std::io::Result<()> {
    fs::write(path, b"on a dead disk")?;
    fs::File::open(path)?.sync_all()
}
