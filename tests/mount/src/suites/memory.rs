//! What stays in memory: rows, whatever streams beside them; and no more than before, however long a tree is walked.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Seek as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;

use crate::case::{Bed, Case, Context, Rounds, Suite, expect, expect_eq, note, wait_until};
use crate::cluster::{Cluster, Shape};
use crate::load::Stop;
use crate::sys;

/// The suite.
pub static SUITE: Suite = Suite { name: "memory", bed: Bed::Own, cases: CASES, rounds: ROUNDS, canary: None };

static CASES: &[Case] = &[
    Case { name: "rows_stay_beside_streams", seconds: 300, run: beside_streams },
    Case { name: "the_bench_walks_beside_streams", seconds: 300, run: bench_beside },
    Case { name: "walks_do_not_grow", seconds: 200, run: no_growth },
];

/// One round is a minute.
static ROUNDS: &[Rounds] =
    &[Rounds { case: "walks_do_not_grow", usual: 1, thorough: 10, round_millis_max: 90_000 }];

const SHAPE: Shape = Shape { mdt_count: 2, ost_count: 2, is_split: true };
const DIRECTORY_COUNT: usize = 60;
const FILE_COUNT: usize = 3000;
const STREAM_MIB: usize = 48;
/// What each target may keep of its rows beside that.
const ROWS_MIB: usize = 8;
const _: () = assert!(ROWS_MIB * 4 < STREAM_MIB);
const MIB: usize = 1 << 20;
/// What servers read now and then for other reasons (a checkpoint, a session) is in few walks: most of so many count, and those that are
/// compared with are the best of as many.
const WALK_COUNT: usize = 5;
/// More than half of them.
const MOST_COUNT: usize = WALK_COUNT / 2 + 1;
/// A checkpoint begins after 64 MiB at the latest.
const LOGGED_BYTES: usize = 60_000;
const LOGGED_COUNT: usize = 2 * 80 * MIB / LOGGED_BYTES;

/// Files spread over directories of one tree, which lies on both MDTs.
fn make_tree(context: &Context, tree: &Path) -> Result<()> {
    fs::create_dir(tree)?;
    for number in 0..DIRECTORY_COUNT {
        let directory = tree.join(format!("d{number}"));
        context.mkdir_on((number % 2) as u16, &directory)?;
        for file in (number..FILE_COUNT).step_by(DIRECTORY_COUNT) {
            fs::write(directory.join(format!("file{file}")), b"")?;
        }
    }
    Ok(())
}

/// Looks at all files; -> how many there are.
fn walk(tree: &Path) -> Result<usize> {
    let mut count = 0;
    for directory in fs::read_dir(tree)? {
        for entry in fs::read_dir(directory?.path())? {
            fs::symlink_metadata(entry?.path())?;
            count += 1;
        }
    }
    Ok(count)
}

/// What all targets have read of the files with their rows.
fn base_reads(cluster: &Cluster) -> Result<u64> {
    let said = cluster.sheen(&["lctl", "get_param", "-n", "osd-local.*.metadata_cache_stats"])?;
    let row = |line: &str| line.strip_prefix("base_reads ")?.trim().parse::<u64>().ok();
    let counts: Vec<u64> = said.lines().filter_map(row).collect();
    expect(!counts.is_empty(), &format!("nothing is counted: {said}"))?;
    Ok(counts.iter().sum())
}

/// A walk through a mount that knows nothing; -> how often rows were read of the base for it.
fn reads_of_cold_walk(cluster: &Cluster, name: &str) -> Result<u64> {
    let point = cluster.mount_again(name)?;
    let before = base_reads(cluster)?;
    expect_eq(walk(&point.join("tree"))?, FILE_COUNT, "files of the tree")?;
    let reads = base_reads(cluster)? - before;
    cluster.unmount(&point)?;
    Ok(reads)
}

/// Reads a file past the page cache until it is told to stop, and counts how often it came to the end.
fn stream(path: &Path, stop: &Stop, passes: &AtomicU64) -> Result<()> {
    let mut file = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    let mut buffer = vec![0; MIB + 4096];
    let start = buffer.as_ptr().align_offset(4096);
    let block = buffer.get_mut(start..start + MIB).context("room for the alignment")?;
    while !stop.is_over() {
        match file.read(block)? {
            0 => {
                passes.fetch_add(1, Ordering::SeqCst);
                file.rewind()?;
            }
            byte_count => expect(block[..byte_count].iter().all(|byte| *byte == 7), "other bytes")?,
        }
    }
    Ok(())
}

/// Changes rows until more was logged than each MDT keeps out of its base.
fn write_log(tree: &Path) -> Result<()> {
    for number in 0..LOGGED_COUNT {
        let directory = tree.join(format!("d{}", number % 2));
        sys::set_xattr(&directory, "user.large", &vec![number as u8; LOGGED_BYTES], 0)?;
    }
    Ok(())
}

/// After a restart rows are read once; then a client that walks a tree has none read again, also while OSTs stream.
fn beside_streams(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let cluster = Cluster::new(&context.options, &context.work, SHAPE)?;
    cluster.up()?;
    make_tree(context, &cluster.mount.join("tree"))?;
    let file = cluster.mount.join("streamed");
    context.set_stripes(&file, 2, "1M")?;
    fs::write(&file, vec![7; STREAM_MIB * MIB])?;
    write_log(&cluster.mount.join("tree"))?;
    cluster.down()?;
    cluster.up()?;
    // Less than is streamed: if that came in, the rows would go.
    cluster.sheen(&["lctl", "set_param", &format!("osd-local.*.metadata_cache_mb={ROWS_MIB}")])?;
    let first = reads_of_cold_walk(&cluster, "first")?;
    expect(first > 0, "after a restart nothing is in memory: the counter is not of the base")?;
    let (stop, passes) = (Stop::default(), AtomicU64::new(0));
    let walks = |name: &str| -> Result<Vec<u64>> {
        (0..WALK_COUNT).map(|number| reads_of_cold_walk(&cluster, &format!("{name}{number}"))).collect()
    };
    let (idle, beside) = std::thread::scope(|scope| -> Result<(Vec<u64>, Vec<u64>)> {
        let idle = walks("idle")?;
        let reader = scope.spawn(|| stream(&file, &stop, &passes));
        let measured = (|| -> Result<Vec<u64>> {
            let has_read = |more: u64| {
                let from = passes.load(Ordering::SeqCst);
                wait_until(Duration::from_secs(60), "the file is read again", || {
                    expect(!reader.is_finished(), "the reader has ended")?;
                    Ok(passes.load(Ordering::SeqCst) >= from + more)
                })
            };
            // What OSTs need to know of their objects comes with the first pass.
            has_read(1)?;
            let beside = (0..WALK_COUNT).map(|number| {
                let reads = reads_of_cold_walk(&cluster, &format!("beside{number}"))?;
                has_read(1)?;
                Ok(reads)
            });
            beside.collect()
        })();
        stop.now();
        reader.join().map_err(|_| anyhow!("the reader panicked"))?.context("the stream")?;
        Ok((idle, measured?))
    })?;
    note(&format!("reads of the base: {first} after a restart, {idle:?} idle, {beside:?} beside a stream"));
    let least = idle.iter().copied().min().context("idle walks")?;
    expect(
        beside.iter().filter(|reads| **reads <= least).count() >= MOST_COUNT,
        &format!("{beside:?} reads of the base beside a stream, {idle:?} when idle"),
    )?;
    expect(least < first, &format!("{least} reads of the base for what was read before with {first}"))?;
    cluster.down().map(drop)
}

/// `sheen bench tree --beside-mib` streams through a mount of its own, and tells what both cost.
fn bench_beside(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let cluster = Cluster::new(&context.options, &context.work, SHAPE)?;
    cluster.up()?;
    let other = cluster.mount_again("other")?;
    let (mount, other) = (cluster.mount.to_string_lossy(), other.to_string_lossy());
    // Medians: a walk that servers read something beside for other reasons is one round.
    let rounds = WALK_COUNT.to_string();
    let sizes = ["--files", "600", "--dirs", "30", "--bytes", "0", "-n", &rounds];
    let streams = ["--beside-mib", "16", "--beside-procs", "2", "--beside-dir", &other];
    let command = [&["bench", "tree", &mount, "--json"], &sizes[..], &streams[..]].concat();
    let median = |figure: &Value, name: &str| {
        figure.pointer(&format!("/shares/{name}/median")).and_then(Value::as_f64)
    };
    let report: Value = serde_json::from_str(&cluster.sheen(&command)?)?;
    let found = report.get("figures").and_then(Value::as_array).context("figures")?;
    expect_eq(found.len(), 4, "two walks, idle and beside streams")?;
    let reads_no_more = |pair: &[Value]| matches!(pair, [idle, beside] if median(beside, "base_reads") <= median(idle, "base_reads"));
    for pair in found.chunks(2) {
        let [idle, beside] = pair else { continue };
        for name in ["tool_cpu_percent", "client_cpu_percent", "server_cpu_percent", "base_reads"] {
            expect(median(idle, name).is_some(), &format!("no {name} in {idle}"))?;
            expect(median(beside, name).is_some(), &format!("no {name} in {beside}"))?;
        }
        expect(reads_no_more(pair), &format!("{idle} {beside}"))?;
        // So small a tree may be walked before a stream has moved anything: only that it is told counts.
        for name in ["stream_mib_per_s", "stream_cpu_percent", "of_idle"] {
            expect(median(beside, name).is_some(), &format!("no {name} in {beside}"))?;
            expect_eq(median(idle, name), None, name)?;
        }
    }
    expect_eq(crate::case::names(&cluster.mount)?, Vec::<String>::new(), "what is left over")?;
    cluster.down().map(drop)
}

/// After a fifth of the time no process takes another MiB, however often a tree is walked from cold caches of the kernel.
fn no_growth(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let cluster = Cluster::new(&context.options, &context.work, SHAPE)?;
    cluster.up()?;
    let tree: PathBuf = cluster.mount.join("tree");
    make_tree(context, &tree)?;
    let time = Duration::from_secs(60) * u32::try_from(context.round_count)?;
    let processes: Vec<(String, i32)> = cluster.targets()?.into_iter().chain(cluster.mounts()?).collect();
    let mut grown = growth(&processes, &tree, time / 5, time)?;
    if !grown.is_empty() {
        // An allocator may come late to all that it ever takes; a leak does not end.
        note(&format!("once more, from here: grown {}", grown.join(", ")));
        grown = growth(&processes, &tree, Duration::ZERO, time)?;
    }
    expect(grown.is_empty(), &format!("grown: {}", grown.join(", ")))?;
    cluster.down().map(drop)
}

/// Walks for so long; -> the processes that took more than a MiB after `warm_up`.
fn growth(
    processes: &[(String, i32)],
    tree: &Path,
    warm_up: Duration,
    time: Duration,
) -> Result<Vec<String>> {
    let begun = Instant::now();
    let mut samples: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut walk_count = 0;
    while begun.elapsed() < time {
        fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")?;
        expect_eq(walk(tree)?, FILE_COUNT, "files of the tree")?;
        walk_count += 1;
        if begun.elapsed() < warm_up {
            continue;
        }
        for (name, pid) in processes {
            samples
                .entry(name)
                .or_default()
                .push(sys::status_kib(*pid, "VmRSS").with_context(|| name.clone())?);
        }
    }
    let mut grown = Vec::new();
    for (name, samples) in &samples {
        // A few walks each: what one of them holds for a moment does not count.
        let part = (samples.len() / 10).max(1);
        let (first, last) = (median(&samples[..part]), median(&samples[samples.len() - part..]));
        let name = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
        note(&format!("{name}: {first} KiB, {last} KiB at the end of {walk_count} walks"));
        if last >= first + 1024 {
            grown.push(format!("{name} from {first} to {last} KiB"));
        }
    }
    Ok(grown)
}

fn median(samples: &[u64]) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
