//! Waiting for what threads of a store do.

use std::time::{Duration, Instant};

/// Until the condition holds.
///
/// # Panics
/// If it does not for a minute.
pub(crate) fn wait_for(what: &str, is_done: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_done() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}
