//! store: see docs/ARCHITECTURE.md.
