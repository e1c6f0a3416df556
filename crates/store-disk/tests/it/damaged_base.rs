//! A base of which a bit is not what was written, or the end is gone: what is read of it is right or an error, and nothing else.
//!
//! Whatever ends the process ends this test: a signal by itself, and a panic that the store does not contain as it would end a server.

use crate::waiting::wait_for;
use base::{Rng, Transno};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;
use store::{Batch, KEY_BYTES_MAX, MetaStore, StoreError, Table, VALUE_BYTES_MAX};
use store_disk::{MetaDisk, MetaReader, Options};

const BLOCK_BYTES: u64 = 4096;
/// Blocks of checksums stand at multiples of this, each before the blocks that it is for.
const GROUP_BLOCKS: u64 = 1025;
/// redb's header is behind the first block of checksums.
const HEADER_BLOCK: u64 = 1;
const TABLE_COUNT: u8 = 12;
/// For a store and for a reader alike; far less than the base, so that reads come from the file.
const CACHE_BYTES: usize = 64 << 10;

type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

fn options() -> Options {
    Options {
        segment_bytes: Some(2 << 20),
        checkpoint_bytes: Some(1 << 30),
        cache_bytes: CACHE_BYTES,
        upkeep_interval: Duration::from_millis(20),
        no_sync: true,
        ..Options::default()
    }
}

/// As in a server, where any other panic is the end of the process.
fn abort_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !store_disk::is_contained() && info.to_string().contains("redb") {
                hook(info);
                std::process::abort();
            } else if !store_disk::is_contained() {
                hook(info);
            }
        }));
    });
}

/// A store that was closed in order, and one whose process was killed: of some thousand rows in all tables, long ones that have pages of
/// their own, keys long enough that pages of pages lead to pages, and free pages where rows were.
struct Sound {
    dir: tempfile::TempDir,
    rows: Rows,
    base: Vec<u8>,
    /// Files of the store beside its base.
    others: BTreeMap<PathBuf, Vec<u8>>,
}

impl Sound {
    fn make(is_closed: bool) -> Sound {
        abort_on_panic();
        let dir = tempfile::tempdir().unwrap();
        MetaDisk::create(dir.path(), &options()).unwrap();
        let store = MetaDisk::open(dir.path(), &options(), Arc::new(|| ())).unwrap();
        let (mut rows, mut rng, mut transno) = (Rows::new(), Rng::new(71), Transno::ZERO);
        for round in 0..4 {
            for _ in 0..6 {
                transno = transno.next();
                store.apply(transno, &some_changes(&mut rows, &mut rng)).unwrap();
            }
            // What is applied last is in the log only.
            if round < 3 {
                store.checkpoint().unwrap();
            }
        }
        let path = dir.path().to_path_buf();
        let mut sound = Sound { dir, rows, base: Vec::new(), others: BTreeMap::new() };
        if is_closed {
            store.checkpoint().unwrap();
            store.close();
            drop(store);
            sound.base = fs::read(path.join("index")).unwrap();
            sound.others = contents(&path);
        } else {
            store.kick();
            wait_for("a sync", || store.durable() == store.applied());
            // Before redb can put it in order.
            sound.base = fs::read(path.join("index")).unwrap();
            sound.others = contents(&path);
            drop(store);
        }
        sound.restore();
        sound
    }

    fn index(&self) -> PathBuf {
        self.dir.path().join("index")
    }

    fn restore(&self) {
        for path in others(self.dir.path()) {
            if !self.others.contains_key(&path) {
                fs::remove_file(path).unwrap();
            }
        }
        self.others.iter().for_each(|(path, bytes)| restore(path, bytes));
        restore(&self.index(), &self.base);
    }

    fn block_count(&self) -> u64 {
        (self.base.len() as u64).div_ceil(BLOCK_BYTES)
    }

    fn flip(&self, bit: u64) {
        let file = OpenOptions::new().write(true).open(self.index()).unwrap();
        let byte = self.base[(bit / 8) as usize] ^ 1 << (bit % 8);
        file.write_all_at(&[byte], bit / 8).unwrap();
    }

    fn unflip(&self, bit: u64) {
        let file = OpenOptions::new().write(true).open(self.index()).unwrap();
        file.write_all_at(&[self.base[(bit / 8) as usize]], bit / 8).unwrap();
    }

    /// Whether somebody who only reads finds damage, and then whether he is told where. What he reads is right.
    fn find(&self, what: &str) -> Option<bool> {
        let reader = match MetaReader::open(self.dir.path(), CACHE_BYTES) {
            Ok(reader) => reader,
            Err(error) => {
                let text = error.to_string();
                let path = self.dir.path().display().to_string();
                assert!(text.contains(&path) && text.contains("damaged"), "{what}: {text}");
                return Some(true);
            }
        };
        let is_whole = self.read_all(&reader, what);
        let _ = reader.counted_bytes();
        let parts = reader.damaged_parts().unwrap();
        (!is_whole || !parts.is_empty()).then_some(!parts.is_empty())
    }

    /// Whether all rows are there. None that is read is wrong.
    fn read_all(&self, store: &dyn MetaStore, what: &str) -> bool {
        let mut is_whole = true;
        let mut expected = self.rows.iter().peekable();
        for table in 0..=TABLE_COUNT {
            let mut found = Vec::new();
            let scanned = store.scan(table, &[], &[0xff; KEY_BYTES_MAX], usize::MAX, &mut |key, value| {
                found.push((key.to_vec(), value.to_vec()));
                true
            });
            let of_table: Vec<_> =
                std::iter::from_fn(|| expected.next_if(|((of, _), _)| *of == table)).collect();
            let same =
                found.iter().zip(&of_table).all(|(found, row)| found.0 == row.0.1 && found.1 == *row.1);
            assert!(same, "{what}: table {table} has other rows");
            match scanned {
                Ok(()) => assert_eq!(found.len(), of_table.len(), "{what}: rows of table {table}"),
                Err(error) => {
                    check_error(&error, what);
                    is_whole = false;
                }
            }
        }
        for ((table, key), value) in self.rows.iter().step_by(13) {
            match store.get(*table, key) {
                Ok(found) => assert!(found.as_ref() == Some(value), "{what}: another row"),
                Err(error) => {
                    check_error(&error, what);
                    is_whole = false;
                }
            }
            match store.get(*table, &[&key[..], b"no"].concat()) {
                Ok(found) => assert_eq!(found, None, "{what}: a row that there is not"),
                Err(error) => check_error(&error, what),
            }
        }
        is_whole
    }

    /// As a server: what is read is right, and once damage is met nothing more is given or taken.
    fn serve(&self, what: &str, writes_first: bool) -> bool {
        let store = match MetaDisk::open(self.dir.path(), &options(), Arc::new(|| ())) {
            Ok(store) => store,
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.contains(&self.index().display().to_string()) && !text.contains('\n'),
                    "{what}: {text}"
                );
                return true;
            }
        };
        if writes_first && self.write_some(&store).is_err() {
            check_ended(self, &store, what);
            return true;
        }
        let is_whole = self.read_all(&store, what);
        // The checkpointer may have met what nobody has read.
        assert!(is_whole || store.damage().is_some(), "{what}: damage is not kept in mind");
        if store.damage().is_some() {
            check_ended(self, &store, what);
        }
        store.damage().is_some()
    }

    /// Puts rows as they are into the base again, so that pages all over it are read and changed.
    fn write_some(&self, store: &MetaDisk) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        for ((table, key), value) in self.rows.iter().step_by(19) {
            batch.put(*table, key, value);
        }
        store.apply(store.applied().next(), &batch)?;
        store.checkpoint()
    }
}

fn check_ended(sound: &Sound, store: &MetaDisk, what: &str) {
    let damage = store.damage().unwrap().to_string();
    assert!(damage.contains(&sound.index().display().to_string()), "{what}: {damage}");
    assert!(store.pressure().poisoned, "{what}");
    for ((table, key), _) in sound.rows.iter().step_by(211) {
        check_error(&store.get(*table, key).unwrap_err(), what);
    }
    let mut batch = Batch::new();
    batch.put(1, b"new", b"row");
    check_error(&store.apply(store.applied().next(), &batch).unwrap_err(), what);
}

fn check_error(error: &StoreError, what: &str) {
    let is_damage = matches!(error, StoreError::CorruptIndex { .. } | StoreError::CorruptRow { .. });
    assert!(is_damage, "{what}: {error}");
}

/// Files of a store beside its base.
fn others(path: &Path) -> Vec<PathBuf> {
    let files =
        |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let mut paths = files(&path.join("log"));
    paths.extend(
        files(path).into_iter().filter(|path| path.file_name().is_some_and(|name| name == "reached")),
    );
    paths
}

fn contents(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    others(path).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Reading is quicker than writing, and most of a file is as it was.
fn restore(path: &Path, bytes: &[u8]) {
    let found = fs::read(path).unwrap_or_default();
    if found.len() != bytes.len() {
        return fs::write(path, bytes).unwrap();
    }
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let size = BLOCK_BYTES as usize;
    for (index, (block, found)) in bytes.chunks(size).zip(found.chunks(size)).enumerate() {
        if block != found {
            file.write_all_at(block, (index * size) as u64).unwrap();
        }
    }
}

fn some_changes(rows: &mut Rows, rng: &mut Rng) -> Batch {
    let mut batch = Batch::new();
    for _ in 0..70 {
        let table = 1 + rng.below(u64::from(TABLE_COUNT)) as u8;
        if rng.one_in(4) {
            let gone: Vec<_> =
                rows.keys().skip(rng.below(1 + rows.len() as u64) as usize).take(1).cloned().collect();
            for key in gone {
                batch.delete(key.0, &key.1);
                rows.remove(&key);
            }
            continue;
        }
        let key_bytes = if rng.one_in(3) { 100 + rng.below(400) } else { 8 + rng.below(24) };
        let value_bytes = match rng.below(40) {
            0 => VALUE_BYTES_MAX as u64 / 4,
            1..6 => 3000 + rng.below(6000),
            _ => rng.below(400),
        };
        let mut bytes = |count: u64| (0..count).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>();
        let (key, value) = (bytes(key_bytes), bytes(value_bytes));
        batch.put(table, &key, &value);
        rows.insert((table, key), value);
    }
    batch
}

/// Bits to flip: one of each block, where it may be or where the kind of a page and its number of rows are, and more of what is no page.
fn bits(sound: &Sound, rng: &mut Rng) -> Vec<u64> {
    let mut bits = Vec::new();
    for block in 0..sound.block_count() {
        let is_structure = block == HEADER_BLOCK || block.is_multiple_of(GROUP_BLOCKS);
        let end = (sound.base.len() as u64 - block * BLOCK_BYTES).min(BLOCK_BYTES);
        let end = if !is_structure && rng.one_in(2) { 8 } else { end };
        let count = if is_structure { 40 } else { 1 };
        bits.extend((0..count).map(|_| block * BLOCK_BYTES * 8 + rng.below(end * 8)));
    }
    bits
}

#[test]
fn a_bit_of_each_page_is_found_and_never_a_row() {
    let mut rng = Rng::new(4);
    for is_closed in [true, false] {
        let sound = Sound::make(is_closed);
        assert!(sound.find("nothing").is_none(), "a sound base is found damaged");
        let mut found_blocks = std::collections::BTreeSet::new();
        // And what redb's header and its seal have, of which the unit tests of the file try every bit.
        let header = (0..512 * 8).step_by(7).map(|bit| HEADER_BLOCK * BLOCK_BYTES * 8 + bit);
        for bit in bits(&sound, &mut rng).into_iter().chain(header) {
            sound.flip(bit);
            let what = format!("closed {is_closed}, block {}, bit {bit}", bit / 8 / BLOCK_BYTES);
            let is_found = sound.find(&what).inspect(|is_told| assert!(*is_told, "{what}: where?")).is_some();
            // After a kill there are blocks that nothing leads to, and nobody can say what should be in them.
            assert!(is_found || !is_closed, "{what}: not found");
            if is_found {
                found_blocks.insert(bit / 8 / BLOCK_BYTES);
            }
            sound.unflip(bit);
        }
        assert!(sound.find("nothing").is_none(), "the planted damage has stayed");
        assert!(found_blocks.len() > 100, "{} blocks", found_blocks.len());
    }
}

#[test]
fn a_store_ends_at_the_first_damage_and_gives_no_wrong_row() {
    let mut rng = Rng::new(5);
    for is_closed in [true, false] {
        let sound = Sound::make(is_closed);
        for writes_first in [true, false] {
            assert!(!sound.serve("nothing", writes_first), "a sound base is refused");
            sound.restore();
        }
        let bits = bits(&sound, &mut rng);
        let mut found_count = 0;
        for (round, bit) in bits.iter().step_by(2).enumerate() {
            sound.restore();
            sound.flip(*bit);
            let what = format!("closed {is_closed}, block {}, bit {bit}", bit / 8 / BLOCK_BYTES);
            found_count += u32::from(sound.serve(&what, round.is_multiple_of(2)));
        }
        assert!(found_count > 100, "{found_count}");
    }
}

fn lengths(sound: &Sound, rng: &mut Rng) -> Vec<u64> {
    let whole = sound.base.len() as u64;
    let mut lengths =
        vec![0, 1, 511, 4095, 4096, 4097, 4096 + 320, 4096 + 511, 4096 + 512, 8191, 8192, whole - 1];
    lengths.extend((2..sound.block_count()).map(|block| block * BLOCK_BYTES));
    lengths.extend((0..60).map(|_| rng.below(whole)));
    lengths
}

/// redb begins anew where it finds zeros: what was there would be gone without a word.
#[test]
fn a_header_of_zeros_is_refused_and_begins_nothing_anew() {
    for is_closed in [true, false] {
        let sound = Sound::make(is_closed);
        for byte_count in [4, 9, 64, 320, 496, 512, BLOCK_BYTES] {
            let what = format!("closed {is_closed}, {byte_count} bytes of zeros");
            let file = OpenOptions::new().write(true).open(sound.index()).unwrap();
            file.write_all_at(&vec![0; byte_count as usize], HEADER_BLOCK * BLOCK_BYTES).unwrap();
            let damaged = fs::read(sound.index()).unwrap();
            let error = MetaReader::open(sound.dir.path(), CACHE_BYTES).err();
            let text = error.unwrap_or_else(|| panic!("{what}: read")).to_string();
            assert!(text.contains(&sound.index().display().to_string()), "{what}: {text}");
            let error = MetaDisk::open(sound.dir.path(), &options(), Arc::new(|| ())).err();
            assert!(error.is_some(), "{what}: served");
            assert!(fs::read(sound.index()).unwrap() == damaged, "{what}: something was written");
            sound.restore();
        }
    }
}

#[test]
fn a_cut_base_is_refused_whatever_its_length() {
    let mut rng = Rng::new(6);
    for is_closed in [true, false] {
        let sound = Sound::make(is_closed);
        for (round, length) in lengths(&sound, &mut rng).into_iter().enumerate() {
            let file = OpenOptions::new().write(true).open(sound.index()).unwrap();
            file.set_len(length).unwrap();
            let what = format!("closed {is_closed}, {length} bytes of {}", sound.base.len());
            let error = MetaReader::open(sound.dir.path(), CACHE_BYTES).err();
            let text = error.unwrap_or_else(|| panic!("{what} are served")).to_string();
            assert!(text.contains(&sound.index().display().to_string()), "{what}: {text}");
            let error = MetaDisk::open(sound.dir.path(), &options(), Arc::new(|| ())).err();
            assert!(error.is_some(), "{what} are served");
            assert_eq!(fs::metadata(sound.index()).unwrap().len(), length, "{what}: something was written");
            if round.is_multiple_of(8) {
                // As long as it was, with zeros: what is lost is not taken for what was never written.
                file.set_len(sound.base.len() as u64).unwrap();
                // Of a whole group of blocks that is zeros, checksums too, only those are missed that something leads to.
                let is_gone = length < GROUP_BLOCKS * BLOCK_BYTES
                    && sound.base[length as usize..].iter().any(|byte| *byte != 0);
                assert!(sound.find(&what).is_some() || !is_gone || !is_closed, "{what}: zeros are not found");
            }
            file.write_all_at(&sound.base[length as usize..], length).unwrap();
        }
    }
}

/// Blocks in the place of others, with checksums that fit: as writes leave them that a device has said to have done, and has not. Pages
/// then lead to each other. Rows may be missing, which nobody can see; none is another's, and whoever reads them comes to an end. (Who
/// changes them may not: docs/limits.md.)
#[test]
fn pages_that_lead_to_each_other_end_nobody() {
    let mut rng = Rng::new(7);
    let sound = Sound::make(true);
    let used: Vec<u64> = (HEADER_BLOCK + 1..sound.block_count())
        .filter(|block| !block.is_multiple_of(GROUP_BLOCKS))
        .filter(|block| matches!(sound.base[(block * BLOCK_BYTES) as usize], 1 | 2))
        .collect();
    // A branch has a 2 at its beginning.
    let is_branch = |block: &u64| sound.base[(block * BLOCK_BYTES) as usize] == 2;
    let branches: Vec<u64> = used.iter().copied().filter(is_branch).collect();
    assert!(branches.len() > 4, "no pages of pages: {}", branches.len());
    let block_of = |block: u64| &sound.base[(block * BLOCK_BYTES) as usize..][..BLOCK_BYTES as usize];
    let mut errors = 0;
    for round in 0..400 {
        let file = OpenOptions::new().write(true).open(sound.index()).unwrap();
        for _ in 0..1 + rng.below(3) {
            let from = branches[rng.below(branches.len() as u64) as usize];
            let places = if rng.one_in(2) { &branches } else { &used };
            let to = places[rng.below(places.len() as u64) as usize];
            file.write_all_at(block_of(from), to * BLOCK_BYTES).unwrap();
            let checksums = to / GROUP_BLOCKS * GROUP_BLOCKS * BLOCK_BYTES;
            let zero_checksum = crc32c::crc32c(&[0; BLOCK_BYTES as usize]);
            let checksum = crc32c::crc32c(block_of(from)) ^ zero_checksum;
            file.write_all_at(&checksum.to_le_bytes(), checksums + (to % GROUP_BLOCKS - 1) * 4).unwrap();
        }
        errors += read_what_is_there(&sound, &format!("round {round}"));
        sound.restore();
    }
    assert!(errors > 0, "nothing was noticed");
}

/// How many calls were refused.
fn read_what_is_there(sound: &Sound, what: &str) -> u32 {
    let Ok(reader) = MetaReader::open(sound.dir.path(), CACHE_BYTES) else { return 1 };
    let mut errors = 0;
    for table in 0..=TABLE_COUNT {
        let scanned = reader.scan(table, &[], &[0xff; KEY_BYTES_MAX], usize::MAX, &mut |key, value| {
            let row = sound.rows.get(&(table, key.to_vec()));
            assert!(row.is_none_or(|row| row == value), "{what}: another row");
            true
        });
        errors += u32::from(scanned.is_err());
    }
    for ((table, key), value) in sound.rows.iter().step_by(5) {
        match reader.get(*table, key) {
            Ok(found) => assert!(found.is_none_or(|found| found == *value), "{what}: another row"),
            Err(_) => errors += 1,
        }
    }
    errors += u32::from(reader.counted_bytes().is_err());
    drop(reader);
    errors
}

/// As a program from before there were seals leaves it.
#[test]
fn a_base_without_a_seal_is_served_and_sealed() {
    const SEAL: std::ops::Range<u64> = HEADER_BLOCK * BLOCK_BYTES + 496..HEADER_BLOCK * BLOCK_BYTES + 512;
    for is_closed in [true, false] {
        let mut sound = Sound::make(is_closed);
        let seal = SEAL.start as usize..SEAL.end as usize;
        assert!(sound.base[seal.clone()].iter().any(|byte| *byte != 0), "a base has a seal");
        sound.base[seal.clone()].fill(0);
        sound.restore();
        assert!(sound.find("read").is_none(), "a base without a seal is found damaged");
        assert_eq!(fs::read(sound.index()).unwrap(), sound.base, "somebody who only reads has written");
        let store = MetaDisk::open(sound.dir.path(), &options(), Arc::new(|| ())).unwrap();
        assert!(sound.read_all(&store, "served") && store.damage().is_none());
        sound.base = fs::read(sound.index()).unwrap();
        drop(store);
        assert!(sound.base[seal].iter().any(|byte| *byte != 0), "it was not sealed");
    }
}

/// Under a store that goes on with what it has in memory.
#[test]
fn a_base_that_is_cut_under_a_store_is_noticed_by_itself() {
    let mut rng = Rng::new(8);
    let sound = Sound::make(true);
    for length in [0, 1, 4096, 8192, 100_000, sound.base.len() as u64 - 1] {
        let store = MetaDisk::open(sound.dir.path(), &options(), Arc::new(|| ())).unwrap();
        let opened_bytes = fs::metadata(sound.index()).unwrap().len();
        let file = OpenOptions::new().write(true).open(sound.index()).unwrap();
        file.set_len(length.min(opened_bytes - 1)).unwrap();
        wait_for("the notice of a cut base", || store.damage().is_some());
        check_ended(&sound, &store, &format!("cut to {length}"));
        drop(store);
        assert!(MetaDisk::open(sound.dir.path(), &options(), Arc::new(|| ())).is_err());
        sound.restore();
    }
    // And while rows are read and checkpoints written.
    for round in 0..20 {
        let store = MetaDisk::open(sound.dir.path(), &options(), Arc::new(|| ())).unwrap();
        let file = OpenOptions::new().write(true).open(sound.index()).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut batch = Batch::new();
                batch.put(99, b"key", &[7; 9000]);
                while store.apply(store.applied().next(), &batch).is_ok() && store.checkpoint().is_ok() {}
            });
            let mut is_cut = false;
            while !writer.is_finished() {
                self::read_some(&sound, &store, &mut rng);
                if !is_cut {
                    file.set_len(rng.below(sound.base.len() as u64)).unwrap();
                    is_cut = true;
                }
            }
        });
        check_ended(&sound, &store, &format!("round {round}"));
        drop(store);
        sound.restore();
    }
}

fn read_some(sound: &Sound, store: &MetaDisk, rng: &mut Rng) {
    let start = rng.below(sound.rows.len() as u64) as usize;
    for ((table, key), value) in sound.rows.iter().skip(start).take(20) {
        match store.get(*table, key) {
            Ok(found) => assert!(found.as_ref() == Some(value), "another row"),
            Err(error) => check_error(&error, "while it is cut"),
        }
    }
}

#[test]
fn bits_that_flip_under_a_store_are_never_a_row() {
    let mut rng = Rng::new(9);
    let sound = Sound::make(true);
    let mut found_count = 0;
    for round in 0..60 {
        let store = MetaDisk::open(sound.dir.path(), &options(), Arc::new(|| ())).unwrap();
        sound.read_all(&store, "before");
        let file: File = OpenOptions::new().read(true).write(true).open(sound.index()).unwrap();
        for _ in 0..20 {
            let at = rng.below(file.metadata().unwrap().len());
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            byte[0] ^= 1 << rng.below(8);
            file.write_all_at(&byte, at).unwrap();
        }
        let what = format!("round {round}");
        if !sound.read_all(&store, &what) {
            found_count += 1;
            check_ended(&sound, &store, &what);
        }
        drop(store);
        sound.restore();
    }
    assert!(found_count > 30, "{found_count}");
}
