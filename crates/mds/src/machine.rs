//! The machine: frames in, frames out.
//!
//! A request becomes a *flow*. A flow runs its operation over the rows as they are; if what it changed is claimed, it
//! is applied, else the flow waits for the claim and runs again. Nothing else can happen in between: one machine has
//! one owner at a time, so what was run and is claimed at once is still true.

mod accesses;
mod adoptions;
mod cross;
mod data;
mod deadlocks;
mod fences;
mod flow;
mod holdings;
mod orphans;
mod peers;
mod placing;
mod requests;
mod strays;
mod streams;

use crate::by_space::BySpace;
use crate::contended::Contended;
use crate::fids::Fids;
use crate::flock::Flocks;
use crate::op::{Cx, Remote};
use crate::opens::{Dropped, Opens};
use crate::placement::Placement;
use crate::rows::{Inode, KnownTargets};
use crate::stats::Stats;
use crate::tx::Tx;
use crate::unheard::{self, Unheard};
use accesses::Accesses;
use adoptions::Adoptions;
use base::fault::{Fault, planted};
use base::{
    ClientId, ClusterConfig, Duration, Epoch, Fid, LockId, Machine, Now, Pool, Status, TargetId, Time,
    Version, WallTime,
};
use bytes::Bytes;
use cross::Cross;
use deadlocks::Searches;
use fences::Fences;
use flow::Flow;
use holdings::{Noted, Restored};
use ldlm::{LockOutput, LockSpace, OpId};
use orphans::Unswept;
pub use peers::PeerStatus;
use peers::Peers;
use rpc::Import;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use store::{Holdings, MetaStore, StoreError};
use strays::Strays;
use streams::Streams;
use target::{
    CancelQueue, Core, CoreEvent, CoreOptions, CoreOutput, During, EvictReason, Gone, Grants, Token, Word,
    Work,
};
use wire::session::features;
use wire::{Callback, Frame, FrameKind, Life, Reply};

/// How an MDT is started.
#[derive(Clone, Debug)]
pub struct MdsOptions {
    pub index: u16,
    pub uuid: u128,
    pub fsname: String,
    /// What other targets show of this one.
    pub nid: String,
    pub now: Now,
    /// Targets with the same number share their space.
    pub device: u64,
    pub recovery_window: Duration,
    /// User and group of the root of a new file system.
    pub root_owner: (u32, u32),
}

#[derive(Clone, Debug)]
pub enum Input {
    Frame(Frame),
    Config(ClusterConfig),
    /// OSTs that get no new files, and MDTs that get no new directories. What they have stays in use.
    NoCreate {
        osts: BTreeSet<u16>,
        mdts: BTreeSet<u16>,
    },
    /// The store has made more durable.
    Durable,
    Tick,
    /// The transport lost its connection to this target.
    ConnectionLost(TargetId),
    /// The management server says that this target has started, as this incarnation.
    TargetStarted(TargetId, Epoch),
    /// An operator wants this client gone.
    Evict(ClientId),
    /// The process of this incarnation of a client has ended.
    Departed {
        client: ClientId,
        incarnation: u64,
    },
    /// The management server, asked at `at`, knows no lease of this client.
    Lapsed {
        at: Time,
        life: Life,
    },
    /// An operator wants the absent to be waited for no longer.
    AbortRecovery,
    /// This MDT ends in order soon (`Mds::has_left`). It goes on serving until then.
    Leave,
    /// What is known of this start of the MDT.
    Word(Word),
}

#[derive(Clone, Debug)]
pub enum Output {
    Send(Frame),
    Event(MdsEvent),
}

/// For logs, metrics and checkers.
#[derive(Clone, Debug, PartialEq)]
pub enum MdsEvent {
    Core(CoreEvent),
    /// The client did not give a lock back.
    LockTimeout {
        client: ClientId,
    },
    /// A row cannot be read or an internal transaction cannot be applied; `what` was left undone.
    Failed {
        what: &'static str,
        fid: Fid,
        status: Status,
    },
    /// Rows of objects to be destroyed cannot be read now. They are read again each second, and each is told of once.
    DestroysUnread {
        ost: u16,
        count: usize,
        status: Status,
    },
    /// Objects are gone from an OST.
    Destroyed {
        ost: u16,
        count: usize,
    },
    /// An operation over several MDTs was decided here.
    Decided {
        id: wire::peer::OperationId,
        is_commit: bool,
    },
    /// Another target does not want this one.
    PeerRefused {
        target: TargetId,
        status: Status,
    },
}

/// An MDT cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the metadata of {target} cannot be read: {source}")]
    Store { target: TargetId, source: StoreError },
    #[error("a row of {target} is damaged: run a check of this target")]
    Corrupt { target: TargetId },
}

/// The metadata server of one MDT.
pub struct Mds<M: MetaStore> {
    core: Core<M>,
    options: MdsOptions,
    locks: LockSpace,
    opens: Opens,
    unswept: Unswept,
    flocks: Flocks<Token>,
    searches: Searches,
    fids: Fids,
    placement: Placement,
    by_space: BySpace,
    config: ClusterConfig,
    /// That came before this incarnation had begun.
    early_config: Option<ClusterConfig>,
    known_targets: KnownTargets,
    known_pools: Vec<Pool>,
    no_create: BTreeSet<u16>,
    /// Boxed: each is taken out while it goes on.
    flows: BTreeMap<OpId, Box<Flow>>,
    next_op: u64,
    /// Flows to go on with.
    runnable: VecDeque<OpId>,
    /// Flows that looked at something frozen.
    parked: BTreeSet<OpId>,
    unheard: Unheard,
    contended: Contended,
    /// Flows that wait until a change is heard of, or durable.
    unheard_waiters: unheard::Waiters,
    timers: BTreeSet<(Time, OpId)>,
    /// Lock requests that wait.
    enqueues: BTreeMap<(ClientId, LockId), Token>,
    /// Requests about data that wait for locks of others.
    data_work: BTreeMap<OpId, Work>,
    cancels: CancelQueue,
    grants: Grants,
    peers: Peers,
    cross: Cross,
    streams: Streams,
    /// Every change that others on another MDT depend on is made durable on both before its caller is answered.
    is_remote_sync: bool,
    strays: Strays,
    adoptions: Adoptions,
    accesses: Accesses,
    fences: Fences,
    noted: Noted,
    stats: Stats,
    core_out: Vec<CoreOutput>,
    lock_out: Vec<LockOutput>,
    pending_core: VecDeque<CoreOutput>,
    pending_locks: VecDeque<LockOutput>,
}

impl<M: MetaStore> Mds<M> {
    /// Starts the MDT on its store: a new incarnation, which recovers with its clients first. MDT0000 makes the root
    /// directory when there is none.
    ///
    /// # Errors
    /// If the store fails or a row is damaged.
    pub fn open(store: Arc<M>, options: MdsOptions) -> Result<Mds<M>, OpenError> {
        Mds::open_with(store, Box::new(store::holdings::Nothing), options)
    }

    /// The same, with what the incarnation before has noted of its clients, where the next one will find what this one notes.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_with(
        store: Arc<M>,
        mut holdings: Box<dyn Holdings>,
        options: MdsOptions,
    ) -> Result<Mds<M>, OpenError> {
        let target = TargetId::mdt(options.index);
        let store_error = |source| OpenError::Store { target, source };
        crate::rows::check_known(&*store).map_err(store_error)?;
        let core_options = CoreOptions {
            id: target,
            uuid: options.uuid,
            fsname: options.fsname.clone(),
            now: options.now,
            recovery_window: options.recovery_window,
            has_external_data: false,
            owed: fences::owed,
        };
        let left = holdings.take_left();
        let restored = left.as_ref().and_then(|left| Some((left, Restored::from_note(left)?)));
        let known_to = restored.as_ref().map(|(left, _)| (left.epoch, left.applied));
        let restored = restored.map(|(_, restored)| restored);
        let core = Core::open_after(store, core_options, known_to).map_err(store_error)?;
        let now = options.now;
        let mut mds = Mds {
            fids: Fids::new(options.index, core.epoch()),
            peers: Peers::new(target, core.lineage().starts(), &options),
            core,
            flocks: Flocks::new(options.index),
            options,
            locks: LockSpace::new(),
            opens: Opens::default(),
            unswept: Unswept::default(),
            searches: Searches::default(),
            placement: Placement::default(),
            by_space: BySpace::default(),
            config: ClusterConfig::default(),
            early_config: None,
            known_targets: KnownTargets::default(),
            known_pools: Vec::new(),
            no_create: BTreeSet::new(),
            flows: BTreeMap::new(),
            next_op: 1,
            runnable: VecDeque::new(),
            parked: BTreeSet::new(),
            unheard: Unheard::default(),
            contended: Contended::default(),
            unheard_waiters: unheard::Waiters::default(),
            timers: BTreeSet::new(),
            enqueues: BTreeMap::new(),
            data_work: BTreeMap::new(),
            cancels: CancelQueue::default(),
            grants: Grants::default(),
            cross: Cross::default(),
            streams: Streams::default(),
            is_remote_sync: false,
            strays: Strays::default(),
            adoptions: Adoptions::default(),
            accesses: Accesses::default(),
            fences: Fences::default(),
            noted: Noted::new(holdings),
            stats: Stats { since: now.wall, ..Stats::default() },
            core_out: Vec::new(),
            lock_out: Vec::new(),
            pending_core: VecDeque::new(),
            pending_locks: VecDeque::new(),
        };
        mds.load_given_up(now.time).map_err(|status| mds.open_error(status))?;
        if let Some(restored) = restored.filter(|_| mds.core.is_lossless()) {
            mds.install_left(now, restored);
        }
        mds.begin_note();
        mds.make_root().map_err(|status| mds.open_error(status))?;
        mds.load_targets().map_err(|status| mds.open_error(status))?;
        mds.load_destroys().map_err(|status| mds.open_error(status))?;
        mds.load_strays().map_err(|status| mds.open_error(status))?;
        mds.load_operations().map_err(|status| mds.open_error(status))?;
        mds.load_adopts().map_err(|status| mds.open_error(status))?;
        mds.load_streams().map_err(|status| mds.open_error(status))?;
        mds.begin_taking_back();
        Ok(mds)
    }

    fn open_error(&self, status: Status) -> OpenError {
        let target = self.core.id();
        match status {
            Status::Corrupt => OpenError::Corrupt { target },
            _ => OpenError::Store { target, source: StoreError::CorruptIndex { what: status.text() } },
        }
    }

    fn make_root(&mut self) -> Result<(), Status> {
        if self.options.index != 0 {
            return Ok(());
        }
        let (now, root_owner) = (self.options.now.wall, self.options.root_owner);
        let remote = Remote::default();
        let store = Arc::clone(self.core.store());
        let mut cx = self.cx(&*store, now, &remote);
        if cx.tx.inode(Fid::ROOT)?.is_some() {
            return Ok(());
        }
        let mut attr = crate::op::create::blank_attr(&cx, base::FileType::Directory, 0o755);
        attr.fid = Fid::ROOT;
        (attr.uid, attr.gid) = root_owner;
        attr.link_count = 2;
        let root = Inode::new(attr);
        cx.tx.put_inode(&root);
        let batch = cx.tx.into_batch();
        self.core.apply_internal(batch).map_err(|error| error.status())?;
        Ok(())
    }

    /// The view of an operation of the target's own.
    fn cx<'a>(&'a mut self, store: &'a dyn MetaStore, now: WallTime, remote: &'a Remote) -> Cx<'a> {
        Cx {
            tx: Tx::new(store),
            now,
            version: Version(self.core.next_transno().0),
            client: ClientId::default(),
            mdt_index: self.options.index,
            mdt_count: usize::from(self.known_targets.mdt_count).max(1),
            drained_mdts: self.by_space.drained(),
            opens: &self.opens,
            fids: &mut self.fids,
            placement: &mut self.placement,
            is_recovering: self.core.is_recovering(),
            are_opens_known: (!self.core.is_recovering() || self.core.is_lossless())
                && !self.fences.has_lost(),
            are_sizes_doubtful: self.core.is_recovering() || self.strays.is_pending(),
            is_replay: false,
            is_leaving: false,
            position_names_max: None,
            features: features::ALL,
            met: None,
            remote,
            given: BTreeMap::new(),
            taken: BTreeMap::new(),
            data: Bytes::new(),
            goes_at_once: false,
            parts: Vec::new(),
            outcome: Default::default(),
        }
    }

    pub fn core(&self) -> &Core<M> {
        &self.core
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// For an operator's defaults.
    pub fn placement_mut(&mut self) -> &mut Placement {
        &mut self.placement
    }

    /// How MDTs are chosen for directories.
    pub fn by_space(&self) -> &BySpace {
        &self.by_space
    }

    /// For an operator's choices.
    pub fn by_space_mut(&mut self) -> &mut BySpace {
        &mut self.by_space
    }

    /// Starts to count requests anew, of all kinds.
    pub fn clear_request_counts(&mut self, now: Now) {
        self.core.clear_request_counts(now);
    }

    /// Starts to count anew.
    pub fn clear_stats(&mut self, now: Now) {
        self.stats.clear(now.wall);
    }

    /// Whether every operation over several MDTs is durable before it is answered.
    pub fn is_remote_sync(&self) -> bool {
        self.is_remote_sync
    }

    /// Of operations that begin from now on.
    pub fn set_remote_sync(&mut self, is_on: bool) {
        self.is_remote_sync = is_on;
    }

    /// As `Core::await_word`.
    pub fn await_word(&mut self) {
        self.core.await_word();
    }

    pub fn set_recovery_window(&mut self, window: Duration) {
        self.core.set_recovery_window(window);
    }

    pub fn set_recovery_hard(&mut self, limit: Duration) {
        self.core.set_recovery_hard(limit);
    }

    /// Locks of clients, granted and waiting.
    pub fn lock_count(&self) -> usize {
        self.locks.lock_count()
    }

    /// The lock space, for operators and checkers.
    pub fn locks(&self) -> &LockSpace {
        &self.locks
    }

    pub fn open_count(&self) -> usize {
        self.opens.count()
    }

    /// Nothing is under way: no request, no operation over several MDTs, no object to destroy.
    pub fn is_quiet(&self) -> bool {
        self.flows.is_empty()
            && self.accesses.is_empty()
            && self.data_work.is_empty()
            && self.noted.is_empty()
            && self.cross.is_empty()
            && self.streams.is_empty()
            && self.peers.has_destroyed_all()
            && self.adoptions.is_empty()
    }

    fn new_op(&mut self) -> OpId {
        let op = OpId(self.next_op);
        self.next_op += 1;
        op
    }

    fn input(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Frame(frame) if frame.kind == FrameKind::Request => {
                let client = frame.src.client_id();
                self.locks.heard_from(now.time, client);
                self.core.on_frame(now, frame, &mut self.core_out);
                self.note_heard(now, client, out);
            }
            Input::Frame(frame) => self.on_peer_frame(now, frame, out),
            Input::Config(config) => self.on_config(now, config, out),
            Input::NoCreate { osts, mdts } => self.on_no_create(osts, mdts, out),
            Input::Durable => {
                self.check_note();
                self.core.on_durable(now, &mut self.core_out);
            }
            Input::Tick => self.on_tick(now, out),
            Input::ConnectionLost(target) => self.with_import(now, target, out, Import::on_connection_lost),
            Input::TargetStarted(target, epoch) => self.with_import(now, target, out, |import, now, out| {
                import.on_target_started(now, epoch, out);
            }),
            Input::Evict(client) => self.core.evict(now, client, EvictReason::Operator, &mut self.core_out),
            Input::Departed { client, incarnation } => {
                self.core.on_departed(now, client, incarnation, &mut self.core_out);
                self.note_departed(now, client, incarnation);
            }
            Input::Lapsed { at, life } => self.on_lapsed(now, at, life, out),
            Input::AbortRecovery => self.core.abort_recovery(now, &mut self.core_out),
            Input::Leave => self.on_leave(now, out),
            Input::Word(word) => self.core.on_word(now, word, &mut self.core_out),
        }
    }

    fn on_tick(&mut self, now: Now, out: &mut Vec<Output>) {
        let unheard = self.unheard_of_replays(now);
        self.core.note_unheard(now, unheard, &mut self.core_out);
        self.core.on_tick(now, &mut self.core_out);
        self.locks.on_tick(now.time, &mut self.lock_out);
        self.tick_peers(now, out);
        self.ask_about_prepared(now, out);
        // Before what waits for them.
        self.tick_fences(now, out);
        self.look_for_strays(now, out);
        while let Some(&(due, op)) = self.timers.first() {
            if due > now.time {
                break;
            }
            self.timers.pop_first();
            self.on_flow_timer(now, op, out);
        }
        let is_unfenced = |life: Life| self.fences.is_given_up(life) && !planted(Fault::UnfencedForgotten);
        self.opens.drop_abandoned(now.time, is_unfenced);
        let lingered = self.opens.take_lingered(now.time);
        if !self.core.is_recovering() {
            self.sweep_orphans(now, &lingered, out);
            self.sweep_unswept(now, out);
        }
    }

    /// Works until nothing is left to do.
    fn settle(&mut self, now: Now, out: &mut Vec<Output>) {
        loop {
            self.pending_core.extend(self.core_out.drain(..));
            self.pending_locks.extend(self.lock_out.drain(..));
            if let Some(output) = self.pending_core.pop_front() {
                self.on_core_output(now, output, out);
            } else if let Some(output) = self.pending_locks.pop_front() {
                self.on_lock_output(now, output, out);
            } else if self.end_refused(now, out) {
                continue;
            } else if let Some(op) = self.runnable.pop_front() {
                self.advance(now, op, out);
            } else {
                return;
            }
        }
    }

    fn on_core_output(&mut self, now: Now, output: CoreOutput, out: &mut Vec<Output>) {
        match output {
            CoreOutput::Send(frame) => out.push(Output::Send(frame)),
            CoreOutput::Execute(work) => self.on_work(now, *work, out),
            CoreOutput::Evicted(gone) => self.on_evicted(now, gone, out),
            CoreOutput::Returned(client) => self.on_returned(now, client),
            CoreOutput::RecoveryEnded => {
                self.end_fences_of_recovery(now, out);
                self.opens.drop_unconfirmed();
                self.sweep_all_orphans(now, out);
                self.strays.begin(now.time, &self.known_targets.osts);
                self.execute_late(now, out);
            }
            CoreOutput::Accessed { client, accesses } => self.note_accesses(now, client, accesses, out),
            CoreOutput::Event(event) => {
                self.stats.evictions += u64::from(event.is_eviction());
                out.push(Output::Event(MdsEvent::Core(event)));
            }
        }
    }

    fn on_lock_output(&mut self, now: Now, output: LockOutput, out: &mut Vec<Output>) {
        match output {
            LockOutput::Granted { holder, grant } => {
                if let Some(token) = self.enqueues.remove(&(holder, grant.lock)) {
                    self.reply(now, token, Ok(Reply::Locked(grant)));
                }
            }
            LockOutput::Callback { holder, lock, resource } => {
                self.core.callback(holder, Callback::Blocking { lock, resource }, &mut self.core_out);
            }
            LockOutput::Evict(client) => {
                out.push(Output::Event(MdsEvent::LockTimeout { client }));
                if self.core.is_connected(client) {
                    self.core.evict(now, client, EvictReason::LockTimeout, &mut self.core_out);
                } else {
                    self.drop_locks_of(now, client);
                }
            }
            LockOutput::Ready(op) => self.on_claim_ready(now, op, out),
        }
    }

    fn reply(&mut self, now: Now, token: Token, result: Result<Reply, Status>) {
        self.core.reply(now, token, result.map(|reply| (reply, Bytes::new())), &mut self.core_out);
    }

    /// Everything of a client goes.
    fn on_evicted(&mut self, now: Now, gone: Gone, out: &mut Vec<Output>) {
        let (client, during) = (gone.life.client, gone.during);
        let its = (client, LockId::ZERO)..=(client, LockId(u64::MAX));
        self.enqueues.extract_if(its, |_, _| true).for_each(drop);
        self.forget_noted(client);
        self.drop_flows_of(now, client, out);
        self.drop_rename_locks_of(now, client);
        let its: Vec<OpId> = self
            .data_work
            .iter()
            .filter(|(_, work)| work.token.client == client)
            .map(|(op, _)| *op)
            .collect();
        for op in its {
            self.data_work.remove(&op);
            self.locks.release(now.time, op, &mut self.lock_out);
        }
        self.grants.drop_client(client);
        self.drop_locks_of(now, client);
        let mut granted = Vec::new();
        self.flocks.drop_client(client, &mut granted);
        self.on_flocks_granted(now, granted);
        let Dropped { files, has_written } = self.opens.drop_client(now.time, gone.life);
        self.note_gone(now, &gone, has_written, out);
        if during == During::LosslessRecovery {
            // Others get what it had: a power failure is to find it gone, as soon as can be.
            self.core.store().kick();
        }
        if during.is_recovery() {
            self.note_lost_work(&gone);
        } else {
            self.sweep_orphans(now, &files, out);
        }
    }
}

impl<M: MetaStore> Machine for Mds<M> {
    type Input = Input;
    type Output = Output;

    fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        if self.core.is_outdated() {
            return;
        }
        let caller = match &input {
            Input::Frame(frame) if frame.kind == FrameKind::Request => Some(frame.src.client_id()),
            _ => None,
        };
        self.input(now, input, out);
        if self.core.has_begun()
            && let Some(config) = self.early_config.take()
        {
            self.on_config(now, config, out);
        }
        self.unheard.forget(self.core.durable());
        self.wake_unheard_waiters(caller);
        self.end_durable_cancels(now);
        loop {
            self.settle(now, out);
            self.send_what_is_durable(now, out);
            self.send_unlocks(now, out);
            let is_told = self.peers.has_told_all();
            if is_told && self.runnable.is_empty() && self.core_out.is_empty() && self.lock_out.is_empty() {
                break;
            }
        }
        self.note_held();
    }

    fn next_deadline(&self) -> Option<Time> {
        if self.core.is_outdated() {
            return None;
        }
        let deadlines = [
            self.core.next_deadline(),
            self.locks.next_deadline(),
            self.peers.next_deadline(),
            self.cross.next_deadline(),
            self.streams.next_deadline(),
            self.strays.next_deadline().filter(|_| !self.fences.has_lost()),
            self.fences.next_deadline().filter(|_| self.config.version > 0),
            self.adoptions.next_deadline(),
            self.opens.next_deadline(),
            self.unswept.next_deadline().filter(|_| !self.core.is_recovering()),
            self.timers.first().map(|(due, _)| *due),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn check(&self) {
        self.core.check();
        self.locks.check();
        self.opens.check();
        self.flocks.check();
        self.unheard.check();
        self.fences.check();
        self.check_flows();
    }
}
