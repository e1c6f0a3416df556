//! Real mounts of a small file system in memory, on both transports. Without `/dev/fuse` or root the tests say so and
//! pass.
#![allow(clippy::unwrap_used)]

mod caches;
mod files;
mod harness;
mod last;
mod locks;
mod memfs;
mod null;
mod transport;
