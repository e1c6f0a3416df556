//! The search for a circle of waits for fcntl(2) locks that goes over several MDTs.
//!
//! The MDT at which a wait begins asks the others who waits for whom, from the owners in its way onwards, until it comes
//! back to the owner that waits, or there is nobody new to ask about. Every wait is known at its MDT before its search
//! begins, so of the waits in a circle the last one finds it. Two that find the same circle at once agree on which wait
//! is refused: the youngest. What was told may be out of date, so a circle counts when it is found twice.

use base::limits::FRAME_BODY_BYTES_MAX;
use std::collections::{BTreeMap, BTreeSet};
use wire::peer::{FlockOwner, FlockWait, FlockWaitId};

/// Owners in one search and in one question, and waits in one answer. What lies beyond is not searched.
pub const OWNERS_MAX: usize = 4096;
/// Owners in the way, in all waits of one answer.
pub const BLOCKERS_MAX: usize = 16_384;
/// At most, of a wait without its blockers and of a blocker.
const WAIT_BYTES: usize = 64;
const OWNER_BYTES: usize = 24;
const _: () = assert!(OWNERS_MAX * WAIT_BYTES + BLOCKERS_MAX * OWNER_BYTES < FRAME_BODY_BYTES_MAX);

/// What a search does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Every other MDT is to be asked about these.
    Ask(Vec<FlockOwner>),
    /// The youngest wait of a circle.
    Found(FlockWaitId),
    /// No circle.
    Over,
}

/// The search for a circle that a wait closes.
#[derive(Debug)]
pub struct Search {
    own: FlockWaitId,
    /// What the other MDTs said.
    told: BTreeMap<FlockOwner, Vec<FlockWait>>,
    asked: BTreeSet<FlockOwner>,
    has_found: bool,
    /// Owners that were gone on from.
    #[cfg(test)]
    looked_at_count: usize,
}

impl Search {
    pub fn new(own: FlockWaitId) -> Search {
        Search {
            own,
            told: BTreeMap::new(),
            asked: BTreeSet::new(),
            has_found: false,
            #[cfg(test)]
            looked_at_count: 0,
        }
    }

    pub fn tell(&mut self, waits: Vec<FlockWait>) {
        for wait in waits {
            self.told.entry(wait.owner).or_default().push(wait);
        }
    }

    /// Goes on with what is known now. `wait`: that of this search; `here`: what an owner
    /// waits for at this MDT.
    pub fn step(&mut self, wait: &FlockWait, here: impl Fn(FlockOwner) -> Vec<FlockWait>) -> Step {
        let mut reached = Reached::default();
        reached.go_on(&wait.blockers, self.own);
        while let Some((owner, youngest)) = reached.todo.pop() {
            #[cfg(test)]
            {
                self.looked_at_count += 1;
            }
            let waits = here(owner);
            for next in waits.iter().chain(self.told.get(&owner).into_iter().flatten()) {
                let youngest = youngest.max(next.id);
                if next.blockers.contains(&wait.owner) {
                    return self.found(wait, youngest);
                }
                reached.go_on(&next.blockers, youngest);
            }
        }
        let new: Vec<FlockOwner> = reached.seen.difference(&self.asked).copied().collect();
        if new.is_empty() {
            return Step::Over;
        }
        self.asked.extend(&new);
        Step::Ask(new)
    }

    fn found(&mut self, wait: &FlockWait, youngest: FlockWaitId) -> Step {
        if self.told.is_empty() || self.has_found {
            return Step::Found(youngest);
        }
        self.has_found = true;
        self.told.clear();
        let blockers: Vec<FlockOwner> = wait.blockers.iter().copied().take(OWNERS_MAX).collect();
        self.asked = blockers.iter().copied().collect();
        Step::Ask(blockers)
    }
}

/// Owners that a step comes to.
#[derive(Default)]
struct Reached {
    seen: BTreeSet<FlockOwner>,
    /// Those from whom it has not gone on, with the youngest wait on the way to each.
    todo: Vec<(FlockOwner, FlockWaitId)>,
}

impl Reached {
    /// Each is there once, whoever it is in the way of: many who are in each other's way name each other many times.
    fn go_on(&mut self, blockers: &[FlockOwner], youngest: FlockWaitId) {
        for owner in blockers {
            if self.seen.len() < OWNERS_MAX && self.seen.insert(*owner) {
                self.todo.push((*owner, youngest));
            }
        }
    }
}

/// The waits that follow from those of `owners`, one over the other. `here` as in `Search::step`.
pub fn follow(owners: Vec<FlockOwner>, here: impl Fn(FlockOwner) -> Vec<FlockWait>) -> Vec<FlockWait> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let mut blockers_left = BLOCKERS_MAX;
    let mut todo = owners;
    while let Some(owner) = todo.pop() {
        if seen.len() >= OWNERS_MAX || !seen.insert(owner) {
            continue;
        }
        for wait in here(owner) {
            if found.len() >= OWNERS_MAX || blockers_left == 0 {
                return found;
            }
            let blockers: Vec<FlockOwner> = wait.blockers.iter().copied().take(blockers_left).collect();
            blockers_left -= blockers.len();
            todo.extend(&blockers);
            found.push(FlockWait { id: wait.id, owner: wait.owner, blockers });
        }
    }
    found
}

#[cfg(test)]
mod tests;
