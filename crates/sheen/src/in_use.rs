//! Who keeps a mounted file system: processes that have something of it open, and its copies in other places and mount namespaces.
//!
//! Asks the kernel only, never the file system, whose servers may be dead. Without root only our own processes can be looked at.

use crate::mount_table;
use crate::sys;
use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// A process that uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub pid: u32,
    pub command: String,
    /// In another mount namespace than ours: a container, a service with a view of its own.
    pub is_elsewhere: bool,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} ({})", self.pid, self.command)?;
        if self.is_elsewhere { f.write_str(" in another mount namespace") } else { Ok(()) }
    }
}

/// One more place where it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    pub path: PathBuf,
    /// A process whose mount namespace that is; `None` for our own.
    pub elsewhere: Option<User>,
}

impl fmt::Display for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.elsewhere {
            Some(User { pid, command, .. }) => write!(f, "in the mount namespace of pid {pid} ({command})"),
            None => write!(f, "on {}", self.path.display()),
        }
    }
}

/// The processes that have files or directories of this device open or mapped, work in them or have their root there. `device` is
/// `MAJOR:MINOR`.
pub fn users(device: &str) -> Vec<User> {
    let (ours, ourselves) = (namespace(std::process::id()), std::process::id());
    let uses = |pid: &u32| *pid != ourselves && is_user(&dir(*pid), device);
    let user = |pid| User { pid, command: command(pid), is_elsewhere: namespace(pid) != ours };
    pids().into_iter().filter(uses).map(user).collect()
}

/// Where this device is mounted, in all mount namespaces, each namespace once.
pub fn copies(device: &str) -> Vec<Copy> {
    let ours = namespace(std::process::id());
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for pid in std::iter::once(std::process::id()).chain(pids()) {
        let Some(namespace) = namespace(pid) else { continue };
        if !seen.insert(namespace.clone()) {
            continue;
        }
        let is_ours = Some(&namespace) == ours.as_ref();
        let mounts = mount_table::of_process(pid).into_iter().filter(|mounted| mounted.device == device);
        found.extend(mounts.map(|mounted| Copy {
            path: mounted.path,
            elsewhere: (!is_ours).then(|| User { pid, command: command(pid), is_elsewhere: true }),
        }));
    }
    found
}

/// `the first and 3 more`, for messages; `None` when there is nobody.
pub fn named<T: fmt::Display>(list: &[T]) -> Option<String> {
    let (first, others) = list.split_first()?;
    Some(match others.len() {
        0 => first.to_string(),
        count => format!("{first} and {count} more"),
    })
}

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn dir(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

fn namespace(pid: u32) -> Option<PathBuf> {
    fs::read_link(dir(pid).join("ns/mnt")).ok()
}

fn command(pid: u32) -> String {
    let name = fs::read(dir(pid).join("comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

fn is_user(process: &Path, device: &str) -> bool {
    let is_there = |path: PathBuf| sys::device_of(&path).is_ok_and(|found| found == device);
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
    let standing = ["cwd", "root", "exe"].iter().map(|name| process.join(name));
    standing.chain(open).any(is_there) || has_mapped(process, device)
}

/// A mapping holds a file after its descriptor was closed.
fn has_mapped(process: &Path, device: &str) -> bool {
    let Some((major, minor)) = device.split_once(':') else { return false };
    let (Ok(major), Ok(minor)) = (major.parse::<u32>(), minor.parse::<u32>()) else { return false };
    let wanted = format!("{major:02x}:{minor:02x}");
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    // ADDRESS PERMISSIONS OFFSET DEVICE INODE PATH
    let is_of = |line: &[u8]| line.split(|byte| *byte == b' ').nth(3) == Some(wanted.as_bytes());
    maps.split(|byte| *byte == b'\n').any(is_of)
}

#[cfg(test)]
mod tests;
