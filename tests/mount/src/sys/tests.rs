#![allow(clippy::unwrap_used)]

use std::net::TcpListener;

use super::*;

#[test]
fn ports_in_a_network_of_its_own_are_free() {
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = outside.local_addr().unwrap();
    assert!(TcpListener::bind(address).is_err());
    // A thread of its own: only that one changes.
    let inside = std::thread::spawn(move || -> io::Result<()> {
        own_network()?;
        TcpListener::bind(address).map(drop)
    });
    match inside.join().unwrap() {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => println!("skipped: not root"),
        result => result.unwrap(),
    }
    assert!(TcpListener::bind(address).is_err());
}
