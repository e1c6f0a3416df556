//! The data engine.

use crate::waiting::wait_for;
use base::{Extent, Fid, ObjectId, Rng};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::conformance::objects::ObjectHarness;
use store::{ObjectStore, StoreError};
use store_disk::{ObjectDisk, ObjectOptions};

fn options() -> ObjectOptions {
    ObjectOptions { handle_count_max: 3, no_sync: true, ..ObjectOptions::default() }
}

fn open(path: &Path) -> ObjectDisk {
    ObjectDisk::open(path, &options(), Arc::new(|| ())).unwrap()
}

fn object(n: u32) -> ObjectId {
    ObjectId { fid: Fid { seq: 0x2_0000_0400, oid: n, ver: 0 }, component: 1, stripe: 2 }
}

struct Disks {
    dir: tempfile::TempDir,
    disk_count: u32,
}

impl Disks {
    fn open(&mut self) -> Arc<dyn ObjectStore> {
        Arc::new(open(&self.dir.path().join(self.disk_count.to_string())))
    }
}

impl ObjectHarness for Disks {
    fn create(&mut self) -> Arc<dyn ObjectStore> {
        self.disk_count += 1;
        self.open()
    }

    fn settle(&mut self, store: &Arc<dyn ObjectStore>) {
        store.kick();
        wait_for("a sync", || store.durable() == store.written());
    }

    fn crash(&mut self, store: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        assert_eq!(Arc::strong_count(&store), 1, "the old process is gone before the new one opens");
        drop(store);
        self.open()
    }
}

#[test]
fn the_object_disk_conforms() {
    let dir = tempfile::tempdir().unwrap();
    store::conformance::objects::run(&mut Disks { dir, disk_count: 0 });
}

#[test]
fn everything_becomes_durable_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let options = ObjectOptions { sync_interval: Duration::from_millis(20), ..options() };
    let store = ObjectDisk::open(
        dir.path(),
        &options,
        Arc::new(move || {
            let _ = sender.send(());
        }),
    )
    .unwrap();
    for n in 0..100 {
        store.write(&object(n), 0, b"x").unwrap();
    }
    while store.durable() < 100 {
        receiver.recv_timeout(Duration::from_secs(30)).unwrap();
    }
}

fn file_of(dir: &Path) -> PathBuf {
    let mut files = Vec::new();
    for directory in std::fs::read_dir(dir).unwrap() {
        let entries = std::fs::read_dir(directory.unwrap().path()).unwrap();
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    assert_eq!(files.len(), 1);
    files.pop().unwrap()
}

#[test]
fn a_bit_flipped_in_a_settled_object_is_an_error_and_never_data() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let id = object(1);
    let data: Vec<u8> = (0..20_000_u32).map(|n| n as u8 ^ (n >> 8) as u8).collect();
    store.write(&id, 0, &data).unwrap();
    store.close();
    drop(store);
    let path = file_of(dir.path());
    let sound = std::fs::read(&path).unwrap();
    let mut rng = Rng::new(4);
    let (mut error_count, mut header_count) = (0, 0);
    for round in 0..300 {
        let mut bytes = sound.clone();
        // Checksums, data, and both ends.
        let at = match round % 3 {
            0 => rng.below(4096) as usize,
            1 => 4096 + rng.below(bytes.len() as u64 - 4096) as usize,
            _ => bytes.len() - 1 - rng.below(100) as usize,
        };
        bytes[at] ^= 1 << rng.below(8);
        std::fs::write(&path, bytes).unwrap();
        let store = open(dir.path());
        if at < 32 {
            // The header: who looks is told, and who reads all the same is believed as after a crash. It is the data that were written.
            header_count += 1;
            assert!(!store.stat(&id).unwrap().unwrap().has_begun, "flip at {at}");
        }
        match store.read(&id, 0, 99_999) {
            Ok(read) => assert!(read == data, "flip at {at}"),
            Err(StoreError::CorruptObject { .. }) => error_count += 1,
            Err(error) => panic!("{error}"),
        }
        // What is not damaged is still read.
        let good_blocks = (0..5).filter(|block| store.read(&id, block * 4096, 4096).is_ok()).count();
        assert!(good_blocks >= 4);
    }
    assert!(error_count > 150, "{error_count} errors, {header_count} headers");
}

#[test]
fn a_damaged_block_is_healed_by_writing_it_whole_and_not_by_writing_a_part() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let id = object(1);
    store.write(&id, 0, &[7; 20_000]).unwrap();
    store.close();
    drop(store);
    let path = file_of(dir.path());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096 + 4096 + 10] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let store = open(dir.path());
    let damaged = StoreError::CorruptObject { id, offset_bytes: 4096 };
    assert_eq!(store.read(&id, 4096, 1), Err(damaged.clone()));
    assert_eq!(store.write(&id, 5000, b"x"), Err(damaged.clone()));
    assert_eq!(store.read(&id, 0, 4096).unwrap(), [7; 4096][..]);
    store.write(&id, 4096, &[8; 4096]).unwrap();
    assert_eq!(store.read(&id, 4096, 4096).unwrap(), [8; 4096][..]);
    assert_eq!(store.truncate(&id, 0), Ok(()));
}

/// What a power failure can leave: data and checksums of different ages, wherever nothing was synced.
#[test]
fn unsettled_bytes_are_believed_after_a_crash_and_settled_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let id = object(1);
    let store = open(dir.path());
    store.write(&id, 0, &[1; 50_000]).unwrap();
    drop(store);
    let path = file_of(dir.path());
    let tear = |at: usize| {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[4096 + at..4096 + at + 4096].fill(9);
        std::fs::write(&path, bytes).unwrap();
    };
    // Killed before it was settled: torn bytes are what the object holds.
    tear(8192);
    let store = open(dir.path());
    assert_eq!(store.read(&id, 8192, 4096).unwrap(), [9; 4096][..]);
    store.close();
    drop(store);
    // Settled: the same is damage.
    tear(16384);
    let store = open(dir.path());
    assert!(matches!(store.read(&id, 0, 50_000), Err(StoreError::CorruptObject { offset_bytes: 16384, .. })));
    // Appending makes what is appended unsettled, and the group before it stays strict.
    store.write(&id, 16384, &[1; 4096]).unwrap();
    store.close();
    drop(store);
    let store = open(dir.path());
    let group = 1016 * 4096;
    store.write(&id, group, &[2; 4096]).unwrap();
    drop(store);
    tear(0);
    let store = open(dir.path());
    assert!(store.read(&id, 0, 10).is_err());
    assert_eq!(store.read(&id, group, 4096).unwrap(), [2; 4096][..]);
}

#[test]
fn objects_rest_before_they_are_settled() {
    let dir = tempfile::tempdir().unwrap();
    let options = ObjectOptions {
        sync_interval: Duration::from_millis(5),
        settle_after: Duration::from_millis(30),
        ..options()
    };
    let store = ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    let id = object(1);
    store.write(&id, 0, &[1; 5000]).unwrap();
    let path = file_of(dir.path());
    assert_eq!(std::fs::read(&path).unwrap()[8], 1, "dirty");
    wait_for("settling", || std::fs::read(&path).unwrap()[8] == 3);
    store.write(&id, 100, b"again").unwrap();
    wait_for("settling again", || std::fs::read(&path).unwrap()[8] == 3);
    assert_eq!(store.read(&id, 98, 9).unwrap(), b"\x01\x01again\x01\x01"[..]);
}

/// At every length, with the file closed and opened again, and cut below a store that has it open.
#[test]
fn a_file_that_was_cut_is_an_error_and_never_a_short_object() {
    let dir = tempfile::tempdir().unwrap();
    let id = object(1);
    let data: Vec<u8> = (0..20_000_u32).map(|n| n as u8 | 1).collect();
    for round in 0..60 {
        let store = open(dir.path());
        store.destroy(&id).unwrap();
        store.write(&id, 0, &data).unwrap();
        let path = file_of(dir.path());
        let stored_bytes = std::fs::metadata(&path).unwrap().len();
        let cut = 32 + (stored_bytes - 33) * round / 59;
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let store = if round % 2 == 0 {
            store.close();
            drop(store);
            file.set_len(cut).unwrap();
            open(dir.path())
        } else {
            file.set_len(cut).unwrap();
            store
        };
        assert_eq!(store.stat(&id).unwrap().unwrap().size_bytes, 20_000, "cut to {cut}");
        assert!(matches!(store.read(&id, 0, 99_999), Err(StoreError::CorruptObject { .. })), "cut to {cut}");
        for offset in (0..20_000).step_by(4096) {
            if let Ok(read) = store.read(&id, offset as u64, 4096) {
                assert!(read == data[offset..data.len().min(offset + 4096)], "cut to {cut}");
            }
        }
        assert!(matches!(store.write(&id, 20_000, b"more"), Err(StoreError::CorruptObject { .. })));
        store.close();
        drop(store);
        let store = open(dir.path());
        assert!(matches!(store.read(&id, 0, 99_999), Err(StoreError::CorruptObject { .. })), "cut to {cut}");
        store.truncate(&id, 0).unwrap();
        store.write(&id, 0, b"new").unwrap();
        assert_eq!(store.read(&id, 0, 9).unwrap(), b"new"[..]);
        store.close();
    }
}

#[test]
fn a_file_that_was_cut_below_its_header_holds_nothing_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let id = object(1);
    store.write(&id, 0, &[7; 5000]).unwrap();
    assert!(store.stat(&id).unwrap().unwrap().has_begun);
    store.close();
    drop(store);
    let file = std::fs::OpenOptions::new().write(true).open(file_of(dir.path())).unwrap();
    for cut in [31, 1, 0] {
        file.set_len(cut).unwrap();
        let stat = open(dir.path()).stat(&id).unwrap().unwrap();
        assert_eq!((stat.size_bytes, stat.has_begun), (0, false));
    }
}

/// It would be believed as what a crash left, were it read.
#[test]
fn an_object_that_has_lost_its_header_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let id = object(1);
    store.write(&id, 0, &[7; 50_000]).unwrap();
    store.close();
    drop(store);
    let path = file_of(dir.path());
    let sound = std::fs::read(&path).unwrap();
    for cleared in [1, 32, 4096, 8192] {
        let mut bytes = sound.clone();
        bytes[..cleared].fill(0);
        std::fs::write(&path, bytes).unwrap();
        assert!(!open(dir.path()).stat(&id).unwrap().unwrap().has_begun, "{cleared} bytes");
    }
}

#[test]
fn a_file_that_somebody_removed_is_not_there_though_it_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.write(&object(1), 0, b"x").unwrap();
    std::fs::remove_file(file_of(dir.path())).unwrap();
    assert_eq!(store.stat(&object(1)), Ok(None));
    store.write(&object(1), 0, b"again").unwrap();
    assert_eq!(std::fs::metadata(file_of(dir.path())).unwrap().len(), 4096 + 5);
}

#[test]
fn random_damage_never_panics() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let id = object(1);
    store.write(&id, 5 << 20, &[3; 10_000]).unwrap();
    store.write(&id, 0, &[3; 10_000]).unwrap();
    store.close();
    drop(store);
    let path = file_of(dir.path());
    let sound = std::fs::read(&path).unwrap();
    let mut rng = Rng::new(8);
    for _ in 0..60 {
        let mut bytes = sound.clone();
        for _ in 0..rng.below(6) {
            let at = if rng.one_in(2) { rng.below(4096) } else { rng.below(bytes.len() as u64) };
            bytes[at as usize] = rng.next_u64() as u8;
        }
        bytes.truncate(if rng.one_in(2) { bytes.len() } else { rng.below(bytes.len() as u64) as usize });
        std::fs::write(&path, &bytes).unwrap();
        let store = open(dir.path());
        let _ = store.read(&id, 0, 6 << 20);
        let _ = store.write(&id, rng.below(6 << 20), &[1; 5000]);
        let _ = store.punch(&id, Extent::new(rng.below(9000), rng.below(6 << 20)));
        let _ = store.truncate(&id, rng.below(6 << 20));
        let _ = store.read(&id, 0, 6 << 20);
        store.close();
    }
}

#[test]
fn foreign_files_are_not_objects() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.write(&object(1), 0, b"x").unwrap();
    let directory = file_of(dir.path()).parent().unwrap().to_path_buf();
    std::fs::write(directory.join("lost+found"), b"").unwrap();
    std::fs::write(directory.join("zz".repeat(24)), b"").unwrap();
    assert_eq!(store.list(None, 99).unwrap(), [object(1)]);
    // Nor is an object's file in a directory where nobody looks for it.
    let elsewhere = if directory.ends_with("ff") { "00" } else { "ff" };
    let file = directory.join("00".repeat(24));
    std::fs::write(directory.with_file_name(elsewhere).join(file.file_name().unwrap()), b"").unwrap();
    assert_eq!(store.list(None, 99).unwrap(), [object(1)]);
}

#[test]
fn a_flood_of_small_objects_keeps_few_files_open() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let fd_count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = fd_count();
    for n in 0..2000 {
        store.write(&object(n), 0, &n.to_le_bytes()).unwrap();
    }
    store.kick();
    wait_for("a sync", || store.durable() == store.written());
    assert!(fd_count() < before + 200, "{} and {before}", fd_count());
    for n in 0..2000 {
        assert_eq!(store.read(&object(n), 0, 9).unwrap(), n.to_le_bytes()[..]);
    }
}
