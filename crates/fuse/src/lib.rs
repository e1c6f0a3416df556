//! A thin FUSE layer of our own: the protocol's structures, mounting, and two transports behind one [`Handler`].
//!
//! It holds no cache and no policy. The transports are threads on `/dev/fuse` and, where the kernel offers it, one pinned
//! thread per CPU on FUSE-over-io_uring (2 to 9 times cheaper per metadata request). [`Session::mount`] mounts and
//! negotiates, [`Session::run`] starts the threads, [`Notifier`] revokes what the kernel caches.

pub mod abi;
mod callers;
mod decode;
#[doc(hidden)]
pub mod decoders;
mod device;
mod init;
mod interrupts;
mod mount;
mod notify;
pub mod null;
mod reply;
mod request;
mod session;
mod sys;
mod uring;

use std::os::fd::RawFd;

pub use callers::thread_status;
pub use decode::DecodeError;
pub use init::{Negotiated, Transport};
pub use mount::{MountError, MountOptions, TransportChoice, unmount};
pub use notify::{Notified, Notifier};
pub use reply::{Attr, DirBuffer, EntryOut, Reply, Statfs, device_major_minor, device_number};
pub use request::{
    CopyFileRange, Ioctl, Lock, LockKind, Name, Op, Read, Request, SetTime, Setattr, Timestamp, Write,
};
pub use session::{Session, SessionError, enable_uring};

/// The file system behind a mount.
///
/// All methods run on transport threads and must not block: while one does, the requests of its CPU wait. No two files that are open
/// at a time may have the same handle number, if they take asynchronous direct I/O.
pub trait Handler: Send + Sync + 'static {
    /// A request was taken. The answer may be given at once or later, from any thread.
    fn request(&self, request: Request, reply: Reply);

    /// The kernel gave back lookups: pairs of node id and count. There is no answer.
    fn forget(&self, forgets: &[(u64, u64)]);

    /// The caller of the request got a signal. Answer it soon, with EINTR if it did not happen. The request may be
    /// answered already. Called only after [`Handler::request`] for the same number has returned.
    fn interrupt(&self, unique: u64);

    /// Called on a transport thread after each batch of requests that it took, so that an event loop can run there.
    fn batch_end(&self, _thread_index: usize) {}

    /// A descriptor (an epoll set, a socket) that transport thread `thread_index` watches while it waits for requests.
    /// Asked once, when the thread starts; it must stay open as long as the session.
    fn wake_fd(&self, _thread_index: usize) -> Option<RawFd> {
        None
    }

    /// The descriptor of [`Handler::wake_fd`] is readable. [`Handler::batch_end`] follows.
    fn woken(&self, _thread_index: usize) {}

    /// Unmounted, or the connection was aborted. No request follows. Called once.
    fn destroyed(&self);
}
