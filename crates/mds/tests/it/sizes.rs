//! When the MDT knows a file's size (hazards 4.1 to 4.5).

use crate::harness::{ROOT, World, attr_of};
use base::{Fid, OpenHandle, SetAttr, Status, WallTime};
use wire::lock::LockWant;
use wire::mdt::{OpenArgs, REPORTS_MAX, SizeReport};
use wire::{MdtReply, MdtRequest};

fn size_report(fid: Fid, write_epoch: u64, size_bytes: u64, stamp: i64) -> SizeReport {
    let (mtime, stamp) = (WallTime(stamp), WallTime(stamp));
    SizeReport { fid, write_epoch, size_bytes, block_count: 8, mtime, stamp }
}

fn report(fid: Fid, write_epoch: u64, size_bytes: u64, stamp: i64) -> MdtRequest {
    size_report(fid, write_epoch, size_bytes, stamp).alone()
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
fn of_sizes_that_come_together_each_counts_by_itself() {
    let mut world = World::new(1, 2);
    let mut closed = |name: &str| {
        let file = world.mkfile(Fid::ROOT, name);
        let open = world.open(0, file, true);
        let MdtReply::Closed { wants_size: Some(epoch), .. } = world.close(0, file, open) else { panic!() };
        (file, epoch)
    };
    let (good, known, old, open) = (closed("a"), closed("b"), closed("c"), closed("d"));
    let absent = (Fid { oid: 999, ..good.0 }, 1);
    world.ask(1, 0, report(known.0, known.1, 50, 1)).unwrap();
    world.open(1, open.0, true);
    let sent = [good, known, (old.0, old.1 + 1), open, absent];
    let reports = sent.map(|(file, epoch)| size_report(file, epoch, 200, 1)).to_vec();
    let MdtReply::Sizes(sizes) = world.ask(0, 0, MdtRequest::ReportSizes { reports }).unwrap() else {
        panic!()
    };
    let told: Vec<_> =
        sizes.iter().map(|attr| attr.as_ref().map(|attr| (attr.fid, attr.size_bytes))).collect();
    assert_eq!(told, [Some((good.0, 200)), Some((known.0, 50)), None, None, None]);
    for (file, size) in [(good.0, Some(200)), (known.0, Some(50)), (old.0, None), (open.0, None)] {
        let attr = world.getattr(1, file).unwrap();
        assert_eq!(attr.is_size_known.then_some(attr.size_bytes), size, "{file}");
    }
}

/// All of a request, or nothing.
#[test]
fn more_sizes_than_a_request_may_bring_are_refused() {
    let mut world = World::new(1, 1);
    let file = world.mkfile(Fid::ROOT, "f");
    let open = world.open(0, file, true);
    let MdtReply::Closed { wants_size: Some(epoch), .. } = world.close(0, file, open) else { panic!() };
    let many = |count| MdtRequest::ReportSizes { reports: vec![size_report(file, epoch, 200, 1); count] };
    assert_eq!(world.ask(0, 0, many(REPORTS_MAX + 1)), Err(Status::ProtocolError));
    assert!(!world.getattr(0, file).unwrap().is_size_known);
    world.ask(0, 0, many(REPORTS_MAX)).unwrap();
    assert_eq!(world.getattr(0, file).unwrap().size_bytes, 200);
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
        stamp: None,
    };
    let attr = attr_of(&world.ask(0, 0, truncate(None)).unwrap()).clone();
    assert_eq!((attr.size_bytes, attr.is_size_known), (10, false), "a crash may still take the cut back");
    world.ask(0, 0, report(file, attr.write_epoch, 10, 1)).unwrap();
    assert!(attr_of(&world.ask(0, 0, truncate(None)).unwrap()).is_size_known, "nothing changes");
    let open = world.open(1, file, true);
    assert!(!attr_of(&world.ask(0, 0, truncate(None)).unwrap()).is_size_known);
    let MdtReply::Closed { wants_size: Some(_), .. } = world.close(1, file, open) else { panic!("no wish") };
}

fn make_program(world: &mut World) -> Fid {
    let file = world.mkfile(Fid::ROOT, "f");
    let set = SetAttr { permissions: Some(0o755), ..SetAttr::default() };
    let want = LockWant::default();
    let chmod = MdtRequest::Setattr { fid: file, set, creds: ROOT, handle: None, want, stamp: None };
    world.ask(0, 0, chmod).unwrap();
    file
}

fn open_request(fid: Fid, open: OpenArgs) -> MdtRequest {
    let want = LockWant::default();
    MdtRequest::Open { fid, open, creds: ROOT, want, closes: Vec::new(), accesses: Vec::new() }
}

#[test]
fn a_program_that_runs_is_not_written() {
    let mut world = World::new(1, 2);
    let file = make_program(&mut world);
    let run = OpenArgs { handle: OpenHandle(900), read: true, write: false, execute: true };
    let write = OpenArgs { handle: OpenHandle(901), read: false, write: true, execute: false };
    let open = |open| open_request(file, open);
    world.ask(0, 0, open(run)).unwrap();
    assert_eq!(world.ask(1, 0, open(write)), Err(Status::TextBusy));
    world.close(0, file, run);
    world.ask(1, 0, open(write)).unwrap();
    assert_eq!(world.ask(0, 0, open(run)), Err(Status::TextBusy));
}

/// A full log refuses what a close changes. Its client does not ask again: nobody is to be kept from the file for ever.
#[test]
fn a_close_that_the_store_refuses_has_closed_the_file() {
    let mut world = World::new(1, 2);
    let file = make_program(&mut world);
    let open = world.open(0, file, true);
    let write_epoch = world.getattr(0, file).unwrap().write_epoch;
    world.servers[0].store.refuse(1);
    let close = MdtRequest::Close {
        fid: file,
        handle: open.handle,
        atime: Some(WallTime(world.now.wall.0 + 1)),
        unchanged_since: None,
        data: None,
        cancels: Vec::new(),
        accesses: Vec::new(),
    };
    assert_eq!(world.ask(0, 0, close.clone()), Err(Status::NoSpace));
    assert_eq!(world.servers[0].mds.open_count(), 0);
    assert!(!world.getattr(1, file).unwrap().is_size_known);
    let run = OpenArgs { handle: OpenHandle(900), read: true, write: false, execute: true };
    world.ask(1, 0, open_request(file, run)).unwrap();
    world.close(1, file, run);
    // Who asks the objects says what they have said.
    let attr = attr_of(&world.ask(1, 0, report(file, write_epoch, 100, 1)).unwrap()).clone();
    assert_eq!((attr.size_bytes, attr.is_size_known), (100, true));
    // The same again finds nothing to close.
    let again = world.ask(0, 0, close).unwrap();
    assert_eq!(again, MdtReply::Closed { wants_size: None, attr: None });
}
