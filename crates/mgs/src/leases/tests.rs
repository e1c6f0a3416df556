use super::*;

fn at(milliseconds: u64) -> Time {
    Time(1_000_000_000).after(Duration::from_millis(milliseconds))
}

fn life(client: u128, incarnation: u64) -> Life {
    Life { client: ClientId(client), incarnation }
}

/// Runs from `from` to `to`, and these renew each second.
fn run(leases: &mut Leases, from: u64, to: u64, clients: &[Life]) {
    for milliseconds in (from..=to).step_by(1000) {
        leases.on_turn(at(milliseconds), false);
        leases.renew(at(milliseconds), clients);
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
    assert_eq!(leases.lapsed(at(10_000), vec![life(1, 1)]), vec![]);
    run(&mut leases, 11_000, 13_000, &[]);
    assert_eq!(leases.lapsed(at(13_000), vec![life(1, 1)]), vec![life(1, 1)]);
}

#[test]
fn another_incarnation_is_another_life() {
    let mut leases = Leases::new(at(0));
    run(&mut leases, 0, 4000, &[life(1, 2)]);
    assert_eq!(leases.lapsed(at(4000), vec![life(1, 1)]), vec![life(1, 1)]);
    // A late renewal of the earlier one changes nothing.
    leases.renew(at(4500), &[life(1, 1)]);
    assert_eq!(leases.lapsed(at(4500), vec![life(1, 1), life(1, 2)]), vec![life(1, 1)]);
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
    leases.renew(at(0), &[life(1, 1)]);
    for milliseconds in (500..=5000).step_by(500) {
        leases.on_turn(at(milliseconds), true);
        assert_eq!(leases.lapsed(at(milliseconds), vec![life(1, 1)]), vec![]);
    }
    leases.on_turn(at(5500), false);
    assert_eq!(leases.lapsed(at(7999), vec![life(1, 1)]), vec![]);
    assert_eq!(leases.lapsed(at(8000), vec![life(1, 1)]), vec![life(1, 1)]);
}
