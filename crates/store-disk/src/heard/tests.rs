#![allow(clippy::unwrap_used)]

use super::*;

struct Stores {
    run: tempfile::TempDir,
    disk: tempfile::TempDir,
}

impl Stores {
    fn new() -> Stores {
        Stores { run: tempfile::tempdir().unwrap(), disk: tempfile::tempdir().unwrap() }
    }

    /// The store of this name, as its process begins.
    fn open(&self, name: &str) -> Heard {
        let path = self.disk.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        let opened_at = device::boot_nanos();
        Heard::open(self.run.path(), &File::open(path).unwrap(), opened_at).unwrap()
    }

    /// And as it begins after one that was killed, or has ended.
    fn open_again(&self, name: &str) -> Heard {
        let heard = self.open(name);
        heard.begin();
        heard
    }

    fn file(&self) -> PathBuf {
        std::fs::read_dir(self.run.path()).unwrap().next().unwrap().unwrap().path()
    }
}

#[test]
fn nothing_is_in_doubt_where_all_went_well() {
    let stores = Stores::new();
    assert!(stores.open_again("one").is_in_doubt(), "nobody knows who was here before");
    let neighbour = stores.open_again("other");
    neighbour.before_sync();
    neighbour.after_sync(true);
    let one = stores.open_again("one");
    assert!(!one.is_in_doubt());
    one.before_sync();
    one.after_sync(true);
    drop((one, neighbour));
    assert!(!stores.open("one").is_in_doubt());
    assert!(!stores.open("other").is_in_doubt());
}

#[test]
fn what_a_neighbour_was_told_is_known_to_who_was_dead_then() {
    let stores = Stores::new();
    drop(stores.open_again("one"));
    let neighbour = stores.open_again("other");
    neighbour.before_sync();
    neighbour.after_sync(false);
    // Until somebody has begun to serve it: what was left before is asked for again otherwise.
    assert!(stores.open("one").is_in_doubt());
    assert!(stores.open_again("one").is_in_doubt());
    assert!(!stores.open("one").is_in_doubt(), "it was before it was opened");
    drop(neighbour);
    assert!(stores.open_again("other").is_in_doubt());
    assert!(!stores.open("other").is_in_doubt());
}

#[test]
fn a_sync_that_died_may_have_been_told_of_something() {
    let stores = Stores::new();
    for name in ["one", "other", "third"] {
        drop(stores.open_again(name));
    }
    stores.open_again("other").before_sync();
    // Its descriptor is closed: nobody will ever say how it went.
    assert!(stores.open_again("one").is_in_doubt());
    // That was said for it when the second began, which may be too late for that one.
    stores.open_again("one");
    assert!(!stores.open("one").is_in_doubt(), "it is said once");
    assert!(stores.open_again("other").is_in_doubt());
    assert!(stores.open_again("third").is_in_doubt(), "it was dead as well");
    assert!(!stores.open("third").is_in_doubt());
}

#[test]
fn a_sync_that_is_under_way_is_waited_for() {
    let stores = Stores::new();
    drop(stores.open_again("one"));
    let neighbour = stores.open_again("other");
    for (is_well, is_in_doubt) in [(true, false), (false, true)] {
        neighbour.before_sync();
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| stores.open_again("one").is_in_doubt());
            // It may look before or after that.
            neighbour.after_sync(is_well);
            assert_eq!(opening.join().unwrap(), is_in_doubt);
        });
    }
}

#[test]
fn a_sync_that_does_not_end_is_not_waited_for_for_ever() {
    let stores = Stores::new();
    drop(stores.open_again("one"));
    let neighbour = stores.open_again("other");
    neighbour.before_sync();
    assert!(stores.open("one").is_in_doubt());
    neighbour.after_sync(true);
    assert!(!stores.open("one").is_in_doubt());
}

#[test]
fn where_the_file_was_removed_nothing_is_trusted() {
    let stores = Stores::new();
    drop(stores.open_again("one"));
    let neighbour = stores.open_again("other");
    std::fs::remove_file(stores.file()).unwrap();
    assert!(stores.open_again("one").is_in_doubt());
    // It notices, and says what it hears to those that are there now.
    neighbour.before_sync();
    neighbour.after_sync(false);
    drop(neighbour);
    assert!(stores.open_again("one").is_in_doubt());
    assert!(stores.open_again("other").is_in_doubt());
    assert!(!stores.open("one").is_in_doubt());
}

#[test]
fn the_file_does_not_grow_for_ever() {
    let stores = Stores::new();
    drop(stores.open_again("one"));
    let path = stores.file();
    let file = device::open(&path, false).unwrap();
    for index in 1..SLOT_COUNT_MAX {
        write(&file, index, Slot { inode: u64::MAX - index, ..Slot::default() }).unwrap();
    }
    drop(stores.open_again("other"));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), SLOT_BYTES as u64);
    assert!(stores.open_again("one").is_in_doubt());
}
