//! Where data and holes of a file are.

use crate::call::Answer;
use crate::ctx::{Ctx, Outcome};
use crate::ops::attr::{current_attr, object_size};
use crate::ops::io::file;
use crate::pages::{drop_pages, pages_of};
use base::{Extent, Status};
use bytes::Bytes;
use rpc::Kind;
use wire::{OstReply, OstRequest};

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// What was stored into a mapping the kernel alone has, and says nothing of it; it writes it back when it is told to drop it. Other mounts' mappings
/// give theirs up for the lock that an OST claims for the question.
async fn write_back_stored(ctx: &Ctx, node: u64, offset_bytes: u64) {
    let stored = ctx.with(|state| {
        let has_writer = state.nodes.get(node).is_some_and(|node| node.data.cached_writer_count > 0);
        has_writer.then(|| state.pages_within(node, pages_of(Extent::new(offset_bytes, Extent::EOF))))
    });
    if let Some(stored) = stored {
        drop_pages(ctx, node, stored).await;
    }
}

/// SEEK_DATA and SEEK_HOLE: each object says where its next one is; the nearest in the file counts.
pub(crate) async fn seek(ctx: &Ctx, node: u64, offset_bytes: u64, whence: u32) -> Outcome<Answer> {
    let is_hole = match whence {
        SEEK_DATA => false,
        SEEK_HOLE => true,
        _ => return Err(Status::Invalid),
    };
    let file = file(ctx, node).await?;
    write_back_stored(ctx, node, offset_bytes).await;
    let size_bytes = object_size(ctx, &file).await?.size_bytes;
    let known = current_attr(ctx, file.fid).await?.size_bytes;
    let size_bytes = size_bytes.max(known);
    if offset_bytes >= size_bytes {
        return Err(Status::NoDevice);
    }
    let mut nearest = is_hole.then_some(size_bytes);
    for stripe in file.layout.stripes().filter_map(|stripe| file.layout.stripe(stripe)) {
        let from = stripe.object_offset_at(offset_bytes);
        if stripe.file_offset(from) >= stripe.file_extent.end {
            continue;
        }
        let request = OstRequest::Seek { object: stripe.object, offset_bytes: from, is_hole };
        let (reply, _, _) =
            ctx.ost(stripe.target().ok_or(Status::Stale)?, request, Bytes::new(), Kind::Plain).await?;
        let found = match reply {
            Some(OstReply::Seek { offset_bytes }) => offset_bytes,
            _ => return Err(Status::ProtocolError),
        };
        // An object that ends before `from` has a hole there.
        let found = if is_hole { Some(found.unwrap_or(from).max(from)) } else { found };
        // The end of an object that is full is no hole: there the next component begins.
        let in_file = found.map(|found| stripe.file_offset(found));
        if let Some(in_file) = in_file.filter(|in_file| *in_file < stripe.file_extent.end) {
            let in_file = in_file.max(offset_bytes);
            nearest = Some(nearest.map_or(in_file, |known| known.min(in_file)));
        }
    }
    match nearest {
        Some(offset) if offset < size_bytes || is_hole => Ok(Answer::Offset(offset.min(size_bytes))),
        _ => Err(Status::NoDevice),
    }
}
