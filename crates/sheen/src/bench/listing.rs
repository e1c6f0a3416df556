//! What a listing tells beside its rate: when its first entry comes, and what the process of the mount keeps for it.

use super::figures::Summary;
use super::rounds::Sample;
use crate::sys::anon_bytes;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

/// How often a process is looked at: a listing of 10,000 entries takes some tenths of a second.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Bytes of private memory (RssAnon) of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub before: u64,
    pub peak: u64,
    pub after: u64,
}

/// Looks at a process from before a listing until after it.
pub struct MemoryMeter {
    pid: u32,
    before: u64,
    peak: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    looks: Option<JoinHandle<()>>,
}

impl MemoryMeter {
    /// `None` when the process cannot be looked at.
    pub fn start(pid: u32) -> Option<MemoryMeter> {
        let before = anon_bytes(pid)?;
        let (peak, is_over) = (Arc::new(AtomicU64::new(before)), Arc::new(AtomicBool::new(false)));
        let (seen, ends) = (Arc::clone(&peak), Arc::clone(&is_over));
        let looks = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                seen.fetch_max(anon_bytes(pid).unwrap_or(0), Ordering::Relaxed);
                sleep(LOOK_INTERVAL);
            }
        });
        Some(MemoryMeter { pid, before, peak, is_over, looks: Some(looks) })
    }

    /// `None` when the process has ended.
    pub fn stop(mut self) -> Option<Memory> {
        let after = anon_bytes(self.pid)?;
        self.end();
        Some(Memory { before: self.before, peak: self.peak.load(Ordering::Relaxed).max(after), after })
    }

    fn end(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(looks) = self.looks.take() {
            // It has nothing to say.
            let _ = looks.join();
        }
    }
}

impl Drop for MemoryMeter {
    fn drop(&mut self) {
        self.end();
    }
}

/// Of all rounds of one phase, in one place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListingSummary {
    /// From the start of the listing until the first call for entries has returned.
    pub first_entry_ms: Summary,
    /// Private memory (RssAnon) of the process of the mount; none where there is no such process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemorySummary>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemorySummary {
    pub before_mib: Summary,
    pub peak_mib: Summary,
    pub after_mib: Summary,
    /// What was there at most, less what was there before.
    pub added_mib: Summary,
}

impl ListingSummary {
    /// `None` of phases that list nothing.
    pub fn of(samples: &[Sample]) -> Option<ListingSummary> {
        let first = samples.iter().map(|sample| Some(sample.first_entry?.as_secs_f64() * 1e3));
        let first_entry_ms = Summary::of(&first.collect::<Option<Vec<f64>>>()?)?;
        let memory = samples.iter().map(|sample| sample.memory).collect::<Option<Vec<Memory>>>();
        Some(ListingSummary { first_entry_ms, memory: memory.and_then(|all| MemorySummary::of(&all)) })
    }

    pub fn to_text(&self) -> String {
        let first =
            format!("{:>10.1} {:>6.0}%", self.first_entry_ms.median, self.first_entry_ms.spread_percent);
        let Some(memory) = &self.memory else { return first };
        let columns = [&memory.before_mib, &memory.peak_mib, &memory.after_mib, &memory.added_mib];
        let columns = columns.map(|summary| format!(" {:>9.1}", summary.median)).concat();
        format!("{first} {columns} {:>6.0}%", memory.added_mib.spread_percent)
    }
}

/// Heads of the table, after the name.
pub const HEADS: &str = "  first, ms spread     before      peak     after     added spread";

impl MemorySummary {
    fn of(all: &[Memory]) -> Option<MemorySummary> {
        let mib = |of: &dyn Fn(&Memory) -> u64| {
            Summary::of(&all.iter().map(|one| of(one) as f64 / f64::from(1 << 20)).collect::<Vec<f64>>())
        };
        Some(MemorySummary {
            before_mib: mib(&|one| one.before)?,
            peak_mib: mib(&|one| one.peak)?,
            after_mib: mib(&|one| one.after)?,
            added_mib: mib(&|one| one.peak.saturating_sub(one.before))?,
        })
    }
}

#[cfg(test)]
mod tests;
