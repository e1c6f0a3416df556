//! Threads that execute requests for which nobody waits yet.
//!
//! Whoever brings an input runs what follows from it (`run`), since waking another thread costs more than most requests.
//! What is read ahead, or written behind, is worth it: it is much work, and the caller has something better to do.

use crate::router::Port;
use crate::run;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::Frame;

/// The work of a frame takes milliseconds, unless the device stands still.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Helpers {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    frames: VecDeque<(Arc<dyn Port>, Frame)>,
    busy_count: usize,
    is_stopped: bool,
}

impl Helpers {
    /// Starts so many threads.
    ///
    /// # Errors
    /// The first of them cannot be started; fewer than wanted are no error.
    pub fn start(count: usize) -> io::Result<Arc<Helpers>> {
        let helpers = Arc::new(Helpers::default());
        for number in 0..count {
            let in_thread = Arc::clone(&helpers);
            let thread = std::thread::Builder::new().name(format!("helper-{number}"));
            let started = thread.spawn(move || in_thread.serve());
            if number == 0 {
                started?;
            }
        }
        Ok(helpers)
    }

    /// Gives a frame to a machine of this process, on one of these threads. Frames may overtake each other, as they may on a network.
    pub fn push_frame(&self, port: Arc<dyn Port>, frame: Frame) {
        let mut state = self.lock();
        if !state.is_stopped {
            state.frames.push_back((port, frame));
            self.wake.notify_one();
        }
    }

    /// Nothing begins any more; what has begun is waited for, but not for long.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.is_stopped = true;
        state.frames.clear();
        self.wake.notify_all();
        drop(self.wake.wait_timeout_while(state, STOP_PATIENCE, |state| state.busy_count > 0));
    }

    fn serve(&self) {
        let mut state = self.lock();
        while !state.is_stopped {
            let Some((port, frame)) = state.frames.pop_front() else {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.busy_count += 1;
            drop(state);
            port.push_frame(frame, None);
            run::run_all();
            state = self.lock();
            state.busy_count -= 1;
            if state.is_stopped {
                self.wake.notify_all();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
