#![allow(clippy::unwrap_used)]

use super::header::READ_THROUGH_BYTES_MAX;
use super::*;
use base::{Fid, Rng};
use std::path::Path;

const ID: ObjectId = ObjectId { fid: Fid::ROOT, component: 0, stripe: 0 };
const SIZE_MAX: u64 = 2 * GROUP_BYTES + 50_000;

fn open(path: &Path, incarnation: u64) -> ObjectFile {
    ObjectFile::new(ID, device::open(path, true).unwrap(), incarnation, Syncing::Skipped, Spare::default())
        .unwrap()
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
                object.zero(extent, keep_size, None).unwrap();
                grow(&mut model, if keep_size { 0 } else { extent.end });
                clear(&mut model, extent);
            }
            10 => {
                object.allocate(extent, keep_size, None).unwrap();
                grow(&mut model, if keep_size { 0 } else { extent.end });
            }
            // Opened again, as itself or after a crash, dirty or settled.
            _ => {
                if rng.one_in(2) {
                    object.sync().unwrap();
                    object.settle(|| true).unwrap();
                }
                if rng.one_in(2) {
                    object.flush().unwrap();
                    object = open(&path, 1);
                } else {
                    object = open(&path, 2 + step);
                }
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
            assert_eq!(stat_of(&File::open(&path).unwrap()).unwrap().size_bytes, model.len() as u64);
            assert_eq!(object.stat().unwrap().unwrap().size_bytes, model.len() as u64);
        }
    }
}

/// What the file takes on its device.
fn stored_blocks(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks()
}

#[test]
fn a_punch_of_what_is_a_hole_takes_no_room() {
    let dir = tempfile::tempdir().unwrap();
    for size_bytes in [1 << 30, (1 << 40) + 5] {
        let path = dir.path().join(format!("object{size_bytes}"));
        let object = open(&path, 1);
        object.truncate(size_bytes).unwrap();
        let before = stored_blocks(&path);
        for extent in [Extent::new(0, Extent::EOF), Extent::new(100, size_bytes - 1), Extent::at(5000, 3)] {
            object.punch(extent).unwrap();
            assert_eq!(stored_blocks(&path), before, "{extent:?}");
        }
        // Room that was taken goes, also where nothing was written to it.
        object.allocate(Extent::at(3 * GROUP_BYTES + 4096, 3 * GROUP_BYTES), true, None).unwrap();
        assert!(stored_blocks(&path) > before);
        object.punch(Extent::new(0, Extent::EOF)).unwrap();
        assert_eq!(stored_blocks(&path), before);
        for start in [0, 4096, GROUP_BYTES - 5, 7 * GROUP_BYTES - 5, size_bytes - 10_000] {
            assert!(object.read(start, 10_000).unwrap().iter().all(|byte| *byte == 0), "{start}");
        }
    }
}

/// By fallocate(2) that keeps the size. Others would take it, and who was promised it would be refused.
#[test]
fn what_was_taken_behind_the_end_outlives_a_crash_and_a_write_that_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let object = open(&path, 1);
    object.write(0, &[1; 4096], false).unwrap();
    object.allocate(Extent::new(0, 1 << 20), true, None).unwrap();
    object.sync().unwrap();
    let taken = stored_blocks(&path);
    assert!(taken >= (1 << 20) / 512);
    drop(object);
    let object = open(&path, 2);
    assert_eq!(object.read(0, 9000).unwrap(), [1; 4096][..]);
    assert_eq!(stored_blocks(&path), taken, "after a crash");
    device::faults::fail_writes_below(dir.path());
    assert!(object.write(4096, &[2; 4096], false).is_err());
    device::faults::mend(dir.path());
    assert_eq!(stored_blocks(&path), taken, "after a write that failed");
    assert_eq!(object.read(0, 9000).unwrap(), [1; 4096][..]);
    object.truncate(4096).unwrap();
    object.truncate(0).unwrap();
    assert!(stored_blocks(&path) < taken, "what is cut gives it back");
}

#[test]
fn a_punch_gives_back_the_checksums_of_whole_groups_and_damage_there_is_found() {
    const WRITTEN: Extent = Extent { start: 2 * GROUP_BYTES - 8192, end: 3 * GROUP_BYTES + 8192 };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let object = open(&path, 1);
    object.truncate(6 * GROUP_BYTES).unwrap();
    let before = stored_blocks(&path);
    let data = vec![7; WRITTEN.byte_count() as usize];
    for punched in [Extent::new(GROUP_BYTES, 4 * GROUP_BYTES), Extent::new(5, 6 * GROUP_BYTES - 5)] {
        object.write(WRITTEN.start, &data, false).unwrap();
        // Checksums that wait go as well.
        object.write(2 * GROUP_BYTES, &[8; 4096], false).unwrap();
        object.punch(punched).unwrap();
        object.sync().unwrap();
        assert!(object.read(GROUP_BYTES, 3 * GROUP_BYTES as usize).unwrap().iter().all(|byte| *byte == 0));
        assert!(stored_blocks(&path) <= before + 8 * 3, "{} {before}", stored_blocks(&path));
    }
    object.write(WRITTEN.start, &data, false).unwrap();
    object.punch(Extent::new(2 * GROUP_BYTES, 3 * GROUP_BYTES)).unwrap();
    object.sync().unwrap();
    object.settle(|| true).unwrap();
    drop(object);
    let object = open(&path, 2);
    let expected: Vec<u8> =
        (WRITTEN.start..WRITTEN.end).map(|at| if at / GROUP_BYTES == 2 { 0 } else { 7 }).collect();
    assert!(object.read(WRITTEN.start, data.len()).unwrap() == expected);
    drop(object);
    device::write_all(&device::open(&path, false).unwrap(), &[1], stored_offset(2 * GROUP_BYTES + 4096))
        .unwrap();
    let damaged = open(&path, 2).read(2 * GROUP_BYTES, 8192);
    assert!(
        matches!(damaged, Err(StoreError::CorruptObject { offset_bytes, .. }) if offset_bytes == 2 * GROUP_BYTES + 4096)
    );
}

#[test]
fn small_writes_of_one_group_write_its_checksums_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let object = open(&path, 1);
    let stored = || std::fs::read(&path).unwrap()[HEADER_BYTES..BLOCK_BYTES as usize].to_vec();
    object.write(0, &[1; 20 * BLOCK_BYTES as usize], false).unwrap();
    let before = stored();
    object.write(5 * BLOCK_BYTES, &[2; BLOCK_BYTES as usize], false).unwrap();
    object.write(9 * BLOCK_BYTES, &[3; BLOCK_BYTES as usize], false).unwrap();
    assert_eq!(stored(), before);
    assert_eq!(object.read(5 * BLOCK_BYTES, 1).unwrap(), [2][..]);
    object.flush().unwrap();
    let after = stored();
    let differing: Vec<_> =
        (0..after.len() / 4).filter(|n| after[4 * n..][..4] != before[4 * n..][..4]).collect();
    assert_eq!(differing, [5, 9]);
    // What a kill takes of it does not matter: the object is dirty.
    object.write(0, &[4; BLOCK_BYTES as usize], false).unwrap();
    drop(object);
    assert_eq!(open(&path, 2).read(0, 1).unwrap(), [4][..]);
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
    assert_eq!(state(), Some(State::Settled { lenient_from: u64::MAX, stored_bytes: BLOCK_BYTES + 100 }));
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
    assert!(object.is_to_be_synced(), "its length can be settled");
    assert_eq!(object.read(far, 2).unwrap(), [9, 9][..]);
    object.write(0, b"x", false).unwrap();
    object.sync().unwrap();
    object.settle(|| true).unwrap();
    drop(object);
    device::write_all(&torn, &[8; 4096], stored_offset(far + 4096)).unwrap();
    assert_eq!(open(&path, 3).read(far + 4096, 2).unwrap(), [8, 8][..], "it stays so for later openings");
    torn.set_len(stored_length(far + 4096)).unwrap();
    let cut = Err(StoreError::CorruptObject { id: ID, offset_bytes: far + 4096 });
    assert_eq!(open(&path, 4).read(far + 4096, 2), cut, "but its length is known");
}

/// Every length that somebody could leave, for objects of some bytes, of a group and of holes only.
#[test]
fn a_settled_object_whose_file_was_cut_or_grew_is_an_error_and_never_a_shorter_object() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    for (size, data) in [(5000, 0..5000), (GROUP_BYTES + 9000, 0..100), (2 * GROUP_BYTES + 5, 0..0)] {
        let _ = std::fs::remove_file(&path);
        let object = open(&path, 1);
        object.truncate(size).unwrap();
        object.write(data.start, &vec![7; data.end as usize], false).unwrap();
        object.sync().unwrap();
        object.settle(|| true).unwrap();
        drop(object);
        let whole = std::fs::read(&path).unwrap();
        let ends = [32, 33, 4095, 4096, 4097, whole.len() as u64 - 1, whole.len() as u64 + 1];
        for found in ends.into_iter().chain([stored_length(GROUP_BYTES) + 1, stored_length(GROUP_BYTES)]) {
            if found == whole.len() as u64 {
                continue;
            }
            std::fs::write(&path, &whole).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(found).unwrap();
            let left = size_of_stored(found).min(size);
            assert_eq!(stat_of(&File::open(&path).unwrap()).unwrap().size_bytes, size, "{found}");
            let object = open(&path, 2);
            assert_eq!(object.stat().unwrap().unwrap().size_bytes, size);
            let damaged = |offset_bytes| StoreError::CorruptObject { id: ID, offset_bytes };
            if left < size {
                assert!(matches!(object.read(left, 1), Err(StoreError::CorruptObject { .. })), "{found}");
                assert!(matches!(object.read(0, size as usize), Err(StoreError::CorruptObject { .. })));
            } else {
                assert_eq!(object.read(0, size as usize + 9).unwrap().len() as u64, size);
            }
            if left > BLOCK_BYTES {
                assert_eq!(object.read(1, 1).unwrap(), [if data.is_empty() { 0 } else { 7 }][..]);
            }
            assert_eq!(object.write(0, &[1; BLOCK_BYTES as usize], false), Err(damaged(left)));
            assert_eq!(object.write(size, &[1; 5], false), Err(damaged(left)));
            assert_eq!(object.punch(Extent::new(0, 9)), Err(damaged(left)));
            assert_eq!(object.zero(Extent::new(0, 9), true, None), Err(damaged(left)));
            assert_eq!(object.allocate(Extent::new(0, 9), true, None), Err(damaged(left)));
            assert_eq!(object.seek(0, Whence::Data), Err(damaged(left)));
            assert_eq!(object.truncate(left + 1), Err(damaged(left)));
            assert_eq!(File::open(&path).unwrap().metadata().unwrap().len(), found, "nothing was changed");
            // What is whole again, is whole.
            object.truncate(0).unwrap();
            object.write(10, b"new", false).unwrap();
            object.sync().unwrap();
            object.settle(|| true).unwrap();
            assert_eq!(open(&path, 3).read(0, 99).unwrap(), b"\0\0\0\0\0\0\0\0\0\0new"[..]);
        }
    }
}

#[test]
fn an_object_that_is_cut_while_it_is_open_is_an_error_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let object = open(&path, 1);
    object.write(0, &[7; 20_000], false).unwrap();
    device::open(&path, false).unwrap().set_len(stored_length(8192)).unwrap();
    let damaged = StoreError::CorruptObject { id: ID, offset_bytes: 8192 };
    assert_eq!(object.read(8192, 1), Err(damaged.clone()));
    assert_eq!(object.stat().unwrap().unwrap().size_bytes, 20_000);
    assert_eq!(object.write(20_000, b"x", false), Err(damaged.clone()));
    object.sync().unwrap();
    object.settle(|| true).unwrap();
    assert_eq!(open(&path, 2).read(8192, 1), Err(damaged), "also for who opens it later");
}

/// Written by the version before: no length, so none is missed.
#[test]
fn an_object_that_was_settled_without_its_length_is_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let object = open(&path, 1);
    object.write(0, &[7; 20_000], false).unwrap();
    let file = device::open(&path, false).unwrap();
    device::write_all(&file, &State::Clean.encode(), 0).unwrap();
    file.set_len(stored_length(8192)).unwrap();
    let object = open(&path, 2);
    assert_eq!(object.read(0, 20_000).unwrap(), [7; 8192][..]);
    object.write(8192, &[8; 10], false).unwrap();
    object.sync().unwrap();
    object.settle(|| true).unwrap();
    file.set_len(stored_length(8192)).unwrap();
    assert!(open(&path, 3).read(8192, 1).is_err(), "from its next rest on it is not");
}

/// A power failure takes what was not synced, be it that the object was longer or shorter before.
#[test]
fn a_length_that_was_not_synced_is_not_missed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    for (before, after) in [(5000, 40_000), (40_000, 5000), (0, 5000), (5000, 0)] {
        let _ = std::fs::remove_file(&path);
        let object = open(&path, 1);
        object.truncate(before).unwrap();
        object.sync().unwrap();
        object.settle(|| true).unwrap();
        let durable = std::fs::read(&path).unwrap();
        object.truncate(after).unwrap();
        // The header reaches the device before the length does.
        let mut found = durable;
        found[..HEADER_BYTES].copy_from_slice(&std::fs::read(&path).unwrap()[..HEADER_BYTES]);
        drop(object);
        std::fs::write(&path, found).unwrap();
        let object = open(&path, 2);
        assert_eq!(object.read(0, 99_999).unwrap(), vec![0; before as usize]);
        object.write(100, b"x", false).unwrap();
    }
}

#[test]
fn a_crash_that_left_a_file_ending_among_checksums_leaves_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    for end in [100, BLOCK_BYTES, stored_length(GROUP_BYTES) + 100, stored_length(GROUP_BYTES) + BLOCK_BYTES]
    {
        let _ = std::fs::remove_file(&path);
        let object = open(&path, 1);
        object.write(0, &vec![7; GROUP_BYTES as usize + 5], false).unwrap();
        drop(object);
        device::open(&path, false).unwrap().set_len(end).unwrap();
        let object = open(&path, 2);
        let size = object.stat().unwrap().unwrap().size_bytes;
        object.sync().unwrap();
        object.settle(|| true).unwrap();
        let object = open(&path, 3);
        assert_eq!(object.read(0, 2 * GROUP_BYTES as usize).unwrap().len() as u64, size);
        object.write(size, b"more", false).unwrap();
    }
}

/// Of what is not there any more.
#[test]
fn checksums_that_a_crash_left_at_the_end_of_a_file_are_not_those_of_later_holes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    for end in [100, BLOCK_BYTES, stored_length(GROUP_BYTES) + 100, stored_length(GROUP_BYTES) + BLOCK_BYTES]
    {
        let _ = std::fs::remove_file(&path);
        let object = open(&path, 1);
        object.write(0, &vec![7; 2 * GROUP_BYTES as usize], false).unwrap();
        object.sync().unwrap();
        drop(object);
        device::open(&path, false).unwrap().set_len(end).unwrap();
        let object = open(&path, 2);
        let size = object.stat().unwrap().unwrap().size_bytes;
        object.truncate(size + 3 * BLOCK_BYTES).unwrap();
        let hole = object.read(size, 3 * BLOCK_BYTES as usize).unwrap();
        assert_eq!(hole, vec![0; 3 * BLOCK_BYTES as usize], "a file of {end} bytes");
    }
}

#[test]
fn a_write_that_fails_leaves_what_is_behind_it_readable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let object = open(&path, 1);
    object.write(0, &[1; 2 * BLOCK_BYTES as usize], false).unwrap();
    device::faults::fail_writes_below(dir.path());
    assert!(object.write(0, &[9; BLOCK_BYTES as usize + 904], false).is_err());
    device::faults::mend(dir.path());
    assert_eq!(object.read(0, 2 * BLOCK_BYTES as usize).unwrap(), vec![1; 2 * BLOCK_BYTES as usize]);
}

/// A file without a header has lost everything, so whatever makes an object leaves one.
#[test]
fn whatever_makes_an_object_writes_its_header() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let changes: [fn(&ObjectFile); 8] = [
        |object| object.truncate(0).unwrap(),
        |object| object.truncate(9).unwrap(),
        |object| object.zero(Extent::new(5, 9), true, None).unwrap(),
        |object| object.allocate(Extent::new(5, 9), true, None).unwrap(),
        |object| object.write(5, b"x", false).unwrap(),
        // A crash may leave a file that had no header yet.
        |object| object.punch(Extent::new(5, 9)).unwrap(),
        |object| object.zero(Extent::WHOLE, false, None).unwrap(),
        |object| object.zero(Extent::new(5, Extent::EOF), true, None).unwrap(),
    ];
    for change in changes {
        let _ = std::fs::remove_file(&path);
        let object = open(&path, 1);
        assert!(!object.stat().unwrap().unwrap().has_begun);
        change(&object);
        assert!(stat_of(&File::open(&path).unwrap()).unwrap().has_begun);
        let size = object.stat().unwrap().unwrap().size_bytes;
        object.sync().unwrap();
        object.settle(|| true).unwrap();
        assert_eq!(open(&path, 2).read(0, 99).unwrap().len() as u64, size);
    }
}

/// Until the last piece is durable the header says what it said, so that a second crash finds nothing damaged.
#[test]
fn a_large_object_is_believed_until_all_of_it_has_been_read_and_synced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let state = || State::decode(&std::fs::read(&path).unwrap()[..HEADER_BYTES]).unwrap();
    let object = open(&path, 1);
    let size_bytes = READ_THROUGH_BYTES_MAX + 3 * PIECE_BYTES / 2;
    for start in (0..size_bytes).step_by(PIECE_BYTES as usize) {
        let piece = [3; PIECE_BYTES as usize];
        let byte_count = PIECE_BYTES.min(size_bytes - start) as usize;
        object.write(start, piece.get(..byte_count).unwrap(), false).unwrap();
    }
    drop(object);
    let object = open(&path, 2);
    assert!(object.is_to_be_read_on());
    assert_eq!(object.read_on().unwrap(), ReadOn::More);
    // Changes that come between: a cut below what has been read, and bytes beyond.
    object.truncate(PIECE_BYTES / 2).unwrap();
    object.write(size_bytes, &[4; 100], false).unwrap();
    let left = State::Dirty { dirty_from: 0, incarnation: 1 };
    assert_eq!(state(), left);
    let mut piece_count = 0;
    while object.read_on().unwrap() == ReadOn::More {
        assert_eq!(state(), left);
        piece_count += 1;
    }
    assert!(piece_count < 20, "{piece_count}: a hole takes no time");
    assert!(!object.is_to_be_read_on());
    assert_eq!(object.read_on().unwrap(), ReadOn::Nothing);
    assert_eq!(state(), State::Dirty { dirty_from: 0, incarnation: 2 });
    assert!(object.is_to_be_synced());
    object.sync().unwrap();
    object.settle(|| true).unwrap();
    assert!(matches!(state(), State::Settled { lenient_from: u64::MAX, .. }));
    assert_eq!(object.read(size_bytes - 100, 300).unwrap(), [[0; 100], [4; 100]].concat());
    assert_eq!(object.read(PIECE_BYTES / 2 - 4, 8).unwrap(), [3, 3, 3, 3, 0, 0, 0, 0][..]);
}

/// A power failure has left bytes whose block of checksums was not allocated yet, and others have taken all the room since.
#[test]
fn what_a_crash_left_without_room_for_its_checksums_is_read_written_over_and_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let object = open(&path, 1);
    let mut data = vec![7; 3 * GROUP_BYTES as usize];
    object.write(0, &data, false).unwrap();
    drop(object);
    let file = device::open(&path, false).unwrap();
    let last = 2 * GROUP_BYTES;
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    device::allocate(&file, punch, stored_offset(last) - BLOCK_BYTES, BLOCK_BYTES).unwrap();
    device::faults::refuse_writes_to_holes_below(&path);
    let object = open(&path, 2);
    assert!(object.read(0, data.len()).unwrap() == data);
    object.write(last + 5000, &[8; 10_000], true).unwrap();
    data[last as usize + 5000..][..10_000].fill(8);
    object.punch(Extent::at(last + 100, 200)).unwrap();
    data[last as usize + 100..][..200].fill(0);
    object.punch(Extent::at(last + 10 * BLOCK_BYTES, BLOCK_BYTES)).unwrap();
    data[last as usize + 10 * BLOCK_BYTES as usize..][..BLOCK_BYTES as usize].fill(0);
    object.truncate(last + 100_001).unwrap();
    data.truncate(last as usize + 100_001);
    assert!(object.read(0, data.len() + 9).unwrap() == data);
    // It stays believed, also for who opens it next, until there is room.
    let mut read_on = object.read_on();
    while read_on == Ok(ReadOn::More) {
        read_on = object.read_on();
    }
    assert_eq!(read_on, Err(StoreError::NoSpace));
    object.sync().unwrap();
    object.settle(|| true).unwrap();
    drop(object);
    let object = open(&path, 3);
    assert!(object.read(0, data.len() + 9).unwrap() == data);
    device::faults::mend(&path);
    assert!(object.is_to_be_read_on());
    while object.read_on().unwrap() != ReadOn::Last {}
    check_content(object, &path, &data);
    device::write_all(&file, &[1], stored_offset(last + 50_000)).unwrap();
    assert!(matches!(open(&path, 4).read(last + 50_000, 1), Err(StoreError::CorruptObject { .. })));
}

#[test]
fn what_a_crash_left_without_room_for_its_checksums_can_be_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let object = open(&path, 1);
    object.write(0, &vec![7; 2 * GROUP_BYTES as usize], false).unwrap();
    drop(object);
    let file = device::open(&path, false).unwrap();
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    device::allocate(&file, punch, stored_offset(GROUP_BYTES) - BLOCK_BYTES, BLOCK_BYTES).unwrap();
    device::faults::refuse_writes_to_holes_below(&path);
    let object = open(&path, 2);
    object.truncate(0).unwrap();
    device::faults::mend(&path);
    object.write(0, b"new", false).unwrap();
    check_content(object, &path, b"new");
}

/// One that was settled while a part of it was believed says how long it is; that is no more so when it has been read.
#[test]
fn an_object_that_rested_while_a_part_was_believed_is_read_on_and_may_grow() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let object = open(&path, 1);
    object.truncate(READ_THROUGH_BYTES_MAX + 1).unwrap();
    object.write(5, &[1; 10], false).unwrap();
    drop(object);
    let object = open(&path, 2);
    object.sync().unwrap();
    object.settle(|| true).unwrap();
    drop(object);
    let object = open(&path, 3);
    assert!(object.is_to_be_read_on());
    while object.read_on().unwrap() != ReadOn::Last {}
    object.write(READ_THROUGH_BYTES_MAX, &[2; 10_000], false).unwrap();
    drop(object);
    let object = open(&path, 4);
    assert_eq!(object.read(READ_THROUGH_BYTES_MAX, 20_000).unwrap(), [2; 10_000][..]);
    assert_eq!(object.read(0, 20).unwrap()[5..15], [1; 10]);
}

/// Read as it is now, and as who opens it after the end of this process finds it.
fn check_content(object: ObjectFile, path: &Path, expected: &[u8]) {
    assert!(object.read(0, 2 * expected.len()).unwrap() == expected);
    object.sync().unwrap();
    object.settle(|| true).unwrap();
    drop(object);
    assert!(open(path, 99).read(0, 2 * expected.len()).unwrap() == expected);
}

#[test]
fn a_truncate_that_fails_leaves_all_readable() {
    let dir = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..GROUP_BYTES + 50_000).map(|at| (at / 100) as u8 | 1).collect();
    for size in [0, 10, 4096, 10_000, GROUP_BYTES - 1, GROUP_BYTES, GROUP_BYTES + 8192, GROUP_BYTES + 8193] {
        let path = dir.path().join(format!("object{size}"));
        let object = open(&path, 1);
        object.write(0, &data, false).unwrap();
        object.sync().unwrap();
        object.settle(|| true).unwrap();
        let object = open(&path, 2);
        device::faults::fail_lengths_below(&path);
        assert_eq!(object.truncate(size), Err(StoreError::NoSpace), "{size}");
        device::faults::mend(&path);
        check_content(object, &path, &data);
        // Nothing is left that a cut and what follows it would find.
        let object = open(&path, 3);
        object.truncate(size).unwrap();
        object.truncate(size + 9000).unwrap();
        let mut cut = data[..size as usize].to_vec();
        cut.resize(size as usize + 9000, 0);
        check_content(object, &path, &cut);
    }
}

/// Half of each call is done: in one group, in the first one, in whole groups with their checksums, and at both edges.
#[test]
fn zeros_that_fail_halfway_leave_all_readable() {
    let dir = tempfile::tempdir().unwrap();
    let size = 5 * GROUP_BYTES + 50_000;
    let data: Vec<u8> = (0..size).map(|at| (at / 5000) as u8 | 1).collect();
    let extents = [
        Extent::new(100, 90_000),
        Extent::new(0, GROUP_BYTES),
        Extent::new(GROUP_BYTES, 4 * GROUP_BYTES),
        Extent::new(GROUP_BYTES + 4096, GROUP_BYTES + 40_960),
        Extent::new(2 * GROUP_BYTES, Extent::EOF),
    ];
    for (number, extent) in extents.into_iter().enumerate() {
        for is_punch in [true, false] {
            for was_closed in [true, false] {
                let path = dir.path().join(format!("object{number}{is_punch}{was_closed}"));
                let mut object = open(&path, 1);
                object.write(0, &data, false).unwrap();
                if was_closed {
                    object.sync().unwrap();
                    object.settle(|| true).unwrap();
                    object = open(&path, 2);
                }
                device::faults::halve_clears_below(&path);
                let done = match is_punch {
                    true => object.punch(extent),
                    false => object.zero(extent, true, None),
                };
                device::faults::mend(&path);
                assert_eq!(done, Err(StoreError::NoSpace), "{extent}");
                let found = object.read(0, size as usize).expect("nothing is damaged");
                assert!(found != data, "{extent}: something was cleared");
                let is_zero_or_same = |(at, byte): (usize, &u8)| {
                    *byte == data[at] || *byte == 0 && (extent.start..extent.end).contains(&(at as u64))
                };
                assert!(found.iter().enumerate().all(is_zero_or_same), "{extent}");
                check_content(object, &path, &found);
            }
        }
    }
}

/// Neither behind what was to be cleared nor within it, where it is still there.
#[test]
fn a_failure_makes_no_damage_good() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let object = open(&path, 1);
    object.write(0, &vec![7; 2 * GROUP_BYTES as usize], false).unwrap();
    object.sync().unwrap();
    object.settle(|| true).unwrap();
    drop(object);
    let damaged = [30 * BLOCK_BYTES, GROUP_BYTES + 5 * BLOCK_BYTES];
    for offset_bytes in damaged {
        let file = device::open(&path, false).unwrap();
        device::write_all(&file, &[9], stored_offset(offset_bytes) + 50).unwrap();
    }
    let object = open(&path, 2);
    device::faults::halve_clears_below(&path);
    assert_eq!(object.punch(Extent::new(0, 40 * BLOCK_BYTES)), Err(StoreError::NoSpace));
    device::faults::mend(&path);
    for offset_bytes in damaged {
        let refused = Err(StoreError::CorruptObject { id: ID, offset_bytes });
        assert_eq!(object.read(offset_bytes, 1), refused);
    }
    assert_eq!(object.read(19 * BLOCK_BYTES, 2 * BLOCK_BYTES as usize).unwrap()[4095..4097], [0, 7]);
}

/// Neither behind the call that failed nor within it.
#[test]
fn a_write_that_fails_makes_no_damage_good_that_it_did_not_reach() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let object = open(&path, 1);
    object.write(0, &[7; 128 * BLOCK_BYTES as usize], false).unwrap();
    object.sync().unwrap();
    object.settle(|| true).unwrap();
    drop(object);
    let damaged = [20 * BLOCK_BYTES, 40 * BLOCK_BYTES];
    for offset_bytes in damaged {
        let file = device::open(&path, false).unwrap();
        device::write_all(&file, &[9], stored_offset(offset_bytes) + 50).unwrap();
    }
    let object = open(&path, 2);
    // Neither its header nor its checksums are written from here on.
    object.write(100 * BLOCK_BYTES, &[7; BLOCK_BYTES as usize], false).unwrap();
    device::faults::fail_writes_but_one_below(&path);
    assert!(object.write(0, &[8; 64 * BLOCK_BYTES as usize], false).is_err());
    device::faults::mend(&path);
    for offset_bytes in damaged {
        let refused = Err(StoreError::CorruptObject { id: ID, offset_bytes });
        assert_eq!(object.read(offset_bytes, 1), refused);
    }
    // What it did reach, and what it did not.
    assert_eq!(object.read(14 * BLOCK_BYTES, 2 * BLOCK_BYTES as usize).unwrap()[4095..4097], [8, 7]);
    assert_eq!(object.read(41 * BLOCK_BYTES, BLOCK_BYTES as usize).unwrap(), [7; BLOCK_BYTES as usize][..]);
    object.write(0, &[8; 64 * BLOCK_BYTES as usize], false).unwrap();
    let expected = [[8; 64 * BLOCK_BYTES as usize], [7; 64 * BLOCK_BYTES as usize]].concat();
    check_content(object, &path, &expected);
}

/// An edge takes two writes, in whatever order: of its bytes and of its checksum.
#[test]
fn an_edge_that_is_half_written_is_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let object = open(&path, 1);
    object.write(0, &[7; 3 * BLOCK_BYTES as usize], false).unwrap();
    object.sync().unwrap();
    let edges = [Extent::new(BLOCK_BYTES + 100, BLOCK_BYTES + 200), Extent::new(100, 2 * BLOCK_BYTES + 200)];
    for extent in edges {
        for is_punch in [true, false] {
            for is_first_done in [true, false] {
                // Dirty already, so that nothing else is written, and its checksums are not in memory.
                let object = open(&path, 1);
                match is_first_done {
                    true => device::faults::fail_writes_but_one_below(&path),
                    false => device::faults::fail_writes_below(&path),
                }
                let done = match is_punch {
                    true => object.punch(extent),
                    false => object.zero(extent, true, None),
                };
                device::faults::mend(&path);
                assert!(done.is_err(), "{extent}");
                assert_eq!(object.read(0, 20_000).unwrap(), [7; 3 * BLOCK_BYTES as usize][..], "{extent}");
                object.sync().unwrap();
            }
        }
    }
    check_content(object, &path, &[7; 3 * BLOCK_BYTES as usize]);
}

/// Where neither room nor data can be written, what is there is believed, also by who opens it next.
#[test]
fn whose_checksums_cannot_be_mended_is_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let data = vec![7; 3 * GROUP_BYTES as usize];
    let object = open(&path, 1);
    object.write(0, &data, false).unwrap();
    object.sync().unwrap();
    let object = open(&path, 1);
    // Dirty already, so that nothing is written before.
    device::faults::halve_clears_below(&path);
    device::faults::fail_writes_below(&path);
    assert!(object.punch(Extent::new(GROUP_BYTES, 2 * GROUP_BYTES)).is_err());
    device::faults::mend(&path);
    let found = object.read(0, data.len()).unwrap();
    assert!(found[GROUP_BYTES as usize..][..4096] == [0; 4096] && found.last() == Some(&7));
    check_content(object, &path, &found);
}

#[test]
fn whole_groups_are_cleared_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let object = open(&path, 1);
    let data = vec![7; 20 * GROUP_BYTES as usize];
    type Clear = fn(&ObjectFile, Extent) -> Result<(), StoreError>;
    let clears: [Clear; 2] =
        [|object, extent| object.punch(extent), |object, extent| object.zero(extent, true, None)];
    for clear in clears {
        object.write(0, &data, false).unwrap();
        device::faults::take_clear_count();
        clear(&object, Extent::new(GROUP_BYTES - 8192, 19 * GROUP_BYTES + 8192)).unwrap();
        // The ends are of groups that keep something, and 18 whole ones lie between.
        assert_eq!(device::faults::take_clear_count(), 2 + 2);
        let found = object.read(0, data.len()).unwrap();
        let cleared = (GROUP_BYTES - 8192) as usize..(19 * GROUP_BYTES + 8192) as usize;
        assert!(found[cleared.clone()].iter().all(|byte| *byte == 0));
        assert!(found[..cleared.start].iter().chain(&found[cleared.end..]).all(|byte| *byte == 7));
    }
    // Room goes with a punch and stays with zeros.
    let allocated = object.stat().unwrap().unwrap().allocated_bytes;
    assert!(allocated >= 20 * GROUP_BYTES - 20 * BLOCK_BYTES, "{allocated}");
    object.punch(Extent::new(GROUP_BYTES, 19 * GROUP_BYTES)).unwrap();
    let allocated = object.stat().unwrap().unwrap().allocated_bytes;
    assert!(allocated <= 2 * GROUP_BYTES + 20 * BLOCK_BYTES, "{allocated}");
}

#[test]
fn room_that_would_be_of_the_reserve_is_given_back_to_the_block() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let object = open(&path, 1);
    object.write(0, &[7; 10_000], false).unwrap();
    object.truncate(20 << 20).unwrap();
    object.write(2 << 20, &[8; 10_000], false).unwrap();
    object.sync().unwrap();
    // Promised before, in the object and behind its end.
    object.allocate(Extent::at(8 << 20, 1 << 20), true, None).unwrap();
    object.allocate(Extent::at(30 << 20, 1 << 20), true, None).unwrap();
    object.allocate(Extent::at(50 << 20, 1 << 20), true, None).unwrap();
    if !object.is_allocated(Extent::at(8 << 20, 1 << 20)).unwrap() {
        eprintln!("not run: the file system of {} does not say what is allocated", path.display());
        return;
    }
    let before = stored_blocks(&path);
    let is_kept = |object: &ObjectFile| {
        let at = |start| object.is_allocated(Extent::at(start, 1 << 20)).unwrap();
        (at(8 << 20), at(30 << 20), at(50 << 20), at(12 << 20), at(36 << 20))
    };
    for extent in [Extent::new(0, 18 << 20), Extent::new(1 << 20, 40 << 20), Extent::at(22 << 20, 10 << 20)] {
        for keep_size in [true, false] {
            // Seen before, and as others take it meanwhile.
            let missing = std::cell::Cell::new(0);
            let measure = |bytes: u64| move || bytes;
            assert_eq!(object.allocate(extent, keep_size, Some(&measure(1 << 20))), Err(StoreError::NoSpace));
            assert_eq!(stored_blocks(&path), before, "{extent}");
            let shrinking = || if missing.replace(1) == 0 { 1 << 40 } else { 0 };
            assert_eq!(object.allocate(extent, keep_size, Some(&shrinking)), Err(StoreError::NoSpace));
            assert_eq!(stored_blocks(&path), before, "{extent}");
            missing.set(0);
            assert_eq!(object.zero(extent, keep_size, Some(&shrinking)), Err(StoreError::NoSpace));
            assert_eq!(stored_blocks(&path), before, "{extent}");
            assert_eq!(is_kept(&object), (true, true, true, false, false), "{extent}");
            assert_eq!(object.stat().unwrap().unwrap().size_bytes, 20 << 20);
        }
    }
    assert_eq!(object.read(2 << 20, 10_000).unwrap(), [8; 10_000][..]);
    // What is there already takes nothing of what is left, which may be nothing.
    object.allocate(Extent::at(8 << 20, 1 << 20), true, Some(&|| 0)).unwrap();
    object.allocate(Extent::new(0, 18 << 20), true, Some(&|| 19 << 20)).unwrap();
    assert!(stored_blocks(&path) > before + (15 << 11));
}
