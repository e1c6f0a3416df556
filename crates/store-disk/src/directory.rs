//! The directory of a target: one owner at a time, and a superblock that says whose it is.
//!
//! `lock` is held with flock(2) for the life of the process and names its pid. `target.json` is written aside, synced
//! and renamed, so that it is always whole; a checksum tells damage from an edit by hand.

use crate::device::{self, Syncing};
use crate::meta::MetaDisk;
use crate::upgrade;
use base::TargetId;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Version of everything in a target's directory.
pub const FORMAT_VERSION: u32 = 1;
/// A superblock is a few hundred bytes; more is not one.
const SUPERBLOCK_BYTES_MAX: u64 = 64 << 10;
pub(crate) const SUPERBLOCK_NAME: &str = "target.json";
/// Where it is written before it takes its place.
const ASIDE_NAME: &str = "target.json.new";
const LOCK_NAME: &str = "lock";
pub(crate) const META_NAME: &str = "meta";
/// A target that is served by another process is refused after so many looks.
const LOCK_TRIES: u32 = 20;
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// What a target's directory says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Superblock {
    /// `FORMAT_VERSION` of the program that made it.
    pub format_version: u32,
    pub fsname: String,
    /// Kind and index, as `MDT0000`.
    pub target: String,
    /// Random, made by mkfs; tells a target from another of the same name.
    pub uuid: String,
    /// Features without which the directory must not be opened.
    pub features: Vec<String>,
    /// 0 until the stores of the target were made, at its first start, and 1 since: without them it is no new target, but one that has lost
    /// them.
    pub generation: u64,
}

impl Superblock {
    /// A new target with a random uuid and generation 0.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub fn new(fsname: &str, target: TargetId) -> io::Result<Superblock> {
        let mut random = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Superblock {
            format_version: FORMAT_VERSION,
            fsname: fsname.to_string(),
            target: target.to_string(),
            uuid: hex,
            features: Vec::new(),
            generation: 0,
        })
    }

    /// `None` if the name is none that a target can have.
    pub fn target_id(&self) -> Option<TargetId> {
        self.target.parse().ok()
    }

    fn crc(&self) -> Result<u32, serde_json::Error> {
        serde_json::to_vec(self).map(|bytes| crc32c::crc32c(&bytes))
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    superblock: Superblock,
    /// CRC32C of the superblock's own compact JSON.
    crc32c: u32,
}

/// Why a target's directory cannot be used. Each is one sentence for the operator.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("cannot use {path}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not a target; make one with mkfs")]
    NotATarget { path: PathBuf },
    #[error("{path} is a target already ({target} {fsname}); choose another directory")]
    Exists { path: PathBuf, target: String, fsname: String },
    #[error("{path} is not empty and not a target; choose an empty directory")]
    NotEmpty { path: PathBuf },
    #[error("{path} is in use: it is already running as pid {pid}")]
    Running { path: PathBuf, pid: String },
    #[error("{path} is damaged ({reason}); restore it from a backup")]
    Damaged { path: PathBuf, reason: String },
    #[error("{path} has format {found}, this program reads {known}; start it with the version that made it")]
    NewerVersion { path: PathBuf, found: u32, known: u32 },
    #[error("{path} has format {found}, this program reads {known}; run sheen upgrade {path} first")]
    OlderVersion { path: PathBuf, found: u32, known: u32 },
    #[error("{path} is in the middle of an upgrade, which was interrupted; run sheen upgrade {path} again")]
    Upgrading { path: PathBuf },
    #[error(
        "{path} needs the feature {feature}, which this program does not know; start it with a newer version"
    )]
    UnknownFeature { path: PathBuf, feature: String },
    #[error("{path} belongs to the file system {found}, not to {expected}")]
    WrongFileSystem { path: PathBuf, found: String, expected: String },
}

impl DirectoryError {
    /// Of a format that is not this program's.
    pub(crate) fn wrong_version(path: &Path, found: u32) -> DirectoryError {
        let (path, known) = (path.to_path_buf(), FORMAT_VERSION);
        if found > known {
            DirectoryError::NewerVersion { path, found, known }
        } else {
            DirectoryError::OlderVersion { path, found, known }
        }
    }
}

/// Held on a target's directory until it is dropped.
pub(crate) type Lock = File;

/// A target's directory, locked. The lock goes with this value, or with the process.
#[derive(Debug)]
pub struct TargetDirectory {
    path: PathBuf,
    superblock: Superblock,
    _lock: File,
}

impl TargetDirectory {
    /// Makes a target in a directory that is empty or does not exist. It is locked until the result is dropped. `beside` are
    /// further files, name and contents: durable before the superblock, so that a target that is there has them.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn create(
        path: &Path,
        superblock: Superblock,
        beside: &[(&str, &[u8])],
    ) -> Result<TargetDirectory, DirectoryError> {
        let io = |source| DirectoryError::Io { path: path.to_path_buf(), source };
        device::make_directories(path).map_err(io)?;
        check_free(path, beside)?;
        let lock = lock(path)?;
        // Somebody else may have been faster.
        check_free(path, beside)?;
        let directory = TargetDirectory { path: path.to_path_buf(), superblock, _lock: lock };
        for (name, bytes) in beside {
            let file = device::open(&path.join(name), true).map_err(io)?;
            device::set_length(&file, 0).map_err(io)?;
            device::write_all(&file, bytes, 0).map_err(|(_, error)| io(error))?;
            Syncing::from_environment().sync_all(&file).map_err(io)?;
        }
        directory.write_superblock(&directory.superblock)?;
        Ok(directory)
    }

    /// Locks and checks the directory of a target.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn open(path: &Path) -> Result<TargetDirectory, DirectoryError> {
        // First without the lock, so that nothing is created in a directory that is no target.
        read_superblock(path)?;
        let lock = lock(path)?;
        let superblock = read_superblock(path)?;
        Ok(TargetDirectory { path: path.to_path_buf(), superblock, _lock: lock })
    }

    /// As `open`, also where nothing can be written. The lock does not name this process then.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn open_to_check(path: &Path) -> Result<TargetDirectory, DirectoryError> {
        match TargetDirectory::open(path) {
            Err(DirectoryError::Io { source, .. }) if device::errno(&source) == libc::EROFS => {
                let lock = lock_to_read(path)?;
                let superblock = read_superblock(path)?;
                Ok(TargetDirectory { path: path.to_path_buf(), superblock, _lock: lock })
            }
            opened => opened,
        }
    }

    /// Reads the superblock without locking, for status commands.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn peek(path: &Path) -> Result<Superblock, DirectoryError> {
        read_superblock(path)
    }

    /// The process of this machine that has the target for itself now, as it has written down. `None` where none has, or that cannot
    /// be known.
    pub fn served_by(path: &Path) -> Option<u32> {
        let file = device::open(&path.join(LOCK_NAME), false).ok()?;
        // Taken where it is free, and given back with the file: whoever wants it just then tries again.
        if device::try_lock(&file).ok()? {
            return None;
        }
        holder(&file).parse().ok().filter(|pid| has_open(*pid, &file))
    }

    /// Refuses a directory of another file system.
    ///
    /// # Errors
    /// `WrongFileSystem`.
    pub fn check_fsname(&self, expected: &str) -> Result<(), DirectoryError> {
        if self.superblock.fsname == expected {
            return Ok(());
        }
        Err(DirectoryError::WrongFileSystem {
            path: self.path.clone(),
            found: self.superblock.fsname.clone(),
            expected: expected.to_string(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Whether its stores were there when it was opened.
    pub fn was_served(&self) -> bool {
        self.superblock.generation > 0
    }

    /// Its stores are there. Durable on return.
    ///
    /// # Errors
    /// If the superblock cannot be written; the old one is still there then.
    pub fn set_served(&self) -> Result<(), DirectoryError> {
        if self.was_served() {
            return Ok(());
        }
        self.write_superblock(&Superblock { generation: 1, ..self.superblock.clone() })
    }

    /// The same beside an open store, on a device that may be full: its ballast makes room. False if there is none all the same: the
    /// target can be served, and is to be marked at its next start.
    ///
    /// # Errors
    /// As `set_served`, but for a full device.
    pub fn set_served_beside(&self, disk: &MetaDisk) -> Result<bool, DirectoryError> {
        let is_full = |marked: &Result<(), DirectoryError>| matches!(marked, Err(DirectoryError::Io { source, .. }) if device::is_full(device::errno(source)));
        let mut marked = self.set_served();
        if is_full(&marked) && disk.release_ballast() {
            marked = self.set_served();
        }
        if is_full(&marked) {
            return Ok(false);
        }
        marked.map(|()| true)
    }

    /// Where the metadata store of this target is.
    pub fn meta_path(&self) -> PathBuf {
        self.path.join(META_NAME)
    }

    /// Where the object store of this target is.
    pub fn objects_path(&self) -> PathBuf {
        self.path.join("objects")
    }

    fn write_superblock(&self, superblock: &Superblock) -> Result<(), DirectoryError> {
        let io = |source| DirectoryError::Io { path: self.path.clone(), source };
        let syncing = Syncing::from_environment();
        let crc32c = superblock.crc().map_err(|error| io(error.into()))?;
        let stored = Stored { superblock: superblock.clone(), crc32c };
        let mut bytes = serde_json::to_vec_pretty(&stored).map_err(|error| io(error.into()))?;
        bytes.push(b'\n');
        let aside = self.path.join(ASIDE_NAME);
        let file = device::open(&aside, true).map_err(io)?;
        device::set_length(&file, 0).map_err(io)?;
        device::write_all(&file, &bytes, 0).map_err(|(_, error)| io(error))?;
        syncing.sync_all(&file).map_err(io)?;
        device::rename(&aside, &self.path.join(SUPERBLOCK_NAME)).map_err(io)?;
        syncing.sync_directory(&self.path).map_err(io)
    }
}

/// Refuses a directory that is a target, or holds anything but what a file system puts into its own root and what a mkfs that was
/// interrupted left.
fn check_free(path: &Path, beside: &[(&str, &[u8])]) -> Result<(), DirectoryError> {
    let io = |source| DirectoryError::Io { path: path.to_path_buf(), source };
    if path.join(SUPERBLOCK_NAME).exists() {
        let (target, fsname) = match read_superblock(path) {
            Ok(found) => (found.target, found.fsname),
            Err(_) => ("damaged".to_string(), "an unknown file system".to_string()),
        };
        return Err(DirectoryError::Exists { path: path.to_path_buf(), target, fsname });
    }
    let left = ["lost+found", LOCK_NAME, ASIDE_NAME];
    let known: Vec<&str> = left.into_iter().chain(beside.iter().map(|(name, _)| *name)).collect();
    for entry in std::fs::read_dir(path).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        if !known.iter().any(|known| name == *known) {
            return Err(DirectoryError::NotEmpty { path: path.to_path_buf() });
        }
    }
    Ok(())
}

fn read_superblock(path: &Path) -> Result<Superblock, DirectoryError> {
    let superblock = parse_superblock(path, &read_superblock_text(path)?)?;
    if upgrade::is_begun(path) {
        return Err(DirectoryError::Upgrading { path: path.to_path_buf() });
    }
    Ok(superblock)
}

/// The bytes of a superblock, whatever its format.
pub(crate) fn read_superblock_text(path: &Path) -> Result<Vec<u8>, DirectoryError> {
    let file_path = path.join(SUPERBLOCK_NAME);
    // A name that is no file might keep whoever opens it waiting for ever.
    let is_file = file_path.metadata().map(|found| found.is_file());
    let file = match is_file.and_then(|is_file| if is_file { File::open(&file_path) } else { Err(no_file()) })
    {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(DirectoryError::NotATarget { path: path.to_path_buf() });
        }
        Err(source) => return Err(DirectoryError::Io { path: file_path, source }),
    };
    let mut text = Vec::new();
    file.take(SUPERBLOCK_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(|source| DirectoryError::Io { path: file_path.clone(), source })?;
    Ok(text)
}

fn no_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is no file")
}

/// As it is stored.
pub(crate) fn text_of(superblock: &Superblock) -> Vec<u8> {
    let crc32c = superblock.crc().unwrap_or_default();
    serde_json::to_vec_pretty(&Stored { superblock: superblock.clone(), crc32c }).unwrap_or_default()
}

/// The text of a superblock with fixed values.
pub(crate) fn example() -> Vec<u8> {
    text_of(&Superblock {
        format_version: FORMAT_VERSION,
        fsname: "scratch".to_string(),
        target: "MDT0001".to_string(),
        uuid: "0123456789abcdef0123456789abcdef".to_string(),
        features: Vec::new(),
        generation: 7,
    })
}

/// Reads the text of the superblock of the target at `path`.
pub(crate) fn parse_superblock(path: &Path, text: &[u8]) -> Result<Superblock, DirectoryError> {
    let damaged = |reason| DirectoryError::Damaged { path: path.join(SUPERBLOCK_NAME), reason };
    // The version first: another one may look different in everything else.
    let found = version_of(path, text)?;
    if found != FORMAT_VERSION {
        return Err(DirectoryError::wrong_version(path, found));
    }
    let stored: Stored = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
    let crc = stored.superblock.crc().map_err(|error| damaged(error.to_string()))?;
    if crc != stored.crc32c {
        return Err(damaged("its checksum does not fit".to_string()));
    }
    if let Some(feature) = stored.superblock.features.first() {
        return Err(DirectoryError::UnknownFeature { path: path.to_path_buf(), feature: feature.clone() });
    }
    if stored.superblock.target_id().is_none() {
        return Err(damaged(format!("{} is no target", stored.superblock.target)));
    }
    Ok(stored.superblock)
}

/// The format of a superblock.
pub(crate) fn version_of(path: &Path, text: &[u8]) -> Result<u32, DirectoryError> {
    let damaged = |reason| DirectoryError::Damaged { path: path.join(SUPERBLOCK_NAME), reason };
    let value: serde_json::Value =
        serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
    let version = value.get("format_version").and_then(serde_json::Value::as_u64);
    let version = version.and_then(|version| u32::try_from(version).ok());
    version.ok_or_else(|| damaged("it has no format_version".to_string()))
}

/// flock(2) of one kind.
type TryLock = fn(&File) -> io::Result<bool>;

/// Waits a moment: who has just let go may have forked, and his child holds a copy of the lock until it executes something.
fn try_lock(file: &File, lock: TryLock) -> io::Result<bool> {
    for _ in 0..LOCK_TRIES {
        if lock(file)? {
            return Ok(true);
        }
        std::thread::sleep(LOCK_INTERVAL);
    }
    lock(file)
}

fn locked(path: &Path, file: File, lock: TryLock) -> Result<Lock, DirectoryError> {
    let io = |source| DirectoryError::Io { path: path.to_path_buf(), source };
    if !try_lock(&file, lock).map_err(io)? {
        // Who only reads has not written down his number over that of the last one who did.
        let is_known = |pid: &String| pid.parse().is_ok_and(|pid| has_open(pid, &file) || is_ending(pid));
        let pid = Some(holder(&file)).filter(is_known);
        // Whoever it names may have ended only now, and has let go of it then.
        if pid.is_some() || !lock(&file).map_err(io)? {
            let pid = pid.unwrap_or_else(|| "unknown".to_string());
            return Err(DirectoryError::Running { path: path.to_path_buf(), pid });
        }
    }
    Ok(file)
}

/// Of a target on a device that nobody can write to. Servers of the same device, mounted elsewhere, see it, and others may read it too.
fn lock_to_read(path: &Path) -> Result<Lock, DirectoryError> {
    let io = |source| DirectoryError::Io { path: path.to_path_buf(), source };
    locked(path, device::open_to_read(&path.join(LOCK_NAME)).map_err(io)?, device::try_lock_shared)
}

pub(crate) fn lock(path: &Path) -> Result<Lock, DirectoryError> {
    let io = |source| DirectoryError::Io { path: path.to_path_buf(), source };
    let file = locked(path, device::open(&path.join(LOCK_NAME), true).map_err(io)?, device::try_lock)?;
    device::set_length(&file, 0).map_err(io)?;
    device::write_all(&file, format!("{}\n", std::process::id()).as_bytes(), 0)
        .map_err(|(_, error)| io(error))?;
    Ok(file)
}

/// Whether the process has the lock's file open, as far as this user may see: one in a container, or on another machine that shares
/// the directory, has written down a number that is somebody else's here.
fn has_open(pid: u32, lock: &File) -> bool {
    let listed = match std::fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(listed) => listed,
        Err(error) => return error.kind() == io::ErrorKind::PermissionDenied,
    };
    let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
    let ours = lock.metadata().map(identity).ok();
    listed.flatten().map(|entry| entry.path()).any(|path| {
        // Its name first: nobody knows how long what is behind the others takes to answer.
        std::fs::read_link(&path).is_ok_and(|target| target.ends_with(LOCK_NAME))
            && std::fs::metadata(&path).map(identity).ok() == ours
    })
}

/// Whether the kernel has taken a process' files away already: it shows none any more, and may not have let go of them yet.
fn is_ending(pid: u32) -> bool {
    std::fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|mut listed| listed.next().is_none())
}

/// What who has the lock has written into it: its process id.
fn holder(mut file: &File) -> String {
    let mut pid = String::new();
    let _ = file.by_ref().take(32).read_to_string(&mut pid);
    pid.trim().to_string()
}

#[cfg(test)]
mod tests;
