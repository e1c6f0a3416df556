//! What is recorded of servers among each other: short scripts of system calls over two MDTs and two OSTs, which check what they are
//! answered.

use super::sessions::{Session, done};
use crate::world::{O_RDONLY, O_RDWR, TOP, World};
use base::limits::{CALLBACK_DEADLINE, RECOVERY_WINDOW, SESSION_LEASE};
use base::{Duration, Extent, TargetId};
use client::{Answer, Call, Input};
use wire::mdt::{DirStriping, FileLock, FlockKind};

/// As `sessions::SESSIONS`: what was recorded by a released version is never changed.
pub static SERVER_SESSIONS: &[Session] = &[
    Session { name: "names", mount_count: 1, run: names },
    Session { name: "striped", mount_count: 1, run: striped },
    Session { name: "migration", mount_count: 1, run: migration },
    Session { name: "eviction", mount_count: 2, run: eviction },
    Session { name: "deadlock", mount_count: 2, run: deadlock },
    Session { name: "restarts", mount_count: 1, run: restarts },
    Session { name: "power", mount_count: 2, run: power },
    Session { name: "walk", mount_count: 1, run: walk },
    Session { name: "lost", mount_count: 2, run: lost },
];

const ENOENT: i32 = 2;
const EINVAL: i32 = 22;
const EDEADLK: i32 = 35;
const ENOTEMPTY: i32 = 39;

const A_WHILE: Duration = Duration::from_secs(3);

fn mkdir_on(world: &mut World, parent: u64, name: &str, mdt_index: u16) {
    let make = Call::MkdirOn { parent, name: name.into(), mode: 0o755, umask: 0, mdt_index };
    done(world, 0, make);
}

/// A directory of the other MDT.
fn there(world: &mut World) -> u64 {
    mkdir_on(world, TOP, "there", 1);
    world.lookup(0, TOP, "there").expect("it was made").node
}

fn rename(world: &mut World, (parent, name): (u64, &str), (new_parent, new_name): (u64, &str)) {
    let (name, new_name) = (name.into(), new_name.into());
    done(world, 0, Call::Rename { parent, name, new_parent, new_name, flags: 0 });
}

fn unlink(world: &mut World, parent: u64, name: &str) {
    done(world, 0, Call::Unlink { parent, name: name.into() });
}

fn rmdir(world: &mut World, parent: u64, name: &str) {
    done(world, 0, Call::Rmdir { parent, name: name.into() });
}

fn file(world: &mut World, parent: u64, name: &str) -> u64 {
    let file = world.create(0, parent, name);
    assert_eq!(world.write(0, file, 0, name.as_bytes()), Ok(name.len() as u64));
    world.release(0, file);
    file.0
}

fn content(world: &mut World, node: u64) -> Vec<u8> {
    let (fh, _) = world.open(0, node, O_RDONLY);
    let read = world.read(0, (node, fh), 0, 100);
    world.release(0, (node, fh));
    read
}

/// The first mount says goodbye, and what is left to do is done.
fn leave(world: &mut World) {
    world.input(0, Input::Drain { patience: Duration::from_secs(60) });
    for _ in 0..20 {
        world.pass(A_WHILE);
        if world.mounts[0].has_drained {
            return world.pass(A_WHILE);
        }
    }
    panic!("the first mount has not ended");
}

/// Names on one MDT of inodes of the other one: made, linked, renamed, replaced and removed.
fn names(world: &mut World) {
    let (here, there) = (world.mkdir(0, TOP, "here"), there(world));
    for name in ["a", "b", "c"] {
        mkdir_on(world, there, name, 0);
    }
    let f = file(world, here, "f");
    rename(world, (here, "f"), (there, "g"));
    for (parent, name) in [(here, "l"), (there, "m")] {
        let linked = world.call(0, Call::Link { node: f, parent, name: name.into() });
        assert!(matches!(linked, Ok(Answer::Entry(_))), "{linked:?}");
    }
    assert_eq!(world.attr(0, f).link_count, 3);
    file(world, there, "old");
    rename(world, (here, "l"), (there, "old"));
    assert_eq!(world.lookup(0, here, "l"), Err(ENOENT));
    // A directory under another one: the one rename lock, and the way up.
    rename(world, (there, "a"), (here, "a"));
    rename(world, (here, "a"), (there, "d"));
    rename(world, (there, "d"), (there, "b"));
    assert_eq!(world.names(0, there), ["b", "c", "g", "m", "old"]);
    assert_eq!(world.call(0, Call::Rmdir { parent: TOP, name: b"there".into() }), Err(ENOTEMPTY));
    for name in ["g", "m", "old"] {
        unlink(world, there, name);
    }
    for name in ["b", "c"] {
        rmdir(world, there, name);
    }
    rmdir(world, TOP, "there");
    assert_eq!(world.names(0, TOP), ["here"]);
    leave(world);
    assert_eq!(world.object_count(0) + world.object_count(1), 0, "objects go with their files");
}

/// A directory over both MDTs.
fn striped(world: &mut World) {
    let striping = DirStriping { stripe_count: 2, mdts: Vec::new() };
    done(world, 0, Call::MkdirStriped { parent: TOP, name: b"s".into(), mode: 0o755, umask: 0, striping });
    let striped = world.lookup(0, TOP, "s").expect("it was made").node;
    for name in ["1", "2", "3", "4"] {
        file(world, striped, name);
    }
    world.mkdir(0, striped, "d");
    for (old, new) in [("1", "5"), ("2", "6"), ("d", "e")] {
        rename(world, (striped, old), (striped, new));
    }
    let set = client::SetattrCall { mode: Some(0o700), ..Default::default() };
    assert!(world.call(0, Call::Setattr { node: striped, set }).is_ok());
    assert_eq!(world.names(0, striped), ["3", "4", "5", "6", "e"]);
    assert_eq!(world.call(0, Call::Rmdir { parent: TOP, name: b"s".into() }), Err(ENOTEMPTY));
    for name in ["3", "4", "5", "6"] {
        unlink(world, striped, name);
    }
    rmdir(world, striped, "e");
    rmdir(world, TOP, "s");
    assert_eq!(world.lookup(0, TOP, "s"), Err(ENOENT));
    leave(world);
}

/// A file and a directory go to the other MDT, and OSTs have objects of another name.
fn migration(world: &mut World) {
    let dir = world.mkdir(0, TOP, "d");
    file(world, dir, "f");
    world.mkdir(0, dir, "e");
    world.pass(A_WHILE);
    for (parent, name) in [(dir, "f"), (TOP, "d")] {
        let moved = world.call(0, Call::Migrate { parent, name: name.into(), mdt_index: 1 });
        assert_eq!(moved, Ok(Answer::Migrated { has_moved: true }), "{name}");
    }
    let dir = world.lookup(0, TOP, "d").expect("it is there").node;
    let f = world.lookup(0, dir, "f").expect("it is there").node;
    assert_eq!(content(world, f), b"f");
    world.pass(A_WHILE);
    assert_eq!(world.names(0, dir), ["e", "f"]);
    unlink(world, dir, "f");
    rmdir(world, dir, "e");
    rmdir(world, TOP, "d");
    leave(world);
    assert_eq!(world.object_count(0) + world.object_count(1), 0, "objects go with their files");
}

/// The second mount is gone with a file open and its locks, and is given up by who waits for them.
fn eviction(world: &mut World) {
    let lost = world.create(1, TOP, "f");
    assert_eq!(world.write(1, lost, 0, b"first"), Ok(5));
    world.pass(A_WHILE);
    assert_eq!(world.names(1, TOP), ["f"]);
    world.mounts[1].is_cut_off = true;
    let node = world.lookup(0, TOP, "f").expect("it is there").node;
    let (fh, _) = world.open(0, node, O_RDWR);
    assert_eq!(world.write(0, (node, fh), 0, b"FIRST"), Ok(5));
    world.release(0, (node, fh));
    world.mkdir(0, TOP, "d");
    rename(world, (TOP, "f"), (TOP, "g"));
    world.pass(Duration::from_secs(40));
    assert_eq!(world.attr(0, node).size_bytes, 5);
    unlink(world, TOP, "g");
    leave(world);
}

/// Each waits for what the other has, on different MDTs.
fn deadlock(world: &mut World) {
    let there = there(world);
    let here = world.create(0, TOP, "here");
    let far = world.create(0, there, "far");
    let mut open = Vec::new();
    let theirs = world.lookup(1, TOP, "there").expect("it is there").node;
    for (parent, name) in [(TOP, "here"), (theirs, "far")] {
        let node = world.lookup(1, parent, name).expect("it is there").node;
        open.push((node, world.open(1, node, O_RDWR).0));
    }
    let set = |(node, fh), owner, kind, can_wait| {
        let lock = FileLock { owner, pid: 1, is_flock: false, kind, extent: Extent::WHOLE };
        Call::Setlk { node, fh, lock, can_wait }
    };
    done(world, 0, set(here, 1, FlockKind::Write, false));
    done(world, 1, set(open[1], 2, FlockKind::Write, false));
    let first = world.begin(0, set(far, 1, FlockKind::Write, true));
    world.pass_a_little();
    let second = world.begin(1, set(open[0], 2, FlockKind::Write, true));
    assert_eq!(world.finish(1, second), Err(EDEADLK));
    done(world, 1, set(open[1], 2, FlockKind::Unlock, false));
    assert_eq!(world.finish(0, first), Ok(Answer::Done));
    world.release(0, here);
    world.release(0, far);
    for file in open {
        world.release(1, file);
    }
    leave(world);
}

/// Each kind of target is killed, and comes back to what the others wait for or have done meanwhile.
fn restarts(world: &mut World) {
    let there = there(world);
    for name in ["f", "g", "h"] {
        file(world, there, name);
    }
    world.pass(A_WHILE);
    for mdt_index in [1, 0] {
        world.restart(TargetId::mdt(mdt_index));
        mkdir_on(world, there, &format!("d{mdt_index}"), 0);
        let name = ["f", "g"][usize::from(mdt_index)];
        rename(world, (there, name), (TOP, name));
        world.pass(A_WHILE);
    }
    unlink(world, TOP, "f");
    world.restart(TargetId::ost(0));
    unlink(world, TOP, "g");
    unlink(world, there, "h");
    world.pass(A_WHILE);
    world.restart(TargetId::ost(1));
    assert_eq!(world.names(0, there), ["d0", "d1"]);
    leave(world);
    assert_eq!(world.object_count(0) + world.object_count(1), 0, "objects go with their files");
}

/// An MDT loses what its peers hold for it: it asks them, for the one that had done it is gone.
fn power(world: &mut World) {
    let there = there(world);
    assert_eq!(world.names(1, TOP), ["there"]);
    world.pass(A_WHILE);
    world.is_syncing = false;
    for name in ["d", "e"] {
        let make = Call::MkdirOn { parent: TOP, name: name.into(), mode: 0o755, umask: 0, mdt_index: 1 };
        done(world, 1, make);
    }
    world.pass_a_little();
    world.mounts[1].is_cut_off = true;
    world.lose_power(TargetId::mdt(0));
    world.is_syncing = true;
    assert_eq!(world.names(0, TOP), ["d", "e", "there"]);
    mkdir_on(world, there, "back", 0);
    // The other one, which had prepared something.
    let f = file(world, TOP, "f");
    world.pass(A_WHILE);
    world.is_syncing = false;
    let linked = world.begin(0, Call::Link { node: f, parent: there, name: b"l".into() });
    world.pass_a_little();
    world.lose_power(TargetId::mdt(1));
    world.is_syncing = true;
    assert!(matches!(world.finish(0, linked), Ok(Answer::Entry(_))));
    world.pass(A_WHILE);
    assert_eq!(world.names(0, there), ["back", "l"]);
    assert_eq!(world.attr(0, f).link_count, 2);
    leave(world);
}

/// Directories whose parents are on the other MDT each time: whoever moves one asks for the way up.
fn walk(world: &mut World) {
    let there = there(world);
    mkdir_on(world, there, "back", 0);
    let back = world.lookup(0, there, "back").expect("it was made").node;
    mkdir_on(world, back, "below", 1);
    let below = world.lookup(0, back, "below").expect("it was made").node;
    let moved = world.mkdir(0, TOP, "moved");
    rename(world, (TOP, "moved"), (below, "moved"));
    mkdir_on(world, moved, "deep", 1);
    rename(world, (moved, "deep"), (back, "deep"));
    assert_eq!(world.names(0, back), ["below", "deep"]);
    let into_itself = Call::Rename {
        parent: there,
        name: b"back".into(),
        new_parent: moved,
        new_name: b"back".into(),
        flags: 0,
    };
    assert_eq!(world.call(0, into_itself), Err(EINVAL));
    leave(world);
}

/// A mount that writes does not come back when an MDT has lost power: its sessions end at all OSTs, and when nothing of it can come any
/// more, objects are compared with files.
fn lost(world: &mut World) {
    file(world, TOP, "kept");
    assert_eq!(world.names(1, TOP), ["kept"]);
    let of_lost = world.create(1, TOP, "written");
    assert_eq!(world.write(1, of_lost, 0, b"lost"), Ok(4));
    world.pass(A_WHILE);
    world.mounts[1].is_cut_off = true;
    world.lose_power(TargetId::mdt(0));
    world.pass(RECOVERY_WINDOW + SESSION_LEASE + CALLBACK_DEADLINE + A_WHILE);
    assert_eq!(world.names(0, TOP), ["kept", "written"]);
    leave(world);
}
