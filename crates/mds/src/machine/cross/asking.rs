//! What an operation has to know of other MDTs before it runs: a name there, a FID of theirs, an inode that is to move. A flow asks one
//! question at a time, and runs again with the answer (`Remote`).

use super::*;
use crate::op::{Peeked, PeekedDirectory};
use wire::session::features;

impl<M: MetaStore> Mds<M> {
    /// Asks the MDT of a directory what a name leads to.
    pub(in crate::machine) fn peek(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        parent: Fid,
        name: Vec<u8>,
        out: &mut Vec<Output>,
    ) -> Step {
        let (epoch, is_replay) = (self.core.epoch().0, flow.token.replay.is_some());
        let request = Request::Peer(PeerRequest::PeekName { parent, name, epoch, is_replay });
        self.ask_mdt(now, op, flow, parent.mdt_index(), request, Call::Peek { op }, out)
    }

    /// Gets a FID for a directory that an operation makes.
    pub(in crate::machine) fn need_fid(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        mdt: u16,
        out: &mut Vec<Output>,
    ) -> Step {
        if mdt != self.options.index {
            if self.peers.features_of(TargetId::mdt(mdt)) & features::STREAMS != 0 {
                return self.need_given_fid(now, op, flow, mdt, out);
            }
            let request = Request::Peer(PeerRequest::NewFid);
            return self.ask_mdt(now, op, flow, Some(mdt), request, Call::NewFid { op, mdt }, out);
        }
        match self.fids.allocate() {
            Ok(fid) => {
                flow.remote.fids.insert(mdt, fid);
                self.run_again(op, flow)
            }
            Err(status) => self.fail(now, op, flow, status, out),
        }
    }

    /// Asks the MDT of a directory what belongs together with it.
    pub(in crate::machine) fn peek_directory(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        fid: Fid,
        out: &mut Vec<Output>,
    ) -> Step {
        let (epoch, is_replay) = (self.core.epoch().0, flow.token.replay.is_some());
        let request = Request::Peer(PeerRequest::PeekDirectory { fid, epoch, is_replay });
        self.ask_mdt(now, op, flow, fid.mdt_index(), request, Call::PeekDirectory { op, fid }, out)
    }

    /// Asks for all of an inode that is to move here.
    pub(in crate::machine) fn peek_whole(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        fid: Fid,
        out: &mut Vec<Output>,
    ) -> Step {
        let request = Request::Peer(PeerRequest::PeekWhole { fid, epoch: self.core.epoch().0 });
        self.ask_mdt(now, op, flow, fid.mdt_index(), request, Call::PeekWhole { op, fid }, out)
    }

    /// The same of a regular file.
    pub(in crate::machine) fn peek_file(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        fid: Fid,
        out: &mut Vec<Output>,
    ) -> Step {
        let Some(mdt) = fid.mdt_index() else { return self.fail(now, op, flow, Status::Stale, out) };
        let known = self.peers.features_of(TargetId::mdt(mdt));
        // Nothing is known of one that was never connected.
        if known != 0 && known & features::FILE_MIGRATION == 0 {
            return self.fail(now, op, flow, Status::NotSupported, out);
        }
        let request = Request::Peer(PeerRequest::PeekFile { fid, epoch: self.core.epoch().0 });
        self.ask_mdt(now, op, flow, Some(mdt), request, Call::PeekFile { op, fid }, out)
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn ask_mdt(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        mdt: Option<u16>,
        request: Request,
        call: Call,
        out: &mut Vec<Output>,
    ) -> Step {
        let Some(mdt) = mdt else { return self.fail(now, op, flow, Status::Stale, out) };
        flow.wait_for([TargetId::mdt(mdt)]);
        // Who has not sent it does not leave it in a queue.
        let is_held = flow.rename.is_some_and(RenameHold::is_held);
        let is_hopeless = is_held && self.peers.is_silent(now.time, TargetId::mdt(mdt));
        if is_hopeless {
            return self.put_off(now, op, flow, out);
        }
        if self.is_behind(mdt) {
            return self.back_off(now, op, flow, out);
        }
        if self.call(now, TargetId::mdt(mdt), request, call, out) {
            self.ask(now, op, flow)
        } else {
            self.fail(now, op, flow, Status::NoDevice, out)
        }
    }

    pub(super) fn on_flow_answer(
        &mut self,
        now: Now,
        op: OpId,
        call: &Call,
        result: Result<Reply, Status>,
        out: &mut Vec<Output>,
    ) {
        let Some(mut flow) = self.take_flow(op, Stage::Asking) else { return };
        let result = result.and_then(|reply| learn(&mut flow, call, reply));
        let step = match result {
            Ok(()) => self.run_again(op, &mut flow),
            Err(part::GIVE_WAY) => self.give_way(now, op, &mut flow, out),
            // A directory on the way up has moved since its child was asked for its parent.
            Err(Status::Moved) if matches!(call, Call::PeekParent { .. }) => {
                self.give_way(now, op, &mut flow, out)
            }
            Err(status) => self.fail(now, op, &mut flow, status, out),
        };
        self.keep_flow(op, flow, step);
    }
}

/// Notes in the flow what another MDT answered.
fn learn(flow: &mut Flow, call: &Call, reply: Reply) -> Result<(), Status> {
    match (call, reply) {
        (Call::Peek { .. }, Reply::Peer(PeerReply::Name { entry, parent_attr })) => {
            let Request::Mdt(
                MdtRequest::Rename { parent, name, .. } | MdtRequest::Migrate { parent, name, .. },
            ) = &flow.request
            else {
                return Err(Status::ProtocolError);
            };
            let key = (*parent, name.clone());
            let led_there = flow.remote.peeked.get(&key).is_some_and(|before| before.entry == entry);
            flow.is_confirmed = led_there && flow.concluded.is_some();
            flow.remote.peeked.insert(key, Peeked { entry, parent_attr });
            Ok(())
        }
        (Call::PeekParent { .. }, Reply::Peer(PeerReply::Parent { fid })) => {
            let walk = flow.walk.as_mut().ok_or(Status::ProtocolError)?;
            // A directory without a parent was removed.
            walk.way.step(fid.ok_or(Status::NotFound)?)
        }
        (Call::NewFid { mdt, .. }, Reply::Peer(PeerReply::NewFid { fid })) => {
            if fid.mdt_index() != Some(*mdt) {
                return Err(Status::ProtocolError);
            }
            flow.remote.fids.insert(*mdt, fid);
            Ok(())
        }
        (Call::PeekDirectory { fid, .. }, Reply::Peer(PeerReply::Directory { stripes, master })) => {
            flow.remote.directories.insert(*fid, PeekedDirectory { stripes, master });
            Ok(())
        }
        (Call::PeekWhole { fid, .. }, Reply::Peer(PeerReply::Whole(whole))) => {
            if whole.attr.fid != *fid {
                return Err(Status::ProtocolError);
            }
            flow.remote.wholes.insert(*fid, whole);
            Ok(())
        }
        (Call::PeekFile { fid, .. }, Reply::Peer(PeerReply::File(file))) => {
            if file.attr.fid != *fid {
                return Err(Status::ProtocolError);
            }
            flow.remote.files.insert(*fid, file);
            Ok(())
        }
        (Call::LockRename { .. }, Reply::Done) => {
            if let Some(RenameHold::Remote { is_held, .. }) = &mut flow.rename {
                *is_held = true;
            }
            Ok(())
        }
        _ => Err(Status::ProtocolError),
    }
}
