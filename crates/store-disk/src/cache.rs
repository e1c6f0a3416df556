//! Rows of the base that were read or written lately, so that a lookup seldom goes there. Bounded in bytes.
//!
//! A row that a reader brings is let in only if no checkpoint has finished since it began to look (`generation`):
//! otherwise it could be older than what the checkpoint put into the base, and an update would be lost.
//!
//! Rows that are file data have a share of their own: each is as large as a hundred others, so that reading some files would take the
//! memory of all inodes. What they have not come to use of it other rows have.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::Table;

/// Enough that readers on a handful of cores seldom meet.
const SHARD_COUNT: usize = 16;
/// Of file data: fewer, for a shard must have room for some rows of 16 KiB where the budget is small.
const DATA_SHARD_COUNT: usize = 4;
/// Of the budget, for a store that has file data.
const DATA_SHARE: usize = 4;
/// Data come into their share by such parts of it.
const DATA_STEP_COUNT: usize = 8;
/// What an entry costs beyond its key and value: map slot, queue entry, allocations.
const ENTRY_BYTES: usize = 160;

/// A row, or the knowledge that there is none.
pub(crate) type Row = Option<Arc<[u8]>>;

struct Entry {
    row: Row,
    was_used: bool,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Arc<[u8]>, Entry>,
    /// Clock order: the front goes next, unless it was used since it came to the back.
    queue: VecDeque<Arc<[u8]>>,
    byte_count: usize,
}

/// Shards with a budget.
struct Part {
    shards: Vec<Mutex<Shard>>,
    shard_bytes_max: AtomicUsize,
}

pub(crate) struct RowCache {
    rows: Part,
    data: Part,
    data_table: Option<Table>,
    budget: Mutex<Budget>,
    generation: AtomicU64,
    hit_count: AtomicU64,
    miss_count: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct Budget {
    bytes_max: usize,
    /// What data have come into.
    data_bytes: usize,
}

/// What the cache holds, and how often it knew a row since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    pub byte_count: u64,
    pub row_count: u64,
    pub hit_count: u64,
    pub miss_count: u64,
}

impl RowCache {
    /// Rows of `data_table` are file data.
    pub fn new(bytes_max: usize, data_table: Option<Table>) -> RowCache {
        let cache = RowCache {
            rows: Part::new(SHARD_COUNT),
            data: Part::new(DATA_SHARD_COUNT),
            data_table,
            budget: Mutex::default(),
            generation: AtomicU64::new(0),
            hit_count: AtomicU64::new(0),
            miss_count: AtomicU64::new(0),
        };
        cache.set_bytes_max(bytes_max);
        cache
    }

    /// What is beyond a smaller budget goes at once.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        self.data.set_bytes_max(bytes_max / DATA_SHARE);
        *budget = Budget { bytes_max, data_bytes: self.wanted_by_data(bytes_max) };
        self.rows.set_bytes_max(bytes_max - budget.data_bytes);
    }

    /// What is rounded up to a step of the share.
    fn wanted_by_data(&self, bytes_max: usize) -> usize {
        let share_bytes = bytes_max / DATA_SHARE;
        let step_bytes = (share_bytes / DATA_STEP_COUNT).max(1);
        self.data.byte_count().next_multiple_of(step_bytes).min(share_bytes)
    }

    /// Data have come: other rows go for as much as these have never had before.
    fn make_room_for_data(&self) {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted_bytes = self.wanted_by_data(budget.bytes_max);
        if wanted_bytes > budget.data_bytes {
            budget.data_bytes = wanted_bytes;
            self.rows.set_bytes_max(budget.bytes_max - wanted_bytes);
        }
    }

    pub fn usage(&self) -> Use {
        let mut usage = Use {
            hit_count: self.hit_count.load(Ordering::Relaxed),
            miss_count: self.miss_count.load(Ordering::Relaxed),
            ..Use::default()
        };
        for shard in self.rows.shards.iter().chain(&self.data.shards) {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            usage.byte_count += shard.byte_count as u64;
            usage.row_count += shard.entries.len() as u64;
        }
        usage
    }

    /// A key begins with its table's number.
    fn is_data(&self, key: &[u8]) -> bool {
        self.data_table.is_some() && key.first().copied() == self.data_table
    }

    fn part(&self, key: &[u8]) -> &Part {
        if self.is_data(key) { &self.data } else { &self.rows }
    }

    /// To be read before looking at the overlay, and handed to `insert`.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// A checkpoint is in the base. To be called before its rows are given to `update`.
    pub fn advance_generation(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// `None` if the cache does not know.
    pub fn get(&self, key: &[u8]) -> Option<Row> {
        let mut shard = self.part(key).shard(key);
        let entry = shard.entries.get_mut(key);
        let count = if entry.is_some() { &self.hit_count } else { &self.miss_count };
        count.fetch_add(1, Ordering::Relaxed);
        let entry = entry?;
        entry.was_used = true;
        Some(entry.row.clone())
    }

    /// A row that was read from the base.
    pub fn insert(&self, key: &[u8], row: Row, generation: u64) {
        let part = self.part(key);
        let mut shard = part.shard(key);
        if self.generation() == generation {
            shard.put(key, row, part.shard_bytes_max());
        }
        drop(shard);
        if self.is_data(key) {
            self.make_room_for_data();
        }
    }

    /// A row that a checkpoint has put into the base. Kept, for what was written lately is read again.
    pub fn update(&self, key: &[u8], row: Row) {
        let part = self.part(key);
        part.shard(key).put(key, row, part.shard_bytes_max());
        if self.is_data(key) {
            self.make_room_for_data();
        }
    }

    #[cfg(test)]
    fn byte_count(&self) -> usize {
        self.usage().byte_count as usize
    }
}

impl Part {
    fn new(shard_count: usize) -> Part {
        let shards = (0..shard_count).map(|_| Mutex::default()).collect();
        Part { shards, shard_bytes_max: AtomicUsize::new(0) }
    }

    fn set_bytes_max(&self, bytes_max: usize) {
        let shard_bytes_max = bytes_max / self.shards.len();
        self.shard_bytes_max.store(shard_bytes_max, Ordering::Relaxed);
        for shard in &self.shards {
            shard.lock().unwrap_or_else(PoisonError::into_inner).shrink_to(shard_bytes_max);
        }
    }

    fn shard_bytes_max(&self) -> usize {
        self.shard_bytes_max.load(Ordering::Relaxed)
    }

    fn byte_count(&self) -> usize {
        let shards = self.shards.iter();
        shards.map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).byte_count).sum()
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        let index = crc32c::crc32c(key) as usize % self.shards.len();
        let shard = self.shards.get(index).expect("the index is below the shard count");
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cost(key: &[u8], row: &Row) -> usize {
    ENTRY_BYTES + key.len() + row.as_ref().map_or(0, |value| value.len())
}

impl Shard {
    fn put(&mut self, key: &[u8], row: Row, bytes_max: usize) {
        let cost_bytes = cost(key, &row);
        if let Some(entry) = self.entries.get_mut(key) {
            self.byte_count = self.byte_count - cost(key, &entry.row) + cost_bytes;
            entry.row = row;
        } else {
            let key: Arc<[u8]> = key.into();
            self.queue.push_back(key.clone());
            self.entries.insert(key, Entry { row, was_used: false });
            self.byte_count += cost_bytes;
        }
        self.shrink_to(bytes_max);
    }

    fn shrink_to(&mut self, bytes_max: usize) {
        while self.byte_count > bytes_max {
            let Some(key) = self.queue.pop_front() else { break };
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            if std::mem::take(&mut entry.was_used) {
                self.queue.push_back(key);
            } else if let Some(entry) = self.entries.remove(&key) {
                self.byte_count -= cost(&key, &entry.row);
            }
        }
    }
}

#[cfg(test)]
mod tests;
