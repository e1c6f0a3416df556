//! UNLINK and RMDIR.

use super::{Cx, Stop, part, stripes};
use crate::access::{self, EXECUTE, WRITE};
use crate::rows::{Dentry, Inode};
use base::names::check_name;
use base::{Fid, FileType, Status};
use wire::MdtReply;
use wire::mdt::{Credentials, Met};
use wire::peer::Part;

/// # Errors
/// As unlink(2).
pub fn unlink(cx: &mut Cx, parent: Fid, name: &[u8], creds: &Credentials) -> Result<MdtReply, Stop> {
    let (mut directory, dentry) = find(cx, parent, name, creds)?;
    let must_own = access::needs_ownership_in(&directory.attr, creds);
    let met = check_met(cx, dentry)?;
    if dentry.file_type == FileType::Directory {
        return Err(Status::IsDirectory.into());
    }
    let child = if cx.is_local(dentry.fid) {
        let inode = part::drop_link(cx, dentry.fid, parent, name, must_own.then_some(creds))?;
        Some(Box::new(cx.entry(&inode)))
    } else {
        let drop_link = Part::DropLink { fid: dentry.fid, parent, name: name.to_vec(), must_own };
        cx.remote_part(dentry.fid, drop_link)?;
        None
    };
    cx.remove_name(&mut directory, name, dentry);
    Ok(finish(cx, directory, child, met))
}

/// # Errors
/// As rmdir(2).
pub fn rmdir(cx: &mut Cx, parent: Fid, name: &[u8], creds: &Credentials) -> Result<MdtReply, Stop> {
    let (mut directory, dentry) = find(cx, parent, name, creds)?;
    let must_own = access::needs_ownership_in(&directory.attr, creds);
    let met = check_met(cx, dentry)?;
    if dentry.file_type != FileType::Directory {
        return Err(Status::NotDirectory.into());
    }
    let child = stripes::remove(cx, dentry.fid, must_own, creds)?.map(Box::new);
    cx.remove_name(&mut directory, name, dentry);
    Ok(finish(cx, directory, child, met))
}

/// The directory, in which the caller may remove entries, and the entry.
fn find(cx: &Cx, parent: Fid, name: &[u8], creds: &Credentials) -> Result<(Inode, Dentry), Status> {
    check_name(name)?;
    let directory = cx.directory_of(parent, name)?;
    access::check_access(&cx.tx, &directory, creds, EXECUTE)?;
    let dentry = cx.tx.dentry(parent, name)?.ok_or(Status::NotFound)?;
    access::check_access(&cx.tx, &directory, creds, WRITE | EXECUTE)?;
    Ok((directory, dentry))
}

fn check_met(cx: &Cx, dentry: Dentry) -> Result<Met, Status> {
    let met = Met { fid: dentry.fid, replaced: None };
    cx.check_met(met).map(|()| met)
}

fn finish(cx: &mut Cx, directory: Inode, child: Option<Box<wire::mdt::Entry>>, met: Met) -> MdtReply {
    cx.tx.put_inode(&directory);
    MdtReply::Removed {
        parent_attr: Some(directory.attr),
        new_parent_attr: None,
        child,
        replaced: None,
        met: Some(met),
    }
}
