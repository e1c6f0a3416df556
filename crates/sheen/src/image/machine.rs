//! A machine that an image is copied from: what of it is not copied, and what nodes without its disks wait for.

use crate::{mount_table, say};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where each machine has file systems that are made anew at each boot.
const PASSING: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];
/// More are counted.
const NAMED_COUNT_MAX: usize = 8;

/// A copy stays on one file system: what a node boots with must not be on another.
///
/// # Errors
/// It is, or cannot be seen.
pub fn check_whole(root: &Path) -> Result<()> {
    let device = |dir: &Path| dir.metadata().map(|found| found.dev());
    let own = device(root).with_context(|| format!("cannot read {}", root.display()))?;
    for needed in ["sbin", "bin"] {
        let path = root.join(needed);
        let dir = path.canonicalize().with_context(|| format!("cannot read {}", path.display()))?;
        // An absolute link leads to this machine's, and is copied as it is. Directories: an overlay says other devices for files.
        if dir.starts_with(root)
            && device(&dir).with_context(|| format!("cannot read {}", dir.display()))? != own
        {
            bail!(
                "{} is on another file system than {}, and would not be copied; copy from a directory that has the whole root",
                dir.display(),
                root.display()
            );
        }
    }
    Ok(())
}

/// In the way of a node that boots, perhaps; the operator knows.
pub fn tell_what_differs(root: &Path) {
    let is_passing = |path: &PathBuf| PASSING.iter().any(|name| path.starts_with(root.join(name)));
    let mut others = mount_table::others_below(root);
    others.retain(|path| !is_passing(path));
    if !others.is_empty() {
        say::note(format_args!("not copied, being other file systems: {}", listed(&others)));
    }
    let table = root.join("etc/fstab");
    let text = fs::read(&table).unwrap_or_default();
    let disks = disks_of(&String::from_utf8_lossy(&text));
    if !disks.is_empty() {
        say::note(format_args!(
            "{} mounts from disks, for which nodes without them wait: {}",
            table.display(),
            listed(&disks)
        ));
    }
}

fn listed(paths: &[PathBuf]) -> String {
    let named: Vec<_> = paths.iter().take(NAMED_COUNT_MAX).map(|path| path.display().to_string()).collect();
    let more = match paths.len().saturating_sub(NAMED_COUNT_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.join(", ") + &more
}

/// Places that an fstab(5) mounts at boot from disks of the machine. The root is not among them: a node has another one.
fn disks_of(table: &str) -> Vec<PathBuf> {
    let is_disk = |what: &str| {
        let names = ["/dev/", "UUID=", "LABEL=", "PARTUUID=", "PARTLABEL="];
        names.iter().any(|name| what.starts_with(name))
    };
    let place = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (what, place, _, options) = (words.next()?, words.next()?, words.next(), words.next());
        let is_absent = |word: &str| word == "noauto" || word == "nofail";
        // The initramfs mounts /usr whatever its options say.
        let is_needed = place == "/usr" || !options.unwrap_or_default().split(',').any(is_absent);
        (is_disk(what) && is_needed && place.starts_with('/') && place != "/").then(|| PathBuf::from(place))
    };
    table.lines().filter_map(place).collect()
}

#[cfg(test)]
mod tests;
