//! What `-o dirsync` and `-o sync` promise: a change is durable when it is answered.

use crate::world::{O_EXCL, O_RDWR, TOP, World};
use base::{Duration, TargetId};
use client::{Answer, Call, Input, SetattrCall, Setting, SyncRule};

/// -> The world, a directory, and a file in it that is open; all of it is durable, and nothing becomes so from now on.
fn world_with(rule: SyncRule) -> (World, u64, (u64, u64)) {
    let mut world = World::new(1, 2, 2);
    world.input(0, Input::Set(Setting::SyncRule(rule)));
    let directory = world.mkdir(0, TOP, "d");
    let file = world.create(0, directory, "f");
    assert_eq!(world.write(0, file, 0, &[7; 100]), Ok(100));
    let call = Call::Fsync { node: file.0, fh: file.1, data_only: false };
    assert_eq!(world.call(0, call), Ok(Answer::Done));
    world.sync();
    world.is_syncing = false;
    (world, directory, file)
}

fn changes_of_names(parent: u64, file: u64) -> Vec<Call> {
    let name = |name: &str| name.as_bytes().to_vec();
    let (mode, umask) = (0o644, 0);
    let rename = |from: &str, new_parent, to: &str| Call::Rename {
        parent,
        name: name(from),
        new_parent,
        new_name: name(to),
        flags: 0,
    };
    vec![
        Call::Mkdir { parent, name: name("sub"), mode, umask },
        Call::Mknod { parent, name: name("fifo"), mode: 0o010_644, umask, rdev: 0 },
        Call::Symlink { parent, name: name("symlink"), target: name("f") },
        Call::Link { node: file, parent, name: name("link") },
        Call::Create { parent, name: name("new"), mode, umask, flags: O_RDWR | O_EXCL },
        rename("new", parent, "newer"),
        rename("newer", TOP, "newest"),
        Call::Unlink { parent, name: name("link") },
        Call::Rmdir { parent, name: name("sub") },
    ]
}

fn changes_of_inodes((node, fh): (u64, u64)) -> Vec<Call> {
    let set = |set| Call::Setattr { node, set };
    let (name, value) = (b"user.x".to_vec(), b"1".to_vec());
    vec![
        set(SetattrCall { mode: Some(0o600), ..SetattrCall::default() }),
        set(SetattrCall { size_bytes: Some(50), ..SetattrCall::default() }),
        set(SetattrCall { size_bytes: Some(40), fh: Some(fh), ..SetattrCall::default() }),
        Call::Setxattr { node, name: name.clone(), value, flags: 0 },
        Call::Removexattr { node, name },
        Call::Fallocate { node, fh, offset_bytes: 0, byte_count: 8192, mode: 0 },
        Call::CopyFileRange {
            node,
            fh,
            offset_bytes: 0,
            to_node: node,
            to_fh: fh,
            to_offset_bytes: 8192,
            byte_count: 10,
        },
    ]
}

/// Whether each is answered while nothing becomes durable; it is when it does.
fn are_answered_early(world: &mut World, calls: Vec<Call>) -> Vec<(Call, bool)> {
    let mut answered = Vec::new();
    for call in calls {
        let id = world.begin(0, call.clone());
        let is_answered = world.is_answered(0, id);
        world.is_syncing = true;
        let answer = world.finish(0, id);
        assert!(answer.is_ok(), "{call:?}: {answer:?}");
        world.is_syncing = false;
        answered.push((call, is_answered));
    }
    answered
}

#[test]
fn changes_are_answered_when_they_are_durable_where_the_mount_is_so() {
    let rules = [(SyncRule::None, true, true), (SyncRule::Names, false, true), (SyncRule::All, false, false)];
    for (rule, names_early, inodes_early) in rules {
        let (mut world, directory, file) = world_with(rule);
        for (call, is_early) in are_answered_early(&mut world, changes_of_names(directory, file.0)) {
            assert_eq!(is_early, names_early, "{rule:?}: {call:?}");
        }
        for (call, is_early) in are_answered_early(&mut world, changes_of_inodes(file)) {
            assert_eq!(is_early, inodes_early, "{rule:?}: {call:?}");
        }
    }
}

/// Client and MDT lose power as soon as the call is answered.
#[test]
fn a_name_is_there_after_a_power_failure_of_all() {
    let (mut world, directory, _) = world_with(SyncRule::Names);
    let rename = Call::Rename {
        parent: directory,
        name: b"f".to_vec(),
        new_parent: TOP,
        new_name: b"g".to_vec(),
        flags: 0,
    };
    let id = world.begin(0, rename);
    if !world.is_answered(0, id) {
        world.sync();
    }
    assert!(world.is_answered(0, id));
    world.mounts[0].is_cut_off = true;
    world.lose_power(TargetId::mdt(0));
    world.is_syncing = true;
    assert!(world.lookup(1, TOP, "g").is_ok());
}

/// Who asks hears of an eviction that may have taken the change with it, and the kernel looks names up again.
#[test]
fn a_change_that_may_be_lost_is_an_error() {
    let (mut world, directory, _) = world_with(SyncRule::Names);
    let call = Call::Mkdir { parent: directory, name: b"sub".to_vec(), mode: 0o755, umask: 0 };
    let id = world.begin(0, call);
    assert!(!world.is_answered(0, id));
    world.evict(0, 0);
    world.is_syncing = true;
    assert_eq!(world.finish(0, id), Err(5));
    assert!(world.mounts[0].notified.contains(&client::Notify::IncEpoch));
    let node = world.lookup(1, TOP, "d").expect("it is durable").node;
    assert_eq!(world.names(1, node), ["f", "sub"], "it was not lost this time");
}

/// The OST has cut the file and evicts, and by the time that the MDT has answered too that is long over.
#[test]
fn a_change_that_an_eviction_may_have_taken_before_its_last_answer_is_an_error() {
    let (mut world, _, (node, fh)) = world_with(SyncRule::All);
    world.crash(TargetId::mdt(0));
    world.input(0, Input::ConnectionLost(TargetId::mdt(0)));
    let set = SetattrCall { size_bytes: Some(50), fh: Some(fh), ..SetattrCall::default() };
    let id = world.begin(0, Call::Setattr { node, set });
    assert!(!world.is_answered(0, id));
    world.evict_from_ost(0, 0);
    world.evict_from_ost(0, 1);
    world.pass(Duration::from_secs(60));
    let is_evicted = |event: &client::Event| matches!(event, client::Event::Evicted(target) if target.kind == base::TargetKind::Ost);
    assert!(world.mounts[0].events.iter().any(is_evicted));
    world.is_syncing = true;
    world.start(TargetId::mdt(0));
    world.pass(Duration::from_secs(5));
    assert_eq!(world.finish(0, id), Err(5));
}

/// What waits for a session was in none that has ended.
#[test]
fn a_change_that_was_not_sent_before_an_eviction_is_made_and_durable() {
    let (mut world, parent, (node, _)) = world_with(SyncRule::All);
    let mdt = TargetId::mdt(0);
    world.mounts[0].is_cut_off = true;
    world.input(0, Input::ConnectionLost(mdt));
    let name = |name: &str| name.as_bytes().to_vec();
    let calls = [
        Call::Mkdir { parent, name: name("sub"), mode: 0o755, umask: 0 },
        Call::Rename { parent, name: name("f"), new_parent: TOP, new_name: name("g"), flags: 0 },
        Call::Setattr { node, set: SetattrCall { mode: Some(0o600), ..SetattrCall::default() } },
    ];
    let begun = calls.map(|call| world.begin(0, call));
    world.evict(0, 0);
    world.mounts[0].is_cut_off = false;
    world.is_syncing = true;
    let answers = begun.map(|id| world.finish(0, id));
    assert!(world.mounts[0].events.contains(&client::Event::Evicted(mdt)));
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    world.lose_power(mdt);
    world.pass(Duration::from_secs(10));
    assert_eq!(
        (world.names(1, TOP), world.names(1, parent)),
        (vec!["d".into(), "g".into()], vec!["sub".into()])
    );
}

/// Another mount exchanges what was renamed with a second file while this mount waits until its rename is durable, and looks it up meanwhile.
#[test]
fn what_was_renamed_and_waits_for_a_sync_is_where_others_have_put_it_since() {
    const EXCHANGE: u32 = 2;
    let mut world = World::new(1, 1, 2);
    world.input(0, Input::Set(Setting::SyncRule(SyncRule::Names)));
    let dir = world.mkdir(0, TOP, "d");
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    let [first, second] = ["a", "c"].map(|name| {
        let file = world.create(1, there, name);
        world.release(1, file);
        file.0
    });
    world.pass(Duration::from_secs(3));
    assert!(world.lookup(0, dir, "a").is_ok_and(|entry| !entry.entry_valid.is_zero()));
    let rename = |parent, name: &str, flags| {
        let (name, new_name) = (name.into(), b"b".to_vec());
        Call::Rename { parent, name, new_parent: parent, new_name, flags }
    };
    world.is_syncing = false;
    let moving = world.begin(0, rename(dir, "a", 0));
    assert!(!world.is_answered(0, moving));
    assert_eq!(world.call(1, rename(there, "c", EXCHANGE)), Ok(Answer::Done));
    assert_eq!(world.lookup(0, dir, "b").map(|entry| entry.node), Ok(second));
    world.is_syncing = true;
    assert_eq!(world.finish(0, moving), Ok(Answer::Done));
    assert_eq!(world.lookup(0, dir, "b").map(|entry| entry.node), Ok(second));
    assert_eq!(world.lookup(0, dir, "c").map(|entry| entry.node), Ok(first));
}
