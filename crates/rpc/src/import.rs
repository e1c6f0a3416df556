//! One session with one target, seen from the caller.

mod answers;
mod clock;
mod connect;
mod lanes;
mod left_behind;
mod refill;
mod replay;
mod send;
mod terms;

pub use refill::fill_for_replay;
pub use terms::{Answer, ImportOptions, ImportOutput, ImportState, InFlightBounds, Kind, Ticket};

use self::clock::TargetClock;
use self::lanes::Lanes;
use self::left_behind::LeftBehind;
use crate::estimate::{Estimate, TimeoutBounds, TimeoutReport};
use base::{Duration, Endpoint, Epoch, Now, Status, Time, Transno, WallTime, Xid, limits};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use wire::mdt::Access;
use wire::{Frame, FrameKind, Request};

const DATA_SLOTS: Range<usize> =
    limits::SLOT_COUNT as usize..(limits::SLOT_COUNT + limits::DATA_SLOT_COUNT) as usize;

/// Who wants the result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Caller,
    Forgotten,
    Ping,
    Disconnect,
    /// What will be replayed.
    Manifest,
    /// One of `replay_now`.
    OwnerReplay,
    ReplayDone,
}

/// A request that is not completed.
#[derive(Debug)]
struct Pending {
    purpose: Purpose,
    kind: Kind,
    request: Request,
    data: Bytes,
    trace: u64,
    /// Given when it is sent first.
    xid: Option<Xid>,
    slot: u16,
    first_sent: Time,
    /// First in this session; `None` while no answer can come, or one that says little of the target.
    awaited_since: Option<Time>,
    is_resent: bool,
    /// In `timers` while it is set.
    deadline: Option<Time>,
    wait: Duration,
}

/// A request whose effects a restart of the target may still take away.
#[derive(Debug)]
struct Retained {
    xid: Xid,
    slot: u16,
    request: Request,
    /// Its answer described what it took away (`wire::manifest::is_described`).
    is_whole: bool,
    data: Bytes,
    trace: u64,
}

/// Replays under way.
#[derive(Debug, Default)]
struct Replay {
    /// Requests whose answers were lost, or are on their way: the target is asked for them before anything is replayed, since
    /// they may have opened something, or stand between the replays.
    asked: BTreeSet<Xid>,
    /// Nothing is asked any more.
    has_begun: bool,
    /// Transnos still to be sent, rising.
    todo: VecDeque<Transno>,
    /// Those of them that the target has not been told of yet.
    unlisted: VecDeque<Transno>,
    /// The last of which it has been told.
    listed: Transno,
    /// When the target is to hear that this caller lives.
    sign_at: Option<Time>,
    in_flight: BTreeMap<Xid, InFlightReplay>,
    /// The last one sent, so that the target sees a gap.
    previous: Transno,
    /// `ReplayWanted` is out, or answered.
    is_owner_asked: bool,
}

#[derive(Debug)]
struct InFlightReplay {
    transno: Transno,
    previous: Transno,
    deadline: Time,
    wait: Duration,
}

/// The connect request under way.
#[derive(Clone, Copy, Debug)]
struct Connecting {
    xid: Xid,
    deadline: Time,
    wait: Duration,
    since: Time,
}

/// One session with one target.
///
/// Invariants (`check`): a modifying request in flight owns exactly one slot; xids rise in the order of sending, so
/// that on each slot they rise too; whatever is retained has a transno above `last_committed`.
pub struct Import {
    options: ImportOptions,
    state: ImportState,
    session: u64,
    target_epoch: Epoch,
    /// When that one was started, if it says so.
    target_at: WallTime,
    /// That the management server has told of.
    announced_epoch: Epoch,
    connecting: Option<Connecting>,
    replay: Replay,
    next_xid: Xid,
    next_ticket: u64,
    /// Boxed, as are `retained`: a map of large values moves and spreads them in memory, and most of its place is empty.
    pending: BTreeMap<Ticket, Box<Pending>>,
    by_xid: BTreeMap<Xid, Ticket>,
    timers: BTreeSet<(Time, Ticket)>,
    modifying_queue: VecDeque<Ticket>,
    /// Changes of data on an MDT, which have slots of their own.
    data_queue: VecDeque<Ticket>,
    reserved_queue: VecDeque<Ticket>,
    lanes: Lanes,
    bounds: InFlightBounds,
    /// What both ends named when the session was made (`wire::session::features`).
    features: u64,
    has_checked_data: bool,
    /// MDTs whose files' data are not to be changed now.
    held: BTreeSet<u16>,
    slots: Vec<Option<Ticket>>,
    retained: BTreeMap<Transno, Box<Retained>>,
    retained_bytes: usize,
    left_behind: LeftBehind,
    last_committed: Transno,
    last_contact: Option<Time>,
    /// When the last answer came, whatever it was about and whenever that was asked.
    heard_at: Option<Time>,
    /// When a frame last came in, or a ping went out.
    last_sign: Time,
    is_ping_out: bool,
    /// `Overdue` is out.
    is_overdue: bool,
    ping_interval: Duration,
    estimate: Estimate,
    clock: TargetClock,
    /// What the target runs, as it said when the session was made; empty where it does not say.
    software: String,
    /// For the next ping or the goodbye.
    along: Vec<Access>,
}

impl Import {
    pub fn new(options: ImportOptions) -> Import {
        Import {
            options,
            state: ImportState::Idle,
            session: 0,
            target_epoch: Epoch::ZERO,
            target_at: WallTime::default(),
            announced_epoch: Epoch::ZERO,
            connecting: None,
            replay: Replay::default(),
            next_xid: Xid(1),
            next_ticket: 1,
            pending: BTreeMap::new(),
            by_xid: BTreeMap::new(),
            timers: BTreeSet::new(),
            modifying_queue: VecDeque::new(),
            data_queue: VecDeque::new(),
            reserved_queue: VecDeque::new(),
            lanes: Lanes::default(),
            bounds: InFlightBounds::default(),
            features: 0,
            has_checked_data: true,
            held: BTreeSet::new(),
            slots: vec![None; DATA_SLOTS.end],
            retained: BTreeMap::new(),
            retained_bytes: 0,
            left_behind: LeftBehind::default(),
            last_committed: Transno::ZERO,
            last_contact: None,
            heard_at: None,
            last_sign: Time::ZERO,
            is_ping_out: false,
            is_overdue: false,
            ping_interval: limits::PING_INTERVAL,
            estimate: Estimate::default(),
            clock: TargetClock::default(),
            software: String::new(),
            along: Vec::new(),
        }
    }

    /// Hands in a request; it is sent when the session and the kind allow it.
    pub fn submit(
        &mut self,
        now: Now,
        request: Request,
        data: Bytes,
        kind: Kind,
        trace: u64,
        out: &mut Vec<ImportOutput>,
    ) -> Ticket {
        let ticket = self.add(Purpose::Caller, kind, request, data, trace);
        if matches!(self.state, ImportState::Disconnecting | ImportState::Disconnected) {
            self.complete(ticket, Err(Status::NotConnected), out);
            return ticket;
        }
        if let ImportState::Refused(status) = self.state {
            self.complete(ticket, Err(status), out);
            return ticket;
        }
        self.connect(now, out);
        self.dispatch(now, out);
        ticket
    }

    /// Opens the session without a request.
    pub fn connect(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        if self.state == ImportState::Idle {
            self.start_connecting(now, out);
        }
    }

    /// A frame from the target; others are ignored.
    pub fn on_frame(&mut self, now: Now, frame: Frame, out: &mut Vec<ImportOutput>) {
        if frame.src != Endpoint::Target(self.options.target) || self.state == ImportState::Disconnected {
            return;
        }
        match frame.kind {
            FrameKind::Request => {}
            FrameKind::Callback => self.on_callback(now, &frame, out),
            FrameKind::Reply => self.on_reply(now, frame, out),
        }
        self.dispatch(now, out);
    }

    /// The transport lost its connection to the target: look at once whether it was restarted.
    pub fn on_connection_lost(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        if matches!(self.state, ImportState::Active | ImportState::Replaying | ImportState::Disconnecting) {
            self.start_connecting(now, out);
        }
    }

    /// The target has started as this incarnation. Who knows an earlier one connects now, whether or not it has noticed.
    pub fn on_target_started(&mut self, now: Now, epoch: Epoch, out: &mut Vec<ImportOutput>) {
        // Once for each.
        if self.target_epoch.max(self.announced_epoch) >= epoch {
            return;
        }
        self.announced_epoch = epoch;
        match (&mut self.connecting, self.state) {
            (Some(connecting), _) => {
                (connecting.wait, connecting.deadline) = (limits::RECONNECT_FIRST, now.time);
                self.resend_connect(now, out);
            }
            (None, ImportState::Active | ImportState::Replaying) => self.start_connecting(now, out),
            (None, _) => {}
        }
    }

    pub fn on_tick(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        self.resend_connect(now, out);
        self.resend_replays(now, out);
        self.give_sign(now, out);
        while let Some((deadline, ticket)) = self.timers.first().copied() {
            if deadline > now.time {
                break;
            }
            self.timers.remove(&(deadline, ticket));
            self.on_timer(now, ticket, out);
        }
        if self.ping_due().is_some_and(|due| due <= now.time) {
            self.ping(now, out);
        }
        if self.overdue_at().is_some_and(|at| at <= now.time) {
            self.is_overdue = true;
            out.push(ImportOutput::Overdue);
        }
        self.dispatch(now, out);
    }

    pub fn next_deadline(&self) -> Option<Time> {
        let connecting = self.connecting.map(|connecting| connecting.deadline);
        let replay = self.replay.in_flight.values().map(|replay| replay.deadline).min();
        let timer = self.timers.first().map(|(deadline, _)| *deadline);
        let signs = [self.replay.sign_at, self.ping_due(), self.overdue_at()];
        [connecting, replay, timer].into_iter().chain(signs).flatten().min()
    }

    /// The caller gave up: no `Completed` comes any more. What the request did is retained all the same.
    pub fn forget(&mut self, ticket: Ticket) {
        let Some(pending) = self.pending.get_mut(&ticket) else { return };
        if pending.xid.is_some() {
            pending.purpose = Purpose::Forgotten;
        } else {
            self.remove(ticket);
        }
    }

    /// The caller has asked anew what this asked, which changes nothing: it need not be executed, and is not sent again.
    pub fn withdraw(&mut self, ticket: Ticket) {
        let Some(pending) = self.pending.get(&ticket) else { return };
        assert!(!pending.kind.is_modifying(), "what a request changed is replayed");
        self.remove(ticket);
    }

    /// The caller gave up, and what it wanted is not to be done any more: nothing is sent again. It may have been executed, or may be now.
    /// Only for what the target answers when it is durable: nothing of it is replayed.
    pub fn abandon(&mut self, now: Now, ticket: Ticket, out: &mut Vec<ImportOutput>) {
        self.remove(ticket);
        self.try_begin_replays(now, out);
        self.dispatch(now, out);
    }

    /// Ends the session; requests still outstanding are completed with `NotConnected`. The target answers when
    /// everything that this caller did is durable, so `Disconnected` means that nothing can be lost.
    pub fn disconnect(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        match self.state {
            ImportState::Disconnecting | ImportState::Disconnected => {}
            ImportState::Idle | ImportState::Refused(_) => self.end(out),
            ImportState::Connecting if self.retained.is_empty() => self.end(out),
            ImportState::Connecting | ImportState::Replaying => {
                self.add_goodbye();
            }
            ImportState::Active => {
                self.set_state(ImportState::Disconnecting, out);
                let ticket = self.add_goodbye();
                self.send(now, ticket, 0, out);
            }
        }
    }

    fn add_goodbye(&mut self) -> Ticket {
        let accesses = std::mem::take(&mut self.along);
        self.add(Purpose::Disconnect, Kind::Reserved, Request::Disconnect { accesses }, Bytes::new(), 0)
    }

    /// Whether a ping goes out with the tick of now.
    pub fn is_ping_due(&self, now: Time) -> bool {
        self.ping_due().is_some_and(|due| due <= now)
    }

    /// What an MDT is told with the next ping, or with the goodbye. If that is lost, so is this.
    pub fn take_along(&mut self, accesses: Vec<Access>) {
        self.along.extend(accesses);
    }

    pub fn bounds(&self) -> InFlightBounds {
        self.bounds
    }

    /// Whether data have a checksum on the wire; a target that does not know how to go without goes on with one.
    pub fn has_checked_data(&self) -> bool {
        self.has_checked_data
    }

    /// Holds for requests that are sent from now on, and for their answers.
    pub fn set_checked_data(&mut self, has_checked_data: bool) {
        self.has_checked_data = has_checked_data;
    }

    /// Holds for requests that are sent from now on.
    pub fn set_bounds(&mut self, now: Now, bounds: InFlightBounds, out: &mut Vec<ImportOutput>) {
        self.bounds = InFlightBounds {
            plain: bounds.plain.clamp(1, limits::PLAIN_IN_FLIGHT_MAX),
            modifying: bounds.modifying.clamp(1, usize::from(limits::SLOT_COUNT)),
        };
        self.dispatch(now, out);
    }

    /// Asks for a sign of life now, where that is possible and not asked already.
    pub fn ask_for_sign(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        if self.ping_due().is_some() {
            self.ping(now, out);
        }
    }

    /// How long an idle session goes without a word.
    pub fn set_ping_interval(&mut self, interval: Duration) {
        self.ping_interval = interval;
    }

    /// When answers are late from now on.
    pub fn set_timeouts(&mut self, bounds: TimeoutBounds) {
        self.estimate.set_bounds(bounds);
    }

    /// How long the target takes to answer.
    pub fn timeouts(&self, now: Time) -> TimeoutReport {
        self.estimate.report(now)
    }

    /// From now on nothing is sent that changes data of files of these MDTs, not even again; what waited for an MDT that
    /// is not among them any more goes at once.
    pub fn hold_writes(&mut self, now: Now, mdts: BTreeSet<u16>, out: &mut Vec<ImportOutput>) {
        let before = std::mem::replace(&mut self.held, mdts);
        if self.state != ImportState::Active {
            return;
        }
        let sent = self.by_xid.values().filter_map(|ticket| Some((*ticket, self.pending.get(ticket)?)));
        let is_freed = |pending: &Pending| {
            writes_for(&pending.request).is_some_and(|mdt| before.contains(&mdt) && !self.held.contains(&mdt))
        };
        let freed: Vec<Ticket> =
            sent.filter(|(_, pending)| is_freed(pending)).map(|(ticket, _)| ticket).collect();
        for ticket in freed {
            self.send_anew(now, ticket, 0, out);
        }
        self.dispatch(now, out);
    }

    /// This MDT counts the caller as a writer no more: its changes of data that are not answered are given up. Those
    /// that were sent may have been executed.
    pub fn give_up_writes(&mut self, now: Now, mdt: u16, out: &mut Vec<ImportOutput>) {
        let is_its = |pending: &Pending| {
            pending.purpose == Purpose::Caller && writes_for(&pending.request) == Some(mdt)
        };
        let its = self.pending.iter().filter(|(_, pending)| is_its(pending));
        let tickets: Vec<Ticket> = its.map(|(ticket, _)| *ticket).collect();
        self.end_evicted(&tickets, out);
        self.try_begin_replays(now, out);
        self.dispatch(now, out);
    }

    pub fn options(&self) -> &ImportOptions {
        &self.options
    }

    /// The target's incarnation, as of the last connect.
    pub fn target_epoch(&self) -> Epoch {
        self.target_epoch
    }

    pub fn state(&self) -> ImportState {
        self.state
    }

    pub fn last_committed(&self) -> Transno {
        self.last_committed
    }

    /// What both ends can do, as far as is known (`wire::session::features`); nothing before the first session.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// When a request was sent that the target has answered since: leases count from here. `None` before that.
    pub fn last_contact(&self) -> Option<Time> {
        self.last_contact
    }

    /// When the target was heard last. It lives; what it said may have been asked long before.
    pub fn heard_at(&self) -> Option<Time> {
        self.heard_at
    }

    /// Of a target that does not answer although there is a session: when it was heard last.
    pub fn overdue_since(&self) -> Option<Time> {
        self.heard_at.filter(|_| self.is_overdue)
    }

    /// Request data kept for replay.
    pub fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// Requests whose effects a restart of the target may still take away.
    pub fn retained_count(&self) -> usize {
        self.retained.len()
    }

    /// Retained requests with a transno above this.
    pub fn uncommitted_after(&self, transno: Transno) -> usize {
        self.retained.range(transno.next()..).count()
    }

    /// Reply slots in use.
    pub fn modifying_in_flight(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Requests of the caller that are not completed.
    pub fn outstanding(&self) -> usize {
        self.pending.values().filter(|pending| pending.purpose == Purpose::Caller).count()
    }

    /// Calendar time of the target, as its answers to connects and pings tell it; `None` before a session was made. It is that at least.
    pub fn target_wall(&self, now: Time) -> Option<WallTime> {
        self.clock.wall(now).map(|(wall, _)| wall)
    }

    /// By how much later it may be there: the answers were on their way.
    pub fn target_wall_error(&self, now: Time) -> Duration {
        self.clock.wall(now).map_or(Duration::ZERO, |(_, error)| error)
    }

    /// What the target said that it runs when the session was made or made again; empty before that, or where it does not say.
    pub fn software(&self) -> &str {
        &self.software
    }

    /// Asserts the invariants.
    pub fn check(&self) {
        for (slot, ticket) in self.slots.iter().enumerate() {
            let Some(ticket) = ticket else { continue };
            let owner = self.pending.get(ticket);
            assert!(owner.is_some_and(|pending| usize::from(pending.slot) == slot), "slot {slot} is owned");
        }
        for (ticket, pending) in &self.pending {
            let has_slot = pending.slot != Frame::NO_SLOT;
            assert_eq!(has_slot, pending.kind.is_modifying() && pending.xid.is_some());
            if let Some(deadline) = pending.deadline {
                assert!(self.timers.contains(&(deadline, *ticket)));
            }
        }
        let sent = self.pending.values().filter(|pending| pending.xid.is_some());
        assert_eq!(self.lanes.in_flight(), sent.filter(|pending| pending.kind.is_plain()).count());
        assert!(self.retained.keys().next().is_none_or(|first| *first > self.last_committed));
        let bytes: usize = self.retained.values().map(|retained| retained.data.len()).sum();
        assert_eq!(bytes, self.retained_bytes);
        assert!(self.left_behind.first().is_none_or(|first| first > self.last_committed));
        if self.is_overdue {
            assert_eq!(self.state, ImportState::Active);
            assert!(self.is_ping_out);
            assert!(self.heard_at.is_some());
        }
    }

    fn set_state(&mut self, state: ImportState, out: &mut Vec<ImportOutput>) {
        if self.state != state {
            self.state = state;
            self.is_overdue = false;
            out.push(ImportOutput::State(state));
        }
    }

    /// Whether there is a session with the target and, as far as a ping told, it answers.
    pub fn is_heard(&self, now: Time) -> bool {
        let is_missed = self.is_ping_out && self.last_sign.after(limits::RESEND_FIRST) <= now;
        self.state == ImportState::Active && !is_missed
    }

    /// Whether what is asked waits, for as long as the target is not there. (One that recovers answers other targets, and one that refuses
    /// this caller does so at once.)
    pub fn is_away(&self, now: Time) -> bool {
        match self.state {
            ImportState::Idle | ImportState::Connecting => true,
            ImportState::Replaying => !self.may_pass_recovery(),
            ImportState::Active => !self.is_heard(now),
            ImportState::Disconnecting | ImportState::Disconnected | ImportState::Refused(_) => false,
        }
    }

    /// When a ping is due, if nothing is heard before.
    fn ping_due(&self) -> Option<Time> {
        if self.state != ImportState::Active || self.is_ping_out {
            return None;
        }
        let is_blocked = !self.modifying_queue.is_empty() || !self.data_queue.is_empty();
        let interval = if self.is_retaining_too_much() && is_blocked {
            limits::COMMIT_PING_INTERVAL_BLOCKED
        } else if self.retained.is_empty() && self.left_behind.is_empty() {
            self.ping_interval
        } else {
            limits::COMMIT_PING_INTERVAL
        };
        let due = self.last_sign.after(interval);
        Some(self.clock.ask_at().map_or(due, |at| at.min(due)))
    }

    /// When a target that is asked for a sign of life counts as one that does not answer, if nothing is heard before.
    fn overdue_at(&self) -> Option<Time> {
        let is_awaited = self.state == ImportState::Active && self.is_ping_out && !self.is_overdue;
        is_awaited.then(|| self.last_sign.after(limits::OVERDUE_AFTER))
    }

    fn ping(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        self.is_ping_out = true;
        self.last_sign = now.time;
        self.clock.on_ping(now.time);
        let accesses = std::mem::take(&mut self.along);
        let ticket = self.add(Purpose::Ping, Kind::Reserved, Request::Ping { accesses }, Bytes::new(), 0);
        self.send(now, ticket, 0, out);
    }

    /// The session is over: nobody waits for anything any more.
    fn end(&mut self, out: &mut Vec<ImportOutput>) {
        self.connecting = None;
        self.replay = Replay::default();
        self.retained.clear();
        self.retained_bytes = 0;
        self.left_behind = LeftBehind::default();
        let tickets: Vec<Ticket> = self.pending.keys().copied().collect();
        for ticket in tickets {
            self.complete(ticket, Err(Status::NotConnected), out);
        }
        self.set_state(ImportState::Disconnected, out);
    }
}

/// The MDT of the file whose data a request changes.
fn writes_for(request: &Request) -> Option<u16> {
    match request {
        Request::Ost(request) => request.written_file()?.mdt_index(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
