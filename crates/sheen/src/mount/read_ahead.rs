//! How much the kernel asks for around a page fault or ahead of a reader: 128 KiB with FUSE, more or less if root says so.
//!
//! That is not how far is read ahead, which `client` does: these are the requests that it sees. From requests of a MiB
//! it could not see what a stride leaves out.

use crate::mount_table;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// What is around each first page of a stride is read in vain: half of this.
pub const KIB_DEFAULT: u64 = 64;

/// Where the kernel has the setting of a mount.
fn file(mount: &Path) -> Option<PathBuf> {
    let mounted = mount_table::mounted_on(mount).filter(mount_table::Mounted::is_sheen)?;
    Some(format!("/sys/class/bdi/{}/read_ahead_kb", mounted.device).into())
}

pub fn kib(mount: &Path) -> Option<u64> {
    std::fs::read_to_string(file(mount)?).ok()?.trim().parse().ok()
}

/// # Errors
/// The mount is gone, or its owner is not root.
pub fn set_kib(mount: &Path, kib: u64) -> Result<()> {
    let file = file(mount).context("the mount is gone")?;
    std::fs::write(&file, kib.to_string())
        .with_context(|| format!("the kernel does not take {kib} KiB in {}; are you root?", file.display()))
}
