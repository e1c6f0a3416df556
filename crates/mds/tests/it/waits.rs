//! Which disks an operation over two MDTs waits for, counted: one sync of the participant, which all that prepare meanwhile share, and none
//! of the coordinator before the answer.

use crate::cross::mkdir_on;
use crate::harness::{ROOT, World, rename};
use crate::striped::make;
use base::{Duration, Fid, SetAttr, Status, TargetId};
use wire::lock::LockWant;
use wire::{MdtRequest, PeerRequest, Request};

type Asked = (TargetId, rpc::Ticket);

/// Everything is durable everywhere, and from now on only what somebody waits for.
fn rest(world: &mut World) {
    world.servers.iter_mut().for_each(|server| server.is_synced = true);
    world.pass_seconds(3);
    for server in &mut world.servers {
        assert!(server.mds.is_quiet());
        server.is_synced = false;
        server.store.take_awaited_kick();
    }
}

/// Syncs, one at a time, until `is_over` or nobody waits for any; how many each MDT had.
fn sync_until(world: &mut World, is_over: impl Fn(&World) -> bool) -> Vec<usize> {
    let mut counts = vec![0; world.servers.len()];
    loop {
        let mut has_synced = false;
        for index in 0..counts.len() {
            if is_over(world) {
                return counts;
            }
            if world.sync_if_awaited(index as u16) {
                counts[index] += 1;
                has_synced = true;
            }
        }
        if !has_synced {
            return counts;
        }
    }
}

/// How many syncs of each MDT all of them wait for until they are answered, and how many follow.
fn awaited(world: &mut World, mdt: u16, requests: Vec<MdtRequest>) -> [Vec<usize>; 2] {
    let asked: Vec<Asked> = requests.into_iter().map(|request| world.start(0, mdt, request)).collect();
    let is_answered = |world: &World| asked.iter().all(|of| world.result(0, *of).is_some());
    let before = sync_until(world, is_answered);
    for of in &asked {
        assert!(matches!(world.result(0, *of), Some(Ok(_))), "{:?}", world.result(0, *of));
    }
    let after = sync_until(world, |_| false);
    [before, after]
}

fn unlink(parent: Fid, name: &str) -> MdtRequest {
    MdtRequest::Unlink { parent, name: name.into(), creds: ROOT }
}

fn rmdir(parent: Fid, name: &str) -> MdtRequest {
    MdtRequest::Rmdir { parent, name: name.into(), creds: ROOT }
}

fn link(fid: Fid, parent: Fid, name: &str) -> MdtRequest {
    MdtRequest::Link { fid, parent, name: name.into(), creds: ROOT, want: LockWant::default() }
}

/// The participant's second sync, so that the coordinator could forget its decision, was one that each operation forced, and the next prepare
/// waited behind it.
#[test]
fn an_operation_over_two_mdts_waits_for_one_sync_and_causes_one() {
    let mut world = World::new(2, 1);
    let there = mkdir_on(&mut world, Fid::ROOT, "there", 1);
    let [f, g] = ["f", "g"].map(|name| world.mkfile(there, name));
    world.mkfile(Fid::ROOT, "old");
    for name in ["d", "below"] {
        world.mkdir(there, name);
    }
    mkdir_on(&mut world, Fid::ROOT, "gone", 1);
    let striped = make(&mut world, Fid::ROOT, "striped", 0, &[0, 1]).unwrap()[0];
    let set = SetAttr { permissions: Some(0o700), ..SetAttr::default() };
    let want = LockWant::default();
    let chmod = MdtRequest::Setattr { fid: striped, set, creds: ROOT, handle: None, want, stamp: None };
    for (what, request) in [
        ("link", link(f, Fid::ROOT, "link")),
        ("unlink", unlink(Fid::ROOT, "link")),
        ("rename", rename((there, "f"), (Fid::ROOT, "f"), 0)),
        ("rename over", rename((there, "g"), (Fid::ROOT, "old"), 0)),
        ("rename of a directory", rename((there, "d"), (Fid::ROOT, "d"), 0)),
        ("unlink of the last name", unlink(Fid::ROOT, "f")),
        ("rmdir", rmdir(Fid::ROOT, "gone")),
        ("setattr", chmod),
    ] {
        rest(&mut world);
        let [before, after] = awaited(&mut world, 0, vec![request]);
        assert_eq!((before, after), (vec![0, 1], vec![1, 0]), "{what}");
    }
    rest(&mut world);
    assert_eq!(world.getattr(0, g).map(|attr| attr.link_count), Ok(1));
    world.check_consistent();
}

/// They prepare side by side.
#[test]
fn each_of_two_participants_syncs_once_before_the_answer() {
    let mut world = World::new(3, 1);
    let [there, beyond] =
        [("there", 1), ("beyond", 2)].map(|(name, mdt)| mkdir_on(&mut world, Fid::ROOT, name, mdt));
    for name in ["f", "g"] {
        world.mkfile(beyond, name);
        assert!(world.ask(0, 1, rename((beyond, name), (there, name), 0)).is_ok());
    }
    world.mkfile(Fid::ROOT, "old");
    let striped = make(&mut world, Fid::ROOT, "striped", 0, &[0, 1, 2]).unwrap()[0];
    let set = SetAttr { permissions: Some(0o700), ..SetAttr::default() };
    let chmod = MdtRequest::Setattr {
        fid: striped,
        set,
        creds: ROOT,
        handle: None,
        want: LockWant::default(),
        stamp: None,
    };
    for (what, request) in [
        ("rename", rename((there, "f"), (Fid::ROOT, "f"), 0)),
        ("rename over", rename((there, "g"), (Fid::ROOT, "old"), 0)),
        ("setattr", chmod),
        ("rmdir", rmdir(Fid::ROOT, "striped")),
    ] {
        rest(&mut world);
        let [before, after] = awaited(&mut world, 0, vec![request]);
        assert_eq!((before, after), (vec![0, 1, 1], vec![1, 0, 0]), "{what}");
    }
    rest(&mut world);
    world.check_consistent();
}

/// Sixteen processes, each in a directory of its own, wait for one sync of the participant, as one does. (In one directory they go one after the
/// other: each holds its lock until it is decided.)
#[test]
fn those_who_prepare_at_one_time_share_a_sync() {
    let mut world = World::new(2, 1);
    let parents: Vec<Fid> = (0..16).map(|number| world.mkdir(Fid::ROOT, &format!("p{number}"))).collect();
    for parent in &parents {
        mkdir_on(&mut world, *parent, "d", 1);
    }
    rest(&mut world);
    let requests = parents.iter().map(|parent| rmdir(*parent, "d")).collect();
    assert_eq!(awaited(&mut world, 0, requests), [vec![0, 1], vec![1, 0]]);
    rest(&mut world);
    world.check_consistent();
}

/// `rm -r`: the MDT of the directory does not know that the client has heard that the file is gone. It waited for a sync
/// until that was durable, and then for another one until the prepare was, which is durable only with all that was before it.
#[test]
fn a_prepare_makes_what_its_caller_has_not_heard_of_durable_with_itself() {
    let mut world = World::new(2, 1);
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    world.mkfile(dir, "f");
    rest(&mut world);
    let of = world.start(0, 1, unlink(dir, "f"));
    assert!(matches!(world.result(0, of), Some(Ok(_))), "from memory");
    assert_eq!(awaited(&mut world, 0, vec![rmdir(Fid::ROOT, "d")]), [vec![0, 1], vec![1, 0]]);
    rest(&mut world);
    world.check_consistent();
}

/// The other one waits for the first, and nobody for the durability of what never was.
#[test]
fn an_attempt_that_gives_way_has_no_disk_synced() {
    let mut world = World::new(2, 1);
    let there = mkdir_on(&mut world, Fid::ROOT, "there", 1);
    let file = world.mkfile(there, "f");
    let [a, b] = ["a", "b"].map(|name| world.mkdir(Fid::ROOT, name));
    for parent in [a, b] {
        world.link(file, parent, "link").unwrap();
    }
    rest(&mut world);
    let first = world.start(0, 0, unlink(a, "link"));
    assert!(world.servers[1].store.take_awaited_kick(), "its prepare");
    let second = world.start(0, 0, unlink(b, "link"));
    let asked = world.take_asked(0, 1);
    let is_void =
        |request: &Request| matches!(request, Request::Peer(PeerRequest::Decide { is_commit: false, .. }));
    assert!(asked.iter().any(is_void), "{asked:?}");
    assert!(!world.servers[1].store.take_awaited_kick(), "it has given way");
    for of in [first, second] {
        assert_eq!(world.result(0, of), None);
    }
    rest(&mut world);
    for of in [first, second] {
        assert!(matches!(world.result(0, of), Some(Ok(_))));
    }
    assert_eq!(world.getattr(0, file).map(|attr| attr.link_count), Ok(1));
    world.check_consistent();
}

/// The coordinator keeps its decision until it is durable on the participant, which comes by itself: nobody waits for it. A coordinator
/// that was restarted asks nothing of the participant before that, so there somebody does.
#[test]
fn a_decision_is_durable_at_once_only_for_a_coordinator_that_was_restarted() {
    for is_restarted in [false, true] {
        let mut world = World::new(2, 1);
        let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
        rest(&mut world);
        let of = world.start(0, 0, rmdir(Fid::ROOT, "d"));
        assert!(world.sync_if_awaited(1), "the prepare");
        assert!(matches!(world.result(0, of), Some(Ok(_))));
        if is_restarted {
            let (store, kept) = (&world.servers[0].store, world.servers[0].store.unsynced_count());
            assert!(store.take_awaited_kick(), "the decision");
            // It is durable, and nobody was told.
            world.crash(0, kept);
            world.servers[0].is_synced = true;
        } else {
            assert!(world.sync_if_awaited(0), "the decision");
        }
        for _ in 0..100 {
            world.pass(Duration::from_millis(50));
            let is_synced = world.sync_if_awaited(1);
            assert!(is_restarted || !is_synced);
        }
        assert_eq!(world.servers[0].mds.is_quiet(), is_restarted, "{}", world.under_way());
        rest(&mut world);
        // The client has no session there yet, and gets one when that is durable.
        world.servers[1].is_synced = true;
        assert_eq!(world.getattr(0, dir), Err(Status::Stale));
        world.check_consistent();
    }
}
