//! Rounds: start workers, begin each phase at once, take the time of the slowest.

use super::cost::{Cost, Daemons, Meter};
use super::worker::{Phase, Step, Unit};
use super::{Kind, make_cold};
use crate::say;
use crate::sys;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

pub struct Plan {
    pub kind: Kind,
    pub procs: Vec<u32>,
    pub rounds: u32,
    pub file_count: u32,
    pub mib: u32,
    pub remount: Option<String>,
    pub is_cold: bool,
    /// Entries to list are of several types.
    pub is_mixed: bool,
}

/// A directory of our own in the one that is measured.
pub struct Place {
    pub measured: PathBuf,
    /// The process behind a null file system.
    pub null_pid: Option<u32>,
    work: PathBuf,
}

impl Place {
    /// # Errors
    /// If nothing can be made in it.
    pub fn new(measured: &Path) -> Result<Place> {
        let metadata = fs::metadata(measured);
        let metadata = metadata.with_context(|| format!("cannot measure {}", measured.display()))?;
        if !metadata.is_dir() {
            bail!("cannot measure {}: it is no directory", measured.display());
        }
        let measured = measured.canonicalize()?;
        let work = measured.join(format!("sheen-bench-{}", std::process::id()));
        fs::create_dir(&work).with_context(|| format!("cannot make {}", work.display()))?;
        Ok(Place { measured, null_pid: None, work })
    }

    /// Who works for it now; after `--remount` these are others.
    fn daemons(&self) -> Option<Daemons> {
        self.null_pid.map(Daemons::null).or_else(|| Daemons::of(&self.measured))
    }

    fn clear(&self) -> Result<()> {
        for entry in fs::read_dir(&self.work)? {
            let entry = entry?;
            let path = entry.path();
            let is_dir = entry.file_type()?.is_dir();
            let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.work) {
            say::note(format_args!("cannot remove {}: {error}", self.work.display()));
        }
    }
}

/// All rounds of one phase with one number of processes.
pub struct Samples {
    pub phase: Phase,
    pub procs: u32,
    pub of_place: Vec<Sample>,
    /// Empty when there is nothing to compare with.
    pub of_other: Vec<Sample>,
}

/// One phase of one round.
pub struct Sample {
    pub rate: f64,
    /// `None` when nobody can be asked.
    pub cost: Option<Cost>,
}

/// Does all rounds, one place after the other in each, so that what the machine does besides hits both.
///
/// # Errors
/// A worker that failed, in its own words.
pub fn run(plan: &Plan, place: &Place, other: Option<&Place>) -> Result<Vec<Samples>> {
    let mut all = Vec::new();
    for &procs in &plan.procs {
        let phases = plan.kind.phases().iter();
        let mut samples: Vec<Samples> = phases
            .map(|phase| Samples { phase: *phase, procs, of_place: Vec::new(), of_other: Vec::new() })
            .collect();
        for place in [Some(place), other].into_iter().flatten().filter(|_| plan.kind == Kind::Ls) {
            fill(plan, place)?;
            place.sync();
        }
        for _ in 0..plan.rounds {
            for (samples, sample) in samples.iter_mut().zip(round(plan, procs, place)?) {
                samples.of_place.push(sample);
            }
            let Some(other) = other else { continue };
            for (samples, sample) in samples.iter_mut().zip(round(plan, procs, other)?) {
                samples.of_other.push(sample);
            }
        }
        for place in [Some(place), other].into_iter().flatten() {
            place.clear()?;
        }
        all.append(&mut samples);
    }
    Ok(all)
}

impl Place {
    /// So that dropping caches finds nothing dirty.
    fn sync(&self) {
        if let Ok(dir) = File::open(&self.work) {
            // A file system that cannot sync a directory is measured all the same.
            let _ = dir.sync_all();
        }
    }
}

/// Entries to list, each with an xattr where it may have one.
fn fill(plan: &Plan, place: &Place) -> Result<()> {
    for number in 0..plan.file_count {
        let path = place.work.join(format!("name{number}"));
        make(plan, number, &path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    Ok(())
}

fn make(plan: &Plan, number: u32, path: &Path) -> io::Result<()> {
    match number % 10 {
        1 if plan.is_mixed => return std::os::unix::fs::symlink("somewhere", path),
        2 if plan.is_mixed => return sys::make_fifo(path),
        3 if plan.is_mixed => fs::create_dir(path)?,
        // The sizes differ, as they do in life.
        _ => fs::write(path, [b'x'; 16].get(..number as usize % 16).unwrap_or_default())?,
    }
    match sys::set_xattr(path, c"user.bench", b"value") {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        result => result,
    }
}

/// One round; a sample per phase.
fn round(plan: &Plan, procs: u32, place: &Place) -> Result<Vec<Sample>> {
    if plan.kind == Kind::Ls {
        make_cold(plan.remount.as_deref())?;
    }
    let mut workers =
        (0..procs).map(|index| Worker::start(plan, place, index)).collect::<Result<Vec<Worker>>>()?;
    let mut samples = Vec::new();
    for phase in plan.kind.phases() {
        for worker in &mut workers {
            worker.expect_ready()?;
        }
        if plan.is_cold && matches!(phase.step, Step::StreamIn { .. }) {
            make_cold(plan.remount.as_deref())?;
        }
        let meter = Meter::start(place.daemons());
        let started = Instant::now();
        for worker in &mut workers {
            worker.begin()?;
        }
        let amount = workers.iter_mut().map(Worker::expect_done).sum::<Result<u64>>()?;
        let elapsed = started.elapsed();
        let cost = meter.and_then(|meter| meter.stop(phase.operation_count(amount)));
        samples.push(Sample { rate: rate(phase.unit, amount, elapsed), cost });
    }
    for worker in workers {
        worker.end()?;
    }
    if plan.kind != Kind::Ls {
        place.clear()?;
    }
    Ok(samples)
}

pub fn rate(unit: Unit, amount: u64, elapsed: Duration) -> f64 {
    let per_second = amount as f64 / elapsed.as_secs_f64().max(1e-9);
    match unit {
        Unit::OperationsPerSecond => per_second,
        Unit::MibPerSecond => per_second / f64::from(1 << 20),
    }
}

/// The parent's end of one worker process, which dies with it.
struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(plan: &Plan, place: &Place, index: u32) -> Result<Worker> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args(["bench", "worker", "--kind", plan.kind.word(), "--dir"]).arg(&place.work);
        for (option, value) in [("--index", index), ("--files", plan.file_count), ("--mib", plan.mib)] {
            command.arg(option).arg(value.to_string());
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("the output of a worker is a pipe")?;
        Ok(Worker { child, input, output: BufReader::new(output) })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("a worker ended early ({}); see above", self.child.wait()?);
        }
        Ok(line)
    }

    fn expect_ready(&mut self) -> Result<()> {
        match self.line()?.trim() {
            "ready" => Ok(()),
            other => bail!("a worker said {other:?} instead of being ready"),
        }
    }

    fn begin(&mut self) -> Result<()> {
        let input = self.input.as_mut().context("the input of a worker is a pipe")?;
        input.write_all(b"go\n").context("a worker does not listen")
    }

    /// How much it did.
    fn expect_done(&mut self) -> Result<u64> {
        let line = self.line()?;
        let amount = line.strip_prefix("done ").and_then(|rest| rest.split(' ').next());
        amount.and_then(|amount| amount.parse().ok()).with_context(|| format!("a worker said {line:?}"))
    }

    fn end(mut self) -> Result<()> {
        self.input = None;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("a worker failed at its end ({status})");
        }
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // After `end` it is gone already; otherwise the round has failed and nobody wants its result.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
