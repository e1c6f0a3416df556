//! Clients that lost their sessions although they live.

use super::super::bed::Bed;
use super::super::cost::params;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    /// As each mount that lives counts its own.
    of_mounts: BTreeMap<PathBuf, u64>,
    /// As targets count them since their start, beyond the mounts that were killed since the cluster has begun.
    beyond_killed: u64,
}

impl Evictions {
    /// What mounts and targets say now.
    pub fn of(bed: &Bed) -> Evictions {
        let pids = bed.pids();
        let mut evictions = Evictions::default();
        for (path, pid) in pids.mounts {
            let texts = ["mdc.*.import", "osc.*.import"].into_iter().flat_map(|pattern| params(pid, pattern));
            let count = texts.map(|(_, text)| number_behind("evictions:", &text)).sum();
            evictions.of_mounts.insert(path, count);
        }
        for pid in pids.servers.into_values() {
            for pattern in ["mdt.*.eviction_count", "obdfilter.*.eviction_count"] {
                let counts = params(pid, pattern).into_iter();
                let counts = counts.filter_map(|(_, text)| text.trim().parse::<u64>().ok());
                evictions.beyond_killed +=
                    counts.map(|count| count.saturating_sub(bed.killed_count())).sum::<u64>();
            }
        }
        evictions
    }

    /// Those of living mounts since an earlier look.
    pub fn since(&self, before: &Evictions) -> u64 {
        let of_mount = |(path, count): (&PathBuf, &u64)| {
            count.saturating_sub(before.of_mounts.get(path).copied().unwrap_or(0))
        };
        let told: u64 = self.of_mounts.iter().map(of_mount).sum();
        told.max(self.beyond_killed)
    }
}

/// Of a text with a name and a number in each line; 0 without.
fn number_behind(name: &str, text: &str) -> u64 {
    let found = text.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests;
