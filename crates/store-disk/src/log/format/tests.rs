#![allow(clippy::unwrap_used)]

use super::*;

fn header() -> Header {
    Header {
        kind: Kind::Batch,
        segment: 3,
        epoch: Epoch(2),
        transno: Transno(0x0102_0304),
        previous: Transno(7),
        durable: Transno(6),
        body_crc: 0,
        body_bytes: 0,
    }
}

#[test]
fn golden_bytes_of_version_1() {
    let mut bytes = Vec::new();
    push_group(9, &mut bytes, header(), b"body bytes");
    assert_eq!(bytes.len(), 80);
    assert_eq!(bytes[..8], *b"SHEENLG1");
    assert_eq!(bytes[8..16], [54, 152, 67, 95, 35, 67, 191, 204]);
    assert_eq!(bytes[32..36], [4, 3, 2, 1], "numbers are little-endian");
    assert_eq!(bytes[60..64], [1, 0, 1, 0]);
    assert_eq!(&bytes[64..], b"body bytes\0\0\0\0\0\0");
    let (read, body) = decode_group(9, &bytes).unwrap();
    assert_eq!((read.transno, read.segment, read.group_bytes()), (Transno(0x0102_0304), 3, 80));
    assert_eq!(body, b"body bytes");
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let mut bytes = Vec::new();
    push_group(9, &mut bytes, header(), b"body bytes");
    let body_end = HEADER_BYTES + 10;
    for bit in 0..body_end * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_group(9, &bytes).is_none(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(decode_group(8, &bytes).is_none(), "another log's seed");
    for end in 0..body_end {
        assert!(decode_group(9, &bytes[..end]).is_none(), "cut at {end}");
    }
}

#[test]
fn headers_are_found_behind_damage() {
    let mut bytes = vec![0xff; 24];
    push_group(9, &mut bytes, header(), b"x");
    bytes.extend_from_slice(&[0; 16]);
    push_group(9, &mut bytes, Header { kind: Kind::Mark, ..header() }, b"");
    let found: Vec<_> = find_headers(9, &bytes).map(|(at, header)| (at, header.unwrap().kind)).collect();
    assert_eq!(found, [(24, Kind::Batch), (24 + 72 + 16, Kind::Mark)]);
}

/// What a newer version has written, with everything else as it is now.
pub(crate) fn make_unknown(seed: u32, header: &mut [u8], kind: u16, version: u16) {
    header[60..62].copy_from_slice(&kind.to_le_bytes());
    header[62..64].copy_from_slice(&version.to_le_bytes());
    let crc = crc32c::crc32c_append(seed, &header[CRC_FROM..HEADER_BYTES]);
    header[8..12].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn a_header_of_a_newer_version_is_told_from_damage() {
    let mut bytes = Vec::new();
    push_group(9, &mut bytes, header(), b"body bytes");
    for (kind, version) in [(3, 1), (1, 2), (0, 0), (9, 9)] {
        make_unknown(9, &mut bytes, kind, version);
        assert_eq!(Header::decode(9, &bytes), Some(Err(Unknown { segment: 3, kind, version })));
        assert_eq!(Header::decode(8, &bytes), None, "another log's seed");
        assert!(decode_group(9, &bytes).is_none());
    }
}
