//! The directory of a target as the binary needs it: what `store_disk` keeps there, where its management server is (`mgsnode`, one
//! address a line), who says which server owns it (`coordinator`, there since it was first served with failover), for which epoch its
//! ownership was last asked (`owned`, of the same time), and which epoch was last given (`taken`).

use crate::sys;
use anyhow::{Context, Result, bail};
use base::{Epoch, TargetId, TargetKind};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use store_disk::{DirectoryError, MetaDisk, ObjectDisk, Superblock, TargetDirectory};

const MGSNODE: &str = "mgsnode";
const COORDINATOR: &str = "coordinator";
const OWNED: &str = "owned";
const TAKEN: &str = "taken";
/// A number in decimal digits.
const OWNED_BYTES_MAX: u64 = 32;
/// An identity of a keeper is a word and a number.
const COORDINATOR_BYTES_MAX: u64 = 256;
const MGSNODE_BYTES_MAX: u64 = 64 << 10;
/// How long a killed server may take to be gone: with a gigabyte of memory and a disk that is busy, seconds.
const GOING_TIMEOUT: Duration = Duration::from_secs(20);

/// A file that says what the directory is cannot be believed, or is not there.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Damaged(String);

/// A line of the directory could not be written, or its device failed to keep it.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to {}", path.display())]
pub struct NotWritten {
    path: PathBuf,
    pub source: io::Error,
}

/// The storage was owned with an epoch of which the keeper has not said anything.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Forgotten(String);

/// Whether the keeper did not know of the last owner of the storage.
pub fn is_forgotten(error: &anyhow::Error) -> bool {
    error.is::<Forgotten>()
}

/// Whether it is what is in a directory that is wrong, and not the directory that was named or who serves it.
pub fn is_damage(error: &anyhow::Error) -> bool {
    let of_label = || error.downcast_ref::<Damaged>().is_some();
    match error.downcast_ref::<DirectoryError>() {
        Some(DirectoryError::Damaged { .. }) => true,
        Some(DirectoryError::Io { source, .. }) => source.raw_os_error() == Some(libc::EIO),
        _ => of_label(),
    }
}

/// What a target's directory says of it.
#[derive(Clone, Debug)]
pub struct Label {
    pub path: PathBuf,
    pub id: TargetId,
    /// Empty for a management target, which serves all file systems.
    pub fsname: String,
    pub uuid: u128,
    /// Addresses of the management server.
    pub mgs: Vec<String>,
    /// Who says which server owns it; `None` for a target that was never served with failover.
    pub coordinator: Option<String>,
}

/// A target's directory, open and locked.
#[derive(Debug)]
pub struct TargetDir {
    pub path: PathBuf,
    pub id: TargetId,
    /// Empty for a management target, which serves all file systems.
    pub fsname: String,
    pub uuid: u128,
    /// Addresses of the management server.
    pub mgs: Vec<String>,
    coordinator: Option<String>,
    directory: TargetDirectory,
}

impl TargetDir {
    pub fn label(&self) -> Label {
        let TargetDir { path, id, fsname, uuid, mgs, coordinator, directory: _ } = self;
        Label {
            path: path.clone(),
            id: *id,
            fsname: fsname.clone(),
            uuid: *uuid,
            mgs: mgs.clone(),
            coordinator: coordinator.clone(),
        }
    }

    /// From now on servers that ask another coordinator, or none, do not serve this target. Durable on return.
    ///
    /// # Errors
    /// Another one is written down already, or nothing can be.
    pub fn keep_coordinator(&self, identity: &str) -> Result<()> {
        if let Some(known) = &self.coordinator {
            return check_same(&self.path, known, identity);
        }
        // Of another coordinator, whose epochs were others.
        for name in [OWNED, TAKEN] {
            self.remove(name)?;
        }
        self.write_line(COORDINATOR, identity)
    }

    /// Written before its coordinator is asked for that epoch, so that the storage to which an owner writes knows of it. Durable on return.
    /// -> the epoch that was there, if one was.
    ///
    /// # Errors
    /// It cannot be written, or what is there is damaged.
    pub fn keep_owned(&self, epoch: Epoch) -> Result<Option<Epoch>> {
        let before = read_epoch(&self.path, OWNED)?;
        // Also over a higher one: of a coordinator that has gone back, which an operator knows.
        if before != Some(epoch) {
            self.write_line(OWNED, &epoch.0.to_string())?;
        }
        Ok(before)
    }

    /// Written when that epoch was given, before anything of the target is opened: whoever has written here, his epoch is known. Durable on
    /// return.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep_taken(&self, epoch: Epoch) -> Result<()> {
        self.write_line(TAKEN, &epoch.0.to_string())
    }

    /// Undoes `keep_owned`, when somebody else was given that epoch: he may write to another half of a mirror.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put_owned_back(&self, before: Option<Epoch>) -> Result<()> {
        match before {
            Some(before) => self.write_line(OWNED, &before.0.to_string()),
            None => self.remove(OWNED),
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.path.join(name).display()))
            }
            _ => Ok(()),
        }
    }

    fn write_line(&self, name: &str, line: &str) -> Result<()> {
        let write = || -> io::Result<()> {
            let new = self.path.join(format!("{name}.new"));
            let mut file = fs::File::create(&new)?;
            file.write_all(format!("{line}\n").as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, self.path.join(name))?;
            fs::File::open(&self.path)?.sync_all()
        };
        Ok(write().map_err(|source| NotWritten { path: self.path.clone(), source })?)
    }

    /// Its stores are there, `disk` among them. Durable on return, unless the device is full: then it is said, and tried again at the next
    /// start, since who cannot be served can remove nothing either.
    ///
    /// # Errors
    /// Nothing can be written.
    pub fn set_served(&self, disk: &MetaDisk) -> Result<()> {
        if !self.directory.set_served_beside(disk)? {
            tracing::warn!(dir = %self.path.display(), "its device is full: that this target was served is not noted before its next start");
        }
        Ok(())
    }

    /// What has to be there and is not, of a target that was served: its disk is not mounted, or it has lost what it had. As a new one it
    /// would say of all its files that there are none.
    pub fn lost_store(&self) -> Option<PathBuf> {
        let (meta, objects) = (self.meta_path(), self.objects_path());
        let is_ost = self.id.kind == TargetKind::Ost;
        let (has_meta, has_objects) = (MetaDisk::is_there(&meta), is_ost && ObjectDisk::is_there(&objects));
        // They are made in this order, and the mark comes last.
        let was_served = self.directory.was_served();
        if !has_meta && (was_served || has_objects) {
            return Some(meta.join("index"));
        }
        (is_ost && !has_objects && was_served).then_some(objects)
    }

    pub fn meta_path(&self) -> PathBuf {
        self.directory.meta_path()
    }

    pub fn objects_path(&self) -> PathBuf {
        self.directory.objects_path()
    }
}

/// True for a directory that holds a target, a damaged one too.
pub fn exists(path: &Path) -> bool {
    path.join("target.json").exists()
}

/// What a target is not served without that is of a cluster, and was there before.
///
/// # Errors
/// There is nothing of it. A disk that does not answer is found when it is opened.
pub fn check_there(path: &Path) -> Result<()> {
    if path.join("target.json").try_exists().is_ok_and(|exists| !exists) {
        bail!(Damaged(format!(
            "there is no target in {}, where one was: mount its disk if that is not mounted, or else restore it from its mirror or backup",
            path.display()
        )));
    }
    Ok(())
}

/// As `check_there`, of a disk that is asked whether it can be read.
///
/// # Errors
/// There is nothing of it, or it cannot be read. What is damaged is no error here.
pub fn check_answers(path: &Path) -> Result<()> {
    check_there(path)?;
    match TargetDirectory::peek(path) {
        Err(error @ DirectoryError::Io { .. }) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Which target is in a directory that does not say so any more, by how it is called.
pub fn id_by_name(path: &Path) -> Option<TargetId> {
    path.file_name()?.to_string_lossy().to_uppercase().parse().ok()
}

/// Makes the directory of a target.
///
/// # Errors
/// The directory is not empty, or cannot be written.
pub fn make(path: &Path, id: TargetId, fsname: &str, mgs: &[String]) -> Result<()> {
    if path.exists() && !path.is_dir() {
        bail!("{} is no directory; choose another one", path.display());
    }
    let fsname = if id.kind == TargetKind::Mgt { "" } else { fsname };
    let missing: Vec<&Path> = path.ancestors().take_while(|dir| !dir.exists()).collect();
    let cannot = || format!("cannot write to {}", path.display());
    let superblock = Superblock::new(fsname, id).with_context(cannot)?;
    let addresses = mgs.join("\n") + "\n";
    let beside = [(MGSNODE, addresses.as_bytes())];
    let beside = if mgs.is_empty() { &[] } else { &beside[..] };
    let made = TargetDirectory::create(path, superblock, beside);
    if matches!(made, Err(DirectoryError::Io { .. })) {
        // As it was before. Any other failure means that somebody else is at work there.
        missing.into_iter().for_each(|dir| drop(remove_begun(dir)));
    } else if made.is_ok() && !missing.is_empty() {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).with_context(cannot)?;
    }
    made.map(drop).map_err(Into::into)
}

/// Removes a directory in which a target was begun, not one that has become a target.
fn remove_begun(dir: &Path) -> io::Result<()> {
    if !exists(dir) {
        for name in [MGSNODE, "target.json.new", "lock"] {
            // Perhaps it did not get that far.
            let _ = fs::remove_file(dir.join(name));
        }
    }
    fs::remove_dir(dir)
}

/// Opens and locks a target's directory.
///
/// # Errors
/// It is no target, damaged, of another version, or served already.
pub fn open(path: &Path) -> Result<TargetDir> {
    let path = canonical(path)?;
    let directory = open_soon(&path, TargetDirectory::open)?;
    let Label { path, id, fsname, uuid, mgs, coordinator } = label_of(path, directory.superblock())?;
    Ok(TargetDir { path, id, fsname, uuid, mgs, coordinator, directory })
}

/// As `open`, also where nothing can be written: a device that the kernel has made read-only, or a snapshot of one.
///
/// # Errors
/// As `open`.
pub fn open_to_check(path: &Path) -> Result<TargetDir> {
    let path = canonical(path)?;
    let directory = open_soon(&path, TargetDirectory::open_to_check)?;
    let Label { path, id, fsname, uuid, mgs, coordinator } = label_of(path, directory.superblock())?;
    Ok(TargetDir { path, id, fsname, uuid, mgs, coordinator, directory })
}

/// Reads what a directory says, without locking it: somebody else may serve it.
///
/// # Errors
/// It is no target, damaged, or of another version.
pub fn peek(path: &Path) -> Result<Label> {
    let path = canonical(path)?;
    let superblock = TargetDirectory::peek(&path)?;
    label_of(path, &superblock)
}

fn canonical(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("there is no directory {}", path.display()))
}

fn label_of(path: PathBuf, superblock: &Superblock) -> Result<Label> {
    let damaged = || Damaged(format!("{} is damaged; restore its target.json from a copy", path.display()));
    let id = superblock.target_id().with_context(damaged)?;
    let uuid =
        u128::from_str_radix(&superblock.uuid, 16).ok().filter(|uuid| *uuid != 0).with_context(damaged)?;
    if id.kind != TargetKind::Mgt {
        crate::nid::check_fsname(&superblock.fsname).with_context(damaged)?;
    }
    let (fsname, mgs, coordinator) = (superblock.fsname.clone(), read_mgs(&path)?, read_coordinator(&path)?);
    Ok(Label { id, fsname, uuid, mgs, coordinator, path })
}

/// As `open`, for a server without failover.
///
/// # Errors
/// As `open`, or other servers could serve the target too.
pub fn open_alone(path: &Path) -> Result<TargetDir> {
    // First without the lock, which its owner holds: that is not what is wrong.
    check_alone(&peek(path)?)?;
    let dir = open(path)?;
    check_alone(&dir.label())?;
    Ok(dir)
}

/// A target that several servers could serve is served by none that does not ask who owns it.
fn check_alone(label: &Label) -> Result<()> {
    if label.coordinator.is_some() {
        bail!(
            "{} is served with --failover, and another server may own it; serve it so, or, when no server does any more, remove {}",
            label.path.display(),
            label.path.join(COORDINATOR).display()
        );
    }
    Ok(())
}

/// Whether several servers can serve it, perhaps of other machines, of which locks of this one know nothing.
///
/// # Errors
/// What says so is damaged, or cannot be read.
pub fn is_shared(path: &Path) -> Result<bool> {
    Ok(read_coordinator(path)?.is_some())
}

/// What can be said before the coordinator has been asked: whether it is of the same kind as before.
///
/// # Errors
/// It is not.
pub fn check_coordinators(labels: &[Label], is_etcd: bool) -> Result<()> {
    let is_other = |identity: &String| (identity == coordinate::MGS_IDENTITY) == is_etcd;
    let Some(label) = labels.iter().find(|label| label.coordinator.as_ref().is_some_and(is_other)) else {
        return Ok(());
    };
    let (before, now) =
        if is_etcd { ("the management server", "etcd") } else { ("etcd", "the management server") };
    bail!(
        "who owns {} is kept by {before}, and this server would ask {now}; name the same on all servers (--coordinator), or, when none of \
         them runs any more, remove {}",
        label.path.display(),
        label.path.join(COORDINATOR).display()
    )
}

/// A server that was killed lets go of its target only when the kernel has taken it down: it is waited for, any other is not.
fn open_soon(
    path: &Path,
    open: fn(&Path) -> Result<TargetDirectory, DirectoryError>,
) -> Result<TargetDirectory, DirectoryError> {
    let start = Instant::now();
    loop {
        let opened = open(path);
        let Err(DirectoryError::Running { pid, .. }) = &opened else { return opened };
        if !pid.parse().is_ok_and(sys::is_going) || start.elapsed() > GOING_TIMEOUT {
            return opened;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Addresses, one a line; `None` when one of them is none.
pub fn parse_mgs(text: &str) -> Option<Vec<String>> {
    let is_whole = |address: &str| crate::nid::parse_nid(&crate::nid::format_nid(address)).is_ok();
    text.lines().map(|address| is_whole(address).then(|| address.to_owned())).collect()
}

fn read_mgs(path: &Path) -> Result<Vec<String>> {
    let file = path.join(MGSNODE);
    let Ok(metadata) = fs::metadata(&file) else { return Ok(Vec::new()) };
    let text = if metadata.len() <= MGSNODE_BYTES_MAX { fs::read_to_string(&file).ok() } else { None };
    match text.and_then(|text| parse_mgs(&text)) {
        Some(addresses) => Ok(addresses),
        None => {
            let file = file.display();
            bail!(Damaged(format!("{file} is damaged; write the management server's HOST:PORT into it")))
        }
    }
}

fn read_coordinator(path: &Path) -> Result<Option<String>> {
    let file = path.join(COORDINATOR);
    let metadata = match fs::metadata(&file) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot look at {}", file.display())),
    };
    let text = if metadata.len() <= COORDINATOR_BYTES_MAX { fs::read_to_string(&file).ok() } else { None };
    match text.as_deref().map(str::trim).filter(|identity| !identity.is_empty()) {
        Some(identity) => Ok(Some(identity.to_owned())),
        None => {
            let file = file.display();
            bail!(Damaged(format!("{file} is damaged; when no server serves this target, remove it")))
        }
    }
}

/// Before anything is said of epochs: those of another coordinator are others.
///
/// # Errors
/// Servers before this one have asked another coordinator, or which one cannot be read.
pub fn check_coordinator(path: &Path, identity: &str) -> Result<()> {
    read_coordinator(path)?.map_or(Ok(()), |known| check_same(path, &known, identity))
}

fn check_same(path: &Path, known: &str, identity: &str) -> Result<()> {
    if known != identity {
        bail!(
            "this server asks another coordinator ({identity}) than those before it ({known}), which it does not know of; name the \
             same one on all servers, or, when none of them runs any more, remove {}",
            path.join(COORDINATOR).display()
        );
    }
    Ok(())
}

/// Refuses storage to which the last owner that `keeper` knows of, with this epoch, has not written: an older copy, or the other half of a
/// mirror that was detached since. And one to which an owner has written of whom `keeper` knows nothing, having been made anew or restored
/// from an older copy: that owner may be writing, unless `is_confirmed`, by an operator. Writes nothing.
///
/// # Errors
/// It is one of these, or what says so cannot be read.
pub fn check_owned(label: &Label, known: Epoch, keeper: &str, is_confirmed: bool) -> Result<()> {
    let path = &label.path;
    // Without it its epochs were of another coordinator.
    if read_coordinator(path)?.is_none() {
        return Ok(());
    }
    let (owned, taken) = (read_epoch(path, OWNED)?, read_epoch(path, TAKEN)?);
    // Programs of before they were written have left none, or some that they did not write anew: those are refused.
    let Some(last) = owned.max(taken) else { return Ok(()) };
    if last < known {
        bail!(
            "{} was owned last with epoch {}, and {keeper} knows of an owner with epoch {}, which has not written to this storage: it is \
             older; give this server the storage of that owner, or, if it is that one, remove {OWNED} and {TAKEN} there",
            path.display(),
            last.0,
            known.0
        );
    }
    // The next epoch may have been asked for and not given.
    let is_newer = taken.is_some_and(|taken| taken > known) || last.0 > known.0.saturating_add(1);
    if is_newer && !is_confirmed {
        bail!(Forgotten(format!(
            "{} was owned last with epoch {}, and {keeper}, which was made anew or restored from an older copy, knows of no epoch after {}, \
             nor whether that owner still writes; when no server that had this target can write any more: sheen failover {}-{} --fenced \
             --epoch {}",
            path.display(),
            last.0,
            known.0,
            label.fsname,
            label.id,
            known.0
        )));
    }
    Ok(())
}

fn read_epoch(path: &Path, name: &str) -> Result<Option<Epoch>> {
    let file = path.join(name);
    let Ok(metadata) = fs::metadata(&file) else { return Ok(None) };
    let text = if metadata.len() <= OWNED_BYTES_MAX { fs::read_to_string(&file).ok() } else { None };
    match text.and_then(|text| text.trim().parse().ok()) {
        Some(epoch) => Ok(Some(Epoch(epoch))),
        None => {
            let file = file.display();
            bail!(Damaged(format!("{file} is damaged; when the last owner wrote to this storage, remove it")))
        }
    }
}

#[cfg(test)]
mod tests;
