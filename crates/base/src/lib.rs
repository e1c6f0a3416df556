//! Vocabulary that every layer shares: identifiers, attributes, layouts, status codes, limits, and the seams
//! for clock and randomness. Nothing here does I/O.

#![forbid(unsafe_code)]

pub mod advice;
pub mod attr;
pub mod buffers;
pub mod clock;
pub mod config;
pub mod extent;
pub mod fault;
pub mod histogram;
pub mod ids;
pub mod layout;
pub mod limits;
pub mod machine;
pub mod names;
pub mod pool;
pub mod rng;
pub mod start;
pub mod status;

pub use advice::Advice;
pub use attr::{Attr, FileType, SetAttr, SetTime};
pub use clock::{Duration, Now, Time, WallTime};
pub use config::{ClusterConfig, TargetConfig};
pub use extent::Extent;
pub use histogram::Histogram;
pub use ids::{
    ClientId, Endpoint, Epoch, Fid, LockId, ObjectId, OpenHandle, TargetId, TargetKind, Transno, Version, Xid,
};
pub use layout::Layout;
pub use machine::Machine;
pub use pool::{Pool, PoolName};
pub use rng::Rng;
pub use start::Start;
pub use status::{Status, StatusClass};
