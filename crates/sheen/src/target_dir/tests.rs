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
