//! Changes of names: create, unlink, rename, link.

use crate::cache::may_kernel_believe;
use crate::call::Answer;
use crate::cancels::give_back_of_gone;
use crate::children_locks::ChildrenLock;
use crate::closes::hurry_closes;
use crate::ctx::{Ctx, Outcome, Who, mdt_of};
use crate::names::Name;
use crate::nodes::Node;
use crate::ops::sync::sync_names;
use crate::ops::{home_of, inode_of};
use crate::state::State;
use base::names::name_hash;
use base::{Attr, Fid, FileType, LockId, Status, TargetId};
use rpc::Kind;
use wire::lock::{LockWant, bits};
use wire::mdt::{CreateRequest, Credentials, DirStriping, Entry, LayoutHint, NewNode, OpenArgs};
use wire::{MdtReply, MdtRequest};

/// What to make under a name.
#[derive(Clone)]
pub(crate) struct Creation {
    pub(crate) node: NewNode,
    /// Permission bits, 12 of them.
    pub(crate) permissions: u32,
    pub(crate) umask: u32,
    pub(crate) open: Option<OpenArgs>,
    pub(crate) is_exclusive: bool,
    pub(crate) is_unnamed: bool,
    /// With `open`: what is written may go through the page cache.
    pub(crate) is_cached: bool,
    pub(crate) mdt_index: Option<u16>,
    pub(crate) striping: Option<DirStriping>,
    pub(crate) layout: Option<LayoutHint>,
}

impl Creation {
    pub(crate) fn of(node: NewNode, mode: u32, umask: u32) -> Creation {
        Creation {
            node,
            permissions: mode & 0o7777,
            umask,
            open: None,
            is_exclusive: true,
            is_unnamed: false,
            is_cached: false,
            mdt_index: None,
            striping: None,
            layout: None,
        }
    }
}

/// What one of them adds to `Nodes::change_count`.
const CHANGE_MARKS: u64 = 2;

/// Marks directories as changing, now and at the end of its life: lookups that overlap with a change are not cached.
pub(crate) struct Changing {
    ctx: Ctx,
    directories: Vec<Fid>,
}

impl Changing {
    /// `added`: names that are there afterwards, perhaps. `removed`: those that are only there before.
    pub(crate) fn begin(
        ctx: &Ctx,
        mut directories: Vec<Fid>,
        added: &[(Fid, &[u8])],
        removed: &[(Fid, &[u8])],
    ) -> Changing {
        directories.dedup();
        ctx.with(|state| {
            for (directory, name) in added.iter().chain(removed) {
                state.nodes.listings.remove(*directory, name);
            }
            for (directory, name) in added {
                if let Some(node) = state.nodes.by_fid_mut(*directory) {
                    node.directory.expect_name(name_hash(name));
                }
            }
        });
        let changing = Changing { ctx: ctx.clone(), directories };
        changing.mark(|under_way| under_way + 1);
        changing
    }

    fn mark(&self, count: impl Fn(u32) -> u32) {
        self.ctx.with(|state| {
            for directory in &self.directories {
                if let Some(node) = state.nodes.by_fid_mut(*directory) {
                    let directory = &mut *node.directory;
                    directory.change_count += 1;
                    directory.changes_under_way = count(directory.changes_under_way);
                }
            }
        });
    }

    pub(crate) fn end(self) {
        self.mark(|under_way| under_way.saturating_sub(1));
    }
}

/// A lock under which what this client has done to a name stays true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cover {
    /// On its slot.
    Name(LockId),
    /// On the directory's children. It was held before the change, of which the directory had seen so many then.
    Children { lock: LockId, change_count: u64 },
}

impl State {
    /// Before a change of a name: the lock on the children, if it is held.
    fn children_cover(&self, parent: Fid) -> Option<Cover> {
        let lock = self.children_lock_on(parent)?;
        let change_count = self.nodes.change_count(parent)?;
        Some(Cover::Children { lock, change_count })
    }

    /// After it: nobody else can have changed the name if the lock is held still, and if this client has changed nothing else in the
    /// directory meanwhile, the name leads to what the reply says (`None`: nowhere).
    fn note_changed(&mut self, parent: Fid, name: &[u8], fid: Option<Fid>, before: Option<Cover>) -> bool {
        let Some(Cover::Children { lock, change_count }) = before else { return false };
        let is_alone = self.nodes.change_count(parent) == Some(change_count + CHANGE_MARKS)
            && self.nodes.by_fid(parent).is_some_and(|node| node.directory.changes_under_way == 0);
        if !is_alone || !self.has_children_lock(ChildrenLock { parent, lock }) {
            return false;
        }
        self.touch_children_lock(parent, lock);
        match fid {
            Some(_) => self.names.put_listed(parent, name, fid, base::Time::ZERO, Some(lock)),
            None => return self.names.put_absent(parent, name, lock, self.now.time),
        }
        true
    }

    /// Whether a name that this client has just made may be believed.
    pub(crate) fn is_name_covered_by(&self, parent: Fid, name: &[u8], cover: Option<Cover>) -> bool {
        match cover {
            Some(Cover::Children { lock, .. }) => self.has_children_lock(ChildrenLock { parent, lock }),
            Some(Cover::Name(lock)) => self.is_name_locked_by(parent, name, Some(lock)),
            None => false,
        }
    }
}

/// Sends a create; the reply's inode has a node, but no reference of the kernel yet. With it the lock under which the name
/// leads there, if there is one.
pub(crate) async fn create(
    ctx: &Ctx,
    who: &Who,
    parent: Fid,
    name: &[u8],
    creation: Creation,
) -> Outcome<(Entry, Option<Cover>)> {
    let target = mdt_of(parent)?;
    let added = [(parent, name)];
    let added = if creation.is_unnamed { &[][..] } else { &added };
    let listed = ctx.with(|state| state.children_cover(parent)).filter(|_| !creation.is_unnamed);
    let changing = Changing::begin(ctx, vec![parent], added, &[]);
    let held = ctx.with(|state| state.name_lock_on(parent, name));
    let want = ctx.with(|state| LockWant {
        name: if listed.is_some() { None } else { state.want_name(target, held) },
        inode: state.offer(target),
        write_back: creation
            .open
            .filter(|open| open.write && state.options.is_write_back_early)
            .and_then(|_| state.offer(target)),
        data: creation.open.filter(|_| creation.is_cached).and_then(|open| state.want_data(target, open)),
    });
    let result = ctx
        .mdt_as(who, parent, Kind::Modifying, |creds| {
            let create = CreateRequest {
                parent,
                name: name.to_vec(),
                node: creation.node.clone(),
                permissions: creation.permissions,
                umask: creation.umask,
                creds,
                open: creation.open,
                is_exclusive: creation.is_exclusive,
                is_unnamed: creation.is_unnamed,
                mdt_index: creation.mdt_index,
                layout: creation.layout.clone(),
                fid: None,
                want,
            };
            match creation.striping.clone() {
                Some(striping) => MdtRequest::MakeStriped { create, striping, stripes: Vec::new() },
                None => MdtRequest::Create(create),
            }
        })
        .await;
    changing.end();
    let entry = match result.map_err(gone)? {
        MdtReply::Entry(entry) => *entry,
        _ => return Err(Status::ProtocolError),
    };
    ctx.with(|state| {
        state.take_grants(target, &entry.grants);
        state.nodes.get_or_new(entry.fid);
        state.see_entry(&entry);
        copy_change(state, target, parent, entry.fid);
    });
    let is_listed = ctx.with(|state| state.note_changed(parent, name, Some(entry.fid), listed));
    let cover = if is_listed { listed } else { held.or(want.name).map(Cover::Name) };
    Ok((entry, cover))
}

/// A directory that somebody has removed has no names: that is what its last users are told, as on a local file system.
pub(crate) fn gone(status: Status) -> Status {
    if status == Status::Stale { Status::NotFound } else { status }
}

/// What made the inode has to be durable for fsync of the inode too.
fn copy_change(state: &mut State, target: TargetId, parent: Fid, child: Fid) {
    let last = state.nodes.by_fid(parent).and_then(|node| node.changes.newest.get(&target).copied());
    if let Some(transno) = last {
        state.note_change(target, child, transno);
    }
}

/// Makes something that is not opened; -> Entry with a reference of the kernel.
pub(crate) async fn make(
    ctx: &Ctx,
    who: &Who,
    parent: u64,
    name: Vec<u8>,
    creation: Creation,
) -> Outcome<Answer> {
    let parent = home_of(ctx, parent, &name)?;
    let (entry, cover) = create(ctx, who, parent, &name, creation).await?;
    let fid = entry.fid;
    if let Err(status) = sync_names(ctx, who, &[parent]).await {
        ctx.with(|state| state.nodes.drop_unused(fid.inode_number()));
        return Err(status);
    }
    let attr = match entry.attr {
        Some(attr) if entry.stripes.is_empty() => attr,
        _ => attr_of_named(ctx, fid, parent, &name).await?,
    };
    Ok(Answer::Entry(ctx.with(|state| {
        let is_valid = state.is_name_covered_by(parent, &name, cover);
        state.entry_answer(Some((parent, &name)), attr, is_valid, false)
    })))
}

pub(crate) fn node_of_mode(mode: u32, rdev: u32) -> Outcome<NewNode> {
    match FileType::from_mode(mode) {
        // mknod(2) with a type of zero makes a regular file.
        Some(FileType::Regular) => Ok(NewNode::Regular),
        None if mode & 0o170_000 == 0 => Ok(NewNode::Regular),
        Some(FileType::Directory | FileType::Symlink) | None => Err(Status::Invalid),
        Some(file_type) => Ok(NewNode::Device { file_type, rdev }),
    }
}

/// `lfs mkdir`, `lfs setstripe FILE`: the kernel gets no reference and asks for the name itself.
pub(crate) async fn make_unreferenced(
    ctx: &Ctx,
    who: &Who,
    parent: u64,
    name: Vec<u8>,
    creation: Creation,
) -> Outcome<Answer> {
    let parent = home_of(ctx, parent, &name)?;
    base::names::check_name(&name)?;
    let (entry, _) = create(ctx, who, parent, &name, creation).await?;
    forget_absent(ctx, parent, &name).await;
    ctx.with(|state| state.nodes.drop_unused(entry.fid.inode_number()));
    sync_names(ctx, who, &[parent]).await?;
    crate::locks::forget_kernel_attr(ctx, parent).await;
    Ok(Answer::Done)
}

/// A name is there now, and the kernel hears nothing of that in the answer to its call: it does not go on believing that there is none.
async fn forget_absent(ctx: &Ctx, parent: Fid, name: &[u8]) {
    let told = ctx.with(|state| {
        let known = state.names.get(parent, name);
        let is_told = known.is_some_and(|known| may_kernel_believe(known.kernel_until, state.now.time));
        state.names.remove(parent, name);
        is_told
    });
    if told {
        // Inside a call no notification is waited for that needs a directory's lock.
        ctx.notify(crate::Notify::IncEpoch).await;
    }
}

/// The attributes for the answer to a call that has made a name. Without them it fails, and the name is there.
async fn attr_of_named(ctx: &Ctx, fid: Fid, parent: Fid, name: &[u8]) -> Outcome<Attr> {
    let attr = super::attr::current_attr(ctx, fid).await;
    if attr.is_err() {
        forget_absent(ctx, parent, name).await;
    }
    attr
}

pub(crate) async fn remove(
    ctx: &Ctx,
    who: &Who,
    parent: u64,
    name: Vec<u8>,
    is_directory: bool,
) -> Outcome<Answer> {
    let parent = home_of(ctx, parent, &name)?;
    let before = ctx.with(|state| state.cover_before(parent, &name));
    let changing = Changing::begin(ctx, vec![parent], &[], &[(parent, &name)]);
    let known = ctx.with(|state| state.names.get(parent, &name).and_then(|known| known.fid()));
    let make = |creds: Credentials| {
        let name = name.clone();
        if is_directory {
            MdtRequest::Rmdir { parent, name, creds }
        } else {
            MdtRequest::Unlink { parent, name, creds }
        }
    };
    leave_listing(ctx, &[(parent, &name, Fate::Goes)]).await;
    known.into_iter().for_each(|fid| hurry_closes(ctx, fid));
    ctx.with(|state| state.begin_unlink(who, known.filter(|_| !is_directory)));
    let result = ctx.mdt_as(who, parent, Kind::Modifying, make).await;
    changing.end();
    let MdtReply::Removed { parent_attr, child, .. } = result.map_err(gone)? else {
        return Err(Status::ProtocolError);
    };
    ctx.with(|state| {
        if let Some(attr) = &parent_attr {
            state.see_attr(attr);
        }
        state.note_gone_name(parent, &name, before);
        let gone = child.as_ref().map(|child| child.fid).or(known);
        if let Some(child) = child.as_ref().filter(|_| !is_directory) {
            state.note_unlinked(who, child.fid, child.attr.as_ref().map(|attr| attr.link_count));
        }
        if let Some(child) = &child {
            state.see_entry(child);
        }
        forget_name(state, gone, parent, &name, child.as_ref().is_none_or(|child| child.attr.is_none()));
    });
    give_back_of_gone(ctx, child.as_deref());
    sync_names(ctx, who, &[parent]).await?;
    Ok(Answer::Done)
}

/// The locks that cover a name before this client changes it: what came later says nothing of the change, as the answer to that may be late, and
/// another connection's.
#[derive(Clone, Copy)]
struct Before {
    children: Option<Cover>,
    /// On its slot.
    slot: Option<LockId>,
}

impl State {
    fn cover_before(&self, parent: Fid, name: &[u8]) -> Before {
        Before { children: self.children_cover(parent), slot: self.name_lock_on(parent, name) }
    }

    /// This client has taken a name away.
    fn note_gone_name(&mut self, parent: Fid, name: &[u8], before: Before) {
        self.names.remove(parent, name);
        if !self.note_changed(parent, name, None, before.children)
            && self.is_name_locked_by(parent, name, before.slot)
        {
            self.names.put(parent, name, None, base::Time::ZERO);
        }
        if self.name_lock_on(parent, name).is_some() {
            self.keep_gone_name(parent, name_hash(name));
        }
    }
}

/// What becomes of the inode of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It gets another name.
    Moves,
    /// It loses this one.
    Goes,
}

/// Names are about to go from their directories. What their inodes are is not covered by the locks on the children of these any
/// more then: the kernel forgets it before.
async fn leave_listing(ctx: &Ctx, places: &[(Fid, &[u8], Fate)]) {
    let told = ctx.with(|state| {
        let left = places.iter().flat_map(|(parent, name, fate)| state.leave_listing(*parent, name, *fate));
        left.collect::<Vec<_>>()
    });
    for node in told {
        ctx.notify(crate::Notify::InvalInode { node, offset_bytes: -1, byte_count: 0 }).await;
    }
}

impl State {
    /// -> the nodes whose attributes the kernel has to forget.
    fn leave_listing(&mut self, parent: Fid, name: &[u8], fate: Fate) -> Vec<u64> {
        let fids = match self.names.get(parent, name) {
            Some(known) => known.fid().into_iter().collect(),
            None => {
                let lock = self.children_lock_on(parent);
                lock.map_or_else(Vec::new, |lock| self.nodes.listed_as(ChildrenLock { parent, lock }, name))
            }
        };
        let mut told = Vec::new();
        for fid in fids {
            let Some(node) = self.nodes.by_fid(fid) else { continue };
            if self.nodes.listed_under(fid).is_none_or(|lock| lock.parent != parent) {
                continue;
            }
            // With its only name it goes itself.
            let is_only = node.attr().is_some_and(|attr| attr.link_count == 1) && node.open_count == 0;
            let is_last = is_only && fate == Fate::Goes;
            let is_told = may_kernel_believe(node.kernel_attr_until, self.now.time) && !is_last;
            self.nodes.unlist(fid);
            if let Some(node) = self.nodes.by_fid_mut(fid) {
                node.doubt_kernel_acl();
            }
            if is_told && !self.has_bits(fid, bits::SELF) {
                if let Some(node) = self.nodes.by_fid_mut(fid) {
                    node.kernel_attr_until = base::Time::ZERO;
                }
                told.push(fid.inode_number());
            }
        }
        told
    }
}

/// A name does not lead to this inode any more. `is_stale`: its attributes changed, and no reply says how.
fn forget_name(state: &mut State, fid: Option<Fid>, parent: Fid, name: &[u8], is_stale: bool) {
    let Some(fid) = fid else { return };
    if let Some(node) = state.nodes.by_fid_mut(fid) {
        node.names.remove(parent, name);
        node.is_attr_stale |= is_stale;
    }
    state.note_name_gone(fid.inode_number());
}

const RENAME_EXCHANGE: u32 = 2;

/// Whether a rename is decided by another MDT too, which then has to know the caller's groups: that of the old directory, or that
/// of an inode that gets another directory.
fn decides_elsewhere(parent: Fid, new_parent: Fid, inodes: &[Option<Fid>]) -> bool {
    let is_elsewhere = |fid: &Fid| fid.mdt_index() != new_parent.mdt_index();
    parent != new_parent && (is_elsewhere(&parent) || inodes.iter().flatten().any(is_elsewhere))
}

pub(crate) async fn rename(
    ctx: &Ctx,
    who: &Who,
    from: (u64, Vec<u8>),
    to: (u64, Vec<u8>),
    flags: u32,
) -> Outcome<Answer> {
    let (name, new_name) = (from.1, to.1);
    let (parent, new_parent) = (home_of(ctx, from.0, &name)?, home_of(ctx, to.0, &new_name)?);
    let (before, new_before) =
        ctx.with(|state| (state.cover_before(parent, &name), state.cover_before(new_parent, &new_name)));
    let changing = Changing::begin(
        ctx,
        vec![parent, new_parent],
        // Exchanged, both are there afterwards.
        &[(parent, &name), (new_parent, &new_name)],
        &[],
    );
    let (old, new) = ctx.with(|state| {
        let at = |parent, name: &[u8]| state.names.get(parent, name).cloned();
        (at(parent, &name), at(new_parent, &new_name))
    });
    let fid_of_name = |known: &Option<Name>| known.as_ref().and_then(|known| known.fid());
    let (moved, replaced) = (fid_of_name(&old), fid_of_name(&new));
    match (parent == new_parent, flags & RENAME_EXCHANGE != 0) {
        (true, true) => {}
        (true, false) => leave_listing(ctx, &[(new_parent, &new_name, Fate::Goes)]).await,
        (false, is_exchange) => {
            let fate = if is_exchange { Fate::Moves } else { Fate::Goes };
            leave_listing(ctx, &[(parent, &name, Fate::Moves), (new_parent, &new_name, fate)]).await;
        }
    }
    replaced.into_iter().for_each(|fid| hurry_closes(ctx, fid));
    if flags & RENAME_EXCHANGE == 0 {
        ctx.with(|state| state.begin_unlink(who, replaced));
    }
    let make = |creds| MdtRequest::Rename {
        parent,
        name: name.clone(),
        new_parent,
        new_name: new_name.clone(),
        flags,
        creds,
    };
    let result = if who.caller.uid != 0 && decides_elsewhere(parent, new_parent, &[moved, replaced]) {
        ctx.mdt_as_member(who, new_parent, Kind::Modifying, make).await
    } else {
        ctx.mdt_as(who, new_parent, Kind::Modifying, make).await
    };
    changing.end();
    let MdtReply::Removed { parent_attr, new_parent_attr, child, replaced: replaced_entry, met } =
        result.map_err(gone)?
    else {
        return Err(Status::ProtocolError);
    };
    let (old, new) = ctx.with(|state| {
        let old = told_meanwhile(old, state.names.get(parent, &name));
        (old, told_meanwhile(new, state.names.get(new_parent, &new_name)))
    });
    ctx.with(|state| {
        for attr in parent_attr.iter().chain(&new_parent_attr) {
            state.see_attr(attr);
        }
        for (directory, changed) in [(parent, parent_attr.is_none()), (new_parent, new_parent_attr.is_none())]
        {
            if changed && let Some(node) = state.nodes.by_fid_mut(directory) {
                node.is_attr_stale = true;
            }
        }
        let is_gone = flags & RENAME_EXCHANGE == 0 && child.is_some();
        // Two names of one inode: nothing was done, and both are still there.
        if is_gone {
            state.note_gone_name(parent, &name, before);
        } else {
            state.names.remove(parent, &name);
        }
        state.names.remove(new_parent, &new_name);
        // The node keeps the name, and takes it along when it goes.
        let known = child.as_ref().map(|child| child.fid).filter(|fid| state.nodes.by_fid(*fid).is_some());
        if let Some(fid) = known.filter(|_| is_gone) {
            state.note_changed(new_parent, &new_name, Some(fid), new_before.children);
            state.note_name(fid, new_parent, &new_name);
        }
        // Both have a new ctime; what the reply describes is seen again below.
        forget_name(state, moved, parent, &name, true);
        forget_name(state, replaced, new_parent, &new_name, true);
        if moved.is_none() || (replaced.is_none() && flags & RENAME_EXCHANGE != 0) {
            mark_named(state, parent, &name, met.map(|met| Some(met.fid)));
            mark_named(state, new_parent, &new_name, met.map(|met| met.replaced));
        }
        if let Some(gone) = replaced_entry.as_ref().filter(|_| flags & RENAME_EXCHANGE == 0) {
            state.note_unlinked(who, gone.fid, gone.attr.as_ref().map(|attr| attr.link_count));
        }
        for entry in child.iter().chain(&replaced_entry) {
            state.see_entry(entry);
        }
        if let Some(fid) = moved.filter(|fid| state.nodes.by_fid(*fid).is_some()) {
            state.note_name(fid, new_parent, &new_name);
        }
        let exchanged = replaced.filter(|_| flags & RENAME_EXCHANGE != 0);
        if let Some(fid) = exchanged.filter(|fid| state.nodes.by_fid(*fid).is_some()) {
            state.note_name(fid, parent, &name);
        }
        let transno = mdt_of(new_parent)
            .ok()
            .and_then(|target| Some((target, *state.nodes.by_fid(new_parent)?.changes.newest.get(&target)?)));
        if let Some((target, transno)) = transno {
            for fid in [Some(parent), moved].into_iter().flatten() {
                state.note_change(target, fid, transno);
            }
        }
    });
    give_back_of_gone(ctx, replaced_entry.as_deref());
    sync_names(ctx, who, &[parent, new_parent]).await?;
    let (moved, exchanged) = (child.map(|entry| entry.fid), replaced_entry.map(|entry| entry.fid));
    settle_moved(ctx, old, moved, (new_parent, &new_name), new_before.slot).await;
    if flags & RENAME_EXCHANGE != 0 {
        settle_moved(ctx, new, exchanged, (parent, &name), before.slot).await;
    }
    Ok(Answer::Done)
}

/// What the kernel was told of a name before a rename, with the lifetime that it was given since: processes that walk
/// through a directory look it up again while the rename waits.
fn told_meanwhile(before: Option<Name>, now: Option<&Name>) -> Option<Name> {
    match (before, now) {
        (Some(mut before), Some(now)) => {
            before.kernel_until = before.kernel_until.max(now.kernel_until);
            Some(before)
        }
        (before, now) => before.or_else(|| now.cloned()),
    }
}

/// The kernel moves what it knows of the old name to the new one, with what is left of its lifetime: nobody may change
/// the new name behind its back. Either a lock covers it from now on, or the kernel forgets all names. So it does when
/// the MDT has moved another inode, to which somebody else had led the old name meanwhile; `moved` is what it says;
/// and when somebody has changed the owner since the move, before anything covers the inode under its new name.
/// `slot` is the lock on the slot of the new name that was held before.
async fn settle_moved(
    ctx: &Ctx,
    old: Option<Name>,
    moved: Option<Fid>,
    (new_parent, new_name): (Fid, &[u8]),
    slot: Option<LockId>,
) {
    let told = old.filter(|old| may_kernel_believe(old.kernel_until, ctx.now().time));
    let told = told.and_then(|old| Some((old.fid()?, old.kernel_until)));
    let Some((fid, kernel_until)) = told else { return };
    let is_noted = |state: &State| state.cached_name(new_parent, new_name) == Some(Some(fid));
    let try_keep = |is_locked: bool| {
        ctx.with(|state| {
            // Its own lock counts, or the children's lock under which it was just noted.
            let is_covered = is_noted(state)
                || (is_locked
                    && state.has_name_lock(new_parent, new_name)
                    && state.is_name_locked_by(new_parent, new_name, slot));
            let is_covered = is_covered && state.is_owner_covered(new_parent, new_name, fid);
            if is_covered {
                state.names.put(new_parent, new_name, Some(fid), kernel_until);
            }
            is_covered
        })
    };
    if moved == Some(fid) && try_keep(true) {
        return;
    }
    let owner = || ctx.with(|state| state.owner_of(fid));
    let owner_before = owner();
    if moved.is_none_or(|moved| moved == fid) {
        if ctx.with(|state| is_noted(state)) {
            // No object has to say how large it is.
            let _ = super::attr::ask_inode(ctx, fid).await;
        } else {
            super::attr::prefetch(ctx, new_parent, new_name.to_vec()).await;
        }
    }
    if !try_keep(false) || owner() != owner_before {
        ctx.notify(crate::Notify::IncEpoch).await;
    }
}

impl State {
    /// By what the kernel judges without asking.
    fn owner_of(&self, fid: Fid) -> Option<(u32, u32, u32)> {
        let attr = self.nodes.by_fid(fid)?.attr()?;
        Some((attr.uid, attr.gid, attr.permissions))
    }

    /// Whether the owner, by whom the kernel judges where it answers from a name, goes back with a lock too (as in `entry_answer`): it was
    /// listed under the old one, perhaps, and the lock on that directory's children says nothing of the inode any more.
    fn is_owner_covered(&self, parent: Fid, name: &[u8], fid: Fid) -> bool {
        let attr = self.nodes.by_fid(fid).and_then(|node| node.attr());
        if attr.is_some_and(|attr| attr.file_type == FileType::Directory) {
            return true;
        }
        let is_listed = || {
            let known = self.names.get(parent, name).filter(|known| known.fid() == Some(fid));
            let lock = known.and_then(|known| known.listed_under());
            parent.mdt_index() == fid.mdt_index()
                && lock.is_some_and(|lock| self.has_children_lock(ChildrenLock { parent, lock }))
        };
        self.is_covered(fid, bits::LOOKUP | bits::PERM) || is_listed()
    }
}

/// Finds inodes by a name that the kernel was given without a lifetime; among all of them where the MDT has not said
/// to which the name `led`, if to any.
fn mark_named(state: &mut State, parent: Fid, name: &[u8], led: Option<Option<Fid>>) {
    let mark = |node: &mut Node| node.is_attr_stale |= node.names.remove(parent, name);
    match led {
        Some(fid) => fid.and_then(|fid| state.nodes.by_fid_mut(fid)).map_or((), mark),
        None => state.nodes.iter_mut().for_each(|(_, node)| mark(node)),
    }
}

pub(crate) async fn link(ctx: &Ctx, who: &Who, node: u64, parent: u64, name: Vec<u8>) -> Outcome<Answer> {
    let (fid, parent) = (inode_of(ctx, node)?, home_of(ctx, parent, &name)?);
    let target = mdt_of(parent)?;
    ctx.with(|state| state.unlinks.settle(node));
    let changing = Changing::begin(ctx, vec![parent], &[(parent, &name)], &[]);
    let held = ctx.with(|state| state.name_lock_on(parent, &name));
    let want = ctx.with(|state| LockWant { name: state.want_name(target, held), ..LockWant::default() });
    let result = ctx
        .mdt_as(who, parent, Kind::Modifying, |creds| MdtRequest::Link {
            fid,
            parent,
            name: name.clone(),
            creds,
            want,
        })
        .await;
    changing.end();
    let MdtReply::Entry(entry) = result.map_err(gone)? else { return Err(Status::ProtocolError) };
    ctx.with(|state| {
        state.take_grants(target, &entry.grants);
        if entry.attr.is_none()
            && let Some(node) = state.nodes.by_fid_mut(fid)
        {
            node.is_attr_stale = true;
        }
        state.see_entry(&entry);
        copy_change(state, target, parent, fid);
    });
    sync_names(ctx, who, &[parent]).await?;
    let attr = attr_of_named(ctx, fid, parent, &name).await?;
    Ok(Answer::Entry(ctx.with(|state| {
        let is_valid = state.is_name_locked_by(parent, &name, held.or(want.name));
        state.entry_answer(Some((parent, &name)), attr, is_valid, true)
    })))
}
