//! What operators see and change of a mount while it runs.

use crate::ahead::{ReadAheadBound, ReadAheadBounds, ReadAheadStats};
use crate::machine::Client;
use crate::state::{Connection, State};
use crate::stats::{Stats, TargetStats};
use base::{Duration, Now, TargetId, Time, WallTime, limits};
use rpc::{InFlightBounds, SessionStatus, TimeoutBounds, TimeoutReport};

/// Idle locks beyond the bound are given back at most this often, all at once.
pub(crate) const TRIM_INTERVAL: Duration = Duration::from_millis(10);

/// When locks that nobody uses go back unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleLockBounds {
    /// Locks kept; the oldest beyond it go.
    pub count: usize,
    pub age: Duration,
}

impl Default for IdleLockBounds {
    /// The age is Lustre's.
    fn default() -> IdleLockBounds {
        IdleLockBounds { count: limits::IDLE_LOCKS_MAX, age: Duration::from_secs(3900) }
    }
}

/// Which changes are durable when they are answered, besides those of calls that ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncRule {
    #[default]
    None,
    /// Of names (`-o dirsync`).
    Names,
    /// Of attributes and data too (`-o sync`). Writes are the kernel's part: it makes each one an O_DSYNC one.
    All,
}

/// One change that an operator makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    ClearStats,
    /// Whether xattrs are kept under their inode's lock.
    XattrCache(bool),
    /// Entries whose attributes one request brings, at most; 0: names only.
    BulkAttrs(u32),
    /// Whether xattrs come with the attributes.
    BulkXattrs(bool),
    ClearListingStats,
    /// When reading changes access times, from now on.
    AccessTimes(crate::AccessTimes),
    /// Which changes are durable when they are answered, from now on.
    SyncRule(SyncRule),
    ReadAhead(ReadAheadBounds),
    ReadAheadBound(ReadAheadBound),
    ClearReadAheadStats,
    /// When answers of targets are late.
    Timeouts(TimeoutBounds),
    Target(TargetId, TargetSetting),
}

/// What a listing brings beside the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bulk {
    pub attr_count_max: u32,
    pub has_xattrs: bool,
}

impl Default for Bulk {
    fn default() -> Bulk {
        Bulk { attr_count_max: base::limits::READDIR_ENTRIES_MAX as u32, has_xattrs: true }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetSetting {
    ClearStats,
    ClearRpcStats,
    /// Calls that need an inactive target fail with EIO at once; locks still go back to it.
    Active(bool),
    /// Nothing new is to be placed there. The MDTs see to it; here it is only told.
    Drained(bool),
    PlainInFlight(usize),
    ModifyingInFlight(usize),
    IdleLockCount(usize),
    IdleLockAge(Duration),
    /// Bytes that writes may leave here before the OST has them; zero: none.
    DirtyBytes(u64),
    /// Whether data have a checksum on the wire.
    CheckedData(bool),
    /// Gives all idle locks back, once.
    DropIdleLocks,
}

/// The session with one target, as operators see it.
#[derive(Clone, Debug)]
pub struct TargetStatus {
    pub stats: TargetStats,
    pub session: SessionStatus,
    pub is_active: bool,
    /// Reply slots in use.
    pub modifying_in_flight: usize,
    /// When a request was sent that it has answered since; `None` before that.
    pub last_contact: Option<Time>,
    pub bounds: InFlightBounds,
    pub timeouts: TimeoutReport,
    pub has_checked_data: bool,
    pub idle_locks: IdleLockBounds,
    /// Bytes that writes may leave here before the OST has them, as an operator and as the OST have it.
    pub dirty_bytes_max: u64,
    pub grant_bytes: u64,
    /// Those that are here or on their way.
    pub dirty_bytes: u64,
    pub lock_count: usize,
    pub idle_lock_count: usize,
    pub resource_count: usize,
}

impl Client {
    /// Counters since the start or since they were cleared, for `llite.*.stats`.
    pub fn stats(&self) -> Stats {
        self.with_state(|state| {
            let mut stats = state.stats.clone();
            stats.calls_in_flight = state.calls.len() as u64;
            stats.node_count = state.nodes.count() as u64;
            stats.open_count = state.handles.len() as u64;
            stats
        })
    }

    /// Targets that this mount has a session with or may have one.
    pub fn targets(&self) -> Vec<TargetId> {
        self.with_state(|state| state.connections.keys().copied().collect())
    }

    /// For `osc.*`, `mdc.*` and `ldlm.namespaces.*`.
    pub fn target_status(&self, target: TargetId) -> Option<TargetStatus> {
        self.with_state(|state| {
            let connection = state.connections.get(&target)?;
            let dirty_bytes = state.dirty.byte_count(target);
            Some(status_of(connection, state.now, state.nids_of(target), dirty_bytes))
        })
    }

    pub fn timeouts(&self) -> TimeoutBounds {
        self.with_state(|state| state.timeouts)
    }

    pub fn bulk(&self) -> Bulk {
        self.with_state(|state| state.bulk)
    }

    pub fn read_ahead_bounds(&self) -> ReadAheadBounds {
        self.with_state(|state| state.ahead.bounds)
    }

    /// For `llite.*.read_ahead_stats`.
    pub fn read_ahead_stats(&self) -> ReadAheadStats {
        self.with_state(|state| state.ahead.stats)
    }

    /// When that was last cleared.
    pub fn read_ahead_stats_since(&self) -> WallTime {
        self.with_state(|state| state.ahead.stats_since)
    }

    pub fn is_caching_xattrs(&self) -> bool {
        self.with_state(|state| state.is_caching_xattrs)
    }
}

fn status_of(connection: &Connection, now: Now, nids: Vec<String>, dirty_bytes: u64) -> TargetStatus {
    let (bounds, mut stats) = (connection.import.bounds(), connection.stats.clone());
    // The others wait here for their turn.
    stats.read_rpcs_now = stats.read_rpcs_now.min(bounds.plain as u64);
    stats.write_rpcs_now = stats.write_rpcs_now.min(bounds.modifying as u64);
    TargetStatus {
        stats,
        session: SessionStatus::of(
            &connection.import,
            &connection.history,
            connection.eviction_count,
            now,
            nids,
        ),
        is_active: connection.is_serving(),
        modifying_in_flight: connection.import.modifying_in_flight(),
        last_contact: connection.import.last_contact(),
        bounds: connection.import.bounds(),
        timeouts: connection.import.timeouts(now.time),
        has_checked_data: connection.import.has_checked_data(),
        idle_locks: connection.idle_locks,
        dirty_bytes_max: connection.dirty_bytes_max,
        grant_bytes: connection.grant_bytes,
        dirty_bytes,
        lock_count: connection.locks.lock_count(),
        idle_lock_count: connection.locks.idle_count(),
        resource_count: connection.locks.resource_count(),
    }
}

impl State {
    /// Where a target is, as the configuration says.
    pub(crate) fn nids_of(&self, target: TargetId) -> Vec<String> {
        let known = self.config.as_ref().and_then(|config| config.target(target));
        known.map(|known| known.nids.clone()).unwrap_or_default()
    }

    pub(crate) fn note_history(&mut self, target: TargetId, word: &'static str) {
        let now = self.now.wall;
        if let Some(connection) = self.connections.get_mut(&target) {
            connection.history.add(now, word);
        }
    }

    pub(crate) fn on_setting(&mut self, setting: Setting) {
        match setting {
            Setting::ClearStats => self.stats.clear(self.now.wall),
            Setting::XattrCache(is_on) => {
                self.is_caching_xattrs = is_on;
                self.nodes.iter_mut().for_each(|(_, node)| node.xattrs = None);
                self.long_xattrs.clear();
                self.nodes.listings.forget_all_entries();
            }
            Setting::AccessTimes(times) => self.options.access_times = times,
            Setting::SyncRule(rule) => self.sync_rule = rule,
            Setting::BulkAttrs(count) => self.bulk.attr_count_max = count,
            Setting::BulkXattrs(is_on) => self.bulk.has_xattrs = is_on,
            Setting::ClearListingStats => self.stats.listings = Default::default(),
            Setting::ReadAhead(bounds) => self.ahead.bounds = bounds,
            Setting::ReadAheadBound(bound) => self.ahead.bounds.set(bound),
            Setting::ClearReadAheadStats => self.ahead.clear_stats(self.now.wall),
            Setting::Timeouts(bounds) => {
                self.timeouts = bounds;
                self.connections.values_mut().for_each(|it| it.import.set_timeouts(bounds));
            }
            Setting::Target(target, setting) => self.on_target_setting(target, setting),
        }
    }

    fn on_target_setting(&mut self, target: TargetId, setting: TargetSetting) {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&target) else { return };
        let bounds = connection.import.bounds();
        let mut idle = Vec::new();
        match setting {
            TargetSetting::ClearStats => connection.stats.clear(now.wall),
            TargetSetting::ClearRpcStats => connection.stats.clear_rpcs(now.wall),
            TargetSetting::Active(is_active) => connection.is_switched_off = !is_active,
            TargetSetting::Drained(is_drained) => connection.is_drained = is_drained,
            TargetSetting::PlainInFlight(plain) => {
                self.set_bounds(target, InFlightBounds { plain, ..bounds });
            }
            TargetSetting::ModifyingInFlight(modifying) => {
                self.set_bounds(target, InFlightBounds { modifying, ..bounds });
            }
            TargetSetting::IdleLockCount(count) => connection.idle_locks.count = count,
            TargetSetting::IdleLockAge(age) => connection.idle_locks.age = age,
            TargetSetting::DirtyBytes(byte_count) => connection.dirty_bytes_max = byte_count,
            TargetSetting::CheckedData(is_on) => connection.import.set_checked_data(is_on),
            TargetSetting::DropIdleLocks => {
                idle = connection.locks.take_idle(now.time, Duration::MAX, 0, usize::MAX);
            }
        }
        for lock in idle {
            self.start_unasked_revocation(target, lock);
        }
        self.trim_idle_locks();
    }

    fn set_bounds(&mut self, target: TargetId, bounds: InFlightBounds) {
        let Some(connection) = self.connections.get_mut(&target) else { return };
        let mut outputs = Vec::new();
        connection.import.set_bounds(self.now, bounds, &mut outputs);
        self.import_outputs.extend(outputs.into_iter().map(|output| (target, output)));
    }

    /// Gives back the locks that have been idle for too long or are too many.
    pub(crate) fn trim_idle_locks(&mut self) {
        let now = self.now.time;
        let mut idle = Vec::new();
        for (target, connection) in &mut self.connections {
            let IdleLockBounds { count, age } = connection.idle_locks;
            let locks = connection.locks.take_idle(now, age, count, usize::MAX);
            if !locks.is_empty() {
                connection.trimmed_at = now;
            }
            idle.extend(locks.into_iter().map(|lock| (*target, lock)));
        }
        for (target, lock) in idle {
            self.start_unasked_revocation(target, lock);
        }
    }
}
