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
#[derive(Default)]
pub(super) struct Notices {
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
    /// True when there should be one more thread.
    pub(super) fn push(&self, id: NotifyId, notice: Notify) -> bool {
        let mut queue = lock(&self.queue);
        queue.notices.push_back((id, notice));
        self.is_filled.notify_one();
        queue.notices.len() > queue.idle_count && queue.thread_count < NOTICE_THREAD_COUNT_MAX
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
pub(super) fn start_inode_thread(shared: &Arc<Shared>) -> Result<()> {
    let notices = Arc::clone(&shared.inode_notices);
    let weak = Arc::downgrade(shared);
    lock(&notices.queue).thread_count += 1;
    let serving = Arc::clone(&notices);
    let started = std::thread::Builder::new().name("notify-inodes".into()).spawn(move || {
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
