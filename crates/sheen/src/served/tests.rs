#![allow(clippy::unwrap_used)]

use super::*;

fn target(dir: &Path) -> TargetStatus {
    TargetStatus {
        name: "OST0000".to_owned(),
        fsname: "fs".to_owned(),
        dir: dir.to_owned(),
        nid: "127.0.0.1:7988@tcp".to_owned(),
        state: "active".to_owned(),
        pid: 0,
        recovery: None,
        owner: None,
        alert: None,
        unserved: None,
        unheard: Vec::new(),
    }
}

#[test]
fn who_was_killed_is_missed_until_its_targets_are_served_or_gone() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("ost");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("target.json"), "{}").unwrap();
    let device = fs::metadata(&data).unwrap().dev();
    let devices = vec![device];
    let text = Text { targets: vec![target(&data)], start: "sheen serve ost".to_owned(), devices };
    let look = |is_served: bool| gone_in(dir.path(), |_| is_served);

    let living = write_in(dir.path(), 7, &text).unwrap();
    assert_eq!(look(false), [], "it lives");
    drop(living);
    let gone = look(false);
    assert_eq!((gone.len(), gone[0].pid, gone[0].start.as_str()), (1, 7, "sheen serve ost"));
    assert_eq!((gone[0].targets[0].state.as_str(), gone[0].targets[0].pid), ("down", 0));
    assert_eq!(look(true), [], "somebody serves it again");
    assert_eq!(look(false), [], "and its death is forgotten");

    drop(write_in(dir.path(), 8, &text).unwrap());
    fs::write(dir.path().join("9.served"), "{").unwrap();
    assert_eq!(look(false).len(), 1, "what makes no sense is left out");
    fs::remove_file(data.join("target.json")).unwrap();
    assert_eq!(look(false), [], "the target was removed");

    fs::write(data.join("target.json"), "{}").unwrap();
    drop(write_in(dir.path(), 9, &text).unwrap());
    if std::os::unix::fs::chown(dir.path().join("9.served"), Some(3_999_999), Some(3_999_999)).is_ok() {
        let start = look(false)[0].start.clone();
        assert!(
            start.starts_with("setpriv --reuid 3999999 ") && start.ends_with(" sheen serve ost"),
            "{start}"
        );
    }
    fs::remove_file(data.join("target.json")).unwrap();
    assert_eq!(look(false), [], "the target was removed");

    let ended = write_in(dir.path(), 10, &text).unwrap();
    ended.forget();
    fs::write(data.join("target.json"), "{}").unwrap();
    assert_eq!(look(false), [], "it has ended in order");
}

/// A disk that is not there is no target that somebody has removed.
#[test]
fn who_was_killed_is_missed_also_when_its_disk_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    // Where its disk was mounted is another device now, or an empty directory.
    let [mounted, kept] = ["disk/ost", "kept"].map(|name| dir.path().join(name));
    let here = fs::metadata(dir.path()).unwrap().dev();
    fs::create_dir(dir.path().join("disk")).unwrap();
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("target.json"), "{}").unwrap();
    let targets = vec![target(&mounted), target(&kept)];
    let text = |devices| Text { targets: targets.clone(), start: "sheen serve".to_owned(), devices };
    drop(write_in(dir.path(), 7, &text(vec![here + 1, here])).unwrap());
    for _ in 0..2 {
        let gone = gone_in(dir.path(), |_| false);
        assert_eq!((gone.len(), gone[0].targets.len()), (1, 2), "at the first look and at the next");
        assert_eq!(gone[0].vanished, std::slice::from_ref(&mounted));
        assert_eq!(gone[0].record, dir.path().join("7.served"));
    }
    fs::remove_dir_all(&kept).unwrap();
    assert_eq!(gone_in(dir.path(), |_| false)[0].targets.len(), 1, "that one was removed");
    // It is back, and somebody serves it.
    assert_eq!(gone_in(dir.path(), |served| served == mounted), []);
    assert!(!dir.path().join("7.served").exists());
    // One of an older version does not say where it was.
    drop(write_in(dir.path(), 8, &text(Vec::new())).unwrap());
    assert_eq!(gone_in(dir.path(), |_| false)[0].vanished.len(), 2);
}

#[test]
fn what_a_living_process_serves_is_known_without_asking_it() {
    let dir = tempfile::tempdir().unwrap();
    let text =
        Text { targets: vec![target(&dir.path().join("ost"))], start: String::new(), devices: Vec::new() };
    let living = write_in(dir.path(), 7, &text).unwrap();
    let look = |pid| of_silent_in(dir.path(), &[pid]);
    let silent = look(7);
    assert_eq!((silent.len(), silent[0].name.as_str()), (1, "OST0000"));
    assert_eq!((silent[0].state.as_str(), silent[0].pid), ("silent", 7));
    assert_eq!(look(8), [], "another process is silent");
    let (below, beside) = (dir.path().join("ost"), dir.path().join("os"));
    assert_eq!(living_below_in(dir.path(), &below), [7]);
    assert!(living_below_in(dir.path(), &beside).is_empty());
    drop(living);
    assert!(living_below_in(dir.path(), &below).is_empty());
    assert_eq!(look(7), [], "it is of an earlier process with that number");
}

#[test]
fn the_command_that_starts_it_again_can_be_pasted() {
    let words = ["serve", "/srv/my ost", "--ready-fd", "7", "--listen", "10.0.0.1", "it's"];
    let start = command(words.into_iter().map(OsString::from));
    assert_eq!(start, "sheen serve '/srv/my ost' --listen 10.0.0.1 'it'\\''s'");
}
