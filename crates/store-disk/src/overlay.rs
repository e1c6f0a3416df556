//! What is applied and not in the base yet: two generations of rows in key order, the later one growing, the earlier
//! one on its way into the base.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use store::{Batch, KEY_BYTES_MAX, Table};

/// A row, or its deletion, as in the cache.
pub(crate) use crate::cache::Row;

/// Rows of one generation by table and key in one.
pub(crate) type Rows = BTreeMap<Box<[u8]>, Row>;

/// Bytes of a map entry beyond key and value: three pointers, a share of a node, two allocations.
const ENTRY_BYTES: usize = 96;

/// A table's number and a key, as one key of the base.
pub(crate) struct FullKey {
    bytes: [u8; KEY_BYTES_MAX + 1],
    byte_count: usize,
}

impl FullKey {
    /// `None` if no row can have this key.
    pub fn new(table: Table, key: &[u8]) -> Option<FullKey> {
        let mut bytes = [0; KEY_BYTES_MAX + 1];
        bytes[0] = table;
        bytes.get_mut(1..=key.len())?.copy_from_slice(key);
        Some(FullKey { bytes, byte_count: key.len() + 1 })
    }

    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.byte_count).unwrap_or_default()
    }
}

#[derive(Default)]
pub(crate) struct Overlay {
    active: Rows,
    active_bytes: usize,
    frozen: Option<Arc<Rows>>,
    frozen_bytes: usize,
}

impl Overlay {
    pub fn apply(&mut self, batch: &Batch) {
        for change in batch.changes() {
            let Some(key) = FullKey::new(change.table, change.key) else { continue };
            let row = change.value.map(Arc::from);
            let row_bytes = change.value.map_or(0, <[u8]>::len);
            if let Some(old) = self.active.get_mut(key.bytes()) {
                self.active_bytes += row_bytes;
                self.active_bytes -= old.as_ref().map_or(0, |value| value.len());
                *old = row;
            } else {
                self.active_bytes += ENTRY_BYTES + key.bytes().len() + row_bytes;
                self.active.insert(key.bytes().into(), row);
            }
        }
    }

    /// `None` if the base has to be asked.
    pub fn get(&self, key: &[u8]) -> Option<Row> {
        let found = self.active.get(key).or_else(|| self.frozen.as_ref()?.get(key));
        found.cloned()
    }

    /// Up to `limit` rows and deletions with `from <= key < to`, in order; the later generation wins.
    pub fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Vec<(Box<[u8]>, Row)> {
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let mut active = self.active.range::<[u8], _>(bounds).peekable();
        let mut frozen = self.frozen.iter().flat_map(|rows| rows.range::<[u8], _>(bounds)).peekable();
        let mut merged = Vec::new();
        while merged.len() < limit {
            let next = match (active.peek(), frozen.peek()) {
                (Some((a, _)), Some((f, _))) if f < a => frozen.next(),
                (Some((a, _)), Some((f, _))) => {
                    if a == f {
                        frozen.next();
                    }
                    active.next()
                }
                (Some(_), None) => active.next(),
                (None, _) => frozen.next(),
            };
            let Some((key, row)) = next else { break };
            merged.push((key.clone(), row.clone()));
        }
        merged
    }

    /// Keys of the frozen generation that the growing one has too.
    pub fn superseded(&self) -> BTreeSet<Box<[u8]>> {
        let frozen = self.frozen.iter().flat_map(|rows| rows.keys());
        frozen.filter(|key| self.active.contains_key(*key)).cloned().collect()
    }

    pub fn byte_count(&self) -> usize {
        self.active_bytes + self.frozen_bytes
    }

    pub fn is_active_empty(&self) -> bool {
        self.active.is_empty()
    }

    pub fn frozen(&self) -> Option<Arc<Rows>> {
        self.frozen.clone()
    }

    /// The growing generation stops growing. There must be no frozen one.
    pub fn freeze(&mut self) -> Arc<Rows> {
        assert!(self.frozen.is_none(), "one generation at a time goes into the base");
        let rows = Arc::new(std::mem::take(&mut self.active));
        self.frozen_bytes = std::mem::take(&mut self.active_bytes);
        self.frozen = Some(rows.clone());
        rows
    }

    /// The frozen generation is in the base.
    pub fn drop_frozen(&mut self) {
        self.frozen = None;
        self.frozen_bytes = 0;
    }
}

#[cfg(test)]
mod tests;
