//! Bytes into an object.

use super::Target;
use crate::machine::{CommitReply, Effects, Oss};
use base::limits::OBJECT_BYTES_MAX;
use base::{Extent, LockId, Now, ObjectId, Status, WallTime};
use bytes::Bytes;
use store::{MetaStore, ObjectStore, Pressure, Reserve, Space, StoreError};
use target::Token;
use wire::ost::ObjectAttr;
use wire::{LockGrant, Resource};

pub(super) struct Write {
    pub object: ObjectId,
    pub offset_bytes: u64,
    pub lock: LockId,
    pub stamp: WallTime,
    pub is_answered: bool,
    pub asked: Option<Extent>,
    pub data: Bytes,
}

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    pub(super) fn op_write(
        &mut self,
        now: Now,
        token: Token,
        write: Write,
        effects: &mut Effects,
    ) -> Result<(), Status> {
        let byte_count = write.data.len() as u64;
        if write.data.is_empty() {
            return Err(Status::Invalid);
        }
        if write.offset_bytes.checked_add(byte_count).is_none_or(|end| end > OBJECT_BYTES_MAX) {
            return Err(Status::TooBig);
        }
        let (object, lock) = (write.object, write.lock);
        // A replay's lock comes back as the client's others do.
        let asked = write.asked.filter(|_| token.replay.is_none());
        let grant = match asked {
            Some(extent) => {
                self.check_exists(Resource::Object(object))?;
                let (holder, data) = ((token.client, lock), (object, extent));
                Some(self.locks.grant_for_write(now.time, holder, data, &mut effects.locks)?)
            }
            None => None,
        };
        let has_asked = grant.is_some();
        let done = self.write_locked(now, token, write, grant, effects);
        if has_asked && done.is_err() {
            self.locks.cancel(now.time, token.client, &[lock], &mut effects.locks);
        }
        done
    }

    /// The client has the lock, or is to get it with the answer (`grant`).
    fn write_locked(
        &mut self,
        now: Now,
        token: Token,
        write: Write,
        grant: Option<LockGrant>,
        effects: &mut Effects,
    ) -> Result<(), Status> {
        let Write { object, offset_bytes, lock, stamp, is_answered, data, asked: _ } = write;
        let byte_count = data.len() as u64;
        let extent = Extent::at(offset_bytes, byte_count);
        let target = self.check_write(token, object, lock, extent)?;
        let space = self.objects.space();
        if !is_answered && token.replay.is_none() && !self.has_room(&target, object, extent, &space)? {
            return Err(Status::NoSpace);
        }
        if !matches!(target, Target::Gone(_)) {
            let written = self.objects.write(&object, offset_bytes, &data);
            written.map_err(|error| self.store_status(object, &error))?;
        }
        self.stats.write.add(byte_count);
        let attr = match target {
            Target::Gone(_) => None,
            Target::There(_) | Target::New(_) => self.written_attr(token, object),
        };
        let grant_bytes = self.grants.renew_for_objects(token.client, &space);
        let reply = CommitReply::Written { grant_bytes, attr, lock: grant };
        self.commit_change(now, token, (object, &target), (lock, stamp), reply, effects)
    }

    /// Whether a write may take what it needs. In the reserve that are a few hundred bytes of the log: one goes on that finds all its
    /// blocks allocated, until only what frees may run.
    fn has_room(
        &mut self,
        target: &Target,
        object: ObjectId,
        extent: Extent,
        space: &Space,
    ) -> Result<bool, Status> {
        let pressure = self.meta.pressure();
        if !pressure.is_consuming_refused() && space.avail_bytes > 0 {
            return Ok(true);
        }
        let Pressure { reserve, is_log_short, is_log_ending, .. } = pressure;
        let is_freeing_only = reserve == Reserve::Exhausted || is_log_short || is_log_ending;
        if is_freeing_only {
            return Ok(false);
        }
        let is_there = match target {
            Target::There(_) => true,
            Target::New(None) => self.object_stat(object)?.is_some_and(|stat| stat.has_begun),
            Target::New(Some(_)) | Target::Gone(_) => false,
        };
        if !is_there {
            return Ok(false);
        }
        match self.objects.is_allocated(&object, extent) {
            Err(StoreError::NoObject { .. }) => Ok(false),
            // Who is told of damage does not wait for room.
            allocated => allocated.map_err(|error| self.store_status(object, &error)),
        }
    }

    /// The object as the answer to a write describes it: the writer needs not ask. Its stamp comes with its row.
    fn written_attr(&self, token: Token, object: ObjectId) -> Option<ObjectAttr> {
        let stat = self.objects.stat(&object).ok()??;
        Some(ObjectAttr {
            size_bytes: stat.size_bytes,
            block_count: stat.allocated_bytes.div_ceil(512),
            stamp: WallTime::default(),
            uncommitted: token.replay.unwrap_or_else(|| self.core.next_transno()),
        })
    }
}
