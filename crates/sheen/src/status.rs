//! `status`, `mounts`, `sync`, `umount`: what runs here.

use crate::cli;
use crate::cluster::Cluster;
use crate::control::{self, Ask, Leave, MountStatus, Process, TargetStatus};
use crate::lfs;
use crate::mount_table::{self, Mounted};
use crate::nid;
use crate::say;
use crate::sys;
use crate::up;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The state of a target whose device failed: it runs and refuses everything.
pub const FENCED: &str = "failed";

/// Names of missing clients in one line.
const MISSING_SHOWN_MAX: usize = 4;

#[derive(Serialize)]
struct Report {
    fsname: Option<String>,
    mgs_nid: Option<String>,
    #[serde(with = "crate::path_words::option")]
    dir: Option<PathBuf>,
    targets: Vec<TargetStatus>,
    mounts: Vec<MountStatus>,
}

/// Prints targets and mounts, of one cluster or of all.
///
/// # Errors
/// `--dir` without a cluster.
pub fn status(arguments: &cli::Status) -> Result<()> {
    let report = match &arguments.dir {
        Some(dir) => of_cluster(&up::data_dir(Some(dir))?)?,
        None => of_machine(),
    };
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    if let (Some(fsname), Some(dir)) = (&report.fsname, &report.dir) {
        println!("{fsname}  {}  {}", report.mgs_nid.as_deref().unwrap_or("-"), dir.display());
    }
    if report.targets.is_empty() && report.mounts.is_empty() {
        println!("nothing runs here; start a cluster: sheen up");
    }
    for target in &report.targets {
        println!(
            "{:<18} {:<11} {:>8}  {:<22} {}",
            name_of(target),
            target.state,
            target.pid,
            target.nid,
            target.dir.display()
        );
    }
    for mount in &report.mounts {
        println!(
            "{:<18} {:<11} {:>8}  {:<22} {}",
            "mount",
            mount.transport,
            mount.pid,
            mount.fsname,
            mount.path.display()
        );
    }
    for target in report.targets.iter().filter(|target| target.state == FENCED) {
        println!("{}", fenced_line(target, report.dir.as_deref()));
    }
    for line in report.targets.iter().filter_map(recovery_line) {
        println!("{line}");
    }
    let owners: BTreeSet<String> = report.targets.iter().filter_map(owner_line).collect();
    let alerts: BTreeSet<String> = report.targets.iter().filter_map(alert_line).collect();
    for line in owners.into_iter().chain(alerts) {
        println!("{line}");
    }
    if report.targets.iter().any(|target| target.state == "down") {
        let dir = report.dir.unwrap_or_default();
        println!("targets are down; start them: sheen up --dir {}", dir.display());
    }
    Ok(())
}

/// Who owns a target that several servers could serve. They say the same, once they have heard it.
fn owner_line(target: &TargetStatus) -> Option<String> {
    target.owner.as_ref().map(|owner| format!("{} is owned by {owner}", name_of(target)))
}

fn alert_line(target: &TargetStatus) -> Option<String> {
    target.alert.as_ref().map(|alert| format!("alert: {}: {alert}", name_of(target)))
}

/// Whom a recovery waits for, and for how long at most.
fn recovery_line(target: &TargetStatus) -> Option<String> {
    let recovery = target.recovery.as_ref()?;
    let shown: Vec<&str> = recovery.missing.iter().take(MISSING_SHOWN_MAX).map(String::as_str).collect();
    let more = match recovery.missing.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "{0} recovers: {1} of {2} clients are done, {3} s left for {4}{more}; give them up: sheen lctl abort_recovery {0}",
        name_of(target),
        recovery.done_count,
        recovery.client_count,
        recovery.seconds_left,
        shown.join(", "),
    ))
}

/// As in parameters: `sheen-MDT0000`, `MGS`.
pub fn name_of(target: &TargetStatus) -> String {
    if target.name == "MGS" { "MGS".to_owned() } else { format!("{}-{}", target.fsname, target.name) }
}

/// What an operator does about a target whose device failed.
fn fenced_line(target: &TargetStatus, cluster: Option<&Path>) -> String {
    let failed =
        format!("{} is fenced: the device under {} failed to keep data", target.name, target.dir.display());
    match cluster {
        Some(dir) => format!(
            "{failed}; stop: sheen down --force --dir {0}; bring the storage back; start: sheen up --dir {0}",
            dir.display()
        ),
        None => format!("{failed}; end process {}, bring the storage back, and serve it again", target.pid),
    }
}

fn of_machine() -> Report {
    let processes = control::processes();
    let (targets, mounts) = flatten(&processes);
    Report { fsname: None, mgs_nid: None, dir: None, targets, mounts }
}

fn of_cluster(dir: &Path) -> Result<Report> {
    let (mut running, mut mounts) = flatten(&control::processes());
    running.retain(|target| target.dir.starts_with(dir));
    let cluster = match Cluster::load(dir) {
        Ok(Some(cluster)) => cluster,
        Ok(None) => bail!("there is no cluster in {}; say where with --dir", dir.display()),
        // The disk is dead and servers work on: what they say is all that there is to know.
        Err(error) if !running.is_empty() => {
            say::note(format_args!("{error:#}; this is what its processes say"));
            let processes = control::processes().into_iter().filter(|process| up::belongs(process, dir));
            let mounts = processes.flat_map(|process| process.mounts).collect();
            let fsname = running.iter().map(|target| target.fsname.clone()).find(|name| !name.is_empty());
            return Ok(Report { fsname, mgs_nid: None, dir: Some(dir.to_owned()), targets: running, mounts });
        }
        Err(error) => return Err(error),
    };
    let mgs_nid = nid::format_nid(cluster.mgs_address());
    mounts.retain(|mount| mount.mgs_nids.contains(&mgs_nid) && mount.fsname == cluster.fsname);
    let mut targets = Vec::new();
    for server in &cluster.servers {
        for name in &server.targets {
            let path = dir.join(name);
            let found = running.iter().find(|target| target.dir == path).cloned();
            targets.push(found.unwrap_or_else(|| TargetStatus {
                name: name.to_uppercase(),
                fsname: cluster.fsname.clone(),
                dir: path,
                nid: nid::format_nid(&server.address),
                state: "down".to_owned(),
                pid: 0,
                recovery: None,
                owner: None,
                alert: None,
            }));
        }
    }
    Ok(Report {
        fsname: Some(cluster.fsname),
        mgs_nid: Some(mgs_nid),
        dir: Some(dir.to_owned()),
        targets,
        mounts,
    })
}

fn flatten(processes: &[Process]) -> (Vec<TargetStatus>, Vec<MountStatus>) {
    let targets = processes.iter().flat_map(|process| process.targets.clone()).collect();
    let mounts = processes.iter().flat_map(|process| process.mounts.clone());
    (targets, mounts.filter(|mount| !mount.is_detached).collect())
}

/// # Errors
/// None of its own.
pub fn mounts(arguments: &cli::Output) -> Result<()> {
    let (_, mounts) = flatten(&control::processes());
    if arguments.json {
        println!("{}", serde_json::to_string(&mounts)?);
        return Ok(());
    }
    for mount in mounts {
        let mounted = mount_table::mounted_on(&mount.path);
        let mut options = mounted.map(|mounted| mounted.flags()).unwrap_or_default();
        options.extend(mount.options);
        println!(
            "{} on {} type fuse.sheen ({}) pid {}",
            mount.source,
            mount.path.display(),
            options.join(","),
            mount.pid
        );
    }
    Ok(())
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
        if let Some(pid) = mounter(&dir, &path) {
            let leave = match (arguments.force, arguments.lazy) {
                (true, _) => Leave::Cut,
                (false, true) => Leave::Detach,
                (false, false) => Leave::Unmount,
            };
            let ask = Ask::Unmount { mount: path, leave };
            control::ask(&dir.join(format!("{pid}.sock")), &ask)?;
            return Ok(());
        }
    }
    unmount_unknown(&path, arguments.lazy || arguments.force)
}

/// The process behind a mount, if its socket is in this directory.
fn mounter(dir: &Path, path: &Path) -> Option<u32> {
    let (_, mounts) = flatten(&control::processes_in(dir));
    mounts.into_iter().find(|mount| mount.path == path).map(|mount| mount.pid)
}

/// The process is gone, or has its socket where we do not look: then the mount itself can still be asked.
fn unmount_unknown(path: &Path, is_lazy: bool) -> Result<()> {
    let is_dead = File::open(path).is_err_and(|error| {
        matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED | libc::EIO))
    });
    if !is_dead && !is_lazy {
        // Refused to root by mounts of other users; what is left is written at the end of such a mount.
        if let Err(error) = lfs::sync(path) {
            tracing::debug!("cannot sync before the unmount: {error:#}");
        }
    }
    match fuse::unmount(path, is_lazy || is_dead) {
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
