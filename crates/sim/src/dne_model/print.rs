//! What `sheen sim --scenario dne-model` prints.

use super::explore::{Bounds, explore};
use super::rules::{Rule, Rules};
use super::stories::{SHOWN_BY, STORIES, Story};
use crate::state_space::{Exploration, in_parallel};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// All stories, unless one is named.
    pub story: Option<&'static Story>,
    pub bounds: Bounds,
    /// Only this rule is left out, and nothing else is explored.
    pub without: Option<Rule>,
    pub thread_count: usize,
}

/// Runs what is asked for and prints a line for each. True when every story holds with all rules, and none without one of them.
pub fn print(request: &Request) -> bool {
    if let Some(rule) = request.without {
        return print_without(&[rule], request);
    }
    println!("{:<30} {:>7} {}", "program", "witness", Exploration::heads());
    let stories = STORIES.iter().filter(|story| request.story.is_none_or(|only| only.name == story.name));
    let jobs: Vec<(&Story, Rules)> =
        stories.flat_map(|story| [(story, Rules::all()), (story, Rules::without_witness())]).collect();
    let states = AtomicUsize::new(0);
    let is_well = in_parallel(&jobs, request.thread_count, |(story, rules)| {
        let seen = explore(story, *rules, request.bounds);
        states.fetch_add(seen.state_count, Ordering::Relaxed);
        (
            seen.failure.is_none(),
            seen.to_row(&format!("{:<30} {:>7}", story.name, if rules.has_witness { "yes" } else { "no" })),
        )
    });
    let Bounds { crashes, deaths, checkpoints, copies, .. } = request.bounds;
    println!(
        "{} states, with {crashes} power failures, {deaths} clients gone, {checkpoints} checkpoints and {copies} copies at most",
        states.into_inner()
    );
    if request.story.is_some() { is_well } else { print_without(&Rule::ALL, request) && is_well }
}

/// Leaves out rules one by one. True when each was missed.
fn print_without(rules: &[Rule], request: &Request) -> bool {
    println!("{:<24} {:<30} {}", "left out", "program", Exploration::heads_without());
    let jobs: Vec<_> = SHOWN_BY.iter().filter(|(rule, ..)| rules.contains(rule)).collect();
    let is_alone = request.without.is_some();
    let is_well = in_parallel(&jobs, request.thread_count, |(rule, name, bounds)| {
        let Some(story) = request.story.or_else(|| Story::named(name)) else { return (false, String::new()) };
        let bounds = if request.story.is_some() { request.bounds } else { *bounds };
        let seen = explore(story, Rules::without(*rule), bounds);
        let what = format!("{:<24} {:<30}", format!("{rule:?}"), story.name);
        (seen.failure.is_some(), seen.to_row_without(&what, is_alone))
    });
    is_well && rules.iter().all(|rule| jobs.iter().any(|(shown, ..)| shown == rule))
}
