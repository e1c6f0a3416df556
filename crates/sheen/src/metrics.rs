//! `sheen metrics`: what all processes of this machine count, for Prometheus.
//!
//! Each process says over its control socket what it counts; whoever prints or serves it asks all of them at once, and waits for nobody
//! longer than a scrape may take. Nothing is kept between scrapes, and no process is changed by one: a collector may come at any time,
//! also in a recovery. Labels have values from the configuration (targets, mounts) and from fixed lists; no client, file or process is one.

mod collect;
mod families;
mod listen;

use crate::cli;
use crate::control::{self, Ask, TargetStatus, Tell};
use crate::say;
use crate::served;
use crate::status;
use crate::sys;
use anyhow::Result;
pub use collect::of_node;
use families::{FAMILIES, Family, Kind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Where metrics are served when no place is named.
pub const ADDRESS: &str = "127.0.0.1:7989";

/// One figure of one process, as it goes over its control socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Name of its family. One that is not known here is of another version, and left out.
    pub family: String,
    /// In the order of the family's labels.
    pub labels: Vec<String>,
    pub value: f64,
}

/// Prints what all processes count, or serves it until the end.
///
/// # Errors
/// The address cannot be listened on.
pub fn run(arguments: &cli::Metrics) -> Result<()> {
    let Some(address) = &arguments.listen else {
        return say::outcome(&exposition());
    };
    sys::hold_end_signals();
    let address = start(address)?;
    say::note(format_args!("metrics are served on http://{address}/metrics"));
    sys::wait_for_end();
    Ok(())
}

/// Serves metrics of all processes of this machine from now on, as long as this process lives. Returns the address.
///
/// # Errors
/// The address cannot be listened on.
pub fn start(address: &str) -> Result<std::net::SocketAddr> {
    listen::start(address, exposition)
}

/// The text for a collector, of now.
fn exposition() -> String {
    let told = control::ask_all(&control::run_dir(), &Ask::Metrics);
    let is_silent = |tell: &Result<Tell>| tell.as_ref().is_err_and(control::is_silence);
    let silent: Vec<u32> = told.iter().filter(|(_, tell)| is_silent(tell)).map(|(pid, _)| *pid).collect();
    let mut gathered = Gathered::of(told);
    let mut heard = served::dirs_of_others(&silent);
    gathered.add_missed(&served::of_silent(&silent), &mut heard);
    for gone in served::gone(|_| false) {
        gathered.add_missed(&gone.targets, &mut heard);
    }
    let mut registry = Registry::default();
    registry.register_collector(Box::new(gathered));
    let mut text = String::new();
    // Writing to memory fails only where a family is declared wrongly, which a test would have found.
    let encoded = text::encode(&mut text, &registry);
    assert!(encoded.is_ok(), "metrics are declared as the encoder has them");
    text
}

/// What all processes said. Figures with the same labels are added up: two processes may know one target.
#[derive(Debug, Default)]
struct Gathered(BTreeMap<&'static str, BTreeMap<Vec<String>, f64>>);

impl Gathered {
    fn of(told: Vec<(u32, Result<Tell>)>) -> Gathered {
        let mut gathered = Gathered::default();
        let (mut answering, mut silent, mut refused) = (0.0, 0.0, 0.0);
        for (pid, tell) in told {
            match tell {
                Ok(tell) => {
                    answering += 1.0;
                    tell.metrics.into_iter().for_each(|sample| gathered.add(sample));
                }
                Err(error) => {
                    tracing::debug!(pid, "a process does not say what it counts: {error:#}");
                    // Who is just ending, or of a version that does not count, says so.
                    silent += f64::from(u8::from(control::is_silence(&error)));
                    refused += f64::from(u8::from(is_of_others(&error)));
                }
            }
        }
        for (state, count) in [("answering", answering), ("silent", silent), ("refused", refused)] {
            gathered.add(families::PROCESSES.sample(&[state], count));
        }
        gathered.add(families::BUILD.sample(&[env!("CARGO_PKG_VERSION")], 1.0));
        gathered
    }

    /// Targets whose process has died or says nothing, but for those that another one serves by now. `heard`: the directories of what is served
    /// or missed already, which tell the management servers of several clusters apart.
    fn add_missed(&mut self, targets: &[TargetStatus], heard: &mut BTreeSet<PathBuf>) {
        let known = self.0.get(families::TARGET_STATE.name);
        let is_told = |target: &&TargetStatus| {
            if target.name == "MGS" {
                return heard.contains(&target.dir);
            }
            let name = status::name_of(target);
            known.is_some_and(|states| states.keys().any(|labels| labels.first() == Some(&name)))
        };
        let missed: Vec<TargetStatus> = targets.iter().filter(|target| !is_told(target)).cloned().collect();
        heard.extend(missed.iter().map(|target| target.dir.clone()));
        collect::of_missed(&missed).into_iter().for_each(|sample| self.add(sample));
    }

    fn add(&mut self, sample: Sample) {
        let known = FAMILIES.iter().find(|family| family.name == sample.family);
        if let Some(family) = known.filter(|family| family.labels.len() == sample.labels.len()) {
            *self.0.entry(family.name).or_default().entry(sample.labels).or_default() += sample.value;
        }
    }
}

/// Whether a process is another user's, who alone may ask it.
fn is_of_others(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Figures of each process apart.
pub struct Figures(BTreeMap<(u32, String, Vec<String>), f64>);

/// What processes said that were asked.
pub fn figures_of(told: Vec<(u32, Result<Tell>)>) -> Figures {
    let samples = told.into_iter().flat_map(|(pid, tell)| {
        let metrics = tell.map(|tell| tell.metrics).unwrap_or_default();
        metrics.into_iter().map(move |sample| ((pid, sample.family, sample.labels), sample.value))
    });
    Figures(samples.collect())
}

impl Figures {
    pub fn get(&self, pid: u32, family: &str, labels: &[&str]) -> Option<f64> {
        let labels = labels.iter().map(ToString::to_string).collect();
        self.0.get(&(pid, family.to_owned(), labels)).copied()
    }

    /// Labels and value of all of one family.
    pub fn all(&self, family: &str) -> impl Iterator<Item = (&[String], f64)> {
        let of_family = self.0.iter().filter(move |((_, name, _), _)| name == family);
        of_family.map(|((_, _, labels), value)| (&labels[..], *value))
    }
}

impl Collector for Gathered {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in FAMILIES {
            if let Some(figures) = self.0.get(family.name) {
                encode_family(&mut encoder, family, figures)?;
            }
        }
        Ok(())
    }
}

fn encode_family(
    encoder: &mut DescriptorEncoder<'_>,
    family: &'static Family,
    figures: &BTreeMap<Vec<String>, f64>,
) -> fmt::Result {
    let kind = match family.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
    };
    let mut metric = encoder.encode_descriptor(family.name, family.doc, family.unit, kind)?;
    for (labels, value) in figures {
        let labels: Vec<(&str, &str)> =
            family.labels.iter().copied().zip(labels.iter().map(String::as_str)).collect();
        let one = metric.encode_family(&labels)?;
        match family.kind {
            Kind::Counter => ConstCounter::new(*value).encode(one)?,
            Kind::Gauge => ConstGauge::new(*value).encode(one)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
