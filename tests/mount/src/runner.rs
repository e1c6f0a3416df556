//! Runs cases, each in a process of its own under a time limit, and cleans up behind every one of them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::bounded::{self, End};
use crate::case::{Bed, Case, Context, NOTE_MARK, Skipped, Suite};
use crate::cluster::{Cluster, Shape};
use crate::options::Options;
use crate::sweep;

/// The exit status by which a case process says that it was skipped.
pub const SKIPPED_STATUS: i32 = 77;
/// The exit status by which a run says that nothing failed, but that its time budget was not enough for all.
pub const INCOMPLETE_STATUS: u8 = 75;
/// The line by which whoever was skipped says why, among his last ones.
const SKIP_MARK: &str = "skipped: ";
const SKIP_LINES: usize = 60;
/// By which a case process learns how many seconds it has.
const LIMIT_VARIABLE: &str = "SHEEN_CASE_SECONDS";
/// What the report of a cluster that stops is called, behind the name of its suite.
const STOP: &str = "/stop";
const LIVENESS_LIMIT: Duration = Duration::from_secs(60);

/// How a case ended, or a step of the test command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
    NotRun(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Passed => write!(formatter, "passed"),
            Verdict::Failed(why) => write!(formatter, "FAILED: {why}"),
            Verdict::Skipped(why) => write!(formatter, "skipped: {why}"),
            Verdict::NotRun(why) => write!(formatter, "not run: {why}"),
        }
    }
}

/// One line of the report.
pub struct Report {
    pub name: String,
    pub seconds: f64,
    pub verdict: Verdict,
}

/// What a run comes to in which nothing failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Complete,
    /// The time budget was not enough for all.
    Incomplete,
    /// No case could do its work on this machine; why the first one could not.
    Skipped(String),
}

impl Outcome {
    fn of(reports: &[Report]) -> Outcome {
        // That a cluster comes up and stops is no case.
        let verdicts =
            || reports.iter().filter(|report| !report.name.ends_with(STOP)).map(|report| &report.verdict);
        let reason = |verdict: &Verdict| match verdict {
            Verdict::Skipped(why) => Some(why.clone()),
            Verdict::Passed | Verdict::Failed(_) | Verdict::NotRun(_) => None,
        };
        if verdicts().any(|verdict| matches!(verdict, Verdict::NotRun(_))) {
            return Outcome::Incomplete;
        }
        let reasons: Option<Vec<String>> = verdicts().map(reason).collect();
        match reasons.and_then(|reasons| reasons.into_iter().next()) {
            Some(why) => Outcome::Skipped(why),
            None => Outcome::Complete,
        }
    }
}

/// Runs suites one after the other and collects reports.
pub struct Runner {
    options: Options,
    /// An empty directory of this run.
    home: PathBuf,
    started: Instant,
    reports: Vec<Report>,
    _helpers: Option<Helpers>,
}

/// The two directories of a `Bed::Pair`, and the cluster behind them unless they are local.
struct Pair {
    a: PathBuf,
    b: PathBuf,
    cluster: Option<Cluster>,
}

impl Runner {
    /// A runner that works in a new directory under `options.work`.
    pub fn new(options: Options) -> Result<Runner> {
        fs::create_dir_all(&options.work)?;
        let home = options.work.canonicalize()?.join(format!("run-{}", std::process::id()));
        fs::create_dir_all(&home)?;
        let helpers = (!options.is_local()).then(|| Helpers::install(&options.sheen));
        Ok(Runner { options, home, started: Instant::now(), reports: Vec::new(), _helpers: helpers })
    }

    /// Runs the chosen cases of a suite.
    pub fn run_suite(&mut self, suite: &Suite) -> Result<()> {
        let chosen: Vec<&Case> = suite.cases.iter().filter(|case| self.is_chosen(case)).collect();
        let mut pair = None;
        for case in chosen {
            if let Some(reason) = self.out_of_time(case) {
                self.report(suite, case, 0.0, Verdict::NotRun(reason));
                continue;
            }
            if suite.bed == Bed::Pair && pair.is_none() {
                match self.make_pair(suite) {
                    Ok(made) => pair = Some(made),
                    Err(error) => {
                        self.report(
                            suite,
                            case,
                            0.0,
                            Verdict::Failed(format!("no cluster to run on: {error:#}")),
                        );
                        break;
                    }
                }
            }
            let failed = self.run_case(suite, case, pair.as_mut())?;
            if failed && pair.as_ref().is_some_and(|pair| !is_alive(pair)) {
                println!("  the cluster does not answer any more: a new one for the next case");
                pair = None;
            }
        }
        if let Some(pair) = pair {
            self.finish_pair(suite, pair);
        }
        self.run_canary(suite)
    }

    /// Runs the suite's canary on two directories that are not the same; it must fail, or the suite sees nothing.
    fn run_canary(&mut self, suite: &Suite) -> Result<()> {
        let chosen = self.options.only.as_ref().is_none_or(|only| "canary".contains(only.as_str()));
        let Some(case) = suite.canary.and_then(|name| suite.cases.iter().find(|case| case.name == name))
        else {
            return Ok(());
        };
        if !chosen {
            return Ok(());
        }
        let pair = Pair { a: self.home.join("canary-a"), b: self.home.join("canary-b"), cluster: None };
        let mut options = self.options.clone();
        (options.local, options.local_second) = (Some(pair.a.clone()), Some(pair.b.clone()));
        for directory in [&pair.a, &pair.b, &self.home.join("work")] {
            fs::create_dir_all(directory)?;
        }
        let log = self.home.join(format!("{}-canary.out", suite.name));
        let tag = format!("SHEEN_CASE={}-{}-canary", std::process::id(), suite.name);
        let mut command = case_command(&options, suite, case, &self.home.join("work"), Some(&pair))?;
        let started = Instant::now();
        let end = bounded::run(&mut command, &tag, self.limit(suite, case), &log, &mut |_| {})?;
        let verdict = match judge(&end, &log) {
            Verdict::Failed(_) => Verdict::Passed,
            other => {
                Verdict::Failed(format!("{} should fail on two different file systems: {other:?}", case.name))
            }
        };
        let name = format!("{}/canary", suite.name);
        self.push(Report { name, seconds: started.elapsed().as_secs_f64(), verdict });
        Ok(())
    }

    fn is_chosen(&self, case: &Case) -> bool {
        self.options.only.as_ref().is_none_or(|only| case.name.contains(only.as_str()))
    }

    fn out_of_time(&self, case: &Case) -> Option<String> {
        let budget = Duration::from_secs(self.options.budget_seconds?);
        let left = budget.saturating_sub(self.started.elapsed());
        // Most cases take a small part of their limit; a case is not begun when even that part is not left.
        (left < Duration::from_secs(case.seconds / 4)).then(|| "time budget".to_owned())
    }

    fn limit(&self, suite: &Suite, case: &Case) -> Duration {
        let limit = suite.limit(case, &self.options);
        match self.options.budget_seconds {
            Some(budget) => limit.min(Duration::from_secs(budget).saturating_sub(self.started.elapsed())),
            None => limit,
        }
    }

    fn make_pair(&self, suite: &Suite) -> Result<Pair> {
        if let Some(local) = &self.options.local {
            fs::create_dir_all(local)?;
            let a = local.canonicalize()?;
            let b = match &self.options.local_second {
                Some(second) => {
                    fs::create_dir_all(second)?;
                    second.canonicalize()?
                }
                None => a.clone(),
            };
            return Ok(Pair { a, b, cluster: None });
        }
        let home = self.home.join(suite.name);
        // A cluster that died before is left where it is: its logs tell why.
        let home = (0..100).map(|index| home.with_extension(index.to_string())).find(|path| !path.exists());
        let home = home.context("a hundred clusters died in one suite")?;
        fs::create_dir_all(&home)?;
        let cluster = Cluster::new(&self.options, &home, Shape::SPLIT)?;
        cluster.up()?;
        let (a, b) = (cluster.mount.clone(), cluster.mount_again("mnt2")?);
        Ok(Pair { a, b, cluster: Some(cluster) })
    }

    fn run_case(&mut self, suite: &Suite, case: &Case, pair: Option<&mut Pair>) -> Result<bool> {
        let work = self.home.join("work").join(format!("{}-{}", suite.name, case.name));
        fs::create_dir_all(&work)?;
        let log = self.home.join(format!("{}-{}.out", suite.name, case.name));
        let tag = format!("SHEEN_CASE={}-{}-{}", std::process::id(), suite.name, case.name);
        let mut command = case_command(&self.options, suite, case, &work, pair.as_deref())?;
        let started = Instant::now();
        let limit = self.limit(suite, case);
        let is_short = limit < suite.limit(case, &self.options);
        command.env(LIMIT_VARIABLE, limit.as_secs().to_string());
        let end = bounded::run(&mut command, &tag, limit, &log, &mut |_| {})?;
        let left_behind = sweep::release(&work, &tag);
        let mut verdict = judge(&end, &log);
        if is_short && matches!(end, End::TimedOut { is_stuck: false }) {
            // The budget ended it, not a limit that was meant for it: that says nothing about the case.
            verdict = Verdict::NotRun(format!("time budget, ended after {} s", limit.as_secs()));
        }
        let mut cluster = pair.and_then(|pair| pair.cluster.as_mut());
        let complaints = cluster.as_mut().map(|cluster| cluster.new_complaints()).unwrap_or_default();
        if let (Verdict::Passed, Some(first)) = (&verdict, complaints.first()) {
            verdict = Verdict::Failed(format!(
                "{} unexpected warnings or errors in the logs: {first}",
                complaints.len()
            ));
        }
        let failed = matches!(verdict, Verdict::Failed(_));
        if failed {
            if !left_behind.is_empty() {
                println!("  left behind: {}", left_behind.join(", "));
            }
            self.keep(suite, case, &log, &work, cluster.as_deref());
        } else {
            // Gigabytes of a passed case are in the way of the next; a directory that stays is no failure.
            let _ = fs::remove_dir_all(&work);
        }
        self.report(suite, case, started.elapsed().as_secs_f64(), verdict);
        print_notes(&log);
        Ok(failed)
    }

    fn keep(&self, suite: &Suite, case: &Case, log: &Path, work: &Path, cluster: Option<&Cluster>) {
        // The same suite may run over the other transport beside this one.
        let name = format!("{}-{}-{}", suite.name, case.name, self.options.transport.word());
        let to = self.options.failed.join(name);
        // Only for whoever reads the failure.
        let _ = fs::remove_dir_all(&to);
        let _ = fs::create_dir_all(&to);
        let _ = fs::copy(log, to.join("output"));
        if let Some(cluster) = cluster {
            cluster.keep_logs(&to.join("log"));
        }
        copy_logs_below(work, &to);
        println!("  kept in {}", to.display());
    }

    fn finish_pair(&mut self, suite: &Suite, mut pair: Pair) {
        let Some(cluster) = pair.cluster.as_mut() else { return };
        let started = Instant::now();
        let second = cluster.unmount(&pair.b);
        let stopped = second.and_then(|()| cluster.down());
        let complaints = cluster.new_complaints();
        let left = sweep::mounts_under(&pair.a);
        let verdict = match (&stopped, complaints.first(), left.first()) {
            (Err(error), ..) => Verdict::Failed(format!("{error:#}")),
            (_, Some(first), _) => Verdict::Failed(format!("complaints while stopping: {first}")),
            (_, _, Some(mount)) => Verdict::Failed(format!("{} is still mounted", mount.point.display())),
            _ => Verdict::Passed,
        };
        if matches!(verdict, Verdict::Failed(_)) {
            cluster.keep_logs(&self.options.failed.join(format!("{}-stop", suite.name)));
        }
        let seconds = started.elapsed().as_secs_f64();
        self.push(Report { name: format!("{}{STOP}", suite.name), seconds, verdict });
    }

    fn report(&mut self, suite: &Suite, case: &Case, seconds: f64, verdict: Verdict) {
        self.push(Report { name: format!("{}/{}", suite.name, case.name), seconds, verdict });
    }

    fn push(&mut self, report: Report) {
        println!("{:<44} {:>8.2} s  {}", report.name, report.seconds, report.verdict);
        self.reports.push(report);
    }

    /// Prints the sum.
    ///
    /// # Errors
    /// A case failed, or none has that name.
    pub fn finish(self) -> Result<Outcome> {
        sweep::release(&self.home, "SHEEN_CASE=none");
        let count = |wanted: fn(&Verdict) -> bool| {
            self.reports.iter().filter(|report| wanted(&report.verdict)).count()
        };
        let passed = count(|verdict| matches!(verdict, Verdict::Passed));
        let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
        let skipped = count(|verdict| matches!(verdict, Verdict::Skipped(_)));
        let not_run = count(|verdict| matches!(verdict, Verdict::NotRun(_)));
        println!(
            "{passed} passed, {failed} failed, {skipped} skipped, {not_run} not run, {:.0} s",
            self.started.elapsed().as_secs_f64()
        );
        if failed == 0 {
            // What failed is looked at in place; what passed only takes room.
            let _ = fs::remove_dir_all(&self.home);
        }
        if failed > 0 {
            bail!("{failed} cases failed");
        }
        if self.reports.is_empty() {
            bail!("no case has that name");
        }
        Ok(Outcome::of(&self.reports))
    }
}

fn case_command(
    options: &Options,
    suite: &Suite,
    case: &Case,
    work: &Path,
    pair: Option<&Pair>,
) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    // The chain of causes is what a case has to say; a backtrace of the harness would push it out of the report.
    command.env("RUST_BACKTRACE", "0");
    command.args(["case", suite.name, case.name]);
    let (a, b) = pair.map_or((work, work), |pair| (pair.a.as_path(), pair.b.as_path()));
    command.arg(a).arg(b).arg(work);
    if let Some(cluster) = pair.and_then(|pair| pair.cluster.as_ref()) {
        // For `lctl`.
        command.env("SHEEN_RUN", cluster.run_dir());
    }
    command.args(["--transport", options.transport.word(), "--seed", &options.seed.to_string()]);
    command.arg("--sheen").arg(&options.sheen).arg("--tools").arg(&options.tools);
    command.args(["--patience", &options.patience.to_string()]);
    if let Some(local) = &options.local {
        command.arg("--local").arg(local);
    }
    if options.on_mdt {
        command.arg("--on-mdt");
    }
    if let Some(second) = &options.local_second {
        command.arg("--local-second").arg(second);
    }
    if let Some(count) = options.count {
        command.args(["--count", &count.to_string()]);
    }
    if let Some(seconds) = options.seconds {
        command.args(["--seconds", &seconds.to_string()]);
    }
    if options.thorough {
        command.arg("--thorough");
    }
    Ok(command)
}

/// The helpers of mount(8) and umount(8) are those of this binary while the suites run; whatever was there before comes back.
pub struct Helpers {
    sheen: PathBuf,
    before: Vec<(PathBuf, Option<PathBuf>)>,
}

impl Helpers {
    /// Puts the links there.
    pub fn install(sheen: &Path) -> Helpers {
        let names = ["mount.sheen", "mount.fuse.sheen", "umount.sheen", "umount.fuse.sheen", "mkfs.sheen"];
        let tools = ["lfs", "lctl"].iter().map(|name| Path::new("/usr/local/bin").join(name));
        let links = names.iter().map(|name| Path::new("/sbin").join(name)).chain(tools);
        let before = links.map(|link| (link.clone(), fs::read_link(&link).ok())).collect();
        let sheen = sheen.canonicalize().unwrap_or_default();
        let mut command = Command::new(&sheen);
        match bounded::say(command.arg("install-helpers"), "SHEEN_HELPERS=1", LIVENESS_LIMIT) {
            Ok(said) if said.is_success() => {}
            Ok(said) => println!("no helpers, what calls them will fail: {}", said.errors.trim_end()),
            Err(error) => println!("no helpers, what calls them will fail: {error}"),
        }
        Helpers { sheen, before }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        // Somebody else's by now are left alone.
        let ours = |link: &Path| fs::read_link(link).is_ok_and(|to| to == self.sheen);
        // Those that were the same before are somebody else's still.
        let is_new = |before: &Option<PathBuf>| before.as_ref() != Some(&self.sheen);
        for (link, before) in self.before.iter().filter(|(link, before)| is_new(before) && ours(link)) {
            let _ = fs::remove_file(link);
            if let Some(before) = before.as_ref().filter(|before| before.exists()) {
                let _ = std::os::unix::fs::symlink(before, link);
            }
        }
    }
}

fn judge(end: &End, log: &Path) -> Verdict {
    if end.is_success() {
        return Verdict::Passed;
    }
    if let Some(reason) = skip_reason(end, log) {
        return Verdict::Skipped(reason);
    }
    let said = bounded::tail(log, 12);
    Verdict::Failed(format!("{}\n    {}", end.describe(), said.replace('\n', "\n    ")))
}

/// Ends this process, which cannot do its work on this machine.
pub fn end_skipped(reason: &str) -> ! {
    println!("{SKIP_MARK}{reason}");
    std::process::exit(SKIPPED_STATUS)
}

/// Why a process could not do its work on this machine, if it says so.
pub fn skip_reason(end: &End, log: &Path) -> Option<String> {
    let is_skipped = end.status_code() == Some(SKIPPED_STATUS);
    let said = is_skipped.then(|| bounded::tail(log, SKIP_LINES))?;
    let reason = said.lines().rev().find_map(|line| line.strip_prefix(SKIP_MARK));
    Some(reason.unwrap_or("no reason given").to_owned())
}

/// What a case has to say although it passed: how much it did, and how long that took.
fn print_notes(log: &Path) {
    let text = fs::read(log).unwrap_or_default();
    for note in String::from_utf8_lossy(&text).lines().filter_map(|line| line.strip_prefix(NOTE_MARK)) {
        println!("    {note}");
    }
}

fn is_alive(pair: &Pair) -> bool {
    if pair.cluster.is_none() {
        return true;
    }
    [&pair.a, &pair.b].into_iter().all(|directory| {
        let probe = directory.join(".alive");
        let mut touch = Command::new("touch");
        touch.arg(probe);
        bounded::say(&mut touch, "SHEEN_PROBE=1", LIVENESS_LIMIT).is_ok_and(|said| said.is_success())
    })
}

fn copy_logs_below(work: &Path, to: &Path) {
    // Never into a mount: what is below was released before.
    for entry in fs::read_dir(work).into_iter().flatten().flatten() {
        let logs = entry.path().join("log");
        for log in fs::read_dir(logs).into_iter().flatten().flatten() {
            let name =
                format!("{}-{}", entry.file_name().to_string_lossy(), log.file_name().to_string_lossy());
            let _ = fs::copy(log.path(), to.join(name));
        }
    }
}

/// The child's side: runs one case and exits with its status.
pub fn run_one(suite: &Suite, case: &Case, directories: [PathBuf; 3], options: Options) -> Result<()> {
    let [a, b, work] = directories;
    crate::sys::umask(0o022);
    let (a, b) = match suite.bed {
        Bed::Own => (work.clone(), work.clone()),
        Bed::Pair => own_directory(case, &a, &b, &options)?,
    };
    let seed = options.seed;
    let limit = std::env::var(LIMIT_VARIABLE).ok().and_then(|text| text.parse().ok());
    let limit = limit.map_or_else(|| suite.limit(case, &options), Duration::from_secs);
    let enough_at = Instant::now() + limit / 2;
    let round_count = suite.round_count(case, &options);
    let context = Context { a, b, work, options, seed, round_count, limit, enough_at };
    let result = (case.run)(&context);
    if let Err(error) = &result {
        if let Some(skipped) = error.downcast_ref::<Skipped>() {
            end_skipped(&skipped.0);
        }
        return result;
    }
    if suite.bed == Bed::Pair {
        fs::remove_dir_all(&context.a).context("the case passed, but what it left cannot be removed")?;
    }
    Ok(())
}

fn own_directory(case: &Case, a: &Path, b: &Path, options: &Options) -> Result<(PathBuf, PathBuf)> {
    let name = (0..1000)
        .map(|index| format!("{}.{index}", case.name))
        .find(|name| fs::create_dir(a.join(name)).is_ok())
        .with_context(|| format!("cannot make a directory for the case in {}", a.display()))?;
    if options.local_second.is_some() {
        fs::create_dir(b.join(&name))?;
    }
    Ok((a.join(&name), b.join(&name)))
}

#[cfg(test)]
mod tests;
