//! Access times that come besides: whose locks they cost, and when they are left out.

use crate::cross::mkdir_on;
use crate::harness::{ROOT, World, entry_of};
use base::{Duration, Fid, LockId, TargetId, WallTime};
use rpc::Kind;

use wire::lock::LockWant;
use wire::mdt::{ACCESSES_MAX, Access};
use wire::{LockRequest, MdtRequest, Request};

/// What waits for locks of others at most (`machine::accesses`).
const WAITING_MAX: usize = 4096;

/// A client tells its MDT that it has just read these.
fn tell(world: &mut World, client: usize, fids: &[Fid]) -> WallTime {
    world.pass(Duration::from_millis(1));
    let at = world.now.wall;
    for fids in fids.chunks(ACCESSES_MAX) {
        let accesses = fids.iter().map(|fid| Access { fid: *fid, at, is_relative: false }).collect();
        let mdt = fids[0].mdt_index().unwrap();
        let told = world.start(client, mdt, MdtRequest::Closes { handles: Vec::new(), accesses });
        assert!(world.result(client, told).unwrap().is_ok(), "nobody waits for an access");
    }
    at
}

fn hold(world: &mut World, client: usize, fid: Fid) {
    let want = LockWant { inode: Some(LockId(world.new_id(client))), ..LockWant::default() };
    let held = world.ask(client, 0, MdtRequest::Getattr { fid, want }).unwrap();
    assert_eq!(entry_of(&held).grants.len(), 1);
}

/// What the client was asked for goes back.
fn give_back(world: &mut World, client: usize) {
    let locks: Vec<LockId> = world.clients[client].callbacks.drain(..).map(|(_, lock, _)| lock).collect();
    for locks in locks.chunks(256) {
        let cancel = Request::Lock(LockRequest::Cancel { locks: locks.to_vec() });
        world.submit(client, TargetId::mdt(0), cancel, Kind::Reserved);
    }
    world.run();
}

fn atime(world: &mut World, client: usize, fid: Fid) -> WallTime {
    world.getattr(client, fid).unwrap().atime
}

#[test]
fn many_readers_lose_what_they_know_once_and_the_last_access_counts() {
    let mut world = World::new(1, 6);
    let file = world.mkfile(Fid::ROOT, "f");
    for client in 0..5 {
        hold(&mut world, client, file);
        world.clients[client].is_polite = false;
    }
    let called = |world: &World| -> Vec<usize> {
        (0..5).map(|client| world.clients[client].callbacks.len()).collect()
    };
    tell(&mut world, 0, &[file]);
    assert_eq!(called(&world), [0, 1, 1, 1, 1], "who has read knows it, and keeps its lock");
    let mut last = WallTime::default();
    for client in [1, 2, 3, 4, 1] {
        last = tell(&mut world, client, &[file]);
    }
    assert_eq!(called(&world)[1..], [1, 1, 1, 1], "all of it waits for the same locks");
    for client in 1..5 {
        assert!(atime(&mut world, 5, file) < last, "somebody still shows the old time");
        give_back(&mut world, client);
    }
    assert_eq!(atime(&mut world, 5, file), last);
    assert!(world.clients[0].callbacks.is_empty());
    world.check_consistent();
}

#[test]
fn accesses_beyond_what_may_wait_are_left_out() {
    let mut world = World::new(1, 3);
    let files: Vec<Fid> = (0..=WAITING_MAX).map(|n| world.mkfile(Fid::ROOT, &format!("f{n}"))).collect();
    for file in &files {
        hold(&mut world, 1, *file);
    }
    world.clients[1].is_polite = false;
    let at = tell(&mut world, 0, &files);
    let (last, first) = files.split_last().unwrap();
    assert_eq!(world.clients[1].callbacks.len(), first.len(), "nobody is asked for what is left out");
    give_back(&mut world, 1);
    for file in first {
        assert_eq!(atime(&mut world, 2, *file), at);
    }
    assert!(atime(&mut world, 2, *last) < at);
    world.clients[1].is_polite = true;
    let at = tell(&mut world, 0, &[*last]);
    assert_eq!(atime(&mut world, 2, *last), at, "there is room again");
    world.check_consistent();
}

/// The inode is on MDT1, which has prepared a link to it that MDT0 decides.
#[test]
fn an_access_to_what_another_mdt_holds_is_left_out() {
    let mut world = World::new(2, 2);
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    let file = world.mkfile(dir, "f");
    let before = atime(&mut world, 1, file);
    world.pass_seconds(3);
    world.servers[1].is_synced = false;
    let link = MdtRequest::Link {
        fid: file,
        parent: Fid::ROOT,
        name: b"l".to_vec(),
        creds: ROOT,
        want: LockWant::default(),
    };
    let linking = world.start(0, 0, link);
    assert_eq!(world.result(0, linking), None, "the prepare is not durable");
    tell(&mut world, 1, &[file]);
    world.servers[1].is_synced = true;
    world.run();
    world.pass_seconds(3);
    assert!(world.result(0, linking).unwrap().is_ok());
    assert_eq!(atime(&mut world, 1, file), before);
    let at = tell(&mut world, 1, &[file]);
    assert_eq!(atime(&mut world, 0, file), at, "nothing holds it any more");
    world.check_consistent();
}
