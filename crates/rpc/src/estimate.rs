//! Adaptive timeouts: how long a target takes to answer, as its last answers show, and so when a request is late.
//!
//! The estimate is the longest that an answer took within the last `history`, which is kept in four parts as in Lustre. An answer to a
//! request that was sent twice may be one to either sending, so it does not count (Karn's rule). But then, and when an answer is late,
//! the target is given as much time as has passed already, until a request that was sent later is answered the first time: so the
//! estimate finds the time of a target that has become slow, and a frame that was lost leaves nothing behind.
//!
//! All of this stays with the client. No target is told, so that no recovery waits longer for it.

use base::limits::RESEND_FIRST;
use base::{Duration, Time};

const PART_COUNT: usize = 4;
/// Parts of a history are no shorter.
const PART_MIN: Duration = Duration::from_secs(1);

/// What operators set, under Lustre's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutBounds {
    /// `at_min`: the estimate is never below.
    pub min: Duration,
    /// `at_max`: nor above; zero: nothing is estimated.
    pub max: Duration,
    /// `at_history`: for how long a slow answer counts.
    pub history: Duration,
}

impl Default for TimeoutBounds {
    /// Lustre's, but for the lowest estimate: a request that is sent again too early costs one frame here, and no connection.
    fn default() -> TimeoutBounds {
        let max = Duration::from_secs(600);
        TimeoutBounds { min: Duration::ZERO, max, history: max }
    }
}

/// For `osc.*.timeouts` and `mdc.*.timeouts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeoutReport {
    pub last_answer: Option<Time>,
    /// What is expected now.
    pub current: Duration,
    /// The longest answer ever, and when it came.
    pub worst: Duration,
    pub worst_at: Option<Time>,
    /// The longest of each part of the history, the present one first.
    pub parts: [Duration; PART_COUNT],
}

#[derive(Debug, Default)]
pub(crate) struct Estimate {
    bounds: TimeoutBounds,
    parts: [Duration; PART_COUNT],
    /// When the first of the parts began.
    since: Time,
    /// What has passed without a clear answer, and until when.
    doubt: Option<(Duration, Time)>,
    worst: Duration,
    worst_at: Option<Time>,
    last_answer: Option<Time>,
}

impl Estimate {
    pub fn set_bounds(&mut self, bounds: TimeoutBounds) {
        self.bounds = bounds;
    }

    /// A request was answered that was first sent at `sent`, and perhaps again.
    pub fn on_answer(&mut self, now: Time, sent: Time, is_resent: bool) {
        self.last_answer = Some(now);
        if is_resent {
            return self.on_late(now, sent);
        }
        let took = now.since(sent);
        self.doubt = self.doubt.filter(|(_, until)| sent < *until);
        (self.parts, self.since) = self.turned(now);
        let [present, ..] = &mut self.parts;
        *present = took.max(*present);
        if took >= self.worst {
            (self.worst, self.worst_at) = (took, Some(now));
        }
    }

    /// A request that was first sent at `sent` has no answer yet, or one that says little.
    pub fn on_late(&mut self, now: Time, sent: Time) {
        let before = self.doubt.map_or(Duration::ZERO, |(passed, _)| passed);
        self.doubt = Some((now.since(sent).max(before), now));
    }

    /// What comes now comes of another incarnation of the target.
    pub fn forget(&mut self) {
        (self.parts, self.doubt) = ([Duration::ZERO; PART_COUNT], None);
    }

    /// After so long without an answer a request is late: a quarter more than is expected, and what a frame may take on its way.
    pub fn late_after(&self, now: Time) -> Duration {
        let expected = self.current(now);
        expected + expected / 4 + RESEND_FIRST
    }

    pub fn report(&self, now: Time) -> TimeoutReport {
        TimeoutReport {
            last_answer: self.last_answer,
            current: self.current(now),
            worst: self.worst,
            worst_at: self.worst_at,
            parts: self.turned(now).0,
        }
    }

    fn current(&self, now: Time) -> Duration {
        let doubt = self.doubt.map(|(passed, _)| passed);
        let measured = self.turned(now).0.into_iter().chain(doubt).max().unwrap_or_default();
        measured.max(self.bounds.min).min(self.bounds.max)
    }

    /// The parts as they are at this time, and when the first of them began.
    fn turned(&self, now: Time) -> ([Duration; PART_COUNT], Time) {
        let part = (self.bounds.history / PART_COUNT as u32).max(PART_MIN);
        let passed = now.since(self.since).as_nanos() / part.as_nanos();
        let mut parts = self.parts;
        match u32::try_from(passed) {
            Ok(passed) if (passed as usize) < PART_COUNT => {
                parts.rotate_right(passed as usize);
                parts.iter_mut().take(passed as usize).for_each(|part| *part = Duration::ZERO);
                (parts, self.since.after(part * passed))
            }
            _ => ([Duration::ZERO; PART_COUNT], now),
        }
    }
}

#[cfg(test)]
mod tests;
