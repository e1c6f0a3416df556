//! The cut that follows a failed write.
//!
//! An asynchronous write past the page cache that made the file longer and has failed, in part or whole, the kernel undoes: it sends a SETATTR
//! that cuts the file back to what it takes for its size (`fuse_direct_IO`, `fuse_do_truncate`). What others have appended meanwhile, or
//! before, and it has not heard of, would go with that. So such a cut takes away what the write itself has left at the end of the file,
//! and nothing else.
//!
//! Nothing tells it from an ftruncate(2) through the same handle, but this: it comes before anything else for which the kernel locks the
//! inode, and to the size that the kernel took the file for when the write began, if that was to make the file longer. An ftruncate(2) to just that size, right after a failed write, does the
//! same.

use crate::call::{Answer, SetattrCall};
use crate::ctx::{Ctx, Outcome, Who};
use crate::ops::attr::{current_attr, file_layout, truncate_privileges};
use crate::ops::change::cut_end;
use crate::ops::io::File;
use crate::state::State;
use base::{Extent, Fid};
use std::collections::{BTreeMap, VecDeque};

/// Extents that are known of what was written before another piece failed. Pieces of one write follow each other, and are one.
const WRITTEN_COUNT_MAX: usize = 64;

/// What was written.
#[derive(Clone, Copy)]
struct Piece {
    /// Where the kernel has it.
    kernel: Extent,
    file: Extent,
}

/// Writes to a file past the page cache that were unanswered together.
#[derive(Default)]
struct Passing {
    unanswered_count: u32,
    written: VecDeque<Piece>,
    /// What the kernel may have taken for the size when the first of them came.
    sizes: Vec<u64>,
    /// Where the last of what was to be written ends, as the kernel counts.
    end: u64,
    /// They begin at the kernel's size.
    is_append: bool,
    /// The handle.
    failed: Option<u64>,
}

impl Passing {
    fn note_written(&mut self, piece: Piece) {
        if piece.file.is_empty() {
            return;
        }
        if let Some(last) = self.written.back_mut()
            && last.kernel.end == piece.kernel.start
            && last.file.end == piece.file.start
        {
            last.kernel.end = piece.kernel.end;
            last.file.end = piece.file.end;
            return;
        }
        if self.written.len() >= WRITTEN_COUNT_MAX {
            self.written.pop_front();
        }
        self.written.push_back(piece);
    }

    /// What was written behind the kernel's size, as far as it is without a gap at its end.
    fn behind(&self, size_bytes: u64) -> Option<Extent> {
        let part = |piece: &Piece| {
            let skip = size_bytes.saturating_sub(piece.kernel.start);
            let file = Extent::new(piece.file.start.saturating_add(skip), piece.file.end);
            (piece.kernel.end > size_bytes).then_some(file)
        };
        let mut parts: Vec<Extent> = self.written.iter().filter_map(part).collect();
        parts.sort_by_key(|part| part.start);
        parts.into_iter().reduce(|own, next| match own.end == next.start {
            true => Extent::new(own.start, next.end),
            false => next,
        })
    }
}

impl Passing {
    /// Whether the kernel's size was less than what it wrote up to, whichever of `sizes` that was. If it sends no cut, an ftruncate(2) must not
    /// be taken for one.
    fn made_longer(&self) -> bool {
        self.is_append || self.sizes.iter().all(|size_bytes| *size_bytes < self.end)
    }

    /// The cut that this is, if it is the kernel's own after a write through the handle `failed`; `possible` is what the kernel may take for
    /// the size now.
    fn cut_after_failure(&self, failed: u64, call: &SetattrCall, possible: &[u64]) -> Option<Cut> {
        let (fh, size_bytes) = (call.fh?, call.size_bytes?);
        let kills_privileges = call.kill_privileges;
        let bare = SetattrCall {
            fh: call.fh,
            size_bytes: call.size_bytes,
            kill_privileges: kills_privileges,
            ..SetattrCall::default()
        };
        let is_size = self.sizes.contains(&size_bytes) || possible.contains(&size_bytes);
        let is_own = *call == bare && fh == failed && size_bytes < self.end && is_size && self.made_longer();
        is_own.then(|| Cut { fh, own: self.behind(size_bytes), kills_privileges })
    }
}

/// By node.
#[derive(Default)]
pub(crate) struct PassingWrites(BTreeMap<u64, Passing>);

impl State {
    /// A write past the page cache has come.
    pub(crate) fn begin_passing_write(&mut self, node: u64, extent: Extent, is_append: bool) {
        let sizes = self.nodes.get(node).map(|known| known.kernel_size.possible().to_vec());
        let passing = self.passing_writes.0.entry(node).or_default();
        if passing.unanswered_count == 0 {
            *passing = Passing { sizes: sizes.unwrap_or_default(), is_append, ..Passing::default() };
        }
        passing.end = passing.end.max(extent.end);
        passing.is_append &= is_append;
        passing.unanswered_count += 1;
    }

    /// It is about to be answered. `extent` is what the kernel means, `outcome` where it is.
    pub(crate) fn end_passing_write(
        &mut self,
        (node, fh): (u64, u64),
        extent: Extent,
        outcome: Outcome<Extent>,
    ) {
        let Some(passing) = self.passing_writes.0.get_mut(&node) else { return };
        passing.unanswered_count = passing.unanswered_count.saturating_sub(1);
        let written_bytes = outcome.map_or(0, |written| written.byte_count());
        if let Ok(file) = outcome {
            passing.note_written(Piece { kernel: Extent::at(extent.start, written_bytes), file });
        }
        if written_bytes < extent.byte_count() {
            passing.failed = Some(fh);
        }
        if passing.unanswered_count == 0 && passing.failed.is_none() {
            self.passing_writes.0.remove(&node);
        }
    }

    /// A handle goes, and with it what it has failed to do.
    pub(crate) fn forget_passing_writes(&mut self, node: u64, fh: u64) {
        let passing = self.passing_writes.0.get(&node);
        if passing.is_some_and(|passing| passing.unanswered_count == 0 && passing.failed == Some(fh)) {
            self.passing_writes.0.remove(&node);
        }
    }

    /// Something else has come for which the kernel locks the inode: a cut of its own would have come before, as would all pieces of an append.
    pub(crate) fn note_passing_is_over(&mut self, node: u64) {
        if let Some(passing) = self.passing_writes.0.get_mut(&node) {
            passing.failed = None;
            if passing.unanswered_count == 0 {
                self.passing_writes.0.remove(&node);
            }
        }
        if let Some(fid) = self.nodes.get(node).map(|known| known.fid()) {
            self.note_no_append_is_late(fid);
        }
    }

    /// A SETATTR has come: what it takes away at most, if it is the kernel's own after a failed write.
    pub(crate) fn take_cut_after_failure(&mut self, node: u64, call: &SetattrCall) -> Option<Cut> {
        let possible = self.nodes.get(node).map(|known| known.kernel_size.possible().to_vec());
        let passing = self.passing_writes.0.get(&node);
        let cut = passing.and_then(|passing| {
            passing.cut_after_failure(passing.failed?, call, &possible.unwrap_or_default())
        });
        // Whatever it is, the kernel's would have come before.
        self.note_passing_is_over(node);
        cut
    }
}

/// What the kernel wants to undo.
pub(crate) struct Cut {
    fh: u64,
    /// What the failed write has left behind that.
    own: Option<Extent>,
    kills_privileges: bool,
}

/// Takes back what a failed write has left at the end of a file, if it is still there.
pub(crate) async fn cut_back(ctx: &Ctx, who: &Who, fid: Fid, cut: Cut) -> Outcome<Answer> {
    if cut.kills_privileges {
        truncate_privileges(ctx, who, fid, cut.fh).await?;
    }
    if let Some(own) = cut.own {
        let layout = file_layout(ctx, fid).await?;
        cut_end(ctx, &File::new(fid, layout), own.start, own.end).await?;
    }
    super::sync::sync_inode_change(ctx, who, fid).await?;
    let attr = current_attr(ctx, fid).await?;
    Ok(Answer::Attr(ctx.with(|state| state.setattr_answer(attr))))
}
