//! Open objects. There is never more than one handle of an object, for it holds the object's lock and checksums; the
//! least lately used ones are closed when there are too many.

use super::file::ObjectFile;
use base::ObjectId;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use store::StoreError;

pub(super) type Handle = Arc<ObjectFile>;

struct Entry {
    handle: Weak<ObjectFile>,
    was_used: bool,
}

#[derive(Default)]
struct Open {
    entries: HashMap<ObjectId, Entry>,
    /// Keeps them open, in clock order.
    kept: VecDeque<(ObjectId, Handle)>,
}

pub(super) struct Handles {
    open: Mutex<Open>,
    count_max: usize,
}

impl Handles {
    pub fn new(count_max: usize) -> Handles {
        Handles { open: Mutex::default(), count_max: count_max.max(1) }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object, if it is open.
    pub fn get(&self, id: &ObjectId) -> Option<Handle> {
        self.open().entries.get(id)?.handle.upgrade()
    }

    /// The open object, or what `open` gives.
    pub fn get_or_open(
        &self,
        id: &ObjectId,
        open: impl FnOnce() -> Result<Option<ObjectFile>, StoreError>,
    ) -> Result<Option<Handle>, StoreError> {
        let mut guard = self.open();
        if let Some(entry) = guard.entries.get_mut(id)
            && let Some(handle) = entry.handle.upgrade()
        {
            entry.was_used = true;
            return Ok(Some(handle));
        }
        // Opened under the lock: two openings of one object must not both succeed.
        let Some(object) = open()? else { return Ok(None) };
        let handle = Arc::new(object);
        guard.entries.insert(*id, Entry { handle: Arc::downgrade(&handle), was_used: false });
        guard.kept.push_back((*id, handle.clone()));
        guard.evict(self.count_max);
        Ok(Some(handle))
    }

    /// The object is gone, or is not to be.
    pub fn forget(&self, id: &ObjectId) {
        let mut open = self.open();
        open.entries.remove(id);
        open.kept.retain(|(kept, _)| kept != id);
    }
}

impl Open {
    fn evict(&mut self, count_max: usize) {
        while self.kept.len() > count_max {
            let Some((id, handle)) = self.kept.pop_front() else { return };
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            if std::mem::take(&mut entry.was_used) {
                self.kept.push_back((id, handle));
                continue;
            }
            drop(handle);
            if entry.handle.strong_count() == 0 {
                self.entries.remove(&id);
            }
        }
        // Entries of handles that somebody held when they were evicted.
        if self.entries.len() > 4 * count_max {
            self.entries.retain(|_, entry| entry.handle.strong_count() > 0);
        }
    }
}
