//! `up` and `down`: a whole cluster on this machine.

mod silent;

use crate::cli;
use crate::cluster::{self, Cluster, Identity, Server, Shape};
use crate::control::{self, Ask, Leave, MountStatus, Process, TargetStatus};
use crate::daemon::{self, Starting};
use crate::listen;
use crate::logging;
use crate::mount::dead;
use crate::mount_table;
use crate::nid;
use crate::others;
use crate::say;
use crate::served;
use crate::status;
use crate::sys;
use crate::target_dir;
use anyhow::{Context, Result, bail};
use base::{TargetId, TargetKind};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A process that was asked to end has this long to write its data and go. Its disk may be slow.
const STOP_TIMEOUT: Duration = Duration::from_secs(300);
/// A mount has made everything durable before it is asked to end.
const MOUNT_STOP_TIMEOUT: Duration = Duration::from_secs(50);
/// How often somebody who waits is told what for.
const NOTE_INTERVAL: Duration = Duration::from_secs(5);
/// How often the servers are asked why the mount does not answer yet.
const MOUNT_LOOK_INTERVAL: Duration = Duration::from_millis(300);
/// Instead of an address: metrics are not served any more.
const METRICS_OFF: &str = "off";
/// What is mounted is in there.
const ROOT_MDT: &str = "MDT0000";
const LOCK_NAME: &str = "up.lock";
/// How long another `up` or `down` may hold up this one; longer than a process may take to start.
const LOCK_TIMEOUT: Duration = Duration::from_secs(90);
/// Two commands at the same time are usual, and soon one after the other.
const LOCK_NOTE_AFTER: Duration = Duration::from_millis(300);
/// How long a new configuration takes to reach all servers at most.
const CONFIG_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts what is not running of a cluster, makes it first when there is none.
///
/// # Errors
/// One line that says what is wrong; a new cluster is not begun then.
pub fn up(arguments: &cli::Up) -> Result<()> {
    let dir = data_dir(arguments.dir.as_deref())?;
    if dir.exists() && !dir.is_dir() {
        bail!("{} is no directory; choose another --dir", dir.display());
    }
    control::make_run_dir()?;
    if let Err(error) = logging::of_environment() {
        say::note(format_args!("{error:#}"));
    }
    if !dir.join(LOCK_NAME).exists() {
        // What is refused changes nothing.
        plan(arguments, &dir)?;
    }
    let (lock, mut cluster, listen) = begin(arguments, &dir)?;
    make_targets(&dir, &cluster)?;
    start_servers(&dir, &mut cluster, &listen, arguments, &lock)?;
    wait_for_config(&dir)?;
    start_mount(&dir, &cluster, &lock)?;
    wait_for_mount(&dir, &cluster)?;
    // Nobody else is to wait for whoever reads this.
    drop(lock);
    say::outcome(&six_lines(&dir, &cluster))
}

/// Writes down what is to be started, and keeps others away. Leaves all as it was when that fails, if nobody else has begun
/// there.
fn begin(arguments: &cli::Up, dir: &Path) -> Result<(File, Cluster, Listen)> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    let remove_dirs = || missing.iter().for_each(|dir| drop(fs::remove_dir(dir)));
    let lock = lock(dir, "up").inspect_err(|_| remove_dirs())?;
    let begun = write_down(arguments, dir).inspect_err(|_| {
        // Still under the lock: a file that others have locked by then would keep nobody away any more.
        if !missing.is_empty() && !dir.join(cluster::FILE).exists() {
            for name in [cluster::FILE_ASIDE, LOCK_NAME] {
                let _ = fs::remove_file(dir.join(name));
            }
            remove_dirs();
        }
    });
    let (cluster, listen) = begun?;
    Ok((lock, cluster, listen))
}

/// Only under the lock it is certain that nobody else is at work here.
fn write_down(arguments: &cli::Up, dir: &Path) -> Result<(Cluster, Listen)> {
    let (mut cluster, listen) = plan(arguments, dir)?;
    if !is_mounted(dir, &cluster) {
        choose_identity(dir, &mut cluster);
    }
    // Before the targets: an `up` that is interrupted is taken up by the next.
    cluster.save(dir)?;
    Ok((cluster, listen))
}

/// The cluster as it is to be, with its place to mount on.
fn plan(arguments: &cli::Up, dir: &Path) -> Result<(Cluster, Listen)> {
    let existing = Cluster::load(dir)?;
    let targets = existing.iter().flat_map(|cluster| &cluster.servers).flat_map(|server| &server.targets);
    targets.into_iter().try_for_each(|target| others::check_server(&dir.join(target)))?;
    let (host, is_insecure_accepted) = listen_host(arguments, existing.as_ref())?;
    let running = of_cluster(dir);
    let mut cluster = match existing {
        Some(cluster) => revise(cluster, arguments, dir, &running)?,
        None => design(arguments, dir)?,
    };
    check_port(arguments, &cluster)?;
    choose_metrics(arguments, dir, &mut cluster, &running)?;
    dead::free(&cluster.mount)?;
    if !is_mounted(dir, &cluster) {
        mount_table::check_mount_point(&cluster.mount)?;
    }
    Ok((cluster, Listen { host, is_insecure_accepted }))
}

/// # Errors
/// A port that several servers would have.
fn check_port(arguments: &cli::Up, cluster: &Cluster) -> Result<()> {
    let Some(given) = arguments.listen.as_deref().filter(|_| cluster.is_split) else { return Ok(()) };
    if listen::has_port(given)? {
        bail!("--listen {given}: each process of --split has a port of its own; name the host only");
    }
    Ok(())
}

/// What is chosen at the start of a process stays as it is while that runs.
///
/// # Errors
/// Something else is asked for than what runs.
fn check_running(arguments: &cli::Up, cluster: &Cluster, dir: &Path, running: &[Process]) -> Result<()> {
    let stop = || format!("`{}` first", down_command(dir));
    if arguments.split && !cluster.is_split && !running.is_empty() {
        bail!("--split: the cluster runs in one process; {}", stop());
    }
    if let Some(given) = &arguments.listen {
        let addresses = running.iter().flat_map(|process| &process.targets);
        let mut addresses = addresses.filter_map(|target| nid::parse_nid(&target.nid).ok());
        if let Some(other) = addresses.find(|address| !listen::is_at(address, given)) {
            bail!("--listen {given}: the cluster listens on {other}; {}", stop());
        }
    }
    let mut mounts = running.iter().flat_map(|process| &process.mounts);
    let mounted = mounts.find(|mount| mount.is_on(&cluster.mount));
    if let (Some(mounted), Some(given)) = (mounted, arguments.transport.map(cli::Transport::word))
        && ![cli::Transport::Auto.word(), &cluster.transport, &mounted.transport].contains(&given)
    {
        bail!("--transport {given}: the cluster is mounted with {}; {}", mounted.transport, stop());
    }
    Ok(())
}

/// The first server serves the metrics from its start on.
///
/// # Errors
/// It runs, and does not serve them there.
fn choose_metrics(arguments: &cli::Up, dir: &Path, cluster: &mut Cluster, running: &[Process]) -> Result<()> {
    let Some(given) = &arguments.metrics else { return Ok(()) };
    let wanted = (given != METRICS_OFF).then(|| given.clone());
    let first =
        cluster.servers.first().and_then(|server| server.targets.first()).map(|target| dir.join(target));
    let serves_first =
        |process: &&Process| process.targets.iter().any(|target| Some(&target.dir) == first.as_ref());
    let serves_it = |process: &Process| serves_at(process.metrics.as_deref(), wanted.as_deref());
    if running.iter().any(|process| serves_first(&process) && !serves_it(process)) {
        let beside = match &wanted {
            Some(address) => format!(", or serve them beside it: sheen metrics --listen {address}"),
            None => String::new(),
        };
        bail!(
            "--metrics {given}: the first server of {} runs already, and serves metrics from its start on or not at all; \
             `{}` first{beside}",
            dir.display(),
            down_command(dir)
        );
    }
    cluster.metrics = wanted;
    Ok(())
}

/// Whether metrics are served where they are wanted, whose host may be a name, and whose port any that is free (0). `bound`: as the system has it.
fn serves_at(bound: Option<&str>, wanted: Option<&str>) -> bool {
    let (Some(bound), Some(wanted)) = (bound, wanted) else { return bound == wanted };
    let Ok(bound) = bound.parse::<SocketAddr>() else { return bound == wanted };
    let is_it =
        |address: SocketAddr| address.ip() == bound.ip() && [0, bound.port()].contains(&address.port());
    wanted.to_socket_addrs().is_ok_and(|mut addresses| addresses.any(is_it))
}

/// A new start of the mount of before, unless that one lives on somewhere else: then it is another client.
fn choose_identity(dir: &Path, cluster: &mut Cluster) {
    let is_left = |mount: &MountStatus| mount.is_detached && mount.path == cluster.mount;
    if of_cluster(dir).iter().flat_map(|process| &process.mounts).any(is_left) {
        cluster.mount_identity = Some(Identity::random());
    } else {
        cluster.next_identity();
    }
}

/// Where the servers listen, and whether that was said to be meant: now, or when the cluster was started before.
fn listen_host(arguments: &cli::Up, existing: Option<&Cluster>) -> Result<(String, bool)> {
    let recorded = existing.and_then(|cluster| cluster.mgs_address().rsplit_once(':')).map(|(host, _)| host);
    match (arguments.listen.as_deref(), recorded) {
        (None, Some(host)) => Ok((listen::check_host(Some(host), true)?, true)),
        (listen, _) => {
            let is_accepted = arguments.insecure_network;
            Ok((listen::check_host(listen, is_accepted)?, is_accepted))
        }
    }
}

/// What stops this cluster, and no other one.
pub fn down_command(dir: &Path) -> String {
    format!("sheen down --dir {}", served::quoted_path(dir))
}

/// The same where it is in use, or does not answer.
pub fn forced_down_command(dir: &Path) -> String {
    format!("sheen down --force --dir {}", served::quoted_path(dir))
}

/// `--dir`, or where the data of this user live by default.
pub fn data_dir(given: Option<&Path>) -> Result<PathBuf> {
    let dir = match given {
        Some(dir) => dir.to_owned(),
        None => match std::env::var_os("XDG_STATE_HOME").filter(|value| !value.is_empty()) {
            Some(state) => PathBuf::from(state).join("sheen"),
            None => home()?.join(".local/state/sheen"),
        },
    };
    let dir = std::path::absolute(&dir).with_context(|| format!("'{}' is no path", dir.display()))?;
    Ok(dir.canonicalize().unwrap_or(dir))
}

fn home() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home.context("HOME is not set; say where with --dir and --mount")?;
    std::path::absolute(&home).with_context(|| format!("HOME is '{}', no path", home.display()))
}

/// A new cluster, of which nothing exists yet.
fn design(arguments: &cli::Up, dir: &Path) -> Result<Cluster> {
    // An `up` that was interrupted at once leaves its lock, and perhaps the beginning of the file.
    let is_ours = |name: OsString| name == LOCK_NAME || name == cluster::FILE_ASIDE;
    let mut entries = fs::read_dir(dir).into_iter().flatten().flatten();
    if entries.any(|entry| !is_ours(entry.file_name())) {
        bail!("{} is not empty and has no cluster.json; choose another --dir", dir.display());
    }
    let fsname = arguments.fsname.clone().unwrap_or_else(|| "sheen".to_owned());
    nid::check_fsname(&fsname)?;
    let mount = match &arguments.mount {
        Some(mount) => mount_table::resolve(mount)?,
        None => home()?.join("sheen"),
    };
    if dir.starts_with(&mount) || mount.starts_with(dir) {
        bail!(
            "the data in {} and the mount on {} must not lie in each other; choose another --dir or --mount",
            dir.display(),
            mount.display()
        );
    }
    if arguments.mount.is_none() {
        fs::create_dir_all(&mount).with_context(|| format!("cannot make {}", mount.display()))?;
    }
    Ok(Cluster::new(Shape {
        fsname,
        mount,
        is_split: arguments.split,
        transport: arguments.transport.unwrap_or_default().word().to_owned(),
        mdt_count: arguments.mdts.unwrap_or(2),
        ost_count: arguments.osts.unwrap_or(4),
    }))
}

/// A cluster that exists, with what may be chosen anew at each start.
fn revise(mut cluster: Cluster, arguments: &cli::Up, dir: &Path, running: &[Process]) -> Result<Cluster> {
    let differs = |given: Option<u16>, has: u16| given.is_some_and(|given| given != has);
    if arguments.fsname.as_ref().is_some_and(|fsname| *fsname != cluster.fsname) {
        bail!(
            "{} has the file system '{}'; leave --fsname out, or use another --dir",
            dir.display(),
            cluster.fsname
        );
    }
    if differs(arguments.mdts, cluster.mdt_count) || differs(arguments.osts, cluster.ost_count) {
        bail!(
            "{} has {} MDTs and {} OSTs; leave --mdts and --osts out, or use another --dir",
            dir.display(),
            cluster.mdt_count,
            cluster.ost_count
        );
    }
    check_running(arguments, &cluster, dir, running)?;
    if let Some(mount) = &arguments.mount {
        let mount = mount_table::resolve(mount)?;
        if mount != cluster.mount && !running.is_empty() {
            bail!("the cluster is mounted on {}; `{}` first", cluster.mount.display(), down_command(dir));
        }
        cluster.mount = mount;
    }
    if let Some(transport) = arguments.transport {
        cluster.transport = transport.word().to_owned();
    }
    if arguments.split && !cluster.is_split {
        let address = cluster.mgs_address().to_owned();
        let metrics = cluster.metrics.take();
        cluster = Cluster::new(Shape {
            fsname: cluster.fsname,
            mount: cluster.mount,
            is_split: true,
            transport: cluster.transport,
            mdt_count: cluster.mdt_count,
            ost_count: cluster.ost_count,
        });
        cluster.metrics = metrics;
        if let Some(mgs) = cluster.servers.first_mut() {
            mgs.address = address;
        }
    }
    Ok(cluster)
}

fn make_private_dir(dir: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.with_context(|| format!("cannot make {}", dir.display()))
}

/// One `up` or `down` of a cluster at a time. The processes that `up` starts have the lock too until they are ready: when an `up`
/// is killed, the next one waits for what it has begun.
fn lock(dir: &Path, verb: &str) -> Result<File> {
    let path = dir.join(LOCK_NAME);
    let mut file = open_lock(dir, &path)?;
    let start = Instant::now();
    let mut is_told = false;
    loop {
        match file.try_lock() {
            Ok(()) if !sys::is_removed(&file)? => break,
            // An `up` that has failed has taken it away: others lock another one.
            Ok(()) => file = open_lock(dir, &path)?,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        if start.elapsed() > LOCK_TIMEOUT {
            let (holder, log) = (lock_holder(&path), dir.join("log"));
            bail!("{holder} has not ended after {} s; see {}", LOCK_TIMEOUT.as_secs(), log.display());
        }
        if !is_told && start.elapsed() > LOCK_NOTE_AFTER {
            say::note(format_args!("waiting for {}", lock_holder(&path)));
            is_told = true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // Only what others are told: a disk that is full must not keep a cluster from being stopped.
    let _ = file.set_len(0).and_then(|()| write!(file, "{verb} {}", std::process::id()));
    Ok(file)
}

fn open_lock(dir: &Path, path: &Path) -> Result<File> {
    make_private_dir(dir)?;
    let opened = File::options().create(true).truncate(false).read(true).write(true).open(path);
    opened.with_context(|| format!("cannot write {}", path.display()))
}

/// Who has the lock, as the file says.
fn lock_holder(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let holder = text.split_once(' ').and_then(|(verb, pid)| Some((verb, pid.parse::<u32>().ok()?)));
    let dir = path.parent().unwrap_or(path).display();
    match holder {
        Some((verb, pid)) if sys::is_alive(pid) => {
            format!("`sheen {verb}` of {dir}, which runs as pid {pid}")
        }
        Some((verb, pid)) => format!("what `sheen {verb}` of {dir}, killed as pid {pid}, has started"),
        None => format!("another `sheen up` or `sheen down` of {dir}"),
    }
}

/// Whether the mount of this cluster is there; that of another one on the same path is in the way instead.
fn is_mounted(dir: &Path, cluster: &Cluster) -> bool {
    of_cluster(dir).iter().any(|process| process.has_mount(&cluster.mount))
}

/// Processes that `up` started for this directory, or that serve targets in it.
fn of_cluster(dir: &Path) -> Vec<Process> {
    control::processes().into_iter().filter(|process| belongs(process, dir)).collect()
}

pub fn belongs(process: &Process, dir: &Path) -> bool {
    process.cluster_dir.as_deref() == Some(dir)
        || process.targets.iter().any(|target| target.dir.starts_with(dir))
}

pub fn targets_of<'a>(
    processes: &'a [Process],
    silent_targets: &'a [TargetStatus],
) -> impl Iterator<Item = &'a TargetStatus> {
    processes.iter().flat_map(|process| &process.targets).chain(silent_targets)
}

/// Whether a mount is of this cluster, by where its management server is. `targets`: all that this machine serves.
pub fn is_of<'a>(
    mount: &MountStatus,
    cluster: &Cluster,
    dir: &Path,
    targets: impl Iterator<Item = &'a TargetStatus>,
) -> bool {
    let nid = nid::format_nid(cluster.mgs_address());
    mount.fsname == cluster.fsname && mount.mgs_nids.contains(&nid) && !is_taken(&nid, dir, targets)
}

/// Whether another cluster has this address by now, which was free while this one was stopped: what is mounted from there is that one's.
pub fn is_taken<'a>(nid: &str, dir: &Path, mut targets: impl Iterator<Item = &'a TargetStatus>) -> bool {
    targets.any(|target| target.name == "MGS" && target.nid == nid && !target.dir.starts_with(dir))
}

/// Those of a new cluster. In one that was started before, one that is missing is not on a disk that is mounted, or it is lost: a new one in its
/// place would be another target, and know of nothing.
fn make_targets(dir: &Path, cluster: &Cluster) -> Result<()> {
    if !cluster.mgs_address().is_empty() {
        return Ok(());
    }
    for name in cluster.servers.iter().flat_map(|server| &server.targets) {
        let path = dir.join(name);
        if target_dir::exists(&path) {
            continue;
        }
        let id =
            target_id(name).with_context(|| format!("cluster.json names the unknown target '{name}'"))?;
        target_dir::make(&path, id, &cluster.fsname, &[])?;
    }
    Ok(())
}

/// `mgs`, `mdt0001`, `ost000a`.
fn target_id(name: &str) -> Option<TargetId> {
    name.to_uppercase().parse().ok().or_else(|| {
        let (kind, index) = name.split_at_checked(3)?;
        format!("{}{index}", kind.to_uppercase()).parse().ok()
    })
}

/// Where new servers listen.
struct Listen {
    host: String,
    is_insecure_accepted: bool,
}

fn start_servers(
    dir: &Path,
    cluster: &mut Cluster,
    listen: &Listen,
    arguments: &cli::Up,
    lock: &File,
) -> Result<()> {
    stop_fenced(dir)?;
    let running = of_cluster(dir);
    let targets = || running.iter().flat_map(|process| &process.targets);
    let found = |server: &Server| {
        let first = server.targets.first().map(|target| dir.join(target));
        targets().find(|target| Some(&target.dir) == first.as_ref())
    };
    for server in &mut cluster.servers {
        // An `up` that was killed may not have written the address down.
        if let Some(target) = found(server) {
            server.address = nid::parse_nid(&target.nid).unwrap_or_else(|_| server.address.clone());
        }
    }
    let missing = missing_servers(dir, cluster)?;
    let mut refused: Vec<String> = missing.values().cloned().collect();
    // The management server first: the others need its address.
    for is_first in [true, false] {
        let mut starting = Vec::new();
        for at in 0..cluster.servers.len() {
            let server = &cluster.servers[at];
            if (at == 0) == is_first && found(server).is_none() && !missing.contains_key(&at) {
                let arguments = server_arguments(dir, cluster, server, listen, arguments.no_sync_for_tests);
                starting.push((at, daemon::start(&arguments, &server_log(dir, server), Some(lock))?));
            }
        }
        for (at, process) in starting {
            let name = &cluster.servers[at].name;
            let ready = process.wait(name).with_context(|| format!("{name} did not start"))?;
            cluster.servers[at].address = ready.address.unwrap_or_default();
            refused.extend(ready.refused);
        }
        cluster.save(dir)?;
    }
    let checked = check_has_root(dir, cluster, &missing);
    // What ends this is said once.
    let end = checked.as_ref().err().map(|error| format!("{error:#}")).unwrap_or_default();
    refused.iter().filter(|why| !end.contains(*why)).for_each(|why| say::note(format_args!("{why}")));
    checked
}

fn root_of(processes: &[Process]) -> Option<&TargetStatus> {
    processes.iter().flat_map(|process| &process.targets).find(|target| target.name == ROOT_MDT)
}

/// Servers with one target each, which is missing: by their number, what is wrong. (One of several targets serves the others, and says so itself.)
///
/// # Errors
/// It is the management server, without which none is found.
fn missing_servers(dir: &Path, cluster: &Cluster) -> Result<BTreeMap<usize, String>> {
    let mut missing = BTreeMap::new();
    for (at, server) in cluster.servers.iter().enumerate() {
        if let [target] = server.targets.as_slice()
            && let Err(error) = target_dir::check_there(&dir.join(target))
        {
            if at == 0 {
                return Err(error);
            }
            missing.insert(at, format!("{error:#}"));
        }
    }
    Ok(missing)
}

/// Without the first MDT nothing can be mounted; what else is served goes on.
fn check_has_root(dir: &Path, cluster: &Cluster, missing: &BTreeMap<usize, String>) -> Result<()> {
    let processes = of_cluster(dir);
    let root = root_of(&processes).filter(|root| root.state == status::FENCED);
    let is_root = |target: &String| target_id(target).is_some_and(|id| id.to_string() == ROOT_MDT);
    let has_root =
        |at: &usize| cluster.servers.get(*at).is_some_and(|server| server.targets.iter().any(is_root));
    let lost_root = missing.iter().find(|(at, _)| has_root(at)).map(|(_, why)| why);
    match root.and_then(|root| root.unserved.as_ref()).or(lost_root) {
        Some(why) => {
            bail!("{why}; the other targets are served: sheen status --dir {}", served::quoted_path(dir))
        }
        None => Ok(()),
    }
}

/// Waits until the mount answers. In a recovery of the first MDT whoever waits is told for whom, and nobody waits here for an MDT that is not ours:
/// it may be started by whoever comes after this command only.
fn wait_for_mount(dir: &Path, cluster: &Cluster) -> Result<()> {
    let (answered, answer) = mpsc::channel();
    let mount = cluster.mount.clone();
    // Ends with this process where nobody waits for it any more.
    std::thread::spawn(move || answered.send(fs::metadata(mount).map(drop)));
    let (begun, mut told) = (Instant::now(), None::<Instant>);
    loop {
        match answer.recv_timeout(MOUNT_LOOK_INTERVAL) {
            Ok(answer) => {
                return answer.with_context(|| format!("{} does not answer", cluster.mount.display()));
            }
            Err(RecvTimeoutError::Disconnected) => bail!("{} does not answer", cluster.mount.display()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let processes = of_cluster(dir);
        let Some(root) = root_of(&processes) else { continue };
        let Some(line) = status::recovery_line(root) else { continue };
        if told.is_none_or(|told| told.elapsed() >= NOTE_INTERVAL) {
            say::note(format_args!("{line}"));
            told = Some(Instant::now());
        }
        let mut missing = root.recovery.iter().flat_map(|recovery| &recovery.missing);
        let foreign = missing.find(|name| is_foreign_mdt(name, cluster));
        // One that runs may just not have come back yet.
        if let Some(mdt) = foreign.filter(|_| begun.elapsed() >= NOTE_INTERVAL) {
            say::note(format_args!(
                "{mdt} is not served from {}: start it where it is; until then the mount waits",
                dir.display()
            ));
            return Ok(());
        }
    }
}

/// Whether this names an MDT that no server of the cluster has.
fn is_foreign_mdt(name: &str, cluster: &Cluster) -> bool {
    let is_mdt = name.parse::<TargetId>().is_ok_and(|target| target.kind == TargetKind::Mdt);
    let mut ours = cluster.servers.iter().flat_map(|server| &server.targets);
    is_mdt && !ours.any(|target| target.eq_ignore_ascii_case(name))
}

fn server_log(dir: &Path, server: &Server) -> PathBuf {
    dir.join("log").join(format!("{}.log", server.name))
}

/// Begins to start a server that was killed, where it was: for whoever has killed it. Looks at nothing else.
///
/// # Errors
/// It cannot be started at all.
pub fn restart_server(dir: &Path, cluster: &Cluster, server: &Server) -> Result<Starting> {
    let host = server.address.rsplit_once(':').map_or("", |(host, _)| host).to_owned();
    let is_insecure_accepted = listen::check_host(Some(&host), false).is_err();
    let listen = Listen { host, is_insecure_accepted };
    daemon::start(&server_arguments(dir, cluster, server, &listen, false), &server_log(dir, server), None)
}

/// A process with a target whose device failed is as good as dead: it ends, so that it starts anew. But for a target that is still not there
/// nobody who uses the others is cut off.
fn stop_fenced(dir: &Path) -> Result<()> {
    for process in of_cluster(dir) {
        let (missing, fenced): (Vec<_>, Vec<_>) =
            process.targets.iter().filter(|target| target.state == status::FENCED).partition(|target| {
                target.unserved.is_some() && target_dir::check_there(&target.dir).is_err()
            });
        missing.iter().filter_map(|target| target.unserved.as_ref()).for_each(say::note);
        if let Some(target) = fenced.first() {
            stop(&process, Leave::Stop).with_context(|| {
                format!("{} is fenced; stop it first: {}", target.name, forced_down_command(dir))
            })?;
        }
    }
    Ok(())
}

/// Waits until all servers work with the same configuration. Each has waited for its own registration, so the newest
/// one has them all; a metadata server that did not know the OSTs yet could place no file.
fn wait_for_config(dir: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        let mut versions =
            of_cluster(dir).iter().filter_map(|process| process.config_version).collect::<Vec<_>>();
        versions.sort_unstable();
        if versions.first() == versions.last() && versions.first() != Some(&0) {
            return Ok(());
        }
        if start.elapsed() > CONFIG_TIMEOUT {
            bail!("the servers did not agree on their configuration; see {}", dir.join("log").display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn server_arguments(
    dir: &Path,
    cluster: &Cluster,
    server: &Server,
    listen: &Listen,
    has_no_sync: bool,
) -> Vec<OsString> {
    let host = &listen.host;
    let mut arguments: Vec<OsString> = vec!["serve".into()];
    arguments.extend(server.targets.iter().map(|target| dir.join(target).into_os_string()));
    let is_same_host = server.address.rsplit_once(':').is_some_and(|(old, _)| old == *host);
    let is_free = is_same_host && listen::is_free(&server.address);
    let address = if is_free { &server.address } else { host };
    arguments.extend(["--listen".into(), address.into(), "--cluster-dir".into(), dir.into()]);
    if listen.is_insecure_accepted {
        arguments.push("--insecure-network".into());
    }
    if has_no_sync {
        arguments.push("--no-sync-for-tests".into());
    }
    let is_first = cluster.servers.first() == Some(server);
    if let Some(address) = cluster.metrics.as_ref().filter(|_| is_first) {
        arguments.extend(["--metrics".into(), address.into()]);
    }
    let has_mgs = server.targets.iter().any(|target| target == "mgs");
    if !has_mgs {
        arguments.extend(["--mgsnode".into(), nid::format_nid(cluster.mgs_address()).into()]);
    }
    if !cluster.is_split {
        arguments.extend(["--mount".into(), cluster.mount.clone().into()]);
        arguments.extend(["--transport".into(), cluster.transport.clone().into()]);
        arguments.extend(identity_arguments(cluster));
    }
    arguments
}

fn identity_arguments(cluster: &Cluster) -> Vec<OsString> {
    match cluster.mount_identity {
        Some(identity) => vec!["--identity".into(), identity.to_string().into()],
        None => Vec::new(),
    }
}

/// What a mount of it names.
fn source(cluster: &Cluster) -> String {
    format!("{}:/{}", nid::format_nid(cluster.mgs_address()), cluster.fsname)
}

/// How a mount of a cluster that runs is started (`daemon::start`); it ends with the cluster.
pub fn mount_arguments(dir: &Path, cluster: &Cluster, mount: &Path) -> Vec<OsString> {
    vec![
        "mount".into(),
        source(cluster).into(),
        mount.into(),
        "--foreground".into(),
        "--transport".into(),
        cluster.transport.clone().into(),
        "--cluster-dir".into(),
        dir.into(),
    ]
}

/// The mount, unless a process has it already.
fn start_mount(dir: &Path, cluster: &Cluster, lock: &File) -> Result<()> {
    if is_mounted(dir, cluster) {
        return Ok(());
    }
    let mut arguments = mount_arguments(dir, cluster, &cluster.mount);
    arguments.extend(identity_arguments(cluster));
    let started = daemon::start(&arguments, &dir.join("log/mount.log"), Some(lock))?;
    started.wait("the mount").context("the mount did not start")?;
    Ok(())
}

fn six_lines(dir: &Path, cluster: &Cluster) -> String {
    let is_default = data_dir(None).is_ok_and(|default| default == dir);
    let option = if is_default { String::new() } else { format!(" --dir {}", served::quoted_path(dir)) };
    let (dir, mount) = (dir.display(), cluster.mount.display());
    let (into, of) = (served::quoted_path(&cluster.mount.join("")), served::quoted_path(&cluster.mount));
    // Its port may be another one than usual.
    let source = source(cluster);
    let sheen = own_command(std::env::var_os("PATH").as_deref());
    format!(
        "data     {dir}\n\
         mounted  {mount} ({source})\n\
         health   {sheen} status{option}\n\
         stop     {sheen} down{option}\n\
         docs     docs/ in the source tree or in /usr/share/doc/sheen; {sheen} --help\n\
         next     cp -a /usr/include {into} && {sheen} lfs df -h {of}\n"
    )
}

/// What a shell calls this program: `sheen`, or its path where that name leads nowhere.
fn own_command(search: Option<&OsStr>) -> String {
    let mut dirs = search.into_iter().flat_map(std::env::split_paths);
    let own = std::env::current_exe().ok();
    match own {
        Some(own) if !dirs.any(|dir| dir.join("sheen").is_file()) => served::quoted(&own.to_string_lossy()),
        _ => "sheen".to_owned(),
    }
}

/// Stops a cluster: first its mounts, then its servers, each after its data are safe.
///
/// A mount that somebody uses is left alone, with everything, unless `--force` is said. One that has only been copied to another
/// mount namespace holds nothing up: it is cut off when everything is durable.
///
/// # Errors
/// A mount is in use, or a server says nothing (nothing is stopped then, without `--force`), or a process does not end.
pub fn down(arguments: &cli::Down) -> Result<()> {
    let dir = data_dir(arguments.dir.as_deref())?;
    // On a dead disk nothing can be read or locked; its processes can still be stopped.
    let (cluster, _lock) = match Cluster::load(&dir) {
        Ok(Some(_)) => {
            let lock = lock(&dir, "down")?;
            // An `up` may have been at work.
            (Cluster::load(&dir)?, Some(lock))
        }
        Ok(None) => bail!("there is no cluster in {}; say where with --dir", dir.display()),
        Err(error) if is_none_left(&dir) => return Err(error),
        Err(error) => {
            say::note(format_args!("{error:#}; stopping its processes all the same"));
            (None, None)
        }
    };
    silent::check_are_asked(&dir, cluster.as_ref())?;
    let leave = if arguments.force { Leave::Cut } else { Leave::Stop };
    if !arguments.force {
        // Before anything is stopped: all of it is to go on, or none.
        silent::all_answering(&dir, cluster.as_ref())?;
    }
    let mut mounting = Vec::new();
    let (processes, silent) = control::processes_and_silent();
    let silent_targets = served::of_silent(&silent);
    let is_ours = |mount: &MountStatus| {
        cluster
            .as_ref()
            .is_some_and(|cluster| is_of(mount, cluster, &dir, targets_of(&processes, &silent_targets)))
    };
    for process in &processes {
        for mount in &process.mounts {
            if belongs(process, &dir) || is_ours(mount) {
                let ask = Ask::Unmount {
                    mount: mount.path.clone(),
                    leave,
                    is_with_cluster: true,
                    detaches_itself: false,
                };
                control::ask_if_alive(process.pid, &ask)?;
                if process.targets.is_empty() {
                    mounting.push(process.clone());
                }
            }
        }
    }
    for process in mounting {
        // It gives back what it holds before it ends, and needs the servers for that.
        wait_gone(&process, MOUNT_STOP_TIMEOUT);
    }
    if let Some(cluster) = &cluster {
        let free = if arguments.force { dead::free_silent } else { dead::free };
        free(&cluster.mount)?;
    }
    let (mut processes, killed) = if arguments.force {
        silent::kill(&dir, cluster.as_ref())?
    } else {
        (silent::all_answering(&dir, cluster.as_ref())?, Vec::new())
    };
    processes.sort_by_key(stop_rank);
    for process in &processes {
        stop(process, leave)?;
    }
    killed.into_iter().try_for_each(silent::wait_gone)?;
    served::forget_below(&dir);
    Ok(())
}

fn is_none_left(dir: &Path) -> bool {
    let (processes, silent) = silent::of_cluster(dir, None);
    processes.is_empty() && silent.is_empty()
}

/// Servers of data before those that they tell about it, the management server last.
fn stop_rank(process: &Process) -> u8 {
    let rank = |target: &TargetStatus| match target.name.parse::<TargetId>().map(|id| id.kind) {
        Ok(TargetKind::Ost) => 1,
        Ok(TargetKind::Mdt) => 2,
        Ok(TargetKind::Mgt) => 3,
        Err(()) => 0,
    };
    process.targets.iter().map(rank).max().unwrap_or(0)
}

fn stop(process: &Process, leave: Leave) -> Result<()> {
    control::ask_if_alive(process.pid, &Ask::Stop { leave })?;
    if !wait_gone(process, STOP_TIMEOUT) {
        let pid = process.pid;
        bail!("process {pid} did not end after {} s; see its log, or kill it", STOP_TIMEOUT.as_secs());
    }
    Ok(())
}

/// Waits until a process is gone, and says so when that takes long; true when it is.
fn wait_gone(process: &Process, limit: Duration) -> bool {
    let start = Instant::now();
    while !daemon::wait_gone(process.pid, NOTE_INTERVAL.min(limit.saturating_sub(start.elapsed()))) {
        if start.elapsed() >= limit {
            return false;
        }
        let targets: Vec<&str> = process.targets.iter().map(|target| target.name.as_str()).collect();
        let what = if targets.is_empty() { "the mount".to_owned() } else { targets.join(" ") };
        let seconds = start.elapsed().as_secs();
        say::note(format_args!(
            "waiting {seconds} s for pid {} ({what}) to write its data and end",
            process.pid
        ));
    }
    true
}

#[cfg(test)]
mod tests;
