//! What was changed and not yet synced, and the thread that syncs it.
//!
//! A round syncs each changed object; if they are many, the whole file system once, which costs less than a journal
//! commit for each. Objects that have rested for a while after their last sync are marked clean.
//!
//! What a crash has left of a large object is believed, until this thread has read it and given it checksums: piece by piece, when
//! there is nothing else to do.
//!
//! What a writer in sequence has left behind begins to be written at once, so that the device works while more data
//! come, and the sync that somebody waits for finds little left. A round begins early when many bytes wait for it: they
//! take memory of the clients, who keep them until then.

use super::file::ReadOn;
use super::handles::Handle;
use super::layout::left_behind;
use super::{Shared, directory_number};
use crate::device::{self, Mark, Syncing};
use base::{Extent, ObjectId};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store::StoreError;

/// More objects than this in a round are synced together.
const SINGLE_SYNC_COUNT_MAX: usize = 32;
/// Written and not synced, so many bytes begin a round: an eighth of what a client keeps for replay
/// (`limits::REPLAY_BYTES_MAX`), so that a steady stream never waits for its commits; some 20 ms of a fast device.
const UNSYNCED_BYTES_MAX: u64 = 32 << 20;
/// Parts that wait for the thread, which is in a round. What is more is left to that round and the next.
const LEFT_BEHIND_COUNT_MAX: usize = 64;

/// A piece of a MiB of what is believed is read so often: 100 MiB/s, a part of what devices do...
const READ_ON_INTERVAL: Duration = Duration::from_millis(10);
/// ...and so often although rounds follow each other without a pause.
const READ_ON_INTERVAL_MAX: Duration = Duration::from_millis(100);
/// How long all of them rest when the device had no room for the checksums of one, which may last.
const READ_ON_PAUSE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct State {
    written: u64,
    dirty: HashMap<ObjectId, u64>,
    dirty_directories: BTreeSet<u8>,
    /// Objects that have got another name since the last round began: it may look for them under the old one.
    adopted: HashMap<ObjectId, ObjectId>,
    /// Synced objects on their way to clean, with the change that was last then.
    resting: VecDeque<(ObjectId, Instant)>,
    /// Parts of files that are to be written out, unless a round comes first.
    left_behind: VecDeque<(ObjectId, Extent)>,
    /// Objects that are to be read on. Each is larger than 64 MiB, or had no room for its checksums, so there are not many.
    believed: VecDeque<ObjectId>,
    /// When a piece of one was read last.
    read_on: Option<Instant>,
    /// The next one is not read before so much later.
    read_on_pause: Duration,
    /// Bytes written since the last round began.
    unsynced_bytes: u64,
    oldest: Option<Instant>,
    kicked: bool,
    stopped: bool,
}

pub(super) struct Changes {
    interval: Duration,
    settle_after: Duration,
    state: Mutex<State>,
    wake: Condvar,
    written: AtomicU64,
}

/// What the thread is to do next.
enum Work {
    WriteOut(ObjectId, Extent),
    Round(Round),
    ReadOn(ObjectId),
}

impl Work {
    fn read_on(state: &mut State, id: ObjectId) -> Work {
        state.read_on = Some(Instant::now());
        state.read_on_pause = Duration::ZERO;
        Work::ReadOn(id)
    }
}

/// What one round takes over.
struct Round {
    written: u64,
    objects: Vec<ObjectId>,
    directories: BTreeSet<u8>,
    rested: Vec<ObjectId>,
}

impl Changes {
    pub fn new(interval: Duration, settle_after: Duration) -> Changes {
        Changes {
            interval,
            settle_after,
            state: Mutex::default(),
            wake: Condvar::new(),
            written: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// An object was changed; `new_in` is the directory that has got its name.
    pub fn note(&self, id: &ObjectId, new_in: Option<u8>) {
        let mut state = self.state();
        state.dirty_directories.extend(new_in);
        self.number(&mut state);
        let written = state.written;
        state.dirty.insert(*id, written);
    }

    /// The change was a write of this extent.
    pub fn note_bytes(&self, id: &ObjectId, extent: Extent) {
        let mut state = self.state();
        state.unsynced_bytes += extent.byte_count();
        if state.unsynced_bytes >= UNSYNCED_BYTES_MAX && !state.kicked {
            state.kicked = true;
            self.wake.notify_one();
        }
        let room = LEFT_BEHIND_COUNT_MAX.saturating_sub(state.left_behind.len());
        if let Some(part) = left_behind(extent).filter(|_| room > 0) {
            state.left_behind.push_back((*id, part));
            self.wake.notify_one();
        }
    }

    /// An object was removed.
    pub fn note_destroyed(&self, id: &ObjectId, directory: u8) {
        let mut state = self.state();
        state.dirty.remove(id);
        state.dirty_directories.insert(directory);
        self.number(&mut state);
    }

    /// An object is about to have another name.
    pub fn note_adopting(&self, id: &ObjectId, to: &ObjectId) {
        let mut state = self.state();
        state.adopted.remove(to);
        state.adopted.insert(*id, *to);
    }

    /// It has it. It is synced under that, and settled, whatever was noted of it under the old one.
    pub fn note_adopted(&self, id: &ObjectId, to: &ObjectId) {
        let mut state = self.state();
        state.dirty.remove(id);
        state.dirty_directories.extend([directory_number(id), directory_number(to)]);
        self.number(&mut state);
        let written = state.written;
        state.dirty.insert(*to, written);
    }

    /// The name that an object has now, for who knows one that it had when the last round began.
    fn name_of(&self, id: &ObjectId) -> ObjectId {
        let state = self.state();
        let mut name = *id;
        // Each was adopted once since then: no FID is used twice.
        for _ in 0..state.adopted.len() {
            match state.adopted.get(&name) {
                Some(to) => name = *to,
                None => break,
            }
        }
        name
    }

    /// An object is as a crash left it: to be synced and settled, though nobody changed it.
    pub fn note_unsettled(&self, id: &ObjectId) {
        let mut state = self.state();
        let written = state.written;
        state.dirty.insert(*id, written);
        self.wake_for(&mut state);
    }

    /// A part of an object is believed, as a crash has left it.
    pub fn note_believed(&self, id: &ObjectId) {
        let mut state = self.state();
        if !state.believed.contains(id) {
            state.believed.push_back(*id);
            self.wake.notify_one();
        }
    }

    /// There is no room for its checksums now.
    fn put_off_believed(&self, id: &ObjectId) {
        let mut state = self.state();
        state.read_on_pause = READ_ON_PAUSE;
        // Another one may need none, or its own.
        if let Some(at) = state.believed.iter().position(|believed| believed == id) {
            state.believed.remove(at);
            state.believed.push_back(*id);
        }
    }

    /// It is not, or cannot be read.
    fn forget_believed(&self, id: &ObjectId) {
        self.state().believed.retain(|believed| believed != id);
    }

    fn is_dirty(&self, id: &ObjectId) -> bool {
        self.state().dirty.contains_key(id)
    }

    fn number(&self, state: &mut State) {
        state.written += 1;
        self.written.store(state.written, Ordering::Release);
        self.wake_for(state);
    }

    fn wake_for(&self, state: &mut State) {
        if state.oldest.is_none() {
            state.oldest = Some(Instant::now());
            self.wake.notify_one();
        }
    }

    pub fn kick(&self) {
        let mut state = self.state();
        if !state.kicked {
            state.kicked = true;
            self.wake.notify_one();
        }
    }

    pub fn stop(&self) {
        self.state().stopped = true;
        self.wake.notify_one();
    }

    /// Waits for work; `None` to stop.
    fn wait_for_work(&self) -> Option<Work> {
        let mut state = self.state();
        loop {
            if state.stopped {
                return None;
            }
            let sync_in = state.oldest.map(|since| self.interval.saturating_sub(since.elapsed()));
            let settle_in =
                state.resting.front().map(|(_, since)| self.settle_after.saturating_sub(since.elapsed()));
            let since = state.read_on.map_or(READ_ON_INTERVAL_MAX, |since| since.elapsed());
            let believed = state.believed.front().copied();
            let is_round_due =
                state.kicked || sync_in == Some(Duration::ZERO) || settle_in == Some(Duration::ZERO);
            // Where the device's queue is full each of these waits, and writers in sequence leave more behind meanwhile.
            if !is_round_due && let Some((id, part)) = state.left_behind.pop_front() {
                return Some(Work::WriteOut(id, part));
            }
            if let Some(id) = believed.filter(|_| since >= READ_ON_INTERVAL_MAX.max(state.read_on_pause)) {
                return Some(Work::read_on(&mut state, id));
            }
            if is_round_due {
                return Some(Work::Round(self.take_round(&mut state, false)));
            }
            let interval = READ_ON_INTERVAL.max(state.read_on_pause);
            if let Some(id) = believed.filter(|_| since >= interval) {
                return Some(Work::read_on(&mut state, id));
            }
            let read_on_in = believed.map(|_| interval.saturating_sub(since));
            state = match [sync_in, settle_in, read_on_in].into_iter().flatten().min() {
                Some(due_in) => {
                    self.wake.wait_timeout(state, due_in).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn take_round(&self, state: &mut State, is_last: bool) -> Round {
        let mut rested = Vec::new();
        while let Some((id, since)) = state.resting.front().copied() {
            if !is_last && since.elapsed() < self.settle_after {
                break;
            }
            state.resting.pop_front();
            if !state.dirty.contains_key(&id) {
                rested.push(id);
            }
        }
        state.kicked = false;
        state.adopted.clear();
        // The round writes it.
        state.left_behind.clear();
        state.unsynced_bytes = 0;
        state.oldest = None;
        Round {
            written: state.written,
            objects: std::mem::take(&mut state.dirty).into_keys().collect(),
            directories: std::mem::take(&mut state.dirty_directories),
            rested,
        }
    }

    fn rest(&self, ids: &[ObjectId]) {
        let now = Instant::now();
        self.state().resting.extend(ids.iter().map(|id| (*id, now)));
    }
}

/// The thread.
pub(super) fn run(shared: &Shared) {
    // Kept open, since another opening would begin anew.
    let mut reading = None;
    while let Some(work) = shared.changes.wait_for_work() {
        match work {
            Work::ReadOn(id) => shared.read_on(&id, &mut reading),
            Work::WriteOut(id, part) => shared.write_out(&id, part),
            Work::Round(round) => {
                // The error is in the store's poison; nothing is tried again.
                let _ = shared.sync_round(&round);
            }
        }
    }
}

impl Shared {
    /// What is not open any more waits for its round.
    fn write_out(&self, id: &ObjectId, part: Extent) {
        if let Some(handle) = self.handles.get(id) {
            handle.start_sync(part);
        }
    }

    /// Reads a piece of an object that is believed.
    fn read_on(&self, id: &ObjectId, reading: &mut Option<(ObjectId, Handle)>) {
        let opened = match reading.take().filter(|(reading, _)| reading == id) {
            Some((_, handle)) => Ok(Some(handle)),
            // Of another name by now, it is found when it is opened the next time.
            None => self.handle(id),
        };
        let read = opened.and_then(|handle| match handle {
            Some(handle) => Ok((handle.read_on()?, Some(handle))),
            None => Ok((ReadOn::Nothing, None)),
        });
        match read {
            Ok((ReadOn::More, handle)) => {
                *reading = handle.map(|handle| (*id, handle));
                return;
            }
            Ok((ReadOn::Last, handle)) => {
                // It may have got another name while it was read.
                let id = handle.map_or(*id, |handle| handle.id());
                self.changes.note_unsettled(&id);
            }
            Ok((ReadOn::Nothing, _)) => {}
            Err(StoreError::NoSpace) => {
                self.changes.put_off_believed(id);
                return;
            }
            Err(error) => {
                let error = self.fence(error);
                tracing::warn!(%id, %error, "a part of an object is believed until it is written anew, or opened after a restart");
            }
        }
        self.changes.forget_believed(id);
    }

    fn sync_round(&self, round: &Round) -> Result<(), StoreError> {
        self.check_sound()?;
        for id in &round.rested {
            // Gone, or not readable: then it has no need to be clean.
            let Ok(Some(handle)) = self.handle(id) else { continue };
            if let Err(error) = handle.settle(|| !self.changes.is_dirty(id)) {
                let error = self.fence(error);
                tracing::warn!(%id, %error, "an object cannot be marked clean");
            } else if handle.is_to_be_synced() {
                // Its checksums had no room in its round.
                self.changes.note_unsettled(id);
            }
        }
        if round.written > self.durable.load(Ordering::Acquire) || !round.objects.is_empty() {
            self.sync_objects(&round.objects)?;
            self.sync_directories(&round.directories)?;
            self.changes.rest(&round.objects);
        }
        if round.written > self.durable.load(Ordering::Acquire) {
            self.durable.store(round.written, Ordering::Release);
            (self.on_durable)();
        }
        Ok(())
    }

    fn sync_objects(&self, ids: &[ObjectId]) -> Result<(), StoreError> {
        if ids.len() > SINGLE_SYNC_COUNT_MAX {
            return self.sync_together(ids);
        }
        let mut handles = Vec::with_capacity(ids.len());
        for id in ids {
            match self.open_handle(id) {
                Some(handle) => handles.push(handle),
                // Closed meanwhile. A descriptor that is opened now may not be told of an error of before; that of the root is.
                None if self.is_there(id)? => return self.sync_together(ids),
                None => {}
            }
        }
        // The same of one that was opened again since. Those that are held here are not closed any more.
        if self.handles.take_closed_unsynced() {
            return self.sync_together(ids);
        }
        if let [_, _, ..] = handles[..] {
            handles.iter().for_each(|handle| handle.start_sync(Extent::WHOLE));
        }
        for handle in handles {
            handle.sync().map_err(|error| self.poison("sync its objects", &error))?;
        }
        Ok(())
    }

    /// With all else that is on the file system.
    fn sync_together(&self, ids: &[ObjectId]) -> Result<(), StoreError> {
        let failed = |error: std::io::Error| self.poison("sync its objects", &error);
        // What is closed from here on is asked for by the next round.
        self.handles.take_closed_unsynced();
        // Held, they could not be closed for as long as that takes; what is closed has written its checksums.
        let mut flushed = Vec::with_capacity(ids.len());
        for handle in ids.iter().filter_map(|id| self.open_handle(id)) {
            if let Some(change_count) = handle.flush().map_err(failed)? {
                flushed.push((Arc::downgrade(&handle), change_count));
            }
        }
        if self.syncing == Syncing::Real {
            self.sync_file_system().map_err(failed)?;
        }
        for (handle, change_count) in flushed {
            if let Some(handle) = handle.upgrade() {
                handle.note_synced(change_count);
            }
        }
        Ok(())
    }

    fn sync_directories(&self, numbers: &BTreeSet<u8>) -> Result<(), StoreError> {
        let failed = |error: std::io::Error| self.poison("sync a directory of objects", &error);
        for number in numbers {
            match self.syncing.sync_directory(&self.directory.join(format!("{number:02x}"))) {
                // That needs no descriptor, and has all directories.
                Err(error) if device::is_out_of_descriptors(device::errno(&error)) => {
                    return self.sync_file_system().map_err(failed);
                }
                synced => synced.map_err(failed)?,
            }
        }
        Ok(())
    }

    fn open_handle(&self, id: &ObjectId) -> Option<Handle> {
        self.handles.get(id).or_else(|| self.handles.get(&self.changes.name_of(id)))
    }

    /// Whether there is a file of an object that is to be synced, under whatever name.
    fn is_there(&self, id: &ObjectId) -> Result<bool, StoreError> {
        let is_there = |id: &ObjectId| self.open_file(id, false).map(|file| file.is_some());
        let found = is_there(id).and_then(|found| Ok(found || is_there(&self.changes.name_of(id))?));
        if let Err(StoreError::Device { errno, .. }) = &found
            && device::is_out_of_descriptors(*errno)
        {
            // Then all is synced together, for which none is opened.
            return Ok(true);
        }
        found.map_err(|error| {
            // What cannot be opened cannot be synced, and this round is not tried again.
            tracing::error!(%error, "an object that is to be synced cannot be opened");
            let errno = if let StoreError::Device { errno, .. } = error { errno } else { libc::EIO };
            self.fence(StoreError::Poisoned { operation: "open what is to be synced", errno })
        })
    }

    /// Final sync; what is synced is clean.
    pub(super) fn close(&self) {
        for _ in 0..2 {
            let round = {
                let mut state = self.changes.state();
                self.changes.take_round(&mut state, true)
            };
            let _ = self.sync_round(&round);
        }
        if self.poison.get().is_none() && self.syncing == Syncing::Real {
            Mark::Left.set(&self.root);
        }
        // Headers made clean just now; losing them would only cost a read at the next opening.
        let _ = self.poison.set(StoreError::Ended);
    }
}

#[cfg(test)]
mod tests;
