//! Writes over several objects of which not all find room.

use crate::world::{O_RDONLY, O_RDWR, TOP, World, append_call, write_call};
use base::{TargetId, TargetKind};
use bytes::Bytes;
use client::{Answer, Call, Input, Setting, TargetSetting};
use std::sync::Arc;
use wire::{ComponentHint, LayoutHint};

const ENOSPC: i32 = 28;
pub const UNIT: u64 = 64 << 10;

/// Units of 64 KiB on this OST and those after it, until that many of them.
pub fn part(end_units: Option<u64>, first_ost: u16, stripe_count: u16) -> ComponentHint {
    ComponentHint {
        end_bytes: end_units.map(|units| units * UNIT),
        stripe_size_bytes: Some(UNIT as u32),
        stripe_count: Some(stripe_count),
        first_ost: Some(first_ost),
        ..ComponentHint::default()
    }
}

pub fn create(world: &mut World, name: &str, components: Vec<ComponentHint>) -> (u64, u64) {
    let layout = LayoutHint { components };
    let call = Call::CreateStriped { parent: TOP, name: name.into(), mode: 0o644, umask: 0, layout };
    assert_eq!(world.call(0, call), Ok(Answer::Done));
    let node = world.lookup(0, TOP, name).expect("it was made").node;
    (node, world.open(0, node, O_RDWR).0)
}

/// A file with its units on OST0000 and OST0001 in turn.
fn striped(world: &mut World) -> (u64, u64) {
    create(world, "f", vec![part(None, 0, 2)])
}

/// What another mount finds in the file.
fn seen_elsewhere(world: &mut World) -> Vec<u8> {
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDONLY);
    let bytes = world.read(1, (node, fh), 0, 1 << 20);
    assert_eq!(world.attr(1, node).size_bytes, bytes.len() as u64);
    bytes
}

fn write_count(world: &World) -> u64 {
    let requests = world.requests(0, TargetKind::Ost);
    requests.iter().filter(|(kind, _)| *kind == "ost_write").map(|(_, count)| *count).sum()
}

#[test]
fn a_write_ends_where_an_ost_has_no_room() {
    let mut world = World::new(1, 2, 2);
    let file = striped(&mut world);
    world.set_low(1, true);
    let before = write_count(&world);
    assert_eq!(world.write(0, file, 10, &[1; 4 * UNIT as usize]), Ok(UNIT - 10));
    let again = 6;
    assert_eq!(
        write_count(&world) - before,
        2 + again,
        "what is refused is tried again, and nothing behind it is sent"
    );
    let mut expected = vec![0; 10];
    expected.resize(UNIT as usize, 1);
    assert_eq!(seen_elsewhere(&mut world), expected);
    assert_eq!(world.write(0, file, UNIT, &[2; 10]), Err(ENOSPC), "nothing was written");
    assert_eq!(seen_elsewhere(&mut world), expected);
    world.set_low(1, false);
    assert_eq!(world.write(0, file, UNIT, &[2; 2 * UNIT as usize]), Ok(2 * UNIT));
    expected.resize(3 * UNIT as usize, 2);
    assert_eq!(seen_elsewhere(&mut world), expected);
}

/// The second unit would find room.
#[test]
fn a_write_whose_first_byte_finds_no_room_writes_nothing() {
    let mut world = World::new(1, 2, 2);
    let file = striped(&mut world);
    world.set_low(0, true);
    assert_eq!(world.write(0, file, 0, &[1; 4 * UNIT as usize]), Err(ENOSPC));
    assert_eq!(seen_elsewhere(&mut world), []);
}

#[test]
fn a_write_ends_at_the_border_of_a_component_that_is_full() {
    let mut world = World::new(1, 3, 2);
    let file = create(&mut world, "f", vec![part(Some(2), 0, 1), part(Some(4), 1, 1), part(None, 2, 1)]);
    world.set_low(1, true);
    assert_eq!(world.write(0, file, UNIT, &[1; 5 * UNIT as usize]), Ok(UNIT));
    assert_eq!(seen_elsewhere(&mut world).len() as u64, 2 * UNIT);
    assert_eq!(world.write(0, file, 4 * UNIT, &[1; 10]), Ok(10));
}

#[test]
fn an_append_ends_where_an_ost_has_no_room() {
    let mut world = World::new(1, 2, 2);
    let file = striped(&mut world);
    assert_eq!(world.write(0, file, 0, &[1; UNIT as usize - 100]), Ok(UNIT - 100));
    world.set_low(1, true);
    assert_eq!(world.call(0, append_call(file, &[2; 300])), Ok(Answer::Written(100)));
    assert_eq!(world.call(0, append_call(file, &[3; 300])), Err(ENOSPC));
    world.set_low(1, false);
    assert_eq!(world.call(0, append_call(file, &[4; 300])), Ok(Answer::Written(300)));
    let mut expected = vec![1; UNIT as usize - 100];
    expected.resize(UNIT as usize, 2);
    expected.resize(UNIT as usize + 300, 4);
    assert_eq!(seen_elsewhere(&mut world), expected);
}

#[test]
fn a_copy_says_how_much_found_room() {
    let mut world = World::new(1, 2, 2);
    let from = create(&mut world, "from", vec![part(None, 0, 1)]);
    let to = striped(&mut world);
    assert_eq!(world.write(0, from, 0, &[1; 3 * UNIT as usize]), Ok(3 * UNIT));
    world.set_low(1, true);
    let call = Call::CopyFileRange {
        node: from.0,
        fh: from.1,
        offset_bytes: 0,
        to_node: to.0,
        to_fh: to.1,
        to_offset_bytes: 0,
        byte_count: 3 * UNIT,
    };
    assert_eq!(world.call(0, call), Ok(Answer::Written(UNIT)));
    assert_eq!(seen_elsewhere(&mut world), vec![1; UNIT as usize]);
}

/// The kernel drops pages that it has written back, whatever it is told of their number.
#[test]
fn pages_that_are_written_back_in_part_are_an_error() {
    let mut world = World::new(1, 2, 2);
    let file = striped(&mut world);
    world.set_low(1, true);
    let mut call = write_call(file, 0, &[1; 2 * UNIT as usize]);
    if let Call::Write { is_writeback, .. } = &mut call {
        *is_writeback = true;
    }
    assert_eq!(world.call(0, call), Err(ENOSPC));
}

/// What is kept back is kept back as a whole, and finds room.
#[test]
fn writes_that_are_kept_back_are_never_short() {
    let mut world = World::new(1, 2, 2);
    let file = striped(&mut world);
    for number in 0..2 {
        assert_eq!(world.write(0, file, 0, &[number; 2 * UNIT as usize]), Ok(2 * UNIT));
    }
    let before = write_count(&world);
    assert_eq!(world.write(0, file, 0, &[3; 3 * UNIT as usize]), Ok(3 * UNIT));
    assert_eq!(write_count(&world), before, "it is kept back");
    world.set_low(1, true);
    let fsync = Call::Fsync { node: file.0, fh: file.1, data_only: false };
    assert_eq!(world.call(0, fsync), Ok(Answer::Done));
    assert_eq!(world.write(0, file, 2 * UNIT, &[4; 3 * UNIT as usize]), Ok(UNIT), "nothing more is");
    let mut expected = vec![3; 2 * UNIT as usize];
    expected.resize(3 * UNIT as usize, 4);
    assert_eq!(seen_elsewhere(&mut world), expected);
}

/// The first unit was written before the lock on the second was lost; done again, not even that finds room.
#[test]
fn what_an_earlier_try_has_written_is_told() {
    let mut world = World::new(1, 2, 2);
    let file = striped(&mut world);
    world.mounts[0].unreachable = Some(TargetId::ost(1));
    let writing = world.begin(0, write_call(file, 0, &[1; 2 * UNIT as usize]));
    // It waits for a lock of the OST that it does not reach.
    world.mounts[0].unreachable = None;
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(2 * UNIT)));
    world.mounts[0].unreachable = Some(TargetId::ost(1));
    let writing = world.begin(0, synchronous(file));
    world.evict_from_ost(0, 1);
    world.set_exhausted(0);
    world.mounts[0].unreachable = None;
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(UNIT)));
    assert_eq!(seen_elsewhere(&mut world)[..UNIT as usize], vec![2; UNIT as usize]);
}

/// A write that is not kept back.
fn synchronous(file: (u64, u64)) -> Call {
    const O_DSYNC: u32 = 0o10000;
    let mut call = write_call(file, 0, &[2; 2 * UNIT as usize]);
    if let Call::Write { flags, .. } = &mut call {
        *flags = O_DSYNC;
    }
    call
}

/// One client's own locks are in nobody's way there.
#[test]
fn reads_beside_a_write_over_two_objects_see_all_of_it_or_nothing() {
    let mut world = World::new(1, 2, 1);
    let file = striped(&mut world);
    assert_eq!(world.write(0, file, 0, &[1; 2 * UNIT as usize]), Ok(2 * UNIT));
    world.mounts[0].is_late = Some(TargetId::ost(0));
    let writing = world.begin(0, synchronous(file));
    let read = |offset_bytes, byte_count| {
        let (node, fh) = file;
        Call::Read { node, fh, offset_bytes, byte_count, is_direct: false }
    };
    let whole = world.begin(0, read(0, 2 * UNIT as u32));
    let second = world.begin(0, read(UNIT, UNIT as u32));
    world.let_come(0);
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(2 * UNIT)));
    assert_eq!(world.finish(0, whole), Ok(Answer::Bytes(vec![2; 2 * UNIT as usize].into())));
    assert_eq!(world.finish(0, second), Ok(Answer::Bytes(vec![2; UNIT as usize].into())));
}

fn fsync(file: (u64, u64)) -> Call {
    Call::Fsync { node: file.0, fh: file.1, data_only: false }
}

/// Bytes of a write, and somebody who sees whether they are in memory still.
fn watched(byte_count: usize) -> (Bytes, Arc<Vec<u8>>) {
    struct Owner(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let bytes = Arc::new(vec![5; byte_count]);
    (Bytes::from_owner(Owner(bytes.clone())), bytes)
}

/// Each OST has its part until that is durable there, and counts no more than the part.
#[test]
fn a_part_of_a_write_does_not_keep_all_of_it_in_memory() {
    for is_kept in [false, true] {
        let mut world = World::new(1, 4, 1);
        let file = create(&mut world, "f", vec![part(None, 0, 4)]);
        for _ in 0..2 {
            assert_eq!(world.write(0, file, 0, &[1; 4 * UNIT as usize]), Ok(4 * UNIT));
            assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
        }
        if !is_kept {
            let setting = |ost| Setting::Target(TargetId::ost(ost), TargetSetting::DirtyBytes(0));
            (0..4).for_each(|ost| world.input(0, Input::Set(setting(ost))));
        }
        // Nothing more becomes durable.
        world.is_syncing = false;
        let (bytes, watcher) = watched(4 * UNIT as usize);
        let mut call = write_call(file, 0, &[]);
        if let Call::Write { data, .. } = &mut call {
            *data = bytes;
        }
        let before = write_count(&world);
        assert_eq!(world.call(0, call), Ok(Answer::Written(4 * UNIT)));
        assert_eq!(write_count(&world) == before, is_kept);
        (0..30).for_each(|_| world.pass_a_little());
        assert_eq!(write_count(&world) - before, 4, "kept back: {is_kept}");
        assert_eq!(Arc::strong_count(&watcher), 1, "kept back: {is_kept}");
    }
}

/// Of both units.
fn kept((node, fh): (u64, u64), stamp: u8) -> Call {
    write_call((node, fh), 0, &[stamp; 2 * UNIT as usize])
}

/// A file over both OSTs whose writer may keep writes back. It is full of ones.
fn kept_world() -> (World, (u64, u64)) {
    let mut world = World::new(1, 2, 1);
    let file = striped(&mut world);
    for _ in 0..2 {
        assert_eq!(world.call(0, kept(file, 1)), Ok(Answer::Written(2 * UNIT)));
        assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    }
    (world, file)
}

fn is_all_of_one((node, fh): (u64, u64), world: &mut World) -> bool {
    let bytes = world.read(0, (node, fh), 0, 2 * UNIT as u32);
    bytes.len() as u64 == 2 * UNIT && bytes.iter().all(|byte| *byte == bytes[0])
}

/// The parts of what is kept back go by themselves, and one of them may overtake the read's.
#[test]
fn a_read_beside_what_is_kept_back_sees_all_of_it_or_nothing() {
    let (mut world, file) = kept_world();
    let other = create(&mut world, "g", vec![part(None, 1, 1)]);
    assert_eq!(world.write(0, other, 0, &[7; 100]), Ok(100));
    let ost = TargetId::ost(1);
    world.input(0, Input::Set(Setting::Target(ost, TargetSetting::PlainInFlight(1))));
    world.mounts[0].is_late = Some(ost);
    let read = |(node, fh), byte_count| Call::Read { node, fh, offset_bytes: 0, byte_count, is_direct: true };
    let mut waiting = vec![world.begin(0, read(other, 100))];
    let reading = world.begin(0, read(file, 2 * UNIT as u32));
    // A read that was overtaken reads anew.
    for stamp in 2..6 {
        waiting.push(world.begin(0, kept(file, stamp)));
        waiting.push(world.begin(0, fsync(file)));
        waiting.push(world.begin(0, read(other, 100)));
        for _ in 0..2 {
            let answers = world.take_late(0);
            world.mounts[0].is_late = Some(ost);
            world.come(0, answers);
        }
    }
    world.let_come(0);
    let Ok(Answer::Bytes(bytes)) = world.finish(0, reading) else { panic!("it is read") };
    assert_eq!(bytes[0], bytes[UNIT as usize]);
    assert!(waiting.into_iter().all(|call| world.finish(0, call).is_ok()));
}

/// Else the parts that are kept would be written between those of the other one, some after and some before.
#[test]
fn a_write_beside_another_one_is_not_kept_back_in_parts() {
    let (mut world, file) = kept_world();
    world.mounts[0].is_late = Some(TargetId::ost(0));
    let first = world.begin(0, synchronous(file));
    let second = world.begin(0, kept(file, 3));
    let syncing = world.begin(0, fsync(file));
    world.let_come(0);
    for writing in [first, second] {
        assert_eq!(world.finish(0, writing), Ok(Answer::Written(2 * UNIT)));
    }
    assert_eq!(world.finish(0, syncing), Ok(Answer::Done));
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    assert!(is_all_of_one(file, &mut world));
}

/// It came while what had been kept before was written, which both wait for.
#[test]
fn what_is_kept_back_before_a_write_has_its_turn_is_written_before_it() {
    let ost = TargetId::ost(0);
    let (mut world, file) = kept_world();
    assert_eq!(world.call(0, kept(file, 4)), Ok(Answer::Written(2 * UNIT)));
    world.mounts[0].is_late = Some(ost);
    let first = world.begin(0, synchronous(file));
    let second = world.begin(0, kept(file, 3));
    assert!(world.is_answered(0, second), "it is kept back");
    let answers = world.take_late(0);
    world.mounts[0].is_late = Some(ost);
    world.come(0, answers);
    let syncing = world.begin(0, fsync(file));
    world.let_come(0);
    assert_eq!(world.finish(0, first), Ok(Answer::Written(2 * UNIT)));
    assert_eq!(world.finish(0, syncing), Ok(Answer::Done));
    assert!(is_all_of_one(file, &mut world));
}

/// A full OST refuses it, and the file ends where it did; what the others have taken stays with it.
#[test]
fn an_allocation_that_one_ost_has_no_room_for_makes_no_file_longer() {
    const ZERO_RANGE: u32 = 16;
    let mut world = World::new(1, 2, 2);
    let file = striped(&mut world);
    assert_eq!(world.write(0, file, 0, &[1; 10]), Ok(10));
    let (node, fh) = file;
    let call = |mode| Call::Fallocate { node, fh, offset_bytes: 0, byte_count: 3 * UNIT - 5, mode };
    for mode in [0, ZERO_RANGE] {
        world.set_low(1, true);
        assert_eq!(world.call(0, call(mode)), Err(ENOSPC));
        assert_eq!(world.attr(0, node).size_bytes, 10, "mode {mode}");
        assert_eq!(seen_elsewhere(&mut world), [1; 10], "mode {mode}: nor has any byte changed");
        world.set_low(1, false);
    }
    for mode in [0, ZERO_RANGE] {
        let set = client::SetattrCall { size_bytes: Some(10), fh: Some(fh), ..Default::default() };
        assert!(world.call(0, Call::Setattr { node, set }).is_ok());
        assert_eq!(world.call(0, call(mode)), Ok(Answer::Done));
        assert_eq!(world.attr(0, node).size_bytes, 3 * UNIT - 5, "mode {mode}");
        assert_eq!(seen_elsewhere(&mut world).len() as u64, 3 * UNIT - 5, "mode {mode}");
    }
}
