#![allow(clippy::unwrap_used)]

use super::*;
use base::{Fid, Rng};
use std::path::Path;

const ID: ObjectId = ObjectId { fid: Fid::ROOT, component: 0, stripe: 0 };
const SIZE_MAX: u64 = 2 * GROUP_BYTES + 50_000;

fn open(path: &Path, incarnation: u64) -> ObjectFile {
    ObjectFile::new(ID, device::open(path, true).unwrap(), incarnation, Syncing::Skipped).unwrap()
}

fn grow(model: &mut Vec<u8>, size_bytes: u64) {
    if (model.len() as u64) < size_bytes {
        model.resize(size_bytes as usize, 0);
    }
}

fn clear(model: &mut [u8], extent: Extent) {
    let end = model.len().min(extent.end as usize);
    if let Some(part) = model.get_mut(extent.start as usize..end) {
        part.fill(0);
    }
}

#[test]
fn a_truncate_that_a_kill_ended_halfway_leaves_no_checksums_of_blocks_that_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    for blocks_before in [0, GROUP_BLOCKS] {
        let path = dir.path().join(format!("object{blocks_before}"));
        let (start, end) = (blocks_before * BLOCK_BYTES, (blocks_before + 5) * BLOCK_BYTES);
        for cut in [start, start + 1, start + BLOCK_BYTES, start + BLOCK_BYTES + 100] {
            let object = open(&path, 1);
            object.write(start, &[1; 5 * BLOCK_BYTES as usize], false).unwrap();
            drop(object);
            // The file is cut, the checksums of the blocks behind are still there.
            device::open(&path, false).unwrap().set_len(stored_length(cut).max(HEADER_BYTES as u64)).unwrap();
            // The client sends it again, then extends the object.
            let object = open(&path, 2);
            object.truncate(cut).unwrap();
            object.truncate(end).unwrap();
            let found = object.read(start, 5 * BLOCK_BYTES as usize).unwrap();
            let kept = (cut - start) as usize;
            assert!(found[..kept].iter().all(|byte| *byte == 1), "cut at {cut}");
            assert!(found[kept..].iter().all(|byte| *byte == 0), "cut at {cut}");
            object.truncate(0).unwrap();
        }
    }
}

/// The shared suite stays within one group; this is about their borders.
#[test]
fn random_operations_around_the_borders_of_groups_match_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let mut object = open(&path, 1);
    let mut model: Vec<u8> = Vec::new();
    let mut rng = Rng::new(31);
    for step in 0..1500_u64 {
        let border = (rng.below(3)) * GROUP_BYTES;
        let start = (border + rng.below(30_000)).saturating_sub(15_000).min(SIZE_MAX);
        let extent = Extent::at(start, 1 + if rng.one_in(10) { GROUP_BYTES } else { rng.below(20_000) });
        let keep_size = rng.one_in(2);
        match rng.below(12) {
            0..=5 => {
                let data: Vec<u8> = (0..extent.byte_count()).map(|n| (n ^ step) as u8 | 1).collect();
                object.write(start, &data, rng.one_in(4)).unwrap();
                grow(&mut model, extent.end);
                model[start as usize..extent.end as usize].copy_from_slice(&data);
            }
            6 => {
                object.truncate(start).unwrap();
                model.resize(start as usize, 0);
            }
            7..=8 => {
                object.punch(extent).unwrap();
                clear(&mut model, extent);
            }
            9 => {
                object.zero(extent, keep_size).unwrap();
                grow(&mut model, if keep_size { 0 } else { extent.end });
                clear(&mut model, extent);
            }
            10 => {
                object.allocate(extent, keep_size).unwrap();
                grow(&mut model, if keep_size { 0 } else { extent.end });
            }
            // Opened again, as itself or after a crash, dirty or settled.
            _ => {
                if rng.one_in(2) {
                    object.sync().unwrap();
                    object.settle(|| true).unwrap();
                }
                object = open(&path, 1 + rng.below(2));
            }
        }
        let around = Extent::at(start.saturating_sub(10_000), 40_000);
        let end = around.end.min(model.len() as u64) as usize;
        let expected = model.get(around.start as usize..end).unwrap_or_default();
        assert!(object.read(around.start, 40_000).unwrap() == expected, "step {step}");
        let hole = object.seek(start, Whence::Hole).unwrap();
        assert_eq!(hole.is_none(), start >= model.len() as u64, "step {step}");
        if let Some(data) = object.seek(start, Whence::Data).unwrap() {
            assert!(model[start as usize..data as usize].iter().all(|b| *b == 0), "step {step}");
        }
        if step % 100 == 0 {
            assert!(object.read(0, SIZE_MAX as usize * 2).unwrap() == model, "step {step}");
            assert_eq!(stat_of(&std::fs::metadata(&path).unwrap()).size_bytes, model.len() as u64);
        }
    }
}

#[test]
fn the_header_follows_the_life_of_an_object() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let state = || State::decode(&std::fs::read(&path).unwrap());
    let object = open(&path, 5);
    object.write(0, &[1; 100], false).unwrap();
    assert_eq!(state(), Some(State::Dirty { dirty_from: 0, incarnation: 5 }));
    object.settle(|| true).unwrap();
    assert_eq!(state(), Some(State::Dirty { dirty_from: 0, incarnation: 5 }), "not synced yet");
    object.sync().unwrap();
    object.settle(|| false).unwrap();
    assert_eq!(state(), Some(State::Dirty { dirty_from: 0, incarnation: 5 }), "not at rest yet");
    object.settle(|| true).unwrap();
    assert_eq!(state(), Some(State::Clean));
    object.write(GROUP_BYTES + 5, &[1; 100], false).unwrap();
    assert_eq!(state(), Some(State::Dirty { dirty_from: GROUP_BYTES, incarnation: 5 }));
    object.write(5, &[1; 100], false).unwrap();
    assert_eq!(state(), Some(State::Dirty { dirty_from: 0, incarnation: 5 }));
    let object = open(&path, 6);
    assert!(object.is_to_be_synced(), "what a crash left is looked through and settled");
    assert_eq!(state(), Some(State::Dirty { dirty_from: 0, incarnation: 6 }));
}

#[test]
fn a_large_object_that_a_crash_left_dirty_is_believed_without_being_read_through() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let object = open(&path, 1);
    let far = READ_THROUGH_BYTES_MAX + (9 << 20);
    object.write(far, &[1; 8192], false).unwrap();
    drop(object);
    let torn = device::open(&path, false).unwrap();
    device::write_all(&torn, &[9; 4096], stored_offset(far)).unwrap();
    let object = open(&path, 2);
    assert!(!object.is_to_be_synced());
    assert_eq!(object.read(far, 2).unwrap(), [9, 9][..]);
    object.write(0, b"x", false).unwrap();
    object.sync().unwrap();
    object.settle(|| true).unwrap();
    drop(object);
    device::write_all(&torn, &[8; 4096], stored_offset(far + 4096)).unwrap();
    assert_eq!(open(&path, 3).read(far + 4096, 2).unwrap(), [8, 8][..], "it stays so for later openings");
}
