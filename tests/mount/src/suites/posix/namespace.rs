use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::case::{Context, expect, expect_bytes, expect_eq, expect_errno, names, read, write};
use crate::sys::{self, Time};

/// mkdir and rmdir with their refusals.
pub fn directories(context: &Context) -> Result<()> {
    let (a, b) = context.both("dir");
    fs::create_dir(&a)?;
    expect_errno(fs::create_dir(&b), libc::EEXIST, "mkdir of an existing name")?;
    write(&b.join("file"), b"")?;
    expect_errno(fs::remove_dir(&a), libc::ENOTEMPTY, "rmdir of a full directory")?;
    expect_errno(fs::remove_file(&a), libc::EISDIR, "unlink of a directory")?;
    expect_errno(fs::remove_dir(a.join("file")), libc::ENOTDIR, "rmdir of a file")?;
    expect_errno(fs::create_dir(a.join("none/x")), libc::ENOENT, "mkdir below a missing directory")?;
    expect_errno(fs::remove_dir(b.join(".")), libc::EINVAL, "rmdir of .")?;
    expect_errno(fs::remove_dir(b.join("..")), libc::ENOTEMPTY, "rmdir of ..")?;
    fs::remove_file(a.join("file"))?;
    let held = File::open(&a)?;
    fs::remove_dir(&b)?;
    expect(!a.exists(), "the directory is gone for the other mount")?;
    expect_errno(File::open(a.join("x")), libc::ENOENT, "open below a removed directory")?;
    // Links of a removed directory are 0 everywhere; entries cannot be made in it.
    let inside = format!("/proc/self/fd/{}/new", std::os::fd::AsRawFd::as_raw_fd(&held));
    // A local file system says ENOENT; a kernel that learnt of the removal from a server says ESTALE (docs/limits.md).
    let refused = fs::write(inside, b"").err().and_then(|error| error.raw_os_error());
    expect(
        matches!(refused, Some(libc::ENOENT | libc::ESTALE)),
        "creating in a removed directory is refused with ENOENT or ESTALE",
    )
}

/// Every kind of node that mknod makes.
pub fn nodes(context: &Context) -> Result<()> {
    let device = libc::makedev(1, 3);
    let kinds = [
        (libc::S_IFREG, 0),
        (libc::S_IFIFO, 0),
        (libc::S_IFSOCK, 0),
        (libc::S_IFCHR, device),
        (libc::S_IFBLK, device),
    ];
    for (kind, device) in kinds {
        let (a, b) = context.both(&format!("node{kind:o}"));
        sys::mknod(&a, kind | 0o640, device)?;
        let meta = fs::symlink_metadata(&b)?;
        expect_eq(meta.mode(), kind | 0o640, "type and mode of a node")?;
        expect_eq(meta.rdev(), device, "its device number")?;
        expect_errno(sys::mknod(&b, kind | 0o640, device), libc::EEXIST, "mknod of an existing name")?;
    }
    let refused =
        sys::as_user(65534, 65534, &[], || sys::mknod(&context.a.join("no"), libc::S_IFCHR | 0o600, device))?;
    expect(refused.is_err(), "mknod of a device without privilege must be refused")
}

/// Symbolic links: contents, lengths, loops.
pub fn symlinks(context: &Context) -> Result<()> {
    let (a, b) = context.both("link");
    symlink("target/of the link", &a)?;
    expect_eq(fs::read_link(&b)?, Path::new("target/of the link"), "readlink")?;
    expect_eq(fs::symlink_metadata(&b)?.len(), 18, "length of a link")?;
    expect_errno(symlink("x", &b), libc::EEXIST, "symlink over a name")?;
    expect_errno(File::open(&b), libc::ENOENT, "opening a dangling link")?;
    let (long, long_b) = context.both("long");
    let target = "t".repeat(4095);
    symlink(&target, long)?;
    expect_eq(fs::read_link(&long_b)?.as_os_str().len(), 4095, "length of the longest link")?;
    expect_errno(symlink("t".repeat(4096), context.a.join("too")), libc::ENAMETOOLONG, "a longer link")?;
    write(&context.a.join("file"), b"through")?;
    symlink("file", context.a.join("good"))?;
    expect_bytes(&read(&context.b.join("good"))?, b"through", "reading through a link")
}

/// Hard links share everything; directories have none.
pub fn links(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let (second, second_b) = context.both("second");
    write(&a, b"one")?;
    fs::hard_link(&b, &second_b)?;
    expect_eq(fs::metadata(&a)?.nlink(), 2, "links")?;
    expect_eq(fs::metadata(&a)?.ino(), fs::metadata(&second)?.ino(), "inode of both names")?;
    write(&second, b"two")?;
    expect_bytes(&read(&b)?, b"two", "contents through the other name")?;
    expect_errno(fs::hard_link(&a, &second), libc::EEXIST, "link over a name")?;
    fs::create_dir(context.a.join("dir"))?;
    expect_errno(
        fs::hard_link(context.b.join("dir"), context.b.join("x")),
        libc::EPERM,
        "link of a directory",
    )?;
    expect_errno(
        fs::hard_link(context.b.join("none"), context.b.join("x")),
        libc::ENOENT,
        "link of nothing",
    )?;
    fs::remove_file(&a)?;
    expect_eq(fs::metadata(&second_b)?.nlink(), 1, "links after unlinking one")?;
    expect_bytes(&read(&second_b)?, b"two", "contents after unlinking one")
}

/// unlink and its refusals.
pub fn unlink(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"")?;
    fs::remove_file(&b)?;
    expect_errno(fs::remove_file(&a), libc::ENOENT, "unlink of what the other mount removed")?;
    expect_errno(File::open(&a), libc::ENOENT, "open of it")?;
    write(&a, b"again")?;
    expect_bytes(&read(&b)?, b"again", "the name made again")
}

/// A file without a name lives until the last descriptor on any mount is closed.
pub fn open_unlinked(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"before")?;
    let mut file = sys::open(&b, libc::O_RDWR, 0)?;
    fs::remove_file(&a)?;
    expect_eq(file.metadata()?.nlink(), 0, "links after the other mount's unlink")?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    expect_eq(text.as_str(), "before", "contents after unlink")?;
    file.write_all(b" and after")?;
    file.set_len(10)?;
    expect_eq(file.metadata()?.len(), 10, "size after truncating an unlinked file")?;
    let (over, over_b) = context.both("over");
    write(&over, b"old")?;
    let old = File::open(&over)?;
    write(&context.b.join("new"), b"new")?;
    fs::rename(context.b.join("new"), &over_b)?;
    let mut text = String::new();
    (&old).read_to_string(&mut text)?;
    expect_eq(text.as_str(), "old", "an open file that a rename replaced")?;
    expect_bytes(&read(&over)?, b"new", "the name after the rename")
}

/// rename over every kind that may be replaced.
pub fn rename_replaces(context: &Context) -> Result<()> {
    let (a, b) = (&context.a, &context.b);
    write(&a.join("x"), b"x")?;
    write(&a.join("y"), b"y")?;
    fs::rename(b.join("x"), b.join("y"))?;
    expect_bytes(&read(&a.join("y"))?, b"x", "file over file")?;
    expect(!a.join("x").exists(), "the old name is gone")?;
    fs::create_dir(a.join("d"))?;
    write(&a.join("d/in"), b"")?;
    fs::create_dir(a.join("e"))?;
    fs::rename(b.join("d"), b.join("e"))?;
    expect_eq(names(&a.join("e"))?, vec!["in"], "directory over an empty directory")?;
    let inode = fs::metadata(a.join("y"))?.ino();
    fs::rename(a.join("y"), a.join("e/z"))?;
    expect_eq(fs::metadata(b.join("e/z"))?.ino(), inode, "inode after a rename into another directory")?;
    fs::hard_link(a.join("e/z"), a.join("same"))?;
    fs::rename(b.join("same"), b.join("e/z"))?;
    expect(a.join("same").exists(), "rename between two names of one file does nothing")?;
    symlink("e", a.join("link"))?;
    fs::rename(b.join("link"), b.join("moved"))?;
    expect_eq(fs::read_link(a.join("moved"))?, Path::new("e"), "a renamed symbolic link")
}

/// What rename must refuse.
pub fn rename_refusals(context: &Context) -> Result<()> {
    let a = &context.a;
    fs::create_dir_all(a.join("d/e/f"))?;
    write(&a.join("file"), b"")?;
    fs::create_dir(a.join("full"))?;
    write(&a.join("full/in"), b"")?;
    let b = &context.b;
    expect_errno(fs::rename(b.join("d"), b.join("d/e/f/g")), libc::EINVAL, "a directory into itself")?;
    expect_errno(fs::rename(b.join("d"), b.join("full")), libc::ENOTEMPTY, "over a full directory")?;
    expect_errno(fs::rename(b.join("file"), b.join("d")), libc::EISDIR, "a file over a directory")?;
    expect_errno(fs::rename(b.join("d"), b.join("file")), libc::ENOTDIR, "a directory over a file")?;
    expect_errno(fs::rename(b.join("none"), b.join("x")), libc::ENOENT, "nothing")?;
    expect_errno(fs::rename(b.join("d/e/f"), b.join("d")), libc::ENOTEMPTY, "over an own ancestor")
}

/// RENAME_NOREPLACE.
pub fn rename_noreplace(context: &Context) -> Result<()> {
    let (a, b) = (&context.a, &context.b);
    write(&a.join("x"), b"x")?;
    write(&a.join("y"), b"y")?;
    let refused = sys::rename_with(&b.join("x"), &b.join("y"), sys::RENAME_NOREPLACE);
    expect_errno(refused, libc::EEXIST, "RENAME_NOREPLACE over a name")?;
    sys::rename_with(&b.join("x"), &b.join("z"), sys::RENAME_NOREPLACE)?;
    expect_eq(names(a)?, vec!["y", "z"], "names afterwards")
}

/// RENAME_EXCHANGE of files, directories and one of each.
pub fn rename_exchange(context: &Context) -> Result<()> {
    let (a, b) = (&context.a, &context.b);
    write(&a.join("x"), b"x")?;
    write(&a.join("y"), b"y")?;
    sys::rename_with(&b.join("x"), &b.join("y"), sys::RENAME_EXCHANGE)?;
    expect_bytes(&read(&a.join("x"))?, b"y", "exchanged files")?;
    fs::create_dir_all(a.join("d/sub"))?;
    sys::rename_with(&b.join("d"), &b.join("x"), sys::RENAME_EXCHANGE)?;
    expect(a.join("x/sub").is_dir(), "a directory exchanged with a file")?;
    expect_bytes(&read(&a.join("d"))?, b"y", "the file at the directory's old name")?;
    fs::create_dir(a.join("other"))?;
    sys::rename_with(&b.join("x/sub"), &b.join("y"), sys::RENAME_EXCHANGE)?;
    expect(a.join("y").is_dir(), "exchange across directories")?;
    let refused = sys::rename_with(&b.join("none"), &b.join("y"), sys::RENAME_EXCHANGE);
    expect_errno(refused, libc::ENOENT, "exchange with nothing")?;
    expect_eq(fs::metadata(a)?.nlink(), 5, "links of the directory (. .. other x y)")
}

/// Flags that cannot go together.
pub fn rename_bad_flags(context: &Context) -> Result<()> {
    write(&context.a.join("x"), b"x")?;
    write(&context.a.join("y"), b"y")?;
    let both = sys::RENAME_EXCHANGE | sys::RENAME_NOREPLACE;
    let refused = sys::rename_with(&context.b.join("x"), &context.b.join("y"), both);
    expect_errno(refused, libc::EINVAL, "NOREPLACE with EXCHANGE")?;
    expect_bytes(&read(&context.a.join("x"))?, b"x", "nothing changed")
}

/// mkdir on the other MDT, and rename, link, unlink, rmdir across both.
pub fn cross_mdt(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let (remote, remote_b) = context.both("remote");
    for (index, path) in [(1, &remote), (0, &context.a.join("first"))] {
        context.mkdir_on(index, path)?;
    }
    let (first, first_b) = context.both("first");
    // Who does not ask for another MDT gets his parent's.
    for (mdt, parent) in [("1", &remote), ("0", &first_b)] {
        let plain = parent.join("plain");
        fs::create_dir(&plain)?;
        let told = context.lfs(&["getdirstripe", "-i", &plain.to_string_lossy()])?;
        expect_eq(told.trim(), mdt, "the MDT of a plain directory")?;
        fs::remove_dir(&plain)?;
    }
    write(&first.join("file"), b"moves")?;
    fs::rename(first_b.join("file"), remote_b.join("file"))?;
    expect_bytes(&read(&remote.join("file"))?, b"moves", "a file renamed to the other MDT's directory")?;
    expect_eq(names(&first)?, Vec::<String>::new(), "names in the old directory")?;
    fs::hard_link(remote_b.join("file"), first_b.join("link"))?;
    expect_eq(fs::metadata(remote.join("file"))?.nlink(), 2, "links across MDTs")?;
    fs::create_dir(first.join("dir"))?;
    write(&first.join("dir/in"), b"")?;
    fs::rename(first_b.join("dir"), remote_b.join("dir"))?;
    expect_eq(names(&remote.join("dir"))?, vec!["in"], "a directory renamed across MDTs")?;
    expect_errno(fs::rename(&remote, remote.join("dir/x")), libc::EINVAL, "into itself, across MDTs")?;
    sys::rename_with(&first_b.join("link"), &remote_b.join("dir"), sys::RENAME_EXCHANGE)?;
    expect(first.join("link").is_dir(), "exchange across MDTs")?;
    expect_errno(fs::remove_dir(&remote_b), libc::ENOTEMPTY, "rmdir of a full remote directory")?;
    fs::remove_dir_all(&remote_b)?;
    expect(!remote.exists(), "the remote directory is gone")?;
    fs::remove_dir_all(&first_b)?;
    expect_eq(names(&context.a)?, Vec::<String>::new(), "nothing is left")
}

/// `lfs fid2path` tells all names of a file, those in directories on other MDTs too, and tells them to root only.
pub fn paths_of_fids(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let mount = context.a.to_string_lossy().into_owned();
    let dir = context.a.join("first");
    context.mkdir_on(0, &dir)?;
    context.mkdir_on(1, &dir.join("remote"))?;
    context.mkdir_on(0, &dir.join("remote/back"))?;
    write(&dir.join("file"), b"")?;
    let mut expected = vec!["first/file".to_owned()];
    // More than fit into one answer of the mount.
    let long = "l".repeat(240);
    for index in 0..65 {
        let parent = ["first", "first/remote", "first/remote/back"][index % 3];
        let name = format!("{parent}/{long}{index}");
        fs::hard_link(dir.join("file"), context.a.join(&name))?;
        expected.push(name);
    }
    expected.sort();
    let file = dir.join("file");
    let fid = context.lfs(&["path2fid", &file.to_string_lossy()])?;
    let told = context.lfs(&["fid2path", &mount, fid.trim()])?;
    let above = context.a.file_name().map(|name| format!("{}/", name.to_string_lossy())).unwrap_or_default();
    let mut found: Vec<String> = told
        .lines()
        .map(|path| path.split_once(&above).map_or(path, |(_, below)| below).to_owned())
        .collect();
    found.sort();
    expect_eq(found, expected, "names of the file")?;
    let mut command = Command::new(&context.options.sheen);
    command.args(["lfs", "fid2path", &mount, fid.trim()]);
    let output = sys::as_user(65534, 65534, &[], || command.output())??;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    expect(!output.status.success() && output.stdout.is_empty(), "fid2path of somebody else than root")?;
    expect(said.contains("only root"), &format!("why: {said}"))?;
    expect_eq(said.lines().count(), 1, "lines that say why")
}

/// Who asks where something is does not read it, and opens no device; a link has a FID of its own.
pub fn asking(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let path = |name: &str| context.a.join(name).to_string_lossy().into_owned();
    let file = context.a.join("file");
    write(&file, b"data")?;
    sys::set_times(&file, Time::At(1_000_000_000, 7), Time::At(1_000_000_000, 7), true)?;
    let mount = context.a.to_string_lossy().into_owned();
    for words in
        [&["getstripe", &path("file")][..], &["getstripe", "-r", &mount], &["path2fid", &path("file")]]
    {
        context.lfs(words)?;
    }
    context.lfs(&["setstripe", "-c", "1", &path("empty")])?;
    context.lfs(&["getstripe", &path("empty")])?;
    // With the next request the MDT hears of what was read, if it was.
    read(&context.a.join("empty"))?;
    for seen in [&context.a, &context.b] {
        expect_eq(fs::metadata(seen.join("file"))?.atime(), 1_000_000_000, "the access time")?;
    }
    symlink("file", context.a.join("link"))?;
    // Of no driver.
    sys::mknod(&context.a.join("device"), libc::S_IFCHR | 0o600, libc::makedev(240, 1))?;
    sys::mknod(&context.a.join("fifo"), libc::S_IFIFO | 0o600, 0)?;
    for name in ["link", "device", "fifo"] {
        let fid = context.lfs(&["path2fid", &path(name)])?;
        let told = context.lfs(&["fid2path", &mount, fid.trim()])?;
        expect(
            told.trim_end().ends_with(&format!("/{name}")) || told.trim_end() == name,
            &format!("{name} is {told}"),
        )?;
    }
    let linked = context.lfs(&["getstripe", "-c", &path("link")])?;
    expect_eq(linked, context.lfs(&["getstripe", "-c", &path("file")])?, "the layout behind a link")?;
    for (name, what) in [("device", "is a device"), ("fifo", "is a FIFO")] {
        let said =
            context.lfs(&["getstripe", &path(name)]).err().map(|error| error.to_string()).unwrap_or_default();
        expect(said.contains(what), &said)?;
    }
    Ok(())
}

/// What is mounted in a tree is not of the tree, which stays with it; what is in a mounted directory moves, and it
/// does not itself.
pub fn mounts_within(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let [tree, outside] = ["tree", "outside"].map(|name| context.a.join(name));
    for dir in [&tree, &outside] {
        context.mkdir_on(0, dir)?;
        write(&dir.join("file"), b"")?;
    }
    context.mkdir_on(0, &outside.join("sub"))?;
    let point = tree.join("point");
    fs::create_dir(&point)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mdt_of = |path: &Path| -> Result<String> {
        Ok(context.lfs(&["getdirstripe", "-i", &text(path)])?.trim().to_owned())
    };
    let fid_of = |path: &Path| context.lfs(&["path2fid", &text(path)]);
    let fid = fid_of(&outside.join("file"))?;
    let bound = Command::new("mount").arg("--bind").args([&outside, &point]).status()?;
    expect(bound.success(), "a bind mount")?;
    let look = || -> Result<()> {
        let listed = context.lfs(&["getstripe", "-r", &text(&tree)])?;
        expect(listed.contains("tree/file") && !listed.contains("point/file"), &listed)?;
        for words in [&["migrate", "-m", "1"][..], &["migrate", "-d", "-m", "1"]] {
            let said = context.lfs(&[words, &[&text(&tree)]].concat()).err().map(|error| error.to_string());
            let said = said.unwrap_or_default();
            expect(said.contains("something is mounted on") && said.contains("tree/point"), &said)?;
        }
        expect_eq(mdt_of(&tree)?.as_str(), "0", "the tree has not moved")?;
        expect_eq(fid_of(&outside.join("file"))?, fid.clone(), "nor has what is mounted in it")?;
        expect(point.join("file").exists(), "it is mounted still")?;
        let itself = context.lfs(&["migrate", "-d", "-m", "1", &text(&point)]);
        expect(
            itself.is_err_and(|error| error.to_string().contains("it is mounted here")),
            "a mounted directory itself",
        )?;
        context.lfs(&["migrate", "-m", "1", &text(&point)])?;
        expect_eq(mdt_of(&outside)?.as_str(), "0", "a mounted directory stays")?;
        expect_eq(mdt_of(&outside.join("sub"))?.as_str(), "1", "what is in it moves")?;
        expect(fid_of(&outside.join("file"))? != fid, "files too")
    };
    let looked = look();
    let unbound = Command::new("umount").arg(&point).status()?;
    looked?;
    expect(unbound.success(), "the end of the bind mount")?;
    context.lfs(&["migrate", "-m", "1", &text(&tree)])?;
    expect_eq(mdt_of(&point)?.as_str(), "1", "the tree moves when nothing is mounted in it")
}

/// FIFOs and sockets work between processes of one mount.
pub fn fifo_and_socket(context: &Context) -> Result<()> {
    let (fifo, fifo_b) = context.both("fifo");
    sys::mknod(&fifo, libc::S_IFIFO | 0o600, 0)?;
    expect(fs::symlink_metadata(&fifo_b)?.file_type().is_fifo(), "a FIFO through the other mount")?;
    let text = std::thread::scope(|scope| -> Result<String> {
        let writer = scope.spawn(|| fs::write(&fifo, "through the pipe"));
        let mut text = String::new();
        File::open(&fifo)?.read_to_string(&mut text)?;
        writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
        Ok(text)
    })?;
    expect_eq(text.as_str(), "through the pipe", "what came through the FIFO")?;
    // A socket address has 108 bytes at most, so a deep working directory is entered first.
    std::env::set_current_dir(&context.a)?;
    let listener = UnixListener::bind("socket")?;
    let mut stream = UnixStream::connect("socket")?;
    stream.write_all(b"hello")?;
    drop(stream);
    let mut text = String::new();
    listener.accept()?.0.read_to_string(&mut text)?;
    std::env::set_current_dir("/")?;
    expect_eq(text.as_str(), "hello", "what came through the socket")
}
