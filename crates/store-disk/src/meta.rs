//! The metadata engine: redo log, overlay in memory, and a base that a checkpointer fills behind them.
//!
//! `apply` logs (one write(2), no wait) and puts the rows into the overlay. The committer thread syncs the log and
//! moves the durable mark; the checkpointer thread moves whole generations of the overlay into the base and gives
//! their log segments back. Opening reads the log tail into the overlay: bounded by the log, not by the namespace.
//!
//! Lock order: log, overlay, then the cache's shards. No lock is held during a sync or a write to the base.

mod checkpoint;
mod commit;
mod reader;
mod scan;

use crate::cache::{Row, RowCache};
use crate::device::{self, Syncing};
use crate::index::{Base, BaseError, RedbBase, base_bytes};
use crate::log::replay::{Covered, ReplayError, replay};
use crate::log::{AppendError, Log, LogStart, create_segment, reached};
use crate::overlay::{FullKey, Overlay};
use crate::space::{Ballast, Demand, Gauge, space_after_reserve};
use base::{Epoch, Extent, Transno};
use checkpoint::Checkpointer;
use commit::{Cause, Committer};
pub use reader::MetaReader;
use scan::ScanPart;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use store::{Batch, MetaStore, OnDurable, Pressure, Reserve, Space, StoreError, Table};

/// From this many checkpoints' worth of log on, `apply` is delayed: 1 ms, then twice as long for each further one.
const LATE_CHECKPOINT_COUNT: u64 = 4;
const LATE_MS_MAX: u64 = 16;
/// Group and segment overhead is far below this, and the largest batch must fit.
const SEGMENT_BYTES_MIN: u64 = 2 << 20;
const SEGMENT_BYTES_MAX: u64 = 4 << 20;
/// Segments that the device must have room for before the log may go on for what frees nothing: one is made ready while another is used.
const LOG_ROOM_SEGMENTS: u64 = 2;
/// Log bytes after which a checkpoint begins, as a share of the device, and the bounds of it. More bytes make better
/// checkpoints, and longer replays: 64 MiB are read in a second.
const CHECKPOINT_SHARE: u64 = 1024;
const CHECKPOINT_BYTES_MIN: u64 = 4 << 20;
const CHECKPOINT_BYTES_MAX: u64 = 64 << 20;

const _: () = assert!(SEGMENT_BYTES_MIN >= store::BATCH_BYTES_MAX as u64 + 4096);

/// How a metadata store is opened. `Default` is right for servers.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of one log segment; `None` chooses by the size of the device.
    pub segment_bytes: Option<u64>,
    /// Log bytes after which a checkpoint begins; `None` chooses by the size of the device.
    pub checkpoint_bytes: Option<u64>,
    /// Memory for rows that were used lately and for pages of the base, together.
    pub cache_bytes: usize,
    /// Its rows are file data, which have a share of that memory and cannot take the rest.
    pub data_table: Option<Table>,
    /// Nothing applied stays undurable longer than this and one sync.
    pub sync_interval: Duration,
    /// How often the space on the device is looked after, and a failed checkpoint is tried again.
    pub upkeep_interval: Duration,
    /// Syncs do nothing: a power failure loses everything. For tests only.
    pub no_sync: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: None,
            checkpoint_bytes: None,
            cache_bytes: 96 << 20,
            data_table: None,
            sync_interval: base::limits::SYNC_INTERVAL,
            upkeep_interval: Duration::from_secs(5),
            no_sync: Syncing::from_environment() == Syncing::Skipped,
        }
    }
}

/// The part for rows. A page holds a score of rows, which listings read one after the other; rows that are looked up by name lie
/// on pages of their own.
fn row_cache_bytes(cache_bytes: usize) -> usize {
    cache_bytes / 3
}

fn page_cache_bytes(cache_bytes: usize) -> usize {
    cache_bytes - row_cache_bytes(cache_bytes)
}

/// Memory that a store keeps its rows in, and what had to be read all the same. Counted since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    pub budget_bytes: u64,
    pub row_count: u64,
    pub row_bytes: u64,
    pub hit_count: u64,
    pub miss_count: u64,
    /// Reads of the base's file, from the device or the kernel's page cache.
    pub base_read_count: u64,
    pub base_read_bytes: u64,
}

/// How often the device had to sync the log. Counted since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncUse {
    pub sync_count: u64,
    /// Those that somebody waited for (`MetaStore::kick`). The others keep what is undurable within bounds: one each
    /// `Options::sync_interval` while anything is applied, and those of checkpoints.
    pub awaited_sync_count: u64,
}

impl Options {
    pub(crate) fn syncing(&self) -> Syncing {
        if self.no_sync { Syncing::Skipped } else { Syncing::Real }
    }

    fn checkpoint_bytes(&self, space: &Space) -> u64 {
        let chosen = (space.total_bytes / CHECKPOINT_SHARE).clamp(CHECKPOINT_BYTES_MIN, CHECKPOINT_BYTES_MAX);
        self.checkpoint_bytes.unwrap_or(chosen)
    }

    fn segment_bytes(&self, space: &Space) -> u64 {
        let chosen = self.segment_bytes.unwrap_or((space.total_bytes / 512).min(SEGMENT_BYTES_MAX));
        chosen.max(SEGMENT_BYTES_MIN).next_multiple_of(4096)
    }
}

/// What was found wrong with the base while it was in use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the index {path} is damaged ({what}{})", in_parts(.parts))]
pub struct Damage {
    pub path: PathBuf,
    pub what: &'static str,
    /// Bytes of the file that were read and fail their checksums.
    pub parts: Vec<Extent>,
}

/// Parts of a file that are told one by one.
const PARTS_SHOWN_MAX: usize = 4;

fn in_parts(parts: &[Extent]) -> String {
    let shown: Vec<String> = parts.iter().take(PARTS_SHOWN_MAX).map(Extent::to_string).collect();
    match parts.len() - shown.len() {
        _ if parts.is_empty() => String::new(),
        0 => format!(": bytes {}", shown.join(", ")),
        more => format!(": bytes {} and {more} parts more", shown.join(", ")),
    }
}

/// Why a metadata store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot use {path}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("the device of {path} failed to keep what was written to open it")]
    Unkept { path: PathBuf, source: std::io::Error },
    #[error("no space for the log of this target in {path}")]
    NoSpace { path: PathBuf },
    #[error(transparent)]
    Base(#[from] BaseError),
    #[error(transparent)]
    Log(#[from] ReplayError),
}

impl OpenError {
    fn of_change(path: &Path, source: std::io::Error) -> OpenError {
        let path = path.to_path_buf();
        if device::may_be_unkept(&source) {
            OpenError::Unkept { path, source }
        } else {
            OpenError::Io { path, source }
        }
    }

    /// Whether something was written that the device failed to keep, and the kernel of this machine may write some time.
    pub fn is_unkept(&self) -> bool {
        match self {
            OpenError::Unkept { .. }
            | OpenError::Base(BaseError::Unkept { .. })
            | OpenError::Log(ReplayError::Unkept { .. }) => true,
            OpenError::Log(ReplayError::WriteBack { source, .. }) => device::may_be_unkept(source),
            OpenError::Io { .. } | OpenError::NoSpace { .. } | OpenError::Base(_) | OpenError::Log(_) => {
                false
            }
        }
    }
}

/// What an open found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    pub last: Transno,
    /// Batches read from the log.
    pub replayed_count: u64,
    /// The log ended in something half-written, which was cut off.
    pub torn: bool,
}

/// What the threads share.
pub(crate) struct Shared {
    directory: PathBuf,
    log_directory: PathBuf,
    segment_bytes: u64,
    checkpoint_bytes: u64,
    syncing: Syncing,
    ballast: Arc<Ballast>,
    gauge: Gauge,
    log: Mutex<Log>,
    overlay: RwLock<Overlay>,
    base: Box<dyn Base>,
    cache: RowCache,
    /// That of rows and of the base's pages.
    cache_bytes: AtomicUsize,
    applied: AtomicU64,
    durable: AtomicU64,
    appended_bytes: AtomicU64,
    synced_bytes: AtomicU64,
    poison: OnceLock<StoreError>,
    /// What was found wrong with the base. Nothing is read or changed any more: what is intact of it may be of another time. The log
    /// is another file, so what was accepted before still becomes durable.
    damage: OnceLock<StoreError>,
    committer: Committer,
    checkpointer: Checkpointer,
    on_durable: OnDurable,
}

/// The metadata store of one target, in a directory of its own.
pub struct MetaDisk {
    shared: Arc<Shared>,
    recovered: Recovered,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MetaDisk {
    /// Makes an empty store in `directory`, which is created. What is there already is refused.
    ///
    /// # Errors
    /// If the files cannot be made.
    pub fn create(directory: &Path, options: &Options) -> Result<(), OpenError> {
        let io = |source| OpenError::Io { path: directory.to_path_buf(), source };
        let syncing = options.syncing();
        device::make_directories(&directory.join("log")).map_err(io)?;
        if directory.join("index").exists() {
            return Err(io(std::io::Error::from(std::io::ErrorKind::AlreadyExists)));
        }
        // Segments are made by the first opening only: the base was there once, and is lost.
        if std::fs::read_dir(directory.join("log")).map_err(io)?.next().is_some() {
            let reason = "it is missing although its log is there".to_string();
            return Err(BaseError::Damaged { path: directory.join("index"), reason }.into());
        }
        let space = device::space(directory).map_err(io)?;
        let ballast = Arc::new(Ballast::take(directory.join("ballast"), &space));
        let mut seed = [0; 4];
        std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut seed)).map_err(io)?;
        // Built aside, made durable, then given its name.
        let aside = directory.join("index.new");
        let _ = device::remove(&aside);
        let cache_bytes = page_cache_bytes(options.cache_bytes);
        drop(RedbBase::open(&aside, cache_bytes, syncing, ballast, Some(u32::from_le_bytes(seed)))?);
        device::rename(&aside, &directory.join("index")).map_err(io)?;
        syncing.sync_directory(directory).map_err(|source| OpenError::of_change(directory, source))
    }

    /// Opens the store: the base, and what the log has beyond it.
    ///
    /// # Errors
    /// If anything that had been durable is missing or damaged, or the device refuses.
    pub fn open(directory: &Path, options: &Options, on_durable: OnDurable) -> Result<MetaDisk, OpenError> {
        let io = |source| OpenError::Io { path: directory.to_path_buf(), source };
        let syncing = options.syncing();
        let space = device::space(directory).map_err(io)?;
        let ballast = Arc::new(Ballast::take(directory.join("ballast"), &space));
        let index_path = directory.join("index");
        let page_bytes = page_cache_bytes(options.cache_bytes);
        let base = RedbBase::open(&index_path, page_bytes, syncing, ballast.clone(), None)?;
        let covered = base.covered();
        let log_directory = directory.join("log");
        let mut overlay = Overlay::default();
        let mut replayed_count = 0;
        let reached = reached::read(directory)?;
        let found = replay(&log_directory, covered, reached, syncing, &mut |_, batch| {
            overlay.apply(batch);
            replayed_count += 1;
        })?;
        // What a killed process wrote is in the kernel only; from here on it counts as durable.
        for segment in &found.live {
            let path = || directory.to_path_buf();
            syncing.sync_data(&segment.file).map_err(|source| OpenError::Unkept { path: path(), source })?;
        }
        if found.last > reached
            && let Err(error) = reached::write(directory, found.last, syncing)
        {
            // A full device, say: an older note is true too.
            tracing::debug!(path = %directory.display(), %error, "how far the log reaches was not noted");
        }
        let segment_bytes = options.segment_bytes(&space);
        let (mut spare, odd): (Vec<_>, Vec<_>) = found
            .free
            .into_iter()
            .partition(|segment| segment.file.metadata().is_ok_and(|meta| meta.len() == segment_bytes));
        for segment in odd {
            device::remove(&segment.path).map_err(io)?;
        }
        let recovered = Recovered { last: found.last, replayed_count, torn: found.torn };
        let pending = (found.last > covered.applied).then(|| Covered {
            applied: found.last,
            segment: found.segment,
            epoch: found.epoch.max(covered.epoch),
            seed: covered.seed,
        });
        if pending.is_some() {
            overlay.freeze();
        }
        let no_log = |error| match error {
            AppendError::NoSpace => OpenError::NoSpace { path: log_directory.clone() },
            AppendError::NoDescriptor(source) => io(source),
            AppendError::Failed(source) => OpenError::of_change(directory, source),
        };
        if spare.is_empty() {
            match create_segment(&log_directory, segment_bytes, syncing, &ballast, true) {
                Ok(segment) => spare.push(segment),
                Err(AppendError::NoSpace) => {}
                Err(error) => return Err(no_log(error)),
            }
        }
        let log = Log::start(LogStart {
            directory: log_directory.clone(),
            segment_bytes,
            syncing,
            ballast: ballast.clone(),
            seed: covered.seed,
            epoch: Epoch(found.epoch.0 + 1),
            segment_number: found.segment + 1,
            last: found.last,
            filled: found.live,
            spare,
            spare_count_max: (options.checkpoint_bytes(&space) / segment_bytes) as usize + 2,
        })
        .map_err(no_log)?;
        let shared = Arc::new(Shared {
            directory: directory.to_path_buf(),
            log_directory,
            segment_bytes,
            checkpoint_bytes: options.checkpoint_bytes(&space),
            syncing,
            ballast,
            gauge: Gauge::new(directory.to_path_buf()),
            log: Mutex::new(log),
            overlay: RwLock::new(overlay),
            base: Box::new(base),
            cache: RowCache::new(row_cache_bytes(options.cache_bytes), options.data_table),
            cache_bytes: AtomicUsize::new(options.cache_bytes),
            applied: AtomicU64::new(found.last.0),
            durable: AtomicU64::new(found.last.0),
            appended_bytes: AtomicU64::new(0),
            synced_bytes: AtomicU64::new(0),
            poison: OnceLock::new(),
            damage: OnceLock::new(),
            committer: Committer::new(options.sync_interval),
            checkpointer: Checkpointer::new(pending, options.upkeep_interval),
            on_durable,
        });
        shared.gauge.set_unused(shared.base.unused_bytes());
        let threads = vec![
            spawn("meta-sync", &shared, commit::run).map_err(io)?,
            spawn("meta-checkpoint", &shared, checkpoint::run).map_err(io)?,
        ];
        Ok(MetaDisk { shared, recovered, threads: Mutex::new(threads) })
    }

    /// Opens what is there, or makes an empty store first.
    ///
    /// # Errors
    /// As `create` and `open`.
    pub fn open_or_create(
        directory: &Path,
        options: &Options,
        on_durable: OnDurable,
    ) -> Result<MetaDisk, OpenError> {
        if !MetaDisk::is_there(directory) {
            MetaDisk::create(directory, options)?;
        }
        MetaDisk::open(directory, options, on_durable)
    }

    /// Whether a store was made in `directory`, and its base is still there.
    pub fn is_there(directory: &Path) -> bool {
        directory.join("index").exists()
    }

    /// Another budget for rows and pages; what is too much goes at once, pages perhaps after a checkpoint that runs.
    pub fn set_cache_bytes(&self, cache_bytes: usize) {
        self.shared.cache_bytes.store(cache_bytes, Ordering::Relaxed);
        self.shared.cache.set_bytes_max(row_cache_bytes(cache_bytes));
        self.shared.base.set_cache_bytes(page_cache_bytes(cache_bytes));
    }

    pub fn cache_use(&self) -> CacheUse {
        let rows = self.shared.cache.usage();
        let (base_read_count, base_read_bytes) = self.shared.base.reads();
        CacheUse {
            budget_bytes: self.shared.cache_bytes.load(Ordering::Relaxed) as u64,
            row_count: rows.row_count,
            row_bytes: rows.byte_count,
            hit_count: rows.hit_count,
            miss_count: rows.miss_count,
            base_read_count,
            base_read_bytes,
        }
    }

    pub fn sync_use(&self) -> SyncUse {
        let (sync_count, awaited_sync_count) = self.shared.committer.sync_counts();
        SyncUse { sync_count, awaited_sync_count }
    }

    pub fn recovered(&self) -> Recovered {
        self.recovered
    }

    /// What was found wrong with the base since it was opened. Then nothing is read or changed any more.
    pub fn damage(&self) -> Option<Damage> {
        let StoreError::CorruptIndex { what } = *self.shared.damage.get()? else { return None };
        Some(Damage { path: self.shared.directory.join("index"), what, parts: self.shared.base.damaged() })
    }

    /// Moves everything applied so far into the base, and waits for it. For maintenance and tests; the checkpointer
    /// does it by itself.
    ///
    /// # Errors
    /// If the base cannot be written.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        self.shared.checkpoint_all()
    }

    /// Counts the bytes of all rows anew. For who puts the store in order: nobody else may use it, and no checkpoint may run.
    ///
    /// # Errors
    /// If the base cannot be read or written.
    pub fn recount(&self) -> Result<(), StoreError> {
        self.checkpoint()?;
        // Nobody is to look at the base meanwhile.
        let _checkpoint = lock(&self.shared.checkpointer.pending);
        self.shared.base.recount()
    }

    /// Gives up the room that is held for the very end, for something that must be written. Whether there was any.
    pub(crate) fn release_ballast(&self) -> bool {
        self.shared.ballast.release()
    }

    fn stop_threads(&self) {
        self.shared.committer.stop();
        self.shared.checkpointer.stop();
        for thread in lock(&self.threads).drain(..) {
            if thread.join().is_err() {
                tracing::error!(path = %self.shared.directory.display(), "a thread of the store panicked");
            }
        }
    }
}

fn spawn(
    name: &str,
    shared: &Arc<Shared>,
    run: impl FnOnce(&Shared) + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let shared = shared.clone();
    std::thread::Builder::new().name(name.to_string()).spawn(move || run(&shared))
}

impl Drop for MetaDisk {
    /// Without `close` this is as if the process had been killed here: nothing is synced.
    fn drop(&mut self) {
        self.stop_threads();
    }
}

impl Shared {
    /// The device failed to persist something. Sticky; whoever waits is told.
    fn poison(&self, operation: &'static str, errno: i32) -> StoreError {
        let error = StoreError::Poisoned { operation, errno };
        if self.poison.set(error.clone()).is_ok() {
            tracing::error!(path = %self.directory.display(), %error, "fenced");
            self.committer.announce();
            (self.on_durable)();
        }
        error
    }

    fn check_sound(&self) -> Result<(), StoreError> {
        self.poison.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn check_undamaged(&self) -> Result<(), StoreError> {
        self.damage.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Damage of the base that a call has met is the end of the store.
    fn noting_damage<T>(&self, called: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error @ StoreError::CorruptIndex { .. }) = &called
            && self.damage.set(error.clone()).is_ok()
        {
            tracing::error!(path = %self.directory.display(), %error, "nothing of it is served any more");
            self.committer.announce();
            (self.on_durable)();
        }
        called
    }

    fn append_failed(&self, error: &AppendError) -> StoreError {
        match error {
            AppendError::NoSpace => StoreError::NoSpace,
            AppendError::NoDescriptor(source) => {
                self.checkpointer.note_spare_wanted();
                StoreError::Device { operation: "make a log segment", errno: device::errno(source) }
            }
            AppendError::Failed(source) => self.poison("write its log", device::errno(source)),
        }
    }

    /// A writer that outruns the checkpointer pays a little for each batch: memory, log and the time to replay it
    /// stay bounded, and nobody meets a wall.
    fn slow_down(&self, uncovered_bytes: u64) {
        let late_count = uncovered_bytes / self.checkpoint_bytes.max(self.segment_bytes);
        if let Some(excess) = late_count.checked_sub(LATE_CHECKPOINT_COUNT) {
            std::thread::sleep(Duration::from_millis((1 << excess.min(LATE_MS_MAX)).min(LATE_MS_MAX)));
        }
    }

    /// Begins a checkpoint if enough has gathered.
    fn note_appended(&self) {
        let appended_bytes = self.appended_bytes.load(Ordering::Relaxed);
        self.checkpointer.note_appended(appended_bytes, self.checkpoint_bytes);
    }

    fn overlay_bytes(&self) -> u64 {
        self.overlay.read().unwrap_or_else(PoisonError::into_inner).byte_count() as u64
    }

    /// What is left of the reserve once everything logged has found room in the base.
    fn reserve(&self, overlay_bytes: u64) -> Reserve {
        let appended_bytes = self.appended_bytes.load(Ordering::Relaxed);
        self.gauge.reserve(Demand { owed_bytes: base_bytes(overlay_bytes), appended_bytes })
    }

    fn overlay_get(&self, key: &[u8]) -> Option<Row> {
        self.overlay.read().unwrap_or_else(PoisonError::into_inner).get(key)
    }

    fn lookup(&self, key: &[u8]) -> Result<Row, StoreError> {
        self.check_undamaged()?;
        let generation = self.cache.generation();
        if let Some(row) = self.overlay_get(key) {
            return Ok(row);
        }
        if let Some(row) = self.cache.get(key) {
            return Ok(row);
        }
        let row: Row = self.noting_damage(self.base.get(key))?.map(Arc::from);
        self.cache.insert(key, row.clone(), generation);
        Ok(row)
    }

    fn scan_part(&self, from: &[u8], to: &[u8], limit: usize) -> Result<ScanPart, StoreError> {
        self.check_undamaged()?;
        // The overlay first: what leaves it meanwhile is in the base by then.
        let overlay = self.overlay.read().unwrap_or_else(PoisonError::into_inner).range(from, to, limit);
        Ok(scan::merge(overlay, self.noting_damage(self.base.range(from, to, limit))?, limit))
    }
}

impl MetaStore for MetaDisk {
    fn apply(&self, t: Transno, batch: &Batch) -> Result<(), StoreError> {
        let shared = &*self.shared;
        shared.check_sound()?;
        shared.check_undamaged()?;
        batch.check()?;
        let uncovered_bytes = {
            let mut log = lock(&shared.log);
            assert!(t > log.last(), "transnos rise: {t} after {}", log.last());
            let durable = Transno(shared.durable.load(Ordering::Acquire));
            if let Err(error) = log.append(t, batch.encoded(), durable) {
                // Who is told that the store has failed looks at it.
                drop(log);
                return Err(shared.append_failed(&error));
            }
            shared.overlay.write().unwrap_or_else(PoisonError::into_inner).apply(batch);
            shared.appended_bytes.store(log.appended_bytes(), Ordering::Relaxed);
            shared.applied.store(t.0, Ordering::Release);
            if log.is_spare_wanted() {
                shared.checkpointer.note_spare_wanted();
            }
            log.uncovered_bytes()
        };
        shared.committer.note_applied();
        shared.note_appended();
        shared.slow_down(uncovered_bytes);
        Ok(())
    }

    fn applied(&self) -> Transno {
        Transno(self.shared.applied.load(Ordering::Acquire))
    }

    fn durable(&self) -> Transno {
        Transno(self.shared.durable.load(Ordering::Acquire))
    }

    fn kick(&self) {
        self.shared.committer.kick(Cause::Awaited);
    }

    fn kick_unawaited(&self) {
        self.shared.committer.kick(Cause::Routine);
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(key) = FullKey::new(table, key) else { return Ok(None) };
        Ok(self.shared.lookup(key.bytes())?.map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to_exclusive: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let part = |from: &[u8], to: &[u8], limit| self.shared.scan_part(from, to, limit);
        scan::in_parts(&part, table, from..to_exclusive, limit, visit)
    }

    fn pressure(&self) -> Pressure {
        let shared = &*self.shared;
        let synced_bytes = shared.synced_bytes.load(Ordering::Relaxed);
        let overlay_bytes = shared.overlay_bytes();
        let reserve = shared.reserve(overlay_bytes);
        // Measured with the reserve.
        let is_log_short = shared.gauge.own_bytes() < LOG_ROOM_SEGMENTS * shared.segment_bytes;
        let is_log_ending = is_log_short && lock(&shared.log).is_ending();
        Pressure {
            unsynced_bytes: shared.appended_bytes.load(Ordering::Relaxed).saturating_sub(synced_bytes),
            overlay_bytes,
            reserve,
            is_log_short,
            is_log_ending,
            poisoned: shared.poison.get().is_some_and(StoreError::is_fence) || shared.damage.get().is_some(),
        }
    }

    fn space(&self) -> Space {
        space_after_reserve(&self.shared.directory)
    }

    fn close(&self) {
        self.stop_threads();
        self.shared.close();
    }
}

#[cfg(test)]
mod tests;
