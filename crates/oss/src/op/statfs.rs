//! Space of the target.

use crate::machine::{Effects, Oss};
use base::{Now, Status};
use bytes::Bytes;
use store::{MetaStore, ObjectStore};
use target::Token;
use wire::{OstReply, Reply};

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    pub(super) fn op_statfs(&mut self, now: Now, token: Token, effects: &mut Effects) -> Result<(), Status> {
        self.stats.statfs_count += 1;
        let statfs = self.statfs();
        self.answer(now, token, Reply::Ost(OstReply::Statfs(statfs)), Bytes::new(), effects);
        Ok(())
    }
}
