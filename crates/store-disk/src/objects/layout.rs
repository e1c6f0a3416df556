//! Where the bytes of an object are in its file.
//!
//! The file is a row of groups. A group is one block of checksums and the blocks that they are for, so that a small
//! object costs one block more and one inode, and the length of the file tells that of the object:
//!
//! | block of the group | content |
//! |---|---|
//! | 0 | 32 bytes of header (used in the first group), then one CRC32C a data block, xored with that of zeros |
//! | 1..=1016 | data |
//!
//! Header: magic `SHEENOB1`, state u8, 3 zeros, CRC32C of the header with this field zero, and two u64 by state. All
//! numbers are little-endian.
//!
//! | state | first u64 | second u64 |
//! |---|---|---|
//! | 1 dirty | dirty_from | incarnation |
//! | 2 clean, from before lengths were noted | 0 | 0 |
//! | 3 settled | lenient_from, all ones if nothing is | length of the file in bytes |

use base::Extent;

pub(super) const BLOCK_BYTES: u64 = 4096;
pub(super) const HEADER_BYTES: usize = 32;
pub(super) const GROUP_BLOCKS: u64 = (BLOCK_BYTES - HEADER_BYTES as u64) / 4;
/// Data bytes of one group.
pub(super) const GROUP_BYTES: u64 = GROUP_BLOCKS * BLOCK_BYTES;
const STORED_GROUP_BYTES: u64 = GROUP_BYTES + BLOCK_BYTES;
const MAGIC: &[u8; 8] = b"SHEENOB1";

const _: () = assert!(GROUP_BLOCKS == 1016);

/// The largest object whose file is no larger than the largest file of ext4.
pub(super) const OBJECT_BYTES_MAX: u64 = base::limits::OBJECT_BYTES_MAX;
const STORED_BYTES_MAX: u64 = (16 << 40) - 4096;
/// Other file systems have larger files, and before checksums were thought of an object could be so large that its file had this length.
const FORMER_STORED_BYTES_MAX: u64 = stored_length(STORED_BYTES_MAX);

const _: () = assert!(stored_length(OBJECT_BYTES_MAX) <= STORED_BYTES_MAX);
const _: () = assert!(size_of_stored(STORED_BYTES_MAX) == OBJECT_BYTES_MAX);

/// Where a byte of the object is in the file.
pub(super) const fn stored_offset(offset_bytes: u64) -> u64 {
    offset_bytes / GROUP_BYTES * STORED_GROUP_BYTES + BLOCK_BYTES + offset_bytes % GROUP_BYTES
}

/// Length of the file of an object of this size.
pub(super) const fn stored_length(size_bytes: u64) -> u64 {
    if size_bytes == 0 { 0 } else { stored_offset(size_bytes - 1) + 1 }
}

/// Size of the object whose file has this length. A file that ends within its checksums has no data behind them.
pub(super) const fn size_of_stored(stored_bytes: u64) -> u64 {
    let rest = (stored_bytes % STORED_GROUP_BYTES).saturating_sub(BLOCK_BYTES);
    stored_bytes / STORED_GROUP_BYTES * GROUP_BYTES + rest
}

/// Where the first byte of the object at or behind this byte of the file is in the object; and whether the byte
/// was among checksums.
pub(super) fn offset_of_stored(stored_bytes: u64) -> (u64, bool) {
    let within = stored_bytes % STORED_GROUP_BYTES;
    let group = stored_bytes / STORED_GROUP_BYTES * GROUP_BYTES;
    (group + within.saturating_sub(BLOCK_BYTES), within < BLOCK_BYTES)
}

/// Where the checksum of a block is in the file.
pub(super) fn checksum_offset(block: u64) -> u64 {
    block / GROUP_BLOCKS * STORED_GROUP_BYTES + HEADER_BYTES as u64 + block % GROUP_BLOCKS * 4
}

/// The parts of an extent that lie in one group each.
pub(super) fn parts(extent: Extent) -> impl Iterator<Item = Extent> {
    let mut start = extent.start;
    std::iter::from_fn(move || {
        if start >= extent.end {
            return None;
        }
        let group_end = (start / GROUP_BYTES + 1).saturating_mul(GROUP_BYTES);
        let part = Extent::new(start, group_end.min(extent.end));
        start = part.end;
        Some(part)
    })
}

/// What is written to the file by one call lies within so many bytes of it. Such a call decides how large the kernel's folio is for
/// bytes that it does not have yet, and each later write to any block of a folio goes through all blocks of it
/// (`ext4_block_write_begin`): small writes into what had been written by the MiB cost a quarter more without this bound, and a
/// stream is as fast with it.
const WRITTEN_BYTES_MAX: u64 = 64 << 10;

/// The parts of an extent that are written to the file one by one.
pub(super) fn written_parts(extent: Extent) -> impl Iterator<Item = Extent> {
    parts(extent).flat_map(|part| {
        let mut start = part.start;
        std::iter::from_fn(move || {
            if start >= part.end {
                return None;
            }
            let left = WRITTEN_BYTES_MAX - stored_offset(start) % WRITTEN_BYTES_MAX;
            let written = Extent::new(start, part.end.min(start + left));
            start = written.end;
            Some(written)
        })
    })
}

/// The part of the file that a writer in sequence leaves behind with this extent: groups that are full now, so that
/// neither their data nor their checksums change any more.
pub(super) fn left_behind(extent: Extent) -> Option<Extent> {
    let (first, next) = (extent.start / GROUP_BYTES, extent.end / GROUP_BYTES);
    (first < next).then(|| Extent::new(first * STORED_GROUP_BYTES, next * STORED_GROUP_BYTES))
}

/// What an object's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Bytes and checksums from `dirty_from` on may not fit each other after a crash of that incarnation.
    Dirty { dirty_from: u64, incarnation: u64 },
    /// Everything fits, durably. Written before lengths were noted, and read for ever.
    Clean,
    /// The file has this length, and what is below `lenient_from` fits, durably both. The rest is as a crash left it.
    Settled { lenient_from: u64, stored_bytes: u64 },
}

impl State {
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        match self {
            State::Dirty { dirty_from, incarnation } => {
                bytes[8] = 1;
                bytes[16..24].copy_from_slice(&dirty_from.to_le_bytes());
                bytes[24..32].copy_from_slice(&incarnation.to_le_bytes());
            }
            State::Clean => bytes[8] = 2,
            State::Settled { lenient_from, stored_bytes } => {
                bytes[8] = 3;
                bytes[16..24].copy_from_slice(&lenient_from.to_le_bytes());
                bytes[24..32].copy_from_slice(&stored_bytes.to_le_bytes());
            }
        }
        let crc = crc32c::crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` for a header that was never written, or not written whole.
    pub fn decode(bytes: &[u8]) -> Option<State> {
        let mut bytes: [u8; HEADER_BYTES] = *bytes.first_chunk()?;
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let (first, second) = (u64_at(16)?, u64_at(24)?);
        let crc = u32::from_le_bytes(*bytes.get(12..)?.first_chunk()?);
        bytes[12..16].fill(0);
        if !bytes.starts_with(MAGIC) || crc32c::crc32c(&bytes) != crc {
            return None;
        }
        match bytes[8] {
            1 => Some(State::Dirty { dirty_from: first, incarnation: second }),
            2 => Some(State::Clean),
            3 if second <= FORMER_STORED_BYTES_MAX => {
                Some(State::Settled { lenient_from: first, stored_bytes: second })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
