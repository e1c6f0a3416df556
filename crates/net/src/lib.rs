//! net: see docs/ARCHITECTURE.md.
