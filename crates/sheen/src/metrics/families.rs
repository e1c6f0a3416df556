//! The families of metrics, each declared once: name, unit, labels, meaning.
//!
//! The unit is put behind the name, and `_total` behind that of a counter. Counters begin anew when their process does, and when an
//! operator clears them with `lctl set_param`.

use super::Sample;
use prometheus_client::registry::Unit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// As it is now.
    Gauge,
}

#[derive(Debug)]
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Option<&'static Unit>,
    pub labels: &'static [&'static str],
    /// A sentence without its end, which the encoder sets.
    pub doc: &'static str,
}

static BYTES: Unit = Unit::Bytes;
static SECONDS: Unit = Unit::Seconds;

impl Family {
    const fn counter(name: &'static str, labels: &'static [&'static str], doc: &'static str) -> Family {
        Family { name, kind: Kind::Counter, unit: None, labels, doc }
    }

    const fn gauge(name: &'static str, labels: &'static [&'static str], doc: &'static str) -> Family {
        Family { name, kind: Kind::Gauge, unit: None, labels, doc }
    }

    const fn bytes(self) -> Family {
        Family { unit: Some(&BYTES), ..self }
    }

    const fn seconds(self) -> Family {
        Family { unit: Some(&SECONDS), ..self }
    }

    /// As a collector has it.
    #[cfg(test)]
    pub fn full_name(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
        let end = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{unit}{end}", self.name)
    }

    pub fn sample(&self, labels: &[&str], value: f64) -> Sample {
        assert_eq!(labels.len(), self.labels.len(), "a figure has the labels of its family");
        let labels = labels.iter().map(ToString::to_string).collect();
        Sample { family: self.name.to_owned(), labels, value }
    }
}

macro_rules! families {
    ($($constant:ident = $family:expr;)*) => {
        $(pub static $constant: Family = $family;)*
        /// All of them, in the order in which they are printed.
        pub static FAMILIES: &[&Family] = &[$(&$constant),*];
    };
}

const TARGET: &[&str] = &["target"];
const MOUNT: &[&str] = &["fsname", "mount"];

families! {
    BUILD = Family::gauge("sheen_build", &["version"], "Version of the program that was asked; always 1");
    PROCESSES = Family::gauge("sheen_processes", &["state"], "Processes of this machine that were asked: they answer in time (answering) or not (silent), or are another user's (refused)");

    TARGET_STATE = Family::gauge("sheen_target_state", &["target", "state"], "1 for the state that a target is in, 0 for the others");
    TARGET_RECOVERY_CLIENTS = Family::gauge("sheen_target_recovery_clients", &["target", "state"], "Clients that a recovery under way waits for (missing), and that are done");
    TARGET_RECOVERY_LEFT = Family::gauge("sheen_target_recovery_left", TARGET, "Until a recovery gives up who is missing; 0 without one").seconds();
    TARGET_EXPORTS = Family::gauge("sheen_target_exports", TARGET, "Clients and other targets with a session");
    TARGET_EVICTIONS = Family::counter("sheen_target_evictions", TARGET, "Clients that a target has dropped");
    TARGET_DAMAGED = Family::counter("sheen_target_damaged", TARGET, "Files of an MDT, or objects of an OST, that could not be read when the two were compared");
    TARGET_LOCKS = Family::gauge("sheen_target_locks", TARGET, "Locks that clients have or wait for");
    TARGET_LOCK_RESOURCES = Family::gauge("sheen_target_lock_resources", TARGET, "Names, inodes and objects that they are about");
    TARGET_LOCK_TIMEOUTS = Family::counter("sheen_target_lock_timeouts", TARGET, "Clients that were dropped because they did not give a lock back");
    TARGET_OPEN_FILES = Family::gauge("sheen_target_open_files", TARGET, "Open files of all clients of an MDT");
    TARGET_OPERATIONS = Family::counter("sheen_target_operations", &["target", "operation"], "Requests executed, by Lustre's names");
    TARGET_OPERATION_SECONDS = Family::counter("sheen_target_operation", &["target", "operation"], "Time from their arrival to their answer").seconds();
    TARGET_DATA = Family::counter("sheen_target_data", &["target", "direction"], "File data that an OST has read and written").bytes();
    TARGET_GRANTED = Family::gauge("sheen_target_granted", TARGET, "What clients may keep before an OST has it").bytes();
    TARGET_SPACE = Family::gauge("sheen_target_space", &["target", "kind"], "Space of the local file system; available is without the reserve").bytes();
    TARGET_INODES = Family::gauge("sheen_target_inodes", &["target", "kind"], "Inodes of the local file system");
    TARGET_CACHE_ROWS = Family::counter("sheen_target_cache_rows", &["target", "outcome"], "Rows that were looked for in a target's memory, and found (hit) or not (miss)");
    TARGET_SYNCS = Family::counter("sheen_target_syncs", &["target", "awaited"], "Syncs of the log's device, and whether somebody waited");
    TARGET_SESSION = Family::gauge("sheen_target_session", &["target", "peer"], "1 while the session of an MDT with another target works, 0 while it does not, or the other has answered nothing for 10 s, pings included");
    MGS_LEASES = Family::gauge("sheen_mgs_leases", &[], "Mounts that have said lately that they live");

    MOUNT_CALLS = Family::counter("sheen_mount_calls", &["fsname", "mount", "call"], "Calls of the kernel");
    MOUNT_CALL_SECONDS = Family::counter("sheen_mount_call", &["fsname", "mount", "call"], "Time until they were answered").seconds();
    MOUNT_DATA = Family::counter("sheen_mount_data", &["fsname", "mount", "direction"], "File data that processes have read and written through a mount").bytes();
    MOUNT_OPEN_FILES = Family::gauge("sheen_mount_open_files", MOUNT, "Open files");
    MOUNT_INODES = Family::gauge("sheen_mount_inodes", MOUNT, "Inodes that the kernel knows");
    MOUNT_LOCKS = Family::gauge("sheen_mount_locks", MOUNT, "Locks of all targets");
    MOUNT_DIRTY = Family::gauge("sheen_mount_dirty", MOUNT, "What was written and is not at the OSTs yet").bytes();
    MOUNT_READ_AHEAD = Family::counter("sheen_mount_read_ahead_pages", &["fsname", "mount", "outcome"], "Pages that were there when they were read (hit), were not (miss), or were fetched for nothing (discarded)");
    MOUNT_REQUESTS = Family::counter("sheen_mount_requests", &["fsname", "mount", "request"], "Requests to all targets");
    MOUNT_REQUEST_SECONDS = Family::counter("sheen_mount_request", &["fsname", "mount", "request"], "Time until they were answered").seconds();
    MOUNT_SESSION = Family::gauge("sheen_mount_session", &["fsname", "mount", "target"], "1 while the session with a target works, 0 while it does not, or the target has answered nothing for 10 s, pings included");
    MOUNT_EVICTIONS = Family::counter("sheen_mount_evictions", &["fsname", "mount", "target"], "How often a target has dropped the mount");
}
