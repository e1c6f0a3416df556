//! Advisory locks: conversions around a restart of the MDT, and what their holders may rely on.

use crate::world::{O_RDWR, TOP, World};
use base::{Duration, Extent, Status, TargetId};
use client::{Answer, Call, Event, Input, Notify, NotifyResult};
use wire::mdt::{FileLock, FlockKind};

const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const MDT: TargetId = TargetId::mdt(0);

/// Node and handle of one file on each of three mounts.
fn shared_file() -> (World, [(u64, u64); 3]) {
    let mut world = World::new(1, 1, 3);
    let first = world.create(0, TOP, "f");
    let others = [1, 2].map(|mount| {
        let node = world.lookup(mount, TOP, "f").expect("it was made").node;
        (node, world.open(mount, node, O_RDWR).0)
    });
    world.sync();
    (world, [first, others[0], others[1]])
}

fn set((node, fh): (u64, u64), kind: FlockKind, can_wait: bool) -> Call {
    let lock = FileLock { owner: 1, pid: 1, is_flock: true, kind, extent: Extent::WHOLE };
    Call::Setlk { node, fh, lock, can_wait }
}

fn restart(world: &mut World) {
    world.crash(MDT);
    for mount in 0..world.mounts.len() {
        world.input(mount, Input::ConnectionLost(MDT));
    }
    world.start(MDT);
    world.pass(Duration::from_secs(5));
    assert_nothing_refused(world);
}

fn assert_nothing_refused(world: &World) {
    for mount in &world.mounts {
        assert!(mount.events.contains(&Event::Recovered(MDT)), "{:?}", mount.events);
        let is_refused = |event: &Event| matches!(event, Event::ReplayRefused { .. });
        assert!(!mount.events.iter().any(is_refused), "{:?}", mount.events);
    }
}

/// Two share a lock, and both want it for themselves: the second one gets it, since the first one has given up its share.
#[test]
fn a_conversion_that_waits_takes_no_lock_from_its_holder_after_a_restart() {
    for (waiter, holder) in [(0, 1), (1, 0)] {
        let (mut world, files) = shared_file();
        for mount in [waiter, holder] {
            assert_eq!(world.call(mount, set(files[mount], FlockKind::Read, false)), Ok(Answer::Done));
        }
        let waiting = world.begin(waiter, set(files[waiter], FlockKind::Write, true));
        assert!(!world.is_answered(waiter, waiting));
        let converted = world.call(holder, set(files[holder], FlockKind::Write, true));
        assert_eq!(converted, Ok(Answer::Done));
        restart(&mut world);
        assert!(!world.is_answered(waiter, waiting), "it is held by the other");
        assert_eq!(world.call(2, set(files[2], FlockKind::Read, false)), Err(EAGAIN));
        assert_eq!(world.call(holder, set(files[holder], FlockKind::Unlock, false)), Ok(Answer::Done));
        assert_eq!(world.finish(waiter, waiting), Ok(Answer::Done));
        assert_eq!(world.call(2, set(files[2], FlockKind::Read, false)), Err(EAGAIN), "and then by it");
    }
}

#[test]
fn a_conversion_that_was_interrupted_takes_no_lock_from_its_holder_after_a_restart() {
    for (waiter, holder) in [(0, 1), (1, 0)] {
        let (mut world, files) = shared_file();
        for mount in [waiter, holder] {
            assert_eq!(world.call(mount, set(files[mount], FlockKind::Read, false)), Ok(Answer::Done));
        }
        let waiting = world.begin(waiter, set(files[waiter], FlockKind::Write, true));
        world.input(waiter, Input::Interrupt(waiting));
        assert_eq!(world.finish(waiter, waiting), Err(EINTR));
        assert_eq!(world.call(holder, set(files[holder], FlockKind::Write, false)), Ok(Answer::Done));
        restart(&mut world);
        assert_eq!(world.call(2, set(files[2], FlockKind::Read, false)), Err(EAGAIN));
    }
}

/// The MDT has executed what gives something up, has given it to others, and restarts before its answer arrives.
#[test]
fn what_was_given_up_without_an_answer_is_not_in_the_way_of_its_next_holder() {
    for (kept, taken) in [(FlockKind::Read, FlockKind::Read), (FlockKind::Unlock, FlockKind::Write)] {
        for (former, next) in [(0, 1), (1, 0)] {
            let (mut world, files) = shared_file();
            assert_eq!(world.call(former, set(files[former], FlockKind::Write, false)), Ok(Answer::Done));
            world.mounts[former].is_deaf = true;
            let giving = world.begin(former, set(files[former], kept, false));
            assert_eq!(world.call(next, set(files[next], taken, false)), Ok(Answer::Done));
            assert!(!world.is_answered(former, giving));
            world.mounts[former].is_deaf = false;
            restart(&mut world);
            assert_eq!(world.finish(former, giving), Ok(Answer::Done));
            assert_eq!(world.call(2, set(files[2], FlockKind::Write, false)), Err(EAGAIN));
            assert_eq!(world.call(next, set(files[next], FlockKind::Unlock, false)), Ok(Answer::Done));
            let third = world.call(2, set(files[2], FlockKind::Write, false));
            assert_eq!(third.is_ok(), kept == FlockKind::Unlock, "{third:?}");
        }
    }
}

/// A node says again and again that it holds its root, as long as that is so for nothing.
#[test]
fn a_shared_lock_that_is_held_is_asked_for_again_after_an_eviction_only() {
    let (mut world, files) = shared_file();
    let ask = |world: &mut World, kind, can_wait| {
        let before = world.mounts[0].sent_count;
        assert_eq!(world.call(0, set(files[0], kind, can_wait)), Ok(Answer::Done));
        world.mounts[0].sent_count > before
    };
    assert!(ask(&mut world, FlockKind::Read, false));
    assert!(!ask(&mut world, FlockKind::Read, false));
    assert!(!ask(&mut world, FlockKind::Read, true));
    assert!(ask(&mut world, FlockKind::Write, false));
    assert!(
        ask(&mut world, FlockKind::Write, false),
        "who has it for himself wants to hear of an eviction at once"
    );
    assert!(ask(&mut world, FlockKind::Read, false), "it is another one");
    assert!(!ask(&mut world, FlockKind::Read, false));
    world.evict(0, 0);
    world.pass(Duration::from_secs(60));
    assert!(world.mounts[0].events.contains(&Event::Evicted(MDT)));
    assert!(ask(&mut world, FlockKind::Read, false));
    assert!(!ask(&mut world, FlockKind::Read, false));
    assert_eq!(world.call(1, set(files[1], FlockKind::Write, false)), Err(EAGAIN));
    assert_eq!(world.call(0, set(files[0], FlockKind::Unlock, false)), Ok(Answer::Done));
    assert!(ask(&mut world, FlockKind::Read, false));
}

/// One thread waits for a lock, and another one closes the descriptor: the lock that comes after that goes with the description.
#[test]
fn a_lock_that_is_granted_after_its_descriptor_was_closed_goes_with_the_last_one() {
    let (mut world, files) = shared_file();
    let of_process = |(node, fh), kind, can_wait| {
        let lock = FileLock { owner: 1, pid: 1, is_flock: false, kind, extent: Extent::WHOLE };
        Call::Setlk { node, fh, lock, can_wait }
    };
    assert_eq!(world.call(0, of_process(files[0], FlockKind::Write, false)), Ok(Answer::Done));
    let waiting = world.begin(1, of_process(files[1], FlockKind::Write, true));
    let flush = Call::Flush { node: files[1].0, fh: files[1].1, lock_owner: 1 };
    assert_eq!(world.call(1, flush), Ok(Answer::Done));
    assert_eq!(world.call(0, of_process(files[0], FlockKind::Unlock, false)), Ok(Answer::Done));
    assert_eq!(world.finish(1, waiting), Ok(Answer::Done));
    assert_eq!(world.call(2, of_process(files[2], FlockKind::Write, false)), Err(EAGAIN));
    world.release(1, files[1]);
    assert_eq!(world.call(2, of_process(files[2], FlockKind::Write, false)), Ok(Answer::Done));
}

/// The MDT has no room for it at first, and hears that it is given up before it comes again.
#[test]
fn a_wait_that_was_refused_before_it_was_given_up_ends() {
    let (mut world, files) = shared_file();
    assert_eq!(world.call(0, set(files[0], FlockKind::Write, false)), Ok(Answer::Done));
    world.mounts[1].is_slow_to = Some(MDT);
    let waiting = world.begin(1, set(files[1], FlockKind::Write, true));
    assert_eq!(world.refuse(1, Status::Again), 1);
    world.input(1, Input::Interrupt(waiting));
    assert_eq!(world.finish(1, waiting), Err(EINTR));
    assert_eq!(world.call(0, set(files[0], FlockKind::Unlock, false)), Ok(Answer::Done));
    assert_eq!(world.call(2, set(files[2], FlockKind::Write, false)), Ok(Answer::Done), "nobody has it");
}

/// Threads of a process wait for different ranges: a signal to one of them is nothing to the other.
#[test]
fn an_interrupt_ends_one_wait_of_an_owner_with_several() {
    let (mut world, files) = shared_file();
    let (node, fh) = files[1];
    let range = |kind, start, end| {
        let lock = FileLock { owner: 9, pid: 9, is_flock: false, kind, extent: Extent::new(start, end) };
        Call::Setlk { node, fh, lock, can_wait: kind != FlockKind::Unlock }
    };
    assert_eq!(world.call(0, set_range(files[0], FlockKind::Write, 0, 20)), Ok(Answer::Done));
    let first = world.begin(1, range(FlockKind::Write, 0, 10));
    let second = world.begin(1, range(FlockKind::Write, 10, 20));
    world.input(1, Input::Interrupt(first));
    assert_eq!(world.finish(1, first), Err(EINTR));
    assert!(!world.is_answered(1, second));
    assert_eq!(world.call(0, set_range(files[0], FlockKind::Unlock, 0, 20)), Ok(Answer::Done));
    assert_eq!(world.finish(1, second), Ok(Answer::Done));
    let others = set_range(files[2], FlockKind::Write, 10, 11);
    assert_eq!(world.call(2, others), Err(EAGAIN), "it has what it waited for");
    assert_eq!(world.call(2, set_range(files[2], FlockKind::Write, 0, 10)), Ok(Answer::Done));
}

fn set_range((node, fh): (u64, u64), kind: FlockKind, start: u64, end: u64) -> Call {
    let lock = FileLock { owner: 1, pid: 1, is_flock: false, kind, extent: Extent::new(start, end) };
    Call::Setlk { node, fh, lock, can_wait: false }
}

/// How often the kernel was told that it has the attributes of a file no more.
fn told_of(world: &World, mount: usize, node: u64) -> usize {
    let is_it = |notify: &&Notify| matches!(notify, Notify::InvalInode { node: of, offset_bytes: -1, .. } if *of == node);
    world.mounts[mount].notified.iter().filter(is_it).count()
}

/// The kernel may otherwise take in, in place of the size that it asks for under the lock, one that it was told before.
#[test]
fn who_gets_a_lock_hears_no_answers_from_before() {
    let (mut world, files) = shared_file();
    for round in 0..5 {
        for mount in [0, 1] {
            let file = files[mount];
            let before = told_of(&world, mount, file.0);
            world.mounts[mount].is_kernel_stuck = true;
            let locking = world.begin(mount, set(file, FlockKind::Write, true));
            assert!(!world.is_answered(mount, locking), "the kernel has not heard it");
            assert_eq!(told_of(&world, mount, file.0), before + 1);
            world.mounts[mount].is_kernel_stuck = false;
            for (id, _) in std::mem::take(&mut world.mounts[mount].stuck) {
                world.input(mount, Input::Notified(id, NotifyResult::Ok));
            }
            assert_eq!(world.finish(mount, locking), Ok(Answer::Done));
            let end = 8 * (2 * round + mount as u64);
            assert_eq!(world.attr(mount, file.0).size_bytes, end);
            world.write(mount, file, end, b"a record").expect("written");
            let told = told_of(&world, mount, file.0);
            assert_eq!(world.call(mount, set(file, FlockKind::Unlock, false)), Ok(Answer::Done));
            assert_eq!(told_of(&world, mount, file.0), told, "nobody relies on the size then");
        }
    }
}

/// Each notification takes a thread of its own.
#[test]
fn a_lock_of_a_file_that_nobody_else_writes_costs_one_notification_in_all() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    let lock_and_write = |world: &mut World, count: u64| {
        for _ in 0..count {
            assert_eq!(world.call(0, set(file, FlockKind::Write, true)), Ok(Answer::Done));
            let end = world.attr(0, file.0).size_bytes;
            world.write(0, file, end, b"a record").expect("written");
            assert_eq!(world.call(0, set(file, FlockKind::Unlock, false)), Ok(Answer::Done));
        }
    };
    lock_and_write(&mut world, 20);
    assert_eq!(told_of(&world, 0, file.0), 1);
    // Somebody else has it open for a while.
    let there = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, there, O_RDWR);
    let before = told_of(&world, 0, file.0);
    lock_and_write(&mut world, 3);
    assert_eq!(told_of(&world, 0, file.0), before + 3);
    world.release(1, (there, fh));
    world.pass(Duration::from_secs(3));
    lock_and_write(&mut world, 1);
    let before = told_of(&world, 0, file.0);
    lock_and_write(&mut world, 20);
    assert!(told_of(&world, 0, file.0) <= before + 1, "it is alone again");
}
