//! The directory of a target: what it is (`target.json`), who may serve it (a lock), and its stores.

use anyhow::{Context, Result, bail};
use base::{TargetId, TargetKind};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const FILE: &str = "target.json";
const LOCK: &str = "lock";
const FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Superblock {
    format: u32,
    /// `MGS`, `MDT0000`, `OST0003`.
    target: String,
    /// Empty for a management target, which serves all file systems.
    fsname: String,
    /// Hexadecimal.
    uuid: String,
    /// Addresses of the management server.
    mgs: Vec<String>,
}

/// A target's directory, open and locked.
#[derive(Debug)]
pub struct TargetDir {
    pub path: PathBuf,
    pub id: TargetId,
    pub fsname: String,
    pub uuid: u128,
    pub mgs: Vec<String>,
    _lock: File,
}

pub fn exists(path: &Path) -> bool {
    path.join(FILE).exists()
}

/// Makes the directory of a target.
///
/// # Errors
/// The directory is not empty, or cannot be written.
pub fn make(path: &Path, id: TargetId, fsname: &str, mgs: &[String]) -> Result<()> {
    if exists(path) {
        bail!("{} holds a target already; remove it first if its data are not needed", path.display());
    }
    if path.exists() && !path.is_dir() {
        bail!("{} is no directory; choose another one", path.display());
    }
    let is_used = |name: &std::ffi::OsStr| name != "lost+found";
    if fs::read_dir(path).is_ok_and(|entries| entries.flatten().any(|entry| is_used(&entry.file_name()))) {
        bail!("{} is not empty; choose an empty directory", path.display());
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot make {}", path.display()))?;
    let superblock = Superblock {
        format: FORMAT,
        target: id.to_string(),
        fsname: if id.kind == TargetKind::Mgt { String::new() } else { fsname.to_owned() },
        uuid: format!("{:032x}", net::clock::random_u128()),
        mgs: mgs.to_vec(),
    };
    write(path, &superblock).with_context(|| format!("cannot write {}", path.join(FILE).display()))
}

/// Aside, durable, then in place.
fn write(path: &Path, superblock: &Superblock) -> Result<()> {
    let aside = path.join(format!("{FILE}.new"));
    let mut file = File::create(&aside)?;
    file.write_all(serde_json::to_string_pretty(superblock)?.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&aside, path.join(FILE))?;
    File::open(path)?.sync_all()?;
    Ok(())
}

/// Opens and locks a target's directory.
///
/// # Errors
/// It is no target, damaged, of another version, or served already.
pub fn open(path: &Path) -> Result<TargetDir> {
    let path = path.canonicalize().with_context(|| format!("there is no directory {}", path.display()))?;
    let text = match fs::read_to_string(path.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("{} is no target; make one: sheen mkfs --help", path.display())
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", path.join(FILE).display()));
        }
    };
    let damaged = || format!("{} is damaged; restore it from a copy", path.join(FILE).display());
    let Ok(superblock) = serde_json::from_str::<Superblock>(&text) else { bail!(damaged()) };
    if superblock.format != FORMAT {
        bail!(
            "{} has format {}, this build reads {FORMAT}; use the build that wrote it",
            path.display(),
            superblock.format
        );
    }
    let id = superblock.target.parse::<TargetId>().ok().with_context(damaged)?;
    let uuid =
        u128::from_str_radix(&superblock.uuid, 16).ok().filter(|uuid| *uuid != 0).with_context(damaged)?;
    if id.kind != TargetKind::Mgt && crate::nid::check_fsname(&superblock.fsname).is_err() {
        bail!(damaged());
    }
    let lock = lock(&path)?;
    Ok(TargetDir { id, fsname: superblock.fsname, uuid, mgs: superblock.mgs, _lock: lock, path })
}

/// One process serves a target.
fn lock(path: &Path) -> Result<File> {
    let lock_path = path.join(LOCK);
    let mut file = File::options().create(true).truncate(false).read(true).write(true).open(&lock_path)?;
    if file.try_lock().is_err() {
        let mut pid = String::new();
        let _ = file.read_to_string(&mut pid);
        bail!("{} is served already, by process {}; stop it first", path.display(), pid.trim());
    }
    file.set_len(0)?;
    file.write_all(std::process::id().to_string().as_bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests;
