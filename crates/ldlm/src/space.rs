//! The server's side: locks of clients and claims of operations on the resources of one target.
//!
//! Every resource has a set of granted entries and a queue. An entry waits while it conflicts with something granted
//! or with something that waits before it, so nobody is overtaken by what stands in his way. An operation enters the
//! queues of all resources that it needs at once. So entries only ever wait for entries that came earlier, or for
//! clients that were asked to give a lock back, and no cycle can arise inside one target.
//!
//! A client is one cache: its own locks never conflict with each other. What it holds is no obstacle to operations
//! that it asked for itself (`exempt`).
//!
//! What this does not do: it keeps no list of what was written under a lock. A server that must keep a lock until data
//! are durable calls `begin_cancel` first and `cancel` when they are, or, when its holder is gone, `retire` and `release`.

mod queue;

use crate::mode::{covers, is_valid};
use base::limits::{CALLBACK_DEADLINE, LOCKS_PER_CLIENT_MAX};
use base::{ClientId, Duration, Extent, LockId, ObjectId, Status, Time};
use queue::{Entry, Owner, Queue, State};
use std::collections::{BTreeMap, BTreeSet};
use wire::lock::bits;
use wire::{LockGrant, LockMode, LockPolicy, Resource};

/// A callback may be lost; it is repeated until the lock is back.
const CALLBACK_REPEAT: Duration = Duration::from_secs(1);
/// A holder that talks but does not give a lock back is evicted after this many deadlines.
const DEADLINES_WITH_PROGRESS: u64 = 4;
/// The same for a lock whose holder has to write to other targets first, which may be away.
const DEADLINES_WITH_PROGRESS_ELSEWHERE: u64 = 40;

/// An operation of the target itself; the owner chooses the numbers and uses none twice at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EnqueueRequest {
    pub holder: ClientId,
    pub lock: LockId,
    pub resource: Resource,
    pub mode: LockMode,
    pub policy: LockPolicy,
    pub can_wait: bool,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Enqueued {
    /// The same lock asked for again is granted again.
    Granted(LockGrant),
    /// `LockOutput::Granted` follows.
    Waiting,
    /// `WouldBlock` when it may not wait; `NoLocks` when the client has too many; `Invalid` when it makes no sense.
    Denied(Status),
}

/// A part of a resource that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    pub resource: Resource,
    pub mode: LockMode,
    pub policy: LockPolicy,
}

impl Need {
    /// Data of an object.
    pub fn of_data(object: ObjectId, mode: LockMode, extent: Extent) -> Need {
        Need { resource: Resource::Object(object), mode, policy: LockPolicy::Extent(extent) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// Execute now, then `release`.
    Ready,
    /// `LockOutput::Ready` follows.
    Waiting,
}

/// What the owner has to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum LockOutput {
    /// A waiting request was granted: answer it.
    Granted { holder: ClientId, grant: LockGrant },
    /// Send `wire::Callback::Blocking`.
    Callback { holder: ClientId, lock: LockId, resource: Resource },
    /// The holder keeps others waiting for too long: evict it, then call `drop_holder`.
    Evict(ClientId),
    /// The operation has everything that it claimed: execute it, then `release`.
    Ready(OpId),
}

/// Where a lock is.
#[derive(Clone, Copy, Debug)]
struct Place {
    resource: Resource,
    /// Of its entry there.
    number: u64,
}

#[derive(Debug)]
struct Claim {
    /// Of each need.
    places: Vec<Place>,
    missing_count: usize,
}

/// Locks and claims of one target.
#[derive(Debug, Default)]
pub struct LockSpace {
    queues: BTreeMap<Resource, Queue>,
    /// Granted and waiting locks of clients.
    locks: BTreeMap<(ClientId, LockId), Place>,
    lock_counts: BTreeMap<ClientId, usize>,
    claims: BTreeMap<OpId, Claim>,
    /// When to repeat which callback.
    timers: BTreeSet<(Time, ClientId, LockId)>,
    heard: BTreeMap<ClientId, Time>,
    timeout_count: u64,
    /// Locks that were granted or have gone since `take_changed`; `None`: nobody wants to know.
    changed: Option<BTreeSet<(ClientId, LockId)>>,
}

impl LockSpace {
    pub fn new() -> LockSpace {
        LockSpace::default()
    }

    /// From now on `take_changed` says what becomes of locks.
    pub fn note_changes(&mut self) {
        self.changed.get_or_insert_default();
    }

    /// Locks that were granted or have gone since this was asked the last time; `grant_of` says which.
    pub fn take_changed(&mut self) -> BTreeSet<(ClientId, LockId)> {
        self.changed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn note_changed(&mut self, holder: ClientId, lock: LockId) {
        if let Some(changed) = &mut self.changed {
            changed.insert((holder, lock));
        }
    }

    /// A client asks for a lock. Extents are expanded as far as nobody else is in the way.
    pub fn enqueue(&mut self, now: Time, request: EnqueueRequest, out: &mut Vec<LockOutput>) -> Enqueued {
        let EnqueueRequest { holder, lock, resource, mode, policy, can_wait } = request;
        if !is_valid(resource, policy) {
            return Enqueued::Denied(Status::Invalid);
        }
        if let Some(known) = self.locks.get(&(holder, lock)) {
            return if known.resource == resource {
                self.enqueue_again(request)
            } else {
                Enqueued::Denied(Status::Invalid)
            };
        }
        if self.lock_counts.get(&holder).copied().unwrap_or(0) >= LOCKS_PER_CLIENT_MAX {
            return Enqueued::Denied(Status::NoLocks);
        }
        let queue = self.queues.entry(resource).or_default();
        let mut entry = Entry::client(holder, lock, mode, policy);
        if !queue.is_blocked(&entry) {
            queue.expand(now, &mut entry);
            let grant = entry.grant(lock, resource);
            let number = queue.grant(entry);
            self.add_lock(holder, lock, Place { resource, number });
            self.note_changed(holder, lock);
            return Enqueued::Granted(grant);
        }
        if !can_wait {
            self.forget_if_empty(resource);
            return Enqueued::Denied(Status::WouldBlock);
        }
        let number = queue.wait(entry);
        self.add_lock(holder, lock, Place { resource, number });
        self.call_back(now, resource, Some(number), &[], out);
        Enqueued::Waiting
    }

    /// The lock over data of an object that comes with a write there: at once or not at all.
    ///
    /// # Errors
    /// `WouldBlock` if somebody is in its way, `NoLocks` if the client has too many; `Invalid` if the client has this lock, or has asked
    /// for it by itself.
    pub fn grant_for_write(
        &mut self,
        now: Time,
        (holder, lock): (ClientId, LockId),
        (object, extent): (ObjectId, Extent),
        out: &mut Vec<LockOutput>,
    ) -> Result<LockGrant, Status> {
        if self.grant_of(holder, lock).is_some() {
            return Err(Status::Invalid);
        }
        let Need { resource, mode, policy } = Need::of_data(object, LockMode::Pw, extent);
        let request = EnqueueRequest { holder, lock, resource, mode, policy, can_wait: false };
        match self.enqueue(now, request, out) {
            Enqueued::Granted(grant) => Ok(grant),
            Enqueued::Denied(status) => Err(status),
            Enqueued::Waiting => Err(Status::Invalid),
        }
    }

    fn enqueue_again(&self, request: EnqueueRequest) -> Enqueued {
        match self.grant_of(request.holder, request.lock) {
            Some(grant) => Enqueued::Granted(grant),
            None => Enqueued::Waiting,
        }
    }

    /// Grants a lock along with another operation (`wire::lock::LockWant`) if nobody conflicts with it or waits for
    /// what it conflicts with, and asks nobody for anything. What `own_op` claims is no obstacle: the operation gives
    /// the lock to the client that it was executed for.
    pub fn try_grant(
        &mut self,
        holder: ClientId,
        lock: LockId,
        need: Need,
        own_op: Option<OpId>,
    ) -> Option<LockGrant> {
        let Need { resource, mode, policy } = need;
        if let Some(grant) = self.grant_of(holder, lock) {
            return (grant.resource == resource).then_some(grant);
        }
        if !is_valid(resource, policy)
            || self.locks.contains_key(&(holder, lock))
            || self.lock_counts.get(&holder).copied().unwrap_or(0) >= LOCKS_PER_CLIENT_MAX
        {
            return None;
        }
        let entry = Entry::client(holder, lock, mode, policy);
        let queue = self.queues.entry(resource).or_default();
        if queue.is_blocked_but_for(&entry, own_op) {
            self.forget_if_empty(resource);
            return None;
        }
        let grant = entry.grant(lock, resource);
        let number = queue.grant(entry);
        self.add_lock(holder, lock, Place { resource, number });
        self.note_changed(holder, lock);
        Some(grant)
    }

    /// Takes locks back; unknown ones are no error, waiting requests are withdrawn.
    pub fn cancel(&mut self, now: Time, holder: ClientId, locks: &[LockId], out: &mut Vec<LockOutput>) {
        self.heard_from(now, holder);
        // Very many of them may be on one resource: who waits there is looked at once.
        let (mut seen, mut resources) = (BTreeSet::new(), Vec::new());
        for lock in locks {
            let Some(place) = self.remove_lock(holder, *lock) else { continue };
            if let Some(queue) = self.queues.get_mut(&place.resource) {
                queue.remove(place.number);
            }
            if seen.insert(place.resource) {
                resources.push(place.resource);
            }
        }
        for resource in resources {
            self.pump(now, resource, out);
        }
    }

    /// The holder has given these locks up, but they stay in everybody's way until `cancel`. From now on they allow
    /// their holder nothing, and nobody asks for them again. Returns those that were granted.
    pub fn begin_cancel(&mut self, now: Time, holder: ClientId, locks: &[LockId]) -> Vec<LockGrant> {
        self.heard_from(now, holder);
        let mut given_up = Vec::new();
        for lock in locks {
            let Some(Place { resource, number }) = self.locks.get(&(holder, *lock)).copied() else {
                continue;
            };
            let Some(queue) = self.queues.get_mut(&resource) else { continue };
            let Some(Entry { state, .. }) = queue.entry(number).copied() else { continue };
            if let State::CalledBack { next, .. } = state {
                self.timers.remove(&(next, holder, *lock));
            }
            let entry = queue.set_state(number, State::Cancelling);
            given_up.extend(entry.map(|entry| entry.grant(*lock, resource)));
        }
        given_up
    }

    /// The holder is gone, and what these locks protect has to stay protected: what was granted of them is claimed by an operation of
    /// the owner, until `release`. They are nobody's locks any more. So they are in everybody's way, also in that of the holder's next
    /// incarnation, which gives its own locks the same numbers. What was claimed with the holder as `exempt` has been released before.
    pub fn retire(&mut self, holder: ClientId, locks: &[LockId], op: OpId) {
        assert!(!self.claims.contains_key(&op), "an operation claims once");
        let mut claim = Claim { places: Vec::with_capacity(locks.len()), missing_count: 0 };
        for lock in locks {
            if self.entry_of(holder, *lock).is_none() {
                continue;
            }
            let Some(place) = self.remove_lock(holder, *lock) else { continue };
            let queue = self.queues.get_mut(&place.resource).expect("it was just looked at");
            queue.retire(place.number, op);
            claim.places.push(place);
        }
        self.claims.insert(op, claim);
    }

    /// Everything of a client goes: it was evicted or has left.
    pub fn drop_holder(&mut self, now: Time, holder: ClientId, out: &mut Vec<LockOutput>) {
        let locks = self.locks_of(holder);
        self.cancel(now, holder, &locks, out);
        self.heard.remove(&holder);
        assert!(!self.lock_counts.contains_key(&holder), "a dropped holder has no locks");
    }

    /// After a restart of the target, while it recovers: locks that the client held before. Returns those that cannot
    /// be: they make no sense or conflict with what another client has claimed; such a client is to be evicted.
    pub fn replay(&mut self, holder: ClientId, grants: &[LockGrant]) -> Vec<LockId> {
        let mut refused = Vec::new();
        for grant in grants {
            let need = Need { resource: grant.resource, mode: grant.mode, policy: grant.policy };
            if self.try_grant(holder, grant.lock, need, None).is_none() {
                refused.push(grant.lock);
            }
        }
        refused
    }

    /// An operation asks for all that it needs. Locks of clients in its way are called back, those of `exempt` are
    /// not in its way. The owner checks what it read before it waited again.
    pub fn claim(
        &mut self,
        now: Time,
        op: OpId,
        exempt: Option<ClientId>,
        mut needs: Vec<Need>,
        out: &mut Vec<LockOutput>,
    ) -> Claimed {
        assert!(!self.claims.contains_key(&op), "an operation claims once");
        needs.sort_by_key(|need| need.resource);
        let mut claim = Claim { places: Vec::with_capacity(needs.len()), missing_count: 0 };
        for Need { resource, mode, policy } in needs {
            assert!(is_valid(resource, policy), "an operation claims what exists");
            let entry = Entry::operation(op, exempt, mode, policy);
            let queue = self.queues.entry(resource).or_default();
            let number = if queue.is_blocked(&entry) {
                claim.missing_count += 1;
                let number = queue.wait(entry);
                self.call_back(now, resource, Some(number), &[], out);
                number
            } else {
                queue.grant(entry)
            };
            claim.places.push(Place { resource, number });
        }
        let claimed = if claim.missing_count == 0 { Claimed::Ready } else { Claimed::Waiting };
        self.claims.insert(op, claim);
        claimed
    }

    /// The operation is done, or given up while it waited.
    pub fn release(&mut self, now: Time, op: OpId, out: &mut Vec<LockOutput>) {
        let Some(claim) = self.claims.remove(&op) else { return };
        let mut places = claim.places.clone();
        places.sort_by_key(|place| place.resource);
        for of_one in places.chunk_by(|a, b| a.resource == b.resource) {
            let Some(queue) = of_one.first().and_then(|place| self.queues.get_mut(&place.resource)) else {
                continue;
            };
            queue.remove_all(of_one.iter().map(|place| place.number).collect());
        }
        for place in claim.places {
            self.pump(now, place.resource, out);
        }
    }

    /// Whether an operation has claimed something and not released it.
    pub fn is_claimed(&self, op: OpId) -> bool {
        self.claims.contains_key(&op)
    }

    /// Whether this very lock is held and covers at least that.
    pub fn holds(&self, holder: ClientId, lock: LockId, need: Need) -> bool {
        let Some(entry) = self.entry_of(holder, lock) else { return false };
        self.locks.get(&(holder, lock)).is_some_and(|place| place.resource == need.resource)
            && entry.state != State::Cancelling
            && covers((entry.mode, entry.policy), (need.mode, need.policy))
    }

    /// The lock as it was granted; `None` when it waits or is not known.
    pub fn grant_of(&self, holder: ClientId, lock: LockId) -> Option<LockGrant> {
        let resource = self.locks.get(&(holder, lock))?.resource;
        Some(self.entry_of(holder, lock)?.grant(lock, resource))
    }

    /// All locks that clients have been granted, by resource.
    pub fn grants(&self) -> impl Iterator<Item = (ClientId, LockGrant)> {
        self.queues.iter().flat_map(|(resource, queue)| {
            queue.granted().iter().filter_map(move |entry| match entry.owner {
                Owner::Client(holder, lock) => Some((holder, entry.grant(lock, *resource))),
                Owner::Op(_) => None,
            })
        })
    }

    /// Whether a client has such a lock, as far as is known here, and was not asked for it.
    pub fn is_held(&self, holder: ClientId, need: Need) -> bool {
        let Some(queue) = self.queues.get(&need.resource) else { return false };
        queue.granted_to(holder).any(|entry| {
            entry.state == State::Quiet && covers((entry.mode, entry.policy), (need.mode, need.policy))
        })
    }

    /// Whether another client holds something that an operation for this one would have to wait for.
    pub fn is_held_against(&self, client: ClientId, need: Need) -> bool {
        let Some(queue) = self.queues.get(&need.resource) else { return false };
        let is_others = |entry: &Entry| matches!(entry.owner, Owner::Client(holder, _) if holder != client);
        queue.granted_against(need.mode, need.policy).any(is_others)
    }

    /// Whether a client was asked for a lock that is in somebody's way, and has not given it back.
    pub fn has_called_back(&self) -> bool {
        !self.timers.is_empty()
    }

    /// Clients that were asked for a lock so long ago, and have not given it back.
    pub fn asked_for(&self, now: Time, wait: Duration) -> BTreeSet<ClientId> {
        let is_overdue = |(_, holder, lock): &&(Time, ClientId, LockId)| {
            let state = self.entry_of(*holder, *lock).map(|entry| entry.state);
            matches!(state, Some(State::CalledBack { since, .. }) if now.since(since) >= wait)
        };
        self.timers.iter().filter(is_overdue).map(|(_, holder, _)| *holder).collect()
    }

    /// Any sign of life of a client.
    pub fn heard_from(&mut self, now: Time, holder: ClientId) {
        if self.lock_counts.contains_key(&holder) {
            self.heard.insert(holder, now);
        }
    }

    /// Repeats callbacks and evicts who does not answer them.
    pub fn on_tick(&mut self, now: Time, out: &mut Vec<LockOutput>) {
        self.on_tick_sparing(now, &|_| false, out);
    }

    /// The same; some are only called back again, as they wait for something here themselves.
    pub fn on_tick_sparing(
        &mut self,
        now: Time,
        is_spared: &dyn Fn(ClientId) -> bool,
        out: &mut Vec<LockOutput>,
    ) {
        let mut evicted = BTreeSet::new();
        while let Some(&(due, holder, lock)) = self.timers.first() {
            if due > now {
                break;
            }
            self.timers.pop_first();
            self.on_timer(now, (holder, lock), is_spared, &mut evicted, out);
        }
    }

    fn on_timer(
        &mut self,
        now: Time,
        (holder, lock): (ClientId, LockId),
        is_spared: &dyn Fn(ClientId) -> bool,
        evicted: &mut BTreeSet<ClientId>,
        out: &mut Vec<LockOutput>,
    ) {
        let heard = self.heard.get(&holder).copied().unwrap_or(Time::ZERO);
        let Some(Place { resource, number }) = self.locks.get(&(holder, lock)).copied() else { return };
        let Some(queue) = self.queues.get_mut(&resource) else { return };
        let Some(Entry { state: State::CalledBack { since, .. }, policy, .. }) = queue.entry(number).copied()
        else {
            return;
        };
        let deadlines_max = match policy {
            LockPolicy::Bits(bits::WRITE_BACK) => DEADLINES_WITH_PROGRESS_ELSEWHERE,
            _ => DEADLINES_WITH_PROGRESS,
        };
        let next = now.after(CALLBACK_REPEAT);
        queue.set_state(number, State::CalledBack { since, next });
        self.timers.insert((next, holder, lock));
        let waited_ns = now.since(since).as_nanos();
        let deadline_ns = CALLBACK_DEADLINE.as_nanos();
        let is_silent = waited_ns >= deadline_ns && now.since(heard).as_nanos() >= deadline_ns;
        let is_over = is_silent || waited_ns >= deadline_ns * u128::from(deadlines_max);
        if is_over && !is_spared(holder) {
            if evicted.insert(holder) {
                self.timeout_count += 1;
                out.push(LockOutput::Evict(holder));
            }
        } else {
            out.push(LockOutput::Callback { holder, lock, resource });
        }
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.timers.first().map(|(due, _, _)| *due)
    }

    /// Locks of clients, granted and waiting.
    pub fn lock_count(&self) -> usize {
        self.locks.len()
    }

    /// How often a client was to be evicted because it did not give a lock back in time.
    pub fn timeout_count(&self) -> u64 {
        self.timeout_count
    }

    pub fn lock_count_of(&self, holder: ClientId) -> usize {
        self.lock_counts.get(&holder).copied().unwrap_or(0)
    }

    pub fn resource_count(&self) -> usize {
        self.queues.len()
    }

    /// Ids of the locks of one client, granted and waiting.
    pub fn locks_of(&self, holder: ClientId) -> Vec<LockId> {
        let first = (holder, LockId::ZERO);
        let last = (holder, LockId(u64::MAX));
        self.locks.range(first..=last).map(|((_, lock), _)| *lock).collect()
    }

    /// Who has locks, granted or waiting.
    pub fn holders(&self) -> Vec<ClientId> {
        self.lock_counts.keys().copied().collect()
    }

    /// What clients hold on one resource.
    pub fn grants_on(&self, resource: Resource) -> Vec<(ClientId, LockGrant)> {
        let Some(queue) = self.queues.get(&resource) else { return Vec::new() };
        let grant = |entry: &Entry| match entry.owner {
            Owner::Client(holder, lock) => Some((holder, entry.grant(lock, resource))),
            Owner::Op(_) => None,
        };
        queue.granted().iter().filter_map(grant).collect()
    }

    /// Asserts the invariants: nothing incompatible is granted, nobody waits without a reason, the indexes agree.
    pub fn check(&self) {
        let mut lock_count = 0;
        for (resource, queue) in &self.queues {
            assert!(!queue.is_empty(), "{resource:?} has a queue without entries");
            queue.check();
            for entry in queue.granted().iter().chain(queue.waiting()) {
                match entry.owner {
                    Owner::Client(holder, lock) => {
                        lock_count += 1;
                        let place = self.locks.get(&(holder, lock)).expect("what has an entry is known");
                        assert_eq!(place.resource, *resource);
                        assert_eq!(place.number, entry.number);
                    }
                    Owner::Op(op) => assert!(self.claims.contains_key(&op)),
                }
            }
        }
        assert_eq!(lock_count, self.locks.len());
        assert_eq!(lock_count, self.lock_counts.values().sum::<usize>());
    }

    /// As it was granted.
    fn entry_of(&self, holder: ClientId, lock: LockId) -> Option<&Entry> {
        let place = self.locks.get(&(holder, lock))?;
        let queue = self.queues.get(&place.resource)?;
        queue.entry(place.number)
    }

    fn add_lock(&mut self, holder: ClientId, lock: LockId, place: Place) {
        let former = self.locks.insert((holder, lock), place);
        assert!(former.is_none(), "a lock id names one lock");
        *self.lock_counts.entry(holder).or_insert(0) += 1;
    }

    fn remove_lock(&mut self, holder: ClientId, lock: LockId) -> Option<Place> {
        let state = self.entry_of(holder, lock).map(|entry| entry.state);
        if let Some(State::CalledBack { next, .. }) = state {
            self.timers.remove(&(next, holder, lock));
        }
        let place = self.locks.remove(&(holder, lock))?;
        self.note_changed(holder, lock);
        let count = self.lock_counts.get_mut(&holder).expect("whoever has a lock is counted");
        *count -= 1;
        if *count == 0 {
            self.lock_counts.remove(&holder);
        }
        Some(place)
    }

    /// Grants what has become possible on a resource, in the order of the queue.
    fn pump(&mut self, now: Time, resource: Resource, out: &mut Vec<LockOutput>) {
        let Some(queue) = self.queues.get_mut(&resource) else { return };
        let newly = queue.grant_waiting(now);
        for entry in &newly {
            match entry.owner {
                Owner::Client(holder, lock) => {
                    if let Some(changed) = &mut self.changed {
                        changed.insert((holder, lock));
                    }
                    out.push(LockOutput::Granted { holder, grant: entry.grant(lock, resource) });
                }
                Owner::Op(op) => {
                    let claim = self.claims.get_mut(&op).expect("an operation in a queue has a claim");
                    claim.missing_count -= 1;
                    if claim.missing_count == 0 {
                        out.push(LockOutput::Ready(op));
                    }
                }
            }
        }
        self.call_back(now, resource, None, &newly, out);
        self.forget_if_empty(resource);
    }

    /// Asks the holders of all locks that stand in the way of somebody who waits: who waits since now, or for what was granted now.
    fn call_back(
        &mut self,
        now: Time,
        resource: Resource,
        new_waiting: Option<u64>,
        new_granted: &[Entry],
        out: &mut Vec<LockOutput>,
    ) {
        let Some(queue) = self.queues.get_mut(&resource) else { return };
        let next = now.after(CALLBACK_REPEAT);
        for (holder, lock) in queue.call_back((now, next), new_waiting, new_granted) {
            self.timers.insert((next, holder, lock));
            out.push(LockOutput::Callback { holder, lock, resource });
        }
    }

    fn forget_if_empty(&mut self, resource: Resource) {
        if self.queues.get(&resource).is_some_and(Queue::is_empty) {
            self.queues.remove(&resource);
        }
    }
}

#[cfg(test)]
mod tests;
