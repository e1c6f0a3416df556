//! The decoders of disk formats that are private to this crate, with valid bytes and a way to make checksums right
//! again, for the fuzz test of all decoders (`crates/sheen/src/fuzz.rs`).

use crate::directory;
use crate::index;
use crate::log::format::{self, Header, Kind};
use crate::log::reached;
use crate::log::replay::Covered;
use crate::objects::layout::State;
use base::{Epoch, Transno};
use std::path::Path;
use store::Batch;

const SEED: u32 = 0x5eed;
const ROW_KEY: &[u8] = b"\x02key of a row";

/// Two batches and a mark.
pub fn log_example() -> Vec<u8> {
    let mut batch = Batch::new();
    batch.put(1, b"a key", b"a value");
    batch.delete(2, b"another");
    let mut bytes = Vec::new();
    for (transno, kind, body) in
        [(7, Kind::Batch, batch.encoded()), (8, Kind::Batch, b""), (8, Kind::Mark, b"")]
    {
        let header = Header {
            kind,
            segment: 3,
            epoch: Epoch(2),
            transno: Transno(transno),
            previous: Transno(transno - 1),
            durable: Transno(6),
            body_crc: 0,
            body_bytes: 0,
        };
        format::push_group(SEED, &mut bytes, header, body);
    }
    bytes
}

/// Reads groups as a restart does, to the first that is not sound, then looks for what is behind. How many there were.
pub fn read_log(bytes: &[u8]) -> usize {
    let (mut offset_bytes, mut count) = (0, 0);
    while let Some((header, body)) =
        bytes.get(offset_bytes..).and_then(|rest| format::decode_group(SEED, rest))
    {
        // A batch that cannot be read stops a restart.
        if Batch::decode(body).is_err() {
            break;
        }
        offset_bytes += header.group_bytes();
        count += 1;
    }
    let behind = bytes.get(offset_bytes..).unwrap_or_default();
    count + format::find_headers(SEED, behind).count()
}

/// Makes the checksums of the first group right.
pub fn seal_log(bytes: &mut [u8]) {
    let field = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
    let body = field(56).and_then(|body_bytes| bytes.get(format::HEADER_BYTES..)?.get(..body_bytes));
    let body_crc = body.map(crc32c::crc32c);
    if let (Some(crc), Some(place)) = (body_crc, bytes.get_mut(12..16)) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
    let crc = bytes.get(12..format::HEADER_BYTES).map(|covered| crc32c::crc32c_append(SEED, covered));
    if let (Some(crc), Some(place)) = (crc, bytes.get_mut(8..12)) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

pub fn object_header_examples() -> Vec<Vec<u8>> {
    let dirty = State::Dirty { dirty_from: 4096, incarnation: 7 };
    let settled = State::Settled { lenient_from: u64::MAX, stored_bytes: 9000 };
    [dirty, State::Clean, settled].map(|state| state.encode().to_vec()).to_vec()
}

pub fn read_object_header(bytes: &[u8]) -> bool {
    State::decode(bytes).is_some()
}

pub fn seal_object_header(bytes: &mut [u8]) {
    let Some(header) = bytes.first_chunk_mut::<32>() else { return };
    header[12..16].fill(0);
    let crc = crc32c::crc32c(header);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
}

/// The note of how far a log reached.
pub fn reached_example() -> Vec<u8> {
    reached::encode(Transno(9)).to_vec()
}

pub fn read_reached(bytes: &[u8]) -> bool {
    reached::decode(bytes).is_some()
}

pub fn checkpoint_example() -> Vec<u8> {
    let covered = Covered { applied: Transno(9), segment: 3, epoch: Epoch(2), seed: SEED };
    index::encode_covered(covered).to_vec()
}

pub fn read_checkpoint(bytes: &[u8]) -> bool {
    index::decode_covered(bytes).is_some()
}

/// A row as the base keeps it.
pub fn row_example() -> Vec<u8> {
    index::seal(ROW_KEY, b"value of a row")
}

pub fn read_row(bytes: &[u8]) -> bool {
    index::unseal(ROW_KEY, bytes).is_ok()
}

/// The text of `target.json`.
pub fn superblock_example() -> Vec<u8> {
    directory::example()
}

pub fn read_superblock(text: &[u8]) -> bool {
    directory::parse_superblock(Path::new("/target"), text).is_ok()
}
