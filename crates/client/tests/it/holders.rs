//! Locks of clients that are gone: who waits for them waits for a lease to end, and not until a callback is due.

use crate::leases::pass_with_lease;
use crate::world::{O_RDWR, TOP, World, write_call};
use base::limits::{LEASE, RESEND_FIRST, RESEND_MAX};
use base::{Duration, Extent, TargetId};
use client::{Answer, Call, Event, Input};
use wire::mdt::{FileLock, FlockKind};

const MDT: TargetId = TargetId::mdt(0);
const OST: TargetId = TargetId::ost(0);
/// Less than the deadline of a callback.
const LONG_ENOUGH: Duration = LEASE.saturating_add(RESEND_FIRST).saturating_add(Duration::from_secs(1));

type File = (u64, u64);

/// Two mounts have a file open, which the second has written. (Node and handle of each.)
fn world_with_a_shared_file() -> (World, [File; 2]) {
    let mut world = World::new(1, 1, 2);
    let theirs = world.create(1, TOP, "f");
    let node = world.lookup(0, TOP, "f").expect("it was made").node;
    let ours = (node, world.open(0, node, O_RDWR).0);
    assert_eq!(world.write(1, theirs, 0, b"there"), Ok(5));
    world.lookup(1, TOP, "f").expect("it holds the name");
    world.pass(Duration::from_secs(2));
    (world, [ours, theirs])
}

fn remove() -> Call {
    Call::Unlink { parent: TOP, name: b"f".into() }
}

fn read((node, fh): File) -> Call {
    Call::Read { node, fh, offset_bytes: 0, byte_count: 10, is_direct: false }
}

fn is_evicted(world: &World, target: TargetId) -> bool {
    world.mounts[1].events.contains(&Event::Evicted(target))
}

#[test]
fn an_mdt_waits_for_no_lock_of_a_client_without_a_lease() {
    let (mut world, _) = world_with_a_shared_file();
    world.mounts[1].is_cut_off = true;
    let removed = world.begin(0, remove());
    world.pass(Duration::from_secs(2));
    world.lapse(1);
    world.pass(Duration::from_secs(1));
    assert!(!world.is_answered(0, removed), "it was not asked for long enough");
    world.pass(LONG_ENOUGH);
    assert!(!world.is_answered(0, removed), "nobody has said that it has no lease");
    world.lapse(1);
    assert!(world.is_answered(0, removed));
    world.mounts[1].is_cut_off = false;
    world.pass(RESEND_MAX);
    assert!(is_evicted(&world, MDT));
    assert!(is_evicted(&world, OST), "no late write of its can arrive");
    let again = world.create(1, TOP, "f");
    assert_eq!(world.write(1, again, 0, b"anew"), Ok(4));
}

#[test]
fn an_ost_waits_for_no_lock_of_a_client_without_a_lease() {
    let (mut world, [ours, _]) = world_with_a_shared_file();
    world.mounts[1].is_cut_off = true;
    let call = world.begin(0, read(ours));
    world.pass(LONG_ENOUGH);
    assert!(!world.is_answered(0, call));
    world.lapse(1);
    assert_eq!(world.finish(0, call), Ok(Answer::Bytes(b"there".as_slice().into())));
    world.mounts[1].is_cut_off = false;
    world.pass(RESEND_MAX);
    assert!(is_evicted(&world, OST));
    assert!(!is_evicted(&world, MDT), "nobody waits for it there");
}

#[test]
fn an_advisory_lock_of_a_client_without_a_lease_is_free() {
    let (mut world, [ours, theirs]) = world_with_a_shared_file();
    let take = |(node, fh): File| {
        let lock =
            FileLock { owner: 1, pid: 1, is_flock: true, kind: FlockKind::Write, extent: Extent::WHOLE };
        Call::Setlk { node, fh, lock, can_wait: true }
    };
    assert_eq!(world.call(1, take(theirs)), Ok(Answer::Done));
    world.mounts[1].is_cut_off = true;
    let taken = world.begin(0, take(ours));
    world.pass(LONG_ENOUGH);
    assert!(!world.is_answered(0, taken));
    world.lapse(1);
    assert_eq!(world.finish(0, taken), Ok(Answer::Done));
}

/// It pings, but its kernel does not let go of the pages.
#[test]
fn a_slow_client_that_is_heard_is_not_given_up_for_its_lease() {
    let (mut world, [ours, theirs]) = world_with_a_shared_file();
    let now = world.now.time;
    world.input(1, Input::Lease(now));
    assert_eq!(world.read(1, theirs, 0, 10), b"there");
    world.mounts[1].is_kernel_stuck = true;
    let written = world.begin(0, write_call(ours, 0, b"again"));
    for _ in 0..20 {
        world.pass(Duration::from_secs(1));
        world.lapse(1);
    }
    assert!(!world.is_answered(0, written));
    let stuck = std::mem::take(&mut world.mounts[1].stuck);
    assert!(!stuck.is_empty(), "its kernel was told");
    world.mounts[1].is_kernel_stuck = false;
    for (id, _) in stuck {
        world.input(1, Input::Notified(id, client::NotifyResult::Ok));
    }
    assert_eq!(world.finish(0, written), Ok(Answer::Written(5)));
    assert!(!is_evicted(&world, MDT) && !is_evicted(&world, OST));
}

/// Cut off from one MDT, with a lease: nobody says that it is gone, and it has until the callback is due.
#[test]
fn a_slow_client_with_a_lease_keeps_its_time() {
    let (mut world, _) = world_with_a_shared_file();
    world.mounts[1].unreachable = Some(MDT);
    let removed = world.begin(0, remove());
    pass_with_lease(&mut world, 1, Duration::from_secs(20));
    assert!(!world.is_answered(0, removed));
    world.mounts[1].unreachable = None;
    pass_with_lease(&mut world, 1, Duration::from_secs(6));
    assert!(world.is_answered(0, removed));
    assert!(!is_evicted(&world, MDT));
}

#[test]
fn a_holder_is_given_up_only_after_every_ost_knows_it() {
    let (mut world, _) = world_with_a_shared_file();
    world.mounts[1].is_cut_off = true;
    world.crash(OST);
    let removed = world.begin(0, remove());
    world.pass(LONG_ENOUGH);
    world.lapse(1);
    world.pass(Duration::from_secs(4));
    assert!(!world.is_answered(0, removed), "the OST has not answered");
    world.start(OST);
    world.pass(Duration::from_secs(5));
    // The OST recovers, and waits for nobody without a lease either.
    world.lapse(1);
    world.pass(Duration::from_secs(4));
    assert!(world.is_answered(0, removed));
}
