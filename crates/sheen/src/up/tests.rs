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
    drop(lock(&data).unwrap());
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
