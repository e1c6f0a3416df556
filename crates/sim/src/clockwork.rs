//! A cluster in which nothing is left to chance: frames take the same time, those between two ends arrive in their order, none is
//! lost while both ends live, and disks sync when they are told to. What was run can be run again and broken off at any
//! place, or gone on with in another order.

mod seat;

pub(crate) use seat::{Said, Seat};

use crate::Violation;
use crate::cluster::config_of;
use crate::crash_table::Death;
use crate::frames::{describe, host};
use crate::model::{Op, Outcome as Told};
use crate::servers::{Effect, Engine, Server};
use crate::sweep::Shared;
use base::{
    ClientId, ClusterConfig, Duration, Endpoint, Now, TargetId, TargetKind, Time, Transno, WallTime, limits,
};
use client::{Event as ClientEvent, Notify, NotifyId};
use mgs::Probe;
use std::collections::{BTreeMap, BTreeSet};
use target::CoreEvent;
use wire::{Frame, FrameKind, PeerRequest, Request};

/// Frames on their way.
const DELAY: Duration = Duration::from_micros(20);
/// A name in a directory that a call of the kernel holds is taken back a little later.
const NOTIFY_AGAIN_AFTER: Duration = Duration::from_micros(100);
/// A disk that syncs late does so when nothing else can go on without it.
const LATE_SYNC: Duration = Duration::from_millis(100);

#[derive(Debug)]
enum Event {
    Deliver(Frame),
    Sync(TargetId),
    Start(TargetId),
    Notify(usize, NotifyId, Notify),
}

impl Event {
    /// Belongs to what clients and servers do, and not to the leases and registrations beside it.
    fn is_counted(&self) -> bool {
        match self {
            Event::Deliver(frame) => !is_of_mgs(frame),
            Event::Sync(id) => id.kind != TargetKind::Mgt,
            Event::Start(_) | Event::Notify(..) => false,
        }
    }
}

fn is_of_mgs(frame: &Frame) -> bool {
    [frame.src, frame.dst].contains(&Endpoint::Target(TargetId::MGT))
}

/// Names an event that has not happened yet.
pub(crate) type EventKey = (Time, u64);

/// Sender and receiver of frames.
pub(crate) type Channel = (Endpoint, Endpoint);

/// A frame that could arrive next: it is the first in its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub key: EventKey,
    pub channel: Channel,
}

/// A client's transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Executed {
    pub client: ClientId,
    pub target: TargetId,
    pub transno: Transno,
    pub at: Time,
}

/// One MDT has heard from another.
#[derive(Clone, Debug)]
pub(crate) struct Spoken {
    pub from: TargetId,
    pub to: TargetId,
    pub sent_at: Time,
    /// The transactions of clients that it is to give back if they are lost.
    pub told: Vec<(ClientId, Transno)>,
}

fn told_by(frame: &Frame) -> Vec<(ClientId, Transno)> {
    match Request::from_bytes(&frame.body) {
        Ok(Request::Peer(PeerRequest::Hold { items, .. })) if frame.kind == FrameKind::Request => {
            let witnesses = items.into_iter().filter_map(|item| item.witness);
            witnesses.map(|witness| (witness.client, witness.transno)).collect()
        }
        _ => Vec::new(),
    }
}

pub(crate) struct Clockwork {
    pub now: Now,
    pub servers: BTreeMap<TargetId, Server>,
    pub seats: Vec<Seat>,
    config: ClusterConfig,
    wire: BTreeMap<EventKey, Event>,
    posted: u64,
    /// Targets whose disks sync at once.
    pub prompt: BTreeSet<TargetId>,
    /// Frames that arrived and syncs that ended, without those of the management server.
    pub event_count: u64,
    /// Transactions of clients that servers have executed and that were no replays, in their order.
    pub executed: Vec<Executed>,
    /// Frames between MDTs that have arrived.
    pub spoken: Vec<Spoken>,
    shared: Shared,
    trace_count: usize,
}

impl Clockwork {
    /// A cluster with no client, whose targets serve.
    pub fn new(mdt_count: u16, ost_count: u16, shared: Shared, trace_count: usize) -> Clockwork {
        let ids: Vec<TargetId> =
            (0..mdt_count).map(TargetId::mdt).chain((0..ost_count).map(TargetId::ost)).collect();
        let config = config_of(ids.iter().copied(), Vec::new());
        let all: Vec<TargetId> = [&[TargetId::MGT], ids.as_slice()].concat();
        let new_server = |id: &TargetId| (*id, Server::new(*id, limits::RECOVERY_WINDOW));
        let mut clockwork = Clockwork {
            now: Now { time: Time(1_000_000_000), wall: WallTime(1_700_000_000_000_000_000) },
            servers: all.iter().map(new_server).collect(),
            seats: Vec::new(),
            config,
            wire: BTreeMap::new(),
            posted: 0,
            prompt: all.iter().copied().collect(),
            event_count: 0,
            executed: Vec::new(),
            spoken: Vec::new(),
            shared,
            trace_count,
        };
        for id in all {
            clockwork.start(id);
        }
        clockwork
    }

    /// Another client; its number is returned.
    pub fn mount(&mut self) -> usize {
        let number = self.seats.len();
        let (seat, said) = Seat::new(self.now, number, &self.config);
        self.seats.push(seat);
        self.hear(number, said);
        number
    }

    fn post(&mut self, after: Duration, event: Event) {
        self.posted += 1;
        self.wire.insert((self.now.time.after(after), self.posted), event);
    }

    /// The next thing that happens. False when nothing does before `until`.
    pub fn step(&mut self, until: Time) -> bool {
        let event = self.wire.first_key_value().map(|((time, _), _)| *time);
        let servers = self.servers.values().filter_map(|server| server.deadline);
        let seats = self.seats.iter().filter_map(Seat::next_deadline);
        let Some(next) = event.into_iter().chain(servers).chain(seats).min().filter(|next| *next <= until)
        else {
            return false;
        };
        self.advance(next);
        // What is late is due now.
        if event.is_some_and(|event| event <= self.now.time) {
            if let Some((_, event)) = self.wire.pop_first() {
                self.on_event(event);
            }
            return true;
        }
        self.tick();
        true
    }

    fn tick(&mut self) {
        let now = self.now;
        let is_due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now.time);
        let due: Vec<TargetId> =
            self.servers.values().filter(|server| is_due(server.deadline)).map(|server| server.id).collect();
        for id in due {
            self.on_server(id, |server, now, out| server.on_tick(now, out));
            if self.servers.get(&id).is_some_and(|server| is_due(server.deadline)) {
                return self.violate("machines", format!("a tick of {id} leaves its deadline in the past"));
            }
        }
        for number in 0..self.seats.len() {
            if is_due(self.seats[number].next_deadline()) {
                let said = self.seats[number].on_tick(now);
                self.hear(number, said);
                if is_due(self.seats[number].next_deadline()) {
                    let what = format!("a tick of client {number} leaves its deadline in the past");
                    return self.violate("machines", what);
                }
            }
        }
    }

    fn advance(&mut self, to: Time) {
        let by = to.0.saturating_sub(self.now.time.0);
        self.now.time = Time(self.now.time.0 + by);
        self.now.wall = WallTime(self.now.wall.0 + by as i64);
    }

    /// Goes on until `is_over` or for so long. False if it was not over by then, or something was wrong.
    pub fn run_until(&mut self, limit: Duration, is_over: impl Fn(&Clockwork) -> bool) -> bool {
        let until = self.now.time.after(limit);
        while !self.is_broken() {
            if is_over(self) {
                return true;
            }
            if !self.step(until) {
                self.advance(until);
                return is_over(self);
            }
        }
        false
    }

    /// Frames of which each could be the next to arrive, in the order in which they were sent.
    pub fn arrivals(&self) -> Vec<Arrival> {
        let mut arrivals: Vec<Arrival> = Vec::new();
        for (key, event) in &self.wire {
            if let Event::Deliver(frame) = event
                && event.is_counted()
            {
                let channel = (host(frame.src), host(frame.dst));
                if !arrivals.iter().any(|before| before.channel == channel) {
                    arrivals.push(Arrival { key: *key, channel });
                }
            }
        }
        arrivals
    }

    /// The first event that is there already and is no choice: what the management server says, and syncs of prompt disks.
    pub fn settle_next(&mut self) -> bool {
        let is_settled = |event: &Event| match event {
            Event::Deliver(frame) => is_of_mgs(frame),
            Event::Sync(id) => self.prompt.contains(id),
            Event::Start(_) | Event::Notify(..) => true,
        };
        let is_near = |key: &EventKey| key.0 <= self.now.time.after(DELAY);
        let next = self.wire.iter().find(|(key, event)| is_near(key) && is_settled(event));
        next.map(|(key, _)| *key).is_some_and(|key| self.take(key))
    }

    /// Has this event happen now, whatever else comes before it, and without any time passing.
    pub fn take(&mut self, key: EventKey) -> bool {
        let event = self.wire.remove(&key);
        event.map(|event| self.on_event(event)).is_some()
    }

    fn on_event(&mut self, event: Event) {
        self.event_count += u64::from(event.is_counted());
        match event {
            Event::Deliver(frame) => self.deliver(frame),
            Event::Sync(id) => {
                self.trace(|| format!("{id} syncs"));
                self.on_server(id, |server, now, out| server.sync_all(now, out));
            }
            Event::Start(id) => self.start(id),
            Event::Notify(number, id, notify) => match self.seats[number].on_notify(self.now, id, &notify) {
                Some(said) => self.hear(number, said),
                None => self.post(NOTIFY_AGAIN_AFTER, Event::Notify(number, id, notify)),
            },
        }
    }

    fn deliver(&mut self, frame: Frame) {
        self.trace(|| describe(&frame));
        self.shared.borrow_mut().mix(&[
            self.now.time.0,
            frame.xid.0,
            frame.transno.0,
            frame.body.len() as u64,
        ]);
        match host(frame.dst) {
            Endpoint::Target(id) => {
                if let Endpoint::Target(from) = frame.src
                    && from.kind == TargetKind::Mdt
                    && id.kind == TargetKind::Mdt
                {
                    let sent_at = Time(self.now.time.0.saturating_sub(DELAY.as_nanos() as u64));
                    self.spoken.push(Spoken { from, to: id, sent_at, told: told_by(&frame) });
                }
                if self.servers.get(&id).is_some_and(|server| server.engine.is_some()) {
                    self.on_server(id, |server, now, out| server.on_frame(now, frame, out));
                }
            }
            Endpoint::Client(id) => {
                if let Some(number) = self.seats.iter().position(|seat| seat.id == id) {
                    let said = self.seats[number].on_frame(self.now, frame);
                    self.hear(number, said);
                }
            }
        }
    }

    fn start(&mut self, id: TargetId) {
        self.trace(|| format!("{id} starts"));
        let config = self.config.clone();
        self.on_server(id, |server, now, out| server.start(now, &config, out));
    }

    fn on_server(&mut self, id: TargetId, act: impl FnOnce(&mut Server, Now, &mut Vec<Effect>)) {
        let now = self.now;
        let Some(server) = self.servers.get_mut(&id) else { return };
        let mut effects = Vec::new();
        act(server, now, &mut effects);
        let is_prompt = self.prompt.contains(&id);
        let is_wanted = server.wants_sync() || is_prompt && server.has_unsynced();
        if is_wanted && server.engine.is_some() && !server.is_syncing {
            server.is_syncing = true;
            self.post(if is_prompt { Duration::ZERO } else { LATE_SYNC }, Event::Sync(id));
        }
        for effect in effects {
            match effect {
                Effect::Send(frame) => self.post(DELAY, Event::Deliver(frame)),
                Effect::Probe(probe) => self.on_probe(&probe),
                Effect::Fetch(_) => self.violate("machines", format!("{id}: everything is in memory here")),
                Effect::Failed(what) => self.violate("machines", format!("{id}: {what}")),
                Effect::Note(note) => self.trace(|| format!("{id}: {note}")),
                Effect::Core(event) => self.on_core(id, &event),
            }
        }
    }

    /// Whoever is asked answers at once.
    fn on_probe(&mut self, probe: &Probe) {
        let found = self.servers.get(&probe.target).map(|server| server.serves(probe)).unwrap_or_default();
        self.on_server(TargetId::MGT, |server, now, out| server.on_probed(now, probe.id, found, out));
    }

    fn on_core(&mut self, id: TargetId, event: &CoreEvent) {
        self.trace(|| format!("{id}: {event:?}"));
        match event {
            CoreEvent::Executed { client, transno, replay: None, .. } => {
                let at = self.now.time;
                self.executed.push(Executed { client: *client, target: id, transno: *transno, at });
            }
            CoreEvent::Evicted { client, why } => {
                let living = self.seats.iter().position(|seat| seat.id == *client && !seat.is_gone);
                if let Some(number) = living {
                    self.violate("eviction", format!("{id} gave up client {number}, which lives: {why:?}"));
                }
            }
            CoreEvent::ProtocolError { client, what } => {
                self.violate("protocol", format!("{id}: {what}, by {client}"));
            }
            _ => {}
        }
    }

    /// A client's process begins a call. `Seat::told` has what it is told.
    pub fn launch(&mut self, number: usize, op: Op) {
        self.trace(|| format!("client {number}: starts {op:?}"));
        let said = self.seats[number].launch(self.now, op);
        self.hear(number, said);
    }

    /// What a call tells that is made alone; `None` when it does not end within `limit`.
    pub fn call(&mut self, number: usize, op: Op, limit: Duration) -> Option<Told> {
        self.launch(number, op);
        self.run_until(limit, |clockwork| clockwork.seats[number].told.is_some());
        self.seats[number].told.clone()
    }

    fn hear(&mut self, number: usize, said: Said) {
        for frame in said.frames {
            self.post(DELAY, Event::Deliver(frame));
        }
        for (id, notify) in said.notifies {
            self.post(Duration::ZERO, Event::Notify(number, id, notify));
        }
        for event in said.events {
            self.trace(|| format!("client {number}: {event:?}"));
            match event {
                ClientEvent::Evicted(target) => {
                    self.violate("eviction", format!("client {number} was evicted by {target}"));
                }
                ClientEvent::ReplayRefused { target, status } => {
                    let what = format!("{target} refused a replay of client {number}: {status}");
                    self.violate("replay", what);
                }
                _ => {}
            }
        }
        if let Some(told) = said.told {
            self.trace(|| format!("client {number}: {}", crate::model::tell(&told)));
        }
    }

    /// The machine of a client is gone for good.
    pub fn lose_client(&mut self, number: usize, death: Death) {
        self.trace(|| format!("client {number} is gone ({death})"));
        self.seats[number].is_gone = true;
        self.forget_frames(Endpoint::Client(self.seats[number].id), death);
    }

    /// A target dies and is started again after `outage`.
    pub fn lose_target(&mut self, id: TargetId, death: Death, outage: Duration) {
        self.trace(|| format!("{id} dies ({death})"));
        let Some(server) = self.servers.get_mut(&id) else { return };
        match death {
            Death::Power => server.lose_power(0),
            Death::Torn => server.lose_power(server.meta.unsynced_count().div_ceil(2)),
            Death::Process => server.kill(),
        }
        self.wire.retain(|_, event| !matches!(event, Event::Sync(of) if *of == id));
        self.forget_frames(Endpoint::Target(id), death);
        self.post(outage, Event::Start(id));
    }

    /// What is on its way to somebody who is gone does not arrive.
    fn forget_frames(&mut self, end: Endpoint, death: Death) {
        let is_sent = |frame: &Frame| death == Death::Process || host(frame.src) != end;
        self.wire.retain(|_, event| match event {
            Event::Deliver(frame) => host(frame.dst) != end && is_sent(frame),
            _ => true,
        });
    }

    /// Nothing is on its way, under way, or not yet durable.
    pub fn is_at_rest(&self) -> bool {
        !self.wire.values().any(|event| event.is_counted() || matches!(event, Event::Start(_)))
            && self.servers.values().all(Server::is_at_rest)
    }

    /// What keeps servers from coming to rest, for people.
    pub fn under_way(&self) -> String {
        let of_server = |server: &Server| match &server.engine {
            None => vec![format!("{} is down", server.id)],
            Some(Engine::Mdt(mds)) => {
                mds.under_way().iter().map(|line| format!("{}: {line}", server.id)).collect()
            }
            Some(_) if server.has_unsynced() => vec![format!("{} has not synced", server.id)],
            Some(_) => Vec::new(),
        };
        self.servers.values().flat_map(of_server).collect::<Vec<_>>().join("; ")
    }

    pub fn is_broken(&self) -> bool {
        self.shared.borrow().violation.is_some()
    }

    pub fn violate(&self, checker: &'static str, what: String) {
        self.shared.borrow_mut().violation.get_or_insert(Violation {
            checker,
            what,
            step: self.event_count as usize,
        });
    }

    pub fn count(&self, name: &'static str, by: u64) {
        *self.shared.borrow_mut().counts.entry(name).or_default() += by;
    }

    fn trace(&self, text: impl FnOnce() -> String) {
        if self.trace_count > 0 {
            let (at, time) = (self.event_count, self.now.time.0 as f64 / 1e9);
            self.shared.borrow_mut().trace(format!("{time:12.6} {at:>4} {}", text()), self.trace_count);
        }
    }
}
