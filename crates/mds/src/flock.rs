//! Advisory locks, flock(2) and fcntl(2), of all clients on the files of this MDT; in memory, replayed by clients.
//!
//! Ranges of one fcntl owner are split and merged as POSIX says; a flock lock is one per owner. The two kinds do not
//! see each other. A wait that closes a circle of fcntl locks of this MDT is refused at once; circles over several MDTs
//! are searched for with `deadlock`.

pub mod deadlock;
mod file;
mod ranges;
mod waits;

use base::{ClientId, Fid, Status, WallTime};
use deadlock::{Search, Step};
use file::{FileLocks, Waiting};
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

    fn key(&self) -> Key {
        (self.client, self.lock.owner, self.lock.is_flock)
    }
}

/// Whose ranges are split and merged: an owner's, of one kind of lock.
type Key = (ClientId, u64, bool);

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
    /// Where a client holds something.
    held_in: BTreeMap<ClientId, BTreeSet<Fid>>,
    counts: BTreeMap<ClientId, usize>,
    waits: Waits,
    next_wait: u64,
}

impl<T> Flocks<T> {
    pub fn new(mdt_index: u16) -> Flocks<T> {
        Flocks {
            mdt_index,
            files: BTreeMap::new(),
            held_in: BTreeMap::new(),
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
        if lock.kind != FlockKind::Unlock
            && let Some(held) = self.conflict(fid, &wanted)
        {
            if !can_wait {
                return Locked::Refused(token, Status::WouldBlock);
            }
            let id = FlockWaitId { since: now, mdt_index: self.mdt_index, number: self.next_wait };
            self.next_wait += 1;
            return self.wait(fid, Waiting { id, wanted, token, blocker: held.key() }, granted);
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
        self.waits.insert(fid, id.number, wanted.key());
        self.files.entry(fid).or_default().wait(waiting);
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
        let ranges = self.files.get(&fid).and_then(|file| file.ranges_of(unlock.key()));
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
        let own = self.waits.of((client, owner, is_flock));
        let meant: Vec<u64> = own.filter(|number| self.waits.file_of(*number) == Some(fid)).collect();
        let taken = meant.into_iter().filter_map(|number| self.take_waiting(fid, number));
        let tokens = taken.map(|waiting| waiting.token).collect();
        self.forget_if_empty(fid);
        tokens
    }

    /// Gives up one wait, if it is still there.
    pub fn end_wait(&mut self, id: FlockWaitId) -> Option<T> {
        let fid = self.waits.file_of(id.number)?;
        if self.files.get(&fid)?.waiting_as(id.number)?.id != id {
            return None;
        }
        let waiting = self.take_waiting(fid, id.number)?;
        self.forget_if_empty(fid);
        Some(waiting.token)
    }

    /// A wait is over, however it ends.
    fn take_waiting(&mut self, fid: Fid, number: u64) -> Option<Waiting<T>> {
        let waiting = self.files.get_mut(&fid)?.take_waiting(number)?;
        self.waits.remove(number, waiting.wanted.key());
        uncount(&mut self.counts, waiting.wanted.client, 1);
        Some(waiting)
    }

    /// Everything of a client goes. Tokens of others that are served by that come in `granted`, file by file.
    pub fn drop_client(&mut self, client: ClientId, granted: &mut Vec<T>) {
        let mut fids = self.held_in.remove(&client).unwrap_or_default();
        let waits: Vec<u64> = self.waits.of_client(client).collect();
        for number in waits {
            let Some(fid) = self.waits.file_of(number) else { continue };
            self.take_waiting(fid, number);
            fids.insert(fid);
        }
        for fid in fids {
            if let Some(file) = self.files.get_mut(&fid) {
                uncount(&mut self.counts, client, file.drop_held_by(client));
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
        let file = self.files.entry(fid).or_default();
        let (count_before, count_after) = file.set(new);
        if file.is_held_by(new.client) {
            self.held_in.entry(new.client).or_default().insert(fid);
        } else if let Some(fids) = self.held_in.get_mut(&new.client) {
            fids.remove(&fid);
            if fids.is_empty() {
                self.held_in.remove(&new.client);
            }
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
        while let Some(number) = self.files.get_mut(&fid).and_then(FileLocks::next_free) {
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
        self.waits
            .of((owner.client, owner.owner, false))
            .filter_map(|number| self.wait_numbered(number))
            .collect()
    }

    /// A wait, if it is still there.
    pub fn wait_named(&self, id: FlockWaitId) -> Option<FlockWait> {
        self.wait_numbered(id.number).filter(|wait| wait.id == id)
    }

    fn wait_numbered(&self, number: u64) -> Option<FlockWait> {
        let fid = self.waits.file_of(number)?;
        Some(self.wait_of(fid, self.files.get(&fid)?.waiting_as(number)?))
    }

    fn wait_of(&self, fid: Fid, waiting: &Waiting<T>) -> FlockWait {
        let blockers = self.files.get(&fid).into_iter().flat_map(|file| file.conflicts(waiting.wanted));
        let blockers = blockers.map(|held| held.owner()).collect();
        FlockWait { id: waiting.id, owner: waiting.wanted.owner(), blockers }
    }

    fn forget_if_empty(&mut self, fid: Fid) {
        if self.files.get(&fid).is_some_and(FileLocks::is_empty) {
            self.files.remove(&fid);
        }
    }

    /// Asserts the invariants: those of each file, and what is kept of all of them agrees.
    pub fn check(&self) {
        let mut counts: BTreeMap<ClientId, usize> = BTreeMap::new();
        let mut held_in: BTreeMap<ClientId, BTreeSet<Fid>> = BTreeMap::new();
        for (fid, file) in &self.files {
            file.check();
            for held in file.held() {
                *counts.entry(held.client).or_default() += 1;
                held_in.entry(held.client).or_default().insert(*fid);
            }
            for (_, waiting) in file.waiting() {
                *counts.entry(waiting.wanted.client).or_default() += 1;
            }
        }
        assert_eq!(counts, self.counts);
        assert_eq!(held_in, self.held_in);
        let waiting = self.files.iter().flat_map(|(fid, file)| {
            file.waiting().map(|(number, waiting)| (*fid, number, waiting.wanted.key()))
        });
        self.waits.check(waiting);
    }
}

fn uncount(counts: &mut BTreeMap<ClientId, usize>, client: ClientId, lock_count: usize) {
    if let Some(count) = counts.get_mut(&client) {
        *count -= lock_count;
        if *count == 0 {
            counts.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests;
