//! The committer: one thread that syncs the log, as soon as somebody asks or after the interval, and moves the
//! durable mark. While it syncs, further batches gather for the next round; it never delays to gather.

use super::{Shared, lock};
use crate::device;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use store::StoreError;

#[derive(Default)]
struct Wanted {
    kicked: bool,
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
}

impl Committer {
    pub fn new(interval: Duration) -> Committer {
        Committer {
            interval,
            wanted: Mutex::default(),
            wake: Condvar::new(),
            round_ended: Condvar::new(),
            has_applied: AtomicBool::new(false),
        }
    }

    pub fn note_applied(&self) {
        if !self.has_applied.swap(true, Ordering::AcqRel) {
            lock(&self.wanted).oldest = Some(Instant::now());
            self.wake.notify_one();
        }
    }

    pub fn kick(&self) {
        let mut wanted = lock(&self.wanted);
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

    /// Waits for work; false to stop.
    fn wait_for_work(&self) -> bool {
        let mut wanted = lock(&self.wanted);
        loop {
            if wanted.stopped {
                return false;
            }
            let due_in = wanted.oldest.map(|since| self.interval.saturating_sub(since.elapsed()));
            if wanted.kicked || due_in == Some(Duration::ZERO) {
                wanted.kicked = false;
                wanted.oldest = None;
                self.has_applied.store(false, Ordering::Release);
                return true;
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
    while shared.committer.wait_for_work() {
        // The error is in the store's poison; nothing is tried again.
        let _ = shared.sync_round();
        shared.committer.announce();
    }
}

impl Shared {
    /// Makes everything applied so far durable, and says so.
    pub(super) fn sync_round(&self) -> Result<(), StoreError> {
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
        let _ = self.sync_round();
        if self.check_sound().is_err() {
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
