//! Objects get the FID that their file has on another MDT, asked for by that MDT when the file is its own, durably.
//!
//! Nobody has the file open any more, and who still has locks on the old objects gives them back first; a lock goes back
//! when what was written under it is durable. So nothing of the old objects is said again by a replay, and the tombstones
//! refuse what comes late: a write for good, and who asks for a size because he was told of the file before is sent to ask
//! again. The bytes follow when the rows are durable. Until that is answered, too, the MDT shows the file to nobody.

use super::{check_is_mdt, destroy};
use crate::machine::{CommitReply, Effects, Oss};
use crate::rows;
use base::limits::OBJECTS_PER_REQUEST_MAX;
use base::{Fid, Now, ObjectId, Status};
use ldlm::Need;
use store::{Batch, MetaStore, ObjectStore};
use target::Token;
use wire::ost::AdoptStep;

/// As for their end: what anybody keeps of them must go.
pub(super) fn needs(objects: &[ObjectId]) -> Vec<Need> {
    destroy::needs(objects)
}

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    pub(super) fn op_adopt(
        &mut self,
        now: Now,
        token: Token,
        (objects, to): (&[ObjectId], Fid),
        step: AdoptStep,
        effects: &mut Effects,
    ) -> Result<(), Status> {
        check_is_mdt(token.client)?;
        // Of one file, so that no two get the same name.
        let from = objects.first().map_or(to, |object| object.fid);
        let are_of_one = objects.iter().all(|object| object.fid == from);
        if objects.len() > OBJECTS_PER_REQUEST_MAX || from == to || !are_of_one {
            return Err(Status::Invalid);
        }
        let mut batch = Batch::new();
        let adopted_at = self.steady_wall(now);
        for object in objects {
            let adopted = ObjectId { fid: to, ..*object };
            match step {
                AdoptStep::Rows => self.adopt_rows(*object, adopted, &mut batch)?,
                AdoptStep::Bytes => self.adopt_bytes(*object, adopted)?,
            }
            rows::put_adopted(&mut batch, object, adopted_at);
        }
        // The core has answered an error itself.
        let _ = self.commit(now, token, batch, CommitReply::WhenDurable, effects);
        Ok(())
    }

    fn adopt_rows(&mut self, object: ObjectId, to: ObjectId, batch: &mut Batch) -> Result<(), Status> {
        if let Some(row) = rows::object(self.meta.as_ref(), &object)? {
            batch.delete(rows::OBJECTS, &object.key());
            rows::put(batch, rows::OBJECTS, &to.key(), &row);
        }
        if let Some(born) = rows::born(self.meta.as_ref(), &object)? {
            batch.delete(rows::BORN, &object.key());
            rows::put_born_again(batch, &to, born);
        }
        Ok(())
    }

    /// It may have been done before, by a request whose answer was lost with a crash.
    fn adopt_bytes(&mut self, object: ObjectId, to: ObjectId) -> Result<(), Status> {
        if !rows::is_adopted(self.meta.as_ref(), &object)? {
            return Err(Status::Invalid);
        }
        self.objects.adopt(&object, &to).map_err(|error| self.store_status(object, &error))?;
        Ok(())
    }
}
