#![allow(clippy::unwrap_used)]

use super::*;

fn cluster(is_split: bool) -> Cluster {
    Cluster::new(Shape {
        fsname: "sheen".into(),
        mount: "/mnt".into(),
        is_split,
        transport: "auto".into(),
        mdt_count: 2,
        ost_count: 4,
    })
}

#[test]
fn one_process_has_all_targets_or_each_its_own() {
    assert_eq!(cluster(false).servers.len(), 1);
    assert_eq!(cluster(false).servers[0].targets.len(), 7);
    assert_eq!(cluster(true).servers.len(), 7);
    assert_eq!(cluster(true).servers[0].targets, ["mgs"]);
}

#[test]
fn what_is_saved_is_loaded_again() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Cluster::load(dir.path()).unwrap(), None);
    cluster(true).save(dir.path()).unwrap();
    assert_eq!(Cluster::load(dir.path()).unwrap(), Some(cluster(true)));
}

#[test]
fn damage_at_any_byte_is_one_clear_line_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    cluster(false).save(dir.path()).unwrap();
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len().saturating_sub(3) {
        fs::write(&path, &whole[..length]).unwrap();
        let message = Cluster::load(dir.path()).unwrap_err().to_string();
        assert!(message.contains("is damaged") && !message.contains('\n'), "{message}");
    }
    for position in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[position] ^= 0x15;
        fs::write(&path, &flipped).unwrap();
        // Some flips give another valid description; none may panic.
        let _ = Cluster::load(dir.path());
    }
}
