//! Requests of the kernel as typed values.

use bytes::Bytes;

/// Seconds and nanoseconds since the epoch; seconds may be negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds since 1970, negative before.
    pub secs: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

impl Timestamp {
    /// A time from its parts.
    pub const fn new(secs: i64, nanos: u32) -> Self {
        Self { secs, nanos }
    }

    /// The time of the host's clock. For tests and file systems without a server's clock.
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
    }
}

/// One request. The reply goes out through the [`crate::Reply`] that comes with it.
#[derive(Debug, Clone)]
pub struct Request {
    /// Identifies the request until it is answered; [`crate::Handler::interrupt`] names it.
    pub unique: u64,
    /// The inode that the operation is about (for names: the directory). 0 where the operation has none.
    pub nodeid: u64,
    /// Effective user id of the caller, in the mount's user namespace.
    pub uid: u32,
    /// Effective group id of the caller.
    pub gid: u32,
    /// Thread id of the caller; 0 for requests of the kernel itself.
    pub pid: u32,
    /// With CREATE_SUPP_GROUP: the caller's supplementary group that owns the parent directory, if one does. Only the
    /// operations that make an inode carry it.
    pub supplementary_gids: Vec<u32>,
    /// Index of the transport thread that took the request, below [`crate::Session::thread_count`].
    pub thread_index: usize,
    /// What to do.
    pub op: Op,
}

/// A name: no NUL, no slash is promised by the kernel, bytes otherwise arbitrary.
pub type Name = Vec<u8>;

/// The operations. Flags are Linux's `O_*`, modes include the file type where an inode is made.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "fields without a comment are what the system call of that name takes")]
pub enum Op {
    /// Find `name`; the answer counts one lookup, which a later forget takes back. A name that is too long is
    /// ENAMETOOLONG, not ENOENT: programs expect it of every operation. With EXPORT_SUPPORT (NFS) the kernel also asks for
    /// `.` (is this node id still valid?) and `..`, on inodes of any type.
    Lookup {
        name: Name,
    },
    Getattr {
        fh: Option<u64>,
    },
    Setattr(Setattr),
    Readlink,
    Symlink {
        name: Name,
        target: Vec<u8>,
    },
    /// `rdev` in the encoding of [`crate::device_number`]. With DONT_MASK the handler applies `umask` (unless the parent
    /// has a default ACL).
    Mknod {
        name: Name,
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    Mkdir {
        name: Name,
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: Name,
    },
    Rmdir {
        name: Name,
    },
    /// `flags` are `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`.
    Rename {
        new_parent: u64,
        flags: u32,
        old_name: Name,
        new_name: Name,
    },
    /// Gives the inode `target` another name in `nodeid`.
    Link {
        target: u64,
        new_name: Name,
    },
    /// `kill_suidgid`: the open truncates and the caller may not keep set-id bits.
    Open {
        flags: u32,
        kill_suidgid: bool,
    },
    Read(Read),
    Write(Write),
    Statfs,
    /// The last reference to the handle is gone. `flock_release`: drop the flock of `lock_owner` too.
    Release {
        fh: u64,
        flags: u32,
        flock_release: bool,
        lock_owner: Option<u64>,
    },
    Fsync {
        fh: u64,
        datasync: bool,
    },
    /// `acl_kill_sgid`: the caller may not keep the set-gid bit with this ACL.
    Setxattr {
        name: Name,
        value: Vec<u8>,
        flags: u32,
        acl_kill_sgid: bool,
    },
    /// `size` 0 asks for the length only ([`crate::Reply::xattr_size`]).
    Getxattr {
        name: Name,
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: Name,
    },
    /// A descriptor was closed; POSIX locks of `lock_owner` end.
    Flush {
        fh: u64,
        lock_owner: u64,
    },
    Opendir {
        flags: u32,
    },
    Readdir {
        fh: u64,
        offset: u64,
        size: u32,
    },
    Readdirplus {
        fh: u64,
        offset: u64,
        size: u32,
    },
    Releasedir {
        fh: u64,
        flags: u32,
    },
    Fsyncdir {
        fh: u64,
        datasync: bool,
    },
    Getlk {
        fh: u64,
        owner: u64,
        lock: Lock,
        flock: bool,
    },
    /// Take, change or (type `F_UNLCK`) drop a lock. `sleep`: wait until it can be had; an interrupt answers EINTR.
    Setlk {
        fh: u64,
        owner: u64,
        lock: Lock,
        flock: bool,
        sleep: bool,
    },
    /// Only without `default_permissions`.
    Access {
        mask: u32,
    },
    /// Make and open a regular file.
    Create {
        name: Name,
        flags: u32,
        mode: u32,
        umask: u32,
        kill_suidgid: bool,
    },
    Ioctl(Ioctl),
    Fallocate {
        fh: u64,
        offset: u64,
        length: u64,
        mode: u32,
    },
    Lseek {
        fh: u64,
        offset: u64,
        whence: u32,
    },
    CopyFileRange(CopyFileRange),
    Syncfs,
    /// Make and open a file without a name below `nodeid`.
    Tmpfile {
        flags: u32,
        mode: u32,
        umask: u32,
    },
    Statx {
        fh: Option<u64>,
        flags: u32,
        mask: u32,
    },
    /// Anything else: answer ENOSYS, the kernel then does not ask again.
    Unknown {
        opcode: u32,
    },
}

/// What SETATTR changes; absent is unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setattr {
    /// The handle of an ftruncate.
    pub fh: Option<u64>,
    /// Permission bits (the file type may be present too).
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New length in bytes.
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
    /// New change time; only with WRITEBACK_CACHE.
    pub ctime: Option<Timestamp>,
    /// Lock owner of a truncate.
    pub lock_owner: Option<u64>,
    /// The size changes and the caller may not keep set-id bits. A change of owner takes them away without being asked.
    pub kill_suidgid: bool,
}

/// A time of utimensat(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// UTIME_NOW: the clock of the file system decides.
    Now,
    /// An explicit time.
    At(Timestamp),
}

/// READ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// From OPEN.
    pub fh: u64,
    /// In bytes.
    pub offset: u64,
    /// In bytes; fewer may be answered only at the end of the file (or with FOPEN_DIRECT_IO).
    pub size: u32,
    /// Open flags of the handle as they are now (`O_DIRECT`, `O_NONBLOCK`).
    pub flags: u32,
    /// Present where a process reads past the page cache, absent where pages are filled.
    pub lock_owner: Option<u64>,
}

/// WRITE.
#[derive(Debug, Clone)]
pub struct Write {
    /// From OPEN; a guess when `from_cache`.
    pub fh: u64,
    /// In bytes; with `O_APPEND` in `flags` it is the kernel's idea of the end, which may be old.
    pub offset: u64,
    /// What to write.
    pub data: Bytes,
    /// Open flags of the handle as they are now.
    pub flags: u32,
    /// Owner of the locks.
    pub lock_owner: Option<u64>,
    /// Writeback of a shared mapping: the writer's identity and handle are guesses.
    pub from_cache: bool,
    /// The caller may not keep set-id bits (HANDLE_KILLPRIV_V2).
    pub kill_suidgid: bool,
}

/// IOCTL, restricted: the kernel copied the argument by the size in `cmd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ioctl {
    /// From OPEN or OPENDIR.
    pub fh: u64,
    /// The request number.
    pub cmd: u32,
    /// The third argument as a number.
    pub arg: u64,
    /// On a directory.
    pub is_dir: bool,
    /// From a 32-bit process.
    pub compat: bool,
    /// What the caller passed in.
    pub data: Vec<u8>,
    /// Bytes that may be answered.
    pub out_size: u32,
}

/// COPY_FILE_RANGE in both widths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "as copy_file_range(2)")]
pub struct CopyFileRange {
    pub fh_in: u64,
    pub offset_in: u64,
    pub nodeid_out: u64,
    pub fh_out: u64,
    pub offset_out: u64,
    pub len: u64,
    pub flags: u64,
}

/// A byte range of fcntl locks, `end` inclusive; a flock covers 0 to `u64::MAX` or `i64::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// First byte.
    pub start: u64,
    /// Last byte, `i64::MAX` for "to the end of the file".
    pub end: u64,
    /// Read, write or none.
    pub kind: LockKind,
    /// The process to report by GETLK, in the mount's pid namespace.
    pub pid: u32,
}

/// `l_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// `F_RDLCK`.
    Read,
    /// `F_WRLCK`.
    Write,
    /// `F_UNLCK`.
    Unlock,
}
