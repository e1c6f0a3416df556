//! The metadata engine.

use crate::waiting::wait_for;
use base::{Rng, Transno};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::conformance::meta::MetaHarness;
use store::{Batch, MetaStore, StoreError, Table};
use store_disk::{MetaDisk, OpenError, Options, Recovered, ReplayError};

fn options() -> Options {
    Options {
        segment_bytes: Some(2 << 20),
        checkpoint_bytes: Some(64 << 10),
        cache_bytes: 1 << 20,
        no_sync: true,
        ..Options::default()
    }
}

fn open(path: &Path) -> Result<MetaDisk, OpenError> {
    MetaDisk::open(path, &options(), Arc::new(|| ()))
}

fn create(path: &Path) -> MetaDisk {
    MetaDisk::create(path, &options()).unwrap();
    open(path).unwrap()
}

fn put(store: &MetaDisk, t: u64, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(1, key, value);
    store.apply(Transno(t), &batch).unwrap();
}

fn settle(store: &dyn MetaStore) {
    store.kick();
    wait_for("a sync", || store.durable() == store.applied());
}

struct Disks {
    dir: tempfile::TempDir,
    disk_count: u32,
    disk: Option<Arc<MetaDisk>>,
}

impl Disks {
    fn open(&mut self) -> Arc<dyn MetaStore> {
        let path = self.dir.path().join(self.disk_count.to_string());
        let disk = Arc::new(MetaDisk::open_or_create(&path, &options(), Arc::new(|| ())).unwrap());
        self.disk = Some(disk.clone());
        disk
    }
}

impl MetaHarness for Disks {
    fn create(&mut self) -> Arc<dyn MetaStore> {
        self.disk_count += 1;
        self.open()
    }

    fn settle(&mut self, store: &Arc<dyn MetaStore>) {
        settle(&**store);
    }

    fn crash(&mut self, store: Arc<dyn MetaStore>) -> Arc<dyn MetaStore> {
        self.disk = None;
        assert_eq!(Arc::strong_count(&store), 1, "the old process is gone before the new one opens");
        drop(store);
        self.open()
    }

    fn checkpoint(&mut self, _: &Arc<dyn MetaStore>) {
        self.disk.as_ref().unwrap().checkpoint().unwrap();
    }
}

#[test]
fn the_meta_disk_conforms() {
    let dir = tempfile::tempdir().unwrap();
    store::conformance::meta::run(&mut Disks { dir, disk_count: 0, disk: None });
}

#[test]
fn a_clean_close_keeps_all_and_refuses_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path());
    put(&store, 7, b"k", b"v");
    store.close();
    store.close();
    assert!(store.apply(Transno(8), &Batch::new()).is_err());
    drop(store);
    let store = open(dir.path()).unwrap();
    assert_eq!(store.recovered(), Recovered { last: Transno(7), replayed_count: 1, torn: false });
    assert_eq!(store.get(1, b"k").unwrap().unwrap(), b"v");
}

#[test]
fn everything_becomes_durable_unasked() {
    let dir = tempfile::tempdir().unwrap();
    MetaDisk::create(dir.path(), &options()).unwrap();
    let options = Options { sync_interval: Duration::from_millis(20), ..options() };
    let (sender, receiver) = std::sync::mpsc::channel();
    let store = MetaDisk::open(dir.path(), &options, Arc::new(move || sender.send(()).unwrap())).unwrap();
    put(&store, 1, b"k", b"v");
    receiver.recv_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(store.durable(), Transno(1));
    assert_eq!(store.pressure().unsynced_bytes, 0);
}

#[test]
fn checkpoints_run_by_themselves_and_bound_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path());
    let value = vec![7; 30_000];
    for t in 1..=600_u64 {
        put(&store, t, &t.to_be_bytes(), &value);
        if t % 100 == 0 {
            wait_for("a checkpoint", || store.pressure().overlay_bytes < 1 << 20);
        }
    }
    let segment_count = std::fs::read_dir(dir.path().join("log")).unwrap().count();
    assert!(segment_count <= 6, "{segment_count} segments for 18 MB of batches");
    drop(store);
    let store = open(dir.path()).unwrap();
    assert!(store.recovered().replayed_count < 200, "{:?}", store.recovered());
    for t in 1..=600_u64 {
        assert_eq!(store.get(1, &t.to_be_bytes()).unwrap().unwrap(), value);
    }
}

/// Bytes of the only log segment that has any, and its path.
fn used_segment(dir: &Path) -> (std::path::PathBuf, Vec<u8>) {
    let paths = std::fs::read_dir(dir.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let used = paths.map(|path| (path.clone(), std::fs::read(&path).unwrap()));
    let mut used: Vec<_> =
        used.filter(|(_, bytes)| bytes.get(..8).is_some_and(|head| head != [0; 8])).collect();
    assert_eq!(used.len(), 1);
    let (path, mut bytes) = used.pop().unwrap();
    bytes.truncate(16 << 10);
    assert!(bytes.ends_with(&[0; 4096]), "the log of these tests is short");
    (path, bytes)
}

fn copy_store(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join("log")).unwrap();
    std::fs::copy(from.join("index"), to.join("index")).unwrap();
}

/// What a reopened store may have: the first batches of `1..=count`, at least `least`, or a typed error.
fn check_prefix(store: Result<MetaDisk, OpenError>, least: u64, count: u64, what: &str) -> Option<u64> {
    let store = match store {
        Ok(store) => store,
        Err(OpenError::Log(_) | OpenError::Base(_)) => return None,
        Err(error) => panic!("{what}: {error}"),
    };
    let last = store.applied().0;
    assert!(last >= least && last <= count, "{what}: {last} is left of {least}..={count}");
    for t in 1..=count {
        let value = store.get(1, &t.to_be_bytes()).unwrap();
        assert_eq!(value.is_some(), t <= last, "{what}: row {t} with {last} batches");
    }
    Some(last)
}

fn small_log(dir: &Path, synced: u64, count: u64, is_closed: bool) {
    let options = Options { sync_interval: Duration::from_secs(3600), ..options() };
    MetaDisk::create(dir, &options).unwrap();
    let store = MetaDisk::open(dir, &options, Arc::new(|| ())).unwrap();
    for t in 1..=count {
        put(&store, t, &t.to_be_bytes(), &[t as u8; 20]);
        if t == synced {
            settle(&store);
            // The committer's mark follows the sync.
            wait_for("the mark", || {
                let (_, bytes) = used_segment(dir);
                bytes.as_chunks::<8>().0.iter().filter(|chunk| *chunk == b"SHEENLG1").count() as u64 > t
            });
        }
    }
    if is_closed {
        store.close();
    }
}

#[test]
fn a_log_cut_or_torn_at_every_byte_opens_with_a_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let sound = dir.path().join("sound");
    small_log(&sound, 3, 8, false);
    let (path, bytes) = used_segment(&sound);
    let name = path.file_name().unwrap();
    let end = bytes.iter().rposition(|b| *b != 0).unwrap() + 9;
    let mut seen = std::collections::BTreeSet::new();
    for cut in (0..end).step_by(3) {
        let torn = dir.path().join("torn");
        copy_store(&sound, &torn);
        let mut torn_bytes = bytes.clone();
        torn_bytes[cut..].fill(0);
        std::fs::write(torn.join("log").join(name), &torn_bytes).unwrap();
        let left = check_prefix(open(&torn), 0, 8, &format!("cut at {cut}"));
        seen.extend(left);
        // A second opening finds the same, and what is applied after a cut is not mixed with what was cut.
        let store = open(&torn).unwrap();
        assert_eq!(Some(store.applied().0), left, "cut at {cut}");
        put(&store, 100, b"later", b"v");
        drop(store);
        assert_eq!(open(&torn).unwrap().applied(), Transno(100));
        std::fs::remove_dir_all(&torn).unwrap();
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), (0..=8).collect::<Vec<_>>());
}

#[test]
fn a_log_whose_segment_is_gone_or_short_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let sound = dir.path().join("sound");
    let options = Options { no_sync: false, ..options() };
    let store = MetaDisk::open_or_create(&sound, &options, Arc::new(|| ())).unwrap();
    for t in 1..=8 {
        put(&store, t, b"k", b"v");
    }
    store.close();
    drop(store);
    let (path, bytes) = used_segment(&sound);
    let name = Path::new("log").join(path.file_name().unwrap());
    type Damage = fn(&Path, &[u8]);
    let damages: [(&str, Damage); 3] = [
        ("gone", |path, _| std::fs::remove_file(path).unwrap()),
        ("empty", |path, _| std::fs::write(path, b"").unwrap()),
        ("short", |path, bytes| std::fs::write(path, &bytes[..200]).unwrap()),
    ];
    for (what, damage) in damages {
        let damaged = dir.path().join(what);
        copy_store(&sound, &damaged);
        std::fs::copy(sound.join("reached"), damaged.join("reached")).unwrap();
        std::fs::write(damaged.join(&name), &bytes).unwrap();
        damage(&damaged.join(&name), &bytes);
        for _ in 0..2 {
            let error = open(&damaged).err().expect(what).to_string();
            assert!(error.contains("restore this target"), "{what}: {error}");
        }
        // What was damaged is put back.
        std::fs::write(damaged.join(&name), &bytes).unwrap();
        assert_eq!(open(&damaged).unwrap().applied(), Transno(8), "{what}");
    }
    let damaged = dir.path().join("note");
    copy_store(&sound, &damaged);
    std::fs::write(damaged.join("reached"), b"nonsense").unwrap();
    let error = open(&damaged).err().expect("a damaged note").to_string();
    assert!(error.contains("reached is damaged"), "{error}");
}

#[test]
fn a_bit_flipped_anywhere_never_loses_what_was_durable() {
    let dir = tempfile::tempdir().unwrap();
    for (synced, is_closed) in [(3, false), (0, true)] {
        let sound = dir.path().join(format!("sound-{is_closed}"));
        small_log(&sound, synced, 8, is_closed);
        let (path, bytes) = used_segment(&sound);
        let name = path.file_name().unwrap();
        let end = bytes.iter().rposition(|b| *b != 0).unwrap() + 1;
        let durable = if is_closed { 8 } else { synced };
        let (mut refused, mut opened) = (0, 0);
        for at in 0..end {
            let flipped = dir.path().join("flipped");
            copy_store(&sound, &flipped);
            let mut flipped_bytes = bytes.clone();
            flipped_bytes[at] ^= 1 << (at % 8);
            std::fs::write(flipped.join("log").join(name), &flipped_bytes).unwrap();
            match check_prefix(open(&flipped), durable, 8, &format!("flip at {at}")) {
                Some(_) => opened += 1,
                None => refused += 1,
            }
            std::fs::remove_dir_all(&flipped).unwrap();
        }
        assert!(refused > 0 && opened > 0, "{refused} refused, {opened} opened");
    }
}

/// Wherever a durable record is damaged: the file, and the byte at which the last whole record before it ends.
#[test]
fn a_damaged_log_is_refused_with_the_place_where_it_breaks_off_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let sound = dir.path().join("sound");
    small_log(&sound, 0, 8, true);
    let (path, bytes) = used_segment(&sound);
    let name = Path::new("log").join(path.file_name().unwrap());
    let end = bytes.iter().rposition(|b| *b != 0).unwrap() + 1;
    let mut places = std::collections::BTreeSet::new();
    let damaged = dir.path().join("damaged");
    for at in 0..end {
        copy_store(&sound, &damaged);
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(damaged.join(&name), &flipped).unwrap();
        if let Err(error) = open(&damaged) {
            let OpenError::Log(ReplayError::Damaged { path, offset_bytes, .. }) = &error else {
                panic!("flip at {at}: {error}");
            };
            assert_eq!(*path, damaged.join(&name), "flip at {at}");
            assert!(*offset_bytes <= at as u64, "flip at {at}: it breaks off at {offset_bytes}");
            assert!(error.to_string().contains(&format!("at byte {offset_bytes} of {}", path.display())));
            assert_eq!(std::fs::read(damaged.join(&name)).unwrap(), flipped, "flip at {at}");
            places.insert(*offset_bytes);
        }
        std::fs::remove_dir_all(&damaged).unwrap();
    }
    assert_eq!(places.len(), 8, "one for each record: {places:?}");
}

#[test]
fn random_damage_of_the_log_never_panics() {
    let dir = tempfile::tempdir().unwrap();
    let sound = dir.path().join("sound");
    small_log(&sound, 3, 8, true);
    let (path, bytes) = used_segment(&sound);
    let end = bytes.iter().rposition(|b| *b != 0).unwrap() as u64 + 200;
    let mut rng = Rng::new(77);
    for round in 0..300 {
        let damaged = dir.path().join("damaged");
        copy_store(&sound, &damaged);
        let mut bytes = bytes.clone();
        for _ in 0..1 + rng.below(20) {
            bytes[rng.below(end) as usize] = rng.next_u64() as u8;
        }
        if rng.one_in(4) {
            bytes.truncate(rng.below(end) as usize);
        }
        std::fs::write(damaged.join("log").join(path.file_name().unwrap()), &bytes).unwrap();
        check_prefix(open(&damaged), 0, 8, &format!("round {round}"));
        std::fs::remove_dir_all(&damaged).unwrap();
    }
}

#[test]
fn a_lost_base_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path());
    put(&store, 1, b"k", b"v");
    store.checkpoint().unwrap();
    put(&store, 2, b"k", b"w");
    store.close();
    drop(store);
    let other = dir.path().join("other");
    MetaDisk::create(&other, &options()).unwrap();
    std::fs::copy(other.join("index"), dir.path().join("index")).unwrap();
    // Another store's base cannot read this log's groups at all: they are no part of it.
    assert_eq!(open(dir.path()).unwrap().applied(), Transno::ZERO);
    std::fs::remove_file(dir.path().join("index")).unwrap();
    assert!(matches!(open(dir.path()), Err(OpenError::Base(_))));
    let made_anew = MetaDisk::open_or_create(dir.path(), &options(), Arc::new(|| ()));
    assert!(
        matches!(made_anew, Err(OpenError::Base(_))),
        "an empty store must not take the place of a lost one"
    );
    assert!(MetaDisk::create(&other, &options()).is_err(), "an existing store is not overwritten");
}

#[test]
fn a_flipped_bit_in_the_base_is_never_a_value() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path());
    for t in 1..=2000_u64 {
        put(&store, t, &t.to_be_bytes(), &[t as u8; 50]);
    }
    store.checkpoint().unwrap();
    store.close();
    drop(store);
    let path = dir.path().join("index");
    let sound = std::fs::read(&path).unwrap();
    let mut rng = Rng::new(9);
    let mut error_count = 0;
    for _ in 0..60 {
        let mut bytes = sound.clone();
        let at = rng.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << rng.below(8);
        std::fs::write(&path, bytes).unwrap();
        let Ok(store) = open(dir.path()) else {
            error_count += 1;
            continue;
        };
        for t in 1..=2000_u64 {
            match store.get(1, &t.to_be_bytes()) {
                Ok(value) => assert_eq!(value.unwrap(), [t as u8; 50], "flip at {at}"),
                Err(StoreError::CorruptIndex { .. } | StoreError::CorruptRow { .. }) => error_count += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(error_count > 0);
}

/// Hazard 7.2: file data push the pages of the base out of memory. Rows that were used lately do not come from there.
#[test]
fn rows_used_lately_are_found_without_the_base() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { cache_bytes: 16 << 20, ..options() };
    MetaDisk::create(dir.path(), &options).unwrap();
    let store = MetaDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    for t in 1..=5000_u64 {
        put(&store, t, &t.to_be_bytes(), &[t as u8; 200]);
    }
    store.checkpoint().unwrap();
    // With another budget the pages that it keeps go, at the next call that needs the base.
    store.set_cache_bytes(24 << 20);
    assert_eq!(store.get(1, &5001_u64.to_be_bytes()).unwrap(), None);
    let misses = store.cache_use().miss_count;
    for t in 1..=5000_u64 {
        assert_eq!(store.get(1, &t.to_be_bytes()).unwrap(), Some(vec![t as u8; 200]));
    }
    assert_eq!(store.cache_use().miss_count, misses, "rows that were used lately");
    assert_eq!(store.get(1, &5002_u64.to_be_bytes()).unwrap(), None);
    assert_eq!(store.cache_use().miss_count, misses + 1, "a row that was not");
}

/// Small files' data are rows as well. Whoever reads more of them than there is memory has no inode read again.
#[test]
fn rows_that_are_file_data_leave_the_others_in_memory() {
    const INODES: Table = 2;
    const DATA: Table = 11;
    let dir = tempfile::tempdir().unwrap();
    let options = Options { cache_bytes: 6 << 20, data_table: Some(DATA), ..options() };
    MetaDisk::create(dir.path(), &options).unwrap();
    let store = MetaDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    let key = |n: u64| n.to_be_bytes();
    let put = |t: u64, table: Table, bytes: &[u8]| {
        let mut batch = Batch::new();
        batch.put(table, &key(t), bytes);
        store.apply(Transno(t), &batch).unwrap();
    };
    (1..=1000).for_each(|t| put(t, INODES, &[t as u8; 200]));
    (1001..=1600).for_each(|t| put(t, DATA, &[t as u8; 16 << 10]));
    store.checkpoint().unwrap();
    let misses = |table: Table, numbers: std::ops::RangeInclusive<u64>, byte_count: usize| {
        let before = store.cache_use().miss_count;
        for n in numbers {
            assert_eq!(store.get(table, &key(n)).unwrap(), Some(vec![n as u8; byte_count]));
        }
        store.cache_use().miss_count - before
    };
    misses(INODES, 1..=1000, 200);
    assert!(misses(DATA, 1001..=1600, 16 << 10) > 500, "more than there is room for");
    assert_eq!(misses(INODES, 1..=1000, 200), 0, "rows of inodes that were read again");
    assert_eq!(misses(DATA, 1600..=1600, 16 << 10), 0, "what was read last");
}

/// What is lost is memory, never rows; a base that is opened again while it is written and read has what it had.
#[test]
fn budgets_change_while_rows_are_read_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path());
    let row = |t: u64| [t as u8; 300];
    for t in 1..=6000_u64 {
        put(&store, t, &t.to_be_bytes(), &row(t));
        if t.is_multiple_of(500) {
            store.set_cache_bytes((t as usize / 500) * (256 << 10));
            for known in (1..=t).step_by(37) {
                assert_eq!(store.get(1, &known.to_be_bytes()).unwrap(), Some(row(known).to_vec()));
            }
        }
    }
    store.checkpoint().unwrap();
    store.set_cache_bytes(1 << 20);
    let usage = store.cache_use();
    assert!(usage.row_bytes <= usage.budget_bytes / 3, "{usage:?}");
    assert!(usage.base_read_count > 0 && usage.base_read_bytes >= 4096, "{usage:?}");
    for t in 1..=6000_u64 {
        assert_eq!(store.get(1, &t.to_be_bytes()).unwrap(), Some(row(t).to_vec()));
    }
    // All of it fits: the second time nothing is read.
    store.set_cache_bytes(64 << 20);
    let scan = || {
        let mut count = 0;
        store
            .scan(1, &[], &[0xff; 9], usize::MAX, &mut |_, _| {
                count += 1;
                true
            })
            .unwrap();
        count
    };
    assert_eq!(scan(), 6000);
    let read_count = store.cache_use().base_read_count;
    assert_eq!(scan(), 6000);
    assert_eq!(store.cache_use().base_read_count, read_count);
}

#[test]
fn syncs_that_somebody_waits_for_are_counted_apart() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path());
    let before = store.sync_use();
    put(&store, 1, b"a", b"kept for nobody");
    store.kick_unawaited();
    wait_for("a sync", || store.durable() == store.applied());
    let routine = store.sync_use();
    assert_eq!(routine.awaited_sync_count, before.awaited_sync_count);
    assert_eq!(routine.sync_count, before.sync_count + 1);
    put(&store, 2, b"b", b"somebody waits");
    settle(&store);
    let awaited = store.sync_use();
    assert_eq!(awaited.awaited_sync_count, before.awaited_sync_count + 1);
    assert_eq!(awaited.sync_count, before.sync_count + 2);
}

#[test]
fn readers_see_whole_rows_while_checkpoints_run() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let mut rng = Rng::new(reader);
                let mut newest = [0_u64; 50];
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let n = rng.below(50);
                    let Some(value) = store.get(1, &n.to_be_bytes()).unwrap() else { continue };
                    let seen = u64::from_le_bytes(value[..8].try_into().unwrap());
                    assert!(
                        seen >= newest[n as usize],
                        "row {n} went back from {} to {seen}",
                        newest[n as usize]
                    );
                    newest[n as usize] = seen;
                }
            });
        }
        let mut rng = Rng::new(100);
        for t in 1..=20_000_u64 {
            put(&store, t, &rng.below(50).to_be_bytes(), &t.to_le_bytes());
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
