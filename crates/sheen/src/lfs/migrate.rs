//! `lfs migrate -m`: directory trees, with their files, move to another MDT.
//!
//! A directory moves before what is in it, so that nothing new comes to life on the old MDT once it has been listed. What was moved
//! already is passed over: who was interrupted begins again.

use super::directories::is_drained;
use super::{ask, check_writable, has_errno, is_mount_root, open, parent_of, targets_of, unexpected};
use crate::cli;
use crate::ioctl::{Ask, Tell};
use crate::mount_table;
use crate::progress::{Goal, Progress};
use anyhow::{Context, Result, anyhow, bail};
use base::{Fid, TargetId};
use clap::Args;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A name that leads elsewhere each time that it was looked up is somebody else's to move.
const TRY_COUNT: u32 = 5;

#[derive(Debug, Args)]
#[command(override_usage = "lfs migrate -m INDEX [-d] [-v] PATHS...")]
pub struct Migrate {
    /// The MDT that is to have the directories, from 0
    #[arg(
        short = 'm',
        long = "mdt-index",
        value_name = "INDEX",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    mdt_index: Vec<i32>,
    /// Over so many MDTs: only 1 is possible
    #[arg(short = 'c', long = "mdt-count", value_name = "COUNT", allow_negative_numbers = true)]
    mdt_count: Option<i32>,
    /// Only the directories themselves, not what is in them
    #[arg(short = 'd', long)]
    directory: bool,
    /// Print each path that moves
    #[arg(short = 'v', long)]
    verbose: bool,
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// What an inode is for this command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
    Symlink,
    Device,
    /// With processes at its ends.
    Staying,
}

/// What was done.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    directories: u64,
    files: u64,
    symlinks: u64,
    devices: u64,
    /// They were there.
    there: u64,
    staying: u64,
    failed: u64,
}

impl Migrate {
    /// # Errors
    /// One line: what cannot be, or how much has failed; what and why was said before.
    pub fn run(&self) -> Result<()> {
        let mdt_index = self.target()?;
        let mut work =
            Work { mdt_index, is_verbose: self.verbose, counts: Counts::default(), progress: Some(begin()) };
        for path in &self.paths {
            check_argument(path, mdt_index)?;
        }
        for path in &self.paths {
            work.tree(path, self.directory);
        }
        work.progress = None;
        println!("{}", work.counts.text(mdt_index));
        match work.counts.failed {
            0 => Ok(()),
            1 => bail!(
                "one path has not moved; what has moved stays so, and the same command goes on from there"
            ),
            count => {
                bail!(
                    "{count} paths have not moved; what has moved stays so, and the same command goes on from there"
                )
            }
        }
    }

    fn target(&self) -> Result<u16> {
        if self.mdt_index.is_empty() {
            return Err(cli::no_data_move());
        }
        if self.mdt_index.len() > 1 || !matches!(self.mdt_count, None | Some(0 | 1)) {
            bail!("directories move to one MDT: striped ones can only be made (`lfs mkdir -c`)");
        }
        let index = self.mdt_index.first().and_then(|index| u16::try_from(*index).ok());
        index.context("an MDT has an index from 0 on; see `lfs df`")
    }
}

impl Counts {
    fn text(&self, mdt_index: u16) -> String {
        let of = |count: u64, one: &str, several: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {several}"),
        };
        let mut text = format!(
            "{}, {}, {} and {} moved to {}, {} already there",
            of(self.directories, "directory", "directories"),
            of(self.files, "file", "files"),
            of(self.symlinks, "symlink", "symlinks"),
            of(self.devices, "device", "devices"),
            TargetId::mdt(mdt_index),
            self.there
        );
        if self.staying > 0 {
            text += &format!(
                "; {}",
                of(
                    self.staying,
                    "FIFO or socket stays where it was made",
                    "FIFOs and sockets stay where they were made"
                )
            );
        }
        text
    }
}

/// Before anything moves, and before each path of a tree complains of the same.
fn check_argument(path: &Path, mdt_index: u16) -> Result<()> {
    let metadata = fs::symlink_metadata(path).with_context(|| format!("cannot open {}", path.display()))?;
    if !metadata.is_dir() {
        bail!("{} is no directory: name the one that it is in", path.display());
    }
    // The kernel takes mounts off a directory that has moved; and what is in them is of another place.
    let real = fs::canonicalize(path).with_context(|| format!("cannot open {}", path.display()))?;
    if let Some(point) = mount_table::mounted_below_any_path(&real) {
        bail!(
            "{} stays where it is, since something is mounted on {}: unmount that first, or name other directories",
            path.display(),
            point.display()
        );
    }
    let file = open(path)?;
    check_writable(&file, path)?;
    match ask(&file, path, &Ask::NodeFid)? {
        Tell::Fid(Fid::ROOT) => bail!(
            "{} is the root of the file system, which stays on MDT0000: name directories in it",
            path.display()
        ),
        Tell::Fid(_) if targets_of(&file, path)?.contains(&TargetId::mdt(mdt_index).to_string()) => Ok(()),
        Tell::Fid(_) => Err(no_mdt(mdt_index)),
        _ => Err(unexpected(path)),
    }
}

fn no_mdt(mdt_index: u16) -> anyhow::Error {
    anyhow!("there is no MDT {mdt_index}; see `lfs df`")
}

struct Work {
    mdt_index: u16,
    is_verbose: bool,
    counts: Counts,
    /// How many paths there are nobody knows before.
    progress: Option<Progress>,
}

fn begin() -> Progress {
    Progress::begin("lfs migrate", "paths", Goal::default())
}

impl Work {
    fn tree(&mut self, root: &Path, is_itself: bool) {
        // `.` has no name; the path behind it has.
        let root = match root.file_name() {
            Some(_) => Ok(root.to_owned()),
            None => fs::canonicalize(root).with_context(|| format!("cannot open {}", root.display())),
        };
        let mut todo = match root {
            Ok(root) => vec![root],
            Err(error) => return self.fail(&error),
        };
        if let [root] = &todo[..]
            && is_mount_root(root)
        {
            // Its name is in a directory of another mount.
            let stays = anyhow!(
                "{} stays where it is: it is mounted here, and moves by its name elsewhere",
                root.display()
            );
            if is_itself {
                return self.fail(&stays);
            }
            self.say(|| eprintln!("lfs migrate: {stays}"));
            todo = match self.list(root) {
                Ok(below) => below,
                Err(error) => return self.fail(&error),
            };
        }
        while let Some(path) = todo.pop() {
            self.one(&path, Kind::Directory);
            if is_itself {
                continue;
            }
            match self.list(&path) {
                Ok(below) => todo.extend(below),
                Err(error) => self.fail(&error),
            }
        }
    }

    /// Moves what is in a directory and is no directory; -> the directories.
    fn list(&mut self, path: &Path) -> Result<Vec<PathBuf>> {
        let mut directories = Vec::new();
        for (name, kind) in entries(path)? {
            match kind {
                Kind::Directory => directories.push(name),
                Kind::Staying => self.counts.staying += 1,
                Kind::File | Kind::Symlink | Kind::Device => self.one(&name, kind),
            }
        }
        // The last comes first.
        directories.sort_by(|a, b| b.cmp(a));
        Ok(directories)
    }

    /// What stays is said while progress is shown.
    fn say(&self, words: impl FnOnce()) {
        match &self.progress {
            Some(progress) => progress.suspend(words),
            None => words(),
        }
    }

    fn one(&mut self, path: &Path, kind: Kind) {
        match migrate(path, self.mdt_index) {
            Ok(false) => self.counts.there += 1,
            Ok(true) => {
                match kind {
                    Kind::Directory => self.counts.directories += 1,
                    Kind::File => self.counts.files += 1,
                    Kind::Symlink => self.counts.symlinks += 1,
                    Kind::Device | Kind::Staying => self.counts.devices += 1,
                }
                if self.is_verbose {
                    self.say(|| println!("migrate {} to {}", path.display(), TargetId::mdt(self.mdt_index)));
                }
            }
            Err(error) => self.fail(&error),
        }
        if let Some(progress) = &self.progress {
            progress.add(1, 0);
        }
    }

    fn fail(&mut self, error: &anyhow::Error) {
        self.say(|| eprintln!("lfs migrate: {error:#}"));
        self.counts.failed += 1;
    }
}

/// Whoever lists a directory that moves is told so, and lists it again.
fn entries(path: &Path) -> Result<Vec<(PathBuf, Kind)>> {
    let list = || -> std::io::Result<Vec<(PathBuf, Kind)>> {
        fs::read_dir(path)?
            .map(|entry| {
                let entry = entry?;
                Ok((entry.path(), kind_of(entry.file_type()?)))
            })
            .collect()
    };
    let mut tries = 0;
    loop {
        tries += 1;
        match list() {
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) && tries < TRY_COUNT => {}
            listed => return listed.with_context(|| format!("cannot list {}", path.display())),
        }
    }
}

fn kind_of(file_type: fs::FileType) -> Kind {
    if file_type.is_dir() {
        Kind::Directory
    } else if file_type.is_file() {
        Kind::File
    } else if file_type.is_symlink() {
        Kind::Symlink
    } else if file_type.is_char_device() || file_type.is_block_device() {
        Kind::Device
    } else {
        Kind::Staying
    }
}

/// Whether it has moved; not, if it was there.
fn migrate(path: &Path, mdt_index: u16) -> Result<bool> {
    let mut tries = 0;
    loop {
        tries += 1;
        let (parent, name) = parent_of(path)?;
        match ask(&parent, path, &Ask::Migrate { name, mdt_index }) {
            Ok(Tell::Migrated(has_moved)) => return Ok(has_moved),
            Ok(_) => return Err(unexpected(path)),
            Err(error) if has_errno(&error, libc::ESTALE) && tries < TRY_COUNT => {}
            Err(error) => return Err(explained(error, path, mdt_index)),
        }
    }
}

fn explained(error: anyhow::Error, path: &Path, mdt_index: u16) -> anyhow::Error {
    let why = |errno| has_errno(&error, errno);
    let path = path.display();
    if why(libc::ENXIO) {
        no_mdt(mdt_index)
    } else if why(libc::EINVAL) {
        is_drained(mdt_index)
    } else if why(libc::EOPNOTSUPP) {
        anyhow!("{path} is a striped directory, or on an MDT of an older version, and stays where it is")
    } else if why(libc::EMLINK) {
        anyhow!("{path} has other names, and stays where it is")
    } else if why(libc::ETXTBSY) {
        anyhow!(
            "{path} is open, and stays where it is; give the same command again when nobody has it open (a client that was evicted with it open for writing counts for half a minute)"
        )
    } else if why(libc::EFBIG) {
        anyhow!(
            "{path} has too much to move at once (about 4,000 entries, or 900 KiB of data and xattrs on its MDT), and stays where it is"
        )
    } else if why(libc::EBUSY) {
        anyhow!("{path} changes all the time, and stays where it is; try again")
    } else if why(libc::EPERM) {
        anyhow!("{path} stays where it is: only root moves anything between MDTs")
    } else if why(libc::ENOSYS) {
        anyhow!(
            "{}, or an OST with data of {path}, is of a version that cannot take over what moves",
            TargetId::mdt(mdt_index)
        )
    } else {
        error
    }
}

#[cfg(test)]
mod tests;
