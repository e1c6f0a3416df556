//! What a client does about targets that were restarted, that evicted it, or that it has not heard for too long.

use crate::machine::{Event, Notify};
use crate::nodes::Node;
use crate::state::State;
use base::{Extent, Fid, TargetId, TargetKind, Time};
use bytes::Bytes;
use wire::{LockRequest, MdtRequest, Request};

/// Locks in one replay request.
const REPLAY_LOCK_COUNT: usize = 512;
/// Advisory locks in one replay request: a quarter of the longest frame.
const REPLAY_FLOCK_COUNT: usize = 8192;

impl State {
    /// Everything that a restarted target cannot know: open files, advisory locks, locks.
    pub(crate) fn replays(&mut self, target: TargetId) -> Vec<(Request, Bytes)> {
        let mut requests = Vec::new();
        let is_here = |fid: Fid| fid.mdt_index().map(TargetId::mdt) == Some(target);
        let open = self
            .handles
            .values()
            .filter(|handle| !handle.is_directory && !handle.is_lost)
            .map(|handle| (handle.fid, handle.args))
            .chain(
                self.closing_handles
                    .values()
                    .filter(|closing| !closing.is_lost)
                    .map(|closing| (closing.fid, closing.args)),
            )
            .chain(self.reopening.values().copied());
        for (fid, open) in open.filter(|(fid, _)| is_here(*fid)) {
            requests.push(Request::Mdt(MdtRequest::Reopen { fid, open }));
        }
        for (_, node) in self.nodes.iter_mut().filter(|(_, node)| is_here(node.fid())) {
            if node.data.advisory.is_empty() {
                continue;
            }
            let fid = node.fid();
            for locks in node.data.advisory.replayed().chunks(REPLAY_FLOCK_COUNT) {
                let locks = locks.to_vec();
                requests.push(Request::Mdt(MdtRequest::ReplayFlocks { fid, locks }));
            }
        }
        if let Some(connection) = self.connections.get(&target) {
            for locks in connection.locks.all_for_replay().chunks(REPLAY_LOCK_COUNT) {
                requests.push(Request::Lock(LockRequest::Replay { locks: locks.to_vec() }));
            }
        }
        requests.into_iter().map(|request| (request, Bytes::new())).collect()
    }

    /// The target has dropped this client: so does the client with everything that it had from there, and with what it had kept back for it.
    /// Of what was answered the target has perhaps lost nothing (`on_lost`).
    pub(crate) fn on_evicted(&mut self, target: TargetId) {
        self.event(Event::Evicted(target));
        let Some(connection) = self.connections.get_mut(&target) else { return };
        connection.history.add(self.now.wall, "EVICTED");
        connection.locks.clear();
        connection.expected_locks.clear();
        // Dropped senders say `Evicted`.
        connection.commit_waiters.clear();
        connection.committed = connection.committed.min(connection.import.last_committed());
        connection.eviction_count += 1;
        self.last_eviction += 1;
        connection.last_eviction = self.last_eviction;
        connection.last_change_before_eviction = connection.last_change;
        connection.grant_bytes = 0;
        self.wake_revocations(target);
        if target.kind == TargetKind::Mdt {
            self.give_up_writes(target);
            self.forget_mdt(target);
            self.dirty.look_for_room_again();
        }
        self.lose_dirty(target);
        self.lose_stored(target);
    }

    /// After an eviction: what was open and locked there is not any more.
    fn forget_mdt(&mut self, target: TargetId) {
        let is_here = |fid: Fid| fid.mdt_index().map(TargetId::mdt) == Some(target);
        self.forget_facts(target);
        for (_, node) in self.nodes.iter_mut().filter(|(_, node)| is_here(node.fid())) {
            if let Some(advisory) = node.data.known_mut().and_then(|data| data.advisory.known_mut()) {
                advisory.lose_all();
            }
        }
        self.fail_lost_flocks(target);
        for handle in self.handles.values_mut().filter(|handle| is_here(handle.fid) && !handle.is_directory) {
            handle.is_lost = true;
            if handle.args.write {
                // Written since, perhaps, without the MDT counting a writer: it must not go on believing a size.
                self.to_revive.push_front(handle.args.handle.0);
                self.lost_writers.insert(handle.args.handle.0);
            } else {
                // Or its file would go when its last name does.
                self.to_revive.push_back(handle.args.handle.0);
            }
        }
        for (fh, closing) in self.closing_handles.iter_mut().filter(|(_, closing)| is_here(closing.fid)) {
            closing.is_lost = true;
            if closing.args.write {
                self.lost_writers.insert(*fh);
            }
        }
    }

    /// Names and attributes from an MDT that was restarted count no more, locks or not: they may tell of what another
    /// client had done, and what is lost when that client does not come back.
    pub(crate) fn forget_facts(&mut self, target: TargetId) {
        let is_here = |fid: Fid| fid.mdt_index().map(TargetId::mdt) == Some(target);
        if target.kind != TargetKind::Mdt {
            return;
        }
        self.names.drop_where(is_here);
        self.nodes.listings.forget_where(is_here);
        let now = self.now.time;
        let (mut told, mut wholes) = (Vec::new(), Vec::new());
        self.nodes.forget_directories();
        for (id, node) in self.nodes.iter_mut().filter(|(_, node)| is_here(node.fid())) {
            wholes.extend(node.directory.master);
            // Versions may start again below what was seen.
            node.forget_attr();
            node.forget_xattrs();
            node.doubt_kernel_acl();
            if let Some(directory) = node.directory.known_mut() {
                directory.whole = None;
            }
            if let Some(data) = node.data.known_mut() {
                data.unchanged_since = None;
                data.kept_since = None;
            }
            if node.kernel_attr_until > now {
                node.kernel_attr_until = Time::ZERO;
                told.push(id);
            }
        }
        // The kernel was told what their stripes made of them.
        for whole in wholes {
            if let Some(node) = self.nodes.by_fid_mut(whole).filter(|node| node.kernel_attr_until > now) {
                node.kernel_attr_until = Time::ZERO;
                told.push(whole.inode_number());
            }
        }
        if self.options.has_inc_epoch {
            self.send_notify(Notify::IncEpoch);
        }
        for node in told {
            self.send_notify(Notify::InvalInode { node, offset_bytes: -1, byte_count: 0 });
        }
    }

    /// The kernel forgets the pages of all files with objects on a target.
    pub(crate) fn forget_pages(&mut self, target: TargetId) {
        self.doubt_pushes_of(target);
        for node in self.nodes_on(target) {
            self.doubt_redone_drops(node);
            if self.nodes.get(node).is_some_and(|known| !known.data.pages.filled.is_empty()) {
                self.drop_unasked(node, Extent::WHOLE);
            }
        }
    }

    /// Files with data on a target.
    pub(crate) fn nodes_on(&self, target: TargetId) -> Vec<u64> {
        let is_on = |node: &Node| node.layout().is_some_and(|layout| layout.targets().any(|on| on == target));
        self.nodes.iter().filter(|(_, node)| is_on(node)).map(|(id, _)| id).collect()
    }

    fn give_up_writes(&mut self, mdt: TargetId) {
        let now = self.now;
        for (target, connection) in &mut self.connections {
            let mut outputs = Vec::new();
            connection.import.give_up_writes(now, mdt.index, &mut outputs);
            self.import_outputs.extend(outputs.into_iter().map(|output| (*target, output)));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
