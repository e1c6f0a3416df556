#![allow(clippy::unwrap_used)]
use super::kept::{self, Group, Span};
use super::*;
use crate::row;

fn at(milliseconds: u64) -> Time {
    Time(1_000_000_000).after(Duration::from_millis(milliseconds))
}

fn life(client: u128, incarnation: u64) -> Life {
    Life { client: ClientId(client), incarnation }
}

/// Nobody of them was known to be gone.
fn renew(leases: &mut Leases, now: Time, clients: &[Life]) {
    leases.renew(now, clients);
    assert!(leases.rows_of_back(Epoch(7), clients).is_none());
}

/// Runs from `from` to `to`, and these renew each second, beside others.
fn run(leases: &mut Leases, from: u64, to: u64, clients: &[Life]) {
    for milliseconds in (from..=to).step_by(1000) {
        leases.on_turn(at(milliseconds), false);
        leases.on_heard(at(milliseconds));
        renew(leases, at(milliseconds), clients);
    }
}

#[test]
fn who_renews_lives_and_who_does_not_is_gone_after_a_lease() {
    let mut leases = Leases::new(at(0));
    run(&mut leases, 0, 4000, &[life(1, 1), life(2, 1)]);
    assert_eq!(leases.lapsed(at(4000), vec![life(1, 1), life(2, 1)]), vec![]);
    run(&mut leases, 5000, 6000, &[life(1, 1)]);
    assert_eq!(leases.lapsed(at(6999), vec![life(1, 1), life(2, 1)]), vec![]);
    assert_eq!(leases.lapsed(at(7000), vec![life(1, 1), life(2, 1)]), vec![life(2, 1)]);
    assert_eq!(leases.count(at(7000)), 1);
}

#[test]
fn nobody_is_known_to_be_gone_right_after_a_start() {
    let mut leases = Leases::new(at(0));
    run(&mut leases, 1000, 3000, &[]);
    assert_eq!(leases.lapsed(at(2999), vec![life(1, 1)]), vec![]);
    assert_eq!(leases.lapsed(at(3000), vec![life(1, 1)]), vec![life(1, 1)]);
}

#[test]
fn time_in_which_the_server_did_not_run_does_not_count() {
    let mut leases = Leases::new(at(0));
    run(&mut leases, 0, 5000, &[life(1, 1)]);
    // Five seconds without a turn, and then the question comes before the renewals that have piled up.
    leases.on_turn(at(10_000), false);
    leases.on_heard(at(10_000));
    assert_eq!(leases.lapsed(at(10_000), vec![life(1, 1)]), vec![]);
    run(&mut leases, 11_000, 13_000, &[]);
    assert_eq!(leases.lapsed(at(13_000), vec![life(1, 1)]), vec![life(1, 1)]);
}

/// The network was gone, and this process ran: whose question comes first may be anybody.
#[test]
fn time_in_which_nobody_at_all_was_heard_does_not_count() {
    let mut leases = Leases::new(at(0));
    run(&mut leases, 0, 5000, &[life(1, 1)]);
    for milliseconds in (6000..=12_000).step_by(1000) {
        leases.on_turn(at(milliseconds), false);
        assert_eq!(noted(&mut leases, milliseconds), [], "{milliseconds}");
    }
    leases.on_heard(at(12_500));
    assert_eq!(leases.lapsed(at(12_500), vec![life(1, 1)]), vec![]);
    run(&mut leases, 13_000, 15_000, &[]);
    leases.on_heard(at(15_499));
    assert_eq!(leases.lapsed(at(15_499), vec![life(1, 1)]), vec![]);
    assert_eq!(leases.lapsed(at(15_500), vec![life(1, 1)]), vec![life(1, 1)]);
    assert_eq!(noted(&mut leases, 15_500), [(ClientId(1), 1)]);
}

#[test]
fn another_incarnation_is_another_life() {
    let mut leases = Leases::new(at(0));
    run(&mut leases, 0, 4000, &[life(1, 2)]);
    assert_eq!(leases.lapsed(at(4000), vec![life(1, 1)]), vec![life(1, 1)]);
    // A late renewal of the earlier one changes nothing.
    renew(&mut leases, at(4500), &[life(1, 1)]);
    assert_eq!(leases.lapsed(at(4500), vec![life(1, 1), life(1, 2)]), vec![life(1, 1)]);
}

/// A mount is made again under its identity, and the management server is restarted in between: a target that was down when the former one
/// said goodbye waits for that no longer. One of which nothing has come yet may be about to say that it lives.
#[test]
fn a_later_incarnation_says_of_the_one_before_that_it_is_gone_and_not_of_one_to_come() {
    let mut leases = Leases::new(at(0));
    run(&mut leases, 0, 0, &[life(1, 2)]);
    let asked = vec![life(1, 1), life(1, 2), life(1, 3), life(2, 1)];
    assert_eq!(leases.lapsed(at(10), asked.clone()), vec![life(1, 1)]);
    run(&mut leases, 1000, 3000, &[life(1, 3)]);
    assert_eq!(leases.lapsed(at(3000), asked), vec![life(1, 1), life(1, 2), life(2, 1)]);
}

#[test]
fn old_leases_are_forgotten_and_nothing_ticks_for_nobody() {
    let mut leases = Leases::new(at(0));
    assert_eq!(leases.next_deadline(false), None);
    run(&mut leases, 0, 0, &[life(1, 1)]);
    assert_eq!(leases.next_deadline(false), Some(at(1000)));
    assert_eq!(noted(&mut leases, 1000), []);
    leases.forget_old(at(63_000));
    assert_eq!(leases.next_deadline(false), Some(at(1000)), "the row is to forget it too");
    assert_eq!(noted(&mut leases, 63_000), []);
    assert_eq!(leases.next_deadline(false), None);
}

#[test]
fn time_in_which_nobody_could_renew_does_not_count() {
    let mut leases = Leases::new(at(0));
    // The disk holds up sessions, and a lease ends that its owner could not renew.
    renew(&mut leases, at(0), &[life(1, 1)]);
    for milliseconds in (500..=5000).step_by(500) {
        leases.on_turn(at(milliseconds), true);
        assert_eq!(leases.lapsed(at(milliseconds), vec![life(1, 1)]), vec![]);
    }
    leases.on_turn(at(5500), false);
    assert_eq!(leases.lapsed(at(7999), vec![life(1, 1)]), vec![]);
    assert_eq!(leases.lapsed(at(8000), vec![life(1, 1)]), vec![life(1, 1)]);
}

/// The ended ones of each row.
fn ended(rows: &Rows) -> Vec<(ClientId, u64)> {
    let groups = rows.batch.changes().filter(|change| change.key.len() == 2);
    let groups = groups.map(|change| {
        let group: Group = row::decode(change.value.unwrap()).unwrap();
        assert_eq!(group.epoch, Epoch(7));
        group.ended
    });
    groups.flatten().collect()
}

/// Those that are said to have ended, if anything is said.
fn noted(leases: &mut Leases, milliseconds: u64) -> Vec<(ClientId, u64)> {
    let Some(rows) = leases.note(at(milliseconds), Epoch(7)) else { return Vec::new() };
    leases.on_rows_written(&rows, Transno(9));
    ended(&rows)
}

#[test]
fn a_lease_that_begins_or_ends_is_noted_once_and_none_that_is_renewed() {
    let mut leases = Leases::new(at(0));
    run(&mut leases, 0, 1000, &[life(1, 3), life(2, 1)]);
    let rows = leases.note(at(1000), Epoch(7)).unwrap();
    leases.on_rows_written(&rows, Transno(8));
    run(&mut leases, 2000, 4000, &[life(1, 3), life(2, 1)]);
    assert!(leases.note(at(4000), Epoch(7)).is_none(), "nothing is written for a renewal");
    run(&mut leases, 5000, 6000, &[life(2, 1)]);
    assert!(leases.note(at(6000), Epoch(7)).is_none());
    run(&mut leases, 7000, 7000, &[life(2, 1)]);
    assert_eq!(noted(&mut leases, 7000), [(ClientId(1), 3)]);
    run(&mut leases, 8000, 9000, &[life(2, 1)]);
    assert!(leases.note(at(9000), Epoch(7)).is_none());
    assert_eq!(leases.ended_count(), 1);
    // Another incarnation is another life.
    run(&mut leases, 10_000, 10_000, &[life(2, 2)]);
    assert_eq!(noted(&mut leases, 10_000), [(ClientId(1), 3)]);
    assert!(leases.note(at(11_000), Epoch(7)).is_none());
}

/// It had no lease that somebody could have known to end.
#[test]
fn what_ended_while_the_server_did_not_run_is_not_noted() {
    let mut leases = Leases::new(at(0));
    run(&mut leases, 0, 5000, &[life(1, 1)]);
    leases.on_turn(at(10_000), false);
    leases.on_heard(at(10_000));
    assert_eq!(noted(&mut leases, 10_000), []);
    run(&mut leases, 11_000, 13_000, &[]);
    assert_eq!(noted(&mut leases, 13_000), [(ClientId(1), 1)]);
}

#[test]
fn who_comes_back_is_taken_out_of_the_row_before_it_is_told() {
    let mut leases = Leases::new(at(0));
    run(&mut leases, 0, 4000, &[life(1, 1), life(2, 1)]);
    run(&mut leases, 5000, 8000, &[life(2, 1)]);
    assert_eq!(noted(&mut leases, 8000), [(ClientId(1), 1)]);
    leases.renew(at(8500), &[life(1, 1)]);
    assert_eq!(leases.rows_of_back(Epoch(7), &[life(1, 1)]).map(|rows| ended(&rows)), Some(vec![]));
    // The store has refused it: others are not kept waiting, and it is tried again.
    renew(&mut leases, at(8600), &[life(2, 1)]);
    let rows = leases.rows_of_back(Epoch(7), &[life(1, 1)]).unwrap();
    leases.on_rows_written(&rows, Transno(10));
    assert_eq!(leases.said_by(Transno(9), &[life(2, 1)]), Transno::ZERO, "who never was in it does not wait");
    assert_eq!(leases.said_by(Transno(9), &[life(1, 1)]), Transno(10));
    renew(&mut leases, at(8700), &[life(1, 1)]);
    assert_eq!(
        leases.said_by(Transno(9), &[life(1, 1), life(2, 1)]),
        Transno(10),
        "nor later, before it is durable"
    );
    assert_eq!(leases.said_by(Transno(10), &[life(1, 1)]), Transno::ZERO);
    assert_eq!(leases.lapsed(at(8700), vec![life(1, 1)]), vec![]);
}

/// Of each group; another one has its own room.
#[test]
fn the_rows_have_room_for_those_that_ended_last() {
    const ROOM: u128 = 256;
    let other = Life { client: ClientId(u128::MAX), incarnation: 1 };
    let mut leases = Leases::new(at(0));
    let mut clients: Vec<Life> = (0..ROOM + 5).map(|client| life(client, u64::MAX)).collect();
    clients.push(other);
    for milliseconds in (0..=4000).step_by(1000) {
        leases.on_turn(at(milliseconds), false);
        leases.on_heard(at(milliseconds));
        let from = if milliseconds < 3000 { 0 } else { 5 };
        renew(&mut leases, at(milliseconds), &clients[from..]);
    }
    run(&mut leases, 5000, 9000, &[]);
    let rows = leases.note(at(9000), Epoch(7)).unwrap();
    assert_eq!(rows.batch.check(), Ok(()));
    let lives = ended(&rows);
    assert_eq!(lives.len() as u128, ROOM + 1);
    assert!(lives.iter().all(|(client, _)| client.0 >= 5));
    leases.on_rows_written(&rows, Transno(9));
    assert_eq!(leases.ended_count() as u128, ROOM + 1);
}

/// The row before says that its lease has ended, and is there until the next one is durable.
#[test]
fn who_has_no_room_any_more_waits_for_a_row_without_it_when_it_comes_back() {
    let mut leases = Leases::new(at(0));
    let clients: Vec<Life> = (0..256).map(|client| life(client, 1)).collect();
    run(&mut leases, 0, 0, &clients);
    run(&mut leases, 1000, 4000, &[]);
    assert_eq!(noted(&mut leases, 4000).len(), clients.len());
    run(&mut leases, 5000, 5000, &[life(300, 1)]);
    run(&mut leases, 6000, 9000, &[]);
    let rows = leases.note(at(9000), Epoch(7)).unwrap();
    let left: Vec<_> = ended(&rows);
    let out = *clients.iter().find(|life| !left.contains(&(life.client, 1))).unwrap();
    // The store refuses it.
    drop(rows);
    leases.renew(at(9100), &[out]);
    let back = leases.rows_of_back(Epoch(7), &[out]).expect("the row before it counts");
    assert!(!ended(&back).contains(&(out.client, 1)));
}

#[test]
fn who_had_no_room_and_comes_back_waits_until_that_is_durable() {
    let mut leases = Leases::new(at(0));
    let clients: Vec<Life> = (0..257).map(|client| life(client, 1)).collect();
    run(&mut leases, 0, 0, &clients);
    run(&mut leases, 1000, 4000, &[]);
    let rows = leases.note(at(4000), Epoch(7)).unwrap();
    let left = ended(&rows);
    let out = *clients.iter().find(|life| !left.contains(&(life.client, 1))).unwrap();
    leases.on_rows_written(&rows, Transno(12));
    leases.renew(at(4100), &[out]);
    assert!(leases.rows_of_back(Epoch(7), &[out]).is_none(), "no row says it any more");
    assert_eq!(leases.said_by(Transno(11), &[out]), Transno(12));
    assert_eq!(leases.said_by(Transno(12), &[out]), Transno::ZERO);
}

/// Of as many as there is room for, in as many groups as there are.
#[test]
fn what_is_too_long_for_a_store_is_written_in_parts() {
    let mut leases = Leases::new(at(0));
    let client =
        |group: u128, number: u128| Life { client: ClientId((group << 122) | number), incarnation: 1 };
    let clients: Vec<Life> =
        (0..64).flat_map(|group| (0..2000).map(move |number| client(group, number))).collect();
    run(&mut leases, 0, 1000, &clients);
    let (store, mut count) = (store::MemoryMeta::new(), 0);
    for second in 1..=60 {
        let Some(rows) = leases.note(at(second * 1000), Epoch(7)) else { break };
        count += 1;
        assert_eq!(rows.batch.check(), Ok(()));
        store.apply(Transno(second), &rows.batch).unwrap();
        leases.on_rows_written(&rows, Transno(second));
    }
    assert_eq!(count, 32);
    let kept = kept::read(&store, Epoch(8)).unwrap();
    assert_eq!(kept.lives.len(), 64 * 1024);
    assert!(kept.lives.iter().all(|(_, has_ended)| !has_ended));
}

fn store_of(rows: &[(&[u8], Vec<u8>)]) -> store::MemoryMeta {
    let (store, mut batch) = (store::MemoryMeta::new(), Batch::new());
    rows.iter().for_each(|(key, value)| batch.put(LEASES, key, value));
    store.apply(Transno(1), &batch).unwrap();
    store
}

#[test]
fn that_a_lease_has_ended_counts_where_all_since_have_kept_the_rows() {
    let group = |epoch| {
        row::encode(&Group {
            epoch: Epoch(epoch),
            living: vec![(ClientId(2), 1)],
            ended: vec![(ClientId(1), 1)],
        })
    };
    let span = |first, last| row::encode(&Span { first: Epoch(first), last: Epoch(last) });
    let ended = |rows: &[(&[u8], Vec<u8>)], epoch| {
        let leases = Leases::read(&store_of(rows), at(0), Epoch(epoch)).unwrap();
        (leases.held.len(), leases.ended_count())
    };
    let kept = |first, last, by, epoch| ended(&[(b"span", span(first, last)), (b"g\0", group(by))], epoch);
    assert_eq!(kept(4, 6, 6, 7), (2, 1));
    assert_eq!(kept(4, 6, 4, 7), (2, 1), "a row that did not change");
    assert_eq!(kept(4, 6, 3, 7), (2, 0), "written before one that kept nothing");
    assert_eq!(kept(4, 6, 6, 8), (2, 0), "and the one before kept nothing");
    assert_eq!(kept(4, 6, 9, 7), (2, 0), "of one that was not yet");
    assert_eq!(kept(0, u64::MAX, 1, 7), (2, 0));
    assert_eq!(ended(&[(b"g\0", group(6))], 7), (2, 0), "nobody says whose it is");
    let (span, group) = (span(4, 6), group(6));
    assert_eq!(ended(&[(b"span", span.clone()), (b"g\x01", group.clone())], 7), (0, 0), "of another group");
    for cut in 0..group.len() {
        assert_eq!(ended(&[(b"span", span.clone()), (b"g\0", group[..cut].to_vec())], 7), (0, 0));
    }
    for cut in 0..span.len() {
        assert_eq!(ended(&[(b"span", span[..cut].to_vec()), (b"g\0", group.clone())], 7), (2, 0));
    }
}

/// A newer version has written it, and reads it again later: meanwhile somebody may have come back.
#[test]
fn nobody_vouches_for_rows_that_he_does_not_understand() {
    let group = row::encode(&Group { epoch: Epoch(5), living: Vec::new(), ended: vec![(ClientId(1), 1)] });
    let span = |first, last| row::encode(&Span { first: Epoch(first), last: Epoch(last) });
    let (cut, beyond) = (group[..group.len() - 1].to_vec(), b"g\x40".to_vec());
    for unknown in [(b"g\0".to_vec(), cut), (beyond, group.clone()), (b"h".to_vec(), vec![1])] {
        let store = store_of(&[(b"span", span(4, 5)), (&unknown.0, unknown.1)]);
        let rows = Leases::read(&store, at(0), Epoch(6)).unwrap().begin().expect("a span");
        store.apply(Transno(2), &rows.batch).unwrap();
        let mut back = Batch::new();
        back.put(LEASES, b"g\0", &group);
        store.apply(Transno(3), &back).unwrap();
        assert_eq!(Leases::read(&store, at(0), Epoch(7)).unwrap().ended_count(), 0);
    }
}

/// Its lease held when the one before died, and nobody renewed it since.
#[test]
fn who_had_a_lease_before_ends_like_one_that_has_one_here() {
    let group =
        Group { epoch: Epoch(5), living: vec![(ClientId(1), 4), (ClientId(2), 1)], ended: Vec::new() };
    let mut leases = Leases::read(&store_of(&[(b"g\0", row::encode(&group))]), at(0), Epoch(7)).unwrap();
    assert_eq!(leases.count(at(0)), 0, "nobody has said here that he lives");
    let asked = || vec![life(1, 4), life(2, 1)];
    run(&mut leases, 0, 2000, &[life(2, 1)]);
    assert_eq!(leases.lapsed(at(2999), asked()), vec![]);
    assert_eq!(leases.lapsed(at(2999), vec![life(1, 3)]), vec![life(1, 3)], "that one was before it");
    run(&mut leases, 3000, 3000, &[life(2, 1)]);
    assert_eq!(leases.lapsed(at(3000), asked()), vec![life(1, 4)]);
    assert_eq!(noted(&mut leases, 3000), [(ClientId(1), 4)]);
}

/// A later version has to read them.
#[test]
fn the_rows_are_these_bytes() {
    let number = |value: u8| [value, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        row::encode(&Span { first: Epoch(4), last: Epoch(6) }),
        [&[1][..], &number(4), &number(6)].concat()
    );
    let group = Group { epoch: Epoch(6), living: vec![(ClientId(2), 3)], ended: vec![(ClientId(1), 5)] };
    let client = |value: u8| [number(value), number(0)].concat();
    let lives = |who: u8, incarnation| [&[1, 0, 0, 0][..], &client(who), &number(incarnation)].concat();
    assert_eq!(row::encode(&group), [&[1][..], &number(6), &lives(2, 3), &lives(1, 5)].concat());
}
