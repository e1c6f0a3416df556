//! Recovery after a restart: the clients that had a session are waited for, until it is known what each of them replays; what has to do
//! with each other is executed in the order in which it had been before, over all clients (`order`, `manifest`); then everything is made
//! durable, and only then is recovery over.
//!
//! A crash in between starts it again from the same base: the row of the state says so until the end.
//!
//! A recovery is *lossless* when only the process had died, and the owner knows what each client had locked and open (`Core::open_after`).
//! Then there is nothing to replay and no base to go back to: all that was answered is durable when the target opens. Each client names
//! what it holds, and is served from then on; what others hold is in its way as if they were there.

use super::kept::KeptElsewhere;
use super::manifest::{LISTED_MAX, SLOTS};
use super::named::Named;
use super::order::Order;
use super::queue::{Queued, ReplayQueue};
use super::roll::Roll;
use super::rows;
use super::session::session_number;
use super::unheard::Unheard;
use super::{Core, CoreEvent, CoreOutput, EvictReason, Slot, SlotState, Token};
use base::{ClientId, Duration, Now, Status, StatusClass, Time, Transno, WallTime, Xid, limits};
use std::collections::BTreeMap;
use store::{Batch, MetaStore};
use wire::{Frame, LockRequest, MdtRequest, Request};

/// Recovery under way.
#[derive(Debug)]
pub(super) struct Recovery {
    /// Somebody had a session.
    pub is_needed: bool,
    /// Nothing that was answered is lost, and the owner knows what clients held.
    pub is_lossless: bool,
    /// Such a one serves what is new.
    pub is_serving: bool,
    /// Of the recovery, whenever the target began to listen.
    begun: Time,
    started: Time,
    /// When the window began.
    since: Time,
    pub deadline: Time,
    /// By the time in which the target stood still.
    prolonged: Duration,
    /// The window has passed, and who had not come back by then is gone. Those who had, and whose replays waited for
    /// the absent, have the same time once more, but not beyond the hard limit.
    is_window_over: bool,
    pub roll: Roll,
    /// Replays that are to be executed, and those that the owner executes now.
    pub order: Order,
    /// Targets that are not heard, and that replays wait for.
    pub unheard: Unheard,
    /// All have replayed; what must be durable before the end is written.
    pub drained_at: Option<Transno>,
    /// The row that ends it.
    pub end_at: Option<Transno>,
    evicted: usize,
    /// Awaited clients that are served already.
    served: usize,
    pub kept: KeptElsewhere,
}

impl Recovery {
    pub fn is_window_over(&self) -> bool {
        self.is_window_over
    }
}

/// The recovery after the last start, for `recovery_status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    pub started: WallTime,
    /// `None` while it lasts.
    pub ended: Option<WallTime>,
    /// From start to end, by the clock that nobody sets.
    pub took: Duration,
    /// Clients that had a session before; none of them: nothing had to be recovered.
    pub awaited_count: usize,
    /// Of those, connected or back so far.
    pub returned_count: usize,
    /// Of those, all their replays have come, and they say now what they have open and locked.
    pub locking_count: usize,
    /// Of those that are back, all of that is done too.
    pub completed_count: usize,
    pub evicted_count: usize,
    /// Requests that were executed again.
    pub replayed_count: u64,
    /// Requests that depended on something that was lost, or were not what their clients had said.
    pub refused_count: u64,
    /// Clients for whose manifests there was no room (`limits::LISTED_OBJECTS_MAX`).
    pub unlisted_count: usize,
    /// Of those that were executed, requests of clients that are gone, which another target had kept.
    pub stood_in_count: u64,
    /// Nothing that was answered was lost, so nothing is replayed, and who has come does not wait for the others.
    pub is_lossless: bool,
    /// New requests of mounts that were answered before it ended.
    pub early_count: u64,
    /// What is listed of what is to be executed again: requests, with their slots and the inodes that they touch.
    pub listed_object_count: usize,
    /// Requests that wait for their turn to be executed again.
    pub queued_count: usize,
    /// Until the absent are given up; zero when it is over.
    pub time_left: Duration,
}

/// A client that a recovery waits for.
#[derive(Clone, Copy, Debug)]
pub struct Missing<'a> {
    pub client: ClientId,
    pub nid: &'a str,
}

/// What is known of a client that is waited for.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// It says first what it replays. (Others: the last replay that was executed says which is the next.)
    pub lists: bool,
    /// How much of that has come.
    pub listed_to: Transno,
    pub listed_count: usize,
    pub is_listed: bool,
    /// There was no room for it: as if it listed nothing.
    pub has_no_room: bool,
    /// Of what it has listed, with what became of it: the answer may be lost. (Without a list: what was refused.)
    pub executed: BTreeMap<Transno, Status>,
    /// What has come and is not being executed.
    pub queue: ReplayQueue,
    replayed_to: Transno,
    /// The same before the last one was begun.
    replayed_before: Transno,
    /// Replays that the owner executes now.
    running_count: usize,
    /// No replay is missing: the client has gone on to its opens and locks.
    pub is_replayed: bool,
    /// Those, in the order in which it says them, until the replays of all clients are executed: what it has open another client may
    /// have made.
    held: Named,
    /// Its `ReplayDone`.
    pub done: Option<Box<Frame>>,
    /// The client is gone, and its replays are those that another target has kept.
    pub is_stood_in: bool,
    /// Its last connect. What it has said before that it says again.
    attempt: Xid,
}

impl Awaited {
    /// What it replays is listed here, or will be.
    pub fn has_list(&self) -> bool {
        self.lists && !self.has_no_room
    }

    /// The next replay of a client that has no list here, if it has arrived.
    pub fn next(&self) -> Option<(Transno, &Queued)> {
        self.queue.first().filter(|(_, queued)| queued.frame.last_committed == self.replayed_to)
    }

    pub fn stand_in(&mut self, queue: ReplayQueue) {
        *self = Awaited {
            queue,
            replayed_to: self.replayed_to,
            running_count: self.running_count,
            is_stood_in: true,
            ..Awaited::default()
        };
    }

    /// What it has open and locked has come, and waits.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// It has said that it is done, and nothing of what it has said waits.
    pub fn has_returned(&self) -> bool {
        self.done.is_some() && self.held.is_empty()
    }

    /// It says what it has open and locked.
    pub fn is_locking(&self) -> bool {
        self.is_replayed && !self.is_done()
    }

    /// Nothing more comes of it.
    pub fn is_done(&self) -> bool {
        self.done.is_some() || (self.is_stood_in && self.queue.is_empty() && self.running_count == 0)
    }

    /// For how long the client may be silent before its lease matters; `None` when it is done, and waits for others. One that does not
    /// say each second that it lives, has come and waits for answers, says the same again only from time to time.
    pub fn patience(&self) -> Option<Duration> {
        let has_come = self.is_replayed || !self.queue.is_empty() || !self.held.is_empty();
        let waiting = if has_come && !self.lists { limits::RESEND_MAX } else { Duration::ZERO };
        (self.done.is_none() && !self.is_stood_in).then_some(limits::LEASE + waiting)
    }

    /// Whether it is known what it replays: all of it, or what is next.
    pub fn is_known(&self) -> bool {
        let is_known = if self.has_list() { self.is_listed } else { self.next().is_some() };
        self.is_replayed || self.is_stood_in || self.done.is_some() || is_known
    }
}

impl<M: MetaStore> Core<M> {
    /// At open: everybody who had a session is awaited.
    pub(super) fn begin_recovery(&mut self, base: Transno, is_lossless: bool) {
        let is_needed = !self.exports.is_empty();
        let is_lossless = is_lossless && is_needed;
        for export in self.exports.values_mut() {
            export.session = session_number(self.epoch, export.session);
            export.awaited = Some(Awaited::default());
        }
        self.committed = base;
        self.last_recovery = RecoveryReport {
            started: self.now.wall,
            awaited_count: self.exports.len(),
            is_lossless,
            ..RecoveryReport::default()
        };
        self.recovery = Some(Recovery {
            is_needed,
            is_lossless,
            is_serving: false,
            begun: self.now.time,
            started: self.now.time,
            since: self.now.time,
            deadline: self.now.time.after(self.options.recovery_window.min(self.recovery_hard / 2)),
            prolonged: Duration::ZERO,
            is_window_over: false,
            roll: Roll::default(),
            order: Order::default(),
            unheard: Unheard::default(),
            drained_at: None,
            end_at: None,
            evicted: 0,
            served: 0,
            kept: KeptElsewhere::default(),
        });
        let clients: Vec<ClientId> = self.exports.keys().copied().collect();
        clients.into_iter().for_each(|client| self.note_change(client));
    }

    /// The target listens from now on: nobody could come before.
    pub(super) fn begin_window(&mut self) {
        if let Some(recovery) = &mut self.recovery {
            (recovery.started, recovery.since) = (self.now.time, self.now.time);
        }
        self.set_deadline();
    }

    /// An operator changes how long the absent are waited for, also in a recovery that is under way.
    pub fn set_recovery_window(&mut self, window: Duration) {
        self.options.recovery_window = window;
        self.set_deadline();
    }

    /// How long a recovery takes at most, whoever has come back.
    pub fn recovery_hard(&self) -> Duration {
        self.recovery_hard
    }

    /// As `set_recovery_window`.
    pub fn set_recovery_hard(&mut self, limit: Duration) {
        self.recovery_hard = limit;
        self.set_deadline();
    }

    /// Nothing was read for so long: nobody could come. A disk that hangs again and again prolongs it by no more than the hard limit, and a time
    /// that is longer than that alone by all of it.
    pub(super) fn prolong_window(&mut self, stood_still: Duration) {
        let hard = self.recovery_hard;
        if let Some(recovery) = &mut self.recovery {
            let is_one_of_many = stood_still < hard;
            let by = if is_one_of_many {
                stood_still.min(hard.saturating_sub(recovery.prolonged))
            } else {
                stood_still
            };
            if is_one_of_many {
                recovery.prolonged += by;
            }
            recovery.started = recovery.started.after(by);
            recovery.since = recovery.since.after(by);
        }
        self.set_deadline();
    }

    /// Those who have come get all of their time from now on: what they replay could not be executed.
    pub(super) fn put_off_end(&mut self) {
        let now = self.now.time;
        if let Some(recovery) = self.recovery.as_mut().filter(|recovery| recovery.is_window_over) {
            (recovery.started, recovery.since) = (now, now);
        }
        self.set_deadline();
    }

    fn set_deadline(&mut self) {
        let (window, hard) = (self.options.recovery_window, self.recovery_hard);
        if let Some(recovery) = &mut self.recovery {
            // Who has come gets a part of the time too, however it is set.
            let limit = if recovery.is_window_over { hard } else { hard / 2 };
            recovery.deadline = recovery.since.after(window).min(recovery.started.after(limit));
        }
    }

    /// An operator wants no more waiting for those who are missing: they lose their sessions. Nothing happens without a recovery.
    pub fn abort_recovery(&mut self, now: Now, out: &mut Vec<CoreOutput>) {
        self.go_on_at(now);
        let missing: Vec<ClientId> = self.missing().iter().map(|missing| missing.client).collect();
        if let Some(recovery) = &mut self.recovery {
            // Those who have come finish now.
            recovery.is_window_over = true;
            recovery.since = now.time;
            recovery.unheard.stop_awaiting();
        }
        self.set_deadline();
        self.stop_awaiting_kept();
        for client in missing {
            self.give_up(client, EvictReason::Recovery, out);
        }
        self.settle(out);
    }

    /// Clients that hold up the recovery: those who have not come, and when all have, those who are not done.
    pub fn missing(&self) -> Vec<Missing<'_>> {
        let Some(recovery) = self.recovery.as_ref().filter(|recovery| recovery.is_needed) else {
            return Vec::new();
        };
        let is_unfinished = |awaited: &&Awaited| recovery.is_lossless || !awaited.is_done();
        let unfinished = self.exports.iter().filter_map(|(client, export)| {
            let awaited = export.awaited.as_ref().filter(is_unfinished)?;
            let has_come = awaited.is_known() && !recovery.order.is_owing(*client);
            Some((has_come, Missing { client: *client, nid: &export.nid }))
        });
        let (come, absent): (Vec<_>, Vec<_>) = unfinished.partition(|(has_come, _)| *has_come);
        let holding_up = if absent.is_empty() { come } else { absent };
        holding_up.into_iter().map(|(_, missing)| missing).collect()
    }

    pub fn recovery_report(&self, now: Time) -> RecoveryReport {
        let Some(recovery) = &self.recovery else { return self.last_recovery };
        let awaited = || self.exports.values().filter_map(|export| export.awaited.as_ref());
        RecoveryReport {
            returned_count: recovery.served + awaited().filter(|awaited| awaited.is_known()).count(),
            locking_count: awaited().filter(|awaited| awaited.is_locking()).count(),
            completed_count: recovery.served + awaited().filter(|awaited| awaited.is_done()).count(),
            evicted_count: recovery.evicted,
            listed_object_count: recovery.order.object_count(),
            queued_count: awaited().map(|awaited| awaited.queue.len()).sum(),
            time_left: recovery.deadline.since(now),
            ..self.last_recovery
        }
    }

    pub(super) fn announce_recovery(&mut self, out: &mut Vec<CoreOutput>) {
        let awaited = self.exports.len();
        if awaited > 0 {
            out.push(CoreOutput::Event(CoreEvent::RecoveryStarted { awaited }));
        }
    }

    /// The client connects (again) and starts its replays from the beginning. False: it has connected since, and this is a late copy.
    pub(super) fn restart_awaiting(&mut self, client: ClientId, connect: Xid) -> bool {
        self.note_alive(client);
        self.note_change(client);
        let awaited = self.exports.get_mut(&client).and_then(|export| export.awaited.as_mut());
        let Some(awaited) = awaited else { return true };
        if connect > awaited.attempt {
            awaited.attempt = connect;
            awaited.done = None;
            // It says them anew.
            awaited.held = Named::default();
        }
        connect == awaited.attempt
    }

    /// All have said that they are done, and the end waits for the disk: whoever connects now has nothing to say again.
    pub(super) fn is_drained(&self) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery.drained_at.is_some())
    }

    /// A request from before the restart, or one that makes opens and locks known again. One that is not known here (this program is
    /// older than the one before the restart) is refused in its place: what is behind it goes on.
    pub(super) fn on_replay(
        &mut self,
        frame: Frame,
        request: Result<Request, Status>,
        out: &mut Vec<CoreOutput>,
    ) {
        let client = frame.src.client_id();
        self.note_change(client);
        let Some(export) = self.exports.get_mut(&client) else { return };
        let acked = export.acked;
        // Not awaited: it has said that it is done, so this is a late copy.
        let Some(awaited) = export.awaited.as_mut().filter(|awaited| !awaited.is_stood_in) else { return };
        if frame.transno == Transno::ZERO {
            let request = match request {
                Ok(request) => request,
                Err(refused) => return self.answer_refusal(&frame, refused, out),
            };
            if frame.slot != Frame::NO_SLOT || !names_what_is_held(&request) {
                let what = "a replay without a number names nothing open and no lock";
                out.push(CoreOutput::Event(CoreEvent::ProtocolError { client, what }));
                return self.answer_refusal(&frame, Status::ProtocolError, out);
            }
            if frame.xid > acked.max(awaited.attempt) {
                let is_news = !std::mem::replace(&mut awaited.is_replayed, true);
                awaited.held.push(frame, request);
                if is_news {
                    self.stop_listing(client);
                }
            }
            return;
        }
        if self.recovery.as_ref().is_some_and(|recovery| recovery.is_lossless) {
            // It was told that all is committed.
            return self.answer_refusal(&frame, Status::ProtocolError, out);
        }
        if let Some(status) = awaited.executed.get(&frame.transno).copied() {
            return match status {
                Status::Ok => self.answer_done(&frame, out),
                refused => self.answer_refusal(&frame, refused, out),
            };
        }
        let has_started = |recovery: &Recovery| recovery.order.has_started((frame.transno, client));
        if self.recovery.as_ref().is_some_and(has_started) {
            return;
        }
        if awaited.has_list() {
            return self.on_listed_replay(Queued { frame, request }, out);
        }
        if frame.transno <= awaited.replayed_to {
            return self.answer_done(&frame, out);
        }
        if frame.slot >= SLOTS {
            return self.answer_refusal(&frame, Status::ProtocolError, out);
        }
        let mut frame = frame;
        // A client that begins again may name an earlier one before it; what lies between is executed.
        frame.last_committed = frame.last_committed.max(awaited.replayed_to);
        awaited.queue.insert(Queued { frame, request });
        self.drop_excess(client);
        self.list_next_of(client);
    }

    pub(super) fn on_replay_done(&mut self, frame: Frame, out: &mut Vec<CoreOutput>) {
        let client = frame.src.client_id();
        self.note_change(client);
        let Some(export) = self.exports.get_mut(&client) else { return };
        match &mut export.awaited {
            Some(awaited) if awaited.is_stood_in || frame.xid < awaited.attempt => {}
            Some(awaited) => {
                awaited.done = Some(Box::new(frame));
                self.stop_listing(client);
            }
            None => self.answer_done(&frame, out),
        }
    }

    /// Moves recovery on as far as it goes.
    pub(super) fn settle_recovery(&mut self, out: &mut Vec<CoreOutput>) {
        if self.recovery.is_none() {
            return;
        }
        if self.is_lossless() {
            // Who has just said that he is done is not missing.
            self.start_held(out);
            self.serve_returned(out);
        }
        if self.is_lossless() {
            self.try_serve(out);
        } else {
            self.run_replays(out);
        }
        self.try_drain(out);
        self.try_end(out);
        // Whoever asks before the next input finds all looked at.
        self.call_roll();
    }

    /// Whether the end of the window would mean anything: a recovery that waits for its own disk has nobody to give up.
    pub(super) fn is_somebody_awaited(&self) -> bool {
        let is_drained = self.recovery.as_ref().is_none_or(|recovery| recovery.drained_at.is_some());
        self.is_open && !is_drained && self.is_somebody_holding_up()
    }

    /// A client is waited for no longer, because it is there.
    pub(super) fn end_awaiting(&mut self, client: ClientId, out: &mut Vec<CoreOutput>) {
        let awaited = self.exports.get_mut(&client).and_then(|export| export.awaited.take());
        if awaited.is_none() {
            return;
        }
        self.note_change(client);
        self.forget_replays_of(client);
        if let Some(recovery) = self.recovery.as_mut().filter(|recovery| recovery.is_lossless) {
            recovery.served += 1;
            out.push(CoreOutput::Returned(client));
            if let Some(frame) = awaited.and_then(|awaited| awaited.done) {
                self.answer_done(&frame, out);
            }
        }
    }

    /// Whoever has named what it holds goes on. What it has named is known by then: all of it is answered.
    fn serve_returned(&mut self, out: &mut Vec<CoreOutput>) {
        let returned = self.call_roll().map(|roll| roll.returned()).unwrap_or_default();
        for client in returned {
            if self.exports.get(&client).is_some_and(|export| export.begun.plain.is_empty()) {
                self.end_awaiting(client, out);
            }
        }
    }

    /// A lossless recovery serves what is new as soon as all targets are back: what they had under way here is not noted. (On an OST they
    /// have nothing under way that they would not ask for again.)
    pub(super) fn try_serve(&mut self, out: &mut Vec<CoreOutput>) {
        let is_due = |recovery: &Recovery| recovery.is_lossless && !recovery.is_serving;
        if !self.recovery.as_ref().is_some_and(is_due) {
            return;
        }
        if !self.options.has_external_data && self.call_roll().is_some_and(|roll| roll.is_target_awaited()) {
            return;
        }
        if let Some(recovery) = &mut self.recovery {
            recovery.is_serving = true;
            for frame in self.held_frames.take() {
                self.on_request(frame, out);
            }
        }
    }

    /// The end of the window. Only ticks look for it: they come behind the frames that a server which stood still has not read.
    pub(super) fn evict_missing(&mut self, out: &mut Vec<CoreOutput>) {
        let Some(recovery) = &self.recovery else { return };
        if recovery.drained_at.is_some() || self.now.time < recovery.deadline {
            return;
        }
        let is_window_over = recovery.is_window_over;
        let is_missing = |client: ClientId, awaited: &Awaited| match is_window_over {
            false => !awaited.is_known() || recovery.order.is_owing(client),
            // In a lossless one who is done is served, and awaited no longer, unless something of it has no end.
            true => recovery.is_lossless || !awaited.is_done(),
        };
        let awaited =
            self.exports.iter().filter_map(|(client, export)| Some((*client, export.awaited.as_ref()?)));
        let missing: Vec<ClientId> = awaited
            .filter(|(client, awaited)| is_missing(*client, awaited))
            .map(|(client, _)| client)
            .collect();
        if let Some(recovery) = &mut self.recovery {
            recovery.is_window_over = true;
            recovery.since = self.now.time;
        }
        self.set_deadline();
        self.stop_awaiting_kept();
        for client in missing {
            match is_window_over {
                false => self.give_up(client, EvictReason::Recovery, out),
                // What stands in for it too has had its time.
                true => {
                    self.drop_client(client, EvictReason::Recovery, out);
                    self.count_evicted();
                }
            }
        }
    }

    pub(super) fn count_evicted(&mut self) {
        if let Some(recovery) = &mut self.recovery {
            recovery.evicted += 1;
        }
    }

    /// Another target was restarted too. It has lost nothing with its former session: what it had under way it asks for again, from its own rows.
    pub(super) fn count_back(&mut self) {
        if let Some(recovery) = &mut self.recovery {
            recovery.served += 1;
        }
    }

    /// Executes replays, once it is known what every awaited client replays.
    fn run_replays(&mut self, out: &mut Vec<CoreOutput>) {
        loop {
            let Some(recovery) = &self.recovery else { return };
            let (is_nothing_to_do, has_candidates) =
                (recovery.order.is_empty(), recovery.order.has_candidates());
            if !has_candidates && !is_nothing_to_do {
                return;
            }
            if self.call_roll().is_some_and(|roll| roll.is_somebody_unknown()) {
                return;
            }
            if is_nothing_to_do {
                return self.start_held(out);
            }
            let next = self.recovery.as_mut().and_then(|recovery| recovery.order.start_next());
            let Some((transno, client)) = next else { return };
            self.run_replay(transno, client, out);
        }
    }

    fn run_replay(&mut self, transno: Transno, client: ClientId, out: &mut Vec<CoreOutput>) {
        self.note_change(client);
        let Some(export) = self.exports.get_mut(&client) else { return };
        let Some(awaited) = &mut export.awaited else { return };
        let Some(Queued { frame, request }) = awaited.queue.remove(transno) else { return };
        awaited.replayed_before = std::mem::replace(&mut awaited.replayed_to, transno);
        awaited.running_count += 1;
        // One that was put back has its slot, and was not executed.
        let is_row = |slot: &Slot| {
            slot.xid > frame.xid || (slot.xid == frame.xid && !matches!(slot.state, SlotState::Refused))
        };
        let has_row = export.slots.get(&frame.slot).is_some_and(is_row);
        if has_row && !self.options.has_external_data {
            // An earlier recovery, which did not end, has executed it.
            self.answer_done(&frame, out);
            return self.end_replay(transno, client, Status::Ok);
        }
        let request = match request {
            Ok(request) => request,
            Err(status) => {
                self.answer_refusal(&frame, status, out);
                self.note_refused(client, transno, status, out);
                return self.end_replay(transno, client, status);
            }
        };
        if has_row {
            // Data outside may be lost although the row is not: do it again.
            export.slots.remove(&frame.slot);
        }
        self.last_recovery.replayed_count += 1;
        self.start_modifying(&frame, request, Some(transno), out);
    }

    fn note_refused(
        &mut self,
        client: ClientId,
        transno: Transno,
        status: Status,
        out: &mut Vec<CoreOutput>,
    ) {
        self.last_recovery.refused_count += 1;
        out.push(CoreOutput::Event(CoreEvent::ReplayRefused { client, transno, status }));
    }

    /// What had to wait for this replay may go.
    fn end_replay(&mut self, transno: Transno, client: ClientId, status: Status) {
        self.note_change(client);
        if let Some(awaited) = self.exports.get_mut(&client).and_then(|export| export.awaited.as_mut()) {
            awaited.running_count = awaited.running_count.saturating_sub(1);
            let is_refused = status != Status::Ok && awaited.executed.len() < LISTED_MAX;
            if awaited.has_list() || is_refused {
                awaited.executed.insert(transno, status);
            }
        }
        let next = self.next_of(client);
        if let Some(recovery) = &mut self.recovery {
            recovery.order.end((transno, client), next);
        }
    }

    /// All replays that have come are executed: what clients have open and locked.
    fn start_held(&mut self, out: &mut Vec<CoreOutput>) {
        let holding = self.call_roll().map(|roll| roll.holding()).unwrap_or_default();
        let mut held = Vec::new();
        for client in holding {
            self.note_change(client);
            let awaited = self.exports.get_mut(&client).and_then(|export| export.awaited.as_mut());
            let its = awaited.map(|awaited| std::mem::take(&mut awaited.held)).unwrap_or_default();
            held.extend(its.into_requests());
        }
        for (frame, request) in held {
            self.start_plain(&frame, request, Some(Transno::ZERO), out);
        }
    }

    pub(super) fn on_replay_finished(&mut self, token: Token, status: Status, out: &mut Vec<CoreOutput>) {
        let Some(transno) = token.replay.filter(|transno| *transno != Transno::ZERO) else { return };
        self.note_change(token.client);
        let awaited = self.exports.get_mut(&token.client).and_then(|export| export.awaited.as_mut());
        let comes_again = |awaited: &&mut Awaited| !awaited.is_stood_in && !awaited.has_replayed();
        if status.class() == StatusClass::Retry
            && let Some(awaited) = awaited.filter(comes_again)
            && let Some(recovery) = &mut self.recovery
        {
            awaited.running_count = awaited.running_count.saturating_sub(1);
            if !awaited.has_list() {
                awaited.replayed_to = awaited.replayed_before;
            }
            recovery.order.put_back((transno, token.client));
            return;
        }
        if status != Status::Ok {
            self.note_refused(token.client, transno, status, out);
        }
        self.end_replay(transno, token.client, status);
    }

    /// All have said that they are done: what they replayed must be durable.
    fn try_drain(&mut self, out: &mut Vec<CoreOutput>) {
        let is_lossless = self.is_lossless();
        // In a lossless one who is done is not awaited any more.
        let is_over = |roll: super::roll::Called<'_>| {
            let is_awaited = is_lossless && roll.is_somebody_awaited();
            !is_awaited && !roll.is_somebody_unfinished()
        };
        let is_done = self.is_open && self.call_roll().is_some_and(is_over);
        let is_drained = |recovery: &Recovery| !recovery.order.is_empty() || recovery.drained_at.is_some();
        if !is_done || self.recovery.as_ref().is_none_or(is_drained) {
            return;
        }
        self.drop_stood_in(out);
        let transno = self.transno;
        if let Some(recovery) = &mut self.recovery {
            recovery.drained_at = Some(transno);
            if recovery.is_needed {
                self.kick();
            }
        }
    }

    fn try_end(&mut self, out: &mut Vec<CoreOutput>) {
        let Some(recovery) = &self.recovery else { return };
        let Some(drained_at) = recovery.drained_at else { return };
        if !recovery.is_needed {
            return self.end_recovery(self.open_at, out);
        }
        if recovery.is_lossless {
            return self.end_recovery(self.committed, out);
        }
        let Some(end_at) = recovery.end_at else {
            // Data first: the mark in the last row says that everything before it is committed.
            if self.options.has_external_data && self.durable() < drained_at {
                return;
            }
            return self.write_end(out);
        };
        if self.store.durable() >= end_at {
            self.end_recovery(drained_at, out);
        }
    }

    fn write_end(&mut self, out: &mut Vec<CoreOutput>) {
        let mut row = self.state_row();
        row.is_recovering = false;
        let mut batch = Batch::new();
        rows::put_state(&mut batch, &row);
        let Some(recovery) = &mut self.recovery else { return };
        let end_at = self.transno.next();
        recovery.end_at = Some(end_at);
        if self.apply(end_at, batch).is_err() {
            // Poisoned: the target ends here, and recovers on sound storage.
            if let Some(recovery) = &mut self.recovery {
                recovery.end_at = None;
            }
            return;
        }
        self.kick();
        self.try_end(out);
    }

    fn end_recovery(&mut self, committed: Transno, out: &mut Vec<CoreOutput>) {
        let Some(recovery) = self.recovery.take() else { return };
        self.committed = self.committed.max(committed);
        let mut returned = recovery.served;
        let mut answers = Vec::new();
        for export in self.exports.values_mut() {
            if let Some(awaited) = export.awaited.take() {
                returned += 1;
                answers.extend(awaited.done);
            }
        }
        self.last_recovery.ended = Some(self.now.wall);
        self.last_recovery.took = self.now.time.since(recovery.begun);
        self.last_recovery.returned_count = returned;
        self.last_recovery.completed_count = returned;
        self.last_recovery.evicted_count = recovery.evicted;
        out.push(CoreOutput::RecoveryEnded);
        if recovery.is_needed {
            let evicted = recovery.evicted;
            out.push(CoreOutput::Event(CoreEvent::RecoveryEnded { returned, evicted }));
        }
        for frame in answers {
            self.answer_done(&frame, out);
        }
        for frame in self.held_frames.take() {
            self.on_request(frame, out);
        }
    }
}

/// Whether a request says what its client has open or locked: of those is known that they end, and what they do if they come again.
fn names_what_is_held(request: &Request) -> bool {
    matches!(
        request,
        Request::Mdt(MdtRequest::Reopen { .. } | MdtRequest::ReplayFlocks { .. })
            | Request::Lock(LockRequest::Replay { .. })
    )
}
