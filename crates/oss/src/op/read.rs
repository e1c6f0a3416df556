//! Bytes of an object.

use crate::fetches::Waiter;
use crate::machine::{Effects, Oss};
use base::limits::BULK_BYTES_MAX;
use base::{Extent, LockId, Now, ObjectId, Status};
use bytes::Bytes;
use ldlm::{EnqueueRequest, Need};
use store::{MetaStore, ObjectStore};
use target::{Token, Work};
use wire::{LockGrant, LockMode, LockPolicy, OstReply, OstRequest, Reply, Request};

/// Without a lock of its own a read waits for writers.
pub(super) fn needs(object: ObjectId, extent: Extent) -> Vec<Need> {
    if extent.is_empty() { Vec::new() } else { vec![Need::of_data(object, LockMode::Pr, extent)] }
}

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    pub(super) fn op_read(
        &mut self,
        now: Now,
        token: Token,
        object: ObjectId,
        extent: Extent,
        lock: Option<LockId>,
        effects: &mut Effects,
    ) -> Result<(), Status> {
        check_extent(extent)?;
        if lock.is_some_and(|lock| {
            !self.locks.holds(token.client, lock, Need::of_data(object, LockMode::Pr, extent))
        }) {
            return Err(Status::LockLost);
        }
        match self.read_object(object, extent, token.is_unawaited)? {
            Some((data, size_bytes)) => {
                self.answer(now, token, Reply::Ost(OstReply::Data { size_bytes }), data, effects);
            }
            None => {
                let request = Request::Ost(OstRequest::Read { object, extent, lock });
                let work = Work { token, request, data: Bytes::new() };
                self.fetches.begin(now, (object, extent), Waiter::Read(Box::new(work)));
            }
        }
        Ok(())
    }

    /// A lock, and what is read under it.
    pub(super) fn op_lock_and_read(
        &mut self,
        now: Now,
        token: Token,
        enqueue: EnqueueRequest,
        extent: Extent,
        effects: &mut Effects,
    ) -> Result<(), Status> {
        check_extent(extent)?;
        let LockPolicy::Extent(asked) = enqueue.policy else { return Err(Status::Invalid) };
        let can_read = matches!(enqueue.mode, LockMode::Pr | LockMode::Pw);
        if !can_read || !asked.overlaps(extent) {
            return Err(Status::Invalid);
        }
        self.on_enqueue(now, token, enqueue, Some(extent), effects);
        Ok(())
    }

    /// Answers who asked for bytes with a lock that he has now, as far as that reaches. Where they cannot be read he still has it here: a copy of his request
    /// may come after the answer that gave it to him. He is called back for it, and knows nothing of it.
    pub(crate) fn answer_with_lock(
        &mut self,
        now: Now,
        token: Token,
        grant: LockGrant,
        (object, extent): (ObjectId, Extent),
        effects: &mut Effects,
    ) {
        let covered = match grant.policy {
            LockPolicy::Extent(granted) => extent.intersection(granted),
            _ => extent,
        };
        match self.read_object(object, covered, token.is_unawaited) {
            Ok(Some((data, size_bytes))) => {
                let reply = Reply::Ost(OstReply::LockedData { size_bytes, lock: grant });
                self.answer(now, token, reply, data, effects);
            }
            Ok(None) => {
                let waiter = Waiter::Locked { token, grant, read: (object, covered) };
                self.fetches.begin(now, (object, covered), waiter);
            }
            Err(status) => self.refuse(now, token, status, effects),
        }
    }

    /// Nothing where it has to be fetched first.
    fn read_object(
        &mut self,
        object: ObjectId,
        extent: Extent,
        is_ahead: bool,
    ) -> Result<Option<(Bytes, u64)>, Status> {
        let size_bytes = self.object_stat(object)?.map_or(0, |stat| stat.size_bytes);
        let byte_count = extent.byte_count() as usize;
        let data = match (extent.start < size_bytes, self.fetches.is_fetched()) {
            (false, _) => Ok(Some(Bytes::new())),
            (true, false) => self.objects.read_at_once(&object, extent.start, byte_count, is_ahead),
            (true, true) => self.objects.read_fetched(&object, extent.start, byte_count, is_ahead).map(Some),
        };
        let Some(data) = data.map_err(|error| self.store_status(object, &error))? else { return Ok(None) };
        self.stats.read.add(data.len() as u64);
        Ok(Some((data, size_bytes)))
    }
}

fn check_extent(extent: Extent) -> Result<(), Status> {
    let is_good = !extent.is_empty() && extent.byte_count() <= BULK_BYTES_MAX as u64;
    if is_good { Ok(()) } else { Err(Status::Invalid) }
}
