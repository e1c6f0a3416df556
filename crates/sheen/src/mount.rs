//! One mount of this process: the FUSE session, the client machine, and the threads that tell the kernel what to
//! forget.

pub mod options;
pub mod read_ahead;
mod translate;
pub mod unsaved;

use crate::alive;
use crate::cli::Transport;
use crate::cluster::Identity;
use crate::control::{Leave, Say};
use crate::in_use;
use crate::mount_table;
use crate::signals;
use anyhow::{Context, Result, anyhow, bail};
use base::{ClientId, ClusterConfig, Endpoint, Epoch, FileType, TargetId, Time};
use client::{
    Answer, Call, Caller, Client, ClientOptions, Event, Input, Notify, NotifyId, NotifyResult, Output,
};
use fuse::{Handler, Notified, Notifier, Op, Reply, Request, Session};
use net::{Owner, OwnerOptions, Router, Timer};
use options::{Choices, LockScope};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use translate::Shape;
use unsaved::{Patience, Silence, Unsaved, Watch};
use wire::Life;

pub use translate::STATFS_BLOCK_BYTES;

/// Calls of the process itself have this bit; the kernel's numbers do not.
const OWN_CALL: u64 = 1 << 63;
/// A call that nobody watches, and the end of the client: servers that have not answered for this long are not waited for.
const FINISH_TIMEOUT: Duration = Duration::from_secs(40);
/// For closes and sessions at the end, when everything is durable; and for them when some server has been given up before.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
const DRAIN_PATIENCE_GIVEN_UP: Duration = Duration::from_millis(500);
/// How often a sync looks whether the servers answer.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// How often somebody who waits is told why. Well below the time after which a silent process counts as hanging.
const NOTE_INTERVAL: Duration = Duration::from_secs(5);
/// A mount that is busy, by nobody who can be found, is tried again for so long and so often.
const BUSY_PATIENCE: Duration = Duration::from_secs(3);
const BUSY_RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// A file system that lives for so long after it was unmounted is kept by somebody.
const KEPT_AFTER: Duration = Duration::from_millis(500);

/// There where the kernel gives SELinux labels to files, and the xattr that holds them.
const SELINUX: &str = "/sys/fs/selinux";
const LABEL: &[u8] = b"security.selinux";

/// Threads that hand notices about inodes to the kernel, at most. Each but one waits there for a call that waits for locks.
const NOTICE_THREAD_COUNT_MAX: usize = 64;
/// All but one of these threads end when they have had nothing to do for so long.
const NOTICE_THREAD_IDLE: Duration = Duration::from_secs(5);

/// What a mount needs of its process.
pub struct Surroundings {
    pub router: Arc<Router>,
    pub timer: Arc<Timer>,
    pub config: ClusterConfig,
    /// What operators see on servers.
    pub nid: String,
    /// As it was given: `NID:/FSNAME`.
    pub source: String,
    /// Directory of the file system to mount; empty for its root.
    pub subdir: String,
    /// That somebody else keeps.
    pub identity: Option<Identity>,
    /// Called once, when the mount is gone and everything of it is finished.
    pub on_end: Box<dyn FnOnce(&Path) + Send>,
}

pub struct Mount {
    pub path: PathBuf,
    pub fsname: String,
    pub source: String,
    pub transport: &'static str,
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
    notifier: Notifier,
    has_locks: bool,
    has_user_xattrs: bool,
    /// The kernel of this machine gives labels to files.
    has_labels: bool,
    /// Names wait for directory locks and inodes for pages: neither holds up the other.
    name_notices: Sender<(NotifyId, Notify)>,
    inode_notices: Arc<Notices>,
    progress: Mutex<Progress>,
    progressed: Condvar,
    on_destroyed: Mutex<Option<Sender<()>>>,
}

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
    /// The mount point is in use or not empty, or the kernel refuses.
    pub fn start(path: &Path, choices: &Choices, with: Surroundings) -> Result<Arc<Mount>> {
        mount_table::check_mount_point(path)?;
        let (mut session, negotiated) = mount(path, choices, &with)?;
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
                has_inc_epoch: negotiated.has_inc_epoch(),
                is_mmap_relaxed: choices.is_mmap_relaxed,
                is_statfs_lazy: choices.is_statfs_lazy,
                access_times: choices.access_times(),
                has_kill_privileges: negotiated.has(fuse::abi::init::HANDLE_KILLPRIV_V2),
                is_write_back_early: false,
            },
        );
        let (name_notices, names) = mpsc::channel();
        let (destroyed, on_destroyed) = mpsc::channel();
        let shared = Arc::new(Shared {
            owner: OnceLock::new(),
            router: Arc::clone(&with.router),
            root: OnceLock::new(),
            replies: Mutex::default(),
            own_calls: Mutex::default(),
            next_own_call: AtomicU64::new(OWN_CALL),
            notifier: session.notifier(),
            has_locks: choices.lock_scope != LockScope::Nobody,
            has_user_xattrs: choices.has_user_xattrs,
            has_labels: Path::new(SELINUX).exists(),
            name_notices,
            inode_notices: Arc::default(),
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
            },
        );
        assert!(shared.owner.set(Arc::clone(&owner)).is_ok(), "the owner is set once");
        start_notifying("notify-names", &shared, names)?;
        start_inode_thread(&shared)?;
        let endpoint = Endpoint::Client(id);
        with.router.add_local(endpoint, owner.clone());
        let fsname = with.config.fsname.clone();
        // It has asked for nothing yet that a target would have to know: its lease begins now.
        owner.submit(Input::Lease(net::clock::now().time));
        owner.submit(Input::Config(with.config));
        let root = find_root(&owner, &shared, &with.subdir)?;
        assert!(shared.root.set(root).is_ok(), "the root is set once");
        owner.with(|client| client.set_root(root));
        session.run(shared.clone()).with_context(|| format!("cannot serve {}", path.display()))?;
        mount_table::name_helper(&with.source, path);
        let mount = Arc::new(Mount {
            path: path.to_owned(),
            fsname,
            source: with.source,
            transport: match negotiated.transport {
                fuse::Transport::Device => "dev",
                fuse::Transport::Uring => "uring",
            },
            choices: choices.clone(),
            claim,
            owner,
            shared,
            session: Mutex::new(Some(session)),
            endpoint,
            is_given_up: AtomicBool::new(false),
        });
        // Who is not root leaves it as it is.
        if let Err(error) = mount.set_kernel_window(read_ahead::KIB_DEFAULT) {
            tracing::debug!("{error:#}");
            mount.note_kernel_window();
        }
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
        let bounds = self.with_client(|client| client.read_ahead_bounds());
        self.set(client::Setting::ReadAhead(client::ReadAheadBounds { kernel_window_bytes, ..bounds }));
    }

    /// The configuration has changed.
    pub fn set_config(&self, config: ClusterConfig) {
        self.owner.submit(Input::Config(config));
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

    /// The kernel keeps the flags and leaves access times to us: what it has now counts from now on.
    pub fn reread_access_times(&self) {
        if let Some(mounted) = mount_table::mounted_on(&self.path) {
            self.set(client::Setting::AccessTimes(options::access_times_of(&mounted.flags())));
        }
    }

    /// Our own options in force.
    pub fn options(&self) -> Vec<String> {
        let choices = Choices { is_statfs_lazy: self.is_statfs_lazy(), ..self.choices.clone() };
        choices.shown(self.transport)
    }

    /// Makes everything durable that was done through this mount. Waits for as long as the servers answer, however slow their
    /// disks are.
    ///
    /// # Errors
    /// A target fails, or has been silent for too long (`Silence`).
    pub fn sync(&self, patience: Patience, say: &Say<'_>) -> Result<()> {
        let answer = begin(&self.owner, &self.shared, Call::SyncAll);
        let synced = self.wait_heard(&answer, patience, say)?;
        let synced = synced.with_context(|| format!("the mount {} has ended", self.path.display()))?;
        let failed = synced.err().map(io::Error::from_raw_os_error);
        failed.map_or(Ok(()), |error| Err(error).context(format!("sync of {}", self.path.display())))
    }

    /// What comes, for as long as the servers are heard; `None` when it will not come.
    ///
    /// # Errors
    /// They have been silent for too long.
    fn wait_heard<T>(
        &self,
        answer: &Receiver<T>,
        patience: Patience,
        say: &Say<'_>,
    ) -> Result<Option<T>, Silence> {
        let (start, mut watch) = (Instant::now(), Watch::new(patience));
        let mut notes_after = NOTE_INTERVAL;
        loop {
            match answer.recv_timeout(SYNC_INTERVAL) {
                Ok(answer) => return Ok(Some(answer)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let targets = self.with_client(|client| watch.given_up(client));
            if !targets.is_empty() {
                return Err(Silence { targets, mount: self.path.display().to_string() });
            }
            if start.elapsed() > notes_after {
                notes_after += NOTE_INTERVAL;
                let broken = self.with_client(|client| Watch::broken(client));
                let who = if broken.is_empty() { "the servers' disks".to_owned() } else { broken.join(" ") };
                let seconds = start.elapsed().as_secs();
                say(&format!("waiting {seconds} s for {who} to make {} durable", self.path.display()));
            }
        }
    }

    /// Makes everything durable, unmounts and, unless others keep it, waits until all is finished. Servers that have been silent for
    /// too long are not waited for: that is no error while nothing is missing there.
    ///
    /// # Errors
    /// It is in use, or servers that have not got everything are silent, and `leave` does not accept that; nothing has changed then.
    /// Or it is unmounted, and something of it is lost.
    pub fn unmount(&self, leave: Leave, patience: Patience, say: &Say<'_>) -> Result<()> {
        // Somebody else has unmounted it: what is on the path now, if anything, is not ours.
        if self.is_destroyed() {
            return self.wait_ended();
        }
        self.is_given_up.store(false, Ordering::Release);
        let device = self.device();
        let mut is_durable = true;
        match leave {
            // What hangs must be out of the way at once.
            Leave::Detach => {
                self.detach(leave, &device)?;
                if let Err(error) = self.sync(patience, say) {
                    self.is_given_up.store(error.is::<Silence>(), Ordering::Release);
                    let missing = self.with_client(|client| Unsaved::of(client));
                    let missing = missing.map(|missing| format!("; not there: {missing}"));
                    say(&format!("{error:#}; detached all the same{}", missing.unwrap_or_default()));
                }
            }
            Leave::Cut => {
                if let Err(error) = self.flush(patience, say) {
                    self.is_given_up.store(error.is::<Silence>(), Ordering::Release);
                    say(&format!("{error:#}; going on all the same"));
                    is_durable = false;
                }
                self.detach(leave, &device)?;
            }
            Leave::Unmount | Leave::Stop => {
                if leave == Leave::Stop {
                    self.check_unused(&device)?;
                }
                if let Err(error) = self.sync(patience, say) {
                    // Another unmount was faster, perhaps one whose caller was killed.
                    if self.is_destroyed() {
                        return self.wait_ended();
                    }
                    self.check_nothing_missing(error, say)?;
                    self.is_given_up.store(true, Ordering::Release);
                }
                self.detach(leave, &device)?;
            }
        }
        if self.is_kept() {
            match leave {
                Leave::Detach => return Ok(()),
                Leave::Unmount => {
                    if let Some(copies) = in_use::named(&in_use::copies(&device)) {
                        let path = self.path.display();
                        say(&format!(
                            "{path} is still mounted {copies}; its client lives until that is gone"
                        ));
                    }
                    return Ok(());
                }
                Leave::Stop | Leave::Cut => self.cut_off(leave, &device, is_durable, say),
            }
        }
        self.wait_ended()
    }

    /// After a sync that has failed: it can be done without when only servers were silent that have got everything.
    ///
    /// # Errors
    /// Something is missing there, or it was another failure.
    fn check_nothing_missing(&self, error: anyhow::Error, say: &Say<'_>) -> Result<()> {
        let silence = error.downcast::<Silence>()?;
        let path = self.path.display();
        if let Some(missing) = self.with_client(|client| Unsaved::of(client)) {
            return Err(silence).context(format!(
                "{path} stays mounted, for servers have not got everything: {missing}; unmount it when they are back, or give that up with --force"
            ));
        }
        // Nor is anything in the kernel that it would have to write first: it writes what was changed through a mapping when that ends, and
        // a mount with mappings is in use.
        say(&format!("{silence}; nothing of {path} is missing there"));
        Ok(())
    }

    /// As `sync`, and what programs have changed through mappings, of which nobody has told us.
    fn flush(&self, patience: Patience, say: &Say<'_>) -> Result<()> {
        self.sync(patience, say)?;
        match self.wait_heard(&self.write_pages(), patience, say)? {
            Some(Ok(())) => self.sync(patience, say),
            Some(Err(error)) => Err(error).with_context(|| format!("cannot flush {}", self.path.display())),
            None => bail!("what was changed through mappings of {} is not written", self.path.display()),
        }
    }

    /// Has the kernel write what programs have changed through mappings.
    fn write_pages(&self) -> Receiver<io::Result<()>> {
        let (path, (sender, written)) = (self.path.clone(), mpsc::channel());
        // On a thread of its own: it ends with the connection at the latest. Without it nothing comes, which the receiver says.
        let _ = std::thread::Builder::new().name("write-pages".into()).spawn(move || {
            let _ = sender.send(crate::sys::write_pages(&path));
        });
        written
    }

    /// Whether it is gone from its path, for whoever sees our mount namespace. (Something else may be there.)
    pub fn is_detached(&self) -> bool {
        !mount_table::is_mounted_on(&self.path, &self.device())
    }

    fn is_destroyed(&self) -> bool {
        lock(&self.shared.on_destroyed).is_none()
    }

    fn wait_ended(&self) -> Result<()> {
        if self.shared.wait_for(FINISH_TIMEOUT, |progress| progress.is_ended) {
            let lost = lock(&self.shared.progress).lost.clone();
            return match lost {
                Some(lost) => bail!("{} is unmounted, and this is lost: {lost}", self.path.display()),
                None => Ok(()),
            };
        }
        bail!("{} is unmounted, but its client does not end; see its log", self.path.display())
    }

    /// As mount tables name it; empty when the kernel does not say.
    fn device(&self) -> String {
        let connection = lock(&self.session).as_ref().and_then(Session::connection);
        // An anonymous device: 20 bits of minor number below the major one.
        connection.map_or_else(String::new, |number| format!("{}:{}", number >> 20, number & 0xF_FFFF))
    }

    /// The kernel refuses only what is in use in our own mount namespace, and mounted there.
    fn check_unused(&self, device: &str) -> Result<()> {
        let is_detached = self.is_detached();
        let users = in_use::users(device).into_iter().filter(|user| user.is_elsewhere || is_detached);
        match in_use::named(&users.collect::<Vec<_>>()) {
            Some(users) => bail!("{}", self.in_use_line(Leave::Stop, &users)),
            None => Ok(()),
        }
    }

    fn in_use_line(&self, leave: Leave, by: &str) -> String {
        let otherwise = match leave {
            Leave::Unmount => "detach it with --lazy",
            Leave::Stop | Leave::Cut | Leave::Detach => "cut it off with --force",
        };
        format!("{} is in use by {by}; close what is open in it, or {otherwise}", self.path.display())
    }

    /// Takes the mount out of our mount namespace.
    fn detach(&self, leave: Leave, device: &str) -> Result<()> {
        if self.is_detached() {
            return Ok(());
        }
        if mount_table::mounted_on(&self.path).is_some_and(|top| top.device != device) {
            bail!("something else is mounted over {}; unmount that first", self.path.display());
        }
        let is_lazy = matches!(leave, Leave::Detach | Leave::Cut);
        let start = Instant::now();
        loop {
            let unmounted = match lock(&self.session).as_mut() {
                Some(session) => session.unmount(is_lazy),
                None => return Ok(()),
            };
            match unmounted {
                Ok(()) => {
                    mount_table::forget_helper(&self.path);
                    return Ok(());
                }
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    let below = || {
                        let path = mount_table::mounted_below(&self.path)?;
                        Some(format!("a mount on {}", path.display()))
                    };
                    let by = in_use::named(&in_use::users(device)).or_else(below);
                    // A process that ends, or a path walk on its way, holds it for a moment.
                    if by.is_none() && start.elapsed() < BUSY_PATIENCE {
                        std::thread::sleep(BUSY_RETRY_INTERVAL);
                        continue;
                    }
                    let by = by.unwrap_or_else(|| "a process that cannot be looked at".to_owned());
                    bail!("{}", self.in_use_line(leave, &by))
                }
                // Somebody else was faster.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot unmount {}", self.path.display()));
                }
            }
        }
    }

    /// Whether somebody keeps the file system although it was taken out of here.
    fn is_kept(&self) -> bool {
        let start = Instant::now();
        let is_connected = || lock(&self.session).as_ref().is_some_and(Session::is_connected);
        while !self.is_destroyed() && is_connected() {
            // A path walk that was on its way holds it for a moment.
            if start.elapsed() > KEPT_AFTER {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Whoever still has it mounted or open gets ENOTCONN from now on.
    fn cut_off(&self, leave: Leave, device: &str, is_durable: bool, say: &Say<'_>) {
        let mut copies = in_use::copies(device);
        // What is below our own mount point was detached with it, and a mount of somebody else may be there by now.
        copies.retain(|copy| copy.elsewhere.is_some() || copy.path != self.path);
        let copied = in_use::named(&copies).map(|copies| format!("still mounted {copies}"));
        let users = if leave == Leave::Cut { in_use::users(device) } else { Vec::new() };
        let used = in_use::named(&users).map(|users| format!("in use by {users}"));
        let reasons: Vec<String> = copied.into_iter().chain(used).collect();
        if !reasons.is_empty() {
            let (path, reasons) = (self.path.display(), reasons.join(" and "));
            let state = if is_durable { "everything is durable, " } else { "" };
            say(&format!("{path} is {reasons}: {state}cutting it off"));
        }
        let still_connected = |session: &Session| session.abort().is_err() && session.is_connected();
        if lock(&self.session).as_ref().is_some_and(still_connected) {
            let path = self.path.display();
            say(&format!(
                "{path} cannot be cut off: mount fusectl on /sys/fs/fuse/connections, or end this process"
            ));
        }
    }

    /// After the kernel has let go: data are flushed, the sessions ended, the threads joined.
    fn finish(&self) {
        let is_given_up = self.is_given_up.load(Ordering::Acquire);
        let patience = if is_given_up { DRAIN_PATIENCE_GIVEN_UP } else { DRAIN_PATIENCE };
        self.owner.submit(Input::Drain { patience });
        if self.shared.wait_for(FINISH_TIMEOUT, |progress| progress.is_drained) {
            self.claim.forget();
        } else {
            tracing::warn!(mount = %self.path.display(), "the servers did not answer at the end of the mount");
        }
        let lost = self.with_client(|client| Unsaved::of(client));
        if let Some(lost) = &lost {
            tracing::error!(mount = %self.path.display(), "lost at the end of the mount: {lost}");
        }
        self.shared.router.remove_local(self.endpoint);
        let session = lock(&self.session).take();
        if let Some(session) = session {
            session.leave();
        }
        self.shared.set_progress(|progress| {
            progress.lost = lost;
            progress.is_ended = true;
        });
        tracing::info!(mount = %self.path.display(), "unmounted");
    }
}

/// A call of the process itself, as root.
fn call(owner: &Owner<Client>, shared: &Shared, call: Call) -> Result<Result<Answer, i32>> {
    let answer = begin(owner, shared, call).recv_timeout(FINISH_TIMEOUT);
    answer.map_err(|_| anyhow!("the servers of this mount do not answer; see `sheen status`"))
}

/// The same, without waiting for the answer.
fn begin(owner: &Owner<Client>, shared: &Shared, call: Call) -> Receiver<Result<Answer, i32>> {
    let id = shared.next_own_call.fetch_add(1, Ordering::Relaxed);
    let (sender, receiver) = mpsc::channel();
    lock(&shared.own_calls).insert(id, sender);
    owner.submit(Input::Call { id, call, caller: Caller::default() });
    receiver
}

/// The node of a directory, held for the life of the mount.
fn find_root(owner: &Owner<Client>, shared: &Shared, subdir: &str) -> Result<u64> {
    let mut node = client::ROOT_NODE;
    for name in subdir.split('/').filter(|name| !name.is_empty() && *name != ".") {
        if name == ".." {
            bail!("'..' in '{subdir}' is not possible; name the directory from the root");
        }
        let lookup = Call::Lookup { parent: node, name: name.as_bytes().to_vec() };
        let found = match call(owner, shared, lookup)? {
            Ok(Answer::Entry(entry)) => entry.attr.filter(|attr| attr.file_type == FileType::Directory),
            _ => None,
        };
        let found =
            found.with_context(|| format!("the file system has no directory '{subdir}'; make it first"))?;
        node = found.fid.inode_number();
    }
    Ok(node)
}

fn mount(path: &Path, choices: &Choices, with: &Surroundings) -> Result<(Session, fuse::Negotiated)> {
    let transport = match choices.transport {
        Transport::Auto => fuse::TransportChoice::Auto,
        Transport::Dev => fuse::TransportChoice::Device,
        Transport::Uring => {
            // Asked for by name: switch it on if we may; the mount says so if that was not enough.
            let _ = fuse::enable_uring();
            fuse::TransportChoice::Uring
        }
    };
    let options = fuse::MountOptions {
        source: with.source.replace(',', ":"),
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
                    translate::reply(reply, shape, result);
                }
            }
            Output::Notify(id, Notify::IncEpoch) => {
                let result = told(self.notifier.inc_epoch());
                self.owner().queue(Input::Notified(id, result));
            }
            Output::Notify(id, notice @ Notify::InvalEntry { .. }) => {
                // The receiver lives as long as the process.
                let _ = self.name_notices.send((id, notice));
            }
            Output::Notify(id, notice @ Notify::InvalInode { .. }) => {
                if self.inode_notices.push(id, notice) {
                    // Without one more it waits for those that there are.
                    let _ = start_inode_thread(self);
                }
            }
            Output::NeedGroups { id, pid } => {
                self.owner().queue(Input::Groups { id, groups: groups_of(pid) });
            }
            Output::NeedSignals { id, pid } => {
                self.owner().queue(Input::Signals { id, signals: signals::of(pid) });
            }
            Output::Drained => self.set_progress(|progress| progress.is_drained = true),
            Output::Event(event) => log_event(&event),
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

    fn notify(&self, notice: Notify) -> NotifyResult {
        told(match notice {
            Notify::InvalEntry { parent, name } => self.notifier.inval_entry(self.to_kernel(parent), &name),
            Notify::InvalInode { node, offset_bytes, byte_count } => {
                self.notifier.inval_inode(self.to_kernel(node), offset_bytes, byte_count)
            }
            Notify::IncEpoch => self.notifier.inc_epoch(),
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

/// A thread that hands notices to the kernel and results to the client.
fn start_notifying(
    name: &str,
    shared: &Arc<Shared>,
    notices: mpsc::Receiver<(NotifyId, Notify)>,
) -> Result<()> {
    let shared = Arc::downgrade(shared);
    std::thread::Builder::new().name(name.into()).spawn(move || {
        while let Ok((id, notice)) = notices.recv() {
            let Some(shared) = shared.upgrade() else { return };
            let result = shared.notify(notice);
            shared.owner().submit(Input::Notified(id, result));
        }
    })?;
    Ok(())
}

/// Notices about inodes, and the threads that hand them to the kernel. One of them may wait there for a page of a call
/// that is answered only when another one is done, so there are as many threads as notices, within bounds.
#[derive(Default)]
struct Notices {
    queue: Mutex<NoticeQueue>,
    is_filled: Condvar,
}

#[derive(Default)]
struct NoticeQueue {
    notices: VecDeque<(NotifyId, Notify)>,
    thread_count: usize,
    idle_count: usize,
}

impl Notices {
    /// True when there should be one more thread.
    fn push(&self, id: NotifyId, notice: Notify) -> bool {
        let mut queue = lock(&self.queue);
        queue.notices.push_back((id, notice));
        self.is_filled.notify_one();
        queue.notices.len() > queue.idle_count && queue.thread_count < NOTICE_THREAD_COUNT_MAX
    }

    /// The next notice for a thread; `None` when there are threads enough without it, or nobody needs them any more.
    fn next(&self, is_needed: impl Fn() -> bool) -> Option<(NotifyId, Notify)> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(notice) = queue.notices.pop_front() {
                return Some(notice);
            }
            queue.idle_count += 1;
            let waited = self.is_filled.wait_timeout(queue, NOTICE_THREAD_IDLE);
            let (locked, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = locked;
            queue.idle_count -= 1;
            let is_spare = timeout.timed_out() && queue.thread_count > 1;
            if queue.notices.is_empty() && (is_spare || !is_needed()) {
                queue.thread_count -= 1;
                return None;
            }
        }
    }
}

/// A thread that hands notices about inodes to the kernel, and results to the client.
fn start_inode_thread(shared: &Arc<Shared>) -> Result<()> {
    let notices = Arc::clone(&shared.inode_notices);
    let weak = Arc::downgrade(shared);
    lock(&notices.queue).thread_count += 1;
    let serving = Arc::clone(&notices);
    let started = std::thread::Builder::new().name("notify-inodes".into()).spawn(move || {
        while let Some((id, notice)) = serving.next(|| weak.strong_count() > 0) {
            let Some(shared) = weak.upgrade() else { return };
            let result = shared.notify(notice);
            shared.owner().submit(Input::Notified(id, result));
        }
    });
    if started.is_err() {
        lock(&notices.queue).thread_count -= 1;
    }
    started.map(|_| ()).map_err(Into::into)
}

fn told(result: io::Result<Notified>) -> NotifyResult {
    match result {
        Ok(Notified::Done) => NotifyResult::Ok,
        Ok(Notified::Unknown) => NotifyResult::NoEntry,
        Err(error) => {
            tracing::debug!(%error, "the kernel refused a notification");
            NotifyResult::Failed
        }
    }
}

/// Supplementary groups of a process; none when it is gone.
fn groups_of(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

fn log_event(event: &Event) {
    match event {
        Event::Connected(target) => tracing::info!(%target, "connected"),
        Event::Disconnected(target) => tracing::info!(%target, "does not answer; calls wait"),
        Event::Recovered(target) => tracing::info!(%target, "was restarted; everything was sent again"),
        Event::Evicted(target) => {
            tracing::warn!(%target, "evicted this mount; what was not yet durable there is lost");
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
            let changed = crate::sys::remount(path, &mounted.source, choices.flags);
            changed.with_context(|| format!("cannot remount {}", path.display()))?;
            crate::lctl::reread_access_times()
        }
        _ => bail!("{} is no SheenFS mount; see `sheen mounts`", path.display()),
    }
}
