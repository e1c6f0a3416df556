//! store-disk: see docs/ARCHITECTURE.md.
