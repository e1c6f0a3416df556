#![allow(clippy::unwrap_used)]
use super::*;
use std::sync::mpsc;
use zerocopy::FromBytes;

fn capture(op: u32) -> (Reply, mpsc::Receiver<(i32, Vec<u8>)>) {
    let (sender, receiver) = mpsc::channel();
    (Reply::new(8, op, Destination::Capture(sender)), receiver)
}

#[test]
fn an_answer_that_is_dropped_is_an_error() {
    let (reply, got) = capture(opcode::GETATTR);
    drop(reply);
    assert_eq!(got.recv().unwrap(), (-libc::EIO, vec![]));
    assert!(got.recv().is_err(), "answered once");
}

#[test]
fn an_errno_that_the_kernel_would_not_take_becomes_eio() {
    for odd in [0, -2, 512, i32::MIN, i32::MAX] {
        let (reply, got) = capture(opcode::GETATTR);
        reply.error(odd);
        assert_eq!(got.recv().unwrap().0, -libc::EIO);
    }
}

#[test]
fn xattrs_follow_the_size_that_was_asked() {
    let ask = |size| {
        let (reply, got) = capture(opcode::GETXATTR);
        reply.xattr(size, b"value");
        got.recv().unwrap()
    };
    assert_eq!(ask(0), (0, vec![5, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(ask(4).0, -libc::ERANGE);
    assert_eq!(ask(5), (0, b"value".to_vec()));
}

#[test]
fn a_copy_is_counted_in_the_width_that_was_asked() {
    let (reply, got) = capture(opcode::COPY_FILE_RANGE_64);
    reply.copied(1 << 40);
    assert_eq!(got.recv().unwrap().1, (1u64 << 40).to_ne_bytes());
    let (reply, got) = capture(opcode::COPY_FILE_RANGE);
    reply.copied(1 << 40);
    let bytes = got.recv().unwrap().1;
    assert_eq!(abi::WriteOut::read_from_bytes(&bytes).unwrap().size, 0xffff_f000);
}

#[test]
fn a_page_of_names_stops_before_it_overflows() {
    let mut page = DirBuffer::new(100);
    assert!(page.add(1, 1, libc::S_IFDIR, b"abcdefgh"));
    assert!(page.add(2, 2, libc::S_IFREG, b"i"));
    assert!(page.add(3, 3, libc::S_IFREG, b"k"));
    assert!(!page.add(4, 4, libc::S_IFREG, b"m"));
    assert_eq!(page.len(), 96);
    let first = abi::Dirent::read_from_prefix(&page.bytes).unwrap().0;
    assert_eq!((first.ino, first.off, first.namelen, first.kind), (1, 1, 8, 4));
}

#[test]
fn device_numbers_survive_the_encoding() {
    for (major, minor) in [(8, 1), (259, 70000), (0, 255), (4095, 0xfffff)] {
        assert_eq!(device_major_minor(device_number(major, minor)), (major, minor));
    }
}
