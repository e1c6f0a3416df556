//! Restarts of servers, and evictions.

use crate::world::{Loss, O_EXCL, O_RDONLY, O_RDWR, TOP, World, append_call, write_call};
use base::{Duration, TargetId};
use client::{Answer, Call, Event, Input, Notify, NotifyId, NotifyResult, SetattrCall};
use wire::mdt::{FileLock, FlockKind};

const O_DIRECT: u32 = 0o40000;
const EINTR: i32 = 4;
const EIO: i32 = 5;

#[test]
fn acknowledged_work_survives_a_crash_of_both_servers() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    let file = world.create(0, dir, "f");
    // Sessions begin with something durable.
    assert_eq!(world.write(0, file, 0, b"first"), Ok(5));
    world.pass(Duration::from_secs(2));
    world.is_syncing = false;
    assert_eq!(world.write(0, file, 0, b"not yet durable"), Ok(15));
    assert!(world.unsynced_count(0) > 0);
    for target in [TargetId::mdt(0), TargetId::ost(0)] {
        world.crash(target);
        world.start(target);
    }
    world.is_syncing = true;
    assert_eq!(world.read(0, file, 0, 100), b"not yet durable");
    assert_eq!(world.names(0, dir), vec!["f"]);
    assert_eq!(world.attr(0, file.0).size_bytes, 15);
    world.release(0, file);
    world.pass(Duration::from_secs(10));
    assert!(world.attr(0, file.0).is_size_known);
    assert!(!world.mounts[0].events.iter().any(|event| matches!(event, Event::Evicted(_))));
}

#[test]
fn open_files_and_advisory_locks_survive_a_restart_of_the_mdt() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    let (node, fh) = file;
    let lock = |owner, kind| FileLock { owner, pid: 1, is_flock: false, kind, extent: base::Extent::WHOLE };
    let set = |node, fh, lock| Call::Setlk { node, fh, lock, can_wait: false };
    assert_eq!(world.call(0, set(node, fh, lock(1, FlockKind::Write))), Ok(Answer::Done));
    assert_eq!(world.call(0, Call::Unlink { parent: TOP, name: b"f".into() }), Ok(Answer::Done));
    let other = world.create(1, TOP, "g");
    world.sync();
    world.crash(TargetId::mdt(0));
    world.start(TargetId::mdt(0));
    assert_eq!(world.write(0, file, 0, b"kept"), Ok(4));
    assert_eq!(world.attr(0, node).link_count, 0);
    assert_eq!(world.attr(1, other.0).link_count, 1);
    world.release(0, file);
    world.pass(Duration::from_secs(5));
}

/// Waiting and the end of waiting both begin while the MDT is away. It hears of them in that order, else the lock would go
/// to somebody who has left.
#[test]
fn who_gave_up_while_the_mdt_was_away_gets_no_lock_afterwards() {
    let mut world = World::new(1, 1, 2);
    let mdt = TargetId::mdt(0);
    let file = world.create(0, TOP, "f");
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    let lock = |owner, kind| FileLock { owner, pid: 1, is_flock: false, kind, extent: base::Extent::WHOLE };
    let set = |(node, fh), lock, can_wait| Call::Setlk { node, fh, lock, can_wait };
    assert_eq!(world.call(0, set(file, lock(1, FlockKind::Write), false)), Ok(Answer::Done));
    world.sync();
    world.crash(mdt);
    world.input(1, client::Input::ConnectionLost(mdt));
    let waiting = world.begin(1, set((node, fh), lock(2, FlockKind::Write), true));
    world.input(1, client::Input::Interrupt(waiting));
    world.start(mdt);
    assert_eq!(world.finish(1, waiting), Err(EINTR));
    assert_eq!(world.call(0, set(file, lock(1, FlockKind::Unlock), false)), Ok(Answer::Done));
    assert_eq!(world.call(0, set(file, lock(3, FlockKind::Write), false)), Ok(Answer::Done));
}

/// The MDT loses an unlink together with the client that made it. What the other one has cached of it goes too,
/// although its lock stays.
#[test]
fn names_seen_before_a_restart_of_the_mdt_are_looked_up_again() {
    let mut world = World::new(1, 1, 2);
    let mdt = TargetId::mdt(0);
    let file = world.create(0, TOP, "f");
    world.release(0, file);
    assert_eq!(world.names(1, TOP), vec!["f"]);
    world.pass(Duration::from_secs(3));
    world.is_syncing = false;
    assert_eq!(world.call(1, Call::Unlink { parent: TOP, name: b"f".into() }), Ok(Answer::Done));
    assert_eq!(world.lookup(0, TOP, "f").map_or(0, |entry| entry.node), 0, "it is gone");
    world.mounts[1].is_cut_off = true;
    world.crash(mdt);
    world.start(mdt);
    world.is_syncing = true;
    world.pass(Duration::from_secs(100));
    assert!(world.mounts[0].events.contains(&Event::Recovered(mdt)));
    assert_eq!(world.names(0, TOP), vec!["f"], "the unlink is lost");
    assert_eq!(world.lookup(0, TOP, "f").map(|entry| entry.node), Ok(file.0));
}

#[test]
fn a_last_close_whose_answer_was_lost_is_no_loss_after_a_restart_of_the_mdt() {
    let mut world = World::new(1, 1, 1);
    let mdt = TargetId::mdt(0);
    let kept = world.create(0, TOP, "kept");
    let file = world.create(0, TOP, "f");
    assert_eq!(world.call(0, Call::Unlink { parent: TOP, name: b"f".into() }), Ok(Answer::Done));
    world.pass(Duration::from_secs(2));
    // The close removes the file for good, and the client does not hear of it.
    world.mounts[0].is_deaf = true;
    world.release(0, file);
    world.sync();
    world.crash(mdt);
    world.start(mdt);
    world.mounts[0].is_deaf = false;
    world.pass(Duration::from_secs(20));
    let events = &world.mounts[0].events;
    assert!(events.contains(&Event::Recovered(mdt)), "{events:?}");
    assert!(!events.iter().any(|event| matches!(event, Event::ReplayRefused { .. })), "{events:?}");
    assert_eq!(world.write(0, kept, 0, b"goes on"), Ok(7));
    assert_eq!(world.names(0, TOP), vec!["kept"]);
}

/// Another mount's close measures the file while the cut can still be lost: the MDT must not believe that size.
#[test]
fn a_size_that_a_crash_can_take_back_is_not_reported() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, &[7; 5000]), Ok(5000));
    world.release(0, file);
    world.pass(Duration::from_secs(10));
    assert!(world.attr(0, file.0).is_size_known);
    let node = world.lookup(1, TOP, "f").expect("it is there").node;
    // Sessions begin with something durable.
    let (fh, _) = world.open(1, node, O_RDWR);
    assert_eq!(world.read(1, (node, fh), 0, 1), [7]);
    world.release(1, (node, fh));
    world.pass(Duration::from_secs(10));
    world.is_syncing = false;
    let set = client::SetattrCall { size_bytes: Some(100), ..Default::default() };
    assert!(world.call(0, Call::Setattr { node: file.0, set }).is_ok());
    let (fh, _) = world.open(1, node, O_RDWR);
    world.release(1, (node, fh));
    let attr = world.attr(1, node);
    assert_eq!((attr.size_bytes, attr.is_size_known), (100, false));
    world.is_syncing = true;
    world.pass(Duration::from_secs(20));
    let attr = world.attr(1, node);
    assert_eq!((attr.size_bytes, attr.is_size_known), (100, true));
}

/// An evicted client has its handles for writing counted again at once: otherwise the MDT would believe the size that
/// somebody else's close reports, and what is written through those handles would lie behind it.
#[test]
fn a_writer_counts_again_after_its_eviction() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"first"), Ok(5));
    world.pass(Duration::from_secs(2));
    world.evict(0, 0);
    world.pass(Duration::from_secs(10));
    assert!(world.mounts[0].events.contains(&Event::Evicted(TargetId::mdt(0))));
    let node = world.lookup(1, TOP, "f").expect("it is there").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    world.release(1, (node, fh));
    world.pass(Duration::from_secs(10));
    assert!(!world.attr(1, node).is_size_known);
    assert_eq!(world.write(0, file, 5, b" and more"), Ok(9));
    world.release(0, file);
    world.pass(Duration::from_secs(10));
    let attr = world.attr(1, node);
    assert_eq!((attr.size_bytes, attr.is_size_known), (14, true));
}

#[test]
fn files_that_are_open_to_read_are_open_again_after_an_eviction() {
    let mut world = World::new(1, 1, 2);
    let (node, fh) = world.create(0, TOP, "f");
    assert_eq!(world.write(0, (node, fh), 0, b"bytes"), Ok(5));
    world.release(0, (node, fh));
    world.pass(Duration::from_secs(10));
    let files: Vec<_> = (0..100).map(|_| (node, world.open(0, node, O_RDONLY | O_DIRECT).0)).collect();
    world.evict(0, 0);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.open_count(0), 100);
    assert_eq!(world.call(1, Call::Unlink { parent: TOP, name: b"f".into() }), Ok(Answer::Done));
    world.pass(Duration::from_secs(10));
    assert_eq!(world.read(0, files[99], 0, 100), b"bytes");
    files.into_iter().for_each(|file| world.release(0, file));
    world.pass(Duration::from_secs(20));
    assert_eq!(world.object_count(0), 0);
}

#[test]
fn calls_that_were_not_sent_before_an_eviction_are_sent_after_it() {
    let mut world = World::new(1, 1, 2);
    let make = |world: &mut World, name| {
        let file = world.create(0, TOP, name);
        world.release(0, file);
        file.0
    };
    let node = make(&mut world, "old");
    make(&mut world, "gone");
    world.pass(Duration::from_secs(5));
    world.mounts[0].is_cut_off = true;
    world.input(0, Input::ConnectionLost(TargetId::mdt(0)));
    let (parent, set) = (TOP, SetattrCall { mode: Some(0o600), ..SetattrCall::default() });
    let calls = [
        Call::Mkdir { parent, name: b"d".into(), mode: 0o755, umask: 0 },
        Call::Unlink { parent, name: b"gone".into() },
        Call::Rename { parent, name: b"old".into(), new_parent: TOP, new_name: b"new".into(), flags: 0 },
        Call::Open { node, flags: O_RDWR },
        Call::Setattr { node, set },
    ];
    let begun = calls.map(|call| world.begin(0, call));
    world.evict(0, 0);
    world.mounts[0].is_cut_off = false;
    let answers = begun.map(|call| world.finish(0, call));
    assert!(world.mounts[0].events.contains(&Event::Evicted(TargetId::mdt(0))));
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(world.names(1, TOP), ["d", "new"]);
    assert_eq!(world.attr(1, node).permissions, 0o600);
}

#[test]
fn an_open_whose_answer_was_lost_is_known_after_a_restart_of_the_mdt() {
    let mut world = World::new(1, 1, 2);
    let mdt = TargetId::mdt(0);
    let file = world.create(0, TOP, "f");
    world.release(0, file);
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    world.pass(Duration::from_secs(3));
    // It is executed, durably, and the client does not hear of it.
    world.mounts[0].is_deaf = true;
    let opening = world.begin(0, Call::Open { node: file.0, flags: O_RDWR });
    world.sync();
    world.crash(mdt);
    world.start(mdt);
    world.mounts[0].is_deaf = false;
    assert!(matches!(world.finish(0, opening), Ok(Answer::Opened { .. })));
    let (_, mode) = world.open(1, node, O_RDWR);
    assert!(mode.is_direct, "somebody else has it open");
}

/// The MDT answers the open from what it has kept, and gives up its client before it has heard once more what that has open. Others measure the
/// file meanwhile, as nobody has it open.
#[test]
fn an_open_whose_answer_was_lost_is_known_when_its_client_was_evicted_meanwhile() {
    let mut world = World::new(1, 1, 3);
    let mdt = TargetId::mdt(0);
    let file = world.create(0, TOP, "f");
    world.release(0, file);
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    world.lookup(2, TOP, "f").expect("it was made");
    world.pass(Duration::from_secs(3));
    world.mounts[0].is_deaf = true;
    let opening = world.begin(0, Call::Open { node: file.0, flags: O_RDWR | O_DIRECT });
    world.sync();
    world.crash(mdt);
    // The recovery waits for it.
    world.mounts[2].is_cut_off = true;
    world.start(mdt);
    world.mounts[0].is_deaf = false;
    world.pass(Duration::from_secs(20));
    assert!(world.is_recovering(0) && !world.is_answered(0, opening));
    world.evict(0, 0);
    world.mounts[2].is_cut_off = false;
    world.pass(Duration::from_secs(20));
    assert!(!world.is_recovering(0));
    assert!(world.mounts[0].events.contains(&Event::Evicted(mdt)));
    let Ok(Answer::Opened { fh, .. }) = world.finish(0, opening) else { panic!("it is open") };
    for _ in 0..3 {
        assert_eq!(world.attr(1, node).size_bytes, 0);
        world.pass(Duration::from_secs(10));
    }
    let open_count = world.open_count(0);
    assert_eq!(world.write(0, (file.0, fh), 0, &[7; 100]), Ok(100));
    world.release(0, (file.0, fh));
    world.pass(Duration::from_secs(5));
    assert_eq!(world.attr(1, node).size_bytes, 100);
    assert_eq!(open_count, 1, "the MDT knew of it");
}

/// The answer to a create is lost with the MDT. When it has recovered another mount removes the file at once.
#[test]
fn a_file_made_without_an_answer_is_open_after_a_restart_of_the_mdt() {
    // The MDT may be restarted once more at any time of the recovery.
    for frames_until_restart in 0..30 {
        let mut world = World::new(1, 1, 2);
        let mdt = TargetId::mdt(0);
        // They have sessions.
        for mount in [0, 1] {
            assert!(world.lookup(mount, TOP, "f").is_err());
        }
        world.mounts[1].is_deaf = true;
        let flags = O_RDWR | O_EXCL;
        let call = Call::Create { parent: TOP, name: b"f".into(), mode: 0o644, umask: 0, flags };
        let creating = world.begin(1, call);
        world.sync();
        world.crash(mdt);
        let removing = world.begin(0, Call::Unlink { parent: TOP, name: b"f".into() });
        world.start(mdt);
        world.mounts[1].is_deaf = false;
        if frames_until_restart > 0 {
            while !world.mounts[1].events.contains(&Event::Disconnected(mdt)) {
                world.carry_one_in_order();
            }
            for _ in 0..frames_until_restart {
                world.carry_one_in_order();
            }
            world.sync();
            world.crash(mdt);
            world.start(mdt);
        }
        assert_eq!(world.finish(0, removing), Ok(Answer::Done));
        let Ok(Answer::Created { entry, fh, .. }) = world.finish(1, creating) else { panic!("it was made") };
        let file = (entry.node, fh);
        assert_eq!(world.write(1, file, 0, b"kept"), Ok(4));
        assert_eq!(world.read(1, file, 0, 100), b"kept");
        assert_eq!(world.attr(1, file.0).link_count, 0);
        world.release(1, file);
        world.pass(Duration::from_secs(10));
        assert_eq!(world.object_count(0), 0);
    }
}

/// A directory is made, and its maker has not heard of it when the MDT loses it: nobody else had seen it. When the maker has heard of
/// it others see it and build on it at once, and all of it comes back.
#[test]
fn nothing_is_built_on_what_its_maker_has_not_heard_of() {
    let mut world = World::new(1, 1, 2);
    let mdt = TargetId::mdt(0);
    for mount in [0, 1] {
        // They have sessions, and what is durable so far is.
        world.lookup(mount, TOP, "d").expect_err("it is not there");
    }
    world.sync();
    world.is_syncing = false;
    world.mounts[0].is_late = Some(mdt);
    let making = world.begin(0, Call::Mkdir { parent: TOP, name: b"d".into(), mode: 0o755, umask: 0 });
    let looking = world.begin(1, Call::Lookup { parent: TOP, name: b"d".into() });
    assert!(!world.is_answered(1, looking), "nobody knows of it");
    // The restart takes it back, and it is made again.
    world.crash(mdt);
    world.start(mdt);
    world.mounts[0].is_late = None;
    world.is_syncing = true;
    world.finish(0, making).expect("it is made");
    world.finish(1, looking).expect("its directory is there");
    let dir = world.lookup(1, TOP, "d").expect("it is there").node;
    // The same while the maker has heard of it: nobody waits for the disk.
    world.is_syncing = false;
    world.mkdir(0, dir, "sub");
    world.lookup(0, TOP, "other").expect_err("it is not there");
    let sub = world.lookup(1, dir, "sub").expect("it is there").node;
    world.create(1, sub, "f");
    world.crash(mdt);
    world.start(mdt);
    world.is_syncing = true;
    world.pass(Duration::from_secs(20));
    assert_eq!(world.names(0, sub), ["f"]);
    for mount in &world.mounts {
        assert!(!mount.events.iter().any(|event| matches!(event, Event::ReplayRefused { .. })));
    }
}

/// A lookup waits for an OST while the MDT loses what the lookup had seen, with the mount that had done it. Its answer comes late and
/// is believed no more.
#[test]
fn attributes_from_before_a_restart_of_the_mdt_are_not_taken_in_after_it() {
    let mut world = World::new(1, 1, 2);
    let (mdt, ost) = (TargetId::mdt(0), TargetId::ost(0));
    let file = world.create(1, TOP, "f");
    assert_eq!(world.write(1, file, 0, b"data"), Ok(4));
    world.lookup(0, TOP, "g").expect_err("it is not there");
    world.pass(Duration::from_secs(3));
    world.is_syncing = false;
    let set = client::SetattrCall { mode: Some(0o600), ..Default::default() };
    world.call(1, Call::Setattr { node: file.0, set }).expect("changed");
    // The MDT hears that it is known.
    world.lookup(1, TOP, "g").expect_err("it is not there");
    world.mounts[0].is_late = Some(ost);
    let looking = world.begin(0, Call::Lookup { parent: TOP, name: b"f".into() });
    world.mounts[1].is_cut_off = true;
    world.crash(mdt);
    world.start(mdt);
    world.is_syncing = true;
    world.pass(Duration::from_secs(100));
    world.let_come(0);
    let Ok(Answer::Entry(entry)) = world.finish(0, looking) else { panic!("it is there") };
    for _ in 0..3 {
        assert_eq!(world.attr(0, entry.node).permissions, 0o644);
    }
}

#[test]
fn a_file_that_another_mount_made_stays_open_over_a_restart_of_its_mdt() {
    let mut world = World::new(1, 1, 2);
    // Sessions begin with something durable.
    for mount in [0, 1] {
        let file = world.create(mount, TOP, &format!("of {mount}"));
        assert_eq!(world.write(mount, file, 0, b"four"), Ok(4));
    }
    world.pass(Duration::from_secs(2));
    let mdt = TargetId::mdt(0);
    world.is_syncing = false;
    let file = world.create(0, TOP, "f");
    // The MDT hears that it is known.
    world.lookup(0, TOP, "g").expect_err("it is not there");
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDONLY);
    // Who has it open comes back before who made it.
    world.mounts[0].is_cut_off = true;
    world.crash(mdt);
    world.start(mdt);
    world.pass(Duration::from_secs(8));
    world.mounts[0].is_cut_off = false;
    world.is_syncing = true;
    world.pass(Duration::from_secs(20));
    assert_eq!(world.write(0, file, 0, b"four"), Ok(4));
    assert_eq!(world.read(1, (node, fh), 0, 10), b"four");
    let refused = |event: &Event| matches!(event, Event::ReplayRefused { .. });
    assert!(!world.mounts[1].events.iter().any(refused), "{:?}", world.mounts[1].events);
}

/// The OST evicts a mount while an append is on its way to it: once the request was lost, once the answer. Who cannot know
/// whether it is there says so, and it is never there twice.
#[test]
fn an_append_that_meets_an_eviction_is_done_once_or_refused() {
    for (loses, expected) in [(Loss::Writes, Ok(Answer::Written(6))), (Loss::AnswersToWrites, Err(EIO))] {
        let mut world = World::new(1, 1, 2);
        let file = world.create(0, TOP, "log");
        assert_eq!(world.call(0, append_call(file, b"first ")), Ok(Answer::Written(6)));
        world.pass(Duration::from_secs(3));
        world.mounts[0].loses = Some(loses);
        let appending = world.begin(0, append_call(file, b"second"));
        world.evict_from_ost(0, 0);
        world.mounts[0].loses = None;
        assert_eq!(world.finish(0, appending), expected);
        assert!(world.mounts[0].events.contains(&Event::Evicted(TargetId::ost(0))));
        assert_eq!(world.read(0, file, 0, 100), b"first second");
        assert_eq!(world.call(0, append_call(file, b" third")), Ok(Answer::Written(6)));
        let node = world.lookup(1, TOP, "log").expect("it is there").node;
        let (fh, _) = world.open(1, node, O_RDWR);
        assert_eq!(world.read(1, (node, fh), 0, 100), b"first second third");
    }
}

/// An OST has executed a change, its answer is lost, and it gives this mount up: others see the change, and work on with it. What they have
/// done is theirs.
#[test]
fn a_change_that_meets_an_eviction_undoes_nothing_of_what_others_did_since() {
    const PUNCH: u32 = 3;
    let changes = |(node, fh): (u64, u64)| {
        let set = SetattrCall { size_bytes: Some(2), ..SetattrCall::default() };
        let punch = Call::Fallocate { node, fh, offset_bytes: 0, byte_count: 4, mode: PUNCH };
        [write_call((node, fh), 0, b"mine"), Call::Setattr { node, set }, punch]
    };
    for number in 0..3 {
        let mut world = World::with_mounts(1, 1, 2, true);
        let file = world.create_with(0, TOP, "f", O_RDWR | O_DIRECT);
        let node = world.lookup(1, TOP, "f").expect("it was made").node;
        let other = (node, world.open(1, node, O_RDWR | O_DIRECT).0);
        assert_eq!(world.write(1, other, 0, b"others"), Ok(6));
        world.pass(Duration::from_secs(3));
        assert_eq!(world.read(0, file, 0, 100), b"others");
        world.mounts[0].loses = Some(Loss::AnswersToWrites);
        let change = changes(file).into_iter().nth(number).expect("one of them");
        let changing = world.begin(0, change);
        world.pass(Duration::from_secs(1));
        world.mounts[0].unreachable = Some(TargetId::ost(0));
        world.evict_from_ost(0, 0);
        assert_ne!(world.read(1, other, 0, 100), b"others", "it was executed");
        assert_eq!(world.write(1, other, 0, b"after all that"), Ok(14));
        world.mounts[0].loses = None;
        world.mounts[0].unreachable = None;
        assert_eq!(world.finish(0, changing), Err(EIO), "nobody knows what has become of it");
        assert_eq!(world.read(1, other, 0, 100), b"after all that");
        assert_eq!(world.read(0, file, 0, 100), b"after all that");
        assert!(world.mounts[0].events.contains(&Event::Evicted(TargetId::ost(0))));
        assert_eq!(world.write(0, file, 0, b"above"), Ok(5), "it goes on");
        assert_eq!(world.read(1, other, 0, 100), b"above all that");
    }
}

/// One of two OSTs has it, and gives this mount up before it has answered; the other has never heard of it.
#[test]
fn a_cut_that_meets_two_evictions_is_not_done_again_where_it_may_have_been_done() {
    const UNIT: usize = 64 << 10;
    let mut world = World::with_mounts(1, 2, 2, true);
    let stripes = wire::ComponentHint {
        first_ost: Some(0),
        stripe_count: Some(2),
        stripe_size_bytes: Some(UNIT as u32),
        ..wire::ComponentHint::default()
    };
    let layout = wire::LayoutHint { components: vec![stripes] };
    assert_eq!(world.call(0, Call::Setstripe { node: TOP, layout }), Ok(Answer::Done));
    let file = world.create_with(0, TOP, "f", O_RDWR | O_DIRECT);
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let other = (node, world.open(1, node, O_RDWR | O_DIRECT).0);
    assert_eq!(world.write(0, file, 0, &[1; 2 * UNIT]), Ok(2 * UNIT as u64));
    world.pass(Duration::from_secs(15));
    world.mounts[0].unreachable = Some(TargetId::ost(0));
    world.input(0, client::Input::ConnectionLost(TargetId::ost(0)));
    world.mounts[0].loses = Some(Loss::AnswersToWrites);
    let set = SetattrCall { size_bytes: Some(2), ..SetattrCall::default() };
    let cutting = world.begin(0, Call::Setattr { node: file.0, set });
    world.pass(Duration::from_secs(1));
    world.evict_from_ost(0, 0);
    world.evict_from_ost(0, 1);
    assert_eq!(world.write(1, other, UNIT as u64, &[7; 100]), Ok(100));
    world.mounts[0].loses = None;
    world.mounts[0].unreachable = None;
    assert_eq!(world.finish(0, cutting), Err(EIO), "nobody knows what has become of it");
    assert_eq!(world.read(1, other, UNIT as u64, 100), [7; 100]);
}

#[test]
fn a_file_made_before_any_ost_was_known_gets_its_place_when_it_is_written() {
    let mut world = World::new(1, 2, 0);
    world.reconfigure(false);
    world.add_mount(1);
    let file = world.create(0, TOP, "early");
    let writing = world.begin(0, write_call(file, 0, b"data"));
    assert!(!world.is_answered(0, writing));
    world.reconfigure(true);
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(4)));
    assert_eq!(world.read(0, file, 0, 100), b"data");
    assert_eq!(world.attr(0, file.0).size_bytes, 4);
}

/// A mount that reaches the OST and not the MDT is evicted by the MDT, which believes a size then that another mount
/// reports. Nothing is written behind that size.
#[test]
fn who_was_not_heard_by_the_mdt_writes_nothing() {
    let mut world = World::new(1, 1, 2);
    let mdt = TargetId::mdt(0);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"first"), Ok(5));
    let node = world.lookup(1, TOP, "f").expect("it is there").node;
    world.mounts[0].unreachable = Some(mdt);
    world.pass(Duration::from_secs(27));
    let writing = world.begin(0, write_call(file, 5, b"second"));
    // Its locks are wanted back, and the MDT gives it up.
    let set = client::SetattrCall { mode: Some(0o600), ..Default::default() };
    assert!(world.call(1, Call::Setattr { node, set }).is_ok());
    world.pass(Duration::from_secs(35));
    let (fh, _) = world.open(1, node, O_RDWR);
    world.release(1, (node, fh));
    world.pass(Duration::from_secs(10));
    let attr = world.attr(1, node);
    assert_eq!((attr.is_size_known, attr.size_bytes), (false, 5), "it lives, and what it has sent may come");
    assert!(!world.is_answered(0, writing));
    let (fh, _) = world.open(1, node, 0);
    assert_eq!(world.read(1, (node, fh), 0, 100), b"first");
    // It comes back, is counted as a writer again, and writes.
    world.mounts[0].unreachable = None;
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(6)));
    assert_eq!(world.read(1, (node, fh), 0, 100), b"firstsecond");
    assert_eq!(world.attr(1, node).size_bytes, 11);
}

/// What was sent to the OST before the MDT fell silent is not sent again after it.
#[test]
fn an_unanswered_write_is_not_sent_again_while_the_mdt_is_silent() {
    let mut world = World::new(1, 1, 2);
    let (mdt, ost) = (TargetId::mdt(0), TargetId::ost(0));
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"first"), Ok(5));
    world.mounts[0].unreachable = Some(ost);
    let writing = world.begin(0, write_call(file, 5, b"second"));
    world.mounts[0].unreachable = Some(mdt);
    let read = |world: &mut World| {
        let node = world.lookup(1, TOP, "f").expect("it is there").node;
        world.attr(1, node).size_bytes
    };
    world.mounts[0].is_cut_off = true;
    world.pass(Duration::from_secs(29));
    world.mounts[0].is_cut_off = false;
    world.pass(Duration::from_secs(29));
    assert!(!world.is_answered(0, writing));
    assert_eq!(read(&mut world), 5);
    world.mounts[0].unreachable = None;
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(6)));
    assert_eq!(read(&mut world), 11);
}

/// Hazard 4.2: A opens a file whose size is known, and writes beyond it. The bytes are durable on the OST; the open is not
/// on the MDT, and the MDT and A die. Others find the bytes all the same, once the MDT has looked.
#[test]
fn bytes_of_a_writer_whose_open_was_lost_with_it_are_found() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(1, TOP, "f");
    assert_eq!(world.write(1, file, 0, &[1; 100]), Ok(100));
    world.release(1, file);
    world.pass(Duration::from_secs(10));
    assert!(world.attr(1, file.0).is_size_known);
    let node = world.lookup(0, TOP, "f").expect("it was made").node;
    // Sessions begin with something durable.
    let (fh, _) = world.open(0, node, 0);
    assert_eq!(world.read(0, (node, fh), 0, 1), [1]);
    world.release(0, (node, fh));
    world.pass(Duration::from_secs(3));
    world.is_syncing = false;
    let (fh, _) = world.open(0, node, O_RDWR);
    assert_eq!(world.write(0, (node, fh), 100, &[2; 100]), Ok(100));
    world.sync_ost(0);
    world.mounts[0].is_cut_off = true;
    world.crash(TargetId::mdt(0));
    world.is_syncing = true;
    world.start(TargetId::mdt(0));
    world.pass(Duration::from_secs(150));
    assert_eq!(world.attr(1, file.0).size_bytes, 200);
    let (fh, _) = world.open(1, file.0, O_RDWR);
    assert_eq!(world.read(1, (file.0, fh), 0, 300), [[1; 100], [2; 100]].concat());
}

/// Hazard 2.8: the MDT has thrown a mount out and destroys its open file without names. Whether the mount talks to the OSTs
/// meanwhile or comes back later, and although it has writes to replay there, no object comes back.
#[test]
fn a_mount_that_its_mdt_has_thrown_out_brings_no_object_back() {
    let object_count = |world: &World| world.object_count(0) + world.object_count(1);
    for is_away in [false, true] {
        let mut world = World::new(1, 2, 2);
        let file = world.create(0, TOP, "f");
        assert_eq!(world.write(0, file, 0, b"first"), Ok(5));
        assert_eq!(world.call(0, Call::Unlink { parent: TOP, name: b"f".into() }), Ok(Answer::Done));
        world.pass(Duration::from_secs(3));
        assert_eq!(object_count(&world), 1, "it is open");
        world.is_syncing = false;
        assert_eq!(world.write(0, file, 5, b" not durable"), Ok(12));
        world.mounts[0].is_cut_off = is_away;
        world.evict(0, 0);
        if is_away {
            world.is_syncing = true;
            world.pass(Duration::from_secs(60));
            assert_eq!(object_count(&world), 0, "it has no name, and nobody has it open");
            world.mounts[0].is_cut_off = false;
        }
        let late = world.begin(0, write_call(file, 20, b"late"));
        world.is_syncing = true;
        world.pass(Duration::from_secs(60));
        assert!(world.is_answered(0, late));
        assert_eq!(object_count(&world), 0, "away: {is_away}");
        for ost in [0, 1] {
            world.crash(TargetId::ost(ost));
            world.start(TargetId::ost(ost));
        }
        world.pass(Duration::from_secs(100));
        assert!(world.call(0, write_call(file, 0, b"later")).is_err());
        world.pass(Duration::from_secs(10));
        assert_eq!(object_count(&world), 0, "away: {is_away}");
    }
}

/// Hazard 9.4: nobody uses a file any more, but the kernel has its pages, under a lock that rests. After a restart of the
/// OST another mount writes: the pages go first.
#[test]
fn locks_at_rest_live_through_a_restart_as_the_kernel_caches_under_them() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(1, TOP, "f");
    assert_eq!(world.write(1, file, 0, b"old"), Ok(3));
    world.pass(Duration::from_secs(3));
    let node = world.lookup(0, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(0, node, 0);
    assert_eq!(world.read(0, (node, fh), 0, 10), b"old");
    world.release(0, (node, fh));
    world.pass(Duration::from_secs(3));
    world.sync();
    world.crash(TargetId::ost(0));
    world.start(TargetId::ost(0));
    world.pass(Duration::from_secs(20));
    world.mounts[0].notified.clear();
    assert_eq!(world.write(1, file, 0, b"new"), Ok(3));
    let is_page = |notify: &Notify| matches!(notify, Notify::InvalInode { node: told, offset_bytes, .. } if *told == node && *offset_bytes >= 0);
    assert!(world.mounts[0].notified.iter().any(is_page), "{:?}", world.mounts[0].notified);
}

/// An OST evicts a mount, whose kernel drops its pages only later. Who opens the file meanwhile does not get to see them: a store through a
/// mapping would bring back what others have overwritten since.
#[test]
fn pages_from_before_an_eviction_are_not_kept_by_who_opens_their_file() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(1, TOP, "f");
    assert_eq!(world.write(1, file, 0, b"old"), Ok(3));
    world.release(1, file);
    world.pass(Duration::from_secs(3));
    let node = world.lookup(0, TOP, "f").expect("it was made").node;
    let (fh, mode) = world.open(0, node, 0);
    assert!(mode.keeps_cache);
    assert_eq!(world.read(0, (node, fh), 0, 10), b"old");
    world.release(0, (node, fh));
    world.pass(Duration::from_secs(3));
    world.mounts[0].is_kernel_stuck = true;
    world.evict_from_ost(0, 0);
    world.pass(Duration::from_secs(60));
    let is_page = |(_, notify): &(NotifyId, Notify)| matches!(notify, Notify::InvalInode { node: told, offset_bytes: 0.., .. } if *told == node);
    assert!(world.mounts[0].stuck.iter().any(is_page), "its pages are to go");
    for flags in [0, O_RDWR] {
        let (fh, mode) = world.open(0, node, flags);
        assert!(!mode.keeps_cache && !mode.is_direct, "the kernel drops them before it goes on");
        world.release(0, (node, fh));
    }
    world.mounts[0].is_kernel_stuck = false;
    for (id, _) in std::mem::take(&mut world.mounts[0].stuck) {
        world.input(0, client::Input::Notified(id, NotifyResult::Ok));
    }
    world.run();
    assert!(world.open(0, node, O_RDWR).1.keeps_cache, "they are gone");
}

/// An operator has the MDT evict a mount that cannot hear of it and goes on writing for a while.
#[test]
fn no_size_is_believed_while_an_evicted_writer_may_not_know_it() {
    let mut world = World::new(1, 1, 2);
    let mdt = TargetId::mdt(0);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"first"), Ok(5));
    let node = world.lookup(1, TOP, "f").expect("it is there").node;
    world.mounts[0].unreachable = Some(mdt);
    world.evict(0, 0);
    let (fh, _) = world.open(1, node, O_RDWR);
    world.release(1, (node, fh));
    world.pass(Duration::from_secs(10));
    assert_eq!(world.write(0, file, 5, b"second"), Ok(6));
    world.mounts[0].is_cut_off = true;
    world.pass(Duration::from_secs(400));
    assert_eq!((world.attr(1, node).is_size_known, world.attr(1, node).size_bytes), (false, 11));
    world.lapse(0);
    world.pass(Duration::from_secs(10));
    let (fh, _) = world.open(1, node, O_RDWR);
    world.release(1, (node, fh));
    world.pass(Duration::from_secs(10));
    let attr = world.attr(1, node);
    assert_eq!((attr.is_size_known, attr.size_bytes), (true, 11));
}

/// Closes a file that another mount has just opened for writing: the size that the MDT believes from then on, if it does, and the one
/// that the objects have.
fn believed_and_true_size(world: &mut World, mount: usize, node: u64) -> (Option<u64>, u64) {
    let (fh, _) = world.open(mount, node, O_RDWR);
    world.release(mount, (node, fh));
    world.pass(Duration::from_secs(10));
    let attr = world.attr(mount, node);
    (attr.is_size_known.then_some(attr.size_bytes), attr.size_bytes)
}

/// A write waits before an OST that does not run, say, for longer than its mount lives and its MDT waits. -> The size of the file that the
/// MDT believes before it arrives, and what it is afterwards.
fn late_write(is_restarted: bool, are_osts_asked: bool) -> (Option<u64>, u64) {
    let mut world = World::new(1, 1, 2);
    let (mdt, ost) = (TargetId::mdt(0), TargetId::ost(0));
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"first"), Ok(5));
    let node = world.lookup(1, TOP, "f").expect("it is there").node;
    // A session of the other one.
    let (fh, _) = world.open(1, node, 0);
    assert_eq!(world.read(1, (node, fh), 0, 1), b"f");
    world.release(1, (node, fh));
    world.mounts[0].is_slow_to = Some(ost);
    world.begin(0, write_call(file, 5, b"second"));
    world.pass(Duration::from_secs(3));
    world.mounts[0].is_cut_off = true;
    world.depart(0);
    if is_restarted {
        world.pass(Duration::from_secs(3));
        world.crash(mdt);
        world.start(mdt);
    }
    if !are_osts_asked {
        world.retire_osts_of_mdts();
    }
    world.pass(Duration::from_secs(65));
    let (known, _) = believed_and_true_size(&mut world, 1, node);
    assert!(world.let_arrive(0) > 0, "it had been sent");
    // Who reads hears from the OST how long the object is.
    let (fh, _) = world.open(1, node, O_RDWR);
    world.read(1, (node, fh), 0, 20);
    world.release(1, (node, fh));
    (known, believed_and_true_size(&mut world, 1, node).1)
}

#[test]
fn a_write_that_is_under_way_for_minutes_does_not_reach_a_file_of_known_size() {
    for is_restarted in [false, true] {
        assert_eq!(late_write(is_restarted, true), (Some(5), 5), "restarted: {is_restarted}");
    }
    assert_eq!(late_write(false, false), (Some(5), 11), "of an MDT that asks no OST the size is wrong");
}

/// A client cuts a file and is lost together with what the MDT knew of that. Another has listed the directory before the MDT
/// compares the file with its object: the listing says the size no more afterwards.
#[test]
fn a_size_that_is_doubted_after_a_recovery_is_taken_back_from_listings() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"ten bytes."), Ok(10));
    world.release(0, file);
    world.pass(Duration::from_secs(10));
    let set = SetattrCall { size_bytes: Some(3), ..SetattrCall::default() };
    world.is_syncing = false;
    world.call(0, Call::Setattr { node: file.0, set }).expect("it is its file");
    world.sync_ost(0);
    world.mounts[0].is_cut_off = true;
    world.crash(TargetId::mdt(0));
    world.is_syncing = true;
    world.start(TargetId::mdt(0));
    let looking = world.begin(1, Call::Lookup { parent: TOP, name: b"f".to_vec() });
    while !world.is_answered(1, looking) {
        world.pass_a_little();
    }
    let Ok(Answer::Entry(entry)) = world.finish(1, looking) else { panic!("it is there") };
    assert_eq!(world.attr(1, entry.node).size_bytes, 10, "nobody has looked yet");
    world.pass(Duration::from_secs(40));
    assert_eq!(world.attr(1, entry.node).size_bytes, 3);
}
