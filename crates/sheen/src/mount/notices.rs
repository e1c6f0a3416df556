//! The threads that tell the kernel what to forget.

use super::{Shared, lock};
use anyhow::Result;
use client::{Input, Notify, NotifyId, NotifyResult};
use fuse::Notified;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Threads that hand notices about inodes to the kernel, at most. Each but one waits there for a call that waits for locks.
const NOTICE_THREAD_COUNT_MAX: usize = 64;
/// All but one of these threads end when they have had nothing to do for so long.
const NOTICE_THREAD_IDLE: Duration = Duration::from_secs(5);

/// A thread that hands notices to the kernel and results to the client.
pub(super) fn start_notifying(
    name: &str,
    shared: &Arc<Shared>,
    notices: mpsc::Receiver<(NotifyId, Notify)>,
) -> Result<()> {
    let shared = Arc::downgrade(shared);
    std::thread::Builder::new().name(name.into()).spawn(move || {
        while let Ok((id, notice)) = notices.recv() {
            let Some(shared) = shared.upgrade() else { return };
            let result = shared.notify(notice);
            shared.owner().submit(Input::Notified(id, result));
        }
    })?;
    Ok(())
}

/// Notices about inodes, and the threads that hand them to the kernel. One of them may wait there for a page of a call
/// that is answered only when another one is done, so there are as many threads as notices, within bounds.
pub(super) struct Notices {
    thread_name: &'static str,
    thread_count_max: usize,
    queue: Mutex<NoticeQueue>,
    is_filled: Condvar,
}

#[derive(Default)]
struct NoticeQueue {
    notices: VecDeque<(NotifyId, Notify)>,
    thread_count: usize,
    idle_count: usize,
}

impl Notices {
    /// Of what the kernel is to drop.
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
        let mut queue = lock(&self.queue);
        let found = queue.notices.iter().position(|(known, _)| *known == id);
        found.and_then(|index| queue.notices.remove(index)).is_some()
    }

    /// True when there should be one more thread.
    pub(super) fn push(&self, id: NotifyId, notice: Notify) -> bool {
        let mut queue = lock(&self.queue);
        queue.notices.push_back((id, notice));
        self.is_filled.notify_one();
        queue.notices.len() > queue.idle_count && queue.thread_count < self.thread_count_max
    }

    /// The next notice for a thread; `None` when there are threads enough without it, or nobody needs them any more.
    fn next(&self, is_needed: impl Fn() -> bool) -> Option<(NotifyId, Notify)> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(notice) = queue.notices.pop_front() {
                return Some(notice);
            }
            queue.idle_count += 1;
            let waited = self.is_filled.wait_timeout(queue, NOTICE_THREAD_IDLE);
            let (locked, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = locked;
            queue.idle_count -= 1;
            let is_spare = timeout.timed_out() && queue.thread_count > 1;
            if queue.notices.is_empty() && (is_spare || !is_needed()) {
                queue.thread_count -= 1;
                return None;
            }
        }
    }
}

/// A thread that hands notices about inodes to the kernel, and results to the client.
pub(super) fn start_inode_thread(shared: &Arc<Shared>, notices: &Arc<Notices>) -> Result<()> {
    let weak = Arc::downgrade(shared);
    lock(&notices.queue).thread_count += 1;
    let serving = Arc::clone(notices);
    let started = std::thread::Builder::new().name(notices.thread_name.into()).spawn(move || {
        while let Some((id, notice)) = serving.next(|| weak.strong_count() > 0) {
            let Some(shared) = weak.upgrade() else { return };
            let result = shared.notify(notice);
            shared.owner().submit(Input::Notified(id, result));
        }
    });
    if started.is_err() {
        lock(&notices.queue).thread_count -= 1;
    }
    started.map(|_| ()).map_err(Into::into)
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
