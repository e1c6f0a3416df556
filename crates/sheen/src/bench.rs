//! `sheen bench`: figures of any directory, SheenFS or not, by plain system calls.
//!
//! Every round starts worker processes (this program again) that do the same phases side by side, each phase begun by
//! all at once. A figure is the median over the rounds, with the least and the greatest, for no single run says much.

mod figures;
mod rounds;
mod worker;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use figures::Report;
use rounds::{Place, Plan};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    pub what: What,
}

#[derive(Debug, Subcommand)]
pub enum What {
    /// Names: mkdir, create, stat, open, rename, unlink, rmdir
    Md(Options),
    /// Data: sequential and random, 1 MiB and 4 KiB, writes (with fsync) and reads
    Io(Options),
    /// What `ls -l` does to a directory, cold and warm
    Ls(Options),
    #[command(hide = true)]
    Worker(worker::Task),
}

#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Directory to measure; what the rounds make in it is removed again
    pub dir: PathBuf,
    /// Processes at a time [default: 1,2,4; ls: 1]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=256))]
    pub procs: Vec<u32>,
    /// Rounds
    #[arg(short = 'n', default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Files per process, or in the directory that is listed
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub files: u32,
    /// MiB per process that `io` writes and reads
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub mib: u32,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// Measure this directory too, in turn, and print the ratio
    #[arg(long, value_name = "OTHERDIR", conflicts_with = "floor")]
    pub compare: Option<PathBuf>,
    /// Makes the caches of the mount cold before each cold listing (else: drop_caches, which needs root)
    #[arg(long, value_name = "CMD")]
    pub remount: Option<String>,
    /// Compare with a null file system on our own FUSE layer
    #[arg(long, value_enum)]
    pub floor: Option<Floor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Floor {
    Fuse,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Md,
    Io,
    Ls,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Md => "md",
            Kind::Io => "io",
            Kind::Ls => "ls",
        }
    }
}

/// The command.
///
/// # Errors
/// A directory that cannot be measured, a worker that fails.
pub fn run(arguments: &Bench) -> Result<()> {
    match &arguments.what {
        What::Md(options) => measure(Kind::Md, options),
        What::Io(options) => measure(Kind::Io, options),
        What::Ls(options) => measure(Kind::Ls, options),
        What::Worker(task) => worker::run(task),
    }
}

fn measure(kind: Kind, options: &Options) -> Result<()> {
    let floor = options.floor.map(|Floor::Fuse| NullMount::new()).transpose()?;
    let other = match (&options.compare, &floor) {
        (Some(dir), _) => Some(dir.clone()),
        (None, Some(floor)) => Some(floor.dir.clone()),
        (None, None) => None,
    };
    let procs = match (options.procs.as_slice(), kind) {
        ([], Kind::Ls) => vec![1],
        ([], Kind::Md | Kind::Io) => vec![1, 2, 4],
        (given, _) => given.to_vec(),
    };
    let plan = Plan {
        kind,
        procs,
        rounds: options.rounds,
        file_count: options.files,
        mib: options.mib,
        remount: options.remount.clone(),
    };
    // Each has its own directory, which goes when it is dropped, also after an error.
    let place = Place::new(&options.dir)?;
    let other = other.as_deref().map(Place::new).transpose()?;
    let figures = rounds::run(&plan, &place, other.as_ref())?;
    let report = Report::new(&plan, &place, other.as_ref(), figures);
    let text = if options.json { report.to_json()? } else { report.to_text() };
    print!("{text}");
    Ok(())
}

/// The null file system, mounted for as long as this lives.
struct NullMount {
    dir: PathBuf,
    session: Option<fuse::Session>,
}

impl NullMount {
    fn new() -> Result<NullMount> {
        let dir = std::env::temp_dir().join(format!("sheen-null-{}", std::process::id()));
        std::fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut null = NullMount { dir, session: None };
        let mounted = fuse::Session::mount(&null.dir, fuse::MountOptions::default());
        let (mut session, _) = mounted.context("cannot mount the null file system")?;
        session.run(Arc::new(fuse::null::NullFs::new(0))).context("cannot serve the null file system")?;
        null.session = Some(session);
        Ok(null)
    }
}

impl Drop for NullMount {
    fn drop(&mut self) {
        self.session = None;
        // A directory that stays behind is empty and harmless.
        let _ = std::fs::remove_dir(&self.dir);
    }
}

/// Makes caches cold: by the operator's command, or by the kernel's switch.
fn make_cold(remount: Option<&str>) -> Result<()> {
    if let Some(command) = remount {
        let status = Command::new("sh").arg("-c").arg(command).status().context("cannot run sh")?;
        if !status.success() {
            bail!("the command of --remount failed ({status}): {command}");
        }
        return Ok(());
    }
    std::fs::write("/proc/sys/vm/drop_caches", "3")
        .context("cannot drop the kernel's caches: be root, or give --remount CMD")
}

#[cfg(test)]
mod tests;
