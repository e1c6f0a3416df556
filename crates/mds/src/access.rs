//! Who may do what: the kernel's rules, repeated. User 0 has all capabilities.
//!
//! A client sends a caller's supplementary groups only when it was refused without them. So wherever a group could
//! decide and the groups are not known, the answer is `AccessDenied` or `NotPermitted`: the client asks again.

use crate::acl::{self, Acl};
use crate::rows::{self, Inode};
use crate::tx::Tx;
use base::{Attr, FileType, Status};
use wire::mdt::Credentials;

pub const READ: u32 = 4;
pub const WRITE: u32 = 2;
pub const EXECUTE: u32 = 1;

pub const SET_UID: u32 = 0o4000;
pub const SET_GID: u32 = 0o2000;
pub const STICKY: u32 = 0o1000;
pub const GROUP_EXECUTE: u32 = 0o010;

pub fn is_superuser(creds: &Credentials) -> bool {
    creds.uid == 0
}

/// Whether the caller is a member; `None` when that depends on groups that are not known.
pub fn is_member(creds: &Credentials, gid: u32) -> Option<bool> {
    if creds.gid == gid {
        return Some(true);
    }
    creds.groups.as_ref().map(|groups| groups.contains(&gid))
}

/// Owner of the file, or superuser.
///
/// # Errors
/// `NotPermitted`
pub fn check_owner(attr: &Attr, creds: &Credentials) -> Result<(), Status> {
    if is_superuser(creds) || creds.uid == attr.uid { Ok(()) } else { Err(Status::NotPermitted) }
}

/// # Errors
/// `AccessDenied` unless the caller has all of `wanted` (rwx).
pub fn check_access(tx: &Tx, inode: &Inode, creds: &Credentials, wanted: u32) -> Result<(), Status> {
    if is_allowed(tx, inode, creds, wanted)? { Ok(()) } else { Err(Status::AccessDenied) }
}

fn is_allowed(tx: &Tx, inode: &Inode, creds: &Credentials, wanted: u32) -> Result<bool, Status> {
    let attr = &inode.attr;
    let mode = attr.permissions;
    if is_superuser(creds) {
        let is_runnable = attr.file_type == FileType::Directory || mode & 0o111 != 0;
        return Ok(wanted & EXECUTE == 0 || is_runnable);
    }
    let has = |permissions: u32| permissions & wanted == wanted;
    if creds.uid == attr.uid {
        return Ok(has(mode >> 6));
    }
    if inode.xattr_count > 0
        && mode & 0o070 != 0
        && let Some(value) = tx.get(rows::XATTRS, &rows::xattr_key(attr.fid, acl::ACCESS))?
    {
        let acl = Acl::from_xattr(&value).map_err(|_| Status::Corrupt)?;
        return Ok(acl.allows(false, creds.uid, attr.gid, |gid| is_member(creds, gid), wanted));
    }
    Ok(match is_member(creds, attr.gid) {
        Some(true) => has(mode >> 3),
        Some(false) => has(mode),
        // Membership could forbid what others may.
        None => has(mode) && has(mode >> 3),
    })
}

/// Whether deleting or renaming this entry of a directory is refused to all but the entry's owner.
pub fn needs_ownership_in(directory: &Attr, creds: &Credentials) -> bool {
    directory.permissions & STICKY != 0 && !is_superuser(creds) && creds.uid != directory.uid
}

/// # Errors
/// `NotPermitted` for an entry of a sticky directory that is neither the caller's nor in the caller's directory.
pub fn check_sticky(directory: &Attr, entry: &Attr, creds: &Credentials) -> Result<(), Status> {
    if needs_ownership_in(directory, creds) && creds.uid != entry.uid {
        return Err(Status::NotPermitted);
    }
    Ok(())
}

/// Mode bits after a write or a change of owner by somebody: set-id goes, for a group unless nobody may execute the file as that, and the
/// caller is in it.
///
/// # Errors
/// `NotPermitted` when that depends on groups that are not known.
pub fn without_set_id(attr: &Attr, creds: &Credentials) -> Result<u32, Status> {
    let left = attr.permissions & !SET_UID;
    if left & SET_GID == 0 {
        return Ok(left);
    }
    let stays = left & GROUP_EXECUTE == 0
        && (is_superuser(creds) || is_member(creds, attr.gid).ok_or(Status::NotPermitted)?);
    Ok(if stays { left } else { left & !SET_GID })
}
