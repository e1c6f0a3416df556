//! Clients that lost their sessions although they live.

use super::super::bed::Bed;
use super::super::cost::params;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a process has counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    pid: u32,
    count: u64,
}

impl Count {
    /// Those since an earlier look; a process of its own has counted from 0.
    fn since(self, before: Count) -> u64 {
        if self.pid == before.pid { self.count.saturating_sub(before.count) } else { self.count }
    }
}

/// What mounts and targets say at one time; who does not answer is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// As each mount counts its own.
    of_mounts: BTreeMap<PathBuf, Count>,
    /// As each target counts those of its clients.
    of_targets: BTreeMap<String, Count>,
}

impl Look {
    pub fn at(bed: &Bed) -> Look {
        let pids = bed.pids();
        let mut look = Look::default();
        for (path, pid) in pids.mounts {
            let texts = ["mdc.*.import", "osc.*.import"].map(|pattern| params(pid, pattern));
            // One that does not answer has not counted none.
            if texts.iter().any(Vec::is_empty) {
                continue;
            }
            let counts = texts.iter().flatten().map(|(_, text)| number_behind("evictions:", text));
            look.of_mounts.insert(path, Count { pid, count: counts.sum() });
        }
        for pid in pids.servers.into_values() {
            for pattern in ["mdt.*.eviction_count", "obdfilter.*.eviction_count"] {
                let counts = params(pid, pattern).into_iter();
                let counts = counts.filter_map(|(name, text)| Some((name, text.trim().parse().ok()?)));
                look.of_targets.extend(counts.map(|(name, count)| (name, Count { pid, count })));
            }
        }
        look
    }
}

/// What of that was to be expected, from round to round.
#[derive(Debug, Default)]
pub struct Evictions {
    /// What each of them has said last: one that misses a look goes on counting from there.
    last: Look,
    /// Killed mounts that each target has not evicted yet, or has not said so.
    owed: BTreeMap<String, u64>,
    /// Mounts that were killed in this round.
    killed_count: u64,
}

impl Evictions {
    /// Returns evictions of mounts that live, since the last look. Whoever was killed before the last round was evicted in it, perhaps by an
    /// incarnation of a target that took the count along when it was killed: one that lives is not to be taken for it.
    pub fn begin_round(&mut self, now: Look) -> u64 {
        let heard: Vec<String> = now.of_targets.keys().cloned().collect();
        let living_count = self.look(now);
        let is_heard = |(name, _): &(&String, &mut u64)| heard.contains(name);
        for (_, owed) in self.owed.iter_mut().filter(is_heard) {
            *owed = (*owed).min(self.killed_count);
        }
        self.killed_count = 0;
        living_count
    }

    /// Each target may evict each of them, once.
    pub fn note_killed(&mut self, mount_count: u64) {
        self.killed_count += mount_count;
        for name in self.last.of_targets.keys() {
            *self.owed.entry(name.clone()).or_default() += mount_count;
        }
    }

    /// Returns evictions of mounts that live, since the last look.
    pub fn look(&mut self, now: Look) -> u64 {
        let mut told_count = 0;
        for (path, count) in &now.of_mounts {
            told_count += count.since(self.last.of_mounts.get(path).copied().unwrap_or_default());
        }
        let mut beyond_count = 0;
        for (name, count) in &now.of_targets {
            let evicted = count.since(self.last.of_targets.get(name).copied().unwrap_or_default());
            let owed = self.owed.entry(name.clone()).or_default();
            beyond_count += evicted.saturating_sub(*owed);
            *owed = owed.saturating_sub(evicted);
        }
        self.last.of_mounts.extend(now.of_mounts);
        self.last.of_targets.extend(now.of_targets);
        told_count.max(beyond_count)
    }
}

/// Of a text with a name and a number in each line; 0 without.
fn number_behind(name: &str, text: &str) -> u64 {
    let found = text.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests;
