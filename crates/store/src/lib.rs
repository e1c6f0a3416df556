//! The narrow traits between servers and their disks, a model of each in memory that can be crashed, and the
//! conformance suite that every implementation passes.
//!
//! Nothing here does I/O: the real engines are in `store-disk`. Three seams:
//! - [`MetaStore`]: rows in key order, changed by numbered all-or-nothing batches. A crash leaves exactly the batches
//!   up to some number, and every batch at or below [`MetaStore::durable`] is among them.
//! - [`ObjectStore`]: file data by object id. A crash keeps every mutation at or below [`ObjectStore::durable`];
//!   of the later ones any part may be there, in any order, as on a disk.
//! - [`Holdings`]: what clients hold, noted in memory that outlives the process and not the machine.

#![forbid(unsafe_code)]

pub mod batch;
pub mod conformance;
pub mod error;
pub mod holdings;
pub mod memory;
pub mod meta;
pub mod objects;

pub use batch::{Batch, BatchDecodeError, Change};
pub use error::StoreError;
pub use holdings::{Holding, HoldingKey, Holdings, Left, MemoryHoldings};
pub use memory::{MemoryMeta, MemoryObjects};
pub use meta::{BATCH_BYTES_MAX, KEY_BYTES_MAX, MetaStore, Pressure, Reserve, Space, Table, VALUE_BYTES_MAX};
pub use objects::{ObjectStat, ObjectStore, Room, Whence};

/// Called by a store after its durable mark advanced or after it was poisoned. It must not block, and may call
/// the store's `durable` and `pressure`.
pub type OnDurable = std::sync::Arc<dyn Fn() + Send + Sync>;
