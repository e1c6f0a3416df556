#![allow(clippy::unwrap_used)]

use super::*;

const STEP_COUNT: usize = 200;

fn worked(load: &mut Unfailing, seed: u64) {
    let mut random = Random::new(seed);
    for _ in 0..STEP_COUNT {
        load.step(&mut random).unwrap();
    }
}

#[test]
fn a_load_on_a_right_file_system_finds_nothing_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let mut load = Unfailing::new(directory.path().join("load")).unwrap();
    worked(&mut load, 1);
    load.check().unwrap();
}

#[test]
fn a_load_notices_changed_lost_and_added_files() {
    let directory = tempfile::tempdir().unwrap();
    let mut load = Unfailing::new(directory.path().to_owned()).unwrap();
    worked(&mut load, 2);
    let (name, bytes) = load.model.iter().find(|(_, bytes)| bytes.len() > 2).unwrap();
    let path = directory.path().join(name);
    fs::write(&path, &bytes[1..]).unwrap();
    assert!(load.check().is_err(), "a byte is missing");
    fs::remove_file(&path).unwrap();
    assert!(load.check().is_err(), "a file is missing");
    fs::write(&path, bytes).unwrap();
    load.check().unwrap();
    fs::write(directory.path().join("stranger"), b"").unwrap();
    assert!(load.check().is_err(), "a file too many");
}

#[test]
fn synced_files_are_missed_when_they_are_gone_or_old() {
    let directory = tempfile::tempdir().unwrap();
    let mut synced = SyncedFiles::default();
    let (stop, mut random) = (Stop::default(), Random::new(3));
    synced.steps(directory.path(), &stop, &mut random, 40).unwrap();
    assert_eq!(stop.acknowledged_count(), 40);
    assert!(synced.check(directory.path()).unwrap() > 0);
    let (name, known) = synced.known.iter().find(|(_, known)| known.synced > 0).unwrap();
    let path = directory.path().join(name);
    fs::write(&path, contents(name, known.synced - 1)).unwrap();
    assert!(synced.check(directory.path()).is_err(), "an older state");
    fs::remove_file(&path).unwrap();
    assert!(synced.check(directory.path()).is_err(), "a lost file");
}

#[test]
fn a_hole_in_a_sequence_is_no_prefix() {
    let directory = tempfile::tempdir().unwrap();
    let mut sequence = Sequence::default();
    let made = 5;
    for _ in 0..made {
        sequence.step(directory.path()).unwrap();
    }
    fs::remove_dir(directory.path().join(format!("{:06}", made - 1))).unwrap();
    assert_eq!(sequence.check_prefix(directory.path()).unwrap(), made - 1, "a shorter one is a prefix");
    fs::remove_dir(directory.path().join("000000")).unwrap();
    assert!(sequence.check_prefix(directory.path()).is_err());
}
