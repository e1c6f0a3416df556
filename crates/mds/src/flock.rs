//! Advisory locks, flock(2) and fcntl(2), of all clients on the files of this MDT; in memory, replayed by clients.
//!
//! Ranges of one fcntl owner are split and merged as POSIX says; a flock lock is one per owner. The two kinds do not
//! see each other. A wait that closes a circle of fcntl locks of this MDT is refused at once; circles over several MDTs
//! are searched for with `deadlock`.

pub mod deadlock;
mod ranges;
mod waits;

use base::{ClientId, Extent, Fid, Status, WallTime};
use deadlock::{Search, Step};
use ranges::Ranges;
use std::collections::{BTreeMap, BTreeSet};
use waits::Waits;
use wire::mdt::{FileLock, FlockKind};
use wire::peer::{FlockOwner, FlockWait, FlockWaitId};

/// Locks of one client on this MDT, granted and waiting.
const LOCKS_PER_CLIENT_MAX: usize = if cfg!(test) { 2048 } else { 65_536 };
/// Ranges that a client names again. The bound above counts before a request is executed: one, or one that has waited, may leave two ranges
/// more of one. And of what was on its way to an MDT that is gone, the client names what it has in either case, in more pieces.
const REPLAYED_PER_CLIENT_MAX: usize = 2 * LOCKS_PER_CLIENT_MAX;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    client: ClientId,
    lock: FileLock,
}

impl Held {
    fn owner(&self) -> FlockOwner {
        FlockOwner { client: self.client, owner: self.lock.owner }
    }

    fn is_of(&self, client: ClientId, owner: u64, is_flock: bool) -> bool {
        self.key() == (client, owner, is_flock)
    }

    fn key(&self) -> Key {
        (self.client, self.lock.owner, self.lock.is_flock)
    }
}

/// Whose ranges are split and merged: an owner's, of one kind of lock.
type Key = (ClientId, u64, bool);

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

#[derive(Debug)]
struct Waiting<T> {
    id: FlockWaitId,
    wanted: Held,
    token: T,
}

#[derive(Debug)]
struct FileLocks<T> {
    /// Nobody is here without ranges.
    held: BTreeMap<Key, Ranges>,
    /// By their numbers, which are in the order of arrival.
    waiting: BTreeMap<u64, Waiting<T>>,
    /// Owners that were compared with something wanted.
    #[cfg(test)]
    looked_at_count: std::cell::Cell<usize>,
}

impl<T> FileLocks<T> {
    fn held(&self) -> impl Iterator<Item = Held> {
        self.held
            .iter()
            .flat_map(|((client, ..), ranges)| ranges.iter().map(|lock| Held { client: *client, lock }))
    }

    /// The first lock in the way of each owner who has one there.
    fn conflicts(&self, wanted: Held) -> impl Iterator<Item = Held> {
        self.in_the_way_of(wanted.lock.into(), Some(wanted.key()))
    }

    /// The same, of whoever wants that, but for locks of one owner.
    fn in_the_way_of(&self, wanted: Wanted, but: Option<Key>) -> impl Iterator<Item = Held> {
        let others = self.held.iter().filter(move |(key, _)| {
            #[cfg(test)]
            self.looked_at_count.set(self.looked_at_count.get() + 1);
            key.2 == wanted.is_flock && Some(**key) != but
        });
        others.filter_map(move |((client, ..), ranges)| {
            let mut theirs = ranges.overlapping(wanted.extent);
            let lock = theirs.find(|lock| wanted.is_write || lock.kind == FlockKind::Write)?;
            Some(Held { client: *client, lock })
        })
    }

    /// Clients in the way of those who wait. Many wait for the same, mostly: who holds what is in their way is looked for once.
    fn holders(&self) -> BTreeSet<ClientId> {
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
}

/// What became of a request; `Wait` keeps the token.
#[derive(Debug, PartialEq)]
pub enum Locked<T> {
    Now(T),
    Refused(T, Status),
    Wait(FlockWaitId),
}

/// All advisory locks of an MDT. `T` names a request that waits.
#[derive(Debug)]
pub struct Flocks<T> {
    mdt_index: u16,
    files: BTreeMap<Fid, FileLocks<T>>,
    counts: BTreeMap<ClientId, usize>,
    waits: Waits,
    next_wait: u64,
}

impl<T> Flocks<T> {
    pub fn new(mdt_index: u16) -> Flocks<T> {
        Flocks {
            mdt_index,
            files: BTreeMap::new(),
            counts: BTreeMap::new(),
            waits: Waits::default(),
            next_wait: 1,
        }
    }

    /// Takes, changes or releases a lock. Tokens of others that are served by that come in `granted`.
    #[allow(clippy::too_many_arguments)]
    pub fn lock(
        &mut self,
        now: WallTime,
        fid: Fid,
        client: ClientId,
        lock: FileLock,
        can_wait: bool,
        token: T,
        granted: &mut Vec<T>,
    ) -> Locked<T> {
        if lock.extent.is_empty() {
            return Locked::Refused(token, Status::Invalid);
        }
        let wanted = Held { client, lock };
        let is_full = self.counts.get(&client).copied().unwrap_or(0) >= LOCKS_PER_CLIENT_MAX;
        if is_full && (lock.kind != FlockKind::Unlock || self.is_split_by(fid, &wanted)) {
            return Locked::Refused(token, Status::NoLocks);
        }
        if lock.kind != FlockKind::Unlock && self.conflict(fid, &wanted).is_some() {
            if !can_wait {
                return Locked::Refused(token, Status::WouldBlock);
            }
            let id = FlockWaitId { since: now, mdt_index: self.mdt_index, number: self.next_wait };
            self.next_wait += 1;
            return self.wait(fid, Waiting { id, wanted, token }, granted);
        }
        self.set(fid, wanted);
        self.serve(fid, granted);
        Locked::Now(token)
    }

    fn wait(&mut self, fid: Fid, waiting: Waiting<T>, granted: &mut Vec<T>) -> Locked<T> {
        let (id, wanted) = (waiting.id, waiting.wanted);
        if wanted.lock.is_flock {
            // flock(2): a conversion gives up the old lock first; two that convert would wait for each other.
            self.set(fid, Held { lock: FileLock { kind: FlockKind::Unlock, ..wanted.lock }, ..wanted });
        } else if self.would_deadlock(fid, &waiting) {
            return Locked::Refused(waiting.token, Status::Deadlock);
        }
        self.waits.insert(fid, id.number, fcntl_owner(&wanted));
        self.files.entry(fid).or_insert_with(empty).waiting.insert(id.number, waiting);
        *self.counts.entry(wanted.client).or_default() += 1;
        self.serve(fid, granted);
        Locked::Wait(id)
    }

    /// The first lock in the way.
    pub fn test(&self, fid: Fid, client: ClientId, lock: FileLock) -> Option<FileLock> {
        self.conflict(fid, &Held { client, lock }).map(|held| held.lock)
    }

    fn conflict(&self, fid: Fid, wanted: &Held) -> Option<Held> {
        self.files.get(&fid)?.conflicts(*wanted).next()
    }

    /// Whether an unlock would leave its owner two ranges of one.
    fn is_split_by(&self, fid: Fid, unlock: &Held) -> bool {
        let extent = unlock.lock.extent;
        let is_around = |held: FileLock| held.extent.start < extent.start && extent.end < held.extent.end;
        let ranges = self.files.get(&fid).and_then(|file| file.held.get(&unlock.key()));
        ranges.is_some_and(|ranges| ranges.overlapping(extent).any(is_around))
    }

    /// Locks that a client had before a restart; refused if somebody else has one in the way, or if it cannot have had so many.
    ///
    /// # Errors
    /// `Stale`, `NoLocks`
    pub fn replay(&mut self, fid: Fid, client: ClientId, locks: &[FileLock]) -> Result<(), Status> {
        for lock in locks {
            let wanted = Held { client, lock: *lock };
            if self.counts.get(&client).is_some_and(|count| *count >= REPLAYED_PER_CLIENT_MAX) {
                return Err(Status::NoLocks);
            }
            if lock.extent.is_empty() || self.conflict(fid, &wanted).is_some() {
                return Err(Status::Stale);
            }
            self.set(fid, wanted);
        }
        Ok(())
    }

    /// Gives up waiting requests of an owner; returns their tokens.
    pub fn cancel(&mut self, fid: Fid, client: ClientId, owner: u64, is_flock: bool) -> Vec<T> {
        self.withdraw(fid, |waiting| waiting.wanted.is_of(client, owner, is_flock))
    }

    /// Gives up one wait, if it is still there.
    pub fn end_wait(&mut self, id: FlockWaitId) -> Option<T> {
        let fid = self.waits.file_of(id.number)?;
        if self.files.get(&fid)?.waiting.get(&id.number)?.id != id {
            return None;
        }
        let waiting = self.take_waiting(fid, id.number)?;
        self.forget_if_empty(fid);
        Some(waiting.token)
    }

    fn withdraw(&mut self, fid: Fid, is_meant: impl Fn(&Waiting<T>) -> bool) -> Vec<T> {
        let Some(file) = self.files.get(&fid) else { return Vec::new() };
        let meant = file.waiting.iter().filter(|(_, waiting)| is_meant(waiting));
        let meant: Vec<u64> = meant.map(|(number, _)| *number).collect();
        let taken = meant.into_iter().filter_map(|number| self.take_waiting(fid, number));
        let tokens = taken.map(|waiting| waiting.token).collect();
        self.forget_if_empty(fid);
        tokens
    }

    /// A wait is over, however it ends.
    fn take_waiting(&mut self, fid: Fid, number: u64) -> Option<Waiting<T>> {
        let waiting = self.files.get_mut(&fid)?.waiting.remove(&number)?;
        self.waits.remove(number, fcntl_owner(&waiting.wanted));
        uncount(&mut self.counts, waiting.wanted.client);
        Some(waiting)
    }

    /// Everything of a client goes. Tokens of others that are served by that come in `granted`.
    pub fn drop_client(&mut self, client: ClientId, granted: &mut Vec<T>) {
        if !self.counts.contains_key(&client) {
            return;
        }
        let fids: Vec<Fid> = self.files.keys().copied().collect();
        for fid in fids {
            let mine = |held: &Held| held.client == client;
            self.withdraw(fid, |waiting| mine(&waiting.wanted));
            if let Some(file) = self.files.get_mut(&fid) {
                file.held.retain(|(holder, ..), ranges| {
                    if *holder == client {
                        (0..ranges.len()).for_each(|_| uncount(&mut self.counts, client));
                    }
                    *holder != client
                });
            }
            self.serve(fid, granted);
        }
        assert!(!self.counts.contains_key(&client), "a dropped client has no advisory locks");
    }

    /// Clients whose locks others wait for.
    pub fn in_the_way(&self) -> BTreeSet<ClientId> {
        let files: BTreeSet<Fid> = self.waits.files().collect();
        files.iter().filter_map(|fid| self.files.get(fid)).flat_map(FileLocks::holders).collect()
    }

    /// Whether somebody waits.
    pub fn has_waiting(&self) -> bool {
        !self.waits.is_empty()
    }

    /// Files with locks.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Sets a range to a kind for an owner that nobody is in the way of: what it had there is cut or split, equal
    /// neighbours are merged.
    fn set(&mut self, fid: Fid, new: Held) {
        let file = self.files.entry(fid).or_insert_with(empty);
        let ranges = file.held.entry(new.key()).or_default();
        let count_before = ranges.len();
        ranges.set(new.lock);
        let count_after = ranges.len();
        if count_after == 0 {
            file.held.remove(&new.key());
        }
        let count = self.counts.entry(new.client).or_default();
        *count = *count + count_after - count_before;
        if *count == 0 {
            self.counts.remove(&new.client);
        }
        self.forget_if_empty(fid);
    }

    /// Grants what waits and has become possible, in the order of arrival.
    fn serve(&mut self, fid: Fid, granted: &mut Vec<T>) {
        loop {
            let Some(file) = self.files.get(&fid) else { return };
            let free = file.waiting.iter().find(|(_, waiting)| !file.has_conflict(waiting.wanted));
            let Some(number) = free.map(|(number, _)| *number) else { break };
            let Some(waiting) = self.take_waiting(fid, number) else { return };
            self.set(fid, waiting.wanted);
            granted.push(waiting.token);
        }
        self.forget_if_empty(fid);
    }

    /// Whether somebody in the way waits, over others or not, for this owner.
    fn would_deadlock(&self, fid: Fid, waiting: &Waiting<T>) -> bool {
        let wait = self.wait_of(fid, waiting);
        matches!(Search::new(wait.id).step(&wait, |owner| self.waits_of(owner)), Step::Found(_))
    }

    /// What an owner waits for of fcntl locks. Others are not looked at.
    pub fn waits_of(&self, owner: FlockOwner) -> Vec<FlockWait> {
        self.waits.of(owner).filter_map(|number| self.wait_numbered(number)).collect()
    }

    /// A wait, if it is still there.
    pub fn wait_named(&self, id: FlockWaitId) -> Option<FlockWait> {
        self.wait_numbered(id.number).filter(|wait| wait.id == id)
    }

    fn wait_numbered(&self, number: u64) -> Option<FlockWait> {
        let fid = self.waits.file_of(number)?;
        Some(self.wait_of(fid, self.files.get(&fid)?.waiting.get(&number)?))
    }

    fn wait_of(&self, fid: Fid, waiting: &Waiting<T>) -> FlockWait {
        let blockers = self.files.get(&fid).into_iter().flat_map(|file| file.conflicts(waiting.wanted));
        let blockers = blockers.map(|held| held.owner()).collect();
        FlockWait { id: waiting.id, owner: waiting.wanted.owner(), blockers }
    }

    fn forget_if_empty(&mut self, fid: Fid) {
        if self.files.get(&fid).is_some_and(|file| file.held.is_empty() && file.waiting.is_empty()) {
            self.files.remove(&fid);
        }
    }

    /// Asserts the invariants: nothing incompatible is held, nobody waits without a reason, the counts agree.
    pub fn check(&self) {
        let mut counts: BTreeMap<ClientId, usize> = BTreeMap::new();
        for file in self.files.values() {
            assert!(!file.held.is_empty() || !file.waiting.is_empty());
            for (key, ranges) in &file.held {
                assert!(ranges.len() > 0, "{key:?} has none");
                ranges.check();
            }
            for held in file.held() {
                assert!(file.held.contains_key(&held.key()));
                *counts.entry(held.client).or_default() += 1;
                assert!(!file.has_conflict(held));
            }
            for waiting in file.waiting.values() {
                *counts.entry(waiting.wanted.client).or_default() += 1;
                assert!(file.has_conflict(waiting.wanted));
            }
        }
        assert_eq!(counts, self.counts);
        let waiting = self.files.iter().flat_map(|(fid, file)| {
            file.waiting.iter().map(|(number, waiting)| (*fid, *number, fcntl_owner(&waiting.wanted)))
        });
        self.waits.check(waiting);
    }
}

fn empty<T>() -> FileLocks<T> {
    FileLocks {
        held: BTreeMap::new(),
        waiting: BTreeMap::new(),
        #[cfg(test)]
        looked_at_count: std::cell::Cell::new(0),
    }
}

/// Who waits, where circles of waits are looked for.
fn fcntl_owner(wanted: &Held) -> Option<FlockOwner> {
    (!wanted.lock.is_flock).then(|| wanted.owner())
}

fn uncount(counts: &mut BTreeMap<ClientId, usize>, client: ClientId) {
    if let Some(count) = counts.get_mut(&client) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests;
