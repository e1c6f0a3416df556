//! Bytes of the kernel to [`Request`]s. Nothing here panics: what is short or odd is a [`DecodeError`], which the
//! transports answer with its errno.

use zerocopy::FromBytes;

use crate::abi::{self, opcode};
use crate::request::*;

#[cfg(test)]
mod tests;

/// Why a request could not be understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DecodeError {
    /// Fewer bytes than the operation's structure.
    #[error("request with opcode {opcode} is truncated: {needed} bytes needed, {present} present")]
    Truncated {
        /// The operation.
        opcode: u32,
        /// Bytes that the structure takes.
        needed: usize,
        /// Bytes that were there.
        present: usize,
    },
    /// A name without its NUL, or empty.
    #[error("request with opcode {opcode} carries a name that is empty or not terminated")]
    Name {
        /// The operation.
        opcode: u32,
    },
    /// A value that is none of those that the protocol knows.
    #[error("request with opcode {opcode} has the unknown value {value} in field {field}")]
    Value {
        /// The operation.
        opcode: u32,
        /// The field.
        field: &'static str,
        /// What it held.
        value: u64,
    },
}

impl DecodeError {
    /// The errno that answers such a request.
    pub fn errno(&self) -> i32 {
        match self {
            DecodeError::Truncated { .. } | DecodeError::Name { .. } => libc::EIO,
            DecodeError::Value { .. } => libc::EINVAL,
        }
    }
}

/// What the connection agreed on, as far as it changes how requests look.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Dialect {
    /// SETXATTR carries 16 bytes instead of 8.
    pub setxattr_ext: bool,
}

/// Bytes of the operation's fixed structure. Over io_uring they travel apart from the rest.
pub(crate) fn op_header_size(op: u32, dialect: Dialect) -> usize {
    use abi::*;
    match op {
        opcode::FORGET => size_of::<ForgetIn>(),
        opcode::GETATTR => size_of::<GetattrIn>(),
        opcode::SETATTR => size_of::<abi::SetattrIn>(),
        opcode::MKNOD => size_of::<MknodIn>(),
        opcode::MKDIR => size_of::<MkdirIn>(),
        opcode::RENAME => size_of::<RenameIn>(),
        opcode::RENAME2 => size_of::<Rename2In>(),
        opcode::LINK => size_of::<LinkIn>(),
        opcode::OPEN | opcode::OPENDIR => size_of::<OpenIn>(),
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => size_of::<ReadIn>(),
        opcode::WRITE => size_of::<WriteIn>(),
        opcode::RELEASE | opcode::RELEASEDIR => size_of::<ReleaseIn>(),
        opcode::FSYNC | opcode::FSYNCDIR => size_of::<FsyncIn>(),
        opcode::SETXATTR if dialect.setxattr_ext => size_of::<SetxattrIn>(),
        opcode::SETXATTR => size_of::<SetxattrInCompat>(),
        opcode::GETXATTR | opcode::LISTXATTR => size_of::<GetxattrIn>(),
        opcode::FLUSH => size_of::<FlushIn>(),
        opcode::GETLK | opcode::SETLK | opcode::SETLKW => size_of::<LkIn>(),
        opcode::ACCESS => size_of::<AccessIn>(),
        opcode::CREATE | opcode::TMPFILE => size_of::<CreateIn>(),
        opcode::INTERRUPT => size_of::<InterruptIn>(),
        opcode::IOCTL => size_of::<IoctlIn>(),
        opcode::BATCH_FORGET => size_of::<BatchForgetIn>(),
        opcode::FALLOCATE => size_of::<FallocateIn>(),
        opcode::LSEEK => size_of::<LseekIn>(),
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => size_of::<CopyFileRangeIn>(),
        opcode::STATX => size_of::<StatxIn>(),
        _ => 0,
    }
}

/// The three parts of a request. Over `/dev/fuse` [`Frame::split`] makes them of one buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub header: abi::InHeader,
    /// The operation's structure; may be longer than needed.
    pub op: &'a [u8],
    /// Names, data, extensions.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Cuts a buffer of `/dev/fuse`. `None` when not even the header is there.
    pub fn split(buffer: &'a [u8], dialect: Dialect) -> Option<Self> {
        let (header, rest) = abi::InHeader::read_from_prefix(buffer).ok()?;
        let size = op_header_size(header.opcode, dialect).min(rest.len());
        let (op, payload) = rest.split_at_checked(size)?;
        Some(Self { header, op, payload })
    }
}

struct Cursor<'a> {
    opcode: u32,
    op: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn fixed<T: FromBytes>(&self) -> Result<T, DecodeError> {
        T::read_from_prefix(self.op).map(|(value, _)| value).map_err(|_| DecodeError::Truncated {
            opcode: self.opcode,
            needed: size_of::<T>(),
            present: self.op.len(),
        })
    }

    fn name(&mut self) -> Result<Name, DecodeError> {
        let name = self.text()?;
        if name.is_empty() {
            return Err(DecodeError::Name { opcode: self.opcode });
        }
        Ok(name)
    }

    fn text(&mut self) -> Result<Vec<u8>, DecodeError> {
        let end = self.rest.iter().position(|&b| b == 0).ok_or(DecodeError::Name { opcode: self.opcode })?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest.get(1..).unwrap_or_default();
        Ok(text.to_vec())
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated {
            opcode: self.opcode,
            needed: len,
            present: self.rest.len(),
        })?;
        self.rest = rest;
        Ok(head)
    }
}

/// The forgets of a FORGET or BATCH_FORGET.
pub(crate) fn decode_forgets(frame: &Frame<'_>) -> Result<Vec<(u64, u64)>, DecodeError> {
    let mut cursor = Cursor { opcode: frame.header.opcode, op: frame.op, rest: frame.payload };
    if frame.header.opcode == opcode::FORGET {
        let forget: abi::ForgetIn = cursor.fixed()?;
        return Ok(vec![(frame.header.nodeid, forget.nlookup)]);
    }
    let head: abi::BatchForgetIn = cursor.fixed()?;
    // The count is theirs: at most as many as there are bytes for.
    let element = size_of::<abi::ForgetOne>();
    let count = (head.count as usize).min(cursor.rest.len() / element);
    if count < head.count as usize {
        return Err(DecodeError::Truncated {
            opcode: frame.header.opcode,
            needed: (head.count as usize).saturating_mul(element),
            present: cursor.rest.len(),
        });
    }
    let all = cursor.bytes(count * element)?;
    Ok(all
        .chunks_exact(element)
        .filter_map(|chunk| abi::ForgetOne::read_from_bytes(chunk).ok())
        .map(|forget| (forget.nodeid, forget.nlookup))
        .collect())
}

/// The unique number that an INTERRUPT is about.
pub(crate) fn decode_interrupt(frame: &Frame<'_>) -> Result<u64, DecodeError> {
    let cursor = Cursor { opcode: opcode::INTERRUPT, op: frame.op, rest: frame.payload };
    Ok(cursor.fixed::<abi::InterruptIn>()?.unique)
}

/// Decodes one request. Not for FORGET, BATCH_FORGET, INTERRUPT, INIT and DESTROY, which the transports treat.
pub(crate) fn decode(
    frame: &Frame<'_>,
    dialect: Dialect,
    thread_index: usize,
) -> Result<Request, DecodeError> {
    let header = frame.header;
    let (payload, supplementary_gids) = split_extensions(frame)?;
    let mut cursor = Cursor { opcode: header.opcode, op: frame.op, rest: payload };
    let op = decode_op(&mut cursor, dialect)?;
    Ok(Request {
        unique: header.unique,
        nodeid: header.nodeid,
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
        supplementary_gids,
        thread_index,
        op,
    })
}

/// The extensions are the last `total_extlen` units of 8 bytes of the message.
fn split_extensions<'a>(frame: &Frame<'a>) -> Result<(&'a [u8], Vec<u32>), DecodeError> {
    let len = usize::from(frame.header.total_extlen) * 8;
    if len == 0 {
        return Ok((frame.payload, Vec::new()));
    }
    let truncated = |needed, present| DecodeError::Truncated { opcode: frame.header.opcode, needed, present };
    let at = frame.payload.len().checked_sub(len).ok_or_else(|| truncated(len, frame.payload.len()))?;
    let (payload, mut rest) = frame.payload.split_at(at);
    let mut gids = Vec::new();
    while !rest.is_empty() {
        let (head, _) = abi::ExtHeader::read_from_prefix(rest).map_err(|_| truncated(8, rest.len()))?;
        let size = head.size as usize;
        if size < size_of::<abi::ExtHeader>() || size > rest.len() {
            return Err(truncated(size.max(8), rest.len()));
        }
        let (body, next) = rest.split_at(size);
        if head.kind == abi::EXT_GROUPS {
            let words: Vec<u32> =
                body[8..].chunks_exact(4).filter_map(|c| c.try_into().ok()).map(u32::from_ne_bytes).collect();
            // The first word counts the groups; the rest pads to 8 bytes.
            if let Some((&count, groups)) = words.split_first() {
                gids.extend(groups.iter().take(count as usize));
            }
        }
        rest = next;
    }
    Ok((payload, gids))
}

fn decode_op(cursor: &mut Cursor<'_>, dialect: Dialect) -> Result<Op, DecodeError> {
    Ok(match cursor.opcode {
        opcode::LOOKUP => Op::Lookup { name: cursor.name()? },
        opcode::GETATTR => {
            let body: abi::GetattrIn = cursor.fixed()?;
            Op::Getattr { fh: (body.getattr_flags & abi::GETATTR_FH != 0).then_some(body.fh) }
        }
        opcode::SETATTR => Op::Setattr(setattr(&cursor.fixed()?)),
        opcode::READLINK => Op::Readlink,
        opcode::SYMLINK => Op::Symlink { name: cursor.name()?, target: cursor.text()? },
        opcode::MKNOD => {
            let body: abi::MknodIn = cursor.fixed()?;
            Op::Mknod { name: cursor.name()?, mode: body.mode, rdev: body.rdev, umask: body.umask }
        }
        opcode::MKDIR => {
            let body: abi::MkdirIn = cursor.fixed()?;
            Op::Mkdir { name: cursor.name()?, mode: body.mode, umask: body.umask }
        }
        opcode::UNLINK => Op::Unlink { name: cursor.name()? },
        opcode::RMDIR => Op::Rmdir { name: cursor.name()? },
        opcode::RENAME => {
            let body: abi::RenameIn = cursor.fixed()?;
            rename(cursor, body.newdir, 0)?
        }
        opcode::RENAME2 => {
            let body: abi::Rename2In = cursor.fixed()?;
            rename(cursor, body.newdir, body.flags)?
        }
        opcode::LINK => {
            let body: abi::LinkIn = cursor.fixed()?;
            Op::Link { target: body.oldnodeid, new_name: cursor.name()? }
        }
        opcode::CREATE => {
            let body: abi::CreateIn = cursor.fixed()?;
            Op::Create {
                name: cursor.name()?,
                flags: body.flags,
                mode: body.mode,
                umask: body.umask,
                kill_suidgid: body.open_flags & abi::OPEN_KILL_SUIDGID != 0,
            }
        }
        opcode::TMPFILE => {
            let body: abi::CreateIn = cursor.fixed()?;
            Op::Tmpfile { flags: body.flags, mode: body.mode, umask: body.umask }
        }
        opcode::STATFS => Op::Statfs,
        opcode::SYNCFS => Op::Syncfs,
        opcode::ACCESS => Op::Access { mask: cursor.fixed::<abi::AccessIn>()?.mask },
        opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => {
            decode_xattr(cursor, dialect)?
        }
        opcode::GETLK | opcode::SETLK | opcode::SETLKW => decode_lock(cursor)?,
        opcode::STATX => {
            let body: abi::StatxIn = cursor.fixed()?;
            Op::Statx {
                fh: (body.getattr_flags & abi::GETATTR_FH != 0).then_some(body.fh),
                flags: body.sx_flags,
                mask: body.sx_mask,
            }
        }
        _ => decode_handle_op(cursor)?,
    })
}

/// The operations on open files and directories.
fn decode_handle_op(cursor: &mut Cursor<'_>) -> Result<Op, DecodeError> {
    Ok(match cursor.opcode {
        opcode::OPEN => {
            let body: abi::OpenIn = cursor.fixed()?;
            Op::Open { flags: body.flags, kill_suidgid: body.open_flags & abi::OPEN_KILL_SUIDGID != 0 }
        }
        opcode::OPENDIR => Op::Opendir { flags: cursor.fixed::<abi::OpenIn>()?.flags },
        opcode::READ => {
            let body: abi::ReadIn = cursor.fixed()?;
            Op::Read(Read {
                fh: body.fh,
                offset: body.offset,
                size: body.size,
                flags: body.flags,
                lock_owner: (body.read_flags & abi::READ_LOCKOWNER != 0).then_some(body.lock_owner),
            })
        }
        opcode::READDIR => {
            let body: abi::ReadIn = cursor.fixed()?;
            Op::Readdir { fh: body.fh, offset: body.offset, size: body.size }
        }
        opcode::READDIRPLUS => {
            let body: abi::ReadIn = cursor.fixed()?;
            Op::Readdirplus { fh: body.fh, offset: body.offset, size: body.size }
        }
        opcode::WRITE => {
            let body: abi::WriteIn = cursor.fixed()?;
            let data = base::buffers::copy(cursor.bytes(body.size as usize)?);
            Op::Write(Write {
                fh: body.fh,
                offset: body.offset,
                data,
                flags: body.flags,
                lock_owner: (body.write_flags & abi::WRITE_LOCKOWNER != 0).then_some(body.lock_owner),
                from_cache: body.write_flags & abi::WRITE_CACHE != 0,
                kill_suidgid: body.write_flags & abi::WRITE_KILL_SUIDGID != 0,
            })
        }
        opcode::RELEASE => {
            let body: abi::ReleaseIn = cursor.fixed()?;
            let flock_release = body.release_flags & abi::RELEASE_FLOCK_UNLOCK != 0;
            Op::Release {
                fh: body.fh,
                flags: body.flags,
                flock_release,
                lock_owner: flock_release.then_some(body.lock_owner),
            }
        }
        opcode::RELEASEDIR => {
            let body: abi::ReleaseIn = cursor.fixed()?;
            Op::Releasedir { fh: body.fh, flags: body.flags }
        }
        opcode::FLUSH => {
            let body: abi::FlushIn = cursor.fixed()?;
            Op::Flush { fh: body.fh, lock_owner: body.lock_owner }
        }
        opcode::FSYNC | opcode::FSYNCDIR => {
            let body: abi::FsyncIn = cursor.fixed()?;
            let datasync = body.fsync_flags & abi::FSYNC_FDATASYNC != 0;
            if cursor.opcode == opcode::FSYNC {
                Op::Fsync { fh: body.fh, datasync }
            } else {
                Op::Fsyncdir { fh: body.fh, datasync }
            }
        }
        opcode::IOCTL => {
            let body: abi::IoctlIn = cursor.fixed()?;
            Op::Ioctl(Ioctl {
                fh: body.fh,
                cmd: body.cmd,
                arg: body.arg,
                is_dir: body.flags & abi::IOCTL_DIR != 0,
                compat: body.flags & abi::IOCTL_COMPAT != 0,
                data: cursor.bytes(body.in_size as usize)?.to_vec(),
                out_size: body.out_size,
            })
        }
        opcode::FALLOCATE => {
            let body: abi::FallocateIn = cursor.fixed()?;
            Op::Fallocate { fh: body.fh, offset: body.offset, length: body.length, mode: body.mode }
        }
        opcode::LSEEK => {
            let body: abi::LseekIn = cursor.fixed()?;
            Op::Lseek { fh: body.fh, offset: body.offset, whence: body.whence }
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            let body: abi::CopyFileRangeIn = cursor.fixed()?;
            Op::CopyFileRange(CopyFileRange {
                fh_in: body.fh_in,
                offset_in: body.off_in,
                nodeid_out: body.nodeid_out,
                fh_out: body.fh_out,
                offset_out: body.off_out,
                len: body.len,
                flags: body.flags,
            })
        }
        opcode => Op::Unknown { opcode },
    })
}

fn rename(cursor: &mut Cursor<'_>, new_parent: u64, flags: u32) -> Result<Op, DecodeError> {
    Ok(Op::Rename { new_parent, flags, old_name: cursor.name()?, new_name: cursor.name()? })
}

fn setattr(body: &abi::SetattrIn) -> Setattr {
    use abi::fattr;
    let has = |bit: u32| body.valid & bit != 0;
    let time = |bit, now, secs: u64, nanos| {
        if has(now) {
            Some(SetTime::Now)
        } else {
            has(bit).then_some(SetTime::At(Timestamp::new(secs as i64, nanos)))
        }
    };
    Setattr {
        fh: has(fattr::FH).then_some(body.fh),
        mode: has(fattr::MODE).then_some(body.mode),
        uid: has(fattr::UID).then_some(body.uid),
        gid: has(fattr::GID).then_some(body.gid),
        size: has(fattr::SIZE).then_some(body.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, body.atime, body.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, body.mtime, body.mtimensec),
        ctime: has(fattr::CTIME).then_some(Timestamp::new(body.ctime as i64, body.ctimensec)),
        lock_owner: has(fattr::LOCKOWNER).then_some(body.lock_owner),
        kill_suidgid: has(fattr::KILL_SUIDGID),
    }
}

fn decode_xattr(cursor: &mut Cursor<'_>, dialect: Dialect) -> Result<Op, DecodeError> {
    Ok(match cursor.opcode {
        opcode::SETXATTR => {
            let (size, flags, extra) = if dialect.setxattr_ext {
                let body: abi::SetxattrIn = cursor.fixed()?;
                (body.size, body.flags, body.setxattr_flags)
            } else {
                let body: abi::SetxattrInCompat = cursor.fixed()?;
                (body.size, body.flags, 0)
            };
            Op::Setxattr {
                name: cursor.name()?,
                value: cursor.bytes(size as usize)?.to_vec(),
                flags,
                acl_kill_sgid: extra & abi::SETXATTR_ACL_KILL_SGID != 0,
            }
        }
        opcode::GETXATTR => {
            let size = cursor.fixed::<abi::GetxattrIn>()?.size;
            Op::Getxattr { name: cursor.name()?, size }
        }
        opcode::LISTXATTR => Op::Listxattr { size: cursor.fixed::<abi::GetxattrIn>()?.size },
        _ => Op::Removexattr { name: cursor.name()? },
    })
}

fn decode_lock(cursor: &mut Cursor<'_>) -> Result<Op, DecodeError> {
    let body: abi::LkIn = cursor.fixed()?;
    let kind = match body.lk.kind as i32 {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::Unlock,
        _ => {
            return Err(DecodeError::Value {
                opcode: cursor.opcode,
                field: "lk.type",
                value: u64::from(body.lk.kind),
            });
        }
    };
    let lock = Lock { start: body.lk.start, end: body.lk.end, kind, pid: body.lk.pid };
    let (fh, owner, flock) = (body.fh, body.owner, body.lk_flags & abi::LK_FLOCK != 0);
    Ok(match cursor.opcode {
        opcode::GETLK => Op::Getlk { fh, owner, lock, flock },
        op => Op::Setlk { fh, owner, lock, flock, sleep: op == opcode::SETLKW },
    })
}
