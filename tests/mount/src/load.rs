//! Loads that know afterwards what must be there.
//!
//! Every worker owns a directory and keeps a journal of what the file system has acknowledged. `Stop` ends them; from the moment
//! at which the power is cut, no acknowledgement counts any more: a sync that returns while the disk dies proves nothing.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::case::expect_bytes;
use crate::cluster::Cluster;
use crate::random::Random;

/// Workers of `under_load`.
const UNFAILING_COUNT: usize = 2;
/// How long they go on before and after what disturbs them.
const BEFORE_AND_AFTER: Duration = Duration::from_millis(600);

/// Tells workers to end, and whether acknowledgements still count.
#[derive(Default)]
pub struct Stop {
    is_over: AtomicBool,
    acknowledged_count: AtomicU64,
}

impl Stop {
    /// No acknowledgement counts from now on, and workers end.
    pub fn now(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// True after `now`.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// How many syncs were acknowledged before the end.
    pub fn acknowledged_count(&self) -> u64 {
        self.acknowledged_count.load(Ordering::SeqCst)
    }

    /// Counts one more acknowledged sync; false if it came too late to count.
    fn acknowledge(&self) -> bool {
        if self.is_over() {
            return false;
        }
        self.acknowledged_count.fetch_add(1, Ordering::SeqCst);
        true
    }
}

/// Something that was acknowledged as synced is not there any more.
#[derive(Debug)]
pub struct Lost(String);

impl std::fmt::Display for Lost {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "lost: {}", self.0)
    }
}

impl std::error::Error for Lost {}

/// What is known about one file.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The number that was synced last; the file must be at this or a later one.
    synced: u64,
    /// The number that was begun last.
    begun: u64,
}

/// Synced files: each holds a number and bytes that follow from it, so that a later state is told from damage.
#[derive(Default)]
pub struct SyncedFiles {
    known: BTreeMap<String, Known>,
    /// Names whose removal was synced.
    gone: Vec<String>,
    next_name: u64,
}

const HEADER_BYTES: usize = 8;

fn contents(name: &str, number: u64) -> Vec<u8> {
    let seed = name.bytes().fold(number, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut random = Random::new(seed);
    let byte_count = random.size(60_000);
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(random.bytes(byte_count));
    bytes
}

impl SyncedFiles {
    /// Creates, overwrites and renames files in `directory`, each followed by a sync, until told to stop or until the file system
    /// refuses. Returns the refusal.
    pub fn work(&mut self, directory: &Path, stop: &Stop, random: &mut Random) -> Option<anyhow::Error> {
        while !stop.is_over() {
            if let Err(error) = self.step(directory, stop, random) {
                return Some(error);
            }
        }
        None
    }

    /// So many of them, none of which may be refused.
    pub fn steps(&mut self, directory: &Path, stop: &Stop, random: &mut Random, count: u64) -> Result<()> {
        (0..count).try_for_each(|_| self.step(directory, stop, random))
    }

    fn step(&mut self, directory: &Path, stop: &Stop, random: &mut Random) -> Result<()> {
        let existing = self.known.keys().nth(random.size(self.known.len().max(1))).cloned();
        match (random.below(10), existing) {
            (0..=4, _) | (_, None) => {
                let name = format!("file{}", self.next_name);
                self.next_name += 1;
                self.write(directory, &name, stop)
            }
            (5..=7, Some(name)) => self.write(directory, &name, stop),
            (8, Some(name)) => self.replace(directory, &name, stop),
            (_, Some(name)) => self.remove(directory, &name, stop),
        }
    }

    fn begin(&mut self, name: &str) -> u64 {
        let known = self.known.entry(name.to_owned()).or_default();
        known.begun += 1;
        known.begun
    }

    fn acknowledge(&mut self, name: &str, number: u64, stop: &Stop) {
        if stop.acknowledge() {
            self.known.entry(name.to_owned()).or_default().synced = number;
        }
    }

    /// A new or rewritten file. It is rewritten aside of its contents' order: only whole states are ever synced.
    fn write(&mut self, directory: &Path, name: &str, stop: &Stop) -> Result<()> {
        if self.known.contains_key(name) {
            return self.replace(directory, name, stop);
        }
        let number = self.begin(name);
        let mut file = File::create(directory.join(name)).context("create")?;
        file.write_all(&contents(name, number)).context("write")?;
        file.sync_all().context("fsync")?;
        self.acknowledge(name, number, stop);
        Ok(())
    }

    /// The classical replacement: write aside, sync, rename, sync the directory.
    fn replace(&mut self, directory: &Path, name: &str, stop: &Stop) -> Result<()> {
        let number = self.begin(name);
        let aside = directory.join(format!(".{name}.new"));
        let mut file = File::create(&aside).context("create aside")?;
        file.write_all(&contents(name, number)).context("write aside")?;
        file.sync_data().context("fdatasync")?;
        fs::rename(&aside, directory.join(name)).context("rename")?;
        File::open(directory).and_then(|directory| directory.sync_all()).context("fsync of the directory")?;
        self.acknowledge(name, number, stop);
        Ok(())
    }

    fn remove(&mut self, directory: &Path, name: &str, stop: &Stop) -> Result<()> {
        // Until the removal is synced the file may be there or not: it is not looked at any more if the sync fails.
        self.known.remove(name);
        fs::remove_file(directory.join(name)).context("unlink")?;
        File::open(directory).and_then(|directory| directory.sync_all()).context("fsync of the directory")?;
        if stop.acknowledge() {
            self.gone.push(name.to_owned());
        }
        Ok(())
    }

    /// Every synced file is there in its synced or a later state; every synced removal stays. Returns how many files and removals
    /// that were. The error is `Lost` if something synced is missing, and only then.
    pub fn check(&self, directory: &Path) -> Result<u64> {
        let mut checked = 0;
        for (name, known) in self.known.iter().filter(|(_, known)| known.synced > 0) {
            let bytes = match fs::read(directory.join(name)) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    return Err(Lost(format!("{name} was synced and is not there")).into());
                }
                Err(error) => return Err(error).with_context(|| format!("{name} was synced")),
            };
            self.check_state(name, known, &bytes).map_err(|error| Lost(format!("{error:#}")))?;
            checked += 1;
        }
        for name in &self.gone {
            if directory.join(name).exists() {
                return Err(Lost(format!("{name} was removed and synced, and is back")).into());
            }
            checked += 1;
        }
        Ok(checked)
    }

    fn check_state(&self, name: &str, known: &Known, bytes: &[u8]) -> Result<()> {
        let header = bytes.get(..HEADER_BYTES).and_then(|header| header.try_into().ok());
        let number = u64::from_le_bytes(
            header.with_context(|| format!("{name} was synced and is {} bytes", bytes.len()))?,
        );
        if number < known.synced || number > known.begun {
            bail!("{name} is in state {number}; {} was synced, {} begun", known.synced, known.begun);
        }
        expect_bytes(bytes, &contents(name, number), &format!("{name} in state {number}"))
    }

    /// Forgets what a crash may have left undecided, so that the next round starts from what is there. That has survived a crash:
    /// it counts as synced.
    pub fn settle(&mut self, directory: &Path) -> Result<()> {
        let names: Vec<String> = self.known.keys().cloned().collect();
        for name in names {
            let number = fs::read(directory.join(&name))
                .ok()
                .and_then(|bytes| Some(u64::from_le_bytes(bytes.get(..HEADER_BYTES)?.try_into().ok()?)));
            match number {
                Some(number) if fs::read(directory.join(&name))? == contents(&name, number) => {
                    // Begun numbers go on from the largest ever used, so that no two states share one.
                    let begun = self.known.get(&name).map_or(0, |known| known.begun);
                    self.known.insert(name, Known { synced: number, begun });
                }
                _ => {
                    self.known.remove(&name);
                    // It may be half written: it was never synced.
                    let _ = fs::remove_file(directory.join(&name));
                }
            }
        }
        self.gone.clear();
        Ok(())
    }
}

/// Directories made one after the other without any sync: after a crash they must be a prefix.
#[derive(Default)]
pub struct Sequence {
    /// How many were made.
    pub made: u64,
}

impl Sequence {
    /// Makes `000000`, `000001`, … in `directory` until told to stop or refused, at most `count_max` of them.
    pub fn work(&mut self, directory: &Path, stop: &Stop, count_max: u64) -> Option<anyhow::Error> {
        for _ in 0..count_max {
            if stop.is_over() {
                break;
            }
            if let Err(error) = self.step(directory) {
                return Some(error.into());
            }
        }
        None
    }

    fn step(&mut self, directory: &Path) -> std::io::Result<()> {
        fs::create_dir(directory.join(format!("{:06}", self.made)))?;
        self.made += 1;
        Ok(())
    }

    /// What is there is a prefix of what was made; goes on from its end.
    pub fn check_prefix(&mut self, directory: &Path) -> Result<u64> {
        let names = crate::case::names(directory)?;
        for (index, name) in names.iter().enumerate() {
            if *name != format!("{index:06}") {
                bail!(
                    "{} of {} made directories are there, but {index:06} is missing",
                    names.len(),
                    self.made
                );
            }
        }
        self.made = names.len() as u64;
        Ok(self.made)
    }
}

/// A load that must see no failure at all: it keeps a model and compares everything in the end.
pub struct Unfailing {
    model: BTreeMap<String, Vec<u8>>,
    directory: PathBuf,
    /// Operations done.
    pub done: u64,
}

impl Unfailing {
    /// A load in its own directory.
    pub fn new(directory: PathBuf) -> Result<Unfailing> {
        fs::create_dir_all(&directory)?;
        Ok(Unfailing { model: BTreeMap::new(), directory, done: 0 })
    }

    /// Works until told to stop; any failure ends it.
    pub fn work(&mut self, stop: &Stop, random: &mut Random) -> Result<()> {
        while !stop.is_over() {
            self.step(random)
                .with_context(|| format!("operation {} in {}", self.done, self.directory.display()))?;
            self.done += 1;
        }
        Ok(())
    }

    fn step(&mut self, random: &mut Random) -> Result<()> {
        let name = format!("file{}", random.below(60));
        let path = self.directory.join(&name);
        let bound = if random.one_in(20) { 300_000 } else { 9_000 };
        let byte_count = random.size(bound);
        match random.below(9) {
            0 | 1 => {
                let bytes = random.bytes(byte_count);
                fs::write(&path, &bytes).context("write")?;
                self.model.insert(name, bytes);
            }
            2 => {
                let bytes = random.bytes(byte_count.min(5000));
                OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(&path)
                    .context("open")?
                    .write_all(&bytes)
                    .context("append")?;
                self.model.entry(name).or_default().extend_from_slice(&bytes);
            }
            3 => {
                let other = format!("file{}", random.below(60));
                match (self.model.remove(&name), name == other) {
                    (Some(bytes), false) => {
                        fs::rename(&path, self.directory.join(&other)).context("rename")?;
                        self.model.insert(other, bytes);
                    }
                    (Some(bytes), true) => drop(self.model.insert(name, bytes)),
                    (None, _) => {}
                }
            }
            4 if self.model.remove(&name).is_some() => fs::remove_file(&path).context("unlink")?,
            5 if self.model.contains_key(&name) => {
                let bytes = self.model.entry(name).or_default();
                let at = random.size(bytes.len().max(1));
                let data = random.bytes(byte_count.min(8000));
                let file = OpenOptions::new().write(true).open(&path).context("open")?;
                file.write_all_at(&data, at as u64).context("pwrite")?;
                if bytes.len() < at + data.len() {
                    bytes.resize(at + data.len(), 0);
                }
                bytes[at..at + data.len()].copy_from_slice(&data);
                if random.one_in(4) {
                    file.sync_all().context("fsync")?;
                }
            }
            6 => {
                let directory = self.directory.join(format!("dir{}", random.below(10)));
                fs::create_dir(&directory).context("mkdir")?;
                fs::remove_dir(&directory).context("rmdir")?;
            }
            7 => self.look(&name)?,
            _ => self.look(&name)?,
        }
        Ok(())
    }

    fn look(&self, name: &str) -> Result<()> {
        match (fs::read(self.directory.join(name)), self.model.get(name)) {
            (Ok(found), Some(expected)) => expect_bytes(&found, expected, name),
            (Err(error), None) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            (Err(error), _) => Err(error).with_context(|| format!("read {name}")),
            (Ok(_), None) => bail!("{name} is there and should not be"),
        }
    }

    /// Everything is as the model says.
    pub fn check(&self) -> Result<()> {
        let expected: Vec<&String> = self.model.keys().collect();
        crate::case::expect_eq(
            crate::case::names(&self.directory)?.iter().collect::<Vec<_>>(),
            expected,
            "names",
        )?;
        self.model.keys().try_for_each(|name| self.look(name))
    }
}

/// Runs `disturb` beside workers, of which no call may fail, and checks what they find afterwards.
pub fn under_load(
    cluster: &Cluster,
    random: &mut Random,
    disturb: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let stop = Stop::default();
    let new_worker = |index| Unfailing::new(cluster.mount.join(format!("worker{index}")));
    let mut workers = (0..UNFAILING_COUNT).map(new_worker).collect::<Result<Vec<Unfailing>>>()?;
    std::thread::scope(|scope| -> Result<()> {
        let mut threads = Vec::new();
        for worker in &mut workers {
            let (stop, mut random) = (&stop, Random::new(random.number()));
            threads.push(scope.spawn(move || worker.work(stop, &mut random)));
        }
        std::thread::sleep(BEFORE_AND_AFTER);
        let disturbed = disturb();
        if disturbed.is_err() {
            // Calls may wait for a server that will never come.
            cluster.release();
        }
        std::thread::sleep(BEFORE_AND_AFTER);
        stop.now();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        disturbed?;
        for result in ended {
            result.map_err(|_| anyhow!("a worker panicked"))?.context("a call failed")?;
        }
        Ok(())
    })?;
    workers.iter().try_for_each(Unfailing::check)
}

#[cfg(test)]
mod tests;
