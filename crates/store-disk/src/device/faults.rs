//! Devices that fail, for the tests of this crate.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

static FAILING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// From now on every sync of a file below this directory fails.
pub fn fail_syncs_below(path: &Path) {
    FAILING.lock().expect("no test panics inside").push(path.to_path_buf());
}

pub fn mend(path: &Path) {
    FAILING.lock().expect("no test panics inside").retain(|failing| failing != path);
}

pub(super) fn check(file: &File) -> io::Result<()> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let failing = FAILING.lock().expect("no test panics inside");
    let is_failing = failing.iter().any(|directory| path.starts_with(directory));
    if is_failing { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
}
