//! The end of objects, asked for by an MDT after the unlink is durable.

use super::check_is_mdt;
use crate::machine::{CommitReply, Effects, Oss};
use crate::rows::{self, TombstoneRow};
use base::limits::OBJECTS_PER_REQUEST_MAX;
use base::{Extent, Now, ObjectId, Status};
use ldlm::Need;
use std::collections::BTreeSet;
use store::{Batch, MetaStore, ObjectStore};
use target::Token;
use wire::LockMode;

/// Everybody's locks: cached pages of these objects must go.
pub(super) fn needs(objects: &[ObjectId]) -> Vec<Need> {
    if objects.len() > OBJECTS_PER_REQUEST_MAX {
        return Vec::new();
    }
    let once: BTreeSet<ObjectId> = objects.iter().copied().collect();
    once.into_iter().map(|object| Need::of_data(object, LockMode::Ex, Extent::WHOLE)).collect()
}

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    /// The tombstone keeps late writes, and replays, from making the object again.
    pub(super) fn op_destroy(
        &mut self,
        now: Now,
        token: Token,
        objects: &[ObjectId],
        effects: &mut Effects,
    ) -> Result<(), Status> {
        check_is_mdt(token.client)?;
        if objects.len() > OBJECTS_PER_REQUEST_MAX {
            return Err(Status::Invalid);
        }
        let mut batch = Batch::new();
        let destroyed_at = self.steady_wall(now);
        let mut refused = Ok(());
        for object in objects {
            // One that cannot be removed keeps none behind it; all are asked for again.
            if let Err(error) = self.objects.destroy(object) {
                refused = Err(self.store_status(*object, &error));
            }
            batch.delete(rows::OBJECTS, &object.key());
            batch.delete(rows::BORN, &object.key());
            rows::put(&mut batch, rows::TOMBSTONES, &object.key(), &TombstoneRow { destroyed_at });
        }
        refused?;
        self.stats.destroy_count += objects.len() as u64;
        // The core has answered an error itself.
        let _ = self.commit(now, token, batch, CommitReply::WhenDurable, effects);
        Ok(())
    }
}
