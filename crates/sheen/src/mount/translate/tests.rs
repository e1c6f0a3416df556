#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn lock_ranges_end_exclusive_and_come_back_inclusive() {
    let whole = Lock { start: 5, end: i64::MAX as u64, kind: LockKind::Write, pid: 0 };
    let lock = file_lock(1, 77, false, &whole);
    assert_eq!((lock.extent, lock.pid), (base::Extent::new(5, base::Extent::EOF), 77));
    assert_eq!(fuse_lock(Some(lock)), Lock { pid: 77, ..whole });
    let one = Lock { start: 5, end: 5, kind: LockKind::Read, pid: 3 };
    assert_eq!(fuse_lock(Some(file_lock(1, 77, false, &one))), one);
    assert_eq!(fuse_lock(None).kind, LockKind::Unlock);
}

/// As df(1) computes it, and as many other programs do.
#[test]
fn space_is_the_same_by_either_size_of_a_block() {
    let statfs = wire::mdt::Statfs { bytes_total: 1 << 40, bytes_free: 1 << 39, ..Default::default() };
    let told = fuse_statfs(&statfs);
    assert_eq!(told.blocks * u64::from(told.bsize), 1 << 40);
    assert_eq!(told.bfree * u64::from(told.frsize), 1 << 39);
}

#[test]
fn an_unknown_operation_is_not_implemented() {
    assert_eq!(call(1, 1, Op::Unknown { opcode: 999 }).unwrap_err(), libc::ENOSYS);
}

#[test]
fn a_rename_keeps_its_four_names_apart() {
    let op = Op::Rename { new_parent: 9, flags: 1, old_name: b"a".to_vec(), new_name: b"b".to_vec() };
    let (call, _) = call(4, 1, op).unwrap();
    let expected =
        Call::Rename { parent: 4, name: b"a".to_vec(), new_parent: 9, new_name: b"b".to_vec(), flags: 1 };
    assert_eq!(call, expected);
}

/// Another mount has made a symlink or a FIFO where the kernel knew of nothing.
#[test]
fn only_who_wants_a_new_file_is_told_that_the_name_exists() {
    let flags = (libc::O_CREAT | libc::O_WRONLY) as u32;
    for (flags, errno) in [(flags, libc::ESTALE), (flags | libc::O_EXCL as u32, libc::EEXIST)] {
        let op = Op::Create { name: b"f".to_vec(), flags, mode: 0o644, umask: 0, kill_suidgid: false };
        let (_, shape) = call(1, 1, op).unwrap();
        assert_eq!(errno_of(&shape, libc::EEXIST), errno);
        assert_eq!(errno_of(&shape, libc::ENOSPC), libc::ENOSPC);
    }
}
