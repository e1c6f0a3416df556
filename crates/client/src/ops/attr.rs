//! Attributes: getattr, setattr, link targets, layouts.

mod by_number;
mod lookup;
mod settling;
mod size;

use crate::cache::{ATTR_BITS, is_strict, whole_attr};
use crate::call::{Answer, SetattrCall};
use crate::ctx::{Ctx, Outcome, Who, join_all, mdt_of};
use crate::dirty::give_back_if_unwritten;
use crate::handles::Handle;
use crate::nodes::Node;
use crate::ops::change::truncate;
use crate::ops::cut::cut_back;
use crate::ops::flock::check_flocks;
use crate::ops::io::{File, check_end};
use crate::ops::{home_of, inode_of, root};
use crate::state::State;
use base::{
    Attr, Duration, Extent, Fid, FileType, Layout, OpenHandle, SetAttr, Status, TargetId, Version, WallTime,
};
pub(crate) use lookup::{lookup, prefetch};
use rpc::Kind;
pub(crate) use settling::{ToldEpoch, report_size};
use settling::{look_again, settled_size};
use size::size_with_kept;
pub(crate) use size::{FileSize, Written, object_size};
use wire::lock::LockWant;
use wire::mdt::{Credentials, Entry, LayoutHint};
use wire::{MdtReply, MdtRequest};

/// The layout of a regular file, from the cache or its MDT. It does not change while the file has data.
///
/// # Errors
/// `Io` when the MDT tells one that makes no sense here.
pub(crate) async fn file_layout(ctx: &Ctx, fid: Fid) -> Outcome<Layout> {
    let known = ctx.with(|state| state.nodes.by_fid(fid).and_then(|node| node.layout().cloned()));
    let layout = match known.filter(Layout::has_objects) {
        Some(layout) => layout,
        None => match ask_inode(ctx, fid).await?.layout {
            Some(layout) if !layout.is_valid() => return Err(Status::Io),
            told => told.unwrap_or_default(),
        },
    };
    wait_for_osts(ctx, &layout).await;
    Ok(layout)
}

/// A cluster that has just started: how long its OSTs are waited for, and how often they are looked for.
const OST_TRY_COUNT: u32 = 100;
const OST_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// The configuration may name an OST to the MDT before it does here.
async fn wait_for_osts(ctx: &Ctx, layout: &Layout) {
    for _ in 0..OST_TRY_COUNT {
        let is_known =
            ctx.with(|state| layout.osts().all(|ost| state.connections.contains_key(&TargetId::ost(ost))));
        if is_known {
            return;
        }
        ctx.sleep(OST_RETRY_INTERVAL).await;
    }
}

/// The layout for a change of data. A file that was made when the MDT knew no OST gets one now.
///
/// # Errors
/// `NoSpace` when there is still no OST.
pub(crate) async fn data_layout(ctx: &Ctx, fid: Fid) -> Outcome<Layout> {
    for _ in 0..OST_TRY_COUNT {
        let layout = file_layout(ctx, fid).await?;
        if layout.has_objects() {
            return Ok(layout);
        }
        let request =
            MdtRequest::SetLayout { fid, layout: LayoutHint::default(), creds: Credentials::default() };
        match ctx.mdt_entry(fid, request, Kind::Modifying).await {
            Ok(entry) => {
                let has_layout = entry.layout.as_ref().is_some_and(Layout::has_objects);
                ctx.with(|state| state.see_entry(&entry));
                if has_layout {
                    continue;
                }
            }
            // Somebody else has given it one.
            Err(Status::Exists) => {}
            Err(status) => return Err(status),
        }
        ctx.sleep(OST_RETRY_INTERVAL).await;
    }
    Err(Status::NoSpace)
}

/// What its MDT says of a name, and without its attributes where they are another MDT's. Nothing is remembered of
/// it here.
pub(crate) async fn entry_at(ctx: &Ctx, parent: u64, name: Vec<u8>) -> Outcome<Entry> {
    base::names::check_name(&name)?;
    let parent = home_of(ctx, parent, &name)?;
    let lookup = MdtRequest::Lookup { parent, name, want: LockWant::default() };
    match ctx.mdt(parent, lookup, Kind::Plain).await? {
        MdtReply::Entry(entry) => Ok(*entry),
        MdtReply::Absent { .. } => Err(Status::NotFound),
        _ => Err(Status::ProtocolError),
    }
}

/// GETATTR, with a lock if the MDT gives one.
pub(crate) async fn ask_inode(ctx: &Ctx, fid: Fid) -> Outcome<Entry> {
    let target = mdt_of(fid)?;
    let want = ctx.with(|state| LockWant {
        inode: state.want_inode(target, Some(fid)),
        write_back: state.want_write_back(fid, state.is_cached_writer(fid)),
        ..LockWant::default()
    });
    let is_write_back_wanted = want.write_back.is_some();
    let entry = ctx.mdt_entry(fid, MdtRequest::Getattr { fid, want }, Kind::Plain).await?;
    ctx.with(|state| {
        state.take_grants(target, &entry.grants);
        state.see_entry(&entry);
    });
    if is_write_back_wanted {
        give_back_if_unwritten(ctx, fid);
    }
    Ok(entry)
}

/// Attributes that are true now, the objects asked when the MDT does not know the size.
pub(crate) async fn current_attr(ctx: &Ctx, fid: Fid) -> Outcome<Attr> {
    if let Some(attr) = ctx.with(|state| state.cached_attr(fid)) {
        return Ok(attr);
    }
    if let Some((attr, layout)) = ctx.with(|state| state.cached_row(fid)) {
        look_again(ctx, &attr);
        return with_size(ctx, attr, Some(layout)).await;
    }
    let stripes = ctx.with(|state| state.nodes.stripes_of(fid));
    if stripes.len() > 1 {
        return striped_attr(ctx, fid, stripes).await;
    }
    let entry = ask_inode(ctx, fid).await?;
    if !entry.stripes.is_empty() {
        return striped_attr(ctx, fid, entry.stripes).await;
    }
    settled_size(ctx, &entry);
    let attr = entry.attr.ok_or(Status::ProtocolError)?;
    with_size(ctx, attr, entry.layout).await
}

/// How often stripes are asked anew until all of them are locked at one time.
const STRIPES_TRY_COUNT: u32 = 3;

/// The attributes of a striped directory. All stripes are asked side by side; while others change it, that may be before a change in
/// one of them and after it in another.
async fn striped_attr(ctx: &Ctx, fid: Fid, stripes: Vec<Fid>) -> Outcome<Attr> {
    let mut tries = 0;
    loop {
        tries += 1;
        let known =
            ctx.with(|state| stripes.iter().map(|stripe| state.cached_own_attr(*stripe)).collect::<Vec<_>>());
        let ask = async |stripe: Fid, known: Option<Attr>| match known {
            Some(attr) => Ok(attr),
            None => ask_inode(ctx, stripe).await?.attr.ok_or(Status::ProtocolError),
        };
        let asked = stripes.iter().zip(known).map(|(stripe, known)| ask(*stripe, known));
        let told: Vec<Outcome<Attr>> = join_all(asked.collect()).await;
        if let Some(attr) = ctx.with(|state| state.cached_attr(fid)) {
            return Ok(attr);
        }
        let told = told.into_iter().collect::<Outcome<Vec<Attr>>>()?;
        if tries == STRIPES_TRY_COUNT {
            return whole_attr(told.into_iter().map(Some)).ok_or(Status::ProtocolError);
        }
    }
}

/// Completes attributes of a file that somebody writes.
pub(crate) async fn with_size(ctx: &Ctx, attr: Attr, layout: Option<Layout>) -> Outcome<Attr> {
    if let Some(attr) = ctx.with(|state| state.attr_since_open(&attr)) {
        return Ok(attr);
    }
    let layout = layout.filter(|layout| layout.is_valid() && layout.has_objects());
    let layout = match layout {
        Some(layout) => Some(layout),
        None => ctx.with(|state| state.nodes.by_fid(attr.fid).and_then(|node| node.layout().cloned())),
    };
    let Some(layout) = layout else { return Ok(attr) };
    if is_strict(&attr) || !layout.has_objects() {
        return Ok(attr);
    }
    let size = size_with_kept(ctx, &File::new(attr.fid, layout)).await?;
    Ok(size.applied_to(attr))
}

pub(crate) async fn getattr(ctx: &Ctx, node: u64) -> Outcome<Answer> {
    let fid = inode_of(ctx, node)?;
    if ctx.with(|state| state.root.fid == fid) {
        return root::getattr(ctx).await;
    }
    let attr = current_attr(ctx, fid).await?;
    Ok(Answer::Attr(ctx.with(|state| state.attr_answer(attr))))
}

pub(crate) async fn readlink(ctx: &Ctx, node: u64) -> Outcome<Answer> {
    let fid = inode_of(ctx, node)?;
    let known =
        ctx.with(|state| state.nodes.by_fid(fid).and_then(|node| node.symlink_target().map(<[u8]>::to_vec)));
    if let Some(target) = known {
        return Ok(Answer::Bytes(target.into()));
    }
    let MdtReply::Bytes(target) = ctx.mdt(fid, MdtRequest::Readlink { fid }, Kind::Plain).await? else {
        return Err(Status::ProtocolError);
    };
    ctx.with(|state| {
        if let Some(node) = state.nodes.by_fid_mut(fid) {
            node.set_symlink_target(&target);
        }
    });
    Ok(Answer::Bytes(target.into()))
}

const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;

pub(crate) async fn setattr(ctx: &Ctx, who: &Who, node: u64, call: SetattrCall) -> Outcome<Answer> {
    let fid = inode_of(ctx, node)?;
    if let Some(cut) = ctx.with(|state| state.take_cut_after_failure(node, &call)) {
        return cut_back(ctx, who, fid, cut).await;
    }
    let handle = ctx.with(|state| {
        let handle = state.handles.get(&call.fh?)?;
        (handle.args.write && !handle.is_directory).then(|| handle.number())
    });
    match (call.size_bytes, handle) {
        (Some(_), None) => {
            check_is_file(ctx, fid).await?;
            // Until the MDT has the new size too, it must not take the old one for true: we may die in between.
            let own = super::open::open_for_truncate(ctx, who, fid).await?;
            let result = set_attrs(ctx, who, fid, call, Some(own)).await;
            super::open::release(ctx, own.0, None).await?;
            result
        }
        (Some(_), Some(own)) => {
            super::open::revive(ctx, own.0).await?;
            set_attrs(ctx, who, fid, call, handle).await
        }
        (None, _) if call.is_empty() => {
            let attr = current_attr(ctx, fid).await?;
            let ends_set_id = ends_set_id(ctx, who, &attr).await;
            if ends_set_id && may_be_before_a_write(ctx, who, &attr) {
                return Ok(Answer::Attr(ctx.with(|state| state.setattr_answer(attr))));
            }
            set_attrs(ctx, who, fid, chown_to_nobody(who, call, &attr, ends_set_id)?, handle).await
        }
        (None, _) => set_attrs(ctx, who, fid, call, handle).await,
    }
}

/// Whether a write or a chown(2) of this caller ends a set-id bit: set-group-id of a file that its group may not execute stays for members.
async fn ends_set_id(ctx: &Ctx, who: &Who, attr: &Attr) -> bool {
    const S_IXGRP: u32 = 0o010;
    let has = |bits: u32| attr.permissions & bits == bits;
    if has(S_ISUID) || has(S_ISGID | S_IXGRP) {
        return true;
    }
    has(S_ISGID)
        && who.caller.gid != attr.gid
        && !ctx.groups(who).await.is_some_and(|groups| groups.contains(&attr.gid))
}

/// Before somebody unprivileged writes through the page cache, the kernel ends set-id bits in his name, and says so in the same way as a
/// chown(2) that names neither owner nor group: with nothing. The write says then that they end (`truncate_privileges`).
fn may_be_before_a_write(ctx: &Ctx, who: &Who, attr: &Attr) -> bool {
    let is_owner = who.caller.uid == 0 || who.caller.uid == attr.uid;
    let writes = |handle: &Handle| handle.fid == attr.fid && handle.args.write && !handle.is_directory;
    !is_owner && ctx.with(|state| state.handles.values().any(writes))
}

/// A chown(2) that names neither owner nor group ends set-id bits and capabilities as any other does, and then only the owner may. Without
/// them it sets the time of the change, for anybody. No owner is named: another mount may just give the file to somebody else.
///
/// # Errors
/// `NotPermitted`
fn chown_to_nobody(who: &Who, call: SetattrCall, attr: &Attr, ends_set_id: bool) -> Outcome<SetattrCall> {
    let may = who.caller.uid == 0 || who.caller.uid == attr.uid;
    if attr.file_type == FileType::Directory {
        return Ok(call);
    }
    if ends_set_id && !may {
        return Err(Status::NotPermitted);
    }
    Ok(SetattrCall { kill_privileges: call.kill_privileges || may, ..call })
}

async fn set_attrs(
    ctx: &Ctx,
    who: &Who,
    fid: Fid,
    call: SetattrCall,
    handle: Option<OpenHandle>,
) -> Outcome<Answer> {
    let size_bytes = call.size_bytes;
    if let Some(size_bytes) = size_bytes {
        set_size(ctx, fid, size_bytes, handle).await?;
    }
    let result = set_others(ctx, who, fid, call, handle).await;
    if let Some(size_bytes) = size_bytes {
        // The objects are cut, and nothing else is told to the kernel of a call that fails now.
        let extent = Extent::new(size_bytes, Extent::EOF);
        super::change::drop_what_was_changed(ctx, fid.inode_number(), extent, &result);
    }
    result
}

/// What a setattr changes besides objects.
async fn set_others(
    ctx: &Ctx,
    who: &Who,
    fid: Fid,
    call: SetattrCall,
    handle: Option<OpenHandle>,
) -> Outcome<Answer> {
    let set = SetAttr {
        permissions: call.mode.map(|mode| mode & 0o7777),
        uid: call.uid,
        gid: call.gid,
        size_bytes: call.size_bytes,
        atime: call.atime,
        mtime: call.mtime,
        ctime: None,
        kill_privileges: call.kill_privileges,
    };
    // Whether the set-group-id bit stays depends on the caller's groups and is no error: they go along at once.
    let needs_groups = set.permissions.is_some_and(|mode| mode & S_ISGID != 0) && who.caller.uid != 0;
    let groups = match needs_groups {
        // The kernel has taken the bit away from who is in no group of the file.
        true => match ctx.groups(who).await {
            None => Some(ctx.judged_groups(who).await),
            groups => groups,
        },
        false => None,
    };
    // The access ACL follows the permissions, and a capability goes with the owner.
    let changes_xattrs = set.permissions.is_some() || set.uid.is_some() || set.gid.is_some();
    let changes_xattrs = changes_xattrs || set.kill_privileges;
    if changes_xattrs {
        super::xattr::forget(ctx, fid);
    }
    if set.atime.is_some() {
        ctx.with(|state| state.forget_access(fid));
    }
    let result = send_setattr(ctx, who, fid, set, handle, groups).await;
    if changes_xattrs {
        super::xattr::forget(ctx, fid);
    }
    result?;
    super::sync::sync_inode_change(ctx, who, fid).await?;
    let attr = current_attr(ctx, fid).await?;
    Ok(Answer::Attr(ctx.with(|state| state.setattr_answer(attr))))
}

async fn send_setattr(
    ctx: &Ctx,
    who: &Who,
    fid: Fid,
    set: SetAttr,
    handle: Option<OpenHandle>,
    groups: Option<Vec<u32>>,
) -> Outcome<()> {
    let target = mdt_of(fid)?;
    let want =
        ctx.with(|state| LockWant { inode: state.want_inode(target, Some(fid)), ..LockWant::default() });
    let stamp = stamp_of(ctx, fid, &set).await;
    let reply = ctx
        .mdt_as(who, fid, Kind::Modifying, |creds| MdtRequest::Setattr {
            fid,
            set: set.clone(),
            creds: Credentials { groups: groups.clone().or(creds.groups), ..creds },
            handle,
            want,
            stamp,
        })
        .await?;
    let MdtReply::Entry(entry) = reply else { return Err(Status::ProtocolError) };
    ctx.with(|state| {
        state.take_grants(target, &entry.grants);
        state.see_entry(&entry);
    });
    Ok(())
}

/// Up to which data it speaks, where it does: all that there were, whoever has written them.
async fn stamp_of(ctx: &Ctx, fid: Fid, set: &SetAttr) -> Option<WallTime> {
    let is_file = ctx.with(|state| {
        let attr = state.nodes.by_fid(fid).and_then(Node::attr);
        attr.is_none_or(|attr| attr.file_type == FileType::Regular)
    });
    if !is_file || (set.mtime.is_none() && set.size_bytes.is_none()) {
        return None;
    }
    // Who cuts it has all of it locked, and its objects know of that.
    let told = if set.mtime.is_some() { current_attr(ctx, fid).await.ok() } else { None };
    let after = told.map_or(WallTime(0), |attr| WallTime(attr.mtime_stamp.0.saturating_add(1)));
    Some(ctx.with(|state| state.next_stamp(fid)).max(after))
}

async fn check_is_file(ctx: &Ctx, fid: Fid) -> Outcome<()> {
    // It never becomes something else.
    let known = ctx.with(|state| state.nodes.by_fid(fid)?.attr().map(|attr| attr.file_type));
    let file_type = match known {
        Some(file_type) => file_type,
        None => current_attr(ctx, fid).await?.file_type,
    };
    match file_type {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Status::IsDirectory),
        _ => Err(Status::Invalid),
    }
}

/// Cuts or extends the objects, before the MDT is told (hazard 5.5).
async fn set_size(ctx: &Ctx, fid: Fid, size_bytes: u64, handle: Option<OpenHandle>) -> Outcome<()> {
    let through = handle.map(|handle| handle.0);
    through.map_or(Ok(()), |fh| check_flocks(ctx, fh))?;
    check_is_file(ctx, fid).await?;
    let layout = file_layout(ctx, fid).await?;
    if !layout.has_objects() && size_bytes == 0 {
        return Ok(());
    }
    let layout = data_layout(ctx, fid).await?;
    check_end(&layout, size_bytes)?;
    // An empty file that nobody writes has nothing to cut.
    let is_empty_already =
        size_bytes == 0 && ctx.with(|state| state.cached_attr(fid)).is_some_and(|attr| attr.size_bytes == 0);
    if is_empty_already {
        return Ok(());
    }
    truncate(ctx, &File { fid, layout, through }, size_bytes).await
}

/// After an open that found the file although the kernel expected to make it.
pub(crate) async fn truncate_opened(ctx: &Ctx, who: &Who, fid: Fid, handle: OpenHandle) -> Outcome<()> {
    set_size(ctx, fid, 0, Some(handle)).await?;
    let set = SetAttr { size_bytes: Some(0), ..SetAttr::default() };
    send_setattr(ctx, who, fid, set, Some(handle), None).await
}

/// Clears set-id bits for a write by somebody unprivileged.
pub(crate) async fn truncate_privileges(ctx: &Ctx, who: &Who, fid: Fid, fh: u64) -> Outcome<()> {
    let has_some = ctx.with(|state| {
        let attr = state.nodes.by_fid(fid).and_then(|node| node.attr());
        attr.is_none_or(may_have_privileges) && !state.is_cleared(fid, fh)
    });
    if has_some { send_kill(ctx, who, fid, fh).await } else { Ok(()) }
}

impl State {
    /// The inode has not changed since a write through this handle had nothing left to clear: the kernel asks again with every one of a
    /// file that has any xattr, as one in a directory with a default ACL.
    fn is_cleared(&self, fid: Fid, fh: u64) -> bool {
        let cleared_at = self.handles.get(&fh).and_then(|handle| handle.cleared_at);
        cleared_at.is_some() && cleared_at == self.locked_version(fid)
    }

    /// The version of the attributes, if a lock says that they are so still.
    fn locked_version(&self, fid: Fid) -> Option<Version> {
        let node = self.nodes.by_fid(fid).filter(|node| !node.is_attr_stale)?;
        let version = node.attr().map(|attr| attr.version);
        version.filter(|_| self.is_covered(fid, ATTR_BITS))
    }
}

/// The same for fallocate(2) and copy_file_range(2), which the kernel leaves to the client without a flag that says so. They are rare
/// enough to ask the MDT unless a lock says that there is nothing to clear.
pub(crate) async fn truncate_privileges_for(ctx: &Ctx, who: &Who, fid: Fid, fh: u64) -> Outcome<()> {
    let has_none = ctx.with(|state| {
        let node = state.nodes.by_fid(fid).filter(|node| !node.is_attr_stale);
        let attr = node.and_then(|node| node.attr());
        attr.is_some_and(|attr| !may_have_privileges(attr)) && state.is_covered(fid, ATTR_BITS)
    });
    if who.caller.uid == 0 || has_none { Ok(()) } else { send_kill(ctx, who, fid, fh).await }
}

fn may_have_privileges(attr: &Attr) -> bool {
    attr.permissions & 0o6000 != 0 || attr.has_xattrs
}

/// The write has been permitted. Whether set-group-id goes depends on who writes.
async fn send_kill(ctx: &Ctx, who: &Who, fid: Fid, fh: u64) -> Outcome<()> {
    let handle = ctx.with(|state| state.handles.get(&fh).map(|handle| handle.number()));
    let set = SetAttr { kill_privileges: true, ..SetAttr::default() };
    super::xattr::forget(ctx, fid);
    let result = send_setattr(ctx, who, fid, set, handle, None).await;
    super::xattr::forget(ctx, fid);
    ctx.with(|state| {
        // A set-group-id bit without the right to execute stays where one of the group has written.
        let is_bare = |attr: &Attr| attr.permissions & 0o6000 == 0;
        let is_clear = result.is_ok() && state.nodes.by_fid(fid).and_then(Node::attr).is_some_and(is_bare);
        let cleared_at = state.locked_version(fid).filter(|_| is_clear);
        if let Some(handle) = state.handles.get_mut(&fh) {
            handle.cleared_at = cleared_at;
        }
    });
    result
}

/// The part of a file that a system call may name.
pub(crate) fn check_range(offset_bytes: u64, byte_count: u64) -> Outcome<Extent> {
    match offset_bytes.checked_add(byte_count) {
        Some(end) if end <= i64::MAX as u64 => Ok(Extent::new(offset_bytes, end)),
        _ => Err(Status::TooBig),
    }
}
