//! ldlm: see docs/ARCHITECTURE.md.
