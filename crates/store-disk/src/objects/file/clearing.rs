//! Zeros in an object: a cut, a punch, and zeros that keep their room.

use super::*;

impl ObjectFile {
    pub fn truncate(&self, size_bytes: u64) -> Result<(), StoreError> {
        check_size(size_bytes)?;
        let mut inner = self.inner();
        let old_bytes = inner.size_bytes;
        if inner.found_bytes.is_some_and(|found_bytes| size_bytes > found_bytes.min(old_bytes)) {
            return Err(self.cut_short(&inner));
        }
        self.ensure_header(&mut inner)?;
        if size_bytes < old_bytes || inner.found_bytes.is_some() {
            // Checksums first where they are kept, so that a cut block fits its zeros.
            let block = size_bytes / BLOCK_BYTES;
            let within = (size_bytes % BLOCK_BYTES) as usize;
            let cut = if within == 0 { None } else { Some(self.block(&mut inner, block)?) };
            self.announce(&mut inner, block_floor(size_bytes))?;
            if let Some(mut whole) = cut {
                whole.iter_mut().skip(within).for_each(|byte| *byte = 0);
                self.set_checksums(&mut inner, block, &[crc32c::crc32c(&whole)])?;
            }
            self.set_length(&mut inner, size_bytes)?;
            // What is left of the last group's checksums belongs to blocks that are gone.
            let next = size_bytes.div_ceil(BLOCK_BYTES);
            let group_end = next.next_multiple_of(GROUP_BLOCKS).min(old_bytes.div_ceil(BLOCK_BYTES));
            if next < group_end {
                self.set_checksums_sparsely(&mut inner, next, group_end - next, size_bytes)?;
            }
            inner.found_bytes = None;
            return Ok(());
        }
        if size_bytes > old_bytes {
            self.announce(&mut inner, block_floor(old_bytes))?;
            self.set_length(&mut inner, size_bytes)?;
        }
        Ok(())
    }

    pub(super) fn set_length(&self, inner: &mut Inner, size_bytes: u64) -> Result<(), StoreError> {
        device::set_length(&self.file, stored_length_at_least_header(size_bytes))
            .map_err(|error| self.change_error("truncate an object", &error, size_bytes))?;
        inner.size_bytes = size_bytes;
        // Others have no block of checksums any more.
        inner.groups.truncate(size_bytes.div_ceil(BLOCK_BYTES).div_ceil(GROUP_BLOCKS));
        Ok(())
    }

    pub fn punch(&self, extent: Extent) -> Result<(), StoreError> {
        let mut inner = self.inner_to_change()?;
        let size_bytes = inner.size_bytes;
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        self.clear(&mut inner, extent, size_bytes, mode)
    }

    pub fn zero(&self, extent: Extent, keep_size: bool, left: Left) -> Result<(), StoreError> {
        let mut inner = self.inner_to_change()?;
        let size_bytes = inner.size_bytes;
        let end = if extent.end == Extent::EOF { size_bytes } else { extent.end };
        let extent = Extent::new(extent.start, end);
        check_size(extent.end)?;
        if extent.is_empty() {
            return Ok(());
        }
        self.ensure_header(&mut inner)?;
        // Allocated first: whatever fails then has changed no byte.
        self.reserve(extent, left)?;
        let mode = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        self.clear(&mut inner, extent, size_bytes, mode)?;
        self.grow(&mut inner, extent.end, size_bytes, keep_size)
    }

    pub(super) fn grow(
        &self,
        inner: &mut Inner,
        end: u64,
        size_bytes: u64,
        keep_size: bool,
    ) -> Result<(), StoreError> {
        if keep_size || end <= size_bytes {
            return Ok(());
        }
        self.announce(inner, block_floor(size_bytes))?;
        self.set_length(inner, end)
    }

    /// Zeros within the object: edges are written, whole blocks are given to fallocate(2) with `mode`.
    fn clear(&self, inner: &mut Inner, extent: Extent, size_bytes: u64, mode: i32) -> Result<(), StoreError> {
        let extent = Extent::new(extent.start, extent.end.min(size_bytes));
        if extent.is_empty() {
            return Ok(());
        }
        self.announce(inner, block_floor(extent.start))?;
        let whole_end =
            if extent.end == size_bytes { block_ceil(extent.end) } else { block_floor(extent.end) };
        let whole = Extent::new(block_ceil(extent.start), whole_end);
        if whole.start > whole.end {
            return self.clear_edge(inner, extent);
        }
        self.clear_edge(inner, Extent::new(extent.start, whole.start.min(extent.end)))?;
        self.clear_edge(inner, Extent::new(whole.end, extent.end))?;
        let mut start = whole.start;
        while start < whole.end {
            let run_end = self.end_of_nothing(inner, start, whole.end)?;
            if run_end > start {
                self.clear_nothing(inner, Extent::new(start, run_end), mode)?;
                start = run_end;
                continue;
            }
            let Some(part) = parts(Extent::new(start, whole.end)).next() else { break };
            self.clear_part(inner, part, mode)?;
            start = part.end;
        }
        Ok(())
    }

    /// Up to where, from `start` on and in whole groups, the file has neither data nor checksums: both are zeros then, and fit. There may
    /// be room that was taken for them.
    pub(super) fn end_of_nothing(&self, inner: &Inner, start: u64, end: u64) -> Result<u64, StoreError> {
        let end = end / GROUP_BYTES * GROUP_BYTES;
        if start >= end || !start.is_multiple_of(GROUP_BYTES) {
            return Ok(start);
        }
        let found = device::seek(&self.file, stored_offset(start) - BLOCK_BYTES, libc::SEEK_DATA)
            .map_err(|error| self.error("seek in an object", &error, start))?;
        let data_start = found.map_or(end, |found| offset_of_stored(found).0 / GROUP_BYTES * GROUP_BYTES);
        let waiting = inner.groups.first_changed(start / GROUP_BYTES..end / GROUP_BYTES);
        let waiting_start = waiting.map_or(end, |number| number * GROUP_BYTES);
        Ok(end.min(data_start).min(waiting_start).max(start))
    }

    /// Gives groups that hold nothing to fallocate(2), checksums included. Wherever that ends, zeros are there before and after.
    fn clear_nothing(&self, inner: &mut Inner, run: Extent, mode: i32) -> Result<(), StoreError> {
        let stored = Extent::new(stored_offset(run.start) - BLOCK_BYTES, stored_length(run.end));
        device::clear(&self.file, mode, stored.start, stored.byte_count())
            .map_err(|error| self.change_error("clear a part of an object", &error, run.start))?;
        inner.groups.remove_all(run.start / GROUP_BYTES..run.end / GROUP_BYTES);
        Ok(())
    }

    /// Zeros whole blocks of one group.
    fn clear_part(&self, inner: &mut Inner, part: Extent, mode: i32) -> Result<(), StoreError> {
        let number = part.start / GROUP_BYTES;
        // The first group has the header. Whoever zeros keeps the room, and so does what is left of a group.
        let keeps_room =
            number == 0 || part.byte_count() < GROUP_BYTES || mode & libc::FALLOC_FL_PUNCH_HOLE == 0;
        // Checksums that go, with what they are of: one without the other would be damage.
        let before = if keeps_room { 0 } else { BLOCK_BYTES };
        let stored = stored_offset(part.start) - before;
        device::clear(&self.file, mode, stored, before + part.byte_count())
            .map_err(|error| self.change_error("clear a part of an object", &error, part.start))?;
        if keeps_room {
            return self.zero_checksums(inner, part.start / BLOCK_BYTES, part.byte_count() / BLOCK_BYTES);
        }
        inner.groups.remove(number);
        Ok(())
    }

    /// Zeros within one block.
    fn clear_edge(&self, inner: &mut Inner, extent: Extent) -> Result<(), StoreError> {
        if extent.is_empty() {
            return Ok(());
        }
        let block = extent.start / BLOCK_BYTES;
        let mut whole = self.block(inner, block)?;
        let within = (extent.start % BLOCK_BYTES) as usize;
        let zeros = vec![0; extent.byte_count() as usize];
        if let Some(part) = whole.get_mut(within..within + zeros.len()) {
            if part == zeros {
                return Ok(());
            }
            part.copy_from_slice(&zeros);
        }
        self.write_data(extent.start, &zeros)?;
        self.set_checksums(inner, block, &[crc32c::crc32c(&whole)])
    }
}
