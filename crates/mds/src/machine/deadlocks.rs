//! Deadlocks of fcntl(2) locks over several MDTs: the messages of `flock::deadlock`.
//!
//! Only MDTs with a session are asked. Whoever waits at one that is away asks again when it has come back, and a search
//! begins there then.

use super::peers::Call;
use super::{Mds, Output};
use crate::flock::deadlock::{Search, Step, follow};
use base::{Now, Status, TargetId, TargetKind};
use std::collections::{BTreeMap, BTreeSet};
use store::MetaStore;
use target::Token;
use wire::peer::{FlockOwner, FlockWaitId};
use wire::{PeerReply, PeerRequest, Reply, Request};

/// Searches that wait for answers.
#[derive(Debug, Default)]
pub(super) struct Searches(BTreeMap<FlockWaitId, Running>);

#[derive(Debug)]
struct Running {
    search: Search,
    unanswered: BTreeSet<TargetId>,
}

impl<M: MetaStore> Mds<M> {
    /// A request has begun to wait.
    pub(super) fn on_flock_waits(&mut self, now: Now, wait: FlockWaitId, out: &mut Vec<Output>) {
        self.search_on(now, wait, Search::new(wait), out);
    }

    fn search_on(&mut self, now: Now, id: FlockWaitId, mut search: Search, out: &mut Vec<Output>) {
        let peers = self.mdts_with_session();
        if peers.is_empty() {
            return;
        }
        let Some(wait) = self.flocks.wait_named(id) else { return };
        match search.step(&wait, |owner| self.flocks.waits_of(owner)) {
            Step::Ask(owners) => {
                self.searches.0.insert(id, Running { search, unanswered: peers.clone() });
                for peer in peers {
                    let request = Request::Peer(PeerRequest::FlockWaits { owners: owners.clone() });
                    self.call(now, peer, request, Call::FlockWaits { wait: id }, out);
                }
            }
            Step::Found(victim) if victim.mdt_index == self.options.index => self.refuse_flock(now, victim),
            Step::Found(victim) => {
                let request = Request::Peer(PeerRequest::RefuseFlock { wait: victim });
                self.call(now, TargetId::mdt(victim.mdt_index), request, Call::Tell, out);
            }
            Step::Over => {}
        }
    }

    fn mdts_with_session(&self) -> BTreeSet<TargetId> {
        self.peers.with_session().filter(|target| target.kind == TargetKind::Mdt).collect()
    }

    pub(super) fn on_flock_waits_told(
        &mut self,
        now: Now,
        peer: TargetId,
        id: FlockWaitId,
        result: Result<Reply, Status>,
        out: &mut Vec<Output>,
    ) {
        let Some(running) = self.searches.0.get_mut(&id) else { return };
        if let Ok(Reply::Peer(PeerReply::FlockWaits(waits))) = result {
            running.search.tell(waits);
        }
        running.unanswered.remove(&peer);
        if running.unanswered.is_empty()
            && let Some(running) = self.searches.0.remove(&id)
        {
            self.search_on(now, id, running.search, out);
        }
    }

    /// Another MDT asks.
    pub(super) fn answer_flock_waits(&mut self, now: Now, token: Token, owners: Vec<FlockOwner>) {
        let waits = follow(owners, |owner| self.flocks.waits_of(owner));
        self.reply(now, token, Ok(Reply::Peer(PeerReply::FlockWaits(waits))));
    }

    pub(super) fn refuse_flock(&mut self, now: Now, wait: FlockWaitId) {
        if let Some(token) = self.flocks.end_wait(wait) {
            self.reply(now, token, Err(Status::Deadlock));
        }
    }
}
