//! The clock of a target, as its answers tell it.
//!
//! An answer says what time it was when it was given, which is when the request was sent at the earliest, and when
//! the answer is here at the latest. So the target's clock is ahead by what the time of its coming says, and by as
//! much more as the round trip took at most: by the former it is never taken for later than it is. Of all answers
//! that with the shortest round trip counts, where clocks may drift apart meanwhile; and one that contradicts it,
//! since then a clock was set.
//!
//! Answers to connects may have waited for a recovery, or this process for a processor. After one that took long the
//! target is pinged soon.

use base::{Duration, Now, Time, WallTime};

/// More than a network and a busy target take. A target that is farther away is asked some times in vain.
const SHORT: Duration = Duration::from_millis(5);
const ASK_FIRST: Duration = Duration::from_secs(1);
const ASK_COUNT: u32 = 8;
/// Clocks differ in speed by 50 millionths at most: those of machines do, by experience, if nobody sets them.
const DRIFT_DIVISOR: u64 = 20_000;

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Calendar time of the target less the monotonic time here, at least.
    offset_ns: i64,
    /// By so much more at most.
    round_trip: Duration,
    at: Time,
}

impl Sample {
    /// How much is uncertain by now.
    fn error_ns(&self, now: Time) -> i64 {
        let drift = nanos(now.since(self.at)) / DRIFT_DIVISOR;
        i64::try_from(nanos(self.round_trip).saturating_add(drift)).unwrap_or(i64::MAX)
    }

    /// Whether both may be true.
    fn agrees_with(&self, other: &Sample, now: Time) -> bool {
        let reaches = |lower: &Sample, upper: &Sample| {
            lower.offset_ns.saturating_add(lower.error_ns(now)) >= upper.offset_ns
        };
        let drift = |sample: &Sample| {
            let offset_ns = sample.offset_ns.saturating_sub(
                sample
                    .error_ns(now)
                    .saturating_sub(i64::try_from(nanos(sample.round_trip)).unwrap_or(i64::MAX)),
            );
            Sample { offset_ns, ..*sample }
        };
        reaches(self, &drift(other)) && reaches(other, &drift(self))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What is done to the calendar here does not show.
#[derive(Debug, Default)]
pub(super) struct TargetClock {
    best: Option<Sample>,
    asks: Option<Asks>,
}

#[derive(Clone, Copy, Debug)]
struct Asks {
    at: Time,
    wait: Duration,
    left: u32,
}

impl TargetClock {
    /// What the answer to a connect says that was sent `since` then.
    pub(super) fn on_connected(&mut self, now: Now, since: Time, told: WallTime) {
        self.asks = None;
        if !self.learn(now, since, told) {
            self.asks = Some(Asks { at: now.time.after(ASK_FIRST), wait: ASK_FIRST, left: ASK_COUNT });
        }
    }

    /// The same of a ping's, if it says it.
    pub(super) fn on_pinged(&mut self, now: Now, since: Time, told: Option<WallTime>) {
        if told.is_none_or(|told| self.learn(now, since, told)) {
            self.asks = None;
        }
    }

    /// -> Whether it is well known by that.
    fn learn(&mut self, now: Now, since: Time, told: WallTime) -> bool {
        let now_ns = i64::try_from(now.time.0).unwrap_or(i64::MAX);
        let round_trip = now.time.since(since);
        let sample = Sample { offset_ns: told.0.saturating_sub(now_ns), round_trip, at: now.time };
        let is_better = self.best.is_none_or(|best| {
            sample.error_ns(now.time) <= best.error_ns(now.time) || !sample.agrees_with(&best, now.time)
        });
        if is_better {
            self.best = Some(sample);
        }
        round_trip <= SHORT
    }

    /// When the target should be pinged for that.
    pub(super) fn ask_at(&self) -> Option<Time> {
        self.asks.map(|asks| asks.at)
    }

    /// It is.
    pub(super) fn on_ping(&mut self, now: Time) {
        self.asks = self.asks.filter(|asks| asks.left > 1).map(|asks| {
            let wait = asks.wait * 2;
            Asks { at: now.after(wait), wait, left: asks.left - 1 }
        });
    }

    /// Calendar time of the target, and by how much later it may be; `None` before it has said so.
    pub(super) fn wall(&self, now: Time) -> Option<(WallTime, Duration)> {
        let best = self.best?;
        let now_ns = i64::try_from(now.0).unwrap_or(i64::MAX);
        let error = Duration::from_nanos(u64::try_from(best.error_ns(now)).unwrap_or_default());
        Some((WallTime(best.offset_ns.saturating_add(now_ns)), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(ms: u64) -> Now {
        Now { time: Time(ms * 1_000_000), wall: WallTime(0) }
    }

    fn wall_ms(clock: &TargetClock, at: u64) -> i64 {
        clock.wall(now(at).time).expect("it is known").0.0 / 1_000_000
    }

    const fn told(ms: i64) -> WallTime {
        WallTime(ms * 1_000_000)
    }

    #[test]
    fn the_answer_with_the_shortest_round_trip_counts() {
        let mut clock = TargetClock::default();
        // Ahead by 1000; it was on its way for 700.
        clock.on_connected(now(800), now(0).time, told(1100));
        assert_eq!(wall_ms(&clock, 800), 1100);
        assert_eq!(clock.ask_at(), Some(now(1800).time));
        clock.on_ping(now(1800).time);
        clock.on_pinged(now(1803), now(1800).time, Some(told(2801)));
        assert_eq!((wall_ms(&clock, 1803), clock.ask_at()), (2801, None));
        clock.on_pinged(now(2500), now(2000).time, Some(told(3010)));
        assert_eq!(wall_ms(&clock, 2500), 3498, "that took longer");
        // And a connect that waits.
        clock.on_connected(now(9000), now(4000).time, told(6000));
        assert_eq!(wall_ms(&clock, 9000), 9998);
    }

    #[test]
    fn a_clock_that_was_set_is_followed() {
        for step in [-500, 500] {
            let mut clock = TargetClock::default();
            clock.on_connected(now(1), now(0).time, told(1000));
            clock.on_pinged(now(1020), now(1000).time, Some(told(2019 + step)));
            assert_eq!(wall_ms(&clock, 1020), 2019 + step);
        }
    }

    #[test]
    fn clocks_that_drift_apart_are_followed() {
        let mut clock = TargetClock::default();
        clock.on_connected(now(1), now(0).time, told(0));
        let day = 24 * 3_600_000;
        clock.on_pinged(now(day + 4), now(day).time, Some(told(day as i64 + 900)));
        assert_eq!(wall_ms(&clock, day + 4), day as i64 + 900);
    }

    /// One that does not tell the time is not asked for it again and again, and one far away not for ever.
    #[test]
    fn a_target_is_asked_a_few_times() {
        let mut clock = TargetClock::default();
        clock.on_connected(now(800), now(0).time, told(0));
        clock.on_pinged(now(900), now(899).time, None);
        assert_eq!(clock.ask_at(), None);
        clock.on_connected(now(800), now(0).time, told(0));
        let mut count = 0;
        while let Some(at) = clock.ask_at() {
            clock.on_ping(at);
            clock.on_pinged(Now { time: at.after(SHORT * 20), wall: WallTime(0) }, at, Some(told(0)));
            count += 1;
        }
        assert_eq!(count, ASK_COUNT);
    }
}
