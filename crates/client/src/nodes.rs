//! The inodes that the kernel, an open handle or a running call refers to, and what is cached of them.
//!
//! Cached attributes, xattrs and link targets are valid only while a lock says so; `State` asks for that at each use.

use crate::advisory::Advisory;
use crate::kernel_size::KernelSize;
use crate::listing_cache::ListingCache;
use crate::opened::OpenedData;
use crate::ops::attr::FileSize;
use crate::pages::Pages;
use crate::seldom::Seldom;
use base::names::stripe_of;
use base::{Attr, Epoch, Fid, Layout, LockId, TargetId, Time, Transno, Version};
use std::collections::{BTreeMap, BTreeSet};
use wire::mdt::Access;

/// A lock on the children of a directory, under which something of one of them was learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChildrenLock {
    pub(crate) parent: Fid,
    pub(crate) lock: LockId,
}

/// What the objects of a file said while nothing was under way that changes them. True as long as it is `at_rest`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) at_rest: AtRest,
    pub(crate) size: FileSize,
    /// Told with the answer to a write: from when this is committed, no crash can take it back.
    pub(crate) written: Option<(TargetId, Transno)>,
}

/// A moment at which nobody changed the data of a file: a lock on the whole of each object was held, none was in use, its
/// target had restarted so often, and this client's last change was that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AtRest {
    pub(crate) locks: Vec<(LockId, Epoch)>,
    pub(crate) data_changed_at: u64,
}

/// All that is in a directory, and perhaps more, as long as the children's lock is held: nobody else changes names there, and
/// what this client adds is added here first.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) lock: LockId,
    /// Hashes of the names. What this client removes stays.
    pub(crate) hashes: BTreeSet<u64>,
}

/// One inode.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) fid: Fid,
    /// What was learnt from a listing is true while this is held; `Nodes` sets it.
    pub(crate) listed_under: Option<ChildrenLock>,
    /// References of the kernel.
    pub(crate) lookup_count: u64,
    /// The newest attributes seen.
    pub(crate) attr: Option<Attr>,
    /// Something changed that no reply described: ask again, lock or not.
    pub(crate) is_attr_stale: bool,
    /// When this mount has read it last; its MDT may not have heard of it yet.
    pub(crate) accessed: Option<Access>,
    pub(crate) layout: Option<Layout>,
    /// Never changes.
    pub(crate) symlink_target: Option<Vec<u8>>,
    /// Names, and values where they are known.
    pub(crate) xattrs: Option<BTreeMap<Vec<u8>, Option<Vec<u8>>>>,
    /// Rises with every change of extended attributes by this client, so that an older list is not cached.
    pub(crate) xattr_change_count: u64,
    /// Names under which the kernel may know it (parent's FID), latest last.
    pub(crate) names: Vec<(Fid, Vec<u8>)>,
    pub(crate) open_count: u32,
    /// Write epoch in which the size in `attr` was known, while this client has changed no data since.
    pub(crate) unchanged_since: Option<u64>,
    /// The same, while all that this client has changed since is kept back here (`dirty`).
    pub(crate) kept_since: Option<u64>,
    pub(crate) opened_data: Option<Box<OpenedData>>,
    /// `State::data_change_count` as of this client's last change of data or of pages: when it had the locks, and at its end.
    pub(crate) data_changed_at: u64,
    /// What the objects said last, if it can be believed again.
    pub(crate) measured: Option<Box<Measured>>,
    /// Its size is being measured for its MDT, which does not know it although nobody writes.
    pub(crate) is_settling: bool,
    /// The write epoch in which its MDT did not know its size although nobody could write it any more, and since when.
    pub(crate) unsettled: Option<(u64, Time)>,
    /// When its MDT was last asked whether somebody may write it, or that began to be of interest.
    pub(crate) settling_asked_at: Option<Time>,
    pub(crate) kernel_size: KernelSize,
    /// When the kernel's attributes of it last became others than those that an unanswered call may know (`ends`).
    pub(crate) versioned_at: Time,
    /// When a short READ was last refused, and where it began.
    pub(crate) refused_read: Option<(Time, u64)>,
    /// A lock on its data was refused for others: it is waited for, and not asked for with a write.
    pub(crate) is_contended: bool,
    /// When the write-back lock was last asked for.
    pub(crate) write_back_asked_at: Time,
    /// Handles for writing through the page cache (hazard 3.5).
    pub(crate) cached_writer_count: u32,
    /// All handles for writing.
    pub(crate) writer_count: u32,
    /// What the kernel may have in its page cache.
    pub(crate) pages: Seldom<Pages>,
    /// The kernel may answer from cached attributes until then.
    pub(crate) kernel_attr_until: Time,
    /// When the kernel, which had a name of it, was last told that it may answer from that.
    pub(crate) named_at: Time,
    /// Of a directory: when the kernel was last told, or would have been, that it may not any more.
    pub(crate) expired_at: Time,
    /// Newest transaction per target that changed the inode or its data.
    pub(crate) changes: BTreeMap<TargetId, Transno>,
    /// How far the attributes were known when its MDT last had all of its changes durable for a call here.
    pub(crate) durable_version: Option<(Epoch, Version)>,
    /// This client has changed the inode: what a listing says of it may be older, though no lock went back.
    pub(crate) is_changed_here: bool,
    pub(crate) advisory: Seldom<Advisory>,
    /// Rises with each change of a name in this directory by this client, at its start and at its end.
    pub(crate) change_count: u64,
    /// Changes of names in this directory by this client that have begun and not ended.
    pub(crate) changes_under_way: u32,
    /// Of a directory.
    pub(crate) whole: Option<Box<Whole>>,
    /// A directory is not asked for as a whole before.
    pub(crate) is_listed_whole_from: Time,
    /// Of a striped directory: the directories that hold its names, itself the first. They never change.
    pub(crate) stripes: Vec<Fid>,
    /// Of another stripe: the directory that the kernel knows. It lives as long as that one.
    pub(crate) master: Option<Fid>,
}

/// Of a directory with more names than these nobody says what is not there.
const WHOLE_MAX: usize = 1 << 16;

/// More names than these are not remembered one by one.
pub(crate) const NAMES_MAX: usize = 8;

impl Node {
    fn new(fid: Fid) -> Node {
        Node {
            fid,
            listed_under: None,
            lookup_count: 0,
            attr: None,
            is_attr_stale: false,
            accessed: None,
            layout: None,
            symlink_target: None,
            xattrs: None,
            xattr_change_count: 0,
            names: Vec::new(),
            open_count: 0,
            unchanged_since: None,
            kept_since: None,
            opened_data: None,
            data_changed_at: 0,
            measured: None,
            is_settling: false,
            unsettled: None,
            settling_asked_at: None,
            kernel_size: KernelSize::new(),
            versioned_at: Time::ZERO,
            refused_read: None,
            is_contended: false,
            write_back_asked_at: Time::ZERO,
            cached_writer_count: 0,
            writer_count: 0,
            pages: Seldom::none(),
            kernel_attr_until: Time::ZERO,
            named_at: Time::ZERO,
            expired_at: Time::ZERO,
            changes: BTreeMap::new(),
            durable_version: None,
            is_changed_here: false,
            advisory: Seldom::none(),
            change_count: 0,
            changes_under_way: 0,
            whole: None,
            is_listed_whole_from: Time::ZERO,
            stripes: Vec::new(),
            master: None,
        }
    }

    /// Keeps the newest attributes.
    pub(crate) fn see_attr(&mut self, attr: &Attr) {
        let is_newer = self.attr.as_ref().is_none_or(|known| attr.version >= known.version);
        if is_newer {
            let mut attr = attr.clone();
            self.add_access(&mut attr);
            self.attr = Some(attr);
            self.is_attr_stale = false;
        }
    }

    /// Takes in the answer to an open for writing. An epoch that follows the known one is this open's own.
    pub(crate) fn note_write_open(&mut self, write_epoch: u64, was_size_known: bool) {
        let is_unchanged = was_size_known || self.unchanged_since.map(|epoch| epoch + 1) == Some(write_epoch);
        self.unchanged_since = is_unchanged.then_some(write_epoch);
        self.kept_since = self.unchanged_since;
    }

    /// This client is about to add a name to the directory.
    pub(crate) fn expect_name(&mut self, hash: u64) {
        if let Some(whole) = &mut self.whole {
            whole.hashes.insert(hash);
            if whole.hashes.len() > WHOLE_MAX {
                self.whole = None;
            }
        }
    }

    /// The kernel may know the inode by this name.
    pub(crate) fn note_name(&mut self, parent: Fid, name: &[u8]) {
        if self.names.last().is_some_and(|(known_parent, known)| *known_parent == parent && known == name) {
            return;
        }
        self.names.retain(|(known_parent, known)| *known_parent != parent || known != name);
        if self.names.len() == NAMES_MAX {
            self.names.remove(0);
        }
        // Vec makes room for four at once; there is hardly ever a second one.
        self.names.reserve_exact(1);
        self.names.push((parent, name.to_vec()));
    }

    /// Takes attributes from a listing, which may be older than what is known. False when they may be: also after a
    /// change of this client's own that no reply described.
    pub(crate) fn learn_attr(&mut self, attr: &Attr) -> bool {
        let is_newest =
            !self.is_attr_stale && self.attr.as_ref().is_none_or(|known| attr.version >= known.version);
        if is_newest {
            self.see_attr(attr);
        }
        is_newest
    }

    /// Takes all xattrs from a listing, of the same time as attributes that were just learnt.
    pub(crate) fn learn_xattrs(&mut self, xattrs: &[(Vec<u8>, Vec<u8>)]) {
        let xattrs = xattrs.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
        self.xattrs = Some(xattrs.collect());
    }

    /// Also those that are on their way.
    pub(crate) fn forget_xattrs(&mut self) {
        self.xattrs = None;
        self.xattr_change_count += 1;
    }

    pub(crate) fn is_unused(&self) -> bool {
        let is_referred_to = self.lookup_count > 0 || self.open_count > 0 || !self.advisory.is_empty();
        !is_referred_to && self.master.is_none() && self.fid != Fid::ROOT
    }
}

/// All known inodes by node id.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// In boxes: a node is large, and a tree moves what it holds.
    nodes: BTreeMap<u64, Box<Node>>,
    /// Nodes that were taken out although this client had changed them.
    pub(crate) changed_gone_count: u64,
    by_children_lock: BTreeMap<ChildrenLock, BTreeSet<u64>>,
    /// What listings have said of inodes that are not here.
    pub(crate) listings: ListingCache,
}

impl Nodes {
    pub(crate) fn new() -> Nodes {
        let mut nodes = Nodes {
            nodes: BTreeMap::new(),
            changed_gone_count: 0,
            by_children_lock: BTreeMap::new(),
            listings: ListingCache::default(),
        };
        nodes.get_or_new(Fid::ROOT);
        nodes
    }

    pub(crate) fn get(&self, node: u64) -> Option<&Node> {
        self.nodes.get(&node).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, node: u64) -> Option<&mut Node> {
        self.nodes.get_mut(&node).map(Box::as_mut)
    }

    pub(crate) fn by_fid(&self, fid: Fid) -> Option<&Node> {
        self.get(fid.inode_number())
    }

    pub(crate) fn by_fid_mut(&mut self, fid: Fid) -> Option<&mut Node> {
        self.get_mut(fid.inode_number())
    }

    pub(crate) fn get_or_new(&mut self, fid: Fid) -> &mut Node {
        self.nodes.entry(fid.inode_number()).or_insert_with(|| Box::new(Node::new(fid)))
    }

    /// The kernel drops references. Returns the node when nothing refers to it any more; it is gone then.
    pub(crate) fn forget(&mut self, node: u64, count: u64) -> Option<Box<Node>> {
        self.drop_references(node, count);
        self.drop_unused(node)
    }

    /// The same, and the node stays.
    pub(crate) fn drop_references(&mut self, node: u64, count: u64) -> Option<Fid> {
        let known = self.nodes.get_mut(&node)?;
        known.lookup_count = known.lookup_count.saturating_sub(count);
        Some(known.fid)
    }

    /// Takes a node out that nothing refers to.
    pub(crate) fn drop_unused(&mut self, node: u64) -> Option<Box<Node>> {
        let gone = self.get(node).is_some_and(Node::is_unused).then(|| self.nodes.remove(&node)).flatten()?;
        if gone.is_changed_here || gone.is_attr_stale || gone.data_changed_at > 0 {
            self.changed_gone_count += 1;
            self.listings.remove_changed(&gone);
        } else if gone.accessed.is_some() {
            self.listings.remove_changed(&gone);
        }
        if let Some(lock) = gone.listed_under {
            self.leave(lock, node);
        }
        for stripe in gone.stripes.iter().skip(1) {
            self.nodes.remove(&stripe.inode_number());
        }
        Some(gone)
    }

    /// A directory is striped.
    pub(crate) fn set_stripes(&mut self, master: Fid, stripes: &[Fid]) {
        let Some(node) = self.by_fid_mut(master).filter(|node| node.stripes != stripes) else { return };
        node.stripes = stripes.to_vec();
        for stripe in stripes.iter().skip(1) {
            self.get_or_new(*stripe).master = Some(master);
        }
    }

    /// The stripes of a directory; itself when there are no others.
    pub(crate) fn stripes_of(&self, directory: Fid) -> Vec<Fid> {
        let stripes = self.by_fid(directory).map(|node| &node.stripes).filter(|stripes| !stripes.is_empty());
        stripes.map_or_else(|| vec![directory], Clone::clone)
    }

    /// The directory that holds a name of this one.
    pub(crate) fn home_of(&self, directory: Fid, name: &[u8]) -> Fid {
        let node = self.by_fid(directory);
        node.and_then(|node| stripe_of(&node.stripes, name)).unwrap_or(directory)
    }

    /// The directory that the kernel knows, for one that may be a stripe of it.
    pub(crate) fn whole_of(&self, directory: Fid) -> Fid {
        self.by_fid(directory).and_then(|node| node.master).unwrap_or(directory)
    }

    /// The directory that another one is in, as the kernel was told last; itself where it was not.
    pub(crate) fn parent_of(&self, directory: Fid) -> Fid {
        let name = self.by_fid(directory).and_then(|node| node.names.last());
        name.map_or(directory, |(parent, _)| self.whole_of(*parent))
    }

    /// What is known of an inode is true as long as this lock is held.
    pub(crate) fn note_listed(&mut self, fid: Fid, lock: ChildrenLock) {
        let Some(old) = self.by_fid_mut(fid).map(|node| node.listed_under.replace(lock)) else { return };
        if old == Some(lock) {
            return;
        }
        let node = fid.inode_number();
        if let Some(old) = old {
            self.leave(old, node);
        }
        self.by_children_lock.entry(lock).or_default().insert(node);
    }

    /// An inode is not believed under a children's lock any more. Attributes come anew with the next lock; xattrs do not.
    pub(crate) fn unlist(&mut self, fid: Fid) {
        let Some(node) = self.by_fid_mut(fid) else { return };
        node.forget_xattrs();
        if let Some(lock) = node.listed_under.take() {
            self.leave(lock, fid.inode_number());
        }
    }

    /// Inodes that rely on a children's lock and that the kernel may know by this name.
    pub(crate) fn listed_as(&self, lock: ChildrenLock, name: &[u8]) -> Vec<Fid> {
        let listed = self.by_children_lock.get(&lock).into_iter().flatten().filter_map(|id| self.get(*id));
        let is_named =
            |node: &&Node| node.names.iter().any(|(parent, known)| *parent == lock.parent && known == name);
        listed.filter(is_named).map(|node| node.fid).collect()
    }

    /// The inodes that relied on a children's lock, which do not any more.
    pub(crate) fn end_children_lock(&mut self, lock: ChildrenLock) -> Vec<Fid> {
        let ids = self.by_children_lock.remove(&lock).unwrap_or_default();
        let mut fids = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.listed_under = None;
                fids.push(node.fid);
            }
        }
        fids
    }

    fn leave(&mut self, lock: ChildrenLock, node: u64) {
        if let Some(ids) = self.by_children_lock.get_mut(&lock) {
            ids.remove(&node);
            if ids.is_empty() {
                self.by_children_lock.remove(&lock);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node.as_ref()))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Node)> {
        self.nodes.iter_mut().map(|(id, node)| (*id, node.as_mut()))
    }

    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel may know millions of inodes: what few of them have is not in all of them.
    #[test]
    fn an_inode_of_which_only_names_and_attributes_are_known_is_small() {
        assert!(size_of::<Node>() <= 736, "{} bytes", size_of::<Node>());
        let mut node = Node::new(Fid::ROOT);
        node.note_name(Fid::ROOT, b"name");
        assert_eq!(node.names.capacity(), 1, "hardly any inode has two names");
    }
}
