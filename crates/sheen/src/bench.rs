//! `sheen bench`: figures of any directory, SheenFS or not, by plain system calls.
//!
//! Every round starts worker processes (this program again) that do the same phases side by side, each phase begun by
//! all at once. A figure is the median over the rounds, with the least and the greatest, for no single run says much.
//! Beside it stands what it cost: CPU time of the mount's process and of its servers, and requests, per operation.

mod ab;
mod bed;
mod beside;
mod cost;
mod dne;
mod figures;
mod fill;
mod floor;
mod image;
mod interrupt;
mod listing;
mod machine;
mod partner;
mod pattern;
mod place;
mod plan;
mod recovery;
mod rounds;
mod settings;
mod tool;
mod worker;

use crate::say;
use ab::Ab;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use dne::Dne;
use figures::Report;
use fill::Fill;
use floor::{Floor, NullMount, Stored};
use image::Image;
use pattern::Pattern;
use place::Place;
use plan::{Act, Kind, Plan};
use recovery::Recovery;
use settings::Settings;
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
    /// Data: 1 MiB after the other through the page cache (once more from there) and past it (O_DIRECT), writes with fsync
    Stream(Options),
    /// Blocks of 4 KiB at random past the page cache (O_DIRECT), 1, 4 and 16 at a time, writes with fsync
    Direct(Options),
    /// What `ls -l` does to a directory, cold and warm
    Ls(Options),
    /// Processes that map one file, cold: front to back, a part of every MiB, pages at random
    Mmap(Mmap),
    /// A tree as tools walk it, cold and warm; or small files, and a tree that is copied
    Tree(Tree),
    /// Very many empty files, and what the MDTs need for them
    Fill(Fill),
    /// Directories on their parent's MDT and on another one: rates, costs, and syncs of the MDTs' devices
    Dne(Dne),
    /// Two configurations of mounts in turn (A/B/A/B), and whether the difference is real
    Ab(Ab),
    /// How long mounts wait when servers and other mounts are killed, and whether anything is lost
    Recovery(Recovery),
    /// Many mounts read a whole image at once, nothing of which is in a cache: what that costs the servers
    Image(Image),
    #[command(hide = true)]
    Worker(worker::Task),
    #[command(hide = true)]
    Reader(beside::Stream),
    #[command(hide = true)]
    NullMount(floor::Serve),
    #[command(hide = true)]
    RecoveryLoad(recovery::load::Task),
    #[command(hide = true)]
    ImageReader(image::reader::Task),
}

/// What all measurements take.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Directory to measure; what the rounds make in it is removed again
    pub dir: PathBuf,
    /// Rounds
    #[arg(short = 'n', default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// Measure this directory too, in turn, and print the ratio
    #[arg(long, value_name = "OTHERDIR")]
    pub compare: Option<PathBuf>,
    /// Makes the caches of the mount cold where they are to be cold; root drops the kernel's besides (without: drop_caches alone, which needs root)
    #[arg(long, value_name = "CMD")]
    pub remount: Option<String>,
    /// Set these while the directory is measured, and compare it with itself without them
    #[arg(long, value_name = "PATH=VALUE,…", conflicts_with = "compare")]
    pub params: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    pub common: Common,
    /// Processes at a time [default: 1,2,4; stream: 1,4; direct, ls: 1]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=256))]
    pub procs: Vec<u32>,
    /// Files per process, or in the directory that is listed
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub files: u32,
    /// MiB per process that `io` and `stream` write and read; `direct` touches a sixteenth of its file
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub mib: u32,
    /// `stream`: of all processes together, instead of MiB for each: 512MiB, 2GiB
    #[arg(long, value_name = "SIZE", conflicts_with = "mib", value_parser = parse_size)]
    pub size: Option<u32>,
    /// `md`: all processes in one directory, instead of one for each
    #[arg(long)]
    pub shared: bool,
    /// `ls`: only names, as `ls -f`, and nothing of what they lead to
    #[arg(long)]
    pub names: bool,
    /// `ls`: mounts DIR afresh and leaves its servers as they are; then what a new client lists has a row beside what is cold everywhere
    #[arg(long, value_name = "CMD")]
    pub remount_client: Option<String>,
    /// Of ten entries that `ls` lists one is a symlink, one a fifo, one a directory
    #[arg(long)]
    pub mixed: bool,
    /// `io`, `stream`, `direct`: read with this machine's page cache cold, below servers here too; `md`: stat names that are not cached, too
    /// (drop_caches, or --remount)
    #[arg(long)]
    pub cold: bool,
    /// Compare with a null file system: what this machine allows
    #[arg(long, value_enum, conflicts_with_all = ["compare", "params"])]
    pub floor: Option<Floor>,
}

/// `512MiB`, `2GiB`, also as `512M`, `2G`. -> MiB
fn parse_size(text: &str) -> Result<u32, String> {
    let (digits, mib_count) = match text.trim_end_matches("iB") {
        text if text.ends_with('M') => (text.trim_end_matches('M'), 1),
        text if text.ends_with('G') => (text.trim_end_matches('G'), 1024),
        _ => return Err("write a number with MiB or GiB".to_owned()),
    };
    let mib = digits.parse::<u32>().ok().and_then(|count| count.checked_mul(mib_count));
    mib.filter(|mib| (1..=1_000_000).contains(mib)).ok_or_else(|| "1MiB to 976GiB".to_owned())
}

#[derive(Clone, Debug, Args)]
pub struct Mmap {
    #[command(flatten)]
    pub common: Common,
    /// Processes at a time
    #[arg(long, value_delimiter = ',', default_value = "16", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub procs: Vec<u32>,
    /// MiB of the file
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub mib: u32,
    /// What each process touches, one byte of a page [default: all three]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub pattern: Vec<Pattern>,
    /// Compare with a null file system that fills the page cache: what this machine allows
    #[arg(long, value_enum, conflicts_with_all = ["compare", "params"])]
    pub floor: Option<Floor>,
}

#[derive(Clone, Debug, Args)]
pub struct Tree {
    #[command(flatten)]
    pub common: Common,
    /// Files of the tree; with --small also of each process
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub files: u32,
    /// Directories of the tree, its top included, 16 in each
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub dirs: u32,
    /// Of each file of the tree
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(..=16_777_216))]
    pub bytes: u32,
    /// Instead of walks: small files written and read, the tree copied, packed, unpacked, removed
    #[arg(long)]
    pub small: bool,
    /// Instead of walks cold and warm: walks with nothing beside them and beside processes at nice 19 that read files of so many
    /// MiB together, which lie on all OSTs, again and again past the page cache; to be more than OSTs keep in memory
    #[arg(long, value_name = "MIB", conflicts_with = "small", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub beside_mib: Option<u32>,
    /// Processes that stream beside a walk
    #[arg(long, value_name = "N", default_value_t = 2, requires = "beside_mib", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub beside_procs: u32,
    /// The measured directory on another mount, through which they stream: its process may be at nice 19 too
    #[arg(long, value_name = "DIR", requires = "beside_mib", conflicts_with_all = ["compare", "params"])]
    pub beside_dir: Option<PathBuf>,
    /// Processes that write and read small files [default: 1,2,4]
    #[arg(long, value_delimiter = ',', requires = "small", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub procs: Vec<u32>,
    /// Compare walks with a null file system: what this machine allows. It keeps no bytes and no xattrs, which --small reads back, and
    /// serves nothing beside streams
    #[arg(long, value_enum, conflicts_with_all = ["compare", "params", "small", "beside_mib"])]
    pub floor: Option<Floor>,
}

/// The command.
///
/// # Errors
/// A directory that cannot be measured, a worker that fails.
pub fn run(arguments: &Bench) -> Result<()> {
    match &arguments.what {
        What::Md(options) => simple(Kind::Md, options, &[1, 2, 4]),
        What::Io(options) => simple(Kind::Io, options, &[1, 2, 4]),
        What::Stream(options) => simple(Kind::Stream, options, &[1, 4]),
        What::Direct(options) => simple(Kind::Direct, options, &[1]),
        What::Ls(options) => simple(if options.names { Kind::Names } else { Kind::Ls }, options, &[1]),
        What::Mmap(options) => mmap(options),
        What::Tree(options) => tree(options),
        What::Fill(options) => fill::run(options),
        What::Worker(task) => worker::run(task),
        What::Reader(stream) => beside::read(stream),
        What::NullMount(task) => floor::serve(task),
        What::Dne(options) => dne::run(options),
        What::Ab(options) => ab::run(options),
        What::Recovery(options) => recovery::run(options),
        What::RecoveryLoad(task) => recovery::load::run(task),
        What::Image(options) => image::run(options),
        What::ImageReader(task) => image::reader::run(task),
    }
}

fn simple(kind: Kind, options: &Options, usual_procs: &[u32]) -> Result<()> {
    if options.size.is_some() && kind != Kind::Stream {
        bail!("--size is of `bench stream`; give --mib, of each process");
    }
    if options.remount_client.is_some() && !matches!(kind, Kind::Ls | Kind::Names) {
        bail!("--remount-client is of `bench ls`");
    }
    if options.cold && matches!(kind, Kind::Ls | Kind::Names) {
        bail!("--cold is of `md`, `io`, `stream` and `direct`: `bench ls` lists cold first anyway");
    }
    let has_reads = matches!(kind, Kind::Io | Kind::Stream | Kind::Direct);
    if has_reads && !options.cold && options.common.compare.is_some() {
        say::note(
            "without --cold servers on this machine read from memory what they have just written, and a local disk does not: do not compare reads",
        );
    }
    let plan = Plan {
        procs: or_usual(&options.procs, usual_procs),
        remount_client: options.remount_client.clone(),
        file_count: options.files,
        mib: options.size.unwrap_or(options.mib),
        is_mib_of_all: options.size.is_some(),
        is_cold: options.cold,
        is_mixed: options.mixed,
        is_shared: options.shared && kind == Kind::Md,
        ..Plan::new(kind, &options.common)
    };
    let stored = if matches!(kind, Kind::Ls | Kind::Names) { Stored::Listed } else { Stored::Zeros };
    let floor = options.floor.map(|floor| NullMount::new(floor, stored)).transpose()?;
    let name = if kind == Kind::Names { "ls" } else { kind.word() };
    measure(name, &options.common, floor.as_ref(), &[plan])
}

fn mmap(options: &Mmap) -> Result<()> {
    let plan = Plan {
        procs: options.procs.clone(),
        mib: options.mib,
        patterns: or_usual(&options.pattern, &Pattern::ALL),
        ..Plan::new(Kind::Mmap, &options.common)
    };
    let floor = options.floor.map(|floor| NullMount::new(floor, Stored::Mapped)).transpose()?;
    measure("mmap", &options.common, floor.as_ref(), &[plan])
}

fn tree(options: &Tree) -> Result<()> {
    let of_tree = |kind: Kind| Plan {
        procs: vec![1],
        file_count: options.files,
        directory_count: options.dirs,
        file_bytes: options.bytes,
        ..Plan::new(kind, &options.common)
    };
    let plans = if let Some(mib) = options.beside_mib {
        vec![Plan { mib, beside_proc_count: options.beside_procs, ..of_tree(Kind::Beside) }]
    } else if options.small {
        let files = Plan { procs: or_usual(&options.procs, &[1, 2, 4]), ..of_tree(Kind::Small) };
        vec![of_tree(Kind::Move), files]
    } else {
        vec![of_tree(Kind::Walk)]
    };
    let floor = options.floor.map(|floor| NullMount::new(floor, Stored::Listed)).transpose()?;
    measure_beside("tree", &options.common, floor.as_ref(), options.beside_dir.as_ref(), &plans)
}

fn or_usual<T: Clone>(given: &[T], usual: &[T]) -> Vec<T> {
    if given.is_empty() { usual.to_vec() } else { given.to_vec() }
}

impl Plan {
    fn new(kind: Kind, common: &Common) -> Plan {
        Plan { remount: common.remount.clone(), ..Plan::of(kind, common.rounds) }
    }

    fn of(kind: Kind, rounds: u32) -> Plan {
        Plan {
            kind,
            procs: Vec::new(),
            rounds,
            file_count: 0,
            directory_count: 0,
            file_bytes: 0,
            mib: 0,
            is_mib_of_all: false,
            beside_proc_count: 0,
            remount: None,
            remount_client: None,
            is_cold: false,
            is_mixed: false,
            is_shared: false,
            patterns: Vec::new(),
            ops: Vec::new(),
            is_null: false,
        }
    }
}

/// Measures and prints, the plans one after the other in one report, which the first one describes.
fn measure(name: &'static str, common: &Common, floor: Option<&NullMount>, plans: &[Plan]) -> Result<()> {
    measure_beside(name, common, floor, None, plans)
}

/// The same; streams are read through another mount, perhaps.
fn measure_beside(
    name: &'static str,
    common: &Common,
    floor: Option<&NullMount>,
    measured_beside: Option<&PathBuf>,
    plans: &[Plan],
) -> Result<()> {
    if let Some(note) = warm_note(common, floor.is_some(), crate::sys::uid() == 0) {
        say::note(note);
    }
    let settings = common.params.as_deref().map(Settings::parse).transpose()?;
    let has_settings = settings.is_some();
    // Each has its own directory, which goes when it is dropped, also after an error.
    let mut place = Place::new(&common.dir)?;
    place.settings = settings;
    if let Some(dir) = measured_beside {
        place.read_streams_in(dir)?;
    }
    let other = match (&common.compare, floor) {
        (Some(dir), _) => Some(Place::new(dir)?),
        (None, Some(floor)) => Some(floor.place()?),
        (None, None) if has_settings => Some(Place::new(&common.dir)?),
        (None, None) => None,
    };
    let first = plans.first().context("there is something to measure")?;
    let mut report = Report::new(name, first, &place, other.as_ref());
    for plan in plans {
        note_missing(plan.kind);
        report.add(&rounds::run(plan, &place, other.as_ref())?);
    }
    let text = if common.json { report.to_json()? } else { report.to_text() };
    print!("{text}");
    Ok(())
}

/// What `make_cold` leaves warm.
fn warm_note(common: &Common, has_floor: bool, is_root: bool) -> Option<&'static str> {
    let is_warm = common.remount.is_some() && !is_root && (common.compare.is_some() || has_floor);
    is_warm.then_some(
        "only root drops the kernel's caches: what is compared with is warm in cold phases, unless --remount drops them too",
    )
}

/// Says which phases are left out for want of their program.
fn note_missing(kind: Kind) {
    for phase in kind.phases() {
        if let Act::Tool { tool, .. } = phase.act
            && !tool.is_here()
        {
            say::note(format_args!("'{}' is skipped: there is no {} here", phase.name, tool.program()));
        }
    }
}

/// Makes caches cold: by the operator's command, or by the kernel's switch.
fn make_cold(remount: Option<&str>) -> Result<()> {
    let drop_caches = || std::fs::write("/proc/sys/vm/drop_caches", "3");
    if let Some(command) = remount {
        shell(command)?;
        // For what is compared, which the command may know nothing of. Who is not root has to have the command do it.
        let _ = drop_caches();
        return Ok(());
    }
    drop_caches().context("cannot drop the kernel's caches: be root, or give --remount CMD")
}

/// A command of the operator's. What it says goes to standard error: what we say is for programs, perhaps.
fn shell(command: &str) -> Result<()> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdout(std::io::stderr());
    let status = shell.status().context("cannot run sh")?;
    if !status.success() {
        bail!("a command failed ({status}): {command}");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
