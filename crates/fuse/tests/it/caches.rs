//! What the kernel caches can be taken back.

use std::fs;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fuse::Notified;
use fuse::abi::ROOT_ID;

use crate::harness::*;

/// Long enough that nothing expires during a test.
const LONG: Duration = Duration::from_secs(3600);

fn cached(test: impl Fn(&Mount)) {
    on_each(|mount| {
        *mount.fs.entry_ttl.lock().unwrap() = LONG;
        test(mount);
    });
}

#[test]
fn a_cached_absence_ends_with_inval_entry() {
    cached(|mount| {
        assert!(!mount.join("new").exists());
        mount.fs.add_behind(ROOT_ID, "new");
        assert!(!mount.join("new").exists(), "the absence is cached");
        assert_eq!(mount.notifier().inval_entry(ROOT_ID, b"new").unwrap(), Notified::Done);
        assert!(mount.join("new").exists());
    });
}

#[test]
fn a_cached_name_ends_with_inval_entry_and_with_delete_entry() {
    cached(|mount| {
        for name in ["a", "b"] {
            fs::write(mount.join(name), b"x").unwrap();
            assert!(mount.join(name).exists());
            let node = mount.fs.node(ROOT_ID, name);
            mount.fs.remove_behind(ROOT_ID, name);
            assert!(mount.join(name).exists(), "the name is cached");
            let done = match name {
                "a" => mount.notifier().inval_entry(ROOT_ID, b"a"),
                _ => mount.notifier().delete_entry(ROOT_ID, node, b"b"),
            };
            assert_eq!(done.unwrap(), Notified::Done);
            assert!(!mount.join(name).exists());
        }
    });
}

/// Who has the file open sees by its path that the kernel has kept the name.
#[test]
fn a_name_that_expires_is_looked_up_again_and_stays() {
    cached(|mount| {
        fs::write(mount.join("d"), b"x").unwrap();
        let file = fs::File::open(mount.join("d")).unwrap();
        let path = || fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        assert_eq!(path(), mount.join("d"));
        assert_eq!(mount.notifier().expire_entry(ROOT_ID, b"d").unwrap(), Notified::Done);
        if !mount.session.negotiated().has(fuse::abi::init::HAS_EXPIRE_ONLY) {
            eprintln!("skipped: this kernel drops names");
            return;
        }
        assert!(mount.join("d").exists());
        assert_eq!(path(), mount.join("d"));
        assert_eq!(mount.notifier().expire_entry(ROOT_ID, b"d").unwrap(), Notified::Done);
        mount.fs.remove_behind(ROOT_ID, "d");
        assert!(!mount.join("d").exists(), "it was looked up");
    });
}

#[test]
fn an_epoch_ends_every_name() {
    cached(|mount| {
        if !mount.session.negotiated().has_inc_epoch() {
            eprintln!("skipped: this kernel has no epochs");
            assert!(mount.notifier().inc_epoch().is_err());
            return;
        }
        fs::write(mount.join("old"), b"x").unwrap();
        assert!(!mount.join("new").exists());
        mount.fs.remove_behind(ROOT_ID, "old");
        mount.fs.add_behind(ROOT_ID, "new");
        assert!(mount.join("old").exists() && !mount.join("new").exists(), "both are cached");
        assert_eq!(mount.notifier().inc_epoch().unwrap(), Notified::Done);
        assert!(!mount.join("old").exists() && mount.join("new").exists());
    });
}

#[test]
fn cached_pages_and_attributes_end_with_inval_inode() {
    cached(|mount| {
        fs::write(mount.join("f"), b"before").unwrap();
        assert_eq!(fs::read(mount.join("f")).unwrap(), b"before");
        let node = mount.fs.node(ROOT_ID, "f");
        mount.fs.write_behind(node, b"behind");
        assert_eq!(fs::read(mount.join("f")).unwrap(), b"before", "the pages are cached");
        assert_eq!(mount.notifier().inval_inode(node, 0, -1).unwrap(), Notified::Done);
        assert_eq!(fs::read(mount.join("f")).unwrap(), b"behind");
    });
}

#[test]
fn bytes_can_be_put_into_the_page_cache() {
    cached(|mount| {
        fs::write(mount.join("f"), vec![b'.'; 8192]).unwrap();
        let node = mount.fs.node(ROOT_ID, "f");
        let page = vec![b'p'; 4096];
        assert_eq!(mount.notifier().store(node, 4096, &page).unwrap(), Notified::Done);
        let read = fs::read(mount.join("f")).unwrap();
        assert_eq!((&read[..4096], &read[4096..]), (&[b'.'; 4096][..], &page[..]));
    });
}

/// What the kernel takes for the size of an open file that is at its start. It asks nobody for this (`do_vfs_ioctl`, FIONREAD).
fn kernel_size(file: &fs::File) -> libc::c_int {
    let mut byte_count: libc::c_int = -1;
    // SAFETY: the kernel writes one int, which is local.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), libc::FIONREAD, &mut byte_count) }, 0);
    byte_count
}

/// So of a file that somebody else has made longer the kernel cannot be told where it ends without being given bytes of it, which need
/// a lock of their own (docs/limits.md).
#[test]
fn the_end_of_a_file_moves_with_bytes_that_are_stored_and_not_without() {
    cached(|mount| {
        fs::write(mount.join("f"), b"before").unwrap();
        let node = mount.fs.node(ROOT_ID, "f");
        let file = fs::File::open(mount.join("f")).unwrap();
        mount.fs.write_behind(node, b"before and after");
        assert_eq!(kernel_size(&file), 6);
        assert_eq!(mount.notifier().store(node, 16, b"").unwrap(), Notified::Done);
        assert_eq!(kernel_size(&file), 6, "it was given nothing");
        assert_eq!(mount.notifier().store(node, 15, b"r").unwrap(), Notified::Done);
        assert_eq!(kernel_size(&file), 16);
    });
}

#[test]
fn what_the_kernel_does_not_know_is_said() {
    cached(|mount| {
        assert_eq!(mount.notifier().inval_inode(4711, 0, -1).unwrap(), Notified::Unknown);
        assert_eq!(mount.notifier().inval_entry(ROOT_ID, b"nothing").unwrap(), Notified::Unknown);
        assert_eq!(mount.notifier().store(4711, 0, b"x").unwrap(), Notified::Unknown);
        let long = vec![b'n'; 5000];
        assert!(mount.notifier().inval_entry(ROOT_ID, &long).is_err());
    });
}

#[test]
fn unused_inodes_can_be_pruned() {
    cached(|mount| {
        if !mount.notifier().has_prune() {
            eprintln!("skipped: this kernel has no prune");
            return;
        }
        fs::write(mount.join("f"), b"x").unwrap();
        let node = mount.fs.node(ROOT_ID, "f");
        let before = mount.fs.forgets.load(Ordering::Relaxed);
        mount.notifier().prune(&[node]).unwrap();
        wait_for("a forget", || mount.fs.forgets.load(Ordering::Relaxed) > before);
    });
}

#[test]
fn a_cached_stat_asks_nobody() {
    cached(|mount| {
        fs::write(mount.join("f"), b"x").unwrap();
        fs::metadata(mount.join("f")).unwrap();
        let before = mount.fs.requests.load(Ordering::Relaxed);
        for _ in 0..100 {
            fs::metadata(mount.join("f")).unwrap();
        }
        // RELEASE of the writer may come late.
        assert!(mount.fs.requests.load(Ordering::Relaxed) <= before + 1);
    });
}
