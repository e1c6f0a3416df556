//! CREATE: files, directories, symlinks, devices, and files without a name.

use super::{Cx, DIRECTORY_SIZE_BYTES, Effect, Stop, entry_reply, open, remote_entry, stripes};
use crate::access::{self, EXECUTE, SET_GID, STICKY, WRITE};
use crate::acl::{self, Acl};
use crate::placement::{check_hint, merge_hints};
use crate::rows::{self, Dentry, Inode};
use base::limits::{LINK_COUNT_MAX, SYMLINK_BYTES_MAX};
use base::names::check_name;
use base::{Attr, Fid, FileType, Status};
use wire::MdtReply;
use wire::mdt::{CreateRequest, DirStriping, Entry, NewNode};
use wire::peer::Part;

type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// How a directory is asked for, and what of it a replay names.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    pub striping: &'a DirStriping,
    pub made: &'a [Fid],
}

/// # Errors
/// As open(2), mkdir(2), mknod(2), symlink(2).
pub fn run(cx: &mut Cx, request: &CreateRequest) -> Result<MdtReply, Stop> {
    make(cx, request, None)
}

/// The same, with a striping.
///
/// # Errors
/// As `run`.
pub fn make(cx: &mut Cx, request: &CreateRequest, wanted: Option<Wanted>) -> Result<MdtReply, Stop> {
    if !request.is_unnamed {
        check_name(&request.name)?;
    } else if request.node != NewNode::Regular || request.open.is_none() {
        // Nobody could ever reach it.
        return Err(Status::Invalid.into());
    }
    let parent = match request.is_unnamed {
        // Each stripe will do.
        true => cx.directory(request.parent)?,
        false => cx.directory_of(request.parent, &request.name)?,
    };
    access::check_access(&cx.tx, &parent, &request.creds, EXECUTE)?;
    if !request.is_unnamed
        && let Some(existing) = cx.tx.dentry(request.parent, &request.name)?
    {
        return open_existing(cx, request, &parent, existing);
    }
    access::check_access(&cx.tx, &parent, &request.creds, WRITE | EXECUTE)?;
    let is_directory = request.node == NewNode::Directory;
    if is_directory && parent.attr.link_count >= LINK_COUNT_MAX {
        return Err(Status::TooManyLinks.into());
    }
    let (inode, xattrs) = new_inode(cx, request, &parent)?;
    if is_directory {
        return make_directory(cx, request, parent, inode, xattrs, wanted);
    }
    make_local(cx, request, parent, inode, xattrs)
}

fn make_directory(
    cx: &mut Cx,
    request: &CreateRequest,
    parent: Inode,
    inode: Inode,
    xattrs: Xattrs,
    wanted: Option<Wanted>,
) -> Result<MdtReply, Stop> {
    let striping = match (wanted, request.mdt_index) {
        (Some(wanted), _) => wanted.striping.clone(),
        (None, Some(index)) => DirStriping { stripe_count: 1, mdts: vec![index] },
        (None, None) => parent.default_striping.clone().unwrap_or_default(),
    };
    let made = match wanted {
        Some(wanted) if !wanted.made.is_empty() => wanted.made.to_vec(),
        _ => request.fid.into_iter().collect(),
    };
    let is_made = cx.is_replay && !made.is_empty();
    let mdts = if is_made {
        stripes::check_made(&made)?;
        made.iter().map(|fid| fid.mdt_index().ok_or(Status::Invalid)).collect::<Result<Vec<_>, _>>()?
    } else {
        stripes::mdts_of(cx, &striping, wanted.is_some() || request.mdt_index.is_some())?
    };
    match mdts[..] {
        [only] if only == cx.mdt_index => make_local(cx, request, parent, inode, xattrs),
        [only] if inode.default_striping.is_none() => {
            let fid = if is_made { made } else { stripes::new_fids(cx, &mdts)? };
            make_remote_directory(cx, request, parent, inode, xattrs, (only, fid))
        }
        _ => {
            let fids = if is_made { made } else { stripes::new_fids(cx, &mdts)? };
            stripes::spread(cx, request, parent, &inode, &xattrs, &fids)
        }
    }
}

/// The name is there: that is what open(2) without O_EXCL wants.
fn open_existing(
    cx: &mut Cx,
    request: &CreateRequest,
    parent: &Inode,
    existing: Dentry,
) -> Result<MdtReply, Stop> {
    let Some(args) = request.open.filter(|_| !request.is_exclusive) else {
        return Err(Status::Exists.into());
    };
    match existing.file_type {
        FileType::Regular => {}
        FileType::Directory => return Err(Status::IsDirectory.into()),
        // Its kernel does not know yet what is there. It follows symlinks, and opens FIFOs, sockets and devices by itself.
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharDevice
        | FileType::BlockDevice => return Err(Status::Exists.into()),
    }
    let is_local = cx.is_local(existing.fid);
    let inode = if is_local { Some(cx.inode(existing.fid)?) } else { None };
    let owner = inode.as_ref().map(|inode| inode.attr.uid);
    if is_for_the_kernel_to_judge(&parent.attr, owner, request.creds.uid) && !cx.is_replay {
        return Err(Status::Exists.into());
    }
    cx.want_name(request.want, request.parent, &request.name);
    let Some(inode) = inode else { return Ok(entry_reply(remote_entry(existing))) };
    let entry = open::open_inode(cx, inode, args, &request.creds, request.want)?;
    Ok(entry_reply(entry))
}

/// In a sticky directory that others may write, Linux lets nobody open another user's file by way of creating it (fs.protected_regular). The kernel
/// that asks takes what comes back for a new file, and looks at the rule only when it has found the name by itself.
fn is_for_the_kernel_to_judge(parent: &Attr, owner: Option<u32>, caller: u32) -> bool {
    let is_open_to_others = parent.permissions & STICKY != 0 && parent.permissions & 0o022 != 0;
    let is_trusted = owner.is_some_and(|owner| owner == caller || owner == parent.uid);
    is_open_to_others && !is_trusted
}

fn make_local(
    cx: &mut Cx,
    request: &CreateRequest,
    mut parent: Inode,
    mut inode: Inode,
    xattrs: Xattrs,
) -> Result<MdtReply, Stop> {
    let fid = match request.fid.filter(|_| cx.is_replay) {
        Some(fid) if cx.is_local(fid) && cx.tx.inode(fid)?.is_none() => fid,
        Some(_) => return Err(Status::VersionConflict.into()),
        None => cx.fids.allocate()?,
    };
    inode.attr.fid = fid;
    if inode.attr.file_type == FileType::Regular {
        let hint = merge_hints(request.layout.as_ref(), parent.default_layout.as_ref());
        inode.layout = cx.new_layout(fid, 1, request.layout.as_ref(), hint)?;
        // Who only makes a name, with mknod(2), may open the file when there is an OST for it.
        if inode.layout.is_none() && request.open.is_some() && !cx.is_replay {
            cx.placement.check_not_drained()?;
        }
    }
    put_new(cx, &mut inode, &xattrs);
    let mut entry = cx.entry(&inode);
    if request.is_unnamed {
        cx.tx.put(rows::ORPHANS, fid.key().to_vec(), rows::NEVER_NAMED.to_vec());
    } else {
        cx.add_name(&mut parent, &request.name, Dentry { fid, file_type: inode.attr.file_type })?;
        cx.put_link(fid, request.parent, &request.name);
        cx.tx.put_inode(&parent);
        entry.parent_attr = Some(parent.attr);
        cx.want_name(request.want, request.parent, &request.name);
    }
    if let Some(open) = request.open {
        if open.write {
            inode.attr.is_size_known = false;
            inode.attr.write_epoch = 1;
            cx.tx.put_inode(&inode);
            entry.attr = Some(inode.attr.clone());
            entry.was_size_known = !cx.are_sizes_doubtful;
        }
        cx.effect(Effect::Opened { fid, open });
        if open.write {
            cx.want_write_back(request.want, &inode);
        }
        cx.want_data(request.want, &inode, open);
    }
    cx.want_inode(request.want, &inode);
    entry.was_created = true;
    Ok(entry_reply(entry))
}

fn make_remote_directory(
    cx: &mut Cx,
    request: &CreateRequest,
    mut parent: Inode,
    mut inode: Inode,
    xattrs: Xattrs,
    (mdt_index, fids): (u16, Vec<Fid>),
) -> Result<MdtReply, Stop> {
    let fid = *fids.first().ok_or(Status::Invalid)?;
    inode.attr.fid = fid;
    // What its MDT says later counts for more.
    let attr = Attr { version: base::Version(0), ..inode.attr.clone() };
    let part = Part::MakeDirectory {
        attr: inode.attr,
        parent: request.parent,
        name: request.name.clone(),
        xattrs,
        default_layout: inode.default_layout,
    };
    cx.parts.push((mdt_index, part));
    let dentry = Dentry { fid, file_type: FileType::Directory };
    cx.add_name(&mut parent, &request.name, dentry)?;
    cx.tx.put_inode(&parent);
    cx.want_name(request.want, request.parent, &request.name);
    let mut entry = Entry { attr: Some(attr), ..remote_entry(dentry) };
    entry.parent_attr = Some(parent.attr);
    entry.was_created = true;
    Ok(entry_reply(entry))
}

/// Stores a new inode with its first xattrs.
pub fn put_new(cx: &mut Cx, inode: &mut Inode, xattrs: &[(Vec<u8>, Vec<u8>)]) {
    let fid = inode.attr.fid;
    for (name, value) in xattrs {
        cx.tx.put(rows::XATTRS, rows::xattr_key(fid, name), value.clone());
        inode.xattr_count = inode.xattr_count.saturating_add(1);
        inode.xattr_name_bytes = inode.xattr_name_bytes.saturating_add(name.len() as u32 + 1);
    }
    inode.attr.has_xattrs = inode.xattr_count > 0;
    cx.tx.put_inode(inode);
}

/// The inode without its FID and layout, and the ACLs that it inherits.
fn new_inode(cx: &mut Cx, request: &CreateRequest, parent: &Inode) -> Result<(Inode, Xattrs), Status> {
    let file_type = file_type_of(&request.node)?;
    let mut permissions = request.permissions & 0o7777;
    let mut xattrs = Xattrs::new();
    if file_type == FileType::Symlink {
        permissions = 0o777;
    } else {
        permissions = inherit_acl(cx, request, parent, file_type, permissions, &mut xattrs)?;
    }
    let mut gid = request.creds.gid;
    if parent.attr.permissions & SET_GID != 0 {
        gid = parent.attr.gid;
        if file_type == FileType::Directory {
            permissions |= SET_GID;
        } else {
            permissions = without_foreign_group(request, gid, permissions)?;
        }
    }
    let mut attr = blank_attr(cx, file_type, permissions);
    (attr.uid, attr.gid) = (request.creds.uid, gid);
    attr.link_count = match file_type {
        FileType::Directory => 2,
        _ => u32::from(!request.is_unnamed),
    };
    let mut inode = Inode::new(attr);
    match &request.node {
        NewNode::Symlink { target } => {
            inode.attr.size_bytes = target.len() as u64;
            inode.symlink_target = Some(target.clone());
        }
        NewNode::Device { rdev, .. } => inode.attr.rdev = *rdev,
        NewNode::Directory => {
            let hint = merge_hints(request.layout.as_ref(), parent.default_layout.as_ref());
            check_hint(&hint)?;
            cx.check_asked(request.layout.as_ref())?;
            inode.default_layout = (hint != Default::default()).then_some(hint);
            inode.default_striping = parent.default_striping.as_ref().and_then(DirStriping::inherited);
        }
        NewNode::Regular => {}
    }
    Ok((inode, xattrs))
}

fn file_type_of(node: &NewNode) -> Result<FileType, Status> {
    match node {
        NewNode::Regular => Ok(FileType::Regular),
        NewNode::Directory => Ok(FileType::Directory),
        NewNode::Symlink { target } if target.is_empty() => Err(Status::NotFound),
        NewNode::Symlink { target } if target.len() > SYMLINK_BYTES_MAX => Err(Status::NameTooLong),
        NewNode::Symlink { .. } => Ok(FileType::Symlink),
        NewNode::Device { file_type: FileType::Directory | FileType::Symlink, .. } => Err(Status::Invalid),
        NewNode::Device { file_type, .. } => Ok(*file_type),
    }
}

/// A default ACL of the directory takes the place of the umask.
fn inherit_acl(
    cx: &Cx,
    request: &CreateRequest,
    parent: &Inode,
    file_type: FileType,
    permissions: u32,
    xattrs: &mut Xattrs,
) -> Result<u32, Status> {
    let value = match parent.xattr_count {
        0 => None,
        _ => cx.tx.get(rows::XATTRS, &rows::xattr_key(request.parent, acl::DEFAULT))?,
    };
    let Some(value) = value else { return Ok(permissions & !(request.umask & 0o777)) };
    let default = Acl::from_xattr(&value).map_err(|_| Status::Corrupt)?;
    let (access, mode) = default.inherit(permissions & 0o777);
    if !access.is_mode_only() {
        xattrs.push((acl::ACCESS.to_vec(), access.to_xattr()));
    }
    if file_type == FileType::Directory {
        xattrs.push((acl::DEFAULT.to_vec(), value));
    }
    Ok(permissions & !0o777 | mode)
}

/// Nobody makes a set-group-id program of a group that he does not belong to.
fn without_foreign_group(request: &CreateRequest, gid: u32, permissions: u32) -> Result<u32, Status> {
    const PROGRAM: u32 = SET_GID | access::GROUP_EXECUTE;
    if permissions & PROGRAM != PROGRAM || access::is_superuser(&request.creds) {
        return Ok(permissions);
    }
    match access::is_member(&request.creds, gid) {
        Some(true) => Ok(permissions),
        Some(false) => Ok(permissions & !SET_GID),
        None => Err(Status::AccessDenied),
    }
}

/// Attributes of something that comes to life now.
pub fn blank_attr(cx: &Cx, file_type: FileType, permissions: u32) -> Attr {
    let is_directory = file_type == FileType::Directory;
    Attr {
        fid: Fid::default(),
        file_type,
        permissions,
        uid: 0,
        gid: 0,
        link_count: 1,
        rdev: 0,
        size_bytes: if is_directory { DIRECTORY_SIZE_BYTES } else { 0 },
        block_count: if is_directory { DIRECTORY_SIZE_BYTES / 512 } else { 0 },
        atime: cx.now,
        mtime: cx.now,
        ctime: cx.now,
        btime: cx.now,
        mtime_stamp: cx.now,
        version: cx.version,
        is_size_known: true,
        write_epoch: 0,
        has_xattrs: false,
    }
}
