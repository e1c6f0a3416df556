//! The calls that a mount makes: the operations of FUSE one to one, with node ids of the kernel, and those of `lfs`.

use base::{Advice, Attr, Duration, Extent, Fid, FileType, Layout, Pool, SetTime, Status, TargetId};
use bytes::Bytes;
use wire::mdt::{DirStriping, FileLock, LayoutHint, Statfs};

/// Who calls. Supplementary groups are asked for when they matter (`Output::NeedGroups`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

/// Node id of the root directory, in FUSE and here. Every other node id is `Fid::inode_number`.
pub const ROOT_NODE: u64 = 1;

/// Bits of the answer to an open, for the caller to turn into `FOPEN_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// What is read and written through this handle passes by the page cache (`FOPEN_DIRECT_IO`). A private mapping fills pages all the same.
    pub is_direct: bool,
    /// It may have several writes inside of the file on their way (`FOPEN_PARALLEL_DIRECT_WRITES`).
    pub is_parallel: bool,
    /// Pages that the kernel has are still good (`FOPEN_KEEP_CACHE`).
    pub keeps_cache: bool,
}

/// What SETATTR changes; `None` leaves it alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetattrCall {
    /// Handle of an ftruncate(2).
    pub fh: Option<u64>,
    /// Mode; only the lower 12 bits count.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size_bytes: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// The kernel says `FATTR_KILL_SUIDGID`: drop set-id bits.
    pub kill_privileges: bool,
}

impl SetattrCall {
    /// chown(2) to nobody and no group, which nothing else looks like.
    pub(crate) fn is_empty(&self) -> bool {
        *self == SetattrCall { fh: self.fh, ..SetattrCall::default() }
    }
}

/// One system call as it reaches the mount. Node ids and handles are the kernel's; names are bytes without `/`.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// -> Entry, also for an absent name (`EntryAnswer::attr` empty) when it may be cached as absent.
    Lookup { parent: u64, name: Vec<u8> },
    /// -> Attr
    Getattr { node: u64, fh: Option<u64> },
    /// -> Attr
    Setattr { node: u64, set: SetattrCall },
    /// -> Bytes
    Readlink { node: u64 },
    /// -> Entry
    Symlink { parent: u64, name: Vec<u8>, target: Vec<u8> },
    /// -> Entry. `mode` with `S_IFMT`.
    Mknod { parent: u64, name: Vec<u8>, mode: u32, umask: u32, rdev: u32 },
    /// -> Entry
    Mkdir { parent: u64, name: Vec<u8>, mode: u32, umask: u32 },
    /// -> Done
    Unlink { parent: u64, name: Vec<u8> },
    /// -> Done
    Rmdir { parent: u64, name: Vec<u8> },
    /// `flags` as renameat2(2). -> Done
    Rename { parent: u64, name: Vec<u8>, new_parent: u64, new_name: Vec<u8>, flags: u32 },
    /// -> Entry
    Link { node: u64, parent: u64, name: Vec<u8> },
    /// `flags` as open(2), with `__FMODE_EXEC` (0x20) when the file is run. -> Opened
    Open { node: u64, flags: u32 },
    /// -> Created
    Create { parent: u64, name: Vec<u8>, mode: u32, umask: u32, flags: u32 },
    /// -> Created
    Tmpfile { parent: u64, mode: u32, umask: u32, flags: u32 },
    /// `is_direct`: for a process, past the page cache; otherwise for pages, also through a handle that passes by the cache (a private mapping).
    /// -> Bytes, short only at the end of the file
    Read { node: u64, fh: u64, offset_bytes: u64, byte_count: u32, is_direct: bool },
    /// -> Written
    Write {
        node: u64,
        fh: u64,
        offset_bytes: u64,
        data: Bytes,
        /// Flags of the handle; `O_APPEND` may have been set after open.
        flags: u32,
        /// From the page cache (`FUSE_WRITE_CACHE`): the offset counts even with `O_APPEND`, the handle is a guess.
        is_writeback: bool,
        /// `FUSE_WRITE_KILL_SUIDGID`
        kill_privileges: bool,
    },
    /// close(2) of one descriptor: errors of earlier writes, and the caller's fcntl(2) locks. -> Done
    Flush { node: u64, fh: u64, lock_owner: u64 },
    /// The last descriptor is gone. `flock_owner`: drop this owner's flock(2). -> Done
    Release { node: u64, fh: u64, flock_owner: Option<u64> },
    /// -> Done
    Fsync { node: u64, fh: u64, data_only: bool },
    /// -> Opened
    Opendir { node: u64, flags: u32 },
    /// -> Entries that fit into `byte_count` bytes as the kernel packs them (`FUSE_READDIR` or `FUSE_READDIRPLUS`).
    Readdir { node: u64, fh: u64, offset: u64, byte_count: u32, is_plus: bool },
    /// -> Done
    Releasedir { node: u64, fh: u64 },
    /// -> Done
    Fsyncdir { node: u64, fh: u64, data_only: bool },
    /// -> Statfs
    Statfs { node: u64 },
    /// `flags` as setxattr(2). -> Done
    Setxattr { node: u64, name: Vec<u8>, value: Vec<u8>, flags: u32 },
    /// -> Bytes: the whole value; the caller cuts it to size or says ERANGE
    Getxattr { node: u64, name: Vec<u8> },
    /// -> Bytes: names, each with a NUL behind it
    Listxattr { node: u64 },
    /// -> Done
    Removexattr { node: u64, name: Vec<u8> },
    /// -> Lock: the first one in the way
    Getlk { node: u64, fh: u64, lock: FileLock },
    /// `can_wait`: F_SETLKW. -> Done
    Setlk { node: u64, fh: u64, lock: FileLock, can_wait: bool },
    /// `mode` as fallocate(2). -> Done
    Fallocate { node: u64, fh: u64, offset_bytes: u64, byte_count: u64, mode: u32 },
    /// SEEK_DATA (3) or SEEK_HOLE (4). -> Offset
    Lseek { node: u64, fh: u64, offset_bytes: u64, whence: u32 },
    /// -> Written
    CopyFileRange {
        node: u64,
        fh: u64,
        offset_bytes: u64,
        to_node: u64,
        to_fh: u64,
        to_offset_bytes: u64,
        byte_count: u64,
    },
    /// -> Attr, whose `attr.btime` is the time of birth
    Statx { node: u64, fh: Option<u64> },
    /// -> Done: the kernel and the MDT check permissions
    Access { node: u64, mask: u32 },
    /// Everything that this mount has changed is durable. -> Done
    SyncAll,

    /// For the caches of the OSTs that have it. -> Done
    Advise { node: u64, extent: Extent, advice: Advice },
    /// FID and layout. -> Stripe, or DefaultStripe of a directory
    Getstripe { node: u64 },
    /// The same of what has this name in this directory.
    GetstripeOf { parent: u64, name: Vec<u8> },
    /// Default layout of a directory, or layout of a file without data. -> Done
    Setstripe { node: u64, layout: LayoutHint },
    /// A new file with a layout (`lfs setstripe FILE`). -> Entry, without a lookup reference
    CreateStriped { parent: u64, name: Vec<u8>, mode: u32, umask: u32, layout: LayoutHint },
    /// A new directory on this MDT (`lfs mkdir -i`). -> Done
    MkdirOn { parent: u64, name: Vec<u8>, mode: u32, umask: u32, mdt_index: u16 },
    /// A new directory over several MDTs (`lfs mkdir -c`). -> Done
    MkdirStriped { parent: u64, name: Vec<u8>, mode: u32, umask: u32, striping: DirStriping },
    /// What the name leads to moves to this MDT (`lfs migrate -m`). -> Migrated
    Migrate { parent: u64, name: Vec<u8>, mdt_index: u16 },
    /// How new directories in this one are striped (`lfs setdirstripe -D`). -> Done
    Setdirstripe { node: u64, striping: Option<DirStriping> },
    /// -> DirStripes
    Getdirstripe { node: u64 },
    /// -> Paths, from the root, without a leading `/`
    FidToPath { fid: Fid },
    /// -> Fid
    NodeFid { node: u64 },
    /// Of what has this name in this directory. -> Fid
    FidOf { parent: u64, name: Vec<u8> },
    /// -> Targets (`lfs df`)
    DfTargets,
    /// -> Pools
    ListPools,
    /// Whether each target answers, grants a lock and reads (`sheen health`); answered within seconds. -> Probes
    ProbeTargets,
}

/// A name and what it leads to. Timeouts of zero: the kernel asks each time.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryAnswer {
    /// 0 for an absent name.
    pub node: u64,
    pub attr: Option<Attr>,
    pub entry_valid: Duration,
    pub attr_valid: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AttrAnswer {
    pub attr: Attr,
    pub attr_valid: Duration,
    /// As the root of the mount was when its MDT, which is silent, was last heard.
    pub is_remembered: bool,
}

/// One directory entry.
#[derive(Clone, Debug, PartialEq)]
pub struct DirEntryAnswer {
    pub name: Vec<u8>,
    /// Inode number, which is the node id.
    pub node: u64,
    pub file_type: FileType,
    /// Where READDIR goes on after this entry.
    pub offset: u64,
    /// READDIRPLUS: a lookup of this name, counted; `None` where the kernel gets a node id of 0.
    pub entry: Option<EntryAnswer>,
}

/// Space of one target, for `lfs df`.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSpace {
    pub target: TargetId,
    /// `None`: it does not answer, or is not asked.
    pub space: Option<Statfs>,
    /// False: an operator has switched it off, here or for everybody, and it is not asked.
    pub is_active: bool,
    /// An operator wants nothing new on it.
    pub is_drained: bool,
}

/// What became of one step of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeStep {
    /// A step before it did not succeed.
    #[default]
    NotTried,
    Took(Duration),
    Failed(Status),
    /// Not answered in time.
    Silent,
}

/// How one target does, seen from this mount.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetProbe {
    pub target: TargetId,
    /// False: an operator has switched it off, and nothing was asked.
    pub is_used: bool,
    /// Lustre's word for the state of the session.
    pub state: &'static str,
    pub nids: Vec<String>,
    /// By how much the target's clock is ahead of ours, at least, as far as its answers have told, in nanoseconds; `None` before that.
    pub clock_ahead_ns: Option<i64>,
    /// What the target said that it runs; empty before there was a session, or where it does not say.
    pub software: String,
    pub space: Option<Statfs>,
    /// A request that changes nothing.
    pub answer: ProbeStep,
    pub lock: ProbeStep,
    /// Rows of an MDT, data of an OST.
    pub read: ProbeStep,
}

impl TargetProbe {
    /// Nothing is known yet.
    pub fn new(target: TargetId) -> TargetProbe {
        let step = ProbeStep::NotTried;
        TargetProbe {
            target,
            is_used: true,
            state: "NEW",
            nids: Vec::new(),
            clock_ahead_ns: None,
            software: String::new(),
            space: None,
            answer: step,
            lock: step,
            read: step,
        }
    }
}

/// Result of a call that succeeded.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Done,
    Entry(EntryAnswer),
    Attr(AttrAnswer),
    Bytes(Bytes),
    Opened {
        fh: u64,
        mode: OpenMode,
    },
    Created {
        entry: EntryAnswer,
        fh: u64,
        mode: OpenMode,
    },
    Written(u64),
    Entries(Vec<DirEntryAnswer>),
    Statfs(Statfs),
    /// `None`: nothing is in the way.
    Lock(Option<FileLock>),
    Offset(u64),
    /// `layout` is empty for what has no data.
    Stripe {
        fid: Fid,
        layout: Option<Layout>,
    },
    /// What new files in a directory get.
    DefaultStripe {
        fid: Fid,
        layout: LayoutHint,
    },
    /// Those of a directory, itself alone when there are no others; and how new ones in it are striped.
    DirStripes {
        stripes: Vec<Fid>,
        default: Option<DirStriping>,
    },
    Paths(Vec<Vec<u8>>),
    /// `has_moved`: it was not there already.
    Migrated {
        has_moved: bool,
    },
    Fid(Fid),
    Targets(Vec<TargetSpace>),
    Pools(Vec<Pool>),
    Probes(Vec<TargetProbe>),
}

impl Answer {
    /// Nodes to which it gives the kernel a reference, one each.
    pub(crate) fn references(&self) -> Vec<u64> {
        match self {
            Answer::Entry(entry) | Answer::Created { entry, .. } => vec![entry.node],
            Answer::Entries(entries) => {
                entries.iter().filter_map(|entry| Some(entry.entry.as_ref()?.node)).collect()
            }
            _ => Vec::new(),
        }
    }
}
