//! oss: see docs/ARCHITECTURE.md.
