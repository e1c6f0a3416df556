//! Clients whose leases have ended, in a recovery: before they are given up, each OST makes sure that nothing more comes of them.
//!
//! Otherwise data that such a client has sent could reach a file after this MDT has believed its size, or after others have read and
//! written it. A client whose lease has ended sends nothing new (`client::recovery::note_silent_mdts`); what is on its way meets
//! an OST that does not know its session any more.

use super::peers::Call;
use super::{Mds, Output};
use base::{Now, Status, TargetId, TargetKind};
use std::collections::{BTreeMap, BTreeSet};
use store::MetaStore;
use wire::{Life, OstRequest, Request};

/// Who is being given up, and the OSTs that have not answered.
#[derive(Debug, Default)]
pub(super) struct Fences {
    waiting: BTreeMap<Life, BTreeSet<u16>>,
}

impl<M: MetaStore> Mds<M> {
    /// The process says so again and again while this client is waited for.
    pub(super) fn on_lapsed(&mut self, now: Now, life: Life, out: &mut Vec<Output>) {
        if !self.core.is_lapsed(now.time, life) || self.fences.waiting.contains_key(&life) {
            return;
        }
        if self.config.version == 0 {
            // Which OSTs there are is not known yet.
            return;
        }
        let active = self.config.of_kind(TargetKind::Ost).filter(|ost| ost.is_active);
        let osts: BTreeSet<u16> = active.map(|ost| ost.id.index).collect();
        self.fences.waiting.insert(life, osts.clone());
        for ost in osts {
            let request = Request::Ost(OstRequest::Fence(life));
            self.call(now, TargetId::ost(ost), request, Call::Fence { life, ost }, out);
        }
        self.give_up_fenced(now, life);
    }

    pub(super) fn on_fenced(&mut self, now: Now, life: Life, ost: u16, result: Result<(), Status>) {
        if result.is_err() {
            // The next word about its lease begins anew.
            self.fences.waiting.remove(&life);
            return;
        }
        if let Some(waiting) = self.fences.waiting.get_mut(&life) {
            waiting.remove(&ost);
        }
        self.give_up_fenced(now, life);
    }

    fn give_up_fenced(&mut self, now: Now, life: Life) {
        if self.fences.waiting.get(&life).is_some_and(BTreeSet::is_empty) {
            self.fences.waiting.remove(&life);
            self.core.on_lapsed(now, life, &mut self.core_out);
        }
    }
}
