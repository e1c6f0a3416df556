//! Rules of [`ObjectStore`], checked against byte vectors.

use crate::{ObjectStore, Room, StoreError, Whence};
use base::limits::OBJECT_BYTES_MAX;
use base::{Extent, Fid, ObjectId, Rng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How the suite opens, syncs and crashes an engine.
pub trait ObjectHarness {
    /// An empty store on a new device.
    fn create(&mut self) -> Arc<dyn ObjectStore>;
    /// Returns when everything written is durable.
    fn settle(&mut self, store: &Arc<dyn ObjectStore>);
    /// Crashes the store (no close) and opens what is left.
    fn crash(&mut self, store: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>;
}

/// All rules.
pub fn run(harness: &mut dyn ObjectHarness) {
    missing_objects(harness);
    sizes_holes_and_short_reads(harness);
    what_is_allocated_is_told(harness);
    beyond_the_largest_object(harness);
    preallocation_and_zeros(harness);
    zeros_in_what_is_not_there(harness);
    what_takes_more_than_is_left_beside_the_reserve_takes_nothing(harness);
    durable_follows_written_and_survives(harness);
    listing_finds_each_object_once(harness);
    adopted_objects_keep_what_they_have(harness);
    random_operations_match_bytes(harness, 1);
    random_operations_match_bytes(harness, 2);
}

fn object(n: u32) -> ObjectId {
    ObjectId { fid: Fid { seq: 0x2_0000_0400, oid: n, ver: 0 }, component: n % 3, stripe: n % 7 }
}

fn missing_objects(harness: &mut dyn ObjectHarness) {
    let store = harness.create();
    let id = object(1);
    assert_eq!(store.read(&id, 0, 10), Err(StoreError::NoObject { id }));
    assert_eq!(store.stat(&id), Ok(None));
    assert_eq!(store.destroy(&id), Ok(false));
    assert_eq!(store.punch(&id, Extent::new(0, 10)), Ok(()));
    assert_eq!(store.seek(&id, 0, Whence::Data), Err(StoreError::NoObject { id }));
    assert_eq!(store.stat(&id), Ok(None), "none of these creates it");
    assert_eq!(store.written(), 0, "none of these is a mutation");
    store.write(&id, 3, b"x").unwrap();
    assert_eq!(store.destroy(&id), Ok(true));
    assert_eq!(store.read(&id, 0, 10), Err(StoreError::NoObject { id }));
    store.truncate(&id, 5).unwrap();
    assert_eq!(store.read(&id, 0, 10).unwrap(), [0; 5][..], "nothing of the old one is left");
    store.close();
}

fn sizes_holes_and_short_reads(harness: &mut dyn ObjectHarness) {
    let store = harness.create();
    let id = object(2);
    store.write(&id, 10_000, b"hello").unwrap();
    assert_eq!(store.stat(&id).unwrap().unwrap().size_bytes, 10_005);
    assert_eq!(store.read(&id, 9_998, 100).unwrap(), &b"\0\0hello"[..]);
    assert_eq!(store.read(&id, 10_005, 1).unwrap(), &b""[..]);
    assert_eq!(store.read(&id, u64::MAX - 1, 100).unwrap(), &b""[..]);
    store.write(&id, 0, &[7; 5000]).unwrap();
    store.truncate(&id, 3000).unwrap();
    store.truncate(&id, 6000).unwrap();
    let bytes = store.read(&id, 0, 10_000).unwrap();
    assert_eq!(bytes[..3000], [7; 3000]);
    assert_eq!(bytes[3000..], [0; 3000], "a cut tail reads as zeros after growing");
    store.punch(&id, Extent::new(100, Extent::EOF)).unwrap();
    let stat = store.stat(&id).unwrap().unwrap();
    assert_eq!(stat.size_bytes, 6000, "punching keeps the size");
    assert_eq!(store.read(&id, 50, 100).unwrap(), [[7; 50], [0; 50]].concat());
    store.write(&id, 0, b"").unwrap();
    store.close();
}

fn what_is_allocated_is_told(harness: &mut dyn ObjectHarness) {
    let store = harness.create();
    let id = object(9);
    let is_allocated = |start: u64, end: u64| store.is_allocated(&id, Extent::new(start, end));
    assert_eq!(is_allocated(0, 10), Err(StoreError::NoObject { id }));
    // Two pieces with a hole between them, in two groups of checksums of the disk's engine. Of what is only reserved not every file
    // system below tells.
    let far = 5 << 20;
    store.write(&id, 0, &[1; 10_000]).unwrap();
    store.write(&id, far, &[1; 8192]).unwrap();
    for start in [0, 5000, far, far + 4096] {
        assert_eq!(is_allocated(start, start + 3000), Ok(true), "{start}");
    }
    assert_eq!(is_allocated(100, 9_999), Ok(true), "several blocks");
    for (start, end) in
        [(0, 20_000), (1 << 20, (1 << 20) + 1), (far - 1, far + 10), (0, far + 10), (8 << 20, (8 << 20) + 1)]
    {
        assert_eq!(is_allocated(start, end), Ok(false), "{start} to {end}");
    }
    store.punch(&id, Extent::new(0, 4096)).unwrap();
    assert_eq!((is_allocated(0, 10), is_allocated(4096, 5000)), (Ok(false), Ok(true)), "a hole was made");
    store.close();
}

fn beyond_the_largest_object(harness: &mut dyn ObjectHarness) {
    let store = harness.create();
    let id = object(3);
    for offset in [OBJECT_BYTES_MAX, i64::MAX as u64, u64::MAX - 1, u64::MAX] {
        assert!(matches!(store.write(&id, offset, b"abc"), Err(StoreError::TooBig { .. })), "write {offset}");
    }
    assert!(matches!(store.truncate(&id, u64::MAX), Err(StoreError::TooBig { .. })));
    let beyond = Extent::at(OBJECT_BYTES_MAX, 4096);
    assert!(matches!(store.allocate(&id, beyond, false, Room::All), Err(StoreError::TooBig { .. })));
    assert!(matches!(store.zero(&id, beyond, true, Room::All), Err(StoreError::TooBig { .. })));
    assert_eq!(store.stat(&id), Ok(None), "a refused call does not create the object");
    store.write(&id, 0, b"abc").unwrap();
    assert!(matches!(store.write(&id, OBJECT_BYTES_MAX - 1, b"abc"), Err(StoreError::TooBig { .. })));
    assert_eq!(store.stat(&id).unwrap().unwrap().size_bytes, 3);
    store.close();
}

fn preallocation_and_zeros(harness: &mut dyn ObjectHarness) {
    let store = harness.create();
    let id = object(4);
    store.allocate(&id, Extent::new(0, 1 << 20), true, Room::All).unwrap();
    let stat = store.stat(&id).unwrap().unwrap();
    assert_eq!(stat.size_bytes, 0);
    assert!(stat.allocated_bytes >= 1 << 20, "{stat:?}");
    store.allocate(&id, Extent::new(0, 8192), false, Room::All).unwrap();
    assert_eq!(store.stat(&id).unwrap().unwrap().size_bytes, 8192);
    store.write(&id, 0, &[1; 8192]).unwrap();
    store.allocate(&id, Extent::new(0, 4096), false, Room::All).unwrap();
    assert_eq!(store.read(&id, 0, 9999).unwrap(), [1; 8192][..], "allocating changes no byte");
    store.zero(&id, Extent::new(1000, 5000), false, Room::All).unwrap();
    store.zero(&id, Extent::new(8000, 9000), true, Room::All).unwrap();
    let bytes = store.read(&id, 0, 9999).unwrap();
    assert_eq!(bytes.len(), 8192);
    assert!(bytes[1000..5000].iter().all(|b| *b == 0) && bytes[8000..].iter().all(|b| *b == 0));
    assert!(bytes[..1000].iter().all(|b| *b == 1) && bytes[5000..8000].iter().all(|b| *b == 1));
    store.zero(&id, Extent::new(8000, 9000), false, Room::All).unwrap();
    assert_eq!(store.stat(&id).unwrap().unwrap().size_bytes, 9000);
    store.zero(&id, Extent::new(0, Extent::EOF), false, Room::All).unwrap();
    assert_eq!(store.read(&id, 0, 9999).unwrap(), [0; 9000][..], "zeros up to the object's end");
    store.close();
}

/// fallocate(2) grows a file that ends before what is zeroed, unless it is to keep its size; one that has no bytes too.
fn zeros_in_what_is_not_there(harness: &mut dyn ObjectHarness) {
    let store = harness.create();
    let id = object(6);
    for keep_size in [true, false] {
        for start in [0, 1, 1 << 20] {
            assert_eq!(store.zero(&id, Extent::new(start, Extent::EOF), keep_size, Room::All), Ok(()));
            assert_eq!(store.stat(&id), Ok(None), "nothing up to the end of nothing: {start}");
        }
    }
    store.zero(&id, Extent::new(4096, 8192), true, Room::All).unwrap();
    let stat = store.stat(&id).unwrap().unwrap();
    assert!(stat.size_bytes == 0 && stat.has_begun && stat.allocated_bytes >= 4096, "{stat:?}");
    for keep_size in [true, false] {
        store.zero(&id, Extent::new(5, Extent::EOF), keep_size, Room::All).unwrap();
        assert_eq!(store.stat(&id).unwrap().unwrap().size_bytes, 0);
    }
    store.zero(&id, Extent::new(4096, 8192), false, Room::All).unwrap();
    assert_eq!(store.read(&id, 0, 9999).unwrap(), [0; 8192][..]);
    store.zero(&object(7), Extent::new(100, 200), false, Room::All).unwrap();
    assert_eq!(store.read(&object(7), 0, 999).unwrap(), [0; 200][..]);
    store.close();
}

/// However much there is.
fn what_takes_more_than_is_left_beside_the_reserve_takes_nothing(harness: &mut dyn ObjectHarness) {
    let store = harness.create();
    let id = object(8);
    let room = Room::BesideReserve;
    let too_much = Extent::new(0, OBJECT_BYTES_MAX.min(store.space().avail_bytes + (1 << 20)));
    assert_eq!(store.allocate(&id, too_much, false, room), Err(StoreError::NoSpace));
    assert_eq!(store.zero(&id, too_much, true, room), Err(StoreError::NoSpace));
    assert_eq!(store.stat(&id), Ok(None));
    store.allocate(&id, Extent::new(0, 1 << 20), false, room).unwrap();
    store.zero(&id, Extent::new(1 << 20, 2 << 20), false, room).unwrap();
    let before = store.stat(&id);
    assert_eq!(store.allocate(&id, too_much, false, room), Err(StoreError::NoSpace));
    assert_eq!(store.stat(&id), before);
    store.close();
}

fn durable_follows_written_and_survives(harness: &mut dyn ObjectHarness) {
    let mut store = harness.create();
    let (kept, gone) = (object(5), object(6));
    store.write(&gone, 0, b"gone").unwrap();
    let before = store.written();
    store.write(&kept, 0, b"kept").unwrap();
    assert!(store.written() > before);
    assert!(store.durable() <= store.written());
    harness.settle(&store);
    store.destroy(&gone).unwrap();
    store.write(&kept, 4, b" for ever").unwrap();
    store.kick();
    harness.settle(&store);
    assert_eq!(store.durable(), store.written());
    store.write(&kept, 0, b"KEPT").unwrap();
    store = harness.crash(store);
    assert_eq!(store.stat(&gone), Ok(None));
    let bytes = store.read(&kept, 0, 99).unwrap();
    assert_eq!(bytes[4..], b" for ever"[..]);
    assert!(bytes[..4].eq_ignore_ascii_case(b"kept"), "{bytes:?}");
    store.close();
}

fn listing_finds_each_object_once(harness: &mut dyn ObjectHarness) {
    let store = harness.create();
    let expected: BTreeSet<ObjectId> = (0..50).map(object).collect();
    for id in &expected {
        store.write(id, 0, b"x").unwrap();
    }
    let mut found = Vec::new();
    loop {
        let part = store.list(found.last(), 7).unwrap();
        assert!(part.len() <= 7);
        if part.is_empty() {
            break;
        }
        found.extend(part);
    }
    assert_eq!(found.len(), expected.len());
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    store.close();
}

fn adopted_objects_keep_what_they_have(harness: &mut dyn ObjectHarness) {
    let mut store = harness.create();
    let (id, to, other) = (object(7), object(8), object(9));
    assert_eq!(store.adopt(&id, &to), Ok(false), "it is not there");
    assert_eq!(store.written(), 0, "that is no mutation");
    store.write(&id, 10_000, b"hello").unwrap();
    store.write(&other, 0, b"other").unwrap();
    assert_eq!(store.adopt(&id, &other), Ok(false), "there is one already");
    let before = store.written();
    assert_eq!(store.adopt(&id, &to), Ok(true));
    assert!(store.written() > before);
    assert_eq!(store.adopt(&id, &to), Ok(false), "again");
    assert_eq!(store.stat(&id), Ok(None));
    assert_eq!(store.read(&id, 0, 10), Err(StoreError::NoObject { id }));
    assert_eq!(store.read(&to, 9_998, 100).unwrap(), &b"\0\0hello"[..]);
    assert_eq!(store.read(&other, 0, 10).unwrap(), &b"other"[..]);
    store.write(&to, 10_005, b" there").unwrap();
    let listed: BTreeSet<ObjectId> = store.list(None, 10).unwrap().into_iter().collect();
    assert_eq!(listed, BTreeSet::from([to, other]));
    harness.settle(&store);
    assert_eq!(store.durable(), store.written());
    store = harness.crash(store);
    assert_eq!(store.stat(&id), Ok(None));
    assert_eq!(store.read(&to, 10_000, 100).unwrap(), &b"hello there"[..]);
    store.adopt(&to, &id).unwrap();
    harness.settle(&store);
    store = harness.crash(store);
    assert_eq!(store.read(&id, 10_000, 100).unwrap(), &b"hello there"[..]);
    assert_eq!(store.stat(&to), Ok(None));
    store.close();
}

fn random_operations_match_bytes(harness: &mut dyn ObjectHarness, seed: u64) {
    const SIZE_MAX: u64 = 100_000;
    let mut store = harness.create();
    let mut rng = Rng::new(seed);
    let mut model: BTreeMap<ObjectId, Vec<u8>> = BTreeMap::new();
    for step in 0..2000 {
        let id = object(rng.below(6) as u32);
        let start = rng.below(SIZE_MAX);
        let extent = Extent::at(start, 1 + rng.below(20_000));
        let keep_size = rng.one_in(2);
        match rng.below(21) {
            0..=7 => {
                let data: Vec<u8> = (0..extent.byte_count()).map(|_| rng.next_u64() as u8 | 1).collect();
                store.write(&id, start, &data).unwrap();
                let bytes = grown(&mut model, id, extent.end);
                bytes[start as usize..extent.end as usize].copy_from_slice(&data);
            }
            8..=9 => {
                store.truncate(&id, start).unwrap();
                model.entry(id).or_default().resize(start as usize, 0);
            }
            10..=12 => {
                store.punch(&id, extent).unwrap();
                if let Some(bytes) = model.get_mut(&id) {
                    fill_zeros(bytes, extent);
                }
            }
            13..=14 => {
                store.zero(&id, extent, keep_size, Room::All).unwrap();
                let bytes = grown(&mut model, id, if keep_size { 0 } else { extent.end });
                fill_zeros(bytes, extent);
            }
            15..=16 => {
                store.allocate(&id, extent, keep_size, Room::All).unwrap();
                grown(&mut model, id, if keep_size { 0 } else { extent.end });
            }
            17 => assert_eq!(store.destroy(&id).unwrap(), model.remove(&id).is_some()),
            18 => {
                let to = object(rng.below(6) as u32);
                let can_be = model.contains_key(&id) && !model.contains_key(&to);
                assert_eq!(store.adopt(&id, &to).unwrap(), can_be);
                if can_be {
                    let bytes = model.remove(&id).unwrap_or_default();
                    model.insert(to, bytes);
                }
                check_object(&*store, &to, model.get(&to), extent);
            }
            _ => check_object(&*store, &id, model.get(&id), extent),
        }
        let whole = Extent::new(0, SIZE_MAX + 50_000);
        check_object(&*store, &id, model.get(&id), if step % 10 == 0 { whole } else { extent });
        if rng.one_in(500) {
            harness.settle(&store);
            store = harness.crash(store);
            model.iter().for_each(|(id, bytes)| check_object(&*store, id, Some(bytes), whole));
        }
    }
    store.close();
}

fn grown(model: &mut BTreeMap<ObjectId, Vec<u8>>, id: ObjectId, size_bytes: u64) -> &mut Vec<u8> {
    let bytes = model.entry(id).or_default();
    if bytes.len() < size_bytes as usize {
        bytes.resize(size_bytes as usize, 0);
    }
    bytes
}

fn fill_zeros(bytes: &mut [u8], extent: Extent) {
    let end = bytes.len().min(extent.end as usize);
    if let Some(part) = bytes.get_mut(extent.start as usize..end) {
        part.fill(0);
    }
}

/// Size, the bytes of the extent, and that `seek` hides no data.
fn check_object(store: &dyn ObjectStore, id: &ObjectId, expected: Option<&Vec<u8>>, extent: Extent) {
    let Some(expected) = expected else {
        assert_eq!(store.stat(id), Ok(None), "{id}");
        return;
    };
    let size_bytes = expected.len() as u64;
    assert_eq!(store.stat(id).unwrap().unwrap().size_bytes, size_bytes, "{id}");
    let end = extent.end.min(size_bytes) as usize;
    let part = expected.get(extent.start as usize..end).unwrap_or_default();
    assert!(store.read(id, extent.start, extent.byte_count() as usize).unwrap() == part, "{id} {extent}");
    let data = store.seek(id, extent.start, Whence::Data).unwrap();
    let skipped = expected.get(extent.start as usize..data.unwrap_or(size_bytes) as usize);
    assert!(skipped.unwrap_or_default().iter().all(|b| *b == 0), "{id}: data before {data:?}");
    let hole = store.seek(id, extent.start, Whence::Hole).unwrap();
    assert_eq!(hole.is_none(), extent.start >= size_bytes, "{id} {extent} {hole:?}");
    assert!(hole.is_none_or(|hole| hole >= extent.start && hole <= size_bytes));
}
