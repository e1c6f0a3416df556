//! A driver of our own: every operation goes to one of two mounts at random and is compared with a model after each.

mod striped;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::case::{Bed, Case, Context, Rounds, Suite, expect_bytes, expect_eq, note};
use crate::random::Random;
use crate::sys::{self, MapKind, Mapping};

/// The suite.
pub static SUITE: Suite = Suite {
    name: "two-mounts",
    bed: Bed::Pair,
    cases: CASES,
    rounds: ROUNDS,
    canary: Some("closed_between"),
};

static CASES: &[Case] = &[
    Case { name: "closed_between", seconds: 450, run: closed_between },
    Case { name: "kept_open", seconds: 450, run: kept_open },
    Case { name: "several_files_and_names", seconds: 450, run: several_files },
    Case { name: "striped", seconds: 450, run: striped::striped },
];

static ROUNDS: &[Rounds] = &[
    Rounds { case: "closed_between", usual: 5_000, thorough: 50_000, round_millis_max: 250 },
    Rounds { case: "kept_open", usual: 5_000, thorough: 50_000, round_millis_max: 250 },
    Rounds { case: "several_files_and_names", usual: 5_000, thorough: 50_000, round_millis_max: 250 },
    Rounds { case: "striped", usual: 5_000, thorough: 50_000, round_millis_max: 250 },
];

/// The largest size that the file takes.
const SIZE_MAX: usize = 256 * 1024;
const OPERATION_MAX: usize = 20_000;
/// The whole file is compared on both mounts after this many operations; around the change it is compared after each.
const WHOLE_EVERY: u64 = 16;

/// What the driver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operation {
    Read,
    Write,
    Append,
    Truncate,
    MappedRead,
    MappedStore,
}

const OPERATIONS: [Operation; 6] = [
    Operation::Read,
    Operation::Write,
    Operation::Append,
    Operation::Truncate,
    Operation::MappedRead,
    Operation::MappedStore,
];

struct Driver {
    paths: [PathBuf; 2],
    /// Descriptors that stay open on each mount, if that is the case at hand.
    kept: [Option<File>; 2],
    model: Vec<u8>,
    random: Random,
    done_counts: [u64; 6],
    refused_maps: u64,
}

fn open(path: &PathBuf) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| format!("open {}", path.display()))
}

impl Driver {
    fn new(context: &Context, name: &str, seed: u64) -> Driver {
        Driver {
            paths: [context.a.join(name), context.b.join(name)],
            kept: [None, None],
            model: Vec::new(),
            random: Random::new(seed),
            done_counts: [0; 6],
            refused_maps: 0,
        }
    }

    fn file(&self, mount: usize) -> Result<File> {
        match self.kept.get(mount).and_then(Option::as_ref) {
            Some(file) => Ok(file.try_clone()?),
            None => open(&self.paths[mount]),
        }
    }

    /// A range that begins in the file, at most `OPERATION_MAX` long.
    fn range(&mut self) -> (usize, usize) {
        let start = self.random.size(self.model.len().max(1));
        let byte_count = 1 + self.random.size(OPERATION_MAX);
        (start, byte_count)
    }

    fn step(&mut self, number: u64) -> Result<()> {
        let mount = self.random.size(2);
        let operation = OPERATIONS[self.random.size(OPERATIONS.len())];
        let (start, byte_count) = self.range();
        self.perform(operation, mount, start, byte_count).with_context(|| {
            format!("operation {number}: {operation:?} of {byte_count} at {start} on mount {mount}")
        })?;
        self.done_counts[operation as usize] += 1;
        let other = 1 - mount;
        self.compare_around(other, start, byte_count).with_context(|| {
            format!("operation {number}: {operation:?} on mount {mount}, looked at from {other}")
        })?;
        if number.is_multiple_of(WHOLE_EVERY) {
            for mount in [0, 1] {
                let bytes = fs::read(&self.paths[mount])?;
                expect_bytes(
                    &bytes,
                    &self.model,
                    &format!("operation {number}: the whole file on mount {mount}"),
                )?;
            }
        }
        Ok(())
    }

    fn perform(&mut self, operation: Operation, mount: usize, start: usize, byte_count: usize) -> Result<()> {
        match operation {
            Operation::Read => self.compare_around(mount, start, byte_count),
            Operation::Write => {
                let byte_count = byte_count.min(SIZE_MAX - start.min(SIZE_MAX));
                let bytes = self.random.bytes(byte_count);
                self.file(mount)?.write_all_at(&bytes, start as u64)?;
                self.store(start, &bytes);
                Ok(())
            }
            Operation::Append => {
                if self.model.len() + byte_count > SIZE_MAX {
                    return self.perform(Operation::Truncate, mount, start, byte_count);
                }
                let bytes = self.random.bytes(byte_count);
                OpenOptions::new().append(true).create(true).open(&self.paths[mount])?.write_all(&bytes)?;
                self.model.extend_from_slice(&bytes);
                Ok(())
            }
            Operation::Truncate => {
                let size = self.random.size(SIZE_MAX);
                self.file(mount)?.set_len(size as u64)?;
                self.model.resize(size, 0);
                Ok(())
            }
            Operation::MappedRead => self.mapped_read(mount, start, byte_count),
            Operation::MappedStore => self.mapped_store(mount, start, byte_count),
        }
    }

    fn store(&mut self, start: usize, bytes: &[u8]) {
        let end = start + bytes.len();
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[start..end].copy_from_slice(bytes);
    }

    fn inside(&self, start: usize, byte_count: usize) -> (usize, usize) {
        let start = start.min(self.model.len());
        (start, byte_count.min(self.model.len() - start))
    }

    fn compare_around(&self, mount: usize, start: usize, byte_count: usize) -> Result<()> {
        let size = fs::metadata(&self.paths[mount]).map(|meta| meta.size()).unwrap_or(0);
        expect_eq(size, self.model.len() as u64, "size")?;
        let (start, byte_count) = self.inside(start.saturating_sub(100), byte_count + 200);
        let mut bytes = vec![0u8; byte_count];
        self.file(mount)?.read_exact_at(&mut bytes, start as u64)?;
        expect_bytes(&bytes, &self.model[start..start + byte_count], &format!("contents from {start}"))
    }

    fn mapped_read(&mut self, mount: usize, start: usize, byte_count: usize) -> Result<()> {
        let (start, byte_count) = self.inside(start, byte_count);
        if byte_count == 0 {
            return Ok(());
        }
        if let Some(mapping) = self.map(mount, MapKind::SharedRead, start + byte_count)? {
            let bytes = mapping.read(start, byte_count);
            expect_bytes(&bytes, &self.model[start..start + byte_count], "mapped read")?;
        }
        Ok(())
    }

    fn mapped_store(&mut self, mount: usize, start: usize, byte_count: usize) -> Result<()> {
        let (start, byte_count) = self.inside(start, byte_count);
        if byte_count == 0 {
            return Ok(());
        }
        if let Some(mapping) = self.map(mount, MapKind::SharedWrite, start + byte_count)? {
            let bytes = self.random.bytes(byte_count);
            mapping.write(start, &bytes);
            mapping.sync().context("msync")?;
            self.store(start, &bytes);
        }
        Ok(())
    }

    /// A shared mapping is refused with ENODEV while the other mount has the file open. With nothing kept open that can only be a
    /// close that has not arrived yet, so it is tried again; otherwise the refusal is an answer and is counted.
    fn map(&mut self, mount: usize, kind: MapKind, byte_count: usize) -> Result<Option<Mapping>> {
        let may_be_refused = self.kept.iter().any(Option::is_some);
        for _ in 0..12_000 {
            let file = self.file(mount)?;
            match Mapping::new(&file, kind, byte_count) {
                Ok(mapping) => return Ok(Some(mapping)),
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) && may_be_refused => {
                    self.refused_maps += 1;
                    return Ok(None);
                }
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                    drop(file);
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error).context("a shared mapping"),
            }
        }
        anyhow::bail!("a shared mapping is refused although nobody else has the file open")
    }

    fn finish(&self) -> Result<()> {
        let total: u64 = self.done_counts.iter().sum();
        println!("{OPERATIONS:?}: {:?}", self.done_counts);
        note(&format!("{total} operations, {} mappings refused", self.refused_maps));
        for (operation, done) in OPERATIONS.iter().zip(self.done_counts) {
            anyhow::ensure!(done > 0, "{operation:?} never ran");
        }
        Ok(())
    }
}

/// Every operation opens the file, works and closes it.
fn closed_between(context: &Context) -> Result<()> {
    let mut driver = Driver::new(context, "file", context.seed);
    drop(open(&driver.paths[0])?);
    for number in 0..context.round_count {
        if number > 300 && context.is_enough(number, "operations") {
            break;
        }
        driver.step(number)?;
    }
    driver.finish()
}

/// Both mounts keep the file open; now and then one closes and opens it again.
fn kept_open(context: &Context) -> Result<()> {
    let mut driver = Driver::new(context, "file", context.seed + 1);
    let mut random = Random::new(context.seed + 2);
    for number in 0..context.round_count {
        if number > 300 && context.is_enough(number, "operations") {
            break;
        }
        if number == 0 || random.one_in(50) {
            for mount in [0, 1] {
                driver.kept[mount] = None;
                if number == 0 || !random.one_in(3) {
                    driver.kept[mount] = Some(open(&driver.paths[mount])?);
                }
            }
        }
        driver.step(number)?;
    }
    driver.finish()
}

/// Several files, renamed and exchanged between the operations.
fn several_files(context: &Context) -> Result<()> {
    const FILE_COUNT: usize = 4;
    let mut drivers: Vec<Driver> = (0..FILE_COUNT)
        .map(|index| Driver::new(context, &format!("file{index}"), context.seed + index as u64))
        .collect();
    for driver in &drivers {
        drop(open(&driver.paths[1])?);
    }
    let mut random = Random::new(context.seed + 99);
    for number in 0..context.round_count {
        if number > 300 && context.is_enough(number, "operations") {
            break;
        }
        let index = random.size(FILE_COUNT);
        if random.one_in(20) {
            let (mount, other) = (random.size(2), random.size(FILE_COUNT));
            if index != other {
                let (one, two) = (&drivers[index].paths[mount], &drivers[other].paths[mount]);
                sys::rename_with(one, two, sys::RENAME_EXCHANGE).context("exchange")?;
                let model = std::mem::take(&mut drivers[index].model);
                drivers[index].model = std::mem::replace(&mut drivers[other].model, model);
            }
        }
        drivers[index].step(number).with_context(|| format!("file{index}"))?;
    }
    let done_counts = drivers.iter().flat_map(|driver| driver.done_counts);
    note(&format!("{} operations", done_counts.sum::<u64>()));
    Ok(())
}
