//! A process: the targets that it serves, its mounts, its session with the management server, its control socket.

use crate::alive;
use crate::cli;
use crate::cluster::Identity;
use crate::control::{self, Ask, Leave, MgsStatus, MountStatus, Process, Say, TargetStatus, Tell};
use crate::daemon::{self, Ready};
use crate::failover::{self, Failover};
use crate::health;
use crate::listen;
use crate::logging;
use crate::metrics;
use crate::mount::options::{self, Choices};
use crate::mount::unsaved::{self, Patience, Silence};
use crate::mount::{Mount, Surroundings};
use crate::mount_table;
use crate::nid::{self, Source};
use crate::params;
use crate::pools;
use crate::say;
use crate::serve_file;
use crate::sys;
use crate::target_dir::{self, Label, TargetDir};
use crate::targets::{self, InEtcd, Target, Targets};
use anyhow::{Context, Result, bail};
use base::{ClientId, ClusterConfig, Endpoint, Epoch, Status, TargetConfig, TargetId, TargetKind, Time};
use client::mgc::{self, Mgc};
use net::{Helpers, Owner, OwnerOptions, Router, Timer};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use wire::{Life, MgsReply, MgsRequest};

/// How long a mount or a target waits for the management server at its start.
const CONFIG_TIMEOUT: Duration = Duration::from_secs(15);
/// A server tells its targets so often of a client that has died.
const TELL_DEPARTED_COUNT: u32 = 5;
/// How often it looks for such clients, and while a target recovers.
const DEPARTED_INTERVAL: Duration = Duration::from_secs(1);
const RECOVERING_INTERVAL: Duration = Duration::from_millis(200);
/// The longest wait between two attempts to mount is two to this power, in seconds.
const RETRY_SHIFT_MAX: u32 = 5;
/// More are hardly busy at a time: what they do for one target they do one after the other.
const HELPERS_MAX: usize = 8;
/// How long a permanent parameter waits for it.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Everything that runs in this process.
pub struct Node {
    pub router: Arc<Router>,
    pub timer: Arc<Timer>,
    /// Where targets and mounts are in one process.
    helpers: Option<Arc<Helpers>>,
    pub targets: Targets,
    /// Of a server with failover.
    failover: OnceLock<Arc<Failover>>,
    no_sync: bool,
    pub mounts: Mutex<Vec<Arc<Mount>>>,
    /// Addresses `HOST:PORT` on which it listens; none when it does not.
    addresses: Vec<String>,
    cluster_dir: Option<PathBuf>,
    mgs_addresses: Vec<String>,
    /// Where the metrics of this machine are served, if this process does.
    metrics_address: OnceLock<SocketAddr>,
    mgc: OnceLock<Arc<Owner<Mgc>>>,
    known: Mutex<Known>,
    /// What permanent parameters have been set to here, by name.
    pub applied_params: Mutex<BTreeMap<String, String>>,
    changed: Condvar,
    /// Nothing is to be told to targets any more.
    is_stopping: Mutex<bool>,
}

/// What the management server has said.
#[derive(Default)]
struct Known {
    config: Option<ClusterConfig>,
    registered: BTreeSet<TargetId>,
    refused: Option<String>,
    /// How often it has said that it does not know the file system.
    unknown_count: usize,
    /// Who waits for a change of the configuration.
    changes: BTreeMap<u64, Sender<Result<u64, Status>>>,
    last_change: u64,
    /// Who waits for an answer of another kind.
    questions: BTreeMap<u64, Sender<Result<MgsReply, Status>>>,
}

/// `sheen serve`
///
/// # Errors
/// A directory is no target, is served already or does not belong here; the port is in use.
pub fn serve(arguments: &cli::Serve) -> Result<()> {
    let arguments = &serve_file::complete(arguments)?;
    sys::hold_end_signals();
    logging::start(arguments.background.log.as_deref())?;
    run(&arguments.background, || start_serving(arguments))
}

/// `sheen mount`
///
/// # Errors
/// The source or an option is wrong, the mount point cannot be used, or the servers do not answer.
pub fn mount(arguments: &cli::Mount) -> Result<()> {
    let choices = Choices::parse(&arguments.options, arguments.transport)?;
    if choices.is_remount {
        let path = mount_table::resolve(&arguments.mount)?;
        check_unchanged(&path, &options::own_words(&arguments.options))?;
        return crate::mount::remount(&path, &choices);
    }
    let source = Source::parse(&arguments.source)?;
    let path = mount_table::resolve(&arguments.mount)?;
    mount_table::check_mount_point(&path)?;
    if arguments.foreground {
        sys::hold_end_signals();
        if options::is_from_initrd(&arguments.options) {
            // systemd's last sweep stops everybody while it looks whom to spare, and may need a page of its own program meanwhile.
            sys::go_on_when_stopped().context("the client cannot keep itself running")?;
        }
        logging::start(arguments.background.log.as_deref())?;
        return run(&arguments.background, || start_mounting(arguments, &source, &path, &choices));
    }
    let mut again: Vec<OsString> = vec!["mount".into(), arguments.source.clone().into(), path.into()];
    for options in &arguments.options {
        again.extend(["-o".into(), options.into()]);
    }
    again.extend(["--transport".into(), choices.transport.word().into(), "--foreground".into()]);
    if let Some(address) = &arguments.background.metrics {
        again.extend(["--metrics".into(), address.into()]);
    }
    let log = match &arguments.background.log {
        Some(log) => log.clone(),
        None => control::run_dir().join("log").join(format!("mount-{}.log", std::process::id())),
    };
    let name = options::is_from_initrd(&arguments.options).then_some(daemon::ROOT_SERVER_NAME);
    retry(choices.retry_count, || daemon::start_as(name, &again, &log, None)?.wait("the mount").map(drop))
}

/// A remount changes what the kernel keeps; our own options stay what they are.
fn check_unchanged(path: &Path, words: &[&str]) -> Result<()> {
    let processes = control::processes();
    let mut mounts = processes.iter().flat_map(|process| &process.mounts);
    let Some(mount) = mounts.find(|mount| mount.path == path) else { return Ok(()) };
    let in_force = |word: &str| word == "transport=auto" || mount.options.iter().any(|known| known == word);
    match words.iter().find(|word| !in_force(word)) {
        Some(word) => bail!(
            "'{word}' cannot be changed while {} is mounted; unmount it and mount it anew",
            path.display()
        ),
        None => Ok(()),
    }
}

/// Tries again what failed, after longer and longer waits: a server may not be up yet.
fn retry(count: u32, mut attempt: impl FnMut() -> Result<()>) -> Result<()> {
    for done in 0..count {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(error) => say::note(format_args!("{error:#}; trying again ({} of {count})", done + 1)),
        }
        std::thread::sleep(Duration::from_secs(1 << (done / 2).min(RETRY_SHIFT_MAX)));
    }
    attempt()
}

/// Starts, says so, and runs until somebody ends it.
fn run(background: &cli::Background, start: impl FnOnce() -> Result<Arc<Node>>) -> Result<()> {
    let held = background.held_fd.map(sys::inherited_file);
    let serve_metrics = || background.metrics.as_deref().map(metrics::start).transpose();
    let started = control::make_run_dir().and_then(|_| {
        // Before anything else: a place that is taken changes nothing.
        let address = serve_metrics()?;
        let node = start()?;
        if let Some(address) = address {
            tracing::info!(%address, "metrics are served");
            assert!(node.metrics_address.set(address).is_ok(), "a process serves metrics once");
        }
        Ok(node)
    });
    let started = started.and_then(|node| {
        let answering = Arc::clone(&node);
        Ok((control::Server::start(move |ask, say| answering.answer(ask, say))?, node))
    });
    let (_control, node) = match started {
        Ok(started) => started,
        Err(error) => {
            let line = format!("{error:#}");
            daemon::tell(background.ready_fd, &Ready { error: Some(line), address: None });
            return Err(error);
        }
    };
    // From here on others find this process by its socket.
    drop(held);
    daemon::tell(background.ready_fd, &Ready { error: None, address: Some(node.address()) });
    sys::wait_for_end();
    node.stop();
    Ok(())
}

fn start_serving(arguments: &cli::Serve) -> Result<Arc<Node>> {
    let hosts = listen::check_hosts(arguments.listen.as_deref(), arguments.insecure_network)?;
    if let Some(mount) = &arguments.mount {
        mount_table::check_mount_point(mount)?;
    }
    if arguments.failover {
        return start_failover(arguments, &hosts);
    }
    let dirs = arguments.dirs.iter().map(|dir| target_dir::open_alone(dir)).collect::<Result<Vec<_>>>()?;
    let labels: Vec<Label> = dirs.iter().map(TargetDir::label).collect();
    let fsname = check_together(&labels)?;
    let has_mgs = dirs.iter().any(|dir| dir.id == TargetId::MGT);
    let mgs_addresses = if has_mgs { Vec::new() } else { find_mgs(arguments, &labels)? };
    let (router, timer) = (Router::new(), Timer::start());
    let addresses = listen::listen(&router, &hosts, &mgs_addresses)?;
    let registrations = registrations(&labels, &addresses);
    let address = addresses.first().cloned().unwrap_or_default();
    let nid = nid::format_nid(&address);
    let shared =
        targets::Shared { router: &router, timer: &timer, nid: &nid, no_sync: arguments.no_sync_for_tests };
    sys::raise_file_limit();
    let running = start_targets(dirs, &shared)?;
    let mgs_addresses = if has_mgs { addresses.clone() } else { mgs_addresses };
    let cluster_dir = arguments.background.cluster_dir.clone();
    let no_sync = arguments.no_sync_for_tests;
    let node = Node::new(router, timer, running.into(), no_sync, addresses, cluster_dir, mgs_addresses);
    start_telling_departed(&node)?;
    if let Some(fsname) = fsname {
        let wanted: Vec<TargetId> = registrations.iter().map(|target| target.id).collect();
        node.follow_config(&fsname, registrations);
        node.wait_registered(&wanted)?;
        if let Some(path) = &arguments.mount {
            let choices = Choices { transport: arguments.transport, ..Choices::default() };
            let source = format!("{}:/{fsname}", node.mgs_nids().join(":"));
            node.add_mount(path, &choices, source, "", arguments.background.identity)?;
        }
    }
    Ok(node)
}

/// Where the management server of these targets is, which another process serves.
fn find_mgs(arguments: &cli::Serve, labels: &[Label]) -> Result<Vec<String>> {
    let known = || labels.iter().map(|label| &label.mgs).find(|mgs| !mgs.is_empty()).cloned();
    let addresses = match &arguments.mgsnode {
        Some(nids) => nid::parse_nids(nids)?,
        None => known().unwrap_or_default(),
    };
    if addresses.is_empty() {
        bail!("no management server is known for these targets; say where it is with --mgsnode NID");
    }
    Ok(addresses)
}

/// Serves the targets that nobody owns, and stands by for the others.
fn start_failover(arguments: &cli::Serve, hosts: &[String]) -> Result<Arc<Node>> {
    if arguments.coordinator.is_some() {
        failover::check_has_etcd()?;
    }
    let labels = arguments.dirs.iter().map(|dir| target_dir::peek(dir)).collect::<Result<Vec<_>>>()?;
    target_dir::check_coordinators(&labels, arguments.coordinator.is_some())?;
    let is_mgs = check_mgs_alone(&labels, arguments.coordinator.is_some())?;
    let fsname = check_together(&labels)?;
    let mgs_addresses = if is_mgs { Vec::new() } else { find_mgs(arguments, &labels)? };
    let (router, timer) = (Router::new(), Timer::start());
    let addresses = listen::listen(&router, hosts, &mgs_addresses)?;
    sys::raise_file_limit();
    let (targets, no_sync) = (Targets::new(labels.len()), arguments.no_sync_for_tests);
    let cluster_dir = arguments.background.cluster_dir.clone();
    let mgs_addresses = if is_mgs { addresses.clone() } else { mgs_addresses };
    let node = Node::new(router, timer, targets, no_sync, addresses, cluster_dir, mgs_addresses);
    start_telling_departed(&node)?;
    if let Some(fsname) = fsname {
        node.follow_config_with(&fsname, Vec::new(), Timer::start());
    }
    let (address, fence, coordinator) =
        (node.address(), arguments.fence_cmd.clone(), arguments.coordinator.as_ref());
    let failover = Failover::start(&node, labels, &address, fence, coordinator)?;
    assert!(node.failover.set(Arc::clone(&failover)).is_ok(), "a process has one failover");
    let start = Instant::now();
    while !failover.is_settled() && start.elapsed() < CONFIG_TIMEOUT {
        std::thread::sleep(RECOVERING_INTERVAL);
    }
    let refused = lock(&node.known).refused.clone();
    match refused {
        Some(refused) => bail!("{refused}"),
        None => Ok(node),
    }
}

/// Whether this is a management server for which another one stands by.
fn check_mgs_alone(labels: &[Label], has_coordinator: bool) -> Result<bool> {
    let Some(mgt) = labels.iter().find(|label| label.id == TargetId::MGT) else { return Ok(false) };
    if !has_coordinator {
        bail!(
            "{} is the management server, which keeps who owns what, and cannot be taken over itself without etcd; serve it without \
             --failover, or name a --coordinator",
            mgt.path.display()
        );
    }
    if labels.len() > 1 {
        bail!(
            "{} is the management server; with failover it is served by a process of its own",
            mgt.path.display()
        );
    }
    Ok(true)
}

fn start_mounting(
    arguments: &cli::Mount,
    source: &Source,
    path: &Path,
    choices: &Choices,
) -> Result<Arc<Node>> {
    let (router, timer) = (Router::new(), Timer::start());
    let cluster_dir = arguments.background.cluster_dir.clone();
    let node =
        Node::new(router, timer, Targets::default(), false, Vec::new(), cluster_dir, source.mgs.clone());
    node.follow_config(&source.fsname, Vec::new());
    node.wait_mountable(&source.fsname)?;
    let identity = arguments.background.identity;
    node.add_mount(path, choices, arguments.source.clone(), &source.subdir, identity)?;
    Ok(node)
}

/// Opens the stores of all targets at the same time: each waits for its disk.
fn start_targets(dirs: Vec<TargetDir>, shared: &targets::Shared<'_>) -> Result<Vec<Target>> {
    std::thread::scope(|scope| {
        let starting: Vec<_> =
            dirs.into_iter().map(|dir| scope.spawn(move || targets::start(dir, shared, None))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Target>>| {
            thread.join().unwrap_or_else(|_| bail!("a target panicked at its start"))
        };
        starting.into_iter().map(join).collect()
    })
}

/// Tells targets which clients are gone, so that nobody waits for their locks, nor a recovery for them: of this machine by the locks of
/// their processes, of others, when somebody waits for them, by their leases.
fn start_telling_departed(node: &Arc<Node>) -> Result<()> {
    let node = Arc::clone(node);
    std::thread::Builder::new().name("departed".into()).spawn(move || {
        // How often each was told of: more than once, for what is in the sockets of the dead.
        let mut told: BTreeMap<Identity, u32> = BTreeMap::new();
        loop {
            let is_stopping = lock(&node.is_stopping);
            if *is_stopping {
                return;
            }
            let is_recovering = node.targets.iter().any(|target| target.state() == "recovering");
            let gone = alive::departed();
            told.retain(|known, _| gone.contains(known));
            for departed in gone {
                let count = told.entry(departed).or_default();
                if is_recovering || *count < TELL_DEPARTED_COUNT {
                    *count += 1;
                    node.targets.iter().for_each(|target| target.on_departed(departed));
                }
            }
            node.ask_lapsed();
            drop(is_stopping);
            std::thread::sleep(if is_recovering { RECOVERING_INTERVAL } else { DEPARTED_INTERVAL });
        }
    })?;
    Ok(())
}

/// As many as can work at a time. Without them everything is done where it is asked for.
fn start_helpers(router: &Router) -> Option<Arc<Helpers>> {
    let count = std::thread::available_parallelism().map_or(1, NonZero::get);
    let started = Helpers::start(count.min(HELPERS_MAX));
    let helpers = started.inspect_err(|error| tracing::warn!(%error, "no helpers")).ok()?;
    router.set_helpers(Arc::clone(&helpers));
    Some(helpers)
}

/// Targets of one process belong to one file system, each once.
fn check_together(dirs: &[Label]) -> Result<Option<String>> {
    let mut fsname: Option<&Label> = None;
    for (at, dir) in dirs.iter().enumerate() {
        if let Some(other) = dirs.iter().take(at).find(|other| other.id == dir.id) {
            bail!(
                "{} and {} are both {}; serve one of them",
                other.path.display(),
                dir.path.display(),
                dir.id
            );
        }
        if dir.id.kind == TargetKind::Mgt {
            continue;
        }
        match fsname {
            Some(first) if first.fsname != dir.fsname => bail!(
                "{} belongs to '{}' and {} to '{}'; serve each file system in a process of its own",
                first.path.display(),
                first.fsname,
                dir.path.display(),
                dir.fsname
            ),
            _ => fsname = Some(dir),
        }
    }
    Ok(fsname.map(|dir| dir.fsname.clone()))
}

fn registrations(dirs: &[Label], addresses: &[String]) -> Vec<TargetConfig> {
    let served = dirs.iter().filter(|dir| dir.id.kind != TargetKind::Mgt);
    served
        .map(|dir| TargetConfig { id: dir.id, uuid: dir.uuid, nids: addresses.to_vec(), is_active: true })
        .collect()
}

impl Node {
    fn new(
        router: Arc<Router>,
        timer: Arc<Timer>,
        targets: Targets,
        no_sync: bool,
        addresses: Vec<String>,
        cluster_dir: Option<PathBuf>,
        mgs_addresses: Vec<String>,
    ) -> Arc<Node> {
        router.set_addresses(TargetId::MGT, mgs_addresses.clone());
        let helpers = if targets.is_empty() { None } else { start_helpers(&router) };
        let node = Arc::new(Node {
            router,
            timer,
            helpers,
            targets,
            failover: OnceLock::new(),
            no_sync,
            mounts: Mutex::default(),
            addresses,
            cluster_dir,
            mgs_addresses,
            metrics_address: OnceLock::new(),
            mgc: OnceLock::new(),
            known: Mutex::default(),
            applied_params: Mutex::default(),
            changed: Condvar::new(),
            is_stopping: Mutex::default(),
        });
        let told = Arc::downgrade(&node);
        node.router.on_lost(move |lost| {
            let Some(node) = told.upgrade() else { return };
            for target in node.targets.iter() {
                target.on_connection_lost(lost);
            }
            let mounts = lock(&node.mounts).clone();
            for mount in mounts {
                mount.on_connection_lost(lost);
            }
            if let Some(owner) = node.mgc.get().filter(|_| lost == TargetId::MGT) {
                owner.submit(mgc::Input::ConnectionLost);
            }
        });
        node
    }

    /// Asks the management server about clients that targets wait for and have not heard. It answers with those that are gone.
    fn ask_lapsed(&self) {
        let Some(mgc) = self.mgc.get() else { return };
        let unheard: BTreeSet<Life> = self.targets.iter().flat_map(Target::unheard).collect();
        if unheard.is_empty() {
            return;
        }
        // Who lives on this machine is not given up for want of a processor.
        let here: BTreeSet<Life> = alive::living().into_iter().map(Identity::life).collect();
        let unheard: Vec<Life> = unheard.difference(&here).copied().collect();
        mgc.submit(mgc::Input::AskLapsed(unheard));
    }

    /// The leases that this process keeps are those of its mounts.
    fn keep_leases(&self) {
        let lives = lock(&self.mounts).iter().map(|mount| mount.life()).collect();
        if let Some(mgc) = self.mgc.get() {
            mgc.submit(mgc::Input::Keep(lives));
        }
    }

    fn on_renewed(&self, at: Time) {
        let mounts = lock(&self.mounts).clone();
        for mount in mounts {
            mount.on_lease(at);
        }
    }

    fn on_lapsed(&self, at: Time, lives: &[Life]) {
        for target in self.targets.iter() {
            lives.iter().for_each(|life| target.on_lapsed(at, *life));
        }
    }

    /// The addresses of a target are known from here on: whoever waits for it may come.
    fn announce(&self, registered: TargetId) {
        let target = self.targets.iter().find(|target| target.id == registered);
        if let (Some(target), Some(mgc)) = (target, self.mgc.get()) {
            mgc.submit(mgc::Input::Announce(target.id, target.epoch));
        }
    }

    fn on_target_started(&self, started: TargetId, epoch: Epoch) {
        for target in self.targets.iter() {
            target.on_target_started(started, epoch);
        }
        let mounts = lock(&self.mounts).clone();
        for mount in mounts {
            mount.on_target_started(started, epoch);
        }
    }

    fn mgs_nids(&self) -> Vec<String> {
        self.mgs_addresses.iter().map(|address| nid::format_nid(address)).collect()
    }

    /// Opens the session with the management server.
    fn follow_config(self: &Arc<Node>, fsname: &str, registrations: Vec<TargetConfig>) {
        self.follow_config_with(fsname, registrations, Arc::clone(&self.timer));
    }

    /// With a timer of its own, the session goes on while targets stand still in their writes.
    fn follow_config_with(
        self: &Arc<Node>,
        fsname: &str,
        registrations: Vec<TargetConfig>,
        timer: Arc<Timer>,
    ) {
        let id = ClientId(net::clock::random_u128());
        let machine = Mgc::new(id, fsname, &self.own_nid(), registrations);
        let node = Arc::clone(self);
        let owner = Owner::new(
            machine,
            OwnerOptions {
                tick: || mgc::Input::Tick,
                frame: mgc::Input::Frame,
                perform: Box::new(move |output| node.on_config_output(output)),
                timer,
            },
        );
        self.router.add_local(Endpoint::Client(id), owner.clone());
        assert!(self.mgc.set(Arc::clone(&owner)).is_ok(), "one session with the management server");
        owner.submit(mgc::Input::Start);
    }

    /// What operators see of this process on servers.
    fn own_nid(&self) -> String {
        self.addresses.first().map_or_else(|| "0@lo".to_owned(), |address| nid::format_nid(address))
    }

    fn address(&self) -> String {
        self.addresses.first().cloned().unwrap_or_default()
    }

    fn on_config_output(&self, output: mgc::Output) {
        use mgc::Output;
        match output {
            Output::Send(frame) => self.router.send(frame),
            Output::Config(config) => self.on_config(config),
            Output::Registered(target) => {
                tracing::info!(%target, "registered");
                self.announce(target);
                lock(&self.known).registered.insert(target);
            }
            Output::Refused { target, status } => {
                let text = format!(
                    "the management server does not take {target}: {status}; is another target registered under this index?"
                );
                tracing::error!("{text}");
                lock(&self.known).refused = Some(text);
            }
            Output::UnknownFilesystem => {
                lock(&self.known).unknown_count += 1;
                // At one of several addresses may be somebody else by now.
                if self.mgs_addresses.len() > 1 {
                    self.router.drop_connection(TargetId::MGT);
                }
            }
            Output::Changed { id, result } => {
                if let Some(waiting) = lock(&self.known).changes.remove(&id) {
                    // Who gave up waiting does not mind.
                    let _ = waiting.send(result);
                }
            }
            Output::Answered { id, result } => {
                if let Some(waiting) = lock(&self.known).questions.remove(&id) {
                    // Who gave up waiting does not mind.
                    let _ = waiting.send(result);
                }
                return;
            }
            Output::Renewed(at) => return self.on_renewed(at),
            Output::Unheard => return self.router.drop_connection(TargetId::MGT),
            Output::Lapsed { at, lives } => return self.on_lapsed(at, &lives),
            Output::Started(target, epoch) => return self.on_target_started(target, epoch),
        }
        self.changed.notify_all();
    }

    fn on_config(&self, config: ClusterConfig) {
        tracing::debug!(version = config.version, targets = config.targets.len(), "a new configuration");
        self.router.set_config(&config);
        for target in self.targets.iter() {
            target.set_config(&config);
        }
        for mount in lock(&self.mounts).iter() {
            mount.set_config(config.clone());
        }
        let mut known = lock(&self.known);
        known.unknown_count = 0;
        let params = config.params.clone();
        known.config = Some(config);
        drop(known);
        // Also for targets that a mount knows only now.
        params::apply(self, &params);
    }

    /// Waits until the management server has taken the targets of this process. When it does not answer, they go on
    /// trying while they are served.
    fn wait_registered(&self, wanted: &[TargetId]) -> Result<()> {
        let is_done = |known: &Known| {
            known.refused.is_some()
                || (known.config.is_some() && wanted.iter().all(|id| known.registered.contains(id)))
        };
        let known = self.wait(CONFIG_TIMEOUT, is_done);
        if let Some(refused) = &known.refused {
            bail!("{refused}");
        }
        if !is_done(&known) {
            tracing::warn!("the management server at {} does not answer yet", self.mgs_nids().join(":"));
        }
        Ok(())
    }

    /// Waits until the file system is known, with a first metadata and object target.
    fn wait_mountable(&self, fsname: &str) -> Result<()> {
        let has = |known: &Known, kind| {
            known.config.as_ref().is_some_and(|config| config.of_kind(kind).next().is_some())
        };
        let is_unknown = |known: &Known| known.unknown_count >= self.mgs_addresses.len().max(1);
        let is_done =
            |known: &Known| is_unknown(known) || (has(known, TargetKind::Mdt) && has(known, TargetKind::Ost));
        let known = self.wait(CONFIG_TIMEOUT, is_done);
        let mgs = self.mgs_nids().join(":");
        if is_unknown(&known) || known.config.as_ref().is_some_and(|config| config.targets.is_empty()) {
            bail!("the management server at {mgs} knows no file system '{fsname}'; check the name");
        }
        if known.config.is_none() {
            bail!("the management server at {mgs} does not answer; is it running?");
        }
        if !is_done(&known) {
            bail!("'{fsname}' has no metadata or no object target yet; start them: sheen serve DIR");
        }
        Ok(())
    }

    fn wait(&self, limit: Duration, is_done: impl Fn(&Known) -> bool) -> MutexGuard<'_, Known> {
        let known = lock(&self.known);
        let waited = self.changed.wait_timeout_while(known, limit, |known| !is_done(known));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn add_mount(
        self: &Arc<Node>,
        path: &Path,
        choices: &Choices,
        source: String,
        subdir: &str,
        identity: Option<Identity>,
    ) -> Result<()> {
        let config = lock(&self.known).config.clone().context("the file system is not known yet")?;
        let node = Arc::clone(self);
        let with = Surroundings {
            router: Arc::clone(&self.router),
            timer: Arc::clone(&self.timer),
            config,
            nid: self.own_nid(),
            source,
            subdir: subdir.to_owned(),
            identity,
            on_end: Box::new(move |path| node.on_mount_end(path)),
        };
        let mount = Mount::start(path, choices, with)?;
        tracing::info!(mount = %path.display(), transport = mount.transport, "mounted");
        lock(&self.mounts).push(mount);
        self.keep_leases();
        let params = lock(&self.known).config.as_ref().map(|config| config.params.clone());
        params::apply(self, &params.unwrap_or_default());
        Ok(())
    }

    /// A process that only mounts ends with its mount.
    fn on_mount_end(&self, path: &Path) {
        lock(&self.mounts).retain(|mount| mount.path != path);
        self.keep_leases();
        if lock(&self.mounts).is_empty() && self.targets.is_empty() {
            sys::end_myself();
        }
    }

    fn answer(&self, ask: Ask, say: &Say<'_>) -> Tell {
        let result = match ask {
            Ask::Status => return Tell { process: Some(self.describe()), ..Tell::default() },
            Ask::Metrics => {
                return match metrics::of_node(self, &self.describe_targets()) {
                    Ok(metrics) => Tell { metrics, ..Tell::default() },
                    Err(error) => Tell::error(format!("{error:#}")),
                };
            }
            Ask::Stop { leave } => self.unmount_all(leave, unsaved::STOPPING, say).map(|()| {
                sys::end_myself();
                Vec::new()
            }),
            // One that is not there any more was unmounted in the meantime, by an unmount whose caller was killed, say.
            Ask::Unmount { mount, leave, is_with_cluster } => {
                let patience = if is_with_cluster { unsaved::STOPPING } else { unsaved::LEAVING };
                let found = self.find_mount(&mount);
                found.map_or(Ok(()), |mount| mount.unmount(leave, patience, say)).map(|()| Vec::new())
            }
            Ask::Probe { mount } => {
                let probes = self.find_mount(&mount).map(|mount| mount.probe());
                return match probes {
                    Some(Ok(probes)) => Tell { health: health::of_probes(probes), ..Tell::default() },
                    Some(Err(error)) => Tell::error(format!("{error:#}")),
                    None => {
                        Tell::error(format!("{} is not mounted by this process any more", mount.display()))
                    }
                };
            }
            Ask::GetParam { pattern } => Ok(params::get(self, &pattern)),
            Ask::ListParam { pattern, is_recursive } => Ok(params::list(self, &pattern, is_recursive)),
            Ask::SetParam { pattern, value, is_permanent, is_deleted } => match (is_permanent, is_deleted) {
                (false, _) => params::set(self, &pattern, &value),
                (true, true) => self.set_permanent(&pattern, None),
                (true, false) => params::check(&pattern, &value, true)
                    .and_then(|()| self.set_permanent(&pattern, Some(value))),
            },
            Ask::AbortRecovery { target } => Ok(self.abort_recovery(&target)),
            Ask::Failover { target } => {
                let confirmed = self.failover.get().and_then(|failover| failover.confirm(&target));
                confirmed.transpose().map(|done| done.into_iter().map(|name| (name, String::new())).collect())
            }
            Ask::ListPools => return Tell { pools: pools::of(self), ..Tell::default() },
            Ask::ChangePool { name, action } => pools::change(self, &name, action).map(|()| Vec::new()),
        };
        match result {
            Ok(params) => Tell { params, ..Tell::default() },
            Err(error) => Tell::error(format!("{error:#}")),
        }
    }

    /// Of the configuration, when one has come.
    pub fn config<T>(&self, of: impl FnOnce(&ClusterConfig) -> T) -> Option<T> {
        lock(&self.known).config.as_ref().map(of)
    }

    /// 0 while none has come.
    fn config_version(&self) -> u64 {
        self.config(|config| config.version).unwrap_or(0)
    }

    /// Those that stand by too.
    fn describe_targets(&self) -> Vec<TargetStatus> {
        let failover = self.failover.get();
        let standbys = failover.map(|failover| failover.standbys(&self.own_nid())).unwrap_or_default();
        let targets = self.targets.iter().map(|target| TargetStatus {
            name: target.id.to_string(),
            fsname: target.fsname.clone(),
            dir: target.path.clone(),
            nid: self.own_nid(),
            state: target.state().to_owned(),
            pid: 0,
            recovery: target.recovery(),
            owner: failover.and_then(|failover| failover.owner(target.id)),
            alert: None,
        });
        targets.chain(standbys).collect()
    }

    fn describe(&self) -> Process {
        let mounts = lock(&self.mounts);
        let mounts = mounts.iter().map(|mount| MountStatus {
            path: mount.path.clone(),
            fsname: mount.fsname.clone(),
            source: mount.source.clone(),
            mgs_nids: self.mgs_nids(),
            transport: mount.transport.to_owned(),
            is_detached: mount.is_detached(),
            options: mount.options(),
            pid: 0,
        });
        Process {
            pid: std::process::id(),
            cluster_dir: self.cluster_dir.clone(),
            targets: self.describe_targets(),
            mounts: mounts.collect(),
            config_version: self.mgc.get().map(|_| self.config_version()),
            mgs: self.mgc.get().map(|mgc| MgsStatus {
                nids: self.mgs_nids(),
                is_heard: mgc.with(|mgc| mgc.is_heard(net::clock::now())),
            }),
            metrics: self.metrics_address.get().map(ToString::to_string),
        }
    }

    /// The target, if it is here, and what has happened to its recovery.
    fn abort_recovery(&self, name: &str) -> Vec<(String, String)> {
        let is_meant =
            |target: &&Target| params::target_name(target) == name || target.id.to_string() == name;
        let abort = |target: &Target| {
            let given_up = target.recovery().map_or(0, |recovery| recovery.missing.len());
            target.abort_recovery();
            (params::target_name(target), given_up.to_string())
        };
        self.targets.iter().filter(is_meant).map(abort).collect()
    }

    fn find_mount(&self, path: &Path) -> Option<Arc<Mount>> {
        lock(&self.mounts).iter().find(|mount| mount.path == path).cloned()
    }

    /// Stores a parameter on the management server. Every process of the file system does it: to the same end.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn set_permanent(&self, path: &str, value: Option<String>) -> Result<Vec<(String, String)>> {
        if self.mgc.get().is_none() {
            return Ok(Vec::new());
        }
        if value.is_none() {
            self.check_is_permanent(path)?;
        }
        let shown = value.clone().unwrap_or_default();
        let path = path.to_owned();
        match self.change_config(|fsname| MgsRequest::SetParam { fsname, path: path.clone(), value })? {
            Ok(()) => Ok(vec![(path, shown)]),
            Err(status) => bail!("the management server refuses '{path}': {status}"),
        }
    }

    /// Returns when this process works with the new configuration, so that whoever asks it next finds the change.
    ///
    /// # Errors
    /// The management server does not answer, or has not been heard yet.
    pub fn change_config(
        &self,
        make_request: impl FnOnce(String) -> MgsRequest,
    ) -> Result<Result<(), Status>> {
        let fsname = self.config(|config| config.fsname.clone());
        let (Some(owner), Some(fsname)) = (self.mgc.get(), fsname) else {
            bail!("the management server has not been heard yet; see `sheen status`")
        };
        let (sender, receiver) = mpsc::channel();
        let id = {
            let mut known = lock(&self.known);
            known.last_change += 1;
            let id = known.last_change;
            known.changes.insert(id, sender);
            id
        };
        owner.submit(mgc::Input::Change { id, request: make_request(fsname) });
        let Ok(result) = receiver.recv_timeout(CHANGE_TIMEOUT) else {
            bail!("the management server does not answer; see `sheen status`")
        };
        Ok(result.map(|version| {
            let is_known =
                |known: &Known| known.config.as_ref().is_some_and(|config| config.version >= version);
            drop(self.wait(CHANGE_TIMEOUT, is_known));
        }))
    }

    /// Asks the management server.
    ///
    /// # Errors
    /// It does not answer in this time. What was to be modified may be modified later.
    pub fn ask_mgs(
        &self,
        request: MgsRequest,
        is_modifying: bool,
        limit: Duration,
    ) -> Result<Result<MgsReply, Status>> {
        let Some(owner) = self.mgc.get() else { bail!("there is no session with the management server") };
        let (sender, receiver) = mpsc::channel();
        let id = {
            let mut known = lock(&self.known);
            known.last_change += 1;
            let id = known.last_change;
            known.questions.insert(id, sender);
            id
        };
        owner.submit(mgc::Input::Ask { id, request, is_modifying });
        if let Ok(result) = receiver.recv_timeout(limit) {
            return Ok(result);
        }
        lock(&self.known).questions.remove(&id);
        if !is_modifying {
            owner.submit(mgc::Input::Withdraw(id));
        }
        bail!("the management server at {} does not answer", self.mgs_nids().join(":"))
    }

    /// Opens a target that this process owns now, and tells everybody that it is here. `in_etcd`: of a management server, where its rows
    /// are.
    ///
    /// # Errors
    /// As `targets::start`; this process ends.
    pub fn serve_one_more(&self, index: usize, dir: TargetDir, in_etcd: Option<InEtcd>) -> Result<()> {
        let registrations = registrations(&[dir.label()], &self.addresses);
        let nid = self.own_nid();
        let shared =
            targets::Shared { router: &self.router, timer: &self.timer, nid: &nid, no_sync: self.no_sync };
        let target = targets::start(dir, &shared, in_etcd)?;
        let is_stopping = lock(&self.is_stopping);
        if *is_stopping {
            target.leave();
            target.close();
            bail!("this process ends");
        }
        if let Some(config) = self.config(ClusterConfig::clone) {
            target.set_config(&config);
        }
        self.targets.fill(index, target);
        drop(is_stopping);
        if let Some(mgc) = self.mgc.get() {
            registrations.into_iter().for_each(|target| mgc.submit(mgc::Input::Register(target)));
        }
        params::apply(self, &self.config(|config| config.params.clone()).unwrap_or_default());
        Ok(())
    }

    /// # Errors
    /// Nothing of this name is set for good.
    fn check_is_permanent(&self, path: &str) -> Result<()> {
        let params = self.config(|config| config.params.clone()).unwrap_or_default();
        if params.iter().any(|(known, _)| known == path) {
            return Ok(());
        }
        let known: Vec<String> = params.into_iter().map(|(known, _)| known).collect();
        match known.as_slice() {
            [] => bail!("no parameter is permanent; there is nothing to take out"),
            known => bail!("'{path}' is not permanent; these are: {}", known.join(", ")),
        }
    }

    /// Asks the same management server over a session of its own.
    pub fn apart(&self, fsname: &str) -> Arc<Node> {
        let (router, timer, targets) = (Router::new(), Timer::start(), Targets::default());
        let node = Node::new(router, timer, targets, false, Vec::new(), None, self.mgs_addresses.clone());
        node.follow_config(fsname, Vec::new());
        node
    }

    fn unmount_all(&self, leave: Leave, patience: Patience, say: &Say<'_>) -> Result<()> {
        let mounts = lock(&self.mounts).clone();
        mounts.iter().try_for_each(|mount| mount.unmount(leave, patience, say))
    }

    /// Ends everything: mounts first, for they need the servers.
    fn stop(&self) {
        let say = |note: &str| tracing::info!("{note}");
        if let Err(error) = self.unmount_all(Leave::Stop, unsaved::LEAVING, &say) {
            tracing::info!("{error:#}");
            // Whoever is gone was waited for. Somebody who uses the mount is no reason to hurry.
            let patience = if error.is::<Silence>() { unsaved::NONE } else { unsaved::LEAVING };
            if let Err(error) = self.unmount_all(Leave::Cut, patience, &say) {
                tracing::warn!("{error:#}");
            }
        }
        if let Some(owner) = self.mgc.get() {
            owner.submit(mgc::Input::Disconnect);
        }
        *lock(&self.is_stopping) = true;
        // No machine looks into a store that is closed, because its time has come or somebody asks: who asked last hears nothing more
        // from here, and asks again.
        self.targets.iter().for_each(Target::leave);
        self.timer.stop();
        if let Some(helpers) = &self.helpers {
            helpers.stop();
        }
        self.router.close();
        for target in self.targets.iter().rev() {
            target.close();
        }
        if let Some(failover) = self.failover.get() {
            failover.leave();
        }
        tracing::info!("stopped");
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
