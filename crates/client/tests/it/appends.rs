//! Writes at the end past the page cache, as a kernel sends them that does them in the background: cut into pieces, each at the offset that
//! its own idea of the file's size gives it, all of them on their way at once. When one fails it cuts the file back to that size.

use crate::short_writes::{UNIT, create, part};
use crate::world::{O_APPEND, O_RDWR, O_WRONLY, TOP, World, write_call};
use client::{Answer, Call, SetattrCall};

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
    let mut call = write_call(file, offset_bytes as u64, &vec![letter; byte_count]);
    if let Call::Write { flags, .. } = &mut call {
        *flags = O_WRONLY | O_APPEND | O_DIRECT;
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
    let mut call = write_call(file, UNIT, &[b'a'; 1000]);
    if let Call::Write { flags, .. } = &mut call {
        *flags = O_WRONLY | O_DIRECT;
    }
    assert_eq!(world.call(0, call), Err(ENOSPC));
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
