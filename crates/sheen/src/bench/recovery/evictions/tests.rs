use super::*;

/// Mounts and targets, each with its process and its count.
fn at(mounts: &[(&str, u32, u64)], targets: &[(&str, u32, u64)]) -> Look {
    Look {
        of_mounts: mounts
            .iter()
            .map(|(path, pid, count)| (path.into(), Count { pid: *pid, count: *count }))
            .collect(),
        of_targets: targets
            .iter()
            .map(|(name, pid, count)| ((*name).to_owned(), Count { pid: *pid, count: *count }))
            .collect(),
    }
}

#[test]
fn mounts_that_live_say_themselves_what_they_lost() {
    let mut evictions = Evictions::default();
    assert_eq!(evictions.begin_round(at(&[("a", 1, 0), ("b", 2, 0), ("gone", 3, 4)], &[])), 4);
    assert_eq!(evictions.look(at(&[("a", 1, 0), ("b", 2, 0)], &[])), 0);
    assert_eq!(evictions.look(at(&[("a", 1, 1), ("b", 2, 1)], &[])), 2);
    assert_eq!(evictions.look(at(&[("a", 1, 1), ("b", 9, 1)], &[])), 1, "a new process counts from 0");
    assert_eq!(number_behind("evictions:", "import:\n    state: FULL\n       evictions: 7\n"), 7);
    assert_eq!(number_behind("evictions:", "nothing"), 0);
}

/// A target that was killed counts from 0: those who died in earlier rounds excuse nobody whom it evicts.
#[test]
fn a_restarted_target_may_evict_only_the_mounts_that_were_killed() {
    let mut evictions = Evictions::default();
    assert_eq!(evictions.begin_round(at(&[], &[("MDT0000", 1, 0), ("OST0000", 2, 0)])), 0);
    // Rounds in which ten mounts die, and no server.
    for number in 1..=5 {
        evictions.note_killed(10);
        let all_evicted = at(&[], &[("MDT0000", 1, 10 * number), ("OST0000", 2, 10 * number)]);
        assert_eq!(evictions.look(all_evicted.clone()), 0);
        assert_eq!(evictions.begin_round(all_evicted), 0);
    }
    // One in which the MDT alone is killed, and evicts 50.
    let restarted = at(&[], &[("MDT0000", 7, 50), ("OST0000", 2, 50)]);
    assert_eq!(evictions.look(restarted.clone()), 50);
    assert_eq!(evictions.begin_round(restarted), 0, "what was told is not told again");
    // Both at once.
    evictions.note_killed(10);
    assert_eq!(evictions.look(at(&[], &[("MDT0000", 8, 10), ("OST0000", 2, 61)])), 1);
}

#[test]
fn who_was_killed_may_be_evicted_in_the_next_round_and_not_later() {
    let mut evictions = Evictions::default();
    evictions.begin_round(at(&[], &[("OST0000", 1, 0)]));
    evictions.note_killed(3);
    assert_eq!(evictions.look(at(&[], &[("OST0000", 1, 1)])), 0);
    assert_eq!(evictions.begin_round(at(&[], &[("OST0000", 1, 1)])), 0);
    assert_eq!(evictions.look(at(&[], &[("OST0000", 1, 2)])), 0, "late");
    assert_eq!(evictions.begin_round(at(&[], &[("OST0000", 1, 2)])), 0);
    assert_eq!(evictions.look(at(&[], &[("OST0000", 1, 3)])), 1);
}

/// A busy machine answers late, and what was counted long before is no eviction of this round.
#[test]
fn who_misses_looks_goes_on_counting_from_the_last_one() {
    let mut evictions = Evictions::default();
    let mdt = |count| at(&[("a", 1, 4)], &[("MDT0000", 2, count)]);
    let nobody = || at(&[], &[]);
    evictions.begin_round(mdt(50));
    evictions.note_killed(10);
    assert_eq!(evictions.look(nobody()), 0);
    assert_eq!(evictions.begin_round(nobody()), 0);
    evictions.note_killed(10);
    assert_eq!(evictions.look(nobody()), 0);
    assert_eq!(evictions.begin_round(nobody()), 0);
    evictions.note_killed(10);
    assert_eq!(evictions.look(mdt(80)), 0, "those of three rounds");
    assert_eq!(evictions.begin_round(mdt(81)), 1, "and one that lives");
}
