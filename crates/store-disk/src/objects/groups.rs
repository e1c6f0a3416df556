//! The checksums of one object that are in memory, in groups as they lie in its file.
//!
//! A group whose block in the file has been written since it is here has its room there, so that later changes of it can wait for
//! the next sync: a crash leaves the object dirty, and what is dirty gets checksums anew whatever the file says of it. Many small
//! writes then cost one write of checksums, not one each.

use super::layout::GROUP_BLOCKS;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Groups that each open object may have here: 256 MiB of data, 256 KiB of memory.
const GROUP_COUNT: usize = 64;
/// Groups beyond that, of all open objects of a store together: 64 MiB of memory.
const SPARE_COUNT: usize = 16 << 10;

/// Room for groups that the objects of one store share.
#[derive(Clone)]
pub(super) struct Spare(Arc<AtomicUsize>);

impl Default for Spare {
    fn default() -> Spare {
        Spare(Arc::new(AtomicUsize::new(SPARE_COUNT)))
    }
}

impl Spare {
    fn take(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    fn give_back(&self, count: usize) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}

/// The checksums of one group's blocks, each xored with that of zeros, as in the file.
pub(super) struct Group {
    checksums: Box<[u32; GROUP_BLOCKS as usize]>,
    /// Its block in the file was written since it is here: there is room for it.
    is_stored: bool,
    /// What the file does not have yet.
    changed: Range<usize>,
}

impl Group {
    /// As the file has it. What the file is too short for counts as blocks of zeros.
    pub fn of_stored(bytes: &[u8]) -> Group {
        let mut checksums = Box::new([0; GROUP_BLOCKS as usize]);
        for (checksum, bytes) in checksums.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *checksum = u32::from_le_bytes(*bytes);
        }
        Group { checksums, is_stored: false, changed: 0..0 }
    }

    pub fn checksum(&self, within: usize) -> u32 {
        self.checksums.get(within).copied().unwrap_or_default()
    }

    /// Sets consecutive checksums from `within` on. Whether the file must have them at once: it may have no room for them.
    pub fn set(&mut self, within: usize, checksums: impl ExactSizeIterator<Item = u32>) -> bool {
        let end = within + checksums.len();
        for (slot, checksum) in self.checksums.iter_mut().skip(within).zip(checksums) {
            *slot = checksum;
        }
        self.changed = match self.is_changed() {
            true => self.changed.start.min(within)..self.changed.end.max(end),
            false => within..end,
        };
        !self.is_stored
    }

    pub fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// What is to be written, and behind how many checksums of the group.
    pub fn to_store(&self) -> (usize, Vec<u8>) {
        let changed = self.checksums.get(self.changed.clone()).unwrap_or_default();
        (self.changed.start, changed.iter().flat_map(|checksum| checksum.to_le_bytes()).collect())
    }

    /// The file may have lost all of it, and the room for it.
    pub fn note_lost(&mut self) {
        self.is_stored = false;
        self.changed = 0..self.checksums.len();
    }

    /// The file has all of it.
    pub fn note_stored(&mut self) {
        self.is_stored = true;
        self.changed = 0..0;
    }
}

/// Groups by number.
pub(super) struct Groups {
    groups: BTreeMap<u64, Group>,
    spare: Spare,
    /// How many of the store's spare ones these are.
    taken: usize,
}

impl Groups {
    pub fn new(spare: Spare) -> Groups {
        Groups { groups: BTreeMap::new(), spare, taken: 0 }
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut Group> {
        self.groups.get_mut(&number)
    }

    /// Those that the file does not have as they are here.
    pub fn changed(&mut self) -> impl Iterator<Item = (u64, &mut Group)> {
        self.groups.iter_mut().filter(|(_, group)| group.is_changed()).map(|(number, group)| (*number, group))
    }

    /// One that has to go before another can come; it may have to be stored first.
    pub fn in_the_way(&mut self) -> Option<u64> {
        if self.groups.len() < GROUP_COUNT + self.taken {
            return None;
        }
        if self.spare.take() {
            self.taken += 1;
            return None;
        }
        self.groups.first_key_value().map(|(number, _)| *number)
    }

    pub fn insert(&mut self, number: u64, group: Group) {
        self.groups.insert(number, group);
    }

    pub fn remove(&mut self, number: u64) {
        self.groups.remove(&number);
        self.give_back();
    }

    /// The first of these numbers whose group the file does not have as it is here.
    pub fn first_changed(&self, numbers: Range<u64>) -> Option<u64> {
        self.groups.range(numbers).find(|(_, group)| group.is_changed()).map(|(number, _)| *number)
    }

    /// As `remove`, of all these numbers.
    pub fn remove_all(&mut self, numbers: Range<u64>) {
        let found: Vec<u64> = self.groups.range(numbers).map(|(number, _)| *number).collect();
        for number in found {
            self.remove(number);
        }
    }

    /// Those below `end` stay.
    pub fn truncate(&mut self, end: u64) {
        self.groups.split_off(&end);
        self.give_back();
    }

    fn give_back(&mut self) {
        let needed = self.groups.len().saturating_sub(GROUP_COUNT);
        let unused = self.taken.saturating_sub(needed);
        self.taken -= unused;
        self.spare.give_back(unused);
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.spare.give_back(self.taken);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn objects_share_what_is_spare_and_give_it_back() {
        let spare = Spare(Arc::new(AtomicUsize::new(3)));
        let left = |spare: &Spare| spare.0.load(Ordering::Relaxed);
        let fill = |groups: &mut Groups, from: u64, count: u64| {
            for number in from..from + count {
                assert_eq!(groups.in_the_way(), None, "{number}");
                groups.insert(number, Group::of_stored(&[]));
            }
        };
        let (mut one, mut two) = (Groups::new(spare.clone()), Groups::new(spare.clone()));
        fill(&mut one, 100, GROUP_COUNT as u64 + 2);
        fill(&mut two, 0, GROUP_COUNT as u64 + 1);
        assert_eq!(left(&spare), 0);
        assert_eq!(one.in_the_way(), Some(100));
        assert_eq!(two.in_the_way(), Some(0));
        one.remove(100);
        assert_eq!(left(&spare), 1);
        fill(&mut two, 1000, 1);
        assert_eq!(two.in_the_way(), Some(0));
        two.truncate(GROUP_COUNT as u64);
        assert_eq!(left(&spare), 2);
        drop(one);
        assert_eq!(left(&spare), 3);
    }

    #[test]
    fn what_has_no_room_in_the_file_does_not_wait() {
        let mut group = Group::of_stored(&7_u32.to_le_bytes());
        assert_eq!((group.checksum(0), group.checksum(1)), (7, 0));
        assert!(group.set(3, [1, 2].into_iter()), "it may have no room");
        assert_eq!(group.to_store(), (3, [1_u32.to_le_bytes(), 2_u32.to_le_bytes()].concat()));
        group.note_stored();
        assert!(!group.is_changed());
        assert!(!group.set(9, [5].into_iter()));
        assert!(!group.set(7, [4].into_iter()));
        assert_eq!(group.to_store(), (7, [4_u32, 0, 5].map(u32::to_le_bytes).concat()));
    }
}
