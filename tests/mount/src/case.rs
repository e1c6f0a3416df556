//! What a case is: a name, a time limit, a function over two directories that show the same file system.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::bounded;
use crate::options::Options;
use crate::random::Random;

/// What a suite needs to run in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bed {
    /// Two directories that show the same file system: two mounts of one cluster, or one local directory twice.
    Pair,
    /// An empty directory in which each case starts what it needs.
    Own,
}

/// A named group of cases.
pub struct Suite {
    pub name: &'static str,
    pub bed: Bed,
    pub cases: &'static [Case],
    /// Of the cases whose length follows from a number.
    pub rounds: &'static [Rounds],
    /// The case that must fail when the two directories show different file systems (`Bed::Pair`).
    pub canary: Option<&'static str>,
}

/// One thing that is checked.
pub struct Case {
    pub name: &'static str,
    /// Seconds that one run may take, at most.
    pub seconds: u64,
    pub run: fn(&Context) -> Result<()>,
}

/// How often a case repeats what it does, and how long that may take.
pub struct Rounds {
    pub case: &'static str,
    pub usual: u64,
    pub thorough: u64,
    /// What one round may take on average on a slow machine, several times what it takes: it bounds a hang only.
    pub round_millis_max: u64,
}

impl Rounds {
    /// How many rounds the options ask for, if that many must be run to the end.
    fn demanded(&self, options: &Options) -> Option<u64> {
        options.count.or(options.thorough.then_some(self.thorough))
    }
}

impl Suite {
    fn rounds_of(&self, case: &Case) -> Option<&'static Rounds> {
        self.rounds.iter().find(|rounds| rounds.case == case.name)
    }

    /// How many rounds this case runs: `--count`, or what the suite says of it; 1 for a case without rounds.
    pub fn round_count(&self, case: &Case, options: &Options) -> u64 {
        let Some(rounds) = self.rounds_of(case) else { return options.count.unwrap_or(1) };
        rounds.demanded(options).unwrap_or(rounds.usual)
    }

    /// How long this case may take: what it says, and longer when so many rounds are demanded that this needs longer.
    pub fn limit(&self, case: &Case, options: &Options) -> Duration {
        let demanded = self.rounds_of(case).and_then(|rounds| {
            Some(Duration::from_millis(rounds.demanded(options)?.saturating_mul(rounds.round_millis_max)))
        });
        let limit = Duration::from_secs(case.seconds).max(demanded.unwrap_or_default());
        let limit = limit + Duration::from_secs(options.seconds.unwrap_or_default());
        limit * u32::try_from(options.patience.max(1)).unwrap_or(u32::MAX)
    }
}

/// What a case runs with.
pub struct Context {
    /// An empty directory of this case, seen through the first mount.
    pub a: PathBuf,
    /// The same directory, seen through the second mount.
    pub b: PathBuf,
    /// An empty directory on a local file system.
    pub work: PathBuf,
    pub options: Options,
    pub seed: u64,
    /// How many rounds the suite's table or the options ask for.
    pub round_count: u64,
    /// After how long the case is ended from outside.
    pub limit: Duration,
    /// When a case that repeats something stops repeating: well before its limit.
    pub enough_at: Instant,
}

impl Context {
    /// The generator of this case.
    pub fn random(&self) -> Random {
        Random::new(self.seed)
    }

    /// How many rounds a short case repeats; `--count` overrides it.
    pub fn rounds(&self, usual: u64) -> u64 {
        self.options.count.unwrap_or(usual)
    }

    /// True when a repeating case has used most of its time: on a slow machine fewer rounds are no failure. `--count` is obeyed
    /// to the end.
    pub fn is_enough(&self, done: u64, what: &str) -> bool {
        let is_enough =
            self.options.count.is_none() && !self.options.thorough && Instant::now() > self.enough_at;
        if is_enough {
            note(&format!("slow machine: stopped after {done} {what}"));
        }
        is_enough
    }

    /// `path` relative to the case's directory, through the first and the second mount.
    pub fn both(&self, path: &str) -> (PathBuf, PathBuf) {
        (self.a.join(path), self.b.join(path))
    }

    /// What `lfs` prints; an error when it refuses.
    pub fn lfs(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.options.sheen);
        let said = bounded::say(command.arg("lfs").args(words), "SHEEN_LFS=1", Duration::from_secs(60))?;
        expect(said.is_success(), &format!("lfs {}: {}", words.join(" "), said.all()))?;
        Ok(said.output)
    }

    /// What `lctl` prints; an error when it refuses. It is about all mounts of the bed.
    pub fn lctl(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.options.sheen);
        let said = bounded::say(command.arg("lctl").args(words), "SHEEN_LCTL=1", Duration::from_secs(60))?;
        expect(said.is_success(), &format!("lctl {}: {}", words.join(" "), said.all()))?;
        Ok(said.output)
    }

    /// Makes a directory on an MDT.
    pub fn mkdir_on(&self, mdt_index: u16, path: &Path) -> Result<()> {
        self.lfs(&["mkdir", "-i", &mdt_index.to_string(), &path.to_string_lossy()]).map(drop)
    }

    /// Makes a file of so many stripes; a plain one on a local directory.
    pub fn set_stripes(&self, path: &Path, stripe_count: u32, stripe_size: &str) -> Result<()> {
        if self.options.is_local() {
            return Ok(());
        }
        let (count, path) = (stripe_count.to_string(), path.to_string_lossy());
        self.lfs(&["setstripe", "-c", &count, "-S", stripe_size, &path]).map(drop)
    }

    /// Skips the case when it is about a cluster and there is none (`--local`).
    pub fn skip_if_local(&self) -> Result<()> {
        if self.options.is_local() { skip("needs a cluster, runs on a local directory") } else { Ok(()) }
    }
}

/// By which a line of a case's output goes into the report.
pub const NOTE_MARK: &str = "note: ";

/// Says something in the report, whether the case passes or not.
pub fn note(text: &str) {
    println!("{NOTE_MARK}{text}");
}

/// The reason why a case did not run.
#[derive(Debug)]
pub struct Skipped(pub String);

impl std::fmt::Display for Skipped {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "skipped: {}", self.0)
    }
}

impl std::error::Error for Skipped {}

/// Ends the case as skipped.
pub fn skip<T>(reason: &str) -> Result<T> {
    Err(Skipped(reason.to_owned()).into())
}

/// The result must be this errno.
pub fn expect_errno<T: Debug>(result: io::Result<T>, errno: i32, what: &str) -> Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(errno) => Ok(()),
        Err(error) => bail!("{what}: expected {}, got {error}", name_of(errno)),
        Ok(value) => bail!("{what}: expected {}, but it worked ({value:?})", name_of(errno)),
    }
}

/// The answer of an agent must be this errno (0 = success).
pub fn expect_answer(errno: i32, expected: i32, what: &str) -> Result<()> {
    expect_eq(name_of(errno), name_of(expected), what)
}

/// Both must be equal.
pub fn expect_eq<T: PartialEq<U> + Debug, U: Debug>(found: T, expected: U, what: &str) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    bail!("{what}: expected {}, found {}", shortened(&expected), shortened(&found))
}

/// Must hold.
pub fn expect(holds: bool, what: &str) -> Result<()> {
    if holds { Ok(()) } else { bail!("{what}") }
}

/// Both contents must be equal; says where they first differ.
pub fn expect_bytes(found: &[u8], expected: &[u8], what: &str) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let at = found.iter().zip(expected).position(|(left, right)| left != right);
    let at = at.unwrap_or(found.len().min(expected.len()));
    bail!(
        "{what}: {} bytes, expected {}; first difference at {at}: {:?}, expected {:?}",
        found.len(),
        expected.len(),
        found.get(at..found.len().min(at + 16)).unwrap_or_default(),
        expected.get(at..expected.len().min(at + 16)).unwrap_or_default(),
    )
}

fn shortened(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    if text.len() > 400 {
        format!("{}… ({} characters)", text.chars().take(400).collect::<String>(), text.len())
    } else {
        text
    }
}

fn name_of(errno: i32) -> String {
    if errno == 0 { "success".to_owned() } else { io::Error::from_raw_os_error(errno).to_string() }
}

/// Polls until `holds` answers true; fails after `limit`. For conditions that another process brings about.
pub fn wait_until(limit: Duration, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !holds()? {
        if started.elapsed() > limit {
            bail!("not within {limit:?}: {what}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Writes a whole file, with the path in the error.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

/// Reads a whole file, with the path in the error.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// The sorted names in a directory.
pub fn names(path: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).with_context(|| format!("list {}", path.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
