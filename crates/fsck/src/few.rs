//! Sets most of which have one element: names of a file, for each file that there is.
//!
//! A `BTreeSet` of one has a node with room for eleven, which was more than all else that is held of a file. Of many elements it is one here too,
//! so that a file with any number of names costs no more for each.

use std::collections::{BTreeSet, btree_set};
use std::iter::Chain;
use std::slice;

const FEW: usize = 16;

#[derive(Debug)]
pub(crate) struct Few<T> {
    /// In order; empty when there are many.
    few: Vec<T>,
    many: BTreeSet<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Few<T> {
        Few { few: Vec::new(), many: BTreeSet::new() }
    }
}

impl<T: Ord> Few<T> {
    pub fn insert(&mut self, item: T) {
        if !self.many.is_empty() {
            self.many.insert(item);
            return;
        }
        let Err(at) = self.few.binary_search(&item) else { return };
        if self.few.is_empty() {
            self.few.reserve_exact(1);
        }
        self.few.insert(at, item);
        if self.few.len() > FEW {
            self.many = std::mem::take(&mut self.few).into_iter().collect();
        }
    }

    pub fn contains(&self, item: &T) -> bool {
        self.few.binary_search(item).is_ok() || self.many.contains(item)
    }

    pub fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }

    pub fn iter(&self) -> Chain<slice::Iter<'_, T>, btree_set::Iter<'_, T>> {
        self.few.iter().chain(&self.many)
    }
}

impl<'a, T: Ord> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = Chain<slice::Iter<'a, T>, btree_set::Iter<'a, T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_set_in_order_of_few_and_of_many() {
        let (mut set, mut model) = (Few::default(), BTreeSet::new());
        for number in (0..4 * FEW as u32).map(|number| number * 7 % 29) {
            set.insert(number);
            model.insert(number);
            assert!(set.iter().eq(&model) && set.len() == model.len());
            assert!((0..30).all(|number| set.contains(&number) == model.contains(&number)));
        }
        assert!(model.len() > FEW && set.few.capacity() == 0, "{set:?}");
        let mut one = Few::default();
        one.insert(1);
        assert_eq!(one.few.capacity(), 1);
    }
}
