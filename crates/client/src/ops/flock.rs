//! Advisory locks, flock(2) and fcntl(2): the MDT decides, the client remembers what it holds for a restart of the
//! MDT and for the end of a handle.

use crate::call::Answer;
use crate::ctx::{Ctx, Outcome, Who};
use crate::ops::inode_of;
use crate::state::State;
use base::limits::FLOCK_WAITS_MAX;
use base::{Extent, Fid, Status};
use rpc::Kind;
use wire::mdt::{FileLock, FlockKind};
use wire::{MdtReply, MdtRequest};

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
    let is_wait = can_wait && lock.kind != FlockKind::Unlock;
    if is_wait && ctx.with(|state| waits_at(state, fid)) >= FLOCK_WAITS_MAX {
        return Err(Status::NoLocks);
    }
    let is_interrupted = ctx.with(|state| {
        if let Some(handle) = state.handles.get_mut(&fh)
            && lock.kind != FlockKind::Unlock
        {
            handle.lock_owners.insert((lock.owner, lock.is_flock));
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
    let result = ctx.mdt(fid, MdtRequest::Flock { fid, lock, can_wait: is_wait }, kind).await;
    ctx.with(|state| {
        if let Some(call) = state.calls.get_mut(&who.id) {
            call.waits_for_flock = None;
        }
        if result.is_ok()
            && let Some(node) = state.nodes.by_fid_mut(fid)
        {
            apply(&mut node.flocks, lock);
        }
    });
    result.map(|_| Answer::Done)
}

/// Advisory locks of the MDT of this file that calls wait for.
fn waits_at(state: &State, fid: Fid) -> usize {
    let waits = state.calls.values().filter_map(|call| call.waits_for_flock);
    waits.filter(|(other, ..)| other.mdt_index() == fid.mdt_index()).count()
}

/// Gives up waiting; the request itself is answered by that.
pub(crate) async fn cancel(ctx: Ctx, fid: Fid, owner: u64, is_flock: bool) {
    // A failure means that the session ends, and the request with it.
    let _ = ctx.mdt(fid, MdtRequest::FlockCancel { fid, owner, is_flock }, Kind::Reserved).await;
}

/// Drops all locks of an owner on a file; nothing is sent when it has none.
pub(crate) async fn unlock_all(ctx: &Ctx, fid: Fid, owner: u64, is_flock: bool) {
    let has_some = ctx.with(|state| {
        let node = state.nodes.by_fid(fid);
        node.is_some_and(|node| {
            node.flocks.iter().any(|lock| lock.owner == owner && lock.is_flock == is_flock)
        })
    });
    if !has_some {
        return;
    }
    let lock = FileLock { owner, pid: 0, is_flock, kind: FlockKind::Unlock, extent: Extent::WHOLE };
    // The MDT drops them with the session when it cannot be told.
    let _ = ctx.mdt(fid, MdtRequest::Flock { fid, lock, can_wait: false }, Kind::Reserved).await;
    ctx.with(|state| {
        if let Some(node) = state.nodes.by_fid_mut(fid) {
            apply(&mut node.flocks, lock);
        }
    });
}

/// The last descriptor of a handle is gone: its flock(2), and what was locked through it by descriptions (C13).
pub(crate) async fn drop_handle_locks(ctx: &Ctx, fh: u64, flock_owner: Option<u64>) {
    let known = ctx.with(|state| {
        let handle = state.handles.get_mut(&fh)?;
        Some((handle.fid, std::mem::take(&mut handle.lock_owners)))
    });
    let Some((fid, mut owners)) = known else { return };
    owners.extend(flock_owner.map(|owner| (owner, true)));
    for (owner, is_flock) in owners {
        // A lock of fcntl(2) belongs to a process, which may hold it through another handle; its end is FLUSH. One
        // of a description shows by an owner that no other handle has.
        let is_shared = !is_flock
            && ctx.with(|state| {
                state.handles.iter().any(|(other, handle)| {
                    *other != fh && handle.fid == fid && handle.lock_owners.contains(&(owner, is_flock))
                })
            });
        if !is_shared {
            unlock_all(ctx, fid, owner, is_flock).await;
        }
    }
}

/// Applies a lock or unlock to what an owner holds: parts that it covers are replaced, neighbours of one kind merged.
pub(crate) fn apply(locks: &mut Vec<FileLock>, new: FileLock) {
    let mut kept = Vec::with_capacity(locks.len() + 2);
    let mut new = new;
    for lock in locks.drain(..) {
        if lock.owner != new.owner || lock.is_flock != new.is_flock {
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
