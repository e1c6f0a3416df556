#![allow(clippy::unwrap_used)]

use super::*;

fn row(byte: u8) -> Row {
    Some(vec![byte; 100].into())
}

#[test]
fn a_row_read_before_a_checkpoint_is_not_let_in_after_it() {
    let cache = RowCache::new(1 << 20, None);
    let generation = cache.generation();
    cache.advance_generation();
    cache.update(b"k", row(2));
    cache.insert(b"k", row(1), generation);
    assert_eq!(cache.get(b"k"), Some(row(2)));
    cache.insert(b"other", row(1), generation);
    assert_eq!(cache.get(b"other"), None);
    cache.insert(b"absent", None, cache.generation());
    assert_eq!(cache.get(b"absent"), Some(None));
}

#[test]
fn the_budget_holds_and_used_rows_stay() {
    let cache = RowCache::new(200_000, None);
    for n in 0..10_000_u32 {
        cache.insert(&n.to_be_bytes(), row(n as u8), 0);
        if n > 0 {
            assert!(cache.get(&0_u32.to_be_bytes()).is_some(), "the row in use went at {n}");
        }
        assert!(cache.byte_count() <= 200_000);
    }
    assert_eq!(cache.get(&1_u32.to_be_bytes()), None);
    assert_eq!(cache.get(&9_999_u32.to_be_bytes()), Some(row(9_999_u32 as u8)));
    for n in 0..10_000_u32 {
        cache.update(&n.to_be_bytes(), None);
    }
    assert!(cache.byte_count() <= 200_000);
}

#[test]
fn a_smaller_budget_holds_at_once() {
    let cache = RowCache::new(1 << 20, None);
    for n in 0..1000_u32 {
        cache.insert(&n.to_be_bytes(), row(1), 0);
    }
    assert_eq!(cache.usage().row_count, 1000);
    cache.set_bytes_max(100_000);
    let usage = cache.usage();
    assert!(usage.byte_count <= 100_000 && usage.row_count > 100, "{usage:?}");
    cache.insert(b"new", row(1), 0);
    assert!(cache.byte_count() <= 100_000);
    cache.set_bytes_max(1 << 20);
    assert!(cache.get(b"new").is_some());
    assert!(cache.get(b"never").is_none());
    let usage = cache.usage();
    assert_eq!((usage.hit_count, usage.miss_count), (1, 1));
}

const DATA: Table = 11;
const BYTES_MAX: usize = 1 << 20;

fn key(table: Table, n: u32) -> Vec<u8> {
    [&[table][..], &n.to_be_bytes()].concat()
}

#[test]
fn other_rows_have_what_file_data_never_came_to_use() {
    let cache = RowCache::new(BYTES_MAX, Some(DATA));
    let fill = || (0..20_000).for_each(|n| cache.insert(&key(2, n), row(1), 0));
    fill();
    assert!(cache.byte_count() > BYTES_MAX * 9 / 10, "{}", cache.byte_count());
    cache.insert(&key(DATA, 1), Some(vec![7; 16 << 10].into()), 0);
    assert!(cache.byte_count() <= BYTES_MAX, "{}", cache.byte_count());
    fill();
    assert!(cache.byte_count() > BYTES_MAX * 9 / 10, "{}", cache.byte_count());
}

#[test]
fn file_data_take_a_quarter_and_no_other_row_goes_for_them() {
    let cache = RowCache::new(BYTES_MAX, Some(DATA));
    for n in 0..500 {
        cache.insert(&key(2, n), row(1), 0);
    }
    let without_data = cache.byte_count();
    let data: Row = Some(vec![7; 16 << 10].into());
    for n in 0..1000 {
        // Both ways in.
        if n % 2 == 0 {
            cache.insert(&key(DATA, n), data.clone(), 0);
        } else {
            cache.update(&key(DATA, n), data.clone());
        }
        assert!(cache.byte_count() <= without_data + BYTES_MAX / 4);
    }
    assert!((0..500).all(|n| cache.get(&key(2, n)).is_some()), "rows of inodes stay");
    assert_eq!(cache.get(&key(DATA, 999)), Some(data.clone()), "what was read last is here");
    for n in 500..20_000 {
        cache.insert(&key(2, n), row(1), 0);
    }
    assert!(cache.byte_count() <= BYTES_MAX);
    assert_eq!(cache.get(&key(DATA, 999)), Some(data), "nor do data go for other rows");
    cache.set_bytes_max(0);
    assert_eq!(cache.usage().row_count, 0);
}
