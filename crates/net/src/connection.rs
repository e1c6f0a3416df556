//! One TCP connection: frames out with as few system calls as possible, frames in on one thread at a time.

use crate::backlogs::{BUFFER_BYTES, Backlogs};
use crate::clock;
use crate::run::{self, Runnable};
use base::buffers::Buffer;
use base::{Duration, Time, limits};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use wire::frame::HEADER_BYTES;
use wire::{Frame, WireError};

/// Bytes waiting for the socket; frames beyond it are dropped (their senders send again), so that a peer that does
/// not read costs bounded memory. All connections have a bound too (`backlogs`).
const BACKLOG_BYTES_MAX: usize = 128 << 20;
/// Buffers in one sendmsg(2); the kernel takes 1024.
const BUFFERS_PER_WRITE_MAX: usize = 128;
/// Read buffer; a frame that announces more gets it.
pub(crate) const READ_BYTES: usize = 256 << 10;
/// Bodies and data up to this size travel in one buffer with what is before them. They may be parts of something much longer, which would
/// wait with them for a peer that does not read.
const JOINED_BYTES_MAX: usize = 16 << 10;
/// A peer whose acknowledgements stay away this long is gone, although nothing says so.
const PEER_SILENT_MS: libc::c_int = 15_000;
/// What of one connection may wait for machines whose queues are full: what one session has in flight, as long as it sends no file data.
/// So another target that calls one here never waits, and its answers to a third, which come over the same connection, do not either.
pub(crate) const SHARE_FRAMES_MAX: usize = 1024;
pub(crate) const SHARE_BYTES_MAX: usize = 1 << 20;
/// Where there are so many connections that their shares would be more than this together, each has less. It is only sooner that a reader
/// waits for a full machine, which goes on without it.
const SHARES_BYTES_MAX: usize = 1 << 30;
/// Nobody says that a machine is not full any more, or that a connection has ended.
const TURN_INTERVAL: Duration = Duration::from_millis(100);
/// After so many reads one that is not kept looks whether others wait for its thread.
const READS_PER_TURN: u32 = 16;

const _: () = assert!(
    limits::PLAIN_IN_FLIGHT_MAX
        + limits::PLAIN_ASIDE_MAX
        + limits::SLOT_COUNT as usize
        + limits::DATA_SLOT_COUNT as usize
        <= SHARE_FRAMES_MAX
);

pub struct Connection {
    stream: TcpStream,
    peer: String,
    /// The machine at the other end.
    host: Option<IpAddr>,
    number: u64,
    out: Mutex<Out>,
    is_flush_scheduled: AtomicBool,
    is_closed: AtomicBool,
    is_end_told: AtomicBool,
    /// A frame has come.
    is_heard: AtomicBool,
    /// Somebody has said who he is: a request has come.
    is_known: AtomicBool,
    /// When bytes have come last, in nanoseconds of `Time`.
    heard_at: AtomicU64,
    waiting: Waiting,
    backlogs: Arc<Backlogs>,
    me: Weak<Connection>,
}

/// What has come and no machine has taken yet.
#[derive(Default)]
struct Waiting {
    frame_count: AtomicUsize,
    byte_count: AtomicUsize,
    /// The reader waits for its turn.
    is_reader_waiting: AtomicBool,
    /// It has waited since this was looked at last.
    has_reader_waited: AtomicBool,
    turn: Mutex<()>,
    turn_has_come: Condvar,
}

/// The thread that reads from a connection.
pub trait ReaderThread {
    /// Whether it blocks while nothing comes between two frames.
    fn is_kept(&self) -> bool;

    /// Nothing has come between two frames, for the patience of the connection if it is kept. Whether it is kept from now on; else it leaves
    /// the connection.
    fn stays(&mut self) -> bool;

    /// Whether others wait for a thread, and there is none.
    fn is_wanted(&self) -> bool;

    /// The same, and it has been at one frame since then, which is too long: in the middle of it, or waiting for its turn.
    fn gives_up(&self, since: Time) -> bool;
}

/// One for a connection that this process has made, for as long as it lives.
pub struct OwnThread;

impl ReaderThread for OwnThread {
    fn is_kept(&self) -> bool {
        true
    }

    fn stays(&mut self) -> bool {
        true
    }

    fn is_wanted(&self) -> bool {
        false
    }

    fn gives_up(&self, _since: Time) -> bool {
        false
    }
}

/// Why a thread reads no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    Ended,
    /// Nothing has come, or others are to have the thread. What comes begins with a frame.
    Idle,
}

/// What one read has brought.
enum Got {
    /// None: it is the end.
    Bytes(usize),
    Nothing,
    Broken,
}

/// A frame of a connection that waits for a machine, or is handled by it.
pub struct Held {
    connection: Arc<Connection>,
    byte_count: usize,
}

impl Held {
    pub fn new(connection: &Arc<Connection>, frame: &Frame) -> Held {
        let byte_count = byte_count_of(frame);
        connection.backlogs.hold(byte_count);
        connection.waiting.frame_count.fetch_add(1, Ordering::SeqCst);
        connection.waiting.byte_count.fetch_add(byte_count, Ordering::SeqCst);
        Held { connection: Arc::clone(connection), byte_count }
    }

    pub fn byte_count(&self) -> usize {
        self.byte_count
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let waiting = &self.connection.waiting;
        self.connection.backlogs.let_go(self.byte_count);
        waiting.frame_count.fetch_sub(1, Ordering::SeqCst);
        waiting.byte_count.fetch_sub(self.byte_count, Ordering::SeqCst);
        if waiting.is_reader_waiting.load(Ordering::SeqCst) && !self.connection.is_beyond(2) {
            drop(waiting.turn.lock().unwrap_or_else(PoisonError::into_inner));
            waiting.turn_has_come.notify_all();
        }
    }
}

fn byte_count_of(frame: &Frame) -> usize {
    frame.body.len() + frame.data.len()
}

struct Out {
    buffers: VecDeque<Bytes>,
    /// Bytes in `buffers`, with what each of them takes besides.
    byte_count: usize,
    backlogs: Arc<Backlogs>,
    /// A thread waits for the socket and writes; others only queue.
    is_writer_active: bool,
}

/// Connections so far.
static COUNT: AtomicU64 = AtomicU64::new(0);

impl Connection {
    pub fn new(stream: TcpStream, peer: String, backlogs: &Arc<Backlogs>) -> io::Result<Arc<Connection>> {
        stream.set_nodelay(true)?;
        set_option(&stream, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
        set_option(&stream, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, PEER_SILENT_MS)?;
        let host = stream.peer_addr().ok().map(|address| address.ip().to_canonical());
        backlogs.add_connection();
        Ok(Arc::new_cyclic(|me| Connection {
            stream,
            peer,
            host,
            number: COUNT.fetch_add(1, Ordering::Relaxed),
            out: Mutex::new(Out::new(backlogs)),
            is_flush_scheduled: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            is_end_told: AtomicBool::new(false),
            is_heard: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            heard_at: AtomicU64::new(clock::now().time.0),
            waiting: Waiting::default(),
            backlogs: Arc::clone(backlogs),
            me: Weak::clone(me),
        }))
    }

    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Higher than that of any connection before it.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn host(&self) -> Option<IpAddr> {
        self.host
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Whether the sessions over it are to be told now that it has ended: once.
    pub fn tells_end(&self) -> bool {
        !self.is_end_told.swap(true, Ordering::AcqRel)
    }

    pub fn is_heard(&self) -> bool {
        self.is_heard.load(Ordering::Relaxed)
    }

    pub fn set_heard(&self) {
        if !self.is_heard() {
            self.is_heard.store(true, Ordering::Relaxed);
        }
    }

    pub fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    pub fn set_known(&self) {
        if !self.is_known() {
            self.is_known.store(true, Ordering::Relaxed);
        }
    }

    pub fn heard_at(&self) -> Time {
        Time(self.heard_at.load(Ordering::Relaxed))
    }

    /// Tells it from all others as long as it lives.
    pub fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// From now on its reader is asked each time that nothing has come for so long whether it waits on.
    ///
    /// # Errors
    /// The kernel refuses, for want of memory.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience))
    }

    /// Whether so much of what has come here, or from all, waits that its reader is to wait, if the machine for this next frame is full.
    pub fn has_used_its_share(&self, frame: &Frame) -> bool {
        self.is_beyond(1) || self.backlogs.is_crowded_for(byte_count_of(frame))
    }

    /// What has come and waits is more than this part of the share.
    fn is_beyond(&self, divisor: usize) -> bool {
        let equal = SHARES_BYTES_MAX / self.backlogs.connection_count().max(1);
        self.waiting.frame_count.load(Ordering::SeqCst) > SHARE_FRAMES_MAX / divisor
            || self.waiting.byte_count.load(Ordering::SeqCst) > SHARE_BYTES_MAX.min(equal) / divisor
    }

    /// Whether its reader waits for its turn.
    #[cfg(test)]
    pub fn is_reader_waiting(&self) -> bool {
        self.waiting.is_reader_waiting.load(Ordering::SeqCst)
    }

    /// Waits until half of the share has been worked off, or the machine has room; false when the connection has ended. What waits is in
    /// queues of machines, which wait for nothing but their devices: so this thread must have run what it has scheduled, and hold no lock. Nor
    /// does a machine wait for one of the parked connections, for which all threads may be taken; where a device stands still, others'
    /// frames are among those: so the connection is given up then as its peer does, who finds it full for so long.
    pub fn wait_for_turn(
        &self,
        frame: &Frame,
        is_full: impl Fn() -> bool,
        gives_up: impl Fn(Time) -> bool,
    ) -> bool {
        let is_crowded = || self.backlogs.is_crowded_for(byte_count_of(frame));
        let waiting = &self.waiting;
        let since = clock::now().time;
        let mut turn = waiting.turn.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.is_reader_waiting.store(true, Ordering::SeqCst);
        waiting.has_reader_waited.store(true, Ordering::Relaxed);
        while (self.is_beyond(2) || is_crowded()) && is_full() && !self.is_closed() {
            if gives_up(since) {
                tracing::info!(
                    peer = self.peer,
                    "closed a connection that waits for a full queue: no thread was left for others"
                );
                drop(turn);
                waiting.is_reader_waiting.store(false, Ordering::SeqCst);
                self.close();
                return false;
            }
            let waited = waiting.turn_has_come.wait_timeout(turn, TURN_INTERVAL);
            turn = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        waiting.is_reader_waiting.store(false, Ordering::SeqCst);
        !self.is_closed()
    }

    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        // The peer may have closed it before.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.lock_out().clear();
    }

    /// Queues a frame; it leaves when this thread has run everything else (`run::run_all`).
    pub fn send(&self, frame: &Frame) {
        let mut out = self.lock_out();
        if self.is_closed() || out.is_full(frame) {
            tracing::debug!(peer = self.peer, "a frame was dropped");
            return;
        }
        let header = match frame.header() {
            Ok(header) => header,
            // Machines send none. If one does, a message that does not arrive is less than a server that ends each time.
            Err(error) => {
                let (src, dst) = (frame.src, frame.dst);
                return tracing::error!(peer = self.peer, ?src, ?dst, xid = %frame.xid, %error, "a frame was not sent");
            }
        };
        out.push_frame(&header, frame);
        let is_written_by_other = out.is_writer_active;
        drop(out);
        if !is_written_by_other
            && !self.is_flush_scheduled.swap(true, Ordering::AcqRel)
            && let Some(me) = self.me.upgrade()
        {
            run::schedule_flush(me);
        }
    }

    /// Writes what the socket takes now. When it is full, a thread waits for it.
    fn flush(&self) {
        let mut out = self.lock_out();
        if out.is_writer_active {
            return;
        }
        match self.write_some(&mut out) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                out.is_writer_active = true;
                drop(out);
                self.start_writer();
            }
            Err(_) => {
                drop(out);
                self.close();
            }
        }
    }

    fn start_writer(&self) {
        let Some(me) = self.me.upgrade() else { return };
        let started = std::thread::Builder::new().name("net-writer".into()).spawn(move || me.write_all());
        if started.is_err() {
            self.close();
        }
    }

    /// Body of the writer thread: ends when nothing waits any more.
    fn write_all(&self) {
        loop {
            let mut poll = libc::pollfd { fd: self.stream.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
            // SAFETY: one valid pollfd; the descriptor lives as long as `self`.
            unsafe { libc::poll(&raw mut poll, 1, 1000) };
            let mut out = self.lock_out();
            match self.write_some(&mut out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.is_closed() => {}
                result => {
                    out.is_writer_active = false;
                    drop(out);
                    if result.is_err() {
                        self.close();
                    }
                    return;
                }
            }
        }
    }

    /// Writes until nothing waits (`Ok`) or the socket refuses.
    fn write_some(&self, out: &mut Out) -> io::Result<()> {
        while !out.buffers.is_empty() {
            let buffers: Vec<libc::iovec> = out
                .buffers
                .iter()
                .take(BUFFERS_PER_WRITE_MAX)
                .map(|bytes| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() })
                .collect();
            // SAFETY: all-zero is a valid msghdr without address and control data.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = buffers.as_ptr().cast_mut();
            message.msg_iovlen = buffers.len();
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: the vectors point into `out.buffers`, which stays as it is until the call has returned.
            let written = unsafe { libc::sendmsg(self.stream.as_raw_fd(), &raw const message, flags) };
            match usize::try_from(written) {
                Ok(byte_count) => out.consume(byte_count),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads frames until the connection ends or its thread leaves it; `on_frames` gets those that came with one read. Called by one thread
    /// at a time, with an empty buffer, which it leaves empty when the connection is idle.
    ///
    /// # Errors
    /// Bytes that are no frame.
    pub fn read_frames<T: ReaderThread>(
        &self,
        thread: &mut T,
        buffer: &mut BytesMut,
        mut on_frames: impl FnMut(Vec<Frame>, &T),
    ) -> Result<ReadEnd, WireError> {
        let mut begun_at = Time::ZERO;
        let mut read_count = 0_u32;
        // Others wait for this thread, which has the rest of a frame to read before it leaves.
        let mut is_leaving = false;
        loop {
            let missing = Frame::byte_count(buffer)?.map_or(0, |wanted| wanted.saturating_sub(buffer.len()));
            if missing > READ_BYTES {
                let Some(bytes) = self.read_rest(buffer, missing, begun_at, thread) else {
                    return Ok(ReadEnd::Ended);
                };
                on_frames(vec![Frame::from_bytes(bytes)?], thread);
                continue;
            }
            let is_between = buffer.is_empty();
            read_count += u32::from(!thread.is_kept());
            let is_turn_over = !thread.is_kept() && read_count >= READS_PER_TURN;
            if is_turn_over || self.waiting.has_reader_waited.swap(false, Ordering::Relaxed) {
                is_leaving = thread.is_wanted();
                read_count = 0;
            }
            if is_leaving && is_between {
                return Ok(ReadEnd::Idle);
            }
            buffer.reserve(missing.max(READ_BYTES / 4));
            // Not beyond the end of this frame: no frame is shorter than a header.
            let to_the_end =
                if missing > 0 { missing } else { HEADER_BYTES.saturating_sub(buffer.len()).max(1) };
            let room = buffer.spare_capacity_mut();
            let end = if is_leaving { to_the_end.min(room.len()) } else { room.len() };
            let room = room.get_mut(..end).unwrap_or_default();
            match self.read_some(room, !is_between || thread.is_kept()) {
                Got::Bytes(0) | Got::Broken => return Ok(ReadEnd::Ended),
                // SAFETY: the kernel has initialised so many more bytes of the room.
                Got::Bytes(byte_count) => unsafe { buffer.set_len(buffer.len() + byte_count) },
                Got::Nothing if is_between && !thread.stays() => return Ok(ReadEnd::Idle),
                Got::Nothing => {}
            }
            let mut frames = Vec::new();
            while let Some(byte_count) = Frame::byte_count(buffer)?.filter(|wanted| *wanted <= buffer.len()) {
                frames.push(Frame::from_bytes(buffer.split_to(byte_count).freeze())?);
            }
            if is_between || !frames.is_empty() {
                begun_at = self.heard_at();
            } else if self.is_given_up(begun_at, thread) {
                return Ok(ReadEnd::Ended);
            }
            if !frames.is_empty() {
                on_frames(frames, thread);
                // What it has waited for machines is not its peer's.
                begun_at = clock::now().time;
            }
        }
    }

    /// A large frame that has begun in `start` and lacks `missing` bytes, in memory of its own; `None` when the
    /// connection ended before.
    fn read_rest(
        &self,
        start: &mut BytesMut,
        missing: usize,
        begun_at: Time,
        thread: &impl ReaderThread,
    ) -> Option<Bytes> {
        let byte_count = start.len() + missing;
        let mut bytes = Buffer::with_capacity(byte_count);
        bytes.extend_from_slice(start);
        start.clear();
        while bytes.len() < byte_count {
            let filled = bytes.len();
            let room = bytes.spare_capacity_mut().get_mut(..byte_count - filled)?;
            match self.read_some(room, true) {
                Got::Bytes(0) | Got::Broken => return None,
                // SAFETY: the kernel has initialised so many more bytes of the room.
                Got::Bytes(count) => unsafe { bytes.set_len(filled + count) },
                Got::Nothing => {}
            }
            if bytes.len() < byte_count && self.is_given_up(begun_at, thread) {
                return None;
            }
        }
        Some(bytes.freeze())
    }

    /// Whether a frame that has begun then, and is not here yet, takes a thread that others wait for.
    fn is_given_up(&self, begun_at: Time, thread: &impl ReaderThread) -> bool {
        let is_given_up = thread.gives_up(begun_at);
        if is_given_up {
            tracing::info!(
                peer = self.peer,
                "closed a connection in the middle of a frame: no thread was left for others"
            );
        }
        is_given_up
    }

    /// One read(2) into free room.
    fn read_some(&self, room: &mut [MaybeUninit<u8>], is_waiting: bool) -> Got {
        let flags = if is_waiting { 0 } else { libc::MSG_DONTWAIT };
        loop {
            // SAFETY: `room` is writable memory of that length.
            let count =
                unsafe { libc::recv(self.stream.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), flags) };
            if let Ok(count) = usize::try_from(count) {
                self.heard_at.store(clock::now().time.0, Ordering::Relaxed);
                return Got::Bytes(count);
            }
            match io::Error::last_os_error().kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => return Got::Nothing,
                _ => return Got::Broken,
            }
        }
    }

    fn lock_out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runnable for Connection {
    fn run(&self) {
        // Before the flush: a frame that comes after it schedules the next one.
        self.is_flush_scheduled.store(false, Ordering::Release);
        self.flush();
    }
}

impl Out {
    fn new(backlogs: &Arc<Backlogs>) -> Out {
        let backlogs = Arc::clone(backlogs);
        Out { buffers: VecDeque::new(), byte_count: 0, backlogs, is_writer_active: false }
    }

    fn is_full(&self, frame: &Frame) -> bool {
        let frame_bytes = HEADER_BYTES + frame.body.len() + frame.data.len();
        self.byte_count > BACKLOG_BYTES_MAX || self.backlogs.is_full_for(self.byte_count, frame_bytes)
    }

    fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.byte_count += bytes.len() + BUFFER_BYTES;
            self.backlogs.add(bytes.len() + BUFFER_BYTES);
            self.buffers.push_back(bytes);
        }
    }

    fn push_frame(&mut self, header: &[u8], frame: &Frame) {
        let parts = [&frame.body, &frame.data];
        let short_bytes: usize =
            parts.iter().map(|part| part.len()).filter(|count| *count <= JOINED_BYTES_MAX).sum();
        let mut joined = Vec::with_capacity(header.len() + short_bytes);
        joined.extend_from_slice(header);
        for part in parts {
            if part.len() <= JOINED_BYTES_MAX {
                joined.extend_from_slice(part);
            } else {
                self.push(std::mem::take(&mut joined).into());
                self.push(part.clone());
            }
        }
        self.push(joined.into());
    }

    fn note_gone(&mut self, byte_count: usize) {
        self.byte_count -= byte_count;
        self.backlogs.remove(byte_count);
    }

    /// Takes written bytes out of the queue.
    fn consume(&mut self, mut byte_count: usize) {
        self.note_gone(byte_count);
        while let Some(first) = self.buffers.front_mut() {
            if byte_count < first.len() {
                let _ = first.split_to(byte_count);
                return;
            }
            byte_count -= first.len();
            self.buffers.pop_front();
            self.note_gone(BUFFER_BYTES);
        }
    }

    fn clear(&mut self) {
        self.buffers = VecDeque::new();
        self.note_gone(self.byte_count);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.backlogs.remove_connection();
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        self.clear();
    }
}

fn set_option(stream: &TcpStream, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the option value is a c_int of the length given.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
