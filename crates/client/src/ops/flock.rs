//! Advisory locks, flock(2) and fcntl(2): the MDT decides, the client remembers what it holds for a restart of the
//! MDT and for the end of a handle.

use crate::call::Answer;
use crate::ctx::{Ctx, Outcome, Who};
use crate::late_answers::void_late_answers;
use crate::ops::inode_of;
use crate::state::State;
use base::limits::FLOCK_WAITS_MAX;
use base::{Duration, Extent, Fid, Status};
use rpc::{ImportState, Kind};
use wire::mdt::{FileLock, FlockKind};
use wire::{MdtReply, MdtRequest};

/// How often a wait is given up that goes on.
const CANCEL_INTERVAL: Duration = Duration::from_millis(1000);

pub(crate) async fn get(ctx: &Ctx, node: u64, lock: FileLock) -> Outcome<Answer> {
    let fid = inode_of(ctx, node)?;
    match ctx.mdt(fid, MdtRequest::Getlk { fid, lock }, Kind::Plain).await? {
        MdtReply::Flock(found) => Ok(Answer::Lock(found)),
        _ => Err(Status::ProtocolError),
    }
}

pub(crate) async fn set(
    ctx: &Ctx,
    who: &Who,
    node: u64,
    fh: u64,
    lock: FileLock,
    can_wait: bool,
) -> Outcome<Answer> {
    let fid = inode_of(ctx, node)?;
    if ctx.with(|state| state.has_shared_flock(fid, &lock)) {
        return Ok(Answer::Done);
    }
    let is_wait = can_wait && lock.kind != FlockKind::Unlock;
    if is_wait && ctx.with(|state| waits_at(state, fid)) >= FLOCK_WAITS_MAX {
        return Err(Status::NoLocks);
    }
    let is_interrupted = ctx.with(|state| {
        if let Some(handle) = state.handles.get(&fh).filter(|_| lock.kind != FlockKind::Unlock) {
            state.lock_owners.note(fh, handle.fid, (lock.owner, lock.is_flock));
        }
        let call = state.calls.get_mut(&who.id)?;
        if is_wait {
            call.waits_for_flock = Some((fid, lock.owner, lock.is_flock));
        }
        Some(call.is_interrupted && is_wait)
    });
    if is_interrupted == Some(true) {
        return Err(Status::Interrupted);
    }
    // Who waits must not keep others out, least of all the unlock that ends the waiting.
    let is_reserved = is_wait || lock.kind == FlockKind::Unlock;
    let kind = if is_reserved { Kind::Reserved } else { Kind::Plain };
    let result = loop {
        let result = change(ctx, fid, lock, is_wait, kind).await;
        // The MDT ends all waits of an owner for the sake of one; the others wait again.
        let is_own = || ctx.with(|state| state.calls.get(&who.id).is_none_or(|call| call.is_interrupted));
        if !is_wait || result != Err(Status::Interrupted) || is_own() {
            break result;
        }
    };
    ctx.with(|state| {
        if let Some(call) = state.calls.get_mut(&who.id) {
            call.waits_for_flock = None;
        }
        // A close of the descriptor meanwhile has found nothing to unlock, and has forgotten the owner.
        if result.is_ok() && lock.kind != FlockKind::Unlock && state.handles.contains_key(&fh) {
            state.lock_owners.note(fh, fid, (lock.owner, lock.is_flock));
        }
    });
    if result.is_ok() && lock.kind != FlockKind::Unlock {
        void_late_answers(ctx, fid).await;
    }
    result.map(|()| Answer::Done)
}

impl State {
    /// Thousands of nodes that share one lock say so again every few seconds, in case that an eviction has taken it; and the MDT looks at all
    /// of them each time. The session hears of an eviction by itself. Whoever has a file for himself is told at once.
    fn has_shared_flock(&self, fid: Fid, lock: &FileLock) -> bool {
        let connection = self.connections.get(&State::mdt(fid));
        let is_active = connection.is_some_and(|it| it.import.state() == ImportState::Active);
        let has = || self.nodes.by_fid(fid).is_some_and(|node| node.data.advisory.has(lock));
        lock.is_flock && lock.kind == FlockKind::Read && is_active && has()
    }
}

/// What is read through a handle under advisory locks: not when one is lost, also meanwhile.
///
/// # Errors
/// As `check_flocks`, before those of the read.
pub(crate) async fn reading<T>(ctx: &Ctx, fh: u64, read: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    check_flocks(ctx, fh)?;
    let result = read.await;
    check_flocks(ctx, fh)?;
    result
}

/// # Errors
/// `Io` when an advisory lock was taken through this handle that is lost, and nobody has given it up or taken it
/// again.
pub(crate) fn check_flocks(ctx: &Ctx, fh: u64) -> Outcome<()> {
    if ctx.with(|state| state.has_lost_flock(fh)) { Err(Status::Io) } else { Ok(()) }
}

impl State {
    /// Whether who uses this handle may rely on an advisory lock that its MDT has dropped with an eviction, and given
    /// to somebody else since. A lock of fcntl(2) is its process's, whichever handle that took it through; what it
    /// does through others nobody can tell from what other processes do.
    pub(crate) fn has_lost_flock(&self, fh: u64) -> bool {
        let Some(owners) = self.lock_owners.of_handle(fh) else { return false };
        let node = self.handles.get(&fh).and_then(|handle| self.nodes.by_fid(handle.fid));
        node.is_some_and(|node| node.data.advisory.has_lost(owners))
    }
}

/// Asks for a lock or an unlock. What is held counts as changed by halves until the answer is there.
async fn change(ctx: &Ctx, fid: Fid, lock: FileLock, can_wait: bool, kind: Kind) -> Outcome<()> {
    let asked = ctx.with(|state| {
        let node = state.nodes.by_fid_mut(fid);
        node.map(|node| node.data.advisory.ask(lock, can_wait))
    });
    let result = ctx.mdt(fid, MdtRequest::Flock { fid, lock, can_wait }, kind).await.map(|_| ());
    ctx.with(|state| {
        if let (Some(node), Some(asked)) = (state.nodes.by_fid_mut(fid), asked) {
            node.data.advisory.end(asked, result);
        }
    });
    result
}

/// Advisory locks of the MDT of this file that calls wait for.
fn waits_at(state: &State, fid: Fid) -> usize {
    let waits = state.calls.values().filter_map(|call| call.waits_for_flock);
    waits.filter(|(other, ..)| other.mdt_index() == fid.mdt_index()).count()
}

/// Gives up waiting; the request itself is answered by that. One that was refused for want of room comes to the MDT after this, and waits
/// there: so it is said again until the call has its answer.
pub(crate) async fn cancel(ctx: Ctx, call: u64, wait: (Fid, u64, bool)) {
    let (fid, owner, is_flock) = wait;
    loop {
        // A failure means that the session ends, and the request with it.
        let _ = ctx.mdt(fid, MdtRequest::FlockCancel { fid, owner, is_flock }, Kind::Reserved).await;
        let _ = ctx.sleep(CANCEL_INTERVAL).await;
        if !ctx.with(|state| state.calls.get(&call).is_some_and(|call| call.waits_for_flock == Some(wait))) {
            return;
        }
    }
}

/// Drops all locks of an owner on a file; nothing is sent when it has none.
pub(crate) async fn unlock_all(ctx: &Ctx, fid: Fid, owner: u64, is_flock: bool) {
    let has_some = ctx.with(|state| {
        let data = state.nodes.by_fid_mut(fid).and_then(|node| node.data.known_mut());
        data.and_then(|data| data.advisory.known_mut()).is_some_and(|advisory| {
            advisory.forget_lost(owner, is_flock);
            advisory.has_of(owner, is_flock)
        })
    });
    if !has_some {
        return;
    }
    let lock = FileLock { owner, pid: 0, is_flock, kind: FlockKind::Unlock, extent: Extent::WHOLE };
    // The MDT drops them with the session when it cannot be told.
    if change(ctx, fid, lock, false, Kind::Reserved).await.is_err() {
        ctx.with(|state| {
            if let Some(node) = state.nodes.by_fid_mut(fid) {
                node.data.advisory.drop_of(lock);
            }
        });
    }
}

/// The last descriptor of a handle is gone: its flock(2), and what was locked through it by descriptions (C13).
pub(crate) async fn drop_handle_locks(ctx: &Ctx, fh: u64, flock_owner: Option<u64>) {
    let known = ctx.with(|state| Some((state.handles.get(&fh)?.fid, state.lock_owners.end(fh))));
    let Some((fid, mut owners)) = known else { return };
    owners.extend(flock_owner.map(|owner| (owner, true)));
    for (owner, is_flock) in owners {
        // A lock of fcntl(2) belongs to a process, which may hold it through another handle; its end is FLUSH. One
        // of a description shows by an owner that no other handle has.
        let is_shared = !is_flock && ctx.with(|state| state.lock_owners.is_owner(fid, (owner, is_flock)));
        if !is_shared {
            unlock_all(ctx, fid, owner, is_flock).await;
        }
    }
}
