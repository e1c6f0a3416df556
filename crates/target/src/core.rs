//! Sessions of one target with its clients.

mod begun;
mod counts;
#[doc(hidden)]
pub mod decoders;
mod held;
pub mod inspect;
mod kept;
mod lineage;
mod manifest;
mod named;
mod once;
mod order;
mod output;
mod queue;
mod recovery;
mod requests;
pub mod restored;
mod roll;
mod rows;
mod session;
mod unheard;

use base::fault::{Fault, planted};
use base::limits;
use base::{ClientId, Duration, Endpoint, Epoch, Now, Start, Status, TargetId, Time, Transno, Xid};
use begun::Begun;
use bytes::Bytes;
use held::HeldFrames;
use lineage::Remembered;
use once::Once;
use recovery::{Awaited, Recovery};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use store::{Batch, MetaStore, StoreError};
use wire::{Callback, Frame, FrameKind, Life, Reply};

pub use counts::RequestCounts;
pub use kept::Kept;
pub use lineage::{Lineage, STARTS_KEPT, Word};
pub use output::{CoreEvent, CoreOutput, During, EvictReason, Gone, Token, Work, nothing_owed};
pub use recovery::{Missing, RecoveryReport};

#[derive(Clone, Debug)]
pub struct CoreOptions {
    pub id: TargetId,
    pub uuid: u128,
    pub fsname: String,
    pub now: Now,
    /// `limits::RECOVERY_WINDOW` unless a test or an operator wants another.
    pub recovery_window: Duration,
    /// The target keeps data outside of its `MetaStore` (an OST): a transaction is committed when the owner says so
    /// too (`set_external_durable`), and replays are executed even if their rows survived.
    pub has_external_data: bool,
    /// What the owner owes when a session ends: rows of its own tables, which are written in the very transaction that ends it. No log
    /// that ends anywhere knows of the one and not of the other. A mere description: nothing acts here.
    pub owed: fn(&Gone, &mut Batch),
}

/// For how long a client whose locks others wait for may be silent before its lease matters. Its word may be lost once, and is said again.
const HOLDER_SILENT_MAX: Duration = limits::LEASE.saturating_add(limits::RESEND_FIRST);
/// So many clients at most are looked at one by one with each check; more take long, and the simulation has thousands.
const ROLL_CHECKED_MAX: usize = 64;
/// A recovery that waits for somebody looks at the time so often, and so knows when it stood still.
const PULSE_INTERVAL: Duration = Duration::from_secs(1);

/// What the target knows of one client.
#[derive(Debug)]
struct Export {
    session: u64,
    /// The serial of the session that the client believed in when this one was made; 0: none, or not known any more.
    replaced: u64,
    incarnation: u64,
    nid: String,
    /// The client has got every reply up to this.
    acked: Xid,
    slots: BTreeMap<u16, Slot>,
    /// Requests that are being executed.
    begun: Begun,
    once: Once,
    last_contact: Time,
    /// A request of this session has come, so the client knows that it has it.
    has_spoken: bool,
    /// What both ends can do (`wire::session::features`); nothing before the client connects to this incarnation.
    features: u64,
    /// Of the newest request.
    has_checked_data: bool,
    /// Present while the target waits for this client's replays.
    awaited: Option<Awaited>,
    /// The connect reply is on its way, or waits for durability.
    is_connect_held: bool,
}

impl Export {
    /// What was executed after `base` may be executed again under its xid.
    fn forget_answers_after(&mut self, base: Transno) {
        for slot in self.slots.values_mut() {
            if matches!(slot.state, SlotState::Done { transno, .. } if transno > base) {
                slot.state = SlotState::Refused;
            }
        }
    }
}

/// Last request of a reply slot.
#[derive(Debug)]
struct Slot {
    xid: Xid,
    state: SlotState,
}

#[derive(Debug)]
enum SlotState {
    InProgress,
    /// Answered with "again", or not for sure executed: the same xid may be executed.
    Refused,
    Done {
        status: Status,
        transno: Transno,
        body: Bytes,
        data: Bytes,
    },
}

/// A reply that leaves when something is durable.
#[derive(Debug)]
enum Held {
    /// Ends a piece of work.
    Work { token: Token, transno: Transno, body: Bytes },
    /// Answers a connect or disconnect: `frame` is without its body.
    Session { client: ClientId, since: Time, frame: Box<Frame>, reply: Box<Reply> },
}

/// Sessions of one target.
///
/// The outputs of a call may contain work; ending that work may put out more. Owners go on until nothing is left.
///
/// Transaction numbers are dense per epoch and never issued twice; a replay gets a new one. What clients hear as
/// committed stays where it was until every replay is durable, so they keep their own numbers until then.
///
/// With `has_external_data` clients hear as committed only what a durable row (the mark) says: then a restart knows
/// exactly what they may have dropped, although the data outside have no log.
pub struct Core<M: MetaStore> {
    store: Arc<M>,
    options: CoreOptions,
    epoch: Epoch,
    /// Last number issued.
    transno: Transno,
    /// What clients are told.
    committed: Transno,
    /// `has_external_data`: how far the owner says that data are durable.
    external_durable: Transno,
    /// `has_external_data`: mark rows on their way to the disk: transno of the row, what it says.
    marks: VecDeque<(Transno, Transno)>,
    /// The last transaction that is more than a mark.
    last_worth_marking: Transno,
    /// The row that raised the epoch; nothing is served before it is durable.
    open_at: Transno,
    is_open: bool,
    remembered: Remembered,
    recovery: Option<Recovery>,
    recovery_hard: Duration,
    last_recovery: RecoveryReport,
    next_serial: u64,
    exports: BTreeMap<ClientId, Export>,
    begun_bytes: begun::Total,
    /// Sessions of this incarnation whose clients have asked for nothing in them, by serial: perhaps nobody will.
    unspoken: BTreeSet<(u64, ClientId)>,
    /// Frames from before `is_open`, and requests from before the end of recovery.
    held_frames: HeldFrames,
    /// Replies by what must be durable: rows only, or everything.
    held_for_rows: BTreeMap<Transno, Vec<Held>>,
    held_for_all: BTreeMap<Transno, Vec<Held>>,
    now: Now,
    kick_at: Option<Time>,
    silent_max: Duration,
    next_silence_check: Time,
    /// The last transaction when the store was asked to sync.
    kicked_to: Transno,
    request_counts: RequestCounts,
}

impl<M: MetaStore> Core<M> {
    /// Tables from here on belong to this module; owners use the ones below.
    pub const FIRST_TABLE: u8 = 200;

    /// Reads what the target knows of its clients and raises its epoch. Frames are held until that is durable.
    ///
    /// # Errors
    /// Those of the store; damaged rows are `CorruptRow`, those of a newer version `UnknownRow`.
    pub fn open(store: Arc<M>, options: CoreOptions) -> Result<Core<M>, StoreError> {
        Core::open_after(store, options, None)
    }

    /// The same; `left`: of which incarnation the owner knows all that its clients held, and up to where that one had answered. If
    /// that was the last one, and its store has all of it, no client has anything to replay (`is_lossless`). With `has_external_data`
    /// the owner says with it that those are all there too, and durable.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_after(
        store: Arc<M>,
        options: CoreOptions,
        left: Option<(Epoch, Transno)>,
    ) -> Result<Core<M>, StoreError> {
        let state = rows::read_state(store.as_ref())?;
        let mark = rows::read_mark(store.as_ref())?;
        let mut exports = rows::read_exports(store.as_ref(), options.now.time)?;
        let applied = store.applied();
        let is_left = |(epoch, answered)| epoch == state.epoch && answered <= applied;
        let is_lossless = left.is_some_and(is_left) && !state.is_recovering;
        let base = match (state.is_recovering, options.has_external_data) {
            (true, _) => state.base,
            (false, true) if exports.is_empty() || is_lossless => applied,
            (false, true) => mark,
            (false, false) => applied,
        };
        if options.has_external_data {
            // The data of what came after the base may be lost although its rows are not: do it again.
            exports.values_mut().for_each(|export| export.forget_answers_after(base));
        }
        let begun_bytes = begun::Total::default();
        exports.values_mut().for_each(|export| export.begun = Begun::counted_in(&begun_bytes));
        let epoch = state.epoch.next();
        let mut batch = Batch::new();
        let this = Start { epoch, at: options.now.wall };
        let is_confirmed = options.id == TargetId::MGT;
        let remembered = Remembered::begin(store.as_ref(), this, base, is_confirmed, &mut batch)?;
        let mut core = Core {
            store,
            epoch,
            transno: Transno::first_of(epoch).max(applied),
            committed: base,
            external_durable: Transno::ZERO,
            marks: VecDeque::new(),
            last_worth_marking: Transno::ZERO,
            open_at: Transno::ZERO,
            is_open: false,
            remembered,
            recovery: None,
            recovery_hard: limits::RECOVERY_HARD,
            last_recovery: RecoveryReport::default(),
            next_serial: state.next_serial,
            unspoken: BTreeSet::new(),
            held_frames: HeldFrames::default(),
            held_for_rows: BTreeMap::new(),
            held_for_all: BTreeMap::new(),
            now: options.now,
            kick_at: None,
            silent_max: limits::SILENT_CLIENT_MAX,
            next_silence_check: options.now.time.after(limits::SILENT_CLIENT_MAX),
            kicked_to: Transno::ZERO,
            request_counts: RequestCounts::since(options.now.wall),
            exports,
            begun_bytes,
            options,
        };
        core.begin_recovery(base, is_lossless);
        rows::put_state(&mut batch, &core.state_row());
        let is_all_there = is_lossless || !core.options.has_external_data;
        rows::put_last_mark(&mut batch, epoch, if is_all_there { applied } else { mark });
        core.open_at = core.apply_internal(batch)?;
        core.external_durable = core.open_at;
        core.kick();
        Ok(core)
    }

    pub fn on_frame(&mut self, now: Now, frame: Frame, out: &mut Vec<CoreOutput>) {
        self.go_on_at(now);
        self.settle(out);
        if self.remembered.is_outdated {
            return;
        }
        let is_for_us = frame.kind == FrameKind::Request && frame.dst == Endpoint::Target(self.options.id);
        if !is_for_us {
            return;
        }
        if self.is_open {
            self.on_request(frame, out);
        } else {
            self.held_frames.push(frame);
        }
        self.settle(out);
    }

    /// Ends modifying work: numbers it, adds the reply slot, applies all rows at once and answers. On an error the
    /// client has got that as its answer, nothing was applied, and the owner installs nothing.
    ///
    /// # Errors
    /// That of the store; `Evicted` when the client is gone.
    pub fn commit(
        &mut self,
        now: Now,
        token: Token,
        batch: Batch,
        reply: Reply,
        data: Bytes,
        out: &mut Vec<CoreOutput>,
    ) -> Result<Transno, Status> {
        self.go_on_at(now);
        let transno = self.apply_work(token, batch, &reply, out)?;
        self.finish(token, Status::Ok, transno, reply.to_bytes(), data, out);
        self.settle(out);
        Ok(transno)
    }

    /// As `commit`, but the answer leaves when the transaction is committed.
    ///
    /// # Errors
    /// As `commit`.
    pub fn commit_then_reply_when_durable(
        &mut self,
        now: Now,
        token: Token,
        batch: Batch,
        reply: Reply,
        out: &mut Vec<CoreOutput>,
    ) -> Result<Transno, Status> {
        self.go_on_at(now);
        let transno = self.apply_work(token, batch, &reply, out)?;
        if token.replay.is_some() {
            // Recovery ends only when it is durable, and the next replay waits for this one.
            self.finish(token, Status::Ok, transno, reply.to_bytes(), Bytes::new(), out);
        } else {
            self.hold((token, transno), transno, &reply);
            self.kick();
        }
        self.settle(out);
        Ok(transno)
    }

    /// A transaction of the target's own, no client's.
    ///
    /// # Errors
    /// Those of the store.
    pub fn apply_internal(&mut self, batch: Batch) -> Result<Transno, StoreError> {
        let transno = self.transno.next();
        self.apply(transno, batch)?;
        self.last_worth_marking = transno;
        Ok(transno)
    }

    /// Ends work that changed nothing.
    pub fn reply(
        &mut self,
        now: Now,
        token: Token,
        result: Result<(Reply, Bytes), Status>,
        out: &mut Vec<CoreOutput>,
    ) {
        self.go_on_at(now);
        match result {
            Ok((reply, data)) => self.finish(token, Status::Ok, Transno::ZERO, reply.to_bytes(), data, out),
            Err(status) => self.finish(token, status, Transno::ZERO, Bytes::new(), Bytes::new(), out),
        }
        self.settle(out);
    }

    /// Ends work that changed nothing, when everything up to `up_to` is durable; kicks the store.
    pub fn reply_when_durable(
        &mut self,
        now: Now,
        token: Token,
        up_to: Transno,
        reply: Reply,
        out: &mut Vec<CoreOutput>,
    ) {
        self.go_on_at(now);
        self.hold((token, Transno::ZERO), up_to, &reply);
        if self.durable() < up_to {
            self.kick();
        }
        self.settle(out);
    }

    /// As `reply_when_durable`, but nobody waits for this: it leaves with the next sync.
    pub fn reply_when_synced(
        &mut self,
        now: Now,
        token: Token,
        up_to: Transno,
        reply: Reply,
        out: &mut Vec<CoreOutput>,
    ) {
        self.go_on_at(now);
        self.hold((token, Transno::ZERO), up_to, &reply);
        self.settle(out);
    }

    /// The answer to work, with the transaction that it was if it changed something, leaves when everything up to `up_to` is durable.
    fn hold(&mut self, (token, transno): (Token, Transno), up_to: Transno, reply: &Reply) {
        let held = Held::Work { token, transno, body: reply.to_bytes() };
        self.held_for_all.entry(up_to).or_default().push(held);
    }

    /// A callback to a client, if it is connected.
    pub fn callback(&self, client: ClientId, callback: Callback, out: &mut Vec<CoreOutput>) {
        let Some(export) = self.exports.get(&client) else { return };
        let mut frame = Frame::new(FrameKind::Callback, Endpoint::Target(self.options.id), client.endpoint());
        frame.session = export.session;
        frame.body = callback.to_bytes();
        out.push(CoreOutput::Send(frame));
    }

    /// The number that the next transaction gets: for versions inside its rows and its reply.
    pub fn next_transno(&self) -> Transno {
        self.transno.next()
    }

    /// The store has made more durable (`Input::Durable` of the owner).
    pub fn on_durable(&mut self, now: Now, out: &mut Vec<CoreOutput>) {
        self.go_on_at(now);
        self.settle(out);
    }

    /// With `has_external_data`: what transactions up to here put elsewhere is durable. Call `on_durable` after it.
    pub fn set_external_durable(&mut self, transno: Transno) {
        assert!(self.options.has_external_data);
        assert!(transno <= self.transno);
        self.external_durable = self.external_durable.max(transno);
    }

    pub fn on_tick(&mut self, now: Now, out: &mut Vec<CoreOutput>) {
        self.go_on_at(now);
        if self.kick_at.is_some_and(|at| at <= now.time) {
            self.kick_unawaited();
            self.kick_at = Some(now.time.after(limits::SYNC_INTERVAL));
        }
        self.evict_silent(out);
        // Who has just said that he is done is not missing.
        self.settle(out);
        if self.is_open {
            self.evict_missing(out);
            self.settle(out);
        }
    }

    /// Something comes. In a recovery that waits for somebody no long time passes without a tick, unless the target stands still.
    fn go_on_at(&mut self, now: Now) {
        let unread = now.time.since(self.now.time);
        if unread >= limits::STANDSTILL_MIN && self.is_somebody_awaited() {
            self.prolong_window(unread);
        }
        self.now = now;
    }

    pub fn next_deadline(&self) -> Option<Time> {
        let window = self.recovery.as_ref().filter(|_| self.is_somebody_awaited());
        let window = window.map(|recovery| recovery.deadline.min(self.now.time.after(PULSE_INTERVAL)));
        let silence = (!self.exports.is_empty()).then_some(self.next_silence_check);
        if self.remembered.is_outdated {
            return None;
        }
        let word = self.remembered.next_deadline(self.now.time);
        [self.kick_at, window, silence, word].into_iter().flatten().min()
    }

    /// Ends a client's session against its will, by a decision (`EvictReason::is_decided`). `CoreOutput::Evicted` follows.
    pub fn evict(&mut self, now: Now, client: ClientId, why: EvictReason, out: &mut Vec<CoreOutput>) {
        assert!(why.is_decided());
        self.go_on_at(now);
        self.drop_client(client, why, out);
        self.settle(out);
    }

    /// The process of this incarnation of a client has ended: nothing can come of it any more, so it is not waited for. A later
    /// incarnation is not concerned.
    pub fn on_departed(&mut self, now: Now, client: ClientId, incarnation: u64, out: &mut Vec<CoreOutput>) {
        self.go_on_at(now);
        let is_meant = |export: &Export| export.incarnation <= incarnation;
        if self.exports.get(&client).is_some_and(is_meant) {
            self.give_up(client, EvictReason::Departed, out);
        }
        self.settle(out);
    }

    /// Clients that are waited for and have not been heard for longer than a lease lasts: if theirs has ended too, they are gone. A
    /// recovery waits for those who have not come; after it the owner says whom others wait for (`holders`).
    /// (Other targets have no lease. They come back.)
    pub fn unheard(&self, now: Time, holders: &BTreeSet<ClientId>) -> Vec<Life> {
        let is_unheard = |(client, export): &(&ClientId, &Export)| {
            self.is_unheard(**client, export, now, holders.contains(*client))
        };
        let unheard = self.exports.iter().filter(is_unheard);
        unheard.map(|(client, export)| Life { client: *client, incarnation: export.incarnation }).collect()
    }

    fn is_unheard(&self, client: ClientId, export: &Export, now: Time, is_holder: bool) -> bool {
        let patience = match &export.awaited {
            Some(awaited) => awaited.patience(),
            None => (is_holder && self.is_serving()).then_some(HOLDER_SILENT_MAX),
        };
        let is_mount = matches!(client.endpoint(), Endpoint::Client(_));
        is_mount && patience.is_some_and(|patience| now.since(export.last_contact) >= patience)
    }

    /// The management server, asked at `at`, has found that this client has no lease. It is not waited for any longer, if it
    /// had not been heard then for as long, nor was since; `is_holder`: others wait for its locks.
    pub fn on_lapsed(&mut self, now: Now, at: Time, life: Life, is_holder: bool, out: &mut Vec<CoreOutput>) {
        self.go_on_at(now);
        if self.is_lapsed(at, life, is_holder) {
            self.give_up(life.client, EvictReason::Lapsed, out);
        }
        self.settle(out);
    }

    /// Whether `on_lapsed` would give it up.
    pub fn is_lapsed(&self, at: Time, life: Life, is_holder: bool) -> bool {
        let export = self.exports.get(&life.client);
        export.is_some_and(|export| {
            export.incarnation <= life.incarnation && self.is_unheard(life.client, export, at, is_holder)
        })
    }

    /// Another target has given up this incarnation of a client: nothing that it sends is to be executed here any more.
    pub fn fence(&mut self, now: Now, life: Life, out: &mut Vec<CoreOutput>) {
        self.go_on_at(now);
        if self.exports.get(&life.client).is_some_and(|export| export.incarnation <= life.incarnation) {
            self.drop_client(life.client, EvictReason::Fenced, out);
        }
        self.settle(out);
    }

    /// Sessions of which nothing is heard for so long end, where `SILENT_CLIENT_MAX` is too long.
    pub fn set_silent_max(&mut self, silent_max: Duration) {
        self.silent_max = silent_max;
        self.next_silence_check = self.now.time.after(silent_max);
    }

    /// Who is not listened to is not silent: sessions end for silence only after a whole time from now on.
    pub fn put_off_silence(&mut self, now: Now) {
        self.next_silence_check = now.time.after(self.silent_max);
    }

    /// Requests that were begun, by kind.
    pub fn request_counts(&self) -> &RequestCounts {
        &self.request_counts
    }

    /// Starts to count requests anew.
    pub fn clear_request_counts(&mut self, now: Now) {
        self.request_counts = RequestCounts::since(now.wall);
    }

    /// Whoever comes is listened to: that it has begun is durable, and no word about it is waited for.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// True from `open` until `RecoveryEnded`.
    pub fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    /// The recovery under way is of a target that has lost nothing but the locks and handles of its clients, and knows those too: the
    /// process of the incarnation before had died, and nothing else. So nothing is replayed, and who has come does not wait for others.
    pub fn is_lossless(&self) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery.is_lossless)
    }

    /// New requests are served: after a recovery, or in a lossless one.
    pub fn is_serving(&self) -> bool {
        self.recovery.as_ref().is_none_or(|recovery| recovery.is_serving)
    }

    /// What clients are told: everything up to here survives any crash. Stays below the replays during recovery.
    pub fn last_committed(&self) -> Transno {
        self.committed
    }

    /// With `has_external_data`: whether it is known of a transaction of this incarnation or an earlier one that it was durable,
    /// with what it put elsewhere. One that was not has perhaps left its rows and nothing else.
    ///
    /// # Errors
    /// Those of the store.
    pub fn was_durable(&self, transno: Transno) -> Result<bool, StoreError> {
        let known = if transno.epoch() == self.epoch {
            self.committed
        } else {
            rows::read_last_mark(self.store.as_ref(), transno.epoch())?
        };
        Ok(transno <= known)
    }

    /// Of what an incarnation has executed (this one or an earlier one), everything up to here is there still, if nobody has changed it since.
    /// What the store does not say is lost.
    pub(crate) fn survived(&self, of: Epoch) -> Transno {
        match of.cmp(&self.epoch) {
            Ordering::Less => rows::read_last_mark(self.store.as_ref(), of).unwrap_or_default(),
            Ordering::Equal => self.transno,
            // Whatever is asked for, there was none.
            Ordering::Greater => Transno::ZERO,
        }
    }

    /// Everything up to here is durable, whatever clients are told.
    pub fn durable(&self) -> Transno {
        let rows = self.store.durable();
        if self.options.has_external_data { rows.min(self.external_durable) } else { rows }
    }

    /// The last transaction that was applied.
    pub fn last_transno(&self) -> Transno {
        self.transno
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn id(&self) -> TargetId {
        self.options.id
    }

    pub fn options(&self) -> &CoreOptions {
        &self.options
    }

    pub fn store(&self) -> &Arc<M> {
        &self.store
    }

    /// Clients with a session, and what operators call them.
    pub fn clients(&self) -> impl Iterator<Item = (ClientId, &str)> {
        self.exports.iter().map(|(client, export)| (*client, export.nid.as_str()))
    }

    /// Also true for a client whose return is awaited.
    pub fn is_connected(&self, client: ClientId) -> bool {
        self.exports.contains_key(&client)
    }

    /// Whether the session that this work came in is still there. (Work that was handed out may lie behind what ends it.)
    pub fn has_session(&self, work: &Token) -> bool {
        self.exports.get(&work.client).is_some_and(|export| export.session == work.session)
    }

    /// Whether the caller is known to have the answer to this work. Of one that is gone nothing is known.
    pub fn is_heard(&self, work: &Token) -> bool {
        let export = self.exports.get(&work.client).filter(|export| export.session == work.session);
        let Some(export) = export else { return false };
        let is_reused = || export.slots.get(&work.slot).is_some_and(|slot| slot.xid > work.xid);
        work.xid <= export.acked || is_reused()
    }

    /// Whether callers have waited for longer than this for the disk, or for the end of a recovery, before they could say anything.
    pub fn is_slow_to_listen(&self, now: Time, patience: Duration) -> bool {
        let is_old =
            |held: &Held| matches!(held, Held::Session { since, .. } if now.since(*since) > patience);
        // Their rows are numbered in the order in which they came.
        let first = self.held_for_rows.values().flatten().next();
        self.recovery.is_some() || first.is_some_and(is_old)
    }

    /// Which incarnation of a client has a session.
    pub fn incarnation_of(&self, client: ClientId) -> Option<u64> {
        self.exports.get(&client).map(|export| export.incarnation)
    }

    /// Whether this incarnation of a client has a session, and knows it: it has asked for something in it.
    pub fn has_spoken(&self, life: Life) -> bool {
        let export = self.exports.get(&life.client);
        export.is_some_and(|export| export.incarnation == life.incarnation && export.has_spoken)
    }

    /// What this client and this target can both do (`wire::session::features`).
    pub fn features_of(&self, client: ClientId) -> u64 {
        self.exports.get(&client).map_or(0, |export| export.features)
    }

    /// When a frame of this client came last.
    pub fn last_contact(&self, client: ClientId) -> Option<Time> {
        self.exports.get(&client).map(|export| export.last_contact)
    }

    /// Asserts the invariants.
    pub fn check(&self) {
        assert_eq!(self.transno, self.store.applied());
        assert!(self.committed <= self.transno);
        assert!(self.recovery.is_some() || self.exports.values().all(|export| export.awaited.is_none()));
        assert!(self.unspoken.len() <= limits::UNSPOKEN_SESSIONS_MAX);
        assert!(self.unspoken.len() <= self.exports.len());
        if cfg!(debug_assertions) && self.exports.len() <= ROLL_CHECKED_MAX {
            self.check_roll();
        }
        if self.recovery.is_none() && !planted(Fault::CommitReportedEarly) {
            assert!(self.committed <= self.durable().max(self.open_at));
        }
    }

    fn apply(&mut self, transno: Transno, mut batch: Batch) -> Result<(), StoreError> {
        if self.options.has_external_data {
            let mark = self.mark_to_write();
            rows::put_mark(&mut batch, mark);
            self.store.apply(transno, &batch)?;
            self.marks.push_back((transno, mark));
        } else {
            self.store.apply(transno, &batch)?;
        }
        self.transno = transno;
        if self.kick_at.is_none() {
            self.kick_at = Some(self.now.time.after(limits::SYNC_INTERVAL));
        }
        if transno.0.saturating_sub(self.kicked_to.0) >= limits::UNSYNCED_TRANSACTIONS_MAX {
            self.kick_unawaited();
        }
        Ok(())
    }

    /// Applies the rows of a client's work with its reply slot.
    fn apply_work(
        &mut self,
        token: Token,
        mut batch: Batch,
        reply: &Reply,
        out: &mut Vec<CoreOutput>,
    ) -> Result<Transno, Status> {
        if self.exports.get(&token.client).is_none_or(|export| export.session != token.session) {
            return Err(Status::Evicted);
        }
        let transno = self.transno.next();
        // Whoever gave this request up may have used its slot again, and asks for that answer after a restart.
        let is_reused = || {
            let export = self.exports.get(&token.client);
            export.and_then(|export| export.slots.get(&token.slot)).is_some_and(|slot| slot.xid > token.xid)
        };
        if token.slot != Frame::NO_SLOT && !is_reused() {
            rows::put_slot(&mut batch, token, transno, reply);
        }
        if let Err(error) = self.apply(transno, batch) {
            let status = error.status();
            self.finish(token, status, Transno::ZERO, Bytes::new(), Bytes::new(), out);
            self.settle(out);
            return Err(status);
        }
        self.last_worth_marking = transno;
        let (client, xid, replay) = (token.client, token.xid, token.replay);
        out.push(CoreOutput::Event(CoreEvent::Executed { client, xid, transno, replay }));
        Ok(transno)
    }

    /// The fixed tail of every input: what became durable, and what follows from it.
    fn settle(&mut self, out: &mut Vec<CoreOutput>) {
        if self.remembered.is_outdated {
            return;
        }
        if !self.is_open {
            if self.remembered.awaits_word(self.now.time) || !self.has_begun() {
                return;
            }
            self.is_open = true;
            self.begin_window();
            self.announce_recovery(out);
            for frame in self.held_frames.take() {
                self.on_request(frame, out);
            }
        }
        self.settle_recovery(out);
        self.settle_committed();
        self.send_held(out);
        if self.store.durable() >= self.transno {
            self.kick_at = None;
        }
    }

    /// Raises what clients are told to what is durable.
    fn settle_committed(&mut self) {
        if self.recovery.is_some() && !self.is_lossless() {
            return;
        }
        if planted(Fault::CommitReportedEarly) {
            self.committed = self.transno;
            return;
        }
        if !self.options.has_external_data {
            self.committed = self.committed.max(self.store.durable());
            return;
        }
        let rows = self.store.durable();
        while let Some((at, mark)) = self.marks.front().copied()
            && at <= rows
        {
            self.marks.pop_front();
            self.committed = self.committed.max(mark);
        }
        let wanted = self.durable().min(self.last_worth_marking);
        let on_the_way = self.marks.back().map_or(self.committed, |(_, mark)| *mark);
        if wanted > on_the_way.max(self.committed) {
            // A failed store takes no mark: clients keep what they have, which is right.
            if self.apply(self.transno.next(), Batch::new()).is_ok() {
                self.kick();
            }
        }
    }

    fn mark_to_write(&self) -> Transno {
        let is_held = |recovery: &Recovery| !recovery.is_lossless && recovery.end_at.is_none();
        if self.recovery.as_ref().is_some_and(is_held) {
            self.committed
        } else {
            self.committed.max(self.durable())
        }
    }

    fn send_held(&mut self, out: &mut Vec<CoreOutput>) {
        let (rows, all) = (self.store.durable(), self.durable());
        let for_rows = take_up_to(&mut self.held_for_rows, rows);
        let for_all = take_up_to(&mut self.held_for_all, all);
        for held in for_rows.into_values().chain(for_all.into_values()).flatten() {
            match held {
                Held::Work { token, transno, body } => {
                    self.finish(token, Status::Ok, transno, body, Bytes::new(), out);
                }
                Held::Session { client, since: _, mut frame, mut reply } => {
                    if let Some(export) = self.exports.get_mut(&client) {
                        export.is_connect_held = false;
                    }
                    if let Reply::Connected(reply) = &mut *reply {
                        // The client takes it for the time of the moment.
                        reply.server_time_ns = self.now.wall.0;
                    }
                    frame.body = reply.to_bytes();
                    frame.last_committed = self.committed;
                    out.push(CoreOutput::Send(*frame));
                }
            }
        }
        let is_waiting = !self.held_for_rows.is_empty() || !self.held_for_all.is_empty();
        if is_waiting && self.store.pressure().poisoned {
            return self.refuse_held(out);
        }
        if is_waiting && self.kick_at.is_none() {
            self.kick_at = Some(self.now.time.after(limits::SYNC_INTERVAL));
        }
    }

    /// Nothing more will ever be durable here: whoever waits for it is told.
    pub fn fail_held(&mut self, now: Now, out: &mut Vec<CoreOutput>) {
        self.go_on_at(now);
        self.refuse_held(out);
    }

    fn refuse_held(&mut self, out: &mut Vec<CoreOutput>) {
        let for_rows = std::mem::take(&mut self.held_for_rows);
        let for_all = std::mem::take(&mut self.held_for_all);
        for held in for_rows.into_values().chain(for_all.into_values()).flatten() {
            match held {
                Held::Work { token, .. } => {
                    self.finish(token, Status::Io, Transno::ZERO, Bytes::new(), Bytes::new(), out);
                }
                // It goes on asking, for the time after.
                Held::Session { client, .. } => {
                    if let Some(export) = self.exports.get_mut(&client) {
                        export.is_connect_held = false;
                    }
                }
            }
        }
    }

    /// Somebody waits until what was applied is durable.
    fn kick(&mut self) {
        self.store.kick();
        self.note_kicked();
    }

    /// Not too much stays undurable for too long.
    fn kick_unawaited(&mut self) {
        self.store.kick_unawaited();
        self.note_kicked();
    }

    fn note_kicked(&mut self) {
        self.kicked_to = self.transno;
    }
}

/// What waits for no more than this. Mostly, and with each input, that is nothing.
fn take_up_to(held: &mut BTreeMap<Transno, Vec<Held>>, durable: Transno) -> BTreeMap<Transno, Vec<Held>> {
    if held.first_key_value().is_none_or(|(first, _)| *first > durable) {
        return BTreeMap::new();
    }
    let later = held.split_off(&durable.next());
    std::mem::replace(held, later)
}
