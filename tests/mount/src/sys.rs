//! System calls that the standard library does not offer, as safe functions that answer `io::Result`.
//!
//! This is the only module of the suites with `unsafe`, with what is below it. Every pointer that goes to the kernel here comes from a value that lives
//! until the call returns (a `CString`, a slice, a local), and every length is that value's own.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub mod aio;
pub mod autofs;

/// `RENAME_NOREPLACE` of renameat2(2).
pub const RENAME_NOREPLACE: u32 = libc::RENAME_NOREPLACE;
/// `RENAME_EXCHANGE` of renameat2(2).
pub const RENAME_EXCHANGE: u32 = libc::RENAME_EXCHANGE;

fn c_path(path: &Path) -> io::Result<CString> {
    c_name(path.as_os_str())
}

fn c_name(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn answer(returned: libc::c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn counted(returned: isize) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

/// open(2) with exactly these flags.
pub fn open(path: &Path, flags: i32, mode: u32) -> io::Result<File> {
    let path = c_path(path)?;
    // SAFETY: `path` is a NUL-terminated string that outlives the call.
    let descriptor = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, mode as libc::c_uint) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor and nobody else owns it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// What name_to_handle_at(2) says of an inode: by this it is found again, whatever its names are.
pub struct FileHandle {
    /// `struct file_handle`: bytes that follow (32 bits), type (32 bits), and room for as many as there can be.
    words: [u64; 1 + FILE_HANDLE_BYTES_MAX / 8],
}

/// `MAX_HANDLE_SZ`
const FILE_HANDLE_BYTES_MAX: usize = 128;

impl FileHandle {
    /// name_to_handle_at(2)
    pub fn of(path: &Path) -> io::Result<FileHandle> {
        let path = c_path(path)?;
        let mut handle = FileHandle { words: [0; 1 + FILE_HANDLE_BYTES_MAX / 8] };
        let mut mount_id: libc::c_int = 0;
        let words = handle.words.as_mut_ptr();
        // SAFETY: the first 32 bits of the array are there.
        unsafe { words.cast::<u32>().write(FILE_HANDLE_BYTES_MAX as u32) };
        // SAFETY: the string is NUL-terminated, the array has as much room as it says, and all of them outlive the call.
        answer(unsafe {
            libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), words.cast(), &mut mount_id, 0)
        })?;
        Ok(handle)
    }

    /// open_by_handle_at(2) for reading, on the mount that `place` lies in.
    pub fn open(&mut self, place: &File) -> io::Result<File> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: the array is a handle that the kernel wrote, and outlives the call.
        let descriptor =
            unsafe { libc::open_by_handle_at(place.as_raw_fd(), self.words.as_mut_ptr().cast(), flags) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor and nobody else owns it.
        Ok(unsafe { File::from_raw_fd(descriptor) })
    }
}

/// mknod(2); `device` is only used for device nodes.
pub fn mknod(path: &Path, mode: u32, device: u64) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: `path` is a NUL-terminated string that outlives the call.
    answer(unsafe { libc::mknod(path.as_ptr(), mode, device) })
}

/// renameat2(2) with `RENAME_*` flags.
pub fn rename_with(old: &Path, new: &Path, flags: u32) -> io::Result<()> {
    let (old, new) = (c_path(old)?, c_path(new)?);
    // SAFETY: both strings are NUL-terminated and outlive the call.
    answer(unsafe { libc::renameat2(libc::AT_FDCWD, old.as_ptr(), libc::AT_FDCWD, new.as_ptr(), flags) })
}

/// linkat(2) from `/proc/self/fd/N`: gives a name to an `O_TMPFILE` or open-unlinked file.
pub fn link_descriptor(file: &File, new: &Path) -> io::Result<()> {
    let old = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(io::Error::other)?;
    let new = c_path(new)?;
    let flags = libc::AT_SYMLINK_FOLLOW;
    // SAFETY: both strings are NUL-terminated and outlive the call.
    answer(unsafe { libc::linkat(libc::AT_FDCWD, old.as_ptr(), libc::AT_FDCWD, new.as_ptr(), flags) })
}

/// fallocate(2).
pub fn fallocate(file: &File, mode: i32, offset: i64, byte_count: i64) -> io::Result<()> {
    // SAFETY: no pointers.
    answer(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, byte_count) })
}

/// lseek(2) with `SEEK_DATA`, `SEEK_HOLE` and the like.
pub fn seek(file: &File, offset: i64, whence: i32) -> io::Result<u64> {
    // SAFETY: no pointers.
    let position = unsafe { libc::lseek(file.as_raw_fd(), offset, whence) };
    u64::try_from(position).map_err(|_| io::Error::last_os_error())
}

/// copy_file_range(2) at explicit offsets.
pub fn copy_range(
    from: &File,
    from_offset: i64,
    to: &File,
    to_offset: i64,
    byte_count: usize,
) -> io::Result<usize> {
    let (mut from_at, mut to_at) = (from_offset, to_offset);
    // SAFETY: the two offsets are locals that outlive the call.
    counted(unsafe {
        libc::copy_file_range(from.as_raw_fd(), &mut from_at, to.as_raw_fd(), &mut to_at, byte_count, 0)
    })
}

/// One time of utimensat(2).
#[derive(Clone, Copy)]
pub enum Time {
    /// The server's or kernel's present time.
    Now,
    /// Leave it.
    Omit,
    /// Seconds and nanoseconds since 1970.
    At(i64, i64),
}

impl Time {
    fn timespec(self) -> libc::timespec {
        match self {
            Time::Now => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW },
            Time::Omit => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
            Time::At(tv_sec, tv_nsec) => libc::timespec { tv_sec, tv_nsec },
        }
    }
}

/// utimensat(2); `follow` says whether a symbolic link is followed.
pub fn set_times(path: &Path, accessed: Time, modified: Time, follow: bool) -> io::Result<()> {
    let path = c_path(path)?;
    let times = [accessed.timespec(), modified.timespec()];
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    // SAFETY: `path` and `times` (two entries, as the call demands) outlive the call.
    answer(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), flags) })
}

/// setxattr(2) with `XATTR_CREATE`, `XATTR_REPLACE` or 0.
pub fn set_xattr(path: &Path, name: &str, value: &[u8], flags: i32) -> io::Result<()> {
    let (path, name) = (c_path(path)?, c_name(OsStr::new(name))?);
    // SAFETY: the strings and the value outlive the call; the length is the value's.
    answer(unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags) })
}

/// getxattr(2).
pub fn get_xattr(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let mut value = vec![0u8; 65536];
    let byte_count = get_xattr_into(path, name, &mut value)?;
    value.truncate(byte_count);
    Ok(value)
}

/// getxattr(2) into a buffer of the caller's size (an empty one asks for the length).
pub fn get_xattr_into(path: &Path, name: &str, value: &mut [u8]) -> io::Result<usize> {
    let (path, name) = (c_path(path)?, c_name(OsStr::new(name))?);
    // SAFETY: the strings and the buffer outlive the call; the length is the buffer's.
    counted(unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) })
}

/// listxattr(2), the names sorted.
pub fn list_xattrs(path: &Path) -> io::Result<Vec<String>> {
    let path = c_path(path)?;
    let mut names = vec![0u8; 65536];
    // SAFETY: the string and the buffer outlive the call; the length is the buffer's.
    let byte_count =
        counted(unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) })?;
    names.truncate(byte_count);
    let mut names: Vec<String> = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    names.sort();
    Ok(names)
}

/// removexattr(2).
pub fn remove_xattr(path: &Path, name: &str) -> io::Result<()> {
    let (path, name) = (c_path(path)?, c_name(OsStr::new(name))?);
    // SAFETY: both strings are NUL-terminated and outlive the call.
    answer(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) })
}

/// Which lock table of fcntl(2).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Owned by the process.
    Posix,
    /// Owned by the open file description.
    Ofd,
}

/// What a record lock asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    Read,
    Write,
    Unlock,
}

fn record(mode: LockMode, start: i64, byte_count: i64) -> libc::flock {
    let kind = match mode {
        LockMode::Read => libc::F_RDLCK,
        LockMode::Write => libc::F_WRLCK,
        LockMode::Unlock => libc::F_UNLCK,
    };
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: byte_count,
        l_pid: 0,
    }
}

/// fcntl(2) F_SETLK, F_SETLKW and their OFD forms. `byte_count` 0 means to the end of everything.
pub fn lock(
    file: &File,
    kind: LockKind,
    mode: LockMode,
    start: i64,
    byte_count: i64,
    wait: bool,
) -> io::Result<()> {
    let command = match (kind, wait) {
        (LockKind::Posix, false) => libc::F_SETLK,
        (LockKind::Posix, true) => libc::F_SETLKW,
        (LockKind::Ofd, false) => libc::F_OFD_SETLK,
        (LockKind::Ofd, true) => libc::F_OFD_SETLKW,
    };
    let lock = record(mode, start, byte_count);
    // SAFETY: `lock` is a local of the type that the command takes.
    answer(unsafe { libc::fcntl(file.as_raw_fd(), command, &lock) })
}

/// A lock that stands in the way, as F_GETLK reports it.
#[derive(Debug, PartialEq, Eq)]
pub struct Conflict {
    pub is_write: bool,
    pub start: i64,
    pub byte_count: i64,
    pub pid: i32,
}

/// fcntl(2) F_GETLK: who would refuse this lock, if anybody.
pub fn conflict(
    file: &File,
    kind: LockKind,
    mode: LockMode,
    start: i64,
    byte_count: i64,
) -> io::Result<Option<Conflict>> {
    let command = if kind == LockKind::Posix { libc::F_GETLK } else { libc::F_OFD_GETLK };
    let mut lock = record(mode, start, byte_count);
    // SAFETY: `lock` is a local of the type that the command takes.
    answer(unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) })?;
    if i32::from(lock.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    Ok(Some(Conflict {
        is_write: i32::from(lock.l_type) == libc::F_WRLCK,
        start: lock.l_start,
        byte_count: lock.l_len,
        pid: lock.l_pid,
    }))
}

/// flock(2) with `LOCK_*`.
pub fn flock(file: &File, operation: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    answer(unsafe { libc::flock(file.as_raw_fd(), operation) })
}

/// fcntl(2) F_SETFL.
pub fn set_status_flags(file: &File, flags: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    answer(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) })
}

/// What statvfs(3) says, in bytes and counts.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    pub block_bytes: u64,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub available_bytes: u64,
    pub file_count: u64,
    pub files_free: u64,
    pub name_bytes_max: u64,
}

/// statvfs(3).
pub fn space(path: &Path) -> io::Result<Space> {
    let path = c_path(path)?;
    // SAFETY: all zeros is a valid statvfs.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the string and the structure outlive the call.
    answer(unsafe { libc::statvfs(path.as_ptr(), &mut stat) })?;
    Ok(Space {
        block_bytes: stat.f_frsize,
        total_bytes: stat.f_blocks * stat.f_frsize,
        free_bytes: stat.f_bfree * stat.f_frsize,
        available_bytes: stat.f_bavail * stat.f_frsize,
        file_count: stat.f_files,
        files_free: stat.f_ffree,
        name_bytes_max: stat.f_namemax,
    })
}

/// A directory entry with the position after it, as getdents64(2) gives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawEntry {
    pub name: Vec<u8>,
    pub inode: u64,
    pub position_after: i64,
    pub kind: u8,
}

/// One getdents64(2) call; empty at the end.
pub fn directory_chunk(directory: &File, buffer_bytes: usize) -> io::Result<Vec<RawEntry>> {
    let mut buffer = vec![0u8; buffer_bytes];
    // SAFETY: the buffer outlives the call and its length is given.
    let byte_count = counted(unsafe {
        libc::syscall(libc::SYS_getdents64, directory.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) as isize
    })?;
    let mut entries = Vec::new();
    let mut rest = buffer.get(..byte_count).unwrap_or_default();
    while rest.len() > 19 {
        let word = |at: usize| -> [u8; 8] { rest[at..at + 8].try_into().unwrap_or_default() };
        let entry_bytes = usize::from(u16::from_ne_bytes([rest[16], rest[17]]));
        let name = rest.get(19..entry_bytes).unwrap_or_default();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        entries.push(RawEntry {
            name: name.to_vec(),
            inode: u64::from_ne_bytes(word(0)),
            position_after: i64::from_ne_bytes(word(8)),
            kind: rest[18],
        });
        rest = rest.get(entry_bytes..).unwrap_or_default();
    }
    Ok(entries)
}

/// A shared or private mapping of a file, unmapped when dropped.
pub struct Mapping {
    address: *mut u8,
    byte_count: usize,
}

/// truncate(2): by name, without a descriptor.
pub fn truncate(path: &Path, byte_count: u64) -> io::Result<()> {
    let path = c_path(path)?;
    let byte_count = libc::off_t::try_from(byte_count).map_err(io::Error::other)?;
    // SAFETY: the string is NUL-terminated and outlives the call.
    answer(unsafe { libc::truncate(path.as_ptr(), byte_count) })
}

/// statx(2) of the size of a file, that the kernel does not answer from what it knows.
pub fn ask_size(path: &Path) -> io::Result<u64> {
    let path = c_path(path)?;
    // SAFETY: all bytes zero is a value of this type.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (flags, mask) = (libc::AT_STATX_FORCE_SYNC, libc::STATX_SIZE);
    // SAFETY: the string is NUL-terminated, and both outlive the call.
    answer(unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, mask, &mut found) })?;
    Ok(found.stx_size)
}

/// How a file is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MapKind {
    SharedRead,
    SharedWrite,
    PrivateWrite,
}

impl Mapping {
    /// mmap(2) of the first `byte_count` bytes. Touching pages beyond the end of the file is a SIGBUS, as always.
    pub fn new(file: &File, kind: MapKind, byte_count: usize) -> io::Result<Mapping> {
        let (protection, flags) = match kind {
            MapKind::SharedRead => (libc::PROT_READ, libc::MAP_SHARED),
            MapKind::SharedWrite => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED),
            MapKind::PrivateWrite => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE),
        };
        // SAFETY: a new mapping at an address of the kernel's choice; nothing of ours is replaced.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), byte_count, protection, flags, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { address: address.cast(), byte_count })
    }

    /// Copies bytes out of the mapping.
    pub fn read(&self, offset: usize, byte_count: usize) -> Vec<u8> {
        assert!(offset + byte_count <= self.byte_count);
        let mut bytes = vec![0u8; byte_count];
        // SAFETY: the range lies inside the mapping (asserted); the bytes may change under us, so they are copied volatile,
        // never borrowed.
        unsafe {
            for (index, byte) in bytes.iter_mut().enumerate() {
                *byte = self.address.add(offset + index).read_volatile();
            }
        }
        bytes
    }

    /// Stores bytes into the mapping.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.byte_count);
        // SAFETY: the range lies inside the mapping (asserted); no Rust reference to it exists.
        unsafe {
            for (index, byte) in bytes.iter().enumerate() {
                self.address.add(offset + index).write_volatile(*byte);
            }
        }
    }

    /// msync(2) with `MS_SYNC`.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: exactly the range that mmap gave.
        answer(unsafe { libc::msync(self.address.cast(), self.byte_count, libc::MS_SYNC) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that mmap gave; nobody can reach it after this.
        unsafe { libc::munmap(self.address.cast(), self.byte_count) };
    }
}

/// Runs `work` on a thread of its own with these credentials (raw system calls, which act on the calling thread only).
pub fn as_user<T: Send>(
    uid: u32,
    gid: u32,
    groups: &[u32],
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || -> io::Result<T> {
            // SAFETY: the group list outlives the call; the identities are plain numbers. Only this thread changes.
            unsafe {
                if libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) != 0
                    || libc::syscall(libc::SYS_setresgid, gid, gid, gid) != 0
                    || libc::syscall(libc::SYS_setresuid, uid, uid, uid) != 0
                {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(work())
        });
        worker.join().map_err(|_| io::Error::other("the thread with other credentials panicked"))?
    })
}

/// Names the calling thread, which may be any bytes.
pub fn name_thread(name: &CStr) -> io::Result<()> {
    // SAFETY: reads a string that is NUL-terminated.
    answer(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) })
}

/// Sets this process's umask and returns the one before.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: no pointers, cannot fail.
    unsafe { libc::umask(mask) }
}

/// A size of a process in KiB as its status file has it (proc(5)): `VmRSS`, or `RssAnon`, its private memory.
pub fn status_kib(pid: i32, field: &str) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let words = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = words.and_then(|words| words.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("no {field} in /proc/{pid}/status")))
}

/// kill(2); a negative pid means a process group.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    answer(unsafe { libc::kill(pid, signal) })
}

/// From linux/prctl.h.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// What the kernel notes of the threads of an I/O flusher (prctl(2)) in the flags that /proc says: as of one that is made here. None where
/// this process may not make one.
pub fn io_flusher_flags() -> io::Result<Option<u64>> {
    std::thread::scope(|scope| {
        let look = || {
            let path = format!("/proc/self/task/{}/stat", thread_id());
            let flags_as = |is_flusher: libc::c_ulong| {
                let no: libc::c_ulong = 0;
                // SAFETY: takes numbers only, and changes this thread.
                answer(unsafe { libc::prctl(PR_SET_IO_FLUSHER, is_flusher, no, no, no) })?;
                task_flags(Path::new(&path))
            };
            // Not with those of before: that it may do this leaves a flag of its own.
            match (flags_as(1), flags_as(0)) {
                (Err(error), _) if error.raw_os_error() == Some(libc::EPERM) => Ok(None),
                (with, without) => Ok(Some(with? & !without?)),
            }
        };
        scope.spawn(look).join().unwrap_or_else(|_| Err(io::Error::other("the thread has died")))
    })
}

fn thread_id() -> libc::pid_t {
    // SAFETY: takes nothing.
    unsafe { libc::gettid() }
}

/// The flags of a thread, from its `stat` below /proc: the ninth field.
pub fn task_flags(stat: &Path) -> io::Result<u64> {
    let text = std::fs::read_to_string(stat)?;
    // The name before may have spaces and brackets in it.
    let flags = text.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(6)?.parse().ok());
    flags.ok_or_else(|| io::Error::other(format!("no flags in {text:?}")))
}

/// The effective user id.
pub fn effective_uid() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() }
}

/// Lets SIGALRM interrupt system calls without ending the process (a handler that counts, without SA_RESTART).
pub fn catch_alarm() -> io::Result<()> {
    extern "C" fn count(_signal: libc::c_int) {
        ALARM_COUNT.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: all zeros is a valid sigaction; the handler adds to a number, which is safe in any context.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        answer(libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()))
    }
}

static ALARM_COUNT: AtomicU64 = AtomicU64::new(0);

/// How many signals the handler of `catch_alarm` has counted.
pub fn alarm_count() -> u64 {
    ALARM_COUNT.load(Ordering::Relaxed)
}

/// SIGALRM again and again from now on; never any more with an interval of zero.
pub fn start_alarms(interval: Duration) -> io::Result<()> {
    let interval = libc::timeval {
        tv_sec: interval.as_secs() as libc::time_t,
        tv_usec: interval.subsec_micros() as libc::suseconds_t,
    };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: the kernel reads the local, and nothing is asked for.
    answer(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) })
}

/// Gives this thread, and what it starts from now on, a network in which there is nothing but a loopback: ports are then its own,
/// whatever else runs on the machine (unshare(2) with CLONE_NEWNET, and SIOCSIFFLAGS of netdevice(7) for `lo`).
pub fn own_network() -> io::Result<()> {
    // SAFETY: no pointers.
    answer(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: the command reads one `ifreq`, a local that outlives the call.
    answer(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) })
}

/// umount2(2) with MNT_DETACH.
pub fn detach(point: &Path) -> io::Result<()> {
    let point = c_path(point)?;
    // SAFETY: the string outlives the call.
    answer(unsafe { libc::umount2(point.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) })
}

/// statfs(2): blocks and free blocks.
pub fn statfs(path: &Path) -> io::Result<(u64, u64)> {
    let path = c_path(path)?;
    // SAFETY: all zeros is a valid answer, a local that the kernel writes; the string outlives the call.
    unsafe {
        let mut space: libc::statfs = std::mem::zeroed();
        answer(libc::statfs(path.as_ptr(), &mut space))?;
        Ok((space.f_blocks, space.f_bfree))
    }
}

/// syncfs(2) of the file system that holds `path`.
pub fn syncfs(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    // SAFETY: the descriptor is open for the length of the call, which touches no memory of ours.
    answer(unsafe { libc::syncfs(file.as_raw_fd()) })
}

/// EXT4_IOC_SHUTDOWN without flushing the log: what a power cut does to the page cache (reference: ext4's public header,
/// `_IOR('X', 125, __u32)` with flag 2 = NOLOGFLUSH).
pub fn ext4_power_cut(mount: &Path) -> io::Result<()> {
    const EXT4_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587D;
    const NO_LOG_FLUSH: u32 = 2;
    let directory = File::open(mount)?;
    let flags = NO_LOG_FLUSH;
    // SAFETY: the command reads four bytes from `flags`, a local that outlives the call.
    answer(unsafe { libc::ioctl(directory.as_raw_fd(), EXT4_IOC_SHUTDOWN as _, &flags) })
}

/// The parts of statx(2) that `Metadata` lacks on some platforms: birth time in seconds and nanoseconds, if reported.
pub fn birth_time(path: &Path) -> io::Result<Option<(i64, u32)>> {
    let path = c_path(path)?;
    // SAFETY: all zeros is a valid statx.
    let mut out: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the string and the structure outlive the call.
    answer(unsafe {
        libc::statx(
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
            libc::STATX_BTIME | libc::STATX_BASIC_STATS,
            &mut out,
        )
    })?;
    Ok((out.stx_mask & libc::STATX_BTIME != 0).then_some((out.stx_btime.tv_sec, out.stx_btime.tv_nsec)))
}

/// `(6, 18)`
pub fn kernel_version() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The kernel asks FUSE for birth times since Linux 6.6 (FUSE 7.39).
pub fn kernel_asks_for_birth_times() -> bool {
    kernel_version() >= (6, 6)
}

/// access(2) with the real user id of the calling thread.
pub fn access(path: &Path, mode: i32) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the string outlives the call.
    answer(unsafe { libc::access(path.as_ptr(), mode) })
}

#[cfg(test)]
mod tests;
