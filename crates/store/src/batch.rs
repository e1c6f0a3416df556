//! One transaction's rows, kept in the form in which they are logged.

use crate::StoreError;
use crate::meta::{BATCH_BYTES_MAX, KEY_BYTES_MAX, Table, VALUE_BYTES_MAX};

/// table u8, operation u8, key length u16, value length u32 (all little-endian), key, value.
const HEADER_BYTES: usize = 8;
const PUT: u8 = 1;
const DELETE: u8 = 2;

/// Puts and deletes of whole rows: absolute values only, so that replaying a batch twice changes nothing. Within a
/// batch the later change of a key wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    encoded: Vec<u8>,
    change_count: usize,
    /// First length that no store takes; reported by `check`, so that building a batch never fails.
    too_long: Option<StoreError>,
}

/// One row of a batch; no value means that the row is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    pub table: Table,
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// Logged bytes that are not a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchDecodeError {
    #[error("a change of the batch ends early, at byte {offset_bytes}")]
    Short { offset_bytes: usize },
    #[error("unknown operation {operation} in the batch at byte {offset_bytes}")]
    UnknownOperation { operation: u8, offset_bytes: usize },
    #[error("a key or value in the batch at byte {offset_bytes} is longer than a store takes")]
    TooLong { offset_bytes: usize },
}

impl Batch {
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Sets a row.
    pub fn put(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.push(Change { table, key, value: Some(value) });
    }

    /// Deletes a row, which need not exist.
    pub fn delete(&mut self, table: Table, key: &[u8]) {
        self.push(Change { table, key, value: None });
    }

    pub fn push(&mut self, change: Change<'_>) {
        let value = change.value.unwrap_or_default();
        if change.key.len() > KEY_BYTES_MAX {
            self.too_long.get_or_insert(StoreError::KeyTooLong { byte_count: change.key.len() });
            return;
        }
        if value.len() > VALUE_BYTES_MAX {
            self.too_long.get_or_insert(StoreError::ValueTooLong { byte_count: value.len() });
            return;
        }
        self.encoded.push(change.table);
        self.encoded.push(if change.value.is_some() { PUT } else { DELETE });
        self.encoded.extend_from_slice(&(change.key.len() as u16).to_le_bytes());
        self.encoded.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.encoded.extend_from_slice(change.key);
        self.encoded.extend_from_slice(value);
        self.change_count += 1;
    }

    /// Appends all changes of another batch.
    pub fn append(&mut self, other: &Batch) {
        self.encoded.extend_from_slice(&other.encoded);
        self.change_count += other.change_count;
        if let Some(error) = &other.too_long {
            self.too_long.get_or_insert(error.clone());
        }
    }

    pub fn clear(&mut self) {
        self.encoded.clear();
        self.change_count = 0;
        self.too_long = None;
    }

    pub fn is_empty(&self) -> bool {
        self.change_count == 0
    }

    pub fn change_count(&self) -> usize {
        self.change_count
    }

    /// The form in which engines log it.
    pub fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// Engines call this before they take a batch.
    ///
    /// # Errors
    /// The length errors.
    pub fn check(&self) -> Result<(), StoreError> {
        if let Some(error) = &self.too_long {
            return Err(error.clone());
        }
        let byte_count = self.encoded.len();
        if byte_count > BATCH_BYTES_MAX {
            return Err(StoreError::BatchTooLong { byte_count, byte_count_max: BATCH_BYTES_MAX });
        }
        Ok(())
    }

    /// The changes in their order.
    pub fn changes(&self) -> Changes<'_> {
        Changes { bytes: &self.encoded, offset_bytes: 0 }
    }

    /// Reads logged bytes back.
    ///
    /// # Errors
    /// If the bytes are not whole changes within the limits.
    pub fn decode(bytes: &[u8]) -> Result<Batch, BatchDecodeError> {
        let mut offset_bytes = 0;
        let mut change_count = 0;
        while offset_bytes < bytes.len() {
            (_, offset_bytes) = decode_change(bytes, offset_bytes)?;
            change_count += 1;
        }
        Ok(Batch { encoded: bytes.to_vec(), change_count, too_long: None })
    }
}

/// Iterator over the changes of a batch.
pub struct Changes<'a> {
    bytes: &'a [u8],
    offset_bytes: usize,
}

impl<'a> Iterator for Changes<'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        if self.offset_bytes >= self.bytes.len() {
            return None;
        }
        let (change, next) = decode_change(self.bytes, self.offset_bytes)
            .expect("a batch holds only what push or decode let in");
        self.offset_bytes = next;
        Some(change)
    }
}

fn decode_change(bytes: &[u8], offset_bytes: usize) -> Result<(Change<'_>, usize), BatchDecodeError> {
    let short = BatchDecodeError::Short { offset_bytes };
    let rest = bytes.get(offset_bytes..).ok_or(short)?;
    let (header, rest) = rest.split_first_chunk::<HEADER_BYTES>().ok_or(short)?;
    let [table, operation, k0, k1, v0, v1, v2, v3] = *header;
    let key_bytes = usize::from(u16::from_le_bytes([k0, k1]));
    let value_bytes = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
    if key_bytes > KEY_BYTES_MAX || value_bytes > VALUE_BYTES_MAX {
        return Err(BatchDecodeError::TooLong { offset_bytes });
    }
    let (key, rest) = rest.split_at_checked(key_bytes).ok_or(short)?;
    let (value, _) = rest.split_at_checked(value_bytes).ok_or(short)?;
    let value = match operation {
        PUT => Some(value),
        DELETE if value.is_empty() => None,
        _ => return Err(BatchDecodeError::UnknownOperation { operation, offset_bytes }),
    };
    Ok((Change { table, key, value }, offset_bytes + HEADER_BYTES + key_bytes + value_bytes))
}

#[cfg(test)]
mod tests;
