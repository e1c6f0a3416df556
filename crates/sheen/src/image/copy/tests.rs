#![allow(clippy::unwrap_used)]

use super::*;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, SystemTime};

#[test]
fn the_statistics_are_understood() {
    let said = "\nNumber of files: 1,234 (reg: 1,000, dir: 234)\nTotal file size: 98765 bytes\n";
    assert_eq!(counts(said), Some(Copied { file_count: 1234, total_bytes: 98765 }));
    assert_eq!(counts("Number of files: 12"), None);
    assert_eq!(counts("Number of files: x\nTotal file size: 1 bytes"), None);
}

#[test]
fn progress_is_told_from_other_lines() {
    let far = |line| Far::of(line).map(|far| (far.bytes, far.files));
    let between = "     32768  45%   10.23MB/s    0:00:12 (xfr#5, to-chk=169/396)";
    assert_eq!(far(between), Some((32768, Some((227, 396)))));
    assert_eq!(far("     32768  45%   10.23MB/s    0:00:12"), Some((32768, None)));
    assert_eq!(
        far("     32768  45%   10.23MB/s    0:00:12 (xfr#5, to-chk=9/3)"),
        Some((32768, Some((0, 3))))
    );
    assert_eq!(far("32768  45%  (xfr#5, to-chk=x/396)"), Some((32768, None)));
    assert_eq!(far("Number of files: 12"), None);
    assert_eq!(far("12 files"), None);
    assert_eq!(far(""), None);
}

#[test]
fn lines_end_with_a_carriage_return_too() {
    let mut taken = Vec::new();
    let kept = follow(&b"1 1%\r2 2%\rNumber\n\xff"[..], |line| {
        let is_taken = Far::of(line).is_some();
        taken.extend(is_taken.then(|| line.to_owned()));
        is_taken
    });
    assert_eq!(taken, ["1 1%", "2 2%"]);
    assert_eq!(kept, "Number\n\u{fffd}\n");
}

#[test]
fn a_root_gets_an_init_unless_one_is_asked_for() {
    assert_eq!(included(None), "systemd-sysv");
    assert_eq!(included(Some("ssh,udev")), "systemd-sysv,ssh,udev");
    assert_eq!(included(Some("ssh,sysvinit-core")), "ssh,sysvinit-core");
    assert_eq!(included(Some("systemd-sysv")), "systemd-sysv");
}

/// Of the same size, and changed in the same second.
#[test]
fn a_change_within_a_second_is_copied() {
    if Command::new("rsync").arg("--version").stdout(Stdio::null()).status().is_err() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [source, target] = ["source", "target"].map(|name| dir.path().join(name));
    let lock = File::create(dir.path().join("lock")).unwrap();
    let second = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for (root, text, millis) in [(&source, "after!", 900), (&target, "before", 100)] {
        fs::create_dir(root).unwrap();
        fs::write(root.join("file"), text).unwrap();
        let file = File::options().write(true).open(root.join("file")).unwrap();
        file.set_modified(second + Duration::from_millis(millis)).unwrap();
    }
    copy(&source, &target, ("image", &lock), false).unwrap();
    assert_eq!(fs::read(target.join("file")).unwrap(), b"after!");
    let copied = fs::metadata(target.join("file")).unwrap().modified().unwrap();
    assert_eq!(copied, second + Duration::from_millis(900));
}

/// rsync writes what is copied so in small pieces.
#[test]
fn only_files_with_holes_are_copied_sparsely() {
    if Command::new("rsync").arg("--version").stdout(Stdio::null()).status().is_err() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [source, target] = ["source", "target"].map(|name| dir.path().join(name));
    fs::create_dir_all(source.join("a/.sheen")).unwrap();
    fs::create_dir_all(source.join(OWN)).unwrap();
    fs::write(source.join("whole"), vec![1; 1 << 20]).unwrap();
    for name in ["#hole", ";hole\nof two lines", "a/.sheen/hole", ".sheen/hole"] {
        let file = File::create(source.join(name)).unwrap();
        file.write_all_at(b"end", 8 << 20).unwrap();
    }
    fs::hard_link(source.join("#hole"), source.join("a/same")).unwrap();
    std::os::unix::fs::symlink("#hole", source.join("link")).unwrap();
    let names = String::from_utf8(with_holes(&source)).unwrap();
    let mut names: Vec<&str> = names.split_terminator('\0').collect();
    names.sort_unstable();
    assert_eq!(names, ["./#hole", "./;hole\nof two lines", "./a/.sheen/hole", "./a/same"]);
    // What is a directory until then.
    fs::create_dir_all(target.join("#hole/full")).unwrap();
    let lock = File::create(dir.path().join("lock")).unwrap();
    copy(&source, &target, ("image", &lock), false).unwrap();
    let found = |name: &str| fs::metadata(target.join(name)).unwrap();
    assert_eq!(found("#hole").ino(), found("a/same").ino());
    for name in ["a/same", ";hole\nof two lines", "a/.sheen/hole"] {
        assert_eq!(fs::read(target.join(name)).unwrap(), fs::read(source.join(name)).unwrap());
        assert!(found(name).blocks() * 512 < 1 << 20, "{name}");
    }
    assert_eq!(fs::read(target.join("whole")).unwrap(), vec![1; 1 << 20]);
    assert!(!target.join(OWN).exists());
}
