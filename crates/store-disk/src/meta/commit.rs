//! The committer: one thread that syncs the log, as soon as somebody asks or after the interval, and moves the
//! durable mark. While it syncs, further batches gather for the next round; it never delays to gather.

use super::{Shared, lock};
use crate::device;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use store::StoreError;

#[derive(Default)]
struct Wanted {
    kicked: bool,
    /// Somebody waits for what the kick asks for.
    is_awaited: bool,
    stopped: bool,
    /// When the oldest batch that no round has taken was applied.
    oldest: Option<Instant>,
    /// Rounds ended, for those who wait for one.
    round_count: u64,
}

pub(super) struct Committer {
    interval: Duration,
    wanted: Mutex<Wanted>,
    wake: Condvar,
    round_ended: Condvar,
    /// Something was applied since the last round began; spares `apply` the lock.
    has_applied: AtomicBool,
    /// Rounds that had the device sync, and those of them that somebody waited for.
    sync_count: AtomicU64,
    awaited_sync_count: AtomicU64,
}

/// Why a round began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Somebody waits for it.
    Awaited,
    /// Nothing stays undurable for longer than the interval, or beyond a bound.
    Routine,
}

impl Committer {
    pub fn new(interval: Duration) -> Committer {
        Committer {
            interval,
            wanted: Mutex::default(),
            wake: Condvar::new(),
            round_ended: Condvar::new(),
            has_applied: AtomicBool::new(false),
            sync_count: AtomicU64::new(0),
            awaited_sync_count: AtomicU64::new(0),
        }
    }

    pub fn note_applied(&self) {
        if !self.has_applied.swap(true, Ordering::AcqRel) {
            lock(&self.wanted).oldest = Some(Instant::now());
            self.wake.notify_one();
        }
    }

    pub fn kick(&self, cause: Cause) {
        let mut wanted = lock(&self.wanted);
        wanted.is_awaited |= cause == Cause::Awaited;
        if !wanted.kicked {
            wanted.kicked = true;
            self.wake.notify_one();
        }
    }

    pub fn stop(&self) {
        lock(&self.wanted).stopped = true;
        self.wake.notify_one();
        self.round_ended.notify_all();
    }

    /// A round ended, or the store was poisoned.
    pub fn announce(&self) {
        lock(&self.wanted).round_count += 1;
        self.round_ended.notify_all();
    }

    /// Waits until `is_done`, asked after each round. False if the store stops first.
    pub fn wait_until(&self, is_done: impl Fn() -> bool) -> bool {
        let mut wanted = lock(&self.wanted);
        while !is_done() {
            if wanted.stopped {
                return false;
            }
            wanted = self.round_ended.wait(wanted).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// All since the store was opened, and those that somebody waited for.
    pub fn sync_counts(&self) -> (u64, u64) {
        (self.sync_count.load(Ordering::Relaxed), self.awaited_sync_count.load(Ordering::Relaxed))
    }

    fn note_synced(&self, cause: Cause) {
        self.sync_count.fetch_add(1, Ordering::Relaxed);
        if cause == Cause::Awaited {
            self.awaited_sync_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits for work; `None` to stop.
    fn wait_for_work(&self) -> Option<Cause> {
        let mut wanted = lock(&self.wanted);
        loop {
            if wanted.stopped {
                return None;
            }
            let due_in = wanted.oldest.map(|since| self.interval.saturating_sub(since.elapsed()));
            if wanted.kicked || due_in == Some(Duration::ZERO) {
                wanted.kicked = false;
                wanted.oldest = None;
                self.has_applied.store(false, Ordering::Release);
                let is_awaited = std::mem::take(&mut wanted.is_awaited);
                return Some(if is_awaited { Cause::Awaited } else { Cause::Routine });
            }
            wanted = match due_in {
                Some(due_in) => {
                    self.wake.wait_timeout(wanted, due_in).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.wake.wait(wanted).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// The thread.
pub(super) fn run(shared: &Shared) {
    while let Some(cause) = shared.committer.wait_for_work() {
        // The error is in the store's poison; nothing is tried again.
        let _ = shared.sync_round(cause);
        shared.committer.announce();
    }
}

impl Shared {
    /// Makes everything applied so far durable, and says so.
    pub(super) fn sync_round(&self, cause: Cause) -> Result<(), StoreError> {
        self.check_sound()?;
        let (applied, appended_bytes, files) = {
            let mut log = lock(&self.log);
            (log.last(), log.appended_bytes(), log.take_dirty())
        };
        if applied.0 == self.durable.load(Ordering::Acquire) {
            return Ok(());
        }
        for file in &files {
            self.syncing
                .sync_data(file)
                .map_err(|error| self.poison("sync its log", device::errno(&error)))?;
        }
        self.committer.note_synced(cause);
        assert!(applied.0 >= self.durable.load(Ordering::Acquire), "the durable mark never goes back");
        self.durable.store(applied.0, Ordering::Release);
        self.synced_bytes.store(appended_bytes, Ordering::Relaxed);
        let marked = lock(&self.log).mark(applied);
        if let Err(error) = marked {
            self.append_failed(&error);
        }
        (self.on_durable)();
        Ok(())
    }

    /// Final sync, with a durable mark behind the last batch so that its loss would be noticed.
    pub(super) fn close(&self) {
        let _ = self.sync_round(Cause::Routine);
        if self.check_sound().is_err() {
            return;
        }
        if self.check_undamaged().is_err() {
            // It has ended before, and somebody else may have it by now.
            let _ = self.poison.set(StoreError::Ended);
            return;
        }
        let durable = base::Transno(self.durable.load(Ordering::Acquire));
        let last_file = lock(&self.log).mark_and_take(durable);
        if let Ok(file) = last_file {
            let _ = self.syncing.sync_data(&file);
        }
        if durable > base::Transno::ZERO {
            // Without it a loss shows less surely; nothing is lost.
            let _ = crate::log::reached::write(&self.directory, durable, self.syncing);
        }
        let _ = self.poison.set(StoreError::Ended);
    }
}
