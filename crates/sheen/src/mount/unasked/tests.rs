#![allow(clippy::unwrap_used)]
use super::*;
use std::path::PathBuf;

fn mounted(device: &str, path: &str) -> Mounted {
    let line = format!("40 1 {device} / {path} rw - fuse.sheen h@tcp:/fs rw,user_id=0");
    mount_table::parse_line(line.as_bytes()).unwrap()
}

fn told(device: &str, is_detached: bool) -> Vec<Process> {
    let text =
        r#"{"source":"h@tcp:/fs","path":"/mnt","fsname":"fs","transport":"dev","mgs_nids":[],"pid":7}"#;
    let mount: MountStatus = serde_json::from_str(text).unwrap();
    let mount = MountStatus { device: device.to_owned(), is_detached, ..mount };
    vec![Process { pid: 7, mounts: vec![mount], ..Process::default() }]
}

/// Its process answers, under the path of the original.
#[test]
fn a_bind_mount_is_a_mount_of_the_process_that_has_the_original() {
    let all = || vec![mounted("0:50", "/mnt"), mounted("0:50", "/srv/b"), mounted("0:51", "/other")];
    let found = |told: &[Process]| -> Vec<(PathBuf, u32)> {
        copies_among(all(), told).into_iter().map(|copy| (copy.path, copy.pid)).collect()
    };
    let (mnt, bound) = (("/mnt".into(), 7), ("/srv/b".into(), 7));
    assert_eq!(found(&told("0:50", false)), std::slice::from_ref(&bound));
    assert_eq!(found(&told("0:50", true)), [mnt, bound], "the original is not on its path any more");
    assert_eq!(found(&told("", false)), [], "an older process does not say of which device it is");
    let unasked = |told: &[Process]| -> Vec<PathBuf> {
        untold(all(), told).into_iter().map(|mounted| mounted.path).collect()
    };
    assert_eq!(unasked(&told("0:50", false)), [Path::new("/other")]);
}
