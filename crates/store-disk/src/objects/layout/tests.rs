#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn sizes_map_there_and_back() {
    for size in [0, 1, 4095, 4096, GROUP_BYTES - 1, GROUP_BYTES, GROUP_BYTES + 1, 5 * GROUP_BYTES + 77] {
        assert_eq!(size_of_stored(stored_length(size)), size);
        assert_eq!(offset_of_stored(stored_offset(size)), (size, false));
    }
    assert_eq!(offset_of_stored(7), (0, true));
    assert_eq!(offset_of_stored(GROUP_BYTES + BLOCK_BYTES + 7), (GROUP_BYTES, true));
}

#[test]
fn checksums_stand_before_their_blocks_and_apart() {
    assert_eq!(checksum_offset(0), 32);
    assert_eq!(checksum_offset(GROUP_BLOCKS - 1), BLOCK_BYTES - 4);
    assert_eq!(checksum_offset(GROUP_BLOCKS), stored_offset(GROUP_BYTES) - BLOCK_BYTES + 32);
}

#[test]
fn parts_cover_an_extent_once() {
    let extent = Extent::new(5, 3 * GROUP_BYTES + 9);
    let parts: Vec<_> = parts(extent).collect();
    assert_eq!(parts.len(), 4);
    assert_eq!(parts.iter().map(|part| part.byte_count()).sum::<u64>(), extent.byte_count());
    assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
}

#[test]
fn what_is_written_at_once_is_within_a_bound_of_the_file() {
    let extent = Extent::new(5, 2 * GROUP_BYTES + 9);
    let written: Vec<_> = written_parts(extent).collect();
    assert_eq!((written.first().unwrap().start, written.last().unwrap().end), (extent.start, extent.end));
    assert!(written.windows(2).all(|pair| pair[0].end == pair[1].start));
    for part in written {
        assert!(!part.is_empty());
        let (first, last) = (stored_offset(part.start), stored_offset(part.end - 1));
        assert_eq!(last - first, part.byte_count() - 1, "no checksums in between");
        assert_eq!(first / WRITTEN_BYTES_MAX, last / WRITTEN_BYTES_MAX);
    }
    let block = Extent::at(7 * BLOCK_BYTES, BLOCK_BYTES);
    assert_eq!(written_parts(block).collect::<Vec<_>>(), [block]);
}

#[test]
fn golden_headers_of_version_1() {
    let dirty = State::Dirty { dirty_from: 0x0102, incarnation: 7 };
    let bytes = dirty.encode();
    assert_eq!(bytes[..12], *b"SHEENOB1\x01\0\0\0");
    assert_eq!(bytes[16..], [2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(State::decode(&bytes), Some(dirty));
    assert_eq!(State::decode(&State::Clean.encode()), Some(State::Clean));
    let settled = State::Settled { lenient_from: u64::MAX, stored_bytes: 0x0304 };
    let settled_bytes = settled.encode();
    assert_eq!(settled_bytes[..12], *b"SHEENOB1\x03\0\0\0");
    assert_eq!(settled_bytes[16..], [255, 255, 255, 255, 255, 255, 255, 255, 4, 3, 0, 0, 0, 0, 0, 0]);
    assert_eq!(State::decode(&settled_bytes), Some(settled));
    let with_length = |stored_bytes| State::Settled { lenient_from: 0, stored_bytes };
    let longest = with_length(FORMER_STORED_BYTES_MAX);
    assert_eq!(State::decode(&longest.encode()), Some(longest), "of a version before");
    assert_eq!(State::decode(&with_length(FORMER_STORED_BYTES_MAX + 1).encode()), None, "no file is as long");
    for bytes in [bytes, settled_bytes] {
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(State::decode(&flipped), None, "bit {bit}");
        }
    }
    assert_eq!(State::decode(&[0; 32]), None);
    assert_eq!(State::decode(&[0; 3]), None);
}

#[test]
fn a_writer_leaves_whole_groups_behind() {
    assert_eq!(left_behind(Extent::new(5, GROUP_BYTES - 1)), None);
    assert_eq!(left_behind(Extent::new(5, GROUP_BYTES)), Some(Extent::new(0, STORED_GROUP_BYTES)));
    let next = Extent::new(2 * GROUP_BYTES - 1, 3 * GROUP_BYTES + 1);
    assert_eq!(left_behind(next), Some(Extent::new(STORED_GROUP_BYTES, 3 * STORED_GROUP_BYTES)));
}
