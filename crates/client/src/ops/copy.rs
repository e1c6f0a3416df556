//! copy_file_range(2): the data go through the client.

use crate::ahead::Plan;
use crate::call::Answer;
use crate::ctx::{Ctx, Outcome, Who};
use crate::locks::LockUse;
use crate::operator::SyncRule;
use crate::ops::attr::truncate_privileges_for;
use crate::ops::change::drop_what_was_changed;
use crate::ops::flock::reading;
use crate::ops::io::{file, read_file, writable_file, write_file};
use crate::ops::sync::sync_inode_change;
use base::Extent;

/// Bytes that one copy_file_range(2) copies at most; the caller asks again for more.
pub(crate) const COPY_BYTES_MAX: u64 = 16 << 20;
const COPY_STEP_BYTES: u64 = 1 << 20;

/// Where a copy goes from or to.
#[derive(Clone, Copy)]
pub(crate) struct CopyEnd {
    pub(crate) node: u64,
    pub(crate) fh: u64,
    pub(crate) offset_bytes: u64,
}

pub(crate) async fn copy_range(
    ctx: &Ctx,
    who: &Who,
    from: CopyEnd,
    to: CopyEnd,
    byte_count: u64,
) -> Outcome<Answer> {
    ctx.with(|state| state.note_passing_is_over(to.node));
    let source = file(ctx, from.node).await?;
    let sink = writable_file(ctx, to.node, Some(to.fh)).await?;
    let may_wait = ctx.with(|state| state.sync_rule < SyncRule::All);
    let mut copied = 0;
    while copied < byte_count.min(COPY_BYTES_MAX) {
        let step = (byte_count - copied).min(COPY_STEP_BYTES);
        let extent = Extent::at(from.offset_bytes.saturating_add(copied), step);
        let read = read_file(ctx, &source, extent, LockUse::NoPages, &Plan::Plain);
        let data = match reading(ctx, from.fh, read).await {
            Ok(data) if data.is_empty() => break,
            Ok(data) => data,
            Err(_) if copied > 0 => break,
            Err(status) => return Err(status),
        };
        if copied == 0 {
            truncate_privileges_for(ctx, who, sink.fid, to.fh).await?;
        }
        let read = data.len() as u64;
        let at = to.offset_bytes.saturating_add(copied);
        let result = write_file(ctx, &sink, (at, data), LockUse::NoPages, None, may_wait).await;
        drop_what_was_changed(ctx, to.node, Extent::at(at, read), &result);
        match result {
            Ok(written) if written < read => {
                copied += written;
                break;
            }
            Ok(_) => copied += read,
            Err(_) if copied > 0 => break,
            Err(status) => return Err(status),
        }
        if read < step {
            break;
        }
    }
    ctx.with(|state| state.note_kernel_wrote(to.node, to.offset_bytes.saturating_add(copied)));
    let synced = sync_inode_change(ctx, who, sink.fid).await;
    drop_what_was_changed(ctx, to.node, Extent::at(to.offset_bytes, copied), &synced);
    synced.map(|()| Answer::Written(copied))
}
