//! Renames that get in each other's way over three MDTs, in every order in which their frames can arrive: each ends, with an outcome
//! that some order of the calls explains, and leaves nothing behind.
//!
//! No time passes while a frame is on its way, and disks sync at once; so what is left to choose is which frame arrives next.
//! Frames between two ends arrive in their order. Timers run when no frame is left.

mod contest;
mod explore;
mod print;

pub use contest::{CONTESTS, Contest};
pub use explore::{Exploration, explore, repeat};
pub use print::{Request, print};
