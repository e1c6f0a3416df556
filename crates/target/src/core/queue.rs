//! Replays of one client that have come and are not executed yet.
//!
//! A client has so few of them on their way (`limits::REPLAYS_IN_FLIGHT_MAX`) that all of them have room. Of one that sends more, the
//! first ones are kept, which are executed first: what had no room comes again.

use super::manifest::LISTED_MAX;
use base::{Status, Transno, limits};
use std::collections::BTreeMap;
use wire::{Frame, Request};

#[derive(Debug)]
pub(super) struct Queued {
    pub frame: Frame,
    /// Or how a request that is not known here is refused, when it is its turn.
    pub request: Result<Request, Status>,
}

impl Queued {
    fn byte_count(&self) -> usize {
        self.frame.body.len() + self.frame.data.len()
    }
}

/// By original transno.
#[derive(Debug, Default)]
pub(super) struct ReplayQueue {
    by_transno: BTreeMap<Transno, Queued>,
    byte_count: usize,
}

impl ReplayQueue {
    pub fn insert(&mut self, mut replay: Queued) {
        replay.frame = replay.frame.detached();
        let transno = replay.frame.transno;
        self.byte_count += replay.byte_count();
        if let Some(former) = self.by_transno.insert(transno, replay) {
            self.byte_count -= former.byte_count();
        }
    }

    pub fn remove(&mut self, transno: Transno) -> Option<Queued> {
        let queued = self.by_transno.remove(&transno)?;
        self.byte_count -= queued.byte_count();
        Some(queued)
    }

    /// The last one, if there are more than a client may have on their way. The first one always has room.
    pub fn pop_excess(&mut self) -> Option<Queued> {
        let is_too_much =
            self.byte_count > limits::QUEUED_REPLAY_BYTES_MAX || self.by_transno.len() > LISTED_MAX;
        let last = self.by_transno.keys().next_back().copied();
        last.filter(|_| is_too_much && self.by_transno.len() > 1).and_then(|last| self.remove(last))
    }

    pub fn first(&self) -> Option<(Transno, &Queued)> {
        self.by_transno.first_key_value().map(|(transno, queued)| (*transno, queued))
    }

    pub fn get(&self, transno: Transno) -> Option<&Queued> {
        self.by_transno.get(&transno)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Transno, &Queued)> {
        self.by_transno.iter().map(|(transno, queued)| (*transno, queued))
    }

    pub fn len(&self) -> usize {
        self.by_transno.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_transno.is_empty()
    }
}

impl FromIterator<Queued> for ReplayQueue {
    fn from_iter<I: IntoIterator<Item = Queued>>(replays: I) -> ReplayQueue {
        let mut queue = ReplayQueue::default();
        replays.into_iter().for_each(|replay| queue.insert(replay));
        queue
    }
}
