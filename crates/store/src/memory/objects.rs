//! Object data in memory, with a device image and the mutations that it does not have yet.

use super::SyncMode;
use super::blocks::{BLOCK_BYTES, Blocks};
use super::device::Device;
use crate::{ObjectStat, ObjectStore, OnDurable, Room, Space, StoreError, Whence};
use base::limits::OBJECT_BYTES_MAX;
use base::{Advice, Extent, ObjectId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// What the device has of one unsynced mutation after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Nothing,
    Whole,
    /// The first bytes of a write; for other mutations nothing.
    Torn {
        byte_count: usize,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Mutation {
    Write {
        offset_bytes: u64,
        data: Bytes,
    },
    Truncate {
        size_bytes: u64,
    },
    Punch {
        extent: Extent,
    },
    Zero {
        extent: Extent,
        keep_size: bool,
    },
    Allocate {
        extent: Extent,
        keep_size: bool,
    },
    Destroy,
    /// It has another name.
    Adopt {
        to: ObjectId,
    },
}

/// What is held back; nobody is told that it is there, and a device that is `low` still has it.
const RESERVE_BYTES: u64 = 64 << 20;

type Objects = BTreeMap<ObjectId, Blocks>;

struct State {
    objects: Objects,
    device_objects: Objects,
    unsynced: VecDeque<(u64, ObjectId, Mutation)>,
    /// Up to here they are those of a process that has died: a sync covers them only where it covers later ones of their object.
    left_to: u64,
    /// Only processes have died here, and the machine has not.
    is_all_left: bool,
    written: u64,
    durable: u64,
    allocated_bytes: u64,
    capacity_bytes: u64,
    rotten: BTreeSet<(ObjectId, u64)>,
    emptied: BTreeSet<ObjectId>,
    unreadable: BTreeMap<ObjectId, i32>,
    full: bool,
    low: bool,
    device: Device,
    kicked: bool,
    stat_count: u64,
}

impl Default for State {
    fn default() -> State {
        State {
            objects: Objects::new(),
            device_objects: Objects::new(),
            unsynced: VecDeque::new(),
            left_to: 0,
            is_all_left: false,
            written: 0,
            durable: 0,
            allocated_bytes: 0,
            capacity_bytes: (1 << 40) + RESERVE_BYTES,
            rotten: BTreeSet::new(),
            emptied: BTreeSet::new(),
            unreadable: BTreeMap::new(),
            full: false,
            low: false,
            device: Device::default(),
            kicked: false,
            stat_count: 0,
        }
    }
}

/// The object store model.
#[derive(Default)]
pub struct MemoryObjects {
    state: Mutex<State>,
    mode: SyncMode,
    on_durable: Option<OnDurable>,
    /// One of so many reads has to wait for a device; none: 0.
    cold_one_in: AtomicU64,
    read_count: AtomicU64,
}

impl MemoryObjects {
    /// From now on one of so many reads has to be fetched first.
    pub fn set_cold(&self, one_in: u64) {
        self.cold_one_in.store(one_in, Ordering::Relaxed);
    }

    /// Empty, synced only by `sync`.
    pub fn new() -> MemoryObjects {
        MemoryObjects::default()
    }

    pub fn with(mode: SyncMode, on_durable: Option<OnDurable>) -> MemoryObjects {
        MemoryObjects { mode, on_durable, ..MemoryObjects::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// How often somebody has asked for an object's size since this was asked last.
    pub fn take_stat_count(&self) -> u64 {
        std::mem::take(&mut self.state().stat_count)
    }

    /// Makes everything written durable. With `set_failing` it poisons the store instead.
    pub fn sync(&self) {
        self.state().sync();
        if let Some(notify) = &self.on_durable {
            notify();
        }
    }

    /// Somebody cuts all of an object's file away. Only questions for its size tell.
    pub fn empty(&self, id: &ObjectId) {
        self.state().emptied.insert(*id);
    }

    /// From now on the device answers with this error to who asks for the object, or removes it; or with none.
    pub fn set_unreadable(&self, id: &ObjectId, errno: Option<i32>) {
        let mut state = self.state();
        match errno {
            Some(errno) => drop(state.unreadable.insert(*id, errno)),
            None => drop(state.unreadable.remove(id)),
        }
    }

    /// Power failure: `keep` says for each mutation that no sync covered, in order, what the device has of it.
    pub fn crash(&self, mut keep: impl FnMut(u64) -> Kept) {
        let mut guard = self.state();
        let state = &mut *guard;
        for (number, id, mutation) in std::mem::take(&mut state.unsynced) {
            match (keep(number), mutation) {
                (Kept::Whole, mutation) => mutate(&mut state.device_objects, id, &mutation),
                (Kept::Torn { byte_count }, Mutation::Write { offset_bytes, data }) => {
                    let data = data.slice(..byte_count.min(data.len()));
                    mutate(&mut state.device_objects, id, &Mutation::Write { offset_bytes, data });
                }
                (Kept::Torn { .. } | Kept::Nothing, _) => {}
            }
        }
        state.objects = state.device_objects.clone();
        state.allocated_bytes = state.objects.values().map(Blocks::allocated_bytes).sum();
        state.durable = state.written;
        state.is_all_left = false;
        state.kicked = false;
        state.device.reopen();
    }

    /// The process dies: what it wrote is there, and the kernel has it.
    pub fn kill(&self) {
        let mut state = self.state();
        (state.left_to, state.is_all_left) = (state.written, true);
        state.kicked = false;
    }

    /// How many mutations of this process no sync has covered.
    pub fn unsynced_count(&self) -> usize {
        let state = self.state();
        state.unsynced.iter().filter(|(number, ..)| *number > state.left_to).count()
    }

    /// How many mutations of processes that have died no sync has covered.
    pub fn left_count(&self) -> usize {
        let state = self.state();
        state.unsynced.iter().filter(|(number, ..)| *number <= state.left_to).count()
    }

    /// Whether somebody kicked since the last call.
    pub fn take_kick(&self) -> bool {
        std::mem::take(&mut self.state().kicked)
    }

    /// A full device: nothing more can be allocated.
    pub fn set_full(&self, is_full: bool) {
        self.state().full = is_full;
    }

    /// A device that is full but for its reserve.
    pub fn set_low(&self, is_low: bool) {
        self.state().low = is_low;
    }

    /// Bytes of the device, its reserve included.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.state().capacity_bytes = capacity_bytes;
    }

    /// A failing device: the next sync poisons the store.
    pub fn set_failing(&self, is_failing: bool) {
        self.state().device.is_failing = is_failing;
    }

    /// Flips a bit in the block around this offset; reading the block is an error until it is wholly written again.
    /// False if there is no such byte.
    pub fn rot(&self, id: &ObjectId, offset_bytes: u64) -> bool {
        let mut state = self.state();
        let exists = state.objects.get(id).is_some_and(|object| offset_bytes < object.size_bytes);
        if exists {
            state.rotten.insert((*id, offset_bytes / BLOCK_BYTES));
        }
        exists
    }
}

fn mutate(objects: &mut Objects, id: ObjectId, mutation: &Mutation) {
    match mutation {
        Mutation::Destroy => {
            objects.remove(&id);
        }
        Mutation::Adopt { to } => {
            if let Some(object) = objects.remove(&id) {
                objects.insert(*to, object);
            }
        }
        Mutation::Punch { extent } => {
            if let Some(object) = objects.get_mut(&id) {
                object.apply(&Mutation::Punch { extent: *extent });
            }
        }
        mutation => objects.entry(id).or_default().apply(mutation),
    }
}

impl State {
    fn check_readable(&self, id: &ObjectId, operation: &'static str) -> Result<(), StoreError> {
        self.unreadable.get(id).map_or(Ok(()), |errno| Err(StoreError::Device { operation, errno: *errno }))
    }

    fn sync(&mut self) {
        if self.device.sync(!self.unsynced.is_empty()).is_err() {
            return;
        }
        let changed: BTreeSet<ObjectId> = self
            .unsynced
            .iter()
            .filter(|(number, ..)| *number > self.left_to)
            .map(|(_, id, _)| *id)
            .collect();
        self.sync_where(|id| changed.contains(id));
        self.durable = self.written;
    }

    fn sync_left(&mut self) -> Result<bool, StoreError> {
        self.device.sync(!self.unsynced.is_empty())?;
        self.sync_where(|_| true);
        self.durable = self.written;
        Ok(self.is_all_left)
    }

    fn sync_where(&mut self, is_covered: impl Fn(&ObjectId) -> bool) {
        for (number, id, mutation) in std::mem::take(&mut self.unsynced) {
            if is_covered(&id) {
                mutate(&mut self.device_objects, id, &mutation);
            } else {
                self.unsynced.push_back((number, id, mutation));
            }
        }
    }

    fn check_space(&self, id: &ObjectId, extent: Extent, room: Room) -> Result<(), StoreError> {
        let missing = match self.objects.get(id) {
            Some(object) => object.missing_bytes(extent),
            None => Blocks::default().missing_bytes(extent),
        };
        let room_bytes = match room {
            Room::BesideReserve => self.avail_bytes(),
            Room::All => self.free_bytes(),
        };
        if missing > room_bytes { Err(StoreError::NoSpace) } else { Ok(()) }
    }

    fn adopt(&mut self, id: &ObjectId, to: ObjectId) {
        let rotten: Vec<u64> =
            self.rotten.iter().filter(|(of, _)| of == id).map(|(_, block)| *block).collect();
        for block in rotten {
            self.rotten.remove(&(*id, block));
            self.rotten.insert((to, block));
        }
        if self.emptied.remove(id) {
            self.emptied.insert(to);
        }
        mutate(&mut self.objects, *id, &Mutation::Adopt { to });
        self.written += 1;
        self.unsynced.push_back((self.written, *id, Mutation::Adopt { to }));
    }

    fn mutate(&mut self, id: &ObjectId, mutation: Mutation) {
        let before = self.objects.get(id).map_or(0, Blocks::allocated_bytes);
        mutate(&mut self.objects, *id, &mutation);
        let after = self.objects.get(id).map_or(0, Blocks::allocated_bytes);
        self.allocated_bytes = self.allocated_bytes - before + after;
        self.written += 1;
        self.unsynced.push_back((self.written, *id, mutation));
    }

    /// Blocks that the extent covers wholly are sound again.
    fn heal(&mut self, id: &ObjectId, extent: Extent) {
        self.rotten.retain(|(rotten_id, block)| {
            rotten_id != id || !extent.contains(Extent::at(block * BLOCK_BYTES, BLOCK_BYTES))
        });
    }

    fn free_bytes(&self) -> u64 {
        if self.full { 0 } else { self.capacity_bytes.saturating_sub(self.allocated_bytes) }
    }

    /// Beside the reserve.
    fn avail_bytes(&self) -> u64 {
        if self.low { 0 } else { self.free_bytes().saturating_sub(RESERVE_BYTES) }
    }
}

fn check_size(end_bytes: u64) -> Result<(), StoreError> {
    if end_bytes > OBJECT_BYTES_MAX { Err(StoreError::TooBig { offset_bytes: end_bytes }) } else { Ok(()) }
}

impl ObjectStore for MemoryObjects {
    fn write(&self, id: &ObjectId, offset_bytes: u64, data: &[u8]) -> Result<(), StoreError> {
        let mut state = self.state();
        state.device.check_sound()?;
        let extent = Extent::at(offset_bytes, data.len() as u64);
        check_size(extent.end)?;
        state.check_space(id, extent, Room::All)?;
        state.heal(id, extent);
        state.mutate(id, Mutation::Write { offset_bytes, data: Bytes::copy_from_slice(data) });
        Ok(())
    }

    fn read(&self, id: &ObjectId, offset_bytes: u64, byte_count: usize) -> Result<Bytes, StoreError> {
        let state = self.state();
        let object = state.objects.get(id).ok_or(StoreError::NoObject { id: *id })?;
        let extent = Extent::at(offset_bytes, byte_count as u64);
        let blocks = (*id, extent.start / BLOCK_BYTES)..(*id, extent.end.div_ceil(BLOCK_BYTES));
        if let Some((_, block)) = state.rotten.range(blocks).next() {
            return Err(StoreError::CorruptObject { id: *id, offset_bytes: block * BLOCK_BYTES });
        }
        Ok(object.read(offset_bytes, byte_count).into())
    }

    fn read_at_once(
        &self,
        id: &ObjectId,
        offset_bytes: u64,
        byte_count: usize,
        _is_ahead: bool,
    ) -> Result<Option<Bytes>, StoreError> {
        let read = self.read_count.fetch_add(1, Ordering::Relaxed);
        match self.cold_one_in.load(Ordering::Relaxed) {
            one_in if one_in > 0 && read.is_multiple_of(one_in) => Ok(None),
            _ => self.read(id, offset_bytes, byte_count).map(Some),
        }
    }

    fn truncate(&self, id: &ObjectId, size_bytes: u64) -> Result<(), StoreError> {
        let mut state = self.state();
        state.device.check_sound()?;
        check_size(size_bytes)?;
        state.heal(id, Extent::new(size_bytes, Extent::EOF));
        state.mutate(id, Mutation::Truncate { size_bytes });
        Ok(())
    }

    fn punch(&self, id: &ObjectId, extent: Extent) -> Result<(), StoreError> {
        let mut state = self.state();
        state.device.check_sound()?;
        if state.objects.contains_key(id) && !extent.is_empty() {
            state.heal(id, extent);
            state.mutate(id, Mutation::Punch { extent });
        }
        Ok(())
    }

    fn zero(&self, id: &ObjectId, extent: Extent, keep_size: bool, room: Room) -> Result<(), StoreError> {
        let mut state = self.state();
        state.device.check_sound()?;
        let size_bytes = state.objects.get(id).map_or(0, |object| object.size_bytes);
        let end = if extent.end == Extent::EOF { size_bytes } else { extent.end };
        let extent = Extent::new(extent.start, end);
        check_size(extent.end)?;
        if extent.is_empty() {
            return Ok(());
        }
        state.check_space(id, extent, room)?;
        state.heal(id, extent);
        state.mutate(id, Mutation::Zero { extent, keep_size });
        Ok(())
    }

    fn allocate(&self, id: &ObjectId, extent: Extent, keep_size: bool, room: Room) -> Result<(), StoreError> {
        let mut state = self.state();
        state.device.check_sound()?;
        check_size(extent.end)?;
        state.check_space(id, extent, room)?;
        state.mutate(id, Mutation::Allocate { extent, keep_size });
        Ok(())
    }

    fn is_allocated(&self, id: &ObjectId, extent: Extent) -> Result<bool, StoreError> {
        let state = self.state();
        let object = state.objects.get(id).ok_or(StoreError::NoObject { id: *id })?;
        // What a write of the extent would have to read.
        let is_in_part = |block: u64| {
            let block = Extent::at(block * BLOCK_BYTES, BLOCK_BYTES);
            block.overlaps(extent) && !extent.contains(block)
        };
        let mut of_object = state.rotten.range((*id, 0)..=(*id, u64::MAX));
        if let Some((_, block)) = of_object.find(|(_, block)| is_in_part(*block)) {
            return Err(StoreError::CorruptObject { id: *id, offset_bytes: block * BLOCK_BYTES });
        }
        Ok(object.missing_bytes(extent) == 0)
    }

    fn seek(&self, id: &ObjectId, offset_bytes: u64, whence: Whence) -> Result<Option<u64>, StoreError> {
        let state = self.state();
        let object = state.objects.get(id).ok_or(StoreError::NoObject { id: *id })?;
        Ok(match whence {
            Whence::Data => object.seek_data(offset_bytes),
            Whence::Hole => object.seek_hole(offset_bytes),
        })
    }

    fn advise(&self, id: &ObjectId, _: Extent, _: Advice) -> Result<(), StoreError> {
        self.state().objects.get(id).map(drop).ok_or(StoreError::NoObject { id: *id })
    }

    fn stat(&self, id: &ObjectId) -> Result<Option<ObjectStat>, StoreError> {
        let mut state = self.state();
        state.stat_count += 1;
        state.check_readable(id, "stat an object")?;
        if state.emptied.contains(id) {
            return Ok(Some(ObjectStat::default()));
        }
        Ok(state.objects.get(id).map(|object| ObjectStat {
            size_bytes: object.size_bytes,
            allocated_bytes: object.allocated_bytes(),
            has_begun: true,
        }))
    }

    fn destroy(&self, id: &ObjectId) -> Result<bool, StoreError> {
        let mut state = self.state();
        state.device.check_sound()?;
        state.check_readable(id, "remove an object")?;
        let existed = state.objects.contains_key(id);
        if existed {
            state.heal(id, Extent::WHOLE);
            state.emptied.remove(id);
            state.mutate(id, Mutation::Destroy);
        }
        Ok(existed)
    }

    fn adopt(&self, id: &ObjectId, to: &ObjectId) -> Result<bool, StoreError> {
        let mut state = self.state();
        state.device.check_sound()?;
        let can_be = state.objects.contains_key(id) && !state.objects.contains_key(to);
        if can_be {
            state.adopt(id, *to);
        }
        Ok(can_be)
    }

    fn kick(&self) {
        match self.mode {
            SyncMode::Manual => self.state().kicked = true,
            SyncMode::OnKick => self.sync(),
        }
    }

    fn sync_left(&self) -> Result<bool, StoreError> {
        self.state().sync_left()
    }

    fn written(&self) -> u64 {
        self.state().written
    }

    fn durable(&self) -> u64 {
        self.state().durable
    }

    fn list(&self, after: Option<&ObjectId>, limit: usize) -> Result<Vec<ObjectId>, StoreError> {
        let state = self.state();
        let from = after.map_or(Bound::Unbounded, |id| Bound::Excluded(*id));
        Ok(state.objects.range((from, Bound::Unbounded)).take(limit).map(|(id, _)| *id).collect())
    }

    fn space(&self) -> Space {
        let state = self.state();
        let [total, free] =
            [state.capacity_bytes, state.free_bytes()].map(|bytes| bytes.saturating_sub(RESERVE_BYTES));
        Space {
            total_bytes: total,
            free_bytes: free,
            avail_bytes: state.avail_bytes(),
            reserve_bytes: RESERVE_BYTES,
            total_inode_count: total / BLOCK_BYTES,
            free_inode_count: free / BLOCK_BYTES,
        }
    }

    fn is_poisoned(&self) -> bool {
        self.state().device.is_poisoned()
    }

    fn close(&self) {
        self.sync();
    }
}
