//! Replays that wait for another target: it has prepared something here, or makes a directory that the replay needs. Where that target
//! is not there, the client is, and has done its part. So it is not given up for it, however long that lasts, unless an operator aborts
//! the recovery: what it had been answered is in its memory, and would be lost.
//!
//! A target that is heard is no excuse: two that recover could wait for each other.

use super::{Core, CoreEvent, CoreOutput};
use base::{Fid, Now, TargetId};
use std::collections::BTreeSet;
use store::MetaStore;

#[derive(Debug, Default)]
pub(super) struct Unheard {
    awaited: BTreeSet<TargetId>,
    /// An event has said so.
    told: BTreeSet<TargetId>,
    is_over: bool,
}

impl Unheard {
    /// An operator wants that.
    pub fn stop_awaiting(&mut self) {
        self.is_over = true;
        self.awaited.clear();
    }
}

impl<M: MetaStore> Core<M> {
    /// Says which targets replays wait for now that are not heard. Before each tick.
    pub fn note_unheard(&mut self, now: Now, awaited: BTreeSet<TargetId>, out: &mut Vec<CoreOutput>) {
        self.go_on_at(now);
        let Some(recovery) = self.recovery.as_mut().filter(|recovery| !recovery.unheard.is_over) else {
            return;
        };
        let is_window_over = recovery.is_window_over();
        let unheard = &mut recovery.unheard;
        unheard.awaited = awaited;
        if unheard.awaited.is_empty() || !is_window_over {
            return;
        }
        for target in unheard.awaited.difference(&unheard.told) {
            out.push(CoreOutput::Event(CoreEvent::RecoveryAwaits { target: *target }));
        }
        unheard.told.extend(&unheard.awaited);
        self.put_off_end();
    }

    /// The inodes that what is to be replayed names; `None`: they are more than so many, or not known.
    pub fn inodes_of_replays(&mut self, count_max: usize) -> Option<Vec<Fid>> {
        let is_unknown = self.call_roll().is_some_and(|roll| roll.is_somebody_unknown());
        let order = self.recovery.as_ref().map(|recovery| &recovery.order);
        order.map_or_else(|| Some(Vec::new()), |order| order.inodes(count_max)).filter(|_| !is_unknown)
    }

    /// Targets that a recovery waits for, since replays do.
    pub fn awaited_targets(&self) -> impl Iterator<Item = TargetId> {
        self.recovery.iter().flat_map(|recovery| recovery.unheard.awaited.iter().copied())
    }
}
