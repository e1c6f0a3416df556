#![allow(clippy::unwrap_used)]

use std::sync::Barrier;
use std::time::Duration;

use anyhow::bail;

use super::super::plan::Plan;
use super::*;
use crate::step::Verdict;

fn report(step: &Step) -> Report {
    let (name, note) = (step.name.clone(), String::new());
    Report { name, seconds: 0.0, verdict: Verdict::Passed, is_optional: step.is_optional, note }
}

fn shared(plan: &Plan) -> Vec<&Step> {
    plan.steps.iter().filter(|step| step.is_shared).collect()
}

#[test]
fn only_steps_that_say_so_run_beside_others_and_none_beside_what_it_needs() {
    let plan = Plan::new().unwrap();
    let steps: Vec<&Step> = plan.steps.iter().collect();
    let mut count = 0;
    for group in groups(&steps) {
        assert!(group.len() == 1 || group.iter().all(|step| step.is_shared));
        let needs_a_neighbour =
            |step: &&Step| group.iter().any(|other| step.needs.contains(&other.name.as_str()));
        assert!(!group.iter().any(needs_a_neighbour));
        count += group.len();
    }
    assert_eq!(count, steps.len());
    let is_large = |is_optional| {
        groups(&steps)
            .any(|group| group.len() > 10 && group.iter().all(|step| step.is_optional == is_optional))
    };
    assert!(is_large(false) && is_large(true), "the suites are apart from each other");
}

#[test]
fn as_many_run_at_a_time_as_there_are_lanes_and_reports_keep_their_order() {
    let plan = Plan::new().unwrap();
    let steps = &shared(&plan)[..6];
    let (meeting, running) = (Barrier::new(2), AtomicUsize::new(0));
    let reports = run(steps, 2, &|step| {
        assert!(running.fetch_add(1, Ordering::SeqCst) < 2);
        // Nobody goes on alone. The first of each pair ends last.
        if meeting.wait().is_leader() {
            thread::sleep(Duration::from_millis(5));
        }
        running.fetch_sub(1, Ordering::SeqCst);
        Ok(report(step))
    })
    .unwrap();
    let names: Vec<&str> = reports.iter().map(|report| report.name.as_str()).collect();
    assert_eq!(names, steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>());
}

#[test]
fn after_an_error_no_other_step_begins() {
    let plan = Plan::new().unwrap();
    let begun = AtomicUsize::new(0);
    let end = run(&shared(&plan), 1, &|step| match begun.fetch_add(1, Ordering::SeqCst) {
        0 => Ok(report(step)),
        _ => bail!("no more room"),
    });
    assert_eq!(end.err().map(|error| error.to_string()).as_deref(), Some("no more room"));
    assert_eq!(begun.into_inner(), 2);
}
