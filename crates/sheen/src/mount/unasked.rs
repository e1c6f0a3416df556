//! Mounts of ours that nobody here says anything of: what has become of their processes.
//!
//! Only a mount whose process is known to have ended is touched: any other one may keep whoever looks at it.

use crate::alive;
use crate::control::{self, MountStatus, Process};
use crate::mount_table::{self, Mounted};
use crate::served;
use crate::sys;
use std::fs::File;
use std::path::Path;

/// Why nobody says anything of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unasked {
    /// Somebody has stopped its process.
    Stopped(u32),
    /// Its process lives and says nothing.
    Silent(u32),
    /// Its process has ended; who uses the mount gets ENOTCONN.
    Dead,
    /// Its process has its control socket somewhere else, or is of another user.
    Elsewhere,
}

impl Unasked {
    pub fn pid(self) -> Option<u32> {
        match self {
            Unasked::Stopped(pid) | Unasked::Silent(pid) => Some(pid),
            Unasked::Dead | Unasked::Elsewhere => None,
        }
    }
}

/// Mounts of ours that this machine has, and none of these processes has told of.
pub fn all(told: &[Process]) -> Vec<(Mounted, Unasked)> {
    let look = |mounted: Mounted| {
        let why = look(&control::run_dir(), &mounted);
        (mounted, why)
    };
    untold(mount_table::all_sheen(), told).into_iter().map(look).collect()
}

fn untold(all: Vec<Mounted>, told: &[Process]) -> Vec<Mounted> {
    let is_told = |mounted: &Mounted| {
        told.iter().any(|process| process.has_mounted(mounted)) || original_of(mounted, told).is_some()
    };
    all.into_iter().filter(|mounted| !is_told(mounted)).collect()
}

/// Copies, as `mount --bind` makes them, of what these processes have mounted; they know only of the originals.
pub fn copies(told: &[Process]) -> Vec<MountStatus> {
    copies_among(mount_table::all_sheen(), told)
}

fn copies_among(all: Vec<Mounted>, told: &[Process]) -> Vec<MountStatus> {
    let is_known = |mounted: &Mounted| told.iter().any(|process| process.has_mounted(mounted));
    let copies = all.into_iter().filter(|mounted| !is_known(mounted));
    let status = |mounted: Mounted| {
        let original = original_of(&mounted, told)?.clone();
        Some(MountStatus { path: mounted.path, is_detached: false, ..original })
    };
    copies.filter_map(status).collect()
}

/// The same file system has the same device wherever it is seen.
fn original_of<'a>(mounted: &Mounted, told: &'a [Process]) -> Option<&'a MountStatus> {
    let mut mounts = told.iter().flat_map(|process| &process.mounts);
    mounts.find(|status| !status.device.is_empty() && status.device == mounted.device)
}

/// Of a mount that no process has told of whose socket is in this directory.
pub fn look(run_dir: &Path, mounted: &Mounted) -> Unasked {
    let pids = control::files_in(run_dir, "sock").into_iter().map(|(pid, _)| pid);
    match alive::holder(run_dir, pids, &mounted.path, &mounted.source) {
        Some(pid) if sys::is_stopped(pid) => Unasked::Stopped(pid),
        Some(pid) => Unasked::Silent(pid),
        None if alive::has_died(run_dir, &mounted.path, &mounted.source) && is_cut_off(&mounted.path) => {
            Unasked::Dead
        }
        None => Unasked::Elsewhere,
    }
}

/// What ends it when its process is not to go on.
pub fn end_of(path: &Path, pid: u32) -> String {
    format!(
        "end it, and what was written there and is not on the servers yet is lost: kill -KILL {pid}, umount -l {}, and mount it again",
        served::quoted_path(path)
    )
}

/// The same when its process has ended.
pub fn fix_of_dead(mounted: &Mounted) -> String {
    let (path, source) = (served::quoted_path(&mounted.path), served::quoted(&mounted.source));
    format!("umount -l {path}, and mount it again: sheen mount {source} {path}")
}

fn is_cut_off(path: &Path) -> bool {
    File::open(path)
        .is_err_and(|error| matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)))
}

#[cfg(test)]
mod tests;
