//! Full OSTs, and shares of the others.

use super::*;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Of 100 GiB, each on a device of its own.
fn space(ost: u16, bytes_available: u64) -> Statfs {
    let (bytes_total, inodes) = (100 * GIB, 1 << 20);
    Statfs {
        bytes_total,
        bytes_free: bytes_available,
        bytes_available,
        inodes_total: inodes,
        inodes_free: inodes,
        device: 7000 + u64::from(ost),
    }
}

fn note(placement: &mut Placement, ost: u16, bytes_available: u64) {
    placement.note_space(ost, space(ost, bytes_available));
}

fn with_rooms(rooms: &[u64]) -> Placement {
    let mut placement = over(rooms.len() as u16);
    for (ost, bytes) in rooms.iter().enumerate() {
        note(&mut placement, ost as u16, *bytes);
    }
    placement
}

/// The OSTs of a new file that is kept.
fn file(placement: &mut Placement, hint: ComponentHint) -> Vec<u16> {
    let osts = file_unkept(placement, hint);
    assert!(placement.settle(true), "it was dealt out");
    osts
}

fn file_unkept(placement: &mut Placement, hint: ComponentHint) -> Vec<u16> {
    let layout = placement.layout(Fid::ROOT, 1, &LayoutHint::plain(hint)).unwrap().unwrap();
    layout.osts().collect()
}

/// The OSTs of so many files with one stripe.
fn files(placement: &mut Placement, count: usize) -> Vec<u16> {
    (0..count).flat_map(|_| file(placement, rest(1))).collect()
}

fn counts(placement: &mut Placement, count: usize) -> Vec<usize> {
    let osts = files(placement, count);
    let all = placement.osts().to_vec();
    all.iter().map(|ost| osts.iter().filter(|it| *it == ost).count()).collect()
}

#[test]
fn a_full_ost_is_passed_over_and_the_others_take_turns() {
    let mut placement = with_rooms(&[50 * GIB, 0, 50 * GIB, 50 * GIB]);
    assert_eq!(files(&mut placement, 6), [0, 2, 3, 0, 2, 3]);
    assert_eq!(file(&mut placement, rest(2)), [0, 2]);
    assert_eq!(file(&mut placement, rest(2)), [3, 0]);
    // Fewer stripes rather than one where nothing can be written.
    assert_eq!(file(&mut placement, rest(4)), [2, 3, 0]);
    assert_eq!(file(&mut placement, rest(ALL_OSTS)), [2, 3, 0]);
    let composite = LayoutHint { components: vec![until(MIB, 1), rest(3)] };
    let layout = placement.layout(Fid::ROOT, 1, &composite).unwrap().unwrap();
    assert_eq!(layout.components[0].osts, [2]);
    assert_eq!(layout.components[1].osts, [3, 0, 2]);
}

#[test]
fn with_about_as_much_room_or_nothing_said_they_take_turns() {
    let turns = [0, 1, 2, 0, 1, 2];
    assert_eq!(files(&mut over(3), 6), turns);
    assert_eq!(files(&mut with_rooms(&[50 * GIB, 42 * GIB, 45 * GIB]), 6), turns, "16 percent");
    let mut unsaid = over(3);
    note(&mut unsaid, 0, 90 * GIB);
    note(&mut unsaid, 1, GIB);
    assert_eq!(files(&mut unsaid, 6), turns, "one has said nothing");
    note(&mut unsaid, 1, 0);
    assert_eq!(files(&mut unsaid, 4), [0, 2, 0, 2], "who is full is");
}

#[test]
fn beyond_the_threshold_they_get_files_in_proportion_to_their_room() {
    let mut placement = with_rooms(&[80 * GIB, 40 * GIB, 20 * GIB, 0]);
    assert_eq!(counts(&mut placement, 700), [400, 200, 100, 0]);
    // Two stripes are on two OSTs.
    for _ in 0..100 {
        let osts = file(&mut placement, rest(2));
        assert!(osts.len() == 2 && osts[0] != osts[1] && !osts.contains(&3), "{osts:?}");
    }
    placement.set_threshold_percent(100);
    assert_eq!(counts(&mut placement, 300), [100, 100, 100, 0]);
    placement.set_threshold_percent(17);
    assert!(counts(&mut placement, 70)[0] > 35);
}

#[test]
fn an_ost_that_was_full_is_used_again_when_it_has_clearly_more_room() {
    // 0.1 % of its device are 102.4 MiB.
    let mut placement = with_rooms(&[50 * GIB, 103 * MIB]);
    placement.set_threshold_percent(100);
    assert_eq!(counts(&mut placement, 10), [5, 5]);
    for (bytes, expected) in [
        (102 * MIB, [10, 0]),
        (103 * MIB, [10, 0]),
        (205 * MIB, [10, 0]),
        (207 * MIB, [5, 5]),
        (103 * MIB, [5, 5]),
    ] {
        note(&mut placement, 1, bytes);
        assert_eq!(counts(&mut placement, 10), expected, "{bytes}");
    }
    // The same of inodes.
    for (inodes, expected) in [(31, [10, 0]), (64, [10, 0]), (65, [5, 5])] {
        placement.note_space(1, Statfs { inodes_free: inodes, ..space(1, 50 * GIB) });
        assert_eq!(counts(&mut placement, 10), expected, "{inodes}");
    }
    // Some file systems count none.
    placement.note_space(1, Statfs { inodes_total: 0, inodes_free: 0, ..space(1, 50 * GIB) });
    assert_eq!(counts(&mut placement, 10), [5, 5]);
    // A small device: 1 MiB.
    let small = |bytes| Statfs { bytes_total: 64 * MIB, ..space(1, bytes) };
    placement.note_space(1, small(MIB));
    assert_eq!(counts(&mut placement, 10), [5, 5]);
    placement.note_space(1, small(MIB - 1));
    assert_eq!(counts(&mut placement, 10), [10, 0]);
}

#[test]
fn with_all_full_they_are_dealt_as_if_they_were_not() {
    let mut placement = with_rooms(&[0, MIB / 2, 0]);
    assert_eq!(files(&mut placement, 4), [0, 1, 2, 0]);
    assert_eq!(file(&mut placement, rest(ALL_OSTS)), [1, 2, 0]);
    assert!(placement.check_not_drained().is_ok());
}

#[test]
fn a_pool_passes_over_its_full_ones_and_leaves_no_pool_for_that() {
    let mut placement = with_pools(4, &[("flash", &[1, 2, 3])]);
    for (ost, bytes) in [(0, 50 * GIB), (1, 0), (2, 50 * GIB), (3, 50 * GIB)] {
        note(&mut placement, ost, bytes);
    }
    let of_pool = |placement: &mut Placement, count| file(placement, in_pool("flash", count));
    assert_eq!(of_pool(&mut placement, 1), [2]);
    assert_eq!(of_pool(&mut placement, 1), [3]);
    assert_eq!(of_pool(&mut placement, ALL_OSTS), [2, 3]);
    note(&mut placement, 3, 10 * GIB);
    let osts: Vec<u16> = (0..60).flat_map(|_| of_pool(&mut placement, 1)).collect();
    assert_eq!(osts.iter().filter(|ost| **ost == 3).count(), 10, "in proportion: {osts:?}");
    // All of the pool are full: it was asked for by its name.
    note(&mut placement, 2, 0);
    note(&mut placement, 3, 0);
    let osts = of_pool(&mut placement, ALL_OSTS);
    assert_eq!(osts.iter().copied().collect::<BTreeSet<u16>>(), BTreeSet::from([1, 2, 3]));
    assert_eq!(files(&mut placement, 2), [0, 0]);
    // A pool that comes later knows of it, too.
    let pools = [("new", vec![0, 1])].map(|(name, osts)| Pool { name: name.parse().unwrap(), osts });
    placement.configure_pools(pools);
    assert_eq!(file(&mut placement, in_pool("new", 2)), [0]);
}

#[test]
fn who_is_named_is_taken_full_or_not() {
    let mut placement = with_rooms(&[50 * GIB, 0, 50 * GIB, 0, 5 * GIB]);
    let first = |first_ost, count| ComponentHint { first_ost: Some(first_ost), ..rest(count) };
    assert_eq!(file(&mut placement, first(1, 1)), [1]);
    // Those behind it in order, without those that are full.
    assert_eq!(file(&mut placement, first(1, 3)), [1, 2, 4]);
    assert_eq!(file(&mut placement, first(3, ALL_OSTS)), [3, 4, 0, 2]);
    let named = LayoutHint::plain(on(&[3, 1]));
    let layout = placement.layout(Fid::ROOT, 1, &named).unwrap().unwrap();
    assert_eq!(layout.osts().collect::<Vec<u16>>(), [3, 1]);
    assert!(!placement.settle(true), "nothing was dealt out");
}

/// `sheen up` has all OSTs on one device, and each measures it at a moment of its own, while it fills.
#[test]
fn osts_of_one_device_take_turns_whatever_each_has_said() {
    let mut placement = over(3);
    let shared = |bytes| Statfs { device: 1, ..space(0, bytes) };
    for (ost, bytes) in [(0, 900 * MIB), (1, 500 * MIB), (2, 300 * MIB)] {
        placement.note_space(ost, shared(bytes));
    }
    assert_eq!(files(&mut placement, 6), [0, 1, 2, 0, 1, 2]);
    // Between the marks: full together, and together not.
    placement.note_space(0, shared(102 * MIB));
    placement.note_space(1, shared(150 * MIB));
    assert_eq!(files(&mut placement, 3), [0, 1, 2]);
    placement.configure(vec![0, 1, 2, 3]);
    note(&mut placement, 3, 100 * MIB + GIB);
    assert_eq!(files(&mut placement, 2), [3, 3]);
    placement.note_space(2, shared(GIB));
    assert_eq!(counts(&mut placement, 8), [2, 2, 2, 2]);
}

/// Each has what its own quota leaves, and `statvfs` tells of that.
#[test]
fn osts_with_quotas_on_one_device_have_rooms_of_their_own() {
    for order in [[0, 1], [1, 0]] {
        let mut placement = over(2);
        for ost in order {
            let bytes_total = [10 * GIB, 100 * GIB][usize::from(ost)];
            let bytes_available = [0, 50 * GIB][usize::from(ost)];
            placement.note_space(ost, Statfs { bytes_total, device: 1, ..space(ost, bytes_available) });
        }
        assert_eq!(files(&mut placement, 3), [1; 3], "{order:?}");
    }
}

/// They are away from one question to the next, and until they answer.
#[test]
fn who_does_not_answer_gets_nothing_while_others_do() {
    let at = |seconds: u64| Time(seconds * 1_000_000_000);
    let mut placement = with_rooms(&[80 * GIB, 20 * GIB, 0]);
    assert!(placement.must_ask(at(0)));
    placement.note_heard(1);
    note(&mut placement, 2, 0);
    placement.note_heard(2);
    assert_eq!(counts(&mut placement, 10), [8, 2, 0], "it was asked just now");
    assert!(placement.must_ask(at(5)));
    assert_eq!(counts(&mut placement, 10), [0, 10, 0]);
    placement.note_heard(0);
    assert_eq!(counts(&mut placement, 10), [8, 2, 0]);
    // The others have answered in vain: nobody has room where somebody listens.
    placement.note_heard(1);
    note(&mut placement, 1, 0);
    placement.note_heard(2);
    assert!(placement.must_ask(at(10)));
    assert!(placement.must_ask(at(15)), "nobody answers");
    assert_eq!(counts(&mut placement, 10), [10, 0, 0], "all are away, and two of them full");
    placement.note_heard(1);
    assert_eq!(counts(&mut placement, 10), [0, 10, 0], "it says itself that it is full");
}

/// It waits, and is dealt out to again.
#[test]
fn a_share_that_is_not_kept_is_not_spent() {
    let mut placement = with_rooms(&[80 * GIB, 20 * GIB]);
    let mut osts = Vec::new();
    for _ in 0..10 {
        for _ in 0..3 {
            file_unkept(&mut placement, rest(1));
            placement.settle(false);
        }
        osts.extend(file(&mut placement, rest(1)));
    }
    assert_eq!(osts.iter().filter(|ost| **ost == 1).count(), 2, "{osts:?}");
}

#[test]
fn largest_and_smallest_rooms_do_not_overflow() {
    let mut placement = over(3);
    let huge = Statfs { bytes_total: u64::MAX, ..space(0, u64::MAX) };
    placement.note_space(0, huge);
    placement.note_space(1, Statfs { device: 1, ..huge });
    placement.note_space(2, Statfs { bytes_total: u64::MAX, bytes_available: 0, device: 2, ..huge });
    assert_eq!(files(&mut placement, 4), [0, 1, 0, 1]);
    placement.note_space(2, Statfs { bytes_total: 0, bytes_available: 2 * MIB, device: 2, ..huge });
    assert_eq!(counts(&mut placement, 20), [10, 10, 0], "not clearly more than 1 MiB");
}
