//! Which objects there are, for an MDT that has lost work together with the client that did it.

use crate::machine::{Effects, Oss};
use crate::rows;
use base::{Now, ObjectId, Status};
use bytes::Bytes;
use store::{MetaStore, ObjectStore};
use target::Token;
use wire::ost::ListedObject;
use wire::{OstReply, Reply};

/// Objects of one answer: some milliseconds of reading directories, and far less than a body may hold.
const LISTED_MAX: usize = 512;

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    pub(super) fn op_list(
        &mut self,
        now: Now,
        token: Token,
        after: Option<ObjectId>,
        effects: &mut Effects,
    ) -> Result<(), Status> {
        let page = self.objects.list(after.as_ref(), LISTED_MAX).map_err(|error| error.status())?;
        let next = page.last().copied();
        let mut listed = Vec::with_capacity(page.len());
        for object in page {
            let stat = self.objects.stat(&object).map_err(|error| self.store_status(object, &error))?;
            let Some(stat) = stat else { continue };
            let stamp = rows::object(self.meta.as_ref(), &object)?.map(|row| row.stamp);
            listed.push(ListedObject { object, size_bytes: stat.size_bytes, stamp });
        }
        self.answer(now, token, Reply::Ost(OstReply::Objects { listed, next }), Bytes::new(), effects);
        Ok(())
    }
}
