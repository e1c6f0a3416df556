//! Leases at the management server, and what a client does that has none.

use crate::world::{TOP, World, write_call};
use base::limits::{KERNEL_CACHE_LIFE, LEASE, LEASE_RENEWAL};
use base::{Duration, TargetId};
use client::{Answer, Call, Event, Input, Notify, SetattrCall};

const MDT: TargetId = TargetId::mdt(0);
const OST: TargetId = TargetId::ost(0);
const ENOENT: i32 = 2;

/// Lets time pass, and the lease of this mount be renewed.
pub fn pass_with_lease(world: &mut World, mount: usize, wait: Duration) {
    let end = world.now.time.after(wait);
    while world.now.time < end {
        world.input(mount, Input::Lease(world.now.time));
        world.pass(LEASE_RENEWAL);
    }
}

/// A mount with a name in the caches of its kernel.
fn world_with_a_known_name() -> World {
    let mut world = World::new(1, 1, 1);
    let now = world.now.time;
    world.input(0, Input::Lease(now));
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"so that it knows the OST"), Ok(24));
    world.release(0, file);
    world.lookup(0, TOP, "f").expect("it was made");
    world.mounts[0].notified.clear();
    world
}

fn has_forgotten(world: &World) -> bool {
    world.mounts[0].notified.contains(&Notify::IncEpoch)
}

#[test]
fn a_client_that_hears_its_targets_needs_no_lease() {
    let mut world = world_with_a_known_name();
    world.pass(Duration::from_secs(20));
    assert!(!has_forgotten(&world));
    let sent_count = world.mounts[0].sent_count;
    world.pass(Duration::from_secs(10));
    let pings = world.mounts[0].sent_count - sent_count;
    assert!((18..=24).contains(&pings), "two targets are asked each second: {pings}");
}

#[test]
fn a_client_that_hears_nobody_relies_on_nothing_for_long() {
    let mut world = world_with_a_known_name();
    world.mounts[0].is_cut_off = true;
    world.pass(Duration::from_secs(2));
    assert!(!has_forgotten(&world));
    world.pass(LEASE - Duration::from_secs(2));
    assert!(has_forgotten(&world), "before anybody can have given it up");
}

/// An overlay above a mount would never find a name again that the kernel has dropped with all others.
#[test]
fn a_kernel_that_is_not_to_drop_all_names_gets_none_for_any_time_and_is_never_told_so() {
    let mut world = World::new(1, 1, 0);
    world.has_inc_epoch = false;
    world.add_mount(1);
    world.add_mount(2);
    world.run();
    let dir = world.mkdir(0, TOP, "d");
    for mount in [0, 1] {
        let entry = world.lookup(mount, TOP, "d").expect("it was made");
        assert_eq!(entry.entry_valid, Duration::ZERO);
        let absent = world.call(mount, Call::Lookup { parent: dir, name: b"x".into() });
        let is_timeless = match &absent {
            Ok(Answer::Entry(entry)) => entry.node == 0 && entry.entry_valid == Duration::ZERO,
            other => *other == Err(ENOENT),
        };
        assert!(is_timeless, "{absent:?}");
    }
    // Another mount makes what this one has found absent, while its kernel gets around to nothing.
    world.mounts[0].is_kernel_stuck = true;
    let call = Call::Mkdir { parent: dir, name: b"x".into(), mode: 0o755, umask: 0 };
    assert!(matches!(world.call(1, call), Ok(Answer::Entry(_))));
    world.mounts[0].is_kernel_stuck = false;
    assert!(world.lookup(0, dir, "x").is_ok());
    let unreferenced = Call::MkdirOn { parent: dir, name: b"y".into(), mode: 0o755, umask: 0, mdt_index: 0 };
    assert_eq!(world.lookup(0, dir, "y"), Err(ENOENT));
    assert_eq!(world.call(0, unreferenced), Ok(Answer::Done));
    assert!(world.lookup(0, dir, "y").is_ok());
    world.mounts[0].is_cut_off = true;
    world.pass(KERNEL_CACHE_LIFE * 2);
    world.mounts[0].is_cut_off = false;
    world.evict(0, 0);
    world.pass(Duration::from_secs(5));
    assert!(world.lookup(0, dir, "x").is_ok());
    assert!(!has_forgotten(&world));
}

#[test]
fn a_client_with_a_lease_rides_out_a_target_that_is_away() {
    let mut world = world_with_a_known_name();
    world.mounts[0].unreachable = Some(MDT);
    pass_with_lease(&mut world, 0, KERNEL_CACHE_LIFE / 12 * 11);
    assert!(!has_forgotten(&world));
    pass_with_lease(&mut world, 0, Duration::from_secs(3));
    assert!(has_forgotten(&world));
}

/// Two mounts; the second has a file open that it has written, and is cut off while the MDT restarts.
fn world_with_an_absent_writer() -> (World, (u64, u64)) {
    let mut world = World::new(1, 1, 2);
    let file = world.create(1, TOP, "f");
    assert_eq!(world.write(1, file, 0, b"there"), Ok(5));
    assert_eq!(world.names(0, TOP), vec!["f"]);
    world.pass(Duration::from_secs(2));
    world.mounts[1].is_cut_off = true;
    world.crash(MDT);
    world.start(MDT);
    (world, file)
}

#[test]
fn a_recovery_waits_for_no_client_without_a_lease() {
    let (mut world, file) = world_with_an_absent_writer();
    world.pass(Duration::from_secs(2));
    world.lapse(1);
    assert!(world.is_recovering(0), "it was not unheard for long enough");
    world.pass(Duration::from_secs(2));
    world.lapse(1);
    world.pass(Duration::from_secs(1));
    assert!(!world.is_recovering(0));
    assert_eq!(world.names(0, TOP), vec!["f"]);
    // The absent comes back: it is told once, and then goes on.
    world.mounts[1].is_cut_off = false;
    world.pass(Duration::from_secs(5));
    assert!(world.mounts[1].events.contains(&Event::Evicted(MDT)));
    assert!(world.mounts[1].events.contains(&Event::Evicted(OST)), "no late write of its can arrive");
    assert_eq!(world.write(1, file, 0, b"again"), Ok(5));
    assert_eq!(world.attr(0, file.0).size_bytes, 5);
}

#[test]
fn a_client_is_given_up_only_after_every_ost_knows_it() {
    let (mut world, _) = world_with_an_absent_writer();
    world.crash(OST);
    world.pass(Duration::from_secs(4));
    world.lapse(1);
    world.pass(Duration::from_secs(5));
    assert!(world.is_recovering(0), "the OST has not answered");
    world.start(OST);
    world.pass(Duration::from_secs(4));
    // The OST waits for nobody without a lease either.
    world.lapse(1);
    world.pass(Duration::from_secs(3));
    assert!(!world.is_recovering(0));
}

#[test]
fn a_client_that_came_back_is_not_given_up_for_its_lease() {
    let (mut world, file) = world_with_an_absent_writer();
    world.mounts[0].is_cut_off = true;
    world.mounts[1].is_cut_off = false;
    world.input(1, Input::ConnectionLost(MDT));
    world.pass(Duration::from_secs(4));
    assert!(world.is_recovering(0), "the other one is waited for");
    world.lapse(1);
    world.lapse(0);
    world.pass(Duration::from_secs(1));
    assert!(!world.is_recovering(0));
    let events = &world.mounts[1].events;
    assert!(!events.iter().any(|event| matches!(event, Event::Evicted(_))), "{events:?}");
    assert_eq!(world.write(1, file, 0, b"goes on"), Ok(7));
}

#[test]
fn a_lease_that_is_renewed_after_its_end_vouches_for_nothing_from_before() {
    let mut world = world_with_a_known_name();
    world.mounts[0].is_cut_off = true;
    world.pass(Duration::from_secs(4));
    assert!(has_forgotten(&world));
    // The management server is back, the MDT is not: it may have given this client up.
    let file = world.begin(
        0,
        client::Call::Create { parent: TOP, name: b"g".into(), mode: 0o644, umask: 0, flags: 0o102 },
    );
    let now = world.now.time;
    world.input(0, Input::Lease(now));
    world.pass(Duration::from_secs(1));
    assert!(!world.is_answered(0, file));
    let sent_count = world.mounts[0].sent_count;
    world.mounts[0].is_cut_off = false;
    world.finish(0, file).expect("it is heard again");
    assert!(world.mounts[0].sent_count > sent_count);
}

/// The management server may have got the request after the lease had ended.
#[test]
fn an_answer_that_comes_after_the_end_of_the_lease_vouches_for_nothing_from_before() {
    let mut world = World::new(1, 1, 1);
    let now = world.now.time;
    world.input(0, Input::Lease(now));
    let file = world.create(0, TOP, "f");
    for offset in [0, 5] {
        assert_eq!(world.write(0, file, offset, b"there"), Ok(5));
    }
    world.mounts[0].is_cut_off = true;
    world.pass(Duration::from_secs(2));
    let sent = world.now.time;
    world.pass(Duration::from_secs(2));
    world.input(0, Input::Lease(sent));
    let write = world.begin(0, write_call(file, 10, b"again"));
    assert!(!world.is_answered(0, write), "its MDT may have given it up");
    world.mounts[0].is_cut_off = false;
    assert_eq!(world.finish(0, write), Ok(Answer::Written(5)));
}

/// Nothing ran on the client for a while, and the answer about its lease is the first that it hears.
#[test]
fn a_lease_that_comes_after_a_pause_comes_too_late() {
    let mut world = world_with_a_known_name();
    world.now.time = world.now.time.after(Duration::from_secs(5));
    let now = world.now.time;
    world.input(0, Input::Lease(now));
    assert!(has_forgotten(&world));
}

#[test]
fn who_was_heard_after_the_question_is_not_given_up() {
    let (mut world, file) = world_with_an_absent_writer();
    world.mounts[0].is_cut_off = true;
    world.pass(Duration::from_secs(4));
    world.crash(OST);
    world.lapse(1);
    // The OST has not answered about the fence when the client comes back.
    world.mounts[1].is_cut_off = false;
    world.input(1, Input::ConnectionLost(MDT));
    world.pass(Duration::from_secs(1));
    world.start(OST);
    world.pass(Duration::from_secs(8));
    world.lapse(0);
    world.pass(Duration::from_secs(3));
    assert!(!world.is_recovering(0));
    let events = &world.mounts[1].events;
    assert!(!events.contains(&Event::Evicted(MDT)), "{events:?}");
    assert_eq!(world.write(1, file, 0, b"goes on"), Ok(7));
}

/// A kernel counts from when it takes an answer in, and to the end of a tick: it may go on for a moment when here its time is over.
#[test]
fn what_the_kernel_may_still_believe_is_forgotten_when_others_change_it() {
    let change = |world: &mut World, node: u64| {
        let set = SetattrCall { mode: Some(0o600), ..SetattrCall::default() };
        assert!(world.call(1, Call::Setattr { node, set }).is_ok());
        let unlink = Call::Unlink { parent: TOP, name: b"f".into() };
        assert_eq!(world.call(1, unlink), Ok(Answer::Done));
    };
    for (late, is_told) in
        [(Duration::ZERO, true), (Duration::from_millis(500), true), (Duration::from_secs(2), false)]
    {
        let mut world = World::new(1, 1, 2);
        let file = world.create(1, TOP, "f");
        world.release(1, file);
        world.pass(Duration::from_secs(3));
        let entry = world.lookup(0, TOP, "f").expect("it was made");
        assert!(!entry.entry_valid.is_zero());
        assert!(entry.attr_valid <= entry.entry_valid);
        world.pass(entry.entry_valid + late);
        world.mounts[0].notified.clear();
        change(&mut world, file.0);
        let notified = &world.mounts[0].notified;
        let is_inode =
            |notify: &Notify| matches!(notify, Notify::InvalInode { node, .. } if *node == entry.node);
        let name = Notify::InvalEntry { parent: TOP, name: b"f".into() };
        let told = (notified.iter().any(is_inode), notified.contains(&name));
        assert_eq!(told, (is_told, is_told), "{late:?} later: {notified:?}");
    }
}

#[test]
fn an_absent_name_that_the_kernel_may_still_believe_in_is_forgotten_when_it_is_made() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    let absent = world.call(0, Call::Lookup { parent: dir, name: b"x".into() });
    let Ok(Answer::Entry(entry)) = absent else { panic!("{absent:?}") };
    assert!(entry.node == 0 && !entry.entry_valid.is_zero());
    world.pass(entry.entry_valid);
    assert!(!has_forgotten(&world));
    let unreferenced = Call::MkdirOn { parent: dir, name: b"x".into(), mode: 0o755, umask: 0, mdt_index: 0 };
    assert_eq!(world.call(0, unreferenced), Ok(Answer::Done));
    assert!(has_forgotten(&world));
}
