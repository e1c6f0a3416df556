//! Files that are open for writing and not written: nobody asks their objects.

use crate::world::{O_APPEND, O_EXCL, O_RDWR, TOP, World, write_call};
use base::{Duration, Layout, TargetId, TargetKind};
use client::{Answer, Call, Input, SetattrCall};
use wire::{ComponentHint, LayoutHint};

impl World {
    /// Requests of one kind that a mount has sent.
    pub fn sent(&self, mount: usize, kind: TargetKind, name: &str) -> u64 {
        let kinds = self.requests(mount, kind);
        kinds.into_iter().filter(|(kind, _)| *kind == name).map(|(_, count)| count).sum()
    }

    fn size_requests(&self, mount: usize) -> (u64, u64) {
        (
            self.sent(mount, TargetKind::Ost, "ost_getattr"),
            self.sent(mount, TargetKind::Mdt, "mds_report_size"),
        )
    }
}

#[test]
fn an_open_that_writes_nothing_costs_no_request_about_sizes() {
    let mut world = World::new(2, 1, 2);
    let file = world.create_with(0, TOP, "file", O_RDWR | O_EXCL);
    assert_eq!(world.attr(0, file.0).size_bytes, 0);
    world.release(0, file);
    assert_eq!(world.size_requests(0), (0, 0));
    // The MDT alone answers others now.
    let node = world.lookup(1, TOP, "file").expect("it was made").node;
    assert_eq!(world.attr(1, node).size_bytes, 0);
    assert_eq!(world.size_requests(1), (0, 0));

    let file = world.create(0, TOP, "written");
    world.write(0, file, 0, b"four").expect("written");
    world.release(0, file);
    world.pass(Duration::from_secs(7));
    let before = world.size_requests(0);
    assert_eq!(before.1, 1, "the size of what was written is reported");
    // Two handles for writing, one after the other and at once, and none writes.
    let (first, _) = world.open(0, file.0, O_RDWR);
    let (second, _) = world.open(0, file.0, O_RDWR);
    assert_eq!(world.attr(0, file.0).size_bytes, 4);
    world.release(0, (file.0, first));
    assert_eq!(world.attr(0, file.0).size_bytes, 4);
    world.release(0, (file.0, second));
    assert_eq!(world.size_requests(0), before);
    let node = world.lookup(1, TOP, "written").expect("it was made").node;
    assert_eq!(world.attr(1, node).size_bytes, 4);
    assert_eq!(world.size_requests(1), (0, 0));
}

#[test]
fn a_size_that_another_client_changes_meanwhile_is_not_believed() {
    let mut world = World::new(2, 1, 2);
    let file = world.create(0, TOP, "file");
    let node = world.lookup(1, TOP, "file").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    world.write(1, (node, fh), 0, b"seven..").expect("written");
    assert_eq!(world.attr(0, file.0).size_bytes, 7);
    world.release(1, (node, fh));
    // The last to close has changed nothing; somebody else has.
    world.release(0, file);
    world.pass(Duration::from_secs(7));
    for (mount, node) in [(0, file.0), (1, node)] {
        assert_eq!(world.attr(mount, node).size_bytes, 7, "mount {mount}");
    }
}

/// Lengthens or cuts a file through an open handle.
fn truncate(world: &mut World, mount: usize, (node, fh): (u64, u64), size_bytes: u64) {
    let call = SetattrCall { fh: Some(fh), size_bytes: Some(size_bytes), ..SetattrCall::default() };
    world.call(mount, Call::Setattr { node, set: call }).expect("cut");
}

#[test]
fn who_alone_writes_a_file_asks_nobody_about_it_for_the_answers_to_its_writes_told() {
    let mut world = World::new(2, 1, 2);
    let file = world.create(0, TOP, "file");
    world.write(0, file, 0, b"four").expect("written");
    assert_eq!(world.attr(0, file.0).size_bytes, 4);
    let asked = |world: &World| {
        (world.sent(0, TargetKind::Mdt, "mds_getattr"), world.sent(0, TargetKind::Ost, "ost_getattr"))
    };
    let (of_mdt, of_ost) = asked(&world);
    for _ in 0..100 {
        assert_eq!(world.attr(0, file.0).size_bytes, 4);
    }
    assert_eq!(asked(&world), (of_mdt, of_ost));
    let locks_before = world.mdt_lock_count(0) + world.mdt_lock_count(1);
    for size in 5..105 {
        world.write(0, file, size - 1, b"x").expect("written");
        assert_eq!(world.attr(0, file.0).size_bytes, size);
    }
    // With the second write the MDT is asked, once, for the lock to keep writes back.
    let (of_mdt, locks_before) = (of_mdt + 1, locks_before + 1);
    assert_eq!(asked(&world), (of_mdt, of_ost));
    truncate(&mut world, 0, file, 3);
    assert_eq!(world.attr(0, file.0).size_bytes, 3);
    assert_eq!(world.sent(0, TargetKind::Mdt, "mds_getattr"), of_mdt);
    assert_eq!(world.mdt_lock_count(0) + world.mdt_lock_count(1), locks_before);
    // Closed, and the size reported: then the MDT has it.
    world.release(0, file);
    world.pass(Duration::from_secs(7));
    assert_eq!(world.attr(0, file.0).size_bytes, 3);
    let settled = asked(&world);
    assert_eq!(world.attr(0, file.0).size_bytes, 3);
    assert_eq!(asked(&world), settled);
}

#[test]
fn a_size_that_was_measured_is_not_believed_after_somebody_else_had_the_file() {
    let mut world = World::new(2, 1, 2);
    let file = world.create(0, TOP, "file");
    world.write(0, file, 0, b"four").expect("written");
    assert_eq!(world.attr(0, file.0).size_bytes, 4);
    let node = world.lookup(1, TOP, "file").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    for size in 5..25 {
        // Each takes the lock from the other, and both look.
        let (mount, own) = if size % 2 == 0 { (0, file) } else { (1, (node, fh)) };
        world.write(mount, own, size - 1, b"x").expect("written");
        assert_eq!(world.attr(0, file.0).size_bytes, size);
        assert_eq!(world.attr(1, node).size_bytes, size);
        assert_eq!(world.attr(0, file.0).size_bytes, size);
    }
    let locks: usize = (0..2).map(|mdt| world.mdt_lock_count(mdt)).sum();
    assert!(locks < 12, "{locks} locks for one file and two mounts");
}

#[test]
fn attributes_that_another_mount_changes_are_seen_while_the_file_is_open() {
    let mut world = World::new(2, 1, 2);
    let file = world.create(0, TOP, "file");
    world.write(0, file, 0, b"four").expect("written");
    let permissions = world.attr(0, file.0).permissions;
    let node = world.lookup(1, TOP, "file").expect("it was made").node;
    for round in 0..3 {
        let mode = 0o600 | round;
        assert_ne!(world.attr(0, file.0).permissions, mode, "from {permissions:o}");
        let set = SetattrCall { mode: Some(mode), ..SetattrCall::default() };
        world.call(1, Call::Setattr { node, set }).expect("chmod");
        assert_eq!(world.attr(0, file.0).permissions, mode);
        assert_eq!(world.attr(0, file.0).size_bytes, 4);
    }
}

#[test]
fn the_end_that_an_append_looks_for_is_not_believed_after_it() {
    let mut world = World::new(2, 1, 1);
    let file = world.create(0, TOP, "file");
    world.release(0, file);
    // A read lock on everything is there before the append takes one of its own.
    let (reader, _) = world.open(0, file.0, 0);
    assert_eq!(world.read(0, (file.0, reader), 0, 10), b"");
    let (writer, _) = world.open(0, file.0, O_RDWR | O_APPEND);
    for round in 1..4 {
        let mut call = write_call((file.0, writer), 0, b"more");
        let Call::Write { flags, .. } = &mut call else { panic!("a write") };
        *flags = O_APPEND;
        world.call(0, call).expect("appended");
        assert_eq!(world.attr(0, file.0).size_bytes, 4 * round);
    }
}

/// Its writer is about to report it: nobody else does.
#[test]
fn the_size_of_a_file_that_was_just_closed_is_reported_once() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    world.write(0, file, 0, b"bytes").expect("there is room");
    world.release(0, file);
    let node = world.lookup(1, TOP, "f").expect("it is there").node;
    for _ in 0..3 {
        assert_eq!(world.attr(1, node).size_bytes, 5);
        assert_eq!(world.attr(0, file.0).size_bytes, 5);
    }
    world.pass(Duration::from_secs(7));
    let attr = world.attr(1, node);
    assert_eq!((attr.is_size_known, attr.size_bytes), (true, 5));
    assert_eq!(world.sent(0, TargetKind::Mdt, "mds_report_size"), 1);
    assert_eq!(world.sent(1, TargetKind::Mdt, "mds_report_size"), 0);
}

/// An MDT tells the write epoch of a file, and dies before the size is measured: the one that takes its place is not told that size.
#[test]
fn a_size_is_reported_to_nobody_but_who_told_the_epoch() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    world.write(0, file, 0, b"bytes").expect("there is room");
    world.sync();
    world.is_syncing = false;
    world.write(0, file, 5, b" more").expect("there is room");
    world.release(0, file);
    assert_eq!(world.open_count(0), 0);
    assert_eq!(world.sent(0, TargetKind::Mdt, "mds_report_size"), 0, "its data are not durable");
    world.restart_mdt(0);
    world.input(0, Input::ConnectionLost(TargetId::mdt(0)));
    world.run();
    world.sync_ost(0);
    world.is_syncing = true;
    world.pass(Duration::from_secs(7));
    assert_eq!(world.sent(0, TargetKind::Mdt, "mds_report_size"), 0);
    // Whoever looks reports it in the end.
    let node = world.lookup(1, TOP, "f").expect("it is there").node;
    for _ in 0..4 {
        assert_eq!(world.attr(1, node).size_bytes, 10);
        world.pass(Duration::from_secs(11));
    }
    assert_eq!((world.attr(1, node).is_size_known, world.attr(1, node).size_bytes), (true, 10));
}

/// All that a mount has sent to MDTs and OSTs.
fn all_sent(world: &World, mount: usize) -> u64 {
    let kinds = [TargetKind::Mdt, TargetKind::Ost].into_iter().flat_map(|kind| world.requests(mount, kind));
    kinds.map(|(_, count)| count).sum()
}

const UNIT: u64 = 64 << 10;

fn component(end_bytes: Option<u64>, osts: &[u16]) -> ComponentHint {
    let stripe_size_bytes = Some(UNIT as u32);
    ComponentHint { end_bytes, stripe_size_bytes, osts: osts.to_vec(), ..ComponentHint::default() }
}

/// Layouts of all kinds.
fn layouts() -> Vec<Vec<ComponentHint>> {
    let first = |end_units: u64, osts: &[u16]| component(Some(end_units * UNIT), osts);
    vec![
        vec![component(None, &[0])],
        vec![component(None, &[0, 1, 2])],
        vec![first(2, &[0]), first(8, &[1, 2]), component(None, &[0, 1, 2])],
        vec![first(1, &[Layout::ON_MDT]), component(None, &[0, 1])],
    ]
}

/// A new file, open for writing, with a lock to keep writes back, and its size asked for.
fn written_alone(world: &mut World, name: &str, components: Vec<ComponentHint>) -> (u64, u64) {
    let layout = LayoutHint { components };
    let call = Call::CreateStriped { parent: TOP, name: name.into(), mode: 0o644, umask: 0, layout };
    assert_eq!(world.call(0, call), Ok(Answer::Done));
    let node = world.lookup(0, TOP, name).expect("it was made").node;
    let file = (node, world.open(0, node, O_RDWR).0);
    for end in 1..=2 {
        world.write(0, file, end - 1, b"x").expect("written");
        assert_eq!(world.attr(0, node).size_bytes, end);
    }
    file
}

#[test]
fn who_alone_writes_a_file_and_keeps_it_back_knows_its_size() {
    for (number, components) in layouts().into_iter().enumerate() {
        let mut world = World::new(1, 3, 2);
        let file = written_alone(&mut world, "file", components);
        let mut end = 0;
        // Each OST has said how much may be kept back, and each stripe is locked.
        for _ in 0..12 {
            world.write(0, file, end, &[1; UNIT as usize]).expect("written");
            end += UNIT;
            assert_eq!(world.attr(0, file.0).size_bytes, end, "layout {number}");
        }
        let before = world.requests(0, TargetKind::Ost);
        let all_before = all_sent(&world, 0);
        let mut mtime = world.attr(0, file.0).mtime;
        for _ in 0..50 {
            world.write(0, file, end, &[1; 3000]).expect("kept back");
            end += 3000;
            let attr = world.attr(0, file.0);
            assert_eq!(attr.size_bytes, end, "layout {number}");
            assert!(attr.mtime > mtime && attr.block_count * 512 >= end, "{attr:?}");
            mtime = attr.mtime;
            // Over what is there: no longer.
            world.write(0, file, end / 2, &[2; 10]).expect("kept back");
            assert_eq!(world.attr(0, file.0).size_bytes, end);
        }
        let after = world.requests(0, TargetKind::Ost);
        assert_eq!(all_sent(&world, 0), all_before, "layout {number}: {before:?}, {after:?}");
        // What has arrived is not asked for either.
        let asked = world.sent(0, TargetKind::Ost, "ost_getattr");
        world.pass(Duration::from_secs(3));
        assert!(all_sent(&world, 0) > all_before, "it gets old");
        assert_eq!(world.attr(0, file.0).size_bytes, end);
        assert_eq!(world.sent(0, TargetKind::Ost, "ost_getattr"), asked, "layout {number}");
    }
}

#[test]
fn a_size_with_what_is_kept_back_is_not_believed_after_somebody_else_had_the_file() {
    for components in layouts() {
        let mut world = World::new(1, 3, 2);
        let file = written_alone(&mut world, "file", components);
        let there = world.lookup(1, TOP, "file").expect("it was made").node;
        let mut end = 2;
        for round in 0..10_u64 {
            world.pass(Duration::from_secs(2));
            for _ in 0..3 {
                world.write(0, file, end, &[1; 30_000]).expect("written");
                end += 30_000;
                assert_eq!(world.attr(0, file.0).size_bytes, end);
            }
            assert_eq!(world.attr(1, there).size_bytes, end, "round {round}");
            let (fh, _) = world.open(1, there, O_RDWR);
            if round % 3 == 0 {
                end /= 2;
                truncate(&mut world, 1, (there, fh), end);
            } else {
                world.write(1, (there, fh), end, &[2; 40_000]).expect("written");
                end += 40_000;
            }
            assert_eq!(world.attr(0, file.0).size_bytes, end, "round {round}");
            assert_eq!(world.attr(1, there).size_bytes, end, "round {round}");
            world.release(1, (there, fh));
        }
    }
}

/// Its own changes that are not kept back, beside what is.
#[test]
fn a_size_with_what_is_kept_back_follows_what_is_not() {
    for components in layouts() {
        let mut world = World::new(1, 3, 1);
        let file = written_alone(&mut world, "file", components);
        let appender = (file.0, world.open(0, file.0, O_RDWR | O_APPEND).0);
        let mut end = 2;
        for round in 1..20_u64 {
            world.write(0, file, end, &[1; 50_000]).expect("kept back");
            end += 50_000;
            assert_eq!(world.attr(0, file.0).size_bytes, end);
            match round % 4 {
                0 => {
                    end -= 20_000 * round.min(5);
                    truncate(&mut world, 0, file, end);
                }
                1 => {
                    end += 100_000;
                    truncate(&mut world, 0, file, end);
                }
                2 => {
                    let mut call = write_call(appender, 0, &[2; 5000]);
                    let Call::Write { flags, .. } = &mut call else { panic!("a write") };
                    *flags = O_APPEND;
                    assert_eq!(world.call(0, call), Ok(Answer::Written(5000)));
                    end += 5000;
                }
                _ => {
                    let fsync = Call::Fsync { node: file.0, fh: file.1, data_only: false };
                    assert_eq!(world.call(0, fsync), Ok(Answer::Done));
                }
            }
            assert_eq!(world.attr(0, file.0).size_bytes, end, "round {round}");
        }
    }
}

/// Nobody has what is lost.
#[test]
fn what_was_kept_back_and_lost_counts_no_more() {
    let mut world = World::new(1, 3, 1);
    let file = written_alone(&mut world, "file", vec![component(None, &[0, 1, 2])]);
    world.write(0, file, 2, &[1; 1000]).expect("kept back");
    assert_eq!(world.attr(0, file.0).size_bytes, 1002);
    world.evict_from_ost(0, 0);
    world.pass(Duration::from_secs(7));
    assert_eq!(world.attr(0, file.0).size_bytes, 2);
}
