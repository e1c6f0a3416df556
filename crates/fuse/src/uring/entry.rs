//! The buffers of one ring entry.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use zerocopy::{FromBytes, IntoBytes};

use crate::abi;
use crate::decode::Frame;
use crate::sys;

/// No page is smaller.
const _: () = assert!(abi::URING_HEADER_SIZE <= 4096);
/// Less is not worth the call.
const TRIMMED_BYTES_MIN: usize = 64 << 10;

/// Buffers that the kernel writes a request into and reads the answer from.
///
/// Who may touch them: the kernel, until the completion of the registration or of the last commit; then the ring thread,
/// to decode; then the holder of the one [`super::Ticket`]; then, after the commit, the kernel again.
#[derive(Debug)]
pub(super) struct Entry {
    base: *mut u8,
    payload_size: usize,
    iovecs: [libc::iovec; 2],
    /// The request that is out, or 0.
    unique: AtomicU64,
    is_handed_over: AtomicBool,
    /// When it was taken, in milliseconds of [`super::Rings`]; 0 when nothing is out.
    taken_ms: AtomicU64,
    /// Thread id of the caller, or 0 when its pending signals need no look (any more).
    unchecked_pid: AtomicU32,
    /// Of the answer: 0 or a negative errno.
    error: AtomicI32,
    /// Bytes of the payload that have memory.
    used_bytes: AtomicUsize,
    /// Those of the answer that was written last.
    answer_bytes: AtomicUsize,
}

// SAFETY: the raw pointers are to a mapping that the entry owns; the access rules above keep it exclusive.
unsafe impl Send for Entry {}
// SAFETY: as above; `&Entry` gives access to the buffers only through methods whose callers hold the right.
unsafe impl Sync for Entry {}

impl Entry {
    /// Maps new buffers. Memory is used only once it is written. Headers and payload share one mapping; the headers take the first page, so
    /// that the payload can be given back page by page.
    pub fn new(payload_size: usize) -> io::Result<Self> {
        let base = map(page_bytes() + payload_size)?;
        // SAFETY: the offset is within the mapping.
        let payload = unsafe { base.cast::<u8>().add(page_bytes()) };
        Ok(Self {
            base: base.cast(),
            payload_size,
            iovecs: [
                libc::iovec { iov_base: base, iov_len: abi::URING_HEADER_SIZE },
                libc::iovec { iov_base: payload.cast(), iov_len: payload_size },
            ],
            unique: AtomicU64::new(0),
            is_handed_over: AtomicBool::new(false),
            taken_ms: AtomicU64::new(0),
            unchecked_pid: AtomicU32::new(0),
            error: AtomicI32::new(0),
            used_bytes: AtomicUsize::new(0),
            answer_bytes: AtomicUsize::new(0),
        })
    }

    /// The pair that a registration names.
    pub fn iovecs(&self) -> *const libc::iovec {
        self.iovecs.as_ptr()
    }

    fn payload(&self) -> *mut u8 {
        self.iovecs[1].iov_base.cast()
    }

    /// The request in the buffers, and the number that its commit must carry.
    ///
    /// # Safety
    /// Only the ring thread, after a completion and before a ticket exists; the frame must be gone when one does.
    pub unsafe fn frame(&self) -> (Frame<'_>, u64) {
        // SAFETY: the mapping is at least this long and nobody writes it while the caller keeps the contract.
        let head = unsafe { std::slice::from_raw_parts(self.base, abi::URING_HEADER_SIZE) };
        let (in_out, rest) = head.split_at(abi::URING_IN_OUT_SIZE);
        let (op, ent) = rest.split_at(abi::URING_OP_IN_SIZE);
        // Neither can fail: the lengths are constants. A default would be refused as a request without operation.
        let header = abi::InHeader::read_from_prefix(in_out).map(|(h, _)| h).unwrap_or_default();
        let ent = abi::UringEntInOut::read_from_prefix(ent).map(|(e, _)| e).unwrap_or_default();
        let len = (ent.payload_sz as usize).min(self.payload_size);
        self.used_bytes.fetch_max(len, Ordering::Relaxed);
        // SAFETY: as above; `len` is within the payload part.
        let payload = unsafe { std::slice::from_raw_parts(self.payload(), len) };
        (Frame { header, op, payload }, ent.commit_id)
    }

    /// Notes what is out.
    pub fn set_taken(&self, unique: u64, pid: u32, now_ms: u64) {
        self.is_handed_over.store(false, Ordering::SeqCst);
        self.unchecked_pid.store(pid, Ordering::Relaxed);
        self.taken_ms.store(now_ms, Ordering::Relaxed);
        self.unique.store(unique, Ordering::SeqCst);
    }

    /// Notes that the handler knows `unique`; it may have answered already.
    pub fn set_handed_over(&self, unique: u64) {
        if self.unique.load(Ordering::SeqCst) == unique {
            self.is_handed_over.store(true, Ordering::SeqCst);
        }
    }

    /// Whether `unique` is out and the handler knows it.
    pub fn is_handed_over(&self, unique: u64) -> bool {
        self.unique.load(Ordering::SeqCst) == unique && self.is_handed_over.load(Ordering::SeqCst)
    }

    /// The request that is out, with its age at `now_ms`.
    pub fn out(&self, now_ms: u64) -> Option<(u64, u64)> {
        let (unique, taken_ms) = (self.unique.load(Ordering::SeqCst), self.taken_ms.load(Ordering::Relaxed));
        (unique != 0 && taken_ms != 0).then(|| (unique, now_ms.saturating_sub(taken_ms)))
    }

    /// The caller's thread id, once.
    pub fn take_unchecked_pid(&self) -> Option<u32> {
        Some(self.unchecked_pid.swap(0, Ordering::Relaxed)).filter(|&pid| pid != 0)
    }

    /// What the answer that was written last says: 0 or a negative errno.
    pub fn error(&self) -> i32 {
        self.error.load(Ordering::SeqCst)
    }

    /// Writes the answer for the commit. Only the holder of the ticket calls this, once.
    pub fn write_answer(&self, unique: u64, mut error: i32, mut parts: &[&[u8]]) {
        self.taken_ms.store(0, Ordering::Relaxed);
        self.unique.store(0, Ordering::SeqCst);
        let mut len: usize = parts.iter().map(|part| part.len()).sum();
        if len > self.payload_size {
            tracing::error!(
                unique,
                len,
                "an answer is greater than any request can ask for; its caller gets EIO"
            );
            (error, parts, len) = (-libc::EIO, &[], 0);
        }
        self.error.store(error, Ordering::SeqCst);
        self.answer_bytes.store(len, Ordering::Relaxed);
        self.used_bytes.fetch_max(len, Ordering::Relaxed);
        let header = abi::OutHeader { len: (16 + len) as u32, error, unique };
        let sizes = [(len as u32).to_ne_bytes()];
        // Offset of `payload_sz` in the per-entry structure.
        const PAYLOAD_SZ_AT: usize = abi::URING_ENT_OFFSET + 16;
        // SAFETY: the ticket makes us the only one to touch the buffers; both targets are within the header page.
        unsafe {
            std::ptr::copy_nonoverlapping(header.as_bytes().as_ptr(), self.base, 16);
            std::ptr::copy_nonoverlapping(sizes.as_ptr().cast(), self.base.add(PAYLOAD_SZ_AT), 4);
        }
        let mut at = 0;
        for part in parts {
            // SAFETY: as above; the sum of the lengths was checked against the payload part. A part cannot overlap
            // the mapping, because nobody outside this module has references into it.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), self.payload().add(at), part.len()) };
            at += part.len();
        }
    }

    /// Bytes of the payload that have memory.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Gives the memory back that the answer does not need: how many bytes.
    ///
    /// # Safety
    /// Only between the answer and its commit, by who commits it: from then on the kernel may write another request there.
    pub unsafe fn trim(&self) -> usize {
        let used = self.used_bytes.load(Ordering::Relaxed).next_multiple_of(page_bytes());
        let kept = self.answer_bytes.load(Ordering::Relaxed).next_multiple_of(page_bytes());
        if used < kept + TRIMMED_BYTES_MIN {
            return 0;
        }
        // SAFETY: whole pages of the mapping, since the payload begins at one and what is past its end belongs to its last page.
        let done =
            unsafe { libc::madvise(self.payload().add(kept).cast(), used - kept, libc::MADV_DONTNEED) };
        if done != 0 {
            return 0;
        }
        self.used_bytes.store(kept, Ordering::Relaxed);
        used - kept
    }
}

/// Whether so many entries could be had now.
pub(super) fn can_map(count: usize, payload_size: usize) -> bool {
    let len = (page_bytes() + payload_size).saturating_mul(count);
    // SAFETY: the mapping is new, and nobody else knows of it.
    map(len).map(|base| unsafe { libc::munmap(base, len) }).is_ok()
}

fn map(len: usize) -> io::Result<*mut libc::c_void> {
    // SAFETY: a new anonymous mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base) }
}

fn page_bytes() -> usize {
    sys::page_size() as usize
}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and, as the last reference goes, unused: the ring was dropped before its slots.
        unsafe { libc::munmap(self.base.cast(), page_bytes() + self.payload_size) };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_entry_gives_back_the_memory_that_its_answer_does_not_need() {
        let size = 1 << 20;
        let entry = Entry::new(size).unwrap();
        let large = vec![7; size];
        entry.write_answer(1, 0, &[&large]);
        // SAFETY: nobody else has the entry.
        assert_eq!(unsafe { entry.trim() }, 0, "the answer is still needed");
        entry.write_answer(2, 0, &[b"short"]);
        // SAFETY: as above.
        assert_eq!(unsafe { entry.trim() }, size - page_bytes());
        // SAFETY: as above.
        let payload = unsafe { std::slice::from_raw_parts(entry.payload(), size) };
        assert_eq!(payload[..6], *b"short\x07");
        assert!(payload[page_bytes()..].iter().all(|byte| *byte == 0));
        // SAFETY: as above.
        assert_eq!(unsafe { entry.trim() }, 0, "once");
    }
}
