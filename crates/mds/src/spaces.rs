//! What other targets have said of their room, and how turns are shared out by it: of MDTs for `by_space`, of OSTs for `placement`.

use base::{Duration, Time};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use wire::mdt::Statfs;

/// What each gets when all have as much, and who has most room otherwise.
const SHARES: u32 = 1000;

/// What is known, and when it has aged. Nobody waits for an answer.
#[derive(Debug)]
pub struct Spaces {
    known: BTreeMap<u16, Statfs>,
    asked_at: Option<Time>,
    threshold_percent: u8,
    age_max: Duration,
}

impl Spaces {
    pub fn new(threshold_percent: u8, age_max: Duration) -> Spaces {
        Spaces { known: BTreeMap::new(), asked_at: None, threshold_percent, age_max }
    }

    /// Whether all are to be asked now. They count as asked then.
    pub fn must_ask(&mut self, now: Time) -> bool {
        let is_old = self.asked_at.is_none_or(|at| at.after(self.age_max) <= now);
        if is_old {
            self.asked_at = Some(now);
        }
        is_old
    }

    pub fn note(&mut self, index: u16, space: Statfs) {
        self.known.insert(index, space);
    }

    pub fn get(&self, index: u16) -> Option<&Statfs> {
        self.known.get(&index)
    }

    /// Who has said that its room is of the same file system. On one device with quotas each has what its own leaves.
    pub fn beside(&self, space: &Statfs) -> impl Iterator<Item = u16> {
        let same = (space.device, space.bytes_total);
        let is_beside = move |known: &Statfs| (known.device, known.bytes_total) == same;
        self.known.iter().filter(move |(_, known)| is_beside(known)).map(|(index, _)| *index)
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

    /// The share of each in the turns, in proportion to its room; `None` while they have about the same, or one has not said what it has:
    /// nobody is preferred to that.
    pub fn shares(&self, rooms: impl IntoIterator<Item = Option<u128>>) -> Option<Vec<i64>> {
        let rooms = rooms.into_iter().collect::<Option<Vec<u128>>>()?;
        let (least, most) = (rooms.iter().min().copied()?, rooms.iter().max().copied()?);
        if most == 0 || (most - least) / most.div_ceil(100) <= u128::from(self.threshold_percent) {
            return None;
        }
        let step = most.div_ceil(u128::from(SHARES));
        // Who has any room gets some; who has none, none.
        Some(rooms.iter().map(|room| room.div_ceil(step) as i64).collect())
    }
}

/// The shares of so many that take turns. As much as who has most room: what is owed from one way to share is small in the other.
pub fn equal_shares(count: usize) -> Vec<i64> {
    vec![i64::from(SHARES); count]
}

/// How much of a turn each that gets any is owed.
#[derive(Clone, Debug, Default)]
pub struct Owed(BTreeMap<u16, i64>);

impl Owed {
    /// Those whose turn it is next, `count` different ones of `shares` or as many as there are, whoever is owed most first. Nobody has a
    /// share of 0.
    pub fn next(&mut self, shares: &[(u16, i64)], count: usize) -> Vec<u16> {
        let are_same = shares.len() == self.0.len() && shares.iter().all(|(it, _)| self.0.contains_key(it));
        if !are_same {
            // Who was away or full is owed nothing for that, and owes nothing.
            self.0 = shares.iter().map(|(it, _)| (*it, 0)).collect();
        }
        let whole: i64 = shares.iter().map(|(_, share)| share).sum();
        for (it, share) in shares {
            *self.0.entry(*it).or_default() += share * count as i64;
        }
        // In their order where they are owed the same.
        let mut next: Vec<u16> = shares.iter().map(|(it, _)| *it).collect();
        next.sort_by_key(|it| Reverse(self.0.get(it).copied()));
        next.truncate(count);
        for it in &next {
            *self.0.entry(*it).or_default() -= whole;
        }
        // One that would be due more than once in a file, or is in each for want of others, is not made up for later.
        self.0.values_mut().for_each(|owed| *owed = (*owed).clamp(-whole, whole));
        next
    }
}

#[cfg(test)]
mod tests;
