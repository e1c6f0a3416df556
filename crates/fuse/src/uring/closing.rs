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
//! nothing was told is open in a descriptor, and its answers end nothing. Three ways to close say nothing: a handle that was
//! opened with [`NOFLUSH`](crate::abi::fopen::NOFLUSH), which the handler must know of; any, once a FLUSH was answered with
//! ENOSYS; and one of a file whose mapped pages could not be written back. After either of the latter every answer may be the
//! last one of its file. Handles are known by their numbers, so no two open files of a handler may have the same one.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

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

    /// Thread `index` is gone, perhaps within a turn: nobody shall wait for it.
    pub fn leave(&self, index: usize) {
        if let Some(turn) = self.turns.get(index)
            && turn.load(Ordering::SeqCst) % 2 == 1
        {
            turn.fetch_add(1, Ordering::SeqCst);
        }
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
        self.wait_for_turns();
    }

    /// Until no thread goes by what was known before the call.
    fn wait_for_turns(&self) {
        for turn in &self.turns {
            let seen = turn.load(Ordering::SeqCst);
            let mut looks = 0;
            while seen % 2 == 1 && turn.load(Ordering::SeqCst) == seen {
                looks += 1;
                // A turn is a submission that does not wait; if it lasts, its thread has lost its CPU.
                if looks < 100 {
                    std::hint::spin_loop();
                } else {
                    std::thread::sleep(Duration::from_micros(50));
                }
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

    /// Some close will not be told of. To be called before the kernel hears of what makes it so, and not within a turn of one's
    /// own; returns when no thread goes by what was known before.
    pub fn is_told_no_more(&self) {
        self.is_uncertain.store(true, Ordering::SeqCst);
        self.wait_for_turns();
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

    #[test]
    fn nobody_waits_for_a_thread_that_is_gone() {
        let closing = Closing::new(2);
        closing.begin_turn(1);
        closing.leave(1);
        closing.leave(0);
        closing.closes(7);
        closing.is_told_no_more();
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
