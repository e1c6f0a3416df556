//! The POSIX client: a machine between the calls of a mount and the targets of a file system. It knows neither FUSE
//! nor sockets nor threads.
//!
//! Operations are `async fn`s on a small executor of its own ([`executor`]); what they share is a [`State`] that they
//! reach only inside a closure, so that nothing is held across an await. See docs/ARCHITECTURE.md.
//!
//! [`State`]: state::State

#![forbid(unsafe_code)]

pub mod call;
pub mod machine;
pub mod stats;

mod executor;

pub use call::{
    Answer, AttrAnswer, Call, Caller, DirEntryAnswer, EntryAnswer, OpenMode, ROOT_NODE, SetattrCall,
    TargetSpace,
};
pub use machine::{Client, ClientOptions, Event, Input, Notify, NotifyId, NotifyResult, Output};
pub use stats::Stats;
