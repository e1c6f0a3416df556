//! In which order replays are executed: two that touch something in common in the order of their transaction numbers, whoever sends them;
//! others side by side, as they come.
//!
//! What is listed here has not been executed. So a replay may go when it is the first in all that it touches. One that touches everything
//! goes when it is the first of all, and none behind it goes before.

use base::fault::{Fault, planted};
use base::{ClientId, Fid, Transno};
use std::collections::{BTreeMap, BTreeSet};
use wire::manifest::Touched;

/// A replay: its number, and whose it is.
pub(super) type Place = (Transno, ClientId);

/// What two replays may have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    Inode(Fid),
    /// The shape of the tree.
    Moves,
    /// What is remembered of a slot is the last request in it.
    Slot(ClientId, u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has not come yet.
    Listed,
    Come,
    Running,
}

#[derive(Debug)]
struct Entry {
    slot: u16,
    /// Empty: everything.
    objects: BTreeSet<Object>,
    state: State,
}

impl Entry {
    fn is_everything(&self) -> bool {
        self.objects.is_empty()
    }
}

#[derive(Debug, Default)]
pub(super) struct Order {
    entries: BTreeMap<Place, Entry>,
    by_object: BTreeMap<Object, BTreeSet<Place>>,
    by_client: BTreeMap<ClientId, BTreeSet<Transno>>,
    everything: BTreeSet<Place>,
    /// What all entries take: each counts for itself, and for each of its objects.
    object_count: usize,
    /// Those that have come and may have become the first.
    candidates: BTreeSet<Place>,
    /// Those that were behind one that touches everything when it went.
    #[cfg(test)]
    looked_at_count: usize,
}

impl Order {
    /// Something that will be replayed. What is listed already stays as it is.
    pub fn list(&mut self, place: Place, slot: u16, touched: &Touched) {
        if self.entries.contains_key(&place) {
            return;
        }
        let mut objects = BTreeSet::new();
        if !touched.is_everything {
            objects.extend(touched.fids.iter().copied().map(Object::Inode));
            objects.extend(touched.is_move.then_some(Object::Moves));
            objects.insert(Object::Slot(place.1, slot));
        }
        for object in &objects {
            self.by_object.entry(*object).or_default().insert(place);
        }
        if objects.is_empty() {
            self.everything.insert(place);
        }
        self.by_client.entry(place.1).or_default().insert(place.0);
        self.object_count += 1 + objects.len();
        self.entries.insert(place, Entry { slot, objects, state: State::Listed });
    }

    /// How much is listed.
    pub fn object_count(&self) -> usize {
        self.object_count
    }

    /// What this would take at most.
    pub fn count_of(touched: &Touched) -> usize {
        let slot = 1;
        1 + slot + touched.fids.len() + usize::from(touched.is_move)
    }

    pub fn is_listed(&self, place: Place) -> bool {
        self.entries.contains_key(&place)
    }

    /// Whether a replay is no more than what was listed.
    pub fn covers(&self, place: Place, slot: u16, touched: &Touched) -> bool {
        let Some(entry) = self.entries.get(&place) else { return false };
        let has = |object: Object| entry.objects.contains(&object);
        let is_within = !touched.is_everything
            && touched.fids.iter().all(|fid| has(Object::Inode(*fid)))
            && (!touched.is_move || has(Object::Moves));
        entry.slot == slot && (entry.is_everything() || is_within)
    }

    pub fn has_started(&self, place: Place) -> bool {
        self.entries.get(&place).is_some_and(|entry| entry.state == State::Running)
    }

    pub fn note_come(&mut self, place: Place) {
        if let Some(entry) = self.entries.get_mut(&place).filter(|entry| entry.state == State::Listed) {
            entry.state = State::Come;
            self.candidates.insert(place);
        }
    }

    pub fn has_candidates(&self) -> bool {
        !self.candidates.is_empty()
    }

    /// The earliest that may be executed now. It is running from then on.
    pub fn start_next(&mut self) -> Option<Place> {
        while let Some(place) = self.candidates.pop_first() {
            if !self.is_first(place) && !planted(Fault::ReplayOrderIgnored) {
                // Looked at again when what is before it has gone.
                continue;
            }
            if let Some(entry) = self.entries.get_mut(&place) {
                entry.state = State::Running;
                return Some(place);
            }
        }
        None
    }

    fn is_first(&self, place: Place) -> bool {
        let Some(entry) = self.entries.get(&place) else { return false };
        if entry.is_everything() {
            return self.entries.first_key_value().is_some_and(|(first, _)| *first == place);
        }
        let is_first_of = |object: &Object| {
            let places = self.by_object.get(object);
            places.is_some_and(|places| places.first() == Some(&place))
        };
        self.everything.first().is_none_or(|first| place < *first) && entry.objects.iter().all(is_first_of)
    }

    /// The next one of a client of which only that is known has come: it touches everything, as far as anybody knows.
    pub fn list_next(&mut self, (place, slot): (Place, u16)) {
        self.list(place, slot, &Touched::everything());
        self.note_come(place);
    }

    /// It has been executed, and its client has sent what is `next`, if that is all that is known of it: who is behind that one waits
    /// as before, and need not be looked at.
    pub fn end(&mut self, place: Place, next: Option<(Place, u16)>) {
        next.into_iter().for_each(|next| self.list_next(next));
        self.remove(place);
    }

    /// It has been executed, or never will be.
    pub fn remove(&mut self, place: Place) {
        let Some(entry) = self.entries.remove(&place) else { return };
        self.object_count -= 1 + entry.objects.len();
        self.candidates.remove(&place);
        if let Some(its) = self.by_client.get_mut(&place.1) {
            its.remove(&place.0);
            if its.is_empty() {
                self.by_client.remove(&place.1);
            }
        }
        let mut next: Vec<Place> = Vec::new();
        for object in &entry.objects {
            let Some(places) = self.by_object.get_mut(object) else { continue };
            places.remove(&place);
            match places.first() {
                Some(first) => next.push(*first),
                None => drop(self.by_object.remove(object)),
            }
        }
        if entry.is_everything() {
            self.everything.remove(&place);
            let behind = self.entries.range(place..).map(|(behind, _)| *behind);
            let up_to = self.everything.first().copied();
            next.extend(behind.take_while(|behind| up_to.is_none_or(|up_to| *behind <= up_to)));
            #[cfg(test)]
            {
                self.looked_at_count += next.len();
            }
        } else if let Some(first) = self.everything.first() {
            next.push(*first);
        }
        let has_come =
            |place: &Place| self.entries.get(place).is_some_and(|entry| entry.state == State::Come);
        let come: Vec<Place> = next.into_iter().filter(has_come).collect();
        self.candidates.extend(come);
    }

    /// It had come, was not begun, and comes again.
    pub fn take_back(&mut self, place: Place) {
        if let Some(entry) = self.entries.get_mut(&place).filter(|entry| entry.state == State::Come) {
            entry.state = State::Listed;
            self.candidates.remove(&place);
        }
    }

    /// It was not executed, and comes again.
    pub fn put_back(&mut self, place: Place) {
        if let Some(entry) = self.entries.get_mut(&place).filter(|entry| entry.state == State::Running) {
            entry.state = State::Listed;
        }
    }

    /// What the client has not sent does not come any more.
    pub fn forget_missing(&mut self, client: ClientId) {
        self.forget_those(client, |state| state == State::Listed);
    }

    /// The same, and what it has sent is not wanted either. What runs goes on.
    pub fn forget_unstarted(&mut self, client: ClientId) {
        self.forget_those(client, |state| state != State::Running);
    }

    /// The client is gone.
    pub fn forget(&mut self, client: ClientId) {
        self.forget_those(client, |_| true);
    }

    fn forget_those(&mut self, client: ClientId, is_meant: impl Fn(State) -> bool) {
        let its: Vec<Transno> = self.by_client.get(&client).into_iter().flatten().copied().collect();
        for transno in its {
            let place = (transno, client);
            if self.entries.get(&place).is_some_and(|entry| is_meant(entry.state)) {
                self.remove(place);
            }
        }
    }

    /// Whether the client owes the first of what it has still to replay. Clients send the first ones first: what others wait for, if
    /// nothing runs, is owed by such a client, and never by one whose first ones wait for others.
    pub fn is_owing(&self, client: ClientId) -> bool {
        let first = self.by_client.get(&client).and_then(|its| its.first());
        let entry = first.and_then(|first| self.entries.get(&(*first, client)));
        entry.is_some_and(|entry| entry.state == State::Listed)
    }

    /// The inodes that what is to be replayed names; `None`: they are more than so many, or not known.
    pub fn inodes(&self, count_max: usize) -> Option<Vec<Fid>> {
        // They are the first objects.
        let inodes = self.by_object.keys().map_while(|object| match object {
            Object::Inode(fid) => Some(*fid),
            Object::Moves | Object::Slot(..) => None,
        });
        let inodes: Vec<Fid> = inodes.take(count_max + 1).collect();
        (self.everything.is_empty() && inodes.len() <= count_max).then_some(inodes)
    }

    /// Nothing is to be replayed, as far as is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Asserts that the indexes agree. It looks at all of them, and so not after each input.
    #[cfg(test)]
    pub fn check(&self) {
        let of_clients =
            self.by_client.iter().flat_map(|(client, its)| its.iter().map(|its| (*its, *client)));
        assert_eq!(of_clients.collect::<BTreeSet<_>>(), self.entries.keys().copied().collect());
        for (object, places) in &self.by_object {
            let is_in =
                |place: &Place| self.entries.get(place).is_some_and(|entry| entry.objects.contains(object));
            assert!(!places.is_empty() && places.iter().all(is_in), "{object:?}");
        }
        for place in &self.everything {
            assert!(self.entries.get(place).is_some_and(Entry::is_everything));
        }
        let counts = self.entries.values().map(|entry| 1 + entry.objects.len());
        assert_eq!(counts.sum::<usize>(), self.object_count);
        for place in &self.candidates {
            assert!(self.entries.get(place).is_some_and(|entry| entry.state == State::Come));
        }
    }
}

#[cfg(test)]
mod tests;
