//! Counters of a mount, in a plain struct that the process reads for its parameters.

use base::{Histogram, WallTime};
use std::collections::BTreeMap;

/// How often, how many bytes, how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    pub count: u64,
    /// Sum, least and greatest of what is counted (bytes, or microseconds).
    pub sum: u64,
    pub min: u64,
    pub max: u64,
    /// Sum of squares, as Lustre's `stats` files print it.
    pub sum_squares: u64,
}

impl Counter {
    pub fn add(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.sum_squares = self.sum_squares.saturating_add(value.saturating_mul(value));
    }
}

/// Requests to one target, and beside them the data requests in histograms. Each is cleared by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetStats {
    /// Microseconds from sending to the answer, by kind of request.
    pub requests: BTreeMap<&'static str, Counter>,
    pub read_bytes: Counter,
    pub write_bytes: Counter,
    /// Those above are counted since then.
    pub since: WallTime,
    /// Pages of 4 KiB in each data request.
    pub read_pages_per_rpc: Histogram,
    pub write_pages_per_rpc: Histogram,
    /// Where in its object each one begins, in pages of 4 KiB.
    pub read_page_offsets: Histogram,
    pub write_page_offsets: Histogram,
    /// Microseconds from sending a data request to its answer.
    pub read_micros: Histogram,
    pub write_micros: Histogram,
    /// Data requests that were in flight when one was handed in, itself included; no more than may be at a time.
    pub read_rpcs_in_flight: Histogram,
    pub write_rpcs_in_flight: Histogram,
    /// Data requests that were not answered, in flight or in front of that.
    pub read_rpcs_now: u64,
    pub write_rpcs_now: u64,
    /// Reply slots in use when a request that changes something was handed in, its own included.
    pub modify_rpcs_in_flight: Histogram,
    /// The histograms are counted since then.
    pub rpcs_since: WallTime,
}

impl TargetStats {
    pub(crate) fn new(now: WallTime) -> TargetStats {
        TargetStats { since: now, rpcs_since: now, ..TargetStats::default() }
    }

    /// Starts to count requests and bytes anew.
    pub(crate) fn clear(&mut self, now: WallTime) {
        (self.requests, self.since) = (BTreeMap::new(), now);
        (self.read_bytes, self.write_bytes) = (Counter::default(), Counter::default());
    }

    /// Starts the histograms anew; what is in flight stays so.
    pub(crate) fn clear_rpcs(&mut self, now: WallTime) {
        *self = TargetStats {
            requests: std::mem::take(&mut self.requests),
            read_bytes: self.read_bytes,
            write_bytes: self.write_bytes,
            since: self.since,
            read_rpcs_now: self.read_rpcs_now,
            write_rpcs_now: self.write_rpcs_now,
            ..TargetStats::new(now)
        };
    }
}

impl Stats {
    /// Starts to count calls and bytes anew; what listings have brought is cleared by itself.
    pub fn clear(&mut self, now: WallTime) {
        *self = Stats { since: now, listings: self.listings, ..Stats::default() };
    }
}

/// What listings have brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingStats {
    pub request_count: u64,
    pub entry_count: u64,
    /// Entries that came with attributes.
    pub attr_count: u64,
    /// Entries of which no lock said that they are true: each was looked up.
    pub single_count: u64,
}

/// Everything that a mount counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Microseconds by kind of call (`getattr`, `open`, ...).
    pub calls: BTreeMap<&'static str, Counter>,
    pub read_bytes: Counter,
    pub write_bytes: Counter,
    pub listings: ListingStats,
    /// Calls and bytes are counted since then.
    pub since: WallTime,
    pub calls_in_flight: u64,
    pub node_count: u64,
    pub open_count: u64,
}
