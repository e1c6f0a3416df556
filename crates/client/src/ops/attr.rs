//! Attributes: lookup, getattr, setattr, link targets, and the size that the objects have.

use crate::cache::{ATTR_BITS, is_strict, may_kernel_believe, whole_attr};
use crate::call::{Answer, SetattrCall};
use crate::ctx::{Ctx, OstAnswer, Outcome, Who, join_all, mdt_of};
use crate::dirty::{give_back_if_unwritten, write_out_file};
use crate::nodes::{AtRest, Measured};
use crate::ops::change::truncate;
use crate::ops::cut::cut_back;
use crate::ops::io::{File, check_end};
use crate::ops::{fid_of, home_of, inode_of, root};
use crate::reports::report_with_others;
use crate::state::State;
use base::{
    Attr, Duration, Epoch, Extent, Fid, FileType, Layout, OpenHandle, SetAttr, Status, TargetId, Transno,
    Version, WallTime,
};
use bytes::Bytes;
use rpc::Kind;
use std::collections::BTreeMap;
use wire::lock::LockWant;
use wire::mdt::{Credentials, Entry, LayoutHint, SizeReport};
use wire::ost::ObjectAttr;
use wire::session::features;
use wire::{LockGrant, LockMode, LockPolicy, MdtReply, MdtRequest, OstReply, OstRequest, Resource};

/// A file as its objects have it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FileSize {
    pub(crate) size_bytes: u64,
    pub(crate) block_count: u64,
    /// When data last changed; zero when never.
    pub(crate) stamp: WallTime,
}

/// What the answer to a write said of its object, and nothing else of this client was under way meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Written {
    pub(crate) target: TargetId,
    pub(crate) attr: ObjectAttr,
    pub(crate) transno: Transno,
}

impl Written {
    pub(crate) fn of(target: TargetId, answer: &OstAnswer) -> Option<Written> {
        let (Some(OstReply::Written { attr: Some(attr), .. }), _, transno) = answer else { return None };
        Some(Written { target, attr: *attr, transno: *transno })
    }
}

/// Asks all objects of a file, each OST once; unless they have answered before and could not change since.
pub(crate) async fn object_size(ctx: &Ctx, file: &File) -> Outcome<FileSize> {
    // The answer to the last of what is here may tell the size.
    write_out_file(ctx, file.fid).await;
    let before = ctx.with(|state| state.at_rest(file));
    let known = ctx.with(|state| {
        let measured = state.nodes.by_fid(file.fid)?.measured.as_ref()?;
        (Some(&measured.at_rest) == before.as_ref()).then_some(measured.size)
    });
    if let Some(size) = known {
        return Ok(size);
    }
    let (size, _) = measure(ctx, file).await?;
    ctx.with(|state| {
        let at_rest = before.filter(|before| state.at_rest(file).as_ref() == Some(before));
        if let Some(node) = state.nodes.by_fid_mut(file.fid) {
            node.measured = at_rest.map(|at_rest| Box::new(Measured { at_rest, size, written: None }));
        }
    });
    Ok(size)
}

/// The same, and what must be committed before no crash can take the answer back: others may have changed the file.
async fn measure(ctx: &Ctx, file: &File) -> Outcome<(FileSize, BTreeMap<TargetId, Transno>)> {
    write_out_file(ctx, file.fid).await;
    wait_for_osts(ctx, &file.layout).await;
    let mut by_target: BTreeMap<TargetId, Vec<u32>> = BTreeMap::new();
    for stripe in file.layout.stripes() {
        by_target.entry(file.target(stripe)?).or_default().push(stripe);
    }
    let mut requests = Vec::with_capacity(by_target.len());
    for (target, stripes) in by_target {
        let objects = stripes.iter().map(|stripe| file.layout.object(*stripe)).collect();
        let ctx = ctx.clone();
        requests.push(async move {
            (
                target,
                stripes,
                ctx.ost(target, OstRequest::Getattr { objects }, Bytes::new(), Kind::Plain).await,
            )
        });
    }
    let mut sum = FileSize::default();
    let mut uncommitted: BTreeMap<TargetId, Transno> = BTreeMap::new();
    for (target, stripes, result) in join_all(requests).await {
        let attrs = match result?.0 {
            Some(OstReply::Attrs(attrs)) if attrs.len() == stripes.len() => attrs,
            _ => return Err(Status::ProtocolError),
        };
        for (stripe, attr) in stripes.into_iter().zip(attrs) {
            let attr = attr.unwrap_or_default();
            let ObjectAttr { size_bytes, block_count, stamp, .. } = attr;
            let last = uncommitted.entry(target).or_default();
            *last = attr.uncommitted.max(*last);
            sum.size_bytes = sum.size_bytes.max(file.layout.file_size(stripe, size_bytes));
            sum.block_count = sum.block_count.saturating_add(block_count);
            sum.stamp = sum.stamp.max(stamp);
        }
    }
    uncommitted.retain(|_, transno| *transno > Transno::ZERO);
    Ok((sum, uncommitted))
}

impl State {
    /// A write has ended, and its locks are not pinned any more: what its answer says of the object is all that is to know of a
    /// file that has one.
    pub(crate) fn note_written(&mut self, file: &File, written: &Written) {
        let Written { target, attr, transno } = *written;
        let is_present = self
            .connections
            .get(&target)
            .is_some_and(|connection| connection.import.target_epoch() == transno.epoch());
        if !is_present || file.layout.stripe_count() != 1 {
            return;
        }
        let Some(at_rest) = self.at_rest(file) else { return };
        let size = FileSize {
            size_bytes: file.layout.file_size(0, attr.size_bytes),
            block_count: attr.block_count,
            stamp: attr.stamp,
        };
        if let Some(node) = self.nodes.by_fid_mut(file.fid) {
            let written = Some((target, transno));
            node.measured = Some(Box::new(Measured { at_rest, size, written }));
        }
    }

    /// The size that a write's answer told, if nothing has changed it since.
    fn written_size(&self, file: &File) -> Option<(FileSize, TargetId, Transno)> {
        let measured = self.nodes.by_fid(file.fid)?.measured.as_ref()?;
        let (target, transno) = measured.written?;
        (self.at_rest(file).as_ref() == Some(&measured.at_rest)).then_some((measured.size, target, transno))
    }

    /// Nobody changes the data of a file now, and nobody can without this changing.
    fn at_rest(&self, file: &File) -> Option<AtRest> {
        let data_changed_at = self.nodes.by_fid(file.fid)?.data_changed_at;
        let whole = LockPolicy::Extent(Extent::WHOLE);
        let lock_of = |stripe: u32| {
            let target = file.target(stripe).ok()?;
            let connection = self.connections.get(&target)?;
            let (locks, resource) = (&connection.locks, Resource::Object(file.layout.object(stripe)));
            let lock = locks.find(resource, LockMode::Pr, whole)?;
            // There may be another one, for a change that is under way.
            let is_unused = locks.on_resource(resource).iter().all(|lock| locks.pin_count(*lock) == 0);
            let is_good = is_unused && !self.lease_left(target).is_zero();
            is_good.then(|| (lock, connection.import.target_epoch()))
        };
        let locks = file.layout.stripes().map(lock_of).collect::<Option<_>>()?;
        Some(AtRest { locks, data_changed_at })
    }
}

/// The layout of a regular file, from the cache or its MDT. It does not change while the file has data.
pub(crate) async fn file_layout(ctx: &Ctx, fid: Fid) -> Outcome<Layout> {
    let known = ctx.with(|state| state.nodes.by_fid(fid).and_then(|node| node.layout.clone()));
    let layout = match known.filter(Layout::has_objects) {
        Some(layout) => layout,
        None => ask_inode(ctx, fid).await?.layout.filter(Layout::is_valid).unwrap_or_default(),
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
pub(crate) async fn with_size(ctx: &Ctx, mut attr: Attr, layout: Option<Layout>) -> Outcome<Attr> {
    let is_unchanged = ctx.with(|state| {
        state.nodes.by_fid(attr.fid).is_some_and(|node| node.unchanged_since == Some(attr.write_epoch))
    });
    if is_unchanged {
        return Ok(attr);
    }
    if let Some(attr) = ctx.with(|state| state.attr_with_kept(&attr)) {
        return Ok(attr);
    }
    let layout = layout.filter(|layout| layout.is_valid() && layout.has_objects());
    let layout = match layout {
        Some(layout) => Some(layout),
        None => ctx.with(|state| state.nodes.by_fid(attr.fid).and_then(|node| node.layout.clone())),
    };
    let Some(layout) = layout else { return Ok(attr) };
    if is_strict(&attr) || !layout.has_objects() {
        return Ok(attr);
    }
    let size = object_size(ctx, &File { fid: attr.fid, layout }).await?;
    attr.size_bytes = size.size_bytes;
    attr.block_count = size.block_count;
    if size.stamp > attr.mtime_stamp {
        attr.mtime = size.stamp;
        attr.mtime_stamp = size.stamp;
    }
    attr.ctime = attr.ctime.max(size.stamp);
    Ok(attr)
}

pub(crate) async fn getattr(ctx: &Ctx, node: u64) -> Outcome<Answer> {
    let fid = inode_of(ctx, node)?;
    if ctx.with(|state| state.root.fid == fid) {
        return root::getattr(ctx).await;
    }
    let attr = current_attr(ctx, fid).await?;
    Ok(Answer::Attr(ctx.with(|state| state.attr_answer(attr))))
}

pub(crate) async fn lookup(ctx: &Ctx, parent: u64, name: Vec<u8>) -> Outcome<Answer> {
    if name == b"." || name == b".." {
        let parent = fid_of(ctx, parent)?;
        // Only an exporter of the mount asks so, for a node that it knows; the parent of a directory is not kept.
        if name == b".." && parent != Fid::ROOT {
            return Err(Status::NotSupported);
        }
        let attr = current_attr(ctx, parent).await?;
        return Ok(Answer::Entry(ctx.with(|state| state.entry_answer(None, attr, false, false))));
    }
    // What is too long is not absent.
    base::names::check_name(&name)?;
    let parent = home_of(ctx, parent, &name)?;
    if ctx.with(|state| !state.is_name_known(parent, &name)) {
        super::dir::learn_whole(ctx, parent).await;
        super::dir::learn_next(ctx, parent, &name).await;
    }
    if let Some(answer) = ctx.with(|state| state.known_entry(parent, &name)) {
        return Ok(answer);
    }
    if let Some(Some(fid)) = ctx.with(|state| state.cached_name(parent, &name)) {
        // The slot stays as it is while the attributes are fetched, or its lock goes and nothing is cached.
        match current_attr(ctx, fid).await {
            Ok(attr) => {
                let entry = ctx.with(|state| {
                    let is_valid = state.cached_name(parent, &name) == Some(Some(fid));
                    state.entry_answer(Some((parent, &name)), attr, is_valid, false)
                });
                return Ok(Answer::Entry(entry));
            }
            // Gone meanwhile: the name is asked for.
            Err(Status::NotFound | Status::Stale | Status::Moved) => {}
            Err(status) => return Err(status),
        }
    }
    let mut tries = 0;
    loop {
        tries += 1;
        match lookup_at_mdt(ctx, parent, name.clone()).await {
            // The inode went to another MDT before it was asked there, or the directory itself: then it is the kernel's to
            // walk there once more.
            Err(Status::Moved) if tries < LOOKUP_TRY_COUNT => {}
            result => return result,
        }
    }
}

/// How often a name is asked for whose inode moves to another MDT each time.
const LOOKUP_TRY_COUNT: u32 = 5;

async fn lookup_at_mdt(ctx: &Ctx, parent: Fid, name: Vec<u8>) -> Outcome<Answer> {
    let target = mdt_of(parent)?;
    let (want, lock, change_count) = ctx.with(|state| {
        // What the kernel forgot is asked for again under the lock that is there: one for each time would fill the memory of both.
        let held = state.name_lock_on(parent, &name);
        let name = state.want_name(target, held);
        let want = LockWant { name, inode: state.offer(target), ..LockWant::default() };
        (want, held.or(name), state.nodes.by_fid(parent).map(|node| node.change_count))
    });
    let request = MdtRequest::Lookup { parent, name: name.clone(), want };
    let reply = ctx.mdt(parent, request, Kind::Plain).await.map_err(super::names::gone)?;
    let is_valid = |state: &mut crate::state::State, grants: &[LockGrant]| {
        state.take_grants(target, grants);
        state.nodes.by_fid(parent).map(|node| node.change_count) == change_count
            && state.is_name_locked_by(parent, &name, lock)
    };
    match reply {
        MdtReply::Absent { grants } => ctx.with(|state| {
            if is_valid(state, &grants) {
                Ok(Answer::Entry(state.absent_answer(parent, &name)))
            } else {
                Err(Status::NotFound)
            }
        }),
        MdtReply::Entry(entry) => {
            let fid = entry.fid;
            let was_valid = ctx.with(|state| {
                let was_valid = is_valid(state, &entry.grants);
                // The reply's facts need a place before the answer is made.
                state.nodes.get_or_new(fid);
                state.see_entry(&entry);
                was_valid
            });
            settled_size(ctx, &entry);
            let attr = match entry.attr {
                Some(attr) if entry.stripes.is_empty() => with_size(ctx, attr, entry.layout).await,
                // On another MDT, or on several.
                _ => current_attr(ctx, fid).await,
            };
            let attr = attr.inspect_err(|_| ctx.with(|state| state.drop_unused_node(fid.inode_number())))?;
            let answer = ctx.with(|state| {
                // The very same lock: under another one the name may lead elsewhere by now.
                let is_valid = was_valid
                    && state.nodes.by_fid(parent).map(|node| node.change_count) == change_count
                    && state.is_name_locked_by(parent, &name, lock);
                state.entry_answer(Some((parent, &name)), attr, is_valid, false)
            });
            Ok(Answer::Entry(answer))
        }
        _ => Err(Status::ProtocolError),
    }
}

/// Fetches what a name leads to into the cache. The kernel gets no reference: the caller lets go of what is returned. Failures leave the cache
/// as it is.
pub(crate) async fn prefetch(ctx: &Ctx, parent: Fid, name: Vec<u8>) -> Option<Fid> {
    let known = ctx.with(|state| state.cached_name(parent, &name));
    if let Some(known) = known {
        if let Some(fid) = known {
            ctx.with(|state| {
                state.nodes.get_or_new(fid);
            });
            let _ = current_attr(ctx, fid).await;
        }
        return known;
    }
    let target = mdt_of(parent).ok()?;
    let (want, lock, change_count) = ctx.with(|state| {
        let held = state.name_lock_on(parent, &name);
        let name = state.want_name(target, held);
        let want = LockWant { name, inode: state.offer(target), ..LockWant::default() };
        (want, held.or(name), state.nodes.by_fid(parent).map(|node| node.change_count))
    });
    let request = MdtRequest::Lookup { parent, name: name.clone(), want };
    let Ok(MdtReply::Entry(entry)) = ctx.mdt(parent, request, Kind::Plain).await else { return None };
    ctx.with(|state| {
        state.take_grants(target, &entry.grants);
        state.nodes.get_or_new(entry.fid);
        state.see_entry(&entry);
        let is_valid = state.nodes.by_fid(parent).map(|node| node.change_count) == change_count
            && state.is_name_locked_by(parent, &name, lock);
        if is_valid {
            state.names.put(parent, &name, Some(entry.fid), base::Time::ZERO);
        }
    });
    let fid = entry.fid;
    let asked = if entry.attr.is_none() { ask_inode(ctx, fid).await } else { Ok(*entry) };
    if asked.is_ok_and(|entry| !entry.stripes.is_empty()) {
        let _ = current_attr(ctx, fid).await;
    }
    Some(fid)
}

pub(crate) async fn readlink(ctx: &Ctx, node: u64) -> Outcome<Answer> {
    let fid = inode_of(ctx, node)?;
    let known = ctx.with(|state| state.nodes.by_fid(fid).and_then(|node| node.symlink_target.clone()));
    if let Some(target) = known {
        return Ok(Answer::Bytes(target.into()));
    }
    let MdtReply::Bytes(target) = ctx.mdt(fid, MdtRequest::Readlink { fid }, Kind::Plain).await? else {
        return Err(Status::ProtocolError);
    };
    ctx.with(|state| {
        if let Some(node) = state.nodes.by_fid_mut(fid) {
            node.symlink_target = Some(target.clone());
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
            let call = chown_to_nobody(who, call, &current_attr(ctx, fid).await?);
            set_attrs(ctx, who, fid, call, handle).await
        }
        (None, _) => set_attrs(ctx, who, fid, call, handle).await,
    }
}

/// A chown(2) that names neither owner nor group ends set-id bits and capabilities as any other does, and then only the owner may: as one to
/// who owns the file. Without them it sets the time of the change, for anybody.
fn chown_to_nobody(who: &Who, call: SetattrCall, attr: &Attr) -> SetattrCall {
    let has_set_id = attr.permissions & (S_ISUID | S_ISGID) != 0;
    let may = who.caller.uid == 0 || who.caller.uid == attr.uid;
    let is_told = attr.file_type != FileType::Directory && (has_set_id || may);
    SetattrCall { uid: is_told.then_some(attr.uid), ..call }
}

async fn set_attrs(
    ctx: &Ctx,
    who: &Who,
    fid: Fid,
    call: SetattrCall,
    handle: Option<OpenHandle>,
) -> Outcome<Answer> {
    if let Some(size_bytes) = call.size_bytes {
        set_size(ctx, fid, size_bytes).await?;
    }
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
    let groups = if needs_groups { Some(ctx.groups(who).await) } else { None };
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
    let attr = current_attr(ctx, fid).await?;
    Ok(Answer::Attr(ctx.with(|state| state.attr_answer(attr))))
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
    let reply = ctx
        .mdt_as(who, fid, Kind::Modifying, |creds| MdtRequest::Setattr {
            fid,
            set: set.clone(),
            creds: Credentials { groups: groups.clone().or(creds.groups), ..creds },
            handle,
            want,
        })
        .await?;
    let MdtReply::Entry(entry) = reply else { return Err(Status::ProtocolError) };
    ctx.with(|state| {
        state.take_grants(target, &entry.grants);
        state.see_entry(&entry);
    });
    Ok(())
}

async fn check_is_file(ctx: &Ctx, fid: Fid) -> Outcome<()> {
    // It never becomes something else.
    let known = ctx.with(|state| state.nodes.by_fid(fid)?.attr.as_ref().map(|attr| attr.file_type));
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
async fn set_size(ctx: &Ctx, fid: Fid, size_bytes: u64) -> Outcome<()> {
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
    truncate(ctx, &File { fid, layout }, size_bytes).await
}

/// After an open that found the file although the kernel expected to make it.
pub(crate) async fn truncate_opened(ctx: &Ctx, who: &Who, fid: Fid, handle: OpenHandle) -> Outcome<()> {
    set_size(ctx, fid, 0).await?;
    let set = SetAttr { size_bytes: Some(0), ..SetAttr::default() };
    send_setattr(ctx, who, fid, set, Some(handle), None).await
}

/// Clears set-id bits for a write by somebody unprivileged.
pub(crate) async fn truncate_privileges(ctx: &Ctx, who: &Who, fid: Fid, fh: u64) -> Outcome<()> {
    let has_some = ctx.with(|state| {
        let attr = state.nodes.by_fid(fid).and_then(|node| node.attr.as_ref());
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
        let version = node.attr.as_ref().map(|attr| attr.version);
        version.filter(|_| self.is_covered(fid, ATTR_BITS))
    }
}

/// The same for fallocate(2) and copy_file_range(2), which the kernel leaves to the client without a flag that says so. They are rare
/// enough to ask the MDT unless a lock says that there is nothing to clear.
pub(crate) async fn truncate_privileges_for(ctx: &Ctx, who: &Who, fid: Fid, fh: u64) -> Outcome<()> {
    let has_none = ctx.with(|state| {
        let node = state.nodes.by_fid(fid).filter(|node| !node.is_attr_stale);
        let attr = node.and_then(|node| node.attr.as_ref());
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
        let cleared_at = state.locked_version(fid).filter(|_| result.is_ok());
        if let Some(handle) = state.handles.get_mut(&fh) {
            handle.cleared_at = cleared_at;
        }
    });
    result
}

/// A file without a known size is mostly being written.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Whoever was the last to close a file has that long to report its size.
const SETTLE_PATIENCE: Duration = Duration::from_secs(5);

/// Files that are measured for their MDTs at a time.
const SETTLING_COUNT_MAX: u32 = 64;

/// A size that others keep changing is not reported.
const MEASURE_TRY_COUNT: u32 = 4;

/// The size that the objects have and keep over a crash.
async fn durable_size(ctx: &Ctx, file: &File) -> Outcome<FileSize> {
    if let Some((_, target, transno)) = ctx.with(|state| state.written_size(file)) {
        // Lost with an eviction: the size is then what the objects say.
        let _ = ctx.committed(target, transno).await;
    }
    // Whoever wrote before had to make it durable before the lock was this client's.
    let is_committed = |state: &State, target, transno| {
        state.connections.get(&target).is_some_and(|connection| connection.committed >= transno)
    };
    let known = ctx.with(|state| {
        let (size, target, transno) = state.written_size(file)?;
        is_committed(state, target, transno).then_some(size)
    });
    if let Some(size) = known {
        return Ok(size);
    }
    for _ in 0..MEASURE_TRY_COUNT {
        let (size, uncommitted) = measure(ctx, file).await?;
        if uncommitted.is_empty() {
            return Ok(size);
        }
        for (target, transno) in uncommitted {
            ctx.committed(target, transno).await?;
        }
    }
    Err(Status::Busy)
}

/// The write epoch of a file, as its MDT has told it in this session.
#[derive(Clone, Copy)]
pub(crate) struct ToldEpoch {
    pub(crate) fid: Fid,
    write_epoch: u64,
    session: (Epoch, u64),
}

impl State {
    /// It has just been told.
    pub(crate) fn told_epoch(&self, fid: Fid, write_epoch: u64) -> Option<ToldEpoch> {
        let connection = self.connections.get(&State::mdt(fid))?;
        let session = (connection.import.target_epoch(), connection.eviction_count);
        Some(ToldEpoch { fid, write_epoch, session })
    }

    /// By the same incarnation of the MDT, in the same session.
    pub(crate) fn is_still_told(&self, told: &ToldEpoch) -> bool {
        self.told_epoch(told.fid, told.write_epoch).is_some_and(|now| now.session == told.session)
    }
}

/// The last writer of a file has gone: the MDT gets the size that the objects have. Not one that has died since it told the epoch: the
/// next may have lost an open for writing, and tell the same epoch of what was written then.
pub(crate) async fn report_size(ctx: &Ctx, told: ToldEpoch, layout: Layout) -> Outcome<()> {
    let ToldEpoch { fid, write_epoch, .. } = told;
    let size = durable_size(ctx, &File { fid, layout }).await?;
    let report = SizeReport {
        fid,
        write_epoch,
        size_bytes: size.size_bytes,
        block_count: size.block_count,
        mtime: size.stamp,
        stamp: size.stamp,
    };
    let attr = match report_with_others(ctx, told, report).await {
        Some(reported) => reported?,
        None => report_alone(ctx, told, report).await?,
    };
    let is_told_otherwise = ctx.with(|state| {
        let now = state.now.time;
        let is_told_otherwise = state.nodes.by_fid(fid).is_some_and(|node| {
            let size_before = node.attr.as_ref().map(|attr| attr.size_bytes);
            may_kernel_believe(node.kernel_attr_until, now) && size_before != Some(size.size_bytes)
        });
        state.see_reported(&attr);
        is_told_otherwise
    });
    if is_told_otherwise {
        // Data of a writer that died may have come to light: the kernel was told a size without them.
        drop(ctx.notify(crate::Notify::InvalInode {
            node: fid.inode_number(),
            offset_bytes: -1,
            byte_count: 0,
        }));
    }
    Ok(())
}

/// -> What the file is then, whether this was believed or not.
async fn report_alone(ctx: &Ctx, told: ToldEpoch, report: SizeReport) -> Outcome<Attr> {
    if !ctx.with(|state| state.is_still_told(&told)) {
        return Err(Status::Stale);
    }
    let entry = ctx.mdt_entry(report.fid, report.alone(), Kind::Modifying).await?;
    entry.attr.ok_or(Status::ProtocolError)
}

/// Nobody writes a file whose size its MDT does not know, and has not for a while: the last writer is gone without a report, or that was not
/// believed, since somebody was being fenced who might have written. Whoever looks at it measures it for all others. From the answer on nobody
/// can write it without a new write epoch, so what is measured now is true for this one.
fn settled_size(ctx: &Ctx, entry: &Entry) {
    let Some(attr) = entry.attr.as_ref().filter(|attr| !is_strict(attr) && !entry.may_be_written) else {
        return;
    };
    let (fid, write_epoch) = (attr.fid, attr.write_epoch);
    let layout = entry.layout.clone().filter(|layout| layout.is_valid() && layout.has_objects());
    let Some(layout) = layout else { return };
    let Some(told) = ctx.with(|state| state.begin_settling(fid, write_epoch)) else { return };
    let later = ctx.clone();
    ctx.spawn(async move {
        // Without it whoever asks next tries it again.
        let _ = report_size(&later, told, layout).await;
        later.with(|state| state.end_settling(fid));
    });
}

/// The lock under which the row is known says nothing of who may write the file without having it open: asked for that from time to time, the
/// MDT has the size measured in the end.
fn look_again(ctx: &Ctx, attr: &Attr) {
    let fid = attr.fid;
    if is_strict(attr) || !ctx.with(|state| state.is_look_due(fid)) {
        return;
    }
    let later = ctx.clone();
    ctx.spawn(async move {
        if let Ok(entry) = ask_inode(&later, fid).await {
            settled_size(&later, &entry);
        }
    });
}

impl State {
    fn is_look_due(&mut self, fid: Fid) -> bool {
        let now = self.now.time;
        let does_tell = self.does_tell_writers(fid);
        let Some(node) = self.nodes.by_fid_mut(fid).filter(|node| does_tell && node.writer_count == 0) else {
            return false;
        };
        let is_due = node.settling_asked_at.is_some_and(|asked_at| now.since(asked_at) >= LOOK_INTERVAL);
        if is_due || node.settling_asked_at.is_none() {
            node.settling_asked_at = Some(now);
        }
        is_due
    }

    fn does_tell_writers(&self, fid: Fid) -> bool {
        let connection = self.connections.get(&State::mdt(fid));
        connection.is_some_and(|connection| connection.import.features() & features::WRITERS != 0)
    }

    /// Once at a time, and of an MDT that says whether somebody may write a file.
    fn begin_settling(&mut self, fid: Fid, write_epoch: u64) -> Option<ToldEpoch> {
        let now = self.now.time;
        let told = self.told_epoch(fid, write_epoch).filter(|_| self.does_tell_writers(fid))?;
        let is_crowded = self.settling_count >= SETTLING_COUNT_MAX;
        let node = self.nodes.by_fid_mut(fid).filter(|node| !node.is_settling)?;
        let since = match node.unsettled {
            Some((epoch, since)) if epoch == write_epoch => since,
            _ => node.unsettled.insert((write_epoch, now)).1,
        };
        if is_crowded || now.since(since) < SETTLE_PATIENCE {
            return None;
        }
        node.is_settling = true;
        self.settling_count += 1;
        Some(told)
    }

    fn end_settling(&mut self, fid: Fid) {
        self.settling_count -= 1;
        if let Some(node) = self.nodes.by_fid_mut(fid) {
            node.is_settling = false;
        }
    }
}

/// The part of a file that a system call may name.
pub(crate) fn check_range(offset_bytes: u64, byte_count: u64) -> Outcome<Extent> {
    match offset_bytes.checked_add(byte_count) {
        Some(end) if end <= i64::MAX as u64 => Ok(Extent::new(offset_bytes, end)),
        _ => Err(Status::TooBig),
    }
}
