//! Owners of advisory locks, and the handles that they were taken through.

use base::Fid;
use std::collections::{BTreeMap, BTreeSet};

/// As the kernel names it, and whether it is one of flock(2).
pub(crate) type LockOwner = (u64, bool);

/// An open-file-description lock is dropped with its handle (C13); one of fcntl(2) belongs to a process, which may hold it through another
/// handle of the same file.
#[derive(Debug, Default)]
pub(crate) struct LockOwners {
    of_handles: BTreeMap<u64, (Fid, BTreeSet<LockOwner>)>,
    /// Through how many handles of a file each has taken locks; never none.
    handle_counts: BTreeMap<(Fid, LockOwner), u32>,
}

impl LockOwners {
    /// A lock is asked for through this handle.
    pub(crate) fn note(&mut self, fh: u64, fid: Fid, owner: LockOwner) {
        let (_, owners) = self.of_handles.entry(fh).or_insert_with(|| (fid, BTreeSet::new()));
        if owners.insert(owner) {
            *self.handle_counts.entry((fid, owner)).or_default() += 1;
        }
    }

    /// The handle ends. -> Who has taken locks through it.
    pub(crate) fn end(&mut self, fh: u64) -> BTreeSet<LockOwner> {
        let Some((fid, owners)) = self.of_handles.remove(&fh) else { return BTreeSet::new() };
        owners.iter().for_each(|owner| self.count_less(fid, *owner));
        owners
    }

    /// An owner has no locks through this handle any more. Processes that come and go may share one for as long as it lives.
    pub(crate) fn forget(&mut self, fh: u64, owner: LockOwner) {
        let Some((fid, owners)) = self.of_handles.get_mut(&fh) else { return };
        let fid = *fid;
        if owners.remove(&owner) {
            self.count_less(fid, owner);
        }
    }

    /// Who has taken locks through this handle, or has tried to.
    pub(crate) fn of_handle(&self, fh: u64) -> Option<&BTreeSet<LockOwner>> {
        self.of_handles.get(&fh).map(|(_, owners)| owners)
    }

    fn count_less(&mut self, fid: Fid, owner: LockOwner) {
        if let Some(count) = self.handle_counts.get_mut(&(fid, owner)) {
            *count -= 1;
            if *count == 0 {
                self.handle_counts.remove(&(fid, owner));
            }
        }
    }

    /// Whether it has taken locks through a handle of this file that has not ended.
    pub(crate) fn is_owner(&self, fid: Fid, owner: LockOwner) -> bool {
        self.handle_counts.contains_key(&(fid, owner))
    }

    /// Asserts that the counts are those of the handles.
    pub(crate) fn check(&self) {
        let mut counts: BTreeMap<(Fid, LockOwner), u32> = BTreeMap::new();
        for (fid, owners) in self.of_handles.values() {
            owners.iter().for_each(|owner| *counts.entry((*fid, *owner)).or_default() += 1);
        }
        assert_eq!(counts, self.handle_counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(oid: u32) -> Fid {
        Fid { seq: Fid::SEQ_NORMAL, oid, ver: 0 }
    }

    #[test]
    fn who_has_locks_through_another_handle_of_the_file_is_an_owner_still() {
        let mut owners = LockOwners::default();
        let (process, description, flock) = ((1, false), (2, false), (1, true));
        for (fh, oid) in [(10, 1), (11, 1), (12, 2)] {
            owners.note(fh, fid(oid), process);
            owners.note(fh, fid(oid), process);
        }
        owners.note(10, fid(1), description);
        owners.note(10, fid(1), flock);
        owners.check();
        assert_eq!(owners.end(10), BTreeSet::from([process, description, flock]));
        assert!(owners.is_owner(fid(1), process), "through the other handle");
        assert!(!owners.is_owner(fid(1), description) && !owners.is_owner(fid(1), flock));
        assert_eq!(owners.end(10), BTreeSet::new(), "it has ended");
        assert_eq!(owners.end(11), BTreeSet::from([process]));
        assert!(!owners.is_owner(fid(1), process), "the handle that is left is of another file");
        assert!(owners.is_owner(fid(2), process));
        owners.end(12);
        owners.check();
        assert!(owners.of_handles.is_empty() && owners.handle_counts.is_empty());
    }

    #[test]
    fn processes_that_come_and_go_leave_nothing_at_a_handle_that_they_share() {
        let mut owners = LockOwners::default();
        owners.note(10, fid(1), (1, false));
        for process in 2..1000 {
            owners.note(10, fid(1), (process, false));
            owners.forget(10, (process, false));
            owners.forget(11, (1, false));
        }
        owners.check();
        assert_eq!(owners.handle_counts.len(), 1);
        assert_eq!(owners.end(10), BTreeSet::from([(1, false)]));
        owners.check();
    }
}
