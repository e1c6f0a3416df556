use super::*;
use crate::cluster::config_of;
use base::WallTime;

/// That made these files and has been given up when all of it was durable, between two calls: its process is at the removal of the last.
fn given_up(files: &[u64]) -> (Seat, Names) {
    let now = Now { time: Time(1_000_000_000), wall: WallTime(1_700_000_000_000_000_000) };
    let (mut seat, _) = Seat::new(now, 0, &config_of([super::super::MDT], Vec::new()));
    let durable = names(files);
    seat.names = durable.clone();
    seat.step = Step::Unlink(files[files.len() - 1]);
    seat.give_up();
    (seat, durable)
}

fn names(files: &[u64]) -> Names {
    files.iter().map(|file| name(*file)).collect()
}

/// Client 721 of seed 30 of a thousand, with rows of leases: nobody told its process of the eviction, and it removed what was still there.
#[test]
fn who_was_given_up_and_is_back_may_remove_what_was_durable() {
    let (mut seat, durable) = given_up(&[2, 3, 5]);
    let wrong = |seat: &Seat, found: &[u64]| seat.wrong_names(&durable, &names(found), false);
    assert_eq!(wrong(&seat, &[2, 3, 5]), names(&[]));
    assert_eq!(wrong(&seat, &[2, 3]), names(&[5]), "nobody has removed it");
    seat.on_answer(Answer::Done);
    assert_eq!(wrong(&seat, &[2, 3]), names(&[]));
    assert_eq!(wrong(&seat, &[2, 3, 5]), names(&[5]), "its removal was acknowledged in the new session");
    assert_eq!(wrong(&seat, &[3]), names(&[2]), "another was not removed");
}

#[test]
fn while_its_removal_is_not_answered_either_is_right() {
    let (mut seat, durable) = given_up(&[2, 3, 5]);
    assert!(seat.next_call(Time(2_000_000_000)).is_some());
    for found in [&[2, 3][..], &[2, 3, 5]] {
        assert_eq!(seat.wrong_names(&durable, &names(found), false), names(&[]));
    }
}

#[test]
fn a_name_that_it_gives_again_after_that_is_there() {
    let (mut seat, durable) = given_up(&[2, 3, 5]);
    seat.next_call = 6;
    seat.on_answer(Answer::Done);
    assert_eq!(seat.step, Step::Create(5));
    seat.names.insert(name(5));
    assert_eq!(seat.wrong_names(&durable, &names(&[2, 3, 5]), false), names(&[]));
    assert_eq!(seat.wrong_names(&durable, &names(&[2, 3]), false), names(&[5]));
}
