//! Replay after a restart of the target: first it is asked what has become of the requests that it has not answered; then it
//! is told what it will get (`wire::manifest`), and gets what it may have lost, in the order in which it had executed it; then
//! what the owner holds (opens, advisory locks, locks); then `ReplayDone`, whose answer means that all is durable.

use super::{Import, ImportOutput, ImportState, InFlightReplay, Kind, Purpose, Replay, Ticket};
use base::fault::{Fault, planted};
use base::{Duration, Now, Status, StatusClass, Transno, Xid, limits};
use bytes::Bytes;
use std::borrow::Cow;
use wire::manifest::{self, Replayed, Touched};
use wire::session::features;
use wire::{Frame, Manifest, MdtRequest, Request, flags};

impl Import {
    pub(super) fn start_replay(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        self.set_state(ImportState::Replaying, out);
        let is_asked = |ticket: &Ticket| {
            let pending = self.pending.get(ticket);
            pending.is_some_and(|pending| pending.kind.is_modifying())
        };
        let asked = self.by_xid.iter().filter(|(_, ticket)| is_asked(ticket));
        let asked: Vec<(Xid, Ticket)> = asked.map(|(xid, ticket)| (*xid, *ticket)).collect();
        let is_heard_of = features::has_manifests(self.features);
        self.replay = Replay {
            asked: asked.iter().map(|(xid, _)| *xid).collect(),
            sign_at: is_heard_of.then(|| now.time.after(limits::REPLAY_SIGN_INTERVAL)),
            ..Replay::default()
        };
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
        if features::has_manifests(self.features) {
            self.replay.unlisted = self.replay.todo.clone();
            self.send_manifest(now, out);
        }
        self.send_replays(now, out);
    }

    /// Tells the next part of what will be replayed, if there is one. The replays themselves do not wait for its answer.
    pub(super) fn send_manifest(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        let count = self.replay.unlisted.len().min(manifest::ENTRIES_MAX);
        let next: Vec<Transno> = self.replay.unlisted.drain(..count).collect();
        let Some(last) = next.last().copied() else { return };
        let after = std::mem::replace(&mut self.replay.listed, last);
        let replayed = |transno: &Transno| {
            let retained = self.retained.get(transno)?;
            let touched = Touched::by(&retained.request, retained.is_whole);
            Some(Replayed { transno: *transno, slot: retained.slot, touched })
        };
        let entries = next.iter().filter_map(replayed).collect();
        let is_last = self.replay.unlisted.is_empty();
        let request = Request::Manifest(Manifest { after, entries, is_last });
        let ticket = self.add(Purpose::Manifest, Kind::Reserved, request, Bytes::new(), 0);
        self.send(now, ticket, 0, out);
    }

    /// Whoever waits for others says nothing for a long time; but a recovery is to wait only for who lives. Nothing answers to it that
    /// somebody would wait for.
    pub(super) fn give_sign(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        if self.replay.sign_at.is_none_or(|at| at > now.time) {
            return;
        }
        self.replay.sign_at = Some(now.time.after(limits::REPLAY_SIGN_INTERVAL));
        let xid = self.next_xid;
        self.next_xid = xid.next();
        let mut frame = self.frame(xid);
        frame.flags |= flags::REPLAY;
        frame.body = Request::PING.to_bytes();
        out.push(ImportOutput::Send(frame));
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
            self.stop_listing();
            out.push(ImportOutput::ReplayWanted);
        }
    }

    /// The target has executed all of it, so it knew: that its answer was lost does not matter.
    fn stop_listing(&mut self) {
        let is_part = |pending: &super::Pending| pending.purpose == Purpose::Manifest;
        let parts = self.pending.iter().filter(|(_, pending)| is_part(pending));
        let parts: Vec<Ticket> = parts.map(|(ticket, _)| *ticket).collect();
        for ticket in parts {
            self.remove(ticket);
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
        frame.body = self.as_understood(&retained.request).to_bytes();
        frame.data = retained.data.clone();
        out.push(ImportOutput::Send(frame));
    }

    /// An older incarnation of the program may have taken over.
    fn as_understood<'a>(&self, request: &'a Request) -> Cow<'a, Request> {
        match request {
            // Of the others the sizes are not known any more, and whoever asks for them reports them.
            Request::Mdt(MdtRequest::ReportSizes { reports }) if self.features & features::REPORTS == 0 => {
                let first = reports.first().map(|report| Request::Mdt(report.alone()));
                first.map_or(Cow::Borrowed(request), Cow::Owned)
            }
            Request::Mdt(request) if self.features & features::MET == 0 => {
                Cow::Owned(Request::Mdt(request.clone().split_met().0))
            }
            request => Cow::Borrowed(request),
        }
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
