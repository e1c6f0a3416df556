//! Writes that are answered before an OST has them.

use crate::world::{Loss, O_RDONLY, O_RDWR, TOP, World, write_call};
use base::{Duration, TargetId, TargetKind};
use client::{Answer, Call, Event, Input, Setting, TargetSetting};
use wire::{ComponentHint, LayoutHint};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const O_DIRECT: u32 = 0o40000;
const PIECE: usize = 1 << 20;

fn writes(world: &World, mount: usize) -> u64 {
    let requests = world.requests(mount, TargetKind::Ost);
    requests.iter().filter(|(kind, _)| *kind == "ost_write").map(|(_, count)| *count).sum()
}

/// A file whose writer may keep writes back: it has been written twice, and has 20 bytes.
fn written_twice(world: &mut World, mount: usize, name: &str) -> (u64, u64) {
    let file = world.create(mount, TOP, name);
    assert_eq!(world.write(mount, file, 0, &[1; 10]), Ok(10));
    assert_eq!(world.write(mount, file, 10, &[2; 10]), Ok(10));
    file
}

fn fsync(file: (u64, u64)) -> Call {
    Call::Fsync { node: file.0, fh: file.1, data_only: false }
}

#[test]
fn small_writes_reach_the_ost_together() {
    let mut world = World::new(1, 1, 2);
    let file = written_twice(&mut world, 0, "f");
    let before = writes(&world, 0);
    for number in 0..1000_u64 {
        assert_eq!(world.write(0, file, 20 + number * 100, &[number as u8; 100]), Ok(100));
    }
    assert_eq!(writes(&world, 0), before, "nothing is sent while nobody asks");
    world.pass(Duration::from_secs(3));
    assert_eq!(writes(&world, 0), before + 1, "what gets old is sent");
    let there = world.lookup(1, TOP, "f").expect("it was made").node;
    assert_eq!(world.attr(1, there).size_bytes, 100_020);
    let (fh, _) = world.open(1, there, O_RDONLY);
    assert_eq!(world.read(1, (there, fh), 20 + 99_900, 200), [231; 100]);
    assert_eq!(world.read(0, file, 15, 10), [2, 2, 2, 2, 2, 0, 0, 0, 0, 0]);
}

#[test]
fn a_full_piece_is_sent_at_once_and_pieces_end_at_its_multiples() {
    let mut world = World::new(1, 1, 1);
    let file = written_twice(&mut world, 0, "f");
    let before = writes(&world, 0);
    world.write(0, file, 20, &vec![3; 2 * PIECE - 20 + 5]).expect("there is room");
    assert_eq!(writes(&world, 0), before + 1, "the one in the middle is full");
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    assert_eq!(writes(&world, 0), before + 3);
    assert_eq!(world.attr(0, file.0).size_bytes, 2 * PIECE as u64 + 5);
}

/// Who is told the size, opens the file or reads it has the data written first.
#[test]
fn other_mounts_see_what_is_kept_back() {
    for is_asked_by in ["stat", "open", "lookup"] {
        let mut world = World::new(1, 2, 2);
        let file = written_twice(&mut world, 0, "f");
        let there = world.lookup(1, TOP, "f").expect("it was made").node;
        // The lookup has taken the lock back; a second later the writer asks for it again.
        world.pass(Duration::from_secs(2));
        world.write(0, file, 20, &[3; 10]).expect("there is room");
        world.write(0, file, 30, &[4; 70_000]).expect("there is room");
        let before = writes(&world, 0);
        assert_eq!(world.write(0, file, 500_000, &[5; 10]), Ok(10));
        assert_eq!(writes(&world, 0), before, "{is_asked_by}: kept back");
        let size = match is_asked_by {
            "stat" => world.attr(1, there).size_bytes,
            "open" => {
                let (fh, _) = world.open(1, there, O_RDWR);
                assert_eq!(world.read(1, (there, fh), 499_999, 100), [0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5]);
                // Now that somebody else has it open nothing is kept back.
                let before = writes(&world, 0);
                world.pass(Duration::from_secs(2));
                world.write(0, file, 0, &[6; 10]).expect("there is room");
                world.write(0, file, 0, &[7; 10]).expect("there is room");
                assert_eq!(writes(&world, 0), before + 2);
                assert_eq!(world.read(1, (there, fh), 5, 5), [7; 5]);
                500_010
            }
            _ => {
                let entry = world.lookup(1, TOP, "f").expect("it is there");
                entry.attr.expect("it comes along").size_bytes
            }
        };
        assert_eq!(size, 500_010, "{is_asked_by}");
    }
}

/// What is written over data on their way arrives after them.
#[test]
fn data_do_not_overtake_each_other() {
    let mut world = World::new(1, 1, 1);
    let file = written_twice(&mut world, 0, "f");
    world.write(0, file, 0, &[3; 20]).expect("kept back");
    world.mounts[0].is_late = Some(TargetId::ost(0));
    let first = world.begin(0, fsync(file));
    let sent = writes_on_the_way(&world);
    assert_eq!(world.write(0, file, 5, &[4; 5]), Ok(5));
    let second = world.begin(0, fsync(file));
    assert_eq!(writes_on_the_way(&world), sent, "the second waits for the answer to the first");
    world.let_come(0);
    assert_eq!(world.finish(0, first), Ok(Answer::Done));
    assert_eq!(world.finish(0, second), Ok(Answer::Done));
    assert_eq!(world.read(0, file, 0, 20)[3..12], [3, 3, 4, 4, 4, 4, 4, 3, 3]);
}

/// Bytes that the mount has for the OST, sent or not, in requests that it was not answered.
fn writes_on_the_way(world: &World) -> usize {
    world.mounts[0].machine.target_status(TargetId::ost(0)).expect("it is known").modifying_in_flight
}

#[test]
fn a_read_past_what_an_object_has_ends_where_the_file_does() {
    let mut world = World::new(1, 1, 1);
    let file = written_twice(&mut world, 0, "f");
    world.write(0, file, 5000, &[3; 10]).expect("kept back");
    assert_eq!(world.read(0, file, 15, 10), [2, 2, 2, 2, 2, 0, 0, 0, 0, 0]);
    assert_eq!(world.read(0, file, 4999, 100).len(), 11);
}

#[test]
fn a_truncate_comes_after_what_was_written_before_it() {
    let mut world = World::new(1, 2, 1);
    let file = written_twice(&mut world, 0, "f");
    world.write(0, file, 100, &[3; 200_000]).expect("kept back");
    let set = client::SetattrCall { size_bytes: Some(50), fh: Some(file.1), ..Default::default() };
    world.call(0, Call::Setattr { node: file.0, set }).expect("it is ours");
    assert_eq!(world.attr(0, file.0).size_bytes, 50);
    world.write(0, file, 60, &[4; 1]).expect("kept back");
    world.pass(Duration::from_secs(3));
    assert_eq!(world.attr(0, file.0).size_bytes, 61);
    assert_eq!(world.read(0, file, 45, 100)[..15], [0; 15]);
}

#[test]
fn close_tells_of_data_that_were_lost_after_their_write_was_answered() {
    let mut world = World::new(1, 1, 1);
    let file = written_twice(&mut world, 0, "f");
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    world.write(0, file, 0, &[3; 10]).expect("kept back");
    world.evict_from_ost(0, 0);
    world.pass(Duration::from_secs(7));
    assert!(world.mounts[0].events.contains(&Event::Evicted(TargetId::ost(0))));
    let flush = || Call::Flush { node: file.0, fh: file.1, lock_owner: 1 };
    assert_eq!(world.call(0, flush()), Err(EIO));
    assert_eq!(world.call(0, flush()), Ok(Answer::Done), "it is told once");
    assert_eq!(world.write(0, file, 0, &[5; 10]), Ok(10), "the mount goes on");
    assert_eq!(world.read(0, file, 0, 20), [[5; 10], [2; 10]].concat());
}

/// A child that ends closes its copies of descriptors, and so does a process that is killed; nobody hears of what these are told.
#[test]
fn a_close_takes_nothing_of_what_fsync_has_to_tell() {
    let mut world = World::new(1, 1, 1);
    for is_closed in [false, true] {
        let file = written_twice(&mut world, 0, if is_closed { "closed" } else { "open" });
        assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
        world.write(0, file, 0, &[3; 10]).expect("kept back");
        world.evict_from_ost(0, 0);
        world.pass(Duration::from_secs(7));
        let flush = || Call::Flush { node: file.0, fh: file.1, lock_owner: 1 };
        assert_eq!(world.call(0, flush()), Err(EIO));
        let mut asking = file;
        if is_closed {
            world.release(0, file);
            asking.1 = world.open(0, file.0, O_RDWR).0;
        }
        assert_eq!(world.call(0, fsync(asking)), Err(EIO));
        assert_eq!(world.call(0, fsync(asking)), Ok(Answer::Done), "it is told once");
        let flush = Call::Flush { node: asking.0, fh: asking.1, lock_owner: 1 };
        assert_eq!(world.call(0, flush), Ok(Answer::Done), "fsync has told it");
    }
}

/// A full device refuses writes; what was answered before finds room.
#[test]
fn what_was_answered_finds_room_on_a_full_device() {
    let mut world = World::new(1, 1, 1);
    let file = written_twice(&mut world, 0, "f");
    world.write(0, file, 20, &[3; 50_000]).expect("kept back");
    world.set_low(0, true);
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    assert_eq!(world.write(0, file, 100_000, &[4; 10]), Err(ENOSPC), "nothing more is kept back");
    world.set_low(0, false);
    assert_eq!(world.write(0, file, 100_000, &[4; 10]), Ok(10));
    assert_eq!(world.read(0, file, 50_015, 10), [3, 3, 3, 3, 3, 0, 0, 0, 0, 0]);
}

/// An OST may have no inode for the first bytes of an object, whatever room it has.
#[test]
fn nothing_more_is_kept_back_for_an_ost_that_had_no_room_for_what_was() {
    let mut world = World::new(1, 1, 1);
    let file = written_twice(&mut world, 0, "f");
    world.write(0, file, 100_000, &[3; 4096]).expect("kept back");
    world.set_full(0, true);
    assert_eq!(world.call(0, fsync(file)), Err(ENOSPC));
    assert_eq!(world.write(0, file, 100_000, &[4; 10]), Err(ENOSPC), "who writes is told");
    world.set_full(0, false);
    assert_eq!(world.write(0, file, 100_000, &[4; 10]), Ok(10));
    let before = writes(&world, 0);
    world.write(0, file, 100_010, &[5; 10]).expect("kept back");
    assert_eq!(writes(&world, 0), before, "there is room again");
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
}

/// Stripes of 64 KiB on two OSTs, the second of which is full: a write from the first into the second ends at the border, the
/// file too, and only what begins in the second is refused.
#[test]
fn a_write_into_an_ost_that_is_full_ends_in_front_of_it() {
    let mut world = World::new(1, 2, 2);
    let component =
        ComponentHint { stripe_size_bytes: Some(64 << 10), osts: vec![0, 1], ..ComponentHint::default() };
    let layout = LayoutHint::plain(component);
    assert_eq!(world.call(0, Call::Setstripe { node: TOP, layout }), Ok(Answer::Done));
    let (node, fh) = world.create_with(0, TOP, "f", O_RDWR | O_DIRECT);
    world.set_low(1, true);
    let write = |world: &mut World, offset: u64, byte_count: usize| {
        world.write(0, (node, fh), offset, &vec![7; byte_count])
    };
    world.lookup(1, TOP, "f").expect("it was made");
    assert_eq!(write(&mut world, 60_000, 150_000), Ok(5536), "up to the border");
    assert_eq!(world.attr(1, node).size_bytes, 65_536);
    assert_eq!(write(&mut world, 65_536, 100_000), Err(ENOSPC));
    assert_eq!(world.attr(1, node).size_bytes, 65_536);
    world.set_low(1, false);
    assert_eq!(write(&mut world, 65_536, 100_000), Ok(100_000));
    assert_eq!(world.attr(1, node).size_bytes, 165_536);
}

/// While its OST is away a client cannot write what it has kept back. It says that it lives, and is not given up.
#[test]
fn who_cannot_write_its_data_is_not_given_up_by_the_mdt() {
    let mut world = World::new(1, 1, 2);
    let file = written_twice(&mut world, 0, "f");
    world.write(0, file, 20, &[3; 10]).expect("kept back");
    world.crash(TargetId::ost(0));
    let looking = world.begin(1, Call::Lookup { parent: TOP, name: b"f".into() });
    world.pass(Duration::from_secs(200));
    assert!(!world.is_answered(1, looking), "its size is not known before the data are there");
    world.start(TargetId::ost(0));
    world.pass(Duration::from_secs(60));
    let Ok(Answer::Entry(entry)) = world.finish(1, looking) else { panic!("it is there") };
    assert_eq!(entry.attr.expect("it comes along").size_bytes, 30);
    assert!(!world.mounts[0].events.iter().any(|event| matches!(event, Event::Evicted(_))));
}

#[test]
fn writers_wait_when_as_much_is_kept_back_as_may_be() {
    let mut world = World::new(1, 1, 1);
    let file = written_twice(&mut world, 0, "f");
    let ost = TargetId::ost(0);
    let byte_count = |world: &World| {
        let status = world.mounts[0].machine.target_status(ost).expect("it is known");
        (status.dirty_bytes, status.grant_bytes.min(status.dirty_bytes_max))
    };
    world.mounts[0].unreachable = Some(ost);
    let mut waiting = None;
    for number in 0..1000_u64 {
        let id = world.begin(0, write_call(file, 20 + number * 10_000, &[3; 10_000]));
        let (kept, most) = byte_count(&world);
        assert!(kept <= most, "{kept} of {most}");
        if !world.is_answered(0, id) {
            waiting = Some(id);
            break;
        }
    }
    let waiting = waiting.expect("there is an end to it");
    world.mounts[0].unreachable = None;
    assert_eq!(world.finish(0, waiting), Ok(Answer::Written(10_000)));
    // An operator switches it off.
    world.input(0, client::Input::Set(Setting::Target(ost, TargetSetting::DirtyBytes(0))));
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    let before = writes(&world, 0);
    world.write(0, file, 0, &[4; 10]).expect("written");
    assert_eq!((writes(&world, 0), byte_count(&world).0), (before + 1, 0));
}

/// An object has an end, and who writes behind it is told so.
#[test]
fn nothing_is_kept_back_behind_the_end_of_what_an_object_may_have() {
    const EFBIG: i32 = 27;
    let mut world = World::new(1, 1, 1);
    let file = written_twice(&mut world, 0, "f");
    let end = base::limits::OBJECT_BYTES_MAX;
    assert_eq!(world.write(0, file, end - 4096, &[3; 4096]), Ok(4096));
    assert_eq!(world.write(0, file, end, &[4; 4096]), Err(EFBIG));
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    assert_eq!(world.read(0, file, end - 10, 100), [3; 10]);
}

/// Who may read only can be asked for fsync(2): each descriptor that was open is told once.
#[test]
fn a_loss_is_told_to_each_descriptor_once() {
    let mut world = World::new(1, 1, 1);
    let file = written_twice(&mut world, 0, "f");
    let reader = (file.0, world.open(0, file.0, O_RDONLY).0);
    let closed = (file.0, world.open(0, file.0, O_RDONLY).0);
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    world.write(0, file, 0, &[3; 10]).expect("kept back");
    world.evict_from_ost(0, 0);
    world.pass(Duration::from_secs(7));
    for of in [reader, file] {
        assert_eq!(world.call(0, fsync(of)), Err(EIO));
        assert_eq!(world.call(0, fsync(of)), Ok(Answer::Done));
    }
    let flush = Call::Flush { node: closed.0, fh: closed.1, lock_owner: 1 };
    assert_eq!(world.call(0, flush), Ok(Answer::Done), "close(2) tells only who has written");
    let later = (file.0, world.open(0, file.0, O_RDONLY).0);
    assert_eq!(world.call(0, fsync(later)), Ok(Answer::Done), "it was not open then");
}

/// A lock that its OST does not know is not used again.
#[test]
fn a_lock_that_was_lost_is_asked_for_again() {
    let mut world = World::new(1, 1, 1);
    let file = written_twice(&mut world, 0, "f");
    world.write(0, file, 0, &[3; 10]).expect("kept back");
    let locks_asked = |world: &World| {
        let requests = world.requests(0, TargetKind::Ost);
        requests.iter().filter(|(kind, _)| *kind == "ldlm_enqueue").map(|(_, count)| *count).sum::<u64>()
    };
    let before = locks_asked(&world);
    world.mounts[0].has_wrong_locks = true;
    assert_eq!(world.call(0, fsync(file)), Err(EIO));
    world.mounts[0].has_wrong_locks = false;
    world.write(0, file, 0, &[4; 10]).expect("kept back");
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    assert_eq!(locks_asked(&world), before + 1);
}

#[test]
fn what_is_kept_back_reaches_an_ost_that_is_switched_off() {
    let mut world = World::new(1, 1, 1);
    let file = written_twice(&mut world, 0, "f");
    world.write(0, file, 20, &[3; 10]).expect("kept back");
    let set_active = |world: &mut World, is_active| {
        world.input(
            0,
            client::Input::Set(Setting::Target(TargetId::ost(0), TargetSetting::Active(is_active))),
        );
    };
    set_active(&mut world, false);
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    assert_eq!(world.write(0, file, 0, &[4; 10]), Err(EIO), "nothing more is kept back");
    set_active(&mut world, true);
    assert_eq!(world.read(0, file, 20, 20), [3; 10]);
}

/// When the MDT was not heard for long others may be told of the file as if nobody wrote it: nothing is here then. That is soon where a
/// lease has ended too.
#[test]
fn nothing_is_kept_back_for_a_file_whose_mdt_is_about_to_be_silent() {
    for has_lease in [false, true] {
        let mut world = World::new(1, 1, 1);
        let file = written_twice(&mut world, 0, "f");
        if has_lease {
            let now = world.now.time;
            world.input(0, Input::Lease(now));
        }
        world.mounts[0].unreachable = Some(TargetId::mdt(0));
        let mut most = 0;
        let mut is_silent = false;
        for number in 0..300_u64 {
            let id = world.begin(0, write_call(file, 20 + number * 10, &[3; 10]));
            most = most.max(kept(&world, 0).0);
            is_silent = !world.is_answered(0, id);
            if is_silent {
                break;
            }
            world.pass(Duration::from_millis(100));
        }
        assert!(is_silent && most > 0, "with a lease: {has_lease}");
        assert_eq!(kept(&world, 0).0, 0, "with a lease: {has_lease}");
    }
}

/// While its data are on their way the row of a file says too little, also to its writer.
#[test]
fn an_open_believes_no_size_while_data_are_kept() {
    let mut world = World::new(1, 1, 2);
    let file = written_twice(&mut world, 0, "f");
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    world.write(0, file, 20, &[3; 10]).expect("kept back");
    // The close waits for them, and the MDT gives the mount up meanwhile.
    world.mounts[0].loses = Some(Loss::Writes);
    world.release(0, file);
    world.mounts[0].unreachable = Some(TargetId::mdt(0));
    let there = world.lookup(1, TOP, "f").expect("it was made").node;
    world.pass(Duration::from_secs(60));
    let (fh, _) = world.open(1, there, O_RDWR);
    world.release(1, (there, fh));
    world.pass(Duration::from_secs(10));
    assert_eq!((world.attr(1, there).is_size_known, world.attr(1, there).size_bytes), (false, 20));
    world.mounts[0].unreachable = None;
    world.pass(Duration::from_secs(20));
    assert!(world.mounts[0].events.contains(&Event::Evicted(TargetId::mdt(0))));
    world.open(0, file.0, O_RDWR);
    let asking = world.begin(0, Call::Getattr { node: file.0, fh: None });
    world.mounts[0].loses = None;
    let Ok(Answer::Attr(answer)) = world.finish(0, asking) else { panic!("it is there") };
    assert_eq!(answer.attr.size_bytes, 30);
}

/// What keeps nothing back holds up nobody.
#[test]
fn the_lock_goes_back_after_the_last_close() {
    let mut world = World::new(1, 1, 2);
    let cancels = |world: &World| {
        let requests = world.requests(0, TargetKind::Mdt);
        requests.iter().filter(|(kind, _)| *kind == "ldlm_cancel").map(|(_, count)| *count).sum::<u64>()
    };
    let files: Vec<_> = (0..20).map(|number| written_twice(&mut world, 0, &format!("f{number}"))).collect();
    let before = cancels(&world);
    for file in &files {
        world.release(0, *file);
    }
    let (fh, _) = world.open(0, files[0].0, O_RDWR);
    world.pass(Duration::from_secs(5));
    assert_eq!(cancels(&world), before + 1, "all of them together");
    let there = world.lookup(1, TOP, "f7").expect("it was made").node;
    world.mounts[0].is_cut_off = true;
    let opening = world.begin(1, Call::Open { node: there, flags: O_RDONLY });
    assert!(world.is_answered(1, opening));
    world.mounts[0].is_cut_off = false;
    // Who has it open again still has the lock.
    let before = writes(&world, 0);
    world.write(0, (files[0].0, fh), 0, &[3; 10]).expect("kept back");
    assert_eq!(writes(&world, 0), before);
}

/// Units of 64 KiB until that many of them, all on one OST.
fn on_ost(end_units: Option<u64>, ost: u16) -> ComponentHint {
    ComponentHint {
        end_bytes: end_units.map(|units| units * UNIT),
        stripe_size_bytes: Some(UNIT as u32),
        stripe_count: Some(1),
        first_ost: Some(ost),
        ..ComponentHint::default()
    }
}

const UNIT: u64 = 64 << 10;

/// A file whose writer may keep writes back.
fn laid_out(world: &mut World, name: &str, components: Vec<ComponentHint>) -> (u64, u64) {
    let layout = LayoutHint { components };
    let call = Call::CreateStriped { parent: TOP, name: name.into(), mode: 0o644, umask: 0, layout };
    assert_eq!(world.call(0, call), Ok(Answer::Done));
    let node = world.lookup(0, TOP, name).expect("it was made").node;
    let file = (node, world.open(0, node, O_RDWR).0);
    for _ in 0..2 {
        assert_eq!(world.write(0, file, 0, &[1; 10]), Ok(10));
        assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    }
    file
}

/// What is kept for an OST, and how much may be.
fn kept(world: &World, ost: u16) -> (u64, u64) {
    let status = world.mounts[0].machine.target_status(TargetId::ost(ost)).expect("it is known");
    (status.dirty_bytes, status.dirty_bytes_max.min(status.grant_bytes))
}

fn set_dirty(world: &mut World, ost: u16, byte_count: u64) {
    let setting = TargetSetting::DirtyBytes(byte_count);
    world.input(0, client::Input::Set(Setting::Target(TargetId::ost(ost), setting)));
}

/// Each of them would find room alone.
#[test]
fn pieces_of_one_write_find_room_together_or_are_not_kept_back() {
    let mut world = World::new(1, 1, 1);
    let file = laid_out(&mut world, "f", vec![on_ost(Some(16), 0), on_ost(None, 0)]);
    set_dirty(&mut world, 0, 1 << 20);
    let before = writes(&world, 0);
    assert_eq!(world.write(0, file, 6 * UNIT, &[2; 9 * UNIT as usize]), Ok(9 * UNIT));
    assert_eq!((writes(&world, 0), kept(&world, 0).0), (before, 9 * UNIT), "one that has room is");
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    let before = writes(&world, 0);
    assert_eq!(world.write(0, file, 6 * UNIT, &[3; 20 * UNIT as usize]), Ok(20 * UNIT));
    let (kept, most) = kept(&world, 0);
    assert!(kept <= most, "{kept} of {most}");
    assert_eq!(writes(&world, 0), before + 2);
}

/// The lock on the second OST comes late, and another file's writer has been there meanwhile.
#[test]
fn room_that_was_found_before_a_lock_is_looked_for_again_under_it() {
    let mut world = World::new(1, 2, 1);
    let file = laid_out(&mut world, "f", vec![on_ost(Some(1), 0), on_ost(None, 1)]);
    let other = laid_out(&mut world, "g", vec![on_ost(None, 1)]);
    set_dirty(&mut world, 1, 1 << 20);
    world.mounts[0].is_late = Some(TargetId::ost(1));
    let first = world.begin(0, write_call(file, UNIT, &[2; 10 * UNIT as usize]));
    assert!(!world.is_answered(0, first), "it waits for its lock");
    assert_eq!(world.write(0, other, 0, &[3; 10 * UNIT as usize]), Ok(10 * UNIT));
    assert_eq!(kept(&world, 1).0, 10 * UNIT);
    let late = world.take_late(0);
    for frame in late {
        world.input(0, client::Input::Frame(frame));
        let (kept, most) = kept(&world, 1);
        assert!(kept <= most, "{kept} of {most}");
    }
    assert_eq!(world.finish(0, first), Ok(Answer::Written(10 * UNIT)));
    let (kept, most) = kept(&world, 1);
    assert!(kept <= most, "{kept} of {most}");
}

/// A byte takes a block of the device.
#[test]
fn grants_are_of_blocks() {
    let mut world = World::new(1, 1, 1);
    let file = written_twice(&mut world, 0, "f");
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    for number in 1..=10 {
        assert_eq!(world.write(0, file, number * 10_000, &[3]), Ok(1));
    }
    assert_eq!(kept(&world, 0).0, 10 * 4096);
    assert_eq!(world.write(0, file, 10_001, &[4; 100]), Ok(100));
    assert_eq!(kept(&world, 0).0, 10 * 4096, "in a block that one of them takes already");
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    assert_eq!(kept(&world, 0).0, 0);
}
