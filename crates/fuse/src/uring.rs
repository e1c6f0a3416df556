//! The transport over io_uring: the kernel puts each request into the queue of the CPU that the caller runs on.
//!
//! One thread per CPU that we may use, bound to it, serves the queue of that CPU; queues of other CPUs are spread over the
//! threads with few entries. An *entry* is a pair of buffers (headers, payload) registered with a queue; it holds one
//! request from its completion until its answer is committed. Only the thread of a ring may submit to it, so an answer
//! from elsewhere writes the entry's buffers itself and passes the entry's index through a [`Mailbox`].
//!
//! FORGET and INTERRUPT do not travel through rings; [`control`] reads them from `/dev/fuse`.

mod closing;
mod control;
mod entry;
mod kept;
mod kick;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::Op;
use crate::abi;
use crate::decode::decode;
use crate::init::Negotiated;
use crate::mount::MountOptions;
use crate::reply::{Destination, Reply};
use crate::session::Shared;
use crate::sys;
use closing::Closing;
use entry::Entry;
use kept::Kept;
use kick::Kickers;

/// Entries of a queue whose CPU this process may not use: others there still send us requests.
const FOREIGN_DEPTH: usize = 2;
/// Entries of a queue at most. Blocked locks hold one each; a payload costs memory only once it is used.
const QUEUE_DEPTH_MAX: usize = 1024;
const _: () = assert!(FOREIGN_DEPTH <= QUEUE_DEPTH_MAX);

const TAG_WAKE: u64 = 0;
const TAG_HANDLER_FD: u64 = 1;
const TAG_ENTRIES: u64 = 2;

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

fn new_ring(entries: u32) -> io::Result<Ring> {
    IoUring::<squeue::Entry128, cqueue::Entry>::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(entries * 8)
        .build(entries)
}

/// Whether rings can be made at all; containers often forbid io_uring.
pub(crate) fn works() -> bool {
    let enabled = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    enabled.is_ok_and(|text| text.starts_with('Y')) && new_ring(4).is_ok()
}

/// Whether as much memory can be mapped as the buffers of all rings take, which the kernel may refuse (`vm.overcommit_memory=2`, a limit of
/// the process). Asked at once: whoever took entry after entry until one is refused would leave nothing to anybody meanwhile.
pub(crate) fn has_room(options: &MountOptions) -> bool {
    let Ok(queue_count) = sys::possible_cpu_count() else { return true };
    let cpu_count = sys::allowed_cpus().map_or(1, |cpus| cpus.len()).min(queue_count);
    let depths = cpu_count * own_depth(options) + (queue_count - cpu_count) * FOREIGN_DEPTH;
    entry::can_map(depths, payload_bytes(options.max_write_bytes))
}

fn own_depth(options: &MountOptions) -> usize {
    options.ring_depth.clamp(1, QUEUE_DEPTH_MAX)
}

/// What the kernel demands of a payload buffer.
fn payload_bytes(max_write_bytes: u32) -> usize {
    (max_write_bytes as usize).max(8192)
}

/// Whether our threads may run on each CPU that callers may run on, as they may not in a cpuset: the queue of a CPU on which all entries hold
/// requests that wait is emptied by a thread there ([`kick`]), and only so. What a thread has chosen for itself is no bound.
pub(crate) fn reaches_all_cpus() -> bool {
    let look = || -> io::Result<bool> {
        let online = sys::online_cpus()?;
        // The kernel leaves out what is not in the cpuset.
        sys::pin_to_cpus(&online)?;
        Ok(is_all_of(&online, &sys::allowed_cpus()?))
    };
    // On a thread of its own, which is left as it is.
    let looked = std::thread::Builder::new().name("fuse-cpus".into()).spawn(look);
    looked.is_ok_and(|thread| thread.join().is_ok_and(|reaches| reaches.unwrap_or(false)))
}

fn is_all_of(online: &[usize], allowed: &[usize]) -> bool {
    online.iter().all(|cpu| allowed.contains(cpu))
}

/// The way into a ring thread from outside.
#[derive(Debug)]
pub(crate) struct Mailbox {
    wake: OwnedFd,
    is_sleeping: AtomicBool,
    has_ended: AtomicBool,
    answered: Mutex<Vec<u32>>,
    /// Requests taken so far.
    taken_count: Arc<AtomicU64>,
}

impl Mailbox {
    fn new() -> io::Result<Self> {
        Ok(Self {
            wake: sys::eventfd()?,
            is_sleeping: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            answered: Mutex::new(Vec::new()),
            taken_count: Arc::default(),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.answered.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Passes an answered entry. The thread announces its sleep before it looks here a last time, so one side sees the
    /// other; while it is awake (it may be ourselves) no signal is needed.
    fn put(&self, index: u32) {
        self.lock().push(index);
        self.signal();
    }

    fn signal(&self) {
        if self.is_sleeping.swap(false, Ordering::SeqCst) {
            sys::eventfd_signal(self.wake.as_raw_fd());
        }
    }

    fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        self.signal();
    }
}

/// The right to write one entry's answer.
#[derive(Debug)]
pub(crate) struct Ticket {
    mailbox: Arc<Mailbox>,
    entry: Arc<Entry>,
    index: u32,
}

impl Ticket {
    pub fn answer(self, unique: u64, error: i32, parts: &[&[u8]]) {
        self.entry.write_answer(unique, error, parts);
        self.mailbox.put(self.index);
    }
}

/// What the ring threads and the control thread share.
pub(crate) struct Rings {
    started: Instant,
    entries: Mutex<Vec<Arc<Entry>>>,
    mailboxes: Vec<Arc<Mailbox>>,
    kickers: Arc<Kickers>,
    closing: Closing,
    path: std::path::PathBuf,
}

impl Rings {
    /// Milliseconds since the start, at least 1.
    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64 + 1
    }

    /// Entries of all queues.
    pub fn entry_count(&self) -> usize {
        self.entries().len()
    }

    fn end_all(&self) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.end());
    }

    fn has_ended(&self) -> bool {
        self.mailboxes.iter().any(|mailbox| mailbox.has_ended.load(Ordering::SeqCst))
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Where a transport runs and what it serves.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// Ascending; one thread is bound to each.
    pub cpus: &'a [usize],
    /// The mount point.
    pub path: &'a std::path::Path,
}

pub(crate) fn start(
    shared: &Arc<Shared>,
    options: &MountOptions,
    negotiated: &Negotiated,
    place: Place<'_>,
    threads: &mut Vec<JoinHandle<()>>,
) -> io::Result<Arc<Rings>> {
    let cpus = place.cpus;
    let queue_count = sys::possible_cpu_count()?;
    let mailboxes = cpus.iter().map(|_| Mailbox::new().map(Arc::new)).collect::<io::Result<Vec<_>>>()?;
    let rings = Arc::new(Rings {
        started: Instant::now(),
        entries: Mutex::new(Vec::new()),
        mailboxes,
        kickers: Arc::default(),
        closing: Closing::new(cpus.len()),
        path: place.path.into(),
    });
    let payload_size = payload_bytes(negotiated.max_write_bytes);
    let (ready, readiness) = mpsc::channel();
    // A thread takes requests when all have their rings: after a failure the handler has seen none.
    let mut starts = Vec::with_capacity(cpus.len() + 1);
    // What cannot be spawned must not be found out when the others take requests.
    let (start, started) = mpsc::channel();
    starts.push(start);
    let control_rings = rings.clone();
    let control = move |shared: Arc<Shared>| {
        if started.recv().is_ok() {
            control::run(&shared, &control_rings);
        }
    };
    threads.push(shared.spawn("fuse-ctl".into(), control)?);
    for (index, &cpu) in cpus.iter().enumerate() {
        let queues = (0..queue_count)
            .filter(|&queue| match cpus.binary_search(&queue) {
                Ok(position) => position == index,
                Err(_) => queue % cpus.len() == index,
            })
            .map(|queue| Queue {
                id: queue as u16,
                depth: if queue == cpu { own_depth(options) } else { FOREIGN_DEPTH },
                total: 0,
                out: 0,
                kept: Kept::new(cpus.len()),
                dry_at: None,
            })
            .collect();
        let (rings, ready) = (rings.clone(), ready.clone());
        let (start, started) = mpsc::channel();
        starts.push(start);
        let body = move |shared: Arc<Shared>| {
            match RingThread::new(shared, rings, queues, index, cpu, payload_size) {
                Ok(mut thread) => {
                    let registered = thread.register_all();
                    let is_ok = registered.is_ok();
                    let _ = ready.send(registered);
                    // The sender must be gone before the loop, or a failed sibling would never be noticed.
                    drop(ready);
                    if is_ok && started.recv().is_ok() {
                        thread.run();
                    }
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        };
        threads.push(shared.spawn(format!("fuse-ring-{cpu}"), body)?);
    }
    drop(ready);
    for result in readiness {
        if let Err(error) = result {
            rings.end_all();
            return Err(error);
        }
    }
    for start in starts {
        // A thread that is gone has panicked, which ends the others.
        let _ = start.send(());
    }
    Ok(rings)
}

/// One queue of the kernel, as its thread sees it.
struct Queue {
    id: u16,
    /// Entries to begin with.
    depth: usize,
    /// Entries registered.
    total: usize,
    /// Of these, how many hold a request.
    out: usize,
    /// Memory of the others.
    kept: Kept,
    /// It has got more entries since it had so many, and whether all of those were out by then is not known yet.
    dry_at: Option<usize>,
}

struct Slot {
    entry: Arc<Entry>,
    /// Position of its queue in `queues`.
    queue: usize,
    /// What the kernel wants back with the answer.
    commit_id: u64,
    /// What the request that is out says of files; see [`closing`].
    role: Role,
    /// A worker of the kernel commits the answer.
    is_aside: bool,
    /// Memory that it has while the kernel has it.
    kept_bytes: usize,
}

/// What a request means to whoever commits its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Direct I/O of a handle, the answer to which may let go of its file.
    Direct(u64),
    /// Writes pages of a mapping back.
    WriteBack,
    /// Tells of a close.
    Flush,
    Other,
}

impl Role {
    /// In direct I/O, and only there, the kernel names the owner of locks.
    fn of(op: &Op) -> Self {
        match op {
            Op::Read(read) if read.lock_owner.is_some() => Self::Direct(read.fh),
            Op::Write(write) if write.lock_owner.is_some() => Self::Direct(write.fh),
            Op::Write(write) if write.from_cache => Self::WriteBack,
            Op::Flush { .. } => Self::Flush,
            _ => Self::Other,
        }
    }

    /// Whether some close is not told of after this answer: the next one of a file whose pages could not be written back, and
    /// all after the first that nobody wanted to hear of.
    fn silences_closes(self, error: i32) -> bool {
        match self {
            Self::WriteBack => error != 0,
            Self::Flush => error == -libc::ENOSYS,
            Self::Direct(_) | Self::Other => false,
        }
    }
}

struct RingThread {
    // Before the slots: their buffers must outlive the ring, which may still write to them.
    ring: Ring,
    slots: Vec<Slot>,
    queues: Vec<Queue>,
    shared: Arc<Shared>,
    rings: Arc<Rings>,
    mailbox: Arc<Mailbox>,
    device: RawFd,
    handler_fd: Option<RawFd>,
    index: usize,
    cpu: usize,
    payload_size: usize,
    has_ended: bool,
}

impl RingThread {
    fn new(
        shared: Arc<Shared>,
        rings: Arc<Rings>,
        queues: Vec<Queue>,
        index: usize,
        cpu: usize,
        payload_size: usize,
    ) -> io::Result<Self> {
        if let Err(error) = sys::pin_to_cpu(cpu) {
            tracing::warn!(%error, cpu, "cannot bind a thread to its CPU; requests will cost more");
        }
        let mailbox =
            rings.mailboxes.get(index).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        Ok(Self {
            ring: new_ring(256)?,
            slots: Vec::new(),
            queues,
            device: shared.device.as_raw_fd(),
            handler_fd: shared.handler.wake_fd(index),
            shared,
            rings,
            mailbox,
            index,
            cpu,
            payload_size,
            has_ended: false,
        })
    }

    /// Registers the first entries of all queues and reports what the kernel thinks of them.
    fn register_all(&mut self) -> io::Result<()> {
        for queue in 0..self.queues.len() {
            self.grow(queue, self.queues[queue].depth)?;
        }
        self.watch_mailbox();
        self.watch_handler_fd();
        self.ring.submit()?;
        // A refused registration completes at once, an accepted one not before its first request; requests that
        // are here already stay in the completion queue, where the loop finds them.
        Ok(())
    }

    fn push(&mut self, sqe: squeue::Entry128) {
        loop {
            // SAFETY: the buffers that entries name live in `slots`, which outlives the ring; the descriptors are kept
            // by `shared`, the mailbox and (by contract of `wake_fd`) the handler.
            if unsafe { self.ring.submission().push(&sqe) }.is_ok() {
                return;
            }
            // Full: hand over what is there.
            self.submit_all();
            if self.has_ended {
                return;
            }
        }
    }

    /// Hands over what was pushed, without a wait.
    fn submit_all(&mut self) {
        while !self.has_ended && !self.ring.submission().is_empty() {
            match self.ring.submit().map_err(|error| (error.raw_os_error(), error)) {
                Ok(_) => {}
                Err((Some(libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => std::thread::yield_now(),
                Err((_, error)) => {
                    tracing::error!(%error, "a ring does not take submissions");
                    self.has_ended = true;
                }
            }
        }
    }

    fn watch_mailbox(&mut self) {
        let poll = opcode::PollAdd::new(types::Fd(self.mailbox.wake.as_raw_fd()), libc::POLLIN as u32);
        self.push(poll.multi(true).build().user_data(TAG_WAKE).into());
    }

    /// Single-shot, armed anew each time: so it is level-triggered.
    fn watch_handler_fd(&mut self) {
        if let Some(fd) = self.handler_fd {
            let poll = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32);
            self.push(poll.build().user_data(TAG_HANDLER_FD).into());
        }
    }

    /// Registers `count` more entries with a queue.
    fn grow(&mut self, queue: usize, count: usize) -> io::Result<()> {
        for _ in 0..count {
            let entry = Arc::new(Entry::new(self.payload_size)?);
            self.rings.entries().push(entry.clone());
            let index = self.slots.len() as u64;
            let id = self.queues[queue].id;
            let sqe =
                command(self.device, abi::URING_CMD_REGISTER, id, 0, TAG_ENTRIES + index, entry.iovecs());
            self.slots.push(Slot {
                entry,
                queue,
                commit_id: 0,
                role: Role::Other,
                is_aside: false,
                kept_bytes: 0,
            });
            self.queues[queue].total += 1;
            self.push(sqe);
        }
        Ok(())
    }

    fn run(&mut self) {
        while !self.has_ended {
            self.commit_answers();
            self.mailbox.is_sleeping.store(true, Ordering::SeqCst);
            let must_not_sleep =
                !self.mailbox.lock().is_empty() || self.mailbox.has_ended.load(Ordering::SeqCst);
            let waited = self.ring.submit_and_wait(usize::from(!must_not_sleep));
            self.mailbox.is_sleeping.store(false, Ordering::SeqCst);
            match waited.map_err(|error| (error.raw_os_error(), error)) {
                Ok(_) | Err((Some(libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => {}
                Err((_, error)) => {
                    tracing::error!(%error, "waiting for a ring failed; its CPU is not served any more");
                    return;
                }
            }
            if self.mailbox.has_ended.load(Ordering::SeqCst) {
                return;
            }
            self.take_completions();
            self.shared.handler.batch_end(self.index);
            // First the commits: what was answered at once is not slow and must not make the queue grow.
            self.commit_answers();
            self.grow_where_short();
        }
    }

    /// Gives the answer in an entry's buffers to the kernel, and the entry back.
    fn commit(&mut self, index: usize, is_aside: bool) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        slot.is_aside = is_aside;
        let Queue { id, out, kept, .. } = &mut self.queues[slot.queue];
        // Of an attempt that failed.
        kept.take(slot.kept_bytes);
        if kept.is_too_much_with(slot.entry.used_bytes(), *out) {
            // SAFETY: the answer is there, and the commit follows.
            unsafe { slot.entry.trim() };
        }
        slot.kept_bytes = slot.entry.used_bytes();
        kept.add(slot.kept_bytes);
        let id = *id;
        let tag = TAG_ENTRIES + index as u64;
        let no_iovecs = std::ptr::null();
        let sqe = command(self.device, abi::URING_CMD_COMMIT_AND_FETCH, id, slot.commit_id, tag, no_iovecs);
        let flags = if is_aside { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        self.push(sqe.flags(flags));
    }

    fn commit_answers(&mut self) {
        let answered = std::mem::take(&mut *self.mailbox.lock());
        let mut direct_count = 0;
        let mut is_silencing = false;
        for slot in answered.iter().filter_map(|&index| self.slots.get(index as usize)) {
            self.queues[slot.queue].out -= 1;
            direct_count += usize::from(matches!(slot.role, Role::Direct(_)));
            is_silencing |= slot.role.silences_closes(slot.entry.error());
        }
        if is_silencing {
            self.rings.closing.is_told_no_more();
        }
        if direct_count > 0 {
            self.rings.closing.begin_turn(self.index);
            for &index in &answered {
                if let Some(Role::Direct(handle)) = self.slots.get(index as usize).map(|slot| slot.role) {
                    let is_aside = self.rings.closing.may_end(handle);
                    self.commit(index as usize, is_aside);
                }
            }
            self.submit_all();
            self.rings.closing.end_turn(self.index);
        }
        for &index in answered.iter().filter(|_| direct_count < answered.len()) {
            if !matches!(self.slots.get(index as usize).map(|slot| slot.role), Some(Role::Direct(_)) | None) {
                self.commit(index as usize, false);
            }
        }
        // Give the allocation back, so that the usual round allocates nothing.
        let mut inbox = self.mailbox.lock();
        if inbox.is_empty() {
            let mut answered = answered;
            answered.clear();
            *inbox = answered;
        }
    }

    fn take_completions(&mut self) {
        let now_ms = self.rings.now_ms();
        let mut taken = 0;
        while let Some(completion) = self.next_completion() {
            match completion.user_data() {
                TAG_WAKE => {
                    sys::eventfd_clear(self.mailbox.wake.as_raw_fd());
                    if !cqueue::more(completion.flags()) {
                        self.watch_mailbox();
                    }
                }
                TAG_HANDLER_FD => {
                    self.shared.handler.woken(self.index);
                    self.watch_handler_fd();
                }
                tag => {
                    let index = (tag - TAG_ENTRIES) as usize;
                    if completion.result() < 0 {
                        self.lose_entry(index, -completion.result());
                    } else {
                        self.take_request(index, now_ms);
                        taken += 1;
                    }
                }
            }
        }
        if taken > 0 {
            self.mailbox.taken_count.fetch_add(taken, Ordering::SeqCst);
        }
    }

    fn next_completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    fn lose_entry(&mut self, index: usize, errno: i32) {
        match errno {
            // There is no worker and none could be started: the answer is still here.
            libc::ECANCELED if self.slots.get(index).is_some_and(|slot| slot.is_aside) => {
                self.commit(index, false);
            }
            libc::ENOTCONN | libc::ENODEV | libc::ECONNABORTED | libc::ECANCELED => self.has_ended = true,
            _ => {
                let error = io::Error::from_raw_os_error(errno);
                tracing::error!(%error, cpu = self.cpu, "the kernel refused an entry of a ring queue");
                if let Some(slot) = self.slots.get(index) {
                    self.queues[slot.queue].total -= 1;
                }
                if self.queues.iter().any(|queue| queue.total == 0) {
                    // Requests of that CPU would wait for ever: better no connection than a silent one.
                    self.has_ended = true;
                }
            }
        }
    }

    fn take_request(&mut self, index: usize, now_ms: u64) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let queue = &mut self.queues[slot.queue];
        queue.out += 1;
        queue.kept.take(std::mem::take(&mut slot.kept_bytes));
        // SAFETY: the completion gave us the entry; the frame ends before the ticket that may write it is made.
        let (header, commit_id, decoded) = unsafe {
            let (frame, commit_id) = slot.entry.frame();
            (frame.header, commit_id, decode(&frame, self.shared.dialect, self.index))
        };
        slot.commit_id = commit_id;
        slot.role = decoded.as_ref().map_or(Role::Other, |request| Role::of(&request.op));
        let entry = slot.entry.clone();
        match decoded.as_ref().map(|request| &request.op) {
            Ok(Op::Flush { fh, .. }) => self.rings.closing.closes(*fh),
            Ok(Op::Release { fh, .. }) => self.rings.closing.released(*fh),
            _ => {}
        }
        entry.set_taken(header.unique, header.pid, now_ms);
        let ticket = Ticket { mailbox: self.mailbox.clone(), entry: entry.clone(), index: index as u32 };
        let destination = Destination::Ring(ticket);
        if self.rings.kickers.is_one(header.pid) {
            Reply::new(header.unique, header.opcode, destination).error(libc::ECANCELED);
        } else if self.shared.dispatch(header, decoded, destination) {
            entry.set_handed_over(header.unique);
            if self.shared.early.take(header.unique) {
                self.shared.handler.interrupt(header.unique);
            }
        }
    }

    /// A queue with half of its entries out or more gets as many again: slow answers (blocked locks above all) must not
    /// keep the unlock that they wait for out of the queue.
    ///
    /// Those that were left may be out too before the kernel has the new ones: requests that came in between are listed behind them,
    /// and only then it shows that they were.
    fn grow_where_short(&mut self) {
        for queue in 0..self.queues.len() {
            let Queue { total, out, id, dry_at, .. } = self.queues[queue];
            let is_short = (total - out.min(total)) * 2 <= total && total < QUEUE_DEPTH_MAX;
            if is_short && let Err(error) = self.grow(queue, total.min(QUEUE_DEPTH_MAX - total).max(1)) {
                tracing::warn!(%error, cpu = id, "no memory for more ring entries");
            }
            let dry_at =
                if is_short { Some(dry_at.map_or(total, |before| before.min(total))) } else { dry_at };
            let was_dry = dry_at.is_some_and(|count| out >= count);
            if was_dry && self.ring.submit().is_ok() {
                let Rings { kickers, path, .. } = &*self.rings;
                kick::start(kickers, &self.mailbox.taken_count, path, usize::from(id));
            }
            self.queues[queue].dry_at = dry_at.filter(|count| !was_dry && out * 2 >= *count);
        }
    }
}

impl Drop for RingThread {
    /// However the thread ends (a panicking handler too): one CPU without service hangs its callers, so all end, and with
    /// the session the connection.
    fn drop(&mut self) {
        self.rings.closing.leave(self.index);
        self.rings.end_all();
    }
}

/// A FUSE ring command. Built by hand because the crate's type has no field for the two iovecs of a registration.
fn command(
    fd: RawFd,
    op: u32,
    queue: u16,
    commit_id: u64,
    tag: u64,
    iovecs: *const libc::iovec,
) -> squeue::Entry128 {
    const IORING_OP_URING_CMD: u8 = 46;
    let mut sqe = [0u8; 128];
    sqe[0] = IORING_OP_URING_CMD;
    sqe[4..8].copy_from_slice(&fd.to_ne_bytes());
    sqe[8..12].copy_from_slice(&op.to_ne_bytes());
    if !iovecs.is_null() {
        sqe[16..24].copy_from_slice(&(iovecs as u64).to_ne_bytes());
        sqe[24..28].copy_from_slice(&2u32.to_ne_bytes());
    }
    sqe[32..40].copy_from_slice(&tag.to_ne_bytes());
    // The command area: flags, commit id, queue.
    sqe[56..64].copy_from_slice(&commit_id.to_ne_bytes());
    sqe[64..66].copy_from_slice(&queue.to_ne_bytes());
    const _: () = assert!(size_of::<squeue::Entry128>() == 128);
    // SAFETY: an Entry128 is the kernel's structure of 128 bytes, and every bit pattern of it is valid; the size is
    // asserted above.
    unsafe { std::mem::transmute::<[u8; 128], squeue::Entry128>(sqe) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_has_chosen_for_itself_is_no_bound() {
        let before = reaches_all_cpus();
        let narrowed = || {
            let first = sys::allowed_cpus().ok().and_then(|cpus| cpus.first().copied());
            sys::pin_to_cpu(first.expect("there is a CPU")).expect("it is allowed");
            reaches_all_cpus()
        };
        assert_eq!(std::thread::spawn(narrowed).join().expect("it looks"), before);
        assert!(is_all_of(&[0, 1], &[0, 1, 2]));
        assert!(!is_all_of(&[0, 1, 2], &[0, 1]));
    }

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(sys::parse_cpus("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(sys::parse_cpus("5"), Some(vec![5]));
        assert_eq!(sys::parse_cpus(""), None);
    }
}
