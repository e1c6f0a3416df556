//! Advisory locks that an MDT has dropped with an eviction: who had them does not go on beside their next holder.

use crate::world::{O_RDWR, TOP, World, append_call, write_call};
use base::{Duration, Extent, TargetId, TargetKind};
use client::{Answer, Call, Event, SetattrCall};
use wire::mdt::{FileLock, FlockKind};

const EIO: i32 = 5;
const EAGAIN: i32 = 11;
const MDT: TargetId = TargetId::mdt(0);

type File = (u64, u64);

/// The same file three times: two descriptors of the first mount, and one of the second. Its bytes are on the OST.
fn shared_file() -> (World, File, File, File) {
    let mut world = World::new(1, 1, 2);
    let own = world.create(0, TOP, "f");
    let bystander = (own.0, world.open(0, own.0, O_RDWR).0);
    let there = world.lookup(1, TOP, "f").expect("it was made").node;
    let other = (there, world.open(1, there, O_RDWR).0);
    assert_eq!(world.write(1, other, 0, b"0123456789"), Ok(10));
    assert_eq!(world.read(0, own, 0, 10), b"0123456789");
    world.pass(Duration::from_secs(3));
    (world, own, bystander, other)
}

/// A lock of flock(2), of a process, or of a description.
fn lock((node, fh): File, (owner, is_flock): (u64, bool), kind: FlockKind, extent: Extent) -> Call {
    let lock = FileLock { owner, pid: 1, is_flock, kind, extent };
    Call::Setlk { node, fh, lock, can_wait: false }
}

fn flock(file: File, kind: FlockKind) -> Call {
    lock(file, (1, true), kind, Extent::WHOLE)
}

fn range(file: File, owner: u64, kind: FlockKind, start: u64, end: u64) -> Call {
    lock(file, (owner, false), kind, Extent::new(start, end))
}

impl World {
    fn has(&mut self, mount: usize, call: Call) {
        assert_eq!(self.call(mount, call), Ok(Answer::Done));
    }

    /// The MDT drops the first mount, which hears of it.
    fn evict_first(&mut self) {
        self.evict(0, 0);
        self.pass(Duration::from_secs(60));
        assert!(self.mounts[0].events.contains(&Event::Evicted(MDT)));
    }

    fn change_count(&self, mount: usize) -> u64 {
        let requests = self.requests(mount, TargetKind::Ost);
        let changes = requests.iter().filter(|(kind, _)| ["ost_write", "ost_punch"].contains(kind));
        changes.map(|(_, count)| count).sum()
    }
}

/// What reads or changes data through a descriptor.
fn all_io((node, fh): File, bystander: File) -> Vec<Call> {
    let set = SetattrCall { fh: Some(fh), size_bytes: Some(3), ..SetattrCall::default() };
    let copy = |from: File, to: File| Call::CopyFileRange {
        node: from.0,
        fh: from.1,
        offset_bytes: 0,
        to_node: to.0,
        to_fh: to.1,
        to_offset_bytes: 5,
        byte_count: 2,
    };
    vec![
        write_call((node, fh), 0, b"old"),
        append_call((node, fh), b"old"),
        Call::Read { node, fh, offset_bytes: 0, byte_count: 10, is_direct: false },
        Call::Read { node, fh, offset_bytes: 0, byte_count: 10, is_direct: true },
        Call::Fallocate { node, fh, offset_bytes: 0, byte_count: 100, mode: 0 },
        Call::Setattr { node, set },
        copy((node, fh), bystander),
        copy(bystander, (node, fh)),
    ]
}

#[test]
fn who_has_lost_a_lock_reads_and_writes_nothing_under_it() {
    let (mut world, own, bystander, other) = shared_file();
    world.has(0, flock(own, FlockKind::Write));
    world.evict_first();
    world.has(1, flock(other, FlockKind::Write));
    assert_eq!(world.write(1, other, 0, b"new"), Ok(3));
    let before = world.change_count(0);
    for call in all_io(own, bystander) {
        assert_eq!(world.call(0, call.clone()), Err(EIO), "{call:?}");
    }
    assert_eq!(world.change_count(0), before);
    assert_eq!(world.read(1, other, 0, 20), b"new3456789");
    // Whoever has never locked it uses it as before.
    assert_eq!(world.read(0, bystander, 0, 20), b"new3456789");
    assert_eq!(world.write(0, bystander, 3, b"-"), Ok(1));
    // fsync(2) and close(2) say it once, to who is concerned.
    let fsync = |(node, fh): File| Call::Fsync { node, fh, data_only: false };
    let flush = |(node, fh): File| Call::Flush { node, fh, lock_owner: 77 };
    assert_eq!(world.call(0, flush(own)), Err(EIO));
    assert_eq!(world.call(0, fsync(own)), Err(EIO));
    world.has(0, fsync(own));
    world.has(0, flush(own));
    world.has(0, fsync(bystander));
    world.has(0, flush(bystander));
}

#[test]
fn who_gives_a_lost_lock_up_or_gets_it_again_goes_on() {
    for kind in [FlockKind::Unlock, FlockKind::Read] {
        let (mut world, own, _, other) = shared_file();
        world.has(0, flock(own, FlockKind::Write));
        world.evict_first();
        world.has(1, flock(other, FlockKind::Write));
        assert_eq!(world.call(0, flock(own, FlockKind::Write)), Err(EAGAIN));
        assert_eq!(world.write(0, own, 0, b"old"), Err(EIO), "he has not got it");
        world.has(1, flock(other, FlockKind::Unlock));
        world.has(0, flock(own, kind));
        assert_eq!(world.write(0, own, 0, b"own"), Ok(3));
        assert_eq!(world.read(0, own, 0, 4), b"own3");
    }
}

/// Begun before the MDT was silent for long, and not sent by then.
#[test]
fn a_write_that_waits_for_a_silent_mdt_ends_with_the_lock() {
    let (mut world, own, _, other) = shared_file();
    world.has(0, flock(own, FlockKind::Write));
    world.mounts[0].unreachable = Some(MDT);
    world.pass(Duration::from_secs(25));
    let before = world.change_count(0);
    let waiting = [
        write_call(own, 0, b"old"),
        append_call(own, b"old"),
        Call::Fallocate { node: own.0, fh: own.1, offset_bytes: 0, byte_count: 100, mode: 16 },
    ];
    let waiting = waiting.map(|call| world.begin(0, call));
    world.pass(Duration::from_secs(1));
    assert!(waiting.iter().all(|call| !world.is_answered(0, *call)));
    world.evict(0, 0);
    world.has(1, flock(other, FlockKind::Write));
    assert_eq!(world.write(1, other, 0, b"new"), Ok(3));
    world.mounts[0].unreachable = None;
    for call in waiting {
        assert_eq!(world.finish(0, call), Err(EIO));
    }
    assert!(world.mounts[0].events.contains(&Event::Evicted(MDT)));
    assert_eq!(world.change_count(0), before);
    assert_eq!(world.read(1, other, 0, 20), b"new3456789");
}

/// Locks of processes, and of descriptions, which the kernel tells apart by their owners only.
#[test]
fn of_ranges_each_has_to_be_given_up_or_got_again() {
    let (mut world, own, bystander, _) = shared_file();
    world.has(0, range(own, 1, FlockKind::Write, 0, 4));
    world.has(0, range(own, 1, FlockKind::Read, 6, 8));
    // Another process has given up what it had, and has met what the first one has.
    world.has(0, range(bystander, 2, FlockKind::Write, 8, 9));
    world.has(0, range(bystander, 2, FlockKind::Unlock, 0, 100));
    assert_eq!(world.call(0, range(bystander, 2, FlockKind::Write, 0, 1)), Err(EAGAIN));
    world.evict_first();
    assert_eq!(world.write(0, bystander, 9, b"9"), Ok(1));
    assert_eq!(world.write(0, own, 0, b"0"), Err(EIO));
    world.has(0, range(own, 1, FlockKind::Unlock, 0, 7));
    assert_eq!(world.write(0, own, 0, b"0"), Err(EIO), "one byte is left");
    world.has(0, range(own, 1, FlockKind::Write, 7, 8));
    assert_eq!(world.write(0, own, 0, b"0"), Ok(1));
}

/// close(2) of any descriptor of a process gives its locks of fcntl(2) up, and that of the last one a description's.
#[test]
fn closing_gives_lost_locks_up() {
    let (mut world, own, bystander, _) = shared_file();
    world.has(0, range(own, 1, FlockKind::Write, 0, 4));
    world.evict_first();
    assert_eq!(world.write(0, own, 0, b"0"), Err(EIO));
    world.has(0, Call::Flush { node: bystander.0, fh: bystander.1, lock_owner: 1 });
    assert_eq!(world.write(0, own, 0, b"0"), Ok(1));
    world.has(0, range(own, 2, FlockKind::Write, 0, 4));
    world.evict_first();
    world.release(0, own);
    let again = (own.0, world.open(0, own.0, O_RDWR).0);
    assert_eq!(world.write(0, again, 0, b"0"), Ok(1));
}

#[test]
fn no_lock_is_lost_with_a_restart() {
    let (mut world, own, _, other) = shared_file();
    world.has(0, flock(own, FlockKind::Write));
    world.restart(MDT);
    world.pass(Duration::from_secs(20));
    assert!(world.mounts[0].events.contains(&Event::Recovered(MDT)));
    assert_eq!(world.write(0, own, 0, b"own"), Ok(3));
    assert_eq!(world.call(1, flock(other, FlockKind::Write)), Err(EAGAIN));
    world.has(0, Call::Fsync { node: own.0, fh: own.1, data_only: false });
}
