//! A metadata store that is only looked at: rows as a server would find them after a restart, and not a byte on the disk
//! is changed. Neither is the log's tail cut, nor the log put into the base.

use super::scan::{self, ScanPart};
use super::{OpenError, Recovered};
use crate::index::{Base, RedbBase};
use crate::log::reached;
use crate::log::replay::look;
use crate::overlay::{FullKey, Overlay};
use crate::space::space_after_reserve;
use base::{Extent, Transno};
use std::path::{Path, PathBuf};
use store::{Batch, MetaStore, Pressure, Space, StoreError, Table};

/// The metadata store of a target that nobody serves.
pub struct MetaReader {
    directory: PathBuf,
    overlay: Overlay,
    base: RedbBase,
    recovered: Recovered,
}

impl MetaReader {
    /// Reads the log, and opens the base with a cache of so many bytes.
    ///
    /// # Errors
    /// As `MetaDisk::open`.
    pub fn open(directory: &Path, cache_bytes: usize) -> Result<MetaReader, OpenError> {
        let base = RedbBase::open_to_read(&directory.join("index"), cache_bytes)?;
        let mut overlay = Overlay::default();
        let mut replayed_count = 0;
        let reached = reached::read(directory)?;
        let found = look(&directory.join("log"), base.covered(), reached, &mut |_, batch| {
            overlay.apply(batch);
            replayed_count += 1;
        })?;
        let recovered = Recovered { last: found.last, replayed_count, torn: found.torn };
        Ok(MetaReader { directory: directory.to_path_buf(), overlay, base, recovered })
    }

    pub fn recovered(&self) -> Recovered {
        self.recovered
    }

    /// Parts of the base's file that fail their checksums. After a crash only what was read so far is known: blocks to which
    /// nothing leads may then be without checksums rightly.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn damaged_parts(&self) -> std::io::Result<Vec<Extent>> {
        self.base.damaged_parts()
    }

    /// How many bytes of rows the base says to have, and how many it has.
    ///
    /// # Errors
    /// As `get`.
    pub fn counted_bytes(&self) -> Result<(u64, u64), StoreError> {
        self.base.counted_bytes()
    }

    fn scan_part(&self, from: &[u8], to: &[u8], limit: usize) -> Result<ScanPart, StoreError> {
        Ok(scan::merge(self.overlay.range(from, to, limit), self.base.range(from, to, limit)?, limit))
    }
}

impl MetaStore for MetaReader {
    fn apply(&self, _: Transno, _: &Batch) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly)
    }

    fn applied(&self) -> Transno {
        self.recovered.last
    }

    fn durable(&self) -> Transno {
        self.recovered.last
    }

    fn kick(&self) {}

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(key) = FullKey::new(table, key) else { return Ok(None) };
        match self.overlay.get(key.bytes()) {
            Some(row) => Ok(row.map(|value| value.to_vec())),
            None => self.base.get(key.bytes()),
        }
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to_exclusive: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let part = |from: &[u8], to: &[u8], limit| self.scan_part(from, to, limit);
        scan::in_parts(&part, table, from..to_exclusive, limit, visit)
    }

    fn pressure(&self) -> Pressure {
        Pressure::default()
    }

    fn space(&self) -> Space {
        space_after_reserve(&self.directory)
    }

    fn close(&self) {}
}
