//! Runs the machines: who owns a machine at a moment, when its timer fires, and how its frames travel.
//!
//! - [`Owner`]: one thread at a time runs a machine. Whoever brings an input tries to become the owner; when the
//!   machine is taken, the input waits and the present owner takes it along (waking another thread costs more than
//!   running the request, see `docs/ARCHITECTURE.md`).
//! - [`run`]: the list of owners and connections that this thread still has to serve. Nothing recurses: a frame to a
//!   machine of this process is queued there, and run by the same thread afterwards.
//! - [`Timer`]: one thread for all deadlines of the process, and for inputs from threads that must not run machines.
//! - [`Helpers`]: threads for frames of much work for which nobody waits yet: what is read ahead or written behind.
//! - `readers`: the threads that read from connections that others have made: one for each of a few, some for all others.
//! - [`Router`]: finds the machine or the connection for a frame. Frames are datagrams; what cannot be sent is dropped,
//!   because the machines send again.
//! - [`ask`]: one question to whoever is at an address, beside the router.

mod ask;
pub mod backlogs;
mod callers;
pub mod clock;
pub mod connection;
pub mod helpers;
pub mod owner;
mod readers;
pub mod router;
pub mod run;
pub mod timer;

pub use ask::ask;
pub use helpers::Helpers;
pub use owner::{Lateness, Owner, OwnerOptions};
pub use router::{Port, Router, Unreached};
pub use timer::Timer;
