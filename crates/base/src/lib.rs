//! base: see docs/ARCHITECTURE.md.
