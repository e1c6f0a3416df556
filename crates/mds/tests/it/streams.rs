//! Directories that come in a stream: who looks for them where they are not, not yet, or not any more.

use crate::cross::mkdir_on;
use crate::harness::World;
use base::{Endpoint, Fid, Status, TargetId};
use mds::MdsEvent;
use wire::MdtRequest;

fn link(from: u16, to: u16) -> (Endpoint, Endpoint) {
    (Endpoint::Target(TargetId::mdt(from)), Endpoint::Target(TargetId::mdt(to)))
}

fn getattr(fid: Fid) -> MdtRequest {
    MdtRequest::Getattr { fid, want: Default::default() }
}

/// Seed 5743: "it is on its way" can be older than its execution and its removal, and nobody waits for ever for what was there.
#[test]
fn a_directory_that_came_and_went_while_its_coordinator_was_asked_is_absent() {
    let mut world = World::new(2, 2);
    mkdir_on(&mut world, Fid::ROOT, "first", 1);
    for client in [0, 1] {
        for mdt in [0, 1] {
            let _ = world.ask(client, mdt, getattr(Fid::ROOT));
        }
    }
    // What the coordinator sends is lost, so the directory is neither held nor there when it is looked for.
    world.cut.insert(link(0, 1));
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    let looking = world.start(1, 1, getattr(dir));
    assert_eq!(world.result(1, looking), None, "the coordinator is asked");
    // Its answers come late; its requests, with the directory, do not.
    world.held = Some((0, 1));
    world.cut.clear();
    world.pass_seconds(8);
    assert_eq!(world.result(1, looking), None, "no answer has come");
    world.rmdir(Fid::ROOT, "d").unwrap();
    assert!(world.let_go() > 0);
    world.pass_seconds(1);
    assert_eq!(world.result(1, looking), Some(Err(Status::Stale)));
    world.check_consistent();
}

/// Seed 783 of three clients: replays that a participant gets partly as prepared parts and partly in the stream have made what it held for
/// the incarnation before, and the release of the later ones is no release of that.
#[test]
fn a_release_executes_nothing_that_a_former_incarnation_has_sent() {
    let mut world = World::new(2, 1);
    mkdir_on(&mut world, Fid::ROOT, "first", 1);
    world.servers[0].is_synced = false;
    let dirs = ["prepared", "streamed"].map(|name| mkdir_on(&mut world, Fid::ROOT, name, 1));
    // Until it is answered, the new incarnation does not know that the other MDT takes streams.
    world.cut.insert(link(1, 0));
    world.crash(0, 0);
    world.cut.clear();
    world.pass_seconds(3);
    assert!(!world.servers[1].mds.is_quiet(), "it has prepared the one and holds the other");
    world.servers[0].is_synced = true;
    world.pass_seconds(5);
    let is_failure = |event: &&MdsEvent| matches!(event, MdsEvent::Failed { .. });
    assert_eq!(world.events.iter().find(is_failure), None);
    assert!(world.servers[1].mds.is_quiet());
    for dir in dirs {
        assert_eq!(world.getattr(0, dir).unwrap().link_count, 2);
    }
    world.check_consistent();
}
