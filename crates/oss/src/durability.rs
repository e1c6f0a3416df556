//! Which transactions have their object data on stable storage.
//!
//! Rows are numbered by transno and object mutations by the object store; this is the map between the two. The core
//! writes what it says into the rows of later transactions, and clients hear nothing else as committed; so a restarted
//! target does not get replays of writes whose bytes another client has since changed durably.

use base::{ObjectId, Transno};
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug)]
pub struct Durability {
    /// Transactions without durable data yet, with the object store's number after their mutations. Both rise.
    pending: VecDeque<(Transno, u64)>,
    durable: Transno,
    /// Objects whose last change is not known to be durable.
    changed: BTreeMap<ObjectId, Transno>,
    /// Up to where `changed` was gone through: every request asks for it, and seldom is there anything new.
    forgotten: Transno,
}

impl Durability {
    /// No transaction up to `start` will be pending: what was not durable before a restart is replayed under new numbers.
    pub fn new(start: Transno) -> Durability {
        Durability {
            pending: VecDeque::new(),
            durable: start,
            changed: BTreeMap::new(),
            forgotten: Transno::ZERO,
        }
    }

    /// Everything up to here is durable.
    pub fn durable(&self) -> Transno {
        self.durable
    }

    /// The last change of an object that a crash can take back, or zero.
    pub fn uncommitted(&self, object: &ObjectId) -> Transno {
        self.changed.get(object).copied().unwrap_or(Transno::ZERO)
    }

    pub fn note_change(&mut self, object: ObjectId, transno: Transno) {
        self.changed.insert(object, transno);
    }

    /// Rows and data up to `durable` are.
    pub fn forget_changes(&mut self, durable: Transno) {
        if durable > self.forgotten {
            self.forgotten = durable;
            self.changed.retain(|_, transno| *transno > durable);
        }
    }

    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// A transaction was applied whose mutations the object store numbered up to `written`.
    pub fn add(&mut self, transno: Transno, written: u64) {
        if let Some((last, last_written)) = self.pending.back() {
            assert!(*last <= transno, "transactions are numbered in order");
            assert!(*last_written <= written, "mutations are numbered in order");
        }
        self.pending.push_back((transno, written));
    }

    /// The object store has made mutations up to here durable. True when that moved `durable`.
    pub fn advance(&mut self, durable: u64) -> bool {
        let before = self.durable;
        while let Some(&(transno, written)) = self.pending.front() {
            if written > durable {
                break;
            }
            self.pending.pop_front();
            self.durable = self.durable.max(transno);
        }
        self.durable > before
    }

    /// Nothing is pending, and everything up to here has its data: transactions of the sessions themselves have none.
    pub fn raise(&mut self, transno: Transno) -> bool {
        assert!(self.is_idle(), "pending data are not durable");
        let is_higher = transno > self.durable;
        self.durable = self.durable.max(transno);
        is_higher
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_uncommitted_until_it_is_durable() {
        let object = ObjectId::default();
        let mut durability = Durability::new(Transno(10));
        durability.note_change(object, Transno(12));
        durability.forget_changes(Transno(11));
        assert_eq!(durability.uncommitted(&object), Transno(12));
        durability.forget_changes(Transno(12));
        assert_eq!(durability.uncommitted(&object), Transno::ZERO);
    }

    #[test]
    fn a_transaction_is_durable_with_its_mutations_and_not_before() {
        let mut durability = Durability::new(Transno(10));
        durability.add(Transno(11), 5);
        durability.add(Transno(12), 5);
        durability.add(Transno(13), 9);
        assert!(!durability.advance(4));
        assert_eq!(durability.durable(), Transno(10));
        assert!(durability.advance(8));
        assert_eq!(durability.durable(), Transno(12));
        assert!(durability.advance(9) && durability.is_idle());
        assert!(durability.raise(Transno(20)) && !durability.raise(Transno(15)));
    }
}
