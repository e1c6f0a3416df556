//! All orders of arrivals, of which those that differ only in the order of frames to different machines are one.
//!
//! Depth first, from the begin each time: machines cannot be copied. Sleep sets leave out what was seen in another order.
//! (Godefroid, Partial-Order Methods for the Verification of Concurrent Systems, 1996.) What is not seen within the bound is
//! drawn at random.

use super::contest::{self, Contest, Ended};
use crate::clockwork::Channel;
use crate::sweep::{self, Shared};
use crate::{Outcome, Violation};
use base::Rng;
use std::collections::BTreeSet;

/// A place where one of several frames arrives next.
struct Choice {
    enabled: Vec<Channel>,
    /// Those that need not come next: that was seen, with what has come since in another order.
    asleep: BTreeSet<Channel>,
    done: Vec<Channel>,
    chosen: Channel,
}

impl Choice {
    fn below(parent: Option<&Choice>, enabled: &[Channel]) -> Option<Choice> {
        let asleep: BTreeSet<Channel> = parent.map(Choice::asleep_below).unwrap_or_default();
        let chosen = *enabled.iter().find(|channel| !asleep.contains(channel))?;
        Some(Choice { enabled: enabled.to_vec(), asleep, done: Vec::new(), chosen })
    }

    /// Two arrivals depend on each other when they have one receiver.
    fn asleep_below(&self) -> BTreeSet<Channel> {
        let is_independent = |channel: &&Channel| channel.1 != self.chosen.1;
        self.asleep.iter().chain(&self.done).filter(is_independent).copied().collect()
    }

    /// Goes over to the next frame that could arrive here. False when all have.
    fn turn(&mut self) -> bool {
        self.done.push(self.chosen);
        let is_new = |channel: &&Channel| !self.asleep.contains(channel) && !self.done.contains(channel);
        let next = self.enabled.iter().find(is_new).copied();
        if let Some(next) = next {
            self.chosen = next;
        }
        next.is_some()
    }

    fn place(&self) -> Option<usize> {
        self.enabled.iter().position(|channel| *channel == self.chosen)
    }
}

/// What was seen of a contest.
#[derive(Debug, Default)]
pub struct Exploration {
    /// Orders that were run to their end, and those that turned out to be another one.
    pub schedule_count: u64,
    pub redundant_count: u64,
    /// Of the former, drawn at random.
    pub random_count: u64,
    /// There is no other order.
    pub is_complete: bool,
    /// Until all calls were answered, at most.
    pub frame_count_max: u64,
    /// What was wrong, and the choices that led there.
    pub failure: Option<(Violation, Vec<usize>)>,
}

/// Runs a contest in all orders, or in `schedule_count_max` of them, the second half of which are drawn at random.
pub fn explore(contest: &Contest, schedule_count_max: u64, seed: u64) -> Exploration {
    let mut seen = Exploration::default();
    let mut choices: Vec<Choice> = Vec::new();
    let bound = schedule_count_max.div_ceil(2);
    while seen.schedule_count + seen.redundant_count < bound && seen.failure.is_none() {
        let mut depth = 0;
        seen.run(contest, &mut |enabled| {
            if depth == choices.len() {
                choices.push(Choice::below(choices.last(), enabled)?);
            }
            depth += 1;
            let choice = &choices[depth - 1];
            assert_eq!(choice.enabled, enabled, "the same choices lead to the same place");
            choice.place()
        });
        while choices.last_mut().is_some_and(|choice| !choice.turn()) {
            choices.pop();
        }
        if choices.is_empty() {
            seen.is_complete = true;
            return seen;
        }
    }
    let mut rng = Rng::new(seed);
    while seen.schedule_count + seen.redundant_count < schedule_count_max && seen.failure.is_none() {
        seen.random_count += 1;
        seen.run(contest, &mut |enabled| Some(rng.below(enabled.len() as u64) as usize));
    }
    seen
}

/// Runs a contest in all orders in which, so many times at most, a frame arrives that is not the one that was sent first of those on
/// their way.
pub fn explore_overtaking(contest: &Contest, overtaking_max: usize) -> Exploration {
    /// How many could arrive, and the place of the one that did.
    struct Turn {
        count: usize,
        place: usize,
    }
    let mut seen = Exploration::default();
    let mut turns: Vec<Turn> = Vec::new();
    while seen.failure.is_none() {
        let mut depth = 0;
        seen.run(contest, &mut |enabled| {
            if depth == turns.len() {
                turns.push(Turn { count: enabled.len(), place: 0 });
            }
            depth += 1;
            let turn = &turns[depth - 1];
            assert_eq!(turn.count, enabled.len(), "the same choices lead to the same place");
            Some(turn.place)
        });
        let overtakes = |turns: &[Turn]| turns.iter().filter(|turn| turn.place > 0).count();
        while let Some(turn) = turns.pop() {
            if turn.place + 1 < turn.count && overtakes(&turns) < overtaking_max {
                turns.push(Turn { place: turn.place + 1, ..turn });
                break;
            }
        }
        if turns.is_empty() {
            seen.is_complete = seen.failure.is_none();
            return seen;
        }
    }
    seen
}

impl Exploration {
    fn run(&mut self, contest: &Contest, choose: &mut dyn FnMut(&[Channel]) -> Option<usize>) {
        let mut places = Vec::new();
        let mut ended = None;
        let outcome = sweep::guarded(|shared: Shared| {
            let mut note = |enabled: &[Channel]| {
                let place = choose(enabled)?;
                places.push(place);
                Some(place)
            };
            ended = Some(contest::run(contest, shared, 0, &mut note));
        });
        match (outcome.violation, ended) {
            (None, Some(Ended::Answered(frame_count))) => {
                self.schedule_count += 1;
                self.frame_count_max = self.frame_count_max.max(frame_count);
            }
            (None, _) => self.redundant_count += 1,
            (Some(violation), _) => self.failure = Some((violation, places)),
        }
    }
}

/// Runs one order again: the place of each frame among those that could arrive, and the first behind these.
pub fn repeat(contest: &Contest, places: &[usize], trace_count: usize) -> Outcome {
    sweep::guarded(|shared| {
        let mut places = places.iter();
        let mut choose = |_: &[Channel]| Some(places.next().copied().unwrap_or(0));
        contest::run(contest, shared, trace_count, &mut choose);
    })
}
