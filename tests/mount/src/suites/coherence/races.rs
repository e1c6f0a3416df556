use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};

use super::contents::open_rw;
use crate::agent::{Agent, LockRequest};
use crate::case::{Context, expect, expect_bytes, expect_eq, names, read, write};
use crate::random::Random;
use crate::sys::{self, LockKind, LockMode};

/// Runs the same work through both mounts at once and returns both results.
pub(super) fn at_once<T: Send>(
    context: &Context,
    work: impl Fn(usize, &Path) -> Result<T> + Sync,
) -> Result<[T; 2]> {
    std::thread::scope(|scope| {
        let work = &work;
        let first = scope.spawn(move || work(0, &context.a));
        let second = scope.spawn(move || work(1, &context.b));
        let first = first.join().map_err(|_| anyhow!("a thread panicked"))??;
        let second = second.join().map_err(|_| anyhow!("a thread panicked"))??;
        Ok([first, second])
    })
}

/// Of two O_EXCL creates of one name exactly one wins.
pub fn exclusive_create(context: &Context) -> Result<()> {
    let round_count = context.rounds(500);
    let won = at_once(context, |_, directory| {
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
        Ok((0..round_count)
            .map(|number| sys::open(&directory.join(format!("file{number}")), flags, 0o644).is_ok())
            .collect::<Vec<bool>>())
    })?;
    for (number, (one, two)) in won[0].iter().zip(&won[1]).enumerate() {
        expect(one != two, &format!("file{number}: made by {}", if *one { "both" } else { "none" }))?;
    }
    expect_eq(names(&context.a)?.len() as u64, round_count, "names in the end")
}

/// Of two mkdirs of one name exactly one wins.
pub fn mkdir(context: &Context) -> Result<()> {
    let round_count = context.rounds(300);
    let won = at_once(context, |_, directory| {
        Ok((0..round_count)
            .map(|number| fs::create_dir(directory.join(format!("dir{number}"))).is_ok())
            .collect::<Vec<bool>>())
    })?;
    for (number, (one, two)) in won[0].iter().zip(&won[1]).enumerate() {
        expect(one != two, &format!("dir{number}: made by {}", if *one { "both" } else { "none" }))?;
    }
    expect_eq(fs::metadata(&context.b)?.nlink(), round_count + 2, "links of the directory")
}

/// Of two renames of one name exactly one wins.
pub fn rename(context: &Context) -> Result<()> {
    let round_count = context.rounds(300);
    for number in 0..round_count {
        write(&context.a.join(format!("file{number}")), b"")?;
    }
    let won = at_once(context, |who, directory| {
        Ok((0..round_count)
            .map(|number| {
                let to = directory.join(format!("moved{number}-{who}"));
                fs::rename(directory.join(format!("file{number}")), to).is_ok()
            })
            .collect::<Vec<bool>>())
    })?;
    for (number, (one, two)) in won[0].iter().zip(&won[1]).enumerate() {
        expect(one != two, &format!("file{number}: renamed by {}", if *one { "both" } else { "none" }))?;
    }
    expect_eq(names(&context.b)?.len() as u64, round_count, "names in the end")
}

/// Links and unlinks of one file from both sides leave the right count.
pub fn link_unlink(context: &Context) -> Result<()> {
    write(&context.a.join("file"), b"x")?;
    let round_count = context.rounds(300);
    at_once(context, |who, directory| {
        for number in 0..round_count {
            fs::hard_link(directory.join("file"), directory.join(format!("link{who}-{number}")))?;
            if number % 3 != 0 {
                fs::remove_file(directory.join(format!("link{who}-{number}")))?;
            }
        }
        Ok(())
    })?;
    let expected = 1 + 2 * round_count.div_ceil(3);
    expect_eq(fs::metadata(context.a.join("file"))?.nlink(), expected, "links here")?;
    expect_eq(fs::metadata(context.b.join("file"))?.nlink(), expected, "links there")
}

/// Appends of both sides are all there, whole.
pub fn append(context: &Context) -> Result<()> {
    write(&context.a.join("log"), b"")?;
    let round_count = context.rounds(400);
    at_once(context, |who, directory| {
        let mut file = OpenOptions::new().append(true).open(directory.join("log"))?;
        for number in 0..round_count {
            file.write_all(format!("{who} {number:08}\n").as_bytes())?;
        }
        Ok(())
    })?;
    let text = String::from_utf8_lossy(&read(&context.a.join("log"))?).into_owned();
    let mut next = [0u64; 2];
    for line in text.lines() {
        let (who, number) = line.split_once(' ').ok_or_else(|| anyhow!("a torn record: {line:?}"))?;
        let who: usize = who.parse()?;
        let expected = next.get_mut(who).ok_or_else(|| anyhow!("a torn record: {line:?}"))?;
        expect_eq(number.parse::<u64>()?, *expected, "the order of one writer's records")?;
        *expected += 1;
    }
    expect_eq(next, [round_count; 2], "records of both")
}

/// Both sides write their own halves of the same pages.
pub fn disjoint_writes(context: &Context) -> Result<()> {
    let byte_count = 64 * 1024usize;
    write(&context.a.join("file"), &vec![0u8; byte_count])?;
    let round_count = context.rounds(20);
    at_once(context, |who, directory| {
        let file = open_rw(&directory.join("file"))?;
        for _ in 0..round_count {
            for at in (who * 32..byte_count).step_by(64 * 16) {
                file.write_all_at(&[b'A' + who as u8; 32], at as u64)?;
            }
        }
        Ok(())
    })?;
    let mut expected = vec![0u8; byte_count];
    for who in 0..2 {
        for at in (who * 32..byte_count).step_by(64 * 16) {
            expected[at..at + 32].fill(b'A' + who as u8);
        }
    }
    expect_bytes(&read(&context.a.join("file"))?, &expected, "here")?;
    expect_bytes(&read(&context.b.join("file"))?, &expected, "there")
}

fn add_one(file: &File) -> Result<()> {
    let mut bytes = [0u8; 8];
    file.read_exact_at(&mut bytes, 0)?;
    let value = u64::from_le_bytes(bytes) + 1;
    Ok(file.write_all_at(&value.to_le_bytes(), 0)?)
}

fn counter(context: &Context) -> Result<u64> {
    let bytes = read(&context.a.join("counter"))?;
    Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| anyhow!("the counter has another length"))?))
}

/// A counter under flock loses nothing.
pub fn counter_flock(context: &Context) -> Result<()> {
    write(&context.a.join("counter"), &[0; 8])?;
    let round_count = context.rounds(200);
    at_once(context, |_, directory| {
        for _ in 0..round_count {
            let file = open_rw(&directory.join("counter"))?;
            sys::flock(&file, libc::LOCK_EX)?;
            add_one(&file)?;
        }
        Ok(())
    })?;
    expect_eq(counter(context)?, 2 * round_count, "the counter")
}

/// A counter under POSIX locks of two processes loses nothing: the lock is taken by an agent, the counting done here under it.
pub fn counter_posix(context: &Context) -> Result<()> {
    write(&context.a.join("counter"), &[0; 8])?;
    let round_count = context.rounds(200);
    at_once(context, |_, directory| {
        let mut agent = Agent::new()?;
        let path = directory.join("counter");
        agent.open("f", &path, libc::O_RDWR)?;
        let file = open_rw(&path)?;
        let request = |mode| LockRequest { key: "f", kind: LockKind::Posix, mode, start: 0, byte_count: 8 };
        for _ in 0..round_count {
            agent.start_lock(request(LockMode::Write))?;
            let answer = agent
                .answer(std::time::Duration::from_secs(60))?
                .ok_or_else(|| anyhow!("no lock in a minute"))?;
            expect_eq(answer.err(), None, "waiting for the lock")?;
            add_one(&file)?;
            expect_eq(agent.lock(request(LockMode::Unlock))?, 0, "unlock")?;
        }
        Ok(())
    })?;
    expect_eq(counter(context)?, 2 * round_count, "the counter")
}

/// Who has a lock finds with lseek(2) where the records end that others have written under theirs, though other processes of his mount look at the
/// file all the time. What those were told before the lock was granted, the kernel may take in late, and drop the answer to who has it.
pub fn end_under_locks(context: &Context) -> Result<()> {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (here, there) = context.both("log");
    write(&here, b"")?;
    let files = [open_rw(&here)?, open_rw(&there)?];
    let set = |file: &File, number: u64, is_locked: bool| match (number / 2 % 2, is_locked) {
        (0, true) => sys::flock(file, libc::LOCK_EX),
        (0, false) => sys::flock(file, libc::LOCK_UN),
        (_, true) => sys::lock(file, LockKind::Posix, LockMode::Write, 0, 0, true),
        (_, false) => sys::lock(file, LockKind::Posix, LockMode::Unlock, 0, 0, false),
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        for path in [&here, &there] {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    // Any size that it had lately is right.
                    drop(fs::metadata(path));
                }
            });
        }
        let result = (0..context.rounds(2000)).try_for_each(|number| -> Result<()> {
            let file = &files[number as usize % 2];
            set(file, number, true)?;
            expect_eq(
                sys::seek(file, 0, libc::SEEK_END)?,
                8 * number,
                &format!("the end of {number} records"),
            )?;
            file.write_all_at(&number.to_le_bytes(), 8 * number)?;
            Ok(set(file, number, false)?)
        });
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// One side creates and unlinks, the other looks all the time; after a message it must see the truth.
pub fn lookup_storm(context: &Context) -> Result<()> {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let (done, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| -> Result<()> {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // What is seen in the middle may be either; only the load matters here.
                    looks.fetch_add(u64::from(context.b.join("file").exists()), Ordering::Relaxed);
                }
            });
        }
        let result = (0..context.rounds(400)).try_for_each(|_| -> Result<()> {
            write(&context.a.join("file"), b"x")?;
            fs::metadata(context.b.join("file")).context("made, but not seen")?;
            fs::remove_file(context.a.join("file"))?;
            expect(!context.b.join("file").exists(), "removed, but seen")
        });
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// Replacing a file by rename: readers see the old or the new contents, never a mixture and never nothing.
pub fn atomic_replace(context: &Context) -> Result<()> {
    use std::sync::atomic::{AtomicBool, Ordering};
    let contents = |number: u64| vec![b'a' + (number % 26) as u8; 10_000 + (number % 100) as usize];
    write(&context.a.join("file"), &contents(0))?;
    let (done, has_read) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| -> Result<()> {
        let reader = scope.spawn(|| -> Result<()> {
            while !done.load(Ordering::Relaxed) {
                let bytes = read(&context.b.join("file"))?;
                let first = bytes.first().copied().ok_or_else(|| anyhow!("an empty file"))?;
                expect(bytes.iter().all(|byte| *byte == first), "a mixture of two files")?;
                expect(bytes.len() >= 10_000, "a file that is cut")?;
                has_read.store(true, Ordering::Relaxed);
            }
            Ok(())
        });
        // At least so often, and until the reader has had its turn.
        let is_enough = |number| number > context.rounds(300) && has_read.load(Ordering::Relaxed);
        let result = (1..).take_while(|number| !is_enough(*number) && !reader.is_finished()).try_for_each(
            |number| -> Result<()> {
                write(&context.a.join("new"), &contents(number))?;
                Ok(fs::rename(context.a.join("new"), context.a.join("file"))?)
            },
        );
        done.store(true, Ordering::Relaxed);
        reader.join().map_err(|_| anyhow!("the reader panicked"))??;
        result
    })
}

/// Bytes that one side writes and the other only reads, in turns: of no round number, so that both sides meet in pages and stripes.
const PART_BYTES: u64 = 41_003;
const STRIPED_BYTES: u64 = 24 * PART_BYTES;

/// Both sides read and write ranges over several stripes at once: a side that has one stripe waits for another one that
/// the other side has. Each writes its own parts, finds them as written, and finds those of the other side when both rest.
pub fn across_stripes(context: &Context) -> Result<()> {
    let path = context.a.join("file");
    context.set_stripes(&path, 4, "64K")?;
    let mut model = vec![0u8; STRIPED_BYTES as usize];
    write(&path, &model)?;
    for number in 0..context.rounds(40) {
        if number >= 5 && context.is_enough(number, "rounds") {
            break;
        }
        let [first, second] = at_once(context, |who, directory| {
            let mut random = Random::new(context.seed ^ (number * 2 + who as u64 + 1));
            let mut mine = model.clone();
            let (writer, reader) = (open_rw(&directory.join("file"))?, File::open(directory.join("file"))?);
            for step in 0..24u64 {
                let part = random.below(12) * 2 + who as u64;
                let at = part * PART_BYTES + random.below(PART_BYTES);
                let byte_count = random.below((part + 1) * PART_BYTES - at) as usize + 1;
                let bytes = vec![(number * 24 + step) as u8 | 1; byte_count];
                writer.write_all_at(&bytes, at)?;
                mine[at as usize..at as usize + byte_count].copy_from_slice(&bytes);
                check_part(&reader, &mine, part)?;
                check_part(&reader, &mine, random.below(12) * 2 + who as u64)?;
                let at = random.below(STRIPED_BYTES);
                let mut all = vec![0; (random.below(STRIPED_BYTES - at) + 1) as usize];
                reader.read_exact_at(&mut all, at)?;
            }
            Ok(mine)
        })?;
        for (index, part) in model.chunks_mut(PART_BYTES as usize).enumerate() {
            let written = if index % 2 == 0 { &first } else { &second };
            let at = index * PART_BYTES as usize;
            part.copy_from_slice(&written[at..at + part.len()]);
        }
        expect_bytes(&read(&context.a.join("file"))?, &model, &format!("here after round {number}"))?;
        expect_bytes(&read(&context.b.join("file"))?, &model, &format!("there after round {number}"))?;
    }
    Ok(())
}

/// Only this side writes this part.
fn check_part(reader: &File, model: &[u8], part: u64) -> Result<()> {
    let at = (part * PART_BYTES) as usize;
    let mut found = vec![0; PART_BYTES as usize];
    reader.read_exact_at(&mut found, at as u64)?;
    expect_bytes(&found, &model[at..at + found.len()], &format!("the side's own part {part}"))
}
