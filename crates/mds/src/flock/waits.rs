//! Where those wait who wait for advisory locks.

use super::Key;
use super::file::keys_of;
use base::{ClientId, Fid};
use std::collections::{BTreeMap, BTreeSet};

/// Waits by number and by owner: whoever follows them from one to the next, or ends an owner's, looks at no others.
#[derive(Debug, Default)]
pub(super) struct Waits {
    files: BTreeMap<u64, Fid>,
    by_owner: BTreeSet<(Key, u64)>,
}

impl Waits {
    pub fn insert(&mut self, fid: Fid, number: u64, owner: Key) {
        self.files.insert(number, fid);
        self.by_owner.insert((owner, number));
    }

    /// Takes what `insert` was given.
    pub fn remove(&mut self, number: u64, owner: Key) {
        self.files.remove(&number);
        self.by_owner.remove(&(owner, number));
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub fn file_of(&self, number: u64) -> Option<Fid> {
        self.files.get(&number).copied()
    }

    /// For each wait its file.
    pub fn files(&self) -> impl Iterator<Item = Fid> {
        self.files.values().copied()
    }

    /// The numbers of an owner's waits; the threads of a process may wait for several.
    pub fn of(&self, owner: Key) -> impl Iterator<Item = u64> {
        self.by_owner.range((owner, 0)..=(owner, u64::MAX)).map(|(_, number)| *number)
    }

    /// The same, of all owners of a client.
    pub fn of_client(&self, client: ClientId) -> impl Iterator<Item = u64> {
        let (first, last) = keys_of(client).into_inner();
        self.by_owner.range((first, 0)..=(last, u64::MAX)).map(|(_, number)| *number)
    }

    /// Asserts that it names what waits.
    pub fn check(&self, waiting: impl Iterator<Item = (Fid, u64, Key)>) {
        let mut found = Waits::default();
        waiting.for_each(|(fid, number, owner)| found.insert(fid, number, owner));
        assert_eq!(found.files, self.files);
        assert_eq!(found.by_owner, self.by_owner);
    }
}
