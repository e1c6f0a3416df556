//! The reserve of a metadata target: when to refuse what consumes, and a ballast file for the very end.

use crate::device;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use store::{Reserve, Space};

/// Consuming operations are refused below this share of the device, in percent…
const RESERVE_PERCENT: u64 = 3;
/// … or below this many bytes, whichever is more.
const RESERVE_BYTES_MIN: u64 = 16 << 20;
/// Below this the ballast goes: less than one checkpoint of deletions needs.
const EXHAUSTED_BYTES: u64 = 2 << 20;
/// As a share of the device, and its bounds.
const BALLAST_SHARE: u64 = 64;
const BALLAST_BYTES_MIN: u64 = 2 << 20;
const BALLAST_BYTES_MAX: u64 = 8 << 20;
/// How old the answer about the device may be. Grants are bounded by the reserve, so others cannot eat it this fast.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);
/// How much this target may have logged since. A fast writer fills a small device within the interval.
const REFRESH_BYTES: u64 = 1 << 20;
/// How old the answer may be that an object store gives: 25 ms of the fastest disks, for other targets write to the same device.
const RECENT_MS: u64 = 25;

const _: () = assert!(REFRESH_BYTES * 8 <= RESERVE_BYTES_MIN);

/// What is held back on a device of this size.
pub(crate) fn reserve_bytes(space: &Space) -> u64 {
    (space.total_bytes / 100 * RESERVE_PERCENT).max(RESERVE_BYTES_MIN)
}

/// The space under a path after the reserve; zeros if the device does not answer.
pub(crate) fn space_after_reserve(path: &Path) -> Space {
    keep_reserve(device::space(path).unwrap_or_default())
}

fn keep_reserve(mut space: Space) -> Space {
    space.reserve_bytes = reserve_bytes(&space);
    space.avail_bytes = space.avail_bytes.saturating_sub(space.reserve_bytes);
    space
}

/// The space of a device that is asked for with every write, and measured seldom.
pub(crate) struct Recent {
    path: PathBuf,
    opened: Instant,
    /// Written since it was measured, or more than is written before the next time.
    since_bytes: AtomicU64,
    /// When, in ms since it was opened, and what the device said.
    measured: Mutex<(u64, Option<Space>)>,
}

impl Recent {
    pub fn new(path: PathBuf) -> Recent {
        Recent {
            path,
            opened: Instant::now(),
            since_bytes: AtomicU64::new(u64::MAX / 2),
            measured: Mutex::default(),
        }
    }

    /// So many bytes are about to go to the device.
    pub fn note_written(&self, byte_count: u64) {
        self.since_bytes.fetch_add(byte_count, Ordering::Relaxed);
    }

    /// Room was given back, or taken by something else than bytes.
    pub fn forget(&self) {
        self.since_bytes.store(u64::MAX / 2, Ordering::Relaxed);
    }

    fn space(&self) -> Option<Space> {
        let now_ms = self.opened.elapsed().as_millis() as u64;
        let mut measured = self.measured.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_old = now_ms.saturating_sub(measured.0) >= RECENT_MS;
        if is_old || self.since_bytes.load(Ordering::Relaxed) >= REFRESH_BYTES {
            self.since_bytes.store(0, Ordering::Relaxed);
            *measured = (now_ms, device::space(&self.path).ok());
        }
        let since_bytes = self.since_bytes.load(Ordering::Relaxed);
        measured.1.map(|space| Space { avail_bytes: space.avail_bytes.saturating_sub(since_bytes), ..space })
    }

    /// What the device has left, without what this target has written since; `None` if it does not answer.
    pub fn avail_bytes(&self) -> Option<u64> {
        self.space().map(|space| space.avail_bytes)
    }

    /// The same as `space_after_reserve`, a little later.
    pub fn after_reserve(&self) -> Space {
        keep_reserve(self.space().unwrap_or_default())
    }
}

/// A file that only holds space. Giving it up lets deletions go on, down to the last block of the device.
#[derive(Debug)]
pub(crate) struct Ballast {
    path: PathBuf,
    held: Mutex<Option<File>>,
    byte_count: u64,
}

impl Ballast {
    /// Takes the space if there is enough.
    pub fn take(path: PathBuf, space: &Space) -> Ballast {
        let byte_count = (space.total_bytes / BALLAST_SHARE).clamp(BALLAST_BYTES_MIN, BALLAST_BYTES_MAX);
        // What an earlier opening took is still there to be given up.
        let there = device::open(&path, false).ok();
        let held = there.filter(|file| file.metadata().is_ok_and(|metadata| metadata.len() > 0));
        let ballast = Ballast { path, held: Mutex::new(held), byte_count };
        ballast.retake(space);
        ballast
    }

    /// None, for who writes nothing.
    pub fn none() -> Ballast {
        Ballast { path: PathBuf::new(), held: Mutex::new(None), byte_count: 0 }
    }

    /// Takes the space again once there is room for it and for the reserve.
    pub fn retake(&self, space: &Space) {
        let mut held = self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if held.is_some() || space.avail_bytes < reserve_bytes(space) {
            return;
        }
        let taken = device::open(&self.path, true)
            .and_then(|file| device::allocate(&file, 0, 0, self.byte_count).map(|()| file));
        *held = taken.ok();
    }

    /// Whether there was something to give up.
    pub fn release(&self) -> bool {
        let mut held = self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match held.take() {
            Some(file) => {
                tracing::warn!("the device is full: the ballast is released, only deletions go on");
                device::set_length(&file, 0).is_ok()
            }
            None => false,
        }
    }
}

/// What this target is about to take of its device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    /// Room that rows need which are in the log and not in the base yet. The log gives its own room back only after
    /// they have found theirs.
    pub owed_bytes: u64,
    /// Logged since the target was opened; only grows.
    pub appended_bytes: u64,
}

/// How much of the reserve is left, asked often and measured seldom.
pub(crate) struct Gauge {
    path: PathBuf,
    opened: Instant,
    measured_ms: AtomicU64,
    measured_at_bytes: AtomicU64,
    total_bytes: AtomicU64,
    avail_bytes: AtomicU64,
    unused_bytes: AtomicU64,
}

impl Gauge {
    pub fn new(path: PathBuf) -> Gauge {
        let gauge = Gauge {
            path,
            opened: Instant::now(),
            measured_ms: AtomicU64::new(0),
            measured_at_bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            // A device that never answered is not known to be full.
            avail_bytes: AtomicU64::new(u64::MAX),
            unused_bytes: AtomicU64::new(0),
        };
        gauge.measure();
        gauge
    }

    pub fn reserve(&self, demand: Demand) -> Reserve {
        let now_ms = self.opened.elapsed().as_millis() as u64;
        let age_ms = now_ms.saturating_sub(self.measured_ms.load(Ordering::Relaxed));
        let since_bytes =
            demand.appended_bytes.saturating_sub(self.measured_at_bytes.load(Ordering::Relaxed));
        if age_ms > REFRESH_INTERVAL.as_millis() as u64 || since_bytes >= REFRESH_BYTES {
            self.measured_ms.store(now_ms, Ordering::Relaxed);
            self.measured_at_bytes.store(demand.appended_bytes, Ordering::Relaxed);
            self.measure();
        }
        let avail_bytes = self.avail_bytes.load(Ordering::Relaxed);
        let room_bytes = avail_bytes.saturating_add(self.unused_bytes.load(Ordering::Relaxed));
        reserve_of(&Space {
            total_bytes: self.total_bytes.load(Ordering::Relaxed),
            avail_bytes: room_bytes.saturating_sub(demand.owed_bytes),
            ..Space::default()
        })
    }

    /// Room on the device alone, as it was when `reserve` was asked last.
    pub fn own_bytes(&self) -> u64 {
        self.avail_bytes.load(Ordering::Relaxed)
    }

    /// Room inside the target's own files, which deletions made. Measures, too: a checkpoint took from the device.
    pub fn set_unused(&self, unused_bytes: u64) {
        self.unused_bytes.store(unused_bytes, Ordering::Relaxed);
        self.measure();
    }

    fn measure(&self) {
        let Ok(space) = device::space(&self.path) else { return };
        self.total_bytes.store(space.total_bytes, Ordering::Relaxed);
        self.avail_bytes.store(space.avail_bytes, Ordering::Relaxed);
    }
}

pub(crate) fn reserve_of(space: &Space) -> Reserve {
    if space.avail_bytes <= EXHAUSTED_BYTES {
        Reserve::Exhausted
    } else if space.avail_bytes <= reserve_bytes(space) {
        Reserve::Low
    } else {
        Reserve::Ample
    }
}
