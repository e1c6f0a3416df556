//! What waits for the sockets of a process, all of them together.
//!
//! Each connection has a bound of its own (`connection`), and so many peers that ask and do not read would take as much as they are
//! connections: who is refused everything is answered, too. So there is a bound for all of them. Beyond it a connection has a little
//! and no more, with which whoever reads goes on.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Before somebody says how much memory there is.
const BYTES_MAX: usize = 1 << 30;
/// What each connection has whatever the others do, and one frame more.
pub(crate) const SHARE_BYTES: usize = 256 << 10;
/// A queued buffer takes so much besides its bytes: its place in the queue and what the allocator keeps with it. Most answers are short.
pub(crate) const BUFFER_BYTES: usize = 64;

#[derive(Debug)]
pub struct Backlogs {
    byte_count: AtomicUsize,
    byte_count_max: AtomicUsize,
}

impl Default for Backlogs {
    fn default() -> Backlogs {
        Backlogs { byte_count: AtomicUsize::new(0), byte_count_max: AtomicUsize::new(BYTES_MAX) }
    }
}

impl Backlogs {
    pub fn set_byte_count_max(&self, byte_count_max: usize) {
        self.byte_count_max.store(byte_count_max, Ordering::Relaxed);
    }

    pub fn byte_count(&self) -> usize {
        self.byte_count.load(Ordering::Relaxed)
    }

    /// Whether there is no room for another frame of a connection that has so many bytes waiting.
    pub(crate) fn is_full_for(&self, waiting_bytes: usize) -> bool {
        waiting_bytes > SHARE_BYTES && self.byte_count() > self.byte_count_max.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, byte_count: usize) {
        self.byte_count.fetch_add(byte_count, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, byte_count: usize) {
        self.byte_count.fetch_sub(byte_count, Ordering::Relaxed);
    }
}
