#![allow(clippy::unwrap_used)]
use super::*;

fn at(milliseconds: u64) -> Time {
    Time(1_000_000_000).after(Duration::from_millis(milliseconds))
}

fn life(client: u128, incarnation: u64) -> Life {
    Life { client: ClientId(client), incarnation }
}

/// Nobody of them was known to be gone.
fn renew(leases: &mut Leases, now: Time, clients: &[Life]) {
    assert_eq!(leases.renew(now, Epoch(7), clients), None);
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
        assert_eq!(row(leases.note_ended(at(milliseconds), Epoch(7))), None, "{milliseconds}");
    }
    leases.on_heard(at(12_500));
    assert_eq!(leases.lapsed(at(12_500), vec![life(1, 1)]), vec![]);
    run(&mut leases, 13_000, 15_000, &[]);
    leases.on_heard(at(15_499));
    assert_eq!(leases.lapsed(at(15_499), vec![life(1, 1)]), vec![]);
    assert_eq!(leases.lapsed(at(15_500), vec![life(1, 1)]), vec![life(1, 1)]);
    assert_eq!(row(leases.note_ended(at(15_500), Epoch(7))), Some(vec![(ClientId(1), 1)]));
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
    leases.forget_old(at(63_000));
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

/// What is put into the row.
fn row(batch: Option<Batch>) -> Option<Vec<(ClientId, u64)>> {
    let batch = batch?;
    let value = batch.changes().next().and_then(|change| change.value).map(<[u8]>::to_vec);
    let row: Ended = row::decode(&value.unwrap()).unwrap();
    assert_eq!(row.epoch, Epoch(7));
    Some(row.lives)
}

#[test]
fn a_lease_that_ends_is_noted_once() {
    let mut leases = Leases::new(at(0));
    run(&mut leases, 0, 4000, &[life(1, 3), life(2, 1)]);
    run(&mut leases, 5000, 6000, &[life(2, 1)]);
    assert_eq!(row(leases.note_ended(at(6000), Epoch(7))), None);
    run(&mut leases, 7000, 7000, &[life(2, 1)]);
    assert_eq!(row(leases.note_ended(at(7000), Epoch(7))), Some(vec![(ClientId(1), 3)]));
    leases.on_row_written(Transno(9));
    run(&mut leases, 8000, 9000, &[life(2, 1)]);
    assert_eq!(row(leases.note_ended(at(9000), Epoch(7))), None);
    assert_eq!(leases.ended_count(), 1);
}

/// It had no lease that somebody could have known to end.
#[test]
fn what_ended_while_the_server_did_not_run_is_not_noted() {
    let mut leases = Leases::new(at(0));
    run(&mut leases, 0, 5000, &[life(1, 1)]);
    leases.on_turn(at(10_000), false);
    leases.on_heard(at(10_000));
    assert_eq!(row(leases.note_ended(at(10_000), Epoch(7))), None);
    run(&mut leases, 11_000, 13_000, &[]);
    assert_eq!(row(leases.note_ended(at(13_000), Epoch(7))), Some(vec![(ClientId(1), 1)]));
}

#[test]
fn who_comes_back_is_taken_out_of_the_row_before_it_is_told() {
    let mut leases = Leases::new(at(0));
    run(&mut leases, 0, 4000, &[life(1, 1), life(2, 1)]);
    run(&mut leases, 5000, 8000, &[life(2, 1)]);
    assert_eq!(row(leases.note_ended(at(8000), Epoch(7))).map(|row| row.len()), Some(1));
    leases.on_row_written(Transno(9));
    assert_eq!(row(leases.renew(at(8500), Epoch(7), &[life(1, 1)])), Some(vec![]));
    // The store has refused the row: others do not wait for it, and it is tried again.
    renew(&mut leases, at(8550), &[life(2, 1)]);
    assert_eq!(row(leases.renew(at(8600), Epoch(7), &[life(1, 1)])), Some(vec![]));
    leases.on_row_written(Transno(10));
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

#[test]
fn the_row_has_room_for_those_that_ended_last() {
    let mut leases = Leases::new(at(0));
    let clients: Vec<Life> = (0..ENDED_COUNT_MAX as u128 + 5).map(|client| life(client, u64::MAX)).collect();
    for milliseconds in (0..=4000).step_by(1000) {
        leases.on_turn(at(milliseconds), false);
        leases.on_heard(at(milliseconds));
        let from = if milliseconds < 3000 { 0 } else { 5 };
        renew(&mut leases, at(milliseconds), &clients[from..]);
    }
    run(&mut leases, 5000, 9000, &[]);
    let batch = leases.note_ended(at(9000), Epoch(7)).unwrap();
    assert_eq!(batch.check(), Ok(()));
    let lives = row(Some(batch)).unwrap();
    assert_eq!(lives.len(), ENDED_COUNT_MAX);
    assert!(lives.iter().all(|(client, _)| client.0 >= 5));
    assert_eq!(leases.ended_count(), ENDED_COUNT_MAX);
}

#[test]
fn a_row_of_another_version_says_nothing() {
    let ended = Ended { epoch: Epoch(6), lives: vec![(ClientId(1), 1)] };
    let store = store::MemoryMeta::new();
    let mut at_transno = Transno::ZERO;
    let mut read = |value: Vec<u8>, epoch| {
        let mut batch = Batch::new();
        batch.put(ENDED, KEY, &value);
        at_transno = at_transno.next();
        store.apply(at_transno, &batch).unwrap();
        Leases::read(&store, at(0), epoch).unwrap().ended_count()
    };
    let value = row::encode(&ended);
    assert_eq!(read(value.clone(), Epoch(7)), 1);
    assert_eq!(read(value.clone(), Epoch(8)), 0, "of one that was not the last");
    assert_eq!(read(value[1..].to_vec(), Epoch(7)), 0);
    for cut in 0..value.len() {
        assert_eq!(read(value[..cut].to_vec(), Epoch(7)), 0);
    }
    let max = Ended { epoch: Epoch(u64::MAX), ..ended };
    assert_eq!(read(row::encode(&max), Epoch(7)), 0);
}
