//! Taking extent locks, and giving locks of all kinds back in the order that keeps kernels coherent.
//!
//! A lock goes back only when the kernel does not answer from it any more (hazards 3.1 to 3.4). Every revocation is a
//! task of its own; nothing that serves a call waits for one, but an open for writing that has read locks given back.

use crate::cache::{ANSWER_LIFE, ATTR_BITS, may_kernel_believe};
use crate::children_locks::ChildrenLock;
use crate::closes::close_waiting;
use crate::ctx::{Ctx, First, Outcome, Race, join_all};
use crate::dirty::{write_out_file, write_out_unasked};
use crate::executor::{Receiver, Sender, oneshot};
use crate::machine::{Notify, NotifyResult};
use crate::names::Name;
use crate::nodes::Node;
use crate::ops::dir::WHOLE_RETRY_INTERVAL;
use crate::ops::open::Obstacle;
use crate::pages::{PageCallId, PageSet, drop_pages, pages_of};
use crate::state::State;
use base::fault::{Fault, planted};
use base::layout::Stripe;
use base::{Duration, Extent, Fid, FileType, Layout, LockId, ObjectId, Status, TargetId, TargetKind, Time};
use bytes::Bytes;
use ldlm::CallbackAnswer;
use rpc::Kind;
use wire::lock::bits;
use wire::session::features;
use wire::{LockGrant, LockMode, LockPolicy, LockRequest, OstReply, OstRequest, Reply, Request, Resource};

/// Of a longer range of pages, in stripes, the other stripes' pages are dropped too.
const OWN_UNIT_COUNT_MAX: u64 = 256;
/// A directory that the kernel keeps locked for so long is not waited for: all names are dropped at once.
const ENTRY_PATIENCE: Duration = Duration::from_millis(100);
/// The same once a call has come for which the kernel may have locked it: most are answered at once. One that waits for another mount may
/// wait for one there that waits for this name.
const HELD_PATIENCE: Duration = Duration::from_millis(1);
/// How often a kernel is told to forget an inode that it does not know yet. Few answers take so long from us to their
/// process.
const TELLING_INTERVAL: Duration = Duration::from_millis(1);
/// The kernel is told to believe the name of a directory only when so long no lock on it has gone back: so it has to be dropped seldom. What others do
/// regularly has other periods, most likely.
const NAME_QUIET: Duration = Duration::from_secs(37);
/// Children of a directory that the kernel is told to forget together.
const CHILDREN_AT_ONCE: usize = 64;

/// A lock on its way back.
#[derive(Default)]
pub(crate) struct Revocation {
    idle_waiter: Option<Sender<()>>,
    /// Dropped, and so woken, when the lock is gone.
    parked: Vec<Sender<()>>,
}

/// A pinned extent lock of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) target: TargetId,
    pub(crate) lock: LockId,
}

/// What an operation needs a lock for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockUse {
    /// For a call that has pages of the kernel.
    Pages(PageCallId),
    /// For data that pass by the kernel's pages.
    NoPages,
    /// For what was stored into pages that live under the lock, or what they wait for: on its way back it still serves, and
    /// goes only afterwards.
    WriteBack,
}

/// What an operation does about an extent that it needs.
enum Step {
    Have(Pin),
    Wait(Receiver<()>),
    Ask,
}

impl State {
    /// Begins to give a lock back, unless that has begun already.
    pub(crate) fn start_revocation(&mut self, target: TargetId, lock: LockId) {
        if let Some(revocation) = self.revocations.get_mut(&(target, lock)) {
            revocation.idle_waiter.take();
            return;
        }
        self.revocations.insert((target, lock), Revocation::default());
        self.to_revoke.push((target, lock));
    }

    /// No lock of a target is held any more, nor in use: whoever waits for the end of that looks again. Nobody else would tell him, as
    /// what is not known here is not unpinned either.
    pub(crate) fn wake_revocations(&mut self, target: TargetId) {
        for (_, revocation) in self.revocations.iter_mut().filter(|((of, _), _)| *of == target) {
            revocation.idle_waiter.take();
        }
    }

    pub(crate) fn on_blocking(&mut self, target: TargetId, lock: LockId) {
        self.hurry_cancel(target, lock);
        let Some(connection) = self.connections.get_mut(&target) else { return };
        if let Some(Resource::Object(object)) = connection.locks.get(lock).map(|grant| grant.resource) {
            self.lately_shared.note(object.fid, self.now.time);
        }
        match connection.locks.on_callback(lock) {
            CallbackAnswer::Idle | CallbackAnswer::InUse => self.start_revocation(target, lock),
            CallbackAnswer::Dying => {}
            CallbackAnswer::Unknown => {
                let is_expected = connection.expected_locks.contains(&lock);
                if !is_expected {
                    // Given back already, and the cancel was lost with a session: say it again.
                    self.send_cancel(target, vec![lock]);
                }
            }
        }
    }

    /// Whether the target has not evicted this client since.
    pub(crate) fn is_known(&self, pin: Pin) -> bool {
        self.connections.get(&pin.target).is_some_and(|connection| connection.locks.get(pin.lock).is_some())
    }

    pub(crate) fn unpin(&mut self, pin: Pin) {
        let now = self.now.time;
        let Some(connection) = self.connections.get_mut(&pin.target) else { return };
        if connection.locks.unpin(now, pin.lock) {
            self.start_revocation(pin.target, pin.lock);
        }
    }

    /// One try to get a lock that covers `extent` of an object.
    fn try_extent(
        &mut self,
        target: TargetId,
        object: ObjectId,
        mode: LockMode,
        extent: Extent,
        lock_use: LockUse,
    ) -> Outcome<Step> {
        let (resource, policy) = (Resource::Object(object), LockPolicy::Extent(extent));
        let connection = self.connections.get_mut(&target).ok_or(Status::NoDevice)?;
        if let Some(lock) = connection.locks.find_and_pin(resource, mode, policy) {
            return Ok(Step::Have(Pin { target, lock }));
        }
        if lock_use == LockUse::WriteBack
            && let Some(lock) = connection.locks.find_even_dying(resource, mode, policy)
        {
            connection.locks.pin(lock);
            return Ok(Step::Have(Pin { target, lock }));
        }
        if let Some(waiters) = self.enqueues.get_mut(&(object, mode)) {
            let (sender, receiver) = oneshot();
            waiters.push(sender);
            return Ok(Step::Wait(receiver));
        }
        self.enqueues.insert((object, mode), Vec::new());
        Ok(Step::Ask)
    }
}

/// Gets a lock that covers `extent` of an object, from the cache or from its OST.
pub(crate) async fn lock_extent(
    ctx: &Ctx,
    target: TargetId,
    object: ObjectId,
    mode: LockMode,
    extent: Extent,
    lock_use: LockUse,
) -> Outcome<Pin> {
    lock_and_read(ctx, (target, object), mode, extent, lock_use, None).await.map(|(pin, _)| pin)
}

/// What came with a lock.
pub(crate) struct Early {
    /// What of the object was read.
    pub(crate) extent: Extent,
    /// Fewer at the end of the object.
    pub(crate) bytes: Bytes,
    /// `FileData::changed_at` when they were asked for.
    pub(crate) data_changed_at: u64,
}

impl Early {
    /// What it has of an extent within `self.extent`.
    pub(crate) fn part(&self, extent: Extent) -> Bytes {
        let there = self.bytes.len() as u64;
        let place = |offset: u64| offset.saturating_sub(self.extent.start).min(there) as usize;
        self.bytes.slice(place(extent.start)..place(extent.end))
    }
}

/// The same. Where the OST has to be asked it sends what is in `read` with the lock, as far as the lock reaches, if nothing of this
/// client was or came in the way of that.
pub(crate) async fn lock_and_read(
    ctx: &Ctx,
    (target, object): (TargetId, ObjectId),
    mode: LockMode,
    extent: Extent,
    lock_use: LockUse,
    mut read: Option<Extent>,
) -> Outcome<(Pin, Option<Early>)> {
    loop {
        let (step, early) = ctx.with(|state| {
            let early = read.filter(|_| state.may_read_with_lock(target, object));
            let step = state.try_extent(target, object, mode, extent, lock_use);
            if let (LockUse::Pages(call), Ok(Step::Wait(_) | Step::Ask)) = (lock_use, &step) {
                state.page_call_waits(call);
            }
            (step, early)
        });
        match step? {
            Step::Have(pin) => return Ok((pin, None)),
            Step::Wait(receiver) => {
                receiver.await;
            }
            Step::Ask => match enqueue(ctx, (target, object), mode, extent, (early, true)).await {
                // It was sent anew to an OST that is older than the one before.
                Err(Status::NotSupported) if early.is_some() => read = None,
                result => return result,
            },
        }
    }
}

/// A lock for reading on the whole of an object, if nobody is in the way of it.
pub(crate) async fn try_lock_whole(ctx: &Ctx, target: TargetId, object: ObjectId) -> Outcome<Pin> {
    let (mode, whole) = (LockMode::Pr, Extent::WHOLE);
    match ctx.with(|state| state.try_extent(target, object, mode, whole, LockUse::NoPages))? {
        Step::Have(pin) => Ok(pin),
        Step::Wait(_) => Err(Status::WouldBlock),
        Step::Ask => enqueue(ctx, (target, object), mode, whole, (None, false)).await.map(|(pin, _)| pin),
    }
}

async fn enqueue(
    ctx: &Ctx,
    (target, object): (TargetId, ObjectId),
    mode: LockMode,
    extent: Extent,
    (read, can_wait): (Option<Extent>, bool),
) -> Outcome<(Pin, Option<Early>)> {
    let asked = pages_of(extent);
    let (lock, before) =
        ctx.with(|state| (state.expect_lock(target), state.what_early_bytes_need(target, object)));
    let lock = lock.ok_or(Status::NoDevice)?;
    let request = match read {
        Some(extent) => Request::Ost(OstRequest::LockAndRead { object, extent, lock, mode, asked }),
        None => Request::Lock(LockRequest::Enqueue {
            lock,
            resource: Resource::Object(object),
            mode,
            policy: LockPolicy::Extent(asked),
            can_wait,
        }),
    };
    let result = ctx.request(target, request, Bytes::new(), Kind::Plain).await;
    ctx.with(|state| {
        let (grant, bytes, refusal) = match result.map(|answer| (answer.reply, answer.data)) {
            Ok((Reply::Locked(grant), _)) => (Some(grant), None, Status::ProtocolError),
            Ok((Reply::Ost(OstReply::LockedData { lock, .. }), bytes)) => {
                (Some(lock), Some(bytes), Status::ProtocolError)
            }
            Ok(_) => (None, None, Status::ProtocolError),
            Err(status) => (None, None, status),
        };
        if read.is_some()
            && grant.is_none()
            && matches!(refusal, Status::Io | Status::Corrupt | Status::Moved)
        {
            // It is locked, and cannot be read.
            state.send_cancel(target, vec![lock]);
        }
        let granted = grant.as_ref().map(|grant| grant.policy);
        let pin = state.end_asking(Pin { target, lock }, (object, mode), grant).ok_or(refusal)?;
        let early = match (read, bytes, granted) {
            (Some(read), Some(bytes), Some(LockPolicy::Extent(granted))) => {
                let extent = read.intersection(granted);
                let is_possible = extent.contains(asked.intersection(read)) && !extent.is_empty();
                let data_changed_at = state.data_changed_at(object.fid);
                data_changed_at.filter(|_| is_possible).map(|data_changed_at| Early {
                    extent,
                    bytes,
                    data_changed_at,
                })
            }
            _ => None,
        };
        let is_good = |early: &Early| {
            early.bytes.len() as u64 <= early.extent.byte_count()
                && before.is_some()
                && state.what_early_bytes_need(target, object) == before
        };
        Ok((pin, early.filter(is_good)))
    })
}

impl State {
    /// What must not have changed when bytes come that were read before this client knew that it has their lock; `None` when they are not
    /// believed at all. Who changes data of the file, and has the kernel drop its pages, goes around those of a call that waits for a lock, and so
    /// does an eviction or the end of a lease.
    fn what_early_bytes_need(&self, target: TargetId, object: ObjectId) -> Option<(u64, u64)> {
        let connection = self.connections.get(&target)?;
        let changed_at = self.data_changed_at(object.fid)?;
        (!self.lease_left(target).is_zero()).then_some((changed_at, connection.eviction_count))
    }
}

impl State {
    /// A lock that is to be asked for.
    fn expect_lock(&mut self, target: TargetId) -> Option<LockId> {
        let connection = self.connections.get_mut(&target)?;
        let lock = connection.locks.allocate();
        connection.expected_locks.insert(lock);
        Some(lock)
    }

    /// A lock that comes with the first write to an object: nothing of the object is locked here, on its way back, or asked for.
    /// Others who need the like wait until `end_asking`.
    pub(crate) fn begin_asking_with_write(&mut self, target: TargetId, object: ObjectId) -> Option<Pin> {
        let resource = Resource::Object(object);
        let has_none = self.connections.get(&target)?.locks.on_resource(resource).is_empty();
        if !has_none || self.enqueues.contains_key(&(object, LockMode::Pw)) {
            return None;
        }
        let lock = self.expect_lock(target)?;
        self.enqueues.insert((object, LockMode::Pw), Vec::new());
        Some(Pin { target, lock })
    }

    /// Whether what is read with a lock that it has to be asked for may be believed as what is read afterwards: nothing of the object is
    /// here or on its way, which would have to be sent first, or be met as a whole.
    pub(crate) fn may_read_with_lock(&self, target: TargetId, object: ObjectId) -> bool {
        let Some(connection) = self.connections.get(&target) else { return false };
        let is_understood = connection.import.features() & features::READ_WITH_LOCK != 0;
        target.kind == TargetKind::Ost
            && is_understood
            && connection.locks.on_resource(Resource::Object(object)).is_empty()
            && !self.enqueues.contains_key(&(object, LockMode::Pw))
            && !self.dirty.has_some_of(object.fid)
    }

    /// What came of asking for a lock; it is pinned.
    pub(crate) fn end_asking(
        &mut self,
        asked: Pin,
        (object, mode): (ObjectId, LockMode),
        grant: Option<LockGrant>,
    ) -> Option<Pin> {
        let now = self.now.time;
        // Dropping the waiters wakes them; they look again.
        self.enqueues.remove(&(object, mode));
        let connection = self.connections.get_mut(&asked.target)?;
        connection.expected_locks.remove(&asked.lock);
        let Some(grant) = grant.filter(|grant| is_grant_for(grant, asked.lock, object)) else {
            connection.locks.forget_request(asked.lock);
            return None;
        };
        if !connection.locks.insert(now, grant) {
            connection.locks.pin(asked.lock);
        }
        if connection.locks.is_dying(asked.lock) {
            // Called back before it came: it serves this operation, and goes.
            self.start_revocation(asked.target, asked.lock);
        }
        Some(asked)
    }
}

fn is_grant_for(grant: &LockGrant, lock: LockId, object: ObjectId) -> bool {
    grant.lock == lock
        && grant.resource == Resource::Object(object)
        && matches!(grant.policy, LockPolicy::Extent(_))
}

/// Gives a lock back: first the kernel, then whoever uses it, then the target.
pub(crate) async fn revoke(ctx: Ctx, target: TargetId, lock: LockId) {
    let grant = ctx.with(|state| Some(state.connections.get(&target)?.locks.get(lock)?.clone()));
    let is_asked = ctx.with(|state| !state.is_revoked_unasked(target, lock));
    if let Some(grant) = grant.as_ref().filter(|_| !planted(Fault::CancelBeforeFlush)) {
        match grant.resource {
            Resource::Name { parent, hash } => revoke_slot(&ctx, parent, hash, is_asked).await,
            Resource::Inode(fid) if grant.policy == LockPolicy::Bits(bits::CHILDREN) => {
                revoke_children(&ctx, fid, lock, is_asked).await;
            }
            Resource::Inode(fid) if grant.policy == LockPolicy::Bits(bits::WRITE_BACK) => {
                ctx.with(|state| state.dirty.look_for_room_again());
                // With a handle that the MDT does not know, what is here is from before an eviction, and no lock holds others off. It is
                // sent after an open, which would wait for whoever wants this lock.
                let obstacle = ctx.with(|state| state.obstacle_to_write(fid));
                let has_open = !matches!(obstacle, Some(Obstacle::LostHandle(_)));
                if has_open && !planted(Fault::KeptBackTooLong) {
                    write_out_file(&ctx, fid).await;
                }
            }
            Resource::Inode(fid) => {
                invalidate_inode(&ctx, fid).await;
                close_waiting(&ctx, target, fid).await;
            }
            Resource::Object(object) => revoke_extent(&ctx, target, lock, object, grant.policy).await,
            Resource::Rename => {}
        }
    }
    wait_until_idle(&ctx, target, lock).await;
    ctx.with(|state| {
        let is_held = state
            .connections
            .get_mut(&target)
            .is_some_and(|connection| connection.locks.remove(lock).is_some());
        if let Some(Resource::Object(object)) = grant.as_ref().map(|grant| grant.resource) {
            state.ahead.forget_object(object);
            state.forget_opened(object.fid);
        }
        if is_held {
            state.cancel(target, lock);
        } else {
            state.forget_cancel(target, lock);
        }
        // Wakes what was parked.
        state.revocations.remove(&(target, lock));
    });
}

/// The kernel forgets the names of one slot.
async fn revoke_slot(ctx: &Ctx, parent: Fid, hash: u64, is_asked: bool) {
    let names = ctx.with(|state| state.names.take_slot(parent, hash));
    for name in names {
        let may_keep = ctx.with(|state| state.expire_name(&name, is_asked));
        if let Some(may_keep) = may_keep {
            invalidate_name(ctx, parent, name.name.to_vec(), may_keep).await;
        }
    }
}

/// The kernel forgets what it was told under the lock on a directory's children: the names first, as for one of them.
async fn revoke_children(ctx: &Ctx, parent: Fid, lock: LockId, is_asked: bool) {
    let (names, fids) = ctx.with(|state| {
        let now = state.now.time;
        if let Some(node) = state.nodes.by_fid_mut(parent) {
            // Somebody changes it: each of his changes would wait for the lock.
            node.directory.is_listed_whole_from = now.after(WHOLE_RETRY_INTERVAL);
            node.directory.is_listed_in_parts_from = now.after(WHOLE_RETRY_INTERVAL);
            node.directory.whole = None;
        }
        state.nodes.listings.forget(parent);
        let told = state.forget_listed_names(parent, lock, is_asked);
        let fids = state.nodes.end_children_lock(ChildrenLock { parent, lock });
        // A lock of its own still covers some.
        let fids: Vec<Fid> = fids.into_iter().filter(|fid| !state.has_bits(*fid, bits::SELF)).collect();
        (told, fids)
    });
    let forgotten = forget_names(ctx, parent, &names).await;
    forget_children(ctx, parent, &fids, forgotten).await;
}

/// The kernel forgets names of one directory. `None`: there are none.
async fn forget_names(ctx: &Ctx, parent: Fid, names: &[ToldName]) -> Option<Forgotten> {
    let mut forgotten = None;
    for some in names.chunks(CHILDREN_AT_ONCE) {
        match forgotten {
            // They would run out of patience too, or are not believed any more either.
            Some(Forgotten::All | Forgotten::Held) => forget_later(ctx, parent, some),
            Some(Forgotten::One) | None => forgotten = Some(invalidate_names(ctx, parent, some).await),
        }
    }
    forgotten
}

/// The kernel forgets inodes that were listed in a directory, of whose names it has forgotten those that it was told with them (`None`: of none).
async fn forget_children(ctx: &Ctx, parent: Fid, fids: &[Fid], mut forgotten: Option<Forgotten>) {
    for some in fids.chunks(CHILDREN_AT_ONCE) {
        let Children { attrs, name, others, told_since } =
            ctx.with(|state| state.forget_told_in(parent, some));
        if !matches!(forgotten, Some(Forgotten::One | Forgotten::All))
            && let Some(name) = name
        {
            // Nothing has waited for the directory yet, and so for a reply that just introduces one of them.
            forgotten = Some(invalidate_names(ctx, parent, &[name]).await);
        }
        if !attrs.is_empty() {
            ctx.notify(Notify::several(attrs.into_iter().map(attr_notice).collect())).await;
        }
        let forgotten = forgotten.unwrap_or(Forgotten::One);
        let others = others.into_iter().map(|(fid, told)| (fid, told, forgotten));
        // What waited for the directory before did not wait for the replies that told of these.
        let told_since = told_since.into_iter().map(|(fid, told)| (fid, told, Forgotten::One));
        let all = others.chain(told_since);
        join_all(all.map(|(fid, told, forgotten)| forget_inode(ctx, fid, told, forgotten)).collect()).await;
    }
}

/// What the kernel was told of children of a directory under the lock on all of them.
#[derive(Default)]
struct Children {
    /// Nodes of which it believes the attributes, and no name any more.
    attrs: Vec<u64>,
    /// A name, in the directory, of one of which it believes the attributes.
    name: Option<ToldName>,
    others: Vec<(Fid, Told)>,
    /// Those that it was told of under other locks since.
    told_since: Vec<(Fid, Told)>,
}

impl State {
    /// Names that were true under a children's lock only; returns those that the kernel may answer from, and whether it may keep them.
    fn forget_listed_names(&mut self, parent: Fid, lock: LockId, is_asked: bool) -> Vec<ToldName> {
        let mut told = Vec::new();
        for name in self.names.take_listed(parent, lock) {
            if self.has_name_lock(parent, &name.name) {
                continue;
            }
            self.names.remove(parent, &name.name);
            if let Some(may_keep) = self.expire_name(&name, is_asked) {
                told.push(ToldName { name: name.name.to_vec(), may_keep });
            }
        }
        told
    }

    /// A name is believed no more. If the kernel may answer from it: whether it may keep it. When others asked for its lock, it is not to
    /// believe the name of a directory for a while.
    fn expire_name(&mut self, name: &Name, is_asked: bool) -> Option<bool> {
        let now = self.now.time;
        let is_told = may_kernel_believe(name.kernel_until, now);
        let node = name.fid().and_then(|fid| self.nodes.by_fid_mut(fid));
        let is_directory =
            |node: &&mut Node| node.attr().is_some_and(|attr| attr.file_type == FileType::Directory);
        let Some(node) = node.filter(is_directory) else { return is_told.then_some(false) };
        if is_asked && (is_told || node.directory.expired_at != Time::ZERO) {
            node.directory.expired_at = now;
        }
        // The kernel keeps it, and looks it up before it believes it again, if what told it to believe it is so old: an answer on its way to a
        // process that looks it up again holds nothing, and would have the name believed once more. Such a name it drops, and with it
        // what is mounted there.
        is_told.then_some(node.directory.named_at.after(ANSWER_LIFE) <= now)
    }

    /// Whether the kernel is not to believe the name of a directory for now.
    pub(crate) fn is_restless(&self, fid: Fid) -> bool {
        let expired_at = self.nodes.by_fid(fid).map(|node| node.directory.expired_at);
        expired_at.is_some_and(|at| at != Time::ZERO && at.after(NAME_QUIET) > self.now.time)
    }
}

/// A name that the kernel may answer from.
struct ToldName {
    name: Vec<u8>,
    /// It may stay there, to be looked up before it is believed again.
    may_keep: bool,
}

/// How the kernel has forgotten names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forgotten {
    /// Each by itself, with the directory's lock.
    One,
    /// With all others, as a call holds the directory.
    Held,
    /// With all others, as it kept the directory for too long.
    All,
}

/// The kernel forgets one name: by itself when no unanswered call can hold the directory's lock, with all others
/// otherwise (hazard 3.1). Calls on the directory that are unanswered now will be answered without lifetimes.
async fn invalidate_name(ctx: &Ctx, parent: Fid, name: Vec<u8>, may_keep: bool) -> Forgotten {
    invalidate_names(ctx, parent, &[ToldName { name, may_keep }]).await
}

/// The same of several of one directory.
async fn invalidate_names(ctx: &Ctx, parent: Fid, names: &[ToldName]) -> Forgotten {
    let (node, has_inc_epoch, is_held) = ctx.with(|state| {
        let node = state.nodes.whole_of(parent).inode_number();
        (node, state.options.has_inc_epoch, state.held.contains_key(&node))
    });
    if !has_inc_epoch {
        // Such a kernel was never given a lifetime for a name.
        return Forgotten::One;
    }
    if is_held {
        ctx.notify(Notify::IncEpoch).await;
        forget_later(ctx, parent, names);
        return Forgotten::Held;
    }
    let of_name = |told: &ToldName| match told.may_keep {
        true => Notify::ExpireEntry { parent: node, name: told.name.clone() },
        false => Notify::InvalEntry { parent: node, name: told.name.clone() },
    };
    let dropped = ctx.notify(Notify::several(names.iter().map(of_name).collect()));
    let patience = Box::pin(patience_with(ctx, node));
    let outcome = Race(dropped, patience).await;
    ctx.with(|state| state.forget_who_gave_up(node));
    if let First::Left(_) = outcome {
        return Forgotten::One;
    }
    ctx.notify(Notify::IncEpoch).await;
    Forgotten::All
}

impl State {
    /// The kernel has dropped a name in this directory: whoever waited for that waits for no call any more.
    fn forget_who_gave_up(&mut self, node: u64) {
        if let Some(waiting) = self.until_held.get_mut(&node) {
            waiting.retain(|sender| !sender.is_abandoned());
            if waiting.is_empty() {
                self.until_held.remove(&node);
            }
        }
    }
}

/// For as long as a name is waited for in a directory that nobody held.
async fn patience_with(ctx: &Ctx, node: u64) {
    let (sender, held) = oneshot();
    ctx.with(|state| state.until_held.entry(node).or_default().push(sender));
    let outcome = Race(held, ctx.sleep(ENTRY_PATIENCE)).await;
    if let First::Left(_) = outcome {
        ctx.sleep(HELD_PATIENCE).await;
    }
}

/// What the kernel was told of an inode.
struct Told {
    names: Vec<(Fid, Vec<u8>)>,
    /// Those of them that it may still answer from. It knows an owner by each, also where it was told to ask for the attributes.
    believed: Vec<(Fid, Vec<u8>)>,
    /// It may do so from one that had no room among the names.
    is_other_believed: bool,
    is_attr_believed: bool,
    is_directory: bool,
}

impl State {
    /// Nothing that is known of an inode is to be relied on any more. What the kernel was told of it.
    fn forget_told(&mut self, fid: Fid) -> Option<Told> {
        let now = self.now.time;
        let node = self.nodes.by_fid_mut(fid)?;
        node.forget_xattrs();
        node.doubt_kernel_acl();
        let is_attr_believed = may_kernel_believe(node.kernel_attr_until, now);
        node.kernel_attr_until = Time::ZERO;
        let is_other_believed = may_kernel_believe(node.changes.unnamed_until, now);
        if is_other_believed {
            node.changes.unnamed_until = Time::ZERO;
        }
        let is_directory = node.attr().is_some_and(|attr| attr.file_type == FileType::Directory);
        let names: Vec<_> = node.names.iter().map(|(parent, name)| (parent, name.to_vec())).collect();
        let is_believed = |(parent, name): &&(Fid, Vec<u8>)| {
            let known = self.names.get(*parent, name);
            known.is_some_and(|known| may_kernel_believe(known.kernel_until, now))
        };
        let believed = names.iter().filter(is_believed).cloned().collect();
        Some(Told { names, believed, is_other_believed, is_attr_believed, is_directory })
    }

    /// The same of children of a directory. What the kernel believed of its names under the lock on all of them, it has forgotten; of what is left
    /// here only a name that it still believes is to go.
    fn forget_told_in(&mut self, parent: Fid, fids: &[Fid]) -> Children {
        let mut children = Children::default();
        for fid in fids {
            // Looked up meanwhile, and told under a lock of its own, in a reply that may be on its way.
            let is_told_since = self.is_covered(*fid, ATTR_BITS);
            let believed_until =
                self.nodes.by_fid(*fid).map(|node| (node.kernel_attr_until, node.changes.unnamed_until));
            let Some(mut told) = self.forget_told(*fid) else { continue };
            if is_told_since {
                self.believe_until(*fid, believed_until);
            } else {
                let own = told.names.iter().rfind(|(of, _)| *of == parent);
                if told.is_attr_believed && children.name.is_none() {
                    let told_name = |(_, name): &(Fid, Vec<u8>)| ToldName {
                        name: name.clone(),
                        may_keep: told.is_directory,
                    };
                    children.name = own.map(told_name);
                }
                let believed = &told.believed;
                told.names.retain(|known| known.0 != parent || believed.contains(known));
            }
            // Where names have no lifetime each may have to be told again (`forget_attr`).
            let is_alone = !self.options.has_inc_epoch || told.is_other_believed || told.is_directory;
            if is_told_since {
                children.told_since.push((*fid, told));
            } else if is_alone || !told.names.is_empty() {
                children.others.push((*fid, told));
            } else if told.is_attr_believed {
                children.attrs.push(fid.inode_number());
            }
        }
        children
    }

    /// When the lock goes under which the kernel was told that, it has to be told again, whatever it is told before.
    fn believe_until(&mut self, fid: Fid, until: Option<(Time, Time)>) {
        if let Some((attr_until, unnamed_until)) = until
            && let Some(node) = self.nodes.by_fid_mut(fid)
        {
            node.kernel_attr_until = attr_until;
            if node.changes.unnamed_until != unnamed_until {
                node.changes.unnamed_until = unnamed_until;
            }
        }
    }
}

/// For an answer that introduces names after the epoch has changed: when the directory is free.
fn forget_later(ctx: &Ctx, parent: Fid, names: &[ToldName]) {
    let parent = ctx.with(|state| state.nodes.whole_of(parent).inode_number());
    let of_name = |told: &ToldName| Notify::InvalEntry { parent, name: told.name.clone() };
    drop(ctx.notify(Notify::several(names.iter().map(of_name).collect())));
}

/// The kernel forgets the attributes of an inode: its names first, which waits for a reply that just introduces it, then
/// the inode (hazard 3.2). It also judges a chmod or chown by the owner that it knows, without asking; only a lookup
/// brings a new one.
///
/// The names of a directory go only when the kernel does not know the inode: processes whose working directory it is
/// would lose their path. Otherwise they are looked up before they are believed again.
///
/// Those of a file go also where it asks for the attributes anyway. The inode is left alone then: each notification about one makes
/// what the kernel takes for its size uncertain (`kernel_size`), and a file that is written would never have a certain one.
pub(crate) async fn invalidate_inode(ctx: &Ctx, fid: Fid) {
    let fid = ctx.with(|state| state.nodes.whole_of(fid));
    if let Some(told) = ctx.with(|state| state.forget_told(fid)) {
        forget_inode(ctx, fid, told, Forgotten::One).await;
    }
}

/// The same, where names may have been forgotten already.
async fn forget_inode(ctx: &Ctx, fid: Fid, told: Told, forgotten: Forgotten) {
    if told.is_other_believed && forgotten != Forgotten::All {
        ctx.notify(Notify::IncEpoch).await;
    }
    if !told.is_attr_believed && !told.is_directory {
        let names = if forgotten == Forgotten::All { Vec::new() } else { told.believed };
        for (parent, name) in names {
            invalidate_name(ctx, parent, name, false).await;
        }
        return;
    }
    if !told.is_attr_believed && told.believed.is_empty() {
        return;
    }
    if forgotten == Forgotten::All {
        ctx.notify(attr_notice(fid.inode_number())).await;
        return;
    }
    if told.is_directory && ctx.notify(attr_notice(fid.inode_number())).await != Some(NotifyResult::NoEntry) {
        for (parent, name) in told.believed {
            invalidate_name(ctx, parent, name, true).await;
        }
        return;
    }
    for (parent, name) in told.names {
        invalidate_name(ctx, parent, name, false).await;
    }
    forget_attr(ctx, fid).await;
}

fn attr_notice(node: u64) -> Notify {
    Notify::InvalInode { node, offset_bytes: -1, byte_count: 0 }
}

/// A name that goes waits for whoever takes in an answer that introduces the inode. Where names have no lifetime none
/// does: such an answer may be on its way when the kernel says that it does not know the inode, and have it believe the
/// attributes by then. So it is told again.
async fn forget_attr(ctx: &Ctx, fid: Fid) {
    let until = ctx.with(|state| state.now.time.after(ANSWER_LIFE));
    while ctx.notify(attr_notice(fid.inode_number())).await == Some(NotifyResult::NoEntry) {
        let may_come = ctx.with(|state| {
            let is_referred_to = state.nodes.by_fid(fid).is_some_and(|node| node.lookup_count > 0);
            !state.options.has_inc_epoch && is_referred_to && state.now.time < until
        });
        if !may_come {
            return;
        }
        ctx.sleep(TELLING_INTERVAL).await;
    }
}

/// The kernel has no part in what a call has changed of an inode: it asks for the attributes again.
pub(crate) async fn forget_kernel_attr(ctx: &Ctx, fid: Fid) {
    let told = ctx.with(|state| {
        let (fid, now) = (state.nodes.whole_of(fid), state.now.time);
        let node = state.nodes.by_fid_mut(fid)?;
        let until = std::mem::replace(&mut node.kernel_attr_until, base::Time::ZERO);
        may_kernel_believe(until, now).then(|| fid.inode_number())
    });
    if let Some(node) = told {
        ctx.notify(Notify::InvalInode { node, offset_bytes: -1, byte_count: 0 }).await;
    }
}

/// Operations that still use the lock end by themselves.
async fn wait_until_idle(ctx: &Ctx, target: TargetId, lock: LockId) {
    loop {
        let waiting = ctx.with(|state| {
            if state.is_idle(target, lock) {
                return None;
            }
            let (sender, receiver) = oneshot();
            state.revocations.entry((target, lock)).or_default().idle_waiter = Some(sender);
            Some(receiver)
        });
        match waiting {
            Some(receiver) => receiver.await,
            None => return,
        };
    }
}

/// The kernel forgets the pages that an extent lock covers (hazard 3.4). Nobody puts pages there under this lock who has
/// not pinned it already.
async fn revoke_extent(ctx: &Ctx, target: TargetId, lock: LockId, object: ObjectId, policy: LockPolicy) {
    let LockPolicy::Extent(extent) = policy else { return };
    let node = object.fid.inode_number();
    write_out_unasked(ctx, object);
    loop {
        let (is_last, pages) = ctx.with(|state| {
            let layout = state.nodes.get(node).and_then(|node| node.layout());
            let stripe = layout.and_then(|layout| layout.stripe(layout.stripe_of(object)?));
            let file = stripe.map_or(Extent::WHOLE, |stripe| stripe.file_range(extent));
            let pages = state.pages_within(node, pages_of(file));
            let pages = match stripe {
                Some(stripe) => own_pages(&stripe, pages),
                None => pages,
            };
            (state.is_idle(target, lock), pages)
        });
        drop_pages(ctx, node, pages).await;
        if is_last {
            return;
        }
        wait_until_idle(ctx, target, lock).await;
    }
}

/// Of these pages those that lie in one stripe; of very long ranges all.
fn own_pages(stripe: &Stripe, pages: PageSet) -> PageSet {
    let unit = stripe.unit_bytes;
    if stripe.stripe_count <= 1 {
        return pages;
    }
    let mut own = PageSet::default();
    for part in pages.within(Extent::WHOLE) {
        if part.byte_count() / unit > OWN_UNIT_COUNT_MAX {
            own.insert(part);
            continue;
        }
        for index in part.start / unit..=(part.end - 1) / unit {
            if stripe.has_unit(index) {
                own.insert(Extent::at(index * unit, unit).intersection(part));
            }
        }
    }
    own
}

/// Before the first handle writes through the page cache, pages under read locks are dropped: stores into them would
/// not be seen (hazard 3.5).
pub(crate) async fn drop_read_locked_pages(ctx: &Ctx, fid: Fid, layout: &Layout) {
    let waiting = ctx.with(|state| {
        let has_pages = !state.pages_within(fid.inode_number(), Extent::WHOLE).is_empty();
        let stripes = if has_pages { layout.stripes() } else { 0..0 };
        let mut waiting = Vec::new();
        for stripe in stripes.filter_map(|stripe| layout.stripe(stripe)) {
            let Some(target) = stripe.target() else { continue };
            for lock in state.give_up_read_locks(target, stripe.object) {
                state.start_revocation(target, lock);
                let (sender, receiver) = oneshot();
                if let Some(revocation) = state.revocations.get_mut(&(target, lock)) {
                    revocation.parked.push(sender);
                }
                waiting.push(receiver);
            }
        }
        waiting
    });
    for receiver in waiting {
        receiver.await;
    }
}

impl State {
    fn is_idle(&self, target: TargetId, lock: LockId) -> bool {
        self.connections.get(&target).is_none_or(|connection| connection.locks.pin_count(lock) == 0)
    }

    /// Marks the read locks on an object as dying; returns them.
    fn give_up_read_locks(&mut self, target: TargetId, object: ObjectId) -> Vec<LockId> {
        let Some(connection) = self.connections.get_mut(&target) else { return Vec::new() };
        let mut locks = connection.locks.on_resource(Resource::Object(object)).to_vec();
        locks.retain(|lock| connection.locks.get(*lock).is_some_and(|grant| grant.mode != LockMode::Pw));
        for lock in &locks {
            // It is on its way already, or is now.
            let _ = connection.locks.on_callback(*lock);
        }
        locks
    }
}
