//! Open files: from open to the close on the MDT, which may come long after the last descriptor is gone.

use crate::call::{Answer, OpenMode};
use crate::cancels::give_back_of_gone;
use crate::closes::{close_later, end_closes};
use crate::ctx::{Ctx, Outcome, Who, join_all, mdt_of};
use crate::dirty::{Carried, give_back_if_unwritten, write_out_file};
use crate::executor::oneshot;
use crate::handles::{ClosingHandle, Handle};
use crate::locks::drop_read_locked_pages;
use crate::ops::io::{File, O_APPEND, O_DIRECT};
use crate::ops::names::{Creation, create};
use crate::ops::sync::{sync_inode_change, sync_names};
use crate::ops::{attr, fid_of, home_of, inode_of};
use crate::push::file_pushes_end;
use crate::state::State;
use base::{Attr, Duration, Fid, OpenHandle, Status, TargetId, TargetKind, Transno};
use bytes::Bytes;
use rpc::Kind;
use std::collections::BTreeMap;
use wire::lock::LockWant;
use wire::mdt::{Access, Credentials, Entry, NewNode, OpenArgs};
use wire::{MdtReply, MdtRequest, OstRequest, Request};

const O_ACCMODE: u32 = 3;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;
pub(crate) const O_NOATIME: u32 = 0o1_000_000;
/// `__FMODE_EXEC`: the kernel opens the file to run it.
const FMODE_EXEC: u32 = 0x20;
/// Closed files whose sizes wait for data that are not durable yet; beyond it a release has them made durable at once.
const CLOSING_COUNT_MAX: u32 = 512;
/// How often a close is begun anew because the MDT has evicted this client meanwhile.
const CLOSE_TRY_COUNT: u32 = 3;
/// A file that another mount writes is tried to be run so often and so long, and the other way round: a little longer than
/// a close there takes.
const BUSY_TRY_COUNT: u32 = 25;
const BUSY_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Handles that are opened again at a time after an eviction.
const REVIVING_COUNT_MAX: usize = 32;

fn open_args(ctx: &Ctx, flags: u32) -> OpenArgs {
    let handle = ctx.with(|state| {
        state.last_handle += 1;
        OpenHandle(state.last_handle)
    });
    let mode = flags & O_ACCMODE;
    OpenArgs {
        handle,
        read: mode != O_WRONLY,
        write: mode == O_WRONLY || mode == O_RDWR,
        execute: flags & FMODE_EXEC != 0,
    }
}

pub(crate) async fn open(ctx: &Ctx, who: &Who, node: u64, flags: u32) -> Outcome<Answer> {
    let fid = inode_of(ctx, node)?;
    let args = open_args(ctx, flags);
    let entry = open_at_mdt(ctx, who, fid, args, is_cached(flags)).await?;
    let mode = install_handle(ctx, fid, args, flags, &entry).await;
    Ok(Answer::Opened { fh: args.handle.0, mode })
}

/// Cuts an old file if that was asked for. -> What its attributes are then.
async fn created_attr(ctx: &Ctx, who: &Who, entry: &Entry, args: OpenArgs, flags: u32) -> Outcome<Attr> {
    if !entry.was_created && flags & O_TRUNC != 0 && args.write {
        attr::truncate_opened(ctx, who, entry.fid, args.handle).await?;
        sync_inode_change(ctx, who, entry.fid).await?;
    }
    match &entry.attr {
        // A file that is new and open here only is as large as nothing.
        Some(attr) if entry.was_created => Ok(attr.clone()),
        _ => attr::current_attr(ctx, entry.fid).await,
    }
}

/// Whether it goes through the page cache, if nobody else has it open.
fn is_cached(flags: u32) -> bool {
    let is_append = flags & O_APPEND != 0 && flags & O_ACCMODE != 0;
    !is_append && flags & O_DIRECT == 0
}

/// Waits for other mounts that have only just stopped to run the file, or to write it: their close is on its way.
async fn open_at_mdt(ctx: &Ctx, who: &Who, fid: Fid, args: OpenArgs, is_cached: bool) -> Outcome<Entry> {
    for _ in 0..BUSY_TRY_COUNT {
        match try_open(ctx, who, fid, args, is_cached).await {
            Err(Status::TextBusy) => {
                ctx.sleep(BUSY_RETRY_INTERVAL).await;
            }
            result => return result,
        }
    }
    try_open(ctx, who, fid, args, is_cached).await
}

async fn try_open(ctx: &Ctx, who: &Who, fid: Fid, args: OpenArgs, is_cached: bool) -> Outcome<Entry> {
    let target = mdt_of(fid)?;
    let want = ctx.with(|state| LockWant {
        inode: state.want_inode(target, Some(fid)),
        write_back: state.want_write_back(fid, args.write && state.options.is_write_back_early),
        data: state.want_data_of(target, fid, args).filter(|_| is_cached),
        ..LockWant::default()
    });
    let asked_at = ctx.with(|state| state.begin_opening(fid));
    let kind = if args.write { Kind::Modifying } else { Kind::Plain };
    let (closes, accesses) = ctx.with(|state| (state.take_closes(target), state.take_accesses(target)));
    let make = |creds| MdtRequest::Open {
        fid,
        open: args,
        creds,
        want,
        closes: closes.clone(),
        accesses: accesses.clone(),
    };
    let reply = ctx.mdt_as(who, fid, kind, make).await;
    end_closes(ctx, target, &closes, reply.is_ok());
    let MdtReply::Entry(mut entry) = reply? else { return Err(Status::ProtocolError) };
    ctx.with(|state| {
        state.take_grants(target, &entry.grants);
        state.see_entry(&entry);
        if let (Some(bytes), Some(data)) = (entry.data.take(), want.data) {
            state.keep_opened(target, fid, (data.lock, asked_at), bytes);
        }
    });
    Ok(*entry)
}

/// Larger files that others have lately wanted are written through the pages, as ever: each write past them is a request.
const SHARED_BYTES_MAX: u64 = 64 << 10;

/// A handle of our own for truncate(2): from its open on the MDT counts the size as unknown.
pub(crate) async fn open_for_truncate(ctx: &Ctx, who: &Who, fid: Fid) -> Outcome<OpenHandle> {
    let args = open_args(ctx, O_WRONLY);
    open_at_mdt(ctx, who, fid, args, false).await?;
    ctx.with(|state| {
        let mut handle = Handle::new(fid, args);
        handle.is_direct = true;
        state.handles.insert(args.handle.0, handle);
        let now = state.now.time;
        let node = state.nodes.get_or_new(fid);
        node.open_count += 1;
        node.data.writer_count += 1;
        node.kernel_size.on_own(now);
    });
    file_pushes_end(ctx, fid).await;
    Ok(args.handle)
}

/// Makes the handle known and says how the kernel is to use it.
async fn install_handle(ctx: &Ctx, fid: Fid, args: OpenArgs, flags: u32, entry: &Entry) -> OpenMode {
    let is_first_writer = ctx.with(|state| {
        let is_relaxed = state.options.is_mmap_relaxed;
        let mut handle = Handle::new(fid, args);
        // A new file that this handle cannot fill has nothing to be read.
        let is_empty = entry.was_created && !args.write;
        handle.is_access = args.read && flags & O_NOATIME == 0 && !is_empty;
        // Who writes only can map nothing, and loses little past the cache with what is small.
        let attr = state.nodes.by_fid(fid).and_then(|node| node.attr());
        let is_small = attr.is_none_or(|attr| attr.size_bytes <= SHARED_BYTES_MAX);
        let is_lately_shared = is_small && state.lately_shared.has(fid, state.now.time);
        let is_shared = entry.is_open_elsewhere || (!args.read && is_lately_shared);
        handle.is_direct = !is_cached(flags) || (args.write && is_shared && !is_relaxed);
        let is_cached_writer = handle.is_cached_writer();
        state.handles.insert(args.handle.0, handle);
        let now = state.now.time;
        let node = state.nodes.get_or_new(fid);
        node.open_count += 1;
        if args.write {
            node.data.writer_count += 1;
            node.kernel_size.on_own(now);
        }
        if is_cached_writer {
            node.data.cached_writer_count += 1;
        }
        if let Some(layout) = entry.layout.as_ref().filter(|layout| layout.is_valid()) {
            node.set_layout(layout);
        }
        is_cached_writer && node.data.cached_writer_count == 1
    });
    // What a push puts there after this open was true before an eviction, and would be kept.
    if args.write || ctx.with(|state| state.has_doubted_push(fid.inode_number())) {
        file_pushes_end(ctx, fid).await;
    }
    if is_first_writer
        && let Some(layout) =
            ctx.with(|state| state.nodes.by_fid(fid).and_then(|node| node.layout().cloned()))
    {
        drop_read_locked_pages(ctx, fid, &layout).await;
    }
    let (is_direct, is_doubtful) = ctx.with(|state| {
        let is_direct = state.handles.get(&args.handle.0).is_some_and(|handle| handle.is_direct);
        (is_direct, state.has_unasked_drop(fid.inode_number()))
    });
    // Pages leave with their locks, so what is still there is good; but of those whose lock an eviction took the kernel may not have heard
    // yet: it drops them before open(2) returns. A store into one of them would bring back what others have overwritten since.
    // Only who writes past the cache by his own wish may write at several places at a time.
    OpenMode { is_direct, is_parallel: flags & O_DIRECT != 0, keeps_cache: !is_doubtful }
}

pub(crate) async fn create_open(
    ctx: &Ctx,
    who: &Who,
    parent: u64,
    name: Option<Vec<u8>>,
    mode: u32,
    umask: u32,
    flags: u32,
) -> Outcome<Answer> {
    let parent = match &name {
        Some(name) => home_of(ctx, parent, name)?,
        None => fid_of(ctx, parent)?,
    };
    let args = open_args(ctx, flags);
    let creation = Creation {
        open: Some(args),
        is_exclusive: flags & O_EXCL != 0,
        is_unnamed: name.is_none(),
        is_cached: is_cached(flags),
        ..Creation::of(NewNode::Regular, mode, umask)
    };
    let bare_name = name.clone().unwrap_or_default();
    let (mut entry, cover) = create(ctx, who, parent, &bare_name, creation).await?;
    let fid = entry.fid;
    if entry.attr.is_none() {
        // The name leads to an inode of another MDT, which has not opened it.
        entry = open_at_mdt(ctx, who, fid, args, is_cached(flags)).await?;
    }
    let mode = install_handle(ctx, fid, args, flags, &entry).await;
    let directories = if name.is_some() { &[parent][..] } else { &[] };
    let synced = sync_names(ctx, who, directories).await;
    let attr = match synced.and(created_attr(ctx, who, &entry, args, flags).await) {
        Ok(attr) => attr,
        Err(error) => {
            // The kernel has no handle, and closes none.
            release(ctx, args.handle.0, None).await?;
            return Err(error);
        }
    };
    let entry = ctx.with(|state| {
        let place = name.as_ref().map(|name| (parent, name.as_slice()));
        let is_valid = state.is_name_covered_by(parent, &bare_name, cover);
        state.entry_answer(place, attr, is_valid, false)
    });
    Ok(Answer::Created { entry, fh: args.handle.0, mode })
}

/// Opens a handle again that the MDT forgot with an eviction: until then its writers are not counted there.
pub(crate) async fn revive(ctx: &Ctx, fh: u64) -> Outcome<()> {
    let Some((fid, args)) = ctx.with(|state| state.lost_handle(fh)) else { return Ok(()) };
    let is_closing = ctx.with(|state| state.is_closing_handle(fh));
    match open_again(ctx, fid, args, is_closing).await {
        Ok(entry) => {
            ctx.with(|state| {
                state.see_entry(&entry);
                state.note_revived(fh);
            });
            if ctx.with(|state| !state.handles.contains_key(&fh)) {
                ctx.spawn(close_again(ctx.clone(), fid, args));
            }
            Ok(())
        }
        // It had been removed, and was kept only for this handle.
        Err(Status::NotFound) => Err(Status::Stale),
        Err(status) => Err(status),
    }
}

/// It was permitted when it was opened. Since the eviction others may have begun to execute the file: who has it open to write more is refused
/// for that (and told by his next call); but what was written through a handle that is being closed was answered before they began,
/// and nobody could be told that it was lost.
async fn open_again(ctx: &Ctx, fid: Fid, open: OpenArgs, is_closing: bool) -> Outcome<Entry> {
    let (creds, want) = (Credentials::default(), LockWant::default());
    let request = MdtRequest::Open { fid, open, creds, want, closes: Vec::new(), accesses: Vec::new() };
    match ctx.mdt_entry(fid, request, Kind::Modifying).await {
        Err(Status::TextBusy) if is_closing => {
            ctx.mdt_entry(fid, MdtRequest::Reopen { fid, open }, Kind::Modifying).await
        }
        result => result,
    }
}

/// Whether the file of a handle is still there, after an eviction by its MDT: that may have lost the creation, or have removed a file without
/// names that nobody had open any more. What was written to it is lost then, and no OST tells.
///
/// # Errors
/// `Stale` when it is gone.
pub(crate) async fn check_still_there(ctx: &Ctx, fh: u64) -> Outcome<()> {
    loop {
        match revive(ctx, fh).await {
            // Once more, in between.
            Err(Status::Evicted) => {}
            // Others execute it.
            Ok(()) | Err(Status::TextBusy) => return Ok(()),
            Err(status) => return Err(status),
        }
    }
}

/// Before data of a file are changed: its MDT was heard lately and counts this client as a writer.
///
/// # Errors
/// `Io` when a lock is lost that was taken `through` a handle; `Stale` when the file is gone.
pub(crate) async fn be_writer(ctx: &Ctx, fid: Fid, through: Option<u64>) -> Outcome<()> {
    while let Some(obstacle) = ctx.with(|state| state.obstacle_to_write_through(fid, through)) {
        match obstacle {
            Obstacle::LostFlock => return Err(Status::Io),
            Obstacle::SilentMdt => {
                let (sender, receiver) = oneshot();
                ctx.with(|state| state.silence_waiters.push(sender));
                let _ = receiver.await;
            }
            Obstacle::LostHandle(fh) => match revive(ctx, fh).await {
                // Once more, in between.
                Ok(()) | Err(Status::Evicted) => {}
                // Nobody can be told any more: what was answered is written.
                Err(status) if status != Status::Stale && ctx.with(|state| state.is_closing_handle(fh)) => {
                    ctx.with(|state| state.note_revived(fh));
                }
                Err(status) => return Err(status),
            },
        }
    }
    Ok(())
}

/// Why data of a file may not be changed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    SilentMdt,
    LostHandle(u64),
    LostFlock,
}

/// After an eviction, before anybody writes through the handle.
pub(crate) async fn revive_unasked(ctx: Ctx, fh: u64) {
    // Who uses the handle tries it again, and is told why it fails.
    let _ = revive(&ctx, fh).await;
    ctx.with(|state| state.reviving_count -= 1);
}

/// A handle was opened again while, or after, it was released: its close may have been faster than the open. So it is closed once more,
/// behind that one.
async fn close_again(ctx: Ctx, fid: Fid, args: OpenArgs) {
    loop {
        let closed = ctx.with(|state| {
            let (sender, receiver) = oneshot();
            state.is_closing_handle(args.handle.0).then(|| {
                state.closing_waiters.push(sender);
                receiver
            })
        });
        let Some(closed) = closed else { break };
        let _ = closed.await;
    }
    let _ = close_at_mdt(&ctx, fid, args).await;
}

fn eviction_count(ctx: &Ctx, fid: Fid) -> u64 {
    ctx.with(|state| {
        let connection = mdt_of(fid).ok().and_then(|target| state.connections.get(&target));
        connection.map_or(0, |connection| connection.eviction_count)
    })
}

/// The last descriptor is gone. The caller is answered at once, and the MDT told, or left to be told later (`closes`); the size
/// follows when it is durable.
pub(crate) async fn release(ctx: &Ctx, fh: u64, flock_owner: Option<u64>) -> Outcome<Answer> {
    super::flock::drop_handle_locks(ctx, fh, flock_owner).await;
    let handle = ctx.with(|state| {
        // Of a call that came with it, against all custom.
        state.lock_owners.end(fh);
        state.handles.remove(&fh)
    });
    let Some(handle) = handle else { return Ok(Answer::Done) };
    let node_id = handle.fid.inode_number();
    ctx.with(|state| state.forget_passing_writes(node_id, fh));
    if handle.is_access {
        ctx.with(|state| state.note_access(handle.fid, false));
    }
    if close_later(ctx, &handle) {
        ctx.with(|state| {
            state.note_end_of_gone(handle.fid);
            state.end_open(handle.fid);
        });
        give_back_of_gone(ctx, None);
        return Ok(Answer::Done);
    }
    let is_crowded = ctx.with(|state| {
        let now = state.now.time;
        if let Some(node) = state.nodes.get_mut(node_id) {
            if handle.args.write {
                node.kernel_size.on_own(now);
            }
            if let Some(data) = node.data.known_mut() {
                let (is_writer, is_cached) = (handle.args.write, handle.is_cached_writer());
                data.writer_count = data.writer_count.saturating_sub(u32::from(is_writer));
                data.cached_writer_count = data.cached_writer_count.saturating_sub(u32::from(is_cached));
            }
        }
        *state.closing.entry(node_id).or_default() += 1;
        state.closing_count += 1;
        let closing = ClosingHandle { fid: handle.fid, args: handle.args, is_lost: handle.is_lost };
        state.closing_handles.insert(fh, closing);
        state.closing_count > CLOSING_COUNT_MAX
    });
    let evictions = eviction_count(ctx, handle.fid);
    let closing = close(ctx.clone(), handle, evictions);
    if is_crowded {
        closing.await;
    } else {
        ctx.spawn(closing);
    }
    Ok(Answer::Done)
}

/// Closes at once: for as long as the MDT counts the handle, other clients cannot map the file. Then lets the node go.
async fn close(ctx: Ctx, handle: Handle, evictions: u64) {
    let fid = handle.fid;
    let node_id = fid.inode_number();
    let mut carried = None;
    if handle.args.write {
        carried = ctx.with(|state| state.take_for_close(fid));
        if carried.is_none() {
            write_out_file(&ctx, fid).await;
        }
    }
    let mut is_known = !handle.is_lost && eviction_count(&ctx, fid) == evictions;
    let mut tries = 0;
    loop {
        if handle.args.write && !is_known {
            // Evicted since it was open: what was written may lie behind a size that the MDT believes.
            // It fails when the file is gone, and then there is no size.
            let _ = open_again(&ctx, fid, handle.args, true).await;
        }
        tries += 1;
        if let Some(sent) = carried.take() {
            if close_with_data(&ctx, handle.args, sent).await.is_ok() {
                break;
            }
            // Its data are lost, or the file is gone.
            is_known = !handle.is_lost && eviction_count(&ctx, fid) == evictions;
            continue;
        }
        is_known = close_at_mdt(&ctx, fid, handle.args).await != Err(Status::Evicted);
        if is_known || !handle.args.write || tries >= CLOSE_TRY_COUNT {
            break;
        }
    }
    ctx.with(|state| {
        if let Some(count) = state.closing.get_mut(&node_id) {
            *count -= 1;
            state.closing_count -= 1;
            if *count == 0 {
                state.closing.remove(&node_id);
            }
        }
        state.closing_waiters.clear();
        state.note_end_of_gone(fid);
        state.end_open(fid);
    });
    give_back_of_gone(&ctx, None);
    if handle.args.write {
        give_back_if_unwritten(&ctx, fid);
    }
}

impl State {
    /// One handle of a file less. Without any the node goes, unless somebody else refers to it.
    fn end_open(&mut self, fid: Fid) {
        let node_id = fid.inode_number();
        if let Some(node) = self.nodes.get_mut(node_id) {
            node.open_count = node.open_count.saturating_sub(1);
            if node.open_count == 0 {
                if let Some(data) = node.data.known_mut() {
                    data.opened = None;
                }
                self.ahead.forget(fid);
            }
        }
        self.drop_unused_node(node_id);
    }
}

/// Closes with all that was written and kept back, which the MDT takes in together with the size.
async fn close_with_data(ctx: &Ctx, args: OpenArgs, carried: Carried) -> Outcome<()> {
    let Carried { sent, unchanged_since, write_back } = carried;
    let accesses = accesses_for(ctx, sent.object.fid);
    let request = MdtRequest::Close {
        fid: sent.object.fid,
        handle: args.handle,
        atime: None,
        unchanged_since: Some(unchanged_since),
        data: Some(sent.closing_data()),
        cancels: write_back.into_iter().collect(),
        accesses,
    };
    let closed = send_close(ctx, args, request, sent.bytes.clone(), sent.object.fid).await;
    let outcome = closed.as_ref().map(drop).map_err(|status| *status);
    ctx.with(|state| state.end_closing(&sent, outcome, write_back));
    report_if_wanted(ctx, sent.object.fid, closed?).await;
    Ok(())
}

/// Tells the MDT, and reports the size if it wants it, when it is durable.
async fn close_at_mdt(ctx: &Ctx, fid: Fid, args: OpenArgs) -> Outcome<()> {
    let unchanged_since =
        ctx.with(|state| state.nodes.by_fid(fid).and_then(|node| node.data.unchanged_since));
    let accesses = accesses_for(ctx, fid);
    let request = MdtRequest::Close {
        fid,
        handle: args.handle,
        atime: None,
        unchanged_since: unchanged_since.filter(|_| args.write),
        data: None,
        cancels: Vec::new(),
        accesses,
    };
    let closed = send_close(ctx, args, request, Bytes::new(), fid).await?;
    report_if_wanted(ctx, fid, closed).await;
    Ok(())
}

/// What the MDT of a file is told with its close.
fn accesses_for(ctx: &Ctx, fid: Fid) -> Vec<Access> {
    mdt_of(fid).map_or_else(|_| Vec::new(), |target| ctx.with(|state| state.take_accesses(target)))
}

async fn send_close(
    ctx: &Ctx,
    args: OpenArgs,
    request: MdtRequest,
    data: Bytes,
    fid: Fid,
) -> Outcome<MdtReply> {
    let closed = ctx.mdt_with(fid, request, data, Kind::Modifying).await;
    ctx.with(|state| {
        // A restarted MDT is not told of it any more.
        state.closing_handles.remove(&args.handle.0);
        state.lost_writers.remove(&args.handle.0);
        let Some(node) = state.nodes.by_fid_mut(fid).filter(|_| args.write) else { return };
        match &closed {
            // What else has changed meanwhile it may not tell.
            Ok(MdtReply::Closed { attr: Some(attr), .. }) if !node.is_attr_stale => {
                node.see_attr(attr);
            }
            // The MDT may know the size from now on, and the answer does not say so.
            _ => node.is_attr_stale = true,
        }
    });
    closed
}

async fn report_if_wanted(ctx: &Ctx, fid: Fid, closed: MdtReply) {
    let MdtReply::Closed { wants_size: Some(write_epoch), .. } = closed else { return };
    let told = ctx.with(|state| state.told_epoch(fid, write_epoch));
    wait_for_data(ctx, fid).await;
    let layout = ctx.with(|state| state.nodes.by_fid(fid).and_then(|node| node.layout().cloned()));
    if let Some((told, layout)) = told.zip(layout) {
        // Without it the size stays unknown, and whoever asks next asks the objects.
        let _ = attr::report_size(ctx, told, layout).await;
    }
}

async fn wait_for_data(ctx: &Ctx, fid: Fid) {
    let is_crowded = ctx.with(|state| state.closing_count > CLOSING_COUNT_MAX);
    if is_crowded {
        // A failure shows below as data that are lost.
        let _ = super::sync::sync_data(ctx, fid).await;
    }
    for (target, transno) in uncommitted_data(ctx, fid) {
        // Lost with an eviction: the size is then what the objects say.
        let _ = ctx.committed(target, transno).await;
    }
}

/// Which OSTs have writes of this file that a crash could take back.
pub(crate) fn uncommitted_data(ctx: &Ctx, fid: Fid) -> BTreeMap<TargetId, Transno> {
    ctx.with(|state| {
        let Some(node) = state.nodes.by_fid(fid) else { return BTreeMap::new() };
        let is_open = |(target, transno): &(&TargetId, &Transno)| {
            target.kind == TargetKind::Ost
                && state.connections.get(target).is_some_and(|connection| connection.committed < **transno)
        };
        node.changes.newest.iter().filter(is_open).map(|(target, transno)| (*target, *transno)).collect()
    })
}

/// close(2): what went wrong since is told once, and the caller's fcntl(2) locks go.
pub(crate) async fn flush(ctx: &Ctx, node: u64, fh: u64, lock_owner: u64) -> Outcome<Answer> {
    let fid = inode_of(ctx, node)?;
    super::flock::unlock_all(ctx, fid, lock_owner, false).await;
    ctx.with(|state| state.lock_owners.forget(fh, (lock_owner, false)));
    if ctx.with(|state| state.handles.get(&fh).is_some_and(|handle| handle.args.write)) {
        // What the close carries has room there, and is on its way as soon as the last descriptor is gone.
        if !ctx.with(|state| state.is_for_close(fid)) {
            write_out_file(ctx, fid).await;
        }
        check_still_there(ctx, fh).await?;
        let lost = ctx.with(|state| state.handles.get_mut(&fh)?.error_at_close.take());
        lost.map_or(Ok(()), Err)?;
    }
    Ok(Answer::Done)
}

/// What the handle was not told, or nobody was.
pub(crate) fn take_error_of_file(ctx: &Ctx, fid: Fid, fh: u64) -> Outcome<()> {
    take_error_of_handle(ctx, fid, fh)?;
    ctx.with(|state| state.untold.take(fid)).map_or(Ok(()), Err)
}

/// What was lost while the handle was open, if it was not told so.
pub(crate) fn take_error_of_handle(ctx: &Ctx, fid: Fid, fh: u64) -> Outcome<()> {
    let error = ctx.with(|state| {
        let handle = state.handles.get_mut(&fh)?;
        let error = handle.error.take()?;
        handle.error_at_close = None;
        state.untold.take(fid);
        Some(error)
    });
    error.map_or(Ok(()), Err)
}

/// Makes the data of a file durable on all OSTs that have some.
pub(crate) async fn sync_objects(
    ctx: &Ctx,
    file: &File,
    targets: impl IntoIterator<Item = TargetId>,
) -> Outcome<()> {
    let mut requests = Vec::new();
    for target in targets {
        let objects = file
            .layout
            .stripes()
            .filter(|stripe| file.target(*stripe) == Ok(target))
            .map(|stripe| file.layout.object(stripe))
            .collect();
        let ctx = ctx.clone();
        requests.push(async move {
            let request = Request::Ost(OstRequest::Sync { objects });
            ctx.request(target, request, Bytes::new(), Kind::Plain).await.map(|_| ())
        });
    }
    join_all(requests).await.into_iter().collect()
}

impl State {
    /// The same as `obstacle_to_write`; whether whose handle it is relies on an advisory lock that is lost comes
    /// first.
    pub(crate) fn obstacle_to_write_through(&self, fid: Fid, through: Option<u64>) -> Option<Obstacle> {
        let has_lost_flock = through.is_some_and(|fh| self.has_lost_flock(fh));
        has_lost_flock.then_some(Obstacle::LostFlock).or_else(|| self.obstacle_to_write(fid))
    }

    pub(crate) fn obstacle_to_write(&self, fid: Fid) -> Option<Obstacle> {
        let mdt = mdt_of(fid).ok()?;
        if self.silent_mdts.contains(&mdt.index) {
            return Some(Obstacle::SilentMdt);
        }
        // What was written through one that is being closed may still be under way.
        let is_of = |fh: &&u64| self.lost_handle(**fh).is_some_and(|(of, _)| of == fid);
        self.lost_writers.iter().find(is_of).map(|fh| Obstacle::LostHandle(*fh))
    }

    /// A handle that is open here, or being closed, and that its MDT has forgotten with an eviction.
    fn lost_handle(&self, fh: u64) -> Option<(Fid, OpenArgs)> {
        let open = self.handles.get(&fh).map(|handle| (handle.is_lost, handle.fid, handle.args));
        let closing = || {
            let closing = self.closing_handles.get(&fh)?;
            Some((closing.is_lost, closing.fid, closing.args))
        };
        let (is_lost, fid, args) = open.or_else(closing)?;
        is_lost.then_some((fid, args))
    }

    fn is_closing_handle(&self, fh: u64) -> bool {
        self.closing_handles.contains_key(&fh)
    }

    /// The next handle that is to be opened again. Others who ask the MDT meanwhile are not behind all of them.
    pub(crate) fn next_to_revive(&mut self) -> Option<u64> {
        let next = (self.reviving_count < REVIVING_COUNT_MAX).then(|| self.to_revive.pop_front()).flatten();
        self.reviving_count += usize::from(next.is_some());
        next
    }

    fn note_revived(&mut self, fh: u64) {
        self.lost_writers.remove(&fh);
        if let Some(handle) = self.handles.get_mut(&fh) {
            handle.is_lost = false;
        }
        if let Some(closing) = self.closing_handles.get_mut(&fh) {
            closing.is_lost = false;
        }
    }

    /// Takes a node out that nothing refers to, with the names that led to it.
    pub(crate) fn drop_unused_node(&mut self, node_id: u64) {
        if let Some(node) = self.nodes.drop_unused(node_id) {
            self.forget_names_of(&node);
        }
    }

    pub(crate) fn forget_names_of(&mut self, node: &crate::nodes::Node) {
        for (parent, name) in node.names.iter() {
            if self.names.get(parent, name).is_some_and(|known| known.fid() == Some(node.fid())) {
                self.names.remove(parent, name);
            }
        }
    }
}
