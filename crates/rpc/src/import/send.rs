//! What is sent when, in which slot, and when again.

use super::{
    DATA_SLOTS, Import, ImportOutput, ImportState, Kind, Pending, Purpose, Ticket, lanes, writes_for,
};
use base::{Duration, Endpoint, Now, Status, TargetKind, Time, Xid, limits};
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use wire::session::features;
use wire::{Frame, FrameKind, LockRequest, MdtRequest, MgsRequest, OstRequest, Request, flags};

impl Import {
    /// Registers a request and puts it into its queue.
    pub(super) fn add(
        &mut self,
        purpose: Purpose,
        kind: Kind,
        request: Request,
        data: Bytes,
        trace: u64,
    ) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        match (purpose, kind) {
            (Purpose::Caller, kind) if kind.is_modifying() => {
                let is_data = self.is_data(&request);
                if is_data { &mut self.data_queue } else { &mut self.modifying_queue }.push_back(ticket);
            }
            (Purpose::Caller, Kind::Plain | Kind::Ahead) => self.lanes.queue(&request, ticket),
            (Purpose::Caller, Kind::Reserved) => self.reserved_queue.push_back(ticket),
            _ => {}
        }
        let pending = Box::new(Pending {
            purpose,
            kind,
            request,
            data,
            trace,
            xid: None,
            slot: Frame::NO_SLOT,
            first_sent: Time::ZERO,
            awaited_since: None,
            is_resent: false,
            deadline: None,
            wait: limits::RESEND_FIRST,
        });
        self.pending.insert(ticket, pending);
        ticket
    }

    /// The fixed tail of every input: sends what may be sent now.
    pub(super) fn dispatch(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        if self.state == ImportState::Active || self.may_pass_recovery() {
            while let Some(ticket) = self.reserved_queue.pop_front() {
                self.send_anew(now, ticket, 0, out);
            }
        }
        if self.state != ImportState::Active {
            return;
        }
        let bounds = lanes::bounds(self.options.target.kind, self.bounds.plain);
        while let Some(ticket) = self.lanes.next(bounds) {
            self.send_anew(now, ticket, 0, out);
        }
        while !self.is_retaining_too_much()
            && let Some(slot) = self.free_slot(0..self.bounds.modifying)
            && let Some(at) = self.first_not_held(&self.modifying_queue)
            && let Some(ticket) = self.modifying_queue.remove(at)
        {
            self.send_in_slot(now, ticket, slot, out);
        }
        while !self.is_retaining_too_much()
            && let Some(slot) = self.free_slot(DATA_SLOTS)
            && let Some(at) = self.first_not_held(&self.data_queue)
            && let Some(ticket) = self.data_queue.remove(at)
        {
            self.send_in_slot(now, ticket, slot, out);
        }
    }

    /// Where in a queue the first one is that may be sent: what is held for a silent MDT takes no slot from files of others.
    fn first_not_held(&self, queue: &VecDeque<Ticket>) -> Option<usize> {
        queue.iter().position(|ticket| !self.is_held(*ticket))
    }

    fn is_held(&self, ticket: Ticket) -> bool {
        let mdt = self.pending.get(&ticket).and_then(|pending| writes_for(&pending.request));
        mdt.is_some_and(|mdt| self.held.contains(&mdt))
    }

    /// It was not executed, and what is left of it on its way belongs to a session that is over. While it is held, its slot is for others.
    pub(super) fn put_back_held(&mut self, ticket: Ticket) {
        if !self.is_held(ticket) {
            return;
        }
        let Some(pending) = self.pending.get_mut(&ticket) else { return };
        if pending.purpose != Purpose::Caller || !pending.kind.is_modifying() {
            return;
        }
        let slot = std::mem::replace(&mut pending.slot, Frame::NO_SLOT);
        if let Some(owner) = self.slots.get_mut(usize::from(slot)) {
            *owner = None;
        }
        if let Some(xid) = pending.xid.take() {
            self.by_xid.remove(&xid);
        }
        if let Some(deadline) = pending.deadline.take() {
            self.timers.remove(&(deadline, ticket));
        }
        let is_data = DATA_SLOTS.contains(&usize::from(slot));
        let queue = if is_data { &mut self.data_queue } else { &mut self.modifying_queue };
        // Tickets rise as requests come.
        queue.insert(queue.partition_point(|queued| *queued < ticket), ticket);
    }

    /// Other targets replay nothing. What they have to say may decide whether replays of clients can go on.
    pub(super) fn may_pass_recovery(&self) -> bool {
        let is_target = matches!(self.options.client.endpoint(), Endpoint::Target(_));
        is_target && self.state == ImportState::Replaying && self.replay.is_owner_asked
    }

    pub(super) fn free_slot(&self, slots: Range<usize>) -> Option<usize> {
        slots.into_iter().find(|slot| matches!(self.slots.get(*slot), Some(None)))
    }

    pub(super) fn send_in_slot(
        &mut self,
        now: Now,
        ticket: Ticket,
        slot: usize,
        out: &mut Vec<ImportOutput>,
    ) {
        if let (Some(pending), Some(owner)) = (self.pending.get_mut(&ticket), self.slots.get_mut(slot)) {
            pending.slot = slot as u16;
            *owner = Some(ticket);
            self.send_anew(now, ticket, 0, out);
        }
    }

    /// Whether a request is about data on an MDT.
    pub(super) fn is_data(&self, request: &Request) -> bool {
        let is_closing = matches!(request, Request::Mdt(MdtRequest::Close { data: Some(_), .. }));
        is_closing || self.options.target.kind == TargetKind::Mdt && matches!(request, Request::Ost(_))
    }

    pub(super) fn is_retaining_too_much(&self) -> bool {
        self.retained.len() >= limits::REPLAY_REQUESTS_MAX || self.retained_bytes >= limits::REPLAY_BYTES_MAX
    }

    /// How long a request waits before it is sent again. What gives something back is wanted by others, and what tells that this caller
    /// lives is wanted soon: they do not wait for a target that has become slow. The others do so for a while: what was lost on its way
    /// may hold up others too.
    pub(super) fn first_wait(&self, now: Now, kind: Kind) -> Duration {
        match kind {
            Kind::Reserved => limits::RESEND_FIRST,
            _ => self.estimate.late_after(now.time).min(limits::RESEND_MAX),
        }
    }

    /// Sends a request as if for the first time.
    pub(super) fn send_anew(
        &mut self,
        now: Now,
        ticket: Ticket,
        more_flags: u32,
        out: &mut Vec<ImportOutput>,
    ) {
        let Some(kind) = self.pending.get(&ticket).map(|pending| pending.kind) else { return };
        let wait = self.first_wait(now, kind);
        if let Some(pending) = self.pending.get_mut(&ticket) {
            (pending.wait, pending.awaited_since, pending.is_resent) = (wait, None, false);
        }
        self.send(now, ticket, more_flags, out);
    }

    /// Sends a request, for the first time or again, and sets its timer.
    pub(super) fn send(&mut self, now: Now, ticket: Ticket, more_flags: u32, out: &mut Vec<ImportOutput>) {
        let Some(pending) = self.pending.get_mut(&ticket) else { return };
        let body = pending.request.to_bytes();
        if body.len() > limits::FRAME_BODY_BYTES_MAX && pending.purpose == Purpose::Caller {
            // No target would read it.
            return self.complete(ticket, Err(Status::Overflow), out);
        }
        let mut frame_flags = more_flags;
        let xid = match pending.xid {
            Some(xid) => {
                frame_flags |= flags::RESENT;
                xid
            }
            None => {
                let xid = self.next_xid;
                self.next_xid = xid.next();
                pending.xid = Some(xid);
                pending.first_sent = now.time;
                self.by_xid.insert(xid, ticket);
                if pending.kind.is_plain() {
                    self.lanes.enter(&pending.request);
                }
                xid
            }
        };
        frame_flags |= pending.kind.flags();
        if matches!(pending.purpose, Purpose::OwnerReplay | Purpose::Manifest) {
            frame_flags |= flags::REPLAY;
        }
        let deadline = now.time.after(pending.wait);
        if let Some(old) = pending.deadline.replace(deadline) {
            self.timers.remove(&(old, ticket));
        }
        self.timers.insert((deadline, ticket));
        let is_question = frame_flags & flags::ASK != 0;
        if !is_question && writes_for(&pending.request).is_some_and(|mdt| self.held.contains(&mdt)) {
            return;
        }
        // Pings are answered at once, however slow everything else is.
        let is_callers = matches!(pending.purpose, Purpose::Caller | Purpose::Forgotten);
        if is_callers && !is_question && !waits_for_others(&pending.request) {
            pending.is_resent = pending.awaited_since.is_some();
            pending.awaited_since.get_or_insert(now.time);
        }
        let data = if is_question { Bytes::new() } else { pending.data.clone() };
        let (slot, trace) = (pending.slot, pending.trace);
        let mut frame = self.frame(xid);
        frame.flags |= frame_flags;
        frame.slot = slot;
        frame.trace = trace;
        frame.body = body;
        frame.data = data;
        out.push(ImportOutput::Send(frame));
    }

    pub(super) fn frame(&self, xid: Xid) -> Frame {
        let source = self.options.client.endpoint();
        let mut frame = Frame::new(FrameKind::Request, source, Endpoint::Target(self.options.target));
        frame.session = self.session;
        frame.xid = xid;
        frame.acked = self.acked();
        if !self.has_checked_data && self.features & features::UNCHECKED_DATA != 0 {
            frame.flags |= flags::UNCHECKED_DATA;
        }
        frame
    }

    /// Every reply up to this has arrived.
    pub(super) fn acked(&self) -> Xid {
        let first_open = self.by_xid.keys().next().copied().unwrap_or(self.next_xid);
        Xid(first_open.0.saturating_sub(1))
    }

    pub(super) fn on_timer(&mut self, now: Now, ticket: Ticket, out: &mut Vec<ImportOutput>) {
        let passes_recovery = self.may_pass_recovery();
        let Some(pending) = self.pending.get_mut(&ticket) else { return };
        pending.deadline = None;
        let is_sendable = match self.state {
            ImportState::Active => true,
            ImportState::Disconnecting => pending.purpose == Purpose::Disconnect,
            ImportState::Replaying => {
                let is_replay =
                    matches!(pending.purpose, Purpose::Manifest | Purpose::OwnerReplay | Purpose::ReplayDone);
                is_replay || passes_recovery
            }
            _ => false,
        };
        if let Some(since) = pending.awaited_since {
            self.estimate.on_late(now.time, since);
        }
        let is_asked = pending.xid.is_some_and(|xid| self.replay.asked.contains(&xid));
        if is_sendable || is_asked {
            pending.wait = (pending.wait * 2).min(limits::RESEND_MAX);
            self.send(now, ticket, if is_asked { flags::ASK } else { 0 }, out);
        }
    }
}

/// Whether its answer may wait for as long as somebody else likes, so that it says nothing of the target.
fn waits_for_others(request: &Request) -> bool {
    match request {
        Request::Lock(LockRequest::Enqueue { can_wait, .. }) => *can_wait,
        Request::Mdt(MdtRequest::Flock { can_wait, .. }) => *can_wait,
        Request::Ost(OstRequest::LockAndRead { .. }) => true,
        Request::Mgs(MgsRequest::GetConfig { .. }) => true,
        _ => false,
    }
}
