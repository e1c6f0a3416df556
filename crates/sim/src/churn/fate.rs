//! What becomes of the clients when the MDT has died: many vanish at once, some are only cut off for a while, and the others go on
//! vanishing as instances do that may be taken away at any time.

use super::Churn;
use base::{Duration, Time};

/// Between the death of the MDT and its next start.
const OUTAGE_MIN: Duration = Duration::from_millis(300);
const OUTAGE_SPREAD: Duration = Duration::from_secs(5);
pub(super) const OUTAGE_MAX: Duration = Duration::from_millis(5300);
/// Clients of a hundred that vanish in the outage: 30 in the mean.
const VANISHING_MIN: u64 = 20;
const VANISHING_SPREAD: u64 = 21;
/// Of the others one in so many vanishes while the MDT recovers.
const VANISHING_LATER_ONE_IN: u64 = 100;
const RECOVERING: Duration = Duration::from_secs(2);
/// And then in each minute one in so many, or in twice as many, and so on.
const VANISHING_EVER_ONE_IN: u64 = 1500;
const RATE_COUNT: u64 = 7;
const MINUTE_COUNT: u32 = 16;
const MINUTE: Duration = Duration::from_secs(60);
/// One in so many is cut off for a while.
const AWAY_ONE_IN: u64 = 40;
/// For so short a time that its lease is renewed within what the others rely on.
const AWAY_SHORT_MIN: Duration = Duration::from_millis(200);
const AWAY_SHORT_SPREAD: Duration = Duration::from_secs(1);
/// Or longer than its lease holds: so that it is back soon, or up to a quarter of an hour later.
const AWAY_LONG_MIN: Duration = Duration::from_secs(4);
const AWAY_LONG_DOUBLINGS: u64 = 8;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    /// Nothing comes from it or to it from the one until the other.
    pub away: Option<(Time, Time)>,
    /// That is longer than its lease holds: it may be given up.
    pub is_away_long: bool,
    /// When it loses power, or is cut off for good.
    pub gone: Option<Time>,
}

impl Fate {
    pub fn is_away(&self, at: Time) -> bool {
        self.away_for(at).is_some()
    }

    /// How much longer it is cut off.
    pub fn away_for(&self, at: Time) -> Option<Duration> {
        self.away.filter(|(from, until)| *from <= at && at < *until).map(|(_, until)| until.since(at))
    }
}

impl Churn {
    /// From now on, when the MDT has just died. Answers when it is started again.
    pub(super) fn draw_fates(&mut self) -> Time {
        let outage = OUTAGE_MIN + self.at_random(OUTAGE_SPREAD);
        let restarts = self.now.time.after(outage);
        let vanishing = VANISHING_MIN + self.rng.below(VANISHING_SPREAD);
        let ever_one_in = VANISHING_EVER_ONE_IN << self.rng.below(RATE_COUNT);
        for number in 0..self.seats.len() {
            let mut fate = Fate::default();
            if self.rng.below(100) < vanishing {
                fate.gone = Some(self.now.time.after(self.at_random(outage)));
            } else if self.rng.one_in(VANISHING_LATER_ONE_IN) {
                fate.gone = Some(restarts.after(self.at_random(RECOVERING)));
            } else {
                let minute = (0..MINUTE_COUNT).find(|_| self.rng.one_in(ever_one_in));
                fate.gone = minute.map(|minute| restarts.after(MINUTE * minute + self.at_random(MINUTE)));
                if self.rng.one_in(AWAY_ONE_IN) {
                    self.draw_absence(&mut fate, outage);
                }
            }
            self.seats[number].fate = fate;
        }
        if self.seats.iter().all(|seat| seat.fate.gone.is_none_or(|gone| gone >= restarts)) {
            // Of fifty clients that comes about once in a million seeds (31630 with 50): then one of them vanishes all the same.
            let gone = Some(self.now.time.after(self.at_random(outage)));
            let number = self.rng.below(self.seats.len() as u64) as usize;
            self.seats[number].fate = Fate { gone, ..Fate::default() };
        }
        restarts
    }

    fn draw_absence(&mut self, fate: &mut Fate, outage: Duration) {
        let from = self.now.time.after(self.at_random(outage));
        fate.is_away_long = !self.rng.one_in(3);
        let lasts = match fate.is_away_long {
            true => {
                let least = AWAY_LONG_MIN * (1 << self.rng.below(AWAY_LONG_DOUBLINGS));
                least + self.at_random(least)
            }
            false => AWAY_SHORT_MIN + self.at_random(AWAY_SHORT_SPREAD),
        };
        fate.away = Some((from, from.after(lasts)));
        self.count(if fate.is_away_long {
            "client cut off for longer than its lease"
        } else {
            "client cut off for a moment"
        });
    }
}
