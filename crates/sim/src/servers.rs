//! Targets on simulated disks: what a machine room does to them.

use base::{ClientId, ClusterConfig, Duration, Machine, Now, Rng, TargetId, TargetKind, Time};
use mds::{Mds, MdsEvent, MdsOptions};
use oss::{Oss, OssEvent, OssOptions};
use std::sync::Arc;
use store::memory::Kept;
use store::{MemoryMeta, MemoryObjects};
use target::CoreEvent;
use wire::Frame;

pub const FSNAME: &str = "sim";

pub enum Engine {
    Mdt(Box<Mds<MemoryMeta>>),
    Ost(Box<Oss<MemoryMeta, MemoryObjects>>),
}

/// What a target put out.
pub enum Effect {
    Send(Frame),
    Core(CoreEvent),
    Note(String),
}

/// One target with its disks. The disks stay when the machine dies.
pub struct Server {
    pub id: TargetId,
    pub meta: Arc<MemoryMeta>,
    pub objects: Arc<MemoryObjects>,
    pub engine: Option<Engine>,
    pub deadline: Option<Time>,
    /// A sync of the disks is on its way.
    pub is_syncing: bool,
    recovery_window: Duration,
}

impl Server {
    pub fn new(id: TargetId, recovery_window: Duration) -> Server {
        Server {
            id,
            meta: Arc::new(MemoryMeta::new()),
            objects: Arc::new(MemoryObjects::new()),
            engine: None,
            deadline: None,
            is_syncing: false,
            recovery_window,
        }
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
                let machine = Mds::open(Arc::clone(&self.meta), options);
                Engine::Mdt(Box::new(machine.unwrap_or_else(|error| panic!("{error}"))))
            }
            TargetKind::Ost => {
                let mut options = OssOptions::new(self.id.index, uuid, FSNAME, u64::from(self.id.index), now);
                options.recovery_window = self.recovery_window;
                let machine = Oss::open(Arc::clone(&self.meta), Arc::clone(&self.objects), options);
                Engine::Ost(Box::new(machine.unwrap_or_else(|error| panic!("{error}"))))
            }
            TargetKind::Mgt => unreachable!("the configuration is handed in"),
        };
        self.engine = Some(engine);
        if self.id.kind == TargetKind::Mdt {
            self.mds(now, mds::Input::Config(config.clone()), out);
        }
        self.settle();
    }

    fn mds(&mut self, now: Now, input: mds::Input, out: &mut Vec<Effect>) {
        let Some(Engine::Mdt(machine)) = &mut self.engine else { return };
        let mut outputs = Vec::new();
        machine.handle(now, input, &mut outputs);
        machine.check();
        out.extend(outputs.into_iter().map(|output| match output {
            mds::Output::Send(frame) => Effect::Send(frame),
            mds::Output::Event(MdsEvent::Core(event)) => Effect::Core(event),
            mds::Output::Event(event) => Effect::Note(format!("{event:?}")),
        }));
    }

    fn oss(&mut self, now: Now, input: oss::Input, out: &mut Vec<Effect>) {
        let Some(Engine::Ost(machine)) = &mut self.engine else { return };
        let mut outputs = Vec::new();
        machine.handle(now, input, &mut outputs);
        machine.check();
        out.extend(outputs.into_iter().map(|output| match output {
            oss::Output::Send(frame) => Effect::Send(frame),
            oss::Output::Event(OssEvent::Core(event)) => Effect::Core(event),
            oss::Output::Event(event) => Effect::Note(format!("{event:?}")),
        }));
    }

    pub fn on_frame(&mut self, now: Now, frame: Frame, out: &mut Vec<Effect>) {
        match self.id.kind {
            TargetKind::Mdt => self.mds(now, mds::Input::Frame(frame), out),
            _ => self.oss(now, oss::Input::Frame(frame), out),
        }
        self.settle();
    }

    pub fn on_tick(&mut self, now: Now, out: &mut Vec<Effect>) {
        match self.id.kind {
            TargetKind::Mdt => self.mds(now, mds::Input::Tick, out),
            _ => self.oss(now, oss::Input::Tick, out),
        }
        self.settle();
    }

    /// Somebody at the controls wants this client gone.
    pub fn evict(&mut self, now: Now, client: ClientId, out: &mut Vec<Effect>) {
        match self.id.kind {
            TargetKind::Mdt => self.mds(now, mds::Input::Evict(client), out),
            _ => self.oss(now, oss::Input::Evict(client), out),
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

    fn durable(&mut self, now: Now, out: &mut Vec<Effect>) {
        match self.id.kind {
            TargetKind::Mdt => self.mds(now, mds::Input::Durable, out),
            _ => self.oss(now, oss::Input::Durable, out),
        }
        self.settle();
    }

    fn settle(&mut self) {
        self.deadline = match &self.engine {
            Some(Engine::Mdt(machine)) => machine.next_deadline(),
            Some(Engine::Ost(machine)) => machine.next_deadline(),
            None => None,
        };
    }

    pub fn wants_sync(&self) -> bool {
        let meta = self.meta.take_kick();
        self.objects.take_kick() || meta
    }

    /// The machine loses power: of what was not synced, some is there.
    pub fn crash(&mut self, rng: &mut Rng) {
        self.engine = None;
        self.deadline = None;
        self.is_syncing = false;
        let unsynced = self.meta.unsynced_count() as u64;
        let kept = rng.below(unsynced + 1) as usize;
        self.meta.crash(kept);
        self.objects.crash(|_| match rng.below(3) {
            0 => Kept::Nothing,
            1 => Kept::Whole,
            _ => Kept::Torn { byte_count: rng.below(70_000) as usize },
        });
    }

    /// The process dies, its disks keep everything that it wrote.
    pub fn kill(&mut self) {
        self.engine = None;
        self.deadline = None;
        self.is_syncing = false;
        let all = self.meta.unsynced_count();
        self.meta.crash(all);
        self.objects.crash(|_| Kept::Whole);
    }
}
