//! What the kernel has mounted, and whether a directory can be mounted on.

use anyhow::{Context, Result, bail};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One line of /proc/self/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    pub path: PathBuf,
    pub kind: String,
    pub source: String,
    /// `MAJOR:MINOR` of the mounted file system.
    pub device: String,
}

impl Mounted {
    pub fn is_sheen(&self) -> bool {
        self.kind == "fuse.sheen"
    }
}

/// What is mounted on exactly this path; the last one, which hides the others.
pub fn mounted_on(path: &Path) -> Option<Mounted> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter_map(parse_line).rfind(|mounted| mounted.path == path)
}

/// All mounts of ours that this process sees.
pub fn all_sheen() -> Vec<Mounted> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter_map(parse_line).filter(Mounted::is_sheen).collect()
}

/// The file system that a path is on: the longest mount above it, and of equal ones the last, which hides the others.
pub fn above(path: &Path) -> Option<Mounted> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let above = table.lines().filter_map(parse_line).filter(|mounted| path.starts_with(&mounted.path));
    above.max_by_key(|mounted| mounted.path.as_os_str().len())
}

fn parse_line(line: &str) -> Option<Mounted> {
    let (left, right) = line.split_once(" - ")?;
    let path = unescape(left.split(' ').nth(4)?);
    let mut fields = right.split(' ');
    let kind = fields.next()?.to_owned();
    let device = left.split(' ').nth(2)?.to_owned();
    Some(Mounted { path: path.into(), kind, source: unescape(fields.next().unwrap_or_default()), device })
}

/// The kernel writes blanks and the like as a backslash and three octal digits.
fn unescape(field: &str) -> String {
    let mut out = String::new();
    let mut parts = field.split('\\');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(char::from(byte));
                out.push_str(part.get(3..).unwrap_or_default());
            }
            None => out.push_str(part),
        }
    }
    out
}

/// The path without symbolic links, although the last part may be a dead mount (which nobody can look into).
///
/// # Errors
/// A parent directory is missing.
pub fn resolve(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).with_context(|| format!("'{}' is no path", path.display()))?;
    if let Ok(real) = path.canonicalize() {
        return Ok(real);
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path) };
    let parent = parent
        .canonicalize()
        .with_context(|| format!("the directory {} does not exist; make it first", parent.display()))?;
    Ok(parent.join(name))
}

/// # Errors
/// The directory is missing, in use or not empty.
pub fn check_mount_point(path: &Path) -> Result<()> {
    if let Some(mounted) = mounted_on(path) {
        bail!(
            "{} is already a mount point ({}); unmount it first, or choose another directory",
            path.display(),
            mounted.kind
        );
    }
    let mut entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("the mount point {} does not exist; make it first: mkdir {0}", path.display())
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            bail!("the mount point {} is no directory; choose another one", path.display())
        }
        Err(error) => return Err(error).with_context(|| format!("cannot look into {}", path.display())),
    };
    if entries.next().is_some() {
        bail!("the mount point {} is not empty; choose an empty directory", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
