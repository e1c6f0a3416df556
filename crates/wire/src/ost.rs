//! Object requests. File data travel in the frame's `data`.

use crate::lock::{LockGrant, LockMode};
use crate::mdt::Statfs;
use crate::mgs::Life;
use base::{Advice, Extent, Fid, LockId, ObjectId, Status, Transno, WallTime};
use borsh::{BorshDeserialize, BorshSerialize};

/// What to do with an extent of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum ExtentOp {
    /// The object ends at `extent.start` from now on, shorter or longer; it is created if need be.
    Truncate = 1,
    /// Free the blocks; the size stays.
    Punch = 2,
    Zero {
        keep_size: bool,
    } = 3,
    Allocate {
        keep_size: bool,
    } = 4,
}

impl ExtentOp {
    /// What the operation decides about, asked for with this extent: a truncate about everything from the new size on.
    ///
    /// # Errors
    /// `Invalid` if that is nothing; `TooBig` if an object that holds at most `object_bytes_max` would be longer.
    pub fn covered(self, extent: Extent, object_bytes_max: u64) -> Result<Extent, Status> {
        let (covered, end) = match self {
            ExtentOp::Truncate => (Extent::new(extent.start, Extent::EOF), extent.start),
            // Up to the end of the object, wherever that is.
            ExtentOp::Punch | ExtentOp::Zero { .. } if extent.end == Extent::EOF => (extent, extent.start),
            ExtentOp::Punch | ExtentOp::Zero { .. } | ExtentOp::Allocate { .. } => (extent, extent.end),
        };
        if covered.is_empty() {
            return Err(Status::Invalid);
        }
        if end > object_bytes_max { Err(Status::TooBig) } else { Ok(covered) }
    }

    /// Whether it may need room.
    pub fn is_consuming(self) -> bool {
        matches!(self, ExtentOp::Zero { .. } | ExtentOp::Allocate { .. })
    }
}

#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum OstRequest {
    /// -> Data: short at the object's end, empty for an object that does not exist. `lock` covers the extent, or is
    /// empty for a read that needs no coherence of its own (the OST waits for writers then).
    Read { object: ObjectId, extent: Extent, lock: Option<LockId> } = 1,
    /// Refused with `LockLost` when `lock` does not cover it: no late write of a client that lost its lock gets in.
    /// `stamp` is the time of the write. `is_answered`: the writer was told that it is done, so it may use the reserve.
    /// `asked`: the writer has no lock, and asks for `lock`, PW, over this; `WouldBlock` and nothing is written if somebody is
    /// in the way of it.
    /// -> Written
    Write {
        object: ObjectId,
        offset_bytes: u64,
        lock: LockId,
        stamp: WallTime,
        is_answered: bool,
        asked: Option<Extent>,
    } = 2,
    /// Under a PW lock, as Write. -> Done
    Change { object: ObjectId, extent: Extent, op: ExtentOp, lock: LockId, stamp: WallTime } = 3,
    /// Sizes and times, now, without a lock. -> Attrs
    Getattr { objects: Vec<ObjectId> } = 4,
    /// SEEK_DATA or SEEK_HOLE within one object. -> Seek
    Seek { object: ObjectId, offset_bytes: u64, is_hole: bool } = 5,
    /// Answered when everything written so far to these objects (to all when empty) is durable. -> Done
    Sync { objects: Vec<ObjectId> } = 6,
    /// From an MDT, whose unlink is durable: takes the objects from everybody and remembers that they are gone.
    /// Answered when durable. -> Done
    Destroy { objects: Vec<ObjectId> } = 7,
    /// -> Statfs
    Statfs = 8,
    /// From an MDT: some of the objects behind `after`, in an order of the OST's own. -> Objects
    ListObjects { after: Option<ObjectId> } = 9,
    /// At most `limits::ADVICE_BYTES_MAX` of it. -> Done
    Advise { object: ObjectId, extent: Extent, advice: Advice } = 10,
    /// From an MDT that gives this client up: nothing that it has sent is executed from here on. Answered when that is durable. -> Done
    Fence(Life) = 11,
    /// From an MDT that has taken a file over, durably: its objects bear the file's new FID from now on, and nobody gets the old
    /// ones any more. The two steps one after the other; again they change nothing. Answered when durable. -> Done
    Adopt { objects: Vec<ObjectId>, to: Fid, step: AdoptStep } = 12,
    /// Takes `lock` over `asked` at least, when nobody is in its way any more, and reads under it what it covers of `extent`: an enqueue
    /// and a read in one (`features::READ_WITH_LOCK`). -> LockedData
    LockAndRead { object: ObjectId, extent: Extent, lock: LockId, mode: LockMode, asked: Extent } = 13,
}

/// Rows and bytes are kept apart, so that no crash leaves bytes that have gone from a name which is still theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum AdoptStep {
    /// Whoever asks for the old names is told that they have moved.
    Rows = 1,
    /// What they had has the new names.
    Bytes = 2,
}

impl OstRequest {
    /// The file whose data it changes on behalf of a client that has it open for writing.
    pub fn written_file(&self) -> Option<Fid> {
        match self {
            OstRequest::Write { object, .. } | OstRequest::Change { object, .. } => Some(object.fid),
            _ => None,
        }
    }

    /// Whether it brings what its writer was told to have written before.
    pub fn is_of_kept(&self) -> bool {
        matches!(self, OstRequest::Write { is_answered: true, .. })
    }
}

/// An object as a listing shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ListedObject {
    pub object: ObjectId,
    pub size_bytes: u64,
    /// When data last changed; `None` when a crash has left the data alone, or when nothing can be read of them.
    pub stamp: Option<WallTime>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ObjectAttr {
    pub size_bytes: u64,
    /// In units of 512 bytes.
    pub block_count: u64,
    /// When data last changed; zero when never.
    pub stamp: WallTime,
    /// A crash can take back what this transaction changed; zero when none can.
    pub uncommitted: Transno,
}

#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum OstReply {
    /// The bytes are in the frame's data. `size_bytes` of the object.
    Data {
        size_bytes: u64,
    } = 1,
    /// One for each object asked for; `None` for one that does not exist.
    Attrs(Vec<Option<ObjectAttr>>) = 2,
    Seek {
        offset_bytes: Option<u64>,
    } = 3,
    Statfs(Statfs) = 4,
    /// `next` is where to go on; `None` at the end.
    Objects {
        listed: Vec<ListedObject>,
        next: Option<ObjectId>,
    } = 5,
    /// `grant_bytes` of such writes this client may have under way or keep back from now on. `attr`: the object after the write,
    /// which a crash can take back until the answer's transaction is committed; `None` for a replay of what is gone.
    Written {
        grant_bytes: u64,
        attr: Option<ObjectAttr>,
        /// That was asked for. In an answer from before a restart it says nothing: locks are only in memory.
        lock: Option<LockGrant>,
    } = 6,
    /// As `Data`, with the lock that was waited for.
    LockedData {
        size_bytes: u64,
        lock: LockGrant,
    } = 7,
}

#[cfg(test)]
mod tests;
