//! What listings have said of entries that are no inodes here (`nodes`), in few bytes: who reads all names first may look at each one
//! later, in any order.
//!
//! An entry is true while the lock on the children of its directory is held, as of the moment when it is put here, and this client has
//! not changed it since. A change of a name by this client takes the name out before it begins. An inode that it changes has a node, and an
//! entry that is still here is older: when the node goes, the entry goes. So an entry that is found may be believed as if it had just
//! been listed.

mod packed;

use crate::nodes::Node;
use base::limits::READDIR_ENTRIES_MAX;
use base::names::name_hash;
use base::{Fid, FileType, LockId};
use packed::Page;
use std::collections::BTreeMap;
use wire::mdt::DirEntry;

/// All entries together; those that came first have no more room. More than 100,000 plain files take less, and with what else a listing
/// needs (three parts of it as they came, of 2,048 entries each, and buffers) they stay below the 16 MiB that a listing may add.
const BYTES_MAX: usize = 5 << 20;
/// An entry is looked for in one page from its beginning.
const PAGE_ENTRIES_MAX: u32 = 64;
const PAGE_BYTES_MAX: usize = 8 << 10;
/// With those that have come between the others since.
const PAGE_ENTRIES_LATER_MAX: u32 = 4 * PAGE_ENTRIES_MAX;
/// Directories of which nothing is here but that they were listed.
const DIRECTORIES_MAX: usize = 1024;

/// A lookup that is answered from here pays for so many entries that are brought with another one. So a walk in the order of listings soon has
/// them brought by thousands.
const CREDIT_OF_HIT: u32 = 4;
/// One that has found something elsewhere pays for so many where the directory has room here: it is here soon, in whatever order names come, for
/// some half of what these lookups cost.
const CREDIT_OF_MISS: u32 = 16;
/// Where it has none, what is brought goes again before it is of use in any order but that of listings.
const CREDIT_OF_MISS_WITHOUT_ROOM: u32 = 1;
/// What a listing pays.
const CREDIT_FIRST: u32 = 256;
/// Fewer are not worth a request.
const BROUGHT_MIN: u32 = 64;
/// A part of a listing that says how large its directory is.
const TELLING_MIN: usize = 64;
/// Of an entry beside its name.
const ENTRY_BYTES: usize = 32;
const CREDIT_MAX: u32 = READDIR_ENTRIES_MAX as u32;
const POSITION_MAX: u64 = u64::MAX >> 1;

#[derive(Debug)]
struct Chunk {
    age: u64,
    /// Position of its last entry.
    last: u64,
    entry_count: u32,
    page: Page,
}

impl Chunk {
    fn byte_count(&self) -> usize {
        // With its places in two trees.
        size_of::<Chunk>() + 64 + self.page.byte_count()
    }

    fn is_full(&self) -> bool {
        self.entry_count >= PAGE_ENTRIES_MAX || self.page.byte_count() >= PAGE_BYTES_MAX
    }
}

#[derive(Debug)]
struct Directory {
    /// On its children.
    lock: LockId,
    /// By the position of the first entry. They do not overlap.
    chunks: BTreeMap<u64, Chunk>,
    /// Some have other names.
    has_links: bool,
    has_room: bool,
    /// Entries that a lookup may bring along.
    credit: u32,
}

#[derive(Debug, Default)]
pub(crate) struct ListingCache {
    directories: BTreeMap<Fid, Directory>,
    /// Directory and position of each chunk.
    by_age: BTreeMap<u64, (Fid, u64)>,
    next_age: u64,
    byte_count: usize,
}

impl ListingCache {
    /// A large directory is listed under this lock on its children.
    pub(crate) fn begin(&mut self, parent: Fid, lock: LockId) {
        if self.directories.get(&parent).is_some_and(|directory| directory.lock == lock) {
            return;
        }
        self.forget(parent);
        if self.directories.len() >= DIRECTORIES_MAX {
            self.directories.retain(|_, directory| !directory.chunks.is_empty());
        }
        let directory = Directory {
            lock,
            chunks: BTreeMap::new(),
            has_links: false,
            has_room: true,
            credit: CREDIT_FIRST,
        };
        self.directories.insert(parent, directory);
    }

    /// Takes in an entry that is true now.
    pub(crate) fn put(&mut self, parent: Fid, lock: LockId, entry: &DirEntry) {
        self.begin(parent, lock);
        let Some(directory) = self.directories.get_mut(&parent) else { return };
        let entry = without_doubtful(entry);
        let has_links = entry.attr.as_ref().is_some_and(|attr| attr.link_count > 1);
        let position = entry.position;
        let mut overfull = None;
        if let Some((first, chunk)) = directory.chunks.range_mut(..=position).next_back() {
            let is_between = position <= chunk.last;
            if is_between && chunk.page.get(&entry.name).is_some() {
                return;
            }
            // What was taken out may come again.
            if is_between && chunk.entry_count >= PAGE_ENTRIES_LATER_MAX {
                // This client has made many names since. Those that come next begin a page of their own.
                overfull = Some(*first);
            } else if is_between || !chunk.is_full() {
                let before = chunk.byte_count();
                chunk.page.push(&entry);
                (chunk.last, chunk.entry_count) = (position.max(chunk.last), chunk.entry_count + 1);
                if chunk.is_full() {
                    chunk.page.shrink();
                }
                self.byte_count = (self.byte_count + chunk.byte_count()).saturating_sub(before);
                directory.has_links |= has_links;
                return self.make_room();
            }
        }
        if let Some(chunk) = overfull.and_then(|first| directory.chunks.remove(&first)) {
            self.by_age.remove(&chunk.age);
            self.byte_count -= chunk.byte_count().min(self.byte_count);
        }
        self.next_age += 1;
        let age = self.next_age;
        let chunk = Chunk { age, last: position, entry_count: 1, page: Page::new(&entry) };
        self.byte_count += chunk.byte_count();
        directory.has_links |= has_links;
        directory.chunks.insert(position, chunk);
        self.by_age.insert(age, (parent, position));
        self.make_room();
    }

    fn make_room(&mut self) {
        while self.byte_count > BYTES_MAX {
            let Some((_, (parent, position))) = self.by_age.pop_first() else { return };
            let Some(directory) = self.directories.get_mut(&parent) else { continue };
            directory.has_room = false;
            let chunk = directory.chunks.remove(&position);
            self.byte_count -= chunk.map_or(0, |chunk| chunk.byte_count()).min(self.byte_count);
        }
    }

    /// What is known of a name, and under which lock.
    pub(crate) fn get(&self, parent: Fid, name: &[u8]) -> Option<(LockId, DirEntry)> {
        let directory = self.directories.get(&parent)?;
        let (_, chunk) = directory.chunks.range(..=name_hash(name)).next_back()?;
        Some((directory.lock, chunk.page.get(name)?))
    }

    /// This client is about to change a name.
    pub(crate) fn remove(&mut self, parent: Fid, name: &[u8]) {
        let Some(directory) = self.directories.get_mut(&parent) else { return };
        if let Some((_, chunk)) = directory.chunks.range_mut(..=name_hash(name)).next_back() {
            chunk.entry_count -= u32::from(chunk.page.remove(name));
        }
    }

    /// An inode that this client has changed is known no more.
    pub(crate) fn remove_changed(&mut self, gone: &Node) {
        if self.directories.is_empty() {
            return;
        }
        let attr = gone.attr();
        // Of a directory, and of an inode without names, there is nothing here that a change of it concerns.
        if attr.is_some_and(|attr| attr.file_type == FileType::Directory || attr.link_count == 0) {
            return;
        }
        let has_all_names = !gone.names.is_empty() && !gone.names.is_full();
        if !has_all_names || attr.is_none_or(|attr| attr.link_count > 1) {
            return self.forget_entries(|_| true);
        }
        for (parent, name) in gone.names.iter() {
            self.remove(parent, name);
        }
        // It had others, perhaps.
        self.forget_entries(|directory| directory.has_links);
    }

    /// Of an inode that is not known here something else is true now.
    pub(crate) fn forget_all_entries(&mut self) {
        self.forget_entries(|_| true);
    }

    fn forget_entries(&mut self, is_one: impl Fn(&Directory) -> bool) {
        for directory in self.directories.values_mut().filter(|directory| is_one(directory)) {
            for chunk in std::mem::take(&mut directory.chunks).into_values() {
                self.by_age.remove(&chunk.age);
                self.byte_count -= chunk.byte_count().min(self.byte_count);
            }
            directory.has_links = false;
        }
    }

    /// The lock on a directory's children is not held any more.
    pub(crate) fn forget(&mut self, parent: Fid) {
        self.forget_where(|directory| directory == parent);
    }

    pub(crate) fn forget_where(&mut self, is_one: impl Fn(Fid) -> bool) {
        let mut gone = Vec::new();
        self.directories.retain(|fid, directory| {
            let stays = !is_one(*fid);
            if !stays {
                gone.extend(std::mem::take(&mut directory.chunks).into_values());
            }
            stays
        });
        for chunk in gone {
            self.by_age.remove(&chunk.age);
            self.byte_count -= chunk.byte_count().min(self.byte_count);
        }
    }

    /// A name was found here.
    pub(crate) fn note_hit(&mut self, parent: Fid) {
        self.earn(parent, CREDIT_OF_HIT);
    }

    /// A name was looked up that leads somewhere and is not here. -> Whether its directory was listed.
    pub(crate) fn note_miss(&mut self, parent: Fid) -> bool {
        let Some(directory) = self.directories.get(&parent) else { return false };
        let credit = if directory.has_room { CREDIT_OF_MISS } else { CREDIT_OF_MISS_WITHOUT_ROOM };
        self.earn(parent, credit);
        true
    }

    fn earn(&mut self, parent: Fid, credit: u32) {
        if let Some(directory) = self.directories.get_mut(&parent) {
            directory.credit = (directory.credit + credit).min(CREDIT_MAX);
        }
    }

    /// Entries of a directory, all that there are behind position `after` up to the last of them: places are spread evenly, so they tell how many
    /// there are in all.
    pub(crate) fn judge(&mut self, parent: Fid, after: u64, entries: &[DirEntry]) {
        let Some(last) = entries.last().filter(|_| entries.len() >= TELLING_MIN) else { return };
        let byte_count: usize = entries.iter().map(|entry| entry.name.len() + ENTRY_BYTES).sum();
        let span = u128::from(last.position.saturating_sub(after)).max(1);
        let estimated_bytes = byte_count as u128 * u128::from(POSITION_MAX) / span;
        if estimated_bytes > BYTES_MAX as u128 {
            self.note_without_room(parent);
        }
    }

    /// What is brought of a directory does not stay.
    pub(crate) fn note_without_room(&mut self, parent: Fid) {
        if let Some(directory) = self.directories.get_mut(&parent) {
            directory.has_room = false;
        }
    }

    /// A name is asked for. -> The lock under which others may come along, and how many of them.
    pub(crate) fn spend(&mut self, parent: Fid) -> Option<(LockId, u32)> {
        let directory = self.directories.get_mut(&parent).filter(|it| it.credit >= BROUGHT_MIN)?;
        Some((directory.lock, std::mem::take(&mut directory.credit)))
    }

    pub(crate) fn check(&self) {
        assert!(self.byte_count <= BYTES_MAX);
        assert_eq!(self.byte_count == 0, self.by_age.is_empty());
    }
}

/// The lock on its parent's children covers no attributes of a directory, and what the MDT does not know of a size is asked for anyway.
fn without_doubtful(entry: &DirEntry) -> DirEntry {
    let is_certain = |attr: &&base::Attr| {
        attr.file_type != FileType::Directory && attr.fid == entry.fid && crate::cache::is_strict(attr)
    };
    match entry.attr.as_ref().filter(is_certain) {
        Some(_) => entry.clone(),
        None => DirEntry { attr: None, xattrs: None, ..entry.clone() },
    }
}
