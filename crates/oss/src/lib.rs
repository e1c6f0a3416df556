//! The data server: one object storage target, as a machine without I/O of its own.
//!
//! Sessions, exactly once and recovery are `target::Core`, locks are `ldlm::LockSpace`; here are the operations on
//! objects (one file each under `op/`), and the rule that ties two stores together: a transaction is committed when
//! its rows *and* the bytes that it wrote are durable (`durability`).

#![forbid(unsafe_code)]

pub mod durability;
mod fetches;
mod holdings;
mod locks;
pub mod machine;
mod op;
pub mod rows;
pub mod stats;

pub use fetches::FetchId;
pub use machine::{Input, Oss, OssEvent, OssOptions, Output};
pub use stats::{OssStats, Samples};
