//! `sheen bench`: figures of any directory, SheenFS or not, by plain system calls.
//!
//! Every round starts worker processes (this program again) that do the same phases side by side, each phase begun by
//! all at once. A figure is the median over the rounds, with the least and the greatest, for no single run says much.
//! Beside it stands what it cost: CPU time of the mount's process and of its servers, and requests, per operation.

mod cost;
mod figures;
mod floor;
mod rounds;
mod worker;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use figures::Report;
use floor::{Floor, NullMount};
use rounds::{Place, Plan};
use std::path::PathBuf;
use std::process::Command;

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
    /// Data: 1 MiB after the other through the page cache and past it (O_DIRECT), writes with fsync
    Stream(Options),
    /// What `ls -l` does to a directory, cold and warm
    Ls(Options),
    #[command(hide = true)]
    Worker(worker::Task),
    #[command(hide = true)]
    NullMount(floor::Serve),
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
    /// MiB per process that `io` and `stream` write and read
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub mib: u32,
    /// Of ten entries that `ls` lists one is a symlink, one a fifo, one a directory
    #[arg(long)]
    pub mixed: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// Measure this directory too, in turn, and print the ratio
    #[arg(long, value_name = "OTHERDIR", conflicts_with = "floor")]
    pub compare: Option<PathBuf>,
    /// Makes the caches of the mount cold before each cold listing (else: drop_caches, which needs root)
    #[arg(long, value_name = "CMD")]
    pub remount: Option<String>,
    /// `stream`: read with cold caches, of servers too (drop_caches, or --remount)
    #[arg(long)]
    pub cold: bool,
    /// Compare with a null file system: what this machine allows
    #[arg(long, value_enum)]
    pub floor: Option<Floor>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Md,
    Io,
    Stream,
    Ls,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Md => "md",
            Kind::Io => "io",
            Kind::Stream => "stream",
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
        What::Stream(options) => measure(Kind::Stream, options),
        What::Ls(options) => measure(Kind::Ls, options),
        What::Worker(task) => worker::run(task),
        What::NullMount(task) => floor::serve(task),
    }
}

fn measure(kind: Kind, options: &Options) -> Result<()> {
    let floor = options.floor.map(NullMount::new).transpose()?;
    let other = match (&options.compare, &floor) {
        (Some(dir), _) => Some(dir.clone()),
        (None, Some(floor)) => Some(floor.dir().to_owned()),
        (None, None) => None,
    };
    let procs = match (options.procs.as_slice(), kind) {
        ([], Kind::Ls) => vec![1],
        ([], Kind::Md | Kind::Io) => vec![1, 2, 4],
        ([], Kind::Stream) => vec![1, 4],
        (given, _) => given.to_vec(),
    };
    let plan = Plan {
        kind,
        procs,
        rounds: options.rounds,
        file_count: options.files,
        mib: options.mib,
        remount: options.remount.clone(),
        is_cold: options.cold,
        is_mixed: options.mixed,
    };
    // Each has its own directory, which goes when it is dropped, also after an error.
    let place = Place::new(&options.dir)?;
    let mut other = other.as_deref().map(Place::new).transpose()?;
    if let Some(other) = &mut other {
        other.null_pid = floor.as_ref().and_then(NullMount::pid);
    }
    let figures = rounds::run(&plan, &place, other.as_ref())?;
    let report = Report::new(&plan, &place, other.as_ref(), figures);
    let text = if options.json { report.to_json()? } else { report.to_text() };
    print!("{text}");
    Ok(())
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
