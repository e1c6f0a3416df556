//! Places of requests that change nothing.
//!
//! Some of them may wait at the target until other clients give locks back. These clients may first have to read what they use their
//! locks for, and such a read waits for nobody. So the two kinds have places of their own. With common ones two clients stop each other: all
//! places of each are taken by requests for what the other one has locked, and what would end the use of that waits behind them.
//!
//! Who waits for a place to ask for a lock, and has others in hand, lets go of those that are called back, as he does when he waits for the
//! lock itself (`client::ops::io::lock_hulls`).

use super::Ticket;
use base::{TargetKind, limits};
use std::collections::VecDeque;
use wire::{LockRequest, OstRequest, Request};

#[derive(Debug, Default)]
struct Lane {
    queue: VecDeque<Ticket>,
    in_flight: usize,
}

/// How many requests of each kind may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    waiting: usize,
    prompt: usize,
}

/// Of requests to a target where the operator allows for `plain_max`: that is about data on an OST, where requests for locks do not
/// count, and about metadata on an MDT, which has data besides.
pub(super) fn bounds(kind: TargetKind, plain_max: usize) -> Bounds {
    let aside_max = plain_max.min(limits::PLAIN_ASIDE_MAX);
    match kind {
        TargetKind::Ost => Bounds { waiting: limits::PLAIN_ASIDE_MAX, prompt: plain_max },
        TargetKind::Mdt => Bounds { waiting: plain_max, prompt: aside_max },
        TargetKind::Mgt => Bounds { waiting: aside_max, prompt: plain_max },
    }
}

/// Requests that are queued or in flight, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// May wait for other clients.
    waiting: Lane,
    prompt: Lane,
}

impl Lanes {
    fn of(&mut self, request: &Request) -> &mut Lane {
        if waits_for_clients(request) { &mut self.waiting } else { &mut self.prompt }
    }

    pub(super) fn queue(&mut self, request: &Request, ticket: Ticket) {
        self.of(request).queue.push_back(ticket);
    }

    /// Takes one out of its queue that may be sent now.
    pub(super) fn next(&mut self, bounds: Bounds) -> Option<Ticket> {
        [(&mut self.prompt, bounds.prompt), (&mut self.waiting, bounds.waiting)]
            .into_iter()
            .filter(|(lane, bound)| lane.in_flight < *bound)
            .find_map(|(lane, _)| lane.queue.pop_front())
    }

    /// It is sent for the first time.
    pub(super) fn enter(&mut self, request: &Request) {
        self.of(request).in_flight += 1;
    }

    /// It was sent, and is over.
    pub(super) fn leave(&mut self, request: &Request) {
        self.of(request).in_flight -= 1;
    }

    /// It is not to be sent any more.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.waiting.queue.retain(|queued| *queued != ticket);
        self.prompt.queue.retain(|queued| *queued != ticket);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.waiting.in_flight + self.prompt.in_flight
    }
}

/// Whether its target may answer it only when other clients have given something back.
fn waits_for_clients(request: &Request) -> bool {
    match request {
        Request::Lock(LockRequest::Enqueue { can_wait, .. }) => *can_wait,
        Request::Ost(request) => matches!(
            request,
            OstRequest::LockAndRead { .. } | OstRequest::Seek { .. } | OstRequest::Read { lock: None, .. }
        ),
        Request::Mdt(_) => true,
        _ => false,
    }
}
