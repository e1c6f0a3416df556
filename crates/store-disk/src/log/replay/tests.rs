#![allow(clippy::unwrap_used)]
use super::super::format::tests::make_unknown;
use super::super::format::{group_bytes, push_group};
use super::*;

const SEED: u32 = 9;
const NUMBER: u64 = 4;
const BATCH_COUNT: u64 = 3;

fn batch(transno: u64) -> Batch {
    let mut batch = Batch::new();
    batch.put(1, &transno.to_be_bytes(), b"value");
    batch
}

fn group(transno: u64, body: &[u8]) -> Vec<u8> {
    let header = Header {
        kind: Kind::Batch,
        segment: NUMBER,
        epoch: Epoch(2),
        transno: Transno(transno),
        previous: Transno(transno - 1),
        durable: Transno::ZERO,
        body_crc: 0,
        body_bytes: 0,
    };
    let mut bytes = Vec::new();
    push_group(SEED, &mut bytes, header, body);
    bytes
}

/// A segment with three batches; what `change` makes of the group of one of them.
fn segment(change: impl Fn(u64, Vec<u8>) -> Vec<u8>) -> Vec<u8> {
    let groups = (1..=BATCH_COUNT).map(|transno| change(transno, group(transno, batch(transno).encoded())));
    let mut bytes: Vec<u8> = groups.flatten().collect();
    bytes.resize(4096, 0);
    bytes
}

/// Replays one segment behind a base that covers all segments up to one: the last batch, or the refusal.
fn replayed(bytes: &[u8], covered_segment: u64) -> Result<Transno, ReplayError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    std::fs::write(&path, bytes).unwrap();
    let covered = Covered { segment: covered_segment, seed: SEED, ..Covered::default() };
    let found = replay(dir.path(), covered, Transno::ZERO, Syncing::Skipped, &mut |_, _| {});
    if found.is_err() {
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "a refused log is left as it is");
    }
    found.map(|found| found.last)
}

/// What is written once more: the groups that nobody has said to be durable, byte by byte as they are, and no others.
#[test]
fn only_what_is_not_known_to_be_durable_is_written_once_more() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let bytes = segment(|_, group| group);
    let covered = Covered { seed: SEED, ..Covered::default() };
    for reached in 0..=BATCH_COUNT {
        std::fs::write(&path, &bytes).unwrap();
        let (_, ends) =
            walk(dir.path(), covered, Transno(reached), &device::open_to_read, &mut |_, _| {}).unwrap();
        assert_eq!(ends.durable, Transno(reached));
        let undurable: Vec<u64> = ends.undurable.iter().map(|(_, end)| *end).collect();
        let end = offset_of(BATCH_COUNT + 1);
        assert_eq!(undurable, if reached < BATCH_COUNT { vec![end as u64] } else { vec![] }, "{reached}");
        let Some((read, end)) = ends.undurable.into_iter().next() else { continue };
        // What is to be written is read from the log, and goes to a file that has nothing else.
        std::fs::write(&path, []).unwrap();
        let lost = Segment { file: Arc::new(device::open(&path, false).unwrap()), ..read };
        write_back_bytes(&lost, bytes.get(..end as usize).unwrap(), SEED, Transno(reached)).unwrap();
        let mut expected = vec![0; offset_of(reached + 1)];
        expected.extend_from_slice(&bytes[offset_of(reached + 1)..end as usize]);
        assert_eq!(std::fs::read(&path).unwrap(), expected, "{reached}");
    }
}

fn offset_of(transno: u64) -> usize {
    (transno as usize - 1) * group_bytes(batch(1).encoded().len())
}

#[test]
fn a_record_that_only_a_newer_version_knows_is_refused_with_its_place_and_kind() {
    assert_eq!(replayed(&segment(|_, group| group), 0).unwrap(), Transno(BATCH_COUNT));
    for newer in 1..=BATCH_COUNT {
        for (kind, version) in [(3, 1), (1, 2)] {
            let bytes = segment(|transno, mut group| {
                if transno == newer {
                    make_unknown(SEED, &mut group, kind, version);
                }
                group
            });
            let error = replayed(&bytes, 0).unwrap_err();
            let line = error.to_string();
            assert!(
                matches!(error, ReplayError::UnknownRecord { offset_bytes, .. } if offset_bytes == offset_of(newer))
            );
            assert!(
                line.contains(&format!("a record of kind {kind} and version {version} at byte ")),
                "{line}"
            );
            assert!(line.contains("start this target with the version that wrote it"), "{line}");
        }
    }
}

#[test]
fn a_newer_record_behind_a_torn_one_is_refused_too() {
    for torn in 1..BATCH_COUNT {
        let bytes = segment(|transno, mut group| {
            if transno == torn {
                group.fill(0);
            } else if transno == BATCH_COUNT {
                make_unknown(SEED, &mut group, 7, 1);
            }
            group
        });
        let error = replayed(&bytes, 0).unwrap_err();
        assert!(matches!(error, ReplayError::UnknownRecord { kind: 7, version: 1, .. }), "{error}");
    }
}

#[test]
fn what_the_base_covers_may_be_of_any_version() {
    let bytes = segment(|_, mut group| {
        make_unknown(SEED, &mut group, 3, 2);
        group
    });
    assert_eq!(replayed(&bytes, NUMBER).unwrap(), Transno::ZERO);
}

#[test]
fn an_operation_that_only_a_newer_version_knows_is_refused_with_its_place() {
    let bytes = segment(|transno, group_of_now| {
        if transno != 2 {
            return group_of_now;
        }
        let mut body = batch(transno).encoded().to_vec();
        body[1] = 77;
        group(transno, &body)
    });
    let error = replayed(&bytes, 0).unwrap_err();
    assert!(matches!(error, ReplayError::Unreadable { transno: Transno(2), .. }));
    let line = error.to_string();
    assert!(line.contains("unknown operation 77 in the batch at byte 0"), "{line}");
}
