//! The data seam: the bytes of file objects.

use crate::{Space, StoreError};
use base::{Advice, Extent, ObjectId};
use bytes::Bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    Data,
    Hole,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectStat {
    pub size_bytes: u64,
    /// What it takes on the device, preallocation included.
    pub allocated_bytes: u64,
    /// False for an object of which no change has ever become durable, or that has lost what says so: its file has no header that is
    /// whole, whatever else is there.
    pub has_begun: bool,
}

/// What a change may take of the device at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// What is left beside the reserve (`Space::avail_bytes`). That is kept for what clients were told to have written, and have not sent
    /// yet, for the log, and for what frees.
    BesideReserve,
    /// The reserve too: it was acknowledged before.
    All,
}

/// File data of one OST. Every successful call that changes something raises `written()`; when `durable()` has
/// reached the value that `written()` had after the call, the change survives a power failure.
///
/// Callers keep two mutations of the same bytes from running at once (they hold locks); everything else may run
/// concurrently. Any call can answer `Device`, `Poisoned`, and, if it reads, `CorruptObject`.
pub trait ObjectStore: Send + Sync {
    /// Writes all of `data`, creating the object if need be.
    ///
    /// # Errors
    /// `NoSpace` and `TooBig`, which change nothing visible.
    fn write(&self, id: &ObjectId, offset_bytes: u64, data: &[u8]) -> Result<(), StoreError>;

    /// At most `byte_count` bytes; short only at the end of the object.
    ///
    /// # Errors
    /// `NoObject`.
    fn read(&self, id: &ObjectId, offset_bytes: u64, byte_count: usize) -> Result<Bytes, StoreError>;

    /// The same of what is read ahead: nobody waits for it yet, and whoever reads so asks for more before he has it.
    ///
    /// # Errors
    /// As `read`.
    fn read_ahead(&self, id: &ObjectId, offset_bytes: u64, byte_count: usize) -> Result<Bytes, StoreError> {
        self.read(id, offset_bytes, byte_count)
    }

    /// As `read`, or `read_ahead`; nothing where a device would have to be waited for, which is worth another thread: `fetch` has to be called then,
    /// by whoever may wait.
    ///
    /// # Errors
    /// As `read`.
    fn read_at_once(
        &self,
        id: &ObjectId,
        offset_bytes: u64,
        byte_count: usize,
        is_ahead: bool,
    ) -> Result<Option<Bytes>, StoreError> {
        self.read_fetched(id, offset_bytes, byte_count, is_ahead).map(Some)
    }

    /// Brings what `read_at_once` has not given into memory. Waits for the device, beside all other calls.
    ///
    /// # Errors
    /// `Device`, if it cannot be read. Of anything else that is wrong with the object who reads it then hears.
    fn fetch(&self, _id: &ObjectId, _extent: Extent) -> Result<(), StoreError> {
        Ok(())
    }

    /// As `read` or `read_ahead`, of what was fetched.
    ///
    /// # Errors
    /// As `read`.
    fn read_fetched(
        &self,
        id: &ObjectId,
        offset_bytes: u64,
        byte_count: usize,
        is_ahead: bool,
    ) -> Result<Bytes, StoreError> {
        let read = if is_ahead { Self::read_ahead } else { Self::read };
        read(self, id, offset_bytes, byte_count)
    }

    /// Sets the size, creating the object if need be; new bytes are a hole.
    ///
    /// # Errors
    /// `TooBig`.
    fn truncate(&self, id: &ObjectId, size_bytes: u64) -> Result<(), StoreError>;

    /// Makes a hole inside the object, size unchanged; whole blocks are given back to the device. An object that
    /// does not exist is a hole already.
    fn punch(&self, id: &ObjectId, extent: Extent) -> Result<(), StoreError>;

    /// Makes the bytes read as zeros and allocates them; grows the object unless `keep_size`. Creates it.
    /// An extent up to `Extent::EOF` ends at the object's end, and makes none. An empty one does nothing.
    ///
    /// # Errors
    /// `NoSpace`, which changes nothing: also when it would take more than `room`. `TooBig`.
    fn zero(&self, id: &ObjectId, extent: Extent, keep_size: bool, room: Room) -> Result<(), StoreError>;

    /// Allocates what is not yet allocated; bytes unchanged; grows the object unless `keep_size`. Creates it.
    ///
    /// # Errors
    /// As `zero`; what was allocated before it failed is given back.
    fn allocate(&self, id: &ObjectId, extent: Extent, keep_size: bool, room: Room) -> Result<(), StoreError>;

    /// Whether writing over all of the extent takes nothing of the device: every block of it is allocated already, and will be written
    /// where it is. False where that is not known.
    ///
    /// # Errors
    /// `NoObject`.
    fn is_allocated(&self, id: &ObjectId, extent: Extent) -> Result<bool, StoreError>;

    /// First data (or hole) at or after the offset; the end of the object counts as a hole. `None` if the offset
    /// is at or beyond the end, or no data follow. Granularity is the engine's: zeros may count as data.
    ///
    /// # Errors
    /// `NoObject`.
    fn seek(&self, id: &ObjectId, offset_bytes: u64, whence: Whence) -> Result<Option<u64>, StoreError>;

    /// Fetches bytes into the cache of the engine, or takes them out of it, as far as that is done without waiting for writes.
    /// What is not there is left out.
    ///
    /// # Errors
    /// `NoObject`.
    fn advise(&self, id: &ObjectId, extent: Extent, advice: Advice) -> Result<(), StoreError>;

    /// The next change is of this object, which is not there as far as anybody knows: where that is wrong it is found all the same.
    fn expect_absent(&self, _id: &ObjectId) {}

    /// `None` if there is no such object.
    fn stat(&self, id: &ObjectId) -> Result<Option<ObjectStat>, StoreError>;

    /// Whether there was such an object.
    fn destroy(&self, id: &ObjectId) -> Result<bool, StoreError>;

    /// The object is `to` from now on, with all that it has. Nothing changes, and the answer is false, when it is not there, or
    /// when there is a `to` already.
    fn adopt(&self, id: &ObjectId, to: &ObjectId) -> Result<bool, StoreError>;

    /// Asks for a sync of everything written so far, without waiting.
    fn kick(&self);

    /// Before anything else: waits until what was written here before this store was opened survives a power failure, for a process
    /// that has died leaves it to the kernel, which has time. Whether all of it is there for certain, as it is when only processes
    /// have died since the first `kick` or change of one.
    ///
    /// # Errors
    /// `Poisoned`: the device has lost some of it.
    fn sync_left(&self) -> Result<bool, StoreError>;

    /// Number of the last mutation.
    fn written(&self) -> u64;

    /// All mutations up to this one survive a power failure. Monotonic.
    fn durable(&self) -> u64;

    /// Up to `limit` objects after the given one, in a fixed order of the engine's own. Empty at the end.
    fn list(&self, after: Option<&ObjectId>, limit: usize) -> Result<Vec<ObjectId>, StoreError>;

    fn space(&self) -> Space;

    /// The device failed to persist; nothing is accepted any more.
    fn is_poisoned(&self) -> bool;

    /// Final sync. Idempotent.
    fn close(&self);
}
