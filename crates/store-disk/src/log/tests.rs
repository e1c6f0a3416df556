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
