//! The data engine: one sparse file an object, in 256 directories, and a committer that syncs what was changed.
//!
//! A mutation is made first and numbered afterwards, in one step with its entry among the dirty objects; a round of
//! the committer takes number and entries in one step, so that what it syncs holds every mutation up to the number.
//!
//! Lock order: `handles`, an object's own lock, `changes`.

mod commit;
mod file;
mod freeing;
mod groups;
mod handles;
pub(crate) mod layout;
mod listing;
mod reading;
mod traffic;

use crate::device::{self, Mark, Syncing};
use crate::gate;
use crate::heard::Heard;
use crate::space::Recent;
use base::{Advice, Extent, ObjectId};
use bytes::Bytes;
use commit::Changes;
use file::Left;
use freeing::Freeing;
use handles::Handles;
use listing::Rests;
use reading::{Reading, Way};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::{ObjectStat, ObjectStore, OnDurable, Room, Space, StoreError, Whence};
use traffic::Traffic;

pub use reading::ReadUse;
pub use traffic::DiskUse;

/// Of an object's file in the directory of the store.
const PATH_BYTES: usize = 1 + 2 + 1 + 2 * 24;

/// Below this much free space a write allocates before it changes anything. More than all writes in flight.
const LOW_SPACE_BYTES: u64 = 64 << 20;

/// How an object store is opened. `Default` is right for servers.
#[derive(Clone, Debug)]
pub struct ObjectOptions {
    /// Open files kept. Several targets share a process and its limit of 1024.
    pub handle_count_max: usize,
    /// Nothing written stays undurable longer than this and one sync.
    pub sync_interval: Duration,
    /// An object is marked clean when it has not changed for this long.
    pub settle_after: Duration,
    /// Where the stores of this machine tell each other of errors of write-back (`heard`); `None` for one that is alone on its file
    /// system.
    pub heard_directory: Option<PathBuf>,
    /// Syncs do nothing: a power failure loses everything. For tests only.
    pub no_sync: bool,
}

impl Default for ObjectOptions {
    fn default() -> ObjectOptions {
        ObjectOptions {
            handle_count_max: 128,
            sync_interval: base::limits::SYNC_INTERVAL,
            settle_after: Duration::from_secs(5),
            heard_directory: None,
            no_sync: Syncing::from_environment() == Syncing::Skipped,
        }
    }
}

/// Why an object store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the objects in {path}")]
pub struct ObjectOpenError {
    path: PathBuf,
    source: io::Error,
    is_unkept: bool,
}

impl ObjectOpenError {
    /// Whether something was made that the device failed to keep, and the kernel of this machine may write some time.
    pub fn is_unkept(&self) -> bool {
        self.is_unkept
    }
}

pub(crate) struct Shared {
    directory: PathBuf,
    /// Of the object directory, for syncfs(2) and its errors.
    root: File,
    syncing: Syncing,
    is_read_only: bool,
    /// As the process before has left the directory, if its file system was not mounted anew since.
    found: Mark,
    is_marked: AtomicBool,
    heard: Option<Heard>,
    /// Errors of write-back that concern what was left here may have been told to others.
    is_in_doubt: bool,
    incarnation: u64,
    handles: Handles,
    /// The object of which was told, or heard, last that it is not there. It may be there by now.
    absent: Mutex<Option<ObjectId>>,
    changes: Changes,
    durable: AtomicU64,
    poison: OnceLock<StoreError>,
    space: Recent,
    spare: groups::Spare,
    rests: Rests,
    traffic: Traffic,
    reading: Reading,
    on_durable: OnDurable,
    /// Files of objects that were looked for, or made.
    #[cfg(test)]
    opened_count: AtomicU64,
}

/// The object store of one target.
pub struct ObjectDisk {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    freeing: Freeing,
}

impl ObjectDisk {
    /// Opens the objects in `directory`, which is created if need be.
    ///
    /// # Errors
    /// If the directories cannot be made or used.
    pub fn open(
        directory: &Path,
        options: &ObjectOptions,
        on_durable: OnDurable,
    ) -> Result<ObjectDisk, ObjectOpenError> {
        let failed = |source| ObjectOpenError { path: directory.to_path_buf(), source, is_unkept: false };
        let syncing = if options.no_sync { Syncing::Skipped } else { Syncing::Real };
        if make_directories(directory).map_err(failed)? {
            syncing.sync_directory(directory).map_err(|source| ObjectOpenError {
                is_unkept: device::may_be_unkept(&source),
                ..failed(source)
            })?;
        }
        let shared = Arc::new(Shared::new(directory, options, syncing, on_durable, false).map_err(failed)?);
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("object-sync".to_string())
            .spawn(move || commit::run(&of_thread))
            .map_err(failed)?;
        let mut disk = ObjectDisk { shared, thread: Mutex::new(Some(thread)), freeing: Freeing::default() };
        disk.freeing = Freeing::start(&disk.shared).map_err(failed)?;
        Ok(disk)
    }

    /// Whether a store was made in `directory`.
    pub fn is_there(directory: &Path) -> bool {
        // The last is made last: if it is there, all are.
        directory.join("ff").is_dir()
    }

    /// Opens the objects of a target that nobody serves, and changes nothing of them: what a crash left dirty is believed as it is,
    /// and every change is refused.
    ///
    /// # Errors
    /// If the directory cannot be used.
    pub fn open_to_read(directory: &Path) -> Result<ObjectDisk, ObjectOpenError> {
        let options = ObjectOptions { no_sync: true, ..ObjectOptions::default() };
        let shared = Shared::new(directory, &options, Syncing::Skipped, Arc::new(|| ()), true)
            .map_err(|source| ObjectOpenError { path: directory.to_path_buf(), source, is_unkept: false })?;
        let (thread, freeing) = (Mutex::new(None), Freeing::default());
        Ok(ObjectDisk { shared: Arc::new(shared), thread, freeing })
    }

    /// What the data of requests have cost the local file system: reads, and writes.
    pub fn disk_use(&self) -> (DiskUse, DiskUse) {
        self.shared.traffic.counts()
    }

    /// Starts to count that anew.
    pub fn clear_disk_use(&self) {
        self.shared.traffic.clear();
    }

    /// How much of what was read came through the page cache, since the start.
    pub fn read_use(&self) -> ReadUse {
        self.shared.reading.counts()
    }

    /// Whether everything is read through the page cache, and not what is large and cold past it.
    pub fn is_cache_always(&self) -> bool {
        self.shared.reading.is_cache_always()
    }

    pub fn set_cache_always(&self, is_always: bool) {
        self.shared.reading.set_cache_always(is_always);
    }

    fn stop_thread(&self) {
        self.shared.changes.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(path = %self.shared.directory.display(), "the committer of the objects panicked");
        }
    }
}

impl Drop for ObjectDisk {
    /// Without `close` this is as if the process had been killed here: nothing is synced.
    fn drop(&mut self) {
        self.stop_thread();
        self.freeing.stop();
    }
}

/// Differs from every earlier opening's: no two openings of one directory are within a nanosecond.
fn new_incarnation() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() as u64).max(1)
}

/// -> Whether there is something to be synced.
fn make_directories(directory: &Path) -> io::Result<bool> {
    device::make_directories(directory)?;
    if ObjectDisk::is_there(directory) {
        return Ok(false);
    }
    for number in 0..=255_u8 {
        match device::make_directory(&directory.join(format!("{number:02x}"))) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(true)
}

/// Which of the 256 directories an object is in.
fn directory_number(id: &ObjectId) -> u8 {
    crc32c::crc32c(&id.key()) as u8
}

fn hex(byte: u8) -> [char; 2] {
    [byte >> 4, byte & 15].map(|digit| char::from_digit(u32::from(digit), 16).unwrap_or_default())
}

fn file_name(id: &ObjectId) -> String {
    let key = id.key();
    let mut name = String::with_capacity(2 * key.len());
    name.extend(key.into_iter().flat_map(hex));
    name
}

/// `None` for a name that no object has.
fn id_of_name(name: &str) -> Option<ObjectId> {
    let mut key = [0; 24];
    if name.len() != 2 * key.len() || !name.is_ascii() {
        return None;
    }
    for (byte, digits) in key.iter_mut().zip(name.as_bytes().as_chunks::<2>().0) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    ObjectId::from_key(&key)
}

impl Shared {
    fn new(
        directory: &Path,
        options: &ObjectOptions,
        syncing: Syncing,
        on_durable: OnDurable,
        is_read_only: bool,
    ) -> io::Result<Shared> {
        let opened_at = device::boot_nanos();
        let root = File::open(directory)?;
        let found = Mark::of(&root);
        // Behind the descriptor: what comes after it is told to it, and of what came before there must be word by now.
        let heard_directory = options.heard_directory.as_ref().filter(|_| syncing == Syncing::Real);
        let heard = heard_directory.and_then(|path| {
            let heard = Heard::open(path, &root, opened_at);
            heard
                .inspect_err(|error| {
                    tracing::info!(path = %path.display(), %error, "what others have heard of the device is not known");
                })
                .ok()
        });
        let is_in_doubt = heard_directory.is_some() && heard.as_ref().is_none_or(Heard::is_in_doubt);
        Ok(Shared {
            directory: directory.to_path_buf(),
            found,
            is_marked: AtomicBool::new(false),
            heard,
            is_in_doubt,
            root,
            syncing,
            is_read_only,
            incarnation: new_incarnation(),
            handles: Handles::new(options.handle_count_max),
            absent: Mutex::default(),
            changes: Changes::new(options.sync_interval, options.settle_after),
            durable: AtomicU64::new(0),
            poison: OnceLock::new(),
            space: Recent::new(directory.to_path_buf()),
            spare: groups::Spare::default(),
            rests: Rests::default(),
            traffic: Traffic::default(),
            reading: Reading::default(),
            on_durable,
            #[cfg(test)]
            opened_count: AtomicU64::new(0),
        })
    }

    fn path(&self, id: &ObjectId) -> PathBuf {
        let mut path = PathBuf::with_capacity(self.directory.as_os_str().len() + PATH_BYTES);
        path.push(&self.directory);
        path.push(String::from_iter(hex(directory_number(id))));
        path.push(file_name(id));
        path
    }

    /// Something is changed here, or will be. Not before: who finds the mark believes what was noted beside it, and is not to find what
    /// was noted before the file system was mounted.
    fn mark_in_use(&self) {
        if !self.is_marked.load(Ordering::Relaxed) && !self.is_read_only && self.poison.get().is_none() {
            if let Some(heard) = &self.heard {
                heard.begin();
            }
            Mark::InUse.set(&self.root);
            self.is_marked.store(true, Ordering::Relaxed);
        }
    }

    /// syncfs(2), after which nobody else may be told of an error.
    fn sync_file_system(&self) -> io::Result<()> {
        if let Some(heard) = &self.heard {
            heard.before_sync();
        }
        let synced = device::sync_file_system(&self.root);
        if synced.is_err() {
            Mark::Failed.set(&self.root);
        }
        if let Some(heard) = &self.heard {
            heard.after_sync(synced.is_ok());
        }
        synced
    }

    fn check_sound(&self) -> Result<(), StoreError> {
        if self.is_read_only {
            return Err(StoreError::ReadOnly);
        }
        self.poison.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The device failed to persist something. Sticky; whoever waits is told.
    fn poison(&self, operation: &'static str, error: &io::Error) -> StoreError {
        self.fence(StoreError::Poisoned { operation, errno: device::errno(error) })
    }

    fn fence(&self, error: StoreError) -> StoreError {
        if matches!(error, StoreError::Poisoned { .. }) && self.poison.set(error.clone()).is_ok() {
            // Before anything else: who is killed now leaves no word of it otherwise, and the kernel does not tell it again.
            if !self.is_read_only {
                Mark::Failed.set(&self.root);
            }
            tracing::error!(path = %self.directory.display(), %error, "fenced");
            (self.on_durable)();
        }
        error
    }

    /// -> The file of an object; none if it is not there, or is there when it is to be made.
    fn open_file(&self, id: &ObjectId, create: bool) -> Result<Option<File>, StoreError> {
        let path = self.path(id);
        #[cfg(test)]
        self.opened_count.fetch_add(1, Ordering::Relaxed);
        let opened = match (create, self.is_read_only) {
            (true, _) => device::create(&path),
            (false, true) => device::open_to_read(&path),
            (false, false) => device::open(&path, false),
        };
        #[cfg(test)]
        let opened = device::faults::check_open(&path).and(opened);
        match opened {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !create => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && create => Ok(None),
            Err(error) => match device::errno(&error) {
                errno if device::is_full(errno) => Err(StoreError::NoSpace),
                errno if create && device::is_lost(errno) => {
                    Err(StoreError::Poisoned { operation: "make an object", errno })
                }
                errno => Err(StoreError::Device { operation: "open an object", errno }),
            },
        }
    }

    /// One that was made just now.
    fn new_object(&self, id: &ObjectId, file: File) -> file::ObjectFile {
        file::ObjectFile::new_empty(*id, file, self.incarnation, self.syncing, self.spare.clone())
    }

    fn object(&self, id: &ObjectId, file: File) -> Result<file::ObjectFile, StoreError> {
        match self.is_read_only {
            true => file::ObjectFile::new_to_read(*id, file),
            false => file::ObjectFile::new(*id, file, self.incarnation, self.syncing, self.spare.clone()),
        }
    }

    /// The object, if there is one.
    fn handle(&self, id: &ObjectId) -> Result<Option<handles::Handle>, StoreError> {
        let opened = self.handles.get_or_open(id, || self.find(id));
        opened.map_err(|error| self.fence(error))
    }

    /// The object as it was left, if there is one.
    fn find(&self, id: &ObjectId) -> Result<Option<file::ObjectFile>, StoreError> {
        let Some(file) = self.open_file(id, false)? else { return Ok(None) };
        let object = self.object(id, file)?;
        if object.is_to_be_synced() {
            self.changes.note_unsettled(id);
        }
        if object.is_to_be_read_on() {
            self.changes.note_believed(id);
        }
        Ok(Some(object))
    }

    /// The object, which is made if there is none, and whether it was. Who changes one has mostly asked before whether it is there: if it
    /// was not, it is made without another look.
    fn handle_or_new(&self, id: &ObjectId) -> Result<(handles::Handle, bool), StoreError> {
        let was_absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner).take() == Some(*id);
        let mut is_new = false;
        let opened = self.handles.get_or_open(id, || {
            if !was_absent && let Some(found) = self.find(id)? {
                return Ok(Some(found));
            }
            match self.open_file(id, true)? {
                Some(file) => {
                    is_new = true;
                    Ok(Some(self.new_object(id, file)))
                }
                None => self.find(id),
            }
        });
        let opened = opened.map_err(|error| self.fence(error))?;
        Ok((opened.ok_or(StoreError::NoObject { id: *id })?, is_new))
    }

    fn existing(&self, id: &ObjectId) -> Result<handles::Handle, StoreError> {
        self.handle(id)?.ok_or(StoreError::NoObject { id: *id })
    }

    /// Runs a change of an object, which is made if need be, and goes again if the change fails.
    fn change(
        &self,
        id: &ObjectId,
        change: impl FnOnce(&file::ObjectFile) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.check_sound()?;
        self.mark_in_use();
        // Here, since making an object's file waits there with the table of open ones in hand, which all others need.
        gate::pass();
        let (handle, is_new) = self.handle_or_new(id)?;
        let changed = change(&handle).map_err(|error| self.fence(error));
        if changed.is_err() && is_new {
            self.handles.forget(id);
            let _ = device::remove(&self.path(id));
            return changed;
        }
        // A change that failed half-way is to be synced as well.
        self.changes.note(id, is_new.then(|| directory_number(id)));
        changed
    }

    /// The same of a change that takes at most `room`.
    fn take_room(
        &self,
        id: &ObjectId,
        room: Room,
        change: impl FnOnce(&file::ObjectFile, Left) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let left = || {
            self.space.forget();
            self.space.after_reserve().avail_bytes
        };
        let changed = self.change(id, |object| match room {
            Room::BesideReserve => change(object, Some(&left)),
            Room::All => change(object, None),
        });
        self.space.forget();
        changed
    }

    fn read(
        &self,
        id: &ObjectId,
        extent: Extent,
        is_ahead: bool,
        is_at_once: bool,
    ) -> Result<Bytes, StoreError> {
        self.traffic.read(extent.start, || self.read_uncounted(id, extent, is_ahead, is_at_once))
    }

    fn read_uncounted(
        &self,
        id: &ObjectId,
        extent: Extent,
        is_ahead: bool,
        is_at_once: bool,
    ) -> Result<Bytes, StoreError> {
        let way = Way { reading: &self.reading, is_ahead, is_at_once };
        self.existing(id)?.read_for(extent.start, extent.byte_count() as usize, way)
    }
}

/// Since this process first asked.
fn now_ns() -> u64 {
    static BEGIN: OnceLock<std::time::Instant> = OnceLock::new();
    BEGIN.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}

impl ObjectStore for ObjectDisk {
    fn write(&self, id: &ObjectId, offset_bytes: u64, data: &[u8]) -> Result<(), StoreError> {
        let shared = &*self.shared;
        shared.space.note_written(data.len() as u64);
        let reserve = shared.space.avail_bytes().is_some_and(|avail_bytes| avail_bytes < LOW_SPACE_BYTES);
        let extent = Extent::at(offset_bytes, data.len() as u64);
        shared
            .traffic
            .write(extent, || shared.change(id, |object| object.write(offset_bytes, data, reserve)))?;
        shared.changes.note_bytes(id, extent);
        Ok(())
    }

    fn read(&self, id: &ObjectId, offset_bytes: u64, byte_count: usize) -> Result<Bytes, StoreError> {
        self.shared.read(id, Extent::at(offset_bytes, byte_count as u64), false, false)
    }

    /// Past the kernel's page cache where that is cold, from smaller reads on: who waits for each is better off with what the kernel reads ahead.
    fn read_ahead(&self, id: &ObjectId, offset_bytes: u64, byte_count: usize) -> Result<Bytes, StoreError> {
        self.shared.read(id, Extent::at(offset_bytes, byte_count as u64), true, false)
    }

    fn read_at_once(
        &self,
        id: &ObjectId,
        offset_bytes: u64,
        byte_count: usize,
        is_ahead: bool,
    ) -> Result<Option<Bytes>, StoreError> {
        let shared = &*self.shared;
        let extent = Extent::at(offset_bytes, byte_count as u64);
        if shared.reading.can_be_at_once() {
            match shared.read(id, extent, is_ahead, true) {
                Err(StoreError::Device { errno: libc::EAGAIN, .. }) => {
                    let waited =
                        shared.reading.waits.wait(now_ns, || shared.read(id, extent, is_ahead, false));
                    return waited.transpose();
                }
                // Of a file system, or of what holds this process in.
                Err(StoreError::Device {
                    errno: libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM | libc::EINVAL,
                    ..
                }) => shared.reading.refuse_at_once(),
                result => return result.map(Some),
            }
        }
        shared.read(id, extent, is_ahead, false).map(Some)
    }

    fn fetch(&self, id: &ObjectId, extent: Extent) -> Result<(), StoreError> {
        let shared = &*self.shared;
        shared.reading.waits.fetch(now_ns, || {
            shared.traffic.fetch(extent, || match shared.existing(id) {
                Ok(object) => object.fetch(extent),
                Err(error @ StoreError::Device { .. }) => Err(error),
                Err(_) => Ok(()),
            })
        })
    }

    fn read_fetched(
        &self,
        id: &ObjectId,
        offset_bytes: u64,
        byte_count: usize,
        is_ahead: bool,
    ) -> Result<Bytes, StoreError> {
        self.shared.read_uncounted(id, Extent::at(offset_bytes, byte_count as u64), is_ahead, false)
    }

    fn truncate(&self, id: &ObjectId, size_bytes: u64) -> Result<(), StoreError> {
        self.shared.change(id, |object| object.truncate(size_bytes))?;
        self.shared.space.forget();
        Ok(())
    }

    fn punch(&self, id: &ObjectId, extent: Extent) -> Result<(), StoreError> {
        self.shared.check_sound()?;
        if extent.is_empty() || self.shared.handle(id)?.is_none() {
            return Ok(());
        }
        self.shared.change(id, |object| object.punch(extent))?;
        self.shared.space.forget();
        Ok(())
    }

    fn zero(&self, id: &ObjectId, extent: Extent, keep_size: bool, room: Room) -> Result<(), StoreError> {
        self.shared.check_sound()?;
        // Up to the end of what is not there, there is nothing.
        if extent.end == Extent::EOF && self.shared.handle(id)?.is_none() {
            return Ok(());
        }
        self.shared.take_room(id, room, |object, left| object.zero(extent, keep_size, left))
    }

    fn allocate(&self, id: &ObjectId, extent: Extent, keep_size: bool, room: Room) -> Result<(), StoreError> {
        self.shared.take_room(id, room, |object, left| object.allocate(extent, keep_size, left))
    }

    fn is_allocated(&self, id: &ObjectId, extent: Extent) -> Result<bool, StoreError> {
        self.shared.existing(id)?.is_allocated(extent)
    }

    fn seek(&self, id: &ObjectId, offset_bytes: u64, whence: Whence) -> Result<Option<u64>, StoreError> {
        self.shared.existing(id)?.seek(offset_bytes, whence)
    }

    fn advise(&self, id: &ObjectId, extent: Extent, advice: Advice) -> Result<(), StoreError> {
        self.shared.existing(id)?.advise(extent, advice)
    }

    fn expect_absent(&self, id: &ObjectId) {
        *self.shared.absent.lock().unwrap_or_else(PoisonError::into_inner) = Some(*id);
    }

    fn stat(&self, id: &ObjectId) -> Result<Option<ObjectStat>, StoreError> {
        if let Some(handle) = self.shared.handles.get(id) {
            let stat = handle.stat()?;
            if stat.is_none() {
                self.shared.handles.forget(id);
            }
            return Ok(stat);
        }
        // Not kept open: who asks for the sizes of all objects is not to close those that are in use.
        let Some(file) = self.shared.open_file(id, false)? else {
            self.expect_absent(id);
            return Ok(None);
        };
        file::stat_of(&file).map(Some).map_err(device::failed("stat an object"))
    }

    fn destroy(&self, id: &ObjectId) -> Result<bool, StoreError> {
        let shared = &*self.shared;
        shared.check_sound()?;
        shared.mark_in_use();
        shared.handles.forget(id);
        let path = shared.path(id);
        let file = self.freeing.open(&path, || shared.space.after_reserve());
        match device::remove(&path) {
            Ok(()) => {
                shared.changes.note_destroyed(id, directory_number(id));
                shared.space.forget();
                if let Some(file) = file {
                    self.freeing.free(file);
                }
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) if device::is_lost(device::errno(&error)) => {
                Err(shared.poison("remove an object", &error))
            }
            Err(error) => Err(device::failed("remove an object")(error)),
        }
    }

    fn adopt(&self, id: &ObjectId, to: &ObjectId) -> Result<bool, StoreError> {
        let shared = &*self.shared;
        shared.check_sound()?;
        let is_adopted = shared.handles.rename(id, to, || {
            if shared.path(to).try_exists().map_err(device::failed("look for an object"))? {
                return Ok(false);
            }
            // Before it has the name: who syncs what was changed under the old one must find it.
            shared.changes.note_adopting(id, to);
            match device::rename(&shared.path(id), &shared.path(to)) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(error) => match device::errno(&error) {
                    errno if device::is_full(errno) => Err(StoreError::NoSpace),
                    errno if device::is_lost(errno) => Err(shared.poison("rename an object", &error)),
                    _ => Err(device::failed("rename an object")(error)),
                },
            }
        })?;
        if is_adopted {
            shared.changes.note_adopted(id, to);
        }
        Ok(is_adopted)
    }

    fn kick(&self) {
        self.shared.mark_in_use();
        self.shared.changes.kick();
    }

    fn sync_left(&self) -> Result<bool, StoreError> {
        self.shared.check_sound()?;
        let shared = &*self.shared;
        if matches!(shared.found, Mark::InUse | Mark::Failed) && shared.syncing == Syncing::Real {
            // Errors of writing back that nobody has been told of yet come with it.
            shared
                .sync_file_system()
                .map_err(|error| shared.poison("sync what a process has left", &error))?;
        }
        // Of the others somebody has been told, or may have been.
        Ok(match shared.found {
            Mark::Left => true,
            Mark::InUse => !shared.is_in_doubt,
            Mark::Unknown | Mark::Failed => false,
        })
    }

    fn written(&self) -> u64 {
        self.shared.changes.written()
    }

    fn durable(&self) -> u64 {
        self.shared.durable.load(Ordering::Acquire)
    }

    fn list(&self, after: Option<&ObjectId>, limit: usize) -> Result<Vec<ObjectId>, StoreError> {
        self.shared.list(after, limit).map_err(device::failed("list the objects"))
    }

    fn space(&self) -> Space {
        self.shared.space.after_reserve()
    }

    fn is_poisoned(&self) -> bool {
        self.shared.poison.get().is_some_and(StoreError::is_fence)
    }

    fn close(&self) {
        self.stop_thread();
        if !self.shared.is_read_only {
            self.shared.close();
        }
        self.freeing.stop();
    }
}

#[cfg(test)]
mod tests;
