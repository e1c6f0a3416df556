//! What others see of a cluster: collectors of metrics, tools made for Lustre, `sheen status`; and what cannot be set.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::iter::Peekable;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::split_cluster;
use crate::case::{Bed, Case, Context, Suite, expect, expect_eq, read, wait_until, write};
use crate::cluster::Cluster;
use crate::sys;

/// The suite.
pub static SUITE: Suite = Suite { name: "seen", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "a_collector_for_lustre_understands_us", seconds: 120, run: oracle },
    Case { name: "collectors_do_not_disturb_a_recovery", seconds: 240, run: recovery },
    Case { name: "one_listener_serves_all_processes", seconds: 120, run: listener },
    Case { name: "status_is_watched_and_says_what_to_do", seconds: 120, run: status },
    Case { name: "a_server_that_stands_still_is_seen", seconds: 120, run: still },
    Case { name: "what_cannot_be_set_changes_nothing", seconds: 120, run: refused },
];

const LIMIT: Duration = Duration::from_secs(60);
/// Well above what a command takes that waits for a process which does not answer.
const STATUS_LIMIT: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;

/// `lustre-oracle VERB`, which is built beside this program, with this on its standard input.
fn ask_oracle(verb: &str, input: &str) -> Result<String> {
    let program = std::env::current_exe()?.with_file_name("lustre-oracle");
    let mut command = Command::new(&program);
    let mut oracle =
        command.arg(verb).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().with_context(|| {
            format!("{}: build it first, cargo build -p lustre-oracle", program.display())
        })?;
    oracle.stdin.take().context("its input")?.write_all(input.as_bytes())?;
    let said = oracle.wait_with_output()?;
    ensure!(said.status.success(), "lustre-oracle {verb} does not understand:\n{input}");
    Ok(String::from_utf8(said.stdout)?)
}

fn records(verb: &str, input: &str) -> Result<Vec<Value>> {
    let text = ask_oracle(verb, input)?;
    Ok(serde_json::from_str::<Vec<Value>>(&text)?)
}

/// The values of records of this kind, by target.
fn of_kind<'a>(records: &'a [Value], kind: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    records.iter().filter_map(move |record| {
        let record = &record["Target"][kind];
        Some((record["target"].as_str()?, record.get("value").or(record.get("stats"))?))
    })
}

/// Of one row of statistics.
fn samples(stats: &Value, name: &str) -> (u64, u64) {
    let row = stats.as_array().and_then(|rows| rows.iter().find(|row| row["name"] == name));
    let number = |field: &str| row.and_then(|row| row[field].as_u64()).unwrap_or_default();
    (number("samples"), number("sum"))
}

/// What was done is what a collector that others have written for Lustre reads.
fn oracle(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    for number in 0..5 {
        write(&cluster.mount.join(format!("file{number}")), b"")?;
    }
    let bytes = vec![7; 3 * MIB];
    write(&cluster.mount.join("large"), &bytes)?;
    cluster.sheen(&["sync", &cluster.mount.to_string_lossy()])?;
    let asked = ask_oracle("params", "")?;
    let mut asked = asked.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut get = |more: &[&str]| -> Result<String> {
        let params = asked.next().context("three lists of parameters")?;
        let said = cluster.try_sheen(&[&["lctl", "get_param"], more, &params].concat(), LIMIT)?;
        Ok(said.output)
    };
    let text = get(&[])?;
    let records_of_all = records("parse", &text)?;
    let all = &records_of_all;

    let names = |kind: &'static str| of_kind(all, kind).map(|(name, _)| name).collect::<Vec<_>>();
    let (mdts, osts) = (["suite-MDT0000", "suite-MDT0001"], ["suite-OST0000", "suite-OST0001"]);
    let mut targets = vec!["MGS"];
    targets.extend(mdts.iter().chain(&osts));
    for kind in ["FilesFree", "FilesTotal", "FsType", "KBytesAvail", "KBytesFree", "KBytesTotal"] {
        expect_eq(names(kind), targets.clone(), kind)?;
    }
    for kind in ["LockCount", "LockTimeouts", "ResourceCount"] {
        expect_eq(names(kind), [osts, mdts].concat(), kind)?;
    }
    for kind in ["BrwStats", "TotGranted"] {
        expect_eq(names(kind), osts.to_vec(), kind)?;
    }
    expect_eq(names("NumExports").len(), 5, "exports of each target")?;
    let healthy = all.iter().find_map(|record| record["Host"]["HealthCheck"]["value"]["healthy"].as_bool());
    expect_eq(healthy, Some(true), "the health of the machine")?;
    // The other MDT has a session too, and is no client.
    let clients: Vec<u64> =
        of_kind(all, "ConnectedClients").filter_map(|(_, count)| count.as_u64()).collect();
    expect_eq(clients.iter().max(), Some(&1), "mounts with a session")?;

    let stats = |name: &str, row: &str| {
        of_kind(all, "Stats")
            .filter(|(target, _)| target.contains(name))
            .map(|(_, stats)| samples(stats, row))
            .fold((0, 0), |(count, sum), (more, bytes)| (count + more, sum + bytes))
    };
    expect_eq(stats("OST", "write_bytes").1, bytes.len() as u64, "bytes that OSTs have written")?;
    expect(stats("MDT", "open").0 >= 6, &format!("opens in {text}"))?;
    let mounts: Vec<_> = of_kind(all, "Llite").collect();
    let [(_, calls)] = mounts[..] else { anyhow::bail!("mounts: {mounts:?}") };
    expect_eq(samples(calls, "write_bytes").1, bytes.len() as u64, "bytes that were written")?;
    expect_eq(samples(calls, "create").0, 6, "files that were made")?;
    let sizes =
        of_kind(all, "BrwStats").flat_map(|(_, tables)| tables.as_array().cloned().unwrap_or_default());
    let written: u64 = sizes
        .filter(|table| table["name"] == "disk_iosize")
        .flat_map(|table| table["buckets"].as_array().cloned().unwrap_or_default())
        .map(|bucket| bucket["name"].as_u64().unwrap_or(0) * bucket["write"].as_u64().unwrap_or(0))
        .sum();
    expect(written >= bytes.len() as u64, &format!("{written} bytes in the sizes of writes: {text}"))?;

    let recoveries = records("recovery", &get(&[])?)?;
    let inactive = of_kind(&recoveries, "RecoveryStatus").filter(|(_, value)| *value == "Inactive").count();
    expect_eq(inactive, 4, "targets that have nothing to recover")?;
    let filesystems = records("filesystems", &get(&["-N"])?)?;
    expect_eq(
        of_kind(&filesystems, "FsNames").next().map(|(_, names)| names.to_string()),
        Some("[\"suite\"]".into()),
        "file systems",
    )?;
    requests(&cluster, bytes.len())
}

/// What the collector does not know: `rpc_stats` and `read_ahead_stats`, as Lustre has them.
fn requests(cluster: &Cluster, written_bytes: usize) -> Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")?;
    expect_eq(read(&cluster.mount.join("large"))?.len(), written_bytes, "the file")?;
    let text = cluster.sheen(&["lctl", "get_param", "-n", "osc.*.rpc_stats"])?;
    let titles = RPC_TITLES;
    let mut lines = text.lines().peekable();
    for _ in 0..2 {
        check_rpc_stats(&mut lines).with_context(|| format!("in {text}"))?;
    }
    expect_eq(lines.next(), None, "what follows")?;
    for counter in [
        "snapshot_time",
        "start_time",
        "elapsed_time",
        "read RPCs in flight:",
        "write RPCs in flight:",
        "pending write pages:",
        "pending read pages:",
    ] {
        expect_eq(text.lines().filter(|line| line.starts_with(counter)).count(), 2, counter)?;
    }
    let mut tables: Vec<(String, u64, u64)> = Vec::new();
    for line in text.lines() {
        if let Some(title) = titles.iter().find(|title| line.starts_with(**title)) {
            let columns: Vec<&str> = line[title.len()..].split_whitespace().collect();
            expect_eq(columns.join(" ").as_str(), "rpcs % cum % | rpcs % cum %", title)?;
            tables.push((title.to_string(), 0, 0));
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ([bucket, reads, _, _, "|", writes, ..], Some((_, read, write))) =
            (&words[..], tables.last_mut())
            && bucket.ends_with(':')
        {
            *read += reads.parse::<u64>()?;
            *write += writes.parse::<u64>()?;
        }
    }
    expect_eq(
        tables.iter().map(|(title, ..)| title.as_str()).collect::<Vec<_>>(),
        [titles, titles].concat(),
        "tables of both OSTs",
    )?;
    for tables in tables.chunks(4) {
        let counts: Vec<(u64, u64)> = tables.iter().map(|(_, read, write)| (*read, *write)).collect();
        expect(
            counts.iter().all(|count| *count == counts[0]),
            &format!("each request is in each table: {counts:?} of {text}"),
        )?;
    }
    let (reads, writes) =
        tables.iter().fold((0, 0), |(reads, writes), (_, read, write)| (reads + read, writes + write));
    expect(reads > 0 && writes > 0, &format!("requests of both kinds: {text}"))?;
    let ahead = cluster.sheen(&["lctl", "get_param", "-n", "llite.*.read_ahead_stats"])?;
    let row = |name: &str| {
        ahead
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .map(|line| line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>())
    };
    let hits = row("hits").with_context(|| format!("hits in {ahead}"))?;
    expect_eq(hits[1..].join(" ").as_str(), "samples [pages]", "hits have no figures")?;
    let windows = row("readahead_pages").with_context(|| format!("readahead_pages in {ahead}"))?;
    expect_eq(windows.len(), 6, &format!("count, unit, least, greatest, sum: {windows:?}"))?;
    check_read_ahead_stats(&ahead)
}

const RPC_TITLES: [&str; 4] = ["pages per rpc", "rpcs in flight", "offset", "RPC latency (us)"];

/// One of `osc.*.rpc_stats`, line by line: times, what is on its way, and a table for each title behind an empty line and a heading of its two
/// halves. Buckets rise, what adds up does not fall, and ends at 100 where there is anything.
fn check_rpc_stats<'a>(lines: &mut Peekable<impl Iterator<Item = &'a str>>) -> Result<()> {
    check_times(lines)?;
    for counter in
        ["read RPCs in flight:", "write RPCs in flight:", "pending write pages:", "pending read pages:"]
    {
        let line = lines.next().unwrap_or_default();
        let count = line.strip_prefix(counter).and_then(|count| count.trim().parse::<u64>().ok());
        expect(count.is_some(), &format!("{counter} a number: {line:?}"))?;
    }
    for title in RPC_TITLES {
        expect_eq(lines.next(), Some(""), title)?;
        let halves: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
        expect_eq(halves, ["read", "write"], title)?;
        let heading = lines.next().unwrap_or_default();
        expect(heading.starts_with(title), heading)?;
        let (mut last_bucket, mut sums) = (None, [0, 0]);
        while let Some(line) = lines.next_if(|line| line.contains(":\t\t")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [bucket, reads, read, read_sum, "|", writes, write, write_sum] = words[..] else {
                anyhow::bail!("a row of {title}: {line:?}")
            };
            let bucket = bucket_of(bucket.trim_end_matches(':')).with_context(|| line.to_owned())?;
            expect(last_bucket < Some(bucket), &format!("{title}: buckets rise: {line:?}"))?;
            last_bucket = Some(bucket);
            for count in [reads, writes, read, write] {
                count.parse::<u64>().with_context(|| line.to_owned())?;
            }
            let next = [read_sum.parse::<u64>()?, write_sum.parse::<u64>()?];
            expect(sums[0] <= next[0] && sums[1] <= next[1], &format!("{title} adds up: {line:?}"))?;
            sums = next;
        }
        expect(sums.iter().all(|sum| [0, 100].contains(sum)), &format!("{title} ends at 100: {sums:?}"))?;
    }
    Ok(())
}

/// `512`, `4K`, `1M`
fn bucket_of(word: &str) -> Option<u64> {
    let (digits, shift) = match word.as_bytes().last()? {
        b'K' => (&word[..word.len() - 1], 10),
        b'M' => (&word[..word.len() - 1], 20),
        _ => (word, 0),
    };
    Some(digits.parse::<u64>().ok()? << shift)
}

/// Three times, as all statistics begin.
fn check_times<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Result<()> {
    for name in ["snapshot_time", "start_time", "elapsed_time"] {
        let line = lines.next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let [found, time, "secs.nsecs"] = words[..] else { anyhow::bail!("a time: {line:?}") };
        expect_eq(found, name, line)?;
        let is_time = time
            .split_once('.')
            .is_some_and(|(seconds, nanos)| seconds.parse::<u64>().is_ok() && nanos.len() == 9);
        expect(is_time, line)?;
    }
    Ok(())
}

/// Rows of Lustre's `read_ahead_stats`, in its order (a row that counts nothing is left out), and behind them one of our own. Those that cannot
/// come about here never show: see the dictionary.
const READ_AHEAD_ROWS: [&str; 19] = [
    "hits",
    "misses",
    "readpage_not_consecutive",
    "miss_inside_window",
    "failed_grab_cache_page",
    "failed_lock_match",
    "read_but_discarded",
    "zero_length_file",
    "zero_size_window",
    "readahead_to_eof",
    "hit_max_readahead_issue",
    "wrong_page_from_grab_cache_page",
    "failed_to_reach_end",
    "async_readahead",
    "failed_to_fast_read",
    "mmap_range_read",
    "readahead_pages",
    "forceread_pages",
    "pushed",
];

fn check_read_ahead_stats(text: &str) -> Result<()> {
    let mut lines = text.lines();
    check_times(&mut lines)?;
    let mut last_row = None;
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, _, "samples", "[pages]", figures @ ..] = &words[..] else {
            anyhow::bail!("a row: {line:?}")
        };
        let row = READ_AHEAD_ROWS.iter().position(|row| row == name);
        expect(row.is_some() && last_row < row, &format!("a row in its place: {line:?} of {text}"))?;
        last_row = row;
        // Least, greatest, sum.
        let figure_count = if name.ends_with("_pages") { 3 } else { 0 };
        expect_eq(figures.len(), figure_count, line)?;
        for number in figures.iter().chain([&words[1]]) {
            number.parse::<u64>().with_context(|| line.to_owned())?;
        }
    }
    expect(last_row.is_some(), text)
}

/// `sheen metrics --listen`, and where it listens.
struct Listener {
    process: Child,
    address: String,
}

impl Listener {
    fn start(cluster: &Cluster) -> Result<Listener> {
        let mut command = cluster.command();
        let mut process =
            command.args(["metrics", "--listen", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(process.stderr.take().context("its words")?).read_line(&mut line)?;
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).map(str::to_owned);
        let address = address.with_context(|| format!("where it listens: {line:?}"));
        Ok(Listener { address: address.inspect_err(|_| drop(process.kill()))?, process })
    }

    fn scrape(&self) -> Result<String> {
        scrape(&self.address)
    }
}

/// What a collector gets there.
fn scrape(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, text) = answer.split_once("\r\n\r\n").context("a head")?;
    expect(head.starts_with("HTTP/1.1 200 "), head)?;
    expect(text.ends_with("# EOF\n"), "it is whole")?;
    check_exposition(text)?;
    Ok(text.to_owned())
}

/// As OpenMetrics has it: each family is announced once and before its series, each series is there once, and has a number.
fn check_exposition(text: &str) -> Result<()> {
    let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("# ") {
            let mut words = words.split(' ');
            match (words.next(), words.next()) {
                (Some("TYPE"), Some(name)) => {
                    expect(families.insert(name), &format!("announced once: {line}"))?
                }
                (Some("HELP" | "UNIT"), Some(_)) | (Some("EOF"), None) => {}
                _ => anyhow::bail!("no line of a collector's text: {line}"),
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').with_context(|| format!("a series and a value: {line}"))?;
        expect(value.parse::<f64>().is_ok(), &format!("a number: {line}"))?;
        expect(series.insert(name), &format!("each series is there once: {line}"))?;
        let family = name.split('{').next().unwrap_or(name);
        let is_announced = families.contains(family)
            || family.strip_suffix("_total").is_some_and(|name| families.contains(name));
        expect(is_announced, &format!("of a family that was announced: {line}"))?;
    }
    expect(!series.is_empty(), "there are series")
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The sum of what lines say that begin so.
fn sum_of(text: &str, start: &str) -> f64 {
    let values = text.lines().filter(|line| line.starts_with(start)).filter_map(|line| line.rsplit_once(' '));
    values.filter_map(|(_, value)| value.parse::<f64>().ok()).sum()
}

/// Where one process serves metrics, those of all are there; a mount serves none by itself, and a port that is taken is refused at once.
/// Who uses a mount, and how much, makes no series.
fn listener(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let source = cluster.source()?;
    let point = cluster.point("serving")?;
    let path = point.to_string_lossy().into_owned();
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let transport = format!("transport={}", cluster.transport());
    let mount = ["mount", &source, &path, "-o", &transport, "--metrics", &address];
    cluster.sheen(&mount)?;
    let scrape = || scrape(&address);
    let text = scrape()?;
    for labels in [format!("mount=\"{path}\""), format!("mount=\"{}\"", cluster.mount.display())] {
        expect(text.contains(&labels), &format!("{labels} in {text}"))?;
    }
    for target in ["suite-MDT0000", "suite-MDT0001", "suite-OST0000", "suite-OST0001"] {
        let state = format!("sheen_target_state{{target=\"{target}\",state=\"active\"}} 1.0");
        expect(text.lines().any(|line| line == state), &format!("{state} in {text}"))?;
    }
    let other = cluster.point("other")?;
    let taken = ["mount", &source, &other.to_string_lossy(), "-o", &transport, "--metrics", &address];
    let said = cluster.try_sheen(&taken, LIMIT)?;
    expect(!said.is_success() && said.errors.contains("is in use"), &said.all())?;
    expect(crate::sweep::mounts_under(&other).is_empty(), "nothing is mounted")?;

    let use_it = |who: &str| -> Result<()> {
        for number in 0..20 {
            let file = point.join(format!("{who}{number}"));
            write(&file, b"x")?;
            read(&file)?;
        }
        Ok(())
    };
    let series = || -> Result<BTreeSet<String>> {
        let text = scrape()?;
        let named =
            text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
        Ok(named.map(|(name, _)| name.to_owned()).collect())
    };
    use_it("first")?;
    cluster.sheen(&["sync", &path])?;
    let before = series()?;
    use_it("second")?;
    sys::as_user(1234, 1234, &[], || std::fs::read_dir(&point).map(drop))??;
    cluster.sheen(&["sync", &path])?;
    let more: Vec<_> =
        series()?.difference(&before).filter(|name| !is_of_fixed_list(name)).cloned().collect();
    expect(more.is_empty(), &format!("series that have come with files and users: {more:?}"))?;
    cluster.unmount(&point)?;
    wait_until(
        LIMIT,
        "nobody listens when that mount is gone",
        || Ok(TcpStream::connect(&address).is_err()),
    )?;
    cluster.down().map(drop)
}

/// A call or a request that was not made before, or something else from a list that is fixed.
fn is_of_fixed_list(name: &str) -> bool {
    let labels = ["call=", "request=", "operation=", "awaited=", "outcome=", "direction="];
    labels.iter().any(|label| name.contains(label))
}

/// A restarted MDT waits for a mount that stands still. A collector comes all the time meanwhile; the mount comes back, and is no worse off.
fn recovery(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let second = cluster.mount_again("second")?;
    write(&cluster.mount.join("first"), b"before")?;
    write(&second.join("second"), b"before")?;
    for mount in [&cluster.mount, &second] {
        cluster.sheen(&["sync", &mount.to_string_lossy()])?;
    }
    let mounts = cluster.mounts()?;
    let pid_of = |path: &Path| mounts.iter().find(|(known, _)| Path::new(known) == path).map(|(_, pid)| *pid);
    let still = pid_of(&second).context("the second mount")?;
    let targets = cluster.targets()?;
    let mdt = targets.iter().find(|(name, _)| name == "MDT0000").context("MDT0000 runs")?.1;
    let arguments = serve_arguments(&cluster, "mdt0000")?;
    let listener = Listener::start(&cluster)?;
    expect_eq(
        sum_of(&listener.scrape()?, "sheen_target_state{target=\"suite-MDT0000\",state=\"active\"}"),
        1.0,
        "an MDT at work",
    )?;

    sys::kill(still, libc::SIGSTOP)?;
    sys::kill(mdt, libc::SIGKILL)?;
    let mut command = cluster.command();
    command.args(&arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = command.spawn()?;
    let (is_over, scrape_count) = (AtomicBool::new(false), AtomicU64::new(0));
    let seen = std::thread::scope(|scope| -> Result<()> {
        // A lock of the mount that stands still is called back about now: the size of `first` is reported to the MDT when its data are
        // durable, and that mount has listed the directory.
        // One, beside this: each scrape waits for whoever stands still, one after the other, and that is not to be for as long as a
        // lock may be kept that was called back.
        let collector = scope.spawn(|| -> Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                listener.scrape()?;
                scrape_count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let looked = look_at_recovery(&cluster, &listener, &scrape_count);
        // In any case, or nothing here ends.
        sys::kill(still, libc::SIGCONT)?;
        let ended = wait_until(LIMIT, "the MDT has recovered, and nobody stands still", || {
            let text = listener.scrape()?;
            let active = sum_of(&text, "sheen_target_state{target=\"suite-MDT0000\",state=\"active\"}");
            Ok(active == 1.0 && sum_of(&text, "sheen_processes{state=\"silent\"}") == 0.0)
        });
        is_over.store(true, Ordering::Relaxed);
        collector.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a collector has panicked")))?;
        looked.and(ended)
    });
    let after = seen.and_then(|()| listener.scrape());
    let checked = after.and_then(|text| {
        for zero in [
            "sheen_target_evictions_total{target=\"suite-MDT0000\"}",
            "sheen_target_damaged_total{target=\"suite-MDT0000\"}",
            "sheen_mount_evictions_total",
            "sheen_target_recovery_clients{target=\"suite-MDT0000\",state=\"missing\"}",
            "sheen_target_recovery_left_seconds{target=\"suite-MDT0000\"}",
        ] {
            expect(text.lines().any(|line| line.starts_with(zero)), zero)?;
            expect_eq(sum_of(&text, zero), 0.0, zero)?;
        }
        let text =
            cluster.sheen(&["lctl", "get_param", "mdt.*.recovery_status", "obdfilter.*.recovery_status"])?;
        let recoveries = records("recovery", &text)?;
        let of = |kind| of_kind(&recoveries, kind).find(|(target, _)| *target == "suite-MDT0000");
        let status = of("RecoveryStatus").map(|(_, status)| status.to_string());
        expect_eq(status.as_deref(), Some("\"Complete\""), &text)?;
        let count = |kind| of(kind).and_then(|(_, count)| count.as_u64());
        // Two mounts, and the other MDT.
        expect_eq(
            (count("RecoveryCompletedClients"), count("RecoveryEvictedClients")),
            (Some(3), Some(0)),
            &text,
        )?;
        expect_eq(read(&second.join("first"))?, b"before".to_vec(), "what the other mount wrote")?;
        write(&second.join("second"), b"after")?;
        expect_eq(
            read(&cluster.mount.join("second"))?,
            b"after".to_vec(),
            "what the mount wrote that stood still",
        )
    });
    // Its cluster does not know it: `down` finds it by its socket all the same, and waits for its end.
    let down = cluster.down();
    let _ = server.kill();
    let _ = server.wait();
    checked.and(down.map(drop))
}

/// While one mount is missing and stands still.
fn look_at_recovery(cluster: &Cluster, listener: &Listener, scrape_count: &AtomicU64) -> Result<()> {
    wait_until(LIMIT, "the MDT recovers, and misses one", || {
        let text = listener.scrape()?;
        let recovering = sum_of(&text, "sheen_target_state{target=\"suite-MDT0000\",state=\"recovering\"}");
        let missing =
            sum_of(&text, "sheen_target_recovery_clients{target=\"suite-MDT0000\",state=\"missing\"}");
        Ok(recovering == 1.0 && missing == 1.0 && sum_of(&text, "sheen_processes{state=\"silent\"}") == 1.0)
    })?;
    let before = scrape_count.load(Ordering::Relaxed);
    let said = cluster.try_sheen(&["status", "--dir", &cluster.data.to_string_lossy()], STATUS_LIMIT)?;
    let line = said.output.lines().find(|line| line.contains("suite-MDT0000 recovers"));
    let line = line.with_context(|| format!("the recovery in: {}", said.all()))?;
    expect(line.contains("@") && line.ends_with("sheen lctl abort_recovery suite-MDT0000"), line)?;
    expect(said.output.contains("does not answer"), &said.output)?;
    wait_until(LIMIT, "collectors go on", || Ok(scrape_count.load(Ordering::Relaxed) > before + 2))
}

/// How `up` has started a server, to start it once more without asking anybody.
fn serve_arguments(cluster: &Cluster, target: &str) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(cluster.data.join("cluster.json"))?;
    let file: Value = serde_json::from_str(&text)?;
    let servers = file["servers"].as_array().context("servers")?;
    let address = |name: &str| {
        let server = servers.iter().find(|server| server["name"] == name);
        server.and_then(|server| server["address"].as_str()).map(str::to_owned).context("an address")
    };
    let path = |name: &str| cluster.data.join(name).to_string_lossy().into_owned();
    let mgs = format!("{}@tcp", address("mgs")?);
    let words = [
        "serve",
        &path(target),
        "--listen",
        &address(target)?,
        "--cluster-dir",
        &path(""),
        "--mgsnode",
        &mgs,
        "--log",
        &path("log/again.log"),
    ];
    Ok(words.iter().map(|word| word.trim_end_matches('/').to_owned()).collect())
}

/// The alerts of a report.
fn alerts(report: &Value) -> Vec<(String, String)> {
    let alerts = report["alerts"].as_array().cloned().unwrap_or_default();
    let text = |alert: &Value, name: &str| alert[name].as_str().unwrap_or_default().to_owned();
    alerts.iter().map(|alert| (text(alert, "text"), text(alert, "fix"))).collect()
}

/// A management server that is killed is missed by all, and `up` is named, which brings it back.
fn status(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let report = cluster.status()?;
    let low = alerts(&report).iter().filter(|(text, _)| text.contains(" local file system left")).count();
    expect_eq(alerts(&report).len(), low, &format!("alerts of a new cluster: {report}"))?;
    for target in report["targets"].as_array().context("targets")? {
        let space = &target["space"];
        expect(
            space["bytes_total"].as_u64() > Some(0) && space["inodes_free"].is_u64(),
            &format!("{target}"),
        )?;
        expect(target["client_count"].is_u64(), &format!("clients of {target}"))?;
    }

    let targets = cluster.targets()?;
    let mgs = targets.iter().find(|(name, _)| name == "MGS").context("the MGS runs")?.1;
    sys::kill(mgs, libc::SIGKILL)?;
    let up = format!("sheen up --dir {}", cluster.data.display());
    wait_until(LIMIT, "everybody misses the management server", || {
        let alerts = alerts(&cluster.status()?);
        let has = |words: &str| alerts.iter().any(|(text, fix)| text.starts_with(words) && fix.contains(&up));
        Ok(has("MGS is down")
            && has("the management server at ")
            && alerts.iter().any(|(text, _)| text.contains("and 1 more")))
    })?;

    let mut command = cluster.command();
    command.args(["status", "--watch", "1", "--json", "--dir"]).arg(&cluster.data).stdout(Stdio::piped());
    let mut watching = command.spawn()?;
    let mut lines = BufReader::new(watching.stdout.take().context("its words")?).lines();
    let mut next = || -> Result<usize> {
        let line = lines.next().context("it goes on")??;
        Ok(alerts(&serde_json::from_str(&line)?).len() - low)
    };
    let watched = next().and_then(|first| {
        expect(first >= 2, "both alerts")?;
        cluster.up()?;
        // One look after the other, until the last server has its session back.
        for _ in 0..LIMIT.as_secs() {
            if next()? == 0 {
                return Ok(());
            }
        }
        anyhow::bail!("there are alerts still: {}", cluster.status()?)
    });
    let _ = watching.kill();
    let _ = watching.wait();
    watched
}

/// Nobody names a directory: what a stopped process serves is known from what it has written down.
fn still(context: &Context) -> Result<()> {
    const NAME: &str = "suite-OST0001";
    let cluster = split_cluster(context)?;
    let targets = cluster.targets()?;
    let pid = targets.iter().find(|(name, _)| name == "OST0001").context("OST0001 runs")?.1;
    sys::kill(pid, libc::SIGSTOP)?;
    let status = cluster.try_sheen(&["status", "--json"], STATUS_LIMIT);
    let metrics = cluster.try_sheen(&["metrics"], STATUS_LIMIT);
    // In any case, or nothing here ends.
    sys::kill(pid, libc::SIGCONT)?;
    let report: Value = serde_json::from_str(&status?.output)?;
    let state = |name: &str| {
        let found =
            report["targets"].as_array().into_iter().flatten().filter(|target| target["name"] == name);
        found.map(|target| (target["state"].to_string(), target["pid"].as_i64())).collect::<Vec<_>>()
    };
    expect_eq(
        state("OST0001"),
        vec![("\"silent\"".to_owned(), Some(pid.into()))],
        "the one that stands still",
    )?;
    expect_eq(state("OST0000").len(), 1, "another one")?;
    let text = metrics?.output;
    for (state, value) in [("silent", 1.0), ("active", 0.0), ("down", 0.0)] {
        let line = format!("sheen_target_state{{target=\"{NAME}\",state=\"{state}\"}} {value:.1}");
        expect(text.lines().any(|found| found == line), &format!("{line} in {text}"))?;
    }
    wait_until(LIMIT, "it is active again", || {
        let text = cluster.sheen(&["metrics"])?;
        let line = format!("sheen_target_state{{target=\"{NAME}\",state=\"active\"}} 1.0");
        Ok(text.lines().any(|found| found == line))
    })?;
    cluster.down().map(drop)
}

/// Out of range, read-only, unknown, half of several: one line that says what is possible, and nothing is set.
fn refused(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let all = || -> Result<Vec<String>> {
        let text = cluster.sheen(&[
            "lctl",
            "get_param",
            "{osc,mdc}.*.max*",
            "llite.*.{max_read,statahead_max,statahead_xattr,xattr,lazy,access}*",
            "mdt.*.{recovery_time,enable}*",
            "lod.*.stripe*",
            "ldlm.namespaces.*.lru*",
            "at_*",
            "debug",
        ])?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let before = all()?;
    expect(before.len() > 20, &format!("parameters: {before:?}"))?;
    for (setting, words) in [
        ("osc.*.max_rpcs_in_flight=0", "it takes a number from 1 to 512"),
        ("osc.*.max_rpcs_in_flight=513", "it takes a number from 1 to 512"),
        ("osc.*.max_rpcs_in_flight=-1", "it takes a number from 1 to 512"),
        ("osc.*.max_rpcs_in_flight=99999999999999999999", "it takes a number from 1 to 512"),
        ("osc.*.max_dirty_mb=2001", "it takes a number from 0 to 2000"),
        ("llite.*.statahead_max=4097", "it takes a number from 0 to 4096"),
        ("llite.*.xattr_cache=2", "it takes 0 or 1"),
        ("llite.*.lazystatfs=yes", "it takes 0 or 1"),
        ("llite.*.access_times=noatime", "a remount changes it"),
        ("llite.*.access_times=1", "a remount changes it"),
        ("lod.*.stripesize=65535", "a multiple of 65536"),
        ("lod.*.stripecount=0", "-1 for all OSTs, or a number from 1 to 2000"),
        ("mdt.*.recovery_time_soft=0", "it takes a number from 1 to 3600"),
        ("ldlm.namespaces.*.lru_size=32769", "a number up to 32768"),
        ("debug=info,mds=loud", "debug"),
        ("osc.*.state=FULL", "can only be read"),
        ("llite.*.uuid=mine", "can only be read"),
        ("obdfilter.*.kbytesfree=1", "can only be read"),
        ("version=2", "can only be read"),
        ("llite.*.statahead_min=1", "a listing brings"),
        ("osc.*.max_rpc_in_flight=8", "max_rpcs_in_flight"),
        ("osc.*.max_rpcs_in_flight", "write PATH=VALUE"),
    ] {
        for permanent in [&[][..], &["-P"]] {
            let said = cluster.try_sheen(&[&["lctl", "set_param"], permanent, &[setting]].concat(), LIMIT)?;
            let line = said.errors.trim_end();
            expect(
                !said.is_success() && said.output.is_empty(),
                &format!("{setting} is refused: {}", said.all()),
            )?;
            expect(line.lines().count() == 1 && line.contains(words), &format!("{setting}: {line}"))?;
        }
    }
    // Two that do not fit each other.
    for (setting, words) in [("at_min=700", "at_max 600"), ("at_min=600 at_max=599", "at_min would be 600")] {
        let settings: Vec<&str> = setting.split(' ').collect();
        let said = cluster.try_sheen(&[&["lctl", "set_param"], &settings[..]].concat(), LIMIT)?;
        expect(!said.is_success() && said.errors.contains(words), &format!("{setting}: {}", said.all()))?;
    }
    expect_eq(all()?, before.clone(), "after bounds that do not fit")?;
    // Nothing of several is set when one is impossible.
    let said = cluster
        .try_sheen(&["lctl", "set_param", "osc.*.max_rpcs_in_flight=3", "llite.*.uuid=mine"], LIMIT)?;
    expect(!said.is_success(), &said.all())?;
    let after = all()?;
    let changed: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
    expect(
        changed.is_empty() && before.len() == after.len(),
        &format!("what was set all the same: {changed:?}"),
    )?;
    let live = cluster.sheen(&["lctl", "get_param", "mgs.MGS.live.*"])?;
    expect(!live.contains("params:"), &format!("what is permanent: {live}"))
}
