use super::*;
use base::{Fid, Rng};
use store::MemoryMeta;

fn object_id() -> ObjectId {
    ObjectId { fid: Fid::ROOT, component: 1, stripe: 0 }
}

/// What one change does to a plain array.
fn apply_plainly(bytes: &mut Vec<u8>, extent: Extent, op: Option<ExtentOp>, fill: u8) {
    let (start, end) = (extent.start as usize, extent.end as usize);
    let grow = |bytes: &mut Vec<u8>| bytes.resize(bytes.len().max(end), 0);
    match op {
        None => {
            grow(bytes);
            bytes[start..end].fill(fill);
        }
        Some(ExtentOp::Truncate) => bytes.resize(start, 0),
        Some(ExtentOp::Allocate { keep_size }) if !keep_size => grow(bytes),
        Some(ExtentOp::Allocate { .. }) => {}
        Some(op) => {
            let there = start.min(bytes.len())..end.min(bytes.len());
            bytes[there].fill(0);
            if op == (ExtentOp::Zero { keep_size: false }) {
                grow(bytes);
            }
        }
    }
}

#[test]
fn an_object_is_what_an_array_would_be() {
    let mut rng = Rng::new(11);
    for _ in 0..40 {
        let (store, mut plain) = (MemoryMeta::new(), Vec::new());
        for step in 1..60 {
            let start = rng.below(100_000);
            let byte_count_max = if rng.one_in(2) { 200 } else { 70_000 };
            let extent = Extent::at(start, 1 + rng.below(byte_count_max));
            let keep_size = rng.one_in(2);
            let op = match rng.below(8) {
                0 => Some(ExtentOp::Truncate),
                1 => Some(ExtentOp::Punch),
                2 => Some(ExtentOp::Zero { keep_size }),
                3 => Some(ExtentOp::Allocate { keep_size }),
                _ => None,
            };
            let mut object = Object::open(&store, object_id()).expect("readable");
            let fill = 1 + rng.below(255) as u8;
            match op {
                Some(op) => object.change(extent, op).expect("changed"),
                None => {
                    object.write(extent.start, &vec![fill; extent.byte_count() as usize]).expect("written")
                }
            }
            apply_plainly(&mut plain, extent, op, fill);
            let mut batch = Batch::new();
            object.put(WallTime(step), Transno(step as u64), &mut batch);
            store.apply(Transno(step as u64), &batch).expect("applied");

            let found = Object::open(&store, object_id()).expect("readable");
            assert_eq!(found.head().size_bytes, plain.len() as u64);
            assert_eq!(found.read(Extent::new(0, 1 << 19)).expect("read"), plain);
            let (from, to) = (rng.below(120_000), rng.below(120_000));
            let part = found.read(Extent::new(from.min(to), from.max(to))).expect("read");
            let there =
                plain.get((from.min(to) as usize).min(plain.len())..(from.max(to) as usize).min(plain.len()));
            assert_eq!(Some(&part[..]), there);
            let mut stored_bytes = 0;
            store
                .scan(rows::DATA, &[], &[0xff; 40], usize::MAX, &mut |_, value| {
                    assert!(!value.is_empty() && value.len() as u64 <= CHUNK_BYTES);
                    stored_bytes += value.len() as u64;
                    true
                })
                .expect("scanned");
            assert_eq!(found.head().stored_bytes, stored_bytes);
            let data = found.seek(from, false).expect("sought");
            let first =
                plain.iter().skip(from as usize).position(|byte| *byte != 0).map(|at| at as u64 + from);
            assert!(
                data.is_none_or(|data| data >= from)
                    && first.is_none_or(|first| data.is_some_and(|data| data <= first))
            );
            let hole = found.seek(from, true).expect("sought");
            assert_eq!(hole.is_some(), from < plain.len() as u64);
            let is_zero = |at: u64| plain.get(at as usize).is_none_or(|byte| *byte == 0);
            assert!(hole.is_none_or(|hole| hole >= from && hole <= plain.len() as u64 && is_zero(hole)));
        }
    }
}

#[test]
fn a_file_that_goes_takes_its_rows_along() {
    let store = MemoryMeta::new();
    let component = base::layout::Component {
        id: 1,
        end_bytes: 128 << 10,
        stripe_size_bytes: 64 << 10,
        osts: vec![Layout::ON_MDT],
        pool: None,
    };
    let layout = Layout { fid: Fid::ROOT, components: vec![component] };
    let mut object = Object::open(&store, object_id()).expect("readable");
    object.write(40_000, &[7; 60_000]).expect("written");
    let mut batch = Batch::new();
    object.put(WallTime(1), Transno(1), &mut batch);
    store.apply(Transno(1), &batch).expect("applied");
    let mut tx = Tx::new(&store);
    destroy(&mut tx, &layout).expect("destroyed");
    assert!(tx.needs().expect("readable").is_empty(), "nobody has to be asked for it");
    store.apply(Transno(2), &tx.into_batch()).expect("applied");
    for table in [rows::DATA, rows::DATA_HEADS] {
        let mut row_count = 0;
        store
            .scan(table, &[], &[0xff; 40], usize::MAX, &mut |_, _| {
                row_count += 1;
                true
            })
            .expect("scanned");
        assert_eq!(row_count, 0);
    }
}
