//! Rows of the base that were read or written lately, so that a lookup seldom goes there. Bounded in bytes.
//!
//! A row that a reader brings is let in only if no checkpoint has finished since it began to look (`generation`):
//! otherwise it could be older than what the checkpoint put into the base, and an update would be lost.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Enough that readers on a handful of cores seldom meet.
const SHARD_COUNT: usize = 16;
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

pub(crate) struct RowCache {
    shards: Vec<Mutex<Shard>>,
    shard_bytes_max: AtomicUsize,
    generation: AtomicU64,
    hit_count: AtomicU64,
    miss_count: AtomicU64,
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
    pub fn new(bytes_max: usize) -> RowCache {
        RowCache {
            shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
            shard_bytes_max: AtomicUsize::new(bytes_max / SHARD_COUNT),
            generation: AtomicU64::new(0),
            hit_count: AtomicU64::new(0),
            miss_count: AtomicU64::new(0),
        }
    }

    /// What is beyond a smaller budget goes at once.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.shard_bytes_max.store(bytes_max / SHARD_COUNT, Ordering::Relaxed);
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            shard.shrink_to(bytes_max / SHARD_COUNT);
        }
    }

    fn shard_bytes_max(&self) -> usize {
        self.shard_bytes_max.load(Ordering::Relaxed)
    }

    pub fn usage(&self) -> Use {
        let mut usage = Use {
            hit_count: self.hit_count.load(Ordering::Relaxed),
            miss_count: self.miss_count.load(Ordering::Relaxed),
            ..Use::default()
        };
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            usage.byte_count += shard.byte_count as u64;
            usage.row_count += shard.entries.len() as u64;
        }
        usage
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        let index = crc32c::crc32c(key) as usize % SHARD_COUNT;
        let shard = self.shards.get(index).expect("the index is below the shard count");
        shard.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
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
        let mut shard = self.shard(key);
        let entry = shard.entries.get_mut(key);
        let count = if entry.is_some() { &self.hit_count } else { &self.miss_count };
        count.fetch_add(1, Ordering::Relaxed);
        let entry = entry?;
        entry.was_used = true;
        Some(entry.row.clone())
    }

    /// A row that was read from the base.
    pub fn insert(&self, key: &[u8], row: Row, generation: u64) {
        let mut shard = self.shard(key);
        if self.generation() == generation {
            shard.put(key, row, self.shard_bytes_max());
        }
    }

    /// A row that a checkpoint has put into the base. Kept, for what was written lately is read again.
    pub fn update(&self, key: &[u8], row: Row) {
        self.shard(key).put(key, row, self.shard_bytes_max());
    }

    #[cfg(test)]
    fn byte_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().expect("no test panics inside").byte_count).sum()
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
