//! Probes of targets: what they find, and that nothing of them stays.

use crate::world::World;
use base::{Duration, TargetId};
use client::{Answer, Call, ProbeStep, TargetProbe};

fn probe(world: &mut World) -> Vec<TargetProbe> {
    let id = world.begin(0, Call::ProbeTargets);
    world.pass(Duration::from_secs(4));
    assert!(world.is_answered(0, id), "it takes seconds at most, whoever is silent");
    match world.finish(0, id) {
        Ok(Answer::Probes(probes)) => probes,
        other => panic!("{other:?}"),
    }
}

fn steps(probe: &TargetProbe) -> [ProbeStep; 3] {
    [probe.answer, probe.lock, probe.read]
}

fn is_sound(probe: &TargetProbe) -> bool {
    steps(probe).iter().all(|step| matches!(step, ProbeStep::Took(_))) && probe.space.is_some()
}

#[test]
fn every_target_answers_locks_and_reads_and_keeps_nothing_of_it() {
    let mut world = World::new(2, 3, 1);
    probe(&mut world);
    let locks = |world: &World| [0, 1].map(|mdt| world.mdt_lock_count(mdt));
    let before = locks(&world);
    let probes = probe(&mut world);
    let targets: Vec<TargetId> = probes.iter().map(|probe| probe.target).collect();
    let (mdt, ost) = (TargetId::mdt, TargetId::ost);
    assert_eq!(targets, [mdt(0), mdt(1), ost(0), ost(1), ost(2)]);
    assert!(probes.iter().all(is_sound), "{probes:?}");
    assert!(probes.iter().all(|probe| probe.is_used && probe.state == "FULL"), "{probes:?}");
    assert_eq!(locks(&world), before);
    let sessions = probes.iter().filter_map(|probe| world.mounts[0].machine.target_status(probe.target));
    assert!(sessions.into_iter().all(|session| session.session.outstanding == 0));
    assert_eq!((0..3).map(|ost| world.object_count(ost)).sum::<usize>(), 0);
}

/// The first probe makes the sessions itself, and knows what was said then.
#[test]
fn every_target_says_what_it_runs_and_what_time_it_is() {
    let mut world = World::new(1, 2, 1);
    for _ in 0..2 {
        let probes = probe(&mut world);
        assert!(probes.iter().all(|probe| probe.software == wire::SOFTWARE), "{probes:?}");
        assert!(probes.iter().all(|probe| probe.clock_ahead_ns.is_some()), "{probes:?}");
    }
}

#[test]
fn a_silent_target_holds_up_nobody_and_its_probe_ends_when_it_is_back() {
    let mut world = World::new(1, 2, 1);
    probe(&mut world);
    world.mounts[0].unreachable = Some(TargetId::ost(1));
    for _ in 0..3 {
        let probes = probe(&mut world);
        assert!(is_sound(&probes[0]) && is_sound(&probes[1]), "{probes:?}");
        assert_eq!(steps(&probes[2]), [ProbeStep::Silent, ProbeStep::NotTried, ProbeStep::NotTried]);
    }
    world.mounts[0].unreachable = None;
    world.pass(Duration::from_secs(60));
    let probes = probe(&mut world);
    assert!(probes.iter().all(is_sound), "{probes:?}");
}

#[test]
fn what_an_operator_has_switched_off_is_not_asked() {
    use client::{Setting, TargetSetting};
    let mut world = World::new(1, 1, 1);
    let off = Setting::Target(TargetId::ost(0), TargetSetting::Active(false));
    world.input(0, client::Input::Set(off));
    let probes = probe(&mut world);
    assert!(!probes[1].is_used && probes[1].space.is_none(), "{probes:?}");
    assert_eq!(steps(&probes[1]), [ProbeStep::NotTried; 3]);
}

#[test]
fn a_probe_says_how_far_the_clock_of_a_target_is_ahead() {
    let mut world = World::new(1, 1, 1);
    let seconds_ahead = |world: &mut World| -> Vec<i64> {
        let ahead =
            |probe: TargetProbe| probe.clock_ahead_ns.expect("a session says the time") / 1_000_000_000;
        probe(world).into_iter().map(ahead).collect()
    };
    // Sessions are made.
    probe(&mut world);
    assert_eq!(seconds_ahead(&mut world), [0, 0]);
    world.mounts[0].ahead_ns = 90_500_000_000;
    assert_eq!(seconds_ahead(&mut world), [-90, -90]);
    world.mounts[0].ahead_ns = -90_500_000_000;
    assert_eq!(seconds_ahead(&mut world), [90, 90]);
}
