#![allow(clippy::unwrap_used)]

use super::*;
use crate::{Superblock, TargetDirectory};
use base::TargetId;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A format that never was: its superblock says `name` for `fsname` and has no checksum, and its rows are in capitals.
const OLD: &str = r#"{"format_version": 0, "name": "old", "target": "MDT0001"}"#;

const OLD_STEPS: &[Step] = &[Step {
    from: 0,
    about: "a checksum of the superblock; small letters",
    superblock: new_text,
    rows: small_letters,
}];

fn new_text(old: &[u8]) -> Result<Vec<u8>, String> {
    let value: serde_json::Value = serde_json::from_slice(old).map_err(|error| error.to_string())?;
    let fsname = value["name"].as_str().ok_or("it has no name")?;
    let superblock = Superblock {
        fsname: fsname.to_owned(),
        uuid: "0123456789abcdef0123456789abcdef".to_owned(),
        ..Superblock::new(fsname, TargetId::mdt(1)).map_err(|error| error.to_string())?
    };
    Ok(crate::directory::text_of(&superblock))
}

fn small_letters(rows: &Path) -> io::Result<()> {
    for file in ["log/1", "base"] {
        let text = fs::read_to_string(rows.join(file))?;
        assert!(text.chars().all(|letter| letter.is_ascii_uppercase()), "it is changed once");
        fs::write(rows.join(file), text.to_ascii_lowercase())?;
    }
    Ok(())
}

fn old_directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("meta/log")).unwrap();
    fs::create_dir_all(dir.path().join("objects")).unwrap();
    for (name, text) in
        [("target.json", OLD), ("meta/log/1", "LOG"), ("meta/base", "BASE"), ("objects/7", "DATA")]
    {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn read(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap_or_default()
}

fn check_new(dir: &Path) {
    let opened = TargetDirectory::open(dir).unwrap();
    assert_eq!(opened.superblock().fsname, "old");
    assert_eq!((read(dir, "meta/log/1"), read(dir, "meta/base")), ("log".to_owned(), "base".to_owned()));
    assert_eq!(read(dir, "objects/7"), "DATA");
    assert!(!is_begun(dir));
    let kept = ["target.json", "meta/log/1", "meta/base"].map(|name| read(&dir.join("format-0"), name));
    assert_eq!(kept, [OLD, "LOG", "BASE"]);
}

/// All names and bytes below a directory, but for the lock's.
fn contents(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path))
        } else {
            found.push((path.clone(), fs::read_to_string(&path).unwrap()))
        }
    }
    found.retain(|(path, _)| !path.ends_with("lock"));
    found.sort();
    found
}

#[test]
fn an_old_directory_is_brought_to_this_format_and_its_metadata_are_kept() {
    let dir = old_directory();
    let refused = TargetDirectory::open(dir.path()).unwrap_err().to_string();
    assert!(refused.contains("run sheen upgrade"), "{refused}");
    let done = upgrade(dir.path(), OLD_STEPS, &mut |_| ()).unwrap();
    assert!(matches!(&done, Upgraded::Done { from: 0, copy, .. } if copy.ends_with("format-0")), "{done:?}");
    check_new(dir.path());
    assert_eq!(upgrade(dir.path(), OLD_STEPS, &mut |_| ()).unwrap(), Upgraded::NothingToDo);
    check_new(dir.path());
}

/// Dies at the point of this number; false when it has come to its end before.
fn dies_at(dir: &Path, point: usize) -> bool {
    let mut seen = 0;
    let mut at = |_| {
        if seen == point {
            resume_unwind(Box::new("killed"));
        }
        seen += 1;
    };
    catch_unwind(AssertUnwindSafe(|| upgrade(dir, OLD_STEPS, &mut at).unwrap())).is_err()
}

#[test]
fn killed_anywhere_it_is_old_or_refused_and_the_next_attempt_ends_it() {
    let mut ends = Vec::new();
    for point in 0.. {
        let dir = old_directory();
        if !dies_at(dir.path(), point) {
            break;
        }
        let is_old = read(dir.path(), "target.json") == OLD;
        if is_old {
            assert_eq!(
                (read(dir.path(), "meta/log/1"), read(dir.path(), "meta/base")),
                ("LOG".into(), "BASE".into())
            );
        }
        match TargetDirectory::open(dir.path()) {
            Ok(opened) => {
                drop(opened);
                check_new(dir.path());
            }
            Err(DirectoryError::OlderVersion { .. }) => assert!(is_old),
            Err(DirectoryError::Upgrading { .. }) => assert!(!is_old),
            Err(other) => panic!("{other}"),
        }
        ends.push(upgrade(dir.path(), OLD_STEPS, &mut |_| ()).unwrap());
        check_new(dir.path());
    }
    let of = |is: fn(&Upgraded) -> bool| ends.iter().filter(|end| is(end)).count();
    assert_eq!(of(|end| matches!(end, Upgraded::Done { .. })), 8, "{ends:?}");
    assert_eq!(of(|end| matches!(end, Upgraded::Completed { .. })), 3, "{ends:?}");
    assert_eq!(of(|end| matches!(end, Upgraded::NothingToDo)), 1, "{ends:?}");
}

/// It dies again and again, each time one point later than it had begun.
#[test]
fn killed_over_and_over_it_ends_all_the_same() {
    let dir = old_directory();
    // Before the new superblock is in its place.
    for point in 0..9 {
        assert!(dies_at(dir.path(), point));
    }
    while dies_at(dir.path(), 0) {}
    check_new(dir.path());
}

#[test]
fn what_is_refused_is_left_as_it_is() {
    let dir = old_directory();
    let before = contents(dir.path());
    let refuse = |steps: &[Step], words: &str| {
        let error = upgrade(dir.path(), steps, &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains(words) && error.lines().count() == 1, "{error}");
        assert_eq!(contents(dir.path()), before, "{words}");
    };
    refuse(STEPS, "no step leads from format 0");
    let fails: fn(&Path) -> io::Result<()> = |_| Err(io::Error::other("it is too old"));
    refuse(&[Step { from: 0, about: "", superblock: new_text, rows: fails }], "it is too old");
    let nonsense: fn(&[u8]) -> Result<Vec<u8>, String> = |_| Ok(b"{\"format_version\": 1}".to_vec());
    refuse(&[Step { from: 0, about: "", superblock: nonsense, rows: small_letters }], "is damaged");

    let served = crate::directory::lock(dir.path()).unwrap();
    refuse(OLD_STEPS, "already running as pid");
    drop(served);

    fs::create_dir_all(dir.path().join("format-0/meta")).unwrap();
    refuse(OLD_STEPS, "move it away");
}

#[test]
fn a_newer_one_and_what_is_no_target_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refusal = || upgrade(dir.path(), OLD_STEPS, &mut |_| ()).unwrap_err().to_string();
    assert!(refusal().contains("is not a target"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "not even a lock is made");
    fs::write(dir.path().join("target.json"), "{\"format_version\": 2}").unwrap();
    assert!(refusal().contains("has format 2, this program reads 1; start it with the version"));
    fs::write(dir.path().join("target.json"), "{}").unwrap();
    assert!(refusal().contains("is damaged"));
}

/// Whoever opens a pipe waits for somebody who writes.
#[test]
fn a_superblock_that_is_no_file_is_refused_and_waited_for_by_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let superblock = dir.path().join("target.json");
    let refused = |what: &str| {
        let upgraded = upgrade(dir.path(), OLD_STEPS, &mut |_| ()).unwrap_err();
        let opened = TargetDirectory::open(dir.path()).unwrap_err();
        for error in [upgraded.to_string(), opened.to_string()] {
            assert!(error.starts_with("cannot use "), "{what}: {error}");
        }
    };
    let made = std::process::Command::new("mkfifo").arg(&superblock).status().unwrap();
    assert!(made.success());
    refused("a pipe");
    fs::remove_file(&superblock).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &superblock).unwrap();
    refused("a device");
    fs::remove_file(&superblock).unwrap();
    fs::create_dir(&superblock).unwrap();
    refused("a directory");
}

/// A directory of the name that upgrades use, which none has made.
#[test]
fn what_no_upgrade_has_made_is_not_completed() {
    let dir = old_directory();
    upgrade(dir.path(), OLD_STEPS, &mut |_| ()).unwrap();
    fs::rename(dir.path().join("format-0"), dir.path().join("kept elsewhere")).unwrap();
    fs::create_dir(dir.path().join("upgrade.new")).unwrap();
    let before = contents(dir.path());
    let refuse = || {
        let error = upgrade(dir.path(), OLD_STEPS, &mut |_| ()).unwrap_err();
        assert!(matches!(error, UpgradeError::Strange { .. }), "{error}");
        assert!(error.to_string().contains("upgrade.new is there, and no upgrade has made it; move it away"));
    };
    refuse();
    assert_eq!(contents(dir.path()), before);
    for mark in ["from 0 to 1", "from 0 to 1\nx", "from -1 to 1\n", "", "from 0 to 1\n"] {
        // The last one says what it is, but there is no copy of what would be replaced.
        fs::write(dir.path().join("upgrade.new/formats"), mark).unwrap();
        refuse();
    }
}

/// A newer version of the program has begun, and was interrupted before its superblock was in its place. Its rows are nothing for this one.
#[test]
fn what_another_version_has_not_ended_is_not_taken_for_one_to_complete() {
    let dir = old_directory();
    upgrade(dir.path(), OLD_STEPS, &mut |_| ()).unwrap();
    let before = contents(dir.path());
    fs::create_dir_all(dir.path().join("upgrade.new/meta/log")).unwrap();
    fs::write(dir.path().join("upgrade.new/formats"), "from 1 to 2\n").unwrap();
    fs::write(dir.path().join("upgrade.new/meta/log/1"), "of format 2").unwrap();
    // Whoever wants room removes the rows that were kept.
    let kept: Vec<_> = before
        .iter()
        .filter(|(path, _)| !path.starts_with(dir.path().join("format-0/meta")))
        .cloned()
        .collect();
    fs::remove_dir_all(dir.path().join("format-0/meta")).unwrap();
    let refused = TargetDirectory::open(dir.path()).map(drop).unwrap_err();
    assert!(matches!(refused, DirectoryError::Upgrading { .. }), "{refused}");
    assert_eq!(upgrade(dir.path(), OLD_STEPS, &mut |_| ()).unwrap(), Upgraded::Removed { to: 2 });
    assert_eq!(contents(dir.path()), kept);
    assert_eq!(upgrade(dir.path(), OLD_STEPS, &mut |_| ()).unwrap(), Upgraded::NothingToDo);
}

/// And one whose superblock is in its place is completed before anything else, or its rows would be lost.
#[test]
fn what_another_version_has_to_complete_is_completed_before_the_next_step() {
    let dir = old_directory();
    fs::rename(dir.path().join("meta"), dir.path().join("new")).unwrap();
    fs::create_dir_all(dir.path().join("upgrade.new")).unwrap();
    fs::rename(dir.path().join("new"), dir.path().join("upgrade.new/meta")).unwrap();
    fs::write(dir.path().join("upgrade.new/formats"), "from 9 to 0\n").unwrap();
    fs::create_dir_all(dir.path().join("meta")).unwrap();
    fs::write(dir.path().join("meta/rows"), "of format 9").unwrap();
    fs::create_dir_all(dir.path().join("format-9")).unwrap();
    fs::write(dir.path().join("format-9/target.json"), "of format 9").unwrap();
    let done = upgrade(dir.path(), OLD_STEPS, &mut |_| ()).unwrap();
    assert!(matches!(done, Upgraded::Done { from: 0, .. }), "{done:?}");
    check_new(dir.path());
    assert_eq!(read(dir.path(), "format-9/meta/rows"), "of format 9");
}

#[test]
fn without_room_for_the_copy_nothing_is_begun() {
    let dir = old_directory();
    // Larger than any device: a hole takes no space, and a copy might.
    let hole = fs::File::create(dir.path().join("meta/hole")).unwrap();
    let available_bytes = device::space(dir.path()).unwrap().avail_bytes;
    if hole.set_len(available_bytes.saturating_mul(2).max(1 << 40)).is_err() {
        hole.set_len(available_bytes + 1).unwrap();
    }
    let error = upgrade(dir.path(), OLD_STEPS, &mut |_| ()).unwrap_err();
    assert!(matches!(error, UpgradeError::NoRoom { .. }), "{error}");
    assert!(!is_begun(dir.path()) && !dir.path().join("format-0").exists());
    assert_eq!(read(dir.path(), "target.json"), OLD);
}
