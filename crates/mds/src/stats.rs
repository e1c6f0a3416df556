//! Counters per operation, as `mdt.*.md_stats` shows them.

use base::{Duration, WallTime};
use std::collections::BTreeMap;
use wire::{MdtRequest, mdt::NewNode};

/// Requests of one kind, and how long they took from arrival to answer, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpStat {
    pub count: u64,
    pub min_us: u64,
    pub max_us: u64,
    pub sum_us: u64,
    pub sum_of_squares_us: u128,
}

impl OpStat {
    fn add(&mut self, us: u64) {
        self.min_us = if self.count == 0 { us } else { self.min_us.min(us) };
        self.max_us = self.max_us.max(us);
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
        self.sum_of_squares_us = self.sum_of_squares_us.saturating_add(u128::from(us) * u128::from(us));
    }
}

/// By Lustre's names of the operations.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub operations: BTreeMap<&'static str, OpStat>,
    /// Counted since then.
    pub since: WallTime,
    /// Operations that had to wait for clients to give locks back.
    pub waited_for_locks: u64,
    /// Operations that waited because they looked at what its caller had perhaps not heard of.
    pub waited_for_hearing: u64,
    /// Operations that touched other MDTs.
    pub cross_mdt: u64,
    pub objects_destroyed: u64,
    pub evictions: u64,
    /// Files with damaged rows, whose objects were not compared with them.
    pub damaged_files: u64,
}

impl Stats {
    pub fn add(&mut self, name: &'static str, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.operations.entry(name).or_default().add(us);
    }

    pub fn clear(&mut self, now: WallTime) {
        *self = Stats { since: now, ..Stats::default() };
    }
}

/// The name under which a request is counted.
pub fn name_of(request: &MdtRequest) -> &'static str {
    match request {
        MdtRequest::Lookup { .. }
        | MdtRequest::Getattr { .. }
        | MdtRequest::GetDefaultLayout { .. }
        | MdtRequest::GetDefaultStriping { .. } => "getattr",
        MdtRequest::Setattr { .. }
        | MdtRequest::SetDefaultStriping { .. }
        | MdtRequest::SetLayout { .. }
        | MdtRequest::ReportSize { .. }
        | MdtRequest::ReportSizes { .. } => "setattr",
        MdtRequest::Create(create) => match create.node {
            NewNode::Directory => "mkdir",
            NewNode::Regular if create.open.is_some() => "open",
            NewNode::Regular | NewNode::Symlink { .. } | NewNode::Device { .. } => "mknod",
        },
        MdtRequest::MakeStriped { .. } => "mkdir",
        MdtRequest::Unlink { .. } | MdtRequest::RemoveAgain { is_directory: false, .. } => "unlink",
        MdtRequest::Rmdir { .. } | MdtRequest::RemoveAgain { .. } => "rmdir",
        MdtRequest::Rename { parent, new_parent, .. }
        | MdtRequest::RenameAgain { parent, new_parent, .. }
            if parent == new_parent =>
        {
            "samedir_rename"
        }
        MdtRequest::Rename { .. } | MdtRequest::RenameAgain { .. } => "crossdir_rename",
        MdtRequest::Link { .. } => "link",
        MdtRequest::Migrate { .. } => "migrate",
        MdtRequest::Open { .. } | MdtRequest::Reopen { .. } => "open",
        MdtRequest::Close { .. } | MdtRequest::Closes { .. } => "close",
        MdtRequest::Readdir { .. } => "readdir",
        MdtRequest::Readlink { .. } => "readlink",
        MdtRequest::Listxattr { .. } | MdtRequest::Getxattr { .. } => "getxattr",
        MdtRequest::Setxattr { .. } | MdtRequest::Removexattr { .. } => "setxattr",
        MdtRequest::Statfs => "statfs",
        MdtRequest::Sync => "sync",
        MdtRequest::FidToPath { .. } => "fid2path",
        MdtRequest::Flock { .. }
        | MdtRequest::FlockCancel { .. }
        | MdtRequest::Getlk { .. }
        | MdtRequest::ReplayFlocks { .. } => "flock",
    }
}
