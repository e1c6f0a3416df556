//! Truncate, punch, zero, allocate.

use super::Target;
use crate::machine::{CommitReply, Effects, Oss};
use base::limits::OBJECT_BYTES_MAX;
use base::{Extent, LockId, Now, ObjectId, Status, WallTime};
use store::{MetaStore, ObjectStore, Room, StoreError};
use target::Token;
use wire::ost::ExtentOp;

pub(super) struct Change {
    pub object: ObjectId,
    pub extent: Extent,
    pub op: ExtentOp,
    pub lock: LockId,
    pub stamp: WallTime,
}

impl Change {
    fn apply(&self, objects: &impl ObjectStore, room: Room) -> Result<(), StoreError> {
        let Change { object, extent, .. } = self;
        match self.op {
            ExtentOp::Truncate => objects.truncate(object, extent.start),
            ExtentOp::Punch => objects.punch(object, *extent),
            ExtentOp::Zero { keep_size } => objects.zero(object, *extent, keep_size, room),
            ExtentOp::Allocate { keep_size } => objects.allocate(object, *extent, keep_size, room),
        }
    }
}

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    pub(super) fn op_change(
        &mut self,
        now: Now,
        token: Token,
        change: Change,
        effects: &mut Effects,
    ) -> Result<(), Status> {
        let covered = change.op.covered(change.extent, OBJECT_BYTES_MAX)?;
        let target = self.check_write(token, change.object, change.lock, covered)?;
        if change.op.is_consuming() {
            self.check_space(token)?;
        }
        if !matches!(target, Target::Gone(_)) {
            // What clients may write back is promised, and a replay was answered before.
            let room = if token.replay.is_some() { Room::All } else { Room::BesideReserve };
            let applied = change.apply(self.objects.as_ref(), room);
            applied.map_err(|error| self.store_status(change.object, &error))?;
        }
        match change.op {
            ExtentOp::Truncate => self.stats.truncate_count += 1,
            ExtentOp::Punch => self.stats.punch_count += 1,
            ExtentOp::Zero { .. } | ExtentOp::Allocate { .. } => self.stats.fallocate_count += 1,
        }
        let protected = (change.lock, change.stamp);
        self.commit_change(now, token, (change.object, &target), protected, CommitReply::AtOnce, effects)
    }
}
