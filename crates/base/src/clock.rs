//! Time as the machines see it: handed in, never read.

use borsh::{BorshDeserialize, BorshSerialize};
pub use std::time::Duration;

/// Monotonic time in nanoseconds since an arbitrary start (CLOCK_BOOTTIME in processes, simulated time in `sim`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    pub const ZERO: Time = Time(0);
    pub const MAX: Time = Time(u64::MAX);

    #[must_use]
    pub fn after(self, wait: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long it is from `earlier` to this; zero when it lies in the future.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Calendar time in nanoseconds since 1970, for file times. Negative before.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize,
)]
pub struct WallTime(pub i64);

impl WallTime {
    pub fn from_parts(seconds: i64, nanoseconds: u32) -> WallTime {
        WallTime(seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(nanoseconds)))
    }

    /// Whole seconds, rounded towards the past.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    pub fn nanoseconds(self) -> u32 {
        self.0.rem_euclid(1_000_000_000) as u32
    }
}

/// Both clocks at the moment of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    pub time: Time,
    pub wall: WallTime,
}
