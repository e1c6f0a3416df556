//! What every target has in common: sessions, exactly once, transaction numbers, commit tracking, recovery.
//!
//! The owner (`mds`, `oss`, `mgs`) hands frames and time to [`Core`], executes the work that comes out, and ends each
//! piece of work with exactly one of `commit`, `reply`, `reply_when_durable` (or none when the client was evicted).

#![forbid(unsafe_code)]

pub mod cancels;
pub mod core;
pub mod grants;
pub mod known;
pub mod noted;
pub mod space;

pub use crate::cancels::CancelQueue;
pub use crate::core::{
    Core, CoreEvent, CoreOptions, CoreOutput, During, EvictReason, Gone, Kept, Lineage, Missing,
    RecoveryReport, RequestCounts, Token, Word, Work, nothing_owed,
};
pub use crate::grants::Grants;
pub use crate::space::statfs_of;
