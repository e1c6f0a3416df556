//! Bytes of the redo log: groups, one per batch, and marks between them.
//!
//! The header's checksum starts from the log's seed, a random number kept in the base: otherwise a user could store a
//! value that looks like a group, and replay would take it for evidence of damage.
//!
//! A group is a header of 64 bytes and the batch in its own encoding, padded to 8 bytes. All numbers little-endian:
//!
//! | offset | field | |
//! |---|---|---|
//! | 0 | magic | `SHEENLG1` |
//! | 8 | header_crc | CRC32C of bytes 12..64, started from the seed |
//! | 12 | body_crc | CRC32C of the body without padding |
//! | 16 | segment | number of the segment; what an earlier use of the file left has a lower one |
//! | 24 | epoch | opening of the store that wrote it |
//! | 32 | transno | of the batch; of the batch before it in a mark |
//! | 40 | previous | transno of the batch before this group |
//! | 48 | durable | the durable mark when this was written |
//! | 56 | body_bytes | |
//! | 60 | kind | 1 batch, 2 mark |
//! | 62 | version | 1 |
//!
//! In every version with this magic, the checksum, the segment, the kind and the version stand where they do here. So a sound header
//! of a newer version is told from bytes that are none, and is refused: what it stands for must not be lost.

use base::{Epoch, Transno};
use store::BATCH_BYTES_MAX;

pub(crate) const HEADER_BYTES: usize = 64;
pub(crate) const ALIGN_BYTES: usize = 8;
const MAGIC: &[u8; 8] = b"SHEENLG1";
const VERSION: u16 = 1;
const CRC_FROM: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Batch,
    /// Nothing but the durable mark, written after a sync so that a later loss of the last batch is noticed.
    Mark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    pub segment: u64,
    pub epoch: Epoch,
    pub transno: Transno,
    pub previous: Transno,
    pub durable: Transno,
    pub body_crc: u32,
    pub body_bytes: usize,
}

/// A sound header of a kind or a version that only a newer program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unknown {
    pub segment: u64,
    pub kind: u16,
    pub version: u16,
}

/// Bytes that a group of this body takes in a segment.
pub(crate) fn group_bytes(body_bytes: usize) -> usize {
    HEADER_BYTES + body_bytes.next_multiple_of(ALIGN_BYTES)
}

impl Header {
    pub fn group_bytes(&self) -> usize {
        group_bytes(self.body_bytes)
    }

    fn encode(&self, seed: u32) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let kind: u16 = match self.kind {
            Kind::Batch => 1,
            Kind::Mark => 2,
        };
        bytes[..8].copy_from_slice(MAGIC);
        bytes[12..16].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.segment.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.transno.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.previous.0.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.durable.0.to_le_bytes());
        bytes[56..60].copy_from_slice(&(self.body_bytes as u32).to_le_bytes());
        bytes[60..62].copy_from_slice(&kind.to_le_bytes());
        bytes[62..64].copy_from_slice(&VERSION.to_le_bytes());
        let crc = crc32c::crc32c_append(seed, &bytes[CRC_FROM..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` if these bytes are not a header that a log of this seed wrote.
    pub fn decode(seed: u32, bytes: &[u8]) -> Option<Result<Header, Unknown>> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        if !bytes.starts_with(MAGIC) {
            return None;
        }
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u16_at = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if u32_at(8)? != crc32c::crc32c_append(seed, bytes.get(CRC_FROM..)?) {
            return None;
        }
        let (segment, kind, version) = (u64_at(16)?, u16_at(60)?, u16_at(62)?);
        let kind = match (version, kind) {
            (VERSION, 1) => Kind::Batch,
            (VERSION, 2) => Kind::Mark,
            _ => return Some(Err(Unknown { segment, kind, version })),
        };
        let body_bytes = u32_at(56)? as usize;
        if body_bytes > BATCH_BYTES_MAX {
            return None;
        }
        Some(Ok(Header {
            kind,
            segment,
            epoch: Epoch(u64_at(24)?),
            transno: Transno(u64_at(32)?),
            previous: Transno(u64_at(40)?),
            durable: Transno(u64_at(48)?),
            body_crc: u32_at(12)?,
            body_bytes,
        }))
    }
}

/// Appends a whole group to `buffer`. `header.body_crc` and `body_bytes` are set here.
pub(crate) fn push_group(seed: u32, buffer: &mut Vec<u8>, mut header: Header, body: &[u8]) {
    header.body_bytes = body.len();
    header.body_crc = crc32c::crc32c(body);
    let start = buffer.len();
    buffer.extend_from_slice(&header.encode(seed));
    buffer.extend_from_slice(body);
    buffer.resize(start + header.group_bytes(), 0);
}

/// The group at the start of `bytes`, if it is whole and sound.
pub(crate) fn decode_group(seed: u32, bytes: &[u8]) -> Option<(Header, &[u8])> {
    let header = Header::decode(seed, bytes)?.ok()?;
    let body = bytes.get(HEADER_BYTES..HEADER_BYTES + header.body_bytes)?;
    (crc32c::crc32c(body) == header.body_crc).then_some((header, body))
}

/// All sound headers in `bytes` and their offsets. They need not follow each other: what is left behind damage.
pub(crate) fn find_headers(
    seed: u32,
    bytes: &[u8],
) -> impl Iterator<Item = (usize, Result<Header, Unknown>)> + '_ {
    bytes.chunks_exact(ALIGN_BYTES).enumerate().filter_map(move |(index, chunk)| {
        if chunk != MAGIC {
            return None;
        }
        let offset_bytes = index * ALIGN_BYTES;
        Some((offset_bytes, Header::decode(seed, bytes.get(offset_bytes..)?)?))
    })
}

#[cfg(test)]
pub(crate) mod tests;
