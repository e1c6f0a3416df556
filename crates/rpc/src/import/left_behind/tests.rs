use super::*;
use base::Epoch;
use wire::OstRequest;

/// The `number`th of an incarnation.
fn nth(epoch: u64, number: u64) -> Transno {
    Transno(Transno::first_of(Epoch(epoch)).0 + number)
}

fn left(transnos: &[Transno]) -> LeftBehind {
    let mut left = LeftBehind::default();
    left.add(transnos.iter().map(|transno| (*transno, Request::Ost(OstRequest::Statfs))));
    left
}

/// -> How many are lost, and the first one that is not.
fn losing(transnos: &[Transno], survived: Transno) -> (usize, Option<Transno>) {
    let mut left = left(transnos);
    (left.take_lost(survived).len(), left.first())
}

#[test]
fn what_an_incarnation_has_lost_is_told_from_what_it_has_kept() {
    let done = [nth(3, 1), nth(3, 5), nth(3, 9)];
    assert_eq!(losing(&done, nth(3, 9)), (0, Some(nth(3, 1))));
    assert_eq!(losing(&done, nth(3, 7)), (1, Some(nth(3, 1))));
    assert_eq!(losing(&done, nth(3, 0)), (3, None));
}

#[test]
fn what_is_known_of_one_incarnation_says_nothing_of_another() {
    let done = [nth(3, 9), nth(4, 1), nth(4, 2), nth(5, 1)];
    assert_eq!(losing(&done, nth(4, 1)), (3, Some(nth(4, 1))));
}

#[test]
fn of_a_target_that_says_nothing_all_is_lost() {
    assert_eq!(losing(&[nth(3, 1), nth(3, 2)], Transno::ZERO), (2, None));
}

#[test]
fn what_is_durable_is_not_lost_later() {
    let mut left = left(&[nth(3, 1), nth(3, 2)]);
    left.on_committed(nth(3, 1));
    assert_eq!(left.first(), Some(nth(3, 2)));
    assert_eq!(left.take_lost(Transno::ZERO).len(), 1);
    assert!(left.is_empty());
}

#[test]
fn who_evicts_again_and_again_is_not_believed_without_end() {
    let done: Vec<Transno> = (1..=REQUESTS_MAX as u64 + 3).map(|number| nth(3, number)).collect();
    assert_eq!(losing(&done, nth(3, u64::from(u32::MAX))), (3, Some(nth(3, 4))));
}
