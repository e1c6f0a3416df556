//! Ordered rows in memory, with a device image and the batches that it does not have yet.

use super::SyncMode;
use super::device::Device;
use crate::{Batch, MetaStore, OnDurable, Pressure, Reserve, Space, StoreError, Table};
use base::Transno;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard};

/// By table and key: a key is looked for without a copy of it.
type Rows = BTreeMap<Table, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Device of the size that `space` reports unless told otherwise.
const TOTAL_BYTES: u64 = 1 << 40;

#[derive(Default)]
struct State {
    rows: Rows,
    device_rows: Rows,
    unsynced: VecDeque<(Transno, Batch)>,
    unsynced_bytes: u64,
    applied: Transno,
    durable: Transno,
    /// What reading a row says instead of its value.
    unreadable: BTreeMap<(Table, Vec<u8>), StoreError>,
    reserve: Reserve,
    is_log_short: bool,
    is_log_ending: bool,
    /// Batches to be refused.
    refused_count: u32,
    device: Device,
    kicked: bool,
    /// By somebody who waits.
    is_awaited: bool,
}

/// The metadata store model. Keep one `Arc` of it for the faults, hand clones to the server.
#[derive(Default)]
pub struct MemoryMeta {
    state: Mutex<State>,
    mode: SyncMode,
    on_durable: Option<OnDurable>,
}

impl MemoryMeta {
    /// Empty, synced only by `sync`.
    pub fn new() -> MemoryMeta {
        MemoryMeta::default()
    }

    pub fn with(mode: SyncMode, on_durable: Option<OnDurable>) -> MemoryMeta {
        MemoryMeta { mode, on_durable, ..MemoryMeta::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Makes everything applied durable. With `set_failing` it poisons the store instead.
    pub fn sync(&self) {
        let applied = self.state().applied;
        self.sync_to(applied);
    }

    /// Makes everything up to `t` durable, as a slow device would have it half-way.
    pub fn sync_to(&self, t: Transno) {
        self.state().sync_to(t);
        if let Some(notify) = &self.on_durable {
            notify();
        }
    }

    /// Power failure: of the batches that no sync covered, the first `kept_count` are still there. A batch whose
    /// record was torn is one that is not kept; a log never returns half of it.
    pub fn crash(&self, kept_count: usize) {
        let mut guard = self.state();
        let state = &mut *guard;
        state.unsynced.truncate(kept_count);
        while let Some((t, batch)) = state.unsynced.pop_front() {
            write_rows(&mut state.device_rows, &batch);
            state.durable = t;
        }
        state.unsynced_bytes = 0;
        state.applied = state.durable;
        state.rows = state.device_rows.clone();
        state.kicked = false;
        state.is_awaited = false;
        state.device.reopen();
    }

    /// How many applied batches no sync has covered.
    pub fn unsynced_count(&self) -> usize {
        self.state().unsynced.len()
    }

    /// Whether somebody kicked since the last call.
    pub fn take_kick(&self) -> bool {
        std::mem::take(&mut self.state().kicked)
    }

    /// Whether somebody who waits kicked since the last call.
    pub fn take_awaited_kick(&self) -> bool {
        std::mem::take(&mut self.state().is_awaited)
    }

    /// A full device: the reserve is used up, consuming operations are to be refused.
    pub fn set_full(&self, is_full: bool) {
        self.state().reserve = if is_full { Reserve::Exhausted } else { Reserve::Ample };
    }

    pub fn set_reserve(&self, reserve: Reserve) {
        self.state().reserve = reserve;
    }

    /// The base has room, and the device has none for the log.
    pub fn set_log_short(&self, is_log_short: bool) {
        self.state().is_log_short = is_log_short;
    }

    /// And the log no segment to go on in.
    pub fn set_log_ending(&self, is_log_ending: bool) {
        self.state().is_log_ending = is_log_ending;
    }

    /// The log has no room for the next so many batches.
    pub fn refuse(&self, batch_count: u32) {
        self.state().refused_count = batch_count;
    }

    /// A failing device: the next sync poisons the store.
    pub fn set_failing(&self, is_failing: bool) {
        self.state().device.is_failing = is_failing;
    }

    /// Flips a bit of a row on the device; reading it is an error until it is written again. False if there is no
    /// such row.
    pub fn rot(&self, table: Table, key: &[u8]) -> bool {
        self.set_unreadable(table, key, StoreError::CorruptRow { table, key: key.to_vec() })
    }

    /// Reading a row fails like this until it is written again. False if there is no such row.
    pub fn set_unreadable(&self, table: Table, key: &[u8], error: StoreError) -> bool {
        let mut state = self.state();
        let exists = state.rows.get(&table).is_some_and(|rows| rows.contains_key(key));
        if exists {
            state.unreadable.insert((table, key.to_vec()), error);
        }
        exists
    }

    /// Whatever could not be read can be, as the device has it.
    pub fn mend_reads(&self) {
        self.state().unreadable.clear();
    }

    /// All rows, for checkers.
    pub fn rows(&self) -> BTreeMap<(Table, Vec<u8>), Vec<u8>> {
        let state = self.state();
        let of_table = |(table, rows): (&Table, &BTreeMap<Vec<u8>, Vec<u8>>)| {
            let table = *table;
            let owned = rows.iter().map(move |(key, value)| ((table, key.clone()), value.clone()));
            owned.collect::<Vec<_>>()
        };
        state.rows.iter().flat_map(of_table).collect()
    }
}

impl State {
    fn sync_to(&mut self, t: Transno) {
        if self.device.sync(!self.unsynced.is_empty()).is_err() {
            return;
        }
        while self.unsynced.front().is_some_and(|(first, _)| *first <= t) {
            let Some((done, batch)) = self.unsynced.pop_front() else { break };
            self.unsynced_bytes -= batch.encoded().len() as u64;
            write_rows(&mut self.device_rows, &batch);
            self.durable = done;
        }
    }

    fn check_readable(&self, table: Table, key: &[u8]) -> Result<(), StoreError> {
        if self.unreadable.is_empty() {
            return Ok(());
        }
        self.unreadable.get(&(table, key.to_vec())).map_or(Ok(()), |error| Err(error.clone()))
    }
}

fn write_rows(rows: &mut Rows, batch: &Batch) {
    for change in batch.changes() {
        let rows = rows.entry(change.table).or_default();
        match change.value {
            Some(value) => rows.insert(change.key.to_vec(), value.to_vec()),
            None => rows.remove(change.key),
        };
    }
}

impl MetaStore for MemoryMeta {
    fn apply(&self, t: Transno, batch: &Batch) -> Result<(), StoreError> {
        let mut state = self.state();
        state.device.check_sound()?;
        batch.check()?;
        assert!(t > state.applied, "transnos rise: {t} after {}", state.applied);
        if let Some(left) = state.refused_count.checked_sub(1) {
            state.refused_count = left;
            return Err(StoreError::NoSpace);
        }
        if !state.unreadable.is_empty() {
            for change in batch.changes() {
                state.unreadable.remove(&(change.table, change.key.to_vec()));
            }
        }
        write_rows(&mut state.rows, batch);
        state.unsynced_bytes += batch.encoded().len() as u64;
        state.unsynced.push_back((t, batch.clone()));
        state.applied = t;
        Ok(())
    }

    fn applied(&self) -> Transno {
        self.state().applied
    }

    fn durable(&self) -> Transno {
        self.state().durable
    }

    fn kick(&self) {
        self.state().is_awaited = true;
        self.kick_unawaited();
    }

    fn kick_unawaited(&self) {
        match self.mode {
            SyncMode::Manual => self.state().kicked = true,
            SyncMode::OnKick => self.sync(),
        }
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let state = self.state();
        state.check_readable(table, key)?;
        Ok(state.rows.get(&table).and_then(|rows| rows.get(key)).cloned())
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to_exclusive: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        if from >= to_exclusive {
            return Ok(());
        }
        let chunk: Vec<_> = {
            let state = self.state();
            let range = (Bound::Included(from), Bound::Excluded(to_exclusive));
            let rows =
                state.rows.get(&table).into_iter().flat_map(|rows| rows.range::<[u8], _>(range)).take(limit);
            rows.map(|(key, value)| state.check_readable(table, key).map(|()| (key.clone(), value.clone())))
                .collect()
        };
        for row in chunk {
            let (key, value) = row?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn pressure(&self) -> Pressure {
        let state = self.state();
        Pressure {
            unsynced_bytes: state.unsynced_bytes,
            overlay_bytes: 0,
            reserve: state.reserve,
            is_log_short: state.is_log_short,
            is_log_ending: state.is_log_ending,
            poisoned: state.device.is_poisoned(),
        }
    }

    fn space(&self) -> Space {
        let free = if self.state().reserve == Reserve::Ample { TOTAL_BYTES / 2 } else { 0 };
        Space {
            total_bytes: TOTAL_BYTES,
            free_bytes: free,
            avail_bytes: free,
            reserve_bytes: TOTAL_BYTES / 32,
            total_inode_count: TOTAL_BYTES / 4096,
            free_inode_count: free / 4096,
        }
    }

    fn close(&self) {
        self.sync();
    }
}
