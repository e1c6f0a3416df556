//! One owner at a time.

use crate::clock;
use crate::connection::Held;
use crate::router::Port;
use crate::run::{self, Runnable};
use crate::timer::{Timed, Timer};
use base::{Duration, Machine, Time, limits};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use wire::Frame;

/// After so long what a machine has put out is performed before it goes on: answers do not wait for what others ask.
const TURN: Duration = Duration::from_micros(200);
/// Frames from connections, and their bytes, that may wait for one machine before the readers of those connections do that have brought
/// more than their share (`connection`). Eight large writes, or what fills a disk's queue many times over.
pub(crate) const QUEUE_FRAMES_MAX: usize = 8192;
pub(crate) const QUEUE_BYTES_MAX: usize = 32 << 20;

/// How a machine is connected to the world.
pub struct OwnerOptions<M: Machine> {
    /// The machine's tick input.
    pub tick: fn() -> M::Input,
    /// The machine's input for a frame.
    pub frame: fn(Frame) -> M::Input,
    /// Performs one output, without blocking. Called in the order of the outputs, by one thread at a time, while
    /// the machine is free for others.
    pub perform: Box<dyn Fn(M::Output) + Send + Sync>,
    pub timer: Arc<Timer>,
    /// Of a machine that judges others by how long it has not heard them.
    pub lateness: Option<Lateness>,
}

/// A tick that is late by much finds a machine that has stood still: its process was stopped, or it hung in one input. What has come meanwhile says
/// that its senders live, and is not read yet: it goes before the tick.
#[derive(Clone, Copy, Debug)]
pub struct Lateness {
    /// How late a tick is then.
    pub late_after: Duration,
    /// How long frames that wait in connections have to come.
    pub frames_first: Duration,
}

impl Lateness {
    /// Of servers, who give up clients that they have not heard for 30 s. These send something every 5 s.
    pub const OF_SERVERS: Lateness =
        Lateness { late_after: limits::STANDSTILL_MIN, frames_first: Duration::from_secs(1) };
}

/// A machine and its two queues.
///
/// Lock order: `machine`, then `inputs` or `outputs` (never both). `machine` and `performing` are only tried, never
/// waited for: who fails leaves his work in the queue, and the present holder looks there after letting go.
pub struct Owner<M: Machine> {
    machine: Mutex<M>,
    inputs: Mutex<Inputs<M::Input>>,
    outputs: Mutex<VecDeque<M::Output>>,
    performing: Mutex<()>,
    /// Nanoseconds of `Time`.
    deadline: AtomicU64,
    /// No tick begins before, in the same.
    ticks_from: AtomicU64,
    options: OwnerOptions<M>,
    me: Weak<Owner<M>>,
}

/// What waits for a machine. Only what comes from connections is counted: the rest is bounded by who brings it.
struct Inputs<I> {
    queue: VecDeque<(I, Option<Held>)>,
    held_count: usize,
    held_bytes: usize,
    tick: Option<QueuedTick>,
}

/// A tick that waits: it comes when so many inputs have gone that were here before it.
#[derive(Clone, Copy)]
struct QueuedTick {
    ahead_count: usize,
    since: Time,
}

impl<I> Default for Inputs<I> {
    fn default() -> Inputs<I> {
        Inputs { queue: VecDeque::new(), held_count: 0, held_bytes: 0, tick: None }
    }
}

impl<I> Inputs<I> {
    fn push(&mut self, input: I, held: Option<Held>) {
        if let Some(held) = &held {
            self.held_count += 1;
            self.held_bytes += held.byte_count();
        }
        self.queue.push_back((input, held));
    }

    /// One waits already, or waits now behind all that is here.
    fn push_tick(&mut self, now: Time) {
        self.tick.get_or_insert(QueuedTick { ahead_count: self.queue.len(), since: now });
    }

    /// The next one; `tick` is what a tick is. If one has waited for so long that it is late, what came since goes before it.
    fn pop(&mut self, now: Time, late_after: Duration, tick: fn() -> I) -> Option<(I, Option<Held>)> {
        match &mut self.tick {
            Some(QueuedTick { ahead_count: 0, since }) => {
                if now.since(*since) < late_after || self.queue.is_empty() {
                    self.tick = None;
                    return Some((tick(), None));
                }
                // Once: what is here now, and no more.
                self.tick = Some(QueuedTick { ahead_count: self.queue.len() - 1, since: Time::MAX });
            }
            Some(tick) => tick.ahead_count -= 1,
            None => {}
        }
        let (input, held) = self.queue.pop_front()?;
        if let Some(held) = &held {
            self.held_count -= 1;
            self.held_bytes -= held.byte_count();
        }
        Some((input, held))
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.tick.is_none()
    }

    fn is_full(&self) -> bool {
        self.held_count >= QUEUE_FRAMES_MAX || self.held_bytes >= QUEUE_BYTES_MAX
    }
}

impl<M> Owner<M>
where
    M: Machine + Send + 'static,
    M::Input: Send + 'static,
    M::Output: Send + 'static,
{
    pub fn new(machine: M, options: OwnerOptions<M>) -> Arc<Owner<M>> {
        let owner = Arc::new_cyclic(|me| Owner {
            deadline: AtomicU64::new(machine.next_deadline().unwrap_or(Time::MAX).0),
            ticks_from: AtomicU64::new(0),
            machine: Mutex::new(machine),
            inputs: Mutex::default(),
            outputs: Mutex::default(),
            performing: Mutex::new(()),
            options,
            me: Weak::clone(me),
        });
        let timed: Weak<Owner<M>> = Arc::downgrade(&owner);
        owner.options.timer.register(timed);
        owner
    }

    /// Queues an input and runs everything that is scheduled on this thread, unless that is already going on.
    pub fn submit(&self, input: M::Input) {
        self.queue(input);
        run::run_all();
    }

    /// Queues an input; the caller gets to `run::run_all` on this thread (once for a batch).
    pub fn queue(&self, input: M::Input) {
        self.queue_held(input, None);
    }

    fn queue_held(&self, input: M::Input, held: Option<Held>) {
        lock(&self.inputs).push(input, held);
        if let Some(me) = self.me.upgrade() {
            run::schedule(me);
        }
    }

    /// Queues an input from a thread that must not run machines; the timer thread runs it.
    pub fn post(&self, input: M::Input) {
        lock(&self.inputs).push(input, None);
        if let Some(me) = self.me.upgrade() {
            self.options.timer.post(me);
        }
    }

    /// Looks at the machine between inputs, waiting for it: for status and statistics, never on a hot path. It performs nothing, so who
    /// looks may hold locks that `perform` takes.
    pub fn with<R>(&self, look: impl FnOnce(&mut M) -> R) -> R {
        let result = look(&mut lock(&self.machine));
        self.end_look();
        result
    }

    /// The same, without waiting: `None` when somebody else has the machine, which may stand still with a device.
    pub fn try_with<R>(&self, look: impl FnOnce(&mut M) -> R) -> Option<R> {
        let result = match self.machine.try_lock() {
            Ok(mut machine) => look(&mut machine),
            Err(TryLockError::WouldBlock) => return None,
            Err(TryLockError::Poisoned(error)) => look(&mut error.into_inner()),
        };
        self.end_look();
        Some(result)
    }

    /// Inputs that arrived meanwhile found the machine taken.
    fn end_look(&self) {
        if !lock(&self.inputs).is_empty()
            && let Some(me) = self.me.upgrade()
        {
            self.options.timer.post(me);
        }
    }

    /// Of frames from connections.
    #[cfg(test)]
    pub fn queued_bytes(&self) -> usize {
        lock(&self.inputs).held_bytes
    }

    /// One turn as the machine's owner; false when somebody else is.
    fn try_run_machine(&self) -> bool {
        let mut machine = match self.machine.try_lock() {
            Ok(machine) => machine,
            Err(TryLockError::WouldBlock) => return false,
            Err(TryLockError::Poisoned(_)) => panic!("a machine panicked: the process must not go on"),
        };
        let mut out = Vec::new();
        let late_after = self.options.lateness.map_or(Duration::MAX, |lateness| lateness.late_after);
        let mut now = clock::now();
        let until = now.time.after(TURN);
        while out.is_empty() || now.time < until {
            let next = lock(&self.inputs).pop(now.time, late_after, self.options.tick);
            let Some((input, held)) = next else { break };
            machine.handle(now, input, &mut out);
            drop(held);
            now = clock::now();
        }
        let deadline = machine.next_deadline().unwrap_or(Time::MAX);
        let before = self.deadline.swap(deadline.0, Ordering::Relaxed);
        if !out.is_empty() {
            // Under the machine's lock, so that outputs keep their order.
            lock(&self.outputs).extend(out);
        }
        drop(machine);
        if deadline.0 < before {
            self.options.timer.deadline_moved(deadline);
        }
        true
    }

    fn perform_outputs(&self) {
        while !lock(&self.outputs).is_empty() {
            let Ok(_performing) = self.performing.try_lock() else { return };
            loop {
                let Some(output) = lock(&self.outputs).pop_front() else { break };
                (self.options.perform)(output);
            }
        }
    }
}

impl<M> Runnable for Owner<M>
where
    M: Machine + Send + 'static,
    M::Input: Send + 'static,
    M::Output: Send + 'static,
{
    /// One turn. What follows from it on this thread comes before the next one: the answers to some inputs do not wait until
    /// all others have been worked off.
    fn run(&self) {
        if lock(&self.inputs).is_empty() || !self.try_run_machine() {
            return;
        }
        self.perform_outputs();
        if !lock(&self.inputs).is_empty()
            && let Some(me) = self.me.upgrade()
        {
            run::schedule(me);
        }
    }
}

impl<M> Timed for Owner<M>
where
    M: Machine + Send + 'static,
    M::Input: Send + 'static,
    M::Output: Send + 'static,
{
    fn deadline(&self) -> Time {
        Time(self.deadline.load(Ordering::Relaxed).max(self.ticks_from.load(Ordering::Relaxed)))
    }

    fn on_deadline(self: Arc<Self>) {
        let now = clock::now().time;
        if let Some(Lateness { late_after, frames_first }) = self.options.lateness
            && now.since(self.deadline()) >= late_after
        {
            // By then it is not late any more.
            self.ticks_from.store(now.after(frames_first).0, Ordering::Relaxed);
            return;
        }
        lock(&self.inputs).push_tick(now);
        run::schedule(self);
        run::run_all();
    }
}

impl<M> Port for Owner<M>
where
    M: Machine + Send + 'static,
    M::Input: Send + 'static,
    M::Output: Send + 'static,
{
    fn push_frame(&self, frame: Frame, held: Option<Held>) {
        self.queue_held((self.options.frame)(frame), held);
    }

    fn is_full(&self) -> bool {
        lock(&self.inputs).is_full()
    }
}

/// Takes a lock. A poisoned one means that a machine panicked, and the panic hook has ended the process.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
