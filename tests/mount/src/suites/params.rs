//! Parameters: every class is read, set where that means something, and looked at for its effect.

mod pools;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};

use super::split_cluster;
use crate::case::{
    Bed, Case, Context, Suite, expect, expect_bytes, expect_eq, names, read, wait_until, write,
};
use crate::cluster::{COMMAND_LIMIT, Cluster};
use crate::sys::{self, MapKind, Mapping};

/// The suite.
pub static SUITE: Suite = Suite { name: "params", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "every_parameter_has_a_value", seconds: 90, run: every_parameter },
    Case { name: "counters_start_anew", seconds: 90, run: counters },
    Case { name: "locks_are_bounded", seconds: 90, run: locks },
    Case { name: "answers_are_expected_as_told", seconds: 90, run: timeouts },
    Case { name: "targets_are_switched_off", seconds: 90, run: active },
    Case { name: "checksums_are_switched_off_and_on", seconds: 90, run: checksums },
    Case { name: "the_kernel_reads_ahead_as_told", seconds: 90, run: read_ahead },
    Case { name: "mapped_pages_come_without_what_is_between_them", seconds: 120, run: mapped_pages },
    Case { name: "advice_reaches_the_osts", seconds: 90, run: advice },
    Case { name: "new_files_take_the_default_stripes", seconds: 90, run: stripes },
    Case { name: "pools_choose_the_osts", seconds: 120, run: pools::run },
    Case { name: "a_client_is_evicted", seconds: 90, run: evict },
    Case { name: "a_lock_goes_with_an_eviction", seconds: 90, run: evict_holder },
    Case { name: "permanent_ones_reach_all_and_stay", seconds: 180, run: permanent },
    Case { name: "who_is_silent_is_waited_for_once", seconds: 180, run: silent },
];

const LIMIT: Duration = Duration::from_secs(45);

/// The only value of a parameter.
fn value(cluster: &Cluster, name: &str) -> Result<String> {
    let text = cluster.sheen(&["lctl", "get_param", "-n", name])?;
    Ok(text.trim_end().to_owned())
}

fn number(cluster: &Cluster, name: &str) -> Result<u64> {
    let text = value(cluster, name)?;
    text.parse().with_context(|| format!("{name} is no number: {text:?}"))
}

fn set(cluster: &Cluster, setting: &str) -> Result<()> {
    cluster.sheen(&["lctl", "set_param", setting]).map(drop)
}

/// The samples of one row of a `stats` file; 0 when the row is not there.
fn samples(text: &str, row: &str) -> u64 {
    let mut lines = text.lines().map(str::split_whitespace);
    let found =
        lines.find_map(|mut words| if words.next() == Some(row) { words.next()?.parse().ok() } else { None });
    found.unwrap_or(0)
}

/// The names in the first table of docs/parameters.md.
fn declared() -> Vec<&'static str> {
    let document = include_str!("../../../../docs/parameters.md");
    let first = document.split("\n## ").next().unwrap_or_default();
    first.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

fn every_parameter(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let names = declared();
    expect(names.len() > 50, &format!("{} names in docs/parameters.md", names.len()))?;
    for name in names {
        let found = cluster.sheen(&["lctl", "get_param", name])?;
        expect(found.contains('='), &format!("{name}: {found}"))?;
    }
    let all = cluster.sheen(&["lctl", "list_param", "-R", "-F", "*"])?;
    expect(all.lines().any(|line| line.starts_with("osc.") && line.ends_with(".active=")), "osc.*.active=")?;
    let top = cluster.sheen(&["lctl", "list_param", "-F", "*"])?;
    expect(top.lines().any(|line| line == "llite/"), &format!("llite/ in {top}"))?;
    expect(top.lines().any(|line| line == "version"), &format!("version in {top}"))?;
    for pattern in ["osc.*", "llite.*.stats", "version"] {
        let (names, listed) = (["get_param", "-N"], ["list_param"]);
        let names = cluster.sheen(&[&["lctl"], &names[..], &[pattern]].concat())?;
        let listed = cluster.sheen(&[&["lctl"], &listed[..], &[pattern]].concat())?;
        expect_eq(names, listed, &format!("names only, of '{pattern}'"))?;
    }
    Ok(())
}

/// Of two processes that stand still each command says so once, however much it is to do; the others are asked.
fn silent(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let targets = cluster.targets()?;
    let pid = |name: &str| targets.iter().find(|(known, _)| known == name).map(|(_, pid)| *pid);
    let still = [pid("OST0000").context("OST0000 runs")?, pid("OST0001").context("OST0001 runs")?];
    still.iter().try_for_each(|pid| sys::kill(*pid, libc::SIGSTOP))?;
    let idle = |seconds: &str| format!("mdt.*MDT0000.recovery_time_soft={seconds}");
    let (first, second) = (idle("61"), "mdt.*MDT0000.recovery_time_hard=190");
    let commands: [&[&str]; 3] = [
        &["lctl", "set_param", &first, second],
        &["lctl", "list_param", "mdt.*MDT0000.recovery_time_soft", "mdt.*MDT0000.recovery_time_hard"],
        &["lctl", "set_param", "-P", "mdt.*MDT0000.recovery_time_soft=62", second],
    ];
    let said: Result<Vec<_>> =
        commands.iter().map(|command| cluster.try_sheen(command, COMMAND_LIMIT)).collect();
    still.iter().try_for_each(|pid| sys::kill(*pid, libc::SIGCONT))?;
    for said in said? {
        expect(said.is_success(), &said.all())?;
        expect_eq(said.output.lines().count(), 2, &said.all())?;
        for pid in still {
            let words = format!("process {pid}: ");
            let count = said.errors.lines().filter(|line| line.contains(&words)).count();
            expect_eq(count, 1, &format!("lines about process {pid}: {}", said.all()))?;
            // Nothing is waited for that cannot come.
            expect(said.errors.contains(&format!("process {pid} is stopped")), &said.all())?;
        }
    }
    expect_eq(value(&cluster, "mdt.*MDT0000.recovery_time_hard")?, "190".to_owned(), "what was set")
}

fn counters(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    write(&cluster.mount.join("file"), &vec![7; 100_000])?;
    for (name, row) in [
        ("llite.*.stats", "write_bytes"),
        ("mdc.*MDT0000*.stats", "mds_create"),
        ("osc.*OST0000*.stats", "ost_write"),
        ("mdt.*MDT0000.md_stats", "open"),
        ("obdfilter.*OST0000.stats", "write_bytes"),
        ("mds.MDS.mdt.stats", "mds_create"),
    ] {
        let before = value(&cluster, name)?;
        expect(samples(&before, row) > 0, &format!("{row} in {name}: {before}"))?;
        for head in ["snapshot_time", "start_time", "elapsed_time"] {
            expect(before.lines().any(|line| line.starts_with(head)), &format!("{head} in {name}"))?;
        }
        set(&cluster, &format!("{name}=0"))?;
        expect_eq(samples(&value(&cluster, name)?, row), 0, &format!("{row} of {name} after clearing"))?;
    }
    let sizes = value(&cluster, "obdfilter.*OST0000.brw_stats")?;
    for title in ["discontiguous pages", "disk fragmented I/Os", "I/O time (1/1000s)", "disk I/O size"] {
        expect(sizes.contains(title), &format!("{title} in {sizes}"))?;
    }
    let in_flight = value(&cluster, "osc.*OST0000*.rpc_stats")?;
    expect(in_flight.contains("pages per rpc"), &in_flight)?;
    let modify = value(&cluster, "mdc.*MDT0000*.rpc_stats")?;
    expect(modify.contains("modify_RPCs_in_flight"), &modify)
}

fn locks(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    for index in 0..200 {
        write(&cluster.mount.join(format!("file{index}")), b"")?;
    }
    let unused = "ldlm.namespaces.*MDT0000-mdc-*.lock_unused_count";
    let granted = "ldlm.namespaces.mdt-*MDT0000_UUID.lock_count";
    expect(number(&cluster, unused)? > 100, "locks on 200 new files")?;
    expect(number(&cluster, granted)? > 100, "the MDT has granted them")?;
    set(&cluster, "ldlm.namespaces.*.lru_size=clear")?;
    wait_until(LIMIT, "the MDT has its locks back", || Ok(number(&cluster, granted)? < 20))?;
    set(&cluster, "ldlm.namespaces.*.lru_size=10")?;
    for index in 0..200 {
        fs::metadata(cluster.mount.join(format!("file{index}")))?;
    }
    wait_until(LIMIT, "ten unused locks are left", || Ok(number(&cluster, unused)? <= 10))?;
    set(&cluster, "ldlm.namespaces.*.lru_max_age=100")?;
    wait_until(LIMIT, "no unused lock is left", || Ok(number(&cluster, unused)? == 0))?;
    expect_eq(read(&cluster.mount.join("file7"))?.len(), 0, "a file is read all the same")
}

/// Adaptive timeouts: what a mount expects of a target follows its answers, within the bounds.
fn timeouts(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    write(&cluster.mount.join("file"), b"so that it asks")?;
    let expected = || -> Result<String> {
        let text = value(&cluster, "mdc.*MDT0000*.timeouts")?;
        expect(text.starts_with("last reply : "), &format!("it was heard: {text}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("service    : cur"));
        let word = line.and_then(|line| line.split_whitespace().next());
        word.map(str::to_owned).with_context(|| format!("no estimate: {text}"))
    };
    let bounds = || ["at_min", "at_max", "at_history"].map(|name| number(&cluster, name).unwrap_or(u64::MAX));
    expect_eq(bounds(), [0, 600, 600], "the bounds at first")?;
    expect(set(&cluster, "at_min=700").is_err(), "a lowest that is above the highest")?;
    set(&cluster, "at_min=600")?;
    expect_eq(expected()?.as_str(), "600", "the highest")?;
    expect(set(&cluster, "at_max=599").is_err(), "a highest that is below the lowest")?;
    set(&cluster, "at_min=7")?;
    expect_eq(expected()?.as_str(), "7", "no less than the lowest")?;
    set(&cluster, "at_max=0")?;
    expect_eq(expected()?.as_str(), "0", "nothing is expected")?;
    expect(set(&cluster, "at_history=3").is_err(), "a history of four parts")?;
    set(&cluster, "at_history=40")?;
    expect_eq(bounds(), [7, 0, 40], "the bounds as set")?;
    read(&cluster.mount.join("file"))?;
    cluster.down().map(drop)
}

fn active(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let file = cluster.mount.join("file");
    write(&file, b"on one of two")?;
    let path = file.to_string_lossy().into_owned();
    let index = cluster.sheen(&["lfs", "getstripe", "-i", &path])?;
    let index: u32 = index.trim().parse().with_context(|| format!("an index: {index:?}"))?;
    let name = format!("osc.*OST{index:04x}-*.active");
    set(&cluster, "ldlm.namespaces.*.lru_size=clear")?;
    set(&cluster, &format!("{name}=0"))?;
    let refused = fs::read(&file).map_err(|error| error.raw_os_error());
    expect_eq(refused.err(), Some(Some(libc::EIO)), "reading from a target that is switched off")?;
    let df = cluster.sheen(&["lfs", "df", &cluster.mount.to_string_lossy()])?;
    expect(df.contains("inactive device"), &df)?;
    set(&cluster, &format!("{name}=1"))?;
    expect_eq(read(&file)?, b"on one of two".to_vec(), "the file when it is on again")?;
    let state = value(&cluster, "osc.*OST0000*.state")?;
    expect(state.contains("current_state: FULL"), &state)
}

/// What is read here is what the session with each OST has in force; which frames follow from it is a test of the client's.
fn checksums(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let name = "osc.*.checksums";
    let file = cluster.mount.join("file");
    for setting in [None, Some("0"), Some("1")] {
        if let Some(setting) = setting {
            set(&cluster, &format!("{name}={setting}"))?;
        }
        let expected = setting.unwrap_or("1");
        expect_eq(value(&cluster, name)?, format!("{expected}\n{expected}"), "of both OSTs")?;
        let bytes = context.random().bytes(3 << 20);
        write(&file, &bytes)?;
        cluster.sheen(&["sync", &cluster.mount.to_string_lossy()])?;
        std::fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")?;
        expect_bytes(&read(&file)?, &bytes, "the file")?;
    }
    expect(set(&cluster, &format!("{name}=2")).is_err(), "on or off")
}

fn read_ahead(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let name = "llite.*.max_read_ahead_per_file_mb";
    expect_eq(value(&cluster, name)?, "64", "what a new mount has")?;
    set(&cluster, &format!("{name}=2"))?;
    expect_eq(value(&cluster, name)?, "2", "what was set")?;
    // All files together have no less than one of them, and that no less than what is fetched as a whole; whichever is set first.
    set(&cluster, "llite.*.max_read_ahead_mb=1")?;
    for name in [name, "llite.*.max_read_ahead_whole_mb"] {
        expect_eq(value(&cluster, name)?, "1", name)?;
    }
    set(&cluster, "llite.*.max_read_ahead_mb=256")?;
    for name in [name, "llite.*.max_read_ahead_whole_mb"] {
        expect_eq(value(&cluster, name)?, "2", name)?;
    }
    expect_eq(value(&cluster, "llite.*.read_ahead_range_kb")?, "64", "what a new mount of root has")?;
    set(&cluster, "llite.*.read_ahead_range_kb=256")?;
    expect_eq(value(&cluster, "llite.*.read_ahead_range_kb")?, "256", "what was set")?;
    let stream = cluster.mount.join("stream");
    write(&stream, &vec![7; 16 << 20])?;
    cluster.sheen(&["sync", &cluster.mount.to_string_lossy()])?;
    let pushed = |is_on: bool| -> Result<u64> {
        set(&cluster, &format!("llite.*.read_ahead_push={}", u8::from(is_on)))?;
        set(&cluster, "llite.*.read_ahead_stats=clear")?;
        std::fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")?;
        let file = fs::File::open(&stream)?;
        // By one thread after the other: what one reads alone does not come unasked.
        for part in 0..64 {
            in_a_thread(|| {
                let mut bytes = vec![0; 256 << 10];
                file.read_exact_at(&mut bytes, part * (256 << 10))?;
                expect(bytes.iter().all(|byte| *byte == 7), "a stream is what was written")
            })?;
        }
        Ok(samples(&value(&cluster, "llite.*.read_ahead_stats")?, "pushed"))
    };
    expect_eq(pushed(false)?, 0, "pages that came unasked, switched off")?;
    // Nothing does of a file whose size has changed within the last second.
    wait_until(LIMIT, "pages come unasked when it is switched on", || Ok(pushed(true)? > 0))?;
    expect_eq(pushed(false)?, 0, "pages that came unasked, switched off again")?;
    set(&cluster, "llite.*.xattr_cache=0")?;
    let asked = || -> Result<u64> { Ok(samples(&value(&cluster, "mdc.*MDT0000*.stats")?, "mds_listxattr")) };
    let file = cluster.mount.join("file");
    write(&file, b"")?;
    crate::sys::set_xattr(&file, "user.word", b"value", 0)?;
    let count = |times: u64| -> Result<u64> {
        let before = asked()?;
        for _ in 0..times {
            crate::sys::get_xattr(&file, "user.word")?;
        }
        Ok(asked()? - before)
    };
    expect_eq(count(5)?, 5, "requests for five reads without a cache")?;
    set(&cluster, "llite.*.xattr_cache=1")?;
    expect(count(5)? <= 1, "one request at most for five reads with a cache")
}

fn in_a_thread(work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    std::thread::scope(|scope| scope.spawn(work).join()).map_err(|_| anyhow!("a thread panicked"))?
}

/// Walks over a mapping of a file that is in no cache, by one thread after the other: in order, some of every MiB, and pages at random.
fn mapped_pages(context: &Context) -> Result<()> {
    const MIB: usize = 1 << 20;
    const PAGE: usize = 4096;
    let cluster = split_cluster(context)?;
    let file = cluster.mount.join("file");
    let byte_count = 128 * MIB;
    let bytes: Vec<u8> = (0..byte_count).map(|at| (at / PAGE) as u8 ^ (at / MIB) as u8).collect();
    write(&file, &bytes)?;
    cluster.sheen(&["sync", &cluster.mount.to_string_lossy()])?;
    let read_bytes = || -> Result<u64> {
        let text = value(&cluster, "llite.*.read_ahead_stats")?;
        let pages: u64 = sum_of(&text, "readahead_pages") + samples(&text, "misses");
        Ok(pages * PAGE as u64)
    };
    let page_count = byte_count / PAGE;
    let chunk = 64;
    let strided = (0..page_count).filter(|page| page % 256 < chunk).collect::<Vec<_>>();
    // A full-period generator: each page at most once.
    let at_random = (0..256).scan(1_usize, |page, _| {
        *page = (*page * 4_093 + 12_345) % page_count;
        Some(*page)
    });
    // The goal of strides is 1.2; behind nearly each chunk comes half of what the kernel asks for around a page, which is 1.23, and more
    // where the pages of the first pattern have taught its read-ahead.
    let patterns: [(&str, Vec<usize>, f64); 3] = [
        ("in order", (0..page_count).collect(), 1.05),
        ("a quarter of every MiB", strided, 1.35),
        ("at random", at_random.collect(), 4.0),
    ];
    for (name, pages, factor) in patterns {
        std::fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")?;
        set(&cluster, "llite.*.read_ahead_stats=clear")?;
        let open = fs::File::open(&file)?;
        for part in pages.chunks(chunk) {
            in_a_thread(|| {
                let mapping = Mapping::new(&open, MapKind::SharedRead, byte_count)?;
                part.iter().try_for_each(|page| {
                    let at = page * PAGE + page % PAGE;
                    expect_eq(mapping.read(at, 1), vec![bytes[at]], &format!("page {page} {name}"))
                })
            })?;
        }
        if pages.len() < page_count {
            let pushed = samples(&value(&cluster, "llite.*.read_ahead_stats")?, "pushed");
            expect(pushed as usize <= page_count / 16, &format!("{name}: {pushed} pages came unasked"))?;
        }
        let (read, touched) = (read_bytes()?, (pages.len() * PAGE) as u64);
        expect(
            read as f64 <= factor * touched as f64,
            &format!("{name}: {read} bytes were read for {touched}"),
        )?;
    }
    Ok(())
}

/// `lfs ladvise` asks each OST once for each 16 MiB of a file that has so many, and changes nothing; bad words do nothing.
fn advice(context: &Context) -> Result<()> {
    const MIB: usize = 1 << 20;
    let cluster = split_cluster(context)?;
    let file = cluster.mount.join("file");
    let path = file.to_string_lossy().into_owned();
    let bytes = context.random().bytes(40 * MIB);
    write(&file, &bytes)?;
    cluster.sheen(&["sync", &cluster.mount.to_string_lossy()])?;
    let counts = || -> Result<[u64; 2]> {
        let text = value(&cluster, "obdfilter.*.stats")?;
        Ok(["ladvise_willread", "ladvise_dontneed"].map(|row| samples(&text, row)))
    };
    let told = |words: &[&str]| cluster.sheen(&[&["lfs", "ladvise"], words, &[&path]].concat());
    told(&["-a", "dontneed"])?;
    expect_eq(counts()?, [0, 3], "the whole file")?;
    told(&["-a", "willread", "-s", "1M", "-l", "16M"])?;
    told(&["-a", "willread", "-s", "39M", "-e", "1G"])?;
    expect_eq(counts()?, [2, 3], "a part, and what is before the end")?;
    for words in [
        &["-a", "lockahead"][..],
        &["-a", "soon"],
        &["-a", "willread", "-s", "2", "-e", "1"],
        &["-a", "willread", "-l", "x"],
    ] {
        expect(told(words).is_err(), &format!("{words:?} is refused"))?;
    }
    expect_eq(counts()?, [2, 3], "what was refused reaches nobody")?;
    expect_bytes(&fs::read(&file)?, &bytes, "the file")
}

/// The sum in one row of a `stats` file.
fn sum_of(text: &str, row: &str) -> u64 {
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut found = words.filter(|words| words.first() == Some(&row));
    found.next().and_then(|words| words.get(6)?.parse().ok()).unwrap_or(0)
}

fn stripes(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    set(&cluster, "lod.*.stripecount=-1")?;
    set(&cluster, "lod.*.stripesize=131072")?;
    let file = cluster.mount.join("file");
    write(&file, b"")?;
    let path = file.to_string_lossy().into_owned();
    expect_eq(cluster.sheen(&["lfs", "getstripe", "-c", &path])?.trim(), "2", "stripes of a new file")?;
    expect_eq(cluster.sheen(&["lfs", "getstripe", "-S", &path])?.trim(), "131072", "their size")?;
    let mount = cluster.mount.to_string_lossy().into_owned();
    let default = |letter| cluster.sheen(&["lfs", "getstripe", "-d", letter, &mount]);
    expect_eq(default("-c")?.trim(), "-1", "stripes of new files in a directory that says nothing")?;
    expect_eq(default("-S")?.trim(), "131072", "their size")
}

/// Enough for the client to hear of it with one of them.
const EVICTED_ROUNDS: usize = 20;

fn evict(context: &Context) -> Result<()> {
    let mut cluster = split_cluster(context)?;
    write(&cluster.mount.join("file"), b"before")?;
    let uuid = value(&cluster, "llite.*.uuid")?;
    let exports = value(&cluster, "mdt.*MDT0000.exports.*.uuid")?;
    expect(exports.lines().any(|line| line == uuid), &format!("{uuid} in {exports}"))?;
    cluster.sheen(&["sync", &cluster.mount.to_string_lossy()])?;
    set(&cluster, &format!("mdt.*MDT0000.evict_client={uuid}"))?;
    expect_eq(number(&cluster, "mdt.*MDT0000.eviction_count")?, 1, "evictions")?;
    // Nothing was dirty: no call fails, neither the first nor a later one, and nothing is lost.
    for round in 0..EVICTED_ROUNDS {
        expect_bytes(&fs::read(cluster.mount.join("file"))?, b"before", "what was there before")?;
        let path = cluster.mount.join(format!("after{round}"));
        let mut file = fs::File::create(&path)?;
        file.write_all(b"after")?;
        file.sync_all()?;
        drop(file);
        expect_bytes(&fs::read(&path)?, b"after", "what was written afterwards")?;
    }
    expect_eq(names(&cluster.mount)?.len(), 1 + EVICTED_ROUNDS, "files")?;
    expect_eq(number(&cluster, "mdt.*MDT0000.eviction_count")?, 1, "evictions afterwards")?;
    let state = value(&cluster, "mdc.*MDT0000*.state")?;
    expect(state.contains("EVICTED"), &format!("the eviction in the history: {state}"))?;
    // The eviction was asked for.
    drop(cluster.new_complaints());
    cluster.down().map(drop)
}

/// Who had an advisory lock does not go on beside its next holder.
fn evict_holder(context: &Context) -> Result<()> {
    let mut cluster = split_cluster(context)?;
    let path = cluster.mount.join("file");
    write(&path, b"before")?;
    let open = || fs::File::options().read(true).write(true).open(&path);
    let (holder, other) = (open()?, open()?);
    sys::flock(&holder, libc::LOCK_EX)?;
    holder.write_all_at(b"B", 0)?;
    let uuid = value(&cluster, "llite.*.uuid")?;
    set(&cluster, &format!("mdt.*MDT0000.evict_client={uuid}"))?;
    let is_error =
        |result: std::io::Result<()>, errno| result.err().and_then(|e| e.raw_os_error()) == Some(errno);
    wait_until(LIMIT, "the holder hears of it", || {
        // What the MDT is asked tells the client.
        let _ = fs::metadata(cluster.mount.join("nothing"));
        Ok(is_error(holder.write_all_at(b"old", 0), libc::EIO))
    })?;
    expect(is_error(holder.sync_all(), libc::EIO), "fsync(2) says it once")?;
    holder.sync_all()?;
    // The lock is free, and who has never had it writes.
    sys::flock(&other, libc::LOCK_EX | libc::LOCK_NB)?;
    other.write_all_at(b"new", 0)?;
    expect(is_error(sys::flock(&holder, libc::LOCK_EX | libc::LOCK_NB), libc::EWOULDBLOCK), "it is taken")?;
    expect(is_error(holder.write_all_at(b"old", 0), libc::EIO), "a write without the lock")?;
    expect(is_error(holder.set_len(0), libc::EIO), "a truncate without the lock")?;
    expect_bytes(&read(&path)?, b"newore", "what the next holder has written")?;
    sys::flock(&other, libc::LOCK_UN)?;
    sys::flock(&holder, libc::LOCK_EX)?;
    holder.write_all_at(b"own", 0)?;
    expect_bytes(&read(&path)?, b"ownore", "what is written under the lock")?;
    drop((holder, other));
    // The eviction was asked for.
    drop(cluster.new_complaints());
    cluster.down().map(drop)
}

fn permanent(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let wanted = [
        ("osc.*.max_rpcs_in_flight", "7"),
        ("mdc.*.max_mod_rpcs_in_flight", "3"),
        ("mdt.*.recovery_time_soft", "25"),
        ("obdfilter.*.recovery_time_soft", "26"),
        ("lod.*.stripesize", "262144"),
        ("debug", "info,mds=warn"),
    ];
    for (name, text) in wanted {
        cluster.sheen(&["lctl", "set_param", "-P", &format!("{name}={text}")])?;
    }
    let holds = |when: &str| -> Result<()> {
        for (name, text) in wanted {
            let found = value(&cluster, name)?;
            // The management server has no file system, and so no permanent values.
            let is_right = |line: &str| line == text || (name == "debug" && line == "info");
            expect(found.lines().all(is_right), &format!("{name} {when}: {found}"))?;
            expect(found.lines().any(|line| line == text), &format!("{name} {when}: {found}"))?;
        }
        Ok(())
    };
    holds("at once")?;
    let second = cluster.mount_again("second")?;
    holds("with a mount that came later")?;
    cluster.unmount(&second)?;
    cluster.down()?;
    cluster.up()?;
    holds("after a restart")?;
    let live = value(&cluster, "mgs.MGS.live.*")?;
    expect(live.contains("osc.*.max_rpcs_in_flight=7"), &live)?;
    for (name, _) in wanted {
        cluster.sheen(&["lctl", "set_param", "-P", "-d", name])?;
    }
    cluster.down()?;
    cluster.up()?;
    for (name, text) in wanted {
        let found = value(&cluster, name)?;
        expect(found.lines().all(|line| line != text), &format!("{name} after it was taken out: {found}"))?;
    }
    let live = value(&cluster, "mgs.MGS.live.*")?;
    expect(!live.contains("params"), &live)
}
