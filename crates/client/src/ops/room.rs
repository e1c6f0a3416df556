//! Room that removed files still take on an OST.
//!
//! Their objects are destroyed when the removal is durable on the MDT, and an OST looks at its device only now and then. Who removes a file
//! and writes another one in its place would meet a full OST meanwhile. So a write that finds no room has the MDTs make durable what was
//! removed, and is tried again for a while; if that was in vain, those after it are refused at once for some time.

use crate::ctx::{Ctx, Outcome, join_all};
use crate::state::{Connection, State};
use base::{Duration, Fid, Status, TargetId, TargetKind};
use bytes::Bytes;
use rpc::{ImportState, Kind};
use wire::{MdtRequest, Request};

/// Between two attempts. Together a little more than an OST takes to notice.
const WAITS_MS: [u64; 6] = [50, 100, 250, 600, 1000, 1000];
/// No write waits for room for so long after one has done so in vain.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// `write` again and again as long as there is no room, and the MDT knows that this client writes the file.
pub(crate) async fn with_room<T, F: Future<Output = Outcome<T>>>(
    ctx: &Ctx,
    fid: Fid,
    target: TargetId,
    write: impl Fn() -> F,
) -> Outcome<T> {
    let mut result = write().await;
    if !is_full(&result) || !ctx.with(|state| state.may_find_room(target)) {
        return result;
    }
    make_removals_durable(ctx);
    for wait_ms in WAITS_MS {
        ctx.sleep(Duration::from_millis(wait_ms)).await;
        if ctx.with(|state| state.obstacle_to_write(fid).is_some()) {
            return result;
        }
        result = write().await;
        if !is_full(&result) {
            return result;
        }
    }
    ctx.with(|state| state.full_since.insert(target, state.now.time));
    result
}

fn is_full<T>(result: &Outcome<T>) -> bool {
    matches!(result, Err(Status::NoSpace))
}

impl State {
    fn may_find_room(&self, target: TargetId) -> bool {
        self.full_since.get(&target).is_none_or(|at| at.after(RETRY_INTERVAL) <= self.now.time)
    }
}

/// Whoever has removed it. Nobody waits for that: an MDT may be away.
fn make_removals_durable(ctx: &Ctx) {
    let mdts = ctx.with(|state| {
        if state.is_making_room {
            return Vec::new();
        }
        let is_heard = |connection: &Connection| {
            connection.is_active && connection.import.state() == ImportState::Active
        };
        let heard = state.connections.iter().filter(|(_, connection)| is_heard(connection));
        let mdts = heard.map(|(target, _)| *target).filter(|target| target.kind == TargetKind::Mdt);
        let mdts: Vec<TargetId> = mdts.collect();
        state.is_making_room = !mdts.is_empty();
        mdts
    });
    if mdts.is_empty() {
        return;
    }
    let later = ctx.clone();
    ctx.spawn(async move {
        let ask = |target| later.request(target, Request::Mdt(MdtRequest::Sync), Bytes::new(), Kind::Plain);
        join_all(mdts.into_iter().map(ask).collect()).await;
        later.with(|state| state.is_making_room = false);
    });
}
