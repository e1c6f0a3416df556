//! Advisory locks that this client holds on a file, for a restart of the MDT, which has them in memory only.
//!
//! A request on its way may have been executed or not. If the MDT restarts meanwhile, the client names what it has in either case,
//! and the request comes again after that: a lock that the MDT had already given to somebody else, because this request gave it up,
//! would be in the way of that one's replay, and one of the two be lost.

use crate::lock_owners::LockOwner;
use crate::seldom::Bare;
use base::{Extent, Status};
use std::collections::BTreeSet;
use wire::mdt::{FileLock, FlockKind};

/// Names a request whose answer is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked(u64);

#[derive(Debug)]
struct OnItsWay {
    asked: Asked,
    lock: FileLock,
    can_wait: bool,
}

impl OnItsWay {
    /// A conversion by flock(2) that has to wait: the MDT takes the old lock first, as flock(2) says.
    fn gives_up_first(&self) -> bool {
        self.lock.is_flock && self.can_wait
    }
}

/// What this client holds of one file.
#[derive(Debug, Default)]
pub(crate) struct Advisory {
    held: Vec<FileLock>,
    /// Owners, of flock(2) or not, that may hold something besides: they are not replayed, and unlocked all the same.
    doubtful: BTreeSet<LockOwner>,
    /// Those that the MDT has dropped unasked: others may have them since, and who had them does not know.
    lost: Vec<FileLock>,
    on_their_way: Vec<OnItsWay>,
    last_asked: u64,
}

impl Bare for Advisory {
    const BARE: &'static Advisory = &Advisory {
        held: Vec::new(),
        doubtful: BTreeSet::new(),
        lost: Vec::new(),
        on_their_way: Vec::new(),
        last_asked: 0,
    };
}

impl Advisory {
    #[cfg(test)]
    pub(crate) fn holding(held: Vec<FileLock>) -> Advisory {
        Advisory { held, ..Advisory::default() }
    }

    /// A lock or unlock is about to be asked for.
    pub(crate) fn ask(&mut self, lock: FileLock, can_wait: bool) -> Asked {
        self.last_asked += 1;
        let asked = Asked(self.last_asked);
        self.on_their_way.push(OnItsWay { asked, lock, can_wait });
        asked
    }

    /// It is answered.
    pub(crate) fn end(&mut self, asked: Asked, result: Result<(), Status>) {
        let Some(index) = self.on_their_way.iter().position(|other| other.asked == asked) else { return };
        let ended = self.on_their_way.remove(index);
        let owner = (ended.lock.owner, ended.lock.is_flock);
        if !self.lost.is_empty() && (result.is_ok() || ended.lock.kind == FlockKind::Unlock) {
            // He goes on with a lock that he has, or relies on none there.
            apply(&mut self.lost, FileLock { kind: FlockKind::Unlock, ..ended.lock });
        }
        match result {
            Ok(()) => {
                if ended.lock.extent == Extent::WHOLE {
                    self.doubtful.remove(&owner);
                }
                apply(&mut self.held, ended.lock);
            }
            // Only who waits is interrupted, and who waits has given up the old lock. Another thread may have taken it again.
            Err(Status::Interrupted) if ended.gives_up_first() && self.has_of(owner.0, owner.1) => {
                self.drop_of(ended.lock);
                self.doubtful.insert(owner);
            }
            Err(_) => {}
        }
    }

    /// Drops what the owner of a lock holds where that lies.
    pub(crate) fn drop_of(&mut self, lock: FileLock) {
        self.doubtful.remove(&(lock.owner, lock.is_flock));
        apply(&mut self.held, FileLock { kind: FlockKind::Unlock, ..lock });
    }

    /// What a restarted MDT is told; from now on no more than that is held.
    pub(crate) fn replayed(&mut self) -> &[FileLock] {
        for other in &self.on_their_way {
            match other.lock.kind {
                FlockKind::Unlock => apply(&mut self.held, other.lock),
                FlockKind::Read => weaken(&mut self.held, other.lock),
                // It makes nothing weaker, but for the old lock of a conversion that waits.
                FlockKind::Write => {}
            }
            let is_conversion =
                |held: &FileLock| is_of_one(held, &other.lock) && held.kind != other.lock.kind;
            if other.gives_up_first() && other.lock.kind == FlockKind::Write {
                self.held.retain(|held| !is_conversion(held));
            }
        }
        &self.held
    }

    /// Whether an owner has to unlock something, perhaps.
    pub(crate) fn has_of(&self, owner: u64, is_flock: bool) -> bool {
        self.doubtful.contains(&(owner, is_flock))
            || self.held.iter().any(|lock| lock.owner == owner && lock.is_flock == is_flock)
    }

    /// Whether an owner has this very lock, and nothing on its way that would change that.
    pub(crate) fn has(&self, lock: &FileLock) -> bool {
        let is_on_its_way = self.on_their_way.iter().any(|other| is_of_one(&other.lock, lock));
        let is_same =
            |held: &FileLock| is_of_one(held, lock) && held.kind == lock.kind && held.extent == lock.extent;
        let is_doubtful = self.doubtful.contains(&(lock.owner, lock.is_flock));
        !is_on_its_way && !is_doubtful && self.held.iter().any(is_same)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The MDT has dropped all of it.
    pub(crate) fn lose_all(&mut self) {
        self.lost.append(&mut self.held);
        self.doubtful.clear();
    }

    /// A restarted MDT has refused one of these; it may have taken others, and says not which.
    pub(crate) fn lose(&mut self, refused: &[FileLock]) {
        let owners: BTreeSet<LockOwner> = refused.iter().map(owner_of).collect();
        self.lost.extend(self.held.extract_if(.., |held| owners.contains(&owner_of(held))));
        self.doubtful.extend(owners);
    }

    /// Whether others may have a lock that one of these has not given up.
    pub(crate) fn has_lost(&self, owners: &BTreeSet<LockOwner>) -> bool {
        self.lost.iter().any(|lock| owners.contains(&owner_of(lock)))
    }

    /// An owner gives up all that he had.
    pub(crate) fn forget_lost(&mut self, owner: u64, is_flock: bool) {
        self.lost.retain(|lock| owner_of(lock) != (owner, is_flock));
    }
}

fn owner_of(lock: &FileLock) -> LockOwner {
    (lock.owner, lock.is_flock)
}

fn is_of_one(lock: &FileLock, other: &FileLock) -> bool {
    lock.owner == other.owner && lock.is_flock == other.is_flock
}

/// Where an owner has locks for writing and asks for one for reading, it may have that already.
fn weaken(locks: &mut Vec<FileLock>, new: FileLock) {
    let written = |lock: &&FileLock| is_of_one(lock, &new) && lock.kind == FlockKind::Write;
    let parts = locks.iter().filter(written).map(|lock| {
        Extent::new(lock.extent.start.max(new.extent.start), lock.extent.end.min(new.extent.end))
    });
    let parts: Vec<Extent> = parts.filter(|part| !part.is_empty()).collect();
    for extent in parts {
        apply(locks, FileLock { extent, ..new });
    }
}

/// Applies a lock or unlock to what an owner holds: parts that it covers are replaced, neighbours of one kind merged.
fn apply(locks: &mut Vec<FileLock>, new: FileLock) {
    let mut kept = Vec::with_capacity(locks.len() + 2);
    let mut new = new;
    for lock in locks.drain(..) {
        if !is_of_one(&lock, &new) {
            kept.push(lock);
            continue;
        }
        let touches = lock.extent.start <= new.extent.end && new.extent.start <= lock.extent.end;
        if lock.kind == new.kind && touches {
            new.extent.start = new.extent.start.min(lock.extent.start);
            new.extent.end = new.extent.end.max(lock.extent.end);
            continue;
        }
        if !lock.extent.overlaps(new.extent) {
            kept.push(lock);
            continue;
        }
        for rest in
            [Extent::new(lock.extent.start, new.extent.start), Extent::new(new.extent.end, lock.extent.end)]
        {
            if !rest.is_empty() {
                kept.push(FileLock { extent: rest, ..lock });
            }
        }
    }
    if new.kind != FlockKind::Unlock {
        kept.push(new);
    }
    *locks = kept;
}

#[cfg(test)]
mod tests;
