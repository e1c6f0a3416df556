//! Targets on simulated disks: what a machine room does to them.

use crate::cluster::target_config;
use base::{
    ClientId, ClusterConfig, Duration, Endpoint, Epoch, Machine, Now, Rng, TargetConfig, TargetId,
    TargetKind, Time, Transno,
};
use client::mgc::{self, Mgc};
use mds::{Mds, MdsEvent, MdsOptions};
use mgs::{Found, Mgs, MgsEvent, MgsOptions, Probe};
use oss::{Oss, OssEvent, OssOptions};
use std::sync::Arc;
use store::memory::Kept;
use store::{MemoryHoldings, MemoryMeta, MemoryObjects};
use target::CoreEvent;
use wire::{Frame, Life};

pub const FSNAME: &str = "sim";
/// How often a server asks about leases while a target recovers, and else.
const ASK_INTERVAL_RECOVERING: Duration = Duration::from_millis(200);
const ASK_INTERVAL: Duration = Duration::from_secs(1);
const MGS_RECOVERY_WINDOW: Duration = Duration::from_millis(200);

pub enum Engine {
    Mgs(Box<Mgs<MemoryMeta>>),
    Mdt(Box<Mds<MemoryMeta>>),
    Ost(Box<Oss<MemoryMeta, MemoryObjects>>),
}

/// What a target put out.
pub enum Effect {
    Send(Frame),
    /// Of the management server, answered by `Server::serves` of its target.
    Probe(Probe),
    /// Of an OST, answered by `Server::fetched` when its device has brought what was asked for.
    Fetch(oss::FetchId),
    Core(CoreEvent),
    Note(String),
    /// What can go wrong only with a device, or because something is not what it must be.
    Failed(String),
}

/// How far a target was in one of its incarnations.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub epoch: Epoch,
    pub executed: Transno,
    /// As its clients were told.
    pub committed: Transno,
}

impl Progress {
    fn of<M: store::MetaStore>(core: &target::Core<M>) -> Progress {
        Progress { epoch: core.epoch(), executed: core.last_transno(), committed: core.last_committed() }
    }
}

/// In the names of server processes as callers of the management server.
const CALLER_MARK: u128 = 1 << 121;

/// A session with the management server. What it says of the configuration is not followed: that is handed in.
pub fn new_mgc(caller: ClientId, registrations: Vec<TargetConfig>) -> Mgc {
    Mgc::new(caller, FSNAME, "sim", registrations.into_iter().map(mgc::Registration::from).collect())
}

/// One target with its disks. The disks stay when the machine dies.
pub struct Server {
    pub id: TargetId,
    pub meta: Arc<MemoryMeta>,
    pub objects: Arc<MemoryObjects>,
    /// Memory of its machine that outlives the process.
    pub holdings: MemoryHoldings,
    pub engine: Option<Engine>,
    pub deadline: Option<Time>,
    /// A sync of the disks is on its way.
    pub is_syncing: bool,
    recovery_window: Duration,
    /// Of the process, to the management server: one for each time that it was started.
    mgc: Mgc,
    epoch: Epoch,
    start_count: u64,
    ask_at: Time,
    /// Whether it asks about leases.
    pub asks: bool,
    /// Its invariants are asserted after one of so many inputs: that takes the longer the more clients it has.
    pub check_one_in: u64,
    input_count: u64,
}

impl Server {
    pub fn new(id: TargetId, recovery_window: Duration) -> Server {
        Server {
            id,
            meta: Arc::new(MemoryMeta::new()),
            objects: Arc::new(MemoryObjects::new()),
            holdings: MemoryHoldings::new(),
            engine: None,
            deadline: None,
            is_syncing: false,
            recovery_window,
            mgc: new_mgc(Server::caller(id, 0), Vec::new()),
            epoch: Epoch::ZERO,
            start_count: 0,
            ask_at: Time::ZERO,
            asks: true,
            check_one_in: 1,
            input_count: 0,
        }
    }

    /// What the process of a target is called when it calls the management server.
    fn caller(id: TargetId, start_count: u64) -> ClientId {
        ClientId(CALLER_MARK | u128::from(start_count) << 32 | (id.kind as u128) << 16 | u128::from(id.index))
    }

    /// Whose process this is the name of.
    pub fn of_caller(caller: ClientId) -> Option<TargetId> {
        let kinds = [TargetKind::Mgt, TargetKind::Mdt, TargetKind::Ost];
        let kind = kinds.into_iter().find(|kind| *kind as u128 == caller.0 >> 16 & 0xffff)?;
        let is_caller = caller.0 & CALLER_MARK != 0;
        is_caller.then_some(TargetId { kind, index: (caller.0 & 0xffff) as u16 })
    }

    pub fn uuid(id: TargetId) -> u128 {
        u128::from(id.index) + 1000 * (id.kind as u128)
    }

    /// The target starts on what its disks have.
    pub fn start(&mut self, now: Now, config: &ClusterConfig, out: &mut Vec<Effect>) {
        assert!(self.engine.is_none());
        let uuid = Server::uuid(self.id);
        let engine = match self.id.kind {
            TargetKind::Mdt => {
                let options = MdsOptions {
                    index: self.id.index,
                    uuid,
                    fsname: FSNAME.into(),
                    nid: self.id.to_string(),
                    now,
                    device: u64::from(self.id.index),
                    recovery_window: self.recovery_window,
                    root_owner: (0, 0),
                };
                let holdings = Box::new(self.holdings.clone());
                let machine = Mds::open_with(Arc::clone(&self.meta), holdings, options);
                Engine::Mdt(Box::new(machine.unwrap_or_else(|error| panic!("{error}"))))
            }
            TargetKind::Ost => {
                let mut options = OssOptions::new(self.id.index, uuid, FSNAME, u64::from(self.id.index), now);
                options.recovery_window = self.recovery_window;
                let (meta, objects) = (Arc::clone(&self.meta), Arc::clone(&self.objects));
                let machine = Oss::open_with(meta, objects, Box::new(self.holdings.clone()), options);
                Engine::Ost(Box::new(machine.unwrap_or_else(|error| panic!("{error}"))))
            }
            TargetKind::Mgt => {
                let options =
                    MgsOptions { uuid, now, recovery_window: MGS_RECOVERY_WINDOW, active_until: None };
                let machine = Mgs::open(Arc::clone(&self.meta), options);
                Engine::Mgs(Box::new(machine.unwrap_or_else(|error| panic!("{error}"))))
            }
        };
        self.epoch = match &engine {
            Engine::Mgs(machine) => machine.core().epoch(),
            Engine::Mdt(machine) => machine.core().epoch(),
            Engine::Ost(machine) => machine.core().epoch(),
        };
        self.engine = Some(engine);
        self.start_count += 1;
        self.ask_at = now.time;
        if self.id.kind == TargetKind::Mgt {
            return self.settle();
        }
        let registration = TargetConfig { nids: vec![self.nid()], ..target_config(self.id) };
        self.mgc = new_mgc(Server::caller(self.id, self.start_count), vec![registration]);
        self.mgc(now, mgc::Input::Start, out);
        if self.id.kind == TargetKind::Mdt {
            self.mds(now, mds::Input::Config(config.clone()), out);
        }
        self.settle();
    }

    /// A process is started on the one of two machines on which the one before it was not.
    fn nid(&self) -> String {
        format!("sim{}", self.start_count % 2)
    }

    /// What its process answers to a probe, if there is one at an address that is asked.
    pub fn serves(&self, probe: &Probe) -> Vec<Found> {
        let nid = self.nid();
        let is_asked = self.engine.is_some() && probe.nids.contains(&nid);
        let process = Server::caller(self.id, self.start_count);
        is_asked.then_some(Found { nid, process }).into_iter().collect()
    }

    /// To the management server.
    pub fn on_probed(&mut self, now: Now, id: u64, found: Vec<Found>, out: &mut Vec<Effect>) {
        self.mgs(now, mgs::Input::Probed { id, found }, out);
        self.settle();
    }

    fn is_check_due(&mut self) -> bool {
        self.input_count += 1;
        self.input_count.is_multiple_of(self.check_one_in)
    }

    fn mds(&mut self, now: Now, input: mds::Input, out: &mut Vec<Effect>) {
        let is_checked = self.is_check_due();
        let Some(Engine::Mdt(machine)) = &mut self.engine else { return };
        let mut outputs = Vec::new();
        machine.handle(now, input, &mut outputs);
        if is_checked {
            machine.check();
            assert!(!self.holdings.is_whole() || self.holdings.is_exactly(machine.held()));
        }
        out.extend(outputs.into_iter().map(|output| match output {
            mds::Output::Send(frame) => Effect::Send(frame),
            mds::Output::Event(MdsEvent::Core(event)) => Effect::Core(event),
            mds::Output::Event(event @ (MdsEvent::Failed { .. } | MdsEvent::DestroysUnread { .. })) => {
                Effect::Failed(format!("{event:?}"))
            }
            mds::Output::Event(event) => Effect::Note(format!("{event:?}")),
        }));
    }

    fn oss(&mut self, now: Now, input: oss::Input, out: &mut Vec<Effect>) {
        let is_checked = self.is_check_due();
        let Some(Engine::Ost(machine)) = &mut self.engine else { return };
        let mut outputs = Vec::new();
        machine.handle(now, input, &mut outputs);
        if is_checked {
            machine.check();
            assert!(!self.holdings.is_whole() || self.holdings.is_exactly(machine.held()));
        }
        out.extend(outputs.into_iter().map(|output| match output {
            oss::Output::Send(frame) => Effect::Send(frame),
            oss::Output::Fetch { id, .. } => Effect::Fetch(id),
            oss::Output::Event(OssEvent::Core(event)) => Effect::Core(event),
            oss::Output::Event(event) => Effect::Note(format!("{event:?}")),
        }));
    }

    fn mgs(&mut self, now: Now, input: mgs::Input, out: &mut Vec<Effect>) {
        let is_checked = self.is_check_due();
        let Some(Engine::Mgs(machine)) = &mut self.engine else { return };
        let mut outputs = Vec::new();
        machine.handle(now, input, &mut outputs);
        if is_checked {
            machine.check();
        }
        out.extend(outputs.into_iter().map(|output| match output {
            mgs::Output::Send(frame) => Effect::Send(frame),
            mgs::Output::Probe(probe) => Effect::Probe(probe),
            mgs::Output::Event(MgsEvent::Core(event)) => Effect::Core(event),
            mgs::Output::Event(event) => Effect::Note(format!("{event:?}")),
        }));
    }

    /// What the process has to do with the management server.
    fn mgc(&mut self, now: Now, input: mgc::Input, out: &mut Vec<Effect>) {
        let mut outputs = Vec::new();
        self.mgc.handle(now, input, &mut outputs);
        for output in outputs {
            match output {
                mgc::Output::Send(frame) => out.push(Effect::Send(frame)),
                mgc::Output::Lapsed { at, lives } => {
                    for life in lives {
                        out.push(Effect::Note(format!("{life:?} has no lease")));
                        self.mds(now, mds::Input::Lapsed { at, life }, out);
                        self.oss(now, oss::Input::Lapsed { at, life }, out);
                    }
                }
                mgc::Output::Registered { target, .. } => {
                    self.mgc(now, mgc::Input::Announce(target, self.epoch), out);
                }
                // In a cluster without copies of targets.
                mgc::Output::Elsewhere { target, .. } => {
                    out.push(Effect::Failed(format!("{target} is taken for a copy of itself")));
                }
                mgc::Output::Started(target, epoch) => {
                    self.mds(now, mds::Input::TargetStarted(target, epoch), out);
                }
                _ => {}
            }
        }
    }

    pub fn is_recovering(&self) -> bool {
        match &self.engine {
            Some(Engine::Mdt(mds)) => mds.core().is_recovering(),
            Some(Engine::Ost(oss)) => oss.core().is_recovering(),
            Some(Engine::Mgs(_)) | None => false,
        }
    }

    fn is_kept_waiting(&self) -> bool {
        match &self.engine {
            Some(Engine::Mdt(mds)) => mds.is_kept_waiting(),
            Some(Engine::Ost(oss)) => oss.is_kept_waiting(),
            Some(Engine::Mgs(_)) | None => false,
        }
    }

    fn unheard(&self, now: Now) -> Vec<Life> {
        match &self.engine {
            Some(Engine::Mdt(mds)) => mds.unheard(now.time),
            Some(Engine::Ost(oss)) => oss.unheard(now.time),
            Some(Engine::Mgs(_)) | None => Vec::new(),
        }
    }

    /// As the process of a server does.
    fn ask_lapsed(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.ask_at > now.time || !self.asks {
            return;
        }
        let interval = if self.is_recovering() { ASK_INTERVAL_RECOVERING } else { ASK_INTERVAL };
        self.ask_at = now.time.after(interval);
        let unheard = self.unheard(now);
        self.mgc(now, mgc::Input::AskLapsed(unheard), out);
    }

    pub fn on_frame(&mut self, now: Now, frame: Frame, out: &mut Vec<Effect>) {
        match self.id.kind {
            _ if frame.dst != Endpoint::Target(self.id) => self.mgc(now, mgc::Input::Frame(frame), out),
            TargetKind::Mgt => self.mgs(now, mgs::Input::Frame(frame), out),
            TargetKind::Mdt => self.mds(now, mds::Input::Frame(frame), out),
            TargetKind::Ost => self.oss(now, oss::Input::Frame(frame), out),
        }
        self.settle();
    }

    pub fn on_tick(&mut self, now: Now, out: &mut Vec<Effect>) {
        match self.id.kind {
            TargetKind::Mgt => self.mgs(now, mgs::Input::Tick, out),
            TargetKind::Mdt => self.mds(now, mds::Input::Tick, out),
            TargetKind::Ost => self.oss(now, oss::Input::Tick, out),
        }
        self.mgc(now, mgc::Input::Tick, out);
        self.ask_lapsed(now, out);
        self.settle();
    }

    /// The device of an OST has brought what was asked for, by this incarnation or by an earlier one.
    pub fn fetched(&mut self, now: Now, id: oss::FetchId, out: &mut Vec<Effect>) {
        self.oss(now, oss::Input::Fetched(id, Ok(())), out);
        self.settle();
    }

    /// Somebody at the controls wants this client gone.
    pub fn evict(&mut self, now: Now, client: ClientId, out: &mut Vec<Effect>) {
        match self.id.kind {
            TargetKind::Mgt => self.mgs(now, mgs::Input::Evict(client), out),
            TargetKind::Mdt => self.mds(now, mds::Input::Evict(client), out),
            TargetKind::Ost => self.oss(now, oss::Input::Evict(client), out),
        }
        self.settle();
    }

    /// The disks finish a sync, of everything or of a part.
    pub fn sync(&mut self, now: Now, rng: &mut Rng, out: &mut Vec<Effect>) {
        self.is_syncing = false;
        if self.engine.is_none() {
            return;
        }
        let which = rng.below(8);
        if which != 0 {
            self.objects.sync();
        }
        if which != 1 {
            self.meta.sync();
        }
        self.durable(now, out);
        if which < 2 {
            // The other device is slower.
            self.objects.sync();
            self.meta.sync();
            self.durable(now, out);
        }
    }

    /// The disks finish a sync of everything.
    pub fn sync_all(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.is_syncing = false;
        if self.engine.is_some() {
            self.objects.sync();
            self.meta.sync();
            self.durable(now, out);
        }
    }

    fn durable(&mut self, now: Now, out: &mut Vec<Effect>) {
        match self.id.kind {
            TargetKind::Mgt => self.mgs(now, mgs::Input::Durable, out),
            TargetKind::Mdt => self.mds(now, mds::Input::Durable, out),
            TargetKind::Ost => self.oss(now, oss::Input::Durable, out),
        }
        self.settle();
    }

    fn settle(&mut self) {
        let engine = match &self.engine {
            Some(Engine::Mgs(machine)) => machine.next_deadline(),
            Some(Engine::Mdt(machine)) => machine.next_deadline(),
            Some(Engine::Ost(machine)) => machine.next_deadline(),
            None => {
                self.deadline = None;
                return;
            }
        };
        let ask = (self.asks && self.is_kept_waiting()).then_some(self.ask_at);
        self.deadline = [engine, ask, self.mgc.next_deadline()].into_iter().flatten().min();
    }

    pub fn wants_sync(&self) -> bool {
        let meta = self.meta.take_kick();
        self.objects.take_kick() || meta
    }

    /// The machine loses power: of what was not synced, some is there.
    pub fn crash(&mut self, rng: &mut Rng) {
        self.stop();
        self.holdings.forget();
        let unsynced = self.meta.unsynced_count() as u64;
        let kept = rng.below(unsynced + 1) as usize;
        self.meta.crash(kept);
        self.objects.crash(|_| match rng.below(3) {
            0 => Kept::Nothing,
            1 => Kept::Whole,
            _ => Kept::Torn { byte_count: rng.below(70_000) as usize },
        });
    }

    pub fn done(&self) -> Option<Progress> {
        match &self.engine {
            Some(Engine::Mdt(mds)) => Some(Progress::of(mds.core())),
            Some(Engine::Ost(oss)) => Some(Progress::of(oss.core())),
            Some(Engine::Mgs(_)) | None => None,
        }
    }

    /// The machine loses power; of the rows that were not synced, so many batches are there, and of the data nothing.
    pub fn lose_power(&mut self, kept_count: usize) {
        self.stop();
        self.holdings.forget();
        self.meta.crash(kept_count);
        self.objects.crash(|_| Kept::Nothing);
    }

    /// The process dies, its disks keep everything that it wrote.
    pub fn kill(&mut self) {
        self.stop();
        let all = self.meta.unsynced_count();
        self.meta.crash(all);
        self.objects.kill();
    }

    /// A process that has died is started again on another machine.
    pub fn move_elsewhere(&mut self) {
        assert!(self.engine.is_none());
        self.holdings.forget();
    }

    /// The last recovery, if it lost nothing: how many requests were served before it ended.
    pub fn served_early(&self) -> Option<u64> {
        let report = match &self.engine {
            Some(Engine::Mdt(mds)) => mds.core().recovery_report(Time::ZERO),
            Some(Engine::Ost(oss)) => oss.core().recovery_report(Time::ZERO),
            Some(Engine::Mgs(_)) | None => return None,
        };
        report.is_lossless.then_some(report.early_count)
    }

    fn stop(&mut self) {
        self.engine = None;
        self.deadline = None;
        self.is_syncing = false;
    }

    /// It serves, has nothing under way, and everything is durable.
    pub fn is_at_rest(&self) -> bool {
        let is_quiet = match &self.engine {
            Some(Engine::Mgs(_)) => true,
            Some(Engine::Mdt(mds)) => !mds.core().is_recovering() && mds.is_quiet(),
            Some(Engine::Ost(oss)) => !oss.core().is_recovering(),
            None => false,
        };
        is_quiet && !self.has_unsynced()
    }

    pub fn has_unsynced(&self) -> bool {
        self.meta.unsynced_count() > 0 || self.objects.unsynced_count() > 0
    }
}
