//! Advice about file data, handed on to the OSTs that have them.

use crate::ahead::by_object;
use crate::call::Answer;
use crate::ctx::{Ctx, Outcome, Who};
use crate::ops::attr::current_attr;
use crate::ops::io::file;
use base::{Advice, Extent, limits};
use bytes::Bytes;
use rpc::Kind;
use wire::OstRequest;

/// Tells the OSTs, one request after the other: advice is never worth a queue. What is behind the end is left out, and so is what comes after
/// the caller was killed: of a large file with holes it may be a million requests.
pub(crate) async fn advise(
    ctx: &Ctx,
    who: &Who,
    node: u64,
    extent: Extent,
    advice: Advice,
) -> Outcome<Answer> {
    let file = file(ctx, node).await?;
    let size_bytes = current_attr(ctx, file.fid).await?.size_bytes;
    let extent = extent.intersection(Extent::new(0, size_bytes));
    let mut start = extent.start;
    while start < extent.end && ctx.with(|state| state.is_unanswered(who.id)) {
        let end = extent.end.min(start.saturating_add(limits::ADVICE_BYTES_MAX));
        for (stripe, extent) in by_object(&file, Extent::new(start, end)) {
            let (target, object) = (file.target(stripe)?, file.layout.object(stripe));
            let request = OstRequest::Advise { object, extent, advice };
            ctx.ost(target, request, Bytes::new(), Kind::Plain).await?;
        }
        start = end;
    }
    Ok(Answer::Done)
}
