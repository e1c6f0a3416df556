//! autofs, as an automounter has it (reference: autofs(5) of the kernel's documentation, `linux/auto_fs.h`).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::{answer, c_path, detach};

const READY: libc::c_ulong = 0x9360;
const EXPIRE_MULTI: libc::c_ulong = 0x4004_9366;
/// However short the time is for which nobody has used it.
const EXPIRES_AT_ONCE: libc::c_int = 1;
const CATATONIC: libc::c_ulong = 0x9362;
/// Where a request has its token, after the version of the protocol and its kind.
const TOKEN_AT: usize = 8;
/// A request is shorter.
const REQUEST_BYTES_MAX: usize = 512;

/// A directory where this process mounts on demand. It and its process group see what is there; anybody else who looks into it waits until
/// something is mounted.
pub struct Automount {
    point: PathBuf,
    root: File,
    requests: File,
}

impl Automount {
    /// Mounts autofs there.
    pub fn new(point: &Path) -> io::Result<Automount> {
        let mut ends = [0; 2];
        // SAFETY: there is room for two descriptors, which are ours alone afterwards.
        let (requests, theirs) = unsafe {
            answer(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK))?;
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        let options = format!("fd={},minproto=5,maxproto=5,direct", theirs.as_raw_fd());
        let (path, options) = (c_path(point)?, c_path(Path::new(&options))?);
        let (source, kind) = (c"suite".as_ptr(), c"autofs".as_ptr());
        // SAFETY: all strings outlive the call.
        answer(unsafe { libc::mount(source, path.as_ptr(), kind, 0, options.as_ptr().cast()) })?;
        let root = File::open(point)?;
        Ok(Automount { point: point.to_owned(), root, requests: requests.into() })
    }

    /// The token of the next one who waits, for a mount or the end of one.
    pub fn request(&self) -> io::Result<Option<u32>> {
        let mut request = [0; REQUEST_BYTES_MAX];
        match (&self.requests).read(&mut request) {
            Ok(_) => {
                let token = request.get(TOKEN_AT..).and_then(<[u8]>::first_chunk).copied();
                Ok(Some(u32::from_ne_bytes(token.unwrap_or_default())))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Has what is mounted there end, if nobody uses it, and waits for that.
    pub fn expire(&self) -> io::Result<()> {
        let how = EXPIRES_AT_ONCE;
        // SAFETY: the command reads a number, which outlives the call.
        answer(unsafe { libc::ioctl(self.root.as_raw_fd(), EXPIRE_MULTI as _, &raw const how) })
    }

    /// Something is mounted, or no longer: who waits goes on.
    pub fn ready(&self, token: u32) -> io::Result<()> {
        // SAFETY: the command takes a number.
        answer(unsafe { libc::ioctl(self.root.as_raw_fd(), READY as _, libc::c_ulong::from(token)) })
    }
}

impl Drop for Automount {
    fn drop(&mut self) {
        // Nobody waits for an automounter that is gone.
        // SAFETY: the command takes nothing.
        unsafe { libc::ioctl(self.root.as_raw_fd(), CATATONIC as _, 0) };
        let _ = detach(&self.point);
    }
}
