//! The client machine against the real servers on stores in memory.

mod accesses;
mod clocks;
mod closes;
mod coherence;
mod ends;
mod holders;
mod interrupts;
mod kernel;
mod leases;
mod listing;
mod mgc;
mod on_mdt;
mod pages;
mod posix;
mod probes;
mod read_ahead;
mod recovery;
mod root;
mod short_writes;
mod sizes;
mod skew;
mod small_files;
mod space;
mod striped;
mod world;
mod write_back;
