//! Pages that the kernel was told to drop, until it is done.

use crate::executor::Sender;
use crate::machine::NotifyId;
use base::Extent;
use std::collections::{BTreeMap, BTreeSet};

/// Pages that the kernel was told to drop.
pub(super) struct PageDrop {
    pub node: u64,
    pub extent: Extent,
    /// It may come to its end only when calls are answered that wait: nobody waits for it any more.
    pub is_given_up: bool,
    /// It was given up for READs: theirs are empty, and the other pages are dropped anew.
    pub is_redone: bool,
    /// A target has evicted this client since it was sent: what was stored into these pages is lost.
    pub is_lost: bool,
    /// Are told when it is done; dropped when it is given up.
    pub waiters: Vec<Sender<()>>,
}

/// All of them. A mount that gives back many locks has as many on their way, each of another inode.
#[derive(Default)]
pub(super) struct PageDrops {
    by_id: BTreeMap<NotifyId, PageDrop>,
    by_node: BTreeSet<(u64, NotifyId)>,
    /// How many were looked at for the sake of an inode.
    #[cfg(test)]
    pub looked_at_count: std::cell::Cell<usize>,
}

impl PageDrops {
    pub fn insert(&mut self, id: NotifyId, drop: PageDrop) {
        self.by_node.insert((drop.node, id));
        self.by_id.insert(id, drop);
    }

    pub fn remove(&mut self, id: NotifyId) -> Option<PageDrop> {
        let drop = self.by_id.remove(&id)?;
        self.by_node.remove(&(drop.node, id));
        Some(drop)
    }

    pub fn get(&self, id: NotifyId) -> Option<&PageDrop> {
        self.by_id.get(&id)
    }

    pub fn get_mut(&mut self, id: NotifyId) -> Option<&mut PageDrop> {
        self.by_id.get_mut(&id)
    }

    /// Those of one inode, in the order in which they were sent. Others are not looked at.
    pub fn of(&self, node: u64) -> impl Iterator<Item = (NotifyId, &PageDrop)> {
        let ids = self.by_node.range((node, NotifyId(0))..=(node, NotifyId(u64::MAX)));
        ids.filter_map(|(_, id)| {
            #[cfg(test)]
            self.looked_at_count.set(self.looked_at_count.get() + 1);
            Some((*id, self.by_id.get(id)?))
        })
    }

    /// Asserts what always holds.
    pub fn check(&self) {
        let by_node: BTreeSet<_> = self.by_id.iter().map(|(id, drop)| (drop.node, *id)).collect();
        assert_eq!(by_node, self.by_node);
        for drop in self.by_id.values() {
            assert!(!drop.is_given_up || drop.waiters.is_empty(), "nobody waits for what was given up");
        }
    }
}
