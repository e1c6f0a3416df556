//! Which mounts of this machine live, so that a server that restarts does not wait for those that died.
//!
//! Each mount has a file below the run directory with the identity by which servers know it, and a lock on that file for as long as
//! its process lives: the kernel lets go of the lock with the process, however that ends. A free lock therefore proves that no
//! request of this client can come any more. (Who has no such file, a client of another machine say, is waited for.)
//!
//! The next mount of the same file system on the same directory takes the file over, under the same id and with a higher
//! incarnation.

use crate::cluster::Identity;
use crate::control;
use crate::sys;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Mounts of the same file system on the same path, in different mount namespaces.
const NAMESAKES_MAX: u32 = 64;
/// What a file may say.
const TEXT_BYTES_MAX: u64 = 4096;

/// Who a mount is, for as long as this lives.
#[derive(Debug)]
pub struct Claim {
    pub identity: Identity,
    /// Without it nobody can tell that this mount has died, and it is waited for.
    locked: Option<(File, PathBuf)>,
}

impl Claim {
    /// The mount has taken leave of its servers: there is nobody left who would have to know. (A server that did not hear it finds
    /// the lock free some day.)
    pub fn forget(&self) {
        if let Some((_, path)) = &self.locked {
            // A file that stays names a client that nobody waits for.
            let _ = fs::remove_file(path);
        }
    }
}

/// Makes it known that this mount lives. `given` is an identity that somebody else keeps, as `up` does.
pub fn claim(path: &Path, source: &str, given: Option<Identity>) -> Claim {
    let claimed = control::make_run_dir().and_then(|_| Ok(claim_in(&dir(), path, source, given)?));
    claimed.unwrap_or_else(|error| {
        tracing::debug!("nobody will know when this mount dies: {error:#}");
        Claim { identity: given.unwrap_or_else(Identity::random), locked: None }
    })
}

/// The identities of mounts whose processes are gone.
pub fn departed() -> Vec<Identity> {
    known_in(&dir(), false)
}

/// Those of mounts whose processes live.
pub fn living() -> Vec<Identity> {
    known_in(&dir(), true)
}

/// How many processes of this user live that have mounted this source on this path, whether or not they say anything.
pub fn count_at(path: &Path, source: &str) -> usize {
    count_in(&dir(), path, source)
}

/// Which of these processes has mounted this source on this path, whether or not it says anything. `run_dir`: that of its user.
pub fn holder(run_dir: &Path, pids: impl IntoIterator<Item = u32>, path: &Path, source: &str) -> Option<u32> {
    let dir = clients_in(run_dir).canonicalize().ok()?;
    let files: Vec<PathBuf> = files_of(&dir, path, source).filter(|file| is_held(file)).collect();
    let has_open = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|file| files.contains(&file))
    };
    pids.into_iter().find(|pid| !files.is_empty() && has_open(pid))
}

/// Whether a process that had mounted this source on this path has ended without taking leave, and none that lives has.
pub fn has_died(run_dir: &Path, path: &Path, source: &str) -> bool {
    let dir = clients_in(run_dir);
    let has_left_some = files_of(&dir, path, source).any(|file| file.exists());
    has_left_some && count_in(&dir, path, source) == 0
}

fn dir() -> PathBuf {
    clients_in(&control::run_dir())
}

fn clients_in(run_dir: &Path) -> PathBuf {
    run_dir.join("clients")
}

/// What may hold the identity of a mount.
fn files_of(dir: &Path, path: &Path, source: &str) -> impl Iterator<Item = PathBuf> {
    let mut hasher = DefaultHasher::new();
    (path, source).hash(&mut hasher);
    let name = format!("{:016x}", hasher.finish());
    let dir = dir.to_owned();
    (0..NAMESAKES_MAX).map(move |number| dir.join(format!("{name}.{number}")))
}

fn count_in(dir: &Path, path: &Path, source: &str) -> usize {
    files_of(dir, path, source).filter(|file| is_held(file)).count()
}

fn is_held(path: &Path) -> bool {
    let file = File::options().read(true).write(true).open(path);
    file.is_ok_and(|file| sys::is_unlocked(&file).is_ok_and(|is_unlocked| !is_unlocked))
}

fn claim_in(dir: &Path, path: &Path, source: &str, given: Option<Identity>) -> io::Result<Claim> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    for path in files_of(dir, path, source) {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let Some(mut file) = open_locked(|| options.open(&path))? else { continue };
        let next = |last: Identity| Identity { incarnation: last.incarnation.saturating_add(1), ..last };
        let identity = given.unwrap_or_else(|| read(&mut file).map_or_else(Identity::random, next));
        write(&mut file, identity)?;
        return Ok(Claim { identity, locked: Some((file, path)) });
    }
    Err(io::ErrorKind::QuotaExceeded.into())
}

/// The file with a lock on it that others find there; `None` when another one has it. Whoever takes leave removes the file, and
/// a lock on one that was opened just before tells nobody anything.
fn open_locked(open: impl Fn() -> io::Result<File>) -> io::Result<Option<File>> {
    loop {
        let file = open()?;
        if !sys::try_lock(&file)? {
            return Ok(None);
        }
        if !sys::is_removed(&file)? {
            return Ok(Some(file));
        }
    }
}

fn known_in(dir: &Path, is_living: bool) -> Vec<Identity> {
    let mut known = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(mut file) = File::options().read(true).write(true).open(entry.path()) else { continue };
        // What is read before the lock is found free is at most the incarnation that has died.
        if let Some(identity) = read(&mut file)
            && sys::is_unlocked(&file).is_ok_and(|is_unlocked| is_unlocked != is_living)
        {
            known.push(identity);
        }
    }
    known
}

/// The identity that a file holds. A copy of such a file says nothing: the mount that wrote the original may live.
fn read(file: &mut File) -> Option<Identity> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(TEXT_BYTES_MAX).read_to_string(&mut text).ok()?;
    let (identity, place) = text.trim_end().split_once(' ')?;
    (place == self::place(file).ok()?).then(|| identity.parse().ok())?
}

/// Durable before the identity is used: an incarnation must never be used twice.
fn write(file: &mut File, identity: Identity) -> io::Result<()> {
    let text = format!("{identity} {}\n", place(file)?);
    file.seek(SeekFrom::Start(0))?;
    file.set_len(0)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Where a file is: this run of this machine, its device, its number there.
fn place(file: &File) -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let metadata = file.metadata()?;
    Ok(format!("{}:{:x}:{:x}", boot.trim_end(), metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests;
