//! The metadata seam: ordered rows, changed by numbered batches.

use crate::{Batch, StoreError};
use base::Transno;

/// A small constant; each server names its own tables.
pub type Table = u8;

/// Bytes of one key: what ordered bases commonly take.
pub const KEY_BYTES_MAX: usize = 511;
/// Bytes of one value: the largest xattr value, and room for what a server writes around it.
pub const VALUE_BYTES_MAX: usize = base::limits::XATTR_VALUE_BYTES_MAX + 4096;
/// Encoded bytes of one batch: a log record must fit in the smallest log segment.
pub const BATCH_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(VALUE_BYTES_MAX + KEY_BYTES_MAX < BATCH_BYTES_MAX / 8);

/// How much of the reserve is left. Only the first lets consuming operations pass; freeing ones always go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reserve {
    #[default]
    Ample,
    /// Inside the reserve: refuse what consumes.
    Low,
    /// The ballast is gone too: only what frees may run.
    Exhausted,
}

/// What admission control needs to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Bytes applied that no sync has covered yet.
    pub unsynced_bytes: u64,
    /// Bytes applied that are not in the base yet (memory, and log to replay).
    pub overlay_bytes: u64,
    pub reserve: Reserve,
    /// The device itself has too little room for the log to go on, however much the base has to give: not even what takes a few hundred
    /// bytes of the log is to run, unless it frees.
    pub is_log_short: bool,
    /// Nor is a segment left for the log to go on in: only what frees may run, whatever the base has, until a checkpoint has given one back.
    pub is_log_ending: bool,
    /// The device failed to persist; nothing is accepted any more.
    pub poisoned: bool,
}

impl Pressure {
    /// Operations that consume space are to be refused with `NoSpace`.
    pub fn is_consuming_refused(&self) -> bool {
        self.reserve > Reserve::Ample || self.is_log_ending
    }
}

/// Space of the device under a target. `avail_bytes` is what may still be consumed, after the reserve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub avail_bytes: u64,
    /// For what was acknowledged before, and for what frees.
    pub reserve_bytes: u64,
    pub total_inode_count: u64,
    pub free_inode_count: u64,
}

/// Rows in key order with a redo log. Batches are blind absolute values; whatever reads before it writes is above,
/// under the server's locks. One caller applies at a time, in transno order; readers are free.
pub trait MetaStore: Send + Sync {
    /// Applies all of `batch` or nothing; visible to `get` and `scan` on return, and safe against the end of the
    /// process (not yet against that of the machine). Never waits for the disk.
    ///
    /// `t` must be above `applied()`; anything else is the caller's bug and panics.
    ///
    /// # Errors
    /// `Poisoned`, the length errors, and `NoSpace` when even the reserve is used up; all change nothing.
    fn apply(&self, t: Transno, batch: &Batch) -> Result<(), StoreError>;

    /// The last transno applied.
    fn applied(&self) -> Transno;

    /// Everything at or below this survives a power failure. Monotonic, never above `applied()`.
    fn durable(&self) -> Transno;

    /// Asks for a sync of everything applied so far, for somebody who waits for it; without waiting here.
    fn kick(&self);

    /// The same for nobody: so that not too much stays undurable for too long. A store that counts its syncs counts the two
    /// apart.
    fn kick_unawaited(&self) {
        self.kick();
    }

    /// The value of one row.
    ///
    /// # Errors
    /// `CorruptRow` or `CorruptIndex` if what the disk holds fails its checksum; `Device` if it cannot be read.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Calls `visit` for at most `limit` rows with `from <= key < to_exclusive` in key order, until it returns
    /// false. No lock is held while `visit` runs, so it may call the store.
    ///
    /// # Errors
    /// As `get`.
    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to_exclusive: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError>;

    fn pressure(&self) -> Pressure;

    fn space(&self) -> Space;

    /// Final sync; nothing may be applied afterwards. Idempotent.
    fn close(&self);
}
