//! `status`, `mounts`, `sync`, `umount`: what runs here.

mod alerts;
mod report;
mod text;

use crate::cli;
use crate::control::{self, Ask, Leave, MountStatus, Process, TargetStatus};
use crate::lfs;
use crate::mount::unasked::{self, Unasked};
use crate::mount::unmount;
use crate::mount_table::{self, Mounted};
use crate::sys;
use crate::up;
use anyhow::{Context, Result, bail};
use report::Report;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

/// The state of a target that works.
pub const ACTIVE: &str = "active";
/// The state of a target whose device failed: it runs and refuses everything.
pub const FENCED: &str = "failed";
/// The state of a target that writes nothing before its process has heard that it owns it still.
pub const HELD: &str = "held";
/// The state of a target that works, and that nobody can find: the management server has not taken it since its process began.
pub const WAITING: &str = "waiting";
/// The state of a target that another process serves: here nobody is served.
pub const REFUSED: &str = "refused";
/// The state of a target whose process lives and says nothing.
pub const SILENT: &str = "silent";
/// The state of a target that nobody serves.
pub const DOWN: &str = "down";
/// To the upper left, and away with what is below.
const CLEAR_SCREEN: &str = "\x1b[H\x1b[J";

/// Prints targets and mounts, of one cluster or of all; again and again with `--watch`.
///
/// # Errors
/// `--dir` without a cluster, or nothing is heard but that there are processes of other users.
pub fn status(arguments: &cli::Status) -> Result<()> {
    let dir = arguments.dir.as_deref().map(|dir| up::data_dir(Some(dir))).transpose()?;
    let look = || -> Result<String> {
        let report = Report::look(dir.as_deref())?;
        Ok(if arguments.json { serde_json::to_string(&report)? + "\n" } else { text::of(&report) })
    };
    let Some(seconds) = arguments.watch else {
        print!("{}", look()?);
        return Ok(());
    };
    let is_screen = io::stdout().is_terminal() && !arguments.json;
    loop {
        // A cluster that is being made or removed has no status for a moment.
        let shown =
            look().or_else(|error| if is_screen { Ok(format!("{error:#}\n")) } else { Err(error) })?;
        let mut out = io::stdout().lock();
        let before = if is_screen { CLEAR_SCREEN } else { "" };
        let after = if is_screen || arguments.json { "" } else { "\n" };
        write!(out, "{before}{shown}{after}")?;
        out.flush()?;
        drop(out);
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

/// As in parameters: `sheen-MDT0000`, `MGS`.
pub fn name_of(target: &TargetStatus) -> String {
    if target.name == "MGS" { "MGS".to_owned() } else { format!("{}-{}", target.fsname, target.name) }
}

/// Whom the recovery of a target waits for, and what to do about it, in one line.
pub fn recovery_line(target: &TargetStatus) -> Option<String> {
    let alert = alerts::of_recovery(target)?;
    Some(format!("{}; {}", alert.text, alert.fix))
}

fn flatten(processes: &[Process]) -> (Vec<TargetStatus>, Vec<MountStatus>) {
    let targets = processes.iter().flat_map(|process| process.targets.clone()).collect();
    let mounts = processes.iter().flat_map(|process| process.mounts.clone());
    (targets, mounts.filter(|mount| !mount.is_detached).collect())
}

/// All that this machine has mounted: first what processes tell, then what only the kernel does.
///
/// # Errors
/// Nothing is mounted here, and there are processes of other users.
pub fn mounts(arguments: &cli::Output) -> Result<()> {
    let processes = control::processes();
    let unasked = unasked::all(&processes);
    if processes.is_empty() && unasked.is_empty() {
        control::check_others()?;
    }
    let (_, mut mounts) = flatten(&processes);
    mounts.extend(unasked::copies(&processes));
    if arguments.json {
        mounts.extend(unasked.iter().map(|(mounted, why)| status_of_unasked(mounted, *why)));
        println!("{}", serde_json::to_string(&mounts)?);
        return Ok(());
    }
    mounts.iter().for_each(|mount| println!("{}", line_of_mount(mount)));
    unasked.iter().for_each(|(mounted, why)| println!("{}", line_of_unasked(mounted, *why)));
    Ok(())
}

fn line_of_mount(mount: &MountStatus) -> String {
    let mounted = mount_table::mounted_on(&mount.path);
    let mut options = mounted.map(|mounted| mounted.flags()).unwrap_or_default();
    options.extend(mount.options.iter().cloned());
    let (path, options) = (mount.path.display(), options.join(","));
    format!("{} on {path} type fuse.sheen ({options}) pid {}", mount.source, mount.pid)
}

/// Its own options are not known.
fn line_of_unasked(mounted: &Mounted, why: Unasked) -> String {
    let process = match why {
        Unasked::Stopped(pid) | Unasked::Silent(pid) => format!(" pid {pid}, which does not answer"),
        Unasked::Dead => ", whose process has ended".to_owned(),
        Unasked::Elsewhere => ", whose process cannot be asked here".to_owned(),
    };
    let (path, options) = (mounted.path.display(), mounted.flags().join(","));
    format!("{} on {path} type fuse.sheen ({options}){process}", mounted.source)
}

fn status_of_unasked(mounted: &Mounted, why: Unasked) -> MountStatus {
    MountStatus {
        path: mounted.path.clone(),
        fsname: lfs::fsname_of(&mounted.source).to_owned(),
        source: mounted.source.clone(),
        mgs_nids: Vec::new(),
        transport: String::new(),
        device: mounted.device.clone(),
        is_detached: false,
        options: Vec::new(),
        options_at_start: Vec::new(),
        unheard: Vec::new(),
        pid: why.pid().unwrap_or_default(),
    }
}

/// Makes everything durable that was done through the mount that holds `path`. Any user in any container may.
///
/// # Errors
/// It is on no mount of ours, or a target does not answer.
pub fn sync(path: &Path) -> Result<()> {
    lfs::sync(path)
}

/// Makes everything durable, unmounts and waits for the end of the mount; also as helper of umount(8).
///
/// # Errors
/// It is no mount of ours, or it is in use.
pub fn umount(arguments: &cli::Umount) -> Result<()> {
    let path = mount_table::resolve(&arguments.mount)?;
    let Some(mounted) = mount_table::mounted_on(&path).filter(Mounted::is_sheen) else {
        bail!("{} is no SheenFS mount; see `sheen mounts`", path.display());
    };
    let mut dirs = vec![control::run_dir()];
    if sys::uid() == 0 && mounted.user() != 0 {
        dirs.extend(control::run_dirs_of(mounted.user()));
    }
    for dir in dirs {
        if let Some(mount) = control::mount_in(&dir, &mounted) {
            let leave = match (arguments.force, arguments.lazy) {
                (true, _) => Leave::Cut,
                (false, true) => Leave::Detach,
                (false, false) => Leave::Unmount,
            };
            // While autofs ends what nobody uses, who is not of the automounter's process group waits there for that end: the process of
            // the mount would wait for itself.
            let detaches_itself = leave == Leave::Unmount && mount_table::is_for_automounter(&path);
            let ask = Ask::Unmount { mount: path.clone(), leave, is_with_cluster: false, detaches_itself };
            control::ask_and_detach(&dir.join(format!("{}.sock", mount.pid)), &ask, || {
                unmount::detach(&path, &mounted.device, None, || fuse::unmount(&path, false))
            })?;
            return Ok(());
        }
    }
    unmount_unknown(&path, arguments.lazy || arguments.force)
}

/// The process is gone, or has its socket where we do not look: then the mount itself can still be asked.
fn unmount_unknown(path: &Path, is_lazy: bool) -> Result<()> {
    // Who is to detach it does not look into it: a mount that hangs keeps whoever does.
    let is_lazy = is_lazy || is_cut_off(path);
    if !is_lazy {
        // Refused to root by mounts of other users; what is left is written at the end of such a mount.
        if let Err(error) = lfs::sync(path) {
            tracing::debug!("cannot sync before the unmount: {error:#}");
        }
    }
    match fuse::unmount(path, is_lazy) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            bail!("{} is in use; close what is open in it, or detach it with --lazy", path.display())
        }
        Err(error) => Err(error).with_context(|| format!("cannot unmount {}", path.display())),
        Ok(()) => {
            mount_table::forget_helper(path);
            Ok(())
        }
    }
}

fn is_cut_off(path: &Path) -> bool {
    File::open(path).is_err_and(|error| {
        matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED | libc::EIO))
    })
}

#[cfg(test)]
mod tests;
