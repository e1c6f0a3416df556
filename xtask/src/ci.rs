//! The test command. Its first law: it always ends. Every step has a limit of its own, the whole has a budget, and whatever a step
//! leaves behind is killed, unmounted and detached.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use clap::Args;

use mount_suites::{bounded, runner, sys};

use crate::step::{Report, Verdict, Work};

mod lanes;
mod plan;

pub use plan::Plan;
use plan::Step;

/// Options of `cargo xtask ci`.
#[derive(Args)]
pub struct Options {
    /// Only these steps (with `--list` for their names).
    #[arg(long, num_args = 1..)]
    only: Vec<String>,
    /// Name the steps, with their limits, and end.
    #[arg(long)]
    list: bool,
    /// Minutes after which no optional step begins.
    #[arg(long, default_value_t = 66)]
    budget_minutes: u64,
    /// Minutes after which nothing runs any more.
    #[arg(long, default_value_t = 82)]
    hard_minutes: u64,
    /// How many suites run at a time.
    #[arg(long, default_value_t = 2)]
    lanes: usize,
    /// Pass although mandatory steps are skipped, as those that mount are without root: the last line names them.
    #[arg(long)]
    allow_skips: bool,
}

/// Options of `cargo xtask mounted`.
#[derive(Args)]
pub struct MountedOptions {
    /// Only this suite.
    #[arg(long)]
    suite: Option<String>,
    /// Only cases whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// The transport of the mounts: dev or uring.
    #[arg(long, default_value = "dev")]
    transport: String,
    /// Operations or rounds per case instead of the usual number.
    #[arg(long)]
    count: Option<u64>,
    /// The long form (hours).
    #[arg(long)]
    thorough: bool,
}

/// When the test command began: `.ci/run` says so, because installing tools counts too.
fn started() -> Instant {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let since = std::env::var("SHEEN_CI_STARTED").ok().and_then(|text| text.parse().ok());
    let spent = now.saturating_sub(Duration::from_secs(since.unwrap_or(now.as_secs())));
    Instant::now().checked_sub(spent).unwrap_or_else(Instant::now)
}

/// Runs the steps; true if everything that ran passed and no mandatory step is missing, or skipped without leave.
pub fn run(options: &Options) -> Result<bool> {
    let plan = Plan::new()?;
    if options.list {
        for step in &plan.steps {
            let kind = if step.is_optional { "optional" } else { "mandatory" };
            let company = if step.is_shared { "beside others" } else { "alone" };
            println!("{:<24} {:>5} s  {kind}, {company}", step.name, step.limit.as_secs());
        }
        return Ok(true);
    }
    let chosen: Vec<&Step> = plan
        .steps
        .iter()
        .filter(|step| options.only.is_empty() || options.only.iter().any(|name| step.is_named(name)))
        .collect();
    if chosen.is_empty() {
        bail!("no step is called {}; --list names them", options.only.join(" "));
    }
    let started = started();
    let deadlines = Deadlines {
        optional: started + Duration::from_secs(options.budget_minutes * 60),
        hard: started + Duration::from_secs(options.hard_minutes * 60),
    };
    let mut reports = Vec::new();
    for group in lanes::groups(&chosen) {
        // Suites that run side by side share them: who ends first must not take them away from the others.
        let _helpers =
            (group.len() > 1 && can_mount().is_ok()).then(|| runner::Helpers::install(&plan.sheen()));
        let run = |step: &Step| run_step(step, &plan, &deadlines, &reports);
        let of_group = lanes::run(group, options.lanes, &run)?;
        reports.extend(of_group);
    }
    Ok(table(&reports, started.elapsed(), options.allow_skips))
}

struct Deadlines {
    optional: Instant,
    hard: Instant,
}

impl Deadlines {
    /// How long this step may take, or why it does not begin.
    fn limit(&self, step: &Step) -> Result<Duration, String> {
        let deadline = if step.is_optional { self.optional.min(self.hard) } else { self.hard };
        let left = deadline.saturating_duration_since(Instant::now());
        if left < step.least() { Err("time budget".to_owned()) } else { Ok(left.min(step.limit)) }
    }
}

fn run_step(step: &Step, plan: &Plan, deadlines: &Deadlines, before: &[Report]) -> Result<Report> {
    let mut report = Report {
        name: step.name.clone(),
        seconds: 0.0,
        verdict: Verdict::Passed,
        is_optional: step.is_optional,
        note: String::new(),
    };
    let failed_need = before
        .iter()
        .find(|earlier| step.needs.contains(&earlier.name.as_str()) && earlier.verdict != Verdict::Passed);
    if let Some(need) = failed_need {
        report.verdict = Verdict::NotRun(format!("needs {}", need.name));
    } else if let Some(reason) = step.missing(plan) {
        report.verdict = Verdict::Skipped(reason);
    } else {
        match deadlines.limit(step) {
            Err(reason) => report.verdict = Verdict::NotRun(reason),
            Ok(limit) => {
                println!("==> {} (at most {} s)", step.name, limit.as_secs());
                let is_short = limit < step.limit;
                let mounts = plan.mounts_of(&step.name);
                let work = Work { name: &step.name, limit, is_short, logs: &plan.logs, mounts: &mounts };
                let begun = Instant::now();
                report.verdict = work.run(step.commands(plan, limit))?;
                report.seconds = begun.elapsed().as_secs_f64();
                report.note = note(&work.log());
            }
        }
    }
    println!("    {}: {}", report.name, report.verdict);
    Ok(report)
}

/// The line in which a suite or `cargo test` sums itself up.
fn note(log: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    let tests: Vec<u64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ok. "))
        .filter_map(|rest| rest.split(' ').next()?.parse().ok())
        .collect();
    if !tests.is_empty() {
        return format!("{} tests", tests.iter().sum::<u64>());
    }
    let sum = text.lines().rev().find(|line| line.contains(" passed, ") && line.contains(" failed, "));
    sum.unwrap_or_default().to_owned()
}

fn table(reports: &[Report], spent: Duration, allow_skips: bool) -> bool {
    println!("\n{:<24} {:>8}  result", "step", "seconds");
    for report in reports {
        let note = if report.note.is_empty() { String::new() } else { format!(" ({})", report.note) };
        println!("{:<24} {:>8.1}  {}{note}", report.name, report.seconds, report.verdict);
    }
    let outcome = Outcome::of(reports);
    println!("{} steps in {} s: {}", reports.len(), spent.as_secs(), outcome.to_text(allow_skips));
    outcome.is_success(allow_skips)
}

/// What the steps come to.
#[derive(Debug, Default)]
struct Outcome<'a> {
    failed_count: usize,
    /// Mandatory ones.
    not_run_count: usize,
    skipped: Vec<&'a str>,
    /// Optional ones.
    skipped_optional_count: usize,
}

impl Outcome<'_> {
    fn of(reports: &[Report]) -> Outcome<'_> {
        let mut outcome = Outcome::default();
        for report in reports {
            match (&report.verdict, report.is_optional) {
                (Verdict::Failed(_), _) => outcome.failed_count += 1,
                (Verdict::NotRun(_), false) => outcome.not_run_count += 1,
                (Verdict::Skipped(_), false) => outcome.skipped.push(&report.name),
                (Verdict::Skipped(_), true) => outcome.skipped_optional_count += 1,
                (Verdict::Passed, _) | (Verdict::NotRun(_), true) => {}
            }
        }
        outcome
    }

    fn is_success(&self, allow_skips: bool) -> bool {
        self.failed_count == 0 && self.not_run_count == 0 && (allow_skips || self.skipped.is_empty())
    }

    fn to_text(&self, allow_skips: bool) -> String {
        let Outcome { failed_count, not_run_count, skipped, skipped_optional_count } = self;
        let mut text = format!(
            "{failed_count} failed, {not_run_count} mandatory ones not run, {} mandatory and {skipped_optional_count} optional ones skipped",
            skipped.len()
        );
        if !skipped.is_empty() {
            text += &format!(": {}", skipped.join(", "));
            text += if allow_skips { " (allowed)" } else { " (--allow-skips passes without them)" };
        }
        text
    }
}

/// Builds what the suites need and runs them with their output on the terminal.
pub fn run_mounted(options: &MountedOptions) -> Result<bool> {
    let plan = Plan::new()?;
    if let Some(reason) = plan::mounts_missing(&options.transport) {
        bail!("no suite was run: {reason}");
    }
    for mut command in plan.build_commands(false) {
        if !command.status()?.success() {
            bail!("the build failed");
        }
    }
    let mut command =
        plan.suite_command("by-hand", options.suite.as_deref(), &options.transport, Duration::MAX);
    if let Some(only) = &options.only {
        command.args(["--only", only]);
    }
    if let Some(count) = options.count {
        command.args(["--count", &count.to_string()]);
    }
    if options.thorough {
        command.arg("--thorough");
    }
    Ok(command.status()?.success())
}

/// True if the file is there and we are root: what mounting needs.
fn can_mount() -> Result<(), String> {
    if !Path::new("/dev/fuse").exists() {
        return Err("no /dev/fuse".to_owned());
    }
    if sys::effective_uid() != 0 {
        return Err("not root".to_owned());
    }
    // A container may show the device and still forbid it.
    fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map(drop)
        .map_err(|error| format!("/dev/fuse: {error}"))
}

/// Turns FUSE over io_uring on, where the kernel has it.
fn enable_uring() -> Result<(), String> {
    let switch = PathBuf::from("/sys/module/fuse/parameters/enable_uring");
    if !switch.exists() {
        return Err("this kernel has no FUSE over io_uring".to_owned());
    }
    turn_on(&switch).map_err(|error| format!("{}: {error}", switch.display()))
}

/// A container may have what is on already, and not the right to turn it on.
fn turn_on(switch: &Path) -> std::io::Result<()> {
    let is_on = fs::read_to_string(switch).is_ok_and(|text| matches!(text.trim(), "Y" | "1"));
    if is_on { Ok(()) } else { fs::write(switch, "1") }
}

/// FUSE connections can only be aborted through fusectl, which not every machine has mounted.
fn mount_fusectl() {
    let point = Path::new("/sys/fs/fuse/connections");
    if point.exists() && fs::read_dir(point).is_ok_and(|mut entries| entries.next().is_none()) {
        let mut command = Command::new("mount");
        command.args(["-t", "fusectl", "fusectl"]).arg(point);
        // Without it the death of a daemon ends its connection; aborting is only the surer way.
        let _ = bounded::say(&mut command, "SHEEN_FUSECTL=1", Duration::from_secs(10));
    }
}

#[cfg(test)]
mod tests;
