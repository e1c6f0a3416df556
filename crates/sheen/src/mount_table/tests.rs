#![allow(clippy::unwrap_used)]

use super::*;
use std::os::unix::ffi::OsStrExt;

#[test]
fn a_line_of_the_kernel_is_read() {
    let line = b"36 35 98:0 / /mnt/a\\040b rw,noatime shared:1 - fuse.sheen sheen ro,user_id=1000,group_id=7";
    let mounted = parse_line(line).unwrap();
    assert_eq!(mounted.device, "98:0");
    assert_eq!(mounted.path, Path::new("/mnt/a b"));
    assert_eq!((mounted.kind.as_str(), mounted.source.as_str()), ("fuse.sheen", "sheen"));
    assert_eq!(mounted.user(), 1000);
    assert_eq!(mounted.flags(), ["ro", "noatime"]);
    assert_eq!(parse_line(b"garbage"), None);
}

#[test]
fn an_overlay_names_what_is_below_it() {
    let over = |options: &str, dir: &str| {
        let line = format!("36 35 0:60 / / rw - overlay root {options}");
        parse_line(line.as_bytes()).unwrap().is_overlay_over(Path::new(dir))
    };
    assert!(over("rw,lowerdir=/run/image,upperdir=/run/upper,workdir=/run/work", "/run/image"));
    assert!(over("ro,lowerdir=/first:/run/image", "/run/image"));
    assert!(over("ro,lowerdir+=/first,lowerdir+=/run/image", "/run/image"));
    assert!(!over("rw,lowerdir=/run/image,upperdir=/run/upper", "/run/upper"));
    assert!(!over("rw,lowerdir=/run/image/usr", "/run/image"));
    let line = b"36 35 0:60 / /run/image ro - fuse.sheen s ro,lowerdir=/run/image";
    assert!(!parse_line(line).unwrap().is_overlay_over(Path::new("/run/image")));
    let within = |options: &str, dir: &str| {
        let line = format!("36 35 0:60 / / rw - overlay root {options}");
        parse_line(line.as_bytes()).unwrap().is_overlay_within(Path::new(dir))
    };
    assert!(within("rw,lowerdir=/other:/mnt/layers/1,upperdir=/run/upper", "/mnt"));
    assert!(within("rw,lowerdir=/mnt", "/mnt"));
    assert!(!within("rw,lowerdir=/mnt2,upperdir=/mnt/upper", "/mnt"));
}

/// One such mount, of anybody, and the whole table would not be read.
#[test]
fn names_of_mount_points_are_bytes() {
    let line = b"36 35 0:60 / /mnt/\xff\\012\\134x\\ rw - fuse.sheen s rw";
    let mounted = parse_line(line).unwrap();
    assert_eq!(mounted.path.as_os_str().as_bytes(), b"/mnt/\xff\n\\x\\");
}

#[test]
fn only_an_empty_directory_can_be_mounted_on() {
    let dir = tempfile::tempdir().unwrap();
    check_mount_point(dir.path()).unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let message = |path: &Path| check_mount_point(path).unwrap_err().to_string();
    assert!(message(dir.path()).contains("is not empty"));
    assert!(message(&dir.path().join("file")).contains("is no directory"));
    assert!(message(&dir.path().join("gone")).contains("does not exist"));
    assert!(message(Path::new("/proc")).contains("already a mount point"));
    // As a word of a command; without quotes it would make two.
    let spaced = dir.path().join("a b");
    assert!(message(&spaced).ends_with(&format!("mkdir '{}'", spaced.display())));
}

#[test]
fn what_an_automounter_mounts_on_is_free_and_the_directory_of_its_names_is_not() {
    let is_automount = |word: &str| autofs("/mnt/scratch", word).is_automount();
    assert!(is_automount("direct"));
    assert!(is_automount("offset"));
    assert!(!is_automount("indirect"));
    let other = b"41 28 0:36 / /mnt/scratch rw,relatime shared:12 - ext4 /dev/sda1 rw,direct";
    assert!(!parse_line(other).unwrap().is_automount());
}

#[test]
fn what_is_mounted_for_an_automounter_is_on_its_direct_mount_or_a_name_of_an_indirect_one() {
    let sheen = |path: &str| {
        let line = format!("50 41 0:40 / {path} rw,nosuid - fuse.sheen n1@tcp:/scratch rw");
        parse_line(line.as_bytes()).unwrap()
    };
    let root = parse_line(b"28 1 8:1 / / rw - ext4 /dev/sda1 rw").unwrap();
    let all = [
        root,
        autofs("/mnt/scratch", "direct"),
        sheen("/mnt/scratch"),
        autofs("/misc", "indirect"),
        sheen("/misc/a"),
        sheen("/mnt/b"),
    ];
    let is_automounted = |path: &str| is_automounted(&all, Path::new(path));
    assert!(is_automounted("/mnt/scratch"));
    assert!(is_automounted("/misc/a"));
    assert!(!is_automounted("/mnt/b"));
}

fn autofs(path: &str, word: &str) -> Mounted {
    let line = format!(
        "41 28 0:36 / {path} rw,relatime shared:12 - autofs systemd-1 rw,fd=59,pgrp=1,timeout=0,minproto=5,maxproto=5,{word},pipe_ino=1"
    );
    parse_line(line.as_bytes()).unwrap()
}

/// By whatever way a directory is reached, the kernel takes off it what is mounted in it.
#[test]
fn what_is_mounted_in_a_directory_is_found_by_all_of_its_paths() {
    let table = [
        "1 1 8:1 / / rw - ext4 root rw",
        "36 1 0:60 / /mnt/a rw - fuse.sheen s rw",
        "37 1 0:60 /proj /home/proj rw - fuse.sheen s rw",
        "38 37 0:70 / /home/proj/sub rw - tmpfs t rw",
        "39 36 0:71 / /mnt/a/other rw - tmpfs t rw",
        "40 36 0:60 /third /mnt/a/third rw - fuse.sheen s rw",
        "41 1 0:61 / /mnt/b rw - fuse.sheen s rw",
        "42 41 0:72 / /mnt/b/project rw - tmpfs t rw",
        "43 38 0:73 / /home/proj/sub/deep rw - tmpfs t rw",
    ];
    let all: Vec<Mounted> = table.iter().map(|line| parse_line(line.as_bytes()).unwrap()).collect();
    let found = |path: &str| below_any_path(&all, Path::new(path)).map(|path| path.display().to_string());
    let sub = Some("/home/proj/sub".to_owned());
    assert_eq!(found("/mnt/a/proj"), sub);
    assert_eq!(found("/home/proj"), sub);
    assert_eq!(found("/mnt/a/pro"), None);
    assert_eq!(found("/mnt/a/proj/sub"), None, "it is mounted itself");
    assert_eq!(found("/mnt/a/proj/other"), None);
    assert_eq!(found("/mnt/b/proj"), None);
    assert_eq!(found("/mnt/b"), Some("/mnt/b/project".to_owned()));
    assert_eq!(found("/home/proj/sub"), Some("/home/proj/sub/deep".to_owned()));
    assert_eq!(found("/mnt/a"), sub);
    assert_eq!(found("/home"), Some("/home/proj".to_owned()));
}
