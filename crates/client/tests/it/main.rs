//! The client machine against the real servers on stores in memory.

mod coherence;
mod listing;
mod posix;
mod recovery;
mod sizes;
mod world;
