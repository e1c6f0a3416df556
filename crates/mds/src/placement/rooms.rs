//! Which OSTs are full or away, and how new objects are shared out among the others.
//!
//! One that says that it has hardly any room gets none, until it has clearly more: Lustre's `osp.*.reserved_mb_low` and `_high`, with its
//! defaults. The others take turns while they have about the same room (`lod.*.qos_threshold_rr`), and get objects in proportion to it
//! otherwise. Only room counts that an OST tells, and that is after its own reserve. One that has not answered from one round of questions
//! to the next is away: who wrote there would wait, and what was known of its room says nothing.

use crate::spaces::Spaces;
use base::Duration;
use std::collections::BTreeSet;
use wire::mdt::Statfs;

/// As Lustre's.
const THRESHOLD_PERCENT: u8 = 17;
const AGE_MAX: Duration = Duration::from_secs(5);

/// Below this part of its device an OST is full…
const LOW_PART: u64 = 1000;
/// … or below so many bytes, which is one stripe unit, whichever is more…
const LOW_BYTES_MIN: u64 = 1 << 20;
/// … or so few inodes, where the file system below counts them.
const LOW_INODES: u64 = 32;

/// What is known of the room of OSTs.
#[derive(Debug)]
pub struct Rooms {
    spaces: Spaces,
    full: BTreeSet<u16>,
    /// Who has been asked and has not answered.
    asked: BTreeSet<u16>,
    away: BTreeSet<u16>,
}

impl Default for Rooms {
    fn default() -> Rooms {
        Rooms {
            spaces: Spaces::new(THRESHOLD_PERCENT, AGE_MAX),
            full: BTreeSet::new(),
            asked: BTreeSet::new(),
            away: BTreeSet::new(),
        }
    }
}

impl Rooms {
    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    pub fn spaces_mut(&mut self) -> &mut Spaces {
        &mut self.spaces
    }

    /// All of these are asked now.
    pub fn note_asked(&mut self, osts: &[u16]) {
        self.away = std::mem::take(&mut self.asked);
        self.asked = osts.iter().copied().collect();
    }

    /// It has answered, whatever. Whether it was taken for away.
    pub fn note_heard(&mut self, ost: u16) -> bool {
        self.asked.remove(&ost);
        self.away.remove(&ost)
    }

    /// OSTs of one file system have the same room, and what was said last counts: answers of different moments are no reason to prefer one.
    pub fn note(&mut self, ost: u16, space: Statfs) {
        self.spaces.note(ost, space);
        let same: BTreeSet<u16> = self.spaces.beside(&space).collect();
        let was_full = !same.is_disjoint(&self.full);
        let is_full = if was_full { !has_room_again(&space) } else { is_full(&space) };
        for ost in same {
            self.spaces.note(ost, space);
            if is_full {
                self.full.insert(ost)
            } else {
                self.full.remove(&ost)
            };
        }
    }

    /// Those of them that get new objects, and how these are shared out; `None`: in turn. Where all are full, or away, those are dealt to:
    /// they say themselves what is wrong.
    pub fn open(&self, osts: &[u16]) -> (Vec<u16>, Option<Vec<(u16, i64)>>) {
        let without = |osts: &[u16], those: &BTreeSet<u16>| -> Vec<u16> {
            osts.iter().copied().filter(|ost| !those.contains(ost)).collect()
        };
        let heard = Some(without(osts, &self.away)).filter(|heard| !heard.is_empty());
        let heard = heard.unwrap_or_else(|| osts.to_vec());
        let open = without(&heard, &self.full);
        if open.is_empty() {
            return (heard, None);
        }
        let shares = self.shares(&open);
        (open, shares)
    }

    fn shares(&self, osts: &[u16]) -> Option<Vec<(u16, i64)>> {
        let room_of = |ost: &u16| self.spaces.get(*ost).map(|space| u128::from(space.bytes_available));
        let shares = self.spaces.shares(osts.iter().map(room_of))?;
        Some(osts.iter().copied().zip(shares).filter(|(_, share)| *share > 0).collect())
    }
}

fn low_bytes(space: &Statfs) -> u64 {
    (space.bytes_total / LOW_PART).max(LOW_BYTES_MIN)
}

fn is_full(space: &Statfs) -> bool {
    space.bytes_available < low_bytes(space) || space.inodes_total > 0 && space.inodes_free < LOW_INODES
}

/// Twice of what makes it full, and a little more.
fn has_room_again(space: &Statfs) -> bool {
    space.bytes_available > low_bytes(space).saturating_mul(2).saturating_add(LOW_BYTES_MIN)
        && (space.inodes_total == 0 || space.inodes_free > 2 * LOW_INODES)
}
