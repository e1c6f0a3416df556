//! A full disk: ENOSPC to the writer, never a lost acknowledged write, and deleting frees space.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use super::grow::{Joined, PATIENCE, check_files, end, make_files, osts_of, running, wait_seen};
use crate::case::{Bed, Case, Context, Suite, expect, expect_bytes, expect_eq, wait_until};
use crate::cluster::{Cluster, Shape};
use crate::disk::LoopDisk;
use crate::random::Random;
use crate::sys;

/// The suite.
pub static SUITE: Suite = Suite { name: "enospc", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "several_writers", seconds: 240, run: several_writers },
    Case { name: "many_small_files", seconds: 240, run: small_files },
    Case { name: "overwrites_of_what_is_there", seconds: 240, run: overwrites },
    Case { name: "one_full_ost_gets_no_new_files", seconds: 240, run: full_ost },
];

const DISK_MIB: u64 = 256;
const SHAPE: Shape = Shape { mdt_count: 1, ost_count: 2, is_split: false };
const CHUNK_BYTES: usize = 256 * 1024;

fn start(context: &Context) -> Result<(LoopDisk, Cluster)> {
    context.skip_if_local()?;
    let disk = LoopDisk::new(&context.work, DISK_MIB)?;
    let home = disk.path("home");
    fs::create_dir_all(&home)?;
    let cluster = Cluster::new(&context.options, &home, SHAPE)?;
    cluster.up()?;
    Ok((disk, cluster))
}

fn chunk(seed: u64, index: u64) -> Vec<u8> {
    Random::new(seed.wrapping_mul(1_000_003).wrapping_add(index)).bytes(CHUNK_BYTES)
}

/// Writes chunks, syncing every eighth, until the disk is full. Returns how many chunks are synced.
fn fill(path: &Path, seed: u64) -> Result<u64> {
    let file = File::create(path)?;
    let mut synced = 0;
    for index in 0.. {
        let wrote = file.write_all_at(&chunk(seed, index), index * CHUNK_BYTES as u64);
        let wrote = wrote.and_then(|()| if index % 8 == 7 { file.sync_all() } else { Ok(()) });
        match wrote {
            Ok(()) if index % 8 == 7 => synced = index + 1,
            Ok(()) if index > 4 * (DISK_MIB << 20) / CHUNK_BYTES as u64 => bail!("the disk never gets full"),
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => break,
            Err(error) => return Err(error).context("expected ENOSPC"),
        }
    }
    Ok(synced)
}

fn check(path: &Path, seed: u64, synced: u64) -> Result<()> {
    let file = File::open(path)?;
    let mut bytes = vec![0u8; CHUNK_BYTES];
    for index in 0..synced {
        file.read_exact_at(&mut bytes, index * CHUNK_BYTES as u64)
            .with_context(|| format!("chunk {index}"))?;
        expect_bytes(&bytes, &chunk(seed, index), &format!("chunk {index} of {}", path.display()))?;
    }
    Ok(())
}

fn several_writers(context: &Context) -> Result<()> {
    let (_disk, cluster) = start(context)?;
    let before = sys::space(&cluster.mount)?;
    for round in 0..2 {
        let paths: Vec<PathBuf> = (0..4).map(|index| cluster.mount.join(format!("file{index}"))).collect();
        let synced = std::thread::scope(|scope| -> Result<Vec<u64>> {
            let writers: Vec<_> = paths
                .iter()
                .enumerate()
                .map(|(seed, path)| scope.spawn(move || fill(path, seed as u64)))
                .collect();
            writers
                .into_iter()
                .map(|writer| writer.join().map_err(|_| anyhow!("a writer panicked"))?)
                .collect()
        })?;
        println!("round {round}: {synced:?} chunks of {CHUNK_BYTES} bytes synced");
        expect(synced.iter().sum::<u64>() > 100, "a disk of 256 MiB takes more than 25 MiB")?;
        let second = cluster.mount_again("mnt2")?;
        for (seed, path) in paths.iter().enumerate() {
            check(path, seed as u64, synced[seed])?;
            check(&second.join(format!("file{seed}")), seed as u64, synced[seed])?;
        }
        cluster.unmount(&second)?;
        let mut removed = paths.iter().map(fs::remove_file);
        removed.try_for_each(|result| result).context("removing from a full disk")?;
        space_is_back(&cluster, before.available_bytes)?;
    }
    cluster.down()?;
    cluster.up()?;
    space_is_back(&cluster, before.available_bytes)?;
    cluster.down().map(drop)
}

/// Within a minute all but 16 MiB (logs that stay allocated, a journal) is free again.
fn space_is_back(cluster: &Cluster, available_bytes: u64) -> Result<()> {
    wait_until(Duration::from_secs(100), "the space is back after deleting", || {
        let now = sys::space(&cluster.mount)?;
        Ok(now.available_bytes + (16 << 20) >= available_bytes)
    })?;
    // A client may have been told just before that a target is full: it asks again within seconds.
    let begun = std::time::Instant::now();
    wait_until(Duration::from_secs(100), "writing works again after deleting", || {
        Ok(fs::write(cluster.mount.join("again"), vec![1u8; 10 << 20]).is_ok())
    })?;
    println!("writing works again after {:.1} s", begun.elapsed().as_secs_f64());
    fs::remove_file(cluster.mount.join("again")).map_err(Into::into)
}

/// On a full disk a file's own blocks are written over, also those that fallocate has taken for it. What is new is refused as before.
fn overwrites(context: &Context) -> Result<()> {
    let (_disk, cluster) = start(context)?;
    let (path, reserved_path) = (cluster.mount.join("file"), cluster.mount.join("reserved"));
    let reserved = File::create(&reserved_path)?;
    let reserved_bytes: u64 = 8 << 20;
    sys::fallocate(&reserved, 0, 0, reserved_bytes as i64).context("fallocate on an empty disk")?;
    // Its MDT is on the same disk, which takes no new file when it is full.
    let rest = cluster.mount.join("rest");
    File::create(&rest)?;
    let synced = fill(&path, 1)?;
    fill(&rest, 2).context("what takes the rest")?;
    let file = OpenOptions::new().write(true).open(&path)?;
    for index in 0..synced {
        file.write_all_at(&chunk(3, index), index * CHUNK_BYTES as u64)
            .and_then(|()| if index % 8 == 7 { file.sync_all() } else { Ok(()) })
            .with_context(|| format!("over chunk {index} of {synced}"))?;
    }
    for index in 0..reserved_bytes / CHUNK_BYTES as u64 {
        reserved
            .write_all_at(&chunk(4, index), index * CHUNK_BYTES as u64)
            .with_context(|| format!("chunk {index} of what fallocate has taken"))?;
    }
    reserved.sync_all().context("fsync of what fallocate has taken")?;
    let new = OpenOptions::new().write(true).open(&rest)?.write_all_at(&vec![1; 8 << 20], 1 << 30);
    expect(
        new.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOSPC)),
        &format!("the disk is not full: {new:?}"),
    )?;
    drop((file, reserved));
    cluster.down()?;
    cluster.up()?;
    check(&path, 3, synced)?;
    check(&reserved_path, 4, reserved_bytes / CHUNK_BYTES as u64)?;
    println!("{synced} chunks of {CHUNK_BYTES} bytes were written over");
    for name in crate::case::names(&cluster.mount)? {
        fs::remove_file(cluster.mount.join(name)).context("removing from a full disk")?;
    }
    cluster.down().map(drop)
}

/// Small files until the metadata or the data are full: every file that was closed and synced is whole.
fn small_files(context: &Context) -> Result<()> {
    let (_disk, cluster) = start(context)?;
    let mut made = Vec::new();
    for index in 0..200_000u64 {
        let path = cluster.mount.join(format!("file{index}"));
        let bytes = Random::new(index).bytes(20_000);
        let result = File::create(&path).and_then(|file| {
            file.write_all_at(&bytes, 0)?;
            if index % 16 == 0 { file.sync_all() } else { Ok(()) }
        });
        match result {
            Ok(()) if index % 16 == 0 => made.push(index),
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => break,
            Err(error) => return Err(error).with_context(|| format!("file {index}: expected ENOSPC")),
        }
    }
    println!("{} synced files before the disk was full", made.len());
    for index in &made {
        let bytes = crate::case::read(&cluster.mount.join(format!("file{index}")))?;
        expect_bytes(&bytes, &Random::new(*index).bytes(20_000), &format!("file{index}"))?;
    }
    // Overwriting what is there, on a full disk, must not damage it either.
    let last = made.last().context("no file was synced")?;
    let file = OpenOptions::new().write(true).open(cluster.mount.join(format!("file{last}")))?;
    if file.write_all_at(b"over", 0).and_then(|()| file.sync_all()).is_ok() {
        let bytes = crate::case::read(&cluster.mount.join(format!("file{last}")))?;
        expect(bytes.starts_with(b"over"), "an acknowledged overwrite on a full disk")?;
    }
    drop(file);
    for name in crate::case::names(&cluster.mount)? {
        fs::remove_file(cluster.mount.join(name)).context("removing from a full disk")?;
    }
    fs::write(cluster.mount.join("again"), vec![1u8; 1 << 20]).context("writing after deleting")?;
    cluster.down().map(drop)
}

/// It is on a small disk of its own.
fn full_ost(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let disk = LoopDisk::new(&context.work, DISK_MIB)?;
    let (mut cluster, mounts) = running(context)?;
    let here = &mounts[0];
    let joined = Joined::add(&cluster, &disk.point, "--ost", 2)?;
    wait_seen(&cluster, &mounts, "OST0002", Instant::now())?;
    let set = |setting: &str| cluster.sheen(&["lctl", "set_param", setting]);
    set("lod.*.qos_maxage=1")?;
    // In turn, or it would get few files at any time.
    set("lod.*.qos_threshold_rr=100")?;
    let told = cluster.sheen(&["lctl", "get_param", "-n", "lod.*.qos_threshold_rr", "lod.*.qos_maxage"])?;
    expect_eq(told.split_whitespace().collect::<Vec<_>>(), vec!["100", "1"], "what was set")?;
    expect_eq(make_files(&cluster, &mounts, "before")?, BTreeSet::from([0, 1, 2]), "all OSTs are used")?;

    let filler = here.join("filler");
    let rest = here.join("rest");
    for path in [&filler, &rest] {
        cluster.sheen(&["lfs", "setstripe", "-i", "2", &path.to_string_lossy()])?;
    }
    fill(&filler, 1)?;
    // Its log makes room now and then: what the MDT knows is to stay so.
    wait_until(PATIENCE, "the MDT knows that the OST is full", || {
        set("lod.*.qos_maxage=1")?;
        fill(&rest, 2)?;
        new_osts(&cluster, here, "asks")?;
        set("lod.*.qos_maxage=3600")?;
        Ok(!new_osts(&cluster, here, "probe")?.contains(&2))
    })?;
    expect_eq(make_files(&cluster, &mounts, "full")?, BTreeSet::from([0, 1]), "the others are used")?;
    for mount in &mounts {
        check_files(mount, "full")?;
    }
    let named = here.join("named");
    cluster.sheen(&["lfs", "setstripe", "-i", "2", &named.to_string_lossy()])?;
    expect_eq(osts_of(&cluster, &named)?, BTreeSet::from([2]), "whoever names it gets it")?;

    fs::remove_file(&filler)?;
    fs::remove_file(&rest)?;
    set("lod.*.qos_maxage=1")?;
    wait_until(PATIENCE, "the OST is used again", || Ok(new_osts(&cluster, here, "again")?.contains(&2)))?;
    fs::remove_file(&named)?;
    check_files(here, "before")?;
    drop(cluster.new_complaints());
    end(&cluster, &mounts, joined)
}

/// Makes some empty files, says on which OSTs they are, and removes them.
fn new_osts(cluster: &Cluster, mount: &Path, name: &str) -> Result<BTreeSet<u16>> {
    let mut osts = BTreeSet::new();
    for index in 0..6 {
        let file = mount.join(format!("{name}{index}"));
        File::create(&file)?;
        osts.extend(osts_of(cluster, &file)?);
        fs::remove_file(&file)?;
    }
    Ok(osts)
}
