//! Medians, spreads and ratios, for people and for programs.

use super::beside::Used;
use super::cost::{Cost, Counts, Requests, Sizes};
use super::listing::{self, ListingSummary};
use super::machine::Machine;
use super::pattern::PAGE_BYTES;
use super::place::Place;
use super::plan::{Act, Kind, Plan};
use super::rounds::{Sample, Samples};
use crate::mount_table;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::time::Duration;

#[derive(Debug, Serialize)]
pub struct Report {
    bench: &'static str,
    #[serde(flatten)]
    machine: Machine,
    directory: Measured,
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<Measured>,
    rounds: u32,
    /// Files of each process; in a directory that is listed, or in a tree, of all.
    files: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tree_directories: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tree_file_bytes: Option<u32>,
    /// Of each process; of the file that all map.
    mib: u32,
    /// Then it is of all processes together.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_mib_of_all: bool,
    #[serde(skip)]
    amount: String,
    figures: Vec<Figure>,
}

#[derive(Debug, Serialize)]
struct Measured {
    path: String,
    file_system: String,
    /// In force while it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<String>,
}

#[derive(Debug, Serialize)]
struct Figure {
    operation: &'static str,
    processes: u32,
    unit: &'static str,
    directory: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<Summary>,
    /// Median of the directory over that of the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    /// Empty where nobody could be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<CostSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other_cost: Option<CostSummary>,
    /// Where streams run beside some phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    shares: Option<ShareSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other_shares: Option<ShareSummary>,
    /// Of phases that list a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    listing: Option<ListingSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other_listing: Option<ListingSummary>,
}

/// Who used the processors while it was measured, 100 for one of them, and what metadata and streams moved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShareSummary {
    pub tool_cpu_percent: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cpu_percent: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpu_percent: Option<Summary>,
    /// Of readers, and of the mount that only they use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_cpu_percent: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_mib_per_s: Option<Summary>,
    /// Reads of the files with the rows of MDTs and OSTs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_reads: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_read_kib: Option<Summary>,
    /// What came from devices for the processes of MDTs and of OSTs, data and programs too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mdt_device_kib: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ost_device_kib: Option<Summary>,
    /// The rate beside streams over that of the idle phase in the same round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_idle: Option<Summary>,
}

impl ShareSummary {
    /// `None` without samples.
    fn of(samples: &[Sample], idle: Option<&[Sample]>) -> Option<ShareSummary> {
        let all = |of: &dyn Fn(&Sample) -> Option<f64>| {
            let each = samples.iter().map(of).collect::<Option<Vec<f64>>>();
            each.and_then(|each| Summary::of(&each))
        };
        let seconds = |sample: &Sample| sample.shares.elapsed.as_secs_f64().max(1e-9);
        let percent = |sample: &Sample, cpu: Duration| cpu.as_secs_f64() * 100.0 / seconds(sample);
        let counted = |of: &dyn Fn(&Counts) -> u64| {
            all(&|sample| Some(of(sample.cost.as_ref()?.counts.as_ref()?) as f64))
        };
        let streamed =
            |of: &dyn Fn(&Sample, Used) -> f64| all(&|sample| Some(of(sample, sample.shares.streams?)));
        let ratios = |idle: &[Sample]| {
            let pairs = samples.iter().zip(idle);
            Summary::of(&pairs.map(|(beside, idle)| beside.rate / idle.rate.max(1e-9)).collect::<Vec<_>>())
        };
        Some(ShareSummary {
            tool_cpu_percent: all(&|sample| Some(percent(sample, sample.shares.tool_cpu)))?,
            client_cpu_percent: all(&|sample| Some(percent(sample, sample.cost.as_ref()?.client_cpu))),
            server_cpu_percent: all(&|sample| Some(percent(sample, sample.cost.as_ref()?.server_cpu?))),
            stream_cpu_percent: streamed(&|sample, used| percent(sample, used.cpu)),
            stream_mib_per_s: streamed(&|sample, used| {
                used.byte_count as f64 / f64::from(1 << 20) / seconds(sample)
            }),
            base_reads: counted(&|counts| counts.base_read_count),
            base_read_kib: counted(&|counts| counts.base_read_bytes / 1024),
            mdt_device_kib: counted(&|counts| counts.mdt_device_bytes / 1024),
            ost_device_kib: counted(&|counts| counts.ost_device_bytes / 1024),
            of_idle: idle.and_then(ratios),
        })
    }

    fn to_text(&self) -> String {
        let word = |summary: &Option<Summary>, digits: usize| {
            summary.as_ref().map_or_else(|| "-".to_owned(), |summary| format!("{:.digits$}", summary.median))
        };
        let of_idle =
            self.of_idle.as_ref().map(|ratio| format!("{:.2} ({:.0} %)", ratio.median, ratio.spread_percent));
        format!(
            "{:>5.0} {:>6} {:>7} {:>7} {:>9} {:>10} {:>8} {:>8} {:>10}  {}",
            self.tool_cpu_percent.median,
            word(&self.client_cpu_percent, 0),
            word(&self.server_cpu_percent, 0),
            word(&self.stream_cpu_percent, 0),
            word(&self.stream_mib_per_s, 0),
            word(&self.base_reads, 0),
            word(&self.base_read_kib, 0),
            word(&self.mdt_device_kib, 0),
            word(&self.ost_device_kib, 0),
            of_idle.unwrap_or_default(),
        )
    }
}

/// Heads of the table of shares, after the name.
const SHARE_HEADS: &str =
    " tool client servers streams  stream MiB/s  base reads  KiB  MDT dev KiB  OST dev KiB  of idle";

/// Per operation: a name, or a block of data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostSummary {
    pub client_cpu_us: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpu_us: Option<Summary>,
    /// The process of the client has targets too: what they use is in its figure.
    pub client_serves_targets: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpcs: Option<Summary>,
    /// The same as all targets have counted them, with what they asked each other and what others asked of them meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served_rpcs: Option<Summary>,
    /// `operation` or `directory`.
    pub rpcs_are_per: &'static str,
    /// Of all rounds together.
    pub operation_count: u64,
    pub rpcs_by_kind: Requests,
    #[serde(skip_serializing_if = "Requests::is_empty")]
    pub served_rpcs_by_kind: Requests,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<Reads>,
}

/// What was read from OSTs for a phase of which it is known what it needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reads {
    /// Pages of the pattern, each once for all processes.
    pub needed_bytes: u64,
    /// Bytes that OSTs read, over those that were needed.
    pub bytes_per_needed: Summary,
    /// Of all read requests, those in the rows of 256 pages (1 MiB) and more of `rpc_stats`, each of which holds what has
    /// more than half as many pages.
    pub large_share: Summary,
    /// Of all rounds together, by the row of `rpc_stats`.
    pub rpcs_by_pages: Sizes,
}

/// Pages of 1 MiB.
const LARGE_PAGES: u64 = (1 << 20) / PAGE_BYTES;

impl Reads {
    fn of(counts: &[&Counts], needed_bytes: u64) -> Option<Reads> {
        let mut rpcs_by_pages = Sizes::new();
        for (pages, count) in counts.iter().flat_map(|counts| &counts.reads_by_pages) {
            *rpcs_by_pages.entry(*pages).or_default() += count;
        }
        let per_needed = |counts: &&Counts| counts.read_bytes as f64 / (needed_bytes as f64).max(1.0);
        let large_share = |counts: &&Counts| {
            let large: u64 = counts.reads_by_pages.range(LARGE_PAGES..).map(|(_, count)| count).sum();
            large as f64 / (counts.reads_by_pages.values().sum::<u64>() as f64).max(1.0)
        };
        let all = |of: &dyn Fn(&&Counts) -> f64| Summary::of(&counts.iter().map(of).collect::<Vec<f64>>());
        let (bytes_per_needed, large_share) = (all(&per_needed)?, all(&large_share)?);
        Some(Reads { needed_bytes, bytes_per_needed, large_share, rpcs_by_pages })
    }
}

impl CostSummary {
    /// `None` when there was a round without.
    fn of(samples: &[Sample], needed_bytes: Option<u64>) -> Option<CostSummary> {
        let costs: Vec<&Cost> = samples.iter().map(|sample| sample.cost.as_ref()).collect::<Option<_>>()?;
        let all = |of: &dyn Fn(&Cost) -> Option<f64>| {
            let each = costs.iter().map(|cost| of(cost)).collect::<Option<Vec<f64>>>();
            each.and_then(|each| Summary::of(&each))
        };
        let counts: Option<Vec<&Counts>> = costs.iter().map(|cost| cost.counts.as_ref()).collect();
        let by_kind = |of: fn(&Counts) -> Option<&Requests>| {
            let mut sums = Requests::new();
            for (kind, count) in counts.iter().flatten().filter_map(|counts| of(counts)).flatten() {
                *sums.entry(kind.clone()).or_default() += count;
            }
            sums
        };
        let rpcs_by_kind = by_kind(|counts| Some(&counts.requests));
        let served_rpcs_by_kind = by_kind(|counts| counts.served_requests.as_ref());
        let is_per_operation = costs.iter().all(|cost| cost.rpc_unit_count == cost.operation_count);
        Some(CostSummary {
            client_cpu_us: all(&|cost| Some(cost.us_per_operation(cost.client_cpu)))?,
            server_cpu_us: all(&|cost| Some(cost.us_per_operation(cost.server_cpu?))),
            client_serves_targets: costs.iter().any(|cost| cost.is_client_serving),
            rpcs: all(&Cost::rpcs_per_unit),
            served_rpcs: all(&Cost::served_per_unit),
            rpcs_are_per: if is_per_operation { "operation" } else { "directory" },
            operation_count: costs.iter().map(|cost| cost.operation_count).sum(),
            rpcs_by_kind,
            served_rpcs_by_kind,
            reads: counts.zip(needed_bytes).and_then(|(counts, needed)| Reads::of(&counts, needed)),
        })
    }

    /// Heads of the columns of `to_text`.
    fn heads(&self) -> String {
        let rpcs = format!("RPCs/{}", if self.rpcs_are_per == "directory" { "dir" } else { "op" });
        let reads = if self.reads.is_some() { "  read/x  >=1MiB" } else { "" };
        let served = if self.served_rpcs.is_some() { "    served" } else { "" };
        format!(" {:>9} {:>9} {rpcs:>9}{served}{reads}", "client us", "server us")
    }

    /// Client and server, µs, requests of the mount, and those that the targets have begun; then reads.
    fn to_text(&self) -> String {
        let server = match &self.server_cpu_us {
            Some(server) => format!("{:.1}", server.median),
            None if self.client_serves_targets => "same".to_owned(),
            None => "-".to_owned(),
        };
        let rpcs = self.rpcs.as_ref().map_or_else(|| "-".to_owned(), |rpcs| format!("{:.3}", rpcs.median));
        let served =
            self.served_rpcs.as_ref().map(|served| format!(" {:>9.3}", served.median)).unwrap_or_default();
        let mut text = format!(" {:>9.1} {server:>9} {rpcs:>9}{served}", self.client_cpu_us.median);
        if let Some(Reads { bytes_per_needed, large_share, .. }) = &self.reads {
            // Writing to memory cannot fail.
            let _ = write!(text, " {:>8.2} {:>6.1}%", bytes_per_needed.median, large_share.median * 100.0);
        }
        text
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub n: usize,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Greatest minus least, in percent of the median.
    pub spread_percent: f64,
    pub samples: Vec<f64>,
}

impl Summary {
    /// `None` without samples.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = *sorted.get(sorted.len() / 2)?;
        let lower = *sorted.get((sorted.len() - 1) / 2)?;
        let median = f64::midpoint(lower, upper);
        let spread_percent = if median > 0.0 { (max - min) * 100.0 / median } else { 0.0 };
        Some(Summary { n: samples.len(), median, min, max, spread_percent, samples: samples.to_vec() })
    }
}

impl Report {
    pub fn new(name: &'static str, plan: &Plan, place: &Place, other: Option<&Place>) -> Report {
        let is_tree = matches!(plan.kind, Kind::Walk | Kind::Beside | Kind::Move);
        Report {
            bench: name,
            machine: Machine::this(),
            directory: Measured::new(place),
            other: other.map(Measured::new),
            rounds: plan.rounds,
            files: plan.file_count,
            tree_directories: is_tree.then_some(plan.directory_count),
            tree_file_bytes: is_tree.then_some(plan.file_bytes),
            mib: plan.mib,
            is_mib_of_all: plan.is_mib_of_all,
            amount: plan.amount(),
            figures: Vec::new(),
        }
    }

    pub fn add(&mut self, samples: &[Samples]) {
        let of_idle = |beside: &Samples| match beside.phase.act {
            Act::Tool { tool, is_beside: true, .. } => samples.iter().find(|idle| match idle.phase.act {
                Act::Tool { tool: other, is_beside, .. } => other == tool && !is_beside,
                Act::Step(_) => false,
            }),
            _ => None,
        };
        let has_streams = samples.iter().any(|samples| of_idle(samples).is_some());
        for of_phase in samples {
            let Some(mut figure) = Figure::new(of_phase) else { continue };
            if has_streams {
                let idle = of_idle(of_phase);
                figure.shares = ShareSummary::of(&of_phase.of_place, idle.map(|idle| &idle.of_place[..]));
                figure.other_shares =
                    ShareSummary::of(&of_phase.of_other, idle.map(|idle| &idle.of_other[..]));
            }
            self.figures.push(figure);
            self.figures.extend(Figure::unsynced(of_phase));
        }
    }

    pub fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut line = |line: String| {
            // Writing to memory cannot fail.
            let _ = writeln!(text, "{}", line.trim_end());
        };
        line(format!("{} of {}", self.bench, self.directory.to_text()));
        if let Some(other) = &self.other {
            line(format!("against {}", other.to_text()));
        }
        line(format!("n={}, {}, {}", self.rounds, self.amount, self.machine));
        let costs = || self.figures.iter().flat_map(|figure| [&figure.cost, &figure.other_cost]).flatten();
        if costs().any(|cost| cost.client_serves_targets) {
            line("CPU of client and server: one process has both, the figure is of both".to_owned());
        }
        let width = self.figures.iter().map(|figure| figure.operation.len()).max().unwrap_or(0).max(16);
        let mut heads =
            format!("{:<width$} {:>5} {:>11} {:>7} {:<6}", "operation", "procs", "median", "spread", "unit");
        heads.push_str(if self.other.is_some() { "    against  spread   ratio" } else { "" });
        let cost_heads = |of: &dyn Fn(&Figure) -> &Option<CostSummary>| {
            let cost = self.figures.iter().find_map(|figure| of(figure).as_ref());
            cost.map(CostSummary::heads).unwrap_or_default()
        };
        heads.push_str(&cost_heads(&|figure| &figure.cost));
        heads.push_str(&cost_heads(&|figure| &figure.other_cost));
        line(heads);
        for figure in &self.figures {
            line(figure.to_text(width, self.other.is_some()));
        }
        let shares = |figure: &Figure| {
            let (place, other) = (figure.shares.clone(), figure.other_shares.clone());
            let other = other.map(|shares| (format!("{}, other", figure.operation), shares));
            place.map(|shares| (figure.operation.to_owned(), shares)).into_iter().chain(other)
        };
        let shares: Vec<_> = self.figures.iter().flat_map(shares).collect();
        if !shares.is_empty() {
            line(format!("\n{:<23} {SHARE_HEADS}", "% of one processor"));
        }
        for (name, shares) in shares {
            line(format!("{name:<23} {}", shares.to_text()));
        }
        let listings = self.figures.iter().flat_map(|figure| {
            let other = figure.other_listing.iter().map(|of| (format!("{}, other", figure.operation), of));
            figure.listing.iter().map(|of| (figure.operation.to_owned(), of)).chain(other)
        });
        for (number, (name, listing)) in listings.enumerate() {
            if number == 0 {
                line(format!("\n{:<23} {}", "first entry; MiB of the mount's process", listing::HEADS));
            }
            line(format!("{name:<23} {}", listing.to_text()));
        }
        text
    }
}

impl Measured {
    fn new(place: &Place) -> Measured {
        let file_system =
            mount_table::above(&place.measured).map_or_else(|| "unknown".to_string(), |mounted| mounted.kind);
        Measured {
            path: place.measured.display().to_string(),
            file_system,
            params: place.settings.as_ref().map(|settings| settings.text().to_owned()),
        }
    }

    fn to_text(&self) -> String {
        let params = self.params.as_ref().map(|params| format!(" with {params}")).unwrap_or_default();
        format!("{} ({}){params}", self.path, self.file_system)
    }
}

impl Figure {
    fn new(samples: &Samples) -> Option<Figure> {
        let rates =
            |samples: &[Sample]| Summary::of(&samples.iter().map(|sample| sample.rate).collect::<Vec<_>>());
        let directory = rates(&samples.of_place)?;
        let other = rates(&samples.of_other);
        let ratio =
            other.as_ref().filter(|other| other.median > 0.0).map(|other| directory.median / other.median);
        let (operation, unit) = (samples.phase.name, samples.phase.unit.word());
        let cost = CostSummary::of(&samples.of_place, samples.needed_bytes);
        let other_cost =
            other.as_ref().and_then(|_| CostSummary::of(&samples.of_other, samples.needed_bytes));
        let processes = samples.procs;
        let (shares, other_shares) = (None, None);
        Some(Figure {
            operation,
            processes,
            unit,
            directory,
            other,
            ratio,
            cost,
            other_cost,
            shares,
            other_shares,
            listing: ListingSummary::of(&samples.of_place),
            other_listing: ListingSummary::of(&samples.of_other),
        })
    }

    /// A stream without its fsync. Nobody can rely on what is not synced, so that it is printed, and compared with nothing.
    fn unsynced(samples: &Samples) -> Option<Figure> {
        let rates: Option<Vec<f64>> = samples.of_place.iter().map(|sample| sample.unsynced_rate).collect();
        Some(Figure {
            operation: samples.phase.unsynced_name()?,
            processes: samples.procs,
            unit: samples.phase.unit.word(),
            directory: Summary::of(&rates?)?,
            other: None,
            ratio: None,
            cost: None,
            other_cost: None,
            shares: None,
            other_shares: None,
            listing: None,
            other_listing: None,
        })
    }

    /// `width`: of the operation's name. Others may be compared where this is not.
    fn to_text(&self, width: usize, has_other: bool) -> String {
        let Summary { median, spread_percent, .. } = self.directory;
        let mut text = format!(
            "{:<width$} {:>5} {median:>11.1} {spread_percent:>6.0}% {:<6}",
            self.operation, self.processes, self.unit
        );
        if has_other {
            let other = self.other.as_ref();
            let other = other.map(|other| format!("{:>10.1} {:>6.0}%", other.median, other.spread_percent));
            let ratio = self.ratio.map(|ratio| format!("{ratio:.2}"));
            // Writing to memory cannot fail.
            let _ = write!(text, " {:>18} {:>7}", other.unwrap_or_default(), ratio.unwrap_or_default());
        }
        text.extend([&self.cost, &self.other_cost].into_iter().flatten().map(CostSummary::to_text));
        text
    }
}
