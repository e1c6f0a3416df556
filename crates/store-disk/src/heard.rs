//! Who may have heard of an error of write-back on a file system, so that another one that has to hear of it does not.
//!
//! The kernel tells of such an error once to each descriptor that was open when it came, and to one that is opened later only if nobody
//! has been told yet (errseq_t); syncfs(2) asks so for a whole file system. So the next opening of what a process has left may be told
//! of nothing, although something of that was lost: a neighbour on the same file system has heard of it, or the very process that was
//! killed before its call returned. Therefore who calls syncfs(2) says so before, and afterwards how it went, in a file of the run
//! directory that all stores on one file system have in common; and who opens what was left looks there.
//!
//! The file is a row of slots, one a store, which is known by the inode of its directory. Whoever has a slot locks a byte for it (an
//! open file description lock, which ends with the process), so that a call that is under way is told from one that has died.
//! Times are those of CLOCK_BOOTTIME. Nothing is ever synced: what was left before a boot is not believed anyway.
//!
//! It does not cover other programs (`sync -f`), nor stores with another run directory.

use crate::device;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const SLOT_BYTES: usize = 32;
/// More stores than a machine has file systems for; then the file begins anew.
const SLOT_COUNT_MAX: u64 = 4096;
/// Whoever has the file, or a slot that nobody serves, has it for some microseconds, unless he was stopped there.
const LOCK_WAIT: Duration = Duration::from_millis(200);
/// A sync that takes longer is not waited for: how it ends counts as unknown then.
const SYNC_WAIT: Duration = Duration::from_secs(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// What one store has said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    /// Of its directory. 0: nobody has the slot.
    inode: u64,
    /// When the one that has it in use, or had it last, had not opened its descriptor yet. 0: never.
    opened_at: u64,
    /// When the call began that is under way. 0: none is.
    syncing_since: u64,
    /// When it was last known that a call had failed, or that nobody would hear any more how it went.
    failed_at: u64,
}

impl Slot {
    fn encode(self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        let words = [self.inode, self.opened_at, self.syncing_since, self.failed_at];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    fn decode(bytes: &[u8; SLOT_BYTES]) -> Slot {
        let [inode, opened_at, syncing_since, failed_at] =
            std::array::from_fn(|at| bytes.as_chunks::<8>().0.get(at).copied().map_or(0, u64::from_le_bytes));
        Slot { inode, opened_at, syncing_since, failed_at }
    }

    /// Its call was broken off, or has failed.
    fn note_failed(&mut self) {
        self.failed_at = device::boot_nanos();
        self.syncing_since = 0;
    }
}

/// The file, and the slot that is locked in it.
struct Place {
    file: File,
    index: u64,
    slot: Slot,
}

impl Place {
    /// A place for the store in the directory with this inode.
    fn take(path: &Path, inode: u64) -> io::Result<Place> {
        loop {
            let file = device::open(path, true)?;
            // Ends with the descriptor, which nobody else has.
            wait_for(LOCK_WAIT, || device::try_lock(&file))?;
            if is_removed(&file) {
                continue;
            }
            let found = find(&file, inode)?;
            if found >= SLOT_COUNT_MAX {
                // Who has a slot in it notices, and who has left something finds no slot: both trust nothing then.
                device::remove(path)?;
                continue;
            }
            wait_for(LOCK_WAIT, || device::try_lock_byte(&file, found))?;
            let mut place = Place { slot: read(&file, found)?.unwrap_or_default(), index: found, file };
            place.slot.inode = inode;
            if place.slot.syncing_since != 0 {
                place.slot.note_failed();
            }
            place.write()?;
            device::unlock(&place.file)?;
            return Ok(place);
        }
    }

    fn write(&self) -> io::Result<()> {
        write(&self.file, self.index, self.slot)
    }

    /// Whether somebody else may have heard of an error since this store had its descriptor opened before this one.
    fn is_in_doubt(&self) -> io::Result<bool> {
        let since = self.slot.opened_at;
        if since == 0 || self.slot.failed_at >= since {
            return Ok(true);
        }
        let mut index = 0;
        while let Some(slot) = read(&self.file, index)? {
            if index != self.index && (settled(&self.file, index, slot)?.is_none_or(|at| at >= since)) {
                return Ok(true);
            }
            index += 1;
        }
        Ok(false)
    }
}

/// When a call of another store is known to have failed last, after the one that is under way. `None`: nobody knows.
fn settled(file: &File, index: u64, found: Slot) -> io::Result<Option<u64>> {
    if found.syncing_since == 0 {
        return Ok(Some(found.failed_at));
    }
    let begun = Instant::now();
    while begun.elapsed() < SYNC_WAIT {
        let mut slot = read(file, index)?.unwrap_or_default();
        if slot.syncing_since != found.syncing_since {
            return Ok(Some(slot.failed_at));
        }
        if device::try_lock_byte(file, index)? {
            // It has died. What it may have heard of is said for it, once.
            slot = read(file, index)?.unwrap_or_default();
            if slot.syncing_since != 0 {
                slot.note_failed();
                write(file, index, slot)?;
            }
            device::unlock_byte(file, index)?;
            return Ok(Some(slot.failed_at));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(None)
}

fn read(file: &File, index: u64) -> io::Result<Option<Slot>> {
    let mut bytes = [0; SLOT_BYTES];
    let byte_count = device::read_full(file, &mut bytes, index * SLOT_BYTES as u64)?;
    Ok((byte_count == SLOT_BYTES).then(|| Slot::decode(&bytes)))
}

fn write(file: &File, index: u64, slot: Slot) -> io::Result<()> {
    device::write_all(file, &slot.encode(), index * SLOT_BYTES as u64).map_err(|(_, error)| error)
}

fn is_removed(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.nlink() == 0)
}

/// The slot of this inode, or the one behind the last.
fn find(file: &File, inode: u64) -> io::Result<u64> {
    let mut index = 0;
    while let Some(slot) = read(file, index)? {
        if slot.inode == inode {
            break;
        }
        index += 1;
    }
    Ok(index)
}

fn wait_for(limit: Duration, try_it: impl Fn() -> io::Result<bool>) -> io::Result<()> {
    let begun = Instant::now();
    while !try_it()? {
        if begun.elapsed() >= limit {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}

/// Of one store, for as long as it is open.
pub(crate) struct Heard {
    path: PathBuf,
    inode: u64,
    opened_at: u64,
    /// `None` when the file cannot be used: then nobody hears of this store, which the next opening of it does not trust in.
    place: Mutex<Option<Place>>,
    is_in_doubt: bool,
}

impl Heard {
    #[expect(
        clippy::disallowed_methods,
        reason = "the run directory of this machine, which no other server has"
    )]
    /// For the store with this descriptor, which was not open yet at `opened_at`; the file is in `directory`, which is made if need be.
    pub fn open(directory: &Path, root: &File, opened_at: u64) -> io::Result<Heard> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let metadata = root.metadata()?;
        // On most file systems a device is one; elsewhere it may be a part of one.
        let name = match device::file_system(root)? {
            device::FileSystem::InPlace => format!("{:x}", metadata.dev()),
            device::FileSystem::Other => "others".to_string(),
        };
        let path = directory.join(name);
        let place = Place::take(&path, metadata.ino())?;
        let is_in_doubt = place.is_in_doubt()?;
        Ok(Heard { path, inode: metadata.ino(), opened_at, place: Mutex::new(Some(place)), is_in_doubt })
    }

    fn place(&self) -> MutexGuard<'_, Option<Place>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether errors may have been told to somebody that concern what was left here.
    pub fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// What was left before is not asked for any more; what this store writes from now on may be left.
    pub fn begin(&self) {
        self.change(|slot| slot.opened_at = self.opened_at);
    }

    /// Before a call that may be told of an error.
    pub fn before_sync(&self) {
        let mut place = self.place();
        if place.as_ref().is_some_and(|place| is_removed(&place.file)) {
            // Somebody has removed the file. In a new one, nothing is known of the time before.
            *place = Place::take(&self.path, self.inode).ok();
        }
        drop(place);
        self.change(|slot| slot.syncing_since = device::boot_nanos().max(1));
    }

    /// The call is over.
    pub fn after_sync(&self, is_well: bool) {
        self.change(|slot| if is_well { slot.syncing_since = 0 } else { slot.note_failed() });
    }

    fn change(&self, change: impl FnOnce(&mut Slot)) {
        let mut guard = self.place();
        let Some(place) = guard.as_mut() else { return };
        change(&mut place.slot);
        if let Err(error) = place.write() {
            tracing::warn!(path = %self.path.display(), %error, "what is heard of a device cannot be noted");
            *guard = None;
        }
    }
}

#[cfg(test)]
mod tests;
