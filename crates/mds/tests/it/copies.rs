//! Copies of what MDTs ask each other, which arrive late.

use crate::cross::{link, mkdir_on};
use crate::harness::{World, rename};
use crate::streams::prepare_count;
use base::{Endpoint, Fid, TargetId};
use wire::peer::OperationId;
use wire::{PeerReply, PeerRequest, Reply, Request};

/// A directory of an MDT and a file in it, `kept`, that is called `taken` in the root as well.
fn with_two_names(world: &mut World, mdt: u16) -> (Fid, Fid) {
    let home = mkdir_on(world, Fid::ROOT, "home", mdt);
    let file = world.mkfile(home, "kept");
    world.link(file, Fid::ROOT, "taken").unwrap();
    world.pass_seconds(3);
    (home, file)
}

/// A question of MDT0 to this MDT that is not answered: until it is, MDT0 does not say which later answers it has got, so no copy of a later
/// request is known by its number.
fn leave_open(world: &mut World, home: Fid, mdt: u16) {
    world.held = Some((mdt, 0));
    world.start(1, 0, rename((home, "absent"), (Fid::ROOT, "never"), 0));
    world.held = None;
}

fn is_prepare(request: &Request) -> bool {
    matches!(request, Request::Peer(PeerRequest::Prepare { .. }))
}

fn is_decide(request: &Request) -> bool {
    matches!(request, Request::Peer(PeerRequest::Decide { .. }))
}

/// The coordinator keeps its decision for a third MDT that it does not reach. Asked about the copy, it said that this was committed, and a
/// file that had a name was destroyed.
#[test]
fn a_prepare_that_comes_again_after_its_decision_is_not_executed_again() {
    let mut world = World::new(3, 2);
    let (home, file) = with_two_names(&mut world, 2);
    let source = mkdir_on(&mut world, Fid::ROOT, "source", 1);
    let moved = world.mkfile(source, "f");
    world.rename((source, "f"), (Fid::ROOT, "f"), 0).unwrap();
    world.pass_seconds(3);
    leave_open(&mut world, home, 2);
    world.copied = Some((0, 2));
    world.servers[0].is_synced = false;
    let renamed = world.start(0, 0, rename((Fid::ROOT, "f"), (Fid::ROOT, "taken"), 0));
    assert_eq!((prepare_count(&world, 1), prepare_count(&world, 2)), (1, 1));
    world.cut.insert(link(0, 1));
    world.servers[0].is_synced = true;
    world.run();
    assert_eq!((prepare_count(&world, 1), prepare_count(&world, 2)), (1, 0), "MDT1 has not heard of it");
    assert_eq!(world.getattr(1, file).unwrap().link_count, 1);
    assert_eq!(world.arrive_again(is_prepare), 1);
    world.pass_seconds(5);
    assert_eq!(prepare_count(&world, 2), 0);
    assert_eq!(world.getattr(1, file).map(|attr| attr.link_count), Ok(1));
    world.open(1, file, false);
    assert_eq!(world.lookup(1, home, "kept"), Some(file));
    world.cut.clear();
    world.pass_seconds(5);
    assert!(world.result(0, renamed).unwrap().is_ok());
    assert_eq!(world.lookup(1, Fid::ROOT, "taken"), Some(moved));
    world.check_consistent();
}

/// Two MDTs; what MDT0 asks the other one is copied. The file on that has two names, of which a rename is to take one.
fn of_two_mdts() -> (World, Fid, Fid) {
    let mut world = World::new(2, 2);
    let (home, file) = with_two_names(&mut world, 1);
    world.mkfile(Fid::ROOT, "f");
    leave_open(&mut world, home, 1);
    world.copied = Some((0, 1));
    (world, home, file)
}

/// The decision comes again too, and nobody need be asked.
#[test]
fn a_prepare_and_its_decision_that_come_again_are_not_executed_again() {
    let (mut world, home, file) = of_two_mdts();
    let renamed = world.start(0, 0, rename((Fid::ROOT, "f"), (Fid::ROOT, "taken"), 0));
    assert!(world.result(0, renamed).unwrap().is_ok());
    assert_eq!(world.getattr(1, file).unwrap().link_count, 1);
    assert_eq!(world.arrive_again(|request| is_prepare(request) || is_decide(request)), 2);
    assert_eq!(world.getattr(1, file).map(|attr| attr.link_count), Ok(1));
    world.pass_seconds(5);
    assert_eq!(world.lookup(1, home, "kept"), Some(file));
    world.check_consistent();
}

/// The participant has executed it, and the coordinator has not heard so. (Found by the model of operations over several MDTs.)
#[test]
fn a_prepare_that_comes_again_before_its_execution_is_heard_of_is_not_executed_again() {
    let (mut world, home, file) = of_two_mdts();
    world.servers[0].is_synced = false;
    world.start(0, 0, rename((Fid::ROOT, "f"), (Fid::ROOT, "taken"), 0));
    assert_eq!(prepare_count(&world, 1), 1);
    world.held = Some((1, 0));
    world.servers[0].is_synced = true;
    world.run();
    assert_eq!(prepare_count(&world, 1), 0);
    assert_eq!(world.arrive_again(is_prepare), 1);
    world.pass_seconds(5);
    assert!(!world.servers[0].mds.is_quiet(), "it waits for the answer");
    assert_eq!(world.getattr(1, file).map(|attr| attr.link_count), Ok(1));
    world.let_go();
    world.pass_seconds(5);
    assert_eq!(world.lookup(1, home, "kept"), Some(file));
    world.check_consistent();
}

/// An attempt that was given up froze for a second what it was about.
#[test]
fn a_prepare_that_comes_after_its_attempt_was_given_up_prepares_nothing() {
    let mut world = World::new(3, 2);
    let (home, file) = with_two_names(&mut world, 2);
    let source = mkdir_on(&mut world, Fid::ROOT, "source", 1);
    world.mkfile(source, "f");
    world.rename((source, "f"), (Fid::ROOT, "f"), 0).unwrap();
    world.pass_seconds(3);
    leave_open(&mut world, home, 2);
    world.copied = Some((0, 2));
    world.cut.insert(link(0, 1));
    world.start(0, 0, rename((Fid::ROOT, "f"), (Fid::ROOT, "taken"), 0));
    assert_eq!(prepare_count(&world, 2), 1);
    let gone = world.clients[0].id;
    world.evict(0, gone);
    assert_eq!(prepare_count(&world, 2), 0);
    assert_eq!(world.arrive_again(is_prepare), 1);
    assert_eq!(prepare_count(&world, 2), 0);
    assert_eq!(world.getattr(1, file).unwrap().link_count, 2);
    world.cut.clear();
    world.pass_seconds(5);
    world.check_consistent();
}

/// However long ago it was: it is among those that the coordinator waits for, or what it has prepared is a copy.
#[test]
fn what_was_committed_is_void_to_who_does_not_have_to_execute_it() {
    const PEER: usize = 2;
    let mut world = World::new(2, 2);
    world.add_client(Endpoint::Target(TargetId::mdt(2)).client_id());
    with_two_names(&mut world, 1);
    world.mkfile(Fid::ROOT, "f");
    world.take_asked(0, 1);
    world.servers[0].is_synced = false;
    let renamed = world.start(0, 0, rename((Fid::ROOT, "f"), (Fid::ROOT, "taken"), 0));
    world.cut.insert(link(0, 1));
    world.servers[0].is_synced = true;
    world.run();
    let asked = world.take_asked(0, 1);
    let prepared: Vec<OperationId> = asked
        .iter()
        .filter_map(|request| match request {
            Request::Peer(PeerRequest::Prepare { id, .. }) => Some(*id),
            _ => None,
        })
        .collect();
    let [id] = prepared[..] else { panic!("{asked:?}") };
    let answer = world.ask_as_peer(PEER, 0, PeerRequest::Ask { id });
    assert_eq!(answer, Reply::Peer(PeerReply::Decision { is_commit: Some(false) }));
    assert_eq!(prepare_count(&world, 1), 1);
    world.cut.clear();
    world.pass_seconds(5);
    assert!(world.result(0, renamed).unwrap().is_ok());
    world.check_consistent();
}
