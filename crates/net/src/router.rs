//! Where a frame goes: to a machine of this process, or onto a connection.
//!
//! Whoever has sent a request is found, by whom he has asked, through the connection that brought his last one; targets also through
//! the addresses of the configuration. Only frames for machines of this process are accepted from a connection: nothing is forwarded.

use crate::backlogs::Backlogs;
use crate::callers::{Callers, Conversation};
use crate::clock;
use crate::connection::{Connection, Held, OwnThread, READ_BYTES, ReadEnd, ReaderThread};
use crate::helpers::Helpers;
use crate::readers::{Place, ReaderLimits, Readers, Serve};
use crate::run::{self, Runnable};
use base::{ClientId, ClusterConfig, Duration, Endpoint, TargetId, Time, limits};
use bytes::BytesMut;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};
use wire::{Frame, FrameKind, flags};

/// Connections that one process accepts at a time: each may hold its share of what waits for machines and for sockets (`backlogs`), and no
/// thread (`readers`).
const CONNECTIONS_MAX: usize = 16_384;
/// Descriptors that are kept for stores, which keep object files open, for control sockets and for connections to targets.
const DESCRIPTORS_BESIDE: usize = 4096;
/// Those that wait to be accepted: after a restart all clients come at once, and one that finds this full tries again a second later. The
/// kernel takes what `net.core.somaxconn` allows of it.
const LISTEN_BACKLOG: libc::c_int = 4096;
/// Who has said who he is and then says nothing for so long has no session any more: those ping.
const SILENT_MAX: Duration = limits::SILENT_CLIENT_MAX;
/// Frames kept for a target while its connection is being made; more are dropped.
const FRAMES_WAITING_MAX: usize = 256;
/// Least time between two attempts. Whoever sends waits longer and longer himself (`limits::RECONNECT_MAX`).
const RETRY: Duration = limits::RECONNECT_FIRST;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Frames to a target that has several addresses, and from which nothing was heard on this connection: after so many another program
/// has its port, or a server that does not have this target (now), and the next address is tried.
const UNHEARD_MAX: u32 = 3;

/// A machine that takes frames.
pub trait Port: Runnable {
    /// Queues the frame, without running anything. `held`, of one that a connection has brought, is dropped when the machine has handled it.
    fn push_frame(&self, frame: Frame, held: Option<Held>);

    /// Whether so much from connections waits for it that those are to wait that have brought much of it.
    fn is_full(&self) -> bool;
}

pub struct Router {
    process: ClientId,
    local: RwLock<HashMap<Endpoint, Arc<dyn Port>>>,
    learned: RwLock<Callers>,
    routes: Mutex<HashMap<TargetId, Route>>,
    listeners: Mutex<Vec<Arc<TcpListener>>>,
    /// Those that this process has made.
    made: Mutex<Vec<Weak<Connection>>>,
    /// Those that others have made, by their keys.
    accepted: Mutex<HashMap<usize, Arc<Connection>>>,
    connections_max: AtomicUsize,
    /// From the first listener on.
    readers: OnceLock<Arc<Readers>>,
    reader_limits: ReaderLimits,
    backlogs: Arc<Backlogs>,
    /// Attempts to connect so far.
    attempt_count: AtomicU64,
    is_closed: AtomicBool,
    on_lost: OnceLock<Box<dyn Fn(TargetId) + Send + Sync>>,
    helpers: OnceLock<Arc<Helpers>>,
    me: Weak<Router>,
}

/// Why nobody was reached at an address. As text it begins with the address, and stands in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreached {
    #[error("{address}: this name does not resolve ({why})")]
    Unresolved { address: String, why: String },
    #[error("{address}: {why}")]
    NotConnected { address: String, why: String },
}

/// The way to one target.
struct Route {
    /// `HOST:PORT`, tried in turn.
    addresses: Vec<String>,
    next_address: usize,
    /// How the last attempt at each address failed, since there was a connection.
    unreached: BTreeMap<String, Unreached>,
    /// Frames sent on a connection on which nothing was heard yet.
    unheard_count: u32,
    link: Link,
}

enum Link {
    /// No attempt before this time.
    Down {
        not_before: Time,
    },
    /// `attempt` tells this attempt from earlier ones, of other addresses, that have not ended yet.
    Connecting {
        attempt: u64,
        waiting: Vec<Frame>,
    },
    Up(Arc<Connection>),
}

impl Route {
    fn new(addresses: Vec<String>) -> Route {
        let link = Link::Down { not_before: Time::ZERO };
        Route { addresses, next_address: 0, unreached: BTreeMap::new(), unheard_count: 0, link }
    }

    fn is_at(&self, wanted: u64) -> bool {
        matches!(self.link, Link::Connecting { attempt, .. } if attempt == wanted)
    }
}

impl Router {
    pub fn new() -> Arc<Router> {
        Router::accepting(CONNECTIONS_MAX, ReaderLimits::DEFAULT)
    }

    fn accepting(connections_max: usize, reader_limits: ReaderLimits) -> Arc<Router> {
        Arc::new_cyclic(|me| Router {
            process: ClientId(clock::random_u128()),
            local: RwLock::default(),
            learned: RwLock::default(),
            routes: Mutex::default(),
            listeners: Mutex::default(),
            made: Mutex::default(),
            accepted: Mutex::default(),
            connections_max: AtomicUsize::new(connections_max),
            readers: OnceLock::new(),
            reader_limits,
            backlogs: Arc::default(),
            attempt_count: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            on_lost: OnceLock::new(),
            helpers: OnceLock::new(),
            me: Weak::clone(me),
        })
    }

    /// As what this process calls the management server: no other one has the name, nor will this one when it is started again.
    pub fn process(&self) -> ClientId {
        self.process
    }

    /// `tell` is called when an established connection to a target has ended: its sessions need not wait for their
    /// timeouts. Set once, before anything is sent.
    pub fn on_lost(&self, tell: impl Fn(TargetId) + Send + Sync + 'static) {
        assert!(self.on_lost.set(Box::new(tell)).is_ok(), "set once");
    }

    /// Frames between machines of this process for which nobody waits yet are executed by these. Set once.
    pub fn set_helpers(&self, helpers: Arc<Helpers>) {
        assert!(self.helpers.set(helpers).is_ok(), "set once");
    }

    /// What may wait for the sockets of all connections together.
    pub fn backlogs(&self) -> &Backlogs {
        &self.backlogs
    }

    /// Accepts no more connections than a process has room for that may have so many descriptors: half of them where they are few.
    pub fn set_descriptors_max(&self, descriptors_max: usize) {
        let room = descriptors_max.saturating_sub(DESCRIPTORS_BESIDE).max(descriptors_max / 2);
        self.connections_max.store(room.min(CONNECTIONS_MAX), Ordering::Relaxed);
    }

    /// Frames for `endpoint` go to this machine.
    pub fn add_local(&self, endpoint: Endpoint, port: Arc<dyn Port>) {
        write(&self.local).insert(endpoint, port);
    }

    pub fn remove_local(&self, endpoint: Endpoint) {
        write(&self.local).remove(&endpoint);
    }

    /// Takes the addresses of all targets from a configuration; connections to addresses that stay are kept.
    pub fn set_config(&self, config: &ClusterConfig) {
        for target in &config.targets {
            self.set_addresses(target.id, target.nids.clone());
        }
    }

    /// Addresses `HOST:PORT` of one target.
    pub fn set_addresses(&self, target: TargetId, addresses: Vec<String>) {
        let mut routes = lock(&self.routes);
        let route = routes.entry(target).or_insert_with(|| Route::new(Vec::new()));
        if route.addresses == addresses {
            return;
        }
        let old = std::mem::replace(route, Route::new(addresses));
        drop(routes);
        match old.link {
            Link::Up(connection) => connection.close(),
            Link::Connecting { waiting, .. } => {
                waiting.into_iter().for_each(|frame| self.send_to_target(target, frame));
            }
            Link::Down { .. } => {}
        }
    }

    /// Sends a frame, or drops it when there is no way. What follows in this process runs in `run::run_all`.
    pub fn send(&self, frame: Frame) {
        let port = read(&self.local).get(&frame.dst).cloned();
        if let Some(port) = port {
            match self.helpers.get().filter(|_| frame.flags & flags::UNAWAITED != 0) {
                Some(helpers) => helpers.push_frame(port, frame),
                None => port.push_frame(frame, None),
            }
            return;
        }
        let answered = Conversation { caller: frame.dst, asked: frame.src };
        if let Some(connection) = read(&self.learned).connection_of(&answered) {
            connection.send(&frame);
            return;
        }
        match frame.dst {
            Endpoint::Client(client) => tracing::debug!(%client, "no connection leads to this client"),
            Endpoint::Target(target) => self.send_to_target(target, frame),
        }
    }

    fn send_to_target(&self, target: TargetId, frame: Frame) {
        let mut routes = lock(&self.routes);
        let Some(route) = routes.get_mut(&target) else {
            tracing::debug!(%target, "no address is known");
            return;
        };
        match &mut route.link {
            Link::Up(connection) if !connection.is_closed() => {
                if connection.is_heard() || route.addresses.len() < 2 {
                    return connection.send(&frame);
                }
                route.unheard_count += 1;
                if route.unheard_count <= UNHEARD_MAX {
                    return connection.send(&frame);
                }
                tracing::debug!(%target, peer = connection.peer(), "connected, and not answered");
                connection.close();
                route.next_address = route.next_address.wrapping_add(1);
                route.link = Link::Down { not_before: Time::ZERO };
            }
            Link::Connecting { waiting, .. } => {
                if waiting.len() < FRAMES_WAITING_MAX {
                    waiting.push(frame);
                }
            }
            Link::Down { not_before } if *not_before > clock::now().time => {}
            Link::Up(_) | Link::Down { .. } => {
                if route.addresses.is_empty() {
                    return;
                }
                let address = route.addresses[route.next_address % route.addresses.len()].clone();
                let attempt = self.attempt_count.fetch_add(1, Ordering::Relaxed);
                route.link = Link::Connecting { attempt, waiting: vec![frame] };
                drop(routes);
                self.start_connecting(target, attempt, address);
            }
        }
    }

    fn start_connecting(&self, target: TargetId, attempt: u64, address: String) {
        let Some(me) = self.me.upgrade() else { return };
        let thread = std::thread::Builder::new().name(format!("net {target}"));
        let started = thread.spawn(move || match connect(&address, &me.backlogs) {
            Ok(connection) if me.on_connected(target, attempt, &connection) => {
                me.serve_made(target, &connection)
            }
            Ok(connection) => connection.close(),
            Err(error) => {
                tracing::debug!(%target, address, %error, "cannot connect");
                me.on_connect_failed(target, attempt, Some((address, error)));
            }
        });
        if started.is_err() {
            self.on_connect_failed(target, attempt, None);
        }
    }

    /// False if the target has other addresses by now: whoever is at this one may be somebody else.
    fn on_connected(&self, target: TargetId, attempt: u64, connection: &Arc<Connection>) -> bool {
        let mut routes = lock(&self.routes);
        let Some(route) = routes.get_mut(&target).filter(|route| route.is_at(attempt)) else { return false };
        tracing::debug!(%target, peer = connection.peer(), "connected");
        route.unheard_count = 0;
        route.unreached.clear();
        let before = std::mem::replace(&mut route.link, Link::Up(Arc::clone(connection)));
        if let Link::Connecting { waiting, .. } = before {
            waiting.iter().for_each(|frame| connection.send(frame));
        }
        drop(routes);
        self.remember(connection);
        run::run_all();
        true
    }

    fn on_connect_failed(&self, target: TargetId, attempt: u64, failed: Option<(String, Unreached)>) {
        let mut routes = lock(&self.routes);
        let Some(route) = routes.get_mut(&target).filter(|route| route.is_at(attempt)) else { return };
        route.unreached.extend(failed);
        route.next_address = route.next_address.wrapping_add(1);
        route.link = Link::Down { not_before: clock::now().time.after(RETRY) };
    }

    /// Why no connection leads to a target, by address: those that were tried in vain since there was one.
    pub fn unreached(&self, target: TargetId) -> Vec<Unreached> {
        let routes = lock(&self.routes);
        routes.get(&target).map(|route| route.unreached.values().cloned().collect()).unwrap_or_default()
    }

    /// A target that should be heard is not: its connection is given up, and what is sent next goes over a new one, to the next of its
    /// addresses.
    pub fn drop_connection(&self, target: TargetId) {
        let mut routes = lock(&self.routes);
        let Some(route) = routes.get_mut(&target) else { return };
        let Link::Up(connection) = &route.link else { return };
        tracing::debug!(%target, peer = connection.peer(), "nothing comes from it");
        let connection = Arc::clone(connection);
        connection.close();
        route.next_address = route.next_address.wrapping_add(1);
        route.link = Link::Down { not_before: Time::ZERO };
        drop(routes);
        self.tell_lost(target, &connection);
    }

    /// Listens on an address (port 0: a free one) and serves whoever connects.
    ///
    /// # Errors
    /// The address is in use or not ours.
    pub fn listen(&self, address: &str) -> io::Result<SocketAddr> {
        let listener = Arc::new(TcpListener::bind(address)?);
        let local_address = listener.local_addr()?;
        // SAFETY: the descriptor lives as long as the listener. It listens already; failing, the shorter queue of the library stays.
        unsafe { libc::listen(listener.as_raw_fd(), LISTEN_BACKLOG) };
        let readers = match self.readers.get() {
            Some(readers) => Arc::clone(readers),
            None => {
                let made = Readers::new(self.reader_limits)?;
                Arc::clone(self.readers.get_or_init(|| made))
            }
        };
        lock(&self.listeners).push(Arc::clone(&listener));
        let me = self.me.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        std::thread::Builder::new()
            .name("net-accept".into())
            .spawn(move || me.accept(&listener, &readers))?;
        Ok(local_address)
    }

    fn accept(self: Arc<Router>, listener: &TcpListener, readers: &Arc<Readers>) {
        while !self.is_closed.load(Ordering::Acquire) {
            match listener.accept() {
                Ok((stream, address)) => self.start_serving(readers, stream, address),
                // Out of descriptors, most likely: wait for some to come back.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn start_serving(self: &Arc<Router>, readers: &Arc<Readers>, stream: TcpStream, address: SocketAddr) {
        if self.is_closed.load(Ordering::Acquire) {
            return;
        }
        let Ok(connection) = Connection::new(stream, address.to_string(), &self.backlogs) else { return };
        if connection.set_patience(self.reader_limits.patience).is_err() {
            return;
        }
        if !self.make_room(&connection) {
            let connections_max = self.connections_max.load(Ordering::Relaxed);
            tracing::warn!(peer = %address, "refused a connection: {connections_max} are in use");
            return;
        }
        if self.is_closed.load(Ordering::Acquire) {
            connection.close();
        }
        readers.take(self, &connection);
    }

    /// Takes a place for an accepted connection: where there is none, that of the one that is of the least use.
    fn make_room(&self, connection: &Arc<Connection>) -> bool {
        let mut accepted = lock(&self.accepted);
        if accepted.len() >= self.connections_max.load(Ordering::Relaxed) {
            let uses = accepted.values().map(|other| (other.is_known(), other.heard_at()));
            let places = || accepted.values().map(|other| (other.host(), other.heard_at()));
            let useless = least_useful(uses, clock::now().time);
            let given_up = useless.or_else(|| of_the_greediest(places(), connection.host()));
            let Some(key) = given_up.and_then(|index| accepted.keys().nth(index).copied()) else {
                return false;
            };
            let why =
                if useless.is_some() { "says nothing" } else { "is of a machine that has most of them" };
            if let Some(given_up) = accepted.remove(&key) {
                tracing::info!(peer = given_up.peer(), "closed a connection that {why}, for another one");
                given_up.close();
            }
        }
        accepted.insert(connection.key(), Arc::clone(connection));
        true
    }

    /// Body of the thread of a connection that this process has made, to this target: takes frames until it ends.
    fn serve_made(&self, target: TargetId, connection: &Arc<Connection>) {
        self.read_from(connection, &mut OwnThread, &mut BytesMut::with_capacity(READ_BYTES));
        self.forget(target, connection);
    }

    /// Takes frames until the connection has ended, and then closes it, or until its thread leaves it.
    fn read_from<T: ReaderThread>(
        &self,
        connection: &Arc<Connection>,
        thread: &mut T,
        buffer: &mut BytesMut,
    ) -> ReadEnd {
        let result = connection.read_frames(thread, buffer, |frames, thread| {
            connection.set_heard();
            for frame in frames {
                self.on_frame(connection, frame, thread);
            }
            run::run_all();
        });
        if result == Ok(ReadEnd::Idle) {
            return ReadEnd::Idle;
        }
        if let Err(error) = result {
            tracing::warn!(peer = connection.peer(), "closed a connection: {error}");
        }
        connection.close();
        ReadEnd::Ended
    }

    fn on_frame(&self, connection: &Arc<Connection>, frame: Frame, thread: &impl ReaderThread) {
        let locals = read(&self.local);
        let Some(port) = locals.get(&frame.dst).cloned() else {
            tracing::debug!(peer = connection.peer(), dst = %frame.dst, "a frame for somebody else was dropped");
            return;
        };
        if locals.contains_key(&frame.src) {
            tracing::debug!(peer = connection.peer(), src = %frame.src, "a frame with our own name was dropped");
            return;
        }
        drop(locals);
        if frame.kind == FrameKind::Request && matches!(frame.dst, Endpoint::Client(_)) {
            // Nobody asks a client anything. A server that does is about to be taken for another target, by the name that it gives.
            let (peer, src) = (connection.peer(), frame.src);
            tracing::debug!(peer, %src, "a request to a client was dropped");
            return;
        }
        if frame.kind == FrameKind::Request {
            connection.set_known();
            if !self.learn(Conversation { caller: frame.src, asked: frame.dst }, connection) {
                // It could not be answered.
                let (peer, src) = (connection.peer(), frame.src);
                tracing::debug!(peer, %src, "a connection brings too many callers: a frame was dropped");
                return;
            }
        }
        if connection.has_used_its_share(&frame) && port.is_full() {
            // What this thread has brought before may be what it waits for.
            run::run_all();
            if !connection.wait_for_turn(&frame, || port.is_full(), |since| thread.gives_up(since)) {
                return;
            }
        }
        let held = Held::new(connection, &frame);
        port.push_frame(frame, Some(held));
    }

    /// Remembers that a caller (a client, or a target that calls another one) is at the other end of a connection. False: there are too
    /// many at that end.
    fn learn(&self, conversation: Conversation, connection: &Arc<Connection>) -> bool {
        read(&self.learned).is_at(&conversation, connection)
            || write(&self.learned).learn(conversation, connection)
    }

    fn remember(&self, connection: &Arc<Connection>) {
        let mut made = lock(&self.made);
        made.retain(|connection| connection.strong_count() > 0);
        made.push(Arc::downgrade(connection));
        drop(made);
        if self.is_closed.load(Ordering::Acquire) {
            connection.close();
        }
    }

    /// A connection that this process had made has ended. There may be another way to the target by now, if somebody has sent something
    /// since, or its addresses have changed: what was under way on this one is lost all the same.
    fn forget(&self, target: TargetId, connection: &Arc<Connection>) {
        write(&self.learned).forget(connection);
        if let Some(route) = lock(&self.routes).get_mut(&target)
            && matches!(&route.link, Link::Up(up) if Arc::ptr_eq(up, connection))
        {
            route.link = Link::Down { not_before: Time::ZERO };
        }
        self.tell_lost(target, connection);
    }

    fn tell_lost(&self, target: TargetId, connection: &Connection) {
        let tell = self.on_lost.get().filter(|_| !self.is_closed.load(Ordering::Acquire));
        if let Some(tell) = tell.filter(|_| connection.tells_end()) {
            tell(target);
        }
    }

    /// Ends the connections of all callers, who will look for somebody else to ask.
    pub fn hang_up(&self) {
        let callers = write(&self.learned).take_connections();
        callers.iter().for_each(|caller| caller.close());
    }

    /// Ends all connections and listeners; frames are dropped from now on.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        for listener in lock(&self.listeners).drain(..) {
            // SAFETY: the descriptor lives as long as the listener. This wakes its accept(2).
            unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
        }
        let made = std::mem::take(&mut *lock(&self.made));
        made.iter().filter_map(Weak::upgrade).for_each(|connection| connection.close());
        lock(&self.accepted).values().for_each(|connection| connection.close());
        if let Some(readers) = self.readers.get() {
            readers.close().iter().for_each(|parked| self.on_end(parked));
        }
    }
}

impl Serve for Router {
    fn serve(&self, connection: &Arc<Connection>, thread: &mut Place<'_>, buffer: &mut BytesMut) -> ReadEnd {
        let end = self.read_from(connection, thread, buffer);
        if end == ReadEnd::Ended {
            self.on_end(connection);
        }
        end
    }

    /// What it costs does not depend on how many others there are: after a restart all of them come and go at once.
    fn on_end(&self, connection: &Arc<Connection>) {
        connection.close();
        write(&self.learned).forget(connection);
        lock(&self.accepted).remove(&connection.key());
    }
}

/// Which of these connections to give up for a new one: of those that never said who they are the one that was heard least lately, or else one
/// without a session. For each, whether it has said so, and when it was heard.
fn least_useful(uses: impl Iterator<Item = (bool, Time)>, now: Time) -> Option<usize> {
    let candidates =
        uses.enumerate().filter(|(_, (is_known, heard_at))| !is_known || now >= heard_at.after(SILENT_MAX));
    candidates.min_by_key(|(_, useless)| *useless).map(|(index, _)| index)
}

/// Which of these connections to give up for a new one of `newcomer`, where all may be of use: that heard least lately of a machine which has
/// more than half of them, whoever it is. No client has as many as there are targets, and servers do not have as many targets.
fn of_the_greediest(
    places: impl Iterator<Item = (Option<IpAddr>, Time)> + Clone,
    newcomer: Option<IpAddr>,
) -> Option<usize> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    places
        .clone()
        .filter_map(|(machine, _)| machine)
        .for_each(|machine| *counts.entry(machine).or_default() += 1);
    let place_count = places.clone().count();
    let greediest = counts.into_iter().find(|(_, count)| *count > place_count / 2)?.0;
    if newcomer.is_none_or(|newcomer| newcomer == greediest) {
        return None;
    }
    let its = places.enumerate().filter(|(_, (machine, _))| *machine == Some(greediest));
    its.min_by_key(|(_, (_, heard_at))| *heard_at).map(|(index, _)| index)
}

fn connect(address: &str, backlogs: &Arc<Backlogs>) -> Result<Arc<Connection>, Unreached> {
    let unresolved = |why: String| Unreached::Unresolved { address: address.to_owned(), why };
    let candidates: Vec<SocketAddr> =
        address.to_socket_addrs().map_err(|error| unresolved(error.to_string()))?.collect();
    if candidates.is_empty() {
        return Err(unresolved("it has no address".to_owned()));
    }
    connect_to_any(address, &candidates, backlogs)
        .map_err(|error| Unreached::NotConnected { address: address.to_owned(), why: error.to_string() })
}

fn connect_to_any(
    address: &str,
    candidates: &[SocketAddr],
    backlogs: &Arc<Backlogs>,
) -> io::Result<Arc<Connection>> {
    let mut last_error = io::Error::from(io::ErrorKind::NotFound);
    for candidate in candidates {
        match TcpStream::connect_timeout(candidate, CONNECT_TIMEOUT) {
            // A port of our own that nobody listens on may connect to itself on loopback.
            Ok(stream) if stream.local_addr()? == *candidate => {
                last_error = io::ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => return Connection::new(stream, address.to_owned(), backlogs),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(locked: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    locked.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(locked: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    locked.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
