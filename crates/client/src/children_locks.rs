//! Locks on the children of directories, and the inodes of which something is true as long as one of them is held.

use base::{Fid, LockId};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

/// A lock on the children of a directory, under which something of one of them was learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChildrenLock {
    pub(crate) parent: Fid,
    pub(crate) lock: LockId,
}

/// Stands for such a lock as long as an inode relies on it: in few bytes, as all inodes of a directory name the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockNumber(NonZeroU32);

#[derive(Debug)]
struct ReliedOn {
    lock: ChildrenLock,
    /// Never none.
    nodes: BTreeSet<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct ChildrenLocks {
    by_number: BTreeMap<LockNumber, ReliedOn>,
    numbers: BTreeMap<ChildrenLock, LockNumber>,
    last_number: u32,
}

impl ChildrenLocks {
    pub(crate) fn get(&self, number: LockNumber) -> Option<ChildrenLock> {
        self.by_number.get(&number).map(|relied_on| relied_on.lock)
    }

    /// An inode relies on a lock.
    pub(crate) fn join(&mut self, lock: ChildrenLock, node: u64) -> LockNumber {
        let number = self.numbers.get(&lock).copied().unwrap_or_else(|| self.free_number());
        self.numbers.insert(lock, number);
        let relied_on =
            self.by_number.entry(number).or_insert_with(|| ReliedOn { lock, nodes: BTreeSet::new() });
        relied_on.nodes.insert(node);
        number
    }

    fn free_number(&mut self) -> LockNumber {
        loop {
            self.last_number = self.last_number.wrapping_add(1);
            // There are fewer of them than inodes that fit into memory.
            if let Some(number) = NonZeroU32::new(self.last_number).map(LockNumber)
                && !self.by_number.contains_key(&number)
            {
                return number;
            }
        }
    }

    /// It does not any more.
    pub(crate) fn leave(&mut self, number: LockNumber, node: u64) {
        let Some(relied_on) = self.by_number.get_mut(&number) else { return };
        relied_on.nodes.remove(&node);
        if relied_on.nodes.is_empty() {
            self.numbers.remove(&relied_on.lock);
            self.by_number.remove(&number);
        }
    }

    /// Those that rely on a lock.
    pub(crate) fn nodes_under(&self, lock: ChildrenLock) -> impl Iterator<Item = u64> {
        let relied_on = self.numbers.get(&lock).and_then(|number| self.by_number.get(number));
        relied_on.into_iter().flat_map(|relied_on| relied_on.nodes.iter().copied())
    }

    /// A lock is not held any more. -> Those that relied on it.
    pub(crate) fn end(&mut self, lock: ChildrenLock) -> BTreeSet<u64> {
        let number = self.numbers.remove(&lock);
        let relied_on = number.and_then(|number| self.by_number.remove(&number));
        relied_on.map(|relied_on| relied_on.nodes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(oid: u32, lock: u64) -> ChildrenLock {
        ChildrenLock { parent: Fid { seq: Fid::SEQ_NORMAL, oid, ver: 0 }, lock: LockId(lock) }
    }

    #[test]
    fn a_number_stands_for_one_lock_while_an_inode_relies_on_it() {
        let mut locks = ChildrenLocks::default();
        let one = locks.join(lock(1, 1), 10);
        assert_eq!(locks.join(lock(1, 1), 11), one);
        let other = locks.join(lock(1, 2), 12);
        assert_ne!(one, other);
        assert_eq!((locks.get(one), locks.get(other)), (Some(lock(1, 1)), Some(lock(1, 2))));
        assert!(locks.nodes_under(lock(1, 1)).eq([10, 11]));
        locks.leave(one, 10);
        locks.leave(one, 11);
        locks.leave(one, 11);
        assert_eq!((locks.get(one), locks.get(other)), (None, Some(lock(1, 2))));
        assert_eq!(locks.nodes_under(lock(1, 1)).count(), 0);
        assert_eq!(locks.end(lock(1, 1)), BTreeSet::new());
        assert_eq!(locks.end(lock(1, 2)), BTreeSet::from([12]));
        assert!(locks.by_number.is_empty() && locks.numbers.is_empty());
    }

    #[test]
    fn numbers_that_are_in_use_are_not_given_again() {
        let mut locks = ChildrenLocks::default();
        let first = locks.join(lock(1, 1), 10);
        locks.last_number = u32::MAX;
        let second = locks.join(lock(2, 2), 11);
        assert_ne!(first, second);
        assert_eq!(locks.get(first), Some(lock(1, 1)));
    }
}
