//! Rounds: start workers, begin each phase at once, take the time of the slowest.

use super::beside::{Readers, ShareMeter, Shares};
use super::cost::{Cost, Meter};
use super::dne;
use super::interrupt;
use super::listing::{Memory, MemoryMeter};
use super::partner::Partner;
use super::place::Place;
use super::plan::{Act, Kind, Phase, Plan, Step, Unit};
use super::tool::{self, Paths};
use super::{make_cold, shell};
use crate::progress::{Goal, Progress};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// All rounds of one phase with one number of processes.
pub struct Samples {
    pub phase: Phase,
    pub procs: u32,
    /// What has to come from servers, all processes together.
    pub needed_bytes: Option<u64>,
    pub of_place: Vec<Sample>,
    /// Empty when there is nothing to compare with.
    pub of_other: Vec<Sample>,
}

/// One phase of one round.
pub struct Sample {
    pub rate: f64,
    /// `None` when nobody can be asked.
    pub cost: Option<Cost>,
    pub shares: Shares,
    /// How long `cost` was counted: longer than the phase where what servers put off belongs to it.
    pub counted: Duration,
    /// Of a listing: when its first entry came, to the last of the workers; and what the process of the mount had in memory.
    pub first_entry: Option<Duration>,
    pub memory: Option<Memory>,
    /// Of a stream that was written: its rate until the last of the workers began its fsync.
    pub unsynced_rate: Option<f64>,
}

/// What was done in a phase.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Names, or bytes.
    amount: u64,
    first_entry: Option<Duration>,
    unsynced: Option<Duration>,
}

impl Done {
    fn add(&mut self, other: Done) {
        self.amount += other.amount;
        self.first_entry = self.first_entry.max(other.first_entry);
        self.unsynced = self.unsynced.max(other.unsynced);
    }
}

/// Does all rounds, one place after the other in each, so that what the machine does besides hits both.
///
/// # Errors
/// A worker that failed, in its own words.
pub fn run(plan: &Plan, place: &Place, other: Option<&Place>) -> Result<Vec<Samples>> {
    let mut all = Vec::new();
    let place_count = 1 + usize::from(other.is_some());
    let phase_count = plan.procs.len() * place_count * plan.rounds as usize * plan.phases().len();
    let progress = Progress::begin(plan.kind.word(), "phases", Goal::items(phase_count as u64));
    for &procs in &plan.procs {
        let plan = &plan.of_each(procs);
        let samples = |phase: &Phase| Samples {
            phase: *phase,
            procs,
            needed_bytes: plan.needed_bytes(phase, procs),
            of_place: Vec::new(),
            of_other: Vec::new(),
        };
        let mut samples: Vec<Samples> = plan.phases().iter().map(samples).collect();
        for place in [Some(place), other].into_iter().flatten() {
            progress.at("making what is measured");
            place.fill(plan)?;
        }
        for _ in 0..plan.rounds {
            for (samples, sample) in samples.iter_mut().zip(any_round(plan, procs, place, &progress)?) {
                samples.of_place.push(sample);
            }
            let Some(other) = other else { continue };
            // A null file system does what is first, or all.
            let of_other = Plan { is_null: other.null_pid.is_some(), ..plan.clone() };
            for (samples, sample) in samples.iter_mut().zip(any_round(&of_other, procs, other, &progress)?) {
                // Only the measured mount is mounted anew: the other one's caches are warm.
                if plan.client_remount_before(samples.phase.act).is_none() {
                    samples.of_other.push(sample);
                }
            }
        }
        for place in [Some(place), other].into_iter().flatten() {
            place.clear()?;
        }
        all.append(&mut samples);
    }
    Ok(all)
}

/// One round, in one place; a sample per phase, each of which is an item of the progress.
///
/// # Errors
/// A worker that failed, in its own words.
pub fn any_round(plan: &Plan, procs: u32, place: &Place, progress: &Progress) -> Result<Vec<Sample>> {
    match plan.kind {
        Kind::Walk | Kind::Beside | Kind::Move => tool_round(plan, place, progress),
        Kind::Md
        | Kind::Io
        | Kind::Stream
        | Kind::Direct
        | Kind::Ls
        | Kind::Names
        | Kind::Mmap
        | Kind::Small
        | Kind::Dne => round(plan, procs, place, progress),
    }
}

/// One round; a sample per phase.
fn round(plan: &Plan, procs: u32, place: &Place, progress: &Progress) -> Result<Vec<Sample>> {
    if matches!(plan.kind, Kind::Ls | Kind::Names) {
        make_cold(plan.remount.as_deref())?;
    }
    let mut workers =
        (0..procs).map(|index| Worker::start(plan, place, index)).collect::<Result<Vec<Worker>>>()?;
    let mut samples = Vec::new();
    for phase in plan.phases() {
        if plan.kind == Kind::Dne {
            workers.iter_mut().try_for_each(Worker::prepare)?;
        }
        for worker in &mut workers {
            worker.expect_ready()?;
        }
        samples.push(measure((plan, progress), place, &phase, None, || {
            workers.iter_mut().try_for_each(Worker::begin)?;
            let mut done = Done::default();
            workers.iter_mut().try_for_each(|worker| worker.expect_done().map(|its| done.add(its)))?;
            Ok(done)
        })?);
    }
    // First all of them, for what they still do they do side by side.
    workers.iter_mut().for_each(Worker::dismiss);
    for worker in workers {
        worker.end()?;
    }
    if !plan.kind.has_fixture() {
        place.clear()?;
    }
    Ok(samples)
}

/// The same by programs of the system, which do as much as they do.
fn tool_round(plan: &Plan, place: &Place, progress: &Progress) -> Result<Vec<Sample>> {
    let paths = Paths::new(&place.work, place.tree())?;
    let mut samples = Vec::new();
    for phase in plan.phases() {
        let Act::Tool { tool, is_beside, .. } = phase.act else { continue };
        tool.prepare(&paths)?;
        let readers = is_beside.then(|| Readers::start(plan, place)).transpose()?;
        let amount = u64::from(plan.file_count);
        let perform = || tool::run(&mut tool.command(&paths)).map(|()| Done { amount, ..Done::default() });
        samples.push(measure((plan, progress), place, &phase, readers.as_ref(), perform)?);
    }
    Ok(samples)
}

/// One phase, from cold caches where they are to be cold. `perform` says how much it did.
fn measure(
    (plan, progress): (&Plan, &Progress),
    place: &Place,
    phase: &Phase,
    readers: Option<&Readers>,
    perform: impl FnOnce() -> Result<Done>,
) -> Result<Sample> {
    progress.at(phase.name);
    interrupt::check()?;
    if plan.is_cold_before(phase.act) {
        make_cold(plan.remount.as_deref())?;
    }
    if let Some(command) = plan.client_remount_before(phase.act) {
        shell(command)?;
    }
    if phase.act == Act::Step(Step::StatUncached) {
        place.forget_names()?;
    }
    if let Act::Tool { tool, .. } = phase.act {
        tool.warm_program()?;
    }
    let settings = (place.apply_settings()?, dne::apply_settings(phase.act, place)?);
    let is_settled = plan.kind == Kind::Dne && !plan.is_null;
    if is_settled {
        dne::settle(place, progress)?;
    }
    let listing_pid = phase.lists().then(|| place.daemons().map(|daemons| daemons.client_pid())).flatten();
    let memory = listing_pid.and_then(MemoryMeter::start);
    let meter = Meter::start(place.metered());
    let (started, shares) = (Instant::now(), ShareMeter::start(readers)?);
    let Done { amount, first_entry, unsynced } = perform()?;
    let shares = shares.stop()?;
    let memory = memory.and_then(MemoryMeter::stop);
    if is_settled {
        dne::settle(place, progress)?;
    }
    let counted = started.elapsed();
    let operation_count = phase.operation_count(amount);
    let cost = meter.and_then(|meter| meter.stop(operation_count, plan.rpc_unit_count(operation_count)));
    drop(settings);
    progress.add(1, if phase.unit == Unit::MibPerSecond { amount } else { 0 });
    let unsynced_rate = unsynced.map(|elapsed| rate(phase.unit, amount, elapsed));
    let rate = rate(phase.unit, amount, shares.elapsed);
    Ok(Sample { rate, cost, shares, counted, first_entry, memory, unsynced_rate })
}

pub fn rate(unit: Unit, amount: u64, elapsed: Duration) -> f64 {
    let per_second = amount as f64 / elapsed.as_secs_f64().max(1e-9);
    match unit {
        Unit::OperationsPerSecond => per_second,
        Unit::MibPerSecond => per_second / f64::from(1 << 20),
    }
}

/// `done AMOUNT NANOS [first=NANOS] [unsynced=NANOS]`: when the first entry of a listing came, and when the fsync of a stream began.
fn done(line: &str) -> Option<Done> {
    let words = || line.strip_prefix("done ").unwrap_or_default().split_ascii_whitespace();
    let amount = words().next()?.parse().ok()?;
    let part = |name: &str| {
        let nanos = words().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
        nanos.map(Duration::from_nanos)
    };
    Some(Done { amount, first_entry: part("first"), unsynced: part("unsynced") })
}

/// One worker process, from outside.
struct Worker(Partner);

impl Worker {
    fn start(plan: &Plan, place: &Place, index: u32) -> Result<Worker> {
        let words = ["bench", "worker", "--kind", plan.kind.word(), "--dir"];
        let mut words: Vec<OsString> = words.map(OsString::from).to_vec();
        words.push(place.work_of(index).into());
        for (option, value) in [("--index", index), ("--files", plan.file_count), ("--mib", plan.mib)] {
            words.extend([option.into(), value.to_string().into()]);
        }
        let patterns: Vec<&str> = plan.patterns.iter().map(|pattern| pattern.word()).collect();
        if !patterns.is_empty() {
            words.extend(["--patterns".into(), patterns.join(",").into()]);
        }
        let ops: Vec<&str> = plan.ops.iter().map(|op| op.word()).collect();
        if !ops.is_empty() {
            words.extend(["--ops".into(), ops.join(",").into()]);
        }
        let is_null = place.null_pid.is_some();
        let is_client_cold = plan.remount_client.is_some();
        let switches = [
            ("--shared", plan.is_shared),
            ("--cold", plan.is_cold),
            ("--client-cold", is_client_cold),
            ("--null", is_null),
        ];
        words.extend(switches.iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option.into()));
        Ok(Worker(Partner::start("worker", words)?))
    }

    /// Nothing is counted now.
    fn prepare(&mut self) -> Result<()> {
        self.0.tell("prepare")
    }

    fn expect_ready(&mut self) -> Result<()> {
        self.0.expect("ready")
    }

    fn begin(&mut self) -> Result<()> {
        self.0.tell("go")
    }

    fn expect_done(&mut self) -> Result<Done> {
        let line = self.0.line()?;
        done(&line).with_context(|| format!("a worker said {line:?}"))
    }

    /// It has nothing more to wait for.
    fn dismiss(&mut self) {
        self.0.dismiss();
    }

    fn end(self) -> Result<()> {
        self.0.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_says_when_its_first_entry_came_and_its_fsync_began_and_the_last_one_counts() {
        let mut sum = Done::default();
        for line in ["done 5 100 first=20\n", "done 7 100 first=30 unsynced=80\n", "done 1 100 unsynced=90\n"]
        {
            sum.add(done(line).expect("a line of a worker"));
        }
        let nanos = |nanos| Some(Duration::from_nanos(nanos));
        assert_eq!((sum.amount, sum.first_entry, sum.unsynced), (13, nanos(30), nanos(90)));
        assert_eq!(done("done 1 100\n").map(|done| (done.first_entry, done.unsynced)), Some((None, None)));
        assert!(["ready\n", "done\n", "done x 1\n", ""].iter().all(|line| done(line).is_none()));
    }
}
