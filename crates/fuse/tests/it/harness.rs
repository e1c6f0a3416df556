//! Mounts in temporary directories that always go away.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuse::{MountOptions, Notifier, Session, Transport, TransportChoice};

use crate::memfs::MemFs;

/// A mount of a fresh [`MemFs`]. Dropped (also by a panic) it aborts the connection and detaches the mount.
pub struct Mount {
    // Before the directory: the mount must be gone when it is removed.
    pub session: Session,
    pub fs: Arc<MemFs>,
    // Ends with the sender.
    _watchdog: std::sync::mpsc::Sender<()>,
    dir: tempfile::TempDir,
}

/// Bounds a hang only.
pub const PATIENCE_SECONDS: u64 = 60;

/// Aborts a connection that lives for longer than any test: a test that waits inside its own mount could not be killed.
pub fn watchdog(connection: Option<u32>) -> std::sync::mpsc::Sender<()> {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let timeout = std::time::Duration::from_secs(3 * PATIENCE_SECONDS);
        if receiver.recv_timeout(timeout) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("the test takes too long: its connection {connection:?} is aborted");
            let number = connection.unwrap();
            std::fs::write(format!("/sys/fs/fuse/connections/{number}/abort"), "1").unwrap();
        }
    });
    sender
}

impl Mount {
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn notifier(&self) -> Notifier {
        self.session.notifier()
    }
}

/// The transports that this machine has; says why one is left out.
pub fn transports() -> Vec<TransportChoice> {
    // SAFETY: takes no pointers.
    if unsafe { libc::geteuid() } != 0 || !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: real mounts take root and /dev/fuse");
        return Vec::new();
    }
    let mut all = vec![TransportChoice::Device];
    match fuse::enable_uring() {
        Ok(()) => all.push(TransportChoice::Uring),
        Err(error) => eprintln!("skipped: FUSE over io_uring cannot be enabled: {error}"),
    }
    all
}

pub fn options(transport: TransportChoice) -> MountOptions {
    MountOptions { transport, device_thread_count: 3, ..Default::default() }
}

pub fn mount_with(options: MountOptions) -> Mount {
    let dir = tempfile::tempdir().unwrap();
    let fs = Arc::new(MemFs::new());
    let transport = options.transport;
    let (mut session, negotiated) = Session::mount(dir.path(), options).unwrap();
    let expected = if transport == TransportChoice::Uring { Transport::Uring } else { Transport::Device };
    assert_eq!(negotiated.transport, expected);
    session.run(fs.clone()).unwrap();
    let _watchdog = watchdog(session.connection());
    Mount { session, fs, _watchdog, dir }
}

/// Runs a test once per transport.
pub fn on_each(test: impl Fn(&Mount)) {
    for transport in transports() {
        eprintln!("on {transport:?}");
        test(&mount_with(options(transport)));
    }
}

/// Waits for a condition, for as long as a busy machine may need.
pub fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let since = std::time::Instant::now();
    while !condition() {
        assert!(since.elapsed().as_secs() < PATIENCE_SECONDS, "{what} did not happen");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// The errno of a system call that returned -1.
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// A path for a system call.
pub fn c_path(path: &Path) -> std::ffi::CString {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Binds the calling thread to a CPU.
pub fn pin(cpu: usize) {
    // SAFETY: all-zero is a valid set, which is local.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}
