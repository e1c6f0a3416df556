#![allow(clippy::unwrap_used)]

use super::*;

fn claim_it(dir: &Path) -> Claim {
    claim_in(dir, Path::new("/mnt"), "h@tcp:/fs", None).unwrap()
}

#[test]
fn the_next_mount_is_the_same_client_with_a_higher_incarnation() {
    let dir = tempfile::tempdir().unwrap();
    let first = claim_it(dir.path());
    assert_eq!(known_in(dir.path(), false), []);
    let died = first.identity;
    drop(first);
    assert_eq!(known_in(dir.path(), false), [died]);
    let second = claim_it(dir.path());
    assert_eq!(second.identity.client, died.client);
    assert_eq!(second.identity.incarnation, died.incarnation + 1);
    assert_eq!(known_in(dir.path(), false), []);
}

#[test]
fn two_mounts_that_live_are_two_clients() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (claim_it(dir.path()), claim_it(dir.path()));
    assert_ne!(first.identity.client, second.identity.client);
    drop(first);
    assert_eq!(known_in(dir.path(), false).len(), 1);
    drop(second);
    assert_eq!(known_in(dir.path(), false).len(), 2);
}

#[test]
fn those_that_live_are_counted_by_what_they_mount_where() {
    let dir = tempfile::tempdir().unwrap();
    let count = |path: &str| count_in(dir.path(), Path::new(path), "h@tcp:/fs");
    assert_eq!(count("/mnt"), 0);
    let (first, second) = (claim_it(dir.path()), claim_it(dir.path()));
    assert_eq!((count("/mnt"), count("/other")), (2, 0));
    assert_eq!(count_in(dir.path(), Path::new("/mnt"), "h@tcp:/another"), 0);
    drop(first);
    assert_eq!(count("/mnt"), 1);
    drop(second);
    assert_eq!(count("/mnt"), 0);
}

#[test]
fn a_given_identity_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let given = Identity { client: 7, incarnation: 3 };
    let claim = claim_in(dir.path(), Path::new("/mnt"), "h@tcp:/fs", Some(given)).unwrap();
    assert_eq!(claim.identity, given);
    drop(claim);
    assert_eq!(known_in(dir.path(), false), [given]);
}

#[test]
fn a_copy_and_a_damaged_file_name_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let living = claim_it(dir.path());
    let original = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    fs::copy(&original, dir.path().join("copy")).unwrap();
    fs::write(dir.path().join("garbage"), b"\xff\xff 1:2:3").unwrap();
    assert_eq!(known_in(dir.path(), false), []);
    let known = living.identity;
    drop(living);
    assert_eq!(known_in(dir.path(), false), [known]);
    fs::write(&original, "damaged").unwrap();
    assert_ne!(claim_it(dir.path()).identity.client, known.client);
}

#[test]
fn the_process_of_a_mount_is_known_though_it_says_nothing_and_so_is_that_it_has_died() {
    let run_dir = tempfile::tempdir().unwrap();
    let (path, source) = (Path::new("/mnt"), "h@tcp:/fs");
    let (own, other) = (std::process::id(), 1);
    let holder = || holder(run_dir.path(), [other, own], path, source);
    let has_died = || has_died(run_dir.path(), path, source);
    assert_eq!((holder(), has_died()), (None, false), "nobody has mounted it");
    let claim = claim_it(&run_dir.path().join("clients"));
    assert_eq!((holder(), has_died()), (Some(own), false));
    drop(claim);
    assert_eq!((holder(), has_died()), (None, true));
    let claim = claim_it(&run_dir.path().join("clients"));
    claim.forget();
    drop(claim);
    assert_eq!((holder(), has_died()), (None, false), "it has taken leave");
}

/// A mount that takes leave removes its file; who has just opened that would live unknown.
#[test]
fn a_file_that_was_removed_before_it_is_locked_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let open_count = std::cell::Cell::new(0);
    let open = || -> io::Result<File> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
        open_count.set(open_count.get() + 1);
        if open_count.get() == 1 {
            fs::remove_file(&path)?;
        }
        Ok(file)
    };
    let file = open_locked(open).unwrap().unwrap();
    assert_eq!(open_count.get(), 2);
    assert_eq!(file.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
    assert!(is_held(&path), "others see that it lives");
}
