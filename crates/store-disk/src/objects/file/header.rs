//! What the header of an object's file says of its checksums: from where on they may not fit, or that all do and how long the file is.

use super::*;

/// An object that a crash left dirty is read through at once up to this size; a larger one, and one whose checksums the device has no
/// room for, stays lenient until the committer has read it, piece by piece (`read_on`), for nobody is to wait for seconds.
pub(super) const READ_THROUGH_BYTES_MAX: u64 = 64 << 20;

/// What became of a piece of an object that is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::objects) enum ReadOn {
    /// There was none.
    Nothing,
    More,
    Last,
}

impl ObjectFile {
    pub(super) fn read_state(&self) -> Result<(), StoreError> {
        let metadata = self.file.metadata().map_err(|error| self.error("stat an object", &error, 0))?;
        let mut inner = self.inner();
        inner.size_bytes = size_of_stored(metadata.len());
        if !has_header(&metadata) {
            return Ok(());
        }
        match read_header(&self.file).map_err(|error| self.error("read an object", &error, 0))? {
            Some(State::Clean) => {
                inner.announced = Announced::Clean;
                return Ok(());
            }
            Some(State::Settled { lenient_from, stored_bytes }) => {
                inner.announced = Announced::Clean;
                inner.lenient_from = lenient_from;
                if metadata.len() != stored_bytes {
                    self.note_found(&mut inner, &metadata, stored_bytes);
                }
                return Ok(());
            }
            Some(State::Dirty { dirty_from, incarnation }) => {
                inner.announced = Announced::From(dirty_from);
                if incarnation == self.incarnation && !self.is_read_only {
                    return Ok(());
                }
                inner.lenient_from = block_floor(dirty_from);
            }
            // Never written whole, so its first change never became durable either.
            None => inner.lenient_from = 0,
        }
        self.read_through(&mut inner)
    }

    /// After a crash: what was not settled is believed and gets checksums that fit.
    fn read_through(&self, inner: &mut Inner) -> Result<(), StoreError> {
        if self.is_read_only {
            return Ok(());
        }
        // It may end among checksums, of blocks that are not there.
        self.restore_length(inner, inner.size_bytes)?;
        let extent = Extent::new(inner.lenient_from, inner.size_bytes);
        // If it stays lenient, its length can be settled all the same.
        inner.change_count += 1;
        if extent.byte_count() > READ_THROUGH_BYTES_MAX {
            return Ok(());
        }
        match self.give_checksums(inner, extent) {
            // What is there can be read, cut and written over without them.
            Err(StoreError::NoSpace) => Ok(()),
            given => given,
        }
    }

    /// All that is lenient, which this extent is, gets checksums.
    fn give_checksums(&self, inner: &mut Inner, extent: Extent) -> Result<(), StoreError> {
        self.checksum_anew(inner, extent)?;
        self.clear_checksums_behind(inner)?;
        let dirty_from = inner.lenient_from;
        self.write_state(State::Dirty { dirty_from, incarnation: self.incarnation })?;
        inner.announced = Announced::From(dirty_from);
        inner.lenient_from = u64::MAX;
        Ok(())
    }

    /// A part of it is believed, until it has been read.
    pub fn is_to_be_read_on(&self) -> bool {
        let inner = self.inner();
        !self.is_read_only && inner.lenient_from != u64::MAX && inner.found_bytes.is_none()
    }

    /// Gives a piece of what is believed the checksums of what it holds. When it is the last one, the object is as one that was changed
    /// now, to be synced and settled.
    ///
    /// # Errors
    /// It cannot be read, or written. It is believed as before then.
    pub fn read_on(&self) -> Result<ReadOn, StoreError> {
        let mut inner = self.inner();
        let metadata = self.file.metadata().map_err(|error| self.error("stat an object", &error, 0))?;
        let is_wanted = inner.lenient_from != u64::MAX && inner.found_bytes.is_none() && metadata.nlink() > 0;
        if self.is_read_only || !is_wanted {
            return Ok(ReadOn::Nothing);
        }
        let size_bytes = inner.size_bytes;
        // It may have been cut meanwhile.
        let start = inner.read_on_to.max(inner.lenient_from).min(block_floor(size_bytes));
        let start = self.end_of_nothing(&inner, start, size_bytes)?;
        let piece = Extent::new(start, size_bytes.min(start + PIECE_BYTES));
        if let Some(piece) = parts(piece).next() {
            self.checksum_anew(&mut inner, piece)?;
            inner.read_on_to = piece.end;
            if piece.end < size_bytes {
                return Ok(ReadOn::More);
            }
        }
        self.clear_checksums_behind(&mut inner)?;
        let (lenient_from, announced) = (inner.lenient_from, inner.announced);
        let dirty_from = match announced {
            Announced::From(dirty_from) => dirty_from.min(lenient_from),
            Announced::Clean | Announced::Nothing => lenient_from,
        };
        self.write_state(State::Dirty { dirty_from, incarnation: self.incarnation })?;
        if announced == Announced::Clean {
            // It said how long the file is. That may change from now on.
            self.sync_header()?;
        }
        inner.announced = Announced::From(dirty_from);
        inner.lenient_from = u64::MAX;
        inner.change_count += 1;
        Ok(ReadOn::Last)
    }

    fn sync_header(&self) -> Result<(), StoreError> {
        self.syncing.sync_data(&self.file).map_err(|error| StoreError::Poisoned {
            operation: "sync an object's header",
            errno: errno(&error),
        })
    }

    pub(super) fn write_state(&self, state: State) -> Result<(), StoreError> {
        device::write_all(&self.file, &state.encode(), 0)
            .map_err(|(_, error)| self.change_error("write an object's header", &error, 0))
    }

    /// Before bytes from `start` on change: the header says so, durably if the device may have it saying otherwise.
    pub(super) fn announce(&self, inner: &mut Inner, start: u64) -> Result<(), StoreError> {
        inner.change_count += 1;
        let dirty_from = match inner.announced {
            Announced::From(dirty_from) if dirty_from <= start => return Ok(()),
            Announced::Nothing => 0,
            // A change below the last one: the third time, the whole object is dirty rather than synced again.
            Announced::From(_) | Announced::Clean => {
                inner.lowered_count += 1;
                if inner.lowered_count > 2 { 0 } else { start / GROUP_BYTES * GROUP_BYTES }
            }
        };
        let dirty_from = dirty_from.min(inner.lenient_from);
        // What is lenient stays so for later openings too: no incarnation is 0.
        let incarnation = if inner.lenient_from == u64::MAX { self.incarnation } else { 0 };
        self.write_state(State::Dirty { dirty_from, incarnation })?;
        if inner.announced != Announced::Nothing {
            self.sync_header()?;
        }
        inner.announced = Announced::From(dirty_from);
        Ok(())
    }

    /// A change that may write nothing leaves a header all the same: without one, a file has lost everything.
    pub(super) fn ensure_header(&self, inner: &mut Inner) -> Result<(), StoreError> {
        if inner.announced == Announced::Nothing { self.announce(inner, 0) } else { Ok(()) }
    }

    /// The object has rested since its last sync: from now on a mismatch is damage, also after a crash.
    ///
    /// # Errors
    /// If the header cannot be written.
    pub fn settle(&self, is_still_rested: impl FnOnce() -> bool) -> Result<(), StoreError> {
        let mut inner = self.inner();
        let is_settling = matches!(inner.announced, Announced::From(_))
            && inner.synced_count == inner.change_count
            // Changes made through an earlier handle are known there only; one being made holds this handle.
            && is_still_rested();
        if is_settling {
            let metadata = self.file.metadata().map_err(|error| self.error("stat an object", &error, 0))?;
            // A crash can leave a file that ends among checksums. Any other length is not what was synced.
            let stored_bytes = match metadata.len() {
                found if size_of_stored(found) == inner.size_bytes => found,
                _ => stored_length_at_least_header(inner.size_bytes),
            };
            self.write_state(State::Settled { lenient_from: inner.lenient_from, stored_bytes })?;
            inner.announced = Announced::Clean;
            inner.lowered_count = 0;
        }
        Ok(())
    }
}

/// An object of no bytes keeps its header.
pub(super) fn stored_length_at_least_header(size_bytes: u64) -> u64 {
    stored_length(size_bytes).max(HEADER_BYTES as u64)
}

/// Every change leaves one, and nothing takes it away.
pub(super) fn has_header(metadata: &Metadata) -> bool {
    metadata.len() >= HEADER_BYTES as u64
}

/// `None` for a header that was not written whole.
pub(super) fn read_header(file: &File) -> io::Result<Option<State>> {
    let mut header = [0; HEADER_BYTES];
    device::read_full(file, &mut header, 0)?;
    Ok(State::decode(&header))
}
