//! Clocks that are set while everything runs: file times are the servers', and nothing else is a matter of the calendar.

use crate::world::{TOP, World};
use base::limits::{LEASE_RENEWAL, RECOVERY_WINDOW};
use base::{Duration, SetTime, TargetId, WallTime};
use client::{Answer, Call, Event, Input, SetattrCall};

const MDT: TargetId = TargetId::mdt(0);
const OST: TargetId = TargetId::ost(0);
const HOURS_NS: i64 = 5 * 3600 * 1_000_000_000;

/// Makes a file, writes and closes it; the times at the MDT before and after, and those that it has then.
fn times_of_a_file(world: &mut World, name: &str) -> (WallTime, [WallTime; 2], WallTime) {
    let before = world.now.wall;
    world.pass(Duration::from_secs(1));
    let file = world.create(0, TOP, name);
    assert_eq!(world.write(0, file, 0, b"of today"), Ok(8));
    world.pass(Duration::from_secs(1));
    world.release(0, file);
    // Its size is reported when the data are durable.
    world.pass(Duration::from_secs(5));
    let attr = world.attr(0, file.0);
    assert_eq!((attr.size_bytes, attr.is_size_known), (8, true));
    (before, [attr.mtime, attr.ctime], world.now.wall)
}

fn check_times(world: &mut World, name: &str) {
    let (before, times, after) = times_of_a_file(world, name);
    for time in times {
        assert!(before <= time && time <= after, "{name}: {time:?} is not from {before:?} to {after:?}");
    }
}

fn is_evicted(world: &World) -> bool {
    world.mounts.iter().any(|mount| mount.events.iter().any(|event| matches!(event, Event::Evicted(_))))
}

#[test]
fn a_clients_clock_that_is_set_does_not_show_in_file_times() {
    let mut world = World::new(1, 1, 1);
    check_times(&mut world, "as it was");
    for (name, by_ns) in [("ahead", HOURS_NS), ("back", -2 * HOURS_NS), ("back again", -HOURS_NS)] {
        world.mounts[0].ahead_ns += by_ns;
        check_times(&mut world, name);
    }
    // A session that is made while it is wrong.
    world.crash(MDT);
    world.start(MDT);
    world.input(0, Input::ConnectionLost(MDT));
    check_times(&mut world, "with a new session");
    assert!(!is_evicted(&world));
}

/// A busy node, a lost packet, a recovery: none of that dates data back for as long as the session lives.
#[test]
fn an_answer_to_a_connect_that_comes_late_makes_no_old_times() {
    let mut world = World::new(1, 1, 0);
    world.add_mount(1);
    world.mounts[0].is_late = Some(MDT);
    // Answered at once, and three seconds on its way.
    world.pass(Duration::from_secs(3));
    world.let_come(0);
    let probes = world.begin(0, Call::ProbeTargets);
    let Ok(Answer::Probes(probes)) = world.finish(0, probes) else { panic!("all targets are looked at") };
    assert!(probes.iter().all(|probe| probe.clock_ahead_ns == Some(0)), "no clock is wrong: {probes:?}");
    world.pass(Duration::from_secs(3));
    check_times(&mut world, "later");
    // The same session once more.
    world.mounts[0].is_late = Some(MDT);
    world.input(0, Input::ConnectionLost(MDT));
    world.pass(Duration::from_secs(3));
    world.let_come(0);
    check_times(&mut world, "at once");
    assert!(!is_evicted(&world));
}

#[test]
fn no_file_is_newer_than_its_servers_clock() {
    let mut world = World::new(1, 1, 1);
    world.create(0, TOP, "before");
    world.set_server_clocks(-HOURS_NS);
    let (_, times, after) = times_of_a_file(&mut world, "after");
    // What the client knows of the server's clock is older than that.
    assert!(times.into_iter().all(|time| time <= after), "{times:?}, {after:?}");
}

#[test]
fn servers_may_have_another_time_after_a_restart() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(1, TOP, "theirs");
    for (round, by_ns) in [HOURS_NS, -2 * HOURS_NS].into_iter().enumerate() {
        world.sync();
        for target in [MDT, OST] {
            world.crash(target);
        }
        world.set_server_clocks(by_ns);
        for target in [MDT, OST] {
            world.start(target);
            (0..2).for_each(|mount| world.input(mount, Input::ConnectionLost(target)));
        }
        world.pass(RECOVERY_WINDOW / 10);
        assert!(!world.is_recovering(0), "nobody is missing");
        let offset = 6 * round as u64;
        assert_eq!(world.write(1, file, offset, b"go on "), Ok(6));
        if by_ns > 0 {
            check_times(&mut world, "in the future");
        } else {
            let (_, times, after) = times_of_a_file(&mut world, "in the past");
            assert!(times.into_iter().all(|time| time <= after), "{times:?}, {after:?}");
        }
    }
    assert_eq!(world.attr(1, file.0).size_bytes, 12);
    assert!(!is_evicted(&world));
}

/// Times that a program may set: one of long ago, and one that no clock here comes to.
const SET: [WallTime; 2] = [WallTime(1_000_000_000_000_000_000), WallTime(2_500_000_000_000_000_000)];

fn set_mtime(world: &mut World, mount: usize, node: u64, to: WallTime) {
    let set = SetattrCall { mtime: Some(SetTime::To(to)), ..SetattrCall::default() };
    assert!(world.call(mount, Call::Setattr { node, set }).is_ok());
}

fn mtime(world: &mut World, mount: usize, node: u64) -> WallTime {
    world.attr(mount, node).mtime
}

/// The file is closed, and its size and times are known to its MDT.
fn settle(world: &mut World, file: (u64, u64)) {
    world.release(0, file);
    world.pass(Duration::from_secs(5));
    assert!(world.attr(0, file.0).is_size_known);
}

/// The clock of the MDT is set between a session and what is told in it.
#[test]
fn a_time_that_is_set_stands_over_what_was_written_before() {
    for (by_ns, to) in [-HOURS_NS, HOURS_NS].into_iter().flat_map(|by_ns| SET.map(|to| (by_ns, to))) {
        let mut world = World::new(1, 1, 2);
        let file = world.create(0, TOP, "f");
        world.set_server_clocks(by_ns);
        world.pass(Duration::from_secs(1));
        assert_eq!(world.write(0, file, 0, b"before"), Ok(6));
        set_mtime(&mut world, 0, file.0, to);
        assert_eq!(mtime(&mut world, 0, file.0), to, "clock set by {by_ns}");
        settle(&mut world, file);
        let node = world.lookup(1, TOP, "f").expect("it was made").node;
        assert_eq!([0, 1].map(|mount| mtime(&mut world, mount, node)), [to; 2], "clock set by {by_ns}");
    }
}

#[test]
fn what_is_written_after_a_time_was_set_is_newer() {
    for (by_ns, to) in [-HOURS_NS, HOURS_NS].into_iter().flat_map(|by_ns| SET.map(|to| (by_ns, to))) {
        let mut world = World::new(1, 1, 2);
        let file = world.create(0, TOP, "f");
        world.set_server_clocks(by_ns);
        set_mtime(&mut world, 0, file.0, to);
        assert_eq!(mtime(&mut world, 0, file.0), to);
        assert_eq!(world.write(0, file, 0, b"after"), Ok(5));
        assert_ne!(mtime(&mut world, 0, file.0), to, "clock set by {by_ns}");
        // And the next time it is set.
        set_mtime(&mut world, 0, file.0, to);
        assert_eq!(world.write(0, file, 5, b" and after"), Ok(10));
        settle(&mut world, file);
        let node = world.lookup(1, TOP, "f").expect("it was made").node;
        assert!([0, 1].map(|mount| mtime(&mut world, mount, node)).iter().all(|mtime| *mtime != to));
    }
}

/// Of clients whose sessions have other ideas of the time.
#[test]
fn a_time_that_another_client_sets_stands_over_what_was_written_before() {
    let mut world = World::new(1, 1, 1);
    let file = world.create(0, TOP, "f");
    world.set_server_clocks(-HOURS_NS);
    world.add_mount(2);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.write(0, file, 0, b"hours ahead"), Ok(11));
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    set_mtime(&mut world, 1, node, SET[0]);
    assert_eq!([0, 1].map(|mount| mtime(&mut world, mount, node)), [SET[0]; 2]);
    settle(&mut world, file);
    assert_eq!([0, 1].map(|mount| mtime(&mut world, mount, node)), [SET[0]; 2]);
}

/// The MDT hears of the time that was set after a restart, when it is later than what was written.
#[test]
fn a_time_that_is_set_again_for_a_restarted_mdt_is_no_later_than_it_was() {
    let mut world = World::new(1, 1, 1);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"before"), Ok(6));
    world.sync();
    world.is_syncing = false;
    set_mtime(&mut world, 0, file.0, SET[0]);
    assert_eq!(world.write(0, file, 0, b"after "), Ok(6));
    world.lose_power(MDT);
    world.is_syncing = true;
    world.input(0, Input::ConnectionLost(MDT));
    world.pass(Duration::from_secs(5));
    assert_ne!(mtime(&mut world, 0, file.0), SET[0]);
    settle(&mut world, file);
    assert_ne!(mtime(&mut world, 0, file.0), SET[0]);
}

/// Sessions, leases, locks, grants and syncs: none of them looks at the calendar.
#[test]
fn nothing_ends_early_or_late_for_a_clock_that_is_set() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(1, TOP, "f");
    assert_eq!(world.write(1, file, 0, b"there"), Ok(5));
    world.lookup(0, TOP, "f").expect("it was made");
    let counts = |world: &World| world.mounts.iter().map(|mount| mount.notified.len()).sum::<usize>();
    let sent = |world: &World| world.mounts.iter().map(|mount| mount.sent_count).sum::<u64>();
    let run = |world: &mut World, by_ns: i64| {
        let (notified, before) = (counts(world), sent(world));
        for second in 0..60 {
            let by_ns = if second % 2 == 0 { by_ns } else { -by_ns };
            world.set_server_clocks(by_ns);
            world.mounts[second % 2].ahead_ns -= 3 * by_ns;
            let now = world.now.time;
            (0..2).for_each(|mount| world.input(mount, Input::Lease(now)));
            world.pass(LEASE_RENEWAL);
        }
        (counts(world) - notified, sent(world) - before)
    };
    // The first time some locks go back unasked.
    run(&mut world, 0);
    let at_rest = run(&mut world, 0);
    assert_eq!(run(&mut world, HOURS_NS), at_rest);
    assert!(!is_evicted(&world));
}
