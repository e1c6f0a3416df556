//! `sheen health MOUNT`: whether a mount and all that it needs are well, and what to do where they are not.
//!
//! Nothing here touches the mounted directory: a mount whose MDT is dead would keep whoever does. The kernel's table says what is
//! mounted, and the process of the mount asks the targets (`Ask::Probe`), each for seconds at most.

mod judge;

use crate::control::{self, Ask, MountStatus, TargetHealth};
use crate::listen::HOW_TO_SERVE;
use crate::mount::unasked::{self, Unasked};
use crate::mount_table::{self, Mounted};
use crate::nid;
use crate::say;
use crate::served;
use crate::sys;
use clap::Args;
pub use judge::{LOW_PERCENT, percent_left};
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Exit status of wrong usage: 0, 1 and 2 are green, yellow and red.
pub const USAGE: u8 = 3;
/// A management server that does not accept a connection in this time is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Exit status: 0 all is green, 1 something is yellow, 2 something is red, 3 wrong usage
#[derive(Debug, Args)]
pub struct Health {
    /// The mount, or any path in it
    pub mount: PathBuf,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Green,
    /// It works, and somebody should look at it.
    Yellow,
    /// Something does not work.
    Red,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Green => "green",
            Level::Yellow => "yellow",
            Level::Red => "red",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub level: Level,
    /// `mount`, `OST0003`.
    pub subject: String,
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub todo: Option<String>,
}

impl Check {
    pub fn green(subject: &str, found: impl Into<String>) -> Check {
        Check { level: Level::Green, subject: subject.to_owned(), found: found.into(), todo: None }
    }

    pub fn bad(level: Level, subject: &str, found: impl Into<String>, todo: impl Into<String>) -> Check {
        let (found, todo) = (found.into(), Some(todo.into()));
        Check { level, subject: subject.to_owned(), found, todo }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    level: Level,
    #[serde(with = "crate::path_words")]
    mount: PathBuf,
    checks: Vec<Check>,
    /// As the mount sees them.
    targets: Vec<TargetHealth>,
}

/// The command; its status is the worst that was found.
pub fn health(arguments: &Health) -> ExitCode {
    let report = look(&arguments.mount);
    let text = match arguments.json {
        true => serde_json::to_string_pretty(&report).map(|text| text + "\n").unwrap_or_default(),
        false => to_text(&report),
    };
    if let Err(error) = say::outcome(&text) {
        say::note(format_args!("{error:#}"));
    }
    ExitCode::from(report.level as u8)
}

fn to_text(report: &Report) -> String {
    let mut text = String::new();
    for check in &report.checks {
        // Writing to memory cannot fail.
        let _ = write!(text, "{:<6} {:<9} {}", check.level.word(), check.subject, check.found);
        let _ = match &check.todo {
            Some(todo) => writeln!(text, "; {todo}"),
            None => writeln!(text),
        };
    }
    let _ = writeln!(text, "{:<6} {}", report.level.word(), report.mount.display());
    text
}

fn look(path: &Path) -> Report {
    let (mut checks, mut targets) = (Vec::new(), Vec::new());
    let mounted = find(path);
    let mount = mounted.as_ref().map_or_else(|| path.to_owned(), |mounted| mounted.path.clone());
    match mounted {
        Some(mounted) => targets = look_at_mount(&mounted, &mut checks),
        None if is_missing(path) => checks.push(Check::bad(
            Level::Red,
            "mount",
            format!("{} does not exist", path.display()),
            "see `sheen mounts`",
        )),
        None => checks.push(Check::bad(
            Level::Red,
            "mount",
            format!("{} is on no SheenFS mount", path.display()),
            format!("mount it: sheen mount NID:/FSNAME {}; see `sheen mounts`", served::quoted_path(path)),
        )),
    }
    let level = checks.iter().map(|check| check.level).max().unwrap_or(Level::Red);
    Report { level, mount, checks, targets }
}

/// It is in none of our mounts: whoever looks at it is not kept.
fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// The mount of ours that a path is in. Only the path itself is asked about, then its directory, whose name may be a symbolic link.
fn find(path: &Path) -> Option<Mounted> {
    let path = std::path::absolute(path).ok()?;
    let is_ours = |path: &Path| mount_table::above(path).filter(Mounted::is_sheen);
    if let Some(mounted) = is_ours(&path) {
        return Some(mounted);
    }
    let parent = path.parent()?.canonicalize().ok()?;
    is_ours(&parent.join(path.file_name()?)).or_else(|| is_ours(&path.canonicalize().ok()?))
}

fn look_at_mount(mounted: &Mounted, checks: &mut Vec<Check>) -> Vec<TargetHealth> {
    let Some((socket, status)) = process_of(mounted) else {
        let dirs = run_dirs(mounted);
        let mut found = dirs.iter().map(|dir| unasked::look(dir, mounted));
        let known = found.find(|why| *why != Unasked::Elsewhere);
        checks.push(judge::unasked(mounted, known.unwrap_or(Unasked::Elsewhere)));
        return Vec::new();
    };
    let mut options = mounted.flags();
    options.extend(status.options.iter().cloned());
    checks.push(Check::green(
        "mount",
        format!("{} of {} by process {}", mounted.path.display(), status.source, status.pid),
    ));
    checks.push(Check::green("options", options.join(",")));
    checks.extend(overlays(&mounted.path, &status.options));
    checks.push(version(&socket));
    let (management, unreached) = management(&status.mgs_nids);
    let at = checks.len();
    checks.push(management);
    let ask = Ask::Probe { mount: mounted.path.clone() };
    match control::ask(&socket, &ask) {
        Ok(tell) => {
            checks.extend(tell.health.iter().map(judge::target));
            let network = unreached.as_ref().and_then(|why| judge::network(why, &tell.health));
            if let Some(network) = network {
                // That is what to do about all of them.
                let is_used =
                    |name: &str| tell.health.iter().any(|health| health.is_used && health.target == name);
                for check in
                    checks.iter_mut().filter(|check| check.subject == "MGS" || is_used(&check.subject))
                {
                    check.todo = None;
                }
                checks.insert(at, network);
            }
            checks.extend(judge::space(&tell.health));
            tell.health
        }
        Err(error) => {
            let todo = format!("see its log; mount it again if it hangs (process {})", status.pid);
            checks.push(Check::bad(
                Level::Red,
                "targets",
                format!("the mount cannot be asked: {error:#}"),
                todo,
            ));
            Vec::new()
        }
    }
}

/// Where the control socket of its process may be.
fn run_dirs(mounted: &Mounted) -> Vec<PathBuf> {
    let mut dirs = vec![control::run_dir()];
    if sys::uid() == 0 && mounted.user() != 0 {
        dirs.extend(control::run_dirs_of(mounted.user()));
    }
    dirs
}

/// The control socket of the process behind a mount, and what it says of it.
pub fn process_of(mounted: &Mounted) -> Option<(PathBuf, MountStatus)> {
    run_dirs(mounted).into_iter().find_map(|dir| {
        let mount = control::mount_in(&dir, mounted)?;
        Some((dir.join(format!("{}.sock", mount.pid)), mount))
    })
}

/// Nothing where there is none.
fn overlays(path: &Path, options: &[String]) -> Option<Check> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    judge::overlays(&mount_table::overlays_within(path), options, &release)
}

fn version(socket: &Path) -> Check {
    let asked = control::ask(socket, &Ask::GetParam { pattern: "version".to_owned() });
    let theirs = asked.ok().and_then(|tell| Some(tell.params.first()?.1.trim().to_owned()));
    judge::version(theirs.as_deref().and_then(|text| text.strip_prefix("sheen: ")).unwrap_or("unknown"))
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let address = nid::parse_nid(address).map_err(io::Error::other)?;
    let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    connect_to_any(&addresses, TcpStream::connect_timeout)
}

/// Tries the addresses of one name in turn, each for its part of the time: a server need not listen on all of them.
///
/// # Errors
/// That of one that has refused, which is reached, or else of the first.
fn connect_to_any<T>(
    addresses: &[SocketAddr],
    connect: impl Fn(&SocketAddr, Duration) -> io::Result<T>,
) -> io::Result<T> {
    let limit = CONNECT_TIMEOUT / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut failures = Vec::new();
    for address in addresses {
        match connect(address, limit) {
            Ok(connected) => return Ok(connected),
            Err(error) => failures.push(error),
        }
    }
    let refused = failures.iter().position(|error| error.kind() == ErrorKind::ConnectionRefused);
    failures.into_iter().nth(refused.unwrap_or(0)).map_or(Err(ErrorKind::NotFound.into()), Err)
}

/// Mounts go on without it, so that it is never red. With it comes how connecting to it fails, where no machine has answered.
fn management(addresses: &[String]) -> (Check, Option<io::Error>) {
    let (mut unreached, mut is_refused) = (None, false);
    let found = addresses.iter().find(|address| {
        let failure = connect(address).err();
        let is_there = failure.is_none();
        is_refused |= failure.as_ref().is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        unreached = unreached.take().or(failure);
        is_there
    });
    let check = match found {
        Some(address) => Check::green("MGS", format!("listens on {address}")),
        None if addresses.is_empty() => Check::green("MGS", "in the process of the mount"),
        None => Check::bad(
            Level::Yellow,
            "MGS",
            format!("does not listen on {}; what is mounted goes on", addresses.join(", ")),
            format!("start it (sheen up, {HOW_TO_SERVE}): new mounts and restarted servers need it"),
        ),
    };
    // Who refuses is reached.
    let is_cut_off = check.level != Level::Green && !is_refused;
    (check, unreached.filter(|_| is_cut_off))
}

/// What a mount has found, for whoever asks its process.
pub fn of_probes(probes: Vec<client::TargetProbe>) -> Vec<TargetHealth> {
    probes.into_iter().map(judge::describe).collect()
}

#[cfg(test)]
mod tests;
