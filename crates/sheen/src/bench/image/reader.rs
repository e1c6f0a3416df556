//! A process that reads all files of a tree once it is told to.

use super::super::partner::Partner;
use super::super::worker::say;
use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Of a read(2).
const BLOCK_BYTES: usize = 1 << 20;
/// In the root of an image, and not in its source.
const OWN: &str = ".sheen";

/// How a reader is started; only by ourselves.
#[derive(Clone, Debug, Args)]
pub struct Task {
    pub dir: PathBuf,
}

/// What a tree consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Names of regular files.
    pub file_count: u64,
    /// All other names.
    pub other_count: u64,
    pub total_bytes: u64,
    /// Of names, contents and symbolic links; in whatever order they come, it is the same.
    pub sum: u64,
}

/// Its whole life.
///
/// # Errors
/// The first system call that fails.
pub fn run(task: &Task) -> Result<()> {
    say("ready")?;
    // Whoever has started it may be gone.
    let Some(Ok(_)) = io::stdin().lock().lines().next() else { return Ok(()) };
    let begun = Instant::now();
    let seen = read_all(&task.dir)?;
    say(&serde_json::to_string(&(seen, begun.elapsed()))?)
}

/// Reads all files of a tree, without what is `sheen image`'s own in its root.
///
/// # Errors
/// The first system call that fails.
pub fn read_all(root: &Path) -> Result<Seen> {
    let (mut seen, mut dirs, mut block) = (Seen::default(), vec![root.to_owned()], vec![0; BLOCK_BYTES]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let entry = entry.with_context(|| format!("cannot read {}", dir.display()))?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if dir == root && entry.file_name() == OWN {
                continue;
            }
            let name = path.strip_prefix(root).unwrap_or(&path).as_os_str();
            let mut sum = crc32c::crc32c(name.as_bytes());
            seen.file_count += u64::from(kind.is_file());
            seen.other_count += u64::from(!kind.is_file());
            if kind.is_dir() {
                dirs.push(path);
            } else if kind.is_symlink() {
                let target = fs::read_link(&path);
                let target = target.with_context(|| format!("cannot read {}", path.display()))?;
                sum = crc32c::crc32c_append(sum, target.as_os_str().as_bytes());
            } else if kind.is_file() {
                let read = add_file(&path, &mut block, &mut sum);
                seen.total_bytes += read.with_context(|| format!("cannot read {}", path.display()))?;
            }
            seen.sum = seen.sum.wrapping_add(u64::from(sum));
        }
    }
    Ok(seen)
}

/// Returns its bytes.
fn add_file(path: &Path, block: &mut [u8], sum: &mut u32) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut byte_count = 0;
    loop {
        let count = file.read(block)?;
        if count == 0 {
            return Ok(byte_count);
        }
        *sum = crc32c::crc32c_append(*sum, block.get(..count).unwrap_or_default());
        byte_count += count as u64;
    }
}

/// The process of one reader, from outside.
pub struct Reader(Partner);

impl Reader {
    /// # Errors
    /// It cannot be started.
    pub fn start(dir: &Path) -> Result<Reader> {
        Ok(Reader(Partner::start("reader", ["bench".into(), "image-reader".into(), dir.into()])?))
    }

    /// # Errors
    /// It has ended.
    pub fn wait_ready(&mut self) -> Result<()> {
        self.0.expect("ready")
    }

    /// # Errors
    /// It has ended.
    pub fn begin(&mut self) -> Result<()> {
        self.0.tell("go")
    }

    /// Waits until it has read everything; returns what, and how long it took.
    ///
    /// # Errors
    /// It could not.
    pub fn seen(&mut self) -> Result<(Seen, Duration)> {
        self.0.answer()
    }
}
