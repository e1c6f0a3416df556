//! The root of a mount whose MDT is silent: remembered, for umount(8) asks for it.

use crate::leases::pass_with_lease;
use crate::world::{TOP, World};
use base::{Duration, TargetId, TargetKind};
use client::{Answer, AttrAnswer, Call, SetattrCall};

const MDT: TargetId = TargetId::mdt(0);

fn ask(world: &mut World, mount: usize) -> u64 {
    world.begin(mount, Call::Getattr { node: TOP, fh: None })
}

fn answer(world: &mut World, mount: usize, id: u64) -> AttrAnswer {
    match world.finish(mount, id) {
        Ok(Answer::Attr(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

fn set_mode(world: &mut World, mount: usize, mode: u32) {
    let set = SetattrCall { mode: Some(mode), ..SetattrCall::default() };
    world.call(mount, Call::Setattr { node: TOP, set }).expect("root may");
}

fn getattr_count(world: &World, mount: usize) -> u64 {
    let sent = world.requests(mount, TargetKind::Mdt);
    sent.iter().find(|(name, _)| *name == "mds_getattr").map_or(0, |(_, count)| *count)
}

/// A mount that has seen the root with mode 0755 and has no lock on it any more; another one makes it 0700; the MDT falls silent.
fn world_with_a_silent_mdt() -> World {
    let mut world = World::new(1, 1, 2);
    set_mode(&mut world, 0, 0o755);
    assert_eq!(world.attr(0, TOP).permissions, 0o755);
    set_mode(&mut world, 1, 0o700);
    world.mounts[0].unreachable = Some(MDT);
    world
}

#[test]
fn the_root_is_remembered_while_its_mdt_is_silent() {
    let mut world = world_with_a_silent_mdt();
    let id = ask(&mut world, 0);
    world.pass(Duration::from_millis(1500));
    assert!(!world.is_answered(0, id), "a moment is no silence");
    world.pass(Duration::from_secs(1));
    let told = answer(&mut world, 0, id);
    assert!(told.is_remembered);
    assert_eq!(told.attr.permissions, 0o755, "what was known last");
    assert!(told.attr_valid.is_zero(), "the kernel asks again");

    world.mounts[0].unreachable = None;
    world.pass(Duration::from_secs(5));
    let id = ask(&mut world, 0);
    let told = answer(&mut world, 0, id);
    assert!(!told.is_remembered);
    assert_eq!(told.attr.permissions, 0o700);
}

#[test]
fn what_this_mount_has_changed_is_remembered() {
    let mut world = World::new(1, 1, 1);
    world.attr(0, TOP);
    set_mode(&mut world, 0, 0o711);
    world.mounts[0].unreachable = Some(MDT);
    // Until nothing is believed any more.
    pass_with_lease(&mut world, 0, Duration::from_secs(30));
    let id = ask(&mut world, 0);
    world.pass(Duration::from_secs(3));
    let told = answer(&mut world, 0, id);
    assert!(told.is_remembered);
    assert_eq!(told.attr.permissions, 0o711);
}

#[test]
fn a_silent_mdt_has_one_question_however_often_somebody_asks() {
    let mut world = world_with_a_silent_mdt();
    let before = getattr_count(&world, 0);
    for _ in 0..6 {
        let id = ask(&mut world, 0);
        world.pass(Duration::from_secs(3));
        assert!(answer(&mut world, 0, id).is_remembered);
    }
    assert_eq!(getattr_count(&world, 0), before, "none is answered");
    world.mounts[0].unreachable = None;
    world.pass(Duration::from_secs(20));
    let id = ask(&mut world, 0);
    let told = answer(&mut world, 0, id);
    assert!(!told.is_remembered);
    assert_eq!(told.attr.permissions, 0o700);
    assert_eq!(getattr_count(&world, 0), before + 2, "the first of the six, and this one");
}

#[test]
fn an_mdt_that_is_heard_is_waited_for() {
    let mut world = World::new(1, 1, 2);
    set_mode(&mut world, 0, 0o755);
    world.attr(0, TOP);
    set_mode(&mut world, 1, 0o700);
    world.mounts[0].loses_getattrs = true;
    let id = ask(&mut world, 0);
    world.pass(Duration::from_secs(10));
    assert!(!world.is_answered(0, id), "it answers everything else");
    world.mounts[0].loses_getattrs = false;
    world.pass(Duration::from_secs(10));
    let told = answer(&mut world, 0, id);
    assert!(!told.is_remembered);
    assert_eq!(told.attr.permissions, 0o700);
}

/// It waits for another mount that does not come back, and says so each second.
#[test]
fn an_mdt_that_recovers_is_waited_for() {
    let mut world = World::new(1, 1, 2);
    set_mode(&mut world, 0, 0o755);
    world.attr(0, TOP);
    set_mode(&mut world, 1, 0o700);
    world.mounts[1].unreachable = Some(MDT);
    world.restart_mdt(0);
    world.pass(Duration::from_secs(5));
    assert!(world.is_recovering(0));
    let id = ask(&mut world, 0);
    world.pass(Duration::from_secs(10));
    assert!(!world.is_answered(0, id), "it is heard");
    world.mounts[1].unreachable = None;
    world.pass(Duration::from_secs(20));
    let told = answer(&mut world, 0, id);
    assert!(!told.is_remembered);
    assert_eq!(told.attr.permissions, 0o700);
}

#[test]
fn other_directories_are_not_remembered() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    world.attr(0, dir);
    world.mounts[0].unreachable = Some(MDT);
    pass_with_lease(&mut world, 0, Duration::from_secs(30));
    let id = world.begin(0, Call::Getattr { node: dir, fh: None });
    world.pass(Duration::from_secs(10));
    assert!(!world.is_answered(0, id));
    world.mounts[0].unreachable = None;
    world.pass(Duration::from_secs(20));
    assert!(world.is_answered(0, id));
}

#[test]
fn the_root_of_a_mount_may_be_a_directory() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    world.mounts[0].machine.set_root(dir);
    world.attr(0, dir);
    world.mounts[0].unreachable = Some(MDT);
    pass_with_lease(&mut world, 0, Duration::from_secs(30));
    let of_the_file_system = ask(&mut world, 0);
    let id = world.begin(0, Call::Getattr { node: dir, fh: None });
    world.pass(Duration::from_secs(3));
    assert!(answer(&mut world, 0, id).is_remembered);
    assert!(!world.is_answered(0, of_the_file_system));
}
