//! `sheen bench ab`: two configurations of mounts in turn, and whether one of them is faster.
//!
//! In each round each side gets mounts of its own, which are new and have made nothing of what is there before, and empty caches; so nothing
//! that one side has left behind serves the other, and what else the machine does hits both. No single figure says which side is faster: a difference counts only when the
//! 95 % confidence interval of what the rounds say does not contain zero.

mod cost;
mod judge;
mod plot;
pub mod side;

use super::figures::Summary;
use super::machine::Machine;
use super::pattern::Pattern;
use super::place::Place;
use super::plan::{Kind, Phase, Plan};
use super::rounds::Sample;
use super::{interrupt, make_cold, or_usual, rounds};
use crate::nid::Source;
use crate::progress::{Goal, Progress};
use crate::say;
use crate::sys;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use cost::SideCost;
use judge::Difference;
use serde::Serialize;
use side::{Config, Mounts};
use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// With fewer rounds one outlier is a fifth of all, and an interval that contains it says nothing.
const ROUNDS_MIN: u32 = 5;

#[derive(Clone, Debug, Args)]
pub struct Ab {
    /// What is mounted: NID[:NID]:/FSNAME[/SUBDIR]; what is made there is removed again
    pub source: String,
    /// One side: words with blanks between them, each a mount option (noatime) or a parameter (llite.*.max_read_ahead_mb=64); '' is the default
    #[arg(long, value_name = "CONFIG")]
    pub a: String,
    /// The other one, which is judged against the first
    #[arg(long, value_name = "CONFIG", required_unless_present = "baseline")]
    pub b: Option<String>,
    /// Instead of --b: judge A against the A of a run that was stored with --json
    #[arg(long, value_name = "FILE", conflicts_with = "b")]
    pub baseline: Option<PathBuf>,
    /// What the processes do
    #[arg(long, value_enum)]
    pub workload: Workload,
    /// Only these phases of it, as the report names them
    #[arg(long, value_name = "PHASE", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Mounts of each side at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub mounts: u32,
    /// Processes on each mount
    #[arg(long, value_name = "P", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub procs: u32,
    /// Rounds of each side, 5 or more
    #[arg(short = 'n', default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Files per process, or in the directory that is listed
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub files: u32,
    /// MiB per process, or of the file that all map
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub mib: u32,
    /// Fail when B (or A, against a baseline) is slower by more than this, and really so
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(..=99))]
    pub gate: Option<u32>,
    /// Draw every sample
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// For programs, and to be a baseline later
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Names, as `bench md`
    Md,
    /// Data, as `bench io`
    Io,
    /// Streams, as `bench stream`
    Stream,
    /// Small blocks past the page cache, as `bench direct`
    Direct,
    /// A listing, as `bench ls`
    Ls,
    /// A file that is mapped, as `bench mmap`
    Mmap,
    /// Small files, as `bench tree --small`
    Small,
}

impl Workload {
    fn kind(self) -> Kind {
        match self {
            Workload::Md => Kind::Md,
            Workload::Io => Kind::Io,
            Workload::Stream => Kind::Stream,
            Workload::Direct => Kind::Direct,
            Workload::Ls => Kind::Ls,
            Workload::Mmap => Kind::Mmap,
            Workload::Small => Kind::Small,
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    #[serde(flatten)]
    machine: Machine,
    workload: &'static str,
    mounts: u32,
    procs: u32,
    files: u32,
    mib: u32,
    rounds: u32,
    /// What A, and B or the baseline are.
    a: String,
    b: String,
    is_against_baseline: bool,
    phases: Vec<Compared>,
}

/// One phase of both sides. With a baseline A is what was measured now, and B what was stored.
#[derive(Debug, Serialize)]
struct Compared {
    operation: String,
    unit: String,
    a: Summary,
    b: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    a_cost: Option<SideCost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b_cost: Option<SideCost>,
    /// How much faster the side is that is judged: B, or what was measured now.
    difference: Difference,
}

/// The command.
///
/// # Errors
/// A configuration, a phase, a baseline or a plot that cannot be; a mount or a worker that fails; somebody who stops it; a regression beyond
/// the gate.
pub fn run(options: &Ab) -> Result<()> {
    if options.rounds < ROUNDS_MIN {
        bail!(
            "-n {}: with fewer than {ROUNDS_MIN} rounds a single one decides, and no interval says anything; give -n {ROUNDS_MIN} or more",
            options.rounds
        );
    }
    Source::parse(&options.source)?;
    let a = Config::parse(&options.a).context("--a")?;
    let b = options.b.as_deref().map(|b| Config::parse(b).context("--b")).transpose()?;
    let plan = plan(options);
    let phases = chosen(&plan, &options.only)?;
    let stored = options.baseline.as_deref().map(|file| judge::Stored::read(file, options)).transpose()?;
    if let Some(machine) = stored.as_ref().and_then(|stored| stored.other_machine.as_ref()) {
        say::note(format_args!(
            "the baseline is of {machine}, here is {}: a difference may be theirs, whatever is called real",
            Machine::this()
        ));
    }
    if !plan.is_cold {
        check_warm(&plan)?;
        say::note("only root drops the kernel's caches: what servers have cached serves both sides");
    }
    if let Some(path) = &options.plot {
        check_writable(path)?;
    }
    sys::outlive_readers();
    interrupt::arm()?;
    let of_one = |name, config| Side { name, config, samples: Samples::of(&phases) };
    let sides: Vec<Side> = [Some(of_one("A", a)), b.map(|b| of_one("B", b))].into_iter().flatten().collect();
    let names: Vec<&str> = sides.iter().map(|side| side.name).collect();
    let phase_count = options.rounds as usize * sides.len() * plan.phases().len();
    let name = format!("ab {}", plan.kind.word());
    let progress = Progress::begin(name, "phases", Goal::items(phase_count as u64));
    let mut measured = Measured { options, plan: &plan, progress: &progress, sides };
    alternate(&names, options.rounds, &mut measured)?;
    let mut samples = measured.sides.into_iter().map(|side| side.samples);
    let mut next = || samples.next().unwrap_or_else(|| Samples::of(&phases));
    let (of_a, of_b) = (next(), next());
    drop(progress);
    let report = report(options, &phases, &of_a, &of_b, stored.as_ref())?;
    // What the rounds have found does not depend on a disk that is full by now.
    let drawn = options.plot.as_ref().map_or(Ok(()), |path| {
        fs::write(path, plot::svg(&report)).with_context(|| format!("cannot write {}", path.display()))
    });
    let text = if options.json { serde_json::to_string_pretty(&report)? + "\n" } else { to_text(&report) };
    say::outcome(&text)?;
    drawn.and_then(|()| check_gate(&report, options.gate))
}

/// Before the rounds, which take their time. What is there stays as it is, and nothing is left of what is not.
fn check_writable(path: &Path) -> Result<()> {
    let is_new = !path.exists();
    let opened = File::options().write(true).create(true).truncate(false).open(path);
    opened.with_context(|| format!("cannot write {}", path.display()))?;
    if is_new {
        fs::remove_file(path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn plan(options: &Ab) -> Plan {
    // Of a large file each pattern takes its time: those that nobody asks for are left out.
    let is_named = |pattern: &Pattern| options.only.contains(&format!("mmap {}", pattern.word()));
    let patterns: Vec<Pattern> = Pattern::ALL.into_iter().filter(is_named).collect();
    Plan {
        procs: vec![options.mounts * options.procs],
        file_count: options.files,
        mib: options.mib,
        // Phases that make caches cold need root.
        is_cold: sys::uid() == 0,
        patterns: or_usual(&patterns, &Pattern::ALL),
        ..Plan::of(options.workload.kind(), options.rounds)
    }
}

/// # Errors
/// What is measured is cold, which only root can have.
fn check_warm(plan: &Plan) -> Result<()> {
    let mut acts = plan.phases().into_iter().map(|phase| phase.act);
    if matches!(plan.kind, Kind::Ls | Kind::Names) || acts.any(|act| plan.is_cold_before(act)) {
        bail!(
            "--workload {} has cold phases, and only root drops the kernel's caches; be root",
            plan.kind.word()
        );
    }
    Ok(())
}

fn chosen(plan: &Plan, only: &[String]) -> Result<Vec<Phase>> {
    let all = plan.phases();
    let unknown = only.iter().find(|name| all.iter().all(|phase| phase.name != name.as_str()));
    if let Some(name) = unknown {
        let names: Vec<&str> = all.iter().map(|phase| phase.name).collect();
        bail!("'{name}' is no phase of this workload; there are: {}", names.join(", "));
    }
    let is_chosen = |phase: &Phase| only.is_empty() || only.iter().any(|name| name == phase.name);
    Ok(all.into_iter().filter(is_chosen).collect())
}

/// What a round of one side is made of.
trait Rounds {
    type Mounted;

    fn mount(&mut self, side: usize) -> Result<Self::Mounted>;
    /// Makes what is measured, through none of the mounts that are.
    fn fill(&mut self, side: usize, mounted: &mut Self::Mounted) -> Result<()>;
    fn empty_caches(&mut self) -> Result<()>;
    fn measure(&mut self, side: usize, mounted: &Self::Mounted) -> Result<()>;
    fn unmount(&mut self, mounted: Self::Mounted) -> Result<()>;
}

/// The sides in turn, each time with new mounts and empty caches.
fn alternate(names: &[&str], round_count: u32, rounds: &mut impl Rounds) -> Result<()> {
    let mut once = |side| {
        let mut mounted = rounds.mount(side)?;
        rounds.fill(side, &mut mounted)?;
        rounds.empty_caches()?;
        rounds.measure(side, &mounted)?;
        rounds.unmount(mounted)
    };
    for number in 1..=round_count {
        for (side, name) in names.iter().enumerate() {
            once(side).with_context(|| format!("round {number}, {name}"))?;
        }
    }
    Ok(())
}

struct Measured<'a> {
    options: &'a Ab,
    plan: &'a Plan,
    progress: &'a Progress,
    sides: Vec<Side>,
}

struct Side {
    name: &'static str,
    config: Config,
    samples: Samples,
}

impl Measured<'_> {
    fn side(&mut self, index: usize) -> Result<&mut Side> {
        self.sides.get_mut(index).context("there is no such side")
    }
}

impl Rounds for Measured<'_> {
    /// The place is gone before its mounts are.
    type Mounted = (Place, Mounts);

    fn mount(&mut self, side: usize) -> Result<(Place, Mounts)> {
        let options = self.options;
        let mounts = Mounts::start(&options.source, options.mounts, &self.side(side)?.config)?;
        let mut place = Place::new(mounts.first())?;
        place.seen_through = mounts.points().to_vec();
        Ok((place, mounts))
    }

    /// What a mount makes it knows under its locks, whatever the kernel forgets: a new client would have to ask.
    fn fill(&mut self, side: usize, (place, _): &mut (Place, Mounts)) -> Result<()> {
        let (options, plan) = (self.options, self.plan);
        if !plan.kind.has_fixture() {
            return Ok(());
        }
        let filler = Mounts::start(&options.source, 1, &self.side(side)?.config)?;
        place.seen_in(filler.first(), |place| place.fill(plan))?;
        filler.end()
    }

    fn empty_caches(&mut self) -> Result<()> {
        if self.plan.is_cold { make_cold(None) } else { Ok(()) }
    }

    fn measure(&mut self, side: usize, (place, _): &(Place, Mounts)) -> Result<()> {
        let (plan, procs) = (self.plan, self.options.mounts * self.options.procs);
        let samples = rounds::any_round(plan, procs, place, self.progress)?;
        self.side(side)?.samples.add(plan, samples);
        Ok(())
    }

    fn unmount(&mut self, (place, mounts): (Place, Mounts)) -> Result<()> {
        drop(place);
        mounts.end()
    }
}

/// What was measured of one side, by phase.
struct Samples(Vec<(&'static str, Vec<Sample>)>);

impl Samples {
    fn of(phases: &[Phase]) -> Samples {
        Samples(phases.iter().map(|phase| (phase.name, Vec::new())).collect())
    }

    /// Those of one round.
    fn add(&mut self, plan: &Plan, samples: Vec<Sample>) {
        for (phase, sample) in plan.phases().iter().zip(samples) {
            if let Some((_, all)) = self.0.iter_mut().find(|(name, _)| *name == phase.name) {
                all.push(sample);
            }
        }
    }

    fn all(&self, phase: &str) -> &[Sample] {
        let found = self.0.iter().find(|(name, _)| *name == phase);
        found.map(|(_, all)| &all[..]).unwrap_or_default()
    }

    fn rates(&self, phase: &str) -> Vec<f64> {
        self.all(phase).iter().map(|sample| sample.rate).collect()
    }
}

fn report(
    options: &Ab,
    phases: &[Phase],
    of_a: &Samples,
    of_b: &Samples,
    stored: Option<&judge::Stored>,
) -> Result<Report> {
    let compare = |phase: &Phase| {
        let a = of_a.rates(phase.name);
        let (b, b_cost) = match stored {
            Some(stored) => (stored.rates(phase.name)?.to_vec(), stored.cost(phase.name)),
            None => (of_b.rates(phase.name), SideCost::of(of_b.all(phase.name))),
        };
        let difference = match stored {
            Some(_) => Difference::of_runs(&b, &a),
            None => Difference::of_rounds(&a, &b),
        };
        Ok(Compared {
            operation: phase.name.to_owned(),
            unit: phase.unit.word().to_owned(),
            a: Summary::of(&a).context("a round")?,
            b: Summary::of(&b).context("a round")?,
            a_cost: SideCost::of(of_a.all(phase.name)),
            b_cost,
            difference,
        })
    };
    Ok(Report {
        bench: "ab",
        machine: Machine::this(),
        workload: options.workload.kind().word(),
        mounts: options.mounts,
        procs: options.procs,
        files: options.files,
        mib: options.mib,
        rounds: options.rounds,
        a: options.a.clone(),
        b: options.b.clone().or_else(|| Some(stored?.config.clone())).unwrap_or_default(),
        is_against_baseline: stored.is_some(),
        phases: phases.iter().map(compare).collect::<Result<_>>()?,
    })
}

fn to_text(report: &Report) -> String {
    let mut text = String::new();
    let Report { workload, mounts, procs, machine, .. } = report;
    // Writing to memory cannot fail.
    let _ = writeln!(text, "{workload}, {mounts} mounts with {procs} processes each, {machine}");
    let other = if report.is_against_baseline { "baseline" } else { "B" };
    // A baseline may have had more rounds, or fewer.
    let n = |of: fn(&Compared) -> &Summary| report.phases.first().map_or(0, |compared| of(compared).n);
    let sides = [("A", &report.a, n(|compared| &compared.a)), (other, &report.b, n(|compared| &compared.b))];
    for (name, config, n) in sides {
        let config = if config.is_empty() { "defaults" } else { config };
        let _ = writeln!(text, "{name}: {config}, n={n}");
    }
    let _ = writeln!(
        text,
        "{:<20} {:>11} {:>7} {:>11} {:>7} {:<6} {:>9} {:>21}",
        "operation", "A median", "spread", "B median", "spread", "unit", "diff", "95 % interval"
    );
    for Compared { operation, unit, a, b, difference, .. } in &report.phases {
        let interval = format!("{:+.1} to {:+.1} %", difference.low_percent, difference.high_percent);
        let _ = writeln!(
            text,
            "{operation:<20} {:>11.1} {:>6.0}% {:>11.1} {:>6.0}% {unit:<6} {:>+7.1} % {interval:>21}  {}",
            a.median,
            a.spread_percent,
            b.median,
            b.spread_percent,
            difference.percent,
            if difference.is_real { "real" } else { "no difference that is real" }
        );
    }
    text + &cost_text(report, other)
}

/// Nothing where nobody could be asked.
fn cost_text(report: &Report, other: &str) -> String {
    let costs = || report.phases.iter().flat_map(|compared| [&compared.a_cost, &compared.b_cost]).flatten();
    if costs().next().is_none() {
        return String::new();
    }
    let whose = match costs().all(|cost| cost.has_servers) {
        true => "CPU of mounts and servers",
        false => "CPU of mounts; servers are elsewhere",
    };
    let mut text = String::new();
    // Writing to memory cannot fail.
    let _ = writeln!(text, "\n{whose}, each round, and requests\n{:<20} {:<27} {other}", "", "A");
    let _ = writeln!(text, "{:<20} {} {}", "operation", cost::HEADS, cost::HEADS);
    for Compared { operation, a_cost, b_cost, .. } in &report.phases {
        let (a, b) = (cost::columns(a_cost.as_ref()), cost::columns(b_cost.as_ref()));
        let _ = writeln!(text, "{operation:<20} {a} {b}");
    }
    text
}

/// # Errors
/// A phase is really slower, by more than the gate allows.
fn check_gate(report: &Report, gate_percent: Option<u32>) -> Result<()> {
    let Some(gate) = gate_percent else { return Ok(()) };
    let is_beyond = |compared: &&Compared| compared.difference.is_regression_beyond(f64::from(gate));
    let beyond: Vec<String> = report
        .phases
        .iter()
        .filter(is_beyond)
        .map(|compared| format!("{} by {:.1} %", compared.operation, -compared.difference.percent))
        .collect();
    if beyond.is_empty() {
        return Ok(());
    }
    bail!("slower by more than {gate} %, and really so: {}", beyond.join(", "))
}

#[cfg(test)]
mod tests;
