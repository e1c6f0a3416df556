//! Lists of objects, page by page. A directory holds a 256th of them all, so what a page leaves of one is kept for the next page.

use super::{Shared, directory_number, id_of_name};
use base::ObjectId;
use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lists at a time whose next page costs no directory: each MDT that has lost a client makes one. Of 20 million objects a directory is
/// 2 MiB.
const RESTS_MAX: usize = 8;
/// What has come into a directory since is missing in what is kept of it.
const REST_LIFE: Duration = Duration::from_secs(60);

/// What a page has left of a directory.
struct Rest {
    /// The last object of that page.
    after: ObjectId,
    ids: std::vec::IntoIter<ObjectId>,
    read_at: Instant,
}

#[derive(Default)]
pub(super) struct Rests(Mutex<VecDeque<Rest>>);

impl Rests {
    fn rests(&self) -> MutexGuard<'_, VecDeque<Rest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, after: &ObjectId) -> Option<Rest> {
        let mut rests = self.rests();
        rests.retain(|rest| rest.read_at.elapsed() < REST_LIFE);
        let index = rests.iter().position(|rest| rest.after == *after)?;
        rests.remove(index)
    }

    fn keep(&self, rest: Rest) {
        let mut rests = self.rests();
        // Of another list, and older.
        rests.retain(|other| other.after != rest.after);
        rests.push_back(rest);
        if rests.len() > RESTS_MAX {
            rests.pop_front();
        }
    }
}

impl Shared {
    /// Objects behind `after`, directory by directory and in order there.
    pub(super) fn list(&self, after: Option<&ObjectId>, limit: usize) -> io::Result<Vec<ObjectId>> {
        let mut found = Vec::new();
        let first = after.map_or(0, directory_number);
        let mut left = after.and_then(|after| self.rests.take(after));
        for number in first..=u8::MAX {
            let (mut ids, read_at) = match left.take() {
                Some(rest) => (rest.ids, rest.read_at),
                None => {
                    let after = after.filter(|_| number == first);
                    let read_at = Instant::now();
                    (self.list_directory(number, after)?.into_iter(), read_at)
                }
            };
            found.extend(ids.by_ref().take(limit - found.len()));
            if found.len() >= limit {
                // Also when nothing is left: the directory need not be read once more to find that out.
                if let Some(last) = found.last() {
                    self.rests.keep(Rest { after: *last, ids, read_at });
                }
                break;
            }
        }
        Ok(found)
    }

    /// Objects of one directory behind `after`, in order.
    fn list_directory(&self, number: u8, after: Option<&ObjectId>) -> io::Result<Vec<ObjectId>> {
        #[cfg(test)]
        crate::device::faults::note_listing();
        let mut ids = Vec::new();
        for entry in std::fs::read_dir(self.directory.join(format!("{number:02x}")))? {
            let Some(id) = entry?.file_name().to_str().and_then(id_of_name) else { continue };
            // In another directory nobody finds it, and who asks for what is behind it would be led to its own.
            if directory_number(&id) == number && after.is_none_or(|after| id > *after) {
                ids.push(id);
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }
}
