//! The metadata server of one MDT, as a machine: names, inodes, attributes, opens, advisory locks.
//!
//! `op` holds the operations, one file each; `tx` is the transaction that they write into, from which follow the locks
//! to claim; `machine` takes frames in, runs operations when their claims are granted, and settles with other MDTs
//! what concerns them too. Sessions and exactly-once execution are `target`'s, locks are `ldlm`'s.

#![forbid(unsafe_code)]

pub mod access;
pub mod acl;
pub mod by_space;
pub mod contended;
pub mod data;
pub mod fids;
pub mod flock;
pub mod machine;
pub mod op;
pub mod opens;
pub mod placement;
pub mod rows;
pub mod spaces;
pub mod stats;
pub mod tx;
pub mod unheard;

pub use machine::{Input, Mds, MdsEvent, MdsOptions, OpenError, Output, PeerStatus};
pub use stats::{OpStat, Stats};
