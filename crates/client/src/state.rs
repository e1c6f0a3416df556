//! The state that all operations share.

use crate::accesses::Waiting;
use crate::ahead::Ahead;
use crate::call::{Caller, TargetProbe};
use crate::cancels::Cancels;
use crate::closes::Closes;
use crate::ctx::Outcome;
use crate::dirty::{DIRTY_BYTES_MAX, Dirty};
use crate::executor::Sender;
use crate::handles::{ClosingHandle, Handle};
use crate::in_hand::Hands;
use crate::interrupts::{GivesUp, Signals};
use crate::lately_shared::LatelyShared;
use crate::leases::Lease;
use crate::listed::Listed;
use crate::listing_budget::ListingBudget;
use crate::lock_owners::LockOwners;
use crate::locks::Revocation;
use crate::long_xattrs::LongXattrs;
use crate::machine::{ClientOptions, Event, NotifyId, NotifyResult, Output};
use crate::names::Names;
use crate::nodes::Nodes;
use crate::operator::{Bulk, IdleLockBounds, SyncRule};
use crate::ops::append::Appends;
use crate::ops::cut::PassingWrites;
use crate::ops::root::Root;
use crate::pages::{PageCallId, PageTraffic};
use crate::push::Pushes;
use crate::reports;
use crate::stats::{Stats, TargetStats};
use crate::telling::Telling;
use crate::unlinks::Unlinks;
use crate::untold::Untold;
use crate::whole::Passages;
use base::{
    ClusterConfig, Duration, Fid, LockId, Now, ObjectId, OpenHandle, Status, TargetId, TargetKind, Time,
    Transno,
};
use bytes::Bytes;
use ldlm::LockCache;
use rpc::{
    History, Import, ImportOptions, ImportOutput, ImportState, InFlightBounds, Kind, Ticket, TimeoutBounds,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use wire::mdt::OpenArgs;
use wire::{LockMode, LockPolicy, LockRequest, MdtRequest, OstRequest, Request, Resource};

/// A request on its way.
pub(crate) struct Pending {
    pub(crate) kind: &'static str,
    pub(crate) sent: Time,
    pub(crate) sender: Sender<Outcome<rpc::Answer>>,
}

/// The session with one target and what hangs on it.
pub(crate) struct Connection {
    pub(crate) import: Import,
    pub(crate) locks: LockCache,
    pub(crate) tickets: BTreeMap<Ticket, Pending>,
    /// Extent locks that were asked for; a callback for one of them waits for the grant.
    pub(crate) expected_locks: BTreeSet<LockId>,
    /// As far as the session has said so: it may know more already, of a later incarnation of the target.
    pub(crate) committed: Transno,
    pub(crate) commit_waiters: BTreeMap<Transno, Vec<Sender<Outcome<()>>>>,
    /// As the configuration has it.
    pub(crate) is_active: bool,
    /// As an operator of this mount has it.
    pub(crate) is_switched_off: bool,
    /// An operator wants nothing new on it.
    pub(crate) is_drained: bool,
    /// How often this client was evicted; tells operations that what they started before is gone.
    pub(crate) eviction_count: u64,
    /// The number of the last one among those by all targets.
    pub(crate) last_eviction: u64,
    /// The last change that this client knows to have made there, and the last one before that eviction.
    pub(crate) last_change: Transno,
    pub(crate) last_change_before_eviction: Transno,
    /// The kernel was told to forget what depends on this target, as the lease has run out.
    pub(crate) is_lease_lost: bool,
    /// Of an MDT: what was kept back for its files was sent, as it was not heard for long.
    pub(crate) is_late_to_keep: bool,
    pub(crate) has_been_active: bool,
    pub(crate) history: History,
    pub(crate) idle_locks: IdleLockBounds,
    /// Bytes that writes may leave here for it; zero: none is answered before the OST has it.
    pub(crate) dirty_bytes_max: u64,
    /// The same, as the OST has it.
    pub(crate) grant_bytes: u64,
    /// When idle locks were last given back unasked.
    pub(crate) trimmed_at: Time,
    /// What the target last said of its space.
    pub(crate) known_space: Option<wire::mdt::Statfs>,
    /// A question for it has been given up while it was on its way, and still is.
    pub(crate) is_space_late: bool,
    pub(crate) stats: TargetStats,
}

/// A call that was not answered yet.
pub(crate) struct CallState {
    pub(crate) name: &'static str,
    pub(crate) started: Time,
    /// Nodes whose directory locks the kernel may hold for it.
    pub(crate) holds: Vec<u64>,
    /// A waiting advisory lock: where to give it up.
    pub(crate) waits_for_flock: Option<(Fid, u64, bool)>,
    pub(crate) is_interrupted: bool,
    /// While a target does not answer.
    pub(crate) gives_up: GivesUp,
    /// The kernel, which knows all groups of the caller, has looked whether it may do that.
    pub(crate) is_judged: bool,
    /// The group that it names.
    pub(crate) named_gid: Option<u32>,
    /// The number of the last eviction before it.
    pub(crate) last_eviction: u64,
    pub(crate) caller: Caller,
    pub(crate) is_answered: bool,
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct State {
    pub(crate) options: ClientOptions,
    pub(crate) sync_rule: SyncRule,
    pub(crate) now: Now,
    pub(crate) out: Vec<Output>,
    pub(crate) spawned: Vec<Task>,
    pub(crate) import_outputs: VecDeque<(TargetId, ImportOutput)>,
    pub(crate) config: Option<ClusterConfig>,
    pub(crate) config_waiters: Vec<Sender<()>>,
    pub(crate) connections: BTreeMap<TargetId, Connection>,
    /// How often any of them has evicted this client.
    pub(crate) last_eviction: u64,
    /// Of all of them.
    pub(crate) timeouts: TimeoutBounds,
    pub(crate) nodes: Nodes,
    pub(crate) root: Root,
    pub(crate) names: Names,
    /// Rises when data of a file begin or end to change.
    pub(crate) data_change_count: u64,
    /// Rises when a reply describes an inode that is not known here, so that an older listing is not believed of it.
    pub(crate) unseen_count: u64,
    /// Nodes that were listed and that nothing refers to yet, the oldest first.
    pub(crate) listed: Listed,
    pub(crate) long_xattrs: LongXattrs,
    pub(crate) handles: BTreeMap<u64, Handle>,
    pub(crate) untold: Untold,
    /// Of advisory locks that were taken through them.
    pub(crate) lock_owners: LockOwners,
    /// What those of directories keep.
    pub(crate) listing_budget: ListingBudget,
    pub(crate) last_handle: u64,
    /// Handles that were released and whose close has not been answered, by node.
    pub(crate) closing: BTreeMap<u64, u32>,
    /// All of them.
    pub(crate) closing_count: u32,
    /// Files that are measured for their MDTs.
    pub(crate) settling_count: u32,
    pub(crate) closing_handles: BTreeMap<u64, ClosingHandle>,
    /// Those for writing, open or being closed, that are lost; an eviction may have been long ago, and every write looks here.
    pub(crate) lost_writers: BTreeSet<u64>,
    pub(crate) closing_waiters: Vec<Sender<()>>,
    /// Opens whose answers tell of an earlier incarnation of their MDT, until it knows them.
    pub(crate) reopening: BTreeMap<OpenHandle, (Fid, OpenArgs)>,
    /// Restarted targets that want to know what this client has there.
    pub(crate) to_replay: BTreeSet<TargetId>,
    /// MDTs that were not heard for so long that they may have given up this client: nothing is written to their files.
    pub(crate) silent_mdts: BTreeSet<u16>,
    /// When room on a target was last waited for in vain.
    pub(crate) full_since: BTreeMap<TargetId, Time>,
    /// A call has asked the MDTs to make removals durable.
    pub(crate) is_making_room: bool,
    pub(crate) lease: Lease,
    /// Who waits for one of them.
    pub(crate) silence_waiters: Vec<Sender<()>>,
    pub(crate) calls: BTreeMap<u64, CallState>,
    /// Unanswered calls for which the kernel may hold a directory, by node.
    pub(crate) held: BTreeMap<u64, u32>,
    /// Who waits for the kernel to drop a name in a directory that no such call was about; woken when one comes.
    pub(crate) until_held: BTreeMap<u64, Vec<Sender<()>>>,
    pub(crate) group_waiters: BTreeMap<u64, Sender<Option<Vec<u32>>>>,
    pub(crate) signal_waiters: BTreeMap<u64, Sender<Signals>>,
    pub(crate) notify_waiters: BTreeMap<NotifyId, Sender<NotifyResult>>,
    pub(crate) last_notify: u64,
    /// Notifications about inodes that are not done.
    pub(crate) telling: Telling,
    pub(crate) timers: BTreeMap<(Time, u64), Sender<()>>,
    pub(crate) last_timer: u64,
    pub(crate) revocations: BTreeMap<(TargetId, LockId), Revocation>,
    /// Revocations to begin in the tail.
    pub(crate) to_revoke: Vec<(TargetId, LockId)>,
    /// What no OST has yet.
    pub(crate) dirty: Dirty,
    /// Who moves data of a file just now.
    pub(crate) passages: Passages,
    /// Who waits with locks in hand.
    pub(crate) hands: Hands,
    /// Who writes at the end of a file just now.
    pub(crate) appends: Appends,
    /// Writes past the page cache, by node, and those of them that have failed.
    pub(crate) passing_writes: PassingWrites,
    /// What was fetched for more than one read.
    pub(crate) ahead: Ahead,
    /// What of it the kernel is being given.
    pub(crate) pushes: Pushes,
    /// Calls with pages, and pages on their way out of the kernel.
    pub(crate) traffic: PageTraffic,
    /// Calls that may be what a notification waits for, to be looked at later.
    pub(crate) to_doubt: Vec<PageCallId>,
    pub(crate) lately_shared: LatelyShared,
    /// Locks on inodes, objects and names that are gone, to be given back soon.
    pub(crate) locks_of_gone: Vec<(TargetId, LockId)>,
    /// Somebody sleeps who will do that.
    pub(crate) is_giving_back: bool,
    /// Slots of names that this client has taken away, and has locks on; the latest at the end, each once.
    pub(crate) gone_names: VecDeque<(Fid, u64)>,
    /// Handles that were only read through, by MDT.
    pub(crate) closes: BTreeMap<TargetId, Closes>,
    /// Names that are being taken away.
    pub(crate) unlinks: Unlinks,
    /// Sizes that go to their MDTs as soon as all have had their turn that can go on now.
    pub(crate) reports: BTreeMap<TargetId, Vec<reports::Waiting>>,
    /// What was read, and is to be told with whatever goes there next.
    pub(crate) accesses: BTreeMap<TargetId, Waiting>,
    /// Cancels that nobody waits for go together.
    pub(crate) cancels: BTreeMap<TargetId, Cancels>,
    /// Handles to open again in the tail, and how many are being opened.
    pub(crate) to_revive: VecDeque<u64>,
    pub(crate) reviving_count: usize,
    /// Extent locks that are being asked for; others who need the like wait for the answer.
    pub(crate) enqueues: BTreeMap<(ObjectId, LockMode), Vec<Sender<()>>>,
    /// Targets that are probed now, with what is known already.
    pub(crate) probes: BTreeMap<TargetId, TargetProbe>,
    pub(crate) last_trace: u64,
    pub(crate) is_draining: bool,
    /// Whether xattrs are kept under their inode's lock.
    pub(crate) is_caching_xattrs: bool,
    pub(crate) bulk: Bulk,
    pub(crate) stats: Stats,
}

impl State {
    pub(crate) fn new(now: Now, options: ClientOptions) -> State {
        State {
            options,
            sync_rule: SyncRule::default(),
            now,
            out: Vec::new(),
            spawned: Vec::new(),
            import_outputs: VecDeque::new(),
            config: None,
            config_waiters: Vec::new(),
            connections: BTreeMap::new(),
            last_eviction: 0,
            timeouts: TimeoutBounds::default(),
            nodes: Nodes::new(),
            root: Root::new(Fid::ROOT),
            names: Names::default(),
            data_change_count: 0,
            unseen_count: 0,
            listed: Listed::default(),
            long_xattrs: LongXattrs::default(),
            handles: BTreeMap::new(),
            untold: Untold::default(),
            lock_owners: LockOwners::default(),
            listing_budget: ListingBudget::default(),
            last_handle: 0,
            closing: BTreeMap::new(),
            closing_count: 0,
            settling_count: 0,
            closing_handles: BTreeMap::new(),
            lost_writers: BTreeSet::new(),
            closing_waiters: Vec::new(),
            reopening: BTreeMap::new(),
            to_replay: BTreeSet::new(),
            silent_mdts: BTreeSet::new(),
            full_since: BTreeMap::new(),
            is_making_room: false,
            lease: Lease::default(),
            silence_waiters: Vec::new(),
            calls: BTreeMap::new(),
            held: BTreeMap::new(),
            until_held: BTreeMap::new(),
            group_waiters: BTreeMap::new(),
            signal_waiters: BTreeMap::new(),
            notify_waiters: BTreeMap::new(),
            last_notify: 0,
            telling: Telling::default(),
            timers: BTreeMap::new(),
            last_timer: 0,
            revocations: BTreeMap::new(),
            to_revoke: Vec::new(),
            dirty: Dirty::default(),
            passages: Passages::default(),
            hands: Hands::default(),
            appends: Appends::default(),
            passing_writes: PassingWrites::default(),
            ahead: Ahead::new(now.wall),
            pushes: Pushes::default(),
            traffic: PageTraffic::default(),
            to_doubt: Vec::new(),
            lately_shared: LatelyShared::default(),
            locks_of_gone: Vec::new(),
            is_giving_back: false,
            gone_names: VecDeque::new(),
            closes: BTreeMap::new(),
            unlinks: Unlinks::default(),
            reports: BTreeMap::new(),
            accesses: BTreeMap::new(),
            cancels: BTreeMap::new(),
            to_revive: VecDeque::new(),
            reviving_count: 0,
            enqueues: BTreeMap::new(),
            probes: BTreeMap::new(),
            last_trace: 0,
            is_draining: false,
            is_caching_xattrs: true,
            bulk: Bulk::default(),
            stats: Stats { since: now.wall, ..Stats::default() },
        }
    }

    /// Makes sessions for the targets of a new configuration. Targets never go away; they become inactive.
    pub(crate) fn on_config(&mut self, config: ClusterConfig) {
        if self.config.as_ref().is_some_and(|known| known.version > config.version) {
            return;
        }
        for target in config.targets.iter().filter(|target| target.id.kind != TargetKind::Mgt) {
            let connection = self.connections.entry(target.id).or_insert_with(|| Connection {
                import: Import::new(ImportOptions {
                    client: self.options.client,
                    incarnation: self.options.incarnation,
                    fsname: config.fsname.clone(),
                    nid: self.options.nid.clone(),
                    starts: Vec::new(),
                    target: target.id,
                    target_uuid: target.uuid,
                }),
                locks: LockCache::new(),
                tickets: BTreeMap::new(),
                expected_locks: BTreeSet::new(),
                committed: Transno::ZERO,
                commit_waiters: BTreeMap::new(),
                is_active: true,
                is_switched_off: false,
                is_drained: false,
                eviction_count: 0,
                last_eviction: 0,
                last_change: Transno::ZERO,
                last_change_before_eviction: Transno::ZERO,
                is_lease_lost: false,
                is_late_to_keep: false,
                has_been_active: false,
                history: History::default(),
                idle_locks: IdleLockBounds::default(),
                dirty_bytes_max: DIRTY_BYTES_MAX,
                grant_bytes: 0,
                trimmed_at: Time::ZERO,
                known_space: None,
                is_space_late: false,
                stats: TargetStats::new(self.now.wall),
            });
            connection.is_active = target.is_active;
            connection.import.set_timeouts(self.timeouts);
        }
        self.config = Some(config);
        // Dropping them wakes who waits.
        self.config_waiters.clear();
    }

    /// Hands a request to a session; `sender` gets the result.
    pub(crate) fn submit(
        &mut self,
        target: TargetId,
        request: Request,
        data: Bytes,
        kind: Kind,
        sender: Sender<Outcome<rpc::Answer>>,
    ) -> Outcome<()> {
        self.last_trace += 1;
        let (now, trace) = (self.now, self.last_trace);
        let connection = self.connections.get_mut(&target).ok_or(Status::NoDevice)?;
        if !connection.is_serving() && !is_settling(&request) {
            return Err(Status::Io);
        }
        let name = request.name();
        let bounds = connection.import.bounds();
        connection.stats.on_sent(&request, data.len(), bounds);
        let mut outputs = Vec::new();
        let ticket = connection.import.submit(now, request, data, kind, trace, &mut outputs);
        if kind.is_modifying() {
            let in_flight = connection.import.modifying_in_flight() as u64;
            connection.stats.modify_rpcs_in_flight.add_linear(in_flight);
        }
        connection.tickets.insert(ticket, Pending { kind: name, sent: now.time, sender });
        self.import_outputs.extend(outputs.into_iter().map(|output| (target, output)));
        Ok(())
    }

    /// Data of a file change from now on, or have changed: what was learnt of its size is in doubt.
    pub(crate) fn note_data_change(&mut self, fid: Fid) {
        self.data_change_count += 1;
        let count = self.data_change_count;
        let data = &mut *self.nodes.get_or_new(fid).data;
        data.changed_at = count;
        data.unchanged_since = None;
    }

    /// The objects of a file change from now on, or have changed, and not by what was kept back: what they said is in doubt.
    pub(crate) fn note_objects_change(&mut self, fid: Fid) {
        self.data_change_count += 1;
        let count = self.data_change_count;
        if let Some(node) = self.nodes.by_fid_mut(fid) {
            node.data.objects_changed_at = count;
        }
    }

    pub(crate) fn objects_changed_at(&self, fid: Fid) -> Option<u64> {
        self.nodes.by_fid(fid).map(|node| node.data.objects_changed_at)
    }

    pub(crate) fn data_changed_at(&self, fid: Fid) -> Option<u64> {
        self.nodes.by_fid(fid).map(|node| node.data.changed_at)
    }

    /// Remembers until when a node's metadata are not durable.
    pub(crate) fn note_change(&mut self, target: TargetId, fid: Fid, transno: Transno) {
        if let Some(connection) = self.connections.get_mut(&target) {
            connection.last_change = connection.last_change.max(transno);
        }
        if let Some(node) = self.nodes.by_fid_mut(fid) {
            let last = node.changes.newest.entry(target).or_default();
            *last = (*last).max(transno);
        }
    }

    /// This client has changed an inode.
    pub(crate) fn note_changed_here(&mut self, fid: Fid) {
        if let Some(node) = self.nodes.by_fid_mut(fid) {
            node.changes.are_some = true;
        }
    }

    /// Rises when something becomes known, or is forgotten, of an inode that this client has changed and does not know (any more): a
    /// listing that was asked for before may say what was before.
    pub(crate) fn unseen_count(&self) -> u64 {
        self.unseen_count + self.nodes.changed_gone_count
    }

    /// Whether such a lock is held, not called back, and its target was heard lately.
    pub(crate) fn has_lock(&self, target: TargetId, resource: Resource, policy: LockPolicy) -> bool {
        self.connections
            .get(&target)
            .is_some_and(|connection| connection.locks.find(resource, LockMode::Pr, policy).is_some())
            && !self.lease_left(target).is_zero()
    }

    /// A lock id to offer along with a request to this target.
    pub(crate) fn offer(&mut self, target: TargetId) -> Option<LockId> {
        Some(self.connections.get_mut(&target)?.locks.allocate())
    }

    /// So many, one after the other.
    pub(crate) fn offer_many(&mut self, target: TargetId, count: u32) -> Option<LockId> {
        Some(self.connections.get_mut(&target)?.locks.allocate_many(count))
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.out.push(Output::Event(event));
    }

    pub(crate) fn is_everything_connected(&self) -> bool {
        self.connections
            .values()
            .filter(|connection| connection.is_active && connection.import.outstanding() > 0)
            .all(|connection| connection.import.state() == ImportState::Active)
    }
}

impl Connection {
    /// Bytes that writes may leave here for it.
    pub(crate) fn keepable_bytes(&self) -> u64 {
        if self.is_serving() { self.dirty_bytes_max.min(self.grant_bytes) } else { 0 }
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.is_active && !self.is_switched_off
    }
}

/// What also goes to a target that is switched off: it makes durable or gives back what is there already, or brings what was
/// answered before.
fn is_settling(request: &Request) -> bool {
    matches!(
        request,
        Request::Lock(LockRequest::Cancel { .. })
            | Request::Ost(OstRequest::Sync { .. } | OstRequest::Write { is_answered: true, .. })
            | Request::Mdt(MdtRequest::Sync | MdtRequest::Close { .. } | MdtRequest::Closes { .. })
    )
}

impl TargetStats {
    fn on_sent(&mut self, request: &Request, byte_count: usize, bounds: InFlightBounds) {
        match request {
            Request::Ost(OstRequest::Read { extent, .. } | OstRequest::LockAndRead { extent, .. }) => {
                self.read_rpcs_now += 1;
                self.read_rpcs_in_flight.add_linear(self.read_rpcs_now.min(bounds.plain as u64));
                self.read_page_offsets.add_place(extent.start / 4096);
                self.read_pages_per_rpc.add(extent.byte_count().div_ceil(4096));
            }
            Request::Ost(OstRequest::Write { offset_bytes, .. }) => {
                self.write_rpcs_now += 1;
                self.write_rpcs_in_flight.add_linear(self.write_rpcs_now.min(bounds.modifying as u64));
                self.write_page_offsets.add_place(offset_bytes / 4096);
                self.write_pages_per_rpc.add((byte_count as u64).div_ceil(4096));
                self.write_bytes.add(byte_count as u64);
            }
            _ => {}
        }
    }

    pub(crate) fn on_answered(&mut self, pending: &Pending, waited: Duration, byte_count: usize) {
        let kind = pending.kind;
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.requests.entry(kind).or_default().add(micros);
        match kind {
            "ost_read" => {
                self.read_rpcs_now = self.read_rpcs_now.saturating_sub(1);
                self.read_micros.add(micros);
                self.read_bytes.add(byte_count as u64);
            }
            "ost_write" => {
                self.write_rpcs_now = self.write_rpcs_now.saturating_sub(1);
                self.write_micros.add(micros);
            }
            _ => {}
        }
    }
}
