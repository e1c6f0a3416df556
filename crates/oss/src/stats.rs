//! What the target has done so far, for `obdfilter.*.stats` and `brw_stats`. Counted when a request is executed, also
//! when it is a replay; failed requests are counted apart.

use base::{Histogram, Status, WallTime};

/// Counter with the figures that a stats line shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    pub count: u64,
    pub min: u64,
    pub max: u64,
    pub sum: u64,
    pub sum_of_squares: u128,
}

impl Samples {
    pub fn add(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.sum_of_squares = self.sum_of_squares.saturating_add(u128::from(value) * u128::from(value));
    }
}

/// One direction of bulk traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BulkStats {
    pub bytes: Samples,
    /// Pages of 4 KiB per RPC.
    pub pages: Histogram,
}

impl BulkStats {
    pub fn add(&mut self, byte_count: u64) {
        self.bytes.add(byte_count);
        self.pages.add(byte_count.div_ceil(4096));
    }
}

/// Counters since the start of the target, or since they were cleared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OssStats {
    pub read: BulkStats,
    pub write: BulkStats,
    /// Counted since then.
    pub since: WallTime,
    pub punch_count: u64,
    pub truncate_count: u64,
    pub fallocate_count: u64,
    pub getattr_count: u64,
    pub seek_count: u64,
    pub will_read_count: u64,
    pub dont_need_count: u64,
    pub sync_count: u64,
    pub destroy_count: u64,
    pub statfs_count: u64,
    pub enqueue_count: u64,
    pub cancel_count: u64,
    pub callback_count: u64,
    /// Cancels that had to wait for data to become durable.
    pub cancel_sync_count: u64,
    pub error_count: u64,
    pub no_space_count: u64,
    pub lock_lost_count: u64,
    pub eviction_count: u64,
    /// Objects that could not be read when they were listed.
    pub unreadable_count: u64,
}

impl OssStats {
    pub fn add_error(&mut self, status: Status) {
        self.error_count += 1;
        match status {
            Status::NoSpace => self.no_space_count += 1,
            Status::LockLost => self.lock_lost_count += 1,
            _ => {}
        }
    }

    /// Names of Lustre's `obdfilter.*.stats` with a count; `read_bytes` and `write_bytes` are `read.bytes` and
    /// `write.bytes`.
    pub fn operations(&self) -> [(&'static str, u64); 11] {
        [
            ("read", self.read.bytes.count),
            ("write", self.write.bytes.count),
            ("getattr", self.getattr_count),
            ("setattr", self.truncate_count),
            ("punch", self.punch_count),
            ("prealloc", self.fallocate_count),
            ("sync", self.sync_count),
            ("destroy", self.destroy_count),
            ("statfs", self.statfs_count),
            ("ladvise_willread", self.will_read_count),
            ("ladvise_dontneed", self.dont_need_count),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_keep_extremes_and_sums() {
        let mut samples = Samples::default();
        samples.add(7);
        samples.add(3);
        assert_eq!((samples.count, samples.min, samples.max, samples.sum), (2, 3, 7, 10));
        assert_eq!(samples.sum_of_squares, 58);
    }
}
