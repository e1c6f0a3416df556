//! The machine: what goes in, what comes out, and the fixed tail that runs what became possible.

use crate::call::{Answer, Call, Caller};
use crate::stats::Stats;
use base::{ClientId, ClusterConfig, Machine, Now, TargetId, Time};
use wire::Frame;

/// What a client is told at its start.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Random, made for this mount.
    pub client: ClientId,
    pub fsname: String,
    /// What operators see on servers: address and host name.
    pub nid: String,
    /// The kernel can drop all names at once (`FUSE_NOTIFY_INC_EPOCH`, ABI 7.44). Without it names get no lifetime.
    pub has_inc_epoch: bool,
    /// Shared writable mappings of files that other clients have open are allowed, and not coherent
    /// (`-o mmap=relaxed`).
    pub is_mmap_relaxed: bool,
    /// The kernel clears set-id bits through flags of its requests (`FUSE_HANDLE_KILLPRIV_V2`); without it the
    /// client has the MDT clear them at the first write of each handle by somebody unprivileged.
    pub has_kill_privileges: bool,
}

/// Names a notification until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NotifyId(pub u64);

/// What the kernel is told to forget. Each is answered by `Input::Notified`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notify {
    /// Waits in the kernel for the directory's lock: never from a thread that serves requests.
    InvalEntry { parent: u64, name: Vec<u8> },
    /// `offset_bytes < 0`: attributes only. `byte_count <= 0`: to the end. Waits in the kernel for pages in transit:
    /// from a thread of its own, so that a blocked `InvalEntry` does not hold it up.
    InvalInode { node: u64, offset_bytes: i64, byte_count: i64 },
    /// Takes no lock: done at once, before anything that is queued.
    IncEpoch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyResult {
    Ok,
    /// ENOENT: the kernel does not know it (yet).
    NoEntry,
    /// Something else, or no kernel any more.
    Failed,
}

#[derive(Debug)]
pub enum Input {
    /// `id` is unique among unanswered calls.
    Call {
        id: u64,
        call: Call,
        caller: Caller,
    },
    /// The kernel dropped references: node id and how many.
    Forget(Vec<(u64, u64)>),
    /// Somebody signalled the caller of this call.
    Interrupt(u64),
    Frame(Frame),
    /// First, and whenever it has changed.
    Config(ClusterConfig),
    Notified(NotifyId, NotifyResult),
    /// Supplementary groups of a caller; empty when it is gone.
    Groups {
        id: u64,
        groups: Vec<u32>,
    },
    /// Unmount: make everything durable, close, disconnect; then `Output::Drained`.
    Drain,
    Tick,
}

#[derive(Debug, PartialEq)]
pub enum Output {
    /// The result of a call: an answer or an errno.
    Reply {
        id: u64,
        result: Result<Answer, i32>,
    },
    Send(Frame),
    Notify(NotifyId, Notify),
    /// Answer with `Input::Groups` of the same id.
    NeedGroups {
        id: u64,
        pid: u32,
    },
    Drained,
    Event(Event),
}

/// What the process logs and counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Connected(TargetId),
    /// The target does not answer; calls wait.
    Disconnected(TargetId),
    /// The target was restarted and everything has been sent again.
    Recovered(TargetId),
    /// The target dropped this client; what was cached and not yet durable there is gone.
    Evicted(TargetId),
    /// The server says that the configuration is newer: fetch it.
    ConfigChanged {
        version: u64,
    },
}

/// The client machine.
pub struct Client {
    stats: Stats,
}

impl Client {
    pub fn new(now: Now, options: ClientOptions) -> Client {
        let _ = (now, options);
        Client { stats: Stats::default() }
    }

    /// Counters since the start, for `llite.*`, `mdc.*` and `osc.*`.
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }
}

impl Machine for Client {
    type Input = Input;
    type Output = Output;

    fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        let _ = now;
        if let Input::Call { id, .. } = input {
            out.push(Output::Reply { id, result: Err(38) });
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}
