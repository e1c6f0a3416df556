//! Room that removed files still take on an OST.
//!
//! Their objects are destroyed when the removal is durable on the MDT, and an OST looks at its device only now and then. Who removes a file
//! and writes another one in its place would meet a full OST meanwhile. So a write that finds no room has the MDTs make durable what was
//! removed, and is tried again for a while; if that was in vain, those after it are refused at once for some time.

use crate::ctx::{Ctx, Outcome, Race, join_all};
use crate::state::{Connection, State};
use base::{Duration, Status, TargetId, TargetKind};
use bytes::Bytes;
use rpc::{ImportState, Kind};
use wire::{MdtRequest, Request};

/// Between two attempts. Together a little more than an OST takes to notice.
const WAITS_MS: [u64; 6] = [50, 100, 250, 600, 1000, 1000];
const MDT_PATIENCE: Duration = Duration::from_secs(1);
/// No write waits for room for so long after one has done so in vain.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// `write` again and again as long as there is no room.
pub(crate) async fn with_room<T, F: Future<Output = Outcome<T>>>(
    ctx: &Ctx,
    target: TargetId,
    write: impl Fn() -> F,
) -> Outcome<T> {
    let mut result = write().await;
    if !is_full(&result) || !ctx.with(|state| state.may_find_room(target)) {
        return result;
    }
    // Nobody waits for an MDT that is away.
    Race(Box::pin(make_removals_durable(ctx)), ctx.sleep(MDT_PATIENCE)).await;
    for wait_ms in WAITS_MS {
        ctx.sleep(Duration::from_millis(wait_ms)).await;
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

/// Whoever has removed it.
async fn make_removals_durable(ctx: &Ctx) {
    let mdts: Vec<TargetId> = ctx.with(|state| {
        let is_used =
            |connection: &Connection| connection.is_active && connection.import.state() != ImportState::Idle;
        let used = state.connections.iter().filter(|(_, connection)| is_used(connection));
        used.map(|(target, _)| *target).filter(|target| target.kind == TargetKind::Mdt).collect()
    });
    let ask = |target| ctx.request(target, Request::Mdt(MdtRequest::Sync), Bytes::new(), Kind::Plain);
    join_all(mdts.into_iter().map(ask).collect()).await;
}
