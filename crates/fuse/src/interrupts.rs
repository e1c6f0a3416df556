//! INTERRUPT messages travel apart from the requests that they are about and may overtake them.
//!
//! [`Early`] keeps those whose request no thread has handed over yet. The order of steps makes sure that exactly one side
//! delivers: the reader of an INTERRUPT puts it here and *then* looks for the request; the taker of a request marks it as
//! handed over and *then* looks here; whoever takes the number out delivers it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// An early INTERRUPT overtakes its request by microseconds. What is older was answered before the INTERRUPT came.
const KEEP: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Early {
    count: AtomicUsize,
    list: Mutex<Vec<(u64, Instant)>>,
}

impl Early {
    pub fn put(&self, unique: u64) {
        let mut list = self.list.lock().unwrap_or_else(|e| e.into_inner());
        list.retain(|(_, since)| since.elapsed() < KEEP);
        list.push((unique, Instant::now()));
        self.count.store(list.len(), Ordering::SeqCst);
    }

    /// True for the one caller that takes the number out.
    pub fn take(&self, unique: u64) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut list = self.list.lock().unwrap_or_else(|e| e.into_inner());
        let found = list.iter().position(|&(number, _)| number == unique);
        if let Some(at) = found {
            list.swap_remove(at);
        }
        self.count.store(list.len(), Ordering::SeqCst);
        found.is_some()
    }
}

const SHARD_COUNT: usize = 16;

/// The unanswered requests of the `/dev/fuse` transport, sharded by number. A shard is short: a scan is cheapest.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    shards: [Mutex<Vec<(u64, bool)>>; SHARD_COUNT],
}

impl InFlight {
    fn shard(&self, unique: u64) -> std::sync::MutexGuard<'_, Vec<(u64, bool)>> {
        // The kernel counts requests in steps of 2.
        let index = (unique >> 1) as usize % SHARD_COUNT;
        self.shards[index].lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn insert(&self, unique: u64) {
        self.shard(unique).push((unique, false));
    }

    pub fn remove(&self, unique: u64) {
        self.shard(unique).retain(|&(number, _)| number != unique);
    }

    /// The handler has the request now.
    pub fn mark_handed_over(&self, unique: u64) {
        for entry in self.shard(unique).iter_mut().filter(|entry| entry.0 == unique) {
            entry.1 = true;
        }
    }

    /// True if the handler has the request and has not answered.
    pub fn is_handed_over(&self, unique: u64) -> bool {
        self.shard(unique).contains(&(unique, true))
    }
}
