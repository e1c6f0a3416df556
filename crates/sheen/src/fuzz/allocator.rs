//! Counts what the present thread allocates, so that a test can say how much a call took.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static LIVE_BYTES: Cell<usize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn add(byte_count: usize) {
    // Threads that are ending have no counters any more.
    let _ = LIVE_BYTES.try_with(|live| {
        live.set(live.get().wrapping_add(byte_count));
        let _ = PEAK_BYTES.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

fn take(byte_count: usize) {
    // What another thread has allocated may end here: never below zero.
    let _ = LIVE_BYTES.try_with(|live| live.set(live.get().saturating_sub(byte_count)));
}

// SAFETY: every call goes on to the system's allocator as it came; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        take(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The result of a call, and how many bytes it had allocated at most at one time.
pub fn peak_of<R>(call: impl FnOnce() -> R) -> (R, usize) {
    let before = LIVE_BYTES.get();
    PEAK_BYTES.set(before);
    let result = call();
    (result, PEAK_BYTES.get() - before)
}
