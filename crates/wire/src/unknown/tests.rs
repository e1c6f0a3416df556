#![allow(clippy::unwrap_used)]
use super::*;
use crate::{LockRequest, MgsRequest};

fn refused(bytes: &[u8]) -> WireError {
    Request::from_bytes(bytes).unwrap_err()
}

#[test]
fn an_unknown_class_and_an_unknown_operation_are_named() {
    let of_class = Opcode { class: 60, operation: None };
    assert_eq!(refused(&[60]), WireError::UnknownOpcode(of_class));
    assert_eq!(refused(&[60, 1, 2, 3]), WireError::UnknownOpcode(of_class));
    for class in [10, 20, 30, 40, 50] {
        let opcode = Opcode { class, operation: Some(200) };
        assert_eq!(refused(&[class, 200]), WireError::UnknownOpcode(opcode));
        assert_eq!(refused(&[class, 200, 7, 7, 7, 7]), WireError::UnknownOpcode(opcode));
    }
    let line = refused(&[20, 200]).to_string();
    assert_eq!(line, "a request has the opcode 20.200, which this version does not know");
}

#[test]
fn a_known_request_that_is_damaged_is_not_one_of_a_newer_version() {
    let whole = Request::Mgs(MgsRequest::GetConfig { fsname: "sheen".into(), known_version: 3 }).to_bytes();
    for end in 0..whole.len() {
        assert!(matches!(refused(&whole[..end]), WireError::Body(_)), "cut at {end}");
    }
    // A lock mode, the version in a connect, and a length that nobody knows.
    let replay = Request::Lock(LockRequest::Replay { locks: Vec::new() }).to_bytes();
    let mut long = replay.to_vec();
    *long.last_mut().unwrap() = 0xff;
    assert!(matches!(refused(&long), WireError::Body(_)));
    assert!(matches!(refused(&[1, 0, 0]), WireError::Body(_)));
}

#[test]
fn what_follows_a_request_is_ignored() {
    let mut longer = Request::PING.to_bytes().to_vec();
    longer.extend_from_slice(b"of a newer version");
    assert_eq!(Request::from_bytes(&longer).unwrap(), Request::PING);
}
