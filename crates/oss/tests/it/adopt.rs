//! Objects of a file that has moved to another MDT.

use crate::harness::{World, object};
use base::{ClientId, Duration, Extent, Fid, ObjectId, Status};
use oss::{OssEvent, rows};
use rpc::Kind;
use store::ObjectStore;
use store::memory::Kept;
use wire::ost::AdoptStep;
use wire::{LockMode, OstRequest};

fn new_fid() -> Fid {
    Fid { oid: 4711, ..object(1).fid }
}

fn adopted(object: ObjectId) -> ObjectId {
    ObjectId { fid: new_fid(), ..object }
}

/// Of one file.
fn stripe(number: u32) -> ObjectId {
    ObjectId { stripe: number - 1, ..object(1) }
}

fn ask(world: &mut World, mdt: ClientId, numbers: &[u32], step: AdoptStep) -> rpc::Ticket {
    let objects = numbers.iter().map(|number| stripe(*number)).collect();
    world.submit_ost(mdt, OstRequest::Adopt { objects, to: new_fid(), step }, Kind::Reserved)
}

fn adopt(world: &mut World, mdt: ClientId, numbers: &[u32]) {
    for step in [AdoptStep::Rows, AdoptStep::Bytes] {
        let done = ask(world, mdt, numbers, step);
        assert!(matches!(world.result(mdt, done), Some(Ok(_))), "{step:?}");
    }
}

#[test]
fn an_adopted_object_has_its_bytes_and_its_stamp_under_the_new_name_alone() {
    let mut world = World::new();
    let (client, mdt) = (world.client(1), world.mdt(1));
    let lock = world.lock_and_write(client, object(1), 0, b"abc");
    let before = world.attr(client, object(1)).map(|attr| (attr.size_bytes, attr.stamp));
    for _ in 0..2 {
        // Again, it changes nothing.
        adopt(&mut world, mdt, &[1]);
    }
    assert_eq!(world.client_mut(client).callbacks, [lock], "the holder gives its lock back first");
    assert_eq!(world.attr(client, adopted(object(1))).map(|attr| (attr.size_bytes, attr.stamp)), before);
    assert_eq!(world.read(client, adopted(object(1)), Extent::at(0, 9)), Ok(b"abc".to_vec()));
    assert_eq!(world.objects.list(None, 10), Ok(vec![adopted(object(1))]));
    // Whoever was told of the file before it moved asks again, and makes no object of the old name.
    let getattr = OstRequest::Getattr { objects: vec![object(1)] };
    let asked = world.submit_ost(client, getattr, Kind::Plain);
    assert_eq!(world.result(client, asked).map(|result| result.err()), Some(Some(Status::Moved)));
    assert_eq!(world.read(client, object(1), Extent::at(0, 9)), Err(Status::Moved));
    assert_eq!(world.write(client, object(1), 0, b"x", lock), Err(Status::Stale));
    let ticket = world.submit_lock(client, object(1), LockMode::Pw, Extent::WHOLE);
    assert_eq!(world.result(client, ticket), Some(Err(Status::Stale)));
    world.lock_and_write(client, adopted(object(1)), 3, b"def");
    assert_eq!(world.read(client, adopted(object(1)), Extent::at(0, 9)), Ok(b"abcdef".to_vec()));
    // What is said again then takes nothing back.
    adopt(&mut world, mdt, &[1]);
    assert_eq!(world.read(client, adopted(object(1)), Extent::at(0, 9)), Ok(b"abcdef".to_vec()));
}

#[test]
fn an_object_that_was_never_written_is_a_hole_under_the_new_name_too() {
    let mut world = World::new();
    let (client, mdt) = (world.client(1), world.mdt(1));
    adopt(&mut world, mdt, &[1]);
    assert_eq!(world.attr(client, adopted(object(1))), None);
    assert_eq!(world.objects.list(None, 10), Ok(vec![]));
}

#[test]
fn only_an_mdt_has_objects_adopted() {
    let mut world = World::new();
    let client = world.client(1);
    world.lock_and_write(client, object(1), 0, b"abc");
    let refused = ask(&mut world, client, &[1], AdoptStep::Rows);
    assert_eq!(world.result(client, refused).map(|result| result.err()), Some(Some(Status::NotPermitted)));
    let mdt = world.mdt(1);
    let itself = OstRequest::Adopt { objects: vec![object(1)], to: object(1).fid, step: AdoptStep::Rows };
    let refused = world.submit_ost(mdt, itself, Kind::Reserved);
    assert_eq!(world.result(mdt, refused).map(|result| result.err()), Some(Some(Status::Invalid)));
    let two_files =
        OstRequest::Adopt { objects: vec![object(1), object(2)], to: new_fid(), step: AdoptStep::Rows };
    let refused = world.submit_ost(mdt, two_files, Kind::Reserved);
    assert_eq!(world.result(mdt, refused).map(|result| result.err()), Some(Some(Status::Invalid)));
    let refused = ask(&mut world, mdt, &[1], AdoptStep::Bytes);
    assert_eq!(world.result(mdt, refused).map(|result| result.err()), Some(Some(Status::Invalid)));
    assert_eq!(world.read(client, object(1), Extent::at(0, 9)), Ok(b"abc".to_vec()));
}

/// What was written under a lock is durable when the lock goes back, and so before the object has another name.
#[test]
fn what_is_not_durable_is_not_adopted() {
    let mut world = World::new();
    let (client, mdt) = (world.client(1), world.mdt(1));
    for caller in [client, mdt] {
        world.attr(caller, object(1));
    }
    world.sync();
    world.is_syncing = false;
    world.lock_and_write(client, object(1), 0, b"abc");
    let waiting = ask(&mut world, mdt, &[1], AdoptStep::Rows);
    assert_eq!(world.result(mdt, waiting), None);
    // The write is lost and said again, and then the object is adopted.
    world.crash(0, |_| Kept::Nothing);
    world.is_syncing = true;
    world.start();
    world.pass(Duration::from_secs(60));
    assert!(matches!(world.result(mdt, waiting), Some(Ok(_))));
    adopt(&mut world, mdt, &[1]);
    assert_eq!(world.read(client, adopted(object(1)), Extent::at(0, 9)), Ok(b"abc".to_vec()));
    assert_eq!(world.objects.list(None, 10), Ok(vec![adopted(object(1))]));
}

/// Rows and files are synced apart: whatever a crash leaves of a step, the bytes are there once, who asks for an old name is told the
/// truth, and the MDT, which asks until it is answered, has the rest made.
#[test]
fn any_part_of_an_adoption_may_survive_a_crash() {
    let cases = (0..3).flat_map(|keep_rows| (0..4).map(move |kept_files| (keep_rows, kept_files)));
    for (step, (keep_rows, kept_files)) in [AdoptStep::Rows, AdoptStep::Bytes]
        .into_iter()
        .flat_map(|step| cases.clone().map(move |case| (step, case)))
    {
        let at = format!("{step:?}, {keep_rows} rows, files {kept_files:b}");
        let mut world = World::new();
        let (client, mdt) = (world.client(1), world.mdt(1));
        for number in [1, 2] {
            world.lock_and_write(client, stripe(number), 0, format!("data{number}").as_bytes());
        }
        world.sync();
        world.pass(Duration::from_secs(3));
        if step == AdoptStep::Bytes {
            let done = ask(&mut world, mdt, &[1, 2], AdoptStep::Rows);
            assert!(matches!(world.result(mdt, done), Some(Ok(_))));
        } else {
            // Nobody has locks any more.
            world.pass(Duration::from_secs(3));
        }
        world.is_syncing = false;
        let asked = ask(&mut world, mdt, &[1, 2], step);
        assert_eq!(world.result(mdt, asked), None, "nothing is durable yet");
        let first = world.objects.durable() + 1;
        world.crash(keep_rows, |number| match (kept_files >> (number - first)) & 1 {
            0 => Kept::Nothing,
            _ => Kept::Whole,
        });
        assert_eq!(world.objects.list(None, 10).map(|objects| objects.len()), Ok(2), "{at}");
        world.is_syncing = true;
        world.start();
        world.pass(Duration::from_secs(60));
        assert!(matches!(world.result(mdt, asked), Some(Ok(_))), "{at}");
        assert_eq!(world.events.iter().filter(|event| matches!(event, OssEvent::Corrupt { .. })).count(), 0);
        adopt(&mut world, mdt, &[1, 2]);
        for number in [1, 2] {
            let read = world.read(client, adopted(stripe(number)), Extent::at(0, 9));
            assert_eq!(read, Ok(format!("data{number}").into_bytes()), "{at}");
            assert_eq!(world.read(client, stripe(number), Extent::at(0, 9)), Err(Status::Moved), "{at}");
        }
        assert_eq!(world.objects.list(None, 10).map(|objects| objects.len()), Ok(2), "{at}");
        let of_old = |(table, key): &(store::Table, Vec<u8>)| {
            [rows::OBJECTS, rows::BORN].contains(table)
                && ObjectId::from_key(key).is_some_and(|id| id.fid != new_fid())
        };
        assert_eq!(world.meta.rows().keys().filter(|key| of_old(key)).count(), 0, "{at}");
        assert_eq!(world.client_mut(client).evicted_count, 0, "{at}");
        // The object is known to have been there: if it goes, that is an error.
        world.objects.destroy(&adopted(stripe(1))).expect("it is there");
        let read = world.read(client, adopted(stripe(1)), Extent::at(0, 9));
        assert_eq!(read, Err(Status::Corrupt), "{at}");
    }
}
