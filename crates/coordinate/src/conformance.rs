//! What every keeper does. Each implementation runs this in its own world; a rule that does not hold panics with its name.

use crate::{Keeper, KeeperError};
use base::{Epoch, TargetId};
use wire::{Ownership, TargetOwner};

/// Where keepers live that share one truth.
pub trait World: Sync {
    /// The keeper of a server, which is another one for each number.
    fn keeper(&self, me: TargetOwner) -> Box<dyn Keeper + '_>;

    /// Lets `MOMENT_MILLIS` pass.
    fn wait(&self);
}

/// Much shorter than a lease.
pub const MOMENT_MILLIS: u64 = 100;
/// A lease of 3 s, twice, and as much again for a keeper that counts roughly.
const MOMENTS_MAX: u32 = 120;

/// Some server.
pub fn server(number: u128) -> TargetOwner {
    let pid = u32::try_from(number).unwrap_or_default();
    TargetOwner { server: number, nid: format!("127.0.0.1:{number}"), host: "host".into(), pid }
}

/// Runs all of it, on the targets from `first_index` on. -> How many rules held.
pub fn run(world: &dyn World, first_index: u16) -> usize {
    let rules: [fn(&Bench<'_>); 10] = [
        nobody_owns_what_was_never_taken,
        who_renews_keeps_it,
        who_does_not_renew_is_followed,
        an_owner_that_wakes_in_time_goes_on,
        who_has_left_is_followed_at_once,
        one_of_many_wins,
        an_owner_may_take_its_target_again,
        each_target_has_a_lease_of_its_own,
        all_are_answered_in_their_order,
        all_servers_find_the_same_keeper,
    ];
    for (index, rule) in (0..).zip(rules) {
        let bench = Bench {
            a: world.keeper(server(u128::from(first_index) + 1)),
            b: world.keeper(server(u128::from(first_index) + 2)),
            target: TargetId::ost(first_index + 2 * index),
            other: TargetId::ost(first_index + 2 * index + 1),
            world,
        };
        rule(&bench);
    }
    rules.len()
}

/// Two servers, and two targets that only this rule uses.
struct Bench<'a> {
    world: &'a dyn World,
    a: Box<dyn Keeper + 'a>,
    b: Box<dyn Keeper + 'a>,
    target: TargetId,
    other: TargetId,
}

impl Bench<'_> {
    fn lapse(&self, seen_by: &dyn Keeper, target: TargetId, beside: &mut dyn FnMut()) {
        for _ in 0..MOMENTS_MAX {
            if ask(seen_by, target).has_lapsed {
                return;
            }
            beside();
            self.world.wait();
        }
        panic!("the lease of {target} does not end");
    }
}

fn ask(keeper: &dyn Keeper, target: TargetId) -> Ownership {
    one(keeper.keep(&[], &[target]))
}

fn renew(keeper: &dyn Keeper, target: TargetId) -> Ownership {
    one(keeper.keep(&[target], &[]))
}

fn one(answer: Result<Vec<Ownership>, KeeperError>) -> Ownership {
    match answer.as_deref() {
        Ok([ownership]) => ownership.clone(),
        other => panic!("one ownership, not {other:?}"),
    }
}

fn owner(ownership: &Ownership) -> (u64, Option<u128>) {
    (ownership.epoch.0, ownership.owner.as_ref().map(|owner| owner.server))
}

fn taken(result: Result<Epoch, KeeperError>) -> u64 {
    match result {
        Ok(epoch) => epoch.0,
        Err(error) => panic!("it is free: {error}"),
    }
}

fn expect_denied(result: Result<Epoch, KeeperError>, why: &str) {
    assert!(matches!(result, Err(KeeperError::Denied { .. })), "{why}: {result:?}");
}

fn me(keeper: &dyn Keeper, target: TargetId) -> u128 {
    ask(keeper, target).owner.map_or(0, |owner| owner.server)
}

fn nobody_owns_what_was_never_taken(bench: &Bench<'_>) {
    let found = ask(&*bench.a, bench.target);
    assert_eq!((owner(&found), found.has_lapsed), ((0, None), false));
    assert_eq!(owner(&renew(&*bench.a, bench.target)), (0, None), "to renew is not to take");
    expect_denied(bench.a.take(bench.target, Epoch(1)), "that is not what it has seen");
}

fn who_renews_keeps_it(bench: &Bench<'_>) {
    assert_eq!(taken(bench.a.take(bench.target, Epoch(0))), 1);
    let first = ask(&*bench.b, bench.target);
    assert_eq!(first.owner.as_ref().map(|owner| owner.host.as_str()), Some("host"), "a fence can find it");
    // Longer than a lease.
    for _ in 0..45 {
        assert_eq!(owner(&renew(&*bench.a, bench.target)), owner(&first));
        let seen = renew(&*bench.b, bench.target);
        assert_eq!((owner(&seen), seen.has_lapsed), (owner(&first), false));
        bench.world.wait();
    }
    expect_denied(bench.b.take(bench.target, Epoch(1)), "its owner renews");
    expect_denied(bench.b.take(bench.target, Epoch(0)), "it was taken");
}

fn who_does_not_renew_is_followed(bench: &Bench<'_>) {
    assert_eq!(taken(bench.a.take(bench.target, Epoch(0))), 1);
    bench.lapse(&*bench.b, bench.target, &mut || ());
    expect_denied(bench.b.take(bench.target, Epoch(0)), "that is not what it has seen");
    assert_eq!(taken(bench.b.take(bench.target, Epoch(1))), 2);
    let b = me(&*bench.b, bench.target);
    assert_eq!(owner(&renew(&*bench.a, bench.target)), (2, Some(b)), "the one before is told");
    expect_denied(bench.a.take(bench.target, Epoch(1)), "it was taken since");
    // The one before renews nothing that is not its own.
    bench.lapse(&*bench.a, bench.target, &mut || drop(renew(&*bench.a, bench.target)));
}

fn an_owner_that_wakes_in_time_goes_on(bench: &Bench<'_>) {
    assert_eq!(taken(bench.a.take(bench.target, Epoch(0))), 1);
    bench.lapse(&*bench.b, bench.target, &mut || ());
    let again = renew(&*bench.a, bench.target);
    assert_eq!((again.epoch, again.has_lapsed), (Epoch(1), false));
    expect_denied(bench.b.take(bench.target, Epoch(1)), "its owner renews again");
    for _ in 0..45 {
        assert!(!renew(&*bench.a, bench.target).has_lapsed, "and goes on renewing");
        bench.world.wait();
    }
}

fn who_has_left_is_followed_at_once(bench: &Bench<'_>) {
    assert_eq!(taken(bench.a.take(bench.target, Epoch(0))), 1);
    assert!(bench.b.leave(&[bench.target, bench.other]).is_ok());
    assert_ne!(ask(&*bench.b, bench.target).owner, None, "it is not his");
    assert_eq!(owner(&ask(&*bench.b, bench.other)), (0, None));
    assert!(bench.a.leave(&[bench.target]).is_ok());
    let left = renew(&*bench.a, bench.target);
    assert_eq!((owner(&left), left.has_lapsed), ((1, None), false), "the epoch stays");
    assert_eq!(taken(bench.b.take(bench.target, Epoch(1))), 2);
    assert!(bench.a.leave(&[bench.target]).is_ok());
    assert_ne!(ask(&*bench.b, bench.target).owner, None, "not any more");
    assert!(bench.b.give_back(bench.target).is_ok());
    assert_eq!(owner(&ask(&*bench.a, bench.target)), (2, None), "one by one as well");
}

fn one_of_many_wins(bench: &Bench<'_>) {
    let keepers: Vec<Box<dyn Keeper + '_>> =
        (0..8).map(|number| bench.world.keeper(server(60_000 + number))).collect();
    let wins: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = keepers
            .iter()
            .map(|keeper| scope.spawn(|| usize::from(keeper.take(bench.target, Epoch(0)).is_ok())))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).sum()
    });
    assert_eq!(wins, 1, "one server gets it");
    assert_eq!(ask(&*bench.a, bench.target).epoch, Epoch(1));
}

fn an_owner_may_take_its_target_again(bench: &Bench<'_>) {
    assert_eq!(taken(bench.a.take(bench.target, Epoch(0))), 1);
    assert_eq!(taken(bench.a.take(bench.target, Epoch(1))), 2);
    let found = renew(&*bench.a, bench.target);
    assert_eq!((found.epoch, found.has_lapsed), (Epoch(2), false));
}

fn each_target_has_a_lease_of_its_own(bench: &Bench<'_>) {
    assert_eq!(taken(bench.a.take(bench.target, Epoch(0))), 1);
    assert_eq!(taken(bench.a.take(bench.other, Epoch(0))), 1);
    bench.lapse(&*bench.b, bench.target, &mut || drop(renew(&*bench.a, bench.other)));
    assert!(!renew(&*bench.a, bench.other).has_lapsed);
    assert_eq!(taken(bench.b.take(bench.target, Epoch(1))), 2);
    expect_denied(bench.b.take(bench.other, Epoch(1)), "that one is renewed");
}

fn all_are_answered_in_their_order(bench: &Bench<'_>) {
    assert_eq!(taken(bench.a.take(bench.other, Epoch(0))), 1);
    let answer = bench.a.keep(&[bench.other], &[bench.target]);
    let known: Vec<(TargetId, u64)> =
        answer.iter().flatten().map(|ownership| (ownership.target, ownership.epoch.0)).collect();
    assert_eq!(known, [(bench.other, 1), (bench.target, 0)]);
    assert!(bench.a.keep(&[], &[]).is_ok_and(|answer| answer.is_empty()));
}

fn all_servers_find_the_same_keeper(bench: &Bench<'_>) {
    let identity = |keeper: &dyn Keeper| keeper.identity().unwrap_or_else(|error| panic!("{error}"));
    let first = identity(&*bench.a);
    assert!(!first.is_empty());
    assert_eq!(first, identity(&*bench.b));
    assert_eq!(first, identity(&*bench.a), "and find it again");
}
