//! What the data of requests cost the local file system, for `brw_stats`.

use super::layout::{parts, written_parts};
use base::{Extent, Histogram};
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Of the reads, or of the writes. Not what a write has to read of a block that it changes in part, nor headers and checksums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Calls of the local file system for each request.
    pub calls: Histogram,
    /// Requests that were being executed when one began, itself included.
    pub in_flight: Histogram,
    /// Milliseconds for each request, with the wait for others of the same object.
    pub millis: Histogram,
    /// Bytes of each call.
    pub call_bytes: Histogram,
}

#[derive(Default)]
struct Side {
    in_flight: AtomicU64,
    counts: Mutex<DiskUse>,
}

/// Both, of one store.
#[derive(Default)]
pub(crate) struct Traffic {
    read: Side,
    write: Side,
}

impl Side {
    /// Runs a request, whose data take the calls of `parts`; one that fails is not counted.
    fn run<T, E, Parts: Iterator<Item = Extent>>(
        &self,
        request: impl FnOnce() -> Result<T, E>,
        parts: impl FnOnce(&T) -> Parts,
    ) -> Result<T, E> {
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        let began = Instant::now();
        let result = request();
        let millis = began.elapsed().as_millis() as u64;
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        if let Ok(done) = &result {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            let mut call_count = 0;
            for part in parts(done) {
                call_count += 1;
                counts.call_bytes.add(part.byte_count());
            }
            counts.calls.add_linear(call_count);
            counts.in_flight.add_linear(in_flight);
            counts.millis.add(millis);
        }
        result
    }

    fn counts(&self) -> DiskUse {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn clear(&self) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = DiskUse::default();
    }
}

impl Traffic {
    /// A read of bytes that begin at `offset_bytes`.
    pub fn read<E>(&self, offset_bytes: u64, request: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        self.read.run(request, |bytes| parts(Extent::at(offset_bytes, bytes.len() as u64)))
    }

    /// What a read of an extent waits for, before it is executed once more.
    pub fn fetch<E>(&self, extent: Extent, request: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        self.read.run(request, |()| parts(extent))
    }

    /// A write of an extent.
    pub fn write<E>(&self, extent: Extent, request: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        self.write.run(request, |()| written_parts(extent))
    }

    /// Of reads and of writes.
    pub fn counts(&self) -> (DiskUse, DiskUse) {
        (self.read.counts(), self.write.counts())
    }

    pub fn clear(&self) {
        self.read.clear();
        self.write.clear();
    }
}
