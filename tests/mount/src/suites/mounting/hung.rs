//! Mounts whose process stands still: who opens one waits with it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{LIMIT, bounded_end, start};
use crate::case::{Context, expect, write};
use crate::sweep;
use crate::sys;

/// No mark for speed: without it a command that waits for the process would hold up the suite.
const UMOUNT_LIMIT: Duration = Duration::from_secs(60);

/// Nothing of it is asked, and it is gone from its place.
pub(super) fn umount(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    for option in ["--lazy", "--force"] {
        let mount = cluster.mount_again(option.trim_start_matches('-'))?;
        write(&mount.join("file"), b"written")?;
        let mounts = cluster.mounts()?;
        let pid = mounts.iter().find(|(path, _)| Path::new(path) == mount).map(|(_, pid)| *pid);
        let pid = pid.context("the process of the mount")?;
        sys::kill(pid, libc::SIGSTOP)?;
        let said = cluster.try_sheen(&["umount", option, &mount.to_string_lossy()], UMOUNT_LIMIT);
        sys::kill(pid, libc::SIGCONT)?;
        let said = said?;
        println!("$ sheen umount {option}\n{}[{}]", said.all(), said.end.describe());
        expect(said.is_success(), &format!("umount {option} of a mount that hangs works"))?;
        expect(sweep::mounts_under(&mount).is_empty(), "it is gone from its place")?;
        bounded_end(pid, LIMIT)?;
    }
    cluster.down().map(drop)
}
