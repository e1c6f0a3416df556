//! Files whose first bytes are on their MDT.

use crate::world::{O_RDWR, TOP, World};
use base::{Duration, Layout, TargetId, TargetKind};
use client::{Answer, Call, Event};
use wire::{ComponentHint, LayoutHint};

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
