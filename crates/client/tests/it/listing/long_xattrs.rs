//! Values of extended attributes that are too long for a listing.

use super::ENODATA;
use crate::world::{TOP, World};
use client::Call;

/// A mount that has listed a directory has asked once for what is longer than a listing or a list brings, and not again before somebody
/// changes it.
#[test]
fn a_long_xattr_is_asked_for_once() {
    // Too long for a listing, which brings 512 bytes with each inode; and for a list, which has values up to 4,096.
    const LENGTHS: [usize; 3] = [513, 4_096, 4_097];
    const LONGEST: usize = 65_536;
    let mut world = World::new(1, 1, 2);
    let dir = world.directory_of(LENGTHS.len() + 1);
    let set = |world: &mut World, number: usize, byte_count: usize, byte: u8| {
        let node = world.lookup(0, dir, &format!("f{number}")).expect("it was made").node;
        let (name, value) = (b"user.long".to_vec(), vec![byte; byte_count]);
        world.call(0, Call::Setxattr { node, name, value, flags: 0 }).expect("set");
    };
    let byte_counts: Vec<usize> = LENGTHS.into_iter().chain([LONGEST]).collect();
    for (number, byte_count) in byte_counts.iter().enumerate() {
        set(&mut world, number, *byte_count, b'a');
    }
    let node = world.lookup(1, TOP, "d").expect("it was made").node;
    let entries = world.list(1, node);
    for (number, byte_count) in byte_counts.iter().enumerate() {
        let file = entries[&format!("f{number}")].node;
        // The list, and the value itself if it is not in that.
        let expected = if *byte_count > 4_096 { 2 } else { 1 };
        let before = world.mdt_requests(1);
        for _ in 0..3 {
            assert_eq!(world.xattr(1, file, "user.long"), Ok(vec![b'a'; *byte_count]), "{byte_count} bytes");
            assert_eq!(world.xattr(1, file, "user.none"), Err(ENODATA), "{byte_count} bytes");
        }
        assert_eq!(world.mdt_requests(1) - before, expected, "{byte_count} bytes");
    }
    let file = entries["f3"].node;
    set(&mut world, 3, LONGEST, b'b');
    assert_eq!(
        world.xattr(1, file, "user.long"),
        Ok(vec![b'b'; LONGEST]),
        "what was kept is not believed any more"
    );
    // Its own change, too.
    let (name, value) = (b"user.long".to_vec(), vec![b'c'; LONGEST]);
    world.call(1, Call::Setxattr { node: file, name, value, flags: 0 }).expect("set");
    assert_eq!(world.xattr(1, file, "user.long"), Ok(vec![b'c'; LONGEST]));
}

/// Of values that are too long for lists a mount keeps 4 MiB: those that it had first are asked for again, and are what they were.
#[test]
fn long_xattrs_are_kept_up_to_a_bound() {
    const LONGEST: usize = 65_536;
    const FILE_COUNT: usize = 70;
    let mut world = World::new(1, 1, 2);
    let dir = world.directory_of(FILE_COUNT);
    for number in 0..FILE_COUNT {
        let node = world.lookup(0, dir, &format!("f{number}")).expect("it was made").node;
        let (name, value) = (b"user.long".to_vec(), vec![number as u8; LONGEST]);
        world.call(0, Call::Setxattr { node, name, value, flags: 0 }).expect("set");
    }
    let node = world.lookup(1, TOP, "d").expect("it was made").node;
    let entries = world.list(1, node);
    let mut spent = |number: usize| {
        let before = world.mdt_requests(1);
        let file = entries[&format!("f{number}")].node;
        assert_eq!(world.xattr(1, file, "user.long"), Ok(vec![number as u8; LONGEST]));
        world.mdt_requests(1) - before
    };
    let first: u64 = (0..FILE_COUNT).map(&mut spent).sum();
    assert_eq!(first, 2 * FILE_COUNT as u64, "a list and a value of each");
    assert_eq!((FILE_COUNT - 60..FILE_COUNT).map(&mut spent).sum::<u64>(), 0, "the last ones are kept");
    assert_eq!(spent(0), 1, "the first one had no more room, and its list is there");
}

/// What is gone of a value that changes all the time does not push the next one out.
#[test]
fn a_long_xattr_that_changes_often_is_still_asked_for_once() {
    const ROUNDS: u8 = 100;
    let mut world = World::new(1, 1, 1);
    let (node, _) = world.create(0, TOP, "f");
    for round in 0..ROUNDS {
        let value = vec![round; 65_536];
        let set = Call::Setxattr { node, name: b"user.long".to_vec(), value: value.clone(), flags: 0 };
        world.call(0, set).expect("set");
        assert_eq!(world.xattr(0, node, "user.long"), Ok(value.clone()));
        let before = world.mdt_requests(0);
        assert_eq!(world.xattr(0, node, "user.long"), Ok(value));
        assert_eq!(world.mdt_requests(0) - before, 0, "round {round}");
    }
}
