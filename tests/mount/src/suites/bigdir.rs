//! A directory of very many entries: every name exactly once, at positions that hold whatever changes meanwhile.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::case::{Bed, Case, Context, Rounds, Suite, expect, expect_eq, note};
use crate::cluster::{Cluster, Shape};
use crate::sys::{self, RawEntry};

mod again;
mod imports;
mod seeks;

/// The suite.
pub static SUITE: Suite = Suite { name: "bigdir", bed: Bed::Own, cases: CASES, rounds: ROUNDS, canary: None };

static CASES: &[Case] = &[
    Case { name: "stable_under_change", seconds: 400, run: stable_under_change },
    Case { name: "few_requests", seconds: 200, run: few_requests },
    Case { name: "few_requests_in_a_tree", seconds: 200, run: few_requests_in_a_tree },
    Case { name: "a_second_listing_asks_for_no_entry", seconds: 200, run: again::asks_for_no_entry },
    Case { name: "imports_ask_for_each_file_once", seconds: 200, run: imports::ask_for_each_file_once },
    Case { name: "seeks_ask_for_few_entries", seconds: 200, run: seeks::ask_for_few_entries },
];

/// One round is one entry (of seeks, in the large directory); in a tree, one directory; of imports, one package.
static ROUNDS: &[Rounds] = &[
    Rounds { case: "stable_under_change", usual: 20_000, thorough: 1_000_000, round_millis_max: 25 },
    Rounds { case: "few_requests", usual: 3_000, thorough: 100_000, round_millis_max: 25 },
    Rounds { case: "few_requests_in_a_tree", usual: 300, thorough: 2_000, round_millis_max: 250 },
    Rounds { case: "a_second_listing_asks_for_no_entry", usual: 400, thorough: 4_000, round_millis_max: 25 },
    Rounds { case: "imports_ask_for_each_file_once", usual: 12, thorough: 200, round_millis_max: 250 },
    Rounds { case: "seeks_ask_for_few_entries", usual: 1_500, thorough: 20_000, round_millis_max: 25 },
];

const SHAPE: Shape = Shape { mdt_count: 2, ost_count: 2, is_split: true };
/// Threads that make the entries.
const MAKER_COUNT: u64 = 2;
/// What a listing asks for at a time.
const BUFFER_BYTES: usize = 32 << 10;
/// Positions that are gone back to.
const SAMPLE_COUNT: usize = 100;
/// Inodes that a mount has after names alone: those that the kernel got with the first of them, and subdirectories.
const KEPT_MAX: u64 = 1_000;
/// A mount that is not heard for a moment, on a machine that stands still, believes nothing that it was told before.
const LOOK_TRY_COUNT: usize = 5;
/// More entries than that for each request.
const ENTRIES_PER_REQUEST: u64 = 100;
/// What a listing of names may add to the private memory of a mount's process, whatever their number.
const LISTING_KIB_MAX: u64 = 16 << 10;
/// Of more entries with names of this length a mount does not keep what a listing has said (`client/src/listing_cache.rs`).
const REMEMBERED_MAX: usize = 100_000;
/// In each directory of a tree.
const FILES_PER_DIRECTORY: u64 = 10;
/// Directories among the entries: they count in the link count.
const SUBDIRECTORY_COUNT: u64 = 3;
/// At least so many changes fall between two parts of a listing.
const CHANGES_PER_CHUNK: u64 = 3;
/// Names that the changes add and that are there at a time.
const COMING_MAX: u64 = 100;

/// What is to happen to the entry of this number: one in ten goes, one in ten gets another name, the rest stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
    Moves,
}

fn fate(number: u64) -> Fate {
    match number % 10 {
        3 => Fate::Goes,
        7 => Fate::Moves,
        _ => Fate::Stays,
    }
}

/// Names of different lengths, so that listings are cut at all kinds of places.
fn name(number: u64) -> String {
    let word = match fate(number) {
        Fate::Stays => "stays",
        Fate::Goes => "goes",
        Fate::Moves => "moves",
    };
    format!("{word}{number}{}", "x".repeat((number % 37) as usize))
}

fn moved(number: u64) -> String {
    format!("moved{number}")
}

fn subdirectory(number: u64) -> String {
    format!("stays-directory{number}")
}

fn stays(name: &[u8]) -> bool {
    name.starts_with(b"stays")
}

fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// The directory at hand, seen through both mounts, and the names that must be in it.
struct Big {
    cluster: Cluster,
    a: PathBuf,
    b: PathBuf,
    entry_count: u64,
    names: BTreeSet<Vec<u8>>,
    started: Instant,
}

fn stable_under_change(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let cluster = Cluster::new(&context.options, &context.work, SHAPE)?;
    cluster.up()?;
    let second = cluster.mount_again("mnt2")?;
    let (a, b) = (cluster.mount.join("dir"), second.join("dir"));
    let (entry_count, names) = (context.round_count, BTreeSet::new());
    let mut big = Big { cluster, a, b, entry_count, names, started: Instant::now() };
    // A slow machine makes fewer entries, unless so many are demanded.
    let is_demanded = context.options.count.is_some() || context.options.thorough;
    big.make((!is_demanded).then(|| Instant::now() + context.limit / 12))?;
    let order = big.list_at_rest()?;
    let samples = samples(&order);
    drop(order);
    big.list_under_change(&samples)?;
    big.rewind()?;
    big.list_over_restart(&samples)?;
    big.mount_anew(&second, &samples)?;
    big.remove()?;
    big.cluster.down().map(drop)
}

/// What `ls -l` and `rsync` ask of a directory with entries of all kinds costs hardly any request of a mount that knows nothing of
/// it; and the switches do what they say.
fn few_requests(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let cluster = Cluster::new(&context.options, &context.work, SHAPE)?;
    cluster.up()?;
    let entry_count = context.round_count;
    make_mixed(&cluster.mount.join("dir"), entry_count)?;
    // Its locks would have to be called back first.
    cluster.unmount(&cluster.mount)?;
    let list = |switch: &str| -> Result<(u64, String)> {
        let point = cluster.mount_again("lister")?;
        if !switch.is_empty() {
            cluster.sheen(&["lctl", "set_param", switch])?;
        }
        fs::metadata(point.join("dir"))?;
        clear_requests(&cluster)?;
        cluster.sheen(&["lctl", "set_param", "llite.*.statahead_stats=0"])?;
        look_at_all(&point.join("dir"), entry_count)?;
        let asked = requests(&cluster)?;
        let listings = cluster.sheen(&["lctl", "get_param", "-n", "llite.*.statahead_stats"])?;
        note(&format!(
            "{asked} requests for {entry_count} entries {switch}: {}",
            listings.replace('\n', ", ")
        ));
        cluster.unmount(&point)?;
        Ok((asked, listings))
    };
    let brought = format!("statahead total: {entry_count}\nstatahead wrong: 0\n");
    let is_cheap = |(asked, listings): &(u64, String)| {
        *asked * ENTRIES_PER_REQUEST < entry_count && listings.starts_with(&brought)
    };
    expect_once("all attributes come along with few requests", || list(""), is_cheap)?;
    let (without_xattrs, _) = list("llite.*.statahead_xattr=0")?;
    expect(without_xattrs >= entry_count / 2, "xattrs are asked for one by one")?;
    let (names_only, nothing) = list("llite.*.statahead_max=0")?;
    expect(names_only >= entry_count, "attributes are asked for one by one")?;
    expect(nothing.starts_with("statahead total: 0\n"), &format!("none came along: {nothing}"))?;
    cluster.down().map(drop)
}

/// Does it again where a mount has perhaps not been heard for a moment (`LOOK_TRY_COUNT`).
fn expect_once<T: std::fmt::Debug>(
    what: &str,
    look: impl Fn() -> Result<T>,
    is_right: impl Fn(&T) -> bool,
) -> Result<()> {
    let mut found = Vec::new();
    for _ in 0..LOOK_TRY_COUNT {
        found.push(look()?);
        if found.last().is_some_and(&is_right) {
            return Ok(());
        }
    }
    bail!("{what}, in none of these: {found:?}")
}

/// What `find -ls`, `du` and `rsync` ask of a tree costs two requests for each directory at most.
fn few_requests_in_a_tree(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let cluster = Cluster::new(&context.options, &context.work, SHAPE)?;
    cluster.up()?;
    let directory_count = context.round_count;
    let tree = cluster.mount.join("dir");
    let directories = tree_of(&tree, directory_count);
    for directory in &directories {
        fs::create_dir(directory)?;
        for number in 0..FILES_PER_DIRECTORY {
            make_file(&directory.join(format!("file{number}")))?;
        }
    }
    cluster.unmount(&cluster.mount)?;
    let entry_count = directory_count * (FILES_PER_DIRECTORY + 1) - 1;
    let look = || -> Result<u64> {
        let point = cluster.mount_again("walker")?;
        fs::metadata(point.join("dir"))?;
        clear_requests(&cluster)?;
        expect_eq(walk(&point.join("dir"))?, entry_count, "entries below the top of the tree")?;
        let asked = requests(&cluster)?;
        note(&format!("{asked} requests for {entry_count} entries in {directory_count} directories"));
        cluster.unmount(&point)?;
        Ok(asked)
    };
    expect_once("two requests for a directory at most", look, |asked| *asked <= 2 * directory_count)?;
    cluster.down().map(drop)
}

/// Paths of so many directories, each with at most eight others in it, parents first.
fn tree_of(top: &Path, count: u64) -> Vec<PathBuf> {
    let mut paths = vec![top.to_path_buf()];
    for number in 1..count {
        let parent = paths[((number - 1) / 8) as usize].clone();
        paths.push(parent.join(format!("directory{number}")));
    }
    paths
}

/// Looks at everything below a directory; -> how many entries.
fn walk(directory: &Path) -> Result<u64> {
    let mut count = 0;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        count += 1;
        if fs::symlink_metadata(&path)?.is_dir() {
            count += walk(&path)?;
        }
    }
    Ok(count)
}

/// Of ten entries one is a symlink, one a fifo, one a directory; the others are files. All but symlinks and fifos have an xattr.
fn make_mixed(directory: &Path, entry_count: u64) -> Result<()> {
    fs::create_dir(directory)?;
    side_by_side(MAKER_COUNT, |maker| {
        for number in (maker..entry_count).step_by(MAKER_COUNT as usize) {
            let path = directory.join(format!("entry{number}"));
            match number % 10 {
                0 => std::os::unix::fs::symlink("somewhere", &path)?,
                1 => sys::mknod(&path, libc::S_IFIFO | 0o644, 0)?,
                2 => fs::create_dir(&path)?,
                _ => make_file(&path)?,
            }
            if number % 10 > 1 {
                sys::set_xattr(&path, "user.number", number.to_string().as_bytes(), 0)?;
            }
        }
        Ok(())
    })
}

/// Attributes, ACL, link targets, xattrs and their names of all entries, in the order of their names.
fn look_at_all(directory: &Path, entry_count: u64) -> Result<()> {
    let found: BTreeSet<PathBuf> =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    expect_eq(found.len() as u64, entry_count, "entries")?;
    for path in found {
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_symlink() {
            expect_eq(fs::read_link(&path)?, PathBuf::from("somewhere"), "the target of a symlink")?;
            continue;
        }
        let acl =
            sys::get_xattr(&path, "system.posix_acl_access").err().and_then(|error| error.raw_os_error());
        expect_eq(acl, Some(libc::ENODATA), "the ACL of an entry without")?;
        let has_number = kind.is_file() || kind.is_dir();
        let expected: &[&str] = if has_number { &["user.number"] } else { &[] };
        expect_eq(sys::list_xattrs(&path)?, expected, "the names of an entry's xattrs")?;
        if has_number {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let number = sys::get_xattr(&path, "user.number").with_context(|| name.clone())?;
            expect_eq(format!("entry{}", String::from_utf8_lossy(&number)), name, "the xattr of an entry")?;
        }
    }
    Ok(())
}

fn clear_requests(cluster: &Cluster) -> Result<()> {
    cluster.sheen(&["lctl", "set_param", "mds.MDS.mdt.stats=0", "ost.OSS.ost.stats=0"]).map(drop)
}

/// What the servers were asked for since, of all kinds: names, listings, xattrs, data, locks and their cancels, and what targets ask each
/// other.
fn requests(cluster: &Cluster) -> Result<u64> {
    Ok(counts(cluster)?.values().sum())
}

/// The same by kind.
fn counts(cluster: &Cluster) -> Result<BTreeMap<String, u64>> {
    let said = cluster.sheen(&["lctl", "get_param", "-n", "mds.MDS.mdt.stats", "ost.OSS.ost.stats"])?;
    let mut counts = BTreeMap::new();
    for line in said.lines() {
        let mut words = line.split_whitespace();
        if let (Some(kind), Some(count), Some("samples")) = (words.next(), words.next(), words.next()) {
            *counts.entry(kind.to_owned()).or_insert(0) +=
                count.parse::<u64>().with_context(|| line.to_owned())?;
        }
    }
    Ok(counts)
}

impl Big {
    /// Says how long a phase took and how large the daemons are.
    fn phase_ends(&mut self, what: &str, count: u64) -> Result<()> {
        let seconds = self.started.elapsed().as_secs_f64();
        let mounts = self.cluster.mounts()?.iter().map(|(_, pid)| resident_mib(*pid)).max();
        let targets = self.cluster.targets()?;
        let mdts = targets.iter().filter(|(name, _)| name.contains("MDT")).map(|(_, pid)| resident_mib(*pid));
        note(&format!(
            "{what}: {count} in {seconds:.1} s; largest mount {} MiB, largest MDT {} MiB",
            mounts.unwrap_or_default(),
            mdts.max().unwrap_or_default(),
        ));
        self.started = Instant::now();
        Ok(())
    }

    /// Makes the entries, or as many as can be made until then.
    fn make(&mut self, stop_at: Option<Instant>) -> Result<()> {
        fs::create_dir(&self.a)?;
        for number in 0..SUBDIRECTORY_COUNT {
            fs::create_dir(self.a.join(subdirectory(number)))?;
            self.names.insert(subdirectory(number).into_bytes());
        }
        let (directory, wanted, next) = (&self.a, self.entry_count, AtomicU64::new(0));
        let is_enough = || stop_at.is_some_and(|stop_at| Instant::now() > stop_at);
        side_by_side(MAKER_COUNT, |_| {
            while !is_enough() {
                let number = next.fetch_add(1, Ordering::SeqCst);
                if number >= wanted {
                    break;
                }
                make_file(&directory.join(name(number))).with_context(|| format!("entry {number}"))?;
            }
            Ok(())
        })?;
        let entry_count = wanted.min(next.load(Ordering::SeqCst));
        self.entry_count = entry_count;
        self.names.extend((0..entry_count).map(|number| name(number).into_bytes()));
        self.phase_ends("made", entry_count)
    }

    /// KiB of private memory (RssAnon) of the process of the second mount.
    fn second_anon_kib(&self) -> Result<u64> {
        let mounts = self.cluster.mounts()?;
        let is_second = |(path, _): &&(String, i32)| self.b.starts_with(path);
        let (_, pid) = mounts.iter().find(is_second).context("the second mount")?;
        Ok(sys::status_kib(*pid, "RssAnon")?)
    }

    /// The kernel asks for names alone where nobody looks at what they lead to. Of these a mount keeps a certain number, however many there are.
    fn expect_few_kept(&self, before_kib: u64) -> Result<()> {
        let points = self.cluster.sheen(&["lctl", "get_param", "llite.*.mount_point"])?;
        let is_second = |point: &str| !point.is_empty() && self.b.starts_with(point);
        let number = points.lines().find_map(|line| {
            let (name, point) = line.split_once(".mount_point=")?;
            is_second(point.trim()).then_some(name)
        });
        let parameter = format!("{}.inode_count", number.with_context(|| points.clone())?);
        let count: u64 = self.cluster.sheen(&["lctl", "get_param", "-n", &parameter])?.trim().parse()?;
        let added = self.second_anon_kib()?.saturating_sub(before_kib);
        note(&format!("after names only: {count} inodes kept, {added} KiB more in memory"));
        expect(count <= KEPT_MAX, &format!("{count} inodes are kept after {} names", self.entry_count))?;
        expect(added <= LISTING_KIB_MAX, &format!("{added} KiB more after {} names", self.entry_count))
    }

    /// As du(1) and find(1) do with more than 10,000 entries: all names are read first, and each one is looked at then, in the order of inode
    /// numbers. Hardly anything is asked for.
    fn look_in_order_of_inodes(&self) -> Result<()> {
        let entry_count = self.names.len() as u64;
        let look = || -> Result<u64> {
            clear_requests(&self.cluster)?;
            let mut entries = Chunks::of(&self.b)?.again()?;
            entries.retain(|entry| !is_dot(&entry.name));
            entries.sort_by_key(|entry| entry.inode);
            for entry in &entries {
                let found = fs::symlink_metadata(self.b.join(OsStr::from_bytes(&entry.name)))?;
                expect_eq(found.ino(), entry.inode, "the inode number of a listing and of stat")?;
            }
            let asked = requests(&self.cluster)?;
            note(&format!("names and then each of {} by its inode number: {asked} requests", entries.len()));
            Ok(asked)
        };
        let is_cheap = |asked: &u64| *asked * ENTRIES_PER_REQUEST < entry_count;
        expect_once("hardly a request for each name", look, is_cheap)
    }

    /// Everything exactly once, with inode numbers of its own, as the other mount sees it. Returns the order.
    fn list_at_rest(&mut self) -> Result<Vec<RawEntry>> {
        let (mut order, before) = (Vec::new(), self.second_anon_kib()?);
        let mut chunks = Chunks::of(&self.b)?;
        while let Some(chunk) = chunks.next()? {
            order.extend(chunk);
        }
        expect_listed(&order, &self.names)?;
        self.expect_few_kept(before)?;
        if order.len() <= REMEMBERED_MAX {
            self.look_in_order_of_inodes()?;
        }
        let named = order.iter().filter(|entry| !is_dot(&entry.name));
        let inodes: HashSet<u64> = named.map(|entry| entry.inode).collect();
        expect_eq(inodes.len(), self.names.len(), "inode numbers that differ")?;
        let positions: HashSet<i64> = order.iter().map(|entry| entry.position_after).collect();
        expect_eq(positions.len(), order.len(), "positions that differ")?;
        for (number, entry) in order.iter().enumerate().step_by((order.len() / SAMPLE_COUNT).max(1)) {
            if !is_dot(&entry.name) {
                let path = self.b.join(OsStr::from_bytes(&entry.name));
                let found = fs::symlink_metadata(&path).with_context(|| format!("entry {number}"))?.ino();
                expect_eq(found, entry.inode, "the inode number of a listing and of stat")?;
            }
        }
        expect(!self.b.join("none").try_exists()?, "a name that is not there")?;
        for directory in [&self.a, &self.b] {
            expect_eq(fs::metadata(directory)?.nlink(), 2 + SUBDIRECTORY_COUNT, "links of the directory")?;
        }
        self.phase_ends("listed", order.len() as u64)?;
        Ok(order)
    }

    /// A listing through one mount while names go, come and move through the other.
    fn list_under_change(&mut self, samples: &[Sample]) -> Result<()> {
        let change = Change::default();
        let entry_count = self.entry_count;
        let (names, listed) = std::thread::scope(|scope| -> Result<_> {
            let changer = scope.spawn(|| {
                let result = change.run(&self.a, entry_count, self.names.clone());
                change.is_over.store(true, Ordering::SeqCst);
                result
            });
            let listed = list_beside(&self.b, &change);
            // Before the changes end: positions hold also while they go on.
            let looked = listed.and_then(|listed| {
                look_at(&self.b, samples)?;
                look_at(&self.a, samples)?;
                Ok(listed)
            });
            change.is_over.store(true, Ordering::SeqCst);
            let names = changer.join().map_err(|_| anyhow!("the changes panicked"))?.context("a change")?;
            Ok((names, looked?))
        })?;
        let change_count = change.count.load(Ordering::SeqCst);
        let mut times: HashMap<&[u8], u64> = HashMap::new();
        for entry in &listed {
            *times.entry(&entry.name).or_default() += 1;
        }
        if let Some((name, times)) = times.iter().find(|(_, times)| **times > 1) {
            bail!("{} was listed {times} times", String::from_utf8_lossy(name));
        }
        // What was there before and after was there all the time: no name comes back.
        for name in self.names.intersection(&names) {
            expect(
                times.contains_key(name.as_slice()),
                &format!("{} was there all the time and was not listed", String::from_utf8_lossy(name)),
            )?;
        }
        let unknown = listed.iter().find(|entry| {
            let is_known = self.names.contains(&entry.name) || entry.name.starts_with(b"moved");
            !is_known && !is_dot(&entry.name) && !entry.name.starts_with(b"comes")
        });
        if let Some(entry) = unknown {
            bail!("{} was listed and never made", String::from_utf8_lossy(&entry.name));
        }
        self.names = names;
        self.phase_ends(&format!("listed beside {change_count} changes"), listed.len() as u64)
    }

    /// A directory that is read again from its beginning shows what has changed, on both mounts.
    fn rewind(&mut self) -> Result<()> {
        for path in [&self.a, &self.b] {
            let mut chunks = Chunks::of(path)?;
            while chunks.next()?.is_some() {}
            let last = b"stays-last".to_vec();
            make_file(&self.a.join(OsStr::from_bytes(&last)))?;
            self.names.insert(last.clone());
            expect_listed(&chunks.again()?, &self.names)?;
            fs::remove_file(self.b.join(OsStr::from_bytes(&last)))?;
            self.names.remove(&last);
            expect_listed(&chunks.again()?, &self.names)?;
        }
        self.phase_ends("listed anew", 6 * self.names.len() as u64)
    }

    /// All servers die and come back in the middle of a listing, which goes on.
    fn list_over_restart(&mut self, samples: &[Sample]) -> Result<()> {
        let mut chunks = Chunks::of(&self.b)?;
        let mut listed = Vec::new();
        while listed.len() < self.names.len() / 2 {
            listed.extend(chunks.next()?.context("the listing ends in its middle")?);
        }
        for (name, pid) in self.cluster.targets()? {
            sys::kill(pid, libc::SIGKILL).with_context(|| format!("kill {name}"))?;
        }
        self.cluster.up()?;
        while let Some(chunk) = chunks.next()? {
            listed.extend(chunk);
        }
        expect_listed(&listed, &self.names).context("a listing over the restart of the servers")?;
        look_at(&self.a, samples).context("after the restart of the servers")?;
        self.phase_ends("listed over a restart", listed.len() as u64)
    }

    /// Positions of before are good after everything was stopped, started and mounted again.
    fn mount_anew(&mut self, second: &Path, samples: &[Sample]) -> Result<()> {
        self.cluster.unmount(second)?;
        self.cluster.down()?;
        self.cluster.up()?;
        self.cluster.mount_again("mnt2")?;
        for path in [&self.b, &self.a] {
            look_at(path, samples).context("after a new mount")?;
        }
        expect_listed(&Chunks::of(&self.b)?.again()?, &self.names).context("after a new mount")?;
        self.phase_ends("stopped, started, listed", self.names.len() as u64)
    }

    /// `rm -r`: names go while they are listed.
    fn remove(&mut self) -> Result<()> {
        fs::remove_dir_all(&self.b)?;
        expect(!self.a.try_exists()?, "the directory is gone")?;
        self.phase_ends("removed", self.names.len() as u64)
    }
}

/// An empty regular file, with fewer requests than open(2) and close(2) take.
fn make_file(path: &Path) -> Result<()> {
    sys::mknod(path, libc::S_IFREG | 0o644, 0).with_context(|| format!("mknod {}", path.display()))
}

/// Runs `work` in so many threads, with their numbers.
fn side_by_side(count: u64, work: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })
}

/// A directory that is read part by part.
struct Chunks(File);

impl Chunks {
    fn of(path: &Path) -> Result<Chunks> {
        Ok(Chunks(File::open(path)?))
    }

    /// The next entries; `None` at the end.
    fn next(&mut self) -> Result<Option<Vec<RawEntry>>> {
        let chunk = sys::directory_chunk(&self.0, BUFFER_BYTES).context("getdents64")?;
        Ok((!chunk.is_empty()).then_some(chunk))
    }

    fn seek(&mut self, position: i64) -> Result<()> {
        sys::seek(&self.0, position, libc::SEEK_SET).with_context(|| format!("seek to {position}"))?;
        Ok(())
    }

    /// Everything from the beginning.
    fn again(&mut self) -> Result<Vec<RawEntry>> {
        self.seek(0)?;
        let mut entries = Vec::new();
        while let Some(chunk) = self.next()? {
            entries.extend(chunk);
        }
        Ok(entries)
    }
}

/// These entries are the names, each once, and the two dots.
fn expect_listed(entries: &[RawEntry], names: &BTreeSet<Vec<u8>>) -> Result<()> {
    let found: BTreeSet<&[u8]> = entries.iter().map(|entry| entry.name.as_slice()).collect();
    let lost = names.iter().find(|name| !found.contains(name.as_slice()));
    if let Some(lost) = lost {
        bail!("{} is not listed", String::from_utf8_lossy(lost));
    }
    expect_eq(found.len(), names.len() + 2, "names that are listed")?;
    expect_eq(entries.len(), found.len(), "entries that are listed, none twice")
}

/// A position and the name behind it, of those that stay.
struct Sample {
    position: i64,
    next: Option<Vec<u8>>,
}

/// Positions all over the directory, also behind entries that will be gone.
fn samples(order: &[RawEntry]) -> Vec<Sample> {
    let step = (order.len() / SAMPLE_COUNT).max(1);
    let mut next = None;
    let mut samples = Vec::new();
    for (index, entry) in order.iter().enumerate().rev() {
        if index % step == 0
            || index + 1 == order.len()
            || (index % (step / 3 + 1) == 0 && !stays(&entry.name))
        {
            samples.push(Sample { position: entry.position_after, next: next.clone() });
        }
        if stays(&entry.name) {
            next = Some(entry.name.clone());
        }
    }
    samples
}

/// Behind each position comes what came there before, of the names that have stayed.
fn look_at(path: &Path, samples: &[Sample]) -> Result<()> {
    let mut chunks = Chunks::of(path)?;
    for sample in samples {
        chunks.seek(sample.position)?;
        let next = loop {
            let Some(chunk) = chunks.next()? else { break None };
            if let Some(entry) = chunk.into_iter().find(|entry| stays(&entry.name)) {
                break Some(entry.name);
            }
        };
        let text = |name: Option<&[u8]>| name.map(|name| String::from_utf8_lossy(name).into_owned());
        expect_eq(
            text(next.as_deref()),
            text(sample.next.as_deref()),
            &format!("behind position {} of {}", sample.position, path.display()),
        )?;
    }
    Ok(())
}

/// Names that change while somebody lists them.
#[derive(Default)]
struct Change {
    count: AtomicU64,
    is_over: AtomicBool,
}

impl Change {
    /// Removes, renames and makes names until it is told to end; no name comes back after it went. Returns the names then.
    fn run(
        &self,
        directory: &Path,
        entry_count: u64,
        mut names: BTreeSet<Vec<u8>>,
    ) -> Result<BTreeSet<Vec<u8>>> {
        let mut numbers: BTreeMap<bool, u64> = BTreeMap::new();
        let mut next = |fate_wanted: Fate| {
            let from = numbers.entry(fate_wanted == Fate::Goes).or_default();
            let found = (*from..entry_count).find(|number| fate(*number) == fate_wanted);
            *from = found.map_or(entry_count, |number| number + 1);
            found
        };
        for round in 0u64.. {
            if self.is_over.load(Ordering::SeqCst) {
                break;
            }
            if let Some(number) = next(Fate::Goes) {
                fs::remove_file(directory.join(name(number))).context("remove")?;
                names.remove(name(number).as_bytes());
                self.count.fetch_add(1, Ordering::SeqCst);
            }
            if let Some(number) = next(Fate::Moves) {
                fs::rename(directory.join(name(number)), directory.join(moved(number))).context("rename")?;
                names.remove(name(number).as_bytes());
                names.insert(moved(number).into_bytes());
                self.count.fetch_add(1, Ordering::SeqCst);
            }
            let coming = format!("comes{round}");
            make_file(&directory.join(&coming))?;
            names.insert(coming.into_bytes());
            if let Some(oldest) = round.checked_sub(COMING_MAX) {
                let oldest = format!("comes{oldest}");
                fs::remove_file(directory.join(&oldest)).context("remove")?;
                names.remove(oldest.as_bytes());
            }
            self.count.fetch_add(1, Ordering::SeqCst);
        }
        Ok(names)
    }
}

/// A whole listing, with some changes between any two parts of it.
fn list_beside(path: &Path, change: &Change) -> Result<Vec<RawEntry>> {
    let mut chunks = Chunks::of(path)?;
    let mut listed = Vec::new();
    let mut wanted = CHANGES_PER_CHUNK;
    while let Some(chunk) = chunks.next()? {
        listed.extend(chunk);
        while change.count.load(Ordering::SeqCst) < wanted {
            expect(!change.is_over.load(Ordering::SeqCst), "the changes ended by themselves")?;
            std::thread::sleep(Duration::from_micros(200));
        }
        wanted = change.count.load(Ordering::SeqCst) + CHANGES_PER_CHUNK;
    }
    Ok(listed)
}

fn resident_mib(pid: i32) -> u64 {
    sys::status_kib(pid, "VmRSS").unwrap_or_default() / 1024
}
