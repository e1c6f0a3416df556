//! One session with one target, seen from the caller.

mod connect;
mod replay;

use crate::estimate::{Estimate, TimeoutBounds, TimeoutReport};
use base::limits;
use base::{
    ClientId, Duration, Endpoint, Epoch, Now, Status, StatusClass, TargetId, TargetKind, Time, Transno,
    WallTime, Xid,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use wire::lock::LockWant;
use wire::mdt::{CreateRequest, DirStriping, Met};
use wire::{
    Callback, ComponentHint, Frame, FrameKind, LayoutHint, LockRequest, MdtReply, MdtRequest, MgsRequest,
    Reply, Request, flags, session::features,
};

const DATA_SLOTS: Range<usize> =
    limits::SLOT_COUNT as usize..(limits::SLOT_COUNT + limits::DATA_SLOT_COUNT) as usize;

/// Who calls whom.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// `Endpoint::client_id()` of the caller; replies come to `client.endpoint()`.
    pub client: ClientId,
    /// Rises when a caller with a fixed id (a target) starts anew; anything for a random id.
    pub incarnation: u64,
    pub fsname: String,
    /// What operators see of the caller.
    pub nid: String,
    pub target: TargetId,
    /// From the configuration; 0 when not known.
    pub target_uuid: u128,
}

/// How a request is treated on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Changes something: executed once, retained until committed, replayed after a restart.
    Modifying,
    /// May be executed again.
    Plain,
    /// As Plain, and never queued behind others: what gives back (cancels, unlocks), and what waits for as long as somebody
    /// else likes, whose number the caller bounds.
    Reserved,
    /// As Plain, of much work, and nobody waits for it yet: what is read ahead.
    Ahead,
    /// As Modifying, of much work, and the caller goes on meanwhile: what is written behind.
    Behind,
}

impl Kind {
    pub fn is_modifying(self) -> bool {
        matches!(self, Kind::Modifying | Kind::Behind)
    }

    fn is_plain(self) -> bool {
        matches!(self, Kind::Plain | Kind::Ahead)
    }

    fn flags(self) -> u32 {
        if matches!(self, Kind::Ahead | Kind::Behind) { flags::UNAWAITED } else { 0 }
    }
}

/// How many requests of the caller may be in flight; operators lower it (`max_rpcs_in_flight`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightBounds {
    /// 1 to `limits::PLAIN_IN_FLIGHT_MAX`.
    pub plain: usize,
    /// 1 to `limits::SLOT_COUNT`.
    pub modifying: usize,
}

impl Default for InFlightBounds {
    fn default() -> InFlightBounds {
        InFlightBounds { plain: limits::PLAIN_IN_FLIGHT_MAX, modifying: usize::from(limits::SLOT_COUNT) }
    }
}

/// Names a submitted request until it is completed or forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A successful reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub reply: Reply,
    pub data: Bytes,
    /// Zero when nothing was changed.
    pub transno: Transno,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportState {
    /// No session, and nobody has asked for one.
    Idle,
    Connecting,
    /// The target was restarted and gets again what it may have lost.
    Replaying,
    Active,
    Disconnecting,
    Disconnected,
    /// The target does not want this caller; it is asked again now and then.
    Refused(Status),
}

#[derive(Clone, Debug, PartialEq)]
pub enum ImportOutput {
    Send(Frame),
    Completed {
        ticket: Ticket,
        result: Result<Answer, Status>,
    },
    /// Everything up to here survives any crash of the target.
    Committed(Transno),
    /// The target was restarted and has executed all replays of this caller: answer with `replay_now`.
    ReplayWanted,
    /// A replay was refused: what it had done is lost, although it was acknowledged.
    ReplayFailed {
        request: Box<Request>,
        status: Status,
    },
    /// The target has recovered; waiting requests go on by themselves.
    Recovered,
    /// The target knows nothing of this caller any more: locks, opens and uncommitted work are gone.
    Evicted,
    Callback(Callback),
    State(ImportState),
}

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
    /// That the management server has told of.
    announced_epoch: Epoch,
    connecting: Option<Connecting>,
    replay: Replay,
    next_xid: Xid,
    next_ticket: u64,
    pending: BTreeMap<Ticket, Pending>,
    by_xid: BTreeMap<Xid, Ticket>,
    timers: BTreeSet<(Time, Ticket)>,
    modifying_queue: VecDeque<Ticket>,
    /// Changes of data on an MDT, which have slots of their own.
    data_queue: VecDeque<Ticket>,
    reserved_queue: VecDeque<Ticket>,
    plain_queue: VecDeque<Ticket>,
    plain_in_flight: usize,
    bounds: InFlightBounds,
    /// What both ends named when the session was made (`wire::session::features`).
    features: u64,
    has_checked_data: bool,
    /// MDTs whose files' data are not to be changed now.
    held: BTreeSet<u16>,
    slots: Vec<Option<Ticket>>,
    retained: BTreeMap<Transno, Retained>,
    retained_bytes: usize,
    last_committed: Transno,
    last_contact: Option<Time>,
    /// When the last answer came, whatever it was about and whenever that was asked.
    heard_at: Option<Time>,
    /// When a frame last came in, or a ping went out.
    last_sign: Time,
    is_ping_out: bool,
    ping_interval: Duration,
    estimate: Estimate,
    /// Calendar time of the target less the monotonic time here: what is done to the calendar here does not show.
    wall_offset_ns: Option<i64>,
}

impl Import {
    pub fn new(options: ImportOptions) -> Import {
        Import {
            options,
            state: ImportState::Idle,
            session: 0,
            target_epoch: Epoch::ZERO,
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
            plain_queue: VecDeque::new(),
            plain_in_flight: 0,
            bounds: InFlightBounds::default(),
            features: 0,
            has_checked_data: true,
            held: BTreeSet::new(),
            slots: vec![None; DATA_SLOTS.end],
            retained: BTreeMap::new(),
            retained_bytes: 0,
            last_committed: Transno::ZERO,
            last_contact: None,
            heard_at: None,
            last_sign: Time::ZERO,
            is_ping_out: false,
            ping_interval: limits::PING_INTERVAL,
            estimate: Estimate::default(),
            wall_offset_ns: None,
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
        self.dispatch(now, out);
    }

    pub fn next_deadline(&self) -> Option<Time> {
        let connecting = self.connecting.map(|connecting| connecting.deadline);
        let replay = self.replay.in_flight.values().map(|replay| replay.deadline).min();
        let timer = self.timers.first().map(|(deadline, _)| *deadline);
        [connecting, replay, timer, self.replay.sign_at, self.ping_due()].into_iter().flatten().min()
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

    /// Ends the session; requests still outstanding are completed with `NotConnected`. The target answers when
    /// everything that this caller did is durable, so `Disconnected` means that nothing can be lost.
    pub fn disconnect(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        match self.state {
            ImportState::Disconnecting | ImportState::Disconnected => {}
            ImportState::Idle | ImportState::Refused(_) => self.end(out),
            ImportState::Connecting if self.retained.is_empty() => self.end(out),
            ImportState::Connecting | ImportState::Replaying => {
                self.add(Purpose::Disconnect, Kind::Reserved, Request::Disconnect, Bytes::new(), 0);
            }
            ImportState::Active => {
                self.set_state(ImportState::Disconnecting, out);
                let ticket =
                    self.add(Purpose::Disconnect, Kind::Reserved, Request::Disconnect, Bytes::new(), 0);
                self.send(now, ticket, 0, out);
            }
        }
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
    }

    /// This MDT counts the caller as a writer no more: its changes of data that are not answered are given up. They may
    /// have been executed.
    pub fn give_up_writes(&mut self, now: Now, mdt: u16, out: &mut Vec<ImportOutput>) {
        let is_its = |pending: &Pending| {
            pending.purpose == Purpose::Caller && writes_for(&pending.request) == Some(mdt)
        };
        let its = self.pending.iter().filter(|(_, pending)| is_its(pending));
        let tickets: Vec<Ticket> = its.map(|(ticket, _)| *ticket).collect();
        for ticket in tickets {
            self.complete(ticket, Err(Status::Evicted), out);
        }
        self.try_begin_replays(now, out);
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

    /// Calendar time of the target, as learnt when the session was made or made again; `None` before that.
    pub fn target_wall(&self, now: Time) -> Option<WallTime> {
        let now_ns = i64::try_from(now.0).unwrap_or(i64::MAX);
        Some(WallTime(self.wall_offset_ns?.saturating_add(now_ns)))
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
        assert!(self.retained.keys().next().is_none_or(|first| *first > self.last_committed));
        let bytes: usize = self.retained.values().map(|retained| retained.data.len()).sum();
        assert_eq!(bytes, self.retained_bytes);
    }

    fn set_state(&mut self, state: ImportState, out: &mut Vec<ImportOutput>) {
        if self.state != state {
            self.state = state;
            out.push(ImportOutput::State(state));
        }
    }

    /// Registers a request and puts it into its queue.
    fn add(&mut self, purpose: Purpose, kind: Kind, request: Request, data: Bytes, trace: u64) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        match (purpose, kind) {
            (Purpose::Caller, kind) if kind.is_modifying() => {
                let is_data = self.is_data(&request);
                if is_data { &mut self.data_queue } else { &mut self.modifying_queue }.push_back(ticket);
            }
            (Purpose::Caller, Kind::Plain | Kind::Ahead) => self.plain_queue.push_back(ticket),
            (Purpose::Caller, Kind::Reserved) => self.reserved_queue.push_back(ticket),
            _ => {}
        }
        let pending = Pending {
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
        };
        self.pending.insert(ticket, pending);
        ticket
    }

    /// The fixed tail of every input: sends what may be sent now.
    fn dispatch(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        if self.state == ImportState::Active || self.may_pass_recovery() {
            while let Some(ticket) = self.reserved_queue.pop_front() {
                self.send_anew(now, ticket, 0, out);
            }
        }
        if self.state != ImportState::Active {
            return;
        }
        while self.plain_in_flight < self.bounds.plain
            && let Some(ticket) = self.plain_queue.pop_front()
        {
            self.send_anew(now, ticket, 0, out);
        }
        while !self.is_retaining_too_much()
            && let Some(ticket) = self.modifying_queue.front().copied()
            && let Some(slot) = self.free_slot(0..self.bounds.modifying)
        {
            self.modifying_queue.pop_front();
            self.send_in_slot(now, ticket, slot, out);
        }
        while !self.is_retaining_too_much()
            && let Some(ticket) = self.data_queue.front().copied()
            && let Some(slot) = self.free_slot(DATA_SLOTS)
        {
            self.data_queue.pop_front();
            self.send_in_slot(now, ticket, slot, out);
        }
    }

    /// Other targets replay nothing. What they have to say may decide whether replays of clients can go on.
    fn may_pass_recovery(&self) -> bool {
        let is_target = matches!(self.options.client.endpoint(), Endpoint::Target(_));
        is_target && self.state == ImportState::Replaying && self.replay.is_owner_asked
    }

    fn free_slot(&self, slots: Range<usize>) -> Option<usize> {
        slots.into_iter().find(|slot| matches!(self.slots.get(*slot), Some(None)))
    }

    fn send_in_slot(&mut self, now: Now, ticket: Ticket, slot: usize, out: &mut Vec<ImportOutput>) {
        if let (Some(pending), Some(owner)) = (self.pending.get_mut(&ticket), self.slots.get_mut(slot)) {
            pending.slot = slot as u16;
            *owner = Some(ticket);
            self.send_anew(now, ticket, 0, out);
        }
    }

    /// Whether a request is about data on an MDT.
    fn is_data(&self, request: &Request) -> bool {
        let is_closing = matches!(request, Request::Mdt(MdtRequest::Close { data: Some(_), .. }));
        is_closing || self.options.target.kind == TargetKind::Mdt && matches!(request, Request::Ost(_))
    }

    fn is_retaining_too_much(&self) -> bool {
        self.retained.len() >= limits::REPLAY_REQUESTS_MAX || self.retained_bytes >= limits::REPLAY_BYTES_MAX
    }

    /// How long a request waits before it is sent again. What gives something back is wanted by others, and what tells that this caller
    /// lives is wanted soon: they do not wait for a target that has become slow. The others do so for a while: what was lost on its way
    /// may hold up others too.
    fn first_wait(&self, now: Now, kind: Kind) -> Duration {
        match kind {
            Kind::Reserved => limits::RESEND_FIRST,
            _ => self.estimate.late_after(now.time).min(limits::RESEND_MAX),
        }
    }

    /// Sends a request as if for the first time.
    fn send_anew(&mut self, now: Now, ticket: Ticket, more_flags: u32, out: &mut Vec<ImportOutput>) {
        let Some(kind) = self.pending.get(&ticket).map(|pending| pending.kind) else { return };
        let wait = self.first_wait(now, kind);
        if let Some(pending) = self.pending.get_mut(&ticket) {
            (pending.wait, pending.awaited_since, pending.is_resent) = (wait, None, false);
        }
        self.send(now, ticket, more_flags, out);
    }

    /// Sends a request, for the first time or again, and sets its timer.
    fn send(&mut self, now: Now, ticket: Ticket, more_flags: u32, out: &mut Vec<ImportOutput>) {
        let Some(pending) = self.pending.get_mut(&ticket) else { return };
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
                    self.plain_in_flight += 1;
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
        let (body, slot, trace) = (pending.request.to_bytes(), pending.slot, pending.trace);
        let mut frame = self.frame(xid);
        frame.flags |= frame_flags;
        frame.slot = slot;
        frame.trace = trace;
        frame.body = body;
        frame.data = data;
        out.push(ImportOutput::Send(frame));
    }

    fn frame(&self, xid: Xid) -> Frame {
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
    fn acked(&self) -> Xid {
        let first_open = self.by_xid.keys().next().copied().unwrap_or(self.next_xid);
        Xid(first_open.0.saturating_sub(1))
    }

    fn on_timer(&mut self, now: Now, ticket: Ticket, out: &mut Vec<ImportOutput>) {
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

    fn on_callback(&mut self, now: Now, frame: &Frame, out: &mut Vec<ImportOutput>) {
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

    fn on_reply(&mut self, now: Now, frame: Frame, out: &mut Vec<ImportOutput>) {
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
        match frame.status.class() {
            StatusClass::Reconnect | StatusClass::Evicted => {
                let ticket = self.by_xid.get(&frame.xid).and_then(|ticket| self.pending.get(ticket));
                let is_leaving = ticket.is_some_and(|pending| pending.purpose == Purpose::Disconnect);
                if is_leaving && self.retained.is_empty() {
                    // The target has let us go and its answer was lost.
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
                self.remove(ticket);
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
    fn complete(&mut self, ticket: Ticket, result: Result<Answer, Status>, out: &mut Vec<ImportOutput>) {
        let Some(mut pending) = self.remove(ticket) else { return };
        if let (Ok(answer), Some(xid)) = (&result, pending.xid)
            && pending.kind.is_modifying()
            && answer.transno > self.last_committed
        {
            fill_for_replay(&mut pending.request, &answer.reply);
            let is_whole = wire::manifest::is_described(&answer.reply);
            self.retained_bytes += pending.data.len();
            let retained = Retained {
                xid,
                slot: pending.slot,
                request: pending.request,
                is_whole,
                data: pending.data,
                trace: pending.trace,
            };
            if let Some(old) = self.retained.insert(answer.transno, retained) {
                // Only a confused target numbers two requests alike; the bytes must still add up.
                self.retained_bytes -= old.data.len();
            }
        }
        if pending.purpose == Purpose::Caller {
            out.push(ImportOutput::Completed { ticket, result });
        }
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Pending> {
        let pending = self.pending.remove(&ticket)?;
        if let Some(xid) = pending.xid {
            self.by_xid.remove(&xid);
            self.replay.asked.remove(&xid);
            if pending.kind.is_plain() {
                self.plain_in_flight -= 1;
            }
        } else {
            self.modifying_queue.retain(|queued| *queued != ticket);
            self.data_queue.retain(|queued| *queued != ticket);
            self.reserved_queue.retain(|queued| *queued != ticket);
            self.plain_queue.retain(|queued| *queued != ticket);
        }
        if let Some(deadline) = pending.deadline {
            self.timers.remove(&(deadline, ticket));
        }
        if let Some(owner) = self.slots.get_mut(usize::from(pending.slot)) {
            *owner = None;
        }
        Some(pending)
    }

    fn on_committed(&mut self, transno: Transno, out: &mut Vec<ImportOutput>) {
        if transno <= self.last_committed {
            return;
        }
        self.last_committed = transno;
        let kept = self.retained.split_off(&transno.next());
        let dropped = std::mem::replace(&mut self.retained, kept);
        let bytes: usize = dropped.values().map(|retained| retained.data.len()).sum();
        self.retained_bytes -= bytes;
        out.push(ImportOutput::Committed(transno));
    }

    /// Whether there is a session with the target and, as far as a ping told, it answers.
    pub fn is_heard(&self, now: Time) -> bool {
        let is_missed = self.is_ping_out && self.last_sign.after(limits::RESEND_FIRST) <= now;
        self.state == ImportState::Active && !is_missed
    }

    /// When a ping is due, if nothing is heard before.
    fn ping_due(&self) -> Option<Time> {
        if self.state != ImportState::Active || self.is_ping_out {
            return None;
        }
        let is_blocked = !self.modifying_queue.is_empty() || !self.data_queue.is_empty();
        let interval = if self.is_retaining_too_much() && is_blocked {
            limits::COMMIT_PING_INTERVAL_BLOCKED
        } else if self.retained.is_empty() {
            self.ping_interval
        } else {
            limits::COMMIT_PING_INTERVAL
        };
        Some(self.last_sign.after(interval))
    }

    fn ping(&mut self, now: Now, out: &mut Vec<ImportOutput>) {
        self.is_ping_out = true;
        self.last_sign = now.time;
        let ticket = self.add(Purpose::Ping, Kind::Reserved, Request::Ping, Bytes::new(), 0);
        self.send(now, ticket, 0, out);
    }

    /// The session is over: nobody waits for anything any more.
    fn end(&mut self, out: &mut Vec<ImportOutput>) {
        self.connecting = None;
        self.replay = Replay::default();
        self.retained.clear();
        self.retained_bytes = 0;
        let tickets: Vec<Ticket> = self.pending.keys().copied().collect();
        for ticket in tickets {
            self.complete(ticket, Err(Status::NotConnected), out);
        }
        self.set_state(ImportState::Disconnected, out);
    }
}

/// Whether its answer may wait for as long as somebody else likes, so that it says nothing of the target.
fn waits_for_others(request: &Request) -> bool {
    match request {
        Request::Lock(LockRequest::Enqueue { can_wait, .. }) => *can_wait,
        Request::Mdt(MdtRequest::Flock { can_wait, .. }) => *can_wait,
        Request::Mgs(MgsRequest::GetConfig { .. }) => true,
        _ => false,
    }
}

/// The MDT of the file whose data a request changes.
fn writes_for(request: &Request) -> Option<u16> {
    match request {
        Request::Ost(request) => request.written_file()?.mdt_index(),
        _ => None,
    }
}

/// What the target chose must be the same when the request is executed again.
pub fn fill_for_replay(request: &mut Request, reply: &Reply) {
    let (entry, made) = match reply {
        Reply::Mdt(MdtReply::RemovedMet { met, .. }) => return put_met(request, *met),
        Reply::Mdt(MdtReply::Entry(entry) | MdtReply::WithData { entry, .. }) => (entry, None),
        Reply::Mdt(MdtReply::Striped { entry, stripes }) => (entry, Some(stripes)),
        _ => return,
    };
    // Its objects may have data by then: they stay where they are.
    let hint = entry.layout.as_ref().map(hint_of);
    match request {
        Request::Mdt(MdtRequest::Create(CreateRequest { open: Some(open), creds, .. }))
            if !entry.was_created && entry.attr.is_some() =>
        {
            // What was there is not made by a replay, and no other one is opened.
            let (fid, open, creds, want) = (entry.fid, *open, creds.clone(), LockWant::default());
            *request = Request::Mdt(MdtRequest::Open {
                fid,
                open,
                creds,
                want,
                closes: Vec::new(),
                accesses: Vec::new(),
            });
        }
        Request::Mdt(MdtRequest::Create(create)) => {
            create.fid = Some(entry.fid);
            create.layout = hint.or(create.layout.take());
            if let Some(stripes) = made {
                // By the default of its parent, which may be another one by then.
                let (create, striping) = (create.clone(), DirStriping::default());
                *request =
                    Request::Mdt(MdtRequest::MakeStriped { create, striping, stripes: stripes.clone() });
            }
        }
        Request::Mdt(MdtRequest::MakeStriped { create, stripes, .. }) => {
            create.fid = Some(entry.fid);
            stripes.clone_from(made.unwrap_or(&Vec::new()));
        }
        Request::Mdt(MdtRequest::SetLayout { layout, .. }) => {
            *layout = hint.unwrap_or_else(|| layout.clone());
        }
        _ => {}
    }
}

fn put_met(request: &mut Request, met: Met) {
    if let Request::Mdt(changing) = request {
        let taken = std::mem::replace(changing, MdtRequest::Statfs);
        *changing = taken.with_met(met);
    }
}

/// What leads to the same layout again.
fn hint_of(layout: &base::Layout) -> LayoutHint {
    let hint_of = |component: &base::layout::Component| ComponentHint {
        end_bytes: Some(component.end_bytes).filter(|end| *end != base::Extent::EOF),
        stripe_size_bytes: Some(component.stripe_size_bytes),
        stripe_count: None,
        first_ost: None,
        osts: component.osts.clone(),
        pool: component.pool.clone(),
    };
    LayoutHint { components: layout.components.iter().map(hint_of).collect() }
}

#[cfg(test)]
mod tests;
