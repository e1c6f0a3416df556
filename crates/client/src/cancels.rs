//! Cancels on their way to the targets. One that somebody waits for leaves at once; those of locks that are given back
//! because they are many or old go together, so that a client with all the locks it may have does not send one for each
//! that it gets.

use crate::cache::may_kernel_believe;
use crate::ctx::Ctx;
use crate::executor::oneshot;
use crate::state::State;
use base::{Duration, Fid, LockId, TargetId};
use bytes::Bytes;
use ldlm::CallbackAnswer;
use rpc::Kind;
use std::collections::BTreeSet;
use wire::lock::bits;
use wire::mdt::Entry;
use wire::{LockPolicy, LockRequest, Request, Resource};

/// How long locks on files that are gone are gathered. The MDT has the objects destroyed when that it is gone is
/// durable, and then each lock would be called back by itself. Nobody asks for those on inodes any more: they would stay until they are too
/// many, and a restarted MDT would have to take all of them in, and to hear of each from its holder, before anybody goes on.
const GONE_INTERVAL: Duration = Duration::from_millis(100);
/// Locks on names that this client has taken away itself, for whom makes the same ones again and again. Others are as useless as those on
/// inodes that are gone, and as many.
const GONE_NAMES_MAX: usize = 256;
/// More than these are left to their callbacks.
const GONE_COUNT_MAX: usize = 4096;
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

/// A name is gone, and perhaps it was the last one of an inode that nobody has open here: then the locks on that and on its objects go back
/// unasked, with those of others. Without `gone` only what was noted before.
pub(crate) fn give_back_of_gone(ctx: &Ctx, gone: Option<&Entry>) {
    let is_first = ctx.with(|state| {
        if let Some(gone) = gone {
            state.note_gone(gone);
        }
        !state.locks_of_gone.is_empty() && !std::mem::replace(&mut state.is_giving_back, true)
    });
    if !is_first {
        return;
    }
    let later = ctx.clone();
    ctx.spawn(async move {
        later.sleep(GONE_INTERVAL).await;
        later.with(|state| {
            state.is_giving_back = false;
            for (target, lock) in std::mem::take(&mut state.locks_of_gone) {
                state.give_back_unasked(target, lock);
            }
        });
    });
}

impl State {
    fn note_gone(&mut self, gone: &Entry) {
        let is_open = self.nodes.by_fid(gone.fid).is_some_and(|node| node.open_count > 0);
        if !is_open && gone.attr.as_ref().is_some_and(|attr| attr.link_count == 0) {
            self.give_back_inode(gone.fid);
        }
    }

    /// A handle ends, perhaps the last one of an inode without names.
    pub(crate) fn note_end_of_gone(&mut self, fid: Fid) {
        let last = self.nodes.by_fid(fid).filter(|node| node.open_count <= 1);
        if last.and_then(|node| node.attr()).is_some_and(|attr| attr.link_count == 0) {
            self.give_back_inode(fid);
        }
    }

    fn give_back_inode(&mut self, fid: Fid) {
        let layout = self.nodes.by_fid(fid).and_then(|node| node.layout().cloned());
        self.give_back_later(State::mdt(fid), Resource::Inode(fid));
        for stripe in layout.iter().flat_map(|layout| layout.stripes()) {
            let Some(layout) = &layout else { continue };
            if let Some(target) = layout.stripe(stripe).and_then(|stripe| stripe.target()) {
                self.give_back_later(target, Resource::Object(layout.object(stripe)));
            }
        }
    }

    /// This client has taken a name away, and has the lock on its slot.
    pub(crate) fn keep_gone_name(&mut self, parent: Fid, hash: u64) {
        self.gone_names.retain(|known| *known != (parent, hash));
        self.gone_names.push_back((parent, hash));
        if self.gone_names.len() <= GONE_NAMES_MAX {
            return;
        }
        let Some((parent, hash)) = self.gone_names.pop_front() else { return };
        let resource = Resource::Name { parent, hash };
        if self.is_useless(resource) {
            self.give_back_later(State::mdt(parent), resource);
        }
    }

    /// Whether nothing is believed under a lock. Under that on a name it is when the name is there (again), or the kernel still says by itself that
    /// it is not: it would have to forget that, with the directory's other names at worst.
    fn is_useless(&self, resource: Resource) -> bool {
        let Resource::Name { parent, hash } = resource else { return true };
        let now = self.now.time;
        let mut names = self.names.slot(parent, hash);
        names.all(|known| known.fid().is_none() && !may_kernel_believe(known.kernel_until, now))
    }

    fn give_back_later(&mut self, target: TargetId, resource: Resource) {
        let Some(connection) = self.connections.get(&target) else { return };
        let room = GONE_COUNT_MAX.saturating_sub(self.locks_of_gone.len());
        let is_meant = |lock: &&LockId| {
            // The write-back lock goes by itself soon, when what was kept back under it has been sent or dropped.
            let grant = connection.locks.get(**lock);
            grant.is_some_and(|grant| grant.policy != LockPolicy::Bits(bits::WRITE_BACK))
        };
        let locks = connection.locks.on_resource(resource).iter().filter(is_meant).take(room);
        self.locks_of_gone.extend(locks.map(|lock| (target, *lock)));
    }

    fn give_back_unasked(&mut self, target: TargetId, lock: LockId) {
        // Its name may have been made again meanwhile.
        let connection = self.connections.get(&target);
        let grant = connection.and_then(|connection| connection.locks.get(lock));
        if grant.is_none_or(|grant| !self.is_useless(grant.resource)) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&target) else { return };
        let is_unused = connection.locks.pin_count(lock) == 0;
        if is_unused && connection.locks.on_callback(lock) == CallbackAnswer::Idle {
            self.start_unasked_revocation(target, lock);
        }
    }

    /// Begins to give a lock back that nobody has asked for.
    pub(crate) fn start_unasked_revocation(&mut self, target: TargetId, lock: LockId) {
        self.start_revocation(target, lock);
        self.cancels.entry(target).or_default().unasked.insert(lock);
    }

    pub(crate) fn is_revoked_unasked(&self, target: TargetId, lock: LockId) -> bool {
        self.cancels.get(&target).is_some_and(|cancels| cancels.unasked.contains(&lock))
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
