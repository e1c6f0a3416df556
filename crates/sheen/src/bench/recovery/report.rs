//! What the rounds of a case come to.

use super::super::figures::Summary;
use super::super::machine::Machine;
use super::Recovery;
use super::load::Progress;
use anyhow::{Result, ensure};
use serde::Serialize;
use std::fmt::Write;

/// Complaints that are shown of each case.
const SHOWN_COUNT: usize = 5;

/// One round. Times are nanoseconds of the clock of `net::clock`.
#[derive(Clone, Debug, Default)]
pub struct Round {
    pub killed_ns: u64,
    /// All servers that were killed listen again.
    pub listening_ns: u64,
    /// Of the mounts that live and went on.
    pub progress: Vec<Progress>,
    /// The longest operation of a mount that lives, of those that ended after the kill.
    pub longest_ns: u64,
    /// Mounts that live and did not go on, with all of their load, for as long as they were waited for.
    pub stalled_count: u64,
    /// Of mounts that live.
    pub failed_count: u64,
    pub sound_count: u64,
    pub broken_count: u64,
    pub evicted_count: u64,
    pub operation_count: u64,
    pub complaints: Vec<String>,
}

impl Round {
    /// When a mount that lives went on; without a time it did not, and no time is that of the last one.
    pub fn went_on(&mut self, index: usize, progress: Option<Progress>) {
        if let Some(progress) = progress {
            return self.progress.push(progress);
        }
        self.stalled_count += 1;
        self.complaints.push(format!("mount {index} did not go on with all of its load"));
    }

    /// A file that was synced and is not as it was.
    pub fn broken(&mut self, what: &str) {
        self.broken_count += 1;
        self.complaints.push(what.to_owned());
    }
}

/// All rounds of a case.
#[derive(Debug, Serialize)]
pub struct Figure {
    case: &'static str,
    killed_clients: u32,
    /// From the kill until all servers that were killed listen.
    #[serde(skip_serializing_if = "Option::is_none")]
    listening_seconds: Option<Summary>,
    /// From then until the first thread of any mount that lives goes on; less than 0 when it did before.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_progress_seconds: Option<Summary>,
    /// The same, until the last mount goes on with names and data in a directory where no other mount works.
    #[serde(skip_serializing_if = "Option::is_none")]
    own_progress_seconds: Option<Summary>,
    /// The same, until the last thread of the last mount goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_progress_seconds: Option<Summary>,
    /// From the kill until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_progress_after_kill_seconds: Option<Summary>,
    /// The longest operation of a mount that lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_pause_seconds: Option<Summary>,
    /// Of all rounds together, of mounts that live.
    mounts_stalled: u64,
    failed_calls: u64,
    /// Synced files, of all mounts.
    files_sound: u64,
    files_broken: u64,
    living_clients_evicted: u64,
    operations: u64,
    complaints: Vec<String>,
}

/// From one time to another, which may be the earlier one.
fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    (to_ns as i64 - from_ns as i64) as f64 / 1e9
}

impl Figure {
    pub fn of(case: &'static str, killed_clients: u32, rounds: &[Round]) -> Figure {
        let all = |of: &dyn Fn(&Round) -> Option<f64>| {
            let each = rounds.iter().map(of).collect::<Option<Vec<f64>>>();
            each.and_then(|each| Summary::of(&each))
        };
        let sum = |of: fn(&Round) -> u64| -> u64 { rounds.iter().map(of).sum() };
        let first = |round: &Round| round.progress.iter().map(|progress| progress.first_ns).min();
        // Without those that did not go on the last one is not known.
        let last_of = |round: &Round, of: fn(&Progress) -> u64| {
            round.progress.iter().map(of).max().filter(|_| round.stalled_count == 0)
        };
        let own = |round: &Round| last_of(round, |progress| progress.own_ns);
        let last = |round: &Round| last_of(round, |progress| progress.last_ns);
        let complaints = rounds.iter().flat_map(|round| &round.complaints).take(SHOWN_COUNT).cloned();
        Figure {
            case,
            killed_clients,
            listening_seconds: all(&|round| Some(seconds(round.killed_ns, round.listening_ns))),
            first_progress_seconds: all(&|round| Some(seconds(round.listening_ns, first(round)?))),
            own_progress_seconds: all(&|round| Some(seconds(round.listening_ns, own(round)?))),
            last_progress_seconds: all(&|round| Some(seconds(round.listening_ns, last(round)?))),
            last_progress_after_kill_seconds: all(&|round| Some(seconds(round.killed_ns, last(round)?))),
            longest_pause_seconds: all(&|round| Some(seconds(0, round.longest_ns))),
            mounts_stalled: sum(|round| round.stalled_count),
            failed_calls: sum(|round| round.failed_count),
            files_sound: sum(|round| round.sound_count),
            files_broken: sum(|round| round.broken_count),
            living_clients_evicted: sum(|round| round.evicted_count),
            operations: sum(|round| round.operation_count),
            complaints: complaints.collect(),
        }
    }

    /// What must not have happened.
    fn wrong(&self) -> Option<String> {
        let counts = [self.mounts_stalled, self.failed_calls, self.files_broken, self.living_clients_evicted];
        let [stalled, failed, broken, evicted] = counts;
        let (case, killed) = (self.case, self.killed_clients);
        (counts != [0; 4]).then(|| {
            format!(
                "{case} with {killed} mounts killed: {stalled} mounts did not go on, {failed} failed calls, {broken} broken files, \
                 {evicted} evictions of mounts that live"
            )
        })
    }

    fn to_text(&self) -> String {
        let word = |summary: &Option<Summary>| match summary {
            Some(summary) => format!("{:.2} ({:.2}..{:.2})", summary.median, summary.min, summary.max),
            None => "-".to_owned(),
        };
        format!(
            "{:<12} {:>6} {:>18} {:>19} {:>19} {:>19} {:>19} {:>19} {:>7} {:>6} {:>6} {:>6} {:>7}",
            self.case,
            self.killed_clients,
            word(&self.listening_seconds),
            word(&self.first_progress_seconds),
            word(&self.own_progress_seconds),
            word(&self.last_progress_seconds),
            word(&self.last_progress_after_kill_seconds),
            word(&self.longest_pause_seconds),
            self.mounts_stalled,
            self.failed_calls,
            self.files_sound,
            self.files_broken,
            self.living_clients_evicted,
        )
    }
}

/// Heads of the table, which stand for the columns of `Figure::to_text`.
const HEADS: [&str; 13] = [
    "killed",
    "mounts",
    "listening s",
    "first after it s",
    "own after it s",
    "last after it s",
    "last after kill s",
    "longest pause s",
    "stalled",
    "failed",
    "files",
    "broken",
    "evicted",
];

#[derive(Debug, Serialize)]
pub struct Report {
    bench: &'static str,
    #[serde(flatten)]
    machine: Machine,
    clients: u32,
    osts: u16,
    rounds: u32,
    pause_ms: u32,
    figures: Vec<Figure>,
}

impl Report {
    pub fn new(options: &Recovery) -> Report {
        Report {
            bench: "recovery",
            machine: Machine::this(),
            clients: options.clients,
            osts: options.osts,
            rounds: options.rounds,
            pause_ms: options.pause_ms,
            figures: Vec::new(),
        }
    }

    pub fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
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
        line(format!(
            "recovery of {} mounts, 1 MDT, {} OSTs, {} ms between operations; median (least..greatest) of n={}",
            self.clients, self.osts, self.pause_ms, self.rounds
        ));
        line(self.machine.to_string());
        let [
            case,
            mounts,
            listening,
            first,
            own,
            last,
            after_kill,
            pause,
            stalled,
            failed,
            files,
            broken,
            evicted,
        ] = HEADS;
        line(format!(
            "{case:<12} {mounts:>6} {listening:>18} {first:>19} {own:>19} {last:>19} {after_kill:>19} {pause:>19} \
             {stalled:>7} {failed:>6} {files:>6} {broken:>6} {evicted:>7}"
        ));
        for figure in &self.figures {
            line(figure.to_text());
            figure.complaints.iter().for_each(|complaint| line(format!("    {complaint}")));
        }
        text
    }

    /// # Errors
    /// Something stood still, failed, was lost or was evicted that must not be.
    pub fn check(&self) -> Result<()> {
        let wrong: Vec<String> = self.figures.iter().filter_map(Figure::wrong).collect();
        ensure!(wrong.is_empty(), "recovery is not as it has to be: {}", wrong.join("; "));
        Ok(())
    }
}
