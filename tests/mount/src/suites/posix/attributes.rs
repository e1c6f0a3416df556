use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown as set_owner, lchown, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Result;

use crate::case::{Context, expect, expect_eq, expect_errno, write};
use crate::sys::{self, Time};

const NOBODY: u32 = 65534;

fn mode(path: &Path) -> Result<u32> {
    Ok(fs::symlink_metadata(path)?.mode() & 0o7777)
}

fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::set_permissions(path, PermissionsExt::from_mode(mode))
}

/// chmod: every bit, only the owner, set-group-id lost without the group.
pub fn chmod(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"")?;
    for bits in [0, 0o777, 0o7777, 0o644, 0o1000, 0o4755] {
        set_mode(&a, bits)?;
        expect_eq(mode(&b)?, bits, "mode through the other mount")?;
    }
    let refused = sys::as_user(NOBODY, NOBODY, &[], || set_mode(&b, 0o600))?;
    expect_errno(refused, libc::EPERM, "chmod of somebody else's file")?;
    set_owner(&a, Some(NOBODY), Some(0))?;
    sys::as_user(NOBODY, NOBODY, &[], || set_mode(&b, 0o2755))??;
    expect_eq(mode(&a)?, 0o755, "set-group-id of a foreign group is dropped")
}

/// chown: who may, and what it clears.
pub fn chown(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"")?;
    set_owner(&a, Some(1000), Some(2000))?;
    let meta = fs::metadata(&b)?;
    expect_eq((meta.uid(), meta.gid()), (1000, 2000), "owner through the other mount")?;
    set_owner(&b, None, Some(3000))?;
    expect_eq(fs::metadata(&a)?.uid(), 1000, "owner untouched when only the group changes")?;
    let refused = sys::as_user(1000, 3000, &[], || set_owner(&a, Some(1001), None))?;
    expect_errno(refused, libc::EPERM, "giving a file away")?;
    sys::as_user(1000, 3000, &[4000], || set_owner(&a, None, Some(4000)))??;
    expect_eq(fs::metadata(&b)?.gid(), 4000, "a group that the owner is in")?;
    let refused = sys::as_user(1000, 3000, &[], || set_owner(&a, None, Some(5000)))?;
    expect_errno(refused, libc::EPERM, "a group that the owner is not in")?;
    let (link, link_b) = context.both("link");
    symlink("file", &link)?;
    lchown(&link, Some(7), Some(8))?;
    let meta = fs::symlink_metadata(&link_b)?;
    expect_eq((meta.uid(), meta.gid()), (7, 8), "owner of a symbolic link")?;
    expect_eq(fs::metadata(&link_b)?.uid(), 1000, "its target keeps its own")
}

/// utimensat: explicit times to the nanosecond, now, omit, who may.
pub fn utimensat(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"")?;
    sys::set_times(&a, Time::At(1_000_000_007, 123_456_789), Time::At(2_000_000_000, 1), true)?;
    let meta = fs::metadata(&b)?;
    expect_eq((meta.atime(), meta.atime_nsec()), (1_000_000_007, 123_456_789), "atime")?;
    expect_eq((meta.mtime(), meta.mtime_nsec()), (2_000_000_000, 1), "mtime")?;
    sys::set_times(&b, Time::Omit, Time::At(-5, 500_000_000), true)?;
    let meta = fs::metadata(&a)?;
    expect_eq(meta.atime(), 1_000_000_007, "atime omitted")?;
    expect_eq((meta.mtime(), meta.mtime_nsec()), (-5, 500_000_000), "a time before 1970")?;
    sys::set_times(&a, Time::Now, Time::Now, true)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs() as i64;
    expect((fs::metadata(&b)?.mtime() - now).abs() <= 5, "UTIME_NOW is now")?;
    set_mode(&a, 0o666)?;
    sys::as_user(NOBODY, NOBODY, &[], || sys::set_times(&b, Time::Now, Time::Now, true))??;
    let refused =
        sys::as_user(NOBODY, NOBODY, &[], || sys::set_times(&b, Time::At(1, 0), Time::At(1, 0), true))?;
    expect_errno(refused, libc::EPERM, "explicit times on somebody else's file")?;
    let (link, link_b) = context.both("link");
    symlink("file", &link)?;
    sys::set_times(&link, Time::At(11, 0), Time::At(12, 0), false)?;
    expect_eq(fs::symlink_metadata(&link_b)?.mtime(), 12, "mtime of a symbolic link")
}

/// Which times each operation changes.
pub fn operation_times(context: &Context) -> Result<()> {
    let (a, b) = context.both("dir");
    fs::create_dir(&a)?;
    let stamp = |path: &Path| -> Result<[(i64, i64); 2]> {
        let meta = fs::symlink_metadata(path)?;
        Ok([(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())])
    };
    let file = b.join("file");
    // A coarse kernel clock ticks every 4 or 10 ms; two changes within a tick have the same time.
    let tick = || std::thread::sleep(Duration::from_millis(25));
    let before = stamp(&a)?;
    tick();
    write(&file, b"x")?;
    let made = stamp(&a)?;
    expect(made[0] > before[0] && made[1] > before[1], "create changes the directory's mtime and ctime")?;
    let first = stamp(&a.join("file"))?;
    tick();
    OpenOptions::new().write(true).open(&file)?.write_all(b"yz")?;
    let written = stamp(&a.join("file"))?;
    expect(written[0] > first[0] && written[1] > first[1], "write changes mtime and ctime")?;
    expect_eq(stamp(&a)?, made, "writing does not change the directory")?;
    tick();
    set_mode(&file, 0o600)?;
    let moded = stamp(&a.join("file"))?;
    expect(moded[0] == written[0] && moded[1] > written[1], "chmod changes ctime only")?;
    tick();
    fs::hard_link(&file, b.join("link"))?;
    expect(stamp(&a.join("file"))?[1] > moded[1], "link changes the file's ctime")?;
    let linked = stamp(&a)?;
    tick();
    fs::remove_file(b.join("link"))?;
    expect(stamp(&a)?[0] > linked[0], "unlink changes the directory's mtime")?;
    let unlinked = stamp(&a.join("file"))?;
    tick();
    fs::rename(&file, b.join("renamed"))?;
    let renamed = stamp(&a.join("renamed"))?;
    expect(renamed[0] == unlinked[0] && renamed[1] > unlinked[1], "rename changes the file's ctime only")?;
    tick();
    OpenOptions::new().write(true).open(b.join("renamed"))?.set_len(1)?;
    expect(stamp(&a.join("renamed"))?[0] > renamed[0], "truncate changes mtime")?;
    let mut bytes = Vec::new();
    File::open(a.join("renamed"))?.read_to_end(&mut bytes)?;
    expect_eq(bytes.len(), 1, "length after truncate")
}

/// Link counts of directories count their subdirectories.
pub fn link_counts(context: &Context) -> Result<()> {
    let (a, b) = context.both("dir");
    fs::create_dir(&a)?;
    expect_eq(fs::metadata(&b)?.nlink(), 2, "links of an empty directory")?;
    fs::create_dir(b.join("x"))?;
    fs::create_dir(b.join("y"))?;
    expect_eq(fs::metadata(&a)?.nlink(), 4, "links with two subdirectories")?;
    fs::rename(b.join("x"), context.b.join("x"))?;
    expect_eq(fs::metadata(&a)?.nlink(), 3, "links after one moved out")?;
    fs::remove_dir(b.join("y"))?;
    expect_eq(fs::metadata(&a)?.nlink(), 2, "links after the other was removed")
}

/// Inode numbers are the same on both mounts, in readdir and in stat, and stay over renames.
pub fn inode_numbers(context: &Context) -> Result<()> {
    for index in 0..50 {
        write(&context.a.join(format!("file{index}")), b"")?;
    }
    for entry in fs::read_dir(&context.b)? {
        let entry = entry?;
        let other = fs::metadata(context.a.join(entry.file_name()))?.ino();
        expect_eq(
            std::os::unix::fs::DirEntryExt::ino(&entry),
            other,
            "inode in readdir and on the other mount",
        )?;
    }
    let inode = fs::metadata(context.a.join("file7"))?.ino();
    fs::rename(context.a.join("file7"), context.a.join("seven"))?;
    expect_eq(fs::metadata(context.b.join("seven"))?.ino(), inode, "inode after a rename")?;
    expect(fs::metadata(&context.a)?.ino() != inode, "a directory and its file differ")
}

/// In a sticky directory only the owners of file or directory may remove or rename.
pub fn sticky(context: &Context) -> Result<()> {
    let (a, b) = context.both("dir");
    fs::create_dir(&a)?;
    set_mode(&a, 0o1777)?;
    sys::as_user(1000, 1000, &[], || fs::write(a.join("of1000"), b""))??;
    sys::as_user(1001, 1001, &[], || fs::write(a.join("of1001"), b""))??;
    let refused = sys::as_user(1001, 1001, &[], || fs::remove_file(b.join("of1000")))?;
    expect(
        matches!(
            refused.as_ref().err().and_then(|error| error.raw_os_error()),
            Some(libc::EPERM | libc::EACCES)
        ),
        "unlink of somebody else's file in a sticky directory",
    )?;
    let refused = sys::as_user(1001, 1001, &[], || fs::rename(b.join("of1001"), b.join("of1000")))?;
    expect(refused.is_err(), "rename over somebody else's file in a sticky directory")?;
    sys::as_user(1000, 1000, &[], || fs::remove_file(b.join("of1000")))??;
    sys::as_user(1001, 1001, &[], || fs::rename(b.join("of1001"), b.join("mine")))??;
    expect(a.join("mine").exists(), "the owner's own rename")
}

/// Files in a set-group-id directory get its group; directories the bit too.
pub fn setgid_directory(context: &Context) -> Result<()> {
    let (a, b) = context.both("dir");
    fs::create_dir(&a)?;
    set_owner(&a, None, Some(4242))?;
    set_mode(&a, 0o2777)?;
    write(&b.join("file"), b"")?;
    fs::create_dir(b.join("sub"))?;
    expect_eq(fs::metadata(a.join("file"))?.gid(), 4242, "group of a file")?;
    expect_eq(fs::metadata(a.join("sub"))?.gid(), 4242, "group of a directory")?;
    expect_eq(mode(&a.join("sub"))? & 0o2000, 0o2000, "set-group-id of a directory")
}

/// Supplementary groups count, up to many of them.
pub fn supplementary_groups(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"group")?;
    set_owner(&a, Some(0), Some(5005))?;
    set_mode(&a, 0o040)?;
    let groups: Vec<u32> = (5000..5030).collect();
    let text = sys::as_user(1000, 1000, &groups, || fs::read(&b))??;
    expect_eq(text.as_slice(), b"group", "read by a member")?;
    let refused = sys::as_user(1000, 1000, &[5004], || fs::read(&b))?;
    expect_errno(refused, libc::EACCES, "read by a stranger")?;
    let (dir, dir_b) = context.both("dir");
    fs::create_dir(&dir)?;
    set_owner(&dir, Some(0), Some(5005))?;
    set_mode(&dir, 0o770)?;
    sys::as_user(1000, 1000, &groups, || fs::write(dir_b.join("made"), b""))??;
    expect_eq(fs::metadata(dir.join("made"))?.uid(), 1000, "owner of what a member made")?;
    // A long name in UTF-8, say, of which the kernel keeps half of the last character.
    sys::as_user(1000, 1000, &groups, || {
        sys::name_thread(c"m\xc3")?;
        fs::write(dir_b.join("named"), b"")
    })??;
    expect_eq(
        fs::metadata(dir.join("named"))?.uid(),
        1000,
        "owner of what a member made whose name is no text",
    )
}

/// Owner, group and others; search and write permission of directories; access(2).
pub fn permissions(context: &Context) -> Result<()> {
    let (a, b) = context.both("dir");
    fs::create_dir(&a)?;
    write(&a.join("file"), b"x")?;
    set_owner(a.join("file"), Some(1000), Some(1000))?;
    set_mode(&a.join("file"), 0o740)?;
    let file = b.join("file");
    sys::as_user(1000, 1, &[], || OpenOptions::new().write(true).open(&file))??;
    sys::as_user(1001, 1000, &[], || File::open(&file))??;
    let refused = sys::as_user(1001, 1000, &[], || OpenOptions::new().write(true).open(&file))?;
    expect_errno(refused, libc::EACCES, "group without write permission")?;
    expect_errno(
        sys::as_user(1001, 1001, &[], || File::open(&file))?,
        libc::EACCES,
        "others without permission",
    )?;
    let refused = sys::as_user(1001, 1001, &[], || fs::write(b.join("new"), b""))?;
    expect_errno(refused, libc::EACCES, "creating in a directory of somebody else")?;
    let refused = sys::as_user(1001, 1001, &[], || fs::remove_file(&file))?;
    expect_errno(refused, libc::EACCES, "removing from it")?;
    set_mode(&a, 0o744)?;
    let refused = sys::as_user(1000, 1000, &[], || fs::metadata(&file).map(drop))?;
    expect_errno(refused, libc::EACCES, "stat without search permission")?;
    sys::as_user(1000, 1000, &[], || fs::read_dir(&b).map(drop))??;
    set_mode(&a, 0o711)?;
    sys::as_user(1000, 1000, &[], || fs::metadata(&file).map(drop))??;
    let refused = sys::as_user(1000, 1000, &[], || fs::read_dir(&b).map(drop))?;
    expect_errno(refused, libc::EACCES, "listing without read permission")?;
    sys::as_user(1000, 1000, &[], || sys::access(&file, libc::R_OK | libc::W_OK))??;
    let refused = sys::as_user(1001, 1001, &[], || sys::access(&file, libc::R_OK))?;
    expect_errno(refused, libc::EACCES, "access(2) of others")
}

/// statx reports a birth time that never changes.
pub fn birth_time(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"")?;
    let Some(born) = sys::birth_time(&a)? else {
        return if context.options.is_local() || !sys::kernel_asks_for_birth_times() {
            crate::case::skip("no birth time here: FUSE has them since Linux 6.6")
        } else {
            expect(false, "no birth time")
        };
    };
    set_mode(&b, 0o600)?;
    write(&b, b"later")?;
    expect_eq(sys::birth_time(&b)?, Some(born), "birth time through the other mount, later")
}

/// st_blocks grows with data, st_blksize is sane, holes take nothing.
pub fn blocks(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let file = File::create(&a)?;
    file.write_all_at(&[1u8; 1 << 20], 0)?;
    file.set_len(1 << 30)?;
    file.sync_all()?;
    let meta = fs::metadata(&b)?;
    expect(meta.blocks() >= 2048, &format!("1 MiB of data takes blocks: {}", meta.blocks()))?;
    expect(meta.blocks() < 2048 * 4, &format!("a hole takes none: {} blocks", meta.blocks()))?;
    expect(meta.blksize() >= 512 && meta.blksize() <= 1 << 24, "st_blksize")
}

/// statfs: sane figures that follow a large file.
pub fn statfs(context: &Context) -> Result<()> {
    let before = sys::space(&context.a)?;
    expect_eq(before.name_bytes_max, 255, "longest name")?;
    expect(before.total_bytes >= before.free_bytes, "total covers free")?;
    expect(before.free_bytes >= before.available_bytes, "free covers available")?;
    expect(before.available_bytes > 0, "some space is available")?;
    expect(before.file_count == 0 || before.file_count >= before.files_free, "files cover free files")
}
