//! Sizes and times of objects, as they are now.

use crate::machine::{Effects, Oss};
use crate::rows;
use base::limits::OBJECTS_PER_REQUEST_MAX;
use base::{Now, ObjectId, Status};
use bytes::Bytes;
use store::{MetaStore, ObjectStore};
use target::Token;
use wire::ost::ObjectAttr;
use wire::{OstReply, Reply};

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    pub(super) fn op_getattr(
        &mut self,
        now: Now,
        token: Token,
        objects: &[ObjectId],
        effects: &mut Effects,
    ) -> Result<(), Status> {
        if objects.len() > OBJECTS_PER_REQUEST_MAX {
            return Err(Status::Invalid);
        }
        let attrs = objects.iter().map(|object| self.object_attr(object)).collect::<Result<_, _>>()?;
        self.stats.getattr_count += 1;
        self.answer(now, token, Reply::Ost(OstReply::Attrs(attrs)), Bytes::new(), effects);
        Ok(())
    }

    fn object_attr(&mut self, object: &ObjectId) -> Result<Option<ObjectAttr>, Status> {
        if rows::is_adopted(self.meta.as_ref(), object)? {
            // Of a file that has moved since its MDT was asked: it is to be asked again.
            return Err(Status::Moved);
        }
        let Some(stat) = self.object_stat(*object)? else { return Ok(None) };
        if rows::is_destroyed(self.meta.as_ref(), object)? {
            return Ok(None);
        }
        let row = rows::object(self.meta.as_ref(), object)?.unwrap_or_default();
        let block_count = stat.allocated_bytes.div_ceil(512);
        let uncommitted = self.durability.uncommitted(object);
        Ok(Some(ObjectAttr { size_bytes: stat.size_bytes, block_count, stamp: row.stamp, uncommitted }))
    }
}
