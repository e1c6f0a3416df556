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
    has_to_wait: AtomicBool,
    through_cache_bytes: AtomicU64,
    past_cache_bytes: AtomicU64,
    pub waits: Waits,
}

/// Whether a read that is not in memory is worth another thread. It is where others come meanwhile, or the device is slow; to wake a thread takes
/// as long as a fast device needs for a block. Who waits here sees nobody come, so one in a while is fetched to see whether somebody does.
#[derive(Default)]
pub(crate) struct Waits {
    /// `fetch` is to come, or has begun.
    fetch_count: AtomicU64,
    /// Others have come while something was fetched.
    is_crowded: AtomicBool,
    /// Since the last time that nothing was fetched.
    has_company: AtomicBool,
    alone_count: AtomicU64,
    /// How long a read takes for which somebody waited here. Nanoseconds.
    usual_ns: AtomicU64,
}

const FAST_NS: u64 = 150_000;
const IN_MEMORY_NS: u64 = 20_000;
/// Weight of the latest one is a part of so many.
const USUAL_PARTS: u64 = 8;
/// One of so many is fetched, where nobody else seems to come.
const PROBE_ONE_IN: u64 = 8;

impl Waits {
    fn is_to_be_waited_for(&self) -> bool {
        if self.fetch_count.load(Ordering::Relaxed) > 0 {
            self.has_company.store(true, Ordering::Relaxed);
            self.is_crowded.store(true, Ordering::Relaxed);
            return false;
        }
        let is_fast = self.usual_ns.load(Ordering::Relaxed) < FAST_NS;
        let is_alone = is_fast && !self.is_crowded.load(Ordering::Relaxed);
        is_alone && !(self.alone_count.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(PROBE_ONE_IN)
    }

    fn note(&self, took_ns: u64) {
        let usual_ns = self.usual_ns.load(Ordering::Relaxed);
        self.usual_ns.store(usual_ns - usual_ns / USUAL_PARTS + took_ns / USUAL_PARTS, Ordering::Relaxed);
    }

    /// Waits with `read` here, or says that somebody is to fetch it. The clock tells nanoseconds.
    pub fn wait<T>(&self, clock: impl Fn() -> u64, read: impl FnOnce() -> T) -> Option<T> {
        if !self.is_to_be_waited_for() {
            self.fetch_count.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let began_ns = clock();
        let done = read();
        self.note(clock().saturating_sub(began_ns));
        Some(done)
    }

    /// Fetches what `wait` has said.
    pub fn fetch<T>(&self, clock: impl Fn() -> u64, fetch: impl FnOnce() -> T) -> T {
        let began_ns = clock();
        let fetched = fetch();
        let took_ns = clock().saturating_sub(began_ns);
        // Beside others it takes longer, which says nothing of one alone; and no device is as fast as memory, where it may have been by then.
        if (IN_MEMORY_NS..self.usual_ns.load(Ordering::Relaxed)).contains(&took_ns) {
            self.note(took_ns);
        }
        if self.fetch_count.fetch_sub(1, Ordering::Relaxed) == 1 {
            let has_company = self.has_company.swap(false, Ordering::Relaxed);
            self.is_crowded.store(has_company, Ordering::Relaxed);
        }
        fetched
    }
}

/// Of one request.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub reading: &'a Reading,
    /// Nobody waits for it yet.
    pub is_ahead: bool,
    /// What is not in memory is not waited for: EAGAIN.
    pub is_at_once: bool,
}

impl Reading {
    /// Whether this kernel and file system can say that something is not in memory.
    pub fn can_be_at_once(&self) -> bool {
        !self.has_to_wait.load(Ordering::Relaxed)
    }

    pub fn refuse_at_once(&self) {
        self.has_to_wait.store(true, Ordering::Relaxed);
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn who_is_alone_waits_here_on_a_fast_device_and_others_do_not() {
        let now = Cell::new(0);
        let clock = || now.get();
        let pass = |ns| move |now: &Cell<u64>| now.set(now.get() + ns);
        let (fast, slow) = (pass(80_000), pass(5_000_000));
        let waits = Waits::default();
        let mut fetched_count = 0;
        for _ in 0..80 {
            if waits.wait(clock, || fast(&now)).is_none() {
                fetched_count += 1;
                waits.fetch(clock, || fast(&now));
            }
        }
        assert_eq!(fetched_count, 10, "one in a while looks whether others come");
        // Now somebody does.
        while waits.wait(clock, || fast(&now)).is_some() {}
        for _ in 0..100 {
            assert!(waits.wait(clock, || fast(&now)).is_none());
            waits.fetch(clock, || fast(&now));
        }
        waits.fetch(clock, || fast(&now));
        assert!(waits.wait(clock, || fast(&now)).is_none(), "it has been crowded until now");
        waits.fetch(clock, || fast(&now));
        assert!(waits.wait(clock, || fast(&now)).is_some(), "nobody else came");
        while waits.wait(clock, || slow(&now)).is_some() {}
        for _ in 0..20 {
            waits.fetch(clock, || slow(&now));
            assert!(waits.wait(clock, || slow(&now)).is_none(), "a slow device keeps all others");
        }
    }
}
