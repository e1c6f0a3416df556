//! One mount of this process: the FUSE session and the client machine.

pub mod dead;
mod groups;
mod notices;
pub mod options;
pub mod read_ahead;
mod root;
mod translate;
pub mod unasked;
pub mod unmount;
pub mod unsaved;

use crate::alive;
use crate::cli::Transport;
use crate::cluster::Identity;
use crate::control::Unheard;
use crate::memory;
use crate::mount_table;
use crate::nid;
use crate::node::Ended;
use crate::params;
use crate::signals;
use anyhow::{Context, Result, bail};
use base::{ClientId, ClusterConfig, Endpoint, Epoch, TargetId, Time};
use client::{
    Answer, Call, Caller, Client, ClientOptions, Event, Input, Notify, NotifyId, NotifyResult, Output,
};
use fuse::{Handler, Notifier, Op, Reply, Request, Session};
use net::{Owner, OwnerOptions, Router, Timer};
use notices::{Missing, Notices, start_thread, start_threads, start_watcher, told};
use options::{Choices, LockScope};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use translate::Shape;
use unsaved::Unsaved;
use wire::Life;

pub use root::Awaited;
pub use translate::STATFS_BLOCK_BYTES;

/// Calls of the process itself have this bit; the kernel's numbers do not.
const OWN_CALL: u64 = 1 << 63;
/// A call that nobody watches, and the end of the client: servers that have not answered for this long are not waited for.
const FINISH_TIMEOUT: Duration = Duration::from_secs(40);
/// There where the kernel gives SELinux labels to files, and the xattr that holds them.
const SELINUX: &str = "/sys/fs/selinux";
const LABEL: &[u8] = b"security.selinux";

/// What a mount needs of its process.
pub struct Surroundings {
    pub router: Arc<Router>,
    pub timer: Arc<Timer>,
    pub config: ClusterConfig,
    /// What operators see on servers.
    pub nid: String,
    /// `NID:/FSNAME` as the kernel's table has it, by which others find this mount: with `:` for the `,` of what was given.
    pub source: String,
    /// That somebody else keeps.
    pub identity: Option<Identity>,
    /// Nothing is mounted before the MDT of the root is there. `None`: it is served by this process, or others that are may not end for want of it.
    pub awaited: Option<Awaited>,
    /// Called once, when the mount is gone and everything of it is finished.
    pub on_end: Box<dyn FnOnce(&Path) + Send>,
}

pub struct Mount {
    pub path: PathBuf,
    pub fsname: String,
    pub source: String,
    /// Known from when it is mounted.
    transport: OnceLock<&'static str>,
    choices: Choices,
    /// Tells servers of this machine that we live, while the process does.
    claim: alive::Claim,
    owner: Arc<Owner<Client>>,
    shared: Arc<Shared>,
    session: Mutex<Option<Session>>,
    endpoint: Endpoint,
    /// The last unmount did not wait for some server any longer.
    is_given_up: AtomicBool,
}

/// What requests, answers and notifications meet in.
struct Shared {
    owner: OnceLock<Arc<Owner<Client>>>,
    router: Arc<Router>,
    /// The client's node that the kernel knows as its root.
    root: OnceLock<u64>,
    replies: Mutex<HashMap<u64, (Reply, Shape)>>,
    own_calls: Mutex<HashMap<u64, Sender<Result<Answer, i32>>>>,
    next_own_call: AtomicU64,
    /// `None` before anything is mounted: the kernel knows nothing yet.
    notifier: Mutex<Option<Notifier>>,
    has_locks: bool,
    has_user_xattrs: bool,
    /// The kernel of this machine gives labels to files.
    has_labels: bool,
    /// Names wait for directory locks and inodes for pages: neither holds up the other.
    name_notices: Arc<Notices>,
    inode_notices: Arc<Notices>,
    /// Pages that are put into the kernel's cache, window by window.
    pushes: Arc<Notices>,
    progress: Mutex<Progress>,
    progressed: Condvar,
    on_destroyed: Mutex<Option<Sender<()>>>,
}

/// A call of the process itself was not answered in time.
#[derive(Debug, thiserror::Error)]
#[error("the servers of this mount do not answer; see `sheen status`")]
struct Unanswered;

#[derive(Clone, Debug, Default)]
struct Progress {
    is_drained: bool,
    is_ended: bool,
    /// What was given up at the end.
    lost: Option<Unsaved>,
}

impl Mount {
    /// Mounts and starts to serve.
    ///
    /// # Errors
    /// The mount point is in use or not empty; the directory to mount cannot be found; or the kernel refuses. Neither it nor the servers
    /// have anything of it then.
    pub fn start(path: &Path, choices: &Choices, with: Surroundings) -> Result<Arc<Mount>> {
        mount_table::check_mount_point(path)?;
        let claim = alive::claim(path, &with.source, with.identity);
        let identity = claim.identity;
        let id = ClientId(identity.client);
        let client = Client::new(
            net::clock::now(),
            ClientOptions {
                client: id,
                incarnation: identity.incarnation,
                fsname: with.config.fsname.clone(),
                nid: with.nid.clone(),
                // What the kernel can do is known when it is mounted, before the first of its requests.
                has_inc_epoch: false,
                has_versioned_setattr: false,
                is_mmap_relaxed: choices.is_mmap_relaxed,
                is_statfs_lazy: choices.is_statfs_lazy,
                access_times: choices.access_times(),
                has_kill_privileges: false,
                is_write_back_early: false,
            },
        );
        let (destroyed, on_destroyed) = mpsc::channel();
        let shared = Arc::new(Shared {
            owner: OnceLock::new(),
            router: Arc::clone(&with.router),
            root: OnceLock::new(),
            replies: Mutex::default(),
            own_calls: Mutex::default(),
            next_own_call: AtomicU64::new(OWN_CALL),
            notifier: Mutex::default(),
            has_locks: choices.lock_scope != LockScope::Nobody,
            has_user_xattrs: choices.has_user_xattrs,
            has_labels: Path::new(SELINUX).exists(),
            name_notices: Notices::of_names(),
            inode_notices: Notices::of_inodes(),
            pushes: Notices::of_pushes(),
            progress: Mutex::default(),
            progressed: Condvar::new(),
            on_destroyed: Mutex::new(Some(destroyed)),
        });
        let performing = Arc::clone(&shared);
        let owner = Owner::new(
            client,
            OwnerOptions {
                tick: || Input::Tick,
                frame: Input::Frame,
                perform: Box::new(move |output| performing.perform(output)),
                timer: Arc::clone(&with.timer),
                lateness: None,
            },
        );
        assert!(shared.owner.set(Arc::clone(&owner)).is_ok(), "the owner is set once");
        for notices in [&shared.name_notices, &shared.inode_notices, &shared.pushes] {
            start_thread(&shared, notices)?;
        }
        let endpoint = Endpoint::Client(id);
        with.router.add_local(endpoint, owner.clone());
        let fsname = with.config.fsname.clone();
        // It has asked for nothing yet that a target would have to know: its lease begins now.
        owner.submit(Input::Lease(net::clock::now().time));
        owner.submit(Input::Set(client::Setting::SyncRule(choices.sync_rule())));
        submit_config(&owner, with.config);
        let mount = Arc::new(Mount {
            path: path.to_owned(),
            fsname,
            source: with.source,
            transport: OnceLock::new(),
            choices: choices.clone(),
            claim,
            owner,
            shared,
            session: Mutex::new(None),
            endpoint,
            is_given_up: AtomicBool::new(false),
        });
        if let Err(error) = mount.serve(with.awaited.as_ref()) {
            // What was looked up on the way has left locks, for which others would wait.
            let is_unanswered = error.is::<Unanswered>() || error.is::<Ended>();
            mount.is_given_up.store(is_unanswered, Ordering::Release);
            mount.finish();
            return Err(error);
        }
        // Who is not root leaves it as it is.
        if let Err(error) = mount.set_kernel_window(read_ahead::KIB_DEFAULT) {
            tracing::debug!("{error:#}");
            mount.note_kernel_window();
        }
        mount.note_memory();
        let reaped = Arc::clone(&mount);
        let on_end = with.on_end;
        std::thread::Builder::new().name("mount-end".into()).spawn(move || {
            // An error means that the handler is gone, and that is an end too.
            let _ = on_destroyed.recv();
            reaped.finish();
            on_end(&reaped.path);
        })?;
        Ok(mount)
    }

    /// Finds what is to be the root, mounts, and serves. After an error the kernel has nothing of it.
    fn serve(&self, awaited: Option<&Awaited>) -> Result<()> {
        let root = match awaited {
            Some(awaited) => {
                root::wait_for_mdt(&self.owner, &self.shared, awaited.until)?;
                root::find(&self.owner, &self.shared, awaited)?
            }
            None => client::ROOT_NODE,
        };
        assert!(self.shared.root.set(root).is_ok(), "the root is set once");
        self.owner.with(|client| client.set_root(root));
        // That took time, in which somebody else may have mounted there.
        mount_table::check_mount_point(&self.path)?;
        let session = self.run_as_chosen()?;
        mount_table::name_helper(&self.source, &self.path);
        *lock(&self.session) = Some(session);
        Ok(())
    }

    /// As `run`, where nobody has named a transport with the one that can be had.
    fn run_as_chosen(&self) -> Result<Session> {
        let chosen = self.choices.transport;
        match self.run(chosen) {
            Err(error) if chosen == Transport::Auto && has_no_rings(&error) => {
                tracing::info!("{error:#}: requests come through /dev/fuse");
                self.run(Transport::Dev)
            }
            run => run,
        }
    }

    /// Mounts, and takes the requests of the kernel.
    fn run(&self, transport: Transport) -> Result<Session> {
        let (mut session, negotiated) = mount(&self.path, &self.choices, transport, &self.source)?;
        *lock(&self.shared.notifier) = Some(session.notifier());
        let kernel = client::Kernel {
            has_inc_epoch: negotiated.has_inc_epoch() && !self.choices.are_names_uncached,
            has_versioned_setattr: negotiated.has_versioned_setattr(),
            has_kill_privileges: negotiated.has(fuse::abi::init::HANDLE_KILLPRIV_V2),
        };
        self.owner.with(|client| client.set_kernel(kernel));
        let handler = Arc::clone(&self.shared);
        session.run(handler).with_context(|| format!("cannot serve {}", self.path.display()))?;
        let transport = match negotiated.transport {
            fuse::Transport::Device => "dev",
            fuse::Transport::Uring => "uring",
        };
        assert!(self.transport.set(transport).is_ok(), "it is mounted once");
        Ok(session)
    }

    /// `dev` or `uring`.
    pub fn transport(&self) -> &'static str {
        self.transport.get().copied().unwrap_or_default()
    }

    /// How much the kernel asks for around a page fault, in KiB.
    ///
    /// # Errors
    /// The mount is gone, or its owner is not root.
    pub fn set_kernel_window(&self, kib: u64) -> Result<()> {
        read_ahead::set_kib(&self.path, kib)?;
        self.note_kernel_window();
        Ok(())
    }

    fn note_kernel_window(&self) {
        let kernel_window_bytes = read_ahead::kib(&self.path).unwrap_or(0) * 1024;
        let bound = client::ReadAheadBound::KernelWindowBytes(kernel_window_bytes);
        self.set(client::Setting::ReadAheadBound(bound));
    }

    /// What the kernel is given unasked is memory of this process's control group, whoever reads it: where that has a limit of its own,
    /// nothing is, unless an operator wants it.
    fn note_memory(&self) {
        let set = |bound| self.set(client::Setting::ReadAheadBound(bound));
        set(client::ReadAheadBound::PushedFileBytes(memory::pushed_file_bytes()));
        if memory::group_limit_bytes().is_some() {
            set(client::ReadAheadBound::Pushing(false));
        }
    }

    /// The configuration has changed.
    pub fn set_config(&self, config: ClusterConfig) {
        submit_config(&self.owner, config);
    }

    /// The lease of this mount was renewed.
    pub fn on_lease(&self, at: Time) {
        self.owner.submit(Input::Lease(at));
    }

    /// The mount as the management server knows it.
    pub fn life(&self) -> Life {
        self.claim.identity.life()
    }

    /// The connection to a target has ended.
    pub fn on_connection_lost(&self, lost: TargetId) {
        self.owner.submit(Input::ConnectionLost(lost));
    }

    /// A target has just started.
    pub fn on_target_started(&self, started: TargetId, epoch: Epoch) {
        self.owner.submit(Input::TargetStarted(started, epoch));
    }

    /// Tells the mounts of a machine apart in parameter names.
    pub fn number(&self) -> u64 {
        self.client_id().0 as u64
    }

    /// The mount as servers know it.
    pub fn client_id(&self) -> ClientId {
        self.endpoint.client_id()
    }

    pub fn stats(&self) -> client::Stats {
        self.with_client(|client| client.stats())
    }

    /// Targets in use that it does not hear.
    pub fn unheard(&self) -> Vec<Unheard> {
        let now = net::clock::now().wall.seconds();
        let unheard = |target: TargetId| {
            // One look for each, so that the mount works in between.
            let session = self.with_client(|client| client.target_status(target))?;
            let since = session.session.out_since.filter(|_| session.is_active)?.seconds();
            Some(Unheard {
                target: format!("{}-{target}", self.fsname),
                nids: session.session.nids.iter().map(|address| nid::format_nid(address)).collect(),
                since,
                seconds: u64::try_from(now.saturating_sub(since)).unwrap_or_default(),
                is_connected: session.session.is_overdue,
            })
        };
        self.with_client(|client| client.targets()).into_iter().filter_map(unheard).collect()
    }

    pub fn with_client<R>(&self, look: impl FnOnce(&mut Client) -> R) -> R {
        self.owner.with(look)
    }

    /// An operator changes something.
    pub fn set(&self, setting: client::Setting) {
        self.owner.submit(Input::Set(setting));
    }

    /// Space of the whole file system; `None` when the servers do not answer.
    pub fn statfs(&self) -> Option<wire::mdt::Statfs> {
        match call(&self.owner, &self.shared, Call::Statfs { node: client::ROOT_NODE }) {
            Ok(Ok(Answer::Statfs(statfs))) => Some(statfs),
            _ => None,
        }
    }

    /// How each target does, seen from here; takes seconds at most.
    ///
    /// # Errors
    /// The mount is about to end.
    pub fn probe(&self) -> Result<Vec<client::TargetProbe>> {
        match call(&self.owner, &self.shared, Call::ProbeTargets)? {
            Ok(Answer::Probes(probes)) => Ok(probes),
            Ok(_) => bail!("the mount {} is of another version", self.path.display()),
            Err(errno) => bail!("{}: {}", self.path.display(), io::Error::from_raw_os_error(errno)),
        }
    }

    /// Whether statfs(2) answers from what is known of a target that does not answer.
    pub fn is_statfs_lazy(&self) -> bool {
        self.owner.with(|client| client.is_statfs_lazy())
    }

    pub fn set_statfs_lazy(&self, is_lazy: bool) {
        self.owner.with(|client| client.set_statfs_lazy(is_lazy));
    }

    /// The kernel keeps the flags, and leaves access times and what is synchronous to us: what it has now counts from now on.
    pub fn reread_flags(&self) {
        if let Some(mounted) = mount_table::mounted_on(&self.path) {
            let flags = mounted.flags();
            self.set(client::Setting::AccessTimes(options::access_times_of(&flags)));
            self.set(client::Setting::SyncRule(options::sync_rule_of(&flags)));
        }
    }

    /// Our own options in force.
    pub fn options(&self) -> Vec<String> {
        let choices = Choices { is_statfs_lazy: self.is_statfs_lazy(), ..self.choices.clone() };
        choices.shown(self.transport())
    }

    /// The same when it was mounted.
    pub fn options_at_start(&self) -> Vec<String> {
        self.choices.shown(self.transport())
    }
}

/// Whether io_uring was on, and what the mount needs of it could not be had.
fn has_no_rings(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(fuse::SessionError::Rings(_)))
}

/// The configuration, and what parameters in it say of its targets.
fn submit_config(owner: &Owner<Client>, config: ClusterConfig) {
    let drained = params::drained(&config);
    let targets: Vec<TargetId> = config.targets.iter().map(|target| target.id).collect();
    owner.submit(Input::Config(config));
    for target in targets {
        let setting = client::TargetSetting::Drained(drained.contains(&target));
        owner.submit(Input::Set(client::Setting::Target(target, setting)));
    }
}

/// A call of the process itself, as root.
fn call(owner: &Owner<Client>, shared: &Shared, call: Call) -> Result<Result<Answer, i32>> {
    let answer = begin(owner, shared, call).recv_timeout(FINISH_TIMEOUT);
    answer.map_err(|_| Unanswered.into())
}

/// The same, without waiting for the answer.
fn begin(owner: &Owner<Client>, shared: &Shared, call: Call) -> Receiver<Result<Answer, i32>> {
    let id = shared.next_own_call.fetch_add(1, Ordering::Relaxed);
    let (sender, receiver) = mpsc::channel();
    lock(&shared.own_calls).insert(id, sender);
    owner.submit(Input::Call { id, call, caller: Caller::default() });
    receiver
}

fn mount(
    path: &Path,
    choices: &Choices,
    transport: Transport,
    source: &str,
) -> Result<(Session, fuse::Negotiated)> {
    let transport = match transport {
        Transport::Auto => fuse::TransportChoice::Auto,
        Transport::Dev => fuse::TransportChoice::Device,
        Transport::Uring => {
            // Asked for by name: switch it on if we may; the mount says so if that was not enough.
            let _ = fuse::enable_uring();
            fuse::TransportChoice::Uring
        }
    };
    let options = fuse::MountOptions {
        source: source.to_owned(),
        allow_other: crate::sys::uid() == 0,
        flags: choices.flags,
        transport,
        direct_io_allow_mmap: choices.is_mmap_relaxed,
        remote_locks: choices.lock_scope != LockScope::Local,
        ..fuse::MountOptions::default()
    };
    Ok(Session::mount(path, options)?)
}

impl Shared {
    fn owner(&self) -> &Arc<Owner<Client>> {
        self.owner.get().expect("the owner is set before anything runs")
    }

    /// Performs one output of the client, without blocking.
    fn perform(self: &Arc<Shared>, output: Output) {
        match output {
            Output::Send(frame) => self.router.send(frame),
            Output::Reply { id, result } if id >= OWN_CALL => {
                if let Some(waiting) = lock(&self.own_calls).remove(&id) {
                    // Who gave up waiting does not mind.
                    let _ = waiting.send(result);
                }
            }
            Output::Reply { id, result } => {
                let pending = lock(&self.replies).remove(&id);
                if let Some((reply, shape)) = pending {
                    translate::reply(reply, shape, result.map(|answer| self.as_kernel_knows(answer)));
                }
            }
            Output::Notify(id, Notify::IncEpoch) => {
                let result = self.notify(Notify::IncEpoch);
                self.owner().queue(Input::Notified(id, result));
            }
            Output::Notify(id, notice @ Notify::Store { .. }) => {
                self.tell(&self.pushes, id, notice);
            }
            Output::Notify(id, notice) => {
                let is_of_names = notice.directory().is_some();
                self.tell(if is_of_names { &self.name_notices } else { &self.inode_notices }, id, notice);
            }
            Output::CallOff(id) => {
                if self.pushes.take_back(id) {
                    self.owner().queue(Input::Notified(id, NotifyResult::NoEntry));
                }
            }
            Output::NeedGroups { id, caller } => {
                self.owner().queue(Input::Groups { id, groups: groups::of(caller) });
            }
            Output::NeedSignals { id, pid } => {
                self.owner().queue(Input::Signals { id, signals: signals::of(pid) });
            }
            Output::Drained => self.set_progress(|progress| progress.is_drained = true),
            Output::Event(event) => log_event(&event),
        }
    }

    fn tell(self: &Arc<Shared>, notices: &Arc<Notices>, id: NotifyId, notice: Notify) {
        match notices.push(id, notice) {
            Missing::Nothing => {}
            Missing::Threads(count) => start_threads(self, notices, count),
            Missing::Watcher => start_watcher(self, notices),
        }
    }

    fn root(&self) -> u64 {
        self.root.get().copied().unwrap_or(client::ROOT_NODE)
    }

    /// The client's number of a node of the kernel.
    fn to_client(&self, node: u64) -> u64 {
        if node == client::ROOT_NODE { self.root() } else { node }
    }

    fn to_kernel(&self, node: u64) -> u64 {
        if node == self.root() { client::ROOT_NODE } else { node }
    }

    /// Who comes by the number of the mounted directory (a file handle, or `..` of what is in it) comes to the root.
    fn as_kernel_knows(&self, mut answer: Answer) -> Answer {
        if let Answer::Entry(entry) = &mut answer {
            entry.node = self.to_kernel(entry.node);
        }
        answer
    }

    fn notify(&self, notice: Notify) -> NotifyResult {
        let notifier = lock(&self.notifier).clone();
        let Some(notifier) = notifier else { return NotifyResult::NoEntry };
        told(match notice {
            Notify::InvalEntry { parent, name } => notifier.inval_entry(self.to_kernel(parent), &name),
            Notify::ExpireEntry { parent, name } => notifier.expire_entry(self.to_kernel(parent), &name),
            Notify::InvalInode { node, offset_bytes, byte_count } => {
                notifier.inval_inode(self.to_kernel(node), offset_bytes, byte_count)
            }
            Notify::Store { until, .. } if net::clock::now().time >= until => Ok(fuse::Notified::Unknown),
            Notify::Store { node, offset_bytes, data, .. } => {
                notifier.store(self.to_kernel(node), offset_bytes, &data)
            }
            Notify::IncEpoch => notifier.inc_epoch(),
            Notify::Several(notices) => {
                for notice in notices {
                    let _ = self.notify(notice);
                }
                Ok(fuse::Notified::Done)
            }
        })
    }

    /// What the options of the mount forbid, as an errno.
    fn refusal(&self, op: &Op) -> Option<i32> {
        match op {
            Op::Getlk { .. } | Op::Setlk { .. } => (!self.has_locks).then_some(libc::ENOSYS),
            Op::Getxattr { name, .. } | Op::Setxattr { name, .. } | Op::Removexattr { name } => {
                (!self.has_user_xattrs && name.starts_with(b"user.")).then_some(libc::EOPNOTSUPP)
            }
            _ => None,
        }
    }

    fn set_progress(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut lock(&self.progress));
        self.progressed.notify_all();
    }

    /// True when it came in time.
    fn wait_for(&self, limit: Duration, condition: impl Fn(&Progress) -> bool) -> bool {
        let guard = lock(&self.progress);
        let waited = self.progressed.wait_timeout_while(guard, limit, |progress| !condition(progress));
        condition(&waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

impl Handler for Shared {
    fn request(&self, mut request: Request, reply: Reply) {
        if let Some(errno) = self.refusal(&request.op) {
            return reply.error(errno);
        }
        request.nodeid = self.to_client(request.nodeid);
        if let Op::Rename { new_parent, .. } = &mut request.op {
            *new_parent = self.to_client(*new_parent);
        }
        let caller = Caller { uid: request.uid, gid: request.gid, pid: request.pid };
        let is_label = matches!(&request.op, Op::Getxattr { name, .. } if name == LABEL);
        match translate::call(request.nodeid, request.pid, request.op) {
            Ok((call, mut shape)) => {
                if let Shape::Names { hides_user, .. } = &mut shape {
                    *hides_user = !self.has_user_xattrs;
                }
                // As Lustre does without SELinux. ls(1) asks for the label of each file, until it hears that the file
                // system has none; who restored labels from an archive finds them all the same.
                if let Shape::Xattr { absent, .. } = &mut shape
                    && is_label
                    && !self.has_labels
                {
                    *absent = libc::EOPNOTSUPP;
                }
                lock(&self.replies).insert(request.unique, (reply, shape));
                self.owner().queue(Input::Call { id: request.unique, call, caller });
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, forgets: &[(u64, u64)]) {
        self.owner().submit(Input::Forget(forgets.to_vec()));
    }

    fn interrupt(&self, unique: u64) {
        self.owner().submit(Input::Interrupt(unique));
    }

    fn batch_end(&self, _thread_index: usize) {
        net::run::run_all();
    }

    fn destroyed(&self) {
        if let Some(sender) = lock(&self.on_destroyed).take() {
            // Nobody waits when the start has failed.
            let _ = sender.send(());
        }
    }
}

fn log_event(event: &Event) {
    match event {
        Event::Connected(target) => tracing::info!(%target, "connected"),
        Event::Disconnected(target) => tracing::info!(%target, "does not answer; calls wait"),
        Event::Overdue { target, nids } => {
            tracing::info!(%target, nid = nids.join(":"), "owes an answer, and its connection stands; calls wait");
        }
        Event::AnswersAgain(target) => tracing::info!(%target, "answers again"),
        Event::Recovered(target) => tracing::info!(%target, "was restarted; everything was sent again"),
        Event::Evicted(target) => {
            tracing::warn!(%target, "evicted this mount; what was kept back for it is lost");
        }
        Event::Lost { target, request_count } => {
            tracing::error!(%target, request_count, "was restarted, evicted this mount, and lost what it had acknowledged");
        }
        Event::ReplayRefused { target, status } => {
            tracing::error!(%target, %status, "was restarted and lost something that it had acknowledged");
        }
        Event::ConfigChanged { version } => tracing::debug!(version, "the configuration has changed"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `mount -o remount,…`: changes flags of a mount, as the helper of mount(8).
///
/// # Errors
/// It is no mount of ours, or the kernel refuses.
pub fn remount(path: &Path, choices: &Choices) -> Result<()> {
    match mount_table::mounted_on(path) {
        Some(mounted) if mounted.is_sheen() => {
            check_dirsync(path, choices, &mounted.flags())?;
            let changed = crate::sys::remount(path, &mounted.source, choices.flags);
            changed.with_context(|| format!("cannot remount {}", path.display()))?;
            crate::lctl::reread_flags()
        }
        _ => bail!("{} is no SheenFS mount; see `sheen mounts`", path.display()),
    }
}

/// # Errors
/// The kernel would leave it out of a remount without a word.
fn check_dirsync(path: &Path, choices: &Choices, flags: &[String]) -> Result<()> {
    if choices.adds_dirsync(flags) {
        bail!(
            "the kernel does not change dirsync of what is mounted; unmount {}, and mount it with dirsync",
            path.display()
        );
    }
    Ok(())
}
