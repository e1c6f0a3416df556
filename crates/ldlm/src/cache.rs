//! The client's side: the locks that it holds on one target.
//!
//! A lock is *pinned* while something relies on it that has not finished: a request under it, a reply to the kernel
//! that is not written yet. A lock that was called back is *dying*: `find` does not return it any more, and it goes
//! back when nothing pins it. The owner sends the cancel; here is only the bookkeeping.
//!
//! Typical course: `find_and_pin` → none → request with `allocate` → grant → `insert` (pinned once) → use → `unpin`;
//! when `unpin` or `on_callback` says that the lock can go: tell the kernel, `remove`, send `LockRequest::Cancel`.

use crate::mode::covers;
use base::{Duration, LockId, Time};
use std::collections::{BTreeMap, BTreeSet};
use wire::{LockGrant, LockMode, LockPolicy, Resource};

/// Callbacks for locks whose grant is still on its way. More than these are forgotten; the target asks again.
const EARLY_CALLBACKS_MAX: usize = 1024;

/// A lock whose use is noted is not noted again for so long.
const TOUCH_INTERVAL: Duration = Duration::from_secs(1);

/// What a callback means for its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackAnswer {
    /// Nothing uses it: tell the kernel, `remove` it, cancel it.
    Idle,
    /// It is dying now; the last `unpin` says when it can go.
    InUse,
    /// It was dying already.
    Dying,
    /// Not known. If its grant is still on its way, it will be dying from the start.
    Unknown,
}

#[derive(Debug)]
struct Cached {
    grant: LockGrant,
    pin_count: u32,
    is_dying: bool,
    last_used: Time,
}

/// Locks held on one target.
#[derive(Debug, Default)]
pub struct LockCache {
    locks: BTreeMap<LockId, Cached>,
    by_resource: BTreeMap<Resource, Vec<LockId>>,
    /// Neither pinned nor dying, by the time of their last use.
    idle: BTreeSet<(Time, LockId)>,
    early: BTreeSet<LockId>,
    last_id: LockId,
}

impl LockCache {
    pub fn new() -> LockCache {
        LockCache::default()
    }

    /// A lock id for a request; rises strictly.
    pub fn allocate(&mut self) -> LockId {
        self.last_id = self.last_id.next();
        self.last_id
    }

    /// So many ids, one after the other; -> the first.
    pub fn allocate_many(&mut self, count: u32) -> LockId {
        let first = self.last_id.next();
        self.last_id = LockId(self.last_id.0.saturating_add(u64::from(count)));
        first
    }

    /// A grant has arrived, asked for with an id of `allocate`. The lock is pinned once. Returns false for a grant
    /// that is known already (a repeated reply), which pins nothing.
    pub fn insert(&mut self, now: Time, grant: LockGrant) -> bool {
        if self.locks.contains_key(&grant.lock) {
            return false;
        }
        let is_dying = self.early.remove(&grant.lock);
        self.by_resource.entry(grant.resource).or_default().push(grant.lock);
        self.locks.insert(grant.lock, Cached { grant, pin_count: 1, is_dying, last_used: now });
        true
    }

    /// A lock that covers at least that and is not dying.
    pub fn find(&self, resource: Resource, mode: LockMode, policy: LockPolicy) -> Option<LockId> {
        self.find_if(resource, mode, policy, |cached| !cached.is_dying)
    }

    /// Also a dying one: for reads that the kernel had begun before the lock was called back (hazard 3.4).
    pub fn find_even_dying(&self, resource: Resource, mode: LockMode, policy: LockPolicy) -> Option<LockId> {
        self.find(resource, mode, policy).or_else(|| self.find_if(resource, mode, policy, |_| true))
    }

    fn find_if(
        &self,
        resource: Resource,
        mode: LockMode,
        policy: LockPolicy,
        is_fit: impl Fn(&Cached) -> bool,
    ) -> Option<LockId> {
        let ids = self.by_resource.get(&resource)?;
        ids.iter().copied().find(|id| {
            let cached = self.locks.get(id).expect("the index names locks that exist");
            is_fit(cached) && covers((cached.grant.mode, cached.grant.policy), (mode, policy))
        })
    }

    pub fn find_and_pin(&mut self, resource: Resource, mode: LockMode, policy: LockPolicy) -> Option<LockId> {
        let lock = self.find(resource, mode, policy)?;
        self.pin(lock);
        Some(lock)
    }

    /// Something relies on the lock. False when there is no such lock.
    pub fn pin(&mut self, lock: LockId) -> bool {
        let Some(cached) = self.locks.get_mut(&lock) else { return false };
        cached.pin_count += 1;
        self.idle.remove(&(cached.last_used, lock));
        true
    }

    /// It does not any more. True when the lock is dying and nothing else uses it: it can go back now. A lock that
    /// was dropped meanwhile (eviction) is no error.
    #[must_use]
    pub fn unpin(&mut self, now: Time, lock: LockId) -> bool {
        let Some(cached) = self.locks.get_mut(&lock) else { return false };
        assert!(cached.pin_count > 0, "a lock is unpinned as often as it was pinned");
        cached.pin_count -= 1;
        if cached.pin_count > 0 {
            return false;
        }
        if !cached.is_dying {
            cached.last_used = now;
            self.idle.insert((now, lock));
        }
        cached.is_dying
    }

    /// The lock is of use, though nothing pins it: it is not among the oldest. Looked at once a second.
    pub fn touch(&mut self, now: Time, lock: LockId) {
        let Some(cached) = self.locks.get_mut(&lock) else { return };
        let is_old = now.since(cached.last_used) >= TOUCH_INTERVAL;
        if is_old && self.idle.remove(&(cached.last_used, lock)) {
            cached.last_used = now;
            self.idle.insert((now, lock));
        }
    }

    /// The target wants the lock back.
    pub fn on_callback(&mut self, lock: LockId) -> CallbackAnswer {
        let Some(cached) = self.locks.get_mut(&lock) else {
            // Ids that were never given out cannot have a grant on its way.
            if lock <= self.last_id {
                self.early.insert(lock);
            }
            if self.early.len() > EARLY_CALLBACKS_MAX {
                // The oldest id is the one whose grant is least likely to come.
                self.early.pop_first();
            }
            return CallbackAnswer::Unknown;
        };
        if cached.is_dying {
            return CallbackAnswer::Dying;
        }
        cached.is_dying = true;
        self.idle.remove(&(cached.last_used, lock));
        if cached.pin_count == 0 { CallbackAnswer::Idle } else { CallbackAnswer::InUse }
    }

    /// Ends a lock; the owner sends the cancel.
    pub fn remove(&mut self, lock: LockId) -> Option<LockGrant> {
        self.early.remove(&lock);
        let cached = self.locks.remove(&lock)?;
        self.idle.remove(&(cached.last_used, lock));
        let ids = self.by_resource.get_mut(&cached.grant.resource).expect("every lock is in the index");
        ids.retain(|id| *id != lock);
        if ids.is_empty() {
            self.by_resource.remove(&cached.grant.resource);
        }
        Some(cached.grant)
    }

    /// The request for this lock was refused or given up: a callback for it means nothing any more.
    pub fn forget_request(&mut self, lock: LockId) {
        self.early.remove(&lock);
    }

    /// Locks to give back unasked: those idle for longer than `age_max`, and the oldest beyond `idle_count_max`; at
    /// most `count_max` of them. They are dying from now on, as if called back and `Idle`.
    pub fn take_idle(
        &mut self,
        now: Time,
        age_max: Duration,
        idle_count_max: usize,
        count_max: usize,
    ) -> Vec<LockId> {
        let mut taken = Vec::new();
        while let Some(&(used, lock)) = self.idle.first() {
            let is_due = self.idle.len() > idle_count_max || now.since(used) > age_max;
            if !is_due || taken.len() >= count_max {
                break;
            }
            self.idle.pop_first();
            self.locks.get_mut(&lock).expect("idle locks exist").is_dying = true;
            taken.push(lock);
        }
        taken
    }

    pub fn get(&self, lock: LockId) -> Option<&LockGrant> {
        self.locks.get(&lock).map(|cached| &cached.grant)
    }

    pub fn is_dying(&self, lock: LockId) -> bool {
        self.locks.get(&lock).is_some_and(|cached| cached.is_dying)
    }

    pub fn pin_count(&self, lock: LockId) -> u32 {
        self.locks.get(&lock).map_or(0, |cached| cached.pin_count)
    }

    /// Locks on one resource, dying ones too.
    pub fn on_resource(&self, resource: Resource) -> &[LockId] {
        self.by_resource.get(&resource).map_or(&[], Vec::as_slice)
    }

    /// Everything held, for `LockRequest::Replay` after a restart of the target. Dying locks are among them: they
    /// still protect what has not been given up.
    pub fn all_for_replay(&self) -> Vec<LockGrant> {
        self.locks.values().map(|cached| cached.grant.clone()).collect()
    }

    /// The client was evicted: nothing is held any more. Returns what was, so that what relied on it can be dropped.
    /// Ids are not given out again.
    pub fn clear(&mut self) -> Vec<LockGrant> {
        self.by_resource.clear();
        self.idle.clear();
        self.early.clear();
        std::mem::take(&mut self.locks).into_values().map(|cached| cached.grant).collect()
    }

    pub fn lock_count(&self) -> usize {
        self.locks.len()
    }

    pub fn resource_count(&self) -> usize {
        self.by_resource.len()
    }

    pub fn idle_count(&self) -> usize {
        self.idle.len()
    }

    /// When the oldest idle lock is `age_max` old.
    pub fn next_deadline(&self, age_max: Duration) -> Option<Time> {
        self.idle.first().map(|(used, _)| used.after(age_max))
    }

    /// Asserts that the indexes agree.
    pub fn check(&self) {
        assert_eq!(self.by_resource.values().map(Vec::len).sum::<usize>(), self.locks.len());
        let idle_count =
            self.locks.values().filter(|cached| cached.pin_count == 0 && !cached.is_dying).count();
        assert_eq!(idle_count, self.idle.len());
    }
}

#[cfg(test)]
mod tests;
