//! A single-threaded executor: tasks that are polled when somebody completed what they wait for.
//!
//! Nothing runs by itself: `Executor::take_ready` and `Executor::poll` are called in the machine's tail until nothing
//! is ready. Tasks are `Send`, which keeps every guard out of them across an await (the compiler checks it).

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tasks and which of them can go on.
#[derive(Default)]
pub(crate) struct Executor {
    tasks: BTreeMap<u64, (Task, Waker)>,
    last_task: u64,
    ready: Arc<Mutex<Vec<u64>>>,
}

struct TaskWaker {
    task: u64,
    ready: Arc<Mutex<Vec<u64>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        locked(&self.ready).push(self.task);
    }
}

/// A mutex of this machine is never contended, as the machine has one owner at a time, and a panic under it stops
/// the process anyway.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Executor {
    /// Adds a task and polls it for the first time.
    pub(crate) fn spawn(&mut self, task: Task) {
        self.last_task += 1;
        let id = self.last_task;
        let waker = Waker::from(Arc::new(TaskWaker { task: id, ready: self.ready.clone() }));
        self.tasks.insert(id, (task, waker));
        self.poll(id);
    }

    /// Tasks that were woken since the last call, in the order of waking.
    pub(crate) fn take_ready(&mut self) -> Vec<u64> {
        std::mem::take(&mut *locked(&self.ready))
    }

    pub(crate) fn poll(&mut self, id: u64) {
        let Some((task, waker)) = self.tasks.get_mut(&id) else { return };
        if task.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
            self.tasks.remove(&id);
        }
    }

    pub(crate) fn task_count(&self) -> usize {
        self.tasks.len()
    }
}

struct Slot<T> {
    value: Option<T>,
    is_closed: bool,
    waker: Option<Waker>,
}

/// The end that completes.
pub(crate) struct Sender<T>(Arc<Mutex<Slot<T>>>);

/// The end that waits: a future of the value, or of `None` when the sender was dropped.
pub(crate) struct Receiver<T>(Arc<Mutex<Slot<T>>>);

/// A value that will come.
pub(crate) fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Arc::new(Mutex::new(Slot { value: None, is_closed: false, waker: None }));
    (Sender(slot.clone()), Receiver(slot))
}

impl<T> Sender<T> {
    pub(crate) fn send(self, value: T) {
        locked(&self.0).value = Some(value);
    }

    /// Whether nobody waits for the value any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = locked(&self.0);
            slot.is_closed = true;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = locked(&self.0);
        if let Some(value) = slot.value.take() {
            return Poll::Ready(Some(value));
        }
        if slot.is_closed {
            return Poll::Ready(None);
        }
        slot.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
