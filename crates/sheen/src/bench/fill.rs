//! `sheen bench fill`: very many empty files, made through a mount, and what the MDTs need for them.

use super::cost::{Cost, Daemons, Meter};
use super::place::Place;
use super::shell;
use crate::control::TargetStatus;
use crate::progress::{Goal, Progress};
use crate::sys;
use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Files of one directory, and directories of one that has no files.
const PER_DIRECTORY: u64 = 1000;
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Restarted servers have so long until somebody is answered.
const RESTART_TIMEOUT: Duration = Duration::from_secs(300);
const TENTHS: u64 = 10;

#[derive(Clone, Debug, Args)]
pub struct Fill {
    /// Directory on a mount; what is made in it is removed again
    pub dir: PathBuf,
    /// Empty files, 1,000 in each directory
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub files: u64,
    /// Threads that make them, each in directories of its own
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
    /// Leave the tree there
    #[arg(long)]
    pub keep: bool,
    /// Stops the servers when the tree is made
    #[arg(long, value_name = "CMD", requires = "start")]
    pub stop: Option<String>,
    /// Starts them again: the time from here until the first answer is taken
    #[arg(long, value_name = "CMD", requires = "stop")]
    pub start: Option<String>,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    directory: String,
    files: u64,
    directories: u64,
    threads: u32,
    files_per_second: f64,
    /// Of each tenth of the files.
    tenths_per_second: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_cpu_us_per_file: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_cpu_us_per_file: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rpcs_per_file: Option<f64>,
    before: Vec<Metadata>,
    filled: Vec<Metadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restart: Option<Restart>,
}

/// What the MDTs of one process need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Metadata {
    targets: Vec<String>,
    pid: u32,
    /// The process has other targets or the mount too, and its memory is of all.
    is_shared: bool,
    disk_bytes: u64,
    rss_anon_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Restart {
    /// Until the command has returned, and until a file of the tree was found.
    command_seconds: f64,
    first_operation_seconds: f64,
    restarted: Vec<Metadata>,
}

/// # Errors
/// A file cannot be made, a command fails, or nobody answers after it.
pub fn run(options: &Fill) -> Result<()> {
    let mut place = Place::new(&options.dir)?;
    place.is_kept = options.keep;
    let before = metadata(&place);
    let meter = Meter::start(place.daemons());
    let made = make(&place.work, options.files, options.threads)?;
    let cost = meter.and_then(|meter| meter.stop(options.files, options.files));
    File::open(&place.work)?.sync_all()?;
    let filled = metadata(&place);
    let restart = match (&options.stop, &options.start) {
        (Some(stop), Some(start)) => Some(restart(&place, stop, start)?),
        _ => None,
    };
    let servers = |cost: &Cost| Some(cost.us_per_operation(cost.server_cpu?));
    let report = Report {
        bench: "fill",
        directory: place.measured.display().to_string(),
        files: options.files,
        directories: options.files.div_ceil(PER_DIRECTORY),
        threads: options.threads,
        files_per_second: options.files as f64 / made.elapsed.as_secs_f64().max(1e-9),
        tenths_per_second: made.tenths_per_second,
        client_cpu_us_per_file: cost.as_ref().map(|cost| cost.us_per_operation(cost.client_cpu)),
        server_cpu_us_per_file: cost.as_ref().and_then(servers),
        rpcs_per_file: cost.as_ref().and_then(Cost::rpcs_per_unit),
        before,
        filled,
        restart,
    };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.to_text());
    }
    Ok(())
}

struct Made {
    elapsed: Duration,
    tenths_per_second: Vec<f64>,
}

/// Directory of files number so and so.
fn directory(top: &Path, number: u64) -> PathBuf {
    top.join(format!("d{}", number / PER_DIRECTORY)).join(format!("d{number}"))
}

/// Makes the tree.
fn make(top: &Path, file_count: u64, thread_count: u32) -> Result<Made> {
    let (next, done, has_failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let directory_count = file_count.div_ceil(PER_DIRECTORY);
    for number in (0..directory_count).step_by(PER_DIRECTORY as usize) {
        fs::create_dir(top.join(format!("d{}", number / PER_DIRECTORY)))?;
    }
    let work = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= directory_count || has_failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let first = number * PER_DIRECTORY;
            let made =
                make_directory(&directory(top, number), first..file_count.min(first + PER_DIRECTORY), &done);
            has_failed.fetch_or(made.is_err(), Ordering::Relaxed);
            made?;
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..thread_count).map(|_| scope.spawn(work)).collect();
        let made = watch(file_count, &done, || threads.iter().all(|thread| thread.is_finished()));
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a thread that made files has panicked"))??;
        }
        Ok(made)
    })
}

fn make_directory(path: &Path, files: std::ops::Range<u64>, done: &AtomicU64) -> Result<()> {
    fs::create_dir(path).with_context(|| format!("cannot make {}", path.display()))?;
    for number in files {
        let path = path.join(format!("file{number}"));
        File::create_new(&path).with_context(|| format!("cannot make {}", path.display()))?;
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Until all threads have ended.
fn watch(file_count: u64, done: &AtomicU64, is_over: impl Fn() -> bool) -> Made {
    let started = Instant::now();
    let progress = Progress::begin("fill", "files", Goal::items(file_count));
    let (mut tenth, mut tenth_started, mut tenth_count) = (1, started, 0);
    let mut tenths_per_second = Vec::new();
    let rate = |count: u64, since: Instant| count as f64 / since.elapsed().as_secs_f64().max(1e-9);
    loop {
        let is_last = is_over();
        let count = done.load(Ordering::Relaxed);
        if count * TENTHS >= file_count * tenth && tenth <= TENTHS {
            tenths_per_second.push(rate(count - tenth_count, tenth_started));
            (tenth, tenth_started, tenth_count) = (count * TENTHS / file_count + 1, Instant::now(), count);
        }
        if is_last {
            return Made { elapsed: started.elapsed(), tenths_per_second };
        }
        progress.set(count, 0);
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Stops and starts the servers; the first file must be found then.
fn restart(place: &Place, stop: &str, start: &str) -> Result<Restart> {
    let wanted = directory(&place.work, 0).join("file0");
    ensure!(wanted.exists(), "{} is not there before the restart", wanted.display());
    shell(stop)?;
    let started = Instant::now();
    shell(start)?;
    let command_seconds = started.elapsed().as_secs_f64();
    while let Err(error) = fs::symlink_metadata(&wanted) {
        if started.elapsed() > RESTART_TIMEOUT {
            return Err(error).context("nobody answers after the restart");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let first_operation_seconds = started.elapsed().as_secs_f64();
    Ok(Restart { command_seconds, first_operation_seconds, restarted: metadata(place) })
}

/// Empty when the directory is not on a mount of ours, or its MDTs are elsewhere.
fn metadata(place: &Place) -> Vec<Metadata> {
    let daemons = place.daemons();
    let targets = || daemons.iter().flat_map(Daemons::targets);
    let is_metadata = |target: &TargetStatus| target.name.starts_with("MDT");
    let mut found: Vec<Metadata> = Vec::new();
    for target in targets().filter(|target| is_metadata(target)) {
        let at = found.iter().position(|known| known.pid == target.pid).unwrap_or(found.len());
        if at == found.len() {
            let is_other = |other: &TargetStatus| other.pid == target.pid && !is_metadata(other);
            let is_client = daemons.iter().any(|daemons| daemons.is_client(target.pid));
            found.push(Metadata {
                targets: Vec::new(),
                pid: target.pid,
                is_shared: is_client || targets().any(is_other),
                disk_bytes: 0,
                rss_anon_bytes: sys::anon_bytes(target.pid).unwrap_or(0),
            });
        }
        if let Some(known) = found.get_mut(at) {
            known.targets.push(target.name.clone());
            known.disk_bytes += disk_bytes(&target.dir);
        }
    }
    found
}

/// What the files below a directory take on the disk.
fn disk_bytes(dir: &Path) -> u64 {
    let mut sum = 0;
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            // What has gone meanwhile takes nothing.
            let Ok(metadata) = entry.metadata() else { continue };
            sum += metadata.blocks() * 512;
            if metadata.is_dir() {
                open.push(entry.path());
            }
        }
    }
    sum
}

impl Report {
    fn to_text(&self) -> String {
        let mut text = String::new();
        let mut line = |line: String| {
            // Writing to memory cannot fail.
            let _ = writeln!(text, "{line}");
        };
        line(format!(
            "fill of {}: {} files in {} directories by {} threads",
            self.directory, self.files, self.directories, self.threads
        ));
        let of_tenth =
            |tenth: Option<&f64>| tenth.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
        line(format!(
            "made             {:.0}/s (first tenth {}, last {})",
            self.files_per_second,
            of_tenth(self.tenths_per_second.first()),
            of_tenth(self.tenths_per_second.last())
        ));
        if let (Some(client), Some(rpcs)) = (self.client_cpu_us_per_file, self.rpcs_per_file) {
            let server = self.server_cpu_us_per_file;
            let server = server.map_or_else(|| "same".to_owned(), |server| format!("{server:.1}"));
            line(format!("cost of a file   client us {client:.1}, server us {server}, RPCs {rpcs:.3}"));
        }
        self.before.iter().for_each(|metadata| line(metadata.to_text("before")));
        self.filled.iter().for_each(|metadata| line(metadata.to_text("filled")));
        if let Some(restart) = &self.restart {
            line(format!(
                "restart          first operation after {:.2} s (the command took {:.2} s)",
                restart.first_operation_seconds, restart.command_seconds
            ));
            restart.restarted.iter().for_each(|metadata| line(metadata.to_text("restarted")));
        }
        text
    }
}

impl Metadata {
    fn to_text(&self, when: &str) -> String {
        const MIB: f64 = 1_048_576.0;
        format!(
            "{when:<16} {}: {:.1} MiB on disk, RssAnon {:.1} MiB{}",
            self.targets.join(" "),
            self.disk_bytes as f64 / MIB,
            self.rss_anon_bytes as f64 / MIB,
            if self.is_shared { " (with what else is in the process)" } else { "" }
        )
    }
}

#[cfg(test)]
mod tests;
