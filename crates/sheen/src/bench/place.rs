//! A directory of our own in the one that is measured, and what must be there before a round.

use super::cost::Daemons;
use super::interrupt;
use super::plan::{Kind, Plan};
use super::settings::{self, Applied, Settings};
use super::tool;
use crate::say;
use crate::sys;
use anyhow::{Context, Result, bail};
use base::Rng;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: usize = 1 << 20;
/// Directories in a directory of a tree, at most.
const FAN_OUT: u32 = 16;
/// Directory of the files that are streamed.
const STREAMS: &str = "streams";

pub struct Place {
    pub measured: PathBuf,
    /// The process behind a null file system.
    pub null_pid: Option<u32>,
    /// In force while this is measured.
    pub settings: Option<Settings>,
    pub work: PathBuf,
    /// The same directory as another mount shows it, through which streams are read.
    pub measured_beside: Option<PathBuf>,
    /// What was made stays.
    pub is_kept: bool,
    /// Mounts that show the measured directory, through which workers go in turn; none: they go through the measured one.
    pub seen_through: Vec<PathBuf>,
}

impl Place {
    /// # Errors
    /// If nothing can be made in it.
    pub fn new(measured: &Path) -> Result<Place> {
        let metadata = fs::metadata(measured);
        let metadata = metadata.with_context(|| format!("cannot measure {}", measured.display()))?;
        if !metadata.is_dir() {
            bail!("cannot measure {}: it is no directory", measured.display());
        }
        let measured = measured.canonicalize()?;
        // Two of one run may be in one directory, with different settings.
        let name = |number: u32| measured.join(format!("sheen-bench-{}-{number}", std::process::id()));
        let is_free = |work: &PathBuf| !work.exists();
        let work = (0..).map(name).find(is_free).context("there is always one more number")?;
        fs::create_dir(&work).with_context(|| format!("cannot make {}", work.display()))?;
        Ok(Place {
            measured,
            null_pid: None,
            settings: None,
            work,
            measured_beside: None,
            is_kept: false,
            seen_through: Vec::new(),
        })
    }

    /// Who works for it now; after `--remount` these are others.
    pub fn daemons(&self) -> Option<Daemons> {
        self.null_pid.map(Daemons::null).or_else(|| Daemons::of(&self.measured))
    }

    /// The same, with all mounts through which the workers see the directory.
    pub fn metered(&self) -> Option<Daemons> {
        if self.seen_through.is_empty() {
            return self.daemons();
        }
        Daemons::of_all([&self.measured].into_iter().chain(&self.seen_through))
    }

    /// # Errors
    /// They cannot be set.
    pub fn apply_settings(&self) -> Result<Applied> {
        let Some(settings) = &self.settings else { return Ok(Applied::default()) };
        let daemons = self.daemons().with_context(|| {
            format!("{} has no parameters: it is not on a mount of ours", self.measured.display())
        })?;
        settings.apply(&daemons)
    }

    /// A mount of ours gives its unused locks back, and with them goes what it knows of names.
    ///
    /// # Errors
    /// It cannot be asked to.
    pub fn forget_names(&self) -> Result<()> {
        let others = Daemons::of_each(&self.seen_through).unwrap_or_default();
        self.daemons().into_iter().chain(others).try_for_each(|daemons| settings::drop_idle_locks(&daemons))
    }

    /// Our directory as the worker of this number sees it.
    pub fn work_of(&self, worker: u32) -> PathBuf {
        let mount = self.seen_through.iter().cycle().nth(worker as usize);
        let below = self.work.strip_prefix(&self.measured).unwrap_or(&self.work);
        mount.map_or_else(|| self.work.clone(), |mount| mount.join(below))
    }

    /// Streams are read through another mount, which shows the measured directory as `dir`.
    ///
    /// # Errors
    /// It does not.
    pub fn read_streams_in(&mut self, dir: &Path) -> Result<()> {
        if !dir.join(self.work.strip_prefix(&self.measured).unwrap_or(&self.work)).is_dir() {
            let (dir, measured) = (dir.display(), self.measured.display());
            bail!(
                "{dir} does not show what is made in {measured}: name the same directory through another mount"
            );
        }
        self.measured_beside = Some(dir.to_owned());
        Ok(())
    }

    /// Does something with this place as another mount shows it.
    ///
    /// # Errors
    /// That mount does not, or what is done fails.
    pub fn seen_in(&mut self, dir: &Path, act: impl FnOnce(&Place) -> Result<()>) -> Result<()> {
        let work = dir.join(self.work.strip_prefix(&self.measured).unwrap_or(&self.work));
        if !work.is_dir() {
            bail!("{} does not show what is made in {}", dir.display(), self.measured.display());
        }
        let measured = std::mem::replace(&mut self.measured, dir.to_owned());
        let own = std::mem::replace(&mut self.work, work);
        let done = act(self);
        (self.measured, self.work) = (measured, own);
        done
    }

    /// The tree that is walked.
    pub fn tree(&self) -> PathBuf {
        self.work.join("tree")
    }

    /// The directory of the files that are streamed, as whoever streams them sees it.
    pub fn streams_as_read(&self) -> PathBuf {
        let top = self.measured_beside.as_ref().unwrap_or(&self.measured);
        top.join(self.work.strip_prefix(&self.measured).unwrap_or(&self.work)).join(STREAMS)
    }

    /// The process of the mount that is only there for the streams.
    pub fn stream_mount_pid(&self) -> Option<u32> {
        let other = self.measured_beside.as_ref().and_then(|dir| Daemons::of(dir))?;
        let is_own = self.daemons().is_none_or(|daemons| !daemons.is_client(other.client_pid()));
        is_own.then(|| other.client_pid())
    }

    /// The file that is mapped.
    pub fn mapped(dir: &Path) -> PathBuf {
        dir.join("mapped")
    }

    pub fn clear(&self) -> Result<()> {
        for entry in fs::read_dir(&self.work)? {
            let entry = entry?;
            let path = entry.path();
            let is_dir = entry.file_type()?.is_dir();
            let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }

    /// Makes what all rounds of a plan find there, and has it durable, so that dropping caches finds nothing dirty.
    pub fn fill(&self, plan: &Plan) -> Result<()> {
        match plan.kind {
            Kind::Ls | Kind::Names => self.fill_directory(plan)?,
            Kind::Mmap => self.fill_mapped(plan)?,
            Kind::Walk | Kind::Move => self.fill_tree(plan)?,
            Kind::Beside => {
                self.fill_streams(plan)?;
                self.fill_tree(plan)?;
            }
            Kind::Md | Kind::Io | Kind::Stream | Kind::Direct | Kind::Small | Kind::Dne => return Ok(()),
        }
        sys::write_pages(&self.work).with_context(|| format!("cannot sync {}", self.work.display()))
    }

    /// Entries to list, each with an xattr where it may have one.
    fn fill_directory(&self, plan: &Plan) -> Result<()> {
        for number in 0..plan.file_count {
            interrupt::check()?;
            let path = self.work.join(format!("name{number}"));
            make(plan, number, &path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        Ok(())
    }

    fn fill_mapped(&self, plan: &Plan) -> Result<()> {
        let path = Place::mapped(&self.work);
        let mut file = File::create_new(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let block = mapped_block();
        for _ in 0..plan.mib {
            interrupt::check()?;
            file.write_all(&block)?;
        }
        Ok(file.sync_all()?)
    }

    /// A file for each reader, over all OSTs.
    fn fill_streams(&self, plan: &Plan) -> Result<()> {
        let dir = self.work.join(STREAMS);
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        if self.daemons().is_some() {
            let program = std::env::current_exe().context("cannot find this program")?;
            tool::run(Command::new(program).args(["lfs", "setstripe", "-c", "-1"]).arg(&dir))?;
        }
        let block = mapped_block();
        for index in 0..plan.beside_proc_count {
            let path = dir.join(index.to_string());
            let mut file =
                File::create_new(&path).with_context(|| format!("cannot make {}", path.display()))?;
            for _ in 0..(plan.mib / plan.beside_proc_count).max(1) {
                file.write_all(&block)?;
            }
            file.sync_all()?;
        }
        Ok(())
    }

    /// Directories with `FAN_OUT` others in each, and files spread evenly over them, each with an xattr.
    fn fill_tree(&self, plan: &Plan) -> Result<()> {
        let mut directories = vec![self.tree()];
        for number in 1..plan.directory_count {
            let above = directories.get(((number - 1) / FAN_OUT) as usize);
            directories.push(above.context("it was made before")?.join(format!("d{number}")));
        }
        let bytes = vec![b'x'; plan.file_bytes as usize];
        for (number, directory) in directories.iter().enumerate() {
            fs::create_dir(directory).with_context(|| format!("cannot make {}", directory.display()))?;
            for file in (number..plan.file_count as usize).step_by(directories.len()) {
                let path = directory.join(format!("file{file}"));
                let made = fs::write(&path, &bytes).and_then(|()| add_xattr(&path));
                made.with_context(|| format!("cannot make {}", path.display()))?;
            }
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.work) {
            say::note(format_args!("cannot remove {}: {error}", self.work.display()));
        }
    }
}

/// What the mapped file consists of, again and again.
pub fn mapped_block() -> Vec<u8> {
    let mut rng = Rng::new(0);
    (0..MIB / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

fn make(plan: &Plan, number: u32, path: &Path) -> io::Result<()> {
    match number % 10 {
        1 if plan.is_mixed => return std::os::unix::fs::symlink("somewhere", path),
        2 if plan.is_mixed => return sys::make_fifo(path),
        3 if plan.is_mixed => fs::create_dir(path)?,
        // The sizes differ, as they do in life.
        _ => fs::write(path, [b'x'; 16].get(..number as usize % 16).unwrap_or_default())?,
    }
    add_xattr(path)
}

fn add_xattr(path: &Path) -> io::Result<()> {
    match sys::set_xattr(path, c"user.bench", b"value") {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        result => result,
    }
}
