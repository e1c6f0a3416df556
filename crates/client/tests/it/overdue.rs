//! A target that answers nothing while its connection stands, as one whose process is stopped: operators see it, and hear of it once.

use crate::world::{O_RDWR, TOP, World, write_call};
use base::limits::{OVERDUE_AFTER, PING_INTERVAL};
use base::{Duration, Extent, TargetId};
use client::{Answer, Call, Event, Input, TargetStatus};
use wire::mdt::{FileLock, FlockKind};

const AWAY: TargetId = TargetId::ost(1);
const THERE: TargetId = TargetId::ost(0);
/// By then it is asked for a sign of life, and has owed it for long enough.
const NOTICED: Duration = Duration::from_secs(PING_INTERVAL.as_secs() + OVERDUE_AFTER.as_secs() + 1);
const SECOND_NS: i64 = 1_000_000_000;

/// One mount, with sessions and nothing to do.
fn at_rest() -> World {
    let mut world = World::new(1, 2, 1);
    world.begin(0, Call::ProbeTargets);
    world.pass(Duration::from_secs(10));
    world.mounts[0].events.clear();
    world
}

fn status(world: &World, target: TargetId) -> TargetStatus {
    world.mounts[0].machine.target_status(target).expect("it is in the configuration")
}

fn overdue(target: TargetId) -> Event {
    Event::Overdue { target, nids: vec!["here".to_owned()] }
}

#[test]
fn one_that_says_nothing_is_told_of_once_and_once_when_it_answers_again() {
    let mut world = at_rest();
    world.mounts[0].unreachable = Some(AWAY);
    let silent_since = world.now.wall.0;
    world.pass(NOTICED);
    assert_eq!(world.mounts[0].events, [overdue(AWAY)]);
    for _ in 0..3 {
        let seen = status(&world, AWAY);
        assert_eq!(seen.session.state, "DISCONN");
        let since = seen.session.out_since.expect("it is known when it was heard last").0;
        assert!((silent_since - 5 * SECOND_NS..=silent_since).contains(&since), "{since}");
        assert_eq!(
            (status(&world, THERE).session.state, status(&world, THERE).session.out_since),
            ("FULL", None)
        );
        world.pass(Duration::from_secs(30));
    }
    world.mounts[0].unreachable = None;
    world.pass(Duration::from_secs(20));
    assert_eq!(world.mounts[0].events, [overdue(AWAY), Event::AnswersAgain(AWAY)]);
    let seen = status(&world, AWAY);
    assert_eq!((seen.session.state, seen.session.out_since), ("FULL", None));
    let words: Vec<&str> = seen.session.history.iter().map(|(_, word)| *word).collect();
    assert_eq!(words, ["CONNECTING", "FULL", "DISCONN", "FULL"]);
}

/// What this mount sends is lost under way, with work to do; what is on its way back arrives.
#[test]
fn one_that_hears_nothing_is_told_of_too() {
    let mut world = at_rest();
    let file = world.create(0, TOP, "f");
    world.mounts[0].is_slow_to = Some(TargetId::mdt(0));
    let call = Call::Mkdir { parent: TOP, name: b"d".into(), mode: 0o755, umask: 0 };
    let making = world.begin(0, call);
    let writing = world.begin(0, write_call(file, 0, &[1; 4096]));
    world.pass(NOTICED);
    assert_eq!(world.mounts[0].events, [overdue(TargetId::mdt(0))]);
    world.let_arrive(0);
    assert!(world.finish(0, making).is_ok() && world.finish(0, writing).is_ok());
    world.pass(Duration::from_secs(5));
    assert_eq!(world.mounts[0].events, [overdue(TargetId::mdt(0)), Event::AnswersAgain(TargetId::mdt(0))]);
}

/// The target says that it lives.
#[test]
fn who_waits_for_somebody_else_has_a_target_that_answers() {
    let mut world = World::new(1, 1, 2);
    let first = world.create(0, TOP, "f");
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let second = (node, world.open(1, node, O_RDWR).0);
    let set = |(node, fh), kind| {
        let lock = FileLock { owner: 1, pid: 1, is_flock: true, kind, extent: Extent::WHOLE };
        Call::Setlk { node, fh, lock, can_wait: true }
    };
    assert_eq!(world.call(0, set(first, FlockKind::Write)), Ok(Answer::Done));
    let waiting = world.begin(1, set(second, FlockKind::Write));
    world.pass(Duration::from_secs(120));
    assert!(!world.is_answered(1, waiting), "the other has it");
    for mount in &world.mounts {
        assert!(!mount.events.iter().any(|event| matches!(event, Event::Overdue { .. })));
        let status = mount.machine.target_status(TargetId::mdt(0)).expect("it is in the configuration");
        assert_eq!(status.session.state, "FULL");
    }
}

#[test]
fn when_its_connection_ends_as_well_the_new_session_says_that_it_is_back() {
    let mut world = at_rest();
    world.mounts[0].unreachable = Some(AWAY);
    world.pass(NOTICED);
    world.input(0, Input::ConnectionLost(AWAY));
    world.pass(Duration::from_secs(60));
    assert_eq!(status(&world, AWAY).session.state, "CONNECTING");
    assert!(status(&world, AWAY).session.out_since.is_some());
    world.mounts[0].unreachable = None;
    world.pass(Duration::from_secs(20));
    let told = [overdue(AWAY), Event::Disconnected(AWAY), Event::Connected(AWAY)];
    assert_eq!(world.mounts[0].events, told);
    assert_eq!(status(&world, AWAY).session.state, "FULL");
}
