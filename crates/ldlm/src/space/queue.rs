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

/// Whose entries are granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Parties {
    #[default]
    Nobody,
    One(ClientId),
    /// Or there were some, since anything was granted.
    Several,
}

#[derive(Debug, Default)]
pub struct Queue {
    granted: Vec<Entry>,
    pub waiting: VecDeque<Entry>,
    contended_until: Time,
    /// One client may have very many locks here, and none of them is in the way of another one of its own.
    parties: Parties,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.waiting.is_empty()
    }

    pub fn granted(&self) -> &[Entry] {
        &self.granted
    }

    /// Grants an entry; returns where it is now.
    pub fn grant(&mut self, entry: Entry) -> usize {
        self.parties = match (self.parties, entry.owner) {
            (Parties::Nobody, Owner::Client(holder, _)) => Parties::One(holder),
            (Parties::One(one), Owner::Client(holder, _)) if one == holder => Parties::One(one),
            _ => Parties::Several,
        };
        self.granted.push(entry);
        self.granted.len() - 1
    }

    /// Where the entry of an owner is among the granted ones. It is looked for where it should be first.
    pub fn position(&self, index: usize, owner: Owner) -> Option<usize> {
        match self.granted.get(index) {
            Some(entry) if entry.owner == owner => Some(index),
            _ => self.granted.iter().position(|entry| entry.owner == owner),
        }
    }

    pub fn granted_mut(&mut self, index: usize, owner: Owner) -> Option<&mut Entry> {
        let index = self.position(index, owner)?;
        self.granted.get_mut(index)
    }

    /// A granted lock becomes an operation's.
    pub fn retire(&mut self, index: usize, op: OpId) {
        if let Some(entry) = self.granted.get_mut(index) {
            *entry = Entry::operation(op, None, entry.mode, entry.policy);
            self.parties = Parties::Several;
        }
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
        let is_alone =
            matches!(entry.owner, Owner::Client(holder, _) if self.parties == Parties::One(holder));
        let is_own = |earlier: &&Entry| own_op.is_some_and(|op| earlier.owner == Owner::Op(op));
        let mut others = self.granted.iter().filter(|earlier| !is_own(earlier));
        (!is_alone && others.any(|earlier| earlier.is_in_way_of(entry)))
            || self.waiting.iter().any(|earlier| earlier.is_ahead_of(entry))
    }

    /// Takes out what is granted there. The last one comes in its place: returns whose that is, if it is another one.
    pub fn remove_granted(&mut self, index: usize) -> Option<Owner> {
        self.granted.swap_remove(index);
        if self.granted.is_empty() {
            self.parties = Parties::Nobody;
        }
        self.granted.get(index).map(|moved| moved.owner)
    }

    pub fn remove_waiting(&mut self, owner: Owner) {
        self.waiting.retain(|entry| entry.owner != owner);
    }

    /// Takes out all that an operation has and waits for. Returns whose entries have come to which places.
    pub fn remove_op(&mut self, op: OpId) -> Vec<(Owner, usize)> {
        let mut moved = Vec::new();
        for index in (0..self.granted.len()).rev() {
            if self.granted.get(index).is_some_and(|entry| entry.owner == Owner::Op(op)) {
                moved.extend(self.remove_granted(index).map(|owner| (owner, index)));
            }
        }
        self.remove_waiting(Owner::Op(op));
        moved
    }

    /// Moves everything that nothing is in the way of any more to the granted ones; returns it, with its places there.
    pub fn grant_waiting(&mut self, now: Time) -> Vec<(usize, Entry)> {
        let mut newly = Vec::new();
        let mut index = 0;
        while let Some(entry) = self.waiting.get(index) {
            if self.is_still_blocked(index, entry) {
                index += 1;
                continue;
            }
            let mut entry = self.waiting.remove(index).expect("the index was just looked at");
            self.expand(now, &mut entry);
            newly.push((self.grant(entry), entry));
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
        if let Parties::One(one) = self.parties {
            let is_its = |entry: &Entry| matches!(entry.owner, Owner::Client(holder, _) if holder == one);
            assert!(self.granted.iter().all(is_its), "others have something too");
        }
        assert_eq!(self.granted.is_empty(), self.parties == Parties::Nobody);
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
