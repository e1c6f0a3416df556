//! What this thread still has to do: owners to run, connections to flush.
//!
//! A thread that brought an input calls [`run_all`]; everything that follows from it inside this process happens on
//! the same thread, one step after the other, and what goes to other processes is written once at the end.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

/// Something with work waiting.
pub trait Runnable: Send + Sync {
    /// Does all the work that waits now; must not block.
    fn run(&self);
}

#[derive(Default)]
struct Pending {
    owners: VecDeque<Arc<dyn Runnable>>,
    flushes: VecDeque<Arc<dyn Runnable>>,
    is_running: bool,
}

thread_local! {
    static PENDING: RefCell<Pending> = RefCell::default();
}

/// Remembers a machine with inputs; the caller must get to [`run_all`] on this thread.
pub fn schedule(owner: Arc<dyn Runnable>) {
    PENDING.with_borrow_mut(|pending| pending.owners.push_back(owner));
}

/// Remembers a connection with unsent frames; served after all machines have run.
pub fn schedule_flush(connection: Arc<dyn Runnable>) {
    PENDING.with_borrow_mut(|pending| pending.flushes.push_back(connection));
}

/// Runs everything that is scheduled on this thread, and what follows from it. Does nothing inside itself.
pub fn run_all() {
    let is_inside = PENDING.with_borrow_mut(|pending| std::mem::replace(&mut pending.is_running, true));
    if is_inside {
        return;
    }
    let next = || {
        PENDING.with_borrow_mut(|pending| {
            let next = pending.owners.pop_front().or_else(|| pending.flushes.pop_front());
            pending.is_running = next.is_some();
            next
        })
    };
    while let Some(runnable) = next() {
        runnable.run();
    }
}
