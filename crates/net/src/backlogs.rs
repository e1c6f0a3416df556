//! What waits for the sockets of a process, all of them together; and what has come over all of them and waits for machines.
//!
//! Each connection has a bound of its own (`connection`), and so many peers that ask and do not read would take as much as they are
//! connections: who is refused everything is answered, too. So there is a bound for all of them. Beyond it
//!
//! - a connection has a share, and all shares together take a quarter of the bound: short answers reach whoever reads, whatever the others do;
//! - an answer that is longer than the share is queued where nothing else is, as long as all together stay below twice the bound. Those who
//!   do not read keep one each, and no more; they lose their connections when their silence has lasted (`TCP_USER_TIMEOUT`), and what they
//!   kept with them. So who reads goes on with one long answer at a time.
//!
//! What has come has the same bound. Beyond it a frame that is longer than the least share waits in its reader where its machine is full,
//! also the only one of its connection.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Before somebody says how much memory there is.
const BYTES_MAX: usize = 1 << 30;
/// What each connection has beyond the bound as long as there are few.
pub(crate) const SHARE_BYTES: usize = 256 << 10;
/// What each has however many there are: any answer but a listing, data, or a list of locks.
const SHARE_BYTES_MIN: usize = 4 << 10;
/// The part of the bound that all shares may take beside it.
const SHARES_PART: usize = 4;
/// A queued buffer takes so much besides its bytes: its place in the queue and what the allocator keeps with it. Most answers are short.
pub(crate) const BUFFER_BYTES: usize = 64;

#[derive(Debug)]
pub struct Backlogs {
    byte_count: AtomicUsize,
    byte_count_max: AtomicUsize,
    connection_count: AtomicUsize,
    /// For machines.
    held_bytes: AtomicUsize,
}

impl Default for Backlogs {
    fn default() -> Backlogs {
        Backlogs {
            byte_count: AtomicUsize::new(0),
            byte_count_max: AtomicUsize::new(BYTES_MAX),
            connection_count: AtomicUsize::new(0),
            held_bytes: AtomicUsize::new(0),
        }
    }
}

impl Backlogs {
    pub fn set_byte_count_max(&self, byte_count_max: usize) {
        self.byte_count_max.store(byte_count_max, Ordering::Relaxed);
    }

    pub fn byte_count(&self) -> usize {
        self.byte_count.load(Ordering::Relaxed)
    }

    /// Of this process, whoever has made them.
    pub(crate) fn connection_count(&self) -> usize {
        self.connection_count.load(Ordering::Relaxed)
    }

    pub(crate) fn add_connection(&self) {
        self.connection_count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_connection(&self) {
        self.connection_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether there is no room for a frame of so many bytes, of a connection that has so many waiting.
    pub(crate) fn is_full_for(&self, waiting_bytes: usize, frame_bytes: usize) -> bool {
        let (byte_count, byte_count_max) = (self.byte_count(), self.byte_count_max.load(Ordering::Relaxed));
        if byte_count <= byte_count_max || waiting_bytes + frame_bytes <= self.share_bytes(byte_count_max) {
            return false;
        }
        waiting_bytes > 0 || byte_count >= byte_count_max.saturating_mul(2)
    }

    fn share_bytes(&self, byte_count_max: usize) -> usize {
        let equal = byte_count_max / SHARES_PART / self.connection_count().max(1);
        equal.clamp(SHARE_BYTES_MIN, SHARE_BYTES)
    }

    pub(crate) fn hold(&self, byte_count: usize) {
        self.held_bytes.fetch_add(byte_count, Ordering::Relaxed);
    }

    pub(crate) fn let_go(&self, byte_count: usize) {
        self.held_bytes.fetch_sub(byte_count, Ordering::Relaxed);
    }

    /// Whether a frame that has come is to wait before a full machine, whatever its connection has there.
    pub(crate) fn is_crowded_for(&self, frame_bytes: usize) -> bool {
        frame_bytes > SHARE_BYTES_MIN
            && self.held_bytes.load(Ordering::Relaxed) > self.byte_count_max.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, byte_count: usize) {
        self.byte_count.fetch_add(byte_count, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, byte_count: usize) {
        self.byte_count.fetch_sub(byte_count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 64 << 20;

    fn backlogs(connection_count: usize, byte_count: usize) -> Backlogs {
        let backlogs = Backlogs::default();
        backlogs.set_byte_count_max(MAX);
        (0..connection_count).for_each(|_| backlogs.add_connection());
        backlogs.add(byte_count);
        backlogs
    }

    #[test]
    fn shares_beyond_the_bound_are_a_part_of_it_however_many_connections_there_are() {
        for connection_count in [1, 64, 1024, 4096] {
            let backlogs = backlogs(connection_count, MAX * 3);
            let share = (1..=SHARE_BYTES).rev().find(|bytes| !backlogs.is_full_for(0, *bytes)).unwrap_or(0);
            assert!(share >= SHARE_BYTES_MIN, "{share} bytes for each of {connection_count}");
            assert!(
                share * connection_count <= MAX / SHARES_PART,
                "{share} bytes for each of {connection_count}"
            );
            assert!(backlogs.is_full_for(1, share), "what waits counts");
        }
    }

    #[test]
    fn of_what_comes_beyond_the_bound_only_short_frames_go_to_full_machines() {
        let backlogs = backlogs(9, 0);
        backlogs.hold(MAX);
        assert!(!backlogs.is_crowded_for(1 << 20));
        backlogs.hold(1);
        assert!(backlogs.is_crowded_for(1 << 20) && !backlogs.is_crowded_for(SHARE_BYTES_MIN));
        backlogs.let_go(1);
        assert!(!backlogs.is_crowded_for(1 << 20));
    }

    #[test]
    fn a_long_answer_beyond_the_bound_waits_alone_and_not_beyond_twice_the_bound() {
        const LONG: usize = 4 << 20;
        assert!(!backlogs(9, MAX).is_full_for(LONG, LONG));
        assert!(!backlogs(9, MAX + 1).is_full_for(0, LONG));
        assert!(backlogs(9, MAX + 1).is_full_for(1, LONG));
        assert!(backlogs(9, MAX * 2).is_full_for(0, LONG));
    }
}
