//! The numbers and structures of the kernel's FUSE protocol, version 7.31 to 7.45.
//!
//! Everything here is native-endian, because both ends are on one machine. Sizes are asserted at compile time: the
//! kernel refuses a reply whose size is off by one byte. Names follow the kernel's, shortened by `fuse_`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The major protocol version; it has been 7 since 2005.
pub const KERNEL_VERSION: u32 = 7;
/// The newest minor version that this crate knows.
pub const KERNEL_MINOR_VERSION: u32 = 45;
/// The oldest minor version that is accepted (Linux 5.2); Debian 12's Linux 6.1 speaks 38.
pub const KERNEL_MINOR_VERSION_MIN: u32 = 31;
/// The node id of the root directory.
pub const ROOT_ID: u64 = 1;

/// Operation numbers of `in_header.opcode`.
pub mod opcode {
    #![allow(missing_docs, reason = "the names are the kernel's operations")]
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const POLL: u32 = 40;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Capability bits of INIT; bits 32 and up travel in `flags2`.
pub mod init {
    #![allow(missing_docs, reason = "the names are the kernel's capabilities")]
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const ABORT_ERROR: u64 = 1 << 21;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const CREATE_SUPP_GROUP: u64 = 1 << 34;
    pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Flag of INVAL_ENTRY: the name stays where it is in use, and is looked up before it is believed again.
pub const EXPIRE_ONLY: u32 = 1 << 0;

/// Bits that an answer to OPEN, OPENDIR or CREATE may carry.
pub mod fopen {
    /// Bypass the page cache for this handle.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Keep the pages that the kernel already holds.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// The file is not seekable.
    pub const NONSEEKABLE: u32 = 1 << 2;
    /// The kernel may cache the listing of this directory.
    pub const CACHE_DIR: u32 = 1 << 3;
    /// Like a pipe: no file position.
    pub const STREAM: u32 = 1 << 4;
    /// Send no FLUSH at close. Over io_uring the handler then has to keep programs from closing a file while asynchronous direct
    /// I/O on it is out: see `uring::closing`.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Several direct writes of one file at a time.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

pub(crate) mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

pub(crate) const GETATTR_FH: u32 = 1 << 0;
pub(crate) const LK_FLOCK: u32 = 1 << 0;
pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
pub(crate) const WRITE_LOCKOWNER: u32 = 1 << 1;
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
pub(crate) const IOCTL_DIR: u32 = 1 << 4;
pub(crate) const IOCTL_COMPAT: u32 = 1 << 0;
pub(crate) const EXT_GROUPS: u32 = 32;

/// Notification codes, sent in `out_header.error` with `unique` 0.
pub(crate) mod notify {
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const STORE: i32 = 4;
    pub const DELETE: i32 = 6;
    pub const INC_EPOCH: i32 = 8;
    pub const PRUNE: i32 = 9;
}

/// `FUSE_DEV_IOC_CLONE`: makes a second descriptor of `/dev/fuse` serve the same connection.
pub(crate) const DEV_IOC_CLONE: u64 = 0x8004_e500;

macro_rules! abi {
    ($(#[$doc:meta])* $name:ident, $size:expr, { $($field:ident : $ty:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        #[allow(missing_docs, reason = "the fields are the kernel's")]
        pub struct $name { $(pub $field: $ty),* }
        const _: () = assert!(size_of::<$name>() == $size);
    };
}

abi!(/// Starts every request.
InHeader, 40, { len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16 });
abi!(/// Starts every reply and notification.
OutHeader, 16, { len: u32, error: i32, unique: u64 });
abi!(/// Attributes of an inode.
Attr, 88, { ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32,
    ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32 });
abi!(/// Answer to LOOKUP and the makers of inodes.
EntryOut, 128, { nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr });
abi!(/// Answer to GETATTR and SETATTR.
AttrOut, 104, { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr });
abi!(/// FORGET.
ForgetIn, 8, { nlookup: u64 });
abi!(/// One element of BATCH_FORGET.
ForgetOne, 16, { nodeid: u64, nlookup: u64 });
abi!(/// Head of BATCH_FORGET.
BatchForgetIn, 8, { count: u32, dummy: u32 });
abi!(/// GETATTR.
GetattrIn, 16, { getattr_flags: u32, dummy: u32, fh: u64 });
abi!(/// SETATTR.
SetattrIn, 88, { valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32,
    mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32 });
abi!(/// MKNOD.
MknodIn, 16, { mode: u32, rdev: u32, umask: u32, padding: u32 });
abi!(/// MKDIR.
MkdirIn, 8, { mode: u32, umask: u32 });
abi!(/// RENAME.
RenameIn, 8, { newdir: u64 });
abi!(/// RENAME2.
Rename2In, 16, { newdir: u64, flags: u32, padding: u32 });
abi!(/// LINK.
LinkIn, 8, { oldnodeid: u64 });
abi!(/// OPEN and OPENDIR.
OpenIn, 8, { flags: u32, open_flags: u32 });
abi!(/// CREATE and TMPFILE.
CreateIn, 16, { flags: u32, mode: u32, umask: u32, open_flags: u32 });
abi!(/// Answer to OPEN.
OpenOut, 16, { fh: u64, open_flags: u32, backing_id: i32 });
abi!(/// RELEASE and RELEASEDIR.
ReleaseIn, 24, { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 });
abi!(/// FLUSH.
FlushIn, 24, { fh: u64, unused: u32, padding: u32, lock_owner: u64 });
abi!(/// READ, READDIR and READDIRPLUS.
ReadIn, 40, { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 });
abi!(/// WRITE.
WriteIn, 40, { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 });
abi!(/// Answer to WRITE and COPY_FILE_RANGE.
WriteOut, 8, { size: u32, padding: u32 });
abi!(/// Answer to STATFS.
StatfsOut, 80, { blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6] });
abi!(/// FSYNC and FSYNCDIR.
FsyncIn, 16, { fh: u64, fsync_flags: u32, padding: u32 });
abi!(/// SETXATTR without SETXATTR_EXT.
SetxattrInCompat, 8, { size: u32, flags: u32 });
abi!(/// SETXATTR with SETXATTR_EXT.
SetxattrIn, 16, { size: u32, flags: u32, setxattr_flags: u32, padding: u32 });
abi!(/// GETXATTR and LISTXATTR.
GetxattrIn, 8, { size: u32, padding: u32 });
abi!(/// Answer to GETXATTR and LISTXATTR that ask for the size.
GetxattrOut, 8, { size: u32, padding: u32 });
abi!(/// A byte-range lock; `end` is inclusive.
FileLock, 24, { start: u64, end: u64, kind: u32, pid: u32 });
abi!(/// GETLK, SETLK and SETLKW.
LkIn, 48, { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 });
abi!(/// ACCESS.
AccessIn, 8, { mask: u32, padding: u32 });
abi!(/// INIT from the kernel; old kernels send a prefix.
InitIn, 64, { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11] });
abi!(/// Our answer to INIT.
InitOut, 64, { major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16, max_write: u32,
    time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16, unused: [u16; 11] });
abi!(/// INTERRUPT.
InterruptIn, 8, { unique: u64 });
abi!(/// IOCTL.
IoctlIn, 32, { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 });
abi!(/// Answer to IOCTL.
IoctlOut, 16, { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 });
abi!(/// FALLOCATE.
FallocateIn, 32, { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 });
abi!(/// LSEEK.
LseekIn, 24, { fh: u64, offset: u64, whence: u32, padding: u32 });
abi!(/// Answer to LSEEK.
LseekOut, 8, { offset: u64 });
abi!(/// COPY_FILE_RANGE and COPY_FILE_RANGE_64.
CopyFileRangeIn, 56, { fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64 });
abi!(/// Answer to COPY_FILE_RANGE_64.
CopyFileRangeOut, 8, { bytes_copied: u64 });
abi!(/// STATX.
StatxIn, 24, { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 });
abi!(/// A time of statx.
SxTime, 16, { tv_sec: i64, tv_nsec: u32, reserved: i32 });
abi!(/// The attributes of statx.
Statx, 256, { mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16, ino: u64, size: u64, blocks: u64,
    attributes_mask: u64, atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32,
    dev_minor: u32, spare2: [u64; 14] });
abi!(/// Answer to STATX.
StatxOut, 288, { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx });
abi!(/// Head of a directory entry; the name follows, padded to 8 bytes.
Dirent, 24, { ino: u64, off: u64, namelen: u32, kind: u32 });
abi!(/// Head of one request extension; `size` counts this header and a multiple of 8 bytes.
ExtHeader, 8, { size: u32, kind: u32 });
abi!(/// Notification: forget pages, attributes, or both.
NotifyInvalInodeOut, 24, { ino: u64, off: i64, len: i64 });
abi!(/// Notification: forget a name.
NotifyInvalEntryOut, 16, { parent: u64, namelen: u32, flags: u32 });
abi!(/// Notification: a name was removed.
NotifyDeleteOut, 24, { parent: u64, child: u64, namelen: u32, padding: u32 });
abi!(/// Notification: these are file bytes.
NotifyStoreOut, 24, { nodeid: u64, offset: u64, size: u32, padding: u32 });
abi!(/// Notification: drop unused inodes; `count` node ids follow.
NotifyPruneOut, 16, { count: u32, padding: u32, spare: u64 });
abi!(/// The per-entry part of a ring's header buffer.
UringEntInOut, 32, { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 });

/// Bytes of a ring entry's header buffer: `in_out[128]`, `op_in[128]`, [`UringEntInOut`].
pub(crate) const URING_HEADER_SIZE: usize = 288;
pub(crate) const URING_IN_OUT_SIZE: usize = 128;
pub(crate) const URING_OP_IN_SIZE: usize = 128;
pub(crate) const URING_ENT_OFFSET: usize = 256;
pub(crate) const URING_CMD_REGISTER: u32 = 1;
pub(crate) const URING_CMD_COMMIT_AND_FETCH: u32 = 2;
