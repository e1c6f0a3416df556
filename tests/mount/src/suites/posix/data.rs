use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::bounded;
use crate::case::{Context, expect, expect_bytes, expect_eq, expect_errno, read, write};
use crate::sys::{self, MapKind, Mapping};

const MIB: usize = 1 << 20;

fn open_both(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Contents of every awkward size survive, and reads past the end are short.
pub fn sizes(context: &Context) -> Result<()> {
    let mut random = context.random();
    for byte_count in [0, 1, 511, 4095, 4096, 4097, 65536, 65537, MIB - 1, MIB, MIB + 1, 8 * MIB + 1] {
        let (a, b) = context.both(&format!("file{byte_count}"));
        let data = random.bytes(byte_count);
        write(&a, &data)?;
        expect_bytes(&read(&b)?, &data, &format!("a file of {byte_count} bytes"))?;
        let file = File::open(&b)?;
        expect_eq(file.read_at(&mut [0u8; 10], byte_count as u64)?, 0, "bytes read at the end")?;
        if byte_count > 3 {
            expect_eq(
                file.read_at(&mut [0u8; 10], byte_count as u64 - 3)?,
                3,
                "bytes read just before the end",
            )?;
        }
        fs::remove_file(&b)?;
    }
    Ok(())
}

/// pwrite far beyond the end leaves zeros between.
pub fn far_offsets(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let file = open_both(&a)?;
    file.write_all_at(b"far", 5 * MIB as u64 + 7)?;
    file.write_all_at(b"near", 0)?;
    let mut expected = vec![0u8; 5 * MIB + 10];
    expected[..4].copy_from_slice(b"near");
    expected[5 * MIB + 7..].copy_from_slice(b"far");
    expect_bytes(&read(&b)?, &expected, "zeros between two writes")?;
    expect_errno(sys::seek(&file, -1, libc::SEEK_SET), libc::EINVAL, "seek before the start")
}

/// readv and writev.
pub fn vectors(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let parts = [context.random().bytes(3000), context.random().bytes(5000), context.random().bytes(1)];
    let mut file = open_both(&a)?;
    let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    expect_eq(file.write_vectored(&slices)?, 8001, "bytes of writev")?;
    let (mut first, mut second) = (vec![0u8; 4000], vec![0u8; 5000]);
    let mut reader = File::open(b)?;
    let count = reader.read_vectored(&mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)])?;
    expect_eq(count, 8001, "bytes of readv")?;
    let all = [first, second].concat();
    expect_bytes(&all[..8001], &parts.concat(), "readv of what writev wrote")
}

/// A private mapping shows the file and keeps its own stores to itself.
pub fn map_private(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let data = context.random().bytes(3 * 4096 + 100);
    write(&a, &data)?;
    let file = File::open(&b)?;
    let mapping = Mapping::new(&file, MapKind::PrivateWrite, data.len())?;
    expect_bytes(&mapping.read(0, data.len()), &data, "private mapping")?;
    mapping.write(5000, b"mine");
    expect_bytes(&mapping.read(5000, 4), b"mine", "own store in a private mapping")?;
    drop(mapping);
    expect_bytes(&read(&a)?, &data, "file after a store to a private mapping")?;
    expect_eq(
        Mapping::new(&file, MapKind::SharedWrite, 4096).err().and_then(|error| error.raw_os_error()),
        Some(libc::EACCES),
        "a shared writable mapping of a read-only descriptor",
    )
}

/// A store to a shared mapping is in the file, for this mount and the other.
pub fn map_shared(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let mut data = context.random().bytes(5 * 4096 + 33);
    write(&a, &data)?;
    let file = open_both(&a)?;
    let mapping = Mapping::new(&file, MapKind::SharedWrite, data.len())?;
    mapping.write(4090, b"across a page");
    data[4090..4103].copy_from_slice(b"across a page");
    let mut same_mount = vec![0u8; data.len()];
    file.read_exact_at(&mut same_mount, 0)?;
    expect_bytes(&same_mount, &data, "read(2) of a mapped store on the same mount")?;
    mapping.sync()?;
    expect_bytes(&read(&b)?, &data, "the other mount after msync")?;
    mapping.write(2 * 4096, b"second");
    data[2 * 4096..2 * 4096 + 6].copy_from_slice(b"second");
    drop(mapping);
    drop(file);
    expect_bytes(&read(&b)?, &data, "the other mount after munmap and close")
}

/// Stores into a mapping, and reads and writes past the page cache through another descriptor of the same mount: each sees what came before,
/// and no page is written back over what was written after it.
pub fn map_and_direct(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let mut data = context.random().bytes(4 * 4096);
    write(&a, &data)?;
    let file = open_both(&a)?;
    let direct = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&a)?;
    let mapping = Mapping::new(&file, MapKind::SharedWrite, data.len())?;
    let mut space = vec![0u8; 3 * 4096];
    let skip = space.as_ptr().align_offset(4096);
    let block = space.get_mut(skip..skip + 4096).context("an aligned page")?;
    for round in 0..8 {
        let (at, mark) = (round % 4 * 4096, [b'a' + round as u8; 10]);
        mapping.write(at + 100, &mark);
        data[at + 100..at + 110].copy_from_slice(&mark);
        expect_eq(direct.read_at(block, at as u64)?, 4096, "bytes of an O_DIRECT read")?;
        expect_bytes(block, &data[at..at + 4096], "O_DIRECT read of what was stored")?;
        mapping.write(at + 200, &mark);
        block.fill(mark[0]);
        expect_eq(direct.write_at(block, at as u64)?, 4096, "bytes of an O_DIRECT write")?;
        data[at..at + 4096].copy_from_slice(block);
        expect_bytes(&mapping.read(0, data.len()), &data, "the mapping after an O_DIRECT write")?;
    }
    mapping.sync()?;
    drop(mapping);
    drop(file);
    expect_bytes(&read(&b)?, &data, "the other mount after munmap and close")
}

/// Truncating shorter cuts, longer zero-fills; a cut tail does not come back.
pub fn truncate(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let data = context.random().bytes(2 * MIB + 5000);
    write(&a, &data)?;
    let (file, other) = (open_both(&a)?, open_both(&b)?);
    let mut expected = data;
    for byte_count in [MIB + 4097, MIB + 4096, 12345, 1, 3 * MIB, 0, 4096] {
        other.set_len(byte_count as u64)?;
        expected.resize(byte_count, 0);
        expect_eq(file.metadata()?.len(), byte_count as u64, "size after ftruncate")?;
        expect_bytes(&read(&a)?, &expected, &format!("contents after ftruncate to {byte_count}"))?;
        file.write_all_at(b"mark", byte_count as u64 / 2)?;
        let end = (byte_count / 2 + 4).max(byte_count);
        expected.resize(end, 0);
        expected[byte_count / 2..byte_count / 2 + 4].copy_from_slice(b"mark");
        expect_bytes(&read(&b)?, &expected, "contents after a write into what was truncated")?;
    }
    Ok(())
}

/// fallocate reserves and extends the size.
pub fn fallocate_plain(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let file = open_both(&a)?;
    file.write_all_at(b"head", 0)?;
    sys::fallocate(&file, 0, 0, 3 * MIB as i64)?;
    expect_eq(fs::metadata(&b)?.len(), 3 * MIB as u64, "size after fallocate")?;
    let mut expected = vec![0u8; 3 * MIB];
    expected[..4].copy_from_slice(b"head");
    expect_bytes(&read(&b)?, &expected, "contents after fallocate")?;
    expect_errno(sys::fallocate(&file, 0, 0, 0), libc::EINVAL, "fallocate of nothing")?;
    let reader = File::open(&a)?;
    expect_errno(sys::fallocate(&reader, 0, 0, 10), libc::EBADF, "fallocate of a read-only descriptor")
}

/// KEEP_SIZE reserves beyond the end and leaves the size.
pub fn fallocate_keep_size(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let file = open_both(&a)?;
    file.write_all_at(b"head", 0)?;
    sys::fallocate(&file, libc::FALLOC_FL_KEEP_SIZE, 0, 4 * MIB as i64)?;
    expect_eq(fs::metadata(&b)?.len(), 4, "size after KEEP_SIZE")?;
    file.set_len(8)?;
    expect_bytes(&read(&b)?, b"head\0\0\0\0", "contents after extending into what was reserved")
}

/// PUNCH_HOLE zeroes and gives space back.
pub fn fallocate_punch(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let mut data = context.random().bytes(4 * MIB);
    write(&a, &data)?;
    let file = open_both(&a)?;
    file.sync_all()?;
    let before = fs::metadata(&b)?.blocks();
    let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    for (start, byte_count) in [(MIB, MIB), (100, 200), (3 * MIB - 10, 5000), (4 * MIB - 5, 100)] {
        sys::fallocate(&file, flags, start as i64, byte_count as i64)?;
        let end = (start + byte_count).min(data.len());
        data[start..end].fill(0);
        expect_bytes(&read(&b)?, &data, "contents after PUNCH_HOLE")?;
    }
    expect_eq(fs::metadata(&b)?.len(), 4 * MIB as u64, "size after PUNCH_HOLE")?;
    file.sync_all()?;
    let after = fs::metadata(&b)?.blocks();
    expect(
        after + 1024 <= before,
        &format!("blocks freed by a hole of 1 MiB: {before} before, {after} after"),
    )?;
    let no_keep = sys::fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE, 0, 10);
    expect_errno(no_keep, libc::EOPNOTSUPP, "PUNCH_HOLE without KEEP_SIZE")
}

/// ZERO_RANGE zeroes, with and without growing.
pub fn fallocate_zero(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let mut data = context.random().bytes(MIB);
    write(&a, &data)?;
    let file = open_both(&a)?;
    sys::fallocate(&file, libc::FALLOC_FL_ZERO_RANGE, 1000, 100_000)?;
    data[1000..101_000].fill(0);
    expect_bytes(&read(&b)?, &data, "contents after ZERO_RANGE")?;
    let keep = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    sys::fallocate(&file, keep, MIB as i64 - 100, 5000)?;
    data[MIB - 100..].fill(0);
    expect_bytes(&read(&b)?, &data, "contents after ZERO_RANGE|KEEP_SIZE across the end")?;
    sys::fallocate(&file, libc::FALLOC_FL_ZERO_RANGE, MIB as i64, 5000)?;
    data.resize(MIB + 5000, 0);
    expect_bytes(&read(&b)?, &data, "contents after a growing ZERO_RANGE")
}

/// COLLAPSE_RANGE and INSERT_RANGE are refused and change nothing.
pub fn fallocate_refused(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let (a, b) = context.both("file");
    let data = context.random().bytes(16384);
    write(&a, &data)?;
    let file = open_both(&a)?;
    for mode in [libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE] {
        expect_errno(sys::fallocate(&file, mode, 0, 4096), libc::EOPNOTSUPP, "collapse or insert")?;
    }
    expect_bytes(&read(&b)?, &data, "contents after the refusals")
}

/// SEEK_HOLE and SEEK_DATA tell holes from data through either mount.
pub fn seek_hole_data(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let file = open_both(&a)?;
    file.write_all_at(&[b'x'; 65536], 2 * MIB as u64)?;
    file.set_len(6 * MIB as u64)?;
    let other = File::open(&b)?;
    for seen in [&file, &other] {
        expect_eq(sys::seek(seen, 0, libc::SEEK_DATA)?, 2 * MIB as u64, "first data")?;
        expect_eq(sys::seek(seen, 0, libc::SEEK_HOLE)?, 0, "first hole")?;
        let data_end = 2 * MIB as u64 + 65536;
        expect_eq(sys::seek(seen, 2 * MIB as i64, libc::SEEK_HOLE)?, data_end, "hole after the data")?;
        expect_errno(sys::seek(seen, data_end as i64, libc::SEEK_DATA), libc::ENXIO, "data after the last")?;
        expect_errno(sys::seek(seen, 6 * MIB as i64, libc::SEEK_HOLE), libc::ENXIO, "hole at the end")?;
    }
    // What was stored into a mapping is in the kernel of that mount, and nowhere else.
    let mapping = Mapping::new(&file, MapKind::SharedWrite, 6 * MIB)?;
    for (at, seen) in [(5 * MIB, &file), (4 * MIB, &other)] {
        mapping.write(at, b"stored");
        let found = sys::seek(seen, 3 * MIB as i64, libc::SEEK_DATA).context("data in a mapping")?;
        expect(found <= at as u64, &format!("data in a mapping at {at} are found at {found}"))?;
    }
    drop(mapping);
    write(&a, b"full")?;
    expect_eq(sys::seek(&other, 0, libc::SEEK_HOLE)?, 4, "the virtual hole at the end")
}

/// copy_file_range within a file and between files, short at the end.
pub fn copy_range(context: &Context) -> Result<()> {
    let (a, b) = context.both("from");
    let data = context.random().bytes(3 * MIB + 77);
    write(&a, &data)?;
    let (from, to) = (File::open(&b)?, open_both(&context.b.join("to"))?);
    let mut copied = 0;
    while copied < data.len() {
        let now = sys::copy_range(&from, copied as i64, &to, copied as i64 + 10, data.len() - copied + 1000)?;
        expect(now > 0, "copy_file_range stopped before the end")?;
        copied += now;
    }
    expect_eq(copied, data.len(), "bytes copied")?;
    let mut expected = vec![0u8; 10];
    expected.extend_from_slice(&data);
    expect_bytes(&read(&context.a.join("to"))?, &expected, "the copy through the other mount")?;
    expect_eq(sys::copy_range(&from, data.len() as i64, &to, 0, 10)?, 0, "copy at the end")?;
    let both = open_both(&b)?;
    expect_errno(sys::copy_range(&both, 0, &both, 10, 100), libc::EINVAL, "overlapping copy")
}

/// The sync calls succeed.
pub fn sync_calls(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let mut file = open_both(&a)?;
    file.write_all(&context.random().bytes(100_000))?;
    file.sync_all()?;
    file.write_all(b"more")?;
    file.sync_data()?;
    File::open(&context.a)?.sync_all()?;
    File::open(&b)?.sync_all()?;
    let said = bounded::say(Command::new("sync").arg("-f").arg(&a), "SHEEN_SYNC=1", Duration::from_secs(60))?;
    expect(said.is_success(), &format!("syncfs: {}", said.all()))
}

/// `sheen sync MOUNT` makes everything durable and waits.
pub fn sheen_sync(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    write(&context.a.join("file"), &context.random().bytes(MIB))?;
    let mount = context.a.parent().unwrap_or(&context.a);
    let mut command = Command::new(&context.options.sheen);
    let said = bounded::say(command.arg("sync").arg(mount), "SHEEN_SYNC=1", Duration::from_secs(60))?;
    expect(said.is_success(), &format!("sheen sync: {}", said.all()))
}

/// A write by somebody without privilege clears set-user-id and set-group-id; so do truncate and chown.
pub fn setid_cleared(context: &Context) -> Result<()> {
    let mode_of = |path: &Path| -> Result<u32> { Ok(fs::metadata(path)?.mode() & 0o7777) };
    let (a, b) = context.both("file");
    fs::set_permissions(&context.a, PermissionsExt::from_mode(0o777))?;
    let reset = || -> Result<()> {
        write(&a, b"program")?;
        std::os::unix::fs::chown(&a, Some(65534), Some(65534))?;
        Ok(fs::set_permissions(&a, PermissionsExt::from_mode(0o6777))?)
    };
    reset()?;
    expect_eq(mode_of(&b)?, 0o6777, "mode before")?;
    sys::as_user(65534, 65534, &[], || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(&b)?;
        file.seek(SeekFrom::Start(1))?;
        file.write_all(b"!")
    })??;
    expect_eq(mode_of(&a)?, 0o777, "mode after a write without privilege")?;
    reset()?;
    sys::as_user(65534, 65534, &[], || OpenOptions::new().write(true).open(&a)?.set_len(3))??;
    expect_eq(mode_of(&b)?, 0o777, "mode after a truncate without privilege")?;
    reset()?;
    std::os::unix::fs::chown(&b, Some(1), Some(1))?;
    expect_eq(mode_of(&a)?, 0o777, "mode after chown")?;
    reset()?;
    let chown_nothing = |path: &Path| std::os::unix::fs::chown(path, None, None);
    expect_errno(
        sys::as_user(1, 1, &[], || chown_nothing(&b))?,
        libc::EPERM,
        "chown of nothing by another user",
    )?;
    expect_eq(mode_of(&a)?, 0o6777, "mode after a chown that was refused")?;
    chown_nothing(&b).context("chown of nothing")?;
    expect_eq(mode_of(&a)?, 0o777, "mode after chown of nothing")?;
    sys::as_user(1, 1, &[], || chown_nothing(&a))?.context("chown of nothing where no bit is set")?;
    fs::set_permissions(&a, PermissionsExt::from_mode(0o6755))?;
    // The superuser keeps the bits: CAP_FSETID.
    OpenOptions::new().append(true).open(&a)?.write_all(b"root")?;
    let mut all = Vec::new();
    File::open(&b)?.read_to_end(&mut all)?;
    expect(all.ends_with(b"root"), "the superuser's write arrived")?;
    expect(File::open(&b)?.as_raw_fd() >= 0, "the file can still be opened")
}
