//! The file of the base, each 4 KiB block with a CRC32C that every read checks.
//!
//! On disk a block of 1024 checksums stands before the 1024 blocks that it is for. A checksum is stored xored with
//! that of a block of zeros, so that a block never written needs none. Checksums are written just before a sync: what
//! redb writes between syncs is referenced by nothing until the commit that follows.
//!
//! The first block is redb's header, which it overwrites in place, and which has checksums for a part of it only. So it has a seal
//! instead, in bytes that redb leaves alone: the length of the file, and a CRC32C of the block. Both are written with the header, in
//! one write of one sector, which a device writes whole or not at all. A file shorter than that was cut, whatever redb makes of it.
//! A first block without a seal was written by a program from before there were any; the next header brings one. Such a program leaves
//! the bytes of a seal as they are when it writes a header, and keeps a checksum of the block with the others, as nobody else does:
//! where that fits, the seal is void.

use crate::device::{self, Syncing};
use crate::space::Ballast;
use base::Extent;
use redb::StorageBackend;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

pub(super) const BLOCK_BYTES: u64 = 4096;
const GROUP_BLOCKS: u64 = 1024;
const GROUP_BYTES: u64 = GROUP_BLOCKS * BLOCK_BYTES;
/// With its block of checksums.
const STORED_GROUP_BYTES: u64 = GROUP_BYTES + BLOCK_BYTES;

/// The first sector, which the header and its seal are in.
const HEADER_BYTES: usize = 512;
/// The seal: redb's length of the file, a word that says that there is one, and the checksum of the block without that checksum.
const SEAL_OFFSET: usize = HEADER_BYTES - 16;
const SEAL_MARK_OFFSET: usize = SEAL_OFFSET + 8;
const SEAL_CRC_OFFSET: usize = SEAL_MARK_OFFSET + 4;
const SEAL_MARK: [u8; 4] = *b"seal";

type Block = [u8; BLOCK_BYTES as usize];

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
    /// How long the file is for redb, unless somebody else cuts it.
    length_bytes: AtomicU64,
    is_damaged: AtomicBool,
    /// The device failed to keep a change: nobody knows what is still with the kernel.
    is_unkept: AtomicBool,
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
    let part = Extent::at(stored_offset(block * BLOCK_BYTES), BLOCK_BYTES);
    io::Error::new(io::ErrorKind::InvalidData, format!("bytes {part} fail their checksum"))
}

fn cut(length_bytes: u64, wanted_bytes: u64) -> io::Error {
    let (found, wanted) = (stored_length(length_bytes), stored_length(wanted_bytes));
    io::Error::new(io::ErrorKind::InvalidData, format!("it is cut: {found} bytes of {wanted} are left"))
}

fn seal_crc(block: &Block) -> u32 {
    let (sealed, rest) = block.split_at(SEAL_CRC_OFFSET);
    crc32c::crc32c_append(crc32c::crc32c(sealed), rest.get(4..).unwrap_or_default())
}

fn seal(block: &mut Block, length_bytes: u64) {
    block[SEAL_OFFSET..SEAL_MARK_OFFSET].copy_from_slice(&length_bytes.to_le_bytes());
    block[SEAL_MARK_OFFSET..SEAL_CRC_OFFSET].copy_from_slice(&SEAL_MARK);
    let crc = seal_crc(block);
    block[SEAL_CRC_OFFSET..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// The length that a first block notes; 0 of one that has no seal yet. `None` if it is not what was written.
fn sealed_length(block: &Block) -> Option<u64> {
    if block[SEAL_OFFSET..HEADER_BYTES].iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let is_sound = block[SEAL_MARK_OFFSET..SEAL_CRC_OFFSET] == SEAL_MARK
        && block[SEAL_CRC_OFFSET..HEADER_BYTES] == seal_crc(block).to_le_bytes();
    let length_bytes = block[SEAL_OFFSET..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    length_bytes.filter(|_| is_sound)
}

impl ChecksummedFile {
    pub fn new(
        file: File,
        syncing: Syncing,
        ballast: Arc<Ballast>,
        reads: Arc<Reads>,
    ) -> io::Result<ChecksummedFile> {
        let zero_checksum = crc32c::crc32c(&[0; BLOCK_BYTES as usize]);
        let length_bytes = AtomicU64::new(length_of_stored(file.metadata()?.len()));
        let groups = Mutex::new(Vec::new());
        Ok(ChecksummedFile {
            file,
            syncing,
            ballast,
            reads,
            zero_checksum,
            groups,
            length_bytes,
            is_damaged: AtomicBool::new(false),
            is_unkept: AtomicBool::new(false),
        })
    }

    /// Whether the file is as long as it was made, and its first block what was written. Nobody may write it meanwhile.
    ///
    /// # Errors
    /// `InvalidData` if not, or the file cannot be read.
    pub fn check_whole(&self) -> io::Result<()> {
        self.check_uncut()?;
        let mut header = [0; BLOCK_BYTES as usize];
        self.read_header(&mut header)?;
        // redb would begin anew where it finds zeros.
        if header.starts_with(b"redb") { Ok(()) } else { Err(self.found_damaged(0)) }
    }

    /// A process that died after it had made the file shorter has left checksums of blocks that are gone. They go with the next sync.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn clear_behind_end(&self) -> io::Result<()> {
        let block_count = self.len()?.div_ceil(BLOCK_BYTES);
        for block in block_count..block_count.next_multiple_of(GROUP_BLOCKS) {
            if self.checksum(block)? != self.zero_checksum {
                self.set_checksum(block, self.zero_checksum)?;
            }
        }
        Ok(())
    }

    fn check_uncut(&self) -> io::Result<()> {
        let (found, wanted) = (self.len()?, self.length_bytes.load(Ordering::Relaxed).max(BLOCK_BYTES));
        if found < wanted { Err(self.found_cut(found, wanted)) } else { Ok(()) }
    }

    /// Nothing more is written to a file that is damaged: it stays as it was found.
    fn check_writable(&self) -> io::Result<()> {
        if self.is_damaged.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is damaged, and left as it is"));
        }
        if self.length_bytes.load(Ordering::Relaxed) > 0 { self.check_uncut() } else { Ok(()) }
    }

    /// Whether something that was written may still be with the kernel of this machine, which writes it some time.
    pub fn is_unkept(&self) -> bool {
        self.is_unkept.load(Ordering::Relaxed)
    }

    fn changed(&self, changed: io::Result<()>) -> io::Result<()> {
        if changed.as_ref().is_err_and(device::may_be_unkept) {
            self.is_unkept.store(true, Ordering::Relaxed);
        }
        changed
    }

    /// Whatever it fails with, what was written before is not kept.
    fn sync(&self) -> io::Result<()> {
        let synced = self.syncing.sync_data(&self.file);
        if synced.is_err() {
            self.is_unkept.store(true, Ordering::Relaxed);
        }
        synced
    }

    fn found_cut(&self, length_bytes: u64, wanted_bytes: u64) -> io::Error {
        self.is_damaged.store(true, Ordering::Relaxed);
        cut(length_bytes, wanted_bytes)
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

    fn read_block(&self, block: u64, out: &mut Block) -> io::Result<()> {
        if block == 0 {
            return self.read_header(out);
        }
        self.read_stored(block * BLOCK_BYTES, out)?;
        self.check(block, out)
    }

    /// The first block, as redb wrote it.
    fn read_header(&self, out: &mut Block) -> io::Result<()> {
        self.read_stored(0, out)?;
        let sealed_bytes = match sealed_length(out) {
            Some(sealed_bytes) => sealed_bytes,
            None if crc32c::crc32c(out) == self.checksum(0)? => 0,
            None => return Err(self.found_damaged(0)),
        };
        let length_bytes = self.len()?;
        if length_bytes < sealed_bytes {
            return Err(self.found_cut(length_bytes, sealed_bytes));
        }
        out[SEAL_OFFSET..HEADER_BYTES].fill(0);
        Ok(())
    }

    /// Writes so many bytes of the first block, and its seal with them.
    fn write_header(&self, mut block: Block, byte_count: usize, length_bytes: u64) -> io::Result<()> {
        seal(&mut block, length_bytes);
        self.write_stored(stored_offset(0), block.get(..byte_count).unwrap_or(&block))
    }

    fn check(&self, block: u64, bytes: &[u8]) -> io::Result<()> {
        if crc32c::crc32c(bytes) == self.checksum(block)? { Ok(()) } else { Err(self.found_damaged(block)) }
    }

    fn found_damaged(&self, block: u64) -> io::Error {
        self.is_damaged.store(true, Ordering::Relaxed);
        self.reads.note_damaged(block);
        damaged(block)
    }

    /// Whether redb had put everything in order when it wrote this file last (its documentation, "God byte": bit 1 says that it
    /// had not). Otherwise blocks to which nothing leads may have been written without their checksums.
    pub fn was_closed(&self) -> io::Result<bool> {
        let mut header = [0; BLOCK_BYTES as usize];
        self.read_header(&mut header)?;
        Ok(header[9] & 2 == 0)
    }

    /// Reads all blocks, whether anything leads to them or not; those that fail are noted. Of those that are to come the checksums
    /// are looked at: a file that ends inside of a group says of the rest of it that it was never written.
    pub fn read_all(&self) -> io::Result<()> {
        let block_count = self.len()?.div_ceil(BLOCK_BYTES);
        for block in block_count..block_count.next_multiple_of(GROUP_BLOCKS) {
            if self.checksum(block)? != self.zero_checksum {
                self.reads.note_damaged(block);
            }
        }
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
        let write = || device::write_all(&self.file, data, offset_bytes).map_err(|(_, error)| error);
        let written = match write() {
            Err(error) if device::is_full(device::errno(&error)) && self.ballast.release() => write(),
            written => written,
        };
        self.changed(written)
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
        if block == 0 {
            let byte_count = HEADER_BYTES.max(within + data.len());
            return self.write_header(bytes, byte_count, self.length_bytes.load(Ordering::Relaxed));
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
        let (length_bytes, end) = (self.len()?, offset_bytes.saturating_add(out.len() as u64));
        if end > length_bytes {
            return Err(self.found_cut(length_bytes, end));
        }
        let mut offset = offset_bytes;
        let mut rest = out;
        while !rest.is_empty() {
            let within = offset % BLOCK_BYTES;
            let to_group_end = GROUP_BYTES - offset % GROUP_BYTES;
            if within == 0 && offset > 0 && rest.len() as u64 >= BLOCK_BYTES {
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
        self.check_writable()?;
        let old = self.len()?;
        let first_gone = length_bytes.div_ceil(BLOCK_BYTES);
        let first_group_gone = first_gone.div_ceil(GROUP_BLOCKS);
        for block in first_gone..old.div_ceil(BLOCK_BYTES).min(first_group_gone * GROUP_BLOCKS) {
            self.set_checksum(block, self.zero_checksum)?;
        }
        // Whole groups go with the file. Written, their checksums would make it as long as it was.
        self.groups().truncate(first_group_gone as usize);
        if length_bytes < old && old > 0 {
            // Before the end goes: nobody may take the file for one that was cut, also after a power failure.
            let mut header = [0; BLOCK_BYTES as usize];
            self.read_header(&mut header)?;
            self.write_header(header, HEADER_BYTES, length_bytes)?;
            self.sync()?;
        }
        // redb syncs a file that has grown before it writes a header, so that none says more than there is after a power failure.
        self.changed(device::set_length(&self.file, stored_length(length_bytes)))?;
        self.length_bytes.store(length_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check_writable()?;
        self.write_checksums()?;
        self.sync()
    }

    fn write(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        let mut offset = offset_bytes;
        let mut rest = data;
        while !rest.is_empty() {
            let within = offset % BLOCK_BYTES;
            let to_group_end = GROUP_BYTES - offset % GROUP_BYTES;
            if within == 0 && offset > 0 && rest.len() as u64 >= BLOCK_BYTES {
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
        self.check_writable()?;
        self.write_checksums()
    }
}

/// The file as redb has it, while others may look at it too.
#[derive(Debug)]
pub(super) struct Checked(pub Arc<ChecksummedFile>);

impl StorageBackend for Checked {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset_bytes: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset_bytes, out)
    }

    fn set_len(&self, length_bytes: u64) -> io::Result<()> {
        self.0.set_len(length_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset_bytes, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}

#[cfg(test)]
mod tests;
