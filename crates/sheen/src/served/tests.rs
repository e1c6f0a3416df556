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
    }
}

#[test]
fn who_was_killed_is_missed_until_its_targets_are_served_or_gone() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("ost");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("target.json"), "{}").unwrap();
    let text = Text { targets: vec![target(&data)], start: "sheen serve ost".to_owned() };
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

    let ended = write_in(dir.path(), 10, &text).unwrap();
    ended.forget();
    fs::write(data.join("target.json"), "{}").unwrap();
    assert_eq!(look(false), [], "it has ended in order");
}

#[test]
fn the_command_that_starts_it_again_can_be_pasted() {
    let words = ["serve", "/srv/my ost", "--ready-fd", "7", "--listen", "10.0.0.1", "it's"];
    let start = command(words.into_iter().map(OsString::from));
    assert_eq!(start, "sheen serve '/srv/my ost' --listen 10.0.0.1 'it'\\''s'");
}
