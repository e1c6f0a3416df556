//! What a worker of `sheen bench dne` works on: one directory for each operation and home, on its parent's MDT, and in it, or in a
//! directory `there` of it that is on the MDT in question, what is removed, renamed, linked or changed.

use crate::bench::plan::{DneOp, Home};
use crate::lfs::DirectoryMaker;
use anyhow::{Context, Result};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const CHANGED_MODE: u32 = 0o750;

pub struct Ground {
    op: DneOp,
    home: Home,
    count: u32,
    here: PathBuf,
    there: PathBuf,
    maker: DirectoryMaker,
}

impl Ground {
    /// Makes all that one phase needs.
    ///
    /// # Errors
    /// The first call that fails.
    pub fn prepare(dir: &Path, (op, home): (DneOp, Home), count: u32) -> Result<Ground> {
        let here = dir.join(format!("{}-{}", op.word(), home.word()));
        mkdir_beside(&here).with_context(|| format!("cannot make {}", here.display()))?;
        let (maker, there) = (DirectoryMaker::new(&here)?, here.join("there"));
        let ground = Ground { op, home, count, here, there, maker };
        ground.fill().with_context(|| format!("cannot fill {}", ground.here.display()))?;
        Ok(ground)
    }

    /// As many operations as were prepared; returns how many that were.
    ///
    /// # Errors
    /// The first that fails.
    pub fn perform(&self) -> Result<u64> {
        (0..self.count).try_for_each(|number| self.perform_one(number))?;
        Ok(u64::from(self.count))
    }

    fn fill(&self) -> Result<()> {
        match self.op {
            DneOp::Mkdir => Ok(()),
            DneOp::Rmdir => self.for_each(|number| {
                self.maker.mkdir(&name_of(number), self.mdt_index())?;
                // As who has listed it knows it.
                Ok(fs::symlink_metadata(self.at(&self.here, number)).map(drop)?)
            }),
            DneOp::Rename | DneOp::Link => {
                self.make_there()?;
                self.for_each(|number| make_file(&self.at(&self.there, number)))
            }
            DneOp::RenameOver => {
                self.make_there()?;
                self.for_each(|number| {
                    make_file(&self.at(&self.there, number))?;
                    make_file(&self.at(&self.here, number))
                })
            }
            DneOp::RenameDir => {
                self.make_there()?;
                let maker = DirectoryMaker::new(&self.there)?;
                self.for_each(|number| maker.mkdir(&name_of(number), maker.other_mdt_index(0)))?;
                self.for_each(|number| Ok(fs::symlink_metadata(self.at(&self.there, number)).map(drop)?))
            }
            DneOp::Unlink => {
                self.make_there()?;
                self.for_each(|number| {
                    let made = self.at(&self.there, number);
                    make_file(&made)?;
                    Ok(fs::rename(made, self.at(&self.here, number))?)
                })
            }
            DneOp::RenameStriped => {
                self.make_striped("there")?;
                self.for_each(|number| make_file(&self.at(&self.there, number)))
            }
            DneOp::Setattr => self.for_each(|number| {
                self.make_striped(&name_of(number))?;
                Ok(fs::symlink_metadata(self.at(&self.here, number)).map(drop)?)
            }),
        }
    }

    fn perform_one(&self, number: u32) -> Result<()> {
        let (here, there) = (self.at(&self.here, number), self.at(&self.there, number));
        let done = match self.op {
            DneOp::Mkdir => return self.maker.mkdir(&name_of(number), self.mdt_index()),
            DneOp::Rmdir => fs::remove_dir(&here),
            DneOp::Rename | DneOp::RenameOver | DneOp::RenameDir => fs::rename(there, &here),
            DneOp::RenameStriped => fs::rename(&there, there.with_extension("renamed")),
            DneOp::Link => fs::hard_link(there, &here),
            DneOp::Unlink => fs::remove_file(&here),
            DneOp::Setattr => fs::set_permissions(&here, Permissions::from_mode(CHANGED_MODE)),
        };
        done.with_context(|| format!("{} at {}", self.op.word(), here.display()))
    }

    fn for_each(&self, make: impl Fn(u32) -> Result<()>) -> Result<()> {
        (0..self.count).try_for_each(make)
    }

    fn at(&self, dir: &Path, number: u32) -> PathBuf {
        dir.join(name_of(number))
    }

    /// Where the inodes are.
    fn mdt_index(&self) -> u16 {
        match self.home {
            Home::Local => self.maker.other_mdt_index(0),
            Home::Remote | Home::RemoteSync => self.maker.other_mdt_index(1),
        }
    }

    fn make_there(&self) -> Result<()> {
        self.maker.mkdir("there", self.mdt_index())
    }

    fn make_striped(&self, name: &str) -> Result<()> {
        match self.home {
            Home::Local => self.maker.mkdir(name, self.mdt_index()),
            Home::Remote | Home::RemoteSync => self.maker.mkdir_striped(name),
        }
    }
}

/// A directory on its parent's MDT.
///
/// # Errors
/// It is there already, or cannot be made.
pub fn mkdir_beside(path: &Path) -> Result<()> {
    let (parent, name) =
        (path.parent().context("it has a parent")?, path.file_name().context("it has a name")?);
    let maker = DirectoryMaker::new(parent)?;
    maker.mkdir(&name.to_string_lossy(), maker.other_mdt_index(0))
}

fn name_of(number: u32) -> String {
    format!("n{number}")
}

fn make_file(path: &Path) -> Result<()> {
    let made: io::Result<File> = File::create_new(path);
    Ok(made.map(drop)?)
}
