//! The one shape of every protocol machine.

use crate::clock::{Now, Time};

/// A protocol machine: an input and the time go in, outputs come out; it does no I/O and reads no clock.
/// The caller performs the outputs in their order, after `handle` has returned.
pub trait Machine {
    type Input;
    type Output;

    fn handle(&mut self, now: Now, input: Self::Input, out: &mut Vec<Self::Output>);

    /// When `handle` wants to be called with its tick input, if nothing else comes first.
    fn next_deadline(&self) -> Option<Time>;

    /// Asserts the machine's invariants; run after each input in tests and in simulation.
    fn check(&self) {}
}
