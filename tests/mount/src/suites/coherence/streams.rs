//! Streams through mappings and descriptors while what they read changes under them. Pages of them come unasked
//! (`llite.*.read_ahead_push`), which is counted: before anything is changed, and again and again.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::contents::open_rw;
use crate::case::{Context, expect, expect_eq, write};
use crate::random::Random;
use crate::sys::{MapKind, Mapping};

const PAGE: usize = 4096;
/// More than what is fetched as a whole, and than what is ahead of a stream.
const PAGE_COUNT: usize = 5120;
const STREAM_COUNT: usize = 4;

/// Changes after which it is seen to that pages come unasked again.
const CHANGES_BETWEEN_PUSHES: u64 = 50;
const PARAMETER: &str = "llite.*.read_ahead_push";
/// What the client takes for long enough, and some more.
const SIZE_SETTLES: Duration = Duration::from_millis(1100);
const PUSH_LIMIT: Duration = Duration::from_secs(60);

/// Pages that came unasked in all mounts.
struct Pushed<'a> {
    context: &'a Context,
    stamps: &'a Stamps,
    /// The file, seen through the mount that streams.
    path: &'a Path,
    /// And through the other one.
    other: &'a Path,
    /// Whether they come by default.
    former: String,
}

impl Drop for Pushed<'_> {
    fn drop(&mut self) {
        if self.is_counted() {
            // The case has said more by then.
            let _ = self.context.lctl(&["set_param", &format!("{PARAMETER}={}", self.former)]);
        }
    }
}

impl<'a> Pushed<'a> {
    /// Switches them on.
    fn new(context: &'a Context, stamps: &'a Stamps, [other, path]: [&'a Path; 2]) -> Result<Pushed<'a>> {
        let mut pushed = Pushed { context, stamps, path, other, former: String::new() };
        if pushed.is_counted() {
            let said = context.lctl(&["get_param", "-n", PARAMETER])?;
            pushed.former = said.lines().next().unwrap_or_default().trim().to_owned();
            context.lctl(&["set_param", &format!("{PARAMETER}=1")])?;
        }
        Ok(pushed)
    }

    /// Other file systems push nothing.
    fn is_counted(&self) -> bool {
        self.context.options.local.is_none()
    }

    fn page_count(&self) -> Result<u64> {
        let said = self.context.lctl(&["get_param", "llite.*.read_ahead_stats"])?;
        let counts = said.lines().filter_map(|line| line.trim().strip_prefix("pushed"));
        counts.map(|rest| rest.split_whitespace().next().map_or(Ok(0), |count| Ok(count.parse()?))).sum()
    }

    /// Waits until more have come. That takes until the kernel surely knows how long the file is, and pages that are to be read again:
    /// they go with each write of the other mount.
    fn come_again(&self) -> Result<()> {
        if !self.is_counted() {
            return Ok(());
        }
        let (before, since) = (self.page_count()?, Instant::now());
        while self.page_count()? == before {
            if since.elapsed() > PUSH_LIMIT {
                bail!("no page of a stream comes unasked: {before} have");
            }
            self.stamps.write(&open_rw(self.other)?, 0)?;
            std::thread::sleep(SIZE_SETTLES);
            crate::sys::ask_size(self.path)?;
            std::thread::sleep(SIZE_SETTLES);
        }
        Ok(())
    }
}

/// What each page holds at least: its stamp, in each of its words. Zeros are old where no hole has been.
struct Stamps {
    floors: Vec<AtomicU64>,
    holes: Vec<AtomicBool>,
    last: AtomicU64,
}

fn page_of(stamp: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat(PAGE / 8)
}

impl Stamps {
    fn new() -> Stamps {
        Stamps {
            floors: (0..PAGE_COUNT).map(|_| AtomicU64::new(1)).collect(),
            holes: (0..PAGE_COUNT).map(|_| AtomicBool::new(false)).collect(),
            last: AtomicU64::new(1),
        }
    }

    /// A file with the first stamps.
    fn make(&self, path: &Path) -> Result<()> {
        write(path, &page_of(1).repeat(PAGE_COUNT))
    }

    /// Looks at a page through `look`, which says the words that it sees, or nothing behind the end.
    fn check(&self, page: usize, look: impl FnOnce() -> Result<Option<[u64; 2]>>) -> Result<()> {
        let floor = self.floors[page].load(Ordering::SeqCst);
        let was_hole = self.holes[page].load(Ordering::SeqCst);
        let seen = look()?;
        let may_be_hole = was_hole || self.holes[page].load(Ordering::SeqCst);
        let is_good = |word: u64| word >= floor || word == 0 && may_be_hole;
        let holds = seen.map_or(may_be_hole, |words| words.into_iter().all(is_good));
        expect(
            holds,
            &format!("page {page} shows {seen:?}, where {floor} was acknowledged (holes: {may_be_hole})"),
        )
    }

    /// The same through pread(2), within the file.
    fn check_read(&self, file: &File, page: usize) -> Result<()> {
        self.check(page, || {
            let mut bytes = [0; PAGE];
            file.read_exact_at(&mut bytes, (page * PAGE) as u64)?;
            Ok(Some(words_of(&bytes)))
        })
    }

    fn write(&self, file: &File, page: usize) -> Result<()> {
        let stamp = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        file.write_all_at(&page_of(stamp), (page * PAGE) as u64)?;
        self.acknowledge(page, stamp);
        Ok(())
    }

    fn acknowledge(&self, page: usize, stamp: u64) {
        self.floors[page].store(stamp, Ordering::SeqCst);
        self.holes[page].store(false, Ordering::SeqCst);
    }

    /// Cuts the file to so many pages, and makes it as long as it was.
    fn cut(&self, page_count: usize, set_size: impl Fn(u64) -> Result<()>) -> Result<()> {
        self.holes[page_count..].iter().for_each(|hole| hole.store(true, Ordering::SeqCst));
        set_size((page_count * PAGE) as u64)?;
        let next = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        self.floors[page_count..].iter().for_each(|floor| floor.store(next, Ordering::SeqCst));
        set_size((PAGE_COUNT * PAGE) as u64)
    }
}

fn words_of(bytes: &[u8]) -> [u64; 2] {
    let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
    [word(0), word(bytes.len() - 8)]
}

/// Streams front to back, again and again, while `change` runs.
fn while_streaming(
    stream: impl Fn() -> Result<()> + Sync,
    change: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let done = AtomicBool::new(false);
    let failed = Mutex::new(Ok(()));
    std::thread::scope(|scope| {
        for _ in 0..STREAM_COUNT {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if let Err(error) = stream() {
                        *failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Err(error);
                        return;
                    }
                }
            });
        }
        let result = change();
        done.store(true, Ordering::Relaxed);
        result
    })?;
    failed.into_inner().map_err(|_| anyhow!("a stream panicked"))?
}

fn mapped(stamps: &Stamps, path: &Path) -> Result<()> {
    let mapping = Mapping::new(&File::open(path)?, MapKind::SharedRead, PAGE_COUNT * PAGE)?;
    for page in 0..PAGE_COUNT {
        stamps.check(page, || {
            let ends = [mapping.read(page * PAGE, 8), mapping.read((page + 1) * PAGE - 8, 8)].concat();
            Ok(Some(words_of(&ends)))
        })?;
    }
    Ok(())
}

fn many_rounds(
    context: &Context,
    pushed: &Pushed<'_>,
    mut round: impl FnMut(u64, &mut Random) -> Result<()>,
) -> Result<()> {
    let mut random = context.random();
    for number in 0..context.rounds(150) {
        if number >= 10 && context.is_enough(number, "rounds") {
            break;
        }
        if number % CHANGES_BETWEEN_PUSHES == 0 {
            pushed.come_again()?;
        }
        round(number, &mut random)?;
    }
    Ok(())
}

/// One mount streams through mappings, the other writes pages here and there.
pub fn against_writes(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let stamps = Stamps::new();
    stamps.make(&a)?;
    let pushed = Pushed::new(context, &stamps, [&a, &b])?;
    let reader = File::open(&b)?;
    // Open for long; no pages come unasked meanwhile.
    let mut writer = None;
    while_streaming(
        || mapped(&stamps, &b),
        || {
            many_rounds(context, &pushed, |number, random| {
                let page = random.size(PAGE_COUNT);
                let file = match writer.take() {
                    Some(file) => file,
                    None => open_rw(&a)?,
                };
                stamps.write(&file, page)?;
                writer = Some(file).filter(|_| (number + 1) % CHANGES_BETWEEN_PUSHES != 0);
                stamps.check_read(&reader, page)
            })
        },
    )
}

/// The mount that streams opens the file for writing in the middle, in every way that there is, and closes it again. In between the
/// other mount writes a page, so that the stream's pages go.
pub fn against_own_writers(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let stamps = Stamps::new();
    stamps.make(&a)?;
    let pushed = Pushed::new(context, &stamps, [&a, &b])?;
    while_streaming(
        || mapped(&stamps, &b),
        || {
            many_rounds(context, &pushed, |number, random| {
                stamps.write(&open_rw(&a)?, random.size(PAGE_COUNT))?;
                let page = random.size(PAGE_COUNT);
                match number % 3 {
                    0 => stamps.write(&open_rw(&b)?, page)?,
                    1 => {
                        let stamp = stamps.last.fetch_add(1, Ordering::SeqCst) + 1;
                        super::contents::store_mapped(&b, PAGE_COUNT * PAGE, page * PAGE, &page_of(stamp))?;
                        stamps.acknowledge(page, stamp);
                    }
                    _ => {
                        let file = OpenOptions::new().write(true).custom_flags(libc::O_DSYNC).open(&b)?;
                        stamps.write(&file, page)?;
                    }
                }
                stamps.check_read(&File::open(&a)?, page)
            })
        },
    )
}

/// The file is cut and made as long again, by the mount that streams and by the other one. Nothing of before is behind the cut, and the
/// file ends where it was told to.
pub fn against_truncates(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    let stamps = Stamps::new();
    stamps.make(&a)?;
    let pushed = Pushed::new(context, &stamps, [&a, &b])?;
    let stream = || -> Result<()> {
        let file = File::open(&b)?;
        let mut bytes = vec![0; PAGE];
        for page in 0..PAGE_COUNT {
            stamps.check(page, || {
                let found = file.read_at(&mut bytes, (page * PAGE) as u64)?;
                Ok((found == PAGE).then(|| words_of(&bytes)))
            })?;
        }
        Ok(())
    };
    while_streaming(stream, || {
        many_rounds(context, &pushed, |number, random| {
            let path = if number % 2 == 0 { &a } else { &b };
            let page_count = random.size(PAGE_COUNT);
            // Half of them without a descriptor.
            let set_size = |byte_count: u64| -> Result<()> {
                if number % 4 < 2 {
                    open_rw(path)?.set_len(byte_count)?;
                } else {
                    crate::sys::truncate(path, byte_count)?;
                }
                for path in [&a, &b] {
                    expect_eq(fs::metadata(path)?.len(), byte_count, "size after a truncate")?;
                }
                Ok(())
            };
            stamps.cut(page_count, set_size)?;
            let writer = open_rw(path)?;
            for _ in 0..20 {
                stamps.write(&writer, random.size(PAGE_COUNT))?;
            }
            Ok(())
        })
    })
}
