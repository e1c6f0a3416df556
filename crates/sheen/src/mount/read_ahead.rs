//! How far the kernel reads ahead of a sequential reader: it takes no more than 128 KiB from the FUSE protocol, but more from root.
//!
//! What it reads ahead are READs like any others, under locks, into pages that are known; so nothing is kept here.

use crate::mount_table;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// One request of the greatest size, instead of the eight that the protocol's 128 KiB make of a MiB. More would be more requests again.
const KIB_DEFAULT: u64 = 1024;

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

/// A new mount reads ahead as far as pays. Who is not root reads less far.
pub fn begin(mount: &Path) {
    if let Err(error) = set_kib(mount, KIB_DEFAULT) {
        tracing::debug!("{error:#}");
    }
}
