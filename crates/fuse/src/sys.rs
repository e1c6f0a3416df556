//! System calls that the standard library does not offer, each wrapped once.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use zerocopy::IntoBytes;

use crate::abi;

/// Turns -1 into the errno.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Writes one message to `/dev/fuse`: all of it or an error, there are no partial writes.
pub(crate) fn write_message(device: &File, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
    let body: usize = parts.iter().map(|part| part.len()).sum();
    let header = abi::OutHeader { len: (16 + body) as u32, error, unique };
    let iovec = |bytes: &[u8]| libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
    let mut iovecs = Vec::with_capacity(parts.len() + 1);
    iovecs.push(iovec(header.as_bytes()));
    iovecs.extend(parts.iter().filter(|part| !part.is_empty()).map(|part| iovec(part)));
    // More pieces than one call takes: join them.
    let joined;
    if iovecs.len() > 1000 {
        joined = parts.concat();
        iovecs.truncate(1);
        iovecs.push(iovec(&joined));
    }
    // SAFETY: the iovecs point to `header`, `parts` and `joined`, which outlive the call, and the kernel only reads them.
    let written = unsafe { libc::writev(device.as_raw_fd(), iovecs.as_ptr(), iovecs.len() as libc::c_int) };
    if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A new eventfd with counter 0, non-blocking.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds one to an eventfd.
pub(crate) fn eventfd_signal(fd: RawFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: reads eight bytes of a local array. A full counter (EAGAIN) is as good as success: it is readable.
    unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
}

/// Sets an eventfd back to 0.
pub(crate) fn eventfd_clear(fd: RawFd) {
    let mut count = [0u8; 8];
    // SAFETY: writes eight bytes to a local array.
    unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
}

/// Waits until one of `fds` is readable (or in error) or the time is over; a negative timeout waits for ever. Returns
/// the `revents` of each. An interrupted wait returns zeros.
pub(crate) fn poll<const N: usize>(fds: [RawFd; N], timeout_ms: i32) -> io::Result<[i16; N]> {
    let mut set = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: `set` is a local array of N elements.
    match check(unsafe { libc::poll(set.as_mut_ptr(), N as libc::nfds_t, timeout_ms) }) {
        Ok(_) => Ok(set.map(|entry| entry.revents)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok([0; N]),
        Err(error) => Err(error),
    }
}

/// CPUs that this process may run on.
pub(crate) fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: all-zero is a valid empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is local and its size is passed.
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) })?;
    // SAFETY: the index is below the size of the set.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// CPUs that run.
pub(crate) fn online_cpus() -> io::Result<Vec<usize>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_cpus(text.trim()).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

pub(crate) fn parse_cpus(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        cpus.extend(first..=last.min(libc::CPU_SETSIZE as usize));
    }
    Some(cpus)
}

/// Binds the calling thread to one CPU.
pub(crate) fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    pin_to_cpus(&[cpu])
}

/// How many CPUs the kernel can ever have, which is how many ring queues it has. Reads a list such as `0-3,8`.
pub(crate) fn possible_cpu_count() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    parse_cpu_count(text.trim()).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

pub(crate) fn parse_cpu_count(list: &str) -> Option<usize> {
    list.split(',').try_fold(0usize, |count, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(count + last.checked_sub(first)? + 1)
    })
}

/// Bytes of a page.
pub(crate) fn page_size() -> u32 {
    // SAFETY: takes no pointers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u32::try_from(size).ok().filter(|size| *size >= 4096).unwrap_or(4096)
}

/// Makes reads of the file return EAGAIN instead of waiting.
pub(crate) fn set_nonblocking(file: &File) -> io::Result<()> {
    // SAFETY: takes no pointers.
    let flags = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: takes no pointers.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    Ok(())
}

/// Binds the calling thread to a set of CPUs.
pub(crate) fn pin_to_cpus(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: all-zero is a valid empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
        // SAFETY: the index was checked against the size of the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: `set` is local and its size is passed.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) })?;
    Ok(())
}

/// Asks for statfs of a path and ignores the answer: the cheapest request that a kernel never caches.
pub(crate) fn statfs_probe(path: &std::path::Path) {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return };
    // SAFETY: all-zero is a valid statfs.
    let mut out: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is NUL-terminated and `out` is local.
    unsafe { libc::statfs(path.as_ptr(), &mut out) };
}

/// Leaves the calling thread without any descriptor; those of the others stay.
pub(crate) fn leave_descriptors() -> io::Result<()> {
    // SAFETY: takes no pointers, and the table that it empties is a new one of this thread.
    let left =
        unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) };
    check(left as libc::c_int).map(|_| ())
}

/// The calling thread as the kernel names it in requests.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: takes no pointers and cannot fail.
    unsafe { libc::gettid() as u32 }
}
