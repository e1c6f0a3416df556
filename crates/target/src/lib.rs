//! target: see docs/ARCHITECTURE.md.
