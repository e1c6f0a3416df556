//! Reads of an object past the kernel's page cache.
//!
//! A byte that streams by once costs two copies less there: the one out of the cache, and the page that is found, filled and evicted
//! for it. But the cache is what lets many clients that read one object cost the device one read. So what is read
//! ahead and nobody has read goes past it, and an object of which something is read again goes through it from then on: the device reads that twice, no more.
//! Who waits for small reads goes through it at once: the kernel reads ahead for him. A read of a MiB keeps the device as busy by itself.

use super::super::layout::BLOCK_BYTES;
use super::super::reading::{Reading, Way};
use super::{Inner, ObjectFile, stored_length, stored_offset};
use crate::device::{self, ReadBuffer};
use base::Extent;
use std::io;

/// Smaller reads are better off with what the kernel reads ahead.
const AHEAD_BYTES_MIN: u64 = 256 << 10;
/// And smaller ones yet for which somebody waits.
const AWAITED_BYTES_MIN: u64 = 1 << 20;
/// Programs, libraries and the like are read again by the next node.
const OBJECT_BYTES_MIN: u64 = 8 << 20;
/// So far the kernel reads ahead of what it is asked for at most, where disks are set up for streams (`read_ahead_kb`).
const KERNEL_AHEAD_BYTES: u64 = 16 << 20;
/// Who leaves more gaps than this is no stream.
const EXTENT_COUNT_MAX: usize = 64;

/// What was read of an open object past the cache.
#[derive(Default)]
pub(super) struct Past {
    /// Neither overlapping nor adjacent, as far as `try_take` has met them.
    extents: Vec<Extent>,
    /// Something was asked for again, or there were too many of them.
    is_over: bool,
}

impl Past {
    /// Notes an extent of whole blocks as read, unless the object goes through the cache. One block at its start may have been
    /// read as the last one of what is before it.
    fn try_take(&mut self, extent: Extent) -> bool {
        let start = extent.end.min(extent.start + BLOCK_BYTES);
        let is_again = self.extents.iter().any(|taken| taken.overlaps(Extent::new(start, extent.end)));
        if is_again || self.is_over {
            self.give_up();
            return false;
        }
        match self.extents.iter_mut().find(|taken| (extent.start..=start).contains(&taken.end)) {
            Some(before) => before.end = extent.end,
            None => self.extents.push(extent),
        }
        if let Some(at) = self.extents.iter().position(|taken| taken.start == extent.end) {
            let behind = self.extents.swap_remove(at);
            for taken in self.extents.iter_mut().filter(|taken| taken.end == behind.start) {
                taken.end = behind.end;
            }
        }
        if self.extents.len() > EXTENT_COUNT_MAX {
            self.give_up();
        }
        true
    }

    fn give_up(&mut self) {
        self.is_over = true;
        self.extents = Vec::new();
    }
}

impl Inner {
    /// Whether whole blocks of an extent are read past the cache if they are cold.
    pub(super) fn may_pass_cache(&self, extent: Extent, way: Way) -> bool {
        let byte_count_min = if way.is_ahead { AHEAD_BYTES_MIN } else { AWAITED_BYTES_MIN };
        extent.byte_count() >= byte_count_min && self.may_be_passed(way.reading)
    }

    fn may_be_passed(&self, reading: &Reading) -> bool {
        self.size_bytes >= OBJECT_BYTES_MIN && !self.past.is_over && reading.is_past_cache()
    }
}

impl ObjectFile {
    /// Reads whole blocks (the last may be cut by the end) past the cache behind what `bytes` holds, which ends where a direct read may
    /// begin, if they are cold and nobody has read them so. Returns how many bytes it has read; the rest is to be had through the cache, which has the
    /// last word about errors too.
    pub(super) fn read_past_cache(
        &self,
        inner: &mut Inner,
        part: Extent,
        bytes: &mut ReadBuffer,
        reading: &Reading,
    ) -> usize {
        // A part of a large read may be short, where it goes over the border of a group: through the cache, the kernel would read on from there.
        if !inner.may_be_passed(reading) {
            return 0;
        }
        let stored = Extent::at(stored_offset(part.start), part.byte_count());
        match self.is_cold(stored, stored_length(inner.size_bytes)) {
            Ok(true) if inner.past.try_take(part) => {}
            Ok(_) => return 0,
            Err(_) => {
                reading.refuse();
                return 0;
            }
        }
        let (before, part_bytes) = (bytes.len(), part.byte_count() as usize);
        let whole_bytes = part_bytes.next_multiple_of(BLOCK_BYTES as usize);
        match device::read_direct(&self.file, bytes, whole_bytes, stored.start) {
            Ok(count) => {
                bytes.truncate(before + part_bytes);
                count.min(part_bytes)
            }
            Err(error) => {
                if [libc::EINVAL, libc::EOPNOTSUPP].contains(&device::errno(&error)) {
                    reading.refuse();
                }
                inner.past.give_up();
                0
            }
        }
    }

    /// Whether the cache lacks something of a part of the file, or has it only because it read on behind what somebody waited for: then it lacks what follows.
    /// From such a part it would read on and on, and the stream would never leave it.
    fn is_cold(&self, part: Extent, length_bytes: u64) -> io::Result<bool> {
        let cached = device::cached(&self.file, part)?;
        if cached.is_dirty || !cached.is_whole {
            return Ok(!cached.is_dirty);
        }
        let ahead = Extent::new(part.end, length_bytes.min(part.end + KERNEL_AHEAD_BYTES).max(part.end));
        Ok(!ahead.is_empty() && !device::cached(&self.file, ahead)?.is_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_stream_is_one_extent_in_whatever_order_its_requests_come() {
        let mut past = Past::default();
        for at in [0, 1, 3, 2, 5, 4] {
            assert!(past.try_take(Extent::at(at * MIB, MIB)), "{at}");
        }
        assert_eq!(past.extents, [Extent::new(0, 6 * MIB)]);
        // Requests that share a block, as those of a stream do that began within one.
        assert!(past.try_take(Extent::new(6 * MIB - BLOCK_BYTES, 7 * MIB)));
        assert_eq!(past.extents, [Extent::new(0, 7 * MIB)]);
    }

    #[test]
    fn what_is_asked_for_again_ends_it_and_so_do_many_gaps() {
        let mut past = Past::default();
        assert!(past.try_take(Extent::new(0, 4 * MIB)));
        assert!(!past.try_take(Extent::new(2 * MIB, 3 * MIB)));
        assert!(!past.try_take(Extent::new(8 * MIB, 9 * MIB)), "nor anything else of the object");

        let mut past = Past::default();
        let taken = (0..1000).take_while(|at| past.try_take(Extent::at(2 * at * MIB, MIB))).count();
        assert_eq!(taken, EXTENT_COUNT_MAX + 1);
        assert!(past.extents.is_empty());
    }
}
