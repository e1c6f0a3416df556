//! Names and what they lead to, present and absent, as cached here and as told to the kernel.

use crate::cache::may_kernel_believe;
use base::{Fid, LockId, Time, names::name_hash};
use std::collections::{BTreeMap, VecDeque};

/// Absent names that are kept under children's locks: such a lock covers all that is not there. (Some thousands is what a compiler
/// or an interpreter looks for in vain while the kernel remembers it.)
const ABSENT_MAX: usize = 16_384;
/// Of those so many are looked at, whether the kernel still answers from them, before one more is kept.
const ABSENT_LOOK_COUNT: usize = 2;

/// One name of a directory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Name {
    pub(crate) name: Vec<u8>,
    /// `None`: there is no such name.
    pub(crate) fid: Option<Fid>,
    /// The kernel may answer from it until then.
    pub(crate) kernel_until: Time,
    /// Learnt from a listing, and true while this lock on the directory's children is held.
    pub(crate) listed_under: Option<LockId>,
    /// Believed no more, lock or not; kept for the sake of what the kernel was told.
    pub(crate) is_in_doubt: bool,
}

/// Names by directory and hash: what one name lock covers stands together. An entry is believed only while a lock
/// covers its slot, or the children's lock is held under which it was listed.
#[derive(Debug, Default)]
pub(crate) struct Names {
    slots: BTreeMap<(Fid, u64), Vec<Name>>,
    /// Names that became known as absent under a children's lock, and may be something else by now.
    absent: VecDeque<(Fid, Vec<u8>)>,
}

impl Names {
    pub(crate) fn get(&self, parent: Fid, name: &[u8]) -> Option<&Name> {
        self.slots.get(&(parent, name_hash(name)))?.iter().find(|known| known.name == name)
    }

    /// All names of one hash that are known here.
    pub(crate) fn slot(&self, parent: Fid, hash: u64) -> &[Name] {
        self.slots.get(&(parent, hash)).map_or(&[], Vec::as_slice)
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
        let slot = self.slots.entry((parent, name_hash(name))).or_default();
        match slot.iter_mut().find(|known| known.name == name) {
            Some(known) => {
                if known.fid != fid || listed_under.is_some() {
                    known.listed_under = listed_under;
                }
                known.fid = fid;
                known.kernel_until = known.kernel_until.max(kernel_until);
                known.is_in_doubt = false;
            }
            None => {
                let is_in_doubt = false;
                // Vec makes room for four at once; two names hardly ever have one hash.
                slot.reserve_exact(1);
                slot.push(Name { name: name.to_vec(), fid, kernel_until, listed_under, is_in_doubt });
            }
        }
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
            let listed = self
                .get(parent, &name)
                .filter(|known| known.fid.is_none() && known.listed_under.is_some() && !known.is_in_doubt);
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
        let slot = self.slots.get_mut(&(parent, name_hash(name)));
        if let Some(known) = slot.and_then(|slot| slot.iter_mut().find(|known| known.name == name)) {
            known.is_in_doubt |= known.fid != fid;
        }
    }

    pub(crate) fn remove(&mut self, parent: Fid, name: &[u8]) {
        let key = (parent, name_hash(name));
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.retain(|known| known.name != name);
            if slot.is_empty() {
                self.slots.remove(&key);
            }
        }
    }

    /// Everything that one name lock covers; forgotten here.
    pub(crate) fn take_slot(&mut self, parent: Fid, hash: u64) -> Vec<Name> {
        self.slots.remove(&(parent, hash)).unwrap_or_default()
    }

    /// What is known under a children's lock, and under nothing else from now on.
    pub(crate) fn take_listed(&mut self, parent: Fid, listed_under: LockId) -> Vec<Name> {
        let slots = self.slots.range_mut((parent, 0)..=(parent, u64::MAX)).flat_map(|(_, slot)| slot);
        let mut listed = Vec::new();
        for name in slots.filter(|name| name.listed_under == Some(listed_under)) {
            name.listed_under = None;
            listed.push(name.clone());
        }
        listed
    }

    /// Forgets what is under directories of which `is_lost` holds.
    pub(crate) fn drop_where(&mut self, is_lost: impl Fn(Fid) -> bool) {
        self.slots.retain(|(parent, _), _| !is_lost(*parent));
    }
}
