//! A small cluster: callers with an `Import` each, one target whose only operation is to write a row once.

use base::{ClientId, Duration, Endpoint, Epoch, Fid, Now, Rng, Status, TargetId, Time, Transno, WallTime};
use bytes::Bytes;
use rpc::{Import, ImportOptions, ImportOutput, ImportState, Kind, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{Batch, MemoryMeta, MetaStore};
use target::{Core, CoreEvent, CoreOptions, CoreOutput};
use wire::mdt::Credentials;
use wire::session::ConnectReply;
use wire::{ConnectRequest, Frame, FrameKind, Life, MdtRequest, Reply, Request};

pub const TARGET: TargetId = TargetId::mdt(0);
const ROWS: u8 = 1;
const COUNTER: u8 = 2;

pub struct Caller {
    pub import: Import,
    pub sent: BTreeMap<Ticket, u64>,
    /// Operations with a good answer, and under which number.
    pub done: BTreeMap<u64, Transno>,
    pub failed: BTreeMap<u64, Status>,
    pub evictions: usize,
    pub recoveries: usize,
    pub lost_replays: usize,
    /// What it has heard to be durable.
    pub committed: Transno,
    /// Operations that were acknowledged in a session that ended with an eviction, and not known to be durable.
    pub left_behind: BTreeSet<u64>,
    /// Those of them that the target says to have lost.
    pub lost_with_session: BTreeSet<u64>,
}

pub struct Cluster {
    pub rng: Rng,
    pub now: Now,
    pub store: Arc<MemoryMeta>,
    pub core: Option<Core<MemoryMeta>>,
    pub callers: Vec<Caller>,
    /// Frames under way: when they arrive, in order of sending.
    wire: BTreeMap<(Time, u64), Frame>,
    sent_count: u64,
    pub loss_one_in: u64,
    pub has_external_data: bool,
    pub reports_external: bool,
    next_operation: u64,
    pub executed: u64,
    pub crashes: u64,
    pub partitioned: BTreeSet<usize>,
    /// It syncs nothing for now.
    pub is_disk_slow: bool,
    /// That the target has made.
    pub session_count: u64,
    /// The target names no features.
    pub is_plain: bool,
    /// Frames of either side by flags.
    pub flags_sent: BTreeMap<(FrameKind, u32), u64>,
    /// The last one of each kind.
    pub last_sent: BTreeMap<FrameKind, Frame>,
    /// Callers that name no features.
    pub plain_callers: BTreeSet<usize>,
    /// By what an operator has moved the clock of the calendar.
    pub clock_set_by_nanos: i64,
    /// Frames that never arrive.
    pub is_lost: Box<dyn Fn(&Frame) -> bool>,
    /// What this incarnation of the target has executed again: whose, and under which number it had been executed.
    pub replayed: Vec<(usize, Transno)>,
    last_replayed: BTreeMap<Fid, Transno>,
    /// What the owner of the target knows of the incarnation before.
    pub left: Option<(Epoch, Transno)>,
    /// The next replay of a change of these inodes is answered with this, and not executed.
    pub refuses: BTreeMap<Fid, Status>,
}

pub fn client(index: usize) -> ClientId {
    ClientId(100 + index as u128)
}

/// Of a target without data outside of its rows.
pub fn options(now: Now) -> CoreOptions {
    CoreOptions {
        id: TARGET,
        uuid: 7,
        fsname: "t".into(),
        now,
        recovery_window: Duration::from_secs(60),
        has_external_data: false,
        owed: target::nothing_owed,
    }
}

fn index_of(id: ClientId) -> usize {
    (id.0 - 100) as usize
}

impl Cluster {
    pub fn new(seed: u64, caller_count: usize) -> Cluster {
        let callers = (0..caller_count)
            .map(|index| Caller {
                import: Import::new(ImportOptions {
                    client: client(index),
                    incarnation: 1,
                    starts: Vec::new(),
                    fsname: "t".into(),
                    nid: format!("caller{index}"),
                    target: TARGET,
                    target_uuid: 7,
                }),
                sent: BTreeMap::new(),
                done: BTreeMap::new(),
                failed: BTreeMap::new(),
                evictions: 0,
                recoveries: 0,
                lost_replays: 0,
                committed: Transno::ZERO,
                left_behind: BTreeSet::new(),
                lost_with_session: BTreeSet::new(),
            })
            .collect();
        let mut cluster = Cluster {
            rng: Rng::new(seed),
            now: Now { time: Time(1), wall: WallTime(1_000_000) },
            store: Arc::new(MemoryMeta::new()),
            core: None,
            callers,
            wire: BTreeMap::new(),
            sent_count: 0,
            loss_one_in: 0,
            has_external_data: false,
            reports_external: true,
            next_operation: 1,
            executed: 0,
            crashes: 0,
            partitioned: BTreeSet::new(),
            is_disk_slow: false,
            session_count: 0,
            is_plain: false,
            flags_sent: BTreeMap::new(),
            last_sent: BTreeMap::new(),
            plain_callers: BTreeSet::new(),
            clock_set_by_nanos: 0,
            is_lost: Box::new(|_| false),
            replayed: Vec::new(),
            last_replayed: BTreeMap::new(),
            left: None,
            refuses: BTreeMap::new(),
        };
        cluster.start();
        cluster
    }

    /// Of a new target; with `has_external_data` one like an OST, whose data are outside of its store.
    pub fn of(has_external_data: bool, caller_count: usize) -> Cluster {
        let mut cluster = Cluster::new(1, caller_count);
        if has_external_data {
            cluster.has_external_data = true;
            cluster.core = None;
            cluster.store = Arc::new(MemoryMeta::new());
            cluster.start();
        }
        cluster
    }

    /// The target is back without what was not durable, and nobody has noticed.
    pub fn lose_unsynced(&mut self) {
        self.core = None;
        self.store.crash(0);
        self.is_disk_slow = false;
        self.start();
    }

    /// After a while without losses all callers work on, and all that they have been told to be done is there.
    pub fn expect_recovered(&mut self, within: Duration) {
        self.is_lost = Box::new(|_| false);
        self.run_for(within);
        for (index, caller) in self.callers.iter().enumerate() {
            assert_eq!(caller.import.state(), ImportState::Active, "{index}");
            assert_eq!((caller.evictions, caller.lost_replays), (0, 0), "{index}");
            assert!(caller.done.keys().all(|operation| self.rows().contains(operation)), "{index}");
        }
    }

    pub fn start(&mut self) {
        self.replayed.clear();
        self.last_replayed.clear();
        let options = CoreOptions { has_external_data: self.has_external_data, ..options(self.now) };
        self.core = Some(Core::open_after(self.store.clone(), options, self.left.take()).unwrap());
    }

    /// The target learns that this incarnation of a caller has ended.
    pub fn departed(&mut self, caller: usize, incarnation: u64) {
        let (now, mut out) = (self.now, Vec::new());
        if let Some(core) = &mut self.core {
            core.on_departed(now, client(caller), incarnation, &mut out);
        }
        self.on_core(out);
    }

    /// The target learns that this incarnation of a caller has no lease. Nobody waits for its locks.
    pub fn lapsed(&mut self, caller: usize, incarnation: u64) {
        self.on_lapsed(caller, incarnation, false);
    }

    /// As `lapsed`, and others wait for its locks.
    pub fn holder_lapsed(&mut self, caller: usize) {
        self.on_lapsed(caller, 1, true);
    }

    fn on_lapsed(&mut self, caller: usize, incarnation: u64, is_holder: bool) {
        let (now, mut out) = (self.now, Vec::new());
        if let Some(core) = &mut self.core {
            let life = Life { client: client(caller), incarnation };
            core.on_lapsed(now, now.time, life, is_holder, &mut out);
        }
        self.on_core(out);
    }

    /// Whom the target would ask the management server about, if others wait for the locks of these.
    pub fn unheard(&self, holders: &[usize]) -> usize {
        let holders = holders.iter().map(|holder| client(*holder)).collect();
        self.core.as_ref().unwrap().unheard(self.now.time, &holders).len()
    }

    /// An operator wants no more waiting.
    pub fn abort_recovery(&mut self) {
        let (now, mut out) = (self.now, Vec::new());
        if let Some(core) = &mut self.core {
            core.abort_recovery(now, &mut out);
        }
        self.on_core(out);
    }

    /// A caller notices that the target is, or was, away.
    pub fn lose_connection(&mut self, caller: usize) {
        let mut out = Vec::new();
        self.callers[caller].import.on_connection_lost(self.now, &mut out);
        self.on_import(caller, out);
    }

    /// The machine of the target loses power.
    pub fn crash(&mut self) {
        self.core = None;
        let unsynced = self.store.unsynced_count() as u64;
        let kept = self.rng.below(unsynced + 1) as usize;
        self.store.crash(kept);
        self.crashes += 1;
    }

    /// The process of the target dies and starts again. Its owner knows all that its clients held.
    pub fn kill(&mut self) {
        let core = self.core.take().unwrap();
        self.left = Some((core.epoch(), core.last_transno()));
        self.store.crash(self.store.unsynced_count());
        self.start();
        for caller in 0..self.callers.len() {
            self.lose_connection(caller);
        }
    }

    fn post(&mut self, mut frame: Frame) {
        *self.flags_sent.entry((frame.kind, frame.flags)).or_default() += 1;
        if self.is_plain
            && let Ok(Reply::Connected(reply)) = Reply::from_bytes(&frame.body)
        {
            frame.body = Reply::Connected(ConnectReply { features: 0, ..reply }).to_bytes();
        }
        if let Endpoint::Client(id) = frame.src
            && self.plain_callers.contains(&index_of(id))
            && let Ok(Request::Connect(connect)) = Request::from_bytes(&frame.body)
        {
            frame.body = Request::Connect(ConnectRequest { features: 0, ..connect }).to_bytes();
        }
        self.last_sent.insert(frame.kind, frame.clone());
        if (self.is_lost)(&frame) {
            return;
        }
        let copies = if self.loss_one_in == 0 {
            1
        } else if self.rng.one_in(self.loss_one_in) {
            0
        } else if self.rng.one_in(self.loss_one_in) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let spread = if self.loss_one_in == 0 { 100_000 } else { 20_000_000 };
            let mut delay = 10_000 + self.rng.below(spread);
            if self.loss_one_in != 0 && self.rng.one_in(50) {
                delay += self.rng.below(5_000_000_000);
            }
            self.sent_count += 1;
            self.wire
                .insert((self.now.time.after(Duration::from_nanos(delay)), self.sent_count), frame.clone());
        }
    }

    pub fn submit(&mut self, caller: usize) -> u64 {
        self.submit_on(caller, Fid::ROOT)
    }

    /// A change of this inode.
    pub fn submit_on(&mut self, caller: usize, fid: Fid) -> u64 {
        let operation = self.next_operation;
        self.next_operation += 1;
        let request = Request::Mdt(MdtRequest::Setxattr {
            fid,
            name: operation.to_be_bytes().to_vec(),
            value: Vec::new(),
            flags: 0,
            creds: Credentials::default(),
        });
        let mut out = Vec::new();
        let one = &mut self.callers[caller];
        let data = Bytes::from(vec![0; 10]);
        let ticket = one.import.submit(self.now, request, data, Kind::Modifying, operation, &mut out);
        one.sent.insert(ticket, operation);
        self.on_import(caller, out);
        operation
    }

    fn on_import(&mut self, index: usize, out: Vec<ImportOutput>) {
        for output in out {
            match output {
                ImportOutput::Send(frame) => {
                    if !self.partitioned.contains(&index) {
                        self.post(frame);
                    }
                }
                ImportOutput::Completed { ticket, result } => {
                    let caller = &mut self.callers[index];
                    let operation = caller.sent.remove(&ticket).expect("completed once");
                    match result {
                        Ok(answer) => caller.done.insert(operation, answer.transno).map(|_| ()),
                        Err(status) => caller.failed.insert(operation, status).map(|_| ()),
                    };
                }
                ImportOutput::ReplayWanted => {
                    let mut more = Vec::new();
                    let lock = Request::Lock(wire::LockRequest::Replay { locks: Vec::new() });
                    let list = vec![(lock, Bytes::new())];
                    self.callers[index].import.replay_now(self.now, list, &mut more);
                    self.on_import(index, more);
                }
                ImportOutput::Recovered => self.callers[index].recoveries += 1,
                ImportOutput::Evicted => {
                    let caller = &mut self.callers[index];
                    caller.evictions += 1;
                    // Not what the session says: that counts for what comes after.
                    let committed = caller.committed;
                    let evicted = caller.done.extract_if(.., |_, transno| *transno > committed);
                    caller.left_behind.extend(evicted.map(|(operation, _)| operation));
                }
                ImportOutput::ReplayFailed { .. } => self.callers[index].lost_replays += 1,
                ImportOutput::Lost { requests } => {
                    self.callers[index].lost_with_session.extend(requests.iter().map(operation_of));
                }
                ImportOutput::Committed(transno) => self.callers[index].committed = transno,
                ImportOutput::State(_)
                | ImportOutput::Overdue
                | ImportOutput::AnswersAgain
                | ImportOutput::Outdated(_)
                | ImportOutput::Callback(_) => {}
            }
        }
        self.callers[index].import.check();
    }

    pub fn on_core(&mut self, mut out: Vec<CoreOutput>) {
        while !out.is_empty() {
            let mut more = Vec::new();
            for output in out {
                match output {
                    CoreOutput::Send(frame) => self.post(frame),
                    CoreOutput::Execute(work) => self.execute(*work, &mut more),
                    CoreOutput::Event(CoreEvent::Executed { .. }) => self.executed += 1,
                    CoreOutput::Event(CoreEvent::Connected { .. }) => self.session_count += 1,
                    CoreOutput::Evicted(_)
                    | CoreOutput::Returned(_)
                    | CoreOutput::RecoveryEnded
                    | CoreOutput::Accessed { .. }
                    | CoreOutput::Event(_) => {}
                }
            }
            out = more;
        }
        if let Some(core) = &mut self.core {
            if self.has_external_data && self.reports_external {
                core.set_external_durable(core.last_transno());
                let mut more = Vec::new();
                core.on_durable(self.now, &mut more);
                core.check();
                for output in more {
                    if let CoreOutput::Send(frame) = output {
                        self.post(frame);
                    }
                }
            } else {
                core.check();
            }
        }
    }

    /// Writes a row that must not exist, and counts it.
    fn execute(&mut self, work: target::Work, out: &mut Vec<CoreOutput>) {
        let core = self.core.as_mut().unwrap();
        match work.request {
            Request::Mdt(MdtRequest::Setxattr { fid, name, .. }) => {
                if let Some(transno) = work.token.replay {
                    if let Some(status) = self.refuses.remove(&fid) {
                        return core.reply(self.now, work.token, Err(status), out);
                    }
                    let before = self.last_replayed.insert(fid, transno);
                    assert!(before.is_none_or(|before| before < transno), "replays of {fid} are in order");
                    self.replayed.push((index_of(work.token.client), transno));
                }
                let exists = self.store.get(ROWS, &name).unwrap().is_some();
                assert!(!exists || self.has_external_data, "an operation is executed once");
                let count = self.store.get(COUNTER, b"n").unwrap();
                let count = count.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()));
                let mut batch = Batch::new();
                batch.put(ROWS, &name, &core.next_transno().0.to_be_bytes());
                batch.put(COUNTER, b"n", &(count + u64::from(!exists)).to_be_bytes());
                let _ = core.commit(self.now, work.token, batch, Reply::Done, Bytes::new(), out);
            }
            Request::Mdt(MdtRequest::Sync) => {
                core.reply_when_durable(self.now, work.token, core.last_transno(), Reply::Done, out);
            }
            _ => core.reply(self.now, work.token, Ok((Reply::Done, Bytes::new())), out),
        }
    }

    /// Goes on to the next thing that happens, at most until `until`.
    pub fn step(&mut self, until: Time) -> bool {
        let frame_at = self.wire.keys().next().map(|(time, _)| *time);
        let imports = self.callers.iter().filter_map(|caller| caller.import.next_deadline()).min();
        let core = self.core.as_ref().and_then(Core::next_deadline);
        let next = [frame_at, imports, core].into_iter().flatten().min();
        let Some(next) = next.filter(|next| *next <= until) else {
            return false;
        };
        self.now.time = self.now.time.max(next);
        self.now.wall = WallTime(self.now.time.0 as i64 + self.clock_set_by_nanos);
        if frame_at == Some(next) {
            let (_, frame) = self.wire.pop_first().unwrap();
            self.deliver(frame);
        }
        for index in 0..self.callers.len() {
            let is_due = |at: Option<Time>| at.is_some_and(|at| at <= self.now.time);
            if is_due(self.callers[index].import.next_deadline()) {
                let mut out = Vec::new();
                self.callers[index].import.on_tick(self.now, &mut out);
                assert!(!is_due(self.callers[index].import.next_deadline()), "a tick moves the deadline");
                self.on_import(index, out);
            }
        }
        if let Some(core) = &mut self.core
            && core.next_deadline().is_some_and(|at| at <= self.now.time)
        {
            let mut out = Vec::new();
            core.on_tick(self.now, &mut out);
            self.on_core(out);
        }
        true
    }

    pub fn deliver(&mut self, frame: Frame) {
        match frame.dst {
            Endpoint::Target(_) => {
                if let Some(core) = &mut self.core {
                    let mut out = Vec::new();
                    core.on_frame(self.now, frame, &mut out);
                    self.on_core(out);
                }
            }
            Endpoint::Client(id) => {
                let index = index_of(id);
                if !self.partitioned.contains(&index) {
                    let mut out = Vec::new();
                    self.callers[index].import.on_frame(self.now, frame, &mut out);
                    self.on_import(index, out);
                }
            }
        }
    }

    /// The disk catches up, wholly or in part.
    pub fn sync(&mut self, is_kicked: bool) {
        if self.is_disk_slow {
            return;
        }
        if is_kicked {
            self.store.sync();
        } else {
            let ahead = self.store.applied().0.saturating_sub(self.store.durable().0);
            let step = self.rng.below(ahead.min(1 << 30) + 1);
            self.store.sync_to(Transno(self.store.durable().0 + step));
        }
        if let Some(core) = &mut self.core {
            let mut out = Vec::new();
            core.on_durable(self.now, &mut out);
            self.on_core(out);
        }
    }

    pub fn run_for(&mut self, duration: Duration) {
        let until = self.now.time.after(duration);
        let mut is_going = true;
        while is_going {
            self.now.time = self.now.time.min(until);
            is_going = self.step(until);
            let is_kicked = self.store.take_kick() && (self.loss_one_in == 0 || !self.rng.one_in(4));
            if is_kicked || self.rng.one_in(40) {
                self.sync(is_kicked);
                is_going = true;
            }
        }
        self.now.time = until;
    }

    /// Operations that have a row.
    pub fn rows(&self) -> BTreeSet<u64> {
        let rows = self.store.rows();
        let keys = rows.keys().filter(|(table, _)| *table == ROWS);
        keys.map(|(_, key)| u64::from_be_bytes(key.as_slice().try_into().unwrap())).collect()
    }

    pub fn counter(&self) -> u64 {
        self.store
            .get(COUNTER, b"n")
            .unwrap()
            .map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()))
    }

    pub fn request(&mut self, caller: usize, request: Request, kind: Kind) -> Ticket {
        let mut out = Vec::new();
        let ticket = self.callers[caller].import.submit(self.now, request, Bytes::new(), kind, 0, &mut out);
        self.callers[caller].sent.insert(ticket, u64::MAX - ticket.0);
        self.on_import(caller, out);
        ticket
    }
}

fn operation_of(request: &Request) -> u64 {
    match request {
        Request::Mdt(MdtRequest::Setxattr { name, .. }) => {
            u64::from_be_bytes(name.as_slice().try_into().unwrap())
        }
        other => panic!("{other:?} was submitted by nobody"),
    }
}
