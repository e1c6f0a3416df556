//! Memory for what is read of a file, where a device fills it at once.
//!
//! A MiB in ordinary pages is 256 places: as many segments of the device's request, as many pages to be found and held. In huge
//! pages it is one or two, and a virtual disk reads more than twice as fast for it (docs/performance.md). Huge pages are of 2 MiB, so
//! pieces lie side by side in slabs, which are never given back: what is free beyond a bound keeps its address only.

use base::buffers::Buffer;
use bytes::Bytes;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A MiB, and whole blocks around it.
const PIECE_BYTES: usize = (1 << 20) + (8 << 10);
/// Smaller reads take less than a device does for their pages.
const PIECE_BYTES_MIN: usize = 256 << 10;
const PIECES_PER_SLAB: usize = 15;
const SLAB_BYTES: usize = 16 << 20;
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Pieces that keep their memory while nobody uses them: more than are read at a time.
const WARM_COUNT_MAX: usize = 32;

const _: () = assert!(PIECES_PER_SLAB * PIECE_BYTES <= SLAB_BYTES);
const _: () = assert!(PIECE_BYTES.is_multiple_of(4096), "a direct read may begin anywhere that a piece does");

static FREE: Mutex<Free> = Mutex::new(Free { warm: Vec::new(), cold: Vec::new() });

/// Places that nobody uses. The cold ones have no memory.
struct Free {
    warm: Vec<Place>,
    cold: Vec<Place>,
}

/// Where a piece is. Of two owners of one there is none.
#[derive(Debug)]
struct Place(NonNull<u8>);

// SAFETY: it is memory of the process, which any thread may use, and has one owner.
unsafe impl Send for Place {}
// SAFETY: as above; a shared one is only read.
unsafe impl Sync for Place {}

/// A piece of its owner's, filled from its start.
#[derive(Debug)]
struct Piece {
    place: Place,
    byte_count: usize,
}

impl Piece {
    /// An empty one; `None` when the kernel gives no more addresses.
    fn take() -> Option<Piece> {
        let mut free = lock();
        let place = match free.warm.pop().or_else(|| free.cold.pop()) {
            Some(place) => place,
            None => {
                free.cold.extend(new_slab()?);
                free.cold.pop()?
            }
        };
        Some(Piece { place, byte_count: 0 })
    }

    fn start(&self) -> *mut u8 {
        self.place.0.as_ptr()
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: so many bytes of the piece were written (`advance`), and it is nobody else's as long as this lives.
        unsafe { std::slice::from_raw_parts(self.start(), self.byte_count) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let place = Place(self.place.0);
        {
            let mut free = lock();
            if free.warm.len() < WARM_COUNT_MAX {
                return free.warm.push(place);
            }
        }
        // SAFETY: these are pages of a slab that nobody else has. What they hold is of no use any more.
        unsafe { libc::madvise(self.start().cast(), PIECE_BYTES, libc::MADV_DONTNEED) };
        lock().cold.push(place);
    }
}

/// Addresses for more pieces, which take memory when they are piece.
fn new_slab() -> Option<impl Iterator<Item = Place>> {
    let length = SLAB_BYTES + HUGE_PAGE_BYTES;
    // SAFETY: a new mapping, which is nobody's yet.
    let mapped = unsafe {
        libc::mmap(
            ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    let start = mapped.cast::<u8>().wrapping_add(mapped.cast::<u8>().align_offset(HUGE_PAGE_BYTES));
    // SAFETY: the mapping reaches so far behind its first huge page. Where there are no huge pages it goes without.
    unsafe { libc::madvise(start.cast(), SLAB_BYTES, libc::MADV_HUGEPAGE) };
    let places = (0..PIECES_PER_SLAB).map(move |at| start.wrapping_add(at * PIECE_BYTES));
    Some(places.filter_map(NonNull::new).map(Place))
}

fn lock() -> MutexGuard<'static, Free> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is read of a file, behind each other.
#[derive(Debug)]
pub(crate) struct ReadBuffer(Memory);

#[derive(Debug)]
enum Memory {
    Small(Buffer),
    Large(Piece),
}

impl ReadBuffer {
    /// An empty one with room for at least `byte_count` bytes, where a direct read of them may begin.
    pub fn with_capacity(byte_count: usize) -> ReadBuffer {
        let is_large = (PIECE_BYTES_MIN..=PIECE_BYTES).contains(&byte_count);
        let piece = if is_large { Piece::take() } else { None };
        let small = || Memory::Small(Buffer::with_capacity(byte_count));
        ReadBuffer(piece.map_or_else(small, Memory::Large))
    }

    pub fn len(&self) -> usize {
        match &self.0 {
            Memory::Small(bytes) => bytes.len(),
            Memory::Large(piece) => piece.byte_count,
        }
    }

    /// Zeros up to where a direct read may begin. -> How many.
    pub fn align(&mut self, block_bytes: usize) -> usize {
        match &mut self.0 {
            Memory::Small(bytes) => {
                let padding = bytes.as_ptr_range().end.align_offset(block_bytes);
                let aligned = bytes.len() + padding;
                bytes.resize(aligned, 0);
                padding
            }
            Memory::Large(_) => 0,
        }
    }

    /// Where the next `byte_count` bytes go.
    ///
    /// # Panics
    /// They are more than this has room for.
    pub fn room(&mut self, byte_count: usize) -> *mut u8 {
        match &mut self.0 {
            Memory::Small(bytes) => {
                bytes.reserve(byte_count);
                bytes.spare_capacity_mut().as_mut_ptr().cast()
            }
            Memory::Large(piece) => {
                assert!(byte_count <= PIECE_BYTES - piece.byte_count);
                piece.start().wrapping_add(piece.byte_count)
            }
        }
    }

    /// # Safety
    /// `room` gave room for these bytes, and they were written.
    pub unsafe fn advance(&mut self, byte_count: usize) {
        match &mut self.0 {
            Memory::Small(bytes) => {
                let end = bytes.len() + byte_count;
                // SAFETY: as the caller says.
                unsafe { bytes.set_len(end) };
            }
            Memory::Large(piece) => piece.byte_count += byte_count,
        }
    }

    pub fn truncate(&mut self, byte_count: usize) {
        match &mut self.0 {
            Memory::Small(bytes) => bytes.truncate(byte_count),
            Memory::Large(piece) => piece.byte_count = piece.byte_count.min(byte_count),
        }
    }

    /// What was read.
    pub fn freeze(self) -> Bytes {
        match self.0 {
            Memory::Small(bytes) => bytes.freeze(),
            Memory::Large(piece) => Bytes::from_owner(piece),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel says of the mapping that has this address.
    fn flags_of_mapping(address: usize) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut is_it = false;
        for line in maps.lines() {
            if let Some((start, end)) = line.split_once(' ').and_then(|(range, _)| range.split_once('-'))
                && let (Ok(start), Ok(end)) =
                    (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
            {
                is_it = (start..end).contains(&address);
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_it) {
                return Some(flags.to_owned());
            }
        }
        None
    }

    fn filled(byte_count: usize, with: u8) -> ReadBuffer {
        let mut buffer = ReadBuffer::with_capacity(byte_count);
        let room = buffer.room(byte_count);
        // SAFETY: there is room for so many bytes.
        unsafe { room.write_bytes(with, byte_count) };
        // SAFETY: they were written.
        unsafe { buffer.advance(byte_count) };
        buffer
    }

    #[test]
    fn each_piece_is_its_owner_s_alone_and_those_that_are_free_keep_little() {
        for _ in 0..3 {
            let held: Vec<Bytes> = (0..100).map(|at| filled(1 << 20, at).freeze()).collect();
            for (at, bytes) in held.iter().enumerate() {
                assert_eq!(bytes.len(), 1 << 20);
                assert!(bytes.iter().all(|byte| *byte == at as u8));
            }
            drop(held);
            assert!(lock().warm.len() <= WARM_COUNT_MAX);
        }
        assert!(lock().cold.len() < 1000, "places are used again");
    }

    #[test]
    fn a_direct_read_may_begin_behind_what_an_aligned_one_holds() {
        for byte_count in
            [1, PIECE_BYTES_MIN - 1, PIECE_BYTES_MIN, 1 << 20, PIECE_BYTES, PIECE_BYTES + 1, 4 << 20]
        {
            let mut buffer = ReadBuffer::with_capacity(byte_count + 4096);
            let padding = buffer.align(4096);
            assert!(padding < 4096 && buffer.len() == padding);
            assert_eq!(buffer.room(byte_count).align_offset(4096), 0, "{byte_count}");
        }
        let mut buffer = filled(PIECE_BYTES, 7);
        buffer.truncate(10);
        assert_eq!(buffer.len(), 10);
        assert_eq!(buffer.freeze(), [7; 10][..]);
    }

    #[test]
    fn pieces_are_of_huge_pages_where_the_kernel_has_them() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        let mut buffer = ReadBuffer::with_capacity(1 << 20);
        let address = buffer.room(1) as usize;
        let flags = flags_of_mapping(address).expect("it is mapped");
        assert!(flags.split_whitespace().any(|flag| flag == "hg"), "{flags}");
    }

    #[test]
    #[should_panic(expected = "PIECE_BYTES - piece.byte_count")]
    fn no_piece_is_filled_beyond_its_end() {
        filled(PIECE_BYTES, 1).room(1);
    }
}
