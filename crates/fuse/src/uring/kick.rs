//! Queues that ran dry.
//!
//! When all entries of a queue are out, the kernel lists what comes next behind them, and looks at that list only when an
//! answer is committed: one request per commit. Entries that are registered later serve what comes later. So if all entries
//! hold blocked locks, the listed requests (the unlock among them) would wait for ever. A short-lived thread on that CPU
//! sends requests of its own through the new entries; the ring thread answers them at once, and each such commit takes one
//! request off the list.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Mailbox, Rings};
use crate::sys;

/// Requests taken off a list by one thread at most; whoever finds the queue dry again starts another.
const KICKS_MAX: usize = 4096;

/// Starts a thread that empties the list of a CPU's queue. Call it after the new entries were submitted.
pub(super) fn start(rings: &Arc<Rings>, mailbox: &Arc<Mailbox>, cpu: usize) {
    let (rings, mailbox) = (rings.clone(), mailbox.clone());
    let spawned = std::thread::Builder::new().name("fuse-kick".into()).spawn(move || {
        // A CPU that we may not use: its queue grows early instead.
        if sys::pin_to_cpu(cpu).is_err() {
            return;
        }
        let own_id = sys::thread_id();
        rings.kickers().push(own_id);
        rings.kicker_count.fetch_add(1, Ordering::SeqCst);
        let mut quiet_rounds = 0;
        for _ in 0..KICKS_MAX {
            let before = mailbox.taken_count.load(Ordering::SeqCst);
            sys::statfs_probe(&rings.path);
            // The ring thread is on this CPU: let it take what the commit brought, longer when it seems to be the end.
            std::thread::sleep(Duration::from_micros(200 << (2 * quiet_rounds)));
            let taken = mailbox.taken_count.load(Ordering::SeqCst) - before;
            // One of them was ours.
            quiet_rounds = if taken > 1 { 0 } else { quiet_rounds + 1 };
            if quiet_rounds > 3 {
                break;
            }
        }
        rings.kicker_count.fetch_sub(1, Ordering::SeqCst);
        rings.kickers().retain(|&id| id != own_id);
    });
    if let Err(error) = spawned {
        tracing::error!(%error, cpu, "cannot start a thread to empty the queue of a CPU");
    }
}
