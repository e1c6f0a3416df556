//! mgs: see docs/ARCHITECTURE.md.
