//! One resource: what is granted on it, and who waits.

use super::OpId;
use crate::mode::{is_compatible, policies_overlap};
use base::fault::{Fault, planted};
use base::{ClientId, Duration, Extent, LockId, Time};
use std::collections::VecDeque;
use wire::{LockGrant, LockMode, LockPolicy, Resource};

/// After a callback a resource counts as contended for so long.
const CONTENDED: Duration = Duration::from_secs(10);
/// Under contention a lock grows only upwards and only so far: two writers of different parts of one file would
/// otherwise take the whole of it from each other again and again.
const CONTENDED_GROWTH_BYTES: u64 = 32 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Client(ClientId, LockId),
    Op(OpId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Quiet,
    /// Its holder was asked for it, first at `since`, and is asked again at `next`.
    CalledBack {
        since: Time,
        next: Time,
    },
    /// Its holder has given it up; it stays in the way until the server is done with it.
    Cancelling,
}

#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub owner: Owner,
    /// Operations only: the client whose locks are no obstacle.
    exempt: Option<ClientId>,
    pub mode: LockMode,
    pub policy: LockPolicy,
    pub state: State,
}

impl Entry {
    pub fn client(holder: ClientId, lock: LockId, mode: LockMode, policy: LockPolicy) -> Entry {
        Entry { owner: Owner::Client(holder, lock), exempt: None, mode, policy, state: State::Quiet }
    }

    pub fn operation(op: OpId, exempt: Option<ClientId>, mode: LockMode, policy: LockPolicy) -> Entry {
        Entry { owner: Owner::Op(op), exempt, mode, policy, state: State::Quiet }
    }

    pub fn grant(&self, lock: LockId, resource: Resource) -> LockGrant {
        LockGrant { lock, resource, mode: self.mode, policy: self.policy }
    }

    /// Whether `later` has to wait for this granted entry. Not symmetric: a lock that a client has does not keep an
    /// operation of its own waiting, but a lock that it asks for during the operation does wait: its answer could
    /// otherwise overtake what the operation changes.
    fn is_in_way_of(&self, later: &Entry) -> bool {
        let is_exempt = match (self.owner, later.owner) {
            (Owner::Client(holder, _), Owner::Op(_)) => later.exempt == Some(holder),
            _ => false,
        };
        !is_exempt && self.is_ahead_of(later)
    }

    /// Whether `later` has to wait for this entry while it waits itself. Here nobody is exempt: an operation that
    /// passed a waiting lock of its client would make an earlier entry wait for a later one, which can close a cycle.
    fn is_ahead_of(&self, later: &Entry) -> bool {
        let is_same_party = match (self.owner, later.owner) {
            (Owner::Client(a, _), Owner::Client(b, _)) => a == b,
            (Owner::Op(a), Owner::Op(b)) => a == b,
            (Owner::Client(..), Owner::Op(_)) | (Owner::Op(_), Owner::Client(..)) => false,
        };
        !is_same_party && self.conflicts_with(later)
    }

    fn conflicts_with(&self, other: &Entry) -> bool {
        !is_compatible(self.mode, other.mode) && policies_overlap(self.policy, other.policy)
    }
}

#[derive(Debug, Default)]
pub struct Queue {
    pub granted: Vec<Entry>,
    pub waiting: VecDeque<Entry>,
    contended_until: Time,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.waiting.is_empty()
    }

    pub fn granted_mut(&mut self, owner: Owner) -> Option<&mut Entry> {
        self.granted.iter_mut().find(|entry| entry.owner == owner)
    }

    /// Whether a new entry has to wait.
    pub fn is_blocked(&self, entry: &Entry) -> bool {
        self.is_blocked_but_for(entry, None)
    }

    /// The same for an entry that an operation takes for its client.
    pub fn is_blocked_but_for(&self, entry: &Entry, own_op: Option<OpId>) -> bool {
        if planted(Fault::LockGrantedWrongly) && matches!(entry.owner, Owner::Client(..)) {
            return false;
        }
        let is_own = |earlier: &&Entry| own_op.is_some_and(|op| earlier.owner == Owner::Op(op));
        self.granted.iter().filter(|earlier| !is_own(earlier)).any(|earlier| earlier.is_in_way_of(entry))
            || self.waiting.iter().any(|earlier| earlier.is_ahead_of(entry))
    }

    pub fn remove(&mut self, owner: Owner) {
        match self.granted.iter().position(|entry| entry.owner == owner) {
            Some(index) => drop(self.granted.swap_remove(index)),
            None => self.waiting.retain(|entry| entry.owner != owner),
        }
    }

    pub fn remove_all(&mut self, owner: Owner) {
        self.granted.retain(|entry| entry.owner != owner);
        self.waiting.retain(|entry| entry.owner != owner);
    }

    /// Moves everything that nothing is in the way of any more to the granted ones; returns it.
    pub fn grant_waiting(&mut self, now: Time) -> Vec<Entry> {
        let mut newly = Vec::new();
        let mut index = 0;
        while let Some(entry) = self.waiting.get(index) {
            if self.is_still_blocked(index, entry) {
                index += 1;
                continue;
            }
            let mut entry = self.waiting.remove(index).expect("the index was just looked at");
            self.expand(now, &mut entry);
            self.granted.push(entry);
            newly.push(entry);
        }
        newly
    }

    fn is_still_blocked(&self, index: usize, entry: &Entry) -> bool {
        self.granted.iter().any(|earlier| earlier.is_in_way_of(entry))
            || self.waiting.range(..index).any(|earlier| earlier.is_ahead_of(entry))
    }

    /// Marks the locks that stand in the way of waiting entries as called back; returns those that were not yet.
    pub fn call_back(&mut self, now: Time, next: Time) -> Vec<(ClientId, LockId)> {
        let mut called = Vec::new();
        if self.waiting.is_empty() {
            return called;
        }
        for entry in &mut self.granted {
            let Owner::Client(holder, lock) = entry.owner else { continue };
            if entry.state == State::Quiet && self.waiting.iter().any(|waiting| entry.is_in_way_of(waiting)) {
                entry.state = State::CalledBack { since: now, next };
                called.push((holder, lock));
            }
        }
        if !called.is_empty() {
            self.contended_until = now.after(CONTENDED);
        }
        called
    }

    /// Lets the extent of a client's lock grow to the largest one that nobody else holds or waits for.
    pub fn expand(&self, now: Time, entry: &mut Entry) {
        let (Owner::Client(holder, _), LockPolicy::Extent(wanted)) = (entry.owner, entry.policy) else {
            return;
        };
        if entry.mode == LockMode::Group {
            return;
        }
        let mut grown = Extent::WHOLE;
        if now < self.contended_until {
            grown = Extent::new(wanted.start, wanted.end.saturating_add(CONTENDED_GROWTH_BYTES));
        }
        for other in self.granted.iter().chain(&self.waiting) {
            let is_own = matches!(other.owner, Owner::Client(other, _) if other == holder);
            let LockPolicy::Extent(taken) = other.policy else { continue };
            if is_own || is_compatible(other.mode, entry.mode) {
                continue;
            }
            if taken.end <= wanted.start {
                grown.start = grown.start.max(taken.end);
            } else if taken.start >= wanted.end {
                grown.end = grown.end.min(taken.start);
            } else {
                // Somebody behind us in the queue wants the same bytes; he gets what we leave.
                grown = Extent::new(grown.start.max(wanted.start), grown.end.min(wanted.end));
            }
        }
        assert!(grown.contains(wanted), "a lock covers what was asked for");
        entry.policy = LockPolicy::Extent(grown);
    }

    pub fn check(&self) {
        for (index, a) in self.granted.iter().enumerate() {
            for b in self.granted.iter().skip(index + 1) {
                let is_fine = !a.is_in_way_of(b) || !b.is_in_way_of(a);
                assert!(is_fine, "two incompatible entries are granted: {a:?} and {b:?}");
            }
        }
        for (index, entry) in self.waiting.iter().enumerate() {
            assert!(self.is_still_blocked(index, entry), "{entry:?} waits for nobody");
        }
    }
}
