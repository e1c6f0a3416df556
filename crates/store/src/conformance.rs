//! What every engine must do, as functions that take a harness. Failures panic, as tests do.
//!
//! Each engine's tests call [`meta::run`] and [`objects::run`] with a harness of their own.

#![expect(clippy::unwrap_used, reason = "this is a test suite that engines link into their tests")]

pub mod meta;
pub mod objects;
