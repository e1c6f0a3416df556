//! What the rounds come to.

use super::super::cost::{Cost, Counts};
use super::super::figures::Summary;
use super::super::machine::Machine;
use super::Image;
use super::reader::Seen;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

const MIB: f64 = 1048576.0;

/// One round.
#[derive(Clone, Debug)]
pub struct Round {
    /// From the beginning of all until the last has read everything.
    pub elapsed: Duration,
    /// How long each reader took.
    pub each: Vec<Duration>,
    pub cost: Cost,
}

#[derive(Debug, Serialize)]
pub struct Report {
    bench: &'static str,
    #[serde(flatten)]
    machine: Machine,
    clients: u32,
    osts: u16,
    rounds: u32,
    /// What each client reads.
    image: Seen,
    /// Left out where nobody could be asked.
    figures: BTreeMap<&'static str, Summary>,
    /// Of each kind, for each client: the median.
    requests_per_client: BTreeMap<String, f64>,
}

/// A figure of a round: its name in JSON, what it is, and its digits behind the point.
type Figure = (&'static str, &'static str, usize, fn(&Round, f64, &Seen) -> Option<f64>);

/// `f64` is the number of clients.
const FIGURES: [Figure; 18] = [
    ("seconds", "s until the last client has read all", 2, |round, _, _| Some(round.elapsed.as_secs_f64())),
    ("first_seconds", "s until the first client has", 2, |round, _, _| {
        round.each.iter().min().map(Duration::as_secs_f64)
    }),
    ("mib_per_s", "MiB/s, all clients together", 0, |round, clients, image| {
        Some(image.total_bytes as f64 * clients / MIB / seconds(round))
    }),
    ("mib_per_client", "MiB that each client reads", 1, |_, _, image| Some(image.total_bytes as f64 / MIB)),
    ("served_mib_per_client", "MiB that OSTs served, per client", 1, |round, clients, _| {
        Some(counts(round)?.read_bytes as f64 / MIB / clients)
    }),
    ("mdt_requests_per_client", "requests to the MDT, per client", 0, |round, clients, _| {
        Some(counts(round)?.mdt_requests as f64 / clients)
    }),
    ("mdt_requests_per_file", "requests to the MDT, per client and file", 3, |round, clients, image| {
        Some(counts(round)?.mdt_requests as f64 / clients / image.file_count.max(1) as f64)
    }),
    ("ost_requests_per_client", "requests to OSTs, per client", 0, |round, clients, _| {
        Some(counts(round)?.ost_requests as f64 / clients)
    }),
    ("ost_requests_per_file", "requests to OSTs, per client and file", 3, |round, clients, image| {
        Some(counts(round)?.ost_requests as f64 / clients / image.file_count.max(1) as f64)
    }),
    ("mdt_cpu_seconds", "s of CPU time of the MDT", 2, |round, _, _| Some(round.cost.mdt_cpu?.as_secs_f64())),
    ("mdt_cpu_percent", "% of one CPU, the MDT", 0, |round, _, _| {
        Some(round.cost.mdt_cpu?.as_secs_f64() * 100.0 / seconds(round))
    }),
    ("ost_cpu_seconds", "s of CPU time of all OSTs", 2, |round, _, _| {
        Some(round.cost.ost_cpu?.as_secs_f64())
    }),
    ("ost_cpu_percent", "% of one CPU, all OSTs", 0, |round, _, _| {
        Some(round.cost.ost_cpu?.as_secs_f64() * 100.0 / seconds(round))
    }),
    ("client_cpu_seconds", "s of CPU time of all mounts", 2, |round, _, _| {
        Some(round.cost.client_cpu.as_secs_f64())
    }),
    ("served_mib", "MiB that OSTs served to all", 1, |round, _, _| {
        Some(counts(round)?.read_bytes as f64 / MIB)
    }),
    ("ost_device_mib", "MiB that OSTs read from the device", 1, |round, _, _| {
        Some(counts(round)?.ost_device_bytes as f64 / MIB)
    }),
    ("mdt_device_mib", "MiB that the MDT read from the device", 1, |round, _, _| {
        Some(counts(round)?.mdt_device_bytes as f64 / MIB)
    }),
    ("from_memory_percent", "% of what OSTs served, from their memory", 2, |round, _, _| {
        from_memory_percent(counts(round)?)
    }),
];

fn seconds(round: &Round) -> f64 {
    round.elapsed.as_secs_f64().max(1e-9)
}

fn counts(round: &Round) -> Option<&Counts> {
    round.cost.counts.as_ref()
}

/// What OSTs read ahead, or of their own rows, is counted as if it had been served: less than this is not from memory. `None` when nothing
/// was served.
pub fn from_memory_percent(counts: &Counts) -> Option<f64> {
    let (served, device) = (counts.read_bytes as f64, counts.ost_device_bytes as f64);
    (served > 0.0).then(|| (served - device).max(0.0) * 100.0 / served)
}

impl Report {
    pub fn of(options: &Image, image: &Seen, rounds: &[Round]) -> Report {
        let clients = f64::from(options.clients);
        let of_all = |of: fn(&Round, f64, &Seen) -> Option<f64>| {
            let each = rounds.iter().map(|round| of(round, clients, image)).collect::<Option<Vec<f64>>>();
            each.and_then(|each| Summary::of(&each))
        };
        let figures = FIGURES.iter().filter_map(|(name, _, _, of)| Some((*name, of_all(*of)?))).collect();
        let kinds = rounds.iter().filter_map(counts).flat_map(|counts| counts.requests.keys().cloned());
        let median = |kind: String| {
            let of = |round: &Round| counts(round)?.requests.get(&kind).copied();
            let each = rounds.iter().map(|round| of(round).unwrap_or(0) as f64 / clients).collect::<Vec<_>>();
            Summary::of(&each).map(|summary| (kind.clone(), summary.median))
        };
        Report {
            bench: "image",
            machine: Machine::this(),
            clients: options.clients,
            osts: options.osts,
            rounds: options.rounds,
            image: image.clone(),
            figures,
            requests_per_client: kinds.filter_map(median).collect(),
        }
    }

    pub fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let Report { clients, osts, rounds, image, machine, .. } = self;
        // Writing to memory cannot fail.
        let _ = writeln!(
            text,
            "an image of {} files and {} other names, read by {clients} mounts at once from 1 MDT and {osts} OSTs, n={rounds}",
            image.file_count, image.other_count
        );
        let _ = writeln!(text, "{machine}");
        let _ = writeln!(text, "{:<44} {:>10} {:>22}", "", "median", "least..greatest");
        for (name, what, digits, _) in &FIGURES {
            let Some(Summary { median, min, max, .. }) = self.figures.get(name) else { continue };
            let range = format!("{min:.digits$}..{max:.digits$}");
            let _ = writeln!(text, "{what:<44} {median:>10.digits$} {range:>22}");
        }
        let kinds = self.requests_per_client.iter().map(|(kind, count)| format!("{kind} {count:.1}"));
        let _ = writeln!(text, "requests per client: {}", kinds.collect::<Vec<_>>().join(", "));
        text
    }
}
