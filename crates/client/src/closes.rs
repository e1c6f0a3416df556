//! Handles that were only read through and are released, and that their MDT still counts as open: it is told with a later open, or
//! of many at once. Nobody minds while this client holds `bits::OPEN` of the inode: who wants to write the file, or takes its last
//! name, has that lock back first, and with it goes the close.

use crate::ctx::{Ctx, mdt_of};
use crate::handles::Handle;
use crate::state::State;
use base::{Duration, Fid, OpenHandle, TargetId};
use bytes::Bytes;
use rpc::Kind;
use std::collections::BTreeMap;
use wire::lock::bits;
use wire::mdt::CLOSES_MAX;
use wire::{MdtRequest, Request};

/// How long a close waits for an open that takes it along.
const CLOSE_INTERVAL: Duration = Duration::from_millis(1000);
/// So many go by themselves.
const WAITING_MAX: usize = 64;

/// A handle and its file.
type Close = (Fid, OpenHandle);

/// Closes for one MDT.
#[derive(Default)]
pub(crate) struct Closes {
    waiting: BTreeMap<OpenHandle, Fid>,
    /// Sent and not answered. An open with which they went may wait for others, and frames may be lost, so who needs one of these
    /// done says it again.
    away: BTreeMap<OpenHandle, Fid>,
    is_timer_running: bool,
}

impl Closes {
    /// Those that wait are on their way from now on.
    fn take_waiting(&mut self) -> Vec<Close> {
        let taken = std::mem::take(&mut self.waiting);
        self.away.extend(&taken);
        taken.into_iter().map(|(handle, fid)| (fid, handle)).collect()
    }
}

impl State {
    /// The MDT to which the close of a released handle may go later.
    fn may_close_later(&self, handle: &Handle) -> Option<TargetId> {
        let is_read_only = !handle.args.write && !handle.args.execute;
        let may =
            is_read_only && !handle.is_lost && !self.is_draining && self.has_bits(handle.fid, bits::OPEN);
        mdt_of(handle.fid).ok().filter(|_| may)
    }

    /// Those that an open takes along.
    pub(crate) fn take_closes(&mut self, target: TargetId) -> Vec<Close> {
        self.closes.get_mut(&target).map_or_else(Vec::new, Closes::take_waiting)
    }

    /// They were answered.
    fn end_closes(&mut self, target: TargetId, taken: &[Close]) {
        if let Some(closes) = self.closes.get_mut(&target) {
            for (_, handle) in taken {
                closes.away.remove(handle);
            }
        }
    }
}

/// What came of an open that took closes along: if it failed, it may never have come to them.
pub(crate) fn end_closes(ctx: &Ctx, target: TargetId, taken: &[Close], is_done: bool) {
    if is_done {
        ctx.with(|state| state.end_closes(target, taken));
    } else {
        send_closes(ctx, target, taken.to_vec());
    }
}

/// Without waiting for the answer. They are `away`.
fn send_closes(ctx: &Ctx, target: TargetId, handles: Vec<Close>) {
    if handles.is_empty() {
        return;
    }
    let accesses = ctx.with(|state| state.take_accesses(target));
    let request = Request::Mdt(MdtRequest::Closes { handles: handles.clone(), accesses });
    let answer = ctx.request(target, request, Bytes::new(), Kind::Reserved);
    let later = ctx.clone();
    ctx.spawn(async move {
        // A failure is an eviction, or an MDT that is not there any more: nothing is open there.
        let _ = answer.await;
        later.with(|state| state.end_closes(target, &handles));
    });
}

fn send_waiting(ctx: &Ctx, target: TargetId) {
    let taken = ctx.with(|state| state.take_closes(target));
    send_closes(ctx, target, taken);
}

/// A name goes that leads to this file: the MDT finds it closed.
pub(crate) fn hurry_closes(ctx: &Ctx, fid: Fid) {
    let Ok(target) = mdt_of(fid) else { return };
    if ctx.with(|state| state.is_close_waiting(target, fid)) {
        send_waiting(ctx, target);
    }
}

/// Leaves the close of a handle for later. False: it has to be told now.
pub(crate) fn close_later(ctx: &Ctx, handle: &Handle) -> bool {
    let Some(target) = ctx.with(|state| state.may_close_later(handle)) else { return false };
    let (is_first, is_enough) = ctx.with(|state| {
        let closes = state.closes.entry(target).or_default();
        closes.waiting.insert(handle.number(), handle.fid);
        let is_first = !std::mem::replace(&mut closes.is_timer_running, true);
        (is_first, closes.waiting.len() >= WAITING_MAX)
    });
    if is_enough {
        send_waiting(ctx, target);
    }
    if is_first {
        let later = ctx.clone();
        ctx.spawn(async move {
            later.sleep(CLOSE_INTERVAL).await;
            later.with(|state| state.closes.entry(target).or_default().is_timer_running = false);
            send_waiting(&later, target);
        });
    }
    true
}

/// The lock under which closes of a file wait goes back: they are done first.
pub(crate) async fn close_waiting(ctx: &Ctx, target: TargetId, fid: Fid) {
    let handles = ctx.with(|state| {
        let is_waiting = state.is_close_waiting(target, fid);
        let mut handles = if is_waiting { state.take_closes(target) } else { Vec::new() };
        handles.retain(|(other, _)| *other != fid);
        handles.extend(state.away_of(target, |away| away == fid));
        handles
    });
    send_and_wait(ctx, target, handles).await;
}

/// All of them, before this client leaves.
pub(crate) async fn close_all(ctx: &Ctx) {
    let targets: Vec<TargetId> = ctx.with(|state| state.closes.keys().copied().collect());
    for target in targets {
        let handles = ctx.with(|state| {
            state.take_closes(target);
            state.away_of(target, |_| true)
        });
        send_and_wait(ctx, target, handles).await;
    }
}

impl State {
    fn is_close_waiting(&self, target: TargetId, fid: Fid) -> bool {
        let closes = self.closes.get(&target);
        closes.is_some_and(|closes| closes.waiting.values().any(|waiting| *waiting == fid))
    }

    fn away_of(&self, target: TargetId, is_wanted: impl Fn(Fid) -> bool) -> Vec<Close> {
        let away = self.closes.get(&target).into_iter().flat_map(|closes| &closes.away);
        away.filter(|(_, fid)| is_wanted(**fid)).map(|(handle, fid)| (*fid, *handle)).collect()
    }
}

async fn send_and_wait(ctx: &Ctx, target: TargetId, handles: Vec<Close>) {
    for some in handles.chunks(CLOSES_MAX) {
        let accesses = ctx.with(|state| state.take_accesses(target));
        let request = Request::Mdt(MdtRequest::Closes { handles: some.to_vec(), accesses });
        // As in `send_closes`.
        let _ = ctx.request(target, request, Bytes::new(), Kind::Reserved).await;
        ctx.with(|state| state.end_closes(target, some));
    }
}
