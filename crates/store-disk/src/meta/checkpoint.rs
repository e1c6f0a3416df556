//! The checkpointer: one nice thread that moves generations of the overlay into the base.
//!
//! A generation is frozen together with the log segments that hold it, made durable in the log, put into the base,
//! and only then dropped from memory and its segments given back. If the base has no room, the generation stays
//! and is tried again: everything in it is safe in the log.

use super::commit::Cause;
use super::{Shared, lock};
use crate::device;
use crate::log::replay::Covered;
use crate::log::{AppendError, create_segment};
use crate::overlay::Rows;
use crate::space::reserve_of;
use base::Transno;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use store::{Reserve, StoreError};

/// So many checkpoints' worth of log may gather while the device refuses to take the base.
const FAILED_CHECKPOINT_COUNT: u64 = 16;
/// Failures of which none can be a passing one.
const FAILURES_IN_A_ROW: u32 = 4;

#[derive(Clone, Copy, Default)]
struct Wanted {
    checkpoint: bool,
    spare: bool,
}

pub(super) struct Checkpointer {
    upkeep_interval: Duration,
    /// Held during a checkpoint, so that there is one at a time. What the frozen generation covers.
    pub(super) pending: Mutex<Option<Covered>>,
    wanted: Mutex<Wanted>,
    wake: Condvar,
    stopped: AtomicBool,
    is_wanted: AtomicBool,
    is_spare_wanted: AtomicBool,
    /// Log bytes when the last generation was frozen.
    frozen_at_bytes: AtomicU64,
}

impl Checkpointer {
    /// What replay found waits as the first frozen generation.
    pub fn new(pending: Option<Covered>, upkeep_interval: Duration) -> Checkpointer {
        Checkpointer {
            upkeep_interval,
            wanted: Mutex::new(Wanted { checkpoint: pending.is_some(), spare: true }),
            pending: Mutex::new(pending),
            wake: Condvar::new(),
            stopped: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            is_spare_wanted: AtomicBool::new(true),
            frozen_at_bytes: AtomicU64::new(0),
        }
    }

    pub fn note_appended(&self, appended_bytes: u64, checkpoint_bytes: u64) {
        let since = appended_bytes.saturating_sub(self.frozen_at_bytes.load(Ordering::Relaxed));
        if since >= checkpoint_bytes && !self.is_wanted.swap(true, Ordering::AcqRel) {
            lock(&self.wanted).checkpoint = true;
            self.wake.notify_one();
        }
    }

    pub fn note_spare_wanted(&self) {
        if !self.is_spare_wanted.swap(true, Ordering::AcqRel) {
            lock(&self.wanted).spare = true;
            self.wake.notify_one();
        }
    }

    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // Taken so that the thread is either waiting or has yet to look.
        drop(lock(&self.wanted));
        self.wake.notify_one();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Between two attempts: the device is not likely to change its mind at once.
    fn pause(&self) {
        let wanted = lock(&self.wanted);
        let timeout = self.wake.wait_timeout_while(wanted, self.upkeep_interval, |_| !self.is_stopped());
        drop(timeout.unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until something is wanted, or for the upkeep interval.
    fn wait(&self) -> Wanted {
        let mut wanted = lock(&self.wanted);
        if !wanted.checkpoint && !wanted.spare && !self.is_stopped() {
            let woken = self.wake.wait_timeout(wanted, self.upkeep_interval);
            wanted = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::take(&mut *wanted)
    }
}

/// The thread.
pub(super) fn run(shared: &Shared) {
    device::be_nice();
    let mut failed_count = 0;
    let replayed_bytes = lock(&shared.log).uncovered_bytes();
    while !shared.checkpointer.is_stopped() {
        let mut wanted = shared.checkpointer.wait();
        // Also one that could not be made before.
        wanted.spare |= shared.checkpointer.is_spare_wanted.load(Ordering::Acquire);
        if wanted.spare && !shared.prepare_spare() {
            // A checkpoint gives segments back.
            wanted.checkpoint = true;
        }
        if shared.look_at_base().is_err() {
            return;
        }
        // Short of space, what was deleted is to become room in the base.
        wanted.checkpoint |= shared.look_after_space() > Reserve::Ample;
        if !wanted.checkpoint || shared.checkpointer.is_stopped() {
            continue;
        }
        if let Err(error) = shared.checkpoint_one() {
            failed_count += 1;
            let path = shared.directory.display();
            tracing::warn!(%path, %error, "a checkpoint failed and will be tried again");
            if failed_count >= FAILURES_IN_A_ROW && shared.end_of_patience(&error, replayed_bytes).is_some() {
                return;
            }
            shared.checkpointer.pause();
            lock(&shared.checkpointer.wanted).checkpoint = true;
        } else {
            failed_count = 0;
            // What it gave back is as good as what could not be made; or the log has used that already, and who is refused asks again.
            shared.checkpointer.is_spare_wanted.store(false, Ordering::Release);
        }
    }
}

impl Shared {
    /// Whether the base is there as it was left: somebody may have cut it, and all that is read may be in memory for long.
    fn look_at_base(&self) -> Result<(), StoreError> {
        if let Ok(_checkpoint) = self.checkpointer.pending.try_lock() {
            // A device that cannot be read now is no damage.
            let _ = self.noting_damage(self.base.check());
        }
        self.check_undamaged()
    }

    fn look_after_space(&self) -> Reserve {
        self.gauge.set_unused(self.base.unused_bytes());
        let Ok(space) = device::space(&self.directory) else { return Reserve::Ample };
        let reserve = reserve_of(&space);
        match reserve {
            Reserve::Exhausted => {
                self.ballast.release();
            }
            Reserve::Low => {}
            Reserve::Ample => self.ballast.retake(&space),
        }
        // Refused for what is still to find room in the base: nothing but a checkpoint ends that.
        reserve.max(self.reserve(self.overlay_bytes()))
    }

    /// Makes log segments ready outside the log's lock. False if there is no space or no descriptor for one.
    fn prepare_spare(&self) -> bool {
        self.checkpointer.is_spare_wanted.store(false, Ordering::Release);
        while lock(&self.log).is_spare_wanted() {
            match create_segment(&self.log_directory, self.segment_bytes, self.syncing, &self.ballast, true) {
                Ok(segment) => lock(&self.log).add_spare(segment),
                Err(AppendError::NoSpace) => return false,
                Err(error) => {
                    let is_passing = matches!(error, AppendError::NoDescriptor(_));
                    if let AppendError::NoDescriptor(error) | AppendError::Failed(error) = error {
                        tracing::warn!(path = %self.log_directory.display(), %error, "no spare log segment");
                    }
                    // Not with each batch.
                    self.checkpointer.is_spare_wanted.store(true, Ordering::Release);
                    return !is_passing;
                }
            }
        }
        true
    }

    /// The generation to put into the base: the one that waits, or a new one. `None` if there is nothing.
    fn freeze(&self, pending: &mut Option<Covered>) -> Result<Option<(Arc<Rows>, Covered)>, StoreError> {
        let mut log = lock(&self.log);
        let mut overlay = self.overlay.write().unwrap_or_else(PoisonError::into_inner);
        // Also when it is an older generation that goes first: what has gathered behind it is looked at when it has gone.
        self.checkpointer.is_wanted.store(false, Ordering::Release);
        if let (Some(rows), Some(covered)) = (overlay.frozen(), *pending) {
            return Ok(Some((rows, covered)));
        }
        if overlay.is_active_empty() && log.last() == self.base.covered().applied {
            return Ok(None);
        }
        let rotated = log.rotate();
        let segment = match rotated {
            Ok(segment) => segment,
            Err(error) => {
                // Who is told that the store has failed looks at it.
                drop(overlay);
                drop(log);
                return Err(self.append_failed(&error));
            }
        };
        // From the log: a base that an error has closed does not know its mark until it is opened again.
        let covered = Covered { applied: log.last(), segment, epoch: log.epoch(), seed: log.seed() };
        *pending = Some(covered);
        self.checkpointer.frozen_at_bytes.store(log.appended_bytes(), Ordering::Relaxed);
        Ok(Some((overlay.freeze(), covered)))
    }

    /// On a full device: rows that need not go into the base because later batches, up to the transno returned, have
    /// replaced or deleted them. Once those are durable, replay makes up for what the base misses. Without this, rows
    /// deleted since would have to find room before their deletion could make any.
    fn superseded(&self) -> (BTreeSet<Box<[u8]>>, Transno) {
        let is_full = self.reserve(self.overlay_bytes()) > Reserve::Ample;
        let log = lock(&self.log);
        let overlay = self.overlay.read().unwrap_or_else(PoisonError::into_inner);
        (if is_full { overlay.superseded() } else { BTreeSet::new() }, log.last())
    }

    /// Puts one generation into the base. False if there was none.
    pub(super) fn checkpoint_one(&self) -> Result<bool, StoreError> {
        let mut pending = lock(&self.checkpointer.pending);
        self.check_sound()?;
        self.check_undamaged()?;
        let Some((rows, covered)) = self.freeze(&mut pending)? else { return Ok(false) };
        // The parts of a checkpoint may become durable one by one: then the log must already have the whole.
        let (superseded, applied) = self.superseded();
        let is_durable = || self.durable.load(Ordering::Acquire) >= applied.0;
        self.committer.kick(Cause::Routine);
        let is_waited = self.committer.wait_until(|| is_durable() || self.poison.get().is_some());
        self.check_sound()?;
        if !is_waited {
            return Ok(false);
        }
        let needed = rows.iter().filter(|(key, _)| !superseded.contains(*key));
        let mut changes = needed.map(|(key, row)| (&**key, row.as_deref()));
        let keep_going = || !self.checkpointer.is_stopped();
        if !self.noting_damage(self.base.checkpoint(&mut changes, covered, &keep_going))? {
            return Ok(false);
        }
        self.cache.advance_generation();
        for (key, row) in rows.iter() {
            self.cache.update(key, row.clone());
        }
        // Before the rows count no more: they have taken their room by now.
        self.gauge.set_unused(self.base.unused_bytes());
        self.overlay.write().unwrap_or_else(PoisonError::into_inner).drop_frozen();
        lock(&self.log).recycle(covered.segment);
        *pending = None;
        self.note_appended();
        Ok(true)
    }

    /// A base that cannot be written while the log can: what gathers is durable, but it is in memory, and a start has all of it to replay. To refuse
    /// some of it would lose what clients have answered for, so the target stops, as for any other device that cannot persist something.
    /// What a start has found and replayed does not count: so it can be served, and emptied, as long as nothing much is changed.
    fn end_of_patience(&self, error: &StoreError, replayed_bytes: u64) -> Option<StoreError> {
        let StoreError::Device { operation, errno } = error else { return None };
        let bound_bytes =
            FAILED_CHECKPOINT_COUNT * self.checkpoint_bytes.max(self.segment_bytes) + replayed_bytes;
        let is_full = lock(&self.log).uncovered_bytes() >= bound_bytes;
        (is_full && device::is_lost(*errno)).then(|| self.poison(operation, *errno))
    }

    /// Everything applied before this call.
    pub(super) fn checkpoint_all(&self) -> Result<(), StoreError> {
        let applied = self.applied.load(Ordering::Acquire);
        while self.base.covered().applied.0 < applied && self.checkpoint_one()? {}
        Ok(())
    }
}
