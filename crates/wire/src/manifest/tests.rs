#![allow(clippy::unwrap_used)]
use super::*;
use crate::lock::LockWant;
use crate::mdt::{Credentials, DirStriping, Met, NewNode};

fn fid(oid: u32) -> Fid {
    Fid { seq: Fid::SEQ_NORMAL, oid, ver: 0 }
}

fn create(made: Option<u32>) -> CreateRequest {
    CreateRequest {
        parent: fid(1),
        name: b"n".to_vec(),
        node: NewNode::Directory,
        permissions: 0o755,
        umask: 0,
        creds: Credentials::default(),
        open: None,
        is_exclusive: true,
        is_unnamed: false,
        mdt_index: None,
        layout: None,
        fid: made.map(fid),
        want: LockWant::default(),
    }
}

fn removed_again(is_directory: bool) -> MdtRequest {
    let met = Met { fid: fid(2), replaced: None };
    MdtRequest::RemoveAgain {
        parent: fid(1),
        name: b"n".to_vec(),
        is_directory,
        creds: Credentials::default(),
        met,
    }
}

fn renamed_again(new_parent: u32, replaced: Option<u32>) -> MdtRequest {
    MdtRequest::RenameAgain {
        parent: fid(1),
        name: b"a".to_vec(),
        new_parent: fid(new_parent),
        new_name: b"b".to_vec(),
        flags: 0,
        creds: Credentials::default(),
        met: Met { fid: fid(3), replaced: replaced.map(fid) },
    }
}

fn touched(request: MdtRequest) -> Touched {
    Touched::by(&Request::Mdt(request), false)
}

fn fids(oids: &[u32]) -> Touched {
    Touched { fids: oids.iter().copied().map(fid).collect(), ..Touched::default() }
}

#[test]
fn a_replay_names_its_directories_and_inodes() {
    assert_eq!(touched(MdtRequest::Create(create(Some(2)))), fids(&[1, 2]));
    let stripes = vec![fid(2), fid(3)];
    let striped =
        MdtRequest::MakeStriped { create: create(Some(2)), striping: DirStriping::default(), stripes };
    assert_eq!(touched(striped), fids(&[1, 2, 2, 3]));
    assert_eq!(touched(removed_again(false)), fids(&[1, 2]));
    assert_eq!(touched(renamed_again(1, None)), fids(&[1, 1, 3]));
    assert_eq!(touched(renamed_again(2, None)), Touched { is_move: true, ..fids(&[1, 2, 3]) });
    let layout = crate::LayoutHint::default();
    let set_layout = MdtRequest::SetLayout { fid: fid(5), layout, creds: Credentials::default() };
    assert_eq!(touched(set_layout), fids(&[5]));
}

#[test]
fn what_names_too_little_or_too_much_touches_everything() {
    assert_eq!(touched(MdtRequest::Create(create(None))), Touched::everything());
    let unlink = MdtRequest::Unlink { parent: fid(1), name: b"n".to_vec(), creds: Credentials::default() };
    assert_eq!(touched(unlink), Touched::everything());
    assert_eq!(Touched::by(&Request::PING, false), Touched::everything());
    let open = |count: u32| MdtRequest::Open {
        fid: fid(1),
        open: crate::mdt::OpenArgs { handle: base::OpenHandle(1), read: true, write: true, execute: false },
        creds: Credentials::default(),
        want: LockWant::default(),
        closes: (0..count).map(|n| (fid(10 + n), base::OpenHandle(u64::from(n)))).collect(),
        accesses: Vec::new(),
    };
    assert_eq!(touched(open(2)), fids(&[1, 10, 11]));
    assert_eq!(touched(open(TOUCHED_MAX as u32 - 1)).fids.len(), TOUCHED_MAX);
    assert_eq!(touched(open(TOUCHED_MAX as u32)), Touched::everything());
}

/// Stripes have to be empty, and have names that only their own FIDs tell.
#[test]
fn a_directory_that_goes_is_named_only_where_it_is_known_to_have_no_stripes() {
    let met = |replaced: Option<u32>| Met { fid: fid(2), replaced: replaced.map(fid) };
    let reply = |child, replaced, met| {
        Reply::Mdt(MdtReply::RemovedMet { parent_attr: None, new_parent_attr: None, child, replaced, met })
    };
    assert!(!is_described(&reply(None, None, met(None))));
    assert!(is_described(&reply(Some(entry()), None, met(None))));
    assert!(!is_described(&reply(Some(entry()), None, met(Some(4)))), "what was replaced is what goes");
    assert!(is_described(&reply(None, Some(entry()), met(Some(4)))));
    assert!(!is_described(&Reply::Done));
    let by = |request: MdtRequest, is_whole| Touched::by(&Request::Mdt(request), is_whole);
    assert_eq!(by(removed_again(true), false), Touched::everything());
    assert_eq!(by(removed_again(true), true), fids(&[1, 2]));
    assert_eq!(by(renamed_again(1, Some(4)), false), Touched::everything());
    assert_eq!(by(renamed_again(1, Some(4)), true), fids(&[1, 1, 3, 4]));
}

fn entry() -> Box<crate::mdt::Entry> {
    Box::new(crate::mdt::Entry {
        fid: fid(2),
        file_type: base::FileType::Directory,
        attr: None,
        layout: None,
        symlink_target: None,
        parent_attr: None,
        is_open_elsewhere: false,
        may_be_written: false,
        was_created: false,
        was_size_known: false,
        grants: Vec::new(),
        stripes: Vec::new(),
        data: None,
    })
}

#[test]
fn a_full_part_fits_into_a_frame() {
    let touched = Touched { fids: vec![fid(1); TOUCHED_MAX], is_move: true, is_everything: false };
    let replayed = |n: u64| Replayed { transno: Transno(n), slot: 1, touched: touched.clone() };
    let entries = (0..ENTRIES_MAX as u64).map(replayed).collect();
    let request = Request::Manifest(Manifest { after: Transno::ZERO, entries, is_last: true });
    let bytes = request.to_bytes();
    assert!(bytes.len() <= limits::FRAME_BODY_BYTES_MAX);
    assert_eq!(Request::from_bytes(&bytes).unwrap(), request);
}
