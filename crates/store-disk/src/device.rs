//! The system calls of this crate: positioned file I/O, mapped files, allocation, syncs, space, locks, thread priority.
//!
//! Every `unsafe` block of the crate is here, in `mapped` and in `pieces`. Errors keep the errno, for the callers tell `ENOSPC`, `EFBIG` and the
//! rest apart. Whatever changes a disk is here, and passes the gate first: `clippy.toml` of this crate bans it elsewhere.

#![expect(clippy::disallowed_methods, reason = "here they are called, behind the gate")]

#[cfg(test)]
pub(crate) mod faults;
mod mapped;
mod pieces;

use crate::gate;
use base::{Advice, Extent};
pub(crate) use mapped::SharedWords;
pub(crate) use pieces::ReadBuffer;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use store::{Space, StoreError};

/// Whether syncs reach the device. Off, a kill loses nothing but a power failure does: only for tests, and for the
/// canary that proves that the power-cut suite notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Syncing {
    #[default]
    Real,
    Skipped,
}

impl Syncing {
    /// `Skipped` if the environment says `SHEEN_TEST_NO_SYNC=1`.
    pub fn from_environment() -> Syncing {
        match std::env::var_os("SHEEN_TEST_NO_SYNC") {
            Some(value) if value == "1" => Syncing::Skipped,
            _ => Syncing::Real,
        }
    }

    /// fdatasync(2).
    pub(crate) fn sync_data(self, file: &File) -> io::Result<()> {
        #[cfg(test)]
        faults::check_sync(file)?;
        match self {
            Syncing::Real => file.sync_data(),
            Syncing::Skipped => Ok(()),
        }
    }

    /// fsync(2).
    pub(crate) fn sync_all(self, file: &File) -> io::Result<()> {
        match self {
            Syncing::Real => file.sync_all(),
            Syncing::Skipped => Ok(()),
        }
    }

    /// Makes names in a directory durable.
    pub(crate) fn sync_directory(self, path: &Path) -> io::Result<()> {
        #[cfg(test)]
        faults::check_open(path)?;
        self.sync_all(&File::open(path)?)
    }
}

/// The errno of an error; EIO for the few that have none.
pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Whether a change that failed so says that the device is lost; the others are limits of the call or of this process.
pub(crate) fn is_lost(errno: i32) -> bool {
    [libc::EIO, libc::EROFS, libc::EUCLEAN, libc::ENODEV, libc::ENXIO].contains(&errno)
}

/// Whether there was no room: of the device, or of what the user of the target may use.
pub(crate) fn is_full(errno: i32) -> bool {
    [libc::ENOSPC, libc::EDQUOT].contains(&errno)
}

/// Whether nothing could be opened for want of descriptors or memory, which passes.
pub(crate) fn is_out_of_descriptors(errno: i32) -> bool {
    [libc::EMFILE, libc::ENFILE, libc::ENOMEM].contains(&errno)
}

/// Whether a change that failed so was refused, for a reason that is not the device's: nothing of it is left in the kernel.
fn is_refused(errno: i32) -> bool {
    const REASONS: [i32; 6] =
        [libc::EINTR, libc::EAGAIN, libc::ELOOP, libc::ENOENT, libc::EACCES, libc::EPERM];
    is_full(errno) || is_out_of_descriptors(errno) || REASONS.contains(&errno)
}

/// Whether a change that failed so may have left something behind that the device failed to keep, and the kernel of this machine writes some
/// time. Not for reads, of which nothing is left whatever their error.
pub fn may_be_unkept(error: &io::Error) -> bool {
    !is_refused(errno(error))
}

/// An error of one call, after which the store goes on.
pub(crate) fn failed(operation: &'static str) -> impl Fn(io::Error) -> StoreError {
    move |error| StoreError::Device { operation, errno: errno(&error) }
}

/// Opens for reading and writing, never following a link that somebody put there.
pub(crate) fn open(path: &Path, create: bool) -> io::Result<File> {
    if create {
        gate::pass();
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(create)
        .truncate(false)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
        .mode(0o600)
        .open(path)
}

/// Creates a file that is not there yet.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    gate::pass();
    #[cfg(test)]
    faults::check_open(path)?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
        .mode(0o600)
        .open(path)
}

/// Opens for reading, never following a link that somebody put there.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW).open(path)
}

fn offset(bytes: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

/// pwrite(2) until all is written. Returns how many bytes were, with the error that ended it.
pub(crate) fn write_all(file: &File, data: &[u8], offset_bytes: u64) -> Result<(), (usize, io::Error)> {
    gate::pass();
    #[cfg(test)]
    faults::check_write(file, Extent::at(offset_bytes, data.len() as u64)).map_err(|error| (0, error))?;
    let mut done = 0;
    while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
        match file.write_at(rest, offset_bytes + done as u64) {
            Ok(0) => return Err((done, io::Error::from_raw_os_error(libc::EIO))),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((done, error)),
        }
    }
    Ok(())
}

/// pread(2) until the buffer is full or the file ends; returns the bytes read.
pub(crate) fn read_full(file: &File, buffer: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
    #[cfg(test)]
    faults::check_read(file)?;
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset_bytes + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// pread(2) of up to `byte_count` bytes behind what `buffer` holds, until the file ends; returns the bytes read. Memory that it
/// has spare is not filled with anything before.
pub(crate) fn read_more(
    file: &File,
    buffer: &mut ReadBuffer,
    byte_count: usize,
    offset_bytes: u64,
) -> io::Result<usize> {
    read_all(buffer, byte_count, offset_bytes, |buffer, byte_count, offset_bytes| {
        read_behind(file, buffer, byte_count, offset_bytes, 0)
    })
}

/// The same of what is in memory.
///
/// # Errors
/// EAGAIN where something is not; EOPNOTSUPP where nobody can say.
pub(crate) fn read_more_at_once(
    file: &File,
    buffer: &mut ReadBuffer,
    byte_count: usize,
    offset_bytes: u64,
) -> io::Result<usize> {
    read_all(buffer, byte_count, offset_bytes, |buffer, byte_count, offset_bytes| {
        read_behind(file, buffer, byte_count, offset_bytes, libc::RWF_NOWAIT)
    })
}

fn read_all(
    buffer: &mut ReadBuffer,
    byte_count: usize,
    offset_bytes: u64,
    read: impl Fn(&mut ReadBuffer, usize, u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut done = 0;
    while done < byte_count {
        match read(buffer, byte_count - done, offset_bytes + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// One pread(2) of them, or preadv2(2) with `flags`, which not every sandbox lets pass.
fn read_behind(
    file: &File,
    buffer: &mut ReadBuffer,
    byte_count: usize,
    offset_bytes: u64,
    flags: libc::c_int,
) -> io::Result<usize> {
    let (descriptor, at) = (file.as_raw_fd(), offset(offset_bytes)?);
    let part = libc::iovec { iov_base: buffer.room(byte_count).cast(), iov_len: byte_count };
    // SAFETY: there is room for `byte_count` bytes: writable memory behind what the buffer holds.
    let count = unsafe {
        match flags {
            0 => libc::pread(descriptor, part.iov_base, byte_count, at),
            flags => libc::preadv2(descriptor, &raw const part, 1, at, flags),
        }
    };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written so many more bytes, for which there was room.
    unsafe { buffer.advance(count) };
    Ok(count)
}

/// What cachestat(2) answers with, as in linux/mman.h: pages.
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    under_writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The same number on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

/// What the page cache has of a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cached {
    pub is_whole: bool,
    /// Something of it is not on the device yet.
    pub is_dirty: bool,
}

/// # Errors
/// A kernel before 6.5 does not say.
pub(crate) fn cached(file: &File, part: Extent) -> io::Result<Cached> {
    let range = [part.start, part.byte_count()];
    let mut stat = CacheStat::default();
    // SAFETY: the descriptor is open for the length of the borrow; both structures are ours and have the kernel's layout.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), &raw mut stat, 0 as libc::c_uint)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it reads a number of the system.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as u64;
    let page_count = part.end.div_ceil(page_bytes) - part.start / page_bytes;
    Ok(Cached { is_whole: stat.cached >= page_count, is_dirty: stat.dirty + stat.under_writeback > 0 })
}

/// One pread(2) past the page cache, of up to `byte_count` bytes behind what `buffer` holds; returns the bytes read. That place in
/// memory, `byte_count` and `offset_bytes` are multiples of what the device wants. Nobody else writes through this
/// descriptor meanwhile, and reads whole blocks only into such places: the flag is everybody's.
pub(crate) fn read_direct(
    file: &File,
    buffer: &mut ReadBuffer,
    byte_count: usize,
    offset_bytes: u64,
) -> io::Result<usize> {
    // SAFETY: the descriptor is open for the length of the borrow, as it is in the other calls of fcntl(2).
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_DIRECT) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let read = read_behind(file, buffer, byte_count, offset_bytes, 0);
    // SAFETY: as above.
    let cleared = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) };
    assert_eq!(cleared, 0, "a flag can always be cleared");
    read
}

/// fallocate(2) with the given mode.
pub(crate) fn allocate(file: &File, mode: i32, offset_bytes: u64, byte_count: u64) -> io::Result<()> {
    let (start, count) = (offset(offset_bytes)?, offset(byte_count)?);
    gate::pass();
    #[cfg(test)]
    faults::check_allocate(file, Extent::at(offset_bytes, byte_count))?;
    loop {
        // SAFETY: the descriptor is open for the length of the borrow; the call touches no memory of ours.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, start, count) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// What FS_IOC_FIEMAP is asked with and answers, as in linux/fiemap.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Fiemap {
    start: u64,
    byte_count: u64,
    flags: u32,
    mapped_count: u32,
    extent_count: u32,
    reserved: u32,
    extents: [FiemapExtent; FIEMAP_EXTENTS],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    byte_count: u64,
    reserved_words: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// Extents that one call answers with.
const FIEMAP_EXTENTS: usize = 16;
/// `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: u64 = 0xc020_660b;
const FIEMAP_EXTENT_UNKNOWN: u32 = 0x2;
/// Not on the device yet, and therefore unknown where; but its place there is taken.
const FIEMAP_EXTENT_DELALLOC: u32 = 0x4;
/// Where it is nobody knows, or it is not written where it is: compressed, beside other data in one block, shared with another file.
const FIEMAP_EXTENT_ELSEWHERE: u32 = FIEMAP_EXTENT_UNKNOWN | 0x8 | 0x80 | 0x100 | 0x200 | 0x400 | 0x2000;

const _: () = assert!(size_of::<FiemapExtent>() == 56);
const _: () = assert!(size_of::<Fiemap>() == 32 + 56 * FIEMAP_EXTENTS);

/// One FS_IOC_FIEMAP; `None` where the file system has no such map.
fn map(file: &File, part: Extent) -> io::Result<Option<Fiemap>> {
    let extent = FiemapExtent {
        logical: 0,
        physical: 0,
        byte_count: 0,
        reserved_words: [0; 2],
        flags: 0,
        reserved: [0; 3],
    };
    let mut map = Fiemap {
        start: part.start,
        byte_count: part.byte_count(),
        flags: 0,
        mapped_count: 0,
        extent_count: FIEMAP_EXTENTS as u32,
        reserved: 0,
        extents: [extent; FIEMAP_EXTENTS],
    };
    loop {
        // SAFETY: the descriptor is open for the length of the borrow; the kernel fills as many extents as the map says it has.
        if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as _, &raw mut map) } == 0 {
            return Ok(Some(map));
        }
        let error = io::Error::last_os_error();
        match errno(&error) {
            libc::EOPNOTSUPP | libc::ENOTTY => return Ok(None),
            libc::EINTR => {}
            _ => return Err(error),
        }
    }
}

impl Fiemap {
    fn mapped(&self) -> impl Iterator<Item = &FiemapExtent> {
        self.extents.iter().take(self.mapped_count as usize)
    }
}

/// Whether all blocks of a part of a file have their place on the device, and would be written there. False where the file system does not
/// say, and where it copies what is written again.
pub(crate) fn is_allocated(file: &File, part: Extent) -> io::Result<bool> {
    if file_system(file)? == FileSystem::Other {
        return Ok(false);
    }
    let mut start = part.start;
    while start < part.end {
        let rest = Extent::new(start, part.end);
        let Some(map) = map(file, rest)? else { return is_written_in_memory(file, rest) };
        for extent in map.mapped() {
            let is_taken = extent.flags & FIEMAP_EXTENT_DELALLOC != 0;
            let flags = if is_taken { extent.flags & !FIEMAP_EXTENT_UNKNOWN } else { extent.flags };
            if extent.logical > start || flags & FIEMAP_EXTENT_ELSEWHERE != 0 {
                return Ok(false);
            }
            start = start.max(extent.logical.saturating_add(extent.byte_count));
        }
        if start == rest.start {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Visits, in order, what of a part of a file has its place on the device; where the file system has no map of that, what has data.
pub(crate) fn visit_mapped(file: &File, part: Extent, visit: &mut dyn FnMut(Extent)) -> io::Result<()> {
    let mut start = part.start;
    while start < part.end {
        let rest = Extent::new(start, part.end);
        let Some(map) = map(file, rest)? else { return visit_data(file, rest, visit) };
        for extent in map.mapped() {
            let mapped = Extent::at(extent.logical, extent.byte_count);
            visit(mapped.intersection(rest));
            start = start.max(mapped.end);
        }
        if start == rest.start {
            break;
        }
    }
    Ok(())
}

/// Visits, in order, what of a part of a file holds data, also what waits to be written.
pub(crate) fn visit_data(file: &File, part: Extent, visit: &mut dyn FnMut(Extent)) -> io::Result<()> {
    let mut start = part.start;
    while let Some(data) = seek(file, start, libc::SEEK_DATA)?.filter(|data| *data < part.end) {
        let hole = seek(file, data, libc::SEEK_HOLE)?.unwrap_or(part.end);
        visit(Extent::new(data, hole.min(part.end)));
        start = hole.max(data + 1);
    }
    Ok(())
}

/// The same where the kernel has no such map: tmpfs keeps what was written where it is.
fn is_written_in_memory(file: &File, part: Extent) -> io::Result<bool> {
    let is_in_memory = magic(file)? == libc::TMPFS_MAGIC as u64;
    Ok(is_in_memory && seek(file, part.start, libc::SEEK_HOLE)?.is_some_and(|hole| hole >= part.end))
}

/// lseek(2) with SEEK_DATA or SEEK_HOLE; `None` for ENXIO.
pub(crate) fn seek(file: &File, offset_bytes: u64, whence: i32) -> io::Result<Option<u64>> {
    let Ok(start) = offset(offset_bytes) else { return Ok(None) };
    // SAFETY: the descriptor is open for the length of the borrow. Its position, which this moves, is used by nobody.
    let found = unsafe { libc::lseek(file.as_raw_fd(), start, whence) };
    if let Ok(found) = u64::try_from(found) {
        return Ok(Some(found));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENXIO) { Ok(None) } else { Err(error) }
}

/// The kernel reads no more than this for one posix_fadvise(2), whatever it is told.
const ADVICE_STEP_BYTES: u64 = 128 << 10;

/// posix_fadvise(2). Pages that are not on the disk stay.
pub(crate) fn advise(file: &File, extent: Extent, advice: Advice) -> io::Result<()> {
    let (advice, step_bytes) = match advice {
        Advice::WillRead => (libc::POSIX_FADV_WILLNEED, ADVICE_STEP_BYTES),
        Advice::DontNeed => (libc::POSIX_FADV_DONTNEED, u64::MAX),
    };
    let end = extent.end.min(file.metadata()?.len());
    let mut start = extent.start;
    while start < end {
        let byte_count = step_bytes.min(end - start);
        // SAFETY: the descriptor is open for the length of the borrow; the call touches no memory of ours.
        let result =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), offset(start)?, offset(byte_count)?, advice) };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(result));
        }
        start += byte_count;
    }
    Ok(())
}

/// fallocate(2) that clears; where a file system cannot zero a range, a hole that is allocated again does.
pub(crate) fn clear(file: &File, mode: i32, offset_bytes: u64, byte_count: u64) -> io::Result<()> {
    #[cfg(test)]
    if let Err(error) = faults::check_clear(file) {
        clear_all(file, mode, offset_bytes, byte_count / 8192 * 4096)?;
        return Err(error);
    }
    clear_all(file, mode, offset_bytes, byte_count)
}

fn clear_all(file: &File, mode: i32, offset_bytes: u64, byte_count: u64) -> io::Result<()> {
    match allocate(file, mode, offset_bytes, byte_count) {
        Err(error) if errno(&error) == libc::EOPNOTSUPP && mode & libc::FALLOC_FL_ZERO_RANGE != 0 => {
            let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            allocate(file, punch, offset_bytes, byte_count)?;
            allocate(file, libc::FALLOC_FL_KEEP_SIZE, offset_bytes, byte_count)
        }
        cleared => cleared,
    }
}

/// Starts to write the dirty pages of a part of a file, without waiting for them. Only a hint: the sync that follows
/// reports the errors.
pub(crate) fn start_writeback(file: &File, part: Extent) {
    let (Ok(start), Ok(end)) = (offset(part.start), offset(part.end.min(i64::MAX as u64))) else { return };
    // SAFETY: the descriptor is open for the length of the borrow; the call touches no memory of ours.
    unsafe { libc::sync_file_range(file.as_raw_fd(), start, end - start, libc::SYNC_FILE_RANGE_WRITE) };
}

/// syncfs(2): everything on the file system of this file. Reports write errors since the file was opened.
pub(crate) fn sync_file_system(file: &File) -> io::Result<()> {
    #[cfg(test)]
    faults::check_sync_file_system(file)?;
    // SAFETY: the descriptor is open for the length of the borrow; the call touches no memory of ours.
    if unsafe { libc::syncfs(file.as_raw_fd()) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What an open file, or directory, is marked with in the kernel's memory, for as long as its file system is mounted.
///
/// It is a write hint, which persists "until either it is explicitly modified or the underlying filesystem is unmounted" (fcntl(2)),
/// and means nothing for a directory. The kernel may forget it with the inode; some have no such hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Not marked since the file system was mounted, as far as is known.
    Unknown,
    /// A process has it in use, or has died with it.
    InUse,
    /// The last process has left it in order.
    Left,
    /// A process was told that the device has not kept something, or found out by itself.
    Failed,
}

/// As in linux/fcntl.h.
mod hint {
    pub const GET: i32 = 1024 + 11;
    pub const SET: i32 = 1024 + 12;
    pub const IN_USE: u64 = 4;
    pub const LEFT: u64 = 3;
    pub const FAILED: u64 = 5;
}

impl Mark {
    pub fn of(file: &File) -> Mark {
        let mut found = 0_u64;
        // SAFETY: the descriptor is open for the length of the borrow; the kernel writes the eight bytes of `found`.
        let got = unsafe { libc::fcntl(file.as_raw_fd(), hint::GET, &raw mut found) };
        match found {
            hint::IN_USE if got == 0 => Mark::InUse,
            hint::LEFT if got == 0 => Mark::Left,
            hint::FAILED if got == 0 => Mark::Failed,
            _ => Mark::Unknown,
        }
    }

    /// Only a hint: whoever looks finds it, or `Unknown`.
    pub fn set(self, file: &File) {
        let mark = match self {
            Mark::Unknown => 0,
            Mark::InUse => hint::IN_USE,
            Mark::Left => hint::LEFT,
            Mark::Failed => hint::FAILED,
        };
        // SAFETY: the descriptor is open for the length of the borrow; the kernel reads the eight bytes of `mark`.
        unsafe { libc::fcntl(file.as_raw_fd(), hint::SET, &raw const mark) };
    }
}

/// Space of the file system under a path; `avail_bytes` is what an ordinary user may still take.
pub(crate) fn space(path: &Path) -> io::Result<Space> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a statvfs of zeros is valid; it is plain numbers.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends in NUL and the buffer is ours; both outlive the call.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Space {
        total_bytes: stat.f_blocks * stat.f_frsize,
        free_bytes: stat.f_bfree * stat.f_frsize,
        avail_bytes: stat.f_bavail * stat.f_frsize,
        reserve_bytes: 0,
        total_inode_count: stat.f_files,
        free_inode_count: stat.f_favail,
    })
}

/// flock(2), exclusive, without waiting; false if another process has it.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    flock(file, libc::LOCK_EX)
}

/// flock(2), shared, without waiting; false if another process has it for itself. NFS takes no other one of a file that is open for
/// reading only.
pub(crate) fn try_lock_shared(file: &File) -> io::Result<bool> {
    flock(file, libc::LOCK_SH)
}

fn flock(file: &File, kind: i32) -> io::Result<bool> {
    // SAFETY: the descriptor is open for the length of the borrow; the call touches no memory of ours.
    if unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::EWOULDBLOCK) { Ok(false) } else { Err(error) }
}

/// Ends what `try_lock` began.
pub(crate) fn unlock(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the borrow; the call touches no memory of ours.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// One byte of a file, exclusive, without waiting; false if another open file has it, in whatever process. Ends with the open file.
pub(crate) fn try_lock_byte(file: &File, offset_bytes: u64) -> io::Result<bool> {
    match lock_byte(file, offset_bytes, libc::F_WRLCK) {
        Ok(()) => Ok(true),
        Err(error) if matches!(errno(&error), libc::EAGAIN | libc::EACCES) => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn unlock_byte(file: &File, offset_bytes: u64) -> io::Result<()> {
    lock_byte(file, offset_bytes, libc::F_UNLCK)
}

fn lock_byte(file: &File, offset_bytes: u64, kind: i32) -> io::Result<()> {
    // SAFETY: a lock of zeros is valid; it is plain numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (offset(offset_bytes)?, 1);
    // SAFETY: the descriptor is open for the length of the borrow; the kernel reads the lock.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// What is known of the kind of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// Blocks that are written again stay where they are, and its device number is that of no other one, nor of a part of one.
    InPlace,
    /// Nobody knows, or it copies on write.
    Other,
}

impl FileSystem {
    fn of_magic(magic: u64) -> FileSystem {
        /// XFS_SUPER_MAGIC of linux/magic.h.
        const XFS: u64 = 0x5846_5342;
        /// That of ext2, ext3 and ext4.
        const EXT: u64 = libc::EXT4_SUPER_MAGIC as u64;
        const TMPFS: u64 = libc::TMPFS_MAGIC as u64;
        match magic {
            EXT | XFS | TMPFS => FileSystem::InPlace,
            _ => FileSystem::Other,
        }
    }
}

/// Of which kind the file system of a file is.
pub(crate) fn file_system(file: &File) -> io::Result<FileSystem> {
    magic(file).map(FileSystem::of_magic)
}

pub(crate) fn magic(file: &File) -> io::Result<u64> {
    #[cfg(test)]
    if faults::is_on_nfs(file) {
        return Ok(libc::NFS_SUPER_MAGIC as u64);
    }
    // SAFETY: a statfs of zeros is valid; it is plain numbers.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open for the length of the borrow; the buffer is ours.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stat.f_type as u64)
}

/// ftruncate(2).
pub(crate) fn set_length(file: &File, byte_count: u64) -> io::Result<()> {
    gate::pass();
    #[cfg(test)]
    faults::check_set_length(file)?;
    file.set_len(byte_count)
}

/// unlink(2).
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    gate::pass();
    std::fs::remove_file(path)
}

/// Whether unlink(2) of an open file takes its name away at once, as far as is known, and not when it is closed.
pub(crate) fn is_name_removed_at_once(file: &File) -> io::Result<bool> {
    magic(file).map(|magic| !keeps_names_of_open_files(magic))
}

/// NFS, SMB and AFS rename such a file, and many file systems of FUSE do.
fn keeps_names_of_open_files(magic: u64) -> bool {
    const NFS: u64 = libc::NFS_SUPER_MAGIC as u64;
    const FUSE: u64 = libc::FUSE_SUPER_MAGIC as u64;
    const SMB: u64 = libc::SMB_SUPER_MAGIC as u64;
    const AFS: u64 = libc::AFS_SUPER_MAGIC as u64;
    /// CIFS_SUPER_MAGIC and SMB2_SUPER_MAGIC of linux/magic.h, and AFS_FS_MAGIC of the kernel's own client.
    const CIFS: u64 = 0xff53_4d42;
    const SMB2: u64 = 0xfe53_4d42;
    const KAFS: u64 = 0x6b41_4653;
    [NFS, FUSE, SMB, CIFS, SMB2, AFS, KAFS].contains(&magic)
}

/// Closes a file that has no name any more, and so frees its blocks.
pub(crate) fn close_removed(file: File) {
    gate::pass();
    #[cfg(test)]
    faults::wait_to_free(&file);
    drop(file);
}

/// rename(2).
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    gate::pass();
    std::fs::rename(from, to)
}

/// mkdir(2).
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    gate::pass();
    std::fs::create_dir(path)
}

/// The same of those above it too, as far as they are not there yet.
pub(crate) fn make_directories(path: &Path) -> io::Result<()> {
    gate::pass();
    std::fs::create_dir_all(path)
}

/// Nanoseconds of CLOCK_BOOTTIME, which goes on while the machine sleeps.
pub(crate) fn boot_nanos() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a valid place for the answer. Failing, which no supported kernel does, the time is 0.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// Makes the calling thread nicer than those that answer requests. Failing is harmless.
pub(crate) fn be_nice() {
    /// Enough that a busy core gives the checkpointer a tenth.
    const NICENESS: i32 = 10;
    // SAFETY: both calls take and return numbers. On Linux the niceness is the thread's own.
    unsafe {
        let thread = libc::syscall(libc::SYS_gettid) as libc::id_t;
        libc::setpriority(libc::PRIO_PROCESS, thread, NICENESS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_open_files_stay_on_nfs_smb_afs_and_fuse() {
        for keeping in [0x6969, 0x6573_5546, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x5346_414f, 0x6b41_4653] {
            assert!(keeps_names_of_open_files(keeping), "{keeping:x}");
        }
        let (ext4, xfs, tmpfs, btrfs, gfs2, ocfs2, ceph) =
            (0xef53, 0x5846_5342, 0x0102_1994, 0x9123_683e, 0x0116_1970, 0x7461_636f, 0x00c3_6400);
        for other in [ext4, xfs, tmpfs, btrfs, gfs2, ocfs2, ceph] {
            assert!(!keeps_names_of_open_files(other), "{other:x}");
        }
    }

    /// Their numbers are in linux/magic.h and in the sources of bcachefs and ZFS.
    #[test]
    fn what_copies_on_write_and_what_nobody_knows_overwrites_nothing_in_place() {
        let (btrfs, bcachefs, zfs, overlay) = (0x9123_683e, 0xca45_1a4e, 0x2fc1_2fc1, 0x794c_7630);
        for other in [btrfs, bcachefs, zfs, overlay, 0] {
            assert_eq!(FileSystem::of_magic(other), FileSystem::Other, "{other:x}");
        }
        for in_place in [0xef53, 0x5846_5342] {
            assert_eq!(FileSystem::of_magic(in_place), FileSystem::InPlace, "{in_place:x}");
        }
    }
}
