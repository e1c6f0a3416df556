//! One worker process: phases in the order of `Kind::phases`, each begun by a line on standard input and ended by a
//! line on standard output.

use super::dne::ground::{Ground, mkdir_beside};
use super::pattern::{PAGE_BYTES, Pattern};
use super::place::{Place, mapped_block};
use super::plan::{BLOCK, DneOp, Kind, Step, Wanted};
use crate::sys;
use anyhow::{Context, Result, ensure};
use base::Rng;
use clap::Args;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;

/// How a worker is started; only by ourselves.
#[derive(Clone, Debug, Args)]
pub struct Task {
    #[arg(long, value_enum)]
    pub kind: Kind,
    #[arg(long)]
    pub dir: PathBuf,
    /// Which of the workers of this round
    #[arg(long)]
    pub index: u32,
    #[arg(long)]
    pub files: u32,
    #[arg(long)]
    pub mib: u32,
    #[arg(long, value_enum, value_delimiter = ',')]
    pub patterns: Vec<Pattern>,
    #[arg(long, value_enum, value_delimiter = ',')]
    pub ops: Vec<DneOp>,
    /// All workers in one directory
    #[arg(long)]
    pub shared: bool,
    /// With the phases that make caches cold
    #[arg(long)]
    pub cold: bool,
    /// With the phases before which the client alone forgets what it knew
    #[arg(long)]
    pub client_cold: bool,
    /// The file system keeps no contents
    #[arg(long)]
    pub null: bool,
}

/// The worker's whole life.
///
/// # Errors
/// The first system call that fails.
pub fn run(task: &Task) -> Result<()> {
    let mut worker = Worker::new(task)?;
    let mut lines = std::io::stdin().lock().lines();
    let Task { patterns, ops, .. } = task;
    let Task { cold: is_cold, client_cold: is_client_cold, null: is_null, .. } = *task;
    let wanted = Wanted { patterns, ops, is_cold, is_client_cold, is_null };
    for (phase, step) in wanted.steps(task.kind) {
        // The phase before is counted until its MDTs are at rest, which nothing of this one may disturb.
        if task.kind == Kind::Dne && lines.next().is_none() {
            return Ok(());
        }
        worker.prepare(step)?;
        say("ready")?;
        // The parent is gone, or gives up.
        let Some(Ok(_)) = lines.next() else { return Ok(()) };
        let started = Instant::now();
        let amount = worker.perform(step).with_context(|| format!("{} failed", phase.name))?;
        let elapsed = started.elapsed().as_nanos();
        let part = |name: &str, time: Option<Duration>| {
            time.map(|time| format!(" {name}={}", time.as_nanos())).unwrap_or_default()
        };
        let first = part("first", worker.first_entry.take());
        let unsynced = part("unsynced", worker.unsynced.take());
        say(&format!("done {amount} {elapsed}{first}{unsynced}"))?;
    }
    // What it removes is not to be counted with the last phase, which may be counted for longer than it lasts.
    if task.kind == Kind::Dne && lines.next().is_none() {
        worker.finish()?;
    }
    Ok(())
}

/// One line to whoever has started this process.
///
/// # Errors
/// Nobody listens.
pub fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}

pub struct Worker {
    dir: PathBuf,
    index: u32,
    file_count: u32,
    size_bytes: u64,
    rng: Rng,
    block: Vec<u8>,
    /// What is read is not what was written.
    is_null: bool,
    /// Of the phase of `Kind::Dne` that was prepared last.
    ground: Option<Ground>,
    /// Of the last listing: how long the first entry took.
    first_entry: Option<Duration>,
    /// Of the last stream that was written: how long it took without its fsync.
    unsynced: Option<Duration>,
}

impl Worker {
    pub fn new(task: &Task) -> Result<Worker> {
        // All list one directory or map one file; otherwise each has a directory of its own, if nothing else is said.
        let dir = if task.kind.has_fixture() || task.shared {
            task.dir.clone()
        } else {
            let dir = task.dir.join(format!("p{}", task.index));
            let made = match task.kind {
                // The MDT chooses where an ordinary one is placed.
                Kind::Dne if !task.null => mkdir_beside(&dir),
                _ => fs::create_dir(&dir).map_err(Into::into),
            };
            made.with_context(|| format!("cannot make {}", dir.display()))?;
            dir
        };
        let mut rng = Rng::new(u64::from(task.index));
        let block = (0..MIB / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        let size_bytes = u64::from(task.mib) * MIB;
        Ok(Worker {
            dir,
            index: task.index,
            file_count: task.files,
            size_bytes,
            rng,
            block,
            is_null: task.null,
            ground: None,
            first_entry: None,
            unsynced: None,
        })
    }

    /// What must not be measured.
    pub fn prepare(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Read { .. } => drop_cached(&self.data_path())?,
            Step::StreamIn { is_direct } => drop_cached(&self.stream_path(is_direct))?,
            Step::Direct { .. } if !self.stream_path(true).exists() => {
                self.stream_out(true)?;
                self.unsynced = None;
            }
            Step::StatUncached => {
                self.for_each("u", |path| File::create_new(path).map(drop))?;
            }
            Step::Dne(op, home) => {
                self.ground = Some(Ground::prepare(&self.dir, (op, home), self.file_count)?);
            }
            Step::Mkdir
            | Step::Create
            | Step::Stat
            | Step::Open
            | Step::Rename
            | Step::Unlink
            | Step::Rmdir
            | Step::CreateUnlink
            | Step::Write { .. }
            | Step::StreamOut { .. }
            | Step::StreamAgain
            | Step::Direct { .. }
            | Step::List { .. }
            | Step::ListNames { .. }
            | Step::Map(_)
            | Step::WriteFile
            | Step::ReadFile { .. } => {}
        }
        Ok(())
    }

    /// Returns how many operations or bytes that were.
    pub fn perform(&mut self, step: Step) -> Result<u64> {
        match step {
            Step::Mkdir => self.for_each("d", |path| fs::create_dir(path)),
            Step::Create => self.for_each("a", |path| File::create_new(path).map(drop)),
            Step::Stat => self.for_each("a", |path| sys::mode(path).map(drop)),
            Step::StatUncached => self.for_each("u", |path| sys::mode(path).map(drop)),
            Step::Open => self.for_each("a", |path| File::open(path).map(drop)),
            Step::Rename => self.for_each("a", |path| fs::rename(path, renamed(path))),
            Step::Unlink => self.for_each("a", |path| fs::remove_file(renamed(path))),
            Step::Rmdir => self.for_each("d", |path| fs::remove_dir(path)),
            Step::CreateUnlink => self
                .for_each("c", |path| File::create_new(path).map(drop).and_then(|()| fs::remove_file(path))),
            Step::Dne(..) => self.ground.as_ref().context("it was prepared")?.perform(),
            Step::Write { block_bytes, is_random } => self.write(block_bytes, is_random),
            Step::Read { block_bytes, is_random } => self.read(block_bytes, is_random),
            Step::StreamOut { is_direct } => self.stream_out(is_direct),
            Step::StreamIn { is_direct } => self.stream_in(is_direct),
            Step::StreamAgain => self.stream_in(false),
            Step::Direct { is_write, depth } => self.direct(is_write, depth),
            Step::List { .. } => self.list(look_at_entry),
            Step::ListNames { .. } => self.list(|_, _| Ok(())),
            Step::Map(pattern) => self.map(pattern),
            Step::WriteFile => self.for_each("s", |path| self.write_file(path)),
            Step::ReadFile { .. } => self.for_each("s", |path| self.read_file(path)),
        }
    }

    /// All workers remove their directories side by side, since each that is on another MDT waits for a disk.
    fn finish(&self) -> Result<()> {
        fs::remove_dir_all(&self.dir).with_context(|| format!("cannot remove {}", self.dir.display()))
    }

    fn for_each(&self, prefix: &str, operation: impl Fn(&Path) -> std::io::Result<()>) -> Result<u64> {
        for number in 0..self.file_count {
            let path = self.dir.join(format!("{prefix}{}-{number}", self.index));
            operation(&path).with_context(|| format!("at {}", path.display()))?;
        }
        Ok(u64::from(self.file_count))
    }

    fn write_file(&self, path: &Path) -> std::io::Result<()> {
        File::create_new(path)?.write_all(self.small())
    }

    fn read_file(&self, path: &Path) -> std::io::Result<()> {
        let mut found = Vec::with_capacity(BLOCK as usize + 1);
        File::open(path)?.read_to_end(&mut found)?;
        if found == self.small() { Ok(()) } else { Err(std::io::ErrorKind::InvalidData.into()) }
    }

    fn small(&self) -> &[u8] {
        self.block.get(..BLOCK as usize).unwrap_or_default()
    }

    /// Reads one byte of each page of the pattern through a mapping; returns the bytes of these pages.
    fn map(&self, pattern: Pattern) -> Result<u64> {
        let mapping = sys::Mapping::new(&File::open(Place::mapped(&self.dir))?)?;
        let block = mapped_block();
        let mut page_count = 0;
        for page in pattern.pages(self.size_bytes / PAGE_BYTES, self.index) {
            let offset = page * PAGE_BYTES;
            let wanted = block.get((offset % MIB) as usize).copied();
            ensure!(mapping.byte(offset as usize) == wanted, "page {page} is not what was written");
            page_count += 1;
        }
        Ok(page_count * PAGE_BYTES)
    }

    fn data_path(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Small blocks move a sixteenth of the bytes: the same time, about, on most devices.
    fn offsets(&mut self, block_bytes: u64, is_random: bool) -> Vec<u64> {
        let block_count = self.size_bytes / block_bytes;
        let touched_count = if block_bytes < MIB { (block_count / 16).max(1) } else { block_count };
        (0..touched_count)
            .map(|number| if is_random { self.rng.below(block_count) } else { number } * block_bytes)
            .collect()
    }

    fn write(&mut self, block_bytes: u64, is_random: bool) -> Result<u64> {
        let offsets = self.offsets(block_bytes, is_random);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(self.data_path())?;
        let block = self.block.get(..block_bytes as usize).context("blocks are at most 1 MiB")?;
        for offset in &offsets {
            file.write_all_at(block, *offset)?;
        }
        file.sync_all()?;
        Ok(offsets.len() as u64 * block_bytes)
    }

    fn stream_path(&self, is_direct: bool) -> PathBuf {
        self.dir.join(if is_direct { "direct" } else { "buffered" })
    }

    fn stream_out(&mut self, is_direct: bool) -> Result<u64> {
        let started = Instant::now();
        let file =
            stream_options(is_direct).write(true).create_new(true).open(self.stream_path(is_direct))?;
        let mut buffer = self.block.clone();
        buffer.resize((MIB + BLOCK) as usize, 0);
        let block = aligned(&mut buffer)?;
        block.copy_from_slice(&self.block);
        for number in 0..self.size_bytes / MIB {
            file.write_all_at(block, number * MIB)?;
        }
        self.unsynced = Some(started.elapsed());
        file.sync_all()?;
        Ok(self.size_bytes)
    }

    fn stream_in(&mut self, is_direct: bool) -> Result<u64> {
        let file = stream_options(is_direct).read(true).open(self.stream_path(is_direct))?;
        let mut buffer = vec![0; (MIB + BLOCK) as usize];
        let block = aligned(&mut buffer)?;
        for number in 0..self.size_bytes / MIB {
            file.read_exact_at(block, number * MIB)?;
        }
        ensure!(self.is_null || block == self.block, "what was read last is not what was written");
        Ok(self.size_bytes)
    }

    /// As many threads as are to be in flight, each of which waits for its own; a write is over when fsync is.
    fn direct(&mut self, is_write: bool, depth: u32) -> Result<u64> {
        let offsets = self.offsets(BLOCK, true);
        let file = stream_options(true).read(true).write(true).open(self.stream_path(true))?;
        let part = offsets.len().div_ceil(depth as usize);
        std::thread::scope(|scope| {
            let file = &file;
            let begin = |offsets| scope.spawn(move || move_blocks(file, offsets, is_write));
            let threads: Vec<_> = offsets.chunks(part).map(begin).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread panicked")))
            })
        })?;
        if is_write {
            file.sync_all()?;
        }
        Ok(offsets.len() as u64)
    }

    /// Reads the names of the directory and looks at each. Returns how many there were.
    fn list(&mut self, look: impl Fn(&Path, &mut Has) -> Result<()>) -> Result<u64> {
        let (mut count, mut has, started) = (0, Has([true, true]), Instant::now());
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if count == 0 {
                self.first_entry = Some(started.elapsed());
            }
            look(&entry.path(), &mut has)?;
            count += 1;
        }
        ensure!(count > 0, "{} is empty", self.dir.display());
        Ok(count)
    }

    fn read(&mut self, block_bytes: u64, is_random: bool) -> Result<u64> {
        let offsets = self.offsets(block_bytes, is_random);
        let file = File::open(self.data_path())?;
        let block = self.block.get_mut(..block_bytes as usize).context("blocks are at most 1 MiB")?;
        for offset in &offsets {
            file.read_exact_at(block, *offset)?;
        }
        Ok(offsets.len() as u64 * block_bytes)
    }
}

fn drop_cached(path: &Path) -> Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    Ok(sys::drop_pages(&file)?)
}

fn move_blocks(file: &File, offsets: &[u64], is_write: bool) -> std::io::Result<()> {
    let mut buffer = vec![0x5a; 2 * BLOCK as usize];
    let start = buffer.as_ptr().align_offset(BLOCK as usize);
    let block = &mut buffer[start..start + BLOCK as usize];
    for offset in offsets {
        if is_write {
            file.write_all_at(block, *offset)?;
        } else {
            file.read_exact_at(block, *offset)?;
        }
    }
    Ok(())
}

/// The part of a buffer with room for it that O_DIRECT takes anywhere.
pub fn aligned(buffer: &mut [u8]) -> Result<&mut [u8]> {
    let start = buffer.as_ptr().align_offset(BLOCK as usize);
    buffer.get_mut(start..start + MIB as usize).context("the buffer has room for its alignment")
}

pub fn stream_options(is_direct: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(if is_direct { libc::O_DIRECT } else { 0 });
    options
}

fn renamed(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("r");
    name.into()
}

/// Which xattrs the file system may have: of one that it does not have at all nothing more is asked.
struct Has([bool; 2]);

/// The calls of GNU `ls -l` for each name: stat, the security context, and the ACL or what a symbolic link leads to.
fn look_at_entry(path: &Path, has: &mut Has) -> Result<()> {
    let is_link = sys::mode(path)? & libc::S_IFMT == libc::S_IFLNK;
    let xattrs = [(c"security.selinux", true), (c"system.posix_acl_access", !is_link)];
    for (has, (name, is_asked)) in has.0.iter_mut().zip(xattrs) {
        if *has && is_asked {
            // Most files have neither; only the time counts.
            let asked = sys::xattr_bytes(path, name);
            *has = asked.map_err(|error| error.raw_os_error()) != Err(Some(libc::EOPNOTSUPP));
        }
    }
    if is_link {
        fs::read_link(path)?;
    }
    Ok(())
}
