#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn a_full_log_is_moved_aside_and_the_oldest_goes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let log = RotatingLog::open(&path).unwrap();
    for round in 0..6_u8 {
        log.make_writer().write_all(&[round]).unwrap();
        log.lock().byte_count = LOG_BYTES_MAX;
    }
    let read = |name: &str| fs::read(dir.path().join(name)).unwrap();
    assert_eq!([read("a.log"), read("a.log.1"), read("a.log.3")], [[5], [4], [2]]);
    assert!(!dir.path().join("a.log.4").exists());
}
