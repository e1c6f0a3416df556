//! The ordered base under the redo log: everything that a checkpoint put there, and how far that is.
//!
//! The log and the overlay know only the trait; the engine behind it is redb, in a file whose blocks carry
//! checksums of their own (`backend`), because redb trusts a page once the file is open.

mod backend;
mod shadow;

use crate::contained::contain;
use crate::device::{self, Syncing};
use crate::log::replay::Covered;
use crate::space::Ballast;
use backend::{Checked, ChecksummedFile, Reads};
use base::{Epoch, Extent, Transno};
use redb::{Database, ReadOnlyTable, ReadableDatabase, StorageBackend, TableDefinition};
use shadow::Shadow;
use std::io::ErrorKind;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use store::StoreError;

/// One row of a checkpoint; no value means that the row goes.
pub(crate) type RowChange<'a> = (&'a [u8], Option<&'a [u8]>);

/// A table's number and a key in one, and the row's value.
pub(crate) type FullRow = (Vec<u8>, Vec<u8>);

type RowTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// What the store needs of a base. Reads see the last finished checkpoint; of one that runs, any of its rows, which the
/// overlay hides until it has ended.
pub(crate) trait Base: Send + Sync {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Up to `limit` rows with `from <= key < to`, in order.
    fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<FullRow>, StoreError>;

    /// Puts all rows and the new mark, durably; on an error readers still see the checkpoint before.
    /// `keep_going` is asked between parts; false gives up with `Ok(false)`.
    fn checkpoint(
        &self,
        rows: &mut dyn Iterator<Item = RowChange<'_>>,
        covered: Covered,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<bool, StoreError>;

    fn covered(&self) -> Covered;

    /// Counts the bytes of all rows anew, and notes them. No checkpoint may run.
    fn recount(&self) -> Result<(), StoreError>;

    /// About how many bytes of its file hold nothing, so that rows can come without the file growing.
    fn unused_bytes(&self) -> u64;

    /// Another budget for its pages: at once, or at the end of a checkpoint that runs.
    fn set_cache_bytes(&self, cache_bytes: usize);

    /// Reads of its file so far, and their bytes.
    fn reads(&self) -> (u64, u64);

    /// Looks whether its file is still there as it was left, in what can be seen without reading all. No checkpoint may run.
    ///
    /// # Errors
    /// `CorruptIndex` if not.
    fn check(&self) -> Result<(), StoreError>;

    /// Parts of its file that were read and failed their checksums.
    fn damaged(&self) -> Vec<Extent>;
}

const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");
const COVERED: TableDefinition<&str, &[u8]> = TableDefinition::new("covered");
const COVERED_KEY: &str = "covered";
pub(crate) const COVERED_BYTES: usize = 32;
/// Bytes of all rows, so that nobody has to count them.
const LIVE_KEY: &str = "live bytes";
/// What redb keeps beyond the rows: pages two thirds full, and its own tables.
const OVERHEAD_PERCENT: u64 = 60;
const OVERHEAD_BYTES: u64 = 4 << 20;

/// About how many bytes of the base so many bytes of rows take.
pub(crate) fn base_bytes(row_bytes: u64) -> u64 {
    row_bytes.saturating_add(row_bytes / 100 * OVERHEAD_PERCENT)
}

/// Rows and bytes of one part of a checkpoint: some milliseconds of work, so that a stop does not wait for long, and
/// few enough pages that a nearly full device has room for them.
const PART_ROWS: usize = 10_000;
const PART_BYTES: usize = 4 << 20;

/// Why a base cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// Also when the device has no room for what redb writes first.
    #[error("cannot open the index {path}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("the device of the index {path} failed to keep what was written to open it")]
    Unkept { path: PathBuf, source: std::io::Error },
    #[error("the index {path} is damaged ({reason}): restore this target from its mirror or backup")]
    Damaged { path: PathBuf, reason: String },
}

struct Opened {
    database: Database,
    file: Arc<ChecksummedFile>,
    /// Replaced after each part: a table that is kept keeps all pages that were changed since from being used again.
    rows: RwLock<Arc<RowTable>>,
    covered: Covered,
    live_bytes: u64,
}

impl Opened {
    fn rows(&self) -> Arc<RowTable> {
        self.rows.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn show(&self, rows: RowTable) {
        *self.rows.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(rows);
    }
}

pub(crate) struct RedbBase {
    path: PathBuf,
    cache_bytes: AtomicUsize,
    /// It is open with another budget.
    is_resize_due: AtomicBool,
    /// What redb writes stays in memory.
    is_read_only: bool,
    syncing: Syncing,
    ballast: Arc<Ballast>,
    reads: Arc<Reads>,
    /// `None` after an error, for redb refuses everything then, until the next call opens it again.
    opened: RwLock<Option<Opened>>,
}

impl RedbBase {
    /// Opens the base, or makes an empty one with the given seed.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub fn open(
        path: &Path,
        cache_bytes: usize,
        syncing: Syncing,
        ballast: Arc<Ballast>,
        seed_if_new: Option<u32>,
    ) -> Result<RedbBase, BaseError> {
        RedbBase::new(path, cache_bytes, syncing, ballast, false).opened(seed_if_new)
    }

    /// Opens the base and changes nothing of its file, also when redb has to put it in order first.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_to_read(path: &Path, cache_bytes: usize) -> Result<RedbBase, BaseError> {
        RedbBase::new(path, cache_bytes, Syncing::Skipped, Arc::new(Ballast::none()), true).opened(None)
    }

    fn new(
        path: &Path,
        cache_bytes: usize,
        syncing: Syncing,
        ballast: Arc<Ballast>,
        is_read_only: bool,
    ) -> RedbBase {
        RedbBase {
            path: path.to_path_buf(),
            cache_bytes: AtomicUsize::new(cache_bytes),
            is_resize_due: AtomicBool::new(false),
            is_read_only,
            syncing,
            ballast,
            reads: Arc::default(),
            opened: RwLock::new(None),
        }
    }

    fn opened(self, seed_if_new: Option<u32>) -> Result<RedbBase, BaseError> {
        let opened = self.open_database(seed_if_new)?;
        *self.write_opened() = Some(opened);
        Ok(self)
    }

    fn read_opened(&self) -> RwLockReadGuard<'_, Option<Opened>> {
        self.opened.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write_opened(&self) -> RwLockWriteGuard<'_, Option<Opened>> {
        self.opened.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn open_database(&self, seed_if_new: Option<u32>) -> Result<Opened, BaseError> {
        let io = |source| BaseError::Io { path: self.path.clone(), source };
        let file = match self.is_read_only {
            true => device::open_to_read(&self.path),
            false => device::open(&self.path, seed_if_new.is_some()),
        };
        let file = file.map_err(io)?;
        if seed_if_new.is_none() && file.metadata().map_err(io)?.len() == 0 {
            return Err(BaseError::Damaged { path: self.path.clone(), reason: "it is empty".to_string() });
        }
        let file =
            ChecksummedFile::new(file, self.syncing, self.ballast.clone(), self.reads.clone()).map_err(io)?;
        let file = Arc::new(file);
        if seed_if_new.is_none() {
            match file.check_whole() {
                Err(source) if is_damage(&source) => {
                    return Err(BaseError::Damaged { path: self.path.clone(), reason: source.to_string() });
                }
                checked => checked.map_err(io)?,
            }
            if !self.is_read_only {
                file.clear_behind_end().map_err(io)?;
            }
        }
        // redb asserts in places where it meets bytes that it did not write.
        let opened = contain(|| match self.is_read_only {
            true => self.open_on(Shadow::new(file.clone())?, &file, None),
            false => self.open_on(Checked(file.clone()), &file, seed_if_new),
        });
        let reason = match opened {
            Ok(Ok(opened)) => return Ok(opened),
            Ok(Err(redb::Error::Io(source))) if file.is_unkept() => {
                return Err(BaseError::Unkept { path: self.path.clone(), source });
            }
            Ok(Err(redb::Error::Io(source))) if !is_damage(&source) => return Err(io(source)),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("it ends the program that reads it: {panic}"),
        };
        Err(BaseError::Damaged { path: self.path.clone(), reason })
    }

    fn open_on(
        &self,
        backend: impl StorageBackend,
        file: &Arc<ChecksummedFile>,
        seed_if_new: Option<u32>,
    ) -> Result<Opened, redb::Error> {
        self.is_resize_due.store(false, Ordering::Relaxed);
        let cache_bytes = self.cache_bytes.load(Ordering::Relaxed);
        let database = Database::builder().set_cache_size(cache_bytes).create_with_backend(backend)?;
        if let Some(seed) = seed_if_new {
            let mut transaction = database.begin_write()?;
            transaction.set_quick_repair(true);
            transaction.open_table(ROWS)?;
            let covered = Covered { seed, ..Covered::default() };
            transaction.open_table(COVERED)?.insert(COVERED_KEY, &encode_covered(covered)[..])?;
            transaction.commit()?;
        }
        let (rows, covered, live_bytes) = view(&database)?;
        Ok(Opened { database, file: file.clone(), rows: RwLock::new(Arc::new(rows)), covered, live_bytes })
    }

    /// Runs `read` on the open base; an error closes it, so that the next call starts afresh.
    fn with<T>(&self, read: impl Fn(&Opened) -> Result<T, redb::Error>) -> Result<T, StoreError> {
        if let Some(opened) = self.read_opened().as_ref()
            && let Ok(value) = self.try_read(opened, &read)
        {
            return Ok(value);
        }
        let mut guard = self.write_opened();
        close(&mut guard);
        let opened = self.open_database(None).map_err(|error| {
            tracing::error!(%error, "the index cannot be opened again");
            opening_failed(&error)
        })?;
        let value = self.try_read(guard.insert(opened), &read);
        if value.is_err() {
            close(&mut guard);
        }
        value
    }

    fn try_read<T>(
        &self,
        opened: &Opened,
        read: impl Fn(&Opened) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        match contain(|| read(opened)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                tracing::error!(path = %self.path.display(), %error, "the index cannot be read");
                Err(as_store_error(&error))
            }
            Err(panic) => {
                tracing::error!(path = %self.path.display(), panic, "the index is damaged");
                Err(NOT_AS_WRITTEN)
            }
        }
    }

    /// Opens it again with the budget that it is to have. Nobody reads meanwhile.
    fn resize(&self, guard: &mut Option<Opened>) {
        if self.is_resize_due.load(Ordering::Relaxed) && guard.is_some() {
            close(guard);
            match self.open_database(None) {
                Ok(opened) => *guard = Some(opened),
                // The next call tries it again, and says what is wrong to whoever needs it.
                Err(error) => tracing::error!(%error, "the index cannot be opened again"),
            }
        }
    }

    /// Parts of its file that fail their checksums: all of them if it was closed in order, and else those that were read so far.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn damaged_parts(&self) -> std::io::Result<Vec<Extent>> {
        let file = device::open_to_read(&self.path)?;
        let file = ChecksummedFile::new(file, Syncing::Skipped, self.ballast.clone(), self.reads.clone())?;
        match file.was_closed() {
            Ok(true) => file.read_all()?,
            Ok(false) => {}
            Err(error) if is_damage(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(self.reads.damaged())
    }

    /// What the base says of the bytes of its rows, and what they are.
    ///
    /// # Errors
    /// As `Base::get`.
    pub fn counted_bytes(&self) -> Result<(u64, u64), StoreError> {
        self.with(|opened| Ok((opened.live_bytes, count_bytes(&opened.rows())?)))
    }

    fn write_checkpoint(
        &self,
        opened: &Opened,
        rows: &mut dyn Iterator<Item = RowChange<'_>>,
        covered: Covered,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<bool, redb::Error> {
        let mut rows = rows.peekable();
        let mut live_bytes = view(&opened.database)?.2;
        while rows.peek().is_some() {
            if !keep_going() {
                return Ok(false);
            }
            let mut transaction = opened.database.begin_write()?;
            transaction.set_quick_repair(true);
            {
                let mut table = transaction.open_table(ROWS)?;
                let mut part_bytes = 0;
                for (key, value) in rows.by_ref().take(PART_ROWS) {
                    let old = match value {
                        Some(value) => table.insert(key, &seal(key, value)[..])?,
                        None => table.remove(key)?,
                    };
                    let old_bytes = old.map_or(0, |old| key.len() + old.value().len());
                    let new_bytes = value.map_or(0, |value| key.len() + value.len() + ROW_CRC_BYTES);
                    live_bytes = (live_bytes + new_bytes as u64).saturating_sub(old_bytes as u64);
                    part_bytes += old_bytes + new_bytes;
                    if part_bytes >= PART_BYTES {
                        break;
                    }
                }
                transaction.open_table(COVERED)?.insert(LIVE_KEY, &live_bytes.to_le_bytes()[..])?;
            }
            transaction.commit()?;
            opened.show(view(&opened.database)?.0);
        }
        let mut transaction = opened.database.begin_write()?;
        transaction.set_quick_repair(true);
        transaction.open_table(COVERED)?.insert(COVERED_KEY, &encode_covered(covered)[..])?;
        transaction.commit()?;
        Ok(true)
    }
}

/// The rows, how far they are, and their bytes.
fn view(database: &Database) -> Result<(RowTable, Covered, u64), redb::Error> {
    let transaction = database.begin_read()?;
    let marks = transaction.open_table(COVERED)?;
    let covered = marks.get(COVERED_KEY)?;
    let live_bytes = marks.get(LIVE_KEY)?.and_then(|bytes| bytes.value().try_into().ok());
    let live_bytes = live_bytes.map_or(0, u64::from_le_bytes);
    let covered = covered.as_ref().and_then(|bytes| decode_covered(bytes.value()));
    let covered =
        covered.ok_or_else(|| redb::Error::Corrupted("the mark of the last checkpoint".to_string()))?;
    Ok((transaction.open_table(ROWS)?, covered, live_bytes))
}

fn count_bytes(rows: &RowTable) -> Result<u64, redb::Error> {
    let (mut byte_count, mut order) = (0, Order::default());
    for row in rows.range::<&[u8]>(..)? {
        let (key, sealed) = row?;
        order.check(key.value())?;
        byte_count += (key.value().len() + sealed.value().len()) as u64;
    }
    Ok(byte_count)
}

/// Keys rise. Pages that lead to each other would be read for ever otherwise.
#[derive(Default)]
struct Order {
    last: Vec<u8>,
}

impl Order {
    fn check(&mut self, key: &[u8]) -> Result<(), redb::Error> {
        // Every key begins with the number of its table, so none is empty.
        if !self.last.is_empty() && key <= self.last.as_slice() {
            return Err(redb::Error::Corrupted("rows are not in order".to_string()));
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        Ok(())
    }
}

pub(crate) fn encode_covered(covered: Covered) -> [u8; COVERED_BYTES] {
    let mut bytes = [0; COVERED_BYTES];
    bytes[..8].copy_from_slice(&covered.applied.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&covered.segment.to_le_bytes());
    bytes[16..24].copy_from_slice(&covered.epoch.0.to_le_bytes());
    bytes[24..28].copy_from_slice(&covered.seed.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

pub(crate) fn decode_covered(bytes: &[u8]) -> Option<Covered> {
    let bytes: &[u8; COVERED_BYTES] = bytes.try_into().ok()?;
    let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    if u32_at(28)? != crc32c::crc32c(bytes.get(..28)?) {
        return None;
    }
    Some(Covered {
        applied: Transno(u64_at(0)?),
        segment: u64_at(8)?,
        epoch: Epoch(u64_at(16)?),
        seed: u32_at(24)?,
    })
}

const ROW_CRC_BYTES: usize = 4;

/// The value as stored: with the CRC32C over key and value behind it.
pub(crate) fn seal(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(value.len() + ROW_CRC_BYTES);
    sealed.extend_from_slice(value);
    sealed.extend_from_slice(&row_crc(key, value).to_le_bytes());
    sealed
}

pub(crate) fn unseal(key: &[u8], sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
    match sealed.split_last_chunk::<ROW_CRC_BYTES>() {
        Some((value, crc)) if u32::from_le_bytes(*crc) == row_crc(key, value) => Ok(value.to_vec()),
        _ => {
            let (table, key) = key.split_first().map_or((0, &[][..]), |(table, key)| (*table, key));
            Err(StoreError::CorruptRow { table, key: key.to_vec() })
        }
    }
}

fn row_crc(key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), value)
}

/// Whether the file is what is wrong, and not the device or a limit of this process.
fn is_damage(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
}

const NOT_AS_WRITTEN: StoreError = StoreError::CorruptIndex { what: "a page is not what was written" };

fn as_store_error(error: &redb::Error) -> StoreError {
    match error {
        redb::Error::Io(source) if device::is_full(device::errno(source)) => StoreError::NoSpace,
        redb::Error::Io(source) if is_damage(source) => {
            StoreError::CorruptIndex { what: "a block of it is cut off or fails its checksum" }
        }
        redb::Error::Io(source) => {
            StoreError::Device { operation: "read or write the index", errno: device::errno(source) }
        }
        // After an error of the device, which somebody else was told of.
        redb::Error::PreviousIo | redb::Error::DatabaseClosed => {
            StoreError::Device { operation: "read or write the index", errno: libc::EIO }
        }
        _ => NOT_AS_WRITTEN,
    }
}

fn opening_failed(error: &BaseError) -> StoreError {
    match error {
        BaseError::Io { source, .. } | BaseError::Unkept { source, .. }
            if source.kind() != ErrorKind::NotFound =>
        {
            StoreError::Device { operation: "open the index again", errno: device::errno(source) }
        }
        _ => StoreError::CorruptIndex { what: "it cannot be opened again" },
    }
}

/// redb puts a base in order when it is closed, and may meet anything there.
fn close(opened: &mut Option<Opened>) {
    let Some(opened) = opened.take() else { return };
    if let Err(panic) = contain(|| drop(opened)) {
        tracing::error!(panic, "an index that is damaged could not be closed in order");
    }
}

impl Drop for RedbBase {
    fn drop(&mut self) {
        close(&mut self.write_opened());
    }
}

impl Base for RedbBase {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let row =
            self.with(|opened| Ok(opened.rows().get(key)?.map(|sealed| unseal(key, sealed.value()))))?;
        row.transpose()
    }

    fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<FullRow>, StoreError> {
        let rows = self.with(|opened| {
            let mut rows = Vec::new();
            let mut order = Order::default();
            let range = (Bound::Included(from), Bound::Excluded(to));
            for row in opened.rows().range::<&[u8]>(range)?.take(limit) {
                let (key, sealed) = row?;
                order.check(key.value())?;
                if key.value() < from || key.value() >= to {
                    return Err(redb::Error::Corrupted("rows are not where they belong".to_string()));
                }
                rows.push(unseal(key.value(), sealed.value()).map(|value| (key.value().to_vec(), value)));
            }
            Ok(rows)
        })?;
        rows.into_iter().collect()
    }

    fn checkpoint(
        &self,
        rows: &mut dyn Iterator<Item = RowChange<'_>>,
        covered: Covered,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<bool, StoreError> {
        // Opens it again if an error has closed it.
        self.with(|_| Ok(()))?;
        let written = {
            let opened = self.read_opened();
            let Some(opened) = opened.as_ref() else {
                // By an error of another reader since. That says nothing about what is in it.
                return Err(StoreError::Device { operation: "open the index again", errno: libc::EIO });
            };
            contain(|| {
                let is_done = self.write_checkpoint(opened, rows, covered, keep_going)?;
                Ok((is_done, view(&opened.database)?))
            })
            .unwrap_or_else(|panic| Err(redb::Error::Corrupted(panic)))
        };
        let mut guard = self.write_opened();
        match written {
            Ok((true, (rows, covered, live_bytes))) => {
                if let Some(opened) = guard.as_mut() {
                    opened.show(rows);
                    opened.covered = covered;
                    opened.live_bytes = live_bytes;
                }
                self.resize(&mut guard);
                Ok(true)
            }
            // Parts of it are there. The log still has the whole generation, so that putting it again makes it whole.
            Ok((false, _)) => {
                close(&mut guard);
                Ok(false)
            }
            Err(error) => {
                close(&mut guard);
                tracing::error!(path = %self.path.display(), %error, "the index cannot be written");
                Err(as_store_error(&error))
            }
        }
    }

    fn covered(&self) -> Covered {
        let opened = self.read_opened();
        opened.as_ref().map(|opened| opened.covered).unwrap_or_default()
    }

    fn recount(&self) -> Result<(), StoreError> {
        let live_bytes = self.with(|opened| {
            let live_bytes = count_bytes(&opened.rows())?;
            let mut transaction = opened.database.begin_write()?;
            transaction.set_quick_repair(true);
            transaction.open_table(COVERED)?.insert(LIVE_KEY, &live_bytes.to_le_bytes()[..])?;
            transaction.commit()?;
            Ok(live_bytes)
        })?;
        let mut guard = self.write_opened();
        if let Some(opened) = guard.as_mut() {
            opened.live_bytes = live_bytes;
        }
        Ok(())
    }

    fn set_cache_bytes(&self, cache_bytes: usize) {
        if self.cache_bytes.swap(cache_bytes, Ordering::Relaxed) == cache_bytes {
            return;
        }
        self.is_resize_due.store(true, Ordering::Relaxed);
        // Whoever waits here for a checkpoint would make all readers wait with him.
        if let Ok(mut guard) = self.opened.try_write() {
            self.resize(&mut guard);
        }
    }

    fn reads(&self) -> (u64, u64) {
        (self.reads.count.load(Ordering::Relaxed), self.reads.byte_count.load(Ordering::Relaxed))
    }

    fn check(&self) -> Result<(), StoreError> {
        // Nobody opens it meanwhile.
        let opened = self.read_opened();
        let Some(opened) = opened.as_ref() else { return Ok(()) };
        opened.file.check_whole().map_err(|error| {
            tracing::error!(path = %self.path.display(), %error, "the index cannot be read");
            as_store_error(&redb::Error::Io(error))
        })
    }

    fn damaged(&self) -> Vec<Extent> {
        self.reads.damaged()
    }

    fn unused_bytes(&self) -> u64 {
        // redb doubles its file at a time: what it has not written yet is no room until the device gives it.
        let file_bytes = std::fs::metadata(&self.path).map_or(0, |metadata| metadata.blocks() * 512);
        let opened = self.read_opened();
        let live_bytes = opened.as_ref().map_or(file_bytes, |opened| opened.live_bytes);
        file_bytes.saturating_sub(base_bytes(live_bytes) + OVERHEAD_BYTES)
    }
}

#[cfg(test)]
mod tests;
