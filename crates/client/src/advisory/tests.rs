use super::{Advisory, apply};
use base::{Extent, Status};
use wire::mdt::{FileLock, FlockKind};

fn lock(owner: u64, kind: FlockKind, start: u64, end: u64) -> FileLock {
    FileLock { owner, pid: 1, is_flock: false, kind, extent: Extent::new(start, end) }
}

#[test]
fn an_unlock_in_the_middle_leaves_both_ends() {
    let mut locks = vec![lock(1, FlockKind::Write, 0, 100)];
    apply(&mut locks, lock(1, FlockKind::Unlock, 40, 60));
    assert_eq!(locks, vec![lock(1, FlockKind::Write, 0, 40), lock(1, FlockKind::Write, 60, 100)]);
}

#[test]
fn neighbours_of_one_kind_become_one() {
    let mut locks = vec![lock(1, FlockKind::Read, 0, 10), lock(1, FlockKind::Read, 20, 30)];
    apply(&mut locks, lock(1, FlockKind::Read, 10, 20));
    assert_eq!(locks, vec![lock(1, FlockKind::Read, 0, 30)]);
}

#[test]
fn another_owner_is_left_alone() {
    let mut locks = vec![lock(2, FlockKind::Read, 0, 10)];
    apply(&mut locks, lock(1, FlockKind::Unlock, 0, 10));
    assert_eq!(locks, vec![lock(2, FlockKind::Read, 0, 10)]);
}

#[test]
fn a_stronger_lock_replaces_what_it_covers() {
    let mut locks = vec![lock(1, FlockKind::Read, 0, 100)];
    apply(&mut locks, lock(1, FlockKind::Write, 50, 60));
    assert_eq!(locks.len(), 3);
    assert!(locks.contains(&lock(1, FlockKind::Write, 50, 60)));
    assert!(locks.contains(&lock(1, FlockKind::Read, 0, 50)));
    assert!(locks.contains(&lock(1, FlockKind::Read, 60, 100)));
}

fn flock(kind: FlockKind) -> FileLock {
    FileLock { is_flock: true, extent: Extent::WHOLE, ..lock(1, kind, 0, 1) }
}

#[test]
fn a_conversion_that_waits_has_given_up_the_old_lock() {
    let mut locks = Advisory::holding(vec![flock(FlockKind::Read)]);
    let asked = locks.ask(flock(FlockKind::Write), true);
    assert!(locks.has_of(1, true), "it may not have arrived: whoever closes the file unlocks it");
    assert!(locks.replayed().is_empty());
    locks.end(asked, Ok(()));
    assert_eq!(locks.replayed(), [flock(FlockKind::Write)]);
}

#[test]
fn a_conversion_that_was_interrupted_has_given_up_the_old_lock() {
    let mut locks = Advisory::holding(vec![flock(FlockKind::Read)]);
    let asked = locks.ask(flock(FlockKind::Write), true);
    locks.end(asked, Err(Status::Interrupted));
    assert!(locks.replayed().is_empty());
    assert!(
        locks.has_of(1, true),
        "another thread may have taken it again: whoever closes the file unlocks it"
    );
    let unlock = locks.ask(flock(FlockKind::Unlock), false);
    locks.end(unlock, Ok(()));
    assert!(!locks.has_of(1, true));
}

#[test]
fn a_conversion_that_does_not_wait_keeps_the_old_lock_until_it_is_granted() {
    let mut locks = Advisory::holding(vec![flock(FlockKind::Read)]);
    let asked = locks.ask(flock(FlockKind::Write), false);
    assert_eq!(locks.replayed(), [flock(FlockKind::Read)]);
    locks.end(asked, Err(Status::WouldBlock));
    assert_eq!(locks.replayed(), [flock(FlockKind::Read)]);
}

#[test]
fn of_what_is_asked_for_by_ranges_the_weaker_is_held() {
    let mut locks =
        Advisory::holding(vec![lock(1, FlockKind::Write, 0, 100), lock(2, FlockKind::Read, 0, 9)]);
    locks.ask(lock(1, FlockKind::Read, 50, 200), true);
    locks.ask(lock(1, FlockKind::Unlock, 0, 10), false);
    locks.ask(lock(2, FlockKind::Write, 0, 9), true);
    let mut told = locks.replayed().to_vec();
    told.sort_by_key(|lock| (lock.owner, lock.extent.start));
    let expected = [
        lock(1, FlockKind::Write, 10, 50),
        lock(1, FlockKind::Read, 50, 100),
        lock(2, FlockKind::Read, 0, 9),
    ];
    assert_eq!(told, expected);
}
