//! Locks on objects: requests about them, and what the lock space wants done.

use crate::machine::{Effects, Oss, OssEvent};
use crate::rows;
use base::{ClientId, Extent, LockId, Now, Status, Transno};
use bytes::Bytes;
use ldlm::{EnqueueRequest, Enqueued};
use std::collections::BTreeMap;
use store::{MetaStore, ObjectStore};
use target::{EvictReason, Token};
use wire::{LockGrant, LockRequest, Reply, Resource};

/// Who waits for a lock, and for bytes that are read under it.
pub(crate) struct Waiting {
    token: Token,
    read: Option<Extent>,
}

pub(crate) fn waiting_of(waiting: &BTreeMap<(ClientId, LockId), Waiting>, client: ClientId) -> Vec<LockId> {
    let range = (client, LockId::ZERO)..=(client, LockId(u64::MAX));
    waiting.range(range).map(|((_, lock), _)| *lock).collect()
}

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    pub(crate) fn on_lock_request(
        &mut self,
        now: Now,
        token: Token,
        request: LockRequest,
        effects: &mut Effects,
    ) {
        match request {
            LockRequest::Enqueue { lock, resource, mode, policy, can_wait } => {
                let holder = token.client;
                let request = EnqueueRequest { holder, lock, resource, mode, policy, can_wait };
                self.on_enqueue(now, token, request, None, effects);
            }
            LockRequest::Cancel { locks } => self.on_cancel(now, token, &locks, effects),
            LockRequest::Replay { locks } => self.on_replay(now, token, &locks, effects),
        }
    }

    /// `read` is what its holder wants to have read under it.
    pub(crate) fn on_enqueue(
        &mut self,
        now: Now,
        token: Token,
        request: EnqueueRequest,
        read: Option<Extent>,
        effects: &mut Effects,
    ) {
        self.stats.enqueue_count += 1;
        if let Err(status) = self.check_exists(request.resource) {
            return self.refuse(now, token, status, effects);
        }
        match self.locks.enqueue(now.time, request, &mut effects.locks) {
            Enqueued::Granted(grant) => self.answer_granted(now, Waiting { token, read }, grant, effects),
            Enqueued::Waiting => {
                self.waiting_enqueues.insert((token.client, request.lock), Waiting { token, read });
            }
            Enqueued::Denied(status) => self.refuse(now, token, status, effects),
        }
    }

    /// `Stale` for an object that was destroyed: nobody gets a lock on it any more.
    pub(crate) fn check_exists(&self, resource: Resource) -> Result<(), Status> {
        let Resource::Object(object) = resource else { return Err(Status::Invalid) };
        if rows::is_destroyed(self.meta.as_ref(), &object)? { Err(Status::Stale) } else { Ok(()) }
    }

    /// Somebody else gave way. The object may have been destroyed in between.
    pub(crate) fn on_granted(&mut self, now: Now, holder: ClientId, grant: LockGrant, effects: &mut Effects) {
        let Some(waiting) = self.waiting_enqueues.remove(&(holder, grant.lock)) else { return };
        match self.check_exists(grant.resource) {
            Ok(()) => self.answer_granted(now, waiting, grant, effects),
            Err(status) => {
                self.locks.cancel(now.time, holder, &[grant.lock], &mut effects.locks);
                self.refuse(now, waiting.token, status, effects);
            }
        }
    }

    fn answer_granted(&mut self, now: Now, waiting: Waiting, grant: LockGrant, effects: &mut Effects) {
        let Waiting { token, read } = waiting;
        match (read, grant.resource) {
            (Some(extent), Resource::Object(object)) => {
                self.answer_with_lock(now, token, grant, (object, extent), effects);
            }
            _ => self.answer(now, token, Reply::Locked(grant), Bytes::new(), effects),
        }
    }

    fn on_cancel(&mut self, now: Now, token: Token, locks: &[LockId], effects: &mut Effects) {
        self.stats.cancel_count += locks.len() as u64;
        // A request for one of these may still wait; it is answered, so that nobody waits for its reply.
        for lock in locks {
            if let Some(waiting) = self.waiting_enqueues.remove(&(token.client, *lock)) {
                self.refuse(now, waiting.token, Status::Interrupted, effects);
            }
        }
        match self.give_up(now, token.client, locks, effects) {
            None => self.answer(now, token, Reply::Done, Bytes::new(), effects),
            Some(up_to) => {
                self.stats.cancel_sync_count += 1;
                self.core.reply_when_durable(now, token, up_to, Reply::Done, &mut effects.core);
            }
        }
    }

    /// Ends locks at once, or when what was written under them is durable; then returns what that waits for.
    fn give_up(
        &mut self,
        now: Now,
        client: ClientId,
        locks: &[LockId],
        effects: &mut Effects,
    ) -> Option<Transno> {
        let given = self.cancels.give_up(self.core.durable(), client, locks);
        self.locks.cancel(now.time, client, &given.clean, &mut effects.locks);
        let (dirty, up_to) = given.dirty?;
        self.locks.begin_cancel(now.time, client, &dirty);
        self.kick_objects();
        self.meta.kick();
        Some(up_to)
    }

    /// The client is gone; what it wrote stays protected until it is durable, from its next incarnation too: that has its session as soon
    /// as rows are durable, and data may take longer.
    pub(crate) fn retire_locks(&mut self, now: Now, client: ClientId, effects: &mut Effects) {
        let (op, durable) = (self.new_op(), self.core.durable());
        let (locks, out) = (&mut self.locks, &mut effects.locks);
        if self.cancels.retire(now.time, durable, client, op, locks, out) {
            self.kick_objects();
            self.meta.kick();
        }
    }

    fn on_replay(&mut self, now: Now, token: Token, locks: &[LockGrant], effects: &mut Effects) {
        self.note_named(token.client, locks);
        let refused = self.locks.replay(token.client, locks);
        if refused.is_empty() {
            return self.answer(now, token, Reply::Done, Bytes::new(), effects);
        }
        let event = OssEvent::ReplayedLocksRefused { client: token.client, count: refused.len() };
        self.events.push(event);
        self.core.evict(now, token.client, EvictReason::LocksRefused, &mut effects.core);
    }
}
