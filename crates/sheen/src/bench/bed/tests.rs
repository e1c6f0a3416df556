#![allow(clippy::unwrap_used)]
use super::*;
use std::net::TcpListener;

#[test]
fn who_listens_is_in_the_kernels_table() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    assert!(is_listening(&address));
    let other = format!("127.0.0.2:{}", address.port()).parse().unwrap();
    assert!(!is_listening(&other), "another address");
    let table = "  sl  local_address rem_address   st\n   0: 0100007F:1F34 00000000:0000 0A 0:0\n   1: 0100007F:1F35 0100007F:9C40 01 0:0\n";
    assert!(is_listening_in(table, 0x0100_007f, 0x1f34));
    assert!(!is_listening_in(table, 0x0100_007f, 0x1f35), "connected");
    assert!(!is_listening_in(table, 0x0100_007f, 0x1f36), "nobody");
}

#[test]
fn a_directory_with_something_in_it_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("mine"), b"x").unwrap();
    let options = BedOptions {
        fsname: "bed",
        mount_count: 1,
        ost_count: 1,
        elsewhere_from: 1,
        stripe_bytes: Some(65_536),
        transport: Transport::Dev,
    };
    let error = Bed::start(dir.path(), options).err().unwrap();
    assert!(error.to_string().contains("is not empty; name a directory that is"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
