#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn a_target_is_made_once_and_served_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ost");
    make(&path, TargetId::ost(3), "fs", &["h:1".to_owned()]).unwrap();
    assert!(make(&path, TargetId::ost(3), "fs", &[]).unwrap_err().to_string().contains("already"));
    let open_once = open(&path).unwrap();
    assert_eq!((open_once.id, open_once.fsname.as_str()), (TargetId::ost(3), "fs"));
    let message = open(&path).unwrap_err().to_string();
    assert!(
        message.contains("served already") && message.contains(&std::process::id().to_string()),
        "{message}"
    );
    drop(open_once);
    open(&path).unwrap();
}

#[test]
fn a_directory_with_something_in_it_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("x"), "").unwrap();
    assert!(make(dir.path(), TargetId::MGT, "", &[]).unwrap_err().to_string().contains("not empty"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert!(open(dir.path()).unwrap_err().to_string().contains("is no target"));
}

#[test]
fn a_damaged_superblock_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    make(&path, TargetId::mdt(1), "fs", &[]).unwrap();
    let whole = fs::read(path.join(FILE)).unwrap();
    for length in 0..whole.len() - 3 {
        fs::write(path.join(FILE), &whole[..length]).unwrap();
        assert!(open(&path).unwrap_err().to_string().contains("is damaged"));
    }
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x11;
        fs::write(path.join(FILE), &flipped).unwrap();
        let _ = open(&path);
    }
}
