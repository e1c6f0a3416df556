//! READDIR: entries in the order of their positions.

use super::{Cx, Stop};
use crate::rows::{self, Dentry, Inode};
use crate::tx::Row;
use base::limits::{FRAME_BODY_BYTES_MAX, READDIR_ENTRIES_MAX};
use base::{Fid, FileType, LockId, Status};
use wire::MdtReply;
use wire::mdt::DirEntry;

/// A reply stays well below a frame. Names of one position may exceed it a little: there are hardly ever two.
const REPLY_BYTES_MAX: usize = FRAME_BODY_BYTES_MAX / 2;
/// An upper bound of what an entry takes beside its name.
const ENTRY_BYTES: usize = 56;
const ATTR_BYTES: usize = 144;
/// The lock on an entry that is a directory.
const GRANT_BYTES: usize = 64;
/// Xattrs of one entry: an ACL, a label and a few short ones.
const XATTR_BYTES_MAX: usize = 512;

/// What a listing is to bring.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub entry_count_max: u32,
    pub with_attrs: bool,
    /// With the attributes.
    pub with_xattrs: bool,
    /// A lock for the directory's children.
    pub children: Option<LockId>,
    /// The first of `entry_count_max` locks for children that are directories.
    pub subdirectories: Option<LockId>,
    pub is_whole_wanted: bool,
}

/// # Errors
/// `NotDirectory`, `NotFound` when it was removed.
pub fn run(cx: &mut Cx, fid: Fid, after: u64, wanted: Wanted) -> Result<MdtReply, Stop> {
    cx.directory(fid)?;
    let grants = Vec::new();
    let Some(first) = after.checked_add(1) else {
        return Ok(MdtReply::Entries { entries: Vec::new(), is_end: true, grants });
    };
    let count_max = (wanted.entry_count_max as usize).clamp(1, READDIR_ENTRIES_MAX);
    let end = rows::end_of_prefix(&fid.key());
    // One more than wanted: whether there is one.
    let found = cx.tx.scan(rows::DENTRIES, &rows::position_key(fid, first), &end, count_max + 1)?;
    let is_end = found.len() <= count_max;
    if wanted.is_whole_wanted && !is_end {
        return Ok(MdtReply::Entries { entries: Vec::new(), is_end: false, grants });
    }
    cx.want_children(wanted.children, fid);
    let (mut entries, byte_count) = collect(cx, &found, wanted)?;
    let is_cut = entries.len() < found.len() || byte_count > REPLY_BYTES_MAX;
    let is_whole = is_end && !is_cut;
    if !is_whole {
        entries.truncate(count_max);
        complete_last_position(cx, fid, &mut entries, wanted)?;
    }
    want_subdirectories(cx, &entries, wanted);
    Ok(MdtReply::Entries { entries, is_end: is_whole, grants })
}

fn want_subdirectories(cx: &mut Cx, entries: &[DirEntry], wanted: Wanted) {
    let Some(first) = wanted.subdirectories else { return };
    let is_one = |entry: &&DirEntry| entry.file_type == FileType::Directory && entry.attr.is_some();
    let locks = (0..u64::from(wanted.entry_count_max)).map(|number| LockId(first.0.saturating_add(number)));
    for (entry, lock) in entries.iter().filter(is_one).zip(locks) {
        cx.want_directory(lock, entry.fid);
    }
}

fn collect(cx: &Cx, found: &[(Vec<u8>, Vec<u8>)], wanted: Wanted) -> Result<(Vec<DirEntry>, usize), Status> {
    let mut entries = Vec::with_capacity(found.len());
    let mut byte_count = 0;
    for (key, value) in found {
        let entry = dir_entry(cx, key, value, wanted)?;
        byte_count += byte_count_of(&entry);
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
    wanted: Wanted,
) -> Result<(), Status> {
    let Some(last) = entries.last().map(|entry| entry.position) else { return Ok(()) };
    entries.retain(|entry| entry.position != last);
    let (from, to) = (rows::position_key(fid, last), rows::position_key(fid, last.saturating_add(1)));
    for (key, value) in cx.tx.scan(rows::DENTRIES, &from, &to, usize::MAX)? {
        entries.push(dir_entry(cx, &key, &value, wanted)?);
    }
    Ok(())
}

fn byte_count_of(entry: &DirEntry) -> usize {
    let attr = if entry.attr.is_some() { ATTR_BYTES } else { 0 };
    let target = entry.symlink_target.as_ref().map_or(0, Vec::len);
    let xattrs = entry.xattrs.iter().flatten().map(|(name, value)| 8 + name.len() + value.len());
    let grant = if entry.file_type == FileType::Directory { GRANT_BYTES } else { 0 };
    ENTRY_BYTES + entry.name.len() + grant + attr + target + xattrs.sum::<usize>()
}

fn dir_entry(cx: &Cx, key: &[u8], value: &[u8], wanted: Wanted) -> Result<DirEntry, Status> {
    let (_, position, name) = rows::split_dentry_key(key).ok_or(Status::Corrupt)?;
    let Dentry { fid, file_type } = rows::decode(value)?;
    let bare = DirEntry {
        name: name.to_vec(),
        fid,
        file_type,
        position,
        attr: None,
        symlink_target: None,
        xattrs: None,
    };
    if !wanted.with_attrs || !cx.is_local(fid) {
        return Ok(bare);
    }
    // Those of a striped directory are in several places.
    let whole = cx.tx.inode(fid)?.filter(|inode| inode.stripes.is_empty());
    let Some(inode) = whole else { return Ok(bare) };
    let xattrs = if wanted.with_xattrs { short_xattrs(cx, &inode)? } else { None };
    Ok(DirEntry { attr: Some(inode.attr), symlink_target: inode.symlink_target, xattrs, ..bare })
}

/// All xattrs of an inode, if they are worth sending along.
fn short_xattrs(cx: &Cx, inode: &Inode) -> Result<Option<Vec<Row>>, Status> {
    if inode.xattr_count == 0 || inode.xattr_name_bytes as usize > XATTR_BYTES_MAX {
        return Ok(None);
    }
    let prefix = inode.attr.fid.key();
    // Nothing is changed by who lists, so what is stored is what there is.
    let rows = cx.tx.short_rows_of_prefix(rows::XATTRS, &prefix, XATTR_BYTES_MAX)?;
    let name_of = |key: Vec<u8>| key.get(prefix.len()..).unwrap_or_default().to_vec();
    Ok(rows.map(|rows| rows.into_iter().map(|(key, value)| (name_of(key), value)).collect()))
}
