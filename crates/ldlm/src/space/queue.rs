//! One resource: what is granted on it, and who waits.
//!
//! Who waits is behind one entry that is in its way, and is looked at again when that one has gone. Thousands may wait here, and each of
//! those before them goes in an input of its own.

mod entries;
mod kinds;

#[cfg(test)]
pub use entries::LOOKED_AT_COUNT;

use super::OpId;
use crate::mode::{is_compatible, policies_overlap};
use base::fault::{Fault, planted};
use base::{ClientId, Duration, Extent, LockId, Time};
use entries::Entries;
use std::collections::{BTreeMap, BTreeSet};
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
    /// In its queue, in the order of arrival.
    pub number: u64,
    /// Operations only: the client whose locks are no obstacle.
    exempt: Option<ClientId>,
    pub mode: LockMode,
    pub policy: LockPolicy,
    pub state: State,
}

impl Entry {
    pub fn client(holder: ClientId, lock: LockId, mode: LockMode, policy: LockPolicy) -> Entry {
        Entry {
            owner: Owner::Client(holder, lock),
            number: 0,
            exempt: None,
            mode,
            policy,
            state: State::Quiet,
        }
    }

    pub fn operation(op: OpId, exempt: Option<ClientId>, mode: LockMode, policy: LockPolicy) -> Entry {
        Entry { owner: Owner::Op(op), number: 0, exempt, mode, policy, state: State::Quiet }
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
        !self.is_same_party_as(later) && self.conflicts_with(later)
    }

    fn is_same_party_as(&self, other: &Entry) -> bool {
        match (self.owner, other.owner) {
            (Owner::Client(a, _), Owner::Client(b, _)) => a == b,
            (Owner::Op(a), Owner::Op(b)) => a == b,
            (Owner::Client(..), Owner::Op(_)) | (Owner::Op(_), Owner::Client(..)) => false,
        }
    }

    fn is_compatible_with(&self, other: &Entry) -> bool {
        is_compatible(self.mode, other.mode)
    }

    fn conflicts_with(&self, other: &Entry) -> bool {
        !self.is_compatible_with(other) && policies_overlap(self.policy, other.policy)
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
    granted: Entries,
    /// Mostly nobody waits.
    waiting: Option<Box<Waiting>>,
    last_number: u64,
    contended_until: Time,
    /// One client may have very many locks here, and none of them is in the way of another one of its own.
    parties: Parties,
}

#[derive(Debug, Default)]
struct Waiting {
    entries: Entries,
    /// For each of them one that is in its way, granted or waiting: it waits for as long as that one is there.
    blockers: BTreeMap<u64, u64>,
    /// The same, by the one in the way.
    behind: BTreeSet<(u64, u64)>,
    /// Those whose blocker has gone since they were looked at.
    doubtful: BTreeSet<u64>,
}

impl Waiting {
    fn put_behind(&mut self, number: u64, blocker: u64) {
        self.blockers.insert(number, blocker);
        self.behind.insert((blocker, number));
    }

    fn behind(&self, blocker: u64) -> impl Iterator<Item = u64> {
        self.behind.range((blocker, 0)..=(blocker, u64::MAX)).map(|(_, number)| *number)
    }

    /// Those of who is behind an entry that it keeps waiting no longer.
    fn doubt(&mut self, blocker: u64, is_free: impl Fn(&Entry) -> bool) {
        let free = |number: &u64| self.entries.get(*number).is_none_or(&is_free);
        let free: Vec<u64> = self.behind(blocker).filter(free).collect();
        for number in free {
            self.behind.remove(&(blocker, number));
            self.blockers.remove(&number);
            self.doubtful.insert(number);
        }
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.entries.remove(number)?;
        if let Some(blocker) = self.blockers.remove(&number) {
            self.behind.remove(&(blocker, number));
        }
        self.doubtful.remove(&number);
        Some(entry)
    }
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.waiting.is_none()
    }

    pub fn granted(&self) -> &[Entry] {
        self.granted.all()
    }

    pub fn waiting(&self) -> &[Entry] {
        self.waiting.as_ref().map_or(&[], |waiting| waiting.entries.all())
    }

    /// As it was granted.
    pub fn entry(&self, number: u64) -> Option<&Entry> {
        self.granted.get(number)
    }

    /// What one client has been granted.
    pub fn granted_to(&self, holder: ClientId) -> impl Iterator<Item = &Entry> {
        self.granted.of(holder)
    }

    /// What was granted that conflicts with this, whoever has it.
    pub fn granted_against(&self, mode: LockMode, policy: LockPolicy) -> impl Iterator<Item = &Entry> {
        self.granted.conflicting(Entry::operation(OpId(0), None, mode, policy))
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Grants an entry that has not waited; returns its number.
    pub fn grant(&mut self, mut entry: Entry) -> u64 {
        entry.number = self.next_number();
        self.put_granted(entry);
        entry.number
    }

    fn put_granted(&mut self, entry: Entry) {
        self.parties = match (self.parties, entry.owner) {
            (Parties::Nobody, Owner::Client(holder, _)) => Parties::One(holder),
            (Parties::One(one), Owner::Client(holder, _)) if one == holder => Parties::One(one),
            _ => Parties::Several,
        };
        self.granted.push(entry);
    }

    /// Has an entry wait that has to; returns its number.
    pub fn wait(&mut self, mut entry: Entry) -> u64 {
        entry.number = self.next_number();
        let blocker = self.blocker_of(&entry);
        let waiting = self.waiting.get_or_insert_default();
        waiting.entries.push(entry);
        match blocker {
            Some(blocker) => waiting.put_behind(entry.number, blocker),
            None => drop(waiting.doubtful.insert(entry.number)),
        }
        entry.number
    }

    pub fn set_state(&mut self, number: u64, state: State) -> Option<Entry> {
        self.granted.change(number, |entry| entry.state = state)
    }

    /// A granted lock becomes an operation's.
    pub fn retire(&mut self, number: u64, op: OpId) {
        let retired = self.granted.change(number, |entry| {
            *entry = Entry { number, ..Entry::operation(op, None, entry.mode, entry.policy) };
        });
        if retired.is_some() {
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
        let is_own = |earlier: &Entry| own_op.is_some_and(|op| earlier.owner == Owner::Op(op));
        let mut granted = self.granted_in_way_of(entry);
        granted.any(|earlier| !is_own(earlier))
            || self.ahead_of(&Entry { number: u64::MAX, ..*entry }).is_some()
    }

    fn granted_in_way_of(&self, entry: &Entry) -> impl Iterator<Item = &Entry> {
        let is_alone =
            matches!(entry.owner, Owner::Client(holder, _) if self.parties == Parties::One(holder));
        let entry = *entry;
        let granted = (!is_alone).then_some(&self.granted).into_iter();
        granted
            .flat_map(move |granted| granted.conflicting(entry))
            .filter(move |earlier| earlier.is_in_way_of(&entry))
    }

    fn ahead_of(&self, entry: &Entry) -> Option<u64> {
        self.waiting.as_ref()?.entries.ahead_of(entry)
    }

    /// One that keeps an entry waiting that has a number.
    fn blocker_of(&self, entry: &Entry) -> Option<u64> {
        // Who waits before goes later than what is granted, mostly: so most are behind the one before them, and are looked at once.
        self.ahead_of(entry).or_else(|| self.granted_in_way_of(entry).next().map(|granted| granted.number))
    }

    /// Takes out an entry, granted or waiting. `grant_waiting` says what follows.
    pub fn remove(&mut self, number: u64) {
        if self.granted.remove(number).is_some() {
            if self.granted.is_empty() {
                self.parties = Parties::Nobody;
            }
        } else if let Some(waiting) = &mut self.waiting {
            waiting.remove(number);
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.doubt(number, |_| true);
        }
        self.forget_nobody();
    }

    /// The same for all entries of an operation. What lies last goes first.
    pub fn remove_all(&mut self, mut numbers: Vec<u64>) {
        if numbers.len() > 1 {
            numbers.sort_by_cached_key(|number| std::cmp::Reverse(self.granted.place_of(*number)));
        }
        numbers.into_iter().for_each(|number| self.remove(number));
    }

    fn forget_nobody(&mut self) {
        if self.waiting.as_ref().is_some_and(|waiting| waiting.entries.is_empty()) {
            self.waiting = None;
        }
    }

    /// Moves everything that nothing is in the way of any more to the granted ones, in the order of the queue; returns it.
    pub fn grant_waiting(&mut self, now: Time) -> Vec<Entry> {
        let mut newly = Vec::new();
        while let Some(waiting) = &mut self.waiting
            && let Some(number) = waiting.doubtful.pop_first()
        {
            let Some(mut entry) = waiting.entries.get(number).copied() else { continue };
            if let Some(blocker) = self.blocker_of(&entry) {
                if let Some(waiting) = &mut self.waiting {
                    waiting.put_behind(number, blocker);
                }
                continue;
            }
            if let Some(waiting) = &mut self.waiting {
                waiting.remove(number);
                // It is in nobody's way who is exempt, now that it does not wait any more.
                waiting.doubt(number, |later| !entry.is_in_way_of(later));
            }
            self.expand(now, &mut entry);
            self.put_granted(entry);
            newly.push(entry);
        }
        self.forget_nobody();
        newly
    }

    /// Marks the locks that stand in the way of waiting entries as called back; returns those that were not yet. Only what began to wait
    /// now, or was granted now, can have made any.
    pub fn call_back(
        &mut self,
        (now, next): (Time, Time),
        new_waiting: Option<u64>,
        new_granted: &[Entry],
    ) -> Vec<(ClientId, LockId)> {
        let Some(waiting) = &self.waiting else { return Vec::new() };
        let entry = new_waiting.and_then(|number| waiting.entries.get(number));
        let mut quiet = entry.map(|entry| self.granted.quiet_in_way_of(entry)).unwrap_or_default();
        let is_in_way =
            |entry: &&Entry| waiting.entries.conflicting(**entry).any(|later| entry.is_in_way_of(later));
        quiet.extend(new_granted.iter().filter(is_in_way).map(|entry| entry.number));
        let mut called = Vec::new();
        for number in quiet {
            let state = State::CalledBack { since: now, next };
            let is_clients = |entry: &Entry| matches!(entry.owner, Owner::Client(..));
            if self.granted.get(number).is_some_and(is_clients)
                && let Some(Entry { owner: Owner::Client(holder, lock), .. }) = self.set_state(number, state)
            {
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
        let (Owner::Client(..), LockPolicy::Extent(wanted)) = (entry.owner, entry.policy) else {
            return;
        };
        if entry.mode == LockMode::Group {
            return;
        }
        let mut grown = Extent::WHOLE;
        if now < self.contended_until {
            grown = Extent::new(wanted.start, wanted.end.saturating_add(CONTENDED_GROWTH_BYTES));
        }
        // Somebody behind us in the queue may want the same bytes; he gets what we leave.
        for others in [Some(&self.granted), self.waiting.as_ref().map(|waiting| &waiting.entries)] {
            let room = others.map_or(grown, |others| others.room_for(entry, wanted));
            grown = Extent::new(grown.start.max(room.start), grown.end.min(room.end));
        }
        assert!(grown.contains(wanted), "a lock covers what was asked for");
        entry.policy = LockPolicy::Extent(grown);
    }

    pub fn check(&self) {
        self.granted.check();
        if let Parties::One(one) = self.parties {
            let is_its = |entry: &Entry| matches!(entry.owner, Owner::Client(holder, _) if holder == one);
            assert!(self.granted().iter().all(is_its), "others have something too");
        }
        assert_eq!(self.granted.is_empty(), self.parties == Parties::Nobody);
        for (index, a) in self.granted().iter().enumerate() {
            for b in self.granted().iter().skip(index + 1) {
                let is_fine = !a.is_in_way_of(b) || !b.is_in_way_of(a);
                assert!(is_fine, "two incompatible entries are granted: {a:?} and {b:?}");
            }
        }
        if let Some(waiting) = &self.waiting {
            self.check_waiting(waiting);
        }
    }

    fn check_waiting(&self, waiting: &Waiting) {
        waiting.entries.check();
        assert!(!waiting.entries.is_empty());
        assert!(waiting.doubtful.is_empty());
        assert_eq!(waiting.blockers.len(), waiting.entries.all().len());
        assert_eq!(waiting.blockers.len(), waiting.behind.len());
        for entry in waiting.entries.all() {
            let blocker = waiting.blockers.get(&entry.number).copied().unwrap_or_default();
            assert!(waiting.behind.contains(&(blocker, entry.number)));
            let granted = self.granted().iter().find(|granted| granted.number == blocker);
            let earlier = self.waiting().iter().find(|earlier| earlier.number == blocker);
            let is_blocked = match (granted, earlier) {
                (Some(granted), None) => granted.is_in_way_of(entry),
                (None, Some(earlier)) => earlier.number < entry.number && earlier.is_ahead_of(entry),
                _ => false,
            };
            assert!(is_blocked, "{entry:?} waits for nobody");
            let is_unasked = |granted: &&Entry| {
                granted.state == State::Quiet
                    && matches!(granted.owner, Owner::Client(..))
                    && granted.is_in_way_of(entry)
            };
            let unasked = self.granted().iter().find(is_unasked);
            assert!(unasked.is_none(), "{unasked:?} is in the way of {entry:?}, and nobody asks for it");
        }
    }
}
