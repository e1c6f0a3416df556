//! A small file system of its own: a tmpfs, which only root can mount. Without the right the tests that need one say so.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

pub struct SmallDevice {
    dir: tempfile::TempDir,
}

impl SmallDevice {
    pub fn mount(mib: u32) -> Option<SmallDevice> {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={mib}m");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(dir.path()).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(SmallDevice { dir });
        }
        eprintln!("not run: a tmpfs cannot be mounted here");
        None
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Takes all that is left, but for some KiB.
    pub fn fill(&self, leave_kib: u64) -> PathBuf {
        let path = self.path().join("filler");
        let mut bytes = vec![1; 1 << 20];
        let file = std::fs::File::options().create(true).append(true).open(&path).unwrap();
        while !bytes.is_empty() {
            match std::io::Write::write(&mut &file, &bytes) {
                Ok(_) => {}
                Err(_) => bytes.truncate(bytes.len() / 2),
            }
        }
        file.set_len(file.metadata().unwrap().len().saturating_sub(leave_kib << 10)).unwrap();
        path
    }
}

impl Drop for SmallDevice {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).output();
    }
}
