//! Writes past the page cache, several at a time on one file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, anyhow};

use super::races::at_once;
use crate::case::{Context, expect, expect_bytes, expect_eq, expect_errno, note, read, write};
use crate::random::Random;
use crate::sys::aio;

const BLOCK: usize = 4096;
const BLOCK_COUNT: u64 = 256;
const WRITER_COUNT: u64 = 4;
/// Each writer's blocks end where the next one's begin.
const OWN_BLOCK_COUNT: u64 = BLOCK_COUNT / WRITER_COUNT;

/// Four threads of one mount write blocks of one stripe or of several, inside of the file and behind its end, while the other mount
/// reads: a block is the old or the new one, and in the end what its writer wrote last.
pub fn side_by_side(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    context.set_stripes(&a, 4, "64K")?;
    // The last writer's blocks are behind the end at first.
    write(&a, &vec![0; (BLOCK_COUNT - OWN_BLOCK_COUNT) as usize * BLOCK])?;
    let done = AtomicBool::new(false);
    let written = std::thread::scope(|scope| -> Result<Vec<Vec<u8>>> {
        let reader = scope.spawn(|| -> Result<()> {
            while !done.load(Ordering::Relaxed) {
                for (number, block) in read_whole(&b)?.chunks(BLOCK).enumerate() {
                    let is_whole = block.len() == BLOCK && block.iter().all(|byte| *byte == block[0]);
                    expect(is_whole, &format!("block {number} is a mixture"))?;
                }
            }
            Ok(())
        });
        let writers: Vec<_> =
            (0..WRITER_COUNT).map(|writer| scope.spawn(move || write_blocks(context, writer))).collect();
        let written =
            writers.into_iter().map(|writer| writer.join().map_err(|_| anyhow!("a writer panicked"))?);
        let written = written.collect();
        done.store(true, Ordering::Relaxed);
        reader.join().map_err(|_| anyhow!("the reader panicked"))??;
        written
    })?;
    // Behind the end a block may never have been written, but the last one was.
    let expected = written.concat();
    for path in [&a, &b] {
        expect_bytes(&read(path)?, &expected, "what all wrote")?;
    }
    Ok(())
}

/// Reads in calls that begin at blocks: one that ends within a block, as those do that look for the end of a file of known size,
/// is followed by one that finds the rest of the block written anew.
fn read_whole(path: &Path) -> Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = vec![0; (BLOCK_COUNT as usize + 1) * BLOCK];
    let mut length = 0;
    loop {
        let count = file.read_at(bytes.get_mut(length..).context("a file without an end")?, length as u64)?;
        length += count;
        if count == 0 || !length.is_multiple_of(BLOCK) {
            bytes.truncate(length);
            return Ok(bytes);
        }
    }
}

/// Returns its part of the file.
fn write_blocks(context: &Context, writer: u64) -> Result<Vec<u8>> {
    let mut random = Random::new(context.seed + writer);
    let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(context.a.join("file"))?;
    let mut space = vec![0u8; 2 * BLOCK];
    let skip = space.as_ptr().align_offset(BLOCK);
    let block = space.get_mut(skip..skip + BLOCK).context("the buffer has room for its alignment")?;
    let mut part = vec![0; OWN_BLOCK_COUNT as usize * BLOCK];
    for number in 0..context.rounds(400) {
        // The first one is the last of the part: so the file gets its length.
        let at = if number == 0 { OWN_BLOCK_COUNT - 1 } else { random.below(OWN_BLOCK_COUNT) };
        block.fill(random.below(256) as u8);
        file.write_all_at(block, (writer * OWN_BLOCK_COUNT + at) * BLOCK as u64)?;
        part[at as usize * BLOCK..][..BLOCK].copy_from_slice(block);
    }
    Ok(part)
}

/// Longer than the kernel sends at a time, so that each append comes in pieces.
const RECORD_BYTES: usize = (2 << 20) + 3 * BLOCK;

fn open_for_appends(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).custom_flags(libc::O_DIRECT);
    options.open(path).context("open for appends")
}

/// A buffer at a multiple of the block, whose bytes are all `byte`.
struct Aligned {
    space: Vec<u8>,
    skip: usize,
}

impl Aligned {
    fn new(byte: u8, byte_count: usize) -> Aligned {
        let space = vec![byte; byte_count + BLOCK];
        let skip = space.as_ptr().align_offset(BLOCK).min(BLOCK);
        Aligned { space, skip }
    }

    /// Each block says whose it is, and which one of which record.
    fn stamped(stamp: [u64; 2], byte_count: usize) -> Aligned {
        let mut record = Aligned::new(stamp[0] as u8, byte_count);
        for (number, block) in record.space[record.skip..].chunks_exact_mut(BLOCK).enumerate() {
            for (word, space) in stamp.into_iter().chain([number as u64]).zip(block.chunks_exact_mut(8)) {
                space.copy_from_slice(&word.to_le_bytes());
            }
        }
        record
    }

    fn bytes(&self) -> &[u8] {
        &self.space[self.skip..self.space.len() - BLOCK + self.skip]
    }
}

/// What `Aligned::stamped` has put there.
fn stamp_of(block: &[u8]) -> [u64; 3] {
    let mut words = block.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
    std::array::from_fn(|_| words.next().unwrap_or(u64::MAX))
}

/// Appends of both sides that go past the cache and are not waited for by the kernel are all there, in the order of their blocks. A record is in
/// one piece too, but for those whose next part came late on a busy machine (docs/limits.md): these are counted.
pub fn asynchronous_appends(context: &Context) -> Result<()> {
    let (a, _) = context.both("log");
    context.set_stripes(&a, 2, "64K")?;
    let round_count = context.rounds(15).min(120);
    at_once(context, |who, directory| {
        let file = open_for_appends(&directory.join("log"))?;
        for number in 0..round_count {
            let record = Aligned::stamped([who as u64, number], RECORD_BYTES);
            let written = aio::write_at(&file, record.bytes(), 0).context("an asynchronous append")?;
            expect_eq(written, RECORD_BYTES, "bytes of an append")?;
        }
        Ok(())
    })?;
    let file = File::open(&a)?;
    expect_eq(file.metadata()?.len(), 2 * round_count * RECORD_BYTES as u64, "the length of all records")?;
    let block_count = (RECORD_BYTES / BLOCK) as u64;
    let (mut next, mut mixed_count, mut last) = ([0u64; 2], 0, None);
    let mut block = vec![0; BLOCK];
    for place in 0..2 * round_count * block_count {
        file.read_exact_at(&mut block, place * BLOCK as u64)?;
        let [who, record, number] = stamp_of(&block);
        let own = next.get_mut(who as usize).with_context(|| format!("whose block {place} is"))?;
        expect_eq(
            [record, number],
            [*own / block_count, *own % block_count],
            "the next block of its writer",
        )?;
        *own += 1;
        mixed_count += u64::from(number > 0 && last != Some(who));
        last = Some(who);
    }
    note(&format!("{mixed_count} of {} records in several pieces", 2 * round_count));
    expect_eq(next, [round_count * block_count; 2], "blocks of both")
}

/// The kernel cuts a file back to what it takes for its size when such an append has failed; what the other side has appended stays.
pub fn failed_append(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let (a, b) = context.both("ended");
    // Behind its last component nothing can be written.
    let path = a.to_string_lossy();
    context.lfs(&["setstripe", "-E", "1M", "-c", "1", "-S", "64K", &path])?;
    let (here, there) = (open_for_appends(&a)?, open_for_appends(&b)?);
    let mut expected = Vec::new();
    for number in 1..=context.rounds(20).min(60) {
        let record = Aligned::new(number as u8, BLOCK);
        let written = aio::write_at(&there, record.bytes(), 0).context("an append that fits")?;
        expect_eq(written, BLOCK, "bytes of an append")?;
        expected.extend_from_slice(record.bytes());
        let failed = aio::write_at(&here, Aligned::new(b'x', 2 << 20).bytes(), 0).map(drop);
        expect_errno(failed, libc::ENODATA, "an append that does not fit")?;
        expect_eq(here.metadata()?.len(), expected.len() as u64, "the size after a failed append")?;
    }
    for path in [&a, &b] {
        expect_bytes(&read(path)?, &expected, "what was appended")?;
    }
    Ok(())
}
