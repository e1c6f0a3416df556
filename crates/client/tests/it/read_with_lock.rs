//! Bytes that come with the lock that their reader needs.

use crate::skew::tap::Tap;
use crate::small_files::counts;
use crate::world::{O_RDONLY, O_RDWR, TOP, World, write_call};
use base::{Duration, TargetId, TargetKind};
use client::{Answer, Call};
use wire::session::features;

const OST: TargetId = TargetId::ost(0);
const O_DIRECT: u32 = 0o40000;
const EIO: i32 = 5;

fn read_call((node, fh): (u64, u64), offset_bytes: u64, byte_count: u32) -> Call {
    Call::Read { node, fh, offset_bytes, byte_count, is_direct: false }
}

impl World {
    /// What an OST knows is heard when it is connected.
    fn meet_ost(&mut self, mount: usize) {
        let file = self.create(mount, TOP, "first");
        self.write(mount, file, 0, b"x").expect("there is room");
        self.release(mount, file);
        self.pass(Duration::from_secs(7));
        self.call(mount, Call::Unlink { parent: TOP, name: b"first".to_vec() }).expect("it is there");
        self.pass(Duration::from_secs(3));
    }
}

/// A file of the first mount, closed and at rest, as the second one finds it.
fn written(bytes: &[u8]) -> (World, u64) {
    let mut world = World::new(1, 1, 2);
    world.meet_ost(1);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, bytes), Ok(bytes.len() as u64));
    world.release(0, file);
    // Its size is told when the data are durable.
    world.pass(Duration::from_secs(7));
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    (world, node)
}

#[test]
fn a_small_file_is_opened_read_and_closed_with_two_requests() {
    let (mut world, node) = written(&[7; 4096]);
    let cost = world.cost(1, |world| {
        let (fh, _) = world.open(1, node, O_RDONLY);
        assert_eq!(world.read(1, (node, fh), 0, 8192), [7; 4096]);
        world.release(1, (node, fh));
    });
    // The close goes by itself a second later.
    assert_eq!(cost, counts([("mds_open", 1), ("ost_read", 1), ("mds_close", 1)]));
}

/// The file is fetched as a whole; what its first read wants of it and the rest come in one answer. A lock that was called back from
/// somebody does not reach to the end of the object, nor before what was asked for; then the MDT says where the end is.
#[test]
fn the_rest_of_a_file_comes_with_its_beginning() {
    for is_contended in [false, true] {
        let bytes: Vec<u8> = (0..100_000u32).map(|at| (at / 512) as u8).collect();
        let (mut world, node) = written(&bytes);
        if !is_contended {
            world.evict_from_ost(0, 0);
        }
        let (fh, _) = world.open(1, node, O_RDONLY);
        let mut parts = [(0, 65_536), (65_536, 81_920), (81_920, 100_000)];
        if !is_contended {
            parts.swap(0, 1);
        }
        let cost = world.cost(1, |world| {
            for (start, end) in parts {
                let found = world.read(1, (node, fh), start as u64, 65_536.min(end - start + 4096) as u32);
                assert_eq!(found[..end - start], bytes[start..end]);
            }
        });
        assert_eq!(cost, counts([("ost_read", 1)]), "contended: {is_contended}");
    }
}

/// The end is the MDT's to say only while nobody writes the file.
#[test]
fn what_another_adds_to_a_file_that_was_fetched_is_read() {
    let bytes = vec![7; 100_000];
    let (mut world, node) = written(&bytes);
    let (fh, _) = world.open(1, node, O_RDONLY);
    assert_eq!(world.read(1, (node, fh), 0, 65_536), bytes[..65_536]);
    let (writer, _) = world.open(0, node, O_RDWR);
    assert_eq!(world.write(0, (node, writer), 40 << 20, b"far behind"), Ok(10), "no lock is in its way");
    assert_eq!(world.read(1, (node, fh), 65_536, 65_536), [vec![7; 34_464], vec![0; 31_072]].concat());
}

#[test]
fn an_ost_that_knows_no_such_request_is_asked_for_lock_and_bytes() {
    let (mut world, node) = written(b"bytes");
    world.tap = Tap::Without(features::READ_WITH_LOCK);
    world.add_mount(3);
    world.run();
    world.meet_ost(2);
    assert_eq!(world.lookup(2, TOP, "f").map(|entry| entry.node), Ok(node));
    let (fh, _) = world.open(2, node, O_RDONLY);
    let cost = world.cost(2, |world| assert_eq!(world.read(2, (node, fh), 0, 4096), b"bytes"));
    assert_eq!(cost, counts([("ldlm_enqueue", 1), ("ost_read", 1)]));
}

/// What another mount has kept back under its lock comes first.
#[test]
fn bytes_that_are_waited_for_are_read_when_the_lock_is_there() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"first"), Ok(5));
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDONLY);
    assert_eq!(world.write(0, file, 0, b"other"), Ok(5));
    world.mounts[0].is_slow_to = Some(OST);
    let reading = world.begin(1, read_call((node, fh), 0, 4096));
    world.pass(Duration::from_secs(1));
    assert!(!world.is_answered(1, reading), "the writer has not given its lock back");
    world.let_arrive(0);
    assert_eq!(world.finish(1, reading), Ok(Answer::Bytes(b"other".to_vec().into())));
    assert_eq!(world.sent(1, TargetKind::Ost, "ost_read"), 1);
    assert_eq!(world.sent(1, TargetKind::Ost, "ldlm_enqueue"), 0);
    // It is locked here now.
    let writing = world.begin(0, write_call(file, 0, b"third"));
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(5)));
    assert_eq!(world.read(1, (node, fh), 0, 4096), b"third");
}

/// A write of the same mount past the kernel's pages goes around those of a read that waits for its lock. So the bytes that come with
/// it are not believed when they were read before that.
#[test]
fn bytes_that_a_write_of_the_same_mount_has_overtaken_are_read_anew() {
    let (mut world, node) = written(b"first");
    let (fh, _) = world.open(1, node, O_RDONLY);
    let (direct, _) = world.open(1, node, O_RDWR | O_DIRECT);
    world.mounts[1].is_late = Some(OST);
    let reading = world.begin(1, read_call((node, fh), 0, 4096));
    world.run();
    let late = world.take_late(1);
    assert!(!late.is_empty() && !world.is_answered(1, reading));
    assert_eq!(world.write(1, (node, direct), 0, b"other"), Ok(5));
    world.come(1, late);
    assert_eq!(world.finish(1, reading), Ok(Answer::Bytes(b"other".to_vec().into())));
    assert_eq!(world.sent(1, TargetKind::Ost, "ost_read"), 2);
}

#[test]
fn a_restart_of_the_ost_is_survived_by_who_waits() {
    let (mut world, node) = written(b"first");
    let (fh, _) = world.open(1, node, O_RDONLY);
    world.mounts[1].is_late = Some(OST);
    let reading = world.begin(1, read_call((node, fh), 0, 4096));
    world.run();
    drop(world.take_late(1));
    world.crash(OST);
    world.start(OST);
    assert_eq!(world.finish(1, reading), Ok(Answer::Bytes(b"first".to_vec().into())));
    // The lock is one that the OST of today knows.
    let file = (world.lookup(0, TOP, "f").expect("it was made").node, 0);
    let (writer, _) = world.open(0, file.0, O_RDWR);
    assert_eq!(world.write(0, (file.0, writer), 0, b"other"), Ok(5));
    assert_eq!(world.read(1, (node, fh), 0, 4096), b"other");
}

/// It was sent to an OST that knows such requests, and arrives at one that took its place.
#[test]
fn a_request_that_an_older_ost_does_not_know_is_made_in_two() {
    let (mut world, node) = written(b"bytes");
    let (fh, _) = world.open(1, node, O_RDONLY);
    world.mounts[1].is_slow_to = Some(OST);
    let reading = world.begin(1, read_call((node, fh), 0, 4096));
    world.run();
    world.tap = Tap::Without(features::READ_WITH_LOCK);
    world.let_arrive(1);
    assert_eq!(world.finish(1, reading), Ok(Answer::Bytes(b"bytes".to_vec().into())));
    assert_eq!(world.sent(1, TargetKind::Ost, "ldlm_enqueue"), 1);
}

/// The lease has ended, the OST has given the mount up, another one has written: then the answer comes.
#[test]
fn bytes_that_come_after_the_lease_are_read_anew() {
    let (mut world, node) = written(b"first");
    let (fh, _) = world.open(1, node, O_RDONLY);
    let (writer, _) = world.open(0, node, O_RDWR | O_DIRECT);
    world.mounts[1].is_late = Some(OST);
    let reading = world.begin(1, read_call((node, fh), 0, 4096));
    world.run();
    let late = world.take_late(1);
    world.mounts[1].unreachable = Some(OST);
    let writing = world.begin(0, write_call((node, writer), 0, b"other"));
    world.pass(Duration::from_secs(200));
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(5)));
    world.come(1, late);
    assert!(!world.is_answered(1, reading), "nothing says that these bytes are still those of the file");
    world.mounts[1].unreachable = None;
    assert_eq!(world.finish(1, reading), Ok(Answer::Bytes(b"other".to_vec().into())));
}

/// A read is not in the way of who writes other bytes, although more would be fetched with it if they were free.
#[test]
fn what_others_write_beside_it_stays_locked() {
    let (mut world, node) = written(&[7; 100_000]);
    let (mine, _) = world.open(1, node, O_RDWR | O_DIRECT);
    assert_eq!(world.write(1, (node, mine), 0, &[8; 100]), Ok(100));
    let (writer, _) = world.open(0, node, O_RDWR | O_DIRECT);
    assert_eq!(world.write(0, (node, writer), 65_536, &[9; 100]), Ok(100));
    world.evict_from_ost(1, 0);
    let (fh, _) = world.open(1, node, O_RDONLY);
    world.pass(Duration::from_secs(3));
    let cancels = world.sent(0, TargetKind::Ost, "ldlm_cancel");
    assert_eq!(world.read(1, (node, fh), 4096, 4096), [7; 4096]);
    assert_eq!(world.write(0, (node, writer), 65_600, &[9; 100]), Ok(100));
    assert_eq!(world.sent(0, TargetKind::Ost, "ldlm_cancel"), cancels, "its lock was not called back");
}

/// A lock is not told of whose bytes cannot be read. It is given back, or there would be one more with each try.
#[test]
fn what_cannot_be_read_is_not_kept_locked() {
    let (mut world, node) = written(b"bytes");
    world.rot(0);
    let (fh, _) = world.open(1, node, O_RDONLY);
    let held = world.ost_lock_count(0, 1);
    for _ in 0..10 {
        assert_eq!(world.call(1, read_call((node, fh), 0, 4096)), Err(EIO));
    }
    world.run();
    assert_eq!(world.ost_lock_count(0, 1), held);
}
