//! A file of several stripes, which nobody asks for its size: where it ends shows only in what is read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::open;
use crate::case::{Context, expect_bytes, expect_eq, note};
use crate::random::Random;

const STRIPE_BYTES: usize = 64 * 1024;
const SIZE_MAX: usize = 900_000;
const WRITE_MAX: usize = 150_000;
const READ_MAX: usize = 200_000;
const PAGE_BYTES: usize = 4096;
/// The rest of a page may show zeros behind the end of the file (docs/limits.md), for less than this, in one of so many operations.
const ZEROS_LIFE: Duration = Duration::from_millis(500);
const ZEROS_SELDOM: u64 = 1000;
/// How far from the border between two stripes an operation may begin that is meant to cross it.
const BORDER_BYTES: usize = 6_000;

struct Driver {
    files: [File; 2],
    model: Vec<u8>,
    random: Random,
    short_read_count: u64,
    zeros_count: u64,
}

impl Driver {
    /// Anywhere, or near the border between two stripes.
    fn position(&mut self) -> usize {
        if self.random.one_in(2) {
            return self.random.size(SIZE_MAX);
        }
        let border = STRIPE_BYTES * (1 + self.random.size(SIZE_MAX / STRIPE_BYTES));
        (border - BORDER_BYTES + self.random.size(2 * BORDER_BYTES)).min(SIZE_MAX - 1)
    }

    fn step(&mut self) -> Result<()> {
        let mount = self.random.size(2);
        let at = self.position();
        match self.random.below(6) {
            0..=2 => self.write(mount, at),
            3 | 4 => self.read(mount, at),
            _ => self.cut(mount, at),
        }
    }

    fn write(&mut self, mount: usize, at: usize) -> Result<()> {
        let byte_count = 1 + self.random.size(WRITE_MAX.min(SIZE_MAX - at));
        // No zeros: those are what stands behind an end.
        let bytes: Vec<u8> = self.random.bytes(byte_count).iter().map(|byte| byte | 1).collect();
        let end = at + byte_count;
        self.files[mount]
            .write_all_at(&bytes, at as u64)
            .with_context(|| format!("write [{at}, {end}) on mount {mount}"))?;
        self.model.resize(self.model.len().max(end), 0);
        self.model[at..end].copy_from_slice(&bytes);
        Ok(())
    }

    fn cut(&mut self, mount: usize, size: usize) -> Result<()> {
        self.files[mount]
            .set_len(size as u64)
            .with_context(|| format!("truncate to {size} on mount {mount}"))?;
        self.model.resize(size, 0);
        Ok(())
    }

    fn read(&mut self, mount: usize, at: usize) -> Result<()> {
        let end = at + 1 + self.random.size(READ_MAX);
        let known_end = end.min(self.model.len()).max(at);
        let mut bytes = vec![0; end - at];
        let mut found = self.files[mount].read_at(&mut bytes, at as u64)?;
        let what = format!("read [{at}, {end}) of {} on mount {mount}", self.model.len());
        let excess = bytes.get(known_end - at..found).unwrap_or_default();
        let is_rest_of_page = excess.len() < PAGE_BYTES && (at + found).is_multiple_of(PAGE_BYTES);
        if !excess.is_empty() && is_rest_of_page && excess.iter().all(|byte| *byte == 0) {
            self.zeros_count += 1;
            sleep(ZEROS_LIFE);
            found = self.files[mount].read_at(&mut bytes, at as u64)?;
        }
        expect_eq(found, known_end - at, &what)?;
        self.short_read_count += u64::from(known_end < end);
        expect_bytes(&bytes[..found], self.model.get(at..known_end).unwrap_or_default(), &what)
    }
}

/// Both mounts keep the file open, and read and write over its stripes and behind its end.
pub fn striped(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    context.set_stripes(&a, 4, "64K")?;
    let files = [open(&a)?, open(&b)?];
    let random = Random::new(context.seed + 3);
    let mut driver = Driver { files, model: Vec::new(), random, short_read_count: 0, zeros_count: 0 };
    for number in 0..context.round_count {
        if number > 300 && context.is_enough(number, "operations") {
            break;
        }
        driver.step().with_context(|| format!("operation {number}"))?;
    }
    for path in [&a, &b] {
        expect_bytes(&std::fs::read(path)?, &driver.model, "the whole file")?;
    }
    ensure!(driver.short_read_count > 0, "nothing was read over the end");
    let Driver { short_read_count, zeros_count, .. } = driver;
    note(&format!("{short_read_count} reads over the end, {zeros_count} of them with the rest of a page"));
    ensure!(zeros_count <= 1 + context.round_count / ZEROS_SELDOM, "zeros behind the end are to be seldom");
    Ok(())
}
