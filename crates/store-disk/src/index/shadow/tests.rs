#![allow(clippy::unwrap_used)]

use super::*;
use crate::device::{self, Syncing};
use crate::space::Ballast;
use base::Rng;
use std::path::Path;
use std::sync::Arc;

fn open(path: &Path) -> ChecksummedFile {
    let file = device::open(path, true).unwrap();
    ChecksummedFile::new(file, Syncing::Skipped, Arc::new(Ballast::none()), Arc::default()).unwrap()
}

#[test]
fn what_is_written_is_read_and_the_file_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("base");
    let mut model = vec![7; 10 * BLOCK_BYTES as usize];
    let file = open(&path);
    file.set_len(model.len() as u64).unwrap();
    // The first block is for a header.
    model[..BLOCK_BYTES as usize].fill(0);
    file.write(BLOCK_BYTES, &model[BLOCK_BYTES as usize..]).unwrap();
    file.sync_data().unwrap();
    let before = std::fs::read(&path).unwrap();
    let shadow = Shadow::new(Arc::new(open(&path))).unwrap();
    let mut rng = Rng::new(3);
    for round in 0..300 {
        if rng.one_in(10) {
            model.resize((1 + rng.below(12 * BLOCK_BYTES)) as usize, 0);
            shadow.set_len(model.len() as u64).unwrap();
            model.resize(model.len() + 5000, 0);
            shadow.set_len(model.len() as u64).unwrap();
        }
        let at = rng.below(model.len() as u64) as usize;
        let byte_count = (rng.below(9000) as usize).min(model.len() - at);
        let data: Vec<u8> = (0..byte_count).map(|_| rng.next_u64() as u8).collect();
        shadow.write(at as u64, &data).unwrap();
        model[at..at + byte_count].copy_from_slice(&data);
        let mut read = vec![1; model.len()];
        shadow.read(0, &mut read).unwrap();
        assert!(read == model, "round {round}");
    }
    assert!(shadow.read(model.len() as u64, &mut [0]).is_err(), "beyond the end");
    shadow.sync_data().unwrap();
    drop(shadow);
    assert!(std::fs::read(&path).unwrap() == before);
}
