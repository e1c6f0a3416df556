use super::*;

fn set(ranges: &[(u64, u64)]) -> PageSet {
    let mut set = PageSet::default();
    for (start, end) in ranges {
        set.insert(Extent::new(*start, *end));
    }
    set
}

fn ranges(set: &PageSet) -> Vec<(u64, u64)> {
    set.within(Extent::WHOLE).map(|part| (part.start, part.end)).collect()
}

#[test]
fn ranges_that_touch_become_one() {
    assert_eq!(ranges(&set(&[(0, 1), (2, 3), (1, 2)])), [(0, 3)]);
    assert_eq!(ranges(&set(&[(5, 9), (20, 30), (0, 4), (3, 25)])), [(0, 30)]);
    assert_eq!(ranges(&set(&[(0, 10), (2, 3)])), [(0, 10)]);
    assert_eq!(ranges(&set(&[(4, 4), (6, 5)])), []);
}

#[test]
fn a_set_is_what_was_put_in_and_not_taken_out() {
    let mut rng = base::Rng::new(1);
    let (mut found, mut model) = (PageSet::default(), [false; 64]);
    for _ in 0..5000 {
        let start = rng.below(64);
        let extent = Extent::new(start, start + rng.below(65 - start));
        let is_put_in = rng.one_in(2);
        if is_put_in {
            found.insert(extent);
        } else {
            found.remove(extent);
        }
        model[extent.start as usize..extent.end as usize].fill(is_put_in);
        let mut flat = [false; 64];
        for (start, end) in ranges(&found) {
            flat[start as usize..end as usize].fill(true);
        }
        assert_eq!(flat, model);
        let looked = Extent::new(rng.below(32), 32 + rng.below(32));
        let within: u64 = found.within(looked).map(Extent::byte_count).sum();
        let count = model[looked.start as usize..looked.end as usize].iter().filter(|is_in| **is_in).count();
        assert_eq!(within, count as u64);
        assert_eq!(
            ranges(&found.intersection(looked)),
            found.within(looked).map(|part| (part.start, part.end)).collect::<Vec<_>>()
        );
    }
}

#[test]
fn very_many_ranges_become_one_that_contains_them() {
    let mut found = PageSet::default();
    for index in 0..=RANGE_COUNT_MAX as u64 {
        found.insert(Extent::at(index * 10, 1));
    }
    assert_eq!(ranges(&found), [(0, RANGE_COUNT_MAX as u64 * 10 + 1)]);
}

#[test]
fn chunks_grow_over_what_is_dropped_soon() {
    let soon = Duration::from_millis(1);
    assert_eq!(next_chunk_bytes(CHUNK_BYTES, soon), CHUNK_BYTES * CHUNK_GROWTH);
    assert_eq!(next_chunk_bytes(1 << 40, Duration::from_millis(200)), 1 << 39);
    assert_eq!(next_chunk_bytes(CHUNK_BYTES, Duration::from_millis(200)), CHUNK_BYTES);
    assert_eq!(next_chunk_bytes(u64::MAX, soon), u64::MAX);
}

#[test]
fn pages_contain_the_bytes() {
    assert_eq!(pages_of(Extent::new(1, 4097)), Extent::new(0, 8192));
    assert_eq!(pages_of(Extent::new(4096, 8192)), Extent::new(4096, 8192));
    assert_eq!(pages_of(Extent::WHOLE), Extent::WHOLE);
}

/// A mount that gives all its locks on data back has a notification on its way for each file.
#[test]
fn who_drops_pages_of_a_file_looks_at_no_notifications_about_others() {
    const COUNT: u64 = 500;
    let mut state = crate::recovery::tests::state();
    let fid = |number: u64| base::Fid { seq: base::Fid::SEQ_NORMAL, oid: number as u32, ver: 0 };
    let extent = Extent::new(0, 4 * PAGE_BYTES);
    for number in 1..=COUNT {
        state.nodes.get_or_new(fid(number)).data.pages.filled.insert(extent);
    }
    for number in 1..=COUNT {
        let node = fid(number).inode_number();
        let mut todo = state.pages_within(node, Extent::WHOLE);
        assert_eq!(ranges(&todo), [(0, extent.end)]);
        let step = state.drop_step(node, &mut todo, CHUNK_BYTES).expect("it has pages");
        assert!(!state.has_lost_pages(node, Extent::WHOLE) && !state.has_unasked_drop(node));
        // They are still there, until the kernel is done.
        assert_eq!(ranges(&state.pages_within(node, Extent::WHOLE)), [(0, extent.end)]);
        state.check_pages();
        let known = state.traffic.drops.get(step.id).map(|drop| (drop.node, drop.extent));
        assert_eq!(known, Some((node, extent)));
    }
    let looked_at = state.traffic.drops.looked_at_count.get() as u64;
    assert!(looked_at <= 5 * COUNT, "{looked_at} for {COUNT} files");
    let first = fid(1).inode_number();
    let (id, _) = state.traffic.drops.of(first).next().expect("the kernel is not done");
    assert!(state.end_drop(id) && !state.end_drop(id));
    assert!(state.pages_within(first, Extent::WHOLE).is_empty());
    state.check_pages();
}

/// The kernel drops everything at an open while something may be there that no lock covers. That is not so of what was
/// given up for a READ: its pages are empty, and the others are dropped anew.
#[test]
fn an_open_beside_what_is_dropped_anew_keeps_the_pages() {
    let mut state = crate::recovery::tests::state();
    let fid = base::Fid { seq: base::Fid::SEQ_NORMAL, oid: 1, ver: 0 };
    let (node, extent) = (fid.inode_number(), Extent::new(0, 4 * PAGE_BYTES));
    state.nodes.get_or_new(fid).data.pages.filled.insert(extent);
    let mut todo = state.pages_within(node, Extent::WHOLE);
    let step = state.drop_step(node, &mut todo, CHUNK_BYTES).expect("it has pages");
    state.begin_page_read(PageCallId(1), node, Extent::new(0, PAGE_BYTES));
    state.give_up_drop(step.id, None);
    assert!(!state.has_unasked_drop(node));
    let again = state.drop_step(node, &mut todo, CHUNK_BYTES).expect("the others are dropped anew");
    assert_eq!(again.extent, Extent::new(PAGE_BYTES, extent.end));
    state.check_pages();
    // After an eviction all of it counts.
    state.doubt_redone_drops(node);
    assert!(state.has_unasked_drop(node));
}
