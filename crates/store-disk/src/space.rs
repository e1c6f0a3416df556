//! The reserve of a metadata target: when to refuse what consumes, and a ballast file for the very end.

use crate::device;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
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

/// What is held back on a device of this size.
pub(crate) fn reserve_bytes(space: &Space) -> u64 {
    (space.total_bytes / 100 * RESERVE_PERCENT).max(RESERVE_BYTES_MIN)
}

/// The space under a path after the reserve; zeros if the device does not answer.
pub(crate) fn space_after_reserve(path: &Path) -> Space {
    let mut space = device::space(path).unwrap_or_default();
    space.avail_bytes = space.avail_bytes.saturating_sub(reserve_bytes(&space));
    space
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
                file.set_len(0).is_ok()
            }
            None => false,
        }
    }
}

/// How much of the reserve is left, asked often and measured seldom.
pub(crate) struct Gauge {
    path: PathBuf,
    opened: Instant,
    measured_ms: AtomicU64,
    reserve: AtomicU8,
    unused_bytes: AtomicU64,
}

impl Gauge {
    pub fn new(path: PathBuf) -> Gauge {
        let gauge = Gauge {
            path,
            opened: Instant::now(),
            measured_ms: AtomicU64::new(0),
            reserve: AtomicU8::new(0),
            unused_bytes: AtomicU64::new(0),
        };
        gauge.measure();
        gauge
    }

    pub fn reserve(&self) -> Reserve {
        let now_ms = self.opened.elapsed().as_millis() as u64;
        if now_ms.saturating_sub(self.measured_ms.load(Ordering::Relaxed))
            > REFRESH_INTERVAL.as_millis() as u64
        {
            self.measured_ms.store(now_ms, Ordering::Relaxed);
            self.measure();
        }
        match self.reserve.load(Ordering::Relaxed) {
            0 => Reserve::Ample,
            1 => Reserve::Low,
            _ => Reserve::Exhausted,
        }
    }

    /// Room inside the target's own files, which deletions made.
    pub fn set_unused(&self, unused_bytes: u64) {
        self.unused_bytes.store(unused_bytes, Ordering::Relaxed);
    }

    fn measure(&self) {
        let Ok(mut space) = device::space(&self.path) else { return };
        space.avail_bytes += self.unused_bytes.load(Ordering::Relaxed);
        self.reserve.store(reserve_of(&space) as u8, Ordering::Relaxed);
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
