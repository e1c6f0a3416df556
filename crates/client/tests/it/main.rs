//! The client machine against the real servers on stores in memory.

mod coherence;
mod posix;
mod recovery;
mod world;
