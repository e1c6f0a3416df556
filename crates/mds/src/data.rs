//! Data of small files, in rows beside their inodes: the first component of a layout may be on the MDT (`Layout::ON_MDT`).
//!
//! An object's bytes are in chunks. What a chunk's row does not have, up to the object's size, is zeros, and so is a chunk
//! without a row. Nothing is kept behind the size.

use crate::rows;
use crate::tx::Tx;
use base::{Extent, Fid, Layout, ObjectId, Status, Transno, WallTime};
use borsh::{BorshDeserialize, BorshSerialize};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use store::{Batch, MetaStore, Table};
use wire::ost::ExtentOp;

/// Bytes of an object in one row.
pub const CHUNK_BYTES: u64 = 16 << 10;

/// What is known of an object beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Head {
    pub size_bytes: u64,
    /// In its rows.
    pub stored_bytes: u64,
    /// When data last changed, by the clock of the client that changed them.
    pub stamp: WallTime,
    /// The last change.
    pub transno: Transno,
}

/// An object on an MDT is the only stripe of its component.
pub fn head_key(object: &ObjectId) -> Vec<u8> {
    [&object.fid.key()[..], &object.component.to_be_bytes()].concat()
}

/// The object of a head's key, or of the beginning of a chunk's.
pub fn split_head_key(key: &[u8]) -> Option<ObjectId> {
    let component = u32::from_be_bytes(key.get(16..20)?.try_into().ok()?);
    Some(ObjectId { fid: Fid::from_key(key)?, component, stripe: 0 })
}

/// The object of a chunk's key, and which of its chunks it is.
pub fn split_chunk_key(key: &[u8]) -> Option<(ObjectId, u64)> {
    let chunk = u32::from_be_bytes(key.get(20..)?.try_into().ok()?);
    Some((split_head_key(key)?, u64::from(chunk)))
}

pub fn chunk_key(object: &ObjectId, chunk: u64) -> Vec<u8> {
    // An object on an MDT is far shorter than that many chunks.
    [&head_key(object)[..], &(chunk as u32).to_be_bytes()].concat()
}

/// The chunks that `extent` touches, each with the part of it that is touched.
fn chunks(extent: Extent) -> impl Iterator<Item = (u64, Extent)> {
    let last = extent.end.div_ceil(CHUNK_BYTES);
    let own = move |chunk: u64| {
        let part = Extent::at(chunk * CHUNK_BYTES, CHUNK_BYTES).intersection(extent);
        (chunk, Extent::new(part.start - chunk * CHUNK_BYTES, part.end - chunk * CHUNK_BYTES))
    };
    (extent.start / CHUNK_BYTES..last).map(own)
}

/// A row that goes when it has no bytes.
type ChangedRow = (Table, Vec<u8>, Option<Vec<u8>>);

/// An object, with changes that are not stored yet. Extents lie below `Layout::ON_MDT_BYTES_MAX`.
pub struct Object<'a> {
    store: &'a dyn MetaStore,
    id: ObjectId,
    /// As it was found; `None` for an object that nobody has written.
    found: Option<Head>,
    head: Head,
    changed: BTreeMap<u64, Vec<u8>>,
}

impl<'a> Object<'a> {
    /// # Errors
    /// Those of the store; `Corrupt` for a damaged row.
    pub fn open(store: &'a dyn MetaStore, id: ObjectId) -> Result<Object<'a>, Status> {
        let found = store.get(rows::DATA_HEADS, &head_key(&id)).map_err(|error| error.status())?;
        let found: Option<Head> = found.map(|bytes| rows::decode(&bytes)).transpose()?;
        Ok(Object { store, id, found, head: found.unwrap_or_default(), changed: BTreeMap::new() })
    }

    pub fn is_there(&self) -> bool {
        self.found.is_some()
    }

    pub fn head(&self) -> Head {
        self.head
    }

    fn chunk(&self, chunk: u64) -> Result<Vec<u8>, Status> {
        if let Some(changed) = self.changed.get(&chunk) {
            return Ok(changed.clone());
        }
        if chunk * CHUNK_BYTES >= self.found.map_or(0, |found| found.size_bytes) {
            return Ok(Vec::new());
        }
        let row = self.store.get(rows::DATA, &chunk_key(&self.id, chunk)).map_err(|error| error.status())?;
        let bytes = row.unwrap_or_default();
        if bytes.len() as u64 > CHUNK_BYTES { Err(Status::Corrupt) } else { Ok(bytes) }
    }

    fn put_chunk(&mut self, chunk: u64, former_bytes: usize, bytes: Vec<u8>) {
        let stored = self.head.stored_bytes.saturating_sub(former_bytes as u64);
        self.head.stored_bytes = stored + bytes.len() as u64;
        self.changed.insert(chunk, bytes);
    }

    /// Bytes, short at the object's end.
    ///
    /// # Errors
    /// Those of the store.
    pub fn read(&self, extent: Extent) -> Result<Bytes, Status> {
        let extent = extent.intersection(Extent::new(0, self.head.size_bytes));
        if extent.is_empty() {
            return Ok(Bytes::new());
        }
        let mut bytes = BytesMut::with_capacity(extent.byte_count() as usize);
        for (chunk, part) in chunks(extent) {
            let row = self.chunk(chunk)?;
            let end = bytes.len() + part.byte_count() as usize;
            let there = row.get(part.start as usize..row.len().min(part.end as usize));
            bytes.extend_from_slice(there.unwrap_or_default());
            bytes.resize(end, 0);
        }
        Ok(bytes.freeze())
    }

    /// # Errors
    /// Those of the store; nothing is changed then, for the object is dropped.
    pub fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Result<(), Status> {
        let extent = Extent::at(offset_bytes, data.len() as u64);
        let mut data = data;
        for (chunk, part) in chunks(extent) {
            let mut row = self.chunk(chunk)?;
            let former_bytes = row.len();
            let (own, rest) = data.split_at(part.byte_count() as usize);
            data = rest;
            if row.len() < part.end as usize {
                row.resize(part.end as usize, 0);
            }
            row[part.start as usize..part.end as usize].copy_from_slice(own);
            self.put_chunk(chunk, former_bytes, row);
        }
        self.head.size_bytes = self.head.size_bytes.max(extent.end);
        Ok(())
    }

    /// # Errors
    /// As `write`.
    pub fn change(&mut self, extent: Extent, op: ExtentOp) -> Result<(), Status> {
        match op {
            ExtentOp::Truncate => {
                self.clear(Extent::new(extent.start, self.head.size_bytes))?;
                self.head.size_bytes = extent.start;
            }
            ExtentOp::Punch => self.clear(extent)?,
            ExtentOp::Zero { keep_size } => {
                self.clear(extent)?;
                if !keep_size && extent.end != Extent::EOF {
                    self.head.size_bytes = self.head.size_bytes.max(extent.end);
                }
            }
            // Rows are not made beforehand: a write that does not fit into the reserve is refused.
            ExtentOp::Allocate { keep_size } => {
                if !keep_size {
                    self.head.size_bytes = self.head.size_bytes.max(extent.end);
                }
            }
        }
        Ok(())
    }

    /// Makes an extent zeros; the size stays.
    fn clear(&mut self, extent: Extent) -> Result<(), Status> {
        let extent = extent.intersection(Extent::new(0, self.head.size_bytes));
        if extent.is_empty() {
            return Ok(());
        }
        for (chunk, part) in chunks(extent) {
            let mut row = self.chunk(chunk)?;
            let former_bytes = row.len();
            let (start, end) = (row.len().min(part.start as usize), row.len().min(part.end as usize));
            if end == row.len() {
                row.truncate(start);
            } else {
                row[start..end].fill(0);
            }
            self.put_chunk(chunk, former_bytes, row);
        }
        Ok(())
    }

    /// The first byte from `offset_bytes` on that is in a row, or that is in none; `None` when there is none before the end, which
    /// is a hole.
    ///
    /// # Errors
    /// Those of the store.
    pub fn seek(&self, offset_bytes: u64, is_hole: bool) -> Result<Option<u64>, Status> {
        let size = self.head.size_bytes;
        if offset_bytes >= size {
            return Ok(None);
        }
        for (chunk, part) in chunks(Extent::new(offset_bytes, size)) {
            let start = chunk * CHUNK_BYTES;
            let row_end = self.chunk(chunk)?.len() as u64;
            if !is_hole && row_end > part.start {
                return Ok(Some(start + part.start));
            }
            if is_hole && row_end < part.end {
                return Ok(Some(start + part.start.max(row_end)));
            }
        }
        Ok(is_hole.then_some(size))
    }

    /// Writes down what was changed, by transaction `transno`.
    pub fn put(self, stamp: WallTime, transno: Transno, batch: &mut Batch) -> Head {
        let (head, rows) = self.into_rows(stamp, transno);
        for (table, key, bytes) in rows {
            match bytes {
                Some(bytes) => batch.put(table, &key, &bytes),
                None => batch.delete(table, &key),
            }
        }
        head
    }

    /// The same, as a part of an operation.
    pub fn put_with(self, stamp: WallTime, transno: Transno, tx: &mut Tx) -> Head {
        let (head, rows) = self.into_rows(stamp, transno);
        for (table, key, bytes) in rows {
            match bytes {
                Some(bytes) => tx.put(table, key, bytes),
                None => tx.delete(table, key),
            }
        }
        head
    }

    fn into_rows(mut self, stamp: WallTime, transno: Transno) -> (Head, Vec<ChangedRow>) {
        self.head.stamp = self.head.stamp.max(stamp);
        self.head.transno = transno;
        let (id, changed) = (self.id, std::mem::take(&mut self.changed));
        let row = |(chunk, bytes): (u64, Vec<u8>)| {
            (rows::DATA, chunk_key(&id, chunk), Some(bytes).filter(|bytes| !bytes.is_empty()))
        };
        let mut rows: Vec<ChangedRow> = changed.into_iter().map(row).collect();
        rows.push((rows::DATA_HEADS, head_key(&id), Some(rows::encode(&self.head))));
        (self.head, rows)
    }
}

/// Takes the data of a file away, if the MDT has some.
///
/// # Errors
/// Those of the store.
pub fn destroy(tx: &mut Tx, layout: &Layout) -> Result<(), Status> {
    if !layout.is_on_mdt() {
        return Ok(());
    }
    let object = layout.object(0);
    let Some(head) = tx.get(rows::DATA_HEADS, &head_key(&object))? else { return Ok(()) };
    let head: Head = rows::decode(&head)?;
    tx.delete(rows::DATA_HEADS, head_key(&object));
    let size_bytes = head.size_bytes.min(Layout::ON_MDT_BYTES_MAX);
    for chunk in 0..size_bytes.div_ceil(CHUNK_BYTES) {
        tx.delete(rows::DATA, chunk_key(&object, chunk));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
