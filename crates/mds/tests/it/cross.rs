//! Two and three MDTs back to back.

use crate::harness::{ROOT, World, entry_of, fid_of, new, readdir, rename};
use crate::streams::{GATHERED, prepare_count};
use crate::striped;
use base::{Duration, Endpoint, Fid, FileType, SetAttr, Status, TargetId};
use store::{Batch, MetaStore, Reserve};
use wire::lock::LockWant;
use wire::mdt::{Credentials, NewNode};
use wire::{MdtReply, MdtRequest, Request};

pub fn mkdir_on(world: &mut World, parent: Fid, name: &str, mdt: u16) -> Fid {
    let mut request = new(parent, name, NewNode::Directory);
    request.mdt_index = Some(mdt);
    let fid = fid_of(&world.create(request).unwrap());
    assert_eq!(fid.mdt_index(), Some(mdt));
    fid
}

#[test]
fn a_directory_on_another_mdt_is_made_used_and_removed() {
    let mut world = World::new(2, 1);
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    let file = world.mkfile(dir, "f");
    assert_eq!(file.mdt_index(), Some(1));
    assert_eq!(world.getattr(0, Fid::ROOT).unwrap().link_count, 3);
    assert_eq!(world.getattr(0, dir).unwrap().file_type, FileType::Directory);
    assert_eq!(world.rmdir(Fid::ROOT, "d"), Err(Status::NotEmpty));
    world.unlink(dir, "f").unwrap();
    world.rmdir(Fid::ROOT, "d").unwrap();
    assert_eq!(world.lookup(0, Fid::ROOT, "d"), None);
    world.check_consistent();
    let mut request = new(Fid::ROOT, "d", NewNode::Directory);
    request.mdt_index = Some(7);
    assert_eq!(world.create(request), Err(Status::NoDevice));
}

#[test]
fn a_directory_on_another_mdt_waits_for_disks_only_where_that_is_asked_for() {
    let mut world = World::new(2, 1);
    mkdir_on(&mut world, Fid::ROOT, "first", 1);
    world.pass_seconds(3);
    world.servers[0].is_synced = false;
    // Answered from memory.
    mkdir_on(&mut world, Fid::ROOT, "streamed", 1);
    world.servers[0].is_synced = true;
    world.pass_seconds(3);
    assert!(!world.servers[0].mds.is_remote_sync());
    world.servers[0].mds.set_remote_sync(true);
    for silent in [0, 1] {
        world.servers[silent].is_synced = false;
        let mut request = new(Fid::ROOT, &format!("synced{silent}"), NewNode::Directory);
        request.mdt_index = Some(1);
        let made = world.start(0, 0, MdtRequest::Create(request));
        world.pass_seconds(3);
        assert_eq!(world.result(0, made), None, "MDT {silent} is not durable");
        world.servers[silent].is_synced = true;
        world.pass_seconds(3);
        let reply = world.result(0, made).expect("an answer").expect("it is made");
        assert_eq!(fid_of(&reply).mdt_index(), Some(1));
    }
    world.check_consistent();
}

#[test]
fn links_and_unlinks_reach_the_other_mdt() {
    let mut world = World::new(2, 1);
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    let file = world.mkfile(Fid::ROOT, "f");
    let reply = world.link(file, dir, "g").unwrap();
    assert_eq!(entry_of(&reply).file_type, FileType::Regular);
    assert_eq!(world.getattr(0, file).unwrap().link_count, 2);
    assert_eq!(world.link(dir, dir, "h"), Err(Status::NotPermitted));
    let fifo = NewNode::Device { file_type: FileType::Fifo, rdev: 0 };
    let fifo = fid_of(&world.create(new(Fid::ROOT, "fifo", fifo)).unwrap());
    assert_eq!(entry_of(&world.link(fifo, dir, "fifo").unwrap()).file_type, FileType::Fifo);
    world.unlink(Fid::ROOT, "f").unwrap();
    assert_eq!(world.getattr(0, file).unwrap().link_count, 1);
    world.unlink(dir, "g").unwrap();
    assert_eq!(world.getattr(0, file), Err(Status::Stale));
    world.check_consistent();
}

#[test]
fn an_open_file_that_was_removed_gets_no_name_on_the_other_mdt() {
    let mut world = World::new(2, 2);
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    let file = world.mkfile(Fid::ROOT, "f");
    let open = world.open(1, file, false);
    world.unlink(Fid::ROOT, "f").unwrap();
    assert_eq!(world.link(file, dir, "g"), Err(Status::NotFound));
    assert_eq!(world.lookup(0, dir, "g"), None);
    world.close(1, file, open);
    assert_eq!(world.getattr(0, file), Err(Status::Stale));
    world.check_consistent();
}

#[test]
fn files_and_directories_move_between_mdts() {
    let mut world = World::new(2, 1);
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    let (a, b) = (world.mkfile(Fid::ROOT, "a"), world.mkfile(dir, "b"));
    world.rename((Fid::ROOT, "a"), (dir, "b"), 0).unwrap();
    assert_eq!((world.lookup(0, Fid::ROOT, "a"), world.lookup(0, dir, "b")), (None, Some(a)));
    assert_eq!(world.getattr(0, b), Err(Status::Stale));
    world.rename((dir, "b"), (Fid::ROOT, "back"), 0).unwrap();
    assert_eq!(world.rename((dir, "b"), (Fid::ROOT, "x"), 0), Err(Status::NotFound));
    let sub = world.mkdir(Fid::ROOT, "sub");
    world.rename((Fid::ROOT, "sub"), (dir, "sub"), 0).unwrap();
    assert_eq!(world.rename((Fid::ROOT, "d"), (sub, "loop"), 0), Err(Status::Invalid));
    assert_eq!(world.getattr(0, dir).unwrap().link_count, 3);
    let other = world.mkfile(dir, "other");
    world.rename((Fid::ROOT, "back"), (dir, "other"), 2).unwrap();
    assert_eq!((world.lookup(0, Fid::ROOT, "back"), world.lookup(0, dir, "other")), (Some(other), Some(a)));
    world.check_consistent();
}

/// What an MDT checks for another one is checked as there: who may be in the group that may do less than others says its groups.
#[test]
fn groups_that_forbid_are_asked_for_where_the_directory_is_on_another_mdt() {
    let mut world = World::new(2, 1);
    let set = |world: &mut World, fid: Fid, permissions, gid| {
        let set = SetAttr { permissions: Some(permissions), gid: Some(gid), ..SetAttr::default() };
        let request = MdtRequest::Setattr {
            fid,
            set,
            creds: ROOT,
            handle: None,
            want: Default::default(),
            stamp: None,
        };
        world.ask(0, fid.mdt_index().unwrap(), request).unwrap();
    };
    let (here, there) = (world.mkdir(Fid::ROOT, "here"), mkdir_on(&mut world, Fid::ROOT, "there", 1));
    let moved = mkdir_on(&mut world, here, "moved", 1);
    world.mkfile(there, "f");
    set(&mut world, Fid::ROOT, 0o777, 0);
    set(&mut world, here, 0o777, 0);
    set(&mut world, there, 0o707, 10);
    set(&mut world, moved, 0o707, 10);
    // The name of a file is in a directory of the other MDT; a directory of the other MDT gets another parent.
    for (from, to) in [((there, "f"), (here, "f")), ((here, "moved"), (Fid::ROOT, "moved"))] {
        let mut ask = |groups| {
            let mut request = rename(from, to, 0);
            if let MdtRequest::Rename { creds, .. } = &mut request {
                *creds = Credentials { uid: 7, gid: 7, groups };
            }
            world.ask(0, 0, request).map(drop)
        };
        assert_eq!(ask(None), Err(Status::AccessDenied), "{from:?}");
        assert_eq!(ask(Some(vec![10])), Err(Status::AccessDenied), "{from:?}");
        assert_eq!(ask(Some(vec![11])), Ok(()), "{from:?}");
    }
    // Whom nothing is forbidden is not asked.
    world.rename((here, "f"), (there, "f"), 0).unwrap();
    world.check_consistent();
}

/// A file in `dir` (on MDT1) whose inode is on another MDT.
fn remote_file(world: &mut World, dir: Fid, mdt: u16) -> Fid {
    let home = mkdir_on(world, Fid::ROOT, "home", mdt);
    let file = world.mkfile(home, "f");
    world.rename((home, "f"), (dir, "f"), 0).unwrap();
    assert_eq!((file.mdt_index(), world.lookup(0, dir, "f")), (Some(mdt), Some(file)));
    file
}

/// The coordinator (MDT0) asks MDT1 for the name; before the answer arrives the name goes, and the inode with it, be that on
/// the coordinator or on a third MDT.
#[test]
fn a_rename_that_meets_a_stale_remote_name_finds_nothing() {
    for mdt in [0, 2] {
        let mut world = World::new(3, 2);
        let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
        let file = remote_file(&mut world, dir, mdt);
        world.held = Some((1, 0));
        let renamed = world.start(0, 0, rename((dir, "f"), (Fid::ROOT, "x"), 0));
        let unlink = MdtRequest::Unlink { parent: dir, name: b"f".to_vec(), creds: ROOT };
        let unlinked = world.start(1, 1, unlink);
        assert!(world.result(1, unlinked).is_some_and(|result| result.is_ok()), "inode on {mdt}");
        assert_eq!(world.getattr(1, file), Err(Status::Stale), "inode on {mdt}");
        assert_eq!(world.result(0, renamed), None, "inode on {mdt}");
        assert!(world.let_go() > 0, "the answer was on its way");
        world.pass_seconds(3);
        assert_eq!(world.result(0, renamed), Some(Err(Status::NotFound)), "inode on {mdt}");
        assert_eq!(world.names(Fid::ROOT), ["d", "home"]);
        world.check_consistent();
    }
}

/// The same, with another file under the name by then: that one is moved.
#[test]
fn a_rename_that_meets_a_stale_remote_name_takes_what_has_it_now() {
    for mdt in [0, 2] {
        let mut world = World::new(3, 2);
        let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
        remote_file(&mut world, dir, mdt);
        world.held = Some((1, 0));
        let renamed = world.start(0, 0, rename((dir, "f"), (Fid::ROOT, "x"), 0));
        let unlink = MdtRequest::Unlink { parent: dir, name: b"f".to_vec(), creds: ROOT };
        let unlinked = world.start(1, 1, unlink);
        assert!(world.result(1, unlinked).is_some_and(|result| result.is_ok()));
        let fifo = NewNode::Device { file_type: FileType::Fifo, rdev: 0 };
        let made = world.start(1, 1, MdtRequest::Create(new(dir, "f", fifo)));
        let file = fid_of(&world.result(1, made).unwrap().unwrap());
        assert!(world.let_go() > 0, "the answer was on its way");
        world.pass_seconds(3);
        assert!(world.result(0, renamed).unwrap().is_ok());
        assert_eq!((world.lookup(0, dir, "f"), world.lookup(0, Fid::ROOT, "x")), (None, Some(file)));
        world.check_consistent();
    }
}

/// What stays so is damage, and the rename ends.
#[test]
fn a_remote_name_without_its_inode_is_damage_after_some_attempts() {
    for mdt in [0, 2] {
        let mut world = World::new(3, 1);
        let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
        let file = remote_file(&mut world, dir, mdt);
        world.pass_seconds(3);
        let is_started = world.tamper(mdt, |store| {
            let mut batch = Batch::new();
            batch.delete(mds::rows::INODES, &file.key());
            store.apply(store.applied().next(), &batch).unwrap();
        });
        assert!(is_started);
        world.pass_seconds(70);
        let renamed = world.start(0, 0, rename((dir, "f"), (Fid::ROOT, "x"), 0));
        assert_eq!(world.result(0, renamed), None, "it is asked for again");
        world.pass_seconds(120);
        assert_eq!(world.result(0, renamed), Some(Err(Status::Corrupt)), "inode on {mdt}");
        assert!(world.servers[0].mds.under_way().is_empty(), "{}", world.under_way());
    }
}

#[test]
fn refusals_of_the_other_mdt_leave_nothing_behind() {
    let mut world = World::new(2, 1);
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    world.mkfile(dir, "f");
    let empty = world.mkdir(Fid::ROOT, "e");
    assert_eq!(world.rename((Fid::ROOT, "e"), (Fid::ROOT, "d"), 0), Err(Status::NotEmpty));
    assert_eq!(world.lookup(0, Fid::ROOT, "e"), Some(empty));
    world.servers[1].store.set_full(true);
    let file = world.lookup(0, dir, "f").expect("it was made");
    assert_eq!(world.link(file, Fid::ROOT, "l").unwrap_err(), Status::NoSpace);
    world.servers[1].store.set_full(false);
    world.pass_seconds(3);
    world.check_consistent();
}

/// A full MDT gives no FIDs to make directories with; for those that it has given there is room.
#[test]
fn a_full_mdt_makes_no_directories_but_those_that_it_has_promised() {
    let mut world = World::new(2, 1);
    world.getattr(0, Fid::ROOT).unwrap();
    world.servers[1].store.set_full(true);
    let mut request = new(Fid::ROOT, "x", NewNode::Directory);
    request.mdt_index = Some(1);
    assert_eq!(world.create(request.clone()), Err(Status::NoSpace));
    world.servers[1].store.set_full(false);
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    world.servers[1].store.set_full(true);
    let made = fid_of(&world.create(request).unwrap());
    world.pass_seconds(3);
    assert_eq!(world.getattr(0, made).map(|attr| attr.fid), Ok(made));
    assert_eq!(world.getattr(0, dir).map(|attr| attr.fid), Ok(dir));
    world.servers[1].store.set_full(false);
    world.check_consistent();
}

#[test]
fn renames_in_opposite_directions_both_end() {
    let mut world = World::new(2, 2);
    let (a, b) = (mkdir_on(&mut world, Fid::ROOT, "a", 0), mkdir_on(&mut world, Fid::ROOT, "b", 1));
    world.mkfile(a, "x");
    world.mkfile(b, "y");
    let there = rename((a, "x"), (b, "x"), 0);
    let back = rename((b, "y"), (a, "y"), 0);
    let first = (
        TargetId::mdt(1),
        world.submit(0, TargetId::mdt(1), wire::Request::Mdt(there), rpc::Kind::Modifying),
    );
    let second =
        (TargetId::mdt(0), world.submit(1, TargetId::mdt(0), wire::Request::Mdt(back), rpc::Kind::Modifying));
    world.run();
    world.pass_seconds(5);
    assert!(world.result(0, first).unwrap().is_ok());
    assert!(world.result(1, second).unwrap().is_ok());
    assert_eq!((world.names(a), world.names(b)), (vec!["y".to_string()], vec!["x".to_string()]));
    world.check_consistent();
}

#[test]
fn directories_that_would_swallow_each_other_do_not() {
    let mut world = World::new(2, 2);
    let (a, c) = (mkdir_on(&mut world, Fid::ROOT, "a", 0), mkdir_on(&mut world, Fid::ROOT, "c", 1));
    let (b, d) = (mkdir_on(&mut world, a, "b", 1), mkdir_on(&mut world, c, "d", 0));
    let first = rename((Fid::ROOT, "a"), (d, "a"), 0);
    let second = rename((Fid::ROOT, "c"), (b, "c"), 0);
    let first = (
        TargetId::mdt(0),
        world.submit(0, TargetId::mdt(0), wire::Request::Mdt(first), rpc::Kind::Modifying),
    );
    let second = (
        TargetId::mdt(1),
        world.submit(1, TargetId::mdt(1), wire::Request::Mdt(second), rpc::Kind::Modifying),
    );
    world.run();
    world.pass_seconds(5);
    let results = [world.result(0, first).unwrap(), world.result(1, second).unwrap()];
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    assert!(results.contains(&Err(Status::Invalid)));
    world.check_consistent();
}

/// The participant prepared and knows no decision; the coordinator comes back without its record, then with it.
#[test]
fn a_coordinator_that_lost_its_record_gets_it_back_from_the_client() {
    for kept in [0, 100] {
        let mut world = World::new(2, 1);
        world.getattr(0, Fid::ROOT).unwrap();
        world.servers[0].is_synced = false;
        let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
        world.pass(GATHERED);
        // No decision can leave: it is not durable.
        assert!(!world.servers[1].mds.is_quiet());
        world.servers[0].is_synced = true;
        world.crash(0, kept);
        world.pass_seconds(5);
        assert_eq!(world.lookup(0, Fid::ROOT, "d"), Some(dir), "kept {kept}");
        world.mkfile(dir, "f");
        world.check_consistent();
    }
}

#[test]
fn a_coordinator_that_lost_its_record_and_its_client_undoes_the_prepare() {
    let mut world = World::new(2, 2);
    world.getattr(0, Fid::ROOT).unwrap();
    world.getattr(1, Fid::ROOT).unwrap();
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    world.getattr(1, dir).unwrap();
    world.pass_seconds(3);
    world.servers[0].is_synced = false;
    world.rmdir(Fid::ROOT, "d").unwrap();
    let dead = Endpoint::Client(world.clients[0].id);
    for mdt in [0, 1] {
        world.cut.insert((dead, Endpoint::Target(TargetId::mdt(mdt))));
    }
    world.servers[0].is_synced = true;
    world.crash(0, 0);
    world.pass_seconds(70);
    let lookup = MdtRequest::Lookup { parent: Fid::ROOT, name: b"d".to_vec(), want: Default::default() };
    let found = world.ask(1, 0, lookup).unwrap();
    assert_eq!(fid_of(&found), dir);
    let of = world.start(1, 1, MdtRequest::Create(new(dir, "f", NewNode::Regular)));
    assert!(world.result(1, of).unwrap().is_ok(), "nothing is frozen");
    world.check_consistent();
}

/// What had been prepared before went with one transaction and the replay's own prepare came with the next: between them nothing was frozen, and a
/// participant that lost power there let a file be made in a directory of which the removal was acknowledged.
#[test]
fn wherever_a_log_ends_that_a_replay_has_prepared_in_again_it_has_one_of_the_prepares() {
    let replayed = || {
        let mut world = World::new(2, 1);
        world.getattr(0, Fid::ROOT).unwrap();
        mkdir_on(&mut world, Fid::ROOT, "d", 1);
        world.pass_seconds(3);
        world.servers[0].is_synced = false;
        world.rmdir(Fid::ROOT, "d").unwrap();
        assert_eq!(prepare_count(&world, 1), 1);
        world.servers[0].is_synced = true;
        world.servers[1].is_synced = false;
        world.crash(0, 0);
        world.pass_seconds(2);
        assert!(world.servers[0].mds.core().is_recovering(), "the answer waits for the other disk");
        world
    };
    let unsynced_count = replayed().servers[1].store.unsynced_count();
    assert!(unsynced_count > 0);
    for kept in 0..=unsynced_count {
        let mut world = replayed();
        world.crash(1, kept);
        assert_eq!(prepare_count(&world, 1), 1, "kept {kept} of {unsynced_count}");
        world.servers[1].is_synced = true;
        world.pass_seconds(10);
        assert_eq!(world.lookup(0, Fid::ROOT, "d"), None);
        world.check_consistent();
    }
}

/// A participant has what its coordinator and their client have both lost, and gives it back; if it is lost as well, nothing is left.
#[test]
fn the_participant_brings_back_what_coordinator_and_client_have_lost() {
    for is_participant_lost in [false, true] {
        let mut world = World::new(2, 2);
        world.getattr(0, Fid::ROOT).unwrap();
        world.getattr(1, Fid::ROOT).unwrap();
        let before = mkdir_on(&mut world, Fid::ROOT, "before", 1);
        world.getattr(1, before).unwrap();
        // Each has FIDs of the other then.
        mkdir_on(&mut world, before, "first", 0);
        world.pass_seconds(3);
        world.servers[0].is_synced = false;
        let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
        let striped = MdtRequest::MakeStriped {
            create: new(before, "s", NewNode::Directory),
            striping: wire::mdt::DirStriping { stripe_count: 2, mdts: vec![] },
            stripes: Vec::new(),
        };
        let looking = world.start(1, 1, MdtRequest::Getattr { fid: dir, want: Default::default() });
        world.pass_seconds(2);
        assert_eq!(world.result(1, looking), None, "it is not durable where it was made");
        let making = world.start(0, 1, striped);
        let made = world.result(0, making).unwrap().unwrap();
        let dead = Endpoint::Client(world.clients[0].id);
        for mdt in [0, 1] {
            world.cut.insert((dead, Endpoint::Target(TargetId::mdt(mdt))));
        }
        if is_participant_lost {
            world.set_silent(0, true);
            world.crash(1, 0);
            world.set_silent(0, false);
            world.cut.insert((dead, Endpoint::Target(TargetId::mdt(0))));
        }
        world.crash(0, 0);
        world.servers[0].is_synced = true;
        world.pass_seconds(70);
        let lookup = MdtRequest::Lookup { parent: Fid::ROOT, name: b"d".to_vec(), want: Default::default() };
        let found = world.ask(1, 0, lookup).unwrap();
        let attr = world.result(1, looking).unwrap();
        if is_participant_lost {
            assert!(matches!(found, MdtReply::Absent { .. }));
            assert_eq!(attr, Err(Status::Stale));
        } else {
            assert_eq!((fid_of(&found), fid_of(&attr.unwrap())), (dir, dir));
            assert_eq!(world.servers[0].mds.core().recovery_report(world.now.time).stood_in_count, 1);
        }
        // That one MDT0001 has made, durably, and MDT0000 gets its part again.
        let lookup = MdtRequest::Lookup { parent: before, name: b"s".to_vec(), want: Default::default() };
        assert_eq!(fid_of(&world.ask(1, 1, lookup).unwrap()), fid_of(&made));
        let other = world.start(1, 0, MdtRequest::Create(new(Fid::ROOT, "d2", NewNode::Directory)));
        assert!(world.result(1, other).unwrap().is_ok());
        world.check_consistent();
    }
}

#[test]
fn a_participant_that_restarts_keeps_what_it_prepared() {
    let mut world = World::new(2, 1);
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    world.servers[0].is_synced = false;
    world.rmdir(Fid::ROOT, "d").unwrap();
    // Prepared, durably; undecided, as the coordinator's record is not durable.
    world.crash(1, 0);
    assert!(!world.servers[1].mds.is_quiet());
    // Whoever looks waits for the decision.
    let looking = world.start(0, 1, MdtRequest::Getattr { fid: dir, want: Default::default() });
    world.pass_seconds(2);
    assert_eq!(world.result(0, looking), None);
    world.servers[0].is_synced = true;
    world.pass_seconds(5);
    assert_eq!(world.result(0, looking), Some(Err(Status::Stale)));
    world.check_consistent();
}

/// Hazard 1.2: what another MDT has built on an operation that its coordinator can still lose would have to go with it. So
/// nobody builds on it: whoever looks at it waits until it is durable.
#[test]
fn nothing_is_built_on_what_a_coordinator_can_still_lose() {
    for is_lost in [false, true] {
        let mut world = World::new(3, 2);
        let top = mkdir_on(&mut world, Fid::ROOT, "top", 2);
        for client in [0, 1] {
            // Sessions begin with something durable.
            world.getattr(client, Fid::ROOT).unwrap();
            world.getattr(client, top).unwrap();
        }
        world.servers[2].is_synced = false;
        let a = mkdir_on(&mut world, top, "a", 0);
        let mut request = new(a, "x", NewNode::Directory);
        request.mdt_index = Some(1);
        let above = world.start(1, 0, MdtRequest::Create(request));
        world.pass_seconds(3);
        assert_eq!(world.result(1, above), None, "it waits for the decision about its parent");
        if is_lost {
            // The one client that could bring it back is gone too.
            let dead = Endpoint::Client(world.clients[0].id);
            let mdts = (0..3).map(|mdt| (dead, Endpoint::Target(TargetId::mdt(mdt))));
            world.cut.extend(mdts.collect::<Vec<_>>());
        }
        if is_lost {
            // MDT0000 does not get again what it has kept for MDT0002.
            world.set_silent(2, true);
            for mdt in [0, 1, 2] {
                world.crash(mdt, 0);
            }
            world.set_silent(2, false);
            let dead = Endpoint::Client(world.clients[0].id);
            world.cut.insert((dead, Endpoint::Target(TargetId::mdt(2))));
        }
        world.servers[2].is_synced = true;
        world.pass_seconds(if is_lost { 90 } else { 3 });
        let built = world.result(1, above).unwrap();
        assert_eq!(built.is_err(), is_lost, "{built:?}");
        let lookup = MdtRequest::Lookup { parent: top, name: b"a".to_vec(), want: Default::default() };
        assert_eq!(matches!(world.ask(1, 2, lookup), Ok(MdtReply::Absent { .. })), is_lost);
        world.check_consistent();
    }
}

/// Hazard 1.9: a FID that was made up, that is gone again, or that its coordinator has lost: nobody waits for it.
#[test]
fn a_fid_that_does_not_come_is_not_waited_for() {
    let mut world = World::new(2, 1);
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    let gone = world.mkfile(dir, "gone");
    world.unlink(dir, "gone").unwrap();
    let coming = Fid { oid: gone.oid + 1000, ..gone };
    for fid in [gone, coming] {
        let want = Default::default();
        for request in [
            MdtRequest::Getattr { fid, want },
            MdtRequest::Create(new(fid, "f", NewNode::Regular)),
            readdir(fid, 0, 1),
        ] {
            let of = world.start(0, 1, request);
            assert!(matches!(world.result(0, of), Some(Err(_))), "at once");
        }
        // The same as a part of an operation of the other MDT.
        for request in [
            MdtRequest::Link { fid, parent: Fid::ROOT, name: b"l".to_vec(), creds: ROOT, want },
            rename((fid, "f"), (Fid::ROOT, "l"), 0),
        ] {
            let of = world.start(0, 0, request);
            assert!(matches!(world.result(0, of), Some(Err(_))), "at once");
        }
    }
    world.check_consistent();
}

/// Hazard 1.7: MDT0000 dies with an operation that MDT0001 has prepared and that nobody decides. All else on MDT0001 is
/// committed and can be synced; only what was prepared waits.
#[test]
fn a_dead_mdt_holds_up_no_commit_on_another() {
    let mut world = World::new(2, 2);
    let doomed = mkdir_on(&mut world, Fid::ROOT, "doomed", 1);
    let other = mkdir_on(&mut world, Fid::ROOT, "other", 1);
    world.servers[0].is_synced = false;
    world.rmdir(Fid::ROOT, "doomed").unwrap();
    assert!(!world.servers[1].mds.is_quiet(), "prepared, not decided");
    world.set_silent(0, true);
    for n in 0..10 {
        let of = world.start(1, 1, MdtRequest::Create(new(other, &format!("f{n}"), NewNode::Regular)));
        assert!(world.result(1, of).unwrap().is_ok());
    }
    assert!(world.ask(1, 1, MdtRequest::Sync).is_ok());
    world.pass_seconds(5);
    assert_eq!(world.retained_count(1, 1), 0, "all is reported as committed");
    let inside = world.start(1, 1, MdtRequest::Create(new(doomed, "f", NewNode::Regular)));
    world.pass_seconds(5);
    assert_eq!(world.result(1, inside), None, "what was prepared waits for the decision");
    world.servers[0].is_synced = true;
    world.set_silent(0, false);
    world.pass_seconds(20);
    assert_eq!(world.result(1, inside), Some(Err(Status::NotFound)));
    assert_eq!(world.names(other).len(), 10);
    world.check_consistent();
}

/// Hazard 1.10: MDT0001 executes the same parts twice, because a crash took back that it had done so. What a client did
/// between the two is replayed on top; what it saw is not renumbered downwards; nothing is counted twice.
#[test]
fn a_part_that_is_executed_again_changes_nothing_more() {
    for kept in 0..6 {
        let mut world = World::new(2, 2);
        let dir = mkdir_on(&mut world, Fid::ROOT, "dir", 1);
        let file = world.mkfile(dir, "f");
        world.link(file, Fid::ROOT, "g").unwrap();
        world.getattr(1, dir).unwrap();
        world.servers[0].is_synced = false;
        let made = mkdir_on(&mut world, Fid::ROOT, "made", 1);
        world.unlink(Fid::ROOT, "g").unwrap();
        // The decisions leave, are executed, and are not durable where they were.
        world.servers[1].is_synced = false;
        world.servers[0].is_synced = true;
        world.run();
        let of = world.start(1, 1, MdtRequest::Create(new(made, "x", NewNode::Regular)));
        let inside = fid_of(&world.result(1, of).unwrap().unwrap());
        let (made_before, file_before) = (world.getattr(1, made).unwrap(), world.getattr(1, file).unwrap());
        assert_eq!(file_before.link_count, 1);
        world.crash(1, kept);
        world.servers[1].is_synced = true;
        world.pass_seconds(5);
        assert_eq!(world.lookup(1, made, "x"), Some(inside), "kept {kept}: the replay was taken");
        assert!(world.clients.iter().all(|client| client.evictions == 0), "kept {kept}");
        for (fid, before) in [(made, made_before), (file, file_before)] {
            let after = world.getattr(1, fid).unwrap();
            assert_eq!(after.link_count, before.link_count, "kept {kept}");
            assert!(after.version >= before.version, "kept {kept}: {after:?} before: {before:?}");
        }
        world.check_consistent();
    }
}

pub fn link(from: u16, to: u16) -> (Endpoint, Endpoint) {
    (Endpoint::Target(TargetId::mdt(from)), Endpoint::Target(TargetId::mdt(to)))
}

/// The groups of the caller go along with the parts, and a client can name so many that no frame carries both.
#[test]
fn an_operation_whose_parts_are_too_long_for_a_frame_is_refused() {
    let mut world = World::new(2, 1);
    let (from, to) = (mkdir_on(&mut world, Fid::ROOT, "d", 1), mkdir_on(&mut world, Fid::ROOT, "e", 0));
    let name = "n".repeat(255);
    world.mkdir(from, &name);
    let with_groups = |count: usize| {
        let mut request = rename((from, &name), (to, &name), 0);
        if let MdtRequest::Rename { creds, .. } = &mut request {
            creds.groups = Some(vec![7; count]);
        }
        request
    };
    let without = Request::Mdt(with_groups(0)).to_bytes().len();
    let longest = with_groups((base::limits::FRAME_BODY_BYTES_MAX - without) / 4);
    assert_eq!(world.ask(0, 0, longest), Err(Status::Overflow));
    assert!(world.servers.iter().all(|server| server.mds.under_way().is_empty()), "{}", world.under_way());
    world.ask(0, 0, with_groups(100)).unwrap();
    world.check_consistent();
}

/// What is no damage is not taken for it because another MDT has had it all give way for long.
#[test]
fn a_name_that_goes_is_no_damage_after_a_long_recovery_of_its_mdt() {
    let mut world = World::new(2, 2);
    let far = mkdir_on(&mut world, Fid::ROOT, "far", 1);
    let file = world.mkfile(Fid::ROOT, "f");
    world.rename((Fid::ROOT, "f"), (far, "f"), 0).unwrap();
    world.getattr(1, far).unwrap();
    world.pass_seconds(3);
    // Who does not come back keeps it recovering.
    world.set_cut(1, 1, true);
    world.kill(1);
    let renamed = world.start(0, 0, rename((far, "f"), (Fid::ROOT, "g"), 0));
    world.pass_seconds(20);
    assert!(world.servers[1].mds.core().is_recovering());
    assert_eq!(world.result(0, renamed), None);
    world.set_cut(1, 1, false);
    while world.servers[1].mds.core().is_recovering() {
        world.held = None;
        world.pass(Duration::from_millis(10));
        world.held = Some((1, 0));
    }
    world.pass(Duration::from_millis(500));
    assert_eq!(world.result(0, renamed), None);
    // It is removed after the name was told.
    let unlink = MdtRequest::Unlink { parent: far, name: b"f".to_vec(), creds: ROOT };
    let removed = world.start(1, 1, unlink);
    world.pass_seconds(1);
    assert_eq!(world.result(1, removed).map(|result| result.map(drop)), Some(Ok(())));
    assert_eq!(world.getattr(1, file), Err(Status::Stale));
    world.let_go();
    world.pass_seconds(3);
    assert_eq!(world.result(0, renamed), Some(Err(Status::NotFound)));
    world.check_consistent();
}

/// What was answered is not refused for want of room when it is replayed, also not by another MDT that was not asked for it at first.
#[test]
fn a_replay_over_two_mdts_is_prepared_where_there_is_no_room_any_more() {
    let mut world = World::new(2, 1);
    let home = mkdir_on(&mut world, Fid::ROOT, "home", 1);
    let file = world.mkfile(home, "f");
    world.pass_seconds(3);
    world.servers[0].is_synced = false;
    world.link(file, Fid::ROOT, "g").unwrap();
    world.servers[1].store.set_reserve(Reserve::Low);
    world.crash(0, 0);
    world.servers[0].is_synced = true;
    world.pass_seconds(3);
    assert_eq!(world.lookup(0, Fid::ROOT, "g"), Some(file));
    assert_eq!(world.getattr(0, file).unwrap().link_count, 2);
    assert!(world.clients[0].refused.is_empty(), "{:?}", world.clients[0].refused);
    assert_eq!(world.link(file, Fid::ROOT, "new"), Err(Status::NoSpace));
    world.check_consistent();
}

/// Who removes or moves what another MDT has a part in waits for that; whoever uses the same directories for something else does not.
#[test]
fn who_waits_for_a_dead_mdt_is_in_nobodys_way() {
    let mut world = World::new(3, 2);
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    let [from, to] = ["from", "to"].map(|name| world.mkdir(Fid::ROOT, name));
    world.mkdir(from, "moves");
    world.mkdir(from, "stays");
    let below = mkdir_on(&mut world, dir, "below", 2);
    let stripes = striped::make(&mut world, Fid::ROOT, "striped", 3, &[0, 1, 2]).unwrap();
    world.pass_seconds(3);
    world.set_silent(1, true);
    let set = SetAttr { permissions: Some(0o700), ..Default::default() };
    let want = LockWant::default();
    let waiting = [
        (0, MdtRequest::Rmdir { parent: Fid::ROOT, name: b"d".to_vec(), creds: ROOT }),
        (0, MdtRequest::Setattr { fid: stripes[0], set, creds: ROOT, handle: None, want, stamp: None }),
        // The way up leads over the dead one.
        (2, rename((from, "moves"), (below, "moved"), 0)),
    ]
    .map(|(mdt, request)| world.start(0, mdt, request));
    world.pass_seconds(10);
    let asked = |world: &mut World| world.take_asked(0, 1).len() + world.take_asked(2, 1).len();
    asked(&mut world);
    world.pass_seconds(20);
    assert_eq!(asked(&mut world), 0, "nothing reaches it");
    world.clients[1].is_polite = true;
    let made = world.ask(1, 0, MdtRequest::Create(new(Fid::ROOT, "f", NewNode::Regular)));
    assert!(made.is_ok(), "{made:?}");
    let attr = world.ask(1, 2, MdtRequest::Getattr { fid: stripes[2], want });
    assert!(attr.is_ok(), "{attr:?}");
    let moved = world.ask(1, 0, rename((from, "stays"), (to, "moved"), 0));
    assert!(moved.is_ok(), "{moved:?}");
    for waits in waiting {
        assert_eq!(world.result(0, waits), None);
    }
    world.set_silent(1, false);
    world.pass_seconds(20);
    assert_eq!(world.result(0, waiting[0]), Some(Err(Status::NotEmpty)));
    assert!(matches!(world.result(0, waiting[1]), Some(Ok(_))));
    assert!(matches!(world.result(0, waiting[2]), Some(Ok(_))));
    world.check_consistent();
}

/// Each of them waits for what the others have kept of dead clients, and asks it of a session.
#[test]
fn mdts_that_recover_together_answer_each_other_at_once() {
    let mut world = World::new(2, 1);
    mkdir_on(&mut world, Fid::ROOT, "first", 1);
    world.pass_seconds(3);
    for server in &mut world.servers {
        server.is_synced = false;
    }
    mkdir_on(&mut world, Fid::ROOT, "second", 1);
    for mdt in [0, 1] {
        world.servers[usize::from(mdt)].is_synced = true;
        world.crash(mdt, 0);
    }
    world.pass_seconds(1);
    assert!(world.servers.iter().all(|server| !server.mds.core().is_recovering()));
    assert!(world.lookup(0, Fid::ROOT, "second").is_some());
}

/// It names the directory alone, and changes stripes that nothing in it names. Whoever has prepared that hears of no decision as long as the
/// replay waits for another stripe's MDT.
#[test]
fn what_a_replay_of_attributes_does_to_stripes_is_not_void() {
    let mut world = World::new(3, 1);
    let stripes = striped::make(&mut world, Fid::ROOT, "striped", 3, &[0, 1, 2]).unwrap();
    world.pass_seconds(3);
    world.servers[0].is_synced = false;
    let set = SetAttr { permissions: Some(0o700), ..Default::default() };
    let want = LockWant::default();
    let request = MdtRequest::Setattr { fid: stripes[0], set, creds: ROOT, handle: None, want, stamp: None };
    world.ask(0, 0, request).unwrap();
    assert_eq!([1, 2].map(|mdt| prepare_count(&world, mdt)), [1, 1], "nobody has heard of the decision");
    world.set_silent(2, true);
    world.crash(0, 0);
    world.pass_seconds(10);
    assert_eq!(prepare_count(&world, 1), 1);
    world.servers[0].is_synced = true;
    world.set_silent(2, false);
    world.pass_seconds(10);
    for stripe in stripes {
        assert_eq!(world.getattr(0, stripe).unwrap().permissions, 0o700);
    }
    assert_eq!([1, 2].map(|mdt| prepare_count(&world, mdt)), [0, 0]);
    assert_eq!(world.clients[0].evictions, 0);
    world.check_consistent();
}

/// It answers what is replayed with parts there, whomever it waits for itself.
#[test]
fn an_mdt_that_recovers_is_not_away_for_the_replays_of_another() {
    let mut world = World::new(2, 2);
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    world.mkfile(dir, "f");
    world.ask(1, 1, MdtRequest::Getattr { fid: dir, want: LockWant::default() }).unwrap();
    world.pass_seconds(3);
    world.servers[0].is_synced = false;
    world.rename((dir, "f"), (Fid::ROOT, "f"), 0).unwrap();
    world.set_cut(1, 1, true);
    for mdt in [0, 1] {
        world.servers[mdt].is_synced = true;
        world.crash(mdt as u16, 0);
    }
    world.pass_seconds(5);
    let recovering = [0, 1].map(|mdt: usize| world.servers[mdt].mds.core().is_recovering());
    assert_eq!(recovering, [false, true], "the second waits for a client that does not come");
    world.set_cut(1, 1, false);
    world.pass_seconds(10);
    assert!(world.lookup(0, Fid::ROOT, "f").is_some());
    world.check_consistent();
}
