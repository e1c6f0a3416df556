//! Operations, one per file. An operation is a function of the rows, the open files and its request: it writes its
//! changes into a `Tx` and says what is to be answered. It never waits and has no effect of its own; the machine
//! claims what the changes need, runs it again if it had to wait for that, and applies everything at once.
//!
//! What lies on other MDTs is said in *parts* (`Cx::remote_part`): the operation goes on as if they will succeed, and
//! the machine settles them before it applies anything.

pub mod attrs;
pub mod create;
pub mod layout;
pub mod link;
pub mod migrate;
pub mod open;
pub mod part;
pub mod path;
pub mod read;
pub mod readdir;
pub mod rename;
pub mod stripes;
pub mod unlink;
pub mod xattr;

use crate::data;
use crate::fids::Fids;
use crate::opens::Opens;
use crate::placement::{Placement, names_osts};
use crate::rows::{self, Dentry, Destroy, Inode};
use crate::tx::Tx;
use base::names::{name_hash, stripe_of};
use base::{ClientId, Extent, Fid, FileType, Layout, OpenHandle, SetAttr, Status, Version, WallTime};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wire::lock::{LockWant, bits};
use wire::mdt::{Entry, Met, OpenArgs, SizeReport};
use wire::peer::{Part, Whole, WholeFile};
use wire::session::features;
use wire::{LayoutHint, LockMode, LockPolicy, MdtReply, MdtRequest, Resource};

/// A listing brings all names of a position at once. Anybody can make up names that share one, without end; names that nobody has made
/// up for this are alone there. ext4 has such a bound, too, and the same error.
pub const POSITION_NAMES_MAX: usize = 64;

/// Bytes that a directory shows as its size, as on other file systems.
pub const DIRECTORY_SIZE_BYTES: u64 = 4096;

/// Why an operation did not come to an end.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// This is the answer.
    Status(Status),
    /// What a name on another MDT leads to has to be asked first.
    Peek { parent: Fid, name: Vec<u8> },
    /// Whether `directory` lies below `moved` has to be found out first, under the rename lock.
    Walk { directory: Fid, moved: Fid },
    /// A FID of another MDT is needed first, or of this one, to be the same in each run.
    NewFid { mdt: u16 },
    /// The stripes of a directory on another MDT have to be asked first.
    PeekDirectory { fid: Fid },
    /// An MDT has to be chosen for a new directory first, to be the same in each run.
    Place,
    /// All of an inode of another MDT has to be asked first.
    PeekWhole { fid: Fid },
    /// The same of a regular file.
    PeekFile { fid: Fid },
}

impl From<Status> for Stop {
    fn from(status: Status) -> Stop {
        Stop::Status(status)
    }
}

/// What changes in memory once the rows are applied.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Opened {
        fid: Fid,
        open: OpenArgs,
    },
    /// Named again during recovery.
    Reopened {
        fid: Fid,
        open: OpenArgs,
    },
    Closed {
        handle: OpenHandle,
    },
}

/// All bytes of an object belong into the answer to an open, under a lock that was granted with it or is held already, if they
/// are few.
#[derive(Clone, Copy, Debug)]
pub struct OpenedData {
    pub lock: base::LockId,
    pub object: base::ObjectId,
    /// Who may write asks for what he needs; most write all of it.
    pub is_read: bool,
}

/// What an operation says that is not rows.
#[derive(Debug, Default)]
pub struct Outcome {
    pub effects: Vec<Effect>,
    /// Locks that the caller would like, in the order of preference.
    pub wanted: Vec<(base::LockId, ldlm::Need)>,
    /// The caller opened a file whose first bytes are here, and asked for locks on them.
    pub opened_data: Option<OpenedData>,
    /// Files that the caller opens, or whose size he will ask their objects for: nobody may keep data of them back.
    pub unsettled: Vec<Fid>,
    /// What others hold against this, and do not use just now, the caller would have them give back next: it is waited for.
    pub awaited: Option<ldlm::Need>,
    /// A directory has another parent.
    pub has_moved_directory: bool,
}

/// What a name on another MDT leads to, and that directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Peeked {
    pub entry: Option<(Fid, FileType)>,
    pub parent_attr: base::Attr,
}

/// What a directory on another MDT belongs together with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeekedDirectory {
    pub stripes: Vec<Fid>,
    pub master: Option<Fid>,
}

/// What was learnt from other MDTs for one operation.
#[derive(Debug, Default)]
pub struct Remote {
    pub peeked: BTreeMap<(Fid, Vec<u8>), Peeked>,
    /// The rename lock is held, and the answers to these `Stop::Walk` (directory, moved) are no.
    pub walked: BTreeSet<(Fid, Fid)>,
    /// Inodes of other MDTs, as they were prepared.
    pub types: BTreeMap<Fid, FileType>,
    /// For directories that the operation makes, by MDT.
    pub fids: BTreeMap<u16, Fid>,
    pub directories: BTreeMap<Fid, PeekedDirectory>,
    /// Inodes that are to move here.
    pub wholes: BTreeMap<Fid, Box<Whole>>,
    pub files: BTreeMap<Fid, Box<WholeFile>>,
    /// The MDT that was chosen for the directory that the operation makes.
    pub placed: Option<u16>,
    /// Directories of this MDT that are not there, and that no other MDT is about to make.
    pub absent: BTreeSet<Fid>,
}

/// Everything that an operation may look at.
pub struct Cx<'a> {
    pub tx: Tx<'a>,
    pub now: WallTime,
    /// The version of all that changes.
    pub version: Version,
    pub client: ClientId,
    pub mdt_index: u16,
    /// MDTs of the file system, this one included.
    pub mdt_count: usize,
    /// Those of them that get no new directories.
    pub drained_mdts: &'a BTreeSet<u16>,
    pub opens: &'a Opens,
    pub fids: &'a mut Fids,
    pub placement: &'a mut Placement,
    /// Not all open files are known again yet.
    pub is_recovering: bool,
    /// Nobody has a file open without being known here.
    pub are_opens_known: bool,
    /// Work of a client may be lost, and what it wrote to objects not yet found: a size in a row may be wrong.
    pub are_sizes_doubtful: bool,
    /// Sent again after a restart, in its old place.
    pub is_replay: bool,
    /// The inode of the request is prepared to move to another MDT, which has been told what it is.
    pub is_leaving: bool,
    /// How many names of a directory may have one position: `POSITION_NAMES_MAX` for what is asked for now. What was acknowledged
    /// or decided before has no bound.
    pub position_names_max: Option<usize>,
    /// What the caller knows, and this end too.
    pub features: u64,
    /// Of a replay that takes names away: what they led to when it was executed first. Nothing, if its client does not say so.
    pub met: Option<Met>,
    pub remote: &'a Remote,
    /// The next FID of each MDT that has given some for directories that this one makes there.
    pub given: BTreeMap<u16, Fid>,
    /// Those of them that the operation uses.
    pub taken: BTreeMap<u16, Fid>,
    /// What came with the request.
    pub data: Bytes,
    /// Nothing may be changed that others may have locked.
    pub goes_at_once: bool,
    /// What other MDTs have to do.
    pub parts: Vec<(u16, Part)>,
    pub outcome: Outcome,
}

impl Cx<'_> {
    pub fn is_local(&self, fid: Fid) -> bool {
        fid.mdt_index() == Some(self.mdt_index)
    }

    /// Adds a part for the MDT of `fid`.
    ///
    /// # Errors
    /// `Stale` for a FID that no MDT can have.
    pub fn remote_part(&mut self, fid: Fid, part: Part) -> Result<(), Status> {
        self.parts.push((fid.mdt_index().ok_or(Status::Stale)?, part));
        Ok(())
    }

    /// An inode that a caller names.
    ///
    /// # Errors
    /// `Stale` when it does not exist (any more) on this MDT; `Moved` when it has gone to another one.
    pub fn inode(&self, fid: Fid) -> Result<Inode, Status> {
        match self.tx.inode(fid)? {
            Some(inode) => Ok(inode),
            None => Err(self.why_absent(fid, Status::Stale)?),
        }
    }

    /// What is said of an inode that is not here.
    ///
    /// # Errors
    /// Those of the store.
    pub fn why_absent(&self, fid: Fid, otherwise: Status) -> Result<Status, Status> {
        let has_moved = self.is_local(fid) && self.tx.get(rows::MOVED, &fid.key())?.is_some();
        Ok(if has_moved { Status::Moved } else { otherwise })
    }

    /// A directory in which a name is about to change or be looked up.
    ///
    /// # Errors
    /// `NotDirectory`; `NotFound` when it was removed, `Moved` when it is on another MDT now.
    pub fn directory(&self, fid: Fid) -> Result<Inode, Status> {
        let Some(inode) = self.tx.inode(fid)? else {
            let removed = if self.is_local(fid) { Status::NotFound } else { Status::Stale };
            return Err(self.why_absent(fid, removed)?);
        };
        if inode.attr.file_type != FileType::Directory {
            return Err(Status::NotDirectory);
        }
        if inode.attr.link_count == 0 {
            return Err(Status::NotFound);
        }
        Ok(inode)
    }

    /// The same, for a name in it.
    ///
    /// # Errors
    /// `NotSupported` for a striped directory that has another stripe for the name: the caller does not know of stripes.
    pub fn directory_of(&self, fid: Fid, name: &[u8]) -> Result<Inode, Status> {
        let inode = self.directory(fid)?;
        match stripe_of(&inode.stripes, name) {
            Some(stripe) if stripe != fid => Err(Status::NotSupported),
            _ => Ok(inode),
        }
    }

    /// Marks attributes as changed now.
    pub fn touch(&self, inode: &mut Inode) {
        inode.attr.ctime = self.now.max(inode.attr.ctime);
        inode.attr.version = self.version;
    }

    /// The contents of a directory have changed.
    pub fn touch_contents(&self, inode: &mut Inode) {
        self.set_mtime(inode, self.now);
        self.touch(inode);
    }

    pub fn set_mtime(&self, inode: &mut Inode, mtime: WallTime) {
        self.set_mtime_up_to(inode, mtime, None);
    }

    /// The same with the last word about data up to `stamp`; otherwise about those of now, as the clock here says. A client's clock is the one
    /// that data have their stamps of, and a replay tells of then.
    pub fn set_mtime_up_to(&self, inode: &mut Inode, mtime: WallTime, stamp: Option<WallTime>) {
        inode.attr.mtime = mtime;
        // Stamps rise, also when the clock does not.
        let after_last = WallTime(inode.attr.mtime_stamp.0.saturating_add(1));
        inode.attr.mtime_stamp = stamp.unwrap_or(self.now).max(after_last);
    }

    /// Puts a name into a directory, which the caller stores afterwards.
    ///
    /// # Errors
    /// `NoSpace` where too many names have its position; those of the store.
    pub fn add_name(&mut self, parent: &mut Inode, name: &[u8], dentry: Dentry) -> Result<(), Status> {
        self.check_position(parent.attr.fid, name)?;
        self.tx.put_dentry(parent.attr.fid, name, dentry);
        if dentry.file_type == FileType::Directory {
            parent.attr.link_count += 1;
        }
        self.touch_contents(parent);
        Ok(())
    }

    fn check_position(&self, parent: Fid, name: &[u8]) -> Result<(), Status> {
        let Some(count_max) = self.position_names_max else { return Ok(()) };
        let position = name_hash(name);
        let (from, to) = (rows::position_key(parent, position), rows::position_key(parent, position + 1));
        let there = self.tx.scan(rows::DENTRIES, &from, &to, count_max)?;
        if there.len() < count_max { Ok(()) } else { Err(Status::NoSpace) }
    }

    /// Takes a name out of a directory, which the caller stores afterwards.
    pub fn remove_name(&mut self, parent: &mut Inode, name: &[u8], dentry: Dentry) {
        self.tx.delete_dentry(parent.attr.fid, name);
        if dentry.file_type == FileType::Directory {
            parent.attr.link_count = parent.attr.link_count.saturating_sub(1);
        }
        self.touch_contents(parent);
    }

    pub fn put_link(&mut self, fid: Fid, parent: Fid, name: &[u8]) {
        self.tx.put(rows::LINKS, rows::link_key(fid, parent, name), Vec::new());
    }

    pub fn delete_link(&mut self, fid: Fid, parent: Fid, name: &[u8]) {
        self.tx.delete(rows::LINKS, rows::link_key(fid, parent, name));
    }

    /// Stores an inode that has lost a name: it goes, or becomes an orphan while somebody has or may have it open.
    ///
    /// # Errors
    /// Those of the store.
    pub fn put_after_unlink(&mut self, inode: &Inode) -> Result<(), Status> {
        if inode.attr.link_count > 0 {
            self.tx.put_inode(inode);
            return Ok(());
        }
        if self.opens.is_open(inode.attr.fid) || self.is_recovering {
            self.tx.put_inode(inode);
            self.tx.put(rows::ORPHANS, inode.attr.fid.key().to_vec(), Vec::new());
            return Ok(());
        }
        self.destroy(inode)
    }

    /// A replay meets what it had met: with other clients may be lost what they had done to these names before it.
    ///
    /// # Errors
    /// `VersionConflict`
    pub fn check_met(&self, met: Met) -> Result<(), Status> {
        let is_same = self.met.is_none_or(|before| before == met);
        if is_same { Ok(()) } else { Err(Status::VersionConflict) }
    }

    /// What a caller asks for by name has to be there. A replay asks for what was there.
    ///
    /// # Errors
    /// `Invalid`
    pub fn check_asked(&self, asked: Option<&LayoutHint>) -> Result<(), Status> {
        let Some(hint) = asked.filter(|_| !self.is_replay) else { return Ok(()) };
        self.placement.check_pools(hint)?;
        self.placement.check_osts(hint)
    }

    /// Where the data of a file go: `hint` is what was `asked` for, with what its directory says.
    ///
    /// # Errors
    /// `Invalid` for what makes no layout.
    pub fn new_layout(
        &mut self,
        fid: Fid,
        first_id: u32,
        asked: Option<&LayoutHint>,
        mut hint: LayoutHint,
    ) -> Result<Option<Layout>, Status> {
        if self.is_replay {
            return self.placement.layout_again(fid, first_id, &hint);
        }
        self.check_asked(asked)?;
        if !asked.is_some_and(names_osts) {
            // Then those that are named are the directory's.
            self.placement.drop_missing_osts(&mut hint);
        }
        self.placement.layout(fid, first_id, &hint)
    }

    /// Removes all rows of an inode and notes the objects that OSTs have to forget.
    ///
    /// # Errors
    /// Those of the store.
    pub fn destroy(&mut self, inode: &Inode) -> Result<(), Status> {
        let fid = inode.attr.fid;
        if inode.xattr_count > 0 {
            for key in self.tx.keys_of_prefix(rows::XATTRS, &fid.key())? {
                self.tx.delete(rows::XATTRS, key);
            }
        }
        for key in self.tx.keys_of_prefix(rows::LINKS, &fid.key())? {
            self.tx.delete(rows::LINKS, key);
        }
        self.tx.delete(rows::INODES, fid.key().to_vec());
        self.tx.delete(rows::ORPHANS, fid.key().to_vec());
        self.destroy_objects(inode)
    }

    /// Notes the objects that an inode may have for destruction; what is here goes at once.
    ///
    /// # Errors
    /// Those of the store.
    pub fn destroy_objects(&mut self, inode: &Inode) -> Result<(), Status> {
        let Some(layout) = &inode.layout else { return Ok(()) };
        data::destroy(&mut self.tx, layout)?;
        for ((ost, component), stripes) in stripes_on_osts(layout) {
            let key = rows::destroy_key(ost, layout.fid, component);
            self.tx.put(rows::DESTROYS, key, rows::encode(&Destroy { stripes }));
        }
        Ok(())
    }

    /// Describes an inode of this MDT.
    pub fn entry(&mut self, inode: &Inode) -> Entry {
        let fid = inode.attr.fid;
        if inode.attr.file_type == FileType::Regular && !inode.attr.is_size_known {
            self.outcome.unsettled.push(fid);
        }
        Entry {
            fid,
            file_type: inode.attr.file_type,
            attr: Some(inode.attr.clone()),
            layout: inode.layout.clone(),
            symlink_target: inode.symlink_target.clone(),
            parent_attr: None,
            is_open_elsewhere: self.opens.is_open_by_others(fid, self.client),
            may_be_written: self.may_be_written(fid),
            was_created: false,
            was_size_known: false,
            grants: Vec::new(),
            stripes: inode.stripes.clone(),
            data: None,
        }
    }

    /// Whether no size of the file would be believed that is measured from now on.
    fn may_be_written(&self, fid: Fid) -> bool {
        match self.features & features::WRITERS != 0 {
            true => self.opens.is_written(fid) || !self.are_opens_known,
            false => self.opens.is_written_by_others(fid, self.client),
        }
    }

    /// The caller would like the lock of a name.
    pub fn want_name(&mut self, want: LockWant, parent: Fid, name: &[u8]) {
        if let Some(lock) = want.name {
            let resource = Resource::Name { parent, hash: name_hash(name) };
            let need = ldlm::Need { resource, mode: LockMode::Pr, policy: LockPolicy::Plain };
            self.outcome.wanted.push((lock, need));
        }
    }

    /// The caller would like the lock of an inode of this MDT. While the size is not known here it changes often, and the
    /// lock would have to come back each time: then only who alone has the file open gets all of it. Others have to say at once
    /// when they close the file.
    pub fn want_inode(&mut self, want: LockWant, inode: &Inode) {
        if let Some(lock) = want.inode {
            let is_quiet =
                inode.attr.is_size_known || !self.opens.is_open_by_others(inode.attr.fid, self.client);
            let mask = if is_quiet { bits::SELF } else { bits::SELF & !(bits::UPDATE | bits::OPEN) };
            let resource = Resource::Inode(inode.attr.fid);
            let need = ldlm::Need { resource, mode: LockMode::Pr, policy: LockPolicy::Bits(mask) };
            self.outcome.wanted.push((lock, need));
        }
    }

    /// The caller would like to write a file, of which it is the only one to have it open, without waiting for OSTs.
    pub fn want_write_back(&mut self, want: LockWant, inode: &Inode) {
        let fid = inode.attr.fid;
        let is_fit = inode.attr.file_type == FileType::Regular
            && !inode.attr.is_size_known
            && !self.opens.is_open_by_others(fid, self.client);
        if let Some(lock) = want.write_back.filter(|_| is_fit) {
            let (resource, policy) = (Resource::Inode(fid), LockPolicy::Bits(bits::WRITE_BACK));
            self.outcome.wanted.push((lock, ldlm::Need { resource, mode: LockMode::Pw, policy }));
        }
    }

    /// The caller opens a file, and would like what is here of its data, or to write there without asking for more.
    pub fn want_data(&mut self, want: LockWant, inode: &Inode, args: OpenArgs) {
        let layout = inode.layout.as_ref().filter(|layout| layout.is_on_mdt());
        let (Some(data), Some(layout)) = (want.data, layout) else { return };
        let object = layout.object(0);
        let mode = if args.write { LockMode::Pw } else { LockMode::Pr };
        let policy = LockPolicy::Extent(Extent::WHOLE);
        let need = ldlm::Need { resource: Resource::Object(object), mode, policy };
        self.outcome.wanted.push((data.lock, need));
        let is_used = match args.write {
            true => self.opens.is_open_by_others(inode.attr.fid, self.client),
            false => self.opens.is_written_by_others(inode.attr.fid, self.client),
        };
        self.outcome.awaited = (!is_used).then_some(need);
        self.outcome.opened_data = Some(OpenedData { lock: data.lock, object, is_read: !args.write });
        if args.write {
            self.want_write_back(LockWant { write_back: data.write_back, ..want }, inode);
        }
    }

    /// The caller would like to rely on what it is told of a directory's children.
    pub fn want_children(&mut self, children_lock: Option<base::LockId>, directory: Fid) {
        if let Some(lock) = children_lock {
            let (resource, policy) = (Resource::Inode(directory), LockPolicy::Bits(bits::CHILDREN));
            self.outcome.wanted.push((lock, ldlm::Need { resource, mode: LockMode::Pr, policy }));
        }
    }

    /// The same of a directory itself, which no lock on children covers.
    pub fn want_directory(&mut self, lock: base::LockId, directory: Fid) {
        let (resource, policy) = (Resource::Inode(directory), LockPolicy::Bits(bits::SELF));
        self.outcome.wanted.push((lock, ldlm::Need { resource, mode: LockMode::Pr, policy }));
    }

    pub fn effect(&mut self, effect: Effect) {
        self.outcome.effects.push(effect);
    }
}

/// Describes an inode of another MDT, of which only identity and type are known here.
pub fn remote_entry(dentry: Dentry) -> Entry {
    Entry {
        fid: dentry.fid,
        file_type: dentry.file_type,
        attr: None,
        layout: None,
        symlink_target: None,
        parent_attr: None,
        is_open_elsewhere: false,
        may_be_written: false,
        was_created: false,
        was_size_known: false,
        grants: Vec::new(),
        stripes: Vec::new(),
        data: None,
    }
}

pub fn entry_reply(mut entry: Entry) -> MdtReply {
    let stripes = std::mem::take(&mut entry.stripes);
    let entry = Box::new(entry);
    if stripes.is_empty() { MdtReply::Entry(entry) } else { MdtReply::Striped { entry, stripes } }
}

/// Runs a request of a client.
///
/// # Errors
/// Those of the operation.
pub fn run(cx: &mut Cx, request: &MdtRequest) -> Result<MdtReply, Stop> {
    match request {
        MdtRequest::Lookup { parent, name, want } => read::lookup(cx, *parent, name, *want),
        MdtRequest::Getattr { fid, want } => read::getattr(cx, *fid, *want),
        MdtRequest::Readlink { fid } => read::readlink(cx, *fid),
        MdtRequest::Setattr { fid, set, creds, handle, want, stamp } => {
            let args = attrs::Args { set, creds, handle: *handle, stamp: *stamp };
            attrs::run(cx, *fid, args, *want)
        }
        MdtRequest::Create(create) => create::run(cx, create),
        MdtRequest::MakeStriped { create, striping, stripes } => stripes::make(cx, create, striping, stripes),
        MdtRequest::Unlink { parent, name, creds } => unlink::unlink(cx, *parent, name, creds),
        MdtRequest::Rmdir { parent, name, creds } => unlink::rmdir(cx, *parent, name, creds),
        MdtRequest::Rename { parent, name, new_parent, new_name, flags, creds } => {
            let from = rename::Place { parent: *parent, name };
            let to = rename::Place { parent: *new_parent, name: new_name };
            rename::run(cx, from, to, *flags, creds)
        }
        MdtRequest::Link { fid, parent, name, creds, want } => {
            link::run(cx, *fid, *parent, name, creds, *want)
        }
        MdtRequest::Migrate { parent, name, fid, creds } => migrate::run(cx, *parent, name, *fid, creds),
        MdtRequest::Open { fid, open, creds, want, closes: _, accesses: _ } => {
            open::open(cx, *fid, *open, creds, *want)
        }
        MdtRequest::Close { fid, handle, atime, unchanged_since, data, cancels: _, accesses: _ } => {
            let closing = open::Closing {
                handle: *handle,
                atime: *atime,
                unchanged_since: *unchanged_since,
                data: *data,
            };
            open::close(cx, *fid, closing)
        }
        MdtRequest::ReportSize { fid, write_epoch, size_bytes, block_count, mtime, stamp } => {
            let report = SizeReport {
                fid: *fid,
                write_epoch: *write_epoch,
                size_bytes: *size_bytes,
                block_count: *block_count,
                mtime: *mtime,
                stamp: *stamp,
            };
            open::report_size(cx, &report)
        }
        MdtRequest::ReportSizes { reports } => open::report_sizes(cx, reports),
        MdtRequest::Reopen { fid, open } => open::reopen(cx, *fid, *open),
        MdtRequest::Readdir {
            fid,
            after,
            entry_count_max,
            with_attrs,
            with_xattrs,
            children,
            subdirectories,
            is_whole_wanted,
            accesses: _,
        } => {
            let wanted = readdir::Wanted {
                entry_count_max: *entry_count_max,
                with_attrs: *with_attrs,
                with_xattrs: *with_xattrs,
                children: *children,
                subdirectories: *subdirectories,
                is_whole_wanted: *is_whole_wanted,
            };
            readdir::run(cx, *fid, *after, wanted)
        }
        MdtRequest::Listxattr { fid, want } => xattr::list(cx, *fid, *want),
        MdtRequest::Getxattr { fid, name } => xattr::get(cx, *fid, name),
        MdtRequest::Setxattr { fid, name, value, flags, creds } => {
            xattr::set(cx, *fid, name, value, *flags, creds)
        }
        MdtRequest::Removexattr { fid, name, creds } => xattr::remove(cx, *fid, name, creds),
        MdtRequest::FidToPath { fid } => path::run(cx, *fid),
        MdtRequest::SetDefaultStriping { fid, striping, creds } => {
            stripes::set_default(cx, *fid, striping.as_ref(), creds)
        }
        MdtRequest::GetDefaultStriping { fid } => stripes::default_of(cx, *fid),
        MdtRequest::SetLayout { fid, layout, creds } => layout::run(cx, *fid, layout, creds),
        MdtRequest::GetDefaultLayout { fid } => layout::default_of(cx, *fid),
        // These change nothing in the rows; the machine answers them.
        MdtRequest::Statfs
        | MdtRequest::Sync
        | MdtRequest::Closes { .. }
        | MdtRequest::Flock { .. }
        | MdtRequest::FlockCancel { .. }
        | MdtRequest::Getlk { .. }
        | MdtRequest::ReplayFlocks { .. }
        | MdtRequest::RemoveAgain { .. }
        | MdtRequest::RenameAgain { .. } => Err(Stop::Status(Status::ProtocolError)),
    }
}

/// Stripes of a file, by OST and component.
pub fn stripes_on_osts(layout: &Layout) -> BTreeMap<(u16, u32), Vec<u32>> {
    let mut stripes_of: BTreeMap<(u16, u32), Vec<u32>> = BTreeMap::new();
    let stripes = layout.stripes().filter_map(|stripe| layout.stripe(stripe));
    for stripe in stripes.filter(|stripe| stripe.ost != Layout::ON_MDT) {
        stripes_of.entry((stripe.ost, stripe.object.component)).or_default().push(stripe.object.stripe);
    }
    stripes_of
}

/// What a request that changes something does to the room of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Demand {
    /// It gives some back, or ends what was begun: the last that a full target still does.
    Frees,
    /// It changes rows that are there.
    Keeps,
    Takes,
}

pub fn demand_of(request: &MdtRequest) -> Demand {
    match request {
        // As good as none.
        MdtRequest::SetLayout { layout, .. } if *layout == LayoutHint::default() => Demand::Keeps,
        MdtRequest::Create(_)
        | MdtRequest::MakeStriped { .. }
        | MdtRequest::Link { .. }
        | MdtRequest::Migrate { .. }
        | MdtRequest::SetLayout { .. }
        | MdtRequest::SetDefaultStriping { striping: Some(_), .. }
        | MdtRequest::Setxattr { .. } => Demand::Takes,
        // What it gives back is elsewhere, or less.
        MdtRequest::Rename { parent, name, new_parent, new_name, .. } => {
            let is_longer = new_name.len() > name.len();
            let is_from_elsewhere = parent.mdt_index() != new_parent.mdt_index();
            if is_longer || is_from_elsewhere { Demand::Takes } else { Demand::Keeps }
        }
        // Of who writes to a file, and is not to fail for what goes with that.
        MdtRequest::Setattr { set, .. } if is_only_killing(set) => Demand::Frees,
        // Who cuts a file is about to have its objects destroyed.
        MdtRequest::Setattr { set, .. } if set.size_bytes.is_none() => Demand::Keeps,
        _ => Demand::Frees,
    }
}

/// Set-id bits and `security.capability` go, and nothing else changes.
fn is_only_killing(set: &SetAttr) -> bool {
    *set == SetAttr { kill_privileges: true, ..SetAttr::default() }
}
