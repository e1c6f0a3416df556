#![allow(clippy::unwrap_used)]

use super::*;

fn batch(rows: &[(&[u8], Option<&[u8]>)]) -> Batch {
    let mut batch = Batch::new();
    for (key, value) in rows {
        batch.push(store::Change { table: 1, key, value: *value });
    }
    batch
}

fn keys(overlay: &Overlay, limit: usize) -> Vec<String> {
    let rows = overlay.range(&[1], &[2], limit);
    rows.iter()
        .map(|(key, row)| {
            let value = row.as_deref().map_or("-", |v| std::str::from_utf8(v).unwrap());
            format!("{}={value}", std::str::from_utf8(&key[1..]).unwrap())
        })
        .collect()
}

#[test]
fn the_later_generation_wins() {
    let mut overlay = Overlay::default();
    overlay.apply(&batch(&[(b"a", Some(b"1")), (b"b", Some(b"1")), (b"d", None)]));
    overlay.freeze();
    overlay.apply(&batch(&[(b"b", Some(b"2")), (b"c", Some(b"2"))]));
    assert_eq!(keys(&overlay, 9), ["a=1", "b=2", "c=2", "d=-"]);
    assert_eq!(keys(&overlay, 2), ["a=1", "b=2"]);
    assert_eq!(overlay.get(b"\x01d"), Some(None));
    assert_eq!(overlay.get(b"\x01x"), None);
    overlay.drop_frozen();
    assert_eq!(keys(&overlay, 9), ["b=2", "c=2"]);
}

#[test]
fn bytes_are_counted_and_return_to_zero() {
    let mut overlay = Overlay::default();
    overlay.apply(&batch(&[(b"a", Some(&[0; 100])), (b"b", Some(b"1"))]));
    let first = overlay.byte_count();
    overlay.apply(&batch(&[(b"a", None)]));
    assert_eq!(overlay.byte_count(), first - 100);
    overlay.freeze();
    assert_eq!(overlay.byte_count(), first - 100);
    overlay.drop_frozen();
    assert_eq!(overlay.byte_count(), 0);
}

#[test]
fn full_keys_have_a_limit() {
    assert_eq!(FullKey::new(7, b"ab").unwrap().bytes(), b"\x07ab");
    assert!(FullKey::new(7, &[0; KEY_BYTES_MAX]).is_some());
    assert!(FullKey::new(7, &[0; KEY_BYTES_MAX + 1]).is_none());
}
