//! Reads and writes of one mount see each other whole, also where they go over several objects. Locks keep other clients out, but a
//! client's own never conflict with each other, and such a write takes its objects one after the other.
//!
//! Who moves data of a file passes through here while it has its locks, and waits for those that came before and must not be met
//! in their middle. Nobody waits for a lock in here, so those before him end.
//!
//! What is kept back does not pass: the parts of such a write go when they are asked for or get old. So who has a turn sends what there is of
//! his own range first, and until he ends no write of several pieces is kept back there.

use crate::ctx::Ctx;
use crate::executor::{Receiver, Sender, oneshot};
use crate::in_hand::{Hold, holding};
use crate::locks::Pin;
use base::{Extent, Fid};
use std::collections::BTreeMap;

struct Passage {
    number: u64,
    extent: Extent,
    is_write: bool,
    /// Of several pieces. Those of one are whole anyway.
    is_long: bool,
    /// It gets its lock with its answer: nobody who has locks may wait for it.
    is_asking: bool,
    /// Woken, by being dropped, at its end.
    waiters: Vec<Sender<()>>,
}

impl Passage {
    fn excludes(&self, other: &Passage) -> bool {
        let is_seen_in_parts = self.is_write && self.is_long || other.is_write && other.is_long;
        let have_locks = !self.is_asking && !other.is_asking;
        is_seen_in_parts && have_locks && self.extent.overlaps(other.extent)
    }
}

/// In the order in which they came, by file.
#[derive(Default)]
pub(crate) struct Passages {
    by_file: BTreeMap<Fid, Vec<Passage>>,
    last_number: u64,
}

impl Passages {
    fn enter(&mut self, Movement { fid, extent, is_write, is_long }: Movement, is_asking: bool) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        let passage = Passage { number, extent, is_write, is_long, is_asking, waiters: Vec::new() };
        self.by_file.entry(fid).or_default().push(passage);
        number
    }

    /// Whether a write to some of this is on its way, which a read may meet before or after it.
    pub(crate) fn is_being_written(&self, fid: Fid, extent: Extent) -> bool {
        let passages = self.by_file.get(&fid).into_iter().flatten();
        passages.filter(|passage| passage.is_write).any(|passage| passage.extent.overlaps(extent))
    }

    /// Whether somebody moves some of this in several pieces, or waits for his turn to do so.
    pub(crate) fn has_long(&self, fid: Fid, extent: Extent) -> bool {
        let passages = self.by_file.get(&fid).into_iter().flatten();
        passages.filter(|passage| passage.is_long).any(|passage| passage.extent.overlaps(extent))
    }

    /// The end of one that came before and is in the way.
    fn obstacle(&mut self, fid: Fid, number: u64) -> Option<Receiver<()>> {
        let passages = self.by_file.get_mut(&fid)?;
        let own = passages.iter().position(|passage| passage.number == number)?;
        let (before, from_own) = passages.split_at_mut(own);
        let own = from_own.first()?;
        let (sender, receiver) = oneshot();
        before.iter_mut().find(|passage| passage.excludes(own))?.waiters.push(sender);
        Some(receiver)
    }

    fn leave(&mut self, fid: Fid, number: u64) {
        if let Some(passages) = self.by_file.get_mut(&fid) {
            passages.retain(|passage| passage.number != number);
            if passages.is_empty() {
                self.by_file.remove(&fid);
            }
        }
    }
}

/// What somebody moves who has the locks for it.
#[derive(Clone, Copy)]
pub(crate) struct Movement {
    pub(crate) fid: Fid,
    pub(crate) extent: Extent,
    pub(crate) is_write: bool,
    /// Over several pieces.
    pub(crate) is_long: bool,
}

/// Moves data when none are in their way.
pub(crate) async fn pass<T>(ctx: &Ctx, movement: Movement, moving: impl Future<Output = T>) -> T {
    let fid = movement.fid;
    let number = ctx.with(|state| state.passages.enter(movement, false));
    wait_for_those_before(ctx, fid, number).await;
    let result = moving.await;
    ctx.with(|state| state.passages.leave(fid, number));
    result
}

/// Somebody who moves data, from when nobody is in his way.
pub(crate) struct Begun {
    fid: Fid,
    number: u64,
}

/// Returns when nobody is in the way; locks that others want for long are let go meanwhile, and are not among the `pins` any more. To be
/// ended by `end_passage`.
pub(crate) async fn begin_passage(
    ctx: &Ctx,
    movement: Movement,
    hold: Hold,
    pins: &mut BTreeMap<u32, Pin>,
) -> Begun {
    let fid = movement.fid;
    let number = ctx.with(|state| state.passages.enter(movement, false));
    holding(ctx, hold, pins, wait_for_those_before(ctx, fid, number)).await;
    Begun { fid, number }
}

pub(crate) fn end_passage(ctx: &Ctx, Begun { fid, number }: Begun) {
    ctx.with(|state| state.passages.leave(fid, number));
}

async fn wait_for_those_before(ctx: &Ctx, fid: Fid, number: u64) {
    while let Some(ahead) = ctx.with(|state| state.passages.obstacle(fid, number)) {
        ahead.await;
    }
}

/// Moves data that wait for nobody in here, and for whom nobody waits.
pub(crate) async fn pass_asking<T>(ctx: &Ctx, movement: Movement, moving: impl Future<Output = T>) -> T {
    let number = ctx.with(|state| state.passages.enter(movement, true));
    let result = moving.await;
    ctx.with(|state| state.passages.leave(movement.fid, number));
    result
}
