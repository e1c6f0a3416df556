//! Requests as they come in: to whom each goes, and those that are answered without a flow (space, syncs, file locks, locks).

use super::{Mds, Output, accesses};
use crate::flock::Locked;
use crate::tx::Tx;
use base::{ClientId, Fid, Now, OpenHandle, Status};
use bytes::Bytes;
use ldlm::Enqueued;
use store::MetaStore;
use target::{EvictReason, Token, Work};
use wire::lock::bits;
use wire::mdt::{ACCESSES_MAX, CLOSES_MAX, Statfs};
use wire::{LockPolicy, LockRequest, MdtReply, MdtRequest, Reply, Request, Resource};

impl<M: MetaStore> Mds<M> {
    pub(super) fn on_work(&mut self, now: Now, work: Work, out: &mut Vec<Output>) {
        let Some(Work { token, request, data }) = self.try_defer(work) else { return };
        match request {
            request @ Request::Ost(_) => self.on_data_work(now, Work { token, request, data }),
            Request::Mdt(request) => self.on_mdt_request(now, token, request, data, out),
            Request::Lock(request) => self.on_lock_request(now, token, request),
            Request::Peer(request) => self.on_peer_request(now, token, request, out),
            _ => self.reply(now, token, Err(Status::ProtocolError)),
        }
    }

    fn on_mdt_request(
        &mut self,
        now: Now,
        token: Token,
        mut request: MdtRequest,
        data: Bytes,
        out: &mut Vec<Output>,
    ) {
        let accesses = accesses::take(&mut request);
        if accesses.len() > ACCESSES_MAX {
            return self.reply(now, token, Err(Status::ProtocolError));
        }
        self.note_accesses(now, token.client, accesses, out);
        if let MdtRequest::Open { closes, .. } | MdtRequest::Closes { handles: closes, .. } = &mut request {
            if closes.len() > CLOSES_MAX {
                return self.reply(now, token, Err(Status::ProtocolError));
            }
            let closes = std::mem::take(closes);
            self.close_read(now, token.client, &closes, out);
        }
        match request {
            MdtRequest::Closes { .. } => self.reply(now, token, Ok(Reply::Done)),
            MdtRequest::Statfs => {
                let statfs = self.statfs();
                self.reply(now, token, Ok(Reply::Mdt(MdtReply::Statfs(statfs))));
            }
            MdtRequest::Sync => {
                let up_to = self.core.last_transno();
                self.core.reply_when_durable(now, token, up_to, Reply::Done, &mut self.core_out);
            }
            MdtRequest::Flock { fid, lock, can_wait } => {
                let mut granted = Vec::new();
                let client = token.client;
                let result = self.flocks.lock(now.wall, fid, client, lock, can_wait, token, &mut granted);
                self.on_flocks_granted(now, granted);
                match result {
                    Locked::Now(token) => self.reply(now, token, Ok(Reply::Done)),
                    Locked::Refused(token, status) => self.reply(now, token, Err(status)),
                    Locked::Wait(_) if lock.is_flock => {}
                    Locked::Wait(wait) => self.on_flock_waits(now, wait, out),
                }
            }
            MdtRequest::FlockCancel { fid, owner, is_flock } => {
                for waiting in self.flocks.cancel(fid, token.client, owner, is_flock) {
                    self.reply(now, waiting, Err(Status::Interrupted));
                }
                self.reply(now, token, Ok(Reply::Done));
            }
            MdtRequest::Getlk { fid, lock } => {
                let found = self.flocks.test(fid, token.client, lock);
                self.reply(now, token, Ok(Reply::Mdt(MdtReply::Flock(found))));
            }
            // Whoever has none yet asks for them one by one, and waits.
            MdtRequest::ReplayFlocks { .. } if token.replay.is_none() => {
                self.reply(now, token, Err(Status::ProtocolError));
            }
            MdtRequest::ReplayFlocks { fid, locks } => {
                let result = self.flocks.replay(fid, token.client, &locks);
                self.reply(now, token, result.map(|()| Reply::Done));
            }
            request => {
                let (request, met) = request.split_met();
                self.start_flow(now, token, Request::Mdt(request), met, data);
            }
        }
    }

    /// Handles that a client has only read through. It waits for nothing: their client may hold a lock until this is done.
    fn close_read(
        &mut self,
        now: Now,
        client: ClientId,
        handles: &[(Fid, OpenHandle)],
        out: &mut Vec<Output>,
    ) {
        let mut files = Vec::new();
        for (fid, handle) in handles {
            let open = self.opens.get(client, *handle);
            if open.is_some_and(|(open_fid, args)| open_fid == *fid && !args.write) {
                self.opens.close(client, *handle);
                files.push(*fid);
            }
        }
        if !self.core.is_recovering() {
            self.sweep_orphans(now, &files, out);
        }
    }

    pub(super) fn on_flocks_granted(&mut self, now: Now, tokens: Vec<Token>) {
        for token in tokens {
            self.reply(now, token, Ok(Reply::Done));
        }
    }

    pub(super) fn statfs(&self) -> Statfs {
        target::statfs_of(&self.core.store().space(), self.options.device)
    }

    fn on_lock_request(&mut self, now: Now, token: Token, request: LockRequest) {
        match request {
            LockRequest::Enqueue { lock, resource, mode, policy, can_wait } => {
                let policy = self.without_unknown_size(resource, policy);
                if let Resource::Object(object) = resource
                    && let Err(status) = self.check_data(object)
                {
                    return self.reply(now, token, Err(status));
                }
                let holder = token.client;
                let request = ldlm::EnqueueRequest { holder, lock, resource, mode, policy, can_wait };
                match self.locks.enqueue(now.time, request, &mut self.lock_out) {
                    Enqueued::Granted(grant) => self.reply(now, token, Ok(Reply::Locked(grant))),
                    Enqueued::Denied(status) => self.reply(now, token, Err(status)),
                    Enqueued::Waiting => {
                        if let Some(former) = self.enqueues.insert((holder, lock), token) {
                            self.reply(now, former, Err(Status::Again));
                        }
                    }
                }
            }
            LockRequest::Cancel { locks } => {
                for lock in &locks {
                    if let Some(waiting) = self.enqueues.remove(&(token.client, *lock)) {
                        self.reply(now, waiting, Err(Status::Interrupted));
                    }
                }
                match self.give_up(now, token.client, &locks) {
                    None => self.reply(now, token, Ok(Reply::Done)),
                    Some(up_to) => {
                        self.core.reply_when_durable(now, token, up_to, Reply::Done, &mut self.core_out);
                    }
                }
            }
            LockRequest::Replay { locks } => {
                self.note_named(token.client, &locks);
                let refused = self.locks.replay(token.client, &locks);
                self.reply(now, token, Ok(Reply::Done));
                if !refused.is_empty() {
                    self.core.evict(now, token.client, EvictReason::LocksRefused, &mut self.core_out);
                }
            }
        }
    }

    /// Nobody may rely on a size that is not known.
    fn without_unknown_size(&self, resource: Resource, policy: LockPolicy) -> LockPolicy {
        match (resource, policy) {
            (Resource::Inode(fid), LockPolicy::Bits(mask)) if mask & (bits::UPDATE | bits::OPEN) != 0 => {
                let tx = Tx::new(&**self.core.store());
                match tx.inode(fid) {
                    Ok(Some(inode)) if inode.attr.is_size_known => policy,
                    _ => LockPolicy::Bits(mask & !(bits::UPDATE | bits::OPEN)),
                }
            }
            _ => policy,
        }
    }
}
