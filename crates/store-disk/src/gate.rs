//! Whether this process may change what is on its disks now.
//!
//! A server that shares its storage with another one may have stood still (a stopped process, a paused machine), and have been replaced
//! meanwhile. When it goes on it does not know that, and each of its threads would first finish what it was about to do. So such a
//! process says again and again, a little ahead, until when it may write; a thread that finds that time over waits here until it has been
//! said anew, which happens only when the process has asked whether its targets are still its own.
//!
//! It is no fence: a thread may stand still between this look and its write. That the other server begins only after a fence at the
//! storage is what protects the data.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Nanoseconds of CLOCK_BOOTTIME; for ever in a process that shares nothing.
static UNTIL: AtomicU64 = AtomicU64::new(u64::MAX);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// From now on changes are held back at this time of CLOCK_BOOTTIME, unless a later one is said before.
pub fn may_write_until(nanos: u64) {
    UNTIL.store(nanos, Ordering::Release);
}

/// Whether this is a process whose changes may be held back.
pub fn may_be_held() -> bool {
    UNTIL.load(Ordering::Acquire) != u64::MAX
}

/// Whether changes are held back now: who has begun one waits, with what he has locked.
pub fn is_held() -> bool {
    let until = UNTIL.load(Ordering::Acquire);
    until != u64::MAX && crate::device::boot_nanos() >= until
}

/// Before each change: waits while it is held back.
pub(crate) fn pass() {
    while is_held() {
        #[cfg(test)]
        tests::note_wait();
        std::thread::sleep(LOOK_INTERVAL);
    }
}

#[cfg(test)]
mod tests;
