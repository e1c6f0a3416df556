//! Renames that get in each other's way over three MDTs, in many orders in which their frames can arrive: each ends, with an outcome
//! that some order of the calls explains, and leaves nothing behind. All orders are looked at in which few frames overtake others, and
//! of the rest some.
//!
//! No time passes while a frame is on its way, and disks sync at once; so what is left to choose is which frame arrives next.
//! Frames between two ends arrive in their order. Timers run when no frame is left.

mod contest;
mod explore;
mod print;

pub use contest::{CONTESTS, Contest};
pub use explore::{Exploration, explore, explore_overtaking, repeat};
pub use print::{Request, print};
