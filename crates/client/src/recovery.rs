//! What a client does about targets that were restarted, that evicted it, or that it has not heard for too long.

use crate::machine::{Event, Notify};
use crate::nodes::Node;
use crate::state::State;
use base::{Extent, Fid, Status, TargetId, TargetKind, Time};
use bytes::Bytes;
use wire::{LockRequest, MdtRequest, OstRequest, Request};

/// Locks in one replay request.
const REPLAY_LOCK_COUNT: usize = 512;
/// Advisory locks in one replay request: a quarter of the longest frame.
const REPLAY_FLOCK_COUNT: usize = 8192;

/// The file that a request changes, or whose name: whoever has it open is told when that is lost.
fn changed_by(request: &Request) -> Option<Fid> {
    match request {
        Request::Ost(OstRequest::Write { object, .. } | OstRequest::Change { object, .. }) => {
            Some(object.fid)
        }
        Request::Mdt(
            MdtRequest::Setattr { fid, .. }
            | MdtRequest::Setxattr { fid, .. }
            | MdtRequest::Removexattr { fid, .. }
            | MdtRequest::SetLayout { fid, .. }
            | MdtRequest::Link { fid, .. }
            | MdtRequest::Open { fid, .. }
            | MdtRequest::Reopen { fid, .. }
            | MdtRequest::ReplayFlocks { fid, .. }
            | MdtRequest::Close { fid, data: Some(_), .. },
        ) => Some(*fid),
        Request::Mdt(MdtRequest::Create(create) | MdtRequest::MakeStriped { create, .. }) => create.fid,
        Request::Mdt(MdtRequest::RemoveAgain { met, .. } | MdtRequest::RenameAgain { met, .. }) => {
            Some(met.fid)
        }
        _ => None,
    }
}

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

    /// The target has dropped this client: so does the client with everything that it had from there. Acknowledged
    /// writes that no crash-proof state holds are lost, and whoever has the file open is told once.
    pub(crate) fn on_evicted(&mut self, target: TargetId) {
        self.event(Event::Evicted(target));
        let Some(connection) = self.connections.get_mut(&target) else { return };
        connection.history.add(self.now.wall, "EVICTED");
        connection.locks.clear();
        connection.expected_locks.clear();
        // Dropped senders say `Evicted`.
        connection.commit_waiters.clear();
        connection.eviction_count += 1;
        connection.grant_bytes = 0;
        let last_committed = connection.committed;
        self.wake_revocations(target);
        if target.kind == TargetKind::Mdt {
            self.give_up_writes(target);
            self.forget_mdt(target);
        }
        // An MDT has changed more than data; whose data it has none of has lost none.
        let has_data =
            |node: &Node| node.layout().is_some_and(|layout| layout.targets().any(|on| on == target));
        let is_lost =
            |node: &Node| node.changes.newest.get(&target).is_some_and(|last| *last > last_committed);
        let lost = self.nodes.iter().filter(|(_, node)| is_lost(node) && has_data(node));
        let lost: Vec<Fid> = lost.map(|(_, node)| node.fid()).collect();
        for fid in lost {
            self.fail_handles(fid, Status::Io);
        }
        self.lose_dirty(target);
        self.lose_stored(target);
        for (_, node) in self.nodes.iter_mut() {
            if let Some(changes) = node.changes.known_mut() {
                changes.newest.remove(&target);
            }
        }
    }

    /// As in Linux each descriptor that is open now is told once, also one that may only read: it can be asked for fsync(2). If nobody
    /// has heard of it, the next one that is asked tells it.
    pub(crate) fn fail_handles(&mut self, fid: Fid, status: Status) {
        for handle in self.handles.values_mut().filter(|handle| handle.fid == fid) {
            handle.error = Some(status);
        }
        self.untold.note(fid, status);
    }

    /// A replay was refused: it was acknowledged, and is lost.
    pub(crate) fn on_replay_failed(&mut self, target: TargetId, request: &Request, status: Status) {
        if status == Status::Stale && self.is_closing(request) {
            return;
        }
        if let Some(fid) = changed_by(request) {
            self.fail_handles(fid, Status::Io);
        }
        self.event(Event::ReplayRefused { target, status });
    }

    /// A close that changes no row leaves no answer behind a restart. Its client names the handle as open, and finds the file gone
    /// as it should be when others have closed it since.
    fn is_closing(&self, request: &Request) -> bool {
        let Request::Mdt(MdtRequest::Reopen { open, .. }) = request else { return false };
        self.closing_handles.contains_key(&open.handle.0)
    }

    /// After an eviction: what was open and locked there is not any more.
    fn forget_mdt(&mut self, target: TargetId) {
        let is_here = |fid: Fid| fid.mdt_index().map(TargetId::mdt) == Some(target);
        self.forget_facts(target);
        for (_, node) in self.nodes.iter_mut().filter(|(_, node)| is_here(node.fid())) {
            if let Some(advisory) = node.data.known_mut().and_then(|data| data.advisory.known_mut()) {
                advisory.clear();
            }
        }
        for handle in self.handles.values_mut().filter(|handle| is_here(handle.fid) && !handle.is_directory) {
            handle.is_lost = true;
            if handle.args.write {
                // Written since, perhaps, without the MDT counting a writer: it must not go on believing a size.
                self.to_revive.push(handle.args.handle.0);
                self.lost_writers.insert(handle.args.handle.0);
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
