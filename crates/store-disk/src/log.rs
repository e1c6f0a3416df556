//! The redo log: numbered segments of fixed size, preallocated and recycled, so that a full disk cannot reach it.
//!
//! One caller appends at a time (the store holds its lock around it); syncing happens elsewhere, on the files that
//! `take_dirty` hands out. An append is in the kernel when it returns: the end of the process loses nothing.

pub(crate) mod format;
pub(crate) mod reached;
pub(crate) mod replay;

use crate::device::{self, Syncing};
use crate::space::Ballast;
use base::{Epoch, Transno};
use format::{Header, Kind, group_bytes, push_group};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Segments ready at any time: one for the next append, and one that appends may not take, so that a checkpoint can
/// begin, and the store be opened again, on a device without a free block.
const SPARE_COUNT_MIN: usize = 2;
/// Zeros are written in pieces of this size.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub file: Arc<File>,
    pub path: PathBuf,
    /// Its number in the log's order; 0 while it is spare.
    pub number: u64,
}

/// Why an append did not happen.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// No further segment could be allocated; the log is as it was.
    NoSpace,
    /// There was no descriptor for a further segment, which passes; the log is as it was.
    NoDescriptor(io::Error),
    /// The device refused; nobody knows what it has now.
    Failed(io::Error),
}

pub(crate) struct Log {
    directory: PathBuf,
    segment_bytes: u64,
    syncing: Syncing,
    ballast: Arc<Ballast>,
    seed: u32,
    epoch: Epoch,
    active: Segment,
    offset_bytes: u64,
    /// The active segment has bytes that `take_dirty` has not handed out.
    is_active_dirty: bool,
    /// Older segments with such bytes.
    dirty: Vec<Arc<File>>,
    /// Older segments that the base does not cover yet.
    filled: Vec<Segment>,
    spare: Vec<Segment>,
    /// Covered segments kept for recycling: those of one checkpoint, and some for a late one.
    spare_count_max: usize,
    /// Transno of the last batch.
    last: Transno,
    /// Bytes of batches appended since this was opened.
    appended_bytes: u64,
    buffer: Vec<u8>,
}

/// What an opened log starts from.
pub(crate) struct LogStart {
    pub directory: PathBuf,
    pub segment_bytes: u64,
    pub syncing: Syncing,
    pub ballast: Arc<Ballast>,
    pub seed: u32,
    /// Above every epoch that the log has seen.
    pub epoch: Epoch,
    /// Above every segment number that the log has seen.
    pub segment_number: u64,
    pub last: Transno,
    pub filled: Vec<Segment>,
    pub spare: Vec<Segment>,
    pub spare_count_max: usize,
}

impl AppendError {
    /// Of what has not become a segment.
    fn of(error: io::Error) -> AppendError {
        match device::errno(&error) {
            errno if device::is_full(errno) => AppendError::NoSpace,
            errno if device::is_out_of_descriptors(errno) => AppendError::NoDescriptor(error),
            _ => AppendError::Failed(error),
        }
    }
}

impl Log {
    /// Starts a new segment behind what replay found.
    ///
    /// # Errors
    /// If the device refuses.
    pub fn start(start: LogStart) -> Result<Log, AppendError> {
        let mut log = Log {
            directory: start.directory,
            segment_bytes: start.segment_bytes,
            syncing: start.syncing,
            ballast: start.ballast,
            seed: start.seed,
            epoch: start.epoch,
            active: Segment {
                file: Arc::new(File::open("/dev/null").map_err(AppendError::Failed)?),
                path: PathBuf::new(),
                number: 0,
            },
            offset_bytes: 0,
            is_active_dirty: false,
            dirty: Vec::new(),
            filled: start.filled,
            spare: start.spare,
            spare_count_max: start.spare_count_max.max(SPARE_COUNT_MIN),
            last: start.last,
            appended_bytes: 0,
            buffer: Vec::new(),
        };
        match log.take_spare(start.segment_number) {
            Ok(segment) => log.active = segment,
            // A full device must not keep the store from being opened: without a segment the log refuses batches
            // until a checkpoint has given one back.
            Err(AppendError::NoSpace) => {
                log.active.number = start.segment_number - 1;
                log.offset_bytes = log.segment_bytes;
            }
            Err(error) => return Err(error),
        }
        Ok(log)
    }

    pub fn last(&self) -> Transno {
        self.last
    }

    pub fn seed(&self) -> u32 {
        self.seed
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Bytes of the segments that the base does not cover.
    pub fn uncovered_bytes(&self) -> u64 {
        (self.filled.len() as u64 + 1) * self.segment_bytes
    }

    pub fn appended_bytes(&self) -> u64 {
        self.appended_bytes
    }

    /// Logs one batch.
    pub fn append(&mut self, transno: Transno, body: &[u8], durable: Transno) -> Result<(), AppendError> {
        assert!(transno > self.last, "the log is in transno order");
        let byte_count = group_bytes(body.len()) as u64;
        assert!(byte_count <= self.segment_bytes, "a batch fits in a segment");
        if self.offset_bytes + byte_count > self.segment_bytes {
            if self.spare.len() < SPARE_COUNT_MIN {
                // Nobody is to wait for more than the allocation.
                // The last one is a checkpoint's, without which a full log would never get any back.
                let segment = self.create_segment()?;
                self.spare.push(segment);
            }
            self.rotate()?;
        }
        self.write(Kind::Batch, transno, body, durable)?;
        self.last = transno;
        self.appended_bytes += byte_count;
        self.is_active_dirty = true;
        Ok(())
    }

    /// Logs the durable mark alone. It needs no sync of its own; a full segment does without.
    pub fn mark(&mut self, durable: Transno) -> Result<(), AppendError> {
        if self.offset_bytes + group_bytes(0) as u64 > self.segment_bytes {
            return Ok(());
        }
        self.write(Kind::Mark, self.last, &[], durable)
    }

    /// As `mark`, and the file that has it, for a final sync.
    pub fn mark_and_take(&mut self, durable: Transno) -> Result<Arc<File>, AppendError> {
        self.mark(durable)?;
        Ok(self.active.file.clone())
    }

    fn write(
        &mut self,
        kind: Kind,
        transno: Transno,
        body: &[u8],
        durable: Transno,
    ) -> Result<(), AppendError> {
        let header = Header {
            kind,
            segment: self.active.number,
            epoch: self.epoch,
            transno,
            previous: self.last,
            durable,
            body_crc: 0,
            body_bytes: 0,
        };
        self.buffer.clear();
        push_group(self.seed, &mut self.buffer, header, body);
        match device::write_all(&self.active.file, &self.buffer, self.offset_bytes) {
            Ok(()) => {
                self.offset_bytes += self.buffer.len() as u64;
                Ok(())
            }
            // A file system that copies on write can be full in spite of the preallocation. What was written of the
            // group is overwritten by the next one.
            Err((_, error)) if device::is_full(device::errno(&error)) => Err(AppendError::NoSpace),
            Err((_, error)) => Err(AppendError::Failed(error)),
        }
    }

    /// Begins the next segment, so that the older ones hold exactly the batches up to `last`.
    /// Returns the number of the last older segment.
    pub fn rotate(&mut self) -> Result<u64, AppendError> {
        let next = self.take_spare(self.active.number + 1)?;
        let old = std::mem::replace(&mut self.active, next);
        if std::mem::take(&mut self.is_active_dirty) {
            self.dirty.push(old.file.clone());
        }
        let number = old.number;
        if old.path.is_file() {
            self.filled.push(old);
        }
        self.offset_bytes = 0;
        Ok(number)
    }

    /// The files that must be synced for everything up to `last` to be durable.
    pub fn take_dirty(&mut self) -> Vec<Arc<File>> {
        let mut files = std::mem::take(&mut self.dirty);
        if std::mem::take(&mut self.is_active_dirty) {
            files.push(self.active.file.clone());
        }
        files
    }

    /// The base covers all segments up to this number: they become spare, or are deleted. So are those of another size, of before the
    /// device grew: a part of what they would get has no room yet.
    pub fn recycle(&mut self, covered_number: u64) {
        let (covered, filled) = self.filled.drain(..).partition(|segment| segment.number <= covered_number);
        self.filled = filled;
        for segment in Vec::from_iter::<Vec<Segment>>(covered) {
            let is_whole = segment.file.metadata().is_ok_and(|found| found.len() == self.segment_bytes);
            if is_whole && self.spare.len() < self.spare_count_max {
                self.spare.push(Segment { number: 0, ..segment });
            } else if let Err(error) = device::remove(&segment.path) {
                tracing::debug!(path = %segment.path.display(), %error, "a covered log segment stays");
            }
        }
    }

    /// A segment is to be made ready; the checkpointer does that without the log's lock.
    pub fn is_spare_wanted(&self) -> bool {
        self.spare.len() < SPARE_COUNT_MIN
    }

    /// Whether there may be nowhere to go on when the segment is full that it is in. Each checkpoint begins with a fresh one: the first half of it
    /// is for everybody, the rest for what frees.
    pub fn is_ending(&self) -> bool {
        self.is_spare_wanted() && self.offset_bytes > self.segment_bytes / 2
    }

    pub fn add_spare(&mut self, segment: Segment) {
        self.spare.push(segment);
    }

    fn take_spare(&mut self, number: u64) -> Result<Segment, AppendError> {
        let segment = match self.spare.pop() {
            Some(segment) => segment,
            None => self.create_segment()?,
        };
        Ok(Segment { number, ..segment })
    }

    fn create_segment(&self) -> Result<Segment, AppendError> {
        create_segment(&self.directory, self.segment_bytes, self.syncing, &self.ballast, false)
    }
}

/// A new file, allocated and with a durable name. Gives up the ballast rather than failing. With `fill` it is written
/// once: a sync of blocks that were never written has to commit the file system's journal too, which takes ten times
/// as long.
pub(crate) fn create_segment(
    directory: &Path,
    segment_bytes: u64,
    syncing: Syncing,
    ballast: &Ballast,
    fill: bool,
) -> Result<Segment, AppendError> {
    let (file, path) = create_file(directory).map_err(AppendError::of)?;
    let prepare = || -> io::Result<()> {
        device::allocate(&file, 0, 0, segment_bytes)?;
        for offset_bytes in (0..if fill { segment_bytes } else { 0 }).step_by(ZEROS.len()) {
            let piece = ZEROS.get(..(segment_bytes - offset_bytes).min(ZEROS.len() as u64) as usize);
            device::write_all(&file, piece.unwrap_or_default(), offset_bytes).map_err(|(_, error)| error)?;
        }
        syncing.sync_all(&file)?;
        syncing.sync_directory(directory)
    };
    let mut prepared = prepare();
    if matches!(&prepared, Err(error) if device::is_full(device::errno(error))) && ballast.release() {
        prepared = prepare();
    }
    match prepared {
        Ok(()) => Ok(Segment { file: Arc::new(file), path, number: 0 }),
        Err(error) => {
            // Half a segment would only hold space that somebody needs.
            let _ = device::remove(&path);
            Err(AppendError::of(error))
        }
    }
}

/// A file that nobody has: who prepares a spare segment does so beside who needs one at once, and neither may write into the other's.
fn create_file(directory: &Path) -> io::Result<(File, PathBuf)> {
    loop {
        let path = free_path(directory);
        match device::create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|file| (file, path)),
        }
    }
}

/// Names are reused; which segment a file is says its content.
fn free_path(directory: &Path) -> PathBuf {
    (0_u32..)
        .map(|n| directory.join(format!("{n:06}.log")))
        .find(|path| !path.exists())
        .expect("no directory holds four thousand million segments")
}

#[cfg(test)]
mod tests;
