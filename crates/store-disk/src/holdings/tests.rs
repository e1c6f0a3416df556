#![allow(clippy::unwrap_used)]
use super::*;

const UUID: u128 = 0x1234_5678 << 70 | 9;

fn key(number: u64) -> HoldingKey {
    HoldingKey { client: ClientId(u128::from(number) << 64 | 7), kind: 1 + number % 2, number }
}

fn holding(number: u64) -> Holding {
    [number, 2, 3, u64::MAX, 5, 6]
}

fn note(path: &Path) -> HoldingsFile {
    HoldingsFile::new(path.to_path_buf(), UUID)
}

/// As the next incarnation reads it.
fn left(path: &Path) -> Option<Left> {
    note(path).take_left()
}

#[test]
fn the_next_process_finds_what_is_held() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("held");
    assert_eq!(left(&path), None);
    let mut first = note(&path);
    first.begin(Epoch(4), &[(key(1), holding(1)), (key(2), holding(2))], true);
    first.remove(key(1));
    first.put(key(3), holding(3));
    first.put(key(3), holding(30));
    first.remove(key(77));
    first.set_applied(Transno(99));
    let expected = Left {
        epoch: Epoch(4),
        applied: Transno(99),
        held: vec![(key(3), holding(30)), (key(2), holding(2))],
    };
    // It is not dropped: the process is killed.
    assert_eq!(left(&path), Some(expected.clone()));
    let mut second = note(&path);
    second.begin(Epoch(5), &expected.held, false);
    assert_eq!(left(&path), None, "not whole");
    first.put(key(8), holding(8));
    second.set_whole();
    let left = left(&path).unwrap();
    assert_eq!((left.epoch, left.held.len()), (Epoch(5), 2), "the former process writes elsewhere");
}

#[test]
fn a_note_grows_and_one_without_room_is_never_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("held");
    let mut first = note(&path);
    first.begin(Epoch(1), &[], true);
    let room = record_count(FILE_BYTES_MAX) as u64;
    for number in 0..room {
        first.put(key(number), holding(number));
    }
    let found = left(&path).unwrap();
    assert_eq!(found.held.len() as u64, room);
    assert!(found.held.iter().all(|(found, words)| *words == holding(found.number)));
    first.put(key(room), holding(room));
    first.remove(key(0));
    first.set_whole();
    assert_eq!(left(&path), None);
}

#[test]
fn a_note_of_another_machine_target_or_format_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("held");
    let mut first = note(&path);
    first.begin(Epoch(1), &[(key(1), holding(1))], true);
    let (bytes, boot) = (read(&path).unwrap(), boot().unwrap());
    assert!(parse(&bytes, boot, UUID).is_some());
    assert_eq!(parse(&bytes, boot ^ 1, UUID), None, "another run of the machine");
    assert_eq!(parse(&bytes, boot, UUID ^ 1), None, "another target");
    let flipped = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 4;
        parse(&bytes, boot, UUID)
    };
    assert_eq!(flipped(0), None);
    assert_eq!(flipped(head::VERSION * WORD_BYTES), None);
    assert_eq!(flipped(head::IS_WHOLE * WORD_BYTES), None);
    assert_eq!(flipped(head::BYTE_COUNT * WORD_BYTES), None);
    assert_eq!(flipped(head::RECORD_COUNT * WORD_BYTES), None);
    for at in 0..RECORD_BYTES {
        assert_eq!(flipped(HEAD_BYTES + at), None, "byte {at} of a record");
    }
    let taken = HEAD_BYTES + 4;
    for bit in 0..32 {
        let mut bytes = bytes.clone();
        bytes[taken + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(parse(&bytes, boot, UUID), None, "bit {bit} of what says that a place is taken");
    }
    for byte_count in [0, 7, 100, HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + RECORD_BYTES, FILE_BYTES_MIN - 1] {
        assert_eq!(parse(&bytes[..byte_count], boot, UUID), None);
    }
}

/// Storing into a page that a mapped file has lost raises a signal, which would end this process, and a server with all its targets.
#[test]
fn a_note_that_is_cut_ends_and_nobody_believes_it() {
    let cut = |length: u64| {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("held"), dir.path().join("other"));
        let (mut first, mut second) = (note(&path), note(&other));
        for file in [&mut first, &mut second] {
            file.begin(Epoch(1), &[(key(1), holding(1))], true);
        }
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(length).unwrap();
        assert_eq!(left(&path), None, "{length} bytes");
        first.set_applied(Transno(7));
        for number in 2..400 {
            first.put(key(number), holding(number));
            second.put(key(number), holding(number));
        }
        first.remove(key(1));
        first.set_whole();
        assert_eq!(left(&path), None, "{length} bytes");
        assert_eq!(first.noting.is_none(), length <= 4096, "{length} bytes");
        // Another target of the process goes on, and so does the next note of this one.
        assert_eq!(left(&other).unwrap().held.len(), 399);
        first.begin(Epoch(2), &[(key(3), holding(3))], true);
        assert_eq!(left(&path).unwrap().held.len(), 1);
    };
    for length in [0, 1, 4095, 4096, 100_000] {
        cut(length);
    }
}

/// Then there is no signal, and what was behind the cut is zeros.
#[test]
fn a_note_that_was_cut_and_made_as_long_again_is_not_believed() {
    for length in [0, HEAD_BYTES as u64, (HEAD_BYTES + RECORD_BYTES) as u64] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("held");
        let mut first = note(&path);
        let held: Vec<_> = (0..9).map(|number| (key(number), holding(number))).collect();
        first.begin(Epoch(1), &held, true);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(length).unwrap();
        file.set_len(FILE_BYTES_MIN as u64).unwrap();
        assert_eq!(left(&path), None, "{length}");
        first.put(key(20), holding(20));
        first.remove(key(8));
        first.set_whole();
        assert_eq!(left(&path), None, "{length}");
    }
}
