//! Zeros in an object: a cut, a punch, and zeros that keep their room.
//!
//! Whatever fails halfway leaves checksums that fit what is there then: good bytes are not to be refused later.

use super::*;

/// Groups that one call clears: what is read again when it fails.
const GROUPS_PER_CALL: u64 = 16;

fn note_length(inner: &mut Inner, size_bytes: u64) {
    inner.size_bytes = size_bytes;
    // Others have no block of checksums any more.
    inner.groups.truncate(size_bytes.div_ceil(BLOCK_BYTES).div_ceil(GROUP_BLOCKS));
}

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
            return self.cut(&mut inner, size_bytes);
        }
        if size_bytes > old_bytes {
            self.announce(&mut inner, block_floor(old_bytes))?;
            self.set_length(&mut inner, size_bytes)?;
        }
        Ok(())
    }

    /// Checksums first, of the last block, and of those behind it whose blocks are to go: they can be set back, bytes cannot.
    fn cut(&self, inner: &mut Inner, size_bytes: u64) -> Result<(), StoreError> {
        let old_end = inner.size_bytes.div_ceil(BLOCK_BYTES);
        let (first, within) = (size_bytes / BLOCK_BYTES, (size_bytes % BLOCK_BYTES) as usize);
        let cut = if within == 0 { None } else { Some(self.block(inner, first)?) };
        self.announce(inner, block_floor(size_bytes))?;
        // Of an object of no bytes, and of the groups behind, the file keeps none.
        let end = if size_bytes == 0 { 0 } else { size_bytes.div_ceil(BLOCK_BYTES) };
        let end = end.next_multiple_of(GROUP_BLOCKS).min(old_end).max(first);
        let mut checksums = vec![*ZERO_CHECKSUM; (end - first) as usize];
        if let (Some(mut whole), Some(checksum)) = (cut, checksums.first_mut()) {
            whole.iter_mut().skip(within).for_each(|byte| *byte = 0);
            *checksum = crc32c::crc32c(&whole);
        }
        let former: Vec<u32> =
            (first..end).map(|block| self.checksum(inner, block)).collect::<Result<_, _>>()?;
        if former != checksums {
            self.set_checksums(inner, first, &checksums)?;
        }
        let done = self.set_length(inner, size_bytes);
        if inner.size_bytes != size_bytes && former != checksums {
            // They have their room, and wait there.
            let _ = self.set_checksums(inner, first, &former);
        }
        done?;
        inner.found_bytes = None;
        Ok(())
    }

    /// What fails may be done all the same.
    pub(super) fn set_length(&self, inner: &mut Inner, size_bytes: u64) -> Result<(), StoreError> {
        let stored_bytes = stored_length_at_least_header(size_bytes);
        let set = device::set_length(&self.file, stored_bytes)
            .map_err(|error| self.change_error("truncate an object", &error, size_bytes));
        if set.is_ok() || self.file.metadata().is_ok_and(|found| found.len() == stored_bytes) {
            note_length(inner, size_bytes);
        }
        set
    }

    /// The same, but a file that has this length already is left alone: the kernel would give back what it has behind its end, which
    /// somebody was promised with a fallocate(2) that keeps the size.
    pub(super) fn restore_length(&self, inner: &mut Inner, size_bytes: u64) -> Result<(), StoreError> {
        let stored_bytes = stored_length_at_least_header(size_bytes);
        if self.file.metadata().is_ok_and(|found| found.len() == stored_bytes) {
            note_length(inner, size_bytes);
            return Ok(());
        }
        self.set_length(inner, size_bytes)
    }

    pub fn punch(&self, extent: Extent) -> Result<(), StoreError> {
        let mut inner = self.inner_to_change()?;
        let size_bytes = inner.size_bytes;
        self.ensure_header(&mut inner)?;
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        self.clear(&mut inner, extent, size_bytes, mode)
    }

    pub fn zero(&self, extent: Extent, keep_size: bool, left: Left) -> Result<(), StoreError> {
        let mut inner = self.inner_to_change()?;
        let size_bytes = inner.size_bytes;
        let end = if extent.end == Extent::EOF { size_bytes } else { extent.end };
        let extent = Extent::new(extent.start, end);
        check_size(extent.end)?;
        self.ensure_header(&mut inner)?;
        if extent.is_empty() {
            return Ok(());
        }
        // Allocated first: whatever fails then has changed no byte.
        self.reserve(extent, left, extent.start >= inner.lenient_from)?;
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
            start = self.clear_part(inner, Extent::new(start, whole.end), mode)?;
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

    /// Zeros the first whole blocks of `rest`, as many as one call can, and says where they end.
    fn clear_part(&self, inner: &mut Inner, rest: Extent, mode: i32) -> Result<u64, StoreError> {
        let number = rest.start / GROUP_BYTES;
        let group_count = (rest.end / GROUP_BYTES).saturating_sub(number).min(GROUPS_PER_CALL);
        // The first group has the header. What is left of a group keeps its checksums.
        let are_whole = number > 0 && rest.start.is_multiple_of(GROUP_BYTES) && group_count > 0;
        // Checksums that go, with what they are of: one without the other would be damage.
        let (before, byte_count) = match are_whole {
            true => (BLOCK_BYTES, group_count * GROUP_BYTES),
            false => (0, rest.byte_count().min((number + 1) * GROUP_BYTES - rest.start)),
        };
        let part = Extent::at(rest.start, byte_count);
        let stored = Extent::new(stored_offset(part.start) - before, stored_length(part.end));
        let cleared = device::clear(&self.file, mode, stored.start, stored.byte_count())
            .map_err(|error| self.change_error("clear a part of an object", &error, part.start))
            .and_then(|()| {
                if are_whole {
                    inner.groups.remove_all(number..number + group_count);
                    return Ok(());
                }
                self.zero_checksums(inner, part.start / BLOCK_BYTES, part.byte_count() / BLOCK_BYTES)
            });
        if cleared.is_err() {
            self.mend(inner, part);
        }
        cleared.map(|()| part.end)
    }

    /// Zeros within one block. The checksum first: it can be set back.
    fn clear_edge(&self, inner: &mut Inner, extent: Extent) -> Result<(), StoreError> {
        if extent.is_empty() {
            return Ok(());
        }
        let block = extent.start / BLOCK_BYTES;
        let mut whole = self.block(inner, block)?;
        let former = crc32c::crc32c(&whole);
        let within = (extent.start % BLOCK_BYTES) as usize;
        let zeros = vec![0; extent.byte_count() as usize];
        if let Some(part) = whole.get_mut(within..within + zeros.len()) {
            if part == zeros {
                return Ok(());
            }
            part.copy_from_slice(&zeros);
        }
        self.set_checksums(inner, block, &[crc32c::crc32c(&whole)])?;
        let written = self.write_data(extent.start, &zeros).map_err(|(_, error)| error);
        if written.is_err() {
            // It has its room, and waits there.
            let _ = self.set_checksums(inner, block, &[former]);
        }
        written
    }

    /// Blocks of an extent should have become zeros, and not all have. They get checksums that fit; if that fails too, what is there is
    /// believed, as after a crash.
    fn mend(&self, inner: &mut Inner, extent: Extent) {
        let extent = Extent::new(extent.start, extent.end.min(inner.size_bytes));
        if let Err(error) = parts(extent).try_for_each(|part| self.fit_checksums(inner, part)) {
            tracing::warn!(id = %self.id(), %error, "a change that failed leaves a part of an object believed");
            self.believe(inner, extent.start);
        }
    }

    /// Blocks of one group have what they had, or zeros. One whose checksum says zeros may have lost it with the block of checksums;
    /// whatever fits neither stays damaged.
    fn fit_checksums(&self, inner: &mut Inner, part: Extent) -> Result<(), StoreError> {
        let bytes = self.read_unchecked(inner, part, None)?;
        let first = part.start / BLOCK_BYTES;
        let mut checksums = Vec::with_capacity(bytes.len().div_ceil(BLOCK_BYTES as usize));
        for (block, bytes) in (first..).zip(bytes.chunks(BLOCK_BYTES as usize)) {
            let (found, known) = (checksum_of(bytes), self.checksum(inner, block)?);
            let is_found = found == *ZERO_CHECKSUM || known == *ZERO_CHECKSUM;
            checksums.push(if is_found { found } else { known });
        }
        if let Some(group) = inner.groups.get_mut(first / GROUP_BLOCKS) {
            group.note_lost();
        }
        self.set_checksums_strictly(inner, first, &checksums)
    }

    fn believe(&self, inner: &mut Inner, start: u64) {
        inner.lenient_from = inner.lenient_from.min(block_floor(start));
        inner.read_on_to = 0;
        if let Announced::From(dirty_from) = inner.announced {
            // For who opens it next, in this process too: no incarnation is 0.
            let _ = self.write_state(State::Dirty { dirty_from, incarnation: 0 });
        }
    }
}
