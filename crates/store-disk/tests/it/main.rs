//! The disk engines pass the conformance suite, and survive kills, torn tails and flipped bits.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod damaged_base;
mod failing;
mod full;
mod kill;
mod meta;
mod objects;
mod small_device;
mod waiting;
