//! The rename lock of the file system: who waits for it, and when it goes back.

use crate::cross::{link, mkdir_on};
use crate::cross_random::{Started, await_result};
use crate::harness::{World, rename};
use crate::streams::prepare_count;
use base::{Duration, Fid, Status, TargetId};
use store::{Batch, MetaStore};
use wire::{MdtRequest, PeerRequest, Request};

/// Hazard 2.11: MDT0000 has taken as many requests of MDT0001 as it takes of anybody, and all of them wait for the
/// rename lock. That it is given back is not refused for load, nor what its holder asks there first: for the way up, which leads over a
/// directory of MDT0000.
#[test]
fn the_rename_lock_comes_back_however_many_wait_for_it() {
    let renames_per_client = usize::from(base::limits::SLOT_COUNT);
    let client_count = base::limits::REQUESTS_PER_EXPORT_MAX / renames_per_client + 2;
    let mut world = World::new(2, client_count as u16);
    let above = world.mkdir(Fid::ROOT, "above");
    let to = mkdir_on(&mut world, above, "to", 1);
    let mut started = Vec::new();
    for client in 0..client_count {
        let from = mkdir_on(&mut world, to, &format!("from{client}"), 1);
        for n in 0..renames_per_client {
            mkdir_on(&mut world, from, &format!("d{n}"), 1);
        }
        world.getattr(client, to).unwrap();
        for n in 0..renames_per_client {
            started.push((client, from, n));
        }
    }
    let submit = |world: &mut World, (client, from, n): (usize, Fid, usize)| {
        let request = rename((from, &format!("d{n}")), (to, &format!("d{client}.{n}")), 0);
        let target = TargetId::mdt(1);
        (client, (target, world.submit(client, target, wire::Request::Mdt(request), rpc::Kind::Modifying)))
    };
    let started: Vec<Started> = started.into_iter().map(|one| submit(&mut world, one)).collect();
    assert!(started.len() > base::limits::REQUESTS_PER_EXPORT_MAX);
    for (client, of) in started {
        assert!(await_result(&mut world, client, of, "a rename").is_ok());
    }
    assert_eq!(
        world.getattr(0, to).unwrap().link_count as usize,
        2 + client_count * (renames_per_client + 1)
    );
}

/// The second move relied on the first, was durable elsewhere before it, and outlived it: both directories were below themselves, with all that was in them.
#[test]
fn a_directory_is_moved_below_one_that_has_moved_only_when_that_is_durable() {
    for is_lost in [true, false] {
        let mut world = World::new(3, 1);
        let q = mkdir_on(&mut world, Fid::ROOT, "q", 2);
        let p1 = mkdir_on(&mut world, q, "p1", 1);
        let d = mkdir_on(&mut world, p1, "d", 1);
        let e = mkdir_on(&mut world, d, "e", 2);
        let p2 = mkdir_on(&mut world, Fid::ROOT, "p2", 1);
        world.pass_seconds(3);
        world.servers[1].is_synced = false;
        world.rename((p1, "d"), (p2, "d"), 0).unwrap();
        let below = world.start(0, 2, rename((Fid::ROOT, "q"), (e, "q"), 0));
        world.pass_seconds(1);
        assert_eq!(world.result(0, below), None, "its way up leads over what could be lost");
        world.servers[1].is_synced = true;
        if is_lost {
            world.set_cut(0, 1, true);
            world.crash(1, 0);
            world.abort_recovery(1);
            world.set_cut(0, 1, false);
        }
        world.pass_seconds(5);
        let result = world.result(0, below).expect("an answer");
        match is_lost {
            true => assert_eq!(result, Err(Status::Invalid), "it is below itself again"),
            false => assert!(result.is_ok(), "{result:?}"),
        }
        world.check_consistent();
    }
}

/// Under the rename lock, for ever; on one MDT nothing else was done there any more.
#[test]
fn a_ring_of_directories_ends_who_walks_up_in_it() {
    for (mdt_count, mdt) in [(1, 0), (2, 0), (2, 1)] {
        let mut world = World::new(mdt_count, 1);
        let a = world.mkdir(Fid::ROOT, "a");
        let b = mkdir_on(&mut world, a, "b", mdt);
        let below = mkdir_on(&mut world, b, "below", mdt);
        world.mkdir(Fid::ROOT, "x");
        world.pass_seconds(3);
        let is_started = world.tamper(0, |store| {
            let mut batch = Batch::new();
            batch.delete(mds::rows::LINKS, &mds::rows::link_key(a, Fid::ROOT, b"a"));
            batch.put(mds::rows::LINKS, &mds::rows::link_key(a, b, b"a"), &[]);
            store.apply(store.applied().next(), &batch).unwrap();
        });
        assert!(is_started);
        world.pass_seconds(70);
        let renamed = world.rename((Fid::ROOT, "x"), (below, "x"), 0);
        assert_eq!(renamed, Err(Status::Corrupt), "{mdt_count} MDTs, the ring on {mdt}");
        assert!(
            world.servers.iter().all(|server| server.mds.under_way().is_empty()),
            "{}",
            world.under_way()
        );
    }
}

/// How often MDT1 has asked MDT0 for the rename lock, and to take it back, since this was looked at last.
fn asked_about_rename_lock(world: &mut World) -> (usize, usize) {
    let asked = world.take_asked(1, 0);
    let is = |request: &Request, is_lock: bool| match request {
        Request::Peer(PeerRequest::LockRename { .. }) => is_lock,
        Request::Peer(PeerRequest::UnlockRename { .. }) => !is_lock,
        _ => false,
    };
    let count = |is_lock| asked.iter().filter(|request| is(request, is_lock)).count();
    (count(true), count(false))
}

/// Directories `a` and `b` on MDT1, and `x` and `y` in the first of them, on MDT2.
fn to_be_moved(world: &mut World) -> (Fid, Fid) {
    let (a, b) = (mkdir_on(world, Fid::ROOT, "a", 1), mkdir_on(world, Fid::ROOT, "b", 1));
    for name in ["x", "y"] {
        mkdir_on(world, a, name, 2);
    }
    world.pass_seconds(3);
    asked_about_rename_lock(world);
    (a, b)
}

/// The request for it stayed in flight for ever, and after 2,048 of them nothing else of that MDT was answered.
#[test]
fn who_waits_for_the_rename_lock_and_is_gone_has_an_answer() {
    let mut world = World::new(3, 2);
    let (a, b) = to_be_moved(&mut world);
    world.cut.insert(link(1, 2));
    let holds = world.start(0, 1, rename((a, "x"), (b, "x"), 0));
    let waits = world.start(1, 1, rename((a, "y"), (b, "y"), 0));
    assert_eq!(asked_about_rename_lock(&mut world), (2, 0));
    let gone = world.clients[1].id;
    world.evict(1, gone);
    assert_eq!((world.result(0, holds), world.result(1, waits)), (None, Some(Err(Status::Evicted))));
    assert_eq!(asked_about_rename_lock(&mut world), (0, 1));
    world.pass_seconds(40);
    let count = asked_about_rename_lock(&mut world);
    assert_eq!(count, (0, 1), "who holds it has given it back, and nothing is asked for again");
    world.cut.clear();
    world.pass_seconds(20);
    assert!(world.result(0, holds).unwrap().is_ok());
    world.check_consistent();
}

/// An MDT0000 that was restarted knew nothing of its having been taken back, and gave it to nobody.
#[test]
fn a_rename_lock_that_nobody_waits_for_any_more_goes_back() {
    let mut world = World::new(3, 2);
    let (a, b) = to_be_moved(&mut world);
    // The answer is lost.
    world.cut.insert(link(0, 1));
    world.start(1, 1, rename((a, "y"), (b, "y"), 0));
    assert_eq!(asked_about_rename_lock(&mut world), (1, 0));
    world.pass_seconds(3);
    let gone = world.clients[1].id;
    world.evict(1, gone);
    world.pass_seconds(1);
    world.cut.clear();
    asked_about_rename_lock(&mut world);
    // That it was taken back is said again before it is asked for again.
    while asked_about_rename_lock(&mut world) != (0, 1) {
        world.pass(Duration::from_millis(50));
    }
    // It recovers without this one, and has forgotten both when it hears of it.
    world.cut.extend([link(0, 1), link(1, 0)]);
    world.crash(0, 0);
    world.pass_seconds(1);
    world.abort_recovery(0);
    world.pass_seconds(1);
    world.cut.clear();
    world.pass_seconds(10);
    world.rename((a, "x"), (b, "x"), 0).unwrap();
    assert!(world.servers.iter().all(|server| server.mds.under_way().is_empty()), "{}", world.under_way());
}

/// MDT0000 gives up an MDT that it cannot hear for minutes, and the rename lock with it. That one had heard nothing of this, went on with
/// its move when it could, and two directories were below each other. (Found by the model `rename-locks`.)
#[test]
fn who_has_not_heard_of_mdt0_for_long_relies_on_no_rename_lock() {
    let mut world = World::new(5, 2);
    let (p, s) = (mkdir_on(&mut world, Fid::ROOT, "p", 3), mkdir_on(&mut world, Fid::ROOT, "s", 4));
    let (a, b) = (mkdir_on(&mut world, p, "a", 3), mkdir_on(&mut world, s, "b", 4));
    let (q, r) = (mkdir_on(&mut world, b, "q", 1), mkdir_on(&mut world, a, "r", 2));
    world.pass_seconds(3);
    // It waits for this lock when it has walked up, and has prepared nothing.
    let want = world.want(1);
    world.ask(1, 1, MdtRequest::Getattr { fid: q, want }).unwrap();
    world.clients[1].is_polite = false;
    let first = world.start(0, 1, rename((p, "a"), (q, "a"), 0));
    assert_eq!(asked_about_rename_lock(&mut world), (1, 0));
    let is_prepare = |request: &Request| matches!(request, Request::Peer(PeerRequest::Prepare { .. }));
    assert!(!world.take_asked(1, 3).iter().any(is_prepare));
    for other in [0, 3] {
        world.cut.extend([link(1, other), link(other, 1)]);
    }
    world.pass_seconds(330);
    assert_eq!(world.result(0, first), None);
    let second = world.start(0, 2, rename((s, "b"), (r, "b"), 0));
    world.pass_seconds(20);
    assert!(world.result(0, second).expect("the lock was free").is_ok());
    world.cut.retain(|between| *between == link(1, 0) || *between == link(0, 1));
    world.pass_seconds(40);
    world.cut.clear();
    world.pass_seconds(20);
    assert_eq!(world.result(0, first), Some(Err(Status::Invalid)), "it would be below itself");
    assert!(world.servers.iter().all(|server| server.mds.under_way().is_empty()), "{}", world.under_way());
    world.check_consistent();
}

/// An exchange walks up twice. While it waits for what is frozen on the second way it has no lock, and what it has seen on the first is of before.
#[test]
fn an_exchange_that_had_to_wait_walks_all_of_its_way_again() {
    let mut world = World::new(2, 3);
    let [a, t] = ["a", "t"].map(|name| world.mkdir(Fid::ROOT, name));
    let (q, p) = (world.mkdir(a, "q"), world.mkdir(t, "p"));
    let (s, _) = (world.mkdir(q, "s"), world.mkdir(p, "u"));
    let there = mkdir_on(&mut world, s, "there", 1);
    let below = mkdir_on(&mut world, there, "below", 0);
    let other = mkdir_on(&mut world, Fid::ROOT, "other", 1);
    world.mkfile(a, "f");
    world.pass_seconds(3);
    for client in [1, 2] {
        for mdt in [0, 1] {
            let _ = world.ask(client, mdt, MdtRequest::Getattr { fid: Fid::ROOT, want: Default::default() });
        }
    }
    // Prepared, and not answered.
    world.servers[0].is_synced = false;
    world.start(2, 1, rename((a, "f"), (other, "f"), 0));
    assert_eq!(prepare_count(&world, 0), 1);
    // With RENAME_EXCHANGE.
    let exchanging = world.start(0, 0, rename((q, "s"), (p, "u"), 2));
    assert_eq!(world.result(0, exchanging), None, "{}", world.under_way());
    world.held = Some((1, 0));
    let moving = world.start(1, 0, rename((Fid::ROOT, "t"), (below, "t"), 0));
    let gone = world.clients[2].id;
    world.evict(1, gone);
    assert_eq!(prepare_count(&world, 0), 0, "nothing is frozen any more");
    assert_eq!((world.result(0, exchanging), world.result(1, moving)), (None, None));
    assert!(world.let_go() > 0, "it holds the rename lock, and asks for the way up");
    world.servers[0].is_synced = true;
    world.pass_seconds(3);
    assert!(matches!(world.result(1, moving), Some(Ok(_))));
    assert_eq!(world.result(0, exchanging), Some(Err(Status::Invalid)), "it would be below itself");
    world.check_consistent();
}
