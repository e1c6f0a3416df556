//! Servers of a cluster that live and say nothing: stopped by somebody, at a standstill with their devices, or without their control socket.
//! Nobody can ask them to end.

use super::belongs;
use crate::cluster::Cluster;
use crate::control::{self, Process};
use crate::daemon;
use crate::say;
use crate::served;
use crate::sys;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};
use store_disk::TargetDirectory;

/// A server that is asked to end may be busy, or just starting; one that says nothing for this long hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same where it is to be killed otherwise.
const PATIENCE_TO_KILL: Duration = Duration::from_secs(10);
/// Who was killed has this long to give its memory back.
const GOING_TIMEOUT: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The processes of a cluster, and the servers of it that say nothing, by process id.
pub fn of_cluster(dir: &Path, cluster: Option<&Cluster>) -> (Vec<Process>, Vec<u32>) {
    let (mut processes, silent) = control::processes_and_silent();
    let mut servers = serving(dir, cluster);
    servers.extend(silent.into_iter().filter(|pid| was_started_below(*pid, dir) && is_server(*pid)));
    let answers = |pid: u32| processes.iter().any(|process| process.pid == pid);
    let silent = servers.into_iter().filter(|pid| !answers(*pid)).collect();
    processes.retain(|process| belongs(process, dir));
    (processes, silent)
}

/// The servers of a cluster that have something of it for themselves.
fn serving(dir: &Path, cluster: Option<&Cluster>) -> BTreeSet<u32> {
    let targets = cluster.into_iter().flat_map(|cluster| &cluster.servers).flat_map(|server| &server.targets);
    let holders = targets.filter_map(|target| TargetDirectory::served_by(&dir.join(target)));
    served::living_below(dir).into_iter().chain(holders).filter(|pid| is_server(*pid)).collect()
}

/// Others, as fsck, have a target for themselves, too.
fn is_server(pid: u32) -> bool {
    control::has_word(pid, |word| word == b"serve") && sys::is_alive(pid)
}

/// Refuses a cluster whose servers answer where this command does not ask: they would be taken for silent ones.
///
/// # Errors
/// One does. Which, and where it is to be asked.
pub fn check_are_asked(dir: &Path, cluster: Option<&Cluster>) -> Result<()> {
    let servers = serving(dir, cluster).into_iter().filter(|pid| !control::socket_of(*pid).exists());
    for pid in servers {
        if let Some(run_dir) = control::answers_elsewhere(pid) {
            bail!(
                "process {pid}, a server of this cluster, has its control socket in {}, and nothing was ended: SHEEN_RUN={} sheen down --dir {}",
                run_dir.display(),
                served::quoted_path(&run_dir),
                served::quoted_path(dir)
            );
        }
    }
    Ok(())
}

fn was_started_below(pid: u32, dir: &Path) -> bool {
    control::has_word(pid, |word| Path::new(OsStr::from_bytes(word)).starts_with(dir))
}

/// As `of_cluster`, when all say something, or it is no use to wait any longer.
fn wait(dir: &Path, cluster: Option<&Cluster>, limit: Duration) -> (Vec<Process>, Vec<u32>) {
    let start = Instant::now();
    loop {
        // Waits itself for those with a socket.
        let (processes, silent) = of_cluster(dir, cluster);
        if silent.iter().all(|pid| sys::is_stopped(*pid)) || start.elapsed() >= limit {
            return (processes, silent);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// The processes of a cluster.
///
/// # Errors
/// A server of it says nothing. Which one, and what to do.
pub fn all_answering(dir: &Path, cluster: Option<&Cluster>) -> Result<Vec<Process>> {
    let (processes, silent) = wait(dir, cluster, PATIENCE);
    let Some(pid) = silent.first() else { return Ok(processes) };
    let what = if sys::is_stopped(*pid) { "is stopped" } else { "lives and says nothing" };
    bail!(
        "process {pid}, a server of this cluster, {what}, and no server was ended: let it go on (kill -CONT {pid}), or kill it with all that \
         is left: {}",
        super::forced_down_command(dir)
    )
}

/// Kills the servers of a cluster that say nothing. -> its other processes, and those that were killed.
///
/// # Errors
/// One cannot be killed.
pub fn kill(dir: &Path, cluster: Option<&Cluster>) -> Result<(Vec<Process>, Vec<u32>)> {
    let (processes, silent) = wait(dir, cluster, PATIENCE_TO_KILL);
    for pid in &silent {
        say::note(format_args!(
            "process {pid}, a server of this cluster, lives and says nothing: it is killed"
        ));
        if let Err(error) = sys::kill(*pid, libc::SIGKILL)
            && sys::is_alive(*pid)
        {
            return Err(error).with_context(|| format!("cannot kill process {pid}"));
        }
    }
    Ok((processes, silent))
}

/// Waits until a process that was killed is gone.
///
/// # Errors
/// It is not: its device stands still.
pub fn wait_gone(pid: u32) -> Result<()> {
    if !daemon::wait_gone(pid, GOING_TIMEOUT) {
        bail!(
            "process {pid} was killed and has not gone in {} s: its device stands still",
            GOING_TIMEOUT.as_secs()
        );
    }
    // Whoever asks all processes next would remove it, too.
    let _ = fs::remove_file(control::socket_of(pid));
    Ok(())
}
