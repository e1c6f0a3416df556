//! What is mounted and answers nobody.

use crate::alive;
use crate::control;
use crate::mount_table::{self, Mounted};
use crate::sys;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a process that was killed may take to let go of its files.
const DEATH_PATIENCE: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Frees the place of a mount of this user whose process is gone.
///
/// # Errors
/// Its process lives and says nothing: what was written there would be lost with it. Or it cannot be unmounted.
pub fn free(mount: &Path) -> Result<()> {
    let start = Instant::now();
    let user = sys::uid();
    let is_ours = |mounted: &Mounted| mounted.is_sheen() && mounted.user() == user;
    while let Some(mounted) = mount_table::mounted_on(mount).filter(is_ours) {
        let (processes, silent) = control::processes_and_silent();
        if processes.iter().any(|process| process.has_mounted(&mounted)) {
            break;
        }
        let told = processes.iter().flat_map(|process| &process.mounts);
        let told = told.filter(|status| status.path == mount && status.source == mounted.source).count();
        if alive::count_at(mount, &mounted.source) <= told {
            detach(mount)?;
        } else if start.elapsed() < DEATH_PATIENCE {
            std::thread::sleep(LOOK_INTERVAL);
        } else {
            let mut pids = silent.into_iter().filter(|pid| control::was_started_with(*pid, mount));
            let pid = pids.next().map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
            bail!(
                "the process that has mounted {} lives and says nothing: let it go on (kill -CONT {pid}), or end it, and what it has \
                 not written yet is lost (kill -9 {pid})",
                mount.display()
            );
        }
    }
    Ok(())
}

/// The same, though its process may live: what that has not written yet is lost.
///
/// # Errors
/// It cannot be unmounted.
pub fn free_silent(mount: &Path) -> Result<()> {
    let is_served =
        |mounted: &Mounted| control::processes().iter().any(|process| process.has_mounted(mounted));
    let is_dead = |mounted: Mounted| mounted.is_sheen() && !is_served(&mounted);
    while mount_table::mounted_on(mount).is_some_and(is_dead) {
        detach(mount)?;
    }
    Ok(())
}

fn detach(mount: &Path) -> Result<()> {
    fuse::unmount(mount, true).with_context(|| format!("cannot free the dead mount {}", mount.display()))?;
    mount_table::forget_helper(mount);
    Ok(())
}
