//! The fence command: it makes sure that the old owner of a target can no longer write, and says so by its exit status.

use crate::sys;
use anyhow::{Context, Result, bail};
use base::{Epoch, TargetId};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use wire::TargetOwner;

/// A cloud's API may take its time to detach a volume. Whoever takes longer is killed, and has not said that it worked.
pub const LIMIT: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Runs it. What it prints goes where this process prints. `is_own_host`: the owner ran on this machine, which must not be switched off for it.
///
/// # Errors
/// It cannot be run, does not end, or does not say that the owner is fenced.
pub fn run(
    command: &str,
    target: TargetId,
    owner: &TargetOwner,
    epoch: Epoch,
    is_own_host: bool,
) -> Result<()> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null());
    shell.env("SHEEN_FENCE_TARGET", target.to_string()).env("SHEEN_FENCE_NID", &owner.nid);
    shell.env("SHEEN_FENCE_HOST", &owner.host).env("SHEEN_FENCE_PID", owner.pid.to_string());
    shell.env("SHEEN_FENCE_EPOCH", epoch.0.to_string());
    shell.env("SHEEN_FENCE_IS_SELF", if is_own_host { "1" } else { "0" });
    sys::detach_with_signals(&mut shell);
    let child = shell.spawn().context("the fence command cannot be run")?;
    match wait(child)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => bail!("the fence command has failed ({status})"),
        None => bail!("the fence command has not ended in {} s", LIMIT.as_secs()),
    }
}

fn wait(mut child: Child) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    // With what it has started: it might cut a host off when nobody counts on that any more.
    sys::kill_group(&child);
    child.wait()?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that was killed and started again finds the lease of its former self ended.
    #[test]
    fn a_fence_command_is_told_whether_it_would_fence_its_own_host() {
        let owner = TargetOwner { server: 1, nid: "h@tcp".into(), pid: 1, host: "h".into() };
        for (word, is_own_host) in [("1", true), ("0", false)] {
            let command = format!("test \"$SHEEN_FENCE_IS_SELF\" = {word}");
            let fence = |is_own_host| run(&command, TargetId::ost(0), &owner, Epoch(1), is_own_host);
            assert!(fence(is_own_host).is_ok() && fence(!is_own_host).is_err(), "{word}");
        }
    }

    /// This process keeps the signals that end it for itself; what a fence command starts is ended by them as usual.
    #[test]
    fn a_fence_command_can_end_what_it_has_started() {
        let ended = std::thread::spawn(|| {
            sys::hold_end_signals();
            let owner = TargetOwner { server: 1, nid: "h@tcp".into(), pid: 1, host: "h".into() };
            run("kill -TERM $$; exit 0", TargetId::ost(0), &owner, Epoch(1), false)
        });
        assert!(ended.join().is_ok_and(|result| result.is_err()), "the shell has ended itself");
    }
}
