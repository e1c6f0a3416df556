//! Takeovers under way, and that none begins any more.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
pub struct Takeovers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    under_way: usize,
    are_over: bool,
}

/// As long as it lives, one takeover is under way.
pub struct Takeover<'a>(&'a Takeovers);

impl Takeovers {
    /// `None`: none is to begin any more.
    pub fn begin(&self) -> Option<Takeover<'_>> {
        let mut state = self.lock();
        if state.are_over {
            return None;
        }
        state.under_way += 1;
        Some(Takeover(self))
    }

    pub fn are_over(&self) -> bool {
        self.lock().are_over
    }

    /// None begins any more; waits for those that have. False when one is still under way after that.
    pub fn end(&self, patience: Duration) -> bool {
        let mut state = self.lock();
        state.are_over = true;
        let waited = self.changed.wait_timeout_while(state, patience, |state| state.under_way > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.under_way == 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Takeover<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
        self.0.changed.notify_all();
    }
}
