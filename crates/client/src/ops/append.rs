//! Writes at the end of a file (O_APPEND), wherever that is: the whole file is locked, the kernel's offset ignored (hazard 3.6).
//!
//! The kernel cuts a long write into pieces. An asynchronous one past the page cache (`fuse_direct_IO`) it sends all at once, so they may come
//! here in any order, and the next may still be on its way when the first is answered. It does so with the inode locked: pieces of a
//! file that are unanswered at one time are of one write, and their offsets tell their order, if not their places. So
//!
//! - they are written one after the other, in that order, each at the end of the file. Nothing is written behind a piece that has failed;
//! - one that comes after a later one was written, for nothing told that it was missing, fails;
//! - the locks stay pinned until none is unanswered, and, where more may come, a moment longer.
//!
//! Which of them is the first follows from what the kernel takes for the size (`kernel_size`): that is where the write begins.

use crate::ctx::{Ctx, First, Outcome, Race};
use crate::executor::{Receiver, Sender, oneshot};
use crate::in_hand::{Hold, holding, unpin_all};
use crate::locks::{LockUse, Pin};
use crate::ops::attr::{FileSize, object_size};
use crate::ops::io::{
    File, be_writer_of, check_room, has_obstacle, is_to_begin_anew, lock_hulls, moves, short_or, write_pieces,
};
use crate::ops::sync::sync_written;
use crate::state::State;
use base::{Duration, Extent, Fid, Status, Time};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::LockMode;

/// A piece at an offset that the kernel is not known to take for the file's end is perhaps not the first: so long it waits for that one. Long against
/// what threads that hand pieces on may overtake each other by; the kernel sends them in order.
const FIRST_PATIENCE: Duration = Duration::from_millis(200);
/// The same of one between which and what was written last another is missing.
const NEXT_PATIENCE: Duration = Duration::from_millis(3000);
/// The kernel makes a piece that is not the last of its write as long as 256 pages hold: of buffers in many parts each page may hold 512 bytes.
const MORE_BYTES_MIN: u64 = 128 << 10;
/// So long the locks are kept for the next piece, which is on its way already if there is one.
const MORE_PATIENCE: Duration = Duration::from_millis(20);
/// Who appends all the time lets others in that often: one write after another looks like the pieces of one.
const TURN_TIME_MAX: Duration = Duration::from_millis(1000);

/// So long pieces may come that were on their way when one in front of them failed.
const FAILURE_LIFE: Duration = Duration::from_millis(1000);

/// A piece that was not answered yet.
struct Waiting {
    number: u64,
    offset_bytes: u64,
    /// Nobody is waited for any more.
    is_patient: bool,
}

/// The append to one file.
#[derive(Default)]
struct Append {
    waiting: Vec<Waiting>,
    /// One of them is being written.
    is_writing: bool,
    /// Of what was written of it, as the kernel counts.
    written: Option<Extent>,
    /// When.
    written_at: Time,
    /// It began where nothing but patience told that nothing is missing in front of it (`is_guess_fresh`).
    is_guess: bool,
    /// Why nothing more is written of it, and where that began.
    failed: Option<(Status, u64)>,
    /// The locks on the whole file, for the next piece.
    pins: Option<BTreeMap<u32, Pin>>,
    /// When the locks were taken.
    since: Time,
    /// Of the piece that came last.
    last: u64,
    /// Woken, by being dropped, when something has changed.
    wakers: Vec<Sender<()>>,
}

/// Of all files to which something is being appended.
#[derive(Default)]
pub(crate) struct Appends {
    by_file: BTreeMap<Fid, Append>,
    last_number: u64,
}

impl Append {
    /// What belongs in front of what was written may still be on its way, though the kernel was answered.
    fn is_guess_fresh(&self, now: Time) -> bool {
        self.is_guess && self.written_at.after(NEXT_PATIENCE) > now
    }
}

/// What a piece has to do.
enum Turn {
    Write,
    Wait(Receiver<()>, Option<Duration>),
    Fail(Status),
}

/// What a piece has come to.
struct Ended {
    number: u64,
    extent: Extent,
    outcome: Outcome<Extent>,
    /// It had its turn.
    has_written: bool,
    /// All or none.
    pins: BTreeMap<u32, Pin>,
}

impl Appends {
    /// Asserts what always holds.
    pub(crate) fn check(&self) {
        for append in self.by_file.values() {
            assert!(!append.is_writing || !append.waiting.is_empty(), "who writes is not answered yet");
            assert!(append.failed.is_none() || append.pins.is_none(), "nothing is written after a failure");
        }
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.by_file.is_empty()
    }
}

impl State {
    /// A piece has come, for which the kernel means `extent`.
    fn begin_append(&mut self, fid: Fid, extent: Extent) -> u64 {
        self.appends.last_number += 1;
        let number = self.appends.last_number;
        let now = self.now.time;
        let is_first = self.may_begin_at(fid, extent.start);
        let append = self.appends.by_file.entry(fid).or_default();
        if append.waiting.is_empty() {
            let is_next = append.written.is_some_and(|written| written.end == extent.start);
            // The kernel had sent it before it heard that one in front of it has failed.
            let is_rest = append.failed.is_some_and(|(_, from)| from < extent.start && !is_first);
            let is_late = append.is_guess_fresh(now)
                && append.written.is_some_and(|written| extent.end <= written.start);
            if !is_next && !is_late {
                append.written = None;
                append.is_guess = false;
            }
            if !is_rest {
                append.failed = None;
            }
        }
        append.waiting.push(Waiting { number, offset_bytes: extent.start, is_patient: false });
        append.last = number;
        append.wakers.clear();
        number
    }

    /// Whether the kernel may take this for the end of the file. Pieces behind the first are behind that end, too.
    fn may_begin_at(&self, fid: Fid, offset_bytes: u64) -> bool {
        self.nodes.by_fid(fid).is_none_or(|node| {
            let possible = node.kernel_size.possible();
            possible.contains(&offset_bytes) || possible.iter().all(|size_bytes| offset_bytes < *size_bytes)
        })
    }

    fn append_turn(&mut self, fid: Fid, number: u64, extent: Extent) -> Turn {
        let is_first = self.may_begin_at(fid, extent.start);
        let Some(append) = self.appends.by_file.get_mut(&fid) else { return Turn::Fail(Status::Io) };
        if let Some((status, _)) = append.failed {
            return Turn::Fail(status);
        }
        let place = |waiting: &Waiting| (waiting.offset_bytes, waiting.number);
        let Some(own) = append.waiting.iter().find(|waiting| waiting.number == number) else {
            return Turn::Fail(Status::Io);
        };
        let is_lowest = append.waiting.iter().all(|waiting| place(own) <= place(waiting));
        let is_due = match append.written {
            // It belongs in front of what was taken for the first.
            Some(written) if extent.end <= written.start => return Turn::Fail(Status::Io),
            Some(written) => written.end == extent.start,
            None => is_first,
        };
        let is_free = is_lowest && !append.is_writing;
        if is_free && (is_due || own.is_patient) {
            append.is_writing = true;
            append.is_guess |= !is_due;
            return Turn::Write;
        }
        let patience = if append.written.is_some() { NEXT_PATIENCE } else { FIRST_PATIENCE };
        let (sender, receiver) = oneshot();
        append.wakers.push(sender);
        Turn::Wait(receiver, is_free.then_some(patience))
    }

    fn append_has_waited(&mut self, fid: Fid, number: u64) {
        let append = self.appends.by_file.get_mut(&fid);
        let own = append.and_then(|append| append.waiting.iter_mut().find(|own| own.number == number));
        if let Some(own) = own {
            own.is_patient = true;
        }
    }

    /// The locks of the piece before, if they are still pinned.
    fn take_append_locks(&mut self, fid: Fid) -> Option<BTreeMap<u32, Pin>> {
        let pins = self.appends.by_file.get_mut(&fid)?.pins.take()?;
        // As who takes locks does.
        self.nodes.get_or_new(fid).data.unchanged_since = None;
        self.note_data_change(fid);
        Some(pins)
    }

    fn note_append_locked(&mut self, fid: Fid) {
        let now = self.now.time;
        if let Some(append) = self.appends.by_file.get_mut(&fid) {
            append.since = now;
        }
    }

    /// A piece is about to be answered. -> Locks to let go of; and when to look whether another one has come since the last
    /// one, whose number that is.
    fn end_append(&mut self, fid: Fid, ended: Ended) -> (BTreeMap<u32, Pin>, Option<(Duration, u64)>) {
        let Ended { number, extent, outcome, has_written, mut pins } = ended;
        let now = self.now.time;
        let Some(append) = self.appends.by_file.get_mut(&fid) else { return (pins, None) };
        append.waiting.retain(|waiting| waiting.number != number);
        append.wakers.clear();
        append.is_writing &= !has_written;
        if outcome.is_ok_and(|written| written.byte_count() == extent.byte_count()) {
            let before = append.written.filter(|written| written.end == extent.start).unwrap_or(extent);
            append.written = Some(Extent::new(before.start, extent.end));
            append.written_at = now;
        } else {
            let status = outcome.err().unwrap_or(Status::NoSpace);
            append.failed.get_or_insert((status, extent.start));
            if pins.is_empty() {
                pins = append.pins.take().unwrap_or_default();
            }
        }
        let is_left = !append.waiting.is_empty();
        if append.failed.is_some() {
            return (pins, (!is_left).then_some((FAILURE_LIFE, append.last)));
        }
        let may_go_on = extent.byte_count() >= MORE_BYTES_MIN && append.since.after(TURN_TIME_MAX) > now;
        if !is_left && !may_go_on {
            if append.is_guess {
                return (pins, Some((NEXT_PATIENCE, append.last)));
            }
            self.appends.by_file.remove(&fid);
            return (pins, None);
        }
        append.pins = Some(pins).filter(|pins| !pins.is_empty());
        (BTreeMap::new(), (!is_left).then_some((MORE_PATIENCE, append.last)))
    }

    /// If no other piece has come since the one of this number, the write is over. -> Locks to let go of; and when to look again, if what
    /// was written is still remembered for what may come late.
    fn forget_append(&mut self, fid: Fid, last: u64) -> (BTreeMap<u32, Pin>, Option<Duration>) {
        let now = self.now.time;
        let Some(append) = self.appends.by_file.get_mut(&fid) else { return (BTreeMap::new(), None) };
        if append.last != last || !append.waiting.is_empty() {
            return (BTreeMap::new(), None);
        }
        let pins = append.pins.take().unwrap_or_default();
        if append.is_guess_fresh(now) {
            return (pins, Some(NEXT_PATIENCE));
        }
        self.appends.by_file.remove(&fid);
        (pins, None)
    }

    /// The kernel has had the inode locked for something else: no piece of an earlier write is on its way.
    pub(crate) fn note_no_append_is_late(&mut self, fid: Fid) {
        if let Some(append) = self.appends.by_file.get_mut(&fid) {
            append.is_guess = false;
            if append.waiting.is_empty() {
                append.failed = None;
            }
        }
    }
}

/// Appends `data`, for which the kernel means the file to end at `offset_bytes`. -> Where they are; less than asked for where a target has no
/// room for what comes next.
///
/// `synced`, a node and a handle, of one that is answered when it is durable: the locks stay for the next piece meanwhile.
///
/// # Errors
/// As a write; and that of a piece in front of it in the same write of the kernel's.
pub(crate) async fn append(
    ctx: &Ctx,
    file: &File,
    (offset_bytes, data): (u64, Bytes),
    lock_use: LockUse,
    synced: Option<(u64, u64)>,
) -> Outcome<Extent> {
    if !file.layout.has_objects() {
        return Err(Status::Io);
    }
    let (fid, extent) = (file.fid, Extent::at(offset_bytes, data.len() as u64));
    let number = ctx.with(|state| state.begin_append(fid, extent));
    let turn = wait_for_turn(ctx, fid, (number, extent), lock_use).await;
    let has_written = turn.is_ok();
    let (mut outcome, pins) = match turn {
        Ok(()) => append_in_turn(ctx, file, &data, lock_use).await,
        Err(status) => (Err(status), BTreeMap::new()),
    };
    if let Some((node, fh)) = synced
        && outcome.is_ok()
    {
        outcome = sync_written(ctx, node, fh).await.and(outcome);
    }
    let ended = Ended { number, extent, outcome, has_written, pins };
    let (pins, later) = ctx.with(|state| state.end_append(fid, ended));
    unpin_all(ctx, pins);
    if let Some((wait, last)) = later {
        let later = ctx.clone();
        ctx.spawn(async move {
            let mut wait = Some(wait);
            while let Some(patience) = wait {
                later.sleep(patience).await;
                let (pins, again) = later.with(|state| state.forget_append(fid, last));
                unpin_all(&later, pins);
                wait = again;
            }
        });
    }
    outcome
}

async fn wait_for_turn(
    ctx: &Ctx,
    fid: Fid,
    (number, extent): (u64, Extent),
    lock_use: LockUse,
) -> Outcome<()> {
    loop {
        let (changed, patience) = match ctx.with(|state| state.append_turn(fid, number, extent)) {
            Turn::Write => return Ok(()),
            Turn::Fail(status) => return Err(status),
            Turn::Wait(changed, patience) => (changed, patience),
        };
        if let LockUse::Pages(call) = lock_use {
            ctx.with(|state| state.page_call_waits(call));
        }
        match patience {
            None => {
                changed.await;
            }
            Some(patience) => {
                if let First::Right(_) = Race(changed, ctx.sleep(patience)).await {
                    ctx.with(|state| state.append_has_waited(fid, number));
                }
            }
        }
    }
}

/// The locks that are pinned afterwards come with it: those of the whole file, or none.
async fn append_in_turn(
    ctx: &Ctx,
    file: &File,
    data: &Bytes,
    lock_use: LockUse,
) -> (Outcome<Extent>, BTreeMap<u32, Pin>) {
    let (mut tries, mut let_go_count, mut tried_at) = (0, 0, None);
    loop {
        let (mut pins, lock_count, result) = match locked(ctx, file, lock_use).await {
            Ok(pins) if has_obstacle(ctx, file) => {
                unpin_all(ctx, pins);
                continue;
            }
            Ok(mut pins) => {
                moves(ctx, lock_use);
                let lock_count = pins.len();
                let hold = Hold::of_nothing_sent(lock_use, let_go_count);
                let result = append_locked(ctx, file, data, &mut pins, &mut tried_at, hold).await;
                (pins, lock_count, result)
            }
            Err(status) => (BTreeMap::new(), 0, Err(status)),
        };
        let has_let_go = pins.len() < lock_count;
        let is_again = is_to_begin_anew(ctx, &result, &pins, has_let_go, tries);
        if is_again || has_let_go {
            unpin_all(ctx, std::mem::take(&mut pins));
        }
        if !is_again {
            return (result, pins);
        }
        tries += u32::from(!has_let_go);
        let_go_count += u32::from(has_let_go);
    }
}

/// The whole file, as its writer.
async fn locked(ctx: &Ctx, file: &File, lock_use: LockUse) -> Outcome<BTreeMap<u32, Pin>> {
    // Nobody else waits for locks while this waits for the MDT.
    let parked = ctx.with(|state| {
        state.obstacle_to_write_through(file.fid, file.through)?;
        state.take_append_locks(file.fid)
    });
    unpin_all(ctx, parked.unwrap_or_default());
    be_writer_of(ctx, file, lock_use).await?;
    if let Some(pins) = ctx.with(|state| state.take_append_locks(file.fid)) {
        return Ok(pins);
    }
    let hulls = file.layout.stripes().map(|stripe| (stripe, Extent::WHOLE)).collect();
    let pins = lock_hulls(ctx, file, LockMode::Pw, hulls, lock_use).await?;
    ctx.with(|state| state.note_append_locked(file.fid));
    Ok(pins)
}

/// What was written. `tried_at` is where an earlier try may have put them, in part or whole: they must not be there
/// twice. Where the file still ends there, nothing is there of it, or not any more.
async fn append_locked(
    ctx: &Ctx,
    file: &File,
    data: &Bytes,
    pins: &mut BTreeMap<u32, Pin>,
    tried_at: &mut Option<u64>,
    hold: Hold,
) -> Outcome<Extent> {
    let lock_count = pins.len();
    let asking = object_size(ctx, file);
    let FileSize { size_bytes, .. } = holding(ctx, hold, pins, asking).await?;
    if pins.len() < lock_count {
        return Err(Status::LockLost);
    }
    if tried_at.is_some_and(|tried_at| tried_at != size_bytes) {
        return Err(Status::Io);
    }
    let extent = Extent::at(size_bytes, data.len() as u64);
    if extent.byte_count() != data.len() as u64 {
        return Err(Status::TooBig);
    }
    check_room(file, extent)?;
    let pieces = file.layout.pieces(extent);
    let (written_bytes, result) = write_pieces(ctx, file, extent, &pieces, data, pins, hold.lock_use).await;
    let result = short_or(written_bytes, result.map(drop));
    // Refused for its lock, or not sent for want of it, the first piece was not executed.
    if result.as_ref().is_err_and(|status| *status != Status::LockLost || written_bytes > 0) {
        *tried_at = Some(size_bytes);
    }
    result.map(|written_bytes| Extent::at(size_bytes, written_bytes))
}
