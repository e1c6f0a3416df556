//! Memory for what is read of a file, where a device fills it at once.
//!
//! A MiB in ordinary pages is 256 places: as many segments of the device's request, as many pages to be found and held. In huge
//! pages it is one or two, and a virtual disk reads more than twice as fast for it (docs/performance.md). Huge pages are of 2 MiB, so
//! pieces lie side by side in slabs. A slab gives its memory back as a whole, when nobody has any of its pieces: huge pages of which a part
//! goes become small ones.

use base::buffers::Buffer;
use bytes::Bytes;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A MiB, and whole blocks around it.
const PIECE_BYTES: usize = (1 << 20) + (8 << 10);
/// Smaller reads would leave memory unused that nobody counts.
const PIECE_BYTES_MIN: usize = 768 << 10;
const PIECES_PER_SLAB: u32 = 15;
const SLAB_BYTES: usize = 16 << 20;
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Slabs that keep their memory while nobody uses them.
const IDLE_COUNT_MAX: usize = 3;
/// All pieces of a slab.
const ALL: u32 = (1 << PIECES_PER_SLAB) - 1;

const _: () = assert!(PIECES_PER_SLAB as usize * PIECE_BYTES <= SLAB_BYTES);
const _: () = assert!(PIECE_BYTES.is_multiple_of(4096), "a direct read may begin anywhere that a piece does");

static SLABS: Mutex<Vec<Slab>> = Mutex::new(Vec::new());

/// Addresses of pieces, which are never given back.
struct Slab {
    start: NonNull<u8>,
    /// A bit for each piece that nobody has.
    free: u32,
    has_memory: bool,
}

// SAFETY: it is memory of the process, which any thread may use; who may is told by `free`.
unsafe impl Send for Slab {}

/// A piece of its owner's, filled from its start.
#[derive(Debug)]
struct Piece {
    start: NonNull<u8>,
    byte_count: usize,
}

// SAFETY: it is memory of the process, which any thread may use, and has one owner.
unsafe impl Send for Piece {}
// SAFETY: as above; a shared one is only read.
unsafe impl Sync for Piece {}

impl Slab {
    /// Addresses, which take memory when they are filled; `None` when the kernel gives no more.
    fn new() -> Option<Slab> {
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
        let mapped = mapped.cast::<u8>();
        let start = mapped.wrapping_add(mapped.align_offset(HUGE_PAGE_BYTES));
        // SAFETY: the mapping reaches so far behind its first huge page. Where there are no huge pages it goes without.
        unsafe { libc::madvise(start.cast(), SLAB_BYTES, libc::MADV_HUGEPAGE) };
        Some(Slab { start: NonNull::new(start)?, free: ALL, has_memory: false })
    }

    fn is_idle(&self) -> bool {
        self.free == ALL && self.has_memory
    }

    /// One that nobody has; there must be one.
    fn take(&mut self) -> Piece {
        let at = self.free.trailing_zeros();
        assert!(at < PIECES_PER_SLAB);
        self.free &= !(1 << at);
        self.has_memory = true;
        // SAFETY: the mapping has room for all pieces behind its start.
        let start = unsafe { self.start.add(at as usize * PIECE_BYTES) };
        Piece { start, byte_count: 0 }
    }

    /// Which of its pieces begins there.
    fn index_of(&self, start: NonNull<u8>) -> Option<usize> {
        let offset = (start.as_ptr() as usize).checked_sub(self.start.as_ptr() as usize)?;
        (offset < SLAB_BYTES).then_some(offset / PIECE_BYTES)
    }

    fn give_memory_back(&mut self) {
        // SAFETY: nobody has any of it. What it holds is of no use any more.
        unsafe { libc::madvise(self.start.as_ptr().cast(), SLAB_BYTES, libc::MADV_DONTNEED) };
        self.has_memory = false;
    }
}

impl Piece {
    /// An empty one, of the slab that has the fewest left, so that others come to have all; `None` when the kernel gives no more addresses.
    fn take() -> Option<Piece> {
        let mut slabs = lock();
        let with_some = slabs.iter_mut().filter(|slab| slab.free != 0);
        if let Some(slab) = with_some.min_by_key(|slab| (slab.free.count_ones(), !slab.has_memory)) {
            return Some(slab.take());
        }
        let mut slab = Slab::new()?;
        let piece = slab.take();
        slabs.push(slab);
        Some(piece)
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: so many bytes of the piece were written (`advance`), and it is nobody else's as long as this lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.byte_count) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut slabs = lock();
        let idle_count = slabs.iter().filter(|slab| slab.is_idle()).count();
        let own = slabs.iter_mut().find_map(|slab| slab.index_of(self.start).map(|at| (slab, at)));
        let Some((slab, at)) = own else { unreachable!("each piece is of a slab") };
        assert!(slab.free & 1 << at == 0);
        slab.free |= 1 << at;
        if slab.is_idle() && idle_count >= IDLE_COUNT_MAX {
            slab.give_memory_back();
        }
    }
}

fn lock() -> MutexGuard<'static, Vec<Slab>> {
    SLABS.lock().unwrap_or_else(PoisonError::into_inner)
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
                piece.start.as_ptr().wrapping_add(piece.byte_count)
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
    fn each_piece_is_its_owner_s_alone_and_what_is_idle_keeps_little() {
        for _ in 0..3 {
            let mut held: Vec<Bytes> = (0..100).map(|at| filled(1 << 20, at).freeze()).collect();
            // Every other one goes, and comes again.
            let mut number = 0;
            held.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            held.extend((0..50).map(|at| filled(1 << 20, 2 * at).freeze()));
            let numbers = (0..100).skip(1).step_by(2).chain((0..100).step_by(2));
            for (bytes, number) in held.iter().zip(numbers) {
                assert_eq!(bytes.len(), 1 << 20);
                assert!(bytes.iter().all(|byte| *byte == number), "{number}");
            }
            drop(held);
            assert!(lock().iter().filter(|slab| slab.is_idle()).count() <= IDLE_COUNT_MAX);
        }
        assert!(lock().len() < 100, "places are used again");
    }

    #[test]
    fn a_slab_gives_all_of_its_memory_back_or_none() {
        let mut slab = Slab::new().expect("there are addresses");
        let (one, other) = (slab.take(), slab.take());
        assert_eq!(slab.index_of(one.start), Some(0));
        assert_eq!(slab.index_of(other.start), Some(1));
        assert_eq!(slab.free.count_ones(), PIECES_PER_SLAB - 2);
        // SAFETY: it is ours.
        unsafe { other.start.as_ptr().write_bytes(7, PIECE_BYTES) };
        slab.give_memory_back();
        // SAFETY: as above.
        assert_eq!(unsafe { other.start.as_ptr().read() }, 0);
        assert!(!slab.has_memory && !slab.is_idle());
        // They are of no slab that anybody knows.
        [one, other].into_iter().for_each(std::mem::forget);
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
