//! The calling side of a session: exactly once, resends, replay after a restart of the target, leases.
//!
//! One [`Import`] per caller and target. It does no I/O: frames and time come in, frames and results go out.

#![forbid(unsafe_code)]

mod estimate;
pub mod import;
mod words;

pub use estimate::{TimeoutBounds, TimeoutReport};
pub use import::{Answer, Import, ImportOptions, ImportOutput, ImportState, InFlightBounds, Kind, Ticket};
pub use words::{History, OVERDUE_WORD, SessionStatus, session_word, state_word};
