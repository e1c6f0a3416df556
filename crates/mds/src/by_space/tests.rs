#![allow(clippy::unwrap_used)]

use super::*;

fn space(bytes: u64, inodes: u64) -> Statfs {
    Statfs { bytes_available: bytes, inodes_free: inodes, ..Statfs::default() }
}

fn chosen(by_space: &mut BySpace, own: &Statfs, others: &[u16], count: usize) -> Vec<u16> {
    (0..count).map(|_| by_space.choose(1, own, others)).collect()
}

#[test]
fn mdts_take_turns_from_the_own_on_while_they_have_as_much() {
    let mut by_space = BySpace::default();
    by_space.spaces_mut().note(0, space(1000, 100));
    by_space.spaces_mut().note(2, space(960, 100));
    assert_eq!(chosen(&mut by_space, &space(1000, 100), &[0, 2], 6), [1, 2, 0, 1, 2, 0]);
    assert_eq!(chosen(&mut by_space, &space(1000, 100), &[], 2), [1, 1]);
}

#[test]
fn who_has_less_room_gets_fewer_turns() {
    let mut by_space = BySpace::default();
    by_space.spaces_mut().note(0, space(250, 1000));
    by_space.spaces_mut().note(2, space(1000, 500));
    let mut counts = [0; 3];
    for mdt in chosen(&mut by_space, &space(1000, 1000), &[0, 2], 700) {
        counts[usize::from(mdt)] += 1;
    }
    assert_eq!(counts, [100, 400, 200]);
    // An operator lets them take turns all the same.
    by_space.spaces_mut().set_threshold_percent(100);
    let mut counts = [0; 3];
    for mdt in chosen(&mut by_space, &space(1000, 1000), &[0, 2], 300) {
        counts[usize::from(mdt)] += 1;
    }
    assert!(counts.iter().all(|count| (99..=101).contains(count)), "{counts:?}");
}

/// Many turns had been owed, in other units, to those that had room all the time.
#[test]
fn who_has_room_again_gets_its_turns_at_once() {
    let mut by_space = BySpace::default();
    by_space.spaces_mut().note(0, space(0, 0));
    by_space.spaces_mut().note(2, space(1000, 100));
    assert!(!chosen(&mut by_space, &space(1000, 100), &[0, 2], 1001).contains(&0));
    by_space.spaces_mut().note(0, space(1000, 100));
    let turns = chosen(&mut by_space, &space(1000, 100), &[0, 2], 6);
    assert_eq!(turns.iter().filter(|mdt| **mdt == 0).count(), 2, "{turns:?}");
}

#[test]
fn who_is_full_is_not_chosen_unless_all_are() {
    let mut by_space = BySpace::default();
    // It is 0's turn when that is heard to be full.
    assert_eq!(chosen(&mut by_space, &space(1000, 10), &[0], 1), [1]);
    by_space.spaces_mut().note(0, space(1000, 0));
    assert_eq!(chosen(&mut by_space, &space(1000, 10), &[0], 3), [1, 1, 1]);
    assert_eq!(chosen(&mut by_space, &space(0, 10), &[0], 4).iter().filter(|mdt| **mdt == 0).count(), 2);
}

#[test]
fn who_has_said_nothing_is_treated_like_the_others() {
    let mut by_space = BySpace::default();
    by_space.spaces_mut().note(0, space(1, 1));
    assert_eq!(chosen(&mut by_space, &space(1 << 60, 1 << 60), &[0, 2], 3), [1, 2, 0]);
}

#[test]
fn largest_and_smallest_figures_do_not_overflow() {
    let mut by_space = BySpace::default();
    by_space.spaces_mut().note(0, space(u64::MAX, u64::MAX));
    by_space.spaces_mut().note(2, space(1, 1));
    let counts = chosen(&mut by_space, &space(u64::MAX, u64::MAX), &[0, 2], 2001);
    assert_eq!(counts.iter().filter(|mdt| **mdt == 2).count(), 1);
}
