//! Models of both stores in memory. They keep what is on the "device" apart from what a reader sees, so that a crash
//! can lose any part of what was not synced. The simulator's disks, and the oracle for the real engines.

mod blocks;
mod device;
mod meta;
mod objects;

pub use meta::MemoryMeta;
pub use objects::{Kept, MemoryObjects};

/// When a model syncs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// Only when `sync` is called; `kick` is remembered for `take_kick`.
    #[default]
    Manual,
    /// Inside `kick`, at once.
    OnKick,
}
