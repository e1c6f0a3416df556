//! What `sheen sim --scenario rename-locks` prints.

use super::rules::{Rule, Rules};
use super::steps::{Bounds, explore};
use super::stories::{SHOWN_BY, STORIES, Story};
use crate::state_space::{Exploration, in_parallel, tell};
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
    println!(
        "{:<16} {:>27} {:>10} {:>10} {:>8} {:>6} {:>9}",
        "renames", "with at most", "states", "events", "at rest", "depth", "complete"
    );
    let stories = STORIES.iter().filter(|story| request.story.is_none_or(|only| only.name == story.name));
    let jobs: Vec<(&Story, Bounds)> =
        stories.flat_map(|story| request.bounds.iter().map(move |bounds| (story, *bounds))).collect();
    let states = AtomicUsize::new(0);
    let is_well = in_parallel(&jobs, request.thread_count, |(story, bounds)| {
        let seen = explore(story, Rules::all(), *bounds);
        states.fetch_add(seen.state_count, Ordering::Relaxed);
        (seen.failure.is_none(), row(story, bounds, &seen))
    });
    println!("{} states", states.into_inner());
    if request.story.is_some() { is_well } else { print_without(&Rule::ALL, request) && is_well }
}

fn row(story: &Story, bounds: &Bounds, seen: &Exploration) -> String {
    let mut text = format!(
        "{:<16} {:>27} {:>10} {:>10} {:>8} {:>6} {:>9}\n",
        story.name,
        bounds.in_words(),
        seen.state_count,
        seen.event_count,
        seen.rest_count,
        seen.depth,
        if seen.is_complete { "yes" } else { "no" },
    );
    if let Some(failure) = &seen.failure {
        text += &tell(failure);
    }
    text
}

/// Leaves out rules one by one. True when each was missed.
fn print_without(rules: &[Rule], request: &Request) -> bool {
    println!("{:<22} {:<16} {:>10} {:>6}  what is found", "left out", "renames", "states", "events");
    let jobs: Vec<_> = SHOWN_BY.iter().filter(|(rule, ..)| rules.contains(rule)).collect();
    let is_alone = request.without.is_some();
    let is_well = in_parallel(&jobs, request.thread_count, |(rule, name, bounds)| {
        let Some(story) = request.story.or_else(|| Story::named(name)) else { return (false, String::new()) };
        let seen = explore(story, Rules::without(*rule), *bounds);
        let rule = format!("{rule:?}");
        let (what, event_count) = match &seen.failure {
            Some(failure) => (failure.what, failure.events.len()),
            None => ("NOTHING", 0),
        };
        let mut text =
            format!("{rule:<22} {:<16} {:>10} {event_count:>6}  {what}\n", story.name, seen.state_count);
        if let Some(failure) = seen.failure.as_ref().filter(|_| is_alone) {
            text += &tell(failure);
        }
        (seen.failure.is_some(), text)
    });
    is_well && jobs.len() == rules.len()
}
