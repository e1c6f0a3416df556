//! The file of the base, each 4 KiB block with a CRC32C that every read checks.
//!
//! On disk a block of 1024 checksums stands before the 1024 blocks that it is for. A checksum is stored xored with
//! that of a block of zeros, so that a block never written needs none. Checksums are written just before a sync: what
//! redb writes between syncs is referenced by nothing until the commit that follows. The first block is exempt: redb
//! overwrites it in place, with checksums of its own.

use crate::device::{self, Syncing};
use crate::space::Ballast;
use base::Extent;
use redb::StorageBackend;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

pub(super) const BLOCK_BYTES: u64 = 4096;
const GROUP_BLOCKS: u64 = 1024;
const GROUP_BYTES: u64 = GROUP_BLOCKS * BLOCK_BYTES;
/// With its block of checksums.
const STORED_GROUP_BYTES: u64 = GROUP_BYTES + BLOCK_BYTES;

struct Group {
    checksums: Vec<u32>,
    is_dirty: bool,
}

pub(super) struct ChecksummedFile {
    file: File,
    syncing: Syncing,
    ballast: Arc<Ballast>,
    reads: Arc<Reads>,
    zero_checksum: u32,
    groups: Mutex<Vec<Option<Group>>>,
}

/// Reads of the file, which may come from the kernel's page cache or from the device.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub count: AtomicU64,
    pub byte_count: AtomicU64,
    /// Blocks that were read and failed their checksums.
    damaged: Mutex<BTreeSet<u64>>,
}

impl Reads {
    /// Where they are in the file.
    pub fn damaged(&self) -> Vec<Extent> {
        let damaged = self.damaged.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        damaged.iter().map(|block| Extent::at(stored_offset(block * BLOCK_BYTES), BLOCK_BYTES)).collect()
    }

    fn note_damaged(&self, block: u64) {
        self.damaged.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(block);
    }
}

impl std::fmt::Debug for ChecksummedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ChecksummedFile({:?})", self.file)
    }
}

/// Where the byte of redb's file is in ours.
fn stored_offset(offset_bytes: u64) -> u64 {
    offset_bytes / GROUP_BYTES * STORED_GROUP_BYTES + BLOCK_BYTES + offset_bytes % GROUP_BYTES
}

/// Length of our file when redb's has this one, and back.
fn stored_length(length_bytes: u64) -> u64 {
    if length_bytes == 0 { 0 } else { stored_offset(length_bytes - 1) + 1 }
}

fn length_of_stored(stored_bytes: u64) -> u64 {
    let rest = (stored_bytes % STORED_GROUP_BYTES).saturating_sub(BLOCK_BYTES);
    stored_bytes / STORED_GROUP_BYTES * GROUP_BYTES + rest
}

fn damaged(block: u64) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("block {block} of the index fails its checksum"))
}

impl ChecksummedFile {
    pub fn new(
        file: File,
        syncing: Syncing,
        ballast: Arc<Ballast>,
        reads: Arc<Reads>,
    ) -> io::Result<ChecksummedFile> {
        let zero_checksum = crc32c::crc32c(&[0; BLOCK_BYTES as usize]);
        Ok(ChecksummedFile { file, syncing, ballast, reads, zero_checksum, groups: Mutex::new(Vec::new()) })
    }

    fn read_full(&self, out: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        let count = device::read_full(&self.file, out, offset_bytes)?;
        self.reads.count.fetch_add(1, Ordering::Relaxed);
        self.reads.byte_count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn groups(&self) -> MutexGuard<'_, Vec<Option<Group>>> {
        self.groups.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The checksums around a block, read if they are not there yet.
    fn group<'a>(&self, groups: &'a mut Vec<Option<Group>>, block: u64) -> io::Result<&'a mut Group> {
        let index = block / GROUP_BLOCKS;
        let slot = index as usize;
        if groups.len() <= slot {
            groups.resize_with(slot + 1, || None);
        }
        let group = groups.get_mut(slot).ok_or_else(|| damaged(block))?;
        if group.is_none() {
            let mut bytes = vec![0; BLOCK_BYTES as usize];
            self.read_full(&mut bytes, index * STORED_GROUP_BYTES)?;
            let checksums = bytes.as_chunks::<4>().0.iter().map(|chunk| u32::from_le_bytes(*chunk)).collect();
            *group = Some(Group { checksums, is_dirty: false });
        }
        group.as_mut().ok_or_else(|| damaged(block))
    }

    fn checksum(&self, block: u64) -> io::Result<u32> {
        let mut groups = self.groups();
        let group = self.group(&mut groups, block)?;
        let stored = group.checksums.get((block % GROUP_BLOCKS) as usize).copied();
        Ok(stored.ok_or_else(|| damaged(block))? ^ self.zero_checksum)
    }

    fn set_checksum(&self, block: u64, checksum: u32) -> io::Result<()> {
        let mut groups = self.groups();
        let group = self.group(&mut groups, block)?;
        if let Some(stored) = group.checksums.get_mut((block % GROUP_BLOCKS) as usize) {
            *stored = checksum ^ self.zero_checksum;
        }
        group.is_dirty = true;
        Ok(())
    }

    fn read_stored(&self, offset_bytes: u64, out: &mut [u8]) -> io::Result<()> {
        let count = self.read_full(out, stored_offset(offset_bytes))?;
        // A block at the end of the file may be stored in part.
        out.iter_mut().skip(count).for_each(|byte| *byte = 0);
        Ok(())
    }

    fn read_block(&self, block: u64, out: &mut [u8; BLOCK_BYTES as usize]) -> io::Result<()> {
        self.read_stored(block * BLOCK_BYTES, out)?;
        self.check(block, out)
    }

    fn check(&self, block: u64, bytes: &[u8]) -> io::Result<()> {
        if block == 0 || crc32c::crc32c(bytes) == self.checksum(block)? {
            Ok(())
        } else {
            self.reads.note_damaged(block);
            Err(damaged(block))
        }
    }

    /// Whether redb had put everything in order when it wrote this file last (its documentation, "God byte": bit 1 says that it
    /// had not). Otherwise blocks to which nothing leads may have been written without their checksums.
    pub fn was_closed(&self) -> io::Result<bool> {
        let mut header = [0; 10];
        self.read_stored(0, &mut header)?;
        Ok(header[9] & 2 == 0)
    }

    /// Reads all blocks, whether anything leads to them or not; those that fail are noted.
    pub fn read_all(&self) -> io::Result<()> {
        let block_count = self.len()?.div_ceil(BLOCK_BYTES);
        for block in 0..block_count {
            let mut bytes = [0; BLOCK_BYTES as usize];
            match self.read_block(block, &mut bytes) {
                Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The full device is not the end while there is ballast.
    fn write_stored(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        match device::write_all(&self.file, data, offset_bytes) {
            Err((_, error)) if device::errno(&error) == libc::ENOSPC && self.ballast.release() => {
                device::write_all(&self.file, data, offset_bytes).map_err(|(_, error)| error)
            }
            written => written.map_err(|(_, error)| error),
        }
    }

    fn write_block_part(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        let block = offset_bytes / BLOCK_BYTES;
        let mut bytes = [0; BLOCK_BYTES as usize];
        if data.len() < bytes.len() {
            self.read_block(block, &mut bytes)?;
        }
        let within = (offset_bytes % BLOCK_BYTES) as usize;
        if let Some(part) = bytes.get_mut(within..within + data.len()) {
            part.copy_from_slice(data);
        }
        self.set_checksum(block, crc32c::crc32c(&bytes))?;
        self.write_stored(stored_offset(offset_bytes), data)
    }

    fn write_checksums(&self) -> io::Result<()> {
        let mut groups = self.groups();
        for (index, group) in groups.iter_mut().enumerate() {
            let Some(group) = group.as_mut().filter(|group| group.is_dirty) else { continue };
            let bytes: Vec<u8> = group.checksums.iter().flat_map(|checksum| checksum.to_le_bytes()).collect();
            self.write_stored(index as u64 * STORED_GROUP_BYTES, &bytes)?;
            group.is_dirty = false;
        }
        Ok(())
    }
}

impl StorageBackend for ChecksummedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(length_of_stored(self.file.metadata()?.len()))
    }

    fn read(&self, offset_bytes: u64, out: &mut [u8]) -> io::Result<()> {
        if offset_bytes.saturating_add(out.len() as u64) > self.len()? {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let mut offset = offset_bytes;
        let mut rest = out;
        while !rest.is_empty() {
            let within = offset % BLOCK_BYTES;
            let to_group_end = GROUP_BYTES - offset % GROUP_BYTES;
            if within == 0 && rest.len() as u64 >= BLOCK_BYTES {
                let count = (rest.len() as u64).min(to_group_end) / BLOCK_BYTES * BLOCK_BYTES;
                let (blocks, tail) = rest.split_at_mut(count as usize);
                self.read_stored(offset, blocks)?;
                for (index, block) in blocks.chunks(BLOCK_BYTES as usize).enumerate() {
                    self.check(offset / BLOCK_BYTES + index as u64, block)?;
                }
                offset += count;
                rest = tail;
            } else {
                let count = (rest.len() as u64).min(BLOCK_BYTES - within);
                let mut block = [0; BLOCK_BYTES as usize];
                self.read_block(offset / BLOCK_BYTES, &mut block)?;
                let (part, tail) = rest.split_at_mut(count as usize);
                part.copy_from_slice(
                    block.get(within as usize..(within + count) as usize).unwrap_or_default(),
                );
                offset += count;
                rest = tail;
            }
        }
        Ok(())
    }

    fn set_len(&self, length_bytes: u64) -> io::Result<()> {
        let old = self.len()?;
        let first_gone = length_bytes.div_ceil(BLOCK_BYTES);
        let first_group_gone = first_gone.div_ceil(GROUP_BLOCKS);
        for block in first_gone..old.div_ceil(BLOCK_BYTES).min(first_group_gone * GROUP_BLOCKS) {
            self.set_checksum(block, self.zero_checksum)?;
        }
        // Whole groups go with the file. Written, their checksums would make it as long as it was.
        self.groups().truncate(first_group_gone as usize);
        device::set_length(&self.file, stored_length(length_bytes))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.write_checksums()?;
        self.syncing.sync_data(&self.file)
    }

    fn write(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        let mut offset = offset_bytes;
        let mut rest = data;
        while !rest.is_empty() {
            let within = offset % BLOCK_BYTES;
            let to_group_end = GROUP_BYTES - offset % GROUP_BYTES;
            if within == 0 && rest.len() as u64 >= BLOCK_BYTES {
                let count = (rest.len() as u64).min(to_group_end) / BLOCK_BYTES * BLOCK_BYTES;
                let (blocks, tail) = rest.split_at(count as usize);
                for (index, block) in blocks.chunks(BLOCK_BYTES as usize).enumerate() {
                    self.set_checksum(offset / BLOCK_BYTES + index as u64, crc32c::crc32c(block))?;
                }
                self.write_stored(stored_offset(offset), blocks)?;
                offset += count;
                rest = tail;
            } else {
                let count = (rest.len() as u64).min(BLOCK_BYTES - within);
                let (part, tail) = rest.split_at(count as usize);
                self.write_block_part(offset, part)?;
                offset += count;
                rest = tail;
            }
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.write_checksums()
    }
}

#[cfg(test)]
mod tests;
