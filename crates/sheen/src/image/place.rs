//! Where an image and its versions are, what is written down about them, and who uses them.
//!
//! `images/NAME` is what nodes boot from. Beside it are `.NAME.N`, the older version N; `.NAME.new`, one that is being built, or the old one
//! between the two renames of a switch; and `.NAME.lock`, locked by the one command that changes the image. In every version `.sheen/image.json`
//! says what it is, written last; `.sheen/hold` is an empty file, never replaced, of which each node that runs from it holds a shared flock(2).

use crate::health;
use crate::mount_table::{self, Mounted};
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

/// The directory in a version that is ours; no copy touches it.
pub const OWN: &str = ".sheen";
const MARK: &str = "image.json";
const HOLD: &str = "hold";
/// A mark is a few dozen bytes.
const MARK_BYTES_MAX: u64 = 4096;
/// Somebody else who only asks whether a version is in use has its lock for a moment; a node has it for as long as it runs.
const PROBE_COUNT: u32 = 10;
const PROBE_PAUSE: Duration = Duration::from_millis(20);
/// A node that died is given up by the MDT only while somebody waits for its lock: a lease after its last word, and as soon as the MDT has
/// looked whether that lease has ended.
const DEAD_NODE_TIMEOUT: Duration = base::limits::LEASE.saturating_mul(4);

/// An eviction of the node's client drops its lock at both ends, and so does an MDT that was started again in its absence.
const HOLD_PAUSE: Duration = Duration::from_secs(5);

/// What is known of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Counts updates of all kinds from 1.
    pub version: u64,
    /// Seconds since 1970.
    pub made_at: u64,
    /// Of all kinds, directories too.
    pub file_count: u64,
    pub total_bytes: u64,
    /// An update in place is at it, or was broken off.
    #[serde(default)]
    pub is_changing: bool,
    /// For how long it has been at it, written again whenever that has doubled: nodes see that it goes on.
    #[serde(default)]
    pub changing_seconds: u64,
}

/// A version as `list` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stored {
    pub name: String,
    #[serde(flatten)]
    pub mark: Mark,
    /// Nobody can say what it is: its mark is torn. All else that is known of it is its number, and of the current one not even that.
    pub is_damaged: bool,
    pub is_current: bool,
    pub is_in_use: bool,
    #[serde(with = "crate::path_words")]
    pub path: PathBuf,
}

/// An image, made or not.
#[derive(Debug)]
pub struct Image {
    parent: PathBuf,
    pub name: String,
}

/// The one command that changes an image.
#[derive(Debug)]
pub struct Lock {
    pub file: File,
    path: PathBuf,
    /// The time of change that the file was given with the lock, at which no other command has it.
    since: Option<SystemTime>,
}

impl Lock {
    /// To be asked before what cannot be taken back. A client that was evicted has lost its locks, and tells only who reads
    /// or writes what he had locked.
    ///
    /// # Errors
    /// Another command has changed the image since, or is at it.
    pub fn check(&self) -> Result<()> {
        let is_locked = self.file.try_lock().is_ok();
        let since = self.path.metadata().and_then(|found| found.modified()).ok();
        if !is_locked || since.is_none() || since != self.since {
            bail!(
                "{} was lost, as when this machine cannot reach the servers for a time, and another command may have changed the image; see sheen image list",
                self.path.display()
            );
        }
        Ok(())
    }
}

impl Image {
    /// # Errors
    /// The name cannot stand on a kernel's command line, or the directory is not on a mount of ours.
    pub fn at(path: &Path) -> Result<Image> {
        let given = std::path::absolute(path).with_context(|| format!("'{}' is no path", path.display()))?;
        let name = given.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !is_name(name) {
            bail!("'{}' is no name of an image; use letters, digits, - and _, and . inside", path.display());
        }
        let parent = given.parent().unwrap_or(Path::new("/"));
        let parent = parent.canonicalize().with_context(|| {
            format!("the directory of images {} cannot be used; make it first", parent.display())
        })?;
        check_ours(&parent)?;
        Ok(Image { name: name.to_owned(), parent })
    }

    pub fn current(&self) -> PathBuf {
        self.parent.join(&self.name)
    }

    pub fn building(&self) -> PathBuf {
        self.hidden("new")
    }

    fn old(&self, version: u64) -> PathBuf {
        self.hidden(&version.to_string())
    }

    /// The images in a directory of which a command has left something, or is at it.
    ///
    /// # Errors
    /// It cannot be read, or is on no mount of ours.
    pub fn unfinished(dir: &Path) -> Result<Vec<Image>> {
        let dir = dir.canonicalize().with_context(|| format!("cannot read {}", dir.display()))?;
        check_ours(&dir)?;
        Image::unfinished_in(&dir)
    }

    fn unfinished_in(dir: &Path) -> Result<Vec<Image>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let file_name = entry.with_context(|| format!("cannot read {}", dir.display()))?.file_name();
            let name = file_name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(".new"));
            if let Some(name) = name.filter(|name| is_name(name)) {
                found.push(Image { parent: dir.to_owned(), name: name.to_owned() });
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Whether a command changes the image at this moment.
    pub fn is_at_work(&self) -> bool {
        let file = File::open(self.hidden("lock"));
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    fn hidden(&self, end: &str) -> PathBuf {
        self.parent.join(format!(".{}.{end}", self.name))
    }

    /// # Errors
    /// It is no image, or its mark is damaged.
    pub fn mark(&self) -> Result<Mark> {
        read_mark(&self.current())
    }

    /// Keeps every other command that changes this image away, in the whole cluster.
    ///
    /// # Errors
    /// One is at it.
    pub fn lock(&self) -> Result<Lock> {
        let path = self.hidden("lock");
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.with_context(|| format!("cannot make {}", path.display()))?;
        let mut locked = file.try_lock();
        // Who lists images only looks whether somebody has it.
        for _ in 0..PROBE_COUNT {
            if !matches!(locked, Err(TryLockError::WouldBlock)) {
                break;
            }
            thread::sleep(PROBE_PAUSE);
            locked = file.try_lock();
        }
        match locked {
            Ok(()) => {
                // Who may not set it (the file is another user's) goes by the time that is there.
                let _ = file.set_modified(SystemTime::now());
                let since = file.metadata().and_then(|found| found.modified()).ok();
                Ok(Lock { file, path, since })
            }
            Err(TryLockError::WouldBlock) => {
                bail!("another command changes the image {} at this moment; wait for it", self.name)
            }
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("{} cannot be locked", path.display()))
            }
        }
    }

    /// Ends what a command left behind that was killed. Only under the lock.
    ///
    /// # Errors
    /// It cannot be ended, or a node holds it.
    pub fn clean(&self) -> Result<()> {
        self.clean_within(DEAD_NODE_TIMEOUT)
    }

    fn clean_within(&self, patience: Duration) -> Result<()> {
        let left = self.building();
        if left.symlink_metadata().is_err() {
            return Ok(());
        }
        // What is older than the current version has just been replaced by it; all else was never the current one.
        if let (Ok(old), Ok(current)) = (read_mark(&left), self.mark())
            && old.version < current.version
        {
            let to = self.old(old.version);
            return fs::rename(&left, &to).with_context(|| format!("cannot make {}", to.display()));
        }
        // The version before a switch may be in use, also where nobody can say any more that it is one.
        let Use::Nobody(held) = wait_unused(&left, patience)? else {
            bail!("{} is in use: a node holds it; end the node first", left.display());
        };
        let removed = fs::remove_dir_all(&left).with_context(|| format!("cannot remove {}", left.display()));
        drop(held);
        removed
    }

    /// All versions, the current one first.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn versions(&self) -> Result<Vec<Stored>> {
        Ok(all(&self.parent)?.into_iter().filter(|stored| stored.name == self.name).collect())
    }

    /// For one that is made anew: above what is left of it, which keeps the names of its versions.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn next_version(&self) -> Result<u64> {
        let mut last = 0_u64;
        for entry in
            fs::read_dir(&self.parent).with_context(|| format!("cannot read {}", self.parent.display()))?
        {
            let entry = entry.with_context(|| format!("cannot read {}", self.parent.display()))?;
            let file_name = entry.file_name();
            let hidden = file_name
                .to_str()
                .filter(|name| matches!(name_of(name), Some((name, false)) if name == self.name));
            last = last.max(hidden.map_or(0, |_| version_of(&file_name)));
        }
        Ok(last.saturating_add(1))
    }

    /// Takes the lock that nodes share.
    ///
    /// # Errors
    /// A node holds the version.
    pub fn claim(&self, stored: &Stored) -> Result<Option<File>> {
        match wait_unused(&stored.path, DEAD_NODE_TIMEOUT)? {
            Use::Nobody(file) => Ok(file),
            Use::Somebody => Err(self.is_held(stored)),
        }
    }

    fn is_held(&self, stored: &Stored) -> anyhow::Error {
        anyhow!(
            "version {} of {} is in use: a node holds it; end the node, or let it boot another version",
            stored.mark.version,
            self.name
        )
    }

    /// Removes a version that is claimed; it has no name that a node could boot from before its first file goes. Others may have gone before it
    /// for minutes, and with an eviction in that time both locks.
    ///
    /// # Errors
    /// A node holds it by now, or another command has changed the image. Something of it cannot be removed: the next command tries again.
    pub fn discard(&self, lock: &Lock, (stored, claim): (&Stored, Option<File>)) -> Result<()> {
        lock.check()?;
        let is_lost = claim.as_ref().is_some_and(|claim| claim.try_lock().is_err());
        // Kept until it is gone, as the first one.
        let _claim = match claim {
            Some(_) if is_lost => match probe(&stored.path)? {
                Use::Nobody(claim) => claim,
                Use::Somebody => return Err(self.is_held(stored)),
            },
            claim => claim,
        };
        let going = self.building();
        let mut mark = stored.mark.clone();
        // Left behind half removed, it must not be taken for the version that was current before.
        mark.version = u64::MAX;
        fs::rename(&stored.path, &going)
            .and_then(|()| write_aside(&going, &mark).map(drop))
            .and_then(|()| install_mark(&going))
            .and_then(|()| fs::remove_dir_all(&going))
            .with_context(|| format!("{} cannot be removed", stored.path.display()))
    }
}

/// A name that a shell, a kernel's command line and a file system all take as it is.
fn is_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= 64 && !name.starts_with(['.', '-']) && name.chars().all(is_allowed)
}

fn check_ours(dir: &Path) -> Result<()> {
    let Some(mounted) = mount_table::above(dir).filter(Mounted::is_sheen) else {
        bail!("{} is not on SheenFS; see sheen mounts", dir.display());
    };
    check_locks(&mounted)
}

/// # Errors
/// Advisory locks hold on this mount only.
fn check_locks(mounted: &Mounted) -> Result<()> {
    // Where its process cannot be asked, as in a container, nobody knows.
    let status = health::process_of(mounted).map(|(_, status)| status);
    if status.is_some_and(|status| status.options.iter().any(|word| word == "localflock")) {
        bail!(
            "{} is mounted with localflock, so nobody else sees the locks of images; mount it without",
            mounted.path.display()
        );
    }
    Ok(())
}

/// What is another one whenever the mark is: inode and time of change.
///
/// # Errors
/// There is none, or it cannot be seen.
pub fn mark_id(version: &Path) -> io::Result<(u64, i64, i64)> {
    let found = version.join(OWN).join(MARK).symlink_metadata()?;
    Ok((found.ino(), found.ctime(), found.ctime_nsec()))
}

/// A directory as a version of an image.
enum Found {
    Whole(Mark),
    /// It was one, and its mark cannot be understood.
    Damaged,
    NoVersion,
}

fn find_mark(version: &Path) -> Result<Found> {
    let path = version.join(OWN).join(MARK);
    let is_small = |file: &fs::Metadata| file.is_file() && file.len() <= MARK_BYTES_MAX;
    match path.symlink_metadata() {
        Ok(found) if is_small(&found) => {}
        Ok(_) => return Ok(Found::Damaged),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Found::NoVersion);
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
    let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(serde_json::from_slice(&text).map_or(Found::Damaged, Found::Whole))
}

fn no_image(version: &Path) -> anyhow::Error {
    anyhow!("{} is no image: sheen image create makes one", version.display())
}

/// # Errors
/// It is no version of an image, cannot be read, or its mark is damaged.
pub fn read_mark(version: &Path) -> Result<Mark> {
    match find_mark(version)? {
        Found::Whole(mark) => Ok(mark),
        Found::Damaged => {
            let path = version.join(OWN).join(MARK);
            bail!("{} is damaged; remove the image (sheen image remove) and make it anew", path.display())
        }
        Found::NoVersion => Err(no_image(version)),
    }
}

/// For a node, which needs no more of the mark than that it is there.
///
/// # Errors
/// It is no version of an image, or cannot be read.
pub fn check_version(version: &Path) -> Result<()> {
    match find_mark(version)? {
        Found::Whole(_) | Found::Damaged => Ok(()),
        Found::NoVersion => Err(no_image(version)),
    }
}

/// # Errors
/// It cannot be written.
pub fn write_mark(version: &Path, mark: &Mark) -> Result<()> {
    let hold = version.join(OWN).join(HOLD);
    // Its bytes first: the name is the MDT's to keep, and they are an OST's, which may lose power before they are durable.
    write_aside(version, mark)
        .and_then(|aside| aside.sync_all())
        .and_then(|()| install_mark(version))
        .and_then(|()| File::options().create(true).truncate(false).write(true).open(&hold).map(drop))
        .with_context(|| format!("cannot write into {}", version.join(OWN).display()))
}

fn aside(version: &Path) -> PathBuf {
    version.join(OWN).join(format!("{MARK}.new"))
}

fn write_aside(version: &Path, mark: &Mark) -> io::Result<File> {
    fs::create_dir_all(version.join(OWN))?;
    let mut file = File::create(aside(version))?;
    file.write_all(&serde_json::to_vec(mark)?)?;
    Ok(file)
}

fn install_mark(version: &Path) -> io::Result<()> {
    fs::rename(aside(version), version.join(OWN).join(MARK))
}

enum Use {
    /// With the lock that keeps it so. A version without the file was never finished.
    Nobody(Option<File>),
    Somebody,
}

fn probe(version: &Path) -> Result<Use> {
    let path = version.join(OWN).join(HOLD);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Use::Nobody(None)),
        Err(error) => return Err(error).with_context(|| format!("cannot open {}", path.display())),
    };
    for _ in 0..PROBE_COUNT {
        match file.try_lock() {
            Ok(()) => return Ok(Use::Nobody(Some(file))),
            Err(TryLockError::WouldBlock) => thread::sleep(PROBE_PAUSE),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
    }
    Ok(Use::Somebody)
}

/// As `probe`, and waits for `patience`: `DEAD_NODE_TIMEOUT` for so long that a node that died is not in the way.
fn wait_unused(version: &Path, patience: Duration) -> Result<Use> {
    let found = probe(version)?;
    if matches!(found, Use::Nobody(_)) {
        return Ok(found);
    }
    let path = version.join(OWN).join(HOLD);
    let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    let (sender, receiver) = mpsc::channel();
    // It may wait for as long as a node runs; the end of this command ends it.
    thread::spawn(move || {
        let locked = file.lock().map(|()| file);
        // Nobody may be waiting any more.
        let _ = sender.send(locked);
    });
    match receiver.recv_timeout(patience) {
        Ok(locked) => {
            let file = locked.with_context(|| format!("cannot lock {}", path.display()))?;
            Ok(Use::Nobody(Some(file)))
        }
        Err(_) => Ok(Use::Somebody),
    }
}

/// Keeps a version in use for as long as the file is open.
///
/// # Errors
/// It is no version of an image, or was removed while this waited.
pub fn hold(version: &Path) -> Result<File> {
    check_version(version)?;
    let real = version.canonicalize().with_context(|| format!("cannot read {}", version.display()))?;
    mount_table::above(&real).filter(Mounted::is_sheen).map_or(Ok(()), |mounted| check_locks(&mounted))?;
    let path = version.join(OWN).join(HOLD);
    let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    file.lock_shared().with_context(|| format!("cannot lock {}", path.display()))?;
    if file.metadata().is_ok_and(|found| found.nlink() == 0) {
        bail!("{} was removed meanwhile; boot again", version.display());
    }
    Ok(file)
}

/// Takes the lock of `hold` again and again, and returns when the version is gone.
pub fn hold_on(held: &File) {
    loop {
        thread::sleep(HOLD_PAUSE);
        let is_gone = match held.try_lock_shared() {
            // Somebody looks whether it is in use, or removes it.
            Err(TryLockError::WouldBlock) => false,
            Ok(()) => held.metadata().is_ok_and(|found| found.nlink() == 0),
            Err(TryLockError::Error(error)) => {
                matches!(error.raw_os_error(), Some(libc::ESTALE | libc::ENOENT))
            }
        };
        if is_gone {
            return;
        }
    }
}

/// All versions of all images in a directory, by name and from the newest on.
///
/// # Errors
/// It cannot be read, or is on no mount of ours.
pub fn all(dir: &Path) -> Result<Vec<Stored>> {
    let dir = dir.canonicalize().with_context(|| format!("cannot read {}", dir.display()))?;
    check_ours(&dir)?;
    let mut found = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry.with_context(|| format!("cannot read {}", dir.display()))?;
        let file_name = entry.file_name();
        let Some((name, is_current)) = file_name.to_str().and_then(name_of) else { continue };
        let path = entry.path();
        let (mark, is_damaged) = match find_mark(&path) {
            Ok(Found::Whole(mark)) => (mark, false),
            Ok(Found::Damaged) => (Mark { version: version_of(&file_name), ..Mark::default() }, true),
            Ok(Found::NoVersion) | Err(_) => continue,
        };
        let is_in_use = matches!(probe(&path)?, Use::Somebody);
        found.push(Stored { name: name.to_owned(), mark, is_damaged, is_current, is_in_use, path });
    }
    // A damaged one may have no number; the current one is the newest.
    let order = |stored: &Stored| (stored.name.clone(), !stored.is_current, Reverse(stored.mark.version));
    found.sort_by_key(order);
    Ok(found)
}

/// The image that a name in the directory belongs to, and whether it is what nodes boot from.
fn name_of(file_name: &str) -> Option<(&str, bool)> {
    let Some(hidden) = file_name.strip_prefix('.') else {
        return is_name(file_name).then_some((file_name, true));
    };
    let (name, version) = hidden.rsplit_once('.')?;
    let is_number = version.parse::<u64>().is_ok_and(|number| number.to_string() == version);
    (is_name(name) && is_number).then_some((name, false))
}

/// What the name of an older version says; 0 for all others.
fn version_of(file_name: &OsStr) -> u64 {
    let end = file_name.to_str().and_then(|name| name.strip_prefix('.')?.rsplit_once('.'));
    end.and_then(|(_, version)| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
