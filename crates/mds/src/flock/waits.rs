//! Where those wait who wait for advisory locks.

use base::Fid;
use std::collections::{BTreeMap, BTreeSet};
use wire::peer::FlockOwner;

/// Waits by number, and those for fcntl locks by owner: whoever follows them from one to the next looks at no others.
#[derive(Debug, Default)]
pub(super) struct Waits {
    files: BTreeMap<u64, Fid>,
    by_owner: BTreeSet<(FlockOwner, u64)>,
}

impl Waits {
    /// `owner`: of an fcntl lock.
    pub fn insert(&mut self, fid: Fid, number: u64, owner: Option<FlockOwner>) {
        self.files.insert(number, fid);
        self.by_owner.extend(owner.map(|owner| (owner, number)));
    }

    /// Takes what `insert` was given.
    pub fn remove(&mut self, number: u64, owner: Option<FlockOwner>) {
        self.files.remove(&number);
        if let Some(owner) = owner {
            self.by_owner.remove(&(owner, number));
        }
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

    /// The numbers of an owner's waits for fcntl locks; the threads of a process may wait for several.
    pub fn of(&self, owner: FlockOwner) -> impl Iterator<Item = u64> {
        self.by_owner.range((owner, 0)..=(owner, u64::MAX)).map(|(_, number)| *number)
    }

    /// Asserts that it names what waits.
    pub fn check(&self, waiting: impl Iterator<Item = (Fid, u64, Option<FlockOwner>)>) {
        let mut found = Waits::default();
        waiting.for_each(|(fid, number, owner)| found.insert(fid, number, owner));
        assert_eq!(found.files, self.files);
        assert_eq!(found.by_owner, self.by_owner);
    }
}
