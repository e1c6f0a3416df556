use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::case::{Context, expect_eq, expect_errno, names, write};
use crate::sys::FileHandle;

/// name_to_handle_at(2) and open_by_handle_at(2): of files with several names or another one than before and of directories anywhere, which the
/// kernel has forgotten, or the mount has never heard of. What is gone is ESTALE.
pub fn by_handle(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let top = context.a.join("top");
    context.mkdir_on(0, &top)?;
    context.mkdir_on(1, &top.join("remote"))?;
    context.mkdir_on(0, &top.join("remote/back"))?;
    fs::create_dir_all(top.join("deep/deeper"))?;
    fs::create_dir(top.join("moved"))?;
    let striped = top.join("striped");
    context.lfs(&["mkdir", "-c", "2", &striped.to_string_lossy()])?;
    for number in 0..4 {
        fs::create_dir(striped.join(format!("d{number}")))?;
        write(&striped.join(format!("d{number}/file")), b"x")?;
    }
    for name in ["file", "linked", "renamed"] {
        write(&top.join(name), name.as_bytes())?;
    }
    fs::hard_link(top.join("linked"), top.join("remote/link"))?;
    let mut known: Vec<(PathBuf, FileHandle)> = Vec::new();
    for name in [
        "",
        "remote",
        "remote/back",
        "deep",
        "deep/deeper",
        "moved",
        "striped",
        "striped/d0",
        "striped/d1",
        "striped/d2",
        "striped/d3",
        "striped/d3/file",
        "file",
        "linked",
        "renamed",
    ] {
        let path = top.join(name);
        let handle = FileHandle::of(&path).with_context(|| format!("a handle of {name}"))?;
        known.push((path, handle));
    }
    for (old, new) in [("renamed", "deep/deeper/new"), ("moved", "remote/back/there")] {
        fs::rename(top.join(old), top.join(new))?;
        known
            .iter_mut()
            .filter(|(path, _)| *path == top.join(old))
            .for_each(|(path, _)| *path = top.join(new));
    }
    fs::create_dir(top.join("gone"))?;
    write(&top.join("gone_file"), b"")?;
    let mut gone = [FileHandle::of(&top.join("gone"))?, FileHandle::of(&top.join("gone_file"))?];
    fs::remove_dir(top.join("gone"))?;
    fs::remove_file(top.join("gone_file"))?;
    for mount in [&context.a, &context.b] {
        let place = File::open(mount)?;
        // The lowest ones first: on the way to the root nothing is known then.
        known.sort_by_key(|(path, _)| std::cmp::Reverse(path.components().count()));
        for (path, handle) in &mut known {
            forget()?;
            let below = path.strip_prefix(&context.a)?.to_owned();
            let opened =
                handle.open(&place).with_context(|| format!("{} on {}", below.display(), mount.display()))?;
            let told = opened.metadata()?;
            expect_eq(told.ino(), fs::metadata(mount.join(&below))?.ino(), "the inode of a handle")?;
            if told.is_dir() {
                let through = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
                expect_eq(fs::read_link(&through)?, mount.join(&below), "where a directory lies")?;
                expect_eq(names(&through)?, names(&mount.join(&below))?, "what is in it")?;
            }
        }
        for handle in &mut gone {
            forget()?;
            expect_errno(handle.open(&place), libc::ESTALE, "a handle of what is gone")?;
        }
    }
    Ok(())
}

/// The kernel drops inodes and names that nobody uses.
fn forget() -> Result<()> {
    fs::write(Path::new("/proc/sys/vm/drop_caches"), "2").context("dropping caches")
}
