//! Writes at the end past the page cache, as a kernel sends them that does them in the background: cut into pieces, each at the offset that
//! its own idea of the file's size gives it, all of them on their way at once. When one fails it cuts the file back to that size.

use crate::short_writes::{UNIT, create, part};
use crate::world::{O_APPEND, O_RDWR, O_WRONLY, TOP, World, write_call};
use base::{Duration, TargetId};
use client::{Answer, Call, SetattrCall};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const O_DIRECT: u32 = 0o40000;
/// As long as the kernel makes them.
const PIECE: usize = 1 << 20;

/// Opens a file for appends past the cache. -> Node and handle.
fn open(world: &mut World, mount: usize, name: &str) -> (u64, u64) {
    let node = world.lookup(mount, TOP, name).expect("it was made").node;
    (node, world.open(mount, node, O_RDWR | O_APPEND | O_DIRECT).0)
}

/// A piece of an append that the kernel believes to go to `offset_bytes`.
fn piece(file: (u64, u64), offset_bytes: usize, letter: u8, byte_count: usize) -> Call {
    past_cache(file, offset_bytes as u64, &vec![letter; byte_count], O_APPEND)
}

/// A write to a place of its own.
fn direct(file: (u64, u64), offset_bytes: u64, data: &[u8]) -> Call {
    past_cache(file, offset_bytes, data, 0)
}

fn past_cache(file: (u64, u64), offset_bytes: u64, data: &[u8], more_flags: u32) -> Call {
    let mut call = write_call(file, offset_bytes, data);
    if let Call::Write { flags, .. } = &mut call {
        *flags = O_WRONLY | O_DIRECT | more_flags;
    }
    call
}

/// What the kernel sends after a write that made the file longer and has failed; ftruncate(2) looks the same.
fn cut((node, fh): (u64, u64), size_bytes: usize) -> Call {
    let set = SetattrCall { fh: Some(fh), size_bytes: Some(size_bytes as u64), ..SetattrCall::default() };
    Call::Setattr { node, set }
}

fn size_told(answer: Result<Answer, i32>) -> u64 {
    match answer {
        Ok(Answer::Attr(answer)) => answer.attr.size_bytes,
        other => panic!("{other:?}"),
    }
}

/// Letters of what the file holds, each with the length of its run.
fn runs(world: &mut World, mount: usize, name: &str) -> Vec<(u8, usize)> {
    let node = world.lookup(mount, TOP, name).expect("it was made").node;
    let (fh, _) = world.open(mount, node, 0);
    let mut bytes = vec![];
    loop {
        let read = world.read(mount, (node, fh), bytes.len() as u64, PIECE as u32);
        if read.is_empty() {
            break;
        }
        bytes.extend(read);
    }
    world.release(mount, (node, fh));
    bytes.chunk_by(|one, next| one == next).map(|run| (run[0], run.len())).collect()
}

/// Two mounts have the file open for appends; it holds ten bytes, which both kernels know.
fn shared(world: &mut World) -> ((u64, u64), (u64, u64)) {
    let made = world.create(0, TOP, "f");
    assert_eq!(world.write(0, made, 0, &[b'x'; 10]), Ok(10));
    world.release(0, made);
    let files = (open(world, 0, "f"), open(world, 1, "f"));
    assert_eq!(world.attr(0, files.0.0).size_bytes, 10);
    assert_eq!(world.attr(1, files.1.0).size_bytes, 10);
    files
}

#[test]
fn pieces_of_one_append_lie_in_order_whichever_comes_first() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
        let mut world = World::new(1, 1, 2);
        let (file, _) = shared(&mut world);
        let begin = |number: usize| piece(file, 10 + number * PIECE, b'a' + number as u8, PIECE);
        let calls: Vec<u64> = order.iter().map(|number| world.prepare(0, begin(*number))).collect();
        for call in calls {
            assert_eq!(world.finish(0, call), Ok(Answer::Written(PIECE as u64)), "{order:?}");
        }
        let expected = [(b'x', 10), (b'a', PIECE), (b'b', PIECE), (b'c', PIECE)];
        assert_eq!(runs(&mut world, 1, "f"), expected, "{order:?}");
    }
}

/// The kernel may find the first piece answered before it has sent the second.
#[test]
fn nobody_else_appends_between_two_pieces() {
    let mut world = World::new(1, 1, 2);
    let (file, other) = shared(&mut world);
    assert_eq!(world.call(0, piece(file, 10, b'a', PIECE)), Ok(Answer::Written(PIECE as u64)));
    let elsewhere = world.begin(1, piece(other, 10, b'o', 5));
    assert!(!world.is_answered(1, elsewhere), "the end of the file is the first writer's a moment longer");
    let second = world.begin(0, piece(file, 10 + PIECE, b'b', 7));
    assert_eq!(world.finish(0, second), Ok(Answer::Written(7)));
    assert_eq!(world.finish(1, elsewhere), Ok(Answer::Written(5)));
    let expected = [(b'x', 10), (b'a', PIECE), (b'b', 7), (b'o', 5)];
    assert_eq!(runs(&mut world, 1, "f"), expected);
}

/// The kernel of the writer does not know that somebody else has appended: its offsets lie in what he wrote.
#[test]
fn pieces_at_the_offsets_of_an_older_size_overwrite_nothing() {
    let mut world = World::new(1, 1, 2);
    let (file, other) = shared(&mut world);
    assert_eq!(world.call(1, piece(other, 10, b'o', 1000)), Ok(Answer::Written(1000)));
    let second = world.prepare(0, piece(file, 10 + PIECE, b'b', 300));
    let first = world.prepare(0, piece(file, 10, b'a', PIECE));
    assert_eq!(world.finish(0, first), Ok(Answer::Written(PIECE as u64)));
    assert_eq!(world.finish(0, second), Ok(Answer::Written(300)));
    let expected = [(b'x', 10), (b'o', 1000), (b'a', PIECE), (b'b', 300)];
    assert_eq!(runs(&mut world, 1, "f"), expected);
}

/// The first unit on OST0000, the second on OST0001, and so on.
fn striped(world: &mut World) -> (u64, u64) {
    let made = create(world, "f", vec![part(None, 0, 2)]);
    world.release(0, made);
    let file = open(world, 0, "f");
    assert_eq!(world.attr(0, file.0).size_bytes, 0);
    file
}

/// Each write is executed between the bytes of the read and its question for the end, which then lay behind them, try after try.
#[test]
fn a_direct_read_beside_steady_writes_at_the_end_has_no_zeros() {
    for carried_count in 3..10 {
        let mut world = World::new(1, 2, 1);
        let file = striped(&mut world);
        let (node, fh) = file;
        let mut size_bytes = 0;
        let mut write = |world: &mut World| {
            let call = direct(file, size_bytes, &[b'w'; 100]);
            size_bytes += 100;
            world.prepare(0, call)
        };
        let mut writes = vec![write(&mut world)];
        world.run();
        let call = Call::Read { node, fh, offset_bytes: 0, byte_count: 2 * UNIT as u32, is_direct: true };
        let reading = world.prepare(0, call);
        while !world.is_answered(0, reading) {
            writes.push(write(&mut world));
            assert!(writes.len() < 200, "{carried_count}: so many writes put it off");
            for _ in 0..carried_count {
                world.carry_one_in_order();
            }
        }
        let answer = world.finish(0, reading);
        let Ok(Answer::Bytes(bytes)) = answer else { panic!("{answer:?} to a read") };
        assert!(bytes.len() >= 100, "{carried_count}: {}", bytes.len());
        let zero_at = bytes.iter().position(|byte| *byte != b'w');
        assert_eq!(zero_at, None, "{carried_count}: of {}", bytes.len());
        for write in writes {
            assert_eq!(world.finish(0, write), Ok(Answer::Written(100)));
        }
    }
}

/// What is behind the cut is not told as zeros by a read that had asked for the end before it. The other OST, which has none of what is
/// read, hears of the cut last.
#[test]
fn a_direct_read_that_a_cut_passes_has_no_zeros() {
    for write_count in 1..8 {
        for carried_count in 0..30 {
            let mut world = World::new(1, 2, 1);
            let file = striped(&mut world);
            let (node, fh) = file;
            let written = |offset_bytes| direct(file, offset_bytes, &[b'w'; 100]);
            // Everything is locked here.
            assert_eq!(world.call(0, written(UNIT)), Ok(Answer::Written(100)));
            assert_eq!(size_told(world.call(0, cut(file, 0))), 0);
            assert_eq!(world.call(0, written(0)), Ok(Answer::Written(100)));
            let call = Call::Read { node, fh, offset_bytes: 0, byte_count: UNIT as u32, is_direct: true };
            let reading = world.prepare(0, call);
            let mut changes = vec![];
            for number in 1..=write_count {
                changes.push(world.prepare(0, written(number * 100)));
                for _ in 0..3 {
                    world.carry_one_in_order();
                }
            }
            for _ in 0..carried_count {
                world.carry_one_in_order();
            }
            world.mounts[0].is_slow_to = Some(TargetId::ost(1));
            changes.push(world.prepare(0, cut(file, 50)));
            world.run();
            let is_early = world.is_answered(0, reading);
            world.let_arrive(0);
            let answer = world.finish(0, reading);
            let Ok(Answer::Bytes(bytes)) = answer else { panic!("{answer:?} to a read") };
            let what = format!("{write_count} {carried_count} {is_early}: {}", bytes.len());
            assert!(bytes.len() >= 50, "{what}");
            assert_eq!(bytes.iter().position(|byte| *byte != b'w'), None, "{what}");
            for change in changes {
                assert!(world.finish(0, change).is_ok(), "{what}");
            }
        }
    }
}

/// The second would find room.
#[test]
fn no_piece_is_written_behind_one_that_finds_no_room() {
    let mut world = World::new(1, 2, 2);
    let file = striped(&mut world);
    let unit = UNIT as usize;
    world.set_low(0, true);
    let second = world.prepare(0, piece(file, unit, b'b', unit));
    let first = world.prepare(0, piece(file, 0, b'a', unit));
    assert_eq!(world.finish(0, first), Err(ENOSPC));
    assert_eq!(world.finish(0, second), Err(ENOSPC), "it would lie at the place of the first");
    assert_eq!(size_told(world.call(0, cut(file, 0))), 0);
    // What comes later is no part of that.
    world.set_low(0, false);
    assert_eq!(world.call(0, piece(file, 0, b'c', 10)), Ok(Answer::Written(10)));
    assert_eq!(runs(&mut world, 1, "f"), [(b'c', 10)]);
}

#[test]
fn an_append_that_fails_takes_nothing_of_what_others_have_appended() {
    let mut world = World::new(1, 2, 2);
    let file = striped(&mut world);
    let other = open(&mut world, 1, "f");
    assert_eq!(world.call(1, piece(other, 0, b'o', 100)), Ok(Answer::Written(100)));
    world.set_low(0, true);
    world.set_low(1, true);
    // The first kernel still takes the file for empty, and cuts it to that.
    assert_eq!(world.call(0, piece(file, 0, b'a', 2 * UNIT as usize)), Err(ENOSPC));
    assert_eq!(size_told(world.call(0, cut(file, 0))), 100);
    assert_eq!(runs(&mut world, 1, "f"), [(b'o', 100)]);
}

/// Its first piece was written, and somebody else had appended before.
#[test]
fn what_a_failed_append_has_written_goes_and_nothing_else() {
    let mut world = World::new(1, 2, 2);
    let file = striped(&mut world);
    let other = open(&mut world, 1, "f");
    let unit = UNIT as usize;
    assert_eq!(world.call(1, piece(other, 0, b'o', unit)), Ok(Answer::Written(UNIT)));
    world.set_low(0, true);
    let first = world.prepare(0, piece(file, 0, b'a', unit));
    let second = world.prepare(0, piece(file, unit, b'b', unit));
    assert_eq!(world.finish(0, first), Ok(Answer::Written(UNIT)));
    assert_eq!(world.finish(0, second), Err(ENOSPC));
    assert_eq!(size_told(world.call(0, cut(file, 0))), UNIT);
    assert_eq!(runs(&mut world, 1, "f"), [(b'o', unit)]);
    // The same, and somebody else appends before the kernel has cut: behind what was written.
    let first = world.prepare(0, piece(file, unit, b'a', unit));
    let second = world.prepare(0, piece(file, 2 * unit, b'b', unit));
    assert_eq!(world.finish(0, first), Ok(Answer::Written(UNIT)));
    assert_eq!(world.finish(0, second), Err(ENOSPC));
    world.set_low(0, false);
    assert_eq!(world.call(1, piece(other, unit, b'p', 10)), Ok(Answer::Written(10)));
    assert_eq!(size_told(world.call(0, cut(file, unit))), 2 * UNIT + 10);
    assert_eq!(runs(&mut world, 1, "f"), [(b'o', unit), (b'a', unit), (b'p', 10)]);
}

/// A write at an offset that makes the file longer, of a kernel that does not know how long it is.
#[test]
fn a_write_behind_the_end_that_fails_takes_nothing_of_what_others_have_written() {
    let mut world = World::new(1, 2, 2);
    let file = striped(&mut world);
    let other = open(&mut world, 1, "f");
    assert_eq!(world.call(1, piece(other, 0, b'o', 100)), Ok(Answer::Written(100)));
    world.set_low(0, true);
    world.set_low(1, true);
    assert_eq!(world.call(0, direct(file, UNIT, &[b'a'; 1000])), Err(ENOSPC));
    assert_eq!(size_told(world.call(0, cut(file, 0))), 100);
}

/// ftruncate(2) looks as the kernel's cut does.
#[test]
fn who_cuts_a_file_after_a_failed_append_cuts_it() {
    let mut world = World::new(1, 2, 1);
    let file = striped(&mut world);
    let unit = UNIT as usize;
    assert_eq!(world.call(0, piece(file, 0, b'o', unit)), Ok(Answer::Written(UNIT)));
    world.set_low(1, true);
    assert_eq!(world.call(0, piece(file, unit, b'a', 100)), Err(ENOSPC));
    assert_eq!(size_told(world.call(0, cut(file, 7))), 7, "the kernel has taken it for longer");
    world.set_low(1, false);
    assert_eq!(world.call(0, piece(file, 7, b'a', unit)), Ok(Answer::Written(UNIT)));
    assert_eq!(
        size_told(world.call(0, cut(file, 7))),
        7,
        "what comes after another write is no cut of the kernel's"
    );
    assert_eq!(size_told(world.call(0, cut(file, 0))), 0);
}

/// It was taken for the first, for the one in front of it had not come in time, and the kernel was answered.
#[test]
fn a_piece_that_comes_after_the_one_behind_it_was_answered_is_not_written_behind_that() {
    let mut world = World::new(1, 1, 2);
    let (file, _) = shared(&mut world);
    for byte_count in [PIECE, 100] {
        let second = world.prepare(0, piece(file, 10 + PIECE, b'b', byte_count));
        assert_eq!(world.finish(0, second), Ok(Answer::Written(byte_count as u64)));
        world.pass(Duration::from_millis(100));
        assert_eq!(world.call(0, piece(file, 10, b'a', PIECE)), Err(EIO), "they would be swapped");
        assert_eq!(size_told(world.call(0, cut(file, 10))), 10);
    }
    // A write that comes after a cut is another one.
    assert_eq!(world.call(0, piece(file, 10, b'c', PIECE)), Ok(Answer::Written(PIECE as u64)));
    assert_eq!(runs(&mut world, 1, "f"), [(b'x', 10), (b'c', PIECE)]);
}

#[test]
fn a_piece_that_comes_after_a_later_one_has_waited_for_it_in_vain_fails() {
    let mut world = World::new(1, 1, 2);
    let (file, _) = shared(&mut world);
    assert_eq!(world.call(0, piece(file, 10, b'a', PIECE)), Ok(Answer::Written(PIECE as u64)));
    let third = world.prepare(0, piece(file, 10 + 2 * PIECE, b'c', PIECE));
    assert_eq!(world.finish(0, third), Ok(Answer::Written(PIECE as u64)));
    assert_eq!(world.call(0, piece(file, 10 + PIECE, b'b', PIECE)), Err(EIO));
    // Long after that it is a write of its own.
    world.pass(Duration::from_millis(10_000));
    assert_eq!(world.call(0, piece(file, 10 + PIECE, b'd', 10)), Ok(Answer::Written(10)));
}

/// Appends pieces, one each step, until one is held up by an MDT that was not heard for long. -> How long that took.
fn append_until_held_up(world: &mut World, file: (u64, u64), wait: Duration, step: Duration) -> u64 {
    let byte_count = 128 << 10;
    world.mounts[0].unreachable = Some(TargetId::mdt(0));
    world.pass(wait);
    for number in 0..1000 {
        let call = world.begin(0, piece(file, 10 + number * byte_count, b'a', byte_count));
        if !world.is_answered(0, call) {
            return number as u64;
        }
        world.pass(step);
    }
    panic!("the MDT is never missed");
}

#[test]
fn nobody_waits_for_the_locks_of_an_append_that_waits_for_the_mdt() {
    let step = Duration::from_millis(100);
    let mut world = World::new(1, 1, 2);
    let (file, _) = shared(&mut world);
    let steps = append_until_held_up(&mut world, file, Duration::ZERO, step);
    // Once more, with the pieces so close to each other that the locks are kept in between.
    let mut world = World::new(1, 1, 2);
    let (file, other) = shared(&mut world);
    let wait = Duration::from_millis(100 * (steps - 1) - 5);
    let answered_count = append_until_held_up(&mut world, file, wait, Duration::from_millis(10));
    assert!(answered_count > 0, "the one before was answered a moment ago");
    let (node, fh) = other;
    let read = world.begin(1, Call::Read { node, fh, offset_bytes: 0, byte_count: 10, is_direct: true });
    assert!(world.is_answered(1, read), "the MDT may be silent for long");
}

/// It made nothing longer, so the kernel sends no cut of its own.
#[test]
fn who_cuts_a_file_after_an_overwrite_that_failed_cuts_it() {
    let mut world = World::new(1, 2, 2);
    let file = striped(&mut world);
    let other = open(&mut world, 1, "f");
    assert_eq!(world.call(1, piece(other, 0, b'o', PIECE)), Ok(Answer::Written(PIECE as u64)));
    assert_eq!(world.attr(0, file.0).size_bytes, PIECE as u64);
    world.set_exhausted(0);
    assert_eq!(world.call(0, direct(file, 0, &[b'a'; 4096])), Err(ENOSPC));
    assert_eq!(size_told(world.call(0, cut(file, 0))), 0);
}

/// Each of them has the kernel lock the inode, as it does from a write to the cut that follows.
#[test]
fn what_comes_after_anything_else_is_no_cut_of_the_kernels() {
    for number in 0..3 {
        let mut world = World::new(1, 2, 2);
        let file = striped(&mut world);
        let (node, fh) = file;
        let other = open(&mut world, 1, "f");
        assert_eq!(world.call(1, piece(other, 0, b'o', 100)), Ok(Answer::Written(100)));
        world.set_low(0, true);
        world.set_low(1, true);
        assert_eq!(world.call(0, piece(file, 0, b'a', 2 * UNIT as usize)), Err(ENOSPC));
        world.set_low(0, false);
        world.set_low(1, false);
        let (result, expected) = match number {
            0 => (world.call(0, write_call(file, 0, b"bb")), Ok(Answer::Written(2))),
            1 => {
                let call = Call::Fallocate { node, fh, offset_bytes: 0, byte_count: 2, mode: 1 };
                (world.call(0, call), Ok(Answer::Done))
            }
            _ => {
                let call = Call::CopyFileRange {
                    node,
                    fh,
                    offset_bytes: 50,
                    to_node: node,
                    to_fh: fh,
                    to_offset_bytes: 0,
                    byte_count: 2,
                };
                (world.call(0, call), Ok(Answer::Written(2)))
            }
        };
        assert_eq!(result, expected);
        let size_bytes = if number == 1 { 0 } else { 2 };
        assert_eq!(size_told(world.call(0, cut(file, size_bytes))), size_bytes as u64);
    }
}
