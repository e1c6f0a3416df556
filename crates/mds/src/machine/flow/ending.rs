//! How a flow ends: what its operation changed is committed, with the locks and the effects that belong to it; or it is answered with a
//! failure, and gives everything back.

use super::*;
use crate::machine::MdsEvent;
use crate::op::Effect;
use crate::stats::name_of;
use base::{OpenHandle, StatusClass};
use wire::mdt::OpenArgs;
use wire::{Life, LockGrant, MdtReply, PeerReply};

impl<M: MetaStore> Mds<M> {
    pub(super) fn finish_reading(&mut self, now: Now, op: OpId, flow: &mut Flow, run: Run) -> Step {
        let Ok(mut reply) = run.result else { return Step::Ended };
        let grants = self.grant(now, op, flow, &run.outcome);
        put_grants(&mut reply, grants);
        let (reply, data) = self.with_opened_data(flow, &run.outcome, reply);
        self.apply_effects(now, flow, &run.outcome);
        self.end_cancelled(now, flow);
        if matches!(flow.request, Request::Peer(PeerRequest::PeekParent { .. })) {
            let up_to = self.cross.moved_at();
            self.core.reply_when_durable(now, flow.token, up_to, reply, &mut self.core_out);
        } else {
            self.core.reply(now, flow.token, Ok((reply, data)), &mut self.core_out);
        }
        self.end(now, op, flow);
        Step::Ended
    }

    pub(super) fn commit(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        run: Run,
        out: &mut Vec<Output>,
    ) -> Step {
        let Ok(mut reply) = run.result else { return Step::Ended };
        let grants = self.grant(now, op, flow, &run.outcome);
        let locks: Vec<_> = grants.iter().map(|grant| grant.lock).collect();
        put_grants(&mut reply, grants);
        let (reply, data) = self.with_opened_data(flow, &run.outcome, reply);
        let reply = self.with_met(flow, reply);
        let mut batch = run.batch;
        let decision = self.put_decision(flow, &mut batch);
        let is_streamed = decision.is_none() && !run.parts.is_empty();
        let streaming = is_streamed.then(|| (self.put_streamed(run.parts, &mut batch), reply.clone()));
        self.note_opening(flow.token.client, &run.outcome);
        let waits_for_disk = self.is_remote_sync || is_migration(&flow.request);
        let is_layout = flow.token.replay.is_none() && is_layout(&flow.request);
        let committed = match decision.is_some() && waits_for_disk || is_layout {
            true => {
                self.core.commit_then_reply_when_durable(now, flow.token, batch, reply, &mut self.core_out)
            }
            false => self.core.commit(now, flow.token, batch, reply, data, &mut self.core_out),
        };
        match committed {
            Ok(transno) => {
                if let Some((streaming, reply)) = streaming {
                    self.stream(transno, streaming, (&flow.token, &flow.request, &reply), out);
                }
                self.apply_effects(now, flow, &run.outcome);
                self.note_closing_data(flow, transno);
                self.end_cancelled(now, flow);
                if run.outcome.has_moved_directory {
                    self.cross.note_move(transno);
                }
                self.peers.note_destroys(transno, run.destroys);
                self.note_adopts(transno, run.adopts);
                if flow.token.replay.is_none() {
                    self.unheard.note(flow.token, transno, &run.changed, &run.needs);
                    self.contended.note(now.time, flow.token.client, &run.needs);
                }
                if let Some((id, participants)) = decision {
                    flow.settling = None;
                    self.cross.decide(id, transno, participants);
                    self.stats.cross_mdt += 1;
                    self.core.store().kick();
                    out.push(Output::Event(MdsEvent::Decided { id, is_commit: true }));
                }
            }
            Err(status) => {
                self.end_closing(now, flow, &run.outcome, status);
                self.note_unopened(flow.token.client, &run.outcome);
                self.locks.cancel(now.time, flow.token.client, &locks, &mut self.lock_out);
                self.abort_parts(now, flow, out);
            }
        }
        self.end(now, op, flow);
        Step::Ended
    }

    /// Who replays with it is told what the operation has met.
    fn with_met(&self, flow: &Flow, reply: Reply) -> Reply {
        match reply {
            Reply::Mdt(reply) if self.core.features_of(flow.token.client) & features::MET != 0 => {
                Reply::Mdt(reply.with_met())
            }
            reply => reply,
        }
    }

    /// Grants what the caller would like, as far as nobody is in the way. While the target recovers, clients say what
    /// they hold.
    fn grant(&mut self, now: Now, op: OpId, flow: &Flow, outcome: &Outcome) -> Vec<LockGrant> {
        if flow.token.replay.is_some() || !self.core.is_serving() {
            return Vec::new();
        }
        let own = flow.is_claimed.then_some(op);
        let client = flow.token.client;
        let mut grants = Vec::new();
        for (lock, need) in &outcome.wanted {
            // One that it has named because it has it.
            let is_known = self.locks.grant_of(client, *lock).is_some();
            let need = self.contended.useful(now.time, client, *need);
            // Who asks for the attributes of a file again and again holds what it can get of the inode already: a thousand locks of
            // one kind would all have to be searched and given back. Of names and children the grant in the answer counts.
            let is_needless = match need.policy {
                LockPolicy::Bits(mask) => mask & bits::CHILDREN == 0 && self.locks.is_held(client, need),
                _ => false,
            };
            if !is_known && !is_needless {
                grants.extend(self.locks.try_grant(client, *lock, need, own));
            }
        }
        grants
    }

    fn apply_effects(&mut self, now: Now, flow: &Flow, outcome: &Outcome) {
        let client = flow.token.client;
        for effect in &outcome.effects {
            match effect {
                Effect::Opened { fid, open } if flow.token.replay.is_some() => {
                    self.opens.restore(client, *fid, *open);
                }
                Effect::Opened { fid, open } => {
                    self.opens.open(client, *fid, *open);
                    self.note_known(client, *fid, *open);
                }
                // Its client says besides what it still has open.
                Effect::Reopened { fid, open }
                    if flow.token.replay.is_some_and(|transno| transno != Transno::ZERO) =>
                {
                    self.opens.restore(client, *fid, *open);
                }
                Effect::Reopened { fid, open } if self.core.is_recovering() => {
                    self.opens.confirm(client, *fid, *open);
                }
                Effect::Reopened { fid, open } => {
                    self.opens.restore(client, *fid, *open);
                    self.note_known(client, *fid, *open);
                }
                Effect::Closed { handle } => {
                    self.note_closed(now, client, *handle);
                }
            }
        }
    }

    /// Which file it was, if it was open.
    fn note_closed(&mut self, now: Now, client: ClientId, handle: OpenHandle) -> Option<Fid> {
        let (fid, open) = self.opens.close(client, handle)?;
        if open.write {
            self.opens.linger(now.time, fid);
        }
        Some(fid)
    }

    /// The store has refused what a close was to change. Who is told so has the file open no more, and asks for nothing again: what the close
    /// would have said of a size is not known, as of a writer that is lost, and a file without a name is taken away later.
    fn end_closing(&mut self, now: Now, flow: &Flow, outcome: &Outcome, status: Status) {
        // Who is to ask again does so. So does who has sent data with it, without them.
        if status.class() != StatusClass::Answer || carries_data(&flow.request) {
            return;
        }
        for effect in &outcome.effects {
            if let Effect::Closed { handle } = effect
                && let Some(fid) = self.note_closed(now, flow.token.client, *handle)
            {
                self.unswept.insert(now.time, fid);
            }
        }
    }

    /// Who opens a file for reading may not have opened again what it writes.
    fn note_known(&mut self, client: ClientId, fid: Fid, open: OpenArgs) {
        let incarnation = self.core.incarnation_of(client).filter(|_| open.write);
        self.opens.note_known(fid, incarnation.map(|incarnation| Life { client, incarnation }));
    }

    /// Answers with a failure, and gives everything back.
    pub(in crate::machine) fn fail(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        status: Status,
        out: &mut Vec<Output>,
    ) -> Step {
        self.abort_parts(now, flow, out);
        self.reply(now, flow.token, Err(status));
        self.end(now, op, flow);
        Step::Ended
    }

    /// The flow is answered or nobody waits for its answer.
    pub(in crate::machine) fn end(&mut self, now: Now, op: OpId, flow: &mut Flow) {
        self.clear_timer(op, flow);
        self.parked.remove(&op);
        self.stop_waiting_for_fids(op);
        self.unheard_waiters.remove(op);
        self.release_claims(now, op, flow);
        self.release_rename(now, flow);
        if let Request::Mdt(request) = &flow.request {
            self.stats.add(name_of(request), now.time.since(flow.started));
        }
    }
}

fn put_grants(reply: &mut Reply, new: Vec<LockGrant>) {
    match reply {
        Reply::Mdt(MdtReply::Entry(entry) | MdtReply::Striped { entry, .. }) => entry.grants = new,
        Reply::Mdt(
            MdtReply::Absent { grants } | MdtReply::Xattrs { grants, .. } | MdtReply::Entries { grants, .. },
        ) => *grants = new,
        Reply::Peer(PeerReply::Prepared { .. }) | Reply::Mdt(_) | Reply::Done => {
            assert!(new.is_empty(), "a reply without room for grants has asked for none");
        }
        _ => {}
    }
}
