//! Crashes of one MDT: replays, opens, orphans, numbers.

use crate::cross::mkdir_on;
use crate::harness::{self, World, entry_of, fid_of, new, user};
use crate::streams;
use base::{Endpoint, Fid, ObjectId, Status, TargetId, Transno, WallTime};
use mds::{MdsEvent, rows};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{Batch, MetaStore};
use wire::lock::LockWant;
use wire::mdt::{CreateRequest, LayoutHint, NewNode};
use wire::ost::ListedObject;
use wire::{ComponentHint, MdtReply, MdtRequest, Request};

#[test]
fn what_was_answered_and_lost_comes_back_with_the_client() {
    let mut world = World::new(1, 1);
    world.getattr(0, Fid::ROOT).unwrap();
    world.servers[0].is_synced = false;
    let dir = world.mkdir(Fid::ROOT, "d");
    let files: Vec<Fid> = (0..10).map(|n| world.mkfile(dir, &format!("f{n}"))).collect();
    world.unlink(dir, "f3").unwrap();
    world.rename((dir, "f4"), (Fid::ROOT, "g"), 0).unwrap();
    world.servers[0].is_synced = true;
    world.crash(0, 4);
    world.pass_seconds(3);
    assert_eq!(world.lookup(0, Fid::ROOT, "d").map(|_| ()), Some(()));
    assert_eq!(world.names(dir).len(), 8);
    assert!(world.lookup(0, Fid::ROOT, "g").is_some());
    assert_eq!(files.len(), 10);
    world.check_consistent();
}

/// Data may be on them by then.
#[test]
fn a_replayed_file_has_the_osts_that_it_had() {
    let mut world = World::new(1, 1);
    world.name_osts(&[(0, true), (1, true), (2, true)]);
    world.getattr(0, Fid::ROOT).unwrap();
    let wide = ComponentHint { stripe_count: Some(u16::MAX), first_ost: Some(1), ..Default::default() };
    let rest = ComponentHint { first_ost: Some(2), ..wide.clone() };
    let composite = vec![ComponentHint { end_bytes: Some(1 << 20), ..wide.clone() }, rest];
    world.servers[0].is_synced = false;
    let mut made = Vec::new();
    for (name, components) in [("plain", vec![wide]), ("composite", composite)] {
        let mut request = new(Fid::ROOT, name, NewNode::Regular);
        request.layout = Some(LayoutHint { components });
        let reply = world.create(request).unwrap();
        made.push((name, entry_of(&reply).layout.clone().unwrap()));
    }
    assert_eq!(made[0].1.osts().collect::<Vec<u16>>(), [1, 2, 0]);
    // One goes and another one comes before the MDT has them on its disk.
    world.name_osts(&[(0, true), (1, false), (2, true), (3, true)]);
    world.servers[0].is_synced = true;
    world.crash(0, 0);
    world.pass_seconds(3);
    for (name, layout) in made {
        let fid = world.lookup(0, Fid::ROOT, name).unwrap();
        let reply = world.ask(0, 0, MdtRequest::Getattr { fid, want: LockWant::default() }).unwrap();
        assert_eq!(entry_of(&reply).layout, Some(layout), "{name}");
    }
}

/// Before a configuration has come, too: what an operator has said of an OST does not wait for it.
#[test]
fn an_ost_that_is_drained_gets_no_new_files_after_a_restart_either() {
    let mut world = World::new(1, 1);
    world.name_osts(&[(0, true), (1, true)]);
    world.getattr(0, Fid::ROOT).unwrap();
    let made = |world: &mut World, name: &str| -> Vec<u16> {
        let wide = ComponentHint { stripe_count: Some(u16::MAX), ..Default::default() };
        let mut request = new(Fid::ROOT, name, NewNode::Regular);
        request.layout = Some(LayoutHint::plain(wide));
        let reply = world.create(request).unwrap();
        entry_of(&reply).layout.clone().unwrap().osts().collect()
    };
    assert_eq!(made(&mut world, "before").len(), 2);
    world.drain(&[1]);
    assert_eq!(made(&mut world, "drained"), [0]);
    world.crash(0, 0);
    world.pass_seconds(3);
    assert_eq!(made(&mut world, "after"), [0]);
    world.drain(&[]);
    assert_eq!(made(&mut world, "open").len(), 2);
}

/// Who opens a new file is told at once, not by the first write; and so is who writes to one that was made without objects.
#[test]
fn with_all_osts_drained_a_new_file_is_refused_for_want_of_space() {
    let mut world = World::new(1, 1);
    world.name_osts(&[(0, true), (1, true)]);
    world.getattr(0, Fid::ROOT).unwrap();
    let opened = |world: &mut World, name: &str| {
        let open = Some(world.open_args(0, true));
        world.create(CreateRequest { open, ..new(Fid::ROOT, name, NewNode::Regular) })
    };
    let set_layout =
        |fid: Fid| MdtRequest::SetLayout { fid, layout: LayoutHint::default(), creds: harness::ROOT };
    world.drain(&[0, 1]);
    assert_eq!(opened(&mut world, "refused").err(), Some(Status::NoSpace));
    assert_eq!(world.lookup(0, Fid::ROOT, "refused"), None, "no name is left");
    let only_a_name = world.create(new(Fid::ROOT, "node", NewNode::Regular)).unwrap();
    let node = entry_of(&only_a_name).fid;
    assert_eq!(world.ask(0, 0, set_layout(node)).err(), Some(Status::NoSpace));
    world.crash(0, 0);
    world.pass_seconds(3);
    assert_eq!(opened(&mut world, "after").err(), Some(Status::NoSpace));
    world.drain(&[0]);
    let made = opened(&mut world, "one").unwrap();
    assert!(entry_of(&made).layout.is_some());
    assert!(entry_of(&world.ask(0, 0, set_layout(node)).unwrap()).layout.is_some());
}

/// Client 0 has written a file on the OST, and says how long it is.
fn write_100_bytes(world: &mut World, file: Fid) {
    let open = world.open(0, file, true);
    let MdtReply::Closed { wants_size: Some(write_epoch), .. } = world.close(0, file, open) else { panic!() };
    let (mtime, stamp) = (world.now.wall, world.now.wall);
    let (size_bytes, block_count) = (100, 8);
    let report = MdtRequest::ReportSize { fid: file, write_epoch, size_bytes, block_count, mtime, stamp };
    world.ask(0, 0, report).unwrap();
}

/// Client 1 makes a file, and nothing is durable from then on.
fn make_lost(world: &mut World) -> Fid {
    world.servers[0].is_synced = false;
    let mut request = new(Fid::ROOT, "lost", NewNode::Regular);
    request.open = Some(world.open_args(1, true));
    let of = world.start(1, 0, MdtRequest::Create(request));
    fid_of(&world.result(1, of).unwrap().unwrap())
}

fn object(fid: Fid) -> ObjectId {
    ObjectId { fid, component: 1, stripe: 0 }
}

/// What the OST says of it.
fn listed(fid: Fid, size_bytes: u64) -> ListedObject {
    ListedObject { object: object(fid), size_bytes, stamp: Some(WallTime(1)) }
}

/// Client 1 does not come back, and with it goes that it made `lost` and cut `cut`. What the OST has says so: its object
/// of `lost` is nobody's, and the size of `cut` is not what it was. (Hazards 4.2 and 5.2.)
#[test]
fn what_a_lost_client_left_on_the_osts_is_found() {
    let mut world = World::new(1, 2);
    let (cut, whole) = (world.mkfile(Fid::ROOT, "cut"), world.mkfile(Fid::ROOT, "whole"));
    for file in [cut, whole] {
        write_100_bytes(&mut world, file);
    }
    assert!(world.getattr(1, cut).unwrap().is_size_known);
    let lost = make_lost(&mut world);
    world.listed = vec![listed(cut, 0), listed(whole, 100), listed(lost, 7)];
    let (gone, mdt) = (Endpoint::Client(world.clients[1].id), Endpoint::Target(TargetId::mdt(0)));
    world.cut.extend([(gone, mdt), (mdt, gone)]);
    world.servers[0].is_synced = true;
    world.crash(0, 0);
    world.pass_seconds(62);
    assert_eq!(world.lookup(0, Fid::ROOT, "lost"), None);
    assert!(world.getattr(0, cut).unwrap().is_size_known, "nobody has looked yet");
    world.pass_seconds(35);
    assert!(!world.getattr(0, cut).unwrap().is_size_known);
    assert!(world.getattr(0, whole).unwrap().is_size_known);
    assert_eq!(world.destroyed, BTreeSet::from([object(lost)]));
    world.check_consistent();
}

/// A power failure has taken the stamp of the cut back, and not the cut. The object that had the last byte has less; the other one had a hole there.
/// (Seed 1090.)
#[test]
fn an_object_that_has_lost_the_last_byte_of_its_file_is_found() {
    let mut world = World::new(1, 2);
    world.start_ost(1);
    world.name_osts(&[(0, true), (1, true)]);
    let hint = ComponentHint { stripe_count: Some(2), ..ComponentHint::default() };
    let [cut, whole] = ["cut", "whole"].map(|name| {
        let mut request = new(Fid::ROOT, name, NewNode::Regular);
        request.layout = Some(LayoutHint::plain(hint.clone()));
        fid_of(&world.create(request).unwrap())
    });
    for file in [cut, whole] {
        write_100_bytes(&mut world, file);
    }
    assert!(world.getattr(1, cut).unwrap().is_size_known);
    make_lost(&mut world);
    let second = |fid| ListedObject { object: ObjectId { stripe: 1, ..object(fid) }, ..listed(fid, 0) };
    world.listed = vec![listed(cut, 99), second(cut), listed(whole, 100), second(whole)];
    world.set_cut(1, 0, true);
    world.servers[0].is_synced = true;
    world.crash(0, 0);
    world.pass_seconds(62 + 35);
    assert!(!world.getattr(0, cut).unwrap().is_size_known);
    assert!(world.getattr(0, whole).unwrap().is_size_known);
}

/// Its row fails its checksum, or holds what nobody can read.
#[test]
fn a_damaged_inode_keeps_no_object_behind_it_from_being_compared() {
    for is_rotten in [true, false] {
        let mut world = World::new(1, 2);
        let (damaged, cut) = (world.mkfile(Fid::ROOT, "damaged"), world.mkfile(Fid::ROOT, "cut"));
        for file in [damaged, cut] {
            write_100_bytes(&mut world, file);
        }
        world.getattr(1, cut).unwrap();
        let lost = make_lost(&mut world);
        world.listed = [damaged, cut, lost].map(|fid| listed(fid, 7)).to_vec();
        assert!(damaged < cut && cut < lost);
        world.set_cut(1, 0, true);
        world.servers[0].is_synced = true;
        world.crash(0, 0);
        let is_started = world.tamper(0, |store| {
            if is_rotten {
                assert!(store.rot(rows::INODES, &damaged.key()));
                return;
            }
            let mut batch = Batch::new();
            batch.put(rows::INODES, &damaged.key(), b"no such row");
            store.apply(store.applied().next(), &batch).unwrap();
        });
        assert!(is_started);
        world.pass_seconds(62 + 35);
        assert!(!world.getattr(0, cut).unwrap().is_size_known, "it is behind a damaged one");
        assert_eq!(world.destroyed, BTreeSet::from([object(lost)]));
        let is_told = |event: &&MdsEvent| matches!(event, MdsEvent::Failed { what, fid, .. } if what.contains("not compared") && *fid == damaged);
        assert_eq!(world.events.iter().filter(is_told).count(), 1);
        assert_eq!(world.servers[0].mds.stats().damaged_files, 1);
        let row = world.servers[0].store.get(rows::STATE, rows::STRAYS_KEY).unwrap();
        assert_eq!(row, None, "the comparison has an end");
    }
}

/// A recovery has lost client 1 with what it had done. Then the power fails, and the log has the first `kept_count` of the rows that the
/// recovery had written from the end of its window on. -> How many there were, and whether the size is believed that may not be
/// true, whether the object of the lost file is there, and whom the OST was to fence.
fn fail_behind_a_loss(kept_count: usize) -> (usize, bool, bool, Vec<wire::Life>) {
    let mut world = World::new(1, 2);
    let cut = world.mkfile(Fid::ROOT, "cut");
    write_100_bytes(&mut world, cut);
    world.getattr(1, cut).unwrap();
    let lost = make_lost(&mut world);
    world.listed = vec![listed(cut, 0), listed(lost, 7)];
    world.set_cut(1, 0, true);
    world.servers[0].is_synced = true;
    world.crash(0, 0);
    world.pass_seconds(55);
    assert_eq!(world.servers[0].store.unsynced_count(), 0);
    world.servers[0].is_synced = false;
    world.pass_seconds(7);
    let row_count = world.servers[0].store.unsynced_count();
    world.servers[0].is_synced = true;
    world.crash(0, kept_count);
    world.pass_seconds(62 + 35);
    let is_believed = world.getattr(0, cut).unwrap().is_size_known;
    (row_count, is_believed, !world.destroyed.contains(&object(lost)), world.fenced)
}

/// Wherever the log ends: there is no end of a recovery in it without what that recovery leaves to be done.
#[test]
fn no_log_has_the_end_of_a_recovery_and_not_what_it_lost() {
    let (row_count, ..) = fail_behind_a_loss(usize::MAX);
    assert!(row_count >= 2, "a session ends, and the recovery");
    let gone = wire::Life { client: base::ClientId(1001), incarnation: 1 };
    for kept_count in 0..=row_count {
        let (_, is_believed, is_there, fenced) = fail_behind_a_loss(kept_count);
        assert!(!is_believed, "the object was cut, with {kept_count} rows");
        assert!(!is_there, "nobody has the file, with {kept_count} rows");
        assert_eq!(fenced, [gone], "with {kept_count} rows");
    }
}

/// The same without a recovery: a client is gone that has a file open for writing, or has none.
#[test]
fn no_log_has_the_end_of_a_session_and_not_that_it_may_have_written() {
    let fail = |is_write: bool, kept_count: usize| {
        let mut world = World::new(1, 2);
        let file = world.mkfile(Fid::ROOT, "f");
        world.open(1, file, is_write);
        world.pass_seconds(2);
        world.servers[0].is_synced = false;
        world.set_cut(1, 0, true);
        let gone = world.clients[1].id;
        world.depart(0, gone);
        let row_count = world.servers[0].store.unsynced_count();
        world.servers[0].is_synced = true;
        world.crash(0, kept_count);
        world.pass_seconds(62 + 35);
        (row_count, world.fenced.len())
    };
    let (row_count, _) = fail(true, usize::MAX);
    for kept_count in 0..=row_count {
        assert_eq!(fail(true, kept_count).1, 1, "with {kept_count} rows");
    }
    let (row_count, fence_count) = fail(false, usize::MAX);
    assert_eq!(fence_count, 0, "it has written nothing, and the log says so in {row_count} rows");
}

/// Hazard 2.5: the MDT cannot know what the replays that have not come will touch. Neither a client that is
/// back first nor one that is new takes the name of somebody else's acknowledged file, or sees the directory without it.
#[test]
fn new_work_does_not_overtake_a_replay_that_has_not_come() {
    let mut world = World::new(1, 3);
    let dir = world.mkdir(Fid::ROOT, "d");
    world.getattr(1, dir).unwrap();
    world.servers[0].is_synced = false;
    let file = world.mkfile(dir, "x");
    let slow = [Endpoint::Client(world.clients[0].id), Endpoint::Target(TargetId::mdt(0))];
    world.cut.extend([(slow[0], slow[1]), (slow[1], slow[0])]);
    world.servers[0].is_synced = true;
    world.crash(0, 0);
    let lookup = MdtRequest::Lookup { parent: dir, name: b"x".to_vec(), want: Default::default() };
    let begin = |client| {
        let looking = world.start(client, 0, lookup.clone());
        (client, looking, world.start(client, 0, MdtRequest::Create(new(dir, "x", NewNode::Regular))))
    };
    let begun = [1, 2].map(begin);
    world.pass_seconds(5);
    for (client, looking, creating) in begun {
        assert_eq!((world.result(client, looking), world.result(client, creating)), (None, None));
    }
    world.cut.clear();
    world.pass_seconds(5);
    for (client, looking, creating) in begun {
        assert_eq!(world.result(client, looking).unwrap().map(|reply| fid_of(&reply)), Ok(file));
        assert_eq!(world.result(client, creating), Some(Err(base::Status::Exists)));
    }
    world.check_consistent();
}

/// Hazard 2.7: A and B each make a file in one directory; A dies with the MDT, and its file is lost. B's has nothing to do
/// with it, although it came later: it is replayed, and B is not thrown out.
#[test]
fn who_comes_back_is_not_refused_for_what_another_has_lost() {
    let mut world = World::new(1, 2);
    let dir = world.mkdir(Fid::ROOT, "d");
    world.getattr(1, dir).unwrap();
    world.servers[0].is_synced = false;
    world.mkfile(dir, "a");
    let of = world.start(1, 0, MdtRequest::Create(new(dir, "b", NewNode::Regular)));
    let kept = fid_of(&world.result(1, of).unwrap().unwrap());
    let dead = [Endpoint::Client(world.clients[0].id), Endpoint::Target(TargetId::mdt(0))];
    world.cut.extend([(dead[0], dead[1]), (dead[1], dead[0])]);
    world.servers[0].is_synced = true;
    world.crash(0, 0);
    world.pass_seconds(70);
    assert_eq!(world.lookup(1, dir, "b"), Some(kept));
    assert_eq!(world.lookup(1, dir, "a"), None);
    assert_eq!(world.clients[1].evictions, 0);
    world.check_consistent();
}

/// What A has done to names is lost with A and the MDT, and what B has done after it to the same names is replayed.
/// `depends`: B's requests, whose effects on what was there before A's would be others.
fn lose_what_was_built_on(lost: &[MdtRequest], depends: &[MdtRequest]) -> World {
    let mut world = World::new(1, 2);
    for name in ["x", "y"] {
        world.mkfile(Fid::ROOT, name);
    }
    world.mkdir(Fid::ROOT, "d");
    world.pass_seconds(3);
    world.getattr(1, Fid::ROOT).unwrap();
    world.servers[0].is_synced = false;
    for (client, requests) in [(0, lost), (1, depends)] {
        for request in requests {
            // Known to be heard: B is shown it.
            let of = world.start(client, 0, request.clone());
            world.pass(base::Duration::from_millis(100));
            world.result(client, of).expect("an answer").expect("executed");
            world.getattr(client, Fid::ROOT).unwrap();
        }
    }
    let dead = [Endpoint::Client(world.clients[0].id), Endpoint::Target(TargetId::mdt(0))];
    world.cut.extend([(dead[0], dead[1]), (dead[1], dead[0])]);
    world.servers[0].is_synced = true;
    world.crash(0, 0);
    world.pass_seconds(70);
    assert_eq!(world.clients[1].evictions, 0);
    world.check_consistent();
    world
}

fn unlink_of(name: &str) -> MdtRequest {
    MdtRequest::Unlink { parent: Fid::ROOT, name: name.as_bytes().to_vec(), creds: user(0) }
}

/// A moves the file x away and makes another x, which B removes: B's request is not replayed on the x that was there before.
#[test]
fn a_replay_removes_no_other_file_than_it_had_removed() {
    let lost = [
        harness::rename((Fid::ROOT, "x"), (Fid::ROOT, "z"), 0),
        MdtRequest::Create(new(Fid::ROOT, "x", NewNode::Regular)),
    ];
    let mut world = lose_what_was_built_on(&lost, &[unlink_of("x")]);
    assert!(world.lookup(1, Fid::ROOT, "x").is_some(), "a file that nobody has removed");
    assert_eq!(world.clients[1].refused, [base::Status::VersionConflict]);
}

#[test]
fn a_replay_removes_no_other_directory_than_it_had_removed() {
    let lost = [
        harness::rename((Fid::ROOT, "d"), (Fid::ROOT, "e"), 0),
        MdtRequest::Create(new(Fid::ROOT, "d", NewNode::Directory)),
    ];
    let rmdir = MdtRequest::Rmdir { parent: Fid::ROOT, name: b"d".to_vec(), creds: user(0) };
    let mut world = lose_what_was_built_on(&lost, &[rmdir]);
    assert!(world.lookup(1, Fid::ROOT, "d").is_some(), "a directory that nobody has removed");
    assert_eq!(world.clients[1].refused, [base::Status::VersionConflict]);
}

/// B renames what A has put in the place of x, or over what A has put in the place of y.
#[test]
fn a_replay_renames_nothing_else_and_over_nothing_else_than_it_had() {
    let rename = harness::rename((Fid::ROOT, "x"), (Fid::ROOT, "y"), 0);
    for moved in ["x", "y"] {
        let lost = [
            harness::rename((Fid::ROOT, moved), (Fid::ROOT, "z"), 0),
            MdtRequest::Create(new(Fid::ROOT, moved, NewNode::Regular)),
        ];
        let mut world = lose_what_was_built_on(&lost, std::slice::from_ref(&rename));
        let found = ["x", "y"].map(|name| world.lookup(1, Fid::ROOT, name));
        assert!(found.iter().all(Option::is_some), "{moved}: {found:?}");
        assert_eq!(world.clients[1].refused, [base::Status::VersionConflict]);
    }
    // What is not there any more is not renamed over either.
    let lost = [MdtRequest::Create(new(Fid::ROOT, "w", NewNode::Regular))];
    let over = harness::rename((Fid::ROOT, "x"), (Fid::ROOT, "w"), 0);
    let mut world = lose_what_was_built_on(&lost, &[over]);
    assert!(world.lookup(1, Fid::ROOT, "x").is_some());
    assert_eq!(world.clients[1].refused, [base::Status::VersionConflict]);
}

/// B has opened with O_CREAT the file that A has made: a replay makes no such file anew, and opens no other one of that name.
#[test]
fn a_replay_opens_no_other_file_than_it_had_opened() {
    for is_replaced in [false, true] {
        let name = if is_replaced { "x" } else { "w" };
        let mut lost = vec![MdtRequest::Create(new(Fid::ROOT, name, NewNode::Regular))];
        if is_replaced {
            lost.insert(0, unlink_of(name));
        }
        let open = base::OpenHandle(77);
        let args = wire::mdt::OpenArgs { handle: open, read: true, write: true, execute: false };
        let opening =
            CreateRequest { open: Some(args), is_exclusive: false, ..new(Fid::ROOT, name, NewNode::Regular) };
        let mut world = lose_what_was_built_on(&lost, &[MdtRequest::Create(opening)]);
        assert_eq!(world.lookup(1, Fid::ROOT, name).is_some(), is_replaced);
        assert_eq!(world.clients[1].refused, [base::Status::Stale]);
        assert_eq!(world.servers[0].mds.open_count(), 0);
    }
}

#[test]
fn numbers_of_a_lost_incarnation_do_not_come_back() {
    const FILE_COUNT: usize = 5;
    let mut world = World::new(1, 2);
    let make = |world: &mut World, client: usize| -> Vec<(Fid, Transno)> {
        let made = (0..FILE_COUNT).map(|n| {
            let create = MdtRequest::Create(new(Fid::ROOT, &format!("f{n}"), NewNode::Regular));
            let reply = world.ask(client, 0, create).unwrap();
            (fid_of(&reply), world.servers[0].mds.core().last_transno())
        });
        made.collect()
    };
    for client in 0..2 {
        world.getattr(client, Fid::ROOT).unwrap();
    }
    world.pass_seconds(3);
    world.servers[0].is_synced = false;
    let before = make(&mut world, 0);
    // With who made them.
    world.set_cut(0, 0, true);
    world.crash(0, 0);
    world.servers[0].is_synced = true;
    world.abort_recovery(0);
    world.pass_seconds(3);
    assert_eq!(world.lookup(1, Fid::ROOT, "f0"), None, "it is lost");
    let after = make(&mut world, 1);
    for (fid, transno) in &after {
        assert!(before.iter().all(|(lost, _)| lost != fid), "{fid} is given twice: {before:?}, {after:?}");
        assert!(before.iter().all(|(_, lost)| lost < transno), "{transno} comes back: {before:?}, {after:?}");
    }
}

#[test]
fn an_orphan_stays_for_who_reopens_it_and_goes_otherwise() {
    let mut world = World::new(1, 2);
    let (kept, gone) = (world.mkfile(Fid::ROOT, "kept"), world.mkfile(Fid::ROOT, "gone"));
    let open = world.open(1, kept, true);
    world.open(1, gone, true);
    world.unlink(Fid::ROOT, "kept").unwrap();
    world.unlink(Fid::ROOT, "gone").unwrap();
    let reopen = Request::Mdt(MdtRequest::Reopen { fid: kept, open });
    world.clients[1].reopens.insert(TargetId::mdt(0), vec![reopen]);
    world.crash(0, 0);
    world.pass_seconds(3);
    assert_eq!(world.getattr(1, kept).unwrap().link_count, 0);
    assert_eq!(world.getattr(1, gone), Err(base::Status::Stale));
    world.close(1, kept, open);
    world.check_consistent();
    assert_eq!(world.destroyed.len(), 2);
}

/// The close is durable and its answer lost with the MDT. The client hears of it before it would name the handle as open: nothing
/// holds the file any more.
#[test]
fn a_close_that_was_executed_before_a_restart_is_answered_in_the_recovery() {
    for is_unlinked_before in [false, true] {
        let mut world = World::new(1, 2);
        let mdt = TargetId::mdt(0);
        let file = world.mkfile(Fid::ROOT, "f");
        let open = world.open(1, file, true);
        // Keeps the file while its name is gone, so that the first run of the close does not remove it.
        let other = world.open(0, file, false);
        if is_unlinked_before {
            world.unlink(Fid::ROOT, "f").unwrap();
        }
        world.pass_seconds(3);
        let deaf = (Endpoint::Target(mdt), world.clients[1].id.endpoint());
        world.cut.insert(deaf);
        let atime = Some(WallTime(world.now.wall.0 + 1));
        let close = MdtRequest::Close {
            fid: file,
            handle: open.handle,
            atime,
            unchanged_since: None,
            data: None,
            cancels: vec![],
            accesses: Vec::new(),
        };
        let closing = world.start(1, 0, close);
        assert_eq!(world.result(1, closing), None, "the answer is lost");
        let reopen = Request::Mdt(MdtRequest::Reopen { fid: file, open: other });
        world.clients[0].reopens.insert(mdt, vec![reopen]);
        world.crash(0, 0);
        world.cut.remove(&deaf);
        // The other client is not back yet, so that the recovery goes on.
        let away = (world.clients[0].id.endpoint(), Endpoint::Target(mdt));
        world.cut.insert(away);
        world.pass_seconds(5);
        assert!(world.result(1, closing).is_some_and(|result| result.is_ok()));
        world.cut.remove(&away);
        world.pass_seconds(5);
        world.close(0, file, other);
        if !is_unlinked_before {
            world.unlink(Fid::ROOT, "f").unwrap();
        }
        world.pass_seconds(10);
        assert_eq!(world.getattr(0, file), Err(Status::Stale));
        assert_eq!(world.destroyed.len(), 1);
        world.check_consistent();
    }
}

/// `lock_repay_clients` was 0 whatever happened.
#[test]
fn who_says_what_it_has_open_is_counted_as_such_in_a_recovery() {
    let mut world = World::new(1, 2);
    let mdt = TargetId::mdt(0);
    let file = world.mkfile(Fid::ROOT, "f");
    let open = world.open(1, file, true);
    world.pass_seconds(3);
    world.clients[1].reopens.insert(mdt, vec![Request::Mdt(MdtRequest::Reopen { fid: file, open })]);
    let counts = |world: &World| {
        let report = world.servers[0].mds.core().recovery_report(world.now.time);
        (report.awaited_count, report.returned_count, report.locking_count, report.completed_count)
    };
    world.set_cut(0, 0, true);
    world.crash(0, 0);
    world.pass_seconds(5);
    assert_eq!(counts(&world), (2, 1, 1, 0), "it waits for the replays of who is not back");
    world.set_cut(0, 0, false);
    world.pass_seconds(5);
    assert_eq!(counts(&world), (2, 2, 0, 2));
    world.close(1, file, open);
    world.check_consistent();
}

#[test]
fn destroys_survive_a_crash_and_wait_for_durability() {
    let mut world = World::new(1, 1);
    world.mkfile(Fid::ROOT, "f");
    world.servers[0].is_synced = false;
    world.unlink(Fid::ROOT, "f").unwrap();
    assert!(world.destroyed.is_empty(), "nothing is told before it is durable");
    world.servers[0].is_synced = true;
    world.pass_seconds(1);
    assert_eq!(world.destroyed.len(), 1);
    world.check_consistent();
}

/// Nobody else knows of these objects until the next comparison.
#[test]
fn objects_whose_row_cannot_be_read_now_are_destroyed_when_it_can() {
    let mut world = World::new(1, 1);
    for name in ["f", "g"] {
        world.mkfile(Fid::ROOT, name);
    }
    world.servers[0].is_synced = false;
    for name in ["f", "g"] {
        world.unlink(Fid::ROOT, name).unwrap();
    }
    let store = Arc::clone(&world.servers[0].store);
    let keys = || {
        let rows = store.rows().into_keys().filter(|(table, _)| *table == rows::DESTROYS);
        rows.map(|(_, key)| key).collect::<Vec<_>>()
    };
    let fails = store::StoreError::Device { operation: "read a row", errno: 5 };
    let mut unread = keys();
    assert_eq!(unread.len(), 2);
    for (destroyed_count, left_count) in [(0, 2), (1, 1)] {
        for key in &unread {
            assert!(store.set_unreadable(rows::DESTROYS, key, fails.clone()));
        }
        world.servers[0].is_synced = true;
        world.pass_seconds(3);
        assert_eq!((world.destroyed.len(), keys().len()), (destroyed_count, left_count));
        store.mend_reads();
        unread.pop();
    }
    world.pass_seconds(3);
    assert_eq!((world.destroyed.len(), keys().len()), (2, 0));
    world.check_consistent();
}

#[test]
fn rows_of_objects_that_cannot_be_read_are_told_of_once() {
    let mut world = World::new(1, 1);
    let store = Arc::clone(&world.servers[0].store);
    let fails = store::StoreError::Device { operation: "read a row", errno: 5 };
    let told = |world: &World| {
        let is_told =
            |event: &&MdsEvent| matches!(event, MdsEvent::Failed { .. } | MdsEvent::DestroysUnread { .. });
        world.events.iter().filter(is_told).cloned().collect::<Vec<_>>()
    };
    let mut told_count = 0;
    // The second time they are told of again.
    for names in [["f", "g"], ["h", "i"]] {
        for name in names {
            world.mkfile(Fid::ROOT, name);
        }
        world.servers[0].is_synced = false;
        for name in names {
            world.unlink(Fid::ROOT, name).unwrap();
        }
        let keys = store.rows().into_keys().filter(|(table, _)| *table == rows::DESTROYS);
        for (table, key) in keys.collect::<Vec<_>>() {
            assert!(store.set_unreadable(table, &key, fails.clone()));
        }
        world.servers[0].is_synced = true;
        world.pass_seconds(5);
        told_count += 1;
        assert_eq!(told(&world).len(), told_count);
        assert!(matches!(told(&world).last(), Some(MdsEvent::DestroysUnread { ost: 0, count: 2, .. })));
        store.mend_reads();
        world.pass_seconds(3);
    }
    assert_eq!((world.destroyed.len(), told(&world).len()), (4, 2));
    world.check_consistent();
}

#[test]
fn a_client_that_does_not_come_back_is_not_waited_for_for_ever() {
    let mut world = World::new(1, 2);
    world.mkfile(Fid::ROOT, "f");
    world.getattr(1, Fid::ROOT).unwrap();
    let dead = base::Endpoint::Client(world.clients[1].id);
    world.cut.insert((dead, base::Endpoint::Target(TargetId::mdt(0))));
    world.crash(0, 0);
    world.pass_seconds(70);
    assert!(world.lookup(0, Fid::ROOT, "f").is_some());
}

#[test]
fn a_resent_creation_is_executed_once() {
    let mut world = World::new(1, 1);
    let us = base::Endpoint::Client(world.clients[0].id);
    world.getattr(0, Fid::ROOT).unwrap();
    world.cut.insert((base::Endpoint::Target(TargetId::mdt(0)), us));
    let waiting = world.start(0, 0, MdtRequest::Create(new(Fid::ROOT, "f", NewNode::Regular)));
    assert_eq!(world.result(0, waiting), None);
    world.cut.clear();
    world.pass_seconds(5);
    let reply = world.result(0, waiting).unwrap().unwrap();
    assert_eq!(world.lookup(0, Fid::ROOT, "f"), Some(fid_of(&reply)));
}

/// Two MDTs, both without power, of which only the second is started again: what a client of its has been answered there needs a word of the
/// first. It is given up for that by nobody, and the first one finds it waiting.
fn survives_the_absence_of_the_first(mut world: World, dir: Fid) {
    world.servers[0].is_synced = false;
    world.set_silent(0, true);
    world.crash(1, 0);
    world.servers[1].is_synced = true;
    world.pass_seconds(300);
    let awaits = |event: &&MdsEvent| matches!(event, MdsEvent::Core(target::CoreEvent::RecoveryAwaits { target }) if *target == TargetId::mdt(0));
    assert_eq!(world.events.iter().filter(awaits).count(), 1, "told once");
    world.servers[0].is_synced = true;
    world.set_silent(0, false);
    world.crash(0, 0);
    world.pass_seconds(70);
    assert_eq!(world.clients[0].evictions, 0);
    assert_eq!(world.clients[0].refused, []);
    assert!(!world.servers[1].mds.core().is_recovering());
    assert_eq!(world.names(dir), ["f"]);
    world.check_consistent();
}

#[test]
fn a_replay_into_a_directory_that_its_coordinator_streams_waits_for_that_one() {
    let mut world = streams::settled();
    world.servers[1].is_synced = false;
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    world.pass(streams::GATHERED);
    world.mkfile(dir, "f");
    survives_the_absence_of_the_first(world, dir);
}

/// What a coordinator has decided, and a participant executed, was prepared there: so much is durable.
#[test]
fn a_replay_behind_a_prepared_part_waits_for_its_coordinator() {
    let mut world = streams::settled();
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    world.mkfile(dir, "moves");
    world.pass_seconds(3);
    world.servers[1].is_synced = false;
    let moving = world.start(0, 0, harness::rename((dir, "moves"), (Fid::ROOT, "moved"), 0));
    assert_eq!(world.result(0, moving), None, "it is not prepared");
    world.begin(1);
    assert!(matches!(world.result(0, moving), Some(Ok(_))));
    world.mkfile(dir, "f");
    survives_the_absence_of_the_first(world, dir);
}

#[test]
fn a_replay_with_a_part_on_another_mdt_waits_for_that_one() {
    let mut world = streams::settled();
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    world.mkfile(Fid::ROOT, "moves");
    world.pass_seconds(3);
    world.servers[1].is_synced = false;
    world.rename((Fid::ROOT, "moves"), (dir, "f"), 0).unwrap();
    survives_the_absence_of_the_first(world, dir);
}

/// Whoever waits for a target that is lost for good.
#[test]
fn an_operator_ends_the_wait_for_a_target_that_is_not_heard() {
    let mut world = streams::settled();
    world.servers[1].is_synced = false;
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    world.pass(streams::GATHERED);
    world.mkfile(dir, "f");
    world.servers[0].is_synced = false;
    world.set_silent(0, true);
    world.crash(1, 0);
    world.servers[1].is_synced = true;
    world.pass_seconds(100);
    let awaited = |world: &World| world.servers[1].mds.core().awaited_targets().collect::<Vec<_>>();
    assert_eq!(awaited(&world), [TargetId::mdt(0)]);
    world.abort_recovery(1);
    world.pass_seconds(1);
    assert!(!world.servers[1].mds.core().is_recovering());
    assert_eq!(awaited(&world), []);
    assert_eq!(world.clients[0].evictions, 1, "it is told of its loss");
    assert_eq!(world.clients[1].evictions, 0, "who waits for nobody stays");
}

/// Each of two MDTs has prepared something for the other, which was decided against, and has served others with it since. The power fails
/// before that is durable: what was served is replayed, behind what is prepared, and neither of them has recovered to say that this is void.
#[test]
fn two_mdts_that_recover_do_not_wait_for_each_other() {
    let mut world = streams::settled();
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    world.mkfile(dir, "x");
    world.mkfile(Fid::ROOT, "y");
    world.pass_seconds(3);
    let attempts: [(u16, u16, MdtRequest); 2] = [
        (0, 1, harness::rename((dir, "x"), (Fid::ROOT, "x"), 0)),
        (1, 0, harness::rename((Fid::ROOT, "y"), (dir, "y"), 0)),
    ];
    for (coordinator, participant, attempt) in attempts {
        world.servers[usize::from(participant)].is_synced = false;
        world.start(1, coordinator, attempt);
        assert_eq!(streams::prepare_count(&world, usize::from(participant)), 1);
        // Its answer has not left.
        world.servers[usize::from(participant)].store.sync();
        let impatient = world.clients[1].id;
        world.evict(coordinator, impatient);
        assert_eq!(streams::prepare_count(&world, usize::from(participant)), 0);
        let (parent, name) =
            if participant == 0 { (Fid::ROOT, "on the first") } else { (dir, "on the second") };
        world.mkfile(parent, name);
    }
    world.set_silent(0, true);
    for mdt in [1, 0] {
        world.crash(mdt, 0);
        world.servers[usize::from(mdt)].is_synced = true;
        assert_eq!(streams::prepare_count(&world, usize::from(mdt)), 1);
    }
    world.set_silent(0, false);
    world.pass_seconds(20);
    assert!(world.servers.iter().all(|server| !server.mds.core().is_recovering()));
    assert_eq!((world.clients[0].evictions, &world.clients[0].refused[..]), (0, &[][..]));
    assert!(world.lookup(1, dir, "on the second").is_some());
    assert!(world.lookup(0, Fid::ROOT, "on the first").is_some());
    assert_eq!((0..2).map(|mdt| streams::prepare_count(&world, mdt)).sum::<usize>(), 0);
    world.check_consistent();
}
