//! The state of a session in Lustre's words, now and before, as operators of either end read it.

use crate::{Import, ImportState};
use base::{Now, Transno, WallTime};
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

    /// Since when a session does not work that has begun, as far as that is remembered.
    fn out_since(&self, import: &Import, now: Now) -> Option<WallTime> {
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

/// A session, as operators of the calling end see it.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    /// Lustre's word for its state.
    pub state: &'static str,
    /// It stands, and its target answers nothing.
    pub is_overdue: bool,
    /// The states and since when, oldest first.
    pub history: Vec<(WallTime, &'static str)>,
    /// Of one that has begun and does not work: since when, as far as that is remembered.
    pub out_since: Option<WallTime>,
    /// Where the target is.
    pub nids: Vec<String>,
    /// Requests that were not answered yet.
    pub outstanding: usize,
    /// Requests that were answered and are kept for replay.
    pub retained_count: usize,
    pub last_committed: Transno,
    pub eviction_count: u64,
}

impl SessionStatus {
    pub fn of(
        import: &Import,
        history: &History,
        eviction_count: u64,
        now: Now,
        nids: Vec<String>,
    ) -> SessionStatus {
        SessionStatus {
            state: session_word(import),
            is_overdue: import.overdue_since().is_some(),
            history: history.0.iter().copied().collect(),
            out_since: history.out_since(import, now),
            nids,
            outstanding: import.outstanding(),
            retained_count: import.retained_count(),
            last_committed: import.last_committed(),
            eviction_count,
        }
    }

    /// The target is there, if perhaps it recovers.
    pub fn is_there(&self) -> bool {
        [ImportState::Active, ImportState::Replaying].map(state_word).contains(&self.state)
    }
}
