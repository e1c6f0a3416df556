//! OSTs hear late that a client was given up: of what it had sent before nothing is executed any more, and who has come since is not
//! concerned.

use crate::leases::pass_with_lease;
use crate::world::{O_RDWR, TOP, World, write_call};
use base::limits::{RECOVERY_WINDOW, SESSION_LEASE};
use base::{Duration, TargetId, TargetKind};
use client::{Answer, Call, Event, Input};

const MDT: TargetId = TargetId::mdt(0);
const OST: TargetId = TargetId::ost(0);
/// Longer than anybody who was given up may come back.
const LONG_ENOUGH: Duration = SESSION_LEASE.saturating_add(Duration::from_secs(2));

/// The second mount has written a file and is gone; more of it is on its way to the OST. The MDT has given it up and had the OST asked to
/// end its session, which is on its way too.
fn world_with_a_late_fence() -> World {
    let mut world = World::new(1, 1, 2);
    let file = world.create(1, TOP, "f");
    assert_eq!(world.write(1, file, 0, b"first"), Ok(5));
    world.mounts[1].is_slow_to = Some(OST);
    world.begin(1, write_call(file, 5, b"second"));
    world.pass(Duration::from_secs(3));
    world.mounts[1].is_cut_off = true;
    world.depart(1);
    world.are_fences_late = true;
    world
}

fn evictions(world: &World, mount: usize) -> usize {
    world.mounts[mount].events.iter().filter(|event| matches!(event, Event::Evicted(_))).count()
}

/// Whether the OST hears of the next incarnation first, or of the end of the one before.
#[test]
fn a_late_fence_ends_no_session_of_the_next_incarnation() {
    for is_fence_first in [true, false] {
        let mut world = world_with_a_late_fence();
        world.pass(LONG_ENOUGH);
        world.add_incarnation(2, 2);
        if is_fence_first {
            assert!(world.let_fences_arrive() > 0);
        }
        let node = world.lookup(2, TOP, "f").expect("it is there").node;
        let file = (node, world.open(2, node, O_RDWR).0);
        assert_eq!(world.write(2, file, 0, b"FIRST"), Ok(5));
        if !is_fence_first {
            assert!(world.let_fences_arrive() > 0);
        }
        assert!(world.let_arrive(1) > 0, "the dead one had sent it");
        assert_eq!(world.write(2, file, 5, b"!"), Ok(1));
        world.pass(Duration::from_secs(5));
        assert_eq!(evictions(&world, 2), 0, "fence first: {is_fence_first}");
        assert_eq!(world.read(2, file, 0, 20), b"FIRST!");
        world.release(2, file);
        world.pass(Duration::from_secs(5));
        assert_eq!(world.attr(2, node).size_bytes, 6);
    }
}

/// A mount is cut off from its MDT for so long that it is given up, and then is there again, before an OST that is away has heard of it.
#[test]
fn an_ost_that_was_away_ends_no_session_of_who_has_come_back_meanwhile() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(1, TOP, "f");
    assert_eq!(world.write(1, file, 0, b"first"), Ok(5));
    assert_eq!(world.names(0, TOP), vec!["f"]);
    world.pass(Duration::from_secs(2));
    world.mounts[1].unreachable = Some(MDT);
    world.crash(MDT);
    world.start(MDT);
    pass_with_lease(&mut world, 1, RECOVERY_WINDOW + Duration::from_secs(5));
    assert!(!world.is_recovering(0));
    world.crash(OST);
    pass_with_lease(&mut world, 1, LONG_ENOUGH);
    world.mounts[1].unreachable = None;
    world.input(1, Input::ConnectionLost(MDT));
    pass_with_lease(&mut world, 1, Duration::from_secs(5));
    assert!(world.mounts[1].events.contains(&Event::Evicted(MDT)));
    world.start(OST);
    pass_with_lease(&mut world, 1, Duration::from_secs(10));
    assert!(!world.mounts[1].events.contains(&Event::Evicted(OST)), "it lives, and its MDT knows");
    assert_eq!(world.write(1, file, 5, b"again"), Ok(5));
    world.release(1, file);
    world.pass(Duration::from_secs(10));
    let node = world.lookup(0, TOP, "f").expect("it is there").node;
    assert_eq!((world.attr(0, node).is_size_known, world.attr(0, node).size_bytes), (false, 10));
    // Now it has said long enough ago what it writes.
    for _ in 0..2 {
        pass_with_lease(&mut world, 1, LONG_ENOUGH);
        assert_eq!(world.attr(0, node).size_bytes, 10);
    }
    assert_eq!((world.attr(0, node).is_size_known, world.attr(0, node).size_bytes), (true, 10));
}

/// Nobody reports the size of a file whose writer has died. Who looks at it does, when nothing that was sent can come any more.
#[test]
fn who_looks_at_a_file_whose_writer_has_died_has_its_size_known_when_the_dead_is_fenced() {
    let mut world = world_with_a_late_fence();
    world.pass(LONG_ENOUGH);
    let node = world.lookup(0, TOP, "f").expect("it is there").node;
    for _ in 0..3 {
        assert_eq!((world.attr(0, node).is_size_known, world.attr(0, node).size_bytes), (false, 5));
        world.pass(Duration::from_secs(11));
    }
    let reports = |world: &World| world.sent(0, TargetKind::Mdt, "mds_report_size");
    assert_eq!(reports(&world), 0, "nobody wants to hear it");
    assert!(world.let_arrive(1) > 0, "the dead one had sent it");
    assert!(world.let_fences_arrive() > 0);
    // Not at once: it might be a file that somebody has just closed.
    assert_eq!((world.attr(0, node).is_size_known, world.attr(0, node).size_bytes), (false, 11));
    assert_eq!(reports(&world), 0);
    world.pass(Duration::from_secs(11));
    world.attr(0, node);
    assert_eq!((world.attr(0, node).is_size_known, world.attr(0, node).size_bytes), (true, 11));
    assert_eq!(reports(&world), 1);
}

/// Mount 1 writes eleven bytes and closes the file, and what it had sent last stays on its way to the OST.
fn release_slowly(world: &mut World, file: (u64, u64)) {
    assert_eq!(world.write(1, file, 0, b"fir"), Ok(3));
    assert_eq!(world.write(1, file, 3, b"st"), Ok(2));
    world.mounts[1].is_slow_to = Some(OST);
    assert_eq!(world.write(1, file, 5, b"second"), Ok(6));
    world.release(1, file);
    world.pass(Duration::from_secs(1));
}

/// What it had written goes on to the OST, and for so long the MDT has to know that the file is written.
#[test]
fn a_file_whose_close_waits_for_an_ost_is_open_again_before_anything_of_it_is_written_after_an_eviction() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(1, TOP, "f");
    release_slowly(&mut world, file);
    assert_eq!(world.open_count(0), 1, "its close waits for the OST");
    world.evict(1, 0);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.open_count(0), 1, "what was sent again may be executed from now on");
    // No longer does its being known to have been open say so.
    pass_with_lease(&mut world, 1, LONG_ENOUGH);
    let node = world.lookup(0, TOP, "f").expect("it is there").node;
    assert!(!world.attr(0, node).is_size_known);
    assert!(world.let_arrive(1) > 0);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.open_count(0), 0);
    assert_eq!((world.attr(0, node).is_size_known, world.attr(0, node).size_bytes), (true, 11));
}

/// As before, and somebody executes the file before its writer hears that it was evicted. What that one has been told is written is; it
/// counts, and nobody goes on believing a size from before.
#[test]
fn what_a_closing_file_is_still_written_with_counts_also_when_others_have_begun_to_execute_it() {
    const FMODE_EXEC: u32 = 0x20;
    let mut world = World::new(1, 1, 2);
    let made = Call::Create { parent: TOP, name: b"f".to_vec(), mode: 0o755, umask: 0, flags: O_RDWR };
    let Ok(Answer::Created { entry, fh, .. }) = world.call(1, made) else { panic!("a file is made") };
    let file = (entry.node, fh);
    release_slowly(&mut world, file);
    world.mounts[1].unreachable = Some(MDT);
    world.evict(1, 0);
    let node = world.lookup(0, TOP, "f").expect("it is there").node;
    let (running, _) = world.open(0, node, FMODE_EXEC);
    pass_with_lease(&mut world, 1, Duration::from_secs(2));
    world.mounts[1].unreachable = None;
    world.input(1, Input::ConnectionLost(MDT));
    pass_with_lease(&mut world, 1, LONG_ENOUGH);
    assert!(world.mounts[1].events.contains(&Event::Evicted(MDT)));
    assert_eq!(world.open_count(0), 2, "it is executed, and written");
    assert!(!world.attr(0, node).is_size_known);
    assert!(world.let_arrive(1) > 0);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.open_count(0), 1);
    assert_eq!((world.attr(0, node).is_size_known, world.attr(0, node).size_bytes), (true, 11));
    world.release(0, (node, running));
}
