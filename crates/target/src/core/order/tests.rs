#![allow(clippy::unwrap_used)]
use super::*;
use base::Rng;

fn fid(oid: u32) -> Fid {
    Fid { seq: Fid::SEQ_NORMAL, oid, ver: 0 }
}

fn place(transno: u64, client: u128) -> Place {
    (Transno(transno), ClientId(client))
}

fn touching(oids: &[u32]) -> Touched {
    Touched { fids: oids.iter().copied().map(fid).collect(), ..Touched::default() }
}

/// Replays by number, client, slot and what they touch; all have come but those that are missing.
fn order(replays: &[(u64, u128, u16, Touched)], missing: &[u64]) -> Order {
    let mut order = Order::default();
    for (transno, client, slot, touched) in replays {
        order.list(place(*transno, *client), *slot, touched);
        if !missing.contains(transno) {
            order.note_come(place(*transno, *client));
        }
    }
    order
}

fn started(order: &mut Order) -> Vec<u64> {
    let started = std::iter::from_fn(|| order.start_next()).map(|place| place.0.0).collect();
    order.check();
    started
}

#[test]
fn what_has_nothing_in_common_goes_side_by_side() {
    let mut order =
        order(&[(1, 1, 0, touching(&[1])), (2, 2, 0, touching(&[2])), (3, 3, 0, touching(&[3]))], &[1]);
    assert_eq!(started(&mut order), [2, 3], "the first has not come");
    assert!(!order.is_empty());
    order.note_come(place(1, 1));
    assert_eq!(started(&mut order), [1]);
}

#[test]
fn one_waits_for_each_earlier_one_that_touches_the_same() {
    let replays = [(1, 1, 0, touching(&[1, 2])), (2, 2, 0, touching(&[2, 3])), (3, 3, 0, touching(&[3]))];
    let mut order = order(&replays, &[]);
    assert_eq!(started(&mut order), [1]);
    assert_eq!(started(&mut order), [], "once");
    order.remove(place(1, 1));
    assert_eq!(started(&mut order), [2]);
    order.remove(place(2, 2));
    assert_eq!(started(&mut order), [3]);
    order.remove(place(3, 3));
    assert!(order.is_empty());
}

#[test]
fn an_owner_that_is_given_up_holds_nobody_up() {
    let replays = [(1, 1, 0, touching(&[1])), (2, 2, 0, touching(&[1])), (3, 1, 1, touching(&[3]))];
    let mut order = order(&replays, &[1]);
    assert_eq!(started(&mut order), [3]);
    order.forget_missing(ClientId(1));
    assert_eq!(started(&mut order), [2], "it waits no more for what does not come");
    order.forget(ClientId(1));
    order.remove(place(2, 2));
    assert!(order.is_empty());
}

#[test]
fn replays_of_one_slot_and_moves_keep_their_order() {
    let moving = |oid| Touched { is_move: true, ..touching(&[oid]) };
    let mut slots =
        order(&[(1, 1, 4, touching(&[1])), (2, 1, 4, touching(&[2])), (3, 2, 4, touching(&[3]))], &[]);
    assert_eq!(started(&mut slots), [1, 3], "slots of another client are others");
    let mut moves = order(&[(1, 1, 0, moving(1)), (2, 2, 0, moving(2)), (3, 3, 0, touching(&[3]))], &[]);
    assert_eq!(started(&mut moves), [1, 3]);
    moves.remove(place(1, 1));
    assert_eq!(started(&mut moves), [2]);
}

#[test]
fn what_touches_everything_keeps_its_place_among_all() {
    let replays = [(1, 1, 0, touching(&[1])), (2, 2, 0, Touched::everything()), (3, 3, 0, touching(&[3]))];
    let mut order = order(&replays, &[]);
    assert_eq!(started(&mut order), [1]);
    order.remove(place(1, 1));
    assert_eq!(started(&mut order), [2]);
    order.remove(place(2, 2));
    assert_eq!(started(&mut order), [3]);
}

/// Its replays become known one by one, and each goes before all of the others: those are not looked at each time.
#[test]
fn who_is_behind_a_client_without_a_list_is_looked_at_once() {
    let mut order = Order::default();
    let others = 1000..1500;
    for oid in others.clone() {
        order.list(place(u64::from(oid), 2), oid as u16, &touching(&[oid]));
        order.note_come(place(u64::from(oid), 2));
    }
    order.list_next((place(1, 1), 0));
    for transno in 1..100 {
        assert_eq!(started(&mut order), [transno]);
        order.end(place(transno, 1), Some((place(transno + 1, 1), 0)));
    }
    assert_eq!(order.looked_at_count, 99, "the next one, each time");
    assert_eq!(started(&mut order), [100]);
    order.end(place(100, 1), None);
    assert_eq!(started(&mut order).len(), others.len());
}

#[test]
fn one_that_was_not_executed_comes_again() {
    let mut order = order(&[(1, 1, 0, touching(&[1])), (2, 2, 0, touching(&[1]))], &[]);
    assert_eq!(started(&mut order), [1]);
    order.put_back(place(1, 1));
    assert_eq!(started(&mut order), [], "the other one still waits for it");
    order.note_come(place(1, 1));
    assert_eq!(started(&mut order), [1]);
}

fn random_touched(rng: &mut Rng) -> Touched {
    if rng.one_in(8) {
        return Touched::everything();
    }
    let count = 1 + rng.below(3);
    let fids = (0..count).map(|_| fid(rng.below(6) as u32)).collect();
    Touched { fids, is_move: rng.one_in(6), is_everything: false }
}

fn conflict(a: &(u16, Touched, Place), b: &(u16, Touched, Place)) -> bool {
    let (a, b) = ((a.0, &a.1, a.2.1), (b.0, &b.1, b.2.1));
    let is_same_slot = a.0 == b.0 && a.2 == b.2;
    let shares = a.1.fids.iter().any(|fid| b.1.fids.contains(fid));
    a.1.is_everything || b.1.is_everything || is_same_slot || shares || (a.1.is_move && b.1.is_move)
}

/// Replays come, end and are given up at random; whatever runs has nothing in common with what is before it, and in the end all
/// have run that were not given up.
#[test]
fn no_order_of_coming_breaks_the_order_of_what_depends_on_each_other() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut order = Order::default();
        let mut left: BTreeMap<Place, (u16, Touched, Place)> = BTreeMap::new();
        for transno in 1..40 {
            let place = place(transno, u128::from(rng.below(4)));
            let (slot, touched) = (rng.below(3) as u16, random_touched(&mut rng));
            order.list(place, slot, &touched);
            left.insert(place, (slot, touched, place));
        }
        let mut missing: Vec<Place> = left.keys().copied().collect();
        let mut running: Vec<Place> = Vec::new();
        while !order.is_empty() {
            match rng.below(12) {
                0..=5 if !missing.is_empty() => {
                    let place = missing.swap_remove(rng.below(missing.len() as u64) as usize);
                    order.note_come(place);
                }
                6..=10 if !running.is_empty() => {
                    let place = running.swap_remove(rng.below(running.len() as u64) as usize);
                    order.remove(place);
                    left.remove(&place);
                }
                11 if rng.one_in(20) => {
                    let client = ClientId(u128::from(rng.below(4)));
                    order.forget(client);
                    left.retain(|place, _| place.1 != client);
                    missing.retain(|place| place.1 != client);
                    running.retain(|place| place.1 != client);
                }
                _ => {}
            }
            order.check();
            while let Some(place) = order.start_next() {
                let mine = left.get(&place).unwrap();
                let before = left.range(..place).map(|(_, other)| other);
                assert!(!before.into_iter().any(|other| conflict(mine, other)), "seed {seed}: {place:?}");
                running.push(place);
            }
            let is_stuck = missing.is_empty() && running.is_empty() && !order.is_empty();
            assert!(!is_stuck, "seed {seed}: nothing goes on");
        }
        assert!(left.is_empty(), "seed {seed}: all have run");
    }
}

#[test]
fn what_was_said_covers_itself_and_what_is_less() {
    let at = place(1, 1);
    let moving = |oids: &[u32]| Touched { is_move: true, ..touching(oids) };
    let order = order(&[(1, 1, 3, moving(&[1, 2])), (2, 1, 4, Touched::everything())], &[]);
    assert!(order.covers(at, 3, &moving(&[2, 1])) && order.covers(at, 3, &touching(&[1])));
    assert!(!order.covers(at, 2, &touching(&[1])), "another slot");
    assert!(!order.covers(at, 3, &touching(&[1, 3])), "another inode");
    assert!(!order.covers(at, 3, &Touched::everything()));
    assert!(!order.covers(place(1, 2), 3, &touching(&[1])), "of somebody else");
    assert!(
        order.covers(place(2, 1), 4, &moving(&[7])) && order.covers(place(2, 1), 4, &Touched::everything())
    );
    let still = self::order(&[(1, 1, 3, touching(&[1, 2]))], &[]);
    assert!(!still.covers(at, 3, &moving(&[1, 2])), "a move of what was said not to move");
}

#[test]
fn what_is_listed_is_counted() {
    let replays = [(1, 1, 0, touching(&[1, 2])), (2, 2, 0, Touched::everything()), (3, 3, 0, touching(&[1]))];
    let mut order = order(&replays, &[]);
    assert_eq!(order.object_count(), 4 + 1 + 3);
    let at_most: usize = replays.iter().map(|(.., touched)| Order::count_of(touched)).sum();
    assert!(order.object_count() <= at_most);
    for (transno, client, ..) in &replays {
        order.remove(place(*transno, *client));
        order.check();
    }
    assert_eq!(order.object_count(), 0);
}
