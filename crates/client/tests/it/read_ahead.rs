//! Reads that fetch more than they need, and who may believe what was fetched.

use crate::world::{O_RDONLY, O_RDWR, ROOT, TOP, World};
use base::{Duration, TargetKind};
use client::{
    Answer, Call, Caller, Event, Input, ReadAheadBound, ReadAheadBounds, ReadAheadStats, SetattrCall, Setting,
};

pub const MIB: u64 = 1 << 20;
pub const WINDOW: u64 = 64 << 10;
pub const EAGAIN: i32 = 11;
const O_DIRECT: u32 = 0o40000;

fn pattern(byte_count: u64, salt: u8) -> Vec<u8> {
    (0..byte_count).map(|at| (at / 4096) as u8 ^ (at as u8) ^ salt).collect()
}

/// A file of so many bytes on one OST, and both mounts with a handle for reading.
pub struct Shared {
    pub world: World,
    bytes: Vec<u8>,
    pub files: [(u64, u64); 2],
    /// Threads that read by turns.
    pub reader_count: u32,
    read_count: u32,
}

impl Shared {
    pub fn new(byte_count: u64) -> Shared {
        let mut world = World::new(1, 1, 2);
        let bytes = pattern(byte_count, 0);
        let file = world.create(0, TOP, "file");
        for (number, part) in bytes.chunks(MIB as usize).enumerate() {
            world.write(0, file, number as u64 * MIB, part).expect("written");
        }
        world.release(0, file);
        // Its size is told when the data are durable.
        world.pass(Duration::from_secs(7));
        let files = [0, 1].map(|mount| {
            let node = world.lookup(mount, TOP, "file").expect("it was made").node;
            (node, world.open(mount, node, O_RDONLY).0)
        });
        Shared { world, bytes, files, reader_count: 1, read_count: 0 }
    }

    pub fn with_kernel_window(mut self) -> Shared {
        let bounds = ReadAheadBounds { kernel_window_bytes: WINDOW, ..ReadAheadBounds::default() };
        self.world.input(0, Input::Set(Setting::ReadAhead(bounds)));
        self
    }

    /// Reads through mount 0, and looks at every byte.
    pub fn check(&mut self, offset: u64, byte_count: u64) {
        assert!(self.try_check(offset, byte_count), "[{offset}, …) is refused");
    }

    /// The same; false when that is refused.
    pub fn try_check(&mut self, offset: u64, byte_count: u64) -> bool {
        let caller = Caller { pid: 1 + self.read_count % self.reader_count, ..ROOT };
        self.read_count += 1;
        let read = match self.world.read_as(0, caller, self.files[0], (offset, byte_count as u32)) {
            Err(EAGAIN) => return false,
            read => read.expect("it is read"),
        };
        let end = (offset + byte_count).min(self.bytes.len() as u64);
        assert!(
            read == self.bytes[offset as usize..end as usize],
            "[{offset}, {end}) as it was written last"
        );
        true
    }

    pub fn assert_bytes(&self, offset: u64, bytes: &[u8]) {
        assert!(
            bytes == &self.bytes[offset as usize..][..bytes.len()],
            "[{offset}, …) as it was written last"
        );
    }

    pub fn write(&mut self, mount: usize, offset: u64, byte_count: u64, salt: u8) {
        let data = pattern(byte_count, salt);
        let (fh, _) = self.world.open(mount, self.files[mount].0, O_RDWR | O_DIRECT);
        let file = (self.files[mount].0, fh);
        assert_eq!(self.world.write(mount, file, offset, &data), Ok(byte_count));
        self.world.release(mount, file);
        let end = (offset + byte_count) as usize;
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset as usize..end].copy_from_slice(&data);
    }

    pub fn reads(&self) -> u64 {
        self.world.sent(0, TargetKind::Ost, "ost_read")
    }

    pub fn stats(&self) -> ReadAheadStats {
        self.world.mounts[0].machine.read_ahead_stats()
    }
}

#[test]
fn a_stream_asks_an_ost_once_for_each_mib() {
    let mut shared = Shared::new(8 * MIB);
    for number in 0..8 * MIB / WINDOW {
        shared.check(number * WINDOW, WINDOW);
    }
    assert_eq!(shared.reads(), 8);
    assert_eq!(shared.stats().discarded_page_count, 0, "nothing was read in vain");
}

#[test]
fn a_small_file_comes_with_its_first_read() {
    let mut shared = Shared::new(3 * MIB + 5);
    shared.check(2 * MIB, 4096);
    assert_eq!(shared.reads(), 4);
    shared.check(0, MIB);
    shared.check(3 * MIB, 4096);
    assert_eq!(shared.reads(), 4);
}

/// Its writer's lock was called back: locks do not reach to the end for a while.
#[test]
fn a_small_file_of_another_mount_comes_with_its_first_read() {
    let mut shared = Shared::new(3 * MIB + 5);
    shared.files.reverse();
    let mut check = |offset: u64, byte_count: u64| {
        let read = shared.world.read(1, shared.files[0], offset, byte_count as u32);
        let end = (offset + byte_count).min(shared.bytes.len() as u64);
        assert!(read == shared.bytes[offset as usize..end as usize]);
        shared.world.sent(1, TargetKind::Ost, "ost_read")
    };
    assert_eq!(check(0, 4096), 4);
    check(2 * MIB, MIB);
    assert_eq!(check(3 * MIB, 4096), 4);
}

#[test]
fn what_others_write_is_read_behind_what_was_read_ahead() {
    let mut shared = Shared::new(8 * MIB);
    (0..20).for_each(|number| shared.check(number * WINDOW, WINDOW));
    let before = shared.reads();
    assert!(before > 2, "more is here than was asked for");
    shared.write(1, MIB + 5 * WINDOW, 3 * MIB, 0x55);
    (20..128).for_each(|number| shared.check(number * WINDOW, WINDOW));
}

#[test]
fn what_this_mount_writes_past_its_cache_is_read_too() {
    let mut shared = Shared::new(8 * MIB);
    (0..20).for_each(|number| shared.check(number * WINDOW, WINDOW));
    shared.write(0, MIB + 5 * WINDOW, 3 * MIB, 0x55);
    (20..128).for_each(|number| shared.check(number * WINDOW, WINDOW));
}

#[test]
fn a_file_that_another_mount_makes_longer_does_not_end_where_it_did() {
    let mut shared = Shared::new(2 * MIB + 100);
    shared.check(0, 4096);
    shared.write(1, 5 * MIB, 10, 0x77);
    let node = shared.files[0].0;
    assert_eq!(shared.world.attr(0, node).size_bytes, 5 * MIB + 10);
    shared.check(2 * MIB, MIB);
    shared.check(5 * MIB, 4096);
}

#[test]
fn a_file_that_is_cut_ends_there() {
    let mut shared = Shared::new(3 * MIB);
    shared.check(0, 4096);
    let cut = SetattrCall { size_bytes: Some(MIB + 7), ..SetattrCall::default() };
    let call = Call::Setattr { node: shared.files[1].0, set: cut };
    assert!(shared.world.call(1, call).is_ok());
    shared.bytes.truncate((MIB + 7) as usize);
    shared.check(MIB, MIB);
}

#[test]
fn an_eviction_ends_what_was_read_ahead() {
    let mut shared = Shared::new(8 * MIB);
    (0..20).for_each(|number| shared.check(number * WINDOW, WINDOW));
    shared.world.evict_from_ost(0, 0);
    shared.write(1, MIB + 5 * WINDOW, 3 * MIB, 0x55);
    (20..128).for_each(|number| shared.check(number * WINDOW, WINDOW));
}

/// Windows under way keep the lock that an open for writing has to have given back. The OST evicts the mount: they end, and so must
/// that wait, though nothing here knows the lock any more.
#[test]
fn an_eviction_ends_the_wait_of_an_open_for_what_is_being_read_ahead() {
    let Shared { mut world, files: [theirs, (node, fh)], .. } = Shared::new(32 * MIB);
    let ost = base::TargetId::ost(0);
    // Nobody else has it open, so that it may be written through the cache.
    world.release(0, theirs);
    world.pass(Duration::from_secs(3));
    let read = |number| {
        let (offset_bytes, byte_count) = (number * WINDOW, WINDOW as u32);
        Call::Read { node, fh, offset_bytes, byte_count, is_direct: false }
    };
    for number in 0..20 {
        assert!(matches!(world.call(1, read(number)), Ok(Answer::Bytes(_))));
    }
    world.mounts[1].is_slow_to = Some(ost);
    let mut number = 20;
    let waiting = loop {
        let reading = world.begin(1, read(number));
        if !world.is_answered(1, reading) {
            break reading;
        }
        number += 1;
    };
    let opening = world.begin(1, Call::Open { node, flags: O_RDWR });
    assert!(!world.is_answered(1, opening), "a window is under way");
    world.evict_from_ost(1, 0);
    world.let_arrive(1);
    let Ok(Answer::Opened { fh, mode }) = world.finish(1, opening) else { panic!("it opens") };
    assert!(!mode.is_direct);
    assert!(world.mounts[1].events.contains(&Event::Evicted(ost)));
    assert!(matches!(world.finish(1, waiting), Ok(Answer::Bytes(_))));
    assert_eq!(world.write(1, (node, fh), 0, b"written"), Ok(7));
}

#[test]
fn a_restarted_ost_answers_whoever_waits_for_a_window() {
    let mut shared = Shared::new(8 * MIB);
    let ost = base::TargetId::ost(0);
    (0..20).for_each(|number| shared.check(number * WINDOW, WINDOW));
    shared.world.crash(ost);
    shared.world.start(ost);
    (20..128).for_each(|number| shared.check(number * WINDOW, WINDOW));
}

#[test]
fn what_is_around_a_page_is_refused_once_and_the_page_is_not() {
    let mut shared = Shared::new(64 * MIB).with_kernel_window();
    let (node, fh) = shared.files[0];
    let around =
        |offset_bytes| Call::Read { node, fh, offset_bytes, byte_count: WINDOW as u32, is_direct: false };
    let start = 9 * MIB;
    assert_eq!(shared.world.call(0, around(start)), Err(EAGAIN));
    assert_eq!(shared.reads(), 0);
    shared.check(start + WINDOW / 2, 4096);
    assert_eq!((shared.reads(), shared.stats().miss_page_count), (1, 1));
    shared.check(start, WINDOW);
}

#[test]
fn reads_past_the_cache_are_never_refused() {
    let mut shared = Shared::new(64 * MIB).with_kernel_window();
    let (node, fh) = shared.files[0];
    for number in 1..60 {
        let offset_bytes = number * 7919 % 63 * MIB;
        let call = Call::Read { node, fh, offset_bytes, byte_count: WINDOW as u32, is_direct: true };
        assert!(shared.world.call(0, call).is_ok(), "{offset_bytes}");
    }
}

#[test]
fn without_bounds_reads_ask_for_what_they_need() {
    let mut shared = Shared::new(2 * MIB);
    let bounds = ReadAheadBounds { byte_count: 0, ..ReadAheadBounds::default() };
    shared.world.input(0, Input::Set(Setting::ReadAhead(bounds)));
    (0..32).for_each(|number| shared.check(number * WINDOW, WINDOW));
    assert_eq!(shared.reads(), 32);
}

/// Of all files, of one, and of one that is fetched as a whole: none has more than the one before.
#[test]
fn bounds_of_reading_ahead_hold_whichever_is_set_first() {
    let all = [
        ReadAheadBound::Bytes(16 * MIB),
        ReadAheadBound::FileBytes(512 * MIB),
        ReadAheadBound::WholeBytes(32 * MIB),
    ];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut world = World::new(1, 1, 1);
        let in_force = |world: &World| {
            let bounds = world.mounts[0].machine.read_ahead_bounds();
            [bounds.byte_count, bounds.file_bytes_in_force(), bounds.whole_bytes_in_force()]
                .map(|it| it / MIB)
        };
        for bound in order {
            world.input(0, Input::Set(Setting::ReadAheadBound(all[bound])));
        }
        assert_eq!(in_force(&world), [16, 16, 16], "{order:?}");
        world.input(0, Input::Set(Setting::ReadAheadBound(ReadAheadBound::Bytes(64 * MIB))));
        assert_eq!(
            in_force(&world),
            [64, 64, 32],
            "what was asked for is in force when there is room for it"
        );
        world.input(0, Input::Set(Setting::ReadAheadBound(ReadAheadBound::FileBytes(8 * MIB))));
        assert_eq!(in_force(&world), [64, 8, 8]);
    }
}
