//! Which answers may be what lets go of a file.
//!
//! Asynchronous direct I/O (io_submit(2)) keeps a file that was closed until it is answered. Who commits the answer then ends
//! the file and, if nothing else holds a mount that was detached, the file system: in `fuse_wait_aborted` the kernel waits for
//! all entries, without end and without regard to SIGKILL or an abort, while it holds what sync(2) of the whole machine needs.
//! One entry has the RELEASE of that very file by then, and only the ring thread takes it out. So it must not be the one that
//! waits, and such answers are committed by a worker thread of the ring (IOSQE_ASYNC). Task work that is not deferred
//! (COOP_TASKRUN) would not help: the end of the file system comes before it, too. (Read in, and seen on, Linux 6.18.)
//!
//! A worker costs each answer 20 µs of CPU time, so it is asked only where a file may be closed. The kernel tells of each
//! descriptor that is closed (FLUSH) and waits for the answer before it lets the descriptor's file go, so a handle of which
//! nothing was told is open in a descriptor, and its answers end nothing. Two ways to close say nothing: a handle that was
//! opened with [`NOFLUSH`](crate::abi::fopen::NOFLUSH), which the handler must know of, and one of a file whose
//! mapped pages could not be written back. After the first such failure every answer may be the last one of its file.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// What the threads of a session's rings know of handles that may be closed.
#[derive(Debug)]
pub(super) struct Closing {
    handles: Mutex<HashSet<u64>>,
    /// Of `handles`, so that who finds none takes no lock.
    handle_count: AtomicUsize,
    /// Not every close is told of any more.
    is_uncertain: AtomicBool,
    /// One per thread: odd while it hands answers to the kernel by what it has read here.
    turns: Vec<AtomicU64>,
}

impl Closing {
    pub fn new(thread_count: usize) -> Self {
        Self {
            handles: Mutex::default(),
            handle_count: AtomicUsize::new(0),
            is_uncertain: AtomicBool::new(false),
            turns: (0..thread_count).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn handles(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.handles.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Thread `index` looks into this from here until [`Self::end_turn`], by when the kernel has what it decided.
    pub fn begin_turn(&self, index: usize) {
        self.turns[index].fetch_add(1, Ordering::SeqCst);
    }

    pub fn end_turn(&self, index: usize) {
        self.turns[index].fetch_add(1, Ordering::SeqCst);
    }

    /// Whether the answer to direct I/O of a handle may be what lets go of its file.
    pub fn may_end(&self, handle: u64) -> bool {
        self.is_uncertain.load(Ordering::SeqCst)
            || (self.handle_count.load(Ordering::SeqCst) != 0 && self.handles().contains(&handle))
    }

    /// A descriptor of a handle is being closed. Returns when no thread goes by what was known before; then it may be
    /// answered. Not within a turn of one's own.
    pub fn closes(&self, handle: u64) {
        {
            let mut handles = self.handles();
            handles.insert(handle);
            self.handle_count.store(handles.len(), Ordering::SeqCst);
        }
        for turn in &self.turns {
            let seen = turn.load(Ordering::SeqCst);
            // A turn is a submission that does not wait, but its thread may have lost its CPU to this one.
            while seen % 2 == 1 && turn.load(Ordering::SeqCst) == seen {
                std::thread::yield_now();
            }
        }
    }

    /// The kernel has let go of a handle; its number may come again.
    pub fn released(&self, handle: u64) {
        if self.handle_count.load(Ordering::SeqCst) != 0 {
            let mut handles = self.handles();
            handles.remove(&handle);
            self.handle_count.store(handles.len(), Ordering::SeqCst);
        }
    }

    /// Pages of a file could not be written back, which its next close finds and says nothing. To be called before the kernel
    /// hears of the failure.
    pub fn is_told_no_more(&self) {
        self.is_uncertain.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Closing;

    #[test]
    fn a_handle_counts_from_its_first_close_to_its_release() {
        let closing = Closing::new(2);
        assert!(!closing.may_end(7));
        closing.closes(7);
        closing.closes(7);
        assert!(closing.may_end(7));
        assert!(!closing.may_end(8));
        closing.released(8);
        assert!(closing.may_end(7));
        closing.released(7);
        assert!(!closing.may_end(7));
    }

    #[test]
    fn every_handle_counts_when_closes_may_say_nothing() {
        let closing = Closing::new(1);
        closing.is_told_no_more();
        assert!(closing.may_end(7));
        closing.closes(7);
        closing.released(7);
        assert!(closing.may_end(7));
    }

    /// A thread hands an answer over only by what it has read in the same turn, so whoever closes has been seen, or waits.
    #[test]
    fn who_closes_waits_for_turns_that_have_not_seen_it() {
        use std::sync::atomic::{AtomicBool, Ordering};
        for _ in 0..2000 {
            let closing = Arc::new(Closing::new(1));
            let is_closed = Arc::new(AtomicBool::new(false));
            let closer = std::thread::spawn({
                let (closing, is_closed) = (closing.clone(), is_closed.clone());
                move || {
                    closing.closes(7);
                    is_closed.store(true, Ordering::SeqCst);
                }
            });
            closing.begin_turn(0);
            let was_seen = closing.may_end(7);
            std::hint::spin_loop();
            let is_over = is_closed.load(Ordering::SeqCst);
            closing.end_turn(0);
            closer.join().expect("it only closes");
            assert!(was_seen || !is_over, "closed within a turn that went by what was known before");
            assert!(closing.may_end(7));
        }
    }
}
