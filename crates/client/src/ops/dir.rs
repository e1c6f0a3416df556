//! Directory handles and their listings.

use crate::call::{Answer, DirEntryAnswer, OpenMode};
use crate::ctx::{Ctx, Outcome, join_all};
use crate::handles::Handle;
use crate::ops::{attr, fid_of};
use base::{Fid, FileType, OpenHandle, Status};
use rpc::Kind;
use wire::mdt::{DirEntry, OpenArgs};
use wire::{MdtReply, MdtRequest};

/// Offsets of `.` and `..`; positions on the MDT lie above.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// Entries in one request.
const ENTRY_COUNT: u32 = 1024;
/// Bytes of one entry in FUSE's packing without its name, of a READDIR and of a READDIRPLUS.
const DIRENT_BYTES: usize = 24;
const DIRENT_PLUS_BYTES: usize = 128 + DIRENT_BYTES;

/// Nothing is said to the MDT: a listing needs no state there.
pub(crate) async fn opendir(ctx: &Ctx, node: u64) -> Outcome<Answer> {
    let fid = fid_of(ctx, node)?;
    let fh = ctx.with(|state| {
        state.last_handle += 1;
        let args =
            OpenArgs { handle: OpenHandle(state.last_handle), read: true, write: false, execute: false };
        let mut handle = Handle::new(fid, args);
        handle.is_directory = true;
        state.handles.insert(state.last_handle, handle);
        state.nodes.get_or_new(fid).open_count += 1;
        state.last_handle
    });
    Ok(Answer::Opened { fh, mode: OpenMode::default() })
}

pub(crate) fn releasedir(ctx: &Ctx, fh: u64) -> Outcome<Answer> {
    ctx.with(|state| {
        if let Some(handle) = state.handles.remove(&fh) {
            let node_id = handle.fid.inode_number();
            if let Some(node) = state.nodes.get_mut(node_id) {
                node.open_count = node.open_count.saturating_sub(1);
            }
            state.drop_unused_node(node_id);
        }
    });
    Ok(Answer::Done)
}

pub(crate) async fn readdir(
    ctx: &Ctx,
    node: u64,
    fh: u64,
    offset: u64,
    byte_count: u32,
    is_plus: bool,
) -> Outcome<Answer> {
    let fid = fid_of(ctx, node)?;
    if offset == 0 {
        // rewinddir(3): what was read before may have changed.
        ctx.with(|state| {
            if let Some(handle) = state.handles.get_mut(&fh) {
                handle.listing = Default::default();
            }
        });
    }
    let mut room = byte_count as usize;
    let mut answer = Vec::new();
    let mut at = offset;
    for (own, name) in [(DOT, &b"."[..]), (DOT_DOT, &b".."[..])] {
        if at < own {
            if !take_room(&mut room, name, is_plus) {
                return Ok(Answer::Entries(answer));
            }
            // `..` of a directory that is no root is answered by the kernel from its own tree.
            answer.push(DirEntryAnswer {
                name: name.to_vec(),
                node: fid.inode_number(),
                file_type: FileType::Directory,
                offset: own,
                entry: None,
            });
            at = own;
        }
    }
    loop {
        let Some(entry) = next_entry(ctx, fid, fh, at).await? else { break };
        if !take_room(&mut room, &entry.name, is_plus) {
            put_back(ctx, fh, entry, at);
            break;
        }
        at = entry.position;
        answer.push(DirEntryAnswer {
            node: entry.fid.inode_number(),
            file_type: entry.file_type,
            offset: entry.position,
            entry: None,
            name: entry.name,
        });
    }
    if answer.is_empty() && room < DIRENT_BYTES {
        return Err(Status::Invalid);
    }
    if is_plus {
        add_attributes(ctx, fid, &mut answer).await;
    }
    Ok(Answer::Entries(answer))
}

/// READDIRPLUS: names and attributes are fetched side by side with their locks, and go along as far as the locks are
/// still held at the end. While another call on the directory is unanswered names get no lifetime, as the kernel
/// could be told to forget them before it has read this answer (hazard 3.3).
async fn add_attributes(ctx: &Ctx, fid: Fid, answer: &mut [DirEntryAnswer]) {
    let is_named = |entry: &&mut DirEntryAnswer| entry.name != b"." && entry.name != b"..";
    let lookups = answer
        .iter_mut()
        .filter(is_named)
        .map(|entry| attr::prefetch(ctx, fid, entry.name.clone()))
        .collect();
    join_all(lookups).await;
    ctx.with(|state| {
        let is_alone = state.held.get(&fid.inode_number()).is_none_or(|count| *count == 1);
        for entry in answer.iter_mut().filter(is_named) {
            if let Some(Some(child)) = state.cached_name(fid, &entry.name)
                && let Some(attr) = state.cached_attr(child)
            {
                entry.node = child.inode_number();
                entry.file_type = attr.file_type;
                entry.entry = Some(state.entry_answer(Some((fid, &entry.name)), attr, is_alone, false));
            }
            state.drop_unused_node(entry.node);
        }
    });
}

fn take_room(room: &mut usize, name: &[u8], is_plus: bool) -> bool {
    let header = if is_plus { DIRENT_PLUS_BYTES } else { DIRENT_BYTES };
    let needed = (header + name.len()).next_multiple_of(8);
    if needed > *room {
        return false;
    }
    *room -= needed;
    true
}

fn put_back(ctx: &Ctx, fh: u64, entry: DirEntry, at: u64) {
    ctx.with(|state| {
        if let Some(handle) = state.handles.get_mut(&fh) {
            handle.listing.ahead.push(entry);
            handle.listing.offset = at;
        }
    });
}

/// The entry behind offset `at`; `None` at the end. Offsets other than where the handle stands start afresh.
async fn next_entry(ctx: &Ctx, fid: Fid, fh: u64, at: u64) -> Outcome<Option<DirEntry>> {
    let after = if at <= DOT_DOT { 0 } else { at };
    loop {
        let known = ctx.with(|state| {
            let handle =
                state.handles.get_mut(&fh).filter(|handle| handle.is_directory).ok_or(Status::BadHandle)?;
            let listing = &mut handle.listing;
            if at <= DOT_DOT && listing.offset > DOT_DOT || at > DOT_DOT && listing.offset != at {
                listing.ahead.clear();
                listing.is_end = false;
                listing.offset = at;
            }
            Ok(match listing.ahead.pop() {
                Some(entry) => {
                    listing.offset = entry.position;
                    Some(Some(entry))
                }
                None if listing.is_end => Some(None),
                None => None,
            })
        })?;
        if let Some(next) = known {
            return Ok(next);
        }
        let request = MdtRequest::Readdir { fid, after, entry_count_max: ENTRY_COUNT, with_attrs: false };
        let MdtReply::Entries { mut entries, is_end } = ctx.mdt(fid, request, Kind::Plain).await? else {
            return Err(Status::ProtocolError);
        };
        if entries.is_empty() && !is_end || entries.iter().any(|entry| entry.position <= after) {
            return Err(Status::ProtocolError);
        }
        ctx.with(|state| {
            if let Some(handle) = state.handles.get_mut(&fh) {
                entries.reverse();
                handle.listing.ahead = entries;
                handle.listing.is_end = is_end;
                handle.listing.offset = at;
            }
        });
    }
}
