//! The target as a machine. Every input ends in the same tail (`settle`): work and lock outputs are carried out until
//! nothing is left, then what became durable lets go what waited for it.

use crate::durability::Durability;
use crate::fetches::{FetchId, Fetches};
use crate::holdings::Noted;
use crate::locks::{Waiting, waiting_of};
use crate::op;
use crate::rows;
use crate::stats::OssStats;
use base::limits::{LEASE, RECOVERY_WINDOW, SYNC_INTERVAL, UNSYNCED_TRANSACTIONS_MAX};
use base::{
    ClientId, Duration, Extent, LockId, Machine, Now, ObjectId, Status, TargetId, TargetKind, Time, Transno,
    WallTime,
};
use bytes::Bytes;
use ldlm::{Claimed, LockOutput, LockSpace, OpId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::holdings::Nothing;
use store::{Batch, Holdings, MetaStore, ObjectStore, StoreError};
use target::{CancelQueue, Core, CoreEvent, CoreOptions, CoreOutput, EvictReason, Grants, Token, Word, Work};
use wire::ost::ObjectAttr;
use wire::{Callback, Frame, Life, LockGrant, OstReply, Reply, Request};

/// A destroyed object is remembered for so long: nobody keeps a file open over its destruction except a client that
/// its MDT has evicted and that does not know it yet.
pub const TOMBSTONE_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Between two looks at all tombstones.
const TOMBSTONE_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Between two parts of a look, behind one in which something was to be forgotten: 10,000 tombstones a second, more than come.
const TOMBSTONE_PART_INTERVAL: Duration = Duration::from_millis(100);
/// And behind one in which nothing was. A look that waited there for something to grow old would go as fast as tombstones do, and never
/// come to those behind it, nor back to those that it has passed.
const TOMBSTONE_PASSED_INTERVAL: Duration = Duration::from_secs(1);
const TOMBSTONES_PER_CHECK: usize = 1000;

#[derive(Clone, Debug)]
pub struct OssOptions {
    pub id: TargetId,
    pub uuid: u128,
    pub fsname: String,
    /// Same number for targets that share one local file system, so that space is counted once.
    pub device: u64,
    pub now: Now,
    pub recovery_window: Duration,
}

impl OssOptions {
    pub fn new(index: u16, uuid: u128, fsname: &str, device: u64, now: Now) -> OssOptions {
        let recovery_window = RECOVERY_WINDOW;
        OssOptions {
            id: TargetId::ost(index),
            uuid,
            fsname: fsname.to_string(),
            device,
            now,
            recovery_window,
        }
    }
}

#[derive(Clone, Debug)]
pub enum Input {
    Frame(Frame),
    /// One of the stores has made more durable.
    Durable,
    /// What was to be fetched has come, or nobody could bring it.
    Fetched(FetchId, Result<(), StoreError>),
    Tick,
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
    /// What is known of this start of the OST.
    Word(Word),
}

#[derive(Clone, Debug)]
pub enum Output {
    Send(Frame),
    /// `ObjectStore::fetch` this, beside everything else, and say `Fetched`.
    Fetch {
        id: FetchId,
        object: ObjectId,
        extent: Extent,
    },
    Event(OssEvent),
}

/// For logs, metrics and checkers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OssEvent {
    Core(CoreEvent),
    /// Damaged bytes were found and refused.
    Corrupt {
        object: ObjectId,
        status: Status,
    },
    /// A client kept others waiting for a lock for too long.
    LockTimeout {
        client: ClientId,
    },
    /// A client claimed locks after a restart that another client holds.
    ReplayedLocksRefused {
        client: ClientId,
        count: usize,
    },
}

/// What handling has put out and nobody has carried out yet.
#[derive(Default)]
pub(crate) struct Effects {
    pub core: Vec<CoreOutput>,
    pub locks: Vec<LockOutput>,
}

/// One object storage target.
pub struct Oss<M: MetaStore, O: ObjectStore> {
    pub(crate) core: Core<M>,
    pub(crate) meta: Arc<M>,
    pub(crate) objects: Arc<O>,
    pub(crate) options: OssOptions,
    pub(crate) locks: LockSpace,
    pub(crate) durability: Durability,
    pub(crate) waiting_enqueues: BTreeMap<(ClientId, LockId), Waiting>,
    waiting_work: BTreeMap<OpId, Work>,
    last_op: OpId,
    pub(crate) cancels: CancelQueue,
    pub(crate) grants: Grants,
    pub(crate) noted: Noted,
    pub(crate) stats: OssStats,
    /// Objects that could not be read when they were listed.
    pub(crate) unreadable: BTreeSet<ObjectId>,
    pub(crate) fetches: Fetches,
    kick_at: Option<Time>,
    /// The last transaction when the object store was asked to sync.
    kicked_to: Transno,
    tombstone_check_at: Time,
    tombstone_cursor: Vec<u8>,
    pub(crate) events: Vec<OssEvent>,
}

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    /// Starts the target on its stores.
    ///
    /// # Errors
    /// Those of the stores.
    pub fn open(meta: Arc<M>, objects: Arc<O>, options: OssOptions) -> Result<Oss<M, O>, StoreError> {
        Oss::open_with(meta, objects, Box::new(Nothing), options)
    }

    /// The same, with what the incarnation before has noted of its clients, where the next one will find what this one notes. Waits
    /// for what it has left to the kernel.
    ///
    /// # Errors
    /// Those of the stores.
    pub fn open_with(
        meta: Arc<M>,
        objects: Arc<O>,
        holdings: Box<dyn Holdings>,
        options: OssOptions,
    ) -> Result<Oss<M, O>, StoreError> {
        assert_eq!(options.id.kind, TargetKind::Ost, "object storage targets have OST ids");
        crate::rows::check_known(&*meta)?;
        let core_options = CoreOptions {
            id: options.id,
            uuid: options.uuid,
            fsname: options.fsname.clone(),
            now: options.now,
            recovery_window: options.recovery_window,
            has_external_data: true,
            owed: target::nothing_owed,
        };
        let mut noted = Noted::new(holdings);
        let restored = noted.take_left(objects.as_ref())?;
        let known_to = restored.as_ref().map(|restored| (restored.left.epoch, restored.left.applied));
        let core = Core::open_after(Arc::clone(&meta), core_options, known_to)?;
        let now = options.now;
        let durability = Durability::new(core.last_transno());
        let kicked_to = core.last_transno();
        let mut oss = Oss {
            core,
            meta,
            objects,
            locks: LockSpace::new(),
            durability,
            waiting_enqueues: BTreeMap::new(),
            waiting_work: BTreeMap::new(),
            last_op: OpId(0),
            cancels: CancelQueue::default(),
            grants: Grants::default(),
            noted,
            stats: OssStats { since: options.now.wall, ..OssStats::default() },
            unreadable: BTreeSet::new(),
            fetches: Fetches::default(),
            kick_at: None,
            kicked_to,
            tombstone_check_at: options.now.time,
            tombstone_cursor: Vec::new(),
            events: Vec::new(),
            options,
        };
        if let Some(restored) = restored.filter(|_| oss.core.is_lossless()) {
            oss.install_left(now, restored);
        }
        oss.begin_note();
        // From now on the store knows that somebody is here (`sync_left`).
        oss.kick_objects();
        Ok(oss)
    }

    pub fn core(&self) -> &Core<M> {
        &self.core
    }

    pub fn locks(&self) -> &LockSpace {
        &self.locks
    }

    /// Clients that are waited for here, in a recovery or by others for their locks, and have not been heard for long: has their lease
    /// ended?
    pub fn unheard(&self, now: Time) -> Vec<Life> {
        self.core.unheard(now, &self.locks.asked_for(now, LEASE))
    }

    /// Whether somebody waits for what a client has to give back, so that `unheard` may have somebody to tell.
    pub fn is_kept_waiting(&self) -> bool {
        self.core.is_recovering() || self.locks.has_called_back()
    }

    pub fn objects(&self) -> &Arc<O> {
        &self.objects
    }

    pub fn stats(&self) -> &OssStats {
        &self.stats
    }

    /// What `statfs` of this target says.
    pub fn statfs(&self) -> wire::mdt::Statfs {
        target::statfs_of(&self.objects.space(), self.options.device)
    }

    /// Bytes that clients may keep back.
    pub fn granted_bytes(&self) -> u64 {
        self.grants.total_bytes()
    }

    /// Starts to count requests anew, of all kinds.
    pub fn clear_request_counts(&mut self, now: Now) {
        self.core.clear_request_counts(now);
    }

    /// Starts to count anew.
    pub fn clear_stats(&mut self, now: Now) {
        self.stats = OssStats { since: now.wall, ..OssStats::default() };
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

    fn settle(&mut self, now: Now, mut effects: Effects, out: &mut Vec<Output>) {
        loop {
            while !effects.core.is_empty() || !effects.locks.is_empty() {
                for output in std::mem::take(&mut effects.core) {
                    self.on_core_output(now, output, &mut effects, out);
                }
                for output in std::mem::take(&mut effects.locks) {
                    self.on_lock_output(now, output, &mut effects);
                }
            }
            self.on_progress(now, &mut effects);
            if effects.core.is_empty() && effects.locks.is_empty() {
                break;
            }
        }
        out.extend(self.events.drain(..).map(Output::Event));
        out.extend(self.fetches.take_begun());
        self.schedule_kick(now);
    }

    fn on_core_output(&mut self, now: Now, output: CoreOutput, effects: &mut Effects, out: &mut Vec<Output>) {
        match output {
            CoreOutput::Send(frame) => out.push(Output::Send(frame)),
            CoreOutput::Execute(work) => self.on_work(now, *work, effects),
            CoreOutput::Evicted(gone) => self.on_evicted(now, gone.life.client, effects),
            CoreOutput::Returned(client) => self.on_returned(now, client, effects),
            CoreOutput::RecoveryEnded => self.on_recovered(),
            // Access times are the MDTs' matter.
            CoreOutput::Accessed { .. } => {}
            CoreOutput::Event(event) => {
                self.stats.eviction_count += u64::from(event.is_eviction());
                self.events.push(OssEvent::Core(event));
            }
        }
    }

    fn on_lock_output(&mut self, now: Now, output: LockOutput, effects: &mut Effects) {
        match output {
            LockOutput::Granted { holder, grant } => self.on_granted(now, holder, grant, effects),
            LockOutput::Callback { holder, lock, resource } => {
                self.stats.callback_count += 1;
                self.core.callback(holder, Callback::Blocking { lock, resource }, &mut effects.core);
            }
            LockOutput::Evict(client) => {
                self.events.push(OssEvent::LockTimeout { client });
                self.core.evict(now, client, EvictReason::LockTimeout, &mut effects.core);
            }
            LockOutput::Ready(op) => {
                if let Some(work) = self.waiting_work.remove(&op) {
                    self.execute(now, work, effects);
                }
                self.locks.release(now.time, op, &mut effects.locks);
            }
        }
    }

    /// Executes a request, now or when nobody is in its way.
    pub(crate) fn on_work(&mut self, now: Now, work: Work, effects: &mut Effects) {
        let needs = match &work.request {
            // Locks come back only after the requests that were made under them.
            Request::Ost(request) if work.token.replay.is_none() => op::needs(work.token.client, request),
            _ => Vec::new(),
        };
        if needs.is_empty() {
            return self.execute(now, work, effects);
        }
        let op = self.new_op();
        match self.locks.claim(now.time, op, Some(work.token.client), needs, &mut effects.locks) {
            Claimed::Ready => {
                self.execute(now, work, effects);
                self.locks.release(now.time, op, &mut effects.locks);
            }
            Claimed::Waiting => drop(self.waiting_work.insert(op, work)),
        }
    }

    pub(crate) fn new_op(&mut self) -> OpId {
        self.last_op = OpId(self.last_op.0 + 1);
        self.last_op
    }

    pub(crate) fn execute(&mut self, now: Now, work: Work, effects: &mut Effects) {
        // At the end of a recovery a fence and what the client has sent behind it may come together.
        if !self.core.has_session(&work.token) {
            return;
        }
        let Work { token, request, data } = work;
        match request {
            Request::Lock(request) => self.on_lock_request(now, token, request, effects),
            Request::Ost(request) => self.on_ost_request(now, token, request, data, effects),
            _ => self.refuse(now, token, Status::NotSupportedCall, effects),
        }
    }

    /// Ends work that changed nothing.
    pub(crate) fn answer(
        &mut self,
        now: Now,
        token: Token,
        reply: Reply,
        data: Bytes,
        effects: &mut Effects,
    ) {
        self.core.reply(now, token, Ok((reply, data)), &mut effects.core);
    }

    pub(crate) fn refuse(&mut self, now: Now, token: Token, status: Status, effects: &mut Effects) {
        self.stats.add_error(status);
        self.core.reply(now, token, Err(status), &mut effects.core);
    }

    /// Ends work that changed objects: its rows and the mutations so far are one transaction.
    pub(crate) fn commit(
        &mut self,
        now: Now,
        token: Token,
        batch: Batch,
        reply: CommitReply,
        effects: &mut Effects,
    ) -> Result<Transno, Status> {
        let result = match reply {
            CommitReply::AtOnce => {
                self.core.commit(now, token, batch, Reply::Done, Bytes::new(), &mut effects.core)
            }
            CommitReply::Written { grant_bytes, attr, lock } => {
                let reply = Reply::Ost(OstReply::Written { grant_bytes, attr, lock });
                self.core.commit(now, token, batch, reply, Bytes::new(), &mut effects.core)
            }
            CommitReply::WhenDurable => {
                self.kick_objects();
                self.core.commit_then_reply_when_durable(now, token, batch, Reply::Done, &mut effects.core)
            }
        };
        match result {
            Ok(transno) => self.on_applied(transno),
            Err(status) => self.stats.add_error(status),
        }
        result
    }

    /// Many small changes begin a sync as many bytes do: their clients keep each of them until then, and stand still at
    /// `REPLAY_REQUESTS_MAX`.
    fn on_applied(&mut self, transno: Transno) {
        self.durability.add(transno, self.objects.written());
        if transno.0.saturating_sub(self.kicked_to.0) >= UNSYNCED_TRANSACTIONS_MAX {
            self.kick_objects();
        }
    }

    pub(crate) fn kick_objects(&mut self) {
        self.kicked_to = self.core.last_transno();
        self.objects.kick();
    }

    /// What is durable now lets go what waited for it.
    fn on_progress(&mut self, now: Now, effects: &mut Effects) {
        let mut is_further = self.durability.advance(self.objects.durable());
        if is_further && self.durability.durable() > self.meta.durable() {
            // Data that many bytes were written of are durable before their rows' turn comes; clients keep them until then.
            self.meta.kick();
        }
        if self.durability.is_idle() {
            is_further |= self.durability.raise(self.core.last_transno());
        }
        if is_further {
            self.core.set_external_durable(self.durability.durable());
            self.core.on_durable(now, &mut effects.core);
        }
        if self.objects.is_poisoned() {
            self.core.fail_held(now, &mut effects.core);
        }
        self.durability.forget_changes(self.core.durable());
        self.cancels.end_durable(now.time, self.core.durable(), &mut self.locks, &mut effects.locks);
    }

    /// Data may stay undurable for `SYNC_INTERVAL` at most. The core sees to the rows.
    fn schedule_kick(&mut self, now: Now) {
        if self.durability.is_idle() {
            self.kick_at = None;
        } else if self.kick_at.is_none() {
            self.kick_at = Some(now.time.after(SYNC_INTERVAL));
        }
    }

    fn on_tick(&mut self, now: Now, effects: &mut Effects) {
        if self.kick_at.is_some_and(|at| at <= now.time) {
            self.kick_at = None;
            self.kick_objects();
            self.meta.kick();
        }
        if self.tombstone_check_at <= now.time {
            let pause = self.forget_old_tombstones(now);
            self.tombstone_check_at = now.time.after(pause);
        }
        let is_spared = |client| self.fetches.is_spared(now.time, client);
        self.locks.on_tick_sparing(now.time, &is_spared, &mut effects.locks);
        self.core.on_tick(now, &mut effects.core);
    }

    /// The calendar as it was at the start and has gone on since: what is done to it meanwhile ends nothing early.
    pub(crate) fn steady_wall(&self, now: Now) -> WallTime {
        let started = self.options.now;
        let passed_ns = i64::try_from(now.time.since(started.time).as_nanos()).unwrap_or(i64::MAX);
        WallTime(started.wall.0.saturating_add(passed_ns))
    }

    /// Looks at some tombstones, from where it stopped the last time; how long until the next ones are looked at. Damaged ones stay.
    fn forget_old_tombstones(&mut self, now: Now) -> Duration {
        let mut batch = Batch::new();
        let mut seen_count = 0;
        let from = std::mem::take(&mut self.tombstone_cursor);
        let mut cursor = Vec::new();
        let wall = self.steady_wall(now);
        let life_ns = i64::try_from(TOMBSTONE_LIFE.as_nanos()).unwrap_or(i64::MAX);
        let mut visit = |key: &[u8], value: &[u8]| {
            seen_count += 1;
            cursor = key.iter().copied().chain([0]).collect();
            let row = rows::decode_tombstone(value);
            if row.is_ok_and(|(row, _)| row.destroyed_at.0.saturating_add(life_ns) < wall.0) {
                batch.delete(rows::TOMBSTONES, key);
            }
            true
        };
        let scanned = self.meta.scan(rows::TOMBSTONES, &from, &[0xff; 32], TOMBSTONES_PER_CHECK, &mut visit);
        let is_end = seen_count < TOMBSTONES_PER_CHECK;
        self.tombstone_cursor = if is_end { Vec::new() } else { cursor };
        // What cannot be forgotten now, for want of space say, is forgotten later.
        let pause = match (is_end, batch.is_empty()) {
            (true, _) => TOMBSTONE_CHECK_INTERVAL,
            (false, true) => TOMBSTONE_PASSED_INTERVAL,
            (false, false) => TOMBSTONE_PART_INTERVAL,
        };
        if scanned.is_ok()
            && !batch.is_empty()
            && let Ok(transno) = self.core.apply_internal(batch)
        {
            self.on_applied(transno);
        }
        pause
    }

    fn on_evicted(&mut self, now: Now, client: ClientId, effects: &mut Effects) {
        for lock in waiting_of(&self.waiting_enqueues, client) {
            self.waiting_enqueues.remove(&(client, lock));
        }
        let abandoned: Vec<OpId> = self
            .waiting_work
            .iter()
            .filter(|(_, work)| work.token.client == client)
            .map(|(op, _)| *op)
            .collect();
        for op in abandoned {
            self.waiting_work.remove(&op);
            self.locks.release(now.time, op, &mut effects.locks);
        }
        self.fetches.drop_client(client);
        self.grants.drop_client(client);
        self.forget_noted(client);
        self.retire_locks(now, client, effects);
        if self.core.is_lossless() {
            // Others get what it had: a power failure is to find it gone, as soon as can be.
            self.meta.kick();
        }
    }
}

/// When the answer of a transaction leaves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CommitReply {
    AtOnce,
    /// At once, with what the client may keep back, the object as it is now, and the lock that was asked for.
    Written {
        grant_bytes: u64,
        attr: Option<ObjectAttr>,
        lock: Option<LockGrant>,
    },
    WhenDurable,
}

impl<M: MetaStore, O: ObjectStore> Machine for Oss<M, O> {
    type Input = Input;
    type Output = Output;

    fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        if self.core.is_outdated() {
            return;
        }
        let mut effects = Effects::default();
        match input {
            Input::Frame(frame) => {
                self.locks.heard_from(now.time, frame.src.client_id());
                self.core.on_frame(now, frame, &mut effects.core);
            }
            Input::Durable => {
                self.check_note();
                self.core.on_durable(now, &mut effects.core);
            }
            Input::Fetched(id, result) => self.on_fetched(now, id, result, &mut effects),
            Input::Tick => self.on_tick(now, &mut effects),
            Input::Evict(client) => self.core.evict(now, client, EvictReason::Operator, &mut effects.core),
            Input::Departed { client, incarnation } => {
                self.core.on_departed(now, client, incarnation, &mut effects.core);
            }
            Input::Lapsed { at, life } => {
                let is_holder = self.locks.asked_for(now.time, LEASE).contains(&life.client);
                self.core.on_lapsed(now, at, life, is_holder, &mut effects.core);
            }
            Input::AbortRecovery => self.core.abort_recovery(now, &mut effects.core),
            Input::Word(word) => self.core.on_word(now, word, &mut effects.core),
        }
        self.settle(now, effects, out);
        self.note_held();
    }

    fn next_deadline(&self) -> Option<Time> {
        if self.core.is_outdated() {
            return None;
        }
        let deadlines = [self.core.next_deadline(), self.locks.next_deadline(), self.kick_at];
        deadlines.into_iter().flatten().chain([self.tombstone_check_at]).min()
    }

    fn check(&self) {
        self.core.check();
        self.locks.check();
        assert!(self.waiting_work.keys().all(|op| self.locks.is_claimed(*op)), "waiting work has a claim");
        let is_known = |(client, lock): &(ClientId, LockId)| self.locks.locks_of(*client).contains(lock);
        assert!(self.waiting_enqueues.keys().all(is_known), "who waits for a lock is in a queue");
    }
}
