//! `sheen serve` and `sheen mount`: how a process begins, and what it does until it ends.

use super::management::{CONFIG_TIMEOUT, Ended, Reminder};
use super::{Node, lock, registration};
use crate::cluster::Identity;
use crate::daemon::{self, Ready};
use crate::failover::{self, Failover};
use crate::mount::Awaited;
use crate::mount::options::{self, Choices};
use crate::nid::{self, Source};
use crate::served::Record;
use crate::target_dir::{self, Label, TargetDir};
use crate::targets::{self, Refused, Target, Targets};
use crate::{alive, cli, control, listen, logging, metrics, mount_table, others, say, serve_file, sys};
use anyhow::{Context, Result, bail};
use base::{TargetId, TargetKind};
use client::mgc::Registration;
use net::{Helpers, Router, Timer};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A server tells its targets so often of a client that has died.
const TELL_DEPARTED_COUNT: u32 = 5;
/// How often it looks for such clients, and while a target recovers.
const DEPARTED_INTERVAL: Duration = Duration::from_secs(1);
const RECOVERING_INTERVAL: Duration = Duration::from_millis(200);
/// How long an attempt to mount waits, for the management server, the MDT of the root and all MDTs on the way to a SUBDIR together.
const ATTEMPT_LIMIT: Duration = CONFIG_TIMEOUT;
/// The longest wait between two attempts to mount is two to this power, in seconds.
const RETRY_SHIFT_MAX: u32 = 5;
/// How the name of a log begins for which nobody has named a place.
const UNNAMED_LOG: &str = "mount-";
/// More are hardly busy at a time: what they do for one target they do one after the other.
const HELPERS_MAX: usize = 8;

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
    let options =
        if arguments.sloppy { options::known_of(&arguments.options) } else { arguments.options.clone() };
    let choices = Choices::parse(&options, arguments.transport)?;
    if choices.is_remount {
        let path = mount_table::resolve(&arguments.mount)?;
        check_unchanged(&path, &options::own_words(&options))?;
        return if arguments.fake { Ok(()) } else { crate::mount::remount(&path, &choices) };
    }
    let source = Source::parse(&arguments.source)?;
    if arguments.fake {
        return Ok(());
    }
    let path = mount_table::resolve(&arguments.mount)?;
    mount_table::check_mount_point(&path)?;
    if arguments.foreground {
        sys::hold_end_signals();
        if arguments.background.ready_fd.is_some() {
            sys::outlive_stops_of_terminal();
        }
        let is_of_root = options::is_from_initrd(&options);
        let is_above_pressure = is_of_root.then(sys::stand_above_memory_pressure);
        if is_of_root {
            // systemd's last sweep stops everybody while it looks whom to spare, and may need a page of its own program meanwhile.
            sys::go_on_when_stopped().context("the client cannot keep itself running")?;
        }
        logging::start(arguments.background.log.as_deref())?;
        if let Some(Err(error)) = is_above_pressure {
            tracing::info!(%error, "a machine that is short of memory may wait for this client, or kill it");
        }
        run(&arguments.background, || start_mounting(arguments, &source, &path, &choices))?;
        if arguments.background.log.as_deref().is_some_and(is_unnamed_log) {
            logging::forget_quiet();
        }
        return Ok(());
    }
    let mut again: Vec<OsString> = vec!["mount".into(), arguments.source.clone().into(), path.into()];
    let is_from_initrd = options::is_from_initrd(&options);
    for words in options {
        again.extend(["-o".into(), words.into()]);
    }
    again.extend(["--transport".into(), choices.transport.word().into(), "--foreground".into()]);
    if let Some(address) = &arguments.background.metrics {
        again.extend(["--metrics".into(), address.into()]);
    }
    let log = match &arguments.background.log {
        Some(log) => log.clone(),
        None => control::make_log_dir()?.join(format!("{UNNAMED_LOG}{}.log", std::process::id())),
    };
    let name = is_from_initrd.then_some(daemon::ROOT_SERVER_NAME);
    retry(choices.retry_count, || daemon::start_mount(name, &again, &log)?.wait("the mount").map(drop))
}

/// Whether nobody has named the place of this log: there is one for each mount that there has ever been, in memory mostly.
fn is_unnamed_log(log: &Path) -> bool {
    let name = log.file_name().unwrap_or_default();
    log.parent() == Some(&control::run_dir().join("log")) && name.to_string_lossy().starts_with(UNNAMED_LOG)
}

/// A remount changes what the kernel keeps; our own options stay what they are.
fn check_unchanged(path: &Path, words: &[&str]) -> Result<()> {
    let Some(mounted) = mount_table::mounted_on(path) else { return Ok(()) };
    let processes = control::processes();
    let mut mounts = processes.iter().flat_map(|process| &process.mounts);
    let Some(mount) = mounts.find(|mount| mount.is(&mounted)) else { return Ok(()) };
    match words.iter().find(|word| !mount.is_in_force(word)) {
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

/// What is left to do of a start when a process can be asked how it does: what needs other processes.
type Rest<'a> = Box<dyn FnOnce(&Arc<Node>) -> Result<()> + 'a>;

/// Starts, says so, and runs until somebody ends it, also while it still starts.
fn run<'a>(
    background: &cli::Background,
    start: impl FnOnce() -> Result<(Arc<Node>, Rest<'a>)>,
) -> Result<()> {
    let held = background.held_fd.map(sys::inherited_file);
    let serve_metrics = || background.metrics.as_deref().map(metrics::start).transpose();
    let started = control::make_run_dir().and_then(|_| {
        // Before anything else: a place that is taken changes nothing.
        let address = serve_metrics()?;
        let (node, rest) = start()?;
        if let Some(address) = address {
            tracing::info!(%address, "metrics are served");
            assert!(node.metrics_address.set(address).is_ok(), "a process serves metrics once");
        }
        let answering = Arc::clone(&node);
        let control = control::Server::start(move |ask, tell| answering.answer(ask, tell))?;
        match rest(&node) {
            Err(error) if error.is::<Ended>() => Ok((control, node, Some(error))),
            Err(error) => {
                // A target that could not be served says nothing to others: a copy of one would speak for it.
                if node.targets.is_empty() {
                    node.stop();
                }
                Err(error)
            }
            Ok(()) => Ok((control, node, None)),
        }
    });
    let tell_error = |error: &anyhow::Error| {
        let line = format!("{error:#}");
        daemon::tell(background.ready_fd, &Ready { error: Some(line), ..Ready::default() });
    };
    let (_control, node) = match started {
        Ok((control, node, None)) => (control, node),
        Ok((_control, node, Some(ended))) => {
            tell_error(&ended);
            node.stop();
            return Ok(());
        }
        Err(error) => {
            tell_error(&error);
            return Err(error);
        }
    };
    // From here on others find this process by its socket.
    drop(held);
    daemon::tell(
        background.ready_fd,
        &Ready { error: None, address: Some(node.address()), refused: node.refusals() },
    );
    let record = node.record();
    sys::wait_for_end();
    node.stop();
    record.into_iter().for_each(Record::forget);
    Ok(())
}

fn start_serving(arguments: &cli::Serve) -> Result<(Arc<Node>, Rest<'_>)> {
    let hosts = listen::check_hosts(arguments.listen.as_deref(), arguments.insecure_network)?;
    if let Some(mount) = &arguments.mount {
        mount_table::check_mount_point(mount)?;
    }
    arguments.dirs.iter().try_for_each(|dir| others::check_server(dir))?;
    if arguments.failover {
        return start_failover(arguments, &hosts);
    }
    let is_of_cluster = arguments.background.cluster_dir.is_some();
    let open = |path: &Path| {
        // A directory that was named by hand may be a wrong one.
        if is_of_cluster {
            target_dir::check_there(path)?;
        }
        target_dir::open_alone(path)
    };
    let (dirs, damaged) = read_all(&arguments.dirs, open, |dir| dir.id)?;
    let labels: Vec<Label> = dirs.iter().map(TargetDir::label).collect();
    let fsname = check_together(&labels)?;
    let has_mgs = dirs.iter().any(|dir| dir.id == TargetId::MGT);
    let mgs_addresses = if has_mgs { Vec::new() } else { find_mgs(arguments, &labels, &damaged)? };
    listen::check_reachable(arguments.listen.as_deref(), &mgs_addresses)?;
    let (router, timer) = (Router::new(), Timer::start());
    let addresses = listen::listen(&router, &hosts, &mgs_addresses)?;
    if let Some((_, error)) =
        damaged.first().filter(|_| mgs_addresses.iter().any(|mgs| addresses.contains(mgs)))
    {
        // Nobody else is at this address, and without the management server nobody finds the others.
        bail!("{error:#}; it should be the management server's, which has the address of this process");
    }
    let address = addresses.first().cloned().unwrap_or_default();
    let nid = nid::format_nid(&address);
    let shared =
        targets::Shared { router: &router, timer: &timer, nid: &nid, no_sync: arguments.no_sync_for_tests };
    let running = start_targets(dirs, &shared, refuse(damaged, fsname.as_deref()))?;
    let of_mgs = |target: &&Target| target.id != TargetId::MGT;
    let registrations: Vec<Registration> =
        running.iter().filter(of_mgs).map(|target| registration(target, &addresses, false)).collect();
    let mgs_addresses = if has_mgs { addresses.clone() } else { mgs_addresses };
    let cluster_dir = arguments.background.cluster_dir.clone();
    let no_sync = arguments.no_sync_for_tests;
    let node = Node::new(router, timer, running, no_sync, addresses, cluster_dir, mgs_addresses);
    start_telling_departed(&node)?;
    if let Some(fsname) = fsname {
        let wanted: Vec<TargetId> = registrations.iter().map(|registration| registration.target.id).collect();
        node.start_applying()?;
        node.follow_config(&fsname, registrations);
        node.targets.iter().for_each(Target::await_word);
        let rest = move |node: &Arc<Node>| {
            node.wait_registered(&wanted)?;
            let Some(path) = &arguments.mount else { return Ok(()) };
            let choices = Choices { transport: arguments.transport, ..Choices::default() };
            let source = format!("{}:/{fsname}", node.mgs_nids().join(":"));
            // What is served here is not to end because another one is not there yet.
            node.add_mount(path, &choices, source, None, arguments.background.identity)
        };
        return Ok((node, Box::new(rest)));
    }
    Ok((node, Box::new(|_| Ok(()))))
}

/// A directory of which what it says is damaged, and how.
type Damaged = (PathBuf, anyhow::Error);

/// Reads what the directories say. One that is damaged keeps no other from being served.
///
/// # Errors
/// Anything else that is wrong; what is damaged, if no other target but the management server is left.
fn read_all<T>(
    dirs: &[PathBuf],
    read: impl Fn(&Path) -> Result<T>,
    id: impl Fn(&T) -> TargetId,
) -> Result<(Vec<T>, Vec<Damaged>)> {
    let (mut sound, mut damaged) = (Vec::new(), Vec::new());
    for dir in dirs {
        match read(dir) {
            Ok(read) => sound.push(read),
            Err(error) if target_dir::is_damage(&error) => damaged.push((dir.clone(), error)),
            Err(error) => return Err(error),
        }
    }
    match damaged.pop() {
        Some((_, error)) if sound.iter().all(|read| id(read) == TargetId::MGT) => Err(error),
        last => {
            damaged.extend(last);
            Ok((sound, damaged))
        }
    }
}

/// Says so. Which target it is only its directory's name tells, if that does.
fn refuse(damaged: Vec<Damaged>, fsname: Option<&str>) -> Vec<Refused> {
    let refuse = |(path, error): Damaged| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = target_dir::id_by_name(&path).map_or(name, |id| id.to_string());
        refused(name, fsname.unwrap_or_default().to_owned(), path, &error)
    };
    damaged.into_iter().map(refuse).collect()
}

fn refused(name: String, fsname: String, path: PathBuf, error: &anyhow::Error) -> Refused {
    let why = crate::one_line(&format!("{error:#}"));
    tracing::error!(target = %name, "{why}: the other targets of this process are served");
    Refused { name, fsname, path, why }
}

/// Where the management server of these targets is, which another process serves.
fn find_mgs(arguments: &cli::Serve, labels: &[Label], damaged: &[Damaged]) -> Result<Vec<String>> {
    let known = || labels.iter().map(|label| &label.mgs).find(|mgs| !mgs.is_empty()).cloned();
    let addresses = match &arguments.mgsnode {
        Some(nids) => nid::parse_nids(nids)?,
        None => known().unwrap_or_default(),
    };
    if let Some((_, error)) = damaged.first().filter(|_| addresses.is_empty()) {
        // It may be the management server's.
        bail!("{error:#}");
    }
    if addresses.is_empty() {
        bail!("no management server is known for these targets; say where it is with --mgsnode NID");
    }
    Ok(addresses)
}

/// Serves the targets that nobody owns, and stands by for the others.
fn start_failover<'a>(arguments: &cli::Serve, hosts: &[String]) -> Result<(Arc<Node>, Rest<'a>)> {
    if arguments.coordinator.is_some() {
        failover::check_has_etcd()?;
    }
    let (labels, damaged) = read_all(&arguments.dirs, target_dir::peek, |label| label.id)?;
    target_dir::check_coordinators(&labels, arguments.coordinator.is_some())?;
    let is_mgs = check_mgs_alone(&labels, arguments.coordinator.is_some())?;
    let fsname = check_together(&labels)?;
    let mgs_addresses = if is_mgs { Vec::new() } else { find_mgs(arguments, &labels, &damaged)? };
    listen::check_reachable(arguments.listen.as_deref(), &mgs_addresses)?;
    let (router, timer) = (Router::new(), Timer::start());
    let addresses = listen::listen(&router, hosts, &mgs_addresses)?;
    let targets = Targets::awaited(labels.len(), refuse(damaged, fsname.as_deref()));
    let no_sync = arguments.no_sync_for_tests;
    let cluster_dir = arguments.background.cluster_dir.clone();
    let mgs_addresses = if is_mgs { addresses.clone() } else { mgs_addresses };
    let node = Node::new(router, timer, targets, no_sync, addresses, cluster_dir, mgs_addresses);
    start_telling_departed(&node)?;
    if let Some(fsname) = fsname {
        node.start_applying()?;
        node.follow_config_with(&fsname, Vec::new(), Timer::start());
    }
    let (address, fence, coordinator) =
        (node.address(), arguments.fence_cmd.clone(), arguments.coordinator.as_ref());
    let failover = Failover::start(&node, labels, &address, fence, coordinator)?;
    assert!(node.failover.set(Arc::clone(&failover)).is_ok(), "a process has one failover");
    let rest = move |node: &Arc<Node>| {
        let start = Instant::now();
        while !failover.is_settled() && start.elapsed() < CONFIG_TIMEOUT {
            if sys::is_end_pending() {
                bail!(Ended);
            }
            std::thread::sleep(RECOVERING_INTERVAL);
        }
        let refused = lock(&node.known).refused.clone();
        refused.map_or(Ok(()), |refused| bail!("{refused}"))
    };
    Ok((node, Box::new(rest)))
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

fn start_mounting<'a>(
    arguments: &'a cli::Mount,
    source: &'a Source,
    path: &'a Path,
    choices: &'a Choices,
) -> Result<(Arc<Node>, Rest<'a>)> {
    let until = Instant::now() + ATTEMPT_LIMIT;
    let (router, timer) = (Router::new(), Timer::start());
    let cluster_dir = arguments.background.cluster_dir.clone();
    let node =
        Node::new(router, timer, Targets::default(), false, Vec::new(), cluster_dir, source.mgs.clone());
    node.start_applying()?;
    node.follow_config(&source.fsname, Vec::new());
    let rest = move |node: &Arc<Node>| {
        node.wait_mountable(&source.fsname, until)?;
        let awaited = Awaited { subdir: source.subdir.clone(), until };
        let identity = arguments.background.identity;
        node.add_mount(path, choices, arguments.source.clone(), Some(awaited), identity)
    };
    Ok((node, Box::new(rest)))
}

/// Opens the stores of all targets at the same time: each waits for its disk. One that cannot be served keeps no other from it, but for the
/// management server, without which none is found.
///
/// # Errors
/// What is wrong with the management server, or with the first target if none is left.
fn start_targets(
    dirs: Vec<TargetDir>,
    shared: &targets::Shared<'_>,
    mut unserved: Vec<Refused>,
) -> Result<Targets> {
    let labels: Vec<Label> = dirs.iter().map(TargetDir::label).collect();
    let started: Vec<Result<Target>> = std::thread::scope(|scope| {
        let starting: Vec<_> =
            dirs.into_iter().map(|dir| scope.spawn(move || targets::start(dir, shared, None))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Target>>| {
            thread.join().unwrap_or_else(|_| bail!("a target panicked at its start"))
        };
        starting.into_iter().map(join).collect()
    });
    let is_any_served = started.iter().flatten().any(|target| target.id != TargetId::MGT);
    let mut running = Vec::new();
    for (label, started) in labels.into_iter().zip(started) {
        match started {
            Ok(target) => running.push(target),
            Err(error) if label.id == TargetId::MGT || !is_any_served => return Err(error),
            Err(error) => {
                unserved.push(refused(label.id.to_string(), label.fsname, label.path, &error));
            }
        }
    }
    Ok(Targets::started(running, unserved))
}

/// Looks once a second, or more often: says for whom the targets of this process wait, if they do, and tells them which clients are gone, so that nobody waits for their locks, nor a recovery for them: of this machine by the locks of
/// their processes, of others, when somebody waits for them, by their leases.
pub(super) fn start_telling_departed(node: &Arc<Node>) -> Result<()> {
    let node = Arc::clone(node);
    std::thread::Builder::new().name("departed".into()).spawn(move || {
        // How often each was told of: more than once, for what is in the sockets of the dead.
        let mut told: BTreeMap<Identity, u32> = BTreeMap::new();
        let mut reminder = Reminder::new();
        loop {
            let telling = lock(&node.telling);
            if *lock(&node.is_stopping) {
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
            drop(telling);
            node.say_awaited(&mut reminder);
            std::thread::sleep(if is_recovering { RECOVERING_INTERVAL } else { DEPARTED_INTERVAL });
        }
    })?;
    Ok(())
}

/// As many as can work at a time. Without them everything is done where it is asked for.
pub(super) fn start_helpers(router: &Router) -> Option<Arc<Helpers>> {
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
