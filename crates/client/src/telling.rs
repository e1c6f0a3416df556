//! Notifications about inodes that the kernel has not come to the end of.

use crate::machine::NotifyId;
use std::collections::BTreeSet;

/// By number, and by inode: each answer with attributes asks about its own.
#[derive(Debug, Default)]
pub(crate) struct Telling {
    nodes: BTreeSet<(NotifyId, u64)>,
    by_node: BTreeSet<(u64, NotifyId)>,
    /// Notifications that somebody has looked at.
    #[cfg(test)]
    looked_at_count: std::cell::Cell<u64>,
}

impl Telling {
    pub(crate) fn insert(&mut self, id: NotifyId, node: u64) {
        self.nodes.insert((id, node));
        self.by_node.insert((node, id));
    }

    /// The inodes that it was about.
    pub(crate) fn remove(&mut self, id: NotifyId) -> Vec<u64> {
        let nodes: Vec<u64> = self.nodes.range((id, 0)..=(id, u64::MAX)).map(|(_, node)| *node).collect();
        for node in &nodes {
            self.nodes.remove(&(id, *node));
            self.by_node.remove(&(*node, id));
        }
        nodes
    }

    /// Those about an inode. Others are not looked at.
    pub(crate) fn about(&self, node: u64) -> impl Iterator<Item = NotifyId> {
        let own = self.by_node.range((node, NotifyId(0))..=(node, NotifyId(u64::MAX)));
        own.map(|(_, id)| {
            #[cfg(test)]
            self.looked_at_count.set(self.looked_at_count.get() + 1);
            *id
        })
    }

    /// Asserts that both say the same.
    pub(crate) fn check(&self) {
        let by_node: BTreeSet<_> = self.nodes.iter().map(|(id, node)| (*node, *id)).collect();
        assert_eq!(by_node, self.by_node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Very many may be on their way, and each answered call with attributes asks.
    #[test]
    fn what_is_told_of_an_inode_is_found_without_looking_at_others() {
        const NODE_COUNT: u64 = 500;
        let mut telling = Telling::default();
        for number in 0..3 * NODE_COUNT {
            telling.insert(NotifyId(1 + number), 1 + number % NODE_COUNT);
        }
        telling.check();
        let about = |telling: &Telling, node: u64| telling.about(node).map(|id| id.0).collect::<Vec<u64>>();
        assert_eq!(about(&telling, 7), [7, 7 + NODE_COUNT, 7 + 2 * NODE_COUNT]);
        assert_eq!(about(&telling, NODE_COUNT + 1), [0; 0]);
        assert_eq!(telling.looked_at_count.take(), 3);
        assert_eq!(telling.remove(NotifyId(7 + NODE_COUNT)), [7]);
        assert_eq!(telling.remove(NotifyId(7 + NODE_COUNT)), [0; 0], "that is done already");
        telling.check();
        assert_eq!(about(&telling, 7), [7, 7 + 2 * NODE_COUNT]);
        assert_eq!(telling.looked_at_count.take(), 2);
    }
}
