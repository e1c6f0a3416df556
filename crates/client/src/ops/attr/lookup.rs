//! What a name leads to: from the cache, or from the MDT of its directory.

use super::{ask_inode, by_number, current_attr, settled_size, with_size};
use crate::call::Answer;
use crate::ctx::{Ctx, Outcome, mdt_of};
use crate::ops::{dir, home_of, names};
use crate::state::State;
use base::{Fid, LockId, Status, TargetId};
use rpc::Kind;
use wire::lock::LockWant;
use wire::{LockGrant, MdtReply, MdtRequest};

pub(crate) async fn lookup(ctx: &Ctx, parent: u64, name: Vec<u8>) -> Outcome<Answer> {
    if name == b"." || name == b".." {
        return by_number::lookup(ctx, parent, &name).await;
    }
    // What is too long is not absent.
    base::names::check_name(&name)?;
    let parent = home_of(ctx, parent, &name)?;
    if ctx.with(|state| !state.is_entry_known(parent, &name)) {
        if ctx.with(|state| state.cached_name(parent, &name).is_none()) {
            dir::learn_whole(ctx, parent).await;
        }
        dir::learn_next(ctx, parent, &name).await;
    }
    if let Some(answer) = ctx.with(|state| state.known_entry(parent, &name)) {
        return Ok(answer);
    }
    if let Some(Some(fid)) = ctx.with(|state| state.cached_name(parent, &name)) {
        // The slot stays as it is while the attributes are fetched, or its lock goes and nothing is cached.
        match current_attr(ctx, fid).await {
            Ok(attr) => {
                let entry = ctx.with(|state| {
                    state.note_missed_name(parent, &name);
                    let is_valid = state.cached_name(parent, &name) == Some(Some(fid));
                    state.entry_answer(Some((parent, &name)), attr, is_valid, false)
                });
                return Ok(Answer::Entry(entry));
            }
            // Gone meanwhile: the name is asked for.
            Err(Status::NotFound | Status::Stale | Status::Moved) => {}
            Err(status) => return Err(status),
        }
    }
    let mut tries = 0;
    loop {
        tries += 1;
        match lookup_at_mdt(ctx, parent, name.clone()).await {
            // The inode went to another MDT before it was asked there, or the directory itself: then it is the kernel's to
            // walk there once more.
            Err(Status::Moved) if tries < LOOKUP_TRY_COUNT => {}
            result => return result,
        }
    }
}

/// How often a name is asked for whose inode moves to another MDT each time.
const LOOKUP_TRY_COUNT: u32 = 5;

/// What is asked about a name, and under what its answer may be believed.
struct Asked {
    parent: Fid,
    lock: Option<LockId>,
    /// Of the directory, when it was asked.
    change_count: Option<u64>,
}

impl Asked {
    fn begin(state: &mut State, target: TargetId, parent: Fid, name: &[u8]) -> (Asked, LockWant) {
        // What the kernel forgot is asked for again under the lock that is there: one for each time would fill the memory of both.
        let held = state.name_lock_on(parent, name);
        let new = state.want_name(target, held);
        let want = LockWant { name: new, inode: state.offer(target), ..LockWant::default() };
        let change_count = state.nodes.change_count(parent);
        (Asked { parent, lock: held.or(new), change_count }, want)
    }

    /// Under the very same lock: under another one the name may lead elsewhere by now.
    fn is_valid(&self, state: &State, name: &[u8]) -> bool {
        state.nodes.change_count(self.parent) == self.change_count
            && state.is_name_locked_by(self.parent, name, self.lock)
    }
}

async fn lookup_at_mdt(ctx: &Ctx, parent: Fid, name: Vec<u8>) -> Outcome<Answer> {
    let target = mdt_of(parent)?;
    let (asked, want) = ctx.with(|state| Asked::begin(state, target, parent, &name));
    let request = MdtRequest::Lookup { parent, name: name.clone(), want };
    let reply = ctx.mdt(parent, request, Kind::Plain).await.map_err(names::gone)?;
    let is_valid = |state: &mut State, grants: &[LockGrant]| {
        state.take_grants(target, grants);
        asked.is_valid(state, &name)
    };
    match reply {
        MdtReply::Absent { grants } => ctx.with(|state| {
            if is_valid(state, &grants) {
                Ok(Answer::Entry(state.absent_answer(parent, &name)))
            } else {
                Err(Status::NotFound)
            }
        }),
        MdtReply::Entry(entry) => {
            let fid = entry.fid;
            let was_valid = ctx.with(|state| {
                let was_valid = is_valid(state, &entry.grants);
                // The reply's facts need a place before the answer is made.
                state.nodes.get_or_new(fid);
                state.see_entry(&entry);
                state.note_missed_name(parent, &name);
                was_valid
            });
            settled_size(ctx, &entry);
            let attr = match entry.attr {
                Some(attr) if entry.stripes.is_empty() => with_size(ctx, attr, entry.layout).await,
                // On another MDT, or on several.
                _ => current_attr(ctx, fid).await,
            };
            let attr = attr.inspect_err(|_| ctx.with(|state| state.drop_unused_node(fid.inode_number())))?;
            let answer = ctx.with(|state| {
                let is_valid = was_valid && asked.is_valid(state, &name);
                state.entry_answer(Some((parent, &name)), attr, is_valid, false)
            });
            Ok(Answer::Entry(answer))
        }
        _ => Err(Status::ProtocolError),
    }
}

/// Fetches what a name leads to into the cache. The kernel gets no reference: the caller lets go of what is returned. Failures leave the cache
/// as it is.
pub(crate) async fn prefetch(ctx: &Ctx, parent: Fid, name: Vec<u8>) -> Option<Fid> {
    let known = ctx.with(|state| state.cached_name(parent, &name));
    if let Some(known) = known {
        if let Some(fid) = known {
            ctx.with(|state| {
                state.nodes.get_or_new(fid);
            });
            let _ = current_attr(ctx, fid).await;
        }
        return known;
    }
    let target = mdt_of(parent).ok()?;
    let (asked, want) = ctx.with(|state| Asked::begin(state, target, parent, &name));
    let request = MdtRequest::Lookup { parent, name: name.clone(), want };
    let Ok(MdtReply::Entry(entry)) = ctx.mdt(parent, request, Kind::Plain).await else { return None };
    ctx.with(|state| {
        state.take_grants(target, &entry.grants);
        state.nodes.get_or_new(entry.fid);
        state.see_entry(&entry);
        if asked.is_valid(state, &name) {
            state.names.put(parent, &name, Some(entry.fid), base::Time::ZERO);
        }
    });
    let fid = entry.fid;
    let asked = if entry.attr.is_none() { ask_inode(ctx, fid).await } else { Ok(*entry) };
    if asked.is_ok_and(|entry| !entry.stripes.is_empty()) {
        let _ = current_attr(ctx, fid).await;
    }
    Some(fid)
}
