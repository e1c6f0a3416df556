//! Coherence between clients, and what a lock protects until data are durable.

use crate::harness::{World, object};
use base::limits::BULK_BYTES_MAX;
use base::{ClientId, Duration, Extent, LockId, Status};
use bytes::Bytes;
use oss::{Input, OssEvent};
use rpc::import::{Answer, Kind};
use std::collections::BTreeSet;
use target::{CoreEvent, EvictReason};
use wire::{LockMode, LockPolicy, LockRequest, OstReply, OstRequest, Reply, Request, Resource};

const WHOLE: Extent = Extent::WHOLE;

#[test]
fn a_writer_takes_the_readers_locks() {
    let mut world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let read_lock = world.lock(a, object(1), LockMode::Pr, WHOLE).lock;
    world.lock_and_write(b, object(1), 0, b"new");
    assert_eq!(world.client_mut(a).callbacks, [read_lock]);
    assert!(world.client_mut(a).held.is_empty());
}

#[test]
fn a_read_without_a_lock_waits_for_the_writer() {
    let mut world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    world.client_mut(a).is_polite = false;
    let lock = world.lock_and_write(a, object(1), 0, b"new");
    let request = OstRequest::Read { object: object(1), extent: Extent::at(0, 3), lock: None };
    let ticket = world.submit_ost(b, request, Kind::Plain);
    assert_eq!(world.result(b, ticket), None);
    assert_eq!(world.client_mut(a).callbacks, [lock]);
    world.cancel(a, lock);
    let answer = world.result(b, ticket).expect("now").expect("it exists");
    assert_eq!(&answer.data[..], b"new");
}

#[test]
fn the_cancel_of_a_written_lock_takes_effect_when_its_data_are_durable() {
    let mut world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let lock = world.lock_and_write(a, object(1), 0, b"new");
    world.is_syncing = false;
    world.write(a, object(1), 0, b"newer", lock).expect("held");
    let cancel = world.cancel(a, lock);
    let ticket = world.submit_lock(b, object(1), LockMode::Pr, WHOLE);
    assert_eq!(world.result(a, cancel), None, "a crash could still take the bytes back");
    assert_eq!(world.result(b, ticket), None);
    assert_eq!(world.write(a, object(1), 0, b"late", lock), Err(Status::LockLost));
    world.objects.sync();
    world.is_syncing = true;
    world.sync();
    assert!(matches!(world.result(a, cancel), Some(Ok(_))));
    assert!(matches!(world.result(b, ticket), Some(Ok(_))));
    assert_eq!(world.oss().stats().cancel_sync_count, 1);
}

/// The next mount of a client, that was killed, begins to number its locks anew. What the former one had locked and written is not durable
/// yet, whether that had given the locks back or not: it is in the way of the new one as of everybody.
#[test]
fn a_new_incarnation_of_a_client_meets_the_locks_of_the_former_as_those_of_another() {
    for is_given_back in [false, true] {
        let mut world = World::new();
        let a = world.client(1);
        world.attr(a, object(9));
        world.is_syncing = false;
        let locks = [1, 2].map(|number| world.lock_and_write(a, object(number), 0, b"former"));
        if is_given_back {
            for lock in locks {
                world.cancel(a, lock);
            }
        }
        world.remount(a);
        let [first, second] = locks;
        let (resource, policy) = (Resource::Object(object(3)), LockPolicy::Extent(WHOLE));
        let request =
            LockRequest::Enqueue { lock: first, resource, mode: LockMode::Pw, policy, can_wait: true };
        let locking = world.submit(a, Request::Lock(request), Bytes::new(), Kind::Plain);
        world.run();
        assert_eq!(world.result(a, locking), None, "its session is no row yet");
        world.meta.sync();
        world.nudge();
        let granted = |result| matches!(result, Some(Ok(Answer { reply: Reply::Locked(_), .. })));
        assert!(granted(world.result(a, locking)), "{:?}", world.result(a, locking));
        let asked = Some(Extent::at(0, 5));
        let (lock, stamp) = (second, world.now.wall);
        let write =
            OstRequest::Write { object: object(4), offset_bytes: 0, lock, stamp, is_answered: false, asked };
        let (reply, _) =
            world.call(a, Request::Ost(write), b"later", Kind::Modifying).expect("nobody has it");
        assert!(matches!(reply, Reply::Ost(OstReply::Written { lock: Some(_), .. })), "{reply:?}");
        // A power failure would take back what was written, and nobody would replay it.
        let with_lock = lock_and_read(900, LockMode::Pr, Extent::at(0, 6), WHOLE);
        let without = OstRequest::Read { object: object(2), extent: Extent::at(0, 6), lock: None };
        let reads = [with_lock, without].map(|read| world.submit_ost(a, read, Kind::Plain));
        let again = world.submit_lock(a, object(2), LockMode::Pw, WHOLE);
        assert_eq!(reads.map(|ticket| world.result(a, ticket)), [None, None]);
        assert_eq!(world.result(a, again), None);
        assert!(world.client_mut(a).callbacks.is_empty(), "it has nothing to give back");
        assert!(world.holdings.is_exactly(world.oss().held()));
        let noted: BTreeSet<u64> = world.holdings.held().keys().map(|key| key.number).collect();
        assert_eq!(noted, BTreeSet::from([first.0, second.0]), "what is nobody's is not noted");
        world.is_syncing = true;
        world.sync();
        for ticket in reads {
            let answer = world.result(a, ticket).expect("it is durable").expect("it is there");
            assert_eq!(&answer.data[..], b"former");
        }
        assert!(granted(world.result(a, again)));
        // What ended were the locks of the former one.
        world.write(a, object(3), 0, b"later", first).expect("it is held");
        world.write(a, object(4), 0, b"later", second).expect("it is held");
        assert_eq!(world.oss().locks().lock_count(), 4);
    }
}

/// Nor does it matter what ended the session.
#[test]
fn who_was_evicted_reads_what_it_had_written_when_that_is_durable() {
    let mut world = World::new();
    let a = world.client(1);
    world.attr(a, object(9));
    world.is_syncing = false;
    world.lock_and_write(a, object(1), 0, b"former");
    world.control(Input::Evict(a));
    world.meta.sync();
    world.nudge();
    assert_eq!(world.client_mut(a).evicted_count, 1, "it is back");
    let read = OstRequest::Read { object: object(1), extent: Extent::at(0, 6), lock: None };
    let ticket = world.submit_ost(a, read, Kind::Plain);
    assert_eq!(world.result(a, ticket), None);
    assert_eq!(world.oss().locks().lock_count(), 0, "what is in its way is no lock any more");
    world.is_syncing = true;
    world.sync();
    let answer = world.result(a, ticket).expect("it is durable").expect("it is there");
    assert_eq!(&answer.data[..], b"former");
    assert_eq!(world.oss().locks().resource_count(), 0);
}

/// Its connection was down, no more.
#[test]
fn who_comes_back_in_its_session_has_its_locks() {
    let mut world = World::new();
    let a = world.client(1);
    world.attr(a, object(9));
    world.is_syncing = false;
    let lock = world.lock_and_write(a, object(1), 0, b"first");
    world.reconnect(a);
    world.write(a, object(1), 0, b"again", lock).expect("it is held");
    assert_eq!(world.read(a, object(1), Extent::at(0, 5)), Ok(b"again".to_vec()));
    assert_eq!(world.client_mut(a).evicted_count, 0);
}

#[test]
fn both_stores_have_to_be_durable() {
    let mut world = World::new();
    let a = world.client(1);
    let lock = world.lock_and_write(a, object(1), 0, b"old");
    world.sync();
    world.is_syncing = false;
    world.write(a, object(1), 0, b"new", lock).expect("held");
    let written = world.oss().core().last_transno();
    let ticket = world.submit_ost(a, OstRequest::Sync { objects: vec![object(1)] }, Kind::Plain);
    world.meta.sync();
    world.nudge();
    assert!(world.oss().core().durable() < written && world.result(a, ticket).is_none());
    world.objects.sync();
    world.nudge();
    assert!(world.oss().core().durable() >= written);
    assert!(matches!(world.result(a, ticket), Some(Ok(_))));
    assert!(world.committed() < written, "clients hear of it when a restart would know it too");
    world.is_syncing = true;
    world.pass(Duration::from_secs(3));
    assert!(world.committed() >= written);
}

#[test]
fn nothing_stays_undurable_on_its_own() {
    let mut world = World::new();
    let a = world.client(1);
    world.lock_and_write(a, object(1), 0, b"old");
    let written = world.oss().core().last_transno();
    world.pass(Duration::from_secs(4));
    assert!(world.committed() >= written);
}

#[test]
fn a_holder_that_does_not_answer_is_evicted_and_its_bytes_stay_protected() {
    let mut world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    world.lock_and_write(a, object(1), 0, b"new");
    world.cut_off(a, true);
    let ticket = world.submit_lock(b, object(1), LockMode::Pr, WHOLE);
    world.pass(Duration::from_secs(20));
    assert_eq!(world.result(b, ticket), None);
    world.pass(Duration::from_secs(15));
    assert!(matches!(world.result(b, ticket), Some(Ok(_))));
    assert!(world.events.contains(&OssEvent::LockTimeout { client: a }));
    assert_eq!(world.read(b, object(1), Extent::at(0, 3)), Ok(b"new".to_vec()));
    world.cut_off(a, false);
    world.pass(Duration::from_secs(30));
    assert_eq!(world.client_mut(a).evicted_count, 1);
    world.lock_and_write(a, object(1), 0, b"yes");
    assert_eq!(world.read(b, object(1), Extent::at(0, 3)), Ok(b"yes".to_vec()));
}

fn evictions(world: &World) -> Vec<(ClientId, EvictReason)> {
    let evicted = |event: &OssEvent| match event {
        OssEvent::Core(CoreEvent::Evicted { client, why }) => Some((*client, *why)),
        _ => None,
    };
    world.events.iter().filter_map(evicted).collect()
}

#[test]
fn each_eviction_has_its_own_reason() {
    let mut world = World::new();
    let (keeps, fenced, unwanted) = (world.client(1), world.client(2), world.client(3));
    world.lock_and_write(keeps, object(1), 0, b"x");
    world.lock_and_write(fenced, object(2), 0, b"x");
    world.lock_and_write(unwanted, object(3), 0, b"x");
    let mdt = world.mdt(0);
    let fence = OstRequest::Fence(wire::Life { client: fenced, incarnation: 1 });
    world.submit_ost(mdt, fence, Kind::Plain);
    assert_eq!(evictions(&world), [(fenced, EvictReason::Fenced)]);
    world.control(Input::Evict(unwanted));
    assert_eq!(evictions(&world)[1..], [(unwanted, EvictReason::Operator)]);
    world.cut_off(keeps, true);
    let asks = world.client(4);
    world.submit_lock(asks, object(1), LockMode::Pr, WHOLE);
    world.pass(Duration::from_secs(40));
    assert_eq!(evictions(&world)[2..], [(keeps, EvictReason::LockTimeout)]);
}

#[test]
fn no_client_has_another_one_given_up() {
    let mut world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let lock = world.lock_and_write(a, object(1), 0, b"mine");
    let fence = OstRequest::Fence(wire::Life { client: a, incarnation: 1 });
    let ticket = world.submit_ost(b, fence, Kind::Plain);
    assert_eq!(world.result(b, ticket).map(|result| result.err()), Some(Some(Status::NotPermitted)));
    assert!(world.write(a, object(1), 0, b"still", lock).is_ok());
}

#[test]
fn an_object_destroyed_while_somebody_waits_for_it_is_gone_for_him() {
    let mut world = World::new();
    let (a, b, mdt) = (world.client(1), world.client(2), world.mdt(0));
    world.client_mut(a).is_polite = false;
    let lock = world.lock_and_write(a, object(1), 0, b"abc");
    let destroyed = world.submit_ost(mdt, OstRequest::Destroy { objects: vec![object(1)] }, Kind::Modifying);
    let waiting = world.submit_lock(b, object(1), LockMode::Pw, WHOLE);
    assert_eq!((world.result(mdt, destroyed), world.result(b, waiting)), (None, None));
    world.cancel(a, lock);
    assert!(matches!(world.result(mdt, destroyed), Some(Ok(_))));
    assert_eq!(world.result(b, waiting), Some(Err(Status::Stale)));
    assert_eq!(world.oss().locks().lock_count(), 0);
}

/// The device of the objects fails: who waits for data to be durable is told, and so is who asks later.
#[test]
fn a_sync_that_can_never_be_durable_is_answered() {
    let mut world = World::new();
    let a = world.client(1);
    let lock = world.lock_and_write(a, object(1), 0, b"old");
    world.sync();
    world.is_syncing = false;
    world.write(a, object(1), 0, b"new", lock).expect("held");
    let sync = |world: &mut World| world.submit_ost(a, OstRequest::Sync { objects: vec![] }, Kind::Plain);
    let before = sync(&mut world);
    assert_eq!(world.result(a, before), None, "not durable yet");
    world.objects.set_failing(true);
    world.sync();
    assert_eq!(world.result(a, before).map(|result| result.err()), Some(Some(Status::Io)));
    let after = sync(&mut world);
    assert_eq!(world.result(a, after).map(|result| result.err()), Some(Some(Status::Io)));
}

fn lock_and_read(lock: u64, mode: LockMode, extent: Extent, asked: Extent) -> OstRequest {
    OstRequest::LockAndRead { object: object(1), extent, lock: LockId(lock), mode, asked }
}

#[test]
fn bytes_come_with_the_lock_that_they_are_read_under() {
    let mut world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    world.client_mut(a).is_polite = false;
    let held = world.lock_and_write(a, object(1), 0, b"new");
    let request = lock_and_read(900, LockMode::Pr, Extent::at(1, 100), WHOLE);
    let ticket = world.submit_ost(b, request.clone(), Kind::Plain);
    assert_eq!(world.result(b, ticket), None);
    assert_eq!(world.client_mut(a).callbacks, [held]);
    world.write(a, object(1), 0, b"newest", held).expect("it is held");
    world.cancel(a, held);
    let answer = world.result(b, ticket).expect("now").expect("it exists");
    assert_eq!(&answer.data[..], b"ewest");
    let Reply::Ost(OstReply::LockedData { size_bytes: 6, lock: grant }) = answer.reply.clone() else {
        panic!("{:?} to a read with its lock", answer.reply)
    };
    assert_eq!((grant.lock, grant.mode), (LockId(900), LockMode::Pr));
    // A copy of the request that comes late gets the same.
    let (reply, data) = world.call(b, Request::Ost(request), &[], Kind::Plain).expect("it is held");
    assert_eq!((reply, &data[..]), (answer.reply, &b"ewest"[..]));
    let read = OstRequest::Read { object: object(1), extent: Extent::at(0, 3), lock: Some(grant.lock) };
    let (_, data) = world.call(b, Request::Ost(read), &[], Kind::Plain).expect("it is held");
    assert_eq!(&data[..], b"new");
    // A hole reads as nothing.
    let hole = lock_and_read(901, LockMode::Pr, Extent::at(50, 10), WHOLE);
    let (_, data) = world.call(b, Request::Ost(hole), &[], Kind::Plain).expect("it is granted");
    assert!(data.is_empty());
    let stats = world.oss().stats();
    assert_eq!((stats.read.bytes.count, stats.read.bytes.sum), (4, 5 + 5 + 3));
}

/// Nobody is waited for who is in the way of more than the lock that was asked for.
#[test]
fn no_more_is_read_than_the_lock_covers() {
    let mut world = World::new();
    let (a, b, c) = (world.client(1), world.client(2), world.client(3));
    world.lock_and_write(a, object(1), 0, &[7; 10_000]);
    // Its locks have neighbours from now on.
    world.lock(b, object(1), LockMode::Pw, Extent::at(8192, 4096));
    world.client_mut(b).is_polite = false;
    let request = lock_and_read(900, LockMode::Pr, Extent::at(0, 100_000), Extent::at(4096, 100));
    let (reply, data) = world.call(c, Request::Ost(request), &[], Kind::Plain).expect("nobody is in its way");
    let Reply::Ost(OstReply::LockedData { lock: grant, .. }) = reply else { panic!("{reply:?}") };
    let LockPolicy::Extent(granted) = grant.policy else { panic!("{grant:?}") };
    assert_eq!((granted.end, data.len() as u64), (8192, 8192 - granted.start));
    assert!(world.client_mut(b).callbacks.is_empty());
}

#[test]
fn a_read_with_a_lock_that_would_not_cover_it_is_refused() {
    let mut world = World::new();
    let a = world.client(1);
    for request in [
        lock_and_read(900, LockMode::Pr, Extent::at(0, 100), Extent::at(100, 200)),
        lock_and_read(900, LockMode::Pr, Extent::at(0, 0), WHOLE),
        lock_and_read(900, LockMode::Pr, Extent::at(0, BULK_BYTES_MAX as u64 + 1), WHOLE),
        lock_and_read(900, LockMode::Ex, Extent::at(0, 100), WHOLE),
    ] {
        assert_eq!(world.call(a, Request::Ost(request), &[], Kind::Plain), Err(Status::Invalid));
    }
    assert_eq!(world.oss().locks().locks_of(a), []);
}
