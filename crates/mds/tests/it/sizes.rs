//! When the MDT knows a file's size (hazards 4.1 to 4.5).

use crate::harness::{ROOT, World, attr_of};
use base::{Fid, OpenHandle, SetAttr, Status, WallTime};
use wire::lock::LockWant;
use wire::mdt::OpenArgs;
use wire::{MdtReply, MdtRequest};

fn report(fid: Fid, write_epoch: u64, size_bytes: u64, stamp: i64) -> MdtRequest {
    let (mtime, stamp) = (WallTime(stamp), WallTime(stamp));
    MdtRequest::ReportSize { fid, write_epoch, size_bytes, block_count: 8, mtime, stamp }
}

#[test]
fn the_last_writer_to_close_is_asked_for_the_size() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    let (a, b) = (world.open(0, file, true), world.open(1, file, true));
    assert!(!world.getattr(0, file).unwrap().is_size_known);
    assert!(matches!(world.close(0, file, a), MdtReply::Closed { wants_size: None, .. }));
    let MdtReply::Closed { wants_size: Some(epoch), .. } = world.close(1, file, b) else { panic!("no wish") };
    let later = world.now.wall.0 + 5;
    let attr = attr_of(&world.ask(1, 0, report(file, epoch, 200, later)).unwrap()).clone();
    assert_eq!((attr.size_bytes, attr.is_size_known, attr.mtime), (200, true, WallTime(later)));
}

#[test]
fn a_size_of_an_older_epoch_is_dropped() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    let a = world.open(0, file, true);
    let MdtReply::Closed { wants_size: Some(epoch), .. } = world.close(0, file, a) else { panic!("no wish") };
    let b = world.open(1, file, true);
    assert!(!attr_of(&world.ask(0, 0, report(file, epoch, 100, 1)).unwrap()).is_size_known);
    world.close(1, file, b);
    assert!(!attr_of(&world.ask(0, 0, report(file, epoch, 100, 1)).unwrap()).is_size_known);
}

#[test]
fn a_truncate_is_known_when_it_is_durable_unless_somebody_writes() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    let truncate = |handle: Option<OpenHandle>| MdtRequest::Setattr {
        fid: file,
        set: SetAttr { size_bytes: Some(10), ..SetAttr::default() },
        creds: ROOT,
        handle,
        want: LockWant::default(),
    };
    let attr = attr_of(&world.ask(0, 0, truncate(None)).unwrap()).clone();
    assert_eq!((attr.size_bytes, attr.is_size_known), (10, false), "a crash may still take the cut back");
    world.ask(0, 0, report(file, attr.write_epoch, 10, 1)).unwrap();
    assert!(attr_of(&world.ask(0, 0, truncate(None)).unwrap()).is_size_known, "nothing changes");
    let open = world.open(1, file, true);
    assert!(!attr_of(&world.ask(0, 0, truncate(None)).unwrap()).is_size_known);
    let MdtReply::Closed { wants_size: Some(_), .. } = world.close(1, file, open) else { panic!("no wish") };
}

#[test]
fn a_program_that_runs_is_not_written() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    let chmod = SetAttr { permissions: Some(0o755), ..SetAttr::default() };
    let want = LockWant::default();
    world.ask(0, 0, MdtRequest::Setattr { fid: file, set: chmod, creds: ROOT, handle: None, want }).unwrap();
    let run = OpenArgs { handle: OpenHandle(900), read: true, write: false, execute: true };
    let write = OpenArgs { handle: OpenHandle(901), read: false, write: true, execute: false };
    let open = |open| MdtRequest::Open {
        fid: file,
        open,
        creds: ROOT,
        want,
        closes: Vec::new(),
        accesses: Vec::new(),
    };
    world.ask(0, 0, open(run)).unwrap();
    assert_eq!(world.ask(1, 0, open(write)), Err(Status::TextBusy));
    world.close(0, file, run);
    world.ask(1, 0, open(write)).unwrap();
    assert_eq!(world.ask(0, 0, open(run)), Err(Status::TextBusy));
}
