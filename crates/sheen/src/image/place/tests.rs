use super::*;

fn image(parent: &Path) -> Image {
    Image { parent: parent.to_owned(), name: "node".to_owned() }
}

fn version(path: &Path, version: u64) {
    fs::create_dir(path).expect("a directory");
    let mark = Mark { version, file_count: 1, total_bytes: 2, ..Mark::default() };
    write_mark(path, &mark).expect("a mark");
}

#[test]
fn names_stand_on_a_command_line() {
    for fine in ["node", "node-12.4_a"] {
        assert!(is_name(fine), "{fine}");
    }
    for wrong in ["", ".node", "-node", "a b", "a/b", "a,b", "a:b", "a\"b", "ä"] {
        assert!(!is_name(wrong), "{wrong}");
    }
}

#[test]
fn older_versions_are_told_from_images() {
    assert_eq!(name_of("node"), Some(("node", true)));
    assert_eq!(name_of(".node.12"), Some(("node", false)));
    assert_eq!(name_of(".node.1.12"), Some(("node.1", false)));
    for other in [".node.new", ".node.lock", ".node.01", ".node.-1", ".12", "..", ".node."] {
        assert_eq!(name_of(other), None, "{other}");
    }
}

#[test]
fn a_switch_that_was_broken_off_is_ended() {
    let home = tempfile::tempdir().expect("a directory");
    let image = image(home.path());
    version(&image.current(), 3);
    version(&image.building(), 2);
    image.clean().expect("clean");
    assert_eq!(read_mark(&image.old(2)).expect("kept").version, 2);
    assert_eq!(image.mark().expect("there").version, 3);
}

#[test]
fn a_version_that_was_never_current_goes() {
    let home = tempfile::tempdir().expect("a directory");
    let image = image(home.path());
    version(&image.current(), 3);
    version(&image.building(), 4);
    image.clean().expect("clean");
    fs::create_dir(image.building()).expect("one without a mark");
    image.clean().expect("clean");
    assert!(!image.building().exists());
    assert_eq!(image.mark().expect("there").version, 3);
    assert_eq!(fs::read_dir(home.path()).expect("entries").count(), 1);
}

#[test]
fn damaged_marks_are_said() {
    let home = tempfile::tempdir().expect("a directory");
    let said = |path: &Path| read_mark(path).expect_err("no mark").to_string();
    assert!(said(home.path()).contains("is no image"));
    let mark = home.path().join(OWN).join(MARK);
    fs::create_dir(home.path().join(OWN)).expect("a directory");
    for text in ["", "{}", "\u{0}", "{\"version\":-1}"] {
        fs::write(&mark, text).expect("a mark");
        assert!(said(home.path()).contains("is damaged"), "{text}");
    }
    fs::write(&mark, vec![b' '; 5000]).expect("a mark");
    assert!(said(home.path()).contains("is damaged"));
}

#[test]
fn a_version_that_is_held_is_in_use() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("node");
    version(&path, 1);
    let (one, two) = (hold(&path).expect("held"), hold(&path).expect("held twice"));
    drop(one);
    assert!(matches!(probe(&path), Ok(Use::Somebody)));
    drop(two);
    assert!(matches!(probe(&path), Ok(Use::Nobody(Some(_)))));
}

/// The switch was broken off, and the current version is not readable: what was the version before may be what nodes run from.
#[test]
fn what_a_node_holds_is_not_cleaned_away() {
    let home = tempfile::tempdir().expect("a directory");
    let image = image(home.path());
    version(&image.building(), 2);
    let held = hold(&image.building()).expect("held");
    let error = image.clean_within(Duration::from_millis(1)).expect_err("it is in use").to_string();
    assert!(error.contains("is in use"), "{error}");
    assert_eq!(read_mark(&image.building()).expect("it is there").version, 2);
    drop(held);
    image.clean_within(Duration::from_millis(1)).expect("nobody holds it");
    assert!(!image.building().exists());
}

#[test]
fn what_a_command_has_left_is_found_and_whether_one_is_at_it() {
    let home = tempfile::tempdir().expect("a directory");
    let image = image(home.path());
    version(&image.current(), 3);
    version(&image.old(2), 2);
    for other in [".new", ".-.new", "other.new"] {
        fs::create_dir(home.path().join(other)).expect("a directory");
    }
    let lock = image.lock().expect("locked");
    assert!(Image::unfinished_in(home.path()).expect("read").is_empty());
    fs::create_dir(image.building()).expect("a directory");
    let found = Image::unfinished_in(home.path()).expect("read");
    assert_eq!(found.iter().map(|image| &image.name[..]).collect::<Vec<_>>(), ["node"]);
    assert!(found[0].is_at_work());
    drop(lock);
    assert!(!found[0].is_at_work());
    assert!(image.lock().is_ok(), "who only looks is not in the way");
}

#[test]
fn an_image_that_is_made_anew_counts_from_what_is_left_of_it() {
    let home = tempfile::tempdir().expect("a directory");
    let image = image(home.path());
    assert_eq!(image.next_version().expect("read"), 1);
    version(&home.path().join(".other.9"), 9);
    version(&image.old(1), 1);
    version(&image.old(3), 3);
    // Also where nobody can say what it was.
    fs::create_dir(image.old(12)).expect("one without a mark");
    assert_eq!(image.next_version().expect("read"), 13);
}

/// As a client is thrown out, its locks are gone, and it hears of that later.
#[test]
fn a_lock_that_another_command_has_had_since_is_lost() {
    let home = tempfile::tempdir().expect("a directory");
    let image = image(home.path());
    let lock = image.lock().expect("locked");
    lock.check().expect("nobody else had it");
    lock.file.unlock().expect("unlocked");
    lock.check().expect("nobody else had it");
    lock.file.unlock().expect("unlocked");
    let other = image.lock().expect("it is free");
    assert!(lock.check().is_err(), "another command is at it");
    drop(other);
    assert!(lock.check().is_err(), "another command was at it");
}

/// Both were the client's, which was thrown out while older versions went.
#[test]
fn a_version_that_a_node_holds_since_is_not_removed() {
    let home = tempfile::tempdir().expect("a directory");
    let image = image(home.path());
    version(&image.current(), 3);
    version(&image.old(2), 2);
    let stored = |path: PathBuf, is_current| {
        let mark = read_mark(&path).expect("a mark");
        Stored { name: "node".to_owned(), mark, is_damaged: false, is_current, is_in_use: false, path }
    };
    let (current, old) = (stored(image.current(), true), stored(image.old(2), false));
    let lock = image.lock().expect("locked");
    let [first, second] = [&current, &old].map(|stored| image.claim(stored));
    image.discard(&lock, (&old, second.expect("claimed"))).expect("nobody holds it");
    let claim = first.expect("claimed").expect("a file");
    claim.unlock().expect("unlocked");
    let node = hold(&image.current()).expect("it is there");
    let error = image.discard(&lock, (&current, Some(claim))).expect_err("a node holds it").to_string();
    assert!(error.contains("is in use"), "{error}");
    assert_eq!(image.mark().expect("it is there").version, 3);
    drop(node);
    let claim = image.claim(&current).expect("nobody holds it");
    lock.file.unlock().expect("unlocked");
    drop(image.lock().expect("another command"));
    image.discard(&lock, (&current, claim)).expect_err("another command was at it");
    assert_eq!(image.mark().expect("it is there").version, 3);
    drop(lock);
    let lock = image.lock().expect("locked");
    let claim = image.claim(&current).expect("nobody holds it");
    image.discard(&lock, (&current, claim)).expect("nobody holds it");
    assert_eq!(fs::read_dir(home.path()).expect("entries").count(), 1);
}
