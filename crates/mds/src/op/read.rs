//! LOOKUP, GETATTR, READLINK.

use super::{Cx, Stop, entry_reply, path, remote_entry};
use crate::rows::Dentry;
use base::names::check_name;
use base::{Fid, FileType, Status};
use wire::MdtReply;
use wire::lock::LockWant;
use wire::mdt::Entry;

/// # Errors
/// `NotDirectory`, `NotFound` when the directory was removed. An absent name is no error.
pub fn lookup(cx: &mut Cx, parent: Fid, name: &[u8], want: LockWant) -> Result<MdtReply, Stop> {
    match name {
        b"." => return whole(cx, parent),
        b".." => return above(cx, parent),
        _ => check_name(name)?,
    }
    cx.directory_of(parent, name)?;
    cx.want_name(want, parent, name);
    let Some(dentry) = cx.tx.dentry(parent, name)? else {
        return Ok(MdtReply::Absent { grants: Vec::new() });
    };
    if !cx.is_local(dentry.fid) {
        return Ok(entry_reply(remote_entry(dentry)));
    }
    // A name without its inode is damage.
    let inode = cx.tx.inode(dentry.fid)?.ok_or(Status::Corrupt)?;
    cx.want_inode(want, &inode);
    Ok(entry_reply(cx.entry(&inode)))
}

/// The directory that clients know: of a stripe, the one that it belongs to, which may be on another MDT.
fn whole(cx: &mut Cx, directory: Fid) -> Result<MdtReply, Stop> {
    let inode = cx.directory(directory)?;
    Ok(entry_reply(match path::parent_of(cx, directory)? {
        // A stripe has no name of its own.
        Some((master, name)) if name.is_empty() => elsewhere(master),
        _ => cx.entry(&inode),
    }))
}

/// The directory that another one is in.
fn above(cx: &mut Cx, directory: Fid) -> Result<MdtReply, Stop> {
    cx.directory(directory)?;
    if directory == Fid::ROOT {
        return whole(cx, directory);
    }
    let (parent, _) = path::parent_of(cx, directory)?.ok_or(Status::NotFound)?;
    if cx.is_local(parent) { whole(cx, parent) } else { Ok(entry_reply(elsewhere(parent))) }
}

fn elsewhere(directory: Fid) -> Entry {
    remote_entry(Dentry { fid: directory, file_type: FileType::Directory })
}

/// # Errors
/// `Stale`
pub fn getattr(cx: &mut Cx, fid: Fid, want: LockWant) -> Result<MdtReply, Stop> {
    let inode = cx.inode(fid)?;
    cx.want_inode(want, &inode);
    // Who asked before it was evicted may be answered before its handles are open again.
    if cx.opens.is_written_by(fid, cx.client) {
        cx.want_write_back(want, &inode);
    }
    Ok(entry_reply(cx.entry(&inode)))
}

/// # Errors
/// `Invalid` for anything but a symlink.
pub fn readlink(cx: &mut Cx, fid: Fid) -> Result<MdtReply, Stop> {
    let target = cx.inode(fid)?.symlink_target.ok_or(Status::Invalid)?;
    Ok(MdtReply::Bytes(target))
}
