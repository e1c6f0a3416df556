//! Two kernels with page caches, and what they lock and drop while clients take locks from each other.

use crate::kernel::{Kernel, PAGE, Sending, Work};
use crate::world::{O_RDONLY, O_RDWR, O_WRONLY, TOP, World, write_call};
use base::{Duration, Rng};
use client::{Answer, Call, Input, Notify, NotifyResult, SetattrCall};
use wire::{ComponentHint, LayoutHint};

const UNIT: u64 = 64 << 10;

/// Of units of `UNIT` bytes, from the first OST on.
fn striped(stripe_count: u16) -> ComponentHint {
    ComponentHint {
        end_bytes: None,
        stripe_size_bytes: Some(UNIT as u32),
        stripe_count: Some(stripe_count),
        first_ost: Some(0),
        ..ComponentHint::default()
    }
}

/// Bytes that one side writes: of no round number, so that both sides meet in pages and stripes.
const PART: u64 = 100_003;
const FILE: u64 = 6 * PART;
/// Longer than any answer takes that waits for nothing but other answers, shorter than what a doubt takes.
const STALL_COUNT_MAX: u32 = 20;

struct Pair {
    world: World,
    kernels: Vec<Kernel>,
    rng: Rng,
    /// What each byte is at least: the stamp of the last write that was acknowledged.
    acknowledged: Vec<u8>,
    stamps: [u8; 2],
    /// What the bytes of a read may not be below.
    floors: Vec<Vec<Vec<u8>>>,
    left: [[u32; 3]; 2],
    reclaims: bool,
    stall_count_max: u32,
    seed: u64,
}

impl Pair {
    fn new(seed: u64, is_relaxed: bool, stripe_count: u16, reclaims: bool) -> Pair {
        let mut world = World::with_mounts(1, 4, 2, is_relaxed);
        let layout = LayoutHint::plain(striped(stripe_count));
        let call = Call::CreateStriped { parent: TOP, name: b"f".into(), mode: 0o644, umask: 0, layout };
        assert_eq!(world.call(0, call), Ok(Answer::Done));
        let mut kernels = vec![];
        for mount in 0..2 {
            let node = world.lookup(mount, TOP, "f").expect("it was made").node;
            let (writer, mode) = world.open(mount, node, O_RDWR);
            let (reader, _) = world.open(mount, node, O_RDONLY);
            assert_eq!(mode.is_direct, mount == 1 && !is_relaxed);
            if mount == 0 {
                assert_eq!(world.write(0, (node, writer), FILE - 1, &[0]), Ok(1));
            }
            let mut kernel = Kernel::new(mount, node, reader, writer, mode.is_direct);
            kernel.threads = vec![Work::Idle, Work::Idle, Work::Idle];
            kernels.push(kernel);
        }
        for mount in &mut world.mounts {
            mount.is_kernel_stuck = true;
        }
        world.is_checking = false;
        Pair {
            world,
            kernels,
            rng: Rng::new(seed),
            acknowledged: vec![0; FILE as usize],
            stamps: [0; 2],
            floors: vec![vec![vec![]; 3]; 2],
            left: [[24, 12, 12]; 2],
            reclaims,
            stall_count_max: if reclaims { 200 } else { STALL_COUNT_MAX },
            seed,
        }
    }

    fn range(&mut self, start: u64, end: u64) -> (u64, u64) {
        let at = start + self.rng.below(end - start);
        let byte_count = 1 + self.rng.below(end - at);
        // Often within a few pages, where the two meet.
        let byte_count = if self.rng.one_in(2) { byte_count.min(3 * PAGE) } else { byte_count };
        (at, at + byte_count)
    }

    /// Ends what a thread has done, and gives it something new; true when there was something to do.
    fn next(&mut self, mount: usize, thread: usize) -> bool {
        let is_idle = match &self.kernels[mount].threads[thread] {
            Work::Idle => true,
            Work::Read { start, end, found } => {
                let is_done = start + found.len() as u64 == *end;
                let floor = &self.floors[mount][thread];
                for (index, (byte, floor)) in found.iter().zip(floor).enumerate().filter(|_| is_done) {
                    let at = start + index as u64;
                    assert!(
                        byte >= floor,
                        "seed {}: mount {mount} reads {byte} at {at}, where {floor} was acknowledged",
                        self.seed
                    );
                }
                is_done
            }
            Work::Write { end, at, .. } => at == end,
        };
        if !is_idle {
            return false;
        }
        let done = std::mem::replace(&mut self.kernels[mount].threads[thread], Work::Idle);
        if let Work::Write { end, stamp, .. } = done {
            let start = self.floors[mount][0].len();
            self.acknowledged[start..end as usize].fill(stamp);
        }
        if self.left[mount][thread] == 0 {
            return false;
        }
        self.left[mount][thread] -= 1;
        let work = if thread == 0 && self.rng.one_in(2) {
            let part = self.rng.below(3) * 2 + mount as u64;
            let (start, end) = self.range(part * PART, (part + 1) * PART);
            self.stamps[mount] += 1;
            self.floors[mount][0] = vec![0; start as usize];
            Work::Write { end, at: start, stamp: self.stamps[mount], sending: Sending::Nothing }
        } else {
            let (start, end) = self.range(0, FILE);
            self.floors[mount][thread] = self.acknowledged[start as usize..end as usize].to_vec();
            Work::Read { start, end, found: vec![] }
        };
        self.kernels[mount].threads[thread] = work;
        true
    }

    fn step(&mut self) -> bool {
        let first = self.rng.below(14);
        for turn in 0..14 {
            let choice = (first + turn) % 14;
            let mount = (choice % 2) as usize;
            let kernel = &mut self.kernels[mount];
            let has_moved = match choice / 2 {
                0 => kernel.hear(&mut self.world, &mut self.rng),
                1 | 2 => kernel.drop_some(&mut self.world, &mut self.rng),
                thread @ 3..=5 => {
                    let thread = thread as usize - 3;
                    kernel.work(&mut self.world, &mut self.rng, thread) || self.next(mount, thread)
                }
                _ => self.world.carry_one(&mut self.rng),
            };
            if has_moved {
                return true;
            }
        }
        false
    }

    fn run(&mut self) {
        let mut stall_count = 0;
        loop {
            if self.reclaims && self.rng.one_in(50) {
                let mount = self.rng.below(2) as usize;
                self.kernels[mount].reclaim(&mut self.rng);
            }
            if self.step() {
                stall_count = 0;
                continue;
            }
            let is_idle = |work: &Work| matches!(work, Work::Idle);
            if self.kernels.iter().all(|kernel| kernel.threads.iter().all(is_idle)) {
                return;
            }
            stall_count += 1;
            if stall_count > self.stall_count_max {
                let threads: Vec<_> = self.kernels.iter().map(|kernel| &kernel.threads).collect();
                panic!("seed {}: the two block each other: {threads:?}", self.seed);
            }
            self.world.pass_a_little();
        }
    }
}

#[test]
fn two_mounts_with_caches_never_block_each_other_and_read_nothing_old() {
    for seed in 0..4 {
        Pair::new(seed, true, 4, false).run();
    }
}

#[test]
fn nor_when_one_of_them_writes_past_its_cache() {
    for seed in 0..4 {
        Pair::new(seed, false, 4, false).run();
    }
}

#[test]
fn nor_within_one_object() {
    for seed in 0..4 {
        Pair::new(seed, true, 1, false).run();
    }
}

#[test]
fn nor_when_kernels_are_short_of_memory() {
    for seed in 0..4 {
        Pair::new(seed, true, 4, true).run();
    }
}

/// A kernel holds what was stored into a mapping back until a truncate(2) is answered, and its pages with it. The truncate
/// waits for a lock that another mount's call holds, and that call waits for the lock over those pages: of all calls that
/// wait, it is the one that can let go.
#[test]
fn a_call_that_waits_for_a_mapping_lets_a_truncate_have_what_it_holds() {
    truncate_against(|file| write_call(file, 0, &[3; 2 * UNIT as usize]));
    truncate_against(|(node, fh)| {
        let byte_count = 2 * UNIT as u32;
        Call::Read { node, fh, offset_bytes: 0, byte_count, is_direct: false }
    });
}

fn truncate_against(call_over_both: impl Fn((u64, u64)) -> Call) {
    let mut world = World::with_mounts(1, 2, 2, true);
    let layout = LayoutHint::plain(striped(2));
    let call = Call::CreateStriped { parent: TOP, name: b"f".into(), mode: 0o644, umask: 0, layout };
    assert_eq!(world.call(0, call), Ok(Answer::Done));
    let files: Vec<(u64, u64)> = (0..2)
        .map(|mount| {
            let node = world.lookup(mount, TOP, "f").expect("it was made").node;
            (node, world.open(mount, node, O_RDWR).0)
        })
        .collect();
    // The mapped page lies in the second stripe. The other mount has the first one.
    let page = (files[0].0, UNIT);
    assert_eq!(world.write(0, files[0], page.1, &[1; PAGE as usize]), Ok(PAGE));
    assert_eq!(world.write(1, files[1], 0, &[2; PAGE as usize]), Ok(PAGE));
    world.mounts[0].is_kernel_stuck = true;
    let set = SetattrCall { fh: Some(files[0].1), size_bytes: Some(100), ..Default::default() };
    let cutting = world.prepare(0, Call::Setattr { node: files[0].0, set });
    let other = world.prepare(1, call_over_both(files[1]));
    world.run();
    let is_about_page = |notify: &Notify| {
        matches!(notify, Notify::InvalInode { node, offset_bytes, byte_count }
            if *node == page.0 && (*offset_bytes..offset_bytes + byte_count).contains(&(page.1 as i64)))
    };
    let events: Vec<usize> = world.mounts.iter().map(|mount| mount.events.len()).collect();
    let mut was_held_back = false;
    for _ in 0..600 {
        let is_cut = world.is_answered(0, cutting);
        for (id, notify) in std::mem::take(&mut world.mounts[0].stuck) {
            if is_about_page(&notify) && !is_cut {
                was_held_back = true;
                world.mounts[0].stuck.push((id, notify));
            } else {
                world.input(0, Input::Notified(id, NotifyResult::Ok));
            }
        }
        world.pass_a_little();
    }
    assert!(was_held_back, "the two never met");
    for (mount, known) in events.into_iter().enumerate() {
        assert_eq!(world.mounts[mount].events[known..], [], "mount {mount}");
    }
    assert!(matches!(world.finish(0, cutting), Ok(Answer::Attr(_))));
    // It was in the way first, and ended last.
    match world.finish(1, other) {
        Ok(Answer::Bytes(bytes)) => assert_eq!(bytes.to_vec(), [2; 100]),
        Ok(Answer::Written(count)) => {
            assert_eq!(count, 2 * UNIT);
            assert_eq!(world.read(1, files[1], 0, 2 * UNIT as u32), [3; 2 * UNIT as usize]);
        }
        other => panic!("{other:?}"),
    }
}

/// Two mounts write a small file anew in turn, and read it. As it cuts the file the kernel drops its pages by itself,
/// and here they still count as filled. What is written then through its cache has a page locked that is empty, which
/// whoever wants the lock waits for, as long as a doubt takes. So who only writes such a file passes by the pages.
#[test]
fn a_file_that_two_mounts_write_anew_in_turn_stalls_nobody_again() {
    const ROUND_COUNT: u32 = 12;
    let mut world = World::new(1, 1, 2);
    let (node, fh) = world.create(0, TOP, "f");
    assert_eq!(world.write(0, (node, fh), 0, b"state 0"), Ok(7));
    world.release(0, (node, fh));
    assert_eq!(world.lookup(1, TOP, "f").expect("it was made").node, node);
    let mut stall_count = 0;
    for round in 1..=ROUND_COUNT {
        let (mount, other) = (round as usize % 2, (round as usize + 1) % 2);
        // Closes of readers are told later.
        world.pass(Duration::from_secs(4));
        let reader = (node, world.open(mount, node, O_RDONLY).0);
        let (fh, mode) = world.open(mount, node, O_WRONLY);
        world.read(mount, reader, 0, PAGE as u32);
        let set = SetattrCall { fh: Some(fh), size_bytes: Some(0), ..Default::default() };
        assert!(world.call(mount, Call::Setattr { node, set }).is_ok());
        let watcher = (node, world.open(other, node, O_RDONLY).0);
        world.mounts[mount].is_kernel_stuck = true;
        let call =
            Call::Read { node, fh: watcher.1, offset_bytes: 0, byte_count: PAGE as u32, is_direct: false };
        let reading = world.begin(other, call);
        let text = format!("state {round}");
        let writing = world.begin(mount, write_call((node, fh), 0, text.as_bytes()));
        let mut turn_count = 0;
        while !world.is_answered(mount, writing) || !world.is_answered(other, reading) {
            if mode.is_direct || world.is_answered(mount, writing) {
                world.mounts[mount].is_kernel_stuck = false;
                world.unlock_page(mount);
            }
            world.pass_a_little();
            turn_count += 1;
        }
        stall_count += u32::from(turn_count > STALL_COUNT_MAX);
        world.mounts[mount].is_kernel_stuck = false;
        world.unlock_page(mount);
        assert_eq!(world.finish(mount, writing), Ok(Answer::Written(text.len() as u64)));
        world.finish(other, reading).expect("it is read");
        assert_eq!(world.read(other, watcher, 0, PAGE as u32), text.as_bytes());
        world.release(mount, (node, fh));
        world.release(mount, reader);
        world.release(other, watcher);
    }
    // Each mount learns with the first that the other one wants the file.
    assert!(stall_count <= 2, "{stall_count} of {ROUND_COUNT}");
}

/// Pages go with their locks. Those that the kernel drops by itself when it opens a file would still count as filled.
#[test]
fn an_open_past_the_cache_has_the_kernel_drop_nothing() {
    let mut world = World::new(1, 1, 2);
    let (node, fh) = world.create(0, TOP, "f");
    assert_eq!(world.write(0, (node, fh), 0, b"state"), Ok(5));
    assert_eq!(world.lookup(1, TOP, "f").expect("it was made").node, node);
    let reader = (node, world.open(1, node, O_RDONLY).0);
    assert_eq!(world.read(1, reader, 0, PAGE as u32), b"state");
    let (_, mode) = world.open(1, node, O_RDWR);
    assert!(mode.is_direct && mode.keeps_cache);
}
