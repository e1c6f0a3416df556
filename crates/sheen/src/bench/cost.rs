//! What an operation costs: CPU time of the mount's process and of its servers, and requests of the mount.
//!
//! CPU time is read from the processes' own clocks: nanoseconds, threads that have ended included. What the kernel does
//! elsewhere for them (write-back, the caller's half of a FUSE request) is not in it, what others ask of the same servers
//! is. Counters are asked for before the first look at the clocks and after the second: asking costs CPU time itself.

use crate::control::{self, Ask, Process};
use crate::mount_table;
use crate::sys;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// The processes that work for a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Daemons {
    client_pid: u32,
    /// Other processes with targets of the file system; `None` when some of them are not on this machine.
    server_pids: Option<BTreeSet<u32>>,
    /// The process of the mount serves targets too: its CPU time is that of both.
    is_client_serving: bool,
    /// Number of the mount, which names its parameters; `None` for what has no counters.
    number: Option<String>,
}

impl Daemons {
    /// `None` when the directory is on no mount of ours, or on that of somebody whom we may not ask.
    pub fn of(dir: &Path) -> Option<Daemons> {
        let mounted = mount_table::above(dir).filter(mount_table::Mounted::is_sheen)?;
        let processes = control::processes();
        let has_mount = |process: &&Process| {
            process.mounts.iter().any(|mount| mount.path == mounted.path && !mount.is_detached)
        };
        let client = processes.iter().find(has_mount)?;
        let fsname = client.mounts.iter().find(|mount| mount.path == mounted.path)?.fsname.clone();
        let number = number_of(client.pid, &mounted.path)?;
        let wanted = target_nids(client.pid, &number);
        let serves = |process: &Process, nid: &str| {
            process.targets.iter().any(|target| target.fsname == fsname && target.nid == nid)
        };
        let serving = |nid: &String| processes.iter().find(|process| serves(process, nid));
        let servers: Option<BTreeSet<u32>> =
            wanted.iter().map(|nid| serving(nid).map(|process| process.pid)).collect();
        let is_client_serving = wanted.iter().any(|nid| serves(client, nid));
        let server_pids = servers.map(|mut pids| {
            pids.remove(&client.pid);
            pids
        });
        Some(Daemons { client_pid: client.pid, server_pids, is_client_serving, number: Some(number) })
    }

    /// A process that is client and server at once and counts nothing.
    pub fn null(pid: u32) -> Daemons {
        Daemons { client_pid: pid, server_pids: Some(BTreeSet::new()), is_client_serving: true, number: None }
    }

    fn cpu(&self) -> Option<Cpu> {
        let servers = self.server_pids.as_ref().filter(|pids| !pids.is_empty());
        let of_server = |pid: &u32| sys::cpu_time(*pid).ok();
        Some(Cpu {
            client: sys::cpu_time(self.client_pid).ok()?,
            servers: servers.and_then(|pids| pids.iter().map(of_server).sum()),
        })
    }

    fn requests(&self) -> Requests {
        let Some(number) = &self.number else { return Requests::new() };
        let mut counts = Requests::new();
        for class in ["mdc", "osc"] {
            for (_, text) in params(self.client_pid, &format!("{class}.*-{number}.stats")) {
                for (kind, count) in samples(&text) {
                    *counts.entry(kind).or_default() += count;
                }
            }
        }
        counts
    }
}

/// How many requests of each kind.
pub type Requests = BTreeMap<String, u64>;

#[derive(Clone, Copy, Debug)]
struct Cpu {
    client: Duration,
    servers: Option<Duration>,
}

/// Runs from before a phase until after it.
pub struct Meter {
    daemons: Daemons,
    requests: Requests,
    cpu: Cpu,
}

impl Meter {
    /// `None` when nobody can be asked.
    pub fn start(daemons: Option<Daemons>) -> Option<Meter> {
        let daemons = daemons?;
        let requests = daemons.requests();
        let cpu = daemons.cpu()?;
        Some(Meter { daemons, requests, cpu })
    }

    /// What so many operations have cost. `None` when a process has ended meanwhile.
    pub fn stop(self, operation_count: u64) -> Option<Cost> {
        let cpu = self.daemons.cpu()?;
        let before = self.requests;
        let mut requests = self.daemons.requests();
        for (kind, count) in &mut requests {
            *count = count.saturating_sub(before.get(kind).copied().unwrap_or(0));
        }
        requests.retain(|_, count| *count > 0);
        let servers = cpu.servers.zip(self.cpu.servers);
        Some(Cost {
            operation_count,
            client_cpu: cpu.client.saturating_sub(self.cpu.client),
            server_cpu: servers.map(|(after, before)| after.saturating_sub(before)),
            is_client_serving: self.daemons.is_client_serving,
            requests: self.daemons.number.is_some().then_some(requests),
        })
    }
}

/// Of one phase of one round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    pub operation_count: u64,
    pub client_cpu: Duration,
    /// `None` without servers in processes of their own on this machine.
    pub server_cpu: Option<Duration>,
    pub is_client_serving: bool,
    /// `None` for what counts no requests.
    pub requests: Option<Requests>,
}

/// Counts of a `stats` text: `NAME N samples [UNIT] …`.
fn samples(text: &str) -> Vec<(String, u64)> {
    let row = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (name, count) = (words.next()?, words.next()?.parse().ok()?);
        (words.next() == Some("samples")).then(|| (name.to_owned(), count))
    };
    text.lines().filter_map(row).collect()
}

fn params(pid: u32, pattern: &str) -> Vec<(String, String)> {
    let asked = control::ask_if_alive(pid, &Ask::GetParam { pattern: pattern.to_owned() });
    asked.ok().flatten().unwrap_or_default().params
}

/// `llite.FSNAME-NUMBER.mount_point` says which number a mount has.
fn number_of(pid: u32, mount: &Path) -> Option<String> {
    let points = params(pid, "llite.*.mount_point");
    let (name, _) = points.iter().find(|(_, point)| Path::new(point) == mount)?;
    let (_, number) = name.strip_suffix(".mount_point")?.rsplit_once('-')?;
    Some(number.to_owned())
}

/// Where a mount finds its targets.
fn target_nids(pid: u32, number: &str) -> BTreeSet<String> {
    let patterns = [format!("mdc.*-{number}.mds_conn_uuid"), format!("osc.*-{number}.ost_conn_uuid")];
    let found = patterns.iter().flat_map(|pattern| params(pid, pattern));
    // The first of several is where it is now.
    found.filter_map(|(_, nids)| Some(nids.split(", ").next()?.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests;
