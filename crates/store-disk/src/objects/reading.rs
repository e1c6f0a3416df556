//! Which way data come from the device: through the kernel's page cache or past it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes that requests have read of objects, with those of blocks that they took in part. What was cached is among the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadUse {
    pub through_cache_bytes: u64,
    pub past_cache_bytes: u64,
}

/// Of one store.
#[derive(Default)]
pub(crate) struct Reading {
    /// Everything goes through the cache, as somebody has decided.
    is_cache_always: AtomicBool,
    /// Or since the kernel or the file system cannot do otherwise.
    is_refused: AtomicBool,
    through_cache_bytes: AtomicU64,
    past_cache_bytes: AtomicU64,
}

/// Of one request.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub reading: &'a Reading,
    /// Nobody waits for it yet.
    pub is_ahead: bool,
}

impl Reading {
    pub fn set_cache_always(&self, is_always: bool) {
        self.is_cache_always.store(is_always, Ordering::Relaxed);
    }

    pub fn is_cache_always(&self) -> bool {
        self.is_cache_always.load(Ordering::Relaxed)
    }

    pub fn is_past_cache(&self) -> bool {
        !self.is_cache_always() && !self.is_refused.load(Ordering::Relaxed)
    }

    /// For good: another try would cost a call each time.
    pub fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    pub fn add(&self, past_cache_bytes: usize, through_cache_bytes: usize) {
        self.past_cache_bytes.fetch_add(past_cache_bytes as u64, Ordering::Relaxed);
        self.through_cache_bytes.fetch_add(through_cache_bytes as u64, Ordering::Relaxed);
    }

    pub fn counts(&self) -> ReadUse {
        ReadUse {
            through_cache_bytes: self.through_cache_bytes.load(Ordering::Relaxed),
            past_cache_bytes: self.past_cache_bytes.load(Ordering::Relaxed),
        }
    }
}
