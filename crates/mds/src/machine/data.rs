//! Requests about data on this MDT, as an OST answers them: the same locks, and the same rule that a lock under which something
//! was written ends when that is durable.

use super::Mds;
use super::flow::Flow;
use crate::data::Object;
use crate::op::Outcome;
use crate::rows;
use crate::tx::Tx;
use base::limits::OBJECTS_PER_REQUEST_MAX;
use base::{Extent, Fid, Layout, LockId, Now, ObjectId, Status, Transno, WallTime};
use bytes::Bytes;
use ldlm::{Claimed, Need};
use std::sync::Arc;
use store::{Batch, MetaStore};
use target::{Token, Work};
use wire::ost::{ExtentOp, ObjectAttr};
use wire::{LockGrant, LockMode, MdtReply, MdtRequest, OstReply, OstRequest, Reply, Request};

/// Of a longer object an open brings none.
const OPENED_BYTES_MAX: u64 = 64 << 10;

/// What a client changes.
struct Changing {
    object: ObjectId,
    /// Of the change; a lock over it is needed.
    extent: Extent,
    lock: LockId,
    stamp: WallTime,
}

impl<M: MetaStore> Mds<M> {
    /// Now, or when nobody is in the way of who has no lock of his own.
    pub(super) fn on_data_work(&mut self, now: Now, work: Work) {
        let waits_for = match &work.request {
            Request::Ost(OstRequest::Read { object, extent, lock: None }) => Some((*object, *extent)),
            Request::Ost(OstRequest::Seek { object, offset_bytes, .. }) => {
                Some((*object, Extent::new(*offset_bytes, Extent::EOF)))
            }
            _ => None,
        };
        let Some((object, extent)) = waits_for.filter(|(_, extent)| !extent.is_empty()) else {
            return self.execute_data(now, work);
        };
        let op = self.new_op();
        let needs = vec![Need::of_data(object, LockMode::Pr, extent)];
        match self.locks.claim(now.time, op, Some(work.token.client), needs, &mut self.lock_out) {
            Claimed::Ready => {
                self.execute_data(now, work);
                self.locks.release(now.time, op, &mut self.lock_out);
            }
            Claimed::Waiting => drop(self.data_work.insert(op, work)),
        }
    }

    pub(super) fn on_data_claim_ready(&mut self, now: Now, op: ldlm::OpId) {
        if let Some(work) = self.data_work.remove(&op) {
            self.execute_data(now, work);
        }
        self.locks.release(now.time, op, &mut self.lock_out);
    }

    fn execute_data(&mut self, now: Now, work: Work) {
        let Work { token, request, data } = work;
        let Request::Ost(request) = request else { return };
        let done = match request {
            OstRequest::Read { object, extent, lock } => self.read_data(now, token, object, extent, lock),
            OstRequest::Write { object, offset_bytes, lock, stamp, is_answered, asked } => {
                let extent = Extent::at(offset_bytes, data.len() as u64);
                let changing = Changing { object, extent, lock, stamp };
                self.write_data(now, token, &changing, is_answered, asked, &data)
            }
            OstRequest::Change { object, extent, op, lock, stamp } => {
                self.change_data(now, token, Changing { object, extent, lock, stamp }, op)
            }
            OstRequest::Getattr { objects } => self.getattr_data(now, token, &objects),
            OstRequest::Seek { object, offset_bytes, is_hole } => {
                self.seek_data(now, token, object, offset_bytes, is_hole)
            }
            OstRequest::Sync { .. } => {
                let up_to = self.core.last_transno();
                self.core.reply_when_durable(now, token, up_to, Reply::Done, &mut self.core_out);
                Ok(())
            }
            OstRequest::Advise { extent, .. } if extent.start > extent.end => Err(Status::Invalid),
            // The rows are small, and in memory as all rows are.
            OstRequest::Advise { .. } => {
                self.reply(now, token, Ok(Reply::Done));
                Ok(())
            }
            OstRequest::Destroy { .. }
            | OstRequest::Adopt { .. }
            | OstRequest::Statfs
            | OstRequest::ListObjects { .. }
            | OstRequest::LockAndRead { .. }
            | OstRequest::Fence(_) => Err(Status::NotSupportedCall),
        };
        if let Err(status) = done {
            self.reply(now, token, Err(status));
        }
    }

    fn read_data(
        &mut self,
        now: Now,
        token: Token,
        object: ObjectId,
        extent: Extent,
        lock: Option<LockId>,
    ) -> Result<(), Status> {
        if extent.is_empty() || extent.end > Layout::ON_MDT_BYTES_MAX {
            return Err(Status::Invalid);
        }
        let is_held =
            |lock: LockId| self.locks.holds(token.client, lock, Need::of_data(object, LockMode::Pr, extent));
        if lock.is_some_and(|lock| !is_held(lock)) {
            return Err(Status::LockLost);
        }
        let found = self.data_found(object)?;
        let (data, size_bytes) = (found.read(extent)?, found.head().size_bytes);
        let reply = Reply::Ost(OstReply::Data { size_bytes });
        self.core.reply(now, token, Ok((reply, data)), &mut self.core_out);
        Ok(())
    }

    fn getattr_data(&mut self, now: Now, token: Token, objects: &[ObjectId]) -> Result<(), Status> {
        if objects.len() > OBJECTS_PER_REQUEST_MAX {
            return Err(Status::Invalid);
        }
        let attrs = objects.iter().map(|object| self.data_attr(*object)).collect::<Result<_, _>>()?;
        self.reply(now, token, Ok(Reply::Ost(OstReply::Attrs(attrs))));
        Ok(())
    }

    fn data_attr(&self, object: ObjectId) -> Result<Option<ObjectAttr>, Status> {
        let found = self.data_found(object)?;
        let head = found.head();
        let is_durable = head.transno <= self.core.durable();
        Ok(found.is_there().then_some(ObjectAttr {
            size_bytes: head.size_bytes,
            block_count: head.stored_bytes.div_ceil(512),
            stamp: head.stamp,
            uncommitted: if is_durable { Transno::ZERO } else { head.transno },
        }))
    }

    fn seek_data(
        &mut self,
        now: Now,
        token: Token,
        object: ObjectId,
        offset_bytes: u64,
        is_hole: bool,
    ) -> Result<(), Status> {
        let offset_bytes = self.data_found(object)?.seek(offset_bytes, is_hole)?;
        self.reply(now, token, Ok(Reply::Ost(OstReply::Seek { offset_bytes })));
        Ok(())
    }

    fn write_data(
        &mut self,
        now: Now,
        token: Token,
        changing: &Changing,
        is_answered: bool,
        asked: Option<Extent>,
        data: &Bytes,
    ) -> Result<(), Status> {
        if data.is_empty() {
            return Err(Status::Invalid);
        }
        if changing.extent.end > Layout::ON_MDT_BYTES_MAX || changing.extent.byte_count() != data.len() as u64
        {
            return Err(Status::TooBig);
        }
        // A replay's lock comes back as the client's others do.
        let asked = asked.filter(|_| token.replay.is_none());
        let grant = match asked {
            Some(extent) => {
                self.check_data(changing.object)?;
                let (holder, data) = ((token.client, changing.lock), (changing.object, extent));
                Some(self.locks.grant_for_write(now.time, holder, data, &mut self.lock_out)?)
            }
            None => None,
        };
        let done = self.write_locked(now, token, changing, is_answered, grant, data);
        if asked.is_some() && done.is_err() {
            self.locks.cancel(now.time, token.client, &[changing.lock], &mut self.lock_out);
        }
        done
    }

    fn write_locked(
        &mut self,
        now: Now,
        token: Token,
        changing: &Changing,
        is_answered: bool,
        grant: Option<LockGrant>,
        data: &Bytes,
    ) -> Result<(), Status> {
        self.check_change(token, changing, changing.extent)?;
        let space = self.core.store().space();
        if !is_answered && token.replay.is_none() {
            let is_full = space.avail_bytes == 0 || self.core.store().pressure().is_consuming_refused();
            if is_full {
                return Err(Status::NoSpace);
            }
        }
        let store = Arc::clone(self.core.store());
        let mut object = Object::open(&*store, changing.object)?;
        object.write(changing.extent.start, data)?;
        let (transno, mut batch) = (self.core.next_transno(), Batch::new());
        let head = object.put(changing.stamp, transno, &mut batch);
        let attr = ObjectAttr {
            size_bytes: head.size_bytes,
            block_count: head.stored_bytes.div_ceil(512),
            stamp: head.stamp,
            uncommitted: token.replay.unwrap_or(transno),
        };
        let grant_bytes = self.grants.renew(token.client, &space);
        let has_asked = grant.is_some();
        let reply = Reply::Ost(OstReply::Written { grant_bytes, attr: Some(attr), lock: grant });
        if !self.commit_data(now, token, changing, batch, reply) && has_asked {
            // The core has answered the error itself, without the lock.
            self.locks.cancel(now.time, token.client, &[changing.lock], &mut self.lock_out);
        }
        Ok(())
    }

    fn change_data(
        &mut self,
        now: Now,
        token: Token,
        changing: Changing,
        op: ExtentOp,
    ) -> Result<(), Status> {
        let extent = changing.extent;
        let covered = op.covered(extent, Layout::ON_MDT_BYTES_MAX)?;
        self.check_change(token, &changing, covered)?;
        if op.is_consuming() && token.replay.is_none() && self.core.store().pressure().is_consuming_refused()
        {
            return Err(Status::NoSpace);
        }
        let store = Arc::clone(self.core.store());
        let mut object = Object::open(&*store, changing.object)?;
        object.change(extent, op)?;
        let mut batch = Batch::new();
        object.put(changing.stamp, self.core.next_transno(), &mut batch);
        // The core has answered an error itself.
        self.commit_data(now, token, &changing, batch, Reply::Done);
        Ok(())
    }

    fn commit_data(
        &mut self,
        now: Now,
        token: Token,
        changing: &Changing,
        batch: Batch,
        reply: Reply,
    ) -> bool {
        match self.core.commit(now, token, batch, reply, Bytes::new(), &mut self.core_out) {
            Ok(transno) => {
                self.cancels.on_written(token.client, changing.lock, transno);
                true
            }
            Err(_) => false,
        }
    }

    /// A change needs a lock of its client over all that it changes; a replay was checked when it was executed first.
    fn check_change(&self, token: Token, changing: &Changing, covered: Extent) -> Result<(), Status> {
        let wanted = Need::of_data(changing.object, LockMode::Pw, covered);
        if token.replay.is_none() && !self.locks.holds(token.client, changing.lock, wanted) {
            return Err(Status::LockLost);
        }
        self.check_data(changing.object)
    }

    /// # Errors
    /// `Stale` for what is no object of a file here, or not any more.
    pub(super) fn check_data(&self, object: ObjectId) -> Result<(), Status> {
        // Another MDT has been told what there is.
        if self.cross.is_leaving(object.fid) {
            return Err(Status::Stale);
        }
        let inode = Tx::new(&**self.core.store()).inode(object.fid)?;
        let layout = inode.and_then(|inode| inode.layout);
        let is_it = |layout: &Layout| layout.is_on_mdt() && layout.stripe_of(object) == Some(0);
        if layout.as_ref().is_some_and(is_it) { Ok(()) } else { Err(Status::Stale) }
    }

    /// An object to be looked at. Who was told of its file before that moved is to ask again.
    fn data_found(&self, object: ObjectId) -> Result<Object<'_>, Status> {
        let found = Object::open(&**self.core.store(), object)?;
        let has_moved = |fid: Fid| Tx::new(&**self.core.store()).get(rows::MOVED, &fid.key());
        match found.is_there() || has_moved(object.fid)?.is_none() {
            true => Ok(found),
            false => Err(Status::Moved),
        }
    }

    /// Ends locks at once, or when what was written under them is durable; then returns what that waits for.
    pub(super) fn give_up(&mut self, now: Now, client: base::ClientId, locks: &[LockId]) -> Option<Transno> {
        let given = self.cancels.give_up(self.core.durable(), client, locks);
        self.locks.cancel(now.time, client, &given.clean, &mut self.lock_out);
        let (dirty, up_to) = given.dirty?;
        self.locks.begin_cancel(now.time, client, &dirty);
        self.core.store().kick();
        Some(up_to)
    }

    /// Data that come with a close need a lock as all do; a replay was checked when it was executed first.
    pub(super) fn check_closing_lock(&self, flow: &Flow) -> Result<(), Status> {
        let Request::Mdt(MdtRequest::Close { data: Some(data), .. }) = &flow.request else { return Ok(()) };
        let wanted =
            Need::of_data(data.object, LockMode::Pw, Extent::at(data.offset_bytes, flow.data.len() as u64));
        let is_held = self.locks.holds(flow.token.client, data.lock, wanted);
        if is_held || flow.token.replay.is_some() { Ok(()) } else { Err(Status::LockLost) }
    }

    pub(super) fn note_closing_data(&mut self, flow: &Flow, transno: Transno) {
        if let Request::Mdt(MdtRequest::Close { data: Some(data), .. }) = &flow.request {
            self.cancels.on_written(flow.token.client, data.lock, transno);
        }
    }

    /// Locks that a request gives up. Those of a replay are not known, and not named any more.
    pub(super) fn end_cancelled(&mut self, now: Now, flow: &Flow) {
        if let Request::Mdt(MdtRequest::Close { cancels, .. }) = &flow.request
            && !cancels.is_empty()
        {
            self.give_up(now, flow.token.client, &cancels.clone());
        }
    }

    /// Adds what is here of a file's data to the answer to its open: the bytes, if their lock was granted and they are few.
    pub(super) fn with_opened_data(
        &mut self,
        flow: &Flow,
        outcome: &Outcome,
        reply: Reply,
    ) -> (Reply, Bytes) {
        let (opened, entry) = match (outcome.opened_data, reply) {
            (Some(opened), Reply::Mdt(MdtReply::Entry(entry))) => (opened, entry),
            (_, reply) => return (reply, Bytes::new()),
        };
        let wanted = Need::of_data(opened.object, LockMode::Pr, Extent::WHOLE);
        let is_wanted = opened.is_read && self.locks.holds(flow.token.client, opened.lock, wanted);
        let bytes = if is_wanted { self.few_bytes(opened.object) } else { None };
        let space = self.core.store().space();
        let grant_bytes = self.grants.renew(flow.token.client, &space);
        let has_bytes = bytes.is_some();
        let reply = Reply::Mdt(MdtReply::WithData { entry, grant_bytes, has_bytes });
        (reply, bytes.unwrap_or_default())
    }

    /// All bytes of an object here, if they are few and can be read.
    fn few_bytes(&self, object: ObjectId) -> Option<Bytes> {
        let found = Object::open(&**self.core.store(), object).ok()?;
        let is_few = found.head().size_bytes <= OPENED_BYTES_MAX;
        is_few.then(|| found.read(Extent::new(0, OPENED_BYTES_MAX)).ok())?
    }

    /// The client is gone; what it wrote stays protected until it is durable.
    pub(super) fn drop_locks_of(&mut self, now: Now, client: base::ClientId) {
        let (op, durable) = (self.new_op(), self.core.durable());
        if self.cancels.retire(now.time, durable, client, op, &mut self.locks, &mut self.lock_out) {
            self.core.store().kick();
        }
    }

    pub(super) fn end_durable_cancels(&mut self, now: Now) {
        self.cancels.end_durable(now.time, self.core.durable(), &mut self.locks, &mut self.lock_out);
    }
}
