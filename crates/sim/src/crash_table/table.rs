//! All cases of an operation, and what came of them.

use super::down::OST_COUNT;
use super::{Case, Death, Down, Story, Syncs, case};
use crate::Violation;
use crate::sweep;

/// Places behind the last event: nothing is on its way there.
const NEVER: u64 = u64::MAX;

/// Which cases are run: all, but where something is named.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    pub syncs: Option<Syncs>,
    pub death: Option<Death>,
    pub at: Option<u64>,
    pub down: Option<Down>,
}

/// What came of the cases of one operation.
#[derive(Debug, Default)]
pub struct Row {
    /// Frames and syncs from the first operation to the quiet end: the most and the fewest, over when disks sync.
    pub event_counts: Option<(u64, u64)>,
    pub case_count: u64,
    pub last: Option<Case>,
    pub failures: Vec<(Case, Violation)>,
    /// Cases in which the client and a coordinator are gone with what was acknowledged.
    pub lost_count: u64,
    /// Those of them in which another MDT that had heard of it lives.
    pub saveable_count: u64,
    /// Cases in which only such an MDT had it, and brought it back.
    pub witness_count: u64,
    /// Cases in which the client is gone, and something acknowledged must be there.
    pub kept_count: u64,
    pub seconds: f64,
    pub digest: u64,
}

/// What is to be run of an operation.
#[derive(Debug, Default)]
pub struct Plan {
    pub cases: Vec<Case>,
    /// As in a `Row`.
    pub event_counts: Option<(u64, u64)>,
}

/// Every case of a story that the filter lets through. The run without a crash says how many places there are.
///
/// # Errors
/// The case without a crash that fails already.
pub fn plan(story: &'static Story, mdt_count: u16, filter: &Filter) -> Result<Plan, (Case, Violation)> {
    let mut plan = Plan::default();
    // With three MDTs there are many sets without it.
    let is_wanted = mdt_count == 2 || filter.down.is_some_and(Down::has_ost);
    let ost_count = if is_wanted && story.has_data(mdt_count) { OST_COUNT } else { 0 };
    for syncs in Syncs::all(mdt_count).filter(|syncs| filter.syncs.is_none_or(|only| only == *syncs)) {
        let down = Down::default();
        let control = Case { story, mdt_count, syncs, at: NEVER, down, death: Death::Process };
        let outcome = case::run(&control, 0);
        if let Some(violation) = outcome.violation {
            return Err((control, violation));
        }
        let count = outcome.counts.get("events").copied().unwrap_or(0);
        plan.event_counts = Some(
            plan.event_counts.map_or((count, count), |(most, fewest)| (most.max(count), fewest.min(count))),
        );
        let places = (0..=count).filter(|at| filter.at.is_none_or(|only| only == *at));
        for (at, down) in places.flat_map(|at| Down::all(mdt_count, ost_count).map(move |down| (at, down))) {
            // Where nobody is gone, all places are the control.
            let is_wanted = filter.down.map_or(!down.is_empty(), |only| only == down);
            for death in Death::ALL.into_iter().filter(|death| filter.death.is_none_or(|only| only == *death))
            {
                if is_wanted {
                    plan.cases.push(Case { story, mdt_count, syncs, at, down, death });
                }
            }
        }
    }
    Ok(plan)
}

/// Runs the cases of a story on so many threads, and ends early after a few failures, of each of which `on_failure` hears at once.
pub fn run_story(
    story: &'static Story,
    mdt_count: u16,
    filter: &Filter,
    thread_count: usize,
    failure_count_max: usize,
    on_failure: &(dyn Fn(&Case, &Violation) + Sync),
) -> Row {
    let Plan { cases, event_counts } = match plan(story, mdt_count, filter) {
        Ok(plan) => plan,
        Err((case, violation)) => {
            on_failure(&case, &violation);
            return Row {
                case_count: 1,
                last: Some(case),
                failures: vec![(case, violation)],
                ..Row::default()
            };
        }
    };
    let case_of = |number: u64| cases[number as usize];
    let run = |number: u64| case::run(&case_of(number), 0);
    let tell = |number: u64, violation: &Violation| on_failure(&case_of(number), violation);
    let report = sweep::sweep(0, cases.len() as u64, &run, thread_count, failure_count_max, &tell);
    let count = |name: &str| report.counts.get(name).copied().unwrap_or(0);
    Row {
        event_counts,
        case_count: report.seed_count,
        last: cases.last().copied(),
        lost_count: count("acknowledged and lost"),
        saveable_count: count("a witness would save"),
        witness_count: count("acknowledged and brought back by a witness"),
        kept_count: count("acknowledged and kept by a server"),
        failures: report
            .failures
            .into_iter()
            .map(|(number, violation)| (case_of(number), violation))
            .collect(),
        seconds: report.seconds,
        digest: report.digest,
    }
}
