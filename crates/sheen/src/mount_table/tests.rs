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
}
