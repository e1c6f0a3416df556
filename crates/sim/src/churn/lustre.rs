//! What Lustre would have made of the same death: its rules of recovery, worked out over the same clients, what each of them expects of
//! the MDT when it dies, what it has to replay, and when it vanishes or is cut off.
//!
//! Whoever had a session is waited for: for 300 s from the first one who comes, or, where clients extend that, for five quarters of what
//! each one who comes expects and 125 s, up to 900 s. Then the absent are evicted and the others replay, one after the other. If one of
//! those has vanished meanwhile, everybody waits for him until the timer ends, which each replay sets by its client's own idea of the
//! time; and when that comes to 900 s, the recovery is broken off and all who have not finished are evicted. Without the extension the
//! timer gives a minute to each new wait.
//!
//! Nobody is told that the MDT is back. A client notices that it has died when the request is late that it waits for, or when its next
//! ping finds nobody; it tries again after 5 s, then 10 s, up to 50 s.
//!
//! That is a model, of the rules as they are known from Lustre's source and manual; no machine runs here.

use super::{Churn, MDT};
use crate::churn::fate::Fate;
use base::{Duration, Time};

/// The limits of a recovery.
const SOFT: Duration = Duration::from_secs(300);
const HARD: Duration = Duration::from_secs(900);
/// What is added to five quarters of what a client expects: two first connects, and two of the longest times between connects.
const EXTENSION: Duration = Duration::from_secs(125);
/// The least that anybody expects (`at_min`), and what is added to five quarters of it for a single request.
const EXPECTED_MIN: Duration = Duration::from_secs(5);
const REQUEST_MORE: Duration = Duration::from_secs(5);
/// By so much an early reply puts off the time at which a request is late.
const EARLY_REPLY: Duration = Duration::from_secs(30);
/// Pings, and after what time the network says that nobody is there.
const PING: Duration = Duration::from_secs(25);
const NOBODY_THERE: Duration = Duration::from_secs(50);
/// Between attempts to connect: so much more each time.
const ATTEMPT: Duration = Duration::from_secs(5);
const ATTEMPT_MAX: Duration = Duration::from_secs(50);
/// For whoever is waited for when a timer has ended once.
const NEXT_WAIT: Duration = Duration::from_secs(60);
/// A replay there and back, and what comes after the last one: locks, and the end.
const REPLAY: Duration = Duration::from_millis(1);
const LOCKS: Duration = Duration::from_secs(1);

/// A client as Lustre's MDT gets to know it.
#[derive(Clone, Copy, Debug)]
struct Caller {
    /// When it connects to the new MDT; `None` when it vanishes before.
    comes: Option<Time>,
    gone: Option<Time>,
    expects: Duration,
    replay_count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    /// Since the first one has come.
    took: Duration,
    is_hard: bool,
    evicted_living: u64,
}

impl Churn {
    /// Counts what Lustre does, with and without the extension by clients.
    pub(super) fn judge_lustre(&self, restarts: Time) {
        let died = self.now.time;
        let caller = |seat: &super::Seat| {
            let expects = seat.expects(MDT).max(EXPECTED_MIN);
            let notices = notices(died, seat.asked, seat.last_progress.unwrap_or(died));
            let comes = comes(notices, restarts, &seat.fate);
            Caller { comes, gone: seat.fate.gone, expects, replay_count: seat.retained_count(MDT) as u32 }
        };
        let callers: Vec<Caller> = self.seats.iter().map(caller).collect();
        let names = [
            (
                "lustre: recoveries",
                "lustre: hard timeouts",
                "lustre: living clients evicted",
                "lustre: ms of recovery",
            ),
            (
                "lustre without extension: recoveries",
                "lustre without extension: hard timeouts",
                "lustre without extension: living clients evicted",
                "lustre without extension: ms of recovery",
            ),
        ];
        for (extends, (recoveries, hard, evicted, ms)) in [true, false].into_iter().zip(names) {
            let Some(verdict) = recover(&callers, extends) else { continue };
            self.count(recoveries);
            self.count_more(hard, u64::from(verdict.is_hard));
            self.count_more(evicted, verdict.evicted_living);
            self.count_more(ms, verdict.took.as_millis() as u64);
        }
    }
}

/// When a client notices that the MDT has died. `asked`: when it began to wait for an answer, and what it expected then; `heard`: when it
/// got the last one.
fn notices(died: Time, asked: Option<(Time, Duration)>, heard: Time) -> Time {
    let next = |from: Time, step: Duration| {
        let count = died.since(from).as_nanos() / step.as_nanos() + 1;
        from.after(step * count as u32)
    };
    let last_sent = asked.map_or(heard, |(at, _)| at);
    let ping = next(last_sent, PING).after(NOBODY_THERE);
    let late = asked.map(|(at, expected)| {
        let late = at.after(expected.max(EXPECTED_MIN) * 5 / 4 + REQUEST_MORE);
        if late > died { late } else { next(late, EARLY_REPLY) }
    });
    late.map_or(ping, |late| late.min(ping))
}

/// When it reaches the new MDT.
fn comes(notices: Time, restarts: Time, fate: &Fate) -> Option<Time> {
    let (mut attempt, mut wait) = (notices, ATTEMPT);
    while attempt < restarts || fate.is_away(attempt) {
        attempt = attempt.after(wait);
        wait = (wait + ATTEMPT).min(ATTEMPT_MAX);
    }
    Some(attempt).filter(|attempt| fate.gone.is_none_or(|gone| gone > *attempt))
}

/// `None` when nobody comes at all.
fn recover(callers: &[Caller], extends: bool) -> Option<Verdict> {
    let mut come: Vec<Caller> = callers.iter().filter(|caller| caller.comes.is_some()).copied().collect();
    come.sort_by_key(|caller| caller.comes);
    let started = come.first()?.comes?;
    let hard = started.after(HARD);
    let mut ends = started.after(SOFT);
    let mut in_time = Vec::new();
    for caller in &come {
        if caller.comes.is_some_and(|at| at > ends) {
            break;
        }
        if extends {
            ends = ends.max(started.after(caller.expects * 5 / 4 + EXTENSION)).min(hard);
        }
        in_time.push(*caller);
    }
    let is_whole = in_time.len() == callers.len();
    let mut now = if is_whole { in_time.last()?.comes? } else { ends };
    let lives = |caller: &Caller, at: Time| caller.gone.is_none_or(|gone| gone > at);
    // Whoever comes now has no session any more.
    let mut evicted_living = come.len() as u64 - in_time.len() as u64;
    let verdict = |at: Time, is_hard: bool, evicted_living: u64| {
        Some(Verdict { took: at.since(started), is_hard, evicted_living })
    };
    let mut timer = ends.max(now.after(NEXT_WAIT)).min(hard);
    if let Some(expects) =
        in_time.iter().filter(|caller| caller.replay_count > 0).map(|caller| caller.expects).max()
        && extends
    {
        timer = timer.max(now.after(expects * 5 / 4 + REQUEST_MORE)).min(hard);
    }
    let work = REPLAY * in_time.iter().map(|caller| caller.replay_count).sum() + LOCKS;
    loop {
        let done = now.after(work);
        if done < hard && in_time.iter().all(|caller| lives(caller, done)) {
            return verdict(done, false, evicted_living);
        }
        if timer >= hard {
            evicted_living += in_time.iter().filter(|caller| lives(caller, hard)).count() as u64;
            return verdict(hard, true, evicted_living);
        }
        now = timer;
        in_time.retain(|caller| lives(caller, now));
        timer = now.after(NEXT_WAIT).min(hard);
    }
}

#[cfg(test)]
mod tests;
