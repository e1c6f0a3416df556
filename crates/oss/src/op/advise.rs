//! Advice about what is to be in the cache.

use crate::machine::{Effects, Oss};
use base::{Advice, Extent, Now, ObjectId, Status, limits};
use bytes::Bytes;
use store::{MetaStore, ObjectStore};
use target::Token;
use wire::Reply;

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    pub(super) fn op_advise(
        &mut self,
        now: Now,
        token: Token,
        object: ObjectId,
        (extent, advice): (Extent, Advice),
        effects: &mut Effects,
    ) -> Result<(), Status> {
        // What ends before it begins has no bytes to count, and an offset that no object has.
        let is_extent = extent.start <= extent.end;
        if !is_extent
            || extent.byte_count() > limits::ADVICE_BYTES_MAX
            || extent.end > limits::OBJECT_BYTES_MAX
        {
            return Err(Status::Invalid);
        }
        // Of a hole there is nothing to fetch.
        if self.object_stat(object)?.is_some_and(|stat| stat.has_begun) {
            let advised = self.objects.advise(&object, extent, advice);
            advised.map_err(|error| self.store_status(object, &error))?;
        }
        match advice {
            Advice::WillRead => self.stats.will_read_count += 1,
            Advice::DontNeed => self.stats.dont_need_count += 1,
        }
        self.answer(now, token, Reply::Done, Bytes::new(), effects);
        Ok(())
    }
}
