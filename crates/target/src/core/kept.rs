//! What other targets have kept of the requests of clients that are gone.
//!
//! A client that does not come back after a restart takes with it what was not durable, but for what another target had been
//! told of: that is executed again in its old place, as if the client had replayed it, before its session ends.

use super::queue::{Queued, ReplayQueue};
use super::{Core, CoreOutput, EvictReason, SlotState};
use base::{ClientId, Endpoint, Now, Transno, Xid};
use std::collections::BTreeMap;
use store::MetaStore;
use wire::{Frame, FrameKind, Request};

/// A request of a client, as it would replay it.
#[derive(Clone, Debug)]
pub struct Kept {
    pub client: ClientId,
    pub slot: u16,
    pub xid: Xid,
    /// That it had when it was executed.
    pub transno: Transno,
    pub request: Request,
}

/// What is kept elsewhere, in a recovery.
#[derive(Debug, Default)]
pub(super) struct KeptElsewhere {
    /// Others have been asked and have not answered: nobody is given up meanwhile.
    pub is_awaited: bool,
    requests: BTreeMap<ClientId, BTreeMap<Transno, Kept>>,
    given_up: BTreeMap<ClientId, EvictReason>,
}

impl<M: MetaStore> Core<M> {
    /// Right after `open`, if other targets may have kept something: nobody is given up before `on_kept`, but at the end of the window.
    pub fn await_kept(&mut self) {
        if let Some(recovery) =
            self.recovery.as_mut().filter(|recovery| recovery.is_needed && !recovery.is_lossless)
        {
            recovery.kept.is_awaited = true;
        }
    }

    /// All others have said what they have, or those who have not are waited for no longer.
    pub fn on_kept(&mut self, now: Now, kept: Vec<Kept>, out: &mut Vec<CoreOutput>) {
        self.go_on_at(now);
        let Some(recovery) = &mut self.recovery else { return };
        recovery.kept.is_awaited = false;
        for request in kept {
            let of_client = recovery.kept.requests.entry(request.client).or_default();
            of_client.insert(request.transno, request);
        }
        let given_up = std::mem::take(&mut recovery.kept.given_up);
        for (client, why) in given_up {
            self.give_up(client, why, out);
        }
        self.settle(out);
    }

    /// A client that is awaited will not come, or comes too late.
    pub(super) fn give_up(&mut self, client: ClientId, why: EvictReason, out: &mut Vec<CoreOutput>) {
        let is_awaited = self.exports.get(&client).is_some_and(|export| export.awaited.is_some());
        if let Some(recovery) = self.recovery.as_mut().filter(|_| is_awaited) {
            // A target has lost nothing: nobody keeps anything of it.
            if recovery.kept.is_awaited && matches!(client.endpoint(), Endpoint::Client(_)) {
                recovery.kept.given_up.insert(client, why);
                return;
            }
            if let Some(kept) = recovery.kept.requests.remove(&client)
                && self.stand_in(client, kept)
            {
                return;
            }
        }
        self.drop_client(client, why, out);
        let is_target_back =
            why == EvictReason::Restarted && matches!(client.endpoint(), Endpoint::Target(_));
        match is_awaited && is_target_back {
            true => self.count_back(),
            false => self.count_evicted(),
        }
    }

    /// Whether the client is gone, and others have kept what it did.
    pub(super) fn is_stood_in(&self, client: ClientId) -> bool {
        let awaited = self.exports.get(&client).and_then(|export| export.awaited.as_ref());
        awaited.is_some_and(|awaited| awaited.is_stood_in)
    }

    /// It was to be given up, and is there.
    pub(super) fn note_alive(&mut self, client: ClientId) {
        if let Some(recovery) = &mut self.recovery {
            recovery.kept.given_up.remove(&client);
        }
    }

    /// Others are not waited for any more.
    pub(super) fn stop_awaiting_kept(&mut self) {
        if let Some(recovery) = &mut self.recovery {
            recovery.kept.is_awaited = false;
        }
    }

    /// Queues what was kept in place of the client's own replays. False: all of it has survived.
    fn stand_in(&mut self, client: ClientId, kept: BTreeMap<Transno, Kept>) -> bool {
        let target = self.options.id;
        self.note_change(client);
        let Some(export) = self.exports.get_mut(&client) else { return false };
        let (session, slots) = (export.session, &export.slots);
        // What the client itself has replayed and the owner executes now goes on.
        let is_running = |kept: &Kept| {
            let slot = slots.get(&kept.slot).filter(|slot| slot.xid == kept.xid);
            slot.is_some_and(|slot| matches!(slot.state, SlotState::InProgress))
        };
        let goes_on = kept.values().any(is_running);
        // What an earlier recovery ended with is there, or was given up, even where the client's slots are gone since.
        let base = self.committed;
        let is_lost = |(transno, kept): &(Transno, Kept)| {
            *transno > base && slots.get(&kept.slot).is_none_or(|slot| slot.xid < kept.xid)
        };
        let lost = kept.into_iter().filter(is_lost);
        let queue: ReplayQueue = lost
            .map(|(transno, kept)| {
                let mut frame = Frame::new(FrameKind::Request, client.endpoint(), Endpoint::Target(target));
                frame.session = session;
                (frame.slot, frame.xid, frame.transno) = (kept.slot, kept.xid, transno);
                Queued { frame, request: Ok(kept.request) }
            })
            .collect();
        let Some(awaited) = export.awaited.as_mut().filter(|_| goes_on || !queue.is_empty()) else {
            return false;
        };
        self.last_recovery.stood_in_count += queue.len() as u64;
        awaited.stand_in(queue);
        self.list_stood_in(client);
        true
    }

    /// Clients whose replays came from elsewhere have no more to give: their sessions end.
    pub(super) fn drop_stood_in(&mut self, out: &mut Vec<CoreOutput>) {
        let is_stood_in = |awaited: &super::recovery::Awaited| awaited.is_stood_in;
        let stood_in =
            self.exports.iter().filter(|(_, export)| export.awaited.as_ref().is_some_and(is_stood_in));
        let stood_in: Vec<ClientId> = stood_in.map(|(client, _)| *client).collect();
        for client in stood_in {
            self.drop_client(client, EvictReason::Recovery, out);
            self.count_evicted();
        }
    }
}
