//! Striped directories: one directory whose names are spread over several MDTs.
//!
//! Each stripe is a directory of its MDT like any other, to which clients send what they do with the names that it holds. The first
//! one is the directory itself, with its name, its attributes and the list of all; the list never changes. Each other one has a
//! link to it in place of a name. What is made, removed or changed of the whole is one operation with a part for each stripe.

use super::{Cx, Stop, create, entry_reply, part, path, remote_entry};
use crate::access;
use crate::acl;
use crate::rows::{self, Dentry, Inode};
use base::limits::DIRECTORY_STRIPES_MAX;
use base::{Fid, FileType, Status, WallTime};
use std::collections::BTreeSet;
use wire::MdtReply;
use wire::mdt::{CreateRequest, Credentials, DirStriping, Entry, NewNode};
use wire::peer::Part;

type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// MAKESTRIPED. `made`: of a replay, what was made.
///
/// # Errors
/// As mkdir(2); `NoDevice` for an MDT that there is not, `Invalid` for a striping that cannot be.
pub fn make(
    cx: &mut Cx,
    request: &CreateRequest,
    striping: &DirStriping,
    made: &[Fid],
) -> Result<MdtReply, Stop> {
    if request.node != NewNode::Directory || request.is_unnamed || request.open.is_some() {
        return Err(Status::Invalid.into());
    }
    create::make(cx, request, Some(create::Wanted { striping, made }))
}

/// SETDEFAULTSTRIPING
///
/// # Errors
/// `NotDirectory`, `NotPermitted` unless the caller is the owner; as `make`.
pub fn set_default(
    cx: &mut Cx,
    fid: Fid,
    striping: Option<&DirStriping>,
    creds: &Credentials,
) -> Result<MdtReply, Stop> {
    let mut inode = cx.directory(fid)?;
    access::check_owner(&inode.attr, creds)?;
    if let Some(striping) = striping {
        check(cx, striping)?;
    }
    inode.default_striping = striping.cloned();
    cx.touch(&mut inode);
    cx.tx.put_inode(&inode);
    lead(cx, &inode, None)?;
    Ok(entry_reply(cx.entry(&inode)))
}

/// # Errors
/// `NotDirectory`
pub fn default_of(cx: &mut Cx, fid: Fid) -> Result<MdtReply, Stop> {
    Ok(MdtReply::DefaultStriping(cx.directory(fid)?.default_striping))
}

/// # Errors
/// As `make`.
fn check(cx: &Cx, striping: &DirStriping) -> Result<(), Status> {
    let DirStriping { stripe_count, mdts } = striping;
    if striping.is_by_space() {
        return Ok(());
    }
    if mdts.iter().any(|mdt| usize::from(*mdt) >= cx.mdt_count) {
        return Err(Status::NoDevice);
    }
    let is_each_other = mdts.iter().collect::<BTreeSet<_>>().len() == mdts.len();
    let is_count = mdts.len() < 2 || *stripe_count == 0 || usize::from(*stripe_count) == mdts.len();
    if is_each_other && is_count && mdts.len() <= DIRECTORY_STRIPES_MAX {
        Ok(())
    } else {
        Err(Status::Invalid)
    }
}

/// The MDTs of a new directory, that of its names and attributes first. Those that are drained get it only when nobody else is there; whoever
/// names one of them (`is_asked`, and not the directory's default) wants no other, and is refused.
///
/// # Errors
/// As `make`; `Stop::Place` until the first is chosen, where that is ours to do.
pub fn mdts_of(cx: &Cx, striping: &DirStriping, is_asked: bool) -> Result<Vec<u16>, Stop> {
    check(cx, striping)?;
    let DirStriping { stripe_count, mdts } = striping;
    let is_open = |mdt: &u16| !cx.drained_mdts.contains(mdt);
    if is_asked && !mdts.iter().all(is_open) {
        return Err(Status::Invalid.into());
    }
    if mdts.len() > 1 && mdts.iter().all(is_open) {
        return Ok(mdts.clone());
    }
    let first = match mdts.first() {
        Some(mdt) if !striping.is_by_space() && is_open(mdt) => *mdt,
        None if is_open(&cx.mdt_index) => cx.mdt_index,
        _ => cx.remote.placed.ok_or(Stop::Place)?,
    };
    let is_taken = |mdt: &u16| *mdt == first || is_open(mdt);
    let stripe_count = if mdts.len() > 1 { mdts.len() as u16 } else { *stripe_count };
    let first_place = usize::from(first);
    let following = (first_place..cx.mdt_count).chain(0..first_place).map(|mdt| mdt as u16).filter(is_taken);
    let count = usize::from(stripe_count.max(1)).min(cx.mdt_count).min(DIRECTORY_STRIPES_MAX);
    Ok(following.take(count).collect())
}

/// FIDs for a directory on these MDTs, the same in each run of an operation.
///
/// # Errors
/// `Stop::NewFid` until they are known.
pub fn new_fids(cx: &mut Cx, mdts: &[u16]) -> Result<Vec<Fid>, Stop> {
    mdts.iter().map(|mdt| new_fid(cx, *mdt)).collect()
}

fn new_fid(cx: &mut Cx, mdt: u16) -> Result<Fid, Stop> {
    if let Some(fid) = cx.remote.fids.get(&mdt) {
        return Ok(*fid);
    }
    let fid = cx.given.get(&mdt).copied().ok_or(Stop::NewFid { mdt })?;
    cx.taken.insert(mdt, fid);
    Ok(fid)
}

/// FIDs that a replay names.
///
/// # Errors
/// `Invalid` for what no client was told.
pub fn check_made(made: &[Fid]) -> Result<(), Status> {
    let is_each_other = made.iter().collect::<BTreeSet<_>>().len() == made.len();
    let is_possible = is_each_other && !made.is_empty() && made.len() <= DIRECTORY_STRIPES_MAX;
    if is_possible { Ok(()) } else { Err(Status::Invalid) }
}

/// Makes a directory that consists of these, each on its MDT; it is no striped one when there is only one.
///
/// # Errors
/// Those of the parts.
pub fn spread(
    cx: &mut Cx,
    request: &CreateRequest,
    mut parent: Inode,
    inode: &Inode,
    xattrs: &Xattrs,
    fids: &[Fid],
) -> Result<MdtReply, Stop> {
    let first = *fids.first().ok_or(Status::Invalid)?;
    let stripes = if fids.len() > 1 { fids.to_vec() } else { Vec::new() };
    for fid in fids {
        let is_first = *fid == first;
        let part = Part::MakeStripe {
            attr: base::Attr { fid: *fid, ..inode.attr.clone() },
            parent: if is_first { request.parent } else { first },
            name: if is_first { request.name.clone() } else { Vec::new() },
            xattrs: xattrs.clone(),
            default_layout: inode.default_layout.clone(),
            stripes: if is_first { stripes.clone() } else { Vec::new() },
            default_striping: inode.default_striping.clone(),
        };
        part::execute(cx, part, &request.creds)?;
    }
    let dentry = Dentry { fid: first, file_type: FileType::Directory };
    cx.add_name(&mut parent, &request.name, dentry)?;
    cx.tx.put_inode(&parent);
    cx.want_name(request.want, request.parent, &request.name);
    let made = if cx.is_local(first) { cx.tx.inode(first)? } else { None };
    let mut entry = match made {
        Some(inode) => {
            cx.want_inode(request.want, &inode);
            cx.entry(&inode)
        }
        None => Entry { stripes, ..remote_entry(dentry) },
    };
    entry.parent_attr = Some(parent.attr);
    entry.was_created = true;
    Ok(entry_reply(entry))
}

/// # Errors
/// `VersionConflict` when the FID is in use or of another MDT; `ProtocolError`.
pub fn make_stripe(cx: &mut Cx, part: &mut Part) -> Result<(), Status> {
    let Part::MakeStripe { attr, parent, name, xattrs, default_layout, stripes, default_striping } = part
    else {
        return Err(Status::ProtocolError);
    };
    let is_list = stripes.is_empty() || stripes.first() == Some(&attr.fid);
    if attr.file_type != FileType::Directory || !is_list || stripes.len() > DIRECTORY_STRIPES_MAX {
        return Err(Status::ProtocolError);
    }
    let inode = Inode {
        default_layout: default_layout.clone(),
        stripes: stripes.clone(),
        default_striping: default_striping.clone(),
        ..Inode::new(attr.clone())
    };
    part::put_directory(cx, inode, xattrs, (*parent, name))
}

/// The directories that hold the names of one: itself, and its other stripes.
///
/// # Errors
/// `Stop::PeekDirectory` for one of another MDT.
pub fn of(cx: &Cx, fid: Fid) -> Result<Vec<Fid>, Stop> {
    let stripes = if cx.is_local(fid) {
        cx.tx.inode(fid)?.map_or_else(Vec::new, |inode| inode.stripes)
    } else {
        cx.remote.directories.get(&fid).ok_or(Stop::PeekDirectory { fid })?.stripes.clone()
    };
    Ok(if stripes.is_empty() { vec![fid] } else { stripes })
}

/// Removes a directory, if all of it is empty. Describes it, if it is of this MDT and all of it.
///
/// # Errors
/// As `part::remove_directory`.
pub fn remove(cx: &mut Cx, fid: Fid, must_own: bool, creds: &Credentials) -> Result<Option<Entry>, Stop> {
    let mut removed = None;
    let stripes = of(cx, fid)?;
    for stripe in &stripes {
        let stripe = *stripe;
        if !cx.is_local(stripe) {
            cx.remote_part(stripe, Part::RemoveDirectory { fid: stripe, must_own })?;
            continue;
        }
        let inode = part::remove_directory(cx, stripe, must_own.then_some(creds))?;
        if stripes.len() == 1 {
            removed = Some(cx.entry(&inode));
        }
    }
    Ok(removed)
}

/// The striped directory that a directory of this MDT is a part of.
///
/// # Errors
/// Those of the store.
pub fn master_of(cx: &Cx, fid: Fid) -> Result<Option<Fid>, Status> {
    if cx.tx.inode(fid)?.is_some_and(|inode| !inode.stripes.is_empty()) {
        return Ok(Some(fid));
    }
    Ok(path::parent_of(cx, fid)?.filter(|(_, name)| name.is_empty()).map(|(master, _)| master))
}

/// Whether a directory of this MDT and another one are stripes of the same.
///
/// # Errors
/// `Stop::PeekDirectory`
pub fn are_siblings(cx: &Cx, fid: Fid, other: Fid) -> Result<bool, Stop> {
    let Some(master) = master_of(cx, fid)? else { return Ok(false) };
    let master_of_other = if cx.is_local(other) {
        master_of(cx, other)?
    } else {
        cx.remote.directories.get(&other).ok_or(Stop::PeekDirectory { fid: other })?.master
    };
    Ok(master_of_other == Some(master))
}

/// A striped directory has got other permissions, owners, ACLs or defaults, or another `mtime`: so do its other stripes, which check
/// and hand on their own.
///
/// # Errors
/// Those of the store.
pub fn lead(cx: &mut Cx, inode: &Inode, mtime: Option<WallTime>) -> Result<(), Status> {
    let mut acls = Xattrs::new();
    for name in [acl::ACCESS, acl::DEFAULT].into_iter().filter(|_| !inode.stripes.is_empty()) {
        let value = cx.tx.get(rows::XATTRS, &rows::xattr_key(inode.attr.fid, name))?;
        acls.extend(value.map(|value| (name.to_vec(), value)));
    }
    for stripe in inode.stripes.iter().skip(1) {
        let follow = Part::Follow {
            fid: *stripe,
            permissions: inode.attr.permissions,
            uid: inode.attr.uid,
            gid: inode.attr.gid,
            mtime,
            acls: acls.clone(),
            default_layout: inode.default_layout.clone(),
            default_striping: inode.default_striping.clone(),
        };
        part::execute(cx, follow, &Credentials::default())?;
    }
    Ok(())
}

/// # Errors
/// `NotFound`, `NotDirectory`, `ProtocolError`
pub fn follow(cx: &mut Cx, part: &Part) -> Result<(), Status> {
    let Part::Follow { fid, permissions, uid, gid, mtime, acls, default_layout, default_striping } = part
    else {
        return Err(Status::ProtocolError);
    };
    let mut inode = cx.directory(*fid)?;
    (inode.attr.permissions, inode.attr.uid, inode.attr.gid) = (*permissions, *uid, *gid);
    inode.default_layout.clone_from(default_layout);
    inode.default_striping.clone_from(default_striping);
    for name in [acl::ACCESS, acl::DEFAULT] {
        match acls.iter().find(|(known, _)| known == name) {
            Some((_, value)) => super::xattr::put(cx, &mut inode, name, value)?,
            None => drop(super::xattr::delete(cx, &mut inode, name)?),
        }
    }
    if let Some(mtime) = mtime {
        cx.set_mtime(&mut inode, *mtime);
    }
    cx.touch(&mut inode);
    cx.tx.put_inode(&inode);
    Ok(())
}
