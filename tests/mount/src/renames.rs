//! Files and directories that are moved about at random between directories of several MDTs, each under a name of its own: so
//! whatever happens, each name is there exactly once.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::case::{expect_bytes, expect_eq};
use crate::random::Random;

/// Directories that are moved, and files.
pub const DIRECTORY_COUNT: u64 = 12;
pub const FILE_COUNT: u64 = 48;
/// One move in so many is that of a file of the mover's own over another of his own.
const OVER_ONE_IN: u64 = 6;
/// How deep a mover goes at most: directories below directories, all of them in one row.
const DEPTH_MAX: u64 = DIRECTORY_COUNT + 1;

/// Puts everything into the homes, which are directories of different MDTs.
pub fn plant(root: &Path, homes: &[String]) -> Result<()> {
    let home = |number: u64| homes.get(number as usize % homes.len().max(1)).context("no homes");
    for number in 0..DIRECTORY_COUNT {
        let path = root.join(home(number)?).join(format!("d{number}"));
        fs::create_dir(&path).with_context(|| format!("mkdir {}", path.display()))?;
    }
    for number in 0..FILE_COUNT {
        let path = root.join(home(number)?).join(format!("f{number}"));
        fs::write(&path, path.file_name().unwrap_or_default().as_encoded_bytes())
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// What one mover did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    pub moved: u64,
    /// Somebody else was faster (ENOENT), or a directory would have gone below itself (EINVAL); or the kernel has found a directory
    /// where it was not before, and could not note that beside another rename of the same mount (ESTALE, in `d_splice_alias`).
    pub refused: u64,
}

/// A call that was told what it must not be.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {source}")]
pub struct Failed {
    call: String,
    pub source: io::Error,
}

fn failed(call: String) -> impl FnOnce(io::Error) -> Failed {
    move |source| Failed { call, source }
}

/// Moves for so long, as the mover of this number.
///
/// # Errors
/// Any answer that is not among those that such a move can get.
pub fn work(root: &Path, homes: &[String], mover: u64, seed: u64, lasts: Duration) -> Result<Moves, Failed> {
    let mut random = Random::new(seed);
    let (begun, mut moves) = (Instant::now(), Moves::default());
    while begun.elapsed() < lasts {
        let result = match random.one_in(OVER_ONE_IN) {
            true => move_over(root, homes, mover, &mut random),
            false => move_something(root, homes, &mut random),
        };
        match result {
            Ok(true) => moves.moved += 1,
            Ok(false) => {}
            Err(Failed { source, .. })
                if matches!(source.raw_os_error(), Some(libc::ENOENT | libc::EINVAL | libc::ESTALE)) =>
            {
                moves.refused += 1;
            }
            Err(failed) => return Err(failed),
        }
    }
    Ok(moves)
}

/// A file of nobody else, over one of nobody else in another home.
fn move_over(root: &Path, homes: &[String], mover: u64, random: &mut Random) -> Result<bool, Failed> {
    let mut home = || homes.get(random.size(homes.len())).map(|home| root.join(home)).unwrap_or_default();
    let (from, to) = (home().join(format!("new{mover}")), home().join(format!("old{mover}")));
    File::create(&from).map_err(failed(format!("create {}", from.display())))?;
    move_name(&from, &to)?;
    Ok(true)
}

fn move_name(from: &Path, to: &Path) -> Result<(), Failed> {
    fs::rename(from, to).map_err(failed(format!("rename {} to {}", from.display(), to.display())))
}

fn move_something(root: &Path, homes: &[String], random: &mut Random) -> Result<bool, Failed> {
    let (from, to) = (any_directory(root, homes, random)?, any_directory(root, homes, random)?);
    let names = moving_names(&from)?;
    let Some(name) = names.get(random.size(names.len())) else { return Ok(false) };
    move_name(&from.join(name), &to.join(name))?;
    Ok(true)
}

/// Names that belong to everybody.
fn moving_names(directory: &Path) -> Result<Vec<String>, Failed> {
    let list = || format!("list {}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed(list()))? {
        let name = entry.map_err(failed(list()))?.file_name().to_string_lossy().into_owned();
        if name.starts_with(['d', 'f']) {
            names.push(name);
        }
    }
    Ok(names)
}

/// A home, or a directory somewhere below it.
fn any_directory(root: &Path, homes: &[String], random: &mut Random) -> Result<PathBuf, Failed> {
    let mut at = homes.get(random.size(homes.len())).map(|home| root.join(home)).unwrap_or_default();
    for _ in 0..random.below(DEPTH_MAX) {
        let mut below = moving_names(&at)?;
        below.retain(|name| name.starts_with('d'));
        match below.get(random.size(below.len())) {
            Some(name) => at.push(name),
            None => break,
        }
    }
    Ok(at)
}

/// Checks that all is there exactly once, with what is in it, as seen through this mount.
pub fn check(root: &Path, homes: &[String]) -> Result<()> {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    let mut todo: Vec<PathBuf> = homes.iter().map(|home| root.join(home)).collect();
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let kind = fs::symlink_metadata(&path).with_context(|| format!("stat {}", path.display()))?;
            if name.starts_with('f') {
                let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
                expect_bytes(&bytes, name.as_bytes(), &path.display().to_string())?;
            }
            // What belongs to one mover is in a home, once or in several.
            if name.starts_with(['d', 'f']) {
                *found.entry(name).or_default() += 1;
            }
            if kind.is_dir() {
                todo.push(path);
            }
        }
    }
    let directories = (0..DIRECTORY_COUNT).map(|number| format!("d{number}"));
    let files = (0..FILE_COUNT).map(|number| format!("f{number}"));
    let expected: BTreeMap<String, u64> = directories.chain(files).map(|name| (name, 1)).collect();
    expect_eq(found, expected, &format!("how often each name is there, below {}", root.display()))
}
