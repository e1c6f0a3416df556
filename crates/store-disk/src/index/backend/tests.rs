#![allow(clippy::unwrap_used)]

use super::*;
use base::Rng;

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
        let offset = if rng.one_in(2) { near_boundary } else { rng.below(model.len() as u64 - 50_000) };
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
