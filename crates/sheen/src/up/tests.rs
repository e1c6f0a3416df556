#![allow(clippy::unwrap_used)]

use super::*;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    up: cli::Up,
}

/// Killed before `cluster.json` was there, `up` leaves no more than this.
#[test]
fn what_an_interrupted_up_leaves_is_no_reason_to_refuse_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let mount = dir.path().join("mnt");
    let data = dir.path().join("data");
    for made in [&mount, &data] {
        fs::create_dir(made).unwrap();
    }
    let up = Line::parse_from(["up", "--mount", mount.to_str().unwrap()]).up;
    drop(lock(&data, "up").unwrap());
    fs::write(data.join(cluster::FILE_ASIDE), b"{ \"form").unwrap();
    let cluster = design(&up, &data).unwrap();
    fs::write(data.join("letter"), b"somebody's").unwrap();
    assert!(design(&up, &data).unwrap_err().to_string().contains("is not empty"));
    // Killed later, it leaves the file and some of the targets.
    cluster.save(&data).unwrap();
    target_dir::make(&data.join("mgs"), target_id("mgs").unwrap(), &cluster.fsname, &[]).unwrap();
    let (taken_up, _) = plan(&up, &data).unwrap();
    make_targets(&data, &taken_up).unwrap();
    assert!(target_dir::exists(&data.join("ost0003")));
}

/// Whoever waits for the lock is told who has it: a command that runs, or what a killed one has started.
#[test]
fn the_holder_of_the_lock_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let _lock = lock(dir.path(), "down").unwrap();
    let path = dir.path().join(LOCK_NAME);
    let ours = format!("runs as pid {}", std::process::id());
    let holder = lock_holder(&path);
    assert!(holder.contains("sheen down") && holder.contains(&ours), "{holder}");
    fs::write(&path, format!("up {}", u32::MAX)).unwrap();
    let holder = lock_holder(&path);
    assert!(holder.contains("sheen up") && holder.contains("killed"), "{holder}");
    for nobody in ["", "nonsense", "up many"] {
        fs::write(&path, nobody).unwrap();
        assert!(lock_holder(&path).contains("another"));
    }
}

/// `up` waits for its own MDTs, and for clients; what others start after it cannot be waited for.
#[test]
fn an_mdt_that_is_not_of_the_cluster_is_known_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let mount = dir.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    let up = Line::parse_from(["up", "--mount", mount.to_str().unwrap(), "--mdts", "2"]).up;
    let cluster = design(&up, &dir.path().join("data")).unwrap();
    assert!(is_foreign_mdt("MDT0002", &cluster) && is_foreign_mdt("MDT000a", &cluster));
    for known in ["MDT0000", "MDT0001", "OST0007", "MGS", "94c1b5a2-0000-0000-0000-000000000001@0@lo", ""] {
        assert!(!is_foreign_mdt(known, &cluster), "{known}");
    }
}
