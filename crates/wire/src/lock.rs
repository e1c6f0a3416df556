//! Locks: resources, modes and what is said about them.

use base::{Extent, Fid, LockId, ObjectId};
use borsh::{BorshDeserialize, BorshSerialize};

/// Lock modes, Lustre's and VMS's. Compatibility is in `ldlm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum LockMode {
    Ex = 1,
    Pw = 2,
    Pr = 4,
    Cw = 8,
    Cr = 16,
    Nl = 32,
    Group = 64,
}

/// What a lock is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Resource {
    /// Inode bits (`LockPolicy::Bits`).
    Inode(Fid) = 1,
    /// One name slot of a directory: parent and hash of the name. Covers absence too.
    Name { parent: Fid, hash: u64 } = 2,
    /// Bytes of an object (`LockPolicy::Extent`).
    Object(ObjectId) = 3,
    /// Renames of directories between parents, one at a time in the whole file system; lives on MDT0000.
    Rename = 4,
}

/// Inode bits.
pub mod bits {
    /// Existence, type, owner, permissions, ACLs.
    pub const LOOKUP: u32 = 1;
    /// Size, times, link count; for directories their contents' effect on these.
    pub const UPDATE: u32 = 2;
    /// Nobody else has the file open for writing: its holder need not say at once that it has closed what it had open for reading.
    pub const OPEN: u32 = 4;
    pub const LAYOUT: u32 = 8;
    pub const PERM: u32 = 16;
    pub const XATTR: u32 = 32;
    pub const DOM: u32 = 64;
    /// Ours: the names in a directory, and attributes and xattrs of those children that are no directories and live
    /// on the directory's MDT. READDIR grants it: one lock for a whole listing.
    pub const CHILDREN: u32 = 128;
    /// Ours, mode PW: nobody else has the file open or is told its size, so its holder may answer writes before the OSTs
    /// have them. Whoever opens the file or asks for its size has it given back, and the data written, first.
    pub const WRITE_BACK: u32 = 256;
    /// What describes the inode itself.
    pub const SELF: u32 = 127;
    /// The same and its children: all that a change of it may touch.
    pub const ALL: u32 = 255;
    pub const VALID: u32 = ALL | WRITE_BACK;
}

/// The part of a resource that a lock covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum LockPolicy {
    /// The whole resource.
    Plain = 1,
    /// Inode bits.
    Bits(u32) = 2,
    /// Bytes of an object. A request names what it needs; the grant may be larger.
    Extent(Extent) = 3,
}

/// A lock that a client holds from the moment it reads this.
#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
pub struct LockGrant {
    pub lock: LockId,
    pub resource: Resource,
    pub mode: LockMode,
    pub policy: LockPolicy,
}

#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum LockRequest {
    /// Answered with the grant, when it is granted. A resent one is recognised by its lock id.
    Enqueue { lock: LockId, resource: Resource, mode: LockMode, policy: LockPolicy, can_wait: bool } = 1,
    /// Gives locks back. For written objects the reply comes when their data are durable (hazard 5.6).
    Cancel { locks: Vec<LockId> } = 2,
    /// After a restart of the target: locks that the client still uses.
    Replay { locks: Vec<LockGrant> } = 3,
}

/// Lock ids that the client offers with a metadata request, for locks that the target may grant along with it.
/// The target grants only what nobody else waits for or conflicts with; a lock that is not granted is not an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct LockWant {
    /// For the name slot, mode PR.
    pub name: Option<LockId>,
    /// For the inode that the reply describes, mode PR, `bits::SELF`.
    pub inode: Option<LockId>,
    /// For the inode that the reply describes, mode PW, `bits::WRITE_BACK`: a file that nobody else has open.
    pub write_back: Option<LockId>,
    /// With an open: for what the MDT has of the file's data, if it has the first of them.
    pub data: Option<DataWant>,
}

/// Locks on data of a file that is opened: all that are on the MDT, PW for who may write and PR for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct DataWant {
    pub lock: LockId,
    /// For who may write, as `LockWant::write_back`.
    pub write_back: Option<LockId>,
}
