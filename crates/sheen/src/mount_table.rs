//! What the kernel has mounted, and whether a directory can be mounted on.

use crate::served::quoted_path;
use crate::sys;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One line of /proc/self/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    id: String,
    /// What it is mounted on something of.
    parent_id: String,
    /// The directory of the file system that is mounted.
    root: PathBuf,
    pub path: PathBuf,
    pub kind: String,
    pub source: String,
    /// `MAJOR:MINOR` of the mounted file system.
    pub device: String,
    /// Of this mount: `rw,noatime`.
    pub options: String,
    /// Of the file system behind it: `ro,user_id=1000,group_id=1000`.
    pub super_options: String,
}

impl Mounted {
    pub fn is_sheen(&self) -> bool {
        self.kind == "fuse.sheen"
    }

    /// What is at this path, as a path in the file system.
    fn place_of(&self, path: &Path) -> Option<PathBuf> {
        path.strip_prefix(&self.path).ok().map(|rest| self.root.join(rest))
    }

    /// Of autofs, with nothing mounted on it yet: who looks into it has another process mount what belongs there.
    fn is_automount(&self) -> bool {
        self.kind == "autofs" && self.super_options.split(',').any(|word| matches!(word, "direct" | "offset"))
    }

    /// What is below an overlay, and is not written to.
    fn lower_dirs(&self) -> impl Iterator<Item = &Path> {
        let words = self.super_options.split(',').filter(|_| self.kind == "overlay");
        let lists = words
            .filter_map(|word| word.strip_prefix("lowerdir=").or_else(|| word.strip_prefix("lowerdir+=")));
        lists.flat_map(|list| list.split(':')).map(Path::new)
    }

    /// True for an overlay with this directory below it.
    fn is_overlay_over(&self, dir: &Path) -> bool {
        self.lower_dirs().any(|lower| lower == dir)
    }

    /// The same for a directory somewhere in this one.
    fn is_overlay_within(&self, dir: &Path) -> bool {
        self.lower_dirs().any(|lower| lower.starts_with(dir))
    }

    /// The user who mounted it.
    pub fn user(&self) -> u32 {
        let user = self.super_options.split(',').find_map(|word| word.strip_prefix("user_id="));
        user.and_then(|user| user.parse().ok()).unwrap_or_default()
    }

    /// Options of mount(2) in force. Either side alone makes it read-only.
    pub fn flags(&self) -> Vec<String> {
        let both = || self.options.split(',').chain(self.super_options.split(','));
        let mut flags = vec![if both().any(|word| word == "ro") { "ro" } else { "rw" }];
        flags.extend(self.options.split(',').filter(|word| !matches!(*word, "ro" | "rw" | "")));
        flags.extend(self.super_options.split(',').filter(|word| matches!(*word, "sync" | "dirsync")));
        flags.into_iter().map(str::to_owned).collect()
    }
}

/// All mounts that this process sees, in the order of mounting. Their names are bytes, as names of files are.
fn all() -> Vec<Mounted> {
    read(Path::new("/proc/self/mountinfo"))
}

/// All mounts that another process sees; none when it is gone or somebody else's.
pub fn of_process(pid: u32) -> Vec<Mounted> {
    read(&PathBuf::from(format!("/proc/{pid}/mountinfo")))
}

fn read(table: &Path) -> Vec<Mounted> {
    let table = fs::read(table).unwrap_or_default();
    table.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// What is mounted somewhere in this directory, not on itself.
pub fn mounted_below(path: &Path) -> Option<PathBuf> {
    below(&all(), path)
}

fn below(all: &[Mounted], path: &Path) -> Option<PathBuf> {
    let is_below = |mounted: &&Mounted| mounted.path != path && mounted.path.starts_with(path);
    all.iter().find(is_below).map(|mounted| mounted.path.clone())
}

/// The same by whatever other path this directory can be reached as well, as with `mount --bind`.
pub fn mounted_below_any_path(path: &Path) -> Option<PathBuf> {
    below_any_path(&all(), path)
}

fn below_any_path(all: &[Mounted], path: &Path) -> Option<PathBuf> {
    let own = deepest(all, path);
    let is_below = |mounted: &Mounted| {
        let under = all.iter().find(|under| under.id == mounted.parent_id)?;
        let own = own.filter(|own| own.device == under.device)?;
        let (point, place) = (under.place_of(&mounted.path)?, own.place_of(path)?);
        Some(point != place && point.starts_with(place))
    };
    let found = all.iter().find(|mounted| is_below(mounted) == Some(true));
    found.map(|mounted| mounted.path.clone()).or_else(|| below(all, path))
}

/// Where something is mounted in this directory that is another file system than the directory itself.
pub fn others_below(path: &Path) -> Vec<PathBuf> {
    let all = all();
    let own = deepest(&all, path).map(|mounted| mounted.device.clone());
    let is_other = |mounted: &Mounted| {
        mounted.path != path && mounted.path.starts_with(path) && Some(&mounted.device) != own.as_ref()
    };
    all.iter().filter(|mounted| is_other(mounted)).map(|mounted| mounted.path.clone()).collect()
}

/// What is mounted on exactly this path; the last one, which hides the others.
pub fn mounted_on(path: &Path) -> Option<Mounted> {
    all().into_iter().rfind(|mounted| mounted.path == path)
}

/// Whether what is mounted on this path is there because autofs has asked for it, or could have.
pub fn is_for_automounter(path: &Path) -> bool {
    is_automounted(&all(), path)
}

fn is_automounted(all: &[Mounted], path: &Path) -> bool {
    let is_direct = |mounted: &Mounted| mounted.path == path && mounted.is_automount();
    let is_name_of = |parent| deepest(all, parent).is_some_and(|mounted| mounted.kind == "autofs");
    all.iter().any(is_direct) || path.parent().is_some_and(is_name_of)
}

/// Whether this device is mounted on this path, perhaps with something else on top.
pub fn is_mounted_on(path: &Path, device: &str) -> bool {
    all().iter().any(|mounted| mounted.path == path && mounted.device == device)
}

/// Where this device is mounted, as a whole or in part, in the order of mounting.
pub fn places_of(device: &str) -> Vec<PathBuf> {
    all().into_iter().filter(|mounted| mounted.device == device).map(|mounted| mounted.path).collect()
}

/// All mounts of ours that this process sees.
pub fn all_sheen() -> Vec<Mounted> {
    all().into_iter().filter(Mounted::is_sheen).collect()
}

/// Where there are overlays of which this directory is one of the lower ones.
pub fn overlays_over(dir: &Path) -> Vec<PathBuf> {
    all().into_iter().filter(|mounted| mounted.is_overlay_over(dir)).map(|mounted| mounted.path).collect()
}

/// Where there are overlays of which something in this directory is one of the lower ones.
pub fn overlays_within(dir: &Path) -> Vec<PathBuf> {
    all().into_iter().filter(|mounted| mounted.is_overlay_within(dir)).map(|mounted| mounted.path).collect()
}

/// The file system that a path is on: the longest mount above it, and of equal ones the last, which hides the others.
pub fn above(path: &Path) -> Option<Mounted> {
    deepest(&all(), path).cloned()
}

fn deepest<'a>(all: &'a [Mounted], path: &Path) -> Option<&'a Mounted> {
    let above = all.iter().filter(|mounted| path.starts_with(&mounted.path));
    above.max_by_key(|mounted| mounted.path.as_os_str().len())
}

/// Has umount(8) call `umount.sheen` for this mount. By itself it looks for the helper of any FUSE mount: it asks statfs(2) for the
/// type, unless the table that it keeps beside the kernel's says more, as it does after this.
pub fn name_helper(source: &str, path: &Path) {
    let mut command = Command::new("mount");
    command.args(["--fake", "--internal-only", "-t", "fuse.sheen", "-o", "uhelper=sheen"]);
    keep_table(command.arg(source).arg(path));
}

/// The mount is gone; what `name_helper` wrote goes too.
pub fn forget_helper(path: &Path) {
    keep_table(Command::new("umount").args(["--fake", "--internal-only"]).arg(path));
}

fn keep_table(command: &mut Command) {
    // The table is root's. Where there is no mount(8) there is no umount(8) either.
    if sys::uid() == 0 {
        let done = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !done.is_ok_and(|status| status.success()) {
            tracing::debug!("the table of mount(8) was not changed; umount(8) will not call our helper");
        }
    }
}

pub fn parse_line(line: &[u8]) -> Option<Mounted> {
    let separator = b" - ";
    let at = line.windows(separator.len()).position(|window| window == separator)?;
    let (left, right) = (line.get(..at)?, line.get(at + separator.len()..)?);
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let mut fields = left.split(|byte| *byte == b' ');
    let (id, parent_id, device) = (text(fields.next()?), text(fields.next()?), text(fields.next()?));
    let root = OsString::from_vec(unescape(fields.next()?)).into();
    let (path, options) = (unescape(fields.next()?), text(fields.next()?));
    let mut fields = right.split(|byte| *byte == b' ');
    let kind = text(fields.next()?);
    let source = text(&unescape(fields.next().unwrap_or_default()));
    let super_options = text(fields.next().unwrap_or_default());
    let path = OsString::from_vec(path).into();
    Some(Mounted { id, parent_id, root, path, kind, source, device, options, super_options })
}

/// The kernel writes blanks and the like as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits =
            after.get(..3).filter(|_| *first == b'\\').and_then(|digits| str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = after;
            }
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
        if mounted.is_automount() {
            // To look whether it is empty would be to wait for what is about to be mounted.
            return Ok(());
        }
        bail!(
            "{} is already a mount point ({}); unmount it first, or choose another directory",
            path.display(),
            mounted.kind
        );
    }
    let mut entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!(
                "the mount point {} does not exist; make it first: mkdir {}",
                path.display(),
                quoted_path(path)
            )
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
