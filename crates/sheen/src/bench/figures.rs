//! Medians, spreads and ratios, for people and for programs.

use super::cost::{Cost, Requests};
use super::rounds::{Place, Plan, Sample, Samples};
use crate::mount_table;
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

#[derive(Debug, Serialize)]
pub struct Report {
    bench: &'static str,
    /// Of the machine: what the figures are worth depends on it.
    kernel: String,
    cpu_count: usize,
    directory: Measured,
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<Measured>,
    rounds: u32,
    files_per_process: u32,
    mib_per_process: u32,
    figures: Vec<Figure>,
}

#[derive(Debug, Serialize)]
struct Measured {
    path: String,
    file_system: String,
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
}

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
    /// Of all rounds together.
    pub operation_count: u64,
    pub rpcs_by_kind: Requests,
}

impl CostSummary {
    /// `None` when there was a round without.
    pub fn of(samples: &[Sample]) -> Option<CostSummary> {
        let costs: Vec<&Cost> = samples.iter().map(|sample| sample.cost.as_ref()).collect::<Option<_>>()?;
        let per_operation = |cost: &Cost, amount: f64| amount / (cost.operation_count as f64).max(1.0);
        let all = |of: &dyn Fn(&Cost) -> Option<f64>| {
            let each = |cost: &&Cost| Some(per_operation(cost, of(cost)?));
            costs.iter().map(each).collect::<Option<Vec<f64>>>().and_then(|each| Summary::of(&each))
        };
        let mut rpcs_by_kind = Requests::new();
        for (kind, count) in costs.iter().flat_map(|cost| cost.requests.iter().flatten()) {
            *rpcs_by_kind.entry(kind.clone()).or_default() += count;
        }
        Some(CostSummary {
            client_cpu_us: all(&|cost| Some(cost.client_cpu.as_secs_f64() * 1e6))?,
            server_cpu_us: all(&|cost| Some(cost.server_cpu?.as_secs_f64() * 1e6)),
            client_serves_targets: costs.iter().any(|cost| cost.is_client_serving),
            rpcs: all(&|cost| Some(cost.requests.as_ref()?.values().sum::<u64>() as f64)),
            operation_count: costs.iter().map(|cost| cost.operation_count).sum(),
            rpcs_by_kind,
        })
    }

    /// Client and server, µs, and requests.
    fn to_text(&self) -> String {
        let server = match &self.server_cpu_us {
            Some(server) => format!("{:.1}", server.median),
            None if self.client_serves_targets => "same".to_owned(),
            None => "-".to_owned(),
        };
        let rpcs = self.rpcs.as_ref().map_or_else(|| "-".to_owned(), |rpcs| format!("{:.3}", rpcs.median));
        format!(" {:>9.1} {server:>9} {rpcs:>9}", self.client_cpu_us.median)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
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
    pub fn new(plan: &Plan, place: &Place, other: Option<&Place>, samples: Vec<Samples>) -> Report {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Report {
            bench: plan.kind.word(),
            kernel: kernel.trim().to_string(),
            cpu_count: std::thread::available_parallelism().map_or(1, usize::from),
            directory: Measured::new(&place.measured),
            other: other.map(|other| Measured::new(&other.measured)),
            rounds: plan.rounds,
            files_per_process: plan.file_count,
            mib_per_process: plan.mib,
            figures: samples.iter().filter_map(Figure::new).collect(),
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
        line(format!("{} of {} ({})", self.bench, self.directory.path, self.directory.file_system));
        if let Some(other) = &self.other {
            line(format!("against {} ({})", other.path, other.file_system));
        }
        let amount = match self.bench {
            "io" | "stream" => format!("{} MiB per process", self.mib_per_process),
            _ => format!("{} files", self.files_per_process),
        };
        line(format!("n={}, {amount}, Linux {}, {} CPUs", self.rounds, self.kernel, self.cpu_count));
        let costs = || self.figures.iter().flat_map(|figure| [&figure.cost, &figure.other_cost]).flatten();
        if costs().any(|cost| cost.client_serves_targets) {
            line("CPU of client and server: one process has both, the figure is of both".to_owned());
        }
        let mut heads =
            format!("{:<16} {:>5} {:>11} {:>7} {:<6}", "operation", "procs", "median", "spread", "unit");
        heads.push_str(if self.other.is_some() { "    against  spread   ratio" } else { "" });
        for is_there in [self.has_cost(|figure| &figure.cost), self.has_cost(|figure| &figure.other_cost)] {
            heads.push_str(if is_there { " client us server us   RPCs/op" } else { "" });
        }
        line(heads);
        for figure in &self.figures {
            line(figure.to_text());
        }
        text
    }

    fn has_cost(&self, of: impl Fn(&Figure) -> &Option<CostSummary>) -> bool {
        self.figures.iter().any(|figure| of(figure).is_some())
    }
}

impl Measured {
    fn new(path: &Path) -> Measured {
        let file_system =
            mount_table::above(path).map_or_else(|| "unknown".to_string(), |mounted| mounted.kind);
        Measured { path: path.display().to_string(), file_system }
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
        let cost = CostSummary::of(&samples.of_place);
        let other_cost = other.as_ref().and_then(|_| CostSummary::of(&samples.of_other));
        Some(Figure { operation, processes: samples.procs, unit, directory, other, ratio, cost, other_cost })
    }

    fn to_text(&self) -> String {
        let Summary { median, spread_percent, .. } = self.directory;
        let mut text = format!(
            "{:<16} {:>5} {median:>11.1} {spread_percent:>6.0}% {:<6}",
            self.operation, self.processes, self.unit
        );
        if let Some(other) = &self.other {
            // Writing to memory cannot fail.
            let _ = write!(text, " {:>10.1} {:>6.0}%", other.median, other.spread_percent);
        }
        if let Some(ratio) = self.ratio {
            let _ = write!(text, " {ratio:>7.2}");
        }
        text.extend([&self.cost, &self.other_cost].into_iter().flatten().map(CostSummary::to_text));
        text
    }
}
