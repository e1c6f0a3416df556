//! Logs: standard error, or a file that is rotated by size.

use crate::say;
use crate::spelling;
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// A log is moved aside at this size; three old ones are kept.
const LOG_BYTES_MAX: u64 = 16 << 20;
const OLD_LOG_COUNT: u32 = 3;

/// Lines from one place in the program that are logged one after the other; then one each `LINE_INTERVAL`. What strangers can have
/// said again and again, by what they send, is not to push everything else out of the log.
const LINES_AT_ONCE: u32 = 4096;
const LINE_INTERVAL: Duration = Duration::from_secs(1);

const DEFAULT_FILTER: &str = "info";

/// What is logged now, and how to change it.
struct Filter {
    words: Mutex<String>,
    set: Box<dyn Fn(EnvFilter) -> bool + Send + Sync>,
}

static FILTER: OnceLock<Filter> = OnceLock::new();

/// The log of this process, and whether it says nothing that anybody will look for.
static LOG: OnceLock<(PathBuf, Arc<AtomicBool>)> = OnceLock::new();

/// What is logged, as `SHEEN_LOG` writes it: `info`, or `info,mds=debug`.
pub fn filter() -> String {
    FILTER.get().map_or_else(
        || DEFAULT_FILTER.to_owned(),
        |filter| filter.words.lock().unwrap_or_else(PoisonError::into_inner).clone(),
    )
}

/// # Errors
/// The words are no filter.
pub fn check_filter(words: &str) -> Result<()> {
    parse_filter(words).map(drop)
}

/// Longer words are no filter that anybody means.
const FILTER_BYTES_MAX: usize = 256;

/// What may be said of each part, and of all.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// The crates of this program, as they name themselves.
const PARTS: [&str; 17] = [
    "base",
    "client",
    "coordinate",
    "fsck",
    "fuse",
    "ldlm",
    "mds",
    "mgs",
    "net",
    "oss",
    "rpc",
    "sheen",
    "sim",
    "store",
    "store_disk",
    "target",
    "wire",
];

/// Levels and `part=level` only: the parser behind it takes any word for a part, all whose levels are on, and nothing else is logged
/// then; and regular expressions, which can take any memory.
fn parse_filter(words: &str) -> Result<EnvFilter> {
    if words.len() > FILTER_BYTES_MAX {
        bail!("a log filter has {FILTER_BYTES_MAX} bytes at most; write info, or info,mds=debug");
    }
    words.split(',').filter(|_| !words.is_empty()).try_for_each(check_directive)?;
    EnvFilter::try_new(words)
        .with_context(|| format!("'{words}' is no log filter; write info, or info,mds=debug"))
}

/// `debug`, `mds=debug`, `sheen::mount=trace`.
fn check_directive(words: &str) -> Result<()> {
    let Some((part, level)) = words.split_once('=') else { return check_level(words) };
    let (part, module) = part.split_once("::").unwrap_or((part, "module"));
    if !module.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':') {
        bail!("'{module}' in '{words}' is no module; write info, or info,mds=debug");
    }
    if PARTS.contains(&part) {
        return check_level(level);
    }
    match spelling::nearest(part, PARTS) {
        Some(near) => bail!("there is no part '{part}' that logs; did you mean '{near}'?"),
        None => bail!(
            "there is no part '{part}' that logs; write info, or info,mds=debug; parts are {}",
            PARTS.join(", ")
        ),
    }
}

fn check_level(level: &str) -> Result<()> {
    if LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level)) {
        return Ok(());
    }
    match spelling::nearest(level, LEVELS) {
        Some(near) => bail!("'{level}' is no level; did you mean '{near}'?"),
        None => bail!("'{level}' is no level; write {}, or info,mds=debug", LEVELS.join(", ")),
    }
}

/// What `SHEEN_LOG` says, or the default where it says nothing.
///
/// # Errors
/// It is no filter.
pub fn of_environment() -> Result<String> {
    match std::env::var_os("SHEEN_LOG").filter(|words| !words.is_empty()) {
        None => Ok(DEFAULT_FILTER.to_owned()),
        Some(words) => {
            let words = words.to_string_lossy().into_owned();
            check_filter(&words).with_context(|| format!("SHEEN_LOG is not used, but {DEFAULT_FILTER}"))?;
            Ok(words)
        }
    }
}

/// Changes what is logged; empty is the default again.
///
/// # Errors
/// The words are no filter.
pub fn set_filter(words: &str) -> Result<()> {
    let words = if words.is_empty() { DEFAULT_FILTER } else { words };
    let parsed = parse_filter(words)?;
    let Some(filter) = FILTER.get() else { return Ok(()) };
    if (filter.set)(parsed) {
        *filter.words.lock().unwrap_or_else(PoisonError::into_inner) = words.to_owned();
    }
    Ok(())
}

/// How `print!` begins when standard output cannot be written: it can only panic.
const NO_OUTPUT: &str = "failed printing to stdout";

/// A panic that a store contains is told as an error of that store, and not as a panic too. Where standard output cannot be written the
/// process ends, with one line.
pub fn hush_contained_panics() {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let no_output = info.payload().downcast_ref::<String>().and_then(|said| said.strip_prefix(NO_OUTPUT));
        if let Some(why) = no_output {
            say::note(format_args!("standard output cannot be written{why}"));
            std::process::exit(1);
        }
        if !store_disk::is_contained() {
            default_hook(info);
        }
    }));
}

/// Starts logging and ends the process on any panic: a machine that failed an assertion must not go on. What a store contains is an
/// error of one target.
///
/// # Errors
/// The log file cannot be opened.
pub fn start(file: Option<&Path>) -> Result<()> {
    let told = of_environment();
    let words = told.as_ref().map_or_else(|_| DEFAULT_FILTER.to_owned(), String::clone);
    match file {
        Some(path) => {
            let log =
                RotatingLog::open(path).with_context(|| format!("cannot open the log {}", path.display()))?;
            let quiet = (path.to_owned(), Arc::clone(&log.is_quiet));
            assert!(LOG.set(quiet).is_ok(), "logging starts once");
            install(words, log, false);
        }
        None => install(words, io::stderr, io::stderr().is_terminal()),
    }
    if let Err(error) = told {
        tracing::warn!("{error:#}");
    }
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if store_disk::is_contained() {
            tracing::error!("the engine of an index met what it did not write: {info}");
            return;
        }
        tracing::error!("assertion failed, the process ends: {info}");
        default_hook(info);
        std::process::abort();
    }));
    Ok(())
}

/// Removes the log of a process that ends well, if it has neither a warning nor an error in it, and nobody has asked for more
/// than the usual.
pub fn forget_quiet() {
    if filter() == DEFAULT_FILTER
        && let Some((path, is_quiet)) = LOG.get()
        && is_quiet.load(Ordering::Relaxed)
    {
        (1..=OLD_LOG_COUNT).map(|number| old_log(path, number)).chain([path.clone()]).for_each(|path| {
            // The older ones are seldom there.
            let _ = fs::remove_file(path);
        });
    }
}

/// Starts to log, so that what is logged can be changed later.
fn install(words: String, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static, has_colours: bool) {
    let builder = tracing_subscriber::fmt().with_ansi(has_colours).with_writer(writer);
    // A log that cannot be written would be complained of on standard error, which may be the same dead disk: that panics.
    let builder = builder.log_internal_errors(false);
    let builder = builder.with_env_filter(EnvFilter::new(&words)).with_filter_reloading();
    let handle = builder.reload_handle();
    let set = Box::new(move |filter| handle.reload(filter).is_ok());
    assert!(FILTER.set(Filter { words: Mutex::new(words), set }).is_ok(), "logging starts once");
    builder.init();
}

struct RotatingLog {
    path: PathBuf,
    open: Mutex<Open>,
    /// By the places that have logged anything: so many as there are.
    allowances: Mutex<HashMap<Identifier, Allowance>>,
    /// No warning and no error has come, whether or not it was left out.
    is_quiet: Arc<AtomicBool>,
}

/// What one place may log.
struct Allowance {
    line_count: u32,
    /// When it got its last line.
    raised_at: Instant,
    left_out: u64,
}

impl Allowance {
    fn new(now: Instant) -> Allowance {
        Allowance { line_count: LINES_AT_ONCE, raised_at: now, left_out: 0 }
    }

    /// How many lines were left out before this one; `None` if it is left out too.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let intervals = now.saturating_duration_since(self.raised_at).as_secs() / LINE_INTERVAL.as_secs();
        if let Ok(intervals @ 1..) = u32::try_from(intervals) {
            self.line_count = self.line_count.saturating_add(intervals).min(LINES_AT_ONCE);
            self.raised_at += LINE_INTERVAL * intervals;
        }
        match self.line_count.checked_sub(1) {
            Some(left) => {
                self.line_count = left;
                Some(std::mem::take(&mut self.left_out))
            }
            None => {
                self.left_out += 1;
                None
            }
        }
    }
}

struct Open {
    file: File,
    byte_count: u64,
}

impl RotatingLog {
    fn open(path: &Path) -> io::Result<RotatingLog> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        Ok(RotatingLog {
            path: path.to_owned(),
            open: Mutex::new(Open::new(path)?),
            allowances: Mutex::default(),
            is_quiet: Arc::new(AtomicBool::new(true)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_allowance(&self, line: &Metadata<'_>) -> Option<u64> {
        let now = Instant::now();
        let mut allowances = self.allowances.lock().unwrap_or_else(PoisonError::into_inner);
        allowances.entry(line.callsite()).or_insert_with(|| Allowance::new(now)).take(now)
    }

    fn rotate(&self, open: &mut Open) -> io::Result<()> {
        let old = |number: u32| old_log(&self.path, number);
        for number in (1..OLD_LOG_COUNT).rev() {
            // The older ones need not be there yet.
            let _ = fs::rename(old(number), old(number + 1));
        }
        fs::rename(&self.path, old(1))?;
        *open = Open::new(&self.path)?;
        Ok(())
    }
}

/// Behind the whole name: logs side by side may differ in what looks like an ending.
fn old_log(path: &Path, number: u32) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(format!(".{number}"));
    path.into()
}

impl Open {
    fn new(path: &Path) -> io::Result<Open> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Open { byte_count: file.metadata()?.len(), file })
    }
}

impl<'a> MakeWriter<'a> for RotatingLog {
    type Writer = LogWriter<'a>;

    fn make_writer(&'a self) -> LogWriter<'a> {
        LogWriter { log: self, is_left_out: false }
    }

    /// Errors are all told, and what somebody has asked for who looks for something.
    fn make_writer_for(&'a self, line: &Metadata<'_>) -> LogWriter<'a> {
        if matches!(*line.level(), Level::WARN | Level::ERROR) {
            self.is_quiet.store(false, Ordering::Relaxed);
        }
        let is_bounded = *line.level() == Level::WARN || *line.level() == Level::INFO;
        let left_out = if is_bounded { self.take_allowance(line) } else { Some(0) };
        let mut writer = LogWriter { log: self, is_left_out: left_out.is_none() };
        if let Some(left_out @ 1..) = left_out {
            // As with any line: one that cannot be written is lost.
            let _ = writeln!(writer, "{left_out} lines like the next one were left out");
        }
        writer
    }
}

struct LogWriter<'a> {
    log: &'a RotatingLog,
    is_left_out: bool,
}

impl Write for LogWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_left_out {
            return Ok(bytes.len());
        }
        let mut open = self.log.lock();
        if open.byte_count >= LOG_BYTES_MAX {
            // A log that cannot be moved grows on; nothing better can be done about it here.
            let _ = self.log.rotate(&mut open);
        }
        let written = open.file.write(bytes)?;
        open.byte_count += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
