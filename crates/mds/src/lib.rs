//! mds: see docs/ARCHITECTURE.md.
