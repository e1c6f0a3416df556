//! Reads of what is not in memory.

use crate::harness::{World, object};
use base::{ClientId, Duration, Extent, LockId, Status};
use oss::{FetchId, Input};
use rpc::import::{Kind, Ticket};
use store::StoreError;
use wire::{LockMode, OstReply, OstRequest, Reply};

const WHOLE: Extent = Extent::WHOLE;

/// An object with something in it, whose reads have to be fetched.
fn cold_world() -> World {
    let mut world = World::new();
    let writer = world.client(9);
    let lock = world.lock_and_write(writer, object(1), 0, b"first");
    world.cancel(writer, lock);
    world.objects.set_cold(1);
    world
}

fn begin_read(world: &mut World, client: ClientId, lock: Option<LockId>) -> Ticket {
    world.submit_ost(
        client,
        OstRequest::Read { object: object(1), extent: Extent::at(0, 100), lock },
        Kind::Plain,
    )
}

/// With lock 900.
fn begin_lock_and_read(world: &mut World, client: ClientId) -> Ticket {
    let (object, extent, lock) = (object(1), Extent::at(0, 100), LockId(900));
    let request = OstRequest::LockAndRead { object, extent, lock, mode: LockMode::Pr, asked: WHOLE };
    world.submit_ost(client, request, Kind::Plain)
}

fn bytes(world: &mut World, client: ClientId, ticket: Ticket) -> Result<Vec<u8>, Status> {
    world.result(client, ticket).expect("it is answered").map(|answer| answer.data.to_vec())
}

#[test]
fn others_are_served_while_the_device_is_waited_for() {
    let mut world = cold_world();
    let (a, b) = (world.client(1), world.client(2));
    let lock = world.lock(a, object(1), LockMode::Pr, WHOLE).lock;
    let reading = begin_read(&mut world, a, Some(lock));
    let without = begin_read(&mut world, b, None);
    assert_eq!((world.result(a, reading), world.result(b, without)), (None, None));
    assert_eq!(world.fetching.len(), 2);
    assert_eq!(world.attr(b, object(1)).map(|attr| attr.size_bytes), Some(5));
    let other = world.lock_and_write(b, object(2), 0, b"other");
    world.cancel(b, other);
    world.fetch();
    assert_eq!(bytes(&mut world, a, reading), Ok(b"first".to_vec()));
    assert_eq!(bytes(&mut world, b, without), Ok(b"first".to_vec()));
    // What comes twice, or is of an earlier start, is nobody's.
    for id in 0..4 {
        world.control(Input::Fetched(FetchId(id), Ok(())));
    }
    assert!(world.fetching.is_empty());
}

/// A read without a lock claims nothing while it waits, and finds what is there when it is executed.
#[test]
fn what_is_fetched_is_read_when_it_has_come() {
    let mut world = cold_world();
    let (a, b) = (world.client(1), world.client(2));
    let reading = begin_read(&mut world, a, None);
    world.lock_and_write(b, object(1), 0, b"second");
    // Once more, as it has had to wait for the writer's lock in between.
    world.fetch();
    world.fetch();
    assert_eq!(bytes(&mut world, a, reading), Ok(b"second".to_vec()));
}

#[test]
fn a_lock_with_bytes_is_held_while_they_are_fetched() {
    let mut world = cold_world();
    let (a, b) = (world.client(1), world.client(2));
    let reading = begin_lock_and_read(&mut world, a);
    assert_eq!(world.result(a, reading), None);
    world.client_mut(a).is_polite = false;
    let writing = world.submit_lock(b, object(1), LockMode::Pw, WHOLE);
    assert_eq!(world.client_mut(a).callbacks, [LockId(900)]);
    world.fetch();
    let answer = world.result(a, reading).expect("it has come").expect("it exists");
    assert_eq!(&answer.data[..], b"first");
    assert!(matches!(answer.reply, Reply::Ost(OstReply::LockedData { size_bytes: 5, .. })));
    assert_eq!(world.result(b, writing), None);
    world.cancel(a, LockId(900));
    assert!(world.result(b, writing).is_some_and(|result| result.is_ok()));
}

#[test]
fn a_lock_that_is_given_up_meanwhile_is_not_told() {
    let mut world = cold_world();
    let a = world.client(1);
    let reading = begin_lock_and_read(&mut world, a);
    world.cancel(a, LockId(900));
    world.fetch();
    assert_eq!(bytes(&mut world, a, reading), Err(Status::Interrupted));
}

#[test]
fn who_is_evicted_meanwhile_is_told_nothing() {
    let mut world = cold_world();
    let (a, b) = (world.client(1), world.client(2));
    let lock = world.lock(a, object(1), LockMode::Pr, WHOLE).lock;
    begin_read(&mut world, a, Some(lock));
    world.control(Input::Evict(a));
    let reading = begin_read(&mut world, b, None);
    world.fetch();
    assert_eq!(bytes(&mut world, b, reading), Ok(b"first".to_vec()));
    let again = begin_read(&mut world, a, None);
    world.fetch();
    assert_eq!(bytes(&mut world, a, again), Ok(b"first".to_vec()));
}

/// What is long in coming for one who reads much is no excuse of another one; and callbacks are repeated all the time.
#[test]
fn who_waits_for_nothing_is_evicted_beside_a_slow_device() {
    let mut world = cold_world();
    let (a, b, c) = (world.client(1), world.client(2), world.client(3));
    world.client_mut(a).is_polite = false;
    let lock = world.lock(a, object(2), LockMode::Pr, WHOLE).lock;
    let writing = world.submit_lock(b, object(2), LockMode::Pw, WHOLE);
    for _ in 0..150 {
        begin_read(&mut world, c, None);
        if world.fetching.len() > 3 {
            let oldest = world.fetching.remove(0);
            world.control(Input::Fetched(oldest, Ok(())));
        }
        world.pass(Duration::from_secs(1));
    }
    assert!(world.client_mut(a).callbacks.iter().filter(|told| **told == lock).count() > 2);
    assert_eq!(world.client_mut(a).evicted_count, 1);
    assert!(world.result(b, writing).is_some_and(|result| result.is_ok()));
}

#[test]
fn what_cannot_be_fetched_is_refused_without_another_try() {
    let mut world = cold_world();
    let a = world.client(1);
    let reading = begin_read(&mut world, a, None);
    world.fetch_with(Err(StoreError::Device { operation: "read an object", errno: 5 }));
    assert_eq!(bytes(&mut world, a, reading), Err(Status::Io));
    assert!(world.fetching.is_empty());
}

/// Its answer waits for the device, and its lock for the answer.
#[test]
fn nobody_is_evicted_for_a_device_that_stands_still() {
    let mut world = cold_world();
    let (a, b) = (world.client(1), world.client(2));
    world.client_mut(a).is_polite = false;
    let lock = world.lock(a, object(1), LockMode::Pr, WHOLE).lock;
    let reading = begin_read(&mut world, a, Some(lock));
    let writing = world.submit_lock(b, object(1), LockMode::Pw, WHOLE);
    assert_eq!(world.client_mut(a).callbacks, [lock]);
    for _ in 0..200 {
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.client_mut(a).evicted_count, 0);
    world.fetch();
    assert_eq!(bytes(&mut world, a, reading), Ok(b"first".to_vec()));
    world.pass(Duration::from_secs(4));
    assert_eq!(world.client_mut(a).evicted_count, 0, "it has some time now");
    world.cancel(a, lock);
    assert!(world.result(b, writing).is_some_and(|result| result.is_ok()));
    // With a device that goes on it is given up.
    let lock = world.lock(a, object(1), LockMode::Pr, WHOLE).lock;
    let writing = world.submit_lock(b, object(1), LockMode::Pw, WHOLE);
    let _ = lock;
    for _ in 0..200 {
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.client_mut(a).evicted_count, 1);
    assert!(world.result(b, writing).is_some_and(|result| result.is_ok()));
}
