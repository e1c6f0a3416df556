//! The case of the talk: an MDT under load becomes slower and slower until its clients expect ten minutes for an answer, it dies, and is
//! started elsewhere, while a part of its many clients vanish and a few are cut off for a while. Whoever lives goes on within seconds,
//! with everything that was acknowledged to him.
//!
//! Each client works in a directory of its own: it makes, closes and removes files, one call after the other. So what must be there
//! in the end is known without a model: what was acknowledged to the living, and what was durable of the others.
//!
//! How slow the MDT is nobody says: requests wait in its queue (`slow`), and clients measure. What Lustre would have done from the moment
//! of its death on, with the same clients and what each of them expects, is worked out beside it (`lustre`), for comparison.

mod check;
mod fate;
mod lustre;
mod seat;
mod slow;

use crate::cluster::config_of;
use crate::servers::{Effect, Server};
use crate::sweep::Shared;
use crate::{Outcome, Violation};
use base::{ClusterConfig, Duration, Endpoint, Now, Rng, TargetId, Time, WallTime, limits};
use client::{Input, mgc};
use mgs::Probe;
use seat::Seat;
use slow::{LeaseClock, Slow};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use target::CoreEvent;
use wire::Frame;

const MDT: TargetId = TargetId::mdt(0);
const OST: TargetId = TargetId::ost(0);

/// Work without a fault.
const CALM: Duration = Duration::from_secs(2);
/// What adaptive timeouts go up to, here as in Lustre.
const EXPECTED_MAX: Duration = Duration::from_secs(600);
/// Of those who wait for an answer of the MDT when it dies, at least one in so many expects that.
const EXPECTING_ONE_IN: usize = 4;
/// No recovery may take longer.
const RECOVERY_MAX: Duration = Duration::from_secs(10);
/// How long the run goes on when all have recovered.
const AFTERWARDS: Duration = Duration::from_secs(1);
/// Frames on their way. None is lost but with the machine at an end: connections see to that.
const DELAY_MIN: Duration = Duration::from_micros(20);
const DELAY_SPREAD: Duration = Duration::from_micros(400);
/// After a cut it takes up to so long until a connection has noticed that it can send again.
const RESENT_LATE_MAX: Duration = Duration::from_millis(500);
/// Between two calls of a client.
const PAUSE_MAX: Duration = Duration::from_secs(6);
/// A sync of a disk.
const SYNC_MIN: Duration = Duration::from_micros(200);
const SYNC_SPREAD: Duration = Duration::from_millis(20);

/// Whose recovery is looked at. Up to the death of the MDT, and for what becomes of the clients, a seed is the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Ours,
    Lustre,
    Both,
}

impl Policy {
    fn has_ours(self) -> bool {
        self != Policy::Lustre
    }
}

#[derive(Clone, Debug)]
pub struct ChurnOptions {
    pub client_count: usize,
    pub policy: Policy,
    /// Lines kept for the trace of a violation.
    pub trace_count: usize,
}

enum Event {
    Deliver(Box<Frame>),
    /// The MDT comes to the next one in its queue.
    Serve,
    /// A copy that was lost on its way turns up.
    Straggle(Box<Frame>),
    Sync(TargetId),
    Start(TargetId),
    /// The machine of a client loses power, or is cut off for good.
    Vanish(usize),
    /// A client's next call.
    Call(usize),
    /// The kernel of the MDT's machine tells that its process has died.
    ConnectionLost(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Server(TargetId),
    Seat(usize),
}

pub(crate) struct Churn {
    rng: Rng,
    now: Now,
    options: ChurnOptions,
    shared: Shared,
    wire: BinaryHeap<Posted>,
    posted: u64,
    /// When to look at a seat: never later than its deadline, and perhaps earlier, since a deadline that is put off stays here.
    looks: BinaryHeap<Reverse<(Time, usize)>>,
    servers: BTreeMap<TargetId, Server>,
    seats: Vec<Seat>,
    config: ClusterConfig,
    slow: Option<Slow>,
    leases: LeaseClock,
    /// When the MDT was started again, and when its recovery was over.
    restarted: Option<Time>,
    recovered: Option<Time>,
}

/// What happens, and when; what was posted first happens first.
struct Posted {
    at: Time,
    number: u64,
    event: Event,
}

impl Ord for Posted {
    /// The greatest is the next.
    fn cmp(&self, other: &Posted) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Posted {
    fn partial_cmp(&self, other: &Posted) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Posted {
    fn eq(&self, other: &Posted) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Posted {}

/// Runs one seed.
pub fn run(seed: u64, options: &ChurnOptions) -> Outcome {
    crate::sweep::guarded(|shared| Churn::new(seed, options, shared).run())
}

impl Churn {
    fn new(seed: u64, options: &ChurnOptions, shared: Shared) -> Churn {
        let mut churn = Churn {
            rng: Rng::new(seed),
            now: Now { time: Time(1_000_000_000), wall: WallTime(1_700_000_000_000_000_000) },
            options: options.clone(),
            shared,
            wire: BinaryHeap::new(),
            posted: 0,
            looks: BinaryHeap::new(),
            servers: [TargetId::MGT, MDT, OST]
                .map(|id| (id, Server::new(id, limits::RECOVERY_WINDOW)))
                .into(),
            seats: Vec::new(),
            config: config_of([MDT, OST], Vec::new()),
            slow: None,
            leases: LeaseClock::default(),
            restarted: None,
            recovered: None,
        };
        for server in churn.servers.values_mut() {
            server.check_one_in = 4 * options.client_count as u64;
        }
        for id in [TargetId::MGT, MDT, OST] {
            churn.start(id);
        }
        for number in 0..options.client_count {
            let (seat, frames) = Seat::new(churn.now, number, &churn.config);
            churn.seats.push(seat);
            frames.into_iter().for_each(|frame| churn.post_frame(frame));
            churn.note_deadline(number);
            let begins = churn.at_random(CALM / 2);
            churn.post(begins, Event::Call(number));
        }
        churn
    }

    fn run(mut self) {
        self.run_for(CALM);
        self.run_slowly();
        self.check_expectations();
        if self.is_broken() {
            return;
        }
        let died = self.now.time;
        let durable = self.kill_mdt();
        let until = died.after(fate::OUTAGE_MAX + RECOVERY_MAX * 2);
        if !self.options.policy.has_ours() {
            return;
        }
        while !self.is_over() && self.step(until) && !self.is_broken() {}
        self.count_recovery();
        if !self.is_broken() {
            self.check_absence();
            self.check_progress();
            self.run_for(AFTERWARDS);
            self.check_names(&durable);
            self.check_disks();
        }
    }

    /// The MDT dies; what is durable of it is returned. A part of the clients vanish before it is back.
    fn kill_mdt(&mut self) -> BTreeMap<u64, BTreeSet<Vec<u8>>> {
        self.slow = None;
        // What it has not sent dies with it.
        self.wire.retain(|posted| match &posted.event {
            Event::Deliver(frame) => frame.src != Endpoint::Target(MDT) && frame.dst != Endpoint::Target(MDT),
            Event::Sync(id) => *id != MDT,
            Event::Serve | Event::Straggle(_) => false,
            _ => true,
        });
        let is_power = self.rng.one_in(2);
        let mut rng = self.rng.fork();
        if let Some(server) = self.servers.get_mut(&MDT) {
            let unsynced = server.meta.unsynced_count() as u64;
            self.count_more("transactions that are not durable at its death", unsynced);
        }
        if let Some(server) = self.servers.get_mut(&MDT) {
            if is_power { server.crash(&mut rng) } else { server.kill() }
        }
        self.count(if is_power { "power failure" } else { "process killed" });
        let durable = self.names();
        let restarts = self.draw_fates();
        self.post_at(restarts, Event::Start(MDT));
        self.judge_lustre(restarts);
        for number in 0..self.seats.len() {
            if let Some(at) = self.seats[number].fate.gone {
                self.post_at(at, Event::Vanish(number));
            }
            if !is_power {
                let at = DELAY_MIN + self.at_random(DELAY_SPREAD);
                self.post(at, Event::ConnectionLost(number));
            }
        }
        durable
    }

    /// The MDT has recovered, and every living client has gone on.
    fn is_over(&self) -> bool {
        self.recovered.is_some() && self.stuck().next().is_none()
    }

    /// Living clients that have ended no call since the MDT was started again.
    fn stuck(&self) -> impl Iterator<Item = usize> {
        let restarted = self.restarted.unwrap_or(self.now.time);
        let is_stuck =
            move |seat: &Seat| seat.is_living() && seat.last_progress.is_none_or(|at| at < restarted);
        self.seats.iter().enumerate().filter(move |(_, seat)| is_stuck(seat)).map(|(number, _)| number)
    }

    fn run_for(&mut self, wait: Duration) {
        let until = self.now.time.after(wait);
        while !self.is_broken() && self.step(until) {}
        self.advance(until);
    }

    fn advance(&mut self, to: Time) {
        let by = to.0.saturating_sub(self.now.time.0);
        self.now.time = Time(self.now.time.0 + by);
        self.now.wall = WallTime(self.now.wall.0 + by as i64);
    }

    /// The next thing that happens. False when nothing does before `until`.
    fn step(&mut self, until: Time) -> bool {
        let event = self.wire.peek().map(|posted| posted.at);
        let deadline = self.next_deadline();
        let next = event.into_iter().chain(deadline.map(|(time, _)| time)).min();
        let Some(next) = next.filter(|next| *next <= until) else {
            return false;
        };
        self.advance(next);
        if event == Some(next) {
            if let Some(posted) = self.wire.pop() {
                self.on_event(posted.event);
            }
            return true;
        }
        match deadline {
            Some((_, Who::Server(id))) => self.on_server(id, |server, now, out| server.on_tick(now, out)),
            Some((_, Who::Seat(number))) => self.on_tick(number),
            None => {}
        }
        true
    }

    /// Whichever of its two machines is due.
    fn on_tick(&mut self, number: usize) {
        let seat = &self.seats[number];
        let is_due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= self.now.time);
        let (is_mgc_due, is_client_due) =
            (is_due(seat.mgc_deadline(self.leases)), is_due(seat.client_deadline(self.leases)));
        if is_mgc_due {
            self.on_mgc(number, mgc::Input::Tick);
        }
        if is_client_due {
            self.on_client(number, Input::Tick);
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Deliver(frame) => self.deliver(frame),
            Event::Serve => self.serve_next(),
            Event::Straggle(frame) => {
                self.on_server(MDT, |server, now, out| server.on_frame(now, *frame, out))
            }
            Event::Sync(id) => {
                let mut rng = self.rng.fork();
                self.on_server(id, |server, now, out| server.sync(now, &mut rng, out));
            }
            Event::Start(id) => {
                self.start(id);
                self.restarted = Some(self.now.time);
            }
            Event::Vanish(number) => {
                self.count("client vanished");
                self.seats[number].is_gone = true;
            }
            Event::Call(number) => {
                if let Some(call) = self.seats[number].next_call(self.now.time) {
                    self.on_client(number, call);
                }
            }
            Event::ConnectionLost(number) => self.on_client(number, Input::ConnectionLost(MDT)),
        }
    }

    fn start(&mut self, id: TargetId) {
        let config = self.config.clone();
        self.on_server(id, |server, now, out| server.start(now, &config, out));
    }

    fn on_server(&mut self, id: TargetId, act: impl FnOnce(&mut Server, Now, &mut Vec<Effect>)) {
        let now = if id == TargetId::MGT { self.leases.now(self.now) } else { self.now };
        let Some(server) = self.servers.get_mut(&id) else { return };
        let mut effects = Vec::new();
        act(server, now, &mut effects);
        if server.engine.is_some() && !server.is_syncing && server.wants_sync() {
            server.is_syncing = true;
            let load = if id == MDT { self.disk_load() } else { Duration::ZERO };
            let takes = SYNC_MIN + self.at_random(SYNC_SPREAD) + load;
            self.post(takes, Event::Sync(id));
        }
        for effect in effects {
            match effect {
                Effect::Send(frame) => self.post_frame(frame),
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
        match event {
            CoreEvent::Evicted { client, why } => {
                self.trace(|| format!("{id}: {client} is given up: {why:?}"));
                let Some((number, _)) = Seat::of(*client, self.seats.len()) else { return };
                if self.seats[number].is_living() {
                    self.violate("eviction", format!("{id} gave up client {number}, which lives: {why:?}"));
                } else if id == MDT && !self.seats[number].is_gone {
                    self.count("client given up while it was cut off");
                    self.seats[number].give_up();
                }
            }
            CoreEvent::Executed { replay: Some(_), .. } => self.count("replayed"),
            CoreEvent::Executed { .. } => self.count("executed"),
            CoreEvent::RecoveryEnded { .. } if id == MDT && self.restarted.is_some() => {
                self.trace(|| format!("{id}: {event:?}"));
                self.recovered.get_or_insert(self.now.time);
            }
            CoreEvent::ProtocolError { client, what } => {
                self.violate("protocol", format!("{id}: {what}, by {client}"));
            }
            _ => {}
        }
    }

    fn on_client(&mut self, number: usize, input: Input) {
        let now = self.now;
        let seat = &mut self.seats[number];
        if seat.is_gone {
            return;
        }
        let said = seat.on_client(now, input);
        self.note_deadline(number);
        said.frames.into_iter().for_each(|frame| self.post_frame(frame));
        if let Some(errno) = said.failed {
            if !self.seats[number].is_given_up() {
                return self.violate("call", format!("a call of client {number} failed: errno {errno}"));
            }
            self.count("call of a client that had been given up failed");
        }
        if said.has_progressed {
            self.count("call");
            if self.seats[number].is_given_up() {
                self.count("call of a client that had been given up");
            }
            let pause = self.at_random(PAUSE_MAX);
            self.post(pause, Event::Call(number));
        }
    }

    fn on_mgc(&mut self, number: usize, input: mgc::Input) {
        let (now, leases) = (self.leases.now(self.now), self.leases);
        let seat = &mut self.seats[number];
        if seat.is_gone {
            return;
        }
        let (frames, inputs) = seat.on_mgc(now, leases, input);
        frames.into_iter().for_each(|frame| self.post_frame(frame));
        for input in inputs {
            self.on_client(number, input);
        }
        self.note_deadline(number);
    }

    fn at_random(&mut self, below: Duration) -> Duration {
        Duration::from_nanos(self.rng.below(u64::try_from(below.as_nanos()).unwrap_or(u64::MAX)))
    }

    fn post(&mut self, after: Duration, event: Event) {
        self.post_at(self.now.time.after(after), event);
    }

    fn post_at(&mut self, at: Time, event: Event) {
        self.posted += 1;
        self.wire.push(Posted { at, number: self.posted, event });
    }

    fn post_frame(&mut self, frame: Frame) {
        self.digest(&[self.now.time.0, frame.xid.0, frame.transno.0, frame.body.len() as u64]);
        if self.is_unsaid(&frame) {
            return;
        }
        let held_up = self.held_up(frame.src);
        let delay = DELAY_MIN + self.at_random(DELAY_SPREAD) + self.answer_delay(&frame);
        self.post(held_up + delay, Event::Deliver(Box::new(frame)));
    }

    /// How much longer a frame takes from or to this end, which may be cut off: it is sent again and again, ever less often.
    fn held_up(&mut self, end: Endpoint) -> Duration {
        let Endpoint::Client(caller) = end else { return Duration::ZERO };
        let seat = Seat::of(caller, self.seats.len()).and_then(|(number, _)| self.seats.get(number));
        let Some(left) = seat.and_then(|seat| seat.fate.away_for(self.now.time)) else {
            return Duration::ZERO;
        };
        left + self.at_random((left / 2).min(RESENT_LATE_MAX).max(DELAY_MIN))
    }

    fn deliver(&mut self, frame: Box<Frame>) {
        let held_up = self.held_up(frame.dst);
        if held_up > Duration::ZERO {
            return self.post(held_up, Event::Deliver(frame));
        }
        match frame.dst {
            Endpoint::Target(MDT) if self.slow.is_some() && matches!(frame.src, Endpoint::Client(_)) => {
                self.enqueue(frame);
            }
            Endpoint::Target(id) => {
                if self.servers.get(&id).is_some_and(|server| server.engine.is_some()) {
                    self.on_server(id, |server, now, out| server.on_frame(now, *frame, out));
                }
            }
            Endpoint::Client(caller) => {
                if let Some(id) = Server::of_caller(caller) {
                    if self.servers.get(&id).is_some_and(|server| server.engine.is_some()) {
                        self.on_server(id, |server, now, out| server.on_frame(now, *frame, out));
                    }
                } else if let Some((number, is_mgc)) = Seat::of(caller, self.seats.len()) {
                    self.note_answer(&frame);
                    match is_mgc {
                        true => self.on_mgc(number, mgc::Input::Frame(*frame)),
                        false => self.on_client(number, Input::Frame(*frame)),
                    }
                }
            }
        }
    }

    /// The machine that is to be ticked first, and when.
    fn next_deadline(&mut self) -> Option<(Time, Who)> {
        let seat = self.next_seat().map(|(time, number)| (time, Who::Seat(number)));
        let leases = self.leases;
        let deadline = |server: &Server| match server.id {
            TargetId::MGT => leases.deadline(server.deadline),
            _ => server.deadline,
        };
        let servers = self.servers.values();
        servers.filter_map(|server| Some((deadline(server)?, Who::Server(server.id)))).chain(seat).min()
    }

    fn next_seat(&mut self) -> Option<(Time, usize)> {
        loop {
            let Reverse((at, number)) = self.looks.peek().copied()?;
            let seat = &mut self.seats[number];
            let deadline = seat.next_deadline(self.leases);
            if deadline == Some(at) && seat.look_at == Some(at) {
                return Some((at, number));
            }
            self.looks.pop();
            // Else there is another look, which is earlier.
            if seat.look_at == Some(at) {
                seat.look_at = deadline;
                self.looks.extend(deadline.map(|at| Reverse((at, number))));
            }
        }
    }

    fn note_deadline(&mut self, number: usize) {
        let seat = &mut self.seats[number];
        let Some(next) = seat.next_deadline(self.leases) else { return };
        if seat.look_at.is_none_or(|at| at > next) {
            seat.look_at = Some(next);
            self.looks.push(Reverse((next, number)));
        }
    }

    fn count(&self, name: &'static str) {
        self.count_more(name, 1);
    }

    fn count_more(&self, name: &'static str, by: u64) {
        *self.shared.borrow_mut().counts.entry(name).or_default() += by;
    }

    fn trace(&self, text: impl FnOnce() -> String) {
        if self.options.trace_count > 0 {
            let time = self.now.time.0 as f64 / 1e9;
            self.shared.borrow_mut().trace(format!("{time:12.6} {}", text()), self.options.trace_count);
        }
    }

    fn digest(&self, numbers: &[u64]) {
        self.shared.borrow_mut().mix(numbers);
    }

    fn is_broken(&self) -> bool {
        self.shared.borrow().violation.is_some()
    }

    fn violate(&self, checker: &'static str, what: String) {
        self.shared.borrow_mut().violation.get_or_insert(Violation { checker, what, step: 0 });
    }
}
