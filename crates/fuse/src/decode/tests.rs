#![allow(clippy::unwrap_used)]
use super::*;
use zerocopy::IntoBytes;

const DIALECT: Dialect = Dialect { setxattr_ext: true };

fn message(op: u32, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let header = abi::InHeader {
        len: (40 + body.len()) as u32,
        opcode: op,
        unique: 8,
        nodeid: 7,
        uid: 1,
        gid: 2,
        pid: 3,
        ..Default::default()
    };
    [header.as_bytes(), &body].concat()
}

fn decode_message(message: &[u8]) -> Result<Request, DecodeError> {
    decode(&Frame::split(message, DIALECT).unwrap(), DIALECT, 0)
}

#[test]
fn a_rename_carries_both_names_and_flags() {
    let body = abi::Rename2In { newdir: 9, flags: 2, padding: 0 };
    let request = decode_message(&message(opcode::RENAME2, &[body.as_bytes(), b"old\0new\0"])).unwrap();
    assert_eq!((request.nodeid, request.uid, request.gid, request.pid), (7, 1, 2, 3));
    match request.op {
        Op::Rename { new_parent: 9, flags: 2, old_name, new_name } => {
            assert_eq!((&old_name[..], &new_name[..]), (&b"old"[..], &b"new"[..]));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_name_must_be_terminated_and_not_empty() {
    let open = decode_message(&message(opcode::LOOKUP, &[b"abc"]));
    assert_eq!(open.unwrap_err(), DecodeError::Name { opcode: opcode::LOOKUP });
    assert!(decode_message(&message(opcode::UNLINK, &[b"\0"])).is_err());
}

#[test]
fn setattr_distinguishes_now_a_time_and_nothing() {
    use abi::fattr;
    let body = abi::SetattrIn {
        valid: fattr::ATIME | fattr::ATIME_NOW | fattr::MTIME | fattr::UID,
        mtime: -5i64 as u64,
        mtimensec: 6,
        uid: 77,
        ..Default::default()
    };
    let request = decode_message(&message(opcode::SETATTR, &[body.as_bytes()])).unwrap();
    let Op::Setattr(set) = request.op else { panic!() };
    assert_eq!(set.atime, Some(SetTime::Now));
    assert_eq!(set.mtime, Some(SetTime::At(Timestamp::new(-5, 6))));
    assert_eq!((set.uid, set.gid, set.size, set.ctime), (Some(77), None, None, None));
}

#[test]
fn a_write_longer_than_its_bytes_is_truncated() {
    let body = abi::WriteIn { size: 5, ..Default::default() };
    let error = decode_message(&message(opcode::WRITE, &[body.as_bytes(), b"1234"])).unwrap_err();
    assert_eq!(error, DecodeError::Truncated { opcode: opcode::WRITE, needed: 5, present: 4 });
    assert_eq!(error.errno(), libc::EIO);
}

#[test]
fn the_group_extension_is_cut_off_the_end() {
    let body = abi::MkdirIn { mode: 0o755, umask: 0o22 };
    let extension = abi::ExtHeader { size: 16, kind: abi::EXT_GROUPS };
    let mut bytes = message(
        opcode::MKDIR,
        &[body.as_bytes(), b"dir\0", extension.as_bytes(), &1u32.to_ne_bytes(), &4711u32.to_ne_bytes()],
    );
    let mut header = abi::InHeader::read_from_prefix(&bytes).unwrap().0;
    header.total_extlen = 2;
    bytes[..40].copy_from_slice(header.as_bytes());
    let request = decode_message(&bytes).unwrap();
    assert_eq!(request.supplementary_gids, [4711]);
    assert!(matches!(request.op, Op::Mkdir { mode: 0o755, umask: 0o22, name } if name == b"dir"));
}

#[test]
fn setxattr_has_two_forms() {
    let old = abi::SetxattrInCompat { size: 2, flags: 1 };
    let bytes = message(opcode::SETXATTR, &[old.as_bytes(), b"user.a\0", b"xy"]);
    let dialect = Dialect { setxattr_ext: false };
    let request = decode(&Frame::split(&bytes, dialect).unwrap(), dialect, 0).unwrap();
    assert!(
        matches!(request.op, Op::Setxattr { value, flags: 1, acl_kill_sgid: false, .. } if value == b"xy")
    );
    let new = abi::SetxattrIn { size: 1, flags: 0, setxattr_flags: 1, padding: 0 };
    let request = decode_message(&message(opcode::SETXATTR, &[new.as_bytes(), b"user.a\0", b"z"])).unwrap();
    assert!(matches!(request.op, Op::Setxattr { value, acl_kill_sgid: true, .. } if value == b"z"));
}

#[test]
fn forgets_come_singly_and_in_batches() {
    let one = message(opcode::FORGET, &[&5u64.to_ne_bytes()]);
    assert_eq!(decode_forgets(&Frame::split(&one, DIALECT).unwrap()).unwrap(), [(7, 5)]);
    let head = abi::BatchForgetIn { count: 2, dummy: 0 };
    let items = [abi::ForgetOne { nodeid: 1, nlookup: 2 }, abi::ForgetOne { nodeid: 3, nlookup: 4 }];
    let batch = message(opcode::BATCH_FORGET, &[head.as_bytes(), items.as_bytes()]);
    assert_eq!(decode_forgets(&Frame::split(&batch, DIALECT).unwrap()).unwrap(), [(1, 2), (3, 4)]);
    let lie = abi::BatchForgetIn { count: u32::MAX, dummy: 0 };
    let short = message(opcode::BATCH_FORGET, &[lie.as_bytes(), items.as_bytes()]);
    assert!(decode_forgets(&Frame::split(&short, DIALECT).unwrap()).is_err());
}

/// A small generator (SplitMix64) so that a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[test]
fn no_bytes_of_the_kernel_panic() {
    let mut random = Random(1);
    let (mut accepted, mut refused) = (0u32, 0u32);
    for _ in 0..200_000 {
        // A plausible header, a body of random length that is half zeros and letters, then a few flipped bytes.
        let len = (random.next() % 200) as usize;
        let body: Vec<u8> = (0..len)
            .map(|_| match random.next() % 4 {
                0 => 0,
                1 => b'a' + (random.next() % 26) as u8,
                2 => (random.next() % 4) as u8,
                _ => random.next() as u8,
            })
            .collect();
        let mut bytes = message((random.next() % 60) as u32, &[&body]);
        if random.next().is_multiple_of(4) {
            bytes[36] = (random.next() % 8) as u8;
        }
        for _ in 0..random.next() % 4 {
            let at = random.next() as usize % bytes.len();
            bytes[at] = random.next() as u8;
        }
        bytes.truncate(bytes.len() - (random.next() as usize % 8).min(bytes.len()));
        let dialect = Dialect { setxattr_ext: random.next().is_multiple_of(2) };
        let Some(frame) = Frame::split(&bytes, dialect) else { continue };
        let _ = decode_forgets(&frame);
        let _ = decode_interrupt(&frame);
        match decode(&frame, dialect, 0) {
            Ok(_) => accepted += 1,
            Err(_) => refused += 1,
        }
    }
    // Both outcomes must occur often, or the inputs exercise nothing.
    assert!(accepted > 20_000, "accepted {accepted}");
    assert!(refused > 20_000, "refused {refused}");
}
