//! MDTs that end in order: no other target that is restarted meanwhile waits for them, and nothing is lost by their goodbyes.

use crate::cross::mkdir_on;
use crate::harness::World;
use base::{Endpoint, Fid, TargetId};
use mds::MdsEvent;

const OST: Endpoint = Endpoint::Target(TargetId::ost(0));

fn mdt(index: u16) -> Endpoint {
    Endpoint::Target(TargetId::mdt(index))
}

fn has_left(world: &World, index: u16) -> bool {
    world.servers[usize::from(index)].mds.has_left()
}

fn failure(world: &World) -> Option<&MdsEvent> {
    world.events.iter().find(|event| matches!(event, MdsEvent::Failed { .. } | MdsEvent::PeerRefused { .. }))
}

#[test]
fn an_ost_waits_for_no_mdt_that_has_left() {
    let mut world = World::new(2, 0);
    assert_eq!(world.restart_ost(), [mdt(0), mdt(1)]);
    assert!(!world.is_ost_recovering(), "both are back");
    assert!(!has_left(&world, 0));
    world.leave(0);
    assert!(has_left(&world, 0));
    assert_eq!(world.restart_ost(), [mdt(1)]);
    world.leave(1);
    world.pass_seconds(60);
    assert_eq!(world.restart_ost(), [], "who has left does not come back");
    assert!(!world.is_ost_recovering());
    // The next incarnation is there as ever.
    world.kill(0);
    assert_eq!(world.restart_ost(), [mdt(0)]);
    assert!(!world.is_ost_recovering());
    assert_eq!(failure(&world), None);
}

#[test]
fn a_goodbye_whose_answer_is_lost_is_said_again() {
    let mut world = World::new(1, 0);
    world.cut.insert((OST, mdt(0)));
    world.leave(0);
    world.pass_seconds(3);
    assert!(!has_left(&world, 0));
    world.cut.clear();
    world.pass_seconds(60);
    assert!(has_left(&world, 0));
    assert_eq!(world.restart_ost(), []);
    assert_eq!(failure(&world), None);
}

#[test]
fn who_is_away_hears_no_goodbye_and_takes_the_next_incarnation_for_this_one() {
    let mut world = World::new(1, 0);
    world.cut.insert((mdt(0), OST));
    world.leave(0);
    world.pass_seconds(3);
    assert!(!has_left(&world, 0));
    world.kill(0);
    world.cut.clear();
    world.pass_seconds(60);
    assert_eq!(world.restart_ost(), [mdt(0)]);
    assert!(!world.is_ost_recovering(), "it is back");
    // An OST that is known to be away is not waited for.
    world.cut.insert((mdt(0), OST));
    world.restart_ost();
    world.leave(0);
    assert!(has_left(&world, 0));
}

/// What is asked of an OST when the goodbye goes, and after it.
#[test]
fn what_an_ost_has_not_done_by_then_is_done_by_the_next_incarnation() {
    let mut world = World::new(1, 1);
    for name in ["before", "after"] {
        world.mkfile(Fid::ROOT, name);
    }
    world.cut.insert((mdt(0), OST));
    world.unlink(Fid::ROOT, "before").unwrap();
    world.leave(0);
    assert!(!has_left(&world, 0));
    world.cut.clear();
    world.pass_seconds(60);
    assert!(has_left(&world, 0));
    world.unlink(Fid::ROOT, "after").unwrap();
    world.pass_seconds(5);
    assert_eq!(world.destroyed.len(), 0);
    assert_eq!(failure(&world), None);
    world.kill(0);
    world.pass_seconds(5);
    assert_eq!(world.destroyed.len(), 2);
    assert_eq!(failure(&world), None);
    world.check_consistent();
}

/// Whether MDT0001, which is restarted while MDT0000 is not there, recovers without it.
fn recovers_alone(mut world: World) -> bool {
    world.set_silent(0, true);
    world.kill(1);
    world.pass_seconds(10);
    assert_eq!(failure(&world), None);
    !world.servers[1].mds.core().is_recovering()
}

#[test]
fn another_mdt_waits_for_one_that_has_left_only_for_what_both_were_about() {
    let begun = || {
        let mut world = World::new(2, 1);
        mkdir_on(&mut world, Fid::ROOT, "d", 1);
        world.pass_seconds(3);
        world
    };
    assert!(!recovers_alone(begun()), "who has not left is waited for");
    let mut world = begun();
    world.leave(0);
    assert!(has_left(&world, 0));
    assert!(recovers_alone(world));
    // A directory of which the other one does not know yet that it will be made.
    let mut world = begun();
    world.servers[0].is_synced = false;
    mkdir_on(&mut world, Fid::ROOT, "streamed", 1);
    world.pass_seconds(1);
    world.leave(0);
    assert!(has_left(&world, 0), "the OST has heard it");
    assert!(!recovers_alone(world));
}

/// Both end at the same time, each with the other's goodbye on its way.
#[test]
fn two_mdts_leave_each_other() {
    let mut world = World::new(2, 0);
    for index in [0, 1] {
        world.leave(index);
    }
    for index in [0, 1] {
        assert!(has_left(&world, index));
        assert_eq!(world.servers[usize::from(index)].mds.core().clients().count(), 0);
    }
    assert_eq!(failure(&world), None);
}
