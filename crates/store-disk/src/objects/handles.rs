//! Open objects. There is never more than one handle of an object, for it holds the object's lock and checksums; the
//! least lately used ones are closed when there are too many, and nobody uses them.

use super::file::ObjectFile;
use crate::device;
use base::ObjectId;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::StoreError;

pub(super) type Handle = Arc<ObjectFile>;

struct Entry {
    handle: Handle,
    was_used: bool,
}

/// Objects that are not durable yet and are passed over to find one to close that is. One that is closed costs a sync of everything.
const UNSYNCED_PASSED_MAX: usize = 8;

#[derive(Default)]
struct Open {
    entries: HashMap<ObjectId, Entry>,
    /// The same, in clock order.
    order: VecDeque<ObjectId>,
    /// One was closed that had something to be synced. A descriptor of it that is opened later may not be told if that fails.
    has_closed_unsynced: bool,
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
        self.open().entries.get(id).map(|entry| entry.handle.clone())
    }

    /// The open object, or what `open` gives.
    ///
    /// # Errors
    /// Those of `open`; or what makes room for it cannot be written.
    pub fn get_or_open(
        &self,
        id: &ObjectId,
        open: impl FnOnce() -> Result<Option<ObjectFile>, StoreError>,
    ) -> Result<Option<Handle>, StoreError> {
        let mut guard = self.open();
        if let Some(entry) = guard.entries.get_mut(id) {
            entry.was_used = true;
            return Ok(Some(entry.handle.clone()));
        }
        // Opened under the lock: two openings of one object must not both succeed.
        let Some(object) = open()? else { return Ok(None) };
        let handle = Arc::new(object);
        guard.entries.insert(*id, Entry { handle: handle.clone(), was_used: false });
        guard.order.push_back(*id);
        guard.evict(self.count_max)?;
        Ok(Some(handle))
    }

    /// Gives an object another name with `rename`, which says whether it has done so. Nobody opens it meanwhile under either
    /// name, and who has it open goes on with the same handle.
    ///
    /// # Errors
    /// Those of `rename`.
    pub fn rename(
        &self,
        id: &ObjectId,
        to: &ObjectId,
        rename: impl FnOnce() -> Result<bool, StoreError>,
    ) -> Result<bool, StoreError> {
        let mut open = self.open();
        if !rename()? {
            return Ok(false);
        }
        // Of what had been there.
        open.forget(to);
        if let Some(entry) = open.entries.remove(id) {
            open.order.retain(|kept| kept != id);
            entry.handle.set_id(*to);
            open.entries.insert(*to, entry);
            open.order.push_back(*to);
        }
        Ok(true)
    }

    /// Whether an object was closed, since this was asked last, with something to be synced.
    pub fn take_closed_unsynced(&self) -> bool {
        std::mem::take(&mut self.open().has_closed_unsynced)
    }

    /// The object is gone, or is not to be.
    pub fn forget(&self, id: &ObjectId) {
        self.open().forget(id);
    }
}

impl Open {
    fn forget(&mut self, id: &ObjectId) {
        self.entries.remove(id);
        self.order.retain(|kept| kept != id);
    }

    fn evict(&mut self, count_max: usize) -> Result<(), StoreError> {
        // All may be in use: then there are more for a while.
        let open_count = self.order.len();
        let mut look_count = 2 * open_count;
        let mut passed_count = 0;
        while self.order.len() > count_max && look_count > 0 {
            look_count -= 1;
            let Some(id) = self.order.pop_front() else { break };
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            // Who uses it may still change checksums, which who opened it again would look for in the file. Nobody can begin to:
            // that takes the lock that is held here.
            if Arc::strong_count(&entry.handle) > 1 || std::mem::take(&mut entry.was_used) {
                self.order.push_back(id);
                continue;
            }
            let may_pass = passed_count < UNSYNCED_PASSED_MAX && look_count >= open_count;
            if may_pass && entry.handle.is_to_be_synced() {
                passed_count += 1;
                self.order.push_back(id);
                continue;
            }
            match entry.handle.flush() {
                Ok(Some(_)) => {}
                // Who opened it again would miss what waits, so it is as one in use.
                Ok(None) => {
                    self.order.push_back(id);
                    continue;
                }
                Err(error) => {
                    self.order.push_back(id);
                    let errno = device::errno(&error);
                    return Err(StoreError::Poisoned { operation: "write an object's checksums", errno });
                }
            }
            self.has_closed_unsynced |= entry.handle.is_to_be_synced();
            self.entries.remove(&id);
        }
        Ok(())
    }
}
