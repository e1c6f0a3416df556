#![allow(clippy::unwrap_used)]

use super::*;
use base::Fid;
use wire::lock::bits;

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);

fn at(seconds: u64) -> Time {
    Time(seconds * 1_000_000_000)
}

fn object() -> Resource {
    Resource::Object(ObjectId { fid: Fid::ROOT, component: 0, stripe: 0 })
}

fn extent(start: u64, end: u64) -> LockPolicy {
    LockPolicy::Extent(Extent::new(start, end))
}

fn name(hash: u64) -> Resource {
    Resource::Name { parent: Fid::ROOT, hash }
}

fn request(
    holder: ClientId,
    lock: u64,
    resource: Resource,
    mode: LockMode,
    policy: LockPolicy,
) -> EnqueueRequest {
    EnqueueRequest { holder, lock: LockId(lock), resource, mode, policy, can_wait: true }
}

fn write(holder: ClientId, lock: u64, start: u64, end: u64) -> EnqueueRequest {
    request(holder, lock, object(), LockMode::Pw, extent(start, end))
}

fn read_name(holder: ClientId, lock: u64) -> EnqueueRequest {
    request(holder, lock, name(7), LockMode::Pr, LockPolicy::Plain)
}

fn need(resource: Resource, mode: LockMode, policy: LockPolicy) -> Need {
    Need { resource, mode, policy }
}

fn change_name() -> Vec<Need> {
    vec![need(name(7), LockMode::Ex, LockPolicy::Plain)]
}

fn granted_policy(enqueued: Enqueued) -> LockPolicy {
    let Enqueued::Granted(grant) = enqueued else { panic!("{enqueued:?} is no grant") };
    grant.policy
}

fn callback(holder: ClientId, lock: u64, resource: Resource) -> LockOutput {
    LockOutput::Callback { holder, lock: LockId(lock), resource }
}

#[test]
fn a_lonely_extent_grows_to_the_whole_object() {
    let mut space = LockSpace::new();
    let granted = space.enqueue(at(0), write(A, 1, 4096, 8192), &mut vec![]);
    assert_eq!(granted_policy(granted), LockPolicy::Extent(Extent::WHOLE));
    space.check();
}

#[test]
fn a_waiter_gets_the_lock_when_its_holder_gives_it_back_and_only_what_is_left() {
    let mut space = LockSpace::new();
    let mut out = vec![];
    space.enqueue(at(0), write(A, 1, 0, 100), &mut out);
    assert_eq!(space.enqueue(at(0), write(B, 1, 100, 200), &mut out), Enqueued::Waiting);
    assert_eq!(space.enqueue(at(0), write(C, 1, 200, 300), &mut out), Enqueued::Waiting);
    assert_eq!(out, [callback(A, 1, object())]);
    out.clear();
    space.cancel(at(0), A, &[LockId(1)], &mut out);
    let grants: Vec<_> = out
        .iter()
        .map(|output| match output {
            LockOutput::Granted { holder, grant } => (*holder, grant.policy),
            other => panic!("{other:?} was not expected"),
        })
        .collect();
    // B leaves C what it waits for; under contention nothing grows downwards.
    assert_eq!(grants, [(B, extent(100, 200)), (C, extent(200, 300 + (32 << 20)))]);
    space.check();
}

#[test]
fn who_comes_later_does_not_overtake_a_conflicting_waiter() {
    let mut space = LockSpace::new();
    let mut out = vec![];
    space.enqueue(at(0), read_name(A, 1), &mut out);
    assert_eq!(space.claim(at(0), OpId(1), None, change_name(), &mut out), Claimed::Waiting);
    assert_eq!(space.enqueue(at(0), read_name(B, 1), &mut out), Enqueued::Waiting);
    out.clear();
    space.cancel(at(0), A, &[LockId(1)], &mut out);
    assert_eq!(out, [LockOutput::Ready(OpId(1))]);
    out.clear();
    space.release(at(0), OpId(1), &mut out);
    assert!(matches!(out[..], [LockOutput::Granted { holder: B, .. }]));
    space.check();
}

#[test]
fn locks_of_the_requester_are_no_obstacle_but_locks_of_others_are() {
    let mut space = LockSpace::new();
    let mut out = vec![];
    space.enqueue(at(0), read_name(A, 1), &mut out);
    assert_eq!(space.claim(at(0), OpId(1), Some(A), change_name(), &mut out), Claimed::Ready);
    // A new lock of the same client would let a stale answer be cached; the operation itself may give it.
    assert_eq!(space.enqueue(at(0), read_name(A, 2), &mut out), Enqueued::Waiting);
    let wanted = need(name(7), LockMode::Pr, LockPolicy::Plain);
    assert_eq!(space.try_grant(A, LockId(3), wanted, None), None);
    space.cancel(at(0), A, &[LockId(2)], &mut out);
    assert!(space.try_grant(A, LockId(3), wanted, Some(OpId(1))).is_some());
    space.release(at(0), OpId(1), &mut out);
    assert_eq!(space.claim(at(0), OpId(2), Some(B), change_name(), &mut out), Claimed::Waiting);
    assert_eq!(out, [callback(A, 1, name(7)), callback(A, 3, name(7))]);
    space.check();
}

#[test]
fn an_operation_takes_all_its_needs_before_it_is_ready() {
    let mut space = LockSpace::new();
    let mut out = vec![];
    space.enqueue(at(0), read_name(A, 1), &mut out);
    let inode = Resource::Inode(Fid::ROOT);
    space.enqueue(at(0), request(B, 1, inode, LockMode::Pr, LockPolicy::Bits(bits::ALL)), &mut out);
    let mut needs = change_name();
    needs.push(need(inode, LockMode::Ex, LockPolicy::Bits(bits::UPDATE)));
    assert_eq!(space.claim(at(0), OpId(1), None, needs, &mut out), Claimed::Waiting);
    assert_eq!(out.len(), 2);
    out.clear();
    space.cancel(at(0), A, &[LockId(1)], &mut out);
    assert!(out.is_empty());
    space.drop_holder(at(0), B, &mut out);
    assert_eq!(out, [LockOutput::Ready(OpId(1))]);
    space.release(at(0), OpId(1), &mut out);
    assert_eq!((space.lock_count(), space.resource_count()), (0, 0));
}

#[test]
fn an_operation_that_gives_up_lets_those_behind_it_pass() {
    let mut space = LockSpace::new();
    let mut out = vec![];
    space.enqueue(at(0), read_name(A, 1), &mut out);
    space.claim(at(0), OpId(1), None, change_name(), &mut out);
    space.enqueue(at(0), read_name(B, 1), &mut out);
    out.clear();
    space.release(at(0), OpId(1), &mut out);
    assert!(matches!(out[..], [LockOutput::Granted { holder: B, .. }]));
}

#[test]
fn callbacks_are_repeated_until_the_lock_is_back() {
    let mut space = LockSpace::new();
    let mut out = vec![];
    space.enqueue(at(0), read_name(A, 1), &mut out);
    space.claim(at(10), OpId(1), None, change_name(), &mut out);
    assert_eq!(space.next_deadline(), Some(at(11)));
    out.clear();
    space.on_tick(at(11), &mut out);
    assert_eq!(out, [callback(A, 1, name(7))]);
    space.cancel(at(11), A, &[LockId(1)], &mut out);
    assert_eq!(space.next_deadline(), None);
}

#[test]
fn a_silent_holder_is_evicted_and_a_talking_one_gets_longer() {
    let mut space = LockSpace::new();
    let mut out = vec![];
    for holder in [A, B] {
        space.enqueue(at(0), read_name(holder, 1), &mut out);
    }
    space.claim(at(0), OpId(1), None, change_name(), &mut out);
    let mut evicted = vec![];
    for second in 1..=130 {
        out.clear();
        space.heard_from(at(second), B);
        space.on_tick(at(second), &mut out);
        for output in out.split_off(0) {
            if let LockOutput::Evict(holder) = output {
                evicted.push((second, holder));
                space.drop_holder(at(second), holder, &mut out);
            }
        }
    }
    assert_eq!(evicted, [(30, A), (120, B)]);
    assert_eq!(space.timeout_count(), 2);
    space.check();
}

#[test]
fn who_was_asked_for_a_lock_and_when_is_known_until_it_is_back() {
    let mut space = LockSpace::new();
    let mut out = vec![];
    for holder in [A, B, C] {
        space.enqueue(at(0), read_name(holder, 1), &mut out);
    }
    assert!(!space.has_called_back());
    space.claim(at(10), OpId(1), Some(C), change_name(), &mut out);
    assert!(space.has_called_back());
    let three = Duration::from_secs(3);
    // Asking again does not count.
    space.on_tick(at(12), &mut out);
    assert_eq!(space.asked_for(at(12), three), BTreeSet::new());
    assert_eq!(space.asked_for(at(13), three), BTreeSet::from([A, B]), "the third is not in the way");
    space.begin_cancel(at(13), A, &[LockId(1)]);
    assert_eq!(space.asked_for(at(13), three), BTreeSet::from([B]));
    space.drop_holder(at(13), B, &mut out);
    assert!(!space.has_called_back());
    assert_eq!(space.asked_for(at(60), three), BTreeSet::new());
    space.check();
}

#[test]
fn a_lock_that_is_being_cancelled_allows_nothing_and_still_protects() {
    let mut space = LockSpace::new();
    let mut out = vec![];
    space.enqueue(at(0), write(A, 1, 0, 10), &mut out);
    let wanted = need(object(), LockMode::Pr, extent(0, 10));
    assert!(space.holds(A, LockId(1), wanted));
    assert_eq!(space.begin_cancel(at(0), A, &[LockId(1), LockId(9)]).len(), 1);
    assert!(!space.holds(A, LockId(1), wanted));
    assert_eq!(space.enqueue(at(0), write(B, 1, 0, 10), &mut out), Enqueued::Waiting);
    assert!(out.is_empty(), "nobody asks again for what is given up");
    space.cancel(at(0), A, &[LockId(1)], &mut out);
    assert!(matches!(out[..], [LockOutput::Granted { holder: B, .. }]));
}

#[test]
fn a_lock_whose_holder_is_gone_is_in_the_way_of_its_next_incarnation() {
    let (mut space, mut out) = (LockSpace::new(), vec![]);
    space.note_changes();
    space.enqueue(at(0), write(A, 1, 0, 10), &mut out);
    space.enqueue(at(0), write(A, 2, 0, 10), &mut out);
    space.enqueue(at(0), write(B, 1, 0, 10), &mut out);
    space.enqueue(at(0), write(A, 3, 0, 10), &mut out);
    assert_eq!(out, [callback(A, 1, object()), callback(A, 2, object())]);
    space.take_changed();
    // The first was given up; the third waits, and nothing was done under it.
    space.begin_cancel(at(0), A, &[LockId(1)]);
    space.retire(A, &[LockId(1), LockId(2), LockId(3), LockId(9)], OpId(1));
    space.check();
    assert_eq!(space.locks_of(A), [LockId(3)]);
    assert_eq!(space.take_changed(), BTreeSet::from([(A, LockId(1)), (A, LockId(2))]));
    assert!(space.grants().next().is_none(), "they are nobody's");
    out.clear();
    space.drop_holder(at(0), A, &mut out);
    space.on_tick(at(60), &mut out);
    assert!(out.is_empty(), "nobody is asked for them, or evicted: {out:?}");
    let elsewhere = request(A, 1, name(1), LockMode::Pr, LockPolicy::Plain);
    assert!(matches!(space.enqueue(at(60), elsewhere, &mut out), Enqueued::Granted(_)));
    let read = vec![need(object(), LockMode::Pr, extent(5, 6))];
    assert_eq!(space.claim(at(60), OpId(2), Some(A), read, &mut out), Claimed::Waiting);
    space.cancel(at(60), B, &[LockId(1)], &mut out);
    let again = EnqueueRequest { can_wait: false, ..write(A, 2, 0, 10) };
    assert_eq!(space.enqueue(at(60), again, &mut out), Enqueued::Denied(Status::WouldBlock));
    assert!(out.is_empty());
    space.release(at(60), OpId(1), &mut out);
    assert_eq!(out, [LockOutput::Ready(OpId(2))]);
    assert_eq!(space.locks_of(A), [LockId(1)], "of the next incarnation");
    space.check();
}

#[test]
fn the_same_request_again_is_the_same_lock() {
    let mut space = LockSpace::new();
    let mut out = vec![];
    let first = space.enqueue(at(0), write(A, 1, 0, 10), &mut out);
    assert_eq!(space.enqueue(at(0), write(A, 1, 0, 10), &mut out), first);
    assert_eq!(space.enqueue(at(0), write(B, 1, 0, 10), &mut out), Enqueued::Waiting);
    assert_eq!(space.enqueue(at(0), write(B, 1, 0, 10), &mut out), Enqueued::Waiting);
    assert_eq!(space.lock_count(), 2);
    let elsewhere = request(A, 1, name(1), LockMode::Pr, LockPolicy::Plain);
    assert_eq!(space.enqueue(at(0), elsewhere, &mut out), Enqueued::Denied(Status::Invalid));
}

#[test]
fn nonsense_and_impatience_leave_nothing_behind() {
    let mut space = LockSpace::new();
    let mut out = vec![];
    let empty = request(A, 1, object(), LockMode::Pr, extent(5, 5));
    assert_eq!(space.enqueue(at(0), empty, &mut out), Enqueued::Denied(Status::Invalid));
    let alien = request(A, 1, object(), LockMode::Pr, LockPolicy::Bits(1));
    assert_eq!(space.enqueue(at(0), alien, &mut out), Enqueued::Denied(Status::Invalid));
    assert_eq!(space.resource_count(), 0);
    space.claim(at(0), OpId(1), None, change_name(), &mut out);
    let impatient = EnqueueRequest { can_wait: false, ..read_name(A, 1) };
    assert_eq!(space.enqueue(at(0), impatient, &mut out), Enqueued::Denied(Status::WouldBlock));
    space.release(at(0), OpId(1), &mut out);
    assert_eq!(space.resource_count(), 0);
}

#[test]
fn a_lock_comes_with_a_write_at_once_and_once_or_not_at_all() {
    let mut space = LockSpace::new();
    let mut out = vec![];
    let data = |start, end| (ObjectId { fid: Fid::ROOT, component: 0, stripe: 0 }, Extent::new(start, end));
    space.enqueue(at(0), write(A, 1, 0, 100), &mut out);
    space.enqueue(at(0), write(B, 1, 100, 200), &mut out);
    space.enqueue(at(0), write(C, 1, 150, 160), &mut out);
    let mut ask =
        |holder, lock, data| space.grant_for_write(at(0), (holder, LockId(lock)), data, &mut vec![]);
    assert_eq!(ask(A, 1, data(0, 10)), Err(Status::Invalid), "it has that one");
    assert_eq!(ask(C, 1, data(150, 160)), Err(Status::Invalid), "it has asked for that one by itself");
    assert_eq!(ask(C, 2, data(0, 10)), Err(Status::WouldBlock));
    let grant =
        ask(A, 2, (ObjectId { fid: Fid::ROOT, component: 1, stripe: 0 }, Extent::new(0, 10))).unwrap();
    assert_eq!((grant.lock, grant.mode), (LockId(2), LockMode::Pw));
    assert_eq!(space.lock_count(), 4, "nothing is left of what was refused");
    space.check();
}

#[test]
fn a_replayed_lock_that_conflicts_is_refused() {
    let mut space = LockSpace::new();
    let grant = |lock, end| LockGrant {
        lock: LockId(lock),
        resource: object(),
        mode: LockMode::Pw,
        policy: extent(0, end),
    };
    assert!(space.replay(A, &[grant(1, 10)]).is_empty());
    assert!(space.replay(A, &[grant(1, 10)]).is_empty(), "a repeated replay changes nothing");
    assert_eq!(space.replay(B, &[grant(4, 5)]), [LockId(4)]);
    assert_eq!(space.lock_count(), 1);
}

#[test]
fn writers_of_different_parts_stop_taking_the_object_from_each_other() {
    let mut space = LockSpace::new();
    let mut callback_count = 0;
    let mut held: BTreeMap<ClientId, Vec<(u64, Extent)>> = BTreeMap::new();
    let mut next_lock = 1;
    for step in 0..200u64 {
        for (holder, base) in [(A, 0), (B, 1 << 40)] {
            let wanted = Extent::at(base + step * 4096, 4096);
            if held.entry(holder).or_default().iter().any(|(_, extent)| extent.contains(wanted)) {
                continue;
            }
            let mut out = vec![];
            let enqueue = write(holder, next_lock, wanted.start, wanted.end);
            let mut granted = match space.enqueue(at(0), enqueue, &mut out) {
                Enqueued::Granted(grant) => Some((holder, grant)),
                _ => None,
            };
            let mut index = 0;
            while let Some(output) = out.get(index).cloned() {
                index += 1;
                match output {
                    LockOutput::Callback { holder, lock, .. } => {
                        callback_count += 1;
                        held.get_mut(&holder).unwrap().retain(|(id, _)| *id != lock.0);
                        space.cancel(at(0), holder, &[lock], &mut out);
                    }
                    LockOutput::Granted { holder, grant } => granted = Some((holder, grant)),
                    other => panic!("{other:?} was not expected"),
                }
            }
            let (holder, grant) = granted.expect("holders give back at once");
            let LockPolicy::Extent(extent) = grant.policy else { panic!("an extent was asked for") };
            held.get_mut(&holder).unwrap().push((next_lock, extent));
            next_lock += 1;
        }
    }
    assert!(callback_count <= 4, "{callback_count} callbacks for two writers that never meet");
}

#[test]
fn a_lock_is_held_until_it_is_called_back() {
    let (mut space, mut out) = (LockSpace::new(), Vec::new());
    let inode = Resource::Inode(Fid::ROOT);
    let wanted = need(inode, LockMode::Pr, LockPolicy::Bits(bits::UPDATE));
    assert!(!space.is_held(A, wanted));
    let all = need(inode, LockMode::Pr, LockPolicy::Bits(bits::SELF));
    space.try_grant(A, LockId(1), all, None).unwrap();
    assert!(space.is_held(A, wanted));
    assert!(!space.is_held(B, wanted));
    assert!(!space.is_held(A, need(inode, LockMode::Pw, LockPolicy::Bits(bits::UPDATE))));
    assert!(!space.is_held(A, need(inode, LockMode::Pr, LockPolicy::Bits(bits::ALL))));
    let change = need(inode, LockMode::Ex, LockPolicy::Bits(bits::UPDATE));
    space.claim(at(0), OpId(1), Some(B), vec![change], &mut out);
    assert!(!space.is_held(A, wanted), "it was called back");
}

#[test]
fn what_becomes_of_locks_is_told_to_who_wants_to_know() {
    let mut space = LockSpace::new();
    let mut out = vec![];
    space.enqueue(at(0), write(A, 1, 0, 100), &mut out);
    assert_eq!(space.take_changed(), BTreeSet::new(), "nobody has asked");
    space.note_changes();
    space.enqueue(at(0), write(B, 1, 0, 100), &mut out);
    assert_eq!(space.take_changed(), BTreeSet::new(), "it waits");
    space.cancel(at(0), A, &[LockId(1)], &mut out);
    assert_eq!(space.take_changed(), BTreeSet::from([(A, LockId(1)), (B, LockId(1))]));
    assert!(space.grant_of(A, LockId(1)).is_none() && space.grant_of(B, LockId(1)).is_some());
    space.drop_holder(at(0), B, &mut out);
    assert_eq!(space.take_changed(), BTreeSet::from([(B, LockId(1))]));
    assert_eq!(space.holders(), []);
}

/// Of all that it may have, on one resource, and the last one first: none is looked for among the others.
#[test]
fn as_many_locks_of_one_client_as_there_may_be_on_one_resource_come_and_go() {
    let (mut space, mut out) = (LockSpace::new(), vec![]);
    let locks: Vec<LockId> = (1..=LOCKS_PER_CLIENT_MAX as u64).map(LockId).collect();
    for is_replayed in [false, true] {
        let grant = |lock: &LockId| LockGrant {
            lock: *lock,
            resource: name(7),
            mode: LockMode::Pr,
            policy: LockPolicy::Plain,
        };
        let grants: Vec<LockGrant> = locks.iter().rev().map(grant).collect();
        if is_replayed {
            assert_eq!(space.replay(A, &grants), []);
        } else {
            for grant in &grants {
                let granted = space.enqueue(at(0), read_name(A, grant.lock.0), &mut out);
                assert_eq!(granted, Enqueued::Granted(grant.clone()));
            }
        }
        assert_eq!(space.lock_count_of(A), LOCKS_PER_CLIENT_MAX);
        assert!(matches!(space.enqueue(at(0), read_name(B, 1), &mut out), Enqueued::Granted(_)));
        assert_eq!(space.claim(at(0), OpId(1), None, change_name(), &mut out), Claimed::Waiting);
        assert_eq!(out.len(), LOCKS_PER_CLIENT_MAX + 1, "all are called back");
        out.clear();
        if is_replayed {
            assert_eq!(space.begin_cancel(at(0), A, &locks).len(), LOCKS_PER_CLIENT_MAX);
            space.drop_holder(at(0), A, &mut out);
        } else {
            space.cancel(at(0), A, &locks, &mut out);
        }
        space.check();
        assert_eq!((space.lock_count_of(A), &out[..]), (0, &[][..]));
        space.drop_holder(at(0), B, &mut out);
        assert_eq!(out, [LockOutput::Ready(OpId(1))]);
        out.clear();
        space.release(at(0), OpId(1), &mut out);
        assert_eq!((space.lock_count(), space.resource_count(), out.len()), (0, 0, 0));
    }
}

/// Others have some between them, and operations come and go: each is where it is said to be.
#[test]
fn locks_are_found_after_others_have_gone_from_before_them() {
    let (mut space, mut out) = (LockSpace::new(), vec![]);
    for lock in 1..=20 {
        for holder in [A, B, C] {
            space.enqueue(at(0), read_name(holder, lock), &mut out);
        }
        let read = vec![need(name(7), LockMode::Pr, LockPolicy::Plain)];
        assert_eq!(space.claim(at(0), OpId(lock), None, read, &mut out), Claimed::Ready);
    }
    for (lock, op) in [(3, 20), (20, 1), (1, 7), (7, 8)] {
        space.cancel(at(0), B, &[LockId(lock)], &mut out);
        space.check();
        space.release(at(0), OpId(op), &mut out);
        space.check();
    }
    space.drop_holder(at(0), A, &mut out);
    space.check();
    assert_eq!((space.lock_count_of(A), space.lock_count_of(B), space.lock_count_of(C)), (0, 16, 20));
    let held = need(name(7), LockMode::Pr, LockPolicy::Plain);
    assert!((1..=20).all(|lock| space.holds(C, LockId(lock), held)));
    assert!(!space.holds(B, LockId(7), held) && space.holds(B, LockId(8), held));
}

/// What each of very many clients does costs no look at all the others.
mod many {
    use super::*;
    use crate::space::queue::LOOKED_AT_COUNT;

    const COUNT: u64 = 3000;
    /// Of one client in one step, several times over.
    const LOOKS_PER_CLIENT_MAX: usize = 40;

    fn client(index: u64) -> ClientId {
        ClientId(u128::from(index) + 10)
    }

    fn inode(mode: LockMode, mask: u32) -> Need {
        need(Resource::Inode(Fid::ROOT), mode, LockPolicy::Bits(mask))
    }

    fn ask(space: &mut LockSpace, index: u64, lock: u64, need: Need, out: &mut Vec<LockOutput>) -> Enqueued {
        space.enqueue(at(0), request(client(index), lock, need.resource, need.mode, need.policy), out)
    }

    /// As it is at the end.
    fn check_looks(since: usize) {
        let count = LOOKED_AT_COUNT.get() - since;
        assert!(count <= COUNT as usize * LOOKS_PER_CLIENT_MAX, "{count} for {COUNT} clients");
    }

    fn granted_count(out: &[LockOutput]) -> usize {
        out.iter().filter(|output| matches!(output, LockOutput::Granted { .. })).count()
    }

    #[test]
    fn what_all_know_is_changed_and_asked_for_again() {
        let (mut space, mut out, since) = (LockSpace::new(), vec![], LOOKED_AT_COUNT.get());
        for index in 0..COUNT {
            let granted = ask(&mut space, index, 1, inode(LockMode::Pr, bits::LOOKUP), &mut out);
            assert!(matches!(granted, Enqueued::Granted(_)));
        }
        let change = vec![inode(LockMode::Ex, bits::LOOKUP)];
        assert_eq!(space.claim(at(0), OpId(1), None, change, &mut out), Claimed::Waiting);
        let asked = (0..COUNT).map(|index| callback(client(index), 1, Resource::Inode(Fid::ROOT)));
        assert_eq!(out, asked.collect::<Vec<_>>(), "each is asked once");
        out.clear();
        for index in 0..COUNT {
            space.cancel(at(0), client(index), &[LockId(1)], &mut out);
            ask(&mut space, index, 2, inode(LockMode::Pr, bits::LOOKUP), &mut out);
        }
        assert_eq!(out, [LockOutput::Ready(OpId(1))]);
        out.clear();
        space.release(at(0), OpId(1), &mut out);
        assert_eq!(granted_count(&out), COUNT as usize);
        check_looks(since);
        space.check();
    }

    #[test]
    fn all_change_another_part_of_what_all_know() {
        let (mut space, mut out, since) = (LockSpace::new(), vec![], LOOKED_AT_COUNT.get());
        for index in 0..COUNT {
            ask(&mut space, index, 1, inode(LockMode::Pr, bits::LOOKUP), &mut out);
        }
        for index in 0..COUNT {
            let (op, change) = (OpId(index), vec![inode(LockMode::Cw, bits::UPDATE)]);
            assert_eq!(space.claim(at(0), op, Some(client(index)), change, &mut out), Claimed::Ready);
            assert!(space.is_held(client(index), inode(LockMode::Pr, bits::LOOKUP)));
            assert!(!space.is_held_against(client(index), inode(LockMode::Pr, bits::WRITE_BACK)));
            space.release(at(0), op, &mut out);
        }
        assert_eq!(out, []);
        check_looks(since);
    }

    #[test]
    fn all_wait_for_the_same_bytes() {
        let (mut space, mut out, since) = (LockSpace::new(), vec![], LOOKED_AT_COUNT.get());
        for index in 0..COUNT {
            space.enqueue(at(0), write(client(index), 1, 0, 100), &mut out);
        }
        assert_eq!(out, [callback(client(0), 1, object())]);
        space.cancel(at(0), client(COUNT / 2), &[LockId(1)], &mut out);
        for index in (0..COUNT).filter(|index| *index != COUNT / 2) {
            out.clear();
            space.cancel(at(0), client(index), &[LockId(1)], &mut out);
            let next = if index + 1 == COUNT / 2 { index + 2 } else { index + 1 };
            // The next one, and it is asked for it at once.
            let is_next = |output: &LockOutput| matches!(output, LockOutput::Granted { holder, .. } if *holder == client(next));
            assert_eq!(out.first().is_some_and(is_next), next < COUNT, "{out:?}");
        }
        check_looks(since);
        assert_eq!(space.resource_count(), 0);
    }

    #[test]
    fn all_write_parts_of_their_own() {
        let (mut space, mut out, since) = (LockSpace::new(), vec![], LOOKED_AT_COUNT.get());
        space.enqueue(at(0), write(A, 1, 0, 1 << 40), &mut out);
        for index in 0..COUNT {
            space.enqueue(at(0), write(client(index), 1, index << 20, (index << 20) + 100), &mut out);
        }
        out.clear();
        space.cancel(at(0), A, &[LockId(1)], &mut out);
        assert_eq!(granted_count(&out), COUNT as usize);
        // Nobody waits any more, so they grow into what is between them, and nothing is contended in the end.
        for index in 0..COUNT {
            let (start, later) = ((index << 20) + 200, at(60));
            let granted = space.enqueue(later, write(client(index), 2, start, start + 100), &mut out);
            let LockPolicy::Extent(grown) = granted_policy(granted) else { panic!("it is of bytes") };
            assert!(grown.start <= start && grown.end <= (index + 1) << 20 || index + 1 == COUNT);
        }
        check_looks(since);
        space.check();
        (0..COUNT).for_each(|index| space.drop_holder(at(60), client(index), &mut out));
        check_looks(since);
        assert_eq!(space.resource_count(), 0);
    }
}
