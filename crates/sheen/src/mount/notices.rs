//! The threads that tell the kernel what to forget.

mod waiting;

use super::{Shared, lock};
use anyhow::Result;
use client::{Input, Notify, NotifyId, NotifyResult};
use fuse::Notified;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use waiting::{Subject, Waiting};

/// Threads that hand notices of one kind to the kernel, at most, but for those that stand there.
const NOTICE_THREAD_COUNT_MAX: usize = 64;
/// A thread that has been in the kernel with one notice for so long waits there for a call that waits for locks, most likely.
const STANDS_AFTER: Duration = Duration::from_millis(100);
/// Threads that stand, at most: each for a call of its own, mostly, and one that only waits costs little. With more, what is to be told waits until
/// calls are answered.
const STANDING_THREAD_COUNT_MAX: usize = 4096;
/// All but one of these threads end when they have had nothing to do for so long.
const NOTICE_THREAD_IDLE: Duration = Duration::from_secs(5);

/// Notices of one kind, and the threads that hand them to the kernel. One of them may wait there for a page or a directory of a call
/// that is answered only when another one is done, so there are as many threads as notices, within bounds. What nobody waits for any more
/// may stand there as long as that call is unanswered, and must not keep the rest: the client would give no lock back, and be evicted.
pub(super) struct Notices {
    thread_name: &'static str,
    thread_count_max: usize,
    queue: Mutex<NoticeQueue>,
    is_filled: Condvar,
}

#[derive(Default)]
struct NoticeQueue {
    waiting: Waiting,
    /// Those that threads have, and since when.
    under_way: BTreeMap<NotifyId, Instant>,
    thread_count: usize,
    idle_count: usize,
    /// A thread looks after the queue while all that hand out notices are at work.
    is_watched: bool,
}

/// What there should be besides the threads that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Nothing,
    Threads(usize),
    Watcher,
}

impl Notices {
    /// Of names that the kernel is to drop.
    pub(super) fn of_names() -> Arc<Notices> {
        Notices::new("notify-names", NOTICE_THREAD_COUNT_MAX)
    }

    /// Of pages and attributes that it is to drop.
    pub(super) fn of_inodes() -> Arc<Notices> {
        Notices::new("notify-inodes", NOTICE_THREAD_COUNT_MAX)
    }

    /// Of pages that are put into its cache.
    pub(super) fn of_pushes() -> Arc<Notices> {
        Notices::new("push-pages", client::PUSH_COUNT_MAX)
    }

    fn new(thread_name: &'static str, thread_count_max: usize) -> Arc<Notices> {
        let (queue, is_filled) = (Mutex::default(), Condvar::new());
        Arc::new(Notices { thread_name, thread_count_max, queue, is_filled })
    }

    /// True when no thread has it, nor will.
    pub(super) fn take_back(&self, id: NotifyId) -> bool {
        lock(&self.queue).waiting.remove(id)
    }

    pub(super) fn push(&self, id: NotifyId, notice: Notify) -> Missing {
        let mut queue = lock(&self.queue);
        queue.waiting.push(id, notice);
        self.is_filled.notify_one();
        if queue.waiting.ready_count() <= queue.idle_count {
            return Missing::Nothing;
        }
        if queue.thread_count < self.thread_count_max {
            return Missing::Threads(1);
        }
        match std::mem::replace(&mut queue.is_watched, true) {
            true => Missing::Nothing,
            false => Missing::Watcher,
        }
    }

    /// What the watcher finds at `now`; `Nothing` is its end.
    fn look(&self, now: Instant) -> Missing {
        let mut queue = lock(&self.queue);
        if queue.waiting.ready_count() == 0 {
            queue.is_watched = false;
            return Missing::Nothing;
        }
        let stands = |since: &&Instant| now.saturating_duration_since(**since) >= STANDS_AFTER;
        let standing = queue.under_way.values().filter(stands).count().min(STANDING_THREAD_COUNT_MAX);
        // As many as have something to do: each may come to stand too, and the next look is far off.
        let waiting = queue.waiting.ready_count().saturating_sub(queue.idle_count);
        let room = (self.thread_count_max + standing).saturating_sub(queue.thread_count);
        match waiting.min(room) {
            0 => Missing::Watcher,
            count => Missing::Threads(count),
        }
    }

    /// A thread is done with this one, which was about `subject`, and comes for the next.
    fn end(&self, id: NotifyId, subject: Subject) {
        let mut queue = lock(&self.queue);
        queue.under_way.remove(&id);
        queue.waiting.end(subject);
    }

    /// The next notice for a thread; `None` when there are threads enough without it, or nobody needs them any more.
    fn next(&self, is_needed: impl Fn() -> bool) -> Option<(NotifyId, Notify)> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some((id, notice)) = queue.waiting.pop() {
                queue.under_way.insert(id, Instant::now());
                return Some((id, notice));
            }
            queue.idle_count += 1;
            let waited = self.is_filled.wait_timeout(queue, NOTICE_THREAD_IDLE);
            let (locked, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = locked;
            queue.idle_count -= 1;
            let is_spare = timeout.timed_out() && queue.thread_count > 1;
            if queue.waiting.ready_count() == 0 && (is_spare || !is_needed()) {
                queue.thread_count -= 1;
                return None;
            }
        }
    }
}

/// A thread that hands notices to the kernel, and results to the client.
pub(super) fn start_thread(shared: &Arc<Shared>, notices: &Arc<Notices>) -> Result<()> {
    let weak = Arc::downgrade(shared);
    lock(&notices.queue).thread_count += 1;
    let serving = Arc::clone(notices);
    let started = std::thread::Builder::new().name(notices.thread_name.into()).spawn(move || {
        while let Some((id, notice)) = serving.next(|| weak.strong_count() > 0) {
            let Some(shared) = weak.upgrade() else { return };
            let subject = Subject::of(&notice);
            let result = shared.notify(notice);
            serving.end(id, subject);
            shared.owner().submit(Input::Notified(id, result));
        }
    });
    if started.is_err() {
        lock(&notices.queue).thread_count -= 1;
    }
    started.map(|_| ()).map_err(Into::into)
}

/// Without one of them its notice waits for the threads that there are.
pub(super) fn start_threads(shared: &Arc<Shared>, notices: &Arc<Notices>, count: usize) {
    for _ in 0..count {
        let _ = start_thread(shared, notices);
    }
}

/// A thread that sees to it that those which stand in the kernel keep nothing that waits behind them.
pub(super) fn start_watcher(shared: &Arc<Shared>, notices: &Arc<Notices>) {
    let weak = Arc::downgrade(shared);
    let watched = Arc::clone(notices);
    let started = std::thread::Builder::new().name("watch-notices".into()).spawn(move || {
        loop {
            std::thread::sleep(STANDS_AFTER);
            let missing = watched.look(Instant::now());
            let Some(shared) = weak.upgrade().filter(|_| missing != Missing::Nothing) else { return };
            if let Missing::Threads(count) = missing {
                start_threads(&shared, &watched, count);
            }
        }
    });
    if started.is_err() {
        lock(&notices.queue).is_watched = false;
    }
}

pub(super) fn told(result: io::Result<Notified>) -> NotifyResult {
    match result {
        Ok(Notified::Done) => NotifyResult::Ok,
        Ok(Notified::Unknown) => NotifyResult::NoEntry,
        Err(error) => {
            tracing::debug!(%error, "the kernel refused a notification");
            NotifyResult::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTICE: Notify = Notify::InvalInode { node: 2, offset_bytes: 0, byte_count: 4096 };

    /// A thread that has taken what is next, and is in the kernel with it.
    fn start(notices: &Notices) -> Option<u64> {
        lock(&notices.queue).thread_count += 1;
        take(notices)
    }

    fn take(notices: &Notices) -> Option<u64> {
        notices.next(|| true).map(|(id, _)| id.0)
    }

    fn push(notices: &Notices, number: u64) -> Missing {
        notices.push(NotifyId(number), NOTICE)
    }

    #[test]
    fn threads_that_stand_in_the_kernel_keep_nothing_behind_them() {
        let notices = Notices::of_inodes();
        let count = NOTICE_THREAD_COUNT_MAX as u64;
        for id in 0..count {
            assert_eq!(push(&notices, id), Missing::Threads(1));
            assert_eq!(start(&notices), Some(id));
        }
        assert_eq!(push(&notices, count), Missing::Watcher, "all threads are at work");
        assert_eq!(push(&notices, count + 1), Missing::Nothing, "one watcher is enough");
        let later = Instant::now() + STANDS_AFTER;
        assert_eq!(notices.look(later - STANDS_AFTER * 2), Missing::Watcher, "they have only just begun");
        assert_eq!(notices.look(later), Missing::Threads(2));
        assert_eq!(start(&notices), Some(count));
        assert_eq!(notices.look(later), Missing::Threads(1), "the others still stand");
        assert_eq!(start(&notices), Some(count + 1));
        assert_eq!(notices.look(later), Missing::Nothing);
        // Most come back: there are threads enough for a while.
        (0..count).for_each(|id| notices.end(NotifyId(id), Subject::Other));
        assert_eq!(push(&notices, count + 2), Missing::Watcher);
        assert_eq!(notices.look(Instant::now()), Missing::Watcher);
        assert_eq!(take(&notices), Some(count + 2));
        assert_eq!(notices.look(later), Missing::Nothing);
    }

    /// Each look comes a tenth of a second after the last one: with one thread for each of them hundreds of locks would take half a minute.
    #[test]
    fn as_many_threads_begin_as_are_kept_by_those_that_stand() {
        let notices = Notices::of_inodes();
        let count = NOTICE_THREAD_COUNT_MAX as u64;
        let before = Instant::now();
        for id in 0..count {
            push(&notices, id);
            start(&notices);
        }
        for id in count..5 * count + 3 {
            push(&notices, id);
        }
        let mut taken = count;
        for _ in 0..4 {
            let later = Instant::now() + STANDS_AFTER;
            assert_eq!(notices.look(later), Missing::Threads(NOTICE_THREAD_COUNT_MAX));
            for _ in 0..count {
                assert_eq!(start(&notices), Some(taken));
                taken += 1;
            }
            assert_eq!(notices.look(before), Missing::Watcher, "none stands there yet");
        }
        assert_eq!(
            notices.look(Instant::now() + STANDS_AFTER),
            Missing::Threads(3),
            "no more than have something to do"
        );
    }
}
