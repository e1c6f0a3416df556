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

/// Who is to be fenced.
pub struct Victim<'a> {
    pub fsname: &'a str,
    pub target: TargetId,
    pub owner: &'a TargetOwner,
    pub epoch: Epoch,
    /// It ran on this machine, which must not be switched off for it.
    pub is_own_host: bool,
}

/// How it was made sure that the owner cannot write any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fenced {
    /// The command has said so.
    ByCommand,
    /// Somebody who knows has said so before it ended, and it was killed.
    ByWord,
}

/// Runs it, unless `is_confirmed` meanwhile. What it prints goes where this process prints.
///
/// # Errors
/// It cannot be run, does not end, or does not say that the owner is fenced.
pub fn run(command: &str, victim: &Victim<'_>, is_confirmed: impl Fn() -> bool) -> Result<Fenced> {
    let Victim { fsname, target, owner, epoch, is_own_host } = victim;
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null());
    shell.env("SHEEN_FENCE_FSNAME", fsname);
    shell.env("SHEEN_FENCE_TARGET", target.to_string()).env("SHEEN_FENCE_NID", &owner.nid);
    shell.env("SHEEN_FENCE_HOST", &owner.host).env("SHEEN_FENCE_PID", owner.pid.to_string());
    shell.env("SHEEN_FENCE_EPOCH", epoch.0.to_string());
    shell.env("SHEEN_FENCE_IS_SELF", if *is_own_host { "1" } else { "0" });
    sys::detach_with_signals(&mut shell);
    let child = shell.spawn().context("the fence command cannot be run")?;
    match wait(child, &is_confirmed)? {
        Some(status) if status.success() => Ok(Fenced::ByCommand),
        _ if is_confirmed() => Ok(Fenced::ByWord),
        Some(status) => bail!("the fence command has failed ({status})"),
        None => bail!("the fence command has not ended in {} s", LIMIT.as_secs()),
    }
}

fn wait(mut child: Child, is_confirmed: impl Fn() -> bool) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    while start.elapsed() < LIMIT && !is_confirmed() {
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

    fn fence(command: &str, is_own_host: bool) -> Result<()> {
        let owner = TargetOwner { server: 1, nid: "h@tcp".into(), pid: 1, host: "h".into() };
        let (fsname, target, epoch) = ("fs", TargetId::ost(0), Epoch(1));
        run(command, &Victim { fsname, target, owner: &owner, epoch, is_own_host }, || false).map(drop)
    }

    /// A server that was killed and started again finds the lease of its former self ended.
    #[test]
    fn a_fence_command_is_told_whether_it_would_fence_its_own_host() {
        for (word, is_own_host) in [("1", true), ("0", false)] {
            let command = format!("test \"$SHEEN_FENCE_IS_SELF\" = {word}");
            assert!(fence(&command, is_own_host).is_ok() && fence(&command, !is_own_host).is_err(), "{word}");
        }
    }

    /// One command may serve several file systems.
    #[test]
    fn a_fence_command_is_told_which_target_it_is() {
        fence("test \"$SHEEN_FENCE_FSNAME-$SHEEN_FENCE_TARGET\" = fs-OST0000", false).expect("it is");
    }

    /// This process keeps the signals that end it for itself; what a fence command starts is ended by them as usual.
    #[test]
    fn a_fence_command_can_end_what_it_has_started() {
        let ended = std::thread::spawn(|| {
            sys::hold_end_signals();
            fence("kill -TERM $$; exit 0", false)
        });
        assert!(ended.join().is_ok_and(|result| result.is_err()), "the shell has ended itself");
    }
}
