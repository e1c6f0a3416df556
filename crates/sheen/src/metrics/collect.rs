//! What this process counts.

use super::Sample;
use super::families::{self, Family};
use crate::control::TargetStatus;
use crate::mount::Mount;
use crate::node::{Node, lock};
use crate::params::target_name;
use crate::status;
use crate::targets::{Served, Target};
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use store::{MetaStore, ObjectStore, Space};
use store_disk::MetaDisk;

/// The states of a target, as `TargetStatus` has them.
pub(super) const STATES: [&str; 9] = [
    status::ACTIVE,
    "recovering",
    status::WAITING,
    "standby",
    status::REFUSED,
    status::HELD,
    status::FENCED,
    status::SILENT,
    status::DOWN,
];
/// Lustre's word for a session that works.
const CONNECTED: &str = "FULL";

/// Longer than anybody waits for what is counted (`control::ask`): who gives up has found a process that does not answer, and not one that
/// refuses to. Where a device stands still, no more threads wait here than there are askers in this time.
const TURN_PATIENCE: Duration = Duration::from_secs(4);

/// One collection at a time: all would read the same, and where a device stands still each would wait as the first does.
static TURN: Turn = Turn { is_taken: Mutex::new(false), is_free: Condvar::new() };

struct Turn {
    is_taken: Mutex<bool>,
    is_free: Condvar,
}

impl Turn {
    /// Waits until nobody else has it.
    ///
    /// # Errors
    /// Somebody has it for longer than `patience`.
    fn take(&self, patience: Duration) -> Result<Taken<'_>> {
        let waited = self.is_free.wait_timeout_while(lock(&self.is_taken), patience, |is_taken| *is_taken);
        let (mut is_taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *is_taken {
            bail!("another collector is being answered");
        }
        *is_taken = true;
        Ok(Taken(self))
    }
}

struct Taken<'a>(&'a Turn);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *lock(&self.0.is_taken) = false;
        self.0.is_free.notify_one();
    }
}

/// # Errors
/// Somebody else is being told, and waits.
pub fn of_node(node: &Node, describe_targets: impl FnOnce() -> Vec<TargetStatus>) -> Result<Vec<Sample>> {
    let _turn = TURN.take(TURN_PATIENCE)?;
    let mut samples = Samples::default();
    describe_targets().iter().for_each(|target| samples.of_status(target));
    // A machine whose device has failed may stand still, and so may one that must not write.
    let stands_still = |target: &&Target| target.has_failed() || target.state() == status::HELD;
    for target in node.targets.iter().filter(|target| !stands_still(target)) {
        samples.of_target(target);
    }
    let mounts = lock(&node.mounts).clone();
    for mount in mounts.iter().filter(|mount| !mount.is_detached()) {
        samples.of_mount(mount);
    }
    Ok(samples.0)
}

/// Of targets whose process has died, or says nothing.
pub fn of_missed(targets: &[TargetStatus]) -> Vec<Sample> {
    let mut samples = Samples::default();
    targets.iter().for_each(|target| samples.state_of(target));
    samples.0
}

#[derive(Default)]
struct Samples(Vec<Sample>);

/// Figures of one target or one mount, by their last label.
type Figures<'a> = &'a [(&'a str, f64)];

impl Samples {
    fn add(&mut self, family: &Family, labels: &[&str], value: f64) {
        self.0.push(family.sample(labels, value));
    }

    fn each(&mut self, family: &Family, labels: &[&str], figures: Figures<'_>) {
        for (label, value) in figures {
            self.add(family, &[labels, &[label]].concat(), *value);
        }
    }

    fn state_of(&mut self, target: &TargetStatus) {
        let states = STATES.map(|state| (state, f64::from(u8::from(target.state == state))));
        self.each(&families::TARGET_STATE, &[&status::name_of(target)], &states);
    }

    fn of_status(&mut self, target: &TargetStatus) {
        let name = status::name_of(target);
        self.state_of(target);
        let recovery = target.recovery.as_ref();
        let count = |count: Option<usize>| count.unwrap_or_default() as f64;
        let clients = [
            ("missing", count(recovery.map(|recovery| recovery.missing.len()))),
            ("done", count(recovery.map(|recovery| recovery.done_count))),
        ];
        self.each(&families::TARGET_RECOVERY_CLIENTS, &[&name], &clients);
        let left = recovery.map_or(0, |recovery| recovery.seconds_left);
        self.add(&families::TARGET_RECOVERY_LEFT, &[&name], left as f64);
    }

    fn of_target(&mut self, target: &Target) {
        let name = target_name(target);
        let name = [&name[..]];
        for peer in target.peers() {
            let works = f64::from(u8::from(peer.session.state == CONNECTED));
            let peer = format!("{}-{}", target.fsname, peer.target);
            self.add(&families::TARGET_SESSION, &[name[0], &peer], works);
        }
        let mut gauges: Vec<(&Family, u64)> = Vec::new();
        let (rows, space): (Option<Arc<MetaDisk>>, Option<Space>) = match &target.served {
            Served::Mgs(owner) => owner.with(|mgs| {
                gauges.push((&families::TARGET_EXPORTS, mgs.core().clients().count() as u64));
                self.add(&families::MGS_LEASES, &[], mgs.lease_count(net::clock::now().time) as f64);
                // In etcd they are nobody's disk.
                (mgs.core().store().disk().cloned(), None)
            }),
            Served::Mds(owner) => owner.with(|mds| {
                let (stats, locks) = (mds.stats(), mds.locks());
                gauges.extend([
                    (&families::TARGET_EXPORTS, mds.core().clients().count() as u64),
                    (&families::TARGET_EVICTIONS, stats.evictions),
                    (&families::TARGET_DAMAGED, stats.damaged_files),
                    (&families::TARGET_LOCKS, locks.lock_count() as u64),
                    (&families::TARGET_LOCK_RESOURCES, locks.resource_count() as u64),
                    (&families::TARGET_LOCK_TIMEOUTS, locks.timeout_count()),
                    (&families::TARGET_OPEN_FILES, mds.open_count() as u64),
                ]);
                let counts = |of: fn(&mds::OpStat) -> f64| {
                    stats.operations.iter().map(|(name, stat)| (*name, of(stat))).collect::<Vec<_>>()
                };
                self.each(&families::TARGET_OPERATIONS, &name, &counts(|stat| stat.count as f64));
                let times = counts(|stat| seconds(stat.sum_us));
                self.each(&families::TARGET_OPERATION_SECONDS, &name, &times);
                (Some(Arc::clone(mds.core().store())), None)
            }),
            Served::Oss(owner) => {
                let (rows, objects) = owner.with(|oss| {
                    let (stats, locks) = (oss.stats(), oss.locks());
                    gauges.extend([
                        (&families::TARGET_EXPORTS, oss.core().clients().count() as u64),
                        (&families::TARGET_EVICTIONS, stats.eviction_count),
                        (&families::TARGET_DAMAGED, stats.unreadable_count),
                        (&families::TARGET_LOCKS, locks.lock_count() as u64),
                        (&families::TARGET_LOCK_RESOURCES, locks.resource_count() as u64),
                        (&families::TARGET_LOCK_TIMEOUTS, locks.timeout_count()),
                        (&families::TARGET_GRANTED, oss.granted_bytes()),
                    ]);
                    let operations = stats.operations().map(|(name, count)| (name, count as f64));
                    self.each(&families::TARGET_OPERATIONS, &name, &operations);
                    let bytes =
                        [("read", stats.read.bytes.sum as f64), ("write", stats.write.bytes.sum as f64)];
                    self.each(&families::TARGET_DATA, &name, &bytes);
                    (Arc::clone(oss.core().store()), Arc::clone(oss.objects()))
                });
                (Some(rows), Some(objects.space()))
            }
        };
        for (family, value) in gauges {
            self.add(family, &name, value as f64);
        }
        if let Some(rows) = rows {
            self.of_disk(&name, &rows, &space.unwrap_or_else(|| rows.space()));
        }
    }

    fn of_disk(&mut self, name: &[&str], rows: &MetaDisk, space: &Space) {
        let bytes = [
            ("total", space.total_bytes as f64),
            ("free", space.free_bytes as f64),
            ("available", space.avail_bytes as f64),
        ];
        self.each(&families::TARGET_SPACE, name, &bytes);
        let inodes = [("total", space.total_inode_count as f64), ("free", space.free_inode_count as f64)];
        self.each(&families::TARGET_INODES, name, &inodes);
        let cache = rows.cache_use();
        let found = [("hit", cache.hit_count as f64), ("miss", cache.miss_count as f64)];
        self.each(&families::TARGET_CACHE_ROWS, name, &found);
        let syncs = rows.sync_use();
        let unawaited = syncs.sync_count.saturating_sub(syncs.awaited_sync_count);
        let syncs = [("yes", syncs.awaited_sync_count as f64), ("no", unawaited as f64)];
        self.each(&families::TARGET_SYNCS, name, &syncs);
    }

    fn of_mount(&mut self, mount: &Mount) {
        let path = mount.path.display().to_string();
        let labels = [&mount.fsname[..], &path];
        let stats = mount.stats();
        for (call, counter) in &stats.calls {
            let labels = [labels[0], labels[1], call];
            self.add(&families::MOUNT_CALLS, &labels, counter.count as f64);
            self.add(&families::MOUNT_CALL_SECONDS, &labels, seconds(counter.sum));
        }
        let bytes = [("read", stats.read_bytes.sum as f64), ("write", stats.write_bytes.sum as f64)];
        self.each(&families::MOUNT_DATA, &labels, &bytes);
        self.add(&families::MOUNT_OPEN_FILES, &labels, stats.open_count as f64);
        self.add(&families::MOUNT_INODES, &labels, stats.node_count as f64);
        let ahead = mount.with_client(|client| client.read_ahead_stats());
        let pages = [
            ("hit", ahead.hit_page_count as f64),
            ("miss", ahead.miss_page_count as f64),
            ("discarded", ahead.discarded_page_count as f64),
        ];
        self.each(&families::MOUNT_READ_AHEAD, &labels, &pages);
        self.of_sessions(mount, labels);
    }

    fn of_sessions(&mut self, mount: &Mount, labels: [&str; 2]) {
        let mut requests: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let (mut lock_count, mut dirty_bytes) = (0, 0);
        // One look for each, so that the mount works in between.
        for target in mount.with_client(|client| client.targets()) {
            let Some(session) = mount.with_client(|client| client.target_status(target)) else { continue };
            for (request, counter) in &session.stats.requests {
                let (count, sum_us) = requests.entry(request).or_default();
                *count += counter.count;
                *sum_us += counter.sum;
            }
            lock_count += session.lock_count;
            dirty_bytes += session.dirty_bytes;
            let target = format!("{}-{target}", mount.fsname);
            let labels = [labels[0], labels[1], &target];
            let works = f64::from(u8::from(session.session.state == CONNECTED));
            self.add(&families::MOUNT_SESSION, &labels, works);
            self.add(&families::MOUNT_EVICTIONS, &labels, session.session.eviction_count as f64);
        }
        for (request, (count, sum_us)) in requests {
            let labels = [labels[0], labels[1], request];
            self.add(&families::MOUNT_REQUESTS, &labels, count as f64);
            self.add(&families::MOUNT_REQUEST_SECONDS, &labels, seconds(sum_us));
        }
        self.add(&families::MOUNT_LOCKS, &labels, lock_count as f64);
        self.add(&families::MOUNT_DIRTY, &labels, dirty_bytes as f64);
    }
}

fn seconds(us: u64) -> f64 {
    Duration::from_micros(us).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_collector_is_answered_after_the_first_and_waits_for_none_that_hangs() {
        let turn = Turn { is_taken: Mutex::new(false), is_free: Condvar::new() };
        let first = turn.take(Duration::ZERO).expect("nobody has it");
        assert!(turn.take(Duration::ZERO).is_err(), "the first has it");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| turn.take(Duration::MAX).is_ok());
            for _ in 0..1000 {
                std::thread::yield_now();
                assert!(!second.is_finished(), "the first has it");
            }
            drop(first);
            assert!(second.join().expect("it ends"), "the first has let go");
        });
        assert!(turn.take(Duration::ZERO).is_ok());
    }
}
