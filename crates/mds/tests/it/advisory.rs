//! Advisory locks through the machine.

use crate::harness::World;
use base::{Extent, Fid, Status};
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
