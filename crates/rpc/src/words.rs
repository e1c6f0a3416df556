//! The state of a session in Lustre's words, now and before, as operators of either end read it.

use crate::{Import, ImportState};
use base::{Now, WallTime};
use std::collections::VecDeque;

/// States that are remembered, as in Lustre.
const HISTORY_COUNT: usize = 16;

/// Of a session whose target does not answer: in Lustre a request that is not answered in time ends its session.
pub const OVERDUE_WORD: &str = "DISCONN";

/// States of a session and when they began.
#[derive(Clone, Debug, Default)]
pub struct History(VecDeque<(WallTime, &'static str)>);

impl History {
    pub fn add(&mut self, now: WallTime, word: &'static str) {
        if self.0.len() == HISTORY_COUNT {
            self.0.pop_front();
        }
        self.0.push_back((now, word));
    }

    /// Oldest first.
    pub fn words(&self) -> Vec<(WallTime, &'static str)> {
        self.0.iter().copied().collect()
    }

    /// Since when a session does not work that has begun, as far as that is remembered.
    pub fn out_since(&self, import: &Import, now: Now) -> Option<WallTime> {
        if let Some(heard_at) = import.overdue_since() {
            let silence_ns = i64::try_from(now.time.since(heard_at).as_nanos()).unwrap_or(i64::MAX);
            return Some(WallTime(now.wall.0.saturating_sub(silence_ns)));
        }
        self.without_since(state_word(ImportState::Active))
    }

    /// Since when the last word holds, or others that are not this one.
    fn without_since(&self, word: &'static str) -> Option<WallTime> {
        let others = self.0.iter().rev().take_while(|(_, other)| *other != word);
        others.last().map(|(since, _)| *since)
    }
}

/// The state of a session, as operators see it.
pub fn session_word(import: &Import) -> &'static str {
    if import.overdue_since().is_some() { OVERDUE_WORD } else { state_word(import.state()) }
}

pub fn state_word(state: ImportState) -> &'static str {
    match state {
        ImportState::Idle => "NEW",
        ImportState::Connecting => "CONNECTING",
        ImportState::Replaying => "REPLAY",
        ImportState::Active => "FULL",
        ImportState::Disconnecting | ImportState::Refused(_) => "DISCONN",
        ImportState::Disconnected => "CLOSED",
    }
}
