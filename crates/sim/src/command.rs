//! `sheen sim`: what it prints and how it ends.

use crate::churn::{self, ChurnOptions, Policy};
use crate::sweep::{self, Report};
use crate::{Options, Violation};

/// A sweep ends after so many.
const FAILURE_COUNT_MAX: usize = 5;
/// The last events of a failing seed.
const TRACE_COUNT: usize = 60;

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Command {
    pub from: u64,
    pub to: u64,
    pub options: Options,
    pub thread_count: usize,
    pub is_verbose: bool,
}

impl Command {
    /// Seeds as `A..B`, or one seed.
    pub fn seeds(text: &str) -> Option<(u64, u64)> {
        match text.split_once("..") {
            Some((from, to)) => Some((from.parse().ok()?, to.parse().ok()?)),
            None => {
                let seed: u64 = text.parse().ok()?;
                Some((seed, seed.checked_add(1)?))
            }
        }
    }

    /// Runs all seeds and prints what happened. True when all is well.
    pub fn run(&self) -> bool {
        let run = |seed: u64| crate::run(seed, &self.options);
        let report = sweep::sweep(self.from, self.to, &run, self.thread_count, FAILURE_COUNT_MAX, &tell);
        print_counts(&report);
        if let Some((seed, _)) = report.failures.first() {
            self.print_minimal(*seed);
            return false;
        }
        let missing = if report.seed_count >= 100 { report.missing() } else { Vec::new() };
        if !missing.is_empty() {
            println!("never happened in {} seeds: {}", report.seed_count, missing.join(", "));
        }
        missing.is_empty()
    }

    fn print_minimal(&self, seed: u64) {
        let trace_count = if self.is_verbose { 100_000 } else { TRACE_COUNT };
        let (options, outcome) = sweep::shrink(seed, &self.options, trace_count);
        println!("\nseed {seed}, made small: {} steps, {:?}", options.steps, options.weather);
        for line in &outcome.trace {
            println!("{line}");
        }
        if let Some(Violation { checker, what, step }) = &outcome.violation {
            println!("[{checker}] {what} (step {step})");
        }
    }
}

/// What must happen in a sweep of `churn`, or it has shown nothing: in so many seeds, each of it.
const CHURN_EXPECTED: &[&str] = &[
    "and expects an answer to take 600 s",
    "request sent again to the slow MDT",
    "transactions that are not durable at its death",
    "power failure",
    "process killed",
    "client vanished",
    "client cut off for a moment",
    "client cut off for longer than its lease",
    "client given up while it was cut off",
    "replayed",
    "call",
];
const CHURN_SEED_COUNT: u64 = 20;
/// And what happens to few: in so many lives of clients, all seeds together.
const CHURN_EXPECTED_OF_MANY: &[&str] =
    &["call of a client that had been given up", "call of a client that had been given up failed"];
const CHURN_LIFE_COUNT: u64 = 50_000;

/// Runs the seeds of `churn` and prints what happened. True when all is well.
pub fn run_churn(from: u64, to: u64, options: &ChurnOptions, thread_count: usize) -> bool {
    let run = |seed: u64| churn::run(seed, options);
    let report = sweep::sweep(from, to, &run, thread_count, FAILURE_COUNT_MAX, &tell);
    print_counts(&report);
    print_policies(&report);
    if let Some((seed, _)) = report.failures.first() {
        let outcome = churn::run(*seed, &ChurnOptions { trace_count: TRACE_COUNT, ..options.clone() });
        outcome.trace.iter().for_each(|line| println!("{line}"));
        return false;
    }
    let missing = churn_missing(&report, options);
    if !missing.is_empty() {
        println!("never happened in {} seeds: {}", report.seed_count, missing.join(", "));
    }
    missing.is_empty()
}

/// What should have happened in such a sweep, and has not.
pub fn churn_missing(report: &Report, options: &ChurnOptions) -> Vec<&'static str> {
    // Few seeds may be without one or the other.
    let is_ours = options.policy != Policy::Lustre;
    let is_long = is_ours && report.seed_count >= CHURN_SEED_COUNT;
    let is_large = is_ours && report.seed_count * options.client_count as u64 >= CHURN_LIFE_COUNT;
    let expected = CHURN_EXPECTED.iter().filter(|_| is_long);
    let of_many = CHURN_EXPECTED_OF_MANY.iter().filter(|_| is_large);
    let never = |name: &&&str| report.counts.get(**name).copied().unwrap_or(0) == 0;
    expected.chain(of_many).filter(never).copied().collect()
}

/// The same deaths, and what each policy makes of them.
fn print_policies(report: &Report) {
    let of = |policy: &str, what: &str| {
        report.counts.iter().find(|(name, _)| name.strip_prefix(policy).is_some_and(|rest| rest == what))
    };
    let count = |policy: &str, what: &str| of(policy, what).map_or(0, |(_, count)| *count);
    println!(
        "{:<26} {:>10} {:>14} {:>16} {:>14}",
        "policy", "recoveries", "hard timeouts", "living evicted", "mean recovery"
    );
    for policy in ["lease", "lustre", "lustre without extension"] {
        let recoveries = count(policy, ": recoveries");
        if recoveries == 0 {
            continue;
        }
        let hard = count(policy, ": hard timeouts");
        let (ratio, mean) = (
            100.0 * hard as f64 / recoveries as f64,
            count(policy, ": ms of recovery") as f64 / 1e3 / recoveries as f64,
        );
        println!(
            "{policy:<26} {recoveries:>10} {:>14} {:>16} {:>14}",
            format!("{hard} ({ratio:.1} %)"),
            count(policy, ": living clients evicted"),
            format!("{mean:.2} s")
        );
    }
}

fn tell(seed: u64, violation: &Violation) {
    println!("seed {seed} fails: [{}] {} (step {})", violation.checker, violation.what, violation.step);
}

fn print_counts(report: &Report) {
    for (name, count) in &report.counts {
        println!("{count:>12}  {name}");
    }
    let rate = report.seed_count as f64 / report.seconds.max(1e-9);
    println!(
        "{} seeds, {} failed, {:.1} s, {rate:.1} seeds/s, digest {:016x}",
        report.seed_count,
        report.failures.len(),
        report.seconds,
        report.digest
    );
}
