//! Files, directories, attributes.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::sync::atomic::Ordering;

use crate::harness::*;
use crate::memfs::IOCTL_PLUS_ONE;

#[test]
fn bytes_survive_being_written_and_read() {
    on_each(|mount| {
        let path = mount.join("file");
        // More than one WRITE, not a multiple of anything.
        let data: Vec<u8> = (0..3_333_333u32).map(|i| (i * 7 + i / 251) as u8).collect();
        fs::write(&path, &data).unwrap();
        assert_eq!(fs::read(&path).unwrap(), data);
        let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        file.write_all_at(b"middle", 1_000_000).unwrap();
        let mut six = [0; 6];
        file.read_exact_at(&mut six, 1_000_000).unwrap();
        assert_eq!(&six, b"middle");
        file.set_len(10).unwrap();
        assert_eq!(fs::read(&path).unwrap(), &data[..10]);
        let direct = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
        let mut ten = Vec::new();
        (&direct).read_to_end(&mut ten).unwrap();
        assert_eq!(ten, &data[..10]);
    });
}

#[test]
fn a_mebibyte_is_one_request() {
    on_each(|mount| {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
        let file = options.open(mount.join("file")).unwrap();
        // Direct I/O wants aligned memory, or a request covers one page more than fits.
        let mut memory = vec![7u8; (1 << 20) + 4096];
        let start = memory.as_ptr().align_offset(4096);
        let buffer = &mut memory[start..][..1 << 20];
        file.write_all_at(buffer, 0).unwrap();
        buffer.fill(0);
        file.read_exact_at(buffer, 0).unwrap();
        assert!(buffer.iter().all(|byte| *byte == 7));
        assert_eq!(mount.fs.largest_write.load(Ordering::Relaxed), 1 << 20);
        assert_eq!(mount.fs.largest_read.load(Ordering::Relaxed), 1 << 20);
    });
}

#[test]
fn names_are_made_renamed_and_removed() {
    on_each(|mount| {
        fs::create_dir(mount.join("dir")).unwrap();
        fs::write(mount.join("dir/a"), b"A").unwrap();
        fs::write(mount.join("b"), b"B").unwrap();
        fs::rename(mount.join("dir/a"), mount.join("c")).unwrap();
        assert_eq!(fs::read(mount.join("c")).unwrap(), b"A");
        assert!(!mount.join("dir/a").exists());
        let rename2 = |from: &str, to: &str, flags| {
            let (from, to) = (c_path(&mount.join(from)), c_path(&mount.join(to)));
            // SAFETY: both paths are NUL-terminated.
            unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) }
        };
        assert_eq!(rename2("b", "c", libc::RENAME_NOREPLACE), -1);
        assert_eq!(errno(), libc::EEXIST);
        assert_eq!(rename2("b", "c", libc::RENAME_EXCHANGE), 0);
        assert_eq!(fs::read(mount.join("c")).unwrap(), b"B");
        fs::hard_link(mount.join("c"), mount.join("d")).unwrap();
        assert_eq!(fs::metadata(mount.join("d")).unwrap().nlink(), 2);
        std::os::unix::fs::symlink("d", mount.join("link")).unwrap();
        assert_eq!(fs::read_link(mount.join("link")).unwrap().to_str().unwrap(), "d");
        assert_eq!(fs::read(mount.join("link")).unwrap(), b"B");
        assert_eq!(fs::remove_dir(mount.path().join("c")).unwrap_err().raw_os_error(), Some(libc::ENOTDIR));
        fs::remove_file(mount.join("c")).unwrap();
        fs::remove_dir(mount.join("dir")).unwrap();
        let fifo = c_path(&mount.join("fifo"));
        // SAFETY: the path is NUL-terminated.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        assert_eq!(fs::metadata(mount.join("fifo")).unwrap().mode(), libc::S_IFIFO | 0o600);
    });
}

#[test]
fn a_listing_has_a_thousand_names_once() {
    on_each(|mount| {
        let dir = mount.join("many");
        fs::create_dir(&dir).unwrap();
        for number in 0..1000 {
            fs::write(dir.join(format!("name-{number:04}")), [0u8; 3]).unwrap();
        }
        let mut names: Vec<String> =
            fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let expected: Vec<String> = (0..1000).map(|n| format!("name-{n:04}")).collect();
        assert_eq!(names, expected);
        // With attributes, which makes the kernel ask for READDIRPLUS.
        let sizes: u64 = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(sizes, 3000);
    });
}

#[test]
fn attributes_are_set_as_asked() {
    on_each(|mount| {
        let path = mount.join("file");
        fs::write(&path, b"x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4755);
        std::os::unix::fs::chown(&path, Some(1000), Some(1001)).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (1000, 1001, 0o755));
        let c = c_path(&path);
        let times = [
            libc::timespec { tv_sec: -100, tv_nsec: 5 },
            libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
        ];
        let before = fs::metadata(&path).unwrap();
        // SAFETY: the path is NUL-terminated and there are two times.
        assert_eq!(unsafe { libc::utimensat(libc::AT_FDCWD, c.as_ptr(), times.as_ptr(), 0) }, 0);
        let after = fs::metadata(&path).unwrap();
        assert_eq!((after.atime(), after.atime_nsec()), (-100, 5));
        assert_eq!((after.mtime(), after.mtime_nsec()), (before.mtime(), before.mtime_nsec()));
        // Birth time comes with STATX where the kernel has it.
        if let Ok(created) = after.created() {
            assert!(created.elapsed().unwrap().as_secs() < 60);
        } else {
            assert!(mount.session.negotiated().minor < 39);
        }
    });
}

#[test]
fn a_umask_holds_for_what_is_made() {
    on_each(|mount| {
        // The umask belongs to the process: a child of its own, so that other tests keep theirs.
        let script = format!("umask 027; mkdir {0}/d; : > {0}/f", mount.path().display());
        assert!(std::process::Command::new("sh").arg("-c").arg(script).status().unwrap().success());
        assert_eq!(fs::metadata(mount.join("d")).unwrap().mode() & 0o777, 0o750);
        assert_eq!(fs::metadata(mount.join("f")).unwrap().mode() & 0o777, 0o640);
    });
}

#[test]
fn xattrs_are_kept_listed_and_removed() {
    on_each(|mount| {
        fs::write(mount.join("file"), b"").unwrap();
        let path = c_path(&mount.join("file"));
        let (name, value) = (c"user.color", b"green");
        // SAFETY (all below): names are NUL-terminated and buffers have the length that is passed.
        unsafe {
            let set = |flags| {
                libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags)
            };
            assert_eq!(set(libc::XATTR_CREATE), 0);
            assert_eq!(set(libc::XATTR_CREATE), -1);
            assert_eq!(errno(), libc::EEXIST);
            let mut buffer = [0u8; 64];
            let get = |len, buffer: &mut [u8]| {
                libc::getxattr(path.as_ptr(), name.as_ptr(), buffer.as_mut_ptr().cast(), len)
            };
            assert_eq!(get(0, &mut buffer), 5);
            assert_eq!(get(64, &mut buffer), 5);
            assert_eq!(&buffer[..5], value);
            assert_eq!(get(2, &mut buffer), -1);
            assert_eq!(errno(), libc::ERANGE);
            assert_eq!(libc::listxattr(path.as_ptr(), buffer.as_mut_ptr().cast(), 64), 11);
            assert_eq!(&buffer[..11], b"user.color\0");
            assert_eq!(libc::removexattr(path.as_ptr(), name.as_ptr()), 0);
            assert_eq!(get(64, &mut buffer), -1);
            assert_eq!(errno(), libc::ENODATA);
        }
    });
}

#[test]
fn the_rarer_calls_work() {
    on_each(|mount| {
        let path = mount.join("file");
        fs::write(&path, b"0123456789").unwrap();
        let mut file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let fd = file.as_raw_fd();
        let mut bytes = [1u8, 2, 3, 4, 5, 6, 7, 255];
        // SAFETY: the buffer has the eight bytes that the command's number says.
        assert_eq!(unsafe { libc::ioctl(fd, u64::from(IOCTL_PLUS_ONE), bytes.as_mut_ptr()) }, 7);
        assert_eq!(bytes, [2, 3, 4, 5, 6, 7, 8, 0]);
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { libc::lseek(fd, 3, libc::SEEK_HOLE) }, 10);
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { libc::posix_fallocate(fd, 0, 100) }, 0);
        assert_eq!(file.metadata().unwrap().len(), 100);
        file.set_len(10).unwrap();
        let other =
            fs::OpenOptions::new().read(true).write(true).create_new(true).open(mount.join("o")).unwrap();
        let (mut from, mut to) = (2i64, 1i64);
        // SAFETY: the offsets are local.
        let copied = unsafe { libc::copy_file_range(fd, &mut from, other.as_raw_fd(), &mut to, 5, 0) };
        assert_eq!(copied, 5);
        assert_eq!(fs::read(mount.join("o")).unwrap(), b"\x0023456");
        let mut tmp = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .open(mount.path())
            .unwrap();
        tmp.write_all(b"nameless").unwrap();
        tmp.seek(SeekFrom::Start(0)).unwrap();
        let mut text = String::new();
        tmp.read_to_string(&mut text).unwrap();
        assert_eq!(text, "nameless");
        file.seek(SeekFrom::Start(0)).unwrap();
        // SAFETY: a read-only mapping of an open file; it is unmapped below.
        unsafe {
            let map = libc::mmap(std::ptr::null_mut(), 10, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
            assert_ne!(map, libc::MAP_FAILED);
            assert_eq!(std::slice::from_raw_parts(map.cast::<u8>(), 10), b"0123456789");
            libc::munmap(map, 10);
        }
        let mut statfs: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: the path is NUL-terminated and the target local.
        assert_eq!(unsafe { libc::statfs(c_path(mount.path()).as_ptr(), &mut statfs) }, 0);
        assert_eq!((statfs.f_blocks, statfs.f_bavail), (1000, 800));
    });
}

#[test]
fn the_truncation_of_a_running_program_fails_before_it_is_cut() {
    on_each(|mount| {
        let program = mount.join("sleep");
        fs::copy("/bin/sleep", &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let size = fs::metadata(&program).unwrap().len();
        let truncated = fs::OpenOptions::new().write(true).truncate(true).open(&program);
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(truncated.unwrap_err().raw_os_error(), Some(libc::ETXTBSY));
        assert_eq!(fs::metadata(&program).unwrap().len(), size);
    });
}

#[test]
fn forgotten_inodes_are_told_and_the_end_too() {
    for transport in transports() {
        let mut mount = mount_with(options(transport));
        for number in 0..50 {
            let path = mount.join(&format!("f{number}"));
            fs::write(&path, b"x").unwrap();
            fs::remove_file(&path).unwrap();
        }
        wait_for("fifty forgets", || mount.fs.forgets.load(Ordering::Relaxed) >= 50);
        let open = fs::File::open(mount.path()).unwrap();
        assert_eq!(mount.session.unmount(false).unwrap_err().raw_os_error(), Some(libc::EBUSY));
        drop(open);
        // Closing is asynchronous: the kernel may still hold the directory for a moment.
        let since = std::time::Instant::now();
        while let Err(error) = mount.session.unmount(false) {
            assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
            assert!(since.elapsed().as_secs() < PATIENCE_SECONDS, "stays busy");
        }
        wait_for("the end", || mount.fs.destroyed.load(Ordering::SeqCst));
        assert!(fs::read_dir(mount.path()).unwrap().next().is_none());
    }
}

#[test]
fn an_abort_fails_what_waits_and_what_comes() {
    for transport in transports() {
        let mount = mount_with(options(transport));
        fs::write(mount.join("f"), b"x").unwrap();
        let file = fs::OpenOptions::new().read(true).write(true).open(mount.join("f")).unwrap();
        let other = fs::OpenOptions::new().read(true).write(true).open(mount.join("f")).unwrap();
        let flock = |file: &fs::File| {
            // SAFETY: takes no pointers.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } == 0 { 0 } else { errno() }
        };
        assert_eq!(flock(&file), 0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| flock(&other));
            wait_for("a waiting lock", || mount.fs.waiter_count() == 1);
            mount.session.abort().unwrap();
            assert_ne!(waits.join().unwrap(), 0);
        });
        wait_for("the end", || mount.fs.destroyed.load(Ordering::SeqCst));
        assert!(fs::read(mount.join("f")).is_err());
    }
}

#[test]
fn twenty_threads_at_once_get_their_own_answers() {
    on_each(|mount| {
        std::thread::scope(|scope| {
            for thread in 0..20u8 {
                scope.spawn(move || {
                    let path = mount.join(&format!("t{thread}"));
                    for round in 0..50u8 {
                        let data = vec![thread ^ round; 5000 + usize::from(round)];
                        fs::write(&path, &data).unwrap();
                        assert_eq!(fs::read(&path).unwrap(), data);
                    }
                    fs::remove_file(&path).unwrap();
                });
            }
        });
    });
}
