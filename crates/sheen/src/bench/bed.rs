//! A split cluster of our own with many mounts, in a directory of our own. It goes when it is dropped, also after an error.

use crate::cli::Transport;
use crate::cluster::{Cluster, Server};
use crate::control::{self, Process};
use crate::daemon;
use crate::mount::dead;
use crate::mount_table::{self, Mounted};
use crate::nid;
use crate::say;
use crate::sys;
use crate::up;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// In our directory: the data of the cluster, and the places to mount on.
const CLUSTER: &str = "cluster";
const MOUNTS: &str = "mounts";
/// A server that does not listen after this long does not start.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(60);
const LISTEN_POLL_INTERVAL: Duration = Duration::from_micros(500);
/// Whoever was killed is gone by then.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct BedOptions {
    /// Of the file system.
    pub fsname: &'static str,
    pub mount_count: u32,
    pub ost_count: u16,
    /// Mounts from this one on are as on other machines: that they die is seen by their leases alone.
    pub elsewhere_from: u32,
    /// All files lie on all OSTs, in pieces of so many bytes; without it they lie as in any new file system.
    pub stripe_bytes: Option<usize>,
    pub transport: Transport,
}

pub struct Bed {
    dir: PathBuf,
    is_dir_ours: bool,
    options: BedOptions,
    round_count: u64,
}

/// Processes of the bed.
pub struct Pids {
    /// By the name of the server.
    pub servers: BTreeMap<String, u32>,
    pub mounts: BTreeMap<PathBuf, u32>,
}

impl Bed {
    /// Starts the cluster and its first mount.
    ///
    /// # Errors
    /// A directory that is not empty, or a cluster that does not start.
    pub fn start(dir: &Path, options: BedOptions) -> Result<Bed> {
        let is_dir_ours = !dir.exists();
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let dir = dir.canonicalize()?;
        if fs::read_dir(&dir)?.next().is_some() {
            bail!("{} is not empty; name a directory that is, or a new one", dir.display());
        }
        let bed = Bed { dir, is_dir_ours, options, round_count: 0 };
        let first = bed.mount_point(0);
        fs::create_dir_all(&first)?;
        let mut up = sheen(&["up", "--split", "--mdts", "1", "--fsname", bed.options.fsname])?;
        up.args(["--osts", &bed.options.ost_count.to_string()]);
        up.args(["--transport", bed.options.transport.word(), "--dir"]).arg(bed.cluster_dir());
        run(up.arg("--mount").arg(&first))?;
        if let Some(stripe_bytes) = bed.options.stripe_bytes {
            let stripe_bytes = stripe_bytes.to_string();
            run(sheen(&["lfs", "setstripe", "-c", "-1", "-S", &stripe_bytes])?.arg(&first))?;
        }
        Ok(bed)
    }

    /// Ends all servers and the first mount in order, and starts them again: they remember nothing but what is on their disks.
    ///
    /// # Errors
    /// One does not end, or does not start.
    pub fn start_anew(&self) -> Result<()> {
        let dir = self.cluster_dir();
        run(sheen(&["down", "--dir"])?.arg(&dir))?;
        run(sheen(&["up", "--dir"])?.arg(&dir))
    }

    /// What can be mounted: `NID:/FSNAME`.
    ///
    /// # Errors
    /// The cluster's file cannot be read.
    pub fn source(&self) -> Result<String> {
        let cluster = self.cluster()?;
        Ok(format!("{}:/{}", nid::format_nid(cluster.mgs_address()), cluster.fsname))
    }

    fn cluster_dir(&self) -> PathBuf {
        self.dir.join(CLUSTER)
    }

    pub fn mount_point(&self, index: u32) -> PathBuf {
        self.dir.join(MOUNTS).join(index.to_string())
    }

    fn cluster(&self) -> Result<Cluster> {
        Cluster::load(&self.cluster_dir())?.context("the cluster of the bench is gone")
    }

    fn processes(&self) -> Vec<Process> {
        let dir = self.cluster_dir();
        let elsewhere =
            (self.options.elsewhere_from..self.options.mount_count).map(|index| self.run_dir(index));
        let elsewhere = elsewhere.flat_map(|dir| control::processes_in(&dir));
        control::processes()
            .into_iter()
            .chain(elsewhere)
            .filter(|process| up::belongs(process, &dir))
            .collect()
    }

    /// The run directory of a mount of another machine. Short: sockets are in it.
    fn run_dir(&self, index: u32) -> PathBuf {
        self.dir.join(format!("r{index}"))
    }

    pub fn pids(&self) -> Pids {
        let (mut servers, mut mounts) = (BTreeMap::new(), BTreeMap::new());
        for process in self.processes() {
            for target in &process.targets {
                // The server of one target is called as its directory is.
                let name = target.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
                servers.insert(name, process.pid);
            }
            mounts.extend(process.mounts.iter().map(|mount| (mount.path.clone(), process.pid)));
        }
        Pids { servers, mounts }
    }

    /// Mounts what is not mounted.
    ///
    /// # Errors
    /// A mount does not start.
    pub fn mount_all(&self) -> Result<()> {
        let (mounted, cluster, dir) = (self.pids().mounts, self.cluster()?, self.cluster_dir());
        let mut starting = Vec::new();
        for index in 0..self.options.mount_count {
            let point = self.mount_point(index);
            if mounted.contains_key(&point) {
                continue;
            }
            dead::free(&point)?;
            fs::create_dir_all(&point)?;
            let log = dir.join("log").join(format!("mount{index}.log"));
            let elsewhere = (index >= self.options.elsewhere_from).then(|| self.run_dir(index));
            let place = daemon::Place { run_dir: elsewhere.as_deref(), ..daemon::Place::default() };
            let arguments = up::mount_arguments(&dir, &cluster, &point);
            starting.push((index, daemon::start_at(place, &arguments, &log, None)?));
        }
        for (index, process) in starting {
            process.wait("a mount").with_context(|| format!("mount {index} did not start"))?;
        }
        Ok(())
    }

    /// A new directory with these in it; returns its name on each mount.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn begin_round(&mut self, dirs: &[String]) -> Result<String> {
        self.round_count += 1;
        let name = format!("round{}", self.round_count);
        let top = self.mount_point(0).join(&name);
        let below = dirs.iter().map(|dir| top.join(dir));
        for dir in std::iter::once(top.clone()).chain(below) {
            fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        Ok(name)
    }

    /// # Errors
    /// Something in its directory cannot be removed.
    pub fn end_round(&self, name: &str) -> Result<()> {
        let top = self.mount_point(0).join(name);
        fs::remove_dir_all(&top).with_context(|| format!("cannot remove {}", top.display()))
    }

    /// The servers with such names.
    ///
    /// # Errors
    /// The cluster's file cannot be read.
    pub fn servers(&self, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Server>> {
        let servers = self.cluster()?.servers;
        Ok(servers.into_iter().filter(|server| is_wanted(&server.name)).collect())
    }

    /// Kills servers and mounts at once. Returns the time, nanoseconds of the clock of `net::clock`.
    ///
    /// # Errors
    /// One is not there, or does not die.
    pub fn kill(&self, pids: &Pids, servers: &[Server], mounts: Range<u32>) -> Result<u64> {
        let of_mounts = mounts.map(|index| pids.mounts.get(&self.mount_point(index)));
        let of_servers = servers.iter().map(|server| pids.servers.get(&server.name));
        let victims: Option<Vec<u32>> = of_servers.chain(of_mounts).map(Option::<&u32>::copied).collect();
        let victims = victims.context("what is to be killed does not run any more; see its log")?;
        let killed_ns = net::clock::now().time.0;
        for pid in &victims {
            sys::kill(*pid, libc::SIGKILL).with_context(|| format!("cannot kill process {pid}"))?;
        }
        for pid in victims {
            ensure!(daemon::wait_gone(pid, KILL_TIMEOUT), "process {pid} was killed and is still there");
        }
        Ok(killed_ns)
    }

    /// Starts servers again. Returns the time at which the last one listened.
    ///
    /// # Errors
    /// One does not start, or not where it was.
    pub fn restart(&self, servers: &[Server]) -> Result<u64> {
        let (dir, cluster) = (self.cluster_dir(), self.cluster()?);
        let restart = |server| up::restart_server(&dir, &cluster, server);
        let starting = servers.iter().map(restart).collect::<Result<Vec<_>>>()?;
        let listening_ns = wait_listening(servers);
        for (server, process) in servers.iter().zip(starting) {
            let name = &server.name;
            let ready = process.wait(name).with_context(|| format!("{name} did not start again"))?;
            let is_there = ready.address.as_ref() == Some(&server.address);
            ensure!(is_there, "{name} came back on {:?} instead of {}", ready.address, server.address);
        }
        listening_ns
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let dir = self.cluster_dir();
        if dir.exists() {
            let ended = sheen(&["down", "--force", "--dir"]).and_then(|mut down| run(down.arg(&dir)));
            if let Err(error) = ended {
                say::note(format_args!("{error:#}; killing what is left of it"));
            }
        }
        for process in self.processes() {
            // Gone already is what we want.
            let _ = sys::kill(process.pid, libc::SIGKILL);
            daemon::wait_gone(process.pid, KILL_TIMEOUT);
        }
        for index in 0..self.options.mount_count {
            let point = self.mount_point(index);
            while mount_table::mounted_on(&point).is_some_and(|mounted: Mounted| mounted.is_sheen()) {
                if fuse::unmount(&point, true).is_err() {
                    break;
                }
                mount_table::forget_helper(&point);
            }
            // One that was never made is not there.
            let _ = fs::remove_dir(&point);
        }
        let _ = fs::remove_dir(self.dir.join(MOUNTS));
        for index in self.options.elsewhere_from..self.options.mount_count {
            let _ = fs::remove_dir_all(self.run_dir(index));
        }
        if dir.exists()
            && let Err(error) = fs::remove_dir_all(&dir)
        {
            say::note(format_args!("cannot remove {}: {error}", dir.display()));
        }
        if self.is_dir_ours {
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

/// A command of ours that says nothing unless it fails.
///
/// # Errors
/// This program cannot be found.
pub fn sheen(words: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

/// # Errors
/// It cannot be started, or fails.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().context("cannot start this program")?;
    let words = || command.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    ensure!(status.success(), "sheen {} failed ({status}); see above", words());
    Ok(())
}

/// When all of them listened.
fn wait_listening(servers: &[Server]) -> Result<u64> {
    let begun = Instant::now();
    for server in servers {
        let address =
            server.address.parse().with_context(|| format!("'{}' is no address", server.address))?;
        while !is_listening(&address) {
            let is_late = begun.elapsed() > LISTEN_TIMEOUT;
            ensure!(!is_late, "{} does not listen after {} s", server.name, LISTEN_TIMEOUT.as_secs());
            std::thread::sleep(LISTEN_POLL_INTERVAL);
        }
    }
    Ok(net::clock::now().time.0)
}

/// By the kernel's table: an attempt to connect could take the port itself, where nobody listens yet.
fn is_listening(address: &SocketAddr) -> bool {
    let IpAddr::V4(host) = address.ip() else { return false };
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    is_listening_in(&table, u32::from_ne_bytes(host.octets()), address.port())
}

/// Columns of proc(5): number, local address, remote address, state; 0A is LISTEN.
fn is_listening_in(table: &str, host: u32, port: u16) -> bool {
    let wanted = format!("{host:08X}:{port:04X}");
    table.lines().any(|line| {
        let mut columns = line.split_ascii_whitespace().skip(1);
        columns.next() == Some(&wanted) && columns.nth(1) == Some("0A")
    })
}

#[cfg(test)]
mod tests;
