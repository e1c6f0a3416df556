//! The event sequences of the reference's hazards section 3, provoked as far as processes can.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};

use super::contents::{open_rw, store_mapped};
use super::names::alternate;
use crate::agent::{Agent, LockRequest};
use crate::bounded;
use crate::case::{Context, expect, expect_answer, expect_bytes, expect_eq, names, read, write};
use crate::sys::{self, LockKind, LockMode, MapKind, Mapping};

/// Runs `load` again and again beside `work` and stops it when the work is done.
fn beside<T>(load: impl Fn(u64) -> Result<()> + Sync, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let loader = scope.spawn(|| -> Result<()> {
            let mut number = 0;
            while !done.load(Ordering::Relaxed) {
                load(number)?;
                number += 1;
            }
            Ok(())
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        loader.join().map_err(|_| anyhow!("the load panicked"))??;
        result
    })
}

/// 3.1: names are revoked while the watcher's own mkdirs hold the directory.
pub fn busy_directory(context: &Context) -> Result<()> {
    let load = |number: u64| -> Result<()> {
        let path = context.b.join(format!("busy{}", number % 7));
        fs::create_dir(&path)?;
        Ok(fs::remove_dir(&path)?)
    };
    beside(load, || {
        for number in 0..context.rounds(300) {
            if number >= 10 && context.is_enough(number, "rounds") {
                break;
            }
            let (here, there) = context.both(&format!("file{number}"));
            expect(!there.exists(), "not made yet")?;
            write(&here, b"x")?;
            expect(there.exists(), "a new name is not seen in a busy directory")?;
            fs::remove_file(&here)?;
            expect(!there.exists(), "a removed name is seen in a busy directory")?;
        }
        Ok(())
    })
}

/// 3.2: a look-up's reply races the revocation of what it introduces.
pub fn introduced(context: &Context) -> Result<()> {
    alternate(context, 300, |number, doer, watcher| {
        let name = format!("file{number}");
        write(&doer.join(&name), b"1")?;
        let looked = std::thread::scope(|scope| -> Result<u64> {
            // The first look introduces the inode at the moment at which the size changes.
            let looker = scope.spawn(|| fs::metadata(watcher.join(&name)).map(|meta| meta.len()));
            write(&doer.join(&name), b"four")?;
            Ok(looker.join().map_err(|_| anyhow!("the looker panicked"))??)
        })?;
        expect(matches!(looked, 0 | 1 | 4), "a size that the file never had")?;
        expect_eq(fs::metadata(watcher.join(&name))?.len(), 4, "size after both are done")
    })
}

/// 3.3: listings (with attributes) race revocations in the same directory.
pub fn listing_revoked(context: &Context) -> Result<()> {
    for index in 0..200 {
        write(&context.a.join(format!("file{index}")), b"")?;
    }
    let load = |_| -> Result<()> {
        for entry in fs::read_dir(&context.b)? {
            // A name may go between the listing and the look.
            let _ = entry?.metadata();
        }
        Ok(())
    };
    beside(load, || {
        for number in 0..context.rounds(400) {
            if number >= 10 && context.is_enough(number, "rounds") {
                break;
            }
            let (here, there) = context.both(&format!("file{}", number % 200));
            write(&here, &vec![b'x'; number as usize + 1])?;
            expect_eq(fs::metadata(&there)?.len(), number + 1, "size beside a listing")?;
            if number % 5 == 0 {
                fs::remove_file(&here)?;
                expect(!there.exists(), "a removed name beside a listing")?;
                write(&here, b"")?;
                expect(there.exists(), "a new name beside a listing")?;
            }
        }
        Ok(())
    })
}

/// 3.4: reads of many pages race the revocation of those pages; an acknowledged write is seen by every read that begins later.
pub fn read_revoked(context: &Context) -> Result<()> {
    const PAGE_COUNT: usize = 256;
    let (a, b) = context.both("file");
    write(&a, &vec![0u8; PAGE_COUNT * 4096])?;
    let load = |_| -> Result<()> {
        let bytes = read(&b)?;
        expect_eq(bytes.len(), PAGE_COUNT * 4096, "length of the file")
    };
    let writer = open_rw(&a)?;
    let reader = File::open(&b)?;
    beside(load, || {
        let mut random = context.random();
        for number in 1..=context.rounds(400) {
            if number >= 10 && context.is_enough(number, "rounds") {
                break;
            }
            let page = random.size(PAGE_COUNT) as u64;
            let stamp = [(number % 251) as u8; 4096];
            writer.write_all_at(&stamp, page * 4096)?;
            let mut seen = [0u8; 4096];
            reader.read_exact_at(&mut seen, page * 4096)?;
            expect_bytes(&seen, &stamp, "a page after an acknowledged write elsewhere")?;
        }
        Ok(())
    })
}

/// 3.5: a mapped store to a page that was read before, while the other mount writes other bytes of the page.
pub fn mapped_page(context: &Context) -> Result<()> {
    let mut model = vec![b'.'; 4096];
    write(&context.a.join("file"), &model)?;
    alternate(context, 150, |number, doer, watcher| {
        read(&doer.join("file"))?;
        let mine = (number as usize * 13) % 2000;
        let theirs = 2048 + (number as usize * 17) % 2000;
        store_mapped(&doer.join("file"), 4096, mine, b"mapped")?;
        open_rw(&watcher.join("file"))?.write_all_at(b"written", theirs as u64)?;
        model[mine..mine + 6].copy_from_slice(b"mapped");
        model[theirs..theirs + 7].copy_from_slice(b"written");
        expect_bytes(&read(&doer.join("file"))?, &model, "the page on the mapping side")?;
        expect_bytes(&read(&watcher.join("file"))?, &model, "the page on the writing side")
    })
}

/// 3.6: an append where the kernel knows an old size, and O_APPEND set later by fcntl.
pub fn append_offset(context: &Context) -> Result<()> {
    let (a, b) = context.both("log");
    write(&a, b"0123456789")?;
    let mut late = open_rw(&b)?;
    let mut model = b"0123456789".to_vec();
    for number in 0..context.rounds(100) {
        if number >= 10 && context.is_enough(number, "rounds") {
            break;
        }
        fs::metadata(&b)?;
        let grown = vec![b'g'; 100 + (number as usize * 37) % 5000];
        OpenOptions::new().append(true).open(&a)?.write_all(&grown)?;
        model.extend_from_slice(&grown);
        if number % 2 == 0 {
            OpenOptions::new().append(true).open(&b)?.write_all(b"tail")?;
        } else {
            sys::set_status_flags(&late, libc::O_APPEND)?;
            late.write_all(b"late")?;
            sys::set_status_flags(&late, 0)?;
        }
        model.extend_from_slice(if number % 2 == 0 { b"tail" } else { b"late" });
        expect_bytes(&read(&b)?, &model, "the log on the appending side")?;
        expect_bytes(&read(&a)?, &model, "the log on the other side")?;
    }
    Ok(())
}

/// 3.7: what is pushed or read ahead into the cache must not overwrite a mapped store.
pub fn dirty_page(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let mut model = context.random().bytes(1 << 20);
    write(&a, &model)?;
    // Small files and sequential readers attract read-ahead and pushed pages.
    read(&b)?;
    let mut random = context.random();
    for number in 0..context.rounds(100) {
        if number >= 10 && context.is_enough(number, "rounds") {
            break;
        }
        let file = open_rw(&a)?;
        let mapping = match Mapping::new(&file, MapKind::SharedWrite, model.len()) {
            Ok(mapping) => mapping,
            // The other side's close has not arrived yet: allowed, and tried again next round.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
            Err(error) => return Err(error.into()),
        };
        let at = random.size(model.len() - 1);
        mapping.write(at, b"D");
        model[at] = b'D';
        let mut around = vec![0u8; model.len().min(at + 65536) - at];
        file.read_exact_at(&mut around, at as u64)?;
        expect_bytes(&around, &model[at..at + around.len()], "read(2) over a mapped store")?;
        mapping.sync()?;
        drop(mapping);
        drop(file);
        expect_bytes(&read(&b)?, &model, "the other mount after msync")?;
    }
    Ok(())
}

/// 3.8: very many children looked at by one mount, changed one by one through the other.
pub fn many_children(context: &Context) -> Result<()> {
    let child_count = context.rounds(1500);
    for index in 0..child_count {
        write(&context.a.join(format!("file{index}")), b"")?;
    }
    expect_eq(names(&context.b)?.len() as u64, child_count, "names")?;
    for entry in fs::read_dir(&context.b)? {
        entry?.metadata()?;
    }
    let mut random = context.random();
    for number in 0..300 {
        let (here, there) = context.both(&format!("file{}", random.below(child_count)));
        write(&here, &vec![b'y'; number + 1])?;
        expect_eq(fs::metadata(&there)?.len(), number as u64 + 1, "size of one child of many")?;
    }
    let total: u64 = fs::read_dir(&context.b)?
        .map(|entry| entry.and_then(|entry| entry.metadata()).map(|meta| meta.len()))
        .sum::<std::io::Result<u64>>()?;
    let other: u64 = fs::read_dir(&context.a)?
        .map(|entry| entry.and_then(|entry| entry.metadata()).map(|meta| meta.size()))
        .sum::<std::io::Result<u64>>()?;
    expect_eq(total, other, "sum of all sizes on both mounts")
}

/// 3.9: more waiting locks than a queue has entries, all on one CPU, and the holder there too.
pub fn waiting_locks(context: &Context) -> Result<()> {
    let path = context.a.join("file");
    write(&path, b"x")?;
    let mut holder = Agent::new()?;
    holder.open("f", &path, libc::O_RDWR)?;
    let request = |mode| LockRequest { key: "f", kind: LockKind::Posix, mode, start: 0, byte_count: 1 };
    expect_answer(holder.lock(request(LockMode::Write))?, 0, "the holder")?;
    let mut waiters = (0..24).map(|_| Agent::new()).collect::<Result<Vec<_>>>()?;
    for agent in waiters.iter_mut().chain([&mut holder]) {
        pin(agent.pid())?;
    }
    for waiter in &mut waiters {
        waiter.open("f", &path, libc::O_RDWR)?;
        waiter.start_lock(request(LockMode::Write))?;
    }
    expect(waiters[23].answer(Duration::from_millis(300))?.is_none(), "a waiter got a lock that is held")?;
    write(&context.a.join("other"), b"the mount still answers")?;
    expect_answer(
        holder.lock(request(LockMode::Unlock))?,
        0,
        "the holder's unlock, with every entry waiting",
    )?;
    let mut left: Vec<usize> = (0..waiters.len()).collect();
    while !left.is_empty() {
        let mut granted = None;
        for (position, index) in left.iter().enumerate() {
            if let Some(answer) = waiters[*index].answer(Duration::from_millis(5))? {
                expect_answer(answer.err().unwrap_or(0), 0, "a waiter")?;
                granted = Some(position);
                break;
            }
        }
        if let Some(position) = granted {
            let index = left.remove(position);
            expect_answer(waiters[index].lock(request(LockMode::Unlock))?, 0, "its unlock")?;
        }
    }
    Ok(())
}

fn pin(pid: i32) -> Result<()> {
    let said = bounded::say(
        Command::new("taskset").args(["-p", "-c", "0", &pid.to_string()]),
        "SHEEN_PIN=1",
        Duration::from_secs(60),
    )
    .context("taskset")?;
    expect(said.is_success(), &format!("taskset: {}", said.all()))
}

/// 3.11: `umount` returns after everything is durable: what was written just before is there on the next mount.
pub fn unmount_flushes(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let data = context.random().bytes(3 << 20);
    let third = context.work.join("third");
    fs::create_dir_all(&third)?;
    let mount = context.b.parent().context("the mount of the second directory")?;
    let table = crate::sweep::table("/proc/self/mounts");
    let source = table
        .lines()
        .find(|line| line.split(' ').nth(1).is_some_and(|point| std::path::Path::new(point) == mount))
        .and_then(|line| line.split(' ').next())
        .context("the second mount is not in /proc/self/mounts")?
        .to_owned();
    let run = |command: &mut Command| -> Result<()> {
        let said = bounded::say(command, "SHEEN_THIRD=1", Duration::from_secs(60))?;
        expect(said.is_success(), &format!("{command:?}: {}", said.all()))
    };
    let name = context.a.file_name().context("the case's directory")?;
    for number in 0..context.rounds(3) {
        run(Command::new(&context.options.sheen).arg("mount").arg(&source).arg(&third))?;
        write(&third.join(name).join(format!("file{number}")), &data)?;
        run(Command::new("umount").arg(&third))?;
        expect_bytes(
            &read(&context.a.join(format!("file{number}")))?,
            &data,
            "what was written before umount",
        )?;
    }
    Ok(())
}
