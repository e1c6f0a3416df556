//! Bytes of an object.

use super::need;
use crate::machine::{Effects, Oss};
use base::limits::BULK_BYTES_MAX;
use base::{Extent, LockId, Now, ObjectId, Status};
use bytes::Bytes;
use ldlm::Need;
use store::{MetaStore, ObjectStore};
use target::Token;
use wire::{LockMode, OstReply, Reply};

/// Without a lock of its own a read waits for writers.
pub(super) fn needs(object: ObjectId, extent: Extent) -> Vec<Need> {
    if extent.is_empty() { Vec::new() } else { vec![need(object, LockMode::Pr, extent)] }
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
        let byte_count = usize::try_from(extent.byte_count()).unwrap_or(usize::MAX);
        if extent.is_empty() || byte_count > BULK_BYTES_MAX {
            return Err(Status::Invalid);
        }
        if lock.is_some_and(|lock| !self.locks.holds(token.client, lock, need(object, LockMode::Pr, extent)))
        {
            return Err(Status::LockLost);
        }
        let (data, size_bytes) = self.read_object(object, extent.start, byte_count)?;
        self.stats.read.add(data.len() as u64);
        self.answer(now, token, Reply::Ost(OstReply::Data { size_bytes }), data, effects);
        Ok(())
    }

    fn read_object(
        &mut self,
        object: ObjectId,
        offset: u64,
        byte_count: usize,
    ) -> Result<(Bytes, u64), Status> {
        let Some(stat) = self.object_stat(object)? else { return Ok((Bytes::new(), 0)) };
        let size_bytes = stat.size_bytes;
        if offset >= size_bytes {
            return Ok((Bytes::new(), size_bytes));
        }
        match self.objects.read(&object, offset, byte_count) {
            Ok(data) => Ok((data, size_bytes)),
            Err(error) => Err(self.store_status(object, &error)),
        }
    }
}
