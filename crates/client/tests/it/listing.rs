//! Listings: what comes with them is answered without asking again, until somebody changes it.

mod long_xattrs;
mod parts;

use crate::world::{O_RDWR, TOP, USER, World, write_call};
use base::{Duration, TargetId, TargetKind};
use client::{Answer, Call, DirEntryAnswer, Input, Notify, SetattrCall, Signals};
use std::collections::BTreeMap;

const ENOENT: i32 = 2;
const EINTR: i32 = 4;
const ENODATA: i32 = 61;

impl World {
    /// All entries of a directory by name, as READDIRPLUS gives them.
    fn list(&mut self, mount: usize, node: u64) -> BTreeMap<String, DirEntryAnswer> {
        let Ok(Answer::Opened { fh, .. }) = self.call(mount, Call::Opendir { node, flags: 0 }) else {
            panic!("a directory opens")
        };
        let mut all = BTreeMap::new();
        let mut offset = 0;
        loop {
            let call = Call::Readdir { node, fh, offset, byte_count: 32 << 10, is_plus: true };
            let entries = match self.call(mount, call) {
                Ok(Answer::Entries(entries)) => entries,
                other => panic!("{other:?}"),
            };
            let Some(last) = entries.last() else { break };
            offset = last.offset;
            for entry in entries {
                all.insert(String::from_utf8(entry.name.clone()).expect("text"), entry);
            }
        }
        assert_eq!(self.call(mount, Call::Releasedir { node, fh }), Ok(Answer::Done));
        all.retain(|name, _| name != "." && name != "..");
        all
    }

    /// The directory `d` with so many closed files, `f0` and on, made by the first mount.
    fn directory_of(&mut self, file_count: usize) -> u64 {
        let dir = self.mkdir(0, TOP, "d");
        for number in 0..file_count {
            let file = self.create(0, dir, &format!("f{number}"));
            self.release(0, file);
        }
        dir
    }

    /// Requests that a mount has sent to metadata targets.
    fn mdt_requests(&self, mount: usize) -> u64 {
        let kinds = self.requests(mount, TargetKind::Mdt);
        kinds.into_iter().map(|(_, count)| count).sum()
    }

    fn xattr(&mut self, mount: usize, node: u64, name: &str) -> Result<Vec<u8>, i32> {
        match self.call(mount, Call::Getxattr { node, name: name.into() })? {
            Answer::Bytes(bytes) => Ok(bytes.to_vec()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_big_listing_with_all_that_ls_asks_costs_few_requests() {
    const FILE_COUNT: usize = 1000;
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    for number in 0..FILE_COUNT {
        let file = world.create(0, dir, &format!("f{number}"));
        if number % 100 == 0 {
            let (name, value) = (b"user.a".to_vec(), b"value".to_vec());
            world.call(0, Call::Setxattr { node: file.0, name, value, flags: 0 }).expect("set");
        }
        world.release(0, file);
    }
    let target = b"somewhere".to_vec();
    world.call(0, Call::Symlink { parent: dir, name: b"link".to_vec(), target }).expect("made");
    for number in 0..FILE_COUNT / 10 {
        let sub = world.mkdir(0, dir, &format!("d{number}"));
        let (name, value) = (b"user.d".to_vec(), b"of a directory".to_vec());
        world.call(0, Call::Setxattr { node: sub, name, value, flags: 0 }).expect("set");
    }
    let node = world.lookup(1, TOP, "d").expect("it was made").node;
    let before = world.mdt_requests(1);
    let entries = world.list(1, node);
    assert_eq!(entries.len(), FILE_COUNT + FILE_COUNT / 10 + 1);
    for (name, entry) in &entries {
        let known = entry.entry.as_ref().unwrap_or_else(|| panic!("no attributes of {name}"));
        assert!(!known.attr_valid.is_zero() && !known.entry_valid.is_zero(), "{name}");
        world.attr(1, entry.node);
        let number = name.strip_prefix('f').and_then(|number| number.parse::<usize>().ok());
        let expected =
            if number.is_some_and(|number| number % 100 == 0) { Ok(b"value".to_vec()) } else { Err(ENODATA) };
        assert_eq!(world.xattr(1, entry.node, "user.a"), expected, "{name}");
        assert_eq!(world.xattr(1, entry.node, "security.selinux"), Err(ENODATA));
        if name.starts_with('d') {
            assert_eq!(world.xattr(1, entry.node, "user.d"), Ok(b"of a directory".to_vec()));
        }
    }
    let link = entries["link"].node;
    assert_eq!(world.call(1, Call::Readlink { node: link }), Ok(Answer::Bytes("somewhere".into())));
    let spent = world.mdt_requests(1) - before;
    assert!(spent <= 4, "{spent} requests for {FILE_COUNT} files");
    // Again, from what is known.
    let before = world.mdt_requests(1);
    for name in entries.keys() {
        world.lookup(1, node, name).expect("listed");
    }
    // The kernel has them all, and would forget their ACLs if they came once more.
    let again = world.list(1, node);
    assert_eq!(again.len(), entries.len());
    assert!(again.values().all(|entry| entry.entry.is_none()));
    assert!(world.mdt_requests(1) <= before + 2, "names only");
    // Until it has used up half of the time for which it may answer from them.
    world.pass(Duration::from_secs(15));
    assert!(world.list(1, node).values().all(|entry| entry.entry.is_some()));
}

/// What is learnt of a subdirectory with its own lock is true as long as the lock is held, and forgotten with it.
#[test]
fn a_listed_subdirectory_is_forgotten_when_its_contents_change() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    let sub = world.mkdir(0, dir, "sub");
    let node = world.lookup(1, TOP, "d").expect("it was made").node;
    // Known before the listing, and not covered by a lock any more when the listing comes.
    let known = world.lookup(1, node, "sub").expect("it was made").node;
    world.mkdir(0, sub, "first");
    let listed = world.list(1, node).remove("sub").and_then(|entry| entry.entry).expect("listed");
    assert_eq!(listed.attr.expect("there").link_count, 3);
    assert!(!listed.attr_valid.is_zero());
    let before = world.mdt_requests(1);
    assert_eq!(world.attr(1, known).link_count, 3);
    assert_eq!(world.mdt_requests(1), before, "it is covered");
    world.mounts[1].notified.clear();
    world.mkdir(0, sub, "second");
    let told = Notify::InvalInode { node: known, offset_bytes: -1, byte_count: 0 };
    assert!(world.mounts[1].notified.contains(&told));
    assert_eq!(world.attr(1, known).link_count, 4);
    // The other children of the directory above stay known.
    let before = world.mdt_requests(1);
    world.list(1, node);
    assert_eq!(world.mdt_requests(1), before, "nobody is asked for them");
}

/// A directory of which all is known is listed from here, until somebody changes something in it.
#[test]
fn a_listing_is_asked_for_once() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    let make = |world: &mut World, mount: usize, name: &str| {
        let file = world.create(mount, dir, name);
        world.release(mount, file);
        world.pass(Duration::from_secs(3));
    };
    ["a", "b", "c"].iter().for_each(|name| make(&mut world, 0, name));
    world.lookup(1, TOP, "d").expect("it was made");
    let listed = world.list(1, dir);
    let before = world.mdt_requests(1);
    for _ in 0..3 {
        assert_eq!(world.list(1, dir).keys().collect::<Vec<_>>(), listed.keys().collect::<Vec<_>>());
    }
    assert_eq!(world.mdt_requests(1), before, "three times");
    make(&mut world, 0, "d");
    assert_eq!(world.list(1, dir).len(), 4, "another mount has made one");
    world.list(1, dir);
    make(&mut world, 1, "e");
    world.call(1, Call::Unlink { parent: dir, name: b"a".into() }).expect("removed");
    let expected: Vec<&str> = vec!["b", "c", "d", "e"];
    assert_eq!(world.list(1, dir).keys().collect::<Vec<_>>(), expected, "its own changes");
    assert_eq!(world.list(1, dir).keys().collect::<Vec<_>>(), expected);
}

/// Hazard 3.8: what a listing of any size brings is covered by one lock, beside those of the way there.
#[test]
fn a_listed_directory_costs_one_lock_however_many_children_it_has() {
    let mut spent = vec![];
    for child_count in [10, 3000] {
        let mut world = World::new(1, 1, 2);
        world.is_checking = false;
        world.directory_of(child_count);
        let node = world.lookup(1, TOP, "d").expect("it was made").node;
        let before = world.mdt_lock_count(0);
        let entries = world.list(1, node);
        assert_eq!(entries.len(), child_count);
        for entry in entries.values() {
            assert!(entry.entry.as_ref().is_some_and(|known| !known.attr_valid.is_zero()));
            world.attr(1, entry.node);
        }
        spent.push(world.mdt_lock_count(0).saturating_sub(before));
    }
    assert_eq!(spent[0], spent[1], "locks for 10 children and for 3000");
    assert!(spent[1] <= 2, "{spent:?}");
}

#[test]
fn what_was_listed_is_forgotten_when_somebody_changes_it() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    let a = world.create(0, dir, "a");
    let b = world.create(0, dir, "b");
    for file in [a, b] {
        world.release(0, file);
    }
    let node = world.lookup(1, TOP, "d").expect("it was made").node;
    world.list(1, node);
    let set = SetattrCall { mode: Some(0o600), ..Default::default() };
    world.call(0, Call::Setattr { node: a.0, set }).expect("changed");
    let name = |name: &str| Notify::InvalEntry { parent: node, name: name.into() };
    let attributes = |node| Notify::InvalInode { node, offset_bytes: -1, byte_count: 0 };
    for expected in [name("a"), name("b"), attributes(a.0), attributes(b.0)] {
        assert!(world.mounts[1].notified.contains(&expected), "{expected:?}");
    }
    assert_eq!(world.attr(1, a.0).permissions, 0o600);

    // Size and xattrs too, and a name that goes.
    world.list(1, node);
    let again = world.open(0, a.0, O_RDWR).0;
    assert_eq!(world.call(0, write_call((a.0, again), 0, b"12345")), Ok(Answer::Written(5)));
    world.release(0, (a.0, again));
    assert_eq!(world.attr(1, a.0).size_bytes, 5);
    world.list(1, node);
    let (xattr, value) = (b"user.x".to_vec(), b"y".to_vec());
    world.call(0, Call::Setxattr { node: b.0, name: xattr, value, flags: 0 }).expect("set");
    assert_eq!(world.xattr(1, b.0, "user.x"), Ok(b"y".to_vec()));
    world.list(1, node);
    world.call(0, Call::Unlink { parent: dir, name: b"b".to_vec() }).expect("removed");
    assert_eq!(world.lookup(1, node, "b"), Err(2));
    assert_eq!(world.list(1, node).into_keys().collect::<Vec<_>>(), ["a"]);
}

/// The lock on a directory's children covers what is in it. What this mount itself has moved out of it is covered no more, nor what has
/// lost its name there and has another.
#[test]
fn what_was_listed_and_moved_out_of_its_directory_is_not_believed_any_more() {
    for removes in [false, true] {
        let mut world = World::new(1, 1, 2);
        let dir = world.mkdir(0, TOP, "d");
        let file = world.create(0, dir, "f");
        world.release(0, file);
        if removes {
            let link = Call::Link { node: file.0, parent: TOP, name: b"g".to_vec() };
            world.call(0, link).expect("linked");
        }
        let node = world.lookup(1, TOP, "d").expect("it was made").node;
        world.list(1, node);
        assert_eq!(world.attr(1, file.0).permissions, 0o644);
        let call = if removes {
            Call::Unlink { parent: node, name: b"f".to_vec() }
        } else {
            let (name, new_name) = (b"f".to_vec(), b"g".to_vec());
            Call::Rename { parent: node, name, new_parent: TOP, new_name, flags: 0 }
        };
        world.mounts[1].notified.clear();
        assert_eq!(world.call(1, call), Ok(Answer::Done));
        let told = Notify::InvalInode { node: file.0, offset_bytes: -1, byte_count: 0 };
        assert!(world.mounts[1].notified.contains(&told), "the kernel answers from it otherwise");
        let there = world.lookup(0, TOP, "g").expect("it is there").node;
        let set = SetattrCall { mode: Some(0o600), ..Default::default() };
        world.call(0, Call::Setattr { node: there, set }).expect("changed");
        assert_eq!(world.attr(1, file.0).permissions, 0o600);
    }
}

/// One request for a name of a small directory brings all of it, and what is not there.
#[test]
fn a_small_directory_is_known_after_one_lookup() {
    let mut world = World::new(1, 1, 2);
    let dir = world.directory_of(20);
    let node = world.lookup(1, TOP, "d").expect("it was made").node;
    let before = world.mdt_requests(1);
    for number in 0..40 {
        let found = world.lookup(1, node, &format!("f{number}"));
        assert_eq!(found.is_ok(), number < 20, "{number}: {found:?}");
        if let Ok(entry) = found {
            world.attr(1, entry.node);
        }
    }
    const ENAMETOOLONG: i32 = 36;
    assert_eq!(world.lookup(1, node, &"x".repeat(256)), Err(ENAMETOOLONG));
    assert_eq!(world.mdt_requests(1), before + 1);
    // Somebody makes a name of which the kernel was told that it is not there.
    world.mounts[1].notified.clear();
    let made = world.create(0, dir, "f30");
    let told = Notify::InvalEntry { parent: node, name: b"f30".to_vec() };
    assert!(world.mounts[1].notified.contains(&told), "{:?}", world.mounts[1].notified);
    assert_eq!(world.lookup(1, node, "f30").map(|entry| entry.node), Ok(made.0));
    assert_eq!(world.lookup(1, node, "f31"), Err(2));
    // What this mount does itself counts too.
    world.pass(Duration::from_secs(60));
    assert_eq!(world.lookup(1, node, "f32"), Err(2));
    let own = world.create(1, node, "f33");
    assert_eq!(world.lookup(1, node, "f33").map(|entry| entry.node), Ok(own.0));
    assert_eq!(world.call(1, Call::Unlink { parent: node, name: b"f33".to_vec() }), Ok(Answer::Done));
    assert_eq!(world.lookup(1, node, "f33"), Err(2));
    assert_eq!(world.lookup(1, node, "f19").map(|entry| entry.node != 0), Ok(true));
}

/// What is not there has no end. The kernel asks again for what could not be kept.
#[test]
fn absent_names_are_kept_up_to_a_bound() {
    let mut world = World::new(1, 1, 1);
    world.is_checking = false;
    let dir = world.directory_of(5);
    let valid_count = |world: &mut World, of: std::ops::Range<u32>| {
        let lookups = of.filter(|number| {
            let call = Call::Lookup { parent: dir, name: format!("absent{number}").into() };
            let Ok(Answer::Entry(entry)) = world.call(0, call) else { panic!("it is answered") };
            assert_eq!(entry.node, 0);
            !entry.entry_valid.is_zero()
        });
        lookups.count()
    };
    let before = world.mdt_requests(0);
    assert_eq!(valid_count(&mut world, 0..17_000), 16_384);
    assert_eq!(valid_count(&mut world, 0..100), 100, "those are kept");
    assert!(world.mdt_requests(0) <= before + 1);
    // When the kernel has forgotten them there is room for others.
    world.pass(Duration::from_secs(30));
    assert_eq!(valid_count(&mut world, 20_000..21_000), 1000);
}

/// Of a large one it brings nothing, and is not tried again with each name.
#[test]
fn a_large_directory_is_looked_up_by_name() {
    let mut world = World::new(1, 1, 2);
    world.is_checking = false;
    world.directory_of(600);
    let node = world.lookup(1, TOP, "d").expect("it was made").node;
    let before = world.mdt_requests(1);
    for number in 590..610 {
        assert_eq!(world.lookup(1, node, &format!("f{number}")).is_ok(), number < 600);
    }
    assert_eq!(world.mdt_requests(1), before + 1 + 20);
}

#[test]
fn a_listing_does_not_bring_back_what_this_mount_has_changed() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    let file = world.create(0, dir, "a");
    world.release(0, file);
    world.list(0, dir);
    let set = SetattrCall { mode: Some(0o600), ..Default::default() };
    world.call(0, Call::Setattr { node: file.0, set }).expect("changed");
    world.list(0, dir);
    assert_eq!(world.attr(0, file.0).permissions, 0o600);
    let (to, new) = (dir, b"b".to_vec());
    world
        .call(0, Call::Rename { parent: dir, name: b"a".to_vec(), new_parent: to, new_name: new, flags: 0 })
        .expect("renamed");
    assert_eq!(world.lookup(0, dir, "a"), Err(2));
    assert_eq!(world.lookup(0, dir, "b").expect("there").node, file.0);
    assert_eq!(world.list(0, dir).into_keys().collect::<Vec<_>>(), ["b"]);
}

/// A directory that is known as a whole stays so while this mount changes names in it: what it adds is known to be there.
#[test]
fn names_that_a_mount_makes_are_not_looked_for_first() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    assert_eq!(world.lookup(0, dir, "before"), Err(ENOENT));
    let looked = |world: &World| world.sent(0, TargetKind::Mdt, "mds_lookup");
    let before = looked(&world);
    for number in 0..100 {
        let name = format!("f{number}");
        assert_eq!(world.lookup(0, dir, &name), Err(ENOENT));
        let file = world.create(0, dir, &name);
        world.release(0, file);
    }
    assert_eq!(looked(&world), before, "nothing was looked for");
    let rename = |from: &str, to: &str| Call::Rename {
        parent: dir,
        name: from.into(),
        new_parent: dir,
        new_name: to.into(),
        flags: 0,
    };
    assert_eq!(world.lookup(0, dir, "moved"), Err(ENOENT));
    assert_eq!(looked(&world), before);
    // It asks for a lock on the new name itself.
    assert_eq!(world.call(0, rename("f7", "moved")), Ok(Answer::Done));
    let before = looked(&world);
    assert_eq!(world.lookup(0, dir, "linked"), Err(ENOENT));
    let node = world.lookup(0, dir, "f8").expect("it was made").node;
    world.call(0, Call::Link { node, parent: dir, name: b"linked".into() }).expect("linked");
    assert_eq!(looked(&world), before);
    for name in ["f0", "f99", "moved", "linked"] {
        assert!(world.lookup(0, dir, name).is_ok(), "{name}");
    }
    assert_eq!(world.lookup(0, dir, "f7"), Err(ENOENT));
    assert_eq!(world.call(0, Call::Unlink { parent: dir, name: b"f0".into() }), Ok(Answer::Done));
    assert_eq!(world.lookup(0, dir, "f0"), Err(ENOENT));
    // What others do is seen.
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    world.create(1, there, "theirs");
    assert!(world.lookup(0, dir, "theirs").is_ok());
    assert_eq!(world.call(1, Call::Unlink { parent: there, name: b"moved".into() }), Ok(Answer::Done));
    assert_eq!(world.lookup(0, dir, "moved"), Err(ENOENT));
}

/// Under the lock on the children of a directory this mount's own changes of names need no locks and no questions.
#[test]
fn names_that_a_mount_changes_in_a_listed_directory_cost_one_request_each() {
    let mut world = World::new(1, 1, 2);
    let dir = world.directory_of(3);
    assert_eq!(world.lookup(0, dir, "new"), Err(ENOENT), "now all of it is known");
    let before = (world.mdt_requests(0), world.mdt_lock_count(0));
    let made = world.create(0, dir, "new");
    world.release(0, made);
    // The file's inode has one; its name has none.
    assert_eq!((world.mdt_requests(0), world.mdt_lock_count(0)), (before.0 + 2, before.1 + 1));
    let before = (world.mdt_requests(0), world.mdt_lock_count(0));
    let (name, new_name) = (b"new".to_vec(), b"moved".to_vec());
    let call = Call::Rename { parent: dir, name, new_parent: dir, new_name, flags: 0 };
    assert_eq!(world.call(0, call), Ok(Answer::Done));
    assert_eq!(world.call(0, Call::Unlink { parent: dir, name: b"f1".to_vec() }), Ok(Answer::Done));
    for gone in ["new", "f1"] {
        assert_eq!(world.lookup(0, dir, gone), Err(ENOENT));
    }
    assert_eq!(world.lookup(0, dir, "moved").map(|entry| entry.node), Ok(made.0));
    // The attributes of what was renamed are asked for.
    assert!(world.mdt_requests(0) <= before.0 + 3, "{:?}", world.requests(0, TargetKind::Mdt));
    assert!(world.mdt_lock_count(0) <= before.1 + 1);

    // Somebody else changes the same names: nothing of that is believed any more, here and in the kernel.
    world.lookup(1, TOP, "d").expect("it was made");
    assert_eq!(world.call(1, Call::Unlink { parent: dir, name: b"moved".to_vec() }), Ok(Answer::Done));
    let other = world.create(1, dir, "new");
    world.release(1, other);
    for name in ["new", "moved"] {
        let told = Notify::InvalEntry { parent: dir, name: name.into() };
        assert!(world.mounts[0].notified.contains(&told), "{name}");
    }
    assert_eq!(world.lookup(0, dir, "moved"), Err(ENOENT));
    assert_eq!(world.lookup(0, dir, "new").map(|entry| entry.node), Ok(other.0));
}

/// A directory of which all is known is listed without a request, and what has no name is not in it.
#[test]
fn a_file_without_a_name_is_not_listed() {
    let mut world = World::new(1, 1, 1);
    let dir = world.directory_of(2);
    assert_eq!(world.names(0, dir), ["f0", "f1"]);
    let unnamed = world.call(0, Call::Tmpfile { parent: dir, mode: 0o600, umask: 0, flags: O_RDWR });
    let Ok(Answer::Created { entry, fh, .. }) = unnamed else { panic!("{unnamed:?}") };
    let (name, new) = (b"new".to_vec(), entry.node);
    assert!(world.call(0, Call::Link { node: new, parent: dir, name }).is_ok());
    world.release(0, (new, fh));
    world.pass(Duration::from_secs(3));
    for node in [dir, new] {
        world.attr(0, node);
    }
    let before = world.mdt_requests(0);
    assert_eq!(world.names(0, dir), ["f0", "f1", "new"]);
    assert_eq!(world.mdt_requests(0), before, "all is known");
}

/// A kernel that is short of memory asks again for what it has forgotten: its mount has not.
#[test]
fn what_the_kernel_forgets_is_told_again_without_asking() {
    let mut world = World::new(1, 1, 2);
    let dir = world.directory_of(20);
    let node = world.lookup(1, TOP, "d").expect("it was made").node;
    let names: Vec<String> = (0..20).map(|number| format!("f{number}")).collect();
    let nodes: Vec<u64> =
        names.iter().map(|name| world.lookup(1, node, name).expect("it was made").node).collect();
    let before = world.mdt_requests(1);
    world.input(1, Input::Forget(nodes.iter().map(|node| (*node, 1)).collect()));
    for (name, known) in names.iter().zip(&nodes) {
        assert_eq!(world.lookup(1, node, name).map(|entry| entry.node), Ok(*known));
    }
    assert_eq!(world.mdt_requests(1), before);
    // As long as nobody changes it.
    world.input(1, Input::Forget(nodes.iter().map(|node| (*node, 1)).collect()));
    assert_eq!(world.call(0, Call::Unlink { parent: dir, name: b"f7".to_vec() }), Ok(Answer::Done));
    assert_eq!(world.lookup(1, node, "f7"), Err(ENOENT));
    let set = SetattrCall { mode: Some(0o600), ..Default::default() };
    world.call(0, Call::Setattr { node: nodes[8], set }).expect("changed");
    let found = world.lookup(1, node, "f8").expect("it is there");
    assert_eq!(found.attr.map(|attr| attr.permissions), Some(0o600));
}

/// Who renames onto a name takes what it led to out of the listing first. Nobody tells him of changes of that inode any more,
/// and what he knew of its xattrs is not made true again by the next lock.
#[test]
fn xattrs_of_what_a_rename_did_not_replace_are_asked_for_again() {
    const EEXIST: i32 = 17;
    const NOREPLACE: u32 = 1;
    let mut world = World::new(1, 1, 2);
    let dir = world.directory_of(2);
    let file = world.lookup(0, dir, "f1").expect("it was made").node;
    let set = |name: &str| Call::Setxattr { node: file, name: name.into(), value: b"v".into(), flags: 0 };
    world.call(0, set("user.a")).expect("set");
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    world.list(1, there);
    assert_eq!(world.xattr(1, file, "user.a"), Ok(b"v".to_vec()));
    let (name, new_name) = (b"f0".to_vec(), b"f1".to_vec());
    let rename = Call::Rename { parent: there, name, new_parent: there, new_name, flags: NOREPLACE };
    assert_eq!(world.call(1, rename), Err(EEXIST));
    world.call(0, set("user.b")).expect("set");
    world.lookup(1, there, "f1").expect("it is there");
    assert_eq!(world.xattr(1, file, "user.b"), Ok(b"v".to_vec()));
}

/// The kernel may hold a directory for a call that waits for a server that is away.
#[test]
fn names_of_a_long_listing_are_given_up_together_where_the_kernel_forgets_none() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    for number in 0..1000 {
        let file = world.create(0, dir, &format!("f{number}"));
        world.release(0, file);
    }
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    assert_eq!(world.list(1, there).len(), 1000);
    world.mounts[1].notified.clear();
    world.mounts[1].is_kernel_stuck = true;
    world.create(0, dir, "new");
    let told = &world.mounts[1].notified;
    let count = |is_one: fn(&Notify) -> bool| told.iter().filter(|notify| is_one(notify)).count();
    let epochs = count(|notify| *notify == Notify::IncEpoch);
    assert!((1..=128).contains(&epochs), "{epochs}: hardly more wait than there are at a time");
    let dropped = count(|notify| matches!(notify, Notify::InvalEntry { .. }));
    assert!(dropped >= 1000, "{dropped}: each goes when the directory is free");
    assert!(world.lookup(1, there, "new").is_ok());
}

/// What the kernel of a mount was told since the last time: of names in a directory, of attributes of what is in it, of all names at once.
fn told_counts(world: &mut World, mount: usize, dir: u64) -> [usize; 3] {
    let told = std::mem::take(&mut world.mounts[mount].notified);
    let count = |is_one: &dyn Fn(&Notify) -> bool| told.iter().filter(|notify| is_one(notify)).count();
    [
        count(&|notify| notify.directory() == Some(dir)),
        count(&|notify| matches!(notify, Notify::InvalInode { node, .. } if *node != dir)),
        count(&|notify| *notify == Notify::IncEpoch),
    ]
}

/// Who changes something in a directory waits for what another mount's kernel is told: of each child that it believes its name once, and its
/// attributes once.
#[test]
fn each_child_that_the_kernel_believes_is_told_of_once() {
    const COUNT: usize = 600;
    let mut world = World::new(1, 1, 2);
    let dir = world.directory_of(COUNT);
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    assert_eq!(world.list(1, there).len(), COUNT);
    world.mounts[1].notified.clear();
    let handed_before = world.mounts[1].notice_count;
    world.create(0, dir, "new");
    assert_eq!(told_counts(&mut world, 1, there), [COUNT, COUNT, 0]);
    let handed = world.mounts[1].notice_count - handed_before;
    assert!(
        handed <= 2 * COUNT as u64 / 64 + 10,
        "{handed} times something was handed to a thread and waited for"
    );
    assert!(world.lookup(1, there, "new").is_ok());
}

/// A call that is unanswered may hold the directory: all names go at once then, and not again for each of them.
#[test]
fn names_in_a_directory_that_is_held_go_with_few_epochs() {
    const COUNT: usize = 600;
    let mdt = TargetId::mdt(0);
    let mut world = World::new(1, 1, 2);
    let dir = world.directory_of(COUNT);
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    assert_eq!(world.list(1, there).len(), COUNT);
    world.mounts[1].is_slow_to = Some(mdt);
    let call = Call::Setxattr { node: there, name: "user.a".into(), value: b"v".into(), flags: 0 };
    world.begin(1, call);
    world.mounts[1].is_slow_to = None;
    world.mounts[1].notified.clear();
    world.create(0, dir, "new");
    let [name_count, attr_count, epoch_count] = told_counts(&mut world, 1, there);
    assert!(name_count >= COUNT, "{name_count}: each goes when the directory is free");
    assert_eq!(attr_count, COUNT);
    assert!((1..=COUNT / 64 + 2).contains(&epoch_count), "{epoch_count}");
}

/// Of names that the kernel was given without a lifetime none is to go, but a reply that introduces an inode may still be on its way.
#[test]
fn attributes_without_names_wait_for_their_directory_once() {
    let mdt = TargetId::mdt(0);
    let mut world = World::new(1, 1, 2);
    let dir = world.directory_of(20);
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    world.list(1, there);
    world.pass(Duration::from_secs(60));
    // Beside another call on the directory.
    world.mounts[1].is_late = Some(mdt);
    let set = Call::Setxattr { node: there, name: "user.a".into(), value: b"v".into(), flags: 0 };
    let other = world.begin(1, set);
    let listed = world.list(1, there);
    assert!(
        listed.values().filter_map(|entry| entry.entry.as_ref()).all(|entry| entry.entry_valid.is_zero())
    );
    let late = world.take_late(1);
    world.come(1, late);
    world.finish(1, other).expect("set");
    world.mounts[1].notified.clear();
    let file = world.lookup(0, dir, "f3").expect("it was made").node;
    let set = SetattrCall { mode: Some(0o600), ..Default::default() };
    world.call(0, Call::Setattr { node: file, set }).expect("changed");
    let first = world.mounts[1].notified.first().and_then(Notify::directory);
    assert_eq!(first, Some(there), "before the attributes");
    assert_eq!(told_counts(&mut world, 1, there), [1, 20, 0]);
}

/// When mount 1 was told to forget a name and the attributes of an inode.
fn places(world: &World, (parent, name): (u64, &str), node: u64) -> (Option<usize>, Option<usize>) {
    let place = |wanted: Notify| world.mounts[1].notified.iter().position(|notify| *notify == wanted);
    let name = place(Notify::InvalEntry { parent, name: name.into() });
    (name, place(Notify::InvalInode { node, offset_bytes: -1, byte_count: 0 }))
}

/// Mount 1 has listed a directory of 20 files and looked one of them up; its kernel takes its time to forget the names, for which a call of mount 0
/// waits. The directory, that file, and the call.
fn with_names_on_their_way(looked_up: &str) -> (World, u64, u64, u64) {
    let mut world = World::new(1, 1, 2);
    let dir = world.directory_of(20);
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    world.list(1, there);
    let node = world.lookup(1, there, looked_up).expect("it was made").node;
    world.mounts[1].is_kernel_stuck = true;
    world.mounts[1].notified.clear();
    let call = Call::Mkdir { parent: dir, name: b"new".to_vec(), mode: 0o755, umask: 0 };
    let making = world.begin(0, call);
    world.run();
    assert!(!world.mounts[1].stuck.is_empty(), "names are on their way");
    (world, there, node, making)
}

/// While the lock on the children is on its way back, a listing beside another call tells the kernel of attributes under locks of their own, and of
/// no names. It may be on its way as long as the directory is locked.
#[test]
fn attributes_that_were_told_meanwhile_wait_for_their_directory_again() {
    let (mut world, there, node, making) = with_names_on_their_way("f3");
    world.is_syncing = false;
    let other = world.begin(1, Call::Fsyncdir { node: there, fh: 0, data_only: false });
    world.run();
    world.input(1, Input::Forget(vec![(node, 3)]));
    let listed = world.list(1, there);
    let told = listed["f3"].entry.as_ref().expect("told");
    assert!(told.entry_valid.is_zero() && !told.attr_valid.is_zero(), "{told:?}");
    assert!(!world.mounts[1].replies.contains_key(&other), "the directory is held all the time");
    world.is_syncing = true;
    world.mounts[1].is_kernel_stuck = false;
    world.mounts[1].notified.clear();
    world.unlock_page(1);
    world.finish(0, making).expect("made");
    world.finish(1, other).expect("synced");
    let (name, attr) = places(&world, (there, "f3"), node);
    assert!(attr.is_none() || name.is_some() && name < attr, "{name:?} {attr:?}");
}

/// The same of children that have names elsewhere as well: those are waited for, and the listed directory too.
#[test]
fn attributes_of_hard_linked_children_wait_for_the_listed_directory() {
    let mdt = TargetId::mdt(0);
    let mut world = World::new(1, 1, 2);
    let dir = world.directory_of(1);
    let file = world.lookup(0, dir, "f0").expect("it was made").node;
    let link = Call::Link { node: file, parent: TOP, name: b"link".to_vec() };
    world.call(0, link).expect("linked");
    world.pass(Duration::from_secs(3));
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    world.list(1, there);
    world.list(1, TOP);
    world.pass(Duration::from_secs(60));
    // Beside another call on the directory.
    world.mounts[1].is_late = Some(mdt);
    let set = Call::Setxattr { node: there, name: "user.a".into(), value: b"v".into(), flags: 0 };
    let other = world.begin(1, set);
    let listed = world.list(1, there);
    let told = listed["f0"].entry.as_ref().expect("told");
    assert!(told.entry_valid.is_zero() && !told.attr_valid.is_zero(), "{told:?}");
    let late = world.take_late(1);
    world.come(1, late);
    world.finish(1, other).expect("set");
    world.mounts[1].notified.clear();
    let set = SetattrCall { mode: Some(0o600), ..Default::default() };
    world.call(0, Call::Setattr { node: file, set }).expect("changed");
    let (name, attr) = places(&world, (there, "f0"), file);
    assert!(name.is_some() && name < attr, "{name:?} {attr:?}");
}

/// While the kernel takes its time to forget a listed directory, a child is looked up under a lock of its own. Whoever changes that child then
/// waits until the kernel has been told that, too.
#[test]
fn a_child_that_was_looked_up_meanwhile_is_told_of_when_its_own_lock_goes() {
    let (mut world, there, other, making) = with_names_on_their_way("f4");
    let found = world.lookup(1, there, "f3").expect("it was made");
    assert!(!found.attr_valid.is_zero(), "{found:?}");
    world.pass(Duration::from_secs(1));
    let notice = |node| Notify::InvalInode { node, offset_bytes: -1, byte_count: 0 };
    let told = &world.mounts[1].notified;
    assert!(told.contains(&notice(other)) && !told.contains(&notice(found.node)), "{told:?}");
    let set = SetattrCall { mode: Some(0o600), ..Default::default() };
    let changing = world.begin(0, Call::Setattr { node: found.node, set });
    world.pass(Duration::from_secs(1));
    assert!(world.mounts[1].notified.contains(&notice(found.node)), "{:?}", world.mounts[1].notified);
    assert!(!world.is_answered(0, changing), "the kernel believes the old attributes");
    world.mounts[1].is_kernel_stuck = false;
    world.unlock_page(1);
    world.finish(0, making).expect("made");
    world.finish(0, changing).expect("changed");
}

/// A child that has a name elsewhere, too, may be introduced there just now.
#[test]
fn names_in_other_directories_go_before_attributes() {
    let mut world = World::new(1, 1, 2);
    let dir = world.directory_of(3);
    let file = world.lookup(0, dir, "f1").expect("it was made").node;
    let link = Call::Link { node: file, parent: TOP, name: b"link".to_vec() };
    world.call(0, link).expect("linked");
    world.pass(Duration::from_secs(3));
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    world.list(1, TOP);
    // It believes that name no more.
    world.pass(Duration::from_secs(60));
    world.list(1, there);
    world.mounts[1].notified.clear();
    world.create(0, dir, "new");
    let (name, attr) = places(&world, (TOP, "link"), file);
    assert!(name.is_some() && name < attr, "{name:?} {attr:?}");
}

fn opened(world: &mut World, mount: usize, node: u64) -> (u64, u64) {
    let Ok(Answer::Opened { fh, .. }) = world.call(mount, Call::Opendir { node, flags: 0 }) else {
        panic!("a directory opens")
    };
    (node, fh)
}

fn node_count(world: &World, mount: usize) -> u64 {
    world.mounts[mount].machine.stats().node_count
}

/// The listing of a caller who was killed comes to its end later, and its kernel hears of no reference that was counted for it.
#[test]
fn a_listing_that_was_given_up_counts_no_references() {
    let mdt = TargetId::mdt(0);
    let mut world = World::new(1, 1, 2);
    world.directory_of(20);
    let node = world.lookup(1, TOP, "d").expect("it was made").node;
    let (_, fh) = opened(&mut world, 1, node);
    world.pass(Duration::from_secs(3));
    let before = node_count(&world, 1);
    world.crash(mdt);
    world.input(1, Input::ConnectionLost(mdt));
    world.mounts[1].signals = Signals::Fatal;
    let call = Call::Readdir { node, fh, offset: 0, byte_count: 32 << 10, is_plus: true };
    let listing = world.begin_as(1, USER, call);
    world.input(1, Input::Interrupt(listing));
    assert_eq!(world.finish(1, listing), Err(EINTR));
    world.start(mdt);
    world.pass(Duration::from_secs(20));
    assert!(world.mounts[1].machine.stats().listings.entry_count > 0, "it was listed");
    assert_eq!(node_count(&world, 1), before);
}

/// Files that somebody writes have no attributes that the kernel could be given with their names: nothing of them stays here, however many come
/// and are listed.
#[test]
fn what_a_listing_looks_up_and_does_not_tell_is_not_kept() {
    let mdt = TargetId::mdt(0);
    let mut world = World::new(1, 1, 2);
    let there = world.mkdir(0, TOP, "d");
    let dir = world.lookup(1, TOP, "d").expect("it was made").node;
    let own = world.create(1, dir, "from");
    world.release(1, own);
    let rename = |from: &str, to: &str| Call::Rename {
        parent: dir,
        name: from.into(),
        new_parent: dir,
        new_name: to.into(),
        flags: 0,
    };
    let mut counts = Vec::new();
    for round in 0..5 {
        for number in 0..10 {
            let file = world.create(0, there, &format!("f{round}.{number}"));
            assert_eq!(world.write(0, file, 0, b"more to come"), Ok(12));
        }
        let (_, fh) = opened(&mut world, 1, dir);
        // This mount changes a name while the answer is on its way, so that its entries are looked up one by one.
        world.mounts[1].is_late = Some(mdt);
        let call = Call::Readdir { node: dir, fh, offset: 0, byte_count: 32 << 10, is_plus: true };
        let listing = world.begin(1, call);
        let late = world.take_late(1);
        assert_eq!(world.call(1, rename("from", "to")), Ok(Answer::Done));
        assert_eq!(world.call(1, rename("to", "from")), Ok(Answer::Done));
        let before = world.mounts[1].machine.stats().listings.single_count;
        world.come(1, late);
        let Ok(Answer::Entries(entries)) = world.finish(1, listing) else { panic!("it is listed") };
        assert!(world.mounts[1].machine.stats().listings.single_count >= before + 10 * (round + 1));
        let told: Vec<u64> = entries.iter().filter_map(|entry| Some(entry.entry.as_ref()?.node)).collect();
        world.input(1, Input::Forget(told.iter().map(|node| (*node, 1)).collect()));
        assert_eq!(world.call(1, Call::Releasedir { node: dir, fh }), Ok(Answer::Done));
        counts.push(node_count(&world, 1));
    }
    assert_eq!(counts.first(), counts.last(), "nodes after each round: {counts:?}");
}

#[test]
fn a_listing_names_the_inode_of_the_parent() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    let inner = world.mkdir(0, dir, "e");
    let mut dots = |node| {
        let Ok(Answer::Opened { fh, .. }) = world.call(0, Call::Opendir { node, flags: 0 }) else {
            panic!("a directory opens")
        };
        let call = Call::Readdir { node, fh, offset: 0, byte_count: 4096, is_plus: false };
        let Ok(Answer::Entries(entries)) = world.call(0, call) else { panic!("it has entries") };
        let of = |name: &[u8]| entries.iter().find(|entry| entry.name == name).map(|entry| entry.node);
        (of(b"."), of(b".."))
    };
    assert_eq!(dots(inner), (Some(inner), Some(dir)));
    assert_eq!(dots(dir), (Some(dir), Some(TOP)));
    assert_eq!(dots(TOP), (Some(TOP), Some(TOP)));
}

/// Directories on another MDT than their parent: their own MDT is asked once for their attributes and once for what is in them.
#[test]
fn a_listing_of_a_directory_on_another_mdt_costs_one_request() {
    const DIRECTORY_COUNT: u64 = 20;
    const FILE_COUNT: usize = 5;
    let mut world = World::new(2, 1, 2);
    let parent = world.mkdir(0, TOP, "d");
    for number in 0..DIRECTORY_COUNT {
        let name = format!("on1.{number}").into_bytes();
        let make = Call::MkdirOn { parent, name, mode: 0o755, umask: 0, mdt_index: 1 };
        assert_eq!(world.call(0, make), Ok(Answer::Done));
        let node = world.lookup(0, parent, &format!("on1.{number}")).expect("it was made").node;
        let Ok(Answer::Fid(fid)) = world.call(0, Call::NodeFid { node }) else { panic!("a FID") };
        assert_eq!(fid.mdt_index(), Some(1));
        for file in 0..FILE_COUNT {
            let file = world.create(0, node, &format!("f{file}"));
            world.release(0, file);
        }
    }
    let node = world.lookup(1, TOP, "d").expect("it was made").node;
    let before = world.mdt_requests(1);
    let directories = world.list(1, node);
    assert_eq!(directories.len() as u64, DIRECTORY_COUNT);
    assert_eq!(world.mdt_requests(1) - before, 1, "the parent's names");
    for name in directories.keys() {
        let before = world.mdt_requests(1);
        let directory = world.lookup(1, node, name).expect("listed").node;
        world.attr(1, directory);
        assert_eq!(world.mdt_requests(1) - before, 1, "its attributes");
        let files = world.list(1, directory);
        assert_eq!(files.len(), FILE_COUNT);
        for (name, file) in &files {
            assert!(file.entry.is_some(), "{name} came with attributes");
            world.attr(1, file.node);
            assert_eq!(world.xattr(1, file.node, "system.posix_acl_access"), Err(ENODATA));
        }
        assert_eq!(world.mdt_requests(1) - before, 2, "its names with all that ls asks of them");
    }
}
