//! What an operation costs: CPU time of the mount's process and of its servers, and requests of the mount.
//!
//! CPU time is read from the processes' own clocks: nanoseconds, threads that have ended included. What the kernel does
//! elsewhere for them (write-back, the caller's half of a FUSE request) is not in it, what others ask of the same servers
//! is. Counters are asked for before the first look at the clocks and after the second: asking costs CPU time itself.

use crate::control::{self, Ask, Process, TargetStatus};
use crate::mount_table;
use crate::sys;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The processes that work for a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Daemons {
    client: Client,
    /// Other mounts that are measured with it.
    others: Vec<Client>,
    /// Other processes with targets of the file system; `None` when some of them are not on this machine.
    server_pids: Option<BTreeSet<u32>>,
    /// The process of the mount serves targets too: its CPU time is that of both.
    is_client_serving: bool,
    fsname: String,
    /// Those on this machine, with the processes that serve them.
    targets: Vec<TargetStatus>,
}

/// The process of a mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Client {
    pid: u32,
    /// Number of the mount, which names its parameters; `None` for what has no counters.
    number: Option<String>,
}

impl Daemons {
    /// `None` when the directory is on no mount of ours, or on that of somebody whom we may not ask.
    pub fn of(dir: &Path) -> Option<Daemons> {
        Daemons::among(&control::processes(), dir)
    }

    /// The same of several directories; all processes are asked once, however many directories there are.
    pub fn of_each<'a>(dirs: impl IntoIterator<Item = &'a PathBuf>) -> Option<Vec<Daemons>> {
        let processes = control::processes();
        dirs.into_iter().map(|dir| Daemons::among(&processes, dir)).collect()
    }

    /// All mounts of one file system, whose costs are added.
    pub fn of_all<'a>(dirs: impl IntoIterator<Item = &'a PathBuf>) -> Option<Daemons> {
        let mut each = Daemons::of_each(dirs)?.into_iter();
        let mut daemons = each.next()?;
        each.for_each(|other| daemons.add_mount(other));
        Some(daemons)
    }

    fn among(processes: &[Process], dir: &Path) -> Option<Daemons> {
        let mounted = mount_table::above(dir).filter(mount_table::Mounted::is_sheen)?;
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
        let is_wanted = |target: &&TargetStatus| target.fsname == fsname && wanted.contains(&target.nid);
        let targets =
            processes.iter().flat_map(|process| &process.targets).filter(is_wanted).cloned().collect();
        let client = Client { pid: client.pid, number: Some(number) };
        Some(Daemons { client, others: Vec::new(), server_pids, is_client_serving, fsname, targets })
    }

    /// A process that is client and server at once and counts nothing.
    pub fn null(pid: u32) -> Daemons {
        let server_pids = Some(BTreeSet::new());
        let client = Client { pid, number: None };
        Daemons { client, server_pids, is_client_serving: true, ..Daemons::default() }
    }

    /// One more mount of the same file system, whose costs are added.
    fn add_mount(&mut self, other: Daemons) {
        let other = other.client;
        if other != self.client && !self.others.contains(&other) {
            self.others.push(other);
        }
    }

    fn clients(&self) -> impl Iterator<Item = &Client> {
        [&self.client].into_iter().chain(&self.others)
    }

    pub fn targets(&self) -> &[TargetStatus] {
        &self.targets
    }

    pub fn client_pid(&self) -> u32 {
        self.client.pid
    }

    pub fn is_client(&self, pid: u32) -> bool {
        pid == self.client.pid
    }

    /// All of them.
    pub fn pids(&self) -> BTreeSet<u32> {
        let servers = self.server_pids.iter().flatten().copied();
        servers.chain(self.clients().map(|client| client.pid)).collect()
    }

    fn cpu(&self) -> Option<Cpu> {
        let servers = self.server_pids.as_ref().filter(|pids| !pids.is_empty());
        let of_server = |pid: &u32| sys::cpu_time(*pid).ok();
        // Several mounts may be in one process.
        let clients: BTreeSet<u32> = self.clients().map(|client| client.pid).collect();
        Some(Cpu {
            mdts: self.cpu_of("MDT"),
            osts: self.cpu_of("OST"),
            client: clients.iter().map(|pid| sys::cpu_time(*pid).ok()).sum::<Option<Duration>>()?,
            servers: servers.and_then(|pids| pids.iter().map(of_server).sum()),
        })
    }

    /// Of the processes with targets of this kind on this machine; `None` without any.
    fn cpu_of(&self, kind: &str) -> Option<Duration> {
        let pids = self.pids_with(kind);
        let all = || pids.iter().map(|pid| sys::cpu_time(*pid).ok()).sum();
        (!pids.is_empty()).then(all).flatten()
    }

    fn pids_with(&self, kind: &str) -> BTreeSet<u32> {
        let targets = self.targets.iter().filter(|target| target.name.starts_with(kind));
        targets.map(|target| target.pid).collect()
    }

    fn counts(&self) -> Option<Counts> {
        let mut counts = Counts::default();
        for client in self.clients() {
            client.add_requests(&mut counts)?;
        }
        let of_servers = |pid| params(pid, &format!("obdfilter.{}-OST*.stats", self.fsname));
        for (_, text) in self.pids().into_iter().flat_map(of_servers) {
            let read = rows(&text).into_iter().filter(|row| row.name == "read_bytes");
            counts.read_bytes += read.map(|row| row.sum).sum::<u64>();
        }
        for (_, text) in self.pids().into_iter().flat_map(|pid| params(pid, &self.cache_pattern())) {
            counts.base_read_count += value(&text, "base_reads");
            counts.base_read_bytes += value(&text, "base_read_bytes");
        }
        if self.server_pids.is_some() {
            counts.served_requests = Some(self.served_requests());
        }
        for text in self.mdt_syncs() {
            counts.mdt_sync_count += value(&text, "syncs");
            counts.mdt_awaited_sync_count += value(&text, "awaited_syncs");
        }
        counts.mdt_device_bytes = self.device_bytes("MDT");
        counts.ost_device_bytes = self.device_bytes("OST");
        Some(counts)
    }

    /// What all processes with targets have begun, for whomever.
    fn served_requests(&self) -> Requests {
        let pids = ["MDT", "OST"].iter().flat_map(|kind| self.pids_with(kind)).collect::<BTreeSet<u32>>();
        let services = |pid| ["mds.MDS.mdt.stats", "ost.OSS.ost.stats"].map(|name| params(pid, name));
        let mut served = Requests::new();
        for (_, text) in pids.into_iter().flat_map(services).flatten() {
            for row in rows(&text) {
                *served.entry(row.name).or_default() += row.count;
            }
        }
        served
    }

    /// `sync_stats` of all MDTs on this machine.
    fn mdt_syncs(&self) -> Vec<String> {
        let pattern = format!("osd-local.{}-MDT*.sync_stats", self.fsname);
        let found = self.pids().into_iter().flat_map(|pid| params(pid, &pattern));
        found.map(|(_, text)| text).collect()
    }

    /// The last transaction of each MDT on this machine; `None` while one of them has some that are not durable.
    pub fn settled_mdts(&self) -> Option<Vec<u64>> {
        let settled = |text: &String| {
            let applied = value(text, "applied");
            (value(text, "durable") == applied).then_some(applied)
        };
        self.mdt_syncs().iter().map(settled).collect()
    }

    fn cache_pattern(&self) -> String {
        format!("osd-local.{}-*.metadata_cache_stats", self.fsname)
    }

    /// What was fetched from devices for the processes with targets of this kind; 0 for those that may not be asked.
    fn device_bytes(&self, kind: &str) -> u64 {
        self.pids_with(kind).iter().filter_map(|pid| sys::io_count(*pid, "read_bytes")).sum()
    }
}

impl Client {
    fn add_requests(&self, counts: &mut Counts) -> Option<()> {
        let number = self.number.as_ref()?;
        for (class, of_class) in [("mdc", &mut counts.mdt_requests), ("osc", &mut counts.ost_requests)] {
            for (_, text) in params(self.pid, &format!("{class}.*-{number}.stats")) {
                for row in rows(&text) {
                    *of_class += row.count;
                    *counts.requests.entry(row.name).or_default() += row.count;
                }
            }
        }
        for (_, text) in params(self.pid, &format!("osc.*-{number}.rpc_stats")) {
            for (pages, count) in read_sizes(&text) {
                *counts.reads_by_pages.entry(pages).or_default() += count;
            }
        }
        Some(())
    }
}

/// How many requests of each kind.
pub type Requests = BTreeMap<String, u64>;
/// How many read requests of so many pages of 4 KiB at most, and of more than half as many: the rows of `rpc_stats`.
pub type Sizes = BTreeMap<u64, u64>;

/// What a mount has asked for, and OSTs have read for it (and for others, if there are any).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub requests: Requests,
    /// What the targets have begun, for whomever; `None` when some of them are not on this machine. What only keeps a session is not in it,
    /// what they ask each other is.
    pub served_requests: Option<Requests>,
    /// Of all kinds, to MDTs and to OSTs.
    pub mdt_requests: u64,
    pub ost_requests: u64,
    pub reads_by_pages: Sizes,
    pub read_bytes: u64,
    /// What targets read of the files with their rows, from the page cache or from the device.
    pub base_read_count: u64,
    pub base_read_bytes: u64,
    /// Fetched from devices for all that the processes of MDTs did, and of OSTs: data too, and what a process has of both is in both.
    pub mdt_device_bytes: u64,
    pub ost_device_bytes: u64,
    /// Syncs of their devices by MDTs, and those that somebody waited for.
    pub mdt_sync_count: u64,
    pub mdt_awaited_sync_count: u64,
}

impl Counts {
    /// Who has set a counter to zero meanwhile has nothing counted.
    fn since(mut self, before: &Counts) -> Counts {
        subtract(&mut self.requests, &before.requests);
        self.served_requests =
            self.served_requests.zip(before.served_requests.as_ref()).map(|(mut after, before)| {
                subtract(&mut after, before);
                after
            });
        for (pages, count) in &mut self.reads_by_pages {
            *count = count.saturating_sub(before.reads_by_pages.get(pages).copied().unwrap_or(0));
        }
        self.reads_by_pages.retain(|_, count| *count > 0);
        for (after, before) in [
            (&mut self.mdt_requests, before.mdt_requests),
            (&mut self.ost_requests, before.ost_requests),
            (&mut self.read_bytes, before.read_bytes),
            (&mut self.base_read_count, before.base_read_count),
            (&mut self.base_read_bytes, before.base_read_bytes),
            (&mut self.mdt_device_bytes, before.mdt_device_bytes),
            (&mut self.ost_device_bytes, before.ost_device_bytes),
            (&mut self.mdt_sync_count, before.mdt_sync_count),
            (&mut self.mdt_awaited_sync_count, before.mdt_awaited_sync_count),
        ] {
            *after = after.saturating_sub(before);
        }
        self
    }
}

fn subtract(requests: &mut Requests, before: &Requests) {
    for (kind, count) in &mut *requests {
        *count = count.saturating_sub(before.get(kind).copied().unwrap_or(0));
    }
    requests.retain(|_, count| *count > 0);
}

#[derive(Clone, Copy, Debug)]
struct Cpu {
    mdts: Option<Duration>,
    osts: Option<Duration>,
    client: Duration,
    servers: Option<Duration>,
}

/// Runs from before a phase until after it.
pub struct Meter {
    daemons: Daemons,
    counts: Option<Counts>,
    cpu: Cpu,
}

impl Meter {
    /// `None` when nobody can be asked.
    pub fn start(daemons: Option<Daemons>) -> Option<Meter> {
        let daemons = daemons?;
        let counts = daemons.counts();
        let cpu = daemons.cpu()?;
        Some(Meter { daemons, counts, cpu })
    }

    /// What so many operations have cost; requests are to be divided by a number of their own. `None` when a process has
    /// ended meanwhile.
    pub fn stop(self, operation_count: u64, rpc_unit_count: u64) -> Option<Cost> {
        let cpu = self.daemons.cpu()?;
        let counts = self.daemons.counts().zip(self.counts);
        let used = |after: Option<Duration>, before: Option<Duration>| {
            after.zip(before).map(|(after, before)| after.saturating_sub(before))
        };
        Some(Cost {
            has_all_servers: self.daemons.server_pids.is_some(),
            mdt_cpu: used(cpu.mdts, self.cpu.mdts),
            ost_cpu: used(cpu.osts, self.cpu.osts),
            operation_count,
            rpc_unit_count,
            client_cpu: cpu.client.saturating_sub(self.cpu.client),
            server_cpu: used(cpu.servers, self.cpu.servers),
            is_client_serving: self.daemons.is_client_serving,
            counts: counts.map(|(after, before)| after.since(&before)),
        })
    }
}

/// Of one phase of one round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    pub operation_count: u64,
    /// Operations, or directories.
    pub rpc_unit_count: u64,
    pub client_cpu: Duration,
    /// `None` without servers in processes of their own on this machine.
    pub server_cpu: Option<Duration>,
    /// Of the processes with MDTs on this machine, and of those with OSTs; what a process has of both is in both.
    pub mdt_cpu: Option<Duration>,
    pub ost_cpu: Option<Duration>,
    pub is_client_serving: bool,
    /// None of the servers is on another machine.
    pub has_all_servers: bool,
    /// `None` for what counts no requests.
    pub counts: Option<Counts>,
}

impl Cost {
    pub fn us_per_operation(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1e6 / (self.operation_count as f64).max(1.0)
    }

    /// Of client and servers; `None` where some of these could not be asked.
    pub fn whole_cpu(&self) -> Option<Duration> {
        let of_servers = self.server_cpu.or_else(|| self.is_client_serving.then_some(Duration::ZERO))?;
        self.has_all_servers.then_some(self.client_cpu + of_servers)
    }

    pub fn rpcs_per_unit(&self) -> Option<f64> {
        Some(self.per_unit(&self.counts.as_ref()?.requests))
    }

    /// The same as the targets have counted them.
    pub fn served_per_unit(&self) -> Option<f64> {
        Some(self.per_unit(self.counts.as_ref()?.served_requests.as_ref()?))
    }

    fn per_unit(&self, requests: &Requests) -> f64 {
        let sum: u64 = requests.values().sum();
        sum as f64 / (self.rpc_unit_count as f64).max(1.0)
    }
}

/// Of a text with a name and a number in each line.
fn value(text: &str, name: &str) -> u64 {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or_default()
}

/// Of a `stats` text: `NAME N samples [UNIT] MIN MAX SUM …`; without figures the sum is 0.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    name: String,
    count: u64,
    sum: u64,
}

fn rows(text: &str) -> Vec<Row> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
        let is_row = words.get(2) == Some(&"samples");
        is_row.then_some(Row {
            name: words.first()?.to_string(),
            count: number(1)?,
            sum: number(6).unwrap_or(0),
        })
    };
    text.lines().filter_map(row).collect()
}

/// Reads of an `rpc_stats` text, by the pages of each: `256:  N PERCENT SUM | …`.
fn read_sizes(text: &str) -> Vec<(u64, u64)> {
    let row = |line: &str| {
        let (pages, rest) = line.split_once(':')?;
        let (digits, scale) = match pages.strip_suffix('K') {
            Some(digits) => (digits, 1024),
            None => (pages, 1),
        };
        let pages = digits.parse::<u64>().ok()? * scale;
        Some((pages, rest.split_ascii_whitespace().next()?.parse().ok()?))
    };
    let table = text.lines().skip_while(|line| !line.starts_with("pages per rpc")).skip(1);
    table.map_while(row).collect()
}

/// Parameters of a process and their values; none of one that does not answer.
pub fn params(pid: u32, pattern: &str) -> Vec<(String, String)> {
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
