//! MIGRATE: an inode moves to another MDT, where it gets a new FID. Executed on the MDT that is to have it.
//!
//! A directory moves with all its names, so that everybody sees all of them under the old FID or all of them under the new
//! one; what they lead to stays where it is, and moves by operations of its own. In the place of the inode its old MDT keeps
//! a row: who comes with the old FID is told to look the name up again.
//!
//! What moves is known to be closed: nobody opens symlinks and devices here, and who has a directory open finds it by its name
//! again. Regular files have objects that bear their FID, and stay. So do FIFOs and sockets, which kernels know by inode.

use super::{Cx, Stop, create, entry_reply, part, stripes};
use crate::access;
use crate::rows::{self, Dentry, Inode};
use base::names::check_name;
use base::{Attr, Fid, FileType, Status};
use std::collections::BTreeMap;
use wire::MdtReply;
use wire::mdt::Credentials;
use wire::peer::{Part, Whole};

/// What one transaction takes, on the old MDT or on the new one.
const BYTES_MAX: usize = store::BATCH_BYTES_MAX - (64 << 10);
/// An upper bound of what a name takes of that, beside three times its length: it goes, and its inode gets another link.
const NAME_BYTES: usize = 200;
/// Links in one part: it is the value of a row.
const LINK_BYTES_MAX: usize = store::VALUE_BYTES_MAX / 2;
/// Of a link, beside its name.
const LINK_BYTES: usize = 24;

/// # Errors
/// `NotPermitted` for all but the superuser, `Stale` when the name does not lead to the inode; `NotSupported` for what cannot move,
/// `TooManyLinks` for a file with several names, `TooBig` for a directory with too many entries.
pub fn run(cx: &mut Cx, parent: Fid, name: &[u8], fid: Fid, creds: &Credentials) -> Result<MdtReply, Stop> {
    check_name(name)?;
    if !access::is_superuser(creds) {
        return Err(Status::NotPermitted.into());
    }
    if cx.is_local(fid) {
        let inode = cx.inode(fid)?;
        return Ok(entry_reply(cx.entry(&inode)));
    }
    let dentry = dentry(cx, parent, name)?.filter(|dentry| dentry.fid == fid).ok_or(Status::Stale)?;
    let remote = cx.remote;
    let whole = remote.wholes.get(&fid).ok_or(Stop::PeekWhole { fid })?;
    check_whole(whole, dentry)?;
    let here = cx.mdt_index;
    let to = remote.fids.get(&here).copied().ok_or(Stop::NewFid { mdt: here })?;
    let inode = take_over(cx, whole, to)?;
    cx.put_link(to, parent, name);
    for part in links_elsewhere(cx, whole, to)? {
        cx.parts.push(part);
    }
    let file_type = dentry.file_type;
    let redirect = Part::Redirect { parent, name: name.to_vec(), old: fid, new: to, file_type };
    part::execute(cx, redirect, creds)?;
    cx.remote_part(fid, Part::GiveAway { fid, to, attr: Box::new(whole.attr.clone()) })?;
    Ok(entry_reply(cx.entry(&inode)))
}

fn dentry(cx: &Cx, parent: Fid, name: &[u8]) -> Result<Option<Dentry>, Stop> {
    if cx.is_local(parent) {
        cx.directory_of(parent, name)?;
        return Ok(cx.tx.dentry(parent, name)?);
    }
    let key = (parent, name.to_vec());
    let peeked = cx.remote.peeked.get(&key).ok_or(Stop::Peek { parent: key.0, name: key.1 })?;
    Ok(peeked.entry.map(|(fid, file_type)| Dentry { fid, file_type }))
}

/// What another MDT says of its inode.
fn check_whole(whole: &Whole, dentry: Dentry) -> Result<(), Status> {
    let is_directory = dentry.file_type == FileType::Directory;
    let are_names = whole.entries.iter().all(|(name, ..)| check_name(name).is_ok());
    let is_sound = whole.attr.file_type == dentry.file_type && are_names;
    if !is_sound || (!is_directory && !whole.entries.is_empty()) || byte_count(whole) > BYTES_MAX {
        return Err(Status::ProtocolError);
    }
    Ok(())
}

fn byte_count(whole: &Whole) -> usize {
    let names = whole.entries.iter().map(|(name, ..)| NAME_BYTES + 3 * name.len());
    let xattrs = whole.xattrs.iter().map(|(name, value)| NAME_BYTES + name.len() + value.len());
    names.chain(xattrs).sum()
}

/// The inode as this MDT has it from now on, and its names.
fn take_over(cx: &mut Cx, whole: &Whole, to: Fid) -> Result<Inode, Status> {
    if cx.tx.inode(to)?.is_some() {
        return Err(Status::VersionConflict);
    }
    let mut inode = Inode {
        symlink_target: whole.symlink_target.clone(),
        default_layout: whole.default_layout.clone(),
        default_striping: whole.default_striping.clone(),
        ..Inode::new(Attr { fid: to, version: cx.version, ..whole.attr.clone() })
    };
    create::put_new(cx, &mut inode, &whole.xattrs);
    for (name, fid, file_type) in &whole.entries {
        cx.tx.put_dentry(to, name, Dentry { fid: *fid, file_type: *file_type });
        if cx.is_local(*fid) {
            move_link(cx, *fid, (whole.attr.fid, to), name)?;
        }
    }
    Ok(inode)
}

/// What other MDTs than the old and the new one have to know of the names.
fn links_elsewhere(cx: &Cx, whole: &Whole, to: Fid) -> Result<Vec<(u16, Part)>, Status> {
    let old_parent = whole.attr.fid;
    let mut links_of: BTreeMap<u16, Vec<(Fid, Vec<u8>)>> = BTreeMap::new();
    for (name, fid, _) in &whole.entries {
        let mdt = fid.mdt_index().ok_or(Status::Corrupt)?;
        if mdt != cx.mdt_index && Some(mdt) != old_parent.mdt_index() {
            links_of.entry(mdt).or_default().push((*fid, name.clone()));
        }
    }
    let byte_count = |links: &Vec<(Fid, Vec<u8>)>| -> usize {
        links.iter().map(|(_, name)| LINK_BYTES + name.len()).sum()
    };
    if links_of.values().any(|links| byte_count(links) > LINK_BYTES_MAX) {
        return Err(Status::TooBig);
    }
    let part = |(mdt, links)| (mdt, Part::MoveLinks { old_parent, parent: to, links });
    Ok(links_of.into_iter().map(part).collect())
}

/// All of an inode of this MDT that is to move.
///
/// # Errors
/// `Stale`, `Moved`; as `run` for what stays.
pub fn whole(cx: &Cx, fid: Fid) -> Result<Whole, Status> {
    let inode = cx.inode(fid)?;
    check_may_move(cx, &inode)?;
    let mut xattrs = Vec::new();
    for (key, value) in cx.tx.scan_prefix(rows::XATTRS, &fid.key(), usize::MAX)? {
        xattrs.push((key.get(16..).ok_or(Status::Corrupt)?.to_vec(), value));
    }
    let mut entries = Vec::new();
    // One more than can move.
    for (key, value) in cx.tx.scan_prefix(rows::DENTRIES, &fid.key(), 1 + BYTES_MAX / NAME_BYTES)? {
        let (_, _, name) = rows::split_dentry_key(&key).ok_or(Status::Corrupt)?;
        let dentry: Dentry = rows::decode(&value)?;
        entries.push((name.to_vec(), dentry.fid, dentry.file_type));
    }
    let Inode { attr, symlink_target, default_layout, default_striping, .. } = inode;
    let whole = Whole { attr, symlink_target, xattrs, default_layout, default_striping, entries };
    if byte_count(&whole) > BYTES_MAX { Err(Status::TooBig) } else { Ok(whole) }
}

fn check_may_move(cx: &Cx, inode: &Inode) -> Result<(), Status> {
    let fid = inode.attr.fid;
    match inode.attr.file_type {
        FileType::Directory if stripes::master_of(cx, fid)?.is_some() || fid == Fid::ROOT => {
            Err(Status::NotSupported)
        }
        FileType::Directory => Ok(()),
        FileType::Symlink | FileType::CharDevice | FileType::BlockDevice if inode.attr.link_count == 1 => {
            Ok(())
        }
        FileType::Symlink | FileType::CharDevice | FileType::BlockDevice => Err(Status::TooManyLinks),
        FileType::Regular | FileType::Fifo | FileType::Socket => Err(Status::NotSupported),
    }
}

/// The inode goes from here, with its names; what these lead to, and is here, stays under its new directory.
///
/// # Errors
/// `GIVE_WAY` when it is not as it was told; as `whole`.
pub fn give_away(cx: &mut Cx, fid: Fid, to: Fid, attr: &Attr) -> Result<(), Status> {
    let inode = cx.tx.inode(fid)?.filter(|inode| inode.attr == *attr).ok_or(part::GIVE_WAY)?;
    check_may_move(cx, &inode)?;
    for (key, value) in cx.tx.scan_prefix(rows::DENTRIES, &fid.key(), usize::MAX)? {
        let (_, _, name) = rows::split_dentry_key(&key).ok_or(Status::Corrupt)?;
        let dentry: Dentry = rows::decode(&value)?;
        if cx.is_local(dentry.fid) {
            move_link(cx, dentry.fid, (fid, to), name)?;
        }
        cx.tx.delete(rows::DENTRIES, key);
    }
    cx.destroy(&inode)?;
    cx.tx.put(rows::MOVED, fid.key().to_vec(), rows::encode(&to));
    Ok(())
}

/// # Errors
/// `GIVE_WAY` when the name does not lead to `old`; `NotFound`, `NotDirectory`.
pub fn redirect(
    cx: &mut Cx,
    parent: Fid,
    name: &[u8],
    (old, new): (Fid, Fid),
    file_type: FileType,
) -> Result<(), Status> {
    cx.directory_of(parent, name)?;
    if cx.tx.dentry(parent, name)? != Some(Dentry { fid: old, file_type }) {
        return Err(part::GIVE_WAY);
    }
    cx.tx.put_dentry(parent, name, Dentry { fid: new, file_type });
    Ok(())
}

/// The directory in which an inode of this MDT has this name is another one's now.
///
/// # Errors
/// `GIVE_WAY` when the inode does not know that it has the name: it has just got it, or lost it.
pub fn move_link(cx: &mut Cx, fid: Fid, (from, to): (Fid, Fid), name: &[u8]) -> Result<(), Status> {
    // What another operation holds shows in the inode.
    let is_there = cx.tx.inode(fid)?.is_some();
    if !is_there || cx.tx.get(rows::LINKS, &rows::link_key(fid, from, name))?.is_none() {
        return Err(part::GIVE_WAY);
    }
    cx.delete_link(fid, from, name);
    cx.put_link(fid, to, name);
    Ok(())
}
