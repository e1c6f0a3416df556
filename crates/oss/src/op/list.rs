//! Which objects there are, for an MDT that has lost work together with the client that did it.

use crate::machine::{Effects, Oss, OssEvent};
use crate::rows::{self, ObjectRow};
use base::{Now, ObjectId, Status};
use bytes::Bytes;
use store::{MetaStore, ObjectStore};
use target::Token;
use wire::ost::ListedObject;
use wire::{OstReply, Reply};

/// Objects of one answer: nothing else is answered meanwhile, and a cold disk looks at a hundred files a second.
const LISTED_MAX: usize = 128;
/// Objects that cannot be read, and are told of. Where there are more, it is not about objects.
const UNREADABLE_MAX: usize = 1000;

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
            listed.extend(self.listed(object)?);
        }
        self.answer(now, token, Reply::Ost(OstReply::Objects { listed, next }), Bytes::new(), effects);
        Ok(())
    }

    /// What can be said of an object; `None` if it is gone by now. Of one that cannot be read, that its bytes may have changed: its MDT
    /// does not believe the size of its file then, or has it destroyed, and goes on to those behind it.
    fn listed(&mut self, object: ObjectId) -> Result<Option<ListedObject>, Status> {
        let described = self.objects.stat(&object).and_then(|stat| {
            let row = stat.map(|_| self.meta.get(rows::OBJECTS, &object.key())).transpose()?.flatten();
            Ok((stat, row))
        });
        let damage = match described {
            Ok((None, _)) => return Ok(None),
            Ok((Some(stat), row)) => match row.map(|row| rows::decode::<ObjectRow>(&row)).transpose() {
                Ok(row) => {
                    let stamp = row.map(|row| row.stamp);
                    return Ok(Some(ListedObject { object, size_bytes: stat.size_bytes, stamp }));
                }
                Err(damage) => damage,
            },
            Err(error) if error.is_local() => rows::status_of(&error),
            Err(error) => return Err(error.status()),
        };
        self.note_unreadable(object, damage);
        Ok(Some(ListedObject { object, size_bytes: 0, stamp: None }))
    }

    /// Told once: each MDT asks, and asks again.
    fn note_unreadable(&mut self, object: ObjectId, status: Status) {
        if self.unreadable.len() < UNREADABLE_MAX && self.unreadable.insert(object) {
            self.stats.unreadable_count += 1;
            self.events.push(OssEvent::Corrupt { object, status });
        }
    }
}
