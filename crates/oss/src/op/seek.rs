//! Where data or holes are.

use crate::machine::{Effects, Oss};
use base::{Extent, Now, ObjectId, Status};
use bytes::Bytes;
use ldlm::Need;
use store::{MetaStore, ObjectStore, Whence};
use target::Token;
use wire::{LockMode, OstReply, Reply};

pub(super) fn needs(object: ObjectId, offset_bytes: u64) -> Vec<Need> {
    let extent = Extent::new(offset_bytes, Extent::EOF);
    if extent.is_empty() { Vec::new() } else { vec![Need::of_data(object, LockMode::Pr, extent)] }
}

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    pub(super) fn op_seek(
        &mut self,
        now: Now,
        token: Token,
        object: ObjectId,
        offset_bytes: u64,
        is_hole: bool,
        effects: &mut Effects,
    ) -> Result<(), Status> {
        let whence = if is_hole { Whence::Hole } else { Whence::Data };
        let offset_bytes = match self.object_stat(object)? {
            Some(_) => {
                let found = self.objects.seek(&object, offset_bytes, whence);
                found.map_err(|error| self.store_status(object, &error))?
            }
            None => None,
        };
        self.stats.seek_count += 1;
        self.answer(now, token, Reply::Ost(OstReply::Seek { offset_bytes }), Bytes::new(), effects);
        Ok(())
    }
}
