//! The rename lock of the file system, which is a claim on MDT0000, and the walk up from a new parent that is made under it.
//!
//! Whoever gives a directory another parent takes it before all other locks, here or from MDT0000, and gives it back when the
//! operation is applied.

use super::*;
use crate::op::path::WayUp;
use base::limits;
use ldlm::Claimed;

/// Who holds the rename lock of MDT0000 and has not heard of it for so long may have been given up there, for his silence or after a
/// restart, and somebody else may have the lock. MDT0000 is asked each `PING_INTERVAL` at least, so this is reached only when it is away.
const RENAME_LOCK_TRUST: Duration = limits::KERNEL_CACHE_LIFE;
const _: () = assert!(RENAME_LOCK_TRUST.as_millis() * 2 < limits::RECOVERY_WINDOW.as_millis());
const _: () = assert!(RENAME_LOCK_TRUST.as_millis() < limits::SILENT_CLIENT_MAX.as_millis());

/// How a flow holds, or is about to hold, the rename lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) enum RenameHold {
    /// On this MDT, as a claim.
    Local { claim: OpId, is_held: bool },
    /// On MDT0000.
    Remote { id: OperationId, is_held: bool },
}

impl RenameHold {
    pub fn is_held(self) -> bool {
        let (RenameHold::Local { is_held, .. } | RenameHold::Remote { is_held, .. }) = self;
        is_held
    }
}

/// How far the way up from the new parent has been walked.
#[derive(Clone, Copy, Debug)]
pub(in crate::machine) struct Walk {
    directory: Fid,
    moved: Fid,
    pub(super) way: WayUp,
}

/// The rename lock, asked for by another MDT.
#[derive(Debug)]
pub(super) struct RenameClaim {
    op: OpId,
    client: ClientId,
    waiting: Option<Token>,
}

/// Who renames.
impl<M: MetaStore> Mds<M> {
    /// Walks up from a directory to the root under the rename lock; a step over another MDT is a question to it.
    pub(in crate::machine) fn walk(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        directory: Fid,
        moved: Fid,
        out: &mut Vec<Output>,
    ) -> Step {
        if flow.is_claimed {
            // The rename lock comes first of all locks.
            self.release_claims(now, op, flow);
        }
        if let Some(step) = self.take_rename_lock(now, op, flow, out) {
            return step;
        }
        let is_same = |walk: &Walk| walk.directory == directory && walk.moved == moved;
        let mut way = flow.walk.filter(is_same).map_or(WayUp::from(directory), |walk| walk.way);
        while way.at() != Fid::ROOT {
            let at = way.at();
            if at == moved {
                return self.fail(now, op, flow, Status::Invalid, out);
            }
            if at.mdt_index() != Some(self.options.index) {
                flow.walk = Some(Walk { directory, moved, way });
                let (epoch, is_replay) = (self.core.epoch().0, flow.token.replay.is_some());
                let request = Request::Peer(PeerRequest::PeekParent { fid: at, epoch, is_replay });
                return self.ask_mdt(now, op, flow, at.mdt_index(), request, Call::PeekParent { op }, out);
            }
            if self.cross.is_inode_frozen(at) {
                // It may be elsewhere then, with another FID: the way begins anew, and the lock is for others meanwhile.
                self.hold_nothing(now, op, flow, out);
                flow.wait_for(self.frozen_by(&Resources::from([Resource::Inode(at)])));
                return self.await_decision(op, flow);
            }
            match self.local_parent(now, at).and_then(|parent| way.step(parent)) {
                Ok(()) => {}
                Err(Status::Moved) => return self.give_way(now, op, flow, out),
                Err(status) => return self.fail(now, op, flow, status, out),
            }
        }
        flow.walk = None;
        flow.remote.walked.insert((directory, moved));
        self.run_again(op, flow)
    }

    /// # Errors
    /// `NotFound` for one that was removed, `Moved`.
    fn local_parent(&mut self, now: Now, fid: Fid) -> Result<Fid, Status> {
        let remote = Remote::default();
        let store = Arc::clone(self.core.store());
        let cx = self.cx(&*store, now.wall, &remote);
        match path::parent_of(&cx, fid)? {
            Some((parent, _)) => Ok(parent),
            None => Err(cx.why_absent(fid, Status::NotFound)?),
        }
    }

    /// Whether the flow waits for this very lock.
    pub(super) fn wants_rename_lock(&self, op: OpId, id: OperationId) -> bool {
        let rename = self.flows.get(&op).and_then(|flow| flow.rename);
        rename == Some(RenameHold::Remote { id, is_held: false })
    }

    /// `None`: it is held.
    fn take_rename_lock(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        out: &mut Vec<Output>,
    ) -> Option<Step> {
        match flow.rename {
            Some(hold) if hold.is_held() => return None,
            Some(_) => {}
            None if self.options.index == 0 => {
                let claim = self.new_op();
                let claimed =
                    self.locks.claim(now.time, claim, None, vec![rename_need()], &mut self.lock_out);
                let is_held = claimed == Claimed::Ready;
                flow.rename = Some(RenameHold::Local { claim, is_held });
                if is_held {
                    return None;
                }
                self.cross.rename_flows.insert(claim, op);
            }
            None => {
                let id = self.new_operation();
                flow.rename = Some(RenameHold::Remote { id, is_held: false });
                let is_replay = flow.token.replay.is_some();
                let request = Request::Peer(PeerRequest::LockRename { id, is_replay });
                let call = Call::LockRename { op, id };
                return Some(self.ask_mdt(now, op, flow, Some(0), request, call, out));
            }
        }
        flow.stage = Stage::Asking;
        Some(Step::Waits)
    }

    pub(in crate::machine) fn release_rename(&mut self, now: Now, flow: &mut Flow) {
        match flow.rename.take() {
            Some(RenameHold::Local { claim, .. }) => {
                self.cross.rename_flows.remove(&claim);
                self.locks.release(now.time, claim, &mut self.lock_out);
            }
            Some(RenameHold::Remote { id, .. }) => self.cross.to_unlock.push(id),
            None => {}
        }
    }

    /// MDT0000 was restarted and knows nothing of the rename locks that it had given. It gives none before it has heard
    /// from everybody, so whoever held one and has not committed starts anew in time.
    pub(in crate::machine) fn on_rename_locks_lost(&mut self) {
        for flow in self.flows.values_mut() {
            flow.has_lost_rename |= matches!(flow.rename, Some(RenameHold::Remote { .. }));
        }
    }

    /// Whether MDT0000 may have given the rename lock of a flow to somebody else by now, and this MDT has not heard so.
    pub(in crate::machine) fn is_rename_lock_doubtful(&self, now: Now, flow: &Flow) -> bool {
        let is_held = matches!(flow.rename, Some(RenameHold::Remote { is_held: true, .. }));
        let heard_at = || self.peers.last_contact(TargetId::mdt(0));
        is_held && heard_at().is_none_or(|at| now.time.since(at) >= RENAME_LOCK_TRUST)
    }

    /// A claim of the rename lock has become good.
    pub(in crate::machine) fn on_rename_lock_ready(&mut self, now: Now, claim: OpId) {
        if let Some(op) = self.cross.rename_flows.remove(&claim) {
            if let Some(flow) = self.flows.get_mut(&op) {
                flow.rename = Some(RenameHold::Local { claim, is_held: true });
            }
            return self.wake_answered(op);
        }
        let found = self.cross.rename_claims.values_mut().find(|held| held.op == claim);
        if let Some(token) = found.and_then(|held| held.waiting.take()) {
            self.reply(now, token, Ok(Reply::Done));
        }
    }

    /// Rename locks of MDT0000 that flows have given back.
    pub(in crate::machine) fn send_unlocks(&mut self, now: Now, out: &mut Vec<Output>) {
        for id in std::mem::take(&mut self.cross.to_unlock) {
            let request = Request::Peer(PeerRequest::UnlockRename { id });
            self.call(now, TargetId::mdt(0), request, Call::Tell, out);
        }
    }
}

/// MDT0000, which others ask for it.
impl<M: MetaStore> Mds<M> {
    pub(super) fn lock_rename(&mut self, now: Now, token: Token, id: OperationId) {
        if self.options.index != 0 {
            return self.reply(now, token, Err(Status::WrongTarget));
        }
        if self.cross.released.has(id) {
            return self.reply(now, token, Err(part::GIVE_WAY));
        }
        if let Some(held) = self.cross.rename_claims.get_mut(&id) {
            let is_waiting = held.waiting.is_some();
            match is_waiting {
                true => held.waiting = Some(token),
                false => self.reply(now, token, Ok(Reply::Done)),
            }
            return;
        }
        let op = self.new_op();
        let claimed = self.locks.claim(now.time, op, None, vec![rename_need()], &mut self.lock_out);
        let waiting = (claimed == Claimed::Waiting).then_some(token);
        self.cross.rename_claims.insert(id, RenameClaim { op, client: token.client, waiting });
        if claimed == Claimed::Ready {
            self.reply(now, token, Ok(Reply::Done));
        }
    }

    pub(super) fn unlock_rename(&mut self, now: Now, id: OperationId) {
        if let Some(held) = self.cross.rename_claims.remove(&id) {
            self.locks.release(now.time, held.op, &mut self.lock_out);
            if let Some(token) = held.waiting {
                // Else it would be asked for again, for ever, by who does not know any more why.
                self.reply(now, token, Err(part::GIVE_WAY));
            }
        }
        self.cross.released.note(id);
    }

    pub(in crate::machine) fn drop_rename_locks_of(&mut self, now: Now, client: ClientId) {
        let claims = self.cross.rename_claims.iter();
        let ids: Vec<OperationId> =
            claims.filter(|(_, held)| held.client == client).map(|(id, _)| *id).collect();
        for id in ids {
            self.unlock_rename(now, id);
        }
    }
}

fn rename_need() -> Need {
    Need { resource: Resource::Rename, mode: LockMode::Ex, policy: LockPolicy::Plain }
}
