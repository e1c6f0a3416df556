//! What a store can answer instead of data.

use crate::meta::Table;
use base::ObjectId;

/// Errors of both store traits. Values only, so that simulations can compare them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("no space left on the device of this target; nothing was changed")]
    NoSpace,
    #[error("object {id} does not exist")]
    NoObject { id: ObjectId },
    #[error("byte {offset_bytes} is beyond the largest object that this target's file system can hold")]
    TooBig { offset_bytes: u64 },
    #[error("a key of {byte_count} bytes is longer than a store takes ({})", crate::meta::KEY_BYTES_MAX)]
    KeyTooLong { byte_count: usize },
    #[error("a value of {byte_count} bytes is longer than a store takes ({})", crate::meta::VALUE_BYTES_MAX)]
    ValueTooLong { byte_count: usize },
    #[error("a batch of {byte_count} bytes is longer than a store takes ({byte_count_max})")]
    BatchTooLong { byte_count: usize, byte_count_max: usize },
    /// A checksum does not fit: the bytes are refused, never returned.
    #[error("row {key:02x?} of table {table} is damaged on disk; run a check of this target")]
    CorruptRow { table: Table, key: Vec<u8> },
    /// Sound, and not to be taken for something else.
    #[error(
        "a {kind} row ({key:02x?} of table {table}, version {version}) is sound and of a kind or version that this program does not \
         know, so a newer one wrote it: nothing was changed; start this target with the newer program"
    )]
    UnknownRow { kind: &'static str, table: Table, key: Vec<u8>, version: u8 },
    #[error("object {id} is damaged on disk at byte {offset_bytes}; restore the file that owns it")]
    CorruptObject { id: ObjectId, offset_bytes: u64 },
    #[error("the index of this target is damaged ({what}); run a check of this target")]
    CorruptIndex { what: &'static str },
    /// One call failed, the store goes on.
    #[error("the device of this target failed to {operation} (errno {errno})")]
    Device { operation: &'static str, errno: i32 },
    /// The device failed to keep something: nothing is accepted any more, for nobody knows what it still has.
    #[error(
        "this target is fenced: its device failed to {operation} (errno {errno}); start it on sound storage"
    )]
    Poisoned { operation: &'static str, errno: i32 },
    /// Closed in order: what was accepted is durable, and nothing more is accepted.
    #[error("this target has ended")]
    Ended,
    #[error("this target is open for reading only; nothing was changed")]
    ReadOnly,
}

impl StoreError {
    /// Whether the device has failed for good.
    pub fn is_fence(&self) -> bool {
        matches!(self, StoreError::Poisoned { .. })
    }

    /// Whether it is about one row or object: damaged, or the device cannot read it. Those behind it may be sound.
    pub fn is_local(&self) -> bool {
        match self {
            StoreError::CorruptRow { .. }
            | StoreError::UnknownRow { .. }
            | StoreError::CorruptObject { .. }
            | StoreError::CorruptIndex { .. } => true,
            StoreError::Device { .. } => !self.is_passing(),
            _ => false,
        }
    }

    /// Whether the call failed for want of descriptors or memory, which passes.
    pub fn is_passing(&self) -> bool {
        const ENOMEM: i32 = 12;
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        matches!(self, StoreError::Device { errno: ENOMEM | ENFILE | EMFILE, .. })
    }

    /// The wire status that a server answers with.
    pub fn status(&self) -> base::Status {
        use base::Status;
        match self {
            StoreError::NoSpace => Status::NoSpace,
            StoreError::NoObject { .. } => Status::NotFound,
            StoreError::TooBig { .. } => Status::TooBig,
            StoreError::KeyTooLong { .. }
            | StoreError::ValueTooLong { .. }
            | StoreError::BatchTooLong { .. } => Status::Invalid,
            // Asked again, it may do: a replay or data kept back are not to be lost to that.
            error if error.is_passing() => Status::Again,
            StoreError::CorruptRow { .. }
            | StoreError::UnknownRow { .. }
            | StoreError::CorruptObject { .. }
            | StoreError::CorruptIndex { .. }
            | StoreError::Device { .. }
            | StoreError::Poisoned { .. }
            | StoreError::Ended
            | StoreError::ReadOnly => Status::Io,
        }
    }
}
