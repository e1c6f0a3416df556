//! FUSE requests as calls of the client, and its answers as replies.

use base::{Attr, SetTime, WallTime};
use client::{Answer, AttrAnswer, Call, EntryAnswer, OpenMode, SetattrCall};
use fuse::abi::fopen;
use fuse::{DirBuffer, EntryOut, Lock, LockKind, Op, Reply, Timestamp};
use wire::mdt::{FileLock, FlockKind};

/// Preferred size of I/O that stat(2) shows.
const BLOCK_BYTES: u32 = 4096;
/// What `statfs` counts in.
pub const STATFS_BLOCK_BYTES: u32 = 4096;

/// What the reply to a request looks like, when that does not follow from the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    Plain,
    Statx,
    Created {
        /// Errno where the name leads to something that cannot be opened in this way.
        met: i32,
    },
    Xattr {
        size: u32,
        /// Errno where there is none.
        absent: i32,
    },
    /// Names of xattrs.
    Names {
        size: u32,
        /// `user.*` is not shown.
        hides_user: bool,
    },
    Readdir {
        size: u32,
        is_plus: bool,
    },
    Copied,
    /// Answered in the bytes of the ioctl's buffer.
    Ioctl(crate::ioctl::Want),
}

/// The call that a request makes; `Err` is an errno.
pub fn call(node: u64, pid: u32, op: Op) -> Result<(Call, Shape), i32> {
    let mut shape = Shape::Plain;
    let call = match op {
        Op::Lookup { name } => Call::Lookup { parent: node, name },
        Op::Getattr { fh } => Call::Getattr { node, fh },
        Op::Setattr(set) => Call::Setattr { node, set: setattr(&set) },
        Op::Readlink => Call::Readlink { node },
        Op::Symlink { name, target } => Call::Symlink { parent: node, name, target },
        Op::Mknod { name, mode, rdev, umask } => Call::Mknod { parent: node, name, mode, umask, rdev },
        Op::Mkdir { name, mode, umask } => Call::Mkdir { parent: node, name, mode, umask },
        Op::Unlink { name } => Call::Unlink { parent: node, name },
        Op::Rmdir { name } => Call::Rmdir { parent: node, name },
        Op::Rename { new_parent, flags, old_name, new_name } => {
            Call::Rename { parent: node, name: old_name, new_parent, new_name, flags }
        }
        Op::Link { target, new_name } => Call::Link { node: target, parent: node, name: new_name },
        Op::Open { flags, .. } => Call::Open { node, flags },
        Op::Create { name, flags, mode, umask, .. } => {
            // The kernel believes that there is nothing. After ESTALE it looks the name up once more: it follows symlinks, opens
            // FIFOs, sockets and devices by itself, and judges who may open whose file in a sticky directory.
            let is_exclusive = flags & libc::O_EXCL as u32 != 0;
            shape = Shape::Created { met: if is_exclusive { libc::EEXIST } else { libc::ESTALE } };
            Call::Create { parent: node, name, mode, umask, flags }
        }
        Op::Tmpfile { flags, mode, umask } => Call::Tmpfile { parent: node, mode, umask, flags },
        Op::Read(read) => Call::Read {
            node,
            fh: read.fh,
            offset_bytes: read.offset,
            byte_count: read.size,
            // The kernel says for whom a process reads past the page cache, synchronously or not, and says nobody where it fills pages
            // (`fuse_direct_io`; `fuse_do_readfolio`, `fuse_send_readpages`). The handle does not tell: a private mapping of one
            // with FOPEN_DIRECT_IO is one of the page cache.
            is_direct: read.lock_owner.is_some(),
        },
        Op::Write(write) => Call::Write {
            node,
            fh: write.fh,
            offset_bytes: write.offset,
            data: write.data,
            flags: write.flags,
            is_writeback: write.from_cache,
            kill_privileges: write.kill_suidgid,
        },
        Op::Flush { fh, lock_owner } => Call::Flush { node, fh, lock_owner },
        Op::Release { fh, flock_release, lock_owner, .. } => {
            Call::Release { node, fh, flock_owner: lock_owner.filter(|_| flock_release) }
        }
        Op::Fsync { fh, datasync } => Call::Fsync { node, fh, data_only: datasync },
        Op::Opendir { flags } => Call::Opendir { node, flags },
        Op::Readdir { fh, offset, size } => {
            shape = Shape::Readdir { size, is_plus: false };
            Call::Readdir { node, fh, offset, byte_count: size, is_plus: false }
        }
        Op::Readdirplus { fh, offset, size } => {
            shape = Shape::Readdir { size, is_plus: true };
            Call::Readdir { node, fh, offset, byte_count: size, is_plus: true }
        }
        Op::Releasedir { fh, .. } => Call::Releasedir { node, fh },
        Op::Fsyncdir { fh, datasync } => Call::Fsyncdir { node, fh, data_only: datasync },
        Op::Statfs => Call::Statfs { node },
        Op::Setxattr { name, value, flags, .. } => Call::Setxattr { node, name, value, flags },
        Op::Getxattr { name, size } => {
            shape = Shape::Xattr { size, absent: libc::ENODATA };
            Call::Getxattr { node, name }
        }
        Op::Listxattr { size } => {
            shape = Shape::Names { size, hides_user: false };
            Call::Listxattr { node }
        }
        Op::Removexattr { name } => Call::Removexattr { node, name },
        Op::Getlk { fh, owner, lock, flock } => {
            Call::Getlk { node, fh, lock: file_lock(owner, pid, flock, &lock) }
        }
        Op::Setlk { fh, owner, lock, flock, sleep } => {
            Call::Setlk { node, fh, lock: file_lock(owner, pid, flock, &lock), can_wait: sleep }
        }
        Op::Fallocate { fh, offset, length, mode } => {
            Call::Fallocate { node, fh, offset_bytes: offset, byte_count: length, mode }
        }
        Op::Lseek { fh, offset, whence } => Call::Lseek { node, fh, offset_bytes: offset, whence },
        Op::CopyFileRange(copy) => {
            shape = Shape::Copied;
            Call::CopyFileRange {
                node,
                fh: copy.fh_in,
                offset_bytes: copy.offset_in,
                to_node: copy.nodeid_out,
                to_fh: copy.fh_out,
                to_offset_bytes: copy.offset_out,
                byte_count: copy.len,
            }
        }
        Op::Statx { fh, .. } => {
            shape = Shape::Statx;
            Call::Statx { node, fh }
        }
        Op::Access { mask } => Call::Access { node, mask },
        Op::Syncfs => Call::SyncAll,
        Op::Ioctl(ioctl) => {
            let (call, want) = crate::ioctl::decode(node, &ioctl)?;
            shape = Shape::Ioctl(want);
            call
        }
        Op::Unknown { .. } => return Err(libc::ENOSYS),
    };
    Ok((call, shape))
}

fn errno_of(shape: &Shape, errno: i32) -> i32 {
    match shape {
        Shape::Xattr { absent, .. } if errno == libc::ENODATA => *absent,
        Shape::Created { met } if errno == libc::EEXIST => *met,
        _ => errno,
    }
}

/// Sends the answer of the client to the kernel.
pub fn reply(reply: Reply, shape: Shape, result: Result<Answer, i32>) {
    let answer = match result {
        Ok(answer) => answer,
        Err(errno) => return reply.error(errno_of(&shape, errno)),
    };
    match (shape, answer) {
        (Shape::Ioctl(want), answer) => {
            let bytes = crate::ioctl::encode(&want, answer);
            reply.ioctl(0, &bytes);
        }
        (Shape::Statx, Answer::Attr(AttrAnswer { attr, attr_valid, is_remembered: _ })) => {
            reply.statx(&fuse_attr(&attr), attr_valid)
        }
        (Shape::Xattr { size, .. }, Answer::Bytes(bytes)) => reply.xattr(size, &bytes),
        (Shape::Names { size, hides_user }, Answer::Bytes(names)) => {
            let is_shown = |name: &&[u8]| !hides_user || !name.starts_with(b"user.");
            let shown: Vec<&[u8]> = names.split_inclusive(|byte| *byte == 0).filter(is_shown).collect();
            reply.xattr(size, &shown.concat());
        }
        (Shape::Copied, Answer::Written(byte_count)) => reply.copied(byte_count),
        (Shape::Readdir { size, is_plus }, Answer::Entries(entries)) => {
            let mut page = DirBuffer::new(size);
            for entry in &entries {
                let mode = entry.file_type.mode_bits();
                let is_added = if is_plus {
                    let out = match &entry.entry {
                        Some(known) => entry_out(known),
                        None => nameless(entry.node, mode),
                    };
                    page.add_plus(&out, entry.offset, &entry.name)
                } else {
                    page.add(entry.node, entry.offset, mode, &entry.name)
                };
                if !is_added {
                    // The client counts as the kernel packs. It counted a lookup for what does not fit, too.
                    tracing::warn!("a directory page was longer than the kernel's buffer");
                    break;
                }
            }
            reply.readdir(page);
        }
        (_, Answer::Done) => reply.ok(),
        (_, Answer::Entry(entry)) => reply.entry(&entry_out(&entry)),
        (_, Answer::Attr(AttrAnswer { attr, attr_valid, is_remembered: _ })) => {
            reply.attr(&fuse_attr(&attr), attr_valid)
        }
        (_, Answer::Bytes(bytes)) => reply.data(&bytes),
        (_, Answer::Opened { fh, mode }) => reply.opened(fh, open_flags(mode)),
        (_, Answer::Created { entry, fh, mode }) => reply.created(&entry_out(&entry), fh, open_flags(mode)),
        (_, Answer::Written(byte_count)) => reply.written(u32::try_from(byte_count).unwrap_or(u32::MAX)),
        (_, Answer::Statfs(statfs)) => reply.statfs(&fuse_statfs(&statfs)),
        (_, Answer::Lock(lock)) => reply.lock(&fuse_lock(lock)),
        (_, Answer::Offset(offset)) => reply.lseek(offset),
        (shape, answer) => {
            tracing::error!(?shape, ?answer, "the client answered something else than was asked");
            reply.error(libc::EIO);
        }
    }
}

fn setattr(set: &fuse::Setattr) -> SetattrCall {
    SetattrCall {
        fh: set.fh,
        mode: set.mode,
        uid: set.uid,
        gid: set.gid,
        size_bytes: set.size,
        atime: set.atime.map(set_time),
        mtime: set.mtime.map(set_time),
        kill_privileges: set.kill_suidgid,
    }
}

fn set_time(time: fuse::SetTime) -> SetTime {
    match time {
        fuse::SetTime::Now => SetTime::Now,
        fuse::SetTime::At(at) => SetTime::To(WallTime::from_parts(at.secs, at.nanos)),
    }
}

/// The kernel's lock ends with its last byte; ours is end-exclusive.
fn file_lock(owner: u64, pid: u32, is_flock: bool, lock: &Lock) -> FileLock {
    let end = if lock.end >= i64::MAX as u64 { base::Extent::EOF } else { lock.end + 1 };
    let kind = match lock.kind {
        LockKind::Read => FlockKind::Read,
        LockKind::Write => FlockKind::Write,
        LockKind::Unlock => FlockKind::Unlock,
    };
    let pid = if lock.pid == 0 { pid } else { lock.pid };
    FileLock { owner, pid, is_flock, kind, extent: base::Extent::new(lock.start, end) }
}

fn fuse_lock(lock: Option<FileLock>) -> Lock {
    let Some(lock) = lock else {
        return Lock { start: 0, end: 0, kind: LockKind::Unlock, pid: 0 };
    };
    let end = if lock.extent.end == base::Extent::EOF { i64::MAX as u64 } else { lock.extent.end - 1 };
    let kind = match lock.kind {
        FlockKind::Read => LockKind::Read,
        FlockKind::Write => LockKind::Write,
        FlockKind::Unlock => LockKind::Unlock,
    };
    Lock { start: lock.extent.start, end, kind, pid: lock.pid }
}

fn open_flags(mode: OpenMode) -> u32 {
    let flag = |is_set, bit| if is_set { bit } else { 0 };
    flag(mode.is_direct, fopen::DIRECT_IO)
        | flag(mode.is_parallel, fopen::PARALLEL_DIRECT_WRITES)
        | flag(mode.keeps_cache, fopen::KEEP_CACHE)
}

fn entry_out(entry: &EntryAnswer) -> EntryOut {
    EntryOut {
        nodeid: entry.node,
        generation: 0,
        entry_ttl: entry.entry_valid,
        attr_ttl: entry.attr_valid,
        attr: entry.attr.as_ref().map(fuse_attr).unwrap_or_default(),
    }
}

/// A directory entry of READDIRPLUS that counts no lookup.
fn nameless(inode_number: u64, mode: u32) -> EntryOut {
    let attr = fuse::Attr { ino: inode_number, mode, ..fuse::Attr::default() };
    EntryOut { attr, ..EntryOut::default() }
}

fn timestamp(time: WallTime) -> Timestamp {
    Timestamp { secs: time.seconds(), nanos: time.nanoseconds() }
}

pub fn fuse_attr(attr: &Attr) -> fuse::Attr {
    fuse::Attr {
        ino: attr.fid.inode_number(),
        size: attr.size_bytes,
        blocks: attr.block_count,
        atime: timestamp(attr.atime),
        mtime: timestamp(attr.mtime),
        ctime: timestamp(attr.ctime),
        crtime: Some(timestamp(attr.btime)),
        mode: attr.file_type.mode_bits() | attr.permissions,
        nlink: attr.link_count,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_BYTES,
    }
}

fn fuse_statfs(statfs: &wire::mdt::Statfs) -> fuse::Statfs {
    let blocks = |byte_count: u64| byte_count / u64::from(STATFS_BLOCK_BYTES);
    fuse::Statfs {
        blocks: blocks(statfs.bytes_total),
        bfree: blocks(statfs.bytes_free),
        bavail: blocks(statfs.bytes_available),
        files: statfs.inodes_total,
        ffree: statfs.inodes_free,
        // Programs multiply the counts by this one, too.
        bsize: STATFS_BLOCK_BYTES,
        namelen: base::limits::NAME_BYTES_MAX as u32,
        frsize: STATFS_BLOCK_BYTES,
    }
}

#[cfg(test)]
mod tests;
