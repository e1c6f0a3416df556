//! Byte ranges.

use borsh::{BorshDeserialize, BorshSerialize};
use std::fmt;

/// Bytes from `start` (inclusive) to `end` (exclusive; `u64::MAX` stands for the end of all files).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize,
)]
pub struct Extent {
    pub start: u64,
    pub end: u64,
}

impl Extent {
    pub const EOF: u64 = u64::MAX;
    pub const WHOLE: Extent = Extent { start: 0, end: Extent::EOF };

    pub fn new(start: u64, end: u64) -> Extent {
        Extent { start, end }
    }

    /// `byte_count` bytes from `offset_bytes`, cut at the end of 64 bits.
    pub fn at(offset_bytes: u64, byte_count: u64) -> Extent {
        Extent { start: offset_bytes, end: offset_bytes.saturating_add(byte_count) }
    }

    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    pub fn byte_count(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    pub fn overlaps(self, other: Extent) -> bool {
        self.start < other.end && other.start < self.end
    }

    pub fn contains(self, other: Extent) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    #[must_use]
    /// The smallest one that contains both; that of an empty one too lies where it starts.
    pub fn hull(self, other: Extent) -> Extent {
        Extent { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    pub fn intersection(self, other: Extent) -> Extent {
        Extent { start: self.start.max(other.start), end: self.end.min(other.end) }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            Extent::EOF => write!(f, "[{}, EOF)", self.start),
            end => write!(f, "[{}, {end})", self.start),
        }
    }
}
