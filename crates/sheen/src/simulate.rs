//! `sheen sim`: the simulation, from the command line.

use crate::cli::{self, Scenario, Sim};
use anyhow::{Context, bail};
use sim::Options;
use sim::churn::{ChurnOptions, Policy};
use sim::command::{self, Command};

/// Who acts at random takes each of a few clients through everything; more would only meet less often.
const CLIENT_COUNT_MAX: u16 = 16;

/// # Errors
/// If a seed fails, or something that a long run must contain never happened.
pub fn run(arguments: &Sim) -> anyhow::Result<()> {
    let (from, to) = Command::seeds(&arguments.seeds).context("seeds are written A..B")?;
    if from >= to {
        bail!("there is no seed in {}; write A..B with A below B", arguments.seeds);
    }
    let thread_count = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(Scenario::SpotChurn) = arguments.scenario {
        let policy = match arguments.policy {
            cli::Policy::Lease => Policy::Ours,
            cli::Policy::Lustre => Policy::Lustre,
        };
        let options = ChurnOptions { client_count: usize::from(arguments.clients), policy, trace_count: 0 };
        if !command::run_churn(from, to, &options, thread_count) {
            bail!("the simulation found something wrong");
        }
        return Ok(());
    }
    if arguments.clients > CLIENT_COUNT_MAX {
        bail!("{} clients are for a scenario; write at most {CLIENT_COUNT_MAX}", arguments.clients);
    }
    let options = Options {
        client_count: usize::from(arguments.clients),
        mdt_count: arguments.mdts,
        ost_count: arguments.osts,
        steps: arguments.steps as usize,
        ..Options::default()
    };
    if arguments.planted {
        return run_planted(&options, thread_count);
    }
    let command = Command { from, to, options, thread_count, is_verbose: arguments.verbose };
    if command.run() {
        Ok(())
    } else {
        bail!("the simulation found something wrong, or has shown too little")
    }
}

#[cfg(feature = "planted-faults")]
fn run_planted(options: &Options, thread_count: usize) -> anyhow::Result<()> {
    /// Each mistake must show within so many seeds. The rarest shows in one of some hundreds: somebody writes to a file that
    /// somebody else has removed, and its object is gone before the data come.
    const SEED_COUNT: u64 = 1000;
    if sim::command::run_planted(SEED_COUNT, options, thread_count) {
        Ok(())
    } else {
        bail!("a planted mistake was not found")
    }
}

#[cfg(not(feature = "planted-faults"))]
fn run_planted(_options: &Options, _thread_count: usize) -> anyhow::Result<()> {
    bail!("this build has no planted mistakes: build it with --features planted-faults")
}
