//! Directories of more entries than a mount keeps inodes: who reads all names first and then looks at each one, in any order, asks for few.

use crate::world::{TOP, World};
use base::{Duration, Rng, TargetId, TargetKind};
use client::{Answer, Call, DirEntryAnswer, Input, SetattrCall};
use std::collections::BTreeMap;

const ENOENT: i32 = 2;
/// A mount keeps 16,384 inodes that nothing refers to.
const BIG: usize = 20_000;

/// Short enough for the bound on all of them, or so long that not all have room.
fn name(number: usize, byte_count: usize) -> String {
    format!("{number:0byte_count$}")
}

impl World {
    /// A directory, made by the first mount, with entries of all kinds that `ls` knows.
    fn big_directory(&mut self, entry_count: usize, name_bytes: usize) -> u64 {
        self.is_checking = false;
        let dir = self.mkdir(0, TOP, "d");
        for number in 0..entry_count {
            let name = name(number, name_bytes).into_bytes();
            let call = match number % 20 {
                3 => Call::Symlink { parent: dir, name, target: b"somewhere".to_vec() },
                4 => Call::Mkdir { parent: dir, name, mode: 0o755, umask: 0 },
                5 => Call::Mknod { parent: dir, name, mode: 0o010_644, umask: 0, rdev: 0 },
                _ => Call::Mknod { parent: dir, name, mode: 0o100_644, rdev: 0, umask: 0 },
            };
            assert!(self.call(0, call).is_ok());
        }
        dir
    }

    /// All entries as READDIR gives them, without attributes, in its order.
    fn names_of(&mut self, mount: usize, node: u64) -> Vec<DirEntryAnswer> {
        let Ok(Answer::Opened { fh, .. }) = self.call(mount, Call::Opendir { node, flags: 0 }) else {
            panic!("a directory opens")
        };
        let (mut all, mut offset) = (Vec::new(), 0);
        loop {
            let call = Call::Readdir { node, fh, offset, byte_count: 32 << 10, is_plus: false };
            let Ok(Answer::Entries(entries)) = self.call(mount, call) else { panic!("it is listed") };
            let Some(last) = entries.last() else { break };
            offset = last.offset;
            all.extend(entries);
        }
        assert_eq!(self.call(mount, Call::Releasedir { node, fh }), Ok(Answer::Done));
        all.retain(|entry| entry.name != b"." && entry.name != b"..");
        all
    }

    fn sent_to_mdts(&self, mount: usize) -> u64 {
        self.requests(mount, TargetKind::Mdt).into_iter().map(|(_, count)| count).sum()
    }

    /// Looks at each one, as lstat(2) has the kernel do, and at its ACL.
    fn look_at_each(&mut self, mount: usize, parent: u64, entries: &[DirEntryAnswer]) {
        for entry in entries {
            let name = String::from_utf8(entry.name.clone()).expect("text");
            let found = self.lookup(mount, parent, &name).expect("it was listed");
            assert_eq!(found.node, entry.node);
            let attr = found.attr.expect("attributes come along");
            assert_eq!(attr.file_type, entry.file_type);
            let acl = Call::Getxattr { node: found.node, name: b"system.posix_acl_access".to_vec() };
            assert!(self.call(mount, acl).is_err());
        }
    }

    fn permissions(&mut self, mount: usize, parent: u64, name: &str) -> u32 {
        self.lookup(mount, parent, name).expect("it is there").attr.expect("attributes").permissions
    }

    fn chmod(&mut self, mount: usize, parent: u64, name: &str, mode: u32) -> u64 {
        let node = self.lookup(mount, parent, name).expect("it is there").node;
        let set = SetattrCall { mode: Some(mode), ..Default::default() };
        self.call(mount, Call::Setattr { node, set }).expect("changed");
        node
    }
}

fn shuffled<T>(mut all: Vec<T>) -> Vec<T> {
    let mut rng = Rng::new(7);
    for last in (1..all.len()).rev() {
        all.swap(last, rng.below(last as u64 + 1) as usize);
    }
    all
}

/// The order of listings, of inode numbers (du(1), find(1), fts(3)), of names, and none.
#[test]
fn who_reads_all_names_first_asks_for_few_in_any_order() {
    const COUNT: usize = 40_000;
    let mut world = World::new(1, 1, 5);
    let dir = world.big_directory(COUNT, 10);
    for mount in 1..5 {
        let node = world.lookup(mount, TOP, "d").expect("it was made").node;
        assert_eq!(node, dir);
        let before = world.sent_to_mdts(mount);
        let mut entries = world.names_of(mount, node);
        assert_eq!(entries.len(), COUNT);
        match mount {
            1 => {}
            2 => entries.sort_by_key(|entry| entry.node),
            3 => entries.sort_by(|one, other| one.name.cmp(&other.name)),
            _ => entries = shuffled(entries),
        }
        world.look_at_each(mount, node, &entries);
        let spent = world.sent_to_mdts(mount) - before;
        assert!(spent < COUNT as u64 / 100, "order {mount}: {spent} requests for {COUNT} entries");
    }
}

/// More than has room: in the order of listings those that follow come with the one that is asked for. In no order that is given
/// up, and costs little.
#[test]
fn entries_that_have_no_room_are_brought_again_by_thousands() {
    const COUNT: usize = 40_000;
    let mut world = World::new(1, 1, 3);
    let dir = world.big_directory(COUNT, 250);
    let before = world.sent_to_mdts(1);
    world.lookup(1, TOP, "d").expect("it was made");
    let entries = world.names_of(1, dir);
    let listed = world.sent_to_mdts(1) - before;
    world.look_at_each(1, dir, &entries);
    let spent = world.sent_to_mdts(1) - before;
    assert!(spent > listed + 10, "they had room: {listed} requests for the names, {spent} in all");
    assert!(spent < COUNT as u64 / 100, "{spent} requests for {COUNT} entries");

    world.lookup(2, TOP, "d").expect("it was made");
    let entries = shuffled(world.names_of(2, dir));
    let brought = |world: &World| world.mounts[2].machine.stats().listings.entry_count;
    let before = (world.sent_to_mdts(2), brought(&world));
    world.look_at_each(2, dir, &entries);
    let (spent, more) = (world.sent_to_mdts(2) - before.0, brought(&world) - before.1);
    assert!(spent <= COUNT as u64 * 6 / 5, "{spent} requests for {COUNT} entries");
    assert!(more <= COUNT as u64 * 5, "{more} entries came along with {COUNT} lookups");
}

/// Nobody lists it: many names that are looked up one by one have the others brought, in whatever order they come.
#[test]
fn who_looks_up_many_names_of_a_large_directory_has_the_others_brought() {
    const COUNT: usize = 10_000;
    let mut world = World::new(1, 1, 3);
    let dir = world.big_directory(COUNT, 10);
    world.lookup(1, TOP, "d").expect("it was made");
    let entries = world.names_of(1, dir);
    for (mount, entries) in [(2, shuffled(entries.clone())), (0, entries)] {
        world.lookup(mount, TOP, "d").expect("it was made");
        for entry in &entries {
            world.input(mount, Input::Forget(vec![(entry.node, u64::MAX)]));
        }
        let before = world.sent_to_mdts(mount);
        world.look_at_each(mount, dir, &entries);
        let spent = world.sent_to_mdts(mount) - before;
        assert!(spent < COUNT as u64 / 4, "mount {mount}: {spent} requests for {COUNT} names");
    }
}

/// A directory without room: the first part tells how many entries there are, and each lookup pays for one more.
#[test]
fn who_looks_up_many_names_of_a_directory_without_room_has_few_others_brought() {
    const COUNT: usize = 22_000;
    let mut world = World::new(1, 1, 3);
    let dir = world.big_directory(COUNT, 250);
    world.lookup(1, TOP, "d").expect("it was made");
    world.lookup(2, TOP, "d").expect("it was made");
    let entries = shuffled(world.names_of(1, dir));
    let some = entries.get(..2000).expect("there are more");
    world.look_at_each(2, dir, some);
    let brought = world.mounts[2].machine.stats().listings.entry_count;
    assert!(brought > 0 && brought < 3500, "{brought} entries came along with {} lookups", some.len());
}

/// Names that are not there, as of who makes files, have nothing brought; and while another mount makes files in it, who looks up names takes the
/// lock on all of them once.
#[test]
fn who_makes_names_in_a_large_directory_has_none_brought_and_is_waited_for_once() {
    let mut world = World::new(1, 1, 2);
    let dir = world.big_directory(3000, 10);
    world.lookup(1, TOP, "d").expect("it was made");
    let before = world.mounts[1].machine.stats().listings.request_count;
    for number in 0..200 {
        let file = world.create(1, dir, &format!("new{number}"));
        world.release(1, file);
        let is_there = world.lookup(1, dir, &format!("none{number}")).is_ok();
        assert!(!is_there);
    }
    assert!(world.mounts[1].machine.stats().listings.request_count <= before + 1, "once as a whole");

    let before = world.mounts[1].machine.stats().listings.request_count;
    for number in 0..300 {
        let regular = 20 * (number / 2) + 7 + number % 2;
        assert!(world.lookup(1, dir, &name(regular, 10)).is_ok());
        let file = world.create(0, dir, &format!("other{number}"));
        world.release(0, file);
    }
    let asked = world.mounts[1].machine.stats().listings.request_count - before;
    assert!((1..=2).contains(&asked), "{asked} parts of listings");
}

/// Files that are written have no attributes in a listing: to list them again for each one that is looked up would bring nothing.
#[test]
fn who_looks_at_files_that_are_written_lists_their_directory_once() {
    const COUNT: usize = 1000;
    let mut world = World::new(1, 1, 2);
    world.is_checking = false;
    let dir = world.mkdir(0, TOP, "d");
    let open: Vec<_> = (0..COUNT).map(|number| world.create(0, dir, &name(number, 4))).collect();
    world.lookup(1, TOP, "d").expect("it was made");
    world.names_of(1, dir);
    let asked = |world: &World| world.mounts[1].machine.stats().listings.request_count;
    let before = asked(&world);
    for number in 0..COUNT {
        assert!(world.lookup(1, dir, &name(number, 4)).is_ok());
    }
    assert!(asked(&world) <= before + 2, "{} listings for {COUNT} names", asked(&world) - before);
    open.into_iter().for_each(|file| world.release(0, file));
}

/// Names that nobody looks at are no inodes here.
#[test]
fn names_alone_leave_no_inodes() {
    let mut world = World::new(1, 1, 2);
    world.is_checking = false;
    let dir = world.mkdir(0, TOP, "d");
    for number in 0..3000 {
        let file = world.create(0, dir, &name(number, 4));
        world.release(0, file);
    }
    world.lookup(1, TOP, "d").expect("it was made");
    let before = world.mounts[1].machine.stats().node_count;
    assert_eq!(world.names_of(1, dir).len(), 3000);
    assert_eq!(world.mounts[1].machine.stats().node_count, before);
}

/// They are under the lock of the listing that brought them.
#[test]
fn what_another_mount_changes_after_a_listing_of_names_is_seen() {
    let mut world = World::new(1, 1, 2);
    let dir = world.big_directory(2000, 4);
    world.lookup(1, TOP, "d").expect("it was made");
    for round in 0..3 {
        let names = world.names_of(1, dir);
        assert_eq!(names.len(), 2000 - round);
        let number = |of: usize| name(20 * round + of, 4);
        world.chmod(0, dir, &number(0), 0o600);
        assert_eq!(world.permissions(1, dir, &number(0)), 0o600);
        world.names_of(1, dir);
        let gone = number(1).into_bytes();
        assert_eq!(world.call(0, Call::Unlink { parent: dir, name: gone }), Ok(Answer::Done));
        assert_eq!(world.lookup(1, dir, &number(1)), Err(ENOENT));
        world.names_of(1, dir);
        let (from, to) = (number(2), format!("moved{round}"));
        let rename = Call::Rename {
            parent: dir,
            name: from.clone().into(),
            new_parent: dir,
            new_name: to.clone().into(),
            flags: 0,
        };
        let moved = world.lookup(0, dir, &from).expect("it is there").node;
        assert_eq!(world.call(0, rename), Ok(Answer::Done));
        assert_eq!(world.lookup(1, dir, &from), Err(ENOENT));
        assert_eq!(world.lookup(1, dir, &to).map(|entry| entry.node), Ok(moved));
        world.names_of(1, dir);
        let (name, value) = (b"user.a".to_vec(), b"b".to_vec());
        let node = world.lookup(0, dir, &number(6)).expect("it is there").node;
        world.call(0, Call::Setxattr { node, name: name.clone(), value, flags: 0 }).expect("set");
        assert_eq!(world.lookup(1, dir, &number(6)).map(|entry| entry.node), Ok(node));
        let found = world.call(1, Call::Getxattr { node, name });
        assert_eq!(found, Ok(Answer::Bytes("b".into())));
    }
}

/// No lock goes back with what a mount changes itself. It forgets such an inode, which has been listed before, and asks for it then.
#[test]
fn what_a_mount_has_changed_itself_and_forgotten_is_not_believed_as_it_was_listed() {
    let mut world = World::new(1, 1, 1);
    let dir = world.big_directory(BIG, 5);
    let linked = world.lookup(0, dir, &name(9, 5)).expect("it is there").node;
    let link = Call::Link { node: linked, parent: dir, name: b"link".to_vec() };
    world.call(0, link).expect("linked");
    let forget_all = |world: &mut World| {
        for number in 0..BIG {
            if let Ok(entry) = world.lookup(0, dir, &name(number, 5)) {
                world.input(0, Input::Forget(vec![(entry.node, u64::MAX)]));
            }
        }
    };
    forget_all(&mut world);
    world.names_of(0, dir);
    let changed = world.chmod(0, dir, &name(0, 5), 0o600);
    let by_link = world.chmod(0, dir, "link", 0o640);
    assert_eq!(by_link, linked);
    for node in [changed, by_link] {
        world.input(0, Input::Forget(vec![(node, u64::MAX)]));
    }
    // And names.
    let unlink = |number: usize| Call::Unlink { parent: dir, name: name(number, 5).into() };
    assert_eq!(world.call(0, unlink(1)), Ok(Answer::Done));
    let rename = |from: usize, to: usize| Call::Rename {
        parent: dir,
        name: name(from, 5).into(),
        new_parent: dir,
        new_name: name(to, 5).into(),
        flags: 0,
    };
    let (moved, other) = (
        world.lookup(0, dir, &name(2, 5)).expect("there").node,
        world.lookup(0, dir, &name(7, 5)).expect("there").node,
    );
    assert_eq!(world.call(0, rename(2, 10)), Ok(Answer::Done));
    assert_eq!(world.call(0, rename(7, 2)), Ok(Answer::Done));
    forget_all(&mut world);
    for number in [1, 7] {
        assert_eq!(world.lookup(0, dir, &name(number, 5)), Err(ENOENT), "{number}");
    }
    assert_eq!(world.lookup(0, dir, &name(10, 5)).map(|entry| entry.node), Ok(moved));
    assert_eq!(world.lookup(0, dir, &name(2, 5)).map(|entry| entry.node), Ok(other));
    assert_eq!(world.permissions(0, dir, &name(0, 5)), 0o600);
    assert_eq!(world.permissions(0, dir, &name(9, 5)), 0o640, "another name of it");
}

/// Changes by both mounts, in any order, between listings of names: each lookup says what is there.
#[test]
fn names_that_were_listed_say_what_is_there_whoever_changes_it() {
    let mut world = World::new(1, 1, 2);
    let dir = world.big_directory(0, 3);
    world.lookup(1, TOP, "d").expect("it was made");
    let mut rng = Rng::new(3);
    let mut expected = BTreeMap::new();
    for number in 0..900 {
        let file = world.create(0, dir, &name(number, 3));
        world.release(0, file);
        expected.insert(number, (file.0, 0o644));
    }
    for _ in 0..3000 {
        let mount = rng.below(2) as usize;
        let number = rng.below(1000) as usize;
        let own = name(number, 3);
        let known = expected.get(&number).copied();
        match rng.below(8) {
            0 if rng.one_in(4) => {
                let mut listed: Vec<u64> =
                    world.names_of(mount, dir).iter().map(|entry| entry.node).collect();
                let mut nodes: Vec<u64> = expected.values().map(|(node, _)| *node).collect();
                listed.sort_unstable();
                nodes.sort_unstable();
                assert_eq!(listed, nodes);
            }
            1 if known.is_some() => {
                let mode = 0o600 + rng.below(0o100) as u32;
                let node = world.chmod(mount, dir, &own, mode);
                expected.insert(number, (node, mode));
                world.input(mount, Input::Forget(vec![(node, u64::MAX)]));
            }
            2 if known.is_some() => {
                let gone = Call::Unlink { parent: dir, name: own.into() };
                assert_eq!(world.call(mount, gone), Ok(Answer::Done));
                expected.remove(&number);
            }
            3 if known.is_none() => {
                let file = world.create(mount, dir, &own);
                world.release(mount, file);
                expected.insert(number, (file.0, 0o644));
            }
            4 if known.is_some() => {
                let to = rng.below(1000) as usize;
                let (parent, new_parent, flags) = (dir, dir, 0);
                let new_name = name(to, 3).into();
                let call = Call::Rename { parent, name: own.into(), new_parent, new_name, flags };
                assert_eq!(world.call(mount, call), Ok(Answer::Done));
                expected.remove(&number);
                expected.extend(known.map(|known| (to, known)));
            }
            _ => {
                let found = world.lookup(mount, dir, &own).ok();
                let found = found.map(|entry| (entry.node, entry.attr.map_or(0, |attr| attr.permissions)));
                assert_eq!(found, known, "{own}");
                if let Some((node, _)) = found.filter(|_| rng.one_in(2)) {
                    world.input(mount, Input::Forget(vec![(node, 1)]));
                }
            }
        }
    }
}

/// Names and attributes from an MDT that was restarted count no more.
#[test]
fn what_was_listed_before_a_restart_is_asked_for_again() {
    let mut world = World::new(1, 1, 2);
    let dir = world.big_directory(2000, 4);
    world.sync();
    world.lookup(1, TOP, "d").expect("it was made");
    world.names_of(1, dir);
    world.restart(TargetId::mdt(0));
    world.pass(Duration::from_secs(20));
    let lookups = world.sent(1, TargetKind::Mdt, "mds_lookup");
    assert!(world.lookup(1, dir, &name(0, 4)).is_ok());
    assert!(world.sent(1, TargetKind::Mdt, "mds_lookup") > lookups);
}
