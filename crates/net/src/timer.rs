//! One thread for all deadlines of the process.

use crate::clock;
use crate::run::{self, Runnable};
use base::{Duration, Time};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// Something with a deadline.
pub trait Timed: Send + Sync {
    /// When it wants its tick; `Time::MAX` when not at all.
    fn deadline(&self) -> Time;

    /// Queues the tick and runs it.
    fn on_deadline(self: Arc<Self>);
}

/// Deadlines are looked at this often at least, so that time spent in suspend is noticed.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Ticks of one machine are at least this far apart: a deadline that does not move must not spin.
const TICK_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Ticks take some milliseconds.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

pub struct Timer {
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    timed: Vec<Weak<dyn Timed>>,
    posted: Vec<Arc<dyn Runnable>>,
    /// When the thread looks again on its own.
    wakes_at: Time,
    is_stopped: bool,
    /// The thread runs machines just now.
    is_passing: bool,
}

impl Timer {
    /// Starts the thread.
    pub fn start() -> Arc<Timer> {
        let state = State {
            timed: Vec::new(),
            posted: Vec::new(),
            wakes_at: Time::ZERO,
            is_stopped: false,
            is_passing: false,
        };
        let timer = Arc::new(Timer { state: Mutex::new(state), wake: Condvar::new() });
        let in_thread = Arc::clone(&timer);
        let started = std::thread::Builder::new().name("timer".into()).spawn(move || in_thread.serve());
        started.expect("a process can start its timer thread");
        timer
    }

    /// From now on `timed` gets its ticks, until it is dropped.
    pub fn register(&self, timed: Weak<dyn Timed>) {
        self.lock().timed.push(timed);
        self.wake.notify_one();
    }

    /// Tells of a deadline that moved; wakes the thread only when it sleeps beyond it.
    pub fn deadline_moved(&self, deadline: Time) {
        let mut state = self.lock();
        if deadline < state.wakes_at {
            state.wakes_at = deadline;
            self.wake.notify_one();
        }
    }

    /// Runs something on the timer thread: for callers that hold locks or must not run machines.
    pub fn post(&self, runnable: Arc<dyn Runnable>) {
        self.lock().posted.push(runnable);
        self.wake.notify_one();
    }

    /// No tick begins any more; those that have begun are waited for, but not for long.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.is_stopped = true;
        self.wake.notify_all();
        let passing = |state: &mut State| state.is_passing;
        drop(self.wake.wait_timeout_while(state, STOP_PATIENCE, passing));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.lock();
        while !state.is_stopped {
            let posted = std::mem::take(&mut state.posted);
            state.timed.retain(|timed| timed.strong_count() > 0);
            let timed: Vec<_> = state.timed.iter().filter_map(Weak::upgrade).collect();
            let started = clock::now().time;
            // While this thread is awake, moved deadlines need no wake-up: it looks again below.
            state.wakes_at = Time::ZERO;
            state.is_passing = true;
            drop(state);
            posted.into_iter().for_each(run::schedule);
            run::run_all();
            for due in timed.iter().filter(|timed| timed.deadline() <= started) {
                Arc::clone(due).on_deadline();
            }
            state = self.lock();
            state.is_passing = false;
            if state.is_stopped {
                self.wake.notify_all();
            }
            if !state.posted.is_empty() || state.timed.len() != timed.len() {
                continue;
            }
            let next = timed.iter().map(|timed| timed.deadline()).min().unwrap_or(Time::MAX);
            drop(timed);
            let next = next.max(started.after(TICK_INTERVAL_MIN)).min(started.after(LOOK_AGAIN));
            state = self.sleep_until(state, next);
        }
    }

    /// Sleeps until `next`, an earlier deadline or a posted call.
    fn sleep_until<'a>(&'a self, mut state: MutexGuard<'a, State>, next: Time) -> MutexGuard<'a, State> {
        state.wakes_at = next;
        let timed_count = state.timed.len();
        loop {
            let wait = state.wakes_at.since(clock::now().time);
            let is_news = !state.posted.is_empty() || state.is_stopped || state.timed.len() != timed_count;
            if wait.is_zero() || is_news {
                return state;
            }
            let waited = self.wake.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// One tick, which does not end before the timer is told to stop.
    struct Slow {
        timer: Arc<Timer>,
        has_begun: AtomicBool,
        has_ended: AtomicBool,
    }

    impl Timed for Slow {
        fn deadline(&self) -> Time {
            if self.has_begun.load(Ordering::SeqCst) { Time::MAX } else { Time::ZERO }
        }

        fn on_deadline(self: Arc<Self>) {
            self.has_begun.store(true, Ordering::SeqCst);
            while !self.timer.lock().is_stopped {
                std::thread::yield_now();
            }
            self.has_ended.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn who_stops_the_timer_waits_for_a_tick_that_has_begun() {
        let timer = Timer::start();
        let (has_begun, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let slow = Arc::new(Slow { timer: Arc::clone(&timer), has_begun, has_ended });
        let weak: Weak<Slow> = Arc::downgrade(&slow);
        timer.register(weak);
        while !slow.has_begun.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        timer.stop();
        assert!(slow.has_ended.load(Ordering::SeqCst));
    }
}
