//! Files whose first bytes are on their MDT.

use crate::small_files::counts;
use crate::world::{Loss, O_RDONLY, O_RDWR, TOP, World, write_call};
use base::{Duration, Layout, TargetId, TargetKind};
use client::{Answer, Call, Event};
use wire::{ComponentHint, LayoutHint};

const O_DIRECT: u32 = 0o40000;
const BORDER: u64 = 64 << 10;

/// What lies below `BORDER` is on the MDT, in all new files.
fn world(mount_count: usize) -> World {
    let mut world = World::new(1, 1, mount_count);
    let on_mdt =
        ComponentHint { end_bytes: Some(BORDER), osts: vec![Layout::ON_MDT], ..ComponentHint::default() };
    let layout = LayoutHint { components: vec![on_mdt, ComponentHint::default()] };
    assert_eq!(world.call(0, Call::Setstripe { node: TOP, layout }), Ok(Answer::Done));
    world
}

#[test]
fn what_is_on_the_mdt_is_not_on_an_ost() {
    let mut world = world(2);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, &[7; 5000]), Ok(5000));
    world.release(0, file);
    world.pass(Duration::from_secs(3));
    assert_eq!((world.object_count(0), world.sent(0, TargetKind::Ost, "ost_write")), (0, 0));
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let attr = world.attr(1, node);
    assert_eq!((attr.size_bytes, attr.block_count), (5000, 10));
    let (fh, _) = world.open(1, node, O_RDWR);
    assert_eq!(world.read(1, (node, fh), 0, 10_000), [7; 5000]);
    assert_eq!(world.write(1, (node, fh), BORDER - 2, &[8; 4]), Ok(4));
    assert_eq!(world.read(1, (node, fh), BORDER - 4, 100), [0, 0, 8, 8, 8, 8]);
    assert_eq!(world.object_count(0), 1, "the rest of it");
}

#[test]
fn data_on_an_mdt_survive_it() {
    let mut world = world(2);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, &[7; 20_000]), Ok(20_000));
    assert_eq!(world.write(0, file, 10_000, &[8; 5000]), Ok(5000));
    world.crash(TargetId::mdt(0));
    world.start(TargetId::mdt(0));
    world.pass(Duration::from_secs(10));
    let node = world.lookup(1, TOP, "f").expect("its creation was replayed").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    let expected = [vec![7; 10_000], vec![8; 5000], vec![7; 5000]].concat();
    assert_eq!(world.read(1, (node, fh), 0, 30_000), expected);
    let is_bad = |event: &Event| matches!(event, Event::Evicted(_) | Event::ReplayRefused { .. });
    assert!(!world.mounts.iter().any(|mount| mount.events.iter().any(is_bad)));
}

/// What is read under a lock that somebody else gave back is durable.
#[test]
fn a_lock_on_data_goes_back_when_they_are_durable() {
    let mut world = world(2);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, &[7; 100]), Ok(100));
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    assert_eq!(world.read(1, (node, fh), 0, 100), [7; 100]);
    // Its writer is not there to do it again.
    world.mounts[0].unreachable = Some(TargetId::mdt(0));
    world.crash(TargetId::mdt(0));
    world.start(TargetId::mdt(0));
    world.pass(Duration::from_secs(100));
    assert_eq!(world.read(1, (node, fh), 0, 100), [7; 100]);
}

#[test]
fn a_small_file_costs_two_requests() {
    let mut world = world(2);
    let first = world.write_small_file(0, "first");
    world.pass(Duration::from_secs(3));
    let cost = world.cost(0, |world| {
        world.write_small_file(0, "second");
    });
    assert_eq!(cost, counts([("mds_create", 1), ("mds_close", 1)]));
    let known = world.cost(0, |world| assert_eq!(world.attr(0, first.0).size_bytes, 4096));
    assert_eq!(known, counts([]), "the answer to the close has told it");
    for name in ["first", "second"] {
        let node = world.lookup(1, TOP, name).expect("it was made").node;
        let attr = world.attr(1, node);
        assert_eq!((attr.size_bytes, attr.block_count), (4096, 8));
    }
    // With the close came the size: nobody has to be asked for it.
    assert_eq!(world.sent(1, TargetKind::Mdt, "ost_getattr"), 0);
    let (fh, _) = world.open(1, first.0, O_RDWR);
    assert_eq!(world.read(1, (first.0, fh), 0, 5000), [7; 4096]);
}

/// What goes with a close is done again like everything else.
#[test]
fn data_that_came_with_a_close_survive_the_mdt() {
    let mut world = world(2);
    let file = world.write_small_file(0, "f");
    world.crash(TargetId::mdt(0));
    world.start(TargetId::mdt(0));
    world.pass(Duration::from_secs(10));
    world.lookup(1, TOP, "f").expect("it was made");
    let (fh, _) = world.open(1, file.0, O_RDWR);
    assert_eq!(world.read(1, (file.0, fh), 0, 5000), [7; 4096]);
}

/// The answer to the close is lost with the MDT: the close comes again, under the lock that its client has named.
#[test]
fn data_that_are_on_their_way_with_a_close_survive_the_mdt() {
    let mut world = world(2);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, &[7; 4096]), Ok(4096));
    world.mounts[0].unreachable = Some(TargetId::mdt(0));
    world.release(0, file);
    world.crash(TargetId::mdt(0));
    world.mounts[0].unreachable = None;
    world.start(TargetId::mdt(0));
    world.pass(Duration::from_secs(30));
    world.lookup(1, TOP, "f").expect("it was made");
    let (fh, _) = world.open(1, file.0, O_RDWR);
    assert_eq!(world.read(1, (file.0, fh), 0, 5000), [7; 4096]);
}

#[test]
fn the_bytes_of_a_small_file_come_with_its_open() {
    let mut world = world(3);
    world.write_small_file(0, "f");
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDONLY);
    assert_eq!(world.read(1, (node, fh), 0, 4096), [7; 4096], "its writer has given its lock back");
    world.lookup(2, TOP, "f").expect("it was made");
    let cost = world.cost(2, |world| {
        let (fh, _) = world.open(2, node, O_RDONLY);
        assert_eq!(world.read(2, (node, fh), 0, 3000), [7; 3000]);
        assert_eq!(world.read(2, (node, fh), 3000, 9000), [7; 1096]);
        world.release(2, (node, fh));
    });
    assert_eq!(cost, counts([("mds_open", 1), ("mds_close", 1)]));
}

/// Its writer has closed it, and is asked for its lock by the open itself.
#[test]
fn the_bytes_of_a_file_that_somebody_else_has_just_written_come_with_its_open() {
    let mut world = world(2);
    let (node, _) = world.write_small_file(0, "f");
    world.lookup(1, TOP, "f").expect("it was made");
    let cost = world.cost(1, |world| {
        let (fh, _) = world.open(1, node, O_RDONLY);
        assert_eq!(world.read(1, (node, fh), 0, 5000), [7; 4096]);
        world.release(1, (node, fh));
    });
    assert_eq!(cost, counts([("mds_open", 1), ("mds_close", 1)]));
    let cost = world.cost(0, |world| {
        let (fh, _) = world.open(0, node, O_RDWR);
        assert_eq!(world.write(0, (node, fh), 0, &[8; 10]), Ok(10));
        world.release(0, (node, fh));
    });
    assert_eq!(cost, counts([("mds_open", 1), ("mds_close", 1)]));
    let (fh, _) = world.open(1, node, O_RDONLY);
    assert_eq!(world.read(1, (node, fh), 0, 10), [8; 10]);
}

/// Who is writing is not waited for: what he does may wait for the reader.
#[test]
fn an_open_does_not_wait_for_data_that_somebody_writes() {
    let mut world = world(2);
    let (node, fh) = world.create(0, TOP, "f");
    assert_eq!(world.write(0, (node, fh), 0, &[7; 10]), Ok(10));
    world.lookup(1, TOP, "f").expect("it was made");
    let cost = world.cost(1, |world| {
        world.open(1, node, O_RDONLY);
    });
    assert_eq!(cost, counts([("mds_open", 1)]));
    assert_eq!(world.sent(0, TargetKind::Mdt, "ldlm_cancel"), 1, "of what it kept back");
}

/// What came with an open counts for as long as its lock.
#[test]
fn what_somebody_has_written_since_an_open_is_read() {
    let mut world = world(3);
    world.write_small_file(0, "f");
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDONLY);
    assert_eq!(world.read(1, (node, fh), 0, 4096), [7; 4096]);
    world.lookup(2, TOP, "f").expect("it was made");
    let (fh, _) = world.open(2, node, O_RDONLY);
    let (writer, _) = world.open(0, node, O_RDWR);
    assert_eq!(world.write(0, (node, writer), 4000, &[8; 1000]), Ok(1000));
    let expected = [vec![7; 4000], vec![8; 1000]].concat();
    assert_eq!(world.read(2, (node, fh), 0, 8192), expected);
}

/// Who opens the file is in the way of the size, and waits for what the close carries.
#[test]
fn an_open_that_waits_for_data_is_not_in_the_way_of_the_close_that_brings_them() {
    let mut world = world(2);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, &[7; 4096]), Ok(4096));
    world.mounts[0].unreachable = Some(TargetId::mdt(0));
    let open = Call::Create { parent: TOP, name: b"f".into(), mode: 0o644, umask: 0, flags: O_RDWR };
    let opening = world.begin(1, open);
    world.pass(Duration::from_millis(100));
    world.release(0, file);
    world.mounts[0].unreachable = None;
    world.pass(Duration::from_secs(5));
    let Ok(Answer::Created { entry, fh, .. }) = world.finish(1, opening) else { panic!("it is there") };
    assert_eq!(entry.attr.expect("it comes along").size_bytes, 4096);
    assert_eq!(world.read(1, (entry.node, fh), 0, 5000), [7; 4096]);
    assert!(!world.mounts[0].events.iter().any(|event| matches!(event, Event::Evicted(_))));
}

/// Whoever has written a file and is asked for its size knows it, and goes on keeping it back.
#[test]
fn the_size_of_what_is_kept_back_costs_no_request() {
    let mut world = world(2);
    let first = world.write_small_file(0, "first");
    world.pass(Duration::from_secs(3));
    let cost = world.cost(0, |world| {
        let file = world.create(0, TOP, "second");
        assert_eq!(world.write(0, file, 0, &[7; 3000]), Ok(3000));
        let attr = world.attr(0, file.0);
        assert_eq!((attr.size_bytes, attr.block_count), (3000, 6));
        world.release(0, file);
    });
    assert_eq!(cost, counts([("mds_create", 1), ("mds_close", 1)]));
    // Its lock was never given back: the bytes come under it.
    let cost = world.cost(0, |world| {
        let (fh, _) = world.open(0, first.0, O_RDONLY);
        assert_eq!(world.read(0, (first.0, fh), 0, 4096), [7; 4096]);
        world.release(0, (first.0, fh));
    });
    assert_eq!(cost, counts([("mds_open", 1), ("mds_close", 1)]));
}

/// Seed 364 of three clients: a read of the mount that writes asks for the file's end, since it has come to the end of an object. The write was
/// there in between and its answer was not, so nothing told the read that it had been overtaken: it gave zeros that were never written.
#[test]
fn a_read_beside_a_write_of_the_same_mount_is_of_before_or_after_it() {
    for is_locked in [false, true] {
        for carried_count in 0..10 {
            let mut world = world(1);
            let mdt = TargetId::mdt(0);
            let file = world.create_with(0, TOP, "f", O_RDWR | O_DIRECT);
            let before = if is_locked { vec![1] } else { Vec::new() };
            assert_eq!(world.write(0, file, 0, &before), Ok(before.len() as u64));
            world.mounts[0].is_slow_to = Some(mdt);
            world.mounts[0].loses = Some(Loss::AnswersToWrites);
            let writing = world.prepare(0, write_call(file, 0, &[7; 3000]));
            // It goes another way, and slowly.
            world.mounts[0].is_slow_to = None;
            let (node, fh) = file;
            let byte_count = BORDER as u32;
            let read = Call::Read { node, fh, offset_bytes: 0, byte_count, is_direct: true };
            let reading = world.prepare(0, read);
            for _ in 0..carried_count {
                world.carry_one_in_order();
            }
            assert_eq!(world.let_arrive(0), 1);
            let bytes = match world.finish(0, reading) {
                Ok(Answer::Bytes(bytes)) => bytes.to_vec(),
                other => panic!("{other:?}"),
            };
            let is_whole = bytes == before || bytes == [7; 3000];
            assert!(is_whole, "{is_locked} {carried_count}: {} bytes, {:?}", bytes.len(), bytes.get(..4));
            world.mounts[0].loses = None;
            assert_eq!(world.finish(0, writing), Ok(Answer::Written(3000)));
            assert_eq!(world.read(0, file, 0, byte_count), [7; 3000]);
        }
    }
}
