//! What `sheen sim --scenario rename-deadlock` prints.

use super::{CONTESTS, Contest, Exploration, explore, explore_overtaking, repeat};
use crate::Violation;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The last lines of an order that is repeated alone.
const TRACE_COUNT: usize = 400;

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// All contests, unless one is named.
    pub contest: Option<&'static Contest>,
    /// Orders of each contest that are run at most.
    pub schedule_count_max: u64,
    /// Instead, all orders in which frames overtake others so many times at most.
    pub overtaking_max: Option<usize>,
    /// For those that are drawn at random.
    pub seed: u64,
    /// One order only, of the contest that is named.
    pub places: Option<Vec<usize>>,
    pub thread_count: usize,
}

/// Runs what is asked for and prints a line for each contest. True when all is well.
pub fn print(request: &Request) -> bool {
    if let (Some(contest), Some(places)) = (request.contest, &request.places) {
        let outcome = repeat(contest, places, TRACE_COUNT);
        outcome.trace.iter().for_each(|line| println!("{line}"));
        match &outcome.violation {
            Some(violation) => tell(contest, violation, places),
            None => println!("{}: this order is well", contest.name),
        }
        return outcome.violation.is_none();
    }
    println!(
        "{:<20} {:>9} {:>9} {:>7} {:>10} {:>9}",
        "renames", "orders", "redundant", "random", "frames max", "complete"
    );
    let contests: Vec<&Contest> = CONTESTS
        .iter()
        .filter(|contest| request.contest.is_none_or(|only| only.name == contest.name))
        .collect();
    let (next, is_well) = (AtomicUsize::new(0), Mutex::new(true));
    std::thread::scope(|scope| {
        for _ in 0..request.thread_count {
            scope.spawn(|| {
                while let Some(contest) = contests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let seen = match request.overtaking_max {
                        Some(overtaking_max) => explore_overtaking(contest, overtaking_max),
                        None => explore(contest, request.schedule_count_max, request.seed),
                    };
                    // Lines of two threads do not mix.
                    let mut is_well = is_well.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    *is_well &= print_row(contest, &seen);
                }
            });
        }
    });
    let is_well = *is_well.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match request.overtaking_max {
        Some(count) => println!("all orders in which frames overtake others at most {count} times"),
        None => println!("at most {} orders of each", request.schedule_count_max),
    }
    is_well
}

fn print_row(contest: &Contest, seen: &Exploration) -> bool {
    println!(
        "{:<20} {:>9} {:>9} {:>7} {:>10} {:>9}",
        contest.name,
        seen.schedule_count,
        seen.redundant_count,
        seen.random_count,
        seen.frame_count_max,
        if seen.is_complete { "yes" } else { "no" }
    );
    if let Some((violation, places)) = &seen.failure {
        tell(contest, violation, places);
    }
    seen.failure.is_none()
}

fn tell(contest: &Contest, violation: &Violation, places: &[usize]) {
    let places: Vec<String> = places.iter().map(usize::to_string).collect();
    println!(
        "sheen sim --scenario rename-deadlock --op {} --schedule {}\n    fails: [{}] {}",
        contest.name,
        places.join(","),
        violation.checker,
        violation.what
    );
}
