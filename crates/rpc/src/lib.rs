//! rpc: see docs/ARCHITECTURE.md.
