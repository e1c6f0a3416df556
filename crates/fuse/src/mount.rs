//! Mounting and unmounting: with mount(2) where we may, otherwise through `fusermount3`.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sys;

#[cfg(test)]
mod tests;

/// Which transport to use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// Rings if the kernel has them enabled, otherwise `/dev/fuse`.
    #[default]
    Auto,
    /// `/dev/fuse`, always.
    Device,
    /// Rings, or an error.
    Uring,
}

/// How to mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// The source that `mount` and `df` show. No comma.
    pub source: String,
    /// The type shown is `fuse.` and this. No comma.
    pub subtype: String,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// The kernel checks permissions by mode and ACL.
    pub default_permissions: bool,
    /// Flags of mount(2): `libc::MS_RDONLY`, `MS_NOSUID`, `MS_NODEV`, `MS_NOEXEC`, `MS_NOATIME`, `MS_DIRSYNC` …
    pub flags: libc::c_ulong,
    /// Transport.
    pub transport: TransportChoice,
    /// Threads on `/dev/fuse`; 0 is one per CPU that we may use, at least two.
    pub device_thread_count: usize,
    /// Entries of each ring queue at the start; more are made when they run short.
    pub ring_depth: usize,
    /// The greatest WRITE, rounded up to pages. Above 1 MiB `/proc/sys/fs/fuse/max_pages_limit` must allow it.
    pub max_write_bytes: u32,
    /// The kernel's readahead window at least.
    pub max_readahead_bytes: u32,
    /// Requests in the background (readahead, asynchronous direct I/O) at a time.
    pub max_background: u16,
    /// ACLs as `system.posix_acl_access` and `_default`, enforced by the kernel.
    pub posix_acl: bool,
    /// The handler takes set-id bits away itself when asked.
    pub handle_killpriv_v2: bool,
    /// Shared mappings of files opened with FOPEN_DIRECT_IO.
    pub direct_io_allow_mmap: bool,
    /// flock(2) and fcntl(2) locks come to the handler; otherwise the kernel keeps them by itself.
    pub remote_locks: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "sheen".into(),
            subtype: "sheen".into(),
            allow_other: true,
            default_permissions: true,
            flags: 0,
            transport: TransportChoice::Auto,
            device_thread_count: 0,
            ring_depth: 8,
            max_write_bytes: 1 << 20,
            max_readahead_bytes: 1 << 20,
            max_background: 256,
            posix_acl: true,
            handle_killpriv_v2: true,
            direct_io_allow_mmap: false,
            remote_locks: true,
        }
    }
}

/// Why a mount did not come about.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// `/dev/fuse` cannot be opened.
    #[error("cannot open /dev/fuse; load the fuse module (modprobe fuse) or allow access to the device")]
    Device(#[source] io::Error),
    /// The mount point is not a directory that we can use.
    #[error("mount point {path} cannot be used; if a dead mount is on it, umount -l it")]
    MountPoint {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A comma or NUL in an option.
    #[error("mount option {0:?} contains a character that is not possible there")]
    Option(String),
    /// mount(2) failed.
    #[error("mount on {path} failed")]
    Mount {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Not root, and no helper.
    #[error("mounting needs root, or the program fusermount3 (package fuse3) in the PATH")]
    NoHelper(#[source] io::Error),
    /// The helper refused.
    #[error("fusermount3 did not mount {path}; it said: {message}")]
    Helper {
        /// The path.
        path: PathBuf,
        /// Its standard error.
        message: String,
    },
    /// INIT could not be read or answered.
    #[error("the kernel and we could not agree at the start of the connection")]
    Init(#[source] io::Error),
    /// A kernel that is too old.
    #[error("the kernel speaks FUSE {major}.{minor}; at least 7.31 (Linux 5.2) is needed")]
    Protocol {
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
    },
    /// Rings were demanded.
    #[error(
        "FUSE over io_uring is not available: it takes Linux 6.14, io_uring not forbidden, and \
         `echo 1 > /sys/module/fuse/parameters/enable_uring` before the mount"
    )]
    UringUnavailable,
}

/// Mounts and returns the new connection.
pub(crate) fn mount(path: &Path, options: &MountOptions) -> Result<File, MountError> {
    for text in [&options.source, &options.subtype] {
        if text.bytes().any(|b| b == b',' || b == 0 || b == b'\n') {
            return Err(MountError::Option(text.clone()));
        }
    }
    check_directory(path).map_err(|source| MountError::MountPoint { path: path.into(), source })?;
    match mount_directly(path, options) {
        Err(MountError::Mount { source, .. }) if source.raw_os_error() == Some(libc::EPERM) && !is_root() => {
            mount_by_helper(path, options, "fusermount3")
        }
        Err(MountError::Device(source)) if !is_root() => mount_by_helper(path, options, "fusermount3")
            .map_err(|error| match error {
                MountError::NoHelper(_) => MountError::Device(source),
                other => other,
            }),
        other => other,
    }
}

/// # Errors
/// It is not there, or is no directory.
fn check_directory(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // The standard library would have autofs mount there what we are about to.
    // SAFETY: the string ends with NUL, and there is room for the answer.
    sys::check(unsafe {
        libc::fstatat(libc::AT_FDCWD, path.as_ptr(), stat.as_mut_ptr(), libc::AT_NO_AUTOMOUNT)
    })?;
    // SAFETY: the call has succeeded, so it is filled.
    let mode = unsafe { stat.assume_init() }.st_mode;
    if mode & libc::S_IFMT == libc::S_IFDIR {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ENOTDIR))
    }
}

fn is_root() -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::geteuid() == 0 }
}

fn mount_directly(path: &Path, options: &MountOptions) -> Result<File, MountError> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(MountError::Device)?;
    // SAFETY: take no pointers.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let mut data = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", device.as_raw_fd());
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let text = |bytes: &[u8]| {
        CString::new(bytes).map_err(|_| MountError::Option(String::from_utf8_lossy(bytes).into_owned()))
    };
    let source = text(options.source.as_bytes())?;
    let kind = text(format!("fuse.{}", options.subtype).as_bytes())?;
    let target = text(path.as_os_str().as_bytes())?;
    let data = text(data.as_bytes())?;
    // SAFETY: all pointers are to NUL-terminated strings that outlive the call.
    let result = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), options.flags, data.as_ptr().cast())
    };
    sys::check(result).map_err(|source| MountError::Mount { path: path.into(), source })?;
    Ok(device)
}

/// Options of mount(2) in the words of `fusermount3`.
fn helper_options(options: &MountOptions) -> String {
    let mut words = vec![format!("fsname={}", options.source), format!("subtype={}", options.subtype)];
    let flags = [
        (libc::MS_RDONLY, "ro"),
        (libc::MS_NOEXEC, "noexec"),
        (libc::MS_NOATIME, "noatime"),
        (libc::MS_DIRSYNC, "dirsync"),
        (libc::MS_SYNCHRONOUS, "sync"),
    ];
    words.extend(flags.iter().filter(|(bit, _)| options.flags & bit != 0).map(|(_, word)| word.to_string()));
    if options.default_permissions {
        words.push("default_permissions".into());
    }
    if options.allow_other {
        words.push("allow_other".into());
    }
    words.join(",")
}

/// Lets the set-uid helper mount; it sends the descriptor of the connection through a socket.
fn mount_by_helper(path: &Path, options: &MountOptions, program: &str) -> Result<File, MountError> {
    let (ours, theirs) = socket_pair().map_err(MountError::NoHelper)?;
    let theirs_fd = theirs.as_raw_fd();
    let mut command = Command::new(program);
    command.arg("-o").arg(helper_options(options)).arg("--").arg(path);
    command.env("_FUSE_COMMFD", theirs_fd.to_string());
    // SAFETY: between fork and exec only fcntl is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || sys::check(libc::fcntl(theirs_fd, libc::F_SETFD, 0)).map(|_| ()));
    }
    let output = command.output().map_err(MountError::NoHelper)?;
    drop(theirs);
    let refused = || MountError::Helper {
        path: path.into(),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    };
    if !output.status.success() {
        return Err(refused());
    }
    receive_fd(&ours).map(File::from).map_err(|_| refused())
}

fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for the two descriptors.
    sys::check(unsafe {
        libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr())
    })?;
    // SAFETY: both are new and nobody else's.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// Receives one descriptor (SCM_RIGHTS).
fn receive_fd(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut byte = [0u8; 1];
    let mut iov = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // u64 elements keep the control buffer aligned for `cmsghdr`.
    let mut control = [0u64; 8];
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: all buffers of `message` are local and outlive the call.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel filled `message`; CMSG_FIRSTHDR checks the length for a whole header.
    let head = unsafe { libc::CMSG_FIRSTHDR(&message) };
    // SAFETY: not null, so it points to a header within `control`.
    let is_rights = !head.is_null()
        && unsafe { (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS };
    if !is_rights {
        return Err(io::Error::from_raw_os_error(libc::EPROTO));
    }
    // SAFETY: an SCM_RIGHTS message holds at least one descriptor; it is ours from now on.
    unsafe {
        let fd = std::ptr::read_unaligned(libc::CMSG_DATA(head).cast::<libc::c_int>());
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Unmounts. `lazy` detaches the tree at once even if files are open. Errors are those of umount2(2); EBUSY means that
/// somebody still uses it.
pub fn unmount(path: &Path, lazy: bool) -> io::Result<()> {
    let flags = libc::UMOUNT_NOFOLLOW | if lazy { libc::MNT_DETACH } else { 0 };
    match umount2(path, flags) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) && !is_root() => {
            let mut command = Command::new("fusermount3");
            command.env("LC_ALL", "C").arg("-u").args(lazy.then_some("-z")).arg("--").arg(path);
            let output = command.output()?;
            if output.status.success() {
                return Ok(());
            }
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            // It has words only, in English.
            let is_busy = said.contains("resource busy");
            Err(if is_busy { io::Error::from_raw_os_error(libc::EBUSY) } else { io::Error::other(said) })
        }
        other => other,
    }
}

pub(crate) fn umount2(path: &Path, flags: libc::c_int) -> io::Result<()> {
    let target =
        CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the pointer is to a NUL-terminated string that outlives the call.
    sys::check(unsafe { libc::umount2(target.as_ptr(), flags) })?;
    Ok(())
}

/// The number of the FUSE connection mounted on `path`, as below `/sys/fs/fuse/connections`. Reads the mount table: a
/// stat of the path would be a request to ourselves.
pub(crate) fn connection_number(path: &Path) -> Option<u32> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    connection_in_table(&table, path)
}

fn connection_in_table(table: &[u8], path: &Path) -> Option<u32> {
    let last = table
        .split(|&b| b == b'\n')
        .rev()
        .find(|line| line.split(|&b| b == b' ').nth(4).is_some_and(|field| unescape(field) == path))?;
    let device = std::str::from_utf8(last.split(|&b| b == b' ').nth(2)?).ok()?;
    // Anonymous devices have major 0 and up to 20 bits of minor; the kernel names the connection by the whole number.
    let (major, minor) = device.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some((major << 20) | minor)
}

/// The mount table writes space, tab, newline and backslash as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = (byte == b'\\').then(|| tail.get(..3)).flatten().and_then(|digits| {
            digits
                .iter()
                .try_fold(0u32, |n, d| (b'0'..=b'7').contains(d).then(|| n * 8 + u32::from(d - b'0')))
        });
        match octal {
            Some(value) => {
                out.push(value as u8);
                rest = &tail[3..];
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}
