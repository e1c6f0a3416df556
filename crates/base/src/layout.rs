//! Where a file's bytes are: RAID-0 over objects.

use crate::{Extent, Fid, ObjectId};
use borsh::{BorshDeserialize, BorshSerialize};

/// One RAID-0 layout. Bytes go round robin in `stripe_size_bytes` pieces over `osts`, in their order; the object
/// of stripe i is `ObjectId { fid, component, stripe: i }` on the OST `osts[i]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Layout {
    /// Owner of the objects (differs from the file only after a layout swap).
    pub fid: Fid,
    pub component: u32,
    /// Multiple of 64 KiB.
    pub stripe_size_bytes: u32,
    /// OST index of each stripe; an empty list is a file that has no data objects yet or is no regular file.
    pub osts: Vec<u16>,
}

/// A piece of a file extent that lies in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub stripe: u32,
    /// Where it lies in the object.
    pub object_extent: Extent,
    /// Offset of its first byte in the file.
    pub file_offset_bytes: u64,
}

impl Layout {
    pub const STRIPE_SIZE_DEFAULT: u32 = 1 << 20;
    pub const STRIPE_SIZE_MIN: u32 = 64 << 10;
    pub const STRIPE_COUNT_MAX: usize = 2000;

    /// True when no arithmetic below can fail; bytes from a peer or a disk are checked with this before use.
    pub fn is_valid(&self) -> bool {
        self.osts.len() <= Self::STRIPE_COUNT_MAX
            && (self.osts.is_empty()
                || (self.stripe_size_bytes >= Self::STRIPE_SIZE_MIN
                    && self.stripe_size_bytes.is_multiple_of(Self::STRIPE_SIZE_MIN)))
    }

    pub fn stripe_count(&self) -> u64 {
        self.osts.len() as u64
    }

    pub fn object(&self, stripe: u32) -> ObjectId {
        ObjectId { fid: self.fid, component: self.component, stripe }
    }

    /// Cuts a file extent into pieces of at most one stripe unit each, in file order. The extent must be finite.
    pub fn pieces(&self, extent: Extent) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let unit = u64::from(self.stripe_size_bytes);
        let count = self.stripe_count();
        let mut offset = extent.start;
        while count > 0 && offset < extent.end {
            let unit_index = offset / unit;
            let in_unit = offset % unit;
            let byte_count = (unit - in_unit).min(extent.end - offset);
            let object_offset = (unit_index / count) * unit + in_unit;
            let stripe = (unit_index % count) as u32;
            match pieces.last_mut() {
                // One stripe: adjacent units are one piece.
                Some(Piece { stripe: last, object_extent, .. })
                    if *last == stripe && object_extent.end == object_offset =>
                {
                    object_extent.end += byte_count;
                }
                _ => pieces.push(Piece {
                    stripe,
                    object_extent: Extent::at(object_offset, byte_count),
                    file_offset_bytes: offset,
                }),
            }
            offset += byte_count;
        }
        pieces
    }

    /// Size of the object of a stripe when the file has `file_size_bytes` bytes and no holes at its end.
    pub fn object_size(&self, stripe: u32, file_size_bytes: u64) -> u64 {
        let unit = u64::from(self.stripe_size_bytes);
        let count = self.stripe_count();
        if count == 0 {
            return 0;
        }
        let full_rounds = file_size_bytes / (unit * count);
        let rest = file_size_bytes % (unit * count);
        let in_this = rest.saturating_sub(u64::from(stripe) * unit).min(unit);
        full_rounds * unit + in_this
    }

    /// The smallest file size that explains an object of `object_size_bytes` bytes.
    pub fn file_size(&self, stripe: u32, object_size_bytes: u64) -> u64 {
        if object_size_bytes == 0 || self.osts.is_empty() {
            return 0;
        }
        let unit = u64::from(self.stripe_size_bytes);
        let last = object_size_bytes - 1;
        let unit_index = (last / unit).saturating_mul(self.stripe_count()).saturating_add(u64::from(stripe));
        unit_index.saturating_mul(unit).saturating_add(last % unit + 1)
    }
}

#[cfg(test)]
mod tests;
