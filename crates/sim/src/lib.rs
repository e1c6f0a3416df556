//! sim: see docs/ARCHITECTURE.md.
