//! Rules of [`MetaStore`], checked against a map.

use crate::{BATCH_BYTES_MAX, Batch, KEY_BYTES_MAX, MetaStore, StoreError, Table, VALUE_BYTES_MAX};
use base::{Rng, Transno};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How the suite opens, syncs and crashes an engine.
pub trait MetaHarness {
    /// An empty store on a new device.
    fn create(&mut self) -> Arc<dyn MetaStore>;
    /// Returns when everything applied is durable.
    fn settle(&mut self, store: &Arc<dyn MetaStore>);
    /// Crashes the store (no close) and opens what is left. What a crash may lose is what is above `durable()`.
    fn crash(&mut self, store: Arc<dyn MetaStore>) -> Arc<dyn MetaStore>;
    /// Moves rows into the base, if the engine has one, so that reads come from there.
    fn checkpoint(&mut self, _store: &Arc<dyn MetaStore>) {}
}

type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// All rules.
pub fn run(harness: &mut dyn MetaHarness) {
    empty_store_has_nothing(harness);
    batches_apply_whole_and_in_order(harness);
    limits_are_checked_and_change_nothing(harness);
    scan_keeps_order_bounds_and_limit(harness);
    visit_may_call_the_store(harness);
    a_crash_leaves_a_prefix_with_all_that_was_durable(harness);
    random_operations_match_a_map(harness, 1);
    random_operations_match_a_map(harness, 2);
}

fn empty_store_has_nothing(harness: &mut dyn MetaHarness) {
    let store = harness.create();
    assert_eq!(store.applied(), Transno::ZERO);
    assert_eq!(store.durable(), Transno::ZERO);
    assert_eq!(store.get(0, b"k"), Ok(None));
    assert_eq!(rows_of(&*store, 0), []);
    assert!(!store.pressure().poisoned);
    assert!(store.space().total_bytes > 0);
    store.close();
}

fn batches_apply_whole_and_in_order(harness: &mut dyn MetaHarness) {
    let store = harness.create();
    let mut batch = Batch::new();
    batch.put(1, b"a", b"1");
    batch.put(1, b"b", b"");
    batch.put(2, b"a", b"other table");
    batch.put(1, b"twice", b"first");
    batch.put(1, b"twice", b"second");
    store.apply(Transno(5), &batch).unwrap();
    assert_eq!(store.applied(), Transno(5));
    assert_eq!(store.get(1, b"a").unwrap().unwrap(), b"1");
    assert_eq!(store.get(1, b"b").unwrap().unwrap(), b"");
    assert_eq!(store.get(2, b"a").unwrap().unwrap(), b"other table");
    assert_eq!(store.get(1, b"twice").unwrap().unwrap(), b"second");
    batch.clear();
    batch.delete(1, b"a");
    batch.delete(1, b"never there");
    store.apply(Transno(900), &batch).unwrap();
    store.apply(Transno(901), &Batch::new()).unwrap();
    assert_eq!(store.get(1, b"a"), Ok(None));
    assert_eq!(store.applied(), Transno(901));
    harness.settle(&store);
    assert_eq!(store.durable(), Transno(901), "an empty batch becomes durable too");
    store.close();
}

fn limits_are_checked_and_change_nothing(harness: &mut dyn MetaHarness) {
    let store = harness.create();
    let mut batch = Batch::new();
    batch.put(1, b"good", b"1");
    batch.put(1, &[1; KEY_BYTES_MAX + 1], b"");
    assert!(matches!(store.apply(Transno(1), &batch), Err(StoreError::KeyTooLong { .. })));
    batch.clear();
    while batch.encoded().len() <= BATCH_BYTES_MAX {
        batch.put(1, &batch.encoded().len().to_be_bytes(), &[3; 64 << 10]);
    }
    assert!(matches!(store.apply(Transno(1), &batch), Err(StoreError::BatchTooLong { .. })));
    assert_eq!(store.applied(), Transno::ZERO);
    assert_eq!(store.get(1, b"good"), Ok(None));
    batch.clear();
    batch.put(1, &[1; KEY_BYTES_MAX], &[2; VALUE_BYTES_MAX]);
    store.apply(Transno(1), &batch).unwrap();
    harness.checkpoint(&store);
    assert_eq!(store.get(1, &[1; KEY_BYTES_MAX]).unwrap().unwrap(), [2; VALUE_BYTES_MAX]);
    assert_eq!(store.get(1, &[1; KEY_BYTES_MAX + 1]), Ok(None), "a key too long to exist does not");
    store.close();
}

fn scan_keeps_order_bounds_and_limit(harness: &mut dyn MetaHarness) {
    let store = harness.create();
    let mut t = Transno::ZERO;
    for n in [5_u16, 3, 9, 1, 7, 300, 600] {
        let mut batch = Batch::new();
        batch.put(4, &n.to_be_bytes(), &[n as u8]);
        batch.put(5, &n.to_be_bytes(), b"neighbour");
        t = t.next();
        store.apply(t, &batch).unwrap();
        if n == 9 {
            harness.checkpoint(&store);
        }
    }
    let mut batch = Batch::new();
    batch.delete(4, &3_u16.to_be_bytes());
    store.apply(t.next(), &batch).unwrap();
    let scan = |from: u16, to: u16, limit| {
        let mut found = Vec::new();
        let visit = &mut |key: &[u8], value: &[u8]| {
            found.push(u16::from_be_bytes(key.try_into().unwrap()));
            assert_eq!(value, [key[1]]);
            true
        };
        store.scan(4, &from.to_be_bytes(), &to.to_be_bytes(), limit, visit).unwrap();
        found
    };
    assert_eq!(scan(0, 1000, 99), [1, 5, 7, 9, 300, 600]);
    assert_eq!(scan(5, 300, 99), [5, 7, 9]);
    assert_eq!(scan(2, 1000, 3), [5, 7, 9]);
    assert_eq!(scan(300, 300, 9), []);
    assert_eq!(scan(600, 5, 9), []);
    assert_eq!(scan(0, 1000, 0), []);
    let mut visited = 0;
    store
        .scan(4, &[], &[255, 255], 99, &mut |_, _| {
            visited += 1;
            visited < 2
        })
        .unwrap();
    assert_eq!(visited, 2, "visit ends the scan");
    store.close();
}

fn visit_may_call_the_store(harness: &mut dyn MetaHarness) {
    let store = harness.create();
    let mut batch = Batch::new();
    batch.put(1, b"a", b"b");
    batch.put(1, b"b", b"c");
    store.apply(Transno(1), &batch).unwrap();
    let mut t = Transno(1);
    store
        .scan(1, b"", b"z", 9, &mut |key, value| {
            assert_eq!(store.get(1, key).unwrap().unwrap(), value);
            t = t.next();
            let mut batch = Batch::new();
            batch.delete(1, key);
            store.apply(t, &batch).unwrap();
            true
        })
        .unwrap();
    assert_eq!(rows_of(&*store, 1), []);
    store.close();
}

fn a_crash_leaves_a_prefix_with_all_that_was_durable(harness: &mut dyn MetaHarness) {
    let mut store = harness.create();
    let mut rng = Rng::new(11);
    let mut history: Vec<(Transno, Batch)> = Vec::new();
    let mut t = Transno::ZERO;
    for round in 0..8 {
        for _ in 0..rng.below(60) {
            t = Transno(t.0 + 1 + rng.below(3));
            let batch = random_batch(&mut rng);
            store.apply(t, &batch).unwrap();
            history.push((t, batch));
        }
        match round % 4 {
            1 => harness.settle(&store),
            2 => harness.checkpoint(&store),
            _ => store.kick(),
        }
        let durable = store.durable();
        store = harness.crash(store);
        let left = store.applied();
        assert!(left >= durable, "durable {durable} was lost, {left} is left");
        assert_eq!(store.durable(), left, "what an open finds is durable");
        history.retain(|(t, _)| *t <= left);
        assert_eq!(history.last().map_or(Transno::ZERO, |(t, _)| *t), left, "{left} was never applied");
        check_rows(&*store, &rows_after(&history));
        t = left;
    }
    store.close();
}

fn random_operations_match_a_map(harness: &mut dyn MetaHarness, seed: u64) {
    let store = harness.create();
    let mut rng = Rng::new(seed);
    let mut rows = Rows::new();
    let mut t = Transno::ZERO;
    for step in 0..1500 {
        let batch = random_batch(&mut rng);
        t = t.next();
        store.apply(t, &batch).unwrap();
        write_rows(&mut rows, &batch);
        let key = random_key(&mut rng);
        assert_eq!(store.get(1, &key).unwrap().as_ref(), rows.get(&(1, key)), "step {step}");
        if rng.one_in(200) {
            harness.checkpoint(&store);
        }
        if rng.one_in(100) {
            check_rows(&*store, &rows);
            check_random_scan(&*store, &rows, &mut rng);
        }
    }
    check_rows(&*store, &rows);
    store.close();
}

fn check_random_scan(store: &dyn MetaStore, rows: &Rows, rng: &mut Rng) {
    let (from, to, limit) = (random_key(rng), random_key(rng), rng.below(9) as usize);
    let mut found = Vec::new();
    store
        .scan(1, &from, &to, limit, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            true
        })
        .unwrap();
    let inside = rows.iter().filter(|((table, key), _)| *table == 1 && *key >= from && *key < to);
    let expected: Vec<_> = inside.take(limit).map(|((_, key), value)| (key.clone(), value.clone())).collect();
    assert_eq!(found, expected);
}

fn random_key(rng: &mut Rng) -> Vec<u8> {
    let n = rng.below(250) as u8;
    vec![b'k'; 1 + usize::from(n % 4)].into_iter().chain([n]).collect()
}

fn random_batch(rng: &mut Rng) -> Batch {
    let mut batch = Batch::new();
    for _ in 0..rng.below(5) {
        let table = 1 + rng.below(3) as Table;
        let key = random_key(rng);
        if rng.one_in(3) {
            batch.delete(table, &key);
        } else {
            let value = vec![rng.next_u64() as u8; rng.below(300) as usize];
            batch.put(table, &key, &value);
        }
    }
    batch
}

fn write_rows(rows: &mut Rows, batch: &Batch) {
    for change in batch.changes() {
        let key = (change.table, change.key.to_vec());
        match change.value {
            Some(value) => rows.insert(key, value.to_vec()),
            None => rows.remove(&key),
        };
    }
}

fn rows_after(history: &[(Transno, Batch)]) -> Rows {
    let mut rows = Rows::new();
    for (_, batch) in history {
        write_rows(&mut rows, batch);
    }
    rows
}

fn rows_of(store: &dyn MetaStore, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    store
        .scan(table, &[], &[255; KEY_BYTES_MAX], usize::MAX, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            true
        })
        .unwrap();
    found
}

fn check_rows(store: &dyn MetaStore, rows: &Rows) {
    for table in 0..5 {
        let expected: Vec<_> = rows
            .iter()
            .filter(|((t, _), _)| *t == table)
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect();
        assert_eq!(rows_of(store, table), expected, "table {table}");
        for (key, value) in expected {
            assert_eq!(store.get(table, &key).unwrap(), Some(value));
        }
    }
}
