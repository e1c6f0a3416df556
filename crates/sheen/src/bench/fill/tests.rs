use super::{PER_DIRECTORY, directory, disk_bytes, make};
use crate::sys;
use std::fs;

#[test]
fn every_file_is_made_once_and_directories_hold_a_thousand() {
    let dir = tempfile::tempdir().expect("a directory");
    let made = make(dir.path(), 2 * PER_DIRECTORY + 1, 3).expect("made");
    let counts =
        (0..3).map(|number| fs::read_dir(directory(dir.path(), number)).expect("it is there").count());
    assert_eq!(counts.collect::<Vec<_>>(), [1000, 1000, 1]);
    assert!(made.tenths_per_second.iter().all(|rate| *rate > 0.0));
    assert!(directory(dir.path(), 2).join("file2000").exists());
}

#[test]
fn a_file_that_cannot_be_made_ends_it() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("d0")).expect("in the way");
    assert!(make(dir.path(), 10, 2).is_err());
}

#[test]
fn what_is_on_disk_and_in_memory_is_found() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("below")).expect("a directory");
    let before = disk_bytes(dir.path());
    fs::write(dir.path().join("below/file"), vec![1; 100_000]).expect("a file");
    fs::File::open(dir.path().join("below/file")).and_then(|file| file.sync_all()).expect("on disk");
    assert!(disk_bytes(dir.path()) >= before + 100_000);
    assert!(sys::anon_bytes(std::process::id()).is_some_and(|bytes| bytes > 0));
}
