//! Parts: what an operation does to names and inodes. Those of this MDT are executed directly; those of another one
//! are the same function over there, once when it prepares and once when the decision has come.

use super::{Cx, Demand, create, migrate, stripes};
use crate::access::{self, EXECUTE, WRITE};
use crate::rows::{self, Dentry, Inode};
use base::fault::{Fault, planted};
use base::limits::LINK_COUNT_MAX;
use base::{Fid, FileType, Status};
use wire::mdt::Credentials;
use wire::peer::Part;

/// An operation of another MDT was faster, or stands in the way: start anew. (`Again` would have the same request sent
/// again, below us.)
pub const GIVE_WAY: Status = Status::Busy;

/// Executes a part, and fills in the FID of a directory that it makes.
///
/// # Errors
/// `GIVE_WAY` when the name does not lead where the part says: somebody was faster. Otherwise the operation's own.
pub fn run(cx: &mut Cx, part: &mut Part, creds: &Credentials) -> Result<(), Status> {
    match part {
        Part::MakeDirectory { .. } => make_directory(cx, part),
        Part::MakeStripe { .. } => stripes::make_stripe(cx, part),
        Part::Follow { .. } => stripes::follow(cx, part),
        Part::RemoveDirectory { fid, must_own } => {
            remove_directory(cx, *fid, must_own.then_some(creds)).map(drop)
        }
        Part::DropLink { fid, parent, name, must_own } => {
            drop_link(cx, *fid, *parent, name, must_own.then_some(creds)).map(drop)
        }
        Part::AddLink { fid, parent, name } => add_link(cx, *fid, *parent, name).map(drop),
        Part::RemoveName { parent, name, fid, file_type } => {
            let dentry = Dentry { fid: *fid, file_type: *file_type };
            change_name(cx, *parent, name, Some(dentry), None, creds).map(drop)
        }
        Part::PutName { parent, name, old, fid, file_type } => {
            let old = old.map(|(fid, file_type)| Dentry { fid, file_type });
            let new = Dentry { fid: *fid, file_type: *file_type };
            change_name(cx, *parent, name, old, Some(new), creds).map(drop)
        }
        Part::SetParent { fid, old_parent, old_name, parent, name, must_own } => {
            let (from, to) = ((*old_parent, &old_name[..]), (*parent, &name[..]));
            set_parent(cx, *fid, from, to, *must_own, creds).map(drop)
        }
        Part::SetStripe { fid, old_parent, old_name, parent, name, must_own } => {
            let (from, to) = ((*old_parent, &old_name[..]), (*parent, &name[..]));
            set_link(cx, *fid, from, to, must_own.then_some(creds)).map(drop)
        }
        Part::GiveAway { fid, to, attr } => migrate::give_away(cx, *fid, *to, attr),
        Part::GiveFile { fid, to, attr, data } => migrate::give_file(cx, *fid, *to, attr, *data),
        Part::Redirect { parent, name, old, new, file_type } => {
            migrate::redirect(cx, *parent, name, (*old, *new), *file_type)
        }
        Part::MoveLinks { old_parent, parent, links } => links
            .iter()
            .try_for_each(|(fid, name)| migrate::move_link(cx, *fid, (*old_parent, *parent), name)),
    }
}

/// Here, or on the MDT where it belongs.
///
/// # Errors
/// As `run`; `Stale` for a FID that no MDT can have.
pub fn execute(cx: &mut Cx, mut part: Part, creds: &Credentials) -> Result<(), Status> {
    match owner_of(&part) {
        Some(fid) if !cx.is_local(fid) => cx.remote_part(fid, part),
        _ => run(cx, &mut part, creds),
    }
}

/// The inode or directory on whose MDT a part is executed; `None` for a directory to be made, and for what says where it goes.
pub fn owner_of(part: &Part) -> Option<Fid> {
    match part {
        Part::MakeDirectory { .. } | Part::MoveLinks { .. } => None,
        Part::MakeStripe { attr, .. } => Some(attr.fid),
        Part::RemoveDirectory { fid, .. }
        | Part::DropLink { fid, .. }
        | Part::AddLink { fid, .. }
        | Part::Follow { fid, .. }
        | Part::SetParent { fid, .. }
        | Part::SetStripe { fid, .. }
        | Part::GiveAway { fid, .. }
        | Part::GiveFile { fid, .. } => Some(*fid),
        Part::RemoveName { parent, .. } | Part::PutName { parent, .. } | Part::Redirect { parent, .. } => {
            Some(*parent)
        }
    }
}

/// Whether `run` asks what the caller may do with a directory, which groups can decide.
pub fn checks_access(part: &Part) -> bool {
    match part {
        Part::RemoveName { .. } | Part::PutName { .. } => true,
        Part::SetParent { old_parent, parent, .. } => old_parent != parent,
        Part::MakeDirectory { .. }
        | Part::MakeStripe { .. }
        | Part::Follow { .. }
        | Part::RemoveDirectory { .. }
        | Part::DropLink { .. }
        | Part::AddLink { .. }
        | Part::SetStripe { .. }
        | Part::GiveAway { .. }
        | Part::GiveFile { .. }
        | Part::Redirect { .. }
        | Part::MoveLinks { .. } => false,
    }
}

/// Of all parts of an operation that one MDT executes.
pub fn demand_of(parts: &[Part]) -> Demand {
    let is_giving =
        |part: &Part| matches!(part, Part::RemoveName { .. } | Part::GiveAway { .. } | Part::GiveFile { .. });
    let demand = parts.iter().map(demand_of_one).max().unwrap_or(Demand::Frees);
    // A name or an inode that goes takes more with it than what stays gets longer.
    let is_less = demand == Demand::Keeps && parts.iter().any(is_giving);
    if is_less { Demand::Frees } else { demand }
}

fn demand_of_one(part: &Part) -> Demand {
    match part {
        Part::MakeDirectory { .. }
        | Part::MakeStripe { .. }
        | Part::AddLink { .. }
        | Part::PutName { old: None, .. } => Demand::Takes,
        Part::PutName { .. }
        | Part::SetParent { .. }
        | Part::SetStripe { .. }
        | Part::Redirect { .. }
        | Part::MoveLinks { .. } => Demand::Keeps,
        Part::Follow { .. }
        | Part::RemoveDirectory { .. }
        | Part::DropLink { .. }
        | Part::RemoveName { .. }
        | Part::GiveAway { .. }
        | Part::GiveFile { .. } => Demand::Frees,
    }
}

/// Whether two runs of an operation say the same; times and versions differ from run to run.
pub fn is_same(a: &Part, b: &Part) -> bool {
    match (a, b) {
        (
            Part::MakeDirectory { parent, name, .. },
            Part::MakeDirectory { parent: other_parent, name: other_name, .. },
        ) => parent == other_parent && name == other_name,
        (
            Part::MakeStripe { attr, stripes, .. },
            Part::MakeStripe { attr: other_attr, stripes: other_stripes, .. },
        ) => attr.fid == other_attr.fid && stripes == other_stripes,
        (Part::Follow { mtime, .. }, Part::Follow { mtime: other_mtime, .. }) => {
            let is_set = mtime.is_some() == other_mtime.is_some();
            is_set && without_time(a) == without_time(b)
        }
        _ => a == b,
    }
}

fn without_time(part: &Part) -> Part {
    let mut part = part.clone();
    if let Part::Follow { mtime, .. } = &mut part {
        *mtime = None;
    }
    part
}

fn make_directory(cx: &mut Cx, part: &mut Part) -> Result<(), Status> {
    let Part::MakeDirectory { attr, parent, name, xattrs, default_layout } = part else {
        return Err(Status::ProtocolError);
    };
    if attr.file_type != FileType::Directory {
        return Err(Status::ProtocolError);
    }
    if attr.fid == Fid::default() {
        attr.fid = cx.fids.allocate()?;
    }
    let inode = Inode { default_layout: default_layout.clone(), ..Inode::new(attr.clone()) };
    put_directory(cx, inode, xattrs, (*parent, name))
}

/// Stores a directory that is named on another MDT.
///
/// # Errors
/// `VersionConflict` when the FID is in use or of another MDT.
pub fn put_directory(
    cx: &mut Cx,
    mut inode: Inode,
    xattrs: &[(Vec<u8>, Vec<u8>)],
    (parent, name): (Fid, &[u8]),
) -> Result<(), Status> {
    let fid = inode.attr.fid;
    if !cx.is_local(fid) || cx.tx.inode(fid)?.is_some() {
        return Err(Status::VersionConflict);
    }
    // Versions are of the MDT that has the inode.
    inode.attr.version = cx.version;
    create::put_new(cx, &mut inode, xattrs);
    cx.put_link(fid, parent, name);
    Ok(())
}

pub fn check_owned(inode: &Inode, must_be_owned_by: Option<&Credentials>) -> Result<(), Status> {
    match must_be_owned_by {
        Some(creds) => access::check_owner(&inode.attr, creds),
        None => Ok(()),
    }
}

/// # Errors
/// `NotEmpty`, `NotDirectory`, `NotPermitted`
pub fn remove_directory(cx: &mut Cx, fid: Fid, must_own: Option<&Credentials>) -> Result<Inode, Status> {
    let mut inode = cx.directory(fid)?;
    check_owned(&inode, must_own)?;
    if !cx.tx.scan_prefix(rows::DENTRIES, &fid.key(), 1)?.is_empty() {
        return Err(Status::NotEmpty);
    }
    inode.attr.link_count = 0;
    cx.touch(&mut inode);
    for (key, _) in cx.tx.scan_prefix(rows::LINKS, &fid.key(), usize::MAX)? {
        cx.tx.delete(rows::LINKS, key);
    }
    cx.put_after_unlink(&inode)?;
    Ok(inode)
}

/// # Errors
/// `IsDirectory`, `NotPermitted`
pub fn drop_link(
    cx: &mut Cx,
    fid: Fid,
    parent: Fid,
    name: &[u8],
    must_own: Option<&Credentials>,
) -> Result<Inode, Status> {
    // A name without its inode is damage.
    let mut inode = cx.tx.inode(fid)?.ok_or(Status::Corrupt)?;
    if inode.attr.file_type == FileType::Directory {
        return Err(Status::IsDirectory);
    }
    check_owned(&inode, must_own)?;
    inode.attr.link_count = inode.attr.link_count.saturating_sub(1);
    cx.touch(&mut inode);
    if !planted(Fault::LinkKept) {
        cx.delete_link(fid, parent, name);
    }
    cx.put_after_unlink(&inode)?;
    Ok(inode)
}

/// # Errors
/// `NotPermitted` for a directory, `TooManyLinks`, `NotFound` for an inode whose last name is gone for good, `Moved` for one that another
/// MDT has now: whoever looks the name up again finds it.
pub fn add_link(cx: &mut Cx, fid: Fid, parent: Fid, name: &[u8]) -> Result<Inode, Status> {
    let Some(mut inode) = cx.tx.inode(fid)? else {
        return Err(cx.why_absent(fid, Status::NotFound)?);
    };
    if inode.attr.file_type == FileType::Directory {
        return Err(Status::NotPermitted);
    }
    if inode.attr.link_count >= LINK_COUNT_MAX {
        return Err(Status::TooManyLinks);
    }
    if inode.attr.link_count == 0 {
        // Made with O_TMPFILE, and still open: it may get a name. What was removed stays removed, open or not.
        if cx.tx.get(rows::ORPHANS, &fid.key())?.as_deref() != Some(rows::NEVER_NAMED) {
            return Err(Status::NotFound);
        }
        cx.tx.delete(rows::ORPHANS, fid.key().to_vec());
    }
    inode.attr.link_count += 1;
    cx.touch(&mut inode);
    cx.put_link(fid, parent, name);
    cx.tx.put_inode(&inode);
    Ok(inode)
}

/// Lets a name lead elsewhere, or nowhere. Returns the directory.
///
/// # Errors
/// `GIVE_WAY` when it does not lead to `old`; `AccessDenied`, `TooManyLinks`.
pub fn change_name(
    cx: &mut Cx,
    parent: Fid,
    name: &[u8],
    old: Option<Dentry>,
    new: Option<Dentry>,
    creds: &Credentials,
) -> Result<Inode, Status> {
    let mut directory = cx.directory_of(parent, name)?;
    access::check_access(&cx.tx, &directory, creds, WRITE | EXECUTE)?;
    if cx.tx.dentry(parent, name)? != old {
        return Err(GIVE_WAY);
    }
    if let Some(old) = old {
        cx.remove_name(&mut directory, name, old);
    }
    if let Some(new) = new {
        if new.file_type == FileType::Directory && directory.attr.link_count >= LINK_COUNT_MAX {
            return Err(Status::TooManyLinks);
        }
        cx.add_name(&mut directory, name, new)?;
    }
    cx.tx.put_inode(&directory);
    Ok(directory)
}

/// # Errors
/// `NotPermitted`; `AccessDenied` for a directory that changes its parent and that the caller may not write.
pub fn set_parent(
    cx: &mut Cx,
    fid: Fid,
    from: (Fid, &[u8]),
    to: (Fid, &[u8]),
    must_own: bool,
    creds: &Credentials,
) -> Result<Inode, Status> {
    let owner = must_own.then_some(creds);
    let inode = cx.tx.inode(fid)?.ok_or(Status::Corrupt)?;
    check_owned(&inode, owner)?;
    if inode.attr.file_type == FileType::Directory && from.0 != to.0 {
        access::check_access(&cx.tx, &inode, creds, WRITE)?;
    }
    set_link(cx, fid, from, to, owner)
}

/// The inode has another name, in another place.
fn set_link(
    cx: &mut Cx,
    fid: Fid,
    from: (Fid, &[u8]),
    to: (Fid, &[u8]),
    owner: Option<&Credentials>,
) -> Result<Inode, Status> {
    let mut inode = cx.tx.inode(fid)?.ok_or(Status::Corrupt)?;
    check_owned(&inode, owner)?;
    cx.delete_link(fid, from.0, from.1);
    cx.put_link(fid, to.0, to.1);
    cx.touch(&mut inode);
    cx.tx.put_inode(&inode);
    Ok(inode)
}
