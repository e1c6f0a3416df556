//! `sheen bench dne`: directories that are made on their parent's MDT and on another one (`lfs mkdir -i`), and other changes of names whose
//! inodes are there (`--ops`), without and with the wait for all devices that `mdt.*.enable_dne_remote_sync` is.
//!
//! What servers put off is part of the price: a phase is counted until its MDTs have nothing more to do, and begins when they have
//! nothing to do. Nobody asks them to hurry, so that each device sync in that time is either one of those that come by
//! themselves, once a second while something was changed, or one that somebody waited for (`osd-local.*.sync_stats`).

pub mod ground;

use super::cost::Cost;
use super::figures::{Report, Summary};
use super::floor::{Floor, NullMount, Stored};
use super::place::Place;
use super::plan::{Act, DneOp, Home, Kind, Plan, Step};
use super::rounds::{self, Sample, Samples};
use super::settings::{Applied, Settings};
use crate::lfs::DirectoryMaker;
use crate::progress::Progress;
use anyhow::{Context, Result, bail};
use base::limits;
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const SYNC_PARAM: &str = "mdt.*.enable_dne_remote_sync";
/// MDTs are at rest when nothing has happened for longer than the interval at which they sync by themselves: a part that waits for
/// the durability of another MDT has begun by then.
const REST: Duration = limits::SYNC_INTERVAL.saturating_add(Duration::from_millis(300));
/// Seldom: each look costs the servers some of the CPU time that is measured.
const LOOK_INTERVAL: Duration = Duration::from_millis(400);
/// Who has not come to rest by then works for somebody else too.
const REST_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Args)]
pub struct Dne {
    /// Directory on a mount of a file system with two MDTs or more; what is made in it is removed again
    pub dir: PathBuf,
    /// Processes at a time, each in a directory of its own
    #[arg(long, value_delimiter = ',', default_value = "1,16", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub procs: Vec<u32>,
    /// What is measured, each with what is on its directory's MDT, on another one, and there with `mdt.*.enable_dne_remote_sync=1`
    #[arg(long, value_enum, value_delimiter = ',', default_value = "mkdir")]
    pub ops: Vec<DneOp>,
    /// Operations of each kind by each process in a round
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub files: u32,
    /// Rounds; in each the kinds take turns
    #[arg(short = 'n', default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Compare mkdir(2) with a null file system on this FUSE layer, as the other benches do
    #[arg(long, value_enum)]
    pub floor: Option<Floor>,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// The command.
///
/// # Errors
/// A directory on no mount of ours, one MDT only, MDTs that cannot be asked; a worker that fails.
pub fn run(options: &Dne) -> Result<()> {
    let place = Place::new(&options.dir)?;
    check(&place)?;
    let plan = Plan {
        procs: options.procs.clone(),
        file_count: options.files,
        ops: options.ops.clone(),
        ..Plan::of(Kind::Dne, options.rounds)
    };
    let null = options.floor.map(|floor| NullMount::new(floor, Stored::Zeros)).transpose()?;
    let other = null.as_ref().map(NullMount::place).transpose()?;
    let mut report = Report::new("dne", &plan, &place, other.as_ref());
    let samples = rounds::run(&plan, &place, other.as_ref())?;
    report.add(&samples);
    let compared = Compared::of_all(&samples);
    let text = if options.json {
        serde_json::to_string_pretty(&WithCompared { report: &report, compared: &compared })? + "\n"
    } else {
        report.to_text() + &to_text(&compared)
    };
    print!("{text}");
    Ok(())
}

fn check(place: &Place) -> Result<()> {
    let (dir, maker) = (place.measured.display(), DirectoryMaker::new(&place.measured)?);
    if maker.mdt_count() < 2 {
        bail!("{dir}: its file system has one MDT, so no directory is on another; see `sheen up --mdts`");
    }
    let daemons = place.daemons();
    let daemons =
        daemons.with_context(|| format!("{dir}: its mount belongs to somebody else; be that user"))?;
    let here = daemons.targets().iter().filter(|target| target.name.starts_with("MDT")).count();
    if here < usize::from(maker.mdt_count()) {
        bail!("{dir}: {here} of {} MDTs are served by processes that can be asked here", maker.mdt_count());
    }
    Ok(())
}

/// The switch is as the phase needs it, whatever the operator's setting is.
///
/// # Errors
/// No MDT takes it.
pub fn apply_settings(act: Act, place: &Place) -> Result<Applied> {
    let value = match act {
        Act::Step(Step::Dne(_, Home::RemoteSync)) => 1,
        Act::Step(Step::Dne(_, Home::Local | Home::Remote)) => 0,
        Act::Step(_) | Act::Tool { .. } => return Ok(Applied::default()),
    };
    let daemons = place.daemons().context("the mount is gone")?;
    Settings::parse(&format!("{SYNC_PARAM}={value}"))?.apply(&daemons)
}

/// Waits until the MDTs have done what they put off, without asking for it.
///
/// # Errors
/// The mount is gone.
pub fn settle(place: &Place, progress: &Progress) -> Result<()> {
    let daemons = place.daemons().context("the mount is gone")?;
    let begun = Instant::now();
    let mut seen: Option<(Vec<u64>, Instant)> = None;
    while begun.elapsed() < REST_TIMEOUT {
        let settled = daemons.settled_mdts();
        match (settled, &seen) {
            (Some(now), Some((before, since))) if now == *before => {
                if since.elapsed() >= REST {
                    return Ok(());
                }
            }
            (now, _) => seen = now.map(|now| (now, Instant::now())),
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    let seconds = REST_TIMEOUT.as_secs();
    progress.note(format_args!(
        "the MDTs have not come to rest in {seconds} s: somebody else's work is in these figures"
    ));
    Ok(())
}

#[derive(Serialize)]
struct WithCompared<'a> {
    #[serde(flatten)]
    report: &'a Report,
    compared: &'a [Compared],
}

/// One kind of operation, against the same with everything on one MDT in the same round.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Compared {
    operation: &'static str,
    processes: u32,
    /// Rate over that of local ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    of_local: Option<Summary>,
    /// CPU time of client and servers for one, µs; nothing where a server is on another machine, as an OST may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_us: Option<Summary>,
    /// The same over that of a local one.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_of_local: Option<Summary>,
    /// For how long was counted, all rounds together.
    counted_seconds: f64,
    operation_count: u64,
    /// Requests of the mount for one, and what targets have begun, which they ask each other included.
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    served_requests: Option<Summary>,
    /// Device syncs of MDTs, all rounds together, and those of them that somebody waited for.
    sync_count: u64,
    awaited_sync_count: u64,
    awaited_syncs_per_operation: f64,
}

fn cpu_us(sample: &Sample) -> Option<f64> {
    let cost = sample.cost.as_ref()?;
    Some(cost.us_per_operation(cost.whole_cpu()?))
}

impl Compared {
    fn of_all(samples: &[Samples]) -> Vec<Compared> {
        let local_of = |of: &Samples| {
            let local = Act::Step(Step::Dne(op_of(of.phase.act)?, Home::Local));
            samples.iter().find(|samples| samples.procs == of.procs && samples.phase.act == local)
        };
        let has_cost = |samples: &&Samples| samples.of_place.iter().all(|sample| sample.cost.is_some());
        let counted = samples.iter().filter(has_cost);
        counted.filter_map(|samples| Some(Compared::of(samples, &local_of(samples)?.of_place))).collect()
    }

    fn of(samples: &Samples, local: &[Sample]) -> Compared {
        let all = &samples.of_place;
        let is_local = matches!(samples.phase.act, Act::Step(Step::Dne(_, Home::Local)));
        let ratios = |of: &dyn Fn(&Sample) -> Option<f64>| {
            let pairs = all.iter().zip(local).filter(|_| !is_local);
            let ratios = pairs.map(|(sample, local)| Some(of(sample)? / of(local)?.max(1e-9)));
            Summary::of(&ratios.collect::<Option<Vec<f64>>>()?)
        };
        let counts = || all.iter().filter_map(|sample| sample.cost.as_ref()?.counts.as_ref());
        let costs = |of: &dyn Fn(&Cost) -> Option<f64>| {
            let costs = all.iter().map(|sample| of(sample.cost.as_ref()?));
            Summary::of(&costs.collect::<Option<Vec<f64>>>()?)
        };
        let operation_count =
            all.iter().filter_map(|sample| Some(sample.cost.as_ref()?.operation_count)).sum();
        let awaited_sync_count = counts().map(|counts| counts.mdt_awaited_sync_count).sum();
        Compared {
            operation: samples.phase.name,
            processes: samples.procs,
            of_local: ratios(&|sample| Some(sample.rate)),
            cpu_us: all.iter().map(cpu_us).collect::<Option<Vec<f64>>>().and_then(|each| Summary::of(&each)),
            cpu_of_local: ratios(&cpu_us),
            counted_seconds: all.iter().map(|sample| sample.counted.as_secs_f64()).sum(),
            operation_count,
            requests: costs(&Cost::rpcs_per_unit),
            served_requests: costs(&Cost::served_per_unit),
            sync_count: counts().map(|counts| counts.mdt_sync_count).sum(),
            awaited_sync_count,
            awaited_syncs_per_operation: awaited_sync_count as f64 / (operation_count as f64).max(1.0),
        }
    }
}

/// mkdir(2) is another call for the same.
fn op_of(act: Act) -> Option<DneOp> {
    match act {
        Act::Step(Step::Dne(op, _)) => Some(op),
        Act::Step(Step::Mkdir) => Some(DneOp::Mkdir),
        Act::Step(_) | Act::Tool { .. } => None,
    }
}

fn to_text(compared: &[Compared]) -> String {
    let mut text = String::from("\nagainst local ones of the same round; what servers do later included\n");
    // Writing to memory cannot fail.
    let _ = writeln!(
        text,
        "{:<27} {:>5} {:>14} {:>16} {:>14} {:>8} {:>7} {:>8} {:>8} {:>10}",
        "operation",
        "procs",
        "of local",
        "CPU us",
        "of local",
        "RPCs/op",
        "served",
        "syncs",
        "awaited",
        "awaited/op"
    );
    for each in compared {
        let ratio = |ratio: &Option<Summary>| {
            let word = |ratio: &Summary| format!("{:.2} ({:.0} %)", ratio.median, ratio.spread_percent);
            ratio.as_ref().map_or_else(|| "-".to_owned(), word)
        };
        let count = |count: &Option<Summary>| {
            count.as_ref().map_or_else(|| "-".to_owned(), |count| format!("{:.2}", count.median))
        };
        let cpu = each.cpu_us.as_ref();
        let cpu = cpu
            .map_or_else(|| "-".to_owned(), |cpu| format!("{:.1} ({:.0} %)", cpu.median, cpu.spread_percent));
        let _ = writeln!(
            text,
            "{:<27} {:>5} {:>14} {cpu:>16} {:>14} {:>8} {:>7} {:>8} {:>8} {:>10.3}",
            each.operation,
            each.processes,
            ratio(&each.of_local),
            ratio(&each.cpu_of_local),
            count(&each.requests),
            count(&each.served_requests),
            each.sync_count,
            each.awaited_sync_count,
            each.awaited_syncs_per_operation,
        );
    }
    if compared.iter().any(|each| each.cpu_us.is_none()) {
        text += "CPU us: not known, as a server is on another machine\n";
    }
    text + "served: requests to all targets, of MDTs to each other too; syncs: of MDTs' devices, one a second for each that has something to keep; awaited: somebody waited for it\n"
}

#[cfg(test)]
mod tests;
