//! What each operation does, refuses and counts.

use crate::harness::{World, object};
use base::limits::{BULK_BYTES_MAX, OBJECT_BYTES_MAX, REPLAY_REQUESTS_MAX};
use base::{Advice, Endpoint, Extent, LockId, Status, TargetId};
use oss::OssEvent;
use rpc::import::Kind;
use store::{MetaStore, ObjectStore, Reserve};
use wire::mdt::Statfs;
use wire::ost::ExtentOp;
use wire::{LockMode, OstReply, OstRequest, Reply, Request};

const WHOLE: Extent = Extent::WHOLE;

#[test]
fn what_is_written_is_read_and_ends_where_it_ends() {
    let mut world = World::new();
    let client = world.client(1);
    world.lock_and_write(client, object(1), 10, b"hello");
    assert_eq!(world.read(client, object(1), Extent::at(12, 100)), Ok(b"llo".to_vec()));
    assert_eq!(world.read(client, object(1), Extent::at(0, 11)), Ok(b"\0\0\0\0\0\0\0\0\0\0h".to_vec()));
    assert_eq!(world.read(client, object(1), Extent::at(15, 1)), Ok(vec![]));
    assert_eq!(world.read(client, object(2), Extent::at(0, 1)), Ok(vec![]), "an object that does not exist");
    let attr = world.attr(client, object(1)).expect("it exists");
    assert_eq!(attr.size_bytes, 15);
    assert!(attr.stamp.0 > 0 && attr.block_count > 0);
    assert_eq!(world.attr(client, object(2)), None);
}

/// Rows say that nobody has written it. What is looked at is what the answer says of it.
#[test]
fn an_object_is_not_looked_for_before_its_first_write() {
    let mut world = World::new();
    let client = world.client(1);
    let lock = world.lock(client, object(1), LockMode::Pw, WHOLE).lock;
    world.objects.take_stat_count();
    world.write(client, object(1), 0, b"first", lock).expect("the lock is held");
    assert_eq!(world.objects.take_stat_count(), 1);
    world.write(client, object(1), 5, b" second", lock).expect("the lock is held");
    assert_eq!(world.objects.take_stat_count(), 2, "one that has rows may be lost");
    assert_eq!(world.attr(client, object(1)).map(|attr| attr.size_bytes), Some(12));
}

/// No time passes here: what comes once in an interval does not come. A client keeps so many writes and then waits.
#[test]
fn many_small_writes_are_made_durable_before_their_client_has_to_wait() {
    let mut world = World::new();
    let client = world.client(1);
    let lock = world.lock(client, object(1), LockMode::Pw, WHOLE).lock;
    for number in 0..2 * REPLAY_REQUESTS_MAX as u64 {
        world.write(client, object(1), number, b"x", lock).expect("the lock is held");
    }
}

#[test]
fn a_write_without_its_lock_changes_nothing() {
    let mut world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let lock = world.lock(a, object(1), LockMode::Pw, Extent::at(0, 10)).lock;
    assert_eq!(world.write(b, object(1), 0, b"x", lock), Err(Status::LockLost), "somebody else's lock");
    assert_eq!(world.write(a, object(2), 0, b"x", lock), Err(Status::LockLost), "another object");
    let read_lock = world.lock(a, object(3), LockMode::Pr, WHOLE).lock;
    assert_eq!(world.write(a, object(3), 0, b"x", read_lock), Err(Status::LockLost), "a read lock");
    world.cancel(a, lock);
    assert_eq!(world.write(a, object(1), 0, b"x", lock), Err(Status::LockLost), "given back");
    assert_eq!(world.objects.list(None, 10), Ok(vec![]));
    assert_eq!(world.oss().stats().lock_lost_count, 4);
}

#[test]
fn a_read_under_a_lock_needs_that_lock() {
    let mut world = World::new();
    let client = world.client(1);
    let lock = world.lock_and_write(client, object(1), 0, b"abc");
    let read = |lock| {
        Request::Ost(OstRequest::Read { object: object(1), extent: Extent::at(0, 3), lock: Some(lock) })
    };
    let (reply, data) = world.call(client, read(lock), &[], Kind::Plain).expect("held");
    assert_eq!((reply, &data[..]), (Reply::Ost(OstReply::Data { size_bytes: 3 }), &b"abc"[..]));
    assert_eq!(world.call(client, read(LockId(999)), &[], Kind::Plain), Err(Status::LockLost));
}

#[test]
fn truncate_punch_zero_and_allocate_do_what_they_say() {
    let mut world = World::new();
    let client = world.client(1);
    let lock = world.lock_and_write(client, object(1), 0, &[7; 20_000]);
    world.change(client, object(1), Extent::new(15_000, 15_000), ExtentOp::Truncate, lock).expect("shorter");
    assert_eq!(world.attr(client, object(1)).map(|attr| attr.size_bytes), Some(15_000));
    world.change(client, object(1), Extent::new(0, 8192), ExtentOp::Punch, lock).expect("a hole");
    assert_eq!(world.read(client, object(1), Extent::at(8191, 2)), Ok(vec![0, 7]));
    world
        .change(client, object(1), Extent::new(9000, 9001), ExtentOp::Zero { keep_size: true }, lock)
        .expect("zero");
    assert_eq!(world.read(client, object(1), Extent::at(8999, 3)), Ok(vec![7, 0, 7]));
    let allocate = ExtentOp::Allocate { keep_size: false };
    world.change(client, object(1), Extent::new(0, 40_000), allocate, lock).expect("room");
    assert_eq!(world.attr(client, object(1)).map(|attr| attr.size_bytes), Some(40_000));
    world.change(client, object(1), Extent::new(50_000, 50_000), ExtentOp::Truncate, lock).expect("longer");
    assert_eq!(world.attr(client, object(1)).map(|attr| attr.size_bytes), Some(50_000));
    let stats = world.oss().stats();
    assert_eq!((stats.truncate_count, stats.punch_count, stats.fallocate_count), (2, 1, 2));
}

#[test]
fn a_truncate_needs_a_lock_up_to_the_end() {
    let mut world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let lock = world.lock(a, object(1), LockMode::Pw, Extent::new(0, 100)).lock;
    world.lock(b, object(1), LockMode::Pw, Extent::new(200, 300));
    let part = world.lock(a, object(1), LockMode::Pw, Extent::new(0, 100)).lock;
    assert_ne!(lock, part);
    let done = world.change(a, object(1), Extent::new(50, 50), ExtentOp::Truncate, part);
    assert_eq!(done, Err(Status::LockLost));
}

#[test]
fn nonsense_is_refused() {
    let mut world = World::new();
    let client = world.client(1);
    let lock = world.lock(client, object(1), LockMode::Pw, WHOLE).lock;
    assert_eq!(world.write(client, object(1), 0, b"", lock), Err(Status::Invalid));
    assert_eq!(world.write(client, object(1), OBJECT_BYTES_MAX, b"x", lock), Err(Status::TooBig));
    assert_eq!(world.write(client, object(1), u64::MAX, b"x", lock), Err(Status::TooBig));
    assert_eq!(world.read(client, object(1), Extent::new(5, 5)), Err(Status::Invalid));
    assert_eq!(world.read(client, object(1), Extent::new(5, 1)), Err(Status::Invalid));
    assert_eq!(world.read(client, object(1), Extent::at(0, BULK_BYTES_MAX as u64 + 1)), Err(Status::Invalid));
    let huge = Extent::new(0, OBJECT_BYTES_MAX + 1);
    assert_eq!(
        world.change(client, object(1), huge, ExtentOp::Allocate { keep_size: true }, lock),
        Err(Status::TooBig)
    );
    assert_eq!(
        world.change(client, object(1), Extent::new(9, 3), ExtentOp::Punch, lock),
        Err(Status::Invalid)
    );
    let many = Request::Ost(OstRequest::Getattr { objects: vec![object(1); 5000] });
    assert_eq!(world.call(client, many, &[], Kind::Plain), Err(Status::Invalid));
    let alien = Request::Mdt(wire::MdtRequest::Statfs);
    assert_eq!(world.call(client, alien, &[], Kind::Plain), Err(Status::NotSupportedCall));
    assert_eq!(world.objects.list(None, 10), Ok(vec![]));
}

#[test]
fn a_full_device_refuses_writes_and_nothing_changes() {
    let mut world = World::new();
    let (client, mdt) = (world.client(1), world.mdt(0));
    let lock = world.lock_and_write(client, object(1), 0, &[1; 4096]);
    let before = world.attr(client, object(1));
    world.objects.set_full(true);
    assert_eq!(world.write(client, object(1), 1 << 20, &[2; 4096], lock), Err(Status::NoSpace));
    assert_eq!(world.attr(client, object(1)), before);
    world.objects.set_full(false);
    world.meta.set_reserve(Reserve::Low);
    assert_eq!(world.write(client, object(1), 1 << 20, &[2; 4096], lock), Err(Status::NoSpace));
    assert_eq!(world.attr(client, object(1)), before);
    // What frees space goes on.
    world.change(client, object(1), Extent::new(0, 0), ExtentOp::Truncate, lock).expect("a truncate frees");
    world.call(mdt, destroy(1), &[], Kind::Modifying).expect("a destroy frees");
    assert_eq!(world.oss().stats().no_space_count, 2);
}

#[test]
fn a_full_device_takes_what_overwrites_its_own_blocks_and_nothing_else() {
    let mut world = World::new();
    let client = world.client(1);
    let lock = world.lock_and_write(client, object(1), 0, &[1; 8192]);
    world.write(client, object(1), 1 << 20, &[1; 4096], lock).expect("there is room");
    let reserved = ExtentOp::Allocate { keep_size: true };
    world.change(client, object(1), Extent::at(2 << 20, 8192), reserved, lock).expect("there is room");
    let new = world.lock(client, object(2), LockMode::Pw, WHOLE).lock;
    for (is_low, reserve) in [(true, Reserve::Ample), (false, Reserve::Low), (true, Reserve::Low)] {
        world.objects.set_low(is_low);
        world.meta.set_reserve(reserve);
        let mut write =
            |offset: u64, count: usize| world.write(client, object(1), offset, &[2; 9000][..count], lock);
        assert_eq!(write(100, 8000), Ok(()), "{reserve:?}: over both blocks");
        assert_eq!(write(1 << 20, 4096), Ok(()), "{reserve:?}: over the last block");
        assert_eq!(write(2 << 20, 8192), Ok(()), "{reserve:?}: where fallocate has taken the room");
        assert_eq!(write(0, 8193), Err(Status::NoSpace), "{reserve:?}: into a hole");
        assert_eq!(write((3 << 20) - 1, 1), Err(Status::NoSpace), "{reserve:?}: behind the end");
        assert_eq!(
            world.write(client, object(2), 0, &[2; 10], new),
            Err(Status::NoSpace),
            "{reserve:?}: new"
        );
    }
    let bytes = world.read(client, object(1), Extent::new(0, 8192));
    assert_eq!(bytes.expect("it is there")[..], [[1; 100].as_slice(), &[2; 8000], &[1; 92]].concat());
    // The log of the rows would have to grow.
    world.meta.set_log_short(true);
    assert_eq!(world.write(client, object(1), 0, &[3; 10], lock), Err(Status::NoSpace));
    world.meta.set_log_short(false);
    assert_eq!(world.write(client, object(1), 0, &[2; 10], lock), Ok(()));
    // The rows have room, and the log is about to have none.
    world.objects.set_low(false);
    world.meta.set_reserve(Reserve::Ample);
    world.meta.set_log_ending(true);
    assert_eq!(world.write(client, object(1), 0, &[3; 10], lock), Err(Status::NoSpace));
    world.meta.set_log_ending(false);
    assert_eq!(world.write(client, object(1), 0, &[2; 10], lock), Ok(()));
    // Nothing is left but what removing needs.
    world.meta.set_reserve(Reserve::Exhausted);
    assert_eq!(world.write(client, object(1), 0, &[3; 10], lock), Err(Status::NoSpace));
}

/// Clients were told that what they keep back is written.
#[test]
fn a_fallocate_takes_nothing_of_what_is_kept_for_what_clients_keep_back() {
    let mut world = World::new();
    let client = world.client(1);
    let lock = world.lock_and_write(client, object(1), 0, &[1; 4096]);
    let space = world.objects.space();
    world.objects.set_capacity(space.reserve_bytes + 4096 + (8 << 20));
    let rows = world.meta.rows();
    let too_much = Extent::new(0, (8 << 20) + 8192);
    for keep_size in [true, false] {
        for op in [ExtentOp::Allocate { keep_size }, ExtentOp::Zero { keep_size }] {
            assert_eq!(world.change(client, object(1), too_much, op, lock), Err(Status::NoSpace));
        }
    }
    assert_eq!(world.attr(client, object(1)).map(|attr| attr.block_count), Some(8));
    assert_eq!(world.meta.rows(), rows);
    assert_eq!(world.oss().stats().no_space_count, 4);
    let just_enough = Extent::new(0, (8 << 20) + 4096);
    let op = ExtentOp::Allocate { keep_size: true };
    assert_eq!(world.change(client, object(1), just_enough, op, lock), Ok(()));
    assert_eq!(world.objects.space().avail_bytes, 0);
    let kept = OstRequest::Write {
        object: object(1),
        offset_bytes: 1 << 30,
        lock,
        stamp: world.now.wall,
        is_answered: true,
        asked: None,
    };
    let data = vec![3; 1 << 20];
    assert!(world.call(client, Request::Ost(kept), &data, Kind::Modifying).is_ok());
}

/// Others have taken the room since, or the store says so.
#[test]
fn a_fallocate_that_was_acknowledged_is_replayed_into_the_reserve() {
    let mut world = World::new();
    let client = world.client(1);
    let lock = world.lock_and_write(client, object(1), 0, &[1; 4096]);
    world.sync();
    world.is_syncing = false;
    let op = ExtentOp::Allocate { keep_size: false };
    world.change(client, object(1), Extent::new(0, 1 << 20), op, lock).expect("there is room");
    world.crash(0, |_| store::memory::Kept::Nothing);
    world.is_syncing = true;
    world.objects.set_low(true);
    world.start();
    world.pass(base::Duration::from_secs(10));
    assert_eq!(world.client_mut(client).evicted_count, 0);
    assert_eq!(world.attr(client, object(1)).map(|attr| attr.size_bytes), Some(1 << 20));
}

#[test]
fn damage_is_told_on_a_full_device_too() {
    let mut world = World::new();
    let client = world.client(1);
    let lock = world.lock_and_write(client, object(1), 0, &[1; 8192]);
    assert!(world.objects.rot(&object(1), 5000));
    world.meta.set_reserve(Reserve::Low);
    assert_eq!(world.write(client, object(1), 100, &[2; 8000], lock), Err(Status::Io));
    assert_eq!(world.oss().stats().no_space_count, 0);
}

fn destroy(number: u32) -> Request {
    Request::Ost(OstRequest::Destroy { objects: vec![object(number)] })
}

#[test]
fn a_destroyed_object_does_not_come_back() {
    let mut world = World::new();
    let (client, mdt) = (world.client(1), world.mdt(0));
    let lock = world.lock_and_write(client, object(1), 0, b"abc");
    world.call(mdt, destroy(1), &[], Kind::Modifying).expect("the holder gives its lock back");
    assert_eq!(world.client_mut(client).callbacks, [lock]);
    assert_eq!(world.attr(client, object(1)), None);
    assert_eq!(world.write(client, object(1), 0, b"x", lock), Err(Status::Stale));
    let ticket = world.submit_lock(client, object(1), LockMode::Pw, WHOLE);
    assert_eq!(world.result(client, ticket), Some(Err(Status::Stale)));
    assert_eq!(world.objects.list(None, 10), Ok(vec![]));
    // Again, and one that never was: both are fine.
    world.call(mdt, destroy(1), &[], Kind::Modifying).expect("destroyed is destroyed");
    world.call(mdt, destroy(9), &[], Kind::Modifying).expect("never written");
}

#[test]
fn only_an_mdt_has_objects_destroyed_and_nobody_gives_back_a_lock_for_others() {
    let mut world = World::new();
    let (client, other) = (world.client(1), world.client(2));
    let lock = world.lock_and_write(client, object(1), 0, b"abc");
    let ost = world.client(Endpoint::Target(TargetId::ost(1)).client_id().0);
    for caller in [client, other, ost] {
        let refused = world.call(caller, destroy(1), &[], Kind::Modifying).map(|(reply, _)| reply);
        assert_eq!(refused, Err(Status::NotPermitted));
    }
    assert_eq!(world.client_mut(client).callbacks, []);
    assert!(world.write(client, object(1), 3, b"def", lock).is_ok());
    assert_eq!(world.read(client, object(1), Extent::at(0, 9)), Ok(b"abcdef".to_vec()));
}

#[test]
fn tombstones_are_forgotten_after_their_life() {
    let mut world = World::new();
    let mdt = world.mdt(0);
    world.call(mdt, destroy(1), &[], Kind::Modifying).expect("never written");
    let count =
        |world: &World| world.meta.rows().keys().filter(|(table, _)| *table == oss::rows::TOMBSTONES).count();
    world.pass(base::Duration::from_secs(120));
    assert_eq!(count(&world), 1);
    // Somebody sets the clock: no time has passed.
    world.set_clock(oss::machine::TOMBSTONE_LIFE * 2);
    world.pass(base::Duration::from_secs(120));
    assert_eq!(count(&world), 1);
    world.skip(oss::machine::TOMBSTONE_LIFE);
    world.pass(base::Duration::from_secs(120));
    assert_eq!(count(&world), 0);
}

#[test]
fn tombstones_go_faster_than_they_come() {
    let mut world = World::new();
    let mdt = world.mdt(0);
    for number in 0..5000 {
        world.call(mdt, destroy(number), &[], Kind::Modifying).expect("never written");
    }
    let count =
        |world: &World| world.meta.rows().keys().filter(|(table, _)| *table == oss::rows::TOMBSTONES).count();
    assert_eq!(count(&world), 5000);
    world.skip(oss::machine::TOMBSTONE_LIFE);
    world.pass(base::Duration::from_secs(120));
    assert_eq!(count(&world), 0);
}

/// Keys follow the order of creation, more or less, so the look comes to those that grow old just now, and must go on.
#[test]
fn tombstones_behind_those_that_grow_old_steadily_are_forgotten_too() {
    const PER_MINUTE: u32 = 2500;
    let mut world = World::new();
    let minute = base::Duration::from_secs(60);
    let ended = world.now.wall.0 - oss::machine::TOMBSTONE_LIFE.as_nanos() as i64;
    let put = |numbers: std::ops::Range<u32>, destroyed_at: i64| {
        let mut batch = store::Batch::new();
        for number in numbers {
            let row = oss::rows::TombstoneRow { destroyed_at: base::WallTime(destroyed_at) };
            oss::rows::put(&mut batch, oss::rows::TOMBSTONES, &object(number).key(), &row);
        }
        world.meta.apply(world.meta.applied().next(), &batch).expect("rows");
    };
    for number in 0..30 {
        let ends_in = minute * (number + 1);
        put(number * PER_MINUTE..(number + 1) * PER_MINUTE, ended + ends_in.as_nanos() as i64);
    }
    put(1_000_000..1_000_100, ended - 1_000_000_000);
    world.meta.sync();
    world.kill();
    world.start();
    world.pass(minute * 20);
    let rows = world.meta.rows();
    let is_behind = |key: &[u8]| *key >= object(1_000_000).key()[..];
    let left = |is_meant: &dyn Fn(&[u8]) -> bool| {
        rows.keys().filter(|(table, key)| *table == oss::rows::TOMBSTONES && is_meant(key)).count()
    };
    assert_eq!(left(&is_behind), 0);
    let left_count = left(&|key| !is_behind(key));
    assert!((10..=16).contains(&(left_count as u32 / PER_MINUTE)), "{left_count}");
}

#[test]
fn an_object_that_cannot_be_read_keeps_none_behind_it_from_being_listed() {
    const EIO: i32 = 5;
    const EMFILE: i32 = 24;
    let mut world = World::new();
    let (client, mdt) = (world.client(1), world.mdt(0));
    for number in 1..=5 {
        world.lock_and_write(client, object(number), 0, &[1; 100]);
    }
    let list = |world: &mut World| {
        let request = Request::Ost(OstRequest::ListObjects { after: None });
        let answer = world.call(mdt, request, &[], Kind::Plain).expect("it is answered");
        let Reply::Ost(OstReply::Objects { listed, next }) = answer.0 else { panic!("{answer:?}") };
        assert_eq!(next, Some(object(5)));
        listed.iter().map(|it| (it.object, it.size_bytes, it.stamp.is_some())).collect::<Vec<_>>()
    };
    let sound = |number| (object(number), 100, true);
    let unknown = |number| (object(number), 0, false);
    // That passes, and is asked for until it has.
    world.objects.set_unreadable(&object(2), Some(EMFILE));
    let asked = world.submit(
        mdt,
        Request::Ost(OstRequest::ListObjects { after: None }),
        bytes::Bytes::new(),
        Kind::Plain,
    );
    world.pass(base::Duration::from_secs(2));
    assert!(world.result(mdt, asked).is_none());
    world.objects.set_unreadable(&object(2), None);
    world.pass(base::Duration::from_secs(10));
    let Some(Ok(answer)) = world.result(mdt, asked) else { panic!("it is answered") };
    let Reply::Ost(OstReply::Objects { listed, .. }) = answer.reply else { panic!("{:?}", answer.reply) };
    assert!(listed.iter().all(|it| it.size_bytes == 100), "{listed:?}");
    world.objects.set_unreadable(&object(2), Some(EIO));
    let mut batch = store::Batch::new();
    batch.put(oss::rows::OBJECTS, &object(3).key(), b"damaged");
    world.sync();
    world.meta.apply(world.meta.applied().next(), &batch).expect("a row");
    world.meta.sync();
    let fails = store::StoreError::Device { operation: "read a row", errno: EIO };
    assert!(world.meta.set_unreadable(oss::rows::OBJECTS, &object(4).key(), fails));
    world.kill();
    world.start();
    world.pass(base::Duration::from_secs(10));
    let told_of = |world: &World, number| {
        let is_it = |event: &&OssEvent| matches!(event, OssEvent::Corrupt { object: of, .. } if *of == object(number));
        world.events.iter().filter(is_it).count()
    };
    for _ in 0..3 {
        assert_eq!(list(&mut world), [sound(1), unknown(2), unknown(3), unknown(4), sound(5)]);
        assert_eq!((2..=4).map(|number| told_of(&world, number)).collect::<Vec<_>>(), [1, 1, 1]);
        assert_eq!(world.oss().stats().unreadable_count, 3);
    }
    assert_eq!(told_of(&world, 1) + told_of(&world, 5), 0);
}

#[test]
fn an_object_that_cannot_be_removed_keeps_none_behind_it() {
    const EIO: i32 = 5;
    let mut world = World::new();
    let (client, mdt) = (world.client(1), world.mdt(0));
    for number in 1..=3 {
        world.lock_and_write(client, object(number), 0, &[1; 100]);
    }
    let all = Request::Ost(OstRequest::Destroy { objects: (1..=3).map(object).collect() });
    world.objects.set_unreadable(&object(2), Some(EIO));
    assert_eq!(world.call(mdt, all.clone(), &[], Kind::Modifying).map(drop), Err(Status::Io));
    assert_eq!(world.objects.list(None, 10), Ok(vec![object(2)]));
    world.objects.set_unreadable(&object(2), None);
    assert_eq!(world.call(mdt, all, &[], Kind::Modifying).map(drop), Ok(()));
    assert_eq!(world.objects.list(None, 10), Ok(vec![]));
    assert_eq!(world.oss().stats().destroy_count, 3);
}

#[test]
fn seek_finds_data_and_holes() {
    let mut world = World::new();
    let client = world.client(1);
    world.lock_and_write(client, object(1), 1 << 20, &[1; 4096]);
    let mut seek = |offset_bytes, is_hole| {
        let request = OstRequest::Seek { object: object(1), offset_bytes, is_hole };
        match world.call(client, Request::Ost(request), &[], Kind::Plain) {
            Ok((Reply::Ost(OstReply::Seek { offset_bytes }), _)) => offset_bytes,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(seek(0, false), Some(1 << 20));
    assert_eq!(seek(0, true), Some(0));
    assert_eq!(seek(1 << 20, true), Some((1 << 20) + 4096));
    assert_eq!(seek(2 << 20, false), None);
}

#[test]
fn advice_about_what_no_object_can_have_is_refused() {
    let mut world = World::new();
    let client = world.client(1);
    world.lock_and_write(client, object(1), 0, &[1; 4096]);
    let mut advise = |extent| {
        let request = OstRequest::Advise { object: object(1), extent, advice: Advice::WillRead };
        world.call(client, Request::Ost(request), &[], Kind::Plain).map(|(reply, _)| reply)
    };
    assert_eq!(advise(Extent::at(0, 4096)), Ok(Reply::Done));
    assert_eq!(advise(Extent::new(OBJECT_BYTES_MAX - 1, OBJECT_BYTES_MAX)), Ok(Reply::Done));
    let behind = [(OBJECT_BYTES_MAX, OBJECT_BYTES_MAX + 1), (u64::MAX - 4096, u64::MAX)];
    let reversed = [(1, 0), (4096, 4095), (u64::MAX, 0), (u64::MAX, u64::MAX - 1)];
    for (start, end) in behind.into_iter().chain(reversed) {
        assert_eq!(advise(Extent::new(start, end)), Err(Status::Invalid), "{start}..{end}");
    }
    assert_eq!(world.oss().stats().will_read_count, 2);
}

#[test]
fn statfs_names_the_device() {
    let mut world = World::new();
    let client = world.client(1);
    let reply =
        world.call(client, Request::Ost(OstRequest::Statfs), &[], Kind::Plain).map(|(reply, _)| reply);
    let Ok(Reply::Ost(OstReply::Statfs(Statfs { bytes_total, device, .. }))) = reply else {
        panic!("{reply:?}")
    };
    assert!(bytes_total > 0);
    assert_eq!(device, 5);
}

#[test]
fn damage_is_reported_and_never_returned() {
    let mut world = World::new();
    let client = world.client(1);
    world.lock_and_write(client, object(1), 0, &[1; 4096]);
    assert!(world.objects.rot(&object(1), 100));
    assert_eq!(world.read(client, object(1), Extent::at(0, 10)), Err(Status::Io));
    assert!(world.events.iter().any(|event| matches!(event, oss::OssEvent::Corrupt { .. })));
}

#[test]
fn bytes_and_sizes_are_counted() {
    let mut world = World::new();
    let client = world.client(1);
    let lock = world.lock_and_write(client, object(1), 0, &[1; 4096]);
    world.write(client, object(1), 0, &[1; 65536], lock).expect("held");
    world.read(client, object(1), Extent::at(0, 4096)).expect("it exists");
    let stats = world.oss().stats();
    assert_eq!((stats.write.bytes.count, stats.write.bytes.sum, stats.write.bytes.max), (2, 69_632, 65_536));
    assert_eq!((stats.write.pages.buckets[0], stats.write.pages.buckets[4]), (1, 1));
    assert_eq!(stats.read.bytes.sum, 4096);
}

/// Clients keep what they wrote until it is committed: rows do not wait for their own turn when the data are durable.
#[test]
fn rows_become_durable_with_the_data_that_they_tell_of() {
    let mut world = World::new();
    let client = world.client(1);
    let lock = world.lock_and_write(client, object(1), 0, &[1; 4096]);
    world.sync();
    world.is_syncing = false;
    world.write(client, object(1), 0, &[2; 4096], lock).expect("it is locked");
    let before = world.committed();
    world.is_syncing = true;
    world.run();
    assert_eq!(world.committed(), before, "nobody asks for anything");
    world.objects.sync();
    world.nudge();
    assert!(world.committed() > before);
}
