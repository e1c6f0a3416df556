//! The management server: who belongs to a file system, where it is, and which parameters are permanent.
//!
//! One machine for any number of file systems, on `target::Core` like the other servers. A configuration has a
//! version; whoever follows it asks for a newer one than he knows and is answered when there is one.

#![forbid(unsafe_code)]

pub mod machine;

pub use machine::{Input, Mgs, MgsOptions, Output};
