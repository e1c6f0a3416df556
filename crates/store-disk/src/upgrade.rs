//! Bringing the directory of a target from an older format to the one of this program, after a copy of its metadata.
//!
//! The new rows and the new superblock are made aside and synced. Then three renames follow: the new superblock takes its place, which is
//! the moment from which the directory is of the new format; the old rows go to where the copy is kept; the new ones take their place. Before
//! the first of them the directory is as it was, and a second attempt begins anew. Between them, nobody opens it (`is_begun`), and a second
//! attempt goes on.
//!
//! A second attempt may be that of another version of the program. So what is made aside says from which format to which: if the
//! superblock has that format, the upgrade is to be completed, by whatever version; else nothing relies on it. Objects stay where they are: they carry a version of their own.

#![expect(
    clippy::disallowed_methods,
    reason = "only the command `sheen upgrade` runs this: nothing is served, and nobody has replaced anybody"
)]

use crate::device::{self, Syncing};
use crate::directory::{
    DirectoryError, FORMAT_VERSION, Lock, META_NAME, SUPERBLOCK_NAME, lock, parse_superblock,
    read_superblock_text, version_of,
};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

const ASIDE_NAME: &str = "upgrade.new";
/// The same before it says what it is.
const BEGUN_NAME: &str = "upgrade.begun";
/// In it: what it is.
const MARK_NAME: &str = "formats";
const MARK_BYTES_MAX: u64 = 64;
/// What the device must have besides the copies: names, and what a step adds.
const ROOM_BYTES: u64 = 16 << 20;
/// A copy says how far it is after so many.
const COPIED_AT_ONCE_BYTES: u64 = 8 << 20;

/// From one format to the next.
pub struct Step {
    pub from: u32,
    /// What it changes, for the operator.
    pub about: &'static str,
    /// The text of a superblock of format `from`, as one of the next.
    pub superblock: fn(&[u8]) -> Result<Vec<u8>, String>,
    /// Changes the rows' directory, which is a copy that nobody else knows.
    pub rows: fn(&Path) -> io::Result<()>,
}

/// There has been one format only.
pub const STEPS: &[Step] = &[];

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upgraded {
    /// It is of this program's format already.
    NothingToDo,
    /// Its former rows and superblock are kept in `copy`.
    Done { from: u32, copy: PathBuf, about: Vec<&'static str> },
    /// An earlier attempt was interrupted after the new superblock had taken its place.
    Completed { copy: PathBuf },
    /// It is of this program's format already, and what an attempt of another version had begun is removed.
    Removed { to: u32 },
}

/// How far an upgrade is, told at each point at which the process may die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// So much of the metadata is copied.
    Copied { file_count: u64, byte_count: u64, total_bytes: u64 },
    /// Something else is done.
    Step,
}

/// Why a directory cannot be upgraded. Nothing of it has changed then.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(
        "no step leads from format {found} of {path} to {FORMAT_VERSION}; start it with the version that made it"
    )]
    NoWay { path: PathBuf, found: u32 },
    #[error(
        "{path} is about to be upgraded, and its device has {available_bytes} bytes left, of {needed_bytes} for a copy of the metadata; make room"
    )]
    NoRoom { path: PathBuf, needed_bytes: u64, available_bytes: u64 },
    #[error("{copy} is there already, from another upgrade; move it away")]
    CopyExists { copy: PathBuf },
    #[error("{aside} is there, and no upgrade has made it; move it away")]
    Strange { aside: PathBuf },
    #[error("the step from format {from} of {path} fails: {reason}; it is as it was")]
    Step { path: PathBuf, from: u32, reason: String },
    #[error("cannot upgrade {path}")]
    Io { path: PathBuf, source: io::Error },
}

/// Whether an upgrade has gone so far that only another attempt helps.
pub(crate) fn is_begun(path: &Path) -> bool {
    path.join(ASIDE_NAME).exists()
}

/// Brings a directory that nobody serves to the format of this program. `at` is told how far it is.
///
/// # Errors
/// See [`UpgradeError`].
pub fn upgrade(path: &Path, steps: &[Step], at: &mut dyn FnMut(Reached)) -> Result<Upgraded, UpgradeError> {
    // First without the lock, so that nothing is created in a directory that is no target.
    version_of(path, &read_superblock_text(path)?)?;
    let job = Job { path, syncing: Syncing::from_environment(), _lock: lock(path)? };
    let old = read_superblock_text(path)?;
    let from = version_of(path, &old)?;
    if from > FORMAT_VERSION {
        return Err(DirectoryError::wrong_version(path, from).into());
    }
    if from == FORMAT_VERSION {
        parse_superblock(path, &old)?;
        return job.end_earlier(from, at);
    }
    job.end_earlier(from, at)?;
    let way = way_from(path, from, steps)?;
    let copy = job.copy(from);
    if copy.join(META_NAME).exists() {
        return Err(UpgradeError::CopyExists { copy });
    }
    job.check_room()?;
    let made = job.prepare(&old, &way, &copy, at);
    if made.is_err() {
        // Nothing relies on it; what cannot be removed now is removed by the next attempt.
        let _ = if is_begun(path) { job.remove_aside() } else { remove(&path.join(BEGUN_NAME)) };
        let _ = fs::remove_file(copy.join(SUPERBLOCK_NAME)).and_then(|()| fs::remove_dir(&copy));
    }
    made?;
    let install = || -> io::Result<()> {
        fs::rename(job.aside().join(SUPERBLOCK_NAME), path.join(SUPERBLOCK_NAME))?;
        job.syncing.sync_directory(path)
    };
    install().map_err(|source| job.failed(source))?;
    at(Reached::Step);
    job.complete(&copy, at).map_err(|source| job.failed(source))?;
    Ok(Upgraded::Done { from, copy, about: way.iter().map(|step| step.about).collect() })
}

/// The steps from a format to that of this program.
fn way_from<'a>(path: &Path, found: u32, steps: &'a [Step]) -> Result<Vec<&'a Step>, UpgradeError> {
    let step_of = |from| steps.iter().find(|step| step.from == from);
    let way: Option<Vec<&Step>> = (found..FORMAT_VERSION).map(step_of).collect();
    way.ok_or_else(|| UpgradeError::NoWay { path: path.to_path_buf(), found })
}

/// What is made aside, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    from: u32,
    to: u32,
}

impl Mark {
    fn text(self) -> String {
        format!("from {} to {}\n", self.from, self.to)
    }

    fn parse(text: &str) -> Option<Mark> {
        let (from, to) = text.strip_prefix("from ")?.strip_suffix('\n')?.split_once(" to ")?;
        Some(Mark { from: from.parse().ok()?, to: to.parse().ok()? })
    }
}

/// One upgrade of a directory that is locked.
struct Job<'a> {
    path: &'a Path,
    syncing: Syncing,
    _lock: Lock,
}

impl Job<'_> {
    fn aside(&self) -> PathBuf {
        self.path.join(ASIDE_NAME)
    }

    /// Where the metadata of the old format are kept.
    fn copy(&self, from: u32) -> PathBuf {
        self.path.join(format!("format-{from}"))
    }

    fn failed(&self, source: io::Error) -> UpgradeError {
        UpgradeError::Io { path: self.path.to_path_buf(), source }
    }

    /// What an attempt has left that did not come to its end, of whatever version of the program.
    fn end_earlier(&self, found: u32, at: &mut dyn FnMut(Reached)) -> Result<Upgraded, UpgradeError> {
        let failed = |source| self.failed(source);
        remove(&self.path.join(BEGUN_NAME)).map_err(failed)?;
        if !is_begun(self.path) {
            return Ok(Upgraded::NothingToDo);
        }
        let mark = self.mark().map_err(failed)?;
        let mark = mark.ok_or_else(|| UpgradeError::Strange { aside: self.aside() })?;
        if mark.to != found {
            // The superblock is not that of the attempt, so nothing relies on what it has made.
            self.remove_aside().map_err(failed)?;
            return Ok(Upgraded::Removed { to: mark.to });
        }
        let copy = self.copy(mark.from);
        if !copy.join(SUPERBLOCK_NAME).exists() {
            return Err(UpgradeError::Strange { aside: self.aside() });
        }
        self.complete(&copy, at).map_err(failed)?;
        Ok(Upgraded::Completed { copy })
    }

    /// What the directory aside says of itself.
    fn mark(&self) -> io::Result<Option<Mark>> {
        let path = self.aside().join(MARK_NAME);
        // Whoever opens something else might wait for ever.
        if !path.is_file() {
            return Ok(None);
        }
        let mut text = Vec::new();
        fs::File::open(path)?.take(MARK_BYTES_MAX).read_to_end(&mut text)?;
        Ok(std::str::from_utf8(&text).ok().and_then(Mark::parse))
    }

    /// The directory aside is never there without its mark.
    fn begin(&self, mark: Mark, at: &mut dyn FnMut(Reached)) -> io::Result<()> {
        let begun = self.path.join(BEGUN_NAME);
        fs::create_dir(&begun)?;
        self.write(&begun.join(MARK_NAME), mark.text().as_bytes())?;
        self.syncing.sync_directory(&begun)?;
        at(Reached::Step);
        fs::rename(begun, self.aside())?;
        self.syncing.sync_directory(self.path)
    }

    fn check_room(&self) -> Result<(), UpgradeError> {
        let byte_count = byte_count(&self.path.join(META_NAME)).map_err(|source| self.failed(source))?;
        let needed_bytes = byte_count.saturating_add(ROOM_BYTES);
        let available_bytes = device::space(self.path).map_err(|source| self.failed(source))?.avail_bytes;
        if available_bytes >= needed_bytes {
            return Ok(());
        }
        Err(UpgradeError::NoRoom { path: self.path.to_path_buf(), needed_bytes, available_bytes })
    }

    /// Makes all that is new, aside and durable, and the superblock's copy.
    fn prepare(
        &self,
        old: &[u8],
        way: &[&Step],
        copy: &Path,
        at: &mut dyn FnMut(Reached),
    ) -> Result<(), UpgradeError> {
        let failed = |source| self.failed(source);
        let rows = self.aside().join(META_NAME);
        let from = way.first().map_or(FORMAT_VERSION, |step| step.from);
        self.begin(Mark { from, to: FORMAT_VERSION }, at).map_err(failed)?;
        at(Reached::Step);
        let has_rows = self.path.join(META_NAME).exists();
        if has_rows {
            let from = self.path.join(META_NAME);
            let mut copying =
                Copying { file_count: 0, byte_count: 0, total_bytes: byte_count(&from).map_err(failed)?, at };
            copying.tree(&from, &rows).map_err(failed)?;
        }
        at(Reached::Step);
        let mut text = old.to_vec();
        for step in way {
            let wrong =
                |reason| UpgradeError::Step { path: self.path.to_path_buf(), from: step.from, reason };
            text = (step.superblock)(&text).map_err(wrong)?;
            if has_rows {
                (step.rows)(&rows).map_err(|error| wrong(error.to_string()))?;
            }
            at(Reached::Step);
        }
        parse_superblock(self.path, &text)?;
        self.write(&self.aside().join(SUPERBLOCK_NAME), &text).map_err(failed)?;
        self.sync_tree(&self.aside()).map_err(failed)?;
        at(Reached::Step);
        fs::create_dir_all(copy).map_err(failed)?;
        self.write(&copy.join(SUPERBLOCK_NAME), old).map_err(failed)?;
        self.syncing.sync_directory(copy).map_err(failed)?;
        self.syncing.sync_directory(self.path).map_err(failed)?;
        at(Reached::Step);
        Ok(())
    }

    /// The new superblock is in its place: the rows follow, and the old ones are kept.
    fn complete(&self, copy: &Path, at: &mut dyn FnMut(Reached)) -> io::Result<()> {
        let aside = self.aside();
        let (rows, new) = (self.path.join(META_NAME), aside.join(META_NAME));
        if new.exists() {
            // The old ones are still there, unless they have been moved already.
            if rows.exists() {
                fs::rename(&rows, copy.join(META_NAME))?;
                self.syncing.sync_directory(copy)?;
                at(Reached::Step);
            }
            fs::rename(&new, &rows)?;
            at(Reached::Step);
        }
        self.syncing.sync_directory(self.path)?;
        self.remove_aside()?;
        at(Reached::Step);
        Ok(())
    }

    /// At once: what is left without its mark would be of nobody.
    fn remove_aside(&self) -> io::Result<()> {
        let begun = self.path.join(BEGUN_NAME);
        remove(&begun)?;
        fs::rename(self.aside(), &begun)?;
        self.syncing.sync_directory(self.path)?;
        remove(&begun)?;
        self.syncing.sync_directory(self.path)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = device::open(path, true)?;
        device::set_length(&file, 0)?;
        device::write_all(&file, bytes, 0).map_err(|(_, error)| error)?;
        self.syncing.sync_all(&file)
    }

    fn sync_tree(&self, directory: &Path) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                self.sync_tree(&path)?;
            } else {
                self.syncing.sync_all(&device::open_to_read(&path)?)?;
            }
        }
        self.syncing.sync_directory(directory)
    }
}

/// A copy on its way.
struct Copying<'a> {
    file_count: u64,
    byte_count: u64,
    total_bytes: u64,
    at: &'a mut dyn FnMut(Reached),
}

impl Copying<'_> {
    fn tree(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            if entry.file_type()?.is_dir() { self.tree(&from, &to)? } else { self.file(&from, &to)? }
        }
        Ok(())
    }

    fn file(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (source, mut copy) = (fs::File::open(from)?, fs::File::create_new(to)?);
        copy.set_permissions(source.metadata()?.permissions())?;
        loop {
            let copied = io::copy(&mut (&source).take(COPIED_AT_ONCE_BYTES), &mut copy)?;
            self.byte_count = self.byte_count.saturating_add(copied);
            if copied < COPIED_AT_ONCE_BYTES {
                self.file_count = self.file_count.saturating_add(1);
                self.tell();
                return Ok(());
            }
            self.tell();
        }
    }

    fn tell(&mut self) {
        let Copying { file_count, byte_count, total_bytes, .. } = *self;
        (self.at)(Reached::Copied { file_count, byte_count, total_bytes });
    }
}

/// Of all files in a directory; zero when it is not there.
fn byte_count(directory: &Path) -> io::Result<u64> {
    let mut sum = 0_u64;
    if !directory.exists() {
        return Ok(sum);
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_directory = entry.file_type()?.is_dir();
        sum = sum.saturating_add(if is_directory {
            byte_count(&entry.path())?
        } else {
            entry.metadata()?.len()
        });
    }
    Ok(sum)
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
