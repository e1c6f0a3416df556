//! `sheen sim`: the simulation, from the command line.

use crate::cli::{self, CrashTable, DneModel, Scenario, Sim};
use anyhow::{Context, bail};
use sim::Options;
use sim::churn::{ChurnOptions, Policy};
use sim::command::{self, Command};
use sim::crash_table::{self, Down, Filter, Request, STORIES, Story, Syncs};
use sim::dne_model::{self, Bounds, Rule};
use sim::rename_deadlock::{self, CONTESTS, Contest};
use sim::rename_locks;

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
    match arguments.scenario {
        Some(Scenario::SpotChurn) => run_spot_churn(arguments, (from, to), thread_count),
        Some(Scenario::CrashTable) => run_crash_table(arguments, thread_count),
        Some(Scenario::RenameDeadlock) => run_rename_deadlock(arguments, from, thread_count),
        Some(Scenario::DneModel) => run_dne_model(arguments, thread_count),
        Some(Scenario::RenameLocks) => run_rename_locks(arguments, thread_count),
        None => run_seeds(arguments, (from, to), thread_count),
    }
}

fn run_spot_churn(arguments: &Sim, (from, to): (u64, u64), thread_count: usize) -> anyhow::Result<()> {
    let policy = match arguments.policy {
        cli::Policy::Lease => Policy::Ours,
        cli::Policy::Lustre => Policy::Lustre,
        cli::Policy::Both => Policy::Both,
    };
    let options = ChurnOptions { client_count: usize::from(arguments.clients), policy, trace_count: 0 };
    if arguments.planted {
        return run_planted_churn(&options, thread_count);
    }
    if !command::run_churn(from, to, &options, thread_count) {
        bail!("the simulation found something wrong");
    }
    Ok(())
}

fn run_crash_table(arguments: &Sim, thread_count: usize) -> anyhow::Result<()> {
    let (mdt_count, CrashTable { op, at, down, sync, death }) = (arguments.mdts, &arguments.table);
    if !(2..=3).contains(&mdt_count) {
        bail!("the crash table is of 2 or 3 MDTs, and not of {mdt_count}; write --mdts 2 or --mdts 3");
    }
    let is_within = |down: &Down| down.is_within(mdt_count);
    let is_one_of_them = |syncs: &Syncs| Syncs::all(mdt_count).any(|known| known == *syncs);
    if !down.as_ref().is_none_or(is_within) || !sync.as_ref().is_none_or(is_one_of_them) {
        bail!("there is no such MDT among {mdt_count}; write --mdts 3, or name another");
    }
    let story = match op {
        None => None,
        Some(name) => {
            let names = || STORIES.iter().map(|story| story.name).collect::<Vec<_>>().join(", ");
            Some(
                Story::named(name)
                    .with_context(|| format!("there is no operation {name:?}; there are {}", names()))?,
            )
        }
    };
    let filter = Filter { syncs: *sync, death: *death, at: *at, down: *down };
    if !crash_table::print(&Request { mdt_count, story, filter, thread_count }) {
        bail!("a case of the crash table fails, or there is none");
    }
    Ok(())
}

fn run_rename_deadlock(arguments: &Sim, seed: u64, thread_count: usize) -> anyhow::Result<()> {
    let contest = match &arguments.table.op {
        None => None,
        Some(name) => {
            let names = || CONTESTS.iter().map(|contest| contest.name).collect::<Vec<_>>().join(", ");
            let contest = Contest::named(name);
            Some(contest.with_context(|| format!("there is no contest {name:?}; there are {}", names()))?)
        }
    };
    let request = rename_deadlock::Request {
        contest,
        schedule_count_max: arguments.orders,
        overtaking_max: arguments.overtaking.map(usize::from),
        seed,
        places: arguments.schedule.clone(),
        thread_count,
    };
    if !rename_deadlock::print(&request) {
        bail!("an order of frames leads to something wrong");
    }
    Ok(())
}

fn run_dne_model(arguments: &Sim, thread_count: usize) -> anyhow::Result<()> {
    let story = match &arguments.table.op {
        None => None,
        Some(name) => {
            let names = || dne_model::STORIES.iter().map(|story| story.name).collect::<Vec<_>>().join(", ");
            let story = dne_model::Story::named(name);
            Some(story.with_context(|| format!("there is no program {name:?}; there are {}", names()))?)
        }
    };
    let without = match &arguments.model.without {
        None => None,
        Some(name) => {
            let names = || Rule::ALL.iter().map(|rule| format!("{rule:?}")).collect::<Vec<_>>().join(", ");
            Some(
                Rule::named(name)
                    .with_context(|| format!("there is no rule {name:?}; there are {}", names()))?,
            )
        }
    };
    let DneModel { crashes, deaths, checkpoints, copies, states, .. } = arguments.model;
    let state_count_max = states as usize;
    let bounds = Bounds { crashes, deaths, checkpoints, copies, weak: Bounds::ALL_MDTS, state_count_max };
    if !dne_model::print(&dne_model::Request { story, bounds, without, thread_count }) {
        bail!("a state of the model must not be, or a rule is not missed");
    }
    Ok(())
}

fn run_rename_locks(arguments: &Sim, thread_count: usize) -> anyhow::Result<()> {
    let story = match &arguments.table.op {
        None => None,
        Some(name) => {
            let names =
                || rename_locks::STORIES.iter().map(|story| story.name).collect::<Vec<_>>().join(", ");
            let story = rename_locks::Story::named(name);
            Some(story.with_context(|| format!("there are no renames {name:?}; there are {}", names()))?)
        }
    };
    let rules = rename_locks::Rule::ALL;
    let without = match &arguments.model.without {
        None => None,
        Some(name) => {
            let names = || rules.iter().map(|rule| format!("{rule:?}")).collect::<Vec<_>>().join(", ");
            let rule = rename_locks::Rule::named(name);
            Some(rule.with_context(|| format!("there is no rule {name:?}; there are {}", names()))?)
        }
    };
    let bounds = rename_locks::Bounds::each_alone(arguments.model.states as usize).to_vec();
    if !rename_locks::print(&rename_locks::Request { story, bounds, without, thread_count }) {
        bail!("a state of the model must not be, or a rule is not missed");
    }
    Ok(())
}

fn run_seeds(arguments: &Sim, (from, to): (u64, u64), thread_count: usize) -> anyhow::Result<()> {
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
    all_found(sim::planted::run(options, thread_count))
}

#[cfg(feature = "planted-faults")]
fn run_planted_churn(options: &ChurnOptions, thread_count: usize) -> anyhow::Result<()> {
    all_found(sim::planted::run_churn(options, thread_count))
}

#[cfg(feature = "planted-faults")]
fn all_found(is_found: bool) -> anyhow::Result<()> {
    if is_found { Ok(()) } else { bail!("a planted mistake was not found") }
}

#[cfg(not(feature = "planted-faults"))]
fn run_planted_churn(_options: &ChurnOptions, _thread_count: usize) -> anyhow::Result<()> {
    bail!("this build has no planted mistakes: build it with --features planted-faults")
}

#[cfg(not(feature = "planted-faults"))]
fn run_planted(_options: &Options, _thread_count: usize) -> anyhow::Result<()> {
    bail!("this build has no planted mistakes: build it with --features planted-faults")
}
