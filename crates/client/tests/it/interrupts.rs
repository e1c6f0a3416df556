//! Signals of callers that wait for a target which is away.

use crate::world::{O_RDWR, ROOT, USER, World};
use base::{Duration, TargetId};
use client::{Answer, Call, Input, ROOT_NODE as TOP, Signals};

const EINTR: i32 = 4;
const MDT: TargetId = TargetId::mdt(0);

/// A file "f", that mount 0 has to ask the MDT for, which is away.
fn without_mdt() -> World {
    let mut world = World::new(1, 1, 2);
    let file = world.create(1, TOP, "f");
    world.release(1, file);
    world.sync();
    world.crash(MDT);
    world.input(0, Input::ConnectionLost(MDT));
    world
}

fn lookup() -> Call {
    Call::Lookup { parent: TOP, name: b"f".into() }
}

#[test]
fn a_caller_with_a_signal_to_handle_waits_for_the_target() {
    let mut world = without_mdt();
    let waiting = world.begin_as(0, USER, lookup());
    // A timer that goes off again and again: the kernel tells the first of it.
    world.input(0, Input::Interrupt(waiting));
    world.pass(Duration::from_secs(20));
    assert!(!world.is_answered(0, waiting));
    assert!(world.mounts[0].looked_at.len() > 10, "{:?}", world.mounts[0].looked_at);
    assert!(world.mounts[0].looked_at.iter().all(|pid| *pid == USER.pid));
    world.start(MDT);
    assert!(matches!(world.finish(0, waiting), Ok(Answer::Entry(_))));
    let looks = world.mounts[0].looked_at.len();
    world.pass(Duration::from_secs(5));
    assert_eq!(world.mounts[0].looked_at.len(), looks, "nobody waits any more");
}

#[test]
fn a_caller_who_is_killed_is_let_go() {
    let mut world = without_mdt();
    world.mounts[0].signals = Signals::Fatal;
    let waiting = world.begin_as(0, USER, lookup());
    world.input(0, Input::Interrupt(waiting));
    assert!(world.is_answered(0, waiting), "at once");
    assert_eq!(world.finish(0, waiting), Err(EINTR));
    world.start(MDT);
    world.pass(Duration::from_secs(5));
    assert!(world.lookup(0, TOP, "f").is_ok());
}

/// The kernel says nothing of the second signal.
#[test]
fn a_kill_after_a_harmless_signal_is_seen() {
    let mut world = without_mdt();
    let waiting = world.begin_as(0, USER, lookup());
    world.input(0, Input::Interrupt(waiting));
    world.pass(Duration::from_secs(2));
    assert!(!world.is_answered(0, waiting));
    world.mounts[0].signals = Signals::Fatal;
    world.pass(Duration::from_secs(1));
    assert!(world.is_answered(0, waiting));
    assert_eq!(world.finish(0, waiting), Err(EINTR));
}

/// Nobody is looked at while everything is there, and who was signalled then is not forgotten.
#[test]
fn a_signal_that_came_before_the_target_went_away_counts() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(1, TOP, "d");
    world.sync();
    assert_eq!(world.lookup(0, TOP, "d").map(|entry| entry.node), Ok(dir));
    world.mounts[0].signals = Signals::Fatal;
    world.mounts[0].unreachable = Some(MDT);
    let waiting = world.begin_as(0, USER, Call::Lookup { parent: dir, name: b"f".into() });
    world.input(0, Input::Interrupt(waiting));
    assert!(!world.is_answered(0, waiting));
    assert_eq!(world.mounts[0].looked_at, [0; 0]);
    world.input(0, Input::ConnectionLost(MDT));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.finish(0, waiting), Err(EINTR));
}

#[test]
fn a_caller_that_cannot_be_looked_at_is_let_go_after_a_while() {
    let mut world = without_mdt();
    world.mounts[0].signals = Signals::Unknown;
    let waiting = world.begin_as(0, USER, lookup());
    world.input(0, Input::Interrupt(waiting));
    world.pass(Duration::from_secs(9));
    assert!(!world.is_answered(0, waiting));
    world.pass(Duration::from_secs(2));
    assert_eq!(world.finish(0, waiting), Err(EINTR));
}

/// Its connection lives, and it says nothing.
#[test]
fn a_caller_of_a_target_that_stands_still_is_let_go_soon() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(1, TOP, "d");
    world.sync();
    assert_eq!(world.lookup(0, TOP, "d").map(|entry| entry.node), Ok(dir));
    world.mounts[0].unreachable = Some(MDT);
    let waiting = world.begin_as(0, USER, Call::Lookup { parent: dir, name: b"f".into() });
    world.input(0, Input::Interrupt(waiting));
    world.pass(Duration::from_secs(1));
    assert!(!world.is_answered(0, waiting), "it has a signal to handle");
    world.mounts[0].signals = Signals::Fatal;
    world.pass(Duration::from_secs(1));
    assert_eq!(world.finish(0, waiting), Err(EINTR));
}

/// What waits only for others' disks, and has changed nothing itself.
#[test]
fn a_caller_who_is_killed_while_something_is_made_durable_is_let_go() {
    let mut world = World::new(1, 1, 1);
    let file = world.create(0, TOP, "f");
    world.sync();
    world.mounts[0].unreachable = Some(MDT);
    world.mounts[0].signals = Signals::Fatal;
    let (node, fh) = file;
    let fsyncdir = Call::Fsyncdir { node: TOP, fh: 0, data_only: false };
    for call in [Call::SyncAll, Call::Fsync { node, fh, data_only: false }, fsyncdir] {
        let waiting = world.begin_as(0, USER, call.clone());
        world.input(0, Input::Interrupt(waiting));
        world.pass(Duration::from_secs(2));
        assert_eq!(world.finish(0, waiting), Err(EINTR), "{call:?}");
    }
}

/// The kernel has to hear what has become of a change.
#[test]
fn a_change_goes_on_to_its_end_though_its_caller_is_killed() {
    let mut world = without_mdt();
    world.mounts[0].signals = Signals::Fatal;
    let waiting = world.begin(0, Call::Unlink { parent: TOP, name: b"f".into() });
    world.input(0, Input::Interrupt(waiting));
    world.pass(Duration::from_secs(20));
    assert!(!world.is_answered(0, waiting));
    world.start(MDT);
    assert_eq!(world.finish(0, waiting), Ok(Answer::Done));
}

/// statfs(2) may be interrupted by what POSIX says; with `lazystatfs` it does not wait for long.
#[test]
fn only_a_statfs_that_waits_without_end_is_ended_by_any_signal() {
    let mut world = World::new(1, 1, 1);
    let file = world.create_with(0, TOP, "f", O_RDWR);
    world.release(0, file);
    world.sync();
    world.crash(MDT);
    world.input(0, Input::ConnectionLost(MDT));
    let waiting = world.begin_as(0, ROOT, Call::Statfs { node: TOP });
    world.input(0, Input::Interrupt(waiting));
    assert!(matches!(world.finish(0, waiting), Ok(Answer::Statfs(_))));
    world.mounts[0].machine.set_statfs_lazy(false);
    let waiting = world.begin_as(0, ROOT, Call::Statfs { node: TOP });
    world.pass(Duration::from_secs(10));
    assert!(!world.is_answered(0, waiting));
    world.input(0, Input::Interrupt(waiting));
    assert!(world.is_answered(0, waiting));
    assert_eq!(world.finish(0, waiting), Err(EINTR));
}

/// Of a large file with holes it would be a request for each 16 MiB, whether somebody waits for them or not.
#[test]
fn advice_ends_with_its_caller() {
    let mut world = World::new(1, 1, 1);
    let ost = TargetId::ost(0);
    let file = world.create(0, TOP, "f");
    let set = client::SetattrCall { size_bytes: Some(1 << 35), fh: Some(file.1), ..Default::default() };
    assert!(world.call(0, Call::Setattr { node: file.0, set }).is_ok());
    let advised = |world: &World| -> u64 {
        let requests = world.requests(0, base::TargetKind::Ost).into_iter();
        requests.filter(|(kind, _)| *kind == "ost_ladvise").map(|(_, count)| count).sum()
    };
    let extent = base::Extent::new(0, 1 << 35);
    let advise = || Call::Advise { node: file.0, extent, advice: base::Advice::WillRead };
    assert_eq!(world.call(0, advise()), Ok(Answer::Done));
    assert_eq!(advised(&world), 2048);
    world.mounts[0].signals = Signals::Fatal;
    world.mounts[0].is_late = Some(ost);
    let waiting = world.begin_as(0, USER, advise());
    world.input(0, Input::Interrupt(waiting));
    assert_eq!(world.finish(0, waiting), Err(EINTR));
    world.let_come(0);
    world.pass(Duration::from_secs(5));
    assert_eq!(advised(&world), 2049);
}
