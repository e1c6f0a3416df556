//! On which MDT a new directory is placed where that is to be chosen by space (`lfs setdirstripe -D -i -1`, `lfs mkdir -i -1`).
//!
//! The MDT of the parent chooses, among itself and those that it hears. They are taken in turn while they have about the same room; once
//! one has less, each gets turns in proportion to its room. What others have is asked for when a choice needs it and what is known has
//! aged; no choice waits for the answer, so the first ones are in turn.

use base::{Duration, Time};
use std::collections::{BTreeMap, BTreeSet};
use wire::mdt::Statfs;

/// Turns are shared out in such parts.
const SHARES: u32 = 1000;

#[derive(Debug)]
pub struct BySpace {
    /// What the other MDTs have said.
    known: BTreeMap<u16, Statfs>,
    asked_at: Option<Time>,
    /// How much of a turn each that gets any is owed. The sum is zero.
    owed: BTreeMap<u16, i64>,
    threshold_percent: u8,
    age_max: Duration,
    /// They get no new directories while there is another one.
    drained: BTreeSet<u16>,
}

impl Default for BySpace {
    fn default() -> BySpace {
        BySpace {
            known: BTreeMap::new(),
            asked_at: None,
            owed: BTreeMap::new(),
            threshold_percent: 5,
            age_max: Duration::from_secs(60),
            drained: BTreeSet::new(),
        }
    }
}

impl BySpace {
    /// Whether the others are to be asked now. They count as asked then.
    pub fn must_ask(&mut self, now: Time) -> bool {
        let is_old = self.asked_at.is_none_or(|at| at.after(self.age_max) <= now);
        if is_old {
            self.asked_at = Some(now);
        }
        is_old
    }

    pub fn note(&mut self, mdt: u16, space: Statfs) {
        self.known.insert(mdt, space);
    }

    /// What an operator drains.
    pub fn drained(&self) -> &BTreeSet<u16> {
        &self.drained
    }

    pub fn drain(&mut self, mdts: BTreeSet<u16>) {
        self.drained = mdts;
    }

    /// By how much, in percent, rooms may differ and count as the same.
    pub fn threshold_percent(&self) -> u8 {
        self.threshold_percent
    }

    /// 100 for turns that regard no room.
    pub fn set_threshold_percent(&mut self, percent: u8) {
        self.threshold_percent = percent.min(100);
    }

    pub fn age_max(&self) -> Duration {
        self.age_max
    }

    pub fn set_age_max(&mut self, age: Duration) {
        self.age_max = age;
    }

    /// The next MDT: this one, `own`, or one of the `others`, which can be reached.
    pub fn choose(&mut self, own: u16, own_space: &Statfs, others: &[u16]) -> u16 {
        // In turn from this one on, so that not all MDTs begin with the same.
        let mut mdts = others.to_vec();
        mdts.retain(|mdt| *mdt != own);
        mdts.push(own);
        mdts.sort_unstable();
        mdts.dedup();
        if mdts.iter().any(|mdt| !self.drained.contains(mdt)) {
            mdts.retain(|mdt| !self.drained.contains(mdt));
        }
        let from_own = mdts.partition_point(|mdt| *mdt < own);
        mdts.rotate_left(from_own);
        let shares = self.shares(own, own_space, &mdts);
        let with_room: Vec<(u16, i64)> =
            mdts.into_iter().zip(shares).filter(|(_, share)| *share > 0).collect();
        let are_same = with_room.len() == self.owed.len()
            && with_room.iter().all(|(mdt, _)| self.owed.contains_key(mdt));
        if !are_same {
            // Who was away or full is owed nothing for that, and owes nothing.
            self.owed = with_room.iter().map(|(mdt, _)| (*mdt, 0)).collect();
        }
        let mut chosen = (own, i64::MIN);
        let mut all = 0;
        for (mdt, share) in with_room {
            let owed = self.owed.entry(mdt).or_default();
            *owed += share;
            all += share;
            if *owed > chosen.1 {
                chosen = (mdt, *owed);
            }
        }
        if let Some(owed) = self.owed.get_mut(&chosen.0) {
            *owed -= all;
        }
        chosen.0
    }

    fn shares(&self, own: u16, own_space: &Statfs, mdts: &[u16]) -> Vec<i64> {
        let room_of = |mdt: &u16| match self.known.get(mdt) {
            _ if *mdt == own => Some(room(own_space)),
            known => known.map(room),
        };
        // As much as who has most room: what is owed from one way to share is small in the other.
        let in_turn = vec![i64::from(SHARES); mdts.len()];
        // Nobody is preferred to who has not said yet what it has.
        let Some(rooms) = mdts.iter().map(room_of).collect::<Option<Vec<u128>>>() else { return in_turn };
        let (least, most) = (rooms.iter().min().copied(), rooms.iter().max().copied());
        let (Some(least), Some(most @ 1..)) = (least, most) else { return in_turn };
        if (most - least) / most.div_ceil(100) <= u128::from(self.threshold_percent) {
            return in_turn;
        }
        let step = most.div_ceil(u128::from(SHARES));
        // Who has any room gets some; who has none, none.
        rooms.iter().map(|room| room.div_ceil(step) as i64).collect()
    }
}

/// An MDT is full when either is gone.
fn room(space: &Statfs) -> u128 {
    u128::from(space.bytes_available) * u128::from(space.inodes_free)
}

#[cfg(test)]
mod tests;
