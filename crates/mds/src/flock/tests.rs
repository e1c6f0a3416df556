use super::{Flocks, LOCKS_PER_CLIENT_MAX, Locked, REPLAYED_PER_CLIENT_MAX};
use base::{ClientId, Extent, Fid, Rng, Status, WallTime};
use std::collections::{BTreeMap, BTreeSet};
use wire::mdt::{FileLock, FlockKind};
use wire::peer::{FlockOwner, FlockWaitId};

const FID: Fid = Fid { seq: 1, oid: 1, ver: 0 };
const OTHER: Fid = Fid { seq: 1, oid: 2, ver: 0 };
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);

fn posix(kind: FlockKind, start: u64, end: u64) -> FileLock {
    FileLock { owner: 7, pid: 70, is_flock: false, kind, extent: Extent::new(start, end) }
}

fn wait(number: u64) -> FlockWaitId {
    FlockWaitId { since: WallTime(0), mdt_index: 0, number }
}

fn take(
    locks: &mut Flocks<u32>,
    fid: Fid,
    client: ClientId,
    lock: FileLock,
    token: u32,
) -> (Locked<u32>, Vec<u32>) {
    let mut granted = Vec::new();
    let result = locks.lock(WallTime(0), fid, client, lock, true, token, &mut granted);
    locks.check();
    (result, granted)
}

#[test]
fn an_unlock_in_the_middle_splits_a_range_and_a_lock_merges_it_again() {
    let mut locks = Flocks::new(0);
    take(&mut locks, FID, A, posix(FlockKind::Write, 0, 100), 1);
    take(&mut locks, FID, A, posix(FlockKind::Unlock, 40, 60), 2);
    assert_eq!(locks.test(FID, B, posix(FlockKind::Read, 40, 60)), None);
    let first = locks.test(FID, B, posix(FlockKind::Read, 0, 200)).map(|lock| lock.extent);
    assert_eq!(first, Some(Extent::new(0, 40)));
    take(&mut locks, FID, A, posix(FlockKind::Write, 40, 60), 3);
    let whole = locks.test(FID, B, posix(FlockKind::Read, 50, 51)).map(|lock| lock.extent);
    assert_eq!(whole, Some(Extent::new(0, 100)));
    take(&mut locks, FID, A, posix(FlockKind::Unlock, 0, u64::MAX), 4);
    assert_eq!(locks.file_count(), 0);
}

/// Unlocking is the only other way to more ranges, and has the same bound; what does not split is never refused.
#[test]
fn an_unlock_splits_no_range_when_a_client_has_as_many_as_it_may() {
    let mut locks = Flocks::new(0);
    take(&mut locks, FID, A, posix(FlockKind::Write, 0, 1 << 40), 0);
    let mut hole = 0;
    while locks.counts[&A] < LOCKS_PER_CLIENT_MAX {
        hole += 2;
        let (locked, _) = take(&mut locks, FID, A, posix(FlockKind::Unlock, hole, hole + 1), hole as u32);
        assert_eq!(locked, Locked::Now(hole as u32));
    }
    let splits = posix(FlockKind::Unlock, hole + 2, hole + 3);
    assert_eq!(take(&mut locks, FID, A, splits, 1).0, Locked::Refused(1, Status::NoLocks));
    assert!(locks.test(FID, B, posix(FlockKind::Read, hole + 2, hole + 3)).is_some(), "nothing has changed");
    // Of the last range the end, then all.
    let cuts = posix(FlockKind::Unlock, hole + 1000, 1 << 40);
    assert_eq!(take(&mut locks, FID, A, cuts, 2).0, Locked::Now(2));
    assert_eq!(take(&mut locks, FID, A, posix(FlockKind::Unlock, 0, u64::MAX), 3).0, Locked::Now(3));
    assert_eq!(locks.file_count(), 0);
}

#[test]
fn a_waiter_is_served_when_the_range_is_free() {
    let mut locks = Flocks::new(0);
    take(&mut locks, FID, A, posix(FlockKind::Write, 0, 100), 1);
    assert_eq!(take(&mut locks, FID, B, posix(FlockKind::Read, 50, 60), 2), (Locked::Wait(wait(1)), vec![]));
    let (_, granted) = take(&mut locks, FID, A, posix(FlockKind::Unlock, 50, 100), 3);
    assert_eq!(granted, [2]);
}

#[test]
fn only_those_are_in_the_way_for_whom_somebody_waits() {
    let mut locks = Flocks::new(0);
    take(&mut locks, FID, A, posix(FlockKind::Write, 0, 100), 1);
    take(&mut locks, OTHER, B, posix(FlockKind::Write, 0, 100), 2);
    assert!(!locks.has_waiting());
    take(&mut locks, FID, B, posix(FlockKind::Write, 100, 200), 3);
    take(&mut locks, FID, C, posix(FlockKind::Read, 50, 60), 4);
    assert!(locks.has_waiting());
    assert_eq!(locks.in_the_way(), BTreeSet::from([A]));
    locks.drop_client(A, &mut Vec::new());
    assert!(!locks.has_waiting());
    assert_eq!(locks.in_the_way(), BTreeSet::new());
}

#[test]
fn two_owners_that_would_wait_for_each_other_are_told() {
    let mut locks = Flocks::new(0);
    take(&mut locks, FID, A, posix(FlockKind::Write, 0, 1), 1);
    take(&mut locks, OTHER, B, posix(FlockKind::Write, 0, 1), 2);
    assert_eq!(take(&mut locks, OTHER, A, posix(FlockKind::Write, 0, 1), 3).0, Locked::Wait(wait(1)));
    let refused = Locked::Refused(4, Status::Deadlock);
    assert_eq!(take(&mut locks, FID, B, posix(FlockKind::Write, 0, 1), 4).0, refused);
}

#[test]
fn a_waiter_that_gives_up_and_one_whose_client_dies_leave_nothing() {
    let mut locks = Flocks::new(0);
    take(&mut locks, FID, A, posix(FlockKind::Write, 0, 1), 1);
    take(&mut locks, FID, B, posix(FlockKind::Write, 0, 1), 2);
    assert_eq!(locks.cancel(FID, B, 7, false), [2]);
    take(&mut locks, FID, B, posix(FlockKind::Write, 0, 1), 3);
    let mut granted = Vec::new();
    locks.drop_client(A, &mut granted);
    assert_eq!(granted, [3]);
    locks.drop_client(B, &mut granted);
    assert_eq!(locks.file_count(), 0);
}

#[test]
fn flock_and_fcntl_do_not_see_each_other() {
    let mut locks = Flocks::new(0);
    take(&mut locks, FID, A, posix(FlockKind::Write, 0, u64::MAX), 1);
    let flock = FileLock { is_flock: true, ..posix(FlockKind::Write, 0, u64::MAX) };
    assert_eq!(take(&mut locks, FID, B, flock, 2).0, Locked::Now(2));
}

/// Byte by byte, against a table of owners.
#[test]
fn ranges_agree_with_a_model_of_single_bytes() {
    const BYTES: u64 = 24;
    let mut rng = Rng::new(7);
    let mut locks: Flocks<u32> = Flocks::new(0);
    let mut model = vec![[FlockKind::Unlock; 3]; BYTES as usize];
    for _ in 0..4000 {
        let client = rng.below(3);
        let start = rng.below(BYTES);
        let end = start + 1 + rng.below(BYTES - start);
        let kind = [FlockKind::Unlock, FlockKind::Read, FlockKind::Write][rng.below(3) as usize];
        let is_blocked = (start..end).any(|byte| {
            (0..3).any(|other| {
                let held = model[byte as usize][other as usize];
                other != client
                    && held != FlockKind::Unlock
                    && kind != FlockKind::Unlock
                    && (held == FlockKind::Write || kind == FlockKind::Write)
            })
        });
        let result = locks.lock(
            WallTime(0),
            FID,
            ClientId(u128::from(client)),
            posix(kind, start, end),
            false,
            0,
            &mut Vec::new(),
        );
        locks.check();
        let expected = if is_blocked { Locked::Refused(0, Status::WouldBlock) } else { Locked::Now(0) };
        assert_eq!(result, expected);
        if !is_blocked {
            (start..end).for_each(|byte| model[byte as usize][client as usize] = kind);
        }
    }
}

#[test]
fn who_is_in_the_way_with_many_ranges_is_named_once() {
    let mut locks = Flocks::new(0);
    for start in 0..2000 {
        let lock = posix(FlockKind::Read, 2 * start, 2 * start + 1);
        let taken = locks.lock(WallTime(0), FID, A, lock, false, 1, &mut Vec::new());
        assert_eq!(taken, Locked::Now(1));
    }
    let whole = locks.lock(WallTime(0), FID, B, posix(FlockKind::Write, 0, 4000), true, 2, &mut Vec::new());
    assert_eq!(whole, Locked::Wait(wait(1)));
    let waits = locks.waits_of(FlockOwner { client: B, owner: 7 });
    let blockers: Vec<_> = waits.iter().flat_map(|wait| &wait.blockers).map(|owner| owner.client).collect();
    assert_eq!(blockers, [A]);
}

/// A client that comes back says what it has had, and cannot have had twice as much as it may.
#[test]
fn more_than_a_client_may_have_is_not_replayed() {
    let mut locks: Flocks<u32> = Flocks::new(0);
    let range = |number: u64| posix(FlockKind::Read, 2 * number, 2 * number + 1);
    let count = REPLAYED_PER_CLIENT_MAX as u64;
    let all: Vec<FileLock> = (0..count).rev().map(range).collect();
    assert_eq!(locks.replay(FID, A, &all), Ok(()));
    locks.check();
    assert_eq!(locks.replay(FID, A, &[range(count)]), Err(Status::NoLocks));
    assert_eq!(locks.replay(OTHER, A, &[range(0)]), Err(Status::NoLocks));
    assert_eq!(locks.replay(OTHER, B, &[range(0)]), Ok(()), "of another client nothing is counted");
    assert_eq!(locks.counts[&A] as u64, count);
    assert_eq!(locks.test(FID, B, posix(FlockKind::Write, 2 * count - 2, u64::MAX)), Some(range(count - 1)));
    take(&mut locks, FID, A, posix(FlockKind::Unlock, 0, u64::MAX), 1);
    assert_eq!(locks.replay(FID, A, &[range(count)]), Ok(()));
}

/// Nobody who is sound asks so.
#[test]
fn a_question_about_no_bytes_has_an_answer() {
    let mut locks: Flocks<u32> = Flocks::new(0);
    take(&mut locks, FID, A, posix(FlockKind::Write, 0, 100), 1);
    for (start, end) in [(50, 50), (70, 20), (u64::MAX, 0), (200, 100)] {
        locks.test(FID, B, posix(FlockKind::Read, start, end));
    }
    locks.check();
}

/// Of many who wait for one range, and of many who hold it, not each is compared with each.
#[test]
fn who_is_in_the_way_of_many_is_looked_for_once() {
    const COUNT: u64 = 500;
    let mut locks: Flocks<u32> = Flocks::new(0);
    let of = |owner, kind| FileLock { owner, ..posix(kind, 0, 10) };
    let ask = |locks: &mut Flocks<u32>, client, lock| {
        locks.lock(WallTime(0), FID, client, lock, true, 1, &mut Vec::new())
    };
    for owner in 0..COUNT {
        assert_eq!(ask(&mut locks, [A, B][owner as usize % 2], of(owner, FlockKind::Read)), Locked::Now(1));
    }
    for owner in 0..COUNT {
        let waiting = ask(&mut locks, C, of(owner, FlockKind::Write));
        assert_eq!(waiting, Locked::Wait(wait(owner + 1)));
    }
    locks.check();
    looked_at(&locks);
    assert_eq!(locks.in_the_way(), BTreeSet::from([A, B]));
    assert_eq!(looked_at(&locks), COUNT as usize, "each that holds something, once");
    // A wait for one of those who wait: whose wait it is, and whom that waits for.
    let own = FileLock { owner: COUNT, ..posix(FlockKind::Write, 50, 51) };
    assert_eq!(ask(&mut locks, C, own), Locked::Now(1));
    looked_at(&locks);
    let behind = FileLock { owner: COUNT + 1, ..own };
    assert_eq!(ask(&mut locks, C, behind), Locked::Wait(wait(COUNT + 1)));
    // Once for its conflict, once for those in its way, and once for each that waits when it is looked whether it can go on.
    assert!(looked_at(&locks) < 5 * COUNT as usize, "waits of others are not compared with all");
}

/// An owner is not in its own way, and is in that of others who want the same.
#[test]
fn who_wants_more_of_what_he_has_is_in_the_way_of_others_only() {
    let mut locks = Flocks::new(0);
    take(&mut locks, FID, A, posix(FlockKind::Read, 0, 10), 1);
    take(&mut locks, FID, B, posix(FlockKind::Read, 0, 10), 2);
    take(&mut locks, FID, A, posix(FlockKind::Write, 0, 10), 3);
    assert_eq!(locks.in_the_way(), BTreeSet::from([B]));
    take(&mut locks, FID, C, posix(FlockKind::Write, 0, 10), 4);
    assert_eq!(locks.in_the_way(), BTreeSet::from([A, B]));
}

/// The bound counts before a range is taken. What the last ones have split a client may name again, all of it.
#[test]
fn what_was_granted_at_the_bound_is_replayed() {
    let mut locks = Flocks::new(0);
    take(&mut locks, OTHER, B, posix(FlockKind::Read, 0, 10 * LOCKS_PER_CLIENT_MAX as u64), 1);
    // As many waits as there may be, each in the middle of what the client has already.
    const WAITS: u64 = 10;
    for number in 0..WAITS {
        take(&mut locks, OTHER, A, posix(FlockKind::Read, 10 * number, 10 * number + 9), 1);
        let middle = posix(FlockKind::Write, 10 * number + 4, 10 * number + 5);
        assert_eq!(take(&mut locks, OTHER, A, middle, 2).0, Locked::Wait(wait(number + 1)));
    }
    let mut number = 0;
    while locks.counts[&A] < LOCKS_PER_CLIENT_MAX {
        take(&mut locks, FID, A, posix(FlockKind::Read, 2 * number, 2 * number + 1), 3);
        number += 1;
    }
    let (_, granted) = take(&mut locks, OTHER, B, posix(FlockKind::Unlock, 0, u64::MAX), 4);
    assert_eq!(granted.len() as u64, WAITS);
    assert!(locks.counts[&A] > LOCKS_PER_CLIENT_MAX + 1, "each makes three of one");
    let held = |fid: Fid| -> Vec<FileLock> { locks.files[&fid].held().map(|held| held.lock).collect() };
    let mut restarted: Flocks<u32> = Flocks::new(0);
    for fid in [FID, OTHER] {
        assert_eq!(restarted.replay(fid, A, &held(fid)), Ok(()));
    }
    restarted.check();
    assert_eq!(restarted.counts, locks.counts);
}

fn looked_at(locks: &Flocks<u32>) -> usize {
    locks.files.values().map(|file| file.looked_at_count.take()).sum()
}

/// Of very many who wait nobody is looked at because of bytes that were in nobody's way.
#[test]
fn a_change_elsewhere_looks_at_nobody_who_waits() {
    const COUNT: u64 = 500;
    const CHANGE_COUNT: usize = 20;
    let mut locks: Flocks<u32> = Flocks::new(0);
    let ask = |locks: &mut Flocks<u32>, client, lock| {
        locks.lock(WallTime(0), FID, client, lock, true, 1, &mut Vec::new())
    };
    assert_eq!(ask(&mut locks, A, posix(FlockKind::Write, 0, 10)), Locked::Now(1));
    assert_eq!(ask(&mut locks, A, posix(FlockKind::Write, 90, 99)), Locked::Now(1));
    looked_at(&locks);
    for owner in 0..COUNT {
        let lock = FileLock { owner, ..posix(FlockKind::Write, 0, 10) };
        assert_eq!(ask(&mut locks, B, lock), Locked::Wait(wait(owner + 1)));
    }
    let by_waiting = looked_at(&locks);
    assert!(by_waiting <= 5 * COUNT as usize, "{by_waiting}: who comes looks at nobody else who waits");
    for _ in 0..CHANGE_COUNT {
        assert_eq!(ask(&mut locks, C, posix(FlockKind::Write, 50, 51)), Locked::Now(1));
        assert_eq!(ask(&mut locks, C, posix(FlockKind::Unlock, 50, 51)), Locked::Now(1));
    }
    // By who is in the way, too.
    assert_eq!(ask(&mut locks, A, posix(FlockKind::Unlock, 90, 99)), Locked::Now(1));
    let by_changes = looked_at(&locks);
    assert!(
        by_changes <= 2 * CHANGE_COUNT,
        "{by_changes}: those who hold something, when a lock is asked for"
    );
    locks.check();
    looked_at(&locks);
    let mut granted = Vec::new();
    locks.lock(WallTime(0), FID, A, posix(FlockKind::Unlock, 0, 10), true, 1, &mut granted);
    assert_eq!(granted, [1]);
    let by_serving = looked_at(&locks);
    assert!(by_serving <= 3 * COUNT as usize, "{by_serving}: each who waited for that, once");
    locks.check();
}

/// A client that holds or awaits nothing in a file changes nothing there when it goes.
#[test]
fn a_client_that_goes_looks_at_its_own_files_only() {
    const COUNT: u32 = 300;
    let mut locks: Flocks<u32> = Flocks::new(0);
    let file = |number: u32| Fid { seq: 1, oid: 100 + number, ver: 0 };
    for number in 0..COUNT {
        take(&mut locks, file(number), A, posix(FlockKind::Write, 0, 10), 1);
        let asked = take(&mut locks, file(number), B, posix(FlockKind::Write, 0, 10), 1000 + number).0;
        assert_eq!(asked, Locked::Wait(wait(u64::from(number) + 1)));
    }
    // One that holds, one that waits, and one of which nothing is left in a file.
    take(&mut locks, FID, C, posix(FlockKind::Read, 0, 10), 2);
    take(&mut locks, FID, B, posix(FlockKind::Write, 0, 10), 3);
    take(&mut locks, file(7), C, posix(FlockKind::Write, 5, 6), 4);
    take(&mut locks, OTHER, C, posix(FlockKind::Write, 0, 10), 5);
    take(&mut locks, OTHER, C, posix(FlockKind::Unlock, 0, 10), 6);
    looked_at(&locks);
    let mut granted = Vec::new();
    locks.drop_client(C, &mut granted);
    let count = looked_at(&locks);
    assert!(count <= 3, "{count}: of two files");
    assert_eq!(granted, [3]);
    locks.check();
    granted.clear();
    locks.drop_client(A, &mut granted);
    locks.check();
    assert!(granted.iter().copied().eq(1000..1000 + COUNT), "file by file");
    locks.drop_client(B, &mut granted);
    locks.check();
    assert_eq!((locks.file_count(), locks.has_waiting()), (0, false));
}

/// Locks of one file byte by byte, and who waits, each looked at after each change.
#[derive(Default)]
struct Model {
    held: BTreeMap<(super::Key, u64), FlockKind>,
    waiting: Vec<(u32, super::Held)>,
}

impl Model {
    fn is_blocked(&self, wanted: &super::Held) -> bool {
        self.held.iter().any(|((key, byte), kind)| {
            *key != wanted.key()
                && key.2 == wanted.lock.is_flock
                && (wanted.lock.extent.start..wanted.lock.extent.end).contains(byte)
                && (*kind == FlockKind::Write || wanted.lock.kind == FlockKind::Write)
        })
    }

    fn set(&mut self, new: &super::Held) {
        for byte in new.lock.extent.start..new.lock.extent.end {
            match new.lock.kind {
                FlockKind::Unlock => self.held.remove(&(new.key(), byte)),
                kind => self.held.insert((new.key(), byte), kind),
            };
        }
    }

    fn serve(&mut self, granted: &mut Vec<u32>) {
        while let Some(at) = self.waiting.iter().position(|(_, wanted)| !self.is_blocked(wanted)) {
            let (token, wanted) = self.waiting.remove(at);
            self.set(&wanted);
            granted.push(token);
        }
    }

    /// What is granted besides, when this has been answered with `locked`.
    fn lock(&mut self, token: u32, wanted: super::Held, locked: &Locked<u32>) -> Vec<u32> {
        let mut granted = Vec::new();
        let is_blocked = wanted.lock.kind != FlockKind::Unlock && self.is_blocked(&wanted);
        match locked {
            Locked::Now(_) => {
                assert!(!is_blocked);
                self.set(&wanted);
            }
            Locked::Wait(_) => {
                assert!(is_blocked);
                if wanted.lock.is_flock {
                    let lock = FileLock { kind: FlockKind::Unlock, ..wanted.lock };
                    self.set(&super::Held { lock, ..wanted });
                }
                self.waiting.push((token, wanted));
            }
            Locked::Refused(_, status) => {
                assert!(is_blocked && *status == Status::Deadlock);
            }
        }
        self.serve(&mut granted);
        granted
    }

    fn drop_client(&mut self, client: ClientId, granted: &mut Vec<u32>) {
        self.waiting.retain(|(_, wanted)| wanted.client != client);
        self.held.retain(|(key, _), _| key.0 != client);
        self.serve(granted);
    }
}

#[test]
fn who_waits_is_served_as_if_all_were_looked_at_after_each_change() {
    const BYTES: u64 = 6;
    let (mut wait_count, mut served_count) = (0, 0);
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut locks: Flocks<u32> = Flocks::new(0);
        let mut models = [Model::default(), Model::default()];
        for token in 0..400 {
            let number = rng.below(2) as usize;
            let (fid, client) = ([FID, OTHER][number], ClientId(1 + u128::from(rng.below(4))));
            let (owner, is_flock) = (rng.below(2), rng.one_in(3));
            let (mut granted, mut expected) = (Vec::new(), Vec::new());
            match rng.below(20) {
                0 => {
                    locks.drop_client(client, &mut granted);
                    models.iter_mut().for_each(|model| model.drop_client(client, &mut expected));
                }
                1 => {
                    let key = (client, owner, is_flock);
                    let cancelled = locks.cancel(fid, client, owner, is_flock);
                    let (gone, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut models[number].waiting)
                        .into_iter()
                        .partition(|(_, wanted)| wanted.key() == key);
                    models[number].waiting = rest;
                    assert!(gone.iter().map(|(token, _)| *token).eq(cancelled));
                }
                _ => {
                    let start = rng.below(BYTES);
                    let end = start + 1 + rng.below(BYTES - start);
                    let kind = [FlockKind::Unlock, FlockKind::Read, FlockKind::Write][rng.below(3) as usize];
                    let lock = FileLock { owner, is_flock, ..posix(kind, start, end) };
                    let locked = locks.lock(WallTime(0), fid, client, lock, true, token, &mut granted);
                    wait_count += usize::from(matches!(locked, Locked::Wait(_)));
                    expected = models[number].lock(token, super::Held { client, lock }, &locked);
                }
            }
            locks.check();
            assert_eq!(granted, expected, "seed {seed}, {token}");
            served_count += granted.len();
        }
    }
    assert!(wait_count > 1000 && served_count > 500, "{wait_count} and {served_count}");
}
