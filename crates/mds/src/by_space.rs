//! On which MDT a new directory is placed where that is to be chosen by space (`lfs setdirstripe -D -i -1`, `lfs mkdir -i -1`).
//!
//! The MDT of the parent chooses, among itself and those that it hears. They are taken in turn while they have about the same room; once
//! one has less, each gets turns in proportion to its room. What others have is asked for when a choice needs it and what is known has
//! aged; no choice waits for the answer, so the first ones are in turn.

use crate::spaces::{Owed, Spaces, equal_shares};
use base::Duration;
use std::collections::BTreeSet;
use wire::mdt::Statfs;

/// As Lustre's.
const THRESHOLD_PERCENT: u8 = 5;
const AGE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct BySpace {
    /// Of the other MDTs.
    spaces: Spaces,
    owed: Owed,
    /// They get no new directories while there is another one.
    drained: BTreeSet<u16>,
}

impl Default for BySpace {
    fn default() -> BySpace {
        let spaces = Spaces::new(THRESHOLD_PERCENT, AGE_MAX);
        BySpace { spaces, owed: Owed::default(), drained: BTreeSet::new() }
    }
}

impl BySpace {
    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    pub fn spaces_mut(&mut self) -> &mut Spaces {
        &mut self.spaces
    }

    /// What an operator drains.
    pub fn drained(&self) -> &BTreeSet<u16> {
        &self.drained
    }

    pub fn drain(&mut self, mdts: BTreeSet<u16>) {
        self.drained = mdts;
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
        let room_of = |mdt: &u16| match self.spaces.get(*mdt) {
            _ if *mdt == own => Some(room(own_space)),
            known => known.map(room),
        };
        let shares = self.spaces.shares(mdts.iter().map(room_of));
        let shares = shares.unwrap_or_else(|| equal_shares(mdts.len()));
        let with_room: Vec<(u16, i64)> =
            mdts.into_iter().zip(shares).filter(|(_, share)| *share > 0).collect();
        self.owed.next(&with_room, 1).first().copied().unwrap_or(own)
    }
}

/// An MDT is full when either is gone.
fn room(space: &Statfs) -> u128 {
    u128::from(space.bytes_available) * u128::from(space.inodes_free)
}

#[cfg(test)]
mod tests;
