//! One object's file: bytes with a checksum for each block, which every read checks.
//!
//! Data and checksums are written apart, so a power failure between them would look like damage. The header tells:
//! before the first change of a clean object it is made dirty, durably; after a crash, what was dirty is believed and
//! gets checksums anew, everything else must fit. An object becomes clean again when it has rested (`settle`).
//!
//! What is clean also notes how long its file is, which is durable by then, so that a file that was cut is told from a
//! short object: its size is what was noted, reads of what is missing fail, and nothing can be changed but by a truncate
//! that leaves nothing of what is missing.

mod checksums;
mod clearing;
mod direct;
mod header;
mod room;

use super::groups::{Groups, Spare};
use super::layout::{
    BLOCK_BYTES, GROUP_BLOCKS, GROUP_BYTES, HEADER_BYTES, OBJECT_BYTES_MAX, State, checksum_offset,
    offset_of_stored, parts, size_of_stored, stored_length, stored_offset, written_parts,
};
use super::reading::Way;
use crate::device::{self, ReadBuffer, Syncing, errno};
use base::{Advice, Extent, ObjectId};
use bytes::Bytes;
pub(super) use header::ReadOn;
use header::{has_header, read_header, stored_length_at_least_header};
pub(super) use room::Left;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use store::{ObjectStat, StoreError, Whence};

/// First writes up to this size are copied together with the checksums, which costs less than a further call.
const FIRST_WRITE_BYTES_MAX: usize = 64 << 10;
/// Checking is done in pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;

static ZERO_CHECKSUM: LazyLock<u32> = LazyLock::new(|| crc32c::crc32c(&[0; BLOCK_BYTES as usize]));

/// What the header in the file says, as far as the device may have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Announced {
    Nothing,
    Clean,
    /// Changes at or behind this offset.
    From(u64),
}

struct Inner {
    size_bytes: u64,
    groups: Groups,
    announced: Announced,
    /// Bytes from here on are believed: a crash left them unsettled. `u64::MAX` if none.
    lenient_from: u64,
    /// Up to here what is lenient has its checksums by now. Another opening begins anew: they need not be durable.
    read_on_to: u64,
    /// The file was found with another length than it had when it was settled: up to here it has the object.
    found_bytes: Option<u64>,
    past: direct::Past,
    /// How often a change came below what was announced.
    lowered_count: u32,
    /// Changes begun, and how many of them the last sync covered.
    change_count: u64,
    synced_count: u64,
}

pub(super) struct ObjectFile {
    /// Changes when it is adopted; taken last of all locks.
    id: Mutex<ObjectId>,
    file: File,
    incarnation: u64,
    syncing: Syncing,
    is_read_only: bool,
    inner: Mutex<Inner>,
}

/// The CRC of a block that may be cut short by the end of the object: the rest counts as zeros.
fn checksum_of(block: &[u8]) -> u32 {
    if block.len() as u64 == BLOCK_BYTES {
        return crc32c::crc32c(block);
    }
    let mut whole = [0; BLOCK_BYTES as usize];
    if let Some(part) = whole.get_mut(..block.len()) {
        part.copy_from_slice(block);
    }
    crc32c::crc32c(&whole)
}

fn block_floor(offset_bytes: u64) -> u64 {
    offset_bytes / BLOCK_BYTES * BLOCK_BYTES
}

fn block_ceil(offset_bytes: u64) -> u64 {
    offset_bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

/// Memory of one thread that fetches.
const FETCH_BYTES: u64 = 256 << 10;

impl ObjectFile {
    /// Takes an opened file; reads its header, and all of it if a crash left it dirty.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn new(
        id: ObjectId,
        file: File,
        incarnation: u64,
        syncing: Syncing,
        spare: Spare,
    ) -> Result<ObjectFile, StoreError> {
        ObjectFile::open(id, file, incarnation, (syncing, false), spare)
    }

    /// Of a file that was made just now.
    pub fn new_empty(
        id: ObjectId,
        file: File,
        incarnation: u64,
        syncing: Syncing,
        spare: Spare,
    ) -> ObjectFile {
        ObjectFile::unread(id, file, incarnation, (syncing, false), spare)
    }

    /// The same for who changes nothing: what a crash left dirty is believed, and gets no checksums.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn new_to_read(id: ObjectId, file: File) -> Result<ObjectFile, StoreError> {
        // No incarnation is 0.
        ObjectFile::open(id, file, 0, (Syncing::Skipped, true), Spare::default())
    }

    fn open(
        id: ObjectId,
        file: File,
        incarnation: u64,
        how: (Syncing, bool),
        spare: Spare,
    ) -> Result<ObjectFile, StoreError> {
        let object = ObjectFile::unread(id, file, incarnation, how, spare);
        object.read_state()?;
        Ok(object)
    }

    fn unread(
        id: ObjectId,
        file: File,
        incarnation: u64,
        (syncing, is_read_only): (Syncing, bool),
        spare: Spare,
    ) -> ObjectFile {
        let inner = Inner {
            size_bytes: 0,
            groups: Groups::new(spare),
            announced: Announced::Nothing,
            lenient_from: u64::MAX,
            read_on_to: 0,
            found_bytes: None,
            past: direct::Past::default(),
            lowered_count: 0,
            change_count: 0,
            synced_count: 0,
        };
        ObjectFile { id: Mutex::new(id), file, incarnation, syncing, is_read_only, inner: Mutex::new(inner) }
    }

    /// The one that it has now.
    pub fn id(&self) -> ObjectId {
        *self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its file has another name from now on.
    pub fn set_id(&self, id: ObjectId) {
        *self.id.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of an object whose file has all that it should have.
    fn inner_to_change(&self) -> Result<MutexGuard<'_, Inner>, StoreError> {
        let inner = self.inner();
        if inner.found_bytes.is_some() { Err(self.cut_short(&inner)) } else { Ok(inner) }
    }

    fn cut_short(&self, inner: &Inner) -> StoreError {
        let offset_bytes = inner.found_bytes.unwrap_or(inner.size_bytes).min(inner.size_bytes);
        StoreError::CorruptObject { id: self.id(), offset_bytes }
    }

    /// Size and allocation; `None` if somebody has removed the file. The size is the one that is known, whatever was done
    /// to the file; that it was cut is found out here at the latest, for nothing is done to an object before it is asked.
    pub fn stat(&self) -> Result<Option<ObjectStat>, StoreError> {
        let mut inner = self.inner();
        let metadata = self.file.metadata().map_err(|error| self.error("stat an object", &error, 0))?;
        if metadata.nlink() == 0 {
            return Ok(None);
        }
        let stored_bytes = stored_length(inner.size_bytes);
        if metadata.len() < stored_bytes && inner.found_bytes.is_none() {
            self.note_found(&mut inner, &metadata, stored_bytes);
        }
        // Who opened it has given it one.
        Ok(Some(object_stat(&metadata, inner.size_bytes, has_header(&metadata))))
    }

    fn note_found(&self, inner: &mut Inner, metadata: &Metadata, stored_bytes: u64) {
        inner.found_bytes = Some(size_of_stored(metadata.len()));
        inner.size_bytes = size_of_stored(stored_bytes);
        tracing::error!(id = %self.id(), stored_bytes, found_bytes = metadata.len(),
            "the file of an object has another length than it had; restore or remove the file that owns it");
    }

    fn error(&self, operation: &'static str, error: &io::Error, offset_bytes: u64) -> StoreError {
        match errno(error) {
            errno if device::is_full(errno) => StoreError::NoSpace,
            libc::EFBIG | libc::EOVERFLOW => StoreError::TooBig { offset_bytes },
            errno => StoreError::Device { operation, errno },
        }
    }

    /// The same of a change: when the device is lost, nobody knows what it still has.
    fn change_error(&self, operation: &'static str, error: &io::Error, offset_bytes: u64) -> StoreError {
        match self.error(operation, error, offset_bytes) {
            StoreError::Device { operation, errno } if device::is_lost(errno) => {
                StoreError::Poisoned { operation, errno }
            }
            other => other,
        }
    }

    /// A crash had left it dirty, so it is to be synced and settled without having been changed.
    pub fn is_to_be_synced(&self) -> bool {
        let inner = self.inner();
        inner.change_count > inner.synced_count
    }

    /// A sync that began when the count was this has ended.
    pub fn note_synced(&self, change_count: u64) {
        let mut inner = self.inner();
        inner.synced_count = inner.synced_count.max(change_count);
    }

    /// fdatasync(2) of everything changed so far. Where checksums have no room, they wait on, and the object is still one to be synced.
    pub fn sync(&self) -> io::Result<()> {
        let change_count = self.flush()?;
        self.syncing.sync_data(&self.file)?;
        if let Some(change_count) = change_count {
            self.note_synced(change_count);
        }
        Ok(())
    }

    /// Begins to write what is dirty in a part of the file, without waiting.
    pub fn start_sync(&self, part: Extent) {
        if self.syncing == Syncing::Real {
            // If it fails, the sync that follows says so.
            let _ = self.flush();
            device::start_writeback(&self.file, part);
        }
    }

    /// Bytes as the file has them; short at its end.
    fn read_unchecked(
        &self,
        inner: &mut Inner,
        extent: Extent,
        way: Option<Way>,
    ) -> Result<Bytes, StoreError> {
        let past_cache = way.filter(|way| inner.may_pass_cache(extent, *way));
        // With what the last block has behind the end.
        let room_bytes = if past_cache.is_some() {
            block_ceil(extent.byte_count()) + BLOCK_BYTES
        } else {
            extent.byte_count()
        };
        let mut bytes = ReadBuffer::with_capacity(room_bytes as usize);
        let padding = past_cache.map_or(0, |_| bytes.align(BLOCK_BYTES as usize));
        for part in parts(extent) {
            let part_bytes = part.byte_count() as usize;
            let past_bytes =
                past_cache.map_or(0, |way| self.read_past_cache(inner, part, &mut bytes, way.reading));
            let left = part_bytes - past_bytes;
            let offset_bytes = stored_offset(part.start) + past_bytes as u64;
            let is_at_once = way.is_some_and(|way| way.is_at_once) && past_cache.is_none();
            let count = match is_at_once {
                true => device::read_more_at_once(&self.file, &mut bytes, left, offset_bytes),
                false => device::read_more(&self.file, &mut bytes, left, offset_bytes),
            };
            let count = count.map_err(|error| self.error("read an object", &error, part.start))?;
            if let Some(way) = way {
                way.reading.add(past_bytes, count);
            }
            if count < left {
                break;
            }
        }
        Ok(bytes.freeze().slice(padding..))
    }

    /// Bytes of whole blocks (the last may be cut by the end), each checked.
    fn read_blocks(&self, inner: &mut Inner, extent: Extent, way: Option<Way>) -> Result<Bytes, StoreError> {
        let extent = Extent::new(extent.start, extent.end.min(inner.size_bytes).max(extent.start));
        let bytes = self.read_unchecked(inner, extent, way)?;
        if (bytes.len() as u64) < extent.byte_count() {
            let offset_bytes = extent.start + bytes.len() as u64;
            return Err(StoreError::CorruptObject { id: self.id(), offset_bytes });
        }
        let mut has_room = true;
        for (index, block) in bytes.chunks(BLOCK_BYTES as usize).enumerate() {
            let number = extent.start / BLOCK_BYTES + index as u64;
            let found = checksum_of(block);
            if found == self.checksum(inner, number)? {
                continue;
            }
            let offset_bytes = number * BLOCK_BYTES;
            if offset_bytes < inner.lenient_from {
                return Err(StoreError::CorruptObject { id: self.id(), offset_bytes });
            }
            if !self.is_read_only && has_room {
                match self.set_checksums_strictly(inner, number, &[found]) {
                    // It stays believed; each further one would fail as this did.
                    Err(StoreError::NoSpace) => has_room = false,
                    set => set?,
                }
            }
        }
        Ok(bytes)
    }

    #[cfg(test)]
    pub fn read(&self, offset_bytes: u64, byte_count: usize) -> Result<Bytes, StoreError> {
        self.read_for(
            offset_bytes,
            byte_count,
            Way { reading: &super::reading::Reading::default(), is_ahead: false, is_at_once: false },
        )
    }

    /// Bytes of the object, checked; what is cold may come past the page cache.
    pub fn read_for(&self, offset_bytes: u64, byte_count: usize, way: Way) -> Result<Bytes, StoreError> {
        let mut inner = self.inner();
        let size_bytes = inner.size_bytes;
        let end = size_bytes.min(offset_bytes.saturating_add(byte_count as u64));
        if offset_bytes >= end {
            return Ok(Bytes::new());
        }
        let start = block_floor(offset_bytes);
        let bytes = self.read_blocks(&mut inner, Extent::new(start, block_ceil(end)), Some(way))?;
        let to = bytes.len().min((end - start) as usize);
        Ok(bytes.slice(((offset_bytes - start) as usize).min(to)..to))
    }

    /// Reads blocks, and their checksums, into the kernel's page cache, beside all others that use the object: through memory of whole
    /// blocks, since a read past the cache may be going on with this descriptor.
    pub fn fetch(&self, extent: Extent) -> Result<(), StoreError> {
        for part in parts(Extent::new(block_floor(extent.start), block_ceil(extent.end))) {
            let stored = stored_offset(part.start);
            let checksums = stored - part.start % GROUP_BYTES - BLOCK_BYTES;
            // They may be in memory already: who reads hears of it.
            let _ = self.fetch_stored(Extent::at(checksums, BLOCK_BYTES));
            let fetched = self.fetch_stored(Extent::at(stored, part.byte_count()));
            fetched.map_err(|error| self.error("read an object", &error, part.start))?;
        }
        Ok(())
    }

    fn fetch_stored(&self, extent: Extent) -> io::Result<()> {
        let mut start = extent.start;
        while start < extent.end {
            let byte_count = FETCH_BYTES.min(extent.end - start);
            let mut bytes = ReadBuffer::with_capacity((byte_count + BLOCK_BYTES) as usize);
            bytes.align(BLOCK_BYTES as usize);
            device::read_more(&self.file, &mut bytes, byte_count as usize, start)?;
            start += byte_count;
        }
        Ok(())
    }

    /// What a block holds, checked, with zeros behind the end of the object.
    fn block(&self, inner: &mut Inner, block: u64) -> Result<[u8; BLOCK_BYTES as usize], StoreError> {
        let mut whole = [0; BLOCK_BYTES as usize];
        let extent = Extent::at(block * BLOCK_BYTES, BLOCK_BYTES);
        let bytes = self.read_blocks(inner, extent, None)?;
        if let Some(part) = whole.get_mut(..bytes.len()) {
            part.copy_from_slice(&bytes);
        }
        Ok(whole)
    }

    /// The checksums that the blocks of the extent will have when `data` is there.
    fn checksums_after(
        &self,
        inner: &mut Inner,
        offset_bytes: u64,
        data: &[u8],
        size_bytes: u64,
    ) -> Result<Vec<u32>, StoreError> {
        let end = offset_bytes + data.len() as u64;
        let mut checksums = Vec::with_capacity(data.len() / BLOCK_BYTES as usize + 2);
        let mut start = offset_bytes;
        while start < end {
            let block = start / BLOCK_BYTES;
            let part_end = end.min((block + 1) * BLOCK_BYTES);
            let part = data.get((start - offset_bytes) as usize..(part_end - offset_bytes) as usize);
            let part = part.unwrap_or_default();
            let within = (start % BLOCK_BYTES) as usize;
            // Cut short by the end of the object only: the rest is zeros, whatever was there.
            let is_whole = within == 0 && (part.len() as u64 == BLOCK_BYTES || part_end >= size_bytes);
            checksums.push(if is_whole {
                checksum_of(part)
            } else {
                let mut whole = self.block(inner, block)?;
                if let Some(changed) = whole.get_mut(within..within + part.len()) {
                    changed.copy_from_slice(part);
                }
                crc32c::crc32c(&whole)
            });
            start = part_end;
        }
        Ok(checksums)
    }

    /// `reserve` says that the device is nearly full: then the blocks are allocated before anything changes.
    pub fn write(&self, offset_bytes: u64, data: &[u8], reserve: bool) -> Result<(), StoreError> {
        if data.is_empty() {
            return Ok(());
        }
        let extent = Extent::at(offset_bytes, data.len() as u64);
        check_size(extent.end)?;
        let mut inner = self.inner_to_change()?;
        let size_bytes = inner.size_bytes;
        if reserve {
            self.reserve(extent, None, extent.start >= inner.lenient_from)?;
        }
        let checksums = self.checksums_after(&mut inner, offset_bytes, data, size_bytes)?;
        let is_first = inner.announced == Announced::Nothing
            && inner.lenient_from == u64::MAX
            && extent.start == 0
            && data.len() <= FIRST_WRITE_BYTES_MAX;
        let (written_end, written) = if is_first {
            (extent.end, self.write_first(&mut inner, data, &checksums))
        } else {
            self.announce(&mut inner, block_floor(extent.start))?;
            match self.write_data(offset_bytes, data) {
                Ok(()) => {
                    let first_block = offset_bytes / BLOCK_BYTES;
                    (extent.end, self.set_checksums(&mut inner, first_block, &checksums))
                }
                Err((written_end, error)) => (written_end, Err(error)),
            }
        };
        if written.is_err() {
            // Nothing that was not there before stays there; what was overwritten, if only in part, gets fitting checksums. What was
            // not keeps its own: nobody has looked at it, and it may be damaged.
            let _ = self.restore_length(&mut inner, size_bytes);
            let overwritten = Extent::new(extent.start, block_ceil(written_end).min(size_bytes));
            let _ = self.checksum_anew(&mut inner, overwritten);
            let _ = self.clear_checksums_behind(&mut inner);
        } else {
            inner.size_bytes = size_bytes.max(extent.end);
        }
        written
    }

    /// The first bytes of a new object: header, checksums and data lie in a row, and one call writes them.
    fn write_first(&self, inner: &mut Inner, data: &[u8], checksums: &[u32]) -> Result<(), StoreError> {
        inner.change_count += 1;
        let state = State::Dirty { dirty_from: 0, incarnation: self.incarnation };
        let mut bytes = Vec::with_capacity(BLOCK_BYTES as usize + data.len());
        bytes.extend_from_slice(&state.encode());
        for checksum in checksums {
            bytes.extend_from_slice(&(checksum ^ *ZERO_CHECKSUM).to_le_bytes());
        }
        bytes.resize(BLOCK_BYTES as usize, 0);
        bytes.extend_from_slice(data);
        device::write_all(&self.file, &bytes, 0)
            .map_err(|(_, error)| self.change_error("write an object", &error, data.len() as u64))?;
        inner.announced = Announced::From(0);
        Ok(())
    }

    /// An error comes with the offset up to which the bytes were written.
    fn write_data(&self, offset_bytes: u64, data: &[u8]) -> Result<(), (u64, StoreError)> {
        for part in written_parts(Extent::at(offset_bytes, data.len() as u64)) {
            let range = (part.start - offset_bytes) as usize..(part.end - offset_bytes) as usize;
            device::write_all(&self.file, data.get(range).unwrap_or_default(), stored_offset(part.start))
                .map_err(|(done, error)| {
                    (part.start + done as u64, self.change_error("write an object", &error, part.end))
                })?;
        }
        Ok(())
    }

    pub fn allocate(&self, extent: Extent, keep_size: bool, left: Left) -> Result<(), StoreError> {
        check_size(extent.end)?;
        if extent.is_empty() {
            return Ok(());
        }
        let mut inner = self.inner_to_change()?;
        let size_bytes = inner.size_bytes;
        self.ensure_header(&mut inner)?;
        self.reserve(extent, left, extent.start >= inner.lenient_from)?;
        self.grow(&mut inner, extent.end, size_bytes, keep_size)
    }

    /// Tells the kernel, checksums of the blocks included.
    pub fn advise(&self, extent: Extent, advice: Advice) -> Result<(), StoreError> {
        let (start, end) = (stored_offset(extent.start), stored_offset(extent.end));
        device::advise(&self.file, Extent::new(start, end), advice)
            .map_err(|error| self.error("advise about an object", &error, extent.start))
    }

    /// Checksums included, which each write changes.
    pub fn is_allocated(&self, extent: Extent) -> Result<bool, StoreError> {
        let inner = self.inner_to_change()?;
        let is_there = |start: u64, end: u64| {
            device::is_allocated(&self.file, Extent::new(start, end))
                .map_err(|error| self.error("look at an object", &error, extent.start))
        };
        for part in parts(extent) {
            let checksums = checksums_at(part.start);
            if !is_there(checksums, checksums + BLOCK_BYTES)?
                || !is_there(stored_offset(part.start), stored_length(part.end))?
            {
                return Ok(false);
            }
        }
        drop(inner);
        Ok(true)
    }

    pub fn seek(&self, offset_bytes: u64, whence: Whence) -> Result<Option<u64>, StoreError> {
        let inner = self.inner_to_change()?;
        let size_bytes = inner.size_bytes;
        if offset_bytes >= size_bytes {
            return Ok(None);
        }
        let whence = match whence {
            Whence::Data => libc::SEEK_DATA,
            Whence::Hole => libc::SEEK_HOLE,
        };
        let mut offset = offset_bytes;
        loop {
            let found = device::seek(&self.file, stored_offset(offset), whence)
                .map_err(|error| self.error("seek in an object", &error, offset))?;
            let Some(found) = found else { return Ok(None) };
            let (found_offset, is_among_checksums) = offset_of_stored(found);
            if found_offset >= size_bytes {
                return Ok((whence == libc::SEEK_HOLE).then_some(size_bytes));
            }
            if !is_among_checksums {
                return Ok(Some(found_offset));
            }
            offset = found_offset;
        }
    }
}

/// Where the block is in the file with the checksum of the block that has this byte of the object.
fn checksums_at(offset_bytes: u64) -> u64 {
    checksum_offset(offset_bytes / GROUP_BYTES * GROUP_BLOCKS) - HEADER_BYTES as u64
}

/// Size and allocation of an object that is not open otherwise, by what its file says.
///
/// # Errors
/// Those of the device.
pub(super) fn stat_of(file: &File) -> io::Result<ObjectStat> {
    let metadata = file.metadata()?;
    let state = read_header(file)?.filter(|_| has_header(&metadata));
    let stored_bytes = match state {
        Some(State::Settled { stored_bytes, .. }) => stored_bytes,
        _ => metadata.len(),
    };
    Ok(object_stat(&metadata, size_of_stored(stored_bytes), state.is_some()))
}

/// The blocks of checksums are not counted as allocated, as far as a division can tell.
fn object_stat(metadata: &Metadata, size_bytes: u64, has_begun: bool) -> ObjectStat {
    let stored_bytes = metadata.blocks() * 512;
    let checksum_bytes = stored_bytes.div_ceil(GROUP_BYTES + BLOCK_BYTES) * BLOCK_BYTES;
    ObjectStat { size_bytes, allocated_bytes: stored_bytes.saturating_sub(checksum_bytes), has_begun }
}

fn check_size(end_bytes: u64) -> Result<(), StoreError> {
    if end_bytes > OBJECT_BYTES_MAX { Err(StoreError::TooBig { offset_bytes: end_bytes }) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
