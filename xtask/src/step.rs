//! One step of the test command: a child in its own process group with a hard limit, cleaned up after whatever happens.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use mount_suites::bounded::{self, End};
pub use mount_suites::runner::Verdict;
use mount_suites::{runner, sweep};

/// How many lines of a failed step are printed.
const TAIL_LINES: usize = 60;
/// How often a running step says that it lives.
const HEARTBEAT: Duration = Duration::from_secs(60);

/// What the table shows of a step.
pub struct Report {
    pub name: String,
    pub seconds: f64,
    pub verdict: Verdict,
    pub is_optional: bool,
    /// What the step said last, for suites and tests.
    pub note: String,
}

/// One command of a step.
pub struct Work<'a> {
    pub name: &'a str,
    pub limit: Duration,
    /// The limit is what is left of a budget, and less than the step should have: reaching it is no fault of the step.
    pub is_short: bool,
    /// Where `NAME.log` goes.
    pub logs: &'a Path,
    /// A directory below which the step mounts things.
    pub mounts: &'a Path,
}

impl Work<'_> {
    /// The file that holds everything that the step prints.
    pub fn log(&self) -> PathBuf {
        self.logs.join(format!("{}.log", self.name))
    }

    /// Runs the commands one after the other within the step's limit, until one fails.
    pub fn run(&self, commands: Vec<Command>) -> Result<Verdict> {
        let log = self.log();
        // Only this run's output is of interest; a missing file is the normal case.
        let _ = fs::remove_file(&log);
        // Temporary files, and with them mounts and sockets of the step's tests, go below a directory that is swept afterwards.
        let short = sweep::short_directory()?;
        let tag = format!("SHEEN_STEP={}-{}", std::process::id(), self.name);
        let started = Instant::now();
        let mut verdict = Verdict::Passed;
        for mut command in commands {
            command.env("TMPDIR", short.path());
            let left = self.limit.saturating_sub(started.elapsed());
            let mut heartbeat = Heartbeat::new(self.name, &log);
            let end = bounded::run(&mut command, &tag, left, &log, &mut |spent| heartbeat.tick(spent));
            let end = match end {
                Ok(end) => end,
                Err(error) => {
                    verdict = Verdict::Failed(format!("{error:#}"));
                    break;
                }
            };
            if let Some(why) = runner::skip_reason(&end, &log) {
                verdict = Verdict::Skipped(why);
                break;
            }
            if end.status_code() == Some(i32::from(runner::INCOMPLETE_STATUS)) {
                verdict = Verdict::NotRun("time budget, in part".to_owned());
                break;
            }
            if self.is_short && matches!(end, End::TimedOut { is_stuck: false }) {
                verdict = Verdict::NotRun(format!("time budget, ended after {} s", self.limit.as_secs()));
                break;
            }
            if !end.is_success() {
                verdict = Verdict::Failed(reason(&end, self.limit));
                break;
            }
        }
        let mut left_behind = sweep::release(short.path(), &tag);
        left_behind.extend(sweep::release(self.mounts, &tag));
        if let Verdict::Failed(why) = &verdict {
            // In one piece: other steps may be talking too.
            let (name, said) = (self.name, bounded::tail(&log, TAIL_LINES));
            let log = log.display();
            println!("--- {name} FAILED: {why}; the last lines of {log}:\n{said}\n--- end of {name}");
        }
        if !left_behind.is_empty() {
            println!("    {} left behind, now cleaned up: {}", self.name, left_behind.join(", "));
        }
        Ok(verdict)
    }
}

fn reason(end: &End, limit: Duration) -> String {
    match end {
        End::Exited(_) => end.describe(),
        End::TimedOut { .. } => format!("{} after {} s", end.describe(), limit.as_secs()),
    }
}

struct Heartbeat<'a> {
    name: &'a str,
    log: &'a Path,
    next: Duration,
}

impl<'a> Heartbeat<'a> {
    fn new(name: &'a str, log: &'a Path) -> Heartbeat<'a> {
        Heartbeat { name, log, next: HEARTBEAT }
    }

    fn tick(&mut self, spent: Duration) {
        if spent >= self.next {
            self.next += HEARTBEAT;
            println!("    {} runs for {} s: {}", self.name, spent.as_secs(), bounded::tail(self.log, 1));
            // A closed standard output is no reason to stop the checks.
            let _ = io::stdout().flush();
        }
    }
}
