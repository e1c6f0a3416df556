//! Inodes that nothing refers to, kept for a while for who comes back to them.

use std::collections::BTreeMap;

/// How many are kept: the kernel asks for what was listed one by one soon, or never.
const COUNT_MAX: usize = 16_384;

/// The one that came last at the end, each at one place: an inode that comes and goes often takes no other's.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    by_age: BTreeMap<u64, u64>,
    age_of: BTreeMap<u64, u64>,
    next_age: u64,
}

impl Listed {
    /// Adds an inode. -> The one that has been here longest, which has no more room.
    pub fn push(&mut self, node: u64) -> Option<u64> {
        let age = self.next_age;
        self.next_age += 1;
        if let Some(before) = self.age_of.insert(node, age) {
            self.by_age.remove(&before);
        }
        self.by_age.insert(age, node);
        if self.by_age.len() <= COUNT_MAX {
            return None;
        }
        let (_, oldest) = self.by_age.pop_first()?;
        self.age_of.remove(&oldest);
        Some(oldest)
    }

    /// Something refers to an inode now: it leaves its place to others.
    pub fn remove(&mut self, node: u64) {
        if let Some(age) = self.age_of.remove(&node) {
            self.by_age.remove(&age);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_that_comes_again_takes_no_other_place_and_becomes_the_latest() {
        let mut listed = Listed::default();
        let count = COUNT_MAX as u64;
        for _ in 0..3 {
            assert!((0..count).all(|node| listed.push(node).is_none()));
        }
        assert_eq!(listed.push(0), None);
        assert_eq!(listed.push(count), Some(1), "the first one had come again");
        assert_eq!((listed.by_age.len(), listed.age_of.len()), (COUNT_MAX, COUNT_MAX));
        listed.remove(5);
        listed.remove(5);
        assert_eq!(listed.push(count + 1), None, "there is a place");
        assert_eq!(listed.push(count + 2), Some(2));
    }
}
