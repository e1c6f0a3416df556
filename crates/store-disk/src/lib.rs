//! The engines of `store` on a local file system: rows behind a redo log ([`MetaDisk`]), file data in sparse files
//! with checksums ([`ObjectDisk`]), what clients hold in a file that is mapped ([`HoldingsFile`]), and the directory that a target lives in ([`TargetDirectory`]).

#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod cache;
mod contained;
#[doc(hidden)]
pub mod decoders;
mod device;
mod directory;
mod gate;
mod heard;
mod holdings;
mod index;
mod log;
mod meta;
mod objects;
mod overlay;
#[cfg(test)]
#[path = "../tests/it/small_device.rs"]
mod small_device;
mod space;
pub mod upgrade;
#[cfg(test)]
mod waiting;

pub use contained::is_contained;
pub use device::{Syncing, may_be_unkept};
pub use directory::{DirectoryError, FORMAT_VERSION, Superblock, TargetDirectory};
pub use gate::{is_held, may_be_held, may_write_until};
pub use holdings::HoldingsFile;
pub use index::BaseError;
pub use log::replay::ReplayError;
pub use meta::{CacheUse, Damage, MetaDisk, MetaReader, OpenError, Options, Recovered, SyncUse};
pub use objects::{DiskUse, ObjectDisk, ObjectOpenError, ObjectOptions, ReadUse};
