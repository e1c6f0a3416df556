//! Access times: what counts, who is told, and that nothing is sent for them.

use crate::world::{O_RDONLY, TOP, World};
use base::{Attr, Duration, SetTime, TargetId, WallTime};
use client::{AccessRule, AccessTimes, Call, Input, SetattrCall, Setting, TargetSetting};

const O_NOATIME: u32 = 0o1_000_000;
/// What the kernel adds to the flags of an open for execve(2).
const FMODE_EXEC: u32 = 0x20;

fn set_rule(world: &mut World, mount: usize, rule: AccessRule) {
    let times = AccessTimes { files: rule, directories: rule };
    world.input(mount, Input::Set(Setting::AccessTimes(times)));
}

/// A file `f` that mount 0 has made.
fn world() -> (World, u64) {
    let mut world = World::new(1, 1, 2);
    // It is written through a handle that may read.
    set_rule(&mut world, 0, AccessRule::Never);
    let (node, _) = world.write_small_file(0, "f");
    world.pass(Duration::from_secs(3));
    (world, node)
}

fn read_with(world: &mut World, mount: usize, flags: u32) {
    let node = world.lookup(mount, TOP, "f").expect("it is there").node;
    let (fh, _) = world.open(mount, node, flags);
    world.read(mount, (node, fh), 0, 5000);
    world.release(mount, (node, fh));
}

/// What mount 0 sees a while after.
fn seen(world: &mut World, node: u64) -> Attr {
    world.pass(Duration::from_secs(3));
    world.attr(0, node)
}

#[test]
fn a_read_is_seen_by_the_other_mount_and_changes_nothing_else() {
    let (mut world, node) = world();
    let before = world.attr(0, node);
    read_with(&mut world, 1, O_RDONLY);
    assert!(world.attr(1, node).atime > before.mtime, "the reader knows at once");
    let after = seen(&mut world, node);
    assert!(after.atime > before.atime, "{before:?} {after:?} {:?}", world.attr(1, node));
    assert_eq!((after.mtime, after.ctime), (before.mtime, before.ctime));
    assert_eq!(world.attr(1, node).atime, after.atime, "both say the same");
}

#[test]
fn relatime_counts_once_after_a_change_and_once_a_day_and_strictatime_always() {
    let (mut world, node) = world();
    read_with(&mut world, 1, O_RDONLY);
    let first = seen(&mut world, node).atime;
    read_with(&mut world, 1, O_RDONLY);
    assert_eq!(seen(&mut world, node).atime, first, "not again");
    set_rule(&mut world, 1, AccessRule::Always);
    read_with(&mut world, 1, O_RDONLY);
    let strict = seen(&mut world, node).atime;
    assert!(strict > first);
    set_rule(&mut world, 1, AccessRule::Relative);
    let yesterday = SetTime::To(WallTime(strict.0 - 25 * 3600 * 1_000_000_000));
    let set = SetattrCall { atime: Some(yesterday), ..Default::default() };
    world.call(0, Call::Setattr { node, set }).expect("it is set");
    assert!(world.attr(1, node).atime < first, "utimensat(2) goes back");
    read_with(&mut world, 1, O_RDONLY);
    assert!(seen(&mut world, node).atime > strict);
}

#[test]
fn noatime_and_an_open_with_o_noatime_change_nothing() {
    let (mut world, node) = world();
    let before = world.attr(0, node).atime;
    read_with(&mut world, 1, O_RDONLY | O_NOATIME);
    assert_eq!(seen(&mut world, node).atime, before);
    set_rule(&mut world, 1, AccessRule::Never);
    read_with(&mut world, 1, O_RDONLY);
    assert_eq!(seen(&mut world, node).atime, before);
}

#[test]
fn what_utimensat_has_set_is_not_overtaken_by_a_read_before_it() {
    for setter in [0, 1] {
        let (mut world, node) = world();
        set_rule(&mut world, 1, AccessRule::Always);
        read_with(&mut world, 1, O_RDONLY);
        let set = SetattrCall { atime: Some(SetTime::To(WallTime(5))), ..Default::default() };
        world.call(setter, Call::Setattr { node, set }).expect("it is set");
        assert_eq!(seen(&mut world, node).atime, WallTime(5), "set by mount {setter}");
        assert_eq!(world.attr(1, node).atime, WallTime(5), "set by mount {setter}");
    }
}

#[test]
fn no_rule_costs_a_request_more_than_another() {
    let costs = [AccessRule::Never, AccessRule::Relative, AccessRule::Always].map(|rule| {
        let (mut world, node) = world();
        set_rule(&mut world, 1, rule);
        world.lookup(1, TOP, "f").expect("it is there");
        world.cost(1, |world| {
            for _ in 0..10 {
                read_with(world, 1, O_RDONLY);
                world.attr(1, node);
                world.names(1, TOP);
                world.attr(1, TOP);
            }
            // With pings, which take along what was not told otherwise.
            world.pass(Duration::from_secs(20));
        })
    });
    assert!(costs[0]["mds_open"] >= 10, "{costs:?}");
    assert_eq!(costs[0], costs[1]);
    assert_eq!(costs[0], costs[2]);
}

/// The 64 mounts of `bench ab` (docs/operating/compare.md), which times what this counts: each makes small files in a directory of its own, reads
/// them twice, and once again when it knows nothing of them any more.
#[test]
fn sixty_four_mounts_send_the_same_requests_with_relatime_as_with_noatime() {
    const MOUNTS: usize = 64;
    const FILES: usize = 8;
    let all = [AccessRule::Relative, AccessRule::Never].map(|rule| {
        let mut world = World::new(2, 4, MOUNTS);
        world.is_checking = false;
        let dirs: Vec<u64> = (0..MOUNTS)
            .map(|mount| {
                set_rule(&mut world, mount, rule);
                world.mkdir(mount, TOP, &format!("d{mount}"))
            })
            .collect();
        let read_all = |world: &mut World| {
            for (mount, dir) in dirs.iter().enumerate() {
                for file in 0..FILES {
                    let node = world.lookup(mount, *dir, &format!("f{file}")).expect("it was made").node;
                    let (fh, _) = world.open(mount, node, O_RDONLY);
                    assert_eq!(world.read(mount, (node, fh), 0, 4096).len(), 4096);
                    world.release(mount, (node, fh));
                }
            }
            world.pass(Duration::from_secs(3));
        };
        for (mount, dir) in dirs.iter().enumerate() {
            for file in 0..FILES {
                let file = world.create(mount, *dir, &format!("f{file}"));
                assert_eq!(world.write(mount, file, 0, &[7; 4096]), Ok(4096));
                world.release(mount, file);
            }
        }
        world.pass(Duration::from_secs(3));
        read_all(&mut world);
        read_all(&mut world);
        for mount in 0..MOUNTS {
            for target in (0..2).map(TargetId::mdt).chain((0..4).map(TargetId::ost)) {
                world.input(mount, Input::Set(Setting::Target(target, TargetSetting::DropIdleLocks)));
            }
        }
        world.run();
        read_all(&mut world);
        let counts = (0..MOUNTS).map(|mount| world.counts(mount)).collect::<Vec<_>>();
        let atimes = (0..MOUNTS).map(|mount| {
            let node = world.lookup(mount, dirs[mount], "f0").expect("it was made").node;
            let attr = world.attr(mount, node);
            attr.atime > attr.mtime
        });
        (counts, atimes.filter(|is_read| *is_read).count())
    });
    let [(relatime, seen), (noatime, unseen)] = all;
    assert!(relatime.iter().all(|counts| counts["mds_open"] as usize >= FILES), "{relatime:?}");
    assert_eq!(relatime, noatime);
    assert_eq!((seen, unseen), (MOUNTS, 0), "the rule is in force");
}

/// A program that is run is opened for that; of what is mapped the descriptor is closed before a page is read. Both are released last.
#[test]
fn what_is_run_or_mapped_counts_when_it_is_let_go_and_costs_nothing_more() {
    let costs = [AccessRule::Never, AccessRule::Relative, AccessRule::Always].map(|rule| {
        let (mut world, node) = world();
        let set = SetattrCall { mode: Some(0o755), ..Default::default() };
        world.call(0, Call::Setattr { node, set }).expect("it can be run now");
        set_rule(&mut world, 1, rule);
        world.lookup(1, TOP, "f").expect("it is there");
        world.cost(1, |world| {
            for flags in [O_RDONLY | FMODE_EXEC, O_RDONLY] {
                for is_first in [true, false] {
                    let before = world.attr(0, node).atime;
                    let (fh, _) = world.open(1, node, flags);
                    world.call(1, Call::Flush { node, fh, lock_owner: 1 }).expect("a descriptor is closed");
                    world.read(1, (node, fh), 0, 5000);
                    assert_eq!(seen(world, node).atime, before, "while it is there");
                    world.release(1, (node, fh));
                    let is_counted = match rule {
                        AccessRule::Never => false,
                        AccessRule::Relative => is_first && flags != O_RDONLY,
                        AccessRule::Always => true,
                    };
                    assert_eq!(seen(world, node).atime > before, is_counted, "{rule:?} {flags:x}");
                }
            }
        })
    });
    assert!(costs[0]["mds_open"] >= 4, "{costs:?}");
    assert_eq!(costs[0], costs[1]);
    assert_eq!(costs[0], costs[2]);
}

#[test]
fn a_listing_counts_for_the_directory() {
    let (mut world, _) = world();
    let directory = world.mkdir(0, TOP, "d");
    let before = world.attr(0, directory).atime;
    world.lookup(1, TOP, "d").expect("it is there");
    world.names(1, directory);
    assert!(world.attr(1, directory).atime > before);
    read_with(&mut world, 1, O_RDONLY);
    assert!(seen(&mut world, directory).atime > before);
}

#[test]
fn a_second_listing_counts_with_strictatime_only() {
    for (rule, is_counted) in [(AccessRule::Relative, false), (AccessRule::Always, true)] {
        let (mut world, _) = world();
        let directory = world.mkdir(0, TOP, "d");
        set_rule(&mut world, 1, rule);
        world.lookup(1, TOP, "d").expect("it is there");
        let list = |world: &mut World| {
            world.names(1, directory);
            let read = world.attr(1, directory).atime;
            // With a ping the MDT is told.
            world.pass(Duration::from_secs(10));
            (read, world.attr(0, directory).atime)
        };
        let first = list(&mut world);
        let second = list(&mut world);
        assert_eq!((second.0 > first.0, second.1 > first.1), (is_counted, is_counted), "{rule:?}");
        // What is made in it is a change.
        world.mkdir(0, directory, "e");
        world.pass(Duration::from_secs(1));
        assert!(list(&mut world).1 > second.1, "{rule:?}");
    }
}

/// The second of them is answered from what this mount knows, and nothing else goes to the MDT.
fn listed_twice(world: &mut World) -> u64 {
    let directory = world.mkdir(0, TOP, "d");
    set_rule(world, 1, AccessRule::Always);
    world.lookup(1, TOP, "d").expect("it is there");
    world.names(1, directory);
    let before = world.counts(1);
    world.names(1, directory);
    assert_eq!(world.counts(1), before, "from caches");
    directory
}

#[test]
fn a_listing_from_caches_is_told_with_a_ping() {
    let (mut world, _) = world();
    let directory = listed_twice(&mut world);
    let read = world.attr(1, directory).atime;
    let before = world.counts(1);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.attr(0, directory).atime, read);
    assert_eq!(world.counts(1), before, "no request of its own");
}

#[test]
fn what_was_read_is_told_at_a_clean_unmount() {
    let (mut world, node) = world();
    let directory = listed_twice(&mut world);
    read_with(&mut world, 1, O_RDONLY);
    let read = [world.attr(1, node).atime, world.attr(1, directory).atime];
    world.input(1, Input::Drain { patience: Duration::from_secs(10) });
    world.run();
    assert_eq!([world.attr(0, node).atime, world.attr(0, directory).atime], read);
}

/// The first of many who read a changed file tells of it; what the others tell calls nobody back.
#[test]
fn a_second_reader_changes_nothing_with_relatime() {
    let (mut world, node) = world();
    let name = |mount, world: &mut World| world.lookup(mount, TOP, "f").expect("it is there").node;
    let (one, other) = (name(0, &mut world), name(1, &mut world));
    set_rule(&mut world, 0, AccessRule::Relative);
    let (first, _) = world.open(0, one, O_RDONLY);
    let (second, _) = world.open(1, other, O_RDONLY);
    world.release(0, (one, first));
    let told = seen(&mut world, node);
    world.release(1, (other, second));
    let after = seen(&mut world, node);
    assert_eq!((after.atime, after.version), (told.atime, told.version));
}

#[test]
fn making_an_empty_file_is_no_read_of_it() {
    let mut world = World::new(1, 1, 1);
    set_rule(&mut world, 0, AccessRule::Always);
    let file = world.create_with(0, TOP, "new", O_RDONLY);
    let made = world.attr(0, file.0);
    world.release(0, file);
    assert_eq!(world.attr(0, file.0), made);
    assert_eq!(seen(&mut world, file.0), made);
    // The same flags on what is there already: a read.
    let file = world.create_with(0, TOP, "new", O_RDONLY);
    world.release(0, file);
    assert!(seen(&mut world, file.0).atime > made.atime);
}
