//! Sizes of closed files that are reported together.

use crate::skew::tap::Tap;
use crate::small_files::counts;
use crate::world::{O_RDWR, TOP, World};
use base::{Duration, TargetId, TargetKind};
use client::{Answer, Call, Event, Input};
use wire::session::features;

const MDT: TargetId = TargetId::mdt(0);

/// Files that mount 0 has written and closed, and whose data are not durable yet.
fn closed_files(world: &mut World, count: usize) -> Vec<u64> {
    world.write_small_file(0, "first");
    world.pass(Duration::from_secs(3));
    let nodes = (0..count).map(|number| world.write_small_file(0, &format!("f{number}")).0).collect();
    assert_eq!(reports(world), 1, "their data are not durable");
    nodes
}

fn reports(world: &World) -> u64 {
    world.sent(0, TargetKind::Mdt, "mds_report_size")
}

impl World {
    /// The data of all files become durable, and mount 0 hears of it.
    fn make_data_durable(&mut self) {
        self.sync_ost(0);
        // And the row that says so.
        self.sync_ost(0);
        self.write_small_file(0, "another");
    }

    /// How many of these files have a size that the MDT knows, as mount 0 sees it.
    fn known_count(&mut self, nodes: &[u64]) -> usize {
        nodes.iter().filter(|node| self.attr(0, **node).is_size_known).count()
    }
}

#[test]
fn sizes_of_files_that_become_durable_together_go_together() {
    let mut world = World::new(1, 1, 2);
    let nodes = closed_files(&mut world, 40);
    world.make_data_durable();
    assert_eq!(reports(&world), 1 + 2, "32 and 8");
    let cost = world.cost(0, |world| assert_eq!(world.known_count(&nodes), 40));
    // That of the file after them.
    assert_eq!(cost, counts([("mds_report_size", 1)]), "what was reported is known here");
    for (number, node) in nodes.iter().enumerate() {
        assert_eq!(world.lookup(1, TOP, &format!("f{number}")).map(|entry| entry.node), Ok(*node));
        let attr = world.attr(1, *node);
        assert_eq!((attr.is_size_known, attr.size_bytes, attr.block_count), (true, 4096, 8));
    }
    assert_eq!(world.sent(1, TargetKind::Ost, "ost_getattr"), 0);
}

#[test]
fn an_mdt_that_knows_no_such_request_is_told_each_size_by_itself() {
    let mut world = World::new(1, 1, 1);
    world.tap = Tap::Without(features::REPORTS);
    world.restart_mdt(0);
    world.input(0, Input::ConnectionLost(MDT));
    world.run();
    let nodes = closed_files(&mut world, 5);
    world.make_data_durable();
    assert_eq!((reports(&world), world.known_count(&nodes)), (1 + 5, 5));
}

/// It is told of them together, as the one before it would have understood.
#[test]
fn an_older_mdt_that_takes_the_place_of_another_is_told_each_size_by_itself() {
    let mut world = World::new(1, 1, 1);
    let nodes = closed_files(&mut world, 5);
    world.tap = Tap::Without(features::REPORTS);
    world.make_data_durable();
    assert_eq!((reports(&world), world.known_count(&nodes)), (1 + 1 + 5, 5));
}

/// The others' sizes are not known later because one of them is held.
#[test]
fn who_is_in_the_way_of_one_size_is_not_waited_for_by_another() {
    let mut world = World::new(1, 1, 2);
    let nodes = closed_files(&mut world, 5);
    let held = world.lookup(1, TOP, "f2").expect("it was made").node;
    assert_eq!(world.attr(1, held).size_bytes, 4096);
    world.mounts[1].is_cut_off = true;
    world.make_data_durable();
    assert_eq!(reports(&world), 1 + 1 + 5, "first together");
    let others: Vec<u64> = nodes.iter().copied().filter(|node| *node != held).collect();
    let before = world.counts(0);
    assert_eq!(world.known_count(&others), 4);
    assert_eq!(
        world.counts(0),
        before,
        "they are known here, and only that of the other mount is waited for"
    );
    world.mounts[1].is_cut_off = false;
    world.pass(Duration::from_secs(10));
    assert_eq!(world.known_count(&nodes), 5);
    assert_eq!(reports(&world), 1 + 1 + 5 + 1, "and that of the file after them");
    assert_eq!((world.attr(1, held).is_size_known, world.attr(1, held).size_bytes), (true, 4096));
}

/// One is written by somebody else by then, one is gone.
#[test]
fn files_that_have_changed_since_keep_no_other_from_its_size() {
    let mut world = World::new(1, 1, 2);
    let nodes = closed_files(&mut world, 5);
    let written = world.lookup(1, TOP, "f1").expect("it was made").node;
    let (fh, _) = world.open(1, written, O_RDWR);
    assert_eq!(world.write(1, (written, fh), 4096, b"more"), Ok(4));
    let unlink = Call::Unlink { parent: TOP, name: b"f3".to_vec() };
    assert_eq!(world.call(1, unlink), Ok(Answer::Done));
    world.make_data_durable();
    let others = [nodes[0], nodes[2], nodes[4]];
    assert_eq!(world.known_count(&others), 3);
    for mount in [0, 1] {
        let attr = world.attr(mount, written);
        assert_eq!((attr.is_size_known, attr.size_bytes), (false, 4100), "mount {mount}");
    }
    world.release(1, (written, fh));
    world.pass(Duration::from_secs(10));
    for mount in [0, 1] {
        let attr = world.attr(mount, written);
        assert_eq!((attr.is_size_known, attr.size_bytes), (true, 4100), "mount {mount}");
    }
}

/// Sizes that were reported together and answered, and that the MDT loses with a power failure.
fn lost_reports(world: &mut World) -> Vec<u64> {
    let nodes = closed_files(world, 5);
    world.sync();
    world.is_syncing = false;
    world.make_data_durable();
    assert_eq!((reports(world), world.known_count(&nodes)), (1 + 1, 5));
    world.crash(MDT);
    nodes
}

/// Comes back, and hears what was lost.
fn recover(world: &mut World) {
    world.start(MDT);
    world.is_syncing = true;
    for mount in 0..world.mounts.len() {
        world.input(mount, Input::ConnectionLost(MDT));
    }
    world.pass(Duration::from_secs(10));
    let is_refused = |event: &Event| matches!(event, Event::ReplayRefused { .. });
    assert!(!world.mounts[0].events.iter().any(is_refused), "{:?}", world.mounts[0].events);
}

/// No replay of a report is believed while others may have files open of whom the MDT has not heard; who looks at them measures them. One that
/// knows no reports of many is told of one.
#[test]
fn a_replay_of_sizes_that_were_reported_together_is_understood() {
    for tap in [Tap::Open, Tap::Without(features::REPORTS)] {
        let mut world = World::new(1, 1, 2);
        let nodes = lost_reports(&mut world);
        world.tap = tap;
        recover(&mut world);
        for mount in [0, 1] {
            for (number, node) in nodes.iter().enumerate() {
                assert_eq!(
                    world.lookup(mount, TOP, &format!("f{number}")).map(|entry| entry.node),
                    Ok(*node)
                );
                assert_eq!(world.attr(mount, *node).size_bytes, 4096);
            }
        }
        for _ in 0..3 {
            world.pass(Duration::from_secs(11));
            world.known_count(&nodes);
        }
        assert_eq!(world.known_count(&nodes), 5);
        assert!(nodes.iter().all(|node| world.attr(1, *node).size_bytes == 4096));
    }
}
