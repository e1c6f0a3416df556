//! Processes in the background: started by us, in the end in a session of their own, they say in one line when they are ready or
//! why not.

use crate::control;
use crate::say;
use crate::sys;
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A process that has said nothing for this long hangs.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// For words that came while nobody could read them.
const STOPPED_GRACE: Duration = Duration::from_secs(1);

/// Somebody who waits for longer than a mount waits for the management server is told what for.
const NOTE_AFTER: Duration = Duration::from_secs(20);

/// The first words of a background process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    pub error: Option<String>,
    /// `HOST:PORT` on which it listens.
    pub address: Option<String>,
    /// Why some of its targets are not served, a line for each.
    #[serde(default)]
    pub refused: Vec<String>,
}

/// Starts `sheen ARGUMENTS… --ready-fd N --log LOG`; `Starting::wait` says what became of it. The process keeps `held` open until it
/// is ready, and with it a lock on that file.
///
/// # Errors
/// It cannot be started at all.
pub fn start(arguments: &[OsString], log: &Path, held: Option<&File>) -> Result<Starting> {
    start_at(Place::default(), arguments, log, held)
}

/// The name of a process that serves the root of its machine: systemd leaves alone, to the end, what begins with this sign
/// (<https://systemd.io/ROOT_STORAGE_DAEMONS>).
pub const ROOT_SERVER_NAME: &str = "@sheen";

/// As `start`, for a process that mounts, perhaps under another name than that of the program.
///
/// # Errors
/// It cannot be started at all.
pub fn start_mount(name: Option<&str>, arguments: &[OsString], log: &Path) -> Result<Starting> {
    start_at(Place { name, mounts: true, ..Place::default() }, arguments, log, None)
}

/// What a process is called, and where it is found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    pub name: Option<&'a str>,
    /// Another one than ours: as on another machine.
    pub run_dir: Option<&'a Path>,
    /// It stays in our session and process group until it is ready. By the group autofs knows who mounts for it: anybody else who comes to
    /// the mount point meanwhile waits for the mount.
    pub mounts: bool,
}

/// As `start`, in such a place.
///
/// # Errors
/// It cannot be started at all.
pub fn start_at(
    place: Place<'_>,
    arguments: &[OsString],
    log: &Path,
    held: Option<&File>,
) -> Result<Starting> {
    // The process works in another directory.
    let log =
        &std::path::absolute(log).with_context(|| format!("'{}' is no path of a log", log.display()))?;
    if let Some(dir) = log.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let log_file = File::options().create(true).append(true).open(log);
    let log_file = log_file.with_context(|| format!("cannot open the log {}", log.display()))?;
    let (words, said) = sys::pipe()?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    if let Some(name) = place.name {
        command.arg0(name);
    }
    command.args(arguments).arg("--log").arg(log).arg("--ready-fd").arg(said.as_raw_fd().to_string());
    let mut open = vec![said.as_raw_fd()];
    if let Some(held) = held.map(AsRawFd::as_raw_fd) {
        command.arg("--held-fd").arg(held.to_string());
        open.push(held);
    }
    command.stdin(Stdio::null()).stdout(log_file.try_clone()?).stderr(log_file).current_dir("/");
    // It must be found where we look.
    command.env("SHEEN_RUN", place.run_dir.map_or_else(control::run_dir, Path::to_path_buf));
    sys::hand_over(&mut command, open);
    if !place.mounts {
        sys::detach(&mut command);
    }
    let child = command.spawn().context("cannot start a background process")?;
    // Our copy of the writing end: without it the end of the child is the end of its words.
    drop(said);
    Ok(Starting { pid: child.id(), words, log: log.display().to_string() })
}

/// A process of which nothing has been heard yet.
pub struct Starting {
    pub pid: u32,
    words: File,
    log: String,
}

impl Starting {
    /// Waits until it is ready; says that it does when that takes long. `what` names the process.
    ///
    /// # Errors
    /// What it said, or that it ended or hangs. A hanging one is killed.
    pub fn wait(self, what: &str) -> Result<Ready> {
        let (sender, receiver) = mpsc::channel();
        let words = self.words;
        std::thread::spawn(move || {
            let mut line = String::new();
            // An early end is an empty line.
            let _ = BufReader::new(words).read_line(&mut line);
            let _ = sender.send(line);
        });
        let line = receiver.recv_timeout(NOTE_AFTER).or_else(|_| {
            say::note(format_args!("waiting for {what} to be ready; see {}", self.log));
            receiver.recv_timeout(READY_TIMEOUT.saturating_sub(NOTE_AFTER))
        });
        // A terminal may have stopped us meanwhile, and not the process: what it has said is still to be read.
        let line = line.or_else(|_| receiver.recv_timeout(STOPPED_GRACE));
        let Ok(line) = line else {
            let _ = sys::kill(self.pid, libc::SIGKILL);
            bail!("it was not ready after {} s; see {}", READY_TIMEOUT.as_secs(), self.log);
        };
        let Ok(ready) = serde_json::from_str::<Ready>(&line) else {
            bail!("it ended at its start; see {}", self.log);
        };
        match ready.error {
            Some(error) => Err(anyhow!(error)),
            None => Ok(ready),
        }
    }
}

/// Says our first words to whoever started us. From then on we are in a session of our own.
pub fn tell(ready_fd: Option<i32>, ready: &Ready) {
    let Some(fd) = ready_fd else { return };
    sys::start_session();
    let Ok(mut file) = sys::inherited_file(fd) else { return };
    let mut line = serde_json::to_vec(ready).unwrap_or_default();
    line.push(b'\n');
    // Nobody may be waiting any more.
    let _ = file.write_all(&line);
}

/// Waits until a process is gone; true when it is.
pub fn wait_gone(pid: u32, limit: Duration) -> bool {
    let start = Instant::now();
    while sys::is_alive(pid) {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
