#![allow(clippy::unwrap_used)]

use super::*;

fn run(prefix: &Path, remove: bool) -> Result<()> {
    install(&cli::InstallHelpers { prefix: prefix.to_owned(), remove })
}

#[test]
fn links_come_and_go() {
    let prefix = tempfile::tempdir().unwrap();
    assert!(run(prefix.path(), false).is_err());
    let sbin = prefix.path().join("sbin");
    fs::create_dir(&sbin).unwrap();
    let sheen = sbin.join("sheen-1");
    fs::write(&sheen, "").unwrap();
    symlink(&sheen, sbin.join("mount.sheen")).unwrap();
    symlink("/removed/program", sbin.join("umount.sheen")).unwrap();
    run(prefix.path(), false).unwrap();
    for name in NAMES {
        assert_eq!(fs::read_link(sbin.join(name)).unwrap(), std::env::current_exe().unwrap());
    }
    run(prefix.path(), true).unwrap();
    assert_eq!(fs::read_dir(&sbin).unwrap().count(), 1, "what it once led to");
}

#[test]
fn what_belongs_to_somebody_else_stays() {
    let prefix = tempfile::tempdir().unwrap();
    let sbin = prefix.path().join("sbin");
    fs::create_dir(&sbin).unwrap();
    fs::write(sbin.join("umount.sheen"), "a script").unwrap();
    symlink("/bin/sh", sbin.join("mount.fuse.sheen")).unwrap();
    let error = run(prefix.path(), false).unwrap_err().to_string();
    assert!(error.contains("is not a link to a sheen"), "{error}");
    assert_eq!(fs::read_dir(&sbin).unwrap().count(), 2);
    run(prefix.path(), true).unwrap();
    assert_eq!(fs::read_dir(&sbin).unwrap().count(), 2);
}

#[test]
fn tools_of_lustre_are_linked_where_there_are_none() {
    let prefix = tempfile::tempdir().unwrap();
    for dir in ["sbin", "usr/local/bin", "usr/bin"] {
        fs::create_dir_all(prefix.path().join(dir)).unwrap();
    }
    let path = |path: &str| prefix.path().join(path);
    fs::write(path("usr/bin/lctl"), "Lustre's").unwrap();
    run(prefix.path(), false).unwrap();
    assert_eq!(fs::read_link(path("usr/local/bin/lfs")).unwrap(), std::env::current_exe().unwrap());
    assert!(!path("usr/local/bin/lctl").exists());
    run(prefix.path(), false).unwrap();
    run(prefix.path(), true).unwrap();
    assert!(fs::symlink_metadata(path("usr/local/bin/lfs")).is_err());
    fs::write(path("usr/local/bin/lfs"), "a script").unwrap();
    run(prefix.path(), false).unwrap();
    run(prefix.path(), true).unwrap();
    assert_eq!(fs::read(path("usr/local/bin/lfs")).unwrap(), b"a script");
    assert_eq!(fs::read(path("usr/bin/lctl")).unwrap(), b"Lustre's");
}
