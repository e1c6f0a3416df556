use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::case::{Context, expect, expect_bytes, expect_eq, expect_errno, names, read, write};
use crate::sys::{self, Time};

const ROUNDS: u64 = 200;

/// Runs `round` with the two mounts in turn as the one that changes and the one that looks.
pub(super) fn alternate(
    context: &Context,
    usual: u64,
    mut round: impl FnMut(u64, &Path, &Path) -> Result<()>,
) -> Result<()> {
    for number in 0..context.rounds(usual) {
        if number >= 10 && context.is_enough(number, "rounds") {
            break;
        }
        let (doer, watcher) =
            if number % 2 == 0 { (&context.a, &context.b) } else { (&context.b, &context.a) };
        round(number, doer, watcher).map_err(|error| error.context(format!("round {number}")))?;
    }
    Ok(())
}

fn exists(path: &PathBuf) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// A name made here is there.
pub fn appears(context: &Context) -> Result<()> {
    alternate(context, ROUNDS, |number, doer, watcher| {
        let name = format!("file{number}");
        write(&doer.join(&name), b"x")?;
        expect(exists(&watcher.join(&name)), "a new name is not seen")
    })
}

/// A name removed here is gone there, even where it was just used.
pub fn disappears(context: &Context) -> Result<()> {
    alternate(context, ROUNDS, |_, doer, watcher| {
        write(&doer.join("file"), b"x")?;
        read(&watcher.join("file"))?;
        fs::remove_file(doer.join("file"))?;
        expect(!exists(&watcher.join("file")), "a removed name is still seen")?;
        expect_errno(fs::read(watcher.join("file")), libc::ENOENT, "opening a removed name")
    })
}

/// A name known to be absent appears at once.
pub fn negative_revoked(context: &Context) -> Result<()> {
    alternate(context, ROUNDS, |number, doer, watcher| {
        let name = format!("file{number}");
        for _ in 0..3 {
            expect(!exists(&watcher.join(&name)), "the name cannot be there yet")?;
        }
        write(&doer.join(&name), b"x")?;
        expect(exists(&watcher.join(&name)), "an absent name that was made is still absent")
    })
}

/// The same for a directory, with a file inside.
pub fn negative_directory(context: &Context) -> Result<()> {
    alternate(context, ROUNDS, |number, doer, watcher| {
        let inside = watcher.join(format!("dir{number}/file"));
        expect(!exists(&inside), "nothing there yet")?;
        fs::create_dir(doer.join(format!("dir{number}")))?;
        expect(!exists(&inside), "the directory is empty")?;
        write(&doer.join(format!("dir{number}/file")), b"x")?;
        expect(exists(&inside), "a file in a new directory is not seen")
    })
}

/// What is mounted on a directory, and the path of a working directory, stay when another mount makes a name beside them.
pub fn in_use_stay(context: &Context) -> Result<()> {
    let script = "mount --bind \"$1/from\" \"$1/dir/on\" && cd \"$1/dir/here\" && : > \"$2/dir/$3\" && ls \"$1/dir/on\" && /bin/pwd -P";
    for dir in ["from", "dir", "dir/on", "dir/here"] {
        fs::create_dir(context.a.join(dir))?;
    }
    write(&context.a.join("from/file"), b"x")?;
    for mount in [&context.a, &context.b] {
        fs::metadata(mount.join("dir/on"))?;
        fs::metadata(mount.join("dir/here"))?;
    }
    // What the kernel was told within the last second it has to drop.
    std::thread::sleep(Duration::from_millis(1500));
    alternate(context, 20, |number, doer, watcher| {
        let mut shell = Command::new("unshare");
        shell.args(["-m", "sh", "-c", script, "sh"]).args([watcher, doer]).arg(format!("name{number}"));
        let output = shell.output()?;
        let here = watcher.join("dir/here");
        let wanted = format!("file\n{}\n", here.display());
        expect_eq(String::from_utf8_lossy(&output.stdout).into_owned(), wanted, "what is mounted, and where")
    })
}

/// Both names of a rename change at once.
pub fn rename_seen(context: &Context) -> Result<()> {
    write(&context.a.join("name0"), b"x")?;
    alternate(context, ROUNDS, |number, doer, watcher| {
        let (old, new) = (format!("name{number}"), format!("name{}", number + 1));
        expect(exists(&watcher.join(&old)) && !exists(&watcher.join(&new)), "before the rename")?;
        fs::rename(doer.join(&old), doer.join(&new))?;
        expect(!exists(&watcher.join(&old)), "the old name is still seen")?;
        expect(exists(&watcher.join(&new)), "the new name is not seen")
    })
}

/// A rename over a name shows the new file there.
pub fn rename_replaced(context: &Context) -> Result<()> {
    write(&context.a.join("target"), b"first")?;
    alternate(context, ROUNDS, |number, doer, watcher| {
        read(&watcher.join("target"))?;
        let text = format!("contents {number}");
        write(&doer.join("new"), text.as_bytes())?;
        fs::rename(doer.join("new"), doer.join("target"))?;
        expect_bytes(&read(&watcher.join("target"))?, text.as_bytes(), "what the replaced name shows")
    })
}

/// Renaming a directory moves every path below it.
pub fn parent_renamed(context: &Context) -> Result<()> {
    fs::create_dir_all(context.a.join("dir0/sub"))?;
    write(&context.a.join("dir0/sub/file"), b"x")?;
    alternate(context, ROUNDS, |number, doer, watcher| {
        let (old, new) = (format!("dir{number}"), format!("dir{}", number + 1));
        expect(exists(&watcher.join(&old).join("sub/file")), "before")?;
        fs::rename(doer.join(&old), doer.join(&new))?;
        expect(!exists(&watcher.join(&old).join("sub/file")), "a path through the old name still works")?;
        expect(exists(&watcher.join(&new).join("sub/file")), "the path through the new name does not work")
    })
}

/// RENAME_EXCHANGE shows both at once.
pub fn exchange_seen(context: &Context) -> Result<()> {
    write(&context.a.join("x"), b"0")?;
    write(&context.a.join("y"), b"1")?;
    alternate(context, ROUNDS, |number, doer, watcher| {
        sys::rename_with(&doer.join("x"), &doer.join("y"), sys::RENAME_EXCHANGE)?;
        let expected: &[u8] = if number % 2 == 0 { b"1" } else { b"0" };
        expect_bytes(&read(&watcher.join("x"))?, expected, "x after the exchange")
    })
}

/// A name removed and made again is another file there.
pub fn recreated(context: &Context) -> Result<()> {
    write(&context.a.join("file"), b"")?;
    alternate(context, ROUNDS, |number, doer, watcher| {
        fs::metadata(watcher.join("file"))?;
        fs::remove_file(doer.join("file"))?;
        write(&doer.join("file"), number.to_string().as_bytes())?;
        let (here, there) =
            (fs::metadata(doer.join("file"))?.ino(), fs::metadata(watcher.join("file"))?.ino());
        expect_eq(there, here, "inode of the name made again")?;
        expect_bytes(&read(&watcher.join("file"))?, number.to_string().as_bytes(), "its contents")
    })
}

/// A listing shows exactly the names of now.
pub fn listing(context: &Context) -> Result<()> {
    let mut expected = std::collections::BTreeSet::new();
    let mut random = context.random();
    alternate(context, ROUNDS, |_, doer, watcher| {
        let name = format!("file{}", random.below(30));
        if expected.remove(&name) {
            fs::remove_file(doer.join(&name))?;
        } else {
            write(&doer.join(&name), b"")?;
            expected.insert(name);
        }
        expect_eq(names(watcher)?, expected.iter().cloned().collect::<Vec<_>>(), "the listing")
    })
}

/// After `ls -l` there, attributes changed here are seen.
pub fn listing_attributes(context: &Context) -> Result<()> {
    for index in 0..20 {
        write(&context.a.join(format!("file{index}")), b"")?;
    }
    alternate(context, ROUNDS, |number, doer, watcher| {
        for entry in fs::read_dir(watcher)? {
            entry?.metadata()?;
        }
        let name = format!("file{}", number % 20);
        write(&doer.join(&name), vec![b'x'; number as usize + 1].as_slice())?;
        expect_eq(fs::metadata(watcher.join(&name))?.len(), number + 1, "size after a listing")
    })
}

/// A symbolic link replaced by another.
pub fn symlink_replaced(context: &Context) -> Result<()> {
    symlink("target", context.a.join("link"))?;
    alternate(context, ROUNDS, |number, doer, watcher| {
        fs::read_link(watcher.join("link"))?;
        fs::remove_file(doer.join("link"))?;
        symlink(format!("target{number}"), doer.join("link"))?;
        expect_eq(
            fs::read_link(watcher.join("link"))?,
            Path::new(&format!("target{number}")),
            "the link's target",
        )
    })
}

/// Link counts through a third name.
pub fn link_count(context: &Context) -> Result<()> {
    write(&context.a.join("file"), b"")?;
    alternate(context, ROUNDS, |number, doer, watcher| {
        fs::hard_link(doer.join("file"), doer.join(format!("link{number}")))?;
        expect_eq(fs::metadata(watcher.join("file"))?.nlink(), 2, "links after link")?;
        fs::remove_file(doer.join(format!("link{number}")))?;
        expect_eq(fs::metadata(watcher.join("file"))?.nlink(), 1, "links after unlink")
    })
}

/// chmod and chown.
pub fn mode_and_owner(context: &Context) -> Result<()> {
    write(&context.a.join("file"), b"")?;
    alternate(context, ROUNDS, |number, doer, watcher| {
        let (mode, uid) = (0o600 + (number as u32 % 64), number as u32);
        chown(doer.join("file"), Some(uid), Some(uid + 1))?;
        fs::set_permissions(doer.join("file"), PermissionsExt::from_mode(mode))?;
        let meta = fs::metadata(watcher.join("file"))?;
        expect_eq((meta.mode() & 0o777, meta.uid(), meta.gid()), (mode, uid, uid + 1), "mode, owner, group")
    })
}

/// Who owns something may change its mode at once, wherever he was made its owner; and nobody else. The kernel judges that by what it knows.
pub fn owner_judged(context: &Context) -> Result<()> {
    for name in ["file", "written"] {
        write(&context.a.join(name), b"x")?;
    }
    fs::create_dir(context.a.join("dir"))?;
    alternate(context, ROUNDS, |_, doer, watcher| {
        // Nobody is told its size meanwhile, so the kernel asks for its attributes each time, and is told to believe its name.
        let mut written = File::options().append(true).open(doer.join("written"))?;
        for name in ["file", "written", "dir"] {
            let set = |mode| {
                let path = watcher.join(name);
                sys::as_user(1000, 1000, &[], || fs::set_permissions(path, PermissionsExt::from_mode(mode)))
            };
            written.write_all(b"more")?;
            fs::metadata(watcher.join(name))?;
            chown(doer.join(name), Some(1000), Some(1000))?;
            set(0o700)?.with_context(|| format!("{name} by its new owner"))?;
            chown(doer.join(name), Some(0), Some(0))?;
            expect_errno(set(0o755)?, libc::EPERM, &format!("{name} by its former owner"))?;
        }
        Ok(())
    })
}

/// A permission taken away here is refused there at once, and given back.
pub fn permission_enforced(context: &Context) -> Result<()> {
    write(&context.a.join("file"), b"x")?;
    fs::create_dir(context.a.join("dir"))?;
    write(&context.a.join("dir/in"), b"x")?;
    alternate(context, ROUNDS, |_, doer, watcher| {
        for (name, path) in [("file", "file"), ("dir", "dir/in")] {
            let open = || sys::as_user(1000, 1000, &[], || fs::read(watcher.join(path)).map(drop));
            fs::set_permissions(doer.join(name), PermissionsExt::from_mode(0o755))?;
            open()??;
            fs::set_permissions(doer.join(name), PermissionsExt::from_mode(0o700))?;
            expect_errno(open()?, libc::EACCES, &format!("{path} after the permission was taken"))?;
        }
        Ok(())
    })
}

/// utimensat.
pub fn times(context: &Context) -> Result<()> {
    write(&context.a.join("file"), b"")?;
    alternate(context, ROUNDS, |number, doer, watcher| {
        let second = 1_000_000 + number as i64;
        sys::set_times(&doer.join("file"), Time::At(second, 5), Time::At(second + 1, 7), true)?;
        let meta = fs::metadata(watcher.join("file"))?;
        expect_eq((meta.atime(), meta.mtime(), meta.mtime_nsec()), (second, second + 1, 7), "times")
    })
}

/// Times that are set while another mount has written and not closed: its close is late, and changes them no more.
pub fn times_before_close(context: &Context) -> Result<()> {
    write(&context.a.join("file"), b"")?;
    alternate(context, ROUNDS, |number, doer, watcher| {
        let mut writer = fs::OpenOptions::new().write(true).open(watcher.join("file"))?;
        writer.write_all(b"written before")?;
        let second = 1_000_000 + number as i64;
        sys::set_times(&doer.join("file"), Time::At(second, 5), Time::At(second + 1, 7), true)?;
        drop(writer);
        for mount in [doer, watcher] {
            let meta = fs::metadata(mount.join("file"))?;
            expect_eq((meta.mtime(), meta.mtime_nsec()), (second + 1, 7), "times after a late close")?;
        }
        Ok(())
    })
}
