//! Lustre's text formats, which other people's parsers read.

use base::{ClusterConfig, Duration, Histogram, Now, TargetKind, Time, WallTime};
use client::TargetStatus;
use client::stats::{Counter, TargetStats};
use oss::OssStats;
use rpc::{SessionStatus, TimeoutReport};
use std::fmt::Write;
use store::MetaStore;
use store_disk::DiskUse;
use target::{Core, RecoveryReport};

/// Figures of one line of a `stats` file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    pub count: u64,
    pub min: u64,
    pub max: u64,
    pub sum: u64,
    pub sum_of_squares: u128,
}

impl From<Counter> for Stat {
    fn from(counter: Counter) -> Stat {
        Stat {
            count: counter.count,
            min: counter.min,
            max: counter.max,
            sum: counter.sum,
            sum_of_squares: u128::from(counter.sum_squares),
        }
    }
}

/// The three lines at the head of every file with counters: now, since when it counts, and how long that is.
fn times(since: WallTime) -> String {
    let now = net::clock::now().wall;
    let elapsed = WallTime(now.0.saturating_sub(since.0).max(0));
    let lines = [("snapshot_time", now), ("start_time", since), ("elapsed_time", elapsed)];
    let line = |(name, at): (&str, WallTime)| {
        format!("{name:<25} {}.{:09} secs.nsecs\n", at.seconds(), at.nanoseconds())
    };
    lines.into_iter().map(line).collect()
}

/// `name N samples [unit] min max sum sumsq`; what never happened is left out, counts have no figures.
pub fn stats(since: WallTime, rows: &[(&str, &str, Stat)]) -> String {
    let mut out = times(since);
    for (name, unit, stat) in rows.iter().filter(|(_, _, stat)| stat.count > 0) {
        let _ = write!(out, "{name:<25} {} samples [{unit}]", stat.count);
        // What is counted in pages has figures only where there are some, and no squares, as in Lustre.
        let (has_figures, has_squares) =
            (*unit != "reqs" && (*unit != "pages" || stat.max > 0), *unit != "pages");
        if has_figures {
            let _ = write!(out, " {} {} {}", stat.min, stat.max, stat.sum);
        }
        if has_figures && has_squares {
            // Others read 64 bits, and stop at a number with more.
            let sum_of_squares = u64::try_from(stat.sum_of_squares).unwrap_or(u64::MAX);
            let _ = write!(out, " {sum_of_squares}");
        }
        out.push('\n');
    }
    out
}

/// `osc.*.rpc_stats`: reads and writes side by side. A read is sent at once, so that none is ever pending.
pub fn rpc_stats(counts: &TargetStats, dirty_bytes: u64) -> String {
    let mut out = times(counts.rpcs_since);
    let _ = writeln!(out, "read RPCs in flight:  {}", counts.read_rpcs_now);
    let _ = writeln!(out, "write RPCs in flight: {}", counts.write_rpcs_now);
    let _ = writeln!(out, "pending write pages:  {}", dirty_bytes.div_ceil(4096));
    let _ = writeln!(out, "pending read pages:   0");
    let buckets = |histogram: &Histogram| histogram.buckets.clone();
    let pages = (buckets(&counts.read_pages_per_rpc), buckets(&counts.write_pages_per_rpc));
    table(&mut out, &Head::of_rpcs("pages per rpc", bucket_name), &pages.0, &pages.1);
    let flights = (buckets(&counts.read_rpcs_in_flight), buckets(&counts.write_rpcs_in_flight));
    table(&mut out, &Head::of_rpcs("rpcs in flight", linear_name), &flights.0, &flights.1);
    let offsets = (buckets(&counts.read_page_offsets), buckets(&counts.write_page_offsets));
    table(&mut out, &Head::of_rpcs("offset", place_name), &offsets.0, &offsets.1);
    let micros = (buckets(&counts.read_micros), buckets(&counts.write_micros));
    table(&mut out, &Head::of_rpcs("RPC latency (us)", bucket_name), &micros.0, &micros.1);
    out
}

/// `mdc.*.rpc_stats`: requests that change something.
pub fn modify_rpc_stats(status: &TargetStatus) -> String {
    let counts = &status.stats;
    let mut out = times(counts.rpcs_since);
    let _ = writeln!(out, "modify_RPCs_in_flight:  {}", status.modifying_in_flight);
    let _ = writeln!(out, "\n\t\t\tmodify");
    let _ = writeln!(out, "{:<21} rpcs   % cum %", "rpcs in flight");
    let buckets = &counts.modify_rpcs_in_flight.buckets;
    let total = buckets.iter().sum();
    let mut sum = 0;
    for (bucket, count) in buckets.iter().enumerate() {
        sum += count;
        let (part, so_far) = (percent(*count, total), percent(sum, total));
        let _ = writeln!(out, "{bucket}:\t\t{count:10} {part:3} {so_far:3}");
    }
    out
}

fn percent(part: u64, whole: u64) -> u64 {
    (part * 100).checked_div(whole).unwrap_or(0)
}

/// `osc.*.state`: now, and the states before it with their times.
pub fn state(session: &SessionStatus) -> String {
    let mut out = format!("current_state: {}\nstate_history:\n", session.state);
    for (at, word) in &session.history {
        let _ = writeln!(out, " - [ {}, {word} ]", at.seconds());
    }
    out
}

/// `osc.*.import`, `osp.*.import`. `target`: with its file system's name; `wait_us`: the mean time until an answer, where somebody counts it.
pub fn import(name: &str, target: &str, session: &SessionStatus, wait_us: Option<u64>) -> String {
    let mut out = String::from("import:\n");
    let _ = writeln!(out, "    name: {name}");
    let _ = writeln!(out, "    target: {target}_UUID");
    let _ = writeln!(out, "    state: {}", session.state);
    let _ = writeln!(out, "    connection:");
    let _ = writeln!(out, "       failover_nids: [ {} ]", nids(&session.nids));
    let _ = writeln!(out, "       evictions: {}", session.eviction_count);
    let _ = writeln!(out, "    rpcs:");
    let _ = writeln!(out, "       inflight: {}", session.outstanding);
    if let Some(wait_us) = wait_us {
        let _ = writeln!(out, "       avg_waittime: {wait_us} usec");
    }
    let _ = writeln!(out, "    transactions:");
    let _ = writeln!(out, "       kept_for_replay: {}", session.retained_count);
    let _ = writeln!(out, "       peer_committed: {}", session.last_committed.0);
    out
}

/// `osc.*.timeouts`: whole seconds, as Lustre counts them.
pub fn timeouts(now: Now, report: &TimeoutReport) -> String {
    let when = |at: Time| {
        let ago = now.time.since(at).as_secs();
        let (days, hours, minutes) = (ago / 86_400, ago / 3600 % 24, ago / 60 % 60);
        let at = now.wall.seconds().saturating_sub_unsigned(ago);
        (at, format!("{days}d{hours}h{minutes:02}m{:02}s ago", ago % 60))
    };
    let seconds = |took: Duration| took.as_secs() + u64::from(took.subsec_nanos() > 0);
    let mut out = String::new();
    if let Some((at, ago)) = report.last_answer.map(when) {
        let _ = writeln!(out, "last reply : {at}, {ago}");
    }
    let (current, worst) = (seconds(report.current), seconds(report.worst));
    let _ = write!(out, "{:<11}: cur {current:>3}  worst {worst:>3}", "service");
    if let Some((at, ago)) = report.worst_at.map(when) {
        let _ = write!(out, " (at {at}, {ago})");
    }
    for part in report.parts {
        let _ = write!(out, " {:>3}", seconds(part));
    }
    out.push('\n');
    out
}

pub fn nids(addresses: &[String]) -> String {
    addresses.iter().map(|address| crate::nid::format_nid(address)).collect::<Vec<_>>().join(", ")
}

/// `obdfilter.*.brw_stats`, each a pair of reads and writes: the requests, and what their data cost the local file system. A request is one
/// extent, so that none has pages that do not follow each other.
pub fn brw_stats(oss: &OssStats, (read, write): &(DiskUse, DiskUse)) -> String {
    let mut out = times(oss.since);
    let discontiguous = [&oss.read, &oss.write].map(|bulk| [bulk.bytes.count]);
    let tables: [(Head, &[u64], &[u64]); 6] = [
        (
            Head::of_disk("pages per bulk r/w", "rpcs", bucket_name),
            &oss.read.pages.buckets,
            &oss.write.pages.buckets,
        ),
        (Head::of_disk("discontiguous pages", "rpcs", linear_name), &discontiguous[0], &discontiguous[1]),
        (
            Head::of_disk("disk fragmented I/Os", "ios", linear_name),
            &read.calls.buckets,
            &write.calls.buckets,
        ),
        (
            Head::of_disk("disk I/Os in flight", "ios", linear_name),
            &read.in_flight.buckets,
            &write.in_flight.buckets,
        ),
        (
            Head::of_disk("I/O time (1/1000s)", "ios", bucket_name),
            &read.millis.buckets,
            &write.millis.buckets,
        ),
        (
            Head::of_disk("disk I/O size", "ios", bucket_name),
            &read.call_bytes.buckets,
            &write.call_bytes.buckets,
        ),
    ];
    for (head, reads, writes) in &tables {
        table(&mut out, head, reads, writes);
    }
    out
}

/// What stands over the two sides of a table: of a mount's requests, and of what a target does.
const OVER_RPCS: &str = "\t\t\tread\t\t\twrite";
const OVER_DISK: &str = "                           read      |     write";

/// Title, unit of what is counted, what stands over the sides, and names of the buckets.
struct Head {
    title: &'static str,
    unit: &'static str,
    over: &'static str,
    name: fn(usize) -> String,
}

impl Head {
    const fn of_rpcs(title: &'static str, name: fn(usize) -> String) -> Head {
        Head { title, unit: "rpcs", over: OVER_RPCS, name }
    }

    const fn of_disk(title: &'static str, unit: &'static str, name: fn(usize) -> String) -> Head {
        Head { title, unit, over: OVER_DISK, name }
    }
}

/// Two histograms, until both are complete.
fn table(out: &mut String, head: &Head, read: &[u64], write: &[u64]) {
    let Head { title, unit, over, name } = head;
    let _ = writeln!(out, "\n{over}");
    let _ = writeln!(out, "{title:<21} {unit}   % cum % |       {unit}   % cum %");
    let totals = [read.iter().sum::<u64>(), write.iter().sum::<u64>()];
    let (mut read_sum, mut write_sum) = (0, 0);
    for bucket in 0..read.len().max(write.len()) {
        let (reads, writes) =
            (read.get(bucket).copied().unwrap_or(0), write.get(bucket).copied().unwrap_or(0));
        read_sum += reads;
        write_sum += writes;
        if read_sum + write_sum == 0 {
            continue;
        }
        let _ = writeln!(
            out,
            "{}:\t\t{reads:10} {:3} {:3}   | {writes:10} {:3} {:3}",
            name(bucket),
            percent(reads, totals[0]),
            percent(read_sum, totals[0]),
            percent(writes, totals[1]),
            percent(write_sum, totals[1]),
        );
        if [read_sum, write_sum] == totals {
            break;
        }
    }
}

/// `0`, `1`, `2`, `4`: where a bucket of `add_place` begins.
fn place_name(bucket: usize) -> String {
    if bucket == 0 { "0".to_owned() } else { bucket_name(bucket - 1) }
}

/// `0`, `1`, `2`, `3`: buckets of `add_linear`.
fn linear_name(bucket: usize) -> String {
    bucket.to_string()
}

/// `1`, `512`, `1K`, `4M`.
fn bucket_name(bucket: usize) -> String {
    let value = 1_u64.checked_shl(bucket as u32).unwrap_or(u64::MAX);
    match value {
        0..1024 => value.to_string(),
        1024..1_048_576 => format!("{}K", value >> 10),
        _ => format!("{}M", value >> 20),
    }
}

/// `mdt.*.recovery_status`, with Lustre's spelling of `lock_repay_clients`.
pub fn recovery_status<M: MetaStore>(core: &Core<M>) -> String {
    let report = core.recovery_report(net::clock::now().time);
    let RecoveryReport { awaited_count, returned_count, locking_count, completed_count, .. } = report;
    if report.ended.is_none() && awaited_count > 0 {
        let mut out = String::from("status: RECOVERING\n");
        let _ = writeln!(out, "recovery_start: {}", report.started.seconds());
        let _ = writeln!(out, "time_remaining: {}", report.time_left.as_secs());
        let _ = writeln!(out, "connected_clients: {returned_count}/{awaited_count}");
        let replaying_count = returned_count.saturating_sub(locking_count + completed_count);
        let _ = writeln!(out, "req_replay_clients: {replaying_count}");
        let _ = writeln!(out, "lock_repay_clients: {locking_count}");
        let _ = writeln!(out, "completed_clients: {completed_count}");
        let _ = writeln!(out, "evicted_clients: {}", report.evicted_count);
        let _ = writeln!(out, "replayed_requests: {}", report.replayed_count);
        let _ = writeln!(out, "lossless: {}", u8::from(report.is_lossless));
        let _ = writeln!(out, "early_requests: {}", report.early_count);
        let _ = writeln!(out, "queued_requests: {}", report.queued_count);
        let _ = writeln!(out, "next_transno: {}", core.next_transno().0);
        return out;
    }
    if awaited_count == 0 {
        // Nobody had anything that could be lost.
        return "status: INACTIVE\n".to_owned();
    }
    let mut out = String::from("status: COMPLETE\n");
    let _ = writeln!(out, "recovery_start: {}", report.started.seconds());
    let _ = writeln!(out, "recovery_duration: {}", report.took.as_secs());
    let _ = writeln!(out, "completed_clients: {completed_count}/{awaited_count}");
    let _ = writeln!(out, "evicted_clients: {}", report.evicted_count);
    let _ = writeln!(out, "replayed_requests: {}", report.replayed_count);
    let _ = writeln!(out, "lossless: {}", u8::from(report.is_lossless));
    let _ = writeln!(out, "early_requests: {}", report.early_count);
    let _ = writeln!(out, "last_transno: {}", core.last_transno().0);
    out.push_str("VBR: ENABLED\nIR: ENABLED\n");
    out
}

/// `mgs.MGS.live.*`
pub fn live(config: &ClusterConfig) -> String {
    let mut out = format!("fsname: {}\nversion: {}\ntargets:\n", config.fsname, config.version);
    for target in config.targets.iter().filter(|target| target.id.kind != TargetKind::Mgt) {
        let nids: Vec<String> = target.nids.iter().map(|nid| crate::nid::format_nid(nid)).collect();
        let _ = writeln!(out, "- {}-{} [{}]", config.fsname, target.id, nids.join(","));
    }
    if !config.params.is_empty() {
        out.push_str("params:\n");
        for (path, value) in &config.params {
            let _ = writeln!(out, "- {path}={value}");
        }
    }
    out
}

#[cfg(test)]
mod tests;
