//! Requests that wait for other mounts keep none from its place by which this mount gives back what they wait for.

use crate::world::{O_RDONLY, O_RDWR, TOP, World, write_call};
use base::limits::PLAIN_ASIDE_MAX;
use base::{Duration, Layout, TargetId, TargetKind};
use client::{Answer, Call, Event, Input, Setting, TargetSetting};
use wire::{ComponentHint, LayoutHint};

const O_DIRECT: u32 = 0o40000;
const OST: TargetId = TargetId::ost(0);
const MDT: TargetId = TargetId::mdt(0);

fn allow_one_in_flight(world: &mut World, target: TargetId) {
    for mount in [0, 1] {
        world.input(mount, Input::Set(Setting::Target(target, TargetSetting::PlainInFlight(1))));
    }
}

fn read_call((node, fh): (u64, u64)) -> Call {
    Call::Read { node, fh, offset_bytes: 0, byte_count: 4096, is_direct: true }
}

/// A file that both mounts have open past their page caches, and have written: handles of the first and of the second. The last to
/// have its lock is `holder`, who has read it.
fn shared(world: &mut World, name: &str, holder: usize) -> [(u64, u64); 2] {
    let first = world.create_with(0, TOP, name, O_RDWR | O_DIRECT);
    let node = world.lookup(1, TOP, name).expect("it was made").node;
    let second = (node, world.open(1, node, O_RDWR | O_DIRECT).0);
    let files = [first, second];
    for mount in [holder, 1 - holder, holder, 1 - holder] {
        assert_eq!(world.write(mount, files[mount], 0, &[mount as u8; 4096]), Ok(4096));
    }
    assert_eq!(world.read(holder, files[holder], 0, 4096), [1 - holder as u8; 4096]);
    files
}

fn assert_nobody_was_evicted(world: &World) {
    for mount in &world.mounts {
        assert!(!mount.events.iter().any(|event| matches!(event, Event::Evicted(_))), "{:?}", mount.events);
    }
}

/// Each writes what the other one has just begun to read.
#[test]
fn two_mounts_with_one_place_each_do_not_stop_each_other() {
    let mut world = World::new(1, 1, 2);
    let (f, g) = (shared(&mut world, "f", 0), shared(&mut world, "g", 1));
    allow_one_in_flight(&mut world, OST);
    let calls = [
        (0, write_call(g[0], 0, &[5; 4096])),
        (1, write_call(f[1], 0, &[6; 4096])),
        (0, read_call(f[0])),
        (1, read_call(g[1])),
    ];
    let begun = calls.map(|(mount, call)| (mount, world.prepare(mount, call)));
    world.run();
    let answers = begun.map(|(mount, call)| world.finish(mount, call));
    assert_nobody_was_evicted(&world);
    assert_eq!(answers[..2], [Ok(Answer::Written(4096)), Ok(Answer::Written(4096))]);
    for (answer, before) in answers[2..].iter().zip([1, 0]) {
        assert_eq!(*answer, Ok(Answer::Bytes(vec![before; 4096].into())), "from before the write");
    }
    assert_eq!(world.read(0, f[0], 0, 4096), [6; 4096]);
    assert_eq!(world.read(1, g[1], 0, 4096), [5; 4096]);
}

/// An open for reading waits there for the lock of who does not write any more.
#[test]
fn two_mounts_do_not_stop_each_other_over_data_on_an_mdt() {
    let mut world = World::new(1, 1, 2);
    let on_mdt =
        ComponentHint { end_bytes: Some(64 << 10), osts: vec![Layout::ON_MDT], ..ComponentHint::default() };
    let layout = LayoutHint { components: vec![on_mdt, ComponentHint::default()] };
    assert_eq!(world.call(0, Call::Setstripe { node: TOP, layout }), Ok(Answer::Done));
    let mut files = Vec::new();
    for (mount, name) in [(0, "f"), (1, "g")] {
        let file = world.create(mount, TOP, name);
        assert_eq!(world.write(mount, file, 0, &[7; 4096]), Ok(4096));
        world.release(mount, file);
        world.pass(Duration::from_secs(3));
        let reader = (file.0, world.open(mount, file.0, O_RDONLY | O_DIRECT).0);
        assert_eq!(world.read(mount, reader, 0, 4096), [7; 4096]);
        let other = world.lookup(1 - mount, TOP, name).expect("it was made").node;
        files.push((reader, other));
    }
    allow_one_in_flight(&mut world, MDT);
    let [(f, f_of_other), (g, g_of_other)] = files[..] else { panic!("there are two") };
    let open = |node| Call::Open { node, flags: O_RDONLY };
    let calls = [(0, open(g_of_other)), (1, open(f_of_other)), (0, read_call(f)), (1, read_call(g))];
    let begun = calls.map(|(mount, call)| (mount, world.prepare(mount, call)));
    world.run();
    let answers = begun.map(|(mount, call)| world.finish(mount, call));
    assert_nobody_was_evicted(&world);
    for answer in &answers[..2] {
        assert!(matches!(answer, Ok(Answer::Opened { .. })), "{answer:?}");
    }
    for answer in &answers[2..] {
        assert_eq!(*answer, Ok(Answer::Bytes(vec![7; 4096].into())));
    }
}

/// All places for lock requests are taken by those that wait for a mount which is not there.
#[test]
fn who_waits_for_a_place_lets_go_of_what_others_want() {
    let mut world = World::new(1, 2, 3);
    world.is_checking = false;
    let one_stripe = |ost| {
        let stripe =
            ComponentHint { first_ost: Some(ost), stripe_count: Some(1), ..ComponentHint::default() };
        LayoutHint { components: vec![stripe] }
    };
    let held = world.mkdir(1, TOP, "held");
    assert_eq!(world.call(1, Call::Setstripe { node: held, layout: one_stripe(0) }), Ok(Answer::Done));
    let there = world.lookup(0, TOP, "held").expect("it was made").node;
    let mut waiting_for = Vec::new();
    for number in 0..PLAIN_ASIDE_MAX {
        let name = format!("f{number}");
        let file = world.create_with(1, held, &name, O_RDWR | O_DIRECT);
        assert_eq!(world.write(1, file, 0, &[7; 4096]), Ok(4096));
        let node = world.lookup(0, there, &name).expect("it was made").node;
        waiting_for.push((node, world.open(0, node, O_RDONLY | O_DIRECT).0));
    }
    let wide = world.mkdir(0, TOP, "wide");
    let stripes = ComponentHint {
        first_ost: Some(1),
        stripe_count: Some(2),
        stripe_size_bytes: Some(64 << 10),
        ..ComponentHint::default()
    };
    let layout = LayoutHint { components: vec![stripes] };
    assert_eq!(world.call(0, Call::Setstripe { node: wide, layout }), Ok(Answer::Done));
    let striped = world.create_with(0, wide, "s", O_RDWR | O_DIRECT);
    let node = world.lookup(2, TOP, "wide").expect("it was made").node;
    let node = world.lookup(2, node, "s").expect("it was made").node;
    let other = (node, world.open(2, node, O_RDWR | O_DIRECT).0);
    world.mounts[1].unreachable = Some(OST);
    let before = world.sent(0, TargetKind::Ost, "ldlm_enqueue");
    let reads: Vec<u64> = waiting_for.iter().map(|file| world.begin(0, read_call(*file))).collect();
    let writing = world.begin(0, write_call(striped, 0, &[8; 128 << 10]));
    world.pass(Duration::from_secs(1));
    assert!(reads.iter().chain([&writing]).all(|call| !world.is_answered(0, *call)));
    assert_eq!(world.ost_lock_count(1, 0), 1, "it has the first of two locks in hand");
    // Before the mount that is not there can be evicted.
    let wanting = world.begin(2, write_call(other, 0, &[9; 4096]));
    world.pass(Duration::from_secs(10));
    assert!(world.is_answered(2, wanting));
    assert_eq!(world.finish(2, wanting), Ok(Answer::Written(4096)));
    assert!(!world.is_answered(0, writing));
    let answered = world.sent(0, TargetKind::Ost, "ldlm_enqueue") - before;
    assert_eq!(answered, 1, "for the first stripe, and nothing else");
    world.mounts[1].unreachable = None;
    for call in reads {
        assert_eq!(world.finish(0, call), Ok(Answer::Bytes(vec![7; 4096].into())));
    }
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(128 << 10)));
}
