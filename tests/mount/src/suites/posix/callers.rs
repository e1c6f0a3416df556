//! Who may do what: the same calls of the same callers on a mount and on a tmpfs, with the same answers and the same results.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::case::{Context, expect, expect_eq, note, skip};
use crate::sys::{self, Time};

/// Where Linux has a tmpfs for everybody.
const TMPFS: &str = "/dev/shm";
/// Set-group-id goes by the same rules everywhere since Linux 6.2, and a tmpfs has user xattrs since 6.6.
const SAME_RULES_SINCE: (u32, u32) = (6, 6);
/// Of the directory `in` and the file in it.
const OWNER: u32 = 1000;
const GROUP: u32 = 3000;
/// Of what else is in `in`.
const SOMEBODY: u32 = 2000;

struct Caller {
    name: &'static str,
    uid: u32,
    groups: &'static [u32],
}

const CALLERS: [Caller; 5] = [
    Caller { name: "the owner", uid: OWNER, groups: &[] },
    Caller { name: "the owner, in the group", uid: OWNER, groups: &[GROUP] },
    Caller { name: "a member of the group", uid: 1001, groups: &[GROUP] },
    Caller { name: "somebody else", uid: 1002, groups: &[] },
    Caller { name: "root", uid: 0, groups: &[] },
];

/// What a caller does in a tree of `Tree::make`.
type Act = (&'static str, fn(&Path) -> io::Result<()>);

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, PermissionsExt::from_mode(mode))
}

fn file(tree: &Path) -> PathBuf {
    tree.join("in/file")
}

fn open(path: &Path, flags: i32) -> io::Result<()> {
    sys::open(path, flags, 0o666).map(drop)
}

fn times(tree: &Path, accessed: Time, modified: Time) -> io::Result<()> {
    sys::set_times(&file(tree), accessed, modified, true)
}

const FILE_MODES: [u32; 7] = [0, 0o604, 0o640, 0o711, 0o2644, 0o6755, 0o6777];

const ON_FILES: &[Act] = &[
    ("chmod 0600", |tree| set_mode(&file(tree), 0o600)),
    ("chmod 02755", |tree| set_mode(&file(tree), 0o2755)),
    ("chmod 06711", |tree| set_mode(&file(tree), 0o6711)),
    ("chown to the owner", |tree| chown(file(tree), Some(OWNER), None)),
    ("chown to the same owner and group", |tree| chown(file(tree), Some(OWNER), Some(GROUP))),
    ("chown to the same group", |tree| chown(file(tree), None, Some(GROUP))),
    ("chown to the owner's group", |tree| chown(file(tree), None, Some(OWNER))),
    ("chown to nobody", |tree| chown(file(tree), None, None)),
    ("chown to somebody", |tree| chown(file(tree), Some(SOMEBODY), None)),
    ("chown to somebody's group", |tree| chown(file(tree), None, Some(SOMEBODY))),
    ("truncate", |tree| sys::truncate(&file(tree), 3)),
    ("open to read", |tree| open(&file(tree), libc::O_RDONLY)),
    ("open to write", |tree| open(&file(tree), libc::O_WRONLY)),
    ("open to read and write", |tree| open(&file(tree), libc::O_RDWR)),
    ("open and cut", |tree| open(&file(tree), libc::O_WRONLY | libc::O_TRUNC)),
    ("open to read and cut", |tree| open(&file(tree), libc::O_RDONLY | libc::O_TRUNC)),
    ("open without access times", |tree| open(&file(tree), libc::O_RDONLY | libc::O_NOATIME)),
    ("open what may be new", |tree| open(&file(tree), libc::O_WRONLY | libc::O_CREAT)),
    ("open what must be new", |tree| open(&file(tree), libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)),
    ("open as a directory", |tree| open(&file(tree), libc::O_RDONLY | libc::O_DIRECTORY)),
    ("write", |tree| OpenOptions::new().write(true).open(file(tree))?.write_all(b"x")),
    ("append", |tree| OpenOptions::new().append(true).open(file(tree))?.write_all(b"x")),
    ("allocate", |tree| sys::fallocate(&sys::open(&file(tree), libc::O_WRONLY, 0)?, 0, 0, 20)),
    ("times: now", |tree| times(tree, Time::Now, Time::Now)),
    ("times: given", |tree| times(tree, Time::At(1, 2), Time::At(3, 4))),
    ("times: one now", |tree| times(tree, Time::Omit, Time::Now)),
    ("times: one given", |tree| times(tree, Time::At(5, 6), Time::Omit)),
    ("times: one now, one given", |tree| times(tree, Time::Now, Time::At(7, 8))),
    ("times: none", |tree| times(tree, Time::Omit, Time::Omit)),
    ("access to read", |tree| sys::access(&file(tree), libc::R_OK)),
    ("access to write", |tree| sys::access(&file(tree), libc::W_OK)),
    ("link", |tree| fs::hard_link(file(tree), tree.join("in/new"))),
];

/// Where a tmpfs has them.
const ON_XATTRS: &[Act] = &[
    ("set a trusted xattr", |tree| sys::set_xattr(&file(tree), "trusted.a", b"1", 0)),
    ("set a security xattr", |tree| sys::set_xattr(&file(tree), "security.a", b"1", 0)),
    ("set capabilities", |tree| sys::set_xattr(&file(tree), "security.capability", &CAPABILITIES, 0)),
    ("remove capabilities", |tree| sys::remove_xattr(&file(tree), "security.capability")),
    ("remove a trusted xattr", |tree| sys::remove_xattr(&file(tree), "trusted.none")),
    ("get a trusted xattr", |tree| sys::get_xattr(&file(tree), "trusted.none").map(drop)),
    ("set a user xattr", |tree| sys::set_xattr(&file(tree), "user.a", b"1", 0)),
    ("set a user xattr of a directory", |tree| sys::set_xattr(&tree.join("in"), "user.a", b"1", 0)),
    ("replace a user xattr", |tree| sys::set_xattr(&file(tree), "user.none", b"1", libc::XATTR_REPLACE)),
    ("get a user xattr", |tree| sys::get_xattr(&file(tree), "user.none").map(drop)),
    ("remove a user xattr", |tree| sys::remove_xattr(&file(tree), "user.none")),
];

/// The same.
const ON_ACLS: &[Act] = &[
    // Not its removal, with which a tmpfs ends set-group-id and ext4 does not.
    ("set an ACL", |tree| sys::set_xattr(&file(tree), "system.posix_acl_access", &ACL, 0)),
    ("set a default ACL", |tree| sys::set_xattr(&tree.join("in"), "system.posix_acl_default", &ACL, 0)),
];

/// `VFS_CAP_REVISION_2`, no capability.
const CAPABILITIES: [u8; 20] = [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// rw-r-----, as an ACL.
const ACL: [u8; 28] = [
    2, 0, 0, 0, //
    1, 0, 6, 0, 255, 255, 255, 255, //
    4, 0, 4, 0, 255, 255, 255, 255, //
    32, 0, 0, 0, 255, 255, 255, 255,
];

const DIRECTORY_MODES: [u32; 6] = [0o711, 0o555, 0o777, 0o1777, 0o1755, 0o2775];

const IN_DIRECTORIES: &[Act] = &[
    ("stat", |tree| fs::symlink_metadata(file(tree)).map(drop)),
    ("list", |tree| fs::read_dir(tree.join("in")).map(drop)),
    ("read a symlink", |tree| fs::read_link(tree.join("in/link")).map(drop)),
    ("open through a symlink", |tree| open(&tree.join("in/link"), libc::O_RDONLY)),
    ("unlink", |tree| fs::remove_file(file(tree))),
    ("unlink somebody's", |tree| fs::remove_file(tree.join("in/theirs"))),
    ("unlink a directory", |tree| fs::remove_file(tree.join("in/sub"))),
    ("unlink nothing", |tree| fs::remove_file(tree.join("in/none"))),
    ("rmdir", |tree| fs::remove_dir(tree.join("in/sub"))),
    ("rmdir a file", |tree| fs::remove_dir(file(tree))),
    ("rmdir what is full", |tree| fs::remove_dir(tree.join("in"))),
    ("rename", |tree| fs::rename(file(tree), tree.join("in/new"))),
    ("rename over somebody's", |tree| fs::rename(file(tree), tree.join("in/theirs"))),
    ("rename somebody's", |tree| fs::rename(tree.join("in/theirs"), tree.join("in/new"))),
    ("rename over a directory", |tree| fs::rename(file(tree), tree.join("in/sub"))),
    ("rename into it", |tree| fs::rename(tree.join("from/file"), tree.join("in/new"))),
    ("rename into it, over a file", |tree| fs::rename(tree.join("from/file"), file(tree))),
    ("rename into it, over somebody's", |tree| fs::rename(tree.join("from/file"), tree.join("in/theirs"))),
    ("rename out of it", |tree| fs::rename(file(tree), tree.join("from/new"))),
    ("rename a directory", |tree| fs::rename(tree.join("in/sub"), tree.join("in/new"))),
    ("rename a directory out of it", |tree| fs::rename(tree.join("in/sub"), tree.join("from/new"))),
    ("rename a directory into it", |tree| fs::rename(tree.join("from/sub"), tree.join("in/new"))),
    ("rename nothing", |tree| fs::rename(tree.join("in/none"), tree.join("in/new"))),
    ("rename but not over", |tree| {
        sys::rename_with(&file(tree), &tree.join("in/theirs"), sys::RENAME_NOREPLACE)
    }),
    ("exchange", |tree| sys::rename_with(&file(tree), &tree.join("in/theirs"), sys::RENAME_EXCHANGE)),
    ("exchange with what is elsewhere", |tree| {
        sys::rename_with(&tree.join("from/file"), &tree.join("in/theirs"), sys::RENAME_EXCHANGE)
    }),
    ("mkdir", |tree| fs::create_dir(tree.join("in/new"))),
    ("mkdir of what is there", |tree| fs::create_dir(tree.join("in/sub"))),
    ("mkfifo", |tree| sys::mknod(&tree.join("in/new"), libc::S_IFIFO | 0o666, 0)),
    ("mknod of a device", |tree| sys::mknod(&tree.join("in/new"), libc::S_IFCHR | 0o666, 0x103)),
    ("mknod of what is there", |tree| sys::mknod(&file(tree), libc::S_IFIFO | 0o666, 0)),
    ("symlink", |tree| symlink("nowhere", tree.join("in/new"))),
    ("symlink of what is there", |tree| symlink("nowhere", file(tree))),
    ("link", |tree| fs::hard_link(tree.join("from/file"), tree.join("in/new"))),
    ("link over what is there", |tree| fs::hard_link(tree.join("from/file"), file(tree))),
    ("link of a directory", |tree| fs::hard_link(tree.join("in/sub"), tree.join("in/new"))),
    ("create", |tree| {
        OpenOptions::new().write(true).create_new(true).mode(0o6777).open(tree.join("in/new")).map(drop)
    }),
    ("create what is there", |tree| {
        OpenOptions::new().write(true).create_new(true).open(file(tree)).map(drop)
    }),
    ("open a directory to write", |tree| open(&tree.join("in/sub"), libc::O_WRONLY)),
    ("open a directory that may be new", |tree| open(&tree.join("in/sub"), libc::O_RDONLY | libc::O_CREAT)),
    ("a file without a name", |tree| open(&tree.join("in"), libc::O_RDWR | libc::O_TMPFILE)),
    ("chmod 03777", |tree| set_mode(&tree.join("in"), 0o3777)),
    ("chown to somebody's group", |tree| chown(tree.join("in"), None, Some(SOMEBODY))),
    ("chown to the group", |tree| chown(tree.join("in"), Some(OWNER), Some(GROUP))),
    ("times: now", |tree| sys::set_times(&tree.join("in"), Time::Now, Time::Now, true)),
    ("times: given", |tree| sys::set_times(&tree.join("in"), Time::At(1, 2), Time::At(3, 4), true)),
    ("access to write", |tree| sys::access(&tree.join("in"), libc::W_OK)),
    ("access to search", |tree| sys::access(&tree.join("in"), libc::X_OK)),
    ("truncate", |tree| sys::truncate(&tree.join("in"), 0)),
];

/// The trees that callers act in, side by side.
struct Trees {
    on_mount: PathBuf,
    on_tmpfs: PathBuf,
}

impl Drop for Trees {
    fn drop(&mut self) {
        // What cannot be removed is in a directory of this process, and found by its name.
        let _ = fs::remove_dir_all(&self.on_tmpfs);
    }
}

/// A directory `in` with a file, what belongs to somebody else, and a directory `from` that everybody may write.
fn make(tree: &Path, directory_mode: u32, file_mode: u32) -> Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree).with_context(|| format!("remove {}", tree.display()))?;
    }
    for directory in
        [tree, &tree.join("in"), &tree.join("in/sub"), &tree.join("from"), &tree.join("from/sub")]
    {
        fs::create_dir(directory)?;
    }
    for name in ["in/file", "in/theirs", "from/file"] {
        fs::write(tree.join(name), b"0123456789")?;
    }
    symlink("theirs", tree.join("in/link"))?;
    for name in ["in/theirs", "in/sub", "from/file", "from/sub"] {
        chown(tree.join(name), Some(SOMEBODY), Some(SOMEBODY))?;
    }
    set_mode(&tree.join("in/theirs"), 0o666)?;
    set_mode(&tree.join("from"), 0o777)?;
    chown(file(tree), Some(OWNER), Some(GROUP))?;
    set_mode(&file(tree), file_mode)?;
    chown(tree.join("in"), Some(OWNER), Some(GROUP))?;
    Ok(set_mode(&tree.join("in"), directory_mode)?)
}

/// Everything in a tree, for root: kind, mode, owner, group; of what is no directory its links and size, too.
fn seen(tree: &Path) -> Result<Vec<String>> {
    let mut seen = Vec::new();
    for directory in ["in", "from"] {
        let mut paths = vec![tree.join(directory)];
        for entry in fs::read_dir(tree.join(directory))? {
            paths.push(entry?.path());
        }
        paths.sort();
        for path in paths {
            let meta = fs::symlink_metadata(&path)?;
            let kind = meta.file_type();
            let counted = if kind.is_dir() { String::new() } else { format!(" {}", meta.nlink()) };
            let sized = if kind.is_file() { format!(" {} bytes", meta.len()) } else { String::new() };
            seen.push(format!(
                "{} {}{:o} {}:{}{counted}{sized}",
                path.strip_prefix(tree)?.display(),
                if kind.is_fifo() { "fifo " } else { "" },
                meta.mode(),
                meta.uid(),
                meta.gid(),
            ));
        }
    }
    Ok(seen)
}

/// Acts in one tree. -> errno (0: done), and what the tree is then.
fn act(tree: &Path, caller: &Caller, act: &Act) -> Result<(i32, Vec<String>)> {
    let result = sys::as_user(caller.uid, caller.uid, caller.groups, || act.1(tree))?;
    let errno = result.err().map_or(0, |error| error.raw_os_error().unwrap_or(-1));
    Ok((errno, seen(tree)?))
}

/// All callers do everything that `acts` says in trees of these modes. -> differences
fn compare(
    context: &Context,
    trees: &Trees,
    (directory_mode, file_mode): (u32, u32),
    acts: &[&Act],
    done: &mut u64,
) -> Result<Vec<String>> {
    let both = [&trees.on_mount, &trees.on_tmpfs];
    let mut differences = Vec::new();
    for caller in &CALLERS {
        let mut is_fresh = false;
        for next in acts {
            if Instant::now() > context.enough_at {
                return Ok(differences);
            }
            if !is_fresh {
                both.iter().try_for_each(|tree| make(tree, directory_mode, file_mode))?;
            }
            let [ours, expected] = [act(both[0], caller, next)?, act(both[1], caller, next)?];
            *done += 1;
            // A call that is refused changes nothing.
            is_fresh = expected.0 != 0 && ours == expected;
            if ours != expected {
                let what = format!("{} by {} in {directory_mode:o}, file {file_mode:o}", next.0, caller.name);
                differences.push(format!("{what}: {ours:?}, on a tmpfs {expected:?}"));
            }
        }
    }
    Ok(differences)
}

fn has_tmpfs() -> Result<bool> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    Ok(mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(1);
        words.next() == Some(TMPFS) && words.next() == Some("tmpfs")
    }))
}

/// Errnos and results are those of a tmpfs, for owners, members of the group, others and root.
pub fn as_on_tmpfs(context: &Context) -> Result<()> {
    if sys::kernel_version() < SAME_RULES_SINCE {
        return skip("the rules of this kernel's own file systems are older");
    }
    if !has_tmpfs()? {
        return skip("there is no tmpfs on /dev/shm");
    }
    let trees = Trees {
        on_mount: context.a.join("tree"),
        on_tmpfs: Path::new(TMPFS).join(format!("sheen-callers-{}", std::process::id())),
    };
    make(&trees.on_tmpfs, 0o755, 0o644)?;
    let has = |name, value: &[u8]| sys::set_xattr(&file(&trees.on_tmpfs), name, value, 0).is_ok();
    let xattrs = if has("user.a", b"") { ON_XATTRS } else { &[] };
    let acls = if has("system.posix_acl_access", &ACL) { ON_ACLS } else { &[] };
    let on_files: Vec<&Act> = [ON_FILES, xattrs, acls].into_iter().flatten().collect();
    let in_directories: Vec<&Act> = IN_DIRECTORIES.iter().collect();
    let file_modes: Vec<(u32, u32)> = FILE_MODES.iter().map(|mode| (0o777, *mode)).collect();
    let directory_modes: Vec<(u32, u32)> = DIRECTORY_MODES.iter().map(|mode| (*mode, 0o640)).collect();
    let mut done = 0;
    let mut differences = Vec::new();
    // In turn, so that a slow machine leaves out something of each.
    for (file_mode, directory_mode) in file_modes.iter().zip(&directory_modes) {
        differences.extend(compare(context, &trees, *directory_mode, &in_directories, &mut done)?);
        differences.extend(compare(context, &trees, *file_mode, &on_files, &mut done)?);
    }
    // A slow machine compares fewer.
    note(&format!("{done} calls compared"));
    expect(done > 0, "something was compared")?;
    expect_eq(differences.len(), 0, &format!("differences:\n{}", differences.join("\n")))
}
