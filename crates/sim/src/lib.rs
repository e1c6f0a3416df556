//! Whole clusters on one thread: the real machines, a simulated clock, network and disks. Seeds in, verdict out.
//!
//! A run is a series of rounds. In each, every client runs one operation, all at the same time, while frames are lost,
//! copied and delayed and targets lose power. When all have ended, some order of them must explain all outcomes on a
//! model of POSIX ([`model`]); what was acknowledged must still be there after every crash. At the end everything
//! heals, and the machines, their disks and the model must agree ([`quiet`]).
//!
//! Same seed and options, same digest.

#![forbid(unsafe_code)]

pub mod churn;
mod clockwork;
mod cluster;
pub mod command;
pub mod crash_table;
mod damage;
pub mod dne_model;
mod frames;
pub mod model;
mod mount;
#[cfg(feature = "planted-faults")]
pub mod planted;
mod quiet;
pub mod rename_deadlock;
pub mod rename_locks;
mod servers;
pub mod state_space;
pub mod sweep;
mod workload;
mod world;

use std::collections::BTreeMap;

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Options {
    pub client_count: usize,
    pub mdt_count: u16,
    pub ost_count: u16,
    /// Operations of all clients together.
    pub steps: usize,
    /// Which evils may happen.
    pub weather: Weather,
    /// Several machines lose power together in one of so many rounds.
    pub blackout_one_in: u64,
    /// Events kept for the trace of a violation.
    pub trace_count: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            client_count: 3,
            mdt_count: 2,
            ost_count: 2,
            steps: 200,
            weather: Weather::default(),
            blackout_one_in: 50,
            trace_count: 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub has_loss: bool,
    pub has_crashes: bool,
    pub has_partitions: bool,
    pub has_deaths: bool,
    pub has_full_disks: bool,
    /// By operators.
    pub has_evictions: bool,
}

impl Default for Weather {
    fn default() -> Weather {
        Weather {
            has_loss: true,
            has_crashes: true,
            has_partitions: true,
            has_deaths: true,
            has_full_disks: true,
            has_evictions: true,
        }
    }
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which checker found it.
    pub checker: &'static str,
    pub what: String,
    /// Operations that had been started.
    pub step: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub digest: u64,
    /// Operations, faults and events by name.
    pub counts: BTreeMap<&'static str, u64>,
    pub violation: Option<Violation>,
    pub trace: Vec<String>,
}

/// Runs one seed.
pub fn run(seed: u64, options: &Options) -> Outcome {
    sweep::guarded(|shared| world::World::new(seed, options, shared).run())
}
