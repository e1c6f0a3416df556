//! Whether one side is faster: the difference of the medians, with an interval from the bootstrap.

use super::Ab;
use super::cost::SideCost;
use crate::bench::machine::Machine;
use anyhow::{Context, Result, bail};
use base::Rng;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use statrs::statistics::{Data, OrderStatistics};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// So many that the ends of the interval move by less than a hundredth of it from one seed to another.
const RESAMPLE_COUNT: usize = 10_000;
/// The same samples give the same interval.
const SEED: u64 = 1;
const CONFIDENCE_TAIL: f64 = 0.025;

/// How much faster the judged side is than the other, in percent of the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    pub percent: f64,
    /// The 95 % confidence interval.
    pub low_percent: f64,
    pub high_percent: f64,
    /// The interval does not contain zero.
    pub is_real: bool,
}

impl Difference {
    /// Both sides of the same rounds. A round is drawn as a whole: what the machine did then hit both.
    pub fn of_rounds(other: &[f64], judged: &[f64]) -> Difference {
        let count = other.len().min(judged.len());
        Difference::of(other, judged, |rng| {
            let drawn: Vec<usize> = (0..count).map(|_| below(rng, count)).collect();
            (drawn.clone(), drawn)
        })
    }

    /// Two runs that have nothing in common.
    pub fn of_runs(other: &[f64], judged: &[f64]) -> Difference {
        let draw = |rng: &mut Rng, count: usize| (0..count).map(|_| below(rng, count)).collect();
        Difference::of(other, judged, |rng| (draw(rng, other.len()), draw(rng, judged.len())))
    }

    fn of(
        other: &[f64],
        judged: &[f64],
        mut draw: impl FnMut(&mut Rng) -> (Vec<usize>, Vec<usize>),
    ) -> Difference {
        let mut rng = Rng::new(SEED);
        let taken = |samples: &[f64], drawn: &[usize]| -> Vec<f64> {
            drawn.iter().filter_map(|at| samples.get(*at).copied()).collect()
        };
        let resampled = (0..RESAMPLE_COUNT).map(|_| {
            let (of_other, of_judged) = draw(&mut rng);
            percent(taken(other, &of_other), taken(judged, &of_judged))
        });
        let mut resampled = Data::new(resampled.collect::<Vec<f64>>());
        let low_percent = resampled.quantile(CONFIDENCE_TAIL);
        let high_percent = resampled.quantile(1.0 - CONFIDENCE_TAIL);
        let percent = percent(other.to_vec(), judged.to_vec());
        let is_real = low_percent > 0.0 || high_percent < 0.0;
        Difference { percent, low_percent, high_percent, is_real }
    }

    /// Slower, really so, and by more than this.
    pub fn is_regression_beyond(&self, percent: f64) -> bool {
        self.is_real && self.percent < -percent
    }
}

fn below(rng: &mut Rng, count: usize) -> usize {
    rng.below(count.max(1) as u64) as usize
}

fn percent(other: Vec<f64>, judged: Vec<f64>) -> f64 {
    let (other, judged) = (Data::new(other).median(), Data::new(judged).median());
    (judged / other.max(f64::MIN_POSITIVE) - 1.0) * 100.0
}

/// Side A of a run that was stored with `--json`.
#[derive(Debug)]
pub struct Stored {
    pub config: String,
    /// What it was measured on, if that is not what is here.
    pub other_machine: Option<String>,
    phases: Vec<(String, Vec<f64>)>,
    costs: BTreeMap<String, SideCost>,
}

impl Stored {
    /// # Errors
    /// It cannot be read, is no such run, or is of another workload.
    pub fn read(path: &Path, options: &Ab) -> Result<Stored> {
        let name = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        Stored::parse(&text, options).with_context(|| format!("{name} is no baseline for this"))
    }

    pub fn parse(text: &str, options: &Ab) -> Result<Stored> {
        let run: Value = serde_json::from_str(text).context("it is no JSON")?;
        if run.get("bench").and_then(Value::as_str) != Some("ab") {
            bail!("it is not what `sheen bench ab --json` prints");
        }
        let workload = options.workload.kind().word();
        for (name, ours) in [
            ("workload", Value::from(workload)),
            ("mounts", options.mounts.into()),
            ("procs", options.procs.into()),
            ("files", options.files.into()),
            ("mib", options.mib.into()),
        ] {
            let theirs = run.get(name).unwrap_or(&Value::Null);
            if *theirs != ours {
                bail!("its {name} is {theirs}, and here it is {ours}; compare like with like");
            }
        }
        let phase = |phase: &Value| {
            let name = phase.get("operation")?.as_str()?.to_owned();
            let samples = phase.get("a")?.get("samples")?.as_array()?;
            Some((name, samples.iter().filter_map(Value::as_f64).collect::<Vec<f64>>()))
        };
        let phases = run.get("phases").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let config = run.get("a").and_then(Value::as_str).unwrap_or_default().to_owned();
        // A run of a version without costs has none.
        let cost = |phase: &Value| {
            let cost = serde_json::from_value(phase.get("a_cost")?.clone()).ok()?;
            Some((phase.get("operation")?.as_str()?.to_owned(), cost))
        };
        let costs = phases.iter().filter_map(cost).collect();
        let (machine, ours) = (Machine::deserialize(&run).ok(), Machine::this());
        let other_machine = match machine {
            Some(machine) if machine == ours => None,
            machine => {
                Some(machine.map_or_else(|| "an unknown machine".to_owned(), |machine| machine.to_string()))
            }
        };
        Ok(Stored { config, other_machine, costs, phases: phases.iter().filter_map(phase).collect() })
    }

    pub fn cost(&self, phase: &str) -> Option<SideCost> {
        self.costs.get(phase).cloned()
    }

    /// # Errors
    /// It did not measure this.
    pub fn rates(&self, phase: &str) -> Result<&[f64]> {
        let found = self.phases.iter().find(|(name, rates)| name == phase && !rates.is_empty());
        let found =
            found.with_context(|| format!("the baseline has no '{phase}'; choose phases with --only"))?;
        Ok(&found.1)
    }
}
