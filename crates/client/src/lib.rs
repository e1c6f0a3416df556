//! The POSIX client: a machine between the calls of a mount and the targets of a file system. It knows neither FUSE
//! nor sockets nor threads.
//!
//! Operations are `async fn`s on a small executor of its own; what they share is one state that they reach only
//! inside a closure, so that nothing is held across an await. See docs/ARCHITECTURE.md.

#![forbid(unsafe_code)]

pub mod call;
pub mod machine;
pub mod mgc;
pub mod operator;
pub mod stats;

mod accesses;
mod advisory;
mod ahead;
mod body;
mod cache;
mod cancels;
mod changes;
mod children_locks;
mod closes;
mod ctx;
mod directory;
mod dirty;
mod ends;
mod executor;
mod file_data;
mod handles;
mod in_hand;
mod interrupts;
mod kernel_size;
mod known_names;
mod late_answers;
mod lately_shared;
mod leases;
mod listed;
mod listing_budget;
mod listing_cache;
mod lock_owners;
mod locks;
mod long_xattrs;
mod losses;
mod names;
mod nodes;
mod opened;
mod ops;
mod pages;
mod push;
mod quick;
mod recovery;
mod reports;
mod seldom;
mod small_bytes;
mod stamps;
mod state;
mod stored;
mod telling;
mod unlinks;
mod untold;
mod varint;
mod whole;
mod xattrs;

pub use accesses::{AccessRule, AccessTimes};
pub use ahead::{ReadAheadBound, ReadAheadBounds, ReadAheadStats};
pub use call::{
    Answer, AttrAnswer, Call, Caller, DirEntryAnswer, EntryAnswer, OpenMode, ProbeStep, ROOT_NODE,
    SetattrCall, TargetProbe, TargetSpace,
};
pub use interrupts::Signals;
pub use machine::{Client, ClientOptions, Event, Input, Kernel, Notify, NotifyId, NotifyResult, Output};
pub use operator::{Bulk, IdleLockBounds, Setting, SyncRule, TargetSetting, TargetStatus};
pub use push::PUSH_COUNT_MAX;
pub use stats::{ListingStats, Stats};
