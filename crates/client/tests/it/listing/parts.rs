//! Directories that are read part by part: what comes before it is needed, positions, and what open directories keep.

use super::opened;
use crate::world::{TOP, World};
use base::{Duration, TargetKind};
use client::{Answer, Call, DirEntryAnswer, Input, SetattrCall};
use std::collections::BTreeSet;

/// Reads entries behind an offset; returns names, and the offset where to go on.
fn read_some(world: &mut World, mount: usize, (node, fh): (u64, u64), offset: u64) -> (Vec<String>, u64) {
    let call = Call::Readdir { node, fh, offset, byte_count: 32 << 10, is_plus: true };
    let Ok(Answer::Entries(entries)) = world.call(mount, call) else { panic!("a directory is read") };
    let last = entries.last().expect("there are more").offset;
    let name = |entry: DirEntryAnswer| String::from_utf8(entry.name).expect("text");
    (entries.into_iter().map(name).collect(), last)
}

/// Who comes back for more finds it here: the next part is asked for before this one is at its end. Who only looks in, or
/// goes elsewhere, has nothing asked for.
#[test]
fn what_follows_in_a_listing_is_asked_for_ahead() {
    let mut world = World::new(1, 1, 2);
    world.directory_of(1500);
    let node = world.lookup(1, TOP, "d").expect("it was made").node;
    let asked = |world: &World| world.sent(1, TargetKind::Mdt, "mds_readpage");
    let before = asked(&world);
    let dir = opened(&mut world, 1, node);
    let (first, at) = read_some(&mut world, 1, dir, 0);
    assert!(first.len() < 400, "a call brings a part of what was asked for");
    assert_eq!(asked(&world), before + 1);
    let (_, at) = read_some(&mut world, 1, dir, at);
    assert_eq!(asked(&world), before + 2, "the rest is on its way");
    world.pass(Duration::from_secs(1));
    let (mut names, mut at) = (0, at);
    while names < 1500 - 2 * first.len() {
        let (more, last) = read_some(&mut world, 1, dir, at);
        (names, at) = (names + more.len(), last);
    }
    assert_eq!(asked(&world), before + 2);
    // Elsewhere, with another handle.
    let dir = opened(&mut world, 1, node);
    read_some(&mut world, 1, dir, at / 2);
    assert_eq!(asked(&world), before + 3);
}

/// telldir(3) and seekdir(3), in a directory of more entries than one request brings.
#[test]
fn a_position_leads_back_to_its_place_after_the_directory_has_changed() {
    let mut world = World::new(1, 1, 2);
    world.directory_of(1500);
    let node = world.lookup(1, TOP, "d").expect("it was made").node;
    let (_, fh) = opened(&mut world, 1, node);
    let all = world.listed(1, node, fh, 0);
    assert_eq!(all.len(), 1502);
    for number in (0..1500).step_by(7) {
        let unlink = Call::Unlink { parent: node, name: format!("f{number}").into() };
        assert_eq!(world.call(number % 2, unlink), Ok(Answer::Done));
        let made = world.create((number + 1) % 2, node, &format!("g{number}"));
        world.release((number + 1) % 2, made);
    }
    let stays = |name: &String| match name.strip_prefix('f').map(str::parse::<usize>) {
        Some(Ok(number)) => number % 7 != 0,
        _ => name == "." || name == "..",
    };
    for from in [1501, 1000, 511, 512, 513, 3, 1, 0, 700] {
        let again = world.listed(1, node, fh, all[from].1);
        let names: BTreeSet<&String> = again.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), again.len(), "from {from}: each once");
        let stayed: Vec<_> = again.iter().filter(|(name, _)| stays(name)).collect();
        let expected: Vec<_> = all[from + 1..].iter().filter(|(name, _)| stays(name)).collect();
        assert_eq!(stayed, expected, "from {from}");
    }
}

/// Requests for entries, and entries that they have brought.
fn listed(world: &World) -> (u64, u64) {
    let listings = world.mounts[1].machine.stats().listings;
    (listings.request_count, listings.entry_count)
}

/// Of a directory of which all is known, nobody is asked.
#[test]
fn a_seek_in_a_directory_that_is_known_asks_for_nothing() {
    let mut world = World::new(1, 1, 2);
    world.directory_of(300);
    let node = world.lookup(1, TOP, "d").expect("it was made").node;
    world.list(1, node);
    let (_, fh) = opened(&mut world, 1, node);
    let all = world.listed(1, node, fh, 0);
    let before = listed(&world);
    for from in (2..301).rev().chain([77, 4, 290]) {
        let (names, at) = read_some(&mut world, 1, (node, fh), all[from].1);
        let expected = || all[from + 1..].iter().map(|(name, _)| name);
        assert!(names.iter().eq(expected().take(names.len())), "from {from}");
        let rest = world.listed(1, node, fh, at);
        assert!(names.iter().chain(rest.iter().map(|(name, _)| name)).eq(expected()), "from {from}");
    }
    assert_eq!(listed(&world), before);
    // Until somebody else changes it.
    let file = world.create(0, node, "new");
    world.release(0, file);
    let names = world.listed(1, node, fh, all[2].1);
    assert_eq!(names.len() - usize::from(names.iter().any(|(name, _)| name == "new")), 299);
    assert!(listed(&world).0 > before.0);
}

/// Of one that is too large to be known, a seek brings few entries, and going on brings more each time.
#[test]
fn a_seek_in_a_large_directory_asks_for_few_entries() {
    let mut world = World::new(1, 1, 2);
    world.directory_of(1500);
    let node = world.lookup(1, TOP, "d").expect("it was made").node;
    let (_, fh) = opened(&mut world, 1, node);
    let all = world.listed(1, node, fh, 0);
    let before = listed(&world);
    for (count, from) in (1..).zip([1400, 700, 300, 1200, 2]) {
        let (names, _) = read_some(&mut world, 1, (node, fh), all[from].1);
        let expected = all[from + 1..].iter().map(|(name, _)| name);
        assert!(names.iter().eq(expected.take(names.len())), "from {from}");
        assert!(listed(&world).0 <= before.0 + count && listed(&world).1 <= before.1 + 32 * count);
    }
    // Forwards, in what has come: the listing has given less than that.
    let call = Call::Readdir { node, fh, offset: all[500].1, byte_count: 200, is_plus: false };
    assert!(world.call(1, call).is_ok());
    let before = listed(&world);
    read_some(&mut world, 1, (node, fh), all[520].1);
    assert_eq!(listed(&world), before);
    let rest = world.listed(1, node, fh, all[10].1);
    assert!(rest.iter().eq(&all[11..]));
    assert!(listed(&world).0 - before.0 <= 6, "{:?} since {before:?}", listed(&world));
}

/// A process opens a directory many times, and reads the beginning each time: of 500 entries, most are left.
#[test]
fn what_open_directories_keep_is_bounded_for_all_of_them() {
    const FILES: usize = 500;
    const HANDLES: usize = 500;
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    let mut expected = BTreeSet::new();
    for number in 0..FILES {
        let name = format!("{number:0>250}");
        let file = world.create(0, dir, &name);
        world.release(0, file);
        expected.insert(name);
    }
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    world.list(1, there);
    let mut handles = Vec::new();
    for _ in 0..HANDLES {
        let Ok(Answer::Opened { fh, .. }) = world.call(1, Call::Opendir { node: there, flags: 0 }) else {
            panic!("a directory opens")
        };
        let call = Call::Readdir { node: there, fh, offset: 0, byte_count: 4096, is_plus: false };
        let Ok(Answer::Entries(entries)) = world.call(1, call) else { panic!("it is listed") };
        let names: Vec<_> = entries.iter().skip(2).map(|entry| entry.name.clone()).collect();
        handles.push((fh, names, entries.last().expect("some have room").offset));
    }
    // What is known of the directory itself goes.
    let file = world.create(0, dir, "new");
    world.release(0, file);
    assert_eq!(world.call(0, Call::Unlink { parent: dir, name: b"new".into() }), Ok(Answer::Done));
    let (latest, oldest) = (&handles[HANDLES - 1], &handles[0]);
    let mut asked = listed(&world).0;
    for ((fh, begun, offset), is_asked) in [(latest, false), (oldest, true)] {
        let rest = world.listed(1, there, *fh, *offset);
        assert_eq!(listed(&world).0 > asked, is_asked);
        asked = listed(&world).0;
        let begun = begun.iter().map(|name| String::from_utf8(name.clone()).expect("text"));
        let names: Vec<_> = begun.chain(rest.into_iter().map(|(name, _)| name)).collect();
        assert_eq!(names.len(), FILES, "none twice");
        assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
    }
}

/// A listing of a directory of `f0`, `f1` and so on that the second mount has begun.
struct Begun {
    dir: (u64, u64),
    read: Vec<String>,
    /// Names of which more have come with these than were read.
    to_come: Vec<String>,
    /// Where to go on.
    at: u64,
}

fn begun(world: &mut World, node: u64, file_count: u32) -> Begun {
    let dir = opened(world, 1, node);
    let (mut read, at) = read_some(world, 1, dir, 0);
    let (second, at) = read_some(world, 1, dir, at);
    read.extend(second);
    world.pass(Duration::from_secs(1));
    let names = (0..file_count).map(|number| format!("f{number}"));
    let to_come = names.filter(|name| !read.contains(name)).collect();
    Begun { dir, read, to_come, at }
}

/// Of what came before it was needed nothing is believed that has changed since, whoever changed it.
#[test]
fn what_was_listed_ahead_is_not_believed_after_a_change() {
    for changer in [0, 1] {
        let mut world = World::new(1, 1, 2);
        world.directory_of(1200);
        let node = world.lookup(1, TOP, "d").expect("it was made").node;
        let Begun { dir, read, to_come: gone, mut at } = begun(&mut world, node, 1200);
        let parent = if changer == 1 { node } else { world.lookup(0, TOP, "d").expect("there").node };
        for name in gone.iter().step_by(7) {
            let unlink = Call::Unlink { parent, name: name.clone().into() };
            assert_eq!(world.call(changer, unlink), Ok(Answer::Done));
        }
        let mut names = read.len();
        while names < 900 {
            let (more, last) = read_some(&mut world, 1, dir, at);
            (names, at) = (names + more.len(), last);
        }
        for (number, name) in gone.iter().enumerate() {
            assert_eq!(world.lookup(1, node, name).is_ok(), number % 7 != 0, "{name}, changed by {changer}");
        }
    }
}

/// The same of an inode that this mount has changed and knows no more: no lock goes back with its own change.
#[test]
fn what_was_listed_ahead_is_not_believed_of_what_was_changed_and_forgotten() {
    let mut world = World::new(1, 1, 2);
    world.directory_of(1200);
    let node = world.lookup(1, TOP, "d").expect("it was made").node;
    let Begun { dir, read, to_come, mut at } = begun(&mut world, node, 1200);
    let name = to_come.last().expect("there is more");
    let file = world.lookup(1, node, name).expect("it was made").node;
    let set = SetattrCall { mode: Some(0o600), ..Default::default() };
    world.call(1, Call::Setattr { node: file, set }).expect("changed");
    world.input(1, Input::Forget(vec![(file, 1)]));
    // What the kernel has forgotten is kept until so many others were.
    let other = read.first().expect("it is not empty");
    let known = world.lookup(1, node, other).expect("it was listed").node;
    world.input(1, Input::Forget(vec![(known, 2)]));
    for _ in 0..16_500 {
        let other = world.lookup(1, node, other).expect("it was listed").node;
        world.input(1, Input::Forget(vec![(other, 1)]));
    }
    let mut names = read.len();
    while names < 1200 {
        let (more, last) = read_some(&mut world, 1, dir, at);
        (names, at) = (names + more.len(), last);
    }
    let file = world.lookup(1, node, name).expect("it was made").node;
    assert_eq!(world.attr(1, file).permissions, 0o600);
}
