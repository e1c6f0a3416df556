//! The suites that run on real mounts, and what they and `xtask` share: running commands that always end, and cleaning up after
//! what was killed.

pub mod agent;
pub mod bounded;
pub mod case;
pub mod cluster;
pub mod disk;
pub mod forest;
pub mod load;
pub mod options;
pub mod random;
pub mod renames;
pub mod runner;
pub mod suites;
pub mod sweep;
pub mod sys;
