//! The participant's side: what other MDTs have prepared here.

use super::*;
use crate::machine::streams::mdt_of;
use bytes::Bytes;

/// So many inodes of what is to be replayed are looked at with each question; while they are more, the answer is undecided.
const LOOKED_AT_MAX: usize = 64;

impl<M: MetaStore> Mds<M> {
    pub(in crate::machine) fn on_peer_request(
        &mut self,
        now: Now,
        token: Token,
        request: PeerRequest,
        out: &mut Vec<Output>,
    ) {
        let Some(peer) = mdt_of(token.client) else {
            return self.reply(now, token, Err(Status::NotPermitted));
        };
        if self.core.is_recovering() && !passes_recovery(&request) {
            return self.reply(now, token, Err(part::GIVE_WAY));
        }
        match request {
            // Whoever asks knows that, and listens to no answer.
            PeerRequest::Prepare { id, .. } if self.cross.decided.has(id) => {
                self.reply(now, token, Err(part::GIVE_WAY));
            }
            PeerRequest::Prepare { id, .. } if self.cross.prepared.contains_key(&id) => {
                self.answer_prepared(now, token, id);
            }
            PeerRequest::Prepare { .. }
            | PeerRequest::PeekName { .. }
            | PeerRequest::PeekParent { .. }
            | PeerRequest::PeekWhole { .. }
            | PeerRequest::PeekFile { .. }
            | PeerRequest::PeekDirectory { .. } => {
                self.start_flow(now, token, Request::Peer(request), None, Bytes::new());
            }
            // Its directory may come in a stream all the same: who asks like this does not know yet what this MDT can do.
            PeerRequest::NewFid => {
                let one = |first, _| PeerReply::NewFid { fid: first };
                self.give_fids(now, token, peer, 1, one);
            }
            PeerRequest::Decide { id, is_commit } => {
                if !is_commit {
                    self.drop_prepare_flow(now, id, out);
                }
                let is_awaited = self.cross.is_decision_awaited(id, &token);
                match self.execute_decision(now, id, is_commit, out) {
                    Ok(()) if is_commit => self.answer_executed(now, token, is_awaited),
                    // Should this be lost, it is undecided again, and asked about.
                    Ok(()) => self.reply(now, token, Ok(Reply::Done)),
                    Err(status) => self.reply(now, token, Err(status)),
                }
            }
            PeerRequest::Ask { id } => self.answer_ask(now, token, peer, id),
            PeerRequest::LockRename { id, .. } => self.lock_rename(now, token, id),
            PeerRequest::UnlockRename { id } => {
                self.unlock_rename(now, id);
                self.reply(now, token, Ok(Reply::Done));
            }
            PeerRequest::NewFids { count } => {
                let several = |first, count| PeerReply::NewFids { first, count };
                self.give_fids(now, token, peer, count, several);
            }
            PeerRequest::Hold { epoch, items } => self.hold(now, token, peer, epoch, items),
            PeerRequest::Release { epoch, up_to } => self.release(now, token, peer, (epoch, up_to), out),
            PeerRequest::TakeBack { epoch } => {
                let (witnesses, _) = self.held_back(peer, epoch, None);
                self.reply(now, token, Ok(Reply::Peer(PeerReply::HeldBack { witnesses })));
            }
            PeerRequest::TakeBackPart { epoch, after } => {
                let (witnesses, next) = self.held_back(peer, epoch, after);
                self.reply(now, token, Ok(Reply::Peer(PeerReply::HeldBackPart { witnesses, next })));
            }
            PeerRequest::Forget { epoch } => self.forget_held(now, token, peer, epoch),
            PeerRequest::IsComing { fid, is_replay } => {
                self.answer_is_coming(now, token, peer, fid, is_replay);
            }
            PeerRequest::FlockWaits { owners } => self.answer_flock_waits(now, token, owners),
            PeerRequest::RefuseFlock { wait } => {
                self.refuse_flock(now, wait);
                self.reply(now, token, Ok(Reply::Done));
            }
        }
    }

    /// Writes down what was prepared and freezes it. The answer leaves when that is durable.
    pub(in crate::machine) fn finish_prepare(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        run: Run,
        out: &mut Vec<Output>,
    ) -> Step {
        let Request::Peer(PeerRequest::Prepare { id, parts, uid, gid, groups, .. }) = &flow.request else {
            return self.fail(now, op, flow, Status::ProtocolError, out);
        };
        let (id, mut parts) = (*id, parts.clone());
        let asker = Asker { uid: *uid, gid: *gid, groups: groups.clone() };
        let made = match &run.result {
            Ok(Reply::Peer(PeerReply::Prepared { fid, .. })) => *fid,
            _ => None,
        };
        for part in &mut parts {
            if let Part::MakeDirectory { attr, .. } = part {
                attr.fid = made.unwrap_or(attr.fid);
            }
        }
        let row = Prepare { parts, asker };
        let mut batch = Batch::new();
        batch.put(rows::PREPARES, &rows::operation_key(id), &rows::encode(&row));
        // In one transaction: whatever is left of it after a crash, nobody gets in between.
        let void = self.cross.void_among(id, &run.touched);
        for old in &void {
            batch.delete(rows::PREPARES, &rows::operation_key(*old));
        }
        let transno = match self.core.apply_internal(batch) {
            Ok(transno) => transno,
            Err(error) => return self.fail(now, op, flow, error.status(), out),
        };
        void.into_iter().for_each(|old| self.thaw(now, old, out));
        let session = Some(flow.token.session);
        self.freeze(now.time.after(ASK_AFTER), id, (op, transno, session), run.changed, &row.parts);
        if let Ok(reply) = run.result {
            self.core.reply_when_durable(now, flow.token, transno, reply, &mut self.core_out);
        }
        // The claims stay, under the number of this flow.
        flow.is_claimed = false;
        self.end(now, op, flow);
        Step::Ended
    }

    /// The coordinator keeps its decision until this is durable.
    fn answer_executed(&mut self, now: Now, token: Token, is_awaited: bool) {
        let (up_to, out) = (self.core.last_transno(), &mut self.core_out);
        match is_awaited {
            true => self.core.reply_when_durable(now, token, up_to, Reply::Done, out),
            false => self.core.reply_when_synced(now, token, up_to, Reply::Done, out),
        }
    }

    fn freeze(
        &mut self,
        ask_at: Time,
        id: OperationId,
        (op, transno, session): (OpId, Transno, Option<u64>),
        changed: Resources,
        parts: &[Part],
    ) {
        let (mut frozen, leaving) = (changed, leaving(parts));
        frozen.extend(linked(parts));
        for resource in &frozen {
            self.cross.frozen.insert(*resource, id);
        }
        let prepared = Prepared { op, transno, session, frozen, leaving, ask_at, is_asked: false };
        self.cross.prepared.insert(id, prepared);
    }

    /// The request came again.
    fn answer_prepared(&mut self, now: Now, token: Token, id: OperationId) {
        let transno = self.cross.prepared.get(&id).map_or(Transno::ZERO, |prepared| prepared.transno);
        let fid = match self.prepare_row(id) {
            Ok(Some(row)) => row.parts.iter().find_map(|part| match part {
                Part::MakeDirectory { attr, .. } => Some(attr.fid),
                _ => None,
            }),
            Ok(None) => return self.reply(now, token, Err(part::GIVE_WAY)),
            Err(status) => return self.reply(now, token, Err(status)),
        };
        let attrs = self.attrs_of_parts(id).unwrap_or_default();
        let reply = Reply::Peer(PeerReply::Prepared { fid, attrs });
        self.core.reply_when_durable(now, token, transno, reply, &mut self.core_out);
    }

    fn attrs_of_parts(&self, id: OperationId) -> Result<Vec<base::Attr>, Status> {
        let Some(row) = self.prepare_row(id)? else { return Ok(Vec::new()) };
        let tx = crate::tx::Tx::new(&**self.core.store());
        let mut attrs = Vec::new();
        for fid in row.parts.iter().filter_map(part::owner_of) {
            attrs.extend(tx.inode(fid)?.map(|inode| inode.attr));
        }
        Ok(attrs)
    }

    fn prepare_row(&self, id: OperationId) -> Result<Option<Prepare>, Status> {
        let value = self.core.store().get(rows::PREPARES, &rows::operation_key(id));
        value.map_err(|error| error.status())?.map(|bytes| rows::decode(&bytes)).transpose()
    }

    /// Executes what was prepared, or forgets it, and lets everybody go on who waited for that.
    fn execute_decision(
        &mut self,
        now: Now,
        id: OperationId,
        is_commit: bool,
        out: &mut Vec<Output>,
    ) -> Result<(), Status> {
        if !self.cross.prepared.contains_key(&id) {
            self.cross.decided.note(id);
            return Ok(());
        }
        let row = self.prepare_row(id)?;
        let remote = Remote::default();
        let store = Arc::clone(self.core.store());
        let mut cx = self.cx(&*store, now.wall, &remote);
        if let Some(mut row) = row.filter(|_| is_commit)
            && let Err(status) = run_parts(&mut cx, &mut row.parts, &row.asker)
        {
            // Prepared and frozen, so this is damage; the row stays, and the coordinator asks again.
            let what = "a decided operation was not executed";
            out.push(Output::Event(MdsEvent::Failed { what, fid: Fid::default(), status }));
            return Err(status);
        }
        cx.tx.delete(rows::PREPARES, rows::operation_key(id));
        let destroys = cx.tx.keys_put(rows::DESTROYS);
        let changed = cx.tx.changed();
        let batch = cx.tx.into_batch();
        let transno = self.core.apply_internal(batch).map_err(|error| error.status())?;
        self.peers.note_destroys(transno, destroys);
        // Nobody waits for what is there now.
        self.streams.are_made(&changed);
        self.thaw(now, id, out);
        Ok(())
    }

    fn thaw(&mut self, now: Now, id: OperationId, out: &mut Vec<Output>) {
        let Some(prepared) = self.cross.prepared.remove(&id) else { return };
        self.cross.decided.note(id);
        for resource in &prepared.frozen {
            self.cross.frozen.remove(resource);
        }
        if !self.core.is_recovering() {
            // Closed for the last time meanwhile.
            let fids = prepared.frozen.iter().filter_map(|resource| match resource {
                Resource::Inode(fid) => Some(*fid),
                _ => None,
            });
            self.sweep_orphans(now, &fids.collect::<Vec<_>>(), out);
        }
        self.locks.release(now.time, prepared.op, &mut self.lock_out);
        self.wake_parked();
    }

    /// Something is not frozen any more.
    pub(in crate::machine) fn wake_parked(&mut self) {
        for op in std::mem::take(&mut self.parked) {
            self.wake(op);
        }
    }

    /// Whether all that is frozen among `touched` was prepared for an older incarnation of the MDT that asks.
    pub(in crate::machine) fn is_frozen_for_asker_only(
        &self,
        client: ClientId,
        epoch: u64,
        touched: &Resources,
    ) -> bool {
        let Endpoint::Target(asker) = client.endpoint() else { return false };
        let is_void = |id: &OperationId| asker == TargetId::mdt(id.mdt_index) && id.epoch < epoch;
        touched.iter().filter_map(|resource| self.cross.frozen.get(resource)).all(is_void)
    }

    /// What a former incarnation of a coordinator has prepared of this is void, and claims nothing any more. It stays frozen until something
    /// takes its place.
    pub(in crate::machine) fn release_void_claims(
        &mut self,
        now: Now,
        new: OperationId,
        touched: &Resources,
    ) {
        for old in self.cross.void_among(new, touched) {
            if let Some(prepared) = self.cross.prepared.get(&old) {
                self.locks.release(now.time, prepared.op, &mut self.lock_out);
            }
        }
    }

    /// A coordinator that was restarted does what it had lost again: what it prepared before, in an incarnation whose
    /// decisions we all know, is void. True if that was all that stood in the way.
    pub(in crate::machine) fn supersede(
        &mut self,
        now: Now,
        new: OperationId,
        touched: &Resources,
        out: &mut Vec<Output>,
    ) -> bool {
        let in_the_way: BTreeSet<OperationId> =
            touched.iter().filter_map(|resource| self.cross.frozen.get(resource).copied()).collect();
        let is_void = |old: &OperationId| old.mdt_index == new.mdt_index && old.epoch < new.epoch;
        if !in_the_way.iter().all(is_void) {
            return false;
        }
        in_the_way.into_iter().all(|old| self.execute_decision(now, old, false, out).is_ok())
    }

    /// Reads back what earlier incarnations prepared and decided.
    pub(in crate::machine) fn load_operations(&mut self) -> Result<(), Status> {
        let now = self.options.now;
        let (prepares, decisions) =
            (self.operation_rows(rows::PREPARES)?, self.operation_rows(rows::DECISIONS)?);
        let transno = self.core.last_transno();
        self.cross.note_move(transno);
        for (id, value) in decisions {
            let row: Decision = rows::decode(&value)?;
            self.cross.decide(id, transno, row.participants.into_iter().collect());
        }
        if planted(Fault::PrepareForgotten) {
            return Ok(());
        }
        for (id, value) in prepares {
            let mut row: Prepare = rows::decode(&value)?;
            if let Some(void) = self.void_since(&row)? {
                let mut batch = Batch::new();
                batch.delete(rows::PREPARES, &rows::operation_key(id));
                self.core.apply_internal(batch).map_err(|error| error.status())?;
                let (what, fid) = void;
                self.cross.failed_at_load.push((what, fid, Status::VersionConflict));
                continue;
            }
            let remote = Remote::default();
            let store = Arc::clone(self.core.store());
            let mut cx = self.cx(&*store, now.wall, &remote);
            let can_be_executed = run_parts(&mut cx, &mut row.parts, &row.asker);
            let changed = cx.tx.changed();
            match can_be_executed {
                Ok(_) => {}
                Err(status @ (Status::Io | Status::Again)) => return Err(status),
                // What it needs is not there any more: a client has replayed what it cannot have done, say. That is one operation's
                // damage, which its decision meets again, and nobody else is to wait for a target that does not start.
                Err(status) => {
                    let fid = row.parts.iter().find_map(part::owner_of).unwrap_or_default();
                    let what = "an operation that was prepared cannot be executed any more";
                    self.cross.failed_at_load.push((what, fid, status));
                }
            }
            // Without claims: if the decision had been executed and was lost, clients hold locks on what it made, and
            // say so again. Nobody else gets past what is frozen.
            let op = self.new_op();
            self.freeze(now.time, id, (op, transno, None), changed, &row.parts);
        }
        Ok(())
    }

    /// Why what was prepared can never be executed, and what shows it.
    fn void_since(&self, row: &Prepare) -> Result<Option<(&'static str, Fid)>, Status> {
        if let Some(fid) = self.made_since(row)? {
            let what = "a directory that is there had been prepared too, and that was forgotten";
            return Ok(Some((what, fid)));
        }
        let what = "a name that is gone was to move with its directory, and that was forgotten";
        Ok(self.unlinked_since(row)?.map(|fid| (what, fid)))
    }

    /// An inode whose name was to move with its directory, and that does not have it. What takes a name away changes its directory, and the
    /// old MDT of that then refuses to give it away; so this was decided against. (Such inodes were not frozen in earlier versions.)
    fn unlinked_since(&self, row: &Prepare) -> Result<Option<Fid>, Status> {
        let tx = crate::tx::Tx::new(&**self.core.store());
        for part in &row.parts {
            let Part::MoveLinks { old_parent, links, .. } = part else { continue };
            for (fid, name) in links {
                if !migrate::has_link(&tx, *fid, *old_parent, name)? {
                    return Ok(Some(*fid));
                }
            }
        }
        Ok(None)
    }

    /// A directory that was to be made, and is there. A FID is given for one directory, and to execute a decision takes the row away with it. So
    /// this was prepared for an incarnation of the coordinator that has lost the operation, and its replay has made the directory in
    /// another way: what was prepared is void.
    fn made_since(&self, row: &Prepare) -> Result<Option<Fid>, Status> {
        let tx = crate::tx::Tx::new(&**self.core.store());
        for part in &row.parts {
            if let Part::MakeDirectory { attr, .. } | Part::MakeStripe { attr, .. } = part
                && tx.inode(attr.fid)?.is_some_and(|inode| inode.attr.file_type == base::FileType::Directory)
            {
                return Ok(Some(attr.fid));
            }
        }
        Ok(None)
    }

    fn operation_rows(&self, table: store::Table) -> Result<Vec<(OperationId, Vec<u8>)>, Status> {
        let end = vec![0xff; store::KEY_BYTES_MAX];
        let rows = crate::tx::Tx::new(&**self.core.store()).scan(table, &[], &end, usize::MAX)?;
        let parse = |(key, value): (Vec<u8>, Vec<u8>)| {
            Ok((rows::split_operation_key(&key).ok_or(Status::Corrupt)?, value))
        };
        rows.into_iter().map(parse).collect()
    }

    /// Asks the coordinators of what has been undecided for a while.
    pub(in crate::machine) fn ask_about_prepared(&mut self, now: Now, out: &mut Vec<Output>) {
        for (what, fid, status) in std::mem::take(&mut self.cross.failed_at_load) {
            out.push(Output::Event(MdsEvent::Failed { what, fid, status }));
        }
        let due = |prepared: &Prepared| !prepared.is_asked && prepared.ask_at <= now.time;
        let ids: Vec<OperationId> =
            self.cross.prepared.iter().filter(|(_, prepared)| due(prepared)).map(|(id, _)| *id).collect();
        for id in ids {
            let request = Request::Peer(PeerRequest::Ask { id });
            let is_asked = self.call(now, TargetId::mdt(id.mdt_index), request, Call::Ask { id }, out);
            if let Some(prepared) = self.cross.prepared.get_mut(&id) {
                prepared.is_asked = is_asked;
                prepared.ask_at = now.time.after(ASK_AFTER);
            }
        }
    }

    pub(super) fn on_asked(
        &mut self,
        now: Now,
        id: OperationId,
        result: Result<Reply, Status>,
        out: &mut Vec<Output>,
    ) {
        let decision = match result {
            Ok(Reply::Peer(PeerReply::Decision { is_commit })) => is_commit,
            _ => None,
        };
        match decision {
            // A failure is told by an event, and asked about again.
            Some(is_commit) if self.execute_decision(now, id, is_commit, out).is_ok() => {}
            _ => {
                if let Some(prepared) = self.cross.prepared.get_mut(&id) {
                    prepared.is_asked = false;
                    prepared.ask_at = now.time.after(ASK_AFTER);
                }
            }
        }
    }

    /// Whether a replay may prepare something on another MDT: it names an inode there, or a directory with a stripe there. (Two that recover
    /// must not wait for each other's end.)
    fn may_replay_on(&mut self, mdt: u16) -> bool {
        if !self.core.is_recovering() {
            return false;
        }
        let Some(fids) = self.core.inodes_of_replays(LOOKED_AT_MAX) else { return true };
        let tx = crate::tx::Tx::new(&**self.core.store());
        let is_there = |fid: &Fid| fid.mdt_index() == Some(mdt);
        let has_stripe = |fid| match tx.inode(fid) {
            Ok(inode) => inode.is_some_and(|inode| inode.stripes.iter().any(is_there)),
            Err(_) => true,
        };
        fids.into_iter().any(|fid| is_there(&fid) || has_stripe(fid))
    }

    /// A participant wants to know. What was committed has a row until everybody has executed it; so what has none is
    /// void, unless it is on its way, or a client may still ask for it again. To who has executed it, durably, it is void too: what that one
    /// has prepared is a copy.
    fn answer_ask(&mut self, now: Now, token: Token, peer: u16, id: OperationId) {
        let decision = self.cross.decisions.get(&id);
        if let Some(pending) = decision.filter(|pending| pending.participants.contains(&peer)) {
            let up_to = pending.transno;
            let reply = Reply::Peer(PeerReply::Decision { is_commit: Some(true) });
            return self.core.reply_when_durable(now, token, up_to, reply, &mut self.core_out);
        }
        let is_under_way =
            self.flows.values().any(|flow| flow.settling.as_ref().is_some_and(|settling| settling.id == id));
        let may_come_again = id.epoch < self.core.epoch().0 && self.may_replay_on(peer);
        let is_commit = if is_under_way || may_come_again { None } else { Some(false) };
        self.reply(now, token, Ok(Reply::Peer(PeerReply::Decision { is_commit })));
    }
}

fn leaving(parts: &[Part]) -> BTreeSet<Fid> {
    let file_of = |part: &Part| match part {
        Part::GiveFile { fid, .. } => Some(*fid),
        _ => None,
    };
    parts.iter().filter_map(file_of).collect()
}

/// Inodes of which a directory that moves has names. None of their attributes changes, so nobody gives anything back for that; but nobody may
/// take such a name away before it is decided.
fn linked(parts: &[Part]) -> impl Iterator<Item = Resource> {
    let links = parts.iter().flat_map(|part| match part {
        Part::MoveLinks { links, .. } => &links[..],
        _ => &[],
    });
    links.map(|(fid, _)| Resource::Inode(*fid))
}
