//! The world: what a run consists of, and its rounds. What happens in it is said in a file each.

mod breaks;
mod clocks;
mod driver;
mod faults;
mod judge;
mod losses;
mod network;
mod replays;
mod scenes;

use crate::cluster::{CLIENT_MARK, client_options, config_of};
use crate::frames::MGC_MARK;
use crate::model::{Content, Inode, Model, Op, Outcome as Told, Path, tell};
use crate::mount::{Kernel, Port, Task};
use crate::servers::{Effect, Engine, Server, new_mgc};
use crate::sweep::Shared;
use crate::workload::{self, Workload};
use crate::{Options, Violation, Weather};
use base::{
    ClientId, ClusterConfig, Duration, Endpoint, Fid, Machine, Now, Pool, Rng, TargetId, TargetKind, Time,
    WallTime,
};
use breaks::Breaks;
use client::mgc::{self, Mgc};
use client::{
    Answer, Call, Client, ClientOptions, Event as ClientEvent, Input, Notify, NotifyId, NotifyResult, Output,
};
use clocks::Clocks;
use losses::Losses;
use replays::Replays;
use scenes::Held;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use store::MemoryHoldings;
use target::CoreEvent;
use wire::{Frame, Life};

/// A round that takes longer has got stuck: two recovery windows, and evictions in between.
const ROUND_MAX: Duration = Duration::from_secs(900);
/// More states than these are not kept apart; operations that depend on each other seldom meet in one round.
const CANDIDATES_MAX: usize = 64;
const STORM_ONE_IN: u64 = 16;
const STORM_ROUNDS_MAX: u64 = 6;
/// How many times as long a frame is on its way to or from a slow target.
const SLOWNESS: u64 = 16;
/// Between two beginnings, in times that a frame is on its way at most.
const STORM_DELAYS_MAX: u64 = 4;
/// Room for what clients hold, where it is little: it is used up now and then.
const HELD_FEW: usize = 40;
/// One of so many reads of an OST waits for its device.
const COLD_ONE_IN: u64 = 3;
pub const RECOVERY_WINDOW: Duration = Duration::from_secs(60);

/// Something that happens later.
#[derive(Debug)]
enum Event {
    Deliver(Frame),
    Sync(TargetId),
    Start(TargetId),
    /// Somebody is asked, or is not to be found.
    Probe(mgs::Probe),
    /// The device of an OST has brought something.
    Fetched(TargetId, oss::FetchId),
    Notify(usize, u64, NotifyId, Notify),
    Heal(Cut),
    Crash(TargetId, bool),
    /// An operator has the target evict the client.
    Evict(TargetId, ClientId),
    /// The client of a seat loses its connection.
    Break(usize, TargetId),
    /// All of these lose power at the same instant.
    Blackout(Vec<TargetId>, Vec<usize>),
}

/// Frames that do not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cut {
    End(Endpoint),
    Link(Endpoint, Endpoint),
}

/// A mount and its processes.
pub struct Mount {
    pub id: ClientId,
    /// Which mount of this seat it is; notifications of an older one are void.
    generation: u64,
    pub machine: Client,
    /// Keeps its lease.
    mgc: Mgc,
    pub port: Port,
    deadline: Option<Time>,
    tasks: Vec<Running>,
    /// It was evicted, or died: what it did may be lost.
    pub is_doubtful: bool,
    pub is_drained: bool,
    /// How often it has heard that it was.
    eviction_count: u64,
}

impl Mount {
    fn note_deadline(&mut self) {
        let deadlines = [self.machine.next_deadline(), self.mgc.next_deadline()];
        self.deadline = deadlines.into_iter().flatten().min();
    }
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
    has_told_loss: bool,
}

pub struct World {
    pub rng: Rng,
    pub now: Now,
    clocks: Clocks,
    breaks: Breaks,
    pub options: Options,
    shared: Shared,
    wire: BTreeMap<(Time, u64), Event>,
    posted: u64,
    pub servers: BTreeMap<TargetId, Server>,
    pub mounts: Vec<Mount>,
    config: ClusterConfig,
    cut: BTreeSet<Cut>,
    held: Option<Held>,
    loss_one_in: u64,
    delay_ns_max: u64,
    /// How long disks take to sync, at most. With slow ones much is built on what power can take back.
    sync_ns_max: u64,
    /// A target whose answers take long: what was asked of it meets what others say in between.
    slow: Option<Endpoint>,
    /// One of `candidates`, for choosing operations.
    pub model: Model,
    /// All states that explain what was told so far: the order of two writes shows only when somebody reads.
    pub candidates: Vec<Model>,
    /// Content of files, by node, as somebody has made it durable by fsync; nobody has written to them since.
    pub synced: BTreeMap<u64, Rc<Vec<u8>>>,
    /// Something was allowed to be lost: outcomes are not judged until the state was read back.
    pub is_doubtful: bool,
    /// When a mount was last lost to its servers: they remember it, and what it had open, for a while.
    pub lost_at: Time,
    /// A name that everybody is at, and for how many more rounds.
    storm: Option<(Path, u64)>,
    /// OSTs whose disks are.
    full: BTreeSet<TargetId>,
    /// In the last round that could be judged: who moved what, and who wrote to files of which names.
    moved: Vec<(usize, (Path, Path))>,
    just_written: Vec<(usize, Path)>,
    /// What the processes do next with files that they have just made or opened.
    planned: BTreeMap<usize, Vec<Op>>,
    /// At some time in this round.
    was_full: BTreeSet<TargetId>,
    started: usize,
    round: Vec<Done>,
    next_client: u128,
    replays: Replays,
    losses: Losses,
}

impl World {
    pub fn new(seed: u64, options: &Options, shared: Shared) -> World {
        let mut rng = Rng::new(seed);
        let mdts = (0..options.mdt_count).map(TargetId::mdt);
        let osts = (0..options.ost_count).map(TargetId::ost);
        let ids: Vec<TargetId> = mdts.chain(osts).collect();
        let pool = Pool { name: workload::pool_name(), osts: (0..options.ost_count).step_by(2).collect() };
        let config = config_of(ids.iter().copied(), vec![pool]);
        let loss_one_in = match (options.weather.has_loss, rng.below(3)) {
            (false, _) | (true, 0) => 0,
            (true, 1) => 200,
            (true, _) => 25,
        };
        let delay_ns_max = [50_000, 500_000, 5_000_000][rng.below(3) as usize];
        let sync_ns_max = if rng.one_in(4) { 2_000_000_000 } else { 30_000_000 };
        let slow = if rng.one_in(2) { rng.pick(&ids).copied().map(Endpoint::Target) } else { None };
        let all = [&[TargetId::MGT], ids.as_slice()].concat();
        let mut servers: BTreeMap<TargetId, Server> =
            all.iter().map(|id| (*id, Server::new(*id, RECOVERY_WINDOW))).collect();
        servers.values().for_each(|server| server.objects.set_cold(COLD_ONE_IN));
        if seed.is_multiple_of(8) {
            let small = || MemoryHoldings::with_room(HELD_FEW);
            servers.values_mut().for_each(|server| server.holdings = small());
        }
        let mut world = World {
            rng,
            now: Now { time: Time(1_000_000_000), wall: WallTime(1_700_000_000_000_000_000) },
            clocks: Clocks::new(seed),
            breaks: Breaks::new(seed),
            options: options.clone(),
            shared,
            wire: BTreeMap::new(),
            posted: 0,
            servers,
            mounts: Vec::new(),
            config,
            cut: BTreeSet::new(),
            held: None,
            loss_one_in,
            delay_ns_max,
            sync_ns_max,
            slow,
            model: Model::new(),
            candidates: vec![Model::new()],
            synced: BTreeMap::new(),
            is_doubtful: false,
            lost_at: Time::ZERO,
            storm: None,
            full: BTreeSet::new(),
            was_full: BTreeSet::new(),
            moved: Vec::new(),
            just_written: Vec::new(),
            planned: BTreeMap::new(),
            started: 0,
            round: Vec::new(),
            next_client: 1,
            replays: Replays::default(),
            losses: Losses::default(),
        };
        for id in all {
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
            self.play_scene();
            if self.is_broken() {
                return;
            }
            self.run_round();
            if self.is_broken() {
                return;
            }
            // What is doubtful goes on for a while: others act on what a cut-off client does not know yet.
            if self.rng.one_in(if self.is_doubtful { 4 } else { 60 }) {
                self.rest();
            }
            if self.is_broken() {
                return;
            }
        }
        self.rest();
        self.finish();
    }

    pub fn is_broken(&self) -> bool {
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
        self.shared.borrow_mut().mix(numbers);
    }

    fn new_mount(&mut self) -> Mount {
        let id = ClientId(CLIENT_MARK + self.next_client);
        self.next_client += 1;
        let options = ClientOptions {
            access_times: match self.next_client % 2 {
                0 => client::AccessTimes::default(),
                _ => client::AccessTimes {
                    files: client::AccessRule::Always,
                    directories: client::AccessRule::Always,
                },
            },
            is_write_back_early: !self.next_client.is_multiple_of(3),
            ..client_options(id, self.next_client)
        };
        let machine = Client::new(self.now, options);
        let port = Rc::new(RefCell::new(Kernel::default()));
        let mut mount = Mount {
            id,
            generation: self.next_client as u64,
            machine,
            mgc: new_mgc(ClientId(id.0 | MGC_MARK), Vec::new()),
            port,
            deadline: None,
            tasks: Vec::new(),
            is_doubtful: false,
            is_drained: false,
            eviction_count: 0,
        };
        let mut out = Vec::new();
        mount.machine.handle(self.now, Input::Lease(self.now.time), &mut out);
        mount.machine.handle(self.now, Input::Config(self.config.clone()), &mut out);
        let mut from_mgc = Vec::new();
        mount.mgc.handle(
            self.now,
            mgc::Input::Keep(vec![Life { client: id, incarnation: 1 }]),
            &mut from_mgc,
        );
        mount.note_deadline();
        for output in out {
            if let Output::Send(frame) = output {
                self.post_frame(frame);
            }
        }
        for output in from_mgc {
            if let mgc::Output::Send(frame) = output {
                self.post_frame(frame);
            }
        }
        mount
    }

    fn run_round(&mut self) {
        self.round.clear();
        self.was_full = self.full.clone();
        self.plan_faults();
        self.plan_clocks();
        self.plan_breaks();
        self.was_full.extend(&self.full);
        let mut busy_slots = Vec::new();
        let mut planned = std::mem::take(&mut self.planned);
        let open = self.open_slots();
        let cut_off = self.cut_off_seats();
        let hot = self.hot_path(&cut_off);
        let nameless = self.nameless_handles();
        let (moved, just_written) = (std::mem::take(&mut self.moved), std::mem::take(&mut self.just_written));
        let storm = self.storm_path();
        let second_one_in = if storm.is_some() { 2 } else { 4 };
        for seat in (0..self.mounts.len()).chain(0..self.mounts.len()) {
            let is_second = self.round.iter().any(|done| done.client == seat);
            if self.started >= self.options.steps || is_second && !self.rng.one_in(second_one_in) {
                continue;
            }
            if storm.is_some() {
                // One after the other, and all under way: as the round's they are judged as if they began together.
                let pause = self.rng.below(STORM_DELAYS_MAX * self.delay_ns_max);
                self.run_for(Duration::from_nanos(pause));
            }
            let mut rng = self.rng.fork();
            let written = self.written_path(seat);
            let mut workload = Workload {
                rng: &mut rng,
                open: &open,
                cut_off: &cut_off,
                hot: hot.as_ref().filter(|(holder, _)| *holder != seat).map(|(_, path)| path),
                written,
                nameless: &nameless,
                moved: moved.iter().find(|(mover, _)| *mover != seat).map(|(_, moved)| moved),
                just_written: just_written.iter().find(|(writer, _)| *writer != seat).map(|(_, path)| path),
                storm: storm.as_ref(),
                is_partly_full: !self.full.is_empty()
                    && self.full.len() < usize::from(self.options.ost_count),
                is_first: self.started == 0,
                mdt_count: self.options.mdt_count,
                busy_slots: std::mem::take(&mut busy_slots),
                planned: &mut planned,
            };
            let op = workload.next(seat);
            busy_slots = workload.busy_slots;
            self.count_what_is_built_on(seat, &op, &moved, &nameless);
            self.launch(seat, op);
        }
        self.planned = planned;
        if !self.run_until_done() {
            return;
        }
        self.judge_round();
        let pause =
            if self.rng.one_in(8) { self.rng.below(4_000_000_000) } else { self.rng.below(2_000_000) };
        self.run_for(Duration::from_nanos(pause));
    }

    /// What the kernels have open: what the model has, unless something is doubtful.
    fn open_slots(&self) -> BTreeSet<(usize, usize)> {
        let of_mount = |(seat, mount): (usize, &Mount)| {
            let slots: Vec<_> = mount.port.borrow().handles.keys().map(|slot| (seat, *slot)).collect();
            slots
        };
        self.mounts.iter().enumerate().flat_map(of_mount).collect()
    }

    /// Clients that cannot reach one of the MDTs, or nobody.
    fn cut_off_seats(&self) -> BTreeSet<usize> {
        let is_cut_off = |end: Endpoint| {
            self.cut.iter().any(|cut| match cut {
                Cut::End(other) => *other == end,
                Cut::Link(client, Endpoint::Target(id)) => *client == end && id.kind == TargetKind::Mdt,
                Cut::Link(..) => false,
            })
        };
        let seats =
            self.mounts.iter().enumerate().filter(|(_, mount)| is_cut_off(Endpoint::Client(mount.id)));
        seats.map(|(seat, _)| seat).collect()
    }

    /// A name of a file that a cut-off client has open.
    fn hot_path(&self, cut_off: &BTreeSet<usize>) -> Option<(usize, Path)> {
        let seat = *cut_off.first()?;
        let (_, ino) = self.model.handles.range((seat, 0)..(seat + 1, 0)).next()?;
        Some((seat, self.model.path_of(*ino)?))
    }

    /// A name of a file that another client than this one has open.
    fn written_path(&mut self, seat: usize) -> Option<Path> {
        let others = self.model.handles.iter().filter(|((holder, _), _)| *holder != seat);
        let others: Vec<usize> = others.map(|(_, ino)| *ino).collect();
        let ino = *self.rng.pick(&others)?;
        self.model.path_of(ino)
    }

    /// Open, and without a name.
    fn nameless_handles(&self) -> BTreeSet<(usize, usize)> {
        let handles = self.model.handles.iter();
        handles
            .filter(|(_, ino)| self.model.inode(**ino).link_count == 0)
            .map(|(handle, _)| *handle)
            .collect()
    }

    fn is_open_elsewhere(&self, seat: usize, path: &Path) -> bool {
        let is_its = |ino: &usize| self.model.path_of(*ino).as_ref() == Some(path);
        self.model.handles.iter().any(|((holder, _), ino)| *holder != seat && is_its(ino))
    }

    fn count_what_is_built_on(
        &self,
        seat: usize,
        op: &Op,
        moved: &[(usize, (Path, Path))],
        nameless: &BTreeSet<(usize, usize)>,
    ) {
        let is_moved = |path: &Path| {
            moved.iter().any(|(mover, (from, to))| *mover != seat && (path == from || path == to))
        };
        match op {
            Op::Unlink { path } | Op::Rmdir { path } | Op::Create { path, .. } if is_moved(path) => {
                self.count("built on what others had moved");
            }
            Op::Rename { from, to, .. } if is_moved(from) || is_moved(to) => {
                self.count("built on what others had moved");
            }
            Op::Migrate { path, .. } if is_moved(path) => self.count("migrated what others had moved"),
            Op::Rename { to, .. } if self.is_open_elsewhere(seat, to) => {
                self.count("renamed over what others had open");
            }
            Op::Write { slot, .. } | Op::Append { slot, .. } if nameless.contains(&(seat, *slot)) => {
                self.count("write to a file without a name");
            }
            _ => {}
        }
    }

    /// Now and then all clients are at one name for some rounds, so that what they know of it is taken back all the time.
    fn storm_path(&mut self) -> Option<Path> {
        if self.storm.is_none() && self.rng.one_in(STORM_ONE_IN) {
            let mut workload_rng = self.rng.fork();
            let round_count = 2 + self.rng.below(STORM_ROUNDS_MAX);
            self.storm = Some((workload::any_file(&mut workload_rng), round_count));
            self.count("storm");
        }
        let (path, rounds) = self.storm.take()?;
        self.storm = rounds.checked_sub(1).map(|left| (path.clone(), left));
        Some(path)
    }

    pub fn stop_losses(&mut self) {
        self.loss_one_in = 0;
    }

    /// Everything heals, and all must come to rest in the state that the model has.
    fn rest(&mut self) {
        self.count("rest");
        self.trace(|| "everything heals".to_string());
        let loss = std::mem::replace(&mut self.loss_one_in, 0);
        self.cut.clear();
        self.fill_disks(BTreeSet::new());
        self.wire.retain(|_, event| {
            !matches!(event, Event::Heal(_) | Event::Crash(..) | Event::Evict(..) | Event::Blackout(..))
        });
        let wait = if self.is_doubtful { 200 } else { 15 };
        self.run_for(Duration::from_secs(wait));
        if self.is_broken() {
            return;
        }
        self.check_quiet();
        self.loss_one_in = loss;
    }
}
