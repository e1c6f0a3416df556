//! Threads that read from the connections that others have made.
//!
//! While there are few of them each has a thread of its own, which blocks in recv(2): nothing wakes another thread, and the kernel keeps it
//! where it ran before. Those beyond are *parked* while nothing comes from them: in one epoll, with neither a thread nor a buffer. One thread
//! waits there at least; who gets a connection serves it himself until nothing is left to read, after he has seen to it that another
//! one waits. Whoever then finds a place among the kept ones stays with his connection; one from which nothing has come for a while gives
//! its place and its thread back as soon as any are parked. So what is busy has threads of its own, and what only pings does not.
//!
//! Threads have a bound. Only who has begun a frame, or brings more than a full machine takes, blocks one while the connection is not kept.
//! When all are taken so, those lose their connections that have been at one frame for long (`connection`): their number is all that a
//! peer can take from others, for so long. Machines never wait for a reader: what is queued for them they work off whatever is parked.

use crate::clock;
use crate::connection::{Connection, READ_BYTES, ReadEnd, ReaderThread};
use base::{Duration, Time, limits};
use bytes::BytesMut;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many threads there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReaderLimits {
    /// Connections that may keep a thread while nothing comes.
    pub kept_max: usize,
    pub threads_max: usize,
    /// A thread looks this often, while nothing comes, whether it is of more use elsewhere.
    pub patience: Duration,
    /// Where no thread is left for others, one that has been at one frame for so long gives up its connection.
    pub stalled_max: Duration,
    /// Of those that have waited for a connection for so long all but one end.
    pub wait_max: Duration,
}

impl ReaderLimits {
    pub const DEFAULT: ReaderLimits = ReaderLimits {
        kept_max: 256,
        threads_max: 1024,
        patience: Duration::from_secs(4),
        stalled_max: Duration::from_secs(15),
        wait_max: Duration::from_secs(10),
    };
}

const _: () = assert!(ReaderLimits::DEFAULT.kept_max * 2 < ReaderLimits::DEFAULT.threads_max);
// Who only pings keeps no thread.
const _: () = assert!(ReaderLimits::DEFAULT.patience.as_millis() < limits::PING_INTERVAL.as_millis());

/// Threads beyond it that have nothing to do end at once, and so a short burst does not start as many again and again.
const WAITING_MAX: usize = 8;
/// What the epoll says of the bell; no connection has this address.
const BELL: u64 = 0;

/// Takes what a thread of these reads.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Reads until the connection has ended, which it then knows, or is to be parked.
    fn serve(&self, connection: &Arc<Connection>, thread: &mut Place<'_>, buffer: &mut BytesMut) -> ReadEnd;

    /// The connection cannot be served any more.
    fn on_end(&self, connection: &Arc<Connection>);
}

pub(crate) struct Readers {
    epoll: OwnedFd,
    /// Readable when all threads are to end.
    bell: OwnedFd,
    limits: ReaderLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    parked: HashMap<u64, Arc<Connection>>,
    /// All of them.
    thread_count: usize,
    /// Those that wait for a parked connection.
    waiting_count: usize,
    /// Those that stay with a connection while nothing comes.
    kept_count: usize,
    /// The last one could not be started.
    is_short_of_threads: bool,
    is_closed: bool,
}

impl State {
    /// No thread is left for those that are parked.
    fn is_exhausted(&self, limits: ReaderLimits) -> bool {
        self.waiting_count == 0 && (self.thread_count >= limits.threads_max || self.is_short_of_threads)
    }
}

/// The place of a thread that serves a connection.
pub(crate) struct Place<'a> {
    readers: &'a Readers,
    is_kept: bool,
}

impl ReaderThread for Place<'_> {
    fn is_kept(&self) -> bool {
        self.is_kept
    }

    fn stays(&mut self) -> bool {
        let mut state = self.readers.lock();
        if self.is_kept && state.parked.is_empty() {
            return true;
        }
        if self.is_kept {
            state.kept_count -= 1;
            self.is_kept = false;
        } else if state.kept_count < self.readers.limits.kept_max && !state.is_exhausted(self.readers.limits)
        {
            state.kept_count += 1;
            self.is_kept = true;
        }
        self.is_kept
    }

    fn is_wanted(&self) -> bool {
        self.readers.lock().is_exhausted(self.readers.limits)
    }

    fn gives_up(&self, since: Time) -> bool {
        clock::now().time >= since.after(self.readers.limits.stalled_max) && self.is_wanted()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.is_kept {
            self.readers.lock().kept_count -= 1;
        }
    }
}

impl Readers {
    /// # Errors
    /// No descriptors are left.
    pub fn new(limits: ReaderLimits) -> io::Result<Arc<Readers>> {
        // SAFETY: both return a new descriptor, or -1.
        let (epoll, bell) = unsafe {
            (owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))?, owned(libc::eventfd(0, libc::EFD_CLOEXEC))?)
        };
        control(&epoll, libc::EPOLL_CTL_ADD, bell.as_raw_fd(), libc::EPOLLIN, BELL)?;
        Ok(Arc::new(Readers { epoll, bell, limits, state: Mutex::default() }))
    }

    /// Serves a new connection from now on.
    pub fn take(self: &Arc<Readers>, host: &Arc<impl Serve>, connection: &Arc<Connection>) {
        let mut state = self.lock();
        if state.kept_count < self.limits.kept_max && state.thread_count < self.limits.threads_max {
            state.kept_count += 1;
            state.thread_count += 1;
            drop(state);
            if self.start_thread(host, Some(Arc::clone(connection))) {
                return;
            }
            self.lock().kept_count -= 1;
        } else {
            drop(state);
        }
        self.park(host, connection);
    }

    /// Nobody is served any more. Returns those that are parked.
    pub fn close(&self) -> Vec<Arc<Connection>> {
        let mut state = self.lock();
        state.is_closed = true;
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight readable bytes. It cannot block: nobody adds anything else.
        unsafe { libc::write(self.bell.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        state.parked.drain().map(|(_, connection)| connection).collect()
    }

    /// From now on a thread comes when something has come from this connection, or it has ended.
    fn park(self: &Arc<Readers>, host: &Arc<impl Serve>, connection: &Arc<Connection>) {
        let key = connection.key() as u64;
        let mut state = self.lock();
        // Before the kernel knows of it: the next moment another thread may have it.
        if state.is_closed {
            drop(state);
            return host.on_end(connection);
        }
        state.parked.insert(key, Arc::clone(connection));
        let is_taken = match self.arm(connection) {
            Ok(()) => self.have_one_waiting(state, host),
            Err(_) => {
                drop(state);
                false
            }
        };
        if !is_taken && self.lock().parked.remove(&key).is_some() {
            host.on_end(connection);
        }
    }

    fn arm(&self, connection: &Connection) -> io::Result<()> {
        let (descriptor, key) = (connection.descriptor(), connection.key() as u64);
        let events = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLONESHOT;
        match control(&self.epoll, libc::EPOLL_CTL_MOD, descriptor, events, key) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                control(&self.epoll, libc::EPOLL_CTL_ADD, descriptor, events, key)
            }
            armed => armed,
        }
    }

    /// Starts a thread that waits, where none does and one more may be. False: there is none at all that could come.
    fn have_one_waiting(
        self: &Arc<Readers>,
        mut state: MutexGuard<'_, State>,
        host: &Arc<impl Serve>,
    ) -> bool {
        if state.waiting_count > 0 || state.thread_count >= self.limits.threads_max || state.parked.is_empty()
        {
            return true;
        }
        state.thread_count += 1;
        state.waiting_count += 1;
        drop(state);
        if self.start_thread(host, None) {
            return true;
        }
        let mut state = self.lock();
        state.waiting_count -= 1;
        // The others look for parked ones when they are done.
        state.thread_count > 0
    }

    /// False, and it counts no more, when it cannot be started.
    fn start_thread(self: &Arc<Readers>, host: &Arc<impl Serve>, first: Option<Arc<Connection>>) -> bool {
        let (me, its_host) = (Arc::clone(self), Arc::clone(host));
        let thread = std::thread::Builder::new().name("net-reader".into());
        let is_started = thread.spawn(move || me.work(&its_host, first)).is_ok();
        let mut state = self.lock();
        state.is_short_of_threads = !is_started;
        if !is_started {
            state.thread_count -= 1;
        }
        is_started
    }

    /// Body of a thread. `first` is kept.
    fn work(self: &Arc<Readers>, host: &Arc<impl Serve>, first: Option<Arc<Connection>>) {
        let mut buffer = BytesMut::with_capacity(READ_BYTES);
        if let Some(connection) = first {
            self.serve(host, &connection, true, &mut buffer);
            drop(connection);
            if !self.start_waiting() {
                return;
            }
        }
        while let Some(connection) = self.wait_for_parked() {
            let mut state = self.lock();
            state.waiting_count -= 1;
            // If it cannot be started, this thread comes back.
            self.have_one_waiting(state, host);
            self.serve(host, &connection, false, &mut buffer);
            drop(connection);
            if !self.start_waiting() {
                return;
            }
        }
    }

    fn serve(
        self: &Arc<Readers>,
        host: &Arc<impl Serve>,
        connection: &Arc<Connection>,
        is_kept: bool,
        buffer: &mut BytesMut,
    ) {
        let end = host.serve(connection, &mut Place { readers: self, is_kept }, buffer);
        match end {
            ReadEnd::Idle => self.park(host, connection),
            ReadEnd::Ended => buffer.clear(),
        }
    }

    /// False: this thread is not needed, and counts no more.
    fn start_waiting(&self) -> bool {
        let mut state = self.lock();
        if state.waiting_count >= WAITING_MAX || state.parked.is_empty() || state.is_closed {
            state.thread_count -= 1;
            return false;
        }
        state.waiting_count += 1;
        true
    }

    /// The next one that something has come from; `None`: this thread is not needed, and counts no more.
    fn wait_for_parked(&self) -> Option<Arc<Connection>> {
        loop {
            let mut event = libc::epoll_event { events: 0, u64: BELL };
            let wait_ms = self.limits.wait_max.as_millis() as libc::c_int;
            // SAFETY: room for one event.
            let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut event, 1, wait_ms) };
            let key = event.u64;
            let mut state = self.lock();
            if count > 0
                && let Some(connection) = state.parked.remove(&key)
            {
                return Some(connection);
            }
            let is_idle = count == 0 && (state.waiting_count > 1 || state.parked.is_empty());
            if is_idle || state.is_closed {
                state.waiting_count -= 1;
                state.thread_count -= 1;
                return None;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub fn thread_count(&self) -> usize {
        self.lock().thread_count
    }

    #[cfg(test)]
    pub fn parked_count(&self) -> usize {
        self.lock().parked.len()
    }

    #[cfg(test)]
    pub fn parked_peers(&self) -> Vec<String> {
        self.lock().parked.values().map(|parked| parked.peer().to_owned()).collect()
    }
}

/// # Safety
/// Nobody else owns the descriptor.
unsafe fn owned(descriptor: libc::c_int) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as the caller says.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn control(
    epoll: &OwnedFd,
    operation: libc::c_int,
    descriptor: libc::c_int,
    events: libc::c_int,
    key: u64,
) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: key };
    // SAFETY: the event is a local.
    let result = unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, descriptor, &raw mut event) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
