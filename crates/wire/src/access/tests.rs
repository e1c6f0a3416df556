#![allow(clippy::unwrap_used)]

use super::Access;
use crate::{MdtRequest, Request};
use base::{Fid, OpenHandle, WallTime};

fn closes(accesses: Vec<Access>) -> Request {
    Request::Mdt(MdtRequest::Closes { handles: vec![(Fid::ROOT, OpenHandle(7))], accesses })
}

#[test]
fn where_nothing_was_read_a_request_is_as_long_as_before_there_were_accesses() {
    let bytes = closes(Vec::new()).to_bytes();
    // Class, operation, count, and one FID with its handle.
    let handle = borsh::to_vec(&(Fid::ROOT, OpenHandle(7))).unwrap();
    assert_eq!(bytes.len(), 1 + 1 + 4 + handle.len());
    assert_eq!(Request::from_bytes(&bytes).unwrap(), closes(Vec::new()));
}

#[test]
fn accesses_stand_behind_all_that_an_older_version_reads() {
    let access = Access { fid: Fid::ROOT, at: WallTime(12), is_relative: true };
    let request = closes(vec![access, Access { is_relative: false, ..access }]);
    let (bytes, older) = (request.to_bytes(), closes(Vec::new()).to_bytes());
    assert_eq!(Request::from_bytes(&bytes).unwrap(), request);
    assert_eq!(bytes[..older.len()], older[..]);
    assert_eq!(Request::from_bytes(&[&older[..], b"more"].concat()).unwrap(), closes(Vec::new()));
    for cut in older.len() + 4..bytes.len() {
        assert!(Request::from_bytes(&bytes[..cut]).is_err(), "{cut} bytes of {}", bytes.len());
    }
}
