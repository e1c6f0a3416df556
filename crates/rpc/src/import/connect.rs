//! Connecting, and what a connect reply means for what is outstanding.

use super::{Connecting, Import, ImportOutput, ImportState, Pending, Purpose, Replay, Ticket};
use base::{Now, Status, StatusClass, WallTime, limits};
use wire::session::{SessionState, features};
use wire::{ConnectReply, ConnectRequest, Frame, MdtRequest, OstRequest, Reply, Request, Starts};

impl Import {
    pub(super) fn start_connecting(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        let xid = self.next_xid;
        self.next_xid = xid.next();
        self.drop_session_requests();
        self.connecting = Some(Connecting {
            xid,
            deadline: now.time.after(limits::RECONNECT_FIRST),
            wait: limits::RECONNECT_FIRST,
            since: now.time,
        });
        self.set_state(ImportState::Connecting, out);
        self.send_connect(out);
    }

    /// What belongs to one session only is made again in the next.
    fn drop_session_requests(&mut self) {
        self.replay = Replay::default();
        self.is_ping_out = false;
        self.pending.values_mut().for_each(|pending| pending.awaited_since = None);
        let is_of_session = |purpose| {
            matches!(purpose, Purpose::Ping | Purpose::Manifest | Purpose::OwnerReplay | Purpose::ReplayDone)
        };
        let of_session = self.pending.iter().filter(|(_, pending)| is_of_session(pending.purpose));
        let tickets: Vec<Ticket> = of_session.map(|(ticket, _)| *ticket).collect();
        for ticket in tickets {
            self.remove(ticket);
        }
    }

    pub(super) fn resend_connect(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        let Some(connecting) = &mut self.connecting else { return };
        if connecting.deadline > now.time {
            return;
        }
        connecting.wait = (connecting.wait * 2).min(limits::RECONNECT_MAX);
        connecting.deadline = now.time.after(connecting.wait);
        self.send_connect(out);
    }

    fn send_connect(&mut self, out: &mut Vec<ImportOutput>) {
        let Some(connecting) = self.connecting else { return };
        let request = Request::Connect(ConnectRequest {
            version: wire::VERSION,
            version_oldest: wire::VERSION_OLDEST,
            features: features::ALL,
            fsname: self.options.fsname.clone(),
            client: self.options.client,
            incarnation: self.options.incarnation,
            target_epoch: self.target_epoch,
            session: self.session,
            nid: self.options.nid.clone(),
            target_uuid: self.options.target_uuid,
            starts: Starts {
                of_caller: self.options.starts.clone(),
                target_at: self.target_at,
                committed: self.last_committed,
            },
        });
        let mut frame = self.frame(connecting.xid);
        frame.session = 0;
        frame.body = request.to_bytes();
        out.push(ImportOutput::Send(frame));
    }

    pub(super) fn on_connect_reply(
        &mut self,
        now: Now,
        connecting: Connecting,
        frame: &Frame,
        out: &mut Vec<ImportOutput>,
    ) {
        if frame.status == Status::Outdated && !self.hear_outdated(frame, out) {
            return;
        }
        match frame.status.class() {
            StatusClass::Retry | StatusClass::Reconnect | StatusClass::Evicted => return,
            StatusClass::Answer if frame.status == Status::Ok => {}
            StatusClass::Answer | StatusClass::Corrupt | StatusClass::Incompatible => {
                return self.on_refused(now, frame.status, out);
            }
        }
        let Ok(Reply::Connected(reply)) = Reply::from_bytes(&frame.body) else {
            return self.on_refused(now, Status::ProtocolError, out);
        };
        if !(wire::VERSION_OLDEST..=wire::VERSION).contains(&reply.version) {
            return self.on_refused(now, Status::VersionMismatch, out);
        }
        if self.options.target_uuid != 0 && reply.target_uuid != self.options.target_uuid {
            return self.on_refused(now, Status::WrongTarget, out);
        }
        self.connecting = None;
        self.last_contact = self.last_contact.max(Some(connecting.since));
        self.last_sign = now.time;
        self.clock.on_connected(now, connecting.since, WallTime(reply.server_time_ns));
        let had_session = self.session != 0;
        self.session = reply.session;
        let is_restarted = self.target_epoch != reply.target_epoch;
        if is_restarted {
            self.estimate.forget();
        }
        self.target_epoch = reply.target_epoch;
        self.target_at = reply.started_at;
        self.features = reply.features & features::ALL;
        self.software.clone_from(&reply.software);
        if had_session && reply.state == SessionState::New {
            self.on_evicted(out);
        }
        if is_restarted || reply.state == SessionState::New {
            // Before anything counts as committed: what was lost has numbers below those of a later incarnation.
            self.lose_left_behind(frame.transno, out);
        }
        if reply.state == SessionState::New {
            // Nothing is retained. What another copy of the target had said to be durable says nothing of what comes.
            self.last_committed = self.last_committed.min(frame.last_committed);
        }
        self.on_committed(frame.last_committed, out);
        self.on_session(now, &reply, had_session, out);
    }

    /// False: an answer to what an earlier incarnation of this caller has asked.
    fn hear_outdated(&self, frame: &Frame, out: &mut Vec<ImportOutput>) -> bool {
        let Ok(Reply::Outdated { caller, known }) = Reply::from_bytes(&frame.body) else { return false };
        let is_meant = self.options.starts.last() == Some(&caller);
        if is_meant {
            out.push(ImportOutput::Outdated(known));
        }
        is_meant
    }

    fn on_session(&mut self, now: Now, reply: &ConnectReply, had_session: bool, out: &mut Vec<ImportOutput>) {
        match reply.state {
            SessionState::Replay if had_session => self.start_replay(now, out),
            SessionState::Resumed if had_session => self.go_on(now, out),
            SessionState::New | SessionState::Replay | SessionState::Resumed => self.go_on(now, out),
        }
    }

    /// Nothing of what this caller holds is there any more, and nothing that it did is replayed.
    fn on_evicted(&mut self, out: &mut Vec<ImportOutput>) {
        let retained = std::mem::take(&mut self.retained);
        self.left_behind.add(retained.into_iter().map(|(transno, retained)| (transno, retained.request)));
        self.retained_bytes = 0;
        out.push(ImportOutput::Evicted);
        let ends = |pending: &Pending| {
            pending.kind.is_modifying() && !(pending.xid.is_none() && is_of_names(&pending.request))
        };
        let modifying = self.pending.iter().filter(|(_, pending)| ends(pending));
        let tickets: Vec<Ticket> = modifying.map(|(ticket, _)| *ticket).collect();
        self.end_evicted(&tickets, out);
    }

    /// Whoever changes data does so again only where it cannot have been executed.
    pub(super) fn end_evicted(&mut self, tickets: &[Ticket], out: &mut Vec<ImportOutput>) {
        for ticket in tickets {
            let is_unsent_write = self
                .pending
                .get(ticket)
                .is_some_and(|pending| pending.xid.is_none() && is_change_under_lock(&pending.request));
            let status = if is_unsent_write { Status::LockLost } else { Status::Evicted };
            self.complete(*ticket, Err(status), out);
        }
    }

    /// The session works: what was sent and not answered is sent again, in its order.
    pub(super) fn go_on(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        let leaving = self.pending.iter().find(|(_, pending)| pending.purpose == Purpose::Disconnect);
        let leaving = leaving.map(|(ticket, _)| *ticket);
        let state = if leaving.is_some() { ImportState::Disconnecting } else { ImportState::Active };
        self.set_state(state, out);
        let sent: Vec<Ticket> = self.by_xid.values().copied().collect();
        for ticket in sent {
            self.send_anew(now, ticket, 0, out);
        }
        if let Some(ticket) =
            leaving.filter(|ticket| self.pending.get(ticket).is_some_and(|p| p.xid.is_none()))
        {
            self.send(now, ticket, 0, out);
        }
    }

    /// The target refuses this caller: everybody who waits is told, and it is asked again later.
    fn on_refused(&mut self, now: Now, status: Status, out: &mut Vec<ImportOutput>) {
        if let Some(connecting) = &mut self.connecting {
            connecting.wait = limits::RECONNECT_MAX;
            connecting.deadline = now.time.after(limits::RECONNECT_MAX);
        }
        let tickets: Vec<Ticket> = self.pending.keys().copied().collect();
        for ticket in tickets {
            self.complete(ticket, Err(status), out);
        }
        self.set_state(ImportState::Refused(status), out);
    }
}

/// A change of names or of what an inode has beside its data, by nothing that a session holds: if it was not sent in the one it may be in the next.
fn is_of_names(request: &Request) -> bool {
    match request {
        Request::Mdt(MdtRequest::Setattr { set, handle, .. }) => handle.is_none() && set.size_bytes.is_none(),
        Request::Mdt(request) => matches!(
            request,
            MdtRequest::Create(_)
                | MdtRequest::Unlink { .. }
                | MdtRequest::Rmdir { .. }
                | MdtRequest::Rename { .. }
                | MdtRequest::Link { .. }
                | MdtRequest::Open { .. }
                | MdtRequest::Setxattr { .. }
                | MdtRequest::Removexattr { .. }
                | MdtRequest::SetLayout { .. }
                | MdtRequest::MakeStriped { .. }
                | MdtRequest::SetDefaultStriping { .. }
        ),
        _ => false,
    }
}

/// A change of data under a lock, which nobody was told of yet.
fn is_change_under_lock(request: &Request) -> bool {
    matches!(request, Request::Ost(OstRequest::Write { is_answered: false, .. } | OstRequest::Change { .. }))
}
