//! What may be answered without asking, and for how long the kernel may do so.

use crate::call::{AttrAnswer, EntryAnswer};
use crate::children_locks::ChildrenLock;
use crate::kernel_size::KernelSize;
use crate::nodes::KernelAcl;
use crate::state::State;
use base::{Attr, Duration, Fid, FileType, Layout, LockId, TargetId, Time, names::name_hash};
use wire::lock::bits;
use wire::mdt::Entry;
use wire::{LockGrant, LockMode, LockPolicy, Resource};

/// So long an answer may be on its way to a process.
pub(crate) const ANSWER_LIFE: Duration = Duration::from_secs(1);

/// Whether the kernel may answer by itself from what it was told to believe until then. It counts from when it takes the answer in, and to
/// the end of a tick.
pub(crate) fn may_kernel_believe(until: Time, now: Time) -> bool {
    until != Time::ZERO && until.after(ANSWER_LIFE) > now
}

/// Attributes are complete and strict under these bits.
pub(crate) const ATTR_BITS: u32 = bits::LOOKUP | bits::UPDATE | bits::PERM;

impl State {
    pub(crate) fn mdt(fid: Fid) -> TargetId {
        // A FID that no MDT owns has no lock either.
        TargetId::mdt(fid.mdt_index().unwrap_or(u16::MAX))
    }

    /// Whether these bits of an inode are covered by a lock.
    pub(crate) fn has_bits(&self, fid: Fid, wanted: u32) -> bool {
        self.has_lock(State::mdt(fid), Resource::Inode(fid), LockPolicy::Bits(wanted))
    }

    /// Whether these bits of an inode are covered by a lock of its own, or by the children's lock under which it was listed.
    pub(crate) fn is_covered(&self, fid: Fid, wanted: u32) -> bool {
        let listed_under = self.nodes.listed_under(fid);
        listed_under.is_some_and(|lock| self.has_children_lock(lock)) || self.has_bits(fid, wanted)
    }

    pub(crate) fn has_children_lock(&self, held: ChildrenLock) -> bool {
        let target = State::mdt(held.parent);
        let Some(connection) = self.connections.get(&target) else { return false };
        connection.locks.get(held.lock).is_some()
            && !connection.locks.is_dying(held.lock)
            && !self.lease_left(target).is_zero()
    }

    /// The lock on a directory's children, if it is held.
    pub(crate) fn children_lock_on(&self, parent: Fid) -> Option<LockId> {
        let policy = LockPolicy::Bits(bits::CHILDREN);
        let locks = &self.connections.get(&State::mdt(parent))?.locks;
        locks.find(Resource::Inode(parent), LockMode::Pr, policy)
    }

    /// Much depends on it: it is not given back as one of the oldest while it is of use.
    pub(crate) fn touch_children_lock(&mut self, parent: Fid, lock: LockId) {
        let now = self.now.time;
        if let Some(connection) = self.connections.get_mut(&State::mdt(parent)) {
            connection.locks.touch(now, lock);
        }
    }

    /// Whether what is known of a name is true: by the lock of its slot, or the children's lock under which it was listed.
    fn is_name_covered(&self, parent: Fid, name: &[u8]) -> bool {
        let listed_under = self.names.get(parent, name).and_then(|known| known.listed_under());
        listed_under.is_some_and(|lock| self.has_children_lock(ChildrenLock { parent, lock }))
            || self.has_name_lock(parent, name)
    }

    pub(crate) fn has_name_lock(&self, parent: Fid, name: &[u8]) -> bool {
        let resource = Resource::Name { parent, hash: name_hash(name) };
        self.has_lock(State::mdt(parent), resource, LockPolicy::Plain)
    }

    /// The lock on a name's slot, if it is held.
    pub(crate) fn name_lock_on(&self, parent: Fid, name: &[u8]) -> Option<LockId> {
        let resource = Resource::Name { parent, hash: name_hash(name) };
        let locks = &self.connections.get(&State::mdt(parent))?.locks;
        locks.find(resource, LockMode::Pr, LockPolicy::Plain)
    }

    /// Whether a name's slot is covered by this very lock, still: under another one the name may lead elsewhere by now.
    pub(crate) fn is_name_locked_by(&self, parent: Fid, name: &[u8], lock: Option<LockId>) -> bool {
        let wanted = Resource::Name { parent, hash: name_hash(name) };
        let Some(connection) = self.connections.get(&State::mdt(parent)) else { return false };
        lock.is_some_and(|lock| {
            connection.locks.get(lock).is_some_and(|grant| grant.resource == wanted)
                && !connection.locks.is_dying(lock)
        })
    }

    /// What a name leads to, if a lock says that it still does: `Some(None)` for an absent name.
    pub(crate) fn cached_name(&self, parent: Fid, name: &[u8]) -> Option<Option<Fid>> {
        let Some(known) = self.names.get(parent, name) else {
            return self.whole_without(parent, name).map(|_| None);
        };
        let is_good = !known.is_in_doubt && self.is_name_covered(parent, name);
        is_good.then(|| known.fid())
    }

    /// The children's lock under which the whole directory is known, when the name is not in it.
    fn whole_without(&self, parent: Fid, name: &[u8]) -> Option<LockId> {
        let node = self.nodes.by_fid(parent)?;
        let whole = node.directory.whole.as_ref()?;
        let is_held = !whole.hashes.contains(&name_hash(name))
            && self.has_children_lock(ChildrenLock { parent, lock: whole.lock });
        is_held.then_some(whole.lock)
    }

    /// Attributes that are valid now, size included.
    pub(crate) fn cached_attr(&self, fid: Fid) -> Option<Attr> {
        match self.nodes.by_fid(fid)?.directory.stripes.as_slice() {
            [] => self.cached_own_attr(fid),
            stripes => whole_attr(stripes.iter().map(|stripe| self.cached_own_attr(*stripe))),
        }
    }

    /// The same, of a stripe by itself.
    pub(crate) fn cached_own_attr(&self, fid: Fid) -> Option<Attr> {
        let node = self.nodes.by_fid(fid)?;
        let attr = node.attr()?;
        let is_good = !node.is_attr_stale && is_strict(attr) && self.is_covered(fid, ATTR_BITS);
        is_good.then(|| attr.clone())
    }

    /// Attributes that are valid now but for what the objects of the file have to say; with a layout that names objects. Only
    /// under a lock of the inode's own: when the MDT gave that, nobody kept data of the file back.
    pub(crate) fn cached_row(&self, fid: Fid) -> Option<(Attr, Layout)> {
        let node = self.nodes.by_fid(fid)?;
        let (attr, layout) = (node.attr()?, node.layout()?);
        let is_good = !node.is_attr_stale && layout.has_objects() && self.has_bits(fid, ATTR_BITS);
        is_good.then(|| (attr.clone(), layout.clone()))
    }

    /// Locks that came along with a reply. Nothing relies on them before the answer to the kernel, which looks at
    /// them again; one that was called back already goes at once.
    pub(crate) fn take_grants(&mut self, target: TargetId, grants: &[LockGrant]) {
        let now = self.now.time;
        for grant in grants {
            let Some(connection) = self.connections.get_mut(&target) else { return };
            if connection.locks.insert(now, grant.clone()) && connection.locks.unpin(now, grant.lock) {
                self.start_revocation(target, grant.lock);
            }
        }
    }

    /// Takes in what a reply says about an inode.
    pub(crate) fn see_entry(&mut self, entry: &Entry) {
        if let Some(attr) = &entry.attr {
            self.see_attr(attr);
        }
        if self.nodes.by_fid(entry.fid).is_none() {
            self.note_unseen();
        }
        if !entry.stripes.is_empty() {
            // Whoever is told of it next, and has only its name here, has to know that its names are in several places.
            self.nodes.get_or_new(entry.fid);
            self.nodes.set_stripes(entry.fid, &entry.stripes);
            self.keep_listed(entry.fid);
        }
        if let Some(node) = self.nodes.by_fid_mut(entry.fid) {
            if let Some(layout) = entry.layout.as_ref().filter(|layout| layout.is_valid()) {
                node.set_layout(layout);
            }
            if let Some(target) = &entry.symlink_target {
                node.set_symlink_target(target);
            }
        }
        if let Some(attr) = &entry.parent_attr {
            self.see_attr(attr);
        }
    }

    fn note_unseen(&mut self) {
        self.unseen_count += 1;
        self.nodes.listings.forget_all_entries();
    }

    /// The same of an inode of which nothing else is told.
    pub(crate) fn see_reported(&mut self, attr: &Attr) {
        if self.nodes.by_fid(attr.fid).is_none() {
            self.note_unseen();
        }
        self.see_attr(attr);
    }

    pub(crate) fn see_attr(&mut self, attr: &Attr) {
        let Some(node) = self.nodes.by_fid_mut(attr.fid) else { return };
        node.see_attr(attr);
        // Of a striped one this is a part.
        if attr.fid == self.root.fid
            && node.directory.stripes.is_empty()
            && let Some(newest) = node.attr().cloned()
        {
            self.remember_root(&newest);
        }
    }

    fn add_access(&self, attr: &mut Attr) {
        if let Some(node) = self.nodes.by_fid(attr.fid) {
            node.add_access(attr);
        }
    }

    /// How long the kernel may rely on attributes.
    fn attr_valid(&self, attr: &Attr) -> Duration {
        let stripes = self.nodes.by_fid(attr.fid).map_or(&[][..], |node| &node.directory.stripes);
        if !stripes.is_empty() {
            let lease = stripes.iter().map(|stripe| self.lease_left(State::mdt(*stripe))).min();
            let is_true = self.cached_attr(attr.fid).as_ref() == Some(attr);
            return lease.filter(|_| is_true).unwrap_or(Duration::ZERO);
        }
        let is_newest = self
            .nodes
            .by_fid(attr.fid)
            .is_some_and(|node| !node.is_attr_stale && node.attr().is_some_and(|known| known == attr));
        if is_newest && is_strict(attr) && self.is_covered(attr.fid, ATTR_BITS) {
            self.lease_left(State::mdt(attr.fid))
        } else {
            Duration::ZERO
        }
    }

    /// The answer to a call that asks for attributes.
    pub(crate) fn attr_answer(&mut self, attr: Attr) -> AttrAnswer {
        self.attr_answer_with(attr, true)
    }

    /// The same to one that has changed some. A kernel may take it in without looking whether it was told meanwhile
    /// to forget what it has.
    pub(crate) fn setattr_answer(&mut self, attr: Attr) -> AttrAnswer {
        self.attr_answer_with(attr, self.options.has_versioned_setattr)
    }

    fn attr_answer_with(&mut self, mut attr: Attr, has_lifetime: bool) -> AttrAnswer {
        self.add_access(&mut attr);
        let attr_valid = if has_lifetime { self.attr_valid(&attr) } else { Duration::ZERO };
        self.note_kernel_attr(attr.fid, attr_valid);
        self.remember_root(&attr);
        AttrAnswer { attr, attr_valid, is_remembered: false }
    }

    fn note_kernel_attr(&mut self, fid: Fid, valid: Duration) {
        let until = self.now.time.after(valid);
        if !valid.is_zero()
            && let Some(node) = self.nodes.by_fid_mut(fid)
        {
            node.kernel_attr_until = node.kernel_attr_until.max(until);
        }
    }

    /// The answer that gives the kernel a reference to an inode, under a name that this mount may cache when
    /// `is_name_valid`. Link replies are applied by the kernel without a version test: they carry no attribute
    /// lifetime (hazard 3.2).
    pub(crate) fn entry_answer(
        &mut self,
        name: Option<(Fid, &[u8])>,
        mut attr: Attr,
        is_name_valid: bool,
        is_link: bool,
    ) -> EntryAnswer {
        self.add_access(&mut attr);
        let fid = attr.fid;
        let mut entry_valid = Duration::ZERO;
        let node = self.nodes.get_or_new(fid);
        if node.lookup_count == 0 {
            node.kernel_size = KernelSize::new();
            self.listed.remove(fid.inode_number());
        }
        // Only a name that the kernel has is looked up again without its directory's lock.
        let is_again = node.lookup_count > 0;
        node.lookup_count += 1;
        if let Some((parent, name)) = name {
            let is_directory = attr.file_type == FileType::Directory;
            let may_kernel_answer = self.may_kernel_answer(parent, name, &attr);
            entry_valid = self.name_valid(parent, name, Some(fid), is_name_valid, may_kernel_answer);
            let now = self.now.time;
            self.note_name(fid, parent, name);
            let node = self.nodes.get_or_new(fid);
            if is_again && is_directory && !entry_valid.is_zero() {
                node.directory.named_at = now;
            }
        }
        // They were taken in with the reply that brought them. Here they may be from before a restart of the MDT that has lost them.
        // Nor is an ACL judged by again that may be old: the kernel asks for the attributes, and for the ACL.
        let has_old_acl = self.nodes.by_fid(fid).is_some_and(|node| node.kernel_acl == KernelAcl::Old);
        let attr_valid = if is_link || has_old_acl { Duration::ZERO } else { self.attr_valid(&attr) };
        self.note_kernel_attr(fid, attr_valid);
        EntryAnswer { node: fid.inode_number(), attr: Some(attr), entry_valid, attr_valid }
    }

    /// A name by which the kernel may know an inode.
    pub(crate) fn note_name(&mut self, fid: Fid, parent: Fid, name: &[u8]) {
        let Some((parent, name)) = self.nodes.get_or_new(fid).names.note(parent, name) else { return };
        let left_out = self.names.get(parent, &name).map_or(Time::ZERO, |known| known.kernel_until);
        if may_kernel_believe(left_out, self.now.time) {
            let changes = &mut self.nodes.get_or_new(fid).changes;
            changes.unnamed_until = changes.unnamed_until.max(left_out);
        }
    }

    /// Whether the kernel may answer from a name that leads to an inode. With it goes the owner, by whom the kernel judges without asking:
    /// there has to be a lock with which that goes back. (A directory is walked through all the time, and its name stays.)
    fn may_kernel_answer(&self, parent: Fid, name: &[u8], attr: &Attr) -> bool {
        if attr.file_type == FileType::Directory {
            return !self.is_restless(attr.fid);
        }
        // Whoever changes an inode takes back the locks on the children of directories of its own MDT.
        let is_listed = || {
            if parent.mdt_index() != attr.fid.mdt_index() {
                return false;
            }
            let known = self.names.get(parent, name).filter(|known| known.fid() == Some(attr.fid));
            let lock = known.and_then(|known| known.listed_under());
            lock.is_some_and(|lock| self.has_children_lock(ChildrenLock { parent, lock }))
        };
        self.is_covered(attr.fid, bits::LOOKUP | bits::PERM) || is_listed()
    }

    /// Whether the kernel has got the name with its inode lately, and still has a good while to answer from both.
    pub(crate) fn is_kernel_told(&self, parent: Fid, name: &[u8], fid: Fid) -> bool {
        let enough = self.now.time.after(base::limits::KERNEL_CACHE_LIFE / 2);
        let is_name_told = self
            .names
            .get(parent, name)
            .is_some_and(|known| known.fid() == Some(fid) && known.kernel_until >= enough);
        let is_attr_told = self
            .nodes
            .by_fid(fid)
            .is_some_and(|node| node.lookup_count > 0 && node.kernel_attr_until >= enough);
        is_name_told && is_attr_told
    }

    /// The answer about a name that does not exist and may be cached as such.
    pub(crate) fn absent_answer(&mut self, parent: Fid, name: &[u8]) -> EntryAnswer {
        let is_kept = match self.whole_without(parent, name) {
            Some(lock) => self.names.put_absent(parent, name, lock, self.now.time),
            None => true,
        };
        // The kernel is told nothing that nobody here could have it forget.
        let entry_valid =
            if is_kept { self.name_valid(parent, name, None, true, true) } else { Duration::ZERO };
        EntryAnswer { node: 0, attr: None, entry_valid, attr_valid: Duration::ZERO }
    }

    /// Caches a name when a lock covers it; how long the kernel may rely on it.
    fn name_valid(
        &mut self,
        parent: Fid,
        name: &[u8],
        fid: Option<Fid>,
        is_valid: bool,
        may_kernel_answer: bool,
    ) -> Duration {
        // A children's lock covers what was listed under it, and nothing else.
        let listed = self.names.get(parent, name).filter(|known| known.fid() == fid);
        let listed_under = listed
            .and_then(|known| known.listed_under())
            .filter(|lock| self.has_children_lock(ChildrenLock { parent, lock: *lock }));
        if !is_valid || (listed_under.is_none() && !self.has_name_lock(parent, name)) {
            self.names.doubt(parent, name, fid);
            return Duration::ZERO;
        }
        let has_lifetime = self.options.has_inc_epoch && may_kernel_answer;
        let left = if has_lifetime { self.lease_left(State::mdt(parent)) } else { Duration::ZERO };
        let until = if left.is_zero() { base::Time::ZERO } else { self.now.time.after(left) };
        self.names.put_listed(parent, name, fid, until, listed_under);
        left
    }

    /// Ids for locks to ask for along with a metadata request about `fid`.
    pub(crate) fn want_inode(&mut self, target: TargetId, fid: Option<Fid>) -> Option<base::LockId> {
        match fid {
            Some(fid) if self.has_bits(fid, bits::SELF) => None,
            _ => self.offer(target),
        }
    }

    /// The same for a name of a directory: none where one is held.
    pub(crate) fn want_name(&mut self, target: TargetId, held: Option<LockId>) -> Option<LockId> {
        if held.is_some() { None } else { self.offer(target) }
    }

    /// Mode in which a page-filling read locks: while a handle writes through the page cache, stores into cached
    /// pages are not seen, so every page must be under a write lock (hazard 3.5).
    pub(crate) fn read_mode(&self, fid: Fid) -> LockMode {
        match self.nodes.by_fid(fid) {
            Some(node) if node.data.cached_writer_count > 0 => LockMode::Pw,
            _ => LockMode::Pr,
        }
    }
}

/// The attributes of a striped directory, by those of its stripes, itself the first; `None` when some are missing.
pub(crate) fn whole_attr(mut stripes: impl Iterator<Item = Option<Attr>>) -> Option<Attr> {
    let mut whole = stripes.next()??;
    for stripe in stripes {
        let stripe = stripe?;
        whole.link_count = whole.link_count.saturating_add(stripe.link_count.saturating_sub(2));
        whole.mtime = whole.mtime.max(stripe.mtime);
        whole.mtime_stamp = whole.mtime_stamp.max(stripe.mtime_stamp);
        whole.ctime = whole.ctime.max(stripe.ctime);
    }
    Some(whole)
}

/// Whether the MDT alone knows the size.
pub(crate) fn is_strict(attr: &Attr) -> bool {
    attr.file_type != FileType::Regular || attr.is_size_known
}
