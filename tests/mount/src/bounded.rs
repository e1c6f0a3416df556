//! Running a command so that it always ends: a process group of its own, a hard limit, SIGKILL for the whole group and for every
//! process that carries its tag, and no wait for a process that does not die.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::{sweep, sys};

/// How long a killed process may take to disappear before we go on without it (it is in an uninterruptible wait).
const DEATH_WAIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// How a bounded command ended.
#[derive(Debug)]
pub enum End {
    /// It ended by itself.
    Exited(ExitStatus),
    /// Its time was over; `is_stuck` if it did not even die of SIGKILL.
    TimedOut { is_stuck: bool },
}

impl End {
    /// True if the command ended by itself with status 0.
    pub fn is_success(&self) -> bool {
        matches!(self, End::Exited(status) if status.success())
    }

    /// The exit status, if the command ended by itself and not by a signal.
    pub fn status_code(&self) -> Option<i32> {
        match self {
            End::Exited(status) => status.code(),
            End::TimedOut { .. } => None,
        }
    }

    /// One phrase for reports.
    pub fn describe(&self) -> String {
        match self {
            End::Exited(status) => format!("{status}"),
            End::TimedOut { is_stuck: false } => "time limit, killed".to_owned(),
            End::TimedOut { is_stuck: true } => "time limit, killed, but a process would not die".to_owned(),
        }
    }
}

/// Runs `command` with its output in the file `log` (appended) for at most `limit`. `tag` is an environment entry
/// (`NAME=VALUE`) that every descendant inherits, however it detaches itself; on expiry all of them are killed. `tick` is called
/// about fifty times a second with the time spent.
pub fn run(
    command: &mut Command,
    tag: &str,
    limit: Duration,
    log: &Path,
    tick: &mut dyn FnMut(Duration),
) -> io::Result<End> {
    let output = File::options().create(true).append(true).open(log)?;
    let errors = output.try_clone()?;
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    let (mut child, started) = (spawn_tagged(command, tag)?, Instant::now());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(End::Exited(status));
        }
        if started.elapsed() >= limit {
            return Ok(End::TimedOut { is_stuck: !kill(&mut child, tag) });
        }
        tick(started.elapsed());
        std::thread::sleep(POLL);
    }
}

/// Starts `command` in a process group of its own with the tag in its environment.
pub fn spawn_tagged(command: &mut Command, tag: &str) -> io::Result<Child> {
    if let Some((name, value)) = tag.split_once('=') {
        command.env(name, value);
    }
    command.process_group(0).spawn()
}

/// Kills the child's group and everything with its tag; false if the child itself is still there a minute later.
pub fn kill(child: &mut Child, tag: &str) -> bool {
    kill_group(child);
    sweep::kill_tagged(tag);
    let started = Instant::now();
    while started.elapsed() < DEATH_WAIT {
        if matches!(child.try_wait(), Ok(Some(_))) {
            return true;
        }
        std::thread::sleep(POLL);
    }
    false
}

fn kill_group(child: &Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        // Gone already is what we want.
        let _ = sys::kill(-group, libc::SIGKILL);
    }
}

/// What a short command said.
#[derive(Debug)]
pub struct Said {
    pub end: End,
    pub output: String,
    pub errors: String,
}

impl Said {
    /// True if the command ended by itself with status 0.
    pub fn is_success(&self) -> bool {
        self.end.is_success()
    }

    /// Everything it printed, standard output first.
    pub fn all(&self) -> String {
        format!("{}{}", self.output, self.errors)
    }
}

/// Runs a short command to its end or its limit and returns what it printed (at most what two temporary files hold).
pub fn say(command: &mut Command, tag: &str, limit: Duration) -> io::Result<Said> {
    let (output, errors) = (tempfile::NamedTempFile::new()?, tempfile::NamedTempFile::new()?);
    command.stdin(Stdio::null()).stdout(output.reopen()?).stderr(errors.reopen()?);
    let (mut child, started) = (spawn_tagged(command, tag)?, Instant::now());
    let end = loop {
        if let Some(status) = child.try_wait()? {
            break End::Exited(status);
        }
        if started.elapsed() >= limit {
            break End::TimedOut { is_stuck: !kill(&mut child, tag) };
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let text = |path: &Path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Said { end, output: text(output.path())?, errors: text(errors.path())? })
}

/// The last `line_count` lines of a file, for reports.
pub fn tail(path: &Path, line_count: usize) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(line_count)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests;
