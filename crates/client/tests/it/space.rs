//! statfs(2) of a mount that does not wait for silent targets, and files that are placed by the room of OSTs.

use crate::world::{TOP, World, write_call};
use base::{Duration, TargetId, TargetKind};
use client::{Answer, Call};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const O_RDWR: u32 = 2;
const O_DIRECT: u32 = 0o40000;
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

/// The OST of a new file, and whether what is written to it is there in the end.
fn make(world: &mut World, name: &str) -> (u16, Result<(), i32>) {
    // Nothing of it is kept back, with room from a grant.
    let file = world.create_with(0, TOP, name, O_RDWR | O_DIRECT);
    let Ok(Answer::Stripe { layout: Some(layout), .. }) = world.call(0, Call::Getstripe { node: file.0 })
    else {
        panic!("it has a layout")
    };
    let written = world.call(0, write_call(file, 0, &[7; 4096])).map(|answer| {
        assert_eq!(answer, Answer::Written(4096));
    });
    let synced = world.call(0, Call::Fsync { node: file.0, fh: file.1, data_only: false }).map(drop);
    world.release(0, file);
    (layout.osts().next().expect("an OST"), written.and(synced))
}

fn make_all(world: &mut World, prefix: &str, count: usize) -> Vec<(u16, Result<(), i32>)> {
    (0..count).map(|number| make(world, &format!("{prefix}{number}"))).collect()
}

/// What Lustre's users expect: one full OST fails nobody's new files while others have room.
#[test]
fn new_files_miss_a_full_ost_until_it_has_room_again() {
    let mut world = World::new(1, 3, 1);
    world.are_osts_apart = true;
    for ost in 0..3 {
        world.restart(TargetId::ost(ost));
    }
    world.pass(Duration::from_secs(10));
    let made = make_all(&mut world, "before", 6);
    assert!(made.iter().all(|(_, written)| written.is_ok()), "{made:?}");
    assert_eq!(made.iter().filter(|(ost, _)| *ost == 1).count(), 2, "in turn: {made:?}");
    world.set_low(1, true);
    let unknown = make_all(&mut world, "unknown", 3);
    let failed: Vec<_> = unknown.iter().filter(|(_, written)| written.is_err()).collect();
    assert_eq!(failed, [&(1, Err(ENOSPC))], "nobody has said so yet: {unknown:?}");
    world.pass(Duration::from_secs(6));
    // The first one asks.
    assert_eq!(make(&mut world, "asks").1, Ok(()));
    let made = make_all(&mut world, "full", 20);
    assert!(made.iter().all(|(ost, written)| *ost != 1 && written.is_ok()), "{made:?}");
    world.set_low(1, false);
    world.pass(Duration::from_secs(6));
    assert_eq!(make(&mut world, "asks-again").1, Ok(()));
    let made = make_all(&mut world, "after", 6);
    assert!(made.iter().all(|(_, written)| written.is_ok()), "{made:?}");
    assert_eq!(made.iter().filter(|(ost, _)| *ost == 1).count(), 2, "{made:?}");
}

/// As when somebody removes a file and writes another one in its place: its objects are destroyed a while later.
#[test]
fn a_write_waits_for_the_room_of_what_was_removed() {
    let mut world = World::new(1, 1, 1);
    let file = world.create_with(0, TOP, "f", O_RDWR | O_DIRECT);
    let syncs = |world: &World| {
        let asked = world.requests(0, TargetKind::Mdt);
        asked.into_iter().find(|(name, _)| *name == "mds_sync").map_or(0, |(_, count)| count)
    };
    world.set_low(0, true);
    let before = syncs(&world);
    let writing = world.begin(0, write_call(file, 0, &[1; 100]));
    world.pass(Duration::from_millis(500));
    assert!(!world.is_answered(0, writing), "there may be room soon");
    assert_eq!(syncs(&world), before + 1, "what was removed is to be durable");
    world.set_low(0, false);
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(100)));

    world.set_low(0, true);
    let [second, third] = ["g", "h"].map(|name| world.create_with(0, TOP, name, O_RDWR | O_DIRECT));
    assert_eq!(world.write(0, second, 0, &[1; 100]), Err(ENOSPC));
    let writing = world.begin(0, write_call(third, 0, &[1; 100]));
    assert!(world.is_answered(0, writing), "it has just been waited for in vain");
    assert_eq!(world.finish(0, writing), Err(ENOSPC));
    assert_eq!(syncs(&world), before + 2);
}
