//! File handles where a directory is mounted as the root.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{start, stop};
use crate::case::{Context, expect_eq, expect_errno, names, write};
use crate::sys::FileHandle;

/// What is in the mounted directory is found with its path, also by handles from another mount. The way up ends there: directories elsewhere
/// are ESTALE, and so is the directory itself by the number that it has on other mounts, for here it is the root.
pub fn below_a_directory(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let top = &cluster.mount;
    fs::create_dir_all(top.join("above/mounted/deep/deeper"))?;
    fs::create_dir_all(top.join("above/beside"))?;
    write(&top.join("above/mounted/deep/file"), b"x")?;
    let point = cluster.point("sub")?;
    cluster.sheen(&["mount", &format!("{}/above/mounted", cluster.source()?), &point.to_string_lossy()])?;
    let below = ["deep/deeper", "deep", "deep/file"];
    let own = below.map(|name| (name, FileHandle::of(&point.join(name))));
    let others = below.map(|name| (name, FileHandle::of(&top.join("above/mounted").join(name))));
    let root = ("", FileHandle::of(&point));
    let place = File::open(&point)?;
    for (name, handle) in own.into_iter().chain(others).chain([root]) {
        // With this nothing is known on the way.
        fs::write("/proc/sys/vm/drop_caches", "2").context("dropping caches")?;
        let opened = handle?.open(&place).with_context(|| format!("the handle of '{name}'"))?;
        expect_eq(opened.metadata()?.ino(), fs::metadata(point.join(name))?.ino(), "the inode of a handle")?;
        if opened.metadata()?.is_dir() {
            let through = format!("/proc/self/fd/{}", opened.as_raw_fd());
            let there: PathBuf = point.join(name).components().collect();
            expect_eq(fs::read_link(&through)?, there, "where a directory lies")?;
            expect_eq(names(Path::new(&through))?, names(&point.join(name))?, "what is in it")?;
        }
    }
    for name in ["above", "above/beside", "above/mounted"] {
        let mut handle = FileHandle::of(&top.join(name))?;
        expect_errno(handle.open(&place), libc::ESTALE, &format!("a handle of '{name}'"))?;
    }
    drop(place);
    stop(cluster)
}
