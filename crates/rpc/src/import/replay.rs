//! Replay after a restart of the target: first it is asked what has become of the requests that it has not answered; then it
//! gets what it may have lost, in the order in which it had executed it; then
//! what the owner holds (opens, advisory locks, locks); then `ReplayDone`, whose answer means that all is durable.

use super::{Import, ImportOutput, ImportState, InFlightReplay, Kind, Purpose, Replay, Ticket};
use base::fault::{Fault, planted};
use base::{Duration, Now, Status, StatusClass, Xid, limits};
use bytes::Bytes;
use wire::session::features;
use wire::{Frame, Request, flags};

impl Import {
    pub(super) fn start_replay(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        self.set_state(ImportState::Replaying, out);
        let is_asked = |ticket: &Ticket| {
            let pending = self.pending.get(ticket);
            pending.is_some_and(|pending| pending.kind.is_modifying())
        };
        let asked = self.by_xid.iter().filter(|(_, ticket)| is_asked(ticket));
        let asked: Vec<(Xid, Ticket)> = asked.map(|(xid, ticket)| (*xid, *ticket)).collect();
        self.replay = Replay { asked: asked.iter().map(|(xid, _)| *xid).collect(), ..Replay::default() };
        for (_, ticket) in asked {
            if let Some(pending) = self.pending.get_mut(&ticket) {
                pending.wait = limits::RESEND_FIRST;
            }
            self.send(now, ticket, flags::ASK, out);
        }
        self.try_begin_replays(now, out);
    }

    /// When every question is answered.
    pub(super) fn try_begin_replays(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        let is_due = self.state == ImportState::Replaying && self.replay.asked.is_empty();
        if !is_due || std::mem::replace(&mut self.replay.has_begun, true) {
            return;
        }
        self.replay.todo = self.retained.keys().copied().collect();
        if planted(Fault::ReplaySkipped) {
            self.replay.todo.pop_front();
        }
        self.send_replays(now, out);
    }

    /// The answer to `ReplayWanted`: `Reopen`, `ReplayFlocks`, `Lock::Replay`. Refused ones are reported by
    /// `ReplayFailed`. Ignored when the session has changed in between; it is asked for again then.
    pub fn replay_now(&mut self, now: Now, requests: Vec<(Request, Bytes)>, out: &mut Vec<ImportOutput>) {
        if self.state != ImportState::Replaying || !self.replay.is_owner_asked {
            return;
        }
        for (request, data) in requests {
            let ticket = self.add(Purpose::OwnerReplay, Kind::Reserved, request, data, 0);
            self.send(now, ticket, 0, out);
        }
        self.try_end_replay(now, out);
    }

    fn send_replays(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        while self.replay.in_flight.len() < limits::REPLAYS_IN_FLIGHT_MAX
            && let Some(transno) = self.replay.todo.pop_front()
        {
            let Some(retained) = self.retained.get(&transno) else { continue };
            let replay = InFlightReplay {
                transno,
                previous: self.replay.previous,
                deadline: now.time.after(limits::RESEND_FIRST),
                wait: limits::RESEND_FIRST,
            };
            let xid = retained.xid;
            self.replay.previous = transno;
            self.replay.in_flight.insert(xid, replay);
            self.send_replay(xid, 0, out);
        }
        if self.replay.in_flight.is_empty() && !self.replay.is_owner_asked {
            self.replay.is_owner_asked = true;
            out.push(ImportOutput::ReplayWanted);
        }
    }

    fn send_replay(&self, xid: Xid, more_flags: u32, out: &mut Vec<ImportOutput>) {
        let Some(replay) = self.replay.in_flight.get(&xid) else { return };
        let Some(retained) = self.retained.get(&replay.transno) else { return };
        let mut frame = self.frame(xid);
        frame.flags |= flags::REPLAY | more_flags;
        frame.slot = retained.slot;
        frame.transno = replay.transno;
        // The replay before this one, so that the target notices when one is missing.
        frame.last_committed = replay.previous;
        frame.trace = retained.trace;
        frame.body = match &retained.request {
            // An older incarnation of the program may have taken over.
            Request::Mdt(request) if self.features & features::MET == 0 => {
                Request::Mdt(request.clone().split_met().0).to_bytes()
            }
            request => request.to_bytes(),
        };
        frame.data = retained.data.clone();
        out.push(ImportOutput::Send(frame));
    }

    pub(super) fn resend_replays(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        let due = self.replay.in_flight.iter().filter(|(_, replay)| replay.deadline <= now.time);
        let due: Vec<Xid> = due.map(|(xid, _)| *xid).collect();
        for xid in due {
            if let Some(replay) = self.replay.in_flight.get_mut(&xid) {
                replay.wait = later(replay.wait);
                replay.deadline = now.time.after(replay.wait);
            }
            self.send_replay(xid, flags::RESENT, out);
        }
    }

    pub(super) fn on_replay_reply(&mut self, now: Now, frame: Frame, out: &mut Vec<ImportOutput>) {
        if frame.status.class() == StatusClass::Retry {
            return;
        }
        let Some(replay) = self.replay.in_flight.remove(&frame.xid) else { return };
        if frame.status != Status::Ok
            && let Some(lost) = self.retained.remove(&replay.transno)
        {
            self.retained_bytes -= lost.data.len();
            let request = Box::new(lost.request);
            out.push(ImportOutput::ReplayFailed { request, status: frame.status });
        }
        self.send_replays(now, out);
    }

    /// All of the owner's replays answered: say so.
    pub(super) fn try_end_replay(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        let is_busy = |purpose| matches!(purpose, Purpose::OwnerReplay | Purpose::ReplayDone);
        if self.pending.values().any(|pending| is_busy(pending.purpose)) {
            return;
        }
        let ticket = self.add(Purpose::ReplayDone, Kind::Reserved, Request::ReplayDone, Bytes::new(), 0);
        self.send(now, ticket, 0, out);
        if self.may_pass_recovery() {
            let is_callers = |ticket: &Ticket| {
                self.pending.get(ticket).is_some_and(|pending| pending.purpose == Purpose::Caller)
            };
            let unanswered: Vec<Ticket> = self.by_xid.values().copied().filter(is_callers).collect();
            for ticket in unanswered {
                self.send_anew(now, ticket, 0, out);
            }
        }
    }

    /// `ReplayDone` is answered only when everything replayed is durable, so its `last_committed` has dropped all
    /// that was retained before; nothing has to be renumbered.
    pub(super) fn on_recovered(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        self.replay = Replay::default();
        out.push(ImportOutput::Recovered);
        self.go_on(now, out);
    }
}

fn later(wait: Duration) -> Duration {
    (wait * 2).min(limits::RESEND_MAX)
}
