//! Changes of file data that bring none: truncate(2) and fallocate(2), on all objects that they touch.

use crate::call::Answer;
use crate::ctx::{Ctx, Outcome, Who, join_all};
use crate::dirty::write_out_pieces;
use crate::in_hand::{Hold, holding, unpin_all};
use crate::locks::{LockUse, Pin};
use crate::ops::attr::{object_size, truncate_privileges_for};
use crate::ops::io::{
    File, check_end, has_obstacle, is_to_begin_anew, lock_hulls, may_be_sent_again, note_answer,
    note_results, writable_file,
};
use crate::ops::open::be_writer;
use crate::ops::sync::sync_inode_change;
use base::{Extent, Status};
use bytes::Bytes;
use rpc::Kind;
use std::collections::BTreeMap;
use wire::ost::ExtentOp;
use wire::{LockMode, OstRequest};

/// What is done to the objects of a file.
struct Change {
    /// What was not answered yet.
    parts: Vec<(u32, Extent)>,
    op: ExtentOp,
    /// The end of the file is there when all of these are done, and not before. Begun anew, this may come a second time when others have
    /// written there, so it changes no bytes.
    end: Option<(u32, Extent)>,
}

impl Change {
    fn hulls(&self) -> BTreeMap<u32, Extent> {
        let mut hulls: BTreeMap<u32, Extent> = BTreeMap::new();
        for (stripe, extent) in self.parts.iter().copied().chain(self.end) {
            let hull = hulls.entry(stripe).or_insert(extent);
            *hull = hull.hull(extent);
        }
        hulls
    }
}

/// Changes an extent of a file (fallocate) under write locks. Of several objects one may have no room: the file ends where it did then.
async fn change(ctx: &Ctx, file: &File, extent: Extent, op: ExtentOp) -> Outcome<()> {
    let parts = file.layout.parts(extent);
    let first_op = match op {
        ExtentOp::Allocate { keep_size: false } if parts.len() > 1 => ExtentOp::Allocate { keep_size: true },
        ExtentOp::Zero { keep_size: false } if parts.len() > 1 => ExtentOp::Zero { keep_size: true },
        op => op,
    };
    let mut end = None;
    if first_op != op {
        let pieces = file.layout.pieces(Extent::new(extent.end - 1, extent.end));
        end = pieces.first().map(|piece| (piece.stripe, piece.object_extent));
    }
    if matches!(op, ExtentOp::Zero { .. }) && parts.len() > 1 {
        // One that has no room refuses it before the others have lost their bytes.
        let room = Change { parts: parts.clone(), op: ExtentOp::Allocate { keep_size: true }, end: None };
        match change_objects(ctx, file, room, LockUse::NoPages, None).await {
            Ok(()) | Err(Status::NotSupported) => {}
            Err(status) => return Err(status),
        }
    }
    change_objects(ctx, file, Change { parts, op: first_op, end }, LockUse::NoPages, None).await
}

/// The file ends at `size_bytes` from now on, on every object.
pub(crate) async fn truncate(ctx: &Ctx, file: &File, size_bytes: u64) -> Outcome<()> {
    cut(ctx, file, size_bytes, None).await
}

/// The same of a file that ends at `end_bytes`; one that ends elsewhere stays as it is.
pub(crate) async fn cut_end(ctx: &Ctx, file: &File, size_bytes: u64, end_bytes: u64) -> Outcome<()> {
    cut(ctx, file, size_bytes, Some(end_bytes)).await
}

async fn cut(ctx: &Ctx, file: &File, size_bytes: u64, end_bytes: Option<u64>) -> Outcome<()> {
    // The kernel holds back what was stored into pages until a truncate(2) is answered.
    let result = change_objects(ctx, file, cuts(file, size_bytes), LockUse::WriteBack, end_bytes).await;
    let extent = Extent::new(size_bytes, Extent::EOF);
    drop_what_was_changed(ctx, file.fid.inode_number(), extent, &result);
    result
}

/// Of a call that has failed some objects may have been changed. The kernel drops its pages after success only.
pub(crate) fn drop_what_was_changed<T>(ctx: &Ctx, node: u64, extent: Extent, result: &Outcome<T>) {
    // Nobody waits for it: the kernel may have locked one of these pages for this call.
    if result.is_err() && !extent.is_empty() {
        ctx.with(|state| state.drop_unasked(node, extent));
    }
}

fn cuts(file: &File, size_bytes: u64) -> Change {
    let cut = |stripe| (stripe, Extent::new(file.layout.object_size(stripe, size_bytes), Extent::EOF));
    Change { parts: file.layout.stripes().map(cut).collect(), op: ExtentOp::Truncate, end: None }
}

/// With an `end_bytes` only where the file ends there.
async fn change_objects(
    ctx: &Ctx,
    file: &File,
    mut change: Change,
    lock_use: LockUse,
    mut end_bytes: Option<u64>,
) -> Outcome<()> {
    let (mut tries, mut let_go_count) = (0, 0);
    loop {
        let (hulls, left_count) = (change.hulls(), change.parts.len());
        be_writer(ctx, file.fid, file.through).await?;
        let locked = lock_hulls(ctx, file, LockMode::Pw, hulls.clone(), lock_use).await;
        let (pins, lock_count, result) = match locked {
            Ok(pins) if has_obstacle(ctx, file) => {
                unpin_all(ctx, pins);
                continue;
            }
            Ok(mut pins) => {
                let lock_count = pins.len();
                let hold = Hold::of_nothing_sent(lock_use, let_go_count);
                let asking = async {
                    write_out_pieces(ctx, file, hulls.clone()).await;
                    is_end_there(ctx, file, end_bytes).await
                };
                let asked = holding(ctx, hold, &mut pins, asking).await;
                let result = match asked {
                    _ if pins.len() < lock_count => Err(Status::LockLost),
                    Ok(true) => {
                        let sending = send_change(ctx, file, &mut change, pins.clone());
                        holding(ctx, Hold::of_change(lock_use), &mut pins, sending).await
                    }
                    result => result.map(drop),
                };
                (pins, lock_count, result)
            }
            Err(status) => (BTreeMap::new(), 0, Err(status)),
        };
        let has_let_go = pins.len() < lock_count;
        let may_be_again =
            result != Err(Status::Evicted) || !has_let_go && may_be_sent_again(ctx, &result, pins.values());
        let is_again = may_be_again && is_to_begin_anew(ctx, &result, &pins, has_let_go, tries);
        unpin_all(ctx, pins);
        if !is_again {
            return result;
        }
        // Nor does the file end where it did, once something was done.
        end_bytes = end_bytes.filter(|_| change.parts.len() == left_count);
        tries += u32::from(!has_let_go);
        let_go_count += u32::from(has_let_go);
    }
}

/// The whole file is locked, if there is an end to look for.
async fn is_end_there(ctx: &Ctx, file: &File, end_bytes: Option<u64>) -> Outcome<bool> {
    match end_bytes {
        Some(end_bytes) => Ok(object_size(ctx, file).await?.size_bytes == end_bytes),
        None => Ok(true),
    }
}

/// Everything, and then the end.
async fn send_change(ctx: &Ctx, file: &File, change: &mut Change, pins: BTreeMap<u32, Pin>) -> Outcome<()> {
    send_parts(ctx, file, &mut change.parts, change.op, &pins).await?;
    if let Some(end) = change.end {
        send_parts(ctx, file, &mut vec![end], ExtentOp::Allocate { keep_size: false }, &pins).await?;
    }
    Ok(())
}

/// What was answered is taken out of the `parts`: others may have seen it, and have written there since, so it is not done again.
///
/// # Errors
/// The first one; but that of a change of which nobody knows whether it was executed goes before all others.
async fn send_parts(
    ctx: &Ctx,
    file: &File,
    parts: &mut Vec<(u32, Extent)>,
    op: ExtentOp,
    pins: &BTreeMap<u32, Pin>,
) -> Outcome<()> {
    let stamp = ctx.with(|state| state.stamp(file.fid));
    let mut requests = Vec::with_capacity(parts.len());
    for (stripe, extent) in &*parts {
        let pin = *pins.get(stripe).ok_or(Status::Io)?;
        let object = file.layout.object(*stripe);
        let request = OstRequest::Change { object, extent: *extent, op, lock: pin.lock, stamp };
        let (ctx, fid) = (ctx.clone(), file.fid);
        requests.push(async move {
            let result = ctx.ost(pin.target, request, Bytes::new(), Kind::Modifying).await;
            note_answer(&ctx, fid, pin.target, &result);
            (pin.target, result)
        });
    }
    let results = join_all(requests).await;
    let mut of_parts = results.iter();
    parts.retain(|_| of_parts.next().is_none_or(|(_, result)| result.is_err()));
    let is_doubtful = results.iter().any(|(_, result)| matches!(result, Err(Status::Evicted)));
    let noted = note_results(ctx, file.fid, results);
    if is_doubtful { Err(Status::Evicted) } else { noted }
}

const FALLOC_KEEP_SIZE: u32 = 1;
const FALLOC_PUNCH_HOLE: u32 = 2;
const FALLOC_ZERO_RANGE: u32 = 16;

pub(crate) async fn fallocate(
    ctx: &Ctx,
    who: &Who,
    (node, fh): (u64, u64),
    offset_bytes: u64,
    byte_count: u64,
    mode: u32,
) -> Outcome<Answer> {
    let keep_size = mode & FALLOC_KEEP_SIZE != 0;
    let op = match mode & !FALLOC_KEEP_SIZE {
        0 => ExtentOp::Allocate { keep_size },
        FALLOC_PUNCH_HOLE if keep_size => ExtentOp::Punch,
        FALLOC_ZERO_RANGE => ExtentOp::Zero { keep_size },
        _ => return Err(Status::NotSupported),
    };
    let end =
        offset_bytes.checked_add(byte_count).filter(|end| *end <= i64::MAX as u64).ok_or(Status::TooBig)?;
    if byte_count == 0 {
        return Err(Status::Invalid);
    }
    ctx.with(|state| state.note_passing_is_over(node));
    let file = writable_file(ctx, node, Some(fh)).await?;
    check_end(&file.layout, end)?;
    truncate_privileges_for(ctx, who, file.fid, fh).await?;
    let extent = Extent::new(offset_bytes, end);
    let changing = async {
        change(ctx, &file, extent, op).await?;
        if !keep_size {
            ctx.with(|state| state.note_kernel_wrote(node, end));
        }
        sync_inode_change(ctx, who, file.fid).await
    };
    let result = changing.await;
    drop_what_was_changed(ctx, node, extent, &result);
    result.map(|()| Answer::Done)
}
