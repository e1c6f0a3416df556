//! Everything written so far onto stable storage.

use crate::machine::{Effects, Oss};
use base::{Now, Status};
use store::{MetaStore, ObjectStore};
use target::Token;
use wire::Reply;

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    /// One sync covers all objects, so it does not matter which were named.
    pub(super) fn op_sync(&mut self, now: Now, token: Token, effects: &mut Effects) -> Result<(), Status> {
        self.stats.sync_count += 1;
        let up_to = self.core.last_transno();
        if self.core.durable() < up_to {
            self.kick_objects();
        }
        self.core.reply_when_durable(now, token, up_to, Reply::Done, &mut effects.core);
        Ok(())
    }
}
