//! What `sheen sim --scenario crash-table` prints.

use super::table::{Filter, Row, run_story};
use super::{Case, STORIES, Story, case};
use crate::Violation;

/// Of an operation: after so many it is not gone on with.
const FAILURE_COUNT_MAX: usize = 5;
/// The last lines of a case that is repeated alone.
const TRACE_COUNT: usize = 400;

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Request {
    pub mdt_count: u16,
    /// All operations, unless one is named.
    pub story: Option<&'static Story>,
    pub filter: Filter,
    pub thread_count: usize,
}

/// Runs the cases and prints a line for each operation. True when all hold.
pub fn print(request: &Request) -> bool {
    println!(
        "{:<22} {:>7} {:>7} {:>6} {:>6} {:>7} {:>6} {:>8} {:>7}  digest",
        "operation", "events", "cases", "failed", "kept", "witness", "lost", "saveable", "seconds"
    );
    let mut sum = Row::default();
    for story in STORIES.iter().filter(|story| request.story.is_none_or(|only| only == *story)) {
        let Request { mdt_count, filter, thread_count, .. } = request;
        let row = run_story(story, *mdt_count, filter, *thread_count, FAILURE_COUNT_MAX, &tell);
        print_row(story.name, &row);
        if let (1, Some(case)) = (row.case_count, &row.last) {
            case::run(case, TRACE_COUNT).trace.iter().for_each(|line| println!("{line}"));
        }
        sum.case_count += row.case_count;
        sum.kept_count += row.kept_count;
        sum.lost_count += row.lost_count;
        sum.saveable_count += row.saveable_count;
        sum.witness_count += row.witness_count;
        sum.seconds += row.seconds;
        sum.digest = (sum.digest ^ row.digest).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sum.failures.extend(row.failures);
    }
    print_row("all", &sum);
    sum.failures.is_empty() && sum.case_count > 0
}

fn print_row(name: &str, row: &Row) {
    let events = match row.event_counts {
        Some((most, fewest)) if most == fewest => most.to_string(),
        Some((most, fewest)) => format!("{fewest}-{most}"),
        None => String::new(),
    };
    println!(
        "{name:<22} {events:>7} {:>7} {:>6} {:>6} {:>7} {:>6} {:>8} {:>7.1}  {:016x}",
        row.case_count,
        row.failures.len(),
        row.kept_count,
        row.witness_count,
        row.lost_count,
        row.saveable_count,
        row.seconds,
        row.digest
    );
}

fn tell(case: &Case, violation: &Violation) {
    println!("{case}\n    fails: [{}] {}", violation.checker, violation.what);
}

/// Plants mistakes that lose or halve operations; a case must fail for each.
#[cfg(feature = "planted-faults")]
pub fn print_planted(thread_count: usize) -> bool {
    use base::fault::{Fault, plant};
    let mut is_well = true;
    let anywhere =
        [Fault::PrepareForgotten, Fault::PartBeforeDurable, Fault::ReplaySkipped, Fault::CommitReportedEarly];
    // Nothing but an OST dies: it is the OST's part of the mistake that shows.
    let on_osts = [Fault::ReplaySkipped, Fault::CommitReportedEarly];
    let only_ost = || Filter { down: "ost0".parse().ok(), ..Filter::default() };
    let anywhere = anywhere.map(|fault| (fault, Filter::default()));
    for (fault, filter) in anywhere.into_iter().chain(on_osts.map(|fault| (fault, only_ost()))) {
        plant(Some(fault));
        let rows = STORIES.iter().map(|story| run_story(story, 2, &filter, thread_count, 1, &|_, _| {}));
        let found = rows.flat_map(|row| row.failures).next();
        plant(None);
        is_well &= found.is_some();
        let place = if filter.down.is_some() { " with a dead OST" } else { "" };
        match found {
            Some((case, Violation { checker, .. })) => {
                println!("{fault:?}: found{place} by [{checker}]: {case}");
            }
            None => println!("{fault:?}: NOT FOUND{place} by the crash table"),
        }
    }
    is_well
}
