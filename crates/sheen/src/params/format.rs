//! Lustre's text formats, which other people's parsers read.

use base::{ClusterConfig, TargetKind, WallTime};
use client::stats::{Counter, Histogram, TargetStats};
use std::fmt::Write;
use store::MetaStore;
use target::Core;

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

fn snapshot_time() -> String {
    let WallTime(wall) = net::clock::now().wall;
    format!(
        "{:<25} {}.{:09} secs.nsecs\n",
        "snapshot_time",
        wall / 1_000_000_000,
        wall.rem_euclid(1_000_000_000)
    )
}

/// `name N samples [unit] min max sum sumsq`; what never happened is left out, counts have no figures.
pub fn stats(rows: &[(&str, &str, Stat)]) -> String {
    let mut out = snapshot_time();
    for (name, unit, stat) in rows.iter().filter(|(_, _, stat)| stat.count > 0) {
        let _ = write!(out, "{name:<25} {} samples [{unit}]", stat.count);
        if *unit != "reqs" {
            let _ = write!(out, " {} {} {} {}", stat.min, stat.max, stat.sum, stat.sum_of_squares);
        }
        out.push('\n');
    }
    out
}

/// `osc.*.rpc_stats`: reads and writes side by side.
pub fn rpc_stats(counts: &TargetStats) -> String {
    let mut out = snapshot_time();
    let _ = writeln!(out, "read RPCs in flight:  {}", counts.read_rpcs_now);
    let _ = writeln!(out, "write RPCs in flight: {}", counts.write_rpcs_now);
    let _ = writeln!(out, "pending write pages:  0");
    let _ = writeln!(out, "pending read pages:   0");
    let buckets = |histogram: &Histogram| histogram.buckets.clone();
    let pages = (buckets(&counts.read_pages_per_rpc), buckets(&counts.write_pages_per_rpc));
    table(&mut out, "pages per rpc", "rpcs", &pages.0, &pages.1);
    let flights = (buckets(&counts.read_rpcs_in_flight), buckets(&counts.write_rpcs_in_flight));
    table(&mut out, "rpcs in flight", "rpcs", &flights.0, &flights.1);
    out
}

/// `obdfilter.*.brw_stats`: pairs of reads and writes.
pub fn brw_stats(pages: (&[u64], &[u64]), bytes: (&[u64], &[u64])) -> String {
    let mut out = snapshot_time();
    table(&mut out, "pages per bulk r/w", "rpcs", pages.0, pages.1);
    table(&mut out, "disk I/O size", "ios", bytes.0, bytes.1);
    out
}

/// Two histograms over powers of two, until both are complete.
fn table(out: &mut String, title: &str, unit: &str, read: &[u64], write: &[u64]) {
    let _ = writeln!(out, "\n\t\t\tread\t\t\twrite");
    let _ = writeln!(out, "{title:<21} {unit}   % cum % |       {unit}   % cum %");
    let totals = [read.iter().sum::<u64>(), write.iter().sum::<u64>()];
    let percent = |part: u64, whole: u64| (part * 100).checked_div(whole).unwrap_or(0);
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
            bucket_name(bucket),
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

/// `1`, `512`, `1K`, `4M`.
fn bucket_name(bucket: usize) -> String {
    let value = 1_u64.checked_shl(bucket as u32).unwrap_or(u64::MAX);
    match value {
        0..1024 => value.to_string(),
        1024..1_048_576 => format!("{}K", value >> 10),
        _ => format!("{}M", value >> 20),
    }
}

/// `mdt.*.recovery_status`
pub fn recovery_status<M: MetaStore>(core: &Core<M>) -> String {
    let clients = core.clients().count();
    if core.is_recovering() {
        return format!(
            "status: RECOVERING\nconnected_clients: {clients}\nnext_transno: {}\n",
            core.next_transno()
        );
    }
    format!(
        "status: COMPLETE\ncompleted_clients: {clients}/{clients}\nlast_transno: {}\nVBR: DISABLED\nIR: DISABLED\n",
        core.last_transno()
    )
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
