//! The lock manager: who may rely on what, and who has to be asked first.
//!
//! [`LockSpace`] is the server's side: the locks that clients hold on the resources of one target, and the *claims* of
//! the target's own operations on the same resources. [`LockCache`] is the client's side: the locks that it holds on
//! one target. Both are plain state without I/O; the time is handed in.

#![forbid(unsafe_code)]

pub mod cache;
pub mod mode;
pub mod space;

pub use cache::{CallbackAnswer, LockCache};
pub use mode::{covers, is_compatible};
pub use space::{Claimed, EnqueueRequest, Enqueued, LockOutput, LockSpace, Need, OpId};
