//! Room on the device for a part of an object, taken before anything changes.

use super::*;

/// What the device has beside its reserve, measured now; `None` for who may take the reserve too.
pub(in crate::objects) type Left<'a> = Option<&'a dyn Fn() -> u64>;

/// Parts of a file that are remembered while it gets room, of each kind. What a call that fails has taken of others within the object
/// stays with it.
const PARTS_MAX: usize = 4096;

/// A part of a file, as it was before it got room.
#[derive(Default)]
struct Before {
    /// What has no place on the device.
    missing_bytes: u64,
    /// The first parts of that.
    holes: Vec<Extent>,
    /// What has its place behind the end of the file already: it was promised to somebody.
    kept: Vec<Extent>,
}

impl Before {
    fn add_hole(&mut self, hole: Extent) {
        self.missing_bytes += hole.byte_count();
        if !hole.is_empty() && self.holes.len() < PARTS_MAX {
            self.holes.push(hole);
        }
    }
}

impl ObjectFile {
    /// Allocates an extent and its checksums, if that leaves the reserve alone; or takes nothing. What is believed without checksums
    /// (`is_lenient`) is written without room for them, too.
    pub(super) fn reserve(&self, extent: Extent, left: Left, is_lenient: bool) -> Result<(), StoreError> {
        let failed = |error: io::Error| self.change_error("allocate an object", &error, extent.end);
        let data =
            Extent::new(block_floor(stored_offset(extent.start)), block_ceil(stored_length(extent.end)));
        let taken = [Extent::at(checksums_at(extent.start), BLOCK_BYTES), data];
        let file_bytes = self.file.metadata().map_err(failed)?.len();
        let before = self.look(taken, file_bytes).map_err(failed)?;
        if left.is_some_and(|left| left() < before.missing_bytes) {
            return Err(StoreError::NoSpace);
        }
        let keep_size = libc::FALLOC_FL_KEEP_SIZE;
        let allocate = |part: Extent| {
            device::allocate(&self.file, keep_size, part.start, part.byte_count()).map_err(failed)
        };
        let [checksums, data] = taken;
        let reserved = allocate(data).and_then(|()| match allocate(checksums) {
            Err(StoreError::NoSpace) if is_lenient => Ok(()),
            allocated => allocated,
        });
        // Others take of the same device meanwhile.
        let is_in_reserve = before.missing_bytes > 0 && left.is_some_and(|left| left() == 0);
        let reserved = if is_in_reserve { reserved.and(Err(StoreError::NoSpace)) } else { reserved };
        if reserved.is_err() {
            give_back(&self.file, &before, file_bytes);
        }
        reserved
    }

    fn look(&self, taken: [Extent; 2], file_bytes: u64) -> io::Result<Before> {
        let mut before = Before::default();
        for part in taken {
            let mut next = part.start;
            device::visit_mapped(&self.file, part, &mut |mapped| {
                before.add_hole(Extent::new(next, mapped.start.min(part.end)));
                next = next.max(mapped.end);
            })?;
            before.add_hole(Extent::new(next, part.end));
        }
        if taken.iter().any(|part| part.end > file_bytes) {
            let behind = Extent::new(file_bytes, i64::MAX as u64);
            device::visit_mapped(&self.file, behind, &mut |mapped| {
                if before.kept.len() < PARTS_MAX {
                    before.kept.push(Extent::new(mapped.start.max(file_bytes), mapped.end));
                }
            })?;
        }
        Ok(before)
    }
}

/// What was allocated in holes is theirs no more. What cannot be given back stays with the object until it is punched.
fn give_back(file: &File, before: &Before, file_bytes: u64) {
    for hole in before.holes.iter().filter(|hole| hole.start < file_bytes) {
        punch_but_data(file, *hole);
    }
    if before.holes.iter().any(|hole| hole.end > file_bytes) {
        // Behind the end a punch does nothing on ext4, and this takes all that is there.
        let _ = device::set_length(file, file_bytes);
        for kept in &before.kept {
            let _ = device::allocate(file, libc::FALLOC_FL_KEEP_SIZE, kept.start, kept.byte_count());
        }
    }
}

/// Before Linux 6.9 the map of ext4 may call a hole what is getting its place on the device at that moment.
fn punch_but_data(file: &File, hole: Extent) {
    let punch = |start: u64, end: u64| {
        let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        if start < end {
            let _ = device::allocate(file, flags, start, end - start);
        }
    };
    let mut next = hole.start;
    let visited = device::visit_data(file, hole, &mut |data| {
        punch(next, data.start);
        next = data.end;
    });
    if visited.is_ok() {
        punch(next, hole.end);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn what_is_given_back_holds_no_data() {
        let file = tempfile::tempfile().unwrap();
        let size_bytes = 16 * BLOCK_BYTES;
        file.set_len(size_bytes).unwrap();
        let all = Extent::new(0, size_bytes);
        device::allocate(&file, libc::FALLOC_FL_KEEP_SIZE, 0, size_bytes).unwrap();
        let data = vec![7; 2 * BLOCK_BYTES as usize];
        file.write_all_at(&data, 5 * BLOCK_BYTES).unwrap();
        let before = Before { missing_bytes: size_bytes, holes: vec![all], kept: Vec::new() };
        give_back(&file, &before, size_bytes);
        let mut read = vec![0; data.len()];
        file.read_exact_at(&mut read, 5 * BLOCK_BYTES).unwrap();
        assert!(read == data, "the map had it for a hole");
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().blocks() * 512, data.len() as u64, "and all else is a hole");
    }
}
