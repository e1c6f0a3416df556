//! Answers to the kernel.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use zerocopy::IntoBytes;

use crate::abi::{self, opcode};
use crate::device::Channel;
use crate::request::{Lock, LockKind, Timestamp};
use crate::uring::Ticket;

#[cfg(test)]
mod tests;

/// Attributes of an inode as the kernel wants them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attr {
    /// Inode number that `stat` shows.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Space in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last modification of the data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Birth, shown only by statx(2).
    pub crtime: Option<Timestamp>,
    /// File type and permission bits.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number in the encoding of [`device_number`].
    pub rdev: u32,
    /// Preferred size of I/O in bytes.
    pub blksize: u32,
}

/// The kernel's 32-bit encoding of a device number.
pub const fn device_number(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Major and minor of [`device_number`].
pub const fn device_major_minor(rdev: u32) -> (u32, u32) {
    ((rdev & 0xfff00) >> 8, (rdev & 0xff) | ((rdev >> 12) & 0xfff00))
}

impl Attr {
    pub(crate) fn to_abi(self) -> abi::Attr {
        abi::Attr {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.secs as u64,
            mtime: self.mtime.secs as u64,
            ctime: self.ctime.secs as u64,
            atimensec: self.atime.nanos,
            mtimensec: self.mtime.nanos,
            ctimensec: self.ctime.nanos,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: self.blksize,
            flags: 0,
        }
    }

    fn to_statx(self) -> abi::Statx {
        const STATX_BASIC_STATS: u32 = 0x7ff;
        const STATX_BTIME: u32 = 0x800;
        let time = |t: Timestamp| abi::SxTime { tv_sec: t.secs, tv_nsec: t.nanos, reserved: 0 };
        let (rdev_major, rdev_minor) = device_major_minor(self.rdev);
        abi::Statx {
            mask: STATX_BASIC_STATS | if self.crtime.is_some() { STATX_BTIME } else { 0 },
            blksize: self.blksize,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            mode: self.mode as u16,
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: time(self.atime),
            btime: time(self.crtime.unwrap_or_default()),
            ctime: time(self.ctime),
            mtime: time(self.mtime),
            rdev_major,
            rdev_minor,
            ..Default::default()
        }
    }
}

/// An inode that a name leads to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EntryOut {
    /// 0 means "there is no such name", which the kernel remembers for `entry_ttl`. Otherwise each answer counts one
    /// lookup of the node.
    pub nodeid: u64,
    /// Distinguishes reuses of a node id, for NFS export.
    pub generation: u64,
    /// How long the kernel may use the name without asking. Rounded up to a timer tick (4 ms at HZ=250) unless zero.
    pub entry_ttl: Duration,
    /// How long the kernel may use the attributes without asking.
    pub attr_ttl: Duration,
    /// The attributes.
    pub attr: Attr,
}

impl EntryOut {
    /// The answer "no such name", remembered for `ttl`.
    pub fn negative(ttl: Duration) -> Self {
        Self { entry_ttl: ttl, ..Default::default() }
    }

    pub(crate) fn to_abi(self) -> abi::EntryOut {
        abi::EntryOut {
            nodeid: self.nodeid,
            generation: self.generation,
            entry_valid: self.entry_ttl.as_secs(),
            attr_valid: self.attr_ttl.as_secs(),
            entry_valid_nsec: self.entry_ttl.subsec_nanos(),
            attr_valid_nsec: self.attr_ttl.subsec_nanos(),
            attr: self.attr.to_abi(),
        }
    }
}

/// Answer to STATFS; blocks are of `frsize` bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of statvfs(3)")]
pub struct Statfs {
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub bsize: u32,
    pub namelen: u32,
    pub frsize: u32,
}

/// A page of a directory, filled up to the size that the kernel asked for.
#[derive(Debug)]
pub struct DirBuffer {
    bytes: Vec<u8>,
    size: usize,
}

impl DirBuffer {
    /// An empty page of at most `size` bytes.
    pub fn new(size: u32) -> Self {
        // The size is theirs: reserve for a usual page, grow for a greater one.
        Self { bytes: Vec::with_capacity((size as usize).min(64 << 10)), size: size as usize }
    }

    /// Adds a name. `next_offset` is where a later READDIR continues after this entry (never 0); `mode` gives the type.
    /// False, and nothing is added, when the page is full.
    pub fn add(&mut self, ino: u64, next_offset: u64, mode: u32, name: &[u8]) -> bool {
        self.push(None, ino, next_offset, mode, name)
    }

    /// Adds a name with its inode, for READDIRPLUS. A `nodeid` of 0 gives the name only; any other counts one lookup,
    /// except for `.` and `..`, whose node ids must be 0.
    pub fn add_plus(&mut self, entry: &EntryOut, next_offset: u64, name: &[u8]) -> bool {
        self.push(Some(entry), entry.attr.ino, next_offset, entry.attr.mode, name)
    }

    fn push(&mut self, entry: Option<&EntryOut>, ino: u64, off: u64, mode: u32, name: &[u8]) -> bool {
        let head = if entry.is_some() { size_of::<abi::EntryOut>() } else { 0 };
        let len = (head + size_of::<abi::Dirent>() + name.len()).next_multiple_of(8);
        if self.bytes.len() + len > self.size {
            return false;
        }
        let end = self.bytes.len() + len;
        if let Some(entry) = entry {
            self.bytes.extend_from_slice(entry.to_abi().as_bytes());
        }
        let kind = (mode & libc::S_IFMT) >> 12;
        let dirent = abi::Dirent { ino, off, namelen: name.len() as u32, kind };
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }

    /// True while nothing was added; an empty answer ends the listing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes filled so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Where an answer goes.
#[derive(Debug)]
pub(crate) enum Destination {
    Device(Arc<Channel>),
    Ring(Ticket),
    #[cfg(test)]
    Capture(std::sync::mpsc::Sender<(i32, Vec<u8>)>),
}

/// The right to answer one request, once, from any thread. Dropped unanswered it answers EIO, so that no caller hangs.
#[derive(Debug)]
pub struct Reply {
    unique: u64,
    opcode: u32,
    destination: Option<Destination>,
}

impl Reply {
    pub(crate) fn new(unique: u64, opcode: u32, destination: Destination) -> Self {
        Self { unique, opcode, destination: Some(destination) }
    }

    /// The number of the request.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    fn send(&mut self, error: i32, parts: &[&[u8]]) {
        match self.destination.take() {
            None => {}
            Some(Destination::Device(channel)) => channel.answer(self.unique, error, parts),
            Some(Destination::Ring(ticket)) => ticket.answer(self.unique, error, parts),
            #[cfg(test)]
            Some(Destination::Capture(sender)) => {
                let _ = sender.send((error, parts.concat()));
            }
        }
    }

    /// Fails with a positive errno.
    pub fn error(mut self, errno: i32) {
        // The kernel takes -1 to -511 only; anything else would leave the caller with a broken connection.
        let errno = if (1..512).contains(&errno) { errno } else { libc::EIO };
        self.send(-errno, &[]);
    }

    /// Success without content: UNLINK, RMDIR, RENAME, RELEASE, FSYNC, SETXATTR, SETLK and the like.
    pub fn ok(mut self) {
        self.send(0, &[]);
    }

    /// Answers LOOKUP, MKNOD, MKDIR, SYMLINK, LINK.
    pub fn entry(mut self, entry: &EntryOut) {
        self.send(0, &[entry.to_abi().as_bytes()]);
    }

    /// Answers GETATTR and SETATTR; the kernel may use them for `ttl`.
    pub fn attr(mut self, attr: &Attr, ttl: Duration) {
        let out = abi::AttrOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            dummy: 0,
            attr: attr.to_abi(),
        };
        self.send(0, &[out.as_bytes()]);
    }

    /// Answers STATX; the birth time is marked valid when `attr.crtime` is there.
    pub fn statx(mut self, attr: &Attr, ttl: Duration) {
        let out = abi::StatxOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            stat: attr.to_statx(),
            ..Default::default()
        };
        self.send(0, &[out.as_bytes()]);
    }

    /// Answers READ, READLINK, GETXATTR and LISTXATTR with bytes, at most as many as were asked for.
    pub fn data(mut self, data: &[u8]) {
        self.send(0, &[data]);
    }

    /// Like [`Reply::data`], from several pieces without joining them first.
    pub fn data_parts(mut self, parts: &[Bytes]) {
        let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        self.send(0, &parts);
    }

    /// Answers OPEN and OPENDIR; flags are [`crate::abi::fopen`].
    pub fn opened(mut self, fh: u64, open_flags: u32) {
        self.send(0, &[abi::OpenOut { fh, open_flags, backing_id: 0 }.as_bytes()]);
    }

    /// Answers CREATE and TMPFILE.
    pub fn created(mut self, entry: &EntryOut, fh: u64, open_flags: u32) {
        let open = abi::OpenOut { fh, open_flags, backing_id: 0 };
        self.send(0, &[entry.to_abi().as_bytes(), open.as_bytes()]);
    }

    /// Answers WRITE: bytes taken.
    pub fn written(mut self, size: u32) {
        self.send(0, &[abi::WriteOut { size, padding: 0 }.as_bytes()]);
    }

    /// Answers COPY_FILE_RANGE in the width that was asked: bytes copied.
    pub fn copied(mut self, bytes_copied: u64) {
        if self.opcode == opcode::COPY_FILE_RANGE_64 {
            self.send(0, &[abi::CopyFileRangeOut { bytes_copied }.as_bytes()]);
        } else {
            // The old form counts in 32 bits; a short copy is allowed.
            let size = bytes_copied.min(u64::from(u32::MAX) & !0xfff) as u32;
            self.send(0, &[abi::WriteOut { size, padding: 0 }.as_bytes()]);
        }
    }

    /// Answers STATFS.
    pub fn statfs(mut self, statfs: &Statfs) {
        let out = abi::StatfsOut {
            blocks: statfs.blocks,
            bfree: statfs.bfree,
            bavail: statfs.bavail,
            files: statfs.files,
            ffree: statfs.ffree,
            bsize: statfs.bsize,
            namelen: statfs.namelen,
            frsize: statfs.frsize,
            ..Default::default()
        };
        self.send(0, &[out.as_bytes()]);
    }

    /// Answers GETXATTR and LISTXATTR of size 0: the length in bytes.
    pub fn xattr_size(mut self, size: u32) {
        self.send(0, &[abi::GetxattrOut { size, padding: 0 }.as_bytes()]);
    }

    /// Answers GETXATTR and LISTXATTR by the rule of getxattr(2): `size_asked` 0 gets the length, too small a buffer
    /// gets ERANGE.
    pub fn xattr(self, size_asked: u32, value: &[u8]) {
        if size_asked == 0 {
            self.xattr_size(value.len() as u32);
        } else if value.len() > size_asked as usize {
            self.error(libc::ERANGE);
        } else {
            self.data(value);
        }
    }

    /// Answers GETLK: the conflicting lock, or one of kind [`LockKind::Unlock`].
    pub fn lock(mut self, lock: &Lock) {
        let kind = match lock.kind {
            LockKind::Read => libc::F_RDLCK,
            LockKind::Write => libc::F_WRLCK,
            LockKind::Unlock => libc::F_UNLCK,
        };
        let out = abi::FileLock { start: lock.start, end: lock.end, kind: kind as u32, pid: lock.pid };
        self.send(0, &[out.as_bytes()]);
    }

    /// Answers LSEEK: the new offset in bytes.
    pub fn lseek(mut self, offset: u64) {
        self.send(0, &[abi::LseekOut { offset }.as_bytes()]);
    }

    /// Answers IOCTL: what ioctl(2) returns and the bytes for the caller's buffer.
    pub fn ioctl(mut self, result: i32, data: &[u8]) {
        let out = abi::IoctlOut { result, ..Default::default() };
        self.send(0, &[out.as_bytes(), data]);
    }

    /// Answers READDIR and READDIRPLUS.
    pub fn readdir(mut self, page: DirBuffer) {
        self.send(0, &[&page.bytes]);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.destination.is_some() {
            self.send(-libc::EIO, &[]);
        }
    }
}
