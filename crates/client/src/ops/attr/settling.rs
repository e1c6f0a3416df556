//! The MDT is told the size of a file that nobody writes any more: by the last who has written it, or by whoever looks at it when that one
//! has gone without a word.

use super::ask_inode;
use super::size::{FileSize, measure};
use crate::cache::{is_strict, may_kernel_believe};
use crate::ctx::{Ctx, Outcome};
use crate::ops::io::File;
use crate::reports::report_with_others;
use crate::state::State;
use base::{Attr, Duration, Epoch, Fid, Layout, Status};
use rpc::Kind;
use wire::mdt::{Entry, SizeReport};
use wire::session::features;

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
        let (objects, uncommitted) = measure(ctx, file).await?;
        if uncommitted.is_empty() {
            return Ok(FileSize::of(&file.layout, objects.into_iter()));
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
    let size = durable_size(ctx, &File::new(fid, layout)).await?;
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
            let size_before = node.attr().map(|attr| attr.size_bytes);
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
pub(super) fn settled_size(ctx: &Ctx, entry: &Entry) {
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
pub(super) fn look_again(ctx: &Ctx, attr: &Attr) {
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
        let Some(node) = self.nodes.by_fid_mut(fid).filter(|node| does_tell && node.data.writer_count == 0)
        else {
            return false;
        };
        let is_due = node.data.settling_asked_at.is_some_and(|asked_at| now.since(asked_at) >= LOOK_INTERVAL);
        if is_due || node.data.settling_asked_at.is_none() {
            node.data.settling_asked_at = Some(now);
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
        let node = self.nodes.by_fid_mut(fid).filter(|node| !node.data.is_settling)?;
        let since = match node.data.unsettled {
            Some((epoch, since)) if epoch == write_epoch => since,
            _ => node.data.unsettled.insert((write_epoch, now)).1,
        };
        if is_crowded || now.since(since) < SETTLE_PATIENCE {
            return None;
        }
        node.data.is_settling = true;
        self.settling_count += 1;
        Some(told)
    }

    fn end_settling(&mut self, fid: Fid) {
        self.settling_count -= 1;
        if let Some(node) = self.nodes.by_fid_mut(fid) {
            node.data.is_settling = false;
        }
    }
}
