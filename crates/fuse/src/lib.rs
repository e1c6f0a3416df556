//! fuse: see docs/ARCHITECTURE.md.
