//! Bytes into an object.

use super::Target;
use crate::machine::{CommitReply, Effects, Oss};
use base::limits::OBJECT_BYTES_MAX;
use base::{Extent, LockId, Now, ObjectId, Status, WallTime};
use bytes::Bytes;
use store::{MetaStore, ObjectStore};
use target::Token;
use wire::ost::ObjectAttr;

pub(super) struct Write {
    pub object: ObjectId,
    pub offset_bytes: u64,
    pub lock: LockId,
    pub stamp: WallTime,
    pub is_answered: bool,
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
        let Write { object, offset_bytes, lock, stamp, is_answered, data } = write;
        let byte_count = data.len() as u64;
        if data.is_empty() {
            return Err(Status::Invalid);
        }
        if offset_bytes.checked_add(byte_count).is_none_or(|end| end > OBJECT_BYTES_MAX) {
            return Err(Status::TooBig);
        }
        let target = self.check_write(token, object, lock, Extent::at(offset_bytes, byte_count))?;
        let space = self.objects.space();
        if !is_answered && token.replay.is_none() {
            self.check_space(token)?;
            if space.avail_bytes == 0 {
                return Err(Status::NoSpace);
            }
        }
        if !matches!(target, Target::Gone(_)) {
            let written = self.objects.write(&object, offset_bytes, &data);
            written.map_err(|error| self.store_status(object, &error))?;
        }
        self.stats.write.add(byte_count);
        let attr = match target {
            Target::Gone(_) => None,
            Target::There | Target::New => self.written_attr(token, object),
        };
        let reply = CommitReply::Written { grant_bytes: self.grants.renew(token.client, &space), attr };
        self.commit_change(now, token, (object, &target), (lock, stamp), reply, effects)
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
