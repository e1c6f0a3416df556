//! Cancels on their way to the targets. One that somebody waits for leaves at once; those of locks that are given back
//! because they are many or old go together, so that a client with all the locks it may have does not send one for each
//! that it gets.

use crate::executor::oneshot;
use crate::state::State;
use base::{LockId, TargetId};
use bytes::Bytes;
use rpc::Kind;
use std::collections::BTreeSet;
use wire::{LockRequest, Request};

/// Locks in one cancel that nobody waits for.
const TOGETHER_MAX: usize = 256;

/// Cancels for one target.
#[derive(Default)]
pub(crate) struct Cancels {
    /// Locks on their way back that nobody has asked for.
    unasked: BTreeSet<LockId>,
    ready: Vec<LockId>,
    is_urgent: bool,
}

impl Cancels {
    fn is_due(&self) -> bool {
        let is_enough = self.is_urgent || self.unasked.is_empty() || self.ready.len() >= TOGETHER_MAX;
        is_enough && !self.ready.is_empty()
    }
}

impl State {
    /// Begins to give a lock back that nobody has asked for.
    pub(crate) fn start_unasked_revocation(&mut self, target: TargetId, lock: LockId) {
        self.start_revocation(target, lock);
        self.cancels.entry(target).or_default().unasked.insert(lock);
    }

    /// Somebody waits for a lock.
    pub(crate) fn hurry_cancel(&mut self, target: TargetId, lock: LockId) {
        if let Some(cancels) = self.cancels.get_mut(&target) {
            cancels.unasked.remove(&lock);
            cancels.is_urgent |= cancels.ready.contains(&lock);
        }
    }

    /// A lock is not used any more, and gone from the cache.
    pub(crate) fn cancel(&mut self, target: TargetId, lock: LockId) {
        let cancels = self.cancels.entry(target).or_default();
        cancels.is_urgent |= !cancels.unasked.remove(&lock);
        cancels.ready.push(lock);
    }

    /// Nothing is to be said about a lock: it was lost on its way back.
    pub(crate) fn forget_cancel(&mut self, target: TargetId, lock: LockId) {
        if let Some(cancels) = self.cancels.get_mut(&target) {
            cancels.unasked.remove(&lock);
        }
    }

    /// Sends what is to go now.
    pub(crate) fn send_due_cancels(&mut self) {
        let due: Vec<TargetId> =
            self.cancels.iter().filter(|(_, cancels)| cancels.is_due()).map(|(target, _)| *target).collect();
        for target in due {
            let Some(cancels) = self.cancels.get_mut(&target) else { continue };
            cancels.is_urgent = false;
            let locks = std::mem::take(&mut cancels.ready);
            self.send_cancel(target, locks);
        }
    }

    /// Sends cancels without waiting for their answers.
    pub(crate) fn send_cancel(&mut self, target: TargetId, locks: Vec<LockId>) {
        let (sender, _) = oneshot();
        let request = Request::Lock(LockRequest::Cancel { locks });
        // A target that is not there any more holds no lock.
        let _ = self.submit(target, request, Bytes::new(), Kind::Reserved, sender);
    }

    /// Whether no cancel is waiting to be sent.
    pub(crate) fn has_sent_cancels(&self) -> bool {
        self.cancels.values().all(|cancels| cancels.ready.is_empty() && cancels.unasked.is_empty())
    }
}
