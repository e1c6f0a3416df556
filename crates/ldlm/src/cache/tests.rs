use super::*;
use base::{Extent, Fid, ObjectId};

fn object() -> Resource {
    Resource::Object(ObjectId { fid: Fid::ROOT, component: 0, stripe: 0 })
}

fn extent(start: u64, end: u64) -> LockPolicy {
    LockPolicy::Extent(Extent::new(start, end))
}

fn hold(cache: &mut LockCache, mode: LockMode, policy: LockPolicy) -> LockId {
    let lock = cache.allocate();
    assert!(cache.insert(Time(1), LockGrant { lock, resource: object(), mode, policy }));
    lock
}

#[test]
fn a_stronger_and_larger_lock_is_found() {
    let mut cache = LockCache::new();
    let lock = hold(&mut cache, LockMode::Pw, extent(0, 100));
    assert_eq!(cache.find(object(), LockMode::Pr, extent(10, 20)), Some(lock));
    assert_eq!(cache.find(object(), LockMode::Pr, extent(10, 101)), None);
    assert_eq!(cache.find(object(), LockMode::Ex, extent(10, 20)), None);
    cache.check();
}

#[test]
fn a_lock_in_use_goes_back_with_its_last_user() {
    let mut cache = LockCache::new();
    let lock = hold(&mut cache, LockMode::Pr, extent(0, 100));
    assert!(cache.pin(lock));
    assert_eq!(cache.on_callback(lock), CallbackAnswer::InUse);
    assert_eq!(cache.on_callback(lock), CallbackAnswer::Dying);
    assert_eq!(cache.find(object(), LockMode::Pr, extent(0, 1)), None);
    assert_eq!(cache.find_even_dying(object(), LockMode::Pr, extent(0, 1)), Some(lock));
    assert!(!cache.unpin(Time(2), lock));
    assert!(cache.unpin(Time(2), lock));
    assert_eq!(cache.all_for_replay().len(), 1);
    assert!(cache.remove(lock).is_some());
    cache.check();
    assert_eq!(cache.lock_count(), 0);
}

#[test]
fn an_idle_lock_goes_back_at_once() {
    let mut cache = LockCache::new();
    let lock = hold(&mut cache, LockMode::Pr, extent(0, 100));
    assert!(!cache.unpin(Time(2), lock));
    assert_eq!(cache.idle_count(), 1);
    assert_eq!(cache.on_callback(lock), CallbackAnswer::Idle);
    cache.check();
}

#[test]
fn a_callback_that_overtakes_its_grant_is_remembered() {
    let mut cache = LockCache::new();
    let lock = cache.allocate();
    assert_eq!(cache.on_callback(lock), CallbackAnswer::Unknown);
    let grant = LockGrant { lock, resource: object(), mode: LockMode::Pr, policy: extent(0, 1) };
    assert!(cache.insert(Time(1), grant.clone()));
    assert!(!cache.insert(Time(1), grant), "a repeated reply pins nothing");
    assert!(cache.is_dying(lock));
    assert!(cache.unpin(Time(1), lock));
}

#[test]
fn the_oldest_idle_locks_are_given_back() {
    let mut cache = LockCache::new();
    let locks: Vec<_> = (0..5).map(|n| hold(&mut cache, LockMode::Pr, extent(n, n + 1))).collect();
    for (index, lock) in locks.iter().enumerate() {
        assert!(!cache.unpin(Time(index as u64), *lock));
    }
    assert_eq!(cache.take_idle(Time(5), Duration::from_nanos(100), 3, 10), locks[..2]);
    assert_eq!(cache.take_idle(Time(7), Duration::from_nanos(4), 100, 10), locks[2..3]);
    assert!(cache.is_dying(locks[0]));
    cache.check();
}

#[test]
fn a_lock_of_use_is_not_among_the_oldest() {
    let mut cache = LockCache::new();
    let locks: Vec<LockId> =
        (0..3).map(|number| hold(&mut cache, LockMode::Pr, extent(number * 10, number * 10 + 10))).collect();
    for lock in &locks {
        assert!(!cache.unpin(Time(2), *lock));
    }
    let later = Time(2).after(TOUCH_INTERVAL);
    cache.touch(later, locks[0]);
    cache.check();
    assert_eq!(cache.take_idle(later, Duration::MAX, 1, 10), locks[1..]);
    // One that is on its way back stays so.
    cache.touch(later.after(TOUCH_INTERVAL), locks[1]);
    cache.check();
    assert_eq!(cache.idle_count(), 1);
}

#[test]
fn an_eviction_takes_everything_and_late_unpins_are_harmless() {
    let mut cache = LockCache::new();
    let lock = hold(&mut cache, LockMode::Pw, extent(0, 100));
    assert_eq!(cache.clear().len(), 1);
    assert!(!cache.unpin(Time(1), lock));
    assert!(cache.allocate() > lock);
    cache.check();
}
