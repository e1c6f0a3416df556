//! Reads over stripes: the pieces under their locks, put together as one file.

use super::*;
use crate::ahead::{Plan, REFUSAL, begin_ahead, begin_now, read_windowed};
use crate::ctx::join_all;
use crate::ends::{End, LATER, LATER_COUNT_MAX, ShortRead, drop_doubted};
use crate::locks::{Early, lock_and_read};
use crate::ops::attr::object_size;
use crate::pages::{PAGE_BYTES, take_in_stores};
use crate::push::Pushed;
use crate::whole::pass;
use bytes::BytesMut;

/// Reads up to `byte_count` bytes, fewer only at the end of the file.
pub(crate) async fn read(
    ctx: &Ctx,
    who: &Who,
    node: u64,
    offset_bytes: u64,
    byte_count: u32,
    is_direct: bool,
) -> Outcome<Answer> {
    let came = ctx.now().time;
    let extent = Extent::at(offset_bytes, u64::from(byte_count));
    let lock_use = if is_direct { LockUse::NoPages } else { LockUse::Pages(PageCallId(who.id)) };
    if let LockUse::Pages(call) = lock_use {
        match ctx.with(|state| state.pushed(node, extent)) {
            Pushed::Nothing => {}
            Pushed::Bytes(bytes) => return Ok(Answer::Bytes(read_pushed(ctx, who, node, extent, bytes))),
            Pushed::Part if u64::from(byte_count) > PAGE_BYTES => return Err(REFUSAL),
            Pushed::Part => {}
        }
        ctx.with(|state| state.begin_page_read(call, node, extent));
    }
    if is_direct {
        take_in_stores(ctx, node, extent).await;
    }
    let file = file(ctx, node).await?;
    let plan = match lock_use {
        LockUse::Pages(_) => ctx.with(|state| state.plan_read(&file, extent, who.caller.pid)),
        LockUse::NoPages | LockUse::WriteBack => Plan::Plain,
    };
    if matches!(plan, Plan::Refuse) {
        return Err(REFUSAL);
    }
    let mut tries = 0;
    let bytes = loop {
        let bytes = read_file(ctx, &file, extent, lock_use, &plan).await?;
        let LockUse::Pages(call) = lock_use else { break bytes };
        let read = ShortRead { came, extent, found_byte_count: bytes.len() as u64 };
        match ctx.with(|state| state.end_of_read(node, read)) {
            End::Refused => return Err(REFUSAL),
            End::Later if tries < LATER_COUNT_MAX => {
                tries += 1;
                ctx.with(|state| state.page_call_waits(call));
                ctx.sleep(LATER).await;
            }
            End::Doubted => {
                drop_doubted(ctx, node, extent);
                break bytes;
            }
            End::Believed | End::Later => break bytes,
        }
    };
    ctx.with(|state| state.stats.read_bytes.add(bytes.len() as u64));
    Ok(Answer::Bytes(bytes))
}

/// What a READ is answered with whose pages are being pushed; and what comes after it.
fn read_pushed(ctx: &Ctx, who: &Who, node: u64, extent: Extent, bytes: Bytes) -> Bytes {
    let file = ctx.with(|state| {
        let node = state.nodes.get(node)?;
        Some(File::new(node.fid(), node.layout().cloned()?))
    });
    if let Some(file) = file
        && let Plan::Windowed { now, ahead, is_for_push } =
            ctx.with(|state| state.plan_read(&file, extent, who.caller.pid))
    {
        begin_ahead(ctx, &file, now, &ahead, is_for_push);
    }
    ctx.with(|state| state.stats.read_bytes.add(bytes.len() as u64));
    bytes
}

/// With pages the bytes go into the kernel's page cache, which lives under the lock.
pub(crate) async fn read_file(
    ctx: &Ctx,
    file: &File,
    extent: Extent,
    lock_use: LockUse,
    plan: &Plan,
) -> Outcome<Bytes> {
    // There is nothing behind the last component, not even zeros.
    let extent = extent.intersection(Extent::new(0, file.layout.end_bytes()));
    if extent.is_empty() {
        return Ok(Bytes::new());
    }
    let pieces = file.layout.pieces(extent);
    let mode_now = || match lock_use {
        LockUse::Pages(_) => ctx.with(|state| state.read_mode(file.fid)),
        LockUse::NoPages | LockUse::WriteBack => LockMode::Pr,
    };
    let (mut tries, mut let_go_count) = (0, 0);
    let mut is_end_first = false;
    loop {
        let mode = mode_now();
        let locking = async {
            match is_end_first {
                true => lock_pieces(ctx, file, mode, &pieces, lock_use).await.map(|pins| (pins, None)),
                false => lock_for_read(ctx, file, mode, &pieces, lock_use, plan).await,
            }
        };
        let (pins, early) = match locking.await {
            Ok((pins, _)) if mode == LockMode::Pr && mode_now() == LockMode::Pw => {
                // Somebody has begun to write through the page cache.
                unpin_all(ctx, pins);
                continue;
            }
            Ok(locked) => locked,
            Err(status) if is_worth_another_try(ctx, status, &BTreeMap::new(), tries) => {
                tries += 1;
                continue;
            }
            Err(status) => return Err(status),
        };
        moves(ctx, lock_use);
        if let Some(bytes) = ctx.with(|state| state.opened_bytes(file, extent, &pieces, &pins)) {
            unpin_all(ctx, pins);
            return Ok(bytes);
        }
        let reading = read_locked(ctx, file, extent, plan, (&pieces, &pins), early, is_end_first);
        let mut kept = pins.clone();
        let result = match file.layout.stripe_count() {
            // Whom it waits for is who its lock is of.
            0 | 1 => reading.await,
            _ => holding(ctx, Hold::of_nothing_sent(lock_use, let_go_count), &mut kept, reading).await,
        };
        let has_let_go = kept.len() < pins.len();
        let is_again = match &result {
            Ok(read) => has_let_go || read.is_overtaken && tries < TRY_COUNT_MAX,
            Err(Status::LockLost) if has_let_go => true,
            Err(status) => is_worth_another_try(ctx, *status, &kept, tries),
        };
        unpin_all(ctx, kept);
        if !is_again {
            return result.map(|read| read.bytes);
        }
        // Calls for pages that wait for an end held up other mounts' (`pages::two_mounts_with_caches_…`).
        is_end_first = lock_use == LockUse::NoPages && result.is_ok_and(|read| read.is_overtaken);
        match has_let_go {
            true => let_go_count += 1,
            false => tries += 1,
        }
    }
}

/// The same for a read. The bytes of a single piece may come with its lock; not with one that changes are made under, which are noted.
async fn lock_for_read(
    ctx: &Ctx,
    file: &File,
    mode: LockMode,
    pieces: &[Piece],
    lock_use: LockUse,
    plan: &Plan,
) -> Outcome<(BTreeMap<u32, Pin>, Option<Early>)> {
    let ([piece], LockMode::Pr) = (pieces, mode) else {
        return lock_pieces(ctx, file, mode, pieces, lock_use).await.map(|pins| (pins, None));
    };
    let object = (file.target(piece.stripe)?, file.layout.object(piece.stripe));
    let read = plan.read_with_lock(file, piece);
    let (pin, early) = lock_and_read(ctx, object, mode, piece.object_extent, lock_use, read).await?;
    Ok((BTreeMap::from([(piece.stripe, pin)]), early))
}

async fn read_locked(
    ctx: &Ctx,
    file: &File,
    extent: Extent,
    plan: &Plan,
    (pieces, pins): (&[Piece], &BTreeMap<u32, Pin>),
    early: Option<Early>,
    is_end_first: bool,
) -> Outcome<Assembled> {
    // Whatever made the file as long as that has been executed before the bytes are read, or is on its way from here and passes first.
    let end_before = match is_end_first {
        true => Some(object_size(ctx, file).await?.size_bytes),
        false => None,
    };
    let end_here = match early {
        Some(_) => 0,
        None => {
            // Of what is here now the part that is read is written first. Where the rest ends no answer may tell in time.
            let end_here = ctx.with(|state| state.dirty.end_of(&file.layout));
            write_out_pieces(ctx, file, extents_of(pieces)).await;
            end_here
        }
    };
    let is_windowed = matches!(plan, Plan::Windowed { .. });
    let is_long = pieces.len() > 1;
    let reading = async {
        if is_long {
            // What was kept back in several parts since then; more is not from now on.
            write_out_pieces(ctx, file, extents_of(pieces)).await;
        }
        if let Plan::Windowed { now, ahead, is_for_push } = plan
            && early.is_none()
        {
            begin_now(ctx, file, *now, pins);
            begin_ahead(ctx, file, *now, ahead, *is_for_push);
        }
        let ends = Ends { here: end_here, before: end_before };
        read_pieces(ctx, file, extent, (pieces, pins), early, (ends, is_windowed)).await
    };
    pass(ctx, Movement { fid: file.fid, extent, is_write: false, is_long }, reading).await
}

/// What a read has come to.
struct Assembled {
    bytes: Bytes,
    /// The end of the file was asked for after its bytes, and this client has changed data meanwhile, or is about to: the end may be a
    /// write's whose bytes are not here. Or it was asked for before, and there are zeros in front of it where a cut may have been.
    is_overtaken: bool,
}

/// What is known of the file's end before its bytes come.
#[derive(Clone, Copy)]
struct Ends {
    /// Of what was still here, and not in an object.
    here: u64,
    /// Of the file, where it was asked for.
    before: Option<u64>,
}

async fn read_pieces(
    ctx: &Ctx,
    file: &File,
    extent: Extent,
    (pieces, pins): (&[Piece], &BTreeMap<u32, Pin>),
    early: Option<Early>,
    (ends, is_windowed): (Ends, bool),
) -> Outcome<Assembled> {
    let changed_at = || ctx.with(|state| state.data_changed_at(file.fid));
    let before = early.as_ref().map_or_else(changed_at, |early| Some(early.data_changed_at));
    let mut parts = Vec::with_capacity(pieces.len());
    if let (Some(early), [piece]) = (early, pieces) {
        let pin = *pins.get(&piece.stripe).ok_or(Status::Io)?;
        parts.push(early.part(piece.object_extent));
        let object = file.layout.object(piece.stripe);
        ctx.with(|state| {
            if is_windowed {
                state.ahead.note_missed(piece.object_extent);
            }
            state.keep_early(object, pin, early, piece.object_extent);
        });
    } else {
        let mut reads = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let pin = *pins.get(&piece.stripe).ok_or(Status::Io)?;
            reads.push(read_piece(ctx, file, piece, pin, is_windowed));
        }
        for (result, piece) in join_all(reads).await.into_iter().zip(pieces) {
            let data = result?;
            if data.len() as u64 > piece.object_extent.byte_count() {
                return Err(Status::ProtocolError);
            }
            parts.push(data);
        }
    }
    if let [only] = &mut parts[..]
        && only.len() as u64 == extent.byte_count()
    {
        return Ok(Assembled { bytes: std::mem::take(only), is_overtaken: false });
    }
    let is_single = file.layout.stripe_count() == 1;
    let end_of_parts = end_of_parts(pieces, &parts);
    let bytes = assemble(ctx, file, extent, (pieces, parts), ends).await?;
    // A write that is still on its way may have been executed between the bytes and the end, which then is behind them.
    let has_zeros_at_end = extent.start + bytes.len() as u64 > end_of_parts;
    let is_being_written = || ctx.with(|state| state.passages.is_being_written(file.fid, extent));
    let has_changed = changed_at() != before;
    let is_overtaken = match ends.before {
        Some(_) => has_zeros_at_end && (has_changed || is_being_written()),
        None => has_changed || has_zeros_at_end && is_being_written(),
    };
    Ok(Assembled { bytes, is_overtaken: !is_single && is_overtaken })
}

async fn read_piece(ctx: &Ctx, file: &File, piece: &Piece, pin: Pin, is_windowed: bool) -> Outcome<Bytes> {
    if is_windowed && let Some(bytes) = read_windowed(ctx, file, piece, pin).await {
        return Ok(bytes);
    }
    let object = file.layout.object(piece.stripe);
    let request = OstRequest::Read { object, extent: piece.object_extent, lock: Some(pin.lock) };
    let (_, data, _) = ctx.ost(pin.target, request, Bytes::new(), Kind::Plain).await?;
    Ok(data)
}

/// Puts the parts together; what an object does not have is zeros up to the file's end.
async fn assemble(
    ctx: &Ctx,
    file: &File,
    extent: Extent,
    (pieces, mut parts): (&[Piece], Vec<Bytes>),
    ends: Ends,
) -> Outcome<Bytes> {
    let is_single = file.layout.stripe_count() == 1;
    if is_single && parts.len() == 1 {
        // One object: its end was the file's end, if none was still here.
        let part = parts.remove(0);
        let byte_count = ends.here.min(extent.end).saturating_sub(extent.start) as usize;
        if byte_count <= part.len() {
            return Ok(part);
        }
        let mut bytes = BytesMut::zeroed(byte_count);
        bytes[..part.len()].copy_from_slice(&part);
        return Ok(bytes.freeze());
    }
    let is_short =
        parts.iter().zip(pieces).any(|(data, piece)| (data.len() as u64) < piece.object_extent.byte_count());
    let end = match is_short {
        true => match (ends.before, ctx.with(|state| state.cached_attr(file.fid))) {
            (Some(end), _) if end_of_parts(pieces, &parts) >= end.min(extent.end) => end,
            // A hole, or this mount has cut the file since: cuts wait for no read that passes.
            (Some(end), _) => end.min(object_size(ctx, file).await?.size_bytes),
            // Nobody writes it.
            (None, Some(attr)) => attr.size_bytes,
            (None, None) => object_size(ctx, file).await?.size_bytes,
        }
        .min(extent.end),
        false => extent.end,
    };
    let byte_count = end.saturating_sub(extent.start) as usize;
    let mut bytes = BytesMut::zeroed(byte_count);
    for (data, piece) in parts.iter().zip(pieces) {
        let at = (piece.file_offset_bytes - extent.start) as usize;
        let room = byte_count.saturating_sub(at).min(data.len());
        if room > 0 {
            bytes[at..at + room].copy_from_slice(&data[..room]);
        }
    }
    Ok(bytes.freeze())
}

/// Of the last byte that came.
fn end_of_parts(pieces: &[Piece], parts: &[Bytes]) -> u64 {
    let ends = pieces.iter().zip(parts).filter(|(_, part)| !part.is_empty());
    ends.map(|(piece, part)| piece.file_offset_bytes + part.len() as u64).max().unwrap_or(0)
}
