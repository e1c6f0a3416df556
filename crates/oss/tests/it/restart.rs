//! Crashes: what was acknowledged comes back, what was replaced stays replaced.

use crate::harness::{World, object};
use base::{ClientId, Duration, Extent, Rng};
use rpc::import::Kind;
use std::collections::BTreeMap;
use store::memory::Kept;
use wire::{LockMode, OstRequest};

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
    let (a, mdt) = (world.client(1), world.client(2));
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
