//! What participants have kept of a coordinator's operations, which a restart may have lost with their client.

use super::*;
use base::limits;
use target::Kept;

/// Asked of all other MDTs once, at the beginning of a recovery.
#[derive(Debug, Default)]
pub(in crate::machine) struct TakenBack {
    /// `None`: nothing is asked, or it is over.
    until: Option<Time>,
    asked: BTreeSet<u16>,
    unanswered: BTreeSet<u16>,
    kept: Vec<Kept>,
}

impl TakenBack {
    pub fn deadline(&self) -> Option<Time> {
        self.until
    }
}

impl<M: MetaStore> Mds<M> {
    /// Right after the start.
    pub(in crate::machine) fn begin_taking_back(&mut self) {
        if self.known_targets.mdt_count > 1 {
            // One that does not answer for so long is away, and has lost what it held.
            self.streams.taken_back.until = Some(self.options.now.time.after(limits::LEASE));
            self.core.await_kept();
        }
    }

    /// Asks those that are known by now, and ends it when all have answered or are waited for no longer.
    pub(in crate::machine) fn take_back(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(until) = self.streams.taken_back.until else { return };
        let epoch = self.core.epoch().0;
        let mdts: Vec<u16> = self.peers.mdts().collect();
        for mdt in &mdts {
            if self.streams.taken_back.asked.insert(*mdt) {
                self.streams.taken_back.unanswered.insert(*mdt);
                let request = Request::Peer(PeerRequest::TakeBack { epoch });
                self.call(now, TargetId::mdt(*mdt), request, Call::TakeBack { mdt: *mdt }, out);
            }
        }
        let taken_back = &mut self.streams.taken_back;
        let others = usize::from(self.known_targets.mdt_count) - 1;
        let have_all_answered = taken_back.asked.len() >= others && taken_back.unanswered.is_empty();
        if have_all_answered || now.time >= until || !self.core.is_recovering() {
            taken_back.until = None;
            let kept = std::mem::take(&mut taken_back.kept);
            self.core.on_kept(now, kept, &mut self.core_out);
        }
    }

    pub(in crate::machine) fn on_taken_back(&mut self, mdt: u16, result: Result<Reply, Status>) {
        let taken_back = &mut self.streams.taken_back;
        taken_back.unanswered.remove(&mdt);
        let Ok(Reply::Peer(PeerReply::HeldBack { witnesses })) = result else { return };
        if taken_back.until.is_none() {
            return;
        }
        let kept = witnesses.into_iter().map(|witness| {
            let Witness { client, slot, xid, transno, request } = witness;
            Kept { client, slot, xid, transno, request: Request::Mdt(request) }
        });
        taken_back.kept.extend(kept);
    }
}
