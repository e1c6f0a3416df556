//! Entries of one queue, granted or waiting. Few are simply looked through. Many have indexes besides, so that what one client does costs
//! no look at what all the others have.

use super::kinds::Kinds;
use super::{Entry, Owner, State};
use base::{ClientId, Extent};
use std::collections::{BTreeMap, BTreeSet};
use wire::LockPolicy;

/// So many are looked through as fast as an index is, and most queues never have more.
const UNINDEXED_MAX: usize = 24;

#[derive(Debug, Default)]
pub struct Entries {
    /// In no order: what was last comes in the place of what goes.
    all: Vec<Entry>,
    index: Option<Box<Index>>,
}

#[cfg(test)]
thread_local! {
    /// Entries that were compared with something, in all queues.
    pub static LOOKED_AT_COUNT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[derive(Debug, Default)]
struct Index {
    /// By number.
    places: BTreeMap<u64, usize>,
    kinds: Kinds,
    /// Of those whose holders may have to be asked for them, and were not.
    quiet: Kinds,
    by_holder: BTreeSet<(ClientId, u64)>,
}

impl Index {
    fn insert(&mut self, entry: &Entry, place: usize) {
        self.places.insert(entry.number, place);
        self.kinds.insert(entry);
        if let Owner::Client(holder, _) = entry.owner {
            self.by_holder.insert((holder, entry.number));
            if entry.state == State::Quiet {
                self.quiet.insert(entry);
            }
        }
    }

    fn remove(&mut self, entry: &Entry) {
        self.places.remove(&entry.number);
        self.kinds.remove(entry);
        if let Owner::Client(holder, _) = entry.owner {
            self.by_holder.remove(&(holder, entry.number));
            if entry.state == State::Quiet {
                self.quiet.remove(entry);
            }
        }
    }
}

impl Entries {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn all(&self) -> &[Entry] {
        &self.all
    }

    pub fn push(&mut self, entry: Entry) {
        if let Some(index) = &mut self.index {
            index.insert(&entry, self.all.len());
        }
        self.all.push(entry);
        if self.index.is_none() && self.all.len() > UNINDEXED_MAX {
            let mut index = Box::<Index>::default();
            self.all.iter().enumerate().for_each(|(place, entry)| index.insert(entry, place));
            self.index = Some(index);
        }
    }

    pub fn place_of(&self, number: u64) -> Option<usize> {
        match &self.index {
            Some(index) => index.places.get(&number).copied(),
            None => self.all.iter().inspect(|_| note_look()).position(|entry| entry.number == number),
        }
    }

    pub fn get(&self, number: u64) -> Option<&Entry> {
        self.all.get(self.place_of(number)?)
    }

    /// The last one comes in its place.
    pub fn remove(&mut self, number: u64) -> Option<Entry> {
        let place = self.place_of(number)?;
        let entry = self.all.swap_remove(place);
        if let Some(index) = &mut self.index {
            index.remove(&entry);
            if let Some(moved) = self.all.get(place) {
                index.places.insert(moved.number, place);
            }
        }
        if self.all.len() <= UNINDEXED_MAX / 2 {
            self.index = None;
        }
        Some(entry)
    }

    /// Changes whose it is or how it stands, and not where it is.
    pub fn change(&mut self, number: u64, change: impl FnOnce(&mut Entry)) -> Option<Entry> {
        let place = self.place_of(number)?;
        let entry = self.all.get_mut(place)?;
        if let Some(index) = &mut self.index {
            index.remove(entry);
            change(entry);
            index.insert(entry, place);
        } else {
            change(entry);
        }
        Some(*entry)
    }

    fn numbered(&self, numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = &Entry> {
        numbers.inspect(|_| note_look()).filter_map(|number| self.get(number))
    }

    /// Those that are to be looked through.
    fn unindexed(&self) -> impl Iterator<Item = &Entry> {
        let unindexed = if self.index.is_none() { self.all.as_slice() } else { &[] };
        unindexed.iter().inspect(|_| note_look())
    }

    /// All whose mode and part conflict with those of an entry, whoever they are.
    pub fn conflicting(&self, entry: Entry) -> impl Iterator<Item = &Entry> {
        let indexed = self.index.iter().flat_map(move |index| index.kinds.conflicting(entry));
        self.numbered(indexed).chain(self.unindexed().filter(move |other| other.conflicts_with(&entry)))
    }

    /// Clients' entries in the way of one that waits whose holders were not asked for them, in the order in which they lie here.
    pub fn quiet_in_way_of(&self, entry: &Entry) -> Vec<u64> {
        let is_meant = |other: &&Entry| {
            matches!(other.owner, Owner::Client(..))
                && other.state == State::Quiet
                && other.is_in_way_of(entry)
        };
        let Some(index) = &self.index else {
            return self.unindexed().filter(is_meant).map(|other| other.number).collect();
        };
        let quiet = self.numbered(index.quiet.conflicting(*entry)).filter(is_meant);
        let mut quiet: Vec<u64> = quiet.map(|other| other.number).collect();
        quiet.sort_by_key(|number| index.places.get(number));
        quiet
    }

    /// One that keeps this one waiting, of those that came earlier; the last one, if they want the same.
    pub fn ahead_of(&self, entry: &Entry) -> Option<u64> {
        let is_ahead = |other: &Entry| other.number < entry.number && other.is_ahead_of(entry);
        let Some(index) = &self.index else {
            let ahead = self.unindexed().filter(|other| is_ahead(other));
            return ahead.map(|other| other.number).max();
        };
        let alike = index.kinds.last_alike(*entry, |number| {
            note_look();
            self.get(number).is_some_and(is_ahead)
        });
        let mut unlike = self.numbered(index.kinds.conflicting_unlike(*entry));
        alike.or_else(|| unlike.find(|other| is_ahead(other)).map(|other| other.number))
    }

    /// Those of one client.
    pub fn of(&self, holder: ClientId) -> impl Iterator<Item = &Entry> {
        let indexed = self.index.iter().flat_map(move |index| {
            index.by_holder.range((holder, 0)..=(holder, u64::MAX)).map(|(_, number)| *number)
        });
        let is_its = move |entry: &&Entry| matches!(entry.owner, Owner::Client(other, _) if other == holder);
        self.numbered(indexed).chain(self.unindexed().filter(is_its))
    }

    /// How far a client's lock over these bytes may grow before it meets another client's; no further than the bytes if it overlaps one.
    pub fn room_for(&self, entry: &Entry, wanted: Extent) -> Extent {
        let is_others = |other: &Entry| !other.is_same_party_as(entry);
        if let Some(index) = &self.index {
            if self.conflicting(*entry).any(is_others) {
                return wanted;
            }
            return index.kinds.room_around(*entry, wanted, |number| {
                note_look();
                self.get(number).is_some_and(is_others)
            });
        }
        let mut room = Extent::new(0, u64::MAX);
        for other in self.unindexed().filter(|other| is_others(other) && !other.is_compatible_with(entry)) {
            let LockPolicy::Extent(taken) = other.policy else { continue };
            if taken.end <= wanted.start {
                room.start = room.start.max(taken.end);
            } else if taken.start >= wanted.end {
                room.end = room.end.min(taken.start);
            } else {
                return wanted;
            }
        }
        room
    }

    /// Asserts that the index agrees.
    pub fn check(&self) {
        let Some(index) = &self.index else { return };
        assert_eq!(index.places.len(), self.all.len());
        for (place, entry) in self.all.iter().enumerate() {
            assert_eq!(index.places.get(&entry.number), Some(&place));
            let (is_quiet, is_clients) =
                (entry.state == State::Quiet, matches!(entry.owner, Owner::Client(..)));
            assert_eq!(index.quiet.has(entry), is_quiet && is_clients);
            assert!(index.kinds.has(entry));
        }
        let clients = self.all.iter().filter(|entry| matches!(entry.owner, Owner::Client(..)));
        assert_eq!(clients.count(), index.by_holder.len());
    }
}

fn note_look() {
    #[cfg(test)]
    LOOKED_AT_COUNT.set(LOOKED_AT_COUNT.get() + 1);
}
