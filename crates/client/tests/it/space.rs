//! statfs(2) of a mount that does not wait for silent targets.

use crate::world::{TOP, World};
use base::{Duration, TargetId, TargetKind};
use client::{Answer, Call};

const EIO: i32 = 5;
const OST: TargetId = TargetId::ost(0);

fn ask(world: &mut World) -> u64 {
    world.begin(0, Call::Statfs { node: TOP })
}

fn total_bytes(world: &mut World, id: u64) -> u64 {
    match world.finish(0, id) {
        Ok(Answer::Statfs(space)) => space.bytes_total,
        other => panic!("{other:?}"),
    }
}

fn question_count(world: &World) -> u64 {
    let sent = world.requests(0, TargetKind::Ost);
    sent.iter().filter(|(name, _)| *name == "ost_statfs").map(|(_, count)| count).sum()
}

/// It is connected as far as anybody knows: its process stands still.
#[test]
fn a_silent_target_is_waited_for_once_and_not_by_each_call() {
    let mut world = World::new(1, 1, 1);
    let id = ask(&mut world);
    let before = total_bytes(&mut world, id);
    assert!(before > 0);
    world.mounts[0].unreachable = Some(OST);
    let answered_count = question_count(&world);
    let first = ask(&mut world);
    assert!(!world.is_answered(0, first), "it may be slow only");
    assert_eq!(total_bytes(&mut world, first), before, "what it said last");
    for _ in 0..5 {
        let id = ask(&mut world);
        assert!(world.is_answered(0, id), "at once");
        assert_eq!(total_bytes(&mut world, id), before);
    }
    // The question of the first one goes on, and with its answer others are asked again.
    world.mounts[0].unreachable = None;
    world.pass(Duration::from_secs(20));
    assert_eq!(question_count(&world), answered_count + 1, "one question, however many asked");
    let id = ask(&mut world);
    assert_eq!(total_bytes(&mut world, id), before);
    assert_eq!(question_count(&world), answered_count + 2);
}

/// Nobody has ever asked it here.
#[test]
fn a_target_that_has_never_said_anything_has_one_question_however_often_somebody_asks() {
    for is_df in [false, true] {
        let mut world = World::new(1, 1, 1);
        world.mounts[0].unreachable = Some(OST);
        let ask = |world: &mut World| match is_df {
            true => world.begin(0, Call::DfTargets),
            false => ask(world),
        };
        let first = ask(&mut world);
        assert!(!world.is_answered(0, first), "it may be slow only");
        assert!(world.finish(0, first).is_ok(), "without it");
        for _ in 0..5 {
            let id = ask(&mut world);
            assert!(world.is_answered(0, id), "at once");
            assert!(world.finish(0, id).is_ok());
        }
        assert_eq!(question_count(&world), 0, "none is answered");
        world.mounts[0].unreachable = None;
        world.pass(Duration::from_secs(20));
        assert_eq!(question_count(&world), 1, "one question, however many asked");
        let id = ask(&mut world);
        match world.finish(0, id) {
            Ok(Answer::Statfs(space)) => assert!(space.bytes_total > 0),
            Ok(Answer::Targets(spaces)) => assert!(spaces.iter().all(|target| target.space.is_some())),
            other => panic!("{other:?}"),
        }
        assert_eq!(question_count(&world), 2);
    }
}

#[test]
fn who_waits_for_a_target_does_so_for_three_minutes_at_most() {
    let mut world = World::new(1, 1, 1);
    world.mounts[0].machine.set_statfs_lazy(false);
    let id = ask(&mut world);
    let before = total_bytes(&mut world, id);
    world.mounts[0].unreachable = Some(OST);
    let id = ask(&mut world);
    world.pass(Duration::from_secs(170));
    assert!(!world.is_answered(0, id));
    world.pass(Duration::from_secs(20));
    assert!(world.is_answered(0, id));
    assert_eq!(world.finish(0, id), Err(EIO));
    let id = ask(&mut world);
    world.pass(Duration::from_secs(60));
    assert!(!world.is_answered(0, id), "each waits by itself");
    world.mounts[0].unreachable = None;
    world.pass(Duration::from_secs(30));
    assert_eq!(total_bytes(&mut world, id), before, "it is back");
}
