//! Names and what they lead to, present and absent, as cached here and as told to the kernel.

use crate::cache::may_kernel_believe;
use crate::small_bytes::SmallBytes;
use base::{Fid, LockId, Time, names::name_hash};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;

/// Absent names that are kept under children's locks: such a lock covers all that is not there. (Some thousands is what a compiler
/// or an interpreter looks for in vain while the kernel remembers it.)
const ABSENT_MAX: usize = 16_384;
/// Of those so many are looked at, whether the kernel still answers from them, before one more is kept.
const ABSENT_LOOK_COUNT: usize = 2;

/// One name of a directory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Name {
    pub(crate) name: SmallBytes,
    /// `fid`, where `is_there`.
    fid_there: Fid,
    is_there: bool,
    /// The kernel may answer from it until then.
    pub(crate) kernel_until: Time,
    /// `listed_under`: no lock has the id zero.
    listed_under: Option<NonZeroU64>,
    /// Believed no more, lock or not; kept for the sake of what the kernel was told.
    pub(crate) is_in_doubt: bool,
}

impl Name {
    /// `None`: there is no such name.
    pub(crate) fn fid(&self) -> Option<Fid> {
        self.is_there.then_some(self.fid_there)
    }

    fn set_fid(&mut self, fid: Option<Fid>) {
        (self.fid_there, self.is_there) = (fid.unwrap_or_default(), fid.is_some());
    }

    /// It was learnt from a listing, and is true while this lock on the directory's children is held.
    pub(crate) fn listed_under(&self) -> Option<LockId> {
        self.listed_under.map(|lock| LockId(lock.get()))
    }

    fn set_listed_under(&mut self, lock: Option<LockId>) {
        self.listed_under = lock.and_then(|lock| NonZeroU64::new(lock.0));
    }
}

/// A directory and a hash: what one name lock covers.
type Slot = (Fid, u64);

/// Names by slot. An entry is believed only while a lock covers its slot, or the children's lock is held under which it was
/// listed. There may be millions, and hardly ever two in one slot.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// By directory and hash.
    first: BTreeMap<Fid, BTreeMap<u64, Box<Name>>>,
    /// Those whose slot has another one in `first`. None of these is empty.
    others: BTreeMap<Slot, Vec<Name>>,
    /// Names that became known as absent under a children's lock, and may be something else by now.
    absent: VecDeque<(Fid, Vec<u8>)>,
}

impl Names {
    pub(crate) fn get(&self, parent: Fid, name: &[u8]) -> Option<&Name> {
        self.slot(parent, name_hash(name)).find(|known| *known.name == *name)
    }

    /// All names of one hash that are known here.
    pub(crate) fn slot(&self, parent: Fid, hash: u64) -> impl Iterator<Item = &Name> {
        let first = self.first.get(&parent).and_then(|directory| directory.get(&hash)).map(Box::as_ref);
        let others = first.and_then(|_| self.others.get(&(parent, hash)));
        first.into_iter().chain(others.into_iter().flatten())
    }

    fn find_mut(&mut self, (parent, hash): Slot, name: &[u8]) -> Option<&mut Name> {
        let first = self.first.get_mut(&parent)?.get_mut(&hash)?;
        if *first.name == *name {
            return Some(first);
        }
        self.others.get_mut(&(parent, hash))?.iter_mut().find(|known| *known.name == *name)
    }

    /// Adds a name that is not there.
    fn insert(&mut self, (parent, hash): Slot, name: Name) {
        match self.first.entry(parent).or_default().entry(hash) {
            Entry::Vacant(slot) => {
                slot.insert(Box::new(name));
            }
            Entry::Occupied(_) => self.others.entry((parent, hash)).or_default().push(name),
        }
    }

    /// Remembers a name that a lock on its slot covers; keeps the later of both kernel times.
    pub(crate) fn put(&mut self, parent: Fid, name: &[u8], fid: Option<Fid>, kernel_until: Time) {
        self.put_listed(parent, name, fid, kernel_until, None);
    }

    /// The same for a name that is known under a children's lock.
    pub(crate) fn put_listed(
        &mut self,
        parent: Fid,
        name: &[u8],
        fid: Option<Fid>,
        kernel_until: Time,
        listed_under: Option<LockId>,
    ) {
        self.put_at((parent, name_hash(name)), name, fid, kernel_until, listed_under);
    }

    fn put_at(
        &mut self,
        slot: Slot,
        name: &[u8],
        fid: Option<Fid>,
        kernel_until: Time,
        listed_under: Option<LockId>,
    ) {
        let Some(known) = self.find_mut(slot, name) else {
            let mut new = Name {
                name: name.into(),
                fid_there: Fid::default(),
                is_there: false,
                kernel_until,
                listed_under: None,
                is_in_doubt: false,
            };
            new.set_fid(fid);
            new.set_listed_under(listed_under);
            return self.insert(slot, new);
        };
        if known.fid() != fid || listed_under.is_some() {
            known.set_listed_under(listed_under);
        }
        known.set_fid(fid);
        known.kernel_until = known.kernel_until.max(kernel_until);
        known.is_in_doubt = false;
    }

    /// Remembers a name that is not there as long as this lock on the directory's children is held. False: there are too many of
    /// them that the kernel answers from.
    pub(crate) fn put_absent(&mut self, parent: Fid, name: &[u8], listed_under: LockId, now: Time) -> bool {
        if self.get(parent, name).is_none() {
            if !self.has_room_for_absent(now) {
                return false;
            }
            self.absent.push_back((parent, name.to_vec()));
        }
        self.put_listed(parent, name, None, Time::ZERO, Some(listed_under));
        true
    }

    fn has_room_for_absent(&mut self, now: Time) -> bool {
        for _ in 0..ABSENT_LOOK_COUNT {
            if self.absent.len() < ABSENT_MAX {
                return true;
            }
            let Some((parent, name)) = self.absent.pop_front() else { return true };
            let listed = self.get(parent, &name).filter(|known| {
                known.fid().is_none() && known.listed_under().is_some() && !known.is_in_doubt
            });
            match listed.map(|known| may_kernel_believe(known.kernel_until, now)) {
                Some(true) => self.absent.push_back((parent, name)),
                Some(false) => self.remove(parent, &name),
                None => {}
            }
        }
        self.absent.len() < ABSENT_MAX
    }

    /// An answer that no lock covers says something else: neither is believed. When the slot's lock goes, the kernel still has to
    /// forget what it was told.
    pub(crate) fn doubt(&mut self, parent: Fid, name: &[u8], fid: Option<Fid>) {
        if let Some(known) = self.find_mut((parent, name_hash(name)), name) {
            known.is_in_doubt |= known.fid() != fid;
        }
    }

    pub(crate) fn remove(&mut self, parent: Fid, name: &[u8]) {
        self.remove_at((parent, name_hash(name)), name);
    }

    fn remove_at(&mut self, slot: Slot, name: &[u8]) {
        if self.find_mut(slot, name).is_none() {
            return;
        }
        for known in self.take_at(slot).into_iter().filter(|known| *known.name != *name) {
            self.insert(slot, known);
        }
    }

    fn take_at(&mut self, slot @ (parent, hash): Slot) -> Vec<Name> {
        let Entry::Occupied(mut directory) = self.first.entry(parent) else { return Vec::new() };
        let Some(first) = directory.get_mut().remove(&hash) else { return Vec::new() };
        if directory.get().is_empty() {
            directory.remove();
        }
        let mut names = vec![*first];
        names.extend(self.others.remove(&slot).unwrap_or_default());
        names
    }

    /// Everything that one name lock covers; forgotten here.
    pub(crate) fn take_slot(&mut self, parent: Fid, hash: u64) -> Vec<Name> {
        self.take_at((parent, hash))
    }

    /// What is known under a children's lock, and under nothing else from now on.
    pub(crate) fn take_listed(&mut self, parent: Fid, listed_under: LockId) -> Vec<Name> {
        let first = self.first.get_mut(&parent).into_iter().flat_map(BTreeMap::values_mut);
        let others = self.others.range_mut((parent, 0)..=(parent, u64::MAX)).flat_map(|(_, names)| names);
        let mut listed = Vec::new();
        for name in first.map(Box::as_mut).chain(others) {
            if name.listed_under() == Some(listed_under) {
                name.set_listed_under(None);
                listed.push(name.clone());
            }
        }
        listed
    }

    /// Forgets what is under directories of which `is_lost` holds.
    pub(crate) fn drop_where(&mut self, is_lost: impl Fn(Fid) -> bool) {
        self.first.retain(|parent, _| !is_lost(*parent));
        self.others.retain(|(parent, _), _| !is_lost(*parent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: Fid = Fid { seq: Fid::SEQ_NORMAL, oid: 1, ver: 0 };
    const LOCK: LockId = LockId(7);

    fn child(oid: u32) -> Option<Fid> {
        Some(Fid { oid, ..PARENT })
    }

    fn known_at(names: &Names, hash: u64) -> Vec<(&[u8], Option<Fid>)> {
        names.slot(PARENT, hash).map(|known| (&*known.name, known.fid())).collect()
    }

    #[test]
    fn names_of_one_hash_are_told_apart() {
        let mut names = Names::default();
        let slot = (PARENT, 5);
        for (name, oid, lock) in [(b"a", 2, Some(LOCK)), (b"b", 3, None), (b"c", 4, Some(LOCK))] {
            names.put_at(slot, name, child(oid), Time::ZERO, lock);
        }
        names.put_at(slot, b"c", child(5), Time(9), Some(LOCK));
        assert_eq!(known_at(&names, 5), [(&b"a"[..], child(2)), (b"b", child(3)), (b"c", child(5))]);
        assert!(known_at(&names, 6).is_empty());

        let listed = names.take_listed(PARENT, LOCK);
        assert!(listed.iter().map(|known| &*known.name).eq([b"a", b"c"]));
        assert!(names.take_listed(PARENT, LOCK).is_empty(), "they are listed under nothing now");

        names.remove_at(slot, b"d");
        names.remove_at(slot, b"a");
        assert_eq!(known_at(&names, 5), [(&b"b"[..], child(3)), (b"c", child(5))]);
        names.remove_at(slot, b"c");
        assert_eq!(known_at(&names, 5), [(&b"b"[..], child(3))]);
        names.put_at(slot, b"e", None, Time::ZERO, None);
        let taken = names.take_slot(PARENT, 5);
        assert!(taken.iter().map(|known| &*known.name).eq([b"b", b"e"]));
        assert!(names.first.is_empty() && names.others.is_empty());
    }

    #[test]
    fn names_of_a_lost_directory_are_forgotten_and_no_others() {
        let other = Fid { oid: 9, ..PARENT };
        let mut names = Names::default();
        for parent in [PARENT, other] {
            names.put_at((parent, 5), b"a", child(2), Time::ZERO, None);
            names.put_at((parent, 5), b"b", child(3), Time::ZERO, None);
        }
        names.drop_where(|parent| parent == PARENT);
        assert_eq!((names.slot(PARENT, 5).count(), names.slot(other, 5).count()), (0, 2));
        assert_eq!((names.first.len(), names.others.len()), (1, 1));
    }

    /// One for each inode that the kernel knows.
    #[test]
    fn a_name_is_small() {
        assert!(size_of::<Name>() <= 64, "{} bytes", size_of::<Name>());
    }
}
