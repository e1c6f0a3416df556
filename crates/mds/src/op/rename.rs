//! RENAME, executed on the MDT of the new parent.

use super::{Cx, Stop, part, path, stripes};
use crate::access::{self, EXECUTE, WRITE};
use crate::rows::{Dentry, Inode};
use base::names::check_name;
use base::{Attr, Fid, FileType, Status};
use part::execute;
use wire::MdtReply;
use wire::mdt::{Credentials, Entry, Met};
use wire::peer::Part;

pub const NOREPLACE: u32 = 1;
pub const EXCHANGE: u32 = 2;

/// One end of a rename.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub parent: Fid,
    pub name: &'a [u8],
}

/// Both directories and what their names lead to.
struct Found {
    from: Attr,
    to: Inode,
    source: Dentry,
    target: Option<Dentry>,
}

impl Found {
    fn met(&self) -> Met {
        Met { fid: self.source.fid, replaced: self.target.map(|target| target.fid) }
    }
}

/// # Errors
/// As renameat2(2).
pub fn run(cx: &mut Cx, from: Place, to: Place, flags: u32, creds: &Credentials) -> Result<MdtReply, Stop> {
    check_name(from.name)?;
    check_name(to.name)?;
    if flags & !(NOREPLACE | EXCHANGE) != 0 || flags == NOREPLACE | EXCHANGE {
        return Err(Status::Invalid.into());
    }
    let found = find(cx, from, to, creds)?;
    cx.check_met(found.met())?;
    match found.target {
        Some(_) if flags & NOREPLACE != 0 => return Err(Status::Exists.into()),
        None if flags & EXCHANGE != 0 => return Err(Status::NotFound.into()),
        // Two names of one inode: nothing to do, says POSIX.
        Some(target) if target.fid == found.source.fid => return Ok(nothing(cx, from, &found)?),
        _ => {}
    }
    access::check_access(&cx.tx, &found.to, creds, WRITE | EXECUTE)?;
    check_own(cx, &found.from, found.source, creds)?;
    if let Some(target) = found.target {
        check_own(cx, &found.to.attr, target, creds)?;
    }
    if flags & EXCHANGE != 0 {
        return exchange(cx, from, to, &found, creds);
    }
    replace(cx, from, to, &found, creds)
}

fn find(cx: &Cx, from: Place, to: Place, creds: &Credentials) -> Result<Found, Stop> {
    let (from_attr, source) = if cx.is_local(from.parent) {
        let directory = cx.directory_of(from.parent, from.name)?;
        access::check_access(&cx.tx, &directory, creds, EXECUTE)?;
        let source = cx.tx.dentry(from.parent, from.name)?;
        if source.is_some() {
            access::check_access(&cx.tx, &directory, creds, WRITE | EXECUTE)?;
        }
        (directory.attr, source)
    } else {
        let key = (from.parent, from.name.to_vec());
        let peeked = cx.remote.peeked.get(&key).ok_or(Stop::Peek { parent: key.0, name: key.1 })?;
        let source = peeked.entry.map(|(fid, file_type)| Dentry { fid, file_type });
        (peeked.parent_attr.clone(), source)
    };
    let directory = cx.directory_of(to.parent, to.name)?;
    access::check_access(&cx.tx, &directory, creds, EXECUTE)?;
    let target = cx.tx.dentry(to.parent, to.name)?;
    let source = source.ok_or(Status::NotFound)?;
    if !cx.is_local(from.parent) && cx.is_local(source.fid) && cx.tx.inode(source.fid)?.is_none() {
        // Removed since the name was asked for on its MDT: ask again.
        return Err(part::GIVE_WAY.into());
    }
    Ok(Found { from: from_attr, to: directory, source, target })
}

/// The sticky bit, as far as the inode is here; its own MDT checks otherwise.
fn check_own(cx: &Cx, directory: &Attr, dentry: Dentry, creds: &Credentials) -> Result<(), Status> {
    if !access::needs_ownership_in(directory, creds) || !cx.is_local(dentry.fid) {
        return Ok(());
    }
    let inode = cx.tx.inode(dentry.fid)?.ok_or(Status::Corrupt)?;
    access::check_sticky(directory, &inode.attr, creds)
}

fn nothing(cx: &Cx, from: Place, found: &Found) -> Result<MdtReply, Status> {
    Ok(MdtReply::Removed {
        parent_attr: cx.is_local(from.parent).then(|| found.from.clone()),
        new_parent_attr: Some(found.to.attr.clone()),
        child: None,
        replaced: None,
        met: None,
    })
}

fn replace(
    cx: &mut Cx,
    from: Place,
    to: Place,
    found: &Found,
    creds: &Credentials,
) -> Result<MdtReply, Stop> {
    let source = found.source;
    let is_directory = source.file_type == FileType::Directory;
    if let Some(target) = found.target {
        match (is_directory, target.file_type == FileType::Directory) {
            (true, false) => return Err(Status::NotDirectory.into()),
            (false, true) => return Err(Status::IsDirectory.into()),
            _ => {}
        }
        // An ancestor of the source has at least one entry.
        if is_directory && stripes::of(cx, target.fid)?.contains(&from.parent) {
            return Err(Status::NotEmpty.into());
        }
    }
    let has_new_parent = is_directory && has_new_parent(cx, from, to)?;
    if has_new_parent {
        check_not_below(cx, to.parent, source.fid)?;
    }
    cx.outcome.has_moved_directory = has_new_parent;
    let remove = Part::RemoveName {
        parent: from.parent,
        name: from.name.to_vec(),
        fid: source.fid,
        file_type: source.file_type,
    };
    execute(cx, remove, creds)?;
    execute(cx, put_name(to, found.target, source), creds)?;
    let must_own = access::needs_ownership_in(&found.from, creds);
    execute(cx, set_parent(source, from, to, must_own, has_new_parent), creds)?;
    let replaced = match found.target {
        Some(target) => {
            remove_target(cx, to, target, access::needs_ownership_in(&found.to.attr, creds), creds)?
        }
        None => None,
    };
    reply(cx, from, to, found, replaced)
}

/// The inode whose name was taken by another one.
fn remove_target(
    cx: &mut Cx,
    to: Place,
    target: Dentry,
    must_own: bool,
    creds: &Credentials,
) -> Result<Option<Box<Entry>>, Stop> {
    if target.file_type == FileType::Directory {
        return Ok(stripes::remove(cx, target.fid, must_own, creds)?.map(Box::new));
    }
    if !cx.is_local(target.fid) {
        let part = Part::DropLink { fid: target.fid, parent: to.parent, name: to.name.to_vec(), must_own };
        cx.remote_part(target.fid, part)?;
        return Ok(None);
    }
    let inode = part::drop_link(cx, target.fid, to.parent, to.name, must_own.then_some(creds))?;
    Ok(Some(Box::new(cx.entry(&inode))))
}

fn exchange(
    cx: &mut Cx,
    from: Place,
    to: Place,
    found: &Found,
    creds: &Credentials,
) -> Result<MdtReply, Stop> {
    let source = found.source;
    let target = found.target.ok_or(Status::NotFound)?;
    let moves_directory = [source, target].iter().any(|moved| moved.file_type == FileType::Directory);
    let has_new_parent = moves_directory && has_new_parent(cx, from, to)?;
    if has_new_parent && source.file_type == FileType::Directory {
        check_not_below(cx, to.parent, source.fid)?;
    }
    if has_new_parent && target.file_type == FileType::Directory {
        check_not_below(cx, from.parent, target.fid)?;
    }
    cx.outcome.has_moved_directory = has_new_parent;
    execute(cx, put_name(from, Some(source), target), creds)?;
    execute(cx, put_name(to, Some(target), source), creds)?;
    let must_own = access::needs_ownership_in(&found.from, creds);
    execute(cx, set_parent(source, from, to, must_own, has_new_parent), creds)?;
    let must_own = access::needs_ownership_in(&found.to.attr, creds);
    execute(cx, set_parent(target, to, from, must_own, has_new_parent), creds)?;
    let replaced = local_entry(cx, target.fid)?;
    reply(cx, from, to, found, replaced)
}

fn put_name(place: Place, old: Option<Dentry>, new: Dentry) -> Part {
    Part::PutName {
        parent: place.parent,
        name: place.name.to_vec(),
        old: old.map(|old| (old.fid, old.file_type)),
        fid: new.fid,
        file_type: new.file_type,
    }
}

/// Whether a directory that is moved gets another parent: not from one stripe of a directory to another.
fn has_new_parent(cx: &Cx, from: Place, to: Place) -> Result<bool, Stop> {
    Ok(from.parent != to.parent && !stripes::are_siblings(cx, to.parent, from.parent)?)
}

fn set_parent(moved: Dentry, from: Place, to: Place, must_own: bool, has_new_parent: bool) -> Part {
    let (old_parent, old_name) = (from.parent, from.name.to_vec());
    let (fid, parent, name) = (moved.fid, to.parent, to.name.to_vec());
    if moved.file_type == FileType::Directory && from.parent != to.parent && !has_new_parent {
        return Part::SetStripe { fid, old_parent, old_name, parent, name, must_own };
    }
    Part::SetParent { fid, old_parent, old_name, parent, name, must_own }
}

fn local_entry(cx: &mut Cx, fid: Fid) -> Result<Option<Box<Entry>>, Status> {
    if !cx.is_local(fid) {
        return Ok(None);
    }
    // Of a striped directory this MDT knows a part.
    let whole = cx.tx.inode(fid)?.filter(|inode| inode.stripes.is_empty());
    Ok(whole.map(|inode| Box::new(cx.entry(&inode))))
}

fn reply(
    cx: &mut Cx,
    from: Place,
    to: Place,
    found: &Found,
    replaced: Option<Box<Entry>>,
) -> Result<MdtReply, Stop> {
    let child = local_entry(cx, found.source.fid)?;
    let attr_of = |fid: Fid| -> Result<Option<Attr>, Status> {
        if cx.is_local(fid) { Ok(cx.tx.inode(fid)?.map(|inode| inode.attr)) } else { Ok(None) }
    };
    Ok(MdtReply::Removed {
        parent_attr: attr_of(from.parent)?,
        new_parent_attr: attr_of(to.parent)?,
        child,
        replaced,
        met: Some(found.met()),
    })
}

/// A directory cannot be moved below itself. With several MDTs the way up leads over them, and nobody else may move
/// directories meanwhile: the machine finds out.
fn check_not_below(cx: &Cx, directory: Fid, moved: Fid) -> Result<(), Stop> {
    if directory == moved {
        return Err(Status::Invalid.into());
    }
    if cx.remote.walked.contains(&(directory, moved)) {
        return Ok(());
    }
    let mut way = path::WayUp::from(directory);
    while cx.mdt_count == 1 && way.at() != Fid::ROOT && cx.is_local(way.at()) {
        let (parent, _) = path::parent_of(cx, way.at())?.ok_or(Status::NotFound)?;
        if parent == moved {
            return Err(Status::Invalid.into());
        }
        way.step(parent)?;
    }
    if way.at() == Fid::ROOT { Ok(()) } else { Err(Stop::Walk { directory, moved }) }
}
