#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn a_target_is_made_once_and_served_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ost");
    make(&path, TargetId::ost(3), "fs", &["h:1".to_owned()]).unwrap();
    assert!(make(&path, TargetId::ost(3), "fs", &[]).unwrap_err().to_string().contains("already"));
    let opened = open(&path).unwrap();
    assert_eq!((opened.id, opened.fsname.as_str()), (TargetId::ost(3), "fs"));
    assert_eq!(opened.mgs, ["h:1"]);
    let message = open(&path).unwrap_err().to_string();
    assert!(
        message.contains("already running") && message.contains(&std::process::id().to_string()),
        "{message}"
    );
    drop(opened);
    open(&path).unwrap();
}

#[test]
fn a_directory_with_something_in_it_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("x"), "").unwrap();
    assert!(make(dir.path(), TargetId::MGT, "", &[]).unwrap_err().to_string().contains("not empty"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert!(open(dir.path()).unwrap_err().to_string().contains("not a target"));
}

/// What mkfs has begun is gone when it fails, directories that it made too; what was there before stays.
#[test]
fn a_failed_mkfs_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/parent/ost");
    // No file system takes this: a directory stands where a file shall be.
    let made = |path: &Path| {
        fs::create_dir_all(path.join("target.json.new")).unwrap();
        make(path, TargetId::ost(0), "fs", &["h:1".to_owned()]).unwrap_err();
    };
    fs::create_dir(dir.path().join("there")).unwrap();
    made(&dir.path().join("there"));
    assert!(dir.path().join("there").exists());
    assert!(!dir.path().join("there/target.json").exists());
    fs::create_dir(dir.path().join("begun")).unwrap();
    fs::write(dir.path().join("begun/lock"), "").unwrap();
    fs::write(dir.path().join("begun/mgsnode"), "h").unwrap();
    remove_begun(&dir.path().join("begun")).unwrap();
    make(&path, TargetId::ost(0), "fs", &[]).unwrap();
    remove_begun(&path).unwrap_err();
    open(&path).unwrap();
}

/// A killed mkfs has not written the superblock yet: the next one takes the directory.
#[test]
fn a_begun_target_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(MGSNODE), "h:1\nh").unwrap();
    make(dir.path(), TargetId::ost(0), "fs", &["h:2".to_owned()]).unwrap();
    assert_eq!(open(dir.path()).unwrap().mgs, ["h:2"]);
}

#[test]
fn a_damaged_address_of_the_management_server_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    make(&path, TargetId::mdt(1), "fs", &["h:1".to_owned()]).unwrap();
    for damaged in [&b"\xff\xfe"[..], b"h:x\n", b"\n\n", b"h:1\nh h:1\n"] {
        fs::write(path.join(MGSNODE), damaged).unwrap();
        let message = open(&path).unwrap_err().to_string();
        assert!(message.contains("is damaged") && !message.contains('\n'), "{message}");
    }
}

/// Epochs of one coordinator say nothing of those of another.
#[test]
fn with_another_coordinator_epochs_begin_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ost");
    make(&path, TargetId::ost(3), "fs", &["h:1".to_owned()]).unwrap();
    let opened = open(&path).unwrap();
    opened.keep_coordinator("etcd 5").unwrap();
    assert_eq!(opened.keep_owned(Epoch(7)).unwrap(), None);
    opened.keep_taken(Epoch(7)).unwrap();
    drop(opened);
    check_owned(&peek(&path).unwrap(), Epoch(0), "it", false).unwrap_err();
    fs::remove_file(path.join("coordinator")).unwrap();
    open(&path).unwrap().keep_coordinator("mgs").unwrap();
    let label = peek(&path).unwrap();
    check_owned(&label, Epoch(0), "it", false).unwrap();
    check_owned(&label, Epoch(1), "it", false).unwrap();
}

/// Once served with failover, a target is served by nobody who asks another coordinator, or none.
#[test]
fn a_coordinator_is_written_down_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ost");
    make(&path, TargetId::ost(3), "fs", &["h:1".to_owned()]).unwrap();
    let said = |result: Result<()>| result.unwrap_err().to_string();
    let opened = open(&path).unwrap();
    check_coordinators(&[opened.label()], false).unwrap();
    opened.keep_coordinator("etcd 5").unwrap();
    assert!(said(open_alone(&path).map(drop)).contains("--failover"), "not that it runs already");
    drop(opened);
    assert!(said(open_alone(&path).map(drop)).contains("--failover"));
    let label = peek(&path).unwrap();
    assert_eq!(label.coordinator.as_deref(), Some("etcd 5"));
    check_coordinators(std::slice::from_ref(&label), true).unwrap();
    assert!(said(check_coordinators(&[label], false)).contains("kept by etcd"));
    let opened = open(&path).unwrap();
    opened.keep_coordinator("etcd 5").unwrap();
    let other = said(opened.keep_coordinator("etcd 6"));
    assert!(other.contains("etcd 5") && other.contains("etcd 6") && other.contains("coordinator"), "{other}");
    opened.keep_coordinator(coordinate::MGS_IDENTITY).unwrap_err();
    drop(opened);
    fs::write(path.join("coordinator"), "\n").unwrap();
    assert!(peek(&path).unwrap_err().to_string().contains("damaged"));
    fs::remove_file(path.join("coordinator")).unwrap();
    open_alone(&path).unwrap();
}
