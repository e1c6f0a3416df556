#![allow(clippy::unwrap_used)]

use super::*;
use base::Rng;

fn sample() -> Batch {
    let mut batch = Batch::new();
    batch.put(1, b"key", b"value");
    batch.put(2, b"", b"");
    batch.delete(1, b"gone");
    batch
}

#[test]
fn changes_come_back_in_order() {
    let batch = sample();
    let changes: Vec<_> = batch.changes().collect();
    assert_eq!(
        changes,
        [
            Change { table: 1, key: b"key", value: Some(b"value") },
            Change { table: 2, key: b"", value: Some(b"") },
            Change { table: 1, key: b"gone", value: None },
        ]
    );
    assert_eq!(Batch::decode(batch.encoded()).unwrap(), batch);
}

#[test]
fn every_cut_is_a_typed_error_or_a_shorter_batch() {
    let batch = sample();
    for end in 0..batch.encoded().len() {
        if let Ok(cut) = Batch::decode(&batch.encoded()[..end]) {
            assert!(cut.change_count() < batch.change_count());
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut rng = Rng::new(7);
    for _ in 0..20_000 {
        let mut bytes = sample().encoded().to_vec();
        for _ in 0..=rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        if let Ok(batch) = Batch::decode(&bytes) {
            assert_eq!(batch.changes().count(), batch.change_count());
        }
    }
}

#[test]
fn what_is_too_long_is_reported_and_not_kept() {
    let mut batch = Batch::new();
    batch.put(1, &[0; KEY_BYTES_MAX + 1], b"");
    assert_eq!(batch.check(), Err(StoreError::KeyTooLong { byte_count: KEY_BYTES_MAX + 1 }));
    batch.clear();
    batch.put(1, b"k", &vec![0; VALUE_BYTES_MAX + 1]);
    assert_eq!(batch.check(), Err(StoreError::ValueTooLong { byte_count: VALUE_BYTES_MAX + 1 }));
    batch.clear();
    for n in 0..17_u8 {
        batch.put(1, &[n], &[0; 64 << 10]);
    }
    assert!(matches!(batch.check(), Err(StoreError::BatchTooLong { .. })));
}
