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

/// After so many turns of machines what they have sent to other processes leaves, however much there is to do.
const TURNS_BEFORE_FLUSH: u32 = 16;

#[derive(Default)]
struct Pending {
    owners: VecDeque<Arc<dyn Runnable>>,
    flushes: VecDeque<Arc<dyn Runnable>>,
    /// Turns of machines since the last flush.
    turn_count: u32,
    is_running: bool,
}

impl Pending {
    fn next(&mut self) -> Option<Arc<dyn Runnable>> {
        let is_flush_due = self.turn_count >= TURNS_BEFORE_FLUSH && !self.flushes.is_empty();
        let owner = if is_flush_due { None } else { self.owners.pop_front() };
        self.turn_count = if owner.is_some() { self.turn_count + 1 } else { 0 };
        owner.or_else(|| self.flushes.pop_front())
    }
}

thread_local! {
    static PENDING: RefCell<Pending> = RefCell::default();
}

/// Remembers a machine with inputs; the caller must get to [`run_all`] on this thread. It has one place in the queue, however many
/// inputs it has, so that others get their turn.
pub fn schedule(owner: Arc<dyn Runnable>) {
    let place = |owner: &Arc<dyn Runnable>| Arc::as_ptr(owner).cast::<()>();
    PENDING.with_borrow_mut(|pending| {
        if pending.owners.iter().all(|queued| place(queued) != place(&owner)) {
            pending.owners.push_back(owner);
        }
    });
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
            let next = pending.next();
            pending.is_running = next.is_some();
            next
        })
    };
    while let Some(runnable) = next() {
        runnable.run();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Says its name, and comes back until it has done so often enough.
    struct Again {
        name: &'static str,
        left: Mutex<u32>,
        said: Arc<Mutex<Vec<&'static str>>>,
    }

    struct Owner(Arc<Again>);

    impl Runnable for Owner {
        fn run(&self) {
            self.0.said.lock().expect("no test panics inside").push(self.0.name);
            let mut left = self.0.left.lock().expect("no test panics inside");
            *left -= 1;
            if *left > 0 {
                schedule(Arc::new(Owner(Arc::clone(&self.0))));
            }
        }
    }

    #[test]
    fn what_is_to_be_sent_leaves_while_machines_go_on() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let new = |name, count| {
            Arc::new(Owner(Arc::new(Again { name, left: Mutex::new(count), said: Arc::clone(&said) })))
        };
        schedule(new("turn", 3 * TURNS_BEFORE_FLUSH));
        schedule_flush(new("flush", 1));
        run_all();
        let at = said.lock().expect("no test panics inside").iter().position(|name| *name == "flush");
        assert_eq!(at, Some(TURNS_BEFORE_FLUSH as usize));
    }
}
