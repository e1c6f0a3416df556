use super::apply;
use base::Extent;
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
