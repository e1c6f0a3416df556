//! What is told of changes that were answered, and that a target has lost.

use crate::machine::Event;
use crate::state::State;
use base::{Fid, Status, TargetId};
use std::collections::BTreeSet;
use wire::mdt::CreateRequest;
use wire::{MdtRequest, OstRequest, Request};

/// The inodes that a request has changed, and the directories whose names it has: fsync(2) of each of them promises that it stays.
///
/// Not those of which only the MDT takes note: a size that is lost is measured again (`ReportSize`), and an open file opened again.
fn changed_by(request: &Request) -> Vec<Fid> {
    match request {
        Request::Ost(OstRequest::Write { object, .. } | OstRequest::Change { object, .. }) => {
            vec![object.fid]
        }
        Request::Mdt(request) => changed_on_mdt(request),
        _ => Vec::new(),
    }
}

fn changed_on_mdt(request: &MdtRequest) -> Vec<Fid> {
    match request {
        MdtRequest::Setattr { fid, .. }
        | MdtRequest::Setxattr { fid, .. }
        | MdtRequest::Removexattr { fid, .. }
        | MdtRequest::SetLayout { fid, .. }
        | MdtRequest::SetDefaultStriping { fid, .. }
        | MdtRequest::Close { fid, data: Some(_), .. } => vec![*fid],
        MdtRequest::Link { fid, parent, .. } => vec![*fid, *parent],
        MdtRequest::Create(create) | MdtRequest::MakeStriped { create, .. } => {
            let CreateRequest { fid, parent, .. } = create;
            fid.iter().copied().chain([*parent]).collect()
        }
        MdtRequest::Unlink { parent, .. } | MdtRequest::Rmdir { parent, .. } => vec![*parent],
        MdtRequest::RemoveAgain { parent, met, .. } => vec![met.fid, *parent],
        MdtRequest::Rename { parent, new_parent, .. } => vec![*parent, *new_parent],
        MdtRequest::RenameAgain { parent, new_parent, met, .. } => {
            [met.fid].into_iter().chain(met.replaced).chain([*parent, *new_parent]).collect()
        }
        _ => Vec::new(),
    }
}

/// What a client names to a restarted target of what it holds. If that is refused, who has the file open has lost it.
fn held_by(request: &Request) -> Option<Fid> {
    match request {
        Request::Mdt(
            MdtRequest::Open { fid, .. }
            | MdtRequest::Reopen { fid, .. }
            | MdtRequest::ReplayFlocks { fid, .. },
        ) => Some(*fid),
        _ => None,
    }
}

impl State {
    /// As in Linux each descriptor that is open now is told once, also one that may only read: it can be asked for fsync(2). If nobody
    /// has heard of it, the next one that is asked tells it. A stripe of a directory is open as the whole.
    pub(crate) fn fail_handles(&mut self, fid: Fid, status: Status) {
        let whole = self.nodes.whole_of(fid);
        for handle in self.handles.values_mut().filter(|handle| handle.fid == whole) {
            handle.error = Some(status);
            handle.error_at_close = Some(status);
        }
        self.untold.note(whole, status);
    }

    /// An MDT has dropped advisory locks: the same to those only through which they were taken.
    pub(crate) fn fail_lost_flocks(&mut self, mdt: TargetId) {
        let handles = self.handles.iter().filter(|(_, handle)| State::mdt(handle.fid) == mdt);
        let lost: Vec<u64> = handles.map(|(fh, _)| *fh).filter(|fh| self.has_lost_flock(*fh)).collect();
        for fh in lost {
            if let Some(handle) = self.handles.get_mut(&fh) {
                handle.error = Some(Status::Io);
                handle.error_at_close = Some(Status::Io);
            }
        }
    }

    /// A target has evicted this client, which replays nothing therefore, and has lost these with a restart.
    pub(crate) fn on_lost(&mut self, target: TargetId, requests: &[Request]) {
        let changed = requests.iter().map(changed_by).filter(|fids| !fids.is_empty());
        let (mut request_count, mut fids) = (0, BTreeSet::new());
        for of_request in changed {
            request_count += 1;
            fids.extend(of_request);
        }
        for fid in fids {
            self.fail_handles(fid, Status::Io);
        }
        if request_count > 0 {
            self.event(Event::Lost { target, request_count });
        }
    }

    /// A replay was refused: it was acknowledged, and is lost.
    pub(crate) fn on_replay_failed(&mut self, target: TargetId, request: &Request, status: Status) {
        if status == Status::Stale && self.is_closing(request) {
            return;
        }
        for fid in changed_by(request).into_iter().chain(held_by(request)) {
            self.fail_handles(fid, Status::Io);
        }
        if let Request::Mdt(MdtRequest::ReplayFlocks { fid, locks }) = request
            && let Some(node) = self.nodes.by_fid_mut(*fid)
        {
            node.data.advisory.lose(locks);
        }
        self.event(Event::ReplayRefused { target, status });
    }

    /// A close that changes no row leaves no answer behind a restart. Its client names the handle as open, and finds the file gone
    /// as it should be when others have closed it since.
    fn is_closing(&self, request: &Request) -> bool {
        let Request::Mdt(MdtRequest::Reopen { open, .. }) = request else { return false };
        self.closing_handles.contains_key(&open.handle.0)
    }
}
