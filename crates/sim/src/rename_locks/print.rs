//! What `sheen sim --scenario rename-locks` prints.

use super::rules::{Rule, Rules};
use super::steps::{Bounds, explore};
use super::stories::{SHOWN_BY, STORIES, Story};
use crate::state_space::{Exploration, in_parallel};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// All stories, unless one is named.
    pub story: Option<&'static Story>,
    /// Of each story, one exploration for each of these.
    pub bounds: Vec<Bounds>,
    /// Only this rule is left out, and nothing else is explored.
    pub without: Option<Rule>,
    pub thread_count: usize,
}

/// Runs what is asked for and prints a line for each. True when every story holds with all rules, and none without one of them.
pub fn print(request: &Request) -> bool {
    if let Some(rule) = request.without {
        return print_without(&[rule], request);
    }
    println!("{:<16} {:>27} {}", "renames", "with at most", Exploration::heads());
    let stories = STORIES.iter().filter(|story| request.story.is_none_or(|only| only.name == story.name));
    let jobs: Vec<(&Story, Bounds)> =
        stories.flat_map(|story| request.bounds.iter().map(move |bounds| (story, *bounds))).collect();
    let states = AtomicUsize::new(0);
    let is_well = in_parallel(&jobs, request.thread_count, |(story, bounds)| {
        let seen = explore(story, Rules::all(), *bounds);
        states.fetch_add(seen.state_count, Ordering::Relaxed);
        (seen.failure.is_none(), seen.to_row(&format!("{:<16} {:>27}", story.name, bounds.in_words())))
    });
    println!("{} states", states.into_inner());
    if request.story.is_some() { is_well } else { print_without(&Rule::ALL, request) && is_well }
}

/// Leaves out rules one by one. True when each was missed.
fn print_without(rules: &[Rule], request: &Request) -> bool {
    println!("{:<22} {:<16} {}", "left out", "renames", Exploration::heads_without());
    let jobs: Vec<_> = SHOWN_BY.iter().filter(|(rule, ..)| rules.contains(rule)).collect();
    let is_alone = request.without.is_some();
    let is_well = in_parallel(&jobs, request.thread_count, |(rule, name, bounds)| {
        let Some(story) = request.story.or_else(|| Story::named(name)) else { return (false, String::new()) };
        let seen = explore(story, Rules::without(*rule), *bounds);
        let what = format!("{:<22} {:<16}", format!("{rule:?}"), story.name);
        (seen.failure.is_some(), seen.to_row_without(&what, is_alone))
    });
    is_well && jobs.len() == rules.len()
}
