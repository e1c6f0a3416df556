//! Metadata requests.
//!
//! Names are bytes, without `/` and NUL, 1 to 255 of them. Times are the MDT's unless a request names one. A modifying
//! request travels with a reply slot and is executed once. `fid` fields marked *replay* are empty on first sending
//! and filled from the reply when the request is replayed, so that it does the same again.

pub use crate::access::{ACCESSES_MAX, Access};
pub use crate::hint::LayoutHint;
use crate::lock::{LockGrant, LockWant};
use base::{Attr, Extent, Fid, FileType, Layout, LockId, ObjectId, OpenHandle, SetAttr, WallTime};
use borsh::{BorshDeserialize, BorshSerialize};
use bytes::Bytes;

/// Who asks. `groups` is empty on first sending; when the MDT answers `AccessDenied` or `NotPermitted` and groups
/// are missing, the client fetches the caller's supplementary groups and asks again.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Credentials {
    pub uid: u32,
    pub gid: u32,
    pub groups: Option<Vec<u32>>,
}

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum NewNode {
    Regular = 1,
    Directory = 2,
    Symlink { target: Vec<u8> } = 3,
    Device { file_type: FileType, rdev: u32 } = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct OpenArgs {
    pub handle: OpenHandle,
    pub read: bool,
    pub write: bool,
    /// The file is run: writers get ETXTBSY.
    pub execute: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct CreateRequest {
    pub parent: Fid,
    pub name: Vec<u8>,
    pub node: NewNode,
    /// Permission bits as asked for; the MDT applies `umask` or the parent's default ACL.
    pub permissions: u32,
    pub umask: u32,
    pub creds: Credentials,
    pub open: Option<OpenArgs>,
    /// With `open`: an existing file is an error.
    pub is_exclusive: bool,
    /// No name: `O_TMPFILE`.
    pub is_unnamed: bool,
    /// `lfs mkdir -i`.
    pub mdt_index: Option<u16>,
    pub layout: Option<LayoutHint>,
    /// Replay: the inode that was made.
    pub fid: Option<Fid>,
    pub want: LockWant,
}

/// How a directory is spread over MDTs (`lfs mkdir -c`).
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct DirStriping {
    /// `ALL`: one on each MDT; 0: as many as `mdts` has.
    pub stripe_count: u16,
    /// Where the stripes go, each on another MDT. With one, the others follow it; with none, the parent's MDT is the first;
    /// one from `BY_SPACE` on is no MDT, but says that the parent's MDT chooses the first.
    pub mdts: Vec<u16>,
}

impl DirStriping {
    pub const ALL: u16 = u16::MAX;
    /// The least of 255 words in place of an MDT; what it is above `BY_SPACE - 1` is the count of levels. A server that does not
    /// know of them answers that there is no such MDT.
    pub const BY_SPACE: u16 = 0xff01;
    /// Levels without an end.
    const UNLIMITED: u8 = u8::MAX;
    /// Of directories that inherit a choice by space (`lfs setdirstripe --max-inherit`), if there is an end.
    pub const LEVELS_MAX: u8 = Self::UNLIMITED - 1;

    /// The first MDT is chosen by space; as a default, for so many levels of directories (`None`: for all), one at least.
    pub fn by_space(stripe_count: u16, levels: Option<u8>) -> DirStriping {
        let levels = levels.map_or(Self::UNLIMITED, |levels| levels.clamp(1, Self::LEVELS_MAX));
        DirStriping { stripe_count, mdts: vec![Self::BY_SPACE - 1 + u16::from(levels)] }
    }

    pub fn is_by_space(&self) -> bool {
        self.word().is_some()
    }

    fn word(&self) -> Option<u16> {
        match self.mdts[..] {
            [word] if word >= Self::BY_SPACE => Some(word),
            _ => None,
        }
    }

    /// Levels of directories that are placed so; `None` for all.
    pub fn levels(&self) -> Option<u8> {
        let levels = self.word().map(|word| (word - Self::BY_SPACE + 1) as u8);
        levels.filter(|levels| *levels != Self::UNLIMITED)
    }

    /// As a default: what a directory that is made under it has as its own.
    pub fn inherited(&self) -> Option<DirStriping> {
        match self.levels() {
            None => Some(self.clone()),
            Some(..=1) => None,
            Some(levels) => Some(DirStriping::by_space(self.stripe_count, Some(levels - 1))),
        }
    }
}

/// The last data that were written through a handle, on the MDT; they come in the frame's data, and `lock`, PW, covers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ClosingData {
    pub object: ObjectId,
    pub offset_bytes: u64,
    pub lock: LockId,
    pub stamp: WallTime,
}

/// Handles in one `MdtRequest::Closes`, or with an open.
pub const CLOSES_MAX: usize = 256;

/// Files in one `MdtRequest::ReportSizes`.
pub const REPORTS_MAX: usize = 32;

/// A replay of more would keep its place among all others.
const _: () = assert!(REPORTS_MAX <= crate::manifest::TOUCHED_MAX);

/// The size of a file that nobody writes any more, as its objects have it; dropped unless `write_epoch` is still the file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct SizeReport {
    pub fid: Fid,
    pub write_epoch: u64,
    pub size_bytes: u64,
    pub block_count: u64,
    pub mtime: WallTime,
    pub stamp: WallTime,
}

impl SizeReport {
    /// In a request of its own.
    pub fn alone(self) -> MdtRequest {
        let SizeReport { fid, write_epoch, size_bytes, block_count, mtime, stamp } = self;
        MdtRequest::ReportSize { fid, write_epoch, size_bytes, block_count, mtime, stamp }
    }
}

/// What an advisory lock is asked to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum FlockKind {
    Unlock = 0,
    Read = 1,
    Write = 2,
}

/// One advisory lock, flock(2) or fcntl(2): the owner is the kernel's `lock_owner`, unique within its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct FileLock {
    pub owner: u64,
    pub pid: u32,
    /// flock(2) locks and fcntl(2) locks do not see each other.
    pub is_flock: bool,
    pub kind: FlockKind,
    pub extent: Extent,
}

#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum MdtRequest {
    /// -> Entry. An absent name is `NotFound`, with the name's lock in the reply's grants (`MdtReply::Absent`).
    /// `..` leads to what holds the directory's name, `.` to the directory that a stripe is one of, or itself: without locks, and
    /// without attributes until the MDT that is asked has it and knows that it is no stripe (ask there with `.`).
    Lookup { parent: Fid, name: Vec<u8>, want: LockWant } = 1,
    /// -> Entry
    Getattr { fid: Fid, want: LockWant } = 2,
    /// `stamp`, where it sets `mtime` or the size: of data with a stamp up to this one, the time that is set is the later word, and of
    /// data with a later one it is not. -> Entry
    Setattr {
        fid: Fid,
        set: SetAttr,
        creds: Credentials,
        handle: Option<OpenHandle>,
        want: LockWant,
        #[borsh(
            serialize_with = "crate::data_stamp::serialize",
            deserialize_with = "crate::data_stamp::deserialize"
        )]
        stamp: Option<WallTime>,
    } = 3,
    /// -> Entry
    Create(CreateRequest) = 4,
    /// -> Removed
    Unlink { parent: Fid, name: Vec<u8>, creds: Credentials } = 5,
    /// -> Removed
    Rmdir { parent: Fid, name: Vec<u8>, creds: Credentials } = 6,
    /// To the MDT of `new_parent`. `flags`: 1 NOREPLACE, 2 EXCHANGE, as renameat2(2). -> Removed
    Rename { parent: Fid, name: Vec<u8>, new_parent: Fid, new_name: Vec<u8>, flags: u32, creds: Credentials } =
        7,
    /// To the MDT of `parent`. -> Entry
    Link { fid: Fid, parent: Fid, name: Vec<u8>, creds: Credentials, want: LockWant } = 8,
    /// `closes`: as `Closes`, done first. `accesses` of whatever was read lately, here and in other requests: no answer tells what
    /// became of them. -> Entry
    Open {
        fid: Fid,
        open: OpenArgs,
        creds: Credentials,
        want: LockWant,
        closes: Vec<(Fid, OpenHandle)>,
        #[borsh(
            serialize_with = "crate::access::serialize",
            deserialize_with = "crate::access::deserialize"
        )]
        accesses: Vec<Access>,
    } = 9,
    /// The last reference of a handle is gone. `unchanged_since`: the write epoch in which the client was told a size that
    /// was known (`Entry::was_size_known`), if it has changed no data since; the size is known again if nobody else
    /// has opened the file for writing since. -> Closed
    Close {
        fid: Fid,
        handle: OpenHandle,
        /// Counts where it is later than what the inode has; clients of this version name `accesses` instead.
        atime: Option<WallTime>,
        unchanged_since: Option<u64>,
        /// `unchanged_since` leaves these out then.
        data: Option<ClosingData>,
        /// Locks that end with this.
        cancels: Vec<LockId>,
        #[borsh(
            serialize_with = "crate::access::serialize",
            deserialize_with = "crate::access::deserialize"
        )]
        accesses: Vec<Access>,
    } = 10,
    /// The size of a file that nobody writes any more, as its objects have it; dropped unless `write_epoch` is still
    /// the file's. -> Entry
    ReportSize {
        fid: Fid,
        write_epoch: u64,
        size_bytes: u64,
        block_count: u64,
        mtime: WallTime,
        stamp: WallTime,
    } = 11,
    /// Entries with a position above `after`, in order of position. `children`: a lock for the directory's
    /// `bits::CHILDREN`, mode PR. -> Entries
    Readdir {
        fid: Fid,
        after: u64,
        entry_count_max: u32,
        with_attrs: bool,
        /// With the attributes.
        with_xattrs: bool,
        children: Option<LockId>,
        /// The first of `entry_count_max` locks, numbered one after the other, for `bits::SELF` of entries that are directories:
        /// what the children's lock does not cover.
        subdirectories: Option<LockId>,
        /// Nothing is wanted of a directory with more entries: the answer is empty and not the end then.
        is_whole_wanted: bool,
        #[borsh(
            serialize_with = "crate::access::serialize",
            deserialize_with = "crate::access::deserialize"
        )]
        accesses: Vec<Access>,
    } = 12,
    /// -> Bytes
    Readlink { fid: Fid } = 13,
    /// All names, and values while they fit. -> Xattrs
    Listxattr { fid: Fid, want: LockWant } = 14,
    /// -> Bytes
    Getxattr { fid: Fid, name: Vec<u8> } = 15,
    /// `flags` as setxattr(2): 1 CREATE, 2 REPLACE. -> Entry
    Setxattr { fid: Fid, name: Vec<u8>, value: Vec<u8>, flags: u32, creds: Credentials } = 16,
    /// -> Entry
    Removexattr { fid: Fid, name: Vec<u8>, creds: Credentials } = 17,
    /// -> Statfs
    Statfs = 18,
    /// Answered when everything executed so far is durable. -> Done
    Sync = 19,
    /// All paths from the root, without a leading `/`. -> Paths
    FidToPath { fid: Fid } = 20,
    /// Advisory lock. With `can_wait` the answer comes when it is granted, or `Deadlock`. -> Done
    Flock { fid: Fid, lock: FileLock, can_wait: bool } = 21,
    /// Gives up a waiting advisory lock: its request is answered `Interrupted` if it has not been granted. -> Done
    FlockCancel { fid: Fid, owner: u64, is_flock: bool } = 22,
    /// The first lock in the way. -> Flock
    Getlk { fid: Fid, lock: FileLock } = 23,
    /// Default layout of a directory, or the layout of a file without data. -> Entry
    SetLayout { fid: Fid, layout: LayoutHint, creds: Credentials } = 24,
    /// After a restart of the MDT: a handle that the client still has open (even when its open was committed).
    Reopen { fid: Fid, open: OpenArgs } = 25,
    /// After a restart of the MDT: advisory locks that the client still holds.
    ReplayFlocks { fid: Fid, locks: Vec<FileLock> } = 26,
    /// What new files of a directory get. -> DefaultLayout
    GetDefaultLayout { fid: Fid } = 27,
    /// A directory in several stripes. `stripes`: replay, those that were made. -> Striped; Entry where one MDT is all there is.
    MakeStriped { create: CreateRequest, striping: DirStriping, stripes: Vec<Fid> } = 28,
    /// How new directories in this one are striped (`lfs setdirstripe -D`); `None`: as if nothing were said. -> Entry
    SetDefaultStriping { fid: Fid, striping: Option<DirStriping>, creds: Credentials } = 29,
    /// -> DefaultStriping
    GetDefaultStriping { fid: Fid } = 30,
    /// Handles that were only read through, `CLOSES_MAX` at most. What is closed already is no error. -> Done
    Closes {
        handles: Vec<(Fid, OpenHandle)>,
        #[borsh(
            serialize_with = "crate::access::serialize",
            deserialize_with = "crate::access::deserialize"
        )]
        accesses: Vec<Access>,
    } = 31,
    /// A replay of `Unlink` or `Rmdir`: `VersionConflict` unless the name leads where it had led.
    RemoveAgain { parent: Fid, name: Vec<u8>, is_directory: bool, creds: Credentials, met: Met } = 32,
    /// A replay of `Rename`: `VersionConflict` unless both names lead where they had led.
    RenameAgain {
        parent: Fid,
        name: Vec<u8>,
        new_parent: Fid,
        new_name: Vec<u8>,
        flags: u32,
        creds: Credentials,
        met: Met,
    } = 33,
    /// To the MDT that is to have it: the inode `fid`, to which the name leads, gets a FID there. Answered when that is durable, so
    /// nobody replays it. What is there already stays as it is. -> Entry
    Migrate { parent: Fid, name: Vec<u8>, fid: Fid, creds: Credentials } = 34,
    /// As `ReportSize`, for several files at once, `REPORTS_MAX` at most (`features::REPORTS`). Waits for nobody: `Busy`, with nothing
    /// changed, if others hold locks against one of these changes. -> Sizes
    ReportSizes { reports: Vec<SizeReport> } = 35,
}

/// What the names that an operation takes away had led to. A FID is never given a second time, so it is the version of a name: who
/// finds another one there finds what the operation has not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Met {
    pub fid: Fid,
    /// Of a rename, under the new name; `None`: nothing.
    pub replaced: Option<Fid>,
}

impl MdtRequest {
    /// A replay as what it was at first, and what it had met then, if it says so.
    pub fn split_met(self) -> (MdtRequest, Option<Met>) {
        match self {
            MdtRequest::RemoveAgain { parent, name, is_directory: false, creds, met } => {
                (MdtRequest::Unlink { parent, name, creds }, Some(met))
            }
            MdtRequest::RemoveAgain { parent, name, is_directory: true, creds, met } => {
                (MdtRequest::Rmdir { parent, name, creds }, Some(met))
            }
            MdtRequest::RenameAgain { parent, name, new_parent, new_name, flags, creds, met } => {
                (MdtRequest::Rename { parent, name, new_parent, new_name, flags, creds }, Some(met))
            }
            request => (request, None),
        }
    }

    /// As its replay is to be asked for.
    pub fn with_met(self, met: Met) -> MdtRequest {
        match self {
            MdtRequest::Unlink { parent, name, creds } => {
                MdtRequest::RemoveAgain { parent, name, is_directory: false, creds, met }
            }
            MdtRequest::Rmdir { parent, name, creds } => {
                MdtRequest::RemoveAgain { parent, name, is_directory: true, creds, met }
            }
            MdtRequest::Rename { parent, name, new_parent, new_name, flags, creds } => {
                MdtRequest::RenameAgain { parent, name, new_parent, new_name, flags, creds, met }
            }
            request => request,
        }
    }
}

/// Description of an inode, with the locks that came along.
#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
pub struct Entry {
    pub fid: Fid,
    pub file_type: FileType,
    /// Empty when the inode is on another MDT: ask there (`Fid::mdt_index`).
    pub attr: Option<Attr>,
    pub layout: Option<Layout>,
    pub symlink_target: Option<Vec<u8>>,
    /// The parent after the operation, when it changed.
    pub parent_attr: Option<Attr>,
    /// Other clients have the file open.
    pub is_open_elsewhere: bool,
    /// Somebody, the caller too, has it open for writing, or had and is not known to have ended. If not, and the size is not known,
    /// the caller may measure and report it. (Without `features::WRITERS`: other clients have it open for writing.)
    pub may_be_written: bool,
    pub was_created: bool,
    /// Of an open for writing: the size in `attr` was known, until this open made it unknown.
    pub was_size_known: bool,
    pub grants: Vec<LockGrant>,
    /// Of a striped directory: the directories that hold its names, by `base::names::stripe_of`; the first is the directory itself.
    /// They never change. Not written with an entry: `MdtReply::Striped` brings them.
    #[borsh(skip)]
    pub stripes: Vec<Fid>,
    /// Of a file that was opened: all bytes of it that the MDT has, under the lock on them that came along. Not written with an
    /// entry: `MdtReply::WithData` brings them.
    #[borsh(skip)]
    pub data: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct DirEntry {
    pub name: Vec<u8>,
    pub fid: Fid,
    pub file_type: FileType,
    /// Where the next READDIR goes on after this entry; rises, never 0, stable while the directory changes.
    pub position: u64,
    /// Only when asked for, and of inodes on the directory's MDT.
    pub attr: Option<Attr>,
    /// With `attr`, of a symlink.
    pub symlink_target: Option<Vec<u8>>,
    /// With `attr`: all of them, unless there are none (`Attr::has_xattrs`) or they are too long for a listing.
    pub xattrs: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Statfs {
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub bytes_available: u64,
    pub inodes_total: u64,
    pub inodes_free: u64,
    /// Targets with the same number share their space: count it once.
    pub device: u64,
}

impl Statfs {
    /// Inodes of a file system, in all and free, by what its MDTs and its OSTs have in all. A file has one on an MDT,
    /// and takes at least one for an object: where OSTs have fewer that are free there are fewer in all, so that
    /// those in use are the MDTs'. (As Lustre counts.)
    pub fn inodes_of(mdts: &Statfs, osts: &Statfs) -> (u64, u64) {
        let free =
            if osts.inodes_total == 0 { mdts.inodes_free } else { mdts.inodes_free.min(osts.inodes_free) };
        (mdts.inodes_total.saturating_sub(mdts.inodes_free).saturating_add(free), free)
    }
}

#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum MdtReply {
    Entry(Box<Entry>) = 1,
    /// The name does not exist; the status is `Ok` so that the grants arrive.
    Absent {
        grants: Vec<LockGrant>,
    } = 2,
    /// `child`: the inode that lost or changed its name; `replaced`: the one that a rename replaced, or exchanged it
    /// with. What is empty lies on another MDT, or on several: forget what is known of it.
    Removed {
        parent_attr: Option<Attr>,
        new_parent_attr: Option<Attr>,
        child: Option<Box<Entry>>,
        replaced: Option<Box<Entry>>,
        /// Not written with this: `RemovedMet` brings it.
        #[borsh(skip)]
        met: Option<Met>,
    } = 3,
    /// `wants_size`: this was the last writer; take the size from the objects and send `ReportSize`. `attr`: of a file that was open
    /// for writing (without `features::CLOSED_ATTR`: when nothing is wanted).
    Closed {
        wants_size: Option<u64>,
        attr: Option<Attr>,
    } = 4,
    Entries {
        entries: Vec<DirEntry>,
        is_end: bool,
        grants: Vec<LockGrant>,
    } = 5,
    Bytes(Vec<u8>) = 6,
    /// `value` is empty where it did not fit: ask with `Getxattr`.
    Xattrs {
        xattrs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
        grants: Vec<LockGrant>,
    } = 7,
    Statfs(Statfs) = 8,
    Paths(Vec<Vec<u8>>) = 9,
    Flock(Option<FileLock>) = 10,
    DefaultLayout(LayoutHint) = 11,
    /// An `Entry` of a striped directory.
    Striped {
        entry: Box<Entry>,
        stripes: Vec<Fid>,
    } = 12,
    DefaultStriping(Option<DirStriping>) = 13,
    /// An `Entry` of a file that was opened with `LockWant::data`. `grant_bytes` as in `OstReply::Written`. `has_bytes`: the frame's
    /// data are all that the MDT has of it.
    WithData {
        entry: Box<Entry>,
        grant_bytes: u64,
        has_bytes: bool,
    } = 14,
    /// A `Removed` to who replays with what it had met.
    RemovedMet {
        parent_attr: Option<Attr>,
        new_parent_attr: Option<Attr>,
        child: Option<Box<Entry>>,
        replaced: Option<Box<Entry>>,
        met: Met,
    } = 15,
    /// For each report what its file is now; nothing where the size is still not known, or the file is not there.
    Sizes(Vec<Option<Attr>>) = 16,
}

impl MdtReply {
    /// As it is sent, to who understands it.
    pub fn with_met(self) -> MdtReply {
        match self {
            MdtReply::Removed { parent_attr, new_parent_attr, child, replaced, met: Some(met) } => {
                MdtReply::RemovedMet { parent_attr, new_parent_attr, child, replaced, met }
            }
            reply => reply,
        }
    }

    /// As its receiver uses it.
    pub fn without_met(self) -> MdtReply {
        match self {
            MdtReply::RemovedMet { parent_attr, new_parent_attr, child, replaced, met } => {
                MdtReply::Removed { parent_attr, new_parent_attr, child, replaced, met: Some(met) }
            }
            reply => reply,
        }
    }
}
