use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::Result;

use super::names::alternate;
use crate::case::{Context, expect, expect_bytes, expect_eq, expect_errno, read, skip, write};
use crate::sys::{self, MapKind, Mapping};

const ROUNDS: u64 = 150;
const PAGE: usize = 4096;

pub(super) fn open_rw(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn read_open(file: &File, byte_count: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0u8; byte_count];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The size after a write, truncate or append.
pub fn size(context: &Context) -> Result<()> {
    let mut random = context.random();
    alternate(context, ROUNDS, |_, doer, watcher| {
        let byte_count = random.below(100_000);
        open_rw(&doer.join("file"))?.set_len(byte_count)?;
        expect_eq(fs::metadata(watcher.join("file"))?.len(), byte_count, "size after truncate")?;
        OpenOptions::new().append(true).open(doer.join("file"))?.write_all(b"tail")?;
        expect_eq(fs::metadata(watcher.join("file"))?.len(), byte_count + 4, "size after append")
    })
}

/// fstat of a descriptor that stays open.
pub fn size_of_open(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let (here, there) = (open_rw(&a)?, open_rw(&b)?);
    for number in 1..=context.rounds(ROUNDS) {
        if number >= 10 && context.is_enough(number, "rounds") {
            break;
        }
        let (doer, watcher) = if number % 2 == 0 { (&here, &there) } else { (&there, &here) };
        doer.write_all_at(b"x", number * 100)?;
        expect_eq(watcher.metadata()?.len(), number * 100 + 1, "fstat after a write elsewhere")?;
    }
    Ok(())
}

/// Values of extended attributes.
pub fn xattrs(context: &Context) -> Result<()> {
    write(&context.a.join("file"), b"")?;
    alternate(context, ROUNDS, |number, doer, watcher| {
        let value = format!("value {number}");
        sys::set_xattr(&doer.join("file"), "user.x", value.as_bytes(), 0)?;
        expect_bytes(&sys::get_xattr(&watcher.join("file"), "user.x")?, value.as_bytes(), "value")
    })
}

/// Attributes that appear and disappear, in the list and by name.
pub fn xattr_lists(context: &Context) -> Result<()> {
    write(&context.a.join("file"), b"")?;
    alternate(context, ROUNDS, |number, doer, watcher| {
        let name = format!("user.n{number}");
        let seen = watcher.join("file");
        expect_errno(sys::get_xattr(&seen, &name), libc::ENODATA, "not set yet")?;
        sys::set_xattr(&doer.join("file"), &name, b"v", 0)?;
        expect_eq(sys::list_xattrs(&seen)?, vec![name.clone()], "the list")?;
        sys::remove_xattr(&doer.join("file"), &name)?;
        expect_errno(sys::get_xattr(&seen, &name), libc::ENODATA, "removed")
    })
}

/// An ACL set here is enforced there.
pub fn acl_enforced(context: &Context) -> Result<()> {
    write(&context.a.join("file"), b"x")?;
    fs::set_permissions(context.a.join("file"), PermissionsExt::from_mode(0o600))?;
    // Version 2; owner rw, user 1000 r, group none, mask r, others none (tags 1, 2, 4, 0x10, 0x20).
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1u16, 6u16, u32::MAX), (2, 4, 1000), (4, 0, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
    {
        acl.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    let name = "system.posix_acl_access";
    if sys::set_xattr(&context.a.join("file"), name, &acl, 0).is_err() && context.options.is_local() {
        return skip("no POSIX ACLs here");
    }
    alternate(context, 50, |_, doer, watcher| {
        let open = || sys::as_user(1000, 1000, &[], || fs::read(watcher.join("file")).map(drop));
        sys::set_xattr(&doer.join("file"), name, &acl, 0)?;
        open()??;
        sys::remove_xattr(&doer.join("file"), name)?;
        expect_errno(open()?, libc::EACCES, "after the ACL was removed")?;
        fs::set_permissions(doer.join("file"), PermissionsExt::from_mode(0o600))?;
        Ok(())
    })
}

/// Whole files written here are read there.
pub fn write_then_read(context: &Context) -> Result<()> {
    let mut random = context.random();
    alternate(context, ROUNDS, |_, doer, watcher| {
        let byte_count = random.size(200_000);
        let data = random.bytes(byte_count);
        write(&doer.join("file"), &data)?;
        expect_bytes(&read(&watcher.join("file"))?, &data, "contents")
    })
}

/// The same through descriptors that stay open on both mounts.
pub fn open_descriptors(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let mut model = context.random().bytes(64 * 1024);
    write(&a, &model)?;
    let (here, there) = (open_rw(&a)?, open_rw(&b)?);
    let mut random = context.random();
    for number in 0..context.rounds(ROUNDS) {
        if number >= 10 && context.is_enough(number, "rounds") {
            break;
        }
        let (doer, watcher) = if number % 2 == 0 { (&here, &there) } else { (&there, &here) };
        let at = random.size(model.len() - 6000);
        let byte_count = 1 + random.size(6000);
        let data = random.bytes(byte_count);
        doer.write_all_at(&data, at as u64)?;
        model[at..at + byte_count].copy_from_slice(&data);
        expect_bytes(&read_open(watcher, model.len())?, &model, "contents through open descriptors")?;
    }
    Ok(())
}

/// Neighbouring bytes of one page, written in turn by both mounts.
pub fn within_a_page(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let mut model = vec![b'.'; PAGE];
    write(&a, &model)?;
    let (here, there) = (open_rw(&a)?, open_rw(&b)?);
    for number in 0..context.rounds(1000) as usize {
        if number >= 10 && context.is_enough(number as u64, "rounds") {
            break;
        }
        let at = (number * 7) % PAGE;
        let file = if number % 2 == 0 { &here } else { &there };
        let byte = b'a' + (number % 26) as u8;
        file.write_all_at(&[byte], at as u64)?;
        model[at] = byte;
        if number % 10 == 0 {
            expect_bytes(&read_open(&here, PAGE)?, &model, "the page here")?;
            expect_bytes(&read_open(&there, PAGE)?, &model, "the page there")?;
        }
    }
    expect_bytes(&read(&a)?, &model, "the page in the end")
}

/// Appends in turn.
pub fn append_seen(context: &Context) -> Result<()> {
    let mut expected = Vec::new();
    write(&context.a.join("log"), b"")?;
    let mut here = OpenOptions::new().append(true).read(true).open(context.a.join("log"))?;
    let mut there = OpenOptions::new().append(true).read(true).open(context.b.join("log"))?;
    for number in 0..context.rounds(ROUNDS) {
        if number >= 10 && context.is_enough(number, "rounds") {
            break;
        }
        let (doer, watcher) = if number % 2 == 0 { (&mut here, &there) } else { (&mut there, &here) };
        let record = format!("record {number}\n");
        doer.write_all(record.as_bytes())?;
        expected.extend_from_slice(record.as_bytes());
        expect_bytes(&read_open(watcher, expected.len())?, &expected, "the log")?;
        expect_eq(watcher.metadata()?.len(), expected.len() as u64, "its size")?;
    }
    Ok(())
}

/// A file cut here is short there, also for a descriptor whose pages are cached.
pub fn truncate_seen(context: &Context) -> Result<()> {
    let mut random = context.random();
    alternate(context, ROUNDS, |_, doer, watcher| {
        write(&doer.join("file"), &random.bytes(50_000))?;
        let reader = File::open(watcher.join("file"))?;
        read_open(&reader, 50_000)?;
        let byte_count = random.below(50_000);
        open_rw(&doer.join("file"))?.set_len(byte_count)?;
        let mut byte = [0u8; 1];
        expect_eq(reader.read_at(&mut byte, byte_count)?, 0, "a read at the new end")?;
        expect_eq(reader.metadata()?.len(), byte_count, "the size")
    })
}

/// What was cut does not come back as old bytes when the file grows again.
pub fn truncate_extend(context: &Context) -> Result<()> {
    let mut random = context.random();
    alternate(context, ROUNDS, |_, doer, watcher| {
        let mut data = random.bytes(20_000);
        write(&doer.join("file"), &data)?;
        read(&watcher.join("file"))?;
        let byte_count = random.size(20_000);
        let file = open_rw(&doer.join("file"))?;
        file.set_len(byte_count as u64)?;
        file.set_len(20_000)?;
        data[byte_count..].fill(0);
        expect_bytes(&read(&watcher.join("file"))?, &data, "zeros after cut and growth")
    })
}

/// A hole punched here reads as zeros there.
pub fn punch_seen(context: &Context) -> Result<()> {
    let mut random = context.random();
    let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    alternate(context, 100, |_, doer, watcher| {
        let mut data = random.bytes(40_000);
        write(&doer.join("file"), &data)?;
        read(&watcher.join("file"))?;
        let (start, byte_count) = (random.size(30_000), 1 + random.size(9_000));
        sys::fallocate(&open_rw(&doer.join("file"))?, flags, start as i64, byte_count as i64)?;
        data[start..start + byte_count].fill(0);
        expect_bytes(&read(&watcher.join("file"))?, &data, "contents with a hole")
    })
}

/// O_DIRECT on one side, cached on the other.
pub fn direct_against_cache(context: &Context) -> Result<()> {
    let mut model = context.random().bytes(16 * PAGE);
    write(&context.a.join("file"), &model)?;
    let mut space = vec![0u8; 3 * PAGE];
    let skip = space.as_ptr().align_offset(PAGE);
    let mut random = context.random();
    alternate(context, ROUNDS, |_, doer, watcher| {
        let direct =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(doer.join("file"))?;
        let at = random.size(16) * PAGE;
        let Some(block) = space.get_mut(skip..skip + PAGE) else { anyhow::bail!("no aligned block") };
        block.copy_from_slice(&random.bytes(PAGE));
        direct.write_all_at(block, at as u64)?;
        model[at..at + PAGE].copy_from_slice(block);
        expect_bytes(&read(&watcher.join("file"))?, &model, "cached read of a direct write")?;
        let cached = random.size(model.len() - 100);
        let bytes = random.bytes(100);
        open_rw(&watcher.join("file"))?.write_all_at(&bytes, cached as u64)?;
        model[cached..cached + 100].copy_from_slice(&bytes);
        let at = cached / PAGE * PAGE;
        direct.read_exact_at(block, at as u64)?;
        expect_bytes(block, &model[at..at + PAGE], "direct read of a cached write")
    })
}

/// A mapping that stays sees what the other mount writes.
pub fn mapped_read(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let mut model = context.random().bytes(8 * PAGE);
    write(&a, &model)?;
    let reader = File::open(&b)?;
    let mapping = Mapping::new(&reader, MapKind::SharedRead, model.len())?;
    let writer = open_rw(&a)?;
    let mut random = context.random();
    for number in 0..context.rounds(ROUNDS) {
        if number >= 10 && context.is_enough(number, "rounds") {
            break;
        }
        mapping.read(0, model.len());
        let at = random.size(model.len() - 100);
        let data = random.bytes(100);
        writer.write_all_at(&data, at as u64)?;
        model[at..at + 100].copy_from_slice(&data);
        expect_bytes(&mapping.read(0, model.len()), &model, "the mapping after a write elsewhere")?;
    }
    Ok(())
}

/// A private mapping fills pages of the mount's cache also through descriptors that are read and written past it. They are no older than
/// any others: for who reads through the cache, and when the page of a store of his is written back.
pub fn mapped_privately(context: &Context) -> Result<()> {
    let mut model = context.random().bytes(4 * PAGE);
    write(&context.a.join("file"), &model)?;
    let mut random = context.random();
    alternate(context, ROUNDS, |number, doer, watcher| {
        let path = watcher.join("file");
        let file = match number % 4 {
            0 | 1 => OpenOptions::new().read(true).append(true).open(&path)?,
            _ => OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path)?,
        };
        let mapping = Mapping::new(&file, MapKind::PrivateWrite, model.len())?;
        expect_bytes(&mapping.read(0, model.len()), &model, "a private mapping")?;
        let at = random.size(model.len() - 100);
        let data = random.bytes(100);
        open_rw(&doer.join("file"))?.write_all_at(&data, at as u64)?;
        model[at..at + 100].copy_from_slice(&data);
        expect_bytes(&read(&path)?, &model, "a read of the mount that has mapped, after a write elsewhere")?;
        expect_bytes(&mapping.read(0, model.len()), &model, "the mapping after a write elsewhere")?;
        drop((mapping, file));
        let at = random.size(model.len() - 10);
        let data = random.bytes(10);
        store_mapped(&path, model.len(), at, &data)?;
        model[at..at + 10].copy_from_slice(&data);
        expect_bytes(&read(&doer.join("file"))?, &model, "the file after a mapped store")
    })
}

/// A mapped store, synced, is read elsewhere; mounts take turns.
pub fn mapped_store(context: &Context) -> Result<()> {
    stores_are_seen(context, store_mapped)
}

/// A mapping that is written when its descriptor is closed already: the file was flushed then, and is released with the mapping only.
pub fn stored_after_close(context: &Context) -> Result<()> {
    stores_are_seen(context, |path, byte_count, at, data| {
        let (file, mapping) = map_shared(path, byte_count)?;
        drop(file);
        mapping.write(at, data);
        Ok(())
    })
}

/// Each mount in turn stores some bytes in a file, given its path, its length and the place; the other one reads them.
fn stores_are_seen(
    context: &Context,
    store: impl Fn(&Path, usize, usize, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut model = context.random().bytes(4 * PAGE);
    write(&context.a.join("file"), &model)?;
    let mut random = context.random();
    alternate(context, ROUNDS, |_, doer, watcher| {
        let at = random.size(model.len() - 50);
        let data = random.bytes(50);
        store(&doer.join("file"), model.len(), at, &data)?;
        model[at..at + 50].copy_from_slice(&data);
        expect_bytes(&read(&watcher.join("file"))?, &model, "contents after a mapped store")
    })
}

/// One store through a fresh shared mapping, made durable before it goes.
pub fn store_mapped(path: &Path, byte_count: usize, at: usize, data: &[u8]) -> Result<()> {
    let (_file, mapping) = map_shared(path, byte_count)?;
    mapping.write(at, data);
    Ok(mapping.sync()?)
}

/// While another client has the file open a shared writable mapping is refused with ENODEV; the close of the other side is
/// asynchronous, so that answer is tried again.
fn map_shared(path: &Path, byte_count: usize) -> Result<(File, Mapping)> {
    let mut tries = 0;
    loop {
        let file = open_rw(path)?;
        match Mapping::new(&file, MapKind::SharedWrite, byte_count) {
            Ok(mapping) => return Ok((file, mapping)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) && tries < 12_000 => tries += 1,
            Err(error) => return Err(error.into()),
        }
        drop(file);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// A file unlinked here lives on there while it is open.
pub fn unlinked_open(context: &Context) -> Result<()> {
    alternate(context, ROUNDS, |number, doer, watcher| {
        let data = format!("contents {number}");
        write(&doer.join("file"), data.as_bytes())?;
        let file = open_rw(&watcher.join("file"))?;
        fs::remove_file(doer.join("file"))?;
        expect(!watcher.join("file").exists(), "the name is gone")?;
        expect_bytes(&read_open(&file, data.len())?, data.as_bytes(), "contents of the unlinked file")?;
        file.write_all_at(b"still", 0)?;
        expect_bytes(&read_open(&file, 5)?, b"still", "a write to the unlinked file")?;
        expect_eq(file.metadata()?.nlink(), 0, "its links")
    })
}

/// A file replaced by rename here keeps its old contents for whoever has it open there.
pub fn replaced_open(context: &Context) -> Result<()> {
    write(&context.a.join("file"), b"contents 0")?;
    alternate(context, ROUNDS, |number, doer, watcher| {
        let old = File::open(watcher.join("file"))?;
        let next = format!("contents {}", number + 1);
        write(&doer.join("new"), next.as_bytes())?;
        fs::rename(doer.join("new"), doer.join("file"))?;
        let before = format!("contents {number}");
        expect_bytes(&read_open(&old, before.len())?, before.as_bytes(), "the old file")?;
        expect_bytes(&read(&watcher.join("file"))?, next.as_bytes(), "the new file")
    })
}
