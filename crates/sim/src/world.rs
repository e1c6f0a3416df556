//! The world: clock, network, machine room, mounts, and the judge of each round.

use crate::model::{Content, Inode, Model, Op, Outcome as Told, tell};
use crate::mount::{Kernel, Port, Task};
use crate::servers::{Effect, Engine, FSNAME, Server};
use crate::sweep::Shared;
use crate::workload::Workload;
use crate::{Options, Violation};
use base::{
    ClientId, ClusterConfig, Duration, Endpoint, Machine, Now, Rng, TargetConfig, TargetId, Time, WallTime,
};
use client::{Client, ClientOptions, Event as ClientEvent, Input, Notify, NotifyId, NotifyResult, Output};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use target::CoreEvent;
use wire::Frame;

/// A round that takes longer has got stuck: two recovery windows, and evictions in between.
const ROUND_MAX: Duration = Duration::from_secs(900);
/// More states than these are not kept apart; operations that depend on each other seldom meet in one round.
const CANDIDATES_MAX: usize = 64;
pub const RECOVERY_WINDOW: Duration = Duration::from_secs(60);

/// Something that happens later.
#[derive(Debug)]
enum Event {
    Deliver(Frame),
    Sync(TargetId),
    Start(TargetId),
    Notify(usize, u64, NotifyId, Notify),
    Heal(Endpoint),
    Crash(TargetId, bool),
}

/// A mount and its processes.
pub struct Mount {
    pub id: ClientId,
    /// Which mount of this seat it is; notifications of an older one are void.
    generation: u64,
    pub machine: Client,
    pub port: Port,
    deadline: Option<Time>,
    tasks: Vec<Running>,
    /// It was evicted, or died: what it did may be lost.
    pub is_doubtful: bool,
    pub is_drained: bool,
}

struct Running {
    op: Op,
    task: Task,
    index: usize,
}

/// What happened to one operation of a round.
struct Done {
    client: usize,
    op: Op,
    outcome: Option<Told>,
}

pub struct World {
    pub rng: Rng,
    pub now: Now,
    pub options: Options,
    shared: Shared,
    wire: BTreeMap<(Time, u64), Event>,
    posted: u64,
    pub servers: BTreeMap<TargetId, Server>,
    pub mounts: Vec<Mount>,
    config: ClusterConfig,
    cut: BTreeSet<Endpoint>,
    loss_one_in: u64,
    delay_ns_max: u64,
    /// One of `candidates`, for choosing operations.
    pub model: Model,
    /// All states that explain what was told so far: the order of two writes shows only when somebody reads.
    pub candidates: Vec<Model>,
    /// Content of files, by node, as somebody has made it durable by fsync; nobody has written to them since.
    pub synced: BTreeMap<u64, Rc<Vec<u8>>>,
    /// Something was allowed to be lost: outcomes are not judged until the state was read back.
    pub is_doubtful: bool,
    is_full: bool,
    /// At some time in this round.
    was_full: bool,
    started: usize,
    round: Vec<Done>,
    next_client: u128,
}

impl World {
    pub fn new(seed: u64, options: &Options, shared: Shared) -> World {
        let mut rng = Rng::new(seed);
        let mdts = (0..options.mdt_count).map(TargetId::mdt);
        let osts = (0..options.ost_count).map(TargetId::ost);
        let ids: Vec<TargetId> = mdts.chain(osts).collect();
        let target = |id: &TargetId| TargetConfig {
            id: *id,
            uuid: Server::uuid(*id),
            nids: vec!["sim".into()],
            is_active: true,
        };
        let config = ClusterConfig {
            fsname: FSNAME.into(),
            version: 1,
            targets: ids.iter().map(target).collect(),
            params: Vec::new(),
        };
        let loss_one_in = match (options.weather.has_loss, rng.below(3)) {
            (false, _) | (true, 0) => 0,
            (true, 1) => 200,
            (true, _) => 25,
        };
        let delay_ns_max = [50_000, 500_000, 5_000_000][rng.below(3) as usize];
        let servers = ids.iter().map(|id| (*id, Server::new(*id, RECOVERY_WINDOW))).collect();
        let mut world = World {
            rng,
            now: Now { time: Time(1_000_000_000), wall: WallTime(1_700_000_000_000_000_000) },
            options: options.clone(),
            shared,
            wire: BTreeMap::new(),
            posted: 0,
            servers,
            mounts: Vec::new(),
            config,
            cut: BTreeSet::new(),
            loss_one_in,
            delay_ns_max,
            model: Model::new(),
            candidates: vec![Model::new()],
            synced: BTreeMap::new(),
            is_doubtful: false,
            is_full: false,
            was_full: false,
            started: 0,
            round: Vec::new(),
            next_client: 1,
        };
        for id in ids {
            world.start(id);
        }
        for _ in 0..options.client_count {
            let mount = world.new_mount();
            world.mounts.push(mount);
        }
        world
    }

    pub fn run(mut self) {
        while self.started < self.options.steps {
            self.run_round();
            if self.is_broken() {
                return;
            }
            if self.is_doubtful || self.rng.one_in(60) {
                self.rest();
            }
            if self.is_broken() {
                return;
            }
        }
        self.rest();
        self.finish();
    }

    fn is_broken(&self) -> bool {
        self.shared.borrow().violation.is_some()
    }

    pub fn violate(&self, checker: &'static str, what: String) {
        let mut shared = self.shared.borrow_mut();
        let step = self.started;
        shared.violation.get_or_insert(Violation { checker, what, step });
    }

    pub fn count(&self, name: &'static str) {
        *self.shared.borrow_mut().counts.entry(name).or_default() += 1;
    }

    pub fn is_tracing(&self) -> bool {
        self.options.trace_count > 0
    }

    pub fn trace(&self, text: impl FnOnce() -> String) {
        if self.is_tracing() {
            let time = self.now.time.0 as f64 / 1e9;
            self.shared.borrow_mut().trace(format!("{time:12.6} {}", text()), self.options.trace_count);
        }
    }

    fn digest(&self, numbers: &[u64]) {
        let mut shared = self.shared.borrow_mut();
        for number in numbers {
            shared.digest = (shared.digest ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        }
    }

    fn new_mount(&mut self) -> Mount {
        let id = ClientId((0xc11e_u128 << 64) + self.next_client);
        self.next_client += 1;
        let options = ClientOptions {
            incarnation: 1,
            client: id,
            fsname: FSNAME.into(),
            nid: format!("client{}", self.next_client),
            has_inc_epoch: true,
            is_mmap_relaxed: false,
            has_kill_privileges: true,
        };
        let machine = Client::new(self.now, options);
        let port = Rc::new(RefCell::new(Kernel::default()));
        let mut mount = Mount {
            id,
            generation: self.next_client as u64,
            machine,
            port,
            deadline: None,
            tasks: Vec::new(),
            is_doubtful: false,
            is_drained: false,
        };
        let mut out = Vec::new();
        mount.machine.handle(self.now, Input::Config(self.config.clone()), &mut out);
        mount.deadline = mount.machine.next_deadline();
        let seat = self.mounts.len();
        for output in out {
            if let Output::Send(frame) = output {
                self.post_frame(frame, seat);
            }
        }
        mount
    }

    // --- time and network ---

    fn post(&mut self, after: Duration, event: Event) {
        self.posted += 1;
        self.wire.insert((self.now.time.after(after), self.posted), event);
    }

    fn post_frame(&mut self, frame: Frame, _seat: usize) {
        self.digest(&[self.now.time.0, frame.xid.0, frame.transno.0, frame.body.len() as u64]);
        if self.cut.contains(&frame.src) || self.cut.contains(&frame.dst) {
            return self.count("frame cut");
        }
        let mut copies = 1;
        if self.loss_one_in > 0 && self.rng.one_in(self.loss_one_in) {
            copies = if self.rng.one_in(2) { 0 } else { 2 };
            self.count(if copies == 0 { "frame lost" } else { "frame copied" });
        }
        for _ in 0..copies {
            let mut delay = 5_000 + self.rng.below(self.delay_ns_max);
            if self.loss_one_in > 0 && self.rng.one_in(100) {
                self.count("frame delayed");
                delay += self.rng.below(3_000_000_000);
            }
            self.post(Duration::from_nanos(delay), Event::Deliver(frame.clone()));
        }
    }

    /// Advances to the next thing that happens. False when nothing does before `until`.
    fn step(&mut self, until: Time) -> bool {
        let event_at = self.wire.keys().next().map(|(time, _)| *time);
        let servers = self.servers.values().filter_map(|server| server.deadline);
        let mounts = self.mounts.iter().filter_map(|mount| mount.deadline);
        let next = servers.chain(mounts).chain(event_at).min();
        let Some(next) = next.filter(|next| *next <= until) else { return false };
        self.advance(next);
        if event_at.is_some_and(|at| at <= self.now.time) {
            if let Some((_, event)) = self.wire.pop_first() {
                self.on_event(event);
            }
            return true;
        }
        let now = self.now;
        let due: Vec<TargetId> =
            self.servers.values().filter(|s| is_due(s.deadline, now)).map(|s| s.id).collect();
        for id in due {
            self.on_server(id, |server, now, _, out| server.on_tick(now, out));
            if self.servers.get(&id).is_some_and(|server| is_due(server.deadline, now)) {
                self.violate("machines", format!("a tick of {id} leaves its deadline in the past"));
                return false;
            }
        }
        for seat in 0..self.mounts.len() {
            if is_due(self.mounts[seat].deadline, now) {
                self.on_client(seat, Input::Tick);
                if is_due(self.mounts[seat].deadline, now) {
                    self.violate(
                        "machines",
                        format!("a tick of client {seat} leaves its deadline in the past"),
                    );
                    return false;
                }
            }
        }
        true
    }

    fn advance(&mut self, to: Time) {
        let by = to.0.saturating_sub(self.now.time.0);
        self.now.time = Time(self.now.time.0 + by);
        self.now.wall = WallTime(self.now.wall.0 + by as i64);
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Deliver(frame) => self.deliver(frame),
            Event::Sync(id) => {
                self.count("sync");
                self.on_server(id, |server, now, rng, out| server.sync(now, rng, out));
            }
            Event::Start(id) => {
                if self.servers.get(&id).is_some_and(|server| server.engine.is_none()) {
                    self.start(id);
                }
            }
            Event::Crash(id, is_power) => self.crash(id, is_power),
            Event::Heal(end) => {
                self.trace(|| format!("{end} is reachable again"));
                self.cut.remove(&end);
            }
            Event::Notify(seat, generation, id, notify) => {
                if self.mounts[seat].generation != generation {
                    return;
                }
                let waits_for = match &notify {
                    Notify::InvalEntry { parent, .. } => Some(*parent),
                    _ => None,
                };
                if waits_for.is_some_and(|node| self.mounts[seat].port.borrow().is_locked(node)) {
                    self.count("notification waited");
                    self.post(Duration::from_micros(100), Event::Notify(seat, generation, id, notify));
                } else {
                    let result = self.notify(seat, &notify);
                    self.on_client(seat, Input::Notified(id, result));
                }
            }
        }
    }

    fn notify(&mut self, seat: usize, notify: &Notify) -> NotifyResult {
        self.trace(|| format!("kernel {seat}: {notify:?}"));
        let mut kernel = self.mounts[seat].port.borrow_mut();
        let was_known = match notify {
            Notify::InvalEntry { parent, name } => kernel.invalidate_entry(*parent, name),
            Notify::InvalInode { node, .. } => kernel.invalidate_inode(*node),
            Notify::IncEpoch => {
                kernel.drop_all_names();
                true
            }
        };
        if was_known { NotifyResult::Ok } else { NotifyResult::NoEntry }
    }

    fn deliver(&mut self, frame: Frame) {
        if self.cut.contains(&frame.src) || self.cut.contains(&frame.dst) {
            return self.count("frame cut");
        }
        self.trace(|| describe(&frame));
        match frame.dst {
            Endpoint::Target(id) => {
                if self.servers.get(&id).is_some_and(|server| server.engine.is_some()) {
                    self.on_server(id, |server, now, _, out| server.on_frame(now, frame, out));
                }
            }
            Endpoint::Client(id) => {
                if let Some(seat) = self.mounts.iter().position(|mount| mount.id == id) {
                    self.on_client(seat, Input::Frame(frame));
                }
            }
        }
    }

    // --- targets ---

    fn on_server(&mut self, id: TargetId, act: impl FnOnce(&mut Server, Now, &mut Rng, &mut Vec<Effect>)) {
        let now = self.now;
        let mut rng = self.rng.fork();
        let Some(server) = self.servers.get_mut(&id) else { return };
        let mut effects = Vec::new();
        act(server, now, &mut rng, &mut effects);
        let wants_sync = server.engine.is_some() && server.wants_sync() && !server.is_syncing;
        server.is_syncing |= wants_sync;
        if wants_sync {
            let takes = 100_000 + self.rng.below(30_000_000);
            self.post(Duration::from_nanos(takes), Event::Sync(id));
        }
        for effect in effects {
            self.on_effect(id, effect);
        }
    }

    fn on_effect(&mut self, id: TargetId, effect: Effect) {
        match effect {
            Effect::Send(frame) => self.post_frame(frame, usize::MAX),
            Effect::Note(note) => self.trace(|| format!("{id}: {note}")),
            Effect::Core(event) => {
                self.trace(|| format!("{id}: {event:?}"));
                match event {
                    CoreEvent::Evicted { client, .. } => self.on_evicted(client),
                    CoreEvent::Executed { replay: Some(_), .. } => self.count("replayed"),
                    CoreEvent::Executed { .. } => self.count("executed"),
                    CoreEvent::RecoveryEnded { .. } => self.count("recovery"),
                    CoreEvent::ProtocolError { client, what } => {
                        self.violate("protocol", format!("{id}: {what}, by {client}"));
                    }
                    _ => {}
                }
            }
        }
    }

    fn on_evicted(&mut self, client: ClientId) {
        self.count("eviction");
        if let Some(mount) = self.mounts.iter_mut().find(|mount| mount.id == client) {
            let was_expected = mount.is_doubtful;
            mount.is_doubtful = true;
            if !was_expected && !self.is_doubtful {
                self.violate("eviction", format!("client {client} lives and was evicted"));
            }
        }
    }

    fn start(&mut self, id: TargetId) {
        self.trace(|| format!("{id} starts"));
        let config = self.config.clone();
        self.on_server(id, |server, now, _, out| server.start(now, &config, out));
    }

    fn crash(&mut self, id: TargetId, is_power: bool) {
        let mut rng = self.rng.fork();
        let Some(server) = self.servers.get_mut(&id) else { return };
        if server.engine.is_none() {
            return;
        }
        if is_power {
            server.crash(&mut rng);
            self.count("power failure");
        } else {
            server.kill();
            self.count("process killed");
        }
        if self.is_full {
            self.is_full = false;
            for server in self.servers.values() {
                server.objects.set_full(false);
            }
        }
        self.trace(|| format!("{id} dies (power failure: {is_power})"));
        self.wire.retain(|_, event| !matches!(event, Event::Sync(of) if *of == id));
        let down = match self.rng.below(4) {
            0 => self.rng.below(10_000_000_000),
            _ => self.rng.below(500_000_000),
        };
        self.post(Duration::from_nanos(down), Event::Start(id));
    }

    // --- mounts ---

    pub fn on_client(&mut self, seat: usize, input: Input) {
        let now = self.now;
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mount = &mut self.mounts[seat];
            mount.port.borrow_mut().now = now.time;
            let mut out = Vec::new();
            mount.machine.handle(now, input, &mut out);
            mount.machine.check();
            for output in out {
                self.on_output(seat, output);
            }
            self.poll_tasks(seat);
            let calls = std::mem::take(&mut self.mounts[seat].port.borrow_mut().outbox);
            for (id, call, caller) in calls.into_iter().rev() {
                inputs.push(Input::Call { id, call, caller });
            }
        }
        self.mounts[seat].deadline = self.mounts[seat].machine.next_deadline();
    }

    fn on_output(&mut self, seat: usize, output: Output) {
        match output {
            Output::Send(frame) => self.post_frame(frame, seat),
            Output::Reply { id, result } => {
                self.trace(|| format!("client {seat}: call {id} -> {}", short(&format!("{result:?}"))));
                self.mounts[seat].port.borrow_mut().on_reply(id, result);
            }
            Output::Notify(id, Notify::IncEpoch) => {
                // Takes no lock in the kernel: done at once.
                self.mounts[seat].port.borrow_mut().drop_all_names();
                let generation = self.mounts[seat].generation;
                self.post(Duration::ZERO, Event::Notify(seat, generation, id, Notify::IncEpoch));
            }
            Output::Notify(id, notify) => {
                self.count("notification");
                let delay = Duration::from_nanos(1000 + self.rng.below(300_000));
                let generation = self.mounts[seat].generation;
                self.post(delay, Event::Notify(seat, generation, id, notify));
            }
            Output::NeedGroups { id, .. } => {
                self.trace(|| format!("client {seat}: call {id} needs groups"));
            }
            Output::Drained => self.mounts[seat].is_drained = true,
            Output::Event(event) => {
                self.trace(|| format!("client {seat}: {event:?}"));
                let is_certain = !self.is_doubtful && !self.mounts[seat].is_doubtful;
                let are_all_certain = is_certain && !self.mounts.iter().any(|mount| mount.is_doubtful);
                match event {
                    ClientEvent::Evicted(target) if is_certain => {
                        self.violate("eviction", format!("client {seat} was evicted by {target}"));
                    }
                    ClientEvent::ReplayRefused { target, status } if are_all_certain => {
                        let what = format!("{target} refused a replay of client {seat}: {status}");
                        self.violate("replay", what);
                    }
                    _ => {}
                }
            }
        }
    }

    fn poll_tasks(&mut self, seat: usize) {
        let mount = &mut self.mounts[seat];
        let mut ended = Vec::new();
        loop {
            let before = ended.len();
            mount.tasks.retain_mut(|running| match running.task.poll() {
                Some(outcome) => {
                    ended.push((running.index, running.op.clone(), outcome));
                    false
                }
                None => true,
            });
            // Who has ended may have held what another waits for.
            if ended.len() == before {
                break;
            }
        }
        for (index, op, outcome) in ended {
            self.trace(|| format!("client {seat}: {op:?} -> {}", tell(&outcome)));
            if let Some(done) = self.round.get_mut(index) {
                done.outcome = Some(outcome);
            }
        }
    }

    fn launch(&mut self, seat: usize, op: Op) {
        self.started += 1;
        self.count(op.name());
        self.trace(|| format!("client {seat}: starts {op:?}"));
        self.forget_synced(seat, &op);
        let index = self.round.len();
        self.round.push(Done { client: seat, op: op.clone(), outcome: None });
        let mount = &mut self.mounts[seat];
        mount.port.borrow_mut().now = self.now.time;
        let task = Task::new(&mount.port, op.clone());
        mount.tasks.push(Running { op, task, index });
        self.poll_tasks(seat);
        let calls = std::mem::take(&mut self.mounts[seat].port.borrow_mut().outbox);
        for (id, call, caller) in calls {
            self.on_client(seat, Input::Call { id, call, caller });
        }
    }

    /// What is about to be written is not what was synced any more.
    fn forget_synced(&mut self, seat: usize, op: &Op) {
        match op {
            Op::Write { slot, .. } | Op::Append { slot, .. } => {
                let node = self.mounts[seat].port.borrow().handles.get(slot).map(|(node, _)| *node);
                if let Some(node) = node {
                    self.synced.remove(&node);
                }
            }
            Op::Truncate { .. } => self.synced.clear(),
            _ => {}
        }
    }

    /// What fsync has answered survives everything, its caller too.
    fn note_synced(&mut self, round: &[Done]) {
        let is_writing =
            |done: &Done| matches!(done.op, Op::Write { .. } | Op::Append { .. } | Op::Truncate { .. });
        if self.candidates.len() != 1 || round.iter().any(is_writing) {
            return;
        }
        for done in round {
            let Op::Fsync { slot } = done.op else { continue };
            let inode = self.model.handles.get(&(done.client, slot)).map(|ino| self.model.inode(*ino));
            if let Some(Inode { content: Content::File(data), node: Some(node), .. }) = inode
                && done.outcome == Some(Told::Done)
            {
                self.synced.insert(*node, Rc::clone(data));
                self.shared
                    .borrow_mut()
                    .counts
                    .entry("fsync to be kept")
                    .and_modify(|n| *n += 1)
                    .or_insert(1);
            }
        }
    }

    // --- rounds ---

    fn run_round(&mut self) {
        self.round.clear();
        self.was_full = self.is_full;
        self.plan_faults();
        self.was_full |= self.is_full;
        let mut busy_slots = Vec::new();
        for seat in 0..self.mounts.len() {
            let twice = self.rng.one_in(4);
            for _ in 0..1 + usize::from(twice) {
                if self.started >= self.options.steps {
                    break;
                }
                let mut rng = self.rng.fork();
                let mut workload = Workload {
                    rng: &mut rng,
                    model: &self.model,
                    mdt_count: self.options.mdt_count,
                    busy_slots: std::mem::take(&mut busy_slots),
                };
                let op = workload.next(seat);
                busy_slots = workload.busy_slots;
                self.launch(seat, op);
            }
        }
        if !self.run_until_done() {
            return;
        }
        self.judge_round();
        let pause =
            if self.rng.one_in(8) { self.rng.below(4_000_000_000) } else { self.rng.below(2_000_000) };
        self.run_for(Duration::from_nanos(pause));
    }

    fn run_until_done(&mut self) -> bool {
        let until = self.now.time.after(ROUND_MAX);
        while self.round.iter().any(|done| done.outcome.is_none()) {
            if self.is_broken() {
                return false;
            }
            if !self.step(until) {
                if self.is_broken() {
                    return false;
                }
                let stuck: Vec<String> = self
                    .round
                    .iter()
                    .filter(|done| done.outcome.is_none())
                    .map(|done| format!("client {}: {:?}", done.client, done.op))
                    .collect();
                self.violate("progress", format!("never answered: {}", stuck.join("; ")));
                return false;
            }
        }
        !self.is_broken()
    }

    pub fn run_for(&mut self, duration: Duration) {
        let until = self.now.time.after(duration);
        while !self.is_broken() && self.step(until) {}
        self.advance(until);
    }

    fn plan_faults(&mut self) {
        let weather = self.options.weather;
        let ids: Vec<TargetId> = self.servers.keys().copied().collect();
        if weather.has_crashes && self.rng.one_in(12) {
            let count = if self.rng.one_in(4) { 2 } else { 1 };
            for _ in 0..count {
                if let Some(id) = self.rng.pick(&ids).copied() {
                    let at = Duration::from_nanos(self.rng.below(20_000_000));
                    let is_power = !self.rng.one_in(4);
                    self.post(at, Event::Crash(id, is_power));
                }
            }
        }
        if weather.has_partitions && self.rng.one_in(40) {
            let seat = self.rng.below(self.mounts.len() as u64) as usize;
            let end = if self.rng.one_in(3) {
                self.rng.pick(&ids).map(|id| Endpoint::Target(*id))
            } else {
                Some(Endpoint::Client(self.mounts[seat].id))
            };
            if let Some(end) = end {
                self.partition(end);
            }
        }
        if weather.has_deaths && self.rng.one_in(80) {
            let seat = self.rng.below(self.mounts.len() as u64) as usize;
            self.kill_mount(seat);
        }
        if weather.has_full_disks && self.are_osts_up() && (self.is_full || self.rng.one_in(40)) {
            self.is_full = !self.is_full;
            self.count("disk full");
            let is_full = self.is_full;
            self.trace(|| format!("disks full: {is_full}"));
            for server in self.servers.values() {
                server.objects.set_full(self.is_full);
            }
        }
    }

    /// Full disks fill up under running targets only: what was written before a crash still fits afterwards.
    fn are_osts_up(&self) -> bool {
        self.servers.values().all(|server| match &server.engine {
            Some(Engine::Ost(oss)) => !oss.core().is_recovering(),
            Some(Engine::Mdt(_)) => true,
            None => false,
        })
    }

    /// Short ones are ridden out; long ones cost the client its sessions.
    fn partition(&mut self, end: Endpoint) {
        let is_long = self.rng.one_in(4);
        let nanoseconds = if is_long { 100_000_000_000 } else { 0 } + self.rng.below(5_000_000_000);
        self.count(if is_long { "partition, long" } else { "partition, short" });
        self.trace(|| format!("{end} is cut off for {nanoseconds} ns"));
        if is_long {
            // Others may wait for what it holds until it is evicted.
            self.is_doubtful = true;
        }
        self.cut.insert(end);
        self.post(Duration::from_nanos(nanoseconds), Event::Heal(end));
    }

    /// A client machine loses power; another mount takes its seat.
    fn kill_mount(&mut self, seat: usize) {
        self.count("client died");
        self.trace(|| format!("client {seat} dies"));
        self.is_doubtful = true;
        for model in &mut self.candidates {
            model.drop_client(seat);
        }
        self.model.drop_client(seat);
        let mount = self.new_mount();
        self.mounts[seat] = mount;
    }

    // --- the judge ---

    /// Some order of the operations must explain what all of them told.
    fn judge_round(&mut self) {
        for index in 0..self.round.len() {
            let told = self.round[index].outcome.as_ref();
            self.count(match told {
                Some(Told::Error(_)) => "operation failed",
                _ => "operation succeeded",
            });
            let failed =
                told.and_then(|told| if let Told::Error(errno) = told { Some(*errno) } else { None });
            if let (Some(5), false) = (failed, self.is_doubtful) {
                let done = &self.round[index];
                self.violate("model", format!("client {}: {:?} failed with EIO", done.client, done.op));
                return;
            }
        }
        if self.is_doubtful {
            return;
        }
        let round = std::mem::take(&mut self.round);
        let ops: Vec<&Done> = round.iter().filter(|done| !self.is_refused_for_space(done)).collect();
        let candidates = explain(&self.candidates, &ops, self.started * 10);
        match candidates.first() {
            Some(model) => {
                self.model = model.clone();
                self.candidates = candidates;
                self.note_synced(&round);
            }
            None => {
                let told: Vec<String> = round.iter().map(|done| self.explain_one(done)).collect();
                self.violate("model", format!("no order explains: {}", told.join("; ")));
            }
        }
    }

    /// A full disk may refuse what consumes, and nothing else may have happened then.
    fn is_refused_for_space(&self, done: &Done) -> bool {
        self.was_full
            && done.outcome == Some(Told::Error(crate::model::ENOSPC))
            && matches!(done.op, Op::Write { .. } | Op::Append { .. } | Op::Truncate { .. })
    }

    fn explain_one(&self, done: &Done) -> String {
        let mut model = self.model.clone();
        model.prepare(usize::MAX / 2);
        let expected = model.apply(done.client, &done.op).unwrap_or_else(Told::Error);
        let told = done.outcome.as_ref().map(tell).unwrap_or_default();
        let expected = tell(&expected);
        format!("client {}: {:?} -> {told} (alone: {expected})", done.client, done.op)
    }

    // --- rest ---

    /// Everything heals, and all must come to rest in the state that the model has.
    fn rest(&mut self) {
        self.count("rest");
        self.trace(|| "everything heals".to_string());
        let loss = std::mem::replace(&mut self.loss_one_in, 0);
        self.cut.clear();
        self.is_full = false;
        for server in self.servers.values() {
            server.objects.set_full(false);
        }
        self.wire.retain(|_, event| !matches!(event, Event::Heal(_)));
        let wait = if self.is_doubtful { 200 } else { 15 };
        self.run_for(Duration::from_secs(wait));
        if self.is_broken() {
            return;
        }
        self.check_quiet();
        self.loss_one_in = loss;
    }

    /// Runs one operation alone.
    pub fn run_alone(&mut self, seat: usize, op: Op) -> Option<Told> {
        self.round.clear();
        self.launch(seat, op);
        if !self.run_until_done() {
            return None;
        }
        self.round.pop().and_then(|done| done.outcome)
    }

    /// Judges one operation that ran alone. False when no state explains it; `model` is one that does.
    pub fn judge_alone(&mut self, seat: usize, op: &Op, told: &Told) -> bool {
        let before = self.candidates.len();
        self.candidates.retain_mut(|model| model.explains(seat, op, told));
        match self.candidates.first() {
            Some(model) => self.model = model.clone(),
            None => assert!(before > 0, "there is always a state"),
        }
        !self.candidates.is_empty()
    }

    /// After reading the state back everything is certain again.
    pub fn trust(&mut self) {
        self.is_doubtful = false;
        for mount in &mut self.mounts {
            mount.is_doubtful = false;
        }
    }
}

/// All models that some order of the operations leads to. Operations whose sets have met are merged, so this is a
/// search over sets of operations and not over their orders.
fn explain(models: &[Model], ops: &[&Done], first_ino: usize) -> Vec<Model> {
    let mut by_set: BTreeMap<u32, Vec<Model>> = BTreeMap::from([(0, models.to_vec())]);
    let all = (1_u32 << ops.len()) - 1;
    while let Some((set, models)) = by_set.pop_first() {
        if set == all {
            return models;
        }
        for (index, done) in ops.iter().enumerate().filter(|(index, _)| set & (1 << index) == 0) {
            let others = ops.iter().enumerate().filter(|(other, _)| *other != index);
            let is_list = matches!(done.op, Op::List { .. });
            let is_disturbing = |op: &Op| if is_list { op.is_naming() } else { op.is_removing() };
            let is_disturbed = others.map(|(_, other)| other).any(|other| is_disturbing(&other.op));
            let may_miss = is_disturbed && done.outcome.as_ref().is_some_and(|told| done.op.may_miss(told));
            for model in &models {
                if may_miss {
                    by_set.entry(set | (1 << index)).or_default().push(model.clone());
                    continue;
                }
                let mut next = model.clone();
                next.prepare(first_ino + index);
                let told = done.outcome.as_ref();
                if told.is_some_and(|told| next.explains(done.client, &done.op, told)) {
                    next.prepare(0);
                    let known = by_set.entry(set | (1 << index)).or_default();
                    if known.len() < CANDIDATES_MAX && !known.contains(&next) {
                        known.push(next);
                    }
                }
            }
        }
    }
    Vec::new()
}

fn is_due(deadline: Option<Time>, now: Now) -> bool {
    deadline.is_some_and(|deadline| deadline <= now.time)
}

pub fn short(text: &str) -> String {
    if text.len() <= 300 {
        text.to_string()
    } else {
        format!("{}…", text.chars().take(300).collect::<String>())
    }
}

fn describe(frame: &Frame) -> String {
    let body = match frame.kind {
        wire::FrameKind::Request => wire::Request::from_bytes(&frame.body).map(|body| format!("{body:?}")),
        wire::FrameKind::Reply if frame.body.is_empty() => Ok(frame.status.to_string()),
        wire::FrameKind::Reply => wire::Reply::from_bytes(&frame.body).map(|body| format!("{body:?}")),
        wire::FrameKind::Callback => wire::Callback::from_bytes(&frame.body).map(|body| format!("{body:?}")),
    };
    let end = |end: Endpoint| match end {
        Endpoint::Target(id) => id.to_string(),
        Endpoint::Client(id) => format!("c{}", id.0 & 0xffff),
    };
    let body = body.unwrap_or_else(|error| error.to_string());
    format!(
        "{} -> {} xid {} slot {} t {} lc {} f{} {}",
        end(frame.src),
        end(frame.dst),
        frame.xid,
        frame.slot as i16,
        frame.transno,
        frame.last_committed,
        frame.flags,
        short(&body)
    )
}
