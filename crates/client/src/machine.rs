//! The machine: what goes in, what comes out, and the fixed tail that runs what became possible.

use crate::call::{Answer, Call, Caller};
use crate::ctx::{Ctx, Who};
use crate::executor::Executor;
use crate::interrupts::{self, Signals};
use crate::operator::{Setting, TRIM_INTERVAL};
use crate::ops::root::Root;
use crate::pages::PageCallId;
use crate::state::{CallState, State};
use crate::{accesses, dirty, locks, ops, pages, unlinks};
use base::{
    ClientId, ClusterConfig, Duration, Endpoint, Epoch, Machine, Now, Status, TargetId, Time, Transno,
};
use bytes::Bytes;
use rpc::{Import, ImportOutput, ImportState, OVERDUE_WORD, state_word};
use wire::mdt::ACCESSES_MAX;
use wire::{Callback, Frame};

/// What a client is told at its start.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Random, made for this mount.
    pub client: ClientId,
    /// Rises when a mount starts anew with the id of one that has ended: servers then drop what that one held.
    pub incarnation: u64,
    pub fsname: String,
    /// What operators see on servers: address and host name.
    pub nid: String,
    /// The kernel can drop all names at once (`FUSE_NOTIFY_INC_EPOCH`, ABI 7.44). Without it names get no lifetime.
    /// Then no such notice is ever given.
    pub has_inc_epoch: bool,
    /// The kernel takes the answer to a SETATTR for good only if it was not told meanwhile to forget the attributes
    /// (ABI 7.44; some older ones do so too, and do not say so). Without it they get no lifetime there.
    pub has_versioned_setattr: bool,
    /// Shared writable mappings of files that other clients have open are allowed, and not coherent
    /// (`-o mmap=relaxed`).
    pub is_mmap_relaxed: bool,
    /// statfs(2) answers from what is known of a target that does not answer, instead of waiting for it (`-o lazystatfs`).
    pub is_statfs_lazy: bool,
    /// When reading changes access times (`-o noatime` …).
    pub access_times: crate::AccessTimes,
    /// The kernel clears set-id bits through flags of its requests (`FUSE_HANDLE_KILLPRIV_V2`); without it the
    /// client has the MDT clear them at the first write of each handle by somebody unprivileged.
    pub has_kill_privileges: bool,
    /// Asks for the write-back lock with the open, not with the second write: for the simulation, whose files have few writes.
    pub is_write_back_early: bool,
}

/// What a kernel can do, which is found out when it mounts; see `ClientOptions`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    pub has_inc_epoch: bool,
    pub has_versioned_setattr: bool,
    pub has_kill_privileges: bool,
}

/// Names a notification until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NotifyId(pub u64);

/// What the kernel is told to forget, or to have. Each is answered by `Input::Notified`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notify {
    /// Waits in the kernel for the directory's lock: never from a thread that serves requests.
    InvalEntry { parent: u64, name: Vec<u8> },
    /// The same, but the kernel may keep it, and looks it up before it believes it again.
    ExpireEntry { parent: u64, name: Vec<u8> },
    /// `offset_bytes < 0`: attributes only. `byte_count <= 0`: to the end. Waits in the kernel for pages in transit, also
    /// for those of calls that wait for another one of these: each needs a thread of its own while it waits.
    InvalInode { node: u64, offset_bytes: i64, byte_count: i64 },
    /// Puts whole pages into the page cache of an inode. Waits in the kernel for pages in transit: each needs a thread of its own while it
    /// waits. From `until` on it is not begun any more: `NoEntry`.
    Store { node: u64, offset_bytes: u64, data: Bytes, until: Time },
    /// Takes no lock: done at once, before anything that is queued.
    IncEpoch,
    /// One after the other, by one thread: names of one directory, or attributes only of inodes. The result is that of all: `Ok`.
    Several(Vec<Notify>),
}

impl Notify {
    /// The directory whose lock it waits for in the kernel.
    pub fn directory(&self) -> Option<u64> {
        match self {
            Notify::InvalEntry { parent, .. } | Notify::ExpireEntry { parent, .. } => Some(*parent),
            Notify::InvalInode { .. } | Notify::Store { .. } | Notify::IncEpoch => None,
            Notify::Several(notices) => notices.first()?.directory(),
        }
    }

    /// One of these, or several that belong together.
    pub(crate) fn several(mut notices: Vec<Notify>) -> Notify {
        match notices.len() {
            1 => notices.remove(0),
            _ => Notify::Several(notices),
        }
    }
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
    /// The transport lost its connection to this target.
    ConnectionLost(TargetId),
    /// The management server says that this target has started, as this incarnation.
    TargetStarted(TargetId, Epoch),
    /// First, and whenever it has changed.
    Config(ClusterConfig),
    /// The lease at the management server was renewed by a request of this time. Who never says so has none.
    Lease(Time),
    Notified(NotifyId, NotifyResult),
    /// An operator changes something.
    Set(Setting),
    /// Supplementary groups of a caller; `None` where they cannot be seen.
    Groups {
        id: u64,
        groups: Option<Vec<u32>>,
    },
    /// What has become of `Output::NeedSignals`.
    Signals {
        id: u64,
        signals: Signals,
    },
    /// Unmount: make everything durable, close, disconnect; then `Output::Drained`. Targets that do not answer hold it up for so long.
    Drain {
        patience: Duration,
    },
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
    /// This `Store` is not begun any more, if it was not: `Input::Notified` says `NoEntry` then, and else what came of it.
    CallOff(NotifyId),
    /// Answer with `Input::Groups` of the same id.
    NeedGroups {
        id: u64,
        caller: Caller,
    },
    /// Answer with `Input::Signals` of the same id. `pid` is that of a thread.
    NeedSignals {
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
    /// The target answers nothing, pings included, and its connection stands; calls wait.
    Overdue {
        target: TargetId,
        nids: Vec<String>,
    },
    /// It does again, in the same session.
    AnswersAgain(TargetId),
    /// The target was restarted and everything has been sent again.
    Recovered(TargetId),
    /// The target dropped this client; what was cached, and kept back for it, is gone.
    Evicted(TargetId),
    /// It has lost so many changes too that it had answered.
    Lost {
        target: TargetId,
        request_count: usize,
    },
    /// A restarted target refused what had been acknowledged: it is lost.
    ReplayRefused {
        target: TargetId,
        status: Status,
    },
    /// The server says that the configuration is newer: fetch it.
    ConfigChanged {
        version: u64,
    },
}

/// The client machine.
pub struct Client {
    ctx: Ctx,
    executor: Executor,
}

impl Client {
    pub fn new(now: Now, options: ClientOptions) -> Client {
        Client { ctx: Ctx::new(State::new(now, options)), executor: Executor::default() }
    }

    pub(crate) fn with_state<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        self.ctx.with(look)
    }

    /// What the kernel can do, before the first of its requests.
    pub fn set_kernel(&mut self, kernel: Kernel) {
        self.ctx.with(|state| {
            state.options.has_inc_epoch = kernel.has_inc_epoch;
            state.options.has_versioned_setattr = kernel.has_versioned_setattr;
            state.options.has_kill_privileges = kernel.has_kill_privileges;
        });
    }

    /// The directory that is mounted, if it is not the root of the file system.
    pub fn set_root(&mut self, node: u64) {
        self.ctx.with(|state| {
            if let Some(fid) =
                state.nodes.get(node).map(|node| node.fid()).filter(|fid| *fid != state.root.fid)
            {
                state.root = Root::new(fid);
            }
        });
    }

    pub fn is_statfs_lazy(&self) -> bool {
        self.ctx.with(|state| state.options.is_statfs_lazy)
    }

    pub fn access_times(&self) -> crate::AccessTimes {
        self.ctx.with(|state| state.options.access_times)
    }

    /// `llite.*.lazystatfs`, for the statfs(2) that follow.
    pub fn set_statfs_lazy(&mut self, is_lazy: bool) {
        self.ctx.with(|state| state.options.is_statfs_lazy = is_lazy);
    }

    fn on_call(&mut self, id: u64, call: Call, caller: Caller) {
        let is_answered = self.ctx.with(|state| {
            let Some(result) = state.quick_answer(&call, caller) else { return false };
            if let Ok(answer) = &result {
                state.note_sizes(answer, state.now.time);
            }
            state.out.push(Output::Reply { id, result: result.map_err(Status::errno) });
            state.stats.calls.entry(ops::describe(&call).0).or_default().add(0);
            true
        });
        if is_answered {
            return;
        }
        let (name, mut holds, _) = ops::describe(&call);
        self.ctx.with(|state| {
            holds.extend(state.victims(&call));
            for node in &holds {
                *state.held.entry(*node).or_default() += 1;
                state.until_held.remove(node);
            }
            let started = state.now.time;
            let known = CallState {
                name,
                started,
                holds,
                waits_for_flock: None,
                is_interrupted: false,
                gives_up: state.gives_up(&call),
                is_judged: ops::is_judged(&call),
                named_gid: ops::named_gid(&call),
                last_eviction: state.last_eviction,
                caller,
                is_answered: false,
            };
            assert!(state.calls.insert(id, known).is_none(), "ids of unanswered calls are unique");
        });
        let ctx = self.ctx.clone();
        let who = Who { id, caller };
        self.executor.spawn(Box::pin(async move {
            let is_versioned = unlinks::is_versioned(&call);
            let mut result = ops::execute(&ctx, &who, call).await;
            if let Ok(answer) = &mut result
                && is_versioned
            {
                unlinks::keep_link_counts(&ctx, &who, answer).await;
            }
            ctx.with(|state| state.finish_call(id, result));
        }));
    }

    fn on_interrupt(&mut self, id: u64) {
        if let Some(wait) = interrupts::on_interrupt(&self.ctx, id) {
            self.executor.spawn(Box::pin(ops::flock::cancel(self.ctx.clone(), id, wait)));
        }
    }

    /// The fixed tail: runs whatever has become possible, until nothing is.
    fn settle(&mut self) {
        loop {
            let ctx = &self.ctx;
            let tasks = ctx.with(|state| {
                state.take_import_outputs();
                // After what it means that one was heard again: it may have evicted this client.
                state.note_silent_mdts();
                state.send_due_cancels();
                state.take_import_outputs();
                let mut tasks = std::mem::take(&mut state.spawned);
                for (target, lock) in std::mem::take(&mut state.to_revoke) {
                    tasks.push(Box::pin(locks::revoke(ctx.clone(), target, lock)));
                }
                for call in std::mem::take(&mut state.to_doubt) {
                    tasks.push(Box::pin(pages::doubt(ctx.clone(), call)));
                }
                for object in state.dirty.take_late() {
                    tasks.push(Box::pin(dirty::write_out_late(ctx.clone(), object)));
                }
                while let Some(fh) = state.next_to_revive() {
                    tasks.push(Box::pin(crate::ops::open::revive_unasked(ctx.clone(), fh)));
                }
                tasks
            });
            let ready = self.executor.take_ready();
            if tasks.is_empty() && ready.is_empty() {
                let is_done = ctx.with(|state| {
                    if state.import_outputs.is_empty() {
                        state.send_replays();
                    }
                    state.import_outputs.is_empty()
                });
                if is_done {
                    return;
                }
            }
            for task in tasks {
                self.executor.spawn(task);
            }
            for task in ready {
                self.executor.poll(task);
            }
        }
    }
}

impl Machine for Client {
    type Input = Input;
    type Output = Output;

    fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        self.ctx.with(|state| {
            state.now = now;
            state.fire_timers();
            state.note_silent_mdts();
        });
        match input {
            Input::Call { id, call, caller } => self.on_call(id, call, caller),
            Input::Interrupt(id) => self.on_interrupt(id),
            Input::Drain { patience } => {
                let is_first = self.ctx.with(|state| !std::mem::replace(&mut state.is_draining, true));
                if is_first {
                    self.executor.spawn(Box::pin(ops::sync::drain(self.ctx.clone(), patience)));
                }
            }
            Input::Forget(forgets) => self.ctx.with(|state| {
                for (node, count) in forgets {
                    state.on_forgotten(node, count);
                }
            }),
            Input::Frame(frame) => self.ctx.with(|state| state.on_frame(frame)),
            Input::ConnectionLost(target) => {
                self.ctx.with(|state| state.with_import(target, Import::on_connection_lost));
            }
            Input::TargetStarted(target, epoch) => self.ctx.with(|state| {
                state.with_import(target, |import, now, out| import.on_target_started(now, epoch, out));
            }),
            Input::Config(config) => self.ctx.with(|state| state.on_config(config)),
            Input::Lease(at) => self.ctx.with(|state| state.on_lease(at)),
            Input::Notified(id, result) => self.ctx.with(|state| {
                state.note_told(id);
                if !state.end_drop(id)
                    && !state.end_push(id, result)
                    && let Some(sender) = state.notify_waiters.remove(&id)
                {
                    sender.send(result);
                }
            }),
            Input::Set(setting) => self.ctx.with(|state| state.on_setting(setting)),
            Input::Signals { id, signals } => self.ctx.with(|state| state.on_signals(id, signals)),
            Input::Groups { id, groups } => self.ctx.with(|state| {
                if let Some(sender) = state.group_waiters.remove(&id) {
                    sender.send(groups);
                }
            }),
            Input::Tick => self.ctx.with(State::on_tick),
        }
        self.settle();
        self.ctx.with(|state| out.append(&mut state.out));
    }

    fn next_deadline(&self) -> Option<Time> {
        self.ctx.with(|state| {
            let sessions =
                state.connections.values().filter_map(|connection| connection.import.next_deadline());
            let idle = state.connections.values().filter_map(|connection| {
                let is_too_many = connection.locks.idle_count() > connection.idle_locks.count;
                let trim = is_too_many.then(|| connection.trimmed_at.after(TRIM_INTERVAL));
                let age = connection.locks.next_deadline(connection.idle_locks.age);
                trim.into_iter().chain(age).min()
            });
            let timers = state.timers.first_key_value().map(|((time, _), _)| *time);
            sessions.chain(idle).chain(timers).chain(state.lease_deadline()).min()
        })
    }

    fn check(&self) {
        self.ctx.with(|state| {
            for (target, connection) in &state.connections {
                connection.import.check();
                connection.locks.check();
                assert!(connection.stats.read_rpcs_now <= connection.tickets.len() as u64, "{target}");
            }
            state.check_pages();
            state.check_pushes();
            state.dirty.check();
            state.appends.check();
            state.ahead.check();
            state.listing_budget.check();
            state.lock_owners.check();
            state.nodes.listings.check();
            state.telling.check();
            state.unlinks.check();
            state.long_xattrs.check(&state.nodes);
            let held: u32 = state.held.values().sum();
            let holds: usize =
                state.calls.values().filter(|call| !call.is_answered).map(|call| call.holds.len()).sum();
            assert_eq!(held as usize, holds);
            assert!(state.until_held.keys().all(|node| !state.held.contains_key(node)));
            assert_eq!(state.closing_count, state.closing.values().sum());
            assert!(state.closing_count as usize >= state.closing_handles.len());
            // Whoever waits is a task; without tasks nobody does.
            if self.executor.task_count() == 0 {
                assert!(state.calls.is_empty());
                assert!(state.revocations.is_empty());
                assert!(state.until_held.is_empty());
                assert!(state.has_sent_cancels());
                assert!(state.enqueues.is_empty());
                assert!(state.root.is_at_rest());
                assert!(state.appends.is_at_rest());
                assert_eq!(state.traffic.call_count(), 0);
            }
        });
    }
}

impl State {
    /// Inodes that the kernel locks besides their directories while a name of theirs goes or moves.
    fn victims(&self, call: &Call) -> Vec<u64> {
        let names: Vec<(u64, &[u8])> = match call {
            Call::Unlink { parent, name } | Call::Rmdir { parent, name } => vec![(*parent, name)],
            Call::Rename { parent, name, new_parent, new_name, .. } => {
                vec![(*parent, name), (*new_parent, new_name)]
            }
            _ => Vec::new(),
        };
        names
            .into_iter()
            .filter_map(|(parent, name)| {
                let parent = self.nodes.home_of(self.nodes.get(parent)?.fid(), name);
                Some(self.names.get(parent, name)?.fid()?.inode_number())
            })
            .collect()
    }

    /// A call has come to its end; it may have been answered before (interrupted).
    fn finish_call(&mut self, id: u64, result: Result<Answer, Status>) {
        self.end_unlinks(id, result.is_ok());
        let was_answered = self.calls.get(&id).is_none_or(|call| call.is_answered);
        if was_answered {
            // The kernel never heard of these references.
            for node in result.iter().flat_map(Answer::references) {
                if let Some(gone) = self.nodes.forget(node, 1) {
                    self.forget_names_of(&gone);
                }
            }
        } else {
            self.answer_call(id, result.map_err(Status::errno));
        }
        if let Some(call) = self.calls.remove(&id) {
            let micros = u64::try_from(self.now.time.since(call.started).as_micros()).unwrap_or(u64::MAX);
            self.stats.calls.entry(call.name).or_default().add(micros);
        }
    }

    pub(crate) fn answer_call(&mut self, id: u64, result: Result<Answer, i32>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        assert!(!call.is_answered, "a call is answered once");
        call.is_answered = true;
        let came = call.started;
        for node in &call.holds {
            if let Some(count) = self.held.get_mut(node) {
                *count -= 1;
                if *count == 0 {
                    self.held.remove(node);
                }
            }
        }
        self.end_page_call(PageCallId(id));
        if let Ok(answer) = &result {
            self.note_sizes(answer, came);
        }
        self.out.push(Output::Reply { id, result });
    }

    fn fire_timers(&mut self) {
        while let Some(entry) = self.timers.first_entry() {
            if entry.key().0 > self.now.time {
                break;
            }
            entry.remove().send(());
        }
    }

    fn on_frame(&mut self, frame: Frame) {
        let Endpoint::Target(target) = frame.src else { return };
        let Some(connection) = self.connections.get_mut(&target) else { return };
        let mut outputs = Vec::new();
        connection.import.on_frame(self.now, frame, &mut outputs);
        self.import_outputs.extend(outputs.into_iter().map(|output| (target, output)));
    }

    /// Looks at once whether the target was restarted, instead of when a request is overdue.
    pub(crate) fn with_import(
        &mut self,
        target: TargetId,
        act: impl FnOnce(&mut Import, Now, &mut Vec<ImportOutput>),
    ) {
        let Some(connection) = self.connections.get_mut(&target) else { return };
        let mut outputs = Vec::new();
        act(&mut connection.import, self.now, &mut outputs);
        self.import_outputs.extend(outputs.into_iter().map(|output| (target, output)));
    }

    fn on_tick(&mut self) {
        // It may have sessions ask for a sign of life sooner than they thought.
        self.check_leases();
        let now = self.now;
        for (target, connection) in &mut self.connections {
            if connection.import.next_deadline().is_some_and(|deadline| deadline <= now.time) {
                if connection.import.is_ping_due(now.time) {
                    connection.import.take_along(accesses::take(&mut self.accesses, *target, ACCESSES_MAX));
                }
                let mut outputs = Vec::new();
                connection.import.on_tick(now, &mut outputs);
                self.import_outputs.extend(outputs.into_iter().map(|output| (*target, output)));
            }
        }
        self.trim_idle_locks();
    }

    /// Acts on what sessions said.
    fn take_import_outputs(&mut self) {
        while let Some((target, output)) = self.import_outputs.pop_front() {
            match output {
                ImportOutput::Send(frame) => self.out.push(Output::Send(frame)),
                ImportOutput::Completed { ticket, result } => self.on_completed(target, ticket, result),
                ImportOutput::Committed(transno) => self.on_committed(target, transno),
                ImportOutput::ReplayWanted => {
                    if let Some(connection) = self.connections.get_mut(&target) {
                        // The target does not know of it any more.
                        connection.grant_bytes = 0;
                    }
                    self.to_replay.insert(target);
                }
                ImportOutput::ReplayFailed { request, status } => {
                    self.on_replay_failed(target, &request, status)
                }
                ImportOutput::Recovered => self.event(Event::Recovered(target)),
                ImportOutput::Evicted => self.on_evicted(target),
                ImportOutput::Lost { requests } => self.on_lost(target, &requests),
                ImportOutput::Callback(Callback::Blocking { lock, .. }) => self.on_blocking(target, lock),
                ImportOutput::Callback(Callback::ConfigChanged { version }) => {
                    self.event(Event::ConfigChanged { version });
                }
                // The session finds out for itself; of targets that start, the management server tells.
                ImportOutput::Callback(Callback::Evicted { .. } | Callback::TargetStarted { .. }) => {}
                ImportOutput::State(state) => self.on_session_state(target, state),
                // Of callers that are targets.
                ImportOutput::Outdated(_) => {}
                ImportOutput::Overdue => self.on_overdue(target),
                ImportOutput::AnswersAgain => {
                    self.note_history(target, state_word(ImportState::Active));
                    self.event(Event::AnswersAgain(target));
                }
            }
        }
    }

    /// Names to restarted targets what they cannot know. Before it, everybody has seen the answers that came with the restart:
    /// they may have opened something.
    fn send_replays(&mut self) {
        for target in std::mem::take(&mut self.to_replay) {
            self.forget_facts(target);
            let requests = self.replays(target);
            let Some(connection) = self.connections.get_mut(&target) else { continue };
            let mut outputs = Vec::new();
            connection.import.replay_now(self.now, requests, &mut outputs);
            self.import_outputs.extend(outputs.into_iter().map(|output| (target, output)));
        }
    }

    fn on_completed(&mut self, target: TargetId, ticket: rpc::Ticket, result: Result<rpc::Answer, Status>) {
        let now = self.now.time;
        let Some(connection) = self.connections.get_mut(&target) else { return };
        let Some(pending) = connection.tickets.remove(&ticket) else { return };
        let byte_count = result.as_ref().map_or(0, |answer| answer.data.len());
        connection.stats.on_answered(&pending, now.since(pending.sent), byte_count);
        pending.sender.send(result);
    }

    fn on_committed(&mut self, target: TargetId, transno: Transno) {
        let Some(connection) = self.connections.get_mut(&target) else { return };
        connection.committed = connection.committed.max(transno);
        while let Some(first) =
            connection.commit_waiters.first_entry().filter(|first| *first.key() <= transno)
        {
            first.remove().into_iter().for_each(|sender| sender.send(Ok(())));
        }
    }

    fn on_overdue(&mut self, target: TargetId) {
        self.note_history(target, OVERDUE_WORD);
        let nids = self.nids_of(target);
        self.event(Event::Overdue { target, nids });
    }

    fn on_session_state(&mut self, target: TargetId, session: ImportState) {
        let Some(connection) = self.connections.get_mut(&target) else { return };
        connection.history.add(self.now.wall, state_word(session));
        let was_active = std::mem::replace(&mut connection.has_been_active, session == ImportState::Active);
        match session {
            ImportState::Active if !was_active => self.event(Event::Connected(target)),
            ImportState::Connecting | ImportState::Refused(_) if was_active => {
                self.event(Event::Disconnected(target));
            }
            _ => {}
        }
    }
}
