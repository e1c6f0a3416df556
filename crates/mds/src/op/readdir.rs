//! READDIR: entries in the order of their positions.

use super::{Cx, Stop};
use crate::rows::{self, Dentry};
use base::limits::{FRAME_BODY_BYTES_MAX, READDIR_ENTRIES_MAX};
use base::{Fid, Status};
use wire::MdtReply;
use wire::mdt::DirEntry;

/// A reply stays well below a frame. Names of one position may exceed it a little: there are hardly ever two.
const REPLY_BYTES_MAX: usize = FRAME_BODY_BYTES_MAX / 2;
/// An upper bound of what an entry takes beside its name.
const ENTRY_BYTES: usize = 48;
const ATTR_BYTES: usize = 144;

/// # Errors
/// `NotDirectory`, `NotFound` when it was removed.
pub fn run(
    cx: &mut Cx,
    fid: Fid,
    after: u64,
    entry_count_max: u32,
    with_attrs: bool,
) -> Result<MdtReply, Stop> {
    cx.directory(fid)?;
    let Some(first) = after.checked_add(1) else {
        return Ok(MdtReply::Entries { entries: Vec::new(), is_end: true });
    };
    let count_max = (entry_count_max as usize).clamp(1, READDIR_ENTRIES_MAX);
    let end = rows::end_of_prefix(&fid.key());
    // Two more than wanted: whether the position after the last one is another one, and whether there is one.
    let found = cx.tx.scan(rows::DENTRIES, &rows::position_key(fid, first), &end, count_max + 1)?;
    let is_end = found.len() <= count_max;
    let (mut entries, byte_count) = collect(cx, &found, with_attrs)?;
    let is_cut = entries.len() < found.len() || byte_count > REPLY_BYTES_MAX;
    if is_end && !is_cut {
        return Ok(MdtReply::Entries { entries, is_end: true });
    }
    complete_last_position(cx, fid, &mut entries, with_attrs)?;
    Ok(MdtReply::Entries { entries, is_end: false })
}

fn collect(
    cx: &Cx,
    found: &[(Vec<u8>, Vec<u8>)],
    with_attrs: bool,
) -> Result<(Vec<DirEntry>, usize), Status> {
    let mut entries = Vec::with_capacity(found.len());
    let mut byte_count = 0;
    for (key, value) in found {
        let entry = dir_entry(cx, key, value, with_attrs)?;
        byte_count += ENTRY_BYTES + entry.name.len() + if entry.attr.is_some() { ATTR_BYTES } else { 0 };
        entries.push(entry);
        if byte_count > REPLY_BYTES_MAX {
            break;
        }
    }
    Ok((entries, byte_count))
}

/// Entries with equal positions are never split over two replies: the last position of a reply that does not reach
/// the end is read as a whole.
fn complete_last_position(
    cx: &Cx,
    fid: Fid,
    entries: &mut Vec<DirEntry>,
    with_attrs: bool,
) -> Result<(), Status> {
    let Some(last) = entries.last().map(|entry| entry.position) else { return Ok(()) };
    entries.retain(|entry| entry.position != last);
    let (from, to) = (rows::position_key(fid, last), rows::position_key(fid, last.saturating_add(1)));
    for (key, value) in cx.tx.scan(rows::DENTRIES, &from, &to, usize::MAX)? {
        entries.push(dir_entry(cx, &key, &value, with_attrs)?);
    }
    Ok(())
}

fn dir_entry(cx: &Cx, key: &[u8], value: &[u8], with_attrs: bool) -> Result<DirEntry, Status> {
    let (_, position, name) = rows::split_dentry_key(key).ok_or(Status::Corrupt)?;
    let Dentry { fid, file_type } = rows::decode(value)?;
    let attr = match with_attrs && cx.is_local(fid) {
        true => cx.tx.inode(fid)?.map(|inode| inode.attr),
        false => None,
    };
    Ok(DirEntry { name: name.to_vec(), fid, file_type, position, attr })
}
