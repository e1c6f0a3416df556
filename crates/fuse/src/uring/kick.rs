//! Queues that ran dry.
//!
//! When all entries of a queue are out, the kernel lists what comes next behind them, and looks at that list only when an
//! answer is committed: one request per commit. Entries that are registered later serve what comes later. So if all entries
//! hold blocked locks, the listed requests (the unlock among them) would wait for ever. A short-lived thread on that CPU
//! sends requests of its own through the new entries; the ring thread answers them at once, and each such commit takes one
//! request off the list.
//!
//! Whoever waits for a request that was taken cannot be killed, and the kernel lets a connection go only with the last
//! descriptor of it. So such a thread has none: otherwise it would keep the connection of a process that is killed in that
//! moment, which nobody serves any more, and all callers of the mount with it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::sys;

#[cfg(test)]
mod tests;

/// Requests taken off a list by one thread at most; whoever finds the queue dry again starts another.
const KICKS_MAX: usize = 4096;

/// The threads that run, whose requests are answered at once.
#[derive(Debug, Default)]
pub(super) struct Kickers {
    ids: Mutex<Vec<u32>>,
    count: AtomicUsize,
}

impl Kickers {
    fn ids(&self) -> MutexGuard<'_, Vec<u32>> {
        self.ids.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether the thread is one of them.
    pub fn is_one(&self, id: u32) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && self.ids().contains(&id)
    }

    fn enter(&self, id: u32) {
        self.ids().push(id);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    fn leave(&self, id: u32) {
        self.count.fetch_sub(1, Ordering::SeqCst);
        self.ids().retain(|&other| other != id);
    }
}

/// Starts a thread that empties the list of a CPU's queue, of whose thread `taken_count` tells how many requests it has taken.
/// Call it after the new entries were submitted.
///
/// What the thread shares with others must own no descriptor: it has no way to close it.
pub(super) fn start(kickers: &Arc<Kickers>, taken_count: &Arc<AtomicU64>, path: &Path, cpu: usize) {
    let (kickers, taken_count, path) = (kickers.clone(), taken_count.clone(), path.to_owned());
    let spawned = std::thread::Builder::new().name("fuse-kick".into()).spawn(move || {
        // With descriptors it would be a danger.
        if let Err(error) = sys::pin_to_cpu(cpu).and_then(|()| sys::leave_descriptors()) {
            tracing::warn!(%error, cpu, "cannot empty the queue of a CPU: calls there may wait for others that are blocked");
            return;
        }
        let own_id = sys::thread_id();
        kickers.enter(own_id);
        let mut quiet_rounds = 0;
        for _ in 0..KICKS_MAX {
            let before = taken_count.load(Ordering::SeqCst);
            sys::statfs_probe(&path);
            // The ring thread is on this CPU: let it take what the commit brought, longer when it seems to be the end.
            std::thread::sleep(Duration::from_micros(200 << (2 * quiet_rounds)));
            let taken = taken_count.load(Ordering::SeqCst) - before;
            // One of them was ours.
            quiet_rounds = if taken > 1 { 0 } else { quiet_rounds + 1 };
            if quiet_rounds > 3 {
                break;
            }
        }
        kickers.leave(own_id);
    });
    if let Err(error) = spawned {
        tracing::error!(%error, cpu, "cannot start a thread to empty the queue of a CPU");
    }
}
