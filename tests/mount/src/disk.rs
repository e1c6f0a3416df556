//! A small ext4 on a loop device, which can be filled and can lose its power.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::bounded;
use crate::case::{expect, skip, wait_until};
use crate::{sweep, sys};

const LIMIT: Duration = Duration::from_secs(60);

/// An image file with ext4 in it, mounted.
pub struct LoopDisk {
    image: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
}

fn run(command: &mut Command) -> Result<()> {
    let said = bounded::say(command, "SHEEN_DISK=1", LIMIT).with_context(|| format!("{command:?}"))?;
    expect(said.is_success(), &format!("{command:?}: {}: {}", said.end.describe(), said.all().trim_end()))
}

impl LoopDisk {
    /// Makes and mounts an ext4 of `mib` MiB in `directory`. Skips the case where loop devices are not to be had.
    pub fn new(directory: &Path, mib: u64) -> Result<LoopDisk> {
        let disk = LoopDisk { image: directory.join("disk.img"), point: directory.join("disk") };
        fs::create_dir_all(&disk.point)?;
        fs::File::create(&disk.image)?.set_len(mib << 20)?;
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"]).arg(&disk.image);
        if let Err(error) = run(&mut mkfs) {
            return skip(&format!("no ext4 to be made: {error:#}"));
        }
        if let Err(error) = disk.mount() {
            return skip(&format!("no loop device to be had: {error:#}"));
        }
        Ok(disk)
    }

    /// Mounts it, which replays its journal. Data is ordered, whatever the machine's default: the journal never holds contents, so
    /// a neighbour's sync makes nothing durable that overwrites old blocks.
    pub fn mount(&self) -> Result<()> {
        run(Command::new("mount")
            .args(["-t", "ext4", "-o", "loop,data=ordered"])
            .arg(&self.image)
            .arg(&self.point))
    }

    /// Unmounts it; whoever used it must be gone or about to go. Waits until the kernel has let go of the file system: otherwise the
    /// next mount would get the same one again, dead as it is.
    pub fn unmount(&self) -> Result<()> {
        let mounted = sweep::mounts_under(&self.point);
        wait_until(LIMIT, "the disk can be unmounted", || {
            let said = bounded::say(Command::new("umount").arg(&self.point), "SHEEN_DISK=1", LIMIT)?;
            Ok(said.is_success() || sweep::mounts_under(&self.point).is_empty())
        })?;
        for device in
            mounted.iter().map(|mount| Path::new("/sys/fs/ext4").join(format!("loop{}", mount.minor)))
        {
            let what = format!("nobody holds the disk any more ({})", device.display());
            wait_until(LIMIT, &what, || Ok(!device.exists()))?;
        }
        Ok(())
    }

    /// Changes options of the mount.
    pub fn remount(&self, options: &str) -> Result<()> {
        let options = format!("remount,{options}");
        run(Command::new("mount").args(["-o", &options]).arg(&self.point))
    }

    /// The power goes: nothing that is only in memory reaches the disk any more.
    pub fn cut_power(&self) -> Result<()> {
        sys::ext4_power_cut(&self.point).context("EXT4_IOC_SHUTDOWN")
    }

    /// Everything that is only in memory goes to the disk, whoever wrote it.
    pub fn sync(&self) -> Result<()> {
        sys::syncfs(&self.point).context("syncfs")
    }

    /// A directory on the disk.
    pub fn path(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        if !sweep::mounts_under(&self.point).is_empty() {
            sweep::detach(&self.point);
        }
    }
}
