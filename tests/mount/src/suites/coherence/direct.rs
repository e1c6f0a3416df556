//! Writes past the page cache, several at a time on one file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, anyhow};

use crate::case::{Context, expect, expect_bytes, read, write};
use crate::random::Random;

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
