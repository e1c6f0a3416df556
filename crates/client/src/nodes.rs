//! The inodes that the kernel, an open handle or a running call refers to, and what is cached of them.
//!
//! Cached attributes, xattrs and link targets are valid only while a lock says so; `State` asks for that at each use.

use crate::body::Body;
use crate::changes::Changes;
use crate::children_locks::{ChildrenLock, ChildrenLocks, LockNumber};
use crate::directory::Directory;
use crate::file_data::FileData;
use crate::kernel_size::KernelSize;
use crate::known_names::KnownNames;
use crate::listing_cache::ListingCache;
use crate::seldom::Seldom;
use crate::xattrs::Xattrs;
use base::names::stripe_of;
use base::{Attr, Fid, Layout, Time};
use std::collections::BTreeMap;

/// The newest attributes seen have the FID among them.
#[derive(Debug)]
enum Seen {
    Fid(Fid),
    Attr(Attr),
}

/// What the kernel may have of an inode's ACLs, by which it judges without asking for as long as it believes the
/// attributes. It drops them when it asks for these, and when it is told to forget the inode; not when a lookup leads
/// to an inode that it has, which has it believe them anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KernelAcl {
    /// It has to ask.
    #[default]
    Unknown,
    Told,
    /// They may have been changed since.
    Old,
}

/// One inode. The kernel may know millions of them, nearly all of which it has only listed and looked up: what others have lies apart.
#[derive(Debug)]
pub(crate) struct Node {
    seen: Seen,
    /// `Nodes::listed_under`.
    listed_under: Option<LockNumber>,
    /// References of the kernel.
    pub(crate) lookup_count: u64,
    /// Something changed that no reply described: ask again, lock or not.
    pub(crate) is_attr_stale: bool,
    pub(crate) kernel_acl: KernelAcl,
    body: Option<Box<Body>>,
    pub(crate) xattrs: Option<Xattrs>,
    /// Rises with every change of extended attributes by this client, so that an older list is not cached.
    pub(crate) xattr_change_count: u32,
    pub(crate) names: KnownNames,
    pub(crate) open_count: u32,
    pub(crate) kernel_size: KernelSize,
    /// When the kernel's attributes of it last became others than those that an unanswered call may know (`ends`).
    pub(crate) versioned_at: Time,
    /// The kernel may answer from cached attributes until then.
    pub(crate) kernel_attr_until: Time,
    pub(crate) changes: Seldom<Changes>,
    pub(crate) directory: Seldom<Directory>,
    pub(crate) data: Seldom<FileData>,
}

impl Node {
    fn new(fid: Fid) -> Node {
        Node {
            seen: Seen::Fid(fid),
            listed_under: None,
            lookup_count: 0,
            is_attr_stale: false,
            kernel_acl: KernelAcl::Unknown,
            body: None,
            xattrs: None,
            xattr_change_count: 0,
            names: KnownNames::default(),
            open_count: 0,
            kernel_size: KernelSize::new(),
            versioned_at: Time::ZERO,
            kernel_attr_until: Time::ZERO,
            changes: Seldom::none(),
            directory: Seldom::none(),
            data: Seldom::none(),
        }
    }

    pub(crate) fn fid(&self) -> Fid {
        match &self.seen {
            Seen::Fid(fid) => *fid,
            Seen::Attr(attr) => attr.fid,
        }
    }

    /// The newest attributes seen.
    pub(crate) fn attr(&self) -> Option<&Attr> {
        match &self.seen {
            Seen::Fid(_) => None,
            Seen::Attr(attr) => Some(attr),
        }
    }

    pub(crate) fn set_attr(&mut self, attr: Attr) {
        // Whatever an MDT says: the node stays where it is.
        let fid = self.fid();
        self.seen = Seen::Attr(Attr { fid, ..attr });
    }

    pub(crate) fn forget_attr(&mut self) {
        self.seen = Seen::Fid(self.fid());
    }

    pub(crate) fn layout(&self) -> Option<&Layout> {
        self.body.as_ref()?.layout()
    }

    pub(crate) fn set_layout(&mut self, layout: &Layout) {
        if self.layout() != Some(layout) {
            self.body = Some(Box::new(Body::File(layout.clone())));
        }
    }

    pub(crate) fn symlink_target(&self) -> Option<&[u8]> {
        self.body.as_ref()?.symlink_target()
    }

    pub(crate) fn set_symlink_target(&mut self, target: &[u8]) {
        if self.symlink_target() != Some(target) {
            self.body = Some(Box::new(Body::Symlink(target.to_vec())));
        }
    }

    /// Keeps the newest attributes.
    pub(crate) fn see_attr(&mut self, attr: &Attr) {
        let is_newer = self.attr().is_none_or(|known| attr.version >= known.version);
        if is_newer {
            let mut attr = attr.clone();
            self.add_access(&mut attr);
            self.set_attr(attr);
            self.is_attr_stale = false;
        }
    }

    /// Takes attributes from a listing, which may be older than what is known. False when they may be: also after a
    /// change of this client's own that no reply described.
    pub(crate) fn learn_attr(&mut self, attr: &Attr) -> bool {
        let is_newest = !self.is_attr_stale && self.attr().is_none_or(|known| attr.version >= known.version);
        if is_newest {
            self.see_attr(attr);
        }
        is_newest
    }

    /// Takes all xattrs from a listing, of the same time as attributes that were just learnt.
    pub(crate) fn learn_xattrs(&mut self, xattrs: &[(Vec<u8>, Vec<u8>)]) {
        let xattrs = xattrs.iter().map(|(name, value)| (name.as_slice(), Some(value.as_slice())));
        self.xattrs = Some(Xattrs::new(xattrs));
    }

    /// Nothing says any more that the ACLs are what they were.
    pub(crate) fn doubt_kernel_acl(&mut self) {
        if self.kernel_acl == KernelAcl::Told {
            self.kernel_acl = KernelAcl::Old;
        }
    }

    /// Also those that are on their way.
    pub(crate) fn forget_xattrs(&mut self) {
        self.xattrs = None;
        // While one list is on its way it does not come round.
        self.xattr_change_count = self.xattr_change_count.wrapping_add(1);
    }

    pub(crate) fn is_unused(&self) -> bool {
        let is_referred_to = self.lookup_count > 0 || self.open_count > 0 || !self.data.advisory.is_empty();
        !is_referred_to && self.directory.master.is_none() && self.fid() != Fid::ROOT
    }
}

/// All known inodes by node id.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// In boxes: a node is large, and a tree moves what it holds and keeps room for more.
    nodes: BTreeMap<u64, Box<Node>>,
    /// Nodes that were taken out although this client had changed them.
    pub(crate) changed_gone_count: u64,
    /// Rises when what MDTs have said of directories is forgotten.
    directories_forgotten_count: u64,
    children_locks: ChildrenLocks,
    /// What listings have said of inodes that are not here.
    pub(crate) listings: ListingCache,
}

impl Nodes {
    pub(crate) fn new() -> Nodes {
        let mut nodes = Nodes {
            nodes: BTreeMap::new(),
            changed_gone_count: 0,
            directories_forgotten_count: 0,
            children_locks: ChildrenLocks::default(),
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
        Some(known.fid())
    }

    /// Takes a node out that nothing refers to.
    pub(crate) fn drop_unused(&mut self, node: u64) -> Option<Box<Node>> {
        let gone = self.get(node).is_some_and(Node::is_unused).then(|| self.nodes.remove(&node)).flatten()?;
        if gone.changes.are_some || gone.is_attr_stale || gone.data.changed_at > 0 {
            self.changed_gone_count += 1;
            self.listings.remove_changed(&gone);
        } else if gone.changes.accessed.is_some() {
            self.listings.remove_changed(&gone);
        }
        if let Some(lock) = gone.listed_under {
            self.children_locks.leave(lock, node);
        }
        for stripe in gone.directory.stripes.iter().skip(1) {
            self.nodes.remove(&stripe.inode_number());
        }
        Some(gone)
    }

    /// A directory is striped.
    pub(crate) fn set_stripes(&mut self, master: Fid, stripes: &[Fid]) {
        let Some(node) = self.by_fid_mut(master).filter(|node| node.directory.stripes != stripes) else {
            return;
        };
        node.directory.stripes = stripes.to_vec();
        for stripe in stripes.iter().skip(1) {
            self.get_or_new(*stripe).directory.master = Some(master);
        }
    }

    /// The stripes of a directory; itself when there are no others.
    pub(crate) fn stripes_of(&self, directory: Fid) -> Vec<Fid> {
        let stripes = self.by_fid(directory).map(|node| &node.directory.stripes);
        stripes.filter(|stripes| !stripes.is_empty()).map_or_else(|| vec![directory], Clone::clone)
    }

    /// The directory that holds a name of this one.
    pub(crate) fn home_of(&self, directory: Fid, name: &[u8]) -> Fid {
        let node = self.by_fid(directory);
        node.and_then(|node| stripe_of(&node.directory.stripes, name)).unwrap_or(directory)
    }

    /// The directory that the kernel knows, for one that may be a stripe of it.
    pub(crate) fn whole_of(&self, directory: Fid) -> Fid {
        self.by_fid(directory).and_then(|node| node.directory.master).unwrap_or(directory)
    }

    /// The directory that another one is in, as the kernel was told last; itself where it was not.
    pub(crate) fn parent_of(&self, directory: Fid) -> Fid {
        let name = self.by_fid(directory).and_then(|node| node.names.last());
        name.map_or(directory, |(parent, _)| self.whole_of(parent))
    }

    /// Rises with each change of a name in this directory by this client, at its start and at its end, and when what MDTs have said
    /// counts no more.
    pub(crate) fn change_count(&self, directory: Fid) -> Option<u64> {
        self.by_fid(directory).map(|node| node.directory.change_count + self.directories_forgotten_count)
    }

    /// What MDTs have said of directories counts no more, nor what they are about to say.
    pub(crate) fn forget_directories(&mut self) {
        self.directories_forgotten_count += 1;
    }

    /// What is known of an inode is true as long as this lock is held.
    pub(crate) fn note_listed(&mut self, fid: Fid, lock: ChildrenLock) {
        if self.listed_under(fid) == Some(lock) {
            return;
        }
        let Some(node) = self.nodes.get_mut(&fid.inode_number()) else { return };
        let number = self.children_locks.join(lock, fid.inode_number());
        if let Some(old) = node.listed_under.replace(number) {
            self.children_locks.leave(old, fid.inode_number());
        }
    }

    /// What was learnt from a listing is true while this is held.
    pub(crate) fn listed_under(&self, fid: Fid) -> Option<ChildrenLock> {
        self.children_locks.get(self.by_fid(fid)?.listed_under?)
    }

    /// An inode is not believed under a children's lock any more. Attributes come anew with the next lock; xattrs do not.
    pub(crate) fn unlist(&mut self, fid: Fid) {
        let Some(node) = self.by_fid_mut(fid) else { return };
        node.forget_xattrs();
        if let Some(lock) = node.listed_under.take() {
            self.children_locks.leave(lock, fid.inode_number());
        }
    }

    /// Inodes that rely on a children's lock and that the kernel may know by this name.
    pub(crate) fn listed_as(&self, lock: ChildrenLock, name: &[u8]) -> Vec<Fid> {
        let listed = self.children_locks.nodes_under(lock).filter_map(|id| self.get(id));
        listed.filter(|node| node.names.contains(lock.parent, name)).map(|node| node.fid()).collect()
    }

    /// The inodes that relied on a children's lock, which do not any more.
    pub(crate) fn end_children_lock(&mut self, lock: ChildrenLock) -> Vec<Fid> {
        let ids = self.children_locks.end(lock);
        let mut fids = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.listed_under = None;
                fids.push(node.fid());
            }
        }
        fids
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
mod tests;
