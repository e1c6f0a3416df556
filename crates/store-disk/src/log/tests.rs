#![allow(clippy::unwrap_used)]
use super::*;
use std::collections::BTreeSet;
use std::sync::Barrier;

/// The checkpointer prepares a spare segment while the log, which has none, makes one for itself.
#[test]
fn segments_that_are_made_at_the_same_time_are_different_files() {
    const THREAD_COUNT: usize = 4;
    const SEGMENT_COUNT: usize = 150;
    let directory = tempfile::tempdir().unwrap();
    let barrier = Barrier::new(THREAD_COUNT);
    let make = || {
        barrier.wait();
        let segments = (0..SEGMENT_COUNT).map(|_| create_file(directory.path()).unwrap().1);
        segments.collect::<Vec<PathBuf>>()
    };
    let made: Vec<PathBuf> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREAD_COUNT).map(|_| scope.spawn(make)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(made.iter().collect::<BTreeSet<_>>().len(), THREAD_COUNT * SEGMENT_COUNT);
}

/// The device grew: segments of before are too small, and a full device would have nothing to lengthen them with.
#[test]
fn a_covered_segment_of_another_size_is_not_used_again() {
    const LARGE_BYTES: u64 = 256 << 10;
    let directory = tempfile::tempdir().unwrap();
    let ballast = Arc::new(Ballast::none());
    let segment = |number, bytes| {
        let made = create_segment(directory.path(), bytes, Syncing::Skipped, &ballast, false).unwrap();
        Segment { number, ..made }
    };
    let filled = [128 << 10, LARGE_BYTES, 128 << 10];
    let filled = (1..).zip(filled).map(|(number, bytes)| segment(number, bytes)).collect();
    let start = LogStart {
        directory: directory.path().to_path_buf(),
        segment_bytes: LARGE_BYTES,
        syncing: Syncing::Skipped,
        ballast: ballast.clone(),
        seed: 1,
        epoch: Epoch(1),
        segment_number: 4,
        last: Transno(0),
        filled,
        spare: Vec::new(),
        spare_count_max: 8,
    };
    let mut log = Log::start(start).unwrap();
    log.recycle(3);
    assert_eq!(log.spare.len(), 1);
    let sizes =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    assert_eq!(sizes.collect::<Vec<_>>(), [LARGE_BYTES; 2]);
}
