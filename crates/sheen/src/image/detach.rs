//! Takes an image away from everywhere but the place where the node's client serves it, because the node goes off.
//!
//! What is still mounted at the very end, systemd-shutdown unmounts with MNT_FORCE, also /usr, which stays because it is in use (where systemd
//! is built for a /usr of its own, as in Debian 12). For a FUSE mount the kernel ends the connection of the whole file system first, and
//! looks afterwards whether it may be unmounted (`do_umount`, `fuse_umount_begin`): one more place of the image, and the root says
//! ESTALE from there on. What is below /run/initramfs is not touched.

use super::place;
use crate::mount_table::{self, Mounted};
use crate::say;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// systemd leaves it alone, so the image may stay mounted there.
const LEFT_ALONE: &str = "/run/initramfs";

/// `root` is where the image is mounted as a whole. Processes keep what they have open.
///
/// # Errors
/// It is not an image that is mounted there, or stays mounted elsewhere.
pub fn detach(root: &Path) -> Result<()> {
    place::check_version(root)?;
    let root = root.canonicalize().with_context(|| format!("cannot read {}", root.display()))?;
    let Some(mounted) = mount_table::mounted_on(&root).filter(Mounted::is_sheen) else {
        bail!("{} is no mount point of SheenFS", root.display());
    };
    let mut is_everywhere = true;
    // From the last one on: a mount may lie in another one.
    for path in mount_table::places_of(&mounted.device).iter().rev() {
        if path == &root || path == Path::new("/") || path.starts_with(LEFT_ALONE) {
            continue;
        }
        if let Err(error) = take_away(path, &mounted.device) {
            is_everywhere = false;
            say::note(format_args!("{} stays mounted: {error:#}", path.display()));
        }
    }
    if is_everywhere { Ok(()) } else { bail!("a forced unmount of what stays ends the client") }
}

fn take_away(path: &Path, device: &str) -> Result<()> {
    match mount_table::mounted_on(path) {
        // It went with the one that it was in.
        None => return Ok(()),
        Some(top) if top.device != device => bail!("{} is mounted over it", top.source),
        Some(_) => {}
    }
    Ok(fuse::unmount(path, true)?)
}
