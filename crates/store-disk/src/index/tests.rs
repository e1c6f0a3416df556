#![allow(clippy::unwrap_used)]

use super::*;

fn open(dir: &Path, seed: Option<u32>) -> Result<RedbBase, BaseError> {
    let space = device::space(dir).unwrap();
    let ballast = Arc::new(Ballast::take(dir.join("ballast"), &space));
    RedbBase::open(&dir.join("base"), 1 << 20, Syncing::Skipped, ballast, seed)
}

fn fill(base: &RedbBase, row_count: u32, applied: u64) {
    let rows: Vec<_> = (0..row_count).map(|n| (n.to_be_bytes().to_vec(), vec![n as u8; 100])).collect();
    let covered = Covered { applied: Transno(applied), segment: 4, epoch: Epoch(2), seed: 9 };
    let mut changes = rows.iter().map(|(key, value)| (&key[..], Some(&value[..])));
    assert_eq!(base.checkpoint(&mut changes, covered, &|| true), Ok(true));
}

#[test]
fn a_checkpoint_is_read_back_after_opening_again() {
    let dir = tempfile::tempdir().unwrap();
    let base = open(dir.path(), Some(9)).unwrap();
    fill(&base, 25_000, 77);
    drop(base);
    let base = open(dir.path(), None).unwrap();
    assert_eq!(base.covered(), Covered { applied: Transno(77), segment: 4, epoch: Epoch(2), seed: 9 });
    assert_eq!(base.get(&7_u32.to_be_bytes()).unwrap().unwrap(), [7; 100]);
    assert_eq!(base.get(b"none"), Ok(None));
    let rows = base.range(&5_u32.to_be_bytes(), &900_u32.to_be_bytes(), 3).unwrap();
    assert_eq!(rows.iter().map(|(key, _)| key[3]).collect::<Vec<_>>(), [5, 6, 7]);
}

#[test]
fn a_checkpoint_given_up_is_not_seen() {
    let dir = tempfile::tempdir().unwrap();
    let base = open(dir.path(), Some(9)).unwrap();
    fill(&base, 3, 1);
    let mut one = std::iter::once((&b"x"[..], Some(&b"y"[..])));
    assert_eq!(base.checkpoint(&mut one, Covered::default(), &|| false), Ok(false));
    assert_eq!(base.get(b"x"), Ok(None));
    assert_eq!(base.get(&2_u32.to_be_bytes()).unwrap().unwrap(), [2; 100]);
    fill(&base, 5, 2);
    assert_eq!(base.covered().applied, Transno(2));
}

#[test]
fn a_flipped_bit_anywhere_is_an_error_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let base = open(dir.path(), Some(9)).unwrap();
    fill(&base, 3000, 5);
    drop(base);
    let path = dir.path().join("base");
    let sound = std::fs::read(&path).unwrap();
    let mut rng = base::Rng::new(21);
    let mut errors = 0;
    for round in 0..150 {
        let mut bytes = sound.clone();
        // The first blocks are the ones that redb trusts.
        let bit = if round < 50 { 4096 * 8 + rng.below(330 * 8) } else { rng.below(bytes.len() as u64 * 8) };
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        std::fs::write(&path, bytes).unwrap();
        let Ok(base) = open(dir.path(), None) else {
            errors += 1;
            continue;
        };
        for n in 0..3000_u32 {
            match base.get(&n.to_be_bytes()) {
                Ok(value) => assert_eq!(value.unwrap(), [n as u8; 100], "bit {bit}"),
                Err(_) => errors += 1,
            }
        }
    }
    assert!(errors > 0, "no flipped bit was noticed");
}

#[test]
fn an_empty_or_foreign_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(open(dir.path(), None), Err(BaseError::Io { .. })));
    std::fs::write(dir.path().join("base"), b"").unwrap();
    assert!(matches!(open(dir.path(), None), Err(BaseError::Damaged { .. })));
    std::fs::write(dir.path().join("base"), vec![0x5a; 100_000]).unwrap();
    assert!(matches!(open(dir.path(), None), Err(BaseError::Damaged { .. })));
}

#[test]
fn a_wrong_count_of_bytes_is_seen_and_put_right() {
    let dir = tempfile::tempdir().unwrap();
    let base = open(dir.path(), Some(9)).unwrap();
    fill(&base, 500, 5);
    let right = base.counted_bytes().unwrap();
    assert_eq!(right, (500 * (4 + 100 + 4), 500 * (4 + 100 + 4)));
    let plant = |opened: &Opened| {
        let transaction = opened.database.begin_write()?;
        transaction.open_table(COVERED)?.insert(LIVE_KEY, &7_u64.to_le_bytes()[..])?;
        Ok(transaction.commit()?)
    };
    base.with(plant).unwrap();
    drop(base);
    let base = open(dir.path(), None).unwrap();
    assert_eq!(base.counted_bytes().unwrap(), (7, right.1));
    base.recount().unwrap();
    assert_eq!(base.counted_bytes().unwrap(), right);
    drop(base);
    assert_eq!(open(dir.path(), None).unwrap().counted_bytes().unwrap(), right);
}

/// Also a base that was not closed, which redb has to put in order before it reads it.
#[test]
fn a_base_that_is_open_for_reading_is_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let base = open(dir.path(), Some(9)).unwrap();
    fill(&base, 3000, 5);
    let path = dir.path().join("base");
    let unclosed = std::fs::read(&path).unwrap();
    drop(base);
    let closed = std::fs::read(&path).unwrap();
    assert!(unclosed != closed, "an open base says so");
    for before in [unclosed, closed] {
        std::fs::write(&path, &before).unwrap();
        let base = RedbBase::open_to_read(&path, 1 << 20).unwrap();
        assert_eq!(base.get(&7_u32.to_be_bytes()).unwrap().unwrap(), [7; 100]);
        assert_eq!(base.range(&[], &[0xff; 5], 9999).unwrap().len(), 3000);
        assert_eq!(base.damaged_parts().unwrap(), []);
        drop(base);
        assert!(std::fs::read(&path).unwrap() == before);
    }
}

/// redb remembers that its device has failed, and says only that to whoever comes next. It does not make the base a damaged one.
#[test]
fn what_redb_repeats_of_an_error_of_its_device_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let base = open(dir.path(), Some(9)).unwrap();
    fill(&base, 3000, 5);
    let value = vec![3; 100_000];
    let covered = Covered { applied: Transno(6), segment: 4, epoch: Epoch(2), seed: 9 };
    let fails = |opened: &Opened| {
        let mut changes = std::iter::once((&b"late"[..], Some(&value[..])));
        base.write_checkpoint(opened, &mut changes, covered, &|| true).unwrap_err()
    };
    let expected = StoreError::Device { operation: "read or write the index", errno: libc::EIO };
    let guard = base.read_opened();
    let opened = guard.as_ref().unwrap();
    device::faults::fail_writes_below(dir.path());
    let first = fails(opened);
    device::faults::mend(dir.path());
    assert_eq!(as_store_error(&first), expected, "{first:?}");
    let second = fails(opened);
    assert!(matches!(second, redb::Error::PreviousIo), "{second:?}");
    assert_eq!(as_store_error(&second), expected);
    drop(guard);
    assert_eq!(base.get(&7_u32.to_be_bytes()).unwrap().unwrap(), [7; 100], "it is opened anew, and sound");
    drop(base);
    let base = open(dir.path(), None).unwrap();
    assert_eq!((base.covered().applied, base.get(b"late")), (Transno(5), Ok(None)));
    fill(&base, 5, 7);
    assert_eq!(base.covered().applied, Transno(7));
}
