//! How far something long is: one line on a terminal, and nothing where standard error is not one.
//!
//! It is begun with what is known of its end, told what is done, and gone when dropped. It is drawn five times a
//! second at most, and once a second when nothing is told, so that what is measured beside it does not notice.

use crate::say;
use indicatif::{BinaryBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const DRAWN_PER_SECOND: u8 = 5;
const TICK: Duration = Duration::from_secs(1);

/// What there is to do, as far as that is known: the time that is left follows from bytes, or else from items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Goal {
    pub items: Option<u64>,
    pub bytes: Option<u64>,
}

impl Goal {
    pub fn items(count: u64) -> Goal {
        Goal { items: Some(count), bytes: None }
    }
}

/// One line. Several threads may tell it what they have done.
pub struct Progress {
    name: String,
    bar: ProgressBar,
    done: Arc<Done>,
    is_by_bytes: bool,
}

#[derive(Default)]
struct Done {
    items: AtomicU64,
    bytes: AtomicU64,
}

/// What is drawn.
struct Seen {
    unit: &'static str,
    goal: Goal,
    items: u64,
    bytes: u64,
    items_per_second: f64,
    bytes_per_second: f64,
    /// `None` while nobody knows.
    left: Option<Duration>,
}

impl Progress {
    /// `name` is what is done (`copying`), `unit` what items are (`files`).
    pub fn begin(name: impl Into<String>, unit: &'static str, goal: Goal) -> Progress {
        Progress::draw(ProgressDrawTarget::stderr_with_hz(DRAWN_PER_SECOND), name.into(), unit, goal)
    }

    fn draw(target: ProgressDrawTarget, name: String, unit: &'static str, goal: Goal) -> Progress {
        let is_by_bytes = goal.bytes.is_some();
        let done = Arc::new(Done::default());
        let shown = Arc::clone(&done);
        let amounts = move |state: &ProgressState, out: &mut dyn Write| {
            let (items, bytes) = (shown.items.load(Ordering::Relaxed), shown.bytes.load(Ordering::Relaxed));
            let seen = Seen {
                unit,
                goal,
                items,
                bytes,
                items_per_second: if is_by_bytes { average(items, state) } else { state.per_sec() },
                bytes_per_second: if is_by_bytes { state.per_sec() } else { average(bytes, state) },
                left: state.len().is_some().then(|| state.eta()),
            };
            // Nobody may look.
            let _ = out.write_str(&seen.words());
        };
        let bar = ProgressBar::with_draw_target(goal.bytes.or(goal.items), target);
        let style = ProgressStyle::with_template("{prefix}: {amounts}");
        // The template is a constant, and tested.
        if let Ok(style) = style {
            bar.set_style(style.with_key("amounts", amounts));
        }
        bar.set_prefix(name.clone());
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Progress { name, bar, done, is_by_bytes }
    }

    /// So much more is done.
    pub fn add(&self, items: u64, bytes: u64) {
        let items = self.done.items.fetch_add(items, Ordering::Relaxed) + items;
        let bytes = self.done.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.bar.set_position(if self.is_by_bytes { bytes } else { items });
    }

    /// So much is done.
    pub fn set(&self, items: u64, bytes: u64) {
        self.done.items.store(items, Ordering::Relaxed);
        self.done.bytes.store(bytes, Ordering::Relaxed);
        self.bar.set_position(if self.is_by_bytes { bytes } else { items });
    }

    /// What it is at now.
    pub fn at(&self, what: impl Display) {
        self.bar.set_prefix(format!("{}, {what}", self.name));
    }

    /// A line that stays, also where no progress is drawn.
    pub fn note(&self, words: impl Display) {
        self.suspend(|| say::note(words));
    }

    /// Writes something that stays while nothing is drawn.
    pub fn suspend(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // What was over before it was drawn once is seen all the same.
        self.bar.force_draw();
        self.bar.finish_and_clear();
    }
}

impl Seen {
    fn words(&self) -> String {
        let of = |goal: Option<u64>| goal.map(|goal| format!(" of {goal}")).unwrap_or_default();
        let mut words = format!("{}{} {}", self.items, of(self.goal.items), self.unit);
        if self.bytes > 0 || self.goal.bytes.is_some() {
            let of = self.goal.bytes.map(|goal| format!(" of {}", BinaryBytes(goal))).unwrap_or_default();
            words.push_str(&format!(", {}{of}", BinaryBytes(self.bytes)));
        }
        words.push_str(&format!(", {:.1}/s", self.items_per_second));
        if self.bytes > 0 || self.goal.bytes.is_some() {
            words.push_str(&format!(", {}/s", BinaryBytes(self.bytes_per_second as u64)));
        }
        // Without a rate the time left is nobody's guess.
        let deciding = if self.goal.bytes.is_some() { self.bytes_per_second } else { self.items_per_second };
        if let Some(left) = self.left.filter(|_| deciding > 0.0) {
            words.push_str(&format!(", {} left", HumanDuration(left)));
        }
        words
    }
}

/// Since the beginning: of what the bar does not count itself.
fn average(amount: u64, state: &ProgressState) -> f64 {
    amount as f64 / state.elapsed().as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests;
