//! What the target has executed for this caller before it evicted it: it is there, but nobody replays it any more.

use super::{Import, ImportOutput};
use base::fault::{Fault, planted};
use base::{Transno, limits};
use std::collections::BTreeMap;
use wire::Request;

/// Those of two sessions that were full of them.
const REQUESTS_MAX: usize = 2 * limits::REPLAY_REQUESTS_MAX;

/// Answered requests of sessions that have ended with an eviction, until they are durable, or lost with the target.
#[derive(Debug, Default)]
pub(super) struct LeftBehind(BTreeMap<Transno, Request>);

impl LeftBehind {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn first(&self) -> Option<Transno> {
        self.0.keys().next().copied()
    }

    pub fn add(&mut self, requests: impl Iterator<Item = (Transno, Request)>) {
        self.0.extend(requests);
    }

    pub fn on_committed(&mut self, transno: Transno) {
        self.0 = self.0.split_off(&transno.next());
    }

    /// Takes out what is lost: what is not among what the target has kept of one of its incarnations, up to `survived`. Of another incarnation
    /// it says nothing, and who evicts again and again without making anything durable is not believed without end.
    fn take_lost(&mut self, survived: Transno) -> Vec<Request> {
        let there_from = Transno::first_of(survived.epoch());
        let later = self.0.split_off(&survived.next());
        let there = self.0.split_off(&there_from);
        let mut lost = std::mem::replace(&mut self.0, there);
        lost.extend(later);
        while self.0.len() > REQUESTS_MAX
            && let Some((transno, request)) = self.0.pop_first()
        {
            lost.insert(transno, request);
        }
        lost.into_values().collect()
    }
}

impl Import {
    /// The target was restarted, or has evicted this caller. `survived` as it says with the new session (`wire::ConnectReply`).
    pub(super) fn lose_left_behind(&mut self, survived: Transno, out: &mut Vec<ImportOutput>) {
        let survived = if planted(Fault::KeptTakenForLost) { Transno::ZERO } else { survived };
        let requests = self.left_behind.take_lost(survived);
        if !requests.is_empty() && !planted(Fault::LossUntold) {
            out.push(ImportOutput::Lost { requests });
        }
    }
}

#[cfg(test)]
mod tests;
