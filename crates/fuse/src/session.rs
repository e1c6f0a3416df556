//! A mounted file system: its connection, its threads, its end.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crate::abi::{InHeader, init, opcode};
use crate::decode::{DecodeError, Dialect};
use crate::init::{Negotiated, Transport, negotiate};
use crate::interrupts::Early;
use crate::mount::{self, MountError, MountOptions, TransportChoice};
use crate::reply::{Destination, Reply};
use crate::{Handler, Notifier, Request, device, sys, uring};

thread_local! {
    static TRANSPORT_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread takes requests of some mount.
pub(crate) fn is_transport_thread() -> bool {
    TRANSPORT_THREAD.get()
}

/// Why the threads of a mount did not start.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// [`Session::run`] was called before.
    #[error("the threads of this mount run already")]
    Running,
    /// A thread or one of its descriptors could not be made.
    #[error("cannot start the threads of the mount")]
    Start(#[source] io::Error),
    /// The same of rings. The connection takes nothing else now; a new one over `/dev/fuse` needs less.
    #[error("cannot start the rings of the mount; transport=dev needs none")]
    Rings(#[source] io::Error),
}

/// What all threads of a session share.
pub(crate) struct Shared {
    pub device: Arc<File>,
    pub handler: Arc<dyn Handler>,
    pub dialect: Dialect,
    pub message_bytes_max: usize,
    pub early: Early,
    live_threads: AtomicUsize,
}

impl Shared {
    /// Gives a request to the handler; what could not be decoded is answered here. True if the handler has
    /// it now.
    pub fn dispatch(
        &self,
        header: InHeader,
        decoded: Result<Request, DecodeError>,
        destination: Destination,
    ) -> bool {
        let reply = Reply::new(header.unique, header.opcode, destination);
        match header.opcode {
            opcode::DESTROY => {
                reply.ok();
                return false;
            }
            // Messages without an answer have no reply; a second INIT is a broken peer.
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::INIT => {
                reply.error(libc::EIO);
                return false;
            }
            _ => {}
        }
        match decoded {
            Ok(request) => {
                self.handler.request(request, reply);
                true
            }
            Err(error) => {
                tracing::warn!(%error, unique = header.unique, "refused a request of the kernel");
                reply.error(error.errno());
                false
            }
        }
    }

    fn end_thread(&self) {
        if self.live_threads.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.handler.destroyed();
        }
    }

    /// Runs `body` as a transport thread; the last to end tells the handler.
    fn run_thread(&self, body: impl FnOnce()) {
        TRANSPORT_THREAD.set(true);
        // A guard, because a panicking handler must not leave `destroyed` uncalled.
        struct Guard<'a>(&'a Shared);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                self.0.end_thread();
            }
        }
        let _guard = Guard(self);
        body();
    }

    /// Starts a named transport thread.
    pub fn spawn(
        self: &Arc<Self>,
        name: String,
        body: impl FnOnce(Arc<Shared>) + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let shared = self.clone();
        self.live_threads.fetch_add(1, Ordering::SeqCst);
        let spawned = std::thread::Builder::new().name(name).spawn(move || {
            let inner = shared.clone();
            shared.run_thread(move || body(inner));
        });
        if spawned.is_err() {
            self.live_threads.fetch_sub(1, Ordering::SeqCst);
        }
        spawned
    }
}

/// A mount and its connection. Dropping it aborts the connection, detaches the mount and waits for the threads.
pub struct Session {
    device: Arc<File>,
    path: PathBuf,
    options: MountOptions,
    negotiated: Negotiated,
    connection: Option<u32>,
    threads: Vec<JoinHandle<()>>,
    /// CPUs that the mounting thread could use; the ring threads are bound to them.
    cpus: Vec<usize>,
    thread_count: usize,
    rings: Option<Arc<uring::Rings>>,
    is_mounted: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, negotiated, connection, .. } = self;
        write!(f, "Session({}, {negotiated:?}, connection {connection:?})", path.display())
    }
}

impl Session {
    /// Mounts on a directory and agrees with the kernel on the protocol. Until [`Session::run`] every access waits.
    pub fn mount(path: &Path, options: MountOptions) -> Result<(Self, Negotiated), MountError> {
        let path =
            path.canonicalize().map_err(|source| MountError::MountPoint { path: path.into(), source })?;
        let uring_works = uring::works()
            && is_uring_safe(options.transport, uring::reaches_all_cpus)
            && (options.transport != TransportChoice::Auto || has_room(&options));
        let device = Arc::new(mount::mount(&path, &options)?);
        let negotiated = match negotiate(&device, &options, uring_works) {
            Ok(negotiated) => negotiated,
            Err(error) => {
                let _ = mount::unmount(&path, true);
                return Err(error);
            }
        };
        let cpus = sys::allowed_cpus().unwrap_or_else(|_| vec![0]);
        let thread_count = match negotiated.transport {
            Transport::Device => device::thread_count(options.device_thread_count, cpus.len()),
            Transport::Uring => cpus.len(),
        };
        let connection = mount::connection_number(&path);
        let session = Self {
            device,
            path,
            options,
            negotiated,
            connection,
            threads: Vec::new(),
            cpus,
            thread_count,
            rings: None,
            is_mounted: true,
        };
        Ok((session, negotiated))
    }

    /// How many transport threads there are (or will be): the bound of [`crate::Request::thread_index`].
    pub fn thread_count(&self) -> usize {
        self.thread_count
    }

    /// How many requests the rings can hold at a time, which grows while answers are slow; 0 on `/dev/fuse`.
    pub fn ring_entry_count(&self) -> usize {
        self.rings.as_ref().map_or(0, |rings| rings.entry_count())
    }

    /// What was negotiated.
    pub fn negotiated(&self) -> Negotiated {
        self.negotiated
    }

    /// For messages to the kernel; works as long as the connection lives, also after the session is dropped (then with
    /// errors).
    pub fn notifier(&self) -> Notifier {
        Notifier::new(self.device.clone(), self.negotiated)
    }

    /// The number of the connection below `/sys/fs/fuse/connections`.
    pub fn connection(&self) -> Option<u32> {
        self.connection
    }

    /// The mount point, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts the threads and returns. After an error the handler is not told `destroyed`; after that of rings it has seen no request.
    pub fn run(&mut self, handler: Arc<dyn Handler>) -> Result<(), SessionError> {
        if !self.threads.is_empty() {
            return Err(SessionError::Running);
        }
        let shared = Arc::new(Shared {
            device: self.device.clone(),
            handler,
            dialect: Dialect { setxattr_ext: self.negotiated.has(init::SETXATTR_EXT) },
            message_bytes_max: self.negotiated.max_write_bytes as usize + (64 << 10),
            early: Early::default(),
            // This call counts as one, so that nobody hears of the end of what has not begun.
            live_threads: AtomicUsize::new(1),
        });
        let started = match self.negotiated.transport {
            Transport::Device => device::start(&shared, self.thread_count, &mut self.threads),
            Transport::Uring => {
                let place = uring::Place { cpus: &self.cpus, path: &self.path };
                uring::start(&shared, &self.options, &self.negotiated, place, &mut self.threads)
                    .map(|rings| self.rings = Some(rings))
            }
        };
        match started {
            Ok(()) => {
                shared.end_thread();
                Ok(())
            }
            Err(error) => {
                // Half a transport serves nobody: whoever waits shall get an error.
                let _ = self.abort();
                Err(match self.negotiated.transport {
                    Transport::Device => SessionError::Start(error),
                    Transport::Uring => SessionError::Rings(error),
                })
            }
        }
    }

    /// Unmounts. Not `lazy`: EBUSY when files are open. The threads end when the kernel lets the connection go.
    pub fn unmount(&mut self, lazy: bool) -> io::Result<()> {
        mount::unmount(&self.path, lazy)?;
        self.is_mounted = false;
        Ok(())
    }

    /// Somebody else has unmounted it: what is on the path from now on is not ours.
    pub fn forget_mount_point(&mut self) {
        self.is_mounted = false;
    }

    /// Ends the connection at once: everything that waits gets an error, every later access ENOTCONN.
    ///
    /// # Errors
    /// fusectl is not mounted, and the mount point is gone, through which it could be ended as well.
    pub fn abort(&self) -> io::Result<()> {
        if !self.is_connected() {
            return Ok(());
        }
        abort(self.connection, self.is_mounted.then_some(&self.path))
    }

    /// Whether the kernel still holds the connection: after an unmount, when the mount has copies or files are open. Once it
    /// does not, its number may already be somebody else's.
    pub fn is_connected(&self) -> bool {
        sys::poll([self.device.as_raw_fd()], 0).is_ok_and(|[events]| events & libc::POLLERR == 0)
    }

    /// Waits until the threads have ended, that is until somebody unmounted or aborted.
    pub fn join(mut self) {
        self.join_threads();
        // Threads that ended by a failure leave a connection that nobody serves.
        let _ = self.abort();
        // Unmounted by somebody else: then a later mount on the path is not ours to remove.
        self.is_mounted = self.is_mounted && mount::connection_number(&self.path) == self.connection;
    }

    /// Waits until the threads have ended, and touches neither the connection nor the mount point afterwards: once the
    /// handler was told `destroyed`, the kernel may have given both to another mount, under the same number and on the
    /// same path. A connection that was not ended by the kernel ends with its last descriptor.
    pub fn leave(mut self) {
        self.join_threads();
        self.is_mounted = false;
        self.connection = None;
    }

    fn join_threads(&mut self) {
        for thread in self.threads.drain(..) {
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!(mount = %self.path.display(), "a thread of the mount panicked");
            }
        }
    }
}

fn has_room(options: &MountOptions) -> bool {
    let has_room = uring::has_room(options);
    if !has_room {
        tracing::info!("not enough memory can be mapped for rings: requests come through /dev/fuse");
    }
    has_room
}

/// Who names the transport gets it.
fn is_uring_safe(choice: TransportChoice, reaches_all_cpus: impl FnOnce() -> bool) -> bool {
    if choice == TransportChoice::Device || reaches_all_cpus() {
        return true;
    }
    match choice {
        TransportChoice::Uring => {
            tracing::warn!(
                "this process may not run on every CPU (cpuset): calls on others can hang behind two that wait; \
                 transport=dev has no such bound"
            );
            true
        }
        TransportChoice::Auto | TransportChoice::Device => {
            tracing::info!("this process may not run on every CPU (cpuset): requests come through /dev/fuse");
            false
        }
    }
}

fn abort(connection: Option<u32>, mounted: Option<&PathBuf>) -> io::Result<()> {
    if let Some(number) = connection {
        let file = format!("/sys/fs/fuse/connections/{number}/abort");
        if std::fs::write(file, "1").is_ok() {
            return Ok(());
        }
    }
    // Without fusectl: a forced unmount aborts first. EBUSY is usual and the abort has happened all the same.
    let path = mounted.ok_or(io::ErrorKind::NotFound)?;
    match mount::umount2(path, libc::MNT_FORCE | libc::MNT_DETACH) {
        Err(error) if error.raw_os_error() != Some(libc::EBUSY) => Err(error),
        _ => Ok(()),
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_mounted && mount::connection_number(&self.path) == self.connection {
            let _ = self.abort();
            let _ = mount::unmount(&self.path, true);
        } else if !self.threads.is_empty() {
            // Detached, but files may still be open: without an abort the threads would not end.
            let _ = self.abort();
        }
        self.join_threads();
    }
}

/// Switches FUSE over io_uring on for mounts that follow (root; kernel 6.14 and newer).
pub fn enable_uring() -> io::Result<()> {
    std::fs::write("/sys/module/fuse/parameters/enable_uring", "1")
}

/// A second descriptor of the same connection, with a list of requests in work of its own.
pub(crate) fn clone_device(device: &File) -> io::Result<File> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let number = device.as_raw_fd() as u32;
    // SAFETY: FUSE_DEV_IOC_CLONE reads one u32, which is local.
    sys::check(unsafe { libc::ioctl(file.as_raw_fd(), crate::abi::DEV_IOC_CLONE, &number) })?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_connection_that_nothing_leads_to_is_not_said_to_be_aborted() {
        assert_eq!(abort(None, None).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(abort(Some(u32::MAX), None).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn in_a_cpuset_only_who_names_io_uring_gets_it() {
        use TransportChoice::{Auto, Device, Uring};
        assert!([Auto, Uring, Device].into_iter().all(|choice| is_uring_safe(choice, || true)));
        assert!(!is_uring_safe(Auto, || false));
        assert!(is_uring_safe(Uring, || false));
    }
}
