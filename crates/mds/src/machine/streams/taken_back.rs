//! What participants have kept of a coordinator's operations, which a restart may have lost with their client.

use super::*;
use base::limits;
use target::Kept;

/// Asked of all other MDTs once, at the beginning of a recovery.
#[derive(Debug, Default)]
pub(in crate::machine) struct TakenBack {
    /// Others are to be asked, or have not all answered.
    is_awaited: bool,
    /// Those that do not answer are waited for until then; `None` before a configuration has told where they are.
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
            self.streams.taken_back.is_awaited = true;
            self.core.await_kept();
        }
    }

    /// Asks those that are known by now, and ends it when all have answered or are waited for no longer.
    pub(in crate::machine) fn take_back(&mut self, now: Now, out: &mut Vec<Output>) {
        if !self.streams.taken_back.is_awaited {
            return;
        }
        let mdts: Vec<u16> = self.peers.mdts().collect();
        for mdt in &mdts {
            if self.streams.taken_back.asked.insert(*mdt) {
                self.streams.taken_back.unanswered.insert(*mdt);
                self.ask_back(now, *mdt, None, out);
            }
        }
        let taken_back = &mut self.streams.taken_back;
        if !mdts.is_empty() {
            // One that does not answer for so long is away, and has lost what it held.
            taken_back.until.get_or_insert(now.time.after(limits::LEASE));
        }
        let others = usize::from(self.known_targets.mdt_count) - 1;
        let have_all_answered = taken_back.asked.len() >= others && taken_back.unanswered.is_empty();
        let is_late = taken_back.until.is_some_and(|until| now.time >= until);
        if have_all_answered || is_late || !self.core.is_recovering() {
            (taken_back.is_awaited, taken_back.until) = (false, None);
            let kept = std::mem::take(&mut taken_back.kept);
            self.core.on_kept(now, kept, &mut self.core_out);
        }
    }

    fn ask_back(&mut self, now: Now, mdt: u16, after: Option<OperationId>, out: &mut Vec<Output>) {
        let request = Request::Peer(PeerRequest::TakeBackPart { epoch: self.core.epoch().0, after });
        self.call(now, TargetId::mdt(mdt), request, Call::TakeBack { mdt, is_whole: false }, out);
    }

    /// `is_whole`: it was asked for all at once.
    pub(in crate::machine) fn on_taken_back(
        &mut self,
        now: Now,
        (mdt, is_whole): (u16, bool),
        result: Result<Reply, Status>,
        out: &mut Vec<Output>,
    ) {
        let taken_back = &mut self.streams.taken_back;
        if !taken_back.is_awaited {
            return;
        }
        let (witnesses, next) = match result {
            Ok(Reply::Peer(PeerReply::HeldBackPart { witnesses, next })) => (witnesses, next),
            Ok(Reply::Peer(PeerReply::HeldBack { witnesses })) => (witnesses, None),
            // Its version knows no parts.
            Err(Status::NotSupported) if !is_whole => {
                let request = Request::Peer(PeerRequest::TakeBack { epoch: self.core.epoch().0 });
                self.call(now, TargetId::mdt(mdt), request, Call::TakeBack { mdt, is_whole: true }, out);
                return;
            }
            Ok(_) | Err(Status::ProtocolError) => {
                let what = "what another MDT holds of this one's operations cannot be read: a newer version has executed them";
                let (fid, status) = (Fid::default(), Status::ProtocolError);
                out.push(Output::Event(MdsEvent::Failed { what, fid, status }));
                (Vec::new(), None)
            }
            Err(_) => (Vec::new(), None),
        };
        let kept = witnesses.into_iter().map(|witness| {
            let Witness { client, slot, xid, transno, request } = witness;
            Kept { client, slot, xid, transno, request: Request::Mdt(request) }
        });
        taken_back.kept.extend(kept);
        match next {
            Some(next) => self.ask_back(now, mdt, Some(next), out),
            None => {
                taken_back.unanswered.remove(&mdt);
            }
        }
    }
}
