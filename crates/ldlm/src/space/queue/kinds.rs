//! Entries of one queue by what they can be in conflict with: an entry looks at those alone whose modes and parts are in its way, however
//! many others there are.

use super::Entry;
use crate::mode::is_compatible;
use base::Extent;
use std::collections::BTreeMap;
use wire::{LockMode, LockPolicy};

/// Entries that are in everybody's way alike, but for their bytes. Those of similar lengths are together: of entries that do
/// not overlap each other only few begin before some bytes and reach them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    mode: LockMode,
    /// Inode bits; all of them for what has none.
    mask: u32,
    /// Each is at most twice as long as this power of two.
    length_log2: u32,
}

impl Kind {
    fn is_in_way_of(&self, mode: LockMode, mask: u32) -> bool {
        !is_compatible(self.mode, mode) && self.mask & mask != 0
    }

    fn length_bytes_max(&self) -> u64 {
        1u64.checked_shl(self.length_log2 + 1).unwrap_or(u64::MAX)
    }

    /// Those of this kind that begin before some bytes and reach them.
    fn begun_before(self, extent: Extent, spans: &Spans) -> impl Iterator<Item = (&(u64, u64), &u64)> {
        let first = extent.start.saturating_sub(self.length_bytes_max());
        spans.range((first, 0)..(extent.start, 0)).filter(move |(_, end)| **end > extent.start)
    }
}

/// Bits and bytes of a policy: all of those that it does not name.
fn part_of(policy: LockPolicy) -> (u32, Extent) {
    let whole = Extent::new(0, u64::MAX);
    match policy {
        LockPolicy::Plain => (u32::MAX, whole),
        LockPolicy::Bits(mask) => (mask, whole),
        LockPolicy::Extent(extent) => (u32::MAX, extent),
    }
}

/// By where they start and by number, with where they end.
type Spans = BTreeMap<(u64, u64), u64>;

#[derive(Debug, Default)]
pub struct Kinds(BTreeMap<Kind, Spans>);

impl Kinds {
    pub fn insert(&mut self, entry: &Entry) {
        let (kind, extent) = place_of(entry);
        self.0.entry(kind).or_default().insert((extent.start, entry.number), extent.end);
    }

    pub fn remove(&mut self, entry: &Entry) {
        let (kind, extent) = place_of(entry);
        if let Some(spans) = self.0.get_mut(&kind) {
            spans.remove(&(extent.start, entry.number));
            if spans.is_empty() {
                self.0.remove(&kind);
            }
        }
    }

    fn in_way_of(&self, entry: Entry) -> impl Iterator<Item = (&Kind, &Spans)> {
        let (mode, (mask, _)) = (entry.mode, part_of(entry.policy));
        self.0.iter().filter(move |(kind, _)| kind.is_in_way_of(mode, mask))
    }

    /// Numbers of those that an entry conflicts with, whoever they are.
    pub fn conflicting(&self, entry: Entry) -> impl Iterator<Item = u64> {
        let (_, extent) = part_of(entry.policy);
        self.in_way_of(entry).flat_map(move |(kind, spans)| {
            kind.begun_before(extent, spans)
                .chain(spans.range((extent.start, 0)..(extent.end, 0)))
                .map(|((_, number), _)| *number)
        })
    }

    /// The same but for those that begin where it begins.
    pub fn conflicting_unlike(&self, entry: Entry) -> impl Iterator<Item = u64> {
        let (_, extent) = part_of(entry.policy);
        self.in_way_of(entry).flat_map(move |(kind, spans)| {
            kind.begun_before(extent, spans)
                .chain(spans.range((extent.start.saturating_add(1), 0)..(extent.end, 0)))
                .map(|((_, number), _)| *number)
        })
    }

    /// The last of those before an entry that begin where it begins and conflict with it.
    pub fn last_alike(&self, entry: Entry, is_meant: impl Fn(u64) -> bool) -> Option<u64> {
        let (_, extent) = part_of(entry.policy);
        let alike = self.in_way_of(entry).filter_map(|(_, spans)| {
            let before = spans.range((extent.start, 0)..(extent.start, entry.number));
            before.rev().map(|((_, number), _)| *number).find(|number| is_meant(*number))
        });
        alike.max()
    }

    /// How far an entry for these bytes may grow down and up, until it meets one that is meant and in conflict with it, and overlaps it not.
    pub fn room_around(&self, entry: Entry, wanted: Extent, is_meant: impl Fn(u64) -> bool) -> Extent {
        let mut room = Extent::new(0, u64::MAX);
        for (kind, spans) in self.in_way_of(entry) {
            for ((start, number), end) in spans.range(..(wanted.start, 0)).rev() {
                if start.saturating_add(kind.length_bytes_max()) <= room.start {
                    break;
                }
                if *end <= wanted.start && is_meant(*number) {
                    room.start = room.start.max(*end);
                }
            }
            let mut above = spans.range((wanted.end, 0)..);
            if let Some(((start, _), _)) = above.find(|((_, number), _)| is_meant(*number)) {
                room.end = room.end.min(*start);
            }
        }
        room
    }

    pub fn has(&self, entry: &Entry) -> bool {
        let (kind, extent) = place_of(entry);
        self.0.get(&kind).is_some_and(|spans| spans.get(&(extent.start, entry.number)) == Some(&extent.end))
    }
}

fn place_of(entry: &Entry) -> (Kind, Extent) {
    let (mask, extent) = part_of(entry.policy);
    let length_log2 = extent.end.saturating_sub(extent.start).max(1).ilog2();
    (Kind { mode: entry.mode, mask, length_log2 }, extent)
}
