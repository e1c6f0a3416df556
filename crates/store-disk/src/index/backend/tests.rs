#![allow(clippy::unwrap_used)]

use super::*;
use base::Rng;
use std::os::unix::fs::FileExt;

fn new_file(dir: &tempfile::TempDir) -> ChecksummedFile {
    let path = dir.path().join("base");
    let space = device::space(dir.path()).unwrap();
    let ballast = Arc::new(Ballast::take(dir.path().join("ballast"), &space));
    ChecksummedFile::new(device::open(&path, true).unwrap(), Syncing::Skipped, ballast, Arc::default())
        .unwrap()
}

#[test]
fn lengths_map_there_and_back() {
    for length in [0, 1, 4095, 4096, 4097, GROUP_BYTES - 1, GROUP_BYTES, GROUP_BYTES + 1, 3 * GROUP_BYTES] {
        assert_eq!(length_of_stored(stored_length(length)), length);
    }
}

#[test]
fn random_writes_match_bytes_also_after_opening_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = new_file(&dir);
    let mut model = vec![0_u8; (GROUP_BYTES + 100 * BLOCK_BYTES) as usize];
    file.set_len(model.len() as u64).unwrap();
    let mut rng = Rng::new(5);
    for round in 0..400 {
        let near_boundary = GROUP_BYTES - 20_000 + rng.below(40_000);
        // The first block is for a header.
        let anywhere = BLOCK_BYTES + rng.below(model.len() as u64 - 60_000);
        let offset = if rng.one_in(2) { near_boundary } else { anywhere };
        let aligned = if rng.one_in(2) { offset / BLOCK_BYTES * BLOCK_BYTES } else { offset } as usize;
        let data: Vec<u8> = (0..1 + rng.below(40_000)).map(|_| rng.next_u64() as u8).collect();
        file.write(aligned as u64, &data).unwrap();
        model[aligned..aligned + data.len()].copy_from_slice(&data);
        let mut read = vec![0; 30_000];
        let from = aligned.saturating_sub(5000).min(model.len() - read.len());
        file.read(from as u64, &mut read).unwrap();
        assert!(read == model[from..from + read.len()], "round {round}");
        if round % 100 == 99 {
            file.sync_data().unwrap();
            file = new_file(&dir);
        }
    }
}

/// Who died after it had made the file shorter had not written what becomes of the checksums.
#[test]
fn checksums_of_blocks_that_are_gone_are_no_damage_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let file = new_file(&dir);
    let mut blocks = vec![7; 10 * BLOCK_BYTES as usize];
    blocks[..4].copy_from_slice(b"redb");
    blocks[SEAL_OFFSET..HEADER_BYTES].fill(0);
    file.set_len(blocks.len() as u64).unwrap();
    file.write(0, &blocks).unwrap();
    file.sync_data().unwrap();
    file.set_len(4 * BLOCK_BYTES).unwrap();
    drop(file);
    let file = new_file(&dir);
    file.check_whole().unwrap();
    file.clear_behind_end().unwrap();
    file.read_all().unwrap();
    assert_eq!(file.reads.damaged(), []);
    file.set_len(9 * BLOCK_BYTES).unwrap();
    file.read_all().unwrap();
    assert_eq!(file.reads.damaged(), []);
}

#[test]
fn growing_after_shrinking_reads_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let file = new_file(&dir);
    file.set_len(10 * BLOCK_BYTES).unwrap();
    file.write(0, &[7; 10 * BLOCK_BYTES as usize]).unwrap();
    file.set_len(4 * BLOCK_BYTES).unwrap();
    file.set_len(9 * BLOCK_BYTES).unwrap();
    let mut read = vec![1; 5 * BLOCK_BYTES as usize];
    file.read(4 * BLOCK_BYTES, &mut read).unwrap();
    assert!(read.iter().all(|b| *b == 0));
    assert!(file.read(9 * BLOCK_BYTES, &mut [0]).is_err(), "beyond the end");
}

#[test]
fn shrinking_by_whole_groups_lasts_and_leaves_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let file = new_file(&dir);
    let long = 3 * GROUP_BYTES;
    file.set_len(long).unwrap();
    file.write(0, &vec![7; long as usize]).unwrap();
    file.set_len(2 * BLOCK_BYTES).unwrap();
    file.sync_data().unwrap();
    assert_eq!(file.len().unwrap(), 2 * BLOCK_BYTES);
    let file = new_file(&dir);
    assert_eq!(file.len().unwrap(), 2 * BLOCK_BYTES, "the end came back with the checksums");
    file.set_len(long).unwrap();
    let mut read = vec![1; (long - 2 * BLOCK_BYTES) as usize];
    file.read(2 * BLOCK_BYTES, &mut read).unwrap();
    assert!(read.iter().all(|b| *b == 0));
}

#[test]
fn a_flipped_bit_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = new_file(&dir);
    file.set_len(3 * BLOCK_BYTES).unwrap();
    file.write(BLOCK_BYTES, &[7; 2 * BLOCK_BYTES as usize]).unwrap();
    file.sync_data().unwrap();
    let at = stored_offset(2 * BLOCK_BYTES + 77);
    device::write_all(&file.file, &[6], at).unwrap();
    let mut block = [0; BLOCK_BYTES as usize];
    file.read(BLOCK_BYTES, &mut block).unwrap();
    let error = file.read(2 * BLOCK_BYTES, &mut block).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

fn header() -> Vec<u8> {
    b"redb".iter().copied().chain((4..320).map(|n| n as u8)).collect()
}

#[test]
fn a_flipped_bit_of_the_header_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = new_file(&dir);
    file.set_len(3 * BLOCK_BYTES).unwrap();
    file.write(0, &header()).unwrap();
    let other = new_file(&dir);
    let read = || {
        let mut block = [1; BLOCK_BYTES as usize];
        other.read(0, &mut block).map(|()| block)
    };
    let sound = read().unwrap();
    assert!(sound[..320] == header() && sound[320..].iter().all(|byte| *byte == 0), "the seal is not redb's");
    let mut stored = [0; BLOCK_BYTES as usize];
    file.file.read_exact_at(&mut stored, stored_offset(0)).unwrap();
    for bit in 0..BLOCK_BYTES as usize * 8 {
        stored[bit / 8] ^= 1 << (bit % 8);
        device::write_all(&file.file, &stored, stored_offset(0)).unwrap();
        assert_eq!(read().unwrap_err().kind(), io::ErrorKind::InvalidData, "bit {bit}");
        stored[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(file.write(0, &header()).is_err(), "a header that was changed is not made sound again");
    device::write_all(&file.file, &stored, stored_offset(0)).unwrap();
    assert!(file.write(0, &header()).is_err(), "it has been seen damaged");
    new_file(&dir).write(0, &header()).unwrap();
}

#[test]
fn a_file_that_was_cut_says_so_and_one_that_shrinks_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let file = new_file(&dir);
    file.set_len(9 * BLOCK_BYTES).unwrap();
    file.write(0, &header()).unwrap();
    let read = || new_file(&dir).read(0, &mut [0; 320]);
    file.set_len(12 * BLOCK_BYTES).unwrap();
    read().unwrap();
    file.set_len(7 * BLOCK_BYTES).unwrap();
    read().unwrap();
    file.check_whole().unwrap();
    device::set_length(&file.file, stored_length(7 * BLOCK_BYTES) - 1).unwrap();
    assert_eq!(read().unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(file.check_whole().unwrap_err().kind(), io::ErrorKind::InvalidData);
    let left = file.file.metadata().unwrap().len();
    assert!(file.write(8 * BLOCK_BYTES, &[1; 9]).is_err() && file.set_len(20 * BLOCK_BYTES).is_err());
    assert_eq!(file.file.metadata().unwrap().len(), left, "a file that was cut grew again");
}

#[test]
fn a_header_without_a_seal_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = new_file(&dir);
    file.set_len(2 * BLOCK_BYTES).unwrap();
    device::write_all(&file.file, &header(), stored_offset(0)).unwrap();
    let mut read = [0; 320];
    file.read(0, &mut read).unwrap();
    assert!(read[..] == header());
    file.write(0, &read).unwrap();
    device::set_length(&file.file, stored_length(BLOCK_BYTES)).unwrap();
    assert!(file.read(0, &mut read).is_err());
}

/// One from before there were seals has written a header behind ours: what it leaves of our seal says nothing.
#[test]
fn a_header_that_a_program_without_seals_has_written_is_taken_and_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let file = new_file(&dir);
    file.set_len(3 * BLOCK_BYTES).unwrap();
    file.write(0, &header()).unwrap();
    file.sync_data().unwrap();
    let mut stored = [0; BLOCK_BYTES as usize];
    file.file.read_exact_at(&mut stored, stored_offset(0)).unwrap();
    stored[200] ^= 5;
    device::write_all(&file.file, &stored, stored_offset(0)).unwrap();
    let read = || {
        let mut block = [1; 320];
        new_file(&dir).read(0, &mut block).map(|()| block)
    };
    assert!(read().is_err(), "nobody has said that this was written");
    let checksum = crc32c::crc32c(&stored) ^ crc32c::crc32c(&[0; BLOCK_BYTES as usize]);
    device::write_all(&file.file, &checksum.to_le_bytes(), 0).unwrap();
    let found = read().unwrap();
    assert!(found[..] == stored[..320]);
    new_file(&dir).write(0, &found).unwrap();
    device::write_all(&file.file, &[0; 4], 0).unwrap();
    assert_eq!(read().unwrap(), found, "it is sealed");
}
