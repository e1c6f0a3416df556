//! The engines of `store` on a local file system: rows behind a redo log ([`MetaDisk`]).

mod cache;
mod device;
mod index;
mod log;
mod meta;
mod objects;
mod overlay;
mod space;

pub use device::Syncing;
pub use index::BaseError;
pub use log::replay::ReplayError;
pub use meta::{MetaDisk, OpenError, Options, Recovered};
pub use objects::{ObjectDisk, ObjectOpenError, ObjectOptions};
