//! Extended attributes, with POSIX ACLs among them, which are kept in step with the mode.

use super::{Cx, Stop, entry_reply, stripes};
use crate::access::{self, SET_GID, WRITE};
use crate::acl::{self, Acl};
use crate::rows::{self, Inode};
use base::limits::{
    FRAME_BODY_BYTES_MAX, XATTR_LIST_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
    XATTRS_WITH_LONG_VALUES_MAX,
};
use base::names::check_xattr_name;
use base::{Fid, FileType, Status};
use wire::MdtReply;
use wire::lock::LockWant;
use wire::mdt::Credentials;

const CREATE: u32 = 1;
const REPLACE: u32 = 2;
/// Values that a listing brings along: most files have a few short ones.
const LIST_VALUE_BYTES_MAX: usize = 4096;
const LIST_BYTES_MAX: usize = FRAME_BODY_BYTES_MAX / 4;

/// # Errors
/// As setxattr(2).
pub fn set(
    cx: &mut Cx,
    fid: Fid,
    name: &[u8],
    value: &[u8],
    flags: u32,
    creds: &Credentials,
) -> Result<MdtReply, Stop> {
    let mut inode = cx.inode(fid)?;
    check_change(cx, &inode, name, creds)?;
    if value.len() > XATTR_VALUE_BYTES_MAX {
        return Err(Status::TooLargeXattr.into());
    }
    if flags & !(CREATE | REPLACE) != 0 {
        return Err(Status::Invalid.into());
    }
    let exists = cx.tx.get(rows::XATTRS, &rows::xattr_key(fid, name))?.is_some();
    if exists && flags & CREATE != 0 {
        return Err(Status::Exists.into());
    }
    if !exists && flags & REPLACE != 0 {
        return Err(Status::NoData.into());
    }
    match name {
        acl::ACCESS => set_access_acl(cx, &mut inode, value, creds)?,
        acl::DEFAULT => set_default_acl(cx, &mut inode, value)?,
        _ => put(cx, &mut inode, name, value)?,
    }
    finish(cx, inode, name)
}

/// # Errors
/// As removexattr(2).
pub fn remove(cx: &mut Cx, fid: Fid, name: &[u8], creds: &Credentials) -> Result<MdtReply, Stop> {
    let mut inode = cx.inode(fid)?;
    check_change(cx, &inode, name, creds)?;
    let existed = delete(cx, &mut inode, name)?;
    if !existed && name != acl::ACCESS && name != acl::DEFAULT {
        return Err(Status::NoData.into());
    }
    finish(cx, inode, name)
}

fn finish(cx: &mut Cx, mut inode: Inode, name: &[u8]) -> Result<MdtReply, Stop> {
    cx.touch(&mut inode);
    cx.tx.put_inode(&inode);
    if name == acl::ACCESS || name == acl::DEFAULT {
        stripes::lead(cx, &inode, None)?;
    }
    Ok(entry_reply(cx.entry(&inode)))
}

/// # Errors
/// `NoData`
pub fn get(cx: &mut Cx, fid: Fid, name: &[u8]) -> Result<MdtReply, Stop> {
    let inode = cx.inode(fid)?;
    if inode.xattr_count == 0 {
        return Err(Status::NoData.into());
    }
    let value = cx.tx.get(rows::XATTRS, &rows::xattr_key(fid, name))?.ok_or(Status::NoData)?;
    Ok(MdtReply::Bytes(value))
}

/// # Errors
/// `Stale`
pub fn list(cx: &mut Cx, fid: Fid, want: LockWant) -> Result<MdtReply, Stop> {
    let inode = cx.inode(fid)?;
    cx.want_inode(want, &inode);
    let mut xattrs = Vec::new();
    let mut byte_count = 0;
    if inode.xattr_count > 0 {
        let fits = |value: &[u8]| {
            let fits = value.len() <= LIST_VALUE_BYTES_MAX && byte_count + value.len() <= LIST_BYTES_MAX;
            byte_count += if fits { value.len() } else { 0 };
            fits
        };
        for (key, value) in cx.tx.fitting_rows_of_prefix(rows::XATTRS, &fid.key(), fits)? {
            xattrs.push((key.get(16..).unwrap_or_default().to_vec(), value));
        }
    }
    Ok(MdtReply::Xattrs { xattrs, grants: Vec::new() })
}

/// # Errors
/// Those of `check_xattr_name`; `NotPermitted` and `AccessDenied` as xattr(7) says.
fn check_change(cx: &Cx, inode: &Inode, name: &[u8], creds: &Credentials) -> Result<(), Status> {
    if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX || name.contains(&0) {
        return Err(Status::OutOfRange);
    }
    let attr = &inode.attr;
    // As the kernel has it for its own file systems: first who may, then whether there is such a name.
    if name.starts_with(b"user.") {
        match attr.file_type {
            FileType::Regular => {}
            // Everybody could fill a sticky directory.
            FileType::Directory if !access::needs_ownership_in(attr, creds) => {}
            _ => return Err(Status::NotPermitted),
        }
        access::check_access(&cx.tx, inode, creds, WRITE)?;
        return check_xattr_name(name);
    }
    if name == acl::ACCESS || name == acl::DEFAULT {
        if attr.file_type == FileType::Symlink {
            return Err(Status::NotSupported);
        }
        return access::check_owner(attr, creds);
    }
    if name.starts_with(b"trusted.") || name.starts_with(b"security.") {
        return if access::is_superuser(creds) { check_xattr_name(name) } else { Err(Status::NotPermitted) };
    }
    check_xattr_name(name)
}

fn set_access_acl(cx: &mut Cx, inode: &mut Inode, value: &[u8], creds: &Credentials) -> Result<(), Status> {
    let acl = Acl::from_xattr(value)?;
    let mut permissions = inode.attr.permissions & !0o777 | acl.mode();
    if permissions & SET_GID != 0 && !access::is_superuser(creds) {
        match access::is_member(creds, inode.attr.gid) {
            Some(true) => {}
            Some(false) => permissions &= !SET_GID,
            None => return Err(Status::NotPermitted),
        }
    }
    inode.attr.permissions = permissions;
    if acl.is_mode_only() {
        delete(cx, inode, acl::ACCESS)?;
        return Ok(());
    }
    put(cx, inode, acl::ACCESS, value)
}

fn set_default_acl(cx: &mut Cx, inode: &mut Inode, value: &[u8]) -> Result<(), Status> {
    if inode.attr.file_type != FileType::Directory {
        return Err(Status::AccessDenied);
    }
    Acl::from_xattr(value)?;
    put(cx, inode, acl::DEFAULT, value)
}

/// Sets an xattr; the caller stores the inode.
///
/// # Errors
/// `NoSpace` for more names than can be listed, and for a long value where there are many; those of the store.
pub fn put(cx: &mut Cx, inode: &mut Inode, name: &[u8], value: &[u8]) -> Result<(), Status> {
    let key = rows::xattr_key(inode.attr.fid, name);
    // Who lists the names reads all values.
    if value.len() > LIST_VALUE_BYTES_MAX && inode.xattr_count > XATTRS_WITH_LONG_VALUES_MAX && !cx.is_replay
    {
        return Err(Status::NoSpace);
    }
    if cx.tx.get(rows::XATTRS, &key)?.is_none() {
        let name_bytes = inode.xattr_name_bytes as usize + name.len() + 1;
        if name_bytes > XATTR_LIST_BYTES_MAX {
            return Err(Status::NoSpace);
        }
        inode.xattr_name_bytes = name_bytes as u32;
        inode.xattr_count = inode.xattr_count.saturating_add(1);
        inode.attr.has_xattrs = true;
    }
    cx.tx.put(rows::XATTRS, key, value.to_vec());
    Ok(())
}

/// Removes an xattr, if it is there; the caller stores the inode.
///
/// # Errors
/// Those of the store.
pub fn delete(cx: &mut Cx, inode: &mut Inode, name: &[u8]) -> Result<bool, Status> {
    if inode.xattr_count == 0 {
        return Ok(false);
    }
    let key = rows::xattr_key(inode.attr.fid, name);
    if cx.tx.get(rows::XATTRS, &key)?.is_none() {
        return Ok(false);
    }
    cx.tx.delete(rows::XATTRS, key);
    inode.xattr_count = inode.xattr_count.saturating_sub(1);
    inode.xattr_name_bytes = inode.xattr_name_bytes.saturating_sub(name.len() as u32 + 1);
    inode.attr.has_xattrs = inode.xattr_count > 0;
    Ok(true)
}
