//! A client that an MDT gives up is given up here first: what it has sent and has not arrived yet must not be executed any more.

use super::check_is_mdt;
use crate::machine::{Effects, Oss};
use base::{Now, Status};
use store::{MetaStore, ObjectStore};
use target::Token;
use wire::{Life, Reply};

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    pub(super) fn op_fence(
        &mut self,
        now: Now,
        token: Token,
        life: Life,
        effects: &mut Effects,
    ) -> Result<(), Status> {
        check_is_mdt(token.client)?;
        if check_is_mdt(life.client).is_ok() {
            return Err(Status::NotPermitted);
        }
        self.core.fence(now, life, &mut effects.core);
        if self.core.incarnation_of(life.client).is_some_and(|incarnation| incarnation <= life.incarnation) {
            // The store takes no row: nothing was ended.
            return Err(Status::Io);
        }
        let up_to = self.core.last_transno();
        if self.core.durable() < up_to {
            self.kick_objects();
        }
        self.core.reply_when_durable(now, token, up_to, Reply::Done, &mut effects.core);
        Ok(())
    }
}
