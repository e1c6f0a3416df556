//! Locks that wait: interrupted, many at once, and while the transport is busy.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::*;

extern "C" fn nothing(_signal: libc::c_int) {}

/// A handler that does nothing, without SA_RESTART: system calls return EINTR.
fn catch_usr1() {
    // SAFETY: the handler is async-signal-safe, the structure is local.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
}

/// Sends SIGUSR1 to one thread of ours, by the id that the thread stored.
fn signal(thread: &AtomicI32) {
    // SAFETY: takes no pointers.
    let sent = unsafe {
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread.load(Ordering::SeqCst), libc::SIGUSR1)
    };
    assert_eq!(sent, 0);
}

fn store_own_id(thread: &AtomicI32) {
    // SAFETY: takes no pointers.
    thread.store(unsafe { libc::gettid() }, Ordering::SeqCst);
}

/// Waits until the thread that stored its id sleeps in a system call: its request is queued then.
fn wait_until_in(call: libc::c_long, thread: &AtomicI32) {
    wait_for("a thread in its call", || {
        let path = format!("/proc/self/task/{}/syscall", thread.load(Ordering::SeqCst));
        let now = std::fs::read_to_string(path).unwrap_or_default();
        now.split(' ').next() == Some(call.to_string().as_str())
    });
}

fn open(mount: &Mount) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(mount.join("file")).unwrap()
}

/// Blocks until the flock is had; the errno otherwise.
fn flock(file: &File, operation: i32) -> Result<(), i32> {
    // SAFETY: takes no pointers.
    if unsafe { libc::flock(file.as_raw_fd(), operation) } == 0 { Ok(()) } else { Err(errno()) }
}

/// A lock of the open file, so that threads of one process can conflict.
fn range(file: &File, command: i32, kind: i32, start: i64, len: i64) -> Result<i32, i32> {
    // SAFETY: all-zero is a valid flock, which is local.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_start, lock.l_len) = (kind as i16, start, len);
    // SAFETY: as above.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) } == 0 {
        Ok(i32::from(lock.l_type))
    } else {
        Err(errno())
    }
}

#[test]
fn ranges_and_whole_files_conflict_each_on_their_own() {
    on_each(|mount| {
        let (one, two) = (open(mount), open(mount));
        range(&one, libc::F_OFD_SETLK, libc::F_WRLCK, 10, 10).unwrap();
        assert_eq!(range(&two, libc::F_OFD_SETLK, libc::F_RDLCK, 19, 1), Err(libc::EAGAIN));
        assert_eq!(range(&two, libc::F_OFD_SETLK, libc::F_RDLCK, 20, 1), Ok(libc::F_RDLCK));
        assert_eq!(range(&two, libc::F_OFD_GETLK, libc::F_WRLCK, 0, 11), Ok(libc::F_WRLCK));
        assert_eq!(range(&two, libc::F_OFD_GETLK, libc::F_WRLCK, 0, 10), Ok(libc::F_UNLCK));
        flock(&two, libc::LOCK_EX).unwrap();
        assert_eq!(flock(&one, libc::LOCK_SH | libc::LOCK_NB), Err(libc::EWOULDBLOCK));
        drop(two);
        wait_for("the flock of a closed file is free", || flock(&one, libc::LOCK_SH | libc::LOCK_NB).is_ok());
    });
}

#[test]
fn a_signal_ends_a_wait_for_a_lock() {
    catch_usr1();
    on_each(|mount| {
        let (holder, waiter, id) = (open(mount), open(mount), AtomicI32::new(0));
        range(&holder, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).unwrap();
        std::thread::scope(|scope| {
            for delay_ms in [0, 1, 30] {
                let thread = scope.spawn(|| {
                    store_own_id(&id);
                    range(&waiter, libc::F_OFD_SETLKW, libc::F_WRLCK, 0, 0)
                });
                wait_for("a waiting lock", || mount.fs.waiter_count() == 1);
                std::thread::sleep(Duration::from_millis(delay_ms));
                signal(&id);
                assert_eq!(thread.join().unwrap(), Err(libc::EINTR));
            }
        });
        range(&holder, libc::F_OFD_SETLK, libc::F_UNLCK, 0, 0).unwrap();
        range(&waiter, libc::F_OFD_SETLKW, libc::F_WRLCK, 0, 0).unwrap();
    });
}

/// Linux 6.18 sends no INTERRUPT for a signal that came before a ring thread took the request.
#[test]
fn a_signal_before_the_request_is_taken_ends_the_wait_too() {
    catch_usr1();
    on_each(|mount| {
        let (holder, waiter, id) = (open(mount), open(mount), AtomicI32::new(0));
        let stat_ids = [const { AtomicI32::new(0) }; 4];
        flock(&holder, libc::LOCK_EX).unwrap();
        let busy = mount.fs.hold_everything();
        std::thread::scope(|scope| {
            // Enough of them to occupy every transport thread of the CPU.
            for id in &stat_ids {
                scope.spawn(|| {
                    store_own_id(id);
                    pin(0);
                    mount.path().metadata().unwrap();
                });
            }
            stat_ids.iter().for_each(|id| wait_until_in(libc::SYS_statx, id));
            let thread = scope.spawn(|| {
                store_own_id(&id);
                pin(0);
                flock(&waiter, libc::LOCK_EX)
            });
            wait_until_in(libc::SYS_flock, &id);
            signal(&id);
            // Time to notice the signal, which nothing shows from outside; without it the case is easier, not wrong.
            std::thread::sleep(Duration::from_millis(50));
            drop(busy);
            assert_eq!(thread.join().unwrap(), Err(libc::EINTR));
        });
    });
}

/// More waiters on one CPU than its queue has entries; the unlock comes from the same CPU.
#[test]
fn many_waiting_locks_do_not_keep_the_unlock_out() {
    on_each(|mount| {
        let holder = open(mount);
        flock(&holder, libc::LOCK_EX).unwrap();
        let had = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..60 {
                scope.spawn(|| {
                    pin(0);
                    let file = open(mount);
                    flock(&file, libc::LOCK_EX).unwrap();
                    had.fetch_add(1, Ordering::Relaxed);
                });
            }
            wait_for("sixty waiting locks", || mount.fs.waiter_count() == 60);
            scope.spawn(|| {
                pin(0);
                flock(&holder, libc::LOCK_UN).unwrap();
            });
        });
        assert_eq!(had.load(Ordering::Relaxed), 60);
    });
}

/// All of them are queued before the ring thread sees the first, so it can register more entries only when all are out.
#[test]
fn waiting_locks_that_come_at_once_are_all_taken() {
    on_each(|mount| {
        let holder = open(mount);
        flock(&holder, libc::LOCK_EX).unwrap();
        let (stat_id, flock_ids) = (AtomicI32::new(0), [const { AtomicI32::new(0) }; 40]);
        let files: Vec<File> = flock_ids.iter().map(|_| open(mount)).collect();
        let busy = mount.fs.hold_everything();
        std::thread::scope(|scope| {
            let stat_id = &stat_id;
            scope.spawn(move || {
                store_own_id(stat_id);
                pin(0);
                mount.path().metadata().unwrap();
            });
            wait_until_in(libc::SYS_statx, stat_id);
            for (file, id) in files.iter().zip(&flock_ids) {
                scope.spawn(move || {
                    store_own_id(id);
                    pin(0);
                    flock(file, libc::LOCK_EX).unwrap();
                    flock(file, libc::LOCK_UN).unwrap();
                });
            }
            flock_ids.iter().for_each(|id| wait_until_in(libc::SYS_flock, id));
            drop(busy);
            wait_for("forty waiting locks", || mount.fs.waiter_count() == 40);
            flock(&holder, libc::LOCK_UN).unwrap();
        });
    });
}
