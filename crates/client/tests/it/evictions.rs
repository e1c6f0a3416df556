//! What fsync(2) tells of changes that an MDT had answered, when it has evicted the mount that made them.

use crate::world::{O_RDONLY, O_RDWR, TOP, World};
use base::{Duration, TargetId};
use client::{Answer, Call, Event, SetattrCall};
use wire::mdt::DirStriping;

const EIO: i32 = 5;
const RENAME_EXCHANGE: u32 = 2;

/// What a program asks to be durable.
#[derive(Clone, Copy, Debug)]
enum Asked {
    File(u64),
    Directory(u64),
}

impl World {
    /// open(2), fsync(2), close(2).
    fn ask(&mut self, asked: Asked) -> Result<Answer, i32> {
        match asked {
            Asked::File(node) => {
                let (fh, _) = self.open(0, node, O_RDONLY);
                let answer = self.call(0, Call::Fsync { node, fh, data_only: false });
                self.release(0, (node, fh));
                answer
            }
            Asked::Directory(node) => {
                let Ok(Answer::Opened { fh, .. }) = self.call(0, Call::Opendir { node, flags: 0 }) else {
                    panic!("a directory opens")
                };
                let answer = self.call(0, Call::Fsyncdir { node, fh, data_only: false });
                assert_eq!(self.call(0, Call::Releasedir { node, fh }), Ok(Answer::Done));
                answer
            }
        }
    }

    fn is_told_once(&mut self, asked: Asked, why: &str) {
        assert_eq!(self.ask(asked), Err(EIO), "{asked:?}: {why}");
        assert_eq!(self.ask(asked), Ok(Answer::Done), "{asked:?} for the second time: {why}");
    }

    /// It loses what is not durable, and mount 0 comes too late to bring it back.
    fn lose_with(&mut self, target: TargetId) {
        self.mounts[0].is_cut_off = true;
        self.lose_power(target);
        self.come_back_late(target);
    }

    fn come_back_late(&mut self, target: TargetId) {
        self.is_syncing = true;
        self.pass(Duration::from_secs(100));
        self.mounts[0].is_cut_off = false;
        self.pass(Duration::from_secs(20));
        let events = &self.mounts[0].events;
        assert!(events.contains(&Event::Evicted(target)), "{events:?}");
    }

    fn mknod(&mut self, parent: u64, name: &str) -> u64 {
        let make = Call::Mknod { parent, name: name.into(), mode: 0o100_644, umask: 0, rdev: 0 };
        assert!(self.call(0, make).is_ok());
        self.lookup(0, parent, name).expect("it was made").node
    }
}

/// Durable: two directories, two files, of which the first has a second name, and one of each that nobody touches.
struct Tree {
    dir: u64,
    other_dir: u64,
    file: u64,
    other_file: u64,
    bystanders: [Asked; 2],
}

fn tree(world: &mut World) -> Tree {
    let (dir, other_dir) = (world.mkdir(0, TOP, "d"), world.mkdir(0, TOP, "e"));
    let (file, other_file) = (world.mknod(dir, "f"), world.mknod(other_dir, "g"));
    let link = Call::Link { node: file, parent: other_dir, name: b"l".into() };
    assert!(world.call(0, link).is_ok());
    let set = Call::Setxattr { node: file, name: b"user.old".into(), value: b"1".into(), flags: 0 };
    assert_eq!(world.call(0, set), Ok(Answer::Done));
    let lonely = world.mkdir(0, TOP, "lonely");
    let bystander = world.mknod(lonely, "bystander");
    world.mkdir(0, dir, "empty");
    world.pass(Duration::from_secs(3));
    Tree { dir, other_dir, file, other_file, bystanders: [Asked::File(bystander), Asked::Directory(lonely)] }
}

fn rename(from: (u64, &str), to: (u64, &str), flags: u32) -> Call {
    Call::Rename { parent: from.0, name: from.1.into(), new_parent: to.0, new_name: to.1.into(), flags }
}

/// A change, and what is told when it is lost.
type Change = (&'static str, fn(&Tree) -> (Call, Vec<Asked>));

const CHANGES: [Change; 16] = [
    ("chmod", |tree| {
        let set = SetattrCall { mode: Some(0o600), ..SetattrCall::default() };
        (Call::Setattr { node: tree.file, set }, vec![Asked::File(tree.file)])
    }),
    ("chown of a directory", |tree| {
        let set = SetattrCall { uid: Some(7), ..SetattrCall::default() };
        (Call::Setattr { node: tree.dir, set }, vec![Asked::Directory(tree.dir)])
    }),
    ("setxattr", |tree| {
        let set = Call::Setxattr { node: tree.file, name: b"user.x".into(), value: b"1".into(), flags: 0 };
        (set, vec![Asked::File(tree.file)])
    }),
    ("setxattr of an ACL", |tree| {
        // Version 2; owner rw, group r, others nothing.
        let mut value = vec![2, 0, 0, 0];
        for (tag, permissions) in [(1, 6), (4, 4), (0x20, 0)] {
            value.extend([tag, 0, permissions, 0, 0xff, 0xff, 0xff, 0xff]);
        }
        let name = b"system.posix_acl_access".into();
        (Call::Setxattr { node: tree.file, name, value, flags: 0 }, vec![Asked::File(tree.file)])
    }),
    ("removexattr", |tree| {
        let remove = Call::Removexattr { node: tree.file, name: b"user.old".into() };
        (remove, vec![Asked::File(tree.file)])
    }),
    ("striping of new directories", |tree| {
        let striping = Some(DirStriping { stripe_count: 1, mdts: Vec::new() });
        (Call::Setdirstripe { node: tree.dir, striping }, vec![Asked::Directory(tree.dir)])
    }),
    ("link", |tree| {
        let link = Call::Link { node: tree.file, parent: tree.dir, name: b"new".into() };
        (link, vec![Asked::File(tree.file), Asked::Directory(tree.dir)])
    }),
    ("unlink", |tree| {
        let unlink = Call::Unlink { parent: tree.dir, name: b"f".into() };
        (unlink, vec![Asked::File(tree.file), Asked::Directory(tree.dir)])
    }),
    ("rmdir", |tree| {
        (Call::Rmdir { parent: tree.dir, name: b"empty".into() }, vec![Asked::Directory(tree.dir)])
    }),
    ("mkdir", |tree| {
        let make = Call::Mkdir { parent: tree.dir, name: b"new".into(), mode: 0o755, umask: 0 };
        (make, vec![Asked::Directory(tree.dir)])
    }),
    ("mknod", |tree| {
        let make = Call::Mknod { parent: tree.dir, name: b"new".into(), mode: 0o10_644, umask: 0, rdev: 0 };
        (make, vec![Asked::Directory(tree.dir)])
    }),
    ("symlink", |tree| {
        let make = Call::Symlink { parent: tree.dir, name: b"new".into(), target: b"f".into() };
        (make, vec![Asked::Directory(tree.dir)])
    }),
    ("rename in a directory", |tree| {
        let told = vec![Asked::Directory(tree.dir), Asked::File(tree.file)];
        (rename((tree.dir, "f"), (tree.dir, "new"), 0), told)
    }),
    ("rename to another directory", |tree| {
        let told = vec![Asked::Directory(tree.dir), Asked::Directory(tree.other_dir), Asked::File(tree.file)];
        (rename((tree.dir, "f"), (tree.other_dir, "new"), 0), told)
    }),
    ("rename over a file", |tree| {
        let told =
            vec![Asked::Directory(tree.other_dir), Asked::File(tree.file), Asked::File(tree.other_file)];
        (rename((tree.dir, "f"), (tree.other_dir, "g"), 0), told)
    }),
    ("exchange", |tree| {
        let told =
            vec![Asked::Directory(tree.other_dir), Asked::File(tree.file), Asked::File(tree.other_file)];
        (rename((tree.dir, "f"), (tree.other_dir, "g"), RENAME_EXCHANGE), told)
    }),
];

/// Changes answered and not durable, on a tree that is.
fn changed(change: Change) -> (World, Tree, Vec<Asked>) {
    let mut world = World::new(1, 1, 2);
    let tree = tree(&mut world);
    let (call, told) = change.1(&tree);
    world.is_syncing = false;
    world.call(0, call).unwrap_or_else(|errno| panic!("{}: {errno}", change.0));
    (world, tree, told)
}

#[test]
fn each_change_that_an_mdt_has_lost_is_told_once_by_what_it_has_changed() {
    for change in CHANGES {
        let (mut world, tree, told) = changed(change);
        world.lose_with(TargetId::mdt(0));
        for asked in tree.bystanders {
            assert_eq!(world.ask(asked), Ok(Answer::Done), "{}: nothing of it was lost", change.0);
        }
        for asked in told {
            world.is_told_once(asked, change.0);
        }
    }
}

/// An operator throws the mount out, and the MDT has lost nothing.
#[test]
fn nothing_is_told_of_changes_that_an_mdt_has_kept_at_an_eviction() {
    for change in CHANGES {
        let (mut world, tree, told) = changed(change);
        world.evict(0, 0);
        world.is_syncing = true;
        world.pass(Duration::from_secs(20));
        assert!(world.mounts[0].events.contains(&Event::Evicted(TargetId::mdt(0))));
        for asked in told.into_iter().filter(|asked| !is_gone(&tree, change.0, *asked)) {
            assert_eq!(world.ask(asked), Ok(Answer::Done), "{asked:?}: {}", change.0);
        }
        assert_eq!(world.call(0, Call::SyncAll), Ok(Answer::Done), "{}", change.0);
    }
}

/// It was replaced, and is not there to be opened.
fn is_gone(tree: &Tree, change: &str, asked: Asked) -> bool {
    change == "rename over a file" && matches!(asked, Asked::File(node) if node == tree.other_file)
}

/// The MDT has made it durable, and died before the mount heard of that.
#[test]
fn nothing_is_told_of_changes_that_were_durable_before_the_mount_heard_of_it() {
    for change in CHANGES {
        let (mut world, tree, told) = changed(change);
        world.mounts[0].is_cut_off = true;
        world.sync_target(TargetId::mdt(0));
        world.lose_with(TargetId::mdt(0));
        for asked in told.into_iter().filter(|asked| !is_gone(&tree, change.0, *asked)) {
            assert_eq!(world.ask(asked), Ok(Answer::Done), "{asked:?}: {}", change.0);
        }
    }
}

/// Evicted first, and then the MDT loses its power: nobody has replayed it.
#[test]
fn what_an_mdt_loses_after_it_has_evicted_the_mount_is_told() {
    let (mut world, tree, _) = changed(CHANGES[0]);
    world.mounts[0].is_cut_off = true;
    world.evict(0, 0);
    world.lose_with(TargetId::mdt(0));
    world.is_told_once(Asked::File(tree.file), "chmod");
}

/// The mount has its next session with the OST, which dies before the write is durable.
#[test]
fn what_an_ost_loses_after_it_has_evicted_the_mount_is_told_and_nothing_before() {
    for is_lost in [false, true] {
        let mut world = World::new(1, 1, 2);
        let file = world.create(0, TOP, "f");
        // Sessions begin with something durable.
        assert_eq!(world.write(0, file, 0, b"first"), Ok(5));
        world.pass(Duration::from_secs(2));
        world.is_syncing = false;
        assert_eq!(world.write(0, file, 0, b"more"), Ok(4));
        assert!(world.unsynced_count(0) > 0);
        world.evict_from_ost(0, 0);
        let fsync = || Call::Fsync { node: file.0, fh: file.1, data_only: false };
        if is_lost {
            world.lose_with(TargetId::ost(0));
            assert_eq!(world.call(0, fsync()), Err(EIO));
        }
        world.is_syncing = true;
        assert_eq!(world.call(0, fsync()), Ok(Answer::Done));
        assert!(world.mounts[0].events.contains(&Event::Evicted(TargetId::ost(0))));
        assert_eq!(world.read(0, file, 0, 100), if is_lost { b"first" } else { b"moret" });
    }
}

/// Who has the directory open, and who opens it later, when the first one has not asked.
#[test]
fn each_descriptor_of_a_directory_is_told_once() {
    let (mut world, tree, _) = changed(("mkdir", |tree| {
        (Call::Mkdir { parent: tree.dir, name: b"new".into(), mode: 0o755, umask: 0 }, Vec::new())
    }));
    let node = tree.dir;
    let opendir = |world: &mut World| match world.call(0, Call::Opendir { node, flags: 0 }) {
        Ok(Answer::Opened { fh, .. }) => fh,
        other => panic!("{other:?}"),
    };
    let (one, other) = (opendir(&mut world), opendir(&mut world));
    world.lose_with(TargetId::mdt(0));
    let later = opendir(&mut world);
    for (fh, is_told) in [(one, true), (one, false), (other, true), (other, false), (later, false)] {
        let answer = world.call(0, Call::Fsyncdir { node, fh, data_only: false });
        assert_eq!(answer, if is_told { Err(EIO) } else { Ok(Answer::Done) }, "descriptor {fh}");
    }
}

/// The new file is gone, and its directory says that a name was lost.
#[test]
fn a_file_that_was_lost_is_told_by_its_directory_too() {
    const ESTALE: i32 = 116;
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    world.pass(Duration::from_secs(3));
    world.is_syncing = false;
    let (node, fh) = world.create_with(0, dir, "f", O_RDWR);
    world.lose_with(TargetId::mdt(0));
    for _ in 0..2 {
        assert_eq!(world.call(0, Call::Fsync { node, fh, data_only: false }), Err(ESTALE));
    }
    world.is_told_once(Asked::Directory(dir), "create");
}

#[test]
fn a_directory_that_was_lost_says_so() {
    let mut world = World::new(1, 1, 2);
    tree(&mut world);
    world.is_syncing = false;
    let node = world.mkdir(0, TOP, "new");
    let Ok(Answer::Opened { fh, .. }) = world.call(0, Call::Opendir { node, flags: 0 }) else {
        panic!("a directory opens")
    };
    world.lose_with(TargetId::mdt(0));
    assert_eq!(world.call(0, Call::Fsyncdir { node, fh, data_only: false }), Err(EIO));
}

/// What makes all of a mount durable tells once that something was lost, whatever fsync(2) tells.
#[test]
fn a_sync_of_the_mount_tells_once_of_losses() {
    let (mut world, tree, _) = changed(CHANGES[0]);
    world.lose_with(TargetId::mdt(0));
    assert_eq!(world.call(0, Call::SyncAll), Err(EIO));
    assert_eq!(world.call(0, Call::SyncAll), Ok(Answer::Done));
    world.is_told_once(Asked::File(tree.file), "chmod");
    assert_eq!(world.call(0, Call::SyncAll), Ok(Answer::Done));
}

/// The name is in a stripe on another MDT than the directory itself.
#[test]
fn a_name_of_a_stripe_that_was_lost_is_told_by_the_directory() {
    let mut world = World::new(2, 1, 2);
    let striping = DirStriping { stripe_count: 2, mdts: Vec::new() };
    let make = Call::MkdirStriped { parent: TOP, name: b"d".into(), mode: 0o755, umask: 0, striping };
    assert_eq!(world.call(0, make), Ok(Answer::Done));
    let dir = world.lookup(0, TOP, "d").expect("it was made").node;
    let Ok(Answer::DirStripes { stripes, .. }) = world.call(0, Call::Getdirstripe { node: dir }) else {
        panic!("it has stripes")
    };
    let on_other = |name: &String| {
        base::names::stripe_of(&stripes, name.as_bytes()).and_then(|stripe| stripe.mdt_index()) == Some(1)
    };
    let mut names = (0..).map(|number| format!("n{number}")).filter(on_other);
    let name = names.next().expect("numbers do not end");
    let later = names.next().expect("numbers do not end");
    world.mknod(dir, &name);
    world.pass(Duration::from_secs(3));
    world.is_syncing = false;
    world.mknod(dir, &later);
    world.lose_with(TargetId::mdt(1));
    world.is_told_once(Asked::Directory(dir), "mknod");
    assert_eq!(world.lookup(0, dir, &later), Err(2));
}
