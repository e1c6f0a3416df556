use super::{PAGE_BYTES, Pattern};

const MIB: u64 = 1 << 20;

#[test]
fn sequential_is_everything_and_strided_a_quarter_however_many_touch_it() {
    for processes in [1, 16] {
        assert_eq!(Pattern::Seq.needed_bytes(8 * MIB / PAGE_BYTES, processes), 8 * MIB);
        assert_eq!(Pattern::Stride.needed_bytes(8 * MIB / PAGE_BYTES, processes), 2 * MIB);
    }
    let pages: Vec<u64> = Pattern::Stride.pages(2 * MIB / PAGE_BYTES, 3).collect();
    assert_eq!((pages[0], pages[63], pages[64], pages.len()), (0, 63, 256, 128));
}

#[test]
fn at_random_each_process_has_an_order_of_its_own_and_keeps_it() {
    let pages = |process| Pattern::Random.pages(16_384, process).collect::<Vec<u64>>();
    assert_eq!(pages(1), pages(1));
    assert_ne!(pages(1), pages(2));
    assert_eq!(pages(1).len(), 64);
    assert!(pages(1).iter().all(|page| *page < 16_384));
    assert!(Pattern::Random.needed_bytes(16_384, 16) <= 16 * 64 * PAGE_BYTES);
    assert_eq!(Pattern::Random.pages(3, 0).count(), 1, "a small file has a page to touch too");
}
