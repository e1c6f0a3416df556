use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::bounded;
use crate::case::{Context, expect, expect_bytes, expect_eq, expect_errno, names, read, write};
use crate::sys;

/// O_CREAT|O_EXCL: exactly one of two mounts gets the name, and a dangling symbolic link counts as a name.
pub fn exclusive(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
    drop(sys::open(&a, flags, 0o644)?);
    expect_errno(sys::open(&b, flags, 0o644), libc::EEXIST, "O_EXCL of an existing name")?;
    let (link, link_b) = context.both("link");
    std::os::unix::fs::symlink("nowhere", &link)?;
    expect_errno(sys::open(&link_b, flags, 0o644), libc::EEXIST, "O_EXCL of a dangling link")?;
    for round in 0..context.rounds(20) {
        let (a, b) = context.both(&format!("race{round}"));
        let won = std::thread::scope(|scope| {
            let tries = [a, b].map(|path| scope.spawn(move || sys::open(&path, flags, 0o644).is_ok()));
            tries
                .into_iter()
                .filter(|_| true)
                .map(|thread| thread.join().unwrap_or(false))
                .filter(|won| *won)
                .count()
        });
        expect_eq(won, 1, "winners of a race for a new name")?;
    }
    Ok(())
}

/// O_TRUNC empties the file for everybody.
pub fn truncate(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"some bytes that go away")?;
    let reader = File::open(&b)?;
    drop(sys::open(&b, libc::O_WRONLY | libc::O_TRUNC, 0)?);
    expect_eq(fs::metadata(&a)?.len(), 0, "size after O_TRUNC through the other mount")?;
    expect_eq(reader.metadata()?.len(), 0, "size through a descriptor opened before")?;
    drop(sys::open(&a, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, 0o600)?);
    expect_eq(fs::metadata(&b)?.mode() & 0o777, 0o644, "mode is not changed by O_CREAT of an existing file")?;
    expect_errno(sys::open(&a.join("x"), libc::O_RDONLY, 0), libc::ENOTDIR, "a file used as a directory")?;
    expect_errno(sys::open(&context.a, libc::O_WRONLY, 0), libc::EISDIR, "a directory opened for writing")
}

/// O_DIRECT reads and writes, mixed with cached ones.
pub fn direct(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let data = context.random().bytes(64 * 1024);
    write(&a, &data)?;
    // An aligned buffer: the middle of a larger one.
    let mut space = vec![0u8; 12 * 4096];
    let skip = space.as_ptr().align_offset(4096);
    let direct = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&b)?;
    let Some(block) = space.get_mut(skip..skip + 8192) else { anyhow::bail!("the buffer is too small") };
    expect_eq(direct.read_at(block, 4096)?, 8192, "bytes of an O_DIRECT read")?;
    expect_bytes(block, &data[4096..12288], "O_DIRECT read of cached writes")?;
    block.fill(b'D');
    expect_eq(direct.write_at(block, 16384)?, 8192, "bytes of an O_DIRECT write")?;
    let mut expected = data.clone();
    expected[16384..24576].fill(b'D');
    expect_bytes(&read(&a)?, &expected, "cached read after an O_DIRECT write")
}

/// O_TMPFILE: no name until one is given, then visible everywhere.
pub fn tmpfile(context: &Context) -> Result<()> {
    let mut file = sys::open(&context.a, libc::O_TMPFILE | libc::O_RDWR, 0o640)?;
    file.write_all(b"unnamed")?;
    expect_eq(file.metadata()?.nlink(), 0, "links of an O_TMPFILE file")?;
    expect(names(&context.b)?.is_empty(), "an O_TMPFILE file must have no name")?;
    let (named, named_b) = context.both("named");
    sys::link_descriptor(&file, &named)?;
    expect_bytes(&read(&named_b)?, b"unnamed", "contents of the file that got a name")?;
    expect_eq(fs::metadata(&named_b)?.mode() & 0o777, 0o640, "its mode")?;
    let secret = sys::open(&context.a, libc::O_TMPFILE | libc::O_RDWR | libc::O_EXCL, 0o600)?;
    expect_errno(
        sys::link_descriptor(&secret, &context.a.join("x")),
        libc::ENOENT,
        "linking an O_EXCL O_TMPFILE",
    )
}

/// O_PATH: no reading, but fstat and reopening through /proc.
pub fn path_only(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"bytes")?;
    let mut handle = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&b)?;
    expect_eq(handle.metadata()?.len(), 5, "fstat of an O_PATH descriptor")?;
    expect_errno(handle.read(&mut [0u8; 4]), libc::EBADF, "read from an O_PATH descriptor")?;
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&handle));
    expect_bytes(&fs::read(again)?, b"bytes", "reopened through /proc/self/fd")
}

/// O_NOFOLLOW and O_DIRECTORY.
pub fn nofollow_and_directory(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"x")?;
    let (link, link_b) = context.both("link");
    std::os::unix::fs::symlink("file", &link)?;
    expect_errno(
        sys::open(&link_b, libc::O_RDONLY | libc::O_NOFOLLOW, 0),
        libc::ELOOP,
        "O_NOFOLLOW of a link",
    )?;
    expect_errno(
        sys::open(&b, libc::O_RDONLY | libc::O_DIRECTORY, 0),
        libc::ENOTDIR,
        "O_DIRECTORY of a file",
    )?;
    let (circle, circle_b) = context.both("circle");
    std::os::unix::fs::symlink("circle", circle)?;
    expect_errno(sys::open(&circle_b, libc::O_RDONLY, 0), libc::ELOOP, "a link to itself")
}

/// O_SYNC and O_DSYNC writes arrive like others.
pub fn sync(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    for flag in [libc::O_SYNC, libc::O_DSYNC] {
        let mut file = sys::open(&a, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC | flag, 0o644)?;
        file.write_all(b"synchronous")?;
        expect_bytes(&read(&b)?, b"synchronous", "a synchronous write seen through the other mount")?;
    }
    Ok(())
}

/// Reading a write-only descriptor and writing a read-only one.
pub fn access_modes(context: &Context) -> Result<()> {
    let (a, _) = context.both("file");
    write(&a, b"x")?;
    let mut writer = OpenOptions::new().write(true).open(&a)?;
    expect_errno(writer.read(&mut [0u8; 1]), libc::EBADF, "read of a write-only descriptor")?;
    let mut reader = File::open(&a)?;
    expect_errno(reader.write(b"y"), libc::EBADF, "write to a read-only descriptor")?;
    fs::set_permissions(&a, PermissionsExt::from_mode(0o400))?;
    let refused = sys::as_user(65534, 65534, &[], || sys::open(&a, libc::O_RDONLY, 0))?;
    expect_errno(refused, libc::EACCES, "open of a file of somebody else")
}

/// Modes of new files follow the umask.
pub fn mode_and_umask(context: &Context) -> Result<()> {
    let cases = [(0o022, 0o666, 0o644), (0o077, 0o777, 0o700), (0, 0o666, 0o666)];
    for (index, (mask, asked, expected)) in cases.into_iter().enumerate() {
        let (a, b) = context.both(&format!("file{index}"));
        sys::umask(mask);
        let made = sys::open(&a, libc::O_CREAT | libc::O_WRONLY, asked);
        sys::umask(0o022);
        drop(made?);
        expect_eq(fs::metadata(&b)?.mode() & 0o7777, expected, "mode of a new file")?;
    }
    Ok(())
}

/// O_APPEND is atomic across mounts: every record of both writers is there, whole, once.
pub fn append_across_mounts(context: &Context) -> Result<()> {
    let (a, b) = context.both("log");
    write(&a, b"")?;
    let record_count = context.rounds(300);
    std::thread::scope(|scope| -> Result<()> {
        let writers = [(&a, 'a'), (&b, 'b')].map(|(path, who)| {
            scope.spawn(move || -> Result<()> {
                let mut file = OpenOptions::new().append(true).open(path)?;
                for number in 0..record_count {
                    let record = format!("{who}{number:06}{}\n", "-".repeat((number % 50) as usize));
                    file.write_all(record.as_bytes())?;
                }
                Ok(())
            })
        });
        for writer in writers {
            writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
        }
        Ok(())
    })?;
    for path in [&a, &b] {
        let text = String::from_utf8_lossy(&read(path)?).into_owned();
        for who in ['a', 'b'] {
            let numbers: Vec<u64> = text
                .lines()
                .filter(|line| line.starts_with(who))
                .filter_map(|line| line.get(1..7)?.parse().ok())
                .collect();
            expect_eq(numbers, (0..record_count).collect::<Vec<_>>(), &format!("records of writer {who}"))?;
        }
    }
    let mut file = OpenOptions::new().append(true).read(true).open(&a)?;
    file.seek(SeekFrom::Start(0))?;
    let before = fs::metadata(&b)?.len();
    file.write_all(b"end")?;
    expect_eq(fs::metadata(&b)?.len(), before + 3, "size after an append with the position at 0")
}

/// A program can be run, not written while it runs, and not run while it is written.
pub fn execute(context: &Context) -> Result<()> {
    let (a, b) = context.both("program");
    fs::copy("/bin/sleep", &a)?;
    let limit = Duration::from_secs(60);
    let said = bounded::say(Command::new(&b).arg("0"), "SHEEN_EXEC=1", limit)?;
    expect(said.is_success(), &format!("running a program: {}", said.all()))?;
    let mut running = Command::new(&a).arg("1000").spawn()?;
    let refused = sys::open(&a, libc::O_WRONLY, 0);
    running.kill()?;
    running.wait()?;
    expect_errno(refused, libc::ETXTBSY, "writing a program that runs")?;
    let writer = sys::open(&a, libc::O_WRONLY, 0)?;
    let run = Command::new(&a).arg("0").status();
    drop(writer);
    expect_errno(run, libc::ETXTBSY, "running a program that is open for writing")
}

/// Who may execute a program need not be allowed to read it.
pub fn execute_without_reading(context: &Context) -> Result<()> {
    let (a, b) = context.both("program");
    fs::copy("/bin/sleep", &a)?;
    // Mode, and whether somebody else may run it and read it.
    for (mode, may_run, may_read) in [(0o711, true, false), (0o744, false, true), (0o700, false, false)] {
        fs::set_permissions(&a, PermissionsExt::from_mode(mode))?;
        for path in [&a, &b] {
            let run = sys::as_user(65534, 65534, &[], || Command::new(path).arg("0").status())?;
            let read = sys::as_user(65534, 65534, &[], || File::open(path).map(drop))?;
            let what = format!("mode {mode:o}");
            if may_run {
                expect(run?.success(), &format!("running a program of {what}"))?;
            } else {
                expect_errno(run, libc::EACCES, &format!("running a program of {what}"))?;
            }
            if may_read {
                read?;
            } else {
                expect_errno(read, libc::EACCES, &format!("reading a program of {what}"))?;
            }
        }
    }
    Ok(())
}
