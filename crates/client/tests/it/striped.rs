//! Directories in several stripes look like any other.

use crate::world::{TOP, World};
use base::{Duration, FileType, TargetKind};
use client::{Answer, Call, Caller, Input, Notify, SetattrCall, Setting};
use std::collections::BTreeSet;
use wire::mdt::DirStriping;

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOTEMPTY: i32 = 39;

impl World {
    /// The directory `d` over so many MDTs.
    fn striped(&mut self, mount: usize, stripe_count: u16) -> u64 {
        let striping = DirStriping { stripe_count, mdts: Vec::new() };
        let make = Call::MkdirStriped { parent: TOP, name: b"d".into(), mode: 0o755, umask: 0, striping };
        assert_eq!(self.call(mount, make), Ok(Answer::Done));
        self.lookup(mount, TOP, "d").expect("it was made").node
    }

    fn metadata_requests(&self, mount: usize) -> u64 {
        let kinds = self.requests(mount, TargetKind::Mdt).into_iter();
        kinds.filter(|(kind, _)| *kind != "ping").map(|(_, count)| count).sum()
    }

    /// Names in the order in which they are listed, and their offsets.
    pub fn listed(&mut self, mount: usize, node: u64, fh: u64, mut offset: u64) -> Vec<(String, u64)> {
        let mut listed = Vec::new();
        loop {
            let call = Call::Readdir { node, fh, offset, byte_count: 1000, is_plus: false };
            let Ok(Answer::Entries(entries)) = self.call(mount, call) else { panic!("it is listed") };
            let Some(last) = entries.last() else { return listed };
            offset = last.offset;
            let named = entries.into_iter().map(|entry| (entry.name, entry.offset));
            listed.extend(named.map(|(name, at)| (String::from_utf8(name).expect("text"), at)));
        }
    }
}

fn stripes_of(world: &mut World, node: u64) -> Vec<base::Fid> {
    match world.call(0, Call::Getdirstripe { node }) {
        Ok(Answer::DirStripes { stripes, .. }) => stripes,
        other => panic!("{other:?}"),
    }
}

/// A name of this stripe.
fn name_in(stripes: &[base::Fid], stripe: usize) -> String {
    let is_there =
        |name: &String| base::names::stripe_of(stripes, name.as_bytes()) == stripes.get(stripe).copied();
    (0..).map(|number| format!("n{number}")).find(is_there).expect("numbers do not end")
}

#[test]
fn each_name_is_listed_once_from_wherever_a_listing_begins() {
    let mut world = World::new(3, 1, 2);
    let dir = world.striped(0, 3);
    assert_eq!(stripes_of(&mut world, dir).len(), 3);
    let mut expected = BTreeSet::new();
    for number in 0..1500 {
        world.mkdir(0, dir, &format!("n{number}"));
        expected.insert(format!("n{number}"));
    }
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    assert_eq!(there, dir);
    for mount in [0, 1] {
        let Ok(Answer::Opened { fh, .. }) = world.call(mount, Call::Opendir { node: dir, flags: 0 }) else {
            panic!("a directory opens")
        };
        let all = world.listed(mount, dir, fh, 0);
        assert!(all.is_sorted_by_key(|(_, offset)| *offset), "positions rise");
        let names: Vec<_> = all.iter().skip(2).map(|(name, _)| name.clone()).collect();
        assert_eq!(names.len(), expected.len());
        assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
        for from in [1400, 3, 700] {
            assert_eq!(world.listed(mount, dir, fh, all[from].1), all[from + 1..], "from {from}");
        }
    }
    assert_eq!(world.attr(1, dir).link_count, 1502);
}

#[test]
fn attributes_are_those_of_all_stripes_and_cost_nothing_again() {
    let mut world = World::new(3, 1, 2);
    let dir = world.striped(0, 3);
    let stripes = stripes_of(&mut world, dir);
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    for stripe in 0..3 {
        let before = world.attr(0, dir);
        let asked = world.metadata_requests(0);
        assert_eq!(world.attr(0, dir), before);
        assert_eq!(world.metadata_requests(0), asked, "it is known under locks");
        world.mounts[0].notified.clear();
        world.pass(Duration::from_millis(5));
        world.mkdir(1, there, &name_in(&stripes, stripe));
        let told = Notify::InvalInode { node: dir, offset_bytes: -1, byte_count: 0 };
        assert!(world.mounts[0].notified.contains(&told), "stripe {stripe}: the kernel asks again");
        let after = world.attr(0, dir);
        assert_eq!(after.link_count, before.link_count + 1);
        assert!(after.mtime > before.mtime && after.ctime > before.ctime, "stripe {stripe}");
        assert_eq!((after.fid, after.file_type), (stripes[0], FileType::Directory));
    }
}

/// The kernel knows nothing of stripes: what it is told to forget stands in the directory that it knows.
#[test]
fn names_of_all_stripes_are_cached_and_taken_back() {
    let mut world = World::new(2, 1, 2);
    let dir = world.striped(0, 2);
    let stripes = stripes_of(&mut world, dir);
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    for stripe in 0..2 {
        let name = name_in(&stripes, stripe);
        assert_eq!(world.lookup(0, dir, &name), Err(ENOENT));
        let asked = world.metadata_requests(0);
        assert_eq!(world.lookup(0, dir, &name), Err(ENOENT));
        assert_eq!(world.metadata_requests(0), asked, "what is not there is known");
        world.mounts[0].notified.clear();
        let made = world.create(1, there, &name).0;
        let told = Notify::InvalEntry { parent: dir, name: name.clone().into() };
        assert!(world.mounts[0].notified.contains(&told), "{:?}", world.mounts[0].notified);
        let found = world.lookup(0, dir, &name).expect("it was made");
        assert_eq!(found.node, made);
        assert!(!found.entry_valid.is_zero());
        let unlink = Call::Unlink { parent: there, name: name.clone().into() };
        assert_eq!(world.call(1, unlink), Ok(Answer::Done));
        assert_eq!(world.lookup(0, dir, &name), Err(ENOENT));
    }
}

#[test]
fn permissions_hold_in_all_stripes() {
    let mut world = World::new(3, 1, 1);
    let dir = world.striped(0, 3);
    let stripes = stripes_of(&mut world, dir);
    let somebody = Caller { uid: 7, gid: 7, pid: 1 };
    let make = |stripe: usize| {
        let name = name_in(&stripes, stripe).into();
        Call::Mkdir { parent: dir, name, mode: 0o755, umask: 0 }
    };
    for stripe in 0..3 {
        assert_eq!(world.call_as(0, somebody, make(stripe)), Err(EACCES));
    }
    let set = SetattrCall { mode: Some(0o777), ..SetattrCall::default() };
    assert!(world.call(0, Call::Setattr { node: dir, set }).is_ok());
    for stripe in 0..3 {
        assert!(world.call_as(0, somebody, make(stripe)).is_ok());
    }
    assert_eq!(world.attr(0, dir).permissions, 0o777);
}

#[test]
fn names_move_between_stripes_and_the_directory_goes_when_it_is_empty() {
    let mut world = World::new(3, 1, 2);
    let dir = world.striped(0, 3);
    let stripes = stripes_of(&mut world, dir);
    let names: Vec<String> = (0..3).map(|stripe| name_in(&stripes, stripe)).collect();
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    let sub = world.mkdir(0, dir, &names[0]);
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let (name, new_name) = (names[from].clone().into(), names[to].clone().into());
        let rename = Call::Rename { parent: there, name, new_parent: there, new_name, flags: 0 };
        assert_eq!(world.call(1, rename), Ok(Answer::Done));
        assert_eq!(world.lookup(0, dir, &names[from]), Err(ENOENT));
        assert_eq!(world.lookup(0, dir, &names[to]).map(|entry| entry.node), Ok(sub));
        assert_eq!(world.names(0, dir), [names[to].clone()]);
        assert_eq!(world.attr(0, dir).link_count, 3);
    }
    let rmdir = |parent: u64, name: &str| Call::Rmdir { parent, name: name.into() };
    assert_eq!(world.call(0, rmdir(TOP, "d")), Err(ENOTEMPTY));
    assert_eq!(world.call(0, rmdir(dir, &names[0])), Ok(Answer::Done));
    assert_eq!(world.call(0, rmdir(TOP, "d")), Ok(Answer::Done));
    assert_eq!(world.lookup(1, TOP, "d"), Err(ENOENT));
}

/// READDIRPLUS of the parent tells its attributes only as a whole.
#[test]
fn its_parent_lists_it_with_the_attributes_of_the_whole() {
    let mut world = World::new(2, 1, 2);
    let dir = world.striped(0, 2);
    let stripes = stripes_of(&mut world, dir);
    for stripe in 0..2 {
        world.mkdir(0, dir, &name_in(&stripes, stripe));
    }
    let Ok(Answer::Opened { fh, .. }) = world.call(1, Call::Opendir { node: TOP, flags: 0 }) else {
        panic!("a directory opens")
    };
    let call = Call::Readdir { node: TOP, fh, offset: 0, byte_count: 4096, is_plus: true };
    let Ok(Answer::Entries(entries)) = world.call(1, call) else { panic!("it is listed") };
    let listed = entries.into_iter().find(|entry| entry.name == b"d").expect("it is there");
    if let Some(attr) = listed.entry.and_then(|entry| entry.attr) {
        assert_eq!(attr.link_count, 4);
    }
    assert_eq!(
        world.lookup(1, TOP, "d").ok().and_then(|entry| entry.attr).map(|attr| attr.link_count),
        Some(4)
    );
}

/// What a restarted MDT has told is believed no more: also when it is that of another stripe than the first.
#[test]
fn a_restart_of_one_mdt_makes_the_kernel_ask_again() {
    let mut world = World::new(2, 1, 1);
    let dir = world.striped(0, 2);
    let stripes = stripes_of(&mut world, dir);
    let name = name_in(&stripes, 1);
    world.mkdir(0, dir, &name);
    let known = world.attr(0, dir);
    world.sync();
    world.mounts[0].notified.clear();
    world.crash(base::TargetId::mdt(1));
    world.start(base::TargetId::mdt(1));
    world.pass(Duration::from_secs(10));
    let told = Notify::InvalInode { node: dir, offset_bytes: -1, byte_count: 0 };
    assert!(world.mounts[0].notified.contains(&told), "{:?}", world.mounts[0].notified);
    assert_eq!(world.attr(0, dir).link_count, known.link_count);
    assert_eq!(world.names(0, dir), [name]);
}

/// The server chooses, so a directory that is placed by space costs what any other does.
#[test]
fn a_directory_that_is_placed_by_space_is_one_request() {
    let mut world = World::new(2, 1, 1);
    let striping = Some(DirStriping::by_space(1, Some(1)));
    let told = world.call(0, Call::Setdirstripe { node: TOP, striping });
    assert_eq!(told, Ok(Answer::Done));
    let mut mdts = BTreeSet::new();
    for name in ["a", "b"] {
        let before = world.metadata_requests(0);
        let node = world.mkdir(0, TOP, name);
        assert_eq!(world.metadata_requests(0) - before, 1, "{name}");
        mdts.extend(stripes_of(&mut world, node).first().and_then(|fid| fid.mdt_index()));
        let below = world.mkdir(0, node, "below");
        assert_eq!(
            stripes_of(&mut world, below).first().and_then(|fid| fid.mdt_index()),
            mdts.last().copied()
        );
    }
    assert_eq!(mdts.into_iter().collect::<Vec<_>>(), [0, 1]);
}

/// The first request went without supplementary groups, and was refused for want of them.
#[test]
fn a_rename_over_two_mdts_is_asked_for_once_by_whoever_calls() {
    let mut world = World::new(2, 1, 1);
    let somebody = Caller { uid: 7, gid: 7, pid: 1 };
    world.mounts[0].groups = Some(vec![50]);
    // The second one is written by members of a group.
    for (name, mdt_index, permissions, gid) in [("a", 0, 0o777, 0), ("b", 1, 0o770, 50)] {
        let make = Call::MkdirOn { parent: TOP, name: name.into(), mode: 0o755, umask: 0, mdt_index };
        assert_eq!(world.call(0, make), Ok(Answer::Done));
        let node = world.lookup(0, TOP, name).expect("it was made").node;
        let set = SetattrCall { mode: Some(permissions), gid: Some(gid), ..SetattrCall::default() };
        assert!(world.call(0, Call::Setattr { node, set }).is_ok());
    }
    let [a, b] = ["a", "b"].map(|name| world.lookup(0, TOP, name).expect("it was made").node);
    let file = world.create(0, a, "f").0;
    let rename = |from: (u64, &str), to: (u64, &str)| Call::Rename {
        parent: from.0,
        name: from.1.into(),
        new_parent: to.0,
        new_name: to.1.into(),
        flags: 0,
    };
    let renames = |world: &World| -> u64 {
        let kinds = world.requests(0, TargetKind::Mdt).into_iter();
        kinds.filter(|(kind, _)| *kind == "mds_rename").map(|(_, count)| count).sum()
    };
    for (count, (from, to)) in [(a, b), (b, a)].into_iter().enumerate() {
        assert!(world.call_as(0, somebody, rename((from, "f"), (to, "f"))).is_ok());
        assert_eq!(renames(&world), count as u64 + 1);
        assert_eq!(world.lookup(0, to, "f").map(|entry| entry.node), Ok(file));
    }
    // Who may not is told so once.
    world.mounts[0].groups = Some(vec![51]);
    assert_eq!(world.call_as(0, somebody, rename((a, "f"), (b, "f"))), Err(EACCES));
    assert_eq!(renames(&world), 3);
}

/// Its name may be known, from a listing or from before the kernel forgot it, where nothing else of it is.
#[test]
fn a_directory_is_known_as_striped_whatever_was_known_of_it_before() {
    let ways = [(false, true), (true, true), (false, false), (true, false)];
    for (is_bulk, (is_plus, is_listed_first)) in
        [true, false].into_iter().flat_map(|is_bulk| ways.map(|way| (is_bulk, way)))
    {
        let mut world = World::new(2, 1, 2);
        if !is_bulk {
            // Each name of a listing is looked up.
            world.input(1, Input::Set(Setting::BulkAttrs(0)));
        }
        let dir = world.striped(0, 2);
        let stripes = stripes_of(&mut world, dir);
        let names = [name_in(&stripes, 0), name_in(&stripes, 1)];
        for name in &names {
            let file = world.create(0, dir, name);
            world.release(0, file);
        }
        let looked_up = |world: &mut World| {
            let there = world.lookup(1, TOP, "d").expect("it was made").node;
            for name in &names {
                assert!(world.lookup(1, there, name).is_ok(), "{name} was made");
            }
        };
        if !is_listed_first {
            looked_up(&mut world);
            world.input(1, Input::Forget(vec![(dir, u64::MAX)]));
        }
        let Ok(Answer::Opened { fh, .. }) = world.call(1, Call::Opendir { node: TOP, flags: 0 }) else {
            panic!("a directory opens")
        };
        let list = Call::Readdir { node: TOP, fh, offset: 0, byte_count: 1000, is_plus };
        assert!(matches!(world.call(1, list), Ok(Answer::Entries(_))));
        for _ in 0..3 {
            world.input(1, Input::Forget(vec![(dir, u64::MAX)]));
            looked_up(&mut world);
        }
        // Others change names beside it, so that locks go and come.
        world.create(0, TOP, "beside");
        world.input(1, Input::Forget(vec![(dir, u64::MAX)]));
        looked_up(&mut world);
    }
}
