//! Starts of a target, by which others tell a copy from the one that they know.

use crate::{Epoch, WallTime};
use borsh::{BorshDeserialize, BorshSerialize};
use std::fmt;

/// One start of a target. A copy of it takes the same epoch, but does not start in the same nanosecond.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize,
)]
pub struct Start {
    pub epoch: Epoch,
    /// By the target's own clock; 0 where somebody knows the epoch only.
    pub at: WallTime,
}

impl Start {
    /// `Epoch::ZERO` is nobody's.
    pub fn is_known(self) -> bool {
        self.epoch > Epoch::ZERO
    }

    /// These cannot both have been starts of one target.
    pub fn contradicts(self, other: Start) -> bool {
        let has_time = self.at != WallTime::default() && other.at != WallTime::default();
        self.epoch == other.epoch && has_time && self.at != other.at
    }
}

/// What operators read: the epoch, and when.
impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its start number {}", self.epoch)?;
        match self.at.seconds() {
            0 => Ok(()),
            seconds => write!(f, " (at {seconds} s since 1970)"),
        }
    }
}
