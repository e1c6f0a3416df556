//! The case of the talk: an MDT under load becomes slower and slower, dies, and is started elsewhere, while a part of its many clients
//! vanish. Whoever lives goes on within seconds, with everything that was acknowledged to him.
//!
//! Each client works in a directory of its own: it makes, closes and removes files, one call after the other. So what must be there
//! in the end is known without a model: what was acknowledged to the living, and what was durable of the others.
//!
//! Under the policy `lustre` the MDT waits as Lustre does, for everybody that it knew, a soft limit that each client who reconnects
//! extends by what he believes its service to take, up to a hard one; there are no leases, nobody is told that it is back, and who
//! waits for an answer notices its death when his own timeout is over. The figures of that are a model's, for comparison.

mod check;
mod seat;

use crate::servers::{Effect, FSNAME, Server};
use crate::sweep::Shared;
use crate::{Outcome, Violation};
use base::{ClusterConfig, Duration, Endpoint, Now, Rng, TargetConfig, TargetId, Time, WallTime, limits};
use client::{Input, mgc};
use seat::Seat;
use std::collections::{BTreeMap, BTreeSet};
use target::CoreEvent;
use wire::{Frame, FrameKind, Request};

const MDT: TargetId = TargetId::mdt(0);
const OST: TargetId = TargetId::ost(0);

/// Work without a fault, and work while the MDT becomes slower.
const CALM: Duration = Duration::from_secs(2);
const SLOWING: Duration = Duration::from_secs(3);
/// What its answers take in the end: what Lustre's adaptive timeouts go up to.
const SERVICE_MAX: Duration = Duration::from_secs(600);
/// How often that was doubled.
const DOUBLINGS: u32 = 20;
/// By so much its disk is worse than its answers.
const DISK_AHEAD: u32 = 8;
/// Answers that take so long are slow.
const SLOW: Duration = Duration::from_millis(500);
/// Clients of a hundred that vanish.
const VANISHING: u64 = 30;
/// No recovery may take longer.
const RECOVERY_MAX: Duration = Duration::from_secs(10);
/// The limits of `lustre`, and how a client extends the soft one: a quarter more than the service takes, and so much.
const SOFT: Duration = Duration::from_secs(300);
const HARD: Duration = Duration::from_secs(900);
const EXTENSION: Duration = Duration::from_secs(125);
/// Frames on their way. None is lost but with the machine at an end: connections see to that.
const DELAY_MIN: Duration = Duration::from_micros(20);
const DELAY_SPREAD: Duration = Duration::from_micros(400);
/// Between two calls of a client.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Between the death of the MDT and its next start.
const OUTAGE_MIN: Duration = Duration::from_millis(300);
const OUTAGE_SPREAD: Duration = Duration::from_secs(5);
/// A sync of a disk.
const SYNC_MIN: Duration = Duration::from_micros(200);
const SYNC_SPREAD: Duration = Duration::from_millis(20);

/// Who is waited for after a restart, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Ours,
    Lustre,
}

#[derive(Clone, Debug)]
pub struct ChurnOptions {
    pub client_count: usize,
    pub policy: Policy,
    /// Lines kept for the trace of a violation.
    pub trace_count: usize,
}

enum Event {
    /// Boxed: very many are on their way, in an ordered map.
    Deliver(Box<Frame>),
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
    wire: BTreeMap<(Time, u64), Event>,
    posted: u64,
    /// When to look at a seat: never later than its deadline, and perhaps earlier, since a deadline that is put off stays here.
    looks: BTreeSet<(Time, usize)>,
    servers: BTreeMap<TargetId, Server>,
    seats: Vec<Seat>,
    config: ClusterConfig,
    slowing_since: Option<Time>,
    /// When the MDT was started again, and when its recovery was over.
    restarted: Option<Time>,
    recovered: Option<Time>,
}

/// Runs one seed.
pub fn run(seed: u64, options: &ChurnOptions) -> Outcome {
    crate::sweep::guarded(|shared| Churn::new(seed, options, shared).run())
}

impl Churn {
    fn new(seed: u64, options: &ChurnOptions, shared: Shared) -> Churn {
        let target =
            |id| TargetConfig { id, uuid: Server::uuid(id), nids: vec!["sim".into()], is_active: true };
        let config = ClusterConfig {
            fsname: FSNAME.into(),
            version: 1,
            targets: [MDT, OST].map(target).to_vec(),
            params: Vec::new(),
            pools: Vec::new(),
        };
        let window = match options.policy {
            Policy::Ours => limits::RECOVERY_WINDOW,
            Policy::Lustre => SOFT,
        };
        let mut churn = Churn {
            rng: Rng::new(seed),
            now: Now { time: Time(1_000_000_000), wall: WallTime(1_700_000_000_000_000_000) },
            options: options.clone(),
            shared,
            wire: BTreeMap::new(),
            posted: 0,
            looks: BTreeSet::new(),
            servers: [TargetId::MGT, MDT, OST].map(|id| (id, Server::new(id, window))).into(),
            seats: Vec::new(),
            config,
            slowing_since: None,
            restarted: None,
            recovered: None,
        };
        for server in churn.servers.values_mut() {
            server.check_one_in = options.client_count as u64;
        }
        for id in [TargetId::MGT, MDT, OST] {
            churn.start(id);
        }
        for number in 0..options.client_count {
            let has_lease = options.policy == Policy::Ours;
            let (seat, frames) = Seat::new(churn.now, number, &churn.config, has_lease);
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
        self.slowing_since = Some(self.now.time);
        self.run_for(SLOWING);
        let durable = self.kill_mdt();
        let is_lustre = self.options.policy == Policy::Lustre;
        let patience = if is_lustre { HARD + OUTAGE_MIN + OUTAGE_SPREAD } else { RECOVERY_MAX * 2 };
        let until = self.now.time.after(patience);
        while !self.is_over() && self.step(until) && !self.is_broken() {}
        self.count_recovery();
        if !is_lustre && !self.is_broken() {
            self.check_progress();
            self.run_for(Duration::from_secs(2));
            self.check_names(&durable);
            self.check_disks();
        }
    }

    /// The MDT dies; what is durable of it is returned. A part of the clients vanish before it is back.
    fn kill_mdt(&mut self) -> BTreeMap<u64, BTreeSet<Vec<u8>>> {
        self.slowing_since = None;
        for seat in &self.seats {
            if seat.expects(MDT) >= SLOW {
                self.count("client expects slow answers");
            }
        }
        // What it has not sent dies with it.
        self.wire.retain(|_, event| match event {
            Event::Deliver(frame) => frame.src != Endpoint::Target(MDT) && frame.dst != Endpoint::Target(MDT),
            Event::Sync(id) => *id != MDT,
            _ => true,
        });
        let is_power = self.rng.one_in(2);
        let mut rng = self.rng.fork();
        if let Some(server) = self.servers.get_mut(&MDT) {
            let unsynced = server.meta.unsynced_count() as u64;
            *self
                .shared
                .borrow_mut()
                .counts
                .entry("transactions that are not durable at its death")
                .or_default() += unsynced;
            if is_power { server.crash(&mut rng) } else { server.kill() }
        }
        self.count(if is_power { "power failure" } else { "process killed" });
        let durable = self.names();
        let outage = OUTAGE_MIN + self.at_random(OUTAGE_SPREAD);
        self.post(outage, Event::Start(MDT));
        for number in 0..self.seats.len() {
            if self.rng.below(100) < VANISHING {
                let at = self.at_random(outage);
                self.post(at, Event::Vanish(number));
            } else if self.options.policy == Policy::Lustre {
                let notices = self.at_random(SERVICE_MAX);
                self.seats[number].deaf_until = self.now.time.after(notices);
            } else if !is_power {
                let at = DELAY_MIN + self.at_random(DELAY_SPREAD);
                self.post(at, Event::ConnectionLost(number));
            }
        }
        durable
    }

    /// The MDT has recovered, and every living client has gone on.
    fn is_over(&self) -> bool {
        self.recovered.is_some() && (self.options.policy == Policy::Lustre || self.stuck().next().is_none())
    }

    /// Living clients that have ended no call since the MDT was started again.
    fn stuck(&self) -> impl Iterator<Item = usize> {
        let restarted = self.restarted.unwrap_or(self.now.time);
        let is_stuck = move |seat: &Seat| !seat.is_gone && seat.last_progress.is_none_or(|at| at < restarted);
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
        let event = self.wire.first_key_value().map(|((time, _), _)| *time);
        let deadline = self.next_deadline();
        let next = event.into_iter().chain(deadline.map(|(time, _)| time)).min();
        let Some(next) = next.filter(|next| *next <= until) else {
            return false;
        };
        self.advance(next);
        if event == Some(next) {
            if let Some((_, event)) = self.wire.pop_first() {
                self.on_event(event);
            }
            return true;
        }
        match deadline {
            Some((_, Who::Server(id))) => self.on_server(id, |server, now, out| server.on_tick(now, out)),
            Some((_, Who::Seat(number))) => {
                self.on_mgc(number, mgc::Input::Tick);
                self.on_client(number, Input::Tick);
            }
            None => {}
        }
        true
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Deliver(frame) => self.deliver(*frame),
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
                if let Some(call) = self.seats[number].next_call() {
                    self.on_client(number, call);
                }
            }
            Event::ConnectionLost(number) => self.on_client(number, Input::ConnectionLost(MDT)),
        }
    }

    fn start(&mut self, id: TargetId) {
        let config = self.config.clone();
        self.on_server(id, |server, now, out| server.start(now, &config, out));
        if self.options.policy == Policy::Lustre
            && let Some(server) = self.servers.get_mut(&id)
        {
            server.asks = false;
            // Its end is judged here.
            server.set_recovery_hard(HARD * 4);
        }
    }

    fn on_server(&mut self, id: TargetId, act: impl FnOnce(&mut Server, Now, &mut Vec<Effect>)) {
        let now = self.now;
        let Some(server) = self.servers.get_mut(&id) else { return };
        let mut effects = Vec::new();
        act(server, now, &mut effects);
        if server.engine.is_some() && !server.is_syncing && server.wants_sync() {
            server.is_syncing = true;
            // Its disk is the first to be loaded: what is acknowledged is not durable for a while.
            let load = if id == MDT { self.service(DISK_AHEAD) } else { Duration::ZERO };
            let takes = SYNC_MIN + self.at_random(SYNC_SPREAD) + load;
            self.post(takes, Event::Sync(id));
        }
        for effect in effects {
            match effect {
                Effect::Send(frame) => self.post_frame(frame),
                Effect::Failed(what) => self.violate("machines", format!("{id}: {what}")),
                Effect::Note(note) => self.trace(|| format!("{id}: {note}")),
                Effect::Core(event) => self.on_core(id, &event),
            }
        }
    }

    fn on_core(&mut self, id: TargetId, event: &CoreEvent) {
        match event {
            CoreEvent::Evicted { client, why } => {
                self.trace(|| format!("{id}: {client} is given up: {why:?}"));
                let living = self.seats.iter().position(|seat| seat.id == *client && !seat.is_gone);
                if let Some(number) = living {
                    self.count("living client evicted");
                    self.must_not("eviction", || {
                        format!("{id} gave up client {number}, which lives: {why:?}")
                    });
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
            self.must_not("call", || format!("a call of client {number} failed: errno {errno}"));
        }
        if said.has_progressed {
            self.count("call");
            let pause = self.at_random(PAUSE_MAX);
            self.post(pause, Event::Call(number));
        }
    }

    fn on_mgc(&mut self, number: usize, input: mgc::Input) {
        let now = self.now;
        let seat = &mut self.seats[number];
        if seat.is_gone {
            return;
        }
        let (frames, inputs) = seat.on_mgc(now, input);
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
        self.posted += 1;
        self.wire.insert((self.now.time.after(after), self.posted), event);
    }

    fn post_frame(&mut self, frame: Frame) {
        self.digest(&[self.now.time.0, frame.xid.0, frame.transno.0, frame.body.len() as u64]);
        let mut delay = DELAY_MIN + self.at_random(DELAY_SPREAD);
        if frame.src == Endpoint::Target(MDT) {
            delay += self.service(0);
        }
        self.post(delay, Event::Deliver(Box::new(frame)));
    }

    /// What an answer of the MDT takes now: twice as long again and again. Something else may be so many doublings ahead.
    fn service(&self, ahead: u32) -> Duration {
        let Some(since) = self.slowing_since else { return Duration::ZERO };
        let part = SLOWING / DOUBLINGS;
        let doubled = (0..DOUBLINGS).filter(|number| self.now.time >= since.after(part * *number)).count();
        SERVICE_MAX / (1 << DOUBLINGS.saturating_sub(doubled as u32 + ahead))
    }

    fn deliver(&mut self, frame: Frame) {
        match frame.dst {
            Endpoint::Target(id) => {
                if self.is_deaf(frame.src, id) {
                    return;
                }
                if self.options.policy == Policy::Lustre && id == MDT {
                    self.extend_window(&frame);
                }
                if self.servers.get(&id).is_some_and(|server| server.engine.is_some()) {
                    self.on_server(id, |server, now, out| server.on_frame(now, frame, out));
                }
            }
            Endpoint::Client(caller) => {
                if let Some(id) = Server::of_caller(caller) {
                    if self.servers.get(&id).is_some_and(|server| server.engine.is_some()) {
                        self.on_server(id, |server, now, out| server.on_frame(now, frame, out));
                    }
                } else if let Some((number, is_mgc)) = Seat::of(caller, self.seats.len()) {
                    match is_mgc {
                        true => self.on_mgc(number, mgc::Input::Frame(frame)),
                        false => self.on_client(number, Input::Frame(frame)),
                    }
                }
            }
        }
    }

    /// Whether a client has not noticed yet that the MDT has died.
    fn is_deaf(&self, caller: Endpoint, target: TargetId) -> bool {
        let Endpoint::Client(caller) = caller else { return false };
        let number = Seat::of(caller, self.seats.len()).filter(|_| target == MDT);
        number.is_some_and(|(number, _)| self.now.time < self.seats[number].deaf_until)
    }

    /// A client that reconnects says how long the service takes, and the target believes it.
    fn extend_window(&mut self, frame: &Frame) {
        let (Some(started), None) = (self.restarted, self.recovered) else { return };
        let is_connect = frame.kind == FrameKind::Request
            && matches!(Request::from_bytes(&frame.body), Ok(Request::Connect(_)));
        if is_connect && let Some(server) = self.servers.get_mut(&MDT) {
            let window = self.now.time.since(started) + SERVICE_MAX / 4 * 5 + EXTENSION;
            server.extend_recovery_window(window.min(HARD));
        }
    }

    /// The machine that is to be ticked first, and when.
    fn next_deadline(&mut self) -> Option<(Time, Who)> {
        let seat = self.next_seat().map(|(time, number)| (time, Who::Seat(number)));
        let servers =
            self.servers.values().filter_map(|server| Some((server.deadline?, Who::Server(server.id))));
        servers.chain(seat).min()
    }

    fn next_seat(&mut self) -> Option<(Time, usize)> {
        loop {
            let (at, number) = self.looks.first().copied()?;
            let deadline = self.seats[number].next_deadline();
            if deadline == Some(at) {
                return Some((at, number));
            }
            self.looks.pop_first();
            self.seats[number].look_at = deadline;
            self.looks.extend(deadline.map(|at| (at, number)));
        }
    }

    fn note_deadline(&mut self, number: usize) {
        let seat = &mut self.seats[number];
        let Some(next) = seat.next_deadline() else { return };
        if seat.look_at.is_some_and(|at| at <= next) {
            return;
        }
        if let Some(later) = seat.look_at.replace(next) {
            self.looks.remove(&(later, number));
        }
        self.looks.insert((next, number));
    }

    fn count(&self, name: &'static str) {
        *self.shared.borrow_mut().counts.entry(name).or_default() += 1;
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

    /// What the other policy is known to do.
    fn must_not(&self, checker: &'static str, what: impl FnOnce() -> String) {
        if self.options.policy == Policy::Ours {
            self.violate(checker, what());
        }
    }
}
