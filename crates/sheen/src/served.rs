//! What servers of this machine serve, so that somebody misses it when one has died.
//!
//! Each server has a file beside its control socket with its targets and what starts it again, and a lock on that file for as long as it lives: the
//! kernel lets go of the lock with the process, however that ends. Who ends in order removes the file. One with a free lock is therefore of a
//! process that was killed, or that has given up, and its targets are down until somebody serves them again. Of a process that lives and
//! says nothing the file says what it serves.
//!
//! Servers with failover write none: others stand by for what they serve, and say so.

use crate::control::{self, TargetStatus};
use crate::others;
use crate::sys;
use crate::target_dir;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What a file may say.
const TEXT_BYTES_MAX: u64 = 1 << 20;
const ENDING: &str = "served";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Text {
    targets: Vec<TargetStatus>,
    start: String,
    /// The devices on which their directories are, in their order.
    #[serde(default)]
    devices: Vec<u64>,
}

/// A server that has died, and what nobody serves since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    pub pid: u32,
    pub targets: Vec<TargetStatus>,
    /// The command that starts it again, as the user that it had.
    pub start: String,
    /// Directories of them that are not there, without having been removed as far as can be seen: their disks are gone.
    pub vanished: Vec<PathBuf>,
    /// Where that is written down.
    pub record: PathBuf,
}

/// Whether the directory of a target is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Here,
    /// Its disk is here, and it is not.
    Removed,
    Vanished,
}

/// `device`: the one on which it was. A place on another one is that where its disk was mounted.
fn presence(dir: &Path, device: Option<u64>) -> Presence {
    if target_dir::exists(dir) {
        return Presence::Here;
    }
    let found = dir.ancestors().find_map(|place| match fs::metadata(place) {
        Ok(metadata) => Some(Some(metadata.dev())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        // A dead disk says nothing of what is on it.
        Err(_) => Some(None),
    });
    if device.is_some() && found.flatten() == device { Presence::Removed } else { Presence::Vanished }
}

/// The file of this process, as long as this lives.
#[derive(Debug)]
pub struct Record {
    _locked: File,
    path: PathBuf,
}

impl Record {
    /// Writes down what this process serves; nothing where that is nothing, or cannot be written: it is not missed then.
    pub fn write(targets: Vec<TargetStatus>, cluster_dir: Option<&Path>) -> Option<Record> {
        let start = match cluster_dir {
            Some(dir) => format!("sheen up --dir {}", quoted_path(dir)),
            None => command(std::env::args_os().skip(1)),
        };
        let written = control::make_run_dir().and_then(|dir| {
            let dirs: Vec<&Path> = targets.iter().map(|target| target.dir.as_path()).collect();
            // Served again.
            forget(&dir, |target| dirs.contains(&target));
            // Of one that cannot be looked at, no device is its own.
            let device = |dir: &&Path| fs::metadata(dir).map_or(u64::MAX, |metadata| metadata.dev());
            let devices = dirs.iter().map(device).collect();
            Ok(write_in(&dir, std::process::id(), &Text { targets: targets.clone(), start, devices })?)
        });
        written.inspect_err(|error| tracing::debug!("nobody will miss this server: {error:#}")).ok()
    }

    /// It ends in order.
    pub fn forget(self) {
        // One that stays says that its targets are down, which is true.
        let _ = fs::remove_file(&self.path);
    }
}

fn write_in(dir: &Path, pid: u32, text: &Text) -> io::Result<Record> {
    let path = dir.join(format!("{pid}.{ENDING}"));
    // Of an earlier process with our number.
    let _ = fs::remove_file(&path);
    let mut file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    if !sys::try_lock(&file)? {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    file.write_all(&serde_json::to_vec(text)?)?;
    Ok(Record { _locked: file, path })
}

/// Words that a shell reads as they are, without what only the one who started it could mean.
pub fn command(arguments: impl Iterator<Item = OsString>) -> String {
    let mut words = vec!["sheen".to_owned()];
    let mut arguments = arguments.map(|word| word.to_string_lossy().into_owned());
    while let Some(word) = arguments.next() {
        if matches!(word.as_str(), "--ready-fd" | "--held-fd") {
            arguments.next();
        } else {
            words.push(quoted(&word));
        }
    }
    words.join(" ")
}

pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:,@=+%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A path as a word of a command that is shown.
pub fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// Servers that have died, with those of their targets that nobody serves now. `is_served`: whether a living process has the target of
/// a directory.
pub fn gone(is_served: impl Fn(&Path) -> bool) -> Vec<Gone> {
    gone_in(&control::run_dir(), is_served)
}

fn gone_in(dir: &Path, is_served: impl Fn(&Path) -> bool) -> Vec<Gone> {
    let mut gone: Vec<Gone> = dead_in(dir)
        .into_iter()
        .filter_map(|(pid, record, Text { targets, start, devices })| {
            let (mut down, mut vanished) = (Vec::new(), Vec::new());
            for (at, target) in targets.into_iter().enumerate() {
                match presence(&target.dir, devices.get(at).copied()) {
                    _ if is_served(&target.dir) => continue,
                    Presence::Removed => continue,
                    Presence::Here => {}
                    Presence::Vanished => vanished.push(target.dir.clone()),
                }
                let state = super::status::DOWN.to_owned();
                down.push(TargetStatus {
                    state,
                    pid: 0,
                    recovery: None,
                    alert: None,
                    unheard: Vec::new(),
                    ..target
                });
            }
            if down.is_empty() {
                // All of it is served again, or was removed.
                let _ = fs::remove_file(record);
                return None;
            }
            let start = match fs::metadata(&record) {
                Ok(of) if of.uid() != sys::uid() => others::server_command(&start, of.uid(), of.gid()),
                _ => start,
            };
            Some(Gone { pid, targets: down, start, vanished, record })
        })
        .collect();
    gone.sort_by_key(|gone| gone.pid);
    gone
}

/// What these processes serve, which live and say nothing.
pub fn of_silent(pids: &[u32]) -> Vec<TargetStatus> {
    of_silent_in(&control::run_dir(), pids)
}

fn of_silent_in(dir: &Path, pids: &[u32]) -> Vec<TargetStatus> {
    let texts = living_in(dir).into_iter().filter(|(pid, _)| pids.contains(pid));
    let silent = |pid, target| TargetStatus {
        state: super::status::SILENT.to_owned(),
        pid,
        recovery: None,
        alert: None,
        unheard: Vec::new(),
        ..target
    };
    texts.flat_map(|(pid, text)| text.targets.into_iter().map(move |target| silent(pid, target))).collect()
}

/// The directories of what all other processes serve that live.
pub fn dirs_of_others(pids: &[u32]) -> BTreeSet<PathBuf> {
    let texts = living_in(&control::run_dir()).into_iter().filter(|(pid, _)| !pids.contains(pid));
    texts.flat_map(|(_, text)| text.targets.into_iter().map(|target| target.dir)).collect()
}

/// The processes that live and serve something below this directory, whether or not they say anything.
pub fn living_below(dir: &Path) -> Vec<u32> {
    living_below_in(&control::run_dir(), dir)
}

fn living_below_in(run_dir: &Path, dir: &Path) -> Vec<u32> {
    let is_below = |text: &Text| text.targets.iter().any(|target| target.dir.starts_with(dir));
    living_in(run_dir).into_iter().filter(|(_, text)| is_below(text)).map(|(pid, _)| pid).collect()
}

/// Those whose process lives, with its number.
fn living_in(dir: &Path) -> Vec<(u32, Text)> {
    let living = |(pid, path): (u32, PathBuf)| {
        let file = File::options().read(true).write(true).open(path).ok()?;
        // One with a free lock is of an earlier process with this number.
        let is_its = !sys::is_unlocked(&file).ok()?;
        is_its.then(|| Some((pid, text_of(file)?))).flatten()
    };
    control::files_in(dir, ENDING).into_iter().filter_map(living).collect()
}

/// What is below this directory is not missed any more: somebody has stopped it.
pub fn forget_below(dir: &Path) {
    forget(&control::run_dir(), |target| target.starts_with(dir));
}

/// Those all of whose targets are meant.
fn forget(run_dir: &Path, is_meant: impl Fn(&Path) -> bool) {
    for (_, record, dead) in dead_in(run_dir) {
        if dead.targets.iter().all(|target| is_meant(&target.dir)) {
            let _ = fs::remove_file(record);
        }
    }
}

/// Those whose process is gone, with its number and the file.
fn dead_in(dir: &Path) -> Vec<(u32, PathBuf, Text)> {
    let entries = control::files_in(dir, ENDING).into_iter();
    entries.filter_map(|(pid, path)| Some((pid, path.clone(), read(&path)?))).collect()
}

fn read(path: &Path) -> Option<Text> {
    let file = File::options().read(true).write(true).open(path).ok()?;
    if !sys::is_unlocked(&file).ok()? {
        return None;
    }
    text_of(file)
}

/// `None` of one that is being written just now, or whose process was killed there.
fn text_of(file: File) -> Option<Text> {
    let mut text = String::new();
    file.take(TEXT_BYTES_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests;
