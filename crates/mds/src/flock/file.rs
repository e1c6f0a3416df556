//! The locks of one file, and who waits for some.

use super::ranges::Ranges;
use super::{Held, Key};
use base::{ClientId, Extent};
use std::collections::{BTreeMap, BTreeSet};
use wire::mdt::{FileLock, FlockKind};
use wire::peer::FlockWaitId;

/// What somebody wants: bytes by one kind of lock, and whether to be alone there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    is_flock: bool,
    extent: Extent,
    is_write: bool,
}

impl From<FileLock> for Wanted {
    fn from(lock: FileLock) -> Wanted {
        let is_write = lock.kind == FlockKind::Write;
        Wanted { is_flock: lock.is_flock, extent: lock.extent, is_write }
    }
}

impl Wanted {
    /// The first of an owner's ranges that is in the way.
    fn first_of(self, ranges: &Ranges) -> Option<FileLock> {
        ranges.overlapping(self.extent).find(|lock| self.is_write || lock.kind == FlockKind::Write)
    }
}

#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub id: FlockWaitId,
    pub wanted: Held,
    pub token: T,
    /// Of those in its way one: while that one is, nobody needs to look at the others.
    pub blocker: Key,
}

#[derive(Debug)]
pub(super) struct FileLocks<T> {
    /// Nobody is here without ranges.
    held: BTreeMap<Key, Ranges>,
    /// By their numbers, which are in the order of arrival.
    waiting: BTreeMap<u64, Waiting<T>>,
    /// Those, by `blocker`.
    behind: BTreeSet<(Key, u64)>,
    /// Those whose `blocker` has given something up since they were looked at.
    doubtful: BTreeSet<u64>,
    /// Owners that were compared with something wanted.
    #[cfg(test)]
    pub looked_at_count: std::cell::Cell<usize>,
}

impl<T> Default for FileLocks<T> {
    fn default() -> FileLocks<T> {
        FileLocks {
            held: BTreeMap::new(),
            waiting: BTreeMap::new(),
            behind: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            #[cfg(test)]
            looked_at_count: std::cell::Cell::new(0),
        }
    }
}

impl<T> FileLocks<T> {
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    pub fn held(&self) -> impl Iterator<Item = Held> {
        self.held
            .iter()
            .flat_map(|((client, ..), ranges)| ranges.iter().map(|lock| Held { client: *client, lock }))
    }

    pub fn ranges_of(&self, key: Key) -> Option<&Ranges> {
        self.held.get(&key)
    }

    pub fn is_held_by(&self, client: ClientId) -> bool {
        self.held.range(keys_of(client)).next().is_some()
    }

    pub fn waiting(&self) -> impl Iterator<Item = (u64, &Waiting<T>)> {
        self.waiting.iter().map(|(number, waiting)| (*number, waiting))
    }

    pub fn waiting_as(&self, number: u64) -> Option<&Waiting<T>> {
        self.waiting.get(&number)
    }

    /// The first lock in the way of each owner who has one there.
    pub fn conflicts(&self, wanted: Held) -> impl Iterator<Item = Held> {
        self.in_the_way_of(wanted.lock.into(), Some(wanted.key()))
    }

    /// The same, of whoever wants that, but for locks of one owner.
    fn in_the_way_of(&self, wanted: Wanted, but: Option<Key>) -> impl Iterator<Item = Held> {
        let others = self.held.iter().filter(move |(key, _)| {
            self.note_look();
            key.2 == wanted.is_flock && Some(**key) != but
        });
        others.filter_map(move |((client, ..), ranges)| {
            Some(Held { client: *client, lock: wanted.first_of(ranges)? })
        })
    }

    /// Whether an owner, who is another one, has something in the way.
    fn is_in_the_way(&self, key: Key, wanted: Held) -> bool {
        self.note_look();
        let wanted = Wanted::from(wanted.lock);
        self.held.get(&key).is_some_and(|ranges| wanted.first_of(ranges).is_some())
    }

    /// Clients in the way of those who wait. Many wait for the same, mostly: who holds what is in their way is looked for once.
    pub fn holders(&self) -> BTreeSet<ClientId> {
        let mut wanted: BTreeMap<Wanted, Option<Key>> = BTreeMap::new();
        for waiting in self.waiting.values() {
            let key = waiting.wanted.key();
            let alone = wanted.entry(waiting.wanted.lock.into()).or_insert(Some(key));
            // Of two owners who want it each is in the way of the other.
            *alone = alone.filter(|other| *other == key);
        }
        let holders = wanted.into_iter().flat_map(|(wanted, alone)| self.in_the_way_of(wanted, alone));
        holders.map(|held| held.client).collect()
    }

    fn has_conflict(&self, wanted: Held) -> bool {
        self.conflicts(wanted).next().is_some()
    }

    /// Sets a range to a kind for an owner that nobody is in the way of. Returns how many ranges the owner had, and has.
    pub fn set(&mut self, new: Held) -> (usize, usize) {
        let ranges = self.held.entry(new.key()).or_default();
        let count_before = ranges.len();
        ranges.set(new.lock);
        let count_after = ranges.len();
        if count_after == 0 {
            self.held.remove(&new.key());
        }
        // Who has more is in the way of whom he was in the way of.
        if new.lock.kind != FlockKind::Write {
            self.doubt(new.key(), new.lock.extent);
        }
        (count_before, count_after)
    }

    /// Takes all that a client holds; returns how many ranges that were.
    pub fn drop_held_by(&mut self, client: ClientId) -> usize {
        let keys: Vec<Key> = self.held.range(keys_of(client)).map(|(key, _)| *key).collect();
        let dropped = keys.into_iter().map(|key| {
            let ranges = self.held.remove(&key);
            self.doubt(key, Extent::WHOLE);
            ranges.map_or(0, |ranges| ranges.len())
        });
        dropped.sum()
    }

    /// An owner may be out of the way of those who want bytes of this extent.
    fn doubt(&mut self, key: Key, extent: Extent) {
        let behind = self.behind.range((key, 0)..=(key, u64::MAX)).map(|(_, number)| number);
        let wants_some = |number: &&u64| {
            self.waiting.get(number).is_some_and(|waiting| waiting.wanted.lock.extent.overlaps(extent))
        };
        self.doubtful.extend(behind.filter(wants_some));
    }

    pub fn wait(&mut self, waiting: Waiting<T>) {
        let number = waiting.id.number;
        self.behind.insert((waiting.blocker, number));
        self.waiting.insert(number, waiting);
    }

    /// A wait is over, however it ends.
    pub fn take_waiting(&mut self, number: u64) -> Option<Waiting<T>> {
        let waiting = self.waiting.remove(&number)?;
        self.behind.remove(&(waiting.blocker, number));
        self.doubtful.remove(&number);
        Some(waiting)
    }

    /// The first who waits with nobody in its way. Only those are looked at of whom that was not certain.
    pub fn next_free(&mut self) -> Option<u64> {
        while let Some(number) = self.doubtful.first().copied() {
            let waiting = self.waiting.get(&number)?;
            let (wanted, former) = (waiting.wanted, waiting.blocker);
            if !self.is_in_the_way(former, wanted) {
                let Some(blocker) = self.conflicts(wanted).next().map(|held| held.key()) else {
                    return Some(number);
                };
                self.behind.remove(&(former, number));
                self.behind.insert((blocker, number));
                self.waiting.get_mut(&number)?.blocker = blocker;
            }
            self.doubtful.remove(&number);
        }
        None
    }

    fn note_look(&self) {
        #[cfg(test)]
        self.looked_at_count.set(self.looked_at_count.get() + 1);
    }

    /// Asserts the invariants: nothing incompatible is held, and nobody waits without a reason.
    pub fn check(&self) {
        assert!(!self.is_empty());
        for (key, ranges) in &self.held {
            assert!(ranges.len() > 0, "{key:?} has none");
            ranges.check();
        }
        for held in self.held() {
            assert!(self.held.contains_key(&held.key()));
            assert!(!self.has_conflict(held));
        }
        for (number, waiting) in &self.waiting {
            assert!(self.has_conflict(waiting.wanted));
            assert!(waiting.blocker != waiting.wanted.key(), "nobody is in its own way");
            let is_known = self.is_in_the_way(waiting.blocker, waiting.wanted);
            assert!(is_known || self.doubtful.contains(number), "{number} is behind nobody");
        }
        assert!(self.doubtful.iter().all(|number| self.waiting.contains_key(number)));
        let behind = self.waiting.iter().map(|(number, waiting)| (waiting.blocker, *number));
        assert_eq!(behind.collect::<BTreeSet<_>>(), self.behind);
    }
}

/// All keys of a client.
pub(super) fn keys_of(client: ClientId) -> std::ops::RangeInclusive<Key> {
    (client, 0, false)..=(client, u64::MAX, true)
}
