//! Advisory locks through the machine.

use crate::cross::mkdir_on;
use crate::harness::World;
use base::{Duration, Extent, Fid, Status};
use wire::mdt::{FileLock, FlockKind};
use wire::{MdtReply, MdtRequest};

fn lock(owner: u64, kind: FlockKind) -> FileLock {
    FileLock { owner, pid: owner as u32, is_flock: false, kind, extent: Extent::WHOLE }
}

fn flock(fid: Fid, owner: u64, kind: FlockKind, can_wait: bool) -> MdtRequest {
    MdtRequest::Flock { fid, lock: lock(owner, kind), can_wait }
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_released() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    world.ask(0, 0, flock(file, 1, FlockKind::Write, false)).unwrap();
    assert_eq!(world.ask(1, 0, flock(file, 1, FlockKind::Read, false)), Err(Status::WouldBlock));
    let test = MdtRequest::Getlk { fid: file, lock: lock(1, FlockKind::Read) };
    assert_eq!(world.ask(1, 0, test), Ok(MdtReply::Flock(Some(lock(1, FlockKind::Write)))));
    let waiting = world.start(1, 0, flock(file, 1, FlockKind::Read, true));
    assert_eq!(world.result(1, waiting), None);
    world.ask(0, 0, flock(file, 1, FlockKind::Unlock, false)).unwrap();
    assert!(world.result(1, waiting).unwrap().is_ok());
}

#[test]
fn a_waiter_can_be_interrupted() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    world.ask(0, 0, flock(file, 1, FlockKind::Write, false)).unwrap();
    let waiting = world.start(1, 0, flock(file, 2, FlockKind::Write, true));
    world.ask(1, 0, MdtRequest::FlockCancel { fid: file, owner: 2, is_flock: false }).unwrap();
    assert_eq!(world.result(1, waiting), Some(Err(Status::Interrupted)));
}

#[test]
fn locks_die_with_their_client_and_live_through_a_restart() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    world.ask(0, 0, flock(file, 1, FlockKind::Write, false)).unwrap();
    let held = MdtRequest::ReplayFlocks { fid: file, locks: vec![lock(1, FlockKind::Write)] };
    world.clients[0].reopens.insert(base::TargetId::mdt(0), vec![wire::Request::Mdt(held)]);
    world.getattr(1, file).unwrap();
    world.crash(0, 0);
    world.pass_seconds(3);
    let waiting = world.start(1, 0, flock(file, 1, FlockKind::Write, true));
    assert_eq!(world.result(1, waiting), None);
    let evicted = world.clients[0].id;
    world.evict(0, evicted);
    assert!(world.result(1, waiting).unwrap().is_ok());
}

/// What takes a lock without waiting, and for as many as there may be, is said while the MDT recovers, and at no other time.
#[test]
fn locks_are_named_again_only_in_a_recovery() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    let held = MdtRequest::ReplayFlocks { fid: file, locks: vec![lock(1, FlockKind::Write)] };
    assert_eq!(world.ask(0, 0, held), Err(Status::ProtocolError));
    world.ask(1, 0, flock(file, 1, FlockKind::Write, false)).unwrap();
}

/// Hazard 9.3: others, old and new, ask for the lock before its holder has come back to the restarted MDT.
#[test]
fn a_lock_is_given_to_nobody_before_its_holder_could_come_back() {
    let mut world = World::new(1, 3);
    let file = world.mkfile(Fid::ROOT, "f");
    world.ask(0, 0, flock(file, 1, FlockKind::Write, false)).unwrap();
    let held = MdtRequest::ReplayFlocks { fid: file, locks: vec![lock(1, FlockKind::Write)] };
    let mdt = base::TargetId::mdt(0);
    world.clients[0].reopens.insert(mdt, vec![wire::Request::Mdt(held)]);
    world.getattr(1, file).unwrap();
    let slow = [base::Endpoint::Client(world.clients[0].id), base::Endpoint::Target(mdt)];
    world.cut.extend([(slow[0], slow[1]), (slow[1], slow[0])]);
    world.crash(0, 0);
    let asking =
        [1, 2].map(|client| (client, world.start(client, 0, flock(file, 2, FlockKind::Write, false))));
    world.pass_seconds(5);
    assert!(asking.iter().all(|(client, of)| world.result(*client, *of).is_none()));
    world.cut.clear();
    world.pass_seconds(5);
    for (client, of) in asking {
        assert_eq!(world.result(client, of), Some(Err(Status::WouldBlock)));
    }
}

/// Two clients, a file on each of two MDTs, each held by one and wanted by the other.
fn crossed(world: &mut World) -> [Fid; 2] {
    let remote = mkdir_on(world, Fid::ROOT, "remote", 1);
    let files = [Fid::ROOT, remote].map(|dir| world.mkfile(dir, "f"));
    for (index, file) in files.iter().enumerate() {
        assert_eq!(file.mdt_index(), Some(index as u16));
        world.ask(index, index as u16, flock(*file, 1, FlockKind::Write, false)).unwrap();
    }
    files
}

#[test]
fn a_circle_of_locks_on_two_mdts_is_refused_to_who_closes_it() {
    let mut world = World::new(2, 2);
    let files = crossed(&mut world);
    let first = world.start(0, 1, flock(files[1], 1, FlockKind::Write, true));
    assert_eq!(world.result(0, first), None);
    world.pass(Duration::from_millis(1));
    let second = world.start(1, 0, flock(files[0], 1, FlockKind::Write, true));
    assert_eq!(world.result(1, second), Some(Err(Status::Deadlock)));
    assert_eq!(world.result(0, first), None);
    world.ask(1, 1, flock(files[1], 1, FlockKind::Unlock, false)).unwrap();
    assert!(world.result(0, first).unwrap().is_ok());
}

#[test]
fn of_two_that_close_a_circle_at_once_one_is_refused() {
    let mut world = World::new(2, 2);
    let files = crossed(&mut world);
    let mut waiting = Vec::new();
    for (client, mdt) in [(0, 1u16), (1, 0)] {
        let request = wire::Request::Mdt(flock(files[usize::from(mdt)], 1, FlockKind::Write, true));
        let target = base::TargetId::mdt(mdt);
        waiting.push((target, world.submit(client, target, request, rpc::Kind::Modifying)));
    }
    world.run();
    let results = [0, 1].map(|client| world.result(client, waiting[client]));
    let refused = results.iter().filter(|result| **result == Some(Err(Status::Deadlock))).count();
    assert_eq!((refused, results.iter().filter(|result| result.is_none()).count()), (1, 1), "{results:?}");
}

#[test]
fn locks_of_flock_are_no_part_of_a_circle() {
    let mut world = World::new(2, 2);
    let files = crossed(&mut world);
    let whole = |file: usize, kind| MdtRequest::Flock {
        fid: files[file],
        lock: FileLock { is_flock: true, ..lock(1, kind) },
        can_wait: true,
    };
    world.ask(0, 0, whole(0, FlockKind::Write)).unwrap();
    world.ask(1, 1, whole(1, FlockKind::Write)).unwrap();
    let waiting =
        [world.start(0, 1, whole(1, FlockKind::Write)), world.start(1, 0, whole(0, FlockKind::Write))];
    assert_eq!([world.result(0, waiting[0]), world.result(1, waiting[1])], [None, None]);
}
