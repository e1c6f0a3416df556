//! Files that are written once and closed: what each costs in requests.

use crate::world::{Loss, O_RDWR, TOP, World, write_call};
use base::{Duration, TargetId, TargetKind};
use client::{Answer, Call, Notify};
use std::collections::BTreeMap;

const ENOENT: i32 = 2;

pub type Counts = BTreeMap<&'static str, u64>;

impl World {
    /// Requests of a mount to MDTs and OSTs, without what keeps sessions alive.
    pub fn counts(&self, mount: usize) -> Counts {
        let mut counts = Counts::new();
        for kind in [TargetKind::Mdt, TargetKind::Ost] {
            for (name, count) in self.requests(mount, kind) {
                *counts.entry(name).or_default() += count;
            }
        }
        counts.retain(|name, _| !matches!(*name, "ping" | "connect"));
        counts
    }

    /// What `work` costs the mount, with what follows in the next seconds.
    pub fn cost(&mut self, mount: usize, work: impl FnOnce(&mut World)) -> Counts {
        let before = self.counts(mount);
        work(self);
        self.pass(Duration::from_secs(10));
        let mut counts = self.counts(mount);
        counts.iter_mut().for_each(|(name, count)| *count -= before.get(name).copied().unwrap_or(0));
        counts.retain(|_, count| *count > 0);
        counts
    }

    pub fn write_small_file(&mut self, mount: usize, name: &str) -> (u64, u64) {
        let file = self.create(mount, TOP, name);
        assert_eq!(self.write(mount, file, 0, &[7; 4096]), Ok(4096));
        self.release(mount, file);
        file
    }
}

pub fn counts<const N: usize>(of: [(&'static str, u64); N]) -> Counts {
    of.into()
}

#[test]
fn a_small_file_that_is_written_and_closed_costs_so_many_requests() {
    let mut world = World::new(1, 2, 2);
    world.write_small_file(0, "first");
    world.pass(Duration::from_secs(3));
    let cost = world.cost(0, |world| {
        world.write_small_file(0, "second");
    });
    let expected = counts([("mds_create", 1), ("ost_write", 1), ("mds_close", 1), ("mds_report_size", 1)]);
    assert_eq!(cost, expected);
    // What was reported is what the object has: others ask the MDT alone.
    let node = world.lookup(1, TOP, "second").expect("it was made").node;
    let attr = world.attr(1, node);
    assert_eq!((attr.size_bytes, attr.block_count), (4096, 8));
    assert_eq!(world.sent(1, TargetKind::Ost, "ost_getattr"), 0);
}

/// As rsync, make and git do. The MDT tells with the answer to the close what it has, and the mount knows what it has written.
#[test]
fn a_file_is_looked_at_after_its_close_without_a_request() {
    let mut world = World::new(1, 2, 2);
    world.write_small_file(0, "first");
    world.pass(Duration::from_secs(3));
    let cost = world.cost(0, |world| {
        let (node, _) = world.write_small_file(0, "second");
        assert_eq!(world.attr(0, node).size_bytes, 4096);
    });
    let expected = counts([("mds_create", 1), ("ost_write", 1), ("mds_close", 1), ("mds_report_size", 1)]);
    assert_eq!(cost, expected);
    // Another mount has written since, so nothing of that is believed.
    let (node, _) = world.write_small_file(0, "shared");
    let found = world.lookup(1, TOP, "shared").expect("it was made").node;
    let file = (found, world.open(1, found, O_RDWR).0);
    world.write(1, file, 4096, &[8; 100]).expect("written");
    assert_eq!(world.attr(0, node).size_bytes, 4196);
    world.release(1, file);
    assert_eq!(world.attr(0, node).size_bytes, 4196);
}

#[test]
fn a_size_told_by_a_write_is_asked_for_after_a_restart_and_after_anothers_write() {
    let mut world = World::new(1, 1, 2);
    // The OST forgets what it had not made durable, and the replay is another write.
    let file = world.create(0, TOP, "restarted");
    world.write(0, file, 0, &[7; 4096]).expect("written");
    world.crash(TargetId::ost(0));
    world.start(TargetId::ost(0));
    let cost = world.cost(0, |world| world.release(0, file));
    assert_eq!(cost.get("ost_getattr"), Some(&1));
    assert_eq!(cost.get("mds_report_size"), Some(&1));
    // Another mount has taken the lock, and made the file longer.
    let file = world.create(0, TOP, "shared");
    world.write(0, file, 0, &[7; 4096]).expect("written");
    let node = world.lookup(1, TOP, "shared").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    world.write(1, (node, fh), 4096, &[8; 100]).expect("written");
    world.release(1, (node, fh));
    assert_eq!(world.attr(0, file.0).size_bytes, 4196);
    world.release(0, file);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.attr(1, node).size_bytes, 4196);
}

#[test]
fn a_lock_that_somebody_is_in_the_way_of_is_waited_for_after_the_write_was_refused() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "shared");
    let node = world.lookup(1, TOP, "shared").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    // The other mount locks the object with its write, and asks for nothing else.
    let cost = world.cost(1, |world| assert_eq!(world.write(1, (node, fh), 0, &[8; 100]), Ok(100)));
    assert_eq!((cost.get("ldlm_enqueue"), cost.get("ost_write")), (None, Some(&1)));
    let cost = world.cost(0, |world| assert_eq!(world.write(0, file, 50, &[7; 100]), Ok(100)));
    assert_eq!((cost.get("ldlm_enqueue"), cost.get("ost_write")), (Some(&1), Some(&2)));
    let expected = [vec![8; 50], vec![7; 100]].concat();
    assert_eq!(world.read(1, (node, fh), 0, 4096), expected);
    // It is remembered of the file.
    let cost = world.cost(0, |world| assert_eq!(world.write(0, file, 0, &[6; 50]), Ok(50)));
    assert_eq!((cost.get("ldlm_enqueue"), cost.get("ost_write")), (Some(&1), Some(&1)));
    assert_eq!(world.read(1, (node, fh), 0, 50), [6; 50]);
}

/// The OST has executed a write and granted its lock; the answer is lost, and given again by the row of its slot after a
/// restart that has forgotten the lock.
#[test]
fn an_answer_from_before_a_restart_brings_no_lock() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "file");
    let node = world.lookup(1, TOP, "file").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    world.mounts[0].loses = Some(Loss::AnswersToWrites);
    let writing = world.begin(0, write_call(file, 0, &[7; 4096]));
    world.run();
    assert!(!world.is_answered(0, writing));
    world.sync();
    world.crash(TargetId::ost(0));
    world.start(TargetId::ost(0));
    world.mounts[0].loses = None;
    world.mounts[0].notified.clear();
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(4096)));
    assert_eq!(world.sent(0, TargetKind::Ost, "ost_write"), 1, "it was executed once");
    let drops_pages = |notify: &Notify| matches!(notify, Notify::InvalInode { byte_count: 4096, .. });
    assert!(
        world.mounts[0].notified.iter().any(drops_pages),
        "no lock covers what the kernel has in its page"
    );
    // Others need not wait for anybody, and what they write is seen: nothing of it is believed here.
    let before = world.mounts[0].notified.len();
    assert_eq!(world.write(1, (node, fh), 0, &[8; 100]), Ok(100));
    assert_eq!(world.mounts[0].notified.len(), before, "there is no lock to call back");
    assert_eq!(world.read(0, file, 0, 4096), [vec![8; 100], vec![7; 3996]].concat());
    assert_eq!(world.attr(0, file.0).size_bytes, 4096);
}

#[test]
fn locks_on_files_that_are_removed_go_back_together() {
    let mut world = World::new(1, 1, 1);
    for number in 0..20 {
        world.write_small_file(0, &format!("f{number}"));
    }
    world.pass(Duration::from_secs(3));
    let cost = world.cost(0, |world| {
        for number in 0..20 {
            let call = Call::Unlink { parent: TOP, name: format!("f{number}").into_bytes() };
            assert_eq!(world.call(0, call), Ok(Answer::Done));
        }
    });
    // One with those on the inodes, one with those on the objects.
    assert_eq!(cost, counts([("mds_unlink", 20), ("ldlm_cancel", 2)]));
    assert_eq!(world.object_count(0), 0, "the objects are gone");
}

impl World {
    /// A file is made, gets another name, and is removed, as by an editor.
    fn make_rename_and_remove(&mut self, dir: u64, name: &str) {
        let file = self.create(0, dir, name);
        self.release(0, file);
        let renamed = format!("{name}-renamed").into_bytes();
        let (name, new_name) = (name.into(), renamed.clone());
        let rename = Call::Rename { parent: dir, name, new_parent: dir, new_name, flags: 0 };
        assert_eq!(self.call(0, rename), Ok(Answer::Done));
        assert_eq!(self.call(0, Call::Unlink { parent: dir, name: renamed }), Ok(Answer::Done));
    }
}

/// What is gone is not locked: a restarted MDT takes all locks in, and hears of each from its holder, before anybody goes on.
#[test]
fn who_makes_and_removes_files_keeps_few_locks() {
    const LOCKS_MAX: usize = 300;
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    for number in 0..2 * LOCKS_MAX {
        world.make_rename_and_remove(dir, &format!("f{number}"));
    }
    // So does one that was removed while it was open, when it is closed.
    for _ in 0..2 * LOCKS_MAX {
        let file = world.create(0, dir, "temporary");
        let unlink = Call::Unlink { parent: dir, name: b"temporary".into() };
        assert_eq!(world.call(0, unlink), Ok(Answer::Done));
        world.release(0, file);
    }
    world.pass(Duration::from_secs(3));
    let kept = world.mdt_lock_count(0);
    assert!(kept < LOCKS_MAX, "{kept} locks");
}

/// Neither does one that was only read.
#[test]
fn who_reads_what_is_removed_meanwhile_keeps_few_locks() {
    const LOCKS_MAX: usize = 300;
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    for _ in 0..2 * LOCKS_MAX {
        let file = world.create(0, dir, "temporary");
        world.release(0, file);
        let (fh, _) = world.open(0, file.0, 0);
        let unlink = Call::Unlink { parent: dir, name: b"temporary".into() };
        assert_eq!(world.call(0, unlink), Ok(Answer::Done));
        world.release(0, (file.0, fh));
    }
    world.pass(Duration::from_secs(3));
    let kept = world.mdt_lock_count(0);
    assert!(kept < LOCKS_MAX, "{kept} locks");
}

/// A name that is made again just when its lock is to go back keeps it: the kernel is not told to forget it.
#[test]
fn a_name_that_is_made_again_in_time_keeps_its_lock() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    let rmdir = |name: String| Call::Rmdir { parent: dir, name: name.into_bytes() };
    let names = || (0..257).map(|number| format!("d{number}"));
    for name in names() {
        world.mkdir(0, dir, &name);
    }
    world.pass(Duration::from_secs(3));
    for name in names() {
        assert_eq!(world.call(0, rmdir(name)), Ok(Answer::Done));
    }
    world.mkdir(0, dir, "d0");
    world.mounts[0].notified.clear();
    world.pass(Duration::from_secs(3));
    // It may have to forget the inodes that are gone.
    let is_about_names = |notify: &&Notify| !matches!(notify, Notify::InvalInode { .. });
    assert_eq!(world.mounts[0].notified.iter().find(is_about_names), None);
    let cost = world.cost(0, |world| assert!(world.lookup(0, dir, "d0").is_ok()));
    assert_eq!(cost, counts([]));
}

/// The lock says that the name is not there, for who makes it again: until many others have gone.
#[test]
fn the_lock_on_a_name_that_comes_and_goes_is_kept() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    for number in 0..600 {
        world.make_rename_and_remove(dir, "again");
        if number % 2 == 0 {
            world.make_rename_and_remove(dir, &format!("f{number}"));
        }
    }
    world.pass(Duration::from_secs(3));
    let cost = world.cost(0, |world| assert_eq!(world.lookup(0, dir, "again"), Err(ENOENT)));
    assert_eq!(cost, counts([]));
    let cost = world.cost(0, |world| assert_eq!(world.lookup(0, dir, "f0"), Err(ENOENT)));
    assert_eq!(cost.values().sum::<u64>(), 1, "{cost:?}");
}
