#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn the_connection_is_the_last_mount_on_the_path() {
    let table = b"36 35 98:0 / /mnt rw,noatime - ext3 /dev/root rw\n\
        37 35 0:51 / /a\\040b rw - fuse.sheen x rw\n\
        38 35 0:52 / /a\\040b rw - fuse.sheen y rw\n";
    assert_eq!(connection_in_table(table, Path::new("/a b")), Some(52));
    assert_eq!(connection_in_table(table, Path::new("/nowhere")), None);
    assert_eq!(connection_in_table(b"\n1 2 x:y / /a\n", Path::new("/a")), None);
}

#[test]
fn options_that_would_change_other_options_are_refused() {
    let options = MountOptions { source: "a,suid".into(), ..Default::default() };
    assert!(matches!(mount(Path::new("/"), &options), Err(MountError::Option(_))));
}

#[test]
fn a_missing_helper_says_what_to_install() {
    let error = mount_by_helper(Path::new("/"), &MountOptions::default(), "no-such-fusermount").unwrap_err();
    assert!(error.to_string().contains("package fuse3"), "{error}");
}

#[test]
fn a_helper_that_sends_nothing_is_an_error_with_its_words() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("helper");
    std::fs::write(&program, "#!/bin/sh\necho no luck >&2\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let error =
        mount_by_helper(Path::new("/"), &MountOptions::default(), program.to_str().unwrap()).unwrap_err();
    assert!(error.to_string().contains("no luck"), "{error}");
}

#[test]
fn a_descriptor_travels_through_the_socket() {
    let (ours, theirs) = socket_pair().unwrap();
    let file = tempfile::tempfile().unwrap();
    let mut byte = [0u8; 1];
    let mut iov = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = [0u64; 8];
    // SAFETY: the message points to local buffers and the control length is what CMSG_SPACE says for one descriptor.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut iov;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as usize;
        let head = libc::CMSG_FIRSTHDR(&message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(4) as usize;
        std::ptr::write_unaligned(libc::CMSG_DATA(head).cast(), file.as_raw_fd());
        assert_eq!(libc::sendmsg(theirs.as_raw_fd(), &message, 0), 1);
    }
    let received = File::from(receive_fd(&ours).unwrap());
    use std::io::{Read, Seek, Write};
    (&file).write_all(b"same file").unwrap();
    let mut text = String::new();
    (&received).rewind().unwrap();
    (&received).read_to_string(&mut text).unwrap();
    assert_eq!(text, "same file");
}
