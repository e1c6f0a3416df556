//! What fsync(2) and close(2) tell of losses, and what they make durable.

use crate::world::{O_APPEND, O_RDONLY, O_RDWR, TOP, World, write_call};
use base::{Duration, TargetId, TargetKind};
use client::{Answer, Call, Event, SetattrCall};

const EIO: i32 = 5;

/// -> The world, a file that is durable, and one that its MDT has not synced: both made and kept open by mount 0 of two.
fn with_an_undurable_file() -> (World, (u64, u64), (u64, u64)) {
    let mut world = World::new(1, 1, 2);
    // Sessions begin with something durable.
    let first = world.create(0, TOP, "first");
    assert_eq!(world.write(0, first, 0, b"first"), Ok(5));
    world.pass(Duration::from_secs(3));
    world.is_syncing = false;
    let file = world.create(0, TOP, "f");
    (world, first, file)
}

/// An OST loses what is not durable, and mount 0 comes too late to bring it back.
fn lose_with_the_ost(world: &mut World) {
    world.mounts[0].is_cut_off = true;
    world.lose_power(TargetId::ost(0));
    world.is_syncing = true;
    world.pass(Duration::from_secs(100));
    world.mounts[0].is_cut_off = false;
    world.pass(Duration::from_secs(20));
    let events = &world.mounts[0].events;
    assert!(events.contains(&Event::Evicted(TargetId::ost(0))), "{events:?}");
}

#[test]
fn fsync_reports_a_loss_once_and_the_mount_goes_on() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    world.pass(Duration::from_secs(2));
    // Sessions begin with something durable.
    assert_eq!(world.write(0, file, 0, b"first"), Ok(5));
    world.pass(Duration::from_secs(2));
    world.is_syncing = false;
    assert_eq!(world.write(0, file, 0, b"doomed"), Ok(6));
    assert!(world.unsynced_count(0) > 0, "the write is not durable yet");
    let (reader, _) = world.open(0, file.0, O_RDONLY);
    lose_with_the_ost(&mut world);
    let fsync = || Call::Fsync { node: file.0, fh: file.1, data_only: false };
    assert_eq!(world.call(0, fsync()), Err(EIO));
    assert_eq!(world.call(0, fsync()), Ok(Answer::Done));
    // It could have asked too. Somebody has.
    world.release(0, (file.0, reader));
    let (later, _) = world.open(0, file.0, O_RDONLY);
    assert_eq!(world.call(0, Call::Fsync { node: file.0, fh: later, data_only: false }), Ok(Answer::Done));
    assert_eq!(world.write(0, file, 0, b"again"), Ok(5));
    assert_eq!(world.read(0, file, 0, 100), b"again");
    let node = world.lookup(1, TOP, "f").expect("it is there").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    assert_eq!(world.read(1, (node, fh), 0, 100), b"again");
}

/// Who opens the file after the loss and asks is told, as in Linux: a checkpoint asks for what others have written and closed.
#[test]
fn a_loss_of_a_file_that_nobody_has_open_is_told_to_who_asks_next() {
    for reader_knows in [false, true] {
        let mut world = World::new(1, 1, 1);
        let file = world.create(0, TOP, "f");
        assert_eq!(world.write(0, file, 0, b"first"), Ok(5));
        world.pass(Duration::from_secs(2));
        world.is_syncing = false;
        assert_eq!(world.write(0, file, 0, b"doomed"), Ok(6));
        let reader = reader_knows.then(|| world.open(0, file.0, O_RDONLY).0);
        assert_eq!(world.call(0, Call::Flush { node: file.0, fh: file.1, lock_owner: 1 }), Ok(Answer::Done));
        world.release(0, file);
        lose_with_the_ost(&mut world);
        // It was open when that happened, and closes without having asked.
        if let Some(fh) = reader {
            world.release(0, (file.0, fh));
        }
        let (fh, _) = world.open(0, file.0, O_RDWR);
        let fsync = || Call::Fsync { node: file.0, fh, data_only: false };
        assert_eq!(world.call(0, fsync()), Err(EIO));
        assert_eq!(world.call(0, fsync()), Ok(Answer::Done));
    }
}

/// Others write to objects that it names, and replay none of it.
#[test]
fn a_layout_is_told_when_it_is_durable() {
    let mut world = World::new(1, 2, 3);
    let make = Call::Mknod { parent: TOP, name: b"f".into(), mode: 0o100_644, umask: 0, rdev: 0 };
    assert!(world.call(0, make).is_ok());
    let node = world.lookup(0, TOP, "f").expect("it was made").node;
    world.pass(Duration::from_secs(3));
    world.is_syncing = false;
    let layout = wire::LayoutHint::plain(wire::ComponentHint { stripe_count: Some(2), ..Default::default() });
    let setting = world.begin(0, Call::Setstripe { node, layout });
    assert!(!world.is_answered(0, setting));
    world.is_syncing = true;
    assert!(world.finish(0, setting).is_ok());
    let node = world.lookup(1, TOP, "f").expect("it is there").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    assert_eq!(world.write(1, (node, fh), 0, b"first"), Ok(5));
    world.mounts[0].is_cut_off = true;
    world.lose_power(TargetId::mdt(0));
    world.pass(Duration::from_secs(100));
    assert_eq!(world.call(1, Call::Fsync { node, fh, data_only: false }), Ok(Answer::Done));
    world.release(1, (node, fh));
    let node = world.lookup(2, TOP, "f").expect("it is there").node;
    let (fh, _) = world.open(2, node, O_RDONLY);
    assert_eq!(world.read(2, (node, fh), 0, 100), b"first");
}

/// The kernel asks for no fsync(2) after such a write.
#[test]
fn a_synchronous_write_past_the_pages_is_answered_when_it_is_durable() {
    const O_DSYNC: u32 = 0o10000;
    const O_DIRECT: u32 = 0o40000;
    for past_pages in [O_APPEND, O_DIRECT] {
        let mut world = World::new(1, 1, 1);
        // Sessions begin with something durable.
        let first = world.create(0, TOP, "first");
        assert_eq!(world.write(0, first, 0, b"first"), Ok(5));
        world.pass(Duration::from_secs(3));
        world.is_syncing = false;
        let file = world.create_with(0, TOP, "f", O_RDWR | past_pages);
        for (more, is_synced) in [(0, false), (O_DSYNC, true)] {
            let mut call = write_call(file, 0, b"more");
            if let Call::Write { flags, .. } = &mut call {
                *flags = O_RDWR | past_pages | more;
            }
            let writing = world.begin(0, call);
            assert_eq!(world.is_answered(0, writing), !is_synced);
            world.is_syncing = is_synced;
            assert_eq!(world.finish(0, writing), Ok(Answer::Written(4)));
            assert_eq!(world.unsynced_count(0) == 0, is_synced);
        }
        // The name too.
        world.lose_power(TargetId::mdt(0));
        world.lose_power(TargetId::ost(0));
        world.mounts[0].is_cut_off = true;
        world.pass(Duration::from_secs(100));
        world.add_mount(2);
        let node = world.lookup(1, TOP, "f").expect("it is durable").node;
        let (fh, _) = world.open(1, node, O_RDONLY);
        assert!(world.read(1, (node, fh), 0, 100).ends_with(b"more"));
    }
}

/// It has changed the file. Who reads through the page cache sees what is there.
#[test]
fn a_write_past_the_pages_that_is_told_of_an_earlier_loss_leaves_no_old_page() {
    const O_DSYNC: u32 = 0o10000;
    const O_DIRECT: u32 = 0o40000;
    let (mut world, _, file) = with_an_undurable_file();
    world.is_syncing = true;
    world.pass(Duration::from_secs(3));
    world.release(0, file);
    world.is_syncing = false;
    let (past, _) = world.open(0, file.0, O_RDWR | O_DIRECT);
    assert!(world.call(0, write_call((file.0, past), 0, b"doomed")).is_ok());
    lose_with_the_ost(&mut world);
    let (through, _) = world.open(0, file.0, O_RDONLY);
    world.read(0, (file.0, through), 0, 4096);
    world.mounts[0].notified.clear();
    let mut call = write_call((file.0, past), 0, &[7; 4096]);
    if let Call::Write { flags, .. } = &mut call {
        *flags = O_RDWR | O_DIRECT | O_DSYNC;
    }
    assert_eq!(world.call(0, call), Err(EIO));
    let drop = client::Notify::InvalInode { node: file.0, offset_bytes: 0, byte_count: 4096 };
    assert!(world.mounts[0].notified.contains(&drop), "{:?}", world.mounts[0].notified);
    assert_eq!(world.read(0, (file.0, through), 0, 4096), [7; 4096]);
}

/// The data are durable on the OST. The MDT loses the file that they are of, and the mount that made it comes too late to bring it back.
#[test]
fn fsync_and_close_tell_that_a_new_file_was_lost_with_its_mdt() {
    const ESTALE: i32 = 116;
    let (mut world, first, file) = with_an_undurable_file();
    let mdt = TargetId::mdt(0);
    assert_eq!(world.write(0, file, 0, b"doomed"), Ok(6));
    // The mount hears that its data are durable, which an OST has to note first.
    world.sync_ost(0);
    world.sync_ost(0);
    assert_eq!(world.read(0, file, 0, 100), b"doomed");
    world.mounts[0].is_cut_off = true;
    world.crash(mdt);
    world.start(mdt);
    world.is_syncing = true;
    world.pass(Duration::from_secs(100));
    world.mounts[0].is_cut_off = false;
    world.pass(Duration::from_secs(20));
    assert!(world.mounts[0].events.contains(&Event::Evicted(mdt)), "{:?}", world.mounts[0].events);
    let fsync = |(node, fh)| Call::Fsync { node, fh, data_only: false };
    let flush = |(node, fh)| Call::Flush { node, fh, lock_owner: 1 };
    for _ in 0..2 {
        assert_eq!(world.call(0, fsync(file)), Err(ESTALE));
        assert_eq!(world.call(0, flush(file)), Err(ESTALE));
    }
    // Of what is there nothing was lost.
    assert_eq!(world.call(0, fsync(first)), Ok(Answer::Done));
    assert_eq!(world.call(0, flush(first)), Ok(Answer::Done));
}

/// A file over two OSTs, which mount 0 has open and of which both hold something durable, in units of 64 KiB.
fn over_two_osts() -> (World, (u64, u64)) {
    let mut world = World::new(1, 2, 2);
    let striped = wire::ComponentHint {
        stripe_size_bytes: Some(64 << 10),
        stripe_count: Some(2),
        first_ost: Some(0),
        ..wire::ComponentHint::default()
    };
    let layout = wire::LayoutHint::plain(striped);
    let call = Call::CreateStriped { parent: TOP, name: b"f".into(), mode: 0o644, umask: 0, layout };
    assert_eq!(world.call(0, call), Ok(Answer::Done));
    let node = world.lookup(0, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(0, node, O_RDWR);
    assert_eq!(world.write(0, (node, fh), 0, &[1; 128 << 10]), Ok(128 << 10));
    world.pass(Duration::from_secs(3));
    (world, (node, fh))
}

/// The first of two OSTs has answered its part of a change, and loses it with its power; the mount is not heard there for too long. All the
/// while the second one does not answer. Nobody but the mount knows what was lost.
#[test]
fn what_an_ost_loses_before_another_has_answered_is_told_too() {
    let changes: [fn((u64, u64)) -> Call; 3] = [
        |file| write_call(file, 0, &[2; 128 << 10]),
        |(node, fh)| Call::Setattr {
            node,
            set: SetattrCall { fh: Some(fh), size_bytes: Some(100), ..SetattrCall::default() },
        },
        |(node, fh)| Call::Fallocate { node, fh, offset_bytes: 0, byte_count: 128 << 10, mode: 3 },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (mut world, file) = over_two_osts();
        let [lost, slow] = [0, 1].map(TargetId::ost);
        world.is_syncing = false;
        world.mounts[0].is_slow_to = Some(slow);
        let changing = world.begin(0, change(file));
        assert!(!world.is_answered(0, changing));
        assert!(world.unsynced_count(0) > 0, "the first one has its part");
        world.mounts[0].unreachable = Some(lost);
        world.crash(lost);
        world.start(lost);
        world.is_syncing = true;
        world.pass(Duration::from_secs(100));
        world.mounts[0].unreachable = None;
        world.pass(Duration::from_secs(20));
        assert!(world.mounts[0].events.contains(&Event::Evicted(lost)), "{:?}", world.mounts[0].events);
        assert!(!world.is_answered(0, changing), "the second one has not answered");
        world.let_arrive(0);
        world.finish(0, changing).expect("nobody has refused it");
        let fsync = || Call::Fsync { node: file.0, fh: file.1, data_only: false };
        assert_eq!(world.call(0, fsync()), Err(EIO), "change {number}");
        assert_eq!(world.call(0, fsync()), Ok(Answer::Done));
    }
}

#[test]
fn fsync_makes_durable_what_another_mount_has_written() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    // Sessions begin with something durable.
    assert_eq!(world.write(0, file, 0, b"first"), Ok(5));
    world.sync();
    assert_eq!(world.write(0, file, 0, b"theirs"), Ok(6));
    assert!(world.unsynced_count(0) > 0);
    assert_eq!(world.call(1, Call::Fsync { node, fh, data_only: false }), Ok(Answer::Done));
    assert_eq!(world.unsynced_count(0), 0);
}

/// The one that has made it is lost with the power of the MDT.
#[test]
fn fsync_through_a_handle_for_reading_makes_the_name_durable_that_another_mount_has_made() {
    let mut world = World::new(1, 1, 2);
    let mdt = TargetId::mdt(0);
    // Sessions begin with something durable.
    for mount in [0, 1] {
        let file = world.create(mount, TOP, &format!("of {mount}"));
        assert_eq!(world.write(mount, file, 0, b"four"), Ok(4));
    }
    world.pass(Duration::from_secs(3));
    world.is_syncing = false;
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"data"), Ok(4));
    world.release(0, file);
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDONLY);
    let syncing = world.begin(1, Call::Fsync { node, fh, data_only: false });
    assert!(!world.is_answered(1, syncing), "nothing is durable by itself");
    world.is_syncing = true;
    world.run();
    world.is_syncing = false;
    assert!(world.is_answered(1, syncing));
    assert_eq!(world.finish(1, syncing), Ok(Answer::Done));
    world.mounts[0].is_cut_off = true;
    world.crash(mdt);
    world.start(mdt);
    world.is_syncing = true;
    world.pass(Duration::from_secs(100));
    let (fh, _) = world.open(1, node, O_RDONLY);
    assert_eq!(world.names(1, TOP), ["f", "of 0", "of 1"]);
    assert_eq!(world.read(1, (node, fh), 0, 100), b"data");
}

/// Who calls fsync(2) after each of his writes waits for no disk of the MDT while all is durable there, and asks it once for what he has
/// seen: not for what others do meanwhile.
#[test]
fn fsync_of_what_has_not_changed_costs_the_mdt_nothing() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"data"), Ok(4));
    world.release(0, file);
    world.pass(Duration::from_secs(10));
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    assert_eq!(world.read(1, (node, fh), 0, 4), b"data");
    let other = world.create(0, TOP, "other");
    world.pass(Duration::from_secs(3));
    let fsync = || Call::Fsync { node, fh, data_only: false };
    let asked = |world: &World| world.sent(1, TargetKind::Mdt, "mds_sync");
    world.is_syncing = false;
    let before = asked(&world);
    let syncing = world.begin(1, fsync());
    assert!(world.is_answered(1, syncing), "all is durable: no store syncs for it");
    assert_eq!(world.finish(1, syncing), Ok(Answer::Done));
    assert_eq!(asked(&world), before + 1);
    // Others change something, which is not durable.
    let set = SetattrCall { mode: Some(0o600), ..SetattrCall::default() };
    world.call(0, Call::Setattr { node: other.0, set }).expect("changed");
    for _ in 0..3 {
        let syncing = world.begin(1, fsync());
        assert!(world.is_answered(1, syncing));
        assert_eq!(world.finish(1, syncing), Ok(Answer::Done));
    }
    assert_eq!(asked(&world), before + 1);
    // What this mount has seen of the file is asked for.
    let set = SetattrCall { mode: Some(0o640), ..SetattrCall::default() };
    world.call(0, Call::Setattr { node, set }).expect("changed");
    assert_eq!(world.attr(1, node).permissions, 0o640);
    let syncing = world.begin(1, fsync());
    assert!(!world.is_answered(1, syncing), "it is not durable yet");
    world.is_syncing = true;
    assert_eq!(world.finish(1, syncing), Ok(Answer::Done));
    assert_eq!(asked(&world), before + 2);
}

/// The MDT loses a new file with the mount that made it. What the mount writes before it knows would stay for ever.
#[test]
fn nothing_is_written_to_a_file_that_the_mdt_has_lost() {
    let (mut world, _first, file) = with_an_undurable_file();
    let mdt = TargetId::mdt(0);
    let (node, fh) = file;
    // A lock on the object, under which it may write later.
    assert_eq!(world.read(0, file, 0, 100), b"");
    world.mounts[0].unreachable = Some(mdt);
    let early = world.begin(0, Call::Fsync { node, fh, data_only: true });
    world.crash(mdt);
    world.start(mdt);
    world.is_syncing = true;
    world.pass(Duration::from_secs(100));
    let writing = world.begin(0, write_call(file, 0, b"late"));
    world.pass(Duration::from_secs(20));
    assert!(!world.is_answered(0, writing));
    world.mounts[0].unreachable = None;
    const ESTALE: i32 = 116;
    assert_eq!(world.finish(0, writing), Err(ESTALE));
    assert_eq!(world.finish(0, early), Err(ESTALE), "its name was lost");
    world.pass(Duration::from_secs(100));
    assert_eq!(world.object_count(0), 1, "that of the first");
}
