//! wire: see docs/ARCHITECTURE.md.
