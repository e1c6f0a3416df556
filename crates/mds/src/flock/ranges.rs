//! Ranges of one file that one owner has locked.

use base::Extent;
use std::collections::BTreeMap;
use wire::mdt::{FileLock, FlockKind};

/// None overlaps another one, and neighbours of the same kind are one.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    by_start: BTreeMap<u64, FileLock>,
}

impl Ranges {
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// By where they start.
    pub fn iter(&self) -> impl Iterator<Item = FileLock> {
        self.by_start.values().copied()
    }

    /// Those that have bytes in common with this extent, by where they start. What lies elsewhere is not looked at.
    pub fn overlapping(&self, extent: Extent) -> impl Iterator<Item = FileLock> {
        self.touching(extent).filter(move |lock| lock.extent.overlaps(extent))
    }

    /// The same, and those that end where it begins or begin where it ends.
    fn touching(&self, extent: Extent) -> impl Iterator<Item = FileLock> {
        // Of those that begin before it only the last one can reach it.
        let before = self.by_start.range(..extent.start).next_back();
        let before = before.filter(|(_, lock)| lock.extent.end >= extent.start);
        let end = extent.end.max(extent.start);
        before.into_iter().chain(self.by_start.range(extent.start..=end)).map(|(_, lock)| *lock)
    }

    /// Sets a range to a kind: what was there is cut or split, equal neighbours are merged.
    pub fn set(&mut self, new: FileLock) {
        let mut merged = new.extent;
        let touching: Vec<FileLock> = self.touching(new.extent).collect();
        for old in touching {
            let extent = old.extent;
            self.by_start.remove(&extent.start);
            if new.kind == old.kind {
                merged = Extent::new(extent.start.min(merged.start), extent.end.max(merged.end));
                continue;
            }
            for rest in [
                Extent::new(extent.start, extent.end.min(new.extent.start)),
                Extent::new(extent.start.max(new.extent.end), extent.end),
            ] {
                if !rest.is_empty() {
                    self.insert(FileLock { extent: rest, ..old });
                }
            }
        }
        if new.kind != FlockKind::Unlock {
            self.insert(FileLock { extent: merged, ..new });
        }
    }

    fn insert(&mut self, lock: FileLock) {
        self.by_start.insert(lock.extent.start, lock);
    }

    /// Asserts the invariants.
    pub fn check(&self) {
        let pairs = self.by_start.values().zip(self.by_start.values().skip(1));
        for (before, after) in pairs {
            assert!(before.extent.end <= after.extent.start, "{before:?} overlaps {after:?}");
            let are_one = before.kind == after.kind && before.extent.end == after.extent.start;
            assert!(!are_one, "{before:?} and {after:?}");
        }
        for (start, lock) in &self.by_start {
            assert_eq!(*start, lock.extent.start);
            assert!(!lock.extent.is_empty() && lock.kind != FlockKind::Unlock);
        }
    }
}
