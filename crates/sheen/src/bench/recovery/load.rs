//! The load of one mount, in a process of its own: two threads for names, two for data. So whoever kills and starts processes has nothing
//! open on a mount whose server is away.
//!
//! A line on standard input asks, one on standard output answers: `after NS` (the clock of `net::clock`) when each thread has ended
//! an operation that began after that time, or cannot; `stop` with the report. The process ends with its input.

use super::super::worker::say;
use anyhow::{Context, Result, anyhow, bail};
use base::Rng;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Unit of the stripes of all files: the least that there is.
pub const STRIPE_BYTES: usize = 64 << 10;
/// Directories in that of a round, which are there before a load begins: for the names and for the data of all.
pub const SHARED: &str = "shared";
pub const DATA: &str = "data";

/// Operations of each thread before it counts as running.
const WARM_COUNT: u64 = 20;
/// Operations of each thread after the kill: a mount that comes back may stop again.
const LATER_COUNT: u64 = 20;
/// Synced files that are kept to be looked at; the oldest go.
const KEPT_COUNT: usize = 16;
/// Longer than a recovery that waits for its whole window, twice, and an eviction.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(240);
/// When something happened the threads say themselves; a load of each mount that looked more often took a good part of a small machine.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How a load is started; only by ourselves.
#[derive(Clone, Debug, Args)]
pub struct Task {
    /// Directory of the round, on the mount
    #[arg(long)]
    pub dir: PathBuf,
    /// Which of the mounts
    #[arg(long)]
    pub index: u32,
    #[arg(long)]
    pub osts: u16,
    #[arg(long)]
    pub pause_ms: u64,
}

/// When the threads of a load had each ended an operation that had begun after a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The first thread, nanoseconds of the clock of `net::clock`.
    pub first_ns: u64,
    /// The last one of those that work where no other mount does.
    pub own_ns: u64,
    /// The last one.
    pub last_ns: u64,
}

/// What a load says at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Threads that ended at a system call that failed, or that hang in one.
    pub failed_count: u64,
    /// What the first of them says.
    pub error: Option<String>,
    /// The longest operation that ended after the time of `after`.
    pub longest_ns: u64,
    pub operation_count: u64,
    /// Files whose fsync has returned (`file_name`, `contents`), and that were not removed again.
    pub synced: Vec<u64>,
    /// What the file that is written again and again has (`own_file`), if no write of it has failed or is under way.
    pub own_synced: Option<u64>,
}

/// The directory in that of a round for names of one load.
pub fn own_dir(index: u32) -> String {
    format!("own{index}")
}

/// A file of the data load, in `DATA`.
pub fn file_name(index: u32, number: u64) -> String {
    format!("{index}-{number}")
}

/// The file in the directory of one load that is written again and again.
pub fn own_file(index: u32) -> PathBuf {
    Path::new(&own_dir(index)).join("data")
}

/// What each consists of: a stripe unit on each OST.
pub fn contents(index: u32, number: u64, ost_count: u16) -> Vec<u8> {
    let mut rng = Rng::new((u64::from(index) << 32) | number);
    let byte_count = STRIPE_BYTES * usize::from(ost_count);
    let mut bytes = Vec::with_capacity(byte_count);
    while bytes.len() < byte_count {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes
}

/// The load's whole life.
///
/// # Errors
/// Whoever has started it says nothing that it understands, or does not listen.
pub fn run(task: &Task) -> Result<()> {
    let shared = Arc::new(Shared::new(task.clone()));
    for work in [work_on_names, work_on_own_names, work_on_data, work_on_own_data] {
        let shared = Arc::clone(&shared);
        std::thread::Builder::new().name("load".into()).spawn(move || work(&shared))?;
    }
    shared.wait(|thread| thread.done_count.load(Ordering::SeqCst) >= WARM_COUNT);
    say("warm")?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        match line.split_once(' ') {
            Some(("after", ns)) => {
                let after_ns = ns.parse().context("a load was told no time")?;
                say(&serde_json::to_string(&shared.progress_after(after_ns))?)?;
            }
            None if line == "stop" => return say(&serde_json::to_string(&shared.stop())?),
            _ => bail!("a load was told {line:?}"),
        }
    }
    Ok(())
}

/// What the threads and whoever asks about them share.
struct Shared {
    task: Task,
    /// Operations that end after this are looked at; at first none.
    after_ns: AtomicU64,
    is_over: AtomicBool,
    names: Thread,
    own: Thread,
    data: Thread,
    own_data: Thread,
    synced: Mutex<VecDeque<u64>>,
}

/// One thread of the load.
#[derive(Default)]
struct Thread {
    done_count: AtomicU64,
    /// Operations that began after `after_ns`, and when the first of them ended.
    later_count: AtomicU64,
    progress_ns: AtomicU64,
    longest_ns: AtomicU64,
    has_ended: AtomicBool,
    error: Mutex<Option<String>>,
}

impl Shared {
    fn new(task: Task) -> Shared {
        Shared {
            task,
            after_ns: AtomicU64::new(u64::MAX),
            is_over: AtomicBool::new(false),
            names: Thread::default(),
            own: Thread::default(),
            data: Thread::default(),
            own_data: Thread::default(),
            synced: Mutex::default(),
        }
    }

    fn threads(&self) -> [&Thread; 4] {
        [&self.names, &self.own, &self.data, &self.own_data]
    }

    /// Until all threads are so far, have ended, or hang; true in the first case.
    fn wait(&self, is_far: impl Fn(&Thread) -> bool) -> bool {
        let begun = Instant::now();
        let is_settled = |thread: &Thread| is_far(thread) || thread.has_ended.load(Ordering::SeqCst);
        while !self.threads().into_iter().all(is_settled) && begun.elapsed() < PROGRESS_TIMEOUT {
            std::thread::sleep(POLL_INTERVAL);
        }
        self.threads().into_iter().all(is_far)
    }

    /// `None` when a thread has failed or hangs.
    fn progress_after(&self, after_ns: u64) -> Option<Progress> {
        self.after_ns.store(after_ns, Ordering::SeqCst);
        if !self.wait(|thread| thread.later_count.load(Ordering::SeqCst) >= LATER_COUNT) {
            return None;
        }
        let each = self.threads().map(|thread| thread.progress_ns.load(Ordering::SeqCst));
        let [_, own_names_ns, _, own_data_ns] = each;
        let own_ns = own_names_ns.max(own_data_ns);
        let (first_ns, last_ns) = (each.into_iter().min(), each.into_iter().max());
        Some(Progress { first_ns: first_ns?, own_ns, last_ns: last_ns? })
    }

    fn stop(&self) -> Report {
        self.is_over.store(true, Ordering::SeqCst);
        self.wait(|thread| thread.has_ended.load(Ordering::SeqCst));
        let mut report = Report { synced: lock(&self.synced).iter().copied().collect(), ..Report::default() };
        for (thread, what) in self.threads().into_iter().zip(["names", "own names", "data", "own data"]) {
            let mut error = lock(&thread.error).clone();
            if !thread.has_ended.load(Ordering::SeqCst) {
                error = Some(format!("the load of {what} hangs"));
            }
            report.failed_count += u64::from(error.is_some());
            report.error = report.error.or(error);
            report.longest_ns = report.longest_ns.max(thread.longest_ns.load(Ordering::SeqCst));
            report.operation_count += thread.done_count.load(Ordering::SeqCst);
        }
        let has_failed =
            lock(&self.own_data.error).is_some() || !self.own_data.has_ended.load(Ordering::SeqCst);
        let last = self.own_data.done_count.load(Ordering::SeqCst).checked_sub(1);
        report.own_synced = last.filter(|_| !has_failed);
        report
    }

    /// A file was synced; returns the one that is one too many now.
    fn keep(&self, number: u64) -> Option<u64> {
        let mut synced = lock(&self.synced);
        synced.push_back(number);
        if synced.len() > KEPT_COUNT { synced.pop_front() } else { None }
    }

    /// Repeats operations until it is time to stop or one fails.
    fn repeat(&self, thread: &Thread, mut operation: impl FnMut(u64) -> Result<()>) {
        for number in 0.. {
            if self.is_over.load(Ordering::SeqCst) {
                break;
            }
            let begun_ns = now_ns();
            if let Err(error) = operation(number) {
                *lock(&thread.error) = Some(format!("{error:#}"));
                break;
            }
            thread.note(begun_ns, now_ns(), self.after_ns.load(Ordering::SeqCst));
            std::thread::sleep(Duration::from_millis(self.task.pause_ms));
        }
        thread.has_ended.store(true, Ordering::SeqCst);
    }
}

impl Thread {
    fn note(&self, begun_ns: u64, ended_ns: u64, after_ns: u64) {
        if ended_ns >= after_ns {
            self.longest_ns.fetch_max(ended_ns.saturating_sub(begun_ns), Ordering::SeqCst);
        }
        if begun_ns >= after_ns {
            if self.later_count.load(Ordering::SeqCst) == 0 {
                self.progress_ns.store(ended_ns, Ordering::SeqCst);
            }
            self.later_count.fetch_add(1, Ordering::SeqCst);
        }
        self.done_count.fetch_add(1, Ordering::SeqCst);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ns() -> u64 {
    net::clock::now().time.0
}

/// Files come, get another name and go, in a directory of this mount and in one of all mounts by turns.
fn work_on_names(shared: &Shared) {
    let index = shared.task.index;
    let (own, common) = (shared.task.dir.join(own_dir(index)), shared.task.dir.join(SHARED));
    let dir_of = |file: u64| if file.is_multiple_of(2) { own.clone() } else { common.clone() };
    work_on_names_in(shared, &shared.names, "", dir_of);
}

/// The same in the directory of this mount alone: nothing there is held by mounts that die.
fn work_on_own_names(shared: &Shared) {
    let own = shared.task.dir.join(own_dir(shared.task.index));
    work_on_names_in(shared, &shared.own, "own-", |_| own.clone());
}

fn work_on_names_in(shared: &Shared, thread: &Thread, prefix: &str, dir_of: impl Fn(u64) -> PathBuf) {
    let index = shared.task.index;
    shared.repeat(thread, |number| {
        let file = number / 3;
        let dir = dir_of(file);
        let before = dir.join(format!("{prefix}{index}-{file}"));
        let after = dir.join(format!("{prefix}{index}-{file}-renamed"));
        match number % 3 {
            0 => File::create_new(&before).map(drop).with_context(|| failed("create", &before)),
            1 => fs::rename(&before, &after).with_context(|| failed("rename", &before)),
            _ => fs::remove_file(&after).with_context(|| failed("remove", &after)),
        }
    });
}

/// Files are written and synced, each once. The oldest are removed.
fn work_on_data(shared: &Shared) {
    let Task { dir, index, osts, .. } = &shared.task;
    let path = |number| dir.join(DATA).join(file_name(*index, number));
    shared.repeat(&shared.data, |number| {
        let file = path(number);
        let written = write_and_sync(&file, &contents(*index, number, *osts));
        written.with_context(|| failed("write and sync", &file))?;
        // What is about to be removed is not looked for any more.
        let Some(oldest) = shared.keep(number).map(path) else { return Ok(()) };
        fs::remove_file(&oldest).with_context(|| failed("remove", &oldest))
    });
}

/// One file in the directory of this mount, again and again.
fn work_on_own_data(shared: &Shared) {
    let Task { dir, index, osts, .. } = &shared.task;
    let path = dir.join(own_file(*index));
    let made = File::create_new(&path);
    shared.repeat(&shared.own_data, |number| {
        let file = made.as_ref().map_err(|error| anyhow!("{}: {error}", failed("create", &path)))?;
        let written = file.write_all_at(&contents(*index, number, *osts), 0).and_then(|()| file.sync_all());
        written.with_context(|| failed("write and sync", &path))
    });
}

fn write_and_sync(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn failed(what: &str, path: &Path) -> String {
    format!("cannot {what} {}", path.display())
}

#[cfg(test)]
mod tests;
