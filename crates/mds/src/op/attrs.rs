//! SETATTR: chmod, chown, utimes, truncate.

use super::{Cx, Stop, entry_reply, stripes};
use crate::access::{self, SET_GID, WRITE};
use crate::acl::{self, Acl};
use crate::rows::{self, Inode};
use base::{Fid, FileType, OpenHandle, SetAttr, SetTime, Status, WallTime};
use wire::MdtReply;
use wire::lock::LockWant;
use wire::mdt::Credentials;

/// What a setattr needs to know beside the inode.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    pub set: &'a SetAttr,
    pub creds: &'a Credentials,
    /// Through this open file: its mode of opening is the permission to cut it.
    pub handle: Option<OpenHandle>,
    /// The last data that the time which is set speaks of.
    pub stamp: Option<WallTime>,
}

/// # Errors
/// As chmod(2), chown(2), utimensat(2), truncate(2).
pub fn run(cx: &mut Cx, fid: Fid, args: Args, want: LockWant) -> Result<MdtReply, Stop> {
    let mut inode = cx.inode(fid)?;
    let before = who_may(&inode);
    if let Some(size_bytes) = args.set.size_bytes {
        set_size(cx, &mut inode, args, size_bytes)?;
    }
    let has_new_owner = set_owner(cx, &mut inode, args)?;
    if args.set.kill_privileges && !has_new_owner {
        kill_privileges(cx, &mut inode, args.creds)?;
    }
    set_permissions(cx, &mut inode, args)?;
    set_times(cx, &mut inode, args)?;
    cx.touch(&mut inode);
    if let Some(ctime) = args.set.ctime {
        inode.attr.ctime = ctime;
    }
    cx.tx.put_inode(&inode);
    let mtime = args.set.mtime.is_some().then_some(inode.attr.mtime);
    if mtime.is_some() || who_may(&inode) != before {
        stripes::lead(cx, &inode, mtime)?;
    }
    cx.want_inode(want, &inode);
    Ok(entry_reply(cx.entry(&inode)))
}

/// Permissions and owners. ACLs change with them only.
fn who_may(inode: &Inode) -> (u32, u32, u32) {
    (inode.attr.permissions, inode.attr.uid, inode.attr.gid)
}

fn set_size(cx: &mut Cx, inode: &mut Inode, args: Args, size_bytes: u64) -> Result<(), Status> {
    match inode.attr.file_type {
        FileType::Regular => {}
        FileType::Directory => return Err(Status::IsDirectory),
        _ => return Err(Status::Invalid),
    }
    if i64::try_from(size_bytes).is_err() {
        return Err(Status::TooBig);
    }
    let fid = inode.attr.fid;
    let is_through_open = args
        .handle
        .and_then(|handle| cx.opens.get(cx.client, handle))
        .is_some_and(|(open_fid, open)| open_fid == fid && open.write);
    if !is_through_open && !cx.is_replay {
        access::check_access(&cx.tx, inode, args.creds, WRITE)?;
    }
    if cx.opens.is_executed_by_others(fid, cx.client) && !cx.is_replay {
        return Err(Status::TextBusy);
    }
    // All objects have been cut, but a crash may still take that back: who cut them reports the size when it cannot,
    // or the last writer does.
    let is_same = inode.attr.is_size_known && inode.attr.size_bytes == size_bytes;
    inode.attr.is_size_known = is_same && !cx.opens.is_written(fid) && cx.are_opens_known;
    inode.attr.write_epoch = inode.attr.write_epoch.saturating_add(1);
    inode.attr.block_count = inode.attr.block_count.min(size_bytes.div_ceil(4096).saturating_mul(8));
    inode.attr.size_bytes = size_bytes;
    if args.set.mtime.is_none() {
        cx.set_mtime_up_to(inode, cx.now, args.stamp);
    }
    Ok(())
}

/// -> Whether there was somebody to own it.
fn set_owner(cx: &mut Cx, inode: &mut Inode, args: Args) -> Result<bool, Status> {
    let SetAttr { uid, gid, .. } = args.set;
    if uid.is_none() && gid.is_none() {
        return Ok(false);
    }
    if !access::is_superuser(args.creds) {
        let is_owner = args.creds.uid == inode.attr.uid;
        let keeps_uid = uid.is_none_or(|uid| uid == inode.attr.uid);
        let may_set_gid = gid
            .is_none_or(|gid| gid == inode.attr.gid || access::is_member(args.creds, gid).unwrap_or(false));
        if !is_owner || !keeps_uid || !may_set_gid {
            return Err(Status::NotPermitted);
        }
    }
    if inode.attr.file_type != FileType::Directory {
        kill_privileges(cx, inode, args.creds)?;
    }
    inode.attr.uid = uid.unwrap_or(inode.attr.uid);
    inode.attr.gid = gid.unwrap_or(inode.attr.gid);
    Ok(true)
}

/// Set-id bits and file capabilities do not survive a new owner or somebody else's write.
fn kill_privileges(cx: &mut Cx, inode: &mut Inode, creds: &Credentials) -> Result<(), Status> {
    inode.attr.permissions = access::without_set_id(&inode.attr, creds)?;
    super::xattr::delete(cx, inode, b"security.capability")?;
    Ok(())
}

fn set_permissions(cx: &mut Cx, inode: &mut Inode, args: Args) -> Result<(), Status> {
    let Some(permissions) = args.set.permissions else { return Ok(()) };
    if inode.attr.file_type == FileType::Symlink {
        return Err(Status::NotSupported);
    }
    access::check_owner(&inode.attr, args.creds)?;
    let mut permissions = permissions & 0o7777;
    if permissions & SET_GID != 0 && !access::is_superuser(args.creds) {
        match access::is_member(args.creds, inode.attr.gid) {
            Some(true) => {}
            Some(false) => permissions &= !SET_GID,
            None => return Err(Status::NotPermitted),
        }
    }
    inode.attr.permissions = permissions;
    if inode.xattr_count == 0 {
        return Ok(());
    }
    let key = rows::xattr_key(inode.attr.fid, acl::ACCESS);
    if let Some(value) = cx.tx.get(rows::XATTRS, &key)? {
        let mut acl = Acl::from_xattr(&value).map_err(|_| Status::Corrupt)?;
        acl.set_mode(permissions);
        cx.tx.put(rows::XATTRS, key, acl.to_xattr());
    }
    Ok(())
}

fn set_times(cx: &mut Cx, inode: &mut Inode, args: Args) -> Result<(), Status> {
    let SetAttr { atime, mtime, .. } = args.set;
    let times = [*atime, *mtime];
    let is_owner = access::check_owner(&inode.attr, args.creds).is_ok();
    let is_through_open = args.handle.is_some_and(|handle| cx.opens.get(cx.client, handle).is_some());
    if !is_owner && !is_through_open {
        if times.iter().any(|time| matches!(time, Some(SetTime::To(_)))) {
            return Err(Status::NotPermitted);
        }
        if times.contains(&Some(SetTime::Now)) {
            access::check_access(&cx.tx, inode, args.creds, WRITE)?;
        }
    }
    let time_of = |time: SetTime| match time {
        SetTime::Now => cx.now,
        SetTime::To(time) => time,
    };
    if let Some(atime) = atime {
        inode.attr.atime = time_of(*atime);
    }
    if let Some(mtime) = mtime {
        cx.set_mtime_up_to(inode, time_of(*mtime), args.stamp);
    }
    Ok(())
}
