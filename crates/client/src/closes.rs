//! Handles that were only read through and are released, and that their MDT still counts as open: it is told with a later open, or
//! of many at once. Nobody minds while this client holds `bits::OPEN` of the inode: who wants to write the file, or takes its last
//! name, has that lock back first, and with it goes the close.

use crate::ctx::{Ctx, mdt_of};
use crate::executor::oneshot;
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
    /// Sent with an open that is not answered. It may wait for others, so who needs one of these done says it again.
    away: BTreeMap<OpenHandle, Fid>,
    is_timer_running: bool,
}

impl Closes {
    fn take_waiting(&mut self) -> Vec<Close> {
        std::mem::take(&mut self.waiting).into_iter().map(|(handle, fid)| (fid, handle)).collect()
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
        let Some(closes) = self.closes.get_mut(&target) else { return Vec::new() };
        let taken = closes.take_waiting();
        closes.away.extend(taken.iter().map(|(fid, handle)| (*handle, *fid)));
        taken
    }

    /// What came of that open: if it failed, it may never have come to them.
    pub(crate) fn end_closes(&mut self, target: TargetId, taken: &[Close], is_done: bool) {
        let Some(closes) = self.closes.get_mut(&target) else { return };
        let mut again = Vec::new();
        for (fid, handle) in taken {
            if closes.away.remove(handle).is_some() && !is_done {
                again.push((*fid, *handle));
            }
        }
        self.send_closes(target, again);
    }

    /// A name goes that leads to this file: the MDT finds it closed.
    pub(crate) fn hurry_closes(&mut self, fid: Fid) {
        let Ok(target) = mdt_of(fid) else { return };
        let Some(closes) = self.closes.get_mut(&target) else { return };
        if closes.waiting.values().any(|waiting| *waiting == fid) {
            let waiting = closes.take_waiting();
            self.send_closes(target, waiting);
        }
    }

    /// Without waiting for the answer.
    fn send_closes(&mut self, target: TargetId, handles: Vec<Close>) {
        if !handles.is_empty() {
            let (sender, _) = oneshot();
            let request = Request::Mdt(MdtRequest::Closes { handles });
            // An MDT that is not there any more has nothing open.
            let _ = self.submit(target, request, Bytes::new(), Kind::Reserved, sender);
        }
    }
}

/// Leaves the close of a handle for later. False: it has to be told now.
pub(crate) fn close_later(ctx: &Ctx, handle: &Handle) -> bool {
    let Some(target) = ctx.with(|state| state.may_close_later(handle)) else { return false };
    let is_first = ctx.with(|state| {
        let closes = state.closes.entry(target).or_default();
        closes.waiting.insert(handle.number(), handle.fid);
        if closes.waiting.len() >= WAITING_MAX {
            let waiting = closes.take_waiting();
            state.send_closes(target, waiting);
            return false;
        }
        !std::mem::replace(&mut closes.is_timer_running, true)
    });
    if is_first {
        let later = ctx.clone();
        ctx.spawn(async move {
            later.sleep(CLOSE_INTERVAL).await;
            later.with(|state| {
                let closes = state.closes.entry(target).or_default();
                closes.is_timer_running = false;
                let waiting = closes.take_waiting();
                state.send_closes(target, waiting);
            });
        });
    }
    true
}

/// The lock under which closes of a file wait goes back: they are done first.
pub(crate) async fn close_waiting(ctx: &Ctx, target: TargetId, fid: Fid) {
    let handles = ctx.with(|state| {
        let Some(closes) = state.closes.get_mut(&target) else { return Vec::new() };
        let is_waiting = closes.waiting.values().any(|waiting| *waiting == fid);
        let away = closes.away.iter().filter(|(_, away)| **away == fid);
        let mut handles: Vec<Close> = away.map(|(handle, fid)| (*fid, *handle)).collect();
        if is_waiting {
            handles.extend(closes.take_waiting());
        }
        handles
    });
    send_and_wait(ctx, target, handles).await;
}

/// All of them, before this client leaves.
pub(crate) async fn close_all(ctx: &Ctx) {
    let all: Vec<(TargetId, Vec<Close>)> = ctx.with(|state| {
        state.closes.iter_mut().map(|(target, closes)| (*target, closes.take_waiting())).collect()
    });
    for (target, handles) in all {
        send_and_wait(ctx, target, handles).await;
    }
}

async fn send_and_wait(ctx: &Ctx, target: TargetId, handles: Vec<Close>) {
    for some in handles.chunks(CLOSES_MAX) {
        let request = Request::Mdt(MdtRequest::Closes { handles: some.to_vec() });
        // A failure is an eviction: nothing is open there any more.
        let _ = ctx.request(target, request, Bytes::new(), Kind::Reserved).await;
    }
}
