//! The threads on which an OST's reads wait for its device, each beside the others.

use base::{Extent, ObjectId};
use net::Owner;
use oss::{FetchId, Input, Oss};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use store::ObjectStore;
use store_disk::{MetaDisk, ObjectDisk};

type Machine = Owner<Oss<MetaDisk, ObjectDisk>>;

/// As many reads as keep a fast device busy. More wait for their turn.
const THREAD_COUNT_MAX: usize = 32;
/// A thread that has had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(5);
/// What follows from one takes no time, unless the device stands still.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

struct Fetch {
    id: FetchId,
    object: ObjectId,
    extent: Extent,
}

#[derive(Default)]
struct Waiting {
    fetches: VecDeque<Fetch>,
    thread_count: usize,
    idle_count: usize,
    busy_count: usize,
    is_stopped: bool,
}

/// Of one OST.
pub struct Fetcher {
    objects: Arc<ObjectDisk>,
    oss: OnceLock<Weak<Machine>>,
    waiting: Mutex<Waiting>,
    is_filled: Condvar,
}

impl Fetcher {
    pub fn new(objects: Arc<ObjectDisk>) -> Arc<Fetcher> {
        let (oss, waiting, is_filled) = (OnceLock::new(), Mutex::default(), Condvar::new());
        Arc::new(Fetcher { objects, oss, waiting, is_filled })
    }

    /// Where it is said that something has come.
    pub fn fill(&self, oss: &Arc<Machine>) {
        assert!(self.oss.set(Arc::downgrade(oss)).is_ok(), "a fetcher has one OST");
    }

    pub fn start(self: &Arc<Fetcher>, id: FetchId, object: ObjectId, extent: Extent) {
        let mut waiting = self.lock();
        if waiting.is_stopped {
            return;
        }
        waiting.fetches.push_back(Fetch { id, object, extent });
        if waiting.fetches.len() <= waiting.idle_count || waiting.thread_count >= THREAD_COUNT_MAX {
            self.is_filled.notify_one();
            return;
        }
        waiting.thread_count += 1;
        drop(waiting);
        let me = Arc::clone(self);
        if std::thread::Builder::new().name("fetch".into()).spawn(move || me.serve()).is_err() {
            self.lock().thread_count -= 1;
            self.fetch_here();
        }
    }

    /// There are too many threads on this machine, and perhaps none of these. Its caller runs the OST's outputs, which has to be told by another
    /// thread: by its timer's.
    fn fetch_here(&self) {
        let Some(fetch) = self.lock().fetches.pop_back() else { return };
        let fetched = self.objects.fetch(&fetch.object, fetch.extent);
        if let Some(oss) = self.oss.get().and_then(Weak::upgrade) {
            oss.post(Input::Fetched(fetch.id, fetched));
        }
    }

    /// Nothing is fetched any more, nor told; what is being told is waited for, but not for long.
    pub fn stop(&self) {
        let mut waiting = self.lock();
        waiting.is_stopped = true;
        waiting.fetches.clear();
        self.is_filled.notify_all();
        drop(self.is_filled.wait_timeout_while(waiting, STOP_PATIENCE, |waiting| waiting.busy_count > 0));
    }

    fn serve(&self) {
        while let Some(fetch) = self.next() {
            let fetched = self.objects.fetch(&fetch.object, fetch.extent);
            let mut waiting = self.lock();
            if waiting.is_stopped {
                return;
            }
            waiting.busy_count += 1;
            drop(waiting);
            if let Some(oss) = self.oss.get().and_then(Weak::upgrade) {
                oss.submit(Input::Fetched(fetch.id, fetched));
            }
            let mut waiting = self.lock();
            waiting.busy_count -= 1;
            if waiting.is_stopped {
                self.is_filled.notify_all();
            }
        }
    }

    /// `None` when there has been nothing to do for long.
    fn next(&self) -> Option<Fetch> {
        let mut waiting = self.lock();
        loop {
            if let Some(fetch) = waiting.fetches.pop_front() {
                return Some(fetch);
            }
            if waiting.is_stopped {
                return None;
            }
            waiting.idle_count += 1;
            let waited = self.is_filled.wait_timeout(waiting, IDLE);
            let (locked, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            waiting = locked;
            waiting.idle_count -= 1;
            if timeout.timed_out() && waiting.fetches.is_empty() {
                waiting.thread_count -= 1;
                return None;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
