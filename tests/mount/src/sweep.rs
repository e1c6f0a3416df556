//! Cleaning up after something that may have been killed at any moment, from what the kernel knows: processes by a tag in their
//! environment, mounts by their place under a directory, loop devices by their backing file. Nothing here needs a record kept by
//! the thing that died, and nothing touches a path inside a mount that may hang.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::{bounded, sys};

/// These bound a hang only: a busy machine takes its time.
const STEP_LIMIT: Duration = Duration::from_secs(60);
const DEATH_WAIT: Duration = Duration::from_secs(60);
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// Kills (SIGKILL) every process whose environment holds `tag` as an entry, ourselves excepted, and returns how many.
pub fn kill_tagged(tag: &str) -> usize {
    let victims = tagged(tag);
    for pid in &victims {
        // Gone already is what we want.
        let _ = sys::kill(*pid, libc::SIGKILL);
    }
    victims.len()
}

/// The processes whose environment holds `tag` as an entry, ourselves excepted.
pub fn tagged(tag: &str) -> Vec<i32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let ourselves = std::process::id() as i32;
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut rest: Vec<i32> = pids.filter(|pid| *pid != ourselves).collect();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let seen_count = look(&rest, tag, &mut found);
        rest.drain(..(seen_count + 1).min(rest.len()));
    }
    found
}

/// Looks at one process after the other, until all are seen or one cannot be: who hangs in exec(2), as it closes a file on a mount
/// that does not answer, hangs all who read its environment. Such a one dies with its group, or when its mount is aborted. Returns
/// how many were seen.
fn look(pids: &[i32], tag: &str, found: &mut Vec<i32>) -> usize {
    let (sender, receiver) = mpsc::channel();
    let (looked_at, tag) = (pids.to_vec(), tag.to_owned());
    std::thread::spawn(move || {
        // Nobody listens any more to who was stuck.
        looked_at.into_iter().try_for_each(|pid| sender.send(is_tagged(pid, &tag).then_some(pid)))
    });
    for seen_count in 0..pids.len() {
        match receiver.recv_timeout(LOOK_LIMIT) {
            Ok(pid) => found.extend(pid),
            Err(_) => return seen_count,
        }
    }
    pids.len()
}

/// Whether a process has ended. Nobody may have waited for it: the first process of a namespace inherits what outlives its parent, and need
/// not care.
pub fn has_ended(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().next());
    // The first thread may have ended before the others.
    let thread_count = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    state.is_none_or(|state| "ZX".contains(state) && thread_count() <= 1)
}

fn is_tagged(pid: i32, tag: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == tag.as_bytes())
}

/// A mount as /proc/self/mountinfo lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    pub point: PathBuf,
    pub kind: String,
    /// The minor number of its device, which names a FUSE connection.
    pub minor: u32,
}

impl Mounted {
    /// True for every kind of FUSE mount.
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind.starts_with("fuse.") || self.kind == "fuseblk"
    }

    /// The answer to every request of this FUSE mount becomes ENOTCONN; processes that hang in it go on.
    pub fn abort(&self) {
        // Without fusectl the death of the daemon does the same.
        let _ = fs::write(format!("/sys/fs/fuse/connections/{}/abort", self.minor), "1");
    }
}

/// Every mount at or below `directory`, outermost first.
pub fn mounts_under(directory: &Path) -> Vec<Mounted> {
    let table = table("/proc/self/mountinfo");
    table.lines().filter_map(parse_mount).filter(|mount| mount.point.starts_with(directory)).collect()
}

/// A mount table; names that are no text, which anybody may mount on, must not hide the others.
pub fn table(path: &str) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn parse_mount(line: &str) -> Option<Mounted> {
    let (left, right) = line.split_once(" - ")?;
    let mut fields = left.split(' ');
    let minor = fields.nth(2)?.split_once(':')?.1.parse().ok()?;
    let point = PathBuf::from(unescape(fields.nth(1)?));
    Some(Mounted { point, kind: right.split(' ').next()?.to_owned(), minor })
}

/// mountinfo writes blanks and the like as a backslash and three octal digits.
fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                text.push(char::from(code));
                text.push_str(part.get(3..).unwrap_or_default());
            }
            None => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

/// A new directory with a short path (below TMPDIR), for sockets and mount points. Other users may pass through it to what is
/// theirs.
pub fn short_directory() -> io::Result<tempfile::TempDir> {
    let directory = tempfile::Builder::new().prefix("sheen-").rand_bytes(4).tempdir()?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711))?;
    Ok(directory)
}

/// Makes everything that belongs to `directory` and `tag` go away: FUSE connections aborted, processes killed, mounts detached,
/// loop devices detached. Returns what it found, one phrase each; nothing found is the normal case.
pub fn release(directory: &Path, tag: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mounts = mounts_under(directory);
    for mount in mounts.iter().filter(|mount| mount.is_fuse()) {
        mount.abort();
    }
    let killed = kill_tagged(tag);
    if killed > 0 {
        found.push(format!("killed {killed} processes"));
        wait_for_death(tag);
    }
    for mount in mounts.iter().rev() {
        found.push(format!("detached {}", mount.point.display()));
        detach(&mount.point);
    }
    for device in loops_under(directory) {
        found.push(format!("freed {device}"));
        let _ = bounded::say(Command::new("losetup").args(["-d", &device]), "SHEEN_SWEEP=1", STEP_LIMIT);
    }
    found
}

fn wait_for_death(tag: &str) {
    let started = Instant::now();
    while !tagged(tag).is_empty() && started.elapsed() < DEATH_WAIT {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `umount -l`, but by the system call: it needs no helper, which might wait for a daemon that is dead, and no lock on a table.
pub fn detach(point: &Path) {
    if let Err(error) = sys::detach(point) {
        println!("cannot detach {}: {error}", point.display());
    }
}

fn loops_under(directory: &Path) -> Vec<String> {
    let Ok(devices) = fs::read_dir("/sys/block") else { return Vec::new() };
    devices
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("loop"))
        .filter(|entry| {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
            Path::new(backing.trim_end()).starts_with(directory)
        })
        .map(|entry| format!("/dev/{}", entry.file_name().to_string_lossy()))
        .collect()
}

#[cfg(test)]
mod tests;
