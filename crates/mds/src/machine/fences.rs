//! Clients that are waited for, in a recovery or by others for their locks, and whose leases have ended: before they are given up, each
//! OST makes sure that nothing more comes of them.
//!
//! Otherwise data that such a client has sent could reach a file after this MDT has believed its size, or after others have read and
//! written it. A client whose lease has ended sends nothing new (`client::leases`); what is on its way meets an OST that does not know
//! its session any more.

use super::peers::Call;
use super::{Mds, Output};
use base::limits::LEASE;
use base::{ClientId, Duration, Now, Status, TargetId, TargetKind, Time};
use std::collections::{BTreeMap, BTreeSet};
use store::MetaStore;
use wire::{Life, OstRequest, Request};

/// After an OST could not.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Somebody who is being given up.
#[derive(Debug)]
struct Fence {
    /// He had no lease then. If he was heard since, he is not given up.
    at: Time,
    /// OSTs that have not answered.
    waiting: BTreeSet<u16>,
    /// Those of them that could not, and when they are asked again.
    failed: BTreeMap<u16, Time>,
}

#[derive(Debug, Default)]
pub(super) struct Fences {
    under_way: BTreeMap<Life, Fence>,
}

impl Fences {
    pub fn clear(&mut self) {
        self.under_way.clear();
    }
}

impl<M: MetaStore> Mds<M> {
    /// Clients that are waited for here and have not been heard for long: has their lease ended?
    pub fn unheard(&self, now: Time) -> Vec<Life> {
        self.core.unheard(now, &self.holders(now))
    }

    /// Whether somebody waits for what a client has to give back, so that `unheard` may have somebody to tell.
    pub fn is_kept_waiting(&self) -> bool {
        self.core.is_recovering() || self.locks.has_called_back() || self.flocks.has_waiting()
    }

    /// Clients that keep others waiting.
    fn holders(&self, now: Time) -> BTreeSet<ClientId> {
        let mut holders = self.locks.asked_for(now, LEASE);
        holders.extend(self.flocks.in_the_way());
        holders
    }

    /// The process says so again and again while this client is waited for.
    pub(super) fn on_lapsed(&mut self, now: Now, at: Time, life: Life, out: &mut Vec<Output>) {
        let is_holder = self.holders(now.time).contains(&life.client);
        // Version 0: which OSTs there are is not known yet.
        if !self.core.is_lapsed(at, life, is_holder) || self.config.version == 0 {
            return;
        }
        let active = self.config.of_kind(TargetKind::Ost).filter(|ost| ost.is_active);
        let osts: BTreeSet<u16> = active.map(|ost| ost.id.index).collect();
        let to_ask: Vec<u16> = match self.fences.under_way.get_mut(&life) {
            None => {
                let fence = Fence { at, waiting: osts.clone(), failed: BTreeMap::new() };
                self.fences.under_way.insert(life, fence);
                osts.into_iter().collect()
            }
            Some(fence) => {
                // One that is taken out of use gets nothing any more.
                fence.waiting.retain(|ost| osts.contains(ost));
                let due = fence.failed.iter().filter(|(_, again)| **again <= now.time);
                let due: Vec<u16> = due.map(|(ost, _)| *ost).filter(|ost| osts.contains(ost)).collect();
                fence.failed.retain(|ost, _| !due.contains(ost));
                due
            }
        };
        for ost in to_ask {
            let request = Request::Ost(OstRequest::Fence(life));
            self.call(now, TargetId::ost(ost), request, Call::Fence { life, ost }, out);
        }
        self.give_up_fenced(now, life);
    }

    pub(super) fn on_fenced(&mut self, now: Now, life: Life, ost: u16, result: Result<(), Status>) {
        let Some(fence) = self.fences.under_way.get_mut(&life) else { return };
        match result {
            Ok(()) => drop(fence.waiting.remove(&ost)),
            Err(_) => drop(fence.failed.insert(ost, now.time.after(AGAIN_AFTER))),
        }
        self.give_up_fenced(now, life);
    }

    fn give_up_fenced(&mut self, now: Now, life: Life) {
        if self.fences.under_way.get(&life).is_some_and(|fence| fence.waiting.is_empty())
            && let Some(fence) = self.fences.under_way.remove(&life)
        {
            // It was waited for when the OSTs were asked.
            self.core.on_lapsed(now, fence.at, life, true, &mut self.core_out);
        }
    }
}
