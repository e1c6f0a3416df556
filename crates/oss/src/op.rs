//! Operations on objects, one file each: what it needs, what it changes, what it answers. None ever waits inside.

mod adopt;
mod advise;
mod change;
mod destroy;
mod fence;
mod getattr;
mod list;
mod read;
mod seek;
mod statfs;
mod sync;
mod write;

use crate::machine::{CommitReply, Effects, Oss, OssEvent};
use crate::rows::{self, ObjectRow};
use base::{ClientId, Endpoint, Extent, LockId, Now, ObjectId, Status, TargetKind, WallTime};
use bytes::Bytes;
use ldlm::{EnqueueRequest, Need};
use store::{Batch, MetaStore, ObjectStat, ObjectStore, StoreError};
use target::Token;
use wire::{LockMode, LockPolicy, OstRequest, Resource};

/// What a change is made to.
enum Target {
    /// With the row that it has.
    There(Option<ObjectRow>),
    New(Option<ObjectRow>),
    /// Destroyed since, or lost. A replay of what had been done to it is answered, and changes nothing.
    Gone(Status),
}

/// What the operation claims before it is executed: nothing, if it is refused for who asks.
pub(crate) fn needs(caller: ClientId, request: &OstRequest) -> Vec<Need> {
    match request {
        OstRequest::Destroy { .. } | OstRequest::Adopt { .. } if check_is_mdt(caller).is_err() => Vec::new(),
        OstRequest::Read { object, extent, lock: None } => read::needs(*object, *extent),
        OstRequest::Seek { object, offset_bytes, .. } => seek::needs(*object, *offset_bytes),
        OstRequest::Destroy { objects } => destroy::needs(objects),
        OstRequest::Adopt { objects, .. } => adopt::needs(objects),
        // Under locks of the client, or without a claim to coherence.
        OstRequest::Read { lock: Some(_), .. }
        | OstRequest::Write { .. }
        | OstRequest::Change { .. }
        | OstRequest::Getattr { .. }
        | OstRequest::Sync { .. }
        | OstRequest::Statfs
        | OstRequest::Advise { .. }
        | OstRequest::LockAndRead { .. }
        | OstRequest::ListObjects { .. }
        | OstRequest::Fence(_) => Vec::new(),
    }
}

/// What ends or renames objects, and the end of others' sessions, are an MDT's to ask for.
fn check_is_mdt(caller: ClientId) -> Result<(), Status> {
    match caller.endpoint() {
        Endpoint::Target(target) if target.kind == TargetKind::Mdt => Ok(()),
        _ => Err(Status::NotPermitted),
    }
}

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    pub(crate) fn on_ost_request(
        &mut self,
        now: Now,
        token: Token,
        request: OstRequest,
        data: Bytes,
        effects: &mut Effects,
    ) {
        let done = match request {
            OstRequest::Read { object, extent, lock } => {
                self.op_read(now, token, object, extent, lock, effects)
            }
            OstRequest::Write { object, offset_bytes, lock, stamp, is_answered, asked } => {
                let write = write::Write { object, offset_bytes, lock, stamp, is_answered, asked, data };
                self.op_write(now, token, write, effects)
            }
            OstRequest::Change { object, extent, op, lock, stamp } => {
                self.op_change(now, token, change::Change { object, extent, op, lock, stamp }, effects)
            }
            OstRequest::Getattr { objects } => self.op_getattr(now, token, &objects, effects),
            OstRequest::Seek { object, offset_bytes, is_hole } => {
                self.op_seek(now, token, object, offset_bytes, is_hole, effects)
            }
            OstRequest::Sync { objects: _ } => self.op_sync(now, token, effects),
            OstRequest::Destroy { objects } => self.op_destroy(now, token, &objects, effects),
            OstRequest::Statfs => self.op_statfs(now, token, effects),
            OstRequest::ListObjects { after } => self.op_list(now, token, after, effects),
            OstRequest::Adopt { objects, to, step } => {
                self.op_adopt(now, token, (&objects, to), step, effects)
            }
            OstRequest::LockAndRead { object, extent, lock, mode, asked } => {
                let enqueue = EnqueueRequest {
                    holder: token.client,
                    lock,
                    resource: Resource::Object(object),
                    mode,
                    policy: LockPolicy::Extent(asked),
                    can_wait: true,
                };
                self.op_lock_and_read(now, token, enqueue, extent, effects)
            }
            OstRequest::Fence(life) => self.op_fence(now, token, life, effects),
            OstRequest::Advise { object, extent, advice } => {
                self.op_advise(now, token, object, (extent, advice), effects)
            }
        };
        if let Err(status) = done {
            self.refuse(now, token, status, effects);
        }
    }

    /// A write needs a lock of its client over all that it changes: no late write of a client that lost its lock gets
    /// in. A replay was checked when it was executed first, and its lock may come back only after it.
    fn check_write(
        &mut self,
        token: Token,
        object: ObjectId,
        lock: LockId,
        extent: Extent,
    ) -> Result<Target, Status> {
        let is_destroyed = rows::is_destroyed(self.meta.as_ref(), &object)?;
        if !is_destroyed && token.replay.is_none() {
            let is_held = self.locks.holds(token.client, lock, Need::of_data(object, LockMode::Pw, extent));
            if !is_held {
                return Err(Status::LockLost);
            }
        }
        let target = match is_destroyed {
            true => Target::Gone(Status::Stale),
            false => self.target(object)?,
        };
        match target {
            Target::Gone(status) if token.replay.is_none() => Err(status),
            target => Ok(target),
        }
    }

    fn target(&mut self, object: ObjectId) -> Result<Target, Status> {
        let former = rows::object(self.meta.as_ref(), &object)?;
        if former.is_none() && rows::born(self.meta.as_ref(), &object)?.is_none() {
            // After a crash the file may be there without the rows that told of it. Then the store finds it, and they are made anew.
            self.objects.expect_absent(&object);
            return Ok(Target::New(None));
        }
        Ok(match self.object_stat(object) {
            Ok(Some(stat)) if stat.has_begun => Target::There(former),
            Ok(_) => Target::New(former),
            Err(Status::Corrupt) => Target::Gone(Status::Corrupt),
            Err(status) => return Err(status),
        })
    }

    /// What the store says of an object; `None` for a hole, `Moved` for one that has another name now.
    fn object_stat(&mut self, object: ObjectId) -> Result<Option<ObjectStat>, Status> {
        let stat = self.objects.stat(&object).map_err(|error| self.store_status(object, &error))?;
        if stat.is_none_or(|stat| !stat.has_begun) {
            if rows::is_adopted(self.meta.as_ref(), &object)? {
                return Err(Status::Moved);
            }
            self.check_not_lost(object, stat.is_some())?;
        }
        Ok(stat)
    }

    /// For an object that is not there, or has not even a header: it may be a hole, or it may have been there.
    fn check_not_lost(&mut self, object: ObjectId, has_file: bool) -> Result<(), Status> {
        let Some(born) = rows::born(self.meta.as_ref(), &object)? else { return Ok(()) };
        if has_file && !born.has_header {
            return Ok(());
        }
        if !self.core.was_durable(born.transno).map_err(|error| error.status())? {
            return Ok(());
        }
        let status = Status::Corrupt;
        self.events.push(OssEvent::Corrupt { object, status });
        Err(status)
    }

    /// Refuses what consumes space while the reserve is in use. A replay has been acknowledged and is not refused.
    fn check_space(&self, token: Token) -> Result<(), Status> {
        let is_refused = token.replay.is_none() && self.meta.pressure().is_consuming_refused();
        if is_refused { Err(Status::NoSpace) } else { Ok(()) }
    }

    /// Ends a change of one object: its new stamp, and what its lock protects from now on.
    fn commit_change(
        &mut self,
        now: Now,
        token: Token,
        (object, target): (ObjectId, &Target),
        (lock, stamp): (LockId, WallTime),
        mut reply: CommitReply,
        effects: &mut Effects,
    ) -> Result<(), Status> {
        let mut batch = Batch::new();
        if let Target::There(former) | Target::New(former) = target {
            let is_new = matches!(target, Target::New(_)) || former.is_none();
            let is_seen = matches!(reply, CommitReply::Written { attr: Some(_), .. });
            // A hole in nothing makes no object.
            if is_new && (is_seen || matches!(self.objects.stat(&object), Ok(Some(_)))) {
                rows::put_born(&mut batch, &object, self.core.next_transno());
            }
            let former = former.unwrap_or_default();
            let row = ObjectRow { stamp: former.stamp.max(stamp) };
            rows::put(&mut batch, rows::OBJECTS, &object.key(), &row);
            if let CommitReply::Written { attr: Some(attr), .. } = &mut reply {
                attr.stamp = row.stamp;
            }
        }
        let has_asked = matches!(reply, CommitReply::Written { lock: Some(_), .. });
        match self.commit(now, token, batch, reply, effects) {
            Ok(transno) => {
                self.cancels.on_written(token.client, lock, transno);
                self.durability.note_change(object, transno);
            }
            // The core has answered the error itself, without the lock.
            Err(_) if has_asked => self.locks.cancel(now.time, token.client, &[lock], &mut effects.locks),
            Err(_) => {}
        }
        Ok(())
    }

    /// The status of a failed call of the object store; damage is reported.
    fn store_status(&mut self, object: ObjectId, error: &StoreError) -> Status {
        let status = error.status();
        if matches!(error, StoreError::CorruptObject { .. }) {
            self.events.push(OssEvent::Corrupt { object, status });
        }
        status
    }
}
