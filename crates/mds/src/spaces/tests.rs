#![allow(clippy::unwrap_used)]

use super::*;

fn spaces() -> Spaces {
    Spaces::new(17, Duration::from_secs(5))
}

#[test]
fn all_are_asked_when_what_is_known_is_old() {
    let mut spaces = Spaces::new(5, Duration::from_secs(60));
    let at = |seconds: u64| Time::ZERO.after(Duration::from_secs(seconds));
    assert!(spaces.must_ask(at(10)));
    assert!(!spaces.must_ask(at(69)));
    assert!(spaces.must_ask(at(70)));
    spaces.set_age_max(Duration::from_secs(5));
    assert!(spaces.must_ask(at(75)));
}

#[test]
fn shares_are_in_proportion_beyond_the_threshold_only() {
    let shares = |rooms: &[u128]| spaces().shares(rooms.iter().copied().map(Some));
    assert_eq!(shares(&[1000, 830, 900]), None, "17 percent less");
    assert_eq!(shares(&[1000, 810, 1]), Some(vec![1000, 810, 1]));
    assert_eq!(shares(&[1 << 40, 1, 0]), Some(vec![1000, 1, 0]), "what is little is not nothing");
    assert_eq!(shares(&[0, 0]), None);
    assert_eq!(shares(&[]), None);
    assert_eq!(spaces().shares([Some(1000), None]), None);
    let mut in_turn = spaces();
    in_turn.set_threshold_percent(101);
    assert_eq!(in_turn.threshold_percent(), 100);
    assert_eq!(in_turn.shares([Some(1000), Some(1)]), None);
}

#[test]
fn several_of_one_turn_are_different_ones() {
    let mut owed = Owed::default();
    let shares = [(3, 1000), (5, 10), (7, 1000)];
    for _ in 0..50 {
        let next = owed.next(&shares, 2);
        assert!(next.contains(&3) && next.contains(&7), "{next:?}");
    }
    assert_eq!(owed.next(&shares, 9).len(), 3, "no more than there are");
    assert_eq!(owed.next(&[], 1), [0; 0]);
}

/// Files over all had used it as much as the others.
#[test]
fn what_wide_turns_have_taken_or_left_is_soon_forgotten() {
    let mut owed = Owed::default();
    let shares = [(0, 1000), (1, 500), (2, 500)];
    for _ in 0..10_000 {
        assert_eq!(owed.next(&shares, 3).len(), 3);
    }
    let mut counts = [0; 3];
    for _ in 0..400 {
        counts[usize::from(owed.next(&shares, 1)[0])] += 1;
    }
    assert!(counts[1] > 90 && counts[2] > 90 && counts[0] < 210, "{counts:?}");
}
