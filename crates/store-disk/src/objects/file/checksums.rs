//! The checksums of an object's blocks, in memory and in its file.

use super::super::groups::Group;
use super::super::layout::{
    BLOCK_BYTES, GROUP_BLOCKS, GROUP_BYTES, HEADER_BYTES, checksum_offset, stored_length,
};
use super::{Inner, ObjectFile, PIECE_BYTES, ZERO_CHECKSUM, block_floor, checksum_of};
use crate::device;
use base::Extent;
use std::io;
use store::StoreError;

impl ObjectFile {
    fn group<'a>(&self, inner: &'a mut Inner, number: u64) -> Result<&'a mut Group, StoreError> {
        if inner.groups.get_mut(number).is_none() {
            if let Some(former) = inner.groups.in_the_way() {
                let stored =
                    inner.groups.get_mut(former).map_or(Ok(()), |group| self.store_group(former, group));
                stored.map_err(|error| {
                    self.change_error("write an object's checksums", &error, former * GROUP_BYTES)
                })?;
                inner.groups.remove(former);
            }
            let mut bytes = vec![0; BLOCK_BYTES as usize - HEADER_BYTES];
            device::read_full(&self.file, &mut bytes, checksum_offset(number * GROUP_BLOCKS))
                .map_err(|error| self.error("read an object's checksums", &error, number * GROUP_BYTES))?;
            inner.groups.insert(number, Group::of_stored(&bytes));
        }
        Ok(inner.groups.get_mut(number).expect("it was just put there"))
    }

    fn store_group(&self, number: u64, group: &mut Group) -> io::Result<()> {
        if group.is_changed() {
            let (behind, bytes) = group.to_store();
            device::write_all(&self.file, &bytes, checksum_offset(number * GROUP_BLOCKS + behind as u64))
                .map_err(|(_, error)| error)?;
            group.note_stored();
        }
        Ok(())
    }

    /// Hands checksums that have waited to the kernel; after that, the file has all changes up to the number that comes back. `None`
    /// where a block that has its place takes a further one when it is written again (copy on write), and there was none: what could
    /// not be written waits on. Bytes can become durable without it: the header has the object dirty, so a crash loses no more than
    /// what it loses of checksums anyway.
    ///
    /// # Errors
    /// Those of the device. Everything waits on then.
    pub fn flush(&self) -> io::Result<Option<u64>> {
        let mut inner = self.inner();
        let flushed = inner.groups.changed().try_for_each(|(number, group)| self.store_group(number, group));
        match flushed {
            Err(error) if device::is_full(device::errno(&error)) => Ok(None),
            flushed => flushed.map(|()| Some(inner.change_count)),
        }
    }

    pub(super) fn checksum(&self, inner: &mut Inner, block: u64) -> Result<u32, StoreError> {
        let group = self.group(inner, block / GROUP_BLOCKS)?;
        Ok(group.checksum((block % GROUP_BLOCKS) as usize) ^ *ZERO_CHECKSUM)
    }

    /// Sets the checksums of consecutive blocks, in memory, and in the file where it may have no room for them yet. Blocks that are
    /// believed stay so where the device has none.
    pub(super) fn set_checksums(
        &self,
        inner: &mut Inner,
        first_block: u64,
        checksums: &[u32],
    ) -> Result<(), StoreError> {
        self.set_checksums_below(inner, first_block, checksums, inner.lenient_from)
    }

    /// The same for who goes on as if no block were believed.
    pub(super) fn set_checksums_strictly(
        &self,
        inner: &mut Inner,
        first_block: u64,
        checksums: &[u32],
    ) -> Result<(), StoreError> {
        self.set_checksums_below(inner, first_block, checksums, u64::MAX)
    }

    /// From `end` on, room for checksums may be missing.
    fn set_checksums_below(
        &self,
        inner: &mut Inner,
        first_block: u64,
        checksums: &[u32],
        end: u64,
    ) -> Result<(), StoreError> {
        let mut block = first_block;
        let mut rest = checksums;
        while !rest.is_empty() {
            let (number, within) = (block / GROUP_BLOCKS, block % GROUP_BLOCKS);
            let (part, tail) = rest.split_at(rest.len().min((GROUP_BLOCKS - within) as usize));
            let group = self.group(inner, number)?;
            let is_urgent = group.set(within as usize, part.iter().map(|checksum| checksum ^ *ZERO_CHECKSUM));
            if is_urgent && let Err(error) = self.store_group(number, group) {
                // It is as the file has it, whatever that is now.
                inner.groups.remove(number);
                match self.change_error("write an object's checksums", &error, block * BLOCK_BYTES) {
                    // It is to be read on from there once more.
                    StoreError::NoSpace if block * BLOCK_BYTES >= end => {
                        inner.read_on_to = inner.read_on_to.min(number * GROUP_BYTES);
                    }
                    error => return Err(error),
                }
            }
            block += part.len() as u64;
            rest = tail;
        }
        Ok(())
    }

    /// Consecutive blocks of one group hold zeros now. Where their checksums say so already, nothing is written: the group may have
    /// none in the file, which says the same.
    pub(super) fn zero_checksums(
        &self,
        inner: &mut Inner,
        first_block: u64,
        block_count: u64,
    ) -> Result<(), StoreError> {
        let within = (first_block % GROUP_BLOCKS) as usize;
        let group = self.group(inner, first_block / GROUP_BLOCKS)?;
        if (within..within + block_count as usize).all(|within| group.checksum(within) == 0) {
            return Ok(());
        }
        self.set_checksums(inner, first_block, &vec![*ZERO_CHECKSUM; block_count as usize])
    }

    /// Gives the blocks of an extent the checksums of what they hold now. It ends with a block, or with the object.
    pub(super) fn checksum_anew(&self, inner: &mut Inner, extent: Extent) -> Result<(), StoreError> {
        let mut start = block_floor(extent.start);
        while start < extent.end {
            let piece = Extent::new(start, extent.end.min(start + PIECE_BYTES));
            let bytes = self.read_unchecked(inner, piece, None)?;
            let checksums: Vec<u32> = bytes.chunks(BLOCK_BYTES as usize).map(checksum_of).collect();
            for (index, checksum) in checksums.iter().enumerate() {
                let block = start / BLOCK_BYTES + index as u64;
                if self.checksum(inner, block)? != *checksum {
                    self.set_checksums_strictly(inner, block, &[*checksum])?;
                }
            }
            start = piece.end;
        }
        Ok(())
    }

    /// A truncate or a first write that a crash has ended, or a write that failed, leaves checksums of blocks that are not there. They
    /// would be taken for those of the hole that the next extension puts there.
    pub(super) fn clear_checksums_behind(&self, inner: &mut Inner) -> Result<(), StoreError> {
        let size_bytes = inner.size_bytes;
        let next = size_bytes.div_ceil(BLOCK_BYTES);
        for block in next..next.next_multiple_of(GROUP_BLOCKS) {
            if self.checksum(inner, block)? != *ZERO_CHECKSUM {
                self.set_checksums_sparsely(inner, block, 1, size_bytes)?;
            }
        }
        Ok(())
    }

    /// Zeros the checksums of blocks, unless the file ends before them anyway.
    pub(super) fn set_checksums_sparsely(
        &self,
        inner: &mut Inner,
        first_block: u64,
        block_count: u64,
        size_bytes: u64,
    ) -> Result<(), StoreError> {
        if checksum_offset(first_block) >= stored_length(size_bytes) {
            return Ok(());
        }
        self.set_checksums_strictly(inner, first_block, &vec![*ZERO_CHECKSUM; block_count as usize])
    }
}
