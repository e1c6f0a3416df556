//! File handles (open_by_handle_at(2)): the kernel asks for `.` of an inode that it has forgotten, and for `..` on the way to the root.

use crate::world::{TOP, World};
use base::{Duration, Fid, FileType, TargetKind};
use client::{Answer, Call, Input};
use wire::mdt::DirStriping;

const ESTALE: i32 = 116;
const ENOENT: i32 = 2;

impl World {
    fn fid_of(&mut self, node: u64) -> Fid {
        match self.call(0, Call::NodeFid { node }) {
            Ok(Answer::Fid(fid)) => fid,
            other => panic!("{other:?}"),
        }
    }

    /// Nodes of all directories above one, the root last.
    fn way_up(&mut self, mount: usize, mut node: u64) -> Vec<u64> {
        let mut way = Vec::new();
        while node != TOP {
            node = self.lookup(mount, node, "..").expect("it has a parent").node;
            way.push(node);
        }
        way
    }

    fn metadata_requests_of(&self, mount: usize) -> u64 {
        self.requests(mount, TargetKind::Mdt).into_iter().map(|(_, count)| count).sum()
    }
}

/// The second mount has never heard of them, which is as good as having forgotten them.
#[test]
fn what_a_mount_does_not_know_is_found_by_its_number() {
    let mut world = World::new(2, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    let on_other = Call::MkdirOn { parent: dir, name: b"e".into(), mode: 0o755, umask: 0, mdt_index: 1 };
    assert_eq!(world.call(0, on_other), Ok(Answer::Done));
    let other = world.lookup(0, dir, "e").expect("it was made").node;
    assert_eq!(world.fid_of(other).mdt_index(), Some(1));
    let file = world.create(0, other, "f");
    let link = Call::Link { node: file.0, parent: dir, name: b"g".into() };
    assert!(world.call(0, link).is_ok());
    let rename = |from: &str, to: &str| Call::Rename {
        parent: other,
        name: from.into(),
        new_parent: TOP,
        new_name: to.into(),
        flags: 0,
    };
    assert_eq!(world.call(0, rename("f", "h")), Ok(Answer::Done));
    world.release(0, file);
    // Who has just changed a directory changes it again, perhaps: others get no lock on it.
    world.pass(Duration::from_secs(60));
    for (node, file_type) in
        [(dir, FileType::Directory), (other, FileType::Directory), (file.0, FileType::Regular)]
    {
        for round in 0..3 {
            let before = world.metadata_requests_of(1);
            let found = world.lookup(1, node, ".").expect("it is there");
            let attr = found.attr.expect("with attributes");
            assert_eq!((found.node, attr.file_type), (node, file_type));
            let asked = world.metadata_requests_of(1) - before;
            assert_eq!(
                asked,
                u64::from(round == 0),
                "its lock came along, and outlives the kernel's reference"
            );
            world.input(1, Input::Forget(vec![(node, 1)]));
        }
    }
    assert_eq!(world.lookup(1, TOP, ".").map(|entry| entry.node), Ok(TOP));
    assert_eq!(world.way_up(1, other), [dir, TOP]);
}

#[test]
fn the_parent_of_a_directory_is_the_one_that_it_is_in_now() {
    let mut world = World::new(2, 1, 2);
    let (from, to) = (world.mkdir(0, TOP, "from"), world.mkdir(0, TOP, "to"));
    let dir = world.mkdir(0, from, "d");
    assert_eq!(world.lookup(1, dir, "..").map(|entry| entry.node), Ok(from));
    let (name, new_name) = (b"d".to_vec(), b"e".to_vec());
    let rename = Call::Rename { parent: from, name, new_parent: to, new_name, flags: 0 };
    assert_eq!(world.call(0, rename), Ok(Answer::Done));
    for mount in [0, 1] {
        assert_eq!(world.way_up(mount, dir), [to, TOP], "mount {mount}");
        assert_eq!(world.lookup(mount, TOP, "..").map(|entry| entry.node), Ok(TOP));
    }
}

/// What is above is not there for its kernel, to which the number of the file system's root is that of the directory.
#[test]
fn nothing_is_found_above_the_directory_that_is_mounted() {
    for is_striped in [false, true] {
        let mut world = World::new(2, 1, 2);
        let (above, beside) = (world.mkdir(0, TOP, "above"), world.mkdir(0, TOP, "beside"));
        let striping = DirStriping { stripe_count: 2, mdts: Vec::new() };
        let (parent, name) = (above, b"mounted".to_vec());
        let make = match is_striped {
            true => Call::MkdirStriped { parent, name, mode: 0o755, umask: 0, striping },
            false => Call::MkdirOn { parent, name, mode: 0o755, umask: 0, mdt_index: 1 },
        };
        assert_eq!(world.call(0, make), Ok(Answer::Done));
        let mounted = world.lookup(0, above, "mounted").expect("it was made").node;
        let below = world.mkdir(0, mounted, "below");
        world.lookup(1, TOP, "above").expect("it was made");
        assert_eq!(world.lookup(1, above, "mounted").map(|entry| entry.node), Ok(mounted));
        world.mounts[1].machine.set_root(mounted);
        let number_of = |world: &mut World, node, name| world.lookup(1, node, name).map(|entry| entry.node);
        assert_eq!(number_of(&mut world, below, ".."), Ok(mounted));
        for name in [".", ".."] {
            assert_eq!(number_of(&mut world, mounted, name), Ok(mounted), "{name}");
        }
        for (node, name) in [(TOP, "."), (above, ".."), (beside, "..")] {
            assert_eq!(number_of(&mut world, node, name), Err(ESTALE), "{name} of {node}");
        }
        assert_eq!(world.way_up(0, below), [mounted, above, TOP]);
    }
}

/// A name lies in a stripe, of which the kernel knows nothing.
#[test]
fn the_parent_of_a_directory_is_no_stripe() {
    let mut world = World::new(3, 1, 2);
    let striping = DirStriping { stripe_count: 3, mdts: Vec::new() };
    let make = Call::MkdirStriped { parent: TOP, name: b"d".into(), mode: 0o755, umask: 0, striping };
    assert_eq!(world.call(0, make), Ok(Answer::Done));
    let striped = world.lookup(0, TOP, "d").expect("it was made").node;
    assert_eq!(world.lookup(1, striped, ".").map(|entry| entry.node), Ok(striped));
    for number in 0..30 {
        let name = format!("e{number}");
        let make = Call::MkdirOn {
            parent: striped,
            name: name.clone().into(),
            mode: 0o755,
            umask: 0,
            mdt_index: number % 3,
        };
        assert_eq!(world.call(0, make), Ok(Answer::Done));
        let node = world.lookup(0, striped, &name).expect("it was made").node;
        assert_eq!(world.way_up(1, node), [striped, TOP], "{name}");
        assert_eq!(world.lookup(1, striped, &name).map(|entry| entry.node), Ok(node));
    }
}

#[test]
fn what_is_gone_is_not_found_by_its_number() {
    let mut world = World::new(2, 1, 2);
    let (file, dir) = (world.create(0, TOP, "f"), world.mkdir(0, TOP, "d"));
    assert_eq!(world.call(0, Call::Rmdir { parent: TOP, name: b"d".into() }), Ok(Answer::Done));
    assert_eq!(world.call(0, Call::Unlink { parent: TOP, name: b"f".into() }), Ok(Answer::Done));
    assert!(world.lookup(0, file.0, ".").is_ok(), "it is open here");
    assert_eq!(world.lookup(1, file.0, "."), Err(ESTALE), "open elsewhere");
    assert!(matches!(world.lookup(1, dir, "."), Err(ESTALE | ENOENT)));
    assert!(matches!(world.lookup(1, dir, ".."), Err(ESTALE | ENOENT)));
    let nodes = |world: &World| world.mounts[1].machine.stats().node_count;
    let before = nodes(&world);
    // Numbers that nobody has given: below all, of an MDT that there is not, of a sequence that was not used.
    let absent_mdt = Fid { seq: Fid::sequence(77, 0), oid: 1, ver: 0 }.inode_number();
    let unused = Fid { seq: Fid::sequence(1, 1 << 20), oid: 1, ver: 0 }.inode_number();
    for number in [2, absent_mdt, unused, u64::MAX] {
        for name in [".", ".."] {
            assert!(matches!(world.lookup(1, number, name), Err(ESTALE | ENOENT)), "{number} {name}");
        }
    }
    assert_eq!(nodes(&world), before);
}
