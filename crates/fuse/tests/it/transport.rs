//! What a handler can rely on from the threads that call it.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fuse::null::NullFs;
use fuse::{
    Handler, MountOptions, Notifier, Reply, Request, Session, SessionError, Transport, TransportChoice,
};

use crate::harness::*;
use crate::memfs::MemFs;

/// Answers nothing in `request`: a descriptor wakes the transport thread, which answers then.
struct Deferred {
    inner: NullFs,
    pending: Mutex<Vec<(Request, Reply)>>,
    wake: OwnedFd,
    woken: AtomicU64,
    batches: AtomicU64,
}

impl Handler for Deferred {
    fn request(&self, request: Request, reply: Reply) {
        self.pending.lock().unwrap().push((request, reply));
        // SAFETY: reads eight bytes of a local array.
        unsafe { libc::write(self.wake.as_raw_fd(), 1u64.to_ne_bytes().as_ptr().cast(), 8) };
    }
    fn forget(&self, _forgets: &[(u64, u64)]) {}
    fn interrupt(&self, _unique: u64) {}
    fn batch_end(&self, thread_index: usize) {
        assert!(thread_index < 64);
        self.batches.fetch_add(1, Ordering::Relaxed);
    }
    fn wake_fd(&self, _thread_index: usize) -> Option<RawFd> {
        Some(self.wake.as_raw_fd())
    }
    fn woken(&self, _thread_index: usize) {
        self.woken.fetch_add(1, Ordering::Relaxed);
        let mut count = [0u8; 8];
        // SAFETY: writes eight bytes to a local array.
        unsafe { libc::read(self.wake.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
        for (request, reply) in std::mem::take(&mut *self.pending.lock().unwrap()) {
            self.inner.request(request, reply);
        }
    }
    fn destroyed(&self) {}
}

#[test]
fn a_descriptor_of_the_handler_wakes_the_transport() {
    for transport in transports() {
        // SAFETY: takes no pointers; the descriptor is new.
        let wake = unsafe {
            std::os::fd::FromRawFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))
        };
        let handler = Arc::new(Deferred {
            inner: NullFs::new(10),
            pending: Mutex::default(),
            wake,
            woken: AtomicU64::new(0),
            batches: AtomicU64::new(0),
        });
        let dir = tempfile::tempdir().unwrap();
        let (mut session, _) = Session::mount(dir.path(), options(transport)).unwrap();
        session.run(handler.clone()).unwrap();
        let _watchdog = watchdog(session.connection());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let root = dir.path();
                scope.spawn(move || {
                    for round in 0..100 {
                        let path = root.join(format!("made-{thread}-{round}"));
                        fs::write(&path, b"x").unwrap();
                        assert_eq!(fs::metadata(&path).unwrap().len(), 1);
                    }
                });
            }
        });
        assert!(handler.woken.load(Ordering::Relaxed) > 0);
        assert!(handler.batches.load(Ordering::Relaxed) > 0);
        drop(session);
    }
}

/// Tries every notification on the thread that took a request.
struct Careless {
    inner: NullFs,
    notifier: Mutex<Option<Notifier>>,
    results: Mutex<Vec<Option<i32>>>,
}

impl Handler for Careless {
    fn request(&self, request: Request, reply: Reply) {
        let notifier = self.notifier.lock().unwrap().take();
        if let Some(notifier) = notifier {
            let all = [
                notifier.inval_inode(1, 0, -1),
                notifier.inval_entry(1, b"a"),
                notifier.delete_entry(1, 2, b"a"),
                notifier.store(1, 0, b"x"),
                notifier.prune(&[2]),
            ];
            let errors = all.map(|result| result.err().and_then(|error| error.raw_os_error()));
            self.results.lock().unwrap().extend(errors);
        }
        self.inner.request(request, reply);
    }
    fn forget(&self, _forgets: &[(u64, u64)]) {}
    fn interrupt(&self, _unique: u64) {}
    fn destroyed(&self) {}
}

#[test]
fn notifications_that_could_deadlock_are_refused_on_transport_threads() {
    for transport in transports() {
        let dir = tempfile::tempdir().unwrap();
        let (mut session, _) = Session::mount(dir.path(), options(transport)).unwrap();
        let handler = Arc::new(Careless {
            inner: NullFs::new(0),
            notifier: Mutex::new(Some(session.notifier())),
            results: Mutex::default(),
        });
        session.run(handler.clone()).unwrap();
        fs::metadata(dir.path().join("f1")).unwrap();
        assert_eq!(*handler.results.lock().unwrap(), [Some(libc::EDEADLK); 5]);
    }
}

#[test]
fn queues_of_cpus_that_are_not_ours_are_served() {
    if transports().len() < 2 {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let session = std::thread::scope(|scope| {
        let on_cpu_0 = scope.spawn(|| {
            pin(0);
            let (mut session, _) = Session::mount(dir.path(), options(TransportChoice::Uring)).unwrap();
            session.run(Arc::new(NullFs::new(10))).unwrap();
            session
        });
        on_cpu_0.join().unwrap()
    });
    let _watchdog = watchdog(session.connection());
    assert_eq!(session.thread_count(), 1);
    let cpu_count = std::thread::available_parallelism().unwrap().get();
    std::thread::scope(|scope| {
        for thread in 0..cpu_count * 4 {
            let root = dir.path();
            scope.spawn(move || {
                pin(thread % cpu_count);
                for round in 0..100 {
                    fs::metadata(root.join(format!("f{round}"))).unwrap();
                    fs::write(root.join(format!("made-{thread}")), b"x").unwrap();
                }
            });
        }
    });
}

/// Has a process of its own, since its memory has a limit.
#[test]
fn rings_that_cannot_be_had_leave_the_handler_to_another_mount() {
    const IS_LIMITED: &str = "SHEEN_TEST_MEMORY_IS_LIMITED";
    if transports().len() < 2 {
        return;
    }
    if std::env::var_os(IS_LIMITED).is_none() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "transport::rings_that_cannot_be_had_leave_the_handler_to_another_mount"]);
        assert!(again.env(IS_LIMITED, "1").status().unwrap().success());
        return;
    }
    let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: 1 << 30 };
    // SAFETY: the limit is a local.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    let (dir, handler) = (tempfile::tempdir().unwrap(), Arc::new(MemFs::new()));
    let is_destroyed = || handler.destroyed.load(std::sync::atomic::Ordering::SeqCst);
    let large = |choice| MountOptions { ring_depth: 1024, ..options(choice) };
    let (session, negotiated) = Session::mount(dir.path(), large(TransportChoice::Auto)).unwrap();
    assert_eq!(negotiated.transport, Transport::Device, "seen before anything is taken");
    drop(session);
    let (mut session, _) = Session::mount(dir.path(), large(TransportChoice::Uring)).unwrap();
    let refused = session.run(handler.clone()).unwrap_err();
    assert!(matches!(refused, SessionError::Rings(_)), "{refused}");
    assert!(refused.to_string().contains("transport=dev"), "{refused}");
    drop(session);
    assert!(!is_destroyed(), "nothing has begun");
    let (mut session, _) = Session::mount(dir.path(), options(TransportChoice::Device)).unwrap();
    session.run(handler.clone()).unwrap();
    fs::write(dir.path().join("f"), b"x").unwrap();
    assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"x");
    drop(session);
    assert!(is_destroyed());
}

#[test]
fn a_mount_point_that_is_none_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Session::mount(&dir.path().join("missing"), options(TransportChoice::Device)).unwrap_err();
    assert!(missing.to_string().contains("missing"), "{missing}");
    fs::write(dir.path().join("file"), b"").unwrap();
    assert!(Session::mount(&dir.path().join("file"), options(TransportChoice::Device)).is_err());
}

#[test]
fn answers_given_at_once_do_not_make_queues_grow() {
    if transports().len() < 2 {
        return;
    }
    let mount = mount_with(options(TransportChoice::Uring));
    let before = mount.session.ring_entry_count();
    assert!(before > 0);
    fs::write(mount.join("f"), b"x").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                for _ in 0..500 {
                    fs::metadata(mount.join("f")).unwrap();
                }
            });
        }
    });
    assert_eq!(mount.session.ring_entry_count(), before);
}
