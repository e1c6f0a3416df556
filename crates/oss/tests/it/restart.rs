//! Crashes: what was acknowledged comes back, what was replaced stays replaced.

use crate::harness::{World, object};
use base::{ClientId, Duration, Endpoint, Extent, LockId, Rng, Status, TargetId, Xid};
use bytes::Bytes;
use oss::{Input, OssEvent};
use rpc::import::Kind;
use std::collections::BTreeMap;
use store::memory::Kept;
use store::{Batch, MetaStore, ObjectStore};
use wire::ost::ExtentOp;
use wire::{Frame, FrameKind, Life, LockMode, OstRequest, Request};

#[test]
fn acknowledged_writes_survive_the_loss_of_both_stores_tails() {
    for (keep_rows, kept) in [(0, Kept::Nothing), (100, Kept::Nothing), (0, Kept::Whole), (100, Kept::Whole)]
    {
        let mut world = World::new();
        let a = world.client(1);
        let lock = world.lock_and_write(a, object(1), 0, b"first");
        world.sync();
        world.is_syncing = false;
        world.write(a, object(1), 0, b"second", lock).expect("held");
        world.crash(keep_rows, |_| kept);
        world.is_syncing = true;
        world.start();
        world.pass(Duration::from_secs(10));
        assert_eq!(world.client_mut(a).evicted_count, 0);
        assert_eq!(world.read(a, object(1), Extent::at(0, 10)), Ok(b"second".to_vec()));
        world.write(a, object(1), 0, b"third!", lock).expect("the lock came back");
    }
}

/// The reply is lost and comes again after the restart, whose log still has the write's row: but not its bytes.
#[test]
fn a_write_is_not_answered_from_a_row_whose_data_are_lost() {
    let mut world = World::new();
    let a = world.client(1);
    let lock = world.lock_and_write(a, object(1), 0, b"first");
    world.sync();
    world.is_syncing = false;
    world.client_mut(a).is_deaf = true;
    let request = world.write_request(object(1), 0, lock);
    let ticket = world.submit(a, request, b"second".to_vec().into(), Kind::Modifying);
    world.run();
    assert_eq!(world.result(a, ticket), None, "nobody has told");
    world.crash(100, |_| Kept::Nothing);
    world.client_mut(a).is_deaf = false;
    world.is_syncing = true;
    world.start();
    world.pass(Duration::from_secs(20));
    assert!(matches!(world.result(a, ticket), Some(Ok(_))));
    assert_eq!(world.read(a, object(1), Extent::at(0, 10)), Ok(b"second".to_vec()));
}

/// The reply of A's cancel is lost, so A still has its write when the target restarts; B's later write of the same
/// bytes is durable, and B is gone. A's replay must not bring the old bytes back.
#[test]
fn a_replay_does_not_undo_what_came_after_it() {
    let mut world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    for client in [a, b] {
        world.attr(client, object(1));
    }
    world.is_syncing = false;
    world.client_mut(a).is_polite = false;
    let old_lock = world.lock_and_write(a, object(1), 0, b"old");
    let ticket = world.submit_lock(b, object(1), LockMode::Pw, Extent::at(0, 3));
    world.cancel(a, old_lock);
    world.cut_off(a, true);
    world.is_syncing = true;
    world.sync();
    assert!(matches!(world.result(b, ticket), Some(Ok(_))), "A gave way, its bytes are durable");
    let lock = *world.client_mut(b).held.keys().next().expect("B has it");
    world.write(b, object(1), 0, b"new", lock).expect("held");
    let sync = world.submit_ost(b, OstRequest::Sync { objects: vec![] }, Kind::Plain);
    assert!(matches!(world.result(b, sync), Some(Ok(_))));
    world.cut_off(b, true);
    assert!(world.client_mut(a).retained_count() > 0, "A does not know that its write is durable");
    world.crash(0, |_| Kept::Nothing);
    world.cut_off(a, false);
    world.start();
    world.pass(Duration::from_secs(90));
    assert_eq!(world.client_mut(a).evicted_count, 0, "A came back in time");
    let c = world.client(3);
    assert_eq!(world.read(c, object(1), Extent::at(0, 3)), Ok(b"new".to_vec()));
}

#[test]
fn a_destroyed_object_stays_destroyed_over_restart_and_replay() {
    let mut world = World::new();
    let (a, mdt) = (world.client(1), world.mdt(0));
    world.lock_and_write(a, object(1), 0, b"abc");
    let destroy = OstRequest::Destroy { objects: vec![object(1)] };
    let ticket = world.submit_ost(mdt, destroy, Kind::Modifying);
    assert!(matches!(world.result(mdt, ticket), Some(Ok(_))));
    world.crash(0, |_| Kept::Nothing);
    world.start();
    world.pass(Duration::from_secs(10));
    assert_eq!(world.attr(a, object(1)), None);
    assert_eq!(world.client_mut(a).evicted_count, 0);
}

/// Random writes of two clients to two objects, crashes at random points with random parts of the tails kept, never a
/// lost acknowledged byte.
#[test]
fn random_crashes_lose_nothing_acknowledged() {
    let mut crash_count = 0;
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut world = World::new();
        let clients = [world.client(1), world.client(2)];
        let mut model: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for step in 0..60u8 {
            let client = clients[rng.below(2) as usize];
            match rng.below(10) {
                0 => {
                    let keep_rows = rng.below(8) as usize;
                    let mut fate = rng.fork();
                    world.crash(keep_rows, |_| match fate.below(3) {
                        0 => Kept::Nothing,
                        1 => Kept::Whole,
                        _ => Kept::Torn { byte_count: 3 },
                    });
                    world.is_syncing = true;
                    world.start();
                    world.pass(Duration::from_secs(8));
                    crash_count += 1;
                }
                1 => world.sync(),
                2 => world.is_syncing = rng.one_in(2),
                3 => world.pass(Duration::from_millis(700)),
                _ => write_somewhere(&mut world, &mut rng, client, step, &mut model),
            }
        }
        world.is_syncing = true;
        world.pass(Duration::from_secs(5));
        for (number, bytes) in &model {
            let read = world.read(clients[0], object(*number), Extent::at(0, 64));
            assert_eq!(read.as_ref(), Ok(bytes), "seed {seed}, object {number}");
        }
        assert!(clients.iter().all(|client| world.client_mut(*client).evicted_count == 0));
    }
    assert!(crash_count > 100, "{crash_count} crashes are too tame");
}

fn write_somewhere(
    world: &mut World,
    rng: &mut Rng,
    client: ClientId,
    fill: u8,
    model: &mut BTreeMap<u32, Vec<u8>>,
) {
    let (number, offset) = (rng.below(2) as u32, rng.below(30) as usize);
    let data = vec![fill + 1; 1 + rng.below(8) as usize];
    let extent = Extent::at(offset as u64, data.len() as u64);
    let ticket = world.submit_lock(client, object(number), LockMode::Pw, extent);
    if world.result(client, ticket).is_none() {
        // It waits until the other's bytes are durable.
        world.sync();
        world.sync();
    }
    let answer = world.result(client, ticket).expect("nobody is in the way").expect("the object exists");
    let wire::Reply::Locked(grant) = answer.reply else { panic!("{answer:?}") };
    world.write(client, object(number), offset as u64, &data, grant.lock).expect("held");
    let bytes = model.entry(number).or_default();
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[offset..offset + data.len()].copy_from_slice(&data);
}

/// One client never comes back; the others' replays wait for it until the window ends, and are executed then.
#[test]
fn a_client_that_stays_away_costs_the_others_nothing_but_time() {
    let mut world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    for client in [a, b] {
        world.attr(client, object(1));
    }
    world.is_syncing = false;
    world.lock_and_write(a, object(1), 0, b"abc");
    world.lock_and_write(a, object(2), 0, b"def");
    world.cut_off(b, true);
    world.crash(0, |_| Kept::Nothing);
    world.is_syncing = true;
    world.start();
    world.pass(Duration::from_secs(90));
    assert_eq!(world.client_mut(a).evicted_count, 0);
    assert_eq!(world.read(a, object(1), Extent::at(0, 3)), Ok(b"abc".to_vec()));
    assert_eq!(world.read(a, object(2), Extent::at(0, 3)), Ok(b"def".to_vec()));
}

/// Hazard 5.3: the file of an object is gone. It was there durably, so nothing of it is read as a hole, asked for or
/// written over, now or after a restart; what was never written is a hole as before.
#[test]
fn a_lost_object_is_an_error_and_no_hole() {
    let mut world = World::new();
    let (a, mdt) = (world.client(1), world.mdt(0));
    let lock = world.lock_and_write(a, object(1), 0, b"precious");
    world.sync();
    world.pass(Duration::from_secs(3));
    assert_eq!(world.objects.destroy(&object(1)), Ok(true));
    for is_restarted in [false, true] {
        if is_restarted {
            world.crash(100, |_| Kept::Whole);
            world.start();
            world.pass(Duration::from_secs(10));
        }
        assert_eq!(world.read(a, object(1), Extent::at(0, 8)), Err(Status::Corrupt));
        assert_eq!(world.write(a, object(1), 0, b"new", lock), Err(Status::Corrupt));
        let request = OstRequest::Getattr { objects: vec![object(1)] };
        assert_eq!(world.call(a, Request::Ost(request), &[], Kind::Plain), Err(Status::Corrupt));
        assert_eq!(world.read(a, object(2), Extent::at(0, 8)), Ok(vec![]));
    }
    let lock = world.lock(a, object(3), LockMode::Pw, Extent::WHOLE).lock;
    for op in [ExtentOp::Punch, ExtentOp::Zero { keep_size: true }] {
        world.change(a, object(3), Extent::new(0, Extent::EOF), op, lock).expect("a hole in nothing");
        world.pass(Duration::from_secs(3));
        assert_eq!(world.read(a, object(3), Extent::at(0, 8)), Ok(vec![]), "{op:?}");
    }
    let is_told =
        |event: &OssEvent| matches!(event, OssEvent::Corrupt { object: told, .. } if *told == object(1));
    assert!(world.events.iter().any(is_told));
    let destroy = OstRequest::Destroy { objects: vec![object(1)] };
    let ticket = world.submit_ost(mdt, destroy, Kind::Modifying);
    assert!(matches!(world.result(mdt, ticket), Some(Ok(_))), "what is lost can be removed");
    assert_eq!(world.attr(a, object(1)), None);
}

/// Hazard 5.3: a power failure has kept the file of a new object and not its rows. It is replayed, made durable, and lost after that.
#[test]
fn an_object_whose_file_outlived_its_rows_is_missed_when_it_is_lost() {
    let mut world = World::new();
    let a = world.client(1);
    assert_eq!(world.attr(a, object(1)), None);
    world.is_syncing = false;
    world.lock_and_write(a, object(1), 0, b"precious");
    world.crash(0, |_| Kept::Whole);
    world.is_syncing = true;
    world.start();
    world.pass(Duration::from_secs(10));
    world.sync();
    assert_eq!(world.read(a, object(1), Extent::at(0, 10)), Ok(b"precious".to_vec()));
    assert_eq!(world.objects.destroy(&object(1)), Ok(true));
    assert_eq!(world.read(a, object(1), Extent::at(0, 10)), Err(Status::Corrupt));
}

/// Hazard 5.3, with a file that is there and has nothing left, not even its header.
#[test]
fn an_object_that_was_emptied_below_its_target_is_an_error_and_no_hole() {
    let mut world = World::new();
    let (a, mdt) = (world.client(1), world.mdt(0));
    let lock = world.lock_and_write(a, object(1), 0, b"precious");
    world.sync();
    world.pass(Duration::from_secs(3));
    world.objects.empty(&object(1));
    for is_restarted in [false, true] {
        if is_restarted {
            world.crash(100, |_| Kept::Whole);
            world.start();
            world.pass(Duration::from_secs(10));
        }
        assert_eq!(world.read(a, object(1), Extent::at(0, 8)), Err(Status::Corrupt));
        assert_eq!(world.write(a, object(1), 0, b"new", lock), Err(Status::Corrupt));
        for request in [
            OstRequest::Getattr { objects: vec![object(1)] },
            OstRequest::Seek { object: object(1), offset_bytes: 0, is_hole: true },
        ] {
            assert_eq!(world.call(a, Request::Ost(request), &[], Kind::Plain), Err(Status::Corrupt));
        }
    }
    let destroy = OstRequest::Destroy { objects: vec![object(1)] };
    let ticket = world.submit_ost(mdt, destroy, Kind::Modifying);
    assert!(matches!(world.result(mdt, ticket), Some(Ok(_))), "what is lost can be removed");
    assert_eq!(world.attr(a, object(1)), None);
}

/// A version before made objects without headers: what it made is believed as it believed it.
#[test]
fn an_object_of_before_without_a_header_is_a_hole() {
    let mut world = World::new();
    let a = world.client(1);
    world.lock_and_write(a, object(1), 0, b"precious");
    world.sync();
    world.pass(Duration::from_secs(3));
    let mut batch = Batch::new();
    oss::rows::put(&mut batch, oss::rows::BORN, &object(1).key(), &oss::rows::BornRow::default());
    let next = world.meta.applied().next();
    world.meta.apply(next, &batch).expect("in memory");
    world.objects.empty(&object(1));
    world.crash(100, |_| Kept::Whole);
    world.start();
    world.pass(Duration::from_secs(10));
    assert_eq!(world.read(a, object(1), Extent::at(0, 8)), Ok(vec![]));
}

/// The row of a new object survives a power failure, its bytes do not, and who wrote them is gone: nothing that anybody
/// was promised is lost, and the object is a hole, for good.
#[test]
fn a_new_object_that_a_power_failure_took_is_a_hole() {
    for keep_rows in [0, 1, 2, 100] {
        let mut world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        for client in [a, b] {
            world.attr(client, object(1));
        }
        world.is_syncing = false;
        world.lock_and_write(a, object(1), 0, b"nobody was promised this");
        world.cut_off(a, true);
        world.crash(keep_rows, |_| Kept::Nothing);
        world.is_syncing = true;
        world.start();
        world.pass(Duration::from_secs(90));
        for _ in 0..2 {
            assert_eq!(world.read(b, object(1), Extent::at(0, 8)), Ok(vec![]), "kept {keep_rows}");
            world.lock_and_write(b, object(2), 0, b"others");
            world.pass(Duration::from_secs(3));
            // Nobody but us has a session.
            world.crash(100, |_| Kept::Whole);
            world.start();
            world.pass(Duration::from_secs(10));
        }
        world.lock_and_write(b, object(1), 0, b"again");
        world.pass(Duration::from_secs(3));
        assert_eq!(world.objects.destroy(&object(1)), Ok(true));
        assert_eq!(world.read(b, object(1), Extent::at(0, 8)), Err(Status::Corrupt), "kept {keep_rows}");
    }
}

/// At the end of a recovery a fence and what its client has sent behind it are handed out together.
#[test]
fn nothing_is_executed_behind_the_fence_of_its_client() {
    for is_fenced in [true, false] {
        let mut world = World::new();
        let mdt = world.mdt(0);
        let (gone, absent) = (world.client(1), world.client(2));
        let sessions = [mdt, gone, absent].map(|client| world.session_of(client));
        world.cut_off(absent, true);
        world.crash(usize::MAX, |_| Kept::Whole);
        world.start();
        // The same in the next incarnation.
        let session = |index: usize| sessions[index] + (1 << 40);
        let frame = |session, client: ClientId, slot, request: OstRequest| {
            let mut frame =
                Frame::new(FrameKind::Request, client.endpoint(), Endpoint::Target(TargetId::ost(0)));
            (frame.session, frame.xid, frame.slot) = (session, Xid(1000), slot);
            frame.body = Request::Ost(request).to_bytes();
            frame
        };
        if is_fenced {
            let life = Life { client: gone, incarnation: 1 };
            world.hand_in(frame(session(0), mdt, Frame::NO_SLOT, OstRequest::Fence(life)));
        }
        let late = OstRequest::Write {
            object: object(9),
            offset_bytes: 0,
            lock: LockId(1000),
            stamp: world.now.wall,
            is_answered: false,
            asked: Some(Extent::WHOLE),
        };
        let mut late = frame(session(1), gone, 0, late);
        late.data = Bytes::from_static(b"late");
        world.hand_in(late);
        assert!(world.oss().core().is_recovering(), "somebody is absent");
        assert!(world.objects.list(None, 10).expect("the store is sound").is_empty());
        world.control(Input::AbortRecovery);
        world.pass(Duration::from_secs(5));
        assert!(!world.oss().core().is_recovering());
        assert_eq!(world.objects.list(None, 10).expect("the store is sound").is_empty(), is_fenced);
    }
}
