//! The process of an OST dies, and not all of its clients are back: who is back goes on, where it does not meet what the others hold.
#![allow(clippy::unwrap_used)]

use crate::harness::{World, object};
use base::{ClientId, Duration, Extent, LockId};
use oss::{Input, OssEvent};
use rpc::import::Kind;
use store::memory::Kept;
use store::{Holdings, MemoryHoldings, ObjectStore};
use target::CoreEvent;
use wire::{LockMode, OstRequest};

const BYTES: Extent = Extent { start: 0, end: 6 };

/// A has written an object, whose lock it keeps, and is away. B is there.
struct Scene {
    world: World,
    a: ClientId,
    b: ClientId,
    lock: LockId,
}

fn scene() -> Scene {
    let mut world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    for client in [a, b] {
        world.attr(client, object(2));
    }
    world.is_syncing = false;
    let lock = world.lock_and_write(a, object(1), 0, b"theirs");
    world.cut_off(a, true);
    world.is_syncing = true;
    Scene { world, a, b, lock }
}

impl Scene {
    fn kill_and_start(&mut self) {
        self.world.kill();
        self.world.start();
        self.world.pass(Duration::from_secs(3));
    }

    fn is_recovering(&self) -> bool {
        self.world.oss().core().is_recovering()
    }

    fn early_count(&self) -> u64 {
        self.world.oss().core().recovery_report(self.world.now.time).early_count
    }

    fn bring_back(&mut self) {
        self.world.cut_off(self.a, false);
        self.world.pass(Duration::from_secs(20));
    }

    fn evicted_counts(&mut self) -> [usize; 2] {
        [self.a, self.b].map(|client| self.world.client_mut(client).evicted_count)
    }
}

#[test]
fn who_is_back_is_served_where_it_meets_nobody_who_is_away() {
    let mut scene = scene();
    scene.kill_and_start();
    let (a, b) = (scene.a, scene.b);
    scene.world.lock_and_write(b, object(2), 0, b"ours");
    assert_eq!(scene.world.read(b, object(2), Extent::at(0, 9)), Ok(b"ours".to_vec()));
    let writing = scene.world.submit_lock(b, object(1), LockMode::Pw, BYTES);
    let reading = scene.world.submit_ost(
        b,
        OstRequest::Read { object: object(1), extent: BYTES, lock: None },
        Kind::Plain,
    );
    scene.world.pass(Duration::from_secs(3));
    assert!(scene.is_recovering());
    assert!(scene.early_count() >= 3);
    assert_eq!(scene.world.result(b, writing), None, "somebody who is away may write there");
    assert_eq!(scene.world.result(b, reading), None, "or has more than it has sent");
    scene.bring_back();
    assert!(!scene.is_recovering());
    assert!(scene.world.client_mut(a).callbacks.contains(&scene.lock));
    assert!(scene.world.result(b, writing).unwrap().is_ok());
    assert_eq!(scene.world.result(b, reading).unwrap().unwrap().data, b"theirs"[..]);
    assert_eq!(scene.evicted_counts(), [0, 0]);
}

/// What was granted is not always what was asked for.
#[test]
fn extents_are_as_they_were() {
    let mut world = World::new();
    let (a, b, c) = (world.client(1), world.client(2), world.client(3));
    world.attr(c, object(2));
    let first = world.lock(a, object(1), LockMode::Pw, Extent::at(0, 4096));
    let second = world.lock(b, object(1), LockMode::Pw, Extent::at(8192, 4096));
    let noted = world.oss().locks().grants_on(first.resource);
    assert!(noted.iter().any(|(client, grant)| *client == b && grant.policy == second.policy));
    for client in [a, b] {
        world.cut_off(client, true);
    }
    world.kill();
    world.start();
    world.pass(Duration::from_secs(3));
    let mut found = world.oss().locks().grants_on(first.resource);
    let mut expected = noted;
    found.sort_by_key(|(client, _)| *client);
    expected.sort_by_key(|(client, _)| *client);
    assert_eq!(found, expected);
    let beside = world.submit_lock(c, object(1), LockMode::Pw, Extent::at(8192, 10));
    assert_eq!(world.result(c, beside), None);
    assert!(world.oss().core().is_recovering());
}

/// What it would replay is not known.
#[test]
fn after_a_power_failure_everybody_is_waited_for() {
    let mut scene = scene();
    scene.world.crash(usize::MAX, |_| Kept::Whole);
    scene.world.start();
    let b = scene.b;
    let asking = scene.world.submit_ost(b, OstRequest::Getattr { objects: vec![object(2)] }, Kind::Plain);
    scene.world.pass(Duration::from_secs(5));
    assert_eq!(scene.world.result(b, asking), None);
    scene.bring_back();
    assert!(scene.world.result(b, asking).unwrap().is_ok());
    assert_eq!(scene.early_count(), 0);
}

/// Nor is it when the note is of another incarnation, has lost something, or one of the stores has.
#[test]
fn a_note_that_cannot_be_all_is_not_believed() {
    for what in 0..4 {
        let mut scene = scene();
        match what {
            // Served elsewhere in between.
            0 => {
                let here = std::mem::take(&mut scene.world.holdings);
                scene.world.kill();
                scene.world.start();
                scene.world.holdings = here;
            }
            1 => {
                let small = MemoryHoldings::with_room(0);
                let left = scene.world.holdings.take_left().unwrap();
                small.clone().begin(left.epoch, &left.held, true);
                small.clone().set_applied(left.applied);
                scene.world.holdings = small;
            }
            2 => {
                let applied = scene.world.oss().core().last_transno();
                scene.world.holdings.clone().set_applied(applied.next());
            }
            // The file system was mounted anew.
            _ => {
                let note = scene.world.holdings.clone();
                let left = note.clone().take_left().unwrap();
                scene.world.kill();
                scene.world.crash(usize::MAX, |_| Kept::Whole);
                note.clone().begin(left.epoch, &left.held, true);
                note.clone().set_applied(left.applied);
                scene.world.start();
            }
        }
        let b = scene.b;
        if what != 3 {
            scene.world.kill();
            scene.world.start();
        }
        let asking = scene.world.submit_ost(b, OstRequest::Getattr { objects: vec![object(2)] }, Kind::Plain);
        scene.world.pass(Duration::from_secs(5));
        assert_eq!(scene.world.result(b, asking), None, "{what}");
        scene.bring_back();
        assert!(scene.world.result(b, asking).unwrap().is_ok());
        assert_eq!(scene.early_count(), 0);
        assert_eq!(scene.evicted_counts(), [0, 0]);
        // It has recovered, and knows again what is held.
        assert_eq!(scene.world.holdings.is_whole(), what != 1);
    }
}

/// The next incarnation knows of the absent client what the last one knew, and of the other what that one has done meanwhile.
#[test]
fn who_is_away_over_two_deaths_is_still_waited_for() {
    let mut scene = scene();
    let (a, b) = (scene.a, scene.b);
    scene.kill_and_start();
    let ours = scene.world.lock_and_write(b, object(2), 0, b"ours");
    scene.kill_and_start();
    scene.world.write(b, object(2), 0, b"more", ours).expect("the lock is still there");
    let locking = scene.world.submit_lock(b, object(1), LockMode::Pw, BYTES);
    scene.world.pass(Duration::from_secs(3));
    assert!(scene.is_recovering());
    assert_eq!(scene.world.result(b, locking), None);
    scene.bring_back();
    assert!(scene.world.result(b, locking).unwrap().is_ok());
    assert_eq!(scene.world.read(a, object(2), Extent::at(0, 9)), Ok(b"more".to_vec()));
    assert_eq!(scene.evicted_counts(), [0, 0]);
}

/// A's write was on no device when the process died. Nobody sends it again, so it has to be there when the power goes.
#[test]
fn what_the_kernel_had_is_durable_before_anybody_is_served() {
    let mut scene = scene();
    assert!(scene.world.objects.unsynced_count() > 0, "the write is not durable");
    scene.kill_and_start();
    assert_eq!(scene.world.objects.left_count(), 0);
    scene.bring_back();
    assert_eq!(scene.world.client_mut(scene.a).retained_count(), 0, "A has been told");
    scene.world.crash(0, |_| Kept::Nothing);
    scene.world.start();
    scene.world.pass(Duration::from_secs(20));
    assert_eq!(scene.world.read(scene.b, object(1), BYTES), Ok(b"theirs".to_vec()));
    assert_eq!(scene.evicted_counts(), [0, 0]);
}

/// What was served early and was not durable is replayed; who was away has nothing to replay, before or after.
#[test]
fn what_was_served_early_and_lost_with_the_power_comes_back() {
    let mut scene = scene();
    let b = scene.b;
    scene.kill_and_start();
    scene.world.is_syncing = false;
    let lock = scene.world.lock_and_write(b, object(2), 0, b"ours");
    scene.world.write(b, object(2), 2, b"t!", lock).expect("held");
    assert!(scene.is_recovering());
    assert!(scene.world.client_mut(b).retained_count() >= 2, "they are not durable");
    scene.world.crash(1, |_| Kept::Nothing);
    scene.world.is_syncing = true;
    scene.world.start();
    let asking = scene.world.submit_ost(b, OstRequest::Getattr { objects: vec![object(2)] }, Kind::Plain);
    scene.world.pass(Duration::from_secs(5));
    assert_eq!(scene.world.result(b, asking), None, "everybody is waited for");
    scene.bring_back();
    assert_eq!(scene.world.read(b, object(2), Extent::at(0, 9)), Ok(b"out!".to_vec()));
    assert_eq!(scene.world.read(b, object(1), BYTES), Ok(b"theirs".to_vec()));
    assert_eq!(scene.evicted_counts(), [0, 0]);
}

/// Clients keep what is not durable, so they have to hear what is also while somebody is away.
#[test]
fn what_was_served_early_and_is_durable_is_committed() {
    let mut scene = scene();
    let b = scene.b;
    scene.kill_and_start();
    scene.world.lock_and_write(b, object(2), 0, b"ours");
    scene.world.sync();
    scene.world.attr(b, object(2));
    scene.world.pass(Duration::from_secs(3));
    scene.world.attr(b, object(2));
    assert!(scene.is_recovering());
    assert_eq!(scene.world.client_mut(b).retained_count(), 0);
    scene.world.crash(0, |_| Kept::Nothing);
    scene.world.start();
    scene.bring_back();
    assert_eq!(scene.world.read(b, object(2), Extent::at(0, 9)), Ok(b"ours".to_vec()));
}

#[test]
fn what_waits_for_who_is_away_goes_on_when_that_one_is_given_up() {
    for is_abort in [false, true] {
        let mut scene = scene();
        let (a, b) = (scene.a, scene.b);
        scene.kill_and_start();
        let locking = scene.world.submit_lock(b, object(1), LockMode::Pw, BYTES);
        scene.world.pass(Duration::from_secs(2));
        assert_eq!(scene.world.result(b, locking), None);
        scene.world.control(if is_abort { Input::AbortRecovery } else { Input::Evict(a) });
        scene.world.pass(Duration::from_secs(2));
        assert!(!scene.is_recovering());
        assert!(scene.world.result(b, locking).unwrap().is_ok());
        scene.bring_back();
        assert_eq!(scene.evicted_counts(), [1, 0]);
        assert_eq!(scene.world.read(a, object(1), BYTES), Ok(b"theirs".to_vec()));
    }
}

/// A has given the lock back to the process that died, which has not told it.
#[test]
fn what_a_client_does_not_name_it_does_not_have() {
    let mut scene = scene();
    let (a, b) = (scene.a, scene.b);
    scene.kill_and_start();
    let locking = scene.world.submit_lock(b, object(1), LockMode::Pw, BYTES);
    assert_eq!(scene.world.result(b, locking), None);
    scene.world.client_mut(a).held.clear();
    scene.bring_back();
    assert!(scene.world.result(b, locking).unwrap().is_ok());
    assert_eq!(scene.evicted_counts(), [0, 0]);
}

/// The object goes when nobody can be writing it, and not before.
#[test]
fn a_destroy_waits_for_who_is_away() {
    let mut scene = scene();
    let mdt = scene.world.mdt(0);
    scene.world.attr(mdt, object(2));
    scene.kill_and_start();
    let destroy = |number| OstRequest::Destroy { objects: vec![object(number)] };
    let theirs = scene.world.submit_ost(mdt, destroy(1), Kind::Modifying);
    let other = scene.world.submit_ost(mdt, destroy(2), Kind::Modifying);
    scene.world.pass(Duration::from_secs(3));
    assert!(scene.world.result(mdt, other).unwrap().is_ok());
    assert_eq!(scene.world.result(mdt, theirs), None);
    assert!(scene.world.objects.stat(&object(1)).unwrap().is_some());
    scene.bring_back();
    assert!(scene.world.result(mdt, theirs).unwrap().is_ok());
    assert_eq!(scene.world.attr(scene.b, object(1)), None);
    assert_eq!(scene.evicted_counts(), [0, 0]);
}

/// An MDT that does not come back has nothing under way that it would not ask for again.
#[test]
fn nobody_waits_for_an_mdt() {
    let mut scene = scene();
    let mdt = scene.world.mdt(0);
    scene.world.attr(mdt, object(2));
    scene.world.cut_off(mdt, true);
    scene.kill_and_start();
    scene.world.lock_and_write(scene.b, object(2), 0, b"ours");
    assert!(scene.is_recovering());
}

/// Its answer is lost with the process: it is executed once, and answered as it had been.
#[test]
fn a_write_whose_answer_is_lost_is_not_executed_again() {
    let mut scene = scene();
    let b = scene.b;
    let lock = scene.world.lock_and_write(b, object(2), 0, b"first");
    scene.world.events.clear();
    scene.world.client_mut(b).is_deaf = true;
    let request = scene.world.write_request(object(2), 0, lock);
    let writing = scene.world.submit(b, request, b"again".to_vec().into(), Kind::Modifying);
    scene.world.run();
    scene.world.kill();
    scene.world.client_mut(b).is_deaf = false;
    scene.world.start();
    scene.world.pass(Duration::from_secs(20));
    assert!(scene.world.result(b, writing).unwrap().is_ok());
    let of_b = |event: &&OssEvent| matches!(event, OssEvent::Core(CoreEvent::Executed { client, .. }) if *client == b);
    assert_eq!(scene.world.events.iter().filter(of_b).count(), 1);
    assert!(scene.is_recovering(), "A is still away");
}

/// The bytes of a device that has failed may look sound in the kernel's memory.
#[test]
fn a_target_that_was_fenced_leaves_no_note() {
    let mut scene = scene();
    assert!(scene.world.holdings.is_whole());
    scene.world.objects.set_failing(true);
    scene.world.sync();
    assert!(scene.world.objects.is_poisoned());
    assert!(!scene.world.holdings.is_whole());
    scene.world.kill();
    assert_eq!(scene.world.holdings.take_left(), None);
}

/// The second try would be told of no error.
#[test]
fn a_target_that_cannot_sync_what_is_left_does_not_start_and_leaves_no_note() {
    let mut scene = scene();
    scene.world.kill();
    assert!(scene.world.holdings.is_whole());
    scene.world.objects.set_failing(true);
    assert!(scene.world.try_start().is_err());
    assert!(!scene.world.holdings.is_whole());
}
