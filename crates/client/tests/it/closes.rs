//! Closes of what was only read: later, with other requests, and before anybody minds.

use crate::world::{O_RDONLY, O_RDWR, TOP, World};
use base::{Duration, TargetId};
use client::{Call, Event};

/// Names of files of one object each, made by mount 0.
fn world_with(names: &[&str]) -> World {
    let mut world = World::new(1, 1, 2);
    for name in names {
        world.write_small_file(0, name);
    }
    world.pass(Duration::from_secs(3));
    world
}

fn read_whole(world: &mut World, mount: usize, name: &str) -> u64 {
    let node = world.lookup(mount, TOP, name).expect("it is there").node;
    let (fh, _) = world.open(mount, node, O_RDONLY);
    assert_eq!(world.read(mount, (node, fh), 0, 5000), [7; 4096]);
    world.release(mount, (node, fh));
    node
}

#[test]
fn closes_of_what_was_read_go_with_later_opens() {
    let names = ["a", "b", "c", "d", "e"];
    let mut world = world_with(&names);
    names.iter().for_each(|name| drop(world.lookup(1, TOP, name)));
    let cost = world.cost(1, |world| {
        for name in names {
            read_whole(world, 1, name);
            assert_eq!(world.open_count(0), 1, "that of the file before has gone with the open of {name}");
        }
    });
    assert_eq!((cost["mds_open"], cost["mds_close"]), (5, 1), "{cost:?}");
    assert_eq!(world.open_count(0), 0);
}

#[test]
fn many_closes_do_not_wait_for_an_open() {
    let mut world = world_with(&["f"]);
    let node = world.lookup(1, TOP, "f").expect("it is there").node;
    let handles: Vec<u64> = (0..100).map(|_| world.open(1, node, O_RDONLY).0).collect();
    handles.into_iter().for_each(|fh| world.release(1, (node, fh)));
    assert_eq!(world.open_count(0), 100 - 64);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.open_count(0), 0);
}

/// Who writes finds nobody else at the file, may map it, and keeps back what he writes.
#[test]
fn who_opens_for_writing_is_not_told_of_handles_that_are_gone() {
    let mut world = world_with(&["f"]);
    let node = read_whole(&mut world, 1, "f");
    assert_eq!(world.open_count(0), 1);
    let (fh, mode) = world.open(0, node, O_RDWR);
    assert!(!mode.is_direct);
    assert_eq!(world.open_count(0), 1);
    // While somebody writes, readers say at once that they are done.
    read_whole(&mut world, 1, "f");
    assert_eq!(world.open_count(0), 1);
    world.release(0, (node, fh));
}

#[test]
fn a_file_that_was_read_goes_with_its_name() {
    let mut world = world_with(&["own", "others", "replaced", "over"]);
    for (mount, name) in [(0, "others"), (1, "own")] {
        read_whole(&mut world, 1, name);
        assert_eq!(world.open_count(0), 1);
        assert!(world.call(mount, Call::Unlink { parent: TOP, name: name.into() }).is_ok());
        assert_eq!(world.open_count(0), 0, "{name}");
    }
    read_whole(&mut world, 1, "replaced");
    let (name, new_name) = ("over".into(), "replaced".into());
    let call = Call::Rename { parent: TOP, name, new_parent: TOP, new_name, flags: 0 };
    assert!(world.call(1, call).is_ok());
    assert_eq!(world.open_count(0), 0);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.object_count(0), 1);
}

/// The open that takes a close along waits for the holder of what is kept back, and he for the file that was closed.
#[test]
fn a_close_that_is_on_its_way_with_an_open_that_waits_keeps_nobody() {
    let mut world = world_with(&["read", "written"]);
    world.lookup(1, TOP, "written").expect("it is there");
    let read = read_whole(&mut world, 1, "read");
    let written = world.lookup(0, TOP, "written").expect("it is there").node;
    let (fh, _) = world.open(0, written, O_RDWR);
    for _ in 0..3 {
        assert_eq!(world.write(0, (written, fh), 0, &[8; 10]), Ok(10));
    }
    world.crash(TargetId::ost(0));
    let opening = world.begin(1, Call::Open { node: written, flags: O_RDONLY });
    world.run();
    assert!(!world.is_answered(1, opening), "what is kept back cannot be sent");
    let writing = world.begin(0, Call::Open { node: read, flags: O_RDWR });
    world.run();
    assert!(world.is_answered(0, writing));
    world.start(TargetId::ost(0));
    world.pass(Duration::from_secs(10));
    assert!(world.finish(1, opening).is_ok());
}

#[test]
fn a_close_that_a_restart_overtakes_leaves_nothing_behind() {
    let mut world = world_with(&["f"]);
    read_whole(&mut world, 1, "f");
    world.crash(TargetId::mdt(0));
    world.start(TargetId::mdt(0));
    world.pass(Duration::from_secs(10));
    assert_eq!(world.open_count(0), 0);
    assert!(world.call(0, Call::Unlink { parent: TOP, name: "f".into() }).is_ok());
    world.pass(Duration::from_secs(10));
    assert_eq!(world.object_count(0), 0);
    let is_bad = |event: &Event| matches!(event, Event::Evicted(_) | Event::ReplayRefused { .. });
    assert!(!world.mounts.iter().any(|mount| mount.events.iter().any(is_bad)));
}

#[test]
fn a_mount_that_ends_leaves_nothing_open() {
    let mut world = world_with(&["f"]);
    read_whole(&mut world, 1, "f");
    world.input(1, client::Input::Drain { patience: Duration::from_secs(10) });
    world.run();
    assert_eq!(world.open_count(0), 0);
}
