//! A cluster in one thread: clients, MDTs and OSTs as machines, a network that carries frames in order, and a kernel
//! that does what it is told. Time moves only when nothing else can.

use crate::skew::management::Management;
use crate::skew::tap::Tap;
use crate::skew::tape::What;
use base::{
    Attr, ClientId, ClusterConfig, Duration, Endpoint, Machine, Now, Status, TargetConfig, TargetId, Time,
    WallTime, Xid,
};
use bytes::Bytes;
use client::{
    Answer, Call, Caller, Client, ClientOptions, EntryAnswer, Event, Input, Notify, NotifyId, NotifyResult,
    Output, ROOT_NODE, Signals,
};
use mds::{Mds, MdsOptions};
use oss::{Oss, OssOptions};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use store::{MemoryMeta, MemoryObjects, ObjectStore};
use wire::{Frame, FrameKind, MdtReply, MgsReply, MgsRequest, OstRequest, Reply, Request};

mod calls;

pub use calls::{append_call, write_call};

pub const TOP: u64 = ROOT_NODE;

pub const O_RDONLY: u32 = 0;
pub const O_WRONLY: u32 = 1;
pub const O_RDWR: u32 = 2;
pub const O_EXCL: u32 = 0o200;
pub const O_APPEND: u32 = 0o2000;

pub const USER: Caller = Caller { uid: 1000, gid: 1000, pid: 7 };
pub const ROOT: Caller = Caller { uid: 0, gid: 0, pid: 1 };

struct MdtNode {
    store: Arc<MemoryMeta>,
    machine: Option<Mds<MemoryMeta>>,
}

struct OstNode {
    meta: Arc<MemoryMeta>,
    objects: Arc<MemoryObjects>,
    machine: Option<Oss<MemoryMeta, MemoryObjects>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    Writes,
    AnswersToWrites,
}

pub struct Mount {
    pub machine: Client,
    id: ClientId,
    last_call: u64,
    pub replies: BTreeMap<u64, Result<Answer, i32>>,
    pub notified: Vec<Notify>,
    /// Those of them that belong together count once.
    pub notice_count: u64,
    pub events: Vec<Event>,
    /// Notifications are kept instead of being done.
    pub is_kernel_stuck: bool,
    pub stuck: Vec<(NotifyId, Notify)>,
    /// A node and an offset: notifications over this page are kept until `World::unlock_page`, as its kernel has locked it for a call.
    pub locked_page: Option<(u64, u64)>,
    /// Handles that pass by its page cache.
    direct: BTreeSet<u64>,
    /// No thread has begun yet with what its kernel is to be given.
    pub are_stores_waiting: bool,
    pub is_cut_off: bool,
    /// What it sends arrives; answers do not.
    pub is_deaf: bool,
    /// Frames to and from this target are lost.
    pub unreachable: Option<TargetId>,
    /// Frames from this target are late: they are kept until `let_come`.
    pub is_late: Option<TargetId>,
    late: Vec<Frame>,
    /// What it sends to this target is under way until `let_arrive`.
    pub is_slow_to: Option<TargetId>,
    under_way: Vec<Frame>,
    /// Its GETATTRs are lost.
    pub loses_getattrs: bool,
    /// What is lost of its writes to OSTs.
    pub loses: Option<Loss>,
    write_xids: BTreeSet<Xid>,
    /// Its writes name a lock that their OST does not know.
    pub has_wrong_locks: bool,
    /// MDTs tell it of layouts that no client of this version makes anything of.
    pub has_strange_layouts: bool,
    /// `None`: they cannot be seen.
    pub groups: Option<Vec<u32>>,
    /// What its callers have got, and whose pids were asked for.
    pub signals: Signals,
    pub looked_at: Vec<u32>,
    /// By how much its clock is ahead.
    pub ahead_ns: i64,
    pub has_drained: bool,
    pub sent_count: u64,
}

impl Mount {
    /// Whether it gets lost on its way.
    fn loses(&mut self, frame: &Frame) -> bool {
        let is_getattr =
            || matches!(Request::from_bytes(&frame.body), Ok(Request::Mdt(wire::MdtRequest::Getattr { .. })));
        if self.loses_getattrs && frame.kind == FrameKind::Request && is_getattr() {
            return true;
        }
        let Some(loses) = self.loses else { return false };
        if frame.kind == FrameKind::Reply {
            return loses == Loss::AnswersToWrites && self.write_xids.contains(&frame.xid);
        }
        let is_write = matches!(
            Request::from_bytes(&frame.body),
            Ok(Request::Ost(OstRequest::Write { .. } | OstRequest::Change { .. }))
        );
        if is_write {
            self.write_xids.insert(frame.xid);
        }
        is_write && loses == Loss::Writes
    }

    /// Whether the kernel does this only when it has unlocked a page.
    fn has_locked(&self, notify: &Notify) -> bool {
        let (Some((locked, at)), Notify::InvalInode { node, offset_bytes, byte_count }) =
            (self.locked_page, notify)
        else {
            return false;
        };
        let Ok(start) = u64::try_from(*offset_bytes) else { return false };
        locked == *node && start <= at && at - start < byte_count.cast_unsigned()
    }

    fn is_cut_from(&self, other: Endpoint) -> bool {
        self.unreachable.is_some_and(|target| Endpoint::Target(target) == other)
    }
}

pub struct World {
    pub now: Now,
    mdts: Vec<MdtNode>,
    osts: Vec<OstNode>,
    pub mounts: Vec<Mount>,
    /// An MGS, where it is asked something.
    pub management: Option<Management>,
    /// What looks at the frames between clients and targets.
    pub tap: Tap,
    frames: VecDeque<Frame>,
    config: ClusterConfig,
    /// Stores become durable as soon as a target asks for it.
    pub is_syncing: bool,
    /// Machines assert their invariants after each input.
    pub is_checking: bool,
    is_mmap_relaxed: bool,
    /// OSTs that are started have devices of their own, and do not share one.
    pub are_osts_apart: bool,
    /// Of the kernels of mounts that are added.
    pub has_inc_epoch: bool,
    pub has_versioned_setattr: bool,
    /// Fences are under way from MDTs to OSTs until `let_fences_arrive`.
    pub are_fences_late: bool,
    late_fences: Vec<Frame>,
}

impl World {
    pub fn new(mdt_count: u16, ost_count: u16, mount_count: usize) -> World {
        World::with_mounts(mdt_count, ost_count, mount_count, false)
    }

    /// `is_mmap_relaxed`: several mounts write one file through their caches.
    pub fn with_mounts(mdt_count: u16, ost_count: u16, mount_count: usize, is_mmap_relaxed: bool) -> World {
        let mut world = World::with_servers(mdt_count, ost_count, is_mmap_relaxed, Tap::Open);
        for number in 0..mount_count {
            world.add_mount(number as u128 + 1);
        }
        world.run();
        world
    }

    /// Without mounts; nothing has left yet. In a recording of which one target is played, the others are not there.
    pub fn with_servers(mdt_count: u16, ost_count: u16, is_mmap_relaxed: bool, tap: Tap) -> World {
        let alone = if let Tap::Alone(target, _) = &tap { Some(*target) } else { None };
        let is_there = |target: TargetId| alone.is_none_or(|only| only == target);
        let now = Now { time: Time(1_000_000_000), wall: WallTime(1_700_000_000_000_000_000) };
        let ids = (0..mdt_count).map(TargetId::mdt).chain((0..ost_count).map(TargetId::ost));
        let targets = ids
            .map(|id| TargetConfig { id, uuid: uuid(id), nids: vec!["here".to_string()], is_active: true })
            .collect();
        let config = ClusterConfig {
            fsname: "test".to_string(),
            version: 1,
            targets,
            params: vec![],
            pools: Vec::new(),
        };
        let mut world = World {
            now,
            mdts: vec![],
            osts: vec![],
            mounts: vec![],
            management: None,
            tap,
            frames: VecDeque::new(),
            config,
            is_syncing: true,
            is_checking: true,
            is_mmap_relaxed,
            are_osts_apart: false,
            has_inc_epoch: true,
            has_versioned_setattr: true,
            are_fences_late: false,
            late_fences: vec![],
        };
        for index in 0..mdt_count {
            world.mdts.push(MdtNode { store: Arc::new(MemoryMeta::new()), machine: None });
            if is_there(TargetId::mdt(index)) {
                world.start(TargetId::mdt(index));
            }
        }
        for index in 0..ost_count {
            let node = OstNode {
                meta: Arc::new(MemoryMeta::new()),
                objects: Arc::new(MemoryObjects::new()),
                machine: None,
            };
            world.osts.push(node);
            if is_there(TargetId::ost(index)) {
                world.start(TargetId::ost(index));
            }
        }
        world
    }

    /// Tells everybody a newer configuration, with the OSTs or without.
    pub fn reconfigure(&mut self, has_osts: bool) {
        let ids = (0..self.mdts.len() as u16).map(TargetId::mdt);
        let osts = (0..self.osts.len() as u16).map(TargetId::ost).filter(|_| has_osts);
        let target =
            |id| TargetConfig { id, uuid: uuid(id), nids: vec!["here".to_string()], is_active: true };
        self.config.targets = ids.chain(osts).map(target).collect();
        self.config.version += 1;
        for index in 0..self.mdts.len() {
            self.mdt_input(index, mds::Input::Config(self.config.clone()));
        }
        for mount in 0..self.mounts.len() {
            self.input(mount, Input::Config(self.config.clone()));
        }
        self.run();
    }

    /// The MDTs hear that the OSTs are out of use, and ask them nothing more. Nobody else does.
    pub fn retire_osts_of_mdts(&mut self) {
        self.config.version += 1;
        let mut config = self.config.clone();
        let osts = config.targets.iter_mut().filter(|target| target.id.kind == base::TargetKind::Ost);
        osts.for_each(|ost| ost.is_active = false);
        for index in 0..self.mdts.len() {
            self.mdt_input(index, mds::Input::Config(config.clone()));
        }
        self.run();
    }

    pub fn add_mount(&mut self, number: u128) {
        self.add_incarnation(number, 1);
    }

    /// The next mount of a client that is gone, say.
    pub fn add_incarnation(&mut self, number: u128, incarnation: u64) {
        let options = ClientOptions {
            incarnation,
            client: ClientId(number),
            fsname: "test".to_string(),
            nid: format!("client{number}"),
            has_inc_epoch: self.has_inc_epoch,
            has_versioned_setattr: self.has_versioned_setattr,
            is_mmap_relaxed: self.is_mmap_relaxed,
            is_statfs_lazy: true,
            access_times: client::AccessTimes::default(),
            has_kill_privileges: true,
            is_write_back_early: false,
        };
        self.mounts.push(Mount {
            machine: Client::new(self.now, options),
            id: ClientId(number),
            last_call: 0,
            replies: BTreeMap::new(),
            notified: vec![],
            notice_count: 0,
            events: vec![],
            is_kernel_stuck: false,
            stuck: vec![],
            locked_page: None,
            direct: BTreeSet::new(),
            are_stores_waiting: false,
            is_cut_off: false,
            is_deaf: false,
            loses_getattrs: false,
            unreachable: None,
            is_late: None,
            late: vec![],
            is_slow_to: None,
            under_way: vec![],
            loses: None,
            write_xids: BTreeSet::new(),
            has_wrong_locks: false,
            has_strange_layouts: false,
            groups: Some(vec![]),
            signals: Signals::Harmless,
            looked_at: vec![],
            ahead_ns: 0,
            has_drained: false,
            sent_count: 0,
        });
        let config = self.config.clone();
        self.input(self.mounts.len() - 1, Input::Config(config));
    }

    pub fn start(&mut self, target: TargetId) {
        let index = usize::from(target.index);
        match target.kind {
            base::TargetKind::Mdt => {
                let options = MdsOptions {
                    index: target.index,
                    uuid: uuid(target),
                    fsname: "test".to_string(),
                    nid: target.to_string(),
                    now: self.now,
                    device: 1,
                    recovery_window: base::limits::RECOVERY_WINDOW,
                    root_owner: (0, 0),
                };
                let machine = Mds::open(self.mdts[index].store.clone(), options).expect("the store is sound");
                self.mdts[index].machine = Some(machine);
                let config = self.config.clone();
                self.mdt_input(index, mds::Input::Config(config));
            }
            _ => {
                let device = if self.are_osts_apart { 100 + u64::from(target.index) } else { 2 };
                let options = OssOptions::new(target.index, uuid(target), "test", device, self.now);
                let (meta, objects) = (self.osts[index].meta.clone(), self.osts[index].objects.clone());
                self.osts[index].machine =
                    Some(Oss::open(meta, objects, options).expect("the stores are sound"));
            }
        }
    }

    /// Power failure of one target: nothing that was not synced survives.
    pub fn crash(&mut self, target: TargetId) {
        let index = usize::from(target.index);
        match target.kind {
            base::TargetKind::Mdt => {
                self.mdts[index].machine = None;
                self.mdts[index].store.crash(0);
            }
            _ => {
                self.osts[index].machine = None;
                self.osts[index].meta.crash(0);
                self.osts[index].objects.crash(|_| store::memory::Kept::Nothing);
            }
        }
    }

    /// The process of an MDT is killed and started again: it has everything that it had written.
    pub fn restart_mdt(&mut self, index: u16) {
        self.restart(TargetId::mdt(index));
    }

    /// The same of any target.
    pub fn restart(&mut self, target: TargetId) {
        self.tap.note(self.now.time, What::Restart(target));
        let index = usize::from(target.index);
        if target.kind == base::TargetKind::Mdt {
            let node = &mut self.mdts[index];
            node.machine = None;
            node.store.crash(node.store.unsynced_count());
        } else {
            let node = &mut self.osts[index];
            node.machine = None;
            node.meta.crash(node.meta.unsynced_count());
            node.objects.crash(|_| store::memory::Kept::Whole);
        }
        self.start(target);
    }

    /// The power of one target fails, and it is started again.
    pub fn lose_power(&mut self, target: TargetId) {
        self.tap.note(self.now.time, What::PowerLoss(target));
        self.crash(target);
        self.start(target);
    }

    /// Asks the MGS.
    pub fn ask_mgs(&mut self, request: MgsRequest) -> Result<MgsReply, Status> {
        self.tell_mgs(request).map(|reply| match reply {
            Reply::Mgs(reply) => reply,
            other => panic!("{other:?} of an MGS"),
        })
    }

    /// What may be answered with nothing but that it was heard.
    pub fn tell_mgs(&mut self, request: MgsRequest) -> Result<Reply, Status> {
        let now = self.now;
        let management = self.management.as_mut().expect("there is an MGS");
        let (ticket, sent) = management.ask(now, request);
        self.frames.extend(sent);
        for _ in 0..100 {
            self.run();
            let answer = self.management.as_mut().and_then(|management| management.take_answer(ticket));
            if let Some(answer) = answer {
                return answer;
            }
            self.pass_a_little();
        }
        panic!("the MGS does not answer within ten seconds");
    }

    /// A frame arrives from somewhere else, and what follows from it happens.
    pub fn hand_in(&mut self, frame: Frame) {
        self.frames.push_back(frame);
        self.run();
    }

    /// An MDT throws a mount out.
    pub fn evict(&mut self, mount: usize, mdt: u16) {
        self.mdt_input(usize::from(mdt), mds::Input::Evict(self.mounts[mount].id));
        self.run();
    }

    /// The MDTs see that the process of a mount has ended; the OSTs have not looked yet.
    pub fn depart(&mut self, mount: usize) {
        let client = self.mounts[mount].id;
        for index in 0..self.mdts.len() {
            self.mdt_input(index, mds::Input::Departed { client, incarnation: 1 });
        }
        self.run();
    }

    /// All servers hear from the management server that this mount has no lease.
    pub fn lapse(&mut self, mount: usize) {
        let life = wire::Life { client: self.mounts[mount].id, incarnation: 1 };
        let at = self.now.time;
        for index in 0..self.mdts.len() {
            self.mdt_input(index, mds::Input::Lapsed { at, life });
        }
        for index in 0..self.osts.len() {
            self.ost_input(index, oss::Input::Lapsed { at, life });
        }
        self.run();
    }

    pub fn is_recovering(&self, mdt: usize) -> bool {
        self.mdts[mdt].machine.as_ref().is_some_and(|mds| mds.core().is_recovering())
    }

    /// The clocks of all servers are set, those of clients are not.
    pub fn set_server_clocks(&mut self, by_ns: i64) {
        self.now.wall.0 += by_ns;
        self.mounts.iter_mut().for_each(|mount| mount.ahead_ns -= by_ns);
    }

    /// An OST throws a mount out.
    pub fn evict_from_ost(&mut self, mount: usize, ost: u16) {
        self.ost_input(usize::from(ost), oss::Input::Evict(self.mounts[mount].id));
        self.run();
    }

    fn mdt_input(&mut self, index: usize, input: mds::Input) {
        let now = self.now;
        let Some(machine) = &mut self.mdts[index].machine else { return };
        let mut out = vec![];
        machine.handle(now, input, &mut out);
        if self.is_checking {
            machine.check();
        }
        self.frames.extend(out.into_iter().filter_map(|output| match output {
            mds::Output::Send(frame) => Some(frame),
            mds::Output::Event(_) => None,
        }));
    }

    fn ost_input(&mut self, index: usize, input: oss::Input) {
        let now = self.now;
        let Some(machine) = &mut self.osts[index].machine else { return };
        let mut out = vec![];
        machine.handle(now, input, &mut out);
        if self.is_checking {
            machine.check();
        }
        let mut fetched = Vec::new();
        for output in out {
            match output {
                oss::Output::Send(frame) => self.frames.push_back(frame),
                oss::Output::Fetch { id, .. } => fetched.push(id),
                oss::Output::Event(_) => {}
            }
        }
        for id in fetched {
            self.ost_input(index, oss::Input::Fetched(id, Ok(())));
        }
    }

    pub fn input(&mut self, mount: usize, input: Input) {
        let mut now = self.now;
        now.wall.0 += self.mounts[mount].ahead_ns;
        let mut out = vec![];
        self.mounts[mount].machine.handle(now, input, &mut out);
        if self.is_checking {
            self.mounts[mount].machine.check();
        }
        let mut answers = vec![];
        let known = &mut self.mounts[mount];
        for output in out {
            match output {
                Output::Reply { id, result } => {
                    assert!(known.replies.insert(id, result).is_none(), "a call is answered once");
                }
                Output::Send(mut frame) => {
                    known.sent_count += 1;
                    if known.has_wrong_locks {
                        put_wrong_lock(&mut frame);
                    }
                    if !known.is_cut_off && !known.is_cut_from(frame.dst) && !known.loses(&frame) {
                        match known.is_slow_to.is_some_and(|target| Endpoint::Target(target) == frame.dst) {
                            true => known.under_way.push(frame),
                            false => self.frames.push_back(frame),
                        }
                    }
                }
                Output::Notify(id, notify) => {
                    known.notice_count += 1;
                    match &notify {
                        Notify::Several(notices) => known.notified.extend(notices.iter().cloned()),
                        one => known.notified.push(one.clone()),
                    }
                    if known.is_kernel_stuck && notify != Notify::IncEpoch || known.has_locked(&notify) {
                        known.stuck.push((id, notify));
                    } else {
                        answers.push(Input::Notified(id, NotifyResult::Ok));
                    }
                }
                Output::CallOff(id) => {
                    let found = known.stuck.iter().position(|(stuck, _)| *stuck == id);
                    if let Some(index) = found.filter(|_| known.are_stores_waiting) {
                        known.stuck.remove(index);
                        answers.push(Input::Notified(id, NotifyResult::NoEntry));
                    }
                }
                Output::NeedGroups { id, .. } => {
                    answers.push(Input::Groups { id, groups: known.groups.clone() });
                }
                Output::NeedSignals { id, pid } => {
                    known.looked_at.push(pid);
                    answers.push(Input::Signals { id, signals: known.signals });
                }
                Output::Drained => known.has_drained = true,
                Output::Event(event) => known.events.push(event),
            }
        }
        for answer in answers {
            self.input(mount, answer);
        }
    }

    /// The call is answered that the kernel had locked a page for.
    pub fn unlock_page(&mut self, mount: usize) {
        self.mounts[mount].locked_page = None;
        for (id, _) in std::mem::take(&mut self.mounts[mount].stuck) {
            self.input(mount, Input::Notified(id, NotifyResult::Ok));
        }
        self.run();
    }

    /// Carries one of the frames that may be next: those between two parties stay in order.
    pub fn carry_one(&mut self, rng: &mut base::Rng) -> bool {
        let Some(index) = (!self.frames.is_empty()).then(|| rng.below(self.frames.len() as u64) as usize)
        else {
            return self.sync_where_asked();
        };
        let (src, dst) = (self.frames[index].src, self.frames[index].dst);
        let first = self.frames.iter().position(|frame| frame.src == src && frame.dst == dst);
        if let Some(frame) = first.and_then(|first| self.frames.remove(first)) {
            self.deliver(frame);
        }
        true
    }

    /// Carries the next frame; without any, time passes.
    pub fn carry_one_in_order(&mut self) {
        match self.frames.pop_front() {
            Some(frame) => self.deliver(frame),
            None if self.sync_where_asked() => {}
            None => self.step(Duration::from_millis(100)),
        }
    }

    /// Nothing else can happen: time passes.
    pub fn pass_a_little(&mut self) {
        self.step(Duration::from_millis(100));
    }

    /// Carries frames until there are none.
    pub fn run(&mut self) {
        loop {
            while let Some(frame) = self.frames.pop_front() {
                self.deliver(frame);
            }
            if !self.sync_where_asked() {
                break;
            }
        }
    }

    fn deliver(&mut self, frame: Frame) {
        let Some(mut frame) = self.tap.pass(self.now.time, frame, &mut self.frames) else { return };
        let is_fence = || matches!(Request::from_bytes(&frame.body), Ok(Request::Ost(OstRequest::Fence(_))));
        if self.are_fences_late && frame.kind == FrameKind::Request && is_fence() {
            return self.late_fences.push(frame);
        }
        let managed = self.management.as_mut().and_then(|management| management.on_frame(self.now, &frame));
        if let Some(sent) = managed {
            return self.frames.extend(sent);
        }
        match frame.dst {
            Endpoint::Target(target) if target.kind == base::TargetKind::Mdt => {
                self.mdt_input(usize::from(target.index), mds::Input::Frame(frame));
            }
            Endpoint::Target(target) => self.ost_input(usize::from(target.index), oss::Input::Frame(frame)),
            Endpoint::Client(client) => {
                let hears = |mount: &Mount| {
                    let is_cut = mount.is_cut_off || mount.is_deaf || mount.is_cut_from(frame.src);
                    mount.id == client && !is_cut
                };
                let Some(mount) = self.mounts.iter().position(hears) else { return };
                let known = &mut self.mounts[mount];
                if known.has_strange_layouts {
                    put_strange_layout(&mut frame);
                }
                if known.is_late.is_some_and(|target| Endpoint::Target(target) == frame.src) {
                    known.late.push(frame);
                } else if !known.loses(&frame) {
                    self.input(mount, Input::Frame(frame));
                }
            }
        }
    }

    /// What was late comes.
    pub fn let_come(&mut self, mount: usize) {
        let frames = self.take_late(mount);
        self.come(mount, frames);
    }

    /// What is late so far; nothing else is from now on.
    pub fn take_late(&mut self, mount: usize) -> Vec<Frame> {
        self.mounts[mount].is_late = None;
        std::mem::take(&mut self.mounts[mount].late)
    }

    pub fn come(&mut self, mount: usize, frames: Vec<Frame>) {
        for frame in frames {
            self.input(mount, Input::Frame(frame));
        }
        self.run();
    }

    /// What a mount had sent arrives, whatever has become of the mount. -> How many of it are writes.
    pub fn let_arrive(&mut self, mount: usize) -> usize {
        self.mounts[mount].is_slow_to = None;
        let frames = std::mem::take(&mut self.mounts[mount].under_way);
        let is_write = |frame: &&Frame| {
            matches!(Request::from_bytes(&frame.body), Ok(Request::Ost(OstRequest::Write { .. })))
        };
        let write_count = frames.iter().filter(is_write).count();
        self.frames.extend(frames);
        self.run();
        write_count
    }

    /// The OSTs hear whose sessions they are to end. -> How many frames that are.
    pub fn let_fences_arrive(&mut self) -> usize {
        self.are_fences_late = false;
        let frames = std::mem::take(&mut self.late_fences);
        let count = frames.len();
        self.frames.extend(frames);
        self.run();
        count
    }

    /// Stores sync when a target wants them to.
    fn sync_where_asked(&mut self) -> bool {
        let mut has_synced = false;
        if !self.is_syncing {
            return false;
        }
        if let Some(sent) = self.management.as_mut().and_then(|it| it.sync_where_asked(self.now)) {
            self.frames.extend(sent);
            has_synced = true;
        }
        for index in 0..self.mdts.len() {
            if self.mdts[index].store.take_kick() {
                self.sync_target(TargetId::mdt(index as u16));
                has_synced = true;
            }
        }
        for index in 0..self.osts.len() {
            let kicked = [self.osts[index].meta.take_kick(), self.osts[index].objects.take_kick()];
            if kicked.contains(&true) {
                self.sync_target(TargetId::ost(index as u16));
                has_synced = true;
            }
        }
        has_synced
    }

    /// What a target has written becomes durable, and it hears so.
    pub fn sync_target(&mut self, target: TargetId) {
        self.tap.note(self.now.time, What::Sync(target));
        let index = usize::from(target.index);
        if target.kind == base::TargetKind::Mdt {
            self.mdts[index].store.sync();
            self.mdt_input(index, mds::Input::Durable);
        } else {
            self.osts[index].objects.sync();
            self.osts[index].meta.sync();
            self.ost_input(index, oss::Input::Durable);
        }
    }

    /// Everything becomes durable.
    pub fn sync(&mut self) {
        for index in 0..self.mdts.len() {
            self.sync_target(TargetId::mdt(index as u16));
        }
        for index in 0..self.osts.len() {
            self.sync_target(TargetId::ost(index as u16));
        }
        self.run();
    }

    /// Lets time pass; stores sync as long as it lasts.
    pub fn pass(&mut self, wait: Duration) {
        let end = self.now.time.after(wait);
        while self.now.time < end {
            self.step(Duration::from_millis(100).min(end.since(self.now.time)));
        }
        self.sync();
    }

    fn step(&mut self, wait: Duration) {
        self.now.time = self.now.time.after(wait);
        self.now.wall.0 += wait.as_nanos() as i64;
        for index in 0..self.mdts.len() {
            self.mdt_input(index, mds::Input::Tick);
        }
        for index in 0..self.osts.len() {
            self.ost_input(index, oss::Input::Tick);
        }
        for mount in 0..self.mounts.len() {
            let now = self.now.time;
            if self.mounts[mount].machine.next_deadline().is_some_and(|deadline| deadline <= now) {
                self.input(mount, Input::Tick);
            }
        }
        if let Some(management) = &mut self.management {
            self.frames.extend(management.on_tick(self.now));
        }
        self.tap.tick(self.now.time, &mut self.frames);
        self.run();
    }

    /// Begins a call.
    pub fn begin_as(&mut self, mount: usize, caller: Caller, call: Call) -> u64 {
        let id = self.prepare_as(mount, caller, call);
        self.run();
        id
    }

    /// Begins a call whose frames wait for those that are sent after it.
    pub fn prepare(&mut self, mount: usize, call: Call) -> u64 {
        self.prepare_as(mount, ROOT, call)
    }

    pub fn prepare_as(&mut self, mount: usize, caller: Caller, call: Call) -> u64 {
        self.mounts[mount].last_call += 1;
        let id = self.mounts[mount].last_call;
        self.input(mount, Input::Call { id, call, caller });
        id
    }

    pub fn begin(&mut self, mount: usize, call: Call) -> u64 {
        self.begin_as(mount, ROOT, call)
    }

    /// Lets time pass until the call is answered.
    pub fn finish(&mut self, mount: usize, id: u64) -> Result<Answer, i32> {
        for _ in 0..3000 {
            if let Some(result) = self.mounts[mount].replies.remove(&id) {
                return result;
            }
            self.step(Duration::from_millis(100));
        }
        panic!("call {id} of mount {mount} is not answered within five minutes");
    }

    pub fn call_as(&mut self, mount: usize, caller: Caller, call: Call) -> Result<Answer, i32> {
        let id = self.begin_as(mount, caller, call);
        self.finish(mount, id)
    }

    pub fn call(&mut self, mount: usize, call: Call) -> Result<Answer, i32> {
        self.call_as(mount, ROOT, call)
    }

    pub fn is_answered(&self, mount: usize, id: u64) -> bool {
        self.mounts[mount].replies.contains_key(&id)
    }
}

fn put_wrong_lock(frame: &mut Frame) {
    if let Ok(Request::Ost(mut request)) = Request::from_bytes(&frame.body)
        && let OstRequest::Write { lock, asked, .. } = &mut request
    {
        *lock = base::LockId(u64::MAX);
        *asked = None;
        frame.body = Request::Ost(request).to_bytes();
    }
}

fn put_strange_layout(frame: &mut Frame) {
    if frame.kind == FrameKind::Reply
        && let Ok(Reply::Mdt(mut reply)) = Reply::from_bytes(&frame.body)
        && let MdtReply::Entry(entry) | MdtReply::WithData { entry, .. } = &mut reply
        && let Some(layout) = &mut entry.layout
    {
        layout.components.iter_mut().for_each(|component| component.stripe_size_bytes += 1);
        assert!(!layout.is_valid() || !layout.has_objects());
        frame.body = Reply::Mdt(reply).to_bytes();
    }
}

fn uuid(id: TargetId) -> u128 {
    u128::from(id.kind as u8) << 16 | u128::from(id.index)
}
