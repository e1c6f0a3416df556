//! Directory handles and their listings.

use crate::call::{Answer, DirEntryAnswer, OpenMode};
use crate::children_locks::ChildrenLock;
use crate::ctx::{Ctx, Outcome, Who, join_all, mdt_of};
use crate::directory::Whole;
use crate::executor::oneshot;
use crate::handles::{Coming, Entries, Handle, Listing, Part, Trust};
use crate::ops::open::O_NOATIME;
use crate::ops::{attr, fid_of};
use crate::state::State;
use base::names::name_hash;
use base::{Duration, Fid, FileType, LockId, OpenHandle, Status, Time};
use rpc::Kind;
use wire::mdt::{DirEntry, DirStriping, OpenArgs};
use wire::{MdtReply, MdtRequest};

/// Offsets of `.` and `..`; positions on the MDT lie above.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// Entries in one request: few at first, so that the first ones come soon; then so many times more with each.
const FIRST_ENTRY_COUNT: u32 = 512;
/// After seekdir(3), of which the next one may lead elsewhere: about what the kernel has room for at a time, with attributes.
const SEEK_ENTRY_COUNT: u32 = 32;
const ENTRY_COUNT_GROWTH: u32 = 4;
/// A directory that is read has up to three times as many in memory: on their way, taken apart, and being handed on.
const ENTRY_COUNT: u32 = 2048;
/// So many are worth waking another thread for.
const BULK_ENTRY_COUNT: u32 = 1024;
/// Of each stripe of a directory its part of these, but not fewer.
const PART_ENTRY_COUNT_MIN: u32 = 64;
/// A directory that is large, or that somebody else was about to change, is asked for as a whole again after so long.
pub(crate) const WHOLE_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// So many names that were looked up one by one in a large directory are the beginning of more.
const MISS_COUNT: u32 = 32;
/// Larger directories are listed by their MDT, a part at a time.
const KNOWN_ENTRIES_MAX: usize = 4096;
/// Bytes of one entry in FUSE's packing without its name, of a READDIR and of a READDIRPLUS.
const DIRENT_BYTES: usize = 24;
const DIRENT_PLUS_BYTES: usize = 128 + DIRENT_BYTES;

/// Nothing is said to the MDT: a listing needs no state there.
pub(crate) async fn opendir(ctx: &Ctx, node: u64, flags: u32) -> Outcome<Answer> {
    let fid = fid_of(ctx, node)?;
    let fh = ctx.with(|state| {
        state.last_handle += 1;
        let args =
            OpenArgs { handle: OpenHandle(state.last_handle), read: true, write: false, execute: false };
        let mut handle = Handle::new(fid, args);
        handle.is_directory = true;
        handle.is_access = flags & O_NOATIME == 0;
        state.handles.insert(state.last_handle, handle);
        state.nodes.get_or_new(fid).open_count += 1;
        state.last_handle
    });
    Ok(Answer::Opened { fh, mode: OpenMode::default() })
}

/// What a directory consists of.
pub(crate) async fn getdirstripe(ctx: &Ctx, node: u64) -> Outcome<Answer> {
    let fid = fid_of(ctx, node)?;
    let entry = attr::ask_inode(ctx, fid).await?;
    if entry.file_type != FileType::Directory {
        return Err(Status::NotDirectory);
    }
    let request = MdtRequest::GetDefaultStriping { fid };
    let MdtReply::DefaultStriping(default) = ctx.mdt(fid, request, Kind::Plain).await? else {
        return Err(Status::ProtocolError);
    };
    let stripes = if entry.stripes.is_empty() { vec![fid] } else { entry.stripes };
    Ok(Answer::DirStripes { stripes, default })
}

pub(crate) async fn setdirstripe(
    ctx: &Ctx,
    who: &Who,
    node: u64,
    striping: Option<DirStriping>,
) -> Outcome<Answer> {
    let fid = fid_of(ctx, node)?;
    let make = |creds| MdtRequest::SetDefaultStriping { fid, striping: striping.clone(), creds };
    let MdtReply::Entry(entry) = ctx.mdt_as(who, fid, Kind::Modifying, make).await? else {
        return Err(Status::ProtocolError);
    };
    ctx.with(|state| state.see_entry(&entry));
    super::sync::sync_inode_change(ctx, who, fid).await?;
    crate::locks::forget_kernel_attr(ctx, fid).await;
    Ok(Answer::Done)
}

pub(crate) fn releasedir(ctx: &Ctx, fh: u64) -> Outcome<Answer> {
    ctx.with(|state| {
        state.listing_budget.forget(fh);
        state.lock_owners.end(fh);
        if let Some(handle) = state.handles.remove(&fh) {
            let node_id = handle.fid.inode_number();
            if let Some(node) = state.nodes.get_mut(node_id) {
                node.open_count = node.open_count.saturating_sub(1);
            }
            state.drop_unused_node(node_id);
        }
    });
    Ok(Answer::Done)
}

pub(crate) async fn readdir(
    ctx: &Ctx,
    node: u64,
    fh: u64,
    offset: u64,
    byte_count: u32,
    is_plus: bool,
) -> Outcome<Answer> {
    let fid = fid_of(ctx, node)?;
    if offset == 0 {
        // rewinddir(3): what was read before may have changed.
        ctx.with(|state| {
            if let Some(handle) = state.handles.get_mut(&fh) {
                handle.listing = Default::default();
                if handle.is_access {
                    state.note_access(fid, true);
                }
            }
        });
    }
    // Not somebody who has gone to this offset, and may go elsewhere.
    let is_going_on = ctx.with(|state| {
        let listing = state.handles.get(&fh).map(|handle| &handle.listing);
        listing.is_some_and(|listing| offset > DOT_DOT && listing.offset == offset)
    });
    let mut room = byte_count as usize;
    let mut answer = Vec::new();
    let mut at = offset;
    for (own, name) in [(DOT, &b"."[..]), (DOT_DOT, &b".."[..])] {
        if at < own {
            if !take_room(&mut room, name, is_plus) {
                return Ok(Answer::Entries(answer));
            }
            let dir = if own == DOT { fid } else { ctx.with(|state| state.nodes.parent_of(fid)) };
            answer.push(DirEntryAnswer {
                name: name.to_vec(),
                node: dir.inode_number(),
                file_type: FileType::Directory,
                offset: own,
                entry: None,
            });
            at = own;
        }
    }
    let mut unknown = Vec::new();
    let is_elsewhere = offset > DOT_DOT && !is_going_on;
    loop {
        // The kernel comes back if more is wanted than what a seek has brought.
        if is_elsewhere && !answer.is_empty() && ctx.with(|state| state.has_to_ask(fh)) {
            break;
        }
        let Some((stripe, entry, trust)) = next_entry(ctx, fid, fh, at).await? else { break };
        if !take_room(&mut room, &entry.name, is_plus) {
            ctx.with(|state| {
                if let Some(handle) = state.handles.get_mut(&fh) {
                    handle.listing.put_back(stripe, entry, at);
                }
            });
            break;
        }
        at = entry.position;
        let is_known = ctx.with(|state| {
            if is_plus || state.is_whole(stripe) {
                state.learn_child(stripe, &entry, trust)
            } else {
                state.keep_entry(stripe, &entry, trust)
            }
        });
        if !is_known {
            unknown.push((stripe, entry.name.clone()));
        }
        answer.push(DirEntryAnswer {
            node: entry.fid.inode_number(),
            file_type: entry.file_type,
            offset: entry.position,
            entry: None,
            name: entry.name,
        });
    }
    if is_going_on {
        ask_ahead(ctx, fh);
    }
    ctx.with(|state| state.note_listing(fh));
    if answer.is_empty() && room < DIRENT_BYTES {
        return Err(Status::Invalid);
    }
    if is_plus {
        add_attributes(ctx, fid, unknown, &mut answer).await;
    }
    Ok(Answer::Entries(answer))
}

/// Who has come back for more will want what follows, too.
fn ask_ahead(ctx: &Ctx, fh: u64) {
    let (to_ask, wanted) = ctx.with(|state| {
        let listing = state.handles.get(&fh).map(|handle| &handle.listing);
        listing.map_or((Vec::new(), 0), |listing| (listing.to_ask(), next_count(listing)))
    });
    for (stripe, after) in to_ask {
        if ctx.with(|state| state.known_entries(stripe, after, 1).is_some()) {
            continue;
        }
        let (sender, entries) = oneshot();
        ctx.with(|state| {
            let Some(listing) = state.handles.get_mut(&fh).map(|handle| &mut handle.listing) else { return };
            listing.asked_count = wanted;
            if let Some(part) = listing.parts.iter_mut().find(|part| part.stripe == stripe) {
                part.coming = Some(Coming { after, entries });
            }
        });
        let later = ctx.clone();
        let wanted = part_count(ctx, fh, wanted);
        ctx.spawn(async move {
            sender.send(ask_entries(&later, stripe, after, wanted, Ask::Ahead).await);
        });
    }
}

fn next_count(listing: &Listing) -> u32 {
    if listing.is_afresh || listing.asked_count == 0 {
        return SEEK_ENTRY_COUNT;
    }
    listing.asked_count.saturating_mul(ENTRY_COUNT_GROWTH).min(ENTRY_COUNT)
}

/// Of so many entries, those that one stripe is asked for.
fn part_count(ctx: &Ctx, fh: u64, wanted: u32) -> u32 {
    let parts = ctx.with(|state| state.handles.get(&fh).map_or(1, |handle| handle.listing.parts.len()));
    (wanted / parts.max(1) as u32).max(PART_ENTRY_COUNT_MIN.min(wanted))
}

impl State {
    /// A listing was that of the whole directory: what is not in it is not there.
    fn note_whole(&mut self, parent: Fid, entries: &[DirEntry], trust: Option<Trust>) {
        let Some(trust) = trust.filter(|trust| self.is_unchanged_since(parent, *trust)) else { return };
        let hashes = entries.iter().map(|entry| name_hash(&entry.name)).collect();
        if let Some(node) = self.nodes.by_fid_mut(parent) {
            node.directory.whole = Some(Whole { lock: trust.lock, hashes });
        }
    }

    fn is_unchanged_since(&self, parent: Fid, trust: Trust) -> bool {
        let directory = self.nodes.by_fid(parent);
        self.nodes.change_count(parent) == Some(trust.change_count)
            && directory.is_some_and(|node| node.directory.changes_under_way == 0)
            && self.unseen_count() == trust.unseen_count
    }

    /// Whether the next entry of a listing is not here.
    fn has_to_ask(&self, fh: u64) -> bool {
        self.handles.get(&fh).is_some_and(|handle| !handle.listing.unknown().is_empty())
    }

    /// So many entries behind an offset of a directory of which all is known, attributes too, under a lock on its children: nobody has
    /// to be asked for them again.
    fn known_entries(&self, parent: Fid, after: u64, count_max: usize) -> Option<Entries> {
        let node = self.nodes.by_fid(parent).filter(|node| node.directory.changes_under_way == 0)?;
        let whole = node.directory.whole.as_ref().filter(|whole| whole.hashes.len() <= KNOWN_ENTRIES_MAX)?;
        let is_held = self.has_children_lock(ChildrenLock { parent, lock: whole.lock });
        if !is_held || self.bulk.attr_count_max == 0 {
            return None;
        }
        let mut entries = Vec::with_capacity(whole.hashes.len().min(count_max));
        let mut is_end = true;
        for hash in whole.hashes.range(after.saturating_add(1)..) {
            if entries.len() == count_max {
                is_end = false;
                break;
            }
            let mut slot = self.names.slot(parent, *hash);
            let (Some(only), None) = (slot.next(), slot.next()) else { return None };
            // Removed since, it is known to be absent.
            let Some(fid) = self.cached_name(parent, &only.name)? else { continue };
            let file_type = self.cached_attr(fid)?.file_type;
            let (name, position) = (only.name.to_vec(), *hash);
            let (attr, symlink_target, xattrs) = (None, None, None);
            entries.push(DirEntry { name, fid, file_type, position, attr, symlink_target, xattrs });
        }
        let (change_count, unseen_count) = (self.nodes.change_count(parent)?, self.unseen_count());
        let trust = Some(Trust { lock: whole.lock, change_count, unseen_count });
        Some(Entries { entries, is_end, trust })
    }

    /// The lock under which an entry of a listing may be believed now, if there is one.
    fn lock_of(&self, parent: Fid, trust: Option<Trust>) -> Option<ChildrenLock> {
        trust
            .filter(|trust| self.is_unchanged_since(parent, *trust))
            .map(|trust| ChildrenLock { parent, lock: trust.lock })
            .filter(|lock| self.has_children_lock(*lock))
    }

    /// Takes in what a listing says of a child. False: nothing of it may be believed later.
    fn learn_child(&mut self, parent: Fid, entry: &DirEntry, trust: Option<Trust>) -> bool {
        let Some(lock) = self.lock_of(parent, trust) else { return false };
        self.believe(entry, lock);
        true
    }

    /// The same of one that nobody has asked for by its name yet, and perhaps never will: it becomes an inode here then.
    fn keep_entry(&mut self, parent: Fid, entry: &DirEntry, trust: Option<Trust>) -> bool {
        let Some(lock) = self.lock_of(parent, trust) else { return false };
        if self.nodes.by_fid(entry.fid).is_some() {
            self.believe(entry, lock);
        }
        self.nodes.listings.put(parent, lock.lock, entry);
        true
    }

    /// What a listing has said of a name is true still: as `learn_child`. -> Whether there is such a thing.
    pub(crate) fn recall(&mut self, parent: Fid, name: &[u8]) -> bool {
        let Some((lock, entry)) = self.nodes.listings.get(parent, name) else { return false };
        let lock = ChildrenLock { parent, lock };
        if !self.has_children_lock(lock) {
            return false;
        }
        self.believe(&entry, lock);
        true
    }

    /// Whether it is known what a name leads to, with attributes, or that it leads nowhere.
    pub(crate) fn is_entry_known(&mut self, parent: Fid, name: &[u8]) -> bool {
        let is_known = |state: &State| match state.cached_name(parent, name) {
            Some(Some(fid)) => state.cached_attr(fid).is_some(),
            known => known.is_some(),
        };
        if is_known(self) {
            return true;
        }
        let is_recalled = self.recall(parent, name) && is_known(self);
        if is_recalled {
            self.nodes.listings.note_hit(parent);
        }
        is_recalled
    }

    fn is_whole(&self, directory: Fid) -> bool {
        self.nodes.by_fid(directory).is_some_and(|node| node.directory.whole.is_some())
    }

    fn believe(&mut self, entry: &DirEntry, lock: ChildrenLock) {
        let parent = lock.parent;
        self.names.put_listed(parent, &entry.name, Some(entry.fid), Time::ZERO, Some(lock.lock));
        self.note_name(entry.fid, parent, &entry.name);
        let node = self.nodes.get_or_new(entry.fid);
        if let Some(target) = &entry.symlink_target {
            node.set_symlink_target(target);
        }
        // The lock covers no attributes of directories: they change with their own contents (`learn_subdirectory`).
        if let Some(attr) = entry.attr.as_ref().filter(|attr| attr.file_type != FileType::Directory)
            && node.learn_attr(attr)
        {
            if let Some(xattrs) = &entry.xattrs {
                node.learn_xattrs(xattrs);
            }
            self.nodes.note_listed(entry.fid, lock);
        }
        self.keep_listed(entry.fid);
    }

    /// Takes in what a listing says of a child that is a directory. It is believed under a lock of its own, which came along or
    /// was held before.
    fn learn_subdirectory(&mut self, entry: &DirEntry, asked: &Asked) {
        let Some(attr) = entry.attr.as_ref().filter(|attr| attr.file_type == FileType::Directory) else {
            return;
        };
        // What this client has changed of an inode that it did not know is not in the listing, perhaps.
        if self.nodes.by_fid(entry.fid).is_none() && self.unseen_count() != asked.unseen_count {
            return;
        }
        let node = self.nodes.get_or_new(entry.fid);
        if node.learn_attr(attr)
            && let Some(xattrs) = &entry.xattrs
        {
            node.learn_xattrs(xattrs);
        }
        self.keep_listed(entry.fid);
    }

    /// The kernel drops references, for want of memory perhaps: what locks cover is told again without asking.
    pub(crate) fn on_forgotten(&mut self, node: u64, count: u64) {
        if let Some(fid) = self.nodes.drop_references(node, count) {
            self.let_go(fid);
        }
    }

    /// Perhaps nothing refers to an inode any more: what locks cover of it is kept for a while, and anything else goes.
    fn let_go(&mut self, fid: Fid) {
        match self.cached_attr(fid) {
            Some(attr) if attr.link_count > 0 => self.keep_listed(fid),
            _ => self.drop_unused_node(fid.inode_number()),
        }
    }

    /// Keeps an inode that nothing refers to for a while.
    pub(crate) fn keep_listed(&mut self, fid: Fid) {
        let node = fid.inode_number();
        if self.nodes.get(node).is_some_and(|known| !known.is_unused()) {
            return;
        }
        if let Some(oldest) = self.listed.push(node) {
            self.drop_unused_node(oldest);
        }
    }
}

/// READDIRPLUS: attributes go along as far as locks say that they are true. What no lock covers (somebody changes
/// something in the directory) is looked up, all side by side. While another call on the directory is unanswered names
/// get no lifetime, as the kernel could be told to forget them before it has read this answer (hazard 3.3).
async fn add_attributes(ctx: &Ctx, fid: Fid, unknown: Vec<(Fid, Vec<u8>)>, answer: &mut [DirEntryAnswer]) {
    ctx.with(|state| state.stats.listings.single_count += unknown.len() as u64);
    let prefetches = unknown.into_iter().map(|(stripe, name)| attr::prefetch(ctx, stripe, name));
    let fetched = join_all(prefetches.collect()).await;
    ctx.with(|state| {
        let is_alone = state.held.get(&fid.inode_number()).is_none_or(|count| *count == 1);
        for entry in answer.iter_mut().filter(|entry| entry.name != b"." && entry.name != b"..") {
            let home = state.nodes.home_of(fid, &entry.name);
            if let Some(Some(child)) = state.cached_name(home, &entry.name)
                && let Some(attr) = state.cached_attr(child)
                && !state.is_kernel_told(home, &entry.name, child)
            {
                entry.node = child.inode_number();
                entry.file_type = attr.file_type;
                entry.entry = Some(state.entry_answer(Some((home, &entry.name)), attr, is_alone, false));
            }
        }
        // Of some the kernel gets no attributes, and so no reference: those that somebody writes, say.
        fetched.into_iter().flatten().for_each(|child| state.let_go(child));
    });
}

fn take_room(room: &mut usize, name: &[u8], is_plus: bool) -> bool {
    let header = if is_plus { DIRENT_PLUS_BYTES } else { DIRENT_BYTES };
    let needed = (header + name.len()).next_multiple_of(8);
    if needed > *room {
        return false;
    }
    *room -= needed;
    true
}

/// The entry behind offset `at`, and the stripe that holds it; `None` at the end. Offsets behind which nothing is here start afresh.
async fn next_entry(
    ctx: &Ctx,
    fid: Fid,
    fh: u64,
    at: u64,
) -> Outcome<Option<(Fid, DirEntry, Option<Trust>)>> {
    loop {
        let unknown = ctx.with(|state| {
            let stripes = state.nodes.stripes_of(fid);
            let handle =
                state.handles.get_mut(&fh).filter(|handle| handle.is_directory).ok_or(Status::BadHandle)?;
            let listing = &mut handle.listing;
            if at <= DOT_DOT && listing.offset > DOT_DOT || at > DOT_DOT && !listing.go_to(at) {
                *listing = Listing { offset: at, is_afresh: true, ..Listing::default() };
            }
            if listing.parts.is_empty() {
                listing.begin(stripes);
            }
            let unknown = listing.unknown();
            Ok(if unknown.is_empty() { Err(listing.next()) } else { Ok(unknown) })
        })?;
        match unknown {
            Ok(stripes) => fetch(ctx, fh, at, stripes).await?,
            Err(next) => return Ok(next),
        }
    }
}

/// Asks stripes for their entries behind offset `at`, with locks on them.
async fn fetch(ctx: &Ctx, fh: u64, at: u64, stripes: Vec<Fid>) -> Outcome<()> {
    let after = if at <= DOT_DOT { 0 } else { at };
    let asked_count = ctx.with(|state| {
        let listing = state.handles.get_mut(&fh).map(|handle| &mut handle.listing)?;
        listing.asked_count = if after == 0 { FIRST_ENTRY_COUNT } else { next_count(listing) };
        Some(listing.asked_count)
    });
    let wanted = part_count(ctx, fh, asked_count.ok_or(Status::BadHandle)?);
    let ask = async |stripe: Fid| {
        // From the beginning all of it is told: names that were removed are left out from then on.
        let count_max = if after == 0 { usize::MAX } else { wanted as usize };
        if let Some(known) = ctx.with(|state| state.known_entries(stripe, after, count_max)) {
            return Ok(known);
        }
        let coming = ctx.with(|state| state.handles.get_mut(&fh)?.listing.take_coming(stripe, after));
        if let Some(coming) = coming
            && let Some(Ok(entries)) = coming.await
        {
            return Ok(entries);
        }
        ask_entries(ctx, stripe, after, wanted, Ask::Now).await
    };
    let told = join_all(stripes.iter().map(|stripe| ask(*stripe)).collect()).await;
    let mut parts = Vec::with_capacity(stripes.len());
    for (stripe, told) in stripes.into_iter().zip(told) {
        let told = told?;
        if after == 0 && told.is_end {
            ctx.with(|state| state.note_whole(stripe, &told.entries, told.trust));
        }
        parts.push(Part::new(stripe, told));
    }
    ctx.with(|state| {
        if let Some(handle) = state.handles.get_mut(&fh) {
            handle.listing.take(at, parts);
        }
    });
    Ok(())
}

/// Why entries are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    Now,
    /// They will be needed.
    Ahead,
    /// All of them, or none.
    Whole,
}

async fn ask_entries(ctx: &Ctx, fid: Fid, after: u64, wanted: u32, why: Ask) -> Outcome<Entries> {
    let target = mdt_of(fid)?;
    let is_whole_wanted = why == Ask::Whole;
    let asked = ctx.with(|state| {
        let is_bulk = state.bulk.attr_count_max > 0;
        let entry_count_max = if is_bulk { wanted.min(state.bulk.attr_count_max) } else { wanted };
        let held = state.children_lock_on(fid);
        Asked {
            entry_count_max,
            with_attrs: is_bulk,
            with_xattrs: is_bulk && state.bulk.has_xattrs && state.is_caching_xattrs,
            held,
            offered: if held.is_none() { state.offer(target) } else { None },
            subdirectories: if is_bulk { state.offer_many(target, entry_count_max) } else { None },
            change_count: state.nodes.change_count(fid).unwrap_or(0),
            unseen_count: state.unseen_count(),
        }
    });
    let request = MdtRequest::Readdir {
        fid,
        after,
        entry_count_max: asked.entry_count_max,
        with_attrs: asked.with_attrs,
        with_xattrs: asked.with_xattrs,
        children: asked.offered,
        subdirectories: asked.subdirectories,
        is_whole_wanted,
        accesses: ctx.with(|state| state.take_accesses(target)),
    };
    let kind = if why == Ask::Ahead && wanted >= BULK_ENTRY_COUNT { Kind::Ahead } else { Kind::Plain };
    let reply = ctx.mdt(fid, request, kind).await?;
    let MdtReply::Entries { entries, is_end, grants } = reply else {
        return Err(Status::ProtocolError);
    };
    let is_stuck = entries.is_empty() && !is_end && !is_whole_wanted;
    if is_stuck || entries.iter().any(|entry| entry.position <= after) {
        return Err(Status::ProtocolError);
    }
    let trust = ctx.with(|state| {
        state.take_grants(target, &grants);
        let stats = &mut state.stats.listings;
        stats.request_count += 1;
        stats.entry_count += entries.len() as u64;
        stats.attr_count += entries.iter().filter(|entry| entry.attr.is_some()).count() as u64;
        // At once: with its lock, what was known of a directory before would be believed.
        for entry in &entries {
            state.learn_subdirectory(entry, &asked);
        }
        let granted = grants.iter().map(|grant| grant.lock).find(|lock| Some(*lock) == asked.offered);
        let Asked { change_count, unseen_count, .. } = asked;
        let lock = asked.held.or(granted);
        if let Some(lock) = lock.filter(|_| after > 0 || !is_end) {
            state.nodes.listings.begin(fid, lock);
        }
        lock.map(|lock| Trust { lock, change_count, unseen_count })
    });
    Ok(Entries { entries, is_end, trust })
}

/// A name is looked up of which nothing is known: a small directory comes as a whole, with what is not in it, if
/// nothing is in the way.
pub(crate) async fn learn_whole(ctx: &Ctx, fid: Fid) {
    let is_wanted = ctx.with(|state| {
        let is_bulk = state.bulk.attr_count_max > 0 && state.children_lock_on(fid).is_none();
        let now = state.now.time;
        let node = state.nodes.by_fid_mut(fid);
        let node = node.filter(|node| is_bulk && node.directory.is_listed_whole_from <= now);
        // One at a time; others go on by name.
        node.map(|node| node.directory.is_listed_whole_from = now.after(WHOLE_RETRY_INTERVAL)).is_some()
    });
    if !is_wanted {
        return;
    }
    let Ok(Entries { entries, is_end: true, trust }) =
        ask_entries(ctx, fid, 0, FIRST_ENTRY_COUNT, Ask::Whole).await
    else {
        return;
    };
    ctx.with(|state| {
        for entry in &entries {
            state.learn_child(fid, entry, trust);
        }
        state.note_whole(fid, &entries, trust);
    });
}

impl State {
    /// A name was looked up that leads somewhere, and not all of that was known here. What no listing tells (of files that are written, and of what other
    /// MDTs have) is worth none.
    pub(crate) fn note_missed_name(&mut self, parent: Fid, name: &[u8]) {
        if self.is_whole(parent) || self.nodes.listings.get(parent, name).is_some() {
            return;
        }
        if !self.nodes.listings.note_miss(parent)
            && let Some(node) = self.nodes.by_fid_mut(parent)
        {
            node.directory.miss_count = node.directory.miss_count.saturating_add(1);
        }
    }

    /// Entries of a large directory that are to come along with one that is looked up.
    fn worth_bringing(&mut self, fid: Fid, name: &[u8]) -> Option<u32> {
        if self.bulk.attr_count_max == 0 || self.is_entry_known(fid, name) {
            return None;
        }
        // What a listing has not told it would not tell now.
        if self.nodes.listings.get(fid, name).is_some() {
            return None;
        }
        let now = self.now.time;
        let held = self.children_lock_on(fid);
        let directory = &mut self.nodes.by_fid_mut(fid)?.directory;
        if directory.changes_under_way > 0 {
            // Nothing of it could be believed.
            return None;
        }
        if directory.miss_count >= MISS_COUNT && directory.is_listed_in_parts_from <= now {
            directory.miss_count = 0;
            directory.is_listed_in_parts_from = now.after(WHOLE_RETRY_INTERVAL);
            match held {
                Some(lock) => self.nodes.listings.begin(fid, lock),
                // It comes with the first part.
                None => return Some(FIRST_ENTRY_COUNT),
            }
        }
        let (lock, count) = self.nodes.listings.spend(fid)?;
        self.has_children_lock(ChildrenLock { parent: fid, lock }).then_some(count)
    }
}

/// A name is looked up of which nothing is known, in a large directory that was listed, or in which many were looked up one by one. Whoever goes
/// through it in the order of listings wants the next ones, too; and who does in another order soon meets what was brought, if it
/// has room here. They come as a listing brings them, as many as such lookups have paid for.
pub(crate) async fn learn_next(ctx: &Ctx, fid: Fid, name: &[u8]) {
    let Some(count) = ctx.with(|state| state.worth_bringing(fid, name)) else { return };
    let after = name_hash(name).saturating_sub(1);
    let Ok(Entries { entries, trust: Some(trust), .. }) = ask_entries(ctx, fid, after, count, Ask::Now).await
    else {
        return;
    };
    ctx.with(|state| {
        let mut is_believed = true;
        for entry in &entries {
            is_believed &= state.keep_entry(fid, entry, Some(trust));
            if entry.name == name {
                state.learn_child(fid, entry, Some(trust));
            }
        }
        if is_believed {
            state.nodes.listings.judge(fid, after, &entries);
        } else {
            // This mount changes names there.
            state.nodes.listings.note_without_room(fid);
        }
        state.touch_children_lock(fid, trust.lock);
    });
}

/// How things were when entries were asked for, and what was asked for with them.
struct Asked {
    entry_count_max: u32,
    with_attrs: bool,
    with_xattrs: bool,
    /// The lock on the directory's children, if there was one already.
    held: Option<LockId>,
    offered: Option<LockId>,
    subdirectories: Option<LockId>,
    change_count: u64,
    unseen_count: u64,
}
