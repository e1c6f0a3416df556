//! Control sockets: one per process, in one directory, for the tools of the same user. One JSON line asks, one answers. What takes
//! its time says in notes before the answer what it waits for; the tool shows them.

use crate::metrics::Sample;
use crate::mount_table::{self, Mounted};
use crate::path_words;
use crate::say;
use crate::sys;
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Bytes of one line; nothing longer is read.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// The address of a socket has 108 bytes with the zero at its end; after the directory come a slash, a process id and `.sock`.
const DIR_BYTES_MAX: usize = 108 - 1 - "/4194304.sock".len();
/// A process that says nothing for this long hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How a process is takes it no time to say: one that hangs must not hide the others for long.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);
/// Who waits longer is told for whom.
const NOTE_AFTER: Duration = Duration::from_secs(2);
/// Collectors of metrics give up after 10 s themselves; with what they cannot get they are to get the rest.
const METRICS_TIMEOUT: Duration = Duration::from_secs(3);
/// Before another one is let in when that has failed.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(100);
/// Processes that are asked at the same time.
const ASKED_AT_ONCE: usize = 64;

/// A process is there and does not answer.
#[derive(Debug, thiserror::Error)]
#[error("it has said nothing for {} s; see its log", .0.as_secs())]
pub struct Silent(pub Duration);

/// A process is there and has not let anybody in for long: no more can wait.
#[derive(Debug, thiserror::Error)]
#[error("it says nothing, and as many wait for it as can; see its log")]
struct Crowded;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Ask {
    Status,
    /// What the process counts.
    Metrics,
    /// End the process cleanly; answered before that.
    Stop {
        leave: Leave,
    },
    /// Unmount, after everything is durable. A mount that is gone already is no error.
    Unmount {
        #[serde(with = "path_words")]
        mount: PathBuf,
        leave: Leave,
        /// With the cluster that it is of: its servers may be about to come back, and are waited for longer.
        #[serde(default)]
        is_with_cluster: bool,
        /// Who asks takes it off its path, as soon as it is told that it may (`Tell::may_detach`).
        #[serde(default)]
        detaches_itself: bool,
    },
    /// How the targets of a mount do, seen from there.
    Probe {
        #[serde(with = "path_words")]
        mount: PathBuf,
    },
    /// Parameters that match a glob.
    GetParam {
        pattern: String,
    },
    /// Permanent: on the management server, for everybody.
    SetParam {
        pattern: String,
        value: String,
        is_permanent: bool,
        is_deleted: bool,
    },
    ListParam {
        pattern: String,
        /// With everything below what matches.
        #[serde(default)]
        is_recursive: bool,
    },
    /// Whom the recovery of this target waits for is given up.
    AbortRecovery {
        target: String,
    },
    /// An operator says that the owner of this target can no longer write: whoever stands by for it takes it over.
    Failover {
        target: String,
        /// Of the ownership that is meant.
        epoch: u64,
    },
    ListPools,
    ChangePool {
        name: String,
        action: PoolAction,
    },
}

/// What `lctl pool_*` does; OSTs by index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolAction {
    New,
    Destroy,
    Add(Vec<u16>),
    Remove(Vec<u16>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    pub name: String,
    pub osts: Vec<u16>,
}

/// How a mount ends. What was done through it is made durable first in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leave {
    /// As umount(8): refused while somebody uses it here. Its copies in other places live on, and its client with them.
    Unmount,
    /// As `umount -l`: gone from here, and whoever uses it goes on.
    Detach,
    /// The end of a cluster: refused while somebody uses it, in any mount namespace; copies that nobody uses are cut off.
    Stop,
    /// Whoever uses it gets ENOTCONN from now on.
    Cut,
}

/// Tells whoever waits for an answer what is going on.
pub type Say<'a> = dyn Fn(&str) + 'a;

/// Tells whoever waits for an answer what comes before that: a note, or that it is his turn.
pub type TellBefore<'a> = dyn Fn(&Tell) + 'a;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tell {
    /// This is not the answer yet: what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// This is not the answer yet: who asked to unmount is to take the mount off its path.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_detach: bool,
    /// Empty: it worked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The error is that there is nothing to take out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_absent: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// Parameters and their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolStatus>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<TargetHealth>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Sample>,
}

impl Tell {
    pub fn note(text: impl Into<String>) -> Tell {
        Tell { note: Some(text.into()), ..Tell::default() }
    }

    pub fn error(text: impl Into<String>) -> Tell {
        Tell { error: Some(text.into()), ..Tell::default() }
    }

    pub fn failed(error: &anyhow::Error) -> Tell {
        Tell { is_absent: error.is::<Absent>(), ..Tell::error(format!("{error:#}")) }
    }
}

/// What is to be taken out, or ended, is not there.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Absent(pub String);

/// What a process says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    /// Directory of the cluster that `up` started it for.
    #[serde(default, with = "path_words::option")]
    pub cluster_dir: Option<PathBuf>,
    pub targets: Vec<TargetStatus>,
    pub mounts: Vec<MountStatus>,
    /// Of the configuration that it works with; `None` for a process without a file system of its own.
    #[serde(default)]
    pub config_version: Option<u64>,
    /// `None` for a process without a file system of its own.
    #[serde(default)]
    pub mgs: Option<MgsStatus>,
    /// The name of its file system, when all OSTs of it are drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained_fsname: Option<String>,
    /// Where it serves the metrics of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
}

/// The management server, seen from a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MgsStatus {
    pub nids: Vec<String>,
    /// The session with it works.
    pub is_heard: bool,
    /// It has not been heard since the process began, or has not taken its targets yet: nobody finds them.
    #[serde(default)]
    pub is_awaited: bool,
    /// How connecting to it fails, by address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// `MGS`, `MDT0000`, `OST0003`.
    pub name: String,
    pub fsname: String,
    #[serde(with = "path_words")]
    pub dir: PathBuf,
    pub nid: String,
    /// `active`, `recovering`, `failed`; `waiting` for the management server, without which nobody finds it; `refused` where another process serves it; `standby` where another server owns it; `silent` when its process does not answer,
    /// `down` when nobody serves it.
    pub state: String,
    /// Filled by whoever asked; 0 when down.
    #[serde(default)]
    pub pid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryStatus>,
    /// Of a target with failover: the server that owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What an operator should do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<String>,
    /// Why it is `failed`, where that is not its device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unserved: Option<String>,
    /// Targets that this one calls and does not hear.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unheard: Vec<Unheard>,
}

/// How one target does, seen from a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetHealth {
    pub target: String,
    /// False: switched off for this mount, and not asked.
    pub is_used: bool,
    /// Of the session, in Lustre's words.
    pub state: String,
    pub nids: Vec<String>,
    /// When the session was made.
    pub clock_ahead_ms: Option<i64>,
    /// What it runs; empty where it does not say.
    #[serde(default)]
    pub version: String,
    pub answer: StepHealth,
    pub lock: StepHealth,
    pub read: StepHealth,
    /// 0 when it has not answered.
    pub bytes_total: u64,
    pub bytes_available: u64,
    pub inodes_total: u64,
    pub inodes_free: u64,
    /// Targets with the same number share their space.
    pub device: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepHealth {
    NotTried,
    TookUs(u64),
    Failed(String),
    Silent,
}

/// A recovery under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryStatus {
    /// Until whoever is missing is given up.
    pub seconds_left: u64,
    /// Clients that had a session before; those of them that are done.
    pub client_count: usize,
    pub done_count: usize,
    /// The others: `UUID@NID`, or the target's name.
    pub missing: Vec<String>,
    /// Targets that are not heard, and that replays wait for: nobody is given up meanwhile.
    #[serde(default)]
    pub unheard: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountStatus {
    #[serde(with = "path_words")]
    pub path: PathBuf,
    pub fsname: String,
    /// `NID:/FSNAME`, as the kernel's table has it.
    pub source: String,
    /// NIDs of the management server.
    pub mgs_nids: Vec<String>,
    /// Empty where its process does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub transport: String,
    /// `MAJOR:MINOR` of its file system; empty where the kernel, or an older process, does not say. In another mount namespace
    /// another one may be on the same path.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// Unmounted from its path, but copies in other places live on.
    #[serde(default)]
    pub is_detached: bool,
    /// Its own options in force; those of mount(2) are in the kernel's table.
    #[serde(default)]
    pub options: Vec<String>,
    /// The same when it was mounted: a parameter may have changed one since, and its line in /etc/fstab stays what it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options_at_start: Vec<String>,
    /// Targets in use whose sessions do not work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unheard: Vec<Unheard>,
    /// 0 where its process is not known, which nobody is told: to kill(2) that is whoever calls it.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub pid: u32,
}

fn is_unknown(pid: &u32) -> bool {
    *pid == 0
}

/// A target that a mount, or an MDT, does not hear.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unheard {
    /// `fs-OST0003`.
    pub target: String,
    pub nids: Vec<String>,
    /// Seconds since 1970.
    pub since: i64,
    /// The same, seen from now.
    pub seconds: u64,
    /// Its connection stands, and it answers nothing.
    pub is_connected: bool,
}

/// Where the sockets of this user are.
pub fn run_dir() -> PathBuf {
    let dir = run_dir_by(|name| std::env::var_os(name), sys::uid());
    std::path::absolute(&dir).unwrap_or(dir)
}

/// That of a user with such an environment.
fn run_dir_by(variable: impl Fn(&str) -> Option<OsString>, user: u32) -> PathBuf {
    let from = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(dir) = from("SHEEN_RUN") {
        return dir;
    }
    if user == 0 {
        return "/run/sheen".into();
    }
    from("XDG_RUNTIME_DIR").map_or_else(|| format!("/tmp/sheen-{user}").into(), |dir| dir.join("sheen"))
}

/// That of a living process, by the environment with which it was started; `None` where this user may not see that.
fn run_dir_of(pid: u32) -> Option<PathBuf> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let user = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let variable = |name: &str| {
        let mut words = environment.split(|byte| *byte == 0);
        let value = words
            .find_map(|word| word.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")));
        value.map(|value| OsStr::from_bytes(value).to_owned())
    };
    Some(run_dir_by(variable, user))
}

/// The directory in which a process has its control socket and answers, where that is not this one's.
pub fn answers_elsewhere(pid: u32) -> Option<PathBuf> {
    let dir = run_dir_of(pid).filter(|dir| dir.is_absolute() && *dir != run_dir())?;
    ask(&dir.join(format!("{pid}.sock")), &Ask::Status).is_ok().then_some(dir)
}

/// The directory of the sockets, made when it is not there.
///
/// # Errors
/// It cannot be made, or somebody else has made it: in /tmp anybody may, and would then see and answer what is asked there.
pub fn make_run_dir() -> Result<PathBuf> {
    make_run_dir_for(sys::uid(), run_dir())
}

fn make_run_dir_for(user: u32, dir: PathBuf) -> Result<PathBuf> {
    let byte_count = dir.as_os_str().len();
    if byte_count > DIR_BYTES_MAX {
        bail!(
            "no control socket can be in {}: its path has {byte_count} bytes, and {DIR_BYTES_MAX} are possible; say with SHEEN_RUN where they shall be",
            dir.display()
        );
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(&dir);
    made.with_context(|| {
        format!("cannot make {} for control sockets; say with SHEEN_RUN where they shall be", dir.display())
    })?;
    if !sys::is_writable(&dir) {
        bail!(
            "control sockets cannot be written to {}; say with SHEEN_RUN where they shall be",
            dir.display()
        );
    }
    if !is_trusted_by(user, &dir) {
        bail!(
            "{} belongs to somebody else; say with SHEEN_RUN where control sockets shall be",
            dir.display()
        );
    }
    Ok(dir)
}

/// The directory of the logs for which nobody has named a place, made when it is not there.
///
/// # Errors
/// As of the directory of the sockets: where somebody else can make links, what is logged is written to any file of this user.
pub fn make_log_dir() -> Result<PathBuf> {
    make_log_dir_for(sys::uid(), run_dir())
}

fn make_log_dir_for(user: u32, run_dir: PathBuf) -> Result<PathBuf> {
    let dir = make_run_dir_for(user, run_dir)?.join("log");
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(&dir);
    made.with_context(|| {
        format!("cannot make {} for logs; say with --log where one shall be", dir.display())
    })?;
    if !is_trusted_by(user, &dir) {
        bail!("{} belongs to somebody else; say with --log where the log shall be", dir.display());
    }
    Ok(dir)
}

/// Whether nobody but us and root has put there what is in it.
fn is_trusted(dir: &Path) -> bool {
    is_trusted_by(sys::uid(), dir)
}

/// (Root looks at what users have.)
fn is_trusted_by(user: u32, dir: &Path) -> bool {
    // Of a link, who has put it there.
    user == 0 || fs::symlink_metadata(dir).is_ok_and(|metadata| metadata.uid() == user || metadata.uid() == 0)
}

/// Whoever waits for an answer when the process ends gets it within this time, or not at all.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// The socket of this process; removed when dropped, after the last answers have left.
pub struct Server {
    path: PathBuf,
    /// Strong references: one here, one of the accepting thread, one for each conversation.
    talking: Arc<()>,
}

impl Server {
    /// Starts to answer, on a thread of its own.
    ///
    /// # Errors
    /// The directory or the socket cannot be made.
    pub fn start(answer: impl Fn(Ask, &TellBefore<'_>) -> Tell + Send + Sync + 'static) -> Result<Server> {
        let dir = make_run_dir()?;
        let path = dir.join(format!("{}.sock", std::process::id()));
        // Of an earlier process with our number.
        let _ = fs::remove_file(&path);
        let before = sys::set_umask(0o177);
        let bound = UnixListener::bind(&path);
        sys::set_umask(before);
        let listener = bound.with_context(|| format!("cannot make the control socket {}", path.display()))?;
        let answer = Arc::new(answer);
        let talking = Arc::new(());
        let counted = Arc::clone(&talking);
        std::thread::Builder::new().name("control".into()).spawn(move || {
            for stream in waiting_between(listener.incoming(), || std::thread::sleep(ACCEPT_INTERVAL)) {
                let (answer, conversation) = (Arc::clone(&answer), Arc::clone(&counted));
                // One that cannot be served is closed, and its tool says so.
                let _ = std::thread::Builder::new().name("control".into()).spawn(move || {
                    let _ = serve(&stream, &*answer);
                    drop(conversation);
                });
            }
        })?;
        Ok(Server { path, talking })
    }
}

/// Those that come, and a wait after each that fails: descriptors may be used up for a while, and whoever has come is still there then.
fn waiting_between<T, E>(
    incoming: impl Iterator<Item = Result<T, E>>,
    wait: impl Fn(),
) -> impl Iterator<Item = T> {
    incoming.filter_map(move |stream| stream.inspect_err(|_| wait()).ok())
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let start = Instant::now();
        while Arc::strong_count(&self.talking) > 2 && start.elapsed() < LAST_ANSWERS {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn serve(stream: &UnixStream, answer: &(dyn Fn(Ask, &TellBefore<'_>) -> Tell + Send + Sync)) -> Result<()> {
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream).take(LINE_BYTES_MAX).read_line(&mut line)?;
    let tell_before = |tell: &Tell| {
        // Who does not listen any more gets no answer either, and what was asked for goes on.
        let _ = write_line(stream, tell);
    };
    let tell = match serde_json::from_str(&line) {
        Ok(ask) => answer(ask, &tell_before),
        Err(error) => Tell::error(format!("this process does not understand the request: {error}")),
    };
    write_line(stream, &tell)
}

fn write_line(mut stream: &UnixStream, words: &impl Serialize) -> Result<()> {
    let mut bytes = serde_json::to_vec(words)?;
    bytes.push(b'\n');
    Ok(stream.write_all(&bytes)?)
}

/// Asks one process. Its notes go to standard error, each once.
///
/// # Errors
/// It is gone, does not answer, or says what is wrong.
pub fn ask(socket: &Path, ask: &Ask) -> Result<Tell> {
    ask_and_detach(socket, ask, || Ok(()))
}

/// As `ask`, and does what only this process can when it is told to; it waits for the answer after that.
///
/// # Errors
/// As `ask`, or those of `detach`.
pub fn ask_and_detach(socket: &Path, ask: &Ask, detach: impl Fn() -> Result<()>) -> Result<Tell> {
    let stream = match sys::connect_at_once(socket) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            if *ask == Ask::Status {
                note_stopped(socket);
            }
            bail!(Crowded);
        }
        connected => connected?,
    };
    let patience = match ask {
        Ask::Metrics => METRICS_TIMEOUT,
        Ask::Status | Ask::Probe { .. } => STATUS_TIMEOUT,
        _ => ANSWER_TIMEOUT,
    };
    write_line(&stream, ask)?;
    let mut lines = BufReader::new(&stream);
    let noted = if *ask == Ask::Status {
        note_silence(&stream, &mut lines, socket, patience)?
    } else {
        Duration::ZERO
    };
    stream.set_read_timeout(Some(patience.saturating_sub(noted)))?;
    let mut last_note = None;
    loop {
        let mut line = String::new();
        let read = lines.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
        if read.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            bail!(Silent(patience));
        }
        read?;
        let tell: Tell =
            serde_json::from_str(&line).context("a process did not answer on its control socket")?;
        if tell.may_detach {
            detach()?;
            continue;
        }
        match (tell.note, tell.error) {
            (Some(note), _) => {
                if last_note.as_ref() != Some(&note) {
                    say::note(&note);
                }
                last_note = Some(note);
            }
            (None, Some(error)) if tell.is_absent => bail!(Absent(error)),
            (None, Some(error)) => return Err(anyhow!(error)),
            (None, None) => return Ok(Tell { note: None, error: None, ..tell }),
        }
    }
}

/// Says which process stands still, when one does that has nothing to do but to answer. Returns how long it was waited for.
///
/// # Errors
/// Somebody has stopped it: it is not waited for any longer.
fn note_silence(
    stream: &UnixStream,
    lines: &mut BufReader<&UnixStream>,
    socket: &Path,
    patience: Duration,
) -> Result<Duration> {
    stream.set_read_timeout(Some(NOTE_AFTER))?;
    if !lines.fill_buf().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
        return Ok(Duration::ZERO);
    }
    if note_stopped(socket) {
        bail!(Silent(NOTE_AFTER));
    }
    let pid = process_of(socket);
    say::note(format_args!("process {pid} says nothing; waiting for it, {} s at most", patience.as_secs()));
    Ok(NOTE_AFTER)
}

/// Says that somebody has stopped a process, if that is so.
fn note_stopped(socket: &Path) -> bool {
    let pid = process_of(socket);
    let is_stopped = pid.parse().is_ok_and(sys::is_stopped);
    if is_stopped {
        say::note(format_args!("process {pid} is stopped, and not waited for; wake it: kill -CONT {pid}"));
    }
    is_stopped
}

fn process_of(socket: &Path) -> Cow<'_, str> {
    socket.file_stem().unwrap_or_default().to_string_lossy()
}

/// Asks a process that may be about to end; `None` when it has ended.
///
/// # Errors
/// As `ask`.
pub fn ask_if_alive(pid: u32, what: &Ask) -> Result<Option<Tell>> {
    let socket = socket_of(pid);
    match ask(&socket, what) {
        Ok(tell) => Ok(Some(tell)),
        // It takes its socket away first, then gives its last answers.
        Err(_) if !socket.exists() || !sys::is_alive(pid) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Process {
    /// The file system that it serves or mounts.
    pub fn fsname(&self) -> Option<&str> {
        let of_targets = self.targets.iter().map(|target| target.fsname.as_str());
        let of_mounts = self.mounts.iter().map(|mount| mount.fsname.as_str());
        of_targets.chain(of_mounts).find(|name| !name.is_empty())
    }

    pub fn has_mount(&self, mount: &Path) -> bool {
        self.mounts.iter().any(|status| status.is_on(mount))
    }

    pub fn has_mounted(&self, mounted: &Mounted) -> bool {
        self.mounts.iter().any(|status| status.is(mounted))
    }
}

impl MountStatus {
    /// Whether it is mounted there now.
    pub fn is_on(&self, path: &Path) -> bool {
        self.path == path && !self.is_detached
    }

    /// Whether it is this one, as whoever asks sees it.
    pub fn is(&self, mounted: &Mounted) -> bool {
        self.is_on(&mounted.path) && (self.device.is_empty() || self.device == mounted.device)
    }

    /// Whether a remount may say this word of ours: it changes none of them.
    pub fn is_in_force(&self, word: &str) -> bool {
        word == "transport=auto"
            || self.options.iter().chain(&self.options_at_start).any(|known| known == word)
    }
}

/// The socket of a process.
pub fn socket_of(pid: u32) -> PathBuf {
    run_dir().join(format!("{pid}.sock"))
}

/// Where the sockets of another user may be: in /tmp anybody may have made such a directory, and would answer for that user.
pub fn run_dirs_of(user: u32) -> Vec<PathBuf> {
    let dirs = [format!("/run/user/{user}/sheen"), format!("/tmp/sheen-{user}")];
    dirs.into_iter().map(PathBuf::from).filter(|dir| is_only_of(dir, user)).collect()
}

/// A directory, and no link to one, into which nobody but this user and root can put anything.
fn is_only_of(dir: &Path, user: u32) -> bool {
    fs::symlink_metadata(dir).is_ok_and(|found| {
        let is_owned = found.uid() == user || found.uid() == 0;
        found.is_dir() && is_owned && found.mode() & 0o022 == 0
    })
}

/// Says that processes run here whose sockets are another user's; for whoever has heard of none.
///
/// # Errors
/// There are some. In which directory, and whose they are.
pub fn check_others() -> Result<()> {
    let (user, own) = (sys::uid(), run_dir());
    // Root may ask them all there.
    let mut dirs = if user == 0 { Vec::new() } else { vec![own.clone()] };
    if std::env::var_os("SHEEN_RUN").is_none_or(|dir| dir.is_empty()) {
        dirs.push("/run/sheen".into());
        let others: BTreeSet<u32> = mount_table::all_sheen().iter().map(Mounted::user).collect();
        dirs.extend(others.into_iter().filter(|other| *other != user).flat_map(run_dirs_of));
    }
    let found = dirs.iter().find_map(|dir| Some((dir, other_owner(dir, user)?)));
    let Some((dir, owner)) = found else { return Ok(()) };
    let owner = if owner == 0 { "root".to_owned() } else { format!("user {owner}") };
    bail!(
        "the control sockets in {} belong to {owner}, and answer nobody else; ask as {owner}",
        dir.display()
    )
}

/// The owner of a living socket in a directory that is not this user's.
fn other_owner(dir: &Path, user: u32) -> Option<u32> {
    let sockets = listed(dir).into_iter().filter(|(pid, _)| sys::is_alive(*pid));
    let mut owners = sockets.filter_map(|(_, path)| Some(fs::metadata(path).ok()?.uid()));
    owners.find(|owner| *owner != user)
}

/// What all living processes of this user say. Sockets of dead ones are removed.
pub fn processes() -> Vec<Process> {
    processes_in(&run_dir())
}

/// Whether who was asked lives and says nothing.
pub fn is_silence(error: &anyhow::Error) -> bool {
    error.is::<Silent>() || error.is::<Crowded>()
}

/// What all living processes of this user say, and those that live and say nothing.
pub fn processes_and_silent() -> (Vec<Process>, Vec<u32>) {
    let (mut processes, mut silent) = (Vec::new(), Vec::new());
    for (pid, told) in ask_all(&run_dir(), &Ask::Status) {
        match told {
            Ok(tell) => processes.extend(tell.process.map(with_pid)),
            Err(error) if is_silence(&error) => silent.push(pid),
            Err(_) => {}
        }
    }
    (processes, silent)
}

/// Whether a process, which may say nothing itself, was started with this path.
pub fn was_started_with(pid: u32, path: &Path) -> bool {
    has_word(pid, |word| word == path.as_os_str().as_bytes())
}

/// Whether one of the words of a process's command is wanted.
pub fn has_word(pid: u32, is_wanted: impl Fn(&[u8]) -> bool) -> bool {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    command.split(|byte| *byte == 0).any(is_wanted)
}

fn with_pid(mut process: Process) -> Process {
    process.targets.iter_mut().for_each(|target| target.pid = process.pid);
    process.mounts.iter_mut().for_each(|mount| mount.pid = process.pid);
    process
}

/// What the processes say whose sockets are in a directory.
pub fn processes_in(dir: &Path) -> Vec<Process> {
    let mut found = Vec::new();
    for (pid, told) in ask_all(dir, &Ask::Status) {
        match told {
            Ok(tell) => found.extend(tell.process.map(with_pid)),
            Err(error) if is_silence(&error) => say::note(format_args!("process {pid}: {error:#}")),
            Err(_) => {}
        }
    }
    found
}

/// Asks all processes whose sockets are in a directory at the same time, and waits for each as long as for this question.
pub fn ask_all(dir: &Path, what: &Ask) -> Vec<(u32, Result<Tell>)> {
    let mut told = Vec::new();
    for some in sockets_in(dir).chunks(ASKED_AT_ONCE) {
        std::thread::scope(|scope| {
            let begin = |(pid, socket): &(u32, PathBuf)| {
                let (pid, socket) = (*pid, socket.clone());
                (pid, scope.spawn(move || ask(&socket, what)))
            };
            let asking: Vec<_> = some.iter().map(begin).collect();
            let tell = |(pid, thread): (u32, std::thread::ScopedJoinHandle<'_, Result<Tell>>)| {
                (pid, thread.join().unwrap_or_else(|_| bail!("the thread that asked has panicked")))
            };
            told.extend(asking.into_iter().map(tell));
        });
    }
    // What it left behind is no process.
    told.retain(|(pid, tell)| {
        let is_there = tell.is_ok() || sys::is_alive(*pid);
        if !is_there {
            let _ = fs::remove_file(dir.join(format!("{pid}.sock")));
        }
        is_there
    });
    told
}

/// What the process of a mount says of it, if its socket is in this directory. One that was detached from its path and lives on
/// in copies is another one, and so is one that is on the same path in another mount namespace. All are asked at
/// the same time: of a server that hangs nobody wants to hear.
pub fn mount_in(dir: &Path, mounted: &Mounted) -> Option<MountStatus> {
    let (sender, receiver) = mpsc::channel();
    for (_, socket) in sockets_in(dir) {
        let sender = sender.clone();
        // One that is not asked, or answers when nobody waits any more, does not have it.
        let _ = std::thread::Builder::new().name("asking".into()).spawn(move || {
            let told = ask(&socket, &Ask::Status).ok().and_then(|tell| tell.process);
            let _ = sender.send(told.map(with_pid).unwrap_or_default().mounts);
        });
    }
    drop(sender);
    receiver.iter().flatten().find(|mount| mount.is(mounted))
}

/// Process ids, in their order, and sockets.
fn sockets_in(dir: &Path) -> Vec<(u32, PathBuf)> {
    files_in(dir, "sock")
}

fn listed(dir: &Path) -> Vec<(u32, PathBuf)> {
    of_processes(dir, "sock")
}

/// `PID.ENDING` of all processes in a directory of sockets, unless anybody could have put it there.
pub fn files_in(dir: &Path, ending: &str) -> Vec<(u32, PathBuf)> {
    if is_trusted(dir) { of_processes(dir, ending) } else { Vec::new() }
}

fn of_processes(dir: &Path, ending: &str) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let file = |path: PathBuf| {
        let (pid, found) = path.file_name()?.to_str()?.split_once('.')?;
        (found == ending).then_some((pid.parse().ok()?, path))
    };
    let mut files: Vec<(u32, PathBuf)> = entries.filter_map(|entry| file(entry.path())).collect();
    files.sort_unstable();
    files
}

#[cfg(test)]
mod tests;
