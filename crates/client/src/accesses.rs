//! Access times. A file that was open for reading counts as read once, when its last descriptor is gone: what the kernel has cached
//! is read without anybody hearing of it. A directory counts as read when a listing begins.
//!
//! The MDT is told with an open, a close or a listing that goes there anyway, or else with the next ping of the session, at last with its
//! goodbye, and never by itself; until then, and while it has not changed the inode, this mount shows what it knows. Both judge by one rule (`Attr::is_outdone_by`), so neither waits for the other.

use crate::Notify;
use crate::cache::may_kernel_believe;
use crate::ctx::mdt_of;
use crate::nodes::Node;
use crate::state::State;
use base::{Attr, Fid, TargetId, WallTime};
use std::collections::BTreeMap;
use wire::mdt::{ACCESSES_MAX, Access};

/// So many wait for a request to the same MDT; more are left out.
pub(crate) const WAITING_MAX: usize = 4096;

/// When an access counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessRule {
    /// `noatime`, or the mount is read-only.
    Never,
    /// The first after a change, and after a day (`relatime`).
    #[default]
    Relative,
    /// Each (`strictatime`).
    Always,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessTimes {
    pub files: AccessRule,
    pub directories: AccessRule,
}

/// What one MDT is still to be told.
pub(crate) type Waiting = BTreeMap<Fid, Access>;

impl Node {
    /// What this mount has read last counts, where the MDT does not know it yet.
    pub(crate) fn add_access(&self, attr: &mut Attr) {
        let accessed = self.changes.accessed;
        if let Some(access) = accessed.filter(|access| attr.is_outdone_by(access.at, access.is_relative)) {
            attr.atime = access.at;
        }
    }
}

impl State {
    /// The last descriptor of a file is gone, or a directory is listed.
    pub(crate) fn note_access(&mut self, fid: Fid, is_directory: bool) {
        let times = self.options.access_times;
        let rule = if is_directory { times.directories } else { times.files };
        let is_relative = rule == AccessRule::Relative;
        let Ok(target) = mdt_of(fid) else { return };
        if rule == AccessRule::Never {
            return;
        }
        let known = self.cached_attr(fid);
        let now = self.clock_of(target);
        // Whatever is known of the inode was there before, whatever the clocks say.
        let seen = self.nodes.by_fid(fid).and_then(|node| node.attr()).map(|attr| attr.ctime);
        let at = WallTime(now.0.max(seen.map_or(0, |ctime| ctime.0.saturating_add(1))));
        if known.is_some_and(|attr| !attr.is_outdone_by(at, is_relative)) {
            return;
        }
        let access = Access { fid, at, is_relative };
        let waiting = self.accesses.entry(target).or_default();
        if waiting.len() < WAITING_MAX || waiting.contains_key(&fid) {
            waiting.insert(fid, access);
        }
        self.show_access(fid, access);
    }

    /// The kernel may have older attributes from before the access.
    fn show_access(&mut self, fid: Fid, access: Access) {
        let now = self.now.time;
        let Some(node) = self.nodes.by_fid_mut(fid) else { return };
        node.changes.accessed = Some(access);
        if let Some(mut attr) = node.attr().cloned() {
            node.add_access(&mut attr);
            node.set_attr(attr);
        }
        if may_kernel_believe(node.kernel_attr_until, now) {
            self.send_notify(Notify::InvalInode {
                node: fid.inode_number(),
                offset_bytes: -1,
                byte_count: 0,
            });
        }
    }

    /// Somebody sets the access time: what was read before counts no more.
    pub(crate) fn forget_access(&mut self, fid: Fid) {
        if let Some(waiting) = mdt_of(fid).ok().and_then(|target| self.accesses.get_mut(&target)) {
            waiting.remove(&fid);
        }
        if let Some(changes) = self.nodes.by_fid_mut(fid).and_then(|node| node.changes.known_mut()) {
            changes.accessed = None;
        }
    }

    /// Those that a request takes along. If it is lost, so are they.
    pub(crate) fn take_accesses(&mut self, target: TargetId) -> Vec<Access> {
        take(&mut self.accesses, target, ACCESSES_MAX)
    }
}

/// So many of what a target is still to be told.
pub(crate) fn take(all: &mut BTreeMap<TargetId, Waiting>, target: TargetId, count_max: usize) -> Vec<Access> {
    let mut taken = Vec::new();
    if let Some(waiting) = all.get_mut(&target) {
        while taken.len() < count_max
            && let Some((_, access)) = waiting.pop_first()
        {
            taken.push(access);
        }
    }
    taken
}
