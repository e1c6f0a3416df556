//! What comes from the target, and what becomes of the requests that it answers.

use super::refill::fill_for_replay;
use super::{Answer, Import, ImportOutput, ImportState, Pending, Purpose, Retained, Ticket};
use base::{Now, Status, StatusClass, Transno, limits};
use wire::clock::told_in;
use wire::frame::flags;
use wire::{Callback, Frame, Reply};

impl Import {
    pub(super) fn on_callback(&mut self, now: Now, frame: &Frame, out: &mut Vec<ImportOutput>) {
        if frame.session != self.session || self.session == 0 {
            return;
        }
        let Ok(callback) = Callback::from_bytes(&frame.body) else { return };
        // No sign that the target hears anything of this client: who is only called back has to say that it lives.
        match callback {
            Callback::Evicted { session } if session == self.session => self.start_connecting(now, out),
            Callback::Evicted { .. } => {}
            other => out.push(ImportOutput::Callback(other)),
        }
    }

    pub(super) fn on_reply(&mut self, now: Now, frame: Frame, out: &mut Vec<ImportOutput>) {
        self.heard_at = Some(now.time);
        if let Some(connecting) = self.connecting {
            if frame.xid == connecting.xid {
                return self.on_connect_reply(now, connecting, &frame, out);
            }
            // A late answer still counts, now that its request can be replayed in its place: what others have done
            // since may build on it.
            let pending = self.by_xid.get(&frame.xid).and_then(|ticket| self.pending.get(ticket));
            let is_callers = pending
                .is_some_and(|pending| matches!(pending.purpose, Purpose::Caller | Purpose::Forgotten));
            if !is_callers || frame.status.class() != StatusClass::Answer {
                return;
            }
        }
        // A reply of another session says nothing: what it did may be gone.
        if frame.session != self.session || self.session == 0 {
            return;
        }
        self.last_sign = now.time;
        if std::mem::take(&mut self.is_overdue) {
            out.push(ImportOutput::AnswersAgain);
        }
        match frame.status.class() {
            StatusClass::Reconnect | StatusClass::Evicted => {
                let is_new_incarnation = frame.flags & flags::RECOVERING != 0;
                if self.state == ImportState::Disconnecting && self.retained.is_empty() && !is_new_incarnation
                {
                    // The target has let us go; its answer was lost, or waits for a disk, and something else arrived late. (One that
                    // was restarted waits for us.)
                    return self.end(out);
                }
                return self.start_connecting(now, out);
            }
            StatusClass::Answer | StatusClass::Retry | StatusClass::Corrupt | StatusClass::Incompatible => {}
        }
        self.on_committed(frame.last_committed, out);
        if self.replay.in_flight.contains_key(&frame.xid) {
            return self.on_replay_reply(now, frame, out);
        }
        let Some(ticket) = self.by_xid.get(&frame.xid).copied() else { return };
        let Some(pending) = self.pending.get_mut(&ticket) else { return };
        self.last_contact = self.last_contact.max(Some(pending.first_sent));
        if frame.status.class() == StatusClass::Retry && self.replay.asked.remove(&frame.xid) {
            // It was not executed; it is sent when the target has recovered.
            self.put_back_held(ticket);
            return self.try_begin_replays(now, out);
        }
        if frame.status.class() == StatusClass::Retry {
            // Not refused for long: look again soon, and less and less often.
            pending.awaited_since = None;
            pending.wait = (pending.wait / 8).max(limits::RECONNECT_FIRST);
            let deadline = now.time.after(pending.wait);
            if let Some(old) = pending.deadline.replace(deadline) {
                self.timers.remove(&(old, ticket));
            }
            self.timers.insert((deadline, ticket));
            return;
        }
        if let Some(since) = pending.awaited_since {
            self.estimate.on_answer(now.time, since, pending.is_resent);
        }
        let result = match frame.status {
            Status::Ok => match Reply::from_bytes(&frame.body) {
                Ok(reply) => Ok(Answer { reply, data: frame.data, transno: frame.transno }),
                Err(_) => Err(Status::ProtocolError),
            },
            status => Err(status),
        };
        match self.pending.get(&ticket).map(|pending| pending.purpose) {
            None => {}
            Some(Purpose::Ping) => {
                self.is_ping_out = false;
                if let Some(ping) = self.remove(ticket).filter(|_| result.is_ok()) {
                    self.clock.on_pinged(now, ping.first_sent, told_in(&frame.body));
                }
            }
            Some(Purpose::Disconnect) => self.end(out),
            Some(Purpose::Manifest) => {
                self.remove(ticket);
                self.send_manifest(now, out);
            }
            Some(Purpose::OwnerReplay) => {
                let pending = self.remove(ticket);
                if let (Err(status), Some(pending)) = (result, pending) {
                    out.push(ImportOutput::ReplayFailed { request: Box::new(pending.request), status });
                }
                self.try_end_replay(now, out);
            }
            Some(Purpose::ReplayDone) => {
                self.remove(ticket);
                self.on_recovered(now, out);
            }
            Some(Purpose::Caller | Purpose::Forgotten) => {
                self.complete(ticket, result, out);
                self.try_begin_replays(now, out);
            }
        }
    }

    /// Takes a request out, retains what it changed and hands the result over.
    pub(super) fn complete(
        &mut self,
        ticket: Ticket,
        result: Result<Answer, Status>,
        out: &mut Vec<ImportOutput>,
    ) {
        let Some(mut pending) = self.remove(ticket) else { return };
        if let (Ok(answer), Some(xid)) = (&result, pending.xid)
            && pending.kind.is_modifying()
            && answer.transno > self.last_committed
        {
            fill_for_replay(&mut pending.request, &answer.reply);
            let is_whole = wire::manifest::is_described(&answer.reply);
            self.retained_bytes += pending.data.len();
            let retained = Box::new(Retained {
                xid,
                slot: pending.slot,
                request: pending.request,
                is_whole,
                data: pending.data,
                trace: pending.trace,
            });
            if let Some(old) = self.retained.insert(answer.transno, retained) {
                // Only a confused target numbers two requests alike; the bytes must still add up.
                self.retained_bytes -= old.data.len();
            }
        }
        if pending.purpose == Purpose::Caller {
            out.push(ImportOutput::Completed { ticket, result });
        }
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Box<Pending>> {
        let pending = self.pending.remove(&ticket)?;
        if let Some(xid) = pending.xid {
            self.by_xid.remove(&xid);
            self.replay.asked.remove(&xid);
            if pending.kind.is_plain() {
                self.lanes.leave(&pending.request);
            }
        } else {
            self.modifying_queue.retain(|queued| *queued != ticket);
            self.data_queue.retain(|queued| *queued != ticket);
            self.reserved_queue.retain(|queued| *queued != ticket);
            self.lanes.forget(ticket);
        }
        if let Some(deadline) = pending.deadline {
            self.timers.remove(&(deadline, ticket));
        }
        if let Some(owner) = self.slots.get_mut(usize::from(pending.slot)) {
            *owner = None;
        }
        Some(pending)
    }

    pub(super) fn on_committed(&mut self, transno: Transno, out: &mut Vec<ImportOutput>) {
        if transno <= self.last_committed {
            return;
        }
        self.last_committed = transno;
        while let Some(first) = self.retained.first_entry().filter(|first| *first.key() <= transno) {
            self.retained_bytes -= first.remove().data.len();
        }
        self.left_behind.on_committed(transno);
        out.push(ImportOutput::Committed(transno));
    }
}
