//! File attributes as the MDT keeps them and as clients see them.

use crate::{Fid, Version, WallTime};
use borsh::{BorshDeserialize, BorshSerialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum FileType {
    Regular = 1,
    Directory = 2,
    Symlink = 3,
    CharDevice = 4,
    BlockDevice = 5,
    Fifo = 6,
    Socket = 7,
}

impl FileType {
    /// The `S_IFMT` part of a mode.
    pub fn mode_bits(self) -> u32 {
        match self {
            FileType::Regular => 0o100_000,
            FileType::Directory => 0o040_000,
            FileType::Symlink => 0o120_000,
            FileType::CharDevice => 0o020_000,
            FileType::BlockDevice => 0o060_000,
            FileType::Fifo => 0o010_000,
            FileType::Socket => 0o140_000,
        }
    }

    pub fn from_mode(mode: u32) -> Option<FileType> {
        Some(match mode & 0o170_000 {
            0o100_000 => FileType::Regular,
            0o040_000 => FileType::Directory,
            0o120_000 => FileType::Symlink,
            0o020_000 => FileType::CharDevice,
            0o060_000 => FileType::BlockDevice,
            0o010_000 => FileType::Fifo,
            0o140_000 => FileType::Socket,
            _ => return None,
        })
    }

    /// The `d_type` of a directory entry.
    pub fn dirent_type(self) -> u8 {
        (self.mode_bits() >> 12) as u8
    }
}

/// Attributes of one inode.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Attr {
    pub fid: Fid,
    pub file_type: FileType,
    /// Permission bits with set-id and sticky, 12 bits.
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub link_count: u32,
    pub rdev: u32,
    /// Strict when `is_size_known`; otherwise the last known value, and the objects have the truth.
    pub size_bytes: u64,
    /// In units of 512 bytes.
    pub block_count: u64,
    pub atime: WallTime,
    pub mtime: WallTime,
    pub ctime: WallTime,
    pub btime: WallTime,
    /// When `mtime` was last set, by whatever means: the later of this and an object's stamp wins.
    pub mtime_stamp: WallTime,
    /// Rises with every change of these attributes on the MDT; a client keeps the newest that it saw.
    pub version: Version,
    /// False from the first open for write until the last writer's data are committed and its size is taken.
    pub is_size_known: bool,
    /// Rises with every open for write and every truncate; tags a size that somebody reports later.
    pub write_epoch: u64,
    /// False: the inode has no extended attribute at all, so none needs to be asked for.
    pub has_xattrs: bool,
}

/// An access time so old is brought up to date by `relatime` too, as in Linux.
const ATIME_OLD_NANOS: i64 = 24 * 60 * 60 * 1_000_000_000;

impl Attr {
    /// Whether an access at `at` changes the access time. A change of the inode that came later has the last word, so that what
    /// utimensat(2) has set is not overtaken. `is_relative`: only where it is not behind a change already, and not a day old; while
    /// the size is not known the times of changes are not either, and then it counts.
    pub fn is_outdone_by(&self, at: WallTime, is_relative: bool) -> bool {
        let is_later = at > self.atime && at > self.ctime;
        let is_behind = self.atime <= self.mtime || self.atime <= self.ctime;
        let is_old = at.0.saturating_sub(self.atime.0) >= ATIME_OLD_NANOS;
        is_later && (!is_relative || !self.is_size_known || is_behind || is_old)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub enum SetTime {
    /// The time of the server at execution (`UTIME_NOW`).
    Now,
    To(WallTime),
}

/// What a setattr changes; `None` leaves the field alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct SetAttr {
    pub permissions: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// The client has already cut or extended the objects under its write locks (hazard 5.5).
    pub size_bytes: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    pub ctime: Option<WallTime>,
    /// Drop set-id bits and `security.capability`, as a write or truncate by somebody unprivileged does.
    pub kill_privileges: bool,
}
