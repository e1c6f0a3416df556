//! File data: reads and writes over stripes, each under extent locks. What both need of locks, and writes.

mod reading;

use crate::call::Answer;
use crate::ctx::{Ctx, OstAnswer, Outcome, Who};
use crate::dirty::{keep_back, make_room, write_out_pieces};
use crate::in_hand::{Hold, holding, unpin_all, with_others_in_hand};
use crate::locks::{LockUse, Pin, lock_extent};
use crate::ops::append::append;
use crate::ops::attr::{Written, data_layout, file_layout, truncate_privileges};
use crate::ops::change::drop_what_was_changed;
use crate::ops::open::be_writer;
use crate::ops::room::with_room;
use crate::ops::sync::sync_written;
use crate::pages::{PageCallId, drop_overtaken, drop_pages, pages_of, take_in_stores};
use crate::state::State;
use crate::stored::Stored;
use crate::whole::{Movement, begin_passage, end_passage, pass_asking};
use base::layout::Piece;
use base::{Extent, Fid, Layout, Status, TargetId, WallTime};
use bytes::Bytes;
pub(crate) use reading::{read, read_file};
use rpc::Kind;
use std::collections::BTreeMap;
use wire::{LockGrant, LockMode, OstReply, OstRequest};

pub(crate) const O_APPEND: u32 = 0o2000;
/// Also part of O_SYNC.
const O_DSYNC: u32 = 0o10000;
pub(crate) const O_DIRECT: u32 = 0o40000;
/// How often an operation starts again after its lock or its session was lost under it.
const TRY_COUNT_MAX: u32 = 8;
/// What a read or write is about.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) fid: Fid,
    pub(crate) layout: Layout,
    /// The handle of whoever changes its data, if he may rely on advisory locks.
    pub(crate) through: Option<u64>,
}

impl File {
    pub(crate) fn new(fid: Fid, layout: Layout) -> File {
        File { fid, layout, through: None }
    }

    pub(crate) fn target(&self, stripe: u32) -> Outcome<TargetId> {
        self.layout.stripe(stripe).and_then(|stripe| stripe.target()).ok_or(Status::Io)
    }
}

/// A file and its layout by node id.
pub(crate) async fn file(ctx: &Ctx, node: u64) -> Outcome<File> {
    let fid = super::fid_of(ctx, node)?;
    let layout = file_layout(ctx, fid).await?;
    Ok(File::new(fid, layout))
}

/// The same, to change its data, through a handle.
pub(crate) async fn writable_file(ctx: &Ctx, node: u64, through: Option<u64>) -> Outcome<File> {
    let fid = super::fid_of(ctx, node)?;
    let layout = data_layout(ctx, fid).await?;
    Ok(File { fid, layout, through })
}

/// # Errors
/// `NoData` (ENODATA) behind the last component, where Lustre says the same; `Io` while the file has no objects.
pub(crate) fn check_room(file: &File, extent: Extent) -> Outcome<()> {
    match file.layout.end_bytes() {
        0 => Err(Status::Io),
        end if extent.end > end => Err(Status::NoData),
        _ => Ok(()),
    }
}

/// Whether a file may end there.
///
/// # Errors
/// `NoData` (ENODATA) behind the last component, `TooBig` where an object would be longer than an OST can keep it.
pub(crate) fn check_end(layout: &Layout, end_bytes: u64) -> Outcome<()> {
    if layout.has_objects() && end_bytes > layout.end_bytes() {
        return Err(Status::NoData);
    }
    if layout.object_bytes_max(end_bytes) > base::limits::OBJECT_BYTES_MAX {
        return Err(Status::TooBig);
    }
    Ok(())
}

/// Locks what `pieces` touch, one lock per object, in the order of stripes; everything that two operations lock
/// together they lock in the same order.
pub(crate) async fn lock_pieces(
    ctx: &Ctx,
    file: &File,
    mode: LockMode,
    pieces: &[Piece],
    lock_use: LockUse,
) -> Outcome<BTreeMap<u32, Pin>> {
    let mut hulls: BTreeMap<u32, Extent> = BTreeMap::new();
    for piece in pieces {
        let hull = hulls.entry(piece.stripe).or_insert(piece.object_extent);
        *hull = hull.hull(piece.object_extent);
    }
    lock_hulls(ctx, file, mode, hulls, lock_use).await
}

/// Whoever waits for a lock with others in hand waits for somebody further on in the order of stripes, who finishes: but for a
/// kernel that holds mapped pages back until its truncate(2) is answered, which may wait for a lock that is in hand here.
/// So what is called back is let go after a while, and all locks are taken anew. Not at once: two calls would take
/// their locks from each other again and again.
pub(crate) async fn lock_hulls(
    ctx: &Ctx,
    file: &File,
    mode: LockMode,
    hulls: BTreeMap<u32, Extent>,
    lock_use: LockUse,
) -> Outcome<BTreeMap<u32, Pin>> {
    if mode == LockMode::Pw {
        // Every change of data begins here.
        ctx.with(|state| state.nodes.get_or_new(file.fid).data.unchanged_since = None);
    }
    let pins = loop {
        let mut pins = BTreeMap::new();
        let result = lock_in_order(ctx, file, mode, &hulls, lock_use, &mut pins).await;
        if result.is_ok() && pins.len() == hulls.len() {
            break pins;
        }
        unpin_all(ctx, pins);
        result?;
    };
    if mode == LockMode::Pw {
        // While the locks are pinned: who measured the file before that, or does so now, believes nothing (`AtRest`).
        ctx.with(|state| state.note_data_change(file.fid));
    }
    Ok(pins)
}

/// One round; fewer pins than objects afterwards mean that some were let go.
async fn lock_in_order(
    ctx: &Ctx,
    file: &File,
    mode: LockMode,
    hulls: &BTreeMap<u32, Extent>,
    lock_use: LockUse,
    pins: &mut BTreeMap<u32, Pin>,
) -> Outcome<()> {
    for (stripe, hull) in hulls {
        let target = file.target(*stripe)?;
        let asking = lock_extent(ctx, target, file.layout.object(*stripe), mode, *hull, lock_use);
        let held_count = pins.len();
        let pin = with_others_in_hand(ctx, asking, pins).await?;
        let has_let_go = pins.len() < held_count;
        pins.insert(*stripe, pin);
        if has_let_go {
            break;
        }
    }
    Ok(())
}

/// Whether to begin again: a lock or a session was lost while the operation ran. Locks that the target does not know
/// any more are dropped here too.
pub(crate) fn is_worth_another_try(ctx: &Ctx, status: Status, pins: &BTreeMap<u32, Pin>, tries: u32) -> bool {
    if status == Status::LockLost {
        ctx.with(|state| {
            for pin in pins.values() {
                state.on_blocking(pin.target, pin.lock);
            }
        });
    }
    matches!(status, Status::LockLost | Status::Evicted | Status::NotConnected) && tries < TRY_COUNT_MAX
}

/// The same of a change that may have let go of locks that others want: what needed these was not sent.
pub(crate) fn is_to_begin_anew<T>(
    ctx: &Ctx,
    result: &Outcome<T>,
    pins: &BTreeMap<u32, Pin>,
    has_let_go: bool,
    tries: u32,
) -> bool {
    match result {
        Err(Status::LockLost) if has_let_go => true,
        Err(status) => is_worth_another_try(ctx, *status, pins, tries),
        Ok(_) => false,
    }
}

fn extents_of(pieces: &[Piece]) -> impl Iterator<Item = (u32, Extent)> + '_ {
    pieces.iter().map(|piece| (piece.stripe, piece.object_extent))
}

/// The operation has its locks.
pub(crate) fn moves(ctx: &Ctx, lock_use: LockUse) {
    if let LockUse::Pages(call) = lock_use {
        ctx.with(|state| state.page_call_moves(call));
    }
}

/// A write as the kernel sends it.
pub(crate) struct WriteCall {
    pub(crate) node: u64,
    pub(crate) fh: u64,
    pub(crate) offset_bytes: u64,
    pub(crate) data: Bytes,
    pub(crate) flags: u32,
    pub(crate) is_writeback: bool,
    pub(crate) kill_privileges: bool,
}

pub(crate) async fn write(ctx: &Ctx, who: &Who, call: WriteCall) -> Outcome<Answer> {
    let (node, fh, byte_count) = (call.node, call.fh, call.data.len() as u64);
    let extent = Extent::at(call.offset_bytes, byte_count);
    let is_writeback = call.is_writeback;
    let is_direct = ctx.with(|state| state.handles.get(&fh).is_some_and(|handle| handle.is_direct));
    // Of others the kernel sends one piece at a time, and never cuts the file after them (`fuse_direct_write_iter`).
    let is_past_pages = !is_writeback && call.flags & O_DIRECT != 0;
    let is_append = call.flags & O_APPEND != 0;
    ctx.with(|state| match (is_past_pages, is_writeback) {
        (true, _) => state.begin_passing_write(node, extent, is_append),
        (false, true) => {}
        (false, false) => state.note_passing_is_over(node),
    });
    let written = write_call(ctx, who, call, is_direct).await;
    ctx.with(|state| {
        if is_past_pages {
            state.end_passing_write((node, fh), extent, written);
        }
        let written = written?;
        state.stats.write_bytes.add(written.byte_count());
        if !is_writeback {
            state.note_kernel_wrote(node, extent.start + written.byte_count());
        }
        Ok(Answer::Written(written.byte_count()))
    })
}

/// Where it was written, fewer bytes where a target has no room for what comes next.
async fn write_call(ctx: &Ctx, who: &Who, call: WriteCall, is_direct: bool) -> Outcome<Extent> {
    let byte_count = call.data.len() as u64;
    let extent = Extent::at(call.offset_bytes, byte_count);
    let lock_use = match (call.is_writeback, is_direct) {
        (true, _) => LockUse::WriteBack,
        (false, true) => LockUse::NoPages,
        (false, false) => LockUse::Pages(PageCallId(who.id)),
    };
    if let LockUse::Pages(pages) = lock_use {
        ctx.with(|state| state.begin_page_write(pages, call.node, extent));
    }
    if lock_use == LockUse::NoPages {
        take_in_stores(ctx, call.node, extent).await;
    }
    let stored = match call.is_writeback {
        true => Some(ctx.with(|state| state.begin_stored(call.node, extent))?),
        false => None,
    };
    // With what was stored into pages the kernel names whichever handle it finds.
    let through = (!call.is_writeback).then_some(call.fh);
    let file = writable_file(ctx, call.node, through).await?;
    super::open::revive(ctx, call.fh).await?;
    if must_kill_privileges(ctx, who, &call) {
        truncate_privileges(ctx, who, file.fid, call.fh).await?;
    } else if is_direct && !call.is_writeback {
        super::xattr::end_capability(ctx, who, file.fid).await?;
    }
    let is_append = call.flags & O_APPEND != 0 && !call.is_writeback;
    // Of what is in its pages the kernel asks for an fsync(2) itself.
    let is_past_pages = is_direct || call.flags & O_DIRECT != 0;
    let is_synced = call.flags & O_DSYNC != 0 && is_past_pages && !call.is_writeback;
    let synced = is_synced.then_some((call.node, call.fh));
    let (node, offset_bytes) = (call.node, call.offset_bytes);
    let writing = async {
        if is_append {
            return append(ctx, &file, (offset_bytes, call.data), lock_use, synced).await;
        }
        let may_wait = matches!(lock_use, LockUse::Pages(_)) && call.flags & O_DSYNC == 0;
        let data = (offset_bytes, call.data);
        let written_bytes = write_file(ctx, &file, data, lock_use, stored, may_wait).await?;
        if let Some((node, fh)) = synced {
            sync_written(ctx, node, fh).await?;
        }
        Ok(Extent::at(offset_bytes, written_bytes))
    };
    let result = writing.await;
    if lock_use == LockUse::NoPages {
        let extent = if is_append { Extent::new(offset_bytes, Extent::EOF) } else { extent };
        drop_what_was_changed(ctx, node, extent, &result);
    }
    let written = result?;
    if call.is_writeback && written.byte_count() < byte_count {
        // Nobody asks for the rest again.
        return Err(Status::NoSpace);
    }
    match lock_use {
        // Where the kernel thought the end was it has the bytes now, and at the end perhaps what was there before.
        // Nobody waits for it: the kernel may have locked one of these pages for this call.
        LockUse::Pages(_) if is_append => ctx.with(|state| {
            state.drop_unasked(node, extent);
            state.drop_unasked(node, written);
        }),
        LockUse::Pages(pages) => drop_overtaken(ctx, pages).await,
        // It was written past the kernel's pages.
        LockUse::NoPages => {
            let passed = ctx.with(|state| state.pages_within(node, pages_of(written)));
            drop_pages(ctx, node, passed).await;
        }
        LockUse::WriteBack => {}
    }
    Ok(written)
}

/// A write by somebody unprivileged clears set-id bits: the kernel says so when it can; otherwise the first write of
/// each handle does.
fn must_kill_privileges(ctx: &Ctx, who: &Who, call: &WriteCall) -> bool {
    ctx.with(|state| {
        if state.options.has_kill_privileges {
            return call.kill_privileges;
        }
        let Some(handle) = state.handles.get_mut(&call.fh) else { return false };
        if handle.has_killed_privileges || who.caller.uid == 0 || call.is_writeback {
            return false;
        }
        handle.has_killed_privileges = true;
        state.nodes.by_fid(handle.fid).is_some_and(|node| {
            node.attr().is_none_or(|attr| attr.permissions & 0o6000 != 0 || attr.has_xattrs)
        })
    })
}

/// Returns how many bytes were written: fewer where a target has no room for what comes next.
pub(crate) async fn write_file(
    ctx: &Ctx,
    file: &File,
    (offset_bytes, data): (u64, Bytes),
    lock_use: LockUse,
    stored: Option<Stored>,
    may_wait: bool,
) -> Outcome<u64> {
    let extent = Extent::at(offset_bytes, data.len() as u64);
    if extent.is_empty() {
        return Ok(0);
    }
    check_room(file, extent)?;
    let mut rest = Rest { extent, pieces: file.layout.pieces(extent), data, written_bytes: 0 };
    let (mut tries, mut let_go_count) = (0, 0);
    loop {
        let Rest { extent, pieces, data, .. } = &rest;
        be_writer_of(ctx, file, lock_use).await?;
        let has_room = may_wait && make_room(ctx, file, pieces, lock_use).await;
        if !has_room
            && let [piece] = &pieces[..]
            && let Some(asked) = begin_asking(ctx, file, piece, lock_use)
        {
            match write_asking(ctx, file, (piece, data), asked, lock_use).await {
                // The node says now that locks on it are waited for.
                Err(Status::WouldBlock) => {}
                // It had no lock that could have kept others away since.
                Err(Status::Evicted) => return rest.end(lock_use, Err(Status::Evicted)),
                Err(status) if is_worth_another_try(ctx, status, &BTreeMap::new(), tries) => tries += 1,
                Ok(()) => return Ok(rest.written_bytes + extent.byte_count()),
                Err(status) => return rest.end(lock_use, Err(status)),
            }
            continue;
        }
        let mut pins = match lock_pieces(ctx, file, LockMode::Pw, pieces, lock_use).await {
            Ok(pins) if has_obstacle(ctx, file) => {
                // Nobody else waits for locks while this waits for the MDT.
                unpin_all(ctx, pins);
                continue;
            }
            Ok(pins) => pins,
            Err(status) if is_worth_another_try(ctx, status, &BTreeMap::new(), tries) => {
                tries += 1;
                continue;
            }
            Err(status) => return Err(status),
        };
        if let Some(stored) = stored
            && let Err(status) = ctx.with(|state| state.check_stored(stored))
        {
            unpin_all(ctx, pins);
            return Err(status);
        }
        moves(ctx, lock_use);
        if has_room && keep_back(ctx, file, *extent, pieces, data, &pins) {
            unpin_all(ctx, pins);
            return Ok(rest.written_bytes + extent.byte_count());
        }
        let lock_count = pins.len();
        let writing_out = write_out_pieces(ctx, file, extents_of(pieces));
        holding(ctx, Hold::of_nothing_sent(lock_use, let_go_count), &mut pins, writing_out).await;
        let (sent_bytes, result) = match pins.len() == lock_count {
            true => write_pieces(ctx, file, *extent, pieces, data, &mut pins, lock_use).await,
            false => (0, Err(Status::LockLost)),
        };
        let has_let_go = pins.len() < lock_count;
        let is_again = may_be_sent_again(ctx, &result, pins.values())
            && is_to_begin_anew(ctx, &result, &pins, has_let_go, tries);
        unpin_all(ctx, pins);
        rest.pass_over(file, sent_bytes);
        if !is_again {
            note_written(ctx, file, result.as_ref().ok());
            if let Some(stored) = stored.filter(|_| result.is_err()) {
                ctx.with(|state| state.check_stored(stored))?;
            }
            return rest.end(lock_use, result.map(drop));
        }
        tries += u32::from(!has_let_go);
        let_go_count += u32::from(has_let_go);
    }
}

/// What is still to be written of a call.
struct Rest {
    extent: Extent,
    pieces: Vec<Piece>,
    data: Bytes,
    /// In front of it. Others may have seen that, and have written there since: it is not written again.
    written_bytes: u64,
}

impl Rest {
    /// What the call has come to. Whoever is told of a part writes the rest in another call; but nobody does what was stored into pages.
    fn end(&self, lock_use: LockUse, result: Outcome<()>) -> Outcome<u64> {
        match result {
            Err(Status::Evicted) if self.written_bytes > 0 && lock_use != LockUse::WriteBack => {
                Ok(self.written_bytes)
            }
            result => short_or(self.written_bytes, result),
        }
    }

    /// The first bytes have been answered.
    fn pass_over(&mut self, file: &File, byte_count: u64) {
        if byte_count == 0 {
            return;
        }
        self.written_bytes += byte_count;
        self.extent = Extent::new(self.extent.start + byte_count, self.extent.end);
        self.data = self.data.slice(byte_count as usize..);
        self.pieces = file.layout.pieces(self.extent);
    }
}

/// Whether a change that was sent, under these locks, may be sent again. Where the OST has evicted this mount, the change may have been
/// executed, others may have seen it, and what they have written there since is theirs. Where only the MDT has, the locks have kept them away.
/// What had not been sent by then ends with `LockLost`.
pub(crate) fn may_be_sent_again<'a, T>(
    ctx: &Ctx,
    result: &Outcome<T>,
    mut pins: impl Iterator<Item = &'a Pin>,
) -> bool {
    !matches!(result, Err(Status::Evicted)) || ctx.with(|state| pins.all(|pin| state.is_known(*pin)))
}

/// A lock that comes with the write, if none is held or was refused before.
fn begin_asking(ctx: &Ctx, file: &File, piece: &Piece, lock_use: LockUse) -> Option<Pin> {
    let target = file.target(piece.stripe).ok()?;
    ctx.with(|state| {
        let is_contended = state.nodes.by_fid(file.fid).is_none_or(|node| node.data.is_contended);
        let has_obstacle = state.obstacle_to_write_through(file.fid, file.through).is_some();
        if lock_use == LockUse::WriteBack || is_contended || has_obstacle {
            return None;
        }
        let asked = state.begin_asking_with_write(target, file.layout.object(piece.stripe))?;
        if let LockUse::Pages(call) = lock_use {
            state.page_call_waits(call);
        }
        // Every change of data begins so.
        state.note_data_change(file.fid);
        Some(asked)
    })
}

/// Writes a piece, and asks for the lock to do so in the same request.
///
/// # Errors
/// `WouldBlock` when somebody is in the way of the lock, and nothing was written.
async fn write_asking(
    ctx: &Ctx,
    file: &File,
    (piece, data): (&Piece, &Bytes),
    asked: Pin,
    lock_use: LockUse,
) -> Outcome<()> {
    let object = file.layout.object(piece.stripe);
    let (stamp, before) = ctx.with(|state| (state.stamp(file.fid), state.data_changed_at(file.fid)));
    let movement = Movement {
        fid: file.fid,
        extent: Extent::at(piece.file_offset_bytes, piece.object_extent.byte_count()),
        is_write: true,
        is_long: false,
    };
    let wanted = Some(pages_of(piece.object_extent));
    let sending = send_piece(ctx, file, (piece, data.clone()), (asked, stamp), wanted);
    let result = pass_asking(ctx, movement, sending).await;
    let pin =
        ctx.with(|state| state.end_asking(asked, (object, LockMode::Pw), granted(state, asked, &result)));
    if result == Err(Status::WouldBlock) {
        ctx.with(|state| state.nodes.get_or_new(file.fid).data.is_contended = true);
        return Err(Status::WouldBlock);
    }
    if let LockUse::Pages(call) = lock_use {
        ctx.with(|state| {
            state.page_call_moves(call);
            if pin.is_none() {
                state.doubt_pages(call);
            }
        });
    }
    note_answer(ctx, file.fid, asked.target, &result);
    let outcome = note_write(ctx, file.fid, before, vec![(asked.target, result)]);
    if let Some(pin) = pin {
        ctx.with(|state| state.unpin(pin));
    }
    note_written(ctx, file, outcome.as_ref().ok());
    outcome.map(drop)
}

/// The lock that came with the answer to a write. None came with an answer that was given before a restart and is only told again:
/// the OST has forgotten it, and this client did not name it.
fn granted(state: &State, asked: Pin, result: &Outcome<OstAnswer>) -> Option<LockGrant> {
    let Ok((Some(OstReply::Written { lock, .. }), _, transno)) = result else { return None };
    let epoch = state.connections.get(&asked.target)?.import.target_epoch();
    lock.clone().filter(|_| transno.epoch() == epoch)
}

fn note_written(ctx: &Ctx, file: &File, written: Option<&Option<Written>>) {
    if let Some(Some(written)) = written {
        ctx.with(|state| state.note_written(file, written));
    }
}

/// The same as `be_writer`; the call's pages are not in the way of others while it waits.
pub(crate) async fn be_writer_of(ctx: &Ctx, file: &File, lock_use: LockUse) -> Outcome<()> {
    if let LockUse::Pages(call) = lock_use {
        ctx.with(|state| {
            if state.obstacle_to_write(file.fid).is_some() {
                state.page_call_waits(call);
            }
        });
    }
    be_writer(ctx, file.fid, file.through).await
}

/// Whether `be_writer` would not be done at once.
pub(crate) fn has_obstacle(ctx: &Ctx, file: &File) -> bool {
    ctx.with(|state| state.obstacle_to_write_through(file.fid, file.through)).is_some()
}

/// How many bytes a write tells that may have ended early: an error for want of room is told only where nothing was written.
pub(crate) fn short_or(written_bytes: u64, result: Outcome<()>) -> Outcome<u64> {
    match result {
        Err(Status::NoSpace | Status::TooBig) if written_bytes > 0 => Ok(written_bytes),
        result => result.map(|()| written_bytes),
    }
}

/// Sends what no other call of this client must see in parts.
///
/// Returns how many bytes were written, up to the first piece that was refused, and what a single piece's answer told. Locks that others want
/// for too long are not among the `pins` any more. `LockLost` if one of a piece that was not sent is among these.
pub(crate) async fn write_pieces(
    ctx: &Ctx,
    file: &File,
    extent: Extent,
    pieces: &[Piece],
    data: &Bytes,
    pins: &mut BTreeMap<u32, Pin>,
    lock_use: LockUse,
) -> (u64, Outcome<Option<Written>>) {
    let is_long = pieces.len() > 1;
    let movement = Movement { fid: file.fid, extent, is_write: true, is_long };
    let (hold, lock_count) = (Hold::of_change(lock_use), pins.len());
    let passage = begin_passage(ctx, movement, hold, pins).await;
    if is_long && pins.len() == lock_count {
        // From now on nothing is kept back in several parts. What was since this began to wait is written before it, and not between its pieces.
        holding(ctx, hold, pins, write_out_pieces(ctx, file, extents_of(pieces))).await;
    }
    let sent = match pins.len() == lock_count {
        true => send_pieces(ctx, file, extent, pieces, data, pins, hold).await,
        // It begins anew, with nothing of it to be seen.
        false => (0, Err(Status::LockLost)),
    };
    end_passage(ctx, passage);
    sent
}

/// Piece after piece: who is told that a part was written relies on that being the first part, and on the file not ending
/// behind it. So none is sent before those in front of it have arrived. Few writes have more than one.
async fn send_pieces(
    ctx: &Ctx,
    file: &File,
    extent: Extent,
    pieces: &[Piece],
    data: &Bytes,
    pins: &mut BTreeMap<u32, Pin>,
    hold: Hold,
) -> (u64, Outcome<Option<Written>>) {
    let (stamp, before) = ctx.with(|state| (state.stamp(file.fid), state.data_changed_at(file.fid)));
    let mut results = Vec::with_capacity(pieces.len());
    let mut written_bytes = 0;
    for piece in pieces {
        // Its own OST sees what goes on. The locks of others may have been let go.
        let Some(pin) = pins.remove(&piece.stripe) else {
            let outcome = note_write(ctx, file.fid, before, results);
            return (written_bytes, outcome.and(Err(Status::LockLost)));
        };
        let at = (piece.file_offset_bytes - extent.start) as usize;
        let mut part = data.slice(at..at + piece.object_extent.byte_count() as usize);
        if is_small_part(pieces, &part, data) {
            part = base::buffers::copy(&part);
        }
        let sending = send_piece(ctx, file, (piece, part), (pin, stamp), None);
        let result = holding(ctx, hold, pins, sending).await;
        pins.insert(piece.stripe, pin);
        note_answer(ctx, file.fid, pin.target, &result);
        let is_written = result.is_ok();
        results.push((pin.target, result));
        if !is_written {
            break;
        }
        written_bytes += piece.object_extent.byte_count();
    }
    (written_bytes, note_write(ctx, file.fid, before, results))
}

/// Whether a part of a write gets memory of its own. It stays here until it is durable on its OST, which counts no more than that, and would keep
/// the parts of other OSTs with it. For half of a write that is not worth a copy.
pub(crate) fn is_small_part(pieces: &[Piece], part: &Bytes, data: &Bytes) -> bool {
    pieces.len() > 1 && part.len() * 2 < data.len()
}

/// Sends a piece that nobody was told of yet, under a lock that is held, or is asked for over `wanted` with it.
async fn send_piece(
    ctx: &Ctx,
    file: &File,
    (piece, data): (&Piece, Bytes),
    (pin, stamp): (Pin, WallTime),
    wanted: Option<Extent>,
) -> Outcome<OstAnswer> {
    let request = OstRequest::Write {
        object: file.layout.object(piece.stripe),
        offset_bytes: piece.object_extent.start,
        lock: pin.lock,
        stamp,
        is_answered: false,
        asked: wanted,
    };
    let send = || ctx.ost(pin.target, request.clone(), data.clone(), Kind::Modifying);
    with_room(ctx, file.fid, pin.target, send).await
}

/// The same as `note_results`; what a single write told of its object, if no other change of the file has begun or ended since
/// `changed_at`, when it was sent.
pub(crate) fn note_write(
    ctx: &Ctx,
    fid: Fid,
    changed_at: Option<u64>,
    results: Vec<(TargetId, Outcome<OstAnswer>)>,
) -> Outcome<Option<Written>> {
    let is_alone = ctx.with(|state| state.data_changed_at(fid)) == changed_at;
    let written = match &results[..] {
        [(target, Ok(answer))] if is_alone => Written::of(*target, answer),
        _ => None,
    };
    note_results(ctx, fid, results).map(|()| written)
}

/// Remembers what has to become durable, as soon as it was answered: a target may evict this client while others have not answered yet, and
/// what it takes back then somebody has to be told.
pub(crate) fn note_answer(ctx: &Ctx, fid: Fid, target: TargetId, result: &Outcome<OstAnswer>) {
    if let Ok((_, _, transno)) = result {
        ctx.with(|state| state.note_change(target, fid, *transno));
    }
}

/// A change of data has ended; the first failure is the operation's.
pub(crate) fn note_results(ctx: &Ctx, fid: Fid, results: Vec<(TargetId, Outcome<OstAnswer>)>) -> Outcome<()> {
    ctx.with(|state| state.note_data_change(fid));
    results.into_iter().try_for_each(|(_, result)| result.map(drop))
}
