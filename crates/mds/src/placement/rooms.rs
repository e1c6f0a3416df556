//! Which OSTs are full, and how new objects are shared out among the others.
//!
//! One that says that it has hardly any room gets none, until it has clearly more: Lustre's `osp.*.reserved_mb_low` and `_high`, with its
//! defaults. The others take turns while they have about the same room (`lod.*.qos_threshold_rr`), and get objects in proportion to it
//! otherwise. Only room counts that an OST tells, and that is after its own reserve.

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
}

impl Default for Rooms {
    fn default() -> Rooms {
        Rooms { spaces: Spaces::new(THRESHOLD_PERCENT, AGE_MAX), full: BTreeSet::new() }
    }
}

impl Rooms {
    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    pub fn spaces_mut(&mut self) -> &mut Spaces {
        &mut self.spaces
    }

    /// OSTs of one device have the same room, and what was said last counts: answers of different moments are no reason to prefer one.
    pub fn note(&mut self, ost: u16, space: Statfs) {
        self.spaces.note(ost, space);
        let same: BTreeSet<u16> = self.spaces.on_device(space.device).collect();
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

    /// Those of them that get new objects; `None`: all are full.
    pub fn open(&self, osts: &[u16]) -> Option<Vec<u16>> {
        let open: Vec<u16> = osts.iter().copied().filter(|ost| !self.full.contains(ost)).collect();
        Some(open).filter(|open| !open.is_empty())
    }

    /// How new objects are shared out among these; `None`: in turn.
    pub fn shares(&self, osts: &[u16]) -> Option<Vec<(u16, i64)>> {
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
