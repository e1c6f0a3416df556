#![allow(clippy::unwrap_used)]

use super::*;

fn superblock() -> Superblock {
    Superblock::new("sheen", TargetId::ost(3)).unwrap()
}

#[test]
fn a_target_is_found_again_and_knows_whether_it_was_served() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    let made = TargetDirectory::create(&path, superblock(), &[]).unwrap().superblock().clone();
    let opened = TargetDirectory::open(&path).unwrap();
    assert_eq!(*opened.superblock(), made);
    assert_eq!(made.target_id(), Some(TargetId::ost(3)));
    assert!(!opened.was_served());
    opened.set_served().unwrap();
    opened.set_served().unwrap();
    drop(opened);
    let opened = TargetDirectory::open(&path).unwrap();
    assert!(opened.was_served());
    assert_eq!(opened.superblock().generation, 1);
    assert!(opened.check_fsname("sheen").is_ok());
    let error = opened.check_fsname("other").unwrap_err().to_string();
    assert!(error.ends_with("belongs to the file system sheen, not to other"), "{error}");
}

#[test]
fn one_owner_at_a_time_and_the_second_learns_who() {
    let dir = tempfile::tempdir().unwrap();
    let first = TargetDirectory::create(dir.path(), superblock(), &[]).unwrap();
    let error = TargetDirectory::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains(&format!("already running as pid {}", std::process::id())), "{error}");
    assert_eq!(TargetDirectory::served_by(dir.path()), Some(std::process::id()));
    // As from within a container that has the directory too.
    let mut somebody = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    std::fs::write(dir.path().join(LOCK_NAME), format!("{}\n", somebody.id())).unwrap();
    let named = TargetDirectory::served_by(dir.path());
    somebody.kill().unwrap();
    somebody.wait().unwrap();
    assert_eq!(named, None, "who has nothing to do with it");
    drop(first);
    assert_eq!(TargetDirectory::served_by(dir.path()), None);
    TargetDirectory::open(dir.path()).unwrap();
}

/// Where nothing can be written, who looks at a target does not say so in its lock: whoever had it before is not who has it.
#[test]
fn who_only_reads_keeps_owners_out_and_is_not_taken_for_the_last_one() {
    let dir = tempfile::tempdir().unwrap();
    drop(TargetDirectory::create(dir.path(), superblock(), &[]).unwrap());
    let mut somebody = std::process::Command::new("true").spawn().unwrap();
    somebody.wait().unwrap();
    std::fs::write(dir.path().join(LOCK_NAME), format!("{}\n", somebody.id())).unwrap();
    let first = lock_to_read(dir.path()).unwrap();
    let second = lock_to_read(dir.path()).unwrap();
    for reader in [first, second] {
        let error = TargetDirectory::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("already running as pid unknown"), "{error}");
        drop(reader);
    }
    let owner = TargetDirectory::open(dir.path()).unwrap();
    let error = lock_to_read(dir.path()).unwrap_err().to_string();
    assert!(error.contains(&format!("already running as pid {}", std::process::id())), "{error}");
    drop(owner);
}

#[test]
fn what_is_there_is_not_made_again() {
    let dir = tempfile::tempdir().unwrap();
    drop(TargetDirectory::create(dir.path(), superblock(), &[]).unwrap());
    let again = TargetDirectory::create(dir.path(), superblock(), &[]);
    assert!(matches!(again, Err(DirectoryError::Exists { .. })));
    let full = dir.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("thesis.tex"), b"x").unwrap();
    assert!(matches!(
        TargetDirectory::create(&full, superblock(), &[]),
        Err(DirectoryError::NotEmpty { .. })
    ));
    assert!(matches!(TargetDirectory::open(&full), Err(DirectoryError::NotATarget { .. })));
    assert!(matches!(
        TargetDirectory::open(&dir.path().join("none")),
        Err(DirectoryError::NotATarget { .. })
    ));
}

/// A target is never there without what belongs to it: the superblock comes last, and what was begun is taken up.
#[test]
fn files_beside_the_superblock_come_first() {
    let dir = tempfile::tempdir().unwrap();
    let beside: &[(&str, &[u8])] = &[("address", b"h:1\n")];
    std::fs::write(dir.path().join("address"), "an interrupted mkfs wrote something longer").unwrap();
    std::fs::write(dir.path().join("target.json.new"), "half").unwrap();
    assert!(matches!(
        TargetDirectory::create(dir.path(), superblock(), &[]),
        Err(DirectoryError::NotEmpty { .. })
    ));
    drop(TargetDirectory::create(dir.path(), superblock(), beside).unwrap());
    assert_eq!(std::fs::read(dir.path().join("address")).unwrap(), b"h:1\n");
    TargetDirectory::open(dir.path()).unwrap();
    // A file beside it that cannot be written: there is no superblock.
    let other = tempfile::tempdir().unwrap();
    std::fs::create_dir(other.path().join("address")).unwrap();
    assert!(TargetDirectory::create(other.path(), superblock(), beside).is_err());
    assert!(!other.path().join("target.json").exists());
}

#[test]
fn a_flipped_bit_or_a_cut_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    drop(TargetDirectory::create(dir.path(), superblock(), &[]).unwrap());
    let path = dir.path().join("target.json");
    let sound = std::fs::read(&path).unwrap();
    let made = TargetDirectory::peek(dir.path()).unwrap();
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 7);
        std::fs::write(&path, &bytes).unwrap();
        match TargetDirectory::peek(dir.path()) {
            // White space between the fields means nothing.
            Ok(read) => assert_eq!(read, made),
            Err(error) => assert_eq!(error.to_string().lines().count(), 1),
        }
        std::fs::write(&path, &sound[..at]).unwrap();
        match TargetDirectory::peek(dir.path()) {
            Ok(read) => assert_eq!(read, made),
            Err(error) => assert_eq!(error.to_string().lines().count(), 1),
        }
    }
}

#[test]
fn other_versions_and_features_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let odd = Superblock { features: vec!["holograms".to_string()], ..superblock() };
    drop(TargetDirectory::create(dir.path(), odd, &[]).unwrap());
    let error = TargetDirectory::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("needs the feature holograms"), "{error}");
    for (version, more) in [(2, ", \"new\": []"), (0, "")] {
        let other = format!("{{\"format_version\": {version}{more}}}");
        std::fs::write(dir.path().join("target.json"), &other).unwrap();
        let error = TargetDirectory::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("has format {version}, this program reads 1")), "{error}");
        let hint = if version > FORMAT_VERSION { "the version that made it" } else { "run sheen upgrade" };
        assert!(error.contains(hint), "{error}");
        assert_eq!(std::fs::read_to_string(dir.path().join("target.json")).unwrap(), other);
    }
}
